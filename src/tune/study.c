#include "tune/study.h"

#include "base/memory.h"
#include "base/status.h"
#include "tune/study_file.h"

#include <math.h>
#include <unistd.h>

/* ---- Trials in memory ---- */

lk_status lki_study_add(lki_study *study, const double *values, lki_trial **out)
{
    size_t nbytes = sizeof(lki_trial *) * ((size_t)study->trial_count + 1);
    lki_trial **grown = lki_realloc(study->trials, nbytes, "the trials of a study");
    if (!grown) return LK_ERR_NOMEM;
    study->trials = grown;
    lki_trial *trial = LKI_NEW(lki_trial);
    if (!trial) return LK_ERR_NOMEM;
    trial->values = LKI_NEW_ARRAY(double, study->parameter_count);
    if (!trial->values) {
        lki_free(trial);
        return LK_ERR_NOMEM;
    }
    for (int i = 0; i < study->parameter_count; i++) trial->values[i] = values[i];
    trial->number = study->trial_count;
    study->trials[study->trial_count++] = trial;
    *out = trial;
    return LK_OK;
}

lk_status lki_trial_add_epoch(lki_trial *trial, int64_t epoch, double value, bool prune)
{
    size_t nbytes = sizeof(lki_trial_epoch) * ((size_t)trial->epoch_count + 1);
    lki_trial_epoch *grown = lki_realloc(trial->epochs, nbytes, "the epochs of a trial");
    if (!grown) return LK_ERR_NOMEM;
    trial->epochs = grown;
    trial->epochs[trial->epoch_count++] = (lki_trial_epoch){epoch, value};
    trial->is_to_end = prune;
    return LK_OK;
}

static void free_trial(lki_trial *trial)
{
    lki_free(trial->values);
    lki_free(trial->epochs);
    lki_free(trial->sentence);
    lki_free(trial);
}

/* ---- The study ---- */

lk_status lki_study_open(lki_study *study, const char *path, const char *description)
{
    study->fd = -1;
    if (!path) return LK_OK;
    study->path = lki_strdup(path);
    lk_status status = study->path ? lki_study_file_open(study, description) : LK_ERR_NOMEM;
    if (status) lki_study_close(study);
    return status;
}

void lki_study_close(lki_study *study)
{
    for (int i = 0; i < study->trial_count; i++) free_trial(study->trials[i]);
    lki_free(study->trials);
    if (study->path && study->fd >= 0) close(study->fd); /* which gives the lock back */
    lki_free(study->path);
    study->trials = NULL;
    study->trial_count = 0;
    study->path = NULL;
    study->fd = -1;
}

lk_status lki_study_begin(lki_study *study, const double *values, lki_trial **out)
{
    LKI_TRY(lki_study_add(study, values, out));
    return lki_study_write_begin(study, *out);
}

lk_status lki_study_report(lki_study *study, lki_trial *trial, int64_t epoch, double value, bool prune)
{
    if (trial->epoch_count && trial->epochs[trial->epoch_count - 1].epoch >= epoch) return LK_OK;
    LKI_TRY(lki_trial_add_epoch(trial, epoch, value, prune));
    return lki_study_write_epoch(study, trial);
}

lk_status lki_study_end(lki_study *study, lki_trial *trial, lki_trial_state state, const char *sentence)
{
    trial->state = state;
    if (sentence) {
        trial->sentence = lki_strdup(sentence);
        if (!trial->sentence) return LK_ERR_NOMEM;
    }
    return lki_study_write_end(study, trial);
}

double lki_trial_value(const lki_trial *trial)
{
    return trial->epoch_count ? trial->epochs[trial->epoch_count - 1].value : NAN;
}

bool lki_study_is_better(const lki_study *study, double a, double b)
{
    if (isnan(a) || isnan(b)) return !isnan(a);
    return study->minimize ? a < b : a > b;
}

const lki_trial *lki_study_best(const lki_study *study)
{
    const lki_trial *best = NULL;
    for (int i = 0; i < study->trial_count; i++) {
        const lki_trial *trial = study->trials[i];
        if (trial->state != LKI_TRIAL_COMPLETE) continue;
        if (!best || lki_study_is_better(study, lki_trial_value(trial), lki_trial_value(best))) best = trial;
    }
    return best;
}

int lki_study_count(const lki_study *study, lki_trial_state state)
{
    int count = 0;
    for (int i = 0; i < study->trial_count; i++) count += study->trials[i]->state == state;
    return count;
}
