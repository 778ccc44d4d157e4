/* Layers that treat each channel of each sample apart: instance norm, dropout of whole channels, and adaptive
 * max pooling. */
#include "nn/running.h"
#include "nn/window_options.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>
#include <stdio.h>

/* ---- instance norm ---- */

typedef struct instance_norm_context {
    int rank;
    int64_t features;
    double eps, momentum;
} instance_norm_context;

/* The running values follow the means, over the samples, of each sample's mean and variance. */
static void track(lk_module *module, lk_value *x)
{
    const instance_norm_context *own = module->context;
    int axes[LK_MAX_DIMS];
    for (int i = 0; i < own->rank; i++) axes[i] = i + 2;
    lk_value *fixed = lk_op_detach(x), *share = lki_scalar_like(x, own->momentum);
    lk_value *mean = lk_op_mean(fixed, axes, own->rank, false);
    lk_value *var = lk_op_var(fixed, axes, own->rank, false, 1);
    lki_move_running(lki_module_value(module, x, "running_mean"), lk_op_mean(mean, LK_AXES(0), false), share);
    lki_move_running(lki_module_value(module, x, "running_var"), lk_op_mean(var, LK_AXES(0), false), share);
}

/* By the samples' own statistics it is a group norm with a group per channel. */
static lk_value *instance_norm_forward(lk_module *module, lk_value *x)
{
    const instance_norm_context *own = module->context;
    bool was_added;
    x = lki_batch(x, own->rank, &was_added);
    lk_shape shape = lk_value_shape(x);
    char text[128];
    if (shape.rank != own->rank + 2 || shape.dim[1] != own->features)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected an input of %d dimensions with %lld channels, found %s",
                              own->rank + 2, (long long)own->features,
                              lk_shape_format(text, sizeof text, shape));
    lk_value *weight = lki_module_value(module, x, "weight"), *bias = lki_module_value(module, x, "bias");
    bool is_training = lk_graph_is_training(lk_value_graph(x));
    lk_value *running_mean = lki_module_value(module, x, "running_mean");
    if (running_mean && !is_training)
        return lki_unbatch(lk_op_batch_norm(x, weight, bias, running_mean,
                                            lki_module_value(module, x, "running_var"), 0, own->eps),
                           was_added);
    if (lk_shape_count(shape) == shape.dim[0] * shape.dim[1])
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected more than 1 value per channel, found an input of %s",
                              lk_shape_format(text, sizeof text, shape));
    if (running_mean) track(module, x);
    return lki_unbatch(lk_op_group_norm(x, weight, bias, own->features, own->eps), was_added);
}

static lk_module *create_instance_norm(int rank, int64_t features, const lk_instance_norm_options *options)
{
    char type[24];
    snprintf(type, sizeof type, "InstanceNorm%dd", rank);
    instance_norm_context own = {rank, features, lki_number_or(options->eps, 1e-5),
                                 lki_number_or(options->momentum, 0.1)};
    if (features < 1)
        return lki_fail_null(LK_ERR_INVALID, "%s: expected at least 1 feature, found %lld", type,
                             (long long)features);
    if (!(own.eps >= 0) || isinf(own.eps))
        return lki_fail_null(LK_ERR_INVALID, "%s: eps: expected a number of at least 0, found %g", type,
                             own.eps);
    if (lki_number_given(options->momentum) && !options->track_running_stats)
        return lki_fail_null(LK_ERR_INVALID, "%s: momentum is for track_running_stats", type);
    if (!isfinite(own.momentum))
        return lki_fail_null(LK_ERR_INVALID, "%s: momentum: expected a number, found %g", type, own.momentum);
    lk_module *module = lki_module_create(type, instance_norm_forward, &own, sizeof own);
    if (options->affine) {
        lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(features));
        lki_module_new_param(module, "bias", LK_SHAPE(features));
        if (weight) lki_module_note(module, lk_init_constant(weight, 1));
    }
    if (options->track_running_stats) {
        lki_module_new_buffer(module, "running_mean", LK_F32, LK_SHAPE(features));
        lk_param *variance = lki_module_new_buffer(module, "running_var", LK_F32, LK_SHAPE(features));
        lki_module_new_buffer(module, "num_batches_tracked", LK_I64,
                              lk_scalar_shape()); /* stays 0, as PyTorch's */
        if (variance) lki_module_note(module, lk_init_constant(variance, 1));
    }
    return lki_module_checked(module);
}

lk_module *lk_instance_norm1d_with(int64_t features, const lk_instance_norm_options *given)
{
    LKI_TAKE(lk_instance_norm_options, options, given, NULL);
    return create_instance_norm(1, features, &options);
}

lk_module *lk_instance_norm2d_with(int64_t features, const lk_instance_norm_options *given)
{
    LKI_TAKE(lk_instance_norm_options, options, given, NULL);
    return create_instance_norm(2, features, &options);
}

