/* What a run writes and reads is the same where the program has set a locale whose decimal point is a comma.
 */
#include "case.h"

#include "times.h"

#include "base/number_text.h"
#include "logger/tracking.h"

#include <locale.h>
#include <unistd.h>

static char c_folder[1024], comma_folder[1024];

/* Makes such a locale in a folder of the test's own: machines for tests have none installed. */
static int make_comma_locale(void **state)
{
    (void)state;
    char command[2400], place[1100];
    snprintf(place, sizeof place, "%s", lkt_scratch_folder("train_locales"));
    snprintf(command, sizeof command, "localedef -f UTF-8 -i de_DE '%s/de_DE.UTF-8' > '%s/log' 2>&1", place,
             place);
    int failed = system(command);
    setenv("LOCPATH", place, 1);
    const char *set = setlocale(LC_ALL, "de_DE.UTF-8");
    if (!set)
        fprintf(stderr, "SKIPPED: no locale with a comma: localedef or its sources are missing (%d)\n",
                failed);
    setlocale(LC_ALL, "C");
    return 0;
}

/* Ends the test where there is no such locale. */
static void set_comma_locale(void)
{
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) skip();
    char text[8];
    snprintf(text, sizeof text, "%.1f", 0.5);
    assert_string_equal(text, "0,5");
}

static int set_c_locale(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    return 0;
}

static void numbers(void **state)
{
    (void)state;
    char text[64], *end;
    set_comma_locale();
    assert_int_equal(lki_snprintf(text, sizeof text, "%s %.2f %d", "a", 1.25, 7), 8);
    assert_string_equal(text, "a 1.25 7");
    assert_true(lki_strtod("1.5e1;", &end) == 15);
    assert_string_equal(end, ";");
    assert_true(lki_strtod("1,5", &end) == 1);
    assert_string_equal(end, ",5");
    assert_string_equal(localeconv()->decimal_point, ","); /* the program's own is left alone */
    lk_fail(LK_ERR_INVALID, "%g", 0.5);
    assert_string_equal(lk_error(), "0.5");
}

static void expect_path(const char *path_template, const char *expected)
{
    char *path = lk_field_path(path_template, "u", 0.5);
    lkt_not_null(path);
    assert_string_equal(path, expected);
    lk_text_free(path);
}

static void paths_of_fields(void **state)
{
    (void)state;
    set_comma_locale();
    expect_path("t{checkpoint}/{feature}.h5", "t0.5/u.h5");
    expect_path("t{checkpoint:05.2f}", "t00.50");
    expect_path("t{checkpoint:.3}", "t0.5");
}

static void train(const char *logdir, int epochs, lk_callback_list callbacks)
{
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_adam(.lr = 0.013),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = 8)},
                                          {"valid", lk_loader(lkt_points(20, 2), .batch_size = 8)}),
                    .callbacks = callbacks, .num_epochs = epochs, .logdir = logdir, .valid_loader = "valid",
                    .autoresume = "last"));
    lk_runner_free(runner);
}

/* A run, resumed with a log that must be read and written anew, then a search for a learning rate. */
static void leave_files(const char *logdir)
{
    train(logdir, 2, lk_callbacks(lk_confusion_matrix_callback(.num_classes = 3, .normalize = true)));
    FILE *log = fopen(lkt_path(logdir, "csv_logger/train.csv"), "a");
    fputs("3,0.", log); /* cut off by a crash */
    fclose(log);
    train(logdir, 3, lk_callbacks(lk_confusion_matrix_callback(.num_classes = 3, .normalize = true)));
    train(lkt_path(logdir, "finder"), 1, lk_callbacks(lk_lr_finder_callback(.final_lr = 0.5)));
}

static void expect_same_file(const char *name)
{
    char *expected = lkt_read(lkt_path(c_folder, "%s", name));
    char *actual = lkt_read(lkt_path(comma_folder, "%s", name));
    lkt_drop_times(actual, name);
    lkt_drop_times(expected, name);
    assert_string_equal(actual, expected);
    free(expected);
    free(actual);
}

static void files_of_a_run(void **state)
{
    (void)state;
    snprintf(c_folder, sizeof c_folder, "%s", lkt_scratch_folder("train_locale_c"));
    snprintf(comma_folder, sizeof comma_folder, "%s", lkt_scratch_folder("train_locale_comma"));
    leave_files(c_folder);
    set_comma_locale();
    leave_files(comma_folder);
    expect_same_file("csv_logger/train.csv");
    expect_same_file("csv_logger/valid.csv");
    expect_same_file("confusion_matrix/valid_0003.csv");
    expect_same_file("finder/lr_finder.csv");
    expect_same_file("hparams.json");
    expect_same_file("log.txt");
}

static void tracked_metrics(void **state)
{
    (void)state;
    char command[1400];
    lki_tracking *tracking;
    const char *folder = lkt_scratch_folder("train_locale_tracking");
    set_comma_locale();
    lkt_ok(lki_tracking_begin(&tracking, folder, "Default", "a run"));
    lkt_ok(lki_tracking_metric(tracking, "loss", 0.5, 1));
    lki_tracking_free(tracking);
    snprintf(command, sizeof command, "grep -q ' 0[.]5 1$' '%s'/0/*/metrics/loss", folder);
    assert_int_equal(system(command), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(numbers, set_c_locale),
        cmocka_unit_test_teardown(paths_of_fields, set_c_locale),
        cmocka_unit_test_teardown(files_of_a_run, set_c_locale),
        cmocka_unit_test_teardown(tracked_metrics, set_c_locale),
    };
    return cmocka_run_group_tests(tests, make_comma_locale, NULL);
}
