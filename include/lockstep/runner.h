/* The runner trains a model from loaders, with a criterion, an optimizer, a scheduler and
 * callbacks, as Catalyst's runner does.
 *
 *     lk_runner *runner = lk_supervised_runner();
 *     lk_status status = lk_train(runner,
 *         .model = lk_sequential(lk_flatten(), lk_linear(784, 10)),
 *         .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
 *         .loaders = lk_loaders(
 *             {"train", lk_loader(lk_mnist("data", .train = true), .batch_size = 32)}),
 *         .num_epochs = 8, .logdir = "./logs", .verbose = true);
 *     lk_runner_free(runner);
 *
 * Life: what you hand to lk_train belongs to the runner from then on, whether the call succeeds
 * or fails. lk_runner_free frees all of it. After training, the runner holds the trained model
 * and the metrics. You may call lk_train again; if you give no model, the runner trains the one
 * it has.
 *
 * Threads: a runner belongs to the thread that created it. */
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

/* Names and numbers, sorted by name. */
typedef struct lk_metrics lk_metrics;
/* Sets a value. Fails with LK_ERR_NOMEM if memory runs out. */
lk_status lk_metrics_set(lk_metrics *metrics, const char *name, double value);
/* Returns the value of a name, or NaN if there is none. lk_metrics_has tells a missing value from
 * a NaN. */
double lk_metrics_get(const lk_metrics *metrics, const char *name);
/* Returns whether there is a value with this name. */
bool lk_metrics_has(const lk_metrics *metrics, const char *name);
/* Returns the number of values. */
int lk_metrics_count(const lk_metrics *metrics);
/* Return the name and the value at `index`, counted from 0. The name belongs to the metrics. */
const char *lk_metrics_name(const lk_metrics *metrics, int index);
double lk_metrics_value(const lk_metrics *metrics, int index);

/* Datasets by key, from which the runner makes the loaders: lk_datasets({"train", ...}, ...). */
typedef struct lk_named_dataset {
    const char *key;
    lk_dataset *dataset;
} lk_named_dataset;

typedef struct lk_dataset_list {
    const lk_named_dataset *items;
    int count;
} lk_dataset_list;

/* Makes the datasets when the run needs them. It writes at most `capacity` items to `out` and
 * returns how many, or -1 after an error. The datasets then belong to the run. */
