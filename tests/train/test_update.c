/* How updates are made: accumulation, clipping, schedules, and when a run stops by itself. */
#include "case.h"

enum { COUNT = LKT_FEATURES * LKT_CLASSES };

static lk_runner *run_at(double lr, int64_t batch_size, lk_callback *callback, lk_scheduler *scheduler,
                         int epochs)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {callback};
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = lr, .momentum = 0.9), .scheduler = scheduler,
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = batch_size)}),
                    .callbacks = {callbacks, callback != NULL}, .num_epochs = epochs));
    return runner;
}

static lk_runner *run(int64_t batch_size, lk_callback *callback, lk_scheduler *scheduler, int epochs)
{
    return run_at(0.5, batch_size, callback, scheduler, epochs);
}

/* The sum of four gradients is four times their mean, so a quarter of the rate gives the larger batch's run.
 * What is clipped is compared with PyTorch in optim/test_optimizer.c. */
static void accumulation_sums(void **state)
{
    (void)state;
    double large[COUNT], small[COUNT];
    lk_runner *one = run_at(0.5, 32, NULL, NULL, 3);
    lk_runner *many = run_at(0.125, 8, lk_optimizer_callback(.accumulation_steps = 4), NULL, 3);
    lkt_weights(one->model, "0.weight", large, COUNT);
    lkt_weights(many->model, "0.weight", small, COUNT);
    for (int k = 0; k < COUNT; k++) lkt_close(small[k], large[k], 2e-6);
    lk_runner_free(one);
    lk_runner_free(many);
}

/* The count runs on over the epochs, as Catalyst's: two epochs of six batches are three groups of four. */
static void groups_go_on_in_the_next_epoch(void **state)
{
    (void)state;
    double across[COUNT], whole[COUNT];
    lk_runner *two = run_at(0.1, 16, lk_optimizer_callback(.accumulation_steps = 4), NULL, 2);
    lkt_weights(two->model, "0.weight", across, COUNT);
    lk_runner_free(two);
    lk_module *model = lkt_linear_model();
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1, .momentum = 0.9);
    lk_step *step =
        lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .accumulation_steps = 4);
    lk_loader *loader = lk_loader(lkt_points(96, 1), .batch_size = 16);
    lkt_not_null(step);
    lkt_not_null(loader);
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        lk_batch *batch = NULL;
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = epoch, .world = 1),
                               &(lk_pass_size){0}));
        while (lk_loader_next(loader, &batch) == LK_OK && batch) {
            lk_input fields[] = {{"features", lk_batch_get(batch, "features")},
                                 {"targets", lk_batch_get(batch, "targets")}};
            lkt_ok(lk_step_train(step, fields, 2));
        }
    }
    lkt_ok(lk_step_pull(step));
    lkt_weights(model, "0.weight", whole, COUNT);
    for (int k = 0; k < COUNT; k++) assert_true(across[k] == whole[k]);
    lk_step_free(step);
    lk_loader_free(loader);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
}

/* ---- A rule of one's own ---- */

/* PyTorch's SGD with momentum, as a user would write it. */
static void own_sgd(const lk_update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        float *buffer = &u->states[0][i];
        *buffer = u->step == 1 ? u->grads[i] : (float)u->momentum * *buffer + u->grads[i];
        u->values[i] -= (float)u->lr * *buffer;
    }
    if (u->context) ++*(int *)u->context;
}

static lk_runner *run_rule(lk_optimizer *optimizer, int accumulation_steps, lk_status *status)
{
    lk_runner *runner = lk_supervised_runner();
    *status = lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(), .optimizer = optimizer,
        .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 16)}),
        .callbacks =
            lk_callbacks(lk_optimizer_callback(.accumulation_steps = accumulation_steps, .clip_norm = 0.3)),
        .num_epochs = 3, .device = "cpu");
    return runner;
}

static void a_rule_of_ones_own(void **state)
{
    (void)state;
    lk_status status;
    for (int accumulation = 1; accumulation <= 3; accumulation += 2) {
        double theirs[COUNT], ours[COUNT];
        int calls = 0;
        lk_runner *library = run_rule(lk_sgd(.lr = 0.5, .momentum = 0.9), accumulation, &status);
        lkt_ok(status);
        lk_runner *own = run_rule(lk_custom_optimizer(.name = "OwnSGD", .update = own_sgd, .state_count = 1,
                                                      .lr = 0.5, .momentum = 0.9, .context = &calls),
                                  accumulation, &status);
        lkt_ok(status);
        assert_int_equal(calls, 3 * 6 / accumulation);
        lkt_weights(library->model, "0.weight", theirs, COUNT);
        lkt_weights(own->model, "0.weight", ours, COUNT);
        for (int i = 0; i < COUNT; i++) lkt_close(ours[i], theirs[i], 1e-6);
        lk_runner_free(library);
        lk_runner_free(own);
    }
    assert_null(lk_custom_optimizer(.name = "Nothing", .lr = 1));
    lkt_contains(lk_error(), "Nothing: an update function is needed");
    assert_null(lk_custom_optimizer(.update = own_sgd));
    lkt_contains(lk_error(), "custom: lr is required");
    assert_null(lk_custom_optimizer(.update = own_sgd, .lr = 1, .state_count = 4));
    lkt_contains(lk_error(), "state_count: expected 0 to 3, found 4");
}

