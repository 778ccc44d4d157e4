#include "run/metric_names.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "run/run.h"

#include <ctype.h>
#include <string.h>

/* One edit of a shorter name makes another word too easily. */
enum { MIN_SLIP_LENGTH = 6 };

void lki_metric_names_fini(lki_metric_names *names)
{
    for (int i = 0; i < names->declared_count; i++) lki_free(names->declared[i]);
    lki_free(names->declared);
    for (int i = 0; i < names->watched_count; i++) {
        lki_free(names->watched[i].loader_key);
        lki_free(names->watched[i].metric_key);
    }
    *names = (lki_metric_names){0};
}

lk_status lki_metric_names_declare(lk_runner *runner, const char *prefix, const char *name, const char *tail)
{
    lki_metric_names *names = &runner->run->names;
    char **grown =
        lki_realloc(names->declared, sizeof *grown * (size_t)(names->declared_count + 1), "a list of names");
    if (!grown) return LK_ERR_NOMEM;
    names->declared = grown;
    grown[names->declared_count] = lki_format("%s%s%s", prefix ? prefix : "", name, tail ? tail : "");
    return grown[names->declared_count] ? (names->declared_count++, LK_OK) : LK_ERR_NOMEM;
}

lk_status lk_runner_declare_metric(lk_runner *runner, const char *name)
{
    return lki_metric_names_declare(runner, NULL, name, NULL);
}

/* "name*" stands for all names that begin so. */
static bool fits(const char *declared, const char *name)
{
    size_t length = strlen(declared);
    if (length && declared[length - 1] == '*') return strncmp(declared, name, length - 1) == 0;
    return strcmp(declared, name) == 0;
}

bool lki_metric_names_is_declared(const lki_metric_names *names, const char *name)
{
    for (int i = 0; i < names->declared_count; i++)
        if (fits(names->declared[i], name)) return true;
    return false;
}

lk_status lki_metric_names_watch(lk_runner *runner, const char *who, const char *loader_key,
                                 const char *metric_key)
{
    lki_metric_names *names = &runner->run->names;
    if (names->watched_count == LKI_MAX_WATCHED)
        return lki_fail(LK_ERR_INVALID, "%s: at most %d callbacks can look at metrics", who, LKI_MAX_WATCHED);
    lki_watched *watched = &names->watched[names->watched_count++];
    *watched = (lki_watched){.who = who,
                             .loader_key = lki_strdup(loader_key ? loader_key : runner->valid_loader),
                             .metric_key = lki_strdup(metric_key ? metric_key : runner->valid_metric)};
    return watched->loader_key && watched->metric_key ? LK_OK : LK_ERR_NOMEM;
}

static lk_status no_metric(const lki_metric_names *names, const lki_watched *watched,
                           const lk_metrics *reported)
{
    char hint[160];
    lki_suggestion near = {.wanted = watched->metric_key};
    for (int i = 0; i < names->declared_count; i++) lki_suggest_offer(&near, names->declared[i]);
    for (int i = 0; reported && i < lk_metrics_count(reported); i++)
        lki_suggest_offer(&near, lk_metrics_name(reported, i));
    return lki_fail(LK_ERR_NOT_FOUND, "%s: loader \"%s\" reports no metric \"%s\"%s", watched->who,
                    watched->loader_key, watched->metric_key, lki_suggest_text(&near, hint, sizeof hint));
}

/* ---- Slips of the hand ----
 *
 * A callback of the user's own may report any name, but hardly one that differs from a known one by a single
 * letter inside a word. A difference at a word's edge, as between "loss_a" and "loss_b", "rmse" and "mse" or
 * "accuracy01" and "accuracy03", is how people name siblings. */

static bool is_inside_word(const char *text, size_t at)
{
    return at > 0 && islower((unsigned char)text[at - 1]) && islower((unsigned char)text[at]) &&
           islower((unsigned char)text[at + 1]);
}

