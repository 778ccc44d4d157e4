/* Training on a GPU: the losses of the CPU engine, step by step. Skips loudly where there is no GPU. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "device/loader.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 50 };

typedef struct workload {
    const char *name;
    lk_module *(*model)(void);
    lk_criterion *(*criterion)(void);
    lk_optimizer *(*optimizer)(void);
    lk_shape input, target; /* a target of rank 1 is a class of ten */
} workload;

static lk_module *mnist_linear(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 10));
}

static lk_module *toy_mlp(void)
{
    return lk_sequential(lk_linear(784, 100), lk_relu(), lk_linear(100, 10));
}

/* Sapsan's network. */
static lk_module *cnn3d(void)
{
    return lk_sequential(lk_conv3d(3, 6, 2, .stride = 2, .padding = 1), lk_max_pool3d(2, .padding = 1),
                         lk_relu(), lk_conv3d(6, 6, 2, .stride = 2, .padding = 1),
                         lk_max_pool3d(2, .padding = 1), lk_relu(),
                         lk_conv3d(6, 12, 2, .stride = 2, .padding = 1), lk_max_pool3d(2), lk_flatten(),
                         lk_linear(12, 24), lk_relu(), lk_linear(24, 3 * 16 * 16 * 16));
}

/* path(x) + shortcut(x). */
static lk_value *add_both(lk_module *module, lk_value *x)
{
    return lk_op_add(lk_module_forward(lk_module_child(module, "path"), x),
                     lk_module_forward(lk_module_child(module, "shortcut"), x));
}

static lk_module *two_ways(lk_module *path, lk_module *shortcut)
{
    if (!shortcut) return lk_residual(path);
    return lk_custom_module(.type = "TwoWays", .forward = add_both,
                            .children = lk_children({"path", path}, {"shortcut", shortcut}));
}

static lk_module *block(int64_t in, int64_t out, int64_t stride)
{
    lk_module *path = lk_sequential(
        lk_conv2d(in, out, 3, .stride = stride, .padding = 1, .no_bias = true), lk_batch_norm2d(out),
        lk_relu(), lk_conv2d(out, out, 3, .padding = 1, .no_bias = true), lk_batch_norm2d(out));
    lk_module *shortcut =
        in == out && stride == 1
            ? NULL
            : lk_sequential(lk_conv2d(in, out, 1, .stride = stride, .no_bias = true), lk_batch_norm2d(out));
    return lk_sequential(two_ways(path, shortcut), lk_relu());
}

/* ResNet-18's shape for small pictures. */
static lk_module *resnet(void)
{
    return lk_sequential(lk_conv2d(3, 16, 3, .padding = 1, .no_bias = true), lk_batch_norm2d(16), lk_relu(),
                         block(16, 16, 1), block(16, 32, 2), block(32, 64, 2), lk_adaptive_avg_pool2d(1),
                         lk_flatten(), lk_linear(64, 10));
}

static lk_criterion *cross_entropy(void)
{
    return lk_cross_entropy_loss();
}

static lk_criterion *smooth_l1(void)
{
    return lk_smooth_l1_loss();
}

static lk_optimizer *adam(void)
{
    return lk_adam(.lr = 1e-3);
}

static lk_optimizer *sgd(void)
{
    return lk_sgd(.lr = 1e-3, .momentum = 0.9);
}

static const workload workloads[] = {
    {"MNIST-linear", mnist_linear, cross_entropy, adam, {4, {32, 1, 28, 28}}, {1, {32}}},
    {"toy MLP", toy_mlp, cross_entropy, sgd, {2, {128, 784}}, {1, {128}}},
    {"CNN3d", cnn3d, smooth_l1, adam, {5, {8, 3, 16, 16, 16}}, {2, {8, 12288}}},
    {"ResNet", resnet, cross_entropy, sgd, {4, {16, 3, 32, 32}}, {1, {16}}},
};

static void losses_on(const char *name, const workload *w, double *losses)
{
    lk_engine *engine = lk_engine_open(name, (lk_engine_options){0});
    lkt_not_null(engine);
    lk_manual_seed(0);
    lk_step *step = lk_step(.model = w->model(), .criterion = w->criterion(), .optimizer = w->optimizer(),
                            .engine = engine, .owned = true);
    lkt_not_null(step);
    for (int i = 0; i < STEPS; i++) {
        lk_manual_seed(100 + (uint64_t)(i % 5));
        lk_tensor *x = lk_rand(w->input);
        lk_tensor *y = w->target.rank > 1 ? lk_rand(w->target) : lk_tensor_create(LK_I64, w->target);
        for (int64_t k = 0; w->target.rank == 1 && k < w->target.dim[0]; k++)
            ((int64_t *)y->data)[k] = lk_randint(10, lk_default_generator());
        lk_input fields[] = {{"features", x}, {"targets", y}};
        lkt_ok(lk_step_train(step, fields, 2));
        losses[i] = lk_step_loss(step);
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    lk_step_free(step);
    lk_engine_close(engine);
}

static void losses_are_the_cpus(void **state)
{
    (void)state;
    char why[256];
    if (lki_cuda_device_count(why) == 0) {
        print_message("SKIPPED: %s\n", why);
        skip();
    }
    for (size_t k = 0; k < sizeof workloads / sizeof *workloads; k++) {
        double on_cpu[STEPS], on_gpu[STEPS], again[STEPS], worst = 0;
        losses_on("cpu", &workloads[k], on_cpu);
        losses_on("cuda", &workloads[k], on_gpu);
        losses_on("cuda", &workloads[k], again);
        for (int i = 0; i < STEPS; i++)
            worst = fmax(worst, fabs(on_gpu[i] - on_cpu[i]) / fmax(1e-3, fabs(on_cpu[i])));
        print_message("%s: worst difference over %d steps %.2g (last loss %.6g)\n", workloads[k].name, STEPS,
                      worst, on_gpu[STEPS - 1]);
        assert_true(worst < 1e-4);
        assert_memory_equal(on_gpu, again, sizeof on_gpu); /* the same bits each time */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_are_the_cpus)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
