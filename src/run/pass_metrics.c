#include "run/pass_metrics.h"

#include "base/memory.h"
#include "base/status.h"
#include "resume/metric_state.h"
#include "resume/rank_state.h"
#include "run/run.h"

#include <stdio.h>
#include <string.h>

/* ---- Those of callbacks ---- */

lk_status lki_run_register_metric(lk_runner *runner, lk_metric *metric)
{
    lki_run *run = runner->run;
    if (run->pass.count == LKI_MAX_PASS_METRICS)
        return lki_fail(LK_ERR_INVALID, "a run has at most %d metrics", LKI_MAX_PASS_METRICS);
    run->pass.metrics[run->pass.count++] = metric;
    return lki_rank_state_restore_metric(runner, run->pass.count - 1);
}

lk_status lki_metric_report(lk_metric *metric, lk_metrics *out)
{
    lk_metric_values values;
    LKI_TRY(lk_metric_compute(metric, &values));
    for (int i = 0; i < values.count; i++)
        LKI_TRY(lk_metrics_set(out, values.items[i].name, values.items[i].value));
    return LK_OK;
}

/* ---- Those of the user's own code ---- */

static lk_status add(lki_pass_metrics *pass, const char *name, int place)
{
    if (pass->own_count == LKI_MAX_OWN_METRICS)
        return lki_fail(LK_ERR_INVALID, "batch_metrics: a run averages at most %d metrics of your own",
                        LKI_MAX_OWN_METRICS);
    lki_own_metric fresh = {.name = lki_strdup(name), .metric = lk_mean_metric(name)};
    if (!fresh.name || !fresh.metric) {
        lki_free(fresh.name);
        lk_metric_free(fresh.metric);
        return LK_ERR_NOMEM;
    }
    memmove(&pass->own[place + 1], &pass->own[place], sizeof *pass->own * (size_t)(pass->own_count - place));
    pass->own[place] = fresh;
    pass->own_count++;
    return LK_OK;
}

lk_status lki_own_metric_find(lki_pass_metrics *pass, const char *name, lki_own_metric **out)
{
    int place = 0, order = -1;
    while (place < pass->own_count && (order = strcmp(pass->own[place].name, name)) < 0) place++;
    if (place == pass->own_count || order != 0) LKI_TRY(add(pass, name, place));
    *out = &pass->own[place];
    return LK_OK;
}

/* ---- A loader's life ---- */

void lki_own_metrics_forget(lki_pass_metrics *pass)
{
    for (int i = 0; i < pass->own_count; i++) {
        pass->own[i].is_seen = false;
        lk_metric_reset(pass->own[i].metric);
    }
}

/* What rank 0's checkpoint has is back already; each of several ranks has a share of its own. */
lk_status lki_pass_metrics_start(lk_runner *runner)
{
    lki_run *run = runner->run;
    lki_pass_metrics *pass = &run->pass;
    if (run->resuming.inside_loader) {
        const lk_state_dict *own = run->resuming.rank_state;
        return own ? lki_own_metrics_restore(runner, own) : LK_OK;
    }
    for (int i = 0; i < pass->count; i++) lk_metric_reset(pass->metrics[i]);
    lki_own_metrics_forget(pass);
    return LK_OK;
}

lk_status lki_own_metrics_update(lk_runner *runner)
{
    const lki_metric_names *names = &runner->run->names;
    for (int i = 0; i < lk_metrics_count(runner->batch_metrics); i++) {
        const char *name = lk_metrics_name(runner->batch_metrics, i);
        lki_own_metric *own;
        if (lki_metric_names_is_declared(names, name)) continue;
        LKI_TRY(lki_own_metric_find(&runner->run->pass, name, &own));
        own->is_seen = true;
        LKI_TRY(lki_run_add_loss(runner, name, own->metric)); /* a loss of the step knows its samples */
    }
    return LK_OK;
}

/* ---- All ranks report the same names ---- */

static lk_status list_seen(const lki_pass_metrics *pass, char **out)
{
    size_t nbytes = 1, used = 0;
    for (int i = 0; i < pass->own_count; i++)
        if (pass->own[i].is_seen) nbytes += strlen(pass->own[i].name) + 1;
    *out = lki_calloc(nbytes, "a list of names");
    if (!*out) return LK_ERR_NOMEM;
    for (int i = 0; i < pass->own_count; i++)
        if (pass->own[i].is_seen)
            used += (size_t)snprintf(*out + used, nbytes - used, "%s\n", pass->own[i].name);
    return LK_OK;
}

static lk_status take_seen(lki_pass_metrics *pass, char *list)
{
    char *rest = NULL;
    for (char *name = strtok_r(list, "\n", &rest); name; name = strtok_r(NULL, "\n", &rest)) {
        lki_own_metric *own;
        LKI_TRY(lki_own_metric_find(pass, name, &own));
        own->is_seen = true;
    }
    return LK_OK;
}

/* A rank without a batch, or whose batches lack a metric, learns of it from the others. */
static lk_status join_names(lki_run *run)
{
    lk_comm *comm = run->ranks.comm;
    if (!comm || comm->size == 1) return LK_OK;
    LKI_SCOPED char *list = NULL;
    LKI_TRY(list_seen(&run->pass, &list));
    int64_t nbytes = (int64_t)strlen(list) + 1;
    LKI_TRY(lk_comm_all_reduce(comm, &nbytes, 1, LK_I64, LK_REDUCE_MAX));
    LKI_SCOPED char *padded = lki_calloc((size_t)nbytes, "a list of names");
    LKI_SCOPED char *all = lki_calloc((size_t)nbytes * (size_t)comm->size, "lists of names");
    if (!padded || !all) return LK_ERR_NOMEM;
    memcpy(padded, list, strlen(list));
    LKI_TRY(lk_comm_all_gather(comm, padded, all, nbytes, LK_U8));
    for (int rank = 0; rank < comm->size; rank++) LKI_TRY(take_seen(&run->pass, all + rank * nbytes));
    return LK_OK;
}

lk_status lki_own_metrics_report(lk_runner *runner)
{
    lki_run *run = runner->run;
    lk_metric *seen[LKI_MAX_OWN_METRICS];
    int count = 0;
    if (!run->names.has_strangers) return LK_OK;
    LKI_TRY(join_names(run));
    for (int i = 0; i < run->pass.own_count; i++)
        if (run->pass.own[i].is_seen) seen[count++] = run->pass.own[i].metric;
    LKI_TRY(lki_metric_reduce(seen, count, &run->ranks.collectives));
    for (int i = 0; i < count; i++) LKI_TRY(lki_metric_report(seen[i], runner->loader_metrics));
    return LK_OK;
}

void lki_pass_metrics_fini(lki_pass_metrics *pass)
{
    for (int i = 0; i < pass->own_count; i++) {
        lk_metric_free(pass->own[i].metric);
        lki_free(pass->own[i].name);
    }
    *pass = (lki_pass_metrics){0};
}
