/* Between two epochs a run holds more than weights: where each loader draws its next pass from, and what each
 * rank has for itself. A run resumed there, with ranks or without, is the run that was not stopped. */
#include "case.h"

#include "base/status.h"
#include "callbacks/callbacks.h"
#include "resume/metric_state.h"
#include "step/step.h"

#include <math.h>
#include <signal.h>

enum { SAMPLES = 24, EPOCHS = 4 };

typedef enum order { SHUFFLED, SEEDED, USERS_GENERATOR, MINI_EPOCHS, DEALT_MINI_EPOCHS } order;

typedef struct plan {
    order order;
    int nproc, accumulation_steps;
    bool compress, overfit, timeit, stopped_in_train, stopped_in_valid;
    const char *logdir, *autoresume;
    int epochs;
    lk_callback *further;
    char hash[LK_HASH_LENGTH + 1];
} plan;

static lk_loader *train_loader(order order, lk_generator *generator)
{
    lk_dataset *points = lkt_points(SAMPLES, 1);
    switch (order) {
    case SEEDED: return lk_loader(points, .batch_size = 4, .shuffle = true, .seed = 5);
    case USERS_GENERATOR: return lk_loader(points, .batch_size = 4, .shuffle = true, .generator = generator);
    case MINI_EPOCHS: return lk_loader(points, .batch_size = 4, .sampler = lk_mini_epoch_sampler(SAMPLES, 8));
    case DEALT_MINI_EPOCHS:
        return lk_loader(points, .batch_size = 4,
                         .sampler = lk_distributed_sampler_wrapper(
                             lk_mini_epoch_sampler(SAMPLES, 9, .shuffle = "per_epoch"), .no_shuffle = true));
    case SHUFFLED: break;
    }
    return lk_loader(points, .batch_size = 4, .shuffle = true);
}

static lk_status stop(lk_callback *callback, lk_runner *runner)
{
    const plan *plan = callback->context;
    bool here = runner->is_train_loader ? plan->stopped_in_train : plan->stopped_in_valid;
    if (here && runner->epoch_step == 2 && runner->loader_batch_step == 1) raise(SIGTERM);
    return LK_OK;
}

static lk_status train(plan *plan)
{
    lk_runner *runner = lk_supervised_runner();
    lk_generator generator;
    lk_generator_seed(&generator, 3);
    lk_module *model = lkt_linear_model();
    lk_callback *callbacks[] = {lk_optimizer_callback(.accumulation_steps = plan->accumulation_steps),
                                lk_early_stopping_callback(.patience = 50), lk_on(batch_end, stop, plan),
                                lk_checkpoint_callback(.topk = 2),
                                plan->overfit ? lk_batch_overfit_callback({"train", 1}) : plan->further};
    lk_status status = lk_train(
        runner, .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.1),
        .loaders = lk_loaders({"train", train_loader(plan->order, &generator)},
                              {"valid", lk_loader(lkt_points(9, 2), .batch_size = 4)}),
        .callbacks = {callbacks, callbacks[4] ? 5 : 4}, .num_epochs = plan->epochs, .seed = 11,
        .logdir = plan->logdir, .valid_loader = "valid", .autoresume = plan->autoresume, .nproc = plan->nproc,
        .timeit = plan->timeit, .compress_gradients = plan->compress, .thread_count = 1);
    snprintf(plan->hash, sizeof plan->hash, "%s", lkt_hash(runner->model));
    lk_runner_free(runner);
    return status;
}

static char folder[1024];

static const char *fresh(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
    return folder;
}

/* Runs straight through, and in two pieces. */
static void expect_the_same(plan first)
{
    plan straight = first, second = first;
    straight.stopped_in_train = straight.stopped_in_valid = false;
    straight.epochs = EPOCHS;
    straight.logdir = fresh("train_between_straight");
    lkt_ok(train(&straight));
    bool stopped = first.stopped_in_train || first.stopped_in_valid;
    first.epochs = stopped ? EPOCHS : 1;
    first.logdir = second.logdir = fresh("train_between_pieces");
    if (stopped)
        lkt_fails(train(&first), LK_ERR_STOPPED, "epoch 2");
    else
        lkt_ok(train(&first));
    second.stopped_in_train = second.stopped_in_valid = false;
    second.epochs = EPOCHS;
    second.autoresume = "last";
    lkt_ok(train(&second));
    assert_string_equal(second.hash, straight.hash);
}

