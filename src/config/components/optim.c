/* torch.optim's optimizers. They meet their parameters when a run begins; `params` says which those are. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/build.h"
#include "config/registry.h"

#include <lockstep/optim.h>

#include <string.h>

enum { MAX_GROUPS = 64 };

static lk_status read_betas(lk_args *args, double *beta1, double *beta2)
{
    int count = lk_arg_count(args, "betas");
    if (count == 0) return LK_OK;
    if (count != 2) return lki_fail(LK_ERR_CONFIG, "betas: expected two numbers, found %d", count);
    *beta1 = lki_number_meant(lk_arg_float_at(args, "betas", 0));
    *beta2 = lki_number_meant(lk_arg_float_at(args, "betas", 1));
    return LK_OK;
}

static double given_float(lk_args *args, const char *name)
{
    return lk_arg_given(args, name) ? lki_number_meant(lk_arg_float(args, name)) : 0;
}

/* One of several groups of parameters, with numbers of its own. */
static lk_status build_group(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group *group = LKI_NEW(lk_param_group);
    (void)self;
    if (!group) return LK_ERR_NOMEM;
    *out = group;
    group->module = lk_arg_peek(args, "params");
    group->prefix = lk_arg_string(args, "names");
    if (!group->module == !group->prefix)
        return lki_fail(LK_ERR_CONFIG, "a group of parameters needs params, a part of the model, or names, "
                                       "as in names: \"head.*\"");
    group->lr = given_float(args, "lr");
    group->momentum = given_float(args, "momentum");
    group->weight_decay = given_float(args, "weight_decay");
    group->eps = given_float(args, "eps");
    return read_betas(args, &group->beta1, &group->beta2);
}

/* A group's number that its optimizer has no use for. */
static lk_status check_group(const lk_component *optimizer, const lki_object *group)
{
    const lk_parameter *parameters = group->component->parameters;
    for (int i = 0; parameters[i].name; i++)
        if (group->given[i] && strcmp(parameters[i].name, "names") != 0 &&
            lki_component_parameter_index(optimizer, parameters[i].name) < 0)
            return lki_fail_at(group->values[i]->place, "%s: %s has no %s", group->called, optimizer->name,
                               parameters[i].name);
    return LK_OK;
}

static lk_status read_groups(lk_args *args, lk_param_group *groups, lk_param_group_list *out)
{
    int count = lk_arg_count(args, "params");
    if (count > MAX_GROUPS) return lki_fail(LK_ERR_CONFIG, "params: at most %d groups", MAX_GROUPS);
    out->items = groups;
    for (int i = 0; i < count; i++) {
        const lk_param_group *group = lk_arg_peek_at(args, "params", i);
        /* A reference to all of a model's parameters is no group: the optimizer's own numbers are meant. */
        if (strcmp(lk_arg_component_at(args, "params", i), "param_group")) continue;
        LKI_TRY(check_group(args->object->component, lki_object_argument(args->object, "params", i)));
        groups[out->count++] = *group;
    }
    return LK_OK;
}

