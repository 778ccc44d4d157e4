/* A run inside: what lk_train makes of its options, and the parts that the runner's files share.
 *
 * setup.c takes the options over, check_options.c judges them, loop.c walks epochs and loaders, batches.c
 * the batches of one, batch.c does one of them, state.c saves and restores (loader_states.c the loaders),
 * report.c talks to loggers and console, evaluate.c is everything but training. */
#ifndef LKI_RUN_RUN_H
#define LKI_RUN_RUN_H

#include <lockstep/runner.h>
#include <lockstep/sys/comm.h>

#include "metric/across_ranks.h"
#include "run/epoch_table.h"
#include "run/metric_names.h"
#include "run/metrics.h"
#include "run/objective.h"
#include "step/current_ranks.h"

#include <stdio.h>

enum {
    LKI_MAX_LOADERS = 16,
    LKI_MAX_CALLBACKS = 64,
    LKI_MAX_LOGGERS = 16,
    LKI_MAX_PARTS = 16,
    LKI_MAX_MADE = 16
};

typedef struct lki_run_loader {
    char *key;
    lk_loader *loader;
    lk_metrics *metrics; /* of its last pass */
    bool has_metrics;    /* in this epoch */
    bool skip;           /* it rests in this epoch */
    double portion;      /* how many batches of a pass are taken, or below 1 what share of them; 0: all */
    bool repeat;         /* every pass is the first one over again */
    lk_loader_state *first_pass; /* that pass at its start; NULL before it */
} lki_run_loader;

/* A further model, criterion, optimizer or step, by its key. */
typedef struct lki_part {
    char *key;
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_step *step;
    lk_state_dict *kept; /* kept.c */
} lki_part;

/* A tensor that a callback has made of the batch, borrowed until the next one. */
typedef struct lki_made {
    const char *key;
    const lk_tensor *tensor;
} lki_made;

/* The moments, as indices of the table of listeners. */
typedef enum lki_moment {
#define X(moment) LKI_MOMENT_##moment,
    LK_MOMENT_LIST(X)
#undef X
        LKI_MOMENT_COUNT
} lki_moment;

typedef struct lki_run {
    lki_run_loader loaders[LKI_MAX_LOADERS];
    int loader_count;
    lk_callback *callbacks[LKI_MAX_CALLBACKS]; /* sorted by order */
    int callback_count;
    bool has_listener[LKI_MOMENT_COUNT];
    lk_logger *loggers[LKI_MAX_LOGGERS];
    int logger_count;
    lki_part parts[LKI_MAX_PARTS];
    int part_count;

    lk_state_dict *kept; /* kept.c: of runner->step */
    lk_engine *engine;
    char engine_device[32]; /* what it was opened for and with; evaluations may have taken another */
    lk_engine_options engine_options;
    lk_comm *comm;
    lki_current_ranks ranks; /* entered while a run on several ranks goes on */
    int cpu_level;           /* the widest that all ranks have; 0: the machine's own */
    bool mixed_cpus;         /* some ranks' machines have more than that */
    const char *launch_note; /* what ddp was asked for and did not do; NULL: nothing */
    lki_metric_collectives collectives;
    char *logdir, *valid_loader, *valid_metric, *device, *resume;
    lk_train_options options;              /* plain values only: everything owned has been taken out of it */
    lk_step_options step_options;          /* what the optimizer callback asks for: accumulation, clipping */
    lk_metric *metrics[LKI_MAX_CALLBACKS]; /* of the callbacks: reduced across ranks together */
    int metric_count;
    lki_objective objective;
    lki_metric_names names;
    lki_made made[LKI_MAX_MADE];
    int made_count;
    lki_epoch_table table;
    struct lki_terms *terms;   /* terms.h; made when the run begins */
    char *notes;               /* lines of the header about what setup has decided; NULL for none */
    FILE *log_file;            /* LOGDIR/log.txt, on the master */
    lk_logger *text_logger;    /* the one that writes it */
    bool wants_batch_metrics;  /* a logger writes batches down */
    bool resuming_loader;      /* the loader goes on in its middle: metrics keep what they have seen */
    int batch_limit;           /* check, overfit: batches of a loader; 0 for all */
    const lk_batch *under_way; /* launched, and nobody has looked at it yet; NULL for none */
    bool running;              /* its callbacks may be at work */
    bool evaluating;           /* not a training run: nothing moves optimizer or scheduler */
    bool freezes;              /* something is frozen, or was: frozen.h */
    bool told_difference;      /* that the ranks' metrics differ: compare_metrics.h */
    bool took_state;           /* from a checkpoint: all of it, or the weights */
    int logdir_lock;           /* logdir.h; -1 for none */
    bool restarts_groups;      /* of accumulated batches, with each epoch */
    bool said_diverged;        /* a loss was so large that the user was warned */
    bool nan_ends_run;         /* a loss that is not a number ends the run in order instead of failing it */

    /* Where a resumed run goes on. */
    bool resumed_inside_epoch;
    int first_loader;              /* of the first epoch */
    lk_loader_state *loader_state; /* of that loader; NULL at its start */
    int64_t loader_batch_step, loader_sample_step;
    lk_state_dict *rank_state;    /* this rank's own share of it */
    lk_state_dict *resumed_state; /* kept for the parts by key, which may be made later */
    int current_loader;
    bool inside_epoch;       /* its loaders are being gone through */
    volatile int *stop_flag; /* set by a signal: save, and stop at the next batch */
    bool stopped;            /* at the same place on all ranks */
    /* When the ranks next ask each other whether to stop: the same on all of them but for the clock. */
    struct {
        int64_t batches, batches_left; /* between two looks; until the next */
        int64_t ns;                    /* of the last look */
    } stop_look;
} lki_run;

