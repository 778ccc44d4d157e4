/* How fast the loader alone feeds MNIST: bench_loader [ROOT] [EPOCHS] [BATCH] [WORKERS].
 *
 * Shuffled, bytes to f32, on one core where WORKERS is 0. Without ROOT the pictures are 60,000 drawn bytes of
 * the same shape. Prints samples a second; the sum keeps the reads from being left out. */
#include <lockstep/data.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int fail(void)
{
    fprintf(stderr, "bench_loader: %s\n", lk_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *root = argc > 1 ? argv[1] : NULL;
    int epochs = argc > 2 ? atoi(argv[2]) : 20;
    int64_t batch_size = argc > 3 ? atoll(argv[3]) : 32;
    int workers = argc > 4 ? atoi(argv[4]) : 0;
    double start = now_s();
    lk_dataset *dataset =
        root && *root ? lk_mnist(root, .train = true) : lk_synthetic_digits(.train = true, .count = 60000);
    lk_loader *loader = lk_loader(dataset, .batch_size = batch_size, .shuffle = true, .num_workers = workers);
    if (!loader) return fail();
    printf("loaded in %.3f s\n", now_s() - start);
    double best = 0, sum = 0;
    for (int epoch = 0; epoch < epochs; epoch++) {
        lk_pass_size size;
        start = now_s();
        if (lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = epoch), &size)) return fail();
        for (lk_batch *batch;;) {
            if (lk_loader_next(loader, &batch)) return fail();
            if (!batch) break;
            const lk_tensor *features = lk_batch_get(batch, "features");
            sum += ((const float *)features->data)[lk_tensor_count(features) / 2 + 400];
        }
        double rate = (double)size.sample_count / (now_s() - start);
        if (rate > best) best = rate;
    }
    printf("best of %d epochs: %.2f million samples a second (%g)\n", epochs, best * 1e-6, sum);
    lk_loader_free(loader);
    return 0;
}
