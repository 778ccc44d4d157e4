/* What each callback does to a real run. */
#include "case.h"

#include "base/status.h"

static lk_loader_list points(int64_t train_count, bool shuffle)
{
    static lk_named_loader items[2];
    items[0] = (lk_named_loader){"train",
                                 lk_loader(lkt_points(train_count, 1), .batch_size = 8, .shuffle = shuffle)};
    items[1] = (lk_named_loader){"valid", lk_loader(lkt_points(24, 2), .batch_size = 8)};
    return (lk_loader_list){items, 2};
}

/* A run of the usual parts with these callbacks; the runner is the caller's to free. */
static lk_runner *run_with(lk_callback_list callbacks, int epochs, const char *logdir, lk_status expected)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1), .loaders = points(48, false), .callbacks = callbacks,
                 .num_epochs = epochs, .logdir = logdir, .valid_loader = "valid", .seed = 5);
    if (status != expected) fail_msg("status %d: %s", status, lk_error());
    return runner;
}

/* ---- Counting calls ---- */

typedef struct tally {
    int calls;
    int64_t epochs[64]; /* of each call */
    char loaders[256];
} tally;

static lk_status count_call(lk_callback *callback, lk_runner *runner)
{
    tally *tally = callback->context;
    if (tally->calls < 64) tally->epochs[tally->calls] = runner->epoch_step;
    tally->calls++;
    if (runner->loader_key && strlen(tally->loaders) < 240)
        snprintf(tally->loaders + strlen(tally->loaders), 16, "%.1s", runner->loader_key);
    return LK_OK;
}

/* ---- Periodic loader ---- */

static void valid_runs_in_every_third_epoch(void **state)
{
    (void)state;
    tally loaders = {0}, decided = {0};
    const char *logdir = lkt_scratch_folder("train_periodic");
    lk_runner *runner = run_with(
        lk_callbacks(lk_periodic_loader_callback({"valid", 3}), lk_on(loader_start, count_call, &loaders),
                     lk_early_stopping_callback(.patience = 9), lk_on(epoch_end, count_call, &decided)),
        10, logdir, LK_OK);
    assert_string_equal(loaders.loaders, "tttvtttvtttvt");
    assert_int_equal(decided.calls, 10);
    assert_int_equal(lkt_csv_rows(logdir, "train"), 10);
    assert_int_equal(lkt_csv_rows(logdir, "valid"), 3);
    /* The epochs in which the deciding loader rested are no candidates for the best. */
    assert_true(lkt_exists(lkt_path(logdir, "checkpoints/model.0009.safetensors")));
    lk_runner_free(runner);
}

static void periods_that_cannot_be(void **state)
{
    (void)state;
    lk_runner *runner =
        run_with(lk_callbacks(lk_periodic_loader_callback({"test", 3})), 3, NULL, LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "no loader named \"test\"");
    lk_runner_free(runner);
    runner = run_with(lk_callbacks(lk_periodic_loader_callback({"train", 2}, {"valid", 0})), 3, NULL,
                      LK_ERR_INVALID);
    lkt_contains(lk_error(), "no loader runs in epoch 1");
    lk_runner_free(runner);
    assert_null(lk_periodic_loader_callback({"valid", -1}));
}

/* ---- Wrappers ---- */

