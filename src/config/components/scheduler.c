/* torch.optim.lr_scheduler's schedules. They meet their optimizer when a run begins; `optimizer` says which.
 */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"

#include <lockstep/scheduler.h>

#include <string.h>

/* Numbers of epochs or steps whose plain 0 stands for the default: a config's must be at least 1. */
static lk_status read_count(lk_args *args, const char *name, int64_t *out)
{
    *out = lk_arg_int64(args, name);
    if (*out >= 1 || !lk_arg_given(args, name)) return LK_OK;
    return lki_fail(LK_ERR_CONFIG, "%s: expected at least 1, found %lld", name, (long long)*out);
}

static lk_status read_milestones(lk_args *args, int64_t **items, lk_milestone_list *out)
{
    out->count = lk_arg_count(args, "milestones");
    *items = LKI_NEW_ARRAY(int64_t, out->count + 1);
    if (!*items) return LK_ERR_NOMEM;
    for (int i = 0; i < out->count; i++) (*items)[i] = lk_arg_int_at(args, "milestones", i);
    out->items = *items;
    return LK_OK;
}

static lk_status build_step(const lk_component *self, lk_args *args, void **out)
{
    int64_t step_size;
    (void)self;
    LKI_TRY(read_count(args, "step_size", &step_size));
    return lki_built(lk_step_lr(step_size, .gamma = lki_number_meant(lk_arg_float(args, "gamma"))), out);
}

static lk_status build_multi_step(const lk_component *self, lk_args *args, void **out)
{
    LKI_SCOPED int64_t *items = NULL;
    lk_multi_step_lr_options options = {LK_SIZE(lk_multi_step_lr_options),
                                        .gamma = lki_number_meant(lk_arg_float(args, "gamma"))};
    (void)self;
    LKI_TRY(read_milestones(args, &items, &options.milestones));
    return lki_built(lk_multi_step_lr_with(&options), out);
}

static lk_status build_exponential(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_exponential_lr(lk_arg_float(args, "gamma")), out);
}

static lk_status build_constant(const lk_component *self, lk_args *args, void **out)
{
    lk_constant_lr_options options = {LK_SIZE(lk_constant_lr_options),
                                      .factor = lki_number_meant(lk_arg_float(args, "factor"))};
    (void)self;
    LKI_TRY(read_count(args, "total_iters", &options.total_iters));
    return lki_built(lk_constant_lr_with(&options), out);
}

static lk_status build_linear(const lk_component *self, lk_args *args, void **out)
{
    lk_linear_lr_options options = {LK_SIZE(lk_linear_lr_options),
                                    .start_factor = lki_number_meant(lk_arg_float(args, "start_factor")),
                                    .end_factor = lki_number_meant(lk_arg_float(args, "end_factor"))};
    (void)self;
    LKI_TRY(read_count(args, "total_iters", &options.total_iters));
    return lki_built(lk_linear_lr_with(&options), out);
}

static lk_status build_polynomial(const lk_component *self, lk_args *args, void **out)
{
    lk_polynomial_lr_options options = {LK_SIZE(lk_polynomial_lr_options),
                                        .power = lki_number_meant(lk_arg_float(args, "power"))};
    (void)self;
    LKI_TRY(read_count(args, "total_iters", &options.total_iters));
    return lki_built(lk_polynomial_lr_with(&options), out);
}

static lk_status build_cosine(const lk_component *self, lk_args *args, void **out)
{
    int64_t t_max;
    (void)self;
    LKI_TRY(read_count(args, "T_max", &t_max));
    return lki_built(lk_cosine_annealing_lr(t_max, .eta_min = lk_arg_float(args, "eta_min")), out);
}

static lk_status build_warm_restarts(const lk_component *self, lk_args *args, void **out)
{
    lk_cosine_annealing_warm_restarts_options options = {LK_SIZE(lk_cosine_annealing_warm_restarts_options),
                                                         .eta_min = lk_arg_float(args, "eta_min")};
    int64_t t_0;
    (void)self;
    LKI_TRY(read_count(args, "T_0", &t_0));
    LKI_TRY(read_count(args, "T_mult", &options.t_mult));
    return lki_built(lk_cosine_annealing_warm_restarts_with(t_0, &options), out);
}

enum { MAX_LISTED_RATES = 64 };

/* One rate to *all, or one per group to `list`. */
static lk_status read_rates(lk_args *args, const char *name, double *all, double *list, int *count)
{
    int given = lk_arg_count(args, name);
    if (given > MAX_LISTED_RATES)
        return lki_fail(LK_ERR_CONFIG, "%s: expected at most %d rates, found %d", name, MAX_LISTED_RATES,
                        given);
    for (int i = 0; i < given; i++) list[i] = lk_arg_float_at(args, name, i);
    *all = given == 1 ? list[0] : 0;
    *count = given == 1 ? 0 : given;
    return given ? LK_OK : lki_fail(LK_ERR_CONFIG, "%s: expected at least 1 rate", name);
}

