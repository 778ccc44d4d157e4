/* What a run is asked for reaches the steps that handle_batch makes: a loss with a gradient penalty and a
 * stopped gradient, in 16 bits and on two ranks, is close to that in f32, and not the same. */
#include "lktest.h"

#include <lockstep/lockstep.h>

enum { STEPS = 12, BATCH = 16, WIDTH = 24 };

typedef struct seen {
    double losses[STEPS];
    int count;
    lk_dtype own; /* what the step says by itself */
} seen;

static lk_value *penalised(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                           void *model)
{
    (void)graph, (void)names, (void)count;
    lk_value *y = lk_module_forward(model, in[0]), *slope = lk_op_grad(y, in[0]);
    lk_value *excess = lk_op_add_scalar(lk_op_norm(slope, 2, LK_AXES(1), false), -1);
    lk_value *target = lk_op_detach(lk_op_mul_scalar(lk_op_sin(lk_op_mul_scalar(y, 2)), 0.5));
    lk_value *error = lk_op_sub(y, target);
    return lk_op_add(lk_op_mean(lk_op_mul(excess, excess), LK_ALL_AXES, false),
                     lk_op_mean(lk_op_mul(error, error), LK_ALL_AXES, false));
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    seen *s = runner->context;
    lk_step *step =
        lk_runner_step(runner, "penalised",
                       LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer,
                                  .function = penalised, .context = runner->model, .precision = s->own));
    lk_input fields[] = {{"features", lk_batch_get(batch, "features")}};
    lk_status status = step ? lk_step_train(step, fields, 1) : lk_error_status();
    if (status) return status;
    if (s->count < STEPS) s->losses[s->count++] = lk_step_loss(step);
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static seen train(const char *precision, lk_dtype own, int ranks)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = handle_batch};
    seen found = {.own = own};
    lk_manual_seed(4);
    lk_runner *runner = lk_custom_runner(&ops, &found);
    lk_tensor *x = lk_randn(LK_SHAPE(BATCH * STEPS, WIDTH));
    lkt_ok(lk_train(runner, .model = lk_sequential(lk_linear(WIDTH, WIDTH), lk_tanh(), lk_linear(WIDTH, 1)),
                    .optimizer = lk_adam(.lr = 0.01), .nproc = ranks, .precision = precision,
                    .check_replicas = 1, .device = "cpu",
                    .loaders =
                        lk_loaders({"train", lk_loader(lk_tensor_dataset({"features", x}),
                                                       .batch_size = BATCH / ranks, .no_shuffle = true)})));
    assert_int_equal(found.count, STEPS);
    lk_runner_free(runner);
    return found;
}

static void near(const char *what, const seen *found, const seen *wide, double tolerance)
{
    bool differs = false;
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(found->losses[i] - wide->losses[i]) <= tolerance * wide->losses[i]))
            fail_msg("%s: loss %d is %.7g, in f32 %.7g", what, i + 1, found->losses[i], wide->losses[i]);
        differs = differs || found->losses[i] != wide->losses[i];
    }
    if (!differs) fail_msg("%s: it computed in f32", what);
}

static void steps_of_a_runner_take_its_precision(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        seen wide = train("fp32", LK_F32, ranks), brain = train("bf16", LK_F32, ranks),
             half = train("fp16", LK_F32, ranks), own = train("fp32", LK_BF16, ranks);
        assert_true(wide.losses[STEPS - 1] < wide.losses[0]);
        near("bf16", &brain, &wide, 2e-2);
        near("fp16", &half, &wide, 4e-3);
        for (int i = 0; i < STEPS; i++) assert_true(own.losses[i] == brain.losses[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_of_a_runner_take_its_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