static void control_flow_by_epoch(void **state)
{
    (void)state;
    tally every = {0}, listed = {0}, ignored = {0};
    lk_runner *runner = run_with(
        lk_callbacks(
            lk_control_flow_callback(lk_on(epoch_end, count_call, &every), .epochs = 3),
            lk_control_flow_callback(lk_on(epoch_end, count_call, &listed), .epoch_list = (int[]){2, 7, 0}),
            lk_control_flow_callback(lk_on(epoch_end, count_call, &ignored), .ignore_epochs = 2,
                                     .ignore_epoch_list = (int[]){3, 5, 0})),
        10, NULL, LK_OK);
    assert_int_equal(every.calls, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(every.epochs[i], 3 * (i + 1));
    assert_int_equal(listed.calls, 2);
    assert_int_equal(listed.epochs[1], 7);
    assert_int_equal(ignored.calls, 3);
    assert_int_equal(ignored.epochs[2], 9);
    lk_runner_free(runner);
}

static bool odd_train_epochs(const char *stage, int64_t epoch, const char *loader_key, void *context)
{
    assert_string_equal(stage, "train");
    assert_string_equal(context, "mine");
    return epoch % 2 == 1 && strcmp(loader_key, "train") == 0;
}

static void control_flow_by_loader(void **state)
{
    (void)state;
    tally only = {0}, not = {0}, filtered = {0};
    const char *const valid[] = {"valid", NULL};
    lk_runner *runner = run_with(
        lk_callbacks(lk_control_flow_callback(lk_on(batch_end, count_call, &only), .loaders = valid),
                     lk_control_flow_callback(lk_on(loader_end, count_call, &not ), .ignore_loaders = valid),
                     lk_control_flow_callback(lk_on(loader_start, count_call, &filtered),
                                              .filter_fn = odd_train_epochs, .context = "mine"),
                     lk_control_flow_callback(lk_accuracy_callback(.num_classes = 3), .loaders = valid)),
        3, NULL, LK_OK);
    assert_string_equal(only.loaders, "vvvvvvvvv");
    assert_string_equal(not .loaders, "ttt");
    assert_string_equal(filtered.loaders, "tt");
    assert_true(lk_metrics_has(lk_runner_loader_metrics(runner, "valid"), "accuracy01"));
    assert_false(lk_metrics_has(lk_runner_loader_metrics(runner, "train"), "accuracy01"));
    lk_runner_free(runner);
}

static bool third_batch(lk_runner *runner, void *context)
{
    (void)context;
    return runner->loader_batch_step == 3;
}

static void once_per_epoch_and_only_if(void **state)
{
    (void)state;
    tally once = {0}, third = {0};
    lk_runner *runner =
        run_with(lk_callbacks(lk_once_per_epoch(lk_on(batch_end, count_call, &once)),
                              lk_only_if(lk_on(batch_end, count_call, &third), third_batch, NULL)),
                 4, NULL, LK_OK);
    assert_int_equal(once.calls, 4);
    assert_int_equal(once.epochs[3], 4);
    assert_int_equal(third.calls, 8); /* of both loaders */
    lk_runner_free(runner);
}

static void a_wrapped_callback_stands_for_itself(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("train_wrapped");
    lk_runner *runner =
        run_with(lk_callbacks(lk_control_flow_callback(lk_checkpoint_callback(.topk = 9), .epochs = 2)), 5,
                 logdir, LK_OK);
    for (int epoch = 1; epoch <= 5; epoch++)
        assert_int_equal(lkt_exists(lkt_path(logdir, "checkpoints/model.%04d.safetensors", epoch)),
                         epoch % 2 == 0);
    lk_runner_free(runner);
    assert_null(lk_once_per_epoch(NULL));
    assert_null(lk_only_if(NULL, third_batch, NULL));
    assert_null(lk_only_if(lk_timer_callback(), NULL, NULL));
    assert_null(lk_control_flow_callback(lk_timer_callback(), .epochs = -1));
}

/* ---- Batches ---- */

typedef struct look {
    int64_t indices[256];
    int count;
    double sum;
} look;

static lk_status look_at_samples(lk_callback *callback, lk_runner *runner)
{
    look *look = callback->context;
    for (int64_t i = 0; i < runner->batch->count && runner->is_train_loader; i++)
        look->indices[look->count++] = runner->batch->indices[i];
    return LK_OK;
}

static lk_runner *overfit(lk_callback_list callbacks, bool whole_run, int epochs)
{
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .loaders = points(48, true), .callbacks = callbacks,
                    .num_epochs = epochs, .overfit = whole_run, .seed = 5));
    return runner;
}

