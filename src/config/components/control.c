/* Callbacks around a run: in some epochs only, for some loaders only, averages of weights, several metrics
 * into one. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"
#include "config/build.h"
#include "config/registry.h"

#include <lockstep/callback.h>

#include <string.h>

enum { MAX_NAMES = 64 };

static lk_status build_lr_finder(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_lr_finder_callback(.final_lr = lk_arg_float(args, "final_lr"),
                                           .scale = lk_arg_string(args, "scale"),
                                           .num_steps = lk_arg_int(args, "num_steps"),
                                           .optimizer_key = lk_arg_string(args, "optimizer_key")),
                     out);
}

static lk_status build_periodic_loader(const lk_component *self, lk_args *args, void **out)
{
    lk_loader_period periods[MAX_NAMES];
    int count = lk_arg_count(args, "periods");
    (void)self;
    if (count < 1 || count > MAX_NAMES)
        return lki_fail(LK_ERR_CONFIG, "expected loaders and periods, as in valid: 3");
    for (int i = 0; i < count; i++)
        periods[i] = (lk_loader_period){lk_arg_key_at(args, "periods", i), lk_arg_int_at(args, "periods", i)};
    const lki_deciding decides = {
        .loader_key = lk_arg_string(args, "valid_loader_key"),
        .metric_key = lk_arg_string(args, "valid_metric_key"),
        .says_minimize = lk_arg_given(args, "minimize"),
        .minimize = lk_arg_bool(args, "minimize"),
    };
    lk_callback *callback = lk_periodic_loader_callback_with(periods, count);
    if (!callback) return lki_last_status();
    lk_status status = lki_periodic_loader_expect(callback, &decides);
    if (status)
        lk_callback_free(callback);
    else
        *out = callback;
    return status;
}

/* `trial: {_var_: trial}`, as Catalyst's configs have it, is what happens anyhow. */
static lk_status check_trial(lk_args *args)
{
    int index = lki_component_parameter_index(args->object->component, "trial");
    const lki_node *trial = args->object->values[index], *name = lki_node_get(trial, "_var_");
    if (lki_node_is_null(trial)) return LK_OK;
    if (name && trial->count == 1 && lki_same_text(name->text, "trial")) return LK_OK;
    return lki_fail_at(trial->place, "trial: expected {_var_: trial}: `lockstep tune` knows the trial");
}

static lk_status build_optuna_pruning(const lk_component *self, lk_args *args, void **out)
{
    bool given = lk_arg_given(args, "minimize"), minimize = lk_arg_bool(args, "minimize");
    (void)self;
    LKI_TRY(check_trial(args));
    return lki_built(
        lk_optuna_pruning_callback(.loader_key = lk_arg_string(args, "loader_key"),
                                   .metric_key = lk_arg_string(args, "metric_key"),
                                   .minimize = given && minimize, .maximize = given && !minimize,
                                   .min_delta = lki_number_meant(lk_arg_float(args, "min_delta"))),
        out);
}

static lk_status build_batch_overfit(const lk_component *self, lk_args *args, void **out)
{
    lk_loader_portion portions[MAX_NAMES];
    int count = lk_arg_count(args, "portions");
    (void)self;
    if (count < 1 || count > MAX_NAMES)
        return lki_fail(LK_ERR_CONFIG, "expected loaders and portions, as in train: 1");
    for (int i = 0; i < count; i++)
        portions[i] =
            (lk_loader_portion){lk_arg_key_at(args, "portions", i), lk_arg_float_at(args, "portions", i)};
    return lki_built(lk_batch_overfit_callback_with(portions, count), out);
}

/* One number means "every so many"; a list means these, and ends with 0 for the constructor. */
static lk_status read_epochs(lk_args *args, const char *name, int *every, int *list, const int **out)
{
    int count = lk_arg_count(args, name);
    if (count >= MAX_NAMES) return lki_fail(LK_ERR_CONFIG, "%s: at most %d", name, MAX_NAMES - 1);
    for (int i = 0; i < count; i++) {
        list[i] = lk_arg_int_at(args, name, i);
        if (list[i] < 1) return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %d", name, list[i]);
    }
    list[count] = 0;
    if (lk_arg_is_list(args, name))
        *out = list;
    else if (count)
        *every = list[0];
    return LK_OK;
}

static lk_status read_names(lk_args *args, const char *name, const char **names, const char *const **out)
{
    int count = lk_arg_count(args, name);
    if (count >= MAX_NAMES) return lki_fail(LK_ERR_CONFIG, "%s: at most %d", name, MAX_NAMES - 1);
    for (int i = 0; i < count; i++) names[i] = lk_arg_string_at(args, name, i);
    names[count] = NULL;
    if (count) *out = names;
    return LK_OK;
}

