#include "case_resume.h"

#include "times.h"

#include "base/status.h"
#include "logger/tensorboard_read.h"

#include <glob.h>
#include <signal.h>

static lk_status raise_signal(lk_callback *callback, lk_runner *runner)
{
    const lkt_run_options *options = callback->context;
    bool here = runner->is_train_loader
                    ? runner->batch_step == options->stop_batch
                    : runner->epoch_step == options->stop_valid_epoch && runner->loader_batch_step == 1;
    if (runner->is_train_loader && runner->batch_step == options->fail_batch)
        return lki_fail(LK_ERR_INVALID, "a failure of the test's own");
    if (here) raise(options->signal ? options->signal : SIGTERM);
    return LK_OK;
}

/* Loggers of the caller's own, in a folder of their own: they go on as those of the run do. */
static lk_logger_list own_loggers(const char *logdir, bool batch_metrics)
{
    static lk_logger *loggers[3];
    const char *own = lkt_path(logdir, "own");
    loggers[0] = lk_csv_logger_with(own, NULL);
    loggers[1] =
        lk_tensorboard_logger_with(own, LK_OPTIONS(lk_logger_options, .log_batch_metrics = batch_metrics));
    loggers[2] = lk_jsonl_logger_with(lkt_path(logdir, "own/log.jsonl"),
                                      LK_OPTIONS(lk_logger_options, .log_batch_metrics = batch_metrics));
    return (lk_logger_list){loggers, 3};
}

/* ---- Metrics of the user's own: every way in which states join ---- */

static struct {
    int64_t seen;
    lk_exact_sum sum;
    double highest, lowest;
    lk_metric_array first; /* the first logit of each batch */
} own;

static lk_status update_own(void *context, const lk_tensor *outputs, const lk_tensor *targets)
{
    (void)context, (void)targets;
    double first = lk_tensor_get(outputs, 0);
    for (int64_t i = 0; i < lk_tensor_count(outputs); i++) {
        double value = lk_tensor_get(outputs, i);
        lk_exact_sum_add(&own.sum, value);
        own.highest = fmax(own.highest, value);
        own.lowest = fmin(own.lowest, value);
    }
    own.seen += outputs->shape.dim[0];
    return lk_metric_array_append(&own.first, &first, 1);
}

/* The order of what was concatenated shows. */
static lk_status compute_own(void *context, double *values)
{
    (void)context;
    values[0] = (double)own.seen;
    values[1] = lk_exact_sum_value(&own.sum);
    values[2] = own.highest;
    values[3] = own.lowest;
    values[4] = 0;
    for (int64_t i = 0; i < own.first.count; i++)
        values[4] += (double)(i + 1) * ((const double *)own.first.data)[i];
    return LK_OK;
}

static lk_callback *own_metric(void)
{
    static const char *const names[] = {"own_seen",   "own_sum",   "own_highest",
                                        "own_lowest", "own_order", NULL};
    memset(&own, 0, sizeof own);
    return lk_metric_callback(lk_custom_metric(.name = "own", .value_names = names, .update = update_own,
                                               .compute = compute_own,
                                               .parts = {{LK_JOIN_SUM, LK_I64, &own.seen, 1},
                                                         {LK_JOIN_EXACT_SUM, LK_F64, &own.sum, 1},
                                                         {LK_JOIN_MAX, LK_F64, &own.highest, 1},
                                                         {LK_JOIN_MIN, LK_F64, &own.lowest, 1},
                                                         {LK_JOIN_CONCAT, LK_F64, &own.first, 0}}),
                              NULL, NULL);
}

/* What a callback puts into batch_metrics is averaged by the run. */
static lk_status report_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    double first = lk_tensor_get(lk_runner_tensor(runner, "logits"), 0);
    return lk_metrics_set(runner->batch_metrics, "own_batch", first / 3);
}

lk_status lkt_whole_run(lkt_run_options *options)
{
    lk_runner *runner = lk_supervised_runner();
    lk_module *model = lkt_deep_model();
    int batch_size = options->batch_size ? options->batch_size : 8;
    lk_status status = lk_train(
        runner, .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
        .scheduler = options->plateau ? lk_reduce_lr_on_plateau(.patience = LK_ZERO)
                                      : lk_multi_step_lr(.milestones = lk_milestones(2, 4)),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(LKT_RUN_BATCHES * 8, 1),
                                                  .batch_size = batch_size, .shuffle = true)},
                              {"valid", lk_loader(lkt_points(40, 2), .batch_size = batch_size)}),
        .callbacks = lk_callbacks(
            lk_optimizer_callback(.accumulation_steps = 5, .clip_norm = 0.5,
                                  .restart_each_epoch = options->restarts),
            own_metric(), lk_on(batch_end, report_batch, NULL), lk_accuracy_callback(.num_classes = 3),
            lk_auc_callback(.num_classes = 3), lk_gradient_norm_callback(),
            options->swa ? lk_swa_callback(2) : lk_ema_callback(.decay = 0.9),
            lk_early_stopping_callback(.patience = 50),
            lk_checkpoint_callback(.topk = 2, .save_every_batches = options->save_every_batches),
            lk_on(batch_end, raise_signal, options)),
        .num_epochs = options->num_epochs ? options->num_epochs : LKT_RUN_EPOCHS, .seed = 11,
        .loggers = own_loggers(options->logdir, !options->epoch_logs), .logdir = options->logdir,
        .valid_loader = "valid", .autoresume = options->autoresume, .resume = options->resume,
        .nproc = options->nproc, .save_every = options->save_every);
    snprintf(options->hash, sizeof options->hash, "%s", lkt_hash(runner->model));
    lk_runner_free(runner);
    return status;
}

