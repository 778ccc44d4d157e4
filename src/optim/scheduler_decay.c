/* Schedules that follow a curve from the initial rate. */
#include "optim/scheduler.h"

#include "base/status.h"
#include "base/take.h"
#include "nn/module.h"

#include <math.h>

static lk_status check_period(const char *name, const char *argument, int64_t period)
{
    if (period < 1)
        return lki_fail(LK_ERR_INVALID, "%s: %s: expected at least 1, found %lld", name, argument,
                        (long long)period);
    return LK_OK;
}

/* PyTorch takes any factor; one that makes every rate NaN or negative is a mistake. */
static lk_status check_factor(const char *name, const char *argument, double factor)
{
    if (factor >= 0 && isfinite(factor)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected a number of at least 0, found %g", name, argument,
                    factor);
}

static lk_scheduler *create(const char *name, double (*rate)(const lk_scheduler *, int, double),
                            int64_t period)
{
    lk_scheduler *scheduler = lki_scheduler_create(name);
    if (!scheduler) return NULL;
    scheduler->rate = rate;
    scheduler->period = period;
    return scheduler;
}

static double step_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    return own->last_epoch == 0 || own->last_epoch % own->period != 0 ? lr : lr * own->gamma;
}

lk_scheduler *lk_step_lr_with(int64_t step_size, const lk_step_lr_options *given)
{
    LKI_TAKE(lk_step_lr_options, options, given, lki_scheduler_refused());
    double gamma = lki_number_or(options.gamma, 0.1);
    if (check_period("StepLR", "step_size", step_size) || check_factor("StepLR", "gamma", gamma))
        return lki_scheduler_refused();
    lk_scheduler *scheduler = create("StepLR", step_rate, step_size);
    if (scheduler) scheduler->gamma = gamma;
    return scheduler;
}

static double multi_step_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    int hits = 0;
    for (int i = 0; i < own->milestone_count; i++) hits += own->milestones[i] == own->last_epoch;
    return hits ? lr * pow(own->gamma, hits) : lr;
}

lk_scheduler *lk_multi_step_lr_with(const lk_multi_step_lr_options *given)
{
    LKI_TAKE(lk_multi_step_lr_options, options, given, lki_scheduler_refused());
    double gamma = lki_number_or(options.gamma, 0.1);
    if (check_factor("MultiStepLR", "gamma", gamma)) return lki_scheduler_refused();
    if (options.milestones.count < 1)
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "MultiStepLR: milestones: expected at least one epoch, found none");
    for (int i = 0; i < options.milestones.count; i++)
        if (options.milestones.items[i] < 1)
            return lki_scheduler_refuse(LK_ERR_INVALID,
                                        "MultiStepLR: milestones: expected at least 1, found %lld",
                                        (long long)options.milestones.items[i]);
    lk_scheduler *scheduler = create("MultiStepLR", multi_step_rate, 0);
    if (scheduler) scheduler->gamma = gamma;
    return lki_scheduler_with_milestones(scheduler, options.milestones);
}

static double exponential_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    return own->last_epoch == 0 ? lr : lr * own->gamma;
}

lk_scheduler *lk_exponential_lr(double gamma)
{
    if (check_factor("ExponentialLR", "gamma", gamma)) return lki_scheduler_refused();
    lk_scheduler *scheduler = create("ExponentialLR", exponential_rate, 0);
    if (scheduler) scheduler->gamma = gamma;
    return scheduler;
}

static double constant_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    if (own->last_epoch == 0) return lr * own->factor;
    return own->last_epoch == own->period ? lr * (1.0 / own->factor) : lr;
}

lk_scheduler *lk_constant_lr_with(const lk_constant_lr_options *given)
{
    LKI_TAKE(lk_constant_lr_options, options, given, lki_scheduler_refused());
    double factor = lki_number_or(options.factor, 1.0 / 3);
    if (!(factor > 0 && factor <= 1))
        return lki_scheduler_refuse(
            LK_ERR_INVALID, "ConstantLR: factor: expected more than 0 and at most 1, found %g", factor);
    int64_t period = options.total_iters ? options.total_iters : 5;
    if (check_period("ConstantLR", "total_iters", period) != LK_OK) return lki_scheduler_refused();
    lk_scheduler *scheduler = create("ConstantLR", constant_rate, period);
    if (scheduler) scheduler->factor = factor;
    return scheduler;
}

static double linear_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    double start = own->factor, end = own->end_factor, epoch = (double)own->last_epoch;
    if (own->last_epoch == 0) return lr * start;
    if (own->last_epoch > own->period) return lr;
    return lr * (1. + (end - start) / ((double)own->period * start + (epoch - 1) * (end - start)));
}

lk_scheduler *lk_linear_lr_with(const lk_linear_lr_options *given)
{
    LKI_TAKE(lk_linear_lr_options, options, given, lki_scheduler_refused());
    double start = lki_number_or(options.start_factor, 1.0 / 3), end = lki_number_or(options.end_factor, 1);
    if (!(start > 0 && start <= 1))
        return lki_scheduler_refuse(
            LK_ERR_INVALID, "LinearLR: start_factor: expected more than 0 and at most 1, found %g", start);
    if (!(end >= 0 && end <= 1))
        return lki_scheduler_refuse(LK_ERR_INVALID, "LinearLR: end_factor: expected 0 to 1, found %g", end);
    int64_t period = options.total_iters ? options.total_iters : 5;
    if (check_period("LinearLR", "total_iters", period) != LK_OK) return lki_scheduler_refused();
    lk_scheduler *scheduler = create("LinearLR", linear_rate, period);
    if (!scheduler) return NULL;
    scheduler->factor = start;
    scheduler->end_factor = end;
    return scheduler;
}