typedef int (*lk_get_datasets)(lk_named_dataset *out, int capacity, void *context);
/* Datasets instead of loaders. Give either `datasets` or `get_datasets_fn`. */
typedef struct lk_datasets_options {
    lk_dataset_list datasets; /* lk_datasets({"train", ...}, ...) */
    lk_get_datasets get_datasets_fn;
    void *context;               /* passed to get_datasets_fn */
    int batch_size, num_workers; /* 1 and 0 */
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

/* Settings that the loggers record at the start of the run: lk_hparams({"width", "8"}). */
typedef struct lk_hparam {
    const char *name, *value;
} lk_hparam;
typedef struct lk_hparam_list {
    const lk_hparam *items;
    int count;
} lk_hparam_list;
LK_LIST_TO_END_(lk_hparam_list, lk_hparam)
#define lk_hparams(...) lk_hparam_list_to_end((const lk_hparam[]){__VA_ARGS__, {.name = LK_END}})

/* What a run prints to stdout of rank 0. */
typedef enum lk_show {
    /* LK_SHOW_ALL if verbose is set, LK_SHOW_EPOCHS if log_every is, else nothing. */
    LK_SHOW_DEFAULT,
    LK_SHOW_NOTHING,
    /* A header, a progress bar if stdout is a terminal, one line per epoch (`*`: the best so far),
     * and a table at the end. In a pipe, lines begin with the time, and a long epoch has one every
     * 30 seconds. `lockstep run` asks for this. */
    LK_SHOW_EPOCHS,
    LK_SHOW_ALL, /* also the layers, and a table of all metrics per epoch */
} lk_show;

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
    /* Seeds what the run draws. 0: the default generator continues from where lk_manual_seed and
     * the construction of the model left it, as in PyTorch. (Runs of a config start with
     * Catalyst's seed, 42.). */
    uint64_t seed;
    lk_hparam_list hparams;
    int num_epochs;     /* 1 */
    const char *logdir; /* NULL: the run writes no files */
    /* a runner checkpoint to continue from; it must have the same optimizer. */
    const char *resume;
    /* Replaces the files of an earlier run in logdir. By default they move to LOGDIR.1. */
    bool overwrite;
    /* Continues from the checkpoint in logdir if there is one: "last", or "best" for the best
     * weights. */
    const char *autoresume;
    const char *valid_loader; /* the loader whose metric decides; the first one */
    /* "loss". lk_callback.declares_metrics says when a misspelt name is found. */
    const char *valid_metric;
    bool minimize_valid_metric; /* true if no valid_metric is given */
    bool verbose;               /* prints all that there is to stdout: LK_SHOW_ALL */
    bool timeit;                /* adds the times of loading and computing to the metrics */
    bool check;                 /* a trial: 3 batches per loader, 3 epochs */
    bool overfit;               /* repeats the first batch of each loader */
    bool load_best_on_end;      /* loads the weights of the best epoch at the end */
    /* Starts one rank per GPU, or per core. One core gives an ordinary run, whose loaders shuffle
     * only if they say so. */
    bool ddp;
    int nproc;               /* number of ranks on this host; 0: one per GPU or core */
    const char *comm;        /* "auto", "shm", "gloo", "mpi" or "nccl" */
    bool sync_batch_norm;    /* batch norms use the batches of all ranks */
    bool compress_gradients; /* all-reduces gradients as bf16, with error feedback */
    /* Ranks neither average gradients nor share their initial weights. Callbacks do it instead. */
    bool local_gradients;
    /* Number of updates between two comparisons of the ranks' weights; they are also compared at
     * the end of the run. 0: 1,000, or never with local_gradients. Below 0: never. */
    int check_replicas;
    const char *device;       /* "auto", "cpu", "cuda", "cuda:1", "ref" */
    const char *precision;    /* "fp32", "bf16", or "fp16" with a scaled loss */
    lk_scaler_options scaler; /* the loss scale of fp16; PyTorch's defaults */
    /* fp32 products may round their operands to TF32 on a GPU that has it. */
    bool tf32;
    /* A GPU times its convolution algorithms and uses the fastest. Results may then differ
     * between runs. */
    bool benchmark;
    int thread_count;        /* threads of the CPU engine; 0: one per core */
    bool no_checkpoints;     /* adds no checkpoint callback */
    const char *config_text; /* text to write to logdir/config.yml */
    lk_show show;            /* what is printed, whatever `verbose` says */
    /* Prints a line every so many train batches, and writes it to logdir/log.txt: loss, norm of the
     * gradients (if they are clipped by it), learning rate, milliseconds per step, and samples or
     * tokens per second. 0: none. */
    int log_every;
    /* Also saves the run's place within an epoch, after this many train batches. 0: at the end of
     * each epoch only. */
    int save_every;
    /* Traces the first batches of each loader in the first epoch, writes LOGDIR/trace.json for
     * Perfetto and prints a summary. Needs a logdir. */
    bool profile;
    int profile_batches; /* of each loader; 50 */
    /* Also saves the run's place within an epoch, each time that this many minutes of training have
     * passed. 0: never. */
    double save_every_minutes;
    /* Computes each global batch as so many shards, a power of two, on any number of ranks that
     * divides it: the weights are the same bits on 1 rank as on that many. batch_size is that of a
     * shard. Device cpu or ref. 0: each rank is a shard, and the bits depend on their number. */
    int shards;
    /* The run ends after this many train batches, with the rest of its epoch: validation and the
     * checkpoint. Without num_epochs it makes as many epochs as that takes. 0: no limit. */
    int64_t max_steps;
    /* The run ends in the same way once this many minutes of training have passed, by rank 0's
     * clock. A run that is resumed counts on. 0: no limit. */
    double max_minutes;
    /* Validates every so many train batches, and where a pass over the train loader ends. Each
     * piece of a pass is then an epoch, with its metrics, its checkpoint, early stopping and the
     * schedulers; num_epochs still says how many passes are made. 0: once per pass. */
    int64_t valid_every;
    /* Parameters that do not train: shell patterns for their full names, which commas separate, as
     * in "features.*, embed.weight". It is an error if a pattern matches none. */
    const char *freeze;
    /* Ranks that were started one by one: the job goes on with the ranks of so many hosts if others
     * stay away, from its newest checkpoint. `lockstep run --max-restarts` also starts the ranks
     * again after a death, and takes ranks back at the end of an epoch. 0: all ranks must come. */
    int min_nodes;
} lk_train_options;

/* What a custom runner does differently. A NULL slot does what the supervised runner does. Slots
 * run on the thread that trains and find their own data in runner->context. What a slot returns
 * belongs to the runner. */
