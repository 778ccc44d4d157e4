/* Pooling and upsampling over the last one to three axes. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

static int spatial_rank(const lki_node *node)
{
    bool resamples = lk_op_family_of(node->op) == LK_FAMILY_UPSAMPLE;
    return resamples ? node->attr.upsample.rank : node->attr.pool.window.rank;
}

static lk_status check_rank(const lki_node *node)
{
    int rank = spatial_rank(node);
    LKI_TRY(lki_expect_float(node, 0));
    if (rank < 1 || rank > 3)
        return lki_fail(LK_ERR_INVALID, "%s: expected 1 to 3 spatial dimensions, not %d",
                        lk_op_name(node->op), rank);
    if (node->in[0]->shape.rank == rank + 2) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: input %s: expected %d dimensions, (batch, channels, ...)",
                    lk_op_name(node->op), LKI_SHOW(node->in[0]->shape), rank + 2);
}

/* The zero stride is the kernel, the zero dilation 1. */
static lk_status complete_axis(lki_node *node, int i)
{
    lk_window *window = &node->attr.pool.window;
    const char *name = lk_op_name(node->op);
    if (window->stride[i] == 0) window->stride[i] = window->kernel[i];
    if (window->dilation[i] == 0) window->dilation[i] = 1;
    if (window->kernel[i] < 1 || window->stride[i] < 1 || window->dilation[i] < 1)
        return lki_fail(LK_ERR_INVALID, "%s: kernel %lld, stride %lld and dilation %lld must be at least 1",
                        name, (long long)window->kernel[i], (long long)window->stride[i],
                        (long long)window->dilation[i]);
    if (window->padding[i] < 0 || window->padding[i] > window->kernel[i] / 2)
        return lki_fail(LK_ERR_INVALID, "%s: padding %lld must lie between 0 and half of the kernel %lld",
                        name, (long long)window->padding[i], (long long)window->kernel[i]);
    if (node->op == LK_OP_AVG_POOL && window->dilation[i] != 1)
        return lki_fail(LK_ERR_INVALID, "avg_pool: has no dilation, but %lld is asked for",
                        (long long)window->dilation[i]);
    return LK_OK;
}

/* As PyTorch: with ceil_mode a last window may hang over the end, but must begin inside of the input or its
 * left padding. */
static int64_t pooled_size(int64_t size, const lk_window *window, int i)
{
    int64_t stride = window->stride[i], reach = window->dilation[i] * (window->kernel[i] - 1) + 1;
    int64_t room = size + 2 * window->padding[i] - reach + (window->ceil_mode ? stride - 1 : 0);
    if (room < 0) return 0;
    int64_t count = room / stride + 1;
    if (window->ceil_mode && (count - 1) * stride >= size + window->padding[i]) count--;
    return count;
}

lk_status lki_infer_pool(lki_node *node)
{
    LKI_TRY(check_rank(node));
    lk_shape x = node->in[0]->shape, shape = x;
    lk_window *window = &node->attr.pool.window;
    if (window->divisor < 0)
        return lki_fail(LK_ERR_INVALID, "%s: the divisor %lld is negative", lk_op_name(node->op),
                        (long long)window->divisor);
    for (int i = 0; i < window->rank; i++) {
        LKI_TRY(complete_axis(node, i));
        shape.dim[i + 2] = pooled_size(x.dim[i + 2], window, i);
        if (shape.dim[i + 2] < 1)
            return lki_fail(LK_ERR_SHAPE,
                            "%s: input %s is too small along axis %d for kernel %lld with padding %lld and "
                            "dilation %lld",
                            lk_op_name(node->op), LKI_SHOW(x), i + 2, (long long)window->kernel[i],
                            (long long)window->padding[i], (long long)window->dilation[i]);
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    if (node->op == LK_OP_MAX_POOL) lki_set_output(node, 1, LK_I32, shape);
    return LK_OK;
}

/* To the whole result's shape: all but its last axes are those of x. */
static lk_status infer_resize(lki_node *node, lk_shape shape)
{
    LKI_TRY(check_rank(node));
    lk_shape x = node->in[0]->shape;
    bool fits = shape.rank == x.rank && shape.dim[0] == x.dim[0] && shape.dim[1] == x.dim[1];
    for (int i = 2; fits && i < x.rank; i++) fits = shape.dim[i] >= 1 && x.dim[i] >= 1;
    if (!fits)
        return lki_fail(LK_ERR_SHAPE, "%s: input %s cannot become %s", lk_op_name(node->op), LKI_SHOW(x),
                        LKI_SHOW(shape));
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

lk_status lki_infer_adaptive_pool(lki_node *node)
{
    return infer_resize(node, node->attr.pool.shape);
}

lk_status lki_infer_upsample(lki_node *node)
{
    const lk_upsample_attr *attr = &node->attr.upsample;
    if (attr->mode != LK_UPSAMPLE_NEAREST && attr->mode != LK_UPSAMPLE_LINEAR)
        return lki_fail(LK_ERR_INVALID, "upsample: there is no mode %d", (int)attr->mode);
    if (attr->mode == LK_UPSAMPLE_NEAREST && attr->align_corners)
        return lki_fail(LK_ERR_INVALID, "upsample: align_corners needs the linear mode");
    return infer_resize(node, attr->shape);
}

/* dx = the sum of dy over the windows whose winner stands there */
lk_status lki_backward_max_pool(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.pool.shape = node->in[0]->shape;
    grad_in[0] = LKI_EMIT(LK_OP_MAX_POOL_GRAD, &attr, grad_out[0], node->out[1]);
    return lki_recorded(node);
}

/* dx = the sum over the windows that hold it of dy / divisor */
lk_status lki_backward_pool(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.pool.shape = node->in[0]->shape;
    lk_op op = node->op == LK_OP_AVG_POOL ? LK_OP_AVG_POOL_GRAD : LK_OP_ADAPTIVE_AVG_POOL_GRAD;
    grad_in[0] = LKI_EMIT(op, &attr, grad_out[0]);
    return lki_recorded(node);
}

/* dx = the sum over the places that read it of dy times its weight there */
lk_status lki_backward_upsample(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.upsample.shape = node->in[0]->shape;
    grad_in[0] = LKI_EMIT(LK_OP_UPSAMPLE_GRAD, &attr, grad_out[0]);
    return lki_recorded(node);
}