static void same_file(const char *a, const char *b, const char *name)
{
    char *one = lkt_read(lkt_path(a, "%s", name)), *two = lkt_read(lkt_path(b, "%s", name));
    lkt_drop_times(one, name);
    lkt_drop_times(two, name);
    if (strcmp(one, two) != 0) fail_msg("%s differs:\n%s\nexpected:\n%s", name, one, two);
    free(one);
    free(two);
}

/* All but the settings, which every part of a run writes down. */
static char *without_hparams(char *text)
{
    static const char settings[] = "{\"scope\":\"hparams\"";
    char *to = text;
    for (char *line = text, *end; *line; line = end) {
        end = strchr(line, '\n');
        end = end ? end + 1 : line + strlen(line);
        if (strncmp(line, settings, sizeof settings - 1) == 0) continue;
        memmove(to, line, (size_t)(end - line));
        to += end - line;
    }
    *to = 0;
    return text;
}

static void same_lines(const char *a, const char *b, const char *name)
{
    char *one = without_hparams(lkt_read(lkt_path(a, "%s", name)));
    char *two = without_hparams(lkt_read(lkt_path(b, "%s", name)));
    lkt_drop_times(one, name);
    lkt_drop_times(two, name);
    if (strcmp(one, two) != 0) fail_msg("%s differs:\n%s\nexpected:\n%s", name, one, two);
    free(one);
    free(two);
}

typedef struct event_text {
    char text[96];
} event_text;

static int by_text(const void *a, const void *b)
{
    return strcmp(((const event_text *)a)->text, ((const event_text *)b)->text);
}

/* The scalars of a loader's event files, sorted: files of one second are not in the order of their names. */
static event_text *events_of(const char *logdir, const char *loader, size_t *count)
{
    enum { CAPACITY = 4096 };
    glob_t found;
    event_text *events = calloc(CAPACITY, sizeof *events);
    *count = 0;
    assert_int_equal(
        glob(lkt_path(logdir, "own/tensorboard/%s/events.out.tfevents.*", loader), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        lki_tensorboard_scalars scalars;
        lkt_ok(lki_tensorboard_check(&scalars, found.gl_pathv[i], false));
        assert_true(*count + (size_t)scalars.count <= CAPACITY);
        for (int64_t k = 0; k < scalars.count; k++) {
            const lki_tensorboard_scalar *s = &scalars.items[k];
            snprintf(events[(*count)++].text, sizeof events->text, "%s %lld %a", s->tag, (long long)s->step,
                     (double)s->value);
        }
        lki_tensorboard_scalars_fini(&scalars);
    }
    globfree(&found);
    qsort(events, *count, sizeof *events, by_text);
    return events;
}

static void same_events(const char *a, const char *b, const char *loader)
{
    size_t count, expected_count;
    event_text *events = events_of(a, loader, &count), *expected = events_of(b, loader, &expected_count);
    assert_int_equal(count, expected_count);
    for (size_t i = 0; i < count; i++) assert_string_equal(events[i].text, expected[i].text);
    free(events);
    free(expected);
}

static void same_weights(const char *a, const char *b, const char *name)
{
    char hashes[2][LK_HASH_LENGTH + 1];
    const char *folders[] = {a, b};
    for (int i = 0; i < 2; i++) {
        lk_state_dict *state = lk_load_safetensors(lkt_path(folders[i], "checkpoints/%s", name));
        lkt_not_null(state);
        lkt_ok(lk_weights_hash(state, hashes[i]));
        lk_state_dict_free(state);
    }
    if (strcmp(hashes[0], hashes[1]) != 0) fail_msg("%s differs", name);
}

void lkt_same_runs(const lkt_run_options *actual, const lkt_run_options *expected)
{
    const char *a = actual->logdir, *b = expected->logdir;
    assert_string_equal(actual->hash, expected->hash);
    same_file(a, b, "csv_logger/train.csv");
    same_file(a, b, "csv_logger/valid.csv");
    same_file(a, b, "own/csv_logger/train.csv");
    same_file(a, b, "own/csv_logger/_epoch_.csv");
    same_lines(a, b, "own/log.jsonl");
    same_events(a, b, "train");
    same_events(a, b, "valid");
    same_weights(a, b, "model.best.safetensors");
    same_weights(a, b, "model.last.safetensors");
    same_weights(a, b, "runner.last.safetensors");
}
