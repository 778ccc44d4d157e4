/* The gradients of gradients: what lk_op_grad records can be differentiated like anything else.
 *
 * Many ops are linear in dy, so their rule for dy is the op that they undo. Where the formula is long, it is
 * recorded once more from simple ops, and those are differentiated. g stands for the gradient of dx. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/autodiff.h"
#include "graph/record_util.h"

#include <math.h>

static lk_value *plus(lk_value *x, double number)
{
    return LKI_EMIT(LK_OP_ADD_SCALAR, LKI_ATTR(.scalar.number = number), x);
}

static lk_value *zero_where_positive(lk_value *x, lk_value *otherwise)
{
    lk_value *zero = lki_scalar_like(x, 0);
    return lk_op_where(lk_op_greater(x, zero), zero, otherwise);
}

/* erf: phi(x) (2 - x^2). tanh, with u = k (x + c x^3): (1 - t^2) (u' + x/2 (u'' - 2 t u'^2)). */
static lk_value *gelu_curvature(lk_value *x, bool by_tanh)
{
    lk_value *square = lk_op_mul(x, x);
    if (!by_tanh) {
        lk_value *density = lki_scaled(lk_op_exp(lki_scaled(square, -0.5)), 0.5 * M_2_SQRTPI * M_SQRT1_2);
        return lk_op_mul(density, plus(lk_op_neg(square), 2));
    }
    double k = M_SQRT2 * 0.5 * M_2_SQRTPI, c = 0.044715;
    lk_value *t = lk_op_tanh(lki_scaled(lk_op_mul(x, plus(lki_scaled(square, c), 1)), k));
    lk_value *slope = plus(lki_scaled(square, 3 * c * k), k), *bend = lki_scaled(x, 6 * c * k);
    lk_value *inner = lk_op_sub(bend, lki_scaled(lk_op_mul(t, lk_op_mul(slope, slope)), 2));
    lk_value *sum = lk_op_add(slope, lk_op_mul(lki_scaled(x, 0.5), inner));
    return lk_op_mul(plus(lk_op_neg(lk_op_mul(t, t)), 1), sum);
}

/* s (1 - s) (2 + x (1 - 2 s)) */
static lk_value *silu_curvature(lk_value *x)
{
    lk_value *s = lk_op_sigmoid(x), *falling = plus(lki_scaled(s, -2), 1);
    lk_value *slope = lk_op_mul(s, plus(lk_op_neg(s), 1));
    return lk_op_mul(slope, plus(lk_op_mul(x, falling), 2));
}

/* beta s (1 - s), 0 beyond the threshold */
static lk_value *softplus_curvature(lk_value *x, double beta, double threshold)
{
    lk_value *scaled = lki_scaled(x, beta), *s = lk_op_sigmoid(scaled);
    lk_value *slope = lki_scaled(lk_op_mul(s, plus(lk_op_neg(s), 1)), beta);
    lk_value *beyond = lk_op_greater(scaled, lki_scalar_like(x, threshold));
    return lk_op_where(beyond, lki_scalar_like(x, 0), slope);
}

/* What dy is multiplied with, differentiated by the second operand; NULL for piecewise linear functions. */
static lk_value *curvature(const lki_node *node, lk_value *v)
{
    const lk_scalar_attr *attr = &node->attr.scalar;
    switch (node->op) {
    case LK_OP_TANH_GRAD: return lki_scaled(v, -2);
    case LK_OP_SIGMOID_GRAD: return plus(lki_scaled(v, -2), 1);
    case LK_OP_ELU_GRAD: return zero_where_positive(v, lki_scaled(lk_op_exp(v), attr->alpha));
    case LK_OP_GELU_GRAD: return gelu_curvature(v, attr->by_tanh);
    case LK_OP_SILU_GRAD: return silu_curvature(v);
    case LK_OP_SOFTPLUS_GRAD: return softplus_curvature(v, attr->softplus.beta, attr->softplus.threshold);
    default: return NULL;
    }
}

/* dx = dy f(v): ddy = g f(v), dv = g dy f'(v) */
lk_status lki_backward_activation_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *v = node->in[1], *g = grad_out[0];
    if (dy->needs_grad) grad_in[0] = LKI_EMIT(node->op, &node->attr, g, v);
    lk_value *bend = v->needs_grad ? curvature(node, v) : NULL;
    if (bend) grad_in[1] = lk_op_mul(lk_op_mul(g, dy), bend);
    return lki_recorded(node);
}

