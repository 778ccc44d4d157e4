#include "case_losses.h"

#include "golden.h"
#include "lktest.h"
#include "resnet.h"

#include <lockstep/lockstep.h>

#include <stdlib.h>

enum { BATCHES = 5 };

int lkt_loss_steps(void)
{
    const char *wanted = getenv("LOCKSTEP_TEST_STEPS");
    int steps = wanted ? atoi(wanted) : LOSS_STEPS;
    return steps > 0 && steps < LOSS_STEPS ? steps : (int)LOSS_STEPS;
}

static lk_module *resnet_18_10(void)
{
    return resnet_18(10);
}

static lk_optimizer *momentum_01(void)
{
    return lk_sgd(.lr = 1e-2, .momentum = 0.9);
}

static lk_optimizer *momentum_001(void)
{
    return lk_sgd(.lr = 1e-3, .momentum = 0.9);
}

/* At larger rates ResNet-18's losses are not determined by float32: docs/performance.md, "Rounding that
 * grows". */
static lk_optimizer *momentum_1e_6(void)
{
    return lk_sgd(.lr = 1e-6, .momentum = 0.9);
}

const workload lkt_loss_workloads[LOSS_WORKLOADS] = {
    {"MNIST-linear", mnist_linear, cross_entropy, adam_0001, {4, {32, 1, 28, 28}}, {1, {32}}},
    {"toy MLP", toy_mlp, cross_entropy, momentum_01, {2, {128, 784}}, {1, {128}}},
    {"CNN3d", cnn3d_16, smooth_l1, adam_0001, {5, {8, 3, 16, 16, 16}}, {2, {8, 12288}}},
    {"ResNet-8", resnet_8, cross_entropy, momentum_001, {4, {16, 3, 32, 32}}, {1, {16}}},
    {"ResNet-18", resnet_18_10, cross_entropy, momentum_1e_6, {4, {8, 3, 48, 48}}, {1, {8}}},
};

void lkt_losses_on(const char *name, const workload *w, double losses[LOSS_STEPS])
{
    lk_engine *engine = lk_engine_open(name, NULL);
    lkt_not_null(engine);
    lk_manual_seed(0);
    lk_step *step = lk_step(.model = w->model(), .criterion = w->criterion(), .optimizer = w->optimizer(),
                            .engine = engine, .owned = true);
    lkt_not_null(step);
    int steps = lkt_loss_steps();
    for (int i = steps; i < LOSS_STEPS; i++) losses[i] = 0;
    for (int i = 0; i < steps; i++) {
        lk_manual_seed(100 + (uint64_t)(i % BATCHES));
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

void lkt_losses_of_pytorch(const workload *w, double losses[LOSS_STEPS])
{
    lkt_golden *golden = lkt_golden_open("train/losses.lkg");
    const lk_tensor *all = lkt_golden_get(golden, "%s", w->name);
    assert_int_equal(lk_shape_count(all->shape), LOSS_STEPS);
    for (int i = 0; i < LOSS_STEPS; i++) losses[i] = lk_tensor_get(all, i);
    lkt_golden_free(golden);
}

void lkt_losses_compare(const workload *w, const char *what, const double actual[LOSS_STEPS],
                        const double expected[LOSS_STEPS])
{
    double worst = 0;
    int steps = lkt_loss_steps();
    for (int i = 0; i < steps; i++)
        worst = fmax(worst, fabs(actual[i] - expected[i]) / fmax(1e-3, fabs(expected[i])));
    print_message("%s, %s: worst difference over %d steps %.2g (last loss %.6g)\n", w->name, what, steps,
                  worst, actual[steps - 1]);
    if (!(worst < 1e-4)) fail_msg("%s, %s: the losses are %.2g apart", w->name, what, worst);
}
