/* A trained model on other data: its metrics, its predictions; and what lk_train refuses. */
#include "case.h"

#include <unistd.h>
#include "engines.h"

#include "optim/optimizer.h"
#include "run/run.h"

static lk_runner *trained(const char *logdir)
{
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_deep_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(.lr = 0.02), .scheduler = lk_step_lr(1, .gamma = 0.5),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)},
                                          {"valid", lk_loader(lkt_points(44, 2), .batch_size = 8)}),
                    .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = 3)), .num_epochs = 3,
                    .logdir = logdir, .valid_loader = "valid"));
    return runner;
}

static void evaluation_gives_what_the_run_gave(void **state)
{
    (void)state;
    lk_runner *runner = trained(NULL);
    const lk_metrics *valid = lk_runner_loader_metrics(runner, "valid");
    double loss = lk_metrics_get(valid, "loss"), accuracy = lk_metrics_get(valid, "accuracy01");
    double lr = lk_optimizer_lr(runner->optimizer, 0);
    char before[65];
    strcpy(before, lkt_hash(runner->model));
    for (int i = 0; i < 2; i++) {
        lkt_ok(lk_evaluate_loader(runner, lk_loader(lkt_points(44, 2), .batch_size = 8),
                                  .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = 3))));
        lkt_close(lk_metrics_get(runner->loader_metrics, "loss"), loss, 0);
        lkt_close(lk_metrics_get(runner->loader_metrics, "accuracy01"), accuracy, 0);
    }
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), lr, 0); /* nothing has moved */
    assert_string_equal(lkt_hash(runner->model), before);
    lk_runner_free(runner);
}

static void evaluation_of_a_file(void **state)
{
    (void)state;
    char logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_evaluate"));
    lk_runner_free(trained(logdir));
    double loss = lkt_csv(logdir, "valid", 3, "loss");
    static const char *const files[] = {"model.last.safetensors", "runner.last.safetensors"};
    for (int i = 0; i < 2; i++) {
        lk_runner *fresh = lk_supervised_runner();
        lkt_ok(lk_evaluate_loader(fresh, lk_loader(lkt_points(44, 2), .batch_size = 11),
                                  .model = lkt_deep_model(), .criterion = lk_cross_entropy_loss(),
                                  .resume = lkt_path(logdir, "checkpoints/%s", files[i])));
        lkt_close(lk_metrics_get(fresh->loader_metrics, "loss"), loss, 1e-6);
        lk_runner_free(fresh);
    }
    lk_runner *other = lk_supervised_runner();
    assert_int_not_equal(lk_evaluate_loader(other, lk_loader(lkt_points(8, 2)), .model = lkt_linear_model(),
                                            .resume = lkt_path(logdir, "checkpoints/%s", files[0])),
                         LK_OK);
    lkt_contains(lk_error(), "model.last.safetensors");
    lk_runner_free(other);
}

typedef struct taken {
    double rows[44][LKT_CLASSES];
    int count;
} taken;

static lk_status take(const lk_tensor *output, const lk_batch *batch, void *context)
{
    taken *taken = context;
    assert_int_equal(output->shape.dim[0], batch->count);
    for (int64_t i = 0; i < batch->count; i++, taken->count++)
        for (int k = 0; k < LKT_CLASSES; k++)
            taken->rows[taken->count][k] = lk_tensor_get(output, i * LKT_CLASSES + k);
    return LK_OK;
}

static lk_status refuse(const lk_tensor *output, const lk_batch *batch, void *context)
{
    (void)output;
    (void)batch;
    (void)context;
    return LK_ERR_STOPPED;
}

static void predictions_come_in_order(void **state)
{
    (void)state;
    taken eights = {0}, all = {0};
    lk_runner *runner = trained(NULL);
    lkt_ok(lk_predict_loader(runner, lk_loader(lkt_points(44, 2), .batch_size = 8, .num_workers = 2), take,
                             &eights));
    lkt_ok(lk_predict_loader(runner, lk_loader(lkt_points(44, 2), .batch_size = 44), take, &all));
    assert_int_equal(eights.count, 44);
    for (int i = 0; i < 44; i++)
        for (int k = 0; k < LKT_CLASSES; k++) lkt_close(eights.rows[i][k], all.rows[i][k], 1e-5);
    assert_int_equal(lk_predict_loader(runner, lk_loader(lkt_points(44, 2)), refuse, NULL), LK_ERR_STOPPED);
    /* One batch by hand. */
    lk_dataset *data = lkt_points(44, 2);
    lk_loader *loader = lk_loader(data, .batch_size = 5);
    lk_batch *batch;
    lkt_ok(lk_loader_begin(loader, NULL, NULL));
    lkt_ok(lk_loader_next(loader, &batch));
    lk_tensor *output = lk_predict_batch(runner, lk_batch_get(batch, "features"));
    lkt_not_null(output);
    for (int i = 0; i < 5 * LKT_CLASSES; i++)
        lkt_close(lk_tensor_get(output, i), all.rows[i / LKT_CLASSES][i % LKT_CLASSES], 1e-5);
    lk_tensor_free(output);
    lk_loader_free(loader);
    lk_runner_free(runner);
}