static void overfitting_sees_the_first_batch_again(void **state)
{
    (void)state;
    look seen = {0}, shuffled = {0};
    lk_runner *runner = overfit(lk_callbacks(lk_on(batch_end, look_at_samples, &seen)), true, 4);
    assert_int_equal(seen.count, 4 * 8);
    for (int i = 8; i < seen.count; i++) assert_int_equal(seen.indices[i], seen.indices[i - 8]);
    lk_runner_free(runner);
    runner = overfit(lk_callbacks(lk_on(batch_end, look_at_samples, &shuffled)), false, 2);
    assert_memory_equal(seen.indices, shuffled.indices, 8 * sizeof *seen.indices); /* it is the first batch */
    assert_memory_not_equal(shuffled.indices, shuffled.indices + 48, 8 * sizeof *seen.indices);
    lk_runner_free(runner);
}

static void batch_overfit_takes_a_number_or_a_share(void **state)
{
    (void)state;
    look seen = {0};
    tally batches = {0};
    lk_runner *runner = overfit(lk_callbacks(lk_batch_overfit_callback({"train", 2}, {"valid", 0.4}),
                                             lk_on(batch_end, look_at_samples, &seen),
                                             lk_on(batch_end, count_call, &batches)),
                                false, 3);
    assert_string_equal(batches.loaders, "ttvttvttv"); /* 0.4 of three batches is one */
    assert_int_equal(seen.count, 3 * 16);
    for (int i = 16; i < seen.count; i++) assert_int_equal(seen.indices[i], seen.indices[i - 16]);
    lk_runner_free(runner);
    assert_null(lk_batch_overfit_callback({"train", 0}));
    runner = run_with(lk_callbacks(lk_batch_overfit_callback({"other", 1})), 1, NULL, LK_ERR_NOT_FOUND);
    lk_runner_free(runner);
}

static void check_is_three_batches_and_three_epochs(void **state)
{
    (void)state;
    tally batches = {0}, few = {0};
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .loaders = points(48, false), .num_epochs = 9,
                    .check = true, .callbacks = lk_callbacks(lk_on(batch_end, count_call, &batches))));
    assert_int_equal(batches.calls, 3 * (3 + 3));
    lk_runner_free(runner);
    runner = run_with(lk_callbacks(lk_check_run_callback(2, 1), lk_on(batch_end, count_call, &few)), 9, NULL,
                      LK_OK);
    assert_int_equal(few.calls, 4);
    lk_runner_free(runner);
}

static lk_status triple(lk_tensor *tensor, lk_runner *runner, void *context)
{
    (void)runner;
    (*(int *)context)++;
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, 3 * lk_tensor_get(tensor, i));
    return LK_OK;
}

static lk_status sum_logits(lk_callback *callback, lk_runner *runner)
{
    look *look = callback->context;
    const lk_tensor *tensor = lk_runner_tensor(runner, "logits");
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++) look->sum += lk_tensor_get(tensor, i);
    return LK_OK;
}

static void batch_transforms_change_fields_and_outputs(void **state)
{
    (void)state;
    int before = 0, after = 0;
    look plain = {0}, changed = {0}, inputs = {0};
    lk_runner_free(run_with(lk_callbacks(lk_on(batch_end, sum_logits, &plain)), 1, NULL, LK_OK));
    lk_runner_free(run_with(lk_callbacks(lk_batch_transform_callback(.transform = triple, .context = &after,
                                                                     .scope = "on_batch_end"),
                                         lk_on(batch_end, sum_logits, &changed)),
                            1, NULL, LK_OK));
    lkt_close(changed.sum, 3 * plain.sum, 1e-5);
    lk_runner_free(run_with(lk_callbacks(lk_batch_transform_callback(.transform = triple, .context = &before,
                                                                     .input_key = "features"),
                                         lk_on(batch_end, sum_logits, &inputs)),
                            1, NULL, LK_OK));
    assert_true(inputs.sum != plain.sum);
    assert_int_equal(before, 9);
    assert_int_equal(after, 9);
    lk_runner_free(run_with(lk_callbacks(lk_batch_transform_callback(.transform = triple, .context = &before,
                                                                     .input_key = "nothing")),
                            1, NULL, LK_ERR_NOT_FOUND));
    assert_null(lk_batch_transform_callback(.transform = triple, .scope = "on_epoch"));
    assert_null(lk_batch_transform_callback(.scope = "on_batch_end"));
}

