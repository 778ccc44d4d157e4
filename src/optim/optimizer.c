#include "optim/optimizer.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "nn/module.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

static lk_hyper group_hyper(const lk_hyper *base, const lk_param_group *group)
{
    lk_hyper hyper = *base;
    hyper.lr = lki_number_or(group->lr, base->lr);
    hyper.momentum = lki_number_or(group->momentum, base->momentum);
    hyper.weight_decay = lki_number_or(group->weight_decay, base->weight_decay);
    hyper.beta1 = lki_number_or(group->beta1, base->beta1);
    hyper.beta2 = lki_number_or(group->beta2, base->beta2);
    hyper.eps = lki_number_or(group->eps, base->eps);
    return hyper;
}

static lk_status check_number(const char *name, const char *what, double value, double low, double high)
{
    if (value >= low && value < high) return LK_OK; /* neither NaN nor infinite */
    if (isinf(high))
        return lki_fail(LK_ERR_INVALID, "%s: %s must be at least %g and finite, not %g", name, what, low,
                        value);
    return lki_fail(LK_ERR_INVALID, "%s: %s must be in [%g, %g), not %g", name, what, low, high, value);
}

static lk_status check_hyper(const char *name, const lk_hyper *hyper)
{
    LKI_TRY(check_number(name, "lr", hyper->lr, 0, INFINITY));
    LKI_TRY(check_number(name, "momentum", hyper->momentum, 0, INFINITY));
    LKI_TRY(check_number(name, "weight_decay", hyper->weight_decay, 0, INFINITY));
    LKI_TRY(check_number(name, "beta1", hyper->beta1, 0, 1));
    LKI_TRY(check_number(name, "beta2", hyper->beta2, 0, 1));
    LKI_TRY(check_number(name, "eps", hyper->eps, 0, INFINITY));
    LKI_TRY(check_number(name, "alpha", hyper->alpha, 0, INFINITY));
    LKI_TRY(check_number(name, "lr_decay", hyper->lr_decay, 0, INFINITY));
    if (!isfinite(hyper->dampening))
        return lki_fail(LK_ERR_INVALID, "%s: dampening must be finite, not %g", name, hyper->dampening);
    if (hyper->nesterov && (hyper->momentum == 0 || hyper->dampening != 0))
        return lki_fail(LK_ERR_INVALID, "%s: nesterov needs a momentum and no dampening", name);
    return LK_OK;
}

bool lki_rule_has_betas(lk_update_rule rule)
{
    return rule == LK_UPDATE_ADAM || rule == LK_UPDATE_ADAMW || rule == LK_UPDATE_LAMB ||
           rule == LK_UPDATE_NADAM || rule == LK_UPDATE_RADAM || rule == LK_UPDATE_ADAMAX ||
           rule == LK_UPDATE_LION;
}

/* A group may change the numbers that its rule has; another one would have no effect. */
static lk_status check_group_numbers(const char *name, lk_update_rule rule, int index,
                                     const lk_param_group *group)
{
    bool has_momentum = rule == LK_UPDATE_SGD || rule == LK_UPDATE_RMSPROP,
         has_betas = lki_rule_has_betas(rule);
    bool has_eps =
        rule != LK_UPDATE_SGD && rule != LK_UPDATE_RPROP && rule != LK_UPDATE_ASGD && rule != LK_UPDATE_LION;
    const struct {
        const char *what;
        double value;
        bool is_known;
    } numbers[] = {{"momentum", group->momentum, has_momentum},
                   {"beta1", group->beta1, has_betas},
                   {"beta2", group->beta2, has_betas},
                   {"weight_decay", group->weight_decay, rule != LK_UPDATE_RPROP},
                   {"eps", group->eps, has_eps}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!numbers[i].is_known && !(numbers[i].value == 0 && !signbit(numbers[i].value)))
            return lki_fail(LK_ERR_INVALID, "%s: parameter group %d: it has no %s", name, index,
                            numbers[i].what);
    return LK_OK;
}