static void a_model_may_predict_before_it_is_trained(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(2, LKT_FEATURES), 0.5);
    assert_null(lk_predict_batch(runner, x));
    lkt_contains(lk_error(), "no model");
    taken taken = {0};
    lkt_ok(lk_predict_loader(runner, lk_loader(lkt_points(44, 2), .batch_size = 8), take, &taken,
                             .model = lkt_linear_model()));
    lkt_ok(lk_train(runner, .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(96, 1), .batch_size = 8)})));
    lk_tensor *output = lk_predict_batch(runner, x);
    lkt_not_null(output);
    lk_tensor_free(output);
    lk_tensor_free(x);
    lk_runner_free(runner);
}

/* ---- What is refused, in one line ---- */

static void refused(lk_train_options options, lk_status expected, const char *fragment)
{
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train_with(runner, &options);
    if (status != expected) fail_msg("status %d, expected %d: %s", status, expected, lk_error());
    lkt_contains(lk_error(), fragment);
    assert_null(strchr(lk_error(), '\n'));
    lk_runner_free(runner);
}

/* With what the runner has. */
static lk_train_options more(void)
{
    static lk_named_loader items[1];
    items[0] = (lk_named_loader){"train", lk_loader(lkt_points(16, 1), .batch_size = 8)};
    return *LK_OPTIONS(lk_train_options, .loaders = {items, 1});
}

static lk_train_options usual(void)
{
    lk_train_options options = more();
    options.model = lkt_linear_model();
    options.criterion = lk_cross_entropy_loss();
    options.optimizer = lk_adam();
    return options;
}

static int make_nothing(lk_named_dataset *out, int capacity, void *context)
{
    (void)out;
    (void)capacity;
    (void)context;
    return -1;
}

static void wrong_arguments(void **state)
{
    (void)state;
    lk_train_options options = usual();
    options.valid_loader = "test";
    refused(options, LK_ERR_NOT_FOUND, "no loader named \"test\"");
    options = usual();
    options.precision = "fp8";
    refused(options, LK_ERR_INVALID, "fp8");
    options = usual();
    options.device = "abacus";
    refused(options, LK_ERR_CONFIG, "abacus");
    options = usual();
    options.autoresume = "yesterday";
    options.logdir = lkt_scratch_folder("train_refused");
    refused(options, LK_ERR_INVALID, "yesterday");
    refused(*LK_OPTIONS(lk_train_options, .model = lkt_linear_model(), .optimizer = lk_adam()),
            LK_ERR_INVALID, "no loaders");
    options = usual();
    lk_module_free(options.model);
    options.model = lk_sequential(lk_linear(LKT_FEATURES, 3), lk_dropout(7));
    refused(options, LK_ERR_INVALID, "ropout");
    options = usual();
    lk_module_free(options.model);
    options.model = lk_sequential(lk_linear(LKT_FEATURES + 1, 3));
    refused(options, LK_ERR_SHAPE, "layer 0 (Linear)");
    options = usual();
    lk_loader_free(options.loaders.items[0].loader);
    options.loaders = (lk_loader_list){0};
    options.datasets.get_datasets_fn = make_nothing;
    lk_runner *runner = lk_supervised_runner();
    assert_int_not_equal(lk_train_with(runner, &options), LK_OK);
    lk_runner_free(runner);
}

static void two_loaders_of_one_name(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(lk_train(runner, .model = lkt_linear_model(),
                       .loaders = lk_loaders({"train", lk_loader(lkt_points(16, 1))},
                                             {"train", lk_loader(lkt_points(16, 1))}, {"valid", NULL}),
                       .callbacks = lk_callbacks(lk_timer_callback(), NULL),
                       .datasets = {.datasets = lk_datasets({"test", lkt_points(4, 1)})}),
              LK_ERR_INVALID, "two loaders named \"train\"");
    lk_runner_free(runner);
}

/* Keys and paths that cannot be kept are refused before anything is trained or written. */
static void names_that_cannot_be_kept(void **state)
{
    (void)state;
    static const char *const keys[] = {"a/b", "../../../escaped", ".", "..", "", NULL, "caf\xe9"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        lk_runner *runner = lk_supervised_runner();
        const char *folder = lkt_scratch_folder("loader_keys");
        lkt_fails(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                           .optimizer = lk_adam(), .logdir = folder,
                           .loaders = lk_loaders({keys[i], lk_loader(lkt_points(16, 1))})),
                  LK_ERR_INVALID, keys[i] && *keys[i] ? "its name is" : "a loader needs a name");
        assert_int_not_equal(rmdir(folder), -1); /* it is empty */
        lk_runner_free(runner);
    }
    lk_runner *runner = lk_supervised_runner();
    lkt_fails(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                       .optimizer = lk_adam(), .logdir = "caf\xe9",
                       .loaders = lk_loaders({"train", lk_loader(lkt_points(16, 1))})),
              LK_ERR_INVALID, "logdir: the path \"caf\xe9\" is not UTF-8");
    lkt_fails(lk_runner_add_model(runner, "caf\xe9", lkt_linear_model()), LK_ERR_INVALID, "is not UTF-8");
    lk_runner_free(runner);
    assert_null(lk_confusion_matrix_callback(.num_classes = 2, .prefix = "../../"));
    lkt_contains(lk_error(), "leads out of the logdir");
    lk_callback_free(lk_confusion_matrix_callback(.num_classes = 2, .prefix = "head/.."));
}

