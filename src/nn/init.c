/* Initialisers. The arithmetic before each draw follows torch.nn.init step by step in doubles, because a
 * bound that differs in its last bit changes every weight. */
#include "nn/init.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/home.h"

#include <math.h>

/* Before the first number is written: a device takes the new values over when it next needs them. What else
 * lies in the same block is brought up to date first. */
static lk_status check(const lk_param *param, const char *what)
{
    if (!param)
        return lki_last_status() ? lki_last_status()
                                 : lki_fail(LK_ERR_INVALID, "%s: the parameter is NULL", what);
    LKI_TRY(lki_param_pull(param));
    lki_param_push(param);
    return LK_OK;
}

lk_status lki_fans(const lk_param *param, double *fan_in, double *fan_out)
{
    lk_shape shape = param->value->shape;
    if (shape.rank < 2)
        return lki_fail(LK_ERR_SHAPE, "%s: fans need at least 2 dimensions, found %d", param->name,
                        shape.rank);
    double field = 1;
    for (int i = 2; i < shape.rank; i++) field *= (double)shape.dim[i];
    *fan_in = (double)shape.dim[1] * field;
    *fan_out = (double)shape.dim[0] * field;
    return LK_OK;
}

static __thread bool draws_nothing;

void lk_skip_init(bool skip)
{
    draws_nothing = skip;
}

bool lki_init_skipped(void)
{
    return draws_nothing;
}

lk_status lk_init_uniform(lk_param *param, double from, double to)
{
    if (!(from <= to) || !isfinite(to - from))
        return lki_fail(LK_ERR_INVALID, "lk_init_uniform: expected from <= to, found %g and %g", from, to);
    LKI_TRY(check(param, "lk_init_uniform"));
    if (draws_nothing) return LK_OK;
    return lk_uniform(param->value, from, to, lk_default_generator());
}

static lk_status check_normal(const char *what, double mean, double std)
{
    if (isfinite(mean) && std >= 0 && !isinf(std)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: expected a finite mean and a std of at least 0, found %g and %g",
                    what, mean, std);
}

lk_status lk_init_normal(lk_param *param, double mean, double std)
{
    LKI_TRY(check_normal("lk_init_normal", mean, std));
    LKI_TRY(check(param, "lk_init_normal"));
    if (draws_nothing) return LK_OK;
    return lk_normal(param->value, mean, std, lk_default_generator());
}

lk_status lk_init_constant(lk_param *param, double value)
{
    LKI_TRY(check(param, "lk_init_constant"));
    int64_t count = lk_tensor_count(param->value);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(param->value, i, value);
    return LK_OK;
}

lk_status lk_init_xavier_uniform(lk_param *param, double gain)
{
    double fan_in, fan_out;
    LKI_TRY(check(param, "lk_init_xavier_uniform"));
    LKI_TRY(lki_fans(param, &fan_in, &fan_out));
    double std = gain * sqrt(2.0 / (fan_in + fan_out));
    double bound = sqrt(3.0) * std;
    return lk_init_uniform(param, -bound, bound);
}

lk_status lk_init_xavier_normal(lk_param *param, double gain)
{
    double fan_in, fan_out;
    LKI_TRY(check(param, "lk_init_xavier_normal"));
    LKI_TRY(lki_fans(param, &fan_in, &fan_out));
    return lk_init_normal(param, 0, gain * sqrt(2.0 / (fan_in + fan_out)));
}

double lk_init_gain(lk_nonlinearity nonlinearity, double slope)
{
    switch (nonlinearity) {
    case LK_NONLINEARITY_LEAKY_RELU: return sqrt(2.0 / (1 + slope * slope));
    case LK_NONLINEARITY_LINEAR:
    case LK_NONLINEARITY_SIGMOID: return 1;
    case LK_NONLINEARITY_TANH: return 5.0 / 3;
    case LK_NONLINEARITY_RELU: return sqrt(2.0);
    case LK_NONLINEARITY_SELU: return 3.0 / 4;
    }
    return 1;
}

static lk_status kaiming_std(const lk_param *param, lk_kaiming_options options, double *std)
{
    double fan_in, fan_out;
    LKI_TRY(lki_fans(param, &fan_in, &fan_out));
    if ((int)options.nonlinearity < 0 || options.nonlinearity > LK_NONLINEARITY_SELU)
        return lki_fail(LK_ERR_INVALID, "%s: there is no nonlinearity %d", param->name,
                        (int)options.nonlinearity);
    *std = lk_init_gain(options.nonlinearity, options.a) / sqrt(options.fan_out ? fan_out : fan_in);
    return LK_OK;
}

lk_status lk_init_kaiming_uniform_with(lk_param *param, const lk_kaiming_options *given)
{
    LKI_TAKE(lk_kaiming_options, options, given, lk_error_status());
    double std = 0;
    LKI_TRY(check(param, "lk_init_kaiming_uniform"));
    LKI_TRY(kaiming_std(param, options, &std));
    double bound = sqrt(3.0) * std;
    return lk_init_uniform(param, -bound, bound);
}

lk_status lk_init_kaiming_normal_with(lk_param *param, const lk_kaiming_options *given)
{
    LKI_TAKE(lk_kaiming_options, options, given, lk_error_status());
    double std = 0;
    LKI_TRY(check(param, "lk_init_kaiming_normal"));
    LKI_TRY(kaiming_std(param, options, &std));
    return lk_init_normal(param, 0, std);
}