/* ---- Clipping: what one batch changes ---- */

static lk_status change_of_one_batch(lk_optimizer_callback_options options, double *change, double *norm)
{
    double before[COUNT], after[COUNT];
    lk_module *model = lkt_linear_model();
    lkt_weights(model, "0.weight", before, COUNT);
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 1),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 96)}),
                 .callbacks = lk_callbacks(lk_optimizer_callback_with(&options)));
    lkt_weights(runner->model, "0.weight", after, COUNT);
    double bias[LKT_CLASSES], first[LKT_CLASSES];
    lkt_weights(runner->model, "0.bias", bias, LKT_CLASSES);
    model = lkt_linear_model();
    lkt_weights(model, "0.bias", first, LKT_CLASSES);
    lk_module_free(model);
    *norm = 0;
    for (int i = 0; i < COUNT; i++) {
        change[i] = before[i] - after[i];
        *norm += change[i] * change[i];
    }
    for (int i = 0; i < LKT_CLASSES; i++) *norm += (bias[i] - first[i]) * (bias[i] - first[i]);
    *norm = sqrt(*norm);
    lk_runner_free(runner);
    return status;
}

static void clipping(void **state)
{
    (void)state;
    double plain[COUNT], clipped[COUNT], norm, clipped_norm;
    lkt_ok(change_of_one_batch(*LK_OPTIONS(lk_optimizer_callback_options), plain, &norm));
    lkt_ok(change_of_one_batch(*LK_OPTIONS(lk_optimizer_callback_options, .clip_norm = norm / 4), clipped,
                               &clipped_norm));
    lkt_close(clipped_norm, norm / 4, 1e-5);
    for (int i = 0; i < COUNT; i++) lkt_close(clipped[i], plain[i] / 4, 1e-5);
    lkt_ok(change_of_one_batch(*LK_OPTIONS(lk_optimizer_callback_options, .clip_norm = norm * 4), clipped,
                               &clipped_norm));
    for (int i = 0; i < COUNT; i++) lkt_close(clipped[i], plain[i], 1e-6);
    lkt_ok(change_of_one_batch(*LK_OPTIONS(lk_optimizer_callback_options, .clip_value = 0.01), clipped,
                               &clipped_norm));
    for (int i = 0; i < COUNT; i++)
        lkt_close(clipped[i], fabs(plain[i]) > 0.01 ? copysign(0.01, plain[i]) : plain[i], 1e-6);
    assert_null(lk_optimizer_callback(.accumulation_steps = -1));
    assert_null(lk_optimizer_callback(.clip_norm = -1));
}

/* ---- Schedules ---- */

static void schedules_by_epoch_and_by_batch(void **state)
{
    (void)state;
    lk_runner *runner = run(8, NULL, lk_multi_step_lr(.milestones = lk_milestones(2, 3)), 4);
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.005, 1e-12);
    lk_runner_free(runner);
    runner = run(8, lk_scheduler_callback(.mode = "batch"), lk_step_lr(12, .gamma = 0.5), 2);
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.125, 1e-12); /* two epochs of twelve batches */
    lk_runner_free(runner);
    /* One-cycle counts batches by itself: 24 of them, and the last rate is reached. */
    runner = run(8, NULL, lk_one_cycle_lr(1.0, .total_steps = 25), 2);
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 1.0 / 25 / 1e4, 1e-9);
    lk_runner_free(runner);
    assert_null(lk_scheduler_callback(.mode = "hourly"));
}

static lk_status set_score(lk_callback *callback, lk_runner *runner)
{
    const double *scores = callback->context;
    if (!runner->is_valid_loader) return LK_OK;
    return lk_metrics_set(runner->loader_metrics, "score", scores[runner->epoch_step - 1]);
}

typedef struct decision {
    const double *scores;
    int count;
    lk_scheduler *scheduler;
    lk_callback *callback;
    bool maximize;
} decision;

static lk_runner *decide(decision given)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {lk_on(loader_end, set_score, (void *)given.scores), given.callback};
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 1), .scheduler = given.scheduler,
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(16, 1), .batch_size = 8)},
                                          {"valid", lk_loader(lkt_points(8, 2), .batch_size = 8)}),
                    .callbacks = {callbacks, given.callback ? 2 : 1}, .num_epochs = given.count,
                    .valid_loader = "valid", .valid_metric = "score",
                    .minimize_valid_metric = !given.maximize));
    return runner;
}

