/* The nets of lockstep bench --ops: each is a few ops over one operand of random shape. Their gradients come
 * with them. */
#include "cli/bench/sweep.h"

#include <lockstep/nn.h>

#include <math.h>

static int64_t pick(lki_sweep_draw *d, int64_t low, int64_t high)
{
    return low + lk_randint(high - low + 1, d->generator);
}

/* The first dimension, so that the operand has about as many elements as were drawn. */
static int64_t fill(const lki_sweep_draw *d, int64_t others)
{
    return d->element_count > others ? d->element_count / others : 1;
}

static void draw_rows(lki_sweep_draw *d)
{
    int64_t width = pick(d, 3, d->element_count > 1 << 16 ? 1200 : 80);
    d->shape = LK_SHAPE(fill(d, width), width);
}

static void draw_pictures(lki_sweep_draw *d)
{
    int64_t channels = pick(d, 1, 6) * pick(d, 1, 8), side = pick(d, 6, d->element_count > 1 << 16 ? 36 : 9);
    d->shape = LK_SHAPE(fill(d, channels * side * side), channels, side, side);
}

static void draw_sequences(lki_sweep_draw *d)
{
    int64_t width = 4 * pick(d, 1, d->element_count > 1 << 16 ? 48 : 4),
            length = pick(d, 3, d->element_count > 1 << 16 ? 160 : 12);
    d->shape = LK_SHAPE(fill(d, length * width), length, width);
}

/* ---- Functions of one value ---- */

static lk_value *min_of(lk_value *x, void *context)
{
    (void)context;
    return lk_op_minimum(x, lk_op_mul(x, lk_op_sigmoid(x)));
}

static lk_value *max_of(lk_value *x, void *context)
{
    (void)context;
    return lk_op_maximum(lk_op_sub(x, lk_op_abs(x)), lk_op_div(x, lk_op_exp(x)));
}

static lk_value *roots(lk_value *x, void *context)
{
    (void)context;
    return lk_op_log(lk_op_add_scalar(lk_op_sqrt(lk_op_abs(x)), 1));
}

static lk_value *waves(lk_value *x, void *context)
{
    (void)context;
    return lk_op_add(lk_op_sin(x), lk_op_where(lk_op_greater(x, lk_op_neg(x)), lk_op_cos(x), lk_op_erf(x)));
}

static lk_value *sums(lk_value *x, void *context)
{
    (void)context;
    int last = lk_value_shape(x).rank - 1, first = 0;
    return lk_op_add(lk_op_sum(x, &last, 1, true), lk_op_mean(x, &first, 1, true));
}

static lk_value *extremes(lk_value *x, void *context)
{
    (void)context;
    int last = lk_value_shape(x).rank - 1;
    return lk_op_add(lk_op_max(x, &last, 1, false), lk_op_var(x, &last, 1, false, 1));
}

static lk_value *scans(lk_value *x, void *context)
{
    (void)context;
    return lk_op_add(lk_op_cumsum(x, 0), lk_op_cumsum(x, 1));
}

static lk_value *softmaxes(lk_value *x, void *context)
{
    (void)context;
    return lk_op_mul(lk_op_softmax(x, 1), lk_op_log_softmax(x, 0));
}

static lk_value *turned(lk_value *x, void *context)
{
    (void)context;
    return lk_op_relu(lk_op_transpose(x, 1, 2));
}

static lk_value *pieces(lk_value *x, void *context)
{
    (void)context;
    int64_t rows = lk_value_shape(x).dim[0], half = rows / 2;
    lk_value *both[] = {lk_op_slice(x, 0, half, rows, 1), x, lk_op_slice(x, 0, 0, half, 1)};
    return lk_op_concat(both, 3, 0);
}

static lk_value *sorted(lk_value *x, void *context)
{
    (void)context;
    lk_value *index, *values = lk_op_sort(x, 1, false, &index);
    return lk_op_mul(values, lk_op_gather(x, 1, index));
}

static lk_value *products(lk_value *x, void *context)
{
    (void)context; /* (n, l, d): x x^T x */
    return lk_op_matmul(lk_op_matmul(x, lk_op_transpose(x, 1, 2)), x);
}

static lk_value *class_losses(lk_value *x, void *context)
{
    (void)context;
    lk_value *target = lk_op_argmax(x, 1, false);
    lk_value *hard = lk_op_cross_entropy(x, target, NULL, LK_REDUCTION_MEAN, -100, 0),
             *smooth = lk_op_cross_entropy(x, target, NULL, LK_REDUCTION_MEAN, -100, 0.1);
    return lk_op_add(lk_op_add(hard, smooth), lk_op_nll(x, target, NULL, LK_REDUCTION_MEAN, -100));
}

static lk_value *number_losses(lk_value *x, void *context)
{
    (void)context;
    return lk_op_pointwise_loss(x, lk_op_detach(lk_op_neg(x)), NULL, NULL, LK_LOSS_HUBER, 1,
                                LK_REDUCTION_MEAN);
}

static lk_value *scattered(lk_value *x, void *context)
{
    (void)context;
    lk_value *index;
    lk_op_sort(x, 1, false, &index);
    return lk_op_add(lk_op_scatter(x, 1, index, x), lk_op_scatter_add(x, 1, index, x));
}

