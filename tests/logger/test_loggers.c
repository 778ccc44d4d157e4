/* Every logger through the same calls, and what each leaves on the disk. */
#include "lktest.h"

#include "times.h"

#include <lockstep/log.h>
#include <lockstep/logger.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "logger/format.h"
#include "logger/tensorboard_read.h"

#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static char folder[1100];
static char console_text[8192];

static void fresh_folder(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
}

static const char *in_folder(const char *name)
{
    static char path[1400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void expect_file(const char *name, const char *expected)
{
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&text, &nbytes, in_folder(name)));
    lkt_drop_times(text, name);
    assert_string_equal(text, expected);
}

static lk_metric_values values_of(lk_metric_value *items, double loss, double accuracy)
{
    items[0] = (lk_metric_value){"loss", loss}; /* not in order: loggers see them sorted */
    items[1] = (lk_metric_value){"accuracy01", accuracy};
    return (lk_metric_values){items, 2};
}

/* One epoch as the runner reports it: two batches, the loader, then the epoch for the loader and for itself.
 */
static void log_epoch(lk_logger *logger, int64_t epoch, double loss)
{
    lk_metric_value items[2], lr = {"lr", 0.02};
    lk_log_step step = {"train", epoch, 8, 2 * epoch, 64 * epoch, 2, 2};
    for (int batch = 1; batch <= 2; batch++) {
        step.sample_step = 64 * (epoch - 1) + 32 * batch;
        lkt_ok(lk_logger_log_metrics(logger, LK_LOG_BATCH, &step, values_of(items, loss * batch, 0.5)));
    }
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_LOADER, &step, values_of(items, loss, 1.0 / 3)));
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, values_of(items, loss, 1.0 / 3)));
    step.loader_key = "_epoch_";
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&lr, 1}));
    lkt_ok(lk_logger_flush(logger));
}

enum { LOGGER_COUNT = 5 };

static lk_logger *make_logger(int which, lk_logger_options options)
{
    switch (which) {
    case 0: return lk_console_logger_with(&options);
    case 1: return lk_csv_logger_with(folder, &options);
    case 2: return lk_tensorboard_logger_with(folder, &options);
    case 3: return lk_jsonl_logger_with(in_folder("log.jsonl"), &options);
    default: /* it logs no batches, and goes on with no run */
        options.log_batch_metrics = false;
        options.resume_epoch = options.resume_sample = 0;
        return lk_mlflow_logger_with(in_folder("mlruns"), &options);
    }
}

/* What every logger must stand: all calls in order, some twice, nothing at all, and a resume. */
static void conformance(void **state)
{
    (void)state;
    for (int which = 0; which < LOGGER_COUNT; which++) {
        fresh_folder("conformance");
        FILE *stream = fmemopen(console_text, sizeof console_text, "w");
        lk_logger *logger =
            make_logger(which, *LK_OPTIONS(lk_logger_options, .log_batch_metrics = true, .stream = stream));
        lkt_not_null(logger);
        lkt_ok(lk_logger_flush(logger));
        lkt_ok(lk_logger_log_hparams(logger, "{\"lr\": 0.02}"));
        for (int64_t epoch = 1; epoch <= 3; epoch++) log_epoch(logger, epoch, 1.0 / (double)epoch);
        lk_log_step step = {.epoch_step = 3, .epoch_count = 8};
        lk_tensor *pixels = lk_tensor_full(LK_U8, LK_SHAPE(4, 6, 3), 200),
                  *bad = lk_tensor_create(LK_F32, LK_SHAPE(4));
        lkt_ok(lk_logger_log_image(logger, &step, "picture", pixels));
        if (which == 2)
            lkt_fails(lk_logger_log_image(logger, &step, "picture", bad), LK_ERR_SHAPE,
                      "image picture: expected u8");
        lkt_ok(lk_logger_log_artifact(logger, &step, "a \"file\"", "/tmp/x\ny"));
        lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EXPERIMENT, &step, (lk_metric_values){NULL, 0}));
        lkt_ok(lk_logger_flush(logger));
        lkt_ok(lk_logger_flush(logger));
        lkt_ok(lk_logger_close(logger));
        logger = make_logger(which, *LK_OPTIONS(lk_logger_options, .log_batch_metrics = true,
                                                .stream = stream, .resume_epoch = 2, .resume_sample = 128));
        lkt_not_null(logger);
        log_epoch(logger, 3, 7);
        lkt_ok(lk_logger_close(logger));
        lk_tensor_free(pixels);
        lk_tensor_free(bad);
        fclose(stream);
    }
}