static lk_optimizer *create(const char *name, lk_update_rule rule, lk_hyper hyper, lk_param_group_list groups)
{
    lk_optimizer *optimizer = LKI_NEW(lk_optimizer);
    if (!optimizer) return NULL;
    optimizer->name = name;
    optimizer->rule = rule;
    optimizer->groups = LKI_NEW_ARRAY(lki_group, groups.count + 1);
    if (!optimizer->groups) goto fail;
    for (; optimizer->group_count <= groups.count; optimizer->group_count++) {
        int i = optimizer->group_count;
        lki_group *group = &optimizer->groups[i];
        group->hyper = i < groups.count ? group_hyper(&hyper, &groups.items[i]) : hyper;
        if (check_hyper(name, &group->hyper)) goto fail;
        group->initial_lr = group->hyper.lr;
        if (i == groups.count) continue;
        group->module = groups.items[i].module;
        group->prefix = lki_strdup(groups.items[i].prefix);
        if (groups.items[i].prefix && !group->prefix) goto fail;
        if (!group->prefix && !group->module) {
            lki_fail(LK_ERR_INVALID, "%s: parameter group %d names neither a prefix nor a module", name, i);
            goto fail;
        }
    }
    for (int i = 0; i < optimizer->group_count; i++)
        optimizer->groups[i].initial_momentum = lk_optimizer_momentum(optimizer, i);
    return optimizer;
fail:
    lk_optimizer_free(optimizer);
    return NULL;
}

/* One of the library's rules. A rule of the user's own makes of each number what it likes. */
static lk_optimizer *create_known(const char *name, lk_update_rule rule, lk_hyper hyper,
                                  lk_param_group_list groups)
{
    for (int i = 0; i < groups.count; i++)
        if (check_group_numbers(name, rule, i, &groups.items[i])) return NULL;
    return create(name, rule, hyper, groups);
}

lk_optimizer *lk_sgd_with(const lk_sgd_options *given)
{
    LKI_TAKE(lk_sgd_options, options, given, NULL);
    if (!lki_number_given(options.lr)) return lki_fail_null(LK_ERR_INVALID, "SGD: lr is required");
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 0),
                      .momentum = lki_number_or(options.momentum, 0),
                      .dampening = lki_number_or(options.dampening, 0),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .nesterov = options.nesterov,
                      .maximize = options.maximize};
    return create_known("SGD", LK_UPDATE_SGD, hyper, options.groups);
}

static lk_optimizer *create_adam(const char *name, lk_update_rule rule, double weight_decay, double eps,
                                 const lk_adam_options *options)
{
    lk_hyper hyper = {.lr = lki_number_or(options->lr, 1e-3),
                      .beta1 = lki_number_or(options->beta1, 0.9),
                      .beta2 = lki_number_or(options->beta2, 0.999),
                      .eps = lki_number_or(options->eps, eps),
                      .weight_decay = lki_number_or(options->weight_decay, weight_decay),
                      .amsgrad = options->amsgrad,
                      .maximize = options->maximize};
    return create_known(name, rule, hyper, options->groups);
}

lk_optimizer *lk_adam_with(const lk_adam_options *given)
{
    LKI_TAKE(lk_adam_options, options, given, NULL);
    return create_adam("Adam", LK_UPDATE_ADAM, 0, 1e-8, &options);
}

lk_optimizer *lk_adamw_with(const lk_adam_options *given)
{
    LKI_TAKE(lk_adam_options, options, given, NULL);
    return create_adam("AdamW", LK_UPDATE_ADAMW, 1e-2, 1e-8, &options);
}

lk_optimizer *lk_lamb_with(const lk_adam_options *given)
{
    LKI_TAKE(lk_adam_options, options, given, NULL);
    if (options.amsgrad) return lki_fail_null(LK_ERR_INVALID, "LAMB: there is no amsgrad variant");
    return create_adam("LAMB", LK_UPDATE_LAMB, 0, 1e-6, &options);
}

enum { CATALYST_LARGEST_NORM = 10 };

lk_optimizer *lk_catalyst_lamb_with(const lk_catalyst_lamb_options *given)
{
    LKI_TAKE(lk_catalyst_lamb_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-3),
                      .beta1 = lki_number_or(options.beta1, 0.9),
                      .beta2 = lki_number_or(options.beta2, 0.999),
                      .eps = lki_number_or(options.eps, 1e-6),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .no_debias = true,
                      .no_trust = options.adam,
                      .clip = CATALYST_LARGEST_NORM};
    return create_known("CatalystLamb", LK_UPDATE_LAMB, hyper, options.groups);
}

