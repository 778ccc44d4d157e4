/* Batch, layer and group normalisation. */
#include "nn/running.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

static lk_status check_features(const char *type, int64_t features)
{
    if (features < 1)
        return lki_fail(LK_ERR_INVALID, "%s: expected at least 1 feature, found %lld", type,
                        (long long)features);
    return LK_OK;
}

/* Weight of ones, bias of zeros. */
static void add_affine(lk_module *module, lk_shape shape)
{
    lk_param *weight = lki_module_new_param(module, "weight", shape);
    lki_module_new_param(module, "bias", shape);
    if (weight) lki_module_note(module, lk_init_constant(weight, 1));
}

/* ---- batch norm ---- */

typedef struct batch_norm_context {
    int spatial_rank;
    int64_t features;
    double eps, momentum;
    bool cumulative;
} batch_norm_context;

/* Counts the batch, in the graph itself, because the share of this batch in the running values depends on how
 * many there were. */
static lk_value *count_batch(lk_module *module, lk_value *x)
{
    lk_value *counter = lki_module_value(module, x, "num_batches_tracked");
    lk_value *count = lk_op_add_scalar(lk_op_cast(counter, LK_F64), 1);
    lki_assign(counter, lk_op_cast(count, LK_I64));
    return count;
}

/* A batch norm whose running values are the means over all batches so far. */
static lk_value *cumulative_forward(lk_module *module, lk_value *x)
{
    const batch_norm_context *own = module->context;
    lk_graph *graph = lk_value_graph(x);
    int axes[LK_MAX_DIMS], count = 0;
    if (graph->sync_comm)
        return lki_graph_fail(graph, LK_ERR_UNSUPPORTED,
                              "cumulative running values (momentum: null) cannot follow sync_batch_norm: "
                              "give a momentum");
    for (int i = 0; i < lk_value_shape(x).rank; i++)
        if (i != 1) axes[count++] = i;
    lk_value *share = lk_op_cast(lk_op_pow_scalar(count_batch(module, x), -1), lk_value_dtype(x));
    lki_move_running(lki_module_value(module, x, "running_mean"),
                     lk_op_mean(lk_op_detach(x), axes, count, false), share);
    lki_move_running(lki_module_value(module, x, "running_var"),
                     lk_op_var(lk_op_detach(x), axes, count, false, 1), share);
    return lk_op_batch_norm(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"),
                            NULL, NULL, 0, own->eps);
}

static lk_value *batch_norm_forward(lk_module *module, lk_value *x)
{
    const batch_norm_context *own = module->context;
    lk_shape shape = lk_value_shape(x);
    bool fits = shape.rank == own->spatial_rank + 2 || (own->spatial_rank == 1 && shape.rank == 2);
    if (!fits || shape.dim[1] != own->features) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected an input of %s%d dimensions with %lld channels, found %s",
                              own->spatial_rank == 1 ? "2 or " : "", own->spatial_rank + 2,
                              (long long)own->features, lk_shape_format(text, sizeof text, shape));
    }
    /* One value has no variance: PyTorch refuses it too. Batches of several ranks have more together. */
    lk_graph *graph = lk_value_graph(x);
    bool own_moments = lk_graph_is_training(graph) || !lki_module_value(module, x, "running_mean");
    if (own_moments && !graph->sync_comm && lk_shape_count(shape) == own->features) {
        char text[128];
        return lki_graph_fail(
            graph, LK_ERR_SHAPE,
            "expected more than 1 value per channel when training, found an input of %s: use a "
            "larger batch, or drop_last for a last batch of 1",
            lk_shape_format(text, sizeof text, shape));
    }
    lk_param *counter = lki_module_own_param(module, "num_batches_tracked");
    if (own->cumulative && counter && lk_graph_is_training(graph)) return cumulative_forward(module, x);
    if (counter && lk_graph_is_training(graph)) lki_graph_count_batches(graph, counter);
    return lk_op_batch_norm(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"),
                            lki_module_value(module, x, "running_mean"),
                            lki_module_value(module, x, "running_var"), own->momentum, own->eps);
}

