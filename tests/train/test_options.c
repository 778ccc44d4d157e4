/* Options that cannot have their effect are refused in one line before the first batch, and the line says
 * what to write instead. */
#include "case.h"

#include <lockstep/log.h>

static lk_loader *loader(void)
{
    return lk_loader(lkt_points(24, 1), .batch_size = 8);
}

static int batches_seen;

static lk_status count_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    batches_seen++;
    return LK_OK;
}

/* Declares everything, so that names can be judged beforehand. */
static lk_callback *counter(void)
{
    lk_callback *callback = lk_on(batch_end, count_batch, NULL);
    lkt_not_null(callback);
    callback->declares_metrics = true;
    return callback;
}

typedef struct refusal {
    lk_train_options options;
    lk_callback *callback; /* beside the counter; NULL for none */
    const char *sentence;
} refusal;

static void expect_refusal(refusal r)
{
    lk_runner *runner = lk_supervised_runner();
    lk_train_options options = r.options;
    lk_callback *callbacks[] = {counter(), r.callback};
    options.model = lkt_linear_model();
    options.criterion = lk_cross_entropy_loss();
    if (!options.optimizer) options.optimizer = lk_sgd(.lr = 0.1);
    options.loaders = lk_loaders({"train", loader()}, {"valid", loader()});
    options.callbacks = (lk_callback_list){callbacks, r.callback ? 2 : 1};
    batches_seen = 0;
    lk_status status = lk_train_with(runner, &options);
    if (status == LK_OK) fail_msg("not refused: %s", r.sentence);
    lkt_contains(lk_error(), r.sentence);
    assert_null(strchr(lk_error(), '\n'));
    assert_int_equal(batches_seen, 0);
    lk_runner_free(runner);
}

#define REFUSED(text, ...)                                                                                   \
    expect_refusal((refusal){.sentence = (text), .options = {LK_SIZE(lk_train_options), __VA_ARGS__}})
#define REFUSED_CALLBACK(text, made, ...)                                                                    \
    expect_refusal((refusal){                                                                                \
        .sentence = (text), .callback = (made), .options = {LK_SIZE(lk_train_options), __VA_ARGS__}})

static void numbers(void **state)
{
    (void)state;
    REFUSED("num_epochs: expected 0 for the default", .num_epochs = -3);
    REFUSED("nproc: expected", .nproc = -1);
    REFUSED("thread_count: expected", .thread_count = -1);
    REFUSED("check_replicas: expected", .check_replicas = -2);
    REFUSED("scaler: only a loss in fp16 is scaled", .scaler = {.init_scale = 128});
    REFUSED("growth_factor: expected a number above 1", .precision = "fp16",
            .scaler = {.growth_factor = 0.5});
    REFUSED("precision: expected fp32", .precision = "fp8");
}

static void checkpoints(void **state)
{
    (void)state;
    REFUSED("load_best_on_end: the run keeps no checkpoints without a logdir", .load_best_on_end = true);
    REFUSED("autoresume: the run keeps no checkpoints without a logdir", .autoresume = "last");
    REFUSED("autoresume: expected \"last\" or \"best\", found \"lst\"", .autoresume = "lst");
    REFUSED("load_best_on_end: this run keeps no checkpoints", .load_best_on_end = true,
            .no_checkpoints = true, .logdir = lkt_scratch_folder("options_a"));
    REFUSED("autoresume: resume names a checkpoint already", .autoresume = "last", .resume = "x",
            .logdir = lkt_scratch_folder("options_b"));
    REFUSED_CALLBACK("CheckpointCallback: there is no directory to write to", lk_checkpoint_callback());
    REFUSED_CALLBACK("load_best_on_end: the run has a CheckpointCallback of its own",
                     lk_checkpoint_callback(), .load_best_on_end = true,
                     .logdir = lkt_scratch_folder("options_c"));
}

/* NULL stands for "none" too: what a constructor refused must not be taken for it. */
static void schedules(void **state)
{
    (void)state;
    REFUSED("MultiStepLR: milestones: expected at least one epoch, found none",
            .scheduler = lk_multi_step_lr());
    REFUSED("StepLR: step_size: expected at least 1", .scheduler = lk_step_lr(0));
    REFUSED("ExponentialLR: gamma", .scheduler = lk_exponential_lr(NAN));
    REFUSED("CosineAnnealingLR: eta_min", .scheduler = lk_cosine_annealing_lr(3, .eta_min = -1));
    REFUSED("SequentialLR: 0 schedulers", .scheduler = lk_sequential_lr());
    REFUSED("CyclicLR: base_lr and max_lr", .scheduler = lk_cyclic_lr(-1, 1));
}

