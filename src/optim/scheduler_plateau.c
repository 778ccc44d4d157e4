/* ReduceLROnPlateau: watches a metric instead of following a curve. */
#include "optim/scheduler.h"

#include "base/status.h"
#include "base/take.h"
#include "nn/module.h"
#include "optim/optimizer.h"

#include <math.h>

static bool is_better(const lk_reduce_lr_on_plateau_options *options, double metric, double best)
{
    double threshold = options->threshold;
    if (options->maximize)
        return metric > (options->absolute_threshold ? best + threshold : best * (threshold + 1.));
    return metric < (options->absolute_threshold ? best - threshold : best * (1. - threshold));
}

static void reduce(lk_scheduler *own)
{
    const lk_reduce_lr_on_plateau_options *options = &own->plateau.options;
    for (int i = 0; i < own->optimizer->group_count; i++) {
        double *lr = &own->optimizer->groups[i].hyper.lr;
        double next = fmax(*lr * options->factor, options->min_lr);
        if (*lr - next > options->eps) *lr = next;
    }
}

static lk_status plateau_advance(lk_scheduler *own, const double *metric)
{
    const lk_reduce_lr_on_plateau_options *options = &own->plateau.options;
    if (!metric)
        return lki_fail(LK_ERR_INVALID, "ReduceLROnPlateau: a step needs the metric that it watches");
    if (is_better(options, *metric, own->plateau.best)) {
        own->plateau.best = *metric;
        own->plateau.bad_epochs = 0;
    } else {
        own->plateau.bad_epochs++;
    }
    if (own->plateau.cooldown_left > 0) {
        own->plateau.cooldown_left--;
        own->plateau.bad_epochs = 0;
    }
    if (own->plateau.bad_epochs > options->patience) {
        reduce(own);
        own->plateau.cooldown_left = options->cooldown;
        own->plateau.bad_epochs = 0;
    }
    return LK_OK;
}

lk_scheduler *lk_reduce_lr_on_plateau_with(const lk_reduce_lr_on_plateau_options *given)
{
    LKI_TAKE(lk_reduce_lr_on_plateau_options, options, given, lki_scheduler_refused());
    options.factor = lki_number_or(options.factor, 0.1);
    options.threshold = lki_number_or(options.threshold, 1e-4);
    options.eps = lki_number_or(options.eps, 1e-8);
    int64_t patience;
    if (lki_whole_or(options.patience, 10, "ReduceLROnPlateau", "patience", &patience)) return NULL;
    options.patience = (double)patience;
    if (!(options.factor >= 0 && options.factor < 1))
        return lki_scheduler_refuse(
            LK_ERR_INVALID, "ReduceLROnPlateau: factor: expected less than 1, found %g", options.factor);
    if (!isfinite(options.threshold + options.eps + options.min_lr) || !(options.eps >= 0) ||
        !(options.min_lr >= 0))
        return lki_scheduler_refuse(LK_ERR_INVALID, "ReduceLROnPlateau: threshold, eps and min_lr: expected "
                                                    "finite numbers, the last two of at least 0");
    if (options.patience < 0 || options.cooldown < 0)
        return lki_scheduler_refuse(LK_ERR_INVALID,
                                    "ReduceLROnPlateau: patience and cooldown must not be negative");
    lk_scheduler *own = lki_scheduler_create("ReduceLROnPlateau");
    if (!own) return NULL;
    own->advance = plateau_advance;
    own->plateau.options = options;
    own->plateau.best = options.maximize ? -INFINITY : INFINITY;
    return own;
}