static lk_status build_one_cycle(const lk_component *self, lk_args *args, void **out)
{
    lk_one_cycle_lr_options options = {
        LK_SIZE(lk_one_cycle_lr_options),
        .pct_start = lki_number_meant(lk_arg_float(args, "pct_start")),
        .anneal_strategy =
            strcmp(lk_arg_string(args, "anneal_strategy"), "cos") ? LK_ANNEAL_LINEAR : LK_ANNEAL_COS,
        .no_cycle_momentum = !lk_arg_bool(args, "cycle_momentum"),
        .base_momentum = lki_number_meant(lk_arg_float(args, "base_momentum")),
        .max_momentum = lki_number_meant(lk_arg_float(args, "max_momentum")),
        .div_factor = lki_number_meant(lk_arg_float(args, "div_factor")),
        .final_div_factor = lki_number_meant(lk_arg_float(args, "final_div_factor")),
        .three_phase = lk_arg_bool(args, "three_phase"),
    };
    (void)self;
    LKI_TRY(read_count(args, "total_steps", &options.total_steps));
    LKI_TRY(read_count(args, "epochs", &options.epochs));
    LKI_TRY(read_count(args, "steps_per_epoch", &options.steps_per_epoch));
    double max_lr, max_lrs[MAX_LISTED_RATES];
    LKI_TRY(read_rates(args, "max_lr", &max_lr, max_lrs, &options.max_lr_count));
    options.max_lrs = max_lrs;
    return lki_built(lk_one_cycle_lr_with(max_lr, &options), out);
}

static const char cyclic_modes[] = "triangular|triangular2|exp_range"; /* in lk_cyclic_mode's order */

static lk_status build_cyclic(const lk_component *self, lk_args *args, void **out)
{
    lk_cyclic_lr_options options = {
        LK_SIZE(lk_cyclic_lr_options),
        .mode = (lk_cyclic_mode)lki_choice_index(cyclic_modes, lk_arg_string(args, "mode")),
        .gamma = lki_number_meant(lk_arg_float(args, "gamma")),
        .no_cycle_momentum = !lk_arg_bool(args, "cycle_momentum"),
        .base_momentum = lki_number_meant(lk_arg_float(args, "base_momentum")),
        .max_momentum = lki_number_meant(lk_arg_float(args, "max_momentum")),
    };
    (void)self;
    LKI_TRY(read_count(args, "step_size_up", &options.step_size_up));
    LKI_TRY(read_count(args, "step_size_down", &options.step_size_down));
    double base_lr, max_lr, base_lrs[MAX_LISTED_RATES], max_lrs[MAX_LISTED_RATES];
    LKI_TRY(read_rates(args, "base_lr", &base_lr, base_lrs, &options.base_lr_count));
    LKI_TRY(read_rates(args, "max_lr", &max_lr, max_lrs, &options.max_lr_count));
    options.base_lrs = base_lrs;
    options.max_lrs = max_lrs;
    return lki_built(lk_cyclic_lr_with(base_lr, max_lr, &options), out);
}

static lk_status build_plateau(const lk_component *self, lk_args *args, void **out)
{
    lk_reduce_lr_on_plateau_options options = {
        LK_SIZE(lk_reduce_lr_on_plateau_options),
        .maximize = !strcmp(lk_arg_string(args, "mode"), "max"),
        .factor = lki_number_meant(lk_arg_float(args, "factor")),
        .patience = lki_number_meant(lk_arg_int(args, "patience")),
        .threshold = lki_number_meant(lk_arg_float(args, "threshold")),
        .absolute_threshold = !strcmp(lk_arg_string(args, "threshold_mode"), "abs"),
        .cooldown = lk_arg_int(args, "cooldown"),
        .min_lr = lk_arg_float(args, "min_lr"),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
    };
    (void)self;
    return lki_built(lk_reduce_lr_on_plateau_with(&options), out);
}

static lk_status build_sequential(const lk_component *self, lk_args *args, void **out)
{
    LKI_SCOPED int64_t *items = NULL;
    int count = lk_arg_count(args, "schedulers");
    LKI_SCOPED lk_scheduler **schedulers = LKI_NEW_ARRAY(lk_scheduler *, count + 1);
    lk_sequential_lr_options options = {LK_SIZE(lk_sequential_lr_options), .schedulers = {schedulers, count}};
    (void)self;
    if (!schedulers) return LK_ERR_NOMEM;
    LKI_TRY(read_milestones(args, &items, &options.milestones));
    for (int i = 0; i < count; i++) schedulers[i] = lk_arg_take_at(args, "schedulers", i);
    return lki_built(lk_sequential_lr_with(&options), out);
}

