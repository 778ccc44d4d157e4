#include "engine/ref/ref.h"

#include "base/status.h"
#include "engine/engines.h"
#include "tensor/buffer.h"

#include <string.h>

/* Every op but the leaves and views, which have nothing to compute. */
static const lk_kernel kernels[LK_OP_COUNT] = {
    [LK_OP_FULL] = lki_ref_full,
    [LK_OP_ADD] = lki_ref_elementwise,
    [LK_OP_SUB] = lki_ref_elementwise,
    [LK_OP_MUL] = lki_ref_elementwise,
    [LK_OP_DIV] = lki_ref_elementwise,
    [LK_OP_POW] = lki_ref_elementwise,
    [LK_OP_MAXIMUM] = lki_ref_elementwise,
    [LK_OP_MINIMUM] = lki_ref_elementwise,
    [LK_OP_GREATER] = lki_ref_elementwise,
    [LK_OP_GREATER_EQUAL] = lki_ref_elementwise,
    [LK_OP_EQUAL] = lki_ref_elementwise,
    [LK_OP_WHERE] = lki_ref_elementwise,
    [LK_OP_NEG] = lki_ref_elementwise,
    [LK_OP_ABS] = lki_ref_elementwise,
    [LK_OP_SIGN] = lki_ref_elementwise,
    [LK_OP_EXP] = lki_ref_elementwise,
    [LK_OP_LOG] = lki_ref_elementwise,
    [LK_OP_SQRT] = lki_ref_elementwise,
    [LK_OP_SIN] = lki_ref_elementwise,
    [LK_OP_COS] = lki_ref_elementwise,
    [LK_OP_ERF] = lki_ref_elementwise,
    [LK_OP_TANH] = lki_ref_elementwise,
    [LK_OP_SIGMOID] = lki_ref_elementwise,
    [LK_OP_RELU] = lki_ref_elementwise,
    [LK_OP_LEAKY_RELU] = lki_ref_elementwise,
    [LK_OP_ELU] = lki_ref_elementwise,
    [LK_OP_GELU] = lki_ref_elementwise,
    [LK_OP_SILU] = lki_ref_elementwise,
    [LK_OP_SOFTPLUS] = lki_ref_elementwise,
    [LK_OP_CLAMP] = lki_ref_elementwise,
    [LK_OP_ADD_SCALAR] = lki_ref_elementwise,
    [LK_OP_MUL_SCALAR] = lki_ref_elementwise,
    [LK_OP_POW_SCALAR] = lki_ref_elementwise,
    [LK_OP_CAST] = lki_ref_cast,
    [LK_OP_COPY] = lki_ref_copy,
    [LK_OP_TANH_GRAD] = lki_ref_elementwise,
    [LK_OP_SIGMOID_GRAD] = lki_ref_elementwise,
    [LK_OP_RELU_GRAD] = lki_ref_elementwise,
    [LK_OP_LEAKY_RELU_GRAD] = lki_ref_elementwise,
    [LK_OP_ELU_GRAD] = lki_ref_elementwise,
    [LK_OP_GELU_GRAD] = lki_ref_elementwise,
    [LK_OP_SILU_GRAD] = lki_ref_elementwise,
    [LK_OP_SOFTPLUS_GRAD] = lki_ref_elementwise,
    [LK_OP_CLAMP_GRAD] = lki_ref_elementwise,
    [LK_OP_FUSED] = lki_ref_fused,
    [LK_OP_SUM] = lki_ref_sum,
    [LK_OP_MEAN] = lki_ref_mean,
    [LK_OP_MAX] = lki_ref_max,
    [LK_OP_VAR] = lki_ref_var,
    [LK_OP_MAX_GRAD] = lki_ref_max_grad,
    [LK_OP_ARGMAX] = lki_ref_argmax,
    [LK_OP_EXPAND] = lki_ref_expand,
    [LK_OP_SOFTMAX] = lki_ref_softmax,
    [LK_OP_LOG_SOFTMAX] = lki_ref_log_softmax,
    [LK_OP_SOFTMAX_GRAD] = lki_ref_softmax_grad,
    [LK_OP_LOG_SOFTMAX_GRAD] = lki_ref_log_softmax_grad,
    [LK_OP_PERMUTE] = lki_ref_permute,
    [LK_OP_SLICE] = lki_ref_slice,
    [LK_OP_SLICE_GRAD] = lki_ref_slice_grad,
    [LK_OP_CONCAT] = lki_ref_concat,
    [LK_OP_PAD] = lki_ref_pad,
    [LK_OP_PAD_GRAD] = lki_ref_pad_grad,
    [LK_OP_GATHER] = lki_ref_gather,
    [LK_OP_GATHER_GRAD] = lki_ref_gather_grad,
    [LK_OP_EMBEDDING] = lki_ref_embedding,
    [LK_OP_EMBEDDING_GRAD] = lki_ref_embedding_grad,
    [LK_OP_MATMUL] = lki_ref_matmul,
    [LK_OP_LINEAR] = lki_ref_linear,
    [LK_OP_LINEAR_GRAD] = lki_ref_linear_grad,
    [LK_OP_CONV] = lki_ref_conv,
    [LK_OP_CONV_GRAD_INPUT] = lki_ref_conv_grad_input,
    [LK_OP_CONV_GRAD_WEIGHT] = lki_ref_conv_grad_weight,
    [LK_OP_CONV_TRANSPOSE] = lki_ref_conv_transpose,
    [LK_OP_MAX_POOL] = lki_ref_max_pool,
    [LK_OP_MAX_POOL_GRAD] = lki_ref_max_pool_grad,
    [LK_OP_AVG_POOL] = lki_ref_avg_pool,
    [LK_OP_AVG_POOL_GRAD] = lki_ref_avg_pool_grad,
    [LK_OP_ADAPTIVE_AVG_POOL] = lki_ref_adaptive_avg_pool,
    [LK_OP_ADAPTIVE_AVG_POOL_GRAD] = lki_ref_adaptive_avg_pool_grad,
    [LK_OP_UPSAMPLE] = lki_ref_upsample,
    [LK_OP_UPSAMPLE_GRAD] = lki_ref_upsample_grad,
    [LK_OP_BATCH_NORM] = lki_ref_batch_norm,
    [LK_OP_BATCH_NORM_GRAD] = lki_ref_batch_norm_grad,
    [LK_OP_BATCH_NORM_RELU] = lki_ref_batch_norm,
    [LK_OP_BATCH_NORM_RELU_GRAD] = lki_ref_batch_norm_grad,
    [LK_OP_LAYER_NORM] = lki_ref_layer_norm,
    [LK_OP_LAYER_NORM_GRAD] = lki_ref_layer_norm_grad,
    [LK_OP_GROUP_NORM] = lki_ref_group_norm,
    [LK_OP_GROUP_NORM_GRAD] = lki_ref_group_norm_grad,
    [LK_OP_DROPOUT] = lki_ref_dropout,
    [LK_OP_DROPOUT_GRAD] = lki_ref_dropout_grad,
    [LK_OP_RECURRENT] = lki_ref_recurrent,
    [LK_OP_RECURRENT_GRAD] = lki_ref_recurrent_grad,
    [LK_OP_RECURRENT_GRAD_WEIGHT] = lki_ref_recurrent_grad_weight,
    [LK_OP_CROSS_ENTROPY] = lki_ref_cross_entropy,
    [LK_OP_CROSS_ENTROPY_GRAD] = lki_ref_cross_entropy_grad,
    [LK_OP_NLL] = lki_ref_nll,
    [LK_OP_NLL_GRAD] = lki_ref_nll_grad,
    [LK_OP_POINTWISE_LOSS] = lki_ref_pointwise_loss,
    [LK_OP_POINTWISE_LOSS_GRAD] = lki_ref_pointwise_loss_grad,
    [LK_OP_POINTWISE_LOSS_WITH_GRAD] = lki_ref_pointwise_loss,
    [LK_OP_ATTENTION] = lki_ref_attention,
    [LK_OP_ATTENTION_GRAD] = lki_ref_attention_grad,
    [LK_OP_FLOOR] = lki_ref_elementwise,
    [LK_OP_CEIL] = lki_ref_elementwise,
    [LK_OP_ROUND] = lki_ref_elementwise,
    [LK_OP_CUMSUM] = lki_ref_cumsum,
    [LK_OP_CUMPROD] = lki_ref_cumprod,
    [LK_OP_CUMPROD_GRAD] = lki_ref_cumprod_grad,
    [LK_OP_SORT] = lki_ref_sort,
    [LK_OP_SCATTER] = lki_ref_scatter,
    [LK_OP_SCATTER_ADD] = lki_ref_scatter,
    [LK_OP_SLICES_GRAD] = lki_ref_slices_grad,
    [LK_OP_RANDOM] = lki_ref_random,
    [LK_OP_REORDER] = lki_ref_copy,
    [LK_OP_UPDATE] = lki_ref_update,
    [LK_OP_CLIP_NORM] = lki_ref_clip_norm,
    [LK_OP_CLIP_VALUE] = lki_ref_clip_value,
    [LK_OP_ACCUMULATE] = lki_ref_accumulate,
    [LK_OP_UNSCALE] = lki_ref_unscale,
};

