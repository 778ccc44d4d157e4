/* Elementwise ops, reductions, moves and products. */
#include "onnx/builder.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EMIT(op, attributes, ...) LKI_ONNX_EMIT(b, op, attributes, __VA_ARGS__)
#define X                         lki_onnx_input(b, 0)
#define Y                         lki_onnx_input(b, 1)

/* Ops that ONNX has under another name, with the same operands and no attributes. */
static const char *const same[LK_OP_COUNT] = {
    [LK_OP_ADD] = "Add",         [LK_OP_SUB] = "Sub",
    [LK_OP_MUL] = "Mul",         [LK_OP_DIV] = "Div",
    [LK_OP_POW] = "Pow",         [LK_OP_MAXIMUM] = "Max",
    [LK_OP_MINIMUM] = "Min",     [LK_OP_EQUAL] = "Equal",
    [LK_OP_GREATER] = "Greater", [LK_OP_GREATER_EQUAL] = "GreaterOrEqual",
    [LK_OP_WHERE] = "Where",     [LK_OP_NEG] = "Neg",
    [LK_OP_ABS] = "Abs",         [LK_OP_SIGN] = "Sign",
    [LK_OP_EXP] = "Exp",         [LK_OP_LOG] = "Log",
    [LK_OP_SQRT] = "Sqrt",       [LK_OP_SIN] = "Sin",
    [LK_OP_COS] = "Cos",         [LK_OP_ERF] = "Erf",
    [LK_OP_TANH] = "Tanh",       [LK_OP_RELU] = "Relu",
    [LK_OP_SIGMOID] = "Sigmoid", [LK_OP_COPY] = "Identity",
};

static const char *number(lki_onnx_builder *b, double value)
{
    return lki_onnx_number(b, b->node->out[0]->dtype, value);
}

/* x (1 + erf(x / sqrt 2)) / 2, or its approximation by tanh. */
static const char *gelu(lki_onnx_builder *b)
{
    const char *inside;
    if (b->node->attr.scalar.by_tanh) {
        const char *cube = EMIT("Pow", NULL, X, number(b, 3));
        const char *sum = EMIT("Add", NULL, X, EMIT("Mul", NULL, cube, number(b, 0.044715)));
        inside = EMIT("Tanh", NULL, EMIT("Mul", NULL, sum, number(b, 0.79788456080286535588)));
    } else {
        inside = EMIT("Erf", NULL, EMIT("Mul", NULL, X, number(b, 0.70710678118654752440)));
    }
    return EMIT("Mul", NULL, EMIT("Mul", NULL, X, number(b, 0.5)), EMIT("Add", NULL, inside, number(b, 1)));
}

/* log(1 + exp(beta x)) / beta, and x where beta x is beyond the threshold. */
static const char *softplus(lki_onnx_builder *b)
{
    double beta = b->node->attr.scalar.softplus.beta;
    const char *scaled = EMIT("Mul", NULL, X, number(b, beta));
    const char *smooth = EMIT("Div", NULL, EMIT("Softplus", NULL, scaled), number(b, beta));
    const char *beyond = EMIT("Greater", NULL, scaled, number(b, b->node->attr.scalar.softplus.threshold));
    return EMIT("Where", NULL, beyond, X, smooth);
}

static const char *scalar_op(lki_onnx_builder *b)
{
    const lk_scalar_attr *own = &b->node->attr.scalar;
    switch (b->node->op) {
    case LK_OP_ADD_SCALAR: return EMIT("Add", NULL, X, number(b, own->number));
    case LK_OP_MUL_SCALAR: return EMIT("Mul", NULL, X, number(b, own->number));
    case LK_OP_POW_SCALAR: return EMIT("Pow", NULL, X, number(b, own->number));
    case LK_OP_LEAKY_RELU:
        return EMIT("LeakyRelu", LKI_ONNX_ATTRIBUTES(LKI_ONNX_REAL("alpha", own->slope)), X);
    case LK_OP_ELU: return EMIT("Elu", LKI_ONNX_ATTRIBUTES(LKI_ONNX_REAL("alpha", own->alpha)), X);
    case LK_OP_GELU: return gelu(b);
    case LK_OP_SILU: return EMIT("Mul", NULL, X, EMIT("Sigmoid", NULL, X));
    case LK_OP_SOFTPLUS: return softplus(b);
    case LK_OP_CLAMP:
        return EMIT("Min", NULL, EMIT("Max", NULL, X, number(b, own->clamp.min)), number(b, own->clamp.max));
    case LK_OP_CAST:
        return EMIT("Cast",
                    LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("to", lki_onnx_type_of(b->node->attr.cast.dtype))), X);
    default: return NULL;
    }
}

/* ---- Reductions ---- */

static int axes_of(const lki_node *node, int64_t *axes)
{
    int count = 0;
    for (int i = 0; i < node->in[0]->shape.rank; i++)
        if (node->attr.reduce.axes >> i & 1) axes[count++] = i;
    return count;
}