static void loaders_draw_on(void **state)
{
    (void)state;
    for (order order = SHUFFLED; order <= DEALT_MINI_EPOCHS; order++) {
        expect_the_same((plan){.order = order});
        expect_the_same((plan){.order = order, .stopped_in_train = true});
        expect_the_same((plan){.order = order, .stopped_in_valid = true});
        expect_the_same((plan){.order = order, .nproc = 2});
    }
}

/* Three batches a rank and epoch: one gradient is left over, each rank's own. */
static void each_rank_keeps_its_gradients(void **state)
{
    (void)state;
    expect_the_same((plan){.nproc = 2, .accumulation_steps = 2});
}

static void each_rank_keeps_what_compression_left_out(void **state)
{
    (void)state;
    expect_the_same((plan){.nproc = 2, .compress = true});
    expect_the_same((plan){.nproc = 2, .compress = true, .accumulation_steps = 2});
}

static void each_rank_repeats_its_own_first_pass(void **state)
{
    (void)state;
    expect_the_same((plan){.nproc = 2, .overfit = true});
}

/* ---- Another number of ranks ---- */

static lk_tensor *sums_of(const lk_runner *runner)
{
    const lki_flat *flat = &runner->step->flat;
    assert_non_null(flat->sums);
    assert_int_equal(runner->step->update.accumulated, 1);
    return lk_tensor_from(flat->dtype, LK_SHAPE(flat->count), lki_buffer_data(flat->sums));
}

/* The ranks are processes of their own: a file each. */
static lk_status write_sums(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    lk_state_dict *sums = lk_state_dict_create();
    lkt_ok(lk_state_dict_put(sums, "sums", sums_of(runner)));
    lkt_ok(lk_save_safetensors(lkt_path(folder, "sums.%d", runner->rank), sums));
    lk_state_dict_free(sums);
    return LK_OK;
}

static lk_status expect_mean_sums(lk_callback *callback, lk_runner *runner)
{
    int *looks = callback->context;
    if ((*looks)++) return LK_OK;
    lk_tensor *sums = sums_of(runner);
    lk_state_dict *parts[2];
    for (int i = 0; i < 2; i++) lkt_not_null(parts[i] = lk_load_safetensors(lkt_path(folder, "sums.%d", i)));
    double apart = 0;
    for (int64_t i = 0; i < lk_tensor_count(sums); i++) {
        double one = lk_tensor_get(lk_state_dict_get(parts[0], "sums"), i),
               two = lk_tensor_get(lk_state_dict_get(parts[1], "sums"), i);
        assert_float_equal(lk_tensor_get(sums, i), (one + two) / 2, 1e-6);
        apart += one > two ? one - two : two - one;
    }
    assert_true(apart > 1e-3);
    for (int i = 0; i < 2; i++) lk_state_dict_free(parts[i]);
    lk_tensor_free(sums);
    return LK_OK;
}

static void fewer_ranks_take_the_mean(void **state)
{
    (void)state;
    int looks = 0;
    plan plan = {.nproc = 2, .accumulation_steps = 2, .compress = true, .epochs = 1};
    plan.logdir = fresh("train_between_ranks");
    plan.further = lk_on(epoch_end, write_sums, NULL);
    lkt_ok(train(&plan));
    plan.nproc = 1;
    plan.epochs = 2;
    plan.autoresume = "last";
    plan.further = lk_on(epoch_start, expect_mean_sums, &looks);
    lkt_ok(train(&plan));
    assert_int_equal(looks, 1);
}

static void an_overfit_run_of_other_ranks_draws_anew(void **state)
{
    (void)state;
    plan plan = {.nproc = 2, .overfit = true, .epochs = 1, .logdir = fresh("train_between_overfit")};
    lkt_ok(train(&plan));
    plan.nproc = 3;
    plan.epochs = 2;
    plan.autoresume = "last";
    lkt_ok(train(&plan));
}

/* ---- Other callbacks ---- */

static void a_timer_may_be_added(void **state)
{
    (void)state;
    plan straight = {.epochs = 2, .logdir = fresh("train_between_straight")};
    lkt_ok(train(&straight));
    plan plan = {.epochs = 1, .logdir = fresh("train_between_timer")};
    lkt_ok(train(&plan));
    plan.timeit = true;
    plan.epochs = 2;
    plan.autoresume = "last";
    lkt_ok(train(&plan));
    assert_string_equal(plan.hash, straight.hash);
}

