/* catalyst.contrib's FactorizedLinear, and the singular value decomposition that it begins with;
 * GaussianNoise. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/module.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Singular values: one-sided Jacobi, in f64 ---- */

enum { MOST_SWEEPS = 60 };

/* Columns of `rows` numbers each, one after the other. */
typedef struct columns {
    double *data;
    int64_t rows, count;
} columns;

static double product(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static void rotate(double *a, double *b, int64_t count, double cosine, double sine)
{
    for (int64_t i = 0; i < count; i++) {
        double x = a[i], y = b[i];
        a[i] = cosine * x - sine * y;
        b[i] = sine * x + cosine * y;
    }
}

/* Turns two columns until they are orthogonal, and those of v with them. Returns whether they were not. */
static bool orthogonalise(columns *a, columns *v, int64_t p, int64_t q)
{
    double *x = a->data + p * a->rows, *y = a->data + q * a->rows;
    double xx = product(x, x, a->rows), yy = product(y, y, a->rows), xy = product(x, y, a->rows);
    if (fabs(xy) <= 1e-15 * sqrt(xx * yy)) return false;
    double zeta = (yy - xx) / (2 * xy);
    double t = (zeta >= 0 ? 1 : -1) / (fabs(zeta) + sqrt(1 + zeta * zeta));
    double cosine = 1 / sqrt(1 + t * t), sine = cosine * t;
    rotate(x, y, a->rows, cosine, sine);
    rotate(v->data + p * v->rows, v->data + q * v->rows, v->rows, cosine, sine);
    return true;
}

/* a (rows, count) = u diag(s) v^T: afterwards the columns of `a` are u s, and v, which comes as the identity,
 * is v. */
static void decompose(columns *a, columns *v)
{
    bool goes_on = true;
    for (int sweep = 0; goes_on && sweep < MOST_SWEEPS; sweep++) {
        goes_on = false;
        for (int64_t p = 0; p + 1 < a->count; p++)
            for (int64_t q = p + 1; q < a->count; q++) goes_on |= orthogonalise(a, v, p, q);
    }
}

typedef struct singular {
    double value;
    int64_t column;
} singular;

static int by_value(const void *a, const void *b)
{
    const singular *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->column < y->column ? -1 : x->column > y->column;
}

/* u (out, k) = U sqrt(S), vh (k, in) = sqrt(S) V^T of weight (out, in), with the k largest of S. */
static lk_status factorize(const lk_tensor *weight, lk_tensor *u, lk_tensor *vh)
{
    int64_t out = weight->shape.dim[0], in = weight->shape.dim[1], kept = u->shape.dim[1];
    bool tall = out >= in; /* else of the transposed weight, so that there are few columns */
    columns a = {NULL, tall ? out : in, tall ? in : out}, v = {NULL, a.count, a.count};
    LKI_SCOPED double *a_data = a.data = LKI_NEW_ARRAY(double, (size_t)(a.rows * a.count));
    LKI_SCOPED double *v_data = v.data = LKI_NEW_ARRAY(double, (size_t)(v.rows * v.count));
    LKI_SCOPED singular *order = LKI_NEW_ARRAY(singular, (size_t)a.count);
    if (!a_data || !v_data || !order) return LK_ERR_NOMEM;
    for (int64_t c = 0; c < a.count; c++) v.data[c * v.rows + c] = 1;
    for (int64_t i = 0; i < out; i++)
        for (int64_t j = 0; j < in; j++)
            a.data[tall ? j * a.rows + i : i * a.rows + j] = lk_tensor_get(weight, i * in + j);
    decompose(&a, &v);
    for (int64_t c = 0; c < a.count; c++)
        order[c] = (singular){sqrt(product(a.data + c * a.rows, a.data + c * a.rows, a.rows)), c};
    qsort(order, (size_t)a.count, sizeof *order, by_value);
    for (int64_t k = 0; k < kept; k++) {
        const double *left = a.data + order[k].column * a.rows, *right = v.data + order[k].column * v.rows;
        double root = sqrt(order[k].value), scale = root > 0 ? 1 / root : 0; /* U sqrt(S) = (U S) / sqrt(S) */
        for (int64_t i = 0; i < out; i++)
            lk_tensor_set(u, i * kept + k, tall ? left[i] * scale : right[i] * root);
        for (int64_t j = 0; j < in; j++)
            lk_tensor_set(vh, k * in + j, tall ? right[j] * root : left[j] * scale);
    }
    return LK_OK;
}

/* ---- FactorizedLinear ---- */

/* x (u vh)^T + bias */
static lk_value *factorized_forward(lk_module *module, lk_value *x)
{
    lk_value *weight = lk_op_matmul(lki_module_value(module, x, "u"), lki_module_value(module, x, "vh"));
    return lk_op_linear(x, weight, lki_module_value(module, x, "bias"));
}

static lk_module *create_factorized(const lk_tensor *weight, const lk_tensor *bias, int64_t kept)
{
    lk_module *module = lki_module_create("FactorizedLinear", factorized_forward, NULL, 0);
    int64_t out = weight->shape.dim[0], in = weight->shape.dim[1];
    lk_param *own = lki_module_new_param(module, "bias", LK_SHAPE(out));
    lk_param *u = lki_module_new_param(module, "u", LK_SHAPE(out, kept));
    lk_param *vh = lki_module_new_param(module, "vh", LK_SHAPE(kept, in));
    if (own) lki_module_note(module, lk_tensor_copy(own->value, bias));
    if (u && vh) lki_module_note(module, factorize(weight, u->value, vh->value));
    return lki_module_checked(module);
}

lk_module *lk_factorized_linear_with(lk_module *linear, const lk_factorized_linear_options *given)
{
    LKI_TAKE(lk_factorized_linear_options, options, given, NULL);
    double ratio = lki_number_or(options.dim_ratio, 1);
    if (!linear) return NULL;
    const lk_param *weight = lki_module_own_param(linear, "weight"),
                   *bias = lki_module_own_param(linear, "bias");
    bool fits = strcmp(lk_module_type(linear), "Linear") == 0 && weight && bias;
    lk_module *module = NULL;
    if (!fits) {
        lki_fail(LK_ERR_INVALID, "FactorizedLinear: expected a Linear with a bias, found %s",
                 lk_module_type(linear));
    } else {
        int64_t out = weight->value->shape.dim[0], in = weight->value->shape.dim[1],
                most = out < in ? out : in;
        int64_t kept = ratio < 1 ? (int64_t)((double)most * ratio) : most;
        if (!(ratio > 0 && ratio <= 1) || kept < 1)
            lki_fail(LK_ERR_INVALID, "FactorizedLinear: dim_ratio: expected %g to 1, found %g",
                     1 / (double)most, ratio);
        else
            module = create_factorized(weight->value, bias->value, kept);
    }
    lk_module_free(linear);
    return module;
}

/* ---- GaussianNoise ---- */

static lk_value *noise_forward(lk_module *module, lk_value *x)
{
    lk_graph *graph = lk_value_graph(x);
    double stddev = *(const double *)module->context;
    if (!lk_graph_is_training(graph) || stddev == 0) return x;
    return lk_op_add(x, lk_op_normal(graph, lk_value_shape(x), 0, stddev, lk_value_dtype(x)));
}

lk_module *lk_gaussian_noise(double stddev)
{
    if (!(stddev >= 0) || isinf(stddev))
        return lki_fail_null(LK_ERR_INVALID, "GaussianNoise: stddev: expected at least 0, found %g", stddev);
    return lki_module_create("GaussianNoise", noise_forward, &stddev, sizeof stddev);
}