typedef struct lk_runner_ops {
    size_t struct_size;
    /* Sets device, ddp, nproc, precision, tf32 and benchmark, and whatever else of the options is a
     * number or a text, such as num_epochs and logdir. Texts must live as long as the runner. */
    lk_status (*get_engine)(lk_runner *runner, lk_train_options *options);
    lk_status (*get_loaders)(lk_runner *runner, lk_named_loader *out, int capacity, int *count);
    lk_module *(*get_model)(lk_runner *runner);
    lk_criterion *(*get_criterion)(lk_runner *runner);
    lk_optimizer *(*get_optimizer)(lk_runner *runner, lk_module *model);
    lk_scheduler *(*get_scheduler)(lk_runner *runner, lk_optimizer *optimizer);
    lk_status (*get_callbacks)(lk_runner *runner, lk_callback **out, int capacity, int *count);
    lk_status (*get_loggers)(lk_runner *runner, lk_logger **out, int capacity, int *count);
    /* Does all that is done with a batch. The default is lk_runner_supervised_batch. */
    lk_status (*handle_batch)(lk_runner *runner, const lk_batch *batch);
    void (*free)(lk_runner *runner);
    /* Records what the model makes of a batch: names each output with lk_graph_output, so that the
     * criteria of the run and its callbacks find it by its key. `inputs` are the fields of the
     * batch with their names. The default is model(input_key), named output_key. */
    lk_status (*forward)(lk_runner *runner, lk_graph *graph, const char *const *names,
                         lk_value *const *inputs, int count);
} lk_runner_ops;

/* The state of a run, under Catalyst's names, for callbacks to read. Only the runner writes to
 * it, except to the fields that are marked "may be set". */
struct lk_runner {
    const lk_runner_ops *ops;
    void *context; /* a custom runner's own data */
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
    int64_t epoch_step;  /* counts from 1 */
    int64_t batch_step;  /* train batches since the start of the run */
    int64_t sample_step; /* train samples of all ranks since the start of the run */
    lk_loader *loader;
    const char *loader_key;
    bool is_train_loader, is_valid_loader, is_infer_loader;
    /* The two lengths are LK_LENGTH_UNKNOWN if the loader reads a stream. */
    int64_t loader_batch_size, loader_batch_len, loader_sample_len, loader_batch_step, loader_sample_step;
    const lk_batch *batch;
    int64_t batch_size; /* samples of this batch on this rank */
    /* Number of samples of this batch that metrics count: the first ones, without
     * lk_batch.padding. */
    int64_t counted_batch_size;

    /* May be set. Values that your callbacks and your handle_batch put here are averaged over the
     * samples of the loader and over all ranks. The run reports them as NAME, NAME/mean and
     * NAME/std. */
    lk_metrics *batch_metrics;
    /* May be set, at loader_end. A value that a callback sets here is that of its own rank, and
     * the run reports the value of rank 0. Combine the ranks first, with lk_runner_all_reduce or
     * a metric of your own (<lockstep/sys/metric.h>). If the ranks' values differ, the run warns
     * once. */
    lk_metrics *loader_metrics;
    lk_metrics *epoch_metrics; /* the "_epoch_" metrics; may be set, at epoch_end */
    const char *valid_loader, *valid_metric;
    bool minimize_valid_metric;
    bool need_early_stop;  /* may be set: the run ends after this epoch */
    bool need_loader_stop; /* may be set: the loader ends after this batch */
    /* At on_exception: the status that ended the run. lk_error() has the sentence. */
    lk_status exception;
    bool verbose;

    struct lki_run *run; /* private */
};

/* Keys of the batch and of the outputs. The defaults are Catalyst's: "features", "logits",
 * "targets", "loss". */
typedef struct lk_supervised_runner_options {
    size_t struct_size;
    const char *input_key, *output_key, *target_key, *loss_key;
    /* Of a model with several inputs or outputs, in their order; NULL-terminated, copied. They
     * replace input_key and output_key. Losses and metrics look at the first output unless their
     * callbacks name another. */
    const char *const *input_keys, *const *output_keys;
} lk_supervised_runner_options;
#define lk_supervised_runner(...)                                                                            \
    LK_CALL0_(lk_supervised_runner_with, lk_supervised_runner_options, __VA_ARGS__)
/* Returns a runner over (features, targets), or NULL on failure. */
lk_runner *lk_supervised_runner_with(const lk_supervised_runner_options *options);
/* Returns a runner with your own slots, or NULL on failure. The slots are copied and need no size.
 */
lk_runner *lk_custom_runner(const lk_runner_ops *ops, void *context);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_runner_ops)
static inline lk_runner *lk_custom_runner_sized_(const lk_runner_ops *ops, void *context)
{
    lk_runner_ops room;
    return lk_custom_runner(lk_runner_ops_at_(ops, &room), context);
}
#define lk_custom_runner lk_custom_runner_sized_
#endif
/* Frees the runner and everything that was handed to it. NULL is allowed. */
void lk_runner_free(lk_runner *runner);

