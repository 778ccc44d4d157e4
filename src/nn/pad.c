/* Layers that move numbers: padding, and channels that become places. */
#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>

typedef struct pad_context {
    int rank; /* spatial axes */
    int64_t before[3], after[3];
    lk_pad_mode mode;
    double value;
} pad_context;

static lk_value *pad_forward(lk_module *module, lk_value *x)
{
    const pad_context *own = module->context;
    lk_shape shape = lk_value_shape(x);
    int64_t before[LK_MAX_DIMS] = {0}, after[LK_MAX_DIMS] = {0};
    if (shape.rank != own->rank + 1 && shape.rank != own->rank + 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected an input of %d or %d dimensions, found %s", own->rank + 1,
                              own->rank + 2, lk_shape_format(text, sizeof text, shape));
    }
    for (int i = 0; i < own->rank; i++) {
        int axis = shape.rank - own->rank + i;
        int64_t begin = own->before[i] < 0 ? -own->before[i] : 0;
        int64_t end = own->after[i] < 0 ? shape.dim[axis] + own->after[i] : shape.dim[axis];
        if (begin >= end && shape.dim[axis] > 0)
            return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "axis %d of %lld places cannot lose %lld",
                                  axis, (long long)shape.dim[axis],
                                  (long long)(begin + shape.dim[axis] - end));
        before[axis] = own->before[i] < 0 ? 0 : own->before[i];
        after[axis] = own->after[i] < 0 ? 0 : own->after[i];
        if (begin > 0 || end < shape.dim[axis])
            x = lk_op_slice(x, axis, begin, end, 1); /* negative padding crops */
    }
    return lk_op_pad(x, before, after, own->mode, own->value);
}

/* PyTorch lists the last axis first: left, right, top, bottom, front, back. */
static lk_module *create_pad(const char *name, int rank, lk_pad_mode mode, int64_t all,
                             const lk_pad_options *options)
{
    char type[24];
    pad_context own = {.rank = rank, .mode = mode, .value = options->value};
    bool each = false;
    snprintf(type, sizeof type, "%s%dd", name, rank);
    for (int i = 0; i < 2 * rank; i++) each = each || options->paddings[i];
    for (int i = 2 * rank; i < 6; i++)
        if (options->paddings[i])
            return lki_fail_null(LK_ERR_INVALID, "%s: paddings: expected %d numbers", type, 2 * rank);
    for (int i = 0; i < rank; i++) {
        own.before[rank - 1 - i] = each ? options->paddings[2 * i] : all;
        own.after[rank - 1 - i] = each ? options->paddings[2 * i + 1] : all;
    }
    if (options->value != 0 && mode != LK_PAD_CONSTANT)
        return lki_fail_null(LK_ERR_INVALID, "%s: value belongs to ConstantPad%dd", type, rank);
    if (isnan(options->value))
        return lki_fail_null(LK_ERR_INVALID, "%s: value: expected a number, found nan", type);
    for (int i = 0; i < rank; i++)
        if (mode != LK_PAD_CONSTANT && (own.before[i] < 0 || own.after[i] < 0))
            return lki_fail_null(LK_ERR_INVALID, "%s: padding: expected at least 0, found %lld", type,
                                 (long long)(own.before[i] < 0 ? own.before[i] : own.after[i]));
    return lki_module_create(type, pad_forward, &own, sizeof own);
}

#define PAD(function, name, rank, mode)                                                                      \
    lk_module *function(int64_t padding, const lk_pad_options *given)                                        \
    {                                                                                                        \
        LKI_TAKE(lk_pad_options, options, given, NULL);                                                      \
        return create_pad(name, rank, mode, padding, &options);                                              \
    }
