#include "run/metric_names.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "run/run.h"

#include <string.h>

void lki_metric_names_fini(lki_metric_names *names)
{
    for (int i = 0; i < names->declared_count; i++) lki_free(names->declared[i]);
    lki_free(names->declared);
    for (int i = 0; i < names->watched_count; i++) {
        lki_free(names->watched[i].loader_key);
        lki_free(names->watched[i].metric_key);
    }
    for (int i = 0; i < names->own_count; i++) {
        lk_metric_free(names->own[i].metric);
        lki_free(names->own[i].name);
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

static lk_status no_loader(const lk_runner *runner, const lki_watched *watched)
{
    char hint[160];
    lki_suggestion near = {.wanted = watched->loader_key};
    for (int i = 0; i < runner->run->loader_count; i++) lki_suggest_offer(&near, runner->run->loaders[i].key);
    return lki_fail(LK_ERR_NOT_FOUND, "%s: there is no loader named \"%s\"%s", watched->who,
                    watched->loader_key, lki_suggest_text(&near, hint, sizeof hint));
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

lk_status lki_metric_names_check(lk_runner *runner)
{
    const lki_run *run = runner->run;
    lki_metric_names *names = &runner->run->names;
    names->has_strangers = runner->ops && runner->ops->handle_batch;
    for (int i = 0; i < run->callback_count; i++)
        names->has_strangers = names->has_strangers || !run->callbacks[i]->declares_metrics;
    if (run->options.valid_metric && !run->evaluating)
        LKI_TRY(lki_metric_names_watch(runner, "valid_metric", NULL, NULL));
    for (int i = 0; i < names->watched_count; i++) {
        const lki_watched *watched = &names->watched[i];
        if (lki_run_find_loader(run, watched->loader_key) < 0) return no_loader(runner, watched);
        if (!names->has_strangers && !lki_metric_names_is_declared(names, watched->metric_key))
            return no_metric(names, watched, NULL);
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