static bool is_slip(const char *wanted, const char *known)
{
    size_t a = strlen(wanted), b = strlen(known), at = 0;
    if (a < MIN_SLIP_LENGTH || lki_edit_distance(wanted, known) != 2) return false;
    while (wanted[at] && wanted[at] == known[at]) at++;
    return is_inside_word(a >= b ? wanted : known, at);
}

/* The known name that was probably meant, or NULL. */
static const char *meant_by_slip(const lki_metric_names *names, const char *wanted)
{
    static const char *const common[] = {"accuracy", "accuracy01", "precision", "recall", "r2squared"};
    for (int i = 0; i < names->declared_count; i++)
        if (is_slip(wanted, names->declared[i])) return names->declared[i];
    for (size_t i = 0; i < sizeof common / sizeof *common; i++)
        if (is_slip(wanted, common[i])) return common[i];
    return NULL;
}

/* Whether a callback is called while its loader's metrics are open: not if it only hears of the experiment or
 * the epoch, and in a loader that does not train not if it only hears of gradients and updates. */
static bool may_report_in(const lk_callback *callback, const char *loader_key)
{
    const lk_callback_ops *ops = callback->ops;
    bool trains = strncmp(loader_key, "train", 5) == 0;
    return ops->on_loader_start || ops->on_batch_start || ops->on_sample || ops->on_forward ||
           ops->on_criterion || (trains && (ops->on_backward || ops->on_step)) || ops->on_batch_end ||
           ops->on_loader_end || ops->on_settled;
}

/* Whether somebody may report in this loader what was not declared. */
static bool has_stranger_in(const lk_runner *runner, const char *loader_key)
{
    const lki_run *run = runner->run;
    if (runner->ops && runner->ops->handle_batch) return true;
    for (int i = 0; i < run->listeners.count; i++)
        if (!run->listeners.callbacks[i]->declares_metrics &&
            may_report_in(run->listeners.callbacks[i], loader_key))
            return true;
    return false;
}

static lk_status check_name(const lk_runner *runner, const lki_watched *watched)
{
    const lki_metric_names *names = &runner->run->names;
    if (lki_metric_names_is_declared(names, watched->metric_key)) return LK_OK;
    if (!has_stranger_in(runner, watched->loader_key)) return no_metric(names, watched, NULL);
    const char *meant = meant_by_slip(names, watched->metric_key);
    if (!meant) return LK_OK; /* looked at again when the loader has ended */
    return lki_fail(LK_ERR_NOT_FOUND,
                    "%s: nobody declares a metric \"%s\"; did you mean \"%s\"? A metric of your own needs "
                    "lk_runner_declare_metric, or a name that is less like it",
                    watched->who, watched->metric_key, meant);
}

lk_status lki_metric_names_check(lk_runner *runner)
{
    const lki_run *run = runner->run;
    lki_metric_names *names = &runner->run->names;
    names->has_strangers = runner->ops && runner->ops->handle_batch;
    for (int i = 0; i < run->listeners.count; i++)
        names->has_strangers = names->has_strangers || !run->listeners.callbacks[i]->declares_metrics;
    if (run->given.options.valid_metric && !run->evaluating)
        LKI_TRY(lki_metric_names_watch(runner, "valid_metric", NULL, NULL));
    for (int i = 0; i < names->watched_count; i++) {
        LKI_TRY(lki_run_check_loader(&run->loaders, names->watched[i].who, names->watched[i].loader_key));
        LKI_TRY(check_name(runner, &names->watched[i]));
    }
    return LK_OK;
}

lk_status lki_metric_names_check_loader(lk_runner *runner)
{
    const lki_metric_names *names = &runner->run->names;
    for (int i = 0; i < names->watched_count; i++)
        if (strcmp(names->watched[i].loader_key, runner->loader_key) == 0 &&
            !lk_metrics_has(runner->loader_metrics, names->watched[i].metric_key))
            return no_metric(names, &names->watched[i], runner->loader_metrics);
    return LK_OK;
}