static void names(void **state)
{
    (void)state;
    const char *logdir = lkt_scratch_folder("options_names");
    REFUSED("CheckpointCallback: loader \"train\" reports no metric \"los\"; did you mean \"loss\"?",
            .valid_metric = "los", .logdir = logdir);
    REFUSED("valid_metric: loader \"valid\" reports no metric \"acuracy01\"", .valid_metric = "acuracy01",
            .valid_loader = "valid");
    REFUSED_CALLBACK("EarlyStoppingCallback: there is no loader named \"vald\"; did you mean \"valid\"?",
                     lk_early_stopping_callback(.patience = 2, .loader_key = "vald"));
    REFUSED_CALLBACK("EarlyStoppingCallback: loader \"valid\" reports no metric \"lss\"",
                     lk_early_stopping_callback(.patience = 2, .loader_key = "valid", .metric_key = "lss"));
    REFUSED_CALLBACK("SchedulerCallback: loader \"valid\" reports no metric \"f1/_macro\"",
                     lk_scheduler_callback(.loader_key = "valid", .metric_key = "f1/_macro"),
                     .scheduler = lk_reduce_lr_on_plateau());
    REFUSED_CALLBACK("PeriodicLoaderCallback: there is no loader named \"nope\"",
                     lk_periodic_loader_callback({"nope", 3}));
    REFUSED_CALLBACK("SchedulerCallback: the run has no scheduler", lk_scheduler_callback());
}

/* Names that a declared callback does report, whatever the number of classes. */
static void names_that_are_reported(void **state)
{
    (void)state;
    static const char *const metrics[] = {"loss", "loss/mean", "accuracy01", "f1/_macro",
                                          "precision/class_01"};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
        lk_runner *runner = lk_supervised_runner();
        lkt_ok(lk_train(
            runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
            .optimizer = lk_sgd(.lr = 0.1), .loaders = lk_loaders({"train", loader()}, {"valid", loader()}),
            .callbacks =
                lk_callbacks(lk_accuracy_callback(),
                             lk_precision_recall_f1_support_callback(.compute_per_class_metrics = true)),
            .valid_loader = "valid", .valid_metric = metrics[i],
            .logdir = lkt_scratch_folder("options_reported")));
        lk_runner_free(runner);
    }
}

/* Your own callback may report anything: the first loader's end shows it, not the whole epoch's. */
static void names_that_somebody_may_report(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    batches_seen = 0;
    assert_int_equal(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                              .optimizer = lk_sgd(.lr = 0.1),
                              .loaders = lk_loaders({"train", loader()}, {"valid", loader()}),
                              .callbacks = lk_callbacks(lk_on(batch_end, count_batch, NULL)),
                              .valid_metric = "mine"),
                     LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), "valid_metric: loader \"train\" reports no metric \"mine\"");
    assert_int_equal(batches_seen, 3);
    lk_runner_free(runner);
}

typedef struct watched {
    const char *loader, *metric;
    lk_callback *callback; /* declares nothing */
    const char *sentence;
    int batches; /* that are seen before it is refused */
} watched;

static void expect_unreported(watched w)
{
    lk_runner *runner = lk_supervised_runner();
    batches_seen = 0;
    assert_int_equal(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                              .optimizer = lk_sgd(.lr = 0.1),
                              .loaders = lk_loaders({"train", loader()}, {"valid", loader()}),
                              .callbacks = lk_callbacks(counter(), w.callback), .valid_loader = w.loader,
                              .valid_metric = w.metric),
                     LK_ERR_NOT_FOUND);
    lkt_contains(lk_error(), w.sentence);
    assert_int_equal(batches_seen, w.batches);
    lk_runner_free(runner);
}

static lk_status look(lk_callback *callback, lk_runner *runner)
{
    (void)callback, (void)runner;
    return LK_OK;
}

/* A callback that declares nothing does not hide a name that it cannot report, or that is plainly misspelt.
 */
