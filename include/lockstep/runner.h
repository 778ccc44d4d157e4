/* The runner: trains a model from loaders with a criterion, an optimizer, a scheduler and callbacks, as
 * Catalyst's does.
 *
 *     lk_runner *runner = lk_supervised_runner();
 *     lk_status status = lk_train(runner, .model = model, .criterion = criterion, .optimizer = optimizer,
 *         .loaders = lk_loaders({"train", train_loader}, {"valid", valid_loader}),
 *         .num_epochs = 8, .logdir = "./logs", .verbose = true);
 *     lk_runner_free(runner);
 *
 * Life: what is handed to lk_train belongs to the runner from then on, whether the call succeeds or fails;
 * lk_runner_free frees it all. After training the runner holds the trained model and the metrics. lk_train
 * may be called again: a model that is not given again is the one the runner has. One thread. */
#ifndef LOCKSTEP_RUNNER_H
#define LOCKSTEP_RUNNER_H

#include <lockstep/arguments.h>
#include <lockstep/data.h>
#include <lockstep/logger.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>
#include <lockstep/scheduler.h>
#include <lockstep/step.h>
#include <lockstep/sys/callback.h>
#include <lockstep/sys/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names and numbers, kept sorted by name. */
typedef struct lk_metrics lk_metrics;
lk_status lk_metrics_set(lk_metrics *metrics, const char *name, double value);
/* NaN where there is none; lk_metrics_has tells the two apart. */
double lk_metrics_get(const lk_metrics *metrics, const char *name);
bool lk_metrics_has(const lk_metrics *metrics, const char *name);
int lk_metrics_count(const lk_metrics *metrics);
const char *lk_metrics_name(const lk_metrics *metrics, int index);
double lk_metrics_value(const lk_metrics *metrics, int index);

typedef struct lk_named_dataset {
    const char *key;
    lk_dataset *dataset;
} lk_named_dataset;

typedef struct lk_dataset_list {
    const lk_named_dataset *items;
    int count;
} lk_dataset_list;

/* Datasets instead of loaders: the runner makes the loaders. Either the datasets themselves, or a function
 * that makes them when they are needed; it appends to `out` (at most `capacity`) and returns how many, or -1
 * after an error. */
typedef int (*lk_get_datasets)(lk_named_dataset *out, int capacity, void *context);
typedef struct lk_datasets_options {
    lk_dataset_list datasets; /* lk_datasets({"train", ...}, ...) */
    lk_get_datasets get_datasets_fn;
    void *context;
    int batch_size, num_workers;
    bool drop_last, per_gpu_scaling;
} lk_datasets_options;
LK_LIST_TO_END_(lk_dataset_list, lk_named_dataset)
#define lk_datasets(...) lk_dataset_list_to_end((const lk_named_dataset[]){__VA_ARGS__, {.key = LK_END}})

typedef struct lk_callback_list {
    lk_callback *const *items;
    int count;
} lk_callback_list;
LK_LIST_TO_END_(lk_callback_list, lk_callback *)
#define lk_callbacks(...) lk_callback_list_to_end((lk_callback *const[]){__VA_ARGS__, LK_END})

typedef struct lk_logger_list {
    lk_logger *const *items;
    int count;
} lk_logger_list;
LK_LIST_TO_END_(lk_logger_list, lk_logger *)
#define lk_loggers(...) lk_logger_list_to_end((lk_logger *const[]){__VA_ARGS__, LK_END})

typedef struct lk_hparam {
    const char *name, *value;
} lk_hparam;
typedef struct lk_hparam_list {
    const lk_hparam *items;
    int count;
} lk_hparam_list;
LK_LIST_TO_END_(lk_hparam_list, lk_hparam)
#define lk_hparams(...) lk_hparam_list_to_end((const lk_hparam[]){__VA_ARGS__, {.name = LK_END}})

