#include "graph/record_util.h"

#include "base/status.h"

void lki_set_output(lki_node *node, int index, lk_dtype dtype, lk_shape shape)
{
    node->out[index]->dtype = dtype;
    node->out[index]->shape = shape;
}

const char *lki_node_name(const lki_node *node)
{
    static const char *const losses[] = {
        [LK_LOSS_MSE] = "mse_loss",
        [LK_LOSS_L1] = "l1_loss",
        [LK_LOSS_SMOOTH_L1] = "smooth_l1_loss",
        [LK_LOSS_HUBER] = "huber_loss",
        [LK_LOSS_BCE] = "bce_loss",
        [LK_LOSS_BCE_WITH_LOGITS] = "bce_with_logits_loss",
        [LK_LOSS_KL_DIV] = "kl_div_loss",
    };
    if (node->op != LK_OP_POINTWISE_LOSS && node->op != LK_OP_POINTWISE_LOSS_WITH_GRAD)
        return lk_op_name(node->op);
    int kind = (int)node->attr.pointwise_loss.kind;
    return kind >= LK_LOSS_MSE && kind <= LK_LOSS_KL_DIV ? losses[kind] : lk_op_name(node->op);
}

lk_reduction lki_loss_reduction(const lki_node *node)
{
    bool between_numbers = lk_op_family_of(node->op) == LK_FAMILY_POINTWISE_LOSS;
    return between_numbers ? node->attr.pointwise_loss.reduction : node->attr.class_loss.reduction;
}

bool lki_has_input(const lki_node *node, int index)
{
    return index < node->input_count && node->in[index];
}

lk_status lki_broadcast(lk_shape *out, lk_shape a, lk_shape b)
{
    lk_shape result = {.rank = a.rank > b.rank ? a.rank : b.rank};
    for (int i = 1; i <= result.rank; i++) {
        int64_t dim_a = i <= a.rank ? a.dim[a.rank - i] : 1;
        int64_t dim_b = i <= b.rank ? b.dim[b.rank - i] : 1;
        if (dim_a != dim_b && dim_a != 1 && dim_b != 1)
            return lki_fail(LK_ERR_SHAPE, "shapes %s and %s do not broadcast", LKI_SHOW(a), LKI_SHOW(b));
        result.dim[result.rank - i] = dim_a == 1 ? dim_b : dim_a;
    }
    *out = result;
    return LK_OK;
}

lk_value *lki_sum_to(lk_value *value, lk_shape shape)
{
    if (!value) return NULL;
    lk_attr attr = {.reduce.keep_dims = true};
    int added = value->shape.rank - shape.rank;
    for (int i = 0; i < value->shape.rank; i++) {
        bool grown = i >= added && shape.dim[i - added] == 1 && value->shape.dim[i] != 1;
        if ((i < added && value->shape.dim[i] != 1) || grown) attr.reduce.axes |= 1u << i;
    }
    if (attr.reduce.axes) value = LKI_EMIT(LK_OP_SUM, &attr, value);
    return lki_reshaped(value, shape);
}

lk_status lki_expect_float(const lki_node *node, int index)
{
    if (lk_dtype_is_float(node->in[index]->dtype)) return LK_OK;
    return lki_fail(LK_ERR_DTYPE, "%s: expected floating-point numbers, found %s of shape %s",
                    lki_node_name(node), lk_dtype_name(node->in[index]->dtype),
                    LKI_SHOW(node->in[index]->shape));
}

lk_status lki_expect_dtype(const lki_node *node, int index, lk_dtype dtype)
{
    if (node->in[index]->dtype == dtype) return LK_OK;
    return lki_fail(LK_ERR_DTYPE, "%s: expected %s, found %s of shape %s", lki_node_name(node),
                    lk_dtype_name(dtype), lk_dtype_name(node->in[index]->dtype),
                    LKI_SHOW(node->in[index]->shape));
}

lk_status lki_expect_same_dtype(const lki_node *node, int a, int b)
{
    if (node->in[a]->dtype == node->in[b]->dtype) return LK_OK;
    return lki_fail(LK_ERR_DTYPE, "%s: dtypes %s and %s do not mix", lki_node_name(node),
                    lk_dtype_name(node->in[a]->dtype), lk_dtype_name(node->in[b]->dtype));
}

lk_status lki_expect_operand(const lki_node *node, int index, const char *what, lk_shape shape)
{
    if (!lki_has_input(node, index)) return LK_OK;
    LKI_TRY(lki_expect_same_dtype(node, 0, index));
    if (lk_shape_equal(node->in[index]->shape, shape)) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: %s %s does not fit input %s: expected %s", lki_node_name(node), what,
                    LKI_SHOW(node->in[index]->shape), LKI_SHOW(node->in[0]->shape), LKI_SHOW(shape));
}

