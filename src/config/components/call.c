/* The calls under `run:`: the runner's methods with their arguments. */
#include "config/call_parts.h"
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/npy.h"

#include <stdio.h>
#include <string.h>

static bool minimizes(lk_args *args)
{
    const char *metric = lk_arg_string(args, "valid_metric");
    if (lk_arg_given(args, "minimize_valid_metric")) return lk_arg_bool(args, "minimize_valid_metric");
    return !metric || strstr(metric, "loss");
}

/* The first seed of a config was set before anything was built; setting it again would repeat random numbers.
 */
static uint64_t later_seed(lk_args *args)
{
    bool is_set = args->object == args->plan->seeded_by || !lk_arg_given(args, "seed");
    return is_set ? 0 : (uint64_t)lk_arg_int64(args, "seed");
}

static void read_train_values(lk_args *args, lk_train_options *options)
{
    options->seed = later_seed(args);
    options->max_steps = lk_arg_int64(args, "max_steps");
    options->max_minutes = lk_arg_float(args, "max_minutes");
    options->valid_every = lk_arg_int64(args, "valid_every");
    options->freeze = lk_arg_string(args, "freeze");
    bool by_steps = options->max_steps > 0 && !lk_arg_given(args, "num_epochs");
    options->num_epochs = by_steps ? 0 : lk_arg_int(args, "num_epochs");
    options->logdir = lk_arg_string(args, "logdir");
    options->resume = lk_arg_string(args, "resume");
    options->autoresume = lk_arg_string(args, "autoresume");
    options->overwrite = lk_arg_bool(args, "overwrite");
    options->valid_loader = lk_arg_string(args, "valid_loader");
    options->valid_metric = lk_arg_string(args, "valid_metric");
    options->minimize_valid_metric = minimizes(args);
    /* lk_train takes a run that names no metric to minimize its loss. */
    if (!options->minimize_valid_metric && !options->valid_metric)
        options->valid_metric = lk_args_runner(args)->loss_key;
    options->verbose = lk_arg_bool(args, "verbose");
    options->show = !lk_arg_given(args, "verbose") ? (lk_show)args->plan->show
                    : options->verbose             ? LK_SHOW_ALL
                                                   : LK_SHOW_NOTHING;
    options->log_every = lk_arg_int(args, "log_every");
    options->timeit = lk_arg_bool(args, "timeit");
    options->profile = lk_arg_bool(args, "profile");
    options->profile_batches = lk_arg_int(args, "profile_batches");
    options->check = lk_arg_bool(args, "check");
    options->overfit = lk_arg_bool(args, "overfit");
    options->load_best_on_end = lk_arg_bool(args, "load_best_on_end");
    options->save_every = lk_arg_int(args, "save_every");
    options->save_every_minutes = lk_arg_float(args, "save_every_minutes");
    options->shards = lk_arg_int(args, "shards");
    options->min_nodes = lk_arg_int(args, "min_nodes");
}

/* Objects that were taken and then not handed over. */
static void drop_train_objects(const lk_train_options *options)
{
    for (int i = 0; i < options->loaders.count; i++) lk_loader_free(options->loaders.items[i].loader);
    for (int i = 0; i < options->callbacks.count; i++) lk_callback_free(options->callbacks.items[i]);
    for (int i = 0; i < options->loggers.count; i++) lk_logger_close(options->loggers.items[i]);
    lk_module_free(options->model);
    lk_criterion_free(options->criterion);
    lk_optimizer_free(options->optimizer);
    lk_scheduler_free(options->scheduler);
}

static lk_status take_train_objects(lk_args *args, lki_call_lists *l, lk_train_options *options)
{
    lk_runner *runner = lk_args_runner(args);
    LKI_TRY(lki_call_read_hparams(args, l, &options->hparams));
    LKI_TRY(lki_call_take_model(args, &options->model));
    LKI_TRY(
        lki_call_take_optimizer(args, options->model ? options->model : runner->model, &options->optimizer));
    LKI_TRY(lki_call_take_criterion(args, &options->criterion));
    options->scheduler = lk_arg_take(args, "scheduler");
    LKI_TRY(lki_call_take_loaders(args, l, &options->loaders));
    LKI_TRY(lki_call_take_callbacks(args, l, &options->callbacks));
    return lki_call_take_loggers(args, l, &options->loggers);
}

