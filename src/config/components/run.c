/* Loggers, engines and runners. */
#include "config/components/components.h"

#include "base/memory.h"
#include "base/status.h"
#include "config/run_config.h"

#include <lockstep/logger.h>
#include <lockstep/runner.h>

#include <string.h>

static lk_status build_console(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_console_logger(.hparams = lk_arg_bool(args, "log_hparams")), out);
}

static lk_status build_csv_logger(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_csv_logger(lk_arg_string(args, "logdir")), out);
}

static lk_status build_tensorboard(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_tensorboard_logger(lk_arg_string(args, "logdir"),
                                           .log_batch_metrics = lk_arg_bool(args, "log_batch_metrics"),
                                           .no_log_epoch_metrics = !lk_arg_bool(args, "log_epoch_metrics")),
                     out);
}

static lk_status build_jsonl(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_jsonl_logger(lk_arg_string(args, "path"),
                                     .log_batch_metrics = lk_arg_bool(args, "log_batch_metrics")),
                     out);
}

static lk_status build_mlflow(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_mlflow_logger(lk_arg_string(args, "root"),
                                      .experiment = lk_arg_string(args, "experiment"),
                                      .run_name = lk_arg_string(args, "run_name")),
                     out);
}

/* An engine of a config is a wish: the run opens the engine itself, after its ranks have been forked. */
static lk_status build_engine(const lk_component *self, lk_args *args, void **out)
{
    lki_engine_wish *wish = LKI_NEW(lki_engine_wish);
    if (!wish) return LK_ERR_NOMEM;
    *wish = *(const lki_engine_wish *)self->context;
    wish->half |= lk_arg_bool(args, "fp16");
    wish->tf32 = lk_arg_bool(args, "tf32") || lk_arg_bool(args, "allow_tf32");
    if (!strcmp(self->name, "DeviceEngine")) wish->device = lk_arg_string(args, "device");
    *out = wish;
    return LK_OK;
}

static lk_status read_key(lk_args *args, const char *name, const char **out)
{
    if (lk_arg_count(args, name) != 1)
        return lki_fail(LK_ERR_CONFIG, "%s: expected one name, found %d", name, lk_arg_count(args, name));
    *out = lk_arg_string(args, name);
    return LK_OK;
}

enum { MOST_KEYS = 8 };

/* One name, or the list of several. */
static lk_status read_keys(lk_args *args, const char *name, const char **one,
                           const char *several[MOST_KEYS + 1], const char *const **list)
{
    int count = lk_arg_count(args, name);
    if (count == 1) return read_key(args, name, one);
    if (count < 1 || count > MOST_KEYS)
        return lki_fail(LK_ERR_CONFIG, "%s: expected 1 to %d names, found %d", name, MOST_KEYS, count);
    for (int i = 0; i < count; i++) several[i] = lk_arg_string_at(args, name, i);
    *list = several;
    return LK_OK;
}

/* The model stays where it is until the first call takes it: see run.c. */
static lk_status build_supervised(const lk_component *self, lk_args *args, void **out)
{
    lk_supervised_runner_options options = {LK_SIZE(lk_supervised_runner_options)};
    const char *inputs[MOST_KEYS + 1] = {0}, *outputs[MOST_KEYS + 1] = {0};
    (void)self;
    LKI_TRY(read_keys(args, "input_key", &options.input_key, inputs, &options.input_keys));
    LKI_TRY(read_keys(args, "output_key", &options.output_key, outputs, &options.output_keys));
    LKI_TRY(read_key(args, "target_key", &options.target_key));
    options.loss_key = lk_arg_string(args, "loss_key");
    return lki_built(lk_supervised_runner_with(&options), out);
}

#define POSTFIX                                                                                              \
    LKI_REFUSED("use_logdir_postfix", "true",                                                                \
                "leave it out: files always have a folder of their own in logdir")
#define BATCHES LKI_BOOL("log_batch_metrics", "false", "every batch too")
#define EPOCHS  LKI_BOOL("log_epoch_metrics", "true", "every epoch")
#define FP16    LKI_BOOL("fp16", "false", "products in fp16, with loss scaling")

static const lk_parameter console_parameters[] = {
    LKI_BOOL("log_hparams", "false", "a line with the run's settings when it starts"), {0}};
static const lk_parameter csv_parameters[] = {LKI_STRING("logdir", LKI_REQUIRED, "the folder"), POSTFIX, {0}};
static const lk_parameter tensorboard_parameters[] = {
    LKI_STRING("logdir", LKI_REQUIRED, "the folder"), POSTFIX, BATCHES, EPOCHS, {0}};
