/* What evaluate and predict print and write: each format, read back by Python, and what is refused. */
#include "run_folder.h"

#include "config/write_outputs.h"

#include <math.h>
#include <stdlib.h>

#define CONFIG "-C " EXAMPLES "/digits.json"
#define MODEL  " -c " LAST("logs") " -l valid "
#define PER_CLASS                                                                                            \
    " --run/0/callbacks='[{_target_: PrecisionRecallF1SupportCallback, input_key: logits, target_key: "      \
    "targets, num_classes: 10, compute_per_class_metrics: y}]'"

static void run_to(const char *arguments, const char *name)
{
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    write_text(name, r->out);
}

static void test_every_format(void **state)
{
    (void)state;
    char command[4096];
    enter("cli_outputs");
    check_done("run " CONFIG " -e 1");
    check_done("predict " CONFIG MODEL "-o out.npy");
    check_done("predict " CONFIG MODEL "-o out.csv");
    check_done("predict " CONFIG MODEL "-o out.json");
    run_to("predict " CONFIG MODEL "-o out.jsonl --json", "printed.json");
    run_to("evaluate " CONFIG MODEL PER_CLASS " --json -o metrics.json", "metrics_printed.json");
    run_to("evaluate " CONFIG MODEL PER_CLASS " -o metrics.csv", "metrics.txt");
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null")) {
        print_message("skipped: /usr/bin/python3 has no numpy\n");
        skip();
    }
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/outputs_check.py' '%s'",
             LK_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
}

static void test_refused(void **state)
{
    (void)state;
    enter("cli_outputs_refused");
    check_refused(folder, "predict " CONFIG " -c x -o out.txt", 2,
                  "predict: --output: out.txt: predictions are written as .npy, .csv, .json or .jsonl");
    check_refused(folder, "predict " CONFIG " -c x -o npy", 2, "end the name so");
    check_refused(folder, "predict " CONFIG " -c x", 2, "predict: needs --output FILE or --json");
    check_refused(folder, "evaluate " CONFIG " -c x -o out.npy", 2, "metrics are written as .csv or .json");
    check_refused(folder, "evaluate " CONFIG " -c x --json -v", 2, "leave --verbose out");
    check_refused(folder, "evaluate " CONFIG " -c x -v --json -o a.csv", 2, "leave --verbose out");
    write_text("c.yml",
               "runner: {_target_: SupervisedRunner, model: {_target_: Sequential, args: [Flatten, "
               "{_target_: Linear, args: [784, 2]}]}}\nrun:\n- _call_: predict_loader\n  output: o.txt\n"
               "  loader: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, count: 6}}\n");
    check_refused(folder, "run -C c.yml", 2, "o.txt: predictions are written as");
    assert_false(exists("o.txt"));
}

static char *as_csv(const lk_tensor *outputs, const char *name)
{
    static char text[4096];
    lkt_ok(lki_write_predictions(path_of("x.csv"), outputs, name));
    read_whole(path_of("x.csv"), text, sizeof text);
    return text;
}

/* Numbers that JSON lacks, whole numbers, and samples of any shape. */
static void test_shapes_and_values(void **state)
{
    (void)state;
    char text[4096];
    enter("cli_outputs_shapes");
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(2, 1, 2)), *n = lk_tensor_create(LK_I64, LK_SHAPE(2)),
              *none = lk_tensor_create(LK_F32, LK_SHAPE(0, 3));
    lk_tensor_set(x, 0, NAN);
    lk_tensor_set(x, 1, -INFINITY);
    lk_tensor_set(x, 2, 0.1f);
    ((int64_t *)n->data)[1] = 9007199254740993;
    assert_string_equal(as_csv(x, "y"), "sample,y_0_0,y_0_1\n0,nan,-inf\n1,0.100000001,0\n");
    assert_string_equal(as_csv(n, "y"), "sample,y\n0,0\n1,9007199254740993\n");
    assert_string_equal(as_csv(none, "y"), "sample\n");
    lkt_ok(lki_write_predictions(path_of("x.json"), x, "y"));
    read_whole(path_of("x.json"), text, sizeof text);
    assert_string_equal(text, "[[[null, null]],\n [[0.100000001, 0]]]\n");
    lkt_ok(lki_write_predictions(path_of("x.jsonl"), n, "y"));
    read_whole(path_of("x.jsonl"), text, sizeof text);
    assert_string_equal(text, "0\n9007199254740993\n");
    lkt_fails(lki_write_predictions(path_of("no/folder/x.csv"), x, "y"), LK_ERR_IO, "no/folder");
    lk_tensor_free(x);
    lk_tensor_free(n);
    lk_tensor_free(none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_format),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_shapes_and_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