/* ---- Numbers ---- */

static void aggregation_of_metrics(void **state)
{
    (void)state;
    const char *const names[] = {"loss", "accuracy01", NULL}, *const unknown[] = {"losses", NULL};
    const double weights[] = {3, 1};
    lk_runner *runner = run_with(
        lk_callbacks(
            lk_accuracy_callback(.num_classes = 3),
            lk_metric_aggregation_callback(.metric_key = "sum", .metrics = names, .mode = "sum"),
            lk_metric_aggregation_callback(.metric_key = "mean", .metrics = names, .scope = "loader"),
            lk_metric_aggregation_callback(.metric_key = "weighted", .metrics = names, .weights = weights,
                                           .mode = "weighted_mean", .scope = "loader")),
        2, NULL, LK_OK);
    const lk_metrics *valid = lk_runner_loader_metrics(runner, "valid");
    double loss = lk_metrics_get(valid, "loss"), accuracy = lk_metrics_get(valid, "accuracy01");
    /* Of batches, whose loss is an f32; the loader's own is exact. */
    lkt_close(lk_metrics_get(valid, "sum"), loss + accuracy, 1e-7);
    lkt_close(lk_metrics_get(valid, "mean"), (loss + accuracy) / 2, 1e-12);
    lkt_close(lk_metrics_get(valid, "weighted"), (3 * loss + accuracy) / 4, 1e-12);
    lk_runner_free(runner);
    runner = run_with(lk_callbacks(lk_metric_aggregation_callback(.metric_key = "x", .metrics = unknown)), 1,
                      NULL, LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "\"losses\"");
    lk_runner_free(runner);
    assert_null(lk_metric_aggregation_callback(.metrics = names));
    assert_null(lk_metric_aggregation_callback(.metric_key = "x", .mode = "median"));
    assert_null(lk_metric_aggregation_callback(.metric_key = "x", .mode = "weighted_sum", .metrics = names));
    assert_null(lk_metric_aggregation_callback(.metric_key = "x", .scope = "epoch"));
}

static double sum_of_matrix(const char *path)
{
    double total = 0;
    char *text = lkt_read(path);
    for (char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n'))
        for (char *at = strchr(line + 1, ','); at && at < strchr(line + 1, '\n'); at = strchr(at + 1, ','))
            total += strtod(at + 1, NULL);
    free(text);
    return total;
}

static void confusion_matrix_leaves_files(void **state)
{
    (void)state;
    char command[4096], logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_confusion"));
    lk_runner *runner =
        run_with(lk_callbacks(lk_confusion_matrix_callback(.num_classes = 3)), 2, logdir, LK_OK);
    for (int epoch = 1; epoch <= 2; epoch++) {
        assert_true(lkt_exists(lkt_path(logdir, "confusion_matrix/train_%04d.png", epoch)));
        assert_true(lkt_exists(lkt_path(logdir, "confusion_matrix/valid_%04d.csv", epoch)));
    }
    lkt_close(sum_of_matrix(lkt_path(logdir, "confusion_matrix/valid_0002.csv")), 24, 0);
    snprintf(command, sizeof command, "grep -qa confusion_matrix '%s'/tensorboard/valid/events*", logdir);
    assert_int_equal(system(command), 0);
    lk_runner_free(runner);
}

/* The matrix counts every sample once, the averages are the same everywhere, and decisions are common. */
static void callbacks_of_several_ranks(void **state)
{
    (void)state;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_confusion_ranks"));
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .loaders = points(48, false), .num_epochs = 6, .nproc = 3,
                    .callbacks = lk_callbacks(lk_confusion_matrix_callback(.num_classes = 3),
                                              lk_ema_callback(.decay = 0.5), lk_gradient_norm_callback(),
                                              lk_periodic_loader_callback({"valid", 2}),
                                              lk_lr_finder_callback(.final_lr = 1, .num_steps = 7)),
                    .logdir = logdir, .valid_loader = "valid"));
    assert_int_equal(runner->epoch_step, 4); /* two batches an epoch and rank: seven end in the fourth */
    lkt_close(sum_of_matrix(lkt_path(logdir, "confusion_matrix/valid_0002.csv")), 24, 0);
    lkt_close(sum_of_matrix(lkt_path(logdir, "confusion_matrix/train_0001.csv")), 48, 0);
    assert_false(lkt_exists(lkt_path(logdir, "confusion_matrix/valid_0001.csv")));
    assert_true(lkt_csv(logdir, "train", 1, "grad_norm") > 0);
    lk_runner_free(runner);
}

