/* Runs that go on with what an earlier one has left: resumed as they were, with something changed, in a
 * logdir that was copied or moved. */
#include "run_folder.h"

static void test_resume(void **state)
{
    (void)state;
    enter("cli_resume");
    check_done("run -C " EXAMPLES "/digits.json --logdir whole -e 4");
    check_done("run -C " EXAMPLES "/digits.json --logdir half -e 2");
    check_done("run -C " EXAMPLES "/digits.json --logdir half -e 4 --autoresume last");
    assert_string_equal(hash_of(LAST("whole")), hash_of(LAST("half")));
    check_done("run -C " EXAMPLES "/digits.json --logdir first -e 2");
    check_done("run -C " EXAMPLES
               "/digits.json --logdir rest -e 4 --resume first/checkpoints/runner.last.safetensors");
    assert_string_equal(hash_of(LAST("whole")), hash_of(LAST("rest")));
    check_refused(folder, "run -C " EXAMPLES "/digits.json --resume no.safetensors", 1, "no.safetensors");
}

/* ---- Resuming with something changed ---- */

#define DIGITS         "run -C " EXAMPLES "/digits.json "
#define RUNNER(logdir) logdir "/checkpoints/runner.last.safetensors"

/* A file as it was before files said which rule had written them. */
static void drop_strings(const char *name)
{
    lk_state_dict *whole = lk_load_safetensors(path_of(name)), *tensors = lk_state_dict_create();
    lkt_not_null(whole);
    for (int64_t i = 0; i < lk_state_dict_count(whole); i++)
        lkt_ok(lk_state_dict_put(tensors, lk_state_dict_name(whole, i),
                                 lk_tensor_view(lk_state_dict_tensor(whole, i))));
    assert_true(lk_state_dict_string_count(whole) > 0);
    lkt_ok(lk_save_safetensors(path_of(name), tensors));
    lk_state_dict_free(tensors);
    lk_state_dict_free(whole);
}

static void test_resume_with_another_optimizer(void **state)
{
    (void)state;
    enter("cli_resume_optimizer");
    static const struct {
        const char *first, *second, *fragment;
    } cases[] = {
        {"--run/0/optimizer=Adam", "'--run/0/optimizer={_target_: SGD, lr: 0.01}'",
         "the checkpoint's is Adam (exp_avg, exp_avg_sq), this run's is SGD (no state)"},
        {"--run/0/optimizer=Adam", "'--run/0/optimizer={_target_: SGD, lr: 0.01}' --nproc 2",
         "this run's is SGD (no state)"},
        {"--run/0/optimizer=Adam", "--run/0/optimizer=LAMB", "this run's is LAMB (exp_avg, exp_avg_sq)"},
        {"--run/0/optimizer=Adam", "--run/0/optimizer=Adagrad", "this run's is Adagrad (sum)"},
        {"--run/0/optimizer=Adam", "'--run/0/optimizer={_target_: Adam, amsgrad: y}'",
         "this run's is Adam (exp_avg, exp_avg_sq, max_exp_avg_sq)"},
        {"'--run/0/optimizer={_target_: SGD, lr: 0.01, momentum: 0.9}'",
         "'--run/0/optimizer={_target_: SGD, lr: 0.01}'",
         "the checkpoint's is SGD (momentum_buffer), this run's is SGD (no state)"},
        {"'--run/0/optimizer={_target_: SGD, lr: 0.01}'", "--run/0/optimizer=Adam",
         "the checkpoint's is SGD (no state)"},
        {"'--run/0/optimizer={_target_: RMSprop, momentum: 0.9}'", "--run/0/optimizer=RMSprop",
         "the checkpoint's is RMSprop (square_avg, momentum_buffer), this run's is RMSprop (square_avg)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char first[1024], second[1024];
        snprintf(first, sizeof first, DIGITS "--logdir l%zu -e 1 %s", i, cases[i].first);
        snprintf(second, sizeof second, DIGITS "--logdir l%zu -e 2 --autoresume last %s", i, cases[i].second);
        check_done(first);
        check_refused(folder, second, 1, cases[i].fragment);
        lkt_contains(lockstep_in(folder, second)->err, "autoresume best");
    }
    drop_strings(RUNNER("l0"));
    check_refused(folder,
                  DIGITS "--logdir l0 --autoresume last '--run/0/optimizer={_target_: SGD, lr: 0.01}'", 1,
                  "the checkpoint's is of a rule with exp_avg, exp_avg_sq, this run's is SGD (no state)");
}

/* As in PyTorch, where each loads the other's state: the moments mean the same. */
static void test_resume_from_adam_to_adamw(void **state)
{
    (void)state;
    enter("cli_resume_adamw");
    check_done(DIGITS "--logdir a -e 1 --run/0/optimizer=Adam");
    drop_strings(RUNNER("a"));
    check_done(DIGITS "--logdir a -e 2 --run/0/optimizer=Adam --autoresume last");
    const said *r = lockstep_in(folder, DIGITS "--logdir a -e 3 --run/0/optimizer=AdamW --autoresume last");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->err, "the checkpoint's optimizer is Adam, the run goes on with AdamW");
    r = lockstep_in(folder, DIGITS "--logdir a -e 4 --run/0/optimizer=AdamW --autoresume last");
    assert_int_equal(r->exit_code, 0);
    assert_string_equal(r->err, "");
}

