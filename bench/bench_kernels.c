/* What each kernel of a training step costs: bench_kernels [NETWORK] [THREADS].
 *
 * Compiles the training steps of the five networks that the project is measured by, replays them, and times
 * every call of the plan: microseconds, the rate of its arithmetic and of its memory traffic, and how close
 * that comes to what this core was measured to do just before. The traffic counts each operand once. */
#include <lockstep/step.h>

#include "base/clock.h"
#include "step/step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct network {
    const char *name;
    lk_module *(*model)(void);
    lk_criterion *(*criterion)(void);
    bool sgd, classes;
    lk_shape x, y;
} network;

static lk_module *mnist_linear(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 10));
}

static lk_module *toy_mlp(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 100), lk_relu(), lk_linear(100, 10));
}

static lk_module *cnn3d(int64_t outputs)
{
    return lk_sequential(lk_conv3d(3, 6, 2, .stride = 2, .padding = 1), lk_max_pool3d(2, .padding = 1),
                         lk_relu(), lk_conv3d(6, 6, 2, .stride = 2, .padding = 1),
                         lk_max_pool3d(2, .padding = 1), lk_relu(),
                         lk_conv3d(6, 12, 2, .stride = 2, .padding = 1), lk_max_pool3d(2), lk_flatten(),
                         lk_linear(12, 24), lk_relu(), lk_linear(24, outputs));
}

static lk_module *cnn3d_16(void)
{
    return cnn3d(12288);
}

static lk_module *cnn3d_32(void)
{
    return cnn3d(98304);
}

static lk_module *convnet(void)
{
    return lk_sequential(lk_conv2d(1, 32, 3), lk_relu(), lk_conv2d(32, 64, 3), lk_relu(), lk_max_pool2d(2),
                         lk_flatten(), lk_linear(9216, 128), lk_relu(), lk_linear(128, 10));
}

static lk_criterion *cross_entropy(void)
{
    return lk_cross_entropy_loss();
}

static lk_criterion *smooth_l1(void)
{
    return lk_smooth_l1_loss();
}

static const network networks[] = {
    {"linear", mnist_linear, cross_entropy, false, true, {4, {32, 1, 28, 28}}, {1, {32}}},
    {"mlp", toy_mlp, cross_entropy, true, true, {4, {128, 1, 28, 28}}, {1, {128}}},
    {"cnn3d-16", cnn3d_16, smooth_l1, false, false, {5, {8, 3, 16, 16, 16}}, {2, {8, 12288}}},
    {"cnn3d-32", cnn3d_32, smooth_l1, false, false, {5, {16, 3, 32, 32, 32}}, {2, {16, 98304}}},
    {"convnet", convnet, cross_entropy, false, true, {4, {64, 1, 28, 28}}, {1, {64}}},
};

/* The core's own speed: a product of two matrices that fit in the second cache, and a copy larger than every
 * cache. */
static double peak_gflops, peak_gbs;

static void measure_peaks(lk_engine *engine)
{
    enum { SIZE = 512, BYTES = 256 << 20 };
    lk_tensor *a = lk_rand(LK_SHAPE(SIZE, SIZE)), *b = lk_rand(LK_SHAPE(SIZE, SIZE)),
              *c = lk_rand(LK_SHAPE(SIZE, SIZE));
    lk_tensor operands[] = {*a, *b};
    int layouts[2] = {0};
    lk_attr attr = {.matmul = {false, false}};
    lk_call call = {.op = LK_OP_MATMUL, .attr = &attr, .input_count = 2, .output_count = 1, .in = operands};
    call.in_layout = layouts;
    call.engine = engine;
    call.out[0] = *c;
    if (engine->ops->prepare(engine, &call)) return;
    call.scratch = aligned_alloc(64, (call.scratch_nbytes + 63) / 64 * 64);
    for (int i = 0; i < 20; i++) {
        double begin = lki_now_s();
        call.run(&call);
        double rate = 2e-9 * SIZE * SIZE * SIZE / (lki_now_s() - begin);
        if (rate > peak_gflops) peak_gflops = rate;
    }
    free(call.scratch);
    if (call.free_state) call.free_state(call.state);
    lk_tensor_free(a), lk_tensor_free(b), lk_tensor_free(c);
    char *from = malloc(BYTES / 2), *to = malloc(BYTES / 2);
    memset(from, 1, BYTES / 2);
    for (int i = 0; i < 6; i++) {
        double begin = lki_now_s();
        memcpy(to, from, BYTES / 2);
        double rate = 1e-9 * BYTES / (lki_now_s() - begin);
        if (rate > peak_gbs) peak_gbs = rate;
    }
    free(from), free(to);
}