typedef struct lk_train_options {
    size_t struct_size;
    lk_loader_list loaders;
    lk_datasets_options datasets;
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_callback_list callbacks;
    lk_logger_list loggers;
    /* Of what is drawn from here on. 0: the default generator goes on from where lk_manual_seed and building
     * the model have left it, as PyTorch's does. (A config's runs begin with Catalyst's 42.) */
    uint64_t seed;
    lk_hparam_list hparams;
    int num_epochs;           /* 1 */
    const char *logdir;       /* NULL: nothing is written */
    const char *resume;       /* a runner checkpoint to go on from, of the same optimizer */
    bool overwrite;           /* replace an earlier run's files in logdir; by default they move to LOGDIR.1 */
    const char *autoresume;   /* from logdir's own, where there is one: "last", or the weights of "best" */
    const char *valid_loader; /* which loader's metric decides; by default the first one */
    const char *valid_metric; /* "loss"; for when a misspelt one is found see lk_callback.declares_metrics */
    bool minimize_valid_metric; /* what lk_train assumes where no valid_metric is given */
    bool verbose;               /* progress and epoch lines on stdout */
    bool timeit;                /* times of loading and computing among the metrics */
    bool check;                 /* 3 batches a loader, 3 epochs: does it run at all? */
    bool overfit;               /* the first batch of each loader, over and over */
    bool load_best_on_end;      /* the model ends with the best epoch's weights */
    bool ddp;                   /* ranks on all GPUs, or on all cores */
    int nproc;                  /* how many of them; 0: as many as there are */
    const char *comm;           /* between ranks: "auto", "shm", "gloo", "mpi", "nccl" */
    bool sync_batch_norm;       /* batch norms look at the batches of all ranks */
    bool compress_gradients;    /* gradients travel as bf16, with error feedback */
    bool local_gradients;  /* ranks neither average gradients nor share their first weights: callbacks do */
    int check_replicas;    /* compare the ranks' weights every so many updates, and at the end of the run; 0:
                              every 1,000 (never with local_gradients), below 0: never */
    const char *device;    /* "auto", "cpu", "cuda", "cuda:1", "ref" */
    const char *precision; /* "fp32", "bf16", or "fp16", whose loss is scaled */
    lk_scaler_options scaler; /* how, where PyTorch's defaults do not suit */
    bool tf32;                /* products of fp32 may round their operands to TF32, where a GPU has it */
    bool benchmark;           /* a GPU's convolutions by the fastest way of a trial, though its bits vary */
    int thread_count;         /* of the CPU engine; 0: the cores of this process */
    bool no_checkpoints;      /* do not add a checkpoint callback */
    const char *config_text;  /* written as logdir/config.yml where given */
} lk_train_options;

/* What a custom runner does differently; NULL slots do as the supervised one. `context` is lk_runner.context.
 */
typedef struct lk_runner_ops {
    size_t struct_size;
    lk_status (*get_engine)(
        lk_runner *runner,
        lk_train_options *options); /* sets device, ddp, nproc, precision, tf32, benchmark */
    lk_status (*get_loaders)(lk_runner *runner, lk_named_loader *out, int capacity, int *count);
    lk_module *(*get_model)(lk_runner *runner);
    lk_criterion *(*get_criterion)(lk_runner *runner);
    lk_optimizer *(*get_optimizer)(lk_runner *runner, lk_module *model);
    lk_scheduler *(*get_scheduler)(lk_runner *runner, lk_optimizer *optimizer);
    lk_status (*get_callbacks)(lk_runner *runner, lk_callback **out, int capacity, int *count);
    lk_status (*get_loggers)(lk_runner *runner, lk_logger **out, int capacity, int *count);
    /* All that is done with a batch: by default lk_runner_supervised_batch. */
    lk_status (*handle_batch)(lk_runner *runner, const lk_batch *batch);
    void (*free)(lk_runner *runner);
} lk_runner_ops;

/* What callbacks read, under Catalyst's names. Only the runner writes here, but for what is marked "may be
 * set". */
struct lk_runner {
    const lk_runner_ops *ops;
    void *context; /* a custom runner's own */
    const char *input_key, *output_key, *target_key, *loss_key;

    lk_engine *engine;
    lk_module *model;
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_step *step;
    int rank, world_size;
    bool is_master;
    const char *logdir;
    uint64_t seed;