static lk_status build_chained(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "schedulers");
    LKI_SCOPED lk_scheduler **schedulers = LKI_NEW_ARRAY(lk_scheduler *, count + 1);
    lk_chained_scheduler_options options = {LK_SIZE(lk_chained_scheduler_options),
                                            .schedulers = {schedulers, count}};
    (void)self;
    if (!schedulers) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) schedulers[i] = lk_arg_take_at(args, "schedulers", i);
    return lki_built(lk_chained_scheduler_with(&options), out);
}

static lk_status build_warmup(const lk_component *self, lk_args *args, void **out)
{
    lk_warmup_lr_options options = {LK_SIZE(lk_warmup_lr_options),
                                    .start_factor = lki_number_meant(lk_arg_float(args, "start_factor"))};
    int64_t steps;
    (void)self;
    LKI_TRY(read_count(args, "steps", &steps));
    options.then = lk_arg_take(args, "then");
    return lki_built(lk_warmup_lr_with(steps, &options), out);
}

/* Every table begins and ends alike. */
#define OPTIMIZER       LKI_OBJECT("optimizer", OPTIMIZER, LKI_OPTIONAL, "whose rate; the run's own where left out")
#define VERBOSE         LKI_NO_EFFECT("verbose", "false", "the rate is in the logs")
#define LAST            LKI_REFUSED("last_epoch", "-1", "write resume: FILE, which goes on with the schedule"), VERBOSE
#define MILESTONES      LKI_INTS("milestones", LKI_REQUIRED, "the epochs at which it changes")
#define TOTAL_ITERS     LKI_INT64("total_iters", "5", "epochs until it is through")
#define GAMMA(default_) LKI_FLOAT("gamma", default_, "the factor")

static const lk_parameter step_parameters[] = {
    OPTIMIZER, LKI_INT64("step_size", LKI_REQUIRED, "epochs between two changes"), GAMMA("0.1"), LAST, {0}};
static const lk_parameter multi_step_parameters[] = {OPTIMIZER, MILESTONES, GAMMA("0.1"), LAST, {0}};
static const lk_parameter exponential_parameters[] = {OPTIMIZER, GAMMA(LKI_REQUIRED), LAST, {0}};
static const lk_parameter constant_parameters[] = {
    OPTIMIZER, LKI_FLOAT("factor", "0.3333333333333333", "of the rate at first"), TOTAL_ITERS, LAST, {0}};
static const lk_parameter linear_parameters[] = {
    OPTIMIZER,
    LKI_FLOAT("start_factor", "0.3333333333333333", "of the rate at first"),
    LKI_FLOAT("end_factor", "1.0", "of the rate at last"),
    TOTAL_ITERS,
    LAST,
    {0},
};
static const lk_parameter polynomial_parameters[] = {
    OPTIMIZER, TOTAL_ITERS, LKI_FLOAT("power", "1.0", "of the polynomial"), LAST, {0}};