/* (dy, x, y): ddy = the sum of g over the maxima, divided by their number */
lk_status lki_backward_max_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *share = LKI_EMIT(LK_OP_MAX_GRAD, NULL, lki_full_like(node->in[0], 1), node->in[1], node->in[2]);
    if (node->in[0]->needs_grad) grad_in[0] = lki_sum_to(lk_op_mul(grad_out[0], share), node->in[0]->shape);
    return lki_recorded(node);
}

static lk_value *sum_along(lk_value *x, int axis)
{
    return LKI_EMIT(LK_OP_SUM, LKI_ATTR(.reduce = {.axes = 1u << axis, .keep_dims = true}), x);
}

/* dx = y (dy - sum(dy y)): ddy is the same function of g, dY = g (dy - sum(dy y)) - dy sum(g y) */
static void softmax_again(lki_node *node, lk_value *g, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *y = node->in[1];
    int axis = node->attr.axis.axis;
    if (dy->needs_grad) grad_in[0] = LKI_EMIT(node->op, &node->attr, g, y);
    if (!y->needs_grad) return;
    lk_value *centred = lk_op_sub(dy, sum_along(lk_op_mul(dy, y), axis));
    grad_in[1] = lk_op_sub(lk_op_mul(g, centred), lk_op_mul(dy, sum_along(lk_op_mul(g, y), axis)));
}

/* dx = dy - exp(y) sum(dy): ddy = g - sum(g exp(y)), dY = -g exp(y) sum(dy) */
static void log_softmax_again(lki_node *node, lk_value *g, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *y = node->in[1], *weighted = lk_op_mul(g, lk_op_exp(y));
    int axis = node->attr.axis.axis;
    if (dy->needs_grad) grad_in[0] = lk_op_sub(g, sum_along(weighted, axis));
    if (y->needs_grad) grad_in[1] = lk_op_neg(lk_op_mul(weighted, sum_along(dy, axis)));
}

lk_status lki_backward_softmax_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    if (node->op == LK_OP_SOFTMAX_GRAD)
        softmax_again(node, grad_out[0], grad_in);
    else
        log_softmax_again(node, grad_out[0], grad_in);
    return lki_recorded(node);
}

/* The gradients of ops that move or average are linear: ddy is that op of g. */
lk_status lki_backward_linear_map(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_attr attr = node->attr;
    lk_shape shape = node->in[0]->shape;
    lk_value *g = grad_out[0];
    switch (node->op) {
    case LK_OP_SLICE_GRAD: grad_in[0] = LKI_EMIT(LK_OP_SLICE, &attr, g); break;
    case LK_OP_PAD_GRAD:
        attr.pad.value = 0;
        grad_in[0] = LKI_EMIT(LK_OP_PAD, &attr, g);
        break;
    case LK_OP_GATHER_GRAD: grad_in[0] = LKI_EMIT(LK_OP_GATHER, &attr, g, node->in[1]); break;
    case LK_OP_AVG_POOL_GRAD: grad_in[0] = LKI_EMIT(LK_OP_AVG_POOL, &attr, g); break;
    case LK_OP_ADAPTIVE_AVG_POOL_GRAD:
        attr.pool.shape = shape;
        grad_in[0] = LKI_EMIT(LK_OP_ADAPTIVE_AVG_POOL, &attr, g);
        break;
    case LK_OP_UPSAMPLE_GRAD:
        attr.upsample.shape = shape;
        grad_in[0] = LKI_EMIT(LK_OP_UPSAMPLE, &attr, g);
        break;
    default: grad_in[0] = LKI_EMIT(LK_OP_DROPOUT_GRAD, &attr, g, node->in[1]); break;
    }
    return lki_recorded(node);
}

lk_status lki_backward_slices_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    for (int i = 0; i < node->input_count; i++)
        if (node->in[i]->needs_grad)
            grad_in[i] = LKI_EMIT(LK_OP_SLICE, LKI_ATTR(.slice = node->attr.slices.parts[i]), grad_out[0]);
    return lki_recorded(node);
}

