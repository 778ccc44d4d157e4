/* lockstep tune: studies as processes, which are killed, stopped and go on. */
#include "run_folder.h"

#include <fcntl.h>
#include <signal.h>
#include <time.h>

/* A linear model on 400 digits: its loss after three epochs is lowest near a rate of 0.02. */
#define MODEL                                                                                                \
    "runner:\n"                                                                                              \
    "  _target_: SupervisedRunner\n"                                                                         \
    "  model: {_var_: model, _target_: Sequential, args: [Flatten, {_target_: Linear, args: [784, 10]}]}\n"  \
    "run:\n"                                                                                                 \
    "  - _call_: train\n"                                                                                    \
    "    criterion: CrossEntropyLoss\n"                                                                      \
    "    loaders:\n"                                                                                         \
    "      train: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, train: y, count: 400}, "       \
    "batch_size: 40}\n"                                                                                      \
    "      valid: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, train: n, count: 200}, "       \
    "batch_size: 50}\n"                                                                                      \
    "    num_epochs: 3\n"                                                                                    \
    "    logdir: logs\n"                                                                                     \
    "    valid_loader: valid\n"
#define OPTIMIZER  "    optimizer: {_target_: Adam, lr: 0.02}\n"
#define TUNE(more) "tune:\n  metric: valid/loss\n" more "  parameters:\n    optimizer/lr: {log: [1e-5, 10]}\n"

static void write_config(const char *name, const char *tune)
{
    char text[4096];
    snprintf(text, sizeof text, "%s%s%s", MODEL, OPTIMIZER, tune);
    write_text(name, text);
}

static const char *study_file(void)
{
    static char text[65536];
    read_whole(path_of("logs/study.jsonl"), text, sizeof text);
    return text;
}

static int count_of(const char *text, const char *fragment)
{
    int count = 0;
    for (; (text = strstr(text, fragment)) != NULL; text++) count++;
    return count;
}