static void mlflow_refuses(void **state)
{
    (void)state;
    assert_null(lk_mlflow_logger(NULL));
    assert_null(lk_mlflow_logger("runs", .log_batch_metrics = true));
    lkt_contains(lk_error(), "batches are not logged there");
    assert_null(lk_mlflow_logger("runs", .resume_epoch = 2));
    lkt_contains(lk_error(), "a run of its own");
    assert_null(lk_mlflow_logger("runs", .run_name = "two\nlines"));
    lkt_contains(lk_error(), "run_name: expected one line of UTF-8 text");
}

/* A tag of a user's own neither leaves the folder nor hides in it. */
static void mlflow_stays_in_its_folder(void **state)
{
    (void)state;
    glob_t found;
    fresh_folder("mlflow_names");
    lk_logger *logger = lk_mlflow_logger(in_folder("mlruns"), .experiment = "it's mine", .run_name = "one");
    lk_log_step step = {.loader_key = "../..", .epoch_step = 1};
    lk_metric_value values[] = {{"../../../x", NAN}, {"a\nb", -1}};
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){values, 2}));
    lkt_ok(lk_logger_log_hparams(logger, "{\"../p\": \"text\", \"n\": 3}"));
    lkt_ok(lk_logger_ended(logger, LK_ERR_STOPPED));
    lkt_ok(lk_logger_close(logger));
    assert_int_equal(glob(in_folder("mlruns/*/*/metrics/_./_./_._._._._x"), 0, NULL, &found), 0);
    globfree(&found);
    assert_int_equal(glob(in_folder("mlruns/*/*/metrics/_./_./a_b"), 0, NULL, &found), 0);
    globfree(&found);
    assert_int_equal(glob(in_folder("mlruns/*/*/params/_./p"), 0, NULL, &found), 0);
    globfree(&found);
    LKI_SCOPED char *command = lki_format("grep -q 'status: 5' '%s'/mlruns/*/*/meta.yaml", folder);
    assert_int_equal(system(command), 0);
}

/* Between two looks at the clock. */
static void times_of_day(void **state)
{
    (void)state;
    struct timespec before, after;
    fresh_folder("times");
    clock_gettime(CLOCK_REALTIME, &before);
    lk_logger *csv = lk_csv_logger(folder), *jsonl = lk_jsonl_logger(in_folder("log.jsonl"));
    log_epoch(csv, 1, 0.5);
    log_epoch(jsonl, 1, 0.5);
    lkt_ok(lk_logger_close(csv));
    lkt_ok(lk_logger_close(jsonl));
    clock_gettime(CLOCK_REALTIME, &after);
    LKI_SCOPED char *table = NULL, *lines = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&table, &nbytes, in_folder("csv_logger/train.csv")));
    lkt_ok(lki_read_file(&lines, &nbytes, in_folder("log.jsonl")));
    lkt_contains(table, "step,accuracy01,loss,time\n");
    double times[] = {strtod(strrchr(table, ',') + 1, NULL), strtod(strstr(lines, "\"time\":") + 7, NULL)};
    for (int i = 0; i < 2; i++)
        assert_true(times[i] >= (double)before.tv_sec - 0.01 && times[i] <= (double)after.tv_sec + 1.01);
}

/* A user's own value of that name stays. */
static void a_metric_named_time(void **state)
{
    (void)state;
    fresh_folder("time_metric");
    lk_logger *logger = lk_csv_logger(folder);
    lk_log_step step = {.loader_key = "train", .epoch_step = 1};
    lk_metric_value value = {"time", 0.123456789};
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&value, 1}));
    lkt_ok(lk_logger_close(logger));
    LKI_SCOPED char *text = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&text, &nbytes, in_folder("csv_logger/train.csv")));
    assert_string_equal(text, "step,time\n1,0.123456789\n");
}

static void console_lines(void **state)
{
    (void)state;
    memset(console_text, 0, sizeof console_text);
    FILE *stream = fmemopen(console_text, sizeof console_text, "w");
    lk_logger *logger = lk_console_logger(.stream = stream);
    assert_false(lk_logger_wants(logger, LK_LOG_BATCH));
    log_epoch(logger, 1, 1.28256);
    lkt_ok(lk_logger_close(logger));
    fclose(stream);
    assert_string_equal(console_text,
                        "train (1/8) accuracy01: 0.3333 | loss: 1.2826\n* Epoch (1/8) lr: 0.02\n");
}

