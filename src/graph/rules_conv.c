/* Convolutions in one to three dimensions. */
#include "graph/rules.h"

#include "base/status.h"
#include "graph/record_util.h"

static lk_shape spatial(const int64_t *dims, int rank)
{
    lk_shape shape = {.rank = rank};
    for (int i = 0; i < rank; i++) shape.dim[i] = dims[i];
    return shape;
}

static lk_status check_rank(const lki_node *node)
{
    lk_shape x = node->in[0]->shape, weight = node->in[1]->shape;
    int rank = node->attr.conv.window.rank;
    LKI_TRY(lki_expect_float(node, 0));
    LKI_TRY(lki_expect_same_dtype(node, 0, 1));
    if (rank < 1 || rank > 3)
        return lki_fail(LK_ERR_SHAPE, "%s: weight %s: expected 3 to 5 dimensions", lk_op_name(node->op),
                        LKI_SHOW(weight));
    if (x.rank != rank + 2 || weight.rank != rank + 2)
        return lki_fail(LK_ERR_SHAPE,
                        "%s: input %s does not fit weight %s: expected %d dimensions, (batch, channels, ...)",
                        lk_op_name(node->op), LKI_SHOW(x), LKI_SHOW(weight), rank + 2);
    return LK_OK;
}

/* Zero stands for 1, the kernel is the weight's; what is left must make sense. */
static lk_status complete_window(lki_node *node)
{
    lk_window *window = &node->attr.conv.window;
    const char *name = lk_op_name(node->op);
    lk_shape weight = node->in[1]->shape;
    if (window->groups == 0) window->groups = 1;
    if (window->groups < 0)
        return lki_fail(LK_ERR_INVALID, "%s: groups must be at least 1, not %lld", name,
                        (long long)window->groups);
    for (int i = 0; i < window->rank; i++) {
        if (window->stride[i] == 0) window->stride[i] = 1;
        if (window->dilation[i] == 0) window->dilation[i] = 1;
        if (window->kernel[i] == 0) window->kernel[i] = weight.dim[i + 2];
        if (window->kernel[i] != weight.dim[i + 2] || window->kernel[i] < 1)
            return lki_fail(LK_ERR_SHAPE, "%s: kernel %s does not fit weight %s", name,
                            LKI_SHOW(spatial(window->kernel, window->rank)), LKI_SHOW(weight));
        if (window->stride[i] < 0 || window->dilation[i] < 0 || window->padding[i] < 0 ||
            window->output_padding[i] < 0)
            return lki_fail(LK_ERR_INVALID,
                            "%s: stride %lld, dilation %lld, padding %lld, output padding %lld: "
                            "expected no negative number",
                            name, (long long)window->stride[i], (long long)window->dilation[i],
                            (long long)window->padding[i], (long long)window->output_padding[i]);
    }
    return LK_OK;
}

static lk_status check_bias(const lki_node *node, int64_t channels)
{
    if (!lki_has_input(node, 2)) return LK_OK;
    LKI_TRY(lki_expect_same_dtype(node, 0, 2));
    if (lk_shape_equal(node->in[2]->shape, LK_SHAPE(channels))) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: bias %s does not fit weight %s: expected (%lld,)",
                    lk_op_name(node->op), LKI_SHOW(node->in[2]->shape), LKI_SHOW(node->in[1]->shape),
                    (long long)channels);
}

