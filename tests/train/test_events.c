/* The moments of a run: their order, who is called first, and what can be read at each. */
#include "case.h"

typedef struct diary {
    char text[8192];
    lk_runner *runner;
} diary;

static void note(diary *diary, const char *word)
{
    size_t used = strlen(diary->text);
    snprintf(diary->text + used, sizeof diary->text - used, "%s ", word);
}

#define X(moment)                                                                                            \
    static lk_status note_##moment(lk_callback *callback, lk_runner *runner)                                 \
    {                                                                                                        \
        (void)runner;                                                                                        \
        note(callback->context, #moment);                                                                    \
        return LK_OK;                                                                                        \
    }
LK_MOMENT_LIST(X)
#undef X

static const lk_callback_ops diary_ops = {LK_SIZE(lk_callback_ops), .name = "Diary",
#define X(moment) .on_##moment = note_##moment,
                                          LK_MOMENT_LIST(X)
#undef X
};

static lk_loader_list two_loaders(void)
{
    static lk_named_loader items[2];
    items[0] = (lk_named_loader){"train", lk_loader(lkt_points(8, 1), .batch_size = 4)};
    items[1] = (lk_named_loader){"valid", lk_loader(lkt_points(4, 2), .batch_size = 4)};
    return (lk_loader_list){items, 2};
}

/* Catalyst's order, and inside a batch Torchbearer's. */
#define TRAIN_BATCH "batch_start sample forward criterion backward step batch_end settled "
#define VALID_BATCH "batch_start sample forward criterion batch_end settled "
#define EPOCH                                                                                                \
    "epoch_start loader_start " TRAIN_BATCH TRAIN_BATCH "loader_end loader_start " VALID_BATCH               \
    "loader_end epoch_end settled "

static void moments_come_in_order(void **state)
{
    (void)state;
    diary diary = {0};
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(), .loaders = two_loaders(), .num_epochs = 2,
                    .callbacks = lk_callbacks(lk_callback_create(&diary_ops, &diary, LK_ORDER_EXTERNAL))));
    assert_string_equal(diary.text, "experiment_start " EPOCH EPOCH "experiment_end ");
    lk_runner_free(runner);
}

static lk_status refuse(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    return runner->loader_batch_step == 2 ? LK_ERR_INVALID : LK_OK;
}

static void a_failing_callback_ends_the_run(void **state)
{
    (void)state;
    diary diary = {0};
    lk_runner *runner = lk_supervised_runner();
    lk_fail(LK_ERR_IO, "something else, long ago");
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_adam(), .loaders = two_loaders(), .num_epochs = 2,
                 .callbacks = lk_callbacks(lk_callback_create(&diary_ops, &diary, LK_ORDER_EXTERNAL),
                                           lk_on(batch_start, refuse, NULL)));
    assert_int_equal(status, LK_ERR_INVALID);
    assert_int_equal(runner->exception, LK_ERR_INVALID);
    assert_string_equal(lk_error(), "callback on_batch_start: invalid argument");
    assert_string_equal(diary.text,
                        "experiment_start epoch_start loader_start " TRAIN_BATCH "batch_start exception ");
    lk_runner_free(runner);
}

static lk_status note_name(lk_callback *callback, lk_runner *runner)
{
    diary *diary = *(struct diary **)callback->context;
    char order[16];
    (void)runner;
    snprintf(order, sizeof order, "%d", callback->order);
    note(diary, order);
    return LK_OK;
}

static void callbacks_are_sorted_by_order_and_stay_stable(void **state)
{
    (void)state;
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "A", .on_epoch_start = note_name};
    static const int given[] = {100, 60, 10, 100, 0, 50, 40, 30, 20, 10};
    diary diary = {0}, *context = &diary;
    lk_callback *callbacks[10];
    for (int i = 0; i < 10; i++) callbacks[i] = lk_callback_create(&ops, &context, given[i]);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(), .loaders = two_loaders(), .callbacks = {callbacks, 10}));
    assert_string_equal(diary.text, "0 10 10 20 30 40 50 60 100 100 ");
    lk_runner_free(runner);
}