static lk_status call_train(const lk_component *self, lk_args *args, void **out)
{
    lk_train_options options = {LK_SIZE(lk_train_options)};
    lki_call_lists l = {0};
    LKI_SCOPED char *text = NULL;
    (void)out;
    if (!strcmp(self->name, "train") && !lk_arg_given(args, "loaders"))
        return lki_fail(LK_ERR_CONFIG,
                        "\"loaders\" is missing; with a runner that makes its own, write _call_: run");
    read_train_values(args, &options);
    LKI_TRY(lki_call_read_engine(args, &options));
    if (options.num_epochs < 1 && (options.max_steps < 1 || lk_arg_given(args, "num_epochs")))
        return lki_fail(LK_ERR_CONFIG, "num_epochs: expected at least 1, found %d", options.num_epochs);
    LKI_TRY(lki_tree_to_yaml(args->plan->tree, &text));
    options.config_text = text;
    lk_status status = take_train_objects(args, &l, &options);
    if (status == LK_OK && args->status) status = args->status;
    if (status)
        drop_train_objects(&options);
    else
        status = lk_train_with(lk_args_runner(args), &options);
    lki_call_lists_fini(&l);
    return status;
}

/* ---- evaluate_loader, predict_loader ---- */

/* The runner's engine may ask for more, as it is for training too. */
static lk_status check_engine(lk_args *args)
{
    const lki_object *engine = lki_object_argument(args->object, "engine", 0);
    const lki_engine_wish *wish = engine ? engine->pointer : NULL;
    if (!wish || !(wish->ddp || wish->half)) return LK_OK;
    return lki_fail_at(engine->node->place,
                       "engine: an evaluation is in fp32 and starts no ranks: write CPUEngine or GPUEngine");
}

static lk_status take_evaluation(lk_args *args, lki_call_lists *l, bool predicts, lk_loader **loader,
                                 lk_evaluate_options *options)
{
    lk_train_options engine = {LK_SIZE(lk_train_options)};
    LKI_TRY(lki_call_read_device(args, &engine));
    options->device = engine.device;
    options->seed = later_seed(args);
    options->resume = lk_arg_string(args, "resume");
    options->verbose = lk_arg_bool(args, "verbose");
    LKI_TRY(check_engine(args));
    LKI_TRY(lki_call_take_model(args, &options->model));
    if (!predicts) LKI_TRY(lki_call_take_criterion(args, &options->criterion));
    if (!predicts) LKI_TRY(lki_call_take_callbacks(args, l, &options->callbacks));
    *loader = lk_arg_take(args, "loader");
    return args->status;
}

/* Metrics to the log, or the model's outputs to a file where there is one. */
static lk_status evaluate(lk_args *args, const char *output)
{
    lk_evaluate_options options = {LK_SIZE(lk_evaluate_options)};
    lki_call_lists l = {0};
    lk_loader *loader = NULL;
    lk_runner *runner = lk_args_runner(args);
    lk_status status = take_evaluation(args, &l, output != NULL, &loader, &options);
    if (status)
        lki_call_drop_evaluation(loader, &options);
    else if (output)
        status = lki_predict_to_file(runner, loader, options, (lki_prediction_target){.path = output});
    else
        status = lk_evaluate_loader_with(runner, loader, &options);
    if (status == LK_OK && !output) lki_config_report(runner->loader_metrics);
    lki_call_lists_fini(&l);
    return status;
}

static lk_status call_evaluate(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)out;
    return evaluate(args, NULL);
}

static lk_status call_predict(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)out;
    return evaluate(args, lk_arg_string(args, "output"));
}

#define DEVICE_PARAMETERS                                                                                    \
    LKI_BOOL("cpu", "false", "on the CPU whatever else is there"),                                           \
        LKI_STRING("device", LKI_OPTIONAL, "auto, cpu, cuda or ref")
