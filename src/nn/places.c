/* Modules that move, choose and compute elements: what ops do, as modules. */
#include "nn/module.h"
#include <lockstep/nodes.h>

#include "base/status.h"
#include "base/suggest.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>
#include <string.h>

typedef struct permute_context {
    int rank, order[LK_MAX_DIMS];
} permute_context;

static lk_value *permute_forward(lk_module *module, lk_value *x)
{
    const permute_context *own = module->context;
    char text[128];
    if (lk_value_shape(x).rank != own->rank)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "dims names %d axes, found %s", own->rank,
                              lk_shape_format(text, sizeof text, lk_value_shape(x)));
    return lk_op_permute(x, own->order);
}

lk_module *lk_permute(lk_shape dims)
{
    permute_context own = {.rank = dims.rank};
    bool seen[LK_MAX_DIMS] = {false};
    for (int i = 0; i < dims.rank; i++) {
        int64_t axis = dims.dim[i] < 0 ? dims.dim[i] + dims.rank : dims.dim[i];
        if (axis < 0 || axis >= dims.rank || seen[axis])
            return lki_fail_null(LK_ERR_INVALID, "Permute: dims: expected each of %d axes once", dims.rank);
        seen[axis] = true;
        own.order[i] = (int)axis;
    }
    return lki_module_create("Permute", permute_forward, &own, sizeof own);
}

typedef struct pair_context {
    int a, b;
} pair_context;

static lk_value *transpose_forward(lk_module *module, lk_value *x)
{
    const pair_context *own = module->context;
    return lk_op_transpose(x, own->a, own->b);
}

lk_module *lk_transpose(int dim0, int dim1)
{
    return lki_module_create("Transpose", transpose_forward, &(pair_context){dim0, dim1},
                             sizeof(pair_context));
}

static lk_value *reshape_forward(lk_module *module, lk_value *x)
{
    lk_shape shape = *(const lk_shape *)module->context, given = lk_value_shape(x);
    char text[128];
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i]) continue;
        if (i >= given.rank)
            return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "there is no axis %d to keep in %s", i,
                                  lk_shape_format(text, sizeof text, given));
        shape.dim[i] = given.dim[i];
    }
    return lk_op_reshape(x, shape);
}

lk_module *lk_reshape(lk_shape shape)
{
    int open = 0;
    for (int i = 0; i < shape.rank; i++) {
        if (shape.dim[i] < -1)
            return lki_fail_null(LK_ERR_INVALID, "Reshape: a size must be positive, 0 or -1");
        open += shape.dim[i] == -1;
    }
    if (open > 1) return lki_fail_null(LK_ERR_INVALID, "Reshape: at most one size may be -1");
    return lki_module_create("Reshape", reshape_forward, &shape, sizeof shape);
}

typedef struct mean_context {
    int count, axes[LK_MAX_DIMS];
    bool keepdim;
} mean_context;

static lk_value *mean_forward(lk_module *module, lk_value *x)
{
    const mean_context *own = module->context;
    int rest[LK_MAX_DIMS], count = 0;
    if (own->count) return lk_op_mean(x, own->axes, own->count, own->keepdim);
    for (int i = 1; i < lk_value_shape(x).rank; i++) rest[count++] = i;
    return count ? lk_op_mean(x, rest, count, own->keepdim) : x;
}

lk_module *lk_mean(lk_shape dims, bool keepdim)
{
    mean_context own = {.count = dims.rank, .keepdim = keepdim};
    for (int i = 0; i < dims.rank; i++) own.axes[i] = (int)dims.dim[i];
    return lki_module_create("Mean", mean_forward, &own, sizeof own);
}

typedef struct range_context {
    int dim;
    int64_t begin, end;
} range_context;

/* The axis, and the place in it, that negative numbers stand for. */
static bool find_place(const range_context *own, lk_value *x, int *axis, int64_t *begin)
{
    char text[128];
    lk_shape shape = lk_value_shape(x);
    *axis = own->dim < 0 ? own->dim + shape.rank : own->dim;
    bool is_axis = *axis >= 0 && *axis < shape.rank;
    *begin = is_axis && own->begin < 0 ? own->begin + shape.dim[*axis] : own->begin;
    if (is_axis && *begin >= 0 && *begin < shape.dim[*axis]) return true;
    lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "there is no place %lld on axis %d of %s",
                   (long long)own->begin, own->dim, lk_shape_format(text, sizeof text, shape));
    return false;
}

static lk_value *select_forward(lk_module *module, lk_value *x)
{
    const range_context *own = module->context;
    int axis;
    int64_t begin;
    if (!find_place(own, x, &axis, &begin)) return NULL;
    return lk_op_squeeze(lk_op_slice(x, axis, begin, begin + 1, 1), axis);
}