/* The loggers of a config, in a folder of their own and in the run's (by another name). */
#define OWN_LOGGERS(logdir)                                                                                  \
    DIGITS "--logdir " logdir " '--run/0/loggers={csv: {_target_: CSVLogger, logdir: own}, jsonl: "          \
           "{_target_: JSONLLogger, path: own/log.jsonl}, tensorboard: {_target_: TensorboardLogger, "       \
           "logdir: own}}' "

static void check_rows(const char *name, int count)
{
    char text[8192];
    int lines = 0;
    read_whole(path_of(name), text, sizeof text);
    for (const char *at = text; *at; at++) lines += *at == '\n';
    if (lines != count + 1) fail_msg("%s: expected %d rows, found\n%s", name, count, text);
    for (int epoch = 1; epoch <= count; epoch++) lkt_close(logged(name, "step", epoch), epoch, 0);
}

static void test_the_configs_loggers_go_on(void **state)
{
    (void)state;
    enter("cli_resume_loggers");
    check_done(OWN_LOGGERS("logs") "-e 2");
    check_rows("own/csv_logger/train.csv", 2);
    lkt_shell_in(folder, "cp own/log.jsonl before.jsonl");
    check_refused(folder, OWN_LOGGERS("logs") "--run/0/loaders/train/batch_size=16 --resume none", 1, "none");
    lkt_shell_in(folder, "cmp own/log.jsonl before.jsonl");
    check_done(OWN_LOGGERS("logs") "-e 3 --autoresume last");
    check_rows("own/csv_logger/train.csv", 3);
    check_rows("logs/csv_logger/train.csv", 3);
    lkt_shell_in(folder, "test $(ls own/tensorboard/train | wc -l) = 2");
    lkt_shell_in(folder, "test $(grep -c '\"loader\":\"train\"' own/log.jsonl) = 3");
    /* A new run replaces what it finds. */
    check_done(OWN_LOGGERS("new") "-e 1");
    check_rows("own/csv_logger/train.csv", 1);
    lkt_shell_in(folder, "test $(ls own/tensorboard/train | wc -l) = 1");
    lkt_shell_in(folder, "test $(grep -c '\"loader\":\"train\"' own/log.jsonl) = 1");
}

static void test_loggers_in_the_runs_own_folder(void **state)
{
    (void)state;
    enter("cli_loggers_in_logdir");
    check_done(OWN_LOGGERS("./own/") "-e 2");
    check_rows("own/csv_logger/train.csv", 2);
    check_done(OWN_LOGGERS("./own/") "-e 4 --autoresume last");
    check_rows("own/csv_logger/train.csv", 4);
    check_rows("own/csv_logger/valid.csv", 4);
    lkt_shell_in(folder, "test $(ls own/tensorboard/train | wc -l) = 2");
    assert_true(exists("own/hparams.json"));
    const said *r = lockstep_in(folder, DIGITS "--logdir logs -e 1 -v --run/0/loggers=[ConsoleLogger]");
    assert_int_equal(r->exit_code, 0);
    const char *line = strstr(r->out, "train (1/1) ");
    assert_non_null(line);
    assert_null(strstr(line + 1, "train (1/1) "));
}

static void test_a_copied_logdir_is_a_run_of_its_own(void **state)
{
    (void)state;
    enter("cli_resume_copied");
    check_done(DIGITS "--logdir b0 -e 2");
    lkt_shell_in(folder, "cp -r b0 b1");
    check_done(DIGITS "--logdir b1 -e 4 --autoresume last");
    assert_true(exists("b0/checkpoints/model.0002.safetensors"));
    assert_false(exists("b1/checkpoints/model.0002.safetensors"));
    assert_true(exists("b1/checkpoints/model.0004.safetensors"));
}