/* Trains. Everything in the options belongs to the runner from the call on, also if it fails.
 *
 * Before the first batch, fields whose dtype the model or the criterion does not take are
 * converted (float64 features, int32 or bool labels), and the labels of other loaders are
 * renumbered by the class names of the train loader. The header of the run mentions both. Only
 * the supervised batch converts: your own handle_batch gets the fields as they are stored, and a
 * step that cannot take them fails with their dtypes in its sentence. lk_cast_fields chooses a
 * dtype explicitly.
 *
 * Only one run at a time may write to a logdir. Otherwise the call fails with LK_ERR_INVALID, and
 * the error names the process that writes. The files of an earlier run move to LOGDIR.1, .2, ...
 * unless this run resumes or overwrites. A run that resumes takes learning rate, momentum and
 * seed from the checkpoint and everything else from its options. The header has a line for each
 * difference. */
#define lk_train(...) LK_CALL1_(lk_train_with, lk_train_options, __VA_ARGS__, )
/* The same with a struct, which needs no size and may also be passed by value. */
lk_status lk_train_with(lk_runner *runner, const lk_train_options *options);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_train_options)
#define lk_train_with(runner, ...) lk_train_with((runner), LK_SIZED_(lk_train_options, __VA_ARGS__))
#endif

/* Options of lk_evaluate_loader and lk_predict_loader. Model, criterion and callbacks are handed
 * over. */
typedef struct lk_evaluate_options {
    size_t struct_size;
    lk_module *model; /* NULL: the runner's model. A given model replaces it. */
    lk_criterion *criterion;
    lk_callback_list callbacks;
    const char *resume; /* a checkpoint of weights to load first */
    const char *device; /* NULL: the device of the training, or "auto" */
    uint64_t seed;
    bool verbose;
} lk_evaluate_options;
/* Runs the model over a loader and computes its metrics, including the loss if there is a
 * criterion. Read them from runner->loader_metrics. Loader and callbacks belong to the call. The
 * process goes through the whole loader by itself, also after a run on several ranks. In a job of
 * several ranks, each rank that makes the call does so. */
#define lk_evaluate_loader(...) LK_CALL2_(lk_evaluate_loader_with, lk_evaluate_options, __VA_ARGS__, )
lk_status lk_evaluate_loader_with(lk_runner *runner, lk_loader *loader, const lk_evaluate_options *options);

/* Receives the output of the model for one batch. Both pointers are borrowed for the call. A
 * failure ends the prediction with it. */
typedef lk_status (*lk_take_prediction)(const lk_tensor *output, const lk_batch *batch, void *context);
/* Calls `take` with the output of the model for every batch of a loader, in order. `context` is
 * passed to it. The process goes through the whole loader by itself, as in lk_evaluate_loader. */
#define lk_predict_loader(...) LK_CALL4_(lk_predict_loader_with, lk_evaluate_options, __VA_ARGS__, )
lk_status lk_predict_loader_with(lk_runner *runner, lk_loader *loader, lk_take_prediction take, void *context,
                                 const lk_evaluate_options *options);
/* Returns the output of the model for one batch, which the caller frees, or NULL on failure.
 * Features of a dtype that the model does not take are converted as in a run. */
lk_tensor *lk_predict_batch(lk_runner *runner, const lk_tensor *features);

/* Returns the weights and buffers of a model under PyTorch's names, as views of them, or NULL on
 * failure. The caller frees the dict. */
lk_state_dict *lk_module_state_dict(const lk_module *module);
/* Copies weights and buffers from a dict, which may be that of a runner checkpoint. Fails if a
 * name is missing or has another shape. */
lk_status lk_module_load_state_dict(lk_module *module, const lk_state_dict *state);

typedef struct lk_load_weights_options {
    size_t struct_size;
    /* Loads only the weights whose names match one of these shell patterns, which commas separate:
     * "features.*, *.bias". NULL: all. */
    const char *names;
    /* As strict=False in PyTorch: names that are missing in the file or in the model are left
     * alone. A weight of another shape is refused in any case. */
    bool no_strict;
    /* Gets one sentence about what fitted: what is missing, unexpected or of another shape. Free it
     * with lk_text_free. */
    char **report;
} lk_load_weights_options;
/* Loads a model's weights from a file, whoever wrote it: see lk_load_checkpoint. Names and shapes
 * are checked before any weight changes. The error lists all that does not fit, as PyTorch's does.
 *
 *     lk_load_weights(model, "resnet18.pth", .names = "layer?.*", .no_strict = true); */
