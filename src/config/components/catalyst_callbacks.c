/* Catalyst's callbacks around models, batches and files; and Torchbearer's. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

#include <string.h>

enum { MAX_NAMES = 64 };

static lk_status build_soft_update(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_soft_update_callback(.target_model = lk_arg_string(args, "target_model"),
                                             .source_model = lk_arg_string(args, "source_model"),
                                             .tau = lk_arg_float(args, "tau"),
                                             .scope = lk_arg_string(args, "scope")),
                     out);
}

typedef struct mix {
    lk_callback *(*create)(const lk_mix_callback_options *options);
} mix;

static lk_status build_mix(const lk_component *self, lk_args *args, void **out)
{
    const mix *kind = self->context;
    lk_mix_callback_options options = {LK_SIZE(lk_mix_callback_options),
                                       .alpha = lki_number_meant(lk_arg_float(args, "alpha")),
                                       .no_on_train_only = !lk_arg_bool(args, "on_train_only")};
    int count = lk_arg_count(args, "keys");
    if (count < 1 || count >= LK_MAX_FIELDS)
        return lki_fail(LK_ERR_CONFIG, "keys: expected 1 to %d names, found %d", LK_MAX_FIELDS - 1, count);
    for (int i = 0; i < count; i++) options.keys[i] = lk_arg_string_at(args, "keys", i);
    return lki_built(kind->create(&options), out);
}

/* The metric is a callback that is told which keys to look at. */
static lk_status build_metric_of(const lk_component *self, lk_args *args, void **out)
{
    bool of_batch = !strcmp(self->name, "BatchMetric");
    lk_callback *callback = lk_arg_take(args, "metric");
    if (!callback) return lki_last_status();
    lk_status status =
        lki_metric_callback_use(callback, lk_arg_string(args, "input_key"), lk_arg_string(args, "target_key"),
                                !of_batch || !lk_arg_bool(args, "log_on_batch"));
    if (status)
        lk_callback_free(callback);
    else
        *out = callback;
    return status;
}

static lk_status build_profiler(const lk_component *self, lk_args *args, void **out)
{
    int epoch = lk_arg_int(args, "epoch"), batches = lk_arg_int(args, "num_batches");
    (void)self;
    if (epoch < 1) return lki_fail(LK_ERR_CONFIG, "epoch: expected at least 1, found %d", epoch);
    if (lk_arg_given(args, "num_batches") && batches < 1)
        return lki_fail(LK_ERR_CONFIG, "num_batches: expected at least 1, found %d", batches);
    return lki_built(
        lk_profiler_callback(.loader_key = lk_arg_string(args, "loader_key"), .epoch = epoch,
                             .num_batches = batches,
                             .export_chrome_trace_path = lk_arg_string(args, "export_chrome_trace_path")),
        out);
}

static lk_status build_onnx(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_onnx_callback(.input_key = lk_arg_string(args, "input_key"),
                                      .logdir = lk_arg_string(args, "logdir"),
                                      .filename = lk_arg_string(args, "filename")),
                     out);
}

#define INSTEAD_OF_TRACING "use OnnxCallback, whose file other programs read"

static lk_status build_tracing(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args, (void)out;
    return lki_fail(LK_ERR_CONFIG, "Tracing writes TorchScript, which is PyTorch's own: " INSTEAD_OF_TRACING);
}

static lk_status build_quantization(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_quantization_callback(.logdir = lk_arg_string(args, "logdir"),
                                              .filename = lk_arg_string(args, "filename"),
                                              .dtype = lk_arg_string(args, "dtype")),
                     out);
}

static lk_status read_list(lk_args *args, const char *name, const char *names[MAX_NAMES + 1],
                           const char *const **out)
{
    int count = lk_arg_count(args, name);
    if (count > MAX_NAMES) return lki_fail(LK_ERR_CONFIG, "%s: at most %d", name, MAX_NAMES);
    for (int i = 0; i < count; i++) names[i] = lk_arg_string_at(args, name, i);
    names[count] = NULL;
    if (count) *out = names;
    return LK_OK;
}

static lk_status build_pruning(const lk_component *self, lk_args *args, void **out)
{
    const char *keys[MAX_NAMES + 1], *layers[MAX_NAMES + 1];
    lk_pruning_callback_options options = {
        LK_SIZE(lk_pruning_callback_options), .pruning_fn = lk_arg_string(args, "pruning_fn"),
        .amount = lk_arg_float(args, "amount"), .prune_on_epoch_end = lk_arg_bool(args, "prune_on_epoch_end"),
        .no_prune_on_end = !lk_arg_bool(args, "prune_on_end")};
    (void)self;
    LKI_TRY(read_list(args, "keys_to_prune", keys, &options.keys_to_prune));
    LKI_TRY(read_list(args, "layers_to_prune", layers, &options.layers_to_prune));
    if (lk_arg_given(args, "dim")) options.dim = lki_number_meant(lk_arg_int(args, "dim"));
    if (lk_arg_given(args, "l_norm")) options.l_norm = lki_number_meant(lk_arg_float(args, "l_norm"));
    return lki_built(lk_pruning_callback_with(&options), out);
}

