/* Which family of kernels an op belongs to. */
#include "engine/cuda/cuda.cuh"

static lki_cuda_prepare family_of(lk_op op, unsigned flags)
{
    switch (op) {
    case LK_OP_FULL:
    case LK_OP_EXPAND: return lki_cuda_prepare_elementwise;
    case LK_OP_REORDER: return lki_cuda_prepare_reorder;
    case LK_OP_SUM:
    case LK_OP_MEAN:
    case LK_OP_MAX:
    case LK_OP_VAR:
    case LK_OP_MAX_GRAD:
    case LK_OP_ARGMAX: return lki_cuda_prepare_reduce;
    case LK_OP_SOFTMAX:
    case LK_OP_LOG_SOFTMAX:
    case LK_OP_SOFTMAX_GRAD:
    case LK_OP_LOG_SOFTMAX_GRAD: return lki_cuda_prepare_softmax;
    case LK_OP_PERMUTE:
    case LK_OP_SLICE:
    case LK_OP_SLICE_GRAD:
    case LK_OP_SLICES_GRAD:
    case LK_OP_CONCAT:
    case LK_OP_PAD:
    case LK_OP_PAD_GRAD: return lki_cuda_prepare_movement;
    case LK_OP_GATHER:
    case LK_OP_GATHER_GRAD:
    case LK_OP_SCATTER:
    case LK_OP_SCATTER_ADD:
    case LK_OP_EMBEDDING:
    case LK_OP_EMBEDDING_GRAD: return lki_cuda_prepare_index;
    case LK_OP_MATMUL:
    case LK_OP_LINEAR:
    case LK_OP_LINEAR_GRAD: return lki_cuda_prepare_product;
    case LK_OP_CONV:
    case LK_OP_CONV_GRAD_INPUT:
    case LK_OP_CONV_GRAD_WEIGHT:
    case LK_OP_CONV_TRANSPOSE: return lki_cuda_prepare_conv;
    case LK_OP_MAX_POOL:
    case LK_OP_MAX_POOL_GRAD:
    case LK_OP_AVG_POOL:
    case LK_OP_AVG_POOL_GRAD:
    case LK_OP_ADAPTIVE_AVG_POOL:
    case LK_OP_ADAPTIVE_AVG_POOL_GRAD: return lki_cuda_prepare_pool;
    case LK_OP_UPSAMPLE:
    case LK_OP_UPSAMPLE_GRAD: return lki_cuda_prepare_upsample;
    case LK_OP_BATCH_NORM:
    case LK_OP_BATCH_NORM_GRAD:
    case LK_OP_BATCH_NORM_RELU:
    case LK_OP_BATCH_NORM_RELU_GRAD:
    case LK_OP_LAYER_NORM:
    case LK_OP_LAYER_NORM_GRAD:
    case LK_OP_GROUP_NORM:
    case LK_OP_GROUP_NORM_GRAD: return lki_cuda_prepare_norm;
    case LK_OP_CUMSUM:
    case LK_OP_CUMPROD:
    case LK_OP_CUMPROD_GRAD:
    case LK_OP_SORT: return lki_cuda_prepare_scan;
    case LK_OP_RANDOM:
    case LK_OP_DROPOUT:
    case LK_OP_DROPOUT_GRAD: return lki_cuda_prepare_dropout;
    case LK_OP_RECURRENT:
    case LK_OP_RECURRENT_GRAD:
    case LK_OP_RECURRENT_GRAD_WEIGHT: return lki_cuda_prepare_recurrent;
    case LK_OP_ATTENTION:
    case LK_OP_ATTENTION_GRAD: return lki_cuda_prepare_attention;
    case LK_OP_CROSS_ENTROPY:
    case LK_OP_CROSS_ENTROPY_GRAD:
    case LK_OP_NLL:
    case LK_OP_NLL_GRAD:
    case LK_OP_POINTWISE_LOSS:
    case LK_OP_POINTWISE_LOSS_GRAD:
    case LK_OP_POINTWISE_LOSS_WITH_GRAD: return lki_cuda_prepare_loss;
    case LK_OP_UPDATE:
    case LK_OP_CLIP_NORM:
    case LK_OP_CLIP_VALUE:
    case LK_OP_ACCUMULATE: return lki_cuda_prepare_update;
    case LK_OP_UNSCALE: return lki_cuda_prepare_unscale;
    case LK_OP_ALL_REDUCE:
    case LK_OP_REDUCE_START:
    case LK_OP_REDUCE_WAIT:
    case LK_OP_ASSIGN: return lki_cuda_prepare_ranks;
    default: return flags & LK_OP_IS_ELEMENTWISE ? lki_cuda_prepare_elementwise : NULL;
    }
}

lki_cuda_prepare lki_cuda_family(lk_op op)
{
    static const unsigned flags[] = {
#define X(symbol, name, output_count, family, flags) flags,
        LK_OP_LIST(X)
#undef X
    };
    return family_of(op, flags[op]);
}

lk_op_family lki_cuda_op_family(lk_op op)
{
    static const lk_op_family families[] = {
#define X(symbol, name, output_count, family, flags) LK_FAMILY_##family,
        LK_OP_LIST(X)
#undef X
    };
    return families[op];
}

const char *lki_cuda_op_name(lk_op op)
{
    static const char *const names[] = {
#define X(symbol, name, output_count, family, flags) name,
        LK_OP_LIST(X)
#undef X
    };
    return names[op];
}

/* A result or a bias is of the factors' dtype, or f32 beside short factors. */
static bool dtype_fits(const lk_tensor *tensor, lk_dtype dtype)
{
    bool is_short = dtype == LK_BF16 || dtype == LK_F16;
    return !tensor->data || tensor->dtype == dtype || (is_short && tensor->dtype == LK_F32);
}

lk_status lki_cuda_check_factors(const lk_call *call, const char *what)
{
    lk_dtype dtype = call->in[0].dtype;
    bool fits = dtype <= LK_F16 && call->in[1].dtype == dtype;
    for (int i = 2; i < call->input_count; i++) fits = fits && dtype_fits(&call->in[i], dtype);
    for (int i = 0; i < call->output_count; i++) fits = fits && dtype_fits(&call->out[i], dtype);
    if (fits) return LK_OK;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for a %s of %s and %s to %s",
                         what, lki_cuda_dtype_name(dtype), lki_cuda_dtype_name(call->in[1].dtype),
                         lki_cuda_dtype_name(call->out[0].dtype));
}
