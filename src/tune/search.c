#include "tune/search.h"

#include "base/memory.h"
#include "base/status.h"
#include "tune/parzen.h"

#include <math.h>

enum { MAX_GRID = 1000000, MAX_GOOD = 25 };

/* ---- Grid ---- */

int64_t lki_search_grid_count(const lki_study *study)
{
    int64_t count = 1;
    for (int i = 0; i < study->parameter_count; i++) {
        int64_t values = lki_range_count(&study->parameters[i].range);
        if (values == 0 || values > MAX_GRID / count) return 0;
        count *= values;
    }
    return count;
}

static void next_of_grid(const lki_study *study, double *values)
{
    int64_t rest = study->trial_count;
    for (int i = study->parameter_count - 1; i >= 0; i--) {
        const lki_range *range = &study->parameters[i].range;
        int64_t count = lki_range_count(range);
        values[i] = lki_range_value(range, rest % count);
        rest /= count;
    }
}

/* ---- TPE: the trials, and which of them are good ---- */

/* The order of good: complete before pruned, those by value, pruned ones by how far they came. */
static bool goes_before(const lki_study *study, const lki_trial *a, const lki_trial *b)
{
    if (a->state != b->state) return a->state == LKI_TRIAL_COMPLETE;
    int64_t far_a = a->epochs[a->epoch_count - 1].epoch, far_b = b->epochs[b->epoch_count - 1].epoch;
    if (a->state == LKI_TRIAL_PRUNED && far_a != far_b) return far_a > far_b;
    double value_a = lki_trial_value(a), value_b = lki_trial_value(b);
    if (lki_study_is_better(study, value_a, value_b)) return true;
    return !lki_study_is_better(study, value_b, value_a) && a->number < b->number;
}

static bool has_value(const lki_trial *trial)
{
    return (trial->state == LKI_TRIAL_COMPLETE || trial->state == LKI_TRIAL_PRUNED) && trial->epoch_count &&
           !isnan(lki_trial_value(trial));
}

static int count_with_value(const lki_study *study)
{
    int count = 0;
    for (int i = 0; i < study->trial_count; i++) count += has_value(study->trials[i]);
    return count;
}

/* A tenth of the trials, at most 25. */
static int count_good(int count)
{
    int good = (int)ceil(0.1 * count);
    return good < MAX_GOOD ? good : MAX_GOOD;
}

/* is_good (trials). */
static void mark_good(const lki_study *study, int good, bool *is_good)
{
    for (int i = 0; i < study->trial_count; i++) {
        int before = 0;
        if (!has_value(study->trials[i])) continue;
        for (int k = 0; k < study->trial_count; k++)
            before += has_value(study->trials[k]) && goes_before(study, study->trials[k], study->trials[i]);
        is_good[i] = before < good;
    }
}

/* The values that one parameter has in the good trials, or in the others. Running trials count as not good,
 * so that trials which run at the same time do not crowd together. */
static int collect(const lki_study *study, int parameter, const bool *is_good, bool wanted, double *values)
{
    int count = 0;
    for (int i = 0; i < study->trial_count; i++) {
        const lki_trial *trial = study->trials[i];
        bool counts = has_value(trial) || (trial->state == LKI_TRIAL_OPEN && !wanted);
        if (counts && is_good[i] == wanted) values[count++] = trial->values[parameter];
    }
    return count;
}

/* ---- TPE: the value whose density among the good trials is highest, compared with the others ---- */

static double best_candidate(const lki_search *search, const lki_parzen *good, const lki_parzen *others,
                             lk_generator *generator)
{
    double best = NAN, best_score = -INFINITY;
    for (int i = 0; i < search->candidates; i++) {
        double value = lki_parzen_draw(good, generator);
        double score = lki_parzen_log(good, value) - lki_parzen_log(others, value);
        if (isnan(best) || score > best_score) {
            best = value;
            best_score = score;
        }
    }
    return best;
}

static lk_status next_of_parameter(const lki_search *search, const lki_study *study, int parameter,
                                   const bool *is_good, lk_generator *generator, double *out)
{
    const lki_range *range = &study->parameters[parameter].range;
    lki_parzen good = {0}, others = {0};
    LKI_SCOPED double *values = LKI_NEW_ARRAY(double, study->trial_count + 1);
    if (!values) return LK_ERR_NOMEM;
    lk_status status =
        lki_parzen_init(&good, range, values, collect(study, parameter, is_good, true, values));
    if (!status)
        status = lki_parzen_init(&others, range, values, collect(study, parameter, is_good, false, values));
    if (!status) *out = best_candidate(search, &good, &others, generator);
    lki_parzen_fini(&good);
    lki_parzen_fini(&others);
    return status;
}

static lk_status next_of_tpe(const lki_search *search, const lki_study *study, lk_generator *generator,
                             double *values)
{
    LKI_SCOPED bool *is_good = LKI_NEW_ARRAY(bool, study->trial_count + 1);
    if (!is_good) return LK_ERR_NOMEM;
    mark_good(study, count_good(count_with_value(study)), is_good);
    for (int i = 0; i < study->parameter_count; i++)
        LKI_TRY(next_of_parameter(search, study, i, is_good, generator, &values[i]));
    return LK_OK;
}

/* ---- All of them ---- */

/* A stream of its own for each trial: splitmix64's step keeps the seeds of neighbours apart. */
static uint64_t seed_of_trial(uint64_t seed, int trial)
{
    uint64_t mixed = seed + 0x9e3779b97f4a7c15u * ((uint64_t)trial + 1);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return mixed ^ (mixed >> 31);
}

lk_status lki_search_next(const lki_search *search, const lki_study *study, double *values)
{
    lk_generator generator;
    if (search->kind == LKI_SEARCH_GRID) {
        next_of_grid(study, values);
        return LK_OK;
    }
    lk_generator_seed(&generator, seed_of_trial(study->seed, study->trial_count));
    if (search->kind == LKI_SEARCH_TPE && count_with_value(study) >= search->startup_trials &&
        count_with_value(study) > 0)
        return next_of_tpe(search, study, &generator, values);
    for (int i = 0; i < study->parameter_count; i++)
        values[i] = lki_range_draw(&study->parameters[i].range, &generator);
    return LK_OK;
}
