/* What tells a transformer where in its sequence a vector stands: learned, sinusoidal and rotary positions.
 */
#include "nn/init.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

#include <math.h>

typedef struct positions_context {
    int64_t max_len, features, dim;
    double base;
} positions_context;

/* The axis of the places of x, counted from the front; -1, and the graph has failed, if there is none. */
static int axis_of_places(const positions_context *own, lk_value *x)
{
    char text[128];
    lk_shape shape = lk_value_shape(x);
    int64_t axis = own->dim < 0 ? own->dim + shape.rank : own->dim;
    if (axis >= 0 && axis < shape.rank - 1) return (int)axis;
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                   "axis %lld of %s cannot be that of the places: the last axis has the features",
                   (long long)own->dim, lk_shape_format(text, sizeof text, shape));
    return -1;
}

/* x plus a vector for each place, (places, features). */
static lk_value *add_at(lk_value *x, int axis, lk_value *vectors)
{
    lk_shape shape = lk_value_shape(x), wide = {.rank = shape.rank};
    for (int i = 0; i < shape.rank; i++) wide.dim[i] = i == axis || i == shape.rank - 1 ? shape.dim[i] : 1;
    return lk_op_add(x, lk_op_reshape(vectors, wide));
}

static lk_value *learned_forward(lk_module *module, lk_value *x)
{
    const positions_context *own = module->context;
    int axis = axis_of_places(own, x);
    if (axis < 0) return NULL;
    lk_shape shape = lk_value_shape(x);
    if (shape.dim[axis] > own->max_len || shape.dim[shape.rank - 1] != own->features) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected at most %lld places on axis %d, and %lld features, found %s",
                              (long long)own->max_len, axis, (long long)own->features,
                              lk_shape_format(text, sizeof text, shape));
    }
    return add_at(x, axis, lk_op_slice(lki_module_value(module, x, "weight"), 0, 0, shape.dim[axis], 1));
}

static lk_status check_positions(const char *type, const lk_positions_options *options,
                                 positions_context *own)
{
    own->base = lki_number_or(options->base, 1e4);
    LKI_TRY(lki_whole_or(options->dim, 1, type, "dim", &own->dim));
    if (!(own->base > 1) || isinf(own->base))
        return lki_fail(LK_ERR_INVALID, "%s: base: expected more than 1, found %g", type, own->base);
    return LK_OK;
}

lk_module *lk_learned_positions_with(int64_t max_len, int64_t features, const lk_positions_options *given)
{
    LKI_TAKE(lk_positions_options, options, given, NULL);
    double std = lki_number_or(options.std, 1);
    positions_context own = {.max_len = max_len, .features = features};
    if (max_len < 1 || features < 1)
        return lki_fail_null(LK_ERR_INVALID,
                             "LearnedPositions: expected at least 1 place and 1 feature, found %lld and %lld",
                             (long long)max_len, (long long)features);
    if (!(std >= 0) || isinf(std))
        return lki_fail_null(LK_ERR_INVALID, "LearnedPositions: std: expected at least 0, found %g", std);
    if (options.base != 0)
        return lki_fail_null(LK_ERR_INVALID, "LearnedPositions: base belongs to SinusoidalPositions");
    if (check_positions("LearnedPositions", &options, &own) != LK_OK) return NULL;
    lk_module *module = lki_module_create("LearnedPositions", learned_forward, &own, sizeof own);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(max_len, features));
    if (weight) lki_module_note(module, lk_init_normal(weight, 0, std));
    return lki_module_checked(module);
}

/* A constant of the dtype of `like`: number(place, feature). */
static lk_value *table(lk_value *like, int64_t rows, int64_t columns, const positions_context *own,
                       double (*number)(const positions_context *own, int64_t place, int64_t feature))
{
    lk_graph *graph = lk_value_graph(like);
    lk_tensor *numbers = lk_tensor_create(lk_value_dtype(like), LK_SHAPE(rows, columns));
    if (!numbers) return lki_graph_fail(graph, LK_ERR_NOMEM, "%s", lk_error());
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) lk_tensor_set(numbers, i * columns + j, number(own, i, j));
    lk_value *value = lk_graph_constant(graph, numbers);
    lk_tensor_free(numbers);
    return value;
}

/* sin and cos in turn, of place / base^(2 i / features). */
static double sinusoid(const positions_context *own, int64_t place, int64_t feature)
{
    double angle = (double)place * pow(own->base, -(double)(feature / 2 * 2) / (double)own->features);
    return feature % 2 ? cos(angle) : sin(angle);
}

