/* Activations that are a few ops each; the fuse pass makes one kernel of them. Comparisons are chosen so that
 * a NaN stays one, and so that slopes at the corners are PyTorch's. */
#include "nn/module.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>

static lk_status check_number(const char *type, const char *name, double value)
{
    if (isfinite(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected a number, found %g", type, name, value);
}

/* min(max(x, low), high), flat at the two corners. */
static lk_value *hard(lk_value *x, double low, double high)
{
    if (!x) return NULL;
    lk_value *least = lki_scalar_like(x, low), *most = lki_scalar_like(x, high);
    lk_value *below = lk_op_where(lk_op_greater_equal(x, most), most, x);
    return lk_op_where(lk_op_greater_equal(least, x), least, below);
}

/* ---- without numbers ---- */

static lk_value *relu6_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return hard(x, 0, 6);
}

static lk_value *hardsigmoid(lk_value *x)
{
    return lk_op_mul_scalar(hard(lk_op_add_scalar(x, 3), 0, 6), 1.0 / 6);
}

static lk_value *hardsigmoid_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return hardsigmoid(x);
}

static lk_value *hardswish_forward(lk_module *module, lk_value *x)
{
    (void)module;
    if (!x) return NULL;
    lk_value *low = lki_scalar_like(x, -3), *high = lki_scalar_like(x, 3);
    lk_value *inner = lk_op_mul(x, lk_op_mul_scalar(lk_op_add_scalar(x, 3), 1.0 / 6));
    lk_value *above = lk_op_where(lk_op_greater_equal(x, high), x, inner);
    return lk_op_where(lk_op_greater(low, x), lki_scalar_like(x, 0), above); /* slanted at -3 */
}

static lk_value *mish_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_mul(x, lk_op_tanh(lk_op_softplus(x, 1, 20)));
}

static lk_value *selu_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_mul_scalar(lk_op_elu(x, 1.6732632423543772848170429916717),
                            1.0507009873554804934193349852946);
}

/* log(1 / (1 + exp(-x))) */
static lk_value *log_sigmoid_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_neg(lk_op_softplus(lk_op_neg(x), 1, 20));
}

static lk_value *softsign_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_div(x, lk_op_add_scalar(lk_op_abs(x), 1));
}

static lk_value *tanhshrink_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_sub(x, lk_op_tanh(x));
}

lk_module *lk_relu6(void)
{
    return lki_module_create("ReLU6", relu6_forward, NULL, 0);
}

lk_module *lk_hardsigmoid(void)
{
    return lki_module_create("Hardsigmoid", hardsigmoid_forward, NULL, 0);
}

lk_module *lk_hardswish(void)
{
    return lki_module_create("Hardswish", hardswish_forward, NULL, 0);
}

lk_module *lk_mish(void)
{
    return lki_module_create("Mish", mish_forward, NULL, 0);
}

lk_module *lk_selu(void)
{
    return lki_module_create("SELU", selu_forward, NULL, 0);
}

lk_module *lk_log_sigmoid(void)
{
    return lki_module_create("LogSigmoid", log_sigmoid_forward, NULL, 0);
}

lk_module *lk_softsign(void)
{
    return lki_module_create("Softsign", softsign_forward, NULL, 0);
}

lk_module *lk_tanhshrink(void)
{
    return lki_module_create("Tanhshrink", tanhshrink_forward, NULL, 0);
}

static lk_value *softmin_forward(lk_module *module, lk_value *x)
{
    return lk_op_softmax(lk_op_neg(x), *(const int *)module->context);
}

lk_module *lk_softmin(int dim)
{
    return lki_module_create("Softmin", softmin_forward, &dim, sizeof dim);
}

/* a sigmoid(b), where a and b are the halves of x. */
static lk_value *glu_forward(lk_module *module, lk_value *x)
{
    lk_shape shape = lk_value_shape(x);
    int dim = *(const int *)module->context, axis = dim < 0 ? dim + shape.rank : dim;
    if (axis < 0 || axis >= shape.rank || shape.dim[axis] % 2) {
        char text[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "axis %d of %s has no two halves", dim,
                              lk_shape_format(text, sizeof text, shape));
    }
    int64_t half = shape.dim[axis] / 2;
    return lk_op_mul(lk_op_slice(x, axis, 0, half, 1),
                     lk_op_sigmoid(lk_op_slice(x, axis, half, 2 * half, 1)));
}

lk_module *lk_glu_with(const lk_glu_options *given)
{
    LKI_TAKE(lk_glu_options, options, given, NULL);
    int64_t dim;
    if (lki_whole_or(options.dim, -1, "GLU", "dim", &dim)) return NULL;
    int axis = (int)dim;
    return lki_module_create("GLU", glu_forward, &axis, sizeof axis);
}

/* ---- with numbers ---- */

typedef struct numbers {
    double a, b;
} numbers;

static lk_value *hardtanh_forward(lk_module *module, lk_value *x)
{
    const numbers *own = module->context;
    return hard(x, own->a, own->b);
}