lk_module *lk_instance_norm3d_with(int64_t features, const lk_instance_norm_options *given)
{
    LKI_TAKE(lk_instance_norm_options, options, given, NULL);
    return create_instance_norm(3, features, &options);
}

/* ---- dropout of channels ---- */

typedef struct channel_dropout {
    int rank;
    double p;
} channel_dropout;

/* x times a mask of one number per sample and channel, as PyTorch draws it. Dropout2d takes (N, C, L), too.
 */
static lk_value *channel_dropout_forward(lk_module *module, lk_value *x)
{
    const channel_dropout *own = module->context;
    bool was_added = false;
    if (own->p <= 0) return x;
    if (own->rank != 2) x = lki_batch(x, own->rank, &was_added);
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != own->rank + 2 && !(own->rank == 2 && shape.rank == 3)) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected an input of %d dimensions, found %s",
                              own->rank + 2, lk_shape_format(text, sizeof text, shape));
    }
    lk_shape mask = shape;
    for (int i = 2; i < mask.rank; i++) mask.dim[i] = 1;
    lk_attr ones = {.fill = {.value = 1, .dtype = lk_value_dtype(x), .shape = mask}};
    lk_value *kept = lk_op_dropout(lki_record(lk_value_graph(x), LK_OP_FULL, NULL, 0, 0, &ones), own->p);
    return lki_unbatch(lk_op_mul(x, kept), was_added);
}

static lk_module *create_channel_dropout(int rank, const lk_dropout_options *options)
{
    char type[16];
    channel_dropout own = {rank, lki_number_or(options->p, 0.5)};
    snprintf(type, sizeof type, "Dropout%dd", rank);
    if (!(own.p >= 0 && own.p <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: p: expected a probability, found %g", type, own.p);
    return lki_module_create(type, channel_dropout_forward, &own, sizeof own);
}

lk_module *lk_dropout1d_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    return create_channel_dropout(1, &options);
}

lk_module *lk_dropout2d_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    return create_channel_dropout(2, &options);
}

lk_module *lk_dropout3d_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    return create_channel_dropout(3, &options);
}

/* ---- adaptive max pooling ---- */

typedef struct adaptive_context {
    int rank;
    int64_t size[3]; /* 0: the input's */
} adaptive_context;

/* The largest of windows along one spatial axis. Window i of n over a size of s reaches from floor(i s / n)
 * to ceil((i + 1) s / n). */
static lk_value *pool_axis(lk_value *x, int rank, int place, int64_t count)
{
    int axis = 2 + place;
    int64_t size = lk_value_shape(x).dim[axis];
    lk_window window = {
        .rank = rank, .groups = 1, .kernel = {1, 1, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    if (count == size) return x;
    if (size % count == 0) {
        window.kernel[place] = window.stride[place] = size / count;
        return lk_op_max_pool(x, window);
    }
    lk_value *joined = NULL;
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = i * size / count, end = ((i + 1) * size + count - 1) / count;
        window.kernel[place] = window.stride[place] = end - begin;
        lk_value *one = lk_op_max_pool(lk_op_slice(x, axis, begin, end, 1), window);
        lk_value *both[] = {joined, one};
        joined = joined ? lk_op_concat(both, 2, axis) : one;
    }
    return joined;
}

/* The last axis first: of equal numbers the first wins, as in PyTorch. */
static lk_value *adaptive_max_forward(lk_module *module, lk_value *x)
{
    const adaptive_context *own = module->context;
    bool was_added;
    x = lki_batch(x, own->rank, &was_added);
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != own->rank + 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected an input of %d dimensions, found %s",
                              own->rank + 2, lk_shape_format(text, sizeof text, shape));
    }
    for (int i = own->rank - 1; i >= 0 && x; i--)
        if (own->size[i]) x = pool_axis(x, own->rank, i, own->size[i]);
    return lki_unbatch(x, was_added);
}

static lk_module *create_adaptive_max(int rank, int64_t size, const lk_adaptive_pool_options *options)
{
    char type[24];
    adaptive_context own = {.rank = rank};
    snprintf(type, sizeof type, "AdaptiveMaxPool%dd", rank);
    lki_spread(own.size, rank, size, options->output_sizes, 0);
    if (lki_check_each(type, "output_size", own.size, rank, 0) != LK_OK) return NULL;
    return lki_module_create(type, adaptive_max_forward, &own, sizeof own);
}

lk_module *lk_adaptive_max_pool1d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive_max(1, output_size, &options);
}

lk_module *lk_adaptive_max_pool2d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive_max(2, output_size, &options);
}

lk_module *lk_adaptive_max_pool3d_with(int64_t output_size, const lk_adaptive_pool_options *given)
{
    LKI_TAKE(lk_adaptive_pool_options, options, given, NULL);
    return create_adaptive_max(3, output_size, &options);
}