static lk_status build_sgd(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_sgd_options options = {
        LK_SIZE(lk_sgd_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .momentum = lk_arg_float(args, "momentum"),
        .dampening = lk_arg_float(args, "dampening"),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .nesterov = lk_arg_bool(args, "nesterov"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_sgd_with(&options), out);
}

typedef struct adam {
    lk_optimizer *(*create)(const lk_adam_options *options);
    bool has_amsgrad;
} adam;

static lk_status build_adam(const lk_component *self, lk_args *args, void **out)
{
    const adam *kind = self->context;
    lk_param_group groups[MAX_GROUPS];
    lk_adam_options options = {
        LK_SIZE(lk_adam_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lki_number_meant(lk_arg_float(args, "weight_decay")),
        .amsgrad = kind->has_amsgrad && lk_arg_bool(args, "amsgrad"),
        .maximize = kind->has_amsgrad && lk_arg_bool(args, "maximize"),
    };
    LKI_TRY(read_betas(args, &options.beta1, &options.beta2));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(kind->create(&options), out);
}

static lk_status build_catalyst_lamb(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_catalyst_lamb_options options = {
        LK_SIZE(lk_catalyst_lamb_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lki_number_meant(lk_arg_float(args, "weight_decay")),
        .adam = lk_arg_bool(args, "adam"),
    };
    (void)self;
    LKI_TRY(read_betas(args, &options.beta1, &options.beta2));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_catalyst_lamb_with(&options), out);
}

static lk_status build_rmsprop(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_rmsprop_options options = {
        LK_SIZE(lk_rmsprop_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .alpha = lki_number_meant(lk_arg_float(args, "alpha")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .momentum = lk_arg_float(args, "momentum"),
        .centered = lk_arg_bool(args, "centered"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_rmsprop_with(&options), out);
}

static lk_status build_adagrad(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_adagrad_options options = {
        LK_SIZE(lk_adagrad_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .lr_decay = lk_arg_float(args, "lr_decay"),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .initial_accumulator_value = lk_arg_float(args, "initial_accumulator_value"),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_adagrad_with(&options), out);
}

static lk_status build_nadam(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_nadam_options options = {
        LK_SIZE(lk_nadam_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .momentum_decay = lki_number_meant(lk_arg_float(args, "momentum_decay")),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_betas(args, &options.beta1, &options.beta2));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_nadam_with(&options), out);
}

typedef lk_optimizer *radam_function(const lk_radam_options *options);

static lk_status build_radam(const lk_component *self, lk_args *args, void **out)
{
    radam_function *const *create = self->context;
    lk_param_group groups[MAX_GROUPS];
    lk_radam_options options = {
        LK_SIZE(lk_radam_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    LKI_TRY(read_betas(args, &options.beta1, &options.beta2));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built((*create)(&options), out);
}

static lk_status build_adadelta(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_adadelta_options options = {
        LK_SIZE(lk_adadelta_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .rho = lki_number_meant(lk_arg_float(args, "rho")),
        .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_adadelta_with(&options), out);
}

static lk_status read_pair(lk_args *args, const char *name, double *first, double *second)
{
    int count = lk_arg_count(args, name);
    if (count != 2) return lki_fail(LK_ERR_CONFIG, "%s: expected two numbers, found %d", name, count);
    *first = lki_number_meant(lk_arg_float_at(args, name, 0));
    *second = lki_number_meant(lk_arg_float_at(args, name, 1));
    return LK_OK;
}

static lk_status build_rprop(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_rprop_options options = {
        LK_SIZE(lk_rprop_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_pair(args, "etas", &options.eta_minus, &options.eta_plus));
    LKI_TRY(read_pair(args, "step_sizes", &options.step_size_min, &options.step_size_max));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_rprop_with(&options), out);
}

static lk_status build_asgd(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_asgd_options options = {
        LK_SIZE(lk_asgd_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .lambd = lki_number_meant(lk_arg_float(args, "lambd")),
        .alpha = lki_number_meant(lk_arg_float(args, "alpha")),
        .t0 = lki_number_meant(lk_arg_float(args, "t0")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_asgd_with(&options), out);
}

static lk_status build_lion(const lk_component *self, lk_args *args, void **out)
{
    lk_param_group groups[MAX_GROUPS];
    lk_lion_options options = {
        LK_SIZE(lk_lion_options),
        .lr = lki_number_meant(lk_arg_float(args, "lr")),
        .weight_decay = lk_arg_float(args, "weight_decay"),
        .maximize = lk_arg_bool(args, "maximize"),
    };
    (void)self;
    LKI_TRY(read_betas(args, &options.beta1, &options.beta2));
    LKI_TRY(read_groups(args, groups, &options.groups));
    return lki_built(lk_lion_with(&options), out);
}

#define PARAMS                                                                                               \
    {                                                                                                        \
        .name = "params", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_PARAMETERS,                          \
        .default_value = LKI_OPTIONAL, .implied = "param_group",                                             \
        .help = "whose parameters, as in {_var_: model.parameters}, or groups of them; the model's where "   \
                "left out"                                                                                   \
    }
#define WEIGHT_DECAY(default_) LKI_FLOAT("weight_decay", default_, "pulls the weights towards zero")
#define EPS(default_)          LKI_FLOAT("eps", default_, "added to the denominator")
#define BETAS                  LKI_FLOATS("betas", "[0.9, 0.999]", "how long the gradient and its square are remembered")
#define MAXIMIZE               LKI_BOOL("maximize", "false", "climb instead of descend")

/* How PyTorch divides an update into kernels, which does not change its result. */
#define SWITCHES                                                                                             \
    LKI_NO_EFFECT("foreach", "false", "one call updates all parameters of a group"),                         \
        LKI_NO_EFFECT("fused", "false", "one call updates all parameters of a group")

static const lk_parameter group_parameters[] = {
    LKI_OBJECT("params", PARAMETERS, LKI_OPTIONAL, "whose parameters, as in {_var_: head.parameters}"),
    LKI_FLOAT("lr", LKI_OPTIONAL, "the group's learning rate"),
    LKI_FLOAT("momentum", LKI_OPTIONAL, "the group's momentum"),
    LKI_FLOAT("weight_decay", LKI_OPTIONAL, "the group's weight decay"),
    LKI_FLOATS("betas", LKI_OPTIONAL, "the group's betas"),
    LKI_FLOAT("eps", LKI_OPTIONAL, "the group's eps"),
    LKI_STRING("names", LKI_OPTIONAL,
               "or the parameters whose names begin like this, or match a pattern: \"*.bias\""),
    {0},
};
static const lk_parameter sgd_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", LKI_REQUIRED, "the learning rate"),
    LKI_FLOAT("momentum", "0", "how long the direction is remembered"),
    LKI_FLOAT("dampening", "0", "how much less of the gradient enters the momentum"),
    WEIGHT_DECAY("0"),
    LKI_BOOL("nesterov", "false", "look ahead along the momentum"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter adam_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-3", "the learning rate"),
    BETAS,
    EPS("1e-8"),
    WEIGHT_DECAY("0"),
    LKI_BOOL("amsgrad", "false", "use the largest second moment so far"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter adamw_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-3", "the learning rate"),
    BETAS,
    EPS("1e-8"),
    WEIGHT_DECAY("1e-2"),
    LKI_BOOL("amsgrad", "false", "use the largest second moment so far"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter lamb_parameters[] = {
    PARAMS, LKI_FLOAT("lr", "1e-3", "the learning rate"), BETAS, EPS("1e-6"), WEIGHT_DECAY("0"), {0}};
static const lk_parameter catalyst_lamb_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-3", "the learning rate"),
    BETAS,
    EPS("1e-6"),
    WEIGHT_DECAY("0"),
    LKI_BOOL("adam", "false", "always use a trust ratio of 1"),
    {0},
};
static const lk_parameter rmsprop_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-2", "the learning rate"),
    LKI_FLOAT("alpha", "0.99", "how long the gradient's square is remembered"),
    EPS("1e-8"),
    WEIGHT_DECAY("0"),
    LKI_FLOAT("momentum", "0", "how long the direction is remembered"),
    LKI_BOOL("centered", "false", "divide by the deviation instead of the root mean square"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter adagrad_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-2", "the learning rate"),
    LKI_FLOAT("lr_decay", "0", "how fast it falls"),
    WEIGHT_DECAY("0"),
    LKI_FLOAT("initial_accumulator_value", "0", "the sum of squares at the start"),
    EPS("1e-10"),
    MAXIMIZE,
    SWITCHES,
    {0},
};

static const lk_parameter nadam_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "2e-3", "the learning rate"),
    BETAS,
    EPS("1e-8"),
    WEIGHT_DECAY("0"),
    LKI_FLOAT("momentum_decay", "4e-3", "how fast the momentum grows to its full size"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter radam_parameters[] = {PARAMS,
                                                LKI_FLOAT("lr", "1e-3", "the learning rate"),
                                                BETAS,
                                                EPS("1e-8"),
                                                WEIGHT_DECAY("0"),
                                                MAXIMIZE,
                                                SWITCHES,
                                                {0}};
static const lk_parameter adamax_parameters[] = {PARAMS,
                                                 LKI_FLOAT("lr", "2e-3", "the learning rate"),
                                                 BETAS,
                                                 EPS("1e-8"),
                                                 WEIGHT_DECAY("0"),
                                                 MAXIMIZE,
                                                 SWITCHES,
                                                 {0}};
static const lk_parameter adadelta_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1.0", "the learning rate"),
    LKI_FLOAT("rho", "0.9", "how long the squares of the gradient and of the change are remembered"),
    EPS("1e-6"),
    WEIGHT_DECAY("0"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter rprop_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-2", "the first size of each step"),
    LKI_FLOATS("etas", "[0.5, 1.2]", "by how much a step shrinks and grows"),
    LKI_FLOATS("step_sizes", "[0.000001, 50]", "the smallest and the largest step"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter asgd_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-2", "the learning rate"),
    LKI_FLOAT("lambd", "1e-4", "the decay term"),
    LKI_FLOAT("alpha", "0.75", "the power by which the learning rate falls"),
    LKI_FLOAT("t0", "1e6", "the update at which averaging begins"),
    WEIGHT_DECAY("0"),
    MAXIMIZE,
    SWITCHES,
    {0},
};
static const lk_parameter lion_parameters[] = {
    PARAMS,
    LKI_FLOAT("lr", "1e-4", "the learning rate"),
    LKI_FLOATS("betas", "[0.9, 0.99]",
               "how much of the momentum steps follow, and how long it is remembered"),
    WEIGHT_DECAY("0"),
    MAXIMIZE,
    {0},
};

const lk_component lki_optimizer_components[] = {
    {"param_group", NULL, LK_KIND_PARAMETERS, "Some of the model's parameters, with numbers of their own.",
     .parameters = group_parameters, .build = build_group, .free = lki_free},
    {"SGD", "torch.optim.SGD", LK_KIND_OPTIMIZER, "Gradient descent, with momentum where asked.",
     .parameters = sgd_parameters, .build = build_sgd},
    {"Adam", "torch.optim.Adam", LK_KIND_OPTIMIZER, "Adaptive moments.", .parameters = adam_parameters,
     .build = build_adam, .context = &(const adam){lk_adam_with, true}},
    {"AdamW", "torch.optim.AdamW", LK_KIND_OPTIMIZER, "Adam with the weight decay apart from the gradient.",
     .parameters = adamw_parameters, .build = build_adam, .context = &(const adam){lk_adamw_with, true}},
    {"LAMB", NULL, LK_KIND_OPTIMIZER, "Adam, scaled for each parameter by its norm: for large batches.",
     .parameters = lamb_parameters, .build = build_adam, .context = &(const adam){lk_lamb_with, false}},
    {"CatalystLamb", "Lamb catalyst.contrib.optimizers.Lamb catalyst.contrib.nn.optimizers.Lamb",
     LK_KIND_OPTIMIZER, "Catalyst's LAMB: without debiasing, and weights' norms count as at most 10.",
     .parameters = catalyst_lamb_parameters, .build = build_catalyst_lamb},
    {"RMSprop", "torch.optim.RMSprop", LK_KIND_OPTIMIZER, "The gradient over its root mean square.",
     .parameters = rmsprop_parameters, .build = build_rmsprop},
    {"Adagrad", "torch.optim.Adagrad", LK_KIND_OPTIMIZER, "The gradient over the root of its squares' sum.",
     .parameters = adagrad_parameters, .build = build_adagrad},
    {"NAdam", "torch.optim.NAdam", LK_KIND_OPTIMIZER, "Adam with Nesterov's momentum.",
     .parameters = nadam_parameters, .build = build_nadam},
    {"RAdam", "torch.optim.RAdam", LK_KIND_OPTIMIZER,
     "Adam that adapts only when its second moment is known well enough.", .parameters = radam_parameters,
     .build = build_radam, .context = &(radam_function *const){lk_radam_with}},
    {"Adamax", "torch.optim.Adamax", LK_KIND_OPTIMIZER, "Adam by the largest gradient so far, which fades.",
     .parameters = adamax_parameters, .build = build_radam,
     .context = &(radam_function *const){lk_adamax_with}},
    {"Adadelta", "torch.optim.Adadelta", LK_KIND_OPTIMIZER,
     "The gradient, scaled by how large changes and gradients have been.", .parameters = adadelta_parameters,
     .build = build_adadelta},
    {"Rprop", "torch.optim.Rprop", LK_KIND_OPTIMIZER, "Steps by the gradient's sign, of sizes that adapt.",
     .parameters = rprop_parameters, .build = build_rprop},
    {"ASGD", "torch.optim.ASGD", LK_KIND_OPTIMIZER,
     "Averaged gradient descent; the average is kept beside the parameters, as in PyTorch.",
     .parameters = asgd_parameters, .build = build_asgd},
    {"Lion", NULL, LK_KIND_OPTIMIZER, "Steps by the sign of an interpolated momentum.",
     .parameters = lion_parameters, .build = build_lion},
    {0},
};