static void names_that_nobody_can_report(void **state)
{
    (void)state;
    const char *none = "valid_metric: loader \"valid\" reports no metric \"mine\"";
    expect_unreported((watched){"valid", "mine", lk_on(step, look, NULL), none, 0});
    expect_unreported((watched){"valid", "mine", lk_on(backward, look, NULL), none, 0});
    expect_unreported((watched){"valid", "mine", lk_on(epoch_start, look, NULL), none, 0});
    expect_unreported((watched){"valid", "mine", lk_on(epoch_end, look, NULL), none, 0});
    expect_unreported((watched){"valid", "mine", lk_on(loader_end, look, NULL), none, 6});
    expect_unreported((watched){"train", "mine", lk_on(step, look, NULL),
                                "valid_metric: loader \"train\" reports no metric", 3});
    expect_unreported(
        (watched){"train", "acuracy", lk_on(step, look, NULL), "did you mean \"accuracy\"?", 0});
    expect_unreported(
        (watched){"valid", "loss/maen", lk_on(loader_end, look, NULL), "did you mean \"loss/mean\"?", 0});
    expect_unreported((watched){"valid", "loss/meen", lk_on(loader_end, look, NULL),
                                "needs lk_runner_declare_metric, or a name that is less like it", 0});
}

static lk_status report_name(lk_callback *callback, lk_runner *runner)
{
    return lk_metrics_set(runner->loader_metrics, callback->context, 1);
}

static lk_status report_step(lk_callback *callback, lk_runner *runner)
{
    return lk_metrics_set(runner->batch_metrics, callback->context, 1);
}

/* Names that are near to known ones, as people name siblings: a callback of the user's own reports them. */
static void names_that_are_like_others(void **state)
{
    (void)state;
    static const char *const metrics[] = {"gloss", "lossy", "loss_b", "losses", "loss/max", "rmse", "Loss"};
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        for (int k = 0; k < 2; k++) {
            lk_runner *runner = lk_supervised_runner();
            lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                            .optimizer = lk_sgd(.lr = 0.1), .loaders = lk_loaders({"train", loader()}),
                            .callbacks = lk_callbacks(k ? lk_on(loader_end, report_name, (void *)metrics[i])
                                                        : lk_on(step, report_step, (void *)metrics[i])),
                            .valid_metric = metrics[i]));
            lk_runner_free(runner);
        }
}

static void a_run_without_an_optimizer(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    assert_int_equal(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                              .optimizer = lk_sgd(), .loaders = lk_loaders({"train", loader()})),
                     LK_ERR_INVALID);
    lkt_contains(lk_error(), "there is no optimizer to train with on loader \"train\"");
    lkt_contains(lk_error(), "SGD: lr is required");
    assert_int_equal(lk_train(runner, .model = lkt_linear_model(), .optimizer = lk_sgd(.lr = 1),
                              .loaders = lk_loaders({"train", loader()})),
                     LK_OK); /* with the runner's criterion */
    lk_runner_free(runner);
    runner = lk_supervised_runner();
    assert_int_equal(lk_train(runner, .model = lkt_linear_model(), .optimizer = lk_sgd(.lr = 1),
                              .loaders = lk_loaders({"train", loader()})),
                     LK_ERR_INVALID);
    lkt_contains(lk_error(), "there is no criterion to train with");
    lk_runner_free(runner);
    runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .loaders = lk_loaders({"valid", loader()})));
    assert_true(lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss") > 0);
    lk_runner_free(runner);
}

/* ---- A run that diverges ---- */

static char said[512];

static void hear(const char *level, const char *line, void *context)
{
    (void)context;
    if (strcmp(level, "warning") == 0) snprintf(said, sizeof said, "%s", line);
}

static void a_run_that_diverges_says_so(void **state)
{
    (void)state;
    for (int diverges = 0; diverges < 2; diverges++) {
        said[0] = 0;
        lk_runner *runner = lk_supervised_runner();
        lk_set_log_sink(hear, NULL);
        lk_status status = lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                                    .optimizer = lk_sgd(.lr = diverges ? 1e20 : 0.1), .num_epochs = 2,
                                    .loaders = lk_loaders({"train", loader()}));
        lk_set_log_sink(NULL, NULL);
        lkt_ok(status);
        if (diverges)
            lkt_contains(said, "the training diverges; lr is 1e+20");
        else
            assert_string_equal(said, "");
        lk_runner_free(runner);
    }
}