lk_optimizer *lk_rmsprop_with(const lk_rmsprop_options *given)
{
    LKI_TAKE(lk_rmsprop_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-2),
                      .alpha = lki_number_or(options.alpha, 0.99),
                      .eps = lki_number_or(options.eps, 1e-8),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .momentum = lki_number_or(options.momentum, 0),
                      .centered = options.centered,
                      .maximize = options.maximize};
    return create_known("RMSprop", LK_UPDATE_RMSPROP, hyper, options.groups);
}

lk_optimizer *lk_adagrad_with(const lk_adagrad_options *given)
{
    LKI_TAKE(lk_adagrad_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-2),
                      .lr_decay = lki_number_or(options.lr_decay, 0),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .eps = lki_number_or(options.eps, 1e-10),
                      .maximize = options.maximize};
    if (check_number("Adagrad", "initial_accumulator_value", options.initial_accumulator_value, 0, INFINITY))
        return NULL;
    lk_optimizer *optimizer = create_known("Adagrad", LK_UPDATE_ADAGRAD, hyper, options.groups);
    if (optimizer) optimizer->initial_state = options.initial_accumulator_value;
    return optimizer;
}

/* ---- Those of the fewer users. Numbers that lk_hyper has no field for lie in one that the rule does not
 * need. ---- */

lk_optimizer *lk_nadam_with(const lk_nadam_options *given)
{
    LKI_TAKE(lk_nadam_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 2e-3),
                      .beta1 = lki_number_or(options.beta1, 0.9),
                      .beta2 = lki_number_or(options.beta2, 0.999),
                      .eps = lki_number_or(options.eps, 1e-8),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .lr_decay = lki_number_or(options.momentum_decay, 4e-3),
                      .maximize = options.maximize};
    if (check_number("NAdam", "momentum_decay", hyper.lr_decay, 0, INFINITY)) return NULL;
    return create_known("NAdam", LK_UPDATE_NADAM, hyper, options.groups);
}

static lk_optimizer *create_radam(const char *name, lk_update_rule rule, double lr,
                                  const lk_radam_options *options)
{
    lk_hyper hyper = {.lr = lki_number_or(options->lr, lr),
                      .beta1 = lki_number_or(options->beta1, 0.9),
                      .beta2 = lki_number_or(options->beta2, 0.999),
                      .eps = lki_number_or(options->eps, 1e-8),
                      .weight_decay = lki_number_or(options->weight_decay, 0),
                      .maximize = options->maximize};
    return create_known(name, rule, hyper, options->groups);
}

lk_optimizer *lk_radam_with(const lk_radam_options *given)
{
    LKI_TAKE(lk_radam_options, options, given, NULL);
    return create_radam("RAdam", LK_UPDATE_RADAM, 1e-3, &options);
}

lk_optimizer *lk_adamax_with(const lk_adamax_options *given)
{
    LKI_TAKE(lk_adamax_options, options, given, NULL);
    return create_radam("Adamax", LK_UPDATE_ADAMAX, 2e-3, &options);
}

lk_optimizer *lk_adadelta_with(const lk_adadelta_options *given)
{
    LKI_TAKE(lk_adadelta_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1),
                      .alpha = lki_number_or(options.rho, 0.9),
                      .eps = lki_number_or(options.eps, 1e-6),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .maximize = options.maximize};
    if (!(hyper.alpha >= 0 && hyper.alpha <= 1))
        return lki_fail_null(LK_ERR_INVALID, "Adadelta: rho must be in [0, 1], not %g", hyper.alpha);
    return create_known("Adadelta", LK_UPDATE_ADADELTA, hyper, options.groups);
}