static lk_value *i64_scalar(lk_graph *graph, int64_t number)
{
    lk_attr attr = {.fill = {.value = (double)number, .dtype = LK_I64, .shape = lk_scalar_shape()}};
    return lki_record(graph, LK_OP_FULL, NULL, 0, 0, &attr);
}

/* (dy, index): ddy = the rows of g, 0 for the padding row */
lk_status lki_backward_embedding_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *index = node->in[1], *g = grad_out[0];
    int64_t padding = node->attr.embedding.padding_index;
    lk_value *rows = LKI_EMIT(LK_OP_EMBEDDING, LKI_ATTR(.embedding.padding_index = -1), g, index);
    if (padding >= 0 && rows) {
        lk_value *is_padding = lk_op_equal(index, i64_scalar(index->graph, padding));
        lk_shape shape = index->shape;
        shape.dim[shape.rank++] = 1;
        rows = lk_op_where(lki_reshaped(is_padding, shape), lki_scalar_like(g, 0), rows);
    }
    grad_in[0] = rows;
    return lki_recorded(node);
}

/* (dy, index): ddy = g at the places of the winners. A place of -1, where a folded ReLU let nothing through,
 * gets 0. */
lk_status lki_backward_max_pool_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *g = grad_out[0], *place = lk_op_cast(node->in[1], LK_F64);
    lk_shape wide = g->shape, pooled = node->in[0]->shape;
    lk_shape planes = LK_SHAPE(wide.dim[0], wide.dim[1], -1), winners = planes;
    lk_value *index = lk_op_cast(lk_op_relu(place), LK_I64);
    lk_value *found = lk_op_gather(lk_op_reshape(g, planes), 2, lk_op_reshape(index, winners));
    lk_value *won = lk_op_greater_equal(place, lki_scalar_like(place, 0));
    grad_in[0] = lk_op_where(won, lk_op_reshape(found, pooled), lki_scalar_like(g, 0));
    return lki_recorded(node);
}

/* (dy, x) -> dw, db: with gw and gb, ddy = x gw^T + gb, dx = dy gw */
lk_status lki_backward_linear_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *x = node->in[1], *gw = grad_out[0], *gb = grad_out[1];
    if (dy->needs_grad)
        grad_in[0] = gw ? LKI_EMIT(LK_OP_LINEAR, NULL, x, gw, gb)
                        : LKI_EMIT(LK_OP_EXPAND, LKI_ATTR(.shape.shape = dy->shape), gb);
    if (x->needs_grad && gw) grad_in[1] = LKI_EMIT(LK_OP_MATMUL, NULL, dy, gw);
    return lki_recorded(node);
}

/* (dy, w) -> dx: ddy = conv(g, w), dw = the weights' gradient of that convolution */
lk_status lki_backward_conv_grad_input(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *weight = node->in[1], *g = grad_out[0];
    lk_attr attr = {.conv.window = node->attr.conv.window};
    if (dy->needs_grad) grad_in[0] = LKI_EMIT(LK_OP_CONV, &attr, g, weight, NULL);
    attr.conv.shape = weight->shape;
    if (weight->needs_grad) grad_in[1] = LKI_EMIT(LK_OP_CONV_GRAD_WEIGHT, &attr, dy, g);
    return lki_recorded(node);
}

/* (dy, x) -> dw, db: ddy = conv(x, gw) + gb, dx = the input's gradient of that convolution */
lk_status lki_backward_conv_grad_weight(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *x = node->in[1], *gw = grad_out[0], *gb = grad_out[1];
    lk_attr attr = {.conv.window = node->attr.conv.window};
    if (dy->needs_grad && gw) {
        grad_in[0] = LKI_EMIT(LK_OP_CONV, &attr, x, gw, gb);
    } else if (dy->needs_grad) {
        lk_shape shape = dy->shape;
        for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == 1 ? shape.dim[i] : 1;
        grad_in[0] = LKI_EMIT(LK_OP_EXPAND, LKI_ATTR(.shape.shape = dy->shape), lki_reshaped(gb, shape));
    }
    attr.conv.shape = x->shape;
    if (x->needs_grad && gw) grad_in[1] = LKI_EMIT(LK_OP_CONV_GRAD_INPUT, &attr, dy, gw);
    return lki_recorded(node);
}

