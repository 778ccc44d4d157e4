/* lockstep tune: what its files share. tune.c has the options and the order of things, tune_settings.c reads
 * `tune:` and `study:`, tune_parameters.c what is searched, tune_config.c makes the config of a trial,
 * tune_trial.c is a trial's process, tune_jobs.c runs those, and tune_report.c prints. */
#ifndef LKI_CLI_TUNE_H
#define LKI_CLI_TUNE_H

#include "cli/load.h"
#include "config/config.h"
#include "tune/pruner.h"
#include "tune/search.h"
#include "tune/study.h"

#include <signal.h>
#include <stdio.h>
#include <sys/types.h>

typedef struct lki_tune_options {
    lki_config_options config;
    const char *logdir, *search, *pruner;
    lki_option_int trials, jobs, seed, timeout, max_failures;
    bool resume, begin_anew, quiet;
} lki_tune_options;

/* A parameter: what it may be, and where its value goes. */
typedef struct lki_tune_parameter {
    const char *name; /* in the table and the file of the study */
    lki_place place;
    const char **paths; /* as in --a/b/c=VALUE */
    int path_count;
    lki_range range;
    const char **choices; /* of a choice, by index: what an override says; NULL for numbers */
    bool *are_texts; /* of a choice, by index: whether it was quoted, and is a text whatever it looks like */
    bool is_cut;     /* what is tried is a number without its fraction: int(trial.suggest_uniform(...)) */
} lki_tune_parameter;

enum { LKI_TUNE_MAX_PARAMETERS = 64 };

/* All that the config and the options say. Texts lie in the config's arena or in argv. */
typedef struct lki_tuning {
    const lki_tune_options *options;
    lk_config *config; /* without `tune` and `study` */
    int call;          /* the last call of train, whose metric counts */
    const char *title; /* Optuna's study_name; NULL: none */
    const char *logdir, *loader_key, *metric_key;
    bool minimize;
    int trials, jobs, timeout_s, max_failures;
    uint64_t seed;
    lki_search search;
    lki_pruner pruner;
    lki_tune_parameter *parameters; /* (LKI_TUNE_MAX_PARAMETERS) */
    lki_parameter_space *spaces;    /* the same, for the study */
    int parameter_count;
    lki_study study;
} lki_tuning;

/* ---- tune_settings.c ---- */

/* Takes `tune` and `study` out of the config and reads them, then the options, which come first. */
lk_status lki_tune_read(lki_tuning *tuning);
/* The callback OptunaPruning of the call; NULL if the config has none. */
const lki_node *lki_tune_pruning_callback(const lki_tuning *tuning);

/* ---- tune_parameters.c ---- */

/* `parameters:` of the section `tune`, by path. */
lk_status lki_tune_read_parameters(lki_tuning *tuning, const lki_node *map);
/* {_var_: trial.suggest_float, name: lr, low: 1e-4, high: 1} anywhere in the config. */
lk_status lki_tune_find_suggestions(lki_tuning *tuning);

/* tune_text.c: whether a node is such a suggestion as a text, "trial.suggest_float('lr', 1e-4, 1)", which may
 * stand in int(...) or float(...); and the map that says the same, in the tree's arena. */
bool lki_tune_is_call(const lki_node *node);
lk_status lki_tune_read_call(lki_tree *tree, const lki_node *node, lki_node **out, bool *is_cut);

/* A key of a section, and where its value goes. */
typedef struct lki_tune_key {
    const char *name; /* NULL ends a table */
    enum { LKI_TUNE_INT, LKI_TUNE_FLOAT, LKI_TUNE_BOOL, LKI_TUNE_TEXT, LKI_TUNE_NODE } type;
    size_t offset; /* of an int64_t, double, bool, const char * or const lki_node * */
    int64_t minimum;
} lki_tune_key;

/* Reads a map into a struct; keys that are absent or null leave it as it is, unknown ones are refused. */
lk_status lki_tune_read_map(const lki_node *map, const char *what, const lki_tune_key *keys, void *out);

/* ---- tune_config.c ---- */

/* The text of a value, as an override or a table says it. */
char *lki_tune_value_text(const lki_tune_parameter *parameter, double value);
/* Sets the values (by parameter) in a config. */
lk_status lki_tune_set_values(const lki_tuning *tuning, lk_config *config, const double *values);
/* The config of a trial: its values, its logdir, its settings for the log, and the checkpoint that it goes on
 * from, if there is one. Changes the study's own config: for the process of the trial. */
lk_status lki_tune_become_trial(const lki_tuning *tuning, const lki_trial *trial);
/* Plans the config with the bounds and choices of each parameter: what a trial would be refused for. */
lk_status lki_tune_check(const lki_tuning *tuning);
/* One line of JSON: what is searched. The caller frees it with lki_free. */
char *lki_tune_describe(const lki_tuning *tuning);
/* Writes the config with these values, which trains outside of the study. Changes the study's config. */
lk_status lki_tune_write_best(const lki_tuning *tuning, const lki_trial *best, const char *path);
/* LOGDIR/trial_0007; the caller frees it. */
char *lki_tune_logdir_of(const lki_tuning *tuning, const lki_trial *trial);

/* ---- tune_trial.c ---- */

enum { LKI_TUNE_EXIT_STOPPED = 3 }; /* the exit code of a trial that a signal has stopped */

typedef struct lki_tune_job {
    lki_trial *trial; /* NULL: the job is free */
    pid_t pid;
    int fd;              /* the study's end of the line */
    bool told;           /* a signal was passed on to it */
    char sentence[1024]; /* why it failed, if it has said so */
} lki_tune_job;

/* Forks the process of a trial, which computes on the cores of job `index`. */
lk_status lki_tune_start(const lki_tuning *tuning, lki_tune_job *job, int index, lki_trial *trial,
                         const sigset_t *mask);

/* ---- tune_jobs.c ---- */

/* Runs trials until there are enough of them. *stopped_by is the signal that ended this earlier, or 0. */
lk_status lki_tune_run_trials(lki_tuning *tuning, int *stopped_by);

/* ---- tune_report.c ---- */

void lki_tune_print_begin(const lki_tuning *tuning);
/* A line for a trial that has ended. */
void lki_tune_print_trial(const lki_tuning *tuning, const lki_trial *trial);
/* The table of all trials, the best first. */
void lki_tune_print_table(const lki_tuning *tuning);
/* "valid/loss" */
void lki_tune_print_metric(FILE *out, const lki_tuning *tuning);

#endif
