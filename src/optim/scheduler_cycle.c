/* OneCycleLR and CyclicLR: schedules that count batches and may move momentum against the rate. */
#include "optim/scheduler.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "nn/module.h"
#include "optim/optimizer.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- rates of each group ---- */

/* The group's rate; a group behind the end of the list, the default one, has the last. */
static double rate_of(const double *list, int count, int group, double of_all)
{
    if (!list) return of_all;
    return list[group < count ? group : count - 1];
}

static lk_status copy_rates(const char *name, const char *what, const double *given, int count, double least,
                            double **out)
{
    if (count == 0) return LK_OK;
    if (count < 0 || !given) return lki_fail(LK_ERR_INVALID, "%s: %s: expected a list of rates", name, what);
    for (int i = 0; i < count; i++)
        if (!(given[i] >= least) || isinf(given[i]))
            return lki_fail(LK_ERR_INVALID, "%s: %s: expected finite rates of at least %g, found %g", name,
                            what, least, given[i]);
    *out = LKI_NEW_ARRAY(double, count);
    if (*out) memcpy(*out, given, sizeof(double) * (size_t)count);
    return *out ? LK_OK : lki_last_status();
}

static lk_status check_count(const lk_scheduler *own, const char *what, int count)
{
    int groups = own->optimizer->group_count;
    if (count == 0 || count == groups || count == groups - 1) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected one rate, or one per parameter group (%d), found %d",
                    own->name, what, groups > 1 ? groups - 1 : groups, count);
}

/* ---- one cycle ---- */

static double anneal(lk_anneal strategy, double start, double end, double share)
{
    if (strategy == LK_ANNEAL_LINEAR) return (end - start) * share + start;
    double cosine = cos(M_PI * share) + 1;
    return end + (start - end) / 2.0 * cosine;
}

/* The phase of last_epoch and how far it has come, 0 to 1. */
static const lki_phase *current_phase(const lk_scheduler *own, double *share)
{
    double start = 0, place = (double)own->last_epoch;
    const lki_phase *phase = own->one_cycle.phases, *last = phase + own->one_cycle.phase_count - 1;
    for (; phase < last && place > phase->end_step; phase++) start = phase->end_step;
    double width = phase->end_step - start; /* 0: a phase that is over when it begins */
    *share = width != 0 ? (place - start) / width : 1;
    return phase;
}

/* The cycles of all groups differ by a factor: the phases are those of a highest rate of 1 if there is a
 * list. */
static double cycle_factor(const lk_scheduler *own, int group)
{
    return rate_of(own->lists.high, own->lists.high_count, group, 1);
}

static double one_cycle_rate(const lk_scheduler *own, int group, double lr)
{
    (void)lr;
    double share, factor = cycle_factor(own, group);
    const lki_phase *phase = current_phase(own, &share);
    return anneal(own->one_cycle.anneal, factor * phase->start_lr, factor * phase->end_lr, share);
}

static double one_cycle_momentum(const lk_scheduler *own)
{
    double share;
    const lki_phase *phase = current_phase(own, &share);
    return anneal(own->one_cycle.anneal, phase->start_momentum, phase->end_momentum, share);
}

static lk_status one_cycle_advance(lk_scheduler *own, const double *metric)
{
    (void)metric;
    if (own->last_epoch > own->one_cycle.total_steps)
        return lki_fail(LK_ERR_INVALID, "OneCycleLR: step %lld of a schedule of %lld steps",
                        (long long)own->last_epoch, (long long)own->one_cycle.total_steps);
    lki_scheduler_apply(own);
    return LK_OK;
}

static lk_status check_momentum(const lk_scheduler *own, bool allows_betas)
{
    const lk_optimizer *optimizer = own->optimizer;
    lk_update_rule rule = optimizer->rule;
    bool has_momentum = rule == LK_UPDATE_SGD || rule == LK_UPDATE_RMSPROP;
    bool has_betas = lki_rule_has_betas(rule);
    if (!has_momentum && !(allows_betas && has_betas))
        return lki_fail(
            LK_ERR_INVALID,
            "%s: %s has no momentum to cycle: set no_cycle_momentum, in a config cycle_momentum: n",
            own->name, optimizer->name);
    for (int i = 0; has_momentum && optimizer->has_step && i < optimizer->group_count; i++)
        if (optimizer->groups[i].hyper.momentum == 0)
            return lki_fail(LK_ERR_INVALID,
                            "%s: a step was made with %s without momentum: attach the scheduler before it",
                            own->name, optimizer->name);
    return LK_OK;
}

