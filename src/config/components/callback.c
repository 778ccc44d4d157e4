/* Callbacks that shape a run: training, stopping, keeping, timing. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/callback.h>

#include <string.h>

/* [a, b] as "a, b", which is what lk_criterion_callback takes; NULL if the argument is left out. */
static lk_status join_keys(lk_args *args, const char *name, char *text, size_t capacity, const char **out)
{
    size_t used = 0;
    *out = NULL;
    for (int i = 0; i < lk_arg_count(args, name) && used < capacity; i++, *out = text)
        used += (size_t)snprintf(text + used, capacity - used, "%s%s", i ? ", " : "",
                                 lk_arg_string_at(args, name, i));
    return used < capacity ? LK_OK : lki_fail(LK_ERR_CONFIG, "%s: the names are too long", name);
}

static lk_status build_criterion(const lk_component *self, lk_args *args, void **out)
{
    char inputs[512], targets[512];
    const char *input_key, *target_key;
    (void)self;
    LKI_TRY(join_keys(args, "input_key", inputs, sizeof inputs, &input_key));
    LKI_TRY(join_keys(args, "target_key", targets, sizeof targets, &target_key));
    return lki_built(lk_criterion_callback(.input_key = input_key, .target_key = target_key,
                                           .metric_key = lk_arg_string(args, "metric_key"),
                                           .criterion_key = lk_arg_string(args, "criterion_key")),
                     out);
}

/* grad_clip_fn with grad_clip_params {max_norm: 1.0} or {clip_value: 0.5}. */
static lk_status read_clipping(lk_args *args, double *clip_norm, double *clip_value)
{
    const char *function = lk_arg_component_at(args, "grad_clip_fn", 0);
    if (!function && lk_arg_given(args, "grad_clip_params"))
        return lki_fail(LK_ERR_CONFIG, "grad_clip_params: grad_clip_fn is missing: clip_grad_norm_ or "
                                       "clip_grad_value_");
    if (!function) return LK_OK;
    const char *wanted = strcmp(function, "clip_grad_norm_") ? "clip_value" : "max_norm";
    double *number = strcmp(function, "clip_grad_norm_") ? clip_value : clip_norm;
    for (int i = 0; i < lk_arg_count(args, "grad_clip_params"); i++) {
        const char *key = lk_arg_key_at(args, "grad_clip_params", i);
        double value = lk_arg_float_at(args, "grad_clip_params", i);
        if (key && !strcmp(key, "norm_type") && value == 2) continue;
        if (!key || strcmp(key, wanted))
            return lki_fail(LK_ERR_CONFIG, "grad_clip_params: %s takes %s", function, wanted);
        *number = value;
    }
    if (*number > 0) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "grad_clip_params: %s needs %s above 0", function, wanted);
}

/* {5: 2, 10: 4} as lk_optimizer_callback takes it. */
static lk_status write_schedule(lk_args *args, char *text, size_t capacity)
{
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < lk_arg_count(args, "accumulation_schedule") && used < capacity; i++) {
        const char *epoch = lk_arg_key_at(args, "accumulation_schedule", i);
        if (!epoch)
            return lki_fail(LK_ERR_CONFIG, "accumulation_schedule: expected epochs and batches per update, "
                                           "as in {5: 2, 10: 4}");
        used += (size_t)snprintf(text + used, capacity - used, "%s%s: %d", i ? ", " : "", epoch,
                                 lk_arg_int_at(args, "accumulation_schedule", i));
    }
    if (used < capacity) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "accumulation_schedule: it has too many entries");
}

static lk_status build_optimizer(const lk_component *self, lk_args *args, void **out)
{
    char schedule[512];
    LKI_TRY(write_schedule(args, schedule, sizeof schedule));
    lk_optimizer_callback_options options = {LK_SIZE(lk_optimizer_callback_options),
                                             .accumulation_steps = lk_arg_int(args, "accumulation_steps"),
                                             .restart_each_epoch = lk_arg_bool(args, "restart_each_epoch"),
                                             .metric_key = lk_arg_string(args, "metric_key"),
                                             .optimizer_key = lk_arg_string(args, "optimizer_key"),
                                             .accumulation_schedule = *schedule ? schedule : NULL};
    (void)self;
    if (options.accumulation_steps < 1)
        return lki_fail(LK_ERR_CONFIG, "accumulation_steps: expected at least 1, found %d",
                        options.accumulation_steps);
    LKI_TRY(read_clipping(args, &options.clip_norm, &options.clip_value));
    return lki_built(lk_optimizer_callback_with(&options), out);
}