/* eps keeps a root from 0; the momentum is a share. */
static lk_status check_numbers(const char *type, double eps, double momentum)
{
    if (!(eps >= 0) || isinf(eps))
        return lki_fail(LK_ERR_INVALID, "%s: eps: expected a number of at least 0, found %g", type, eps);
    if (!isfinite(momentum))
        return lki_fail(LK_ERR_INVALID, "%s: momentum: expected a number, found %g", type, momentum);
    return LK_OK;
}

static lk_module *create_batch_norm(int rank, int64_t features, const lk_batch_norm_options *options)
{
    char type[16];
    snprintf(type, sizeof type, "BatchNorm%dd", rank);
    if (check_features(type, features) != LK_OK) return NULL;
    if (options->cumulative && lki_number_given(options->momentum))
        return lki_fail_null(LK_ERR_INVALID, "%s: cumulative stands instead of a momentum", type);
    batch_norm_context own = {rank, features, lki_number_or(options->eps, 1e-5),
                              lki_number_or(options->momentum, 0.1), options->cumulative};
    if (check_numbers(type, own.eps, own.momentum)) return NULL;
    lk_module *module = lki_module_create(type, batch_norm_forward, &own, sizeof own);
    if (!options->no_affine) add_affine(module, LK_SHAPE(features));
    if (!options->no_track_running_stats) {
        lki_module_new_buffer(module, "running_mean", LK_F32, LK_SHAPE(features));
        lk_param *variance = lki_module_new_buffer(module, "running_var", LK_F32, LK_SHAPE(features));
        lk_param *counter = lki_module_new_buffer(module, "num_batches_tracked", LK_I64, lk_scalar_shape());
        if (counter) counter->is_computed = options->cumulative;
        if (variance) lki_module_note(module, lk_init_constant(variance, 1));
    }
    return lki_module_checked(module);
}

lk_module *lk_batch_norm1d_with(int64_t features, const lk_batch_norm_options *given)
{
    LKI_TAKE(lk_batch_norm_options, options, given, NULL);
    return create_batch_norm(1, features, &options);
}

lk_module *lk_batch_norm2d_with(int64_t features, const lk_batch_norm_options *given)
{
    LKI_TAKE(lk_batch_norm_options, options, given, NULL);
    return create_batch_norm(2, features, &options);
}

lk_module *lk_batch_norm3d_with(int64_t features, const lk_batch_norm_options *given)
{
    LKI_TAKE(lk_batch_norm_options, options, given, NULL);
    return create_batch_norm(3, features, &options);
}

/* ---- layer norm ---- */

typedef struct layer_norm_context {
    lk_shape shape;
    double eps;
} layer_norm_context;

/* Whether x's last axes have this shape; if not, the graph has failed. */
static bool ends_in(lk_value *x, lk_shape wanted)
{
    lk_shape shape = lk_value_shape(x);
    bool fits = shape.rank >= wanted.rank;
    for (int i = 0; fits && i < wanted.rank; i++)
        fits = shape.dim[shape.rank - wanted.rank + i] == wanted.dim[i];
    if (fits) return true;
    char expected[128], found[128];
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "the last axes must have the shape %s, found %s",
                   lk_shape_format(expected, sizeof expected, wanted),
                   lk_shape_format(found, sizeof found, shape));
    return false;
}

static lk_value *layer_norm_forward(lk_module *module, lk_value *x)
{
    const layer_norm_context *own = module->context;
    if (!ends_in(x, own->shape)) return NULL;
    return lk_op_layer_norm(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"),
                            own->shape.rank, own->eps);
}

lk_module *lk_layer_norm_with(lk_shape normalized_shape, const lk_norm_options *given)
{
    LKI_TAKE(lk_norm_options, options, given, NULL);
    if (normalized_shape.rank < 1 || lk_shape_count(normalized_shape) < 1)
        return lki_fail_null(LK_ERR_INVALID, "LayerNorm: expected a shape of at least 1 element");
    layer_norm_context own = {normalized_shape, lki_number_or(options.eps, 1e-5)};
    if (check_numbers("LayerNorm", own.eps, 0)) return NULL;
    lk_module *module = lki_module_create("LayerNorm", layer_norm_forward, &own, sizeof own);
    if (!options.no_affine) add_affine(module, normalized_shape);
    return lki_module_checked(module);
}

