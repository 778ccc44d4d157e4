#include "step/flat.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/home.h"

enum { ALIGNMENT_NBYTES = 64 };

static int64_t rounded_up(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

bool lki_flat_has(const lki_flat *flat, const lk_param *param)
{
    for (int i = 0; i < flat->slice_count; i++)
        if (flat->slices[i].param == param) return true;
    return false;
}

static lk_status plan_slices(lki_flat *flat, const lk_param_list *params)
{
    flat->slices = LKI_NEW_ARRAY(lki_slice, params->count + 1);
    if (!flat->slices) return LK_ERR_NOMEM;
    for (int i = 0; i < params->count; i++) {
        lk_param *param = params->items[i].param;
        if (!lki_param_is_trained(param)) continue;
        if (flat->slice_count == 0) flat->dtype = param->value->dtype;
        if (param->value->dtype != flat->dtype)
            return lki_fail(LK_ERR_DTYPE, "parameter %s is %s, but %s is %s: one optimizer trains one dtype",
                            params->items[i].path, lk_dtype_name(param->value->dtype), flat->slices[0].path,
                            lk_dtype_name(flat->dtype));
        int64_t count = lk_tensor_count(param->value);
        flat->slices[flat->slice_count++] =
            (lki_slice){.param = param, .path = params->items[i].path, .offset = flat->count, .count = count};
        flat->count += rounded_up(count, ALIGNMENT_NBYTES / (int64_t)lk_dtype_nbytes(flat->dtype));
    }
    if (flat->slice_count == 0) return lki_fail(LK_ERR_INVALID, "the model has no trainable parameter");
    return LK_OK;
}

static void leave_window(void *data, void *window)
{
    (void)data;
    lk_comm_window_release(window);
}

static lk_buffer *in_window(lki_flat *flat, void *data, size_t nbytes)
{
    lk_buffer *buffer = lki_buffer_adopt(data, nbytes, leave_window, lk_comm_window_use(flat->window));
    if (!buffer) lk_comm_window_release(flat->window);
    return buffer;
}

static lk_buffer *new_state(lki_flat *flat, size_t nbytes)
{
    if (!flat->common_states) return lki_buffer_create(nbytes, "the optimizer's state");
    char *common = lk_comm_window_common(flat->window);
    return in_window(flat, common + (size_t)flat->state_count * nbytes, nbytes);
}

static lk_status allocate(lki_flat *flat, const lki_flat_options *options)
{
    size_t nbytes = (size_t)flat->count * lk_dtype_nbytes(flat->dtype);
    size_t common_nbytes = options->common_states ? (size_t)options->state_count * nbytes : 0;
    size_t own_nbytes = options->on_host ? 2 * nbytes : 0; /* whoever has no use for it spares all of them */
    if (options->comm) LKI_TRY(lk_comm_share(options->comm, own_nbytes, common_nbytes, &flat->window));
    if (flat->window) {
        char *block = lk_comm_window_block(flat->window, options->comm->rank);
        flat->common_states = options->common_states;
        flat->values = in_window(flat, block, nbytes);
        flat->grads = in_window(flat, block + nbytes, nbytes);
    } else {
        flat->values = lki_buffer_create(nbytes, "the parameters");
        flat->grads = lki_buffer_create(nbytes, "the gradients");
    }
    if (!flat->values || !flat->grads) return LK_ERR_NOMEM;
    if (options->with_sums && !(flat->sums = lki_buffer_create(nbytes, "the accumulated gradients")))
        return LK_ERR_NOMEM;
    for (; flat->state_count < options->state_count; flat->state_count++) {
        flat->states[flat->state_count] = new_state(flat, nbytes);
        if (!flat->states[flat->state_count]) return LK_ERR_NOMEM;
    }
    return LK_OK;
}

static lk_status move_param(lki_flat *flat, const lki_slice *slice)
{
    lk_param *param = slice->param;
    LKI_TRY(lki_param_leave(param));
    size_t offset = (size_t)slice->offset * lk_dtype_nbytes(flat->dtype);
    lk_tensor *value = lki_tensor_over(flat->values, offset, flat->dtype, param->value->shape);
    lk_tensor *grad = lki_tensor_over(flat->grads, offset, flat->dtype, param->value->shape);
    if (!value || !grad || lk_tensor_copy(value, param->value)) {
        lk_tensor_free(value);
        lk_tensor_free(grad);
        return LK_ERR_NOMEM;
    }
    lk_tensor_free(param->value);
    lk_tensor_free(param->grad);
    param->value = value;
    param->grad = grad;
    return LK_OK;
}

_Atomic uint64_t lki_flat_moves = 1; /* a fresh step has seen none: it looks once, whatever has moved */

void lki_flat_moved(void)
{
    lki_flat_moves++;
}

lk_status lki_flat_init(lki_flat *flat, const lk_param_list *params, lki_flat_options options)
{
    *flat = (lki_flat){0};
    lk_status status;
    LKI_TRY_OUT(plan_slices(flat, params));
    LKI_TRY_OUT(allocate(flat, &options));
    lki_flat_moved();
    for (int i = 0; i < flat->slice_count; i++) LKI_TRY_OUT(move_param(flat, &flat->slices[i]));
    return LK_OK;
out:
    lki_flat_fini(flat);
    return status;
}

/* The parameters keep their views: their memory lives on with them. */
void lki_flat_fini(lki_flat *flat)
{
    lki_buffer_release(flat->values);
    lki_buffer_release(flat->grads);
    lki_buffer_release(flat->sums);
    for (int i = 0; i < flat->state_count; i++) lki_buffer_release(flat->states[i]);
    lk_comm_window_release(flat->window);
    lki_free(flat->slices);
    *flat = (lki_flat){0};
}
