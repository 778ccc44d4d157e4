/* What bench_step.c and bench_ranks.c share: the workloads, their data, and the clock around a step. */
#ifndef LK_BENCH_STEP_TIMER_H
#define LK_BENCH_STEP_TIMER_H

#include <lockstep/sys/comm.h>

#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

static inline lk_module *lstm_256(void)
{
    return lk_lstm(256, 256, .num_layers = 2, .batch_first = true);
}

static inline lk_criterion *mse(void)
{
    return lk_mse_loss();
}

static const workload workloads[] = {
    {"mnist-linear", mnist_linear, cross_entropy, adam_002, {4, {32, 1, 28, 28}}, {1, {32}}},
    {"toy-mlp", toy_mlp, cross_entropy, sgd, {2, {128, 784}}, {1, {128}}},
    {"cnn3d-16", cnn3d_16, smooth_l1, adam_0001, {5, {8, 3, 16, 16, 16}}, {2, {8, 12288}}},
    {"cnn3d-32", cnn3d_32, smooth_l1, adam_0001, {5, {16, 3, 32, 32, 32}}, {2, {16, 98304}}},
    {"convnet", convnet, cross_entropy, adam_0001, {4, {64, 1, 28, 28}}, {1, {64}}},
    {"lstm-256", lstm_256, mse, adam_0001, {3, {32, 64, 256}}, {3, {32, 64, 256}}},
};

/* The first digits of MNIST where the model reads such pictures and the file is there
 * ($LOCKSTEP_SHARED/data/mnist), else random numbers. */
static lk_tensor *make_input(lk_shape shape)
{
    enum { HEADER_NBYTES = 16 };
    const char *shared = getenv("LOCKSTEP_SHARED");
    char path[1024];
    int64_t count = lk_shape_count(shape);
    snprintf(path, sizeof path, "%s/data/mnist/train-images-idx3-ubyte.gz", shared ? shared : "../shared");
    gzFile file = count == shape.dim[0] * 784 ? gzopen(path, "rb") : NULL;
    if (!file) return lk_rand(shape);
    lk_tensor *x = lk_tensor_create(LK_F32, shape);
    uint8_t *bytes = malloc((size_t)count + HEADER_NBYTES);
    bool complete = gzread(file, bytes, (unsigned)count + HEADER_NBYTES) == count + HEADER_NBYTES;
    for (int64_t i = 0; complete && i < count; i++) lk_tensor_set(x, i, bytes[HEADER_NBYTES + i] / 255.0f);
    gzclose(file);
    free(bytes);
    return x;
}

static lk_tensor *make_target(lk_shape shape)
{
    if (shape.rank > 1) return lk_rand(shape);
    lk_tensor *target = lk_tensor_create(LK_I64, shape);
    for (int64_t i = 0; target && i < shape.dim[0]; i++) lk_tensor_set(target, i, (double)(i % 10));
    return target;
}

static void fail(void)
{
    fprintf(stderr, "%s\n", lk_error());
    exit(1);
}

/* Rank 0 says how many steps the next block has, 0 to end; alone there is nobody to tell. */
typedef int (*agree_function)(lk_comm *comm, int block);

/* The best of many short blocks: what the machine can do when nobody disturbs it. */
static double best_step_s(lk_step *step, const lk_input *inputs, double seconds, lk_comm *comm,
                          agree_function agree)
{
    double best = 1e9, end = now_s() + seconds;
    int block = 1;
    for (int i = 0; i < 3; i++)
        if (lk_step_train(step, inputs, 2)) fail();
    do {
        double start = now_s();
        for (int i = 0; i < block; i++)
            if (lk_step_train(step, inputs, 2)) fail();
        double block_s = now_s() - start;
        if (block_s / block < best) best = block_s / block;
        block = now_s() >= end ? 0 : block_s < 0.02 ? 2 * block : block;
        if (agree) block = agree(comm, block);
    } while (block > 0);
    return best;
}

/* How a step is timed; a thread_count of 0 is 1. */
typedef struct step_choice {
    double seconds;
    lk_dtype precision;
    int thread_count;
} step_choice;

/* Trains for a while as one rank of `comm`, or alone, and prints what came out of it on rank 0. */
static void time_step(const workload *w, step_choice choice, int rank, lk_comm *comm, agree_function agree)
{
    lk_manual_seed(0);
    int thread_count = choice.thread_count > 0 ? choice.thread_count : 1;
    lk_engine *engine = lk_engine_open("auto", LK_OPTIONS(lk_engine_options, .thread_count = thread_count));
    lk_step *step = lk_step(.model = w->model(), .criterion = w->criterion(), .optimizer = w->optimizer(),
                            .engine = engine, .comm = comm, .precision = choice.precision, .owned = true);
    lk_tensor *x = make_input(w->input), *y = make_target(w->target);
    if (!engine || !step || !x || !y) fail();
    lk_input inputs[] = {{"features", x}, {"targets", y}};
    double step_s = best_step_s(step, inputs, choice.seconds, comm, agree);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    if (rank == 0)
        printf("%s %.1f %.1f %.6g\n", w->name, step_s * 1e6, (double)usage.ru_maxrss / 1024,
               lk_step_loss(step));
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static const workload *find_workload(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads && argc > 1; i++)
        if (strcmp(argv[1], workloads[i].name) == 0) return &workloads[i];
    fprintf(stderr, "usage: %s mnist-linear|toy-mlp|cnn3d-16|cnn3d-32|convnet|lstm-256 [SECONDS [RANKS]]\n",
            argv[0]);
    exit(2);
}

#endif