/* `lockstep tune -C c.yml -q` and these words as a child of ours, in the folder. */
static pid_t start(const char *jobs, const char *trials)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(folder) != 0) _exit(3);
    dup2(open("err", O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    execl(LK_BUILD_DIR "/lockstep", "lockstep", "tune", "-C", "c.yml", "-q", "--jobs", jobs, "--trials",
          trials, (char *)NULL);
    _exit(4);
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* Waits until the study's file has so many epochs. */
static void until_epochs(int count)
{
    while (!exists("logs/study.jsonl") || count_of(study_file(), "\"epoch\"") < count) nap();
}

/* ---- Searching ---- */

static void test_finds_the_rate(void **state)
{
    (void)state;
    enter("cli_tune_rate");
    write_config("c.yml", TUNE("  trials: 20\n"));
    const said *r = lockstep_in(folder, "tune -C c.yml --nproc=2");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    lkt_contains(r->out, "20 trials in logs, search TPE: the lowest valid/loss");
    int best = -1;
    double loss = 0, rate = 0;
    const char *row = strstr(r->out, "trial  state");
    assert_non_null(row);
    assert_int_equal(sscanf(strchr(row, '\n'), " %d complete 3 %lf %lf", &best, &loss, &rate), 3);
    if (rate < 0.003 || rate > 0.1) fail_msg("the best rate is %g, with a loss of %g", rate, loss);
    char name[64];
    snprintf(name, sizeof name, "best trial: %d, in logs/trial_%04d", best, best);
    lkt_contains(r->out, name);
    lkt_contains(r->out, "lockstep run -C logs/best.yml");
    /* What it says it has found is what a run with those values comes to, on as many ranks. */
    check_done("run -C logs/best.yml");
    snprintf(name, sizeof name, "logs/trial_%04d/csv_logger/valid.csv", best);
    for (int epoch = 1; epoch <= 3; epoch++)
        assert_true(logged("logs/best/csv_logger/valid.csv", "loss", epoch) == logged(name, "loss", epoch));
    check_done("watch logs/trial_0007");
    static char settings[4096];
    read_whole(path_of("logs/trial_0007/hparams.json"), settings, sizeof settings);
    lkt_contains(settings, "\"lr\": ");
    assert_true(exists("logs/trial_0019.log") && !exists("logs/trial_0020"));
}

static void test_same_seed_same_trials(void **state)
{
    (void)state;
    static char first[65536];
    enter("cli_tune_seed");
    write_config("c.yml", TUNE("  trials: 13\n"));
    check_done("tune -C c.yml --num_epochs=1");
    strcpy(first, study_file());
    check_done("tune -C c.yml --num_epochs=1 --new");
    assert_string_equal(first, study_file());
    assert_true(exists("logs.1/study.jsonl"));
    check_done("tune -C c.yml --num_epochs=1 --new --seed 7 --trials 1");
    lkt_contains(study_file(), "\"seed\":7,");
    char values[200];
    snprintf(values, sizeof values, "%s", strstr(study_file(), "\"values\""));
    values[strcspn(values, "\n")] = '\0';
    assert_null(strstr(first, values));
}

static void test_grid(void **state)
{
    (void)state;
    enter("cli_tune_grid");
    write_config("c.yml", "tune:\n  search: grid\n  metric: valid/accuracy01\n  minimize: n\n  parameters:\n"
                          "    optimizer/lr: {log: [1e-3, 0.1], points: 3}\n"
                          "    optimizer/_target_: {choices: [SGD, Adam], name: rule}\n"
                          "    run/0/callbacks: [[{_target_: Accuracy, topk: [1]}]]\n");
    const said *r = lockstep_in(folder, "tune -C c.yml -q --num_epochs=1 --jobs 3");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    assert_int_equal(count_of(r->out, " complete "), 6);
    assert_int_equal(count_of(r->out, " Adam "), 3);
    assert_int_equal(count_of(r->out, "0.001 "), 2);
    lkt_contains(r->out, "valid/accuracy01  lr     rule  callbacks");
}

static void test_halving(void **state)
{
    (void)state;
    enter("cli_tune_halving");
    write_config("c.yml", TUNE("  pruner: {_target_: halving, reduction_factor: 2}\n  search: random\n"));
    const said *r = lockstep_in(folder, "tune -C c.yml --trials 8 -j 2");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    lkt_contains(r->out, "pruned by successive halving");
    lkt_contains(r->out, ", pruned at epoch 1\n");
    int complete = count_of(study_file(), "\"complete\""), pruned = count_of(study_file(), "\"pruned\"");
    assert_true(complete >= 1 && pruned >= 3 && complete + pruned == 8);
}

/* ---- Catalyst's form ---- */

static void test_catalyst_study(void **state)
{
    (void)state;
    enter("cli_tune_study");
    write_text("c.yml",
               "shared: {lr: &lr {_var_: trial.suggest_loguniform, name: lr, low: 1.0e-5, high: 10}}\n"
               "study:\n  _target_: optuna.create_study\n  direction: maximize\n"
               "  sampler: {_target_: optuna.samplers.RandomSampler, seed: 3}\n"
               "  pruner: {_target_: optuna.pruners.MedianPruner, n_startup_trials: 2}\n" MODEL
               "    valid_metric: accuracy01\n    minimize_valid_metric: n\n"
               "    optimizer: {_target_: torch.optim.Adam, lr: *lr, betas: [0.9, {_var_: "
               "trial.suggest_categorical, name: beta, choices: [0.9, 0.99]}]}\n"
               "    callbacks:\n"
               "      accuracy: {_target_: catalyst.callbacks.AccuracyCallback, topk: [1]}\n"
               "      optuna: {_target_: catalyst.callbacks.OptunaPruningCallback, loader_key: valid, "
               "metric_key: accuracy01, minimize: n, trial: {_var_: trial}}\n");
    const said *r = lockstep_in(folder, "tune -C c.yml --n-trials 8 -q");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    lkt_contains(r->out, "valid/accuracy01  lr");
    assert_true(count_of(r->out, " pruned ") >= 1);
    assert_int_equal(count_of(r->out, " pruned ") + count_of(r->out, " complete "), 8);
    check_done("run -C logs/best.yml");
    check_refused(folder, "run -C c.yml", 2, "study: this config is for `lockstep tune`");
    check_refused(folder, "run -C c.yml --study=null", 2, "trial.suggest_loguniform is for `lockstep tune`");
    write_config("d.yml", "");
    check_refused(folder, "run -C d.yml --run/0/callbacks='[OptunaPruningCallback]' --logdir d", 2,
                  "this run is no trial: start it with `lockstep tune`");
}

/* Suggestions as calls of Python's, as older configs of Catalyst have them. */
static void test_python_calls(void **state)
{
    (void)state;
    enter("cli_tune_calls");
    write_text("c.yml",
               "study: {_target_: optuna.create_study}\n" MODEL
               "    optimizer: {_target_: \"trial.suggest_categorical('rule', ['SGD', \\\"Adam\\\"])\", "
               "lr: \" float( trial.suggest_loguniform ('lr', low=1e-3, high=0.1))\"}\n");
    static const struct {
        const char *call, *sentence;
    } wrong[] = {{"trial.suggest_int('a', 2, 3", "expected a call as in"},
                 {"trial.suggest_foo('a')", "expected a call as in"},
                 {"int(trial.suggest_int('a', 2, 3)", "expected a call as in"},
                 {"trial.suggest_int('a', 2, 3) + 1", "expected a call as in"},
                 {"trial.suggest_int('a', lo=2)", "unknown key \"lo\"; did you mean \"low\"?"},
                 {"trial.suggest_int('a", "expected a call as in"},
                 {"trial.suggest_int('a', {, 3)", "expected a call as in"},
                 {"trial.suggest_int()", "name is missing"},
                 {"trial.suggest_float('a', 3)", "low and high are missing"}};
    char words[512];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(words, sizeof words, "tune -C c.yml --run/0/num_epochs=\"%s:str\"", wrong[i].call);
        check_refused(folder, words, 2, wrong[i].sentence);
    }
    const said *r =
        lockstep_in(folder, "tune -C c.yml -n 6 -q "
                            "--run/0/num_epochs=\"int(trial.suggest_uniform('epochs', 1, 2.9)):str\"");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    assert_int_equal(count_of(r->out, " SGD ") + count_of(r->out, " Adam "), 6);
    assert_int_equal(count_of(r->out, " complete  1 ") + count_of(r->out, " complete  2 "), 6);
}

/* ---- Interruptions ---- */

/* What the table says is what it would have said without them. */
static void test_goes_on_after_kills(void **state)
{
    (void)state;
    static char expected[65536];
    int status;
    enter("cli_tune_kill");
    write_config("c.yml", TUNE("  pruner: median\n"));
    const said *r = lockstep_in(folder, "tune -C c.yml -q --trials 14");
    assert_int_equal(r->exit_code, 0);
    strcpy(expected, r->out);
    lkt_shell_in(folder, "rm -r logs");
    for (int epochs = 1; epochs < 30; epochs += 4) {
        pid_t study = start("1", "14");
        until_epochs(epochs);
        kill(study, SIGKILL);
        assert_int_equal(waitpid(study, &status, 0), study);
    }
    r = lockstep_in(folder, "tune -C c.yml -q --trials 14 --resume");
    if (r->exit_code) fail_msg("%d: %s", r->exit_code, r->err);
    assert_string_equal(r->out, expected);
    assert_int_equal(count_of(study_file(), "\"values\""), 14);
    assert_int_equal(count_of(study_file(), "\"state\""), 14);
    /* A finished study only prints its table again, or has more trials. */
    r = lockstep_in(folder, "tune -C c.yml -q --trials 14");
    assert_string_equal(r->out, expected);
    check_done("tune -C c.yml -q --trials 16");
    assert_int_equal(count_of(study_file(), "\"state\""), 16);
}

static void test_stops_by_a_signal(void **state)
{
    (void)state;
    static char err[16384];
    int status;
    enter("cli_tune_stop");
    write_config("c.yml", TUNE(""));
    static const int numbers[] = {SIGINT, SIGTERM};
    for (int i = 0; i < 2; i++) {
        pid_t study = start("2", "500");
        until_epochs(4 + 6 * i);
        kill(study, numbers[i]);
        assert_int_equal(waitpid(study, &status, 0), study);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == numbers[i]);
        read_whole(path_of("err"), err, sizeof err);
        lkt_contains(
            err, "lockstep: the study is kept in logs/study.jsonl; go on with:\n  lockstep tune -C c.yml -q "
                 "--jobs 2 --trials 500\n");
    }
    assert_null(strstr(study_file(), "failed"));
    int begun = count_of(study_file(), "\"values\"");
    char words[64];
    snprintf(words, sizeof words, "tune -C c.yml -q --jobs 2 --trials %d", begun);
    check_done(words);
    assert_int_equal(count_of(study_file(), "\"complete\""), begun);
}