lk_optimizer *lk_rprop_with(const lk_rprop_options *given)
{
    LKI_TAKE(lk_rprop_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-2),
                      .alpha = lki_number_or(options.eta_minus, 0.5),
                      .lr_decay = lki_number_or(options.eta_plus, 1.2),
                      .eps = lki_number_or(options.step_size_min, 1e-6),
                      .clip = lki_number_or(options.step_size_max, 50),
                      .maximize = options.maximize};
    if (!(hyper.alpha > 0 && hyper.alpha < 1 && hyper.lr_decay > 1 && hyper.lr_decay < INFINITY))
        return lki_fail_null(LK_ERR_INVALID, "Rprop: etas must be 0 < %g < 1 < %g", hyper.alpha,
                             hyper.lr_decay);
    if (!(hyper.eps >= 0 && hyper.clip >= hyper.eps && hyper.clip < INFINITY))
        return lki_fail_null(LK_ERR_INVALID, "Rprop: step_sizes must be 0 <= %g <= %g", hyper.eps,
                             hyper.clip);
    return create_known("Rprop", LK_UPDATE_RPROP, hyper, options.groups);
}

lk_optimizer *lk_asgd_with(const lk_asgd_options *given)
{
    LKI_TAKE(lk_asgd_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-2),
                      .lr_decay = lki_number_or(options.lambd, 1e-4),
                      .alpha = lki_number_or(options.alpha, 0.75),
                      .dampening = lki_number_or(options.t0, 1e6),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .maximize = options.maximize};
    if (check_number("ASGD", "lambd", hyper.lr_decay, 0, INFINITY) ||
        check_number("ASGD", "t0", hyper.dampening, 0, INFINITY))
        return NULL;
    return create_known("ASGD", LK_UPDATE_ASGD, hyper, options.groups);
}

lk_optimizer *lk_lion_with(const lk_lion_options *given)
{
    LKI_TAKE(lk_lion_options, options, given, NULL);
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 1e-4),
                      .beta1 = lki_number_or(options.beta1, 0.9),
                      .beta2 = lki_number_or(options.beta2, 0.99),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .maximize = options.maximize};
    return create_known("Lion", LK_UPDATE_LION, hyper, options.groups);
}

static lk_status check_custom(const char *name, const lk_custom_optimizer_options *options)
{
    if (!options->update) return lki_fail(LK_ERR_INVALID, "%s: an update function is needed", name);
    if (!lki_number_given(options->lr)) return lki_fail(LK_ERR_INVALID, "%s: lr is required", name);
    if (options->state_count >= 0 && options->state_count <= LK_MAX_UPDATE_STATES) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: state_count: expected 0 to %d, found %d", name, LK_MAX_UPDATE_STATES,
                    options->state_count);
}

lk_optimizer *lk_custom_optimizer_with(const lk_custom_optimizer_options *given)
{
    lk_custom_optimizer_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_custom_optimizer_options");
    char *name = lki_strdup(options.name ? options.name : "custom");
    lk_hyper hyper = {.lr = lki_number_or(options.lr, 0),
                      .momentum = lki_number_or(options.momentum, 0),
                      .weight_decay = lki_number_or(options.weight_decay, 0),
                      .beta1 = lki_number_or(options.beta1, 0),
                      .beta2 = lki_number_or(options.beta2, 0),
                      .eps = lki_number_or(options.eps, 0)};
    lk_optimizer *optimizer = status == LK_OK && name && check_custom(name, &options) == LK_OK
                                  ? create(name, LK_UPDATE_SGD, hyper, options.groups)
                                  : NULL;
    if (!optimizer) {
        if (options.free_context) options.free_context(options.context);
        lki_free(name);
        return NULL;
    }
    optimizer->own_name = name;
    optimizer->update = options.update;
    optimizer->state_count = options.state_count;
    optimizer->context = options.context;
    optimizer->free_context = options.free_context;
    return optimizer;
}

void lk_optimizer_free(lk_optimizer *optimizer)
{
    if (!optimizer) return;
    for (int i = 0; i < optimizer->group_count; i++) lki_free(optimizer->groups[i].prefix);
    if (optimizer->free_context) optimizer->free_context(optimizer->context);
    lki_free(optimizer->own_name);
    lki_free(optimizer->groups);
    lki_free(optimizer);
}

static bool module_holds(const lk_module *module, const lk_param *param)
{
    lk_param_list list;
    bool found = false;
    if (lki_module_params(module, &list)) return false;
    for (int i = 0; i < list.count && !found; i++) found = list.items[i].param == param;
    lk_param_list_free(&list);
    return found;
}