static void learning_rate_finder(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("train_lr_finder");
    lk_runner *runner =
        run_with(lk_callbacks(lk_lr_finder_callback(.final_lr = 1.6, .num_steps = 4)), 9, logdir, LK_OK);
    char *text = lkt_read(lkt_path(logdir, "lr_finder.csv"));
    assert_int_equal(strncmp(text, "step,lr,loss\n1,0.1,", 19), 0);
    lkt_contains(text, "\n2,0.2,");
    lkt_contains(text, "\n4,0.8,");
    assert_null(strstr(text, "\n5,"));
    free(text);
    assert_int_equal(runner->epoch_step, 1);
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.1, 0);
    lk_runner_free(runner);
    logdir = lkt_scratch_folder("train_lr_finder");
    runner = run_with(lk_callbacks(lk_lr_finder_callback(.final_lr = 0.9, .num_steps = 8, .scale = "linear")),
                      9, logdir, LK_OK); /* over two epochs of six batches */
    text = lkt_read(lkt_path(logdir, "lr_finder.csv"));
    lkt_contains(text, "\n3,0.3,");
    lkt_contains(text, "\n8,0.8,");
    free(text);
    assert_int_equal(runner->epoch_step, 2);
    lk_runner_free(runner);
    assert_null(lk_lr_finder_callback(.num_steps = 8));
    assert_null(lk_lr_finder_callback(.final_lr = 1, .scale = "cubic"));
}

static lk_status poison(lk_callback *callback, lk_runner *runner)
{
    if (runner->batch_step == *(int *)callback->context && runner->is_train_loader)
        lk_tensor_set(lk_batch_get(runner->batch, "features"), 0, NAN);
    return LK_OK;
}

static void a_loss_that_is_not_a_number(void **state)
{
    (void)state;
    int when = 4;
    lk_runner *runner = run_with(lk_callbacks(lk_on(batch_start, poison, &when)), 3, NULL, LK_ERR_NAN);
    lk_runner_free(runner);
    /* With the callback the run ends in order, and the weights stay numbers. */
    runner = run_with(lk_callbacks(lk_on(batch_start, poison, &when), lk_terminate_on_nan_callback()), 3,
                      NULL, LK_OK);
    assert_int_equal(runner->epoch_step, 1);
    assert_int_equal(runner->batch_step, 4);
    double weights[18];
    lkt_weights(runner->model, "0.weight", weights, 18);
    for (int i = 0; i < 18; i++) assert_true(isfinite(weights[i]));
    lk_runner_free(runner);
}

/* ---- What schedulers count ---- */

/* How often one epoch of `points(48, false)` moves it; -1 where the run refuses it. */
static int steps_of_an_epoch(lk_scheduler *scheduler, const char *mode)
{
    lk_runner *runner = lk_supervised_runner();
    lk_callback *callbacks[] = {mode ? lk_scheduler_callback(.mode = mode) : NULL};
    lk_named_number numbers[32];
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1, .momentum = 0.9), .scheduler = scheduler,
                 .loaders = points(48, false), .callbacks = {callbacks, mode ? 1 : 0}, .num_epochs = 1);
    int steps = -1;
    if (status == LK_OK) {
        assert_true(lk_scheduler_save(runner->scheduler, numbers, 32) > 0);
        steps = (int)numbers[0].value; /* last_epoch */
    }
    lk_runner_free(runner);
    return steps;
}

static lk_scheduler *warmed_up(lk_scheduler *then)
{
    return lk_warmup_lr(2, .then = then);
}

