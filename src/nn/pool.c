/* Pooling and upsampling. */
#include "nn/window_options.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>
#include <stdio.h>

static lk_value *max_pool_forward(lk_module *module, lk_value *x)
{
    const lk_window *window = module->context;
    bool was_added;
    x = lki_batch(x, window->rank, &was_added);
    return lki_unbatch(lk_op_max_pool(x, *window), was_added);
}

static lk_value *avg_pool_forward(lk_module *module, lk_value *x)
{
    const lk_window *window = module->context;
    bool was_added;
    x = lki_batch(x, window->rank, &was_added);
    return lki_unbatch(lk_op_avg_pool(x, *window), was_added);
}

static lk_status read_window(const char *type, int rank, int64_t kernel, const lk_pool_options *options,
                             lk_window *window)
{
    *window = (lk_window){.rank = rank,
                          .groups = 1,
                          .ceil_mode = options->ceil_mode,
                          .exclude_pad = options->no_count_include_pad,
                          .divisor = options->divisor_override};
    lki_spread(window->kernel, rank, kernel, options->kernels, 0);
    lki_spread(window->stride, rank, options->stride, options->strides, 0);
    lki_spread(window->padding, rank, options->padding, options->paddings, 0);
    lki_spread(window->dilation, rank, options->dilation, options->dilations, 1);
    for (int i = 0; i < rank; i++)
        if (window->stride[i] == 0) window->stride[i] = window->kernel[i];
    LKI_TRY(lki_check_each(type, "kernel", window->kernel, rank, 1));
    LKI_TRY(lki_check_each(type, "stride", window->stride, rank, 1));
    LKI_TRY(lki_check_each(type, "padding", window->padding, rank, 0));
    LKI_TRY(lki_check_each(type, "dilation", window->dilation, rank, 1));
    for (int i = 0; i < rank; i++)
        if (window->padding[i] > window->kernel[i] / 2)
            return lki_fail(LK_ERR_INVALID,
                            "%s: padding: expected at most half of the kernel %lld, found %lld", type,
                            (long long)window->kernel[i], (long long)window->padding[i]);
    return LK_OK;
}

static lk_module *create_pool(int rank, bool is_max, int64_t kernel, const lk_pool_options *options)
{
    char type[16];
    lk_window window;
    snprintf(type, sizeof type, "%sPool%dd", is_max ? "Max" : "Avg", rank);
    if (read_window(type, rank, kernel, options, &window) != LK_OK) return NULL;
    if (is_max && (options->no_count_include_pad || options->divisor_override))
        return lki_fail_null(LK_ERR_INVALID,
                             "%s: no_count_include_pad and divisor_override belong to average pooling", type);
    if (options->divisor_override < 0 || (options->divisor_override && rank == 1))
        return lki_fail_null(LK_ERR_INVALID,
                             "%s: divisor_override: expected at least 1, in two and three dimensions", type);
    if (!is_max && (options->dilation || options->dilations[0]))
        return lki_fail_null(LK_ERR_INVALID, "%s: dilation belongs to max pooling", type);
    return lki_module_create(type, is_max ? max_pool_forward : avg_pool_forward, &window, sizeof window);
}

lk_module *lk_max_pool1d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(1, true, kernel, &options);
}

lk_module *lk_max_pool2d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(2, true, kernel, &options);
}

lk_module *lk_max_pool3d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(3, true, kernel, &options);
}

lk_module *lk_avg_pool1d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(1, false, kernel, &options);
}

lk_module *lk_avg_pool2d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(2, false, kernel, &options);
}

lk_module *lk_avg_pool3d_with(int64_t kernel, const lk_pool_options *given)
{
    LKI_TAKE(lk_pool_options, options, given, NULL);
    return create_pool(3, false, kernel, &options);
}

/* ---- adaptive ---- */

typedef struct adaptive_context {
    int rank;
    int64_t size[3]; /* 0: the input's */
} adaptive_context;

