/* Times an epoch of the MNIST-linear job as lk_train runs it: loader, steps, loss.
 *
 *     build/bench/bench_epoch DATA [RANKS [EPOCHS]]      prints "milliseconds steps", of the best epoch
 *
 * DATA holds MNIST's IDX files. The first epoch, which also compiles the step, is not counted. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct stopwatch {
    double start_s, best_s;
    long long steps;
} stopwatch;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static lk_status start_watch(lk_callback *callback, lk_runner *runner)
{
    stopwatch *watch = callback->context;
    (void)runner;
    watch->start_s = now_s();
    return LK_OK;
}

static lk_status stop_watch(lk_callback *callback, lk_runner *runner)
{
    stopwatch *watch = callback->context;
    double elapsed_s = now_s() - watch->start_s;
    if (runner->epoch_step > 1 && elapsed_s < watch->best_s) watch->best_s = elapsed_s;
    watch->steps = runner->loader_batch_step;
    return LK_OK;
}

int main(int argc, char **argv)
{
    stopwatch watch = {.best_s = 1e9};
    if (argc < 2) {
        fprintf(stderr, "usage: bench_epoch DATA [RANKS [EPOCHS]]\n");
        return 2;
    }
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10)),
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
        .loaders = lk_loaders(
            {"train", lk_loader(lk_mnist(argv[1], .train = true), .batch_size = 32, .shuffle = true)}),
        .callbacks =
            lk_callbacks(lk_on(epoch_start, start_watch, &watch), lk_on(epoch_end, stop_watch, &watch)),
        .num_epochs = argc > 3 ? atoi(argv[3]) : 20, .nproc = argc > 2 ? atoi(argv[2]) : 1,
        .thread_count = 1);
    if (status) fprintf(stderr, "bench_epoch: %s\n", lk_error());
    if (!status) printf("%.2f %lld\n", watch.best_s * 1e3, watch.steps);
    lk_runner_free(runner);
    return status != LK_OK;
}
