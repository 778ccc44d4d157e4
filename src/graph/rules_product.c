/* Matrix products. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

lk_status lki_infer_matmul(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_float(node, 1));
    LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    lk_shape a = node->in[0]->shape, b = node->in[1]->shape, shape;
    if (a.rank < 2 || b.rank < 2)
        return lki_fail(LK_ERR_SHAPE, "matmul: shapes %s and %s: expected at least 2 dimensions", LKI_SHOW(a),
                        LKI_SHOW(b));
    bool ta = node->attr.matmul.transpose_a, tb = node->attr.matmul.transpose_b;
    int64_t m = a.dim[a.rank - (ta ? 1 : 2)], k = a.dim[a.rank - (ta ? 2 : 1)];
    int64_t n = b.dim[b.rank - (tb ? 2 : 1)], k_of_b = b.dim[b.rank - (tb ? 1 : 2)];
    if (k != k_of_b)
        return lki_fail(LK_ERR_SHAPE, "matmul: shapes %s and %s do not multiply: %lld columns meet %lld rows",
                        LKI_SHOW(a), LKI_SHOW(b), (long long)k, (long long)k_of_b);
    lk_shape lead_a = a, lead_b = b;
    lead_a.rank -= 2;
    lead_b.rank -= 2;
    if (lki_broadcast(&shape, lead_a, lead_b))
        return lki_fail(LK_ERR_SHAPE, "matmul: the leading dimensions of shapes %s and %s do not broadcast",
                        LKI_SHOW(a), LKI_SHOW(b));
    shape.dim[shape.rank++] = m;
    shape.dim[shape.rank++] = n;
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

lk_status lki_infer_linear(lki_node *node)
{
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    lk_shape x = node->in[0]->shape, weight = node->in[1]->shape;
    if (weight.rank != 2)
        return lki_fail(LK_ERR_SHAPE, "linear: weight %s has not 2 dimensions", LKI_SHOW(weight));
    if (x.rank < 1 || x.dim[x.rank - 1] != weight.dim[1])
        return lki_fail(LK_ERR_SHAPE,
                        "linear: input %s does not fit weight %s: the last dimension must be %lld",
                        LKI_SHOW(x), LKI_SHOW(weight), (long long)weight.dim[1]);
    if (lki_has_input(node, 2)) {
        LKI_TRY(lki_expect_same_dtype(node, 0, 2));
        if (!lk_shape_equal(node->in[2]->shape, LK_SHAPE(weight.dim[0])))
            return lki_fail(LK_ERR_SHAPE, "linear: bias %s does not fit weight %s: expected (%lld,)",
                            LKI_SHOW(node->in[2]->shape), LKI_SHOW(weight), (long long)weight.dim[0]);
    }
    x.dim[x.rank - 1] = weight.dim[0];
    lki_set_output(node, 0, node->in[0]->dtype, x);
    return LK_OK;
}

/* (dy (..., n), x (..., k)) -> dw (n, k), db (n) */
lk_status lki_infer_linear_grad(lki_node *node)
{
    lk_shape dy = node->in[0]->shape, x = node->in[1]->shape;
    int64_t n = dy.dim[dy.rank - 1], k = x.dim[x.rank - 1];
    lki_set_output(node, 0, node->in[0]->dtype, LK_SHAPE(n, k));
    lki_set_output(node, 1, node->in[0]->dtype, LK_SHAPE(n));
    return LK_OK;
}

static lk_value *product(lk_value *a, bool transpose_a, lk_value *b, bool transpose_b)
{
    return LKI_EMIT(LK_OP_MATMUL, LKI_ATTR(.matmul = {transpose_a, transpose_b}), a, b);
}

/* (..., k) as (rows, k): the same memory, one large product instead of many small ones. */
static lk_value *as_rows(lk_value *value)
{
    int64_t last = value->shape.dim[value->shape.rank - 1];
    return lki_reshaped(value, LK_SHAPE(last ? lk_shape_count(value->shape) / last : 0, last));
}

/* With A = a or a^T, B = b or b^T and y = A B: dA = dy B^T, dB = A^T dy; then back through the transposition,
 * and summed over the leading axes that broadcasting added. */
lk_status lki_backward_matmul(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *a = node->in[0], *b = node->in[1], *dy = grad_out[0];
    bool ta = node->attr.matmul.transpose_a, tb = node->attr.matmul.transpose_b;
    if (a->needs_grad) {
        lk_value *gradient = ta ? product(b, tb, dy, true) : product(dy, false, b, !tb);
        grad_in[0] = lki_sum_to(gradient, a->shape);
    }
    if (b->needs_grad) {
        if (b->shape.rank == 2 && a->shape.rank > 2 &&
            !ta) { /* the sum over the batch is part of the product */
            a = as_rows(a);
            dy = as_rows(dy);
        }
        lk_value *gradient = tb ? product(dy, true, a, ta) : product(a, !ta, dy, false);
        grad_in[1] = lki_sum_to(gradient, b->shape);
    }
    return lki_recorded(node);
}

/* y = x w^T + b: dx = dy w, dw = dy^T x, db = the sum of dy over all rows; dw first, as for a convolution */
lk_status lki_backward_linear(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *x = node->in[0], *weight = node->in[1], *dy = as_rows(grad_out[0]);
    bool bias_needs = lki_has_input(node, 2) && node->in[2]->needs_grad;
    if (weight->needs_grad) {
        lk_value *both =
            LKI_EMIT(LK_OP_LINEAR_GRAD, LKI_ATTR(.linear.wants_bias = bias_needs), dy, as_rows(x));
        grad_in[1] = both;
        if (bias_needs) grad_in[2] = lki_output_of(both, 1);
    } else if (bias_needs) {
        grad_in[2] = lki_sum_to(dy, node->in[2]->shape);
    }
    if (x->needs_grad) grad_in[0] = lki_reshaped(product(dy, false, weight, false), x->shape);
    return lki_recorded(node);
}