static bool names(const lki_group *group, const char *path)
{
    if (!group->prefix) return false;
    if (strpbrk(group->prefix, "*?[")) return fnmatch(group->prefix, path, 0) == 0;
    return strncmp(path, group->prefix, strlen(group->prefix)) == 0;
}

int lki_optimizer_group_of(const lk_optimizer *optimizer, const char *path, const lk_param *param)
{
    for (int i = 0; i < optimizer->group_count - 1; i++) {
        const lki_group *group = &optimizer->groups[i];
        if (names(group, path)) return i;
        if (group->module && module_holds(group->module, param)) return i;
    }
    return optimizer->group_count - 1;
}

int lki_optimizer_state_count(const lk_optimizer *optimizer)
{
    bool momentum = false;
    if (optimizer->update) return optimizer->state_count;
    for (int i = 0; i < optimizer->group_count; i++)
        momentum = momentum || optimizer->groups[i].hyper.momentum != 0;
    const lk_hyper *hyper = &optimizer->groups[0].hyper;
    switch (optimizer->rule) {
    case LK_UPDATE_SGD: return momentum;
    case LK_UPDATE_ADAM:
    case LK_UPDATE_ADAMW: return hyper->amsgrad ? 3 : 2;
    case LK_UPDATE_RMSPROP: return hyper->centered ? 3 : momentum ? 2 : 1;
    case LK_UPDATE_ADAGRAD: return 1;
    case LK_UPDATE_NADAM: return 3;
    case LK_UPDATE_LION: return 1;
    case LK_UPDATE_LAMB:
    case LK_UPDATE_RADAM:
    case LK_UPDATE_ADADELTA:
    case LK_UPDATE_ADAMAX:
    case LK_UPDATE_RPROP:
    case LK_UPDATE_ASGD: return 2;
    case LK_UPDATE_COUNT: break;
    }
    return 0;
}

const char *lki_optimizer_state_name(const lk_optimizer *optimizer, int state)
{
    static const char *const names[][3] = {
        [LK_UPDATE_SGD] = {"momentum_buffer"},
        [LK_UPDATE_ADAM] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
        [LK_UPDATE_ADAMW] = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"},
        [LK_UPDATE_RMSPROP] = {"square_avg", "momentum_buffer", "grad_avg"},
        [LK_UPDATE_ADAGRAD] = {"sum"},
        [LK_UPDATE_LAMB] = {"exp_avg", "exp_avg_sq"},
        [LK_UPDATE_NADAM] = {"exp_avg", "exp_avg_sq", "mu_product"},
        [LK_UPDATE_RADAM] = {"exp_avg", "exp_avg_sq"},
        [LK_UPDATE_ADADELTA] = {"square_avg", "acc_delta"},
        [LK_UPDATE_ADAMAX] = {"exp_avg", "exp_inf"},
        [LK_UPDATE_RPROP] = {"prev", "step_size"},
        [LK_UPDATE_ASGD] = {"ax", "eta"},
        [LK_UPDATE_LION] = {"exp_avg"},
    };
    static const char *const own_names[LK_MAX_UPDATE_STATES] = {"state0", "state1", "state2"};
    return optimizer->update ? own_names[state] : names[optimizer->rule][state];
}

double *lki_group_momentum(const lk_optimizer *optimizer, int group)
{
    lk_hyper *hyper = &optimizer->groups[group].hyper;
    return lki_rule_has_betas(optimizer->rule) ? &hyper->beta1 : &hyper->momentum;
}

int lk_optimizer_group_count(const lk_optimizer *optimizer)
{
    return optimizer->group_count;
}

double lk_optimizer_lr(const lk_optimizer *optimizer, int group)
{
    return optimizer->groups[group].hyper.lr;
}

void lk_optimizer_set_lr(lk_optimizer *optimizer, int group, double lr)
{
    optimizer->groups[group].hyper.lr = lr;
}

double lk_optimizer_momentum(const lk_optimizer *optimizer, int group)
{
    return *lki_group_momentum(optimizer, group);
}

const char *lk_optimizer_name(const lk_optimizer *optimizer)
{
    return optimizer->name;
}