static void plateau_looks_at_the_metric(void **state)
{
    (void)state;
    static const double scores[] = {5, 4, 4, 4, 4, 3};
    lk_runner *runner =
        decide((decision){scores, 6, lk_reduce_lr_on_plateau(.patience = 1, .factor = 0.5), NULL, false});
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.5, 1e-12); /* after the second epoch in vain */
    lk_runner_free(runner);
    lk_runner *wrong = lk_supervised_runner();
    lkt_fails(lk_train(wrong, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                       .optimizer = lk_sgd(.lr = 1), .scheduler = lk_reduce_lr_on_plateau(),
                       .loaders = lk_loaders({"train", lk_loader(lkt_points(16, 1), .batch_size = 8)}),
                       .callbacks = lk_callbacks(lk_scheduler_callback(.mode = "batch"))),
              LK_ERR_INVALID, "cannot step every batch");
    lk_runner_free(wrong);
}

/* ---- Early stopping ---- */

static int64_t epochs_until_stop(const double *scores, int count, lk_callback *early_stopping, bool maximize)
{
    lk_runner *runner = decide((decision){scores, count, NULL, early_stopping, maximize});
    int64_t epochs = runner->epoch_step;
    lk_runner_free(runner);
    return epochs;
}

static void early_stopping(void **state)
{
    (void)state;
    static const double equal[] = {1, 1, 1, 1, 1, 1}, falling[] = {6, 5, 4, 3, 2, 1},
                        rising[] = {1, 2, 3, 4, 5, 6};
    static const double barely[] = {1, 1 - 5e-7, 1 - 1e-6, 1 - 1.5e-6, 1, 1},
                        broken[] = {NAN, 1, NAN, NAN, NAN, NAN};
    /* Equal counts as no improvement; patience 3 stops on call 4. */
    assert_int_equal(epochs_until_stop(equal, 6, lk_early_stopping_callback(.patience = 3), false), 4);
    assert_int_equal(epochs_until_stop(falling, 6, lk_early_stopping_callback(.patience = 1), false), 6);
    assert_int_equal(epochs_until_stop(falling, 6, lk_early_stopping_callback(.patience = 2), true), 3);
    assert_int_equal(
        epochs_until_stop(rising, 6, lk_early_stopping_callback(.patience = 1, .maximize = true), false), 6);
    assert_int_equal(
        epochs_until_stop(rising, 6, lk_early_stopping_callback(.patience = 4, .minimize = true), true), 5);
    /* Better is better by 1e-6 at least: epoch 2 is not, epoch 3 is. */
    assert_int_equal(epochs_until_stop(barely, 6, lk_early_stopping_callback(.patience = 2), false), 5);
    assert_int_equal(
        epochs_until_stop(barely, 6, lk_early_stopping_callback(.patience = 3, .min_delta = 0.1), false), 4);
    assert_int_equal(epochs_until_stop(broken, 6, lk_early_stopping_callback(.patience = 3), false), 5);
    assert_null(lk_early_stopping_callback(.min_delta = 1));
}

/* Torchbearer's example of an optimization without data: f = (x0 - 5)^2 + x1^2 + (x2 - 1)^2. */
static lk_value *bowl(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                      void *context)
{
    (void)names;
    (void)count;
    lk_value *x = lk_graph_param(graph, lk_module_param(context, "weight"));
    lk_value *distance = lk_op_sub(x, inputs[0]);
    return lk_op_sum(lk_op_mul(distance, distance), (int[]){0, 1}, 2, false);
}

static void a_bowl_is_descended(void **state)
{
    (void)state;
    const float start[] = {2, 1, 10}, goal[] = {5, 0, 1};
    lk_module *model = lk_linear(3, 1, .no_bias = true);
    lk_tensor *target = lk_tensor_from(LK_F32, LK_SHAPE(1, 3), goal);
    lk_optimizer *optimizer = lk_sgd(.lr = 0.01);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer, .function = bowl, .context = model);
    lkt_not_null(step);
    for (int i = 0; i < 3; i++) lk_tensor_set(lk_module_param(model, "weight")->value, i, start[i]);
    for (int i = 0; i < 1000; i++) lkt_ok(lk_step_train(step, (lk_input[]){{"goal", target}}, 1));
    for (int i = 0; i < 3; i++)
        lkt_close(lk_tensor_get(lk_module_param(model, "weight")->value, i), goal[i], 1e-4);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_tensor_free(target);
    lk_module_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accumulation_sums),
        cmocka_unit_test(groups_go_on_in_the_next_epoch),
        cmocka_unit_test(a_rule_of_ones_own),
        cmocka_unit_test(clipping),
        cmocka_unit_test(schedules_by_epoch_and_by_batch),
        cmocka_unit_test(plateau_looks_at_the_metric),
        cmocka_unit_test(early_stopping),
        cmocka_unit_test(a_bowl_is_descended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