static lk_status open_ref(void **state, const lk_engine_options *options)
{
    (void)options;
    *state = NULL;
    return LK_OK;
}

static void close_ref(void *state)
{
    (void)state;
}

/* Ops that add to their result element by element, and would round each sum of a short dtype. */
static bool adds_up(lk_op op)
{
    switch (op) {
    case LK_OP_PAD_GRAD:
    case LK_OP_SCATTER_ADD:
    case LK_OP_SLICES_GRAD:
    case LK_OP_EMBEDDING_GRAD:
    case LK_OP_GATHER_GRAD:
    case LK_OP_MAX_POOL_GRAD:
    case LK_OP_AVG_POOL_GRAD:
    case LK_OP_ADAPTIVE_AVG_POOL_GRAD:
    case LK_OP_UPSAMPLE_GRAD: return true;
    default: return false;
    }
}

/* Such an op into doubles, rounded once. */
static lk_status run_wide(const lk_call *call)
{
    lk_call wide = *call;
    if (!call->out[0].data) return LK_OK;
    wide.out[0].dtype = LK_F64;
    wide.out[0].data = call->scratch;
    LKI_TRY(kernels[call->op](&wide));
    int64_t count = lk_tensor_count(&call->out[0]);
    for (int64_t i = 0; i < count; i++) lki_ref_set(&call->out[0], i, lki_ref_get(&wide.out[0], i));
    return LK_OK;
}