    int64_t num_epochs;
    int64_t epoch_step;  /* from 1 */
    int64_t batch_step;  /* over the whole run, train loaders only */
    int64_t sample_step; /* likewise, over all ranks */
    lk_loader *loader;
    const char *loader_key;
    bool is_train_loader, is_valid_loader, is_infer_loader;
    int64_t loader_batch_size, loader_batch_len, loader_sample_len, loader_batch_step, loader_sample_step;
    const lk_batch *batch;
    int64_t batch_size; /* samples of this batch on this rank */
    int64_t
        counted_batch_size; /* of them those that metrics count: the first ones, without lk_batch.padding */

    /* May be set. What your own callbacks and handle_batch put here is averaged over the samples of the
     * loader and of all ranks, and reported as NAME, NAME/mean and NAME/std of the loader. */
    lk_metrics *batch_metrics;
    /* What a callback sets here is its own rank's, and rank 0's is reported: join it first, with
     * lk_runner_all_reduce or as a metric of your own (<lockstep/sys/metric.h>). A difference is warned of
     * once. */
    lk_metrics *loader_metrics; /* may be set, at loader_end */
    lk_metrics *epoch_metrics;  /* the "_epoch_" ones; may be set, at epoch_end */
    const char *valid_loader, *valid_metric;
    bool minimize_valid_metric;
    bool need_early_stop;  /* may be set: the run ends after this epoch */
    bool need_loader_stop; /* may be set: the loader ends after this batch */
    lk_status exception;   /* at on_exception: what ended the run; the sentence is lk_error() */
    bool verbose;

    struct lki_run *run; /* the runner's own */
};

/* A runner over (features, targets). The keys default to Catalyst's. */
typedef struct lk_supervised_runner_options {
    size_t struct_size;
    const char *input_key, *output_key, *target_key, *loss_key;
} lk_supervised_runner_options;
#define lk_supervised_runner(...)                                                                            \
    LK_CALL0_(lk_supervised_runner_with, lk_supervised_runner_options, __VA_ARGS__)
lk_runner *lk_supervised_runner_with(const lk_supervised_runner_options *options);
/* The ops are copied. */
lk_runner *lk_custom_runner(const lk_runner_ops *ops, void *context);
void lk_runner_free(lk_runner *runner);

/* Trains. Everything in the options belongs to the runner from the call on, also when it fails.
 *
 * Before the first batch, fields that model or criterion would refuse are converted (float64 features, int32
 * or bool labels), and labels of other loaders are numbered by the class names of the train loader; the
 * header says both. Only the supervised batch is known to take them: a handle_batch of your own gets the
 * fields as they are stored. lk_cast_fields picks a dtype by hand.
 *
 * One run at a time writes to a logdir: LK_ERR_INVALID names the process that does. An earlier run's files
 * move to LOGDIR.1, .2, … unless this run resumes or overwrites. A run that resumes takes the checkpoint's
 * learning rate, momentum and seed, and its own of everything else; each difference is a line in the header.
 */
#define lk_train(...) LK_CALL1_(lk_train_with, lk_train_options, __VA_ARGS__, )
lk_status lk_train_with(lk_runner *runner, const lk_train_options *options);

/* Runs the model over a loader and gives its metrics (loss included, where there is a criterion). The loader
 * and callbacks belong to the call. Read them from runner->loader_metrics. The process goes through the whole
 * loader by itself, also after a run on several ranks; in a job of several ranks each that calls it does. */
typedef struct lk_evaluate_options {
    size_t struct_size;
    lk_module *model; /* NULL: the runner's; belongs to the runner afterwards */
    lk_criterion *criterion;
    lk_callback_list callbacks;
    const char *resume; /* a checkpoint of weights to load first */
    const char *device; /* NULL: where the runner has trained, or "auto" */
    uint64_t seed;
    bool verbose;
} lk_evaluate_options;
#define lk_evaluate_loader(...) LK_CALL2_(lk_evaluate_loader_with, lk_evaluate_options, __VA_ARGS__, )
lk_status lk_evaluate_loader_with(lk_runner *runner, lk_loader *loader, const lk_evaluate_options *options);

