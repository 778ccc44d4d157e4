/* Catalyst's callbacks of a supervised run against PyTorch 1.13: several criteria, a sum of them as the loss,
 * clipping, accumulation, the order of ranks; and what the user's own code reports of batches. */
#include "case.h"
#include "golden.h"

enum { SAMPLES = 40, BATCH = 4, SEED = 7 };

static lkt_golden *golden;

static lk_dataset *make_data(void)
{
    return lk_tensor_dataset({"features", lk_tensor_clone(lkt_golden_get(golden, "x"))},
                             {"targets", lk_tensor_clone(lkt_golden_get(golden, "y"))},
                             {"others", lk_tensor_clone(lkt_golden_get(golden, "z"))});
}

static lk_module *make_model(void)
{
    lk_manual_seed(SEED);
    return lk_linear(5, 3);
}

static void expect_weights(const lk_runner *runner, const char *name)
{
    lkt_near(lk_module_param(runner->model, "weight")->value, lkt_golden_get(golden, "%s/weight", name), 1,
             1e-5, name);
    lkt_near(lk_module_param(runner->model, "bias")->value, lkt_golden_get(golden, "%s/bias", name), 1, 1e-5,
             name);
}

static void expect_metric(const char *logdir, const char *name, int column, const char *metric)
{
    const lk_tensor *epochs = lkt_golden_get(golden, "%s/epochs", name);
    int64_t columns = epochs->shape.dim[1];
    for (int row = 0; row < 2; row++)
        lkt_close(lkt_csv(logdir, "train", row + 1, metric), lk_tensor_get(epochs, row * columns + column),
                  2e-6);
}

/* ---- Several criteria ---- */

static lk_status train_objective(lk_runner *runner, const char *logdir, const char *device,
                                 const char *minimized)
{
    lkt_ok(lk_runner_add_criterion(runner, "mse", lk_mse_loss()));
    lkt_ok(lk_runner_add_criterion(runner, "l1", lk_l1_loss()));
    return lk_train(
        runner, .model = make_model(), .optimizer = lk_sgd(.lr = 0.05),
        .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
        .callbacks = lk_callbacks(
            lk_criterion_callback(.metric_key = "a", .criterion_key = "mse"),
            lk_criterion_callback(.input_key = "logits", .target_key = "others", .metric_key = "b",
                                  .criterion_key = "l1"),
            lk_metric_aggregation_callback(.metric_key = "total",
                                           .metrics = (const char *const[]){"a", "b", NULL},
                                           .weights = (const double[]){0.75, 0.25}, .mode = "weighted_sum"),
            lk_backward_callback(.metric_key = minimized, .clip_norm = 0.5, .log_gradient = true),
            lk_optimizer_callback(.metric_key = minimized)),
        .num_epochs = 2, .logdir = logdir, .valid_metric = "total", .minimize_valid_metric = true,
        .device = device);
}

static void a_sum_of_criteria_is_minimised(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "ref"};
    for (int i = 0; i < 2; i++) {
        const char *logdir = lkt_scratch_folder("objective_sum");
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(train_objective(runner, logdir, devices[i], "total"));
        expect_weights(runner, "objective");
        expect_metric(logdir, "objective", 0, "a");
        expect_metric(logdir, "objective", 1, "b");
        expect_metric(logdir, "objective", 2, "total");
        expect_metric(logdir, "objective", 3, "gradient/total/norm");
        /* The step that was made for it serves predictions, and gives way to the next run's. */
        lk_tensor *output = lk_predict_batch(runner, lkt_golden_get(golden, "x"));
        lkt_not_null(output);
        lk_tensor_free(output);
        lkt_ok(lk_evaluate_loader(runner, lk_loader(make_data(), .batch_size = BATCH),
                                  .criterion = lk_mse_loss()));
        assert_true(lk_metrics_has(runner->loader_metrics, "loss"));
        lk_runner_free(runner);
    }
}