static void datasets_instead_of_loaders(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(
        runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(),
        .datasets = {.datasets = lk_datasets({"train", lkt_points(20, 1)}, {"valid", lkt_points(8, 2)}),
                     .batch_size = 8,
                     .drop_last = true},
        .valid_loader = "valid"));
    assert_int_equal(runner->batch_step, 2);
    lk_runner_free(runner);
}

/* The engine is opened with what the run asks for; one that rounds otherwise is not kept for the next run,
 * and an evaluation takes the one that is there. */
static void tf32_reaches_the_engine(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_train_options options = usual();
    options.tf32 = true;
    lkt_ok(lk_train_with(runner, &options));
    assert_true(runner->run->engine.options.allow_tf32);
    lkt_ok(lk_evaluate_loader(runner, lk_loader(lkt_points(16, 1), .batch_size = 8)));
    assert_true(runner->run->engine.options.allow_tf32);
    lk_train_options again = more();
    lkt_ok(lk_train_with(runner, &again));
    assert_false(runner->run->engine.options.allow_tf32);
    lk_runner_free(runner);
}

/* The device of an evaluation is the one it names; what is trained on afterwards has learned all the same. */
static void devices_are_those_of_the_call(void **state)
{
    (void)state;
    const char *first = gpu_is_asked_for() ? "cuda" : "cpu";
    lk_runner *moved = lk_supervised_runner(), *stayed = lk_supervised_runner();
    lk_runner *const runners[] = {moved, stayed};
    char hash[65];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            lk_manual_seed(7);
            lk_train_options options = i ? more() : usual();
            options.device = first;
            lkt_ok(lk_train_with(runners[k], &options));
            assert_string_equal(lk_engine_name(runners[k]->engine), first);
        }
        lkt_ok(lk_evaluate_loader(stayed, lk_loader(lkt_points(16, 1), .batch_size = 8)));
        assert_string_equal(lk_engine_name(stayed->engine), first);
        lkt_ok(lk_evaluate_loader(moved, lk_loader(lkt_points(16, 1), .batch_size = 8), .device = "ref"));
        assert_string_equal(lk_engine_name(moved->engine), "ref");
        lkt_close(lk_metrics_get(moved->loader_metrics, "loss"),
                  lk_metrics_get(stayed->loader_metrics, "loss"), 1e-5);
        strcpy(hash, lkt_hash(moved->model));
        assert_string_equal(hash, lkt_hash(stayed->model));
    }
    lk_runner_free(moved);
    lk_runner_free(stayed);
}

/* What the optimizer has learned outlives the step that holds it: another criterion's evaluation, ranks that
 * come and go. The learning rate is the caller's meanwhile. */
static void optimizers_go_on(void **state)
{
    (void)state;
    lk_runner *disturbed = lk_supervised_runner(), *other = lk_supervised_runner();
    lk_runner *const runners[] = {disturbed, other};
    char hash[65];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 2; k++) {
            lk_manual_seed(7);
            lk_train_options options = i ? more() : usual();
            lkt_ok(lk_train_with(runners[k], &options));
            lk_optimizer_set_lr(runners[k]->optimizer, 0, 0.03);
        }
        lkt_ok(lk_evaluate_loader(disturbed, lk_loader(lkt_points(16, 1), .batch_size = 8),
                                  .criterion = lk_cross_entropy_loss(.label_smoothing = 0.1)));
        lkt_ok(lk_evaluate_loader(disturbed, lk_loader(lkt_points(16, 1), .batch_size = 8),
                                  .criterion = lk_cross_entropy_loss()));
    }
    strcpy(hash, lkt_hash(disturbed->model));
    assert_string_equal(hash, lkt_hash(other->model));
    int64_t updates = disturbed->optimizer->groups[0].hyper.step;
    for (int i = 1; i < 3; i++) {
        lk_train_options options = more();
        options.nproc = 2;
        options.ddp = true;
        options.device = "cpu";
        lkt_ok(lk_train_with(disturbed, &options));
        assert_int_equal(disturbed->optimizer->groups[0].hyper.step, updates + i);
        lkt_close(lk_optimizer_lr(disturbed->optimizer, 0), 0.03, 0);
    }
    lk_runner_free(disturbed);
    lk_runner_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation_gives_what_the_run_gave),
        cmocka_unit_test(evaluation_of_a_file),
        cmocka_unit_test(predictions_come_in_order),
        cmocka_unit_test(a_model_may_predict_before_it_is_trained),
        cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(two_loaders_of_one_name),
        cmocka_unit_test(names_that_cannot_be_kept),
        cmocka_unit_test(datasets_instead_of_loaders),
        cmocka_unit_test(tf32_reaches_the_engine),
        cmocka_unit_test(devices_are_those_of_the_call),
        cmocka_unit_test(optimizers_go_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
