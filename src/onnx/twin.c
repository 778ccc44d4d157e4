/* Whether two nodes of the model's two recordings differ in nothing but the size of the batch. */
#include "onnx/builder.h"

#include <string.h>

static bool same_scalar(lk_op op, const lk_scalar_attr *a, const lk_scalar_attr *b)
{
    switch (op) {
    case LK_OP_GELU: return a->by_tanh == b->by_tanh;
    case LK_OP_SOFTPLUS:
        return a->softplus.beta == b->softplus.beta && a->softplus.threshold == b->softplus.threshold;
    case LK_OP_CLAMP: return a->clamp.min == b->clamp.min && a->clamp.max == b->clamp.max;
    case LK_OP_LEAKY_RELU: return a->slope == b->slope;
    case LK_OP_ELU: return a->alpha == b->alpha;
    case LK_OP_ADD_SCALAR:
    case LK_OP_MUL_SCALAR:
    case LK_OP_POW_SCALAR: return a->number == b->number;
    default: return true;
    }
}

static bool same_window(const lk_window *a, const lk_window *b)
{
    size_t nbytes = sizeof *a->kernel * (size_t)a->rank;
    return a->rank == b->rank && !memcmp(a->kernel, b->kernel, nbytes) &&
           !memcmp(a->stride, b->stride, nbytes) && !memcmp(a->padding, b->padding, nbytes) &&
           !memcmp(a->dilation, b->dilation, nbytes) &&
           !memcmp(a->output_padding, b->output_padding, nbytes) && a->groups == b->groups &&
           a->ceil_mode == b->ceil_mode && a->exclude_pad == b->exclude_pad && a->divisor == b->divisor;
}

static bool same_pad(const lk_pad_attr *a, const lk_pad_attr *b, int rank)
{
    size_t nbytes = sizeof *a->before * (size_t)rank;
    return a->mode == b->mode && a->value == b->value && !memcmp(a->before, b->before, nbytes) &&
           !memcmp(a->after, b->after, nbytes);
}

static bool same_upsample(const lk_upsample_attr *a, const lk_upsample_attr *b)
{
    return a->mode == b->mode && a->align_corners == b->align_corners &&
           !memcmp(a->scale, b->scale, sizeof *a->scale * (size_t)a->rank);
}

static bool same_norm(const lk_norm_attr *a, const lk_norm_attr *b)
{
    return a->eps == b->eps && a->training == b->training && a->axis_count == b->axis_count &&
           a->group_count == b->group_count;
}

/* Shapes may differ: they follow the batch. Slices are compared where they are translated. */
static bool same_attributes(const lki_node *node, const lki_node *twin)
{
    const lk_attr *a = &node->attr, *b = &twin->attr;
    int rank = node->out[0]->shape.rank;
    switch (lk_op_family_of(node->op)) {
    case LK_FAMILY_FILL: return a->fill.value == b->fill.value && a->fill.dtype == b->fill.dtype;
    case LK_FAMILY_SCALAR: return same_scalar(node->op, &a->scalar, &b->scalar);
    case LK_FAMILY_CAST: return a->cast.dtype == b->cast.dtype;
    case LK_FAMILY_REDUCE:
        return a->reduce.axes == b->reduce.axes && a->reduce.keep_dims == b->reduce.keep_dims &&
               a->reduce.correction == b->reduce.correction;
    case LK_FAMILY_AXIS: return a->axis.axis == b->axis.axis && a->axis.keep_dims == b->axis.keep_dims;
    case LK_FAMILY_PERMUTE:
        return !memcmp(a->permute.order, b->permute.order, sizeof *a->permute.order * (size_t)rank);
    case LK_FAMILY_PAD: return same_pad(&a->pad, &b->pad, rank);
    case LK_FAMILY_GATHER: return a->gather.axis == b->gather.axis;
    case LK_FAMILY_MATMUL:
        return a->matmul.transpose_a == b->matmul.transpose_a &&
               a->matmul.transpose_b == b->matmul.transpose_b;
    case LK_FAMILY_CONV: return same_window(&a->conv.window, &b->conv.window);
    case LK_FAMILY_POOL: return same_window(&a->pool.window, &b->pool.window);
    case LK_FAMILY_UPSAMPLE: return same_upsample(&a->upsample, &b->upsample);
    case LK_FAMILY_NORM: return same_norm(&a->norm, &b->norm);
    default: return true;
    }
}

static bool same_input(const lk_value *a, const lk_value *b)
{
    if (!a || !b) return a == b;
    return a->node->order == b->node->order && a->index == b->index && a->param == b->param;
}

bool lki_onnx_is_twin(const lki_node *node, const lki_node *twin)
{
    bool same = node->op == twin->op && node->input_count == twin->input_count &&
                node->out[0]->shape.rank == twin->out[0]->shape.rank &&
                node->out[0]->param == twin->out[0]->param;
    for (int i = 0; same && i < node->input_count; i++) same = same_input(node->in[i], twin->in[i]);
    return same && same_attributes(node, twin);
}