/* Checkpoints that count callbacks among all of them and know nothing of loaders. */
static const char *name_of_old(const char *name, char renamed[200])
{
    static const char *const names[][2] = {{"callback.Criterion.0.", "callback.0.Criterion."},
                                           {"callback.EarlyStopping.0.", "callback.3.EarlyStopping."}};
    if (strncmp(name, "loader.", 7) == 0) return NULL;
    if (strncmp(name, "callback.", 9) != 0) return name;
    for (int i = 0; i < 2; i++) {
        size_t length = strlen(names[i][0]);
        if (strncmp(name, names[i][0], length) != 0) continue;
        snprintf(renamed, 200, "%s%s", names[i][1], name + length);
        return renamed;
    }
    fail_msg("%s is not known of old", name);
    return NULL;
}

static void rewrite_as_of_old(const char *path)
{
    lk_state_dict *state = lk_load_safetensors(path), *old = lk_state_dict_create();
    lkt_not_null(state);
    for (int64_t i = 0; i < lk_state_dict_count(state); i++) {
        const lk_tensor *tensor = lk_state_dict_tensor(state, i);
        char renamed[200];
        const char *name = name_of_old(lk_state_dict_name(state, i), renamed);
        if (name)
            lkt_ok(lk_state_dict_put(old, name, lk_tensor_from(tensor->dtype, tensor->shape, tensor->data)));
    }
    for (int64_t i = 0; i < lk_state_dict_string_count(state); i++) {
        const char *name = lk_state_dict_string_name(state, i);
        lkt_ok(lk_state_dict_put_string(old, name, lk_state_dict_get_string(state, name)));
    }
    lkt_ok(lk_save_safetensors(path, old));
    lk_state_dict_free(state);
    lk_state_dict_free(old);
}

static void older_checkpoints_are_read(void **state)
{
    (void)state;
    plan straight = {.epochs = 2, .logdir = fresh("train_between_straight")};
    lkt_ok(train(&straight));
    plan plan = {.epochs = 1, .logdir = fresh("train_between_old")};
    lkt_ok(train(&plan));
    rewrite_as_of_old(lkt_path(folder, "checkpoints/runner.last.safetensors"));
    plan.epochs = 2;
    plan.autoresume = "last";
    lkt_ok(train(&plan));
    assert_string_equal(plan.hash, straight.hash);
}

static void train_with_metrics(const char *logdir, int epochs, const char *autoresume)
{
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 4)},
                                          {"valid", lk_loader(lkt_points(9, 2), .batch_size = 4)}),
                    .callbacks = lk_callbacks(
                        lk_accuracy_callback(.num_classes = LKT_CLASSES),
                        lk_precision_recall_f1_support_callback(.num_classes = LKT_CLASSES,
                                                                .compute_per_class_metrics = true),
                        lk_auc_callback(.num_classes = LKT_CLASSES, .compute_per_class_metrics = true),
                        lk_confusion_matrix_callback(.num_classes = LKT_CLASSES)),
                    .num_epochs = epochs, .logdir = logdir, .autoresume = autoresume, .thread_count = 1));
    lk_runner_free(runner);
}

/* Metrics that know their classes beforehand have them once, also after a checkpoint has told them. */
static void metrics_of_known_classes(void **state)
{
    (void)state;
    static const char *const names[] = {"accuracy01",       "f1/_macro",  "recall/class_01",
                                        "support/class_02", "auc/_micro", "auc/class_00"};
    char straight[1024];
    snprintf(straight, sizeof straight, "%s", lkt_scratch_folder("train_metrics_straight"));
    train_with_metrics(straight, 2, NULL);
    const char *pieces = fresh("train_metrics_pieces");
    train_with_metrics(pieces, 1, NULL);
    train_with_metrics(pieces, 2, "last");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        double expected = lkt_csv(straight, "valid", 2, names[i]);
        assert_false(isnan(expected));
        lkt_close(lkt_csv(pieces, "valid", 2, names[i]), expected, 0);
    }
}