static const lk_parameter cosine_parameters[] = {
    OPTIMIZER,
    LKI_INT64("T_max", LKI_REQUIRED, "epochs of half a wave"),
    LKI_FLOAT("eta_min", "0", "the lowest rate"),
    LAST,
    {0},
};
static const lk_parameter warm_restarts_parameters[] = {
    OPTIMIZER,
    LKI_INT64("T_0", LKI_REQUIRED, "epochs until the first restart"),
    LKI_INT64("T_mult", "1", "how many times longer each round is"),
    LKI_FLOAT("eta_min", "0", "the lowest rate"),
    LAST,
    {0},
};
static const lk_parameter one_cycle_parameters[] = {
    OPTIMIZER,
    LKI_FLOATS("max_lr", LKI_REQUIRED, "the highest rate, or one per parameter group"),
    LKI_INT64("total_steps", LKI_OPTIONAL, "batches in all; or epochs and steps_per_epoch"),
    LKI_INT64("epochs", LKI_OPTIONAL, "epochs in all"),
    LKI_INT64("steps_per_epoch", LKI_OPTIONAL, "batches per epoch"),
    LKI_FLOAT("pct_start", "0.3", "the part of the way on which the rate rises"),
    LKI_CHOICE("anneal_strategy", "cos", "cos|linear", "the curve"),
    LKI_BOOL("cycle_momentum", "true", "move the momentum the other way"),
    LKI_FLOAT("base_momentum", "0.85", "the lowest momentum"),
    LKI_FLOAT("max_momentum", "0.95", "the highest momentum"),
    LKI_FLOAT("div_factor", "25", "the first rate is max_lr over this"),
    LKI_FLOAT("final_div_factor", "1e4", "the last rate is the first over this"),
    LKI_BOOL("three_phase", "false", "come down as one went up, then fall to the last rate"),
    LAST,
    {0},
};
static const lk_parameter cyclic_parameters[] = {
    OPTIMIZER,
    LKI_FLOATS("base_lr", LKI_REQUIRED, "the lowest rate, or one per parameter group"),
    LKI_FLOATS("max_lr", LKI_REQUIRED, "the highest rate, or one per parameter group"),
    LKI_INT64("step_size_up", "2000", "batches of the way up"),
    LKI_INT64("step_size_down", LKI_OPTIONAL, "batches of the way down; as up where left out"),
    LKI_CHOICE("mode", "triangular", "triangular|triangular2|exp_range", "how the height changes"),
    LKI_FLOAT("gamma", "1.0", "the factor of exp_range"),
    LKI_BOOL("cycle_momentum", "true", "move the momentum the other way"),
    LKI_FLOAT("base_momentum", "0.8", "the lowest momentum"),
    LKI_FLOAT("max_momentum", "0.9", "the highest momentum"),
    LAST,
    {0},
};
static const lk_parameter plateau_parameters[] = {
    OPTIMIZER,
    LKI_CHOICE("mode", "min", "min|max", "which way the metric gets better"),
    LKI_FLOAT("factor", "0.1", "of the rate"),
    LKI_INT("patience", "10", "epochs without getting better that are borne"),
    LKI_FLOAT("threshold", "1e-4", "how much better counts"),
    LKI_CHOICE("threshold_mode", "rel", "rel|abs", "relative to the best so far, or not"),
    LKI_INT("cooldown", "0", "epochs to wait after a change"),
    LKI_FLOAT("min_lr", "0", "the lowest rate"),
    LKI_FLOAT("eps", "1e-8", "smaller changes are not made"),
    VERBOSE,
    {0},
};
static const lk_parameter sequential_parameters[] = {
    OPTIMIZER,
    LKI_OBJECTS("schedulers", SCHEDULER, LKI_REQUIRED, "the schedules, in order"),
    MILESTONES,
    LAST,
    {0}};
static const lk_parameter chained_parameters[] = {
    LKI_OBJECTS("schedulers", SCHEDULER, LKI_REQUIRED, "the schedules; each multiplies the rate"), {0}};
static const lk_parameter warmup_parameters[] = {
    OPTIMIZER,
    LKI_INT64("steps", LKI_REQUIRED, "of the warm-up: epochs, or batches where `then` counts those"),
    LKI_FLOAT("start_factor", "0.3333333333333333", "of the rate at first"),
    LKI_OBJECT("then", SCHEDULER, LKI_OPTIONAL, "the schedule that follows"),
    LAST,
    {0},
};

#define ENTRY(name_, help_, table_)                                                                          \
    {                                                                                                        \
        .name = name_, .aliases = "torch.optim.lr_scheduler." name_, .kind = LK_KIND_SCHEDULER,              \
        .help = help_, .parameters = table_##_parameters, .build = build_##table_                            \
    }

const lk_component lki_scheduler_components[] = {
    ENTRY("StepLR", "The rate times gamma every step_size epochs.", step),
    ENTRY("MultiStepLR", "The rate times gamma at each milestone.", multi_step),
    ENTRY("ExponentialLR", "The rate times gamma every epoch.", exponential),
    ENTRY("ConstantLR", "A part of the rate at first.", constant),
    ENTRY("LinearLR", "A part of the rate that grows or shrinks evenly.", linear),
    ENTRY("PolynomialLR", "The rate falls to zero along a polynomial.", polynomial),
    ENTRY("CosineAnnealingLR", "The rate along a cosine.", cosine),
    ENTRY("CosineAnnealingWarmRestarts", "The rate along half a cosine, again and again.", warm_restarts),
    ENTRY("OneCycleLR", "The rate up and down once; counts batches.", one_cycle),
    ENTRY("CyclicLR", "The rate back and forth; counts batches.", cyclic),
    ENTRY("ReduceLROnPlateau", "The rate times a factor when a metric gets no better.", plateau),
    ENTRY("SequentialLR", "Schedules one after the other, all by epochs or all by batches.", sequential),
    ENTRY("ChainedScheduler", "Several schedules at once, all by epochs or all by batches.", chained),
    {.name = "WarmupLR",
     .kind = LK_KIND_SCHEDULER,
     .help = "A linear warm-up, then another schedule.",
     .parameters = warmup_parameters,
     .build = build_warmup},
    {0},
};
