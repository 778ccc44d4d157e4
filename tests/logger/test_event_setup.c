/* What event files hold besides numbers and pictures: histograms, settings and the model's graph, as a reader
 * of the format's own rules sees them. */
#include "lktest.h"

#include <lockstep/logger.h>

#include "base/memory.h"
#include "logger/event.h"

#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char model[] =
    "{\"layers\":[],\"nodes\":["
    "{\"name\":\"input\",\"op\":\"input\",\"layer\":\"\",\"inputs\":[],\"shape\":[32,6],\"dtype\":\"f32\"},"
    "{\"name\":\"0/linear\",\"op\":\"linear\",\"layer\":\"0\",\"inputs\":[\"input\"],\"shape\":[32,0],"
    "\"dtype\":\"bf16\"}]}";

static const double limits[] = {0, 0.5, 2}, counts[] = {1, 0, 3};
static const lk_histogram histogram = {.min = -1,
                                       .max = 2,
                                       .sum = 3.5,
                                       .sum_squares = 7.25,
                                       .count = 4,
                                       .bucket_count = 3,
                                       .limits = limits,
                                       .counts = counts};

/* The only event file that the pattern finds; static text. */
static const char *only_file(const char *folder, const char *below)
{
    static char text[2048];
    char pattern[2048];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/tensorboard/%sevents.out.tfevents.*", folder, below);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    snprintf(text, sizeof text, "%s", found.gl_pathv[0]);
    globfree(&found);
    return text;
}

static void log_all(const char *folder)
{
    lk_logger *logger = lk_tensorboard_logger(folder);
    lk_log_step step = {.loader_key = "train", .epoch_step = 3};
    lkt_not_null(logger);
    lkt_ok(lk_logger_log_hparams(logger,
                                 "{\"lr\": 0.5, \"name\": \"it's\", \"nested\": [1, null], \"on\": true}"));
    lkt_ok(lk_logger_log_model(logger, model));
    lkt_ok(lk_logger_log_histogram(logger, &step, "weights/0.weight", &histogram));
    lkt_ok(lk_logger_ended(logger, LK_ERR_STOPPED));
    lkt_ok(lk_logger_close(logger));
}

static void expect(const char *file, const char *const *lines, size_t count)
{
    char command[4096], line[1024];
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/tensorboard_check.py' '%s'",
             LK_SOURCE_DIR, file);
    FILE *pipe = popen(command, "r");
    for (size_t i = 0; i < count; i++) {
        assert_non_null(fgets(line, sizeof line, pipe));
        assert_string_equal(line, lines[i]);
    }
    assert_null(fgets(line, sizeof line, pipe));
    assert_int_equal(pclose(pipe), 0);
}

static void test_python_reads_them(void **state)
{
    (void)state;
    static const char *const of_run[] = {
        "version brain.Event:2\n",
        "hparams _hparams_/session_start_info lr=0.5 name=\"it's\" nested='[1,null]' on=True\n",
        "node input Placeholder - [32, 6] 1\n",
        "node 0/linear linear input [32, 0] 14\n",
        "ended 2\n",
    };
    static const char *const of_train[] = {
        "version brain.Event:2\n",
        "histogram 3 weights/0.weight -1 2 4 3.5 7.25 -1.0 0.0 0.5 2.0 | 0.0 1.0 0.0 3.0\n",
    };
    if (access("/usr/bin/python3", X_OK) != 0) {
        print_message("skipped: no /usr/bin/python3\n");
        skip();
    }
    const char *folder = lkt_scratch_folder("event_setup");
    log_all(folder);
    expect(only_file(folder, ""), of_run, sizeof of_run / sizeof *of_run);
    expect(only_file(folder, "train/"), of_train, sizeof of_train / sizeof *of_train);
}

/* ---- Our own reader ---- */

typedef struct seen {
    int histograms, malformed;
    lk_histogram last;
    double limits[8], counts[8];
} seen;

static void note(const lki_event_value *value, void *context)
{
    seen *s = context;
    if (!value->histogram) return;
    assert_int_equal(value->step, 3);
    if (lki_event_histogram(value, &s->last, s->limits, s->counts, 8))
        s->malformed++;
    else
        s->histograms++;
}

static void test_they_are_read_back(void **state)
{
    (void)state;
    seen s = {0};
    lki_event_buffer buffer = {0};
    const uint8_t *data;
    size_t offset = 0, nbytes;
    lkt_ok(lki_event_put_histogram(&buffer, 1.7e9, 3, "weights", &histogram));
    lkt_ok(lki_event_next(buffer.data, buffer.used, &offset, &data, &nbytes));
    lkt_ok(lki_event_parse(data, nbytes, note, &s));
    assert_int_equal(s.histograms, 1);
    assert_int_equal(s.last.bucket_count, 4);
    assert_true(s.last.min == -1 && s.last.max == 2 && s.last.count == 4);
    assert_true(s.limits[0] == -1 && s.limits[3] == 2 && s.counts[0] == 0 && s.counts[3] == 3);
    /* Whatever is damaged in it is refused or read as another number, never beyond its end. */
    LKI_SCOPED uint8_t *copy = lki_calloc(nbytes, "an event");
    for (size_t at = 0; at < nbytes; at++)
        for (int bit = 0; bit < 8; bit++) {
            memcpy(copy, data, nbytes);
            copy[at] ^= (uint8_t)(1u << bit);
            lki_event_visit visit = at > 20 ? note : NULL; /* the step lies before */
            if (visit) (void)lki_event_parse(copy, nbytes, visit, &s);
        }
    assert_true(s.malformed > 0);
    lki_event_buffer_fini(&buffer);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    static const double falling[] = {0, -0.5, 2};
    const char *folder = lkt_scratch_folder("event_setup_refused");
    lk_log_step step = {.loader_key = "train", .epoch_step = 1};
    lk_histogram wrong = histogram;
    lk_logger *logger = lk_tensorboard_logger(folder);
    wrong.limits = falling;
    lkt_fails(lk_logger_log_histogram(logger, &step, "w", &wrong), LK_ERR_INVALID, "limit 1 is below");
    lkt_fails(lk_logger_log_hparams(logger, "[1]"), LK_ERR_INVALID, "no JSON object");
    lkt_fails(lk_logger_log_model(logger, "{}"), LK_ERR_INVALID, "no nodes");
    lkt_fails(lk_logger_log_model(logger, "{\"nodes\":[{}]}"), LK_ERR_INVALID, "has no name");
    lkt_ok(lk_logger_close(logger));
    logger = lk_csv_logger(folder); /* one that draws nothing takes no notice */
    lkt_ok(lk_logger_log_histogram(logger, &step, "w", &histogram));
    lkt_ok(lk_logger_log_model(logger, model));
    lkt_ok(lk_logger_close(logger));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_python_reads_them),
        cmocka_unit_test(test_they_are_read_back),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