static lk_status build_control_flow(const lk_component *self, lk_args *args, void **out)
{
    lk_control_flow_callback_options options = {LK_SIZE(lk_control_flow_callback_options)};
    int epochs[MAX_NAMES], ignored[MAX_NAMES];
    const char *loaders[MAX_NAMES], *ignored_loaders[MAX_NAMES];
    (void)self;
    LKI_TRY(read_epochs(args, "epochs", &options.epochs, epochs, &options.epoch_list));
    LKI_TRY(read_epochs(args, "ignore_epochs", &options.ignore_epochs, ignored, &options.ignore_epoch_list));
    LKI_TRY(read_names(args, "loaders", loaders, &options.loaders));
    LKI_TRY(read_names(args, "ignore_loaders", ignored_loaders, &options.ignore_loaders));
    return lki_built(lk_control_flow_callback_with(lk_arg_take(args, "base_callback"), &options), out);
}

/* `metrics` is a list of names, or a map of weights by name. */
static lk_status build_aggregation(const lk_component *self, lk_args *args, void **out)
{
    const char *names[MAX_NAMES + 1];
    double weights[MAX_NAMES];
    int count = lk_arg_count(args, "metrics");
    bool has_weights = count > 0 && lk_arg_key_at(args, "metrics", 0);
    (void)self;
    if (count > MAX_NAMES) return lki_fail(LK_ERR_CONFIG, "metrics: at most %d", MAX_NAMES);
    for (int i = 0; i < count; i++) {
        names[i] = has_weights ? lk_arg_key_at(args, "metrics", i) : lk_arg_string_at(args, "metrics", i);
        weights[i] = has_weights ? lk_arg_float_at(args, "metrics", i) : 1;
    }
    names[count] = NULL;
    return lki_built(lk_metric_aggregation_callback(.metric_key = lk_arg_string(args, "metric_key"),
                                                    .metrics = count ? names : NULL,
                                                    .weights = has_weights ? weights : NULL,
                                                    .mode = lk_arg_string(args, "mode"),
                                                    .scope = lk_arg_string(args, "scope")),
                     out);
}

static lk_status build_histogram(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_histogram_callback(.every = lk_arg_int(args, "every"),
                                           .bins = lk_arg_int(args, "bins"),
                                           .gradients = lk_arg_bool(args, "gradients"),
                                           .no_weights = !lk_arg_bool(args, "weights")),
                     out);
}

static lk_status build_ema(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_ema_callback(.decay = lk_arg_float(args, "decay"),
                                     .update_every = lk_arg_int(args, "update_every")),
                     out);
}

static lk_status build_swa(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_swa_callback(lk_arg_int(args, "swa_start")), out);
}

typedef struct weight_decay {
    lk_callback *(*create)(double rate);
} weight_decay;

static lk_status build_weight_decay(const lk_component *self, lk_args *args, void **out)
{
    const weight_decay *kind = self->context;
    return lki_built(kind->create(lk_arg_float(args, "rate")), out);
}

static lk_status build_check_run(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(
        lk_check_run_callback(lk_arg_int(args, "num_batch_steps"), lk_arg_int(args, "num_epoch_steps")), out);
}

static const lk_parameter lr_finder_parameters[] = {
    LKI_FLOAT("final_lr", LKI_REQUIRED, "the last rate"),
    LKI_CHOICE("scale", "log", "log|linear", "how the rate rises"),
    LKI_INT("num_steps", LKI_OPTIONAL, "batches; the loader's where left out"),
    LKI_STRING("optimizer_key", LKI_OPTIONAL, "which optimizer, of several"),
    {0},
};
static const lk_parameter periodic_loader_parameters[] = {
    LKI_STRING("valid_loader_key", LKI_OPTIONAL, "must be the run's valid_loader"),
    LKI_STRING("valid_metric_key", LKI_OPTIONAL, "must be the run's valid_metric"),
    LKI_BOOL("minimize", LKI_OPTIONAL, "must be the run's minimize_valid_metric"),
    {.name = "periods",
     .type = LK_PARAMETER_INTS,
     .default_value = LKI_OPTIONAL,
     .takes_keys = true,
     .help = "each loader's period in epochs, as in valid: 3"},
    {0},
};
static const lk_parameter batch_overfit_parameters[] = {
    {.name = "portions",
     .type = LK_PARAMETER_FLOATS,
     .default_value = LKI_OPTIONAL,
     .takes_keys = true,
     .help = "each loader's number of batches, or the part of them below 1, as in train: 10"},
    {0},
};
static const lk_parameter control_flow_parameters[] = {
    LKI_OBJECT("base_callback", CALLBACK, LKI_REQUIRED, "the callback that is sometimes called"),
    LKI_INTS("epochs", LKI_OPTIONAL, "in every so many epochs, or in these"),
    LKI_INTS("ignore_epochs", LKI_OPTIONAL, "not in every so many epochs, or not in these"),
    LKI_STRINGS("loaders", LKI_OPTIONAL, "for these loaders"),
    LKI_STRINGS("ignore_loaders", LKI_OPTIONAL, "not for these loaders"),
    {0},
};
static const lk_parameter aggregation_parameters[] = {
    LKI_STRING("metric_key", LKI_REQUIRED, "the name of the result"),
    {.name = "metrics",
     .type = LK_PARAMETER_STRINGS,
     .default_value = LKI_OPTIONAL,
     .takes_keys = true,
     .help = "the metrics' names, or a map of their weights; all of them where left out"},
    LKI_CHOICE("mode", "mean", "sum|mean|weighted_sum|weighted_mean", "how they become one"),
    LKI_CHOICE("scope", "batch", "batch|loader", "of each batch or of the loader"),
    {0},
};
static const lk_parameter histogram_parameters[] = {
    LKI_INT("every", "1", "epochs"),
    LKI_INT("bins", "64", "buckets of a histogram"),
    LKI_BOOL("weights", "true", "of the parameters"),
    LKI_BOOL("gradients", "false", "of the last update of the epoch, before clipping"),
    {0}};