static lk_status build_backward(const lk_component *self, lk_args *args, void **out)
{
    lk_backward_callback_options options = {LK_SIZE(lk_backward_callback_options),
                                            .metric_key = lk_arg_string(args, "metric_key"),
                                            .log_gradient = lk_arg_bool(args, "log_gradient")};
    (void)self;
    LKI_TRY(read_clipping(args, &options.clip_norm, &options.clip_value));
    return lki_built(lk_backward_callback_with(&options), out);
}

static lk_status build_scheduler(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_scheduler_callback(.mode = lk_arg_string(args, "mode"),
                                           .loader_key = lk_arg_string(args, "loader_key"),
                                           .metric_key = lk_arg_string(args, "metric_key")),
                     out);
}

static lk_status build_early_stopping(const lk_component *self, lk_args *args, void **out)
{
    bool given = lk_arg_given(args, "minimize"), minimize = lk_arg_bool(args, "minimize");
    double min_delta = lk_arg_float(args, "min_delta");
    (void)self;
    return lki_built(lk_early_stopping_callback(.patience = lk_arg_int(args, "patience"),
                                                .loader_key = lk_arg_string(args, "loader_key"),
                                                .metric_key = lk_arg_string(args, "metric_key"),
                                                .minimize = given && minimize, .maximize = given && !minimize,
                                                .min_delta = lki_number_meant(min_delta)),
                     out);
}

static lk_status build_checkpoint(const lk_component *self, lk_args *args, void **out)
{
    bool given = lk_arg_given(args, "minimize"), minimize = lk_arg_bool(args, "minimize");
    int topk = lk_arg_int(args, "topk"), keep = lk_arg_int(args, "keep_runners");
    (void)self;
    if (topk < 1) return lki_fail(LK_ERR_CONFIG, "topk: expected at least 1, found %d", topk);
    if (keep < 1) return lki_fail(LK_ERR_CONFIG, "keep_runners: expected at least 1, found %d", keep);
    return lki_built(lk_checkpoint_callback(.logdir = lk_arg_string(args, "logdir"),
                                            .loader_key = lk_arg_string(args, "loader_key"),
                                            .metric_key = lk_arg_string(args, "metric_key"),
                                            .minimize = given && minimize, .maximize = given && !minimize,
                                            .topk = topk, .mode = lk_arg_string(args, "mode"),
                                            .no_save_last = !lk_arg_bool(args, "save_last"),
                                            .no_save_best = !lk_arg_bool(args, "save_best"),
                                            .save_every_batches = lk_arg_int(args, "save_every_batches"),
                                            .keep_runners = keep,
                                            .resume_model = lk_arg_string(args, "resume_model"),
                                            .resume_runner = lk_arg_string(args, "resume_runner"),
                                            .load_best_on_end = lk_arg_bool(args, "load_best_on_end"),
                                            .resume_names = lk_arg_string(args, "resume_names"),
                                            .no_strict = !lk_arg_bool(args, "strict")),
                     out);
}

#define METRIC_KEY LKI_STRING("metric_key", LKI_OPTIONAL, "the metric; the run's own where left out")
#define LOADER_KEY                                                                                           \
    LKI_STRING("loader_key", LKI_OPTIONAL, "whose metric; the run's valid_loader where left out")
#define MINIMIZE LKI_BOOL("minimize", LKI_OPTIONAL, "less is better; as the run's metric where left out")
#define ONE_ONLY "accepted, without effect: there is one"
#define CLIPPING                                                                                             \
    LKI_OBJECT("grad_clip_fn", FUNCTION, LKI_OPTIONAL, "clip_grad_norm_ or clip_grad_value_"),               \
    {                                                                                                        \
        .name = "grad_clip_params", .type = LK_PARAMETER_FLOATS, .default_value = LKI_OPTIONAL,              \
        .takes_keys = true, .help = "max_norm or clip_value, as in {max_norm: 1.0}"                          \
    }

static const lk_parameter criterion_parameters[] = {
    LKI_STRINGS("input_key", LKI_OPTIONAL,
                "the output, or field, to judge; the runner's output_key where left out; a list for a loss "
                "of several values"),
    LKI_STRINGS("target_key", LKI_OPTIONAL,
                "the field to compare it with; the runner's target_key where left out; a list likewise"),
    LKI_STRING("metric_key", LKI_OPTIONAL, "the loss's name; the runner's loss_key where left out"),
    LKI_STRING("criterion_key", LKI_OPTIONAL, "which of several criteria; the only one where left out"),
    {0},
};
#define MINIMIZED                                                                                            \
    LKI_STRING("metric_key", LKI_OPTIONAL,                                                                   \
               "what is minimised: a criterion's metric_key, or an aggregation's; the loss where left out")
