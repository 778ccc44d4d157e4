/* Layers that are one op without parameters. */
#include "nn/module.h"

#include <math.h>

#include "base/status.h"
#include "base/take.h"

static lk_value *relu_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_relu(x);
}

static lk_value *silu_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_silu(x);
}

static lk_value *tanh_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_tanh(x);
}

static lk_value *sigmoid_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_sigmoid(x);
}

static lk_value *identity_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return x;
}

lk_module *lk_relu(void)
{
    return lki_module_create("ReLU", relu_forward, NULL, 0);
}

lk_module *lk_silu(void)
{
    return lki_module_create("SiLU", silu_forward, NULL, 0);
}

lk_module *lk_tanh(void)
{
    return lki_module_create("Tanh", tanh_forward, NULL, 0);
}

lk_module *lk_sigmoid(void)
{
    return lki_module_create("Sigmoid", sigmoid_forward, NULL, 0);
}

lk_module *lk_identity(void)
{
    return lki_module_create("Identity", identity_forward, NULL, 0);
}

static lk_value *softmax_forward(lk_module *module, lk_value *x)
{
    return lk_op_softmax(x, *(const int *)module->context);
}

static lk_value *log_softmax_forward(lk_module *module, lk_value *x)
{
    return lk_op_log_softmax(x, *(const int *)module->context);
}

lk_module *lk_softmax(int dim)
{
    return lki_module_create("Softmax", softmax_forward, &dim, sizeof dim);
}

lk_module *lk_log_softmax(int dim)
{
    return lki_module_create("LogSoftmax", log_softmax_forward, &dim, sizeof dim);
}

static lk_value *leaky_relu_forward(lk_module *module, lk_value *x)
{
    return lk_op_leaky_relu(x, ((const lk_leaky_relu_options *)module->context)->negative_slope);
}

static lk_status check_number(const char *type, const char *name, double value)
{
    if (isfinite(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected a number, found %g", type, name, value);
}

lk_module *lk_leaky_relu_with(const lk_leaky_relu_options *given)
{
    LKI_TAKE(lk_leaky_relu_options, options, given, NULL);
    options.negative_slope = lki_number_or(options.negative_slope, 0.01);
    if (check_number("LeakyReLU", "negative_slope", options.negative_slope)) return NULL;
    return lki_module_create("LeakyReLU", leaky_relu_forward, &options, sizeof options);
}

static lk_value *elu_forward(lk_module *module, lk_value *x)
{
    return lk_op_elu(x, ((const lk_elu_options *)module->context)->alpha);
}

lk_module *lk_elu_with(const lk_elu_options *given)
{
    LKI_TAKE(lk_elu_options, options, given, NULL);
    options.alpha = lki_number_or(options.alpha, 1);
    if (check_number("ELU", "alpha", options.alpha)) return NULL;
    return lki_module_create("ELU", elu_forward, &options, sizeof options);
}

static lk_value *gelu_forward(lk_module *module, lk_value *x)
{
    return lk_op_gelu(x, ((const lk_gelu_options *)module->context)->approximate_tanh);
}

lk_module *lk_gelu_with(const lk_gelu_options *given)
{
    LKI_TAKE(lk_gelu_options, options, given, NULL);
    return lki_module_create("GELU", gelu_forward, &options, sizeof options);
}

static lk_value *softplus_forward(lk_module *module, lk_value *x)
{
    const lk_softplus_options *own = module->context;
    return lk_op_softplus(x, own->beta, own->threshold);
}

lk_module *lk_softplus_with(const lk_softplus_options *given)
{
    LKI_TAKE(lk_softplus_options, options, given, NULL);
    options.beta = lki_number_or(options.beta, 1);
    options.threshold = lki_number_or(options.threshold, 20);
    if (options.beta == 0) return lki_fail_null(LK_ERR_INVALID, "Softplus: beta must not be 0");
    if (check_number("Softplus", "beta", options.beta) ||
        check_number("Softplus", "threshold", options.threshold))
        return NULL;
    return lki_module_create("Softplus", softplus_forward, &options, sizeof options);
}

static lk_value *dropout_forward(lk_module *module, lk_value *x)
{
    double p = ((const lk_dropout_options *)module->context)->p;
    return p > 0 ? lk_op_dropout(x, p) : x;
}

lk_module *lk_dropout_with(const lk_dropout_options *given)
{
    LKI_TAKE(lk_dropout_options, options, given, NULL);
    options.p = lki_number_or(options.p, 0.5);
    if (!(options.p >= 0 && options.p <= 1))
        return lki_fail_null(LK_ERR_INVALID, "Dropout: p: expected a probability, found %g", options.p);
    return lki_module_create("Dropout", dropout_forward, &options, sizeof options);
}
