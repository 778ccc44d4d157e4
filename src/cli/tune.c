/* lockstep tune: searches for the best values of a config's keys. Each trial is a run of its own, in a
 * process of its own and in LOGDIR/trial_NNNN; LOGDIR/study.jsonl keeps what came of them. */
#include "cli/tune.h"

#include "cli/after_run.h"
#include "cli/commands.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "launch/role.h"
#include "tune/study_file.h"

#include <lockstep/log.h>

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OFFSET(field) offsetof(lki_tune_options, field)

enum { MAX_JOBS = 1024, MAX_NUMBER = 1000000000, MAX_MOVED = 10000 };

static const lki_option table[] = {
    {"config", 'C', LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL,
     "a config; later files are merged over earlier ones", 0},
    {"configs", 0, LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL, "the same as --config", 0},
    LKI_EXPDIR_OPTION(OFFSET(config.expdir)),
    {"logdir", 0, LKI_OPTION_TEXT, OFFSET(logdir), "DIR", NULL, "directory of the study (that of the config)",
     0},
    {"trials", 'n', LKI_OPTION_INT, OFFSET(trials), "N", NULL, "number of trials (20, or the whole grid)", 1},
    {"n-trials", 0, LKI_OPTION_INT, OFFSET(trials), "N", NULL, "the same as --trials", 1},
    {"jobs", 'j', LKI_OPTION_INT, OFFSET(jobs), "N", NULL, "trials at once, which share the cores (1)", 1},
    {"n-jobs", 0, LKI_OPTION_INT, OFFSET(jobs), "N", NULL, "the same as --jobs", 1},
    {"search", 0, LKI_OPTION_TEXT, OFFSET(search), NULL, "random|grid|tpe", "how values are chosen (tpe)", 0},
    {"pruner", 0, LKI_OPTION_TEXT, OFFSET(pruner), NULL, "none|median|halving",
     "which trials end early (none)", 0},
    {"seed", 0, LKI_OPTION_INT, OFFSET(seed), "N", NULL, "seed of the search (42)", 0},
    {"timeout", 0, LKI_OPTION_INT, OFFSET(timeout), "SECONDS", NULL, "start no trial after that time", 1},
    {"max-failures", 0, LKI_OPTION_INT, OFFSET(max_failures), "N", NULL,
     "failed trials in a row that end the study (5)", 1},
    {"resume", 0, LKI_OPTION_FLAG, OFFSET(resume), NULL, NULL,
     "go on with the study in the logdir; fail if there is none", 0},
    {"new", 0, LKI_OPTION_FLAG, OFFSET(begin_anew), NULL, NULL,
     "begin anew: what is in the logdir moves to LOGDIR.1", 0},
    {"quiet", 'q', LKI_OPTION_FLAG, OFFSET(quiet), NULL, NULL, "print the table only", 0},
    {0},
};

/* ---- Before the trials ---- */

static lk_status check_options(const lki_tune_options *o)
{
    lki_role role;
    const lki_option_int *numbers[] = {&o->trials, &o->timeout, &o->max_failures};
    if (o->resume && o->begin_anew)
        return lki_fail(LK_ERR_CONFIG, "tune: --resume and --new contradict each other");
    if (o->jobs.value > MAX_JOBS)
        return lki_fail(LK_ERR_CONFIG, "tune: --jobs: expected at most %d, found %lld", MAX_JOBS,
                        o->jobs.value);
    for (int i = 0; i < 3; i++)
        if (numbers[i]->value > MAX_NUMBER)
            return lki_fail(LK_ERR_CONFIG, "tune: %lld is more than %d", numbers[i]->value, MAX_NUMBER);
    LKI_TRY(lki_launch_role(&role, lki_process_flags(), NULL, -1));
    if (role.world_size > 1)
        return lki_fail(LK_ERR_CONFIG,
                        "tune: this process is one of %d ranks: start the study once; its trials start ranks "
                        "of their own, as --nproc=2 says",
                        role.world_size);
    return LK_OK;
}

/* That of the option, else of the call. */
static lk_status settle_logdir(lki_tuning *tuning)
{
    const lki_node *calls = lki_node_get(tuning->config->tree.root, "run");
    const lki_node *logdir = lki_node_get(calls->entries[tuning->call].value, "logdir");
    tuning->logdir = tuning->options->logdir;
    if (tuning->logdir) return LK_OK;
    if (lki_node_is_null(logdir))
        return lki_fail_at(calls->entries[tuning->call].place,
                           "tune: the config has no logdir: give --logdir DIR");
    return lki_node_string(logdir, "logdir", &tuning->logdir);
}

static lk_status settle_grid(lki_tuning *tuning)
{
    if (tuning->search.kind != LKI_SEARCH_GRID) return LK_OK;
    for (int i = 0; i < tuning->parameter_count; i++)
        if (!lki_range_count(&tuning->parameters[i].range))
            return lki_fail_at(tuning->parameters[i].place,
                               "tune: a grid needs values that can be counted: give \"%s\" points or a step",
                               tuning->parameters[i].name);
    int64_t count = lki_search_grid_count(&tuning->study);
    if (!count) return lki_fail(LK_ERR_CONFIG, "tune: the grid has more than a million trials");
    if (!tuning->trials || tuning->trials > count) tuning->trials = (int)count;
    return LK_OK;
}

