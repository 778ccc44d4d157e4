/* Ops along one axis that look at a whole line, and random numbers. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

/* The axis of a scalar is 0, as in PyTorch. */
static lk_status complete_axis(const lki_node *node, int *axis)
{
    if (node->in[0]->shape.rank == 0 && (*axis == 0 || *axis == -1)) {
        *axis = 0;
        return LK_OK;
    }
    return lki_complete_axis(node, axis);
}

/* cumsum, cumprod (x) and cumprod_grad (dy, x): all of one shape. */
lk_status lki_infer_scan(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(complete_axis(node, &node->attr.scan.axis));
    lki_set_output(node, 0, node->in[0]->dtype, node->in[0]->shape);
    return LK_OK;
}

/* (x) -> values, index i64 */
lk_status lki_infer_sort(lki_node *node)
{
    lk_sort_attr *attr = &node->attr.sort;
    lk_shape shape = node->in[0]->shape;
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(complete_axis(node, &attr->axis));
    int64_t length = shape.rank ? shape.dim[attr->axis] : 1;
    if (attr->count < 0 || attr->count > length)
        return lki_fail(LK_ERR_RANGE, "sort: %lld of axis %d of shape %s were asked for",
                        (long long)attr->count, attr->axis, LKI_SHOW(shape));
    if (shape.rank && attr->count) shape.dim[attr->axis] = attr->count;
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    lki_set_output(node, 1, LK_I64, shape);
    return LK_OK;
}

lk_status lki_infer_random(lki_node *node)
{
    const lk_random_attr *attr = &node->attr.random;
    if (attr->dtype != LK_F32 && attr->dtype != LK_F64)
        return lki_fail(LK_ERR_DTYPE, "random: expected f32 or f64, not %s; cast what is drawn",
                        lk_dtype_name(attr->dtype));
    if (attr->kind == LK_RANDOM_BERNOULLI && !(attr->a >= 0 && attr->a <= 1))
        return lki_fail(LK_ERR_INVALID, "bernoulli: p must lie between 0 and 1, but is %g", attr->a);
    if (attr->kind == LK_RANDOM_NORMAL && !(attr->b >= 0))
        return lki_fail(LK_ERR_INVALID, "normal: the standard deviation %g is negative", attr->b);
    if (attr->kind == LK_RANDOM_UNIFORM && !(attr->a <= attr->b))
        return lki_fail(LK_ERR_INVALID, "uniform: %g is above %g", attr->a, attr->b);
    lki_set_output(node, 0, attr->dtype, attr->shape);
    return LK_OK;
}

/* y_k = x_0 + ... + x_k: dx_k = dy_k + ... + dy_last, the sum from the other end */
lk_status lki_backward_cumsum(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    attr.scan.reverse = !attr.scan.reverse;
    grad_in[0] = LKI_EMIT(LK_OP_CUMSUM, &attr, grad_out[0]);
    return lki_recorded(node);
}

/* dx_k = the sum over j >= k of dy_j times the product of x_0 ... x_j without x_k */
lk_status lki_backward_cumprod(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    grad_in[0] = LKI_EMIT(LK_OP_CUMPROD_GRAD, &node->attr, grad_out[0], node->in[0]);
    return lki_recorded(node);
}

/* dx = dy at the places that the values came from */
lk_status lki_backward_sort(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_shape shape = node->in[0]->shape;
    lk_attr attr = {.gather = {.axis = node->attr.sort.axis, .shape = shape}};
    grad_in[0] = shape.rank ? LKI_EMIT(LK_OP_GATHER_GRAD, &attr, grad_out[0], node->out[1]) : grad_out[0];
    return lki_recorded(node);
}