static const char *variance(lki_onnx_builder *b, const int64_t *axes, int count)
{
    const lki_node *node = b->node;
    int64_t points = 1;
    for (int i = 0; i < count; i++) {
        if (node->in[0]->shape.dim[axes[i]] != b->twin->in[0]->shape.dim[axes[i]])
            return lki_onnx_refuse(b, "a variance over the batch has no standard op in ONNX");
        points *= node->in[0]->shape.dim[axes[i]];
    }
    const char *mean = EMIT("ReduceMean", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INTS("axes", axes, count)), X);
    const char *apart = EMIT("Sub", NULL, X, mean);
    const char *square = EMIT("Mul", NULL, apart, apart);
    const char *sum =
        EMIT("ReduceSum", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("keepdims", node->attr.reduce.keep_dims)), square,
             lki_onnx_ints(b, axes, count));
    return EMIT("Div", NULL, sum, number(b, (double)(points - node->attr.reduce.correction)));
}

static const char *reduction(lki_onnx_builder *b)
{
    int64_t axes[LK_MAX_DIMS];
    int count = axes_of(b->node, axes), rank = b->node->in[0]->shape.rank;
    bool keep = lk_op_family_of(b->node->op) == LK_FAMILY_REDUCE && b->node->attr.reduce.keep_dims;
    const lk_axis_attr *along = &b->node->attr.axis;
    int64_t axis = along->axis < 0 ? along->axis + rank : along->axis;
    switch (b->node->op) {
    case LK_OP_SUM:
        return EMIT("ReduceSum", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("keepdims", keep)), X,
                    lki_onnx_ints(b, axes, count));
    case LK_OP_MEAN:
    case LK_OP_MAX:
        return EMIT(b->node->op == LK_OP_MEAN ? "ReduceMean" : "ReduceMax",
                    LKI_ONNX_ATTRIBUTES(LKI_ONNX_INTS("axes", axes, count), LKI_ONNX_INT("keepdims", keep)),
                    X);
    case LK_OP_VAR: return variance(b, axes, count);
    case LK_OP_ARGMAX:
        return EMIT(
            "ArgMax",
            LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", axis), LKI_ONNX_INT("keepdims", along->keep_dims)), X);
    case LK_OP_SOFTMAX: return EMIT("Softmax", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", axis)), X);
    case LK_OP_LOG_SOFTMAX: return EMIT("LogSoftmax", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", axis)), X);
    default: return NULL;
    }
}

/* ---- Moves ---- */

/* The shape of the result as a value: the batch comes from the input's own. */
static const char *dynamic_shape(lki_onnx_builder *b)
{
    lk_shape shape = b->node->out[0]->shape, other = b->twin->out[0]->shape;
    const char *parts[LK_MAX_DIMS + 1] = {NULL};
    const char *sizes = EMIT("Shape", NULL, "input");
    const char *batch = EMIT("Gather", NULL, sizes, lki_onnx_ints(b, (const int64_t[]){0}, 1));
    for (int i = 0; i < shape.rank; i++) {
        bool is_batch = shape.dim[i] == b->batch && other.dim[i] == b->other_batch;
        if (shape.dim[i] != other.dim[i] && !is_batch)
            return lki_onnx_refuse(b, "its shape depends on the batch in a way that ONNX cannot say");
        parts[i] = is_batch ? batch : lki_onnx_ints(b, &shape.dim[i], 1);
    }
    if (b->status) return NULL;
    if (!shape.rank) return lki_onnx_ints(b, shape.dim, 0);
    return lki_onnx_emit(b, "Concat", parts, LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", 0)));
}

static const char *reshape(lki_onnx_builder *b)
{
    int64_t dims[LK_MAX_DIMS];
    int rank = b->node->out[0]->shape.rank;
    return EMIT("Reshape", NULL, X,
                lki_onnx_shape(b, dims) ? lki_onnx_ints(b, dims, rank) : dynamic_shape(b));
}

static const char *permute(lki_onnx_builder *b)
{
    int64_t order[LK_MAX_DIMS];
    int rank = b->node->out[0]->shape.rank;
    for (int i = 0; i < rank; i++) order[i] = b->node->attr.permute.order[i];
    return EMIT("Transpose", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INTS("perm", order, rank)), X);
}

static const char *slice(lki_onnx_builder *b)
{
    const lk_slice_attr *own = &b->node->attr.slice, *other = &b->twin->attr.slice;
    lk_shape in = b->node->in[0]->shape, twin = b->twin->in[0]->shape;
    int64_t axes[LK_MAX_DIMS], end[LK_MAX_DIMS];
    for (int i = 0; i < in.rank; i++) {
        bool to_end = own->end[i] == in.dim[i] && other->end[i] == twin.dim[i];
        if (own->begin[i] != other->begin[i] || (!to_end && own->end[i] != other->end[i]))
            return lki_onnx_refuse(b, "a slice depends on the batch size");
        axes[i] = i;
        end[i] = to_end ? INT64_MAX : own->end[i];
    }
    return EMIT("Slice", NULL, X, lki_onnx_ints(b, own->begin, in.rank), lki_onnx_ints(b, end, in.rank),
                lki_onnx_ints(b, axes, in.rank), lki_onnx_ints(b, own->step, in.rank));
}

static const char *concat(lki_onnx_builder *b)
{
    const char *inputs[64] = {NULL};
    if (b->node->input_count > 63) return lki_onnx_refuse(b, "more than 63 values are joined");
    for (int i = 0; i < b->node->input_count; i++) inputs[i] = lki_onnx_input(b, i);
    int axis = b->node->attr.axis.axis;
    if (axis < 0) axis += b->node->out[0]->shape.rank;
    return lki_onnx_emit(b, "Concat", inputs, LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", axis)));
}

static const char *pad(lki_onnx_builder *b)
{
    static const char *const modes[] = {
        [LK_PAD_CONSTANT] = "constant", [LK_PAD_REFLECT] = "reflect", [LK_PAD_REPLICATE] = "edge"};
    const lk_pad_attr *own = &b->node->attr.pad;
    int rank = b->node->out[0]->shape.rank;
    int64_t pads[2 * LK_MAX_DIMS];
    if (own->mode == LK_PAD_CIRCULAR)
        return lki_onnx_refuse(b, "circular padding has no standard op in opset 17 of ONNX");
    memcpy(pads, own->before, sizeof *pads * (size_t)rank);
    memcpy(pads + rank, own->after, sizeof *pads * (size_t)rank);
    return EMIT("Pad", LKI_ONNX_ATTRIBUTES(LKI_ONNX_TEXT("mode", modes[own->mode])), X,
                lki_onnx_ints(b, pads, 2 * rank), number(b, own->value));
}

static const char *move(lki_onnx_builder *b)
{
    switch (b->node->op) {
    case LK_OP_RESHAPE: return reshape(b);
    case LK_OP_PERMUTE: return permute(b);
    case LK_OP_EXPAND: return EMIT("Expand", NULL, X, dynamic_shape(b));
    case LK_OP_FULL: return EMIT("Expand", NULL, number(b, b->node->attr.fill.value), dynamic_shape(b));
    case LK_OP_SLICE: return slice(b);
    case LK_OP_CONCAT: return concat(b);
    case LK_OP_PAD: return pad(b);
    case LK_OP_GATHER:
        return EMIT("GatherElements", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", b->node->attr.gather.axis)), X,
                    Y);
    case LK_OP_EMBEDDING: return EMIT("Gather", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", 0)), X, Y);
    default: return NULL;
    }
}

/* ---- Products ---- */

static const char *turned(lki_onnx_builder *b, int index, bool is_turned)
{
    int64_t order[LK_MAX_DIMS];
    int rank = b->node->in[index]->shape.rank;
    if (!is_turned) return lki_onnx_input(b, index);
    for (int i = 0; i < rank; i++) order[i] = i < rank - 2 ? i : 2 * rank - 3 - i;
    return EMIT("Transpose", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INTS("perm", order, rank)),
                lki_onnx_input(b, index));
}

static const char *product(lki_onnx_builder *b)
{
    const lki_node *node = b->node;
    if (node->op == LK_OP_MATMUL)
        return EMIT("MatMul", NULL, turned(b, 0, node->attr.matmul.transpose_a),
                    turned(b, 1, node->attr.matmul.transpose_b));
    if (node->op != LK_OP_LINEAR) return NULL;
    if (node->in[0]->shape.rank == 2)
        return EMIT("Gemm", LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("transB", 1)), X, Y, lki_onnx_input(b, 2));
    const char *result = EMIT("MatMul", NULL, X, turned(b, 1, true));
    bool has_bias = node->input_count > 2 && node->in[2];
    return has_bias ? EMIT("Add", NULL, result, lki_onnx_input(b, 2)) : result;
}

const char *lki_onnx_translate(lki_onnx_builder *b)
{
    char why[160];
    const lki_node *node = b->node;
    const char *inputs[4] = {NULL}, *result;
    if (same[node->op]) {
        for (int i = 0; i < node->input_count && i < 3; i++) inputs[i] = lki_onnx_input(b, i);
        return lki_onnx_emit(b, same[node->op], inputs, NULL);
    }
    const char *(*const groups[])(lki_onnx_builder *) = {scalar_op, reduction, move, product,
                                                         lki_onnx_translate_layer};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        result = groups[i](b);
        if (result || b->status) return result;
    }
    snprintf(why, sizeof why, "%s has no standard op in opset 17 of ONNX", lk_op_name(node->op));
    return lki_onnx_refuse(b, why);
}