static void numbers(void **state)
{
    (void)state;
    char text[LKI_NUMBER_LENGTH];
    assert_string_equal(lki_format_short(text, 0.85834), "0.8583");
    assert_string_equal(lki_format_short(text, 0.9), "0.9");
    assert_string_equal(lki_format_short(text, 1), "1");
    assert_string_equal(lki_format_short(text, 0), "0");
    assert_string_equal(lki_format_short(text, -0.5), "-0.5");
    assert_string_equal(lki_format_short(text, 1.5e-5), "1.5e-05");
    assert_string_equal(lki_format_short(text, 100), "100");
    assert_string_equal(lki_format_short(text, -NAN), "nan");
    assert_string_equal(lki_format_exact(text, 1.0 / 3), "0.333333333");
    assert_string_equal(lki_format_exact(text, -INFINITY), "-inf");
}

static void csv_rows(void **state)
{
    (void)state;
    fresh_folder("csv");
    lk_logger *logger = lk_csv_logger(folder, .log_batch_metrics = true);
    lkt_not_null(logger);
    lkt_ok(lk_logger_log_hparams(logger, "{\"b\": [1, 2], \"a\": null}"));
    log_epoch(logger, 1, 0.51421396712345);
    expect_file("csv_logger/train.csv", "step,accuracy01,loss\n1,0.333333333,0.514213967\n");
    log_epoch(logger, 2, NAN);
    expect_file("csv_logger/train.csv",
                "step,accuracy01,loss\n1,0.333333333,0.514213967\n2,0.333333333,nan\n");
    expect_file("csv_logger/_epoch_.csv", "step,lr\n1,0.02\n2,0.02\n");
    expect_file("hparams.json", "{\n  \"b\": [\n    1,\n    2\n  ],\n  \"a\": null\n}\n");
    lkt_fails(lk_logger_log_hparams(logger, "{"), LK_ERR_INVALID, "hparams.json: the settings are no JSON");
    /* A new name, one that needs quotes, and one that is missing this time. */
    lk_metric_value items[] = {{"auc", 0.75}, {"loss", 2}, {"odd, \"name\"", 5}};
    lk_log_step step = {.loader_key = "train", .epoch_step = 3};
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){items, 3}));
    log_epoch(logger, 4, 0.25);
    expect_file("csv_logger/train.csv", "step,accuracy01,auc,loss,\"odd, \"\"name\"\"\"\n"
                                        "1,0.333333333,,0.514213967,\n"
                                        "2,0.333333333,,nan,\n"
                                        "3,,0.75,2,5\n"
                                        "4,0.333333333,,0.25,\n");
    lkt_ok(lk_logger_close(logger));
    /* Resumed after epoch 2: the later rows go, the columns stay. */
    logger = lk_csv_logger(folder, .resume_epoch = 2);
    log_epoch(logger, 3, 0.125);
    lkt_ok(lk_logger_close(logger));
    expect_file("csv_logger/train.csv", "step,accuracy01,auc,loss,\"odd, \"\"name\"\"\"\n"
                                        "1,0.333333333,,0.514213967,\n"
                                        "2,0.333333333,,nan,\n"
                                        "3,0.333333333,,0.125,\n");
    expect_file("csv_logger/_epoch_.csv", "step,lr\n1,0.02\n2,0.02\n3,0.02\n");
    /* A fresh run starts over. */
    logger = lk_csv_logger(folder, .stream = NULL);
    log_epoch(logger, 1, 1);
    lkt_ok(lk_logger_close(logger));
    expect_file("csv_logger/train.csv", "step,accuracy01,loss\n1,0.333333333,1\n");
}

static void csv_after_a_crash(void **state)
{
    (void)state;
    fresh_folder("csv-crash");
    static const char torn[] = "step,loss\n1,0.5\n2,0.2";
    lkt_ok(lki_make_folders(in_folder("csv_logger")));
    lkt_ok(lki_write_file_atomic(in_folder("csv_logger/train.csv"), torn, sizeof torn - 1));
    lk_logger *logger = lk_csv_logger(folder, .resume_epoch = 5);
    lk_metric_value loss = {"loss", 0.25};
    lk_log_step step = {.loader_key = "train", .epoch_step = 2};
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}));
    lkt_ok(lk_logger_close(logger));
    expect_file("csv_logger/train.csv", "step,loss\n1,0.5\n2,0.25\n");
    lkt_ok(lki_write_file_atomic(in_folder("csv_logger/train.csv"), "a,b\n", 4));
    logger = lk_csv_logger(folder, .resume_epoch = 5);
    lkt_fails(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}), LK_ERR_FORMAT,
              "train.csv: cannot be continued");
    lkt_ok(lk_logger_close(logger));
}