static lk_status build_running_mean(const lk_component *self, lk_args *args, void **out)
{
    int window = lk_arg_int(args, "batch_size"), every = lk_arg_int(args, "step_size");
    (void)self;
    if (window < 1) return lki_fail(LK_ERR_CONFIG, "batch_size: expected at least 1, found %d", window);
    if (every < 1) return lki_fail(LK_ERR_CONFIG, "step_size: expected at least 1, found %d", every);
    return lki_built(lk_running_mean_callback(.metric_key = lk_arg_string(args, "metric_key"),
                                              .batch_size = window, .step_size = every),
                     out);
}

#define FORWARD_ONLY                                                                                         \
    LKI_REFUSED("method_name", "forward", "leave it out: a model has its forward function alone")

static const lk_parameter soft_update_parameters[] = {
    LKI_STRING("target_model", LKI_REQUIRED, "the key of the model that moves"),
    LKI_STRING("source_model", LKI_REQUIRED, "the key of the model that it moves towards"),
    LKI_FLOAT("tau", LKI_REQUIRED, "how far: target = (1 - tau) target + tau source"),
    LKI_CHOICE("scope", LKI_REQUIRED, "on_batch_end|on_batch_start|on_epoch_end|on_epoch_start", "when"),
    {0}};
#define MIX_PARAMETERS(alpha_)                                                                               \
    LKI_STRINGS("keys", LKI_REQUIRED, "the fields of the batch, f32"),                                       \
        LKI_FLOAT("alpha", alpha_, "of the Beta distribution"),                                              \
        LKI_REFUSED("mode", "replace", "leave it out: a batch keeps its size"),                              \
        LKI_BOOL("on_train_only", "true", "batches of train loaders only"),                                  \
    {                                                                                                        \
        0                                                                                                    \
    }
static const lk_parameter mixup_parameters[] = {MIX_PARAMETERS("0.2")};
static const lk_parameter cutmix_parameters[] = {MIX_PARAMETERS("1")};
#define METRIC_PARAMETERS                                                                                    \
    LKI_OBJECT("metric", CALLBACK, LKI_REQUIRED, "one of catalyst.metrics, as AccuracyMetric"),              \
        LKI_STRING("input_key", LKI_REQUIRED, "the output to look at"),                                      \
        LKI_STRING("target_key", LKI_REQUIRED, "what it should be")
static const lk_parameter batch_metric_parameters[] = {
    METRIC_PARAMETERS, LKI_BOOL("log_on_batch", "true", "among the metrics of batches too"), {0}};
static const lk_parameter loader_metric_parameters[] = {METRIC_PARAMETERS, {0}};
static const lk_parameter profiler_parameters[] = {
    LKI_STRING("loader_key", LKI_OPTIONAL, "whose batches; the first loader's where left out"),
    LKI_INT("epoch", "1", "in which epoch"),
    LKI_INT("num_batches", LKI_OPTIONAL, "how many; all where left out"),
    LKI_STRING("export_chrome_trace_path", LKI_OPTIONAL, "the file; LOGDIR/trace.json where left out"),
    LKI_REFUSED("profiler_kwargs", NULL, "leave it out: they are PyTorch's"),
    LKI_REFUSED("tensorboard_path", NULL, "use export_chrome_trace_path, and open the file in Perfetto"),
    LKI_REFUSED("export_stacks_kwargs", NULL, "leave it out: there are no stacks, but spans by name"),
    {0}};
static const lk_parameter onnx_parameters[] = {
    LKI_STRING("input_key", LKI_OPTIONAL,
               "the field with the shape of the input; the runner's where left out"),
    LKI_STRING("logdir", LKI_OPTIONAL, "the folder; the run's logdir where left out"),
    LKI_STRING("filename", "model.onnx", "the file"),
    FORWARD_ONLY,
    LKI_REFUSED("input_names", "[input]", "leave it out: the input is called input"),
    LKI_REFUSED("output_names", "[output]", "leave it out: the output is called output"),
    LKI_REFUSED("dynamic_axes", NULL, "leave it out: the batch may have any size, nothing else"),
    LKI_REFUSED("opset_version", "17", "leave it out: it is 17"),
    LKI_REFUSED("do_constant_folding", "false", "leave it out: the graph stays as it was recorded"),
    LKI_REFUSED("verbose", "false", "leave it out"),
    {0}};
