/* What the kernels of the reference engine share: reading and writing elements, and walking shapes.
 *
 * Every kernel loads elements as doubles, computes in double, and stores in the dtype of its output, so one
 * source serves every float dtype and an f64 run is an oracle for the rest. Clarity comes first and speed
 * does not matter. Kernels keep no state and allocate nothing; they may be called from any thread. */
#ifndef LKI_ENGINE_REF_REF_H
#define LKI_ENGINE_REF_REF_H

#include <lockstep/sys/engine.h>

#include "tensor/element.h"

/* One file a family; the name of the file is the first word after lki_ref_, or the op's family. */
lk_status lki_ref_full(const lk_call *call);
lk_status lki_ref_copy(const lk_call *call);
lk_status lki_ref_cast(const lk_call *call);
lk_status lki_ref_elementwise(const lk_call *call);
lk_status lki_ref_fused(const lk_call *call);
lk_status lki_ref_sum(const lk_call *call);
lk_status lki_ref_mean(const lk_call *call);
lk_status lki_ref_max(const lk_call *call);
lk_status lki_ref_var(const lk_call *call);
lk_status lki_ref_max_grad(const lk_call *call);
lk_status lki_ref_argmax(const lk_call *call);
lk_status lki_ref_softmax(const lk_call *call);
lk_status lki_ref_log_softmax(const lk_call *call);
lk_status lki_ref_softmax_grad(const lk_call *call);
lk_status lki_ref_log_softmax_grad(const lk_call *call);
lk_status lki_ref_expand(const lk_call *call);
lk_status lki_ref_permute(const lk_call *call);
lk_status lki_ref_slice(const lk_call *call);
lk_status lki_ref_slice_grad(const lk_call *call);
lk_status lki_ref_concat(const lk_call *call);
lk_status lki_ref_pad(const lk_call *call);
lk_status lki_ref_pad_grad(const lk_call *call);
lk_status lki_ref_gather(const lk_call *call);
lk_status lki_ref_gather_grad(const lk_call *call);
lk_status lki_ref_embedding(const lk_call *call);
lk_status lki_ref_embedding_grad(const lk_call *call);
lk_status lki_ref_matmul(const lk_call *call);
lk_status lki_ref_linear(const lk_call *call);
lk_status lki_ref_linear_grad(const lk_call *call);
lk_status lki_ref_conv(const lk_call *call);
lk_status lki_ref_conv_grad_input(const lk_call *call);
lk_status lki_ref_conv_grad_weight(const lk_call *call);
lk_status lki_ref_conv_transpose(const lk_call *call);
lk_status lki_ref_max_pool(const lk_call *call);
lk_status lki_ref_max_pool_grad(const lk_call *call);
lk_status lki_ref_avg_pool(const lk_call *call);
lk_status lki_ref_avg_pool_grad(const lk_call *call);
lk_status lki_ref_adaptive_avg_pool(const lk_call *call);
lk_status lki_ref_adaptive_avg_pool_grad(const lk_call *call);
lk_status lki_ref_upsample(const lk_call *call);
lk_status lki_ref_upsample_grad(const lk_call *call);
lk_status lki_ref_batch_norm(const lk_call *call);
lk_status lki_ref_batch_norm_grad(const lk_call *call);
lk_status lki_ref_layer_norm(const lk_call *call);
lk_status lki_ref_layer_norm_grad(const lk_call *call);
lk_status lki_ref_group_norm(const lk_call *call);
lk_status lki_ref_group_norm_grad(const lk_call *call);
lk_status lki_ref_dropout(const lk_call *call);
lk_status lki_ref_dropout_grad(const lk_call *call);
size_t lki_ref_recurrent_scratch(const lk_call *call);
/* LK_ERR_RANGE for a length outside of 0..steps; `lengths` may be NULL. */
lk_status lki_ref_check_lengths(const lk_tensor *lengths, int64_t steps);
lk_status lki_ref_recurrent(const lk_call *call);
lk_status lki_ref_recurrent_grad(const lk_call *call);
lk_status lki_ref_recurrent_grad_weight(const lk_call *call);
size_t lki_ref_attention_scratch(const lk_call *call);
lk_status lki_ref_attention(const lk_call *call);
lk_status lki_ref_attention_grad(const lk_call *call);
lk_status lki_ref_cross_entropy(const lk_call *call);
lk_status lki_ref_cross_entropy_grad(const lk_call *call);
lk_status lki_ref_nll(const lk_call *call);
lk_status lki_ref_nll_grad(const lk_call *call);
lk_status lki_ref_pointwise_loss(const lk_call *call);
lk_status lki_ref_pointwise_loss_grad(const lk_call *call);
lk_status lki_ref_cumsum(const lk_call *call);
lk_status lki_ref_cumprod(const lk_call *call);
lk_status lki_ref_cumprod_grad(const lk_call *call);
lk_status lki_ref_sort(const lk_call *call);
lk_status lki_ref_scatter(const lk_call *call);
lk_status lki_ref_slices_grad(const lk_call *call);
lk_status lki_ref_random(const lk_call *call);
lk_status lki_ref_update(const lk_call *call);
lk_status lki_ref_clip_norm(const lk_call *call);
lk_status lki_ref_clip_value(const lk_call *call);
lk_status lki_ref_accumulate(const lk_call *call);
lk_status lki_ref_unscale(const lk_call *call);

/* One elementwise op of up to three numbers. */
double lki_ref_scalar(lk_op op, const lk_scalar_attr *attr, double a, double b, double c);

/* Element `index` of a contiguous tensor. */
static inline double lki_ref_get(const lk_tensor *tensor, int64_t index)
{
    return lki_load(tensor->dtype, tensor->data, index);
}

static inline void lki_ref_set(const lk_tensor *tensor, int64_t index, double value)
{
    lki_store(tensor->dtype, tensor->data, index, value);
}

static inline void lki_ref_add(const lk_tensor *tensor, int64_t index, double value)
{
    lki_ref_set(tensor, index, lki_ref_get(tensor, index) + value);
}

static inline int64_t lki_ref_get_i64(const lk_tensor *tensor, int64_t index)
{
    return tensor->dtype == LK_I64 ? ((const int64_t *)tensor->data)[index]
                                   : (int64_t)lki_ref_get(tensor, index);
}

/* Input `index`, or NULL where the call leaves it out; output `index`, or NULL where nobody wants it. */
static inline const lk_tensor *lki_ref_in(const lk_call *call, int index)
{
    return index < call->input_count && call->in[index].data ? &call->in[index] : NULL;
}

static inline const lk_tensor *lki_ref_out(const lk_call *call, int index)
{
    return index < call->output_count && call->out[index].data ? &call->out[index] : NULL;
}

/* The product of the dimensions from `begin` to before `end`. */
static inline int64_t lki_ref_span(lk_shape shape, int begin, int end)
{
    int64_t count = 1;
    for (int i = begin; i < end; i++) count *= shape.dim[i];
    return count;
}

void lki_ref_fill(const lk_tensor *tensor, double value);

/* `tensor` as it looks when broadcast to `shape`: axes are aligned at the last, and one of size 1 gets stride
 * 0. */
lk_tensor lki_ref_broadcast(const lk_tensor *tensor, lk_shape shape);

/* Where the element with flat index `index` of a strided view lies, in elements from view->data. */
int64_t lki_ref_offset(const lk_tensor *view, int64_t index);

/* Copies one element between tensors of the same dtype, bit for bit: an i64 need not fit in a double. */
void lki_ref_move(const lk_tensor *to, int64_t to_offset, const lk_tensor *from, int64_t from_offset);

#endif