static char warning[512];
static int warning_count;

static void keep_warning(const char *level, const char *line, void *context)
{
    (void)context;
    if (strcmp(level, "warning") != 0) return;
    warning_count++;
    snprintf(warning, sizeof warning, "%s", line);
}

/* The file that is continued with one more row, of epoch 9. */
static void continue_csv(const char *text, size_t nbytes, const char *expected)
{
    lk_metric_value loss = {"loss", 0.25};
    lk_log_step step = {.loader_key = "train", .epoch_step = 9};
    lkt_ok(lki_write_file_atomic(in_folder("csv_logger/train.csv"), text, nbytes));
    warning_count = 0;
    lk_logger *logger = lk_csv_logger(folder, .resume_epoch = 8);
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}));
    lkt_ok(lk_logger_close(logger));
    expect_file("csv_logger/train.csv", expected);
    assert_int_equal(warning_count, 1);
    lkt_contains(warning, "csv_logger/train.csv: ");
}

/* Power that fails leaves zeros where a file had grown already. */
static void csv_with_zeros(void **state)
{
    (void)state;
    fresh_folder("csv-zeros");
    lkt_ok(lki_make_folders(in_folder("csv_logger")));
    lk_set_log_sink(keep_warning, NULL);
#define CONTINUE(text, expected) continue_csv(text, sizeof text - 1, expected)
    CONTINUE("step,loss\n1,0.5\n\0\0\0\0\0", "step,loss\n1,0.5\n9,0.25\n");
    CONTINUE("step,loss\n1,0.5\n\0\0"
             "2,0.5\n3,0.125\n",
             "step,loss\n1,0.5\n3,0.125\n9,0.25\n");
    CONTINUE("step,loss\n1,0.5\n2,\0\0\0\n", "step,loss\n1,0.5\n9,0.25\n");
    CONTINUE("\0\0\0\0\0\0\0\0\0\0\0\0", "step,loss\n9,0.25\n");
    CONTINUE("step,\0\0\0\0\n1,0.5\n", "step,loss\n9,0.25\n");
#undef CONTINUE
    lk_set_log_sink(NULL, NULL);
}

static const char *only_event_file(const char *pattern)
{
    static char path[1400];
    glob_t found;
    char full[1400];
    snprintf(full, sizeof full, "%s/%s", folder, pattern);
    assert_int_equal(glob(full, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(path, sizeof path, "%s", found.gl_pathv[0]);
    globfree(&found);
    return path;
}

static void expect_scalar(const lki_tensorboard_scalars *scalars, int64_t i, const char *tag, int64_t step,
                          float value)
{
    assert_true(i < scalars->count);
    assert_string_equal(scalars->items[i].tag, tag);
    assert_int_equal(scalars->items[i].step, step);
    lkt_close(scalars->items[i].value, value, 0);
}

static void tensorboard_records(void **state)
{
    (void)state;
    lki_tensorboard_scalars scalars;
    fresh_folder("tensorboard-test");
    lk_logger *logger = lk_tensorboard_logger(folder, .log_batch_metrics = true);
    lkt_not_null(logger);
    for (int64_t epoch = 1; epoch <= 3; epoch++) log_epoch(logger, epoch, (double)epoch);
    lkt_ok(lk_logger_close(logger));
    const char *file = only_event_file("tensorboard/train/events.out.tfevents.*");
    lkt_ok(lki_tensorboard_check(&scalars, file, false));
    assert_int_equal(scalars.record_count, 1 + 9);
    assert_int_equal(scalars.count, 18);
    expect_scalar(&scalars, 0, "accuracy01/batch", 32, 0.5f);
    expect_scalar(&scalars, 3, "loss/batch", 64, 2);
    expect_scalar(&scalars, 4, "accuracy01/epoch", 1, (float)(1.0 / 3));
    expect_scalar(&scalars, 17, "loss/epoch", 3, 3);
    lki_tensorboard_scalars_fini(&scalars);
    /* Resumed after epoch 2: the third epoch appears once. */
    logger = lk_tensorboard_logger(folder, .resume_epoch = 2, .resume_sample = 128);
    lk_log_step step = {.loader_key = "train", .epoch_step = 3};
    lk_metric_value loss = {"loss", 9};
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}));
    lkt_ok(lki_tensorboard_check(&scalars, file, false));
    assert_int_equal(scalars.count, 12);
    expect_scalar(&scalars, 11, "loss/epoch", 2, 2);
    lki_tensorboard_scalars_fini(&scalars);
    lkt_ok(lk_logger_close(logger));
}