#define TRACING(key_) LKI_REFUSED(key_, NULL, INSTEAD_OF_TRACING)
static const lk_parameter tracing_parameters[] = {
    TRACING("input_key"), TRACING("logdir"), TRACING("filename"), TRACING("method_name"), {0}};
static const lk_parameter quantization_parameters[] = {
    LKI_STRING("logdir", LKI_OPTIONAL, "the folder; the run's logdir where left out"),
    LKI_STRING("filename", "quantized.safetensors", "the file"),
    LKI_REFUSED("qconfig_spec", NULL, "leave it out: all weights of two or more dimensions are rounded"),
    LKI_CHOICE("dtype", "qint8", "qint8|bfloat16", "what they are rounded to"),
    {0}};
static const lk_parameter pruning_parameters[] = {
    LKI_CHOICE("pruning_fn", LKI_REQUIRED,
               "l1_unstructured|random_unstructured|ln_structured|random_structured", "which weights go"),
    LKI_FLOAT("amount", LKI_REQUIRED, "below 1: the share of what is left; else how many"),
    LKI_STRINGS("keys_to_prune", "weight", "the last parts of the parameters' names"),
    LKI_STRINGS("layers_to_prune", LKI_OPTIONAL, "the names of the layers; all where left out"),
    LKI_INT("dim", LKI_OPTIONAL, "the axis, of the structured ones"),
    LKI_FLOAT("l_norm", LKI_OPTIONAL, "the norm, of ln_structured"),
    LKI_BOOL("prune_on_epoch_end", "false", "at the end of each epoch but the last"),
    LKI_BOOL("prune_on_end", "true", "at the end of the run"),
    LKI_REFUSED("remove_reparametrization_on_end", "true", "leave it out: masks are no part of the model"),
    {0}};

static const lk_parameter running_mean_parameters[] = {
    LKI_STRING("metric_key", "loss", "the metric of the batches"),
    LKI_INT("batch_size", "50", "how many of the last batches"),
    LKI_INT("step_size", "10", "after how many batches the metric of a batch is renewed"),
    {0}};

#define MIX(name_, help_, parameters_, create_)                                                              \
    {                                                                                                        \
        .name = name_ "Callback",                                                                            \
        .aliases = "catalyst.callbacks." name_ "Callback catalyst.dl." name_                                 \
                   "Callback catalyst.callbacks.mixup." name_ "Callback",                                    \
        .kind = LK_KIND_CALLBACK, .help = help_, .parameters = parameters_, .build = build_mix,              \
        .context = &(const mix)                                                                              \
        {                                                                                                    \
            create_                                                                                          \
        }                                                                                                    \
    }
#define METRIC_OF(name_, help_, parameters_)                                                                 \
    {                                                                                                        \
        .name = name_, .aliases = LKI_CALLBACK_NAMES(name_), .kind = LK_KIND_CALLBACK, .help = help_,        \
        .parameters = parameters_, .build = build_metric_of                                                  \
    }

const lk_component lki_catalyst_callback_components[] = {
    {.name = "SoftUpdate",
     .aliases =
         LKI_CALLBACK_NAMES("SoftUpdate") " SoftUpdateCallaback catalyst.callbacks.SoftUpdateCallaback "
                                          "catalyst.dl.SoftUpdateCallaback",
     .kind = LK_KIND_CALLBACK,
     .help = "Moves the weights of one model towards those of another.",
     .parameters = soft_update_parameters,
     .build = build_soft_update},
    MIX("Mixup", "Each sample of a batch mixed with another.", mixup_parameters, lk_mixup_callback_with),
    MIX("Cutmix", "A rectangle of each picture of a batch from another.", cutmix_parameters,
        lk_cutmix_callback_with),
    METRIC_OF("BatchMetric", "A metric by its name, of each batch and of the loader.",
              batch_metric_parameters),
    METRIC_OF("LoaderMetric", "A metric by its name, of the loader.", loader_metric_parameters),
    LKI_CALLBACK("Profiler", "Traces batches of one epoch, for Perfetto, and sums them up.", profiler),
    LKI_CALLBACK("Onnx", "Writes the model as an ONNX file when the run ends.", onnx),
    LKI_CALLBACK("Tracing", "Refused: TorchScript is PyTorch's own; Onnx writes the model.", tracing),
    LKI_CALLBACK("Quantization", "Writes the weights with fewer bits when the run ends.", quantization),
    {.name = "RunningMean",
     .kind = LK_KIND_CALLBACK,
     .help = "The mean of a metric of the last batches, running_NAME, as Torchbearer has it.",
     .parameters = running_mean_parameters,
     .build = build_running_mean},
    LKI_CALLBACK("Pruning", "Sets weights to 0, and keeps them there.", pruning),
    {0},
};
