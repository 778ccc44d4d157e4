#include "tune/pruner.h"

#include "base/memory.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* The report of an epoch; NULL if there is none. */
static const lki_trial_epoch *report_of(const lki_trial *trial, int64_t epoch)
{
    for (int i = 0; i < trial->epoch_count; i++)
        if (trial->epochs[i].epoch == epoch) return &trial->epochs[i];
    return NULL;
}

/* The values of other trials at an epoch, NaN left out. */
static int collect(const lki_study *study, const lki_trial *but, int64_t epoch, bool complete, double *values)
{
    int count = 0;
    for (int i = 0; i < study->trial_count; i++) {
        const lki_trial *trial = study->trials[i];
        const lki_trial_epoch *report = trial == but ? NULL : report_of(trial, epoch);
        if (!report || isnan(report->value) || (complete && trial->state != LKI_TRIAL_COMPLETE)) continue;
        values[count++] = report->value;
    }
    return count;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static bool is_worse_than_median(const lki_study *study, double value, double *values, int count)
{
    if (count == 0) return false;
    qsort(values, (size_t)count, sizeof *values, compare);
    double median = (values[(count - 1) / 2] + values[count / 2]) / 2;
    return lki_study_is_better(study, median, value);
}

static bool asks_median(const lki_pruner *pruner, const lki_study *study, const lki_trial *trial,
                        int64_t epoch, double value, double *values)
{
    if (lki_study_count(study, LKI_TRIAL_COMPLETE) < pruner->startup_trials) return false;
    if (epoch <= pruner->warmup_epochs) return false;
    if ((epoch - pruner->warmup_epochs - 1) % pruner->interval_epochs != 0) return false;
    return is_worse_than_median(study, value, values, collect(study, trial, epoch, true, values));
}

/* Whether a rung of the halving lies at this epoch. */
static bool is_rung(const lki_pruner *pruner, int64_t epoch)
{
    int64_t rung = pruner->min_epochs;
    for (int i = 0; i < pruner->early_stopping_rate && rung <= epoch; i++) rung *= pruner->reduction_factor;
    while (rung < epoch) rung *= pruner->reduction_factor;
    return rung == epoch;
}

/* Of the first trials at a rung the best goes on: a factor of them makes one place. */
static bool asks_halving(const lki_pruner *pruner, const lki_study *study, const lki_trial *trial,
                         int64_t epoch, double value, double *values)
{
    if (!is_rung(pruner, epoch)) return false;
    int count = collect(study, trial, epoch, false, values), better = 0;
    int places = (count + 1) / pruner->reduction_factor;
    for (int i = 0; i < count; i++) better += lki_study_is_better(study, values[i], value);
    return better >= (places > 0 ? places : 1);
}

lk_status lki_pruner_asks(const lki_pruner *pruner, const lki_study *study, const lki_trial *trial,
                          int64_t epoch, double value, bool *prune)
{
    *prune = false;
    if (pruner->kind == LKI_PRUNER_NONE) return LK_OK;
    double *values = LKI_NEW_ARRAY(double, study->trial_count + 1);
    if (!values) return LK_ERR_NOMEM;
    *prune = pruner->kind == LKI_PRUNER_MEDIAN ? asks_median(pruner, study, trial, epoch, value, values)
                                               : asks_halving(pruner, study, trial, epoch, value, values);
    lki_free(values);
    return LK_OK;
}