/* The event file of one epoch, alone in its folder. */
static void write_an_epoch(char *path, size_t capacity)
{
    fresh_folder("tensorboard-damage");
    lk_logger *logger = lk_tensorboard_logger(folder, .log_batch_metrics = true);
    log_epoch(logger, 1, 1);
    lkt_ok(lk_logger_close(logger));
    snprintf(path, capacity, "%s", only_event_file("tensorboard/train/events.out.tfevents.*"));
}

static void tensorboard_damage(void **state)
{
    (void)state;
    lki_tensorboard_scalars scalars;
    char path[1400];
    write_an_epoch(path, sizeof path);
    char *bytes;
    size_t nbytes;
    lkt_ok(lki_read_file(&bytes, &nbytes, path));
    for (size_t i = 0; i < nbytes; i++) { /* no flipped bit goes unnoticed */
        bytes[i] ^= (char)(1 << i % 8);
        FILE *file = fopen(path, "wb");
        fwrite(bytes, 1, nbytes, file);
        fclose(file);
        lkt_fails(lki_tensorboard_check(&scalars, path, false), LK_ERR_FORMAT, path);
        bytes[i] ^= (char)(1 << i % 8);
    }
    lkt_ok(lki_write_file_atomic(path, bytes, nbytes - 1));
    lkt_fails(lki_tensorboard_check(&scalars, path, false), LK_ERR_FORMAT, "is cut off");
    lkt_ok(lki_tensorboard_check(&scalars, path, true));
    assert_int_equal(scalars.count, 4);
    lki_tensorboard_scalars_fini(&scalars);
    lkt_ok(lki_tensorboard_truncate(path, 1, 32)); /* drops the torn record and the second batch */
    lkt_ok(lki_tensorboard_check(&scalars, path, false));
    assert_int_equal(scalars.count, 2);
    lki_tensorboard_scalars_fini(&scalars);
    lki_free(bytes);
}

static int64_t count_kept(const char *path, const char *bytes, size_t nbytes)
{
    lki_tensorboard_scalars scalars;
    warning_count = 0;
    lkt_ok(lki_write_file_atomic(path, bytes, nbytes));
    lkt_ok(lki_tensorboard_truncate(path, 9, 999));
    lkt_ok(lki_tensorboard_check(&scalars, path, false));
    int64_t count = scalars.count;
    lki_tensorboard_scalars_fini(&scalars);
    return count;
}

/* A run goes on with what can be read. */
static void tensorboard_goes_on_after_damage(void **state)
{
    (void)state;
    char path[1400];
    write_an_epoch(path, sizeof path);
    LKI_SCOPED char *bytes = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&bytes, &nbytes, path));
    LKI_SCOPED char *longer = lki_calloc(nbytes + 100, "a file");
    memcpy(longer, bytes, nbytes);
    lk_set_log_sink(keep_warning, NULL);
    assert_int_equal(count_kept(path, bytes, nbytes), 6);
    assert_int_equal(warning_count, 0);
    assert_int_equal(count_kept(path, longer, nbytes + 100), 6);
    assert_int_equal(warning_count, 1);
    lkt_contains(warning, path);
    longer[nbytes - 5] ^= 1; /* in the last record's data */
    assert_int_equal(count_kept(path, longer, nbytes), 4);
    assert_int_equal(warning_count, 1);
    for (size_t i = 0; i < nbytes; i++) { /* one byte costs at most what it stands before */
        bytes[i] ^= 64;
        int64_t kept = count_kept(path, bytes, nbytes);
        assert_in_range(kept, 0, 6);
        assert_int_equal(warning_count, 1);
        if (i > 12 && i < 30) assert_int_equal(kept, 6); /* the version alone was hit */
        bytes[i] ^= 64;
    }
    lk_set_log_sink(NULL, NULL);
}

