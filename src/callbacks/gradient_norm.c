/* The norm of all gradients of each update among the metrics. */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"
#include "callbacks/gradients.h"
#include "resume/metric_state.h"
#include "tensor/element.h"

#include <math.h>

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    LKI_TRY(lki_callback_declare_mean(runner, "grad_norm"));
    return lki_run_register_metric(runner, callback->context);
}

/* The gaps between the parameters of the flat buffer are zero. */
static lk_status backward(lk_callback *callback, lk_runner *runner)
{
    void *grads;
    double scale, square = 0;
    if (!runner->step || !runner->step->update_due) return LK_OK;
    LKI_TRY(lki_gradients(runner->step, &grads, &scale));
    if (!grads) return LK_OK;
    lk_dtype dtype = runner->step->flat.dtype;
    for (int64_t i = 0; i < runner->step->flat.count; i++) {
        double g = lki_load(dtype, grads, i);
        square += g * g;
    }
    double norm = sqrt(square) / scale;
    if (runner->step->scaler.numbers && !isfinite(norm)) return LK_OK; /* that update will be skipped */
    LKI_TRY(lk_metrics_set(runner->batch_metrics, "grad_norm", norm));
    return lk_metric_update_value(callback->context, norm, 1);
}

static lk_status report(lk_callback *callback, lk_runner *runner)
{
    if (!runner->is_train_loader) return LK_OK;
    return lki_metric_report(callback->context, runner->loader_metrics);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    return lki_metric_save(callback->context, state, prefix);
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    return lki_metric_restore(callback->context, state, prefix);
}

static void free_context(lk_callback *callback)
{
    lk_metric_free(callback->context);
}

lk_callback *lk_gradient_norm_callback(void)
{
    static const lk_callback_ops ops = {
        LK_SIZE(lk_callback_ops), .name = "GradientNorm",  .on_experiment_start = start,
        .on_backward = backward,  .on_loader_end = report, .save_state = save_state,
        .load_state = load_state, .free = free_context,
    };
    lk_metric *metric = lk_mean_metric("grad_norm");
    /* Behind the weight decay. */
    lk_callback *callback = metric ? lk_callback_create(&ops, metric, LK_ORDER_BACKWARD + 1) : NULL;
    if (!callback) lk_metric_free(metric);
    return callback;
}
