/* Convolutions, pools, norms and resizing. */
#include "onnx/builder.h"

#include <math.h>
#include <string.h>

#define EMIT(op, attributes, ...) LKI_ONNX_EMIT(b, op, attributes, __VA_ARGS__)
#define X                         lki_onnx_input(b, 0)

/* PyTorch's zero stands for 1. */
static void window_numbers(const lk_window *w, int64_t *stride, int64_t *dilation, int64_t *pads)
{
    for (int i = 0; i < w->rank; i++) {
        stride[i] = w->stride[i] ? w->stride[i] : 1;
        dilation[i] = w->dilation[i] ? w->dilation[i] : 1;
        pads[i] = pads[w->rank + i] = w->padding[i];
    }
}

static const char *conv(lki_onnx_builder *b)
{
    const lk_window *w = &b->node->attr.conv.window;
    int64_t stride[3], dilation[3], pads[6];
    window_numbers(w, stride, dilation, pads);
    const lki_onnx_attribute attributes[] = {
        LKI_ONNX_INTS("kernel_shape", b->node->in[1]->shape.dim + 2, w->rank),
        LKI_ONNX_INTS("strides", stride, w->rank),
        LKI_ONNX_INTS("dilations", dilation, w->rank),
        LKI_ONNX_INTS("pads", pads, 2 * w->rank),
        LKI_ONNX_INT("group", w->groups ? w->groups : 1),
        /* The end of the list for a plain convolution. */
        {.name = b->node->op == LK_OP_CONV_TRANSPOSE ? "output_padding" : NULL,
         .numbers = w->output_padding,
         .count = w->rank},
        {0},
    };
    return EMIT(b->node->op == LK_OP_CONV ? "Conv" : "ConvTranspose", attributes, X, lki_onnx_input(b, 1),
                lki_onnx_input(b, 2));
}

/* PyTorch leaves out a last window that begins in the right padding; ONNX of opset 17 counts it. */
static bool counts_as_onnx(const lki_onnx_builder *b, const lk_window *w, const int64_t *stride,
                           const int64_t *dilation)
{
    lk_shape in = b->node->in[0]->shape, out = b->node->out[0]->shape;
    for (int i = 0; i < w->rank; i++) {
        int64_t room = in.dim[i + 2] + 2 * w->padding[i] - dilation[i] * (w->kernel[i] - 1) - 1;
        if ((room + stride[i] - 1) / stride[i] + 1 != out.dim[i + 2]) return false;
    }
    return true;
}

static const char *pool(lki_onnx_builder *b)
{
    const lk_window *w = &b->node->attr.pool.window;
    int64_t stride[3], dilation[3], pads[6];
    bool is_max = b->node->op == LK_OP_MAX_POOL;
    window_numbers(w, stride, dilation, pads);
    if (!is_max && (w->ceil_mode || w->divisor))
        return lki_onnx_refuse(b, "average pooling with ceil_mode or a divisor has no standard op in ONNX");
    if (w->ceil_mode && !counts_as_onnx(b, w, stride, dilation))
        return lki_onnx_refuse(b, "ONNX counts one window more with this ceil_mode and padding");
    const lki_onnx_attribute attributes[] = {
        LKI_ONNX_INTS("kernel_shape", w->kernel, w->rank),
        LKI_ONNX_INTS("strides", stride, w->rank),
        LKI_ONNX_INTS("pads", pads, 2 * w->rank),
        LKI_ONNX_INT(is_max ? "ceil_mode" : "count_include_pad", is_max ? w->ceil_mode : !w->exclude_pad),
        {.name = is_max ? "dilations" : NULL, .numbers = dilation, .count = w->rank},
        {0},
    };
    return EMIT(is_max ? "MaxPool" : "AveragePool", attributes, X);
}

/* Windows of one size, if the sizes divide each other. */
static const char *adaptive_pool(lki_onnx_builder *b)
{
    lk_shape in = b->node->in[0]->shape, out = b->node->out[0]->shape;
    int rank = b->node->attr.pool.window.rank, first = in.rank - rank;
    int64_t kernel[3];
    for (int i = 0; i < rank; i++) {
        if (in.dim[first + i] % out.dim[first + i])
            return lki_onnx_refuse(b, "adaptive pooling has a standard op in ONNX only if the sizes divide");
        kernel[i] = in.dim[first + i] / out.dim[first + i];
    }
    return EMIT("AveragePool",
                LKI_ONNX_ATTRIBUTES(LKI_ONNX_INTS("kernel_shape", kernel, rank),
                                    LKI_ONNX_INTS("strides", kernel, rank)),
                X);
}

/* ---- Norms ---- */

static const char *or_vector(lki_onnx_builder *b, int index, int64_t count, double value)
{
    const lki_node *node = b->node;
    bool is_there = index < node->input_count && node->in[index];
    return is_there ? lki_onnx_input(b, index) : lki_onnx_vector(b, node->out[0]->dtype, count, value);
}

static const char *batch_norm(lki_onnx_builder *b)
{
    const lki_node *node = b->node;
    int64_t channels = node->in[0]->shape.dim[1];
    bool has_statistics = node->input_count > 4 && node->in[3] && node->in[4];
    if (node->attr.norm.training || !has_statistics)
        return lki_onnx_refuse(b, "a batch norm without running statistics has no standard op in ONNX");
    return EMIT("BatchNormalization", LKI_ONNX_ATTRIBUTES(LKI_ONNX_REAL("epsilon", node->attr.norm.eps)), X,
                or_vector(b, 1, channels, 1), or_vector(b, 2, channels, 0), lki_onnx_input(b, 3),
                lki_onnx_input(b, 4));
}