static void python_reads_the_events(void **state)
{
    (void)state;
    static const char *const expected[] = {
        "version brain.Event:2\n",     "scalar 32 accuracy01/batch 0.5\n",
        "scalar 32 loss/batch 0.25\n", "scalar 64 accuracy01/batch 0.5\n",
        "scalar 64 loss/batch 0.5\n",  "scalar 1 accuracy01/epoch 0.333333343\n",
        "scalar 1 loss/epoch 0.25\n",  "image 1 matrix 4 6 3 True\n",
    };
    char command[3000], line[256];
    if (access("/usr/bin/python3", X_OK) != 0) {
        print_message("skipped: no /usr/bin/python3\n");
        skip();
    }
    fresh_folder("tensorboard-python");
    lk_logger *logger = lk_tensorboard_logger(folder, .log_batch_metrics = true);
    log_epoch(logger, 1, 0.25);
    lk_log_step step = {.loader_key = "train", .epoch_step = 1};
    lk_tensor *pixels = lk_tensor_full(LK_U8, LK_SHAPE(4, 6, 3), 200);
    lkt_ok(lk_logger_log_image(logger, &step, "matrix", pixels));
    lk_tensor_free(pixels);
    lkt_ok(lk_logger_close(logger));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/tensorboard_check.py' '%s'",
             LK_SOURCE_DIR, only_event_file("tensorboard/train/events.out.tfevents.*"));
    FILE *pipe = popen(command, "r");
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_non_null(fgets(line, sizeof line, pipe));
        assert_string_equal(line, expected[i]);
    }
    assert_null(fgets(line, sizeof line, pipe));
    assert_int_equal(pclose(pipe), 0);
}

static void jsonl_lines(void **state)
{
    (void)state;
    fresh_folder("jsonl");
    lk_logger *logger = lk_jsonl_logger(in_folder("log.jsonl"), .log_batch_metrics = true);
    lkt_not_null(logger);
    lk_log_step step = {"tr\"ain", 1, 8, 2, 64, 2, 2};
    lk_metric_value items[] = {{"a\\b\n", 0.1}, {"loss", NAN}};
    lkt_ok(lk_logger_log_hparams(logger, "{\n\"lr\": 0.5}"));
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_BATCH, &step, (lk_metric_values){items, 2}));
    lkt_ok(lk_logger_log_artifact(logger, &step, "matrix", "m.png"));
    step.epoch_step = 2;
    step.sample_step = 128;
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){items, 1}));
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_BATCH, &step, (lk_metric_values){items, 1}));
    lkt_ok(lk_logger_close(logger));
#define KEPT                                                                                                 \
    "{\"scope\":\"hparams\",\"epoch\":0,\"hparams\":{\"lr\":0.5}}\n"                                         \
    "{\"scope\":\"batch\",\"loader\":\"tr\\\"ain\",\"epoch\":1,\"batch\":2,\"sample\":64,"                   \
    "\"metrics\":{\"a\\\\b\\u000a\":0.1,\"loss\":null}}\n"                                                   \
    "{\"scope\":\"artifact\",\"loader\":\"tr\\\"ain\",\"epoch\":1,\"batch\":2,\"sample\":64,\"tag\":"        \
    "\"matrix\",\"path\":\"m.png\"}\n"
    expect_file("log.jsonl", KEPT "{\"scope\":\"epoch\",\"loader\":\"tr\\\"ain\",\"epoch\":2,\"batch\":2,"
                                  "\"sample\":128,\"metrics\":{\"a\\\\b\\u000a\":0.1}}\n"
                                  "{\"scope\":\"batch\",\"loader\":\"tr\\\"ain\",\"epoch\":2,\"batch\":2,"
                                  "\"sample\":128,\"metrics\":{\"a\\\\b\\u000a\":0.1}}\n");
    FILE *file = fopen(in_folder("log.jsonl"), "a");
    fputs("{\"scope\":\"epoch\",\"ep", file); /* cut off by a crash */
    fclose(file);
    logger = lk_jsonl_logger(in_folder("log.jsonl"), .resume_epoch = 1, .resume_sample = 64);
    lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){items, 1}));
    lkt_ok(lk_logger_close(logger));
    expect_file("log.jsonl", KEPT "{\"scope\":\"epoch\",\"loader\":\"tr\\\"ain\",\"epoch\":2,\"batch\":2,"
                                  "\"sample\":128,\"metrics\":{\"a\\\\b\\u000a\":0.1}}\n");
}

/* A config makes the loggers of all its calls before the first one runs. */
static void jsonl_of_two_calls(void **state)
{
    (void)state;
    fresh_folder("jsonl-calls");
    lkt_ok(lki_write_file_atomic(in_folder("log.jsonl"), "{\"epoch\":7}\n", 12));
    lk_logger *loggers[] = {lk_jsonl_logger(in_folder("log.jsonl"), .stream = NULL),
                            lk_jsonl_logger(in_folder("log.jsonl"), .stream = NULL)};
    for (int i = 0; i < 2; i++) {
        lk_metric_value loss = {"loss", i};
        lk_log_step step = {.loader_key = "train", .epoch_step = 1};
        lkt_ok(lk_logger_log_metrics(loggers[i], LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}));
        lkt_ok(lk_logger_close(loggers[i]));
    }