static lk_status look_at_batch(lk_callback *callback, lk_runner *runner)
{
    int *seen = callback->context;
    assert_ptr_equal(runner->loader_batch_size, 4);
    assert_int_equal(runner->batch_size, runner->batch->count);
    assert_int_equal(runner->is_train_loader, strcmp(runner->loader_key, "train") == 0);
    assert_int_equal(runner->is_valid_loader, strcmp(runner->loader_key, "valid") == 0);
    assert_false(runner->is_infer_loader);
    assert_int_equal(runner->loader_batch_len, runner->is_train_loader ? 2 : 1);
    assert_int_equal(runner->loader_sample_len, runner->is_train_loader ? 8 : 4);
    assert_int_equal(runner->loader_sample_step, 4 * runner->loader_batch_step);
    assert_true(lk_metrics_has(runner->batch_metrics, "loss"));
    assert_non_null(lk_runner_tensor(runner, "features"));
    assert_non_null(lk_runner_tensor(runner, "logits"));
    if (runner->is_train_loader) {
        seen[0]++;
        assert_int_equal(runner->batch_step, seen[0]);
        assert_int_equal(runner->sample_step, 4 * seen[0]);
    }
    return LK_OK;
}

static lk_status look_at_epoch(lk_callback *callback, lk_runner *runner)
{
    int *seen = callback->context;
    const lk_metrics *train = lk_runner_loader_metrics(runner, "train"),
                     *valid = lk_runner_loader_metrics(runner, "valid");
    seen[1]++;
    assert_int_equal(runner->epoch_step, seen[1]);
    assert_true(lk_metrics_has(train, "loss") && lk_metrics_has(train, "lr") &&
                lk_metrics_has(valid, "loss/std"));
    assert_null(lk_runner_loader_metrics(runner, "other"));
    assert_non_null(runner->engine);
    assert_non_null(runner->model);
    assert_non_null(runner->criterion);
    assert_non_null(runner->optimizer);
    assert_string_equal(runner->valid_loader, "valid");
    assert_string_equal(runner->valid_metric, "loss");
    return lk_metrics_set(runner->epoch_metrics, "mine", (double)runner->epoch_step);
}

static void state_is_readable_under_its_names(void **state)
{
    (void)state;
    int seen[2] = {0};
    const char *logdir = lkt_scratch_folder("train_state");
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(), .loaders = two_loaders(), .num_epochs = 3, .logdir = logdir,
                    .valid_loader = "valid",
                    .callbacks = lk_callbacks(lk_on(batch_end, look_at_batch, seen),
                                              lk_on(epoch_end, look_at_epoch, seen))));
    assert_int_equal(seen[0], 6);
    assert_int_equal(seen[1], 3);
    lkt_close(lkt_csv(logdir, "_epoch_", 2, "mine"), 2, 0);
    lk_runner_free(runner);
}

static lk_status stop_early(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->epoch_step == 2) runner->need_early_stop = true;
    return LK_OK;
}

static lk_status stop_loader(lk_callback *callback, lk_runner *runner)
{
    (*(int *)callback->context)++;
    runner->need_loader_stop = true;
    return LK_OK;
}

static void flags_end_the_run_and_the_loader(void **state)
{
    (void)state;
    int batches = 0;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(), .loaders = two_loaders(), .num_epochs = 5,
                    .callbacks = lk_callbacks(lk_on(epoch_end, stop_early, NULL),
                                              lk_on(batch_end, stop_loader, &batches))));
    assert_int_equal(runner->epoch_step, 2);
    assert_int_equal(batches, 4);
    lk_runner_free(runner);
}

/* Torchbearer: the batch may be changed at the sample, the gradients after the backward half. */
static lk_status zero_features(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    lk_tensor *features = lk_batch_get(runner->batch, "features");
    for (int64_t i = 0; i < lk_tensor_count(features); i++) lk_tensor_set(features, i, 0);
    return LK_OK;
}

static lk_status zero_gradients(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    int64_t count;
    float *grads = lk_step_flat_grads(runner->step, &count);
    memset(grads, 0, sizeof *grads * (size_t)count);
    return LK_OK;
}