/* ---- Failures ---- */

static void test_failed_trials(void **state)
{
    (void)state;
    enter("cli_tune_fail");
    write_text("x.npy", "not an array");
    write_config("c.yml",
                 "tune:\n  search: grid\n  max_failures: 2\n  parameters:\n"
                 "    run/0/loaders/valid/dataset: [{_target_: SyntheticDigits, train: n, count: 50}, "
                 "{_target_: TensorDataset, args: [x.npy, x.npy]}]\n"
                 "    optimizer/lr: [0.01, 0.02]\n");
    const said *r = lockstep_in(folder, "tune -C c.yml --num_epochs=1");
    assert_int_equal(r->exit_code, 1);
    lkt_contains(r->out, "trial 2: failed: ");
    lkt_contains(r->err, "tune: 2 trials in a row failed; the last, trial 3: ");
    lkt_contains(r->err, "x.npy");
    assert_int_equal(count_of(r->out, " complete "), 2);
    assert_int_equal(count_of(study_file(), "\"failed\""), 2);
    r = lockstep_in(folder, "tune -C c.yml --num_epochs=1 --max-failures 3 --logdir more");
    assert_int_equal(r->exit_code, 0); /* a failed trial is no failed study */
    lkt_contains(r->out, "best trial: ");
}

/* The first process that `parent` has forked; 0: none, or this kernel does not say. */
static pid_t child_of(pid_t parent)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%d", &pid) != 1) pid = 0;
    fclose(file);
    return pid;
}