static lk_status one_cycle_prepare(lk_scheduler *own)
{
    if (own->one_cycle.cycles_momentum) LKI_TRY(check_momentum(own, true));
    LKI_TRY(check_count(own, "max_lr", own->lists.high_count));
    for (int i = 0; i < own->optimizer->group_count; i++)
        own->optimizer->groups[i].initial_lr = cycle_factor(own, i) * own->one_cycle.phases[0].start_lr;
    return LK_OK;
}

static void set_phases(lk_scheduler *own, double max_lr, const lk_one_cycle_lr_options *options)
{
    double up = lki_number_or(options->pct_start, 0.3), total = (double)own->one_cycle.total_steps;
    double initial = max_lr / lki_number_or(options->div_factor, 25);
    double least = initial / lki_number_or(options->final_div_factor, 1e4);
    double base = lki_number_or(options->base_momentum, 0.85),
           top = lki_number_or(options->max_momentum, 0.95);
    lki_phase *phases = own->one_cycle.phases;
    phases[0] = (lki_phase){up * total - 1, initial, max_lr, top, base};
    if (options->three_phase) {
        phases[1] = (lki_phase){2 * up * total - 2, max_lr, initial, base, top};
        phases[2] = (lki_phase){total - 1, initial, least, top, top};
    } else {
        phases[1] = (lki_phase){total - 1, max_lr, least, base, top};
    }
    own->one_cycle.phase_count = options->three_phase ? 3 : 2;
}

static lk_status check_momenta(const char *name, double base, double top)
{
    if (base >= 0 && base < 1 && top >= 0 && top < 1) return LK_OK; /* 0: the default */
    return lki_fail(LK_ERR_INVALID,
                    "%s: base_momentum and max_momentum: expected 0 or more and below 1, found %g and %g",
                    name, base, top);
}

lk_scheduler *lk_one_cycle_lr_with(double max_lr, const lk_one_cycle_lr_options *given)
{
    LKI_TAKE(lk_one_cycle_lr_options, options, given, lki_scheduler_refused());
    int64_t total = options.total_steps ? options.total_steps : options.epochs * options.steps_per_epoch;
    double up = lki_number_or(options.pct_start, 0.3);
    if (total < 1)
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "OneCycleLR: expected total_steps, or epochs and steps_per_epoch");
    if (!(up >= 0 && up <= 1))
        return lki_scheduler_refuse(LK_ERR_INVALID, "OneCycleLR: pct_start: expected 0 to 1, found %g", up);
    bool has_list = options.max_lr_count != 0;
    if (has_list && max_lr != 0)
        return lki_scheduler_refuse(LK_ERR_INVALID, "OneCycleLR: max_lrs stand instead of max_lr: pass 0");
    if (has_list) max_lr = 1;
    if (!(max_lr > 0) || isinf(max_lr))
        return lki_scheduler_refuse(LK_ERR_INVALID, "OneCycleLR: max_lr: expected more than 0, found %g",
                                    max_lr);
    if (options.div_factor < 0 || options.final_div_factor < 0 ||
        !isfinite(options.div_factor + options.final_div_factor))
        return lki_scheduler_refuse(LK_ERR_INVALID, "OneCycleLR: div_factor and final_div_factor must be "
                                                    "finite and not negative");
    if ((int)options.anneal_strategy < 0 || options.anneal_strategy > LK_ANNEAL_LINEAR)
        return lki_scheduler_refuse(LK_ERR_INVALID, "OneCycleLR: there is no anneal_strategy %d",
                                    (int)options.anneal_strategy);
    if (check_momenta("OneCycleLR", options.base_momentum, options.max_momentum))
        return lki_scheduler_refused();
    lk_scheduler *own = lki_scheduler_create("OneCycleLR");
    if (!own) return NULL;
    own->lists.high_count = options.max_lr_count;
    if (copy_rates("OneCycleLR", "max_lr", options.max_lrs, options.max_lr_count, DBL_MIN,
                   &own->lists.high)) {
        lk_scheduler_free(own);
        return lki_scheduler_refused();
    }
    own->prepare = one_cycle_prepare;
    own->rate = one_cycle_rate;
    own->advance = one_cycle_advance;
    own->momentum = options.no_cycle_momentum ? NULL : one_cycle_momentum;
    own->one_cycle.total_steps = total;
    own->one_cycle.anneal = options.anneal_strategy;
    own->one_cycle.cycles_momentum = !options.no_cycle_momentum;
    set_phases(own, max_lr, &options);
    return own;
}

/* ---- back and forth ---- */