static lk_value *adaptive_forward(lk_module *module, lk_value *x)
{
    const adaptive_context *own = module->context;
    bool was_added;
    x = lki_batch(x, own->rank, &was_added);
    if (!x) return NULL;
    int64_t size[3] = {0};
    lk_shape shape = lk_value_shape(x);
    for (int i = 0; i < own->rank; i++) {
        int axis = shape.rank - own->rank + i;
        size[i] = own->size[i] || axis < 0 ? own->size[i] : shape.dim[axis];
    }
    return lki_unbatch(lk_op_adaptive_avg_pool(x, size, own->rank), was_added);
}

static lk_module *create_adaptive(int rank, int64_t size, const lk_adaptive_pool_options *options)
{
    char type[24];
    adaptive_context own = {.rank = rank};
    snprintf(type, sizeof type, "AdaptiveAvgPool%dd", rank);
    lki_spread(own.size, rank, size, options->output_sizes, 0);
    if (lki_check_each(type, "output_size", own.size, rank, 0) != LK_OK) return NULL;
    return lki_module_create(type, adaptive_forward, &own, sizeof own);
}

lk_module *lk_adaptive_avg_pool1d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive(1, output_size, &options);
}

lk_module *lk_adaptive_avg_pool2d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive(2, output_size, &options);
}

lk_module *lk_adaptive_avg_pool3d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive(3, output_size, &options);
}

/* ---- upsampling ---- */

static lk_value *upsample_forward(lk_module *module, lk_value *x)
{
    const lk_upsample_options *own = module->context;
    bool by_size = own->size || own->sizes[0];
    int64_t size[LK_MAX_DIMS] = {0};
    double scale[LK_MAX_DIMS] = {0};
    int axes = x ? lk_value_shape(x).rank - 2 : 0;
    if (x && own->axes && axes != own->axes)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "its mode is for %d spatial axes, the input has %d", own->axes, axes);
    for (int i = 0; i < 3; i++) {
        size[i] = own->sizes[0] ? own->sizes[i] : own->size;
        scale[i] = own->scale_factors[0] != 0 ? own->scale_factors[i] : own->scale_factor;
    }
    return lk_op_upsample(x, by_size ? size : NULL, by_size ? NULL : scale, own->mode, own->align_corners);
}

lk_module *lk_upsample_with(const lk_upsample_options *given)
{
    LKI_TAKE(lk_upsample_options, options, given, NULL);
    bool by_size = options.size || options.sizes[0];
    bool by_scale = options.scale_factor != 0 || options.scale_factors[0] != 0;
    if (by_size == by_scale)
        return lki_fail_null(LK_ERR_INVALID, "Upsample: expected either a size or a scale_factor, found %s",
                             by_size ? "both" : "neither");
    if (options.size < 0 || options.sizes[0] < 0 || options.scale_factor < 0 ||
        options.scale_factors[0] < 0 || !isfinite(options.scale_factor + options.scale_factors[0]))
        return lki_fail_null(LK_ERR_INVALID, "Upsample: size and scale_factor must be positive");
    if ((int)options.mode < 0 || options.mode > LK_UPSAMPLE_NEAREST_EXACT)
        return lki_fail_null(LK_ERR_INVALID, "Upsample: there is no mode %d", (int)options.mode);
    if (options.axes < 0 || options.axes > 3)
        return lki_fail_null(LK_ERR_INVALID,
                             "Upsample: axes: expected 1 to 3, or 0 for as many as there are, "
                             "found %d",
                             options.axes);
    if (options.align_corners && options.mode != LK_UPSAMPLE_LINEAR && options.mode != LK_UPSAMPLE_BICUBIC)
        return lki_fail_null(LK_ERR_INVALID,
                             "Upsample: align_corners is for linear modes and bicubic, not for nearest");
    return lki_module_create("Upsample", upsample_forward, &options, sizeof options);
}