void lki_init_weight_and_bias(lk_module *module, lk_param *weight, lk_param *bias)
{
    double fan_in, fan_out;
    if (!module || module->failed) return;
    lki_module_note(module, lk_init_kaiming_uniform(weight, .a = sqrt(5.0)));
    if (!bias) return;
    lki_module_note(module, lki_fans(weight, &fan_in, &fan_out));
    double bound = 1 / sqrt(fan_in);
    lki_module_note(module, lk_init_uniform(bias, -bound, bound));
}

/* ---- normal, cut off ---- */

/* A polynomial by Horner's rule, each step one rounding, as PyTorch's build has it. */
static float horner(const float *coefficients, int count, float z)
{
    float sum = coefficients[count - 1];
    for (int i = count - 2; i >= 0; i--) sum = fmaf(sum, z, coefficients[i]);
    return sum;
}

/* PyTorch's inverse error function in f32: a rational approximation of the centre or the tails, then two
 * Newton steps. */
static float erfinv_f32(float y)
{
    static const float centre[] = {0.886226899f, -1.645349621f, 0.914624893f, -0.140543331f};
    static const float centre_below[] = {1, -2.118377725f, 1.442710462f, -0.329097515f, 0.012229801f};
    static const float tail[] = {-1.970840454f, -1.624906493f, 3.429567803f, 1.641345311f};
    static const float tail_below[] = {1, 3.543889200f, 1.637067800f};
    float magnitude = fabsf(y), x;
    if (magnitude > 1.0f) return NAN;
    if (magnitude == 1.0f) return copysignf(INFINITY, y);
    if (magnitude <= 0.7f) {
        x = y * horner(centre, 4, y * y) / horner(centre_below, 5, y * y);
    } else {
        float z = sqrtf(-logf((1.0f - magnitude) / 2.0f));
        x = copysignf(horner(tail, 4, z), y) / horner(tail_below, 3, z);
    }
    for (int i = 0; i < 2; i++) x = x - (erff(x) - y) / ((2.0f / (float)sqrt(M_PI)) * expf(-x * x));
    return x;
}

static double normal_cdf(double x)
{
    return (1 + erf(x / sqrt(2.0))) / 2;
}

lk_status lk_init_trunc_normal(lk_param *param, double mean, double std, double low, double high)
{
    LKI_TRY(check_normal("lk_init_trunc_normal", mean, std));
    if (!(low <= high))
        return lki_fail(LK_ERR_INVALID, "lk_init_trunc_normal: expected low <= high, found %g and %g", low,
                        high);
    LKI_TRY(check(param, "lk_init_trunc_normal"));
    if (param->value->dtype != LK_F32)
        return lki_fail(LK_ERR_DTYPE, "lk_init_trunc_normal: expected an f32 parameter, found %s",
                        lk_dtype_name(param->value->dtype));
    if (draws_nothing) return LK_OK;
    double from = 2 * normal_cdf((low - mean) / std) - 1, to = 2 * normal_cdf((high - mean) / std) - 1;
    LKI_TRY(lk_init_uniform(param, from, to));
    float *data = param->value->data;
    int64_t count = lk_tensor_count(param->value);
    for (int64_t i = 0; i < count; i++) {
        float x = erfinv_f32(data[i]) * (float)(std * sqrt(2.0)) + (float)mean;
        data[i] = fminf(fmaxf(x, (float)low), (float)high);
    }
    return LK_OK;
}

/* ---- orthogonal ---- */

static double dot_columns(const double *q, int64_t rows, int64_t columns, int64_t a, int64_t b)
{
    double sum = 0;
    for (int64_t i = 0; i < rows; i++) sum += q[i * columns + a] * q[i * columns + b];
    return sum;
}

/* Makes the columns of q (rows >= columns) orthonormal. Each is cleaned twice, so that rounding does not tilt
 * it. With R's diagonal positive this is the factor that torch.nn.init.orthogonal_ keeps. */
static void orthonormalise(double *q, int64_t rows, int64_t columns)
{
    for (int64_t j = 0; j < columns; j++) {
        for (int pass = 0; pass < 2; pass++)
            for (int64_t k = 0; k < j; k++) {
                double share = dot_columns(q, rows, columns, k, j);
                for (int64_t i = 0; i < rows; i++) q[i * columns + j] -= share * q[i * columns + k];
            }
        double length = sqrt(dot_columns(q, rows, columns, j, j));
        for (int64_t i = 0; i < rows; i++) q[i * columns + j] /= length;
    }
}

lk_status lk_init_orthogonal(lk_param *param, double gain)
{
    LKI_TRY(check(param, "lk_init_orthogonal"));
    lk_shape shape = param->value->shape;
    if (shape.rank < 2)
        return lki_fail(LK_ERR_SHAPE, "lk_init_orthogonal: expected at least 2 dimensions, found %d",
                        shape.rank);
    if (draws_nothing) return LK_OK;
    int64_t count = lk_shape_count(shape), outer = shape.dim[0], inner = outer > 0 ? count / outer : 0;
    bool wide = outer < inner;
    int64_t rows = wide ? inner : outer, columns = wide ? outer : inner;
    LKI_TRY(lk_init_normal(param, 0, 1));
    double *q = LKI_NEW_ARRAY(double, count);
    if (!q) return LK_ERR_NOMEM;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            q[i * columns + j] = lk_tensor_get(param->value, wide ? j * inner + i : i * inner + j);
    orthonormalise(q, rows, columns);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            lk_tensor_set(param->value, wide ? j * inner + i : i * inner + j, gain * q[i * columns + j]);
    lki_free(q);
    return LK_OK;
}