static const lk_parameter jsonl_parameters[] = {LKI_STRING("path", LKI_REQUIRED, "the file"), BATCHES, {0}};
static const lk_parameter mlflow_parameters[] = {
    LKI_STRING("root", "mlruns", "the folder of MLflow's file store"),
    LKI_STRING("experiment", "Default", "the experiment, which is made if it is not there"),
    LKI_STRING("run_name", LKI_OPTIONAL, "the name of the run; made of the time if left out"),
    {0}};
static const lk_parameter engine_parameters[] = {FP16, LKI_TF32_PARAMETERS, {0}};
static const lk_parameter device_parameters[] = {
    LKI_STRING("device", "auto", "auto, cpu, cuda or ref"), FP16, LKI_TF32_PARAMETERS, {0}};
static const lk_parameter supervised_parameters[] = {
    LKI_OBJECTS("model", MODULE, LKI_OPTIONAL, "the model"),
    LKI_OBJECT("engine", ENGINE, LKI_OPTIONAL, "where it runs; the best that is there where left out"),
    LKI_STRINGS("input_key", "features", "the model's input in a batch, or a list of its inputs"),
    LKI_STRINGS("output_key", "logits", "the name of its output, or a list of its outputs"),
    LKI_STRINGS("target_key", "targets", "what the output should be"),
    LKI_STRING("loss_key", "loss", "the name of the loss"),
    {0},
};

#define LOGGER(name_, help_, table_)                                                                         \
    {                                                                                                        \
        .name = name_, .aliases = "catalyst.loggers." name_ " catalyst.dl." name_, .kind = LK_KIND_LOGGER,   \
        .help = help_, .parameters = table_##_parameters                                                     \
    }
#define ENGINE(name_, help_, ...)                                                                            \
    {                                                                                                        \
        .name = name_, .aliases = "catalyst.engines." name_ " catalyst.dl." name_, .kind = LK_KIND_ENGINE,   \
        .help = help_, .parameters = engine_parameters, .build = build_engine, .free = lki_free,             \
        .context = &(const lki_engine_wish)                                                                  \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

const lk_component lki_run_components[] = {
    {"ConsoleLogger", "catalyst.loggers.ConsoleLogger catalyst.dl.ConsoleLogger", LK_KIND_LOGGER,
     "Lines on the terminal after each loader and epoch.", .parameters = console_parameters,
     .build = build_console},
    {"CSVLogger", "catalyst.loggers.CSVLogger catalyst.dl.CSVLogger", LK_KIND_LOGGER,
     "A CSV file for each loader, with one row per epoch.", .parameters = csv_parameters,
     .build = build_csv_logger},
    {"TensorboardLogger", "catalyst.loggers.TensorboardLogger catalyst.dl.TensorboardLogger", LK_KIND_LOGGER,
     "Event files for TensorBoard.", .parameters = tensorboard_parameters, .build = build_tensorboard},
    {"JSONLLogger", NULL, LK_KIND_LOGGER, "One JSON object a line.", .parameters = jsonl_parameters,
     .build = build_jsonl},
    {"MLflowLogger", NULL, LK_KIND_LOGGER, "A run in MLflow's file store.", .parameters = mlflow_parameters,
     .build = build_mlflow},
    {"Engine", "catalyst.core.engine.Engine catalyst.dl.Engine", LK_KIND_ENGINE,
     "The best device there is, as one process.", .parameters = engine_parameters, .build = build_engine,
     .free = lki_free, .context = &(const lki_engine_wish){0}},
    ENGINE(
        "DataParallelEngine",
        "One process on the best device there is: the numbers of torch.nn.DataParallel, which divides each "
        "batch among GPUs; for all GPUs write DistributedDataParallelEngine."),
    ENGINE("CPUEngine", "This machine's cores, as one process.", .device = "cpu"),
    ENGINE("GPUEngine", "One GPU.", .device = "cuda"),
    ENGINE("DistributedDataParallelEngine", "Ranks on all GPUs, or on all cores.", .ddp = true),
    ENGINE("AMPEngine", "One GPU, products in fp16.", .device = "cuda", .half = true),
    ENGINE("DistributedDataParallelAMPEngine", "Ranks on all GPUs, products in fp16.", .ddp = true,
           .half = true),
    {"DeviceEngine", "catalyst.engines.DeviceEngine catalyst.dl.DeviceEngine", LK_KIND_ENGINE,
     "A device by its name.", .parameters = device_parameters, .build = build_engine, .free = lki_free,
     .context = &(const lki_engine_wish){0}},
    {"SupervisedRunner",
     "catalyst.runners.SupervisedRunner catalyst.dl.SupervisedRunner "
     "catalyst.runners.supervised.SupervisedRunner",
     LK_KIND_RUNNER, "Trains a model on (features, targets).", .parameters = supervised_parameters,
     .build = build_supervised},
    {0},
};