/* Maximized, so that the best epoch is the first: its file is named by the list alone. */
static void test_a_logdir_that_has_moved(void **state)
{
    (void)state;
#define MAXIMIZED DIGITS "--run/0/valid_metric=loss --run/0/minimize_valid_metric=n "
    enter("cli_resume_moved");
    check_done(MAXIMIZED "--logdir b0 -e 2");
    lkt_shell_in(folder, "mv b0 b1 && mkdir sub");
    check_done(MAXIMIZED "--logdir b1 -e 3 --autoresume last");
    snprintf(folder, sizeof folder, "%s", path_of("sub"));
    check_done(MAXIMIZED "--logdir ../b1 -e 4 --autoresume last");
    assert_string_equal(hash_of("../b1/checkpoints/model.0001.safetensors"),
                        hash_of("../b1/checkpoints/model.best.safetensors"));
    char text[4096];
    read_whole(path_of("../b1/checkpoints/model.storage.json"), text, sizeof text);
    lkt_contains(text, "\"logdir\": \"../b1\"");
    lkt_contains(text, "\"logpath\": \"../b1/checkpoints/model.0001.safetensors\"");
}

/* A list of files of which one is gone, and one whose scores are another metric's. */
static void test_a_list_that_does_not_fit(void **state)
{
    (void)state;
    enter("cli_resume_list");
    check_done(MAXIMIZED "--logdir a -e 2");
    lkt_shell_in(folder, "rm a/checkpoints/model.0001.safetensors");
    check_done(MAXIMIZED "--logdir a -e 3 --autoresume last");
    assert_true(exists("a/checkpoints/model.0003.safetensors"));
    check_done(DIGITS "--logdir a -e 4 --autoresume last --run/0/valid_metric=accuracy01 "
                      "--run/0/minimize_valid_metric=n");
    assert_string_equal(hash_of("a/checkpoints/model.0004.safetensors"),
                        hash_of("a/checkpoints/model.best.safetensors"));
}

static void test_the_best_epoch_of_the_whole_run(void **state)
{
    (void)state;
    char whole[4096];
    enter("cli_resume_best");
    snprintf(whole, sizeof whole, "%s",
             strstr(lockstep_in(folder, MAXIMIZED "--logdir a -e 3 -v")->out, "\nepoch "));
    lkt_contains(whole, "best: epoch 1, train loss ");
    lkt_contains(whole, "\nbest checkpoint: a/checkpoints/model.best.safetensors\n");
    *strstr(whole, "best checkpoint: ") = '\0'; /* from there on it names the logdir */
    check_done(MAXIMIZED "--logdir b -e 2");
    const said *r = lockstep_in(folder, MAXIMIZED "--logdir b -e 3 -v --autoresume last");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, whole);
    check_done(MAXIMIZED "--logdir c -e 2 '--run/0/callbacks=[{_target_: Accuracy, topk: [1]}, {_target_: "
                         "CheckpointCallback, mode: runner, topk: 3}]'");
    r = lockstep_in(folder, MAXIMIZED "--logdir d -e 3 -v --resume c/checkpoints/runner.0002.safetensors");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, whole);
}

static void test_nothing_left_to_train(void **state)
{
    (void)state;
    enter("cli_resume_done");
    check_done(DIGITS "--logdir a -e 2");
    for (int epochs = 1; epochs <= 2; epochs++) {
        char arguments[1024];
        snprintf(arguments, sizeof arguments, DIGITS "--logdir a -e %d --autoresume last", epochs);
        const said *r = lockstep_in(folder, arguments);
        assert_int_equal(r->exit_code, 0);
        lkt_contains(r->err, "nothing to train: 2 epochs are done");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume),
        cmocka_unit_test(test_resume_with_another_optimizer),
        cmocka_unit_test(test_resume_from_adam_to_adamw),
        cmocka_unit_test(test_the_configs_loggers_go_on),
        cmocka_unit_test(test_loggers_in_the_runs_own_folder),
        cmocka_unit_test(test_a_copied_logdir_is_a_run_of_its_own),
        cmocka_unit_test(test_a_logdir_that_has_moved),
        cmocka_unit_test(test_a_list_that_does_not_fit),
        cmocka_unit_test(test_the_best_epoch_of_the_whole_run),
        cmocka_unit_test(test_nothing_left_to_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