static const lk_parameter backward_parameters[] = {
    MINIMIZED,
    CLIPPING,
    LKI_BOOL("log_gradient", "false", "with clip_grad_norm_: report the norm as gradient/LOSS/norm"),
    {0},
};
static const lk_parameter optimizer_parameters[] = {
    MINIMIZED,
    LKI_STRING("optimizer_key", LKI_OPTIONAL,
               "of several optimizers: report lr/KEY and momentum/KEY of this one"),
    LKI_INT("accumulation_steps", "1", "batches per update, whose gradients are summed"),
    LKI_BOOL("restart_each_epoch", "false", "count them from each epoch's first batch; Catalyst counts on"),
    CLIPPING,
    {.name = "accumulation_schedule",
     .type = LK_PARAMETER_INTS,
     .default_value = LKI_OPTIONAL,
     .takes_keys = true,
     .help = "other batches per update from some epochs on, as in {5: 2, 10: 4}"},
    {0},
};
static const lk_parameter scheduler_parameters[] = {
    LKI_REFUSED("scheduler_key", NULL, "leave it out: a run has one scheduler"),
    LKI_CHOICE("mode", LKI_OPTIONAL, "epoch|batch", "when it steps; what suits the schedule where left out"),
    LOADER_KEY,
    METRIC_KEY,
    {0},
};
static const lk_parameter early_stopping_parameters[] = {
    LKI_INT("patience", LKI_REQUIRED, "epochs without a better one that end the run"),
    LOADER_KEY,
    METRIC_KEY,
    MINIMIZE,
    LKI_FLOAT("min_delta", "1e-6", "how much better counts"),
    {0},
};
static const lk_parameter checkpoint_parameters[] = {
    LKI_STRING("logdir", LKI_OPTIONAL, "where; the run's own where left out"),
    LOADER_KEY,
    METRIC_KEY,
    MINIMIZE,
    LKI_INT("topk", "1", "how many of the best are kept"),
    LKI_CHOICE("mode", "model", "model|runner", "weights, or everything"),
    LKI_BOOL("save_last", "true", "keep model.last"),
    LKI_BOOL("save_best", "true", "keep model.best"),
    LKI_STRING("resume_model", LKI_OPTIONAL, "weights to load at the start"),
    LKI_STRING("resume_names", LKI_OPTIONAL, "which of them: shell patterns, with commas between"),
    LKI_BOOL("strict", "true", "false: leave weights alone that are missing in the file or the model"),
    LKI_STRING("resume_runner", LKI_OPTIONAL, "a run to go on with"),
    LKI_BOOL("load_best_on_end", "false", "end with the best epoch's weights"),
    LKI_INT("save_every_batches", "0", "also inside an epoch: every N batches"),
    LKI_INT("keep_runners", "2", "how many files can be resumed from: runner.last, runner.last.1, ..."),
    {0},
};

static const lk_parameter skip_checkpoint_parameters[] = {
    LKI_NO_EFFECT("logdir", NULL, "nothing is written"),
    {0},
};

const lk_component lki_callback_components[] = {
    LKI_CALLBACK("Criterion", "Reports the loss.", criterion),
    LKI_CALLBACK("Backward", "Says which loss is minimised; clips the gradients.", backward),
    LKI_CALLBACK("Optimizer", "Says how updates are made; reports lr and momentum.", optimizer),
    LKI_CALLBACK("Scheduler", "Says when the schedule steps.", scheduler),
    LKI_CALLBACK("EarlyStopping", "Ends the run when the metric gets no better.", early_stopping),
    LKI_CALLBACK("Checkpoint", "Keeps the weights of the best and the last epoch.", checkpoint),
    {.name = "SkipCheckpoint",
     .aliases = LKI_CALLBACK_NAMES("SkipCheckpoint"),
     .kind = LK_KIND_CALLBACK,
     .help = "No checkpoints.",
     .parameters = skip_checkpoint_parameters,
     .build = lki_build_plain_callback,
     .context = &(const lki_plain_callback){lk_skip_checkpoint_callback}},
    LKI_PLAIN_CALLBACK("Timer", "Reports the times of loading and computing.", lk_timer_callback),
    LKI_PLAIN_CALLBACK("Tqdm", "The progress bar.", lk_progress_callback),
    {0},
};