lk_module *lk_layer_norm_last_with(int64_t features, const lk_norm_options *given)
{
    LKI_TAKE(lk_norm_options, options, given, NULL);
    return lk_layer_norm_with(LK_SHAPE(features), &options);
}

/* ---- RMS norm ---- */

static lk_value *rms_norm_forward(lk_module *module, lk_value *x)
{
    const layer_norm_context *own = module->context;
    int axes[LK_MAX_DIMS];
    if (!ends_in(x, own->shape)) return NULL;
    for (int i = 0; i < own->shape.rank; i++) axes[i] = i - own->shape.rank;
    double eps = !isnan(own->eps) ? own->eps : lk_value_dtype(x) == LK_F64 ? DBL_EPSILON : FLT_EPSILON;
    lk_value *mean = lk_op_mean(lk_op_mul(x, x), axes, own->shape.rank, true);
    lk_value *y = lk_op_mul(x, lk_op_pow_scalar(lk_op_add_scalar(mean, eps), -0.5));
    lk_value *weight = lki_module_value(module, x, "weight");
    return weight ? lk_op_mul(y, weight) : y;
}

lk_module *lk_rms_norm_with(lk_shape normalized_shape, const lk_norm_options *given)
{
    LKI_TAKE(lk_norm_options, options, given, NULL);
    if (normalized_shape.rank < 1 || lk_shape_count(normalized_shape) < 1)
        return lki_fail_null(LK_ERR_INVALID, "RMSNorm: expected a shape of at least 1 element");
    if (options.eps != 0 && check_numbers("RMSNorm", lki_number_or(options.eps, 0), 0)) return NULL;
    layer_norm_context own = {normalized_shape, options.eps == 0 ? NAN : lki_number_or(options.eps, 0)};
    lk_module *module = lki_module_create("RMSNorm", rms_norm_forward, &own, sizeof own);
    if (!options.no_affine) {
        lk_param *weight = lki_module_new_param(module, "weight", normalized_shape);
        if (weight) lki_module_note(module, lk_init_constant(weight, 1));
    }
    return lki_module_checked(module);
}

lk_module *lk_rms_norm_last_with(int64_t features, const lk_norm_options *given)
{
    LKI_TAKE(lk_norm_options, options, given, NULL);
    return lk_rms_norm_with(LK_SHAPE(features), &options);
}

/* ---- group norm ---- */

typedef struct group_norm_context {
    int64_t groups;
    double eps;
} group_norm_context;

static lk_value *group_norm_forward(lk_module *module, lk_value *x)
{
    const group_norm_context *own = module->context;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank >= 2 && lk_shape_count(shape) == own->groups && shape.dim[0] == 1) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected more than 1 value per group, found an input of %s in %lld groups",
                              lk_shape_format(text, sizeof text, shape), (long long)own->groups);
    }
    return lk_op_group_norm(x, lki_module_value(module, x, "weight"), lki_module_value(module, x, "bias"),
                            own->groups, own->eps);
}

lk_module *lk_group_norm_with(int64_t groups, int64_t channels, const lk_norm_options *given)
{
    LKI_TAKE(lk_norm_options, options, given, NULL);
    if (check_features("GroupNorm", channels) != LK_OK) return NULL;
    if (groups < 1 || channels % groups)
        return lki_fail_null(LK_ERR_INVALID, "GroupNorm: %lld groups do not divide %lld channels",
                             (long long)groups, (long long)channels);
    group_norm_context own = {groups, lki_number_or(options.eps, 1e-5)};
    if (check_numbers("GroupNorm", own.eps, 0)) return NULL;
    lk_module *module = lki_module_create("GroupNorm", group_norm_forward, &own, sizeof own);
    if (!options.no_affine) add_affine(module, LK_SHAPE(channels));
    return lki_module_checked(module);
}
