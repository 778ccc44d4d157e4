/* The file of a study: what was written is there again, whatever ended the study. */
#include "memory_study.h"

#include <unistd.h>

static const lki_parameter_space space[] = {{"lr", {LKI_RANGE_FLOAT, 0, 1, false, 0, 0}},
                                            {"kind", {LKI_RANGE_CHOICE, 0, 2, false, 1, 0}}};
#define DESCRIPTION "{\"study\": 1, \"seed\": 42, \"parameters\": [\"lr\", \"kind\"]}"

static char path[1200];

static lki_study new_study(void)
{
    return (lki_study){.parameters = space, .parameter_count = 2, .minimize = true};
}

static void begin(const char *name)
{
    snprintf(path, sizeof path, "%s/study.jsonl", lkt_scratch_folder(name));
}

static void append(const char *text)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void write_some(void)
{
    lki_trial *trial;
    lki_study study = new_study();
    lkt_ok(lki_study_open(&study, path, DESCRIPTION));
    add_trial(&study, (double[]){0.1, 2}, (double[]){3, 1.0 / 3}, 2, LKI_TRIAL_COMPLETE);
    lkt_ok(lki_study_begin(&study, (double[]){1e-300, 0}, &trial));
    lkt_ok(lki_study_end(&study, trial, LKI_TRIAL_FAILED, "a \"sentence\"\nof two lines"));
    add_trial(&study, (double[]){0.25, 1}, (double[]){NAN, INFINITY, -INFINITY}, 3, LKI_TRIAL_PRUNED);
    lkt_ok(lki_study_begin(&study, (double[]){0.7, 1}, &trial));
    lkt_ok(lki_study_report(&study, trial, 1, 5, false));
    lkt_ok(lki_study_report(&study, trial, 2, 4, true));
    lki_study_close(&study);
}

static void check_some(const lki_study *study)
{
    assert_int_equal(study->trial_count, 4);
    lki_trial **t = study->trials;
    assert_true(t[0]->values[0] == 0.1 && t[0]->values[1] == 2 && t[0]->state == LKI_TRIAL_COMPLETE);
    assert_true(lki_trial_value(t[0]) == 1.0 / 3 && t[0]->epochs[1].epoch == 2);
    assert_true(t[1]->values[0] == 1e-300 && t[1]->state == LKI_TRIAL_FAILED);
    assert_string_equal(t[1]->sentence, "a \"sentence\"\nof two lines");
    assert_true(isnan(t[2]->epochs[0].value) && t[2]->epochs[1].value == INFINITY);
    assert_true(lki_trial_value(t[2]) == -INFINITY && t[2]->state == LKI_TRIAL_PRUNED);
    assert_true(t[3]->state == LKI_TRIAL_OPEN && t[3]->is_to_end && lki_trial_value(t[3]) == 4);
    assert_ptr_equal(lki_study_best(study), t[0]);
}

static void test_reads_what_it_wrote(void **state)
{
    (void)state;
    begin("tune_study");
    write_some();
    lki_study study = new_study();
    lkt_ok(lki_study_open(&study, path, DESCRIPTION));
    check_some(&study);
    lkt_ok(lki_study_report(&study, study.trials[3], 2, 9, false)); /* said before: passed over */
    assert_true(lki_trial_value(study.trials[3]) == 4);
    lki_study_close(&study);
}

/* Cut off at every byte: each time the whole lines are there, and the study goes on behind them. */
static void test_torn_at_any_byte(void **state)
{
    (void)state;
    static char text[4096];
    begin("tune_study_torn");
    write_some();
    FILE *file = fopen(path, "r");
    size_t nbytes = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t length = 0; length <= nbytes; length++) {
        file = fopen(path, "w");
        assert_int_equal(fwrite(text, 1, length, file), length);
        fclose(file);
        lki_study study = new_study();
        lkt_ok(lki_study_open(&study, path, DESCRIPTION));
        int before = study.trial_count;
        add_trial(&study, (double[]){0.5, 1}, (double[]){2}, 1, LKI_TRIAL_COMPLETE);
        lki_study_close(&study);
        study = new_study();
        lkt_ok(lki_study_open(&study, path, DESCRIPTION));
        assert_int_equal(study.trial_count, before + 1);
        assert_true(lki_trial_value(study.trials[before]) == 2);
        lki_study_close(&study);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    begin("tune_study_refusals");
    write_some();
    lki_study study = new_study(), other = new_study();
    lkt_fails(
        lki_study_open(&study, path, "{\"study\": 1, \"seed\": 43, \"parameters\": [\"lr\", \"kind\"]}"),
        LK_ERR_CONFIG, "with another \"seed\"");
    lkt_ok(lki_study_open(&study, path, DESCRIPTION));
    lkt_fails(lki_study_open(&other, path, DESCRIPTION), LK_ERR_INVALID,
              "another `lockstep tune` is at work");
    lki_study_close(&study);
    static const char *const wrong[] = {"{\"trial\": 9, \"epoch\": 1, \"value\": 2}\n",
                                        "{\"trial\": 0, \"state\": \"lost\"}\n",
                                        "{\"trial\": 7, \"values\": {\"lr\": 1, \"kind\": 0}}\n",
                                        "{\"trial\": 4, \"values\": {\"lr\": 1}}\n",
                                        "no JSON\n",
                                        "[]\n",
                                        "\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        begin("tune_study_refusals");
        write_some();
        append(wrong[i]);
        study = new_study();
        lkt_fails(lki_study_open(&study, path, DESCRIPTION), LK_ERR_FORMAT,
                  "study.jsonl:16: not a line of a study");
    }
    begin("tune_study_refusals");
    append("something else\n");
    lkt_fails(lki_study_open(&study, path, DESCRIPTION), LK_ERR_FORMAT, "study.jsonl:1: not a line");
    lkt_fails(lki_study_open(&study, "/nowhere/study.jsonl", DESCRIPTION), LK_ERR_IO, "could not open");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_what_it_wrote),
        cmocka_unit_test(test_torn_at_any_byte),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