static const char *layer_norm(lki_onnx_builder *b)
{
    const lki_node *node = b->node;
    const lk_norm_attr *own = &node->attr.norm;
    const char *weight = lki_onnx_input(b, 1);
    if (!*weight) { /* ones of the normalised shape */
        lk_shape in = node->in[0]->shape;
        const char *one = lki_onnx_number(b, node->out[0]->dtype, 1);
        weight =
            EMIT("Expand", NULL, one, lki_onnx_ints(b, in.dim + in.rank - own->axis_count, own->axis_count));
    }
    return EMIT(
        "LayerNormalization",
        LKI_ONNX_ATTRIBUTES(LKI_ONNX_INT("axis", -own->axis_count), LKI_ONNX_REAL("epsilon", own->eps)), X,
        weight, lki_onnx_input(b, 2));
}

/* (c, 1, 1 ...), to broadcast over the places of a channel. */
static const char *per_channel(lki_onnx_builder *b, int index)
{
    lk_shape in = b->node->in[0]->shape;
    int64_t dims[LK_MAX_DIMS] = {in.dim[1]};
    for (int i = 1; i < in.rank - 1; i++) dims[i] = 1;
    return EMIT("Reshape", NULL, lki_onnx_input(b, index), lki_onnx_ints(b, dims, in.rank - 1));
}

/* Each group as the one channel of an instance norm. */
static const char *group_norm(lki_onnx_builder *b)
{
    const lki_node *node = b->node;
    const lk_norm_attr *own = &node->attr.norm;
    lk_dtype dtype = node->out[0]->dtype;
    int64_t grouped[] = {0, own->group_count, -1}, dims[LK_MAX_DIMS];
    if (!lki_onnx_shape(b, dims)) return lki_onnx_refuse(b, "its shape depends on the batch in two places");
    const char *groups = EMIT("Reshape", NULL, X, lki_onnx_ints(b, grouped, 3));
    const char *normal =
        EMIT("InstanceNormalization", LKI_ONNX_ATTRIBUTES(LKI_ONNX_REAL("epsilon", own->eps)), groups,
             lki_onnx_vector(b, dtype, own->group_count, 1), lki_onnx_vector(b, dtype, own->group_count, 0));
    const char *result = EMIT("Reshape", NULL, normal, lki_onnx_ints(b, dims, node->in[0]->shape.rank));
    if (*lki_onnx_input(b, 1)) result = EMIT("Mul", NULL, result, per_channel(b, 1));
    if (*lki_onnx_input(b, 2)) result = EMIT("Add", NULL, result, per_channel(b, 2));
    return result;
}

/* ---- Resizing ---- */

static const char *upsample(lki_onnx_builder *b)
{
    const lk_upsample_attr *own = &b->node->attr.upsample;
    lk_shape in = b->node->in[0]->shape, out = b->node->out[0]->shape;
    float scales[LK_MAX_DIMS] = {0};
    bool is_linear = own->mode == LK_UPSAMPLE_LINEAR;
    /* Not pytorch_half_pixel, which has another place for the only element of an axis. */
    const char *places = !is_linear ? "asymmetric" : own->align_corners ? "align_corners" : "half_pixel";
    for (int i = 0; i < in.rank; i++) {
        int spatial = i - (in.rank - own->rank);
        bool is_copied = spatial < 0 || (is_linear && in.dim[i] == out.dim[i]); /* whatever the factor was */
        double scale = is_copied ? 1 : own->scale[spatial];
        scales[i] = (float)(scale > 0 ? scale : (double)out.dim[i] / (double)in.dim[i]);
        if (spatial >= 0 && (int64_t)floorf(scales[i] * (float)in.dim[i]) != out.dim[i])
            return lki_onnx_refuse(b, "this change of size cannot be said by a scale, as ONNX needs it");
    }
    lk_tensor *tensor = lk_tensor_from(LK_F32, LK_SHAPE(in.rank), scales);
    const char *list = lki_onnx_tensor(b, tensor);
    return EMIT("Resize",
                LKI_ONNX_ATTRIBUTES(LKI_ONNX_TEXT("mode", is_linear ? "linear" : "nearest"),
                                    LKI_ONNX_TEXT("coordinate_transformation_mode", places),
                                    LKI_ONNX_TEXT("nearest_mode", "floor")),
                X, "", list);
}

const char *lki_onnx_translate_layer(lki_onnx_builder *b)
{
    switch (b->node->op) {
    case LK_OP_CONV:
    case LK_OP_CONV_TRANSPOSE: return conv(b);
    case LK_OP_MAX_POOL:
    case LK_OP_AVG_POOL: return pool(b);
    case LK_OP_ADAPTIVE_AVG_POOL: return adaptive_pool(b);
    case LK_OP_BATCH_NORM: return batch_norm(b);
    case LK_OP_LAYER_NORM: return layer_norm(b);
    case LK_OP_GROUP_NORM: return group_norm(b);
    case LK_OP_UPSAMPLE: return upsample(b);
    default: return NULL;
    }
}
