/* Local response normalisation and power-average pooling: sums of powers of neighbours. */
#include "nn/window_options.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

#include <math.h>
#include <stdio.h>

typedef struct response {
    int64_t size;
    double alpha, beta, k;
} response;

/* Neighbours are size / 2 channels before and (size - 1) / 2 behind; those that do not exist count as 0. */
static lk_value *response_forward(lk_module *module, lk_value *x)
{
    const response *own = module->context;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank < 3)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected an input of 3 or more dimensions, found %s", LKI_SHOW(shape));
    int64_t before[LK_MAX_DIMS] = {0, 0, own->size / 2}, after[LK_MAX_DIMS] = {0, 0, (own->size - 1) / 2};
    int64_t rest = 1;
    for (int i = 2; i < shape.rank; i++) rest *= shape.dim[i];
    lk_window window = {
        .rank = 2, .groups = 1, .kernel = {own->size, 1}, .stride = {1, 1}, .dilation = {1, 1}};
    lk_value *squares = lk_op_reshape(lk_op_mul(x, x), LK_SHAPE(shape.dim[0], 1, shape.dim[1], rest));
    squares = lk_op_avg_pool(lk_op_pad(squares, before, after, LK_PAD_CONSTANT, 0), window);
    lk_value *divisor = lk_op_add_scalar(lk_op_mul_scalar(squares, own->alpha), own->k);
    return lk_op_div(x, lk_op_reshape(lk_op_pow_scalar(divisor, own->beta), shape));
}

lk_module *lk_local_response_norm_with(int64_t size, const lk_local_response_norm_options *given)
{
    LKI_TAKE(lk_local_response_norm_options, options, given, NULL);
    response own = {size, lki_number_or(options.alpha, 1e-4), lki_number_or(options.beta, 0.75),
                    lki_number_or(options.k, 1)};
    if (size < 1)
        return lki_fail_null(LK_ERR_INVALID, "LocalResponseNorm: size: expected at least 1, found %lld",
                             (long long)size);
    if (!isfinite(own.alpha) || !isfinite(own.beta) || !isfinite(own.k))
        return lki_fail_null(LK_ERR_INVALID,
                             "LocalResponseNorm: alpha, beta, k: expected numbers, found %g, %g, %g",
                             own.alpha, own.beta, own.k);
    return lki_module_create("LocalResponseNorm", response_forward, &own, sizeof own);
}

/* ---- Power-average pooling ---- */

typedef struct lp_pool {
    lk_window window;
    double p;
} lp_pool;

/* (cells mean(x^p))^(1 / p), where a mean below 0 counts as 0, by PyTorch's formula. */
static lk_value *lp_pool_forward(lk_module *module, lk_value *x)
{
    const lp_pool *own = module->context;
    double cells = 1;
    bool was_added;
    x = lki_batch(x, own->window.rank, &was_added);
    for (int i = 0; i < own->window.rank; i++) cells *= (double)own->window.kernel[i];
    lk_value *mean = lk_op_avg_pool(lk_op_pow_scalar(x, own->p), own->window);
    lk_value *sum = lk_op_mul(lk_op_sign(mean), lk_op_relu(lk_op_abs(mean)));
    return lki_unbatch(lk_op_pow_scalar(lk_op_mul_scalar(sum, cells), 1 / own->p), was_added);
}

static lk_module *create_lp_pool(int rank, double p, int64_t kernel, const lk_lp_pool_options *options)
{
    char type[16];
    lp_pool own = {.p = p, .window = {.rank = rank, .groups = 1, .ceil_mode = options->ceil_mode}};
    snprintf(type, sizeof type, "LPPool%dd", rank);
    if (!isfinite(p) || p == 0)
        return lki_fail_null(LK_ERR_INVALID, "%s: norm_type: expected a number other than 0, found %g", type,
                             p);
    lki_spread(own.window.kernel, rank, kernel, options->kernels, 0);
    lki_spread(own.window.stride, rank, options->stride, options->strides, 0);
    for (int i = 0; i < rank; i++) {
        own.window.dilation[i] = 1;
        if (own.window.stride[i] == 0) own.window.stride[i] = own.window.kernel[i];
    }
    if (lki_check_each(type, "kernel_size", own.window.kernel, rank, 1) ||
        lki_check_each(type, "stride", own.window.stride, rank, 1))
        return NULL;
    return lki_module_create(type, lp_pool_forward, &own, sizeof own);
}

lk_module *lk_lp_pool1d_with(double norm_type, int64_t kernel, const lk_lp_pool_options *given)
{
    LKI_TAKE(lk_lp_pool_options, options, given, NULL);
    return create_lp_pool(1, norm_type, kernel, &options);
}

lk_module *lk_lp_pool2d_with(double norm_type, int64_t kernel, const lk_lp_pool_options *given)
{
    LKI_TAKE(lk_lp_pool_options, options, given, NULL);
    return create_lp_pool(2, norm_type, kernel, &options);
}
