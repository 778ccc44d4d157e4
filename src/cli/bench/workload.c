/* A workload measured from a step: its halves by the clock, and within the backward half when each gradient
 * is there, from the times of the plan's calls. */
#include "cli/bench/scaling.h"
#include "cli/bench/step_ops.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "step/step.h"

#include <math.h>
#include <stdio.h>

enum { LEAST_ROUNDS = 3 };

static void take_less(double *best_s, double *begin_s)
{
    double now_s = lki_now_s();
    *best_s = fmin(*best_s, now_s - *begin_s);
    *begin_s = now_s;
}

/* A device has only been asked for a half when its calls return: the clock waits until it is done. */
static lk_status end_half(lk_step *step, double *best_s, double *begin_s)
{
    lk_engine *engine = step->engine;
    LKI_TRY(lk_step_wait(step));
    if (engine->ops->synchronize) LKI_TRY(engine->ops->synchronize(engine, NULL));
    take_less(best_s, begin_s);
    return LK_OK;
}

/* The best of many: what the machine does when nobody disturbs it. */
static lk_status time_halves(lki_workload *w, lk_step *step, double seconds)
{
    double end_s = lki_now_s() + seconds;
    w->forward_s = w->backward_s = w->update_s = INFINITY;
    for (int round = 0; round < LEAST_ROUNDS || lki_now_s() < end_s; round++) {
        double begin_s = lki_now_s();
        LKI_TRY(lk_step_forward(step));
        LKI_TRY(lk_step_criterion(step));
        LKI_TRY(end_half(step, &w->forward_s, &begin_s));
        LKI_TRY(lk_step_backward(step));
        LKI_TRY(end_half(step, &w->backward_s, &begin_s));
        LKI_TRY(lk_step_update(step));
        LKI_TRY(end_half(step, &w->update_s, &begin_s));
    }
    return LK_OK;
}

/* As one recorded program the step is faster than its halves one by one, which then only say how it is
 * divided. */
static lk_status time_recorded(lki_workload *w, lk_step *step, double seconds)
{
    double end_s = lki_now_s() + seconds, best_s = INFINITY;
    for (int round = 0; round < LEAST_ROUNDS || lki_now_s() < end_s; round++) {
        double begin_s = lki_now_s();
        LKI_TRY(step->backend->ops->replay(step, true));
        LKI_TRY(end_half(step, &best_s, &begin_s));
    }
    lki_workload_scale(w, best_s);
    return LK_OK;
}

static bool writes_into(const lk_call *call, const char *begin, size_t nbytes)
{
    for (int i = 0; i < call->output_count; i++) {
        const char *out = call->out[i].data;
        if (out && out >= begin && out < begin + nbytes) return true;
    }
    return false;
}

/* On a device calls are not timed one by one: the last gradients first, evenly. */
static void spread_gradients(lki_workload *w)
{
    for (int i = 0; i < w->gradient_count; i++)
        w->gradients[i].ready_s = w->backward_s * (w->gradient_count - i) / w->gradient_count;
}

/* A gradient is ready after the last call that writes into its slice. The calls' shares are of the backward
 * half as it runs undivided. */
static void place_gradients(lki_workload *w, const lk_step *step, const double *best_s)
{
    const lki_plan *plan = step->current->plan;
    const lki_flat *flat = &step->flat;
    int first = lki_plan_section_begin(plan, LKI_SECTION_BACKWARD), end = lki_plan_call_count(plan);
    size_t element = lk_dtype_nbytes(flat->dtype);
    double whole_s = 0, at_s = 0;
    for (int c = first; c < end; c++) whole_s += best_s[c];
    for (int c = first; c < end; c++) {
        at_s += best_s[c];
        for (int i = 0; i < flat->slice_count; i++) {
            size_t nbytes = (size_t)flat->slices[i].count * element;
            const char *begin =
                (char *)lki_buffer_data(flat->grads) + (size_t)flat->slices[i].offset * element;
            if (writes_into(lki_plan_call(plan, c), begin, nbytes))
                w->gradients[i].ready_s = w->backward_s * at_s / whole_s;
        }
    }
}

/* The plan's calls are the first that a trace meets. */
static lk_status time_gradients(lki_workload *w, lk_step *step, double seconds)
{
    lki_trace *trace;
    double *best_s;
    LKI_TRY(lki_time_calls(step, seconds, &trace, &best_s));
    place_gradients(w, step, best_s);
    lki_free(best_s);
    lki_trace_free(trace);
    return LK_OK;
}

static lk_status measure(lki_workload *w, lk_step *step, double seconds)
{
    const lki_flat *flat = &step->flat;
    w->gradients = LKI_NEW_ARRAY(lki_gradient, flat->slice_count + 1);
    if (!w->gradients) return LK_ERR_NOMEM;
    w->gradient_count = flat->slice_count;
    w->batch_size = step->current->shapes[0].rank > 0 ? step->current->shapes[0].dim[0] : 1;
    for (int i = 0; i < flat->slice_count; i++) {
        w->gradients[i].nbytes = flat->slices[i].count * (int64_t)lk_dtype_nbytes(flat->dtype);
        w->parameter_count += flat->slices[i].count;
    }
    LKI_TRY(time_halves(w, step, 0.7 * seconds));
    if (!step->backend->ops->on_host) {
        spread_gradients(w);
        return lki_step_records(step) ? time_recorded(w, step, 0.3 * seconds) : LK_OK;
    }
    return time_gradients(w, step, 0.3 * seconds);
}

lk_status lki_workload_measure(lki_workload *out, lk_step *step, const char *name, double seconds)
{
    *out = (lki_workload){0};
    snprintf(out->name, sizeof out->name, "%s", name);
    if (!step->current || !step->current->training)
        return lki_fail(LK_ERR_INVALID, "%s: there is no training step to measure", name);
    if (step->replicas.comm) return lki_fail(LK_ERR_INVALID, "%s: a step is measured on one rank", name);
    bool allow_nan = step->options.allow_nan;
    step->options.allow_nan = true; /* the same batch over and over need not train well */
    lk_status status = measure(out, step, seconds);
    step->options.allow_nan = allow_nan;
    if (status) lki_workload_fini(out);
    return status;
}

void lki_workload_scale(lki_workload *w, double seconds)
{
    double factor = seconds / (w->forward_s + w->backward_s + w->update_s);
    w->forward_s *= factor;
    w->backward_s *= factor;
    w->update_s *= factor;
    for (int i = 0; i < w->gradient_count; i++) w->gradients[i].ready_s *= factor;
}

void lki_workload_fini(lki_workload *w)
{
    lki_free(w->gradients);
    w->gradients = NULL;
    w->gradient_count = 0;
}