/* Calls `take` with the model's output for every batch, in the loader's order: all of them, likewise. */
typedef lk_status (*lk_take_prediction)(const lk_tensor *output, const lk_batch *batch, void *context);
#define lk_predict_loader(...) LK_CALL4_(lk_predict_loader_with, lk_evaluate_options, __VA_ARGS__, )
lk_status lk_predict_loader_with(lk_runner *runner, lk_loader *loader, lk_take_prediction take, void *context,
                                 const lk_evaluate_options *options);
/* The model's output for one batch; the caller frees it. */
lk_tensor *lk_predict_batch(lk_runner *runner, const lk_tensor *features);

/* A model's weights and buffers under PyTorch's names, as views of them; and taking them from such a dict (or
 * from that of a runner checkpoint). Every name must be there with the same shape. */
lk_state_dict *lk_module_state_dict(const lk_module *module);
lk_status lk_module_load_state_dict(lk_module *module, const lk_state_dict *state);

/* For handle_batch and callbacks. */
/* The default: step over the batch, loss into batch_metrics, the finer moments called where somebody listens.
 */
lk_status lk_runner_supervised_batch(lk_runner *runner, const lk_batch *batch);
/* A tensor of this batch by its key: one that a callback put there, a field of the batch or an output of the
 * step. NULL where there is none. */
const lk_tensor *lk_runner_tensor(lk_runner *runner, const char *key);
/* Puts a tensor of one's own beside them until the next batch, for the callbacks that follow. Key and tensor
 * are borrowed. */
lk_status lk_runner_put_tensor(lk_runner *runner, const char *key, const lk_tensor *tensor);
/* Says in on_experiment_start that the callback will report this metric; "name*" stands for all names that
 * begin so. See lk_callback.declares_metrics. What is declared is not averaged for you: the callback sets it
 * in loader_metrics itself. */
lk_status lk_runner_declare_metric(lk_runner *runner, const char *name);
/* The metrics of a loader in this epoch, by its key, once it has ended; NULL otherwise. */
const lk_metrics *lk_runner_loader_metrics(const lk_runner *runner, const char *loader_key);
/* Collectives between the run's ranks, for callbacks and handle_batch: runner->rank of runner->world_size.
 * Memory is the host's. With one rank each gives what one rank gives, so nobody has to ask. All ranks make
 * the same calls in the same order: at experiment, epoch and loader moments, and with each batch of a train
 * loader, all ranks are there. Other loaders may have more batches on one rank than on another: a call from a
 * batch of such a loader is LK_ERR_INVALID on every rank. A rank that makes another call instead, or none, is
 * named in the error of the others, at the latest when the comm's timeout has passed. See
 * <lockstep/sys/comm.h> for the operations and examples/09_own_ddp.c for Torchbearer's two callbacks. */
lk_status lk_runner_all_reduce(lk_runner *runner, void *data, int64_t count, lk_dtype dtype,
                               lk_reduce reduce);
/* recv has world_size pieces of `count`, in rank order. */
lk_status lk_runner_all_gather(lk_runner *runner, const void *send, void *recv, int64_t count,
                               lk_dtype dtype);
lk_status lk_runner_broadcast(lk_runner *runner, void *data, int64_t count, lk_dtype dtype, int root);
lk_status lk_runner_barrier(lk_runner *runner);
/* More models, criteria and optimizers by key, for runs of several (a GAN): kept, checkpointed and freed by
 * the runner. */
lk_status lk_runner_add_model(lk_runner *runner, const char *key, lk_module *model);
lk_status lk_runner_add_criterion(lk_runner *runner, const char *key, lk_criterion *criterion);
lk_status lk_runner_add_optimizer(lk_runner *runner, const char *key, lk_optimizer *optimizer);
/* A step that the runner keeps and frees; created at the first call with this key in a run. It trains what is
 * trainable then. */
lk_step *lk_runner_step(lk_runner *runner, const char *key, const lk_step_options *options);
lk_module *lk_runner_model(const lk_runner *runner, const char *key);
lk_criterion *lk_runner_criterion(const lk_runner *runner, const char *key);
lk_optimizer *lk_runner_optimizer(const lk_runner *runner, const char *key);

#ifdef __cplusplus
}
#endif
#endif