/* The keys name what the loss takes, first those of input_key. */
static void a_loss_of_several_values_is_minimised(void **state)
{
    (void)state;
    static const char *const keys[][2] = {{"logits, others", "targets"}, {"logits", "others,targets"}};
    for (int i = 0; i < 2; i++) {
        const char *logdir = lkt_scratch_folder("objective_several");
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = make_model(), .optimizer = lk_sgd(.lr = 0.05),
                        .criterion = lk_triplet_margin_loss(.margin = 0.5, .swap = true),
                        .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                        .callbacks = lk_callbacks(
                            lk_criterion_callback(.input_key = keys[i][0], .target_key = keys[i][1])),
                        .num_epochs = 2, .logdir = logdir));
        expect_weights(runner, "several");
        expect_metric(logdir, "several", 0, "loss");
        lk_runner_free(runner);
    }
    lk_runner *runner = lk_supervised_runner();
    assert_int_not_equal(
        lk_train(runner, .model = make_model(), .optimizer = lk_sgd(.lr = 0.05),
                 .criterion = lk_triplet_margin_loss(),
                 .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)})),
        LK_OK);
    lkt_contains(lk_error(), "TripletMarginLoss");
    lkt_contains(lk_error(), "it takes 3 values, found 2: name them with the criterion's input_key");
    lk_runner_free(runner);
}

static void a_loss_that_nobody_computes_is_refused(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    assert_int_equal(train_objective(runner, NULL, "cpu", "totl"), LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "there is no loss \"totl\" to minimise");
    assert_int_equal(runner->epoch_step, 0);
    lk_runner_free(runner);
    runner = lk_supervised_runner();
    assert_int_equal(lk_train(runner, .model = make_model(), .optimizer = lk_sgd(.lr = 0.05),
                              .criterion = lk_mse_loss(),
                              .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                              .callbacks = lk_callbacks(lk_criterion_callback(.criterion_key = "mse"))),
                     LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "there is no criterion \"mse\"");
    assert_int_equal(lk_train(runner, .model = make_model(), .optimizer = lk_sgd(.lr = 0.05),
                              .criterion = lk_mse_loss(),
                              .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                              .callbacks = lk_callbacks(lk_criterion_callback(.target_key = "target"))),
                     LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "neither a field nor an output named \"target\"");
    lk_runner_free(runner);
    assert_null(lk_backward_callback(.log_gradient = true));
    assert_null(lk_optimizer_callback(.optimizer_key = "g", .clip_norm = 1));
}

/* ---- Accumulation ---- */

static void expect_accumulation(const char *name, bool restarts, const char *device)
{
    const char *logdir = lkt_scratch_folder("objective_accumulate");
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = make_model(), .criterion = lk_mse_loss(), .optimizer = lk_sgd(.lr = 0.1),
                    .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                    .callbacks = lk_callbacks(
                        lk_optimizer_callback(.accumulation_steps = 3, .restart_each_epoch = restarts)),
                    .num_epochs = 2, .logdir = logdir, .device = device));
    expect_weights(runner, name);
    expect_metric(logdir, name, 0, "loss");
    lk_runner_free(runner);
}

static void groups_go_on_over_epochs(void **state)
{
    (void)state;
    expect_accumulation("accumulate", false, "cpu");
    expect_accumulation("accumulate", false, "ref");
    expect_accumulation("restart", true, "cpu");
    assert_null(lk_optimizer_callback(.restart_each_epoch = true));
}

/* ---- The order that ranks share ---- */

typedef struct seen_order {
    int64_t indices[2 * SAMPLES];
    int count;
} seen_order;

/* Every rank compares its own; a failure of one fails the run. */
static lk_status compare_order(lk_callback *callback, lk_runner *runner)
{
    seen_order *seen = callback->context;
    const lk_tensor *expected = lkt_golden_get(golden, "order/%d/%d", runner->world_size, runner->rank);
    for (int64_t i = 0; i < runner->batch->count; i++, seen->count++)
        if (runner->batch->indices[i] != (int64_t)lk_tensor_get(expected, seen->count)) return LK_ERR_INVALID;
    return LK_OK;
}

static void ranks_begin_with_epoch_one(void **state)
{
    (void)state;
    for (int world = 2; world <= 3; world++) {
        seen_order seen = {.count = 0};
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = make_model(), .criterion = lk_mse_loss(),
                        .optimizer = lk_sgd(.lr = 0.1),
                        .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                        .callbacks = lk_callbacks(lk_on(batch_start, compare_order, &seen)), .num_epochs = 2,
                        .ddp = true, .nproc = world, .device = "cpu"));
        assert_int_equal(seen.count, 2 * ((SAMPLES + world - 1) / world));
        lk_runner_free(runner);
    }
}