static void what_callbacks_change_counts(void **state)
{
    (void)state;
    double before[18], after[18];
    lk_module *model = lkt_linear_model();
    lkt_weights(model, "0.weight", before, 18);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.5), .loaders = two_loaders(),
                    .callbacks = lk_callbacks(lk_on(sample, zero_features, NULL))));
    lkt_weights(runner->model, "0.weight", after, 18); /* no features: only the bias learns */
    assert_memory_equal(before, after, sizeof before);
    double bias[3], learnt[3];
    lkt_weights(runner->model, "0.bias", bias, 3);
    lkt_ok(lk_train(runner, .loaders = two_loaders(),
                    .callbacks = lk_callbacks(lk_on(backward, zero_gradients, NULL))));
    lkt_weights(runner->model, "0.weight", after, 18);
    lkt_weights(runner->model, "0.bias", learnt, 3);
    assert_memory_equal(before, after, sizeof before);
    assert_memory_equal(bias, learnt, sizeof bias);
    lk_runner_free(runner);
}

/* ---- A runner that runs ---- */

typedef enum again { EVALUATE, PREDICT, TRAIN, AGAIN_COUNT } again;

static lk_status take_nothing(const lk_tensor *output, const lk_batch *batch, void *context)
{
    (void)output, (void)batch, (void)context;
    return LK_OK;
}

static lk_status start_again(lk_runner *runner, again what)
{
    lk_loader *loader = lk_loader(lkt_points(4, 2), .batch_size = 4);
    if (what == EVALUATE)
        return lk_evaluate_loader(runner, loader, .callbacks = lk_callbacks(lk_accuracy_callback()),
                                  .criterion = lk_cross_entropy_loss());
    if (what == PREDICT) return lk_predict_loader(runner, loader, take_nothing, NULL);
    return lk_train(runner, .loaders = lk_loaders({"train", loader}), .model = lkt_linear_model(),
                    .optimizer = lk_adam(), .criterion = runner->criterion,
                    .callbacks = lk_callbacks(lk_timer_callback()));
}

/* All of it is refused with what it was given, and the run goes on; a batch may be predicted. */
static lk_status try_again(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    for (again what = EVALUATE; what < AGAIN_COUNT; what++)
        lkt_fails(start_again(runner, what), LK_ERR_INVALID, "from a callback of its own");
    lk_tensor *features = lk_tensor_full(LK_F32, LK_SHAPE(2, LKT_FEATURES), 0.5);
    lk_tensor *output = lk_predict_batch(runner, features);
    lkt_not_null(output);
    lk_tensor_free(output);
    lk_tensor_free(features);
    return LK_OK;
}

static lk_status fail_once(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    return lk_fail(LK_ERR_STOPPED, "enough");
}

static void a_running_runner_runs_nothing_else(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_adam(), .loaders = two_loaders(), .num_epochs = 3, .nproc = ranks,
                        .device = "cpu", .callbacks = lk_callbacks(lk_on(epoch_end, try_again, NULL))));
        assert_int_equal(runner->epoch_step, 3);
        lk_module *model = runner->model;
        lkt_fails(lk_train(runner, .loaders = two_loaders(), .nproc = ranks, .device = "cpu",
                           .callbacks = lk_callbacks(lk_on(epoch_end, fail_once, NULL))),
                  LK_ERR_STOPPED, "enough");
        for (again what = EVALUATE; what < TRAIN; what++) lkt_ok(start_again(runner, what));
        assert_ptr_equal(runner->model, model);
        lk_runner_free(runner);
    }
}

static lk_status try_again_while_evaluating(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    for (again what = EVALUATE; what < AGAIN_COUNT; what++)
        lkt_fails(start_again(runner, what), LK_ERR_INVALID, "from a callback of its own");
    return LK_OK;
}

static void so_does_an_evaluation(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    for (int i = 0; i < 2; i++)
        lkt_ok(lk_evaluate_loader(
            runner, lk_loader(lkt_points(4, 2), .batch_size = 4), .model = i ? NULL : lkt_linear_model(),
            .callbacks = lk_callbacks(lk_on(batch_end, try_again_while_evaluating, NULL))));
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_come_in_order),
        cmocka_unit_test(a_failing_callback_ends_the_run),
        cmocka_unit_test(callbacks_are_sorted_by_order_and_stay_stable),
        cmocka_unit_test(state_is_readable_under_its_names),
        cmocka_unit_test(flags_end_the_run_and_the_loader),
        cmocka_unit_test(what_callbacks_change_counts),
        cmocka_unit_test(a_running_runner_runs_nothing_else),
        cmocka_unit_test(so_does_an_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