static void test_killed_trial(void **state)
{
    (void)state;
    int status;
    enter("cli_tune_killed");
    write_config("c.yml", "tune: {parameters: {run/0/num_epochs: [30], optimizer/lr: {log: [1e-3, 0.1]}}}\n");
    pid_t study = start("1", "4"), trial = 0;
    until_epochs(1);
    while (!trial && (trial = child_of(study)) == 0 && waitpid(study, &status, WNOHANG) == 0) nap();
    if (!trial) skip(); /* it has ended, or its children cannot be seen */
    kill(trial, SIGKILL);
    assert_int_equal(waitpid(study, &status, 0), study);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(count_of(study_file(), "\"it was killed by signal 9 (Killed)\""), 1);
    assert_int_equal(count_of(study_file(), "\"complete\""), 3);
}

static void test_refusals(void **state)
{
    (void)state;
    enter("cli_tune_refusals");
    static const struct {
        const char *tune, *sentence;
    } cases[] = {
        {"", "c.yml:1: tune: nothing is to be searched"},
        {"tune: {trials: 3}\n", "nothing is to be searched"},
        {TUNE("  trial: 3\n"), "c.yml:16: tune: unknown key \"trial\"; did you mean \"trials\"?"},
        {TUNE("  trials: 0\n"), "c.yml:16: trials: expected an integer from 1"},
        {TUNE("  search: annealing\n"),
         "c.yml:16: search: expected random, grid or tpe, found \"annealing\""},
        {TUNE("  pruner: {_target_: median, reduction_factor: 3}\n"),
         "pruner: unknown key \"reduction_factor\""},
        {TUNE("  search: grid\n"), "a grid needs values that can be counted: give \"lr\" points or a step"},
        {"tune: {parameters: {optimizer/lr: {log: [0, 1]}}}\n", "a logarithm needs numbers above 0, found 0"},
        {"tune: {parameters: {optimizer/lr: {uniform: [2, 1]}}}\n", "the lowest value before the highest"},
        {"tune: {parameters: {optimizer/lr: {int: [1, 2.5]}}}\n", "expected integers"},
        {"tune: {parameters: {optimizer/lr: {log: [1, 2], step: 1}}}\n", "log and step exclude each other"},
        {"tune: {parameters: {optimizer/lr: {log: [1, 2], choices: [1]}}}\n",
         "choices take nothing but a name"},
        {"tune: {parameters: {optimizer/lr: []}}\n", "expected a list of choices"},
        {"tune: {parameters: {optimizer/lr: {}}}\n", "expected one of uniform, log, int and choices"},
        {"tune: {parameters: {optimiser/lr: [1]}}\n", "\"optimiser\" is no key of the config"},
        {"tune: {parameters: {optimizer/lr: [1, fast]}}\n", "lr: expected a number, found \"fast\""},
        {"tune: {parameters: {optimizer/_target_: [Adam, SDG]}}\n", "unknown component \"SDG\""},
        {"tune: {metric: [], parameters: {optimizer/lr: [1]}}\n", "metric: expected a string"},
        {TUNE("") "study: {_target_: optuna.create_study}\n", "keep one of them"},
        {"study: {_target_: optuna.create_study, direction: up}\n", "expected minimize or maximize"},
        {"study: {_target_: optuna.create_study, storage: sqlite}\n", "storage: leave it out"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config("c.yml", cases[i].tune);
        check_refused(folder, "tune -C c.yml", 2, cases[i].sentence);
    }
    write_config("c.yml", TUNE("  trials: 1\n"));
    check_refused(folder, "tune", 2, "tune: needs -C FILE");
    check_refused(folder, "tune -C c.yml --resume --new", 2, "contradict each other");
    check_refused(folder, "tune -C c.yml --resume", 1, "--resume: there is no study in logs");
    check_refused(folder, "tune -C c.yml --logdir=''", 1, "could not");
    check_refused(folder, "tune -C c.yml --run/0/logdir=null", 2,
                  "the config has no logdir: give --logdir DIR");
    check_done("tune -C c.yml -q --num_epochs=1");
    check_refused(folder, "tune -C c.yml", 2, "an earlier study lies there with another \"config\"");
    check_refused(folder, "tune -C c.yml --num_epochs=1 --search grid", 2, "values that can be counted");
    check_refused(folder, "tune -C c.yml --num_epochs=1 --search random", 2, "with another \"search\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_the_rate),
        cmocka_unit_test(test_same_seed_same_trials),
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_halving),
        cmocka_unit_test(test_catalyst_study),
        cmocka_unit_test(test_python_calls),
        cmocka_unit_test(test_goes_on_after_kills),
        cmocka_unit_test(test_stops_by_a_signal),
        cmocka_unit_test(test_failed_trials),
        cmocka_unit_test(test_killed_trial),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