PAD(lk_constant_pad1d_with, "ConstantPad", 1, LK_PAD_CONSTANT)
PAD(lk_constant_pad2d_with, "ConstantPad", 2, LK_PAD_CONSTANT)
PAD(lk_constant_pad3d_with, "ConstantPad", 3, LK_PAD_CONSTANT)
PAD(lk_reflection_pad1d_with, "ReflectionPad", 1, LK_PAD_REFLECT)
PAD(lk_reflection_pad2d_with, "ReflectionPad", 2, LK_PAD_REFLECT)
PAD(lk_reflection_pad3d_with, "ReflectionPad", 3, LK_PAD_REFLECT)
PAD(lk_replication_pad1d_with, "ReplicationPad", 1, LK_PAD_REPLICATE)
PAD(lk_replication_pad2d_with, "ReplicationPad", 2, LK_PAD_REPLICATE)
PAD(lk_replication_pad3d_with, "ReplicationPad", 3, LK_PAD_REPLICATE)

lk_module *lk_zero_pad2d_with(int64_t padding, const lk_pad_options *given)
{
    LKI_TAKE(lk_pad_options, options, given, NULL);
    if (options.value != 0) return lki_fail_null(LK_ERR_INVALID, "ZeroPad2d: value belongs to ConstantPad2d");
    return create_pad("ZeroPad", 2, LK_PAD_CONSTANT, padding, &options);
}

/* ---- pixel shuffle ---- */

static lk_value *shape_error(lk_value *x, const char *expected, int64_t factor)
{
    char text[128];
    return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                          "expected (..., C, H, W) with %s divisible by %lld, found %s", expected,
                          (long long)factor, lk_shape_format(text, sizeof text, lk_value_shape(x)));
}

/* (n, c r r, h, w) -> (n, c, r, r, h, w) -> (n, c, h, r, w, r) -> (n, c, h r, w r) */
static lk_value *pixel_shuffle_forward(lk_module *module, lk_value *x)
{
    static const int order[] = {0, 1, 4, 2, 5, 3};
    int64_t r = *(const int64_t *)module->context;
    lk_shape shape = lk_value_shape(x), out = shape;
    int last = shape.rank - 1;
    if (shape.rank < 3 || shape.dim[last - 2] % (r * r)) return shape_error(x, "C", r * r);
    int64_t n = 1, c = shape.dim[last - 2] / (r * r), h = shape.dim[last - 1], w = shape.dim[last];
    for (int i = 0; i < last - 2; i++) n *= shape.dim[i];
    out.dim[last - 2] = c;
    out.dim[last - 1] = h * r;
    out.dim[last] = w * r;
    return lk_op_reshape(lk_op_permute(lk_op_reshape(x, LK_SHAPE(n, c, r, r, h, w)), order), out);
}

/* (n, c, h r, w r) -> (n, c, h, r, w, r) -> (n, c, r, r, h, w) -> (n, c r r, h, w) */
static lk_value *pixel_unshuffle_forward(lk_module *module, lk_value *x)
{
    static const int order[] = {0, 1, 3, 5, 2, 4};
    int64_t r = *(const int64_t *)module->context;
    lk_shape shape = lk_value_shape(x), out = shape;
    int last = shape.rank - 1;
    if (shape.rank < 3 || shape.dim[last - 1] % r || shape.dim[last] % r) return shape_error(x, "H and W", r);
    int64_t n = 1, c = shape.dim[last - 2], h = shape.dim[last - 1] / r, w = shape.dim[last] / r;
    for (int i = 0; i < last - 2; i++) n *= shape.dim[i];
    out.dim[last - 2] = c * r * r;
    out.dim[last - 1] = h;
    out.dim[last] = w;
    return lk_op_reshape(lk_op_permute(lk_op_reshape(x, LK_SHAPE(n, c, h, r, w, r)), order), out);
}

static lk_module *create_shuffle(const char *type, lk_module_function forward, int64_t factor)
{
    enum { MOST = 1 << 20 };
    if (factor < 1 || factor > MOST)
        return lki_fail_null(LK_ERR_INVALID, "%s: expected a factor from 1 to %d, found %lld", type, MOST,
                             (long long)factor);
    return lki_module_create(type, forward, &factor, sizeof factor);
}

lk_module *lk_pixel_shuffle(int64_t upscale_factor)
{
    return create_shuffle("PixelShuffle", pixel_shuffle_forward, upscale_factor);
}

lk_module *lk_pixel_unshuffle(int64_t downscale_factor)
{
    return create_shuffle("PixelUnshuffle", pixel_unshuffle_forward, downscale_factor);
}