static lk_value *sinusoidal_forward(lk_module *module, lk_value *x)
{
    positions_context own = *(const positions_context *)module->context;
    int axis = axis_of_places(&own, x);
    if (axis < 0) return NULL;
    lk_shape shape = lk_value_shape(x);
    own.features = shape.dim[shape.rank - 1];
    return add_at(x, axis, table(x, shape.dim[axis], own.features, &own, sinusoid));
}

lk_module *lk_sinusoidal_positions_with(const lk_positions_options *given)
{
    LKI_TAKE(lk_positions_options, options, given, NULL);
    positions_context own = {0};
    if (options.std != 0)
        return lki_fail_null(LK_ERR_INVALID, "SinusoidalPositions: std belongs to LearnedPositions");
    if (check_positions("SinusoidalPositions", &options, &own) != LK_OK) return NULL;
    return lki_module_create("SinusoidalPositions", sinusoidal_forward, &own, sizeof own);
}

/* ---- rotary ---- */

typedef struct rotary_context {
    int64_t heads, features; /* features 0: all of a head */
    double base;
    bool interleaved;
} rotary_context;

static double cosine(const positions_context *own, int64_t place, int64_t pair)
{
    return cos((double)place * pow(own->base, -2 * (double)pair / (double)own->features));
}

static double sine(const positions_context *own, int64_t place, int64_t pair)
{
    return sin((double)place * pow(own->base, -2 * (double)pair / (double)own->features));
}

/* x (N, S, H, features), whose pairs turn. */
static lk_value *turned(const rotary_context *own, lk_value *x)
{
    lk_shape s = lk_value_shape(x);
    int64_t pairs = s.dim[3] / 2;
    positions_context numbers = {.features = s.dim[3], .base = own->base};
    lk_shape wide =
        own->interleaved ? LK_SHAPE(1, s.dim[1], 1, pairs, 1) : LK_SHAPE(1, s.dim[1], 1, 1, pairs);
    lk_shape split = own->interleaved ? LK_SHAPE(s.dim[0], s.dim[1], s.dim[2], pairs, 2)
                                      : LK_SHAPE(s.dim[0], s.dim[1], s.dim[2], 2, pairs);
    int axis = own->interleaved ? 4 : 3;
    lk_value *c = lk_op_reshape(table(x, s.dim[1], pairs, &numbers, cosine), wide);
    lk_value *d = lk_op_reshape(table(x, s.dim[1], pairs, &numbers, sine), wide);
    x = lk_op_reshape(x, split);
    lk_value *a = lk_op_slice(x, axis, 0, 1, 1), *b = lk_op_slice(x, axis, 1, 2, 1);
    lk_value *const both[] = {lk_op_sub(lk_op_mul(a, c), lk_op_mul(b, d)),
                              lk_op_add(lk_op_mul(b, c), lk_op_mul(a, d))};
    return lk_op_reshape(lk_op_concat(both, 2, axis), s);
}

static lk_value *rotary_forward(lk_module *module, lk_value *x)
{
    const rotary_context *own = module->context;
    lk_shape shape = lk_value_shape(x);
    int64_t width = shape.rank == 3 ? shape.dim[2] / own->heads : 0,
            features = own->features ? own->features : width;
    if (shape.rank != 3 || shape.dim[2] % own->heads || features > width || features % 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected 3 dimensions, the last of %lld heads with %s features each, found %s",
                              (long long)own->heads, own->features ? "enough" : "an even number of",
                              lk_shape_format(text, sizeof text, shape));
    }
    x = lk_op_reshape(x, LK_SHAPE(shape.dim[0], shape.dim[1], own->heads, width));
    if (features == width) return lk_op_reshape(turned(own, x), shape);
    lk_value *const both[] = {turned(own, lk_op_slice(x, 3, 0, features, 1)),
                              lk_op_slice(x, 3, features, width, 1)};
    return lk_op_reshape(lk_op_concat(both, 2, 3), shape);
}

lk_module *lk_rotary_positions_with(const lk_rotary_positions_options *given)
{
    LKI_TAKE(lk_rotary_positions_options, options, given, NULL);
    rotary_context own = {.heads = options.num_heads ? options.num_heads : 1,
                          .features = options.features,
                          .base = lki_number_or(options.base, 1e4),
                          .interleaved = options.interleaved};
    if (own.heads < 1)
        return lki_fail_null(LK_ERR_INVALID, "RotaryPositions: num_heads: expected at least 1, found %lld",
                             (long long)own.heads);
    if (own.features < 0 || own.features % 2)
        return lki_fail_null(LK_ERR_INVALID, "RotaryPositions: features: expected an even number, found %lld",
                             (long long)own.features);
    if (!(own.base > 1) || isinf(own.base))
        return lki_fail_null(LK_ERR_INVALID, "RotaryPositions: base: expected more than 1, found %g",
                             own.base);
    return lki_module_create("RotaryPositions", rotary_forward, &own, sizeof own);
}