static lk_status train_with_late_accuracy(const char *logdir, int epochs, const char *autoresume)
{
    static const int first_epoch[] = {1, 0};
    lk_runner *runner = lk_supervised_runner();
    lk_status status =
        lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 0.1),
                 .loaders = lk_loaders({"train", lk_loader(lkt_points(SAMPLES, 1), .batch_size = 4)}),
                 .callbacks = lk_callbacks(
                     lk_control_flow_callback(lk_accuracy_callback(), .ignore_epoch_list = first_epoch)),
                 .num_epochs = epochs, .logdir = logdir, .autoresume = autoresume, .thread_count = 1);
    lk_runner_free(runner);
    return status;
}

static void an_accuracy_that_rested_goes_on(void **state)
{
    (void)state;
    const char *logdir = fresh("train_between_rested");
    lkt_ok(train_with_late_accuracy(logdir, 1, NULL));
    lkt_ok(train_with_late_accuracy(logdir, 2, "last"));
    assert_false(isnan(lkt_csv(logdir, "train", 2, "accuracy01")));
}

/* ---- States of metrics ---- */

enum { METRIC_KINDS = 11 };

static lk_metric *metric_of_kind(int kind, int num_classes)
{
    const lk_metric_options options = {LK_SIZE(lk_metric_options), .num_classes = num_classes};
    switch (kind) {
    case 0: return lk_accuracy_metric_with(&options);
    case 1: return lk_multilabel_accuracy_metric(); /* some have no classes */
    case 2: return lk_precision_recall_f1_support_metric_with(&options);
    case 3: return lk_multilabel_precision_recall_f1_support_metric_with(&options);
    case 4: return lk_auc_metric_with(&options);
    case 5: return lk_r2_metric();
    case 6: return lk_mse_metric();
    case 7: return lk_iou_metric_with(&options);
    case 8: return lk_dice_metric_with(&options);
    case 9: return lk_confusion_matrix_metric_with(&options);
    default: return lk_mean_metric("loss");
    }
}

static lk_state_dict *saved_metric(lk_metric *metric)
{
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lki_metric_save(metric, dict, ""));
    lk_metric_free(metric);
    return dict;
}

/* Before the first batch a metric may not know its classes; one that does takes such a state too. */
static void metrics_that_saw_nothing_are_restored(void **state)
{
    (void)state;
    for (int kind = 0; kind < METRIC_KINDS; kind++) {
        lk_state_dict *dict = saved_metric(metric_of_kind(kind, 0));
        for (int num_classes = 0; num_classes <= LKT_CLASSES; num_classes += LKT_CLASSES) {
            lk_metric *metric = metric_of_kind(kind, num_classes),
                      *untouched = metric_of_kind(kind, num_classes);
            lk_metric_values values;
            lkt_ok(lki_metric_restore(metric, dict, ""));
            lkt_ok(lk_metric_compute(metric, &values));
            lk_state_dict *again = saved_metric(metric), *expected = saved_metric(untouched);
            for (int64_t i = 0; i < lk_state_dict_count(expected); i++)
                assert_int_equal(lk_tensor_nbytes(lk_state_dict_tensor(again, i)),
                                 lk_tensor_nbytes(lk_state_dict_tensor(expected, i)));
            lk_state_dict_free(again);
            lk_state_dict_free(expected);
        }
        lk_state_dict_free(dict);
    }
}

static lk_state_dict *metric_state(int64_t classes, int64_t first_nbytes, int64_t second_nbytes)
{
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lk_state_dict_put_i64(dict, "classes", classes));
    lkt_ok(lk_state_dict_put(dict, "part.0", lk_tensor_create(LK_U8, LK_SHAPE(first_nbytes))));
    lkt_ok(lk_state_dict_put(dict, "part.1", lk_tensor_create(LK_U8, LK_SHAPE(second_nbytes))));
    return dict;
}

static void expect_refused(int kind, lk_state_dict *dict)
{
    lk_metric *metric = metric_of_kind(kind, 0);
    lkt_fails(lki_metric_restore(metric, dict, ""), LK_ERR_FORMAT, "the saved state");
    lk_metric_free(metric);
    lk_state_dict_free(dict);
}