/* (x - mean) / sqrt(var + eps) over a set of axes */
static lk_value *normalised(lk_value *x, uint32_t axes, double eps)
{
    lk_attr attr = {.reduce = {.axes = axes, .keep_dims = true}};
    lk_value *centred = lk_op_sub(x, LKI_EMIT(LK_OP_MEAN, &attr, x));
    lk_value *var = LKI_EMIT(LK_OP_MEAN, &attr, lk_op_mul(centred, centred));
    return lk_op_mul(centred, lk_op_pow_scalar(plus(var, eps), -0.5));
}

/* (c) as (1, c, 1, ...) */
static lk_value *per_channel(lk_value *value, lk_shape like)
{
    for (int i = 0; i < like.rank; i++) like.dim[i] = i == 1 ? like.dim[i] : 1;
    return value ? lki_reshaped(value, like) : NULL;
}

/* What a normalisation gives before its weight and bias. */
static lk_value *normalise_again(const lki_node *node, lk_value *x)
{
    const lk_norm_attr *attr = &node->attr.norm;
    lk_shape shape = x->shape;
    uint32_t all = (1u << shape.rank) - 1;
    switch (node->op) {
    case LK_OP_LAYER_NORM_GRAD:
        return normalised(x, all & ~((1u << (shape.rank - attr->axis_count)) - 1), attr->eps);
    case LK_OP_GROUP_NORM_GRAD: {
        lk_value *groups = lk_op_reshape(x, LK_SHAPE(shape.dim[0], attr->group_count, -1));
        return lk_op_reshape(normalised(groups, 1u << 2, attr->eps), shape);
    }
    default: break;
    }
    if (attr->training) return normalised(x, all & ~2u, attr->eps);
    lk_value *centred = lk_op_sub(x, per_channel(lk_op_detach(node->in[3]), shape));
    return lk_op_mul(centred, per_channel(lk_op_detach(node->in[4]), shape));
}

/* (dy, x, weight?, mean, istd) -> dx, dweight, dbias, recorded once more from simple ops. */
lk_status lki_backward_norm_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dy = node->in[0], *x = node->in[1], *weight = node->in[2], *bias = NULL;
    lk_graph *graph = dy->graph;
    bool rows = node->op == LK_OP_LAYER_NORM_GRAD;
    lk_value *y = normalise_again(node, x);
    if (weight) {
        bias = lki_full_like(weight, 0);
        y = lk_op_mul(y, rows ? weight : per_channel(weight, x->shape));
        y = lk_op_add(y, rows ? bias : per_channel(bias, x->shape));
    }
    lk_value *first[3] = {0}, *second[3] = {0};
    LKI_TRY(lki_differentiate(graph, &y, &dy, 1, (lk_value *[]){x, weight, bias}, 3, first));
    LKI_TRY(lki_differentiate(graph, first, grad_out, 3, (lk_value *[]){dy, x, weight}, 3, second));
    for (int i = 0; i < 3; i++) grad_in[i] = second[i];
    return lki_recorded(node);
}

/* The loss's gradient as something to multiply with the logits' shape: (n, s...) becomes (n, 1, s...). */
static lk_shape wide_shape(const lk_value *dloss, const lk_value *logp)
{
    lk_shape shape = dloss->shape;
    if (!shape.rank) return shape;
    shape = logp->shape;
    shape.dim[1] = 1;
    return shape;
}

/* A soft target t weighs its class by h = (1 - smoothing) weight / count: dt = dloss h (sum(g p) - g). */
static lk_value *soft_target_again(const lki_node *node, lk_value *g, lk_value *dloss)
{
    lk_value *logp = node->in[1], *weight = lki_has_input(node, 3) ? node->in[3] : NULL;
    lk_shape shape = logp->shape;
    double factor = 1 - node->attr.class_loss.label_smoothing;
    if (node->attr.class_loss.reduction == LK_REDUCTION_MEAN && lk_shape_count(shape))
        factor *= (double)shape.dim[1] / (double)lk_shape_count(shape);
    lk_value *spread = lk_op_sub(sum_along(lk_op_mul(g, lk_op_exp(logp)), 1), g);
    if (weight) spread = lk_op_mul(spread, per_channel(weight, shape));
    return lki_scaled(lk_op_mul(spread, dloss), factor);
}

/* (dloss, logp, target, weight?): dlogits = dloss (s p - d), with p = exp(logp), d the weights of the classes
 * of each sample and s their sum. The op itself gives -d where p is 0. */
