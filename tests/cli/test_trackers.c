/* A run in MLflow's file store, as a reader of that layout sees it. */
#include "run_folder.h"

#include <stdlib.h>

#define LOGGERS                                                                                              \
    " --run/0/loggers='[{_target_: MLflowLogger, experiment: digits, run_name: %s}]'"                        \
    " --run/0/callbacks='[{_target_: Accuracy, topk: [1]}, {_target_: ConfusionMatrixCallback, input_key: "  \
    "logits, target_key: targets, num_classes: 10}]'"

static bool has_yaml(void)
{
    if (!system("/usr/bin/python3 -c 'import yaml' 2>/dev/null")) return true;
    print_message("skipped: /usr/bin/python3 has no yaml\n");
    return false;
}

static void check_store(const char *run_name, const char *status, const char *logdir)
{
    char command[4096];
    snprintf(command, sizeof command,
             "cd '%s' && /usr/bin/python3 '%s/tests/oracle/mlruns_check.py' mlruns digits %s %s %s", folder,
             LK_SOURCE_DIR, run_name, status, logdir);
    assert_int_equal(system(command), 0);
}

static void run_as(const char *run_name, const char *more, int exit_code)
{
    char loggers[1024], arguments[4096];
    snprintf(loggers, sizeof loggers, LOGGERS, run_name);
    snprintf(arguments, sizeof arguments, "run -C " EXAMPLES "/digits.json --device cpu%s %s", loggers, more);
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code != exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
}

static void test_mlflow(void **state)
{
    (void)state;
    if (!has_yaml()) skip();
    enter("cli_mlflow");
    run_as("two_ranks", "--nproc 2", 0);
    check_store("two_ranks", "FINISHED", "logs");
    /* Another run of the experiment beside it. */
    run_as("again", "--logdir again --nproc 2", 0);
    check_store("again", "FINISHED", "again");
    check_store("two_ranks", "FINISHED", "");
    /* The model's loss is not finite in the first step. */
    run_as("failed", "--logdir failed --nproc 2 --optimizer/lr=1e38:float", 1);
    check_store("failed", "FAILED", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mlflow)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