#define ENGINE_PARAMETERS                                                                                    \
    DEVICE_PARAMETERS,                                                                                       \
        LKI_BOOL("fp16", "false", "products in fp16, with loss scaling; precision: bf16 needs none"),        \
        LKI_BOOL("amp", "false", "the same, as older configs say it"),                                       \
        LKI_FLOAT("init_scale", "65536", "fp16: what the loss is multiplied with at first"),                 \
        LKI_FLOAT("growth_factor", "2", "fp16: by how much that grows"),                                     \
        LKI_FLOAT("backoff_factor", "0.5", "fp16: the scale shrinks by it if gradients are not finite"),     \
        LKI_INT("growth_interval", "2000", "fp16: updates in a row after which it grows"),                   \
        LKI_BOOL("ddp", LKI_OPTIONAL, "ranks on all GPUs, or on all cores"),                                 \
        LKI_BOOL("distributed", "false", "the same, as older configs say it"),                               \
        LKI_INT("nproc", "0", "how many ranks; 0: as many as there are"),                                    \
        LKI_CHOICE("comm", LKI_OPTIONAL, "auto|shm|gloo|mpi|nccl", "what the ranks speak"),                  \
        LKI_BOOL("sync_batch_norm", "false", "batch norms look at the batches of all ranks"),                \
        LKI_BOOL("compress_gradients", "false", "gradients travel as bf16, with error feedback"),            \
        LKI_INT("check_replicas", "1000", "compare the ranks' weights every so many updates; 0: never"),     \
        LKI_CHOICE("precision", LKI_OPTIONAL, "fp32|bf16|fp16", "of the computation"), LKI_TF32_PARAMETERS,  \
        LKI_BOOL("benchmark", "false",                                                                       \
                 "a GPU's convolutions by the fastest way of a trial, though its bits vary")

static const lk_parameter train_parameters[] = {
    LKI_OBJECTS("loaders", LOADER, LKI_OPTIONAL,
                "loaders by key; train... is trained on, valid... and others evaluated"),
    LKI_OBJECT("model", MODULE, LKI_OPTIONAL, "the model; the runner's where left out"),
    LKI_OBJECT("engine", ENGINE, LKI_OPTIONAL, "where it runs; the runner's where left out"),
    LKI_OBJECTS("criterion", CRITERION, LKI_OPTIONAL, "the loss; several by key for your own runners"),
    LKI_OBJECTS("optimizer", OPTIMIZER, LKI_OPTIONAL, "how the weights change; several by key likewise"),
    LKI_OBJECT("scheduler", SCHEDULER, LKI_OPTIONAL, "how the learning rate changes"),
    LKI_OBJECTS("callbacks", CALLBACK, LKI_OPTIONAL, "what else happens, a list or a map"),
    LKI_OBJECTS("loggers", LOGGER, LKI_OPTIONAL, "where metrics go, a list or a map"),
    LKI_INT64("seed", "42",
              "of all random numbers; the first one of a config is set before the model is built"),
    LKI_TREE("hparams", "numbers and names to keep with the logs"),
    LKI_INT("num_epochs", "1", "how many times over the data"),
    LKI_STRING("logdir", LKI_OPTIONAL,
               "the folder for logs and checkpoints; nothing is written where left out"),
    LKI_STRING("resume", LKI_OPTIONAL, "a runner checkpoint to go on from"),
    LKI_STRING("valid_loader", LKI_OPTIONAL, "the loader whose metric decides; the first one where left out"),
    LKI_STRING("valid_metric", LKI_OPTIONAL, "the metric that decides; the loss where left out"),
    LKI_BOOL("minimize_valid_metric", LKI_OPTIONAL, "less is better; true for a loss where left out"),
    LKI_BOOL("verbose", LKI_OPTIONAL,
             "y: print all metrics of each epoch, n: print nothing; left out, lockstep run prints a line"),
    LKI_INT("log_every", "0", "print a line every so many train batches; 0: none"),
    LKI_BOOL("timeit", "false", "times of loading and computing among the metrics"),
    LKI_BOOL("check", "false", "3 batches a loader, 3 epochs: does it run at all?"),
    LKI_BOOL("overfit", "false", "the first batch of each loader, over and over"),
    LKI_BOOL("profile", "false", "trace the first batches to LOGDIR/trace.json, and say where time goes"),
    LKI_INT("profile_batches", "0", "how many batches of each loader are traced; 0: 50"),
    LKI_BOOL("load_best_on_end", "false", "end with the best epoch's weights"),
    ENGINE_PARAMETERS,
    LKI_CHOICE("autoresume", LKI_OPTIONAL, "last|best",
               "continue from the checkpoint in the logdir, if there is one"),
    LKI_INT("save_every", "0", "also save the run's place within an epoch, every N train batches"),
    LKI_FLOAT("save_every_minutes", "0", "the same, each time that so many minutes have passed"),
    LKI_INT("shards", "0", "parts of a global batch: the same bits on any number of ranks that divides it"),
    LKI_BOOL("overwrite", "false",
             "replace an earlier run's files in logdir, which are moved to LOGDIR.1 otherwise"),
    LKI_TREE("datasets",
             "instead of loaders: datasets by key, and batch_size, num_workers and drop_last of all "
             "their loaders; train... is shuffled"),
    LKI_INT64("max_steps", "0",
              "end the run after so many train batches; without num_epochs, however many epochs that takes"),
    LKI_FLOAT("max_minutes", "0", "end the run when it has trained so long; a resumed run counts on"),
    LKI_INT64("valid_every", "0",
              "validate every so many train batches: each piece of a pass is an epoch of its own"),
    LKI_STRING("freeze", LKI_OPTIONAL,
               "parameters that do not train: patterns for their names, as in \"features.*, embed.weight\""),
    LKI_INT("min_nodes", "0",
            "go on with the ranks of so many hosts if the others stay away; 0: all must come"),
    {0},
};
#define EVALUATION_PARAMETERS                                                                                \
    LKI_OBJECT("model", MODULE, LKI_OPTIONAL, "the model; the runner's where left out"),                     \
        LKI_OBJECT("engine", ENGINE, LKI_OPTIONAL, "where it runs; the runner's where left out"),            \
        LKI_STRING("resume", LKI_OPTIONAL, "weights to load first"),                                         \
        LKI_INT64("seed", "42", "of all random numbers"), LKI_BOOL("verbose", "false", "progress")