lk_module *lk_hardtanh_with(const lk_hardtanh_options *given)
{
    LKI_TAKE(lk_hardtanh_options, options, given, NULL);
    numbers own = {lki_number_or(options.min_val, -1), lki_number_or(options.max_val, 1)};
    if (check_number("Hardtanh", "min_val", own.a) || check_number("Hardtanh", "max_val", own.b)) return NULL;
    if (own.b <= own.a)
        return lki_fail_null(LK_ERR_INVALID, "Hardtanh: max_val: expected more than min_val %g, found %g",
                             own.a, own.b);
    return lki_module_create("Hardtanh", hardtanh_forward, &own, sizeof own);
}

/* alpha (exp(x / alpha) - 1) below zero. */
static lk_value *celu_forward(lk_module *module, lk_value *x)
{
    double alpha = ((const numbers *)module->context)->a;
    return lk_op_mul_scalar(lk_op_elu(lk_op_mul_scalar(x, 1 / alpha), 1), alpha);
}

lk_module *lk_celu_with(const lk_celu_options *given)
{
    LKI_TAKE(lk_celu_options, options, given, NULL);
    numbers own = {.a = lki_number_or(options.alpha, 1)};
    if (check_number("CELU", "alpha", own.a)) return NULL;
    if (!(own.a > 0))
        return lki_fail_null(LK_ERR_INVALID, "CELU: alpha: expected more than 0, found %g", own.a);
    return lki_module_create("CELU", celu_forward, &own, sizeof own);
}

static lk_status check_lambd(const char *type, double lambd)
{
    LKI_TRY(check_number(type, "lambd", lambd));
    if (lambd >= 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: lambd: expected at least 0, found %g", type, lambd);
}

static lk_value *hardshrink_forward(lk_module *module, lk_value *x)
{
    double lambd = ((const numbers *)module->context)->a;
    lk_value *small = lk_op_greater_equal(lki_scalar_like(x, lambd), lk_op_abs(x));
    return lk_op_where(small, lki_scalar_like(x, 0), x);
}

lk_module *lk_hardshrink_with(const lk_shrink_options *given)
{
    LKI_TAKE(lk_shrink_options, options, given, NULL);
    numbers own = {.a = lki_number_or(options.lambd, 0.5)};
    if (check_lambd("Hardshrink", own.a)) return NULL;
    return lki_module_create("Hardshrink", hardshrink_forward, &own, sizeof own);
}

static lk_value *softshrink_forward(lk_module *module, lk_value *x)
{
    double lambd = ((const numbers *)module->context)->a;
    return lk_op_sub(x, lk_op_clamp(x, -lambd, lambd));
}

lk_module *lk_softshrink_with(const lk_shrink_options *given)
{
    LKI_TAKE(lk_shrink_options, options, given, NULL);
    numbers own = {.a = lki_number_or(options.lambd, 0.5)};
    if (check_lambd("Softshrink", own.a)) return NULL;
    return lki_module_create("Softshrink", softshrink_forward, &own, sizeof own);
}

static lk_value *threshold_forward(lk_module *module, lk_value *x)
{
    const numbers *own = module->context;
    lk_value *low = lk_op_greater_equal(lki_scalar_like(x, own->a), x);
    return lk_op_where(low, lki_scalar_like(x, own->b), x);
}

lk_module *lk_threshold(double threshold, double value)
{
    numbers own = {threshold, value};
    if (check_number("Threshold", "threshold", own.a) || check_number("Threshold", "value", own.b))
        return NULL;
    return lki_module_create("Threshold", threshold_forward, &own, sizeof own);
}

/* x above zero, a learned slope below: one, or one per channel (axis 1). */
static lk_value *prelu_forward(lk_module *module, lk_value *x)
{
    lk_value *weight = lki_module_value(module, x, "weight");
    if (!weight) return NULL;
    lk_shape shape = lk_value_shape(x), spread = {.rank = shape.rank};
    int64_t count = lk_value_shape(weight).dim[0];
    for (int i = 0; i < shape.rank; i++) spread.dim[i] = 1;
    if (count > 1) {
        if (shape.rank < 2 || shape.dim[1] != count) {
            char text[128];
            return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                                  "expected %lld channels on axis 1, found %s", (long long)count,
                                  lk_shape_format(text, sizeof text, shape));
        }
        spread.dim[1] = count;
    }
    lk_value *low = lk_op_mul(x, lk_op_reshape(weight, spread));
    return lk_op_where(lk_op_greater(x, lki_scalar_like(x, 0)), x, low);
}

lk_module *lk_prelu_with(const lk_prelu_options *given)
{
    LKI_TAKE(lk_prelu_options, options, given, NULL);
    int64_t count = options.num_parameters ? options.num_parameters : 1;
    double init = lki_number_or(options.init, 0.25);
    if (count < 1)
        return lki_fail_null(LK_ERR_INVALID, "PReLU: num_parameters: expected at least 1, found %lld",
                             (long long)count);
    if (check_number("PReLU", "init", init)) return NULL;
    lk_module *module = lki_module_create("PReLU", prelu_forward, NULL, 0);
    lk_param *weight = lki_module_new_param(module, "weight", LK_SHAPE(count));
    if (weight) lki_module_note(module, lk_init_constant(weight, init));
    return lki_module_checked(module);
}
