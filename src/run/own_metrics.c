/* What the user's own code puts into batch_metrics: averaged over the samples of a loader, on all ranks. */
#include "run/metric_names.h"

#include "base/memory.h"
#include "base/status.h"
#include "run/run.h"

#include <stdio.h>
#include <string.h>

#define PREFIX "own_metric."
#define TAIL   ".classes" /* a name that every saved metric has */

static lk_status add(lki_metric_names *names, const char *name, int place)
{
    if (names->own_count == LKI_MAX_OWN_METRICS)
        return lki_fail(LK_ERR_INVALID, "batch_metrics: a run averages at most %d metrics of your own",
                        LKI_MAX_OWN_METRICS);
    lki_own_metric fresh = {.name = lki_strdup(name), .metric = lk_mean_metric(name)};
    if (!fresh.name || !fresh.metric) {
        lki_free(fresh.name);
        lk_metric_free(fresh.metric);
        return LK_ERR_NOMEM;
    }
    memmove(&names->own[place + 1], &names->own[place],
            sizeof *names->own * (size_t)(names->own_count - place));
    names->own[place] = fresh;
    names->own_count++;
    return LK_OK;
}

static lk_status find_or_add(lki_metric_names *names, const char *name, lki_own_metric **out)
{
    int place = 0, order = -1;
    while (place < names->own_count && (order = strcmp(names->own[place].name, name)) < 0) place++;
    if (place == names->own_count || order != 0) LKI_TRY(add(names, name, place));
    *out = &names->own[place];
    return LK_OK;
}

/* ---- A loader's life ---- */

/* "own_metric.NAME.classes" */
static lk_status take_back(lk_runner *runner, const lk_state_dict *state, const char *saved)
{
    size_t length = strlen(saved), around = sizeof PREFIX - 1 + sizeof TAIL - 1;
    lki_own_metric *own;
    if (length <= around || strncmp(saved, PREFIX, sizeof PREFIX - 1) != 0 ||
        strcmp(saved + length - (sizeof TAIL - 1), TAIL) != 0)
        return LK_OK;
    LKI_SCOPED char *prefix = lki_format("%.*s.", (int)(length - (sizeof TAIL - 1)), saved);
    LKI_SCOPED char *name = lki_format("%.*s", (int)(length - around), saved + sizeof PREFIX - 1);
    if (!prefix || !name) return LK_ERR_NOMEM;
    LKI_TRY(find_or_add(&runner->run->names, name, &own));
    own->is_seen = true;
    return lki_metric_load(own->metric, state, prefix);
}

lk_status lki_own_metrics_start(lk_runner *runner)
{
    lki_run *run = runner->run;
    const lk_state_dict *state = run->rank_state ? run->rank_state : run->resumed_state;
    for (int i = 0; i < run->names.own_count; i++) {
        run->names.own[i].is_seen = false;
        lk_metric_reset(run->names.own[i].metric);
    }
    if (!run->resuming_loader || !state) return LK_OK;
    for (int64_t i = 0; i < lk_state_dict_count(state); i++)
        LKI_TRY(take_back(runner, state, lk_state_dict_name(state, i)));
    return LK_OK;
}

lk_status lki_own_metrics_update(lk_runner *runner)
{
    lki_metric_names *names = &runner->run->names;
    if (!names->has_strangers) return LK_OK;
    for (int i = 0; i < lk_metrics_count(runner->batch_metrics); i++) {
        const char *name = lk_metrics_name(runner->batch_metrics, i);
        lki_own_metric *own;
        if (lki_metric_names_is_declared(names, name)) continue;
        LKI_TRY(find_or_add(names, name, &own));
        own->is_seen = true;
        LKI_TRY(lki_run_add_loss(runner, name, own->metric)); /* a loss of the step knows its samples */
    }
    return LK_OK;
}

/* ---- All ranks report the same names ---- */

static lk_status list_seen(const lki_metric_names *names, char **out)
{
    size_t nbytes = 1, used = 0;
    for (int i = 0; i < names->own_count; i++)
        if (names->own[i].is_seen) nbytes += strlen(names->own[i].name) + 1;
    *out = lki_calloc(nbytes, "a list of names");
    if (!*out) return LK_ERR_NOMEM;
    for (int i = 0; i < names->own_count; i++)
        if (names->own[i].is_seen)
            used += (size_t)snprintf(*out + used, nbytes - used, "%s\n", names->own[i].name);
    return LK_OK;
}

static lk_status take_seen(lki_metric_names *names, char *list)
{
    char *rest = NULL;
    for (char *name = strtok_r(list, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        lki_own_metric *own;
        LKI_TRY(find_or_add(names, name, &own));
        own->is_seen = true;
    }
    return LK_OK;
}

/* A rank without a batch, or whose batches lack a metric, learns of it from the others. */
static lk_status join_names(lki_run *run)
{
    lk_comm *comm = run->comm;
    if (!comm || comm->size == 1) return LK_OK;
    LKI_SCOPED char *list = NULL;
    LKI_TRY(list_seen(&run->names, &list));
    int64_t nbytes = (int64_t)strlen(list) + 1;
    LKI_TRY(lk_comm_all_reduce(comm, &nbytes, 1, LK_I64, LK_REDUCE_MAX));
    LKI_SCOPED char *padded = lki_calloc((size_t)nbytes, "a list of names");
    LKI_SCOPED char *all = lki_calloc((size_t)nbytes * (size_t)comm->size, "lists of names");
    if (!padded || !all) return LK_ERR_NOMEM;
    memcpy(padded, list, strlen(list));
    LKI_TRY(lk_comm_all_gather(comm, padded, all, nbytes, LK_U8));
    for (int rank = 0; rank < comm->size; rank++) LKI_TRY(take_seen(&run->names, all + rank * nbytes));
    return LK_OK;
}

lk_status lki_own_metrics_report(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_metric *seen[LKI_MAX_OWN_METRICS];
    int count = 0;
    if (!run->names.has_strangers) return LK_OK;
    LKI_TRY(join_names(run));
    for (int i = 0; i < run->names.own_count; i++)
        if (run->names.own[i].is_seen) seen[count++] = run->names.own[i].metric;
    LKI_TRY(lki_metric_reduce(seen, count, &run->collectives));
    for (int i = 0; i < count; i++) LKI_TRY(lki_metric_report(seen[i], runner->loader_metrics));
    return LK_OK;
}

lk_status lki_own_metrics_save(const lk_runner *runner, lk_state_dict *state)
{
    const lki_metric_names *names = &runner->run->names;
    for (int i = 0; i < names->own_count && runner->run->inside_epoch; i++) {
        if (!names->own[i].is_seen) continue;
        LKI_SCOPED char *prefix = lki_format(PREFIX "%s.", names->own[i].name);
        if (!prefix) return LK_ERR_NOMEM;
        LKI_TRY(lki_metric_save(names->own[i].metric, state, prefix));
    }
    return LK_OK;
}