static void states_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    enum { ACCURACY = 0, PRECISION = 2, AUC = 4, MSE = 6, IOU = 7, MEAN = 10 };
    expect_refused(ACCURACY, metric_state(3, 7, 0));  /* no whole number of moments */
    expect_refused(ACCURACY, metric_state(4, 24, 0)); /* one mean where two are kept */
    expect_refused(ACCURACY, metric_state(-1, 24, 0));
    expect_refused(MEAN, metric_state(0, 25, 0));
    expect_refused(MSE, metric_state(3, 40, 0));
    expect_refused(MSE, metric_state(0, 40, 0));
    expect_refused(AUC, metric_state(0, 12, 4)); /* scores of no class */
    expect_refused(AUC, metric_state(3, 16, 4));
    expect_refused(AUC, metric_state(3, 24, 4)); /* two samples with one label */
    lk_state_dict *dict = metric_state(0, 0, 8);
    ((int64_t *)lk_state_dict_get(dict, "part.1")->data)[0] = 5; /* batches of no class */
    expect_refused(PRECISION, dict);
    dict = metric_state(0, 0, 8);
    ((int64_t *)lk_state_dict_get(dict, "part.1")->data)[0] = 5;
    expect_refused(IOU, dict);
}

/* ---- Numbers that no run has written ---- */

static lk_state_dict *checkpoint(void)
{
    lk_state_dict *state = lk_load_safetensors(lkt_path(folder, "checkpoints/runner.last.safetensors"));
    lkt_not_null(state);
    return state;
}

static void expect_not_resumed(lk_state_dict *changed, const char *reason)
{
    plan plan = {.order = SEEDED, .epochs = EPOCHS, .logdir = folder, .autoresume = "last"};
    lkt_ok(lk_save_safetensors(lkt_path(folder, "checkpoints/runner.last.safetensors"), changed));
    lk_state_dict_free(changed);
    assert_int_not_equal(train(&plan), LK_OK);
    lkt_contains(lk_error(), reason);
}

static void counters_below_zero_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {
        "runner.epoch_step",         "runner.batch_step", "runner.sample_step",   "runner.loader_batch_step",
        "runner.loader_sample_step", "optimizer.step",    "optimizer.accumulated"};
    plan plan = {
        .order = SEEDED, .epochs = EPOCHS, .stopped_in_train = true, .logdir = fresh("train_between_below")};
    lkt_fails(train(&plan), LK_ERR_STOPPED, "epoch 2");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lk_state_dict *whole = checkpoint(), *changed = checkpoint();
        lkt_ok(lk_state_dict_put_i64(changed, names[i], -3));
        expect_not_resumed(changed, names[i]);
        lkt_ok(lk_save_safetensors(lkt_path(folder, "checkpoints/runner.last.safetensors"), whole));
        lk_state_dict_free(whole);
    }
}

static void put_generator(lk_state_dict *state, const char *name, size_t offset,
                          const lk_generator *generator)
{
    memcpy((char *)lk_state_dict_get(state, name)->data + offset, generator, sizeof *generator);
}

static void generators_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t offset;
    } places[] = {{"generator", 0},
                  {"loader.train", offsetof(lk_loader_state, position)},
                  {"loader", offsetof(lk_loader_state, source)}};
    plan plan = {
        .order = SEEDED, .epochs = EPOCHS, .stopped_in_train = true, .logdir = fresh("train_between_random")};
    lkt_fails(train(&plan), LK_ERR_STOPPED, "epoch 2");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        lk_state_dict *whole = checkpoint(), *changed = checkpoint();
        lk_generator generator;
        lk_generator_seed(&generator, 1);
        generator.left = 600;
        generator.next = 600;
        put_generator(changed, places[i].name, places[i].offset, &generator);
        expect_not_resumed(changed, "no state of a random generator");
        lkt_ok(lk_save_safetensors(lkt_path(folder, "checkpoints/runner.last.safetensors"), whole));
        lk_state_dict_free(whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaders_draw_on),
        cmocka_unit_test(each_rank_keeps_its_gradients),
        cmocka_unit_test(each_rank_keeps_what_compression_left_out),
        cmocka_unit_test(each_rank_repeats_its_own_first_pass),
        cmocka_unit_test(fewer_ranks_take_the_mean),
        cmocka_unit_test(an_overfit_run_of_other_ranks_draws_anew),
        cmocka_unit_test(a_timer_may_be_added),
        cmocka_unit_test(metrics_of_known_classes),
        cmocka_unit_test(older_checkpoints_are_read),
        cmocka_unit_test(an_accuracy_that_rested_goes_on),
        cmocka_unit_test(metrics_that_saw_nothing_are_restored),
        cmocka_unit_test(states_that_do_not_fit_are_refused),
        cmocka_unit_test(counters_below_zero_are_refused),
        cmocka_unit_test(generators_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