/* notes.c: a line for the run's header, once however often it is said. */
lk_status lki_run_note(lki_run *run, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* fit_data.c: what the loaders hold becomes what model and criterion need, and labels mean the same in all of
 * them. Before any fork: forked ranks share what was converted. */
lk_status lki_run_fit_data(lk_runner *runner);

/* setup.c */
/* Undoes an earlier run, and says that this one runs. A runner that does so already is left as it is, and
 * what was handed over is freed; likewise if `taken`, what came of taking the options, is a failure. */
lk_status lki_run_begin(lk_runner *runner, const lk_train_options *options, lk_status taken);
lk_status lki_run_setup(lk_runner *runner, lk_train_options *options);
void lki_run_teardown(lk_runner *runner); /* frees loaders, callbacks, loggers; the model stays */
lk_status lki_run_add_callback(lk_runner *runner, lk_callback *callback_owned);
/* After any fork: engines start threads. */
lk_status lki_run_open_engine(lk_runner *runner);
/* With all steps that were compiled for it. */
lk_status lki_run_close_engine(lk_runner *runner);
/* gpus.c: the GPU that this rank takes, where the run's device is one. Starts CUDA. */
int lki_run_gpu(const lki_run *run);
/* "2 ranks share GPU 0: NVIDIA H200"; "" where no rank computes on a GPU. Every rank calls it. */
lk_status lki_run_describe_gpus(const lk_runner *runner, char *text, size_t capacity);
/* What is wrong with the key of a loader, which names files in the logdir, too; NULL where nothing is. */
const char *lki_loader_key_fault(const char *key);
/* The index of a loader by its key; -1 where there is none. */
int lki_run_find_loader(const lki_run *run, const char *key);

/* Metrics whose states are joined with the other ranks' when a loader ends. Borrowed. */
lk_status lki_run_register_metric(lk_runner *runner, lk_metric *metric);

/* callbacks/metric.c: a metric's values over the whole pass, by their names; and its state under names that
 * start with `prefix`. */
lk_status lki_metric_report(lk_metric *metric, lk_metrics *out);
lk_status lki_metric_save(lk_metric *metric, lk_state_dict *state, const char *prefix);
lk_status lki_metric_load(lk_metric *metric, const lk_state_dict *state, const char *prefix);

/* loop.c */
lk_status lki_run_call(lk_runner *runner, lki_moment moment);
/* The start of the experiment, and what can be judged once all callbacks have started. */
lk_status lki_run_call_start(lk_runner *runner);
lk_status lki_run_loop(lk_runner *runner);
/* Between epochs, and before the first: how many are whole, and whether there is one to begin or to go on
 * with. */
int64_t lki_run_epochs_done(const lk_runner *runner);
bool lki_run_has_epochs_left(const lk_runner *runner);
/* One pass of the callbacks and handle_batch over a loader; the loader's metrics are in
 * runner->loader_metrics after it. */
lk_status lki_run_one_loader(lk_runner *runner, int index);

/* state.c: everything that resume needs, and taking it back. */
lk_status lki_runner_save_state(lk_runner *runner, lk_state_dict *state);
/* Takes the state over, also when it fails. */
lk_status lki_runner_load_state(lk_runner *runner, lk_state_dict *state_owned);
/* What the resumed state holds for a part that has just been added. */
lk_status lki_part_restore_model(lk_runner *runner, lki_part *part);
lk_status lki_part_restore_step(lk_runner *runner, lki_part *part);
/* Weights alone: the model's under PyTorch's names, those of further models behind their key, "generator.".
 */
lk_state_dict *lki_models_state(const lk_runner *runner);
lk_status lki_models_load_state(lk_runner *runner, const lk_state_dict *state, const char *what);
bool lki_runner_has_models(const lk_runner *runner);
lk_status lki_model_load_state(lk_module *model, const lk_state_dict *state, const char *what);

/* Plain bytes, under one name; of another size they are refused. */
lk_status lki_state_put_bytes(lk_state_dict *state, const char *name, const void *data, size_t nbytes);
lk_status lki_state_get_bytes(const lk_state_dict *state, const char *name, void *data, size_t nbytes);

/* The optimizer's state of a step alone, under names that start with `prefix`. */
lk_status lki_step_save_state(const lk_step *step, lk_state_dict *state, const char *prefix);
lk_status lki_step_load_state(lk_step *step, const lk_state_dict *state, const char *prefix);
/* The same without the numbers of the groups, learning rate and momentum: they stay what they are. Parameters
 * of which the state knows nothing start anew. */
lk_status lki_step_load_moments(lk_step *step, const lk_state_dict *state, const char *prefix);

/* kept.c: frees a step, and keeps what its optimizer knows in *kept; the next step takes it from there, and
 * leaves what is known of parameters that it does not train: they may be thawed again. */
lk_status lki_step_keep(lk_step **step, lk_state_dict **kept);
lk_status lki_step_take_kept(lk_step *step, lk_state_dict **kept);
void lki_step_drop(lk_step **step, lk_state_dict **kept);
/* What is kept, to a checkpoint, where it has not got it from the step: all of it while there is no step,
 * what is known of frozen parameters beside one. `prefix` is the optimizer's there: "optimizer",
 * "optimizer:<key>".
 */
lk_status lki_kept_put(const lk_state_dict *kept, lk_state_dict *state, const char *prefix);
/* What a checkpoint, or what was kept, knows of parameters that the step does not train. */
lk_status lki_kept_get_frozen(lk_state_dict **kept, const lk_step *step, const lk_state_dict *state,
                              const char *prefix);
/* Tensors and strings of names that start with `from_prefix` and a dot, under `to_prefix`, where `to` has
 * none of that name. */
lk_status lki_state_add_missing(lk_state_dict *to, const char *to_prefix, const lk_state_dict *from,
                                const char *from_prefix);
/* All steps of the runner. */
lk_status lki_run_keep_steps(lk_runner *runner);
void lki_run_drop_steps(lk_runner *runner);
/* Keeps the steps by key whose parameters have been frozen or thawed since they were made. Their users may
 * hold them for the length of a run: between two. */
lk_status lki_run_renew_parts(lk_runner *runner);

/* report.c */
lk_status lki_run_add_logger(lki_run *run, lk_logger *logger_owned);
lk_status lki_report_run_start(lk_runner *runner);
lk_status lki_report_loader(lk_runner *runner);
lk_status lki_report_batch(lk_runner *runner);
/* A picture (height, width, 1 or 3) of u8 of the loader that runs. */
lk_status lki_report_image(lk_runner *runner, const char *tag, const lk_tensor *pixels);
lk_status lki_report_epoch(lk_runner *runner);
/* What was logged so far is readable by others. */
lk_status lki_report_flush(const lk_runner *runner);
lk_status lki_report_run_end(lk_runner *runner);
void lki_run_close_log(lki_run *run);

/* batches.c: all batches of the loader that has begun. */
lk_status lki_run_batches(lk_runner *runner);

/* runner.c: brings the parameters that the program holds up to date, before it can look at them. */
lk_status lki_run_show_params(lk_runner *runner);

/* runner.c: a step is made by all ranks, so it cannot be for a batch that some of them do not have. */
lk_status lki_run_check_all_have_batches(const lk_runner *runner);

/* batch.c */
lk_status lki_run_prepare_step(lk_runner *runner);
/* Adds this batch's number to a mean metric: the loss of the runner's step sample by sample, where it is
 * known so (sample_losses.h), anything else as one number for the samples that count. */
lk_status lki_run_add_loss(lk_runner *runner, const char *name, lk_metric *metric);
/* One batch ahead: whether this one can be launched while another is under way, doing so, and waiting for the
 * oldest; see lki_step_land. */
bool lki_run_may_launch_batch(lk_runner *runner, const lk_batch *batch);
lk_status lki_run_launch_batch(lk_runner *runner, const lk_batch *batch);
lk_status lki_run_land_batch(lk_runner *runner, bool *lost);

/* idle_options.c: says in a line each which of the options have no effect on this device, or on one rank. */
void lki_run_note_options(const lk_runner *runner, bool has_gpus);

#endif