static lk_scheduler *decay_then_cycle(void)
{
    return lk_sequential_lr(.schedulers = lk_schedulers(lk_exponential_lr(0.9), lk_cyclic_lr(0.01, 0.2)),
                            .milestones = lk_milestones(3));
}

static void cycles_count_batches_inside_others_too(void **state)
{
    (void)state;
    int batches = steps_of_an_epoch(lk_one_cycle_lr(0.1, .total_steps = 30), NULL);
    assert_true(batches > 1);
    assert_int_equal(steps_of_an_epoch(lk_exponential_lr(0.9), NULL), 1);
    assert_int_equal(steps_of_an_epoch(warmed_up(lk_exponential_lr(0.9)), NULL), 1);
    assert_int_equal(steps_of_an_epoch(warmed_up(NULL), NULL), 1);
    assert_int_equal(steps_of_an_epoch(warmed_up(lk_one_cycle_lr(0.1, .total_steps = 30)), NULL), batches);
    assert_int_equal(steps_of_an_epoch(warmed_up(lk_cyclic_lr(0.01, 0.2)), NULL), batches);
    assert_int_equal(steps_of_an_epoch(warmed_up(lk_cyclic_lr(0.01, 0.2)), "epoch"), 1);
    assert_int_equal(steps_of_an_epoch(decay_then_cycle(), "batch"), batches);
    assert_int_equal(steps_of_an_epoch(decay_then_cycle(), "epoch"), 1);
    assert_int_equal(steps_of_an_epoch(decay_then_cycle(), NULL), -1);
    lkt_contains(lk_error(), "CyclicLR counts batches and ExponentialLR epochs");
}

/* ---- Gradients ---- */

static void weight_decay_pulls_towards_zero(void **state)
{
    (void)state;
    enum { COUNT = 18 };
    double plain[COUNT], l1[COUNT], l2[COUNT], first[COUNT], norm = 0;
    lk_module *model = lkt_linear_model();
    lkt_weights(model, "0.weight", first, COUNT);
    lk_module_free(model);
    for (int i = 0; i < COUNT; i++) norm += first[i] * first[i];
    lk_runner *runner = run_with(lk_callbacks(lk_check_run_callback(1, 1)), 1, NULL, LK_OK);
    lkt_weights(runner->model, "0.weight", plain, COUNT);
    lk_runner_free(runner);
    runner =
        run_with(lk_callbacks(lk_check_run_callback(1, 1), lk_l1_weight_decay_callback(0.5)), 1, NULL, LK_OK);
    lkt_weights(runner->model, "0.weight", l1, COUNT);
    lk_runner_free(runner);
    runner =
        run_with(lk_callbacks(lk_check_run_callback(1, 1), lk_l2_weight_decay_callback(0.5)), 1, NULL, LK_OK);
    lkt_weights(runner->model, "0.weight", l2, COUNT);
    lk_runner_free(runner);
    for (int i = 0; i < COUNT; i++) {
        lkt_close(l1[i], plain[i] - 0.1 * 0.5 * (first[i] > 0 ? 1 : -1), 1e-6);
        lkt_close(l2[i], plain[i] - 0.1 * 0.5 * first[i] / sqrt(norm), 1e-6);
    }
    assert_null(lk_l1_weight_decay_callback(-1));
}

static void gradient_norm_is_reported(void **state)
{
    (void)state;
    lk_runner *runner = run_with(lk_callbacks(lk_gradient_norm_callback()), 1, NULL, LK_OK);
    const lk_metrics *train = lk_runner_loader_metrics(runner, "train");
    assert_true(lk_metrics_get(train, "grad_norm") > 0);
    assert_true(lk_metrics_has(train, "grad_norm/std"));
    assert_false(lk_metrics_has(lk_runner_loader_metrics(runner, "valid"), "grad_norm"));
    lk_runner_free(runner);
}

/* ---- Averages of the weights ---- */

typedef struct average {
    double weights[18], expected[18], decay;
    int count;
    bool swa;
} average;

