/* lockstep run --profile: the trace as a strict reader sees it, on one rank and on several, the summary, and
 * what is refused. */
#include "run_folder.h"

#include <stdlib.h>

static void check_trace(const char *logdir, int ranks, int train_batches)
{
    char command[4096];
    if (system("/usr/bin/python3 -c 'import json' 2>/dev/null")) {
        print_message("skipped: there is no /usr/bin/python3\n");
        skip();
    }
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/tests/oracle/trace_check.py' '%s/trace.json' %d %d", LK_SOURCE_DIR,
             path_of(logdir), ranks, train_batches);
    assert_int_equal(system(command), 0);
}

static const char *summary_of(const char *logdir)
{
    static char text[16384], path[1400];
    snprintf(path, sizeof path, "%s/profile.txt", path_of(logdir));
    read_whole(path, text, sizeof text);
    return text;
}

static void test_one_rank(void **state)
{
    (void)state;
    enter("cli_profile");
    check_done("run -C " EXAMPLES "/digits.json --device cpu");
    char hash[LK_HASH_LENGTH + 1];
    snprintf(hash, sizeof hash, "%s", hash_of(LAST("logs")));
    const said *r =
        lockstep_in(folder, "run -C " EXAMPLES "/digits.json --device cpu --profile --logdir one");
    assert_int_equal(r->exit_code, 0);
    check_trace("one", 1, 20);
    const char *text = summary_of("one");
    lkt_contains(r->out, text);
    lkt_contains(text, "20 of 20 train batches and 50 of 200 others, 1 rank");
    lkt_contains(text, "waiting for data and other ranks");
    lkt_contains(text, "linear_grad");
    lkt_contains(text, "% of ");
    lkt_contains(text, "what to try: ");
    assert_string_equal(hash_of(LAST("one")), hash); /* looking changes nothing */
}

/* In the profile, and in what --verbose prints after the first batch. */
static void test_fallbacks_are_named(void **state)
{
    (void)state;
    enter("cli_profile_fallbacks");
    const said *r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json --device cpu --verbose --profile "
                                        "--run/0/optimizer/_target_=LAMB");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "\nslow: update in LAMB is computed by ref's plain kernel: ");
    lkt_contains(summary_of("logs"), "\n  slow: update in LAMB is computed by ");
    r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json --device cpu --logdir quiet "
                            "--run/0/optimizer/_target_=LAMB");
    assert_null(strstr(r->out, "slow: "));
}

static void test_as_many_batches_as_asked(void **state)
{
    (void)state;
    enter("cli_profile_batches");
    check_done("run -C " EXAMPLES "/digits.json --device cpu --profile --run/0/profile_batches=7");
    check_trace("logs", 1, 7);
    lkt_contains(summary_of("logs"), "7 of 20 train batches and 7 of 200 others");
}

static void test_several_ranks(void **state)
{
    (void)state;
    enter("cli_profile_ranks");
    check_done("run -C " EXAMPLES "/digits.json --device cpu --profile --nproc 2 --logdir two");
    check_trace("two", 2, 10);
    lkt_contains(summary_of("two"), "2 ranks");
    lkt_contains(summary_of("two"), "communication");
    check_done("run -C " EXAMPLES "/digits.json --device cpu --profile --nproc 4 --comm gloo --logdir four");
    check_trace("four", 4, 5);
}

/* Ranks that say they are on two hosts look at two clocks. */
static void test_two_hosts(void **state)
{
    (void)state;
    char command[4096];
    enter("cli_profile_hosts");
    snprintf(command, sizeof command,
             "cd '%s' && P=%d; for r in 0 1; do LOCKSTEP_HOST_ID=host$r RANK=$r WORLD_SIZE=2 "
             "MASTER_ADDR=127.0.0.1 MASTER_PORT=$P '%s/lockstep' run -C " EXAMPLES
             "/digits.json --device cpu --profile > out$r 2>&1 & done; wait",
             folder, 20000 + (int)getpid() % 20000, LK_BUILD_DIR);
    assert_int_equal(system(command), 0);
    if (!exists("logs/trace.json")) {
        char said[16384];
        read_whole(path_of("out0"), said, sizeof said);
        fail_msg("%s", said);
    }
    check_trace("logs", 2, 10);
}

static void test_the_reference_engine_has_no_roofline(void **state)
{
    (void)state;
    enter("cli_profile_ref");
    check_done("run -C " EXAMPLES "/digits.json --device ref --profile");
    check_trace("logs", 1, 20);
    assert_null(strstr(summary_of("logs"), "% of "));
}

static void test_refused(void **state)
{
    (void)state;
    enter("cli_profile_refused");
    write_text("c.yml", "runner: {_target_: SupervisedRunner, model: {_target_: Linear, args: [3, 2]}}\n"
                        "run:\n- _call_: train\n  criterion: CrossEntropyLoss\n  optimizer: Adam\n"
                        "  loaders: {train: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, "
                        "count: 64}}}\n");
    check_refused(folder, "run -C c.yml --profile", 1, "profile: trace.json is written to the logdir");
    check_refused(folder, "run -C c.yml --logdir l --run/0/profile_batches=3", 1, "without profile");
    check_refused(folder, "run -C c.yml --logdir l --profile --run/0/profile_batches=-3", 1,
                  "profile_batches");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_fallbacks_are_named),
        cmocka_unit_test(test_as_many_batches_as_asked),
        cmocka_unit_test(test_several_ranks),
        cmocka_unit_test(test_two_hosts),
        cmocka_unit_test(test_the_reference_engine_has_no_roofline),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