#define lk_load_weights(...) LK_CALL2_(lk_load_weights_with, lk_load_weights_options, __VA_ARGS__, )
lk_status lk_load_weights_with(lk_module *module, const char *path, const lk_load_weights_options *options);

/* ---- For handle_batch and callbacks ---- */

/* Does what a supervised runner does with a batch: runs the step, puts the loss into
 * batch_metrics and calls the callbacks inside the batch. For your own handle_batch. */
lk_status lk_runner_supervised_batch(lk_runner *runner, const lk_batch *batch);
/* Returns a tensor of this batch by its key: one that a callback put there, a field of the batch,
 * or an output of the step. NULL if there is none. The tensor is borrowed until the next batch. */
const lk_tensor *lk_runner_tensor(lk_runner *runner, const char *key);
/* Makes a tensor of your own available to the callbacks that follow, until the next batch. Key
 * and tensor are borrowed that long. */
lk_status lk_runner_put_tensor(lk_runner *runner, const char *key, const lk_tensor *tensor);
/* Declares, in on_experiment_start, a metric that the callback will report; "name*" stands for
 * all names with that prefix. See lk_callback.declares_metrics. The runner does not average
 * declared metrics: the callback sets them in loader_metrics. */
lk_status lk_runner_declare_metric(lk_runner *runner, const char *name);
/* Returns the metrics of a loader in this epoch, once the loader has ended, or NULL. They belong
 * to the runner. */
const lk_metrics *lk_runner_loader_metrics(const lk_runner *runner, const char *loader_key);
/* Collectives between the ranks of the run, for callbacks and handle_batch. Memory is host
 * memory. With one rank each of them returns what one rank would, so callers need no special
 * case.
 *
 * All ranks must make the same calls in the same order. All ranks reach the experiment, epoch and
 * loader events, and every batch of a train loader. Other loaders may have more batches on one
 * rank than on another, so a call from such a batch fails with LK_ERR_INVALID on every rank. If a
 * rank makes another call, or none, the others fail with an error that names it, at the latest
 * after the timeout of the comm.
 *
 * <lockstep/sys/comm.h> describes the operations; examples/09_own_ddp.c uses them. */
lk_status lk_runner_all_reduce(lk_runner *runner, void *data, int64_t count, lk_dtype dtype,
                               lk_reduce reduce);
/* `recv` takes world_size pieces of `count` elements, in rank order. */
lk_status lk_runner_all_gather(lk_runner *runner, const void *send, void *recv, int64_t count,
                               lk_dtype dtype);
lk_status lk_runner_broadcast(lk_runner *runner, void *data, int64_t count, lk_dtype dtype, int root);
lk_status lk_runner_barrier(lk_runner *runner);
/* Adds a model, a criterion or an optimizer under a key, for runs with several of them (a GAN).
 * The runner keeps, checkpoints and frees them. */
lk_status lk_runner_add_model(lk_runner *runner, const char *key, lk_module *model);
lk_status lk_runner_add_criterion(lk_runner *runner, const char *key, lk_criterion *criterion);
lk_status lk_runner_add_optimizer(lk_runner *runner, const char *key, lk_optimizer *optimizer);
/* Returns the step with this key, which the first call of a run creates. The runner keeps and
 * frees it. It trains the parameters that are trainable when it is created. What its options leave
 * at 0 is as in the run: engine, comm, precision, scaler, sync_batch_norm, compress_gradients and
 * check_replicas. Make a step with lk_step if it is to compute in f32 in a run of 16 bits. The
 * options need no size and may also be passed by value. */
lk_step *lk_runner_step(lk_runner *runner, const char *key, const lk_step_options *options);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_step_options)
#define lk_runner_step(runner, key, ...)                                                                     \
    lk_runner_step((runner), (key), LK_SIZED_(lk_step_options, __VA_ARGS__))
#endif
/* Returns a module whose children are the models that were added by key, with the keys as their
 * names, for a step that trains several of them. It has no forward function. It belongs to the
 * runner, and lists those that are there when it is first asked for. NULL on failure. */
lk_module *lk_runner_models(lk_runner *runner);
/* Return what was added under a key, or NULL. It belongs to the runner. */
lk_module *lk_runner_model(const lk_runner *runner, const char *key);
lk_criterion *lk_runner_criterion(const lk_runner *runner, const char *key);
lk_optimizer *lk_runner_optimizer(const lk_runner *runner, const char *key);

#ifdef __cplusplus
}
#endif
#endif