#define LINE(loss)                                                                                           \
    "{\"scope\":\"epoch\",\"loader\":\"train\",\"epoch\":1,\"batch\":0,\"sample\":0,\"metrics\":{"           \
    "\"loss\":" #loss "}}\n"
    expect_file("log.jsonl", LINE(0) LINE(1));
}

/* A run that is resumed hands on where it goes on; one that never starts touches nothing. */
static void resumed_after_they_were_made(void **state)
{
    (void)state;
    lki_tensorboard_scalars scalars;
    fresh_folder("resumed");
    for (int which = 1; which < LOGGER_COUNT; which++) {
        lk_logger *logger = make_logger(which, *LK_OPTIONS(lk_logger_options, .log_batch_metrics = true));
        for (int64_t epoch = 1; epoch <= 3; epoch++) log_epoch(logger, epoch, (double)epoch);
        lkt_ok(lk_logger_close(logger));
    }
    LKI_SCOPED char *before = NULL;
    size_t nbytes;
    lkt_ok(lki_read_file(&before, &nbytes, in_folder("log.jsonl")));
    lkt_drop_times(before, "log.jsonl");
    for (int which = 1; which < LOGGER_COUNT; which++) {
        lk_logger *logger = make_logger(which, *LK_OPTIONS(lk_logger_options));
        lkt_ok(lk_logger_flush(logger));
        lkt_ok(lk_logger_close(logger));
    }
    expect_file("log.jsonl", before);
    for (int which = 0; which < LOGGER_COUNT; which++) {
        FILE *stream = fmemopen(console_text, sizeof console_text, "w");
        lk_logger *logger =
            make_logger(which, *LK_OPTIONS(lk_logger_options, .log_batch_metrics = true, .stream = stream));
        lkt_ok(lk_logger_resume(logger, 2, 128));
        log_epoch(logger, 3, 3);
        lkt_ok(lk_logger_close(logger));
        fclose(stream);
    }
    expect_file("log.jsonl", before);
    expect_file("csv_logger/_epoch_.csv", "step,lr\n1,0.02\n2,0.02\n3,0.02\n");
    glob_t found;
    int64_t count = 0;
    assert_int_equal(glob(in_folder("tensorboard/train/events.out.tfevents.*"), 0, NULL, &found), 0);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        lkt_ok(lki_tensorboard_check(&scalars, found.gl_pathv[i], false));
        count += scalars.count;
        lki_tensorboard_scalars_fini(&scalars);
    }
    globfree(&found);
    assert_int_equal(count, 18);
}

/* Opened once, for its other end sees that; nothing in it is to be gone on with. */
static void jsonl_through_a_pipe(void **state)
{
    (void)state;
    lk_metric_value loss = {"loss", 0.5};
    lk_log_step step = {"train", 1, 8, 2, 64, 2, 2};
    for (int resumed = 0; resumed < 2; resumed++) {
        char line[256] = "";
        fresh_folder("jsonl");
        assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
        struct pollfd reader = {.fd = open(in_folder("pipe"), O_RDONLY | O_NONBLOCK), .events = POLLIN};
        lk_logger *logger = lk_jsonl_logger(in_folder("pipe"), .resume_epoch = resumed);
        lkt_not_null(logger);
        assert_int_equal(poll(&reader, 1, 0), 0); /* a writer that has gone would show here */
        lkt_ok(lk_logger_log_metrics(logger, LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1}));
        lkt_ok(lk_logger_close(logger));
        assert_true(read(reader.fd, line, sizeof line - 1) > 0);
        lkt_contains(line, "\"metrics\":{\"loss\":0.5}}\n");
        close(reader.fd);
    }
}

