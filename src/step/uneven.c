#include "step/uneven.h"

#include "base/status.h"
#include "graph/record_util.h"
#include "step/sample_losses.h"
#include "step/step.h"
#include "tensor/element.h"

#include <math.h>
#include <string.h>

bool lki_step_is_uneven(const lk_step *step)
{
    const lk_comm *comm = step->options.comm;
    return step->options.uneven_batches && comm && comm->size > 1;
}

lk_status lki_uneven_check(const lk_step_options *options)
{
    if (!options->uneven_batches || !options->sync_batch_norm) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "a step with uneven_batches has no sync_batch_norm: common statistics need "
                    "batches of one size");
}

static const lk_tensor *find(const lk_input *fields, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(fields[i].name, name) == 0) return fields[i].tensor;
    return NULL;
}

static lk_status sum_weights(const lk_step *step, const lk_tensor *weights, int64_t row_count, double *sum)
{
    const char *name = step->options.weight_key;
    *sum = 0;
    if (weights->shape.rank != 1 || weights->shape.dim[0] != row_count)
        return lki_fail(LK_ERR_SHAPE,
                        "field \"%s\": expected a weight for each of the %lld rows, found shape %s", name,
                        (long long)row_count, LKI_SHOW(weights->shape));
    if (!lk_dtype_is_float(weights->dtype))
        return lki_fail(LK_ERR_DTYPE, "field \"%s\": weights are floats, not %s", name,
                        lk_dtype_name(weights->dtype));
    if (row_count > 0 && !weights->data)
        return lki_fail(LK_ERR_INVALID, "field \"%s\": weights cannot be rows of something larger", name);
    for (int64_t i = 0; i < row_count; i++) {
        double weight = lki_load(weights->dtype, weights->data, i);
        if (!(weight >= 0) || !isfinite(weight))
            return lki_fail(LK_ERR_RANGE,
                            "field \"%s\": weight %lld is %g: weights are at least 0 and finite", name,
                            (long long)i, weight);
        *sum += weight;
    }
    return LK_OK;
}

lk_status lki_uneven_begin(lk_step *step, const lk_input *fields, int count, bool training)
{
    lki_uneven *uneven = &step->uneven;
    const char *key = step->options.weight_key;
    *uneven = (lki_uneven){.scale = 1};
    if (!key && !step->options.uneven_batches) return LK_OK;
    const lk_tensor *weights = key ? find(fields, count, key) : NULL;
    if (fields[0].tensor->shape.rank < 1)
        return lki_fail(LK_ERR_SHAPE, "field \"%s\" has no rows to count", fields[0].name);
    int64_t row_count = fields[0].tensor->shape.dim[0];
    if (key && !weights && training)
        return lki_fail(LK_ERR_NOT_FOUND, "the batch has no field \"%s\" of weights", key);
    uneven->weight = (double)row_count;
    if (weights) LKI_TRY(sum_weights(step, weights, row_count, &uneven->weight));
    uneven->is_empty = training && lki_step_is_uneven(step) && uneven->weight == 0;
    if (uneven->weight == 0 && !uneven->is_empty && weights)
        return lki_fail(LK_ERR_INVALID, "field \"%s\": all weights of the batch are 0", key);
    return LK_OK;
}

void lki_uneven_stand_in(const lk_input *fields, int count, lk_tensor *tensors, lk_input *out)
{
    for (int i = 0; i < count; i++) {
        tensors[i] = *fields[i].tensor;
        if (tensors[i].shape.rank > 0) tensors[i].shape.dim[0] = 2;
        out[i] = (lk_input){fields[i].name, &tensors[i]};
    }
}

lk_status lki_uneven_exchange(lk_step *step)
{
    if (!lki_step_is_uneven(step) || !step->current->training) return LK_OK;
    lki_uneven *uneven = &step->uneven;
    lk_comm *comm = step->options.comm;
    double sums[2] = {uneven->is_empty ? 0 : uneven->weight * step->loss, uneven->weight};
    LKI_TRY(lk_comm_all_reduce(comm, sums, 2, LK_F64, LK_REDUCE_SUM));
    if (sums[1] == 0) return lki_fail(LK_ERR_INVALID, "no rank has a row in this batch");
    uneven->scale = uneven->weight * comm->size / sums[1];
    bool is_own = !uneven->is_empty && !isfinite(step->loss);
    if (!isfinite(sums[0]) && !is_own && !step->options.allow_nan)
        return lki_fail(LK_ERR_NAN, "the loss of another rank is not finite: that rank names the layer");
    if (!is_own || step->options.allow_nan) step->loss = sums[0] / sums[1];
    return LK_OK;
}

/* One that is not finite times 0 would spoil those of the others, so a rank without rows stores zeros. */
static void scale_values(void *data, lk_dtype dtype, int64_t count, double factor, bool clears)
{
    if (clears) {
        memset(data, 0, (size_t)count * lk_dtype_nbytes(dtype));
    } else if (dtype == LK_F64) {
        for (int64_t i = 0; i < count; i++) ((double *)data)[i] *= factor;
    } else {
        for (int64_t i = 0; i < count; i++) ((float *)data)[i] *= (float)factor;
    }
}

lk_status lki_uneven_scale(lk_step *step)
{
    lki_flat *flat = &step->flat;
    if (!lki_step_is_uneven(step) || !flat->grads) return LK_OK;
    void *grads = lki_buffer_data(flat->grads);
    LKI_TRY(lki_backend_pull_block(step->backend, grads));
    scale_values(grads, flat->dtype, flat->count, step->uneven.scale, step->uneven.is_empty);
    return lki_backend_push_block(step->backend, grads);
}

/* The first dimension stays; the others become one number, the mean or the sum. */
static lk_value *reduce_rows(lk_value *losses, int64_t row_count, bool sums)
{
    const int axis = 1;
    lk_shape shape = lk_value_shape(losses);
    if (shape.rank == 1) return losses;
    lk_value *flat = lk_op_reshape(losses, LK_SHAPE(row_count, lk_shape_count(shape) / row_count));
    return sums ? lk_op_sum(flat, &axis, 1, false) : lk_op_mean(flat, &axis, 1, false);
}

lk_value *lki_weigh_rows(lk_graph *graph, lk_value *loss, lk_value *weights, int64_t row_count)
{
    const int axis = 0;
    bool sums = false;
    lk_value *losses = lki_record_each_loss(graph, loss, row_count, &sums);
    if (!losses) return NULL;
    lk_value *each = reduce_rows(losses, row_count, sums);
    if (each && weights->dtype != each->dtype) weights = lk_op_cast(weights, each->dtype);
    return lk_op_div(lk_op_sum(lk_op_mul(each, weights), &axis, 1, false),
                     lk_op_sum(weights, &axis, 1, false));
}