static lk_status prepare(lk_engine *engine, lk_call *call)
{
    (void)engine;
    if (!kernels[call->op])
        return lki_fail(LK_ERR_UNSUPPORTED, "the ref engine has no kernel for %s", lk_op_name(call->op));
    call->run = kernels[call->op];
    if (lk_op_family_of(call->op) == LK_FAMILY_RECURRENT)
        call->scratch_nbytes = lki_ref_recurrent_scratch(call);
    if (lk_op_family_of(call->op) == LK_FAMILY_ATTENTION)
        call->scratch_nbytes = lki_ref_attention_scratch(call);
    bool is_short = call->output_count && (call->out[0].dtype == LK_BF16 || call->out[0].dtype == LK_F16);
    if (!is_short || !adds_up(call->op)) return LK_OK;
    call->scratch_nbytes = (size_t)lk_tensor_count(&call->out[0]) * sizeof(double);
    call->run = run_wide;
    return LK_OK;
}

static bool joins_attention(const lk_engine *engine, lk_dtype precision)
{
    (void)engine, (void)precision;
    return true;
}

const lk_engine_ops lki_ref_engine_ops = {
    LK_SIZE(lk_engine_ops),
    .name = "ref",
    .open = open_ref,
    .close = close_ref,
    .prepare = prepare,
    .keeps_low = true,
    .joins_attention = joins_attention,
};

void lki_ref_fill(const lk_tensor *tensor, double value)
{
    int64_t count = lk_tensor_count(tensor);
    for (int64_t i = 0; i < count; i++) lki_ref_set(tensor, i, value);
}

lk_tensor lki_ref_broadcast(const lk_tensor *tensor, lk_shape shape)
{
    lk_tensor dense = *tensor;
    lki_tensor_set_contiguous(&dense);
    lk_tensor view = dense;
    view.shape = shape;
    int added = shape.rank - dense.shape.rank;
    for (int i = 0; i < shape.rank; i++) {
        bool repeats = i < added || dense.shape.dim[i - added] == 1;
        view.stride[i] = repeats ? 0 : dense.stride[i - added];
    }
    return view;
}

int64_t lki_ref_offset(const lk_tensor *view, int64_t index)
{
    int64_t offset = 0;
    for (int i = view->shape.rank - 1; i >= 0; i--) {
        offset += index % view->shape.dim[i] * view->stride[i];
        index /= view->shape.dim[i];
    }
    return offset;
}

void lki_ref_move(const lk_tensor *to, int64_t to_offset, const lk_tensor *from, int64_t from_offset)
{
    int64_t nbytes = (int64_t)lk_dtype_nbytes(to->dtype);
    memmove((char *)to->data + to_offset * nbytes, (const char *)from->data + from_offset * nbytes,
            (size_t)nbytes);
}