static const lk_parameter ema_parameters[] = {LKI_FLOAT("decay", "0.999", "how long weights are remembered"),
                                              LKI_INT("update_every", "1", "batches"),
                                              {0}};
static const lk_parameter swa_parameters[] = {
    LKI_INT("swa_start", LKI_REQUIRED, "the first epoch that counts"), {0}};
static const lk_parameter weight_decay_parameters[] = {LKI_FLOAT("rate", "5e-4", "how strongly"), {0}};
static const lk_parameter optuna_pruning_parameters[] = {
    LKI_STRING("loader_key", LKI_OPTIONAL, "the loader; that of the study's metric where left out"),
    LKI_STRING("metric_key", LKI_OPTIONAL, "the metric; the study's where left out"),
    LKI_BOOL("minimize", LKI_OPTIONAL, "less is better; as in the study where left out"),
    LKI_FLOAT("min_delta", "1e-6", "how much better counts"),
    LKI_TREE("trial", "{_var_: trial}, as in Catalyst"),
    {0},
};
static const lk_parameter check_run_parameters[] = {
    LKI_INT("num_batch_steps", "3", "batches"), LKI_INT("num_epoch_steps", "3", "epochs"), {0}};

const lk_component lki_control_components[] = {
    LKI_CALLBACK("LRFinder", "Raises the rate over one epoch and writes the losses down.", lr_finder),
    {.name = "PeriodicLoader",
     .aliases = LKI_CALLBACK_NAMES("PeriodicLoader"),
     .kind = LK_KIND_CALLBACK,
     .help = "Runs loaders in some epochs only.",
     .parameters = periodic_loader_parameters,
     .extra = "periods",
     .build = build_periodic_loader},
    {.name = "BatchOverfit",
     .aliases = LKI_CALLBACK_NAMES("BatchOverfit"),
     .kind = LK_KIND_CALLBACK,
     .help = "Only so many batches of each loader.",
     .parameters = batch_overfit_parameters,
     .extra = "portions",
     .build = build_batch_overfit},
    {.name = "ControlFlow",
     .aliases = LKI_CALLBACK_NAMES("ControlFlow") " catalyst.callbacks.ControlFlowCallbackWrapper "
                                                  "catalyst.dl.ControlFlowCallbackWrapper",
     .kind = LK_KIND_CALLBACK,
     .help = "Calls another callback in some epochs or for some loaders only.",
     .parameters = control_flow_parameters,
     .build = build_control_flow},
    {.name = "MetricAggregation",
     .aliases = LKI_CALLBACK_NAMES("MetricAggregation"),
     .kind = LK_KIND_CALLBACK,
     .help = "Several metrics into one.",
     .parameters = aggregation_parameters,
     .build = build_aggregation},
    LKI_CALLBACK("EMA", "Evaluates and keeps a moving average of the weights.", ema),
    LKI_CALLBACK("SWA", "Evaluates and keeps the mean of the weights of the last epochs.", swa),
    LKI_PLAIN_CALLBACK("TerminateOnNaN", "Ends the run where a loss is not a number.",
                       lk_terminate_on_nan_callback),
    LKI_CALLBACK("CheckRun", "A few batches and epochs, to see whether it runs at all.", check_run),
    LKI_CALLBACK("OptunaPruning", "In `lockstep tune`: reports each epoch, and ends a pruned trial.",
                 optuna_pruning),
    {.name = "L1WeightDecay",
     .kind = LK_KIND_CALLBACK,
     .help = "Adds the sum of the weights' sizes to the loss.",
     .parameters = weight_decay_parameters,
     .build = build_weight_decay,
     .context = &(const weight_decay){lk_l1_weight_decay_callback}},
    {.name = "L2WeightDecay",
     .kind = LK_KIND_CALLBACK,
     .help = "Adds the weights' norms to the loss.",
     .parameters = weight_decay_parameters,
     .build = build_weight_decay,
     .context = &(const weight_decay){lk_l2_weight_decay_callback}},
    LKI_CALLBACK("Histogram", "Gives the loggers histograms of weights and gradients.", histogram),
    LKI_PLAIN_CALLBACK("GradientNorm", "Reports the norm of the gradients.", lk_gradient_norm_callback),
    {0},
};