/* The same average, made by hand from the weights after each batch (or epoch). */
static void take_in(average *average, lk_runner *runner)
{
    double weights[18];
    lkt_weights(runner->model, "0.weight", weights, 18);
    average->count++;
    double share = average->swa ? 1.0 / average->count : 1 - average->decay;
    for (int i = 0; i < 18; i++)
        average->expected[i] += (weights[i] - average->expected[i]) * (average->count == 1 ? 1 : share);
    memcpy(average->weights, weights, sizeof weights);
}

static lk_status follow(lk_callback *callback, lk_runner *runner)
{
    average *average = callback->context;
    double seen[18];
    if (runner->is_train_loader) {
        bool last = runner->loader_batch_step == runner->loader_batch_len;
        if (!average->swa || (last && runner->epoch_step >= 2)) take_in(average, runner);
        if (average->swa && runner->epoch_step < 2)
            lkt_weights(runner->model, "0.weight", average->weights, 18);
        return LK_OK;
    }
    lkt_weights(runner->model, "0.weight", seen, 18); /* evaluation sees the average */
    for (int i = 0; i < 18 && average->count; i++) lkt_close(seen[i], average->expected[i], 1e-6);
    return LK_OK;
}

static lk_status training_goes_on(lk_callback *callback, lk_runner *runner)
{
    average *average = callback->context;
    double seen[18];
    if (!runner->is_train_loader || runner->epoch_step == 1) return LK_OK;
    lkt_weights(runner->model, "0.weight", seen, 18);
    if (!average->swa) assert_memory_equal(seen, average->weights, sizeof seen);
    return LK_OK;
}

static void averages_are_what_evaluation_sees(void **state)
{
    (void)state;
    for (int swa = 0; swa < 2; swa++) {
        average average = {.decay = 0.8, .swa = swa};
        const char *logdir = lkt_scratch_folder("train_average");
        lk_runner *runner = run_with(lk_callbacks(swa ? lk_swa_callback(2) : lk_ema_callback(.decay = 0.8),
                                                  lk_on(batch_end, follow, &average),
                                                  lk_on(loader_start, training_goes_on, &average)),
                                     4, logdir, LK_OK);
        assert_int_equal(average.count, swa ? 3 : 24);
        lk_state_dict *last = lk_load_safetensors(lkt_path(logdir, "checkpoints/model.last.safetensors"));
        lkt_not_null(last);
        double at_end[18];
        lkt_weights(runner->model, "0.weight", at_end, 18);
        for (int i = 0; i < 18; i++) {
            lkt_close(lk_tensor_get(lk_state_dict_get(last, "0.weight"), i), average.expected[i], 1e-6);
            lkt_close(at_end[i], average.expected[i], 1e-6);
        }
        lk_state_dict_free(last);
        lk_runner_free(runner);
    }
    assert_null(lk_ema_callback(.decay = 1));
    assert_null(lk_swa_callback(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_runs_in_every_third_epoch),
        cmocka_unit_test(periods_that_cannot_be),
        cmocka_unit_test(control_flow_by_epoch),
        cmocka_unit_test(control_flow_by_loader),
        cmocka_unit_test(once_per_epoch_and_only_if),
        cmocka_unit_test(a_wrapped_callback_stands_for_itself),
        cmocka_unit_test(overfitting_sees_the_first_batch_again),
        cmocka_unit_test(batch_overfit_takes_a_number_or_a_share),
        cmocka_unit_test(check_is_three_batches_and_three_epochs),
        cmocka_unit_test(batch_transforms_change_fields_and_outputs),
        cmocka_unit_test(aggregation_of_metrics),
        cmocka_unit_test(confusion_matrix_leaves_files),
        cmocka_unit_test(callbacks_of_several_ranks),
        cmocka_unit_test(learning_rate_finder),
        cmocka_unit_test(a_loss_that_is_not_a_number),
        cmocka_unit_test(cycles_count_batches_inside_others_too),
        cmocka_unit_test(weight_decay_pulls_towards_zero),
        cmocka_unit_test(gradient_norm_is_reported),
        cmocka_unit_test(averages_are_what_evaluation_sees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