static lk_value *looked_up(lk_value *x, void *context)
{
    (void)context;
    int64_t rows = lk_value_shape(x).dim[0];
    lk_value *one = lk_op_argmax(x, 1, false); /* numbers of columns, as numbers of rows */
    return rows < lk_value_shape(x).dim[1] ? lk_op_relu(x) : lk_op_embedding(x, one, -1);
}

static lk_value *attended(lk_value *x, void *context)
{
    (void)context;
    lk_shape shape = lk_value_shape(x);
    lk_value *heads =
        lk_op_transpose(lk_op_reshape(x, LK_SHAPE(shape.dim[0], shape.dim[1], 4, shape.dim[2] / 4)), 1, 2);
    return lk_op_scaled_dot_product_attention(heads, heads, heads);
}

static lk_module *function_of(lki_sweep_draw *d, lk_value_function function, void (*draw)(lki_sweep_draw *d))
{
    draw(d);
    return lk_function(function, NULL);
}

/* ---- Nets ---- */

static lk_module *activations(lki_sweep_draw *d)
{
    draw_rows(d);
    return lk_sequential(lk_relu(), lk_gelu(), lk_silu(), lk_tanh(), lk_elu(), lk_leaky_relu());
}

static lk_module *linear(lki_sweep_draw *d)
{
    draw_rows(d);
    return lk_sequential(lk_linear(d->shape.dim[1], pick(d, 3, 500)), lk_dropout(0.3));
}

static lk_module *norms(lki_sweep_draw *d)
{
    draw_rows(d);
    return lk_sequential(lk_layer_norm(d->shape.dim[1]), lk_batch_norm1d(d->shape.dim[1]));
}

static lk_module *picture_norms(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_sequential(lk_batch_norm2d(d->shape.dim[1]), lk_group_norm(1, d->shape.dim[1]));
}

static lk_module *conv(lki_sweep_draw *d)
{
    draw_pictures(d);
    int64_t kernel = pick(d, 1, 5);
    return lk_conv2d(d->shape.dim[1], pick(d, 4, 48), kernel, .stride = (int)pick(d, 1, 2), .padding = 1);
}

static lk_module *depthwise(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_conv2d(d->shape.dim[1], d->shape.dim[1], 3, .padding = 1, .groups = d->shape.dim[1]);
}

static lk_module *transposed(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_conv_transpose2d(d->shape.dim[1], pick(d, 4, 24), 2, .stride = 2);
}

static lk_module *pools(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_sequential(lk_max_pool2d(2, .stride = (int)pick(d, 1, 2)), lk_avg_pool2d(2, .stride = 1));
}

static lk_module *adaptive(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_adaptive_avg_pool2d(pick(d, 1, 5));
}

static lk_module *upsampled(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_upsample(.scale_factor = 2, .mode = pick(d, 0, 1) ? LK_UPSAMPLE_LINEAR : LK_UPSAMPLE_NEAREST);
}

static lk_module *padded(lki_sweep_draw *d)
{
    draw_pictures(d);
    return lk_sequential(lk_zero_pad2d(1), lk_reflection_pad2d(2));
}

static lk_module *attention(lki_sweep_draw *d)
{
    draw_sequences(d);
    return lk_transformer_encoder_layer(d->shape.dim[2], 4, .dim_feedforward = pick(d, 8, 200),
                                        .batch_first = true, .dropout = LK_ZERO);
}

static lk_module *recurrent(lki_sweep_draw *d)
{
    draw_sequences(d);
    return pick(d, 0, 1) ? lk_lstm(d->shape.dim[2], pick(d, 4, 96), .batch_first = true)
                         : lk_gru(d->shape.dim[2], pick(d, 4, 96), .batch_first = true);
}

#define FUNCTION(name, draw)                                                                                 \
    static lk_module *make_##name(lki_sweep_draw *d)                                                         \
    {                                                                                                        \
        return function_of(d, name, draw);                                                                   \
    }
FUNCTION(min_of, draw_rows)
FUNCTION(max_of, draw_rows)
FUNCTION(roots, draw_rows)
FUNCTION(waves, draw_rows)
FUNCTION(sums, draw_rows)
FUNCTION(extremes, draw_rows)
FUNCTION(scans, draw_rows)
FUNCTION(softmaxes, draw_rows)
FUNCTION(turned, draw_sequences)
FUNCTION(pieces, draw_rows)
FUNCTION(sorted, draw_rows)
FUNCTION(products, draw_sequences)
FUNCTION(class_losses, draw_rows)
FUNCTION(number_losses, draw_rows)
FUNCTION(scattered, draw_rows)
FUNCTION(looked_up, draw_rows)
FUNCTION(attended, draw_sequences)

const lki_sweep_net lki_sweep_nets[] = {
    activations,
    linear,
    norms,
    picture_norms,
    conv,
    depthwise,
    transposed,
    pools,
    adaptive,
    upsampled,
    padded,
    attention,
    recurrent,
    make_min_of,
    make_max_of,
    make_roots,
    make_waves,
    make_sums,
    make_extremes,
    make_scans,
    make_softmaxes,
    make_turned,
    make_pieces,
    make_sorted,
    make_products,
    make_class_losses,
    make_number_losses,
    make_scattered,
    make_looked_up,
    make_attended,
    NULL,
};