/* Catalyst's evaluations take these; here all ranks that have trained go through the data together. */
#define IN_FP32  "leave it out: evaluations compute in fp32"
#define ON_RANKS "leave it out: the ranks that have trained evaluate together"
#define NOT_IN_EVALUATIONS                                                                                   \
    LKI_REFUSED("fp16", "false", IN_FP32), LKI_REFUSED("amp", "false", IN_FP32),                             \
        LKI_REFUSED("precision", "fp32", IN_FP32), LKI_REFUSED("ddp", "false", ON_RANKS),                    \
        LKI_REFUSED("distributed", "false", ON_RANKS)
#define DATA LKI_OBJECT("loader", LOADER, LKI_REQUIRED, "the data")
static const lk_parameter evaluate_parameters[] = {
    DATA,
    LKI_OBJECTS("callbacks", CALLBACK, LKI_OPTIONAL, "the metrics to report"),
    EVALUATION_PARAMETERS,
    LKI_OBJECTS("criterion", CRITERION, LKI_OPTIONAL, "the loss to report"),
    DEVICE_PARAMETERS,
    NOT_IN_EVALUATIONS,
    {0},
};
static const lk_parameter predict_parameters[] = {
    DATA,
    EVALUATION_PARAMETERS,
    LKI_STRING("output", LKI_REQUIRED,
               "the file for the model's outputs, in the loader's order: .npy, .csv, .json or .jsonl"),
    DEVICE_PARAMETERS,
    NOT_IN_EVALUATIONS,
    {0},
};

const lk_component lki_call_components[] = {
    {.name = "train",
     .kind = LK_KIND_CALL,
     .help = "Trains the model.",
     .parameters = train_parameters,
     .build = call_train},
    {.name = "run",
     .kind = LK_KIND_CALL,
     .help = "Trains as train does; what is left out comes from a runner of your own.",
     .parameters = train_parameters,
     .build = call_train},
    {.name = "evaluate_loader",
     .kind = LK_KIND_CALL,
     .help = "Reports the metrics of the model on a loader.",
     .parameters = evaluate_parameters,
     .build = call_evaluate},
    {.name = "predict_loader",
     .kind = LK_KIND_CALL,
     .help = "Writes the model's outputs for a loader to a file.",
     .parameters = predict_parameters,
     .build = call_predict},
    {0},
};