lk_module *lk_select(int dim, int64_t index)
{
    return lki_module_create("Select", select_forward, &(range_context){dim, index, 0},
                             sizeof(range_context));
}

static lk_value *slice_forward(lk_module *module, lk_value *x)
{
    const range_context *own = module->context;
    int axis;
    int64_t begin;
    char text[128];
    if (!find_place(own, x, &axis, &begin)) return NULL;
    int64_t size = lk_value_shape(x).dim[axis], end = own->end <= 0 ? own->end + size : own->end;
    if (end <= begin || end > size)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "%lld to %lld is no part of axis %d of %s",
                              (long long)own->begin, (long long)own->end, own->dim,
                              lk_shape_format(text, sizeof text, lk_value_shape(x)));
    return lk_op_slice(x, axis, begin, end, 1);
}

lk_module *lk_slice(int dim, int64_t begin, int64_t end)
{
    return lki_module_create("Slice", slice_forward, &(range_context){dim, begin, end},
                             sizeof(range_context));
}

static lk_value *places_forward(lk_module *module, lk_value *x)
{
    const range_context *own = module->context;
    int axis;
    int64_t begin;
    if (!find_place(own, x, &axis, &begin)) return NULL;
    return lk_op_arange(lk_value_graph(x), 0, (double)lk_value_shape(x).dim[axis], 1, LK_I64);
}

lk_module *lk_places(int dim)
{
    return lki_module_create("Places", places_forward, &(range_context){dim, 0, 0}, sizeof(range_context));
}

/* ---- elementwise ---- */

static lk_value *reciprocal(lk_value *x)
{
    return lk_op_pow_scalar(x, -1);
}

static lk_value *rsqrt(lk_value *x)
{
    return lk_op_pow_scalar(x, -0.5);
}

static lk_value *square(lk_value *x)
{
    return lk_op_mul(x, x);
}

static lk_value *gelu(lk_value *x)
{
    return lk_op_gelu(x, false);
}

static lk_value *at_most(lk_value *x, double value)
{
    return lk_op_clamp(x, -INFINITY, value);
}

static lk_value *at_least(lk_value *x, double value)
{
    return lk_op_clamp(x, value, INFINITY);
}

static lk_value *equal(lk_value *x, double value)
{
    return lk_op_equal(x, lki_scalar_like(x, value));
}

typedef struct lambda {
    const char *name;
    lk_value *(*plain)(lk_value *x);
    lk_value *(*with)(lk_value *x, double value);
} lambda;

static const lambda lambdas[] = {
    {"abs", lk_op_abs, NULL},         {"neg", lk_op_neg, NULL},
    {"exp", lk_op_exp, NULL},         {"log", lk_op_log, NULL},
    {"sqrt", lk_op_sqrt, NULL},       {"rsqrt", rsqrt, NULL},
    {"reciprocal", reciprocal, NULL}, {"square", square, NULL},
    {"sin", lk_op_sin, NULL},         {"cos", lk_op_cos, NULL},
    {"erf", lk_op_erf, NULL},         {"tanh", lk_op_tanh, NULL},
    {"sigmoid", lk_op_sigmoid, NULL}, {"relu", lk_op_relu, NULL},
    {"silu", lk_op_silu, NULL},       {"gelu", gelu, NULL},
    {"sign", lk_op_sign, NULL},       {"floor", lk_op_floor, NULL},
    {"ceil", lk_op_ceil, NULL},       {"round", lk_op_round, NULL},
    {"add", NULL, lk_op_add_scalar},  {"mul", NULL, lk_op_mul_scalar},
    {"pow", NULL, lk_op_pow_scalar},  {"min", NULL, at_most},
    {"max", NULL, at_least},          {"equal", NULL, equal},
};

typedef struct lambda_context {
    const lambda *function;
    double value;
} lambda_context;

static lk_value *lambda_forward(lk_module *module, lk_value *x)
{
    const lambda_context *own = module->context;
    return own->function->plain ? own->function->plain(x) : own->function->with(x, own->value);
}

lk_module *lk_lambda(const char *function, double value)
{
    char near[96];
    const char *name = function ? function : "";
    lki_suggestion suggestion = {.wanted = name};
    for (size_t i = 0; i < sizeof lambdas / sizeof *lambdas; i++) {
        lki_suggest_offer(&suggestion, lambdas[i].name);
        if (strcmp(lambdas[i].name, name) != 0) continue;
        return lki_module_create("Lambda", lambda_forward, &(lambda_context){&lambdas[i], value},
                                 sizeof(lambda_context));
    }
    return lki_fail_null(LK_ERR_INVALID, "Lambda: there is no function \"%s\"%s", name,
                         lki_suggest_text(&suggestion, near, sizeof near));
}