static double polynomial_rate(const lk_scheduler *own, int group, double lr)
{
    (void)group;
    double epoch = (double)own->last_epoch, total = (double)own->period;
    if (own->last_epoch == 0 || own->last_epoch > own->period) return lr;
    return lr * pow((1.0 - epoch / total) / (1.0 - (epoch - 1) / total), own->power);
}

lk_scheduler *lk_polynomial_lr_with(const lk_polynomial_lr_options *given)
{
    LKI_TAKE(lk_polynomial_lr_options, options, given, lki_scheduler_refused());
    int64_t period = options.total_iters ? options.total_iters : 5;
    if (check_period("PolynomialLR", "total_iters", period) != LK_OK) return lki_scheduler_refused();
    double power = lki_number_or(options.power, 1);
    if (check_factor("PolynomialLR", "power", power)) return lki_scheduler_refused();
    lk_scheduler *scheduler = create("PolynomialLR", polynomial_rate, period);
    if (scheduler) scheduler->power = power;
    return scheduler;
}

static double cosine_rate(const lk_scheduler *own, int group, double lr)
{
    double epoch = (double)own->last_epoch, t_max = (double)own->period, base = own->base_lrs[group];
    if (own->last_epoch == 0) return lr;
    if ((own->last_epoch - 1 - own->period) % (2 * own->period) == 0)
        return lr + (base - own->eta_min) * (1 - cos(M_PI / t_max)) / 2;
    return (1 + cos(M_PI * epoch / t_max)) / (1 + cos(M_PI * (epoch - 1) / t_max)) * (lr - own->eta_min) +
           own->eta_min;
}

lk_scheduler *lk_cosine_annealing_lr_with(int64_t t_max, const lk_cosine_annealing_lr_options *given)
{
    LKI_TAKE(lk_cosine_annealing_lr_options, options, given, lki_scheduler_refused());
    if (check_period("CosineAnnealingLR", "T_max", t_max) ||
        check_factor("CosineAnnealingLR", "eta_min", options.eta_min))
        return lki_scheduler_refused();
    lk_scheduler *scheduler = create("CosineAnnealingLR", cosine_rate, t_max);
    if (scheduler) scheduler->eta_min = options.eta_min;
    return scheduler;
}

/* ---- warm restarts ---- */

static double restarts_rate(const lk_scheduler *own, int group, double lr)
{
    (void)lr;
    double share = (double)own->restarts.t_cur / (double)own->restarts.t_i;
    return own->eta_min + (own->base_lrs[group] - own->eta_min) * (1 + cos(M_PI * share)) / 2;
}

static lk_status restarts_advance(lk_scheduler *own, const double *metric)
{
    (void)metric;
    if (++own->restarts.t_cur >= own->restarts.t_i) {
        own->restarts.t_cur -= own->restarts.t_i;
        own->restarts.t_i *= own->restarts.t_mult;
    }
    lki_scheduler_apply(own);
    return LK_OK;
}

static void restarts_restart(lk_scheduler *own)
{
    own->restarts.t_cur = 0;
    own->restarts.t_i = own->period;
}

lk_scheduler *lk_cosine_annealing_warm_restarts_with(int64_t t_0,
                                                     const lk_cosine_annealing_warm_restarts_options *given)
{
    LKI_TAKE(lk_cosine_annealing_warm_restarts_options, options, given, lki_scheduler_refused());
    static const char name[] = "CosineAnnealingWarmRestarts";
    int64_t t_mult = options.t_mult ? options.t_mult : 1;
    if (check_period(name, "T_0", t_0) || check_period(name, "T_mult", t_mult) ||
        check_factor(name, "eta_min", options.eta_min))
        return lki_scheduler_refused();
    lk_scheduler *scheduler = create(name, restarts_rate, t_0);
    if (!scheduler) return NULL;
    scheduler->advance = restarts_advance;
    scheduler->restart = restarts_restart;
    scheduler->restarts.t_mult = t_mult;
    scheduler->eta_min = options.eta_min;
    return scheduler;
}

/* ---- a function ---- */

static double lambda_rate(const lk_scheduler *own, int group, double lr)
{
    (void)lr;
    return own->base_lrs[group] * own->lambda.function(own->last_epoch, group, own->lambda.context);
}

lk_scheduler *lk_lambda_lr(lk_lr_function function, void *context)
{
    if (!function) return lki_scheduler_refuse(LK_ERR_INVALID, "LambdaLR: the function is NULL");
    lk_scheduler *scheduler = create("LambdaLR", lambda_rate, 0);
    if (!scheduler) return NULL;
    scheduler->lambda.function = function;
    scheduler->lambda.context = context;
    return scheduler;
}

static double multiplicative_rate(const lk_scheduler *own, int group, double lr)
{
    if (own->last_epoch == 0) return lr;
    return lr * own->lambda.function(own->last_epoch, group, own->lambda.context);
}

lk_scheduler *lk_multiplicative_lr(lk_lr_function function, void *context)
{
    if (!function) return lki_scheduler_refuse(LK_ERR_INVALID, "MultiplicativeLR: the function is NULL");
    lk_scheduler *scheduler = create("MultiplicativeLR", multiplicative_rate, 0);
    if (!scheduler) return NULL;
    scheduler->lambda.function = function;
    scheduler->lambda.context = context;
    return scheduler;
}