lk_status lki_backward_cross_entropy_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dloss = node->in[0], *logp = node->in[1], *g = grad_out[0];
    lk_value *weight = lki_has_input(node, 3) ? node->in[3] : NULL;
    lk_value *less = LKI_EMIT(node->op, &node->attr, lki_full_like(dloss, 1), lki_full_like(logp, -1e30),
                              node->in[2], weight);
    lk_value *share = lk_op_mul(lk_op_neg(sum_along(less, 1)), lk_op_exp(logp));
    lk_shape wide = wide_shape(dloss, logp);
    if (dloss->needs_grad) {
        lk_value *product = lki_sum_to(lk_op_mul(g, lk_op_add(share, less)), wide);
        grad_in[0] = lki_reshaped(product, dloss->shape);
    }
    lk_value *spread = lki_reshaped(dloss, wide);
    if (logp->needs_grad) grad_in[1] = lk_op_mul(lk_op_mul(g, share), spread);
    if (node->in[2]->needs_grad) grad_in[2] = soft_target_again(node, g, spread);
    return lki_recorded(node);
}

/* (dloss, logp, target, weight?): dlogp = dloss times what does not depend on logp */
lk_status lki_backward_nll_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dloss = node->in[0], *logp = node->in[1];
    lk_value *weight = lki_has_input(node, 3) ? node->in[3] : NULL;
    if (!dloss->needs_grad) return LK_OK;
    lk_value *each = LKI_EMIT(node->op, &node->attr, lki_full_like(dloss, 1), logp, node->in[2], weight);
    lk_value *sum = lki_sum_to(lk_op_mul(grad_out[0], each), wide_shape(dloss, logp));
    grad_in[0] = lki_reshaped(sum, dloss->shape);
    return lki_recorded(node);
}

/* d loss / d x of one element, as POINTWISE_LOSS_GRAD has it. */
static lk_value *loss_slope(const lki_node *node)
{
    lk_value *x = node->in[1], *t = node->in[2], *pos_weight = lki_has_input(node, 4) ? node->in[4] : NULL;
    double b = node->attr.pointwise_loss.parameter;
    lk_value *d = lk_op_sub(x, t);
    switch (node->attr.pointwise_loss.kind) {
    case LK_LOSS_MSE: return lki_scaled(d, 2);
    case LK_LOSS_L1: return lk_op_sign(d);
    case LK_LOSS_SMOOTH_L1: return b > 0 ? lk_op_clamp(lki_scaled(d, 1 / b), -1, 1) : lk_op_sign(d);
    case LK_LOSS_HUBER: return lk_op_clamp(d, -b, b);
    case LK_LOSS_BCE: {
        lk_value *product = lk_op_mul(x, plus(lk_op_neg(x), 1));
        return lk_op_div(d, lk_op_maximum(product, lki_scalar_like(x, 1e-12)));
    }
    case LK_LOSS_BCE_WITH_LOGITS: {
        lk_value *factor = pos_weight ? plus(lk_op_mul(plus(pos_weight, -1), t), 1) : lki_full_like(t, 1);
        return lk_op_sub(plus(lk_op_neg(t), 1), lk_op_mul(factor, lk_op_sigmoid(lk_op_neg(x))));
    }
    default: return lk_op_neg(b == 1 ? lk_op_exp(t) : t);
    }
}

/* (dloss, x, target, weight?, pos_weight?), recorded once more from simple ops. */
lk_status lki_backward_pointwise_loss_grad(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *dloss = node->in[0], *x = node->in[1], *target = node->in[2];
    lk_reduction reduction = node->attr.pointwise_loss.reduction;
    int64_t count = reduction == LK_REDUCTION_BATCH_MEAN ? x->shape.dim[0]
                    : reduction == LK_REDUCTION_MEAN     ? lk_shape_count(x->shape)
                                                         : 1;
    lk_value *dx = lk_op_mul(loss_slope(node), lki_scaled(dloss, 1 / (double)(count ? count : 1)));
    if (lki_has_input(node, 3)) dx = lk_op_mul(dx, node->in[3]);
    LKI_TRY(lki_recorded(node));
    LKI_TRY(lki_differentiate(dloss->graph, &dx, grad_out, 1, (lk_value *[]){dloss, x, target}, 3, grad_in));
    return lki_recorded(node);
}