/* ---- Constructors ---- */

static void constructors(void **state)
{
    (void)state;
    assert_null(lk_early_stopping_callback(.patience = 1, .min_delta = -1));
    assert_null(lk_early_stopping_callback(.patience = 1, .min_delta = NAN));
    assert_null(lk_early_stopping_callback(.patience = 1, .minimize = true, .maximize = true));
    assert_null(lk_checkpoint_callback(.save_every_batches = -1));
    assert_null(lk_checkpoint_callback(.minimize = true, .maximize = true));
    assert_null(lk_checkpoint_callback(.no_save_best = true, .load_best_on_end = true));
    assert_null(lk_lr_finder_callback(.final_lr = NAN));
    assert_null(lk_ema_callback(.decay = NAN));
    assert_null(lk_l2_weight_decay_callback(INFINITY));
    assert_null(lk_batch_overfit_callback({"train", INFINITY}));
    assert_null(lk_backward_callback(.clip_norm = NAN));
    assert_null(lk_adam(.lr = NAN));
    assert_null(lk_sgd(.lr = INFINITY));
    assert_null(lk_adagrad(.lr_decay = -1));
    assert_null(lk_adagrad(.initial_accumulator_value = -1));
    assert_null(lk_one_cycle_lr(1, .total_steps = 5, .div_factor = -2));
    assert_null(lk_reduce_lr_on_plateau(.threshold = NAN));
    assert_null(lk_metric_aggregation_callback(.metric_key = "x", .metrics = (const char *const[]){"a", NULL},
                                               .weights = (const double[]){NAN}, .mode = "weighted_sum"));
    assert_null(lk_metric_aggregation_callback(.metric_key = "x", .metrics = (const char *const[]){"a", NULL},
                                               .weights = (const double[]){1}));
    lkt_contains(lk_error(), "write weighted_mean");
    assert_null(lk_conv2d(3, 4, 3, .output_padding = 1));
    assert_null(lk_avg_pool1d(2, .divisor_override = 3));
    assert_null(lk_batch_norm1d(3, .eps = -1));
    assert_null(lk_layer_norm(3, .eps = NAN));
    assert_null(lk_group_norm(2, 4, .eps = -1));
    assert_null(lk_leaky_relu(.negative_slope = NAN));
    assert_null(lk_softplus(.threshold = NAN));
    assert_null(lk_upsample(.scale_factor = NAN));
    assert_null(lk_upsample(.scale_factor = 2, .align_corners = true));
    lk_module *model = lk_linear(2, 1);
    lk_optimizer *grouped = lk_sgd(.lr = 1, .groups = lk_param_groups({.prefix = "nothing."}));
    assert_null(lk_step(.model = model, .optimizer = grouped));
    lkt_contains(lk_error(),
                 "SGD: parameter group 0 (prefix \"nothing.\") has none of the model's parameters");
    lk_optimizer_free(grouped);
    assert_null(lk_step(.model = model, .accumulation_steps = -1));
    lkt_contains(lk_error(), "accumulation_steps must not be negative");
    assert_null(lk_step(.model = model, .clip_norm = NAN));
    assert_null(lk_step(.model = model, .precision = LK_I64));
    lkt_contains(lk_error(), "precision is f32, bf16 or f16");
    lk_module_free(model);
}

static void test_what_is_shown(void **state)
{
    (void)state;
    REFUSED("log_every: expected 0 for the default, or a number above it", .log_every = -1);
    REFUSED("show: expected one of lk_show", .show = (lk_show)7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shown),
        cmocka_unit_test(numbers),
        cmocka_unit_test(checkpoints),
        cmocka_unit_test(schedules),
        cmocka_unit_test(names),
        cmocka_unit_test(names_that_are_reported),
        cmocka_unit_test(names_that_somebody_may_report),
        cmocka_unit_test(names_that_nobody_can_report),
        cmocka_unit_test(names_that_are_like_others),
        cmocka_unit_test(a_run_without_an_optimizer),
        cmocka_unit_test(a_run_that_diverges_says_so),
        cmocka_unit_test(constructors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
