#include "step/loss_scaler.h"

#include "base/arguments.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "tensor/element.h"

#include <math.h>

static lk_status complete(lk_scaler_options *options)
{
    options->init_scale = lki_number_or(options->init_scale, 65536);
    options->growth_factor = lki_number_or(options->growth_factor, 2);
    options->backoff_factor = lki_number_or(options->backoff_factor, 0.5);
    if (options->growth_interval == 0) options->growth_interval = 2000;
    if (!(options->init_scale > 0) || !isfinite((float)options->init_scale))
        return lki_fail(LK_ERR_INVALID, "init_scale: expected a number above 0 that fits f32, found %g",
                        options->init_scale);
    if (!(options->growth_factor > 1) || !isfinite(options->growth_factor))
        return lki_fail(LK_ERR_INVALID, "growth_factor: expected a number above 1, found %g",
                        options->growth_factor);
    if (!(options->backoff_factor > 0) || options->backoff_factor >= 1)
        return lki_fail(LK_ERR_INVALID, "backoff_factor: expected a number between 0 and 1, found %g",
                        options->backoff_factor);
    if (options->growth_interval < 1)
        return lki_fail(LK_ERR_INVALID, "growth_interval: expected at least 1, found %lld",
                        (long long)options->growth_interval);
    return LK_OK;
}

lk_status lki_scaler_init(lki_scaler *scaler, lk_dtype dtype, lk_scaler_options options)
{
    LKI_TRY(complete(&options));
    *scaler = (lki_scaler){.dtype = dtype, .options = options};
    scaler->numbers = lki_buffer_create(LK_SCALER_COUNT * lk_dtype_nbytes(dtype), "the loss scale");
    if (!scaler->numbers) return LK_ERR_NOMEM;
    lk_tensor *first = lki_tensor_over(scaler->numbers, 0, dtype, lk_scalar_shape());
    scaler->scale = lk_param_create("loss_scale", first, false);
    if (!scaler->scale) {
        lki_scaler_fini(scaler);
        return LK_ERR_NOMEM;
    }
    lki_scaler_set(scaler, LK_SCALER_SCALE, options.init_scale);
    return LK_OK;
}

void lki_scaler_fini(lki_scaler *scaler)
{
    lk_param_free(scaler->scale);
    lki_buffer_release(scaler->numbers);
    *scaler = (lki_scaler){0};
}

lk_status lki_scaler_seed(const lki_scaler *scaler, lk_graph *graph, const lk_value *loss)
{
    if (!scaler->numbers || !loss) return LK_OK;
    lk_value *seed = lk_graph_param(graph, scaler->scale);
    if (seed && seed->dtype != loss->dtype)
        seed = LKI_EMIT(LK_OP_CAST, LKI_ATTR(.cast.dtype = loss->dtype), seed);
    graph->seed = lki_reshaped(seed, loss->shape);
    return graph->seed ? LK_OK : graph->status;
}

double lki_scaler_get(const lki_scaler *scaler, lk_scaler_field field)
{
    return lki_load(scaler->dtype, lki_buffer_data(scaler->numbers), field);
}

void lki_scaler_set(lki_scaler *scaler, lk_scaler_field field, double value)
{
    lki_store(scaler->dtype, lki_buffer_data(scaler->numbers), field, value);
}
