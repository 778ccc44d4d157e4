/* Times a step whose optimizer's moments are denormals beside one whose are not.
 *
 *     build/bench/bench_denormals [SECONDS]     prints "WORKLOAD normal-microseconds denormal-microseconds
 * ratio"
 *
 * The model is the MNIST job's linear layer with Adam, one thread, over pictures that are all zero, so that
 * nothing but their decay moves the moments. Each short block of steps begins with moments of a chosen size:
 * around 1e-3, or around 1e-39, where a weight's moments arrive whose pixel is never on. */
#include "workloads.h"

#include "step/step.h"

#include <stdio.h>
#include <stdlib.h>

enum { FEATURES = 784, CLASSES = 10, BATCH = 32, BLOCK = 25 };

static void fail(void)
{
    fprintf(stderr, "%s\n", lk_error());
    exit(1);
}

/* Adam's moments of all weights, each at a number of its own around `scale`. */
static void set_moments(lk_step *step, float scale)
{
    for (int s = 0; s < 2; s++) {
        float *moment = lki_buffer_data(step->flat.states[s]);
        for (int64_t i = 0; i < FEATURES * CLASSES; i++) moment[i] = scale * (1.0f + (float)(i % 7) / 7.0f);
    }
}

/* The best block of `BLOCK` steps, each of which begins with moments around `scale`. */
static double best_s(lk_step *step, const lk_input *inputs, float scale, double seconds)
{
    double best = 1e9, end = now_s() + seconds;
    while (now_s() < end) {
        set_moments(step, scale);
        double start = now_s();
        for (int i = 0; i < BLOCK; i++)
            if (lk_step_train(step, inputs, 2)) fail();
        double block_s = (now_s() - start) / BLOCK;
        if (block_s < best) best = block_s;
    }
    return best;
}

int main(int argc, char **argv)
{
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    lk_manual_seed(0);
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lk_step *step = lk_step(.model = mnist_linear(), .criterion = cross_entropy(), .optimizer = adam_002(),
                            .engine = engine, .owned = true);
    lk_tensor *x = lk_tensor_create(LK_F32, (lk_shape){4, {BATCH, 1, 28, 28}}),
              *y = lk_tensor_full(LK_I64, (lk_shape){1, {BATCH}}, 1);
    if (!engine || !step || !x || !y) fail();
    lk_input inputs[] = {{"features", x}, {"targets", y}}; /* zeros: weights' gradients are zero */
    if (lk_step_train(step, inputs, 2)) fail();
    double normal = best_s(step, inputs, 1e-3f, seconds), decayed = best_s(step, inputs, 0x1p-130f, seconds);
    printf("mnist-linear %.2f %.2f %.3f\n", normal * 1e6, decayed * 1e6, decayed / normal);
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return 0;
}