lk_status lki_expect_no_grad(const lki_node *node, int index, const char *what)
{
    if (!lki_has_input(node, index) || !node->in[index]->needs_grad) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "%s: its %s has no gradient, but trainable parameters are upstream of it",
                    lki_node_name(node), what);
}

lk_status lki_complete_axis(const lki_node *node, int *axis)
{
    int normal = lki_normal_axis(*axis, node->in[0]->shape.rank);
    if (normal < 0)
        return lki_fail(LK_ERR_RANGE, "%s: axis %d is outside of shape %s", lki_node_name(node), *axis,
                        LKI_SHOW(node->in[0]->shape));
    *axis = normal;
    return LK_OK;
}

/* How many of the inputs, from the first on, must be there. */
static int required_inputs(lk_op op, int input_count)
{
    switch (op) {
    case LK_OP_BATCH_NORM:
    case LK_OP_BATCH_NORM_RELU:
    case LK_OP_LAYER_NORM:
    case LK_OP_GROUP_NORM: return 1;
    case LK_OP_RECURRENT: return 2;
    case LK_OP_ATTENTION: return 1;
    case LK_OP_ATTENTION_GRAD: return 3;
    case LK_OP_RECURRENT_GRAD:
    case LK_OP_RECURRENT_GRAD_WEIGHT: return 3;
    case LK_OP_LINEAR:
    case LK_OP_CONV:
    case LK_OP_CONV_TRANSPOSE:
    case LK_OP_BATCH_NORM_GRAD:
    case LK_OP_BATCH_NORM_RELU_GRAD:
    case LK_OP_LAYER_NORM_GRAD:
    case LK_OP_GROUP_NORM_GRAD:
    case LK_OP_CROSS_ENTROPY:
    case LK_OP_NLL:
    case LK_OP_POINTWISE_LOSS:
    case LK_OP_POINTWISE_LOSS_WITH_GRAD: return 2;
    case LK_OP_CROSS_ENTROPY_GRAD:
    case LK_OP_NLL_GRAD:
    case LK_OP_POINTWISE_LOSS_GRAD: return 3;
    default: return input_count;
    }
}

lk_value *lki_emit(lk_op op, const lk_attr *attr, int input_count, lk_value *const *inputs)
{
    int required = required_inputs(op, input_count);
    for (int i = 0; i < required; i++)
        if (!inputs[i]) return NULL;
    lk_graph *graph = inputs[0]->graph;
    for (int i = 1; i < input_count; i++)
        if (inputs[i] && inputs[i]->graph != graph)
            return lki_graph_fail(graph, LK_ERR_INVALID, "%s: its operands belong to different graphs",
                                  lk_op_name(op));
    lk_attr none = {0};
    return lki_record(graph, op, inputs, input_count, required, attr ? attr : &none);
}

lk_value *lki_output_of(lk_value *value, int index)
{
    return value ? value->node->out[index] : NULL;
}

lk_status lki_recorded(const lki_node *node)
{
    return node->out[0]->graph->status;
}

lk_value *lki_scaled(lk_value *value, double factor)
{
    return factor == 1 ? value : LKI_EMIT(LK_OP_MUL_SCALAR, LKI_ATTR(.scalar.number = factor), value);
}

lk_value *lki_reshaped(lk_value *value, lk_shape shape)
{
    if (!value || lk_shape_equal(value->shape, shape)) return value;
    return LKI_EMIT(LK_OP_RESHAPE, LKI_ATTR(.shape.shape = shape), value);
}

lk_value *lki_scalar_like(const lk_value *like, double number)
{
    lk_attr attr = {.fill = {.value = number, .dtype = like->dtype, .shape = lk_scalar_shape()}};
    return lki_record(like->graph, LK_OP_FULL, NULL, 0, 0, &attr);
}

lk_value *lki_full_like(const lk_value *like, double number)
{
    lk_attr attr = {.fill = {.value = number, .dtype = like->dtype, .shape = like->shape}};
    return lki_record(like->graph, LK_OP_FULL, NULL, 0, 0, &attr);
}

lk_value *lki_sum_but(lk_value *value, int axis)
{
    if (!value) return NULL;
    uint32_t all = (1u << value->shape.rank) - 1;
    return LKI_EMIT(LK_OP_SUM, LKI_ATTR(.reduce.axes = all & ~(1u << axis)), value);
}

lk_shape lki_reduced_shape(lk_shape shape, uint32_t axes, bool keep_dims)
{
    lk_shape reduced = {0};
    for (int i = 0; i < shape.rank; i++) {
        bool gone = axes >> i & 1;
        if (gone && !keep_dims) continue;
        reduced.dim[reduced.rank++] = gone ? 1 : shape.dim[i];
    }
    return reduced;
}

int lki_normal_axis(int axis, int rank)
{
    if (axis < 0) axis += rank;
    return axis >= 0 && axis < rank ? axis : -1;
}
