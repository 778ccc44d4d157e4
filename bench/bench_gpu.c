/* Times one training step on a GPU, data on the GPU, steps one after another without waiting for each.
 *
 *     build/bench/bench_gpu WORKLOAD [SECONDS] [DEVICE]    prints "WORKLOAD microseconds microseconds-waiting
 * loss"
 *
 * The first number is the time a step takes when the host runs ahead, the second when it waits for each loss.
 * The environment's PRECISION may be bf16 or tf32; with BENCHMARK set, convolutions are by trial.
 * bench/peer_gpu.py does the same with PyTorch; bench/run_gpu shows them side by side. */
#include "resnet.h"
#include "workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCHES = 4 };

static lk_module *resnet_50_1000(void)
{
    return resnet_50(1000);
}

static lk_optimizer *momentum(void)
{
    return lk_sgd(.lr = 0.01, .momentum = 0.9);
}

static const workload workloads[] = {
    {"mnist-linear", mnist_linear, cross_entropy, adam_002, {4, {32, 1, 28, 28}}, {1, {32}}},
    {"toy-mlp", toy_mlp, cross_entropy, sgd, {2, {128, 784}}, {1, {128}}},
    {"cnn3d-16", cnn3d_16, smooth_l1, adam_0001, {5, {8, 3, 16, 16, 16}}, {2, {8, 12288}}},
    {"cnn3d-32", cnn3d_32, smooth_l1, adam_0001, {5, {64, 3, 32, 32, 32}}, {2, {64, 98304}}},
    {"convnet", convnet, cross_entropy, adam_0001, {4, {64, 1, 28, 28}}, {1, {64}}},
    {"resnet-50", resnet_50_1000, cross_entropy, momentum, {4, {128, 3, 224, 224}}, {1, {128}}},
};

static void fail(void)
{
    fprintf(stderr, "bench_gpu: %s\n", lk_error());
    exit(1);
}

/* A field of a small dataset: BATCHES batches one after another. */
typedef struct field {
    lk_tensor *all;
    lk_tensor batch; /* dtype and shape of one batch */
    lk_rows rows;
} field;

static void make_field(field *f, lk_shape shape, bool classes)
{
    lk_shape whole = shape;
    whole.dim[0] *= BATCHES;
    f->all = classes ? lk_tensor_create(LK_I64, whole) : lk_rand(whole);
    if (!f->all) fail();
    for (int64_t i = 0; classes && i < whole.dim[0]; i++) ((int64_t *)f->all->data)[i] = i % 10;
    f->batch = (lk_tensor){.dtype = f->all->dtype, .shape = shape};
    int64_t stride = 1;
    for (int i = shape.rank - 1; i >= 0; i--) {
        f->batch.stride[i] = stride;
        stride *= shape.dim[i];
    }
    f->rows = (lk_rows){.data = f->all->data,
                        .stored = f->all->dtype,
                        .length = whole.dim[0],
                        .width = lk_shape_count(shape) / shape.dim[0],
                        .divisor = 1,
                        .std = 1};
}

typedef struct job {
    lk_step *step;
    field fields[2];
    int64_t *indices;
    int64_t batch_size;
    int next;
} job;

static void train(job *j)
{
    static const char *const names[] = {"features", "targets"};
    const int64_t *indices = j->indices + j->next * j->batch_size;
    j->next = (j->next + 1) % BATCHES;
    lk_input inputs[] = {{names[0], &j->fields[0].batch}, {names[1], &j->fields[1].batch}};
    for (int i = 0; i < 2; i++)
        if (lk_step_take_rows(j->step, names[i], &j->fields[i].rows, indices)) fail();
    if (lk_step_train(j->step, inputs, 2)) fail();
}

/* The best of many short blocks. */
static double best_step_s(job *j, double seconds, bool waits)
{
    double best = 1e9, end = now_s() + seconds;
    int block = 1;
    for (int i = 0; i < 5; i++) train(j);
    if (lk_step_wait(j->step)) fail();
    do {
        double start = now_s();
        for (int i = 0; i < block; i++) {
            train(j);
            if (waits && lk_step_wait(j->step)) fail();
        }
        if (lk_step_wait(j->step)) fail();
        double block_s = now_s() - start;
        if (block_s / block < best) best = block_s / block;
        if (block_s < 0.05) block *= 2;
    } while (now_s() < end);
    return best;
}

int main(int argc, char **argv)
{
    const workload *chosen = NULL;
    for (size_t i = 0; i < sizeof workloads / sizeof *workloads && argc > 1; i++)
        if (strcmp(argv[1], workloads[i].name) == 0) chosen = &workloads[i];
    if (!chosen) {
        fprintf(
            stderr,
            "usage: bench_gpu mnist-linear|toy-mlp|cnn3d-16|cnn3d-32|convnet|resnet-50 [SECONDS] [DEVICE]\n");
        return 2;
    }
    const char *precision = getenv("PRECISION") ? getenv("PRECISION") : "fp32";
    lk_manual_seed(0);
    lk_engine_options how = {LK_SIZE(lk_engine_options), .allow_tf32 = strcmp(precision, "tf32") == 0,
                             .benchmark = getenv("BENCHMARK") != NULL};
    lk_engine *engine = lk_engine_open(argc > 3 ? argv[3] : "cuda", &how);
    if (!engine) fail();
    job j = {.batch_size = chosen->input.dim[0]};
    j.step = lk_step(.model = chosen->model(), .criterion = chosen->criterion(),
                     .optimizer = chosen->optimizer(), .engine = engine, .owned = true, .asynchronous = true,
                     .precision = strcmp(precision, "bf16") == 0 ? LK_BF16 : LK_F32);
    if (!j.step) fail();
    make_field(&j.fields[0], chosen->input, false);
    make_field(&j.fields[1], chosen->target, chosen->target.rank == 1);
    j.indices = calloc((size_t)(BATCHES * j.batch_size), sizeof *j.indices);
    for (int64_t i = 0; i < BATCHES * j.batch_size; i++) j.indices[i] = i;
    double seconds = argc > 2 ? atof(argv[2]) : 1;
    double ahead_s = best_step_s(&j, seconds, false), waiting_s = best_step_s(&j, seconds, true);
    printf("%s %.1f %.1f %.6g\n", chosen->name, ahead_s * 1e6, waiting_s * 1e6, lk_step_loss(j.step));
    lk_step_free(j.step);
    lk_engine_close(engine);
    for (int i = 0; i < 2; i++) lk_tensor_free(j.fields[i].all);
    free(j.indices);
    return 0;
}