/* stdout, redirected to a file: what the program prints and what is logged stand one after another. */
static void jsonl_beside_what_is_printed(void **state)
{
    (void)state;
    fresh_folder("jsonl-stdout");
    fflush(NULL);
    int before = dup(STDOUT_FILENO), file = open(in_folder("out"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(before >= 0 && file >= 0);
    dup2(file, STDOUT_FILENO);
    lk_logger *logger = lk_jsonl_logger("/dev/stdout", .stream = NULL);
    for (int i = 0; i < 2; i++) {
        printf("line %d\n", i);
        lk_logger_log_hparams(logger, i ? "{\"lr\": 1}" : "{\"lr\": 0}");
        lk_logger_flush(logger);
    }
    lk_logger_close(logger);
    printf("the end\n");
    fflush(stdout);
    dup2(before, STDOUT_FILENO);
    close(before);
    close(file);
    expect_file("out", "line 0\n{\"scope\":\"hparams\",\"epoch\":0,\"hparams\":{\"lr\":0}}\n"
                       "line 1\n{\"scope\":\"hparams\",\"epoch\":0,\"hparams\":{\"lr\":1}}\nthe end\n");
}

static void unwritable_places(void **state)
{
    (void)state;
    fresh_folder("blocked");
    lkt_ok(lki_write_file_atomic(in_folder("file"), "", 0));
    assert_null(lk_csv_logger(in_folder("file"), .stream = NULL));
    lkt_contains(lk_error(), "could not make the folder");
    assert_null(lk_tensorboard_logger(in_folder("file"), .stream = NULL));
    lkt_contains(lk_error(), "could not make the folder");
    assert_null(lk_jsonl_logger("/nowhere/x.jsonl", .stream = NULL));
    lkt_contains(lk_error(), "/nowhere/x.jsonl: could not create");
}

/* In a child whose files may not grow past 2000 bytes: a full disk. Entries are refused, never torn. */
static int fill_up(void)
{
    struct rlimit limit = {2000, 2000};
    lk_metric_value loss = {"loss", 1.0 / 3};
    lk_logger *loggers[] = {lk_csv_logger(folder, .stream = NULL),
                            lk_jsonl_logger(in_folder("log.jsonl"), .stream = NULL),
                            lk_tensorboard_logger(folder, .stream = NULL)};
    bool failed[3] = {false};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int64_t epoch = 1; epoch < 200; epoch++)
        for (int i = 0; i < 3; i++) {
            lk_log_step step = {.loader_key = "train", .epoch_step = epoch, .epoch_count = 200};
            lk_status status =
                lk_logger_log_metrics(loggers[i], LK_LOG_EPOCH, &step, (lk_metric_values){&loss, 1});
            if (status == LK_OK) status = lk_logger_flush(loggers[i]);
            if (status != LK_OK && !strstr(lk_error(), "could not write: File too large")) return 2;
            failed[i] |= status == LK_ERR_IO;
        }
    for (int i = 0; i < 3; i++)
        if (!failed[i] || lk_logger_close(loggers[i]) != LK_ERR_IO) return 3;
    return 0;
}

static void a_full_disk_tears_nothing(void **state)
{
    (void)state;
    int status;
    lki_tensorboard_scalars scalars;
    fresh_folder("full");
    pid_t child = fork();
    if (child == 0) _exit(fill_up());
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    static const char *const files[] = {"csv_logger/train.csv", "log.jsonl"};
    for (int i = 0; i < 2; i++) {
        LKI_SCOPED char *text = NULL;
        size_t nbytes;
        lkt_ok(lki_read_file(&text, &nbytes, in_folder(files[i])));
        assert_true(nbytes > 1000 && text[nbytes - 1] == '\n');
    }
    lkt_ok(
        lki_tensorboard_check(&scalars, only_event_file("tensorboard/train/events.out.tfevents.*"), false));
    assert_true(scalars.count > 20);
    lki_tensorboard_scalars_fini(&scalars);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conformance),
        cmocka_unit_test(console_lines),
        cmocka_unit_test(mlflow_refuses),
        cmocka_unit_test(mlflow_stays_in_its_folder),
        cmocka_unit_test(times_of_day),
        cmocka_unit_test(a_metric_named_time),
        cmocka_unit_test(numbers),
        cmocka_unit_test(csv_rows),
        cmocka_unit_test(csv_after_a_crash),
        cmocka_unit_test(csv_with_zeros),
        cmocka_unit_test(tensorboard_records),
        cmocka_unit_test(tensorboard_damage),
        cmocka_unit_test(tensorboard_goes_on_after_damage),
        cmocka_unit_test(python_reads_the_events),
        cmocka_unit_test(jsonl_lines),
        cmocka_unit_test(jsonl_through_a_pipe),
        cmocka_unit_test(jsonl_of_two_calls),
        cmocka_unit_test(resumed_after_they_were_made),
        cmocka_unit_test(jsonl_beside_what_is_printed),
        cmocka_unit_test(unwritable_places),
        cmocka_unit_test(a_full_disk_tears_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
