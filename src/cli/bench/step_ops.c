#include "cli/bench/step_ops.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/peak.h"
#include "graph/workspace.h"
#include "run/roofline.h"
#include "step/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROUNDS = 3, SPARE_SITES = 256 };

/* ---- Times ---- */

static lk_status run_traced(lk_step *step, lki_trace *trace)
{
    trace->span_count = 0;
    lki_trace_now = trace;
    lk_status status = lk_step_forward(step);
    if (!status) status = lk_step_criterion(step);
    if (!status) status = lk_step_backward(step);
    if (!status) status = lk_step_update(step);
    lki_trace_now = NULL;
    return status;
}

static void take_best(const lki_trace *trace, double *best_s, int capacity)
{
    for (int64_t i = 0; i < trace->span_count; i++) {
        const lki_trace_span *span = &trace->spans[i];
        double seconds = (double)(span->end_ns - span->begin_ns) * 1e-9;
        if (span->site < capacity) best_s[span->site] = fmin(best_s[span->site], seconds);
    }
}

lk_status lki_time_calls(lk_step *step, double seconds, lki_trace **trace, double **best_s)
{
    int capacity = lki_plan_call_count(step->current->plan) + step->update.call_count + SPARE_SITES;
    double end_s = lki_now_s() + seconds;
    *trace = lki_trace_create(capacity);
    *best_s = LKI_NEW_ARRAY(double, capacity);
    lk_status status = *trace && *best_s ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; !status && i < capacity; i++) (*best_s)[i] = INFINITY;
    for (int round = 0; !status && (round < LEAST_ROUNDS || lki_now_s() < end_s); round++) {
        status = run_traced(step, *trace);
        if (!status) take_best(*trace, *best_s, capacity);
    }
    if (status == LK_OK) return LK_OK;
    lki_trace_free(*trace);
    lki_free(*best_s);
    *trace = NULL;
    *best_s = NULL;
    return status;
}

static int by_time(const void *a, const void *b)
{
    const lki_op_time *left = a, *right = b;
    return left->best_s != right->best_s ? (left->best_s < right->best_s ? 1 : -1) : 0;
}

static lk_status add_time(lki_step_ops *out, lki_roofline *roofline, const lki_trace_site *site,
                          double best_s)
{
    lki_op_time *time = &out->times[out->time_count];
    if (site->kind > LKI_TRACE_UPDATE || !isfinite(best_s)) return LK_OK;
    *time = (lki_op_time){.op = site->name,
                          .part = site->kind,
                          .best_s = best_s,
                          .nbytes = site->nbytes,
                          .fallback = site->fallback,
                          .roof_s = -1};
    LKI_TRY(lki_roofline_seconds(roofline, site, &time->roof_s, &time->limit));
    if (site->where && !(time->layer = lki_strdup(site->where))) return LK_ERR_NOMEM;
    out->time_count++;
    return LK_OK;
}

static lk_status measure_times(lki_step_ops *out, lk_step *step, double seconds, lki_roofline *roofline)
{
    lki_trace *trace;
    double *best_s;
    LKI_TRY(lki_time_calls(step, seconds, &trace, &best_s));
    out->times = LKI_NEW_ARRAY(lki_op_time, trace->site_count + 1);
    lk_status status = out->times ? LK_OK : LK_ERR_NOMEM;
    for (int i = 0; i < trace->site_count && !status; i++)
        status = add_time(out, roofline, &trace->sites[i], best_s[i]);
    if (!status) qsort(out->times, (size_t)out->time_count, sizeof *out->times, by_time);
    lki_free(best_s);
    lki_trace_free(trace);
    return status;
}

/* ---- Memory ---- */

static int by_nbytes(const void *a, const void *b)
{
    const lki_op_memory *left = a, *right = b;
    return left->nbytes != right->nbytes ? (left->nbytes < right->nbytes ? 1 : -1)
                                         : strcmp(left->op, right->op);
}

/* Values come with the largest first, so the first of an op is the largest of it. */
static lk_status add_value(lki_step_ops *out, const lki_peak_value *value)
{
    int i = 0;
    while (i < out->memory_count && strcmp(out->memory[i].op, value->op) != 0) i++;
    lki_op_memory *memory = &out->memory[i];
    if (i == out->memory_count) {
        *memory = (lki_op_memory){.op = value->op, .largest_nbytes = value->nbytes};
        if (value->layer && !(memory->largest_layer = lki_strdup(value->layer))) return LK_ERR_NOMEM;
        out->memory_count++;
    }
    memory->nbytes += value->nbytes;
    memory->value_count++;
    return LK_OK;
}

static lk_status take_peak(lki_step_ops *out, const lki_peak *peak)
{
    static const char *const parts[] = {"forward", "criterion", "backward"};
    out->memory = LKI_NEW_ARRAY(lki_op_memory, peak->value_count + 1);
    if (!out->memory) return LK_ERR_NOMEM;
    for (int i = 0; i < peak->value_count; i++) LKI_TRY(add_value(out, &peak->values[i]));
    qsort(out->memory, (size_t)out->memory_count, sizeof *out->memory, by_nbytes);
    out->peak_nbytes = peak->nbytes;
    out->peak_op = peak->op;
    out->peak_part = parts[peak->section];
    if (peak->layer && !(out->peak_layer = lki_strdup(peak->layer))) return LK_ERR_NOMEM;
    return LK_OK;
}

static lk_status measure_memory(lki_step_ops *out, const lk_step *step)
{
    const lki_plan *plan = step->current->plan;
    const lki_flat *flat = &step->flat;
    size_t each = (size_t)flat->count * lk_dtype_nbytes(flat->dtype);
    lki_peak peak;
    out->arena_nbytes = lki_plan_arena_nbytes(plan);
    out->scratch_nbytes = lki_workspace_nbytes(step->workspace) - out->arena_nbytes;
    out->param_nbytes = each;
    out->state_nbytes = each * (size_t)lki_optimizer_state_count(step->options.optimizer);
    LKI_TRY(lki_plan_find_peak(plan, &peak));
    lk_status status = take_peak(out, &peak);
    lki_free(peak.values);
    return status;
}

lk_status lki_step_ops_measure(lki_step_ops *out, lk_step *step, double seconds)
{
    return lki_step_ops_measure_with(out, step, seconds, &(lki_roofline){.engine = step->engine});
}

lk_status lki_step_ops_measure_with(lki_step_ops *out, lk_step *step, double seconds, lki_roofline *roofline)
{
    *out = (lki_step_ops){0};
    bool allow_nan = step->options.allow_nan;
    step->options.allow_nan = true; /* the same batch over and over need not train well */
    lk_status status = step->backend->ops->on_host ? measure_times(out, step, seconds, roofline) : LK_OK;
    step->options.allow_nan = allow_nan;
    if (status == LK_OK) status = measure_memory(out, step);
    if (status) lki_step_ops_fini(out);
    return status;
}

void lki_step_ops_fini(lki_step_ops *ops)
{
    for (int i = 0; i < ops->time_count; i++) lki_free(ops->times[i].layer);
    for (int i = 0; i < ops->memory_count; i++) lki_free(ops->memory[i].largest_layer);
    lki_free(ops->times);
    lki_free(ops->memory);
    lki_free(ops->peak_layer);
    *ops = (lki_step_ops){0};
}