/* LOGDIR becomes LOGDIR.1, or the first number that is free. */
static lk_status move_away(const char *logdir)
{
    for (int i = 1; i < MAX_MOVED; i++) {
        size_t length = strlen(logdir);
        while (length > 1 && logdir[length - 1] == '/') length--;
        LKI_SCOPED char *to = lki_format("%.*s.%d", (int)length, logdir, i);
        if (!to) return LK_ERR_NOMEM;
        if (access(to, F_OK) == 0) continue;
        if (rename(logdir, to) == 0) return LK_OK;
        return lki_fail(LK_ERR_IO, "%s: could not be moved to %s: %s", logdir, to, strerror(errno));
    }
    return lki_fail(LK_ERR_IO, "%s: there are %d earlier ones already", logdir, MAX_MOVED - 1);
}

static lk_status open_study(lki_tuning *tuning)
{
    LKI_SCOPED char *path = lki_format("%s/study.jsonl", tuning->logdir);
    LKI_SCOPED char *description = lki_tune_describe(tuning);
    if (!path || !description) return LK_ERR_NOMEM;
    bool is_there = access(path, F_OK) == 0;
    if (tuning->options->resume && !is_there)
        return lki_fail(LK_ERR_NOT_FOUND, "tune: --resume: there is no study in %s", tuning->logdir);
    if (tuning->options->begin_anew && access(tuning->logdir, F_OK) == 0) {
        LKI_TRY(lki_study_file_check_rest(path));
        LKI_TRY(move_away(tuning->logdir));
    }
    LKI_TRY(lki_make_folders(tuning->logdir));
    return lki_study_open(&tuning->study, path, description);
}

static lk_status prepare(lki_tuning *tuning)
{
    LKI_TRY(lki_tune_read(tuning));
    tuning->study = (lki_study){.parameters = tuning->spaces,
                                .parameter_count = tuning->parameter_count,
                                .minimize = tuning->minimize,
                                .seed = tuning->seed,
                                .fd = -1};
    LKI_TRY(settle_logdir(tuning));
    LKI_TRY(settle_grid(tuning));
    LKI_TRY(lki_tune_check(tuning));
    return open_study(tuning);
}

/* ---- After them ---- */

static lk_status print_best(lki_tuning *tuning)
{
    const lki_trial *best = lki_study_best(&tuning->study);
    LKI_SCOPED char *path = lki_format("%s/best.yml", tuning->logdir);
    const char *expdir = tuning->options->config.expdir;
    if (!path) return LK_ERR_NOMEM;
    if (!best) return lki_fail(LK_ERR_NOT_FOUND, "tune: no trial was completed");
    LKI_TRY(lki_tune_write_best(tuning, best, path));
    const char *const words[] = {"run", "-C", path, "--expdir", expdir};
    printf("\nbest trial: %d, in %s/trial_%04d\ntrain with its values: ", best->number, tuning->logdir,
           best->number);
    lki_print_command(stdout, words, expdir ? 5 : 3);
    printf("\n");
    return LK_OK;
}

static int report_stop(const lki_tuning *tuning, int number)
{
    fflush(stdout);
    fprintf(stderr, "lockstep: the study is kept in %s; go on with:\n  ", tuning->study.path);
    lki_print_own_command(stderr, "new");
    fprintf(stderr, "\n");
    return number == SIGINT || number == SIGTERM ? 128 + number : LKI_EXIT_FAILED;
}

static int run_study(lki_tuning *tuning)
{
    int stopped_by = 0;
    lki_tune_print_begin(tuning);
    lk_status status = lki_tune_run_trials(tuning, &stopped_by);
    if (!status && stopped_by) return report_stop(tuning, stopped_by);
    lki_error first = {0};
    lki_error_keep(&first, status);
    if (tuning->study.trial_count) lki_tune_print_table(tuning);
    if (status == LK_OK) status = print_best(tuning);
    if (first.status) lki_error_restore(&first);
    return status ? lki_report(LKI_EXIT_FAILED) : LKI_EXIT_DONE;
}

static int run(const void *pointer)
{
    const lki_tune_options *options = pointer;
    static lki_tuning tuning; /* too large for the stack */
    tuning = (lki_tuning){.options = options};
    if (check_options(options)) return lki_report(LKI_EXIT_WRONG);
    int exit_code = lki_load_components(options->config.expdir);
    if (exit_code) return exit_code;
    tuning.config = lki_load_config("tune", &options->config);
    if (!tuning.config) return lki_report(LKI_EXIT_WRONG);
    lk_status status = prepare(&tuning);
    if (status)
        exit_code = lki_report(status == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    else
        exit_code = run_study(&tuning);
    lki_study_close(&tuning.study);
    lk_config_free(tuning.config);
    return exit_code;
}

const lki_command lki_command_tune = {
    .name = "tune",
    .usage = "-C FILE [-C FILE ...] [--expdir DIR] [--a/b/0=VALUE ...] [options]",
    .summary = "Searches for the best values of a config's keys.",
    .options = table,
    .options_nbytes = sizeof(lki_tune_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run,
    .notes =
        "The section \"tune\" of the config says what is searched: tune: {metric: valid/loss, parameters:\n"
        "{optimizer/lr: {log: [1e-4, 1]}}}. A study that was interrupted goes on by itself.",
};