/* ---- What your own code reports ---- */

static lk_status plain_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_status status = lk_runner_supervised_batch(runner, batch);
    if (status) return status;
    /* The mean of the samples' numbers: exact over the loader if batches count by their size. */
    double sum = 0;
    for (int64_t i = 0; i < batch->count; i++) sum += (double)batch->indices[i];
    return lk_metrics_set(runner->batch_metrics, "index", sum / (double)batch->count);
}

static const lk_runner_ops own_ops = {LK_SIZE(lk_runner_ops), .handle_batch = plain_batch};

static lk_status report_first(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->loader_batch_step > 1 || runner->rank > 0) return LK_OK;
    return lk_metrics_set(runner->batch_metrics, "first", 5);
}

static void batch_metrics_become_loader_metrics(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 3; ranks++) {
        lk_runner *runner = lk_custom_runner(&own_ops, NULL);
        lkt_ok(lk_train(runner, .model = make_model(), .criterion = lk_mse_loss(), .optimizer = lk_adam(),
                        .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = 6)},
                                              {"valid", lk_loader(make_data(), .batch_size = 6)}),
                        .callbacks = lk_callbacks(lk_on(batch_end, report_first, NULL)), .num_epochs = 1,
                        .valid_loader = "valid", .valid_metric = "index", .ddp = ranks > 1, .nproc = ranks,
                        .device = "cpu", .logdir = lkt_scratch_folder("objective_own")));
        const lk_metrics *valid = lk_runner_loader_metrics(runner, "valid");
        lkt_close(lk_metrics_get(valid, "index"), (SAMPLES - 1) / 2.0, 1e-12);
        lkt_close(lk_metrics_get(valid, "first"), 5, 1e-12);
        assert_true(lk_metrics_get(valid, "loss") > 0);
        assert_true(lk_metrics_has(valid, "loss/std"));
        lk_runner_free(runner);
    }
}

/* ---- Columns of parameter groups ---- */

static void columns_are_those_of_the_first_group(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("objective_groups");
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(
        runner, .model = make_model(), .criterion = lk_mse_loss(),
        .optimizer = lk_sgd(.lr = 0.1, .momentum = 0.5,
                            .groups = lk_param_groups({.prefix = "bias", .lr = 0.02, .momentum = 0.25})),
        .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}), .logdir = logdir));
    assert_true(lkt_csv(logdir, "train", 1, "lr") == 0.02);
    assert_true(lkt_csv(logdir, "train", 1, "momentum") == 0.25);
    assert_true(lkt_csv(logdir, "train", 1, "lr/group_01") == 0.1);
    lk_runner_free(runner);
}

/* ---- Hashes ---- */

static void one_run_has_one_hash(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("objective_hash");
    char hashes[2][LK_HASH_LENGTH + 1];
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = make_model(), .criterion = lk_mse_loss(), .optimizer = lk_adam(),
                    .loaders = lk_loaders({"train", lk_loader(make_data(), .batch_size = BATCH)}),
                    .logdir = logdir));
    static const char *const names[] = {"checkpoints/model.last.safetensors",
                                        "checkpoints/runner.last.safetensors"};
    for (int i = 0; i < 2; i++) {
        lk_state_dict *dict = lk_load_safetensors(lkt_path(logdir, "%s", names[i]));
        lkt_not_null(dict);
        lkt_ok(lk_weights_hash(dict, hashes[i]));
        lk_state_dict_free(dict);
    }
    assert_string_equal(hashes[0], hashes[1]);
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_criteria_is_minimised),
        cmocka_unit_test(a_loss_of_several_values_is_minimised),
        cmocka_unit_test(a_loss_that_nobody_computes_is_refused),
        cmocka_unit_test(groups_go_on_over_epochs),
        cmocka_unit_test(ranks_begin_with_epoch_one),
        cmocka_unit_test(batch_metrics_become_loader_metrics),
        cmocka_unit_test(columns_are_those_of_the_first_group),
        cmocka_unit_test(one_run_has_one_hash),
    };
    golden = lkt_golden_open("train/objective.lkg");
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