/* How far between base (0) and top (1) the triangle is, and by how much this cycle's triangle is scaled. */
static double triangle(const lk_scheduler *own, double *scale)
{
    double place = (double)own->last_epoch / own->cyclic.total_size;
    double cycle = floor(1 + place), x = 1. + place - cycle, ratio = own->cyclic.step_ratio;
    switch (own->cyclic.mode) {
    case LK_CYCLIC_TRIANGULAR: *scale = 1; break;
    case LK_CYCLIC_TRIANGULAR2: *scale = 1 / pow(2., cycle - 1); break;
    case LK_CYCLIC_EXP_RANGE: *scale = pow(own->gamma, (double)own->last_epoch); break;
    }
    return x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
}

static double cyclic_rate(const lk_scheduler *own, int group, double lr)
{
    (void)lr;
    double low = rate_of(own->lists.low, own->lists.low_count, group, own->cyclic.base_lr);
    double high = rate_of(own->lists.high, own->lists.high_count, group, own->cyclic.max_lr);
    double scale = 1, height = (high - low) * triangle(own, &scale);
    return low + height * scale;
}

static double cyclic_momentum(const lk_scheduler *own)
{
    double scale = 1, height = (own->cyclic.max_momentum - own->cyclic.base_momentum) * triangle(own, &scale);
    return own->cyclic.max_momentum - height * scale;
}

/* PyTorch's takes its base for the initial rate where no scheduler came before it; a one-cycle always does.
 */
static lk_status cyclic_prepare(lk_scheduler *own)
{
    if (own->cyclic.cycles_momentum) LKI_TRY(check_momentum(own, false));
    LKI_TRY(check_count(own, "base_lr", own->lists.low_count));
    LKI_TRY(check_count(own, "max_lr", own->lists.high_count));
    for (int i = 0; !own->optimizer->has_scheduler && i < own->optimizer->group_count; i++)
        own->optimizer->groups[i].initial_lr =
            rate_of(own->lists.low, own->lists.low_count, i, own->cyclic.base_lr);
    return LK_OK;
}

lk_scheduler *lk_cyclic_lr_with(double base_lr, double max_lr, const lk_cyclic_lr_options *given)
{
    LKI_TAKE(lk_cyclic_lr_options, options, given, lki_scheduler_refused());
    int64_t up = options.step_size_up ? options.step_size_up : 2000;
    int64_t down = options.step_size_down ? options.step_size_down : up;
    if (up < 1 || down < 1)
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "CyclicLR: step sizes: expected at least 1, found %lld and %lld",
                                    (long long)up, (long long)down);
    if (!(base_lr >= 0) || !(max_lr >= 0) || !isfinite(base_lr + max_lr))
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "CyclicLR: base_lr and max_lr: expected at least 0, found %g and %g",
                                    base_lr, max_lr);
    if ((options.base_lr_count && base_lr != 0) || (options.max_lr_count && max_lr != 0))
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "CyclicLR: lists stand instead of base_lr and max_lr: pass 0");
    if (!isfinite(options.gamma))
        return lki_scheduler_refuse(LK_ERR_INVALID, "CyclicLR: gamma: expected a finite number, found %g",
                                    options.gamma);
    if ((int)options.mode < 0 || options.mode > LK_CYCLIC_EXP_RANGE)
        return lki_scheduler_refuse(LK_ERR_INVALID, "CyclicLR: there is no mode %d", (int)options.mode);
    if (check_momenta("CyclicLR", options.base_momentum, options.max_momentum))
        return lki_scheduler_refused();
    lk_scheduler *own = lki_scheduler_create("CyclicLR");
    if (!own) return NULL;
    own->lists.low_count = options.base_lr_count;
    own->lists.high_count = options.max_lr_count;
    if (copy_rates("CyclicLR", "base_lr", options.base_lrs, options.base_lr_count, 0, &own->lists.low) ||
        copy_rates("CyclicLR", "max_lr", options.max_lrs, options.max_lr_count, 0, &own->lists.high)) {
        lk_scheduler_free(own);
        return lki_scheduler_refused();
    }
    own->prepare = cyclic_prepare;
    own->rate = cyclic_rate;
    own->momentum = options.no_cycle_momentum ? NULL : cyclic_momentum;
    own->gamma = lki_number_or(options.gamma, 1);
    own->cyclic.base_lr = base_lr;
    own->cyclic.max_lr = max_lr;
    own->cyclic.total_size = (double)(up + down);
    own->cyclic.step_ratio = (double)up / own->cyclic.total_size;
    own->cyclic.base_momentum = lki_number_or(options.base_momentum, 0.8);
    own->cyclic.max_momentum = lki_number_or(options.max_momentum, 0.9);
    own->cyclic.mode = options.mode;
    own->cyclic.cycles_momentum = !options.no_cycle_momentum;
    return own;
}