static double flops_of(const lk_call *call)
{
    const lk_tensor *out = &call->out[0];
    double count = (double)lk_tensor_count(out);
    switch (call->op) {
    case LK_OP_LINEAR: return 2 * count * (double)call->in[1].shape.dim[1];
    case LK_OP_MATMUL:
        return 2 * count *
               (double)call->in[0]
                   .shape.dim[call->in[0].shape.rank - (call->attr->matmul.transpose_a ? 2 : 1)];
    case LK_OP_LINEAR_GRAD: return 2 * count * (double)call->in[0].shape.dim[0];
    case LK_OP_CONV:
        return 2 * count * (double)lk_tensor_count(&call->in[1]) / (double)call->in[1].shape.dim[0];
    case LK_OP_CONV_GRAD_INPUT:
        return 2 * (double)lk_tensor_count(&call->in[0]) * (double)lk_tensor_count(&call->in[1]) /
               (double)call->in[1].shape.dim[0];
    case LK_OP_CONV_GRAD_WEIGHT:
        return 2 * (double)lk_tensor_count(&call->in[0]) * count / (double)out->shape.dim[0];
    default: return 0;
    }
}

static double nbytes_of(const lk_call *call)
{
    double nbytes = 0;
    for (int i = 0; i < call->input_count; i++)
        if (call->in[i].data)
            nbytes += (double)lk_tensor_nbytes(&call->in[i]) * (call->op == LK_OP_UPDATE && i != 1 ? 2 : 1);
    for (int i = 0; i < call->output_count; i++)
        if (call->out[i].data) nbytes += (double)lk_tensor_nbytes(&call->out[i]);
    return nbytes;
}

static void report_call(const lk_call *call, double seconds)
{
    char text[160];
    double gflops = 1e-9 * flops_of(call) / seconds, gbs = 1e-9 * nbytes_of(call) / seconds;
    double floor_s = flops_of(call) / (peak_gflops * 1e9);
    if (nbytes_of(call) / (peak_gbs * 1e9) > floor_s) floor_s = nbytes_of(call) / (peak_gbs * 1e9);
    const lk_tensor *shown = call->output_count ? &call->out[0] : &call->in[0];
    printf("  %-18s %-24s %10.1f us %7.1f GFLOP/s %7.1f GB/s %5.0f %% of the floor\n", lk_op_name(call->op),
           lk_shape_format(text, sizeof text, shown->shape), seconds * 1e6, gflops, gbs,
           100 * floor_s / seconds);
}

enum { ROUNDS = 15, MAX_CALLS = 256 };

static void time_calls(const lk_call *const *calls, int count, int repeat, double *best)
{
    for (int c = 0; c < count; c++) best[c] = 1e30;
    for (int round = 0; round < ROUNDS * repeat; round++)
        for (int c = 0; c < count; c++) {
            double begin = lki_now_s();
            calls[c]->run(calls[c]);
            double seconds = lki_now_s() - begin;
            if (seconds < best[c]) best[c] = seconds;
        }
}

static void profile(lk_step *step)
{
    const lk_call *calls[MAX_CALLS];
    double best[MAX_CALLS], sum = 0;
    lki_plan *plan = step->current->plan;
    int count = 0;
    for (int i = 0; i < lki_plan_call_count(plan) && count < MAX_CALLS; i++)
        calls[count++] = lki_plan_call(plan, i);
    for (int i = 0; i < step->update.call_count && count < MAX_CALLS; i++)
        calls[count++] = &step->update.calls[i];
    time_calls(calls, count, 4, best);
    for (int i = 0; i < count; i++) {
        report_call(calls[i], best[i]);
        sum += best[i];
    }
    printf("  sum of calls %.1f us; arena %.1f MB\n", sum * 1e6, (double)lki_plan_arena_nbytes(plan) * 1e-6);
}

static int run_network(const network *n, lk_engine *engine)
{
    lk_manual_seed(0);
    lk_step *step = lk_step(.model = n->model(), .criterion = n->criterion(), .engine = engine, .owned = true,
                            .optimizer = n->sgd ? lk_sgd(.lr = 0.001) : lk_adam(.lr = 0.001));
    lk_tensor *x = lk_rand(n->x), *y = n->classes ? lk_tensor_create(LK_I64, n->y) : lk_rand(n->y);
    if (!step || !x || !y) return 1;
    for (int64_t i = 0; n->classes && i < n->y.dim[0]; i++) lk_tensor_set(y, i, (double)(i % 10));
    lk_input batch[] = {{"features", x}, {"targets", y}};
    double best = 1e30;
    int status = 0, rounds = 0;
    for (double begin = lki_now_s(); !status && (rounds < 10 || lki_now_s() - begin < 1); rounds++) {
        double now = lki_now_s();
        status = lk_step_train(step, batch, 2) != LK_OK;
        double seconds = lki_now_s() - now;
        if (seconds < best) best = seconds;
    }
    if (!status) {
        printf("%s: %.1f us a step (best of %d)\n", n->name, best * 1e6, rounds);
        profile(step);
    }
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

int main(int argc, char **argv)
{
    lk_engine *engine =
        lk_engine_open("auto", LK_OPTIONS(lk_engine_options, .thread_count = argc > 2 ? atoi(argv[2]) : 1));
    int status = !engine;
    if (engine) measure_peaks(engine);
    printf("this core: %.1f GFLOP/s, %.1f GB/s\n", peak_gflops, peak_gbs);
    for (size_t i = 0; i < sizeof networks / sizeof *networks && !status; i++)
        if (argc < 2 || !strcmp(argv[1], "all") || !strcmp(argv[1], networks[i].name))
            status = run_network(&networks[i], engine);
    if (status) fprintf(stderr, "bench_kernels: %s\n", lk_error());
    lk_engine_close(engine);
    return status;
}