/* (x (n, c, s...), w (o, c/groups, k...), b? (o)) -> (n, o, t...) */
lk_status lki_infer_conv(lki_node *node)
{
    LKI_TRY(check_rank(node));
    LKI_TRY(complete_window(node));
    const lk_window *window = &node->attr.conv.window;
    lk_shape x = node->in[0]->shape, weight = node->in[1]->shape, shape = x;
    if (x.dim[1] != weight.dim[1] * window->groups)
        return lki_fail(LK_ERR_SHAPE, "conv: input %s has %lld channels, the weight %s expects %lld",
                        LKI_SHOW(x), (long long)x.dim[1], LKI_SHOW(weight),
                        (long long)(weight.dim[1] * window->groups));
    if (weight.dim[0] % window->groups)
        return lki_fail(LK_ERR_SHAPE,
                        "conv: the %lld channels that weight %s gives do not split into %lld groups",
                        (long long)weight.dim[0], LKI_SHOW(weight), (long long)window->groups);
    LKI_TRY(check_bias(node, weight.dim[0]));
    shape.dim[1] = weight.dim[0];
    for (int i = 0; i < window->rank; i++) {
        int64_t reach = window->dilation[i] * (window->kernel[i] - 1) + 1;
        int64_t room = x.dim[i + 2] + 2 * window->padding[i] - reach;
        if (room < 0)
            return lki_fail(LK_ERR_SHAPE,
                            "conv: input %s is too small for weight %s: the kernel reaches over %lld, the "
                            "padded input has %lld",
                            LKI_SHOW(x), LKI_SHOW(weight), (long long)reach, (long long)(room + reach));
        shape.dim[i + 2] = room / window->stride[i] + 1;
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* (x (n, c, s...), w (c, o/groups, k...), b? (o)) -> (n, o, t...) */
lk_status lki_infer_conv_transpose(lki_node *node)
{
    LKI_TRY(check_rank(node));
    LKI_TRY(complete_window(node));
    const lk_window *window = &node->attr.conv.window;
    lk_shape x = node->in[0]->shape, weight = node->in[1]->shape, shape = x;
    if (x.dim[1] != weight.dim[0])
        return lki_fail(LK_ERR_SHAPE,
                        "conv_transpose: input %s has %lld channels, the weight %s expects %lld", LKI_SHOW(x),
                        (long long)x.dim[1], LKI_SHOW(weight), (long long)weight.dim[0]);
    if (x.dim[1] % window->groups)
        return lki_fail(LK_ERR_SHAPE,
                        "conv_transpose: the %lld channels of input %s do not split into %lld groups",
                        (long long)x.dim[1], LKI_SHOW(x), (long long)window->groups);
    shape.dim[1] = weight.dim[1] * window->groups;
    LKI_TRY(check_bias(node, shape.dim[1]));
    for (int i = 0; i < window->rank; i++) {
        int64_t stride = window->stride[i], dilation = window->dilation[i], extra = window->output_padding[i];
        if (extra >= stride && extra >= dilation)
            return lki_fail(LK_ERR_INVALID,
                            "conv_transpose: output padding %lld must be below the stride %lld or the "
                            "dilation %lld",
                            (long long)extra, (long long)stride, (long long)dilation);
        shape.dim[i + 2] = (x.dim[i + 2] - 1) * stride - 2 * window->padding[i] +
                           dilation * (window->kernel[i] - 1) + extra + 1;
        if (shape.dim[i + 2] < 1)
            return lki_fail(LK_ERR_SHAPE, "conv_transpose: input %s and weight %s would give shape %s",
                            LKI_SHOW(x), LKI_SHOW(weight), LKI_SHOW(shape));
    }
    lki_set_output(node, 0, node->in[0]->dtype, shape);
    return LK_OK;
}

/* (dy, x) -> dw of the attributes' shape, db (o) */
lk_status lki_infer_conv_grad_weight(lki_node *node)
{
    lki_set_output(node, 0, node->in[0]->dtype, node->attr.conv.shape);
    lki_set_output(node, 1, node->in[0]->dtype, LK_SHAPE(node->in[0]->shape.dim[1]));
    return LK_OK;
}

static bool bias_needs_grad(const lki_node *node)
{
    return lki_has_input(node, 2) && node->in[2]->needs_grad;
}

/* dx[n, c, p] = the sum over o, k of dy[n, o, q] w[o, c, k] with p = q stride + k dilation - padding;
 * dw[o, c, k] = the sum over n, q of dy[n, o, q] x[n, c, p]; db[o] = the sum over n, q of dy[n, o, q] */
/* The weights' gradient comes first: x's is then read while it is still in the caches, by the layer before,
 * and other ranks hear of the weights' earlier. */
lk_status lki_backward_conv(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *x = node->in[0], *weight = node->in[1], *dy = grad_out[0];
    lk_attr attr = {.conv.window = node->attr.conv.window};
    if (weight->needs_grad) {
        attr.conv.shape = weight->shape;
        attr.conv.wants_bias = bias_needs_grad(node);
        grad_in[1] = LKI_EMIT(LK_OP_CONV_GRAD_WEIGHT, &attr, dy, x);
        if (attr.conv.wants_bias) grad_in[2] = lki_output_of(grad_in[1], 1);
    } else if (bias_needs_grad(node)) {
        grad_in[2] = lki_sum_but(dy, 1);
    }
    if (x->needs_grad)
        grad_in[0] =
            LKI_EMIT(LK_OP_CONV_GRAD_INPUT,
                     LKI_ATTR(.conv = {.window = node->attr.conv.window, .shape = x->shape}), dy, weight);
    return lki_recorded(node);
}

/* An output padding of a stride or more lets the convolution of dy reach further than x: what it finds there
 * belongs to no element of x. `fit` cuts it off, `widen` gives x zeros there. */
static lk_value *fit(lk_value *value, lk_shape shape)
{
    if (!value || lk_shape_equal(value->shape, shape)) return value;
    lk_attr attr = {.slice = {.step = {0}}};
    for (int i = 0; i < shape.rank; i++) {
        attr.slice.end[i] = shape.dim[i];
        attr.slice.step[i] = 1;
    }
    return LKI_EMIT(LK_OP_SLICE, &attr, value);
}

static lk_value *widen(lk_value *x, const lk_window *window)
{
    lk_attr attr = {.pad.mode = LK_PAD_CONSTANT};
    bool wider = false;
    for (int i = 0; i < window->rank; i++) {
        attr.pad.after[i + 2] = window->output_padding[i] / window->stride[i];
        wider = wider || attr.pad.after[i + 2] > 0;
    }
    return wider ? LKI_EMIT(LK_OP_PAD, &attr, x) : x;
}

/* The transposed convolution is the gradient of a convolution from y to x, so dx = conv(dy, w) and dw is that
 * convolution's weight gradient, with x in the role of its dy and dy in the role of its x; db = the sum of dy
 * over n and space. */
lk_status lki_backward_conv_transpose(lki_node *node, lk_value *const *grad_out, lk_value **grad_in)
{
    lk_value *x = node->in[0], *weight = node->in[1], *dy = grad_out[0];
    lk_attr attr = {.conv.window = node->attr.conv.window};
    for (int i = 0; i < 3; i++) attr.conv.window.output_padding[i] = 0;
    if (x->needs_grad) grad_in[0] = fit(LKI_EMIT(LK_OP_CONV, &attr, dy, weight, NULL), x->shape);
    if (weight->needs_grad) {
        attr.conv.shape = weight->shape;
        grad_in[1] = LKI_EMIT(LK_OP_CONV_GRAD_WEIGHT, &attr, widen(x, &node->attr.conv.window), dy);
    }
    if (bias_needs_grad(node)) grad_in[2] = lki_sum_but(dy, 1);
    return lki_recorded(node);
}
