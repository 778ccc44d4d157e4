/* The gradient of every differentiable op, and of some compositions, against central differences on the
 * reference engine, or on the one that LOCKSTEP_TEST_ENGINE names. */
#include "lktest.h"

#include "step/gradcheck.h"
#include "graph/graph.h"
#include "graph/op_info.h"

#include <lockstep/graph.h>

/* What an input is filled with: numbers in (-2, 2) away from 0; positive ones in (0.5, 2); inside of (0.1,
 * 0.9); all different and far apart, for maxima; or indices below `high`. */
typedef enum fill { FILL_NONE, FILL_ANY, FILL_POSITIVE, FILL_UNIT, FILL_APART, FILL_INDEX } fill;

enum { MAX_INPUTS = 5 };

typedef struct input_spec {
    fill fill;
    lk_shape shape;
    int64_t high;
} input_spec;

typedef struct grad_case {
    const char *name;
    lk_graph_function function;
    input_spec input[MAX_INPUTS];
} grad_case;

#define ANY(...)                                                                                             \
    {                                                                                                        \
        FILL_ANY, LK_SHAPE(__VA_ARGS__), 0                                                                   \
    }
#define SCALAR                                                                                               \
    {                                                                                                        \
        FILL_ANY, {0}, 0                                                                                     \
    }
#define POSITIVE(...)                                                                                        \
    {                                                                                                        \
        FILL_POSITIVE, LK_SHAPE(__VA_ARGS__), 0                                                              \
    }
#define UNIT(...)                                                                                            \
    {                                                                                                        \
        FILL_UNIT, LK_SHAPE(__VA_ARGS__), 0                                                                  \
    }
#define APART(...)                                                                                           \
    {                                                                                                        \
        FILL_APART, LK_SHAPE(__VA_ARGS__), 0                                                                 \
    }
#define INDEX(high_, ...)                                                                                    \
    {                                                                                                        \
        FILL_INDEX, LK_SHAPE(__VA_ARGS__), high_                                                             \
    }

#define FUNCTION(name, expression)                                                                           \
    static lk_value *name(lk_value *const *in, int count, void *context)                                     \
    {                                                                                                        \
        (void)count, (void)context;                                                                          \
        return expression;                                                                                   \
    }

/* The expression with the inputs a, b, c of the function. */
#define UNARY(op)  FUNCTION(do_##op, lk_op_##op(in[0]))
#define BINARY(op) FUNCTION(do_##op, lk_op_##op(in[0], in[1]))

BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(pow)
BINARY(maximum)
BINARY(minimum)
BINARY(matmul)
UNARY(neg)
UNARY(abs)
UNARY(exp)
UNARY(log)
UNARY(sqrt)
UNARY(sin)
UNARY(cos)
UNARY(erf)
UNARY(tanh)
UNARY(sigmoid)
UNARY(relu)
UNARY(silu)
FUNCTION(do_square, lk_op_mul(in[0], in[0]))
FUNCTION(do_where, lk_op_where(lk_op_greater(in[0], in[1]), in[0], in[1]))
FUNCTION(do_where_mask, lk_op_where(lk_op_greater_equal(in[0], lk_op_mul_scalar(in[0], 0)), in[1], in[2]))
FUNCTION(do_leaky_relu, lk_op_leaky_relu(in[0], 0.1))
FUNCTION(do_elu, lk_op_elu(in[0], 1.3))
FUNCTION(do_gelu, lk_op_gelu(in[0], false))
FUNCTION(do_gelu_tanh, lk_op_gelu(in[0], true))
FUNCTION(do_softplus, lk_op_softplus(in[0], 1.5, 20))
FUNCTION(do_softplus_linear, lk_op_softplus(in[0], 1.5, 1))
FUNCTION(do_clamp, lk_op_clamp(in[0], -1.01, 1.03))
FUNCTION(do_add_scalar, lk_op_add_scalar(in[0], 0.7))
FUNCTION(do_mul_scalar, lk_op_mul_scalar(in[0], -1.7))
FUNCTION(do_pow_two, lk_op_pow_scalar(in[0], 2))
FUNCTION(do_pow_three, lk_op_pow_scalar(in[0], 3))
FUNCTION(do_pow_minus_half, lk_op_pow_scalar(in[0], -0.5))
FUNCTION(do_pow_zero, lk_op_add(lk_op_pow_scalar(in[0], 0), in[0]))
FUNCTION(do_copy, lki_record(in[0]->graph, LK_OP_COPY, in, 1, 1, NULL))

FUNCTION(do_cast, lk_op_cast(lk_op_cast(in[0], LK_F32), LK_F64))

FUNCTION(sum_all, lk_op_sum(in[0], LK_ALL_AXES, false))
FUNCTION(sum_last, lk_op_sum(in[0], LK_AXES(-1), false))
FUNCTION(sum_two_kept, lk_op_sum(in[0], LK_AXES(0, 2), true))
FUNCTION(mean_all, lk_op_mean(in[0], LK_ALL_AXES, true))
FUNCTION(mean_middle, lk_op_mean(in[0], LK_AXES(1), false))
FUNCTION(max_all, lk_op_max(in[0], LK_ALL_AXES, false))
FUNCTION(max_last, lk_op_max(in[0], LK_AXES(-1), false))
FUNCTION(max_two_kept, lk_op_max(in[0], LK_AXES(0, 2), true))
FUNCTION(var_all, lk_op_var(in[0], LK_ALL_AXES, false, 1))
FUNCTION(var_first, lk_op_var(in[0], LK_AXES(0), false, 0))
FUNCTION(var_two_kept, lk_op_var(in[0], LK_AXES(1, 2), true, 1))
FUNCTION(softmax_last, lk_op_softmax(in[0], -1))
FUNCTION(softmax_middle, lk_op_softmax(in[0], 1))
FUNCTION(log_softmax_last, lk_op_log_softmax(in[0], -1))
FUNCTION(log_softmax_first, lk_op_log_softmax(in[0], 0))

FUNCTION(reshape, lk_op_reshape(lk_op_exp(in[0]), LK_SHAPE(4, -1)))
FUNCTION(permute, lk_op_permute(in[0], (const int[]){2, 0, 1}))
FUNCTION(transpose, lk_op_transpose(in[0], -1, 0))
FUNCTION(expand, lk_op_expand(in[0], LK_SHAPE(2, 3, -1, 2)))
FUNCTION(slice, lk_op_slice(in[0], 1, 1, -1, 1))
FUNCTION(slice_step, lk_op_slice(lk_op_slice(in[0], 0, 1, 2, 1), -1, 0, INT64_MAX, 2))
FUNCTION(concat, lk_op_concat(in, 3, 1))
FUNCTION(concat_self, lk_op_concat((lk_value *const[]){in[0], lk_op_exp(in[0])}, 2, -1))
#define PAD(mode) lk_op_pad(in[0], (const int64_t[]){0, 2, 1}, (const int64_t[]){0, 1, 2}, mode, 0.5)
FUNCTION(pad_constant, PAD(LK_PAD_CONSTANT))
FUNCTION(pad_reflect, PAD(LK_PAD_REFLECT))
FUNCTION(pad_circular, PAD(LK_PAD_CIRCULAR))
FUNCTION(pad_replicate, PAD(LK_PAD_REPLICATE))
FUNCTION(gather_last, lk_op_gather(in[0], -1, in[1]))
FUNCTION(gather_first, lk_op_gather(in[0], 0, in[1]))
FUNCTION(embedding, lk_op_embedding(in[0], in[1], -1))

#define MATMUL(ta, tb) lki_record(in[0]->graph, LK_OP_MATMUL, in, 2, 2, &(lk_attr){.matmul = {ta, tb}})
FUNCTION(matmul_ta, MATMUL(true, false))
FUNCTION(matmul_tb, MATMUL(false, true))
FUNCTION(matmul_ta_tb, MATMUL(true, true))
FUNCTION(linear, lk_op_linear(in[0], in[1], in[2]))
FUNCTION(linear_plain, lk_op_linear(in[0], in[1], NULL))
FUNCTION(linear_frozen, lk_op_linear(in[0], lk_op_cast(in[1], LK_F64), in[2]))

/* y and the last states of one direction, so that all of its gradients meet. */
static lk_value *recurrent(lk_recurrent kind, bool reverse, lk_recurrent_operands operands)
{
    bool has_cell = kind == LK_RECURRENT_LSTM;
    lk_value *parts[3] = {NULL};
    parts[0] = lk_op_recurrent(kind, reverse, &operands, &parts[1], has_cell ? &parts[2] : NULL);
    for (int i = 0; i < 3; i++) parts[i] = lk_op_reshape(parts[i], LK_SHAPE(-1));
    return lk_op_concat(parts, has_cell ? 3 : 2, 0);
}
#define RECURRENT(kind, reverse, ...)                                                                        \
    recurrent(LK_RECURRENT_##kind, reverse,                                                                  \
              (lk_recurrent_operands){.gates = in[0], .weight_hh = in[1], __VA_ARGS__})
#define BIAS_H(bias, h) .bias_hh = in[bias], .first = in[h]
#define H_C(h, c)       .first = in[h], .first_cell = in[c]
#define LENGTHS(index)  .lengths = in[index]
FUNCTION(lstm, RECURRENT(LSTM, false, .bias_hh = in[2], H_C(3, 4)))
FUNCTION(lstm_reverse, RECURRENT(LSTM, true, .bias_hh = in[2], H_C(3, 4)))
FUNCTION(lstm_lengths, RECURRENT(LSTM, false, H_C(2, 3), LENGTHS(4)))
FUNCTION(lstm_reverse_lengths, RECURRENT(LSTM, true, H_C(2, 3), LENGTHS(4)))
FUNCTION(lstm_projected, RECURRENT(LSTM, false, H_C(2, 3), .weight_hr = in[4]))
FUNCTION(lstm_projected_lengths, RECURRENT(LSTM, true, .first = in[2], .weight_hr = in[3], LENGTHS(4)))
FUNCTION(gru, RECURRENT(GRU, false, BIAS_H(2, 3)))
FUNCTION(gru_reverse, RECURRENT(GRU, true, BIAS_H(2, 3)))
FUNCTION(gru_lengths, RECURRENT(GRU, false, BIAS_H(2, 3), LENGTHS(4)))
FUNCTION(gru_reverse_lengths, RECURRENT(GRU, true, BIAS_H(2, 3), LENGTHS(4)))
FUNCTION(rnn, RECURRENT(RNN_TANH, false, BIAS_H(2, 3)))
FUNCTION(rnn_reverse_lengths, RECURRENT(RNN_TANH, true, BIAS_H(2, 3), LENGTHS(4)))
FUNCTION(rnn_relu, RECURRENT(RNN_RELU, false, BIAS_H(2, 3)))
FUNCTION(rnn_plain, RECURRENT(RNN_TANH, true, .bias_hh = NULL))

FUNCTION(conv, lk_op_conv(in[0], in[1], in[2], (lk_window){0}))
FUNCTION(conv_all,
         lk_op_conv(in[0], in[1], in[2],
                    (lk_window){.stride = {2, 1}, .padding = {1, 2}, .dilation = {1, 2}, .groups = 2}))
FUNCTION(conv_1d, lk_op_conv(in[0], in[1], NULL, (lk_window){.stride = {2}, .padding = {1}}))
FUNCTION(conv_3d, lk_op_conv(in[0], in[1], in[2], (lk_window){.padding = {1, 0, 1}, .stride = {1, 2, 1}}))
FUNCTION(conv_transpose, lk_op_conv_transpose(in[0], in[1], in[2], (lk_window){0}))
FUNCTION(conv_transpose_all, lk_op_conv_transpose(in[0], in[1], in[2],
                                                  (lk_window){.stride = {2, 3},
                                                              .padding = {1, 1},
                                                              .dilation = {2, 1},
                                                              .output_padding = {1, 2},
                                                              .groups = 2}))
FUNCTION(conv_transpose_far,
         lk_op_conv_transpose(in[0], in[1], in[2],
                              (lk_window){
                                  .stride = {1}, .dilation = {3}, .padding = {1}, .output_padding = {2}}))
FUNCTION(conv_transpose_3d, lk_op_conv_transpose(in[0], in[1], NULL, (lk_window){.stride = {2, 1, 1}}))

FUNCTION(max_pool, lk_op_max_pool(in[0], (lk_window){.rank = 2, .kernel = {2, 2}}))
FUNCTION(max_pool_all, lk_op_max_pool(in[0], (lk_window){.rank = 2,
                                                         .kernel = {3, 2},
                                                         .stride = {2, 1},
                                                         .padding = {1, 1},
                                                         .dilation = {1, 2},
                                                         .ceil_mode = true}))
FUNCTION(max_pool_1d, lk_op_max_pool(in[0], (lk_window){.rank = 1, .kernel = {3}, .stride = {1}}))
FUNCTION(max_pool_3d, lk_op_max_pool(in[0], (lk_window){.rank = 3, .kernel = {2, 2, 2}}))
FUNCTION(avg_pool, lk_op_avg_pool(in[0], (lk_window){.rank = 2, .kernel = {2, 3}}))
FUNCTION(avg_pool_all, lk_op_avg_pool(in[0], (lk_window){.rank = 2,
                                                         .kernel = {3, 3},
                                                         .stride = {2, 2},
                                                         .padding = {1, 1},
                                                         .ceil_mode = true,
                                                         .exclude_pad = true}))
FUNCTION(avg_pool_divisor, lk_op_avg_pool(in[0], (lk_window){.rank = 2,
                                                             .kernel = {3, 3},
                                                             .padding = {1, 1},
                                                             .stride = {2, 1},
                                                             .ceil_mode = true,
                                                             .divisor = 5}))
FUNCTION(avg_pool_1d, lk_op_avg_pool(in[0], (lk_window){.rank = 1, .kernel = {2}, .padding = {1}}))
FUNCTION(avg_pool_3d, lk_op_avg_pool(in[0], (lk_window){.rank = 3, .kernel = {2, 1, 2}}))
FUNCTION(adaptive, lk_op_adaptive_avg_pool(in[0], (const int64_t[]){2, 3}, 2))
FUNCTION(adaptive_1d, lk_op_adaptive_avg_pool(in[0], (const int64_t[]){3}, 1))
FUNCTION(adaptive_3d, lk_op_adaptive_avg_pool(in[0], (const int64_t[]){1, 2, 2}, 3))
FUNCTION(upsample_nearest, lk_op_upsample(in[0], (const int64_t[]){5, 7}, NULL, LK_UPSAMPLE_NEAREST, false))
FUNCTION(upsample_scale, lk_op_upsample(in[0], NULL, (const double[]){1.7, 2.5}, LK_UPSAMPLE_LINEAR, false))
FUNCTION(upsample_corners, lk_op_upsample(in[0], (const int64_t[]){5, 4}, NULL, LK_UPSAMPLE_LINEAR, true))
FUNCTION(upsample_1d, lk_op_upsample(in[0], (const int64_t[]){7}, NULL, LK_UPSAMPLE_LINEAR, false))
FUNCTION(upsample_3d, lk_op_upsample(in[0], (const int64_t[]){3, 2, 4}, NULL, LK_UPSAMPLE_LINEAR, true))

FUNCTION(batch_norm, lk_op_batch_norm(in[0], in[1], in[2], NULL, NULL, 0.1, 1e-2))
FUNCTION(batch_norm_plain, lk_op_batch_norm(in[0], NULL, NULL, NULL, NULL, 0.1, 1e-2))

/* As in evaluation: the running values are given and the batch is not looked at. */
static lk_value *batch_norm_running(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_graph *graph = in[0]->graph;
    lk_tensor *mean = lk_tensor_full(LK_F64, LK_SHAPE(3), 0.3),
              *var = lk_tensor_full(LK_F64, LK_SHAPE(3), 1.7);
    lk_value *running_mean = lk_graph_constant(graph, mean), *running_var = lk_graph_constant(graph, var);
    lk_tensor_free(mean);
    lk_tensor_free(var);
    lk_value *all[] = {in[0], in[1], in[2], running_mean, running_var};
    return lki_record(graph, LK_OP_BATCH_NORM, all, 5, 1, &(lk_attr){.norm = {.eps = 1e-2, .momentum = 0.1}});
}

FUNCTION(layer_norm, lk_op_layer_norm(in[0], in[1], in[2], 1, 1e-2))
FUNCTION(layer_norm_two, lk_op_layer_norm(in[0], in[1], NULL, 2, 1e-2))
FUNCTION(layer_norm_plain, lk_op_layer_norm(in[0], NULL, NULL, 1, 1e-2))
FUNCTION(group_norm, lk_op_group_norm(in[0], in[1], in[2], 2, 1e-2))
FUNCTION(group_norm_plain, lk_op_group_norm(in[0], NULL, NULL, 1, 1e-2))
FUNCTION(dropout, lk_op_dropout(in[0], 0.4))
FUNCTION(dropout_all, lk_op_add(in[0], lk_op_dropout(in[0], 1)))

FUNCTION(cross_entropy, lk_op_cross_entropy(in[0], in[1], NULL, LK_REDUCTION_MEAN, -100, 0))
FUNCTION(cross_entropy_smooth, lk_op_cross_entropy(in[0], in[1], NULL, LK_REDUCTION_SUM, 1, 0.2))
FUNCTION(cross_entropy_none, lk_op_cross_entropy(in[0], in[1], NULL, LK_REDUCTION_NONE, 1, 0.1))
FUNCTION(cross_entropy_soft, lk_op_cross_entropy(in[0], in[1], NULL, LK_REDUCTION_MEAN, -100, 0.1))
FUNCTION(cross_entropy_soft_none, lk_op_cross_entropy(in[0], in[1], NULL, LK_REDUCTION_NONE, -100, 0))

/* Class weights are data: no gradient goes there. */
static lk_value *class_weight(lk_value *like)
{
    int64_t count = like->shape.dim[1];
    lk_tensor *tensor = lk_tensor_create(LK_F64, LK_SHAPE(count));
    for (int64_t i = 0; i < count; i++) lk_tensor_set(tensor, i, 0.5 + 0.4 * (double)i);
    lk_value *weight = lk_graph_constant(like->graph, tensor);
    lk_tensor_free(tensor);
    return weight;
}
FUNCTION(cross_entropy_weight,
         lk_op_cross_entropy(in[0], in[1], class_weight(in[0]), LK_REDUCTION_MEAN, 2, 0.15))
FUNCTION(cross_entropy_soft_weight,
         lk_op_cross_entropy(in[0], in[1], class_weight(in[0]), LK_REDUCTION_SUM, -100, 0.1))
FUNCTION(nll, lk_op_nll(lk_op_log_softmax(in[0], 1), in[1], NULL, LK_REDUCTION_MEAN, -100))
FUNCTION(nll_weight, lk_op_nll(in[0], in[1], class_weight(in[0]), LK_REDUCTION_MEAN, 1))
FUNCTION(nll_none, lk_op_nll(in[0], in[1], class_weight(in[0]), LK_REDUCTION_NONE, 1))

#define LOSS(kind, parameter, reduction)                                                                     \
    lk_op_pointwise_loss(in[0], in[1], NULL, NULL, LK_LOSS_##kind, parameter, LK_REDUCTION_##reduction)
FUNCTION(mse, LOSS(MSE, 0, MEAN))
FUNCTION(mse_none, LOSS(MSE, 0, NONE))
FUNCTION(l1, LOSS(L1, 0, SUM))
FUNCTION(smooth_l1, LOSS(SMOOTH_L1, 0.7, MEAN))
FUNCTION(smooth_l1_zero, LOSS(SMOOTH_L1, 0, MEAN))
FUNCTION(huber, LOSS(HUBER, 0.8, BATCH_MEAN))
FUNCTION(bce, LOSS(BCE, 0, MEAN))
FUNCTION(bce_none, LOSS(BCE, 0, NONE))
FUNCTION(bce_with_logits, LOSS(BCE_WITH_LOGITS, 0, MEAN))
FUNCTION(kl_div, LOSS(KL_DIV, 0, BATCH_MEAN))
FUNCTION(kl_div_log, LOSS(KL_DIV, 1, SUM))

/* (1, 3) weights to be broadcast over (n, 3). */
static lk_value *element_weight(lk_value *like, double first)
{
    double numbers[] = {first, 1.2, 0.4};
    lk_tensor *tensor = lk_tensor_from(LK_F64, LK_SHAPE(3), numbers);
    lk_value *weight = lk_graph_constant(like->graph, tensor);
    lk_tensor_free(tensor);
    return weight;
}
FUNCTION(bce_weight, lk_op_pointwise_loss(in[0], in[1], element_weight(in[0], 2), NULL, LK_LOSS_BCE, 0,
                                          LK_REDUCTION_MEAN))
FUNCTION(logits_weight, lk_op_pointwise_loss(in[0], in[1], element_weight(in[0], 2), element_weight(in[0], 3),
                                             LK_LOSS_BCE_WITH_LOGITS, 0, LK_REDUCTION_SUM))

static lk_value *attention(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *scores = lk_op_mul_scalar(lk_op_matmul(in[0], lk_op_transpose(in[1], -2, -1)), 0.5);
    return lk_op_matmul(lk_op_softmax(scores, -1), in[2]);
}

static lk_value *perceptron(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *hidden = lk_op_tanh(lk_op_linear(in[0], in[1], in[2]));
    lk_value *gate = lk_op_sigmoid(lk_op_add_scalar(lk_op_mul(hidden, hidden), 0.1));
    return lk_op_mean(lk_op_mul(gate, lk_op_exp(lk_op_neg(hidden))), LK_AXES(0), false);
}

static lk_value *convnet(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *y = lk_op_silu(lk_op_conv(in[0], in[1], in[2], (lk_window){.padding = {1, 1}}));
    y = lk_op_avg_pool(lk_op_add(y, lk_op_expand(lk_op_mean(y, LK_AXES(2, 3), true), y->shape)),
                       (lk_window){.rank = 2, .kernel = {2, 2}});
    return lk_op_linear(lk_op_reshape(y, LK_SHAPE(2, -1)), in[3], NULL);
}

/* One value that feeds many nodes: the contributions add up. */
static lk_value *tangled(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *x = in[0], *sum = lk_op_add(x, lk_op_sin(x));
    lk_value *parts[] = {sum, lk_op_mul(sum, x), lk_op_slice(sum, 1, 0, 2, 1)};
    return lk_op_sub(lk_op_sum(lk_op_concat(parts, 3, 1), LK_AXES(1), false),
                     lk_op_max(x, LK_AXES(1), false));
}

/* Ops that are made of others, and those that look at whole lines. */
static lk_value *i64(lk_value *like, int count, const int64_t *numbers)
{
    lk_tensor *tensor = lk_tensor_from(LK_I64, LK_SHAPE(count), numbers);
    lk_value *value = lk_graph_constant(like->graph, tensor);
    lk_tensor_free(tensor);
    return value;
}
#define I64(...)                                                                                             \
    i64(in[0], (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                              \
        (const int64_t[]){__VA_ARGS__})

FUNCTION(cumsum, lk_op_cumsum(in[0], 1))
FUNCTION(cumprod, lk_op_cumprod(in[0], 1))
FUNCTION(sort_up, lk_op_sort(in[0], 1, false, NULL))
FUNCTION(topk, lk_op_topk(in[0], 2, 0, true, NULL))
FUNCTION(scatter, lk_op_scatter(in[0], 1, lk_op_reshape(I64(3, 0, 1, 2), LK_SHAPE(2, 2)), in[1]))
FUNCTION(scatter_add, lk_op_scatter_add(in[0], 1, lk_op_reshape(I64(1, 1, 0, 3), LK_SHAPE(2, 2)), in[1]))
FUNCTION(index_select, lk_op_index_select(in[0], 0, I64(2, 0, 2)))
FUNCTION(index_add, lk_op_index_add(in[0], 0, I64(2, 0, 2), in[1]))
FUNCTION(flip, lk_op_flip(lk_op_exp(in[0]), LK_AXES(0, 1)))
FUNCTION(roll, lk_op_roll(in[0], -2, 1))
FUNCTION(repeat, lk_op_repeat(in[0], (const int64_t[]){2, 1, 3}, 3))
FUNCTION(triu, lk_op_triu(in[0], 1))
FUNCTION(tril, lk_op_tril(in[0], -1))
FUNCTION(stack, lk_op_stack(in, 2, -1))
FUNCTION(masked_fill, lk_op_masked_fill(in[0], lk_op_greater(in[0], lk_op_zeros_like(in[0])), 0.5))
FUNCTION(minimum_of_rows, lk_op_min(in[0], LK_AXES(1), false))
FUNCTION(logsumexp, lk_op_logsumexp(in[0], LK_AXES(0, 1), false))
FUNCTION(norm_1, lk_op_norm(in[0], 1, LK_AXES(1), true))
FUNCTION(norm_2, lk_op_norm(in[0], 2, LK_ALL_AXES, false))
FUNCTION(norm_3, lk_op_norm(in[0], 3, LK_AXES(0), false))
FUNCTION(norm_inf, lk_op_norm(in[0], INFINITY, LK_AXES(1), false))
FUNCTION(einsum_batched, lk_op_einsum("bij,kjb->bki", in, 2))
FUNCTION(einsum_outer, lk_op_einsum("i,jk->kij", in, 2))
FUNCTION(einsum_trace, lk_op_einsum("abc->ca", in, 1))
FUNCTION(drawn, lk_op_mul(in[0], lk_op_normal(in[0]->graph, LK_SHAPE(3, 2), 1, 0.5, LK_F64)))

static lk_value *sees_some(lk_value *like, int64_t rows, int64_t keys)
{
    lk_value *drawn = lk_op_full(like->graph, LK_SHAPE(rows, keys), 1, LK_BOOL);
    return lk_op_cast(lk_op_tril(lk_op_cast(drawn, LK_F64), 1), LK_BOOL);
}

#define ATTENTION(...) lk_op_scaled_dot_product_attention(in[0], in[1], in[2], __VA_ARGS__)
FUNCTION(attention_scaled, ATTENTION(.scale = 0.7))
FUNCTION(attention_causal, ATTENTION(.is_causal = true))
FUNCTION(attention_masked, ATTENTION(.attn_mask = sees_some(in[0], 2, 4)))
FUNCTION(attention_packed,
         lk_op_scaled_dot_product_attention(in[0], NULL, NULL, .heads = 2, .kv_heads = 1,
                                            .layout = LK_ATTENTION_BATCH_FIRST, .is_causal = true))
FUNCTION(attention_bias, lk_op_scaled_dot_product_attention(in[0], in[1], in[1], .attn_mask = in[2]))

/* Slices that overlap, leave gaps and take steps, beside other uses of the same value. */
static lk_value *slices(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *x = lk_op_exp(in[0]), *pair[2];
    if (lk_op_chunk(pair, 2, x, 1)) return NULL;
    lk_value *sum = lk_op_add(lk_op_mul(pair[0], pair[1]), lk_op_slice(x, 1, 1, 3, 1));
    return lk_op_concat((lk_value *[]){sum, lk_op_slice(x, 1, 0, 4, 2), lk_op_sin(x)}, 3, 1);
}

static lk_value *sliced_once(lk_value *const *in, int count, void *context)
{
    (void)count, (void)context;
    lk_value *row = lk_op_slice(in[0], 0, 1, 2, 1);
    return lk_op_mul(row, row);
}

static const grad_case cases[] = {
    {"cumsum", cumsum, {ANY(2, 4, 2)}},
    {"cumprod", cumprod, {ANY(2, 4)}},
    {"sort", sort_up, {APART(2, 5)}},
    {"topk", topk, {APART(4, 3)}},
    {"scatter", scatter, {ANY(2, 4), ANY(2, 2)}},
    {"scatter_add", scatter_add, {ANY(2, 4), ANY(2, 3)}},
    {"index_select", index_select, {ANY(3, 2)}},
    {"index_add", index_add, {ANY(3, 2), ANY(3, 2)}},
    {"flip", flip, {ANY(2, 3)}},
    {"roll", roll, {ANY(2, 5)}},
    {"repeat", repeat, {ANY(2, 3)}},
    {"triu", triu, {ANY(3, 4)}},
    {"tril", tril, {ANY(2, 3, 3)}},
    {"stack", stack, {ANY(2, 3), ANY(2, 3)}},
    {"masked_fill", masked_fill, {ANY(3, 4)}},
    {"min", minimum_of_rows, {APART(3, 4)}},
    {"logsumexp", logsumexp, {ANY(2, 3, 2)}},
    {"norm 1", norm_1, {ANY(2, 3)}},
    {"norm 2", norm_2, {ANY(2, 3)}},
    {"norm 3", norm_3, {ANY(2, 3)}},
    {"norm of infinity", norm_inf, {APART(2, 3)}},
    {"einsum batched", einsum_batched, {ANY(2, 3, 2), ANY(2, 2, 2)}},
    {"einsum outer", einsum_outer, {ANY(3), ANY(2, 2)}},
    {"einsum of one operand", einsum_trace, {ANY(2, 3, 2)}},
    {"random numbers", drawn, {ANY(3, 2)}},
    {"attention op", attention_scaled, {ANY(1, 2, 2, 3), ANY(1, 1, 4, 3), ANY(1, 1, 4, 2)}},
    {"attention causal", attention_causal, {ANY(2, 3, 2), ANY(2, 2, 2), ANY(2, 2, 2)}},
    {"attention masked", attention_masked, {ANY(1, 1, 2, 2), ANY(1, 1, 4, 2), ANY(1, 1, 4, 2)}},
    {"attention packed", attention_packed, {ANY(2, 3, 8)}},
    {"attention bias", attention_bias, {ANY(1, 2, 2, 2), ANY(1, 2, 3, 2), ANY(2, 2, 3)}},
    {"slices", slices, {ANY(3, 4)}},
    {"a slice", sliced_once, {ANY(3, 2)}},
    {"add", do_add, {ANY(2, 3), ANY(2, 3)}},
    {"add broadcast", do_add, {ANY(4, 1, 3), ANY(2, 1)}},
    {"add scalar", do_add, {SCALAR, ANY(2, 2)}},
    {"sub", do_sub, {ANY(2, 3), ANY(3)}},
    {"sub outer", do_sub, {ANY(3, 1), ANY(1, 2)}},
    {"mul", do_mul, {ANY(2, 3), ANY(2, 1)}},
    {"mul of itself", do_square, {ANY(2, 3)}},
    {"div", do_div, {ANY(2, 3), POSITIVE(3)}},
    {"div outer", do_div, {ANY(3, 1), ANY(2)}},
    {"pow", do_pow, {POSITIVE(2, 3), ANY(3)}},
    {"pow broadcast base", do_pow, {POSITIVE(3), ANY(2, 3)}},
    {"maximum", do_maximum, {APART(3, 4), ANY(4)}},
    {"minimum", do_minimum, {ANY(4), APART(3, 4)}},
    {"where", do_where, {APART(3, 4), ANY(4)}},
    {"where broadcast", do_where_mask, {ANY(3, 1), ANY(4), SCALAR}},
    {"neg", do_neg, {ANY(2, 3)}},
    {"abs", do_abs, {ANY(2, 3)}},
    {"exp", do_exp, {ANY(2, 3)}},
    {"log", do_log, {POSITIVE(2, 3)}},
    {"sqrt", do_sqrt, {POSITIVE(2, 3)}},
    {"sin", do_sin, {ANY(7)}},
    {"cos", do_cos, {ANY(7)}},
    {"erf", do_erf, {ANY(7)}},
    {"tanh", do_tanh, {ANY(2, 3)}},
    {"sigmoid", do_sigmoid, {ANY(2, 3)}},
    {"relu", do_relu, {ANY(3, 5)}},
    {"leaky_relu", do_leaky_relu, {ANY(3, 5)}},
    {"elu", do_elu, {ANY(3, 5)}},
    {"gelu", do_gelu, {ANY(3, 5)}},
    {"gelu tanh", do_gelu_tanh, {ANY(3, 5)}},
    {"silu", do_silu, {ANY(3, 5)}},
    {"softplus", do_softplus, {ANY(3, 5)}},
    {"softplus beyond the threshold", do_softplus_linear, {POSITIVE(3, 5)}},
    {"clamp", do_clamp, {ANY(3, 5)}},
    {"add_scalar", do_add_scalar, {ANY(2, 3)}},
    {"mul_scalar", do_mul_scalar, {ANY(2, 3)}},
    {"pow_scalar 2", do_pow_two, {ANY(2, 3)}},
    {"pow_scalar 3", do_pow_three, {ANY(2, 3)}},
    {"pow_scalar -0.5", do_pow_minus_half, {POSITIVE(2, 3)}},
    {"pow_scalar 0", do_pow_zero, {ANY(2, 3)}},
    {"cast", do_cast, {ANY(2, 3)}},
    {"copy", do_copy, {ANY(2, 3)}},
    {"sum", sum_all, {ANY(2, 3)}},
    {"sum of a scalar", sum_all, {SCALAR}},
    {"sum last", sum_last, {ANY(2, 3, 2)}},
    {"sum two", sum_two_kept, {ANY(2, 3, 2)}},
    {"mean", mean_all, {ANY(2, 3)}},
    {"mean middle", mean_middle, {ANY(2, 3, 2)}},
    {"max", max_all, {APART(2, 3)}},
    {"max last", max_last, {APART(2, 3, 4)}},
    {"max two", max_two_kept, {APART(2, 3, 4)}},
    {"var", var_all, {ANY(2, 3)}},
    {"var first", var_first, {ANY(3, 2)}},
    {"var two", var_two_kept, {ANY(2, 2, 3)}},
    {"softmax", softmax_last, {ANY(2, 4)}},
    {"softmax middle", softmax_middle, {ANY(2, 3, 2)}},
    {"log_softmax", log_softmax_last, {ANY(2, 4)}},
    {"log_softmax first", log_softmax_first, {ANY(3, 2)}},
    {"reshape", reshape, {ANY(2, 6)}},
    {"permute", permute, {ANY(2, 3, 4)}},
    {"transpose", transpose, {ANY(2, 3, 2)}},
    {"expand", expand, {ANY(3, 2, 1)}},
    {"expand scalar", expand, {ANY(1, 1)}},
    {"slice", slice, {ANY(2, 4, 2)}},
    {"slice with a step", slice_step, {ANY(2, 5)}},
    {"concat", concat, {ANY(2, 1), ANY(2, 3), ANY(2, 2)}},
    {"concat of itself", concat_self, {ANY(2, 2)}},
    {"pad constant", pad_constant, {ANY(2, 3, 3)}},
    {"pad reflect", pad_reflect, {ANY(2, 3, 3)}},
    {"pad circular", pad_circular, {ANY(2, 3, 3)}},
    {"pad replicate", pad_replicate, {ANY(2, 3, 3)}},
    {"gather", gather_last, {ANY(2, 4), INDEX(4, 2, 6)}},
    {"gather first", gather_first, {ANY(3, 2, 2), INDEX(3, 4, 1, 2)}},
    {"embedding", embedding, {ANY(4, 3), INDEX(4, 2, 3)}},
    {"embedding scalar", embedding, {ANY(4, 3), {FILL_INDEX, {0}, 4}}},
    {"matmul", do_matmul, {ANY(2, 3), ANY(3, 4)}},
    {"matmul batched", do_matmul, {ANY(2, 2, 3), ANY(2, 3, 2)}},
    {"matmul broadcast", do_matmul, {ANY(2, 1, 2, 3), ANY(3, 3, 2)}},
    {"matmul by a matrix", do_matmul, {ANY(2, 2, 3), ANY(3, 2)}},
    {"matmul of a matrix", do_matmul, {ANY(2, 3), ANY(2, 3, 2)}},
    {"matmul of vectors", do_matmul, {ANY(3), ANY(3)}},
    {"matmul by a vector", do_matmul, {ANY(2, 2, 3), ANY(3)}},
    {"matmul of a vector", do_matmul, {ANY(3), ANY(3, 2)}},
    {"matmul ta", matmul_ta, {ANY(2, 3, 2), ANY(2, 3, 4)}},
    {"matmul tb", matmul_tb, {ANY(2, 2, 3), ANY(4, 3)}},
    {"matmul ta tb", matmul_ta_tb, {ANY(2, 3, 2), ANY(4, 3)}},
    {"linear", linear, {ANY(3, 4), ANY(2, 4), ANY(2)}},
    {"linear in three dimensions", linear, {ANY(2, 3, 4), ANY(2, 4), ANY(2)}},
    {"linear of a vector", linear, {ANY(4), ANY(2, 4), ANY(2)}},
    {"linear without bias", linear_plain, {ANY(3, 4), ANY(2, 4)}},
    {"linear of whole weights", linear_frozen, {ANY(3, 4), INDEX(5, 2, 4), ANY(2)}},
    {"lstm", lstm, {ANY(3, 2, 12), ANY(12, 3), ANY(12), ANY(2, 3), ANY(2, 3)}},
    {"lstm reverse", lstm_reverse, {ANY(3, 2, 12), ANY(12, 3), ANY(12), ANY(2, 3), ANY(2, 3)}},
    {"lstm with lengths", lstm_lengths, {ANY(3, 4, 8), ANY(8, 2), ANY(4, 2), ANY(4, 2), INDEX(4, 4)}},
    {"lstm reverse with lengths",
     lstm_reverse_lengths,
     {ANY(3, 4, 8), ANY(8, 2), ANY(4, 2), ANY(4, 2), INDEX(4, 4)}},
    {"lstm projected", lstm_projected, {ANY(3, 2, 12), ANY(12, 2), ANY(2, 2), ANY(2, 3), ANY(2, 3)}},
    {"lstm projected with lengths",
     lstm_projected_lengths,
     {ANY(3, 4, 12), ANY(12, 2), ANY(4, 2), ANY(2, 3), INDEX(4, 4)}},
    {"gru", gru, {ANY(3, 2, 9), ANY(9, 3), ANY(9), ANY(2, 3)}},
    {"gru reverse", gru_reverse, {ANY(3, 2, 9), ANY(9, 3), ANY(9), ANY(2, 3)}},
    {"gru with lengths", gru_lengths, {ANY(3, 4, 6), ANY(6, 2), ANY(6), ANY(4, 2), INDEX(4, 4)}},
    {"gru reverse with lengths",
     gru_reverse_lengths,
     {ANY(3, 4, 6), ANY(6, 2), ANY(6), ANY(4, 2), INDEX(4, 4)}},
    {"rnn", rnn, {ANY(3, 2, 3), ANY(3, 3), ANY(3), ANY(2, 3)}},
    {"rnn reverse with lengths",
     rnn_reverse_lengths,
     {ANY(3, 4, 2), ANY(2, 2), ANY(2), ANY(4, 2), INDEX(4, 4)}},
    {"rnn relu", rnn_relu, {ANY(3, 2, 3), ANY(3, 3), ANY(3), ANY(2, 3)}},
    {"rnn without bias or first state", rnn_plain, {ANY(3, 2, 3), ANY(3, 3)}},
    {"conv", conv, {ANY(2, 2, 4, 4), ANY(3, 2, 3, 2), ANY(3)}},
    {"conv without batch", conv, {ANY(2, 4, 4), ANY(3, 2, 3, 2), ANY(3)}},
    {"conv with everything", conv_all, {ANY(1, 4, 5, 4), ANY(2, 2, 3, 2), ANY(2)}},
    {"conv 1d", conv_1d, {ANY(2, 2, 6), ANY(2, 2, 3)}},
    {"conv 3d", conv_3d, {ANY(1, 2, 2, 3, 2), ANY(2, 2, 3, 2, 2), ANY(2)}},
    {"conv_transpose", conv_transpose, {ANY(2, 3, 3, 2), ANY(3, 2, 2, 3), ANY(2)}},
    {"conv_transpose with everything", conv_transpose_all, {ANY(1, 4, 3, 2), ANY(4, 2, 3, 2), ANY(4)}},
    {"conv_transpose padded far", conv_transpose_far, {ANY(2, 2, 4), ANY(2, 2, 2), ANY(2)}},
    {"conv_transpose 3d", conv_transpose_3d, {ANY(1, 2, 2, 2, 2), ANY(2, 2, 2, 1, 2)}},
    {"max_pool", max_pool, {APART(2, 2, 4, 5)}},
    {"max_pool with everything", max_pool_all, {APART(1, 2, 4, 5)}},
    {"max_pool 1d without batch", max_pool_1d, {APART(2, 6)}},
    {"max_pool 3d", max_pool_3d, {APART(1, 2, 2, 4, 3)}},
    {"avg_pool", avg_pool, {ANY(2, 2, 4, 6)}},
    {"avg_pool with everything", avg_pool_all, {ANY(1, 2, 4, 5)}},
    {"avg_pool divisor", avg_pool_divisor, {ANY(1, 2, 4, 5)}},
    {"avg_pool 1d", avg_pool_1d, {ANY(2, 1, 5)}},
    {"avg_pool 3d", avg_pool_3d, {ANY(1, 1, 2, 2, 4)}},
    {"adaptive_avg_pool", adaptive, {ANY(2, 2, 5, 4)}},
    {"adaptive_avg_pool 1d", adaptive_1d, {ANY(2, 2, 7)}},
    {"adaptive_avg_pool 3d", adaptive_3d, {ANY(1, 2, 2, 3, 3)}},
    {"upsample nearest", upsample_nearest, {ANY(1, 2, 2, 3)}},
    {"upsample by a scale", upsample_scale, {ANY(1, 2, 3, 3)}},
    {"upsample with corners", upsample_corners, {ANY(1, 2, 3, 2)}},
    {"upsample 1d", upsample_1d, {ANY(2, 1, 4)}},
    {"upsample 3d", upsample_3d, {ANY(1, 1, 2, 2, 2)}},
    {"batch_norm", batch_norm, {ANY(4, 3), ANY(3), ANY(3)}},
    {"batch_norm in space", batch_norm, {ANY(2, 3, 2, 2), ANY(3), ANY(3)}},
    {"batch_norm without weight", batch_norm_plain, {ANY(3, 2, 2)}},
    {"batch_norm by running values", batch_norm_running, {ANY(2, 3, 2), ANY(3), ANY(3)}},
    {"layer_norm", layer_norm, {ANY(2, 3, 4), ANY(4), ANY(4)}},
    {"layer_norm over two axes", layer_norm_two, {ANY(2, 3, 2), ANY(3, 2)}},
    {"layer_norm of a vector", layer_norm_plain, {ANY(5)}},
    {"group_norm", group_norm, {ANY(2, 4, 3), ANY(4), ANY(4)}},
    {"group_norm of one group", group_norm_plain, {ANY(2, 2, 2, 2)}},
    {"dropout", dropout, {ANY(4, 5)}},
    {"dropout of everything", dropout_all, {ANY(2, 3)}},
    {"cross_entropy", cross_entropy, {ANY(4, 3), INDEX(3, 4)}},
    {"cross_entropy in space", cross_entropy, {ANY(2, 3, 2, 2), INDEX(3, 2, 2, 2)}},
    {"cross_entropy smooth, ignoring", cross_entropy_smooth, {ANY(4, 3), INDEX(3, 4)}},
    {"cross_entropy weighted", cross_entropy_weight, {ANY(5, 3), INDEX(3, 5)}},
    {"cross_entropy unreduced", cross_entropy_none, {ANY(2, 3, 2), INDEX(3, 2, 2)}},
    {"cross_entropy soft", cross_entropy_soft, {ANY(2, 3, 2), UNIT(2, 3, 2)}},
    {"cross_entropy soft, weighted", cross_entropy_soft_weight, {ANY(4, 3), UNIT(4, 3)}},
    {"cross_entropy soft, unreduced", cross_entropy_soft_none, {ANY(2, 3, 2), UNIT(2, 3, 2)}},
    {"nll", nll, {ANY(4, 3), INDEX(3, 4)}},
    {"nll weighted", nll_weight, {ANY(5, 3), INDEX(3, 5)}},
    {"nll unreduced", nll_none, {ANY(2, 3, 2), INDEX(3, 2, 2)}},
    {"mse", mse, {ANY(3, 2), ANY(3, 2)}},
    {"mse broadcast", mse, {ANY(3, 1), ANY(3)}},
    {"mse unreduced", mse_none, {ANY(3, 2), ANY(3, 2)}},
    {"l1", l1, {APART(3, 2), ANY(3, 2)}},
    {"smooth_l1", smooth_l1, {APART(3, 4), ANY(3, 4)}},
    {"smooth_l1 of 0", smooth_l1_zero, {APART(3, 2), ANY(3, 2)}},
    {"huber", huber, {APART(3, 4), ANY(3, 4)}},
    {"bce", bce, {UNIT(3, 2), UNIT(3, 2)}},
    {"bce unreduced", bce_none, {UNIT(3, 2), UNIT(3, 2)}},
    {"bce weighted", bce_weight, {UNIT(2, 3), UNIT(2, 3)}},
    {"bce_with_logits", bce_with_logits, {ANY(3, 2), UNIT(3, 2)}},
    {"bce_with_logits weighted", logits_weight, {ANY(2, 3), UNIT(2, 3)}},
    {"kl_div", kl_div, {ANY(3, 2), UNIT(3, 2)}},
    {"kl_div of logs", kl_div_log, {ANY(3, 2), ANY(3, 2)}},
    {"attention", attention, {ANY(2, 3, 4), ANY(2, 2, 4), ANY(2, 2, 3)}},
    {"perceptron", perceptron, {ANY(3, 4), ANY(2, 4), ANY(2)}},
    {"convnet", convnet, {ANY(2, 1, 4, 4), ANY(2, 1, 3, 3), ANY(2), ANY(3, 8)}},
    {"one value, many uses", tangled, {APART(3, 4)}},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static lk_tensor *make_input(const input_spec *spec, lk_generator *generator)
{
    lk_tensor *tensor = lk_tensor_create(spec->fill == FILL_INDEX ? LK_I64 : LK_F64, spec->shape);
    lkt_not_null(tensor);
    int64_t count = lk_tensor_count(tensor), order[256];
    assert_true(count <= 256);
    lk_randperm(order, count, generator);
    for (int64_t i = 0; i < count; i++) {
        double draw = lk_generator_f64(generator), sign = lk_generator_f64(generator) < 0.5 ? -1 : 1;
        double number[] = {
            [FILL_ANY] = sign * (0.05 + 1.95 * draw),
            [FILL_POSITIVE] = 0.5 + 1.5 * draw,
            [FILL_UNIT] = 0.1 + 0.8 * draw,
            [FILL_APART] = 0.1 * (double)order[i] - 0.05 * (double)count + 0.013,
            [FILL_INDEX] = (double)lk_randint(spec->high ? spec->high : 1, generator),
        };
        lk_tensor_set(tensor, i, number[spec->fill]);
    }
    return tensor;
}

static int make_inputs(const grad_case *self, lk_tensor **inputs)
{
    lk_generator generator;
    lk_generator_seed(&generator, 11);
    int count = 0;
    while (count < MAX_INPUTS && self->input[count].fill != FILL_NONE) {
        inputs[count] = make_input(&self->input[count], &generator);
        count++;
    }
    return count;
}

static void free_inputs(lk_tensor **inputs, int count)
{
    for (int i = 0; i < count; i++) lk_tensor_free(inputs[i]);
}

static void gradients_equal_central_differences(void **state)
{
    (void)state;
    const char *asked = getenv("LOCKSTEP_TEST_ENGINE"), *engine = asked && *asked ? asked : "ref";
    int failures = 0;
    for (int c = 0; c < CASE_COUNT; c++) {
        lk_tensor *inputs[MAX_INPUTS];
        int count = make_inputs(&cases[c], inputs);
        /* Differences of numbers that were rounded to f32 are coarse. */
        double tolerance = cases[c].function == do_cast ? 0.1 : 1e-7;
        lk_status status = lki_gradcheck_on(engine, cases[c].function, NULL, inputs, count, tolerance);
        if (status) print_error("%s: %s\n", cases[c].name, lk_error()), failures++;
        free_inputs(inputs, count);
    }
    assert_int_equal(failures, 0);
}

/* A case, and the input with respect to which its gradient is asked for. */
typedef struct second {
    const grad_case *self;
    int input;
} second;

/* The gradient of sum(f^2), which is checked in turn: second gradients. */
static lk_value *gradient_of(lk_value *const *in, int count, void *context)
{
    const second *asked = context;
    lk_value *y = asked->self->function(in, count, NULL);
    return lk_op_grad(lk_op_mul(y, y), in[asked->input]);
}

static bool is_recurrent(lk_graph_function function)
{
    static const lk_graph_function all[] = {lstm,
                                            lstm_reverse,
                                            lstm_lengths,
                                            lstm_reverse_lengths,
                                            lstm_projected,
                                            lstm_projected_lengths,
                                            gru,
                                            gru_reverse,
                                            gru_lengths,
                                            gru_reverse_lengths,
                                            rnn,
                                            rnn_reverse_lengths,
                                            rnn_relu,
                                            rnn_plain};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (function == all[i]) return true;
    return false;
}

/* What has no second gradient says so. The condition of a selection has none at all. */
static bool has_second_gradient(const second *asked)
{
    lk_graph_function function = asked->self->function;
    if (function == do_where_mask && asked->input == 0) return false;
    if (is_recurrent(function)) return false;
    return function != cumprod && function != do_cast && asked->self->input[asked->input].fill != FILL_INDEX;
}

static void second_gradients_equal_central_differences(void **state)
{
    (void)state;
    const char *named = getenv("LOCKSTEP_TEST_ENGINE"), *engine = named && *named ? named : "ref";
    int failures = 0;
    for (int c = 0; c < CASE_COUNT; c++) {
        lk_tensor *inputs[MAX_INPUTS];
        int count = make_inputs(&cases[c], inputs);
        for (int i = 0; i < count; i++) {
            second asked = {&cases[c], i};
            if (!has_second_gradient(&asked)) continue;
            if (!lki_gradcheck_on(engine, gradient_of, &asked, inputs, count, 1e-6)) continue;
            print_error("second gradient of %s, input %d: %s\n", cases[c].name, i, lk_error());
            failures++;
        }
        free_inputs(inputs, count);
    }
    assert_int_equal(failures, 0);
}

FUNCTION(through_detach, lk_op_mul(in[0], lk_op_detach(in[0])))

/* d (x stop(x)) / dx = x, which central differences do not see. */
static void refused_and_stopped_gradients(void **state)
{
    (void)state;
    double numbers[] = {1, 2, 3, 4};
    lk_tensor *x = lk_tensor_from(LK_F64, LK_SHAPE(2, 2), numbers);
    lkt_fails(lk_gradcheck(through_detach, NULL, &x, 1, 1e-7), LK_ERR_RANGE,
              "gradcheck: input 0 at (0, 0): the gradient is ");
    grad_case twice = {"cumprod", cumprod, {ANY(2, 2)}};
    second asked = {&twice, 0};
    lkt_fails(lk_gradcheck(gradient_of, &asked, &x, 1, 1e-6), LK_ERR_UNSUPPORTED,
              "cumprod_grad: it has no gradient, but one is asked for");
    lk_tensor_free(x);
}

/* Records every case and notes which ops it takes gradients through. */
static void every_differentiable_op_is_checked(void **state)
{
    (void)state;
    bool seen[LK_OP_COUNT] = {0};
    for (int c = 0; c < CASE_COUNT; c++) {
        lk_tensor *inputs[MAX_INPUTS];
        lk_param *params[MAX_INPUTS] = {0};
        lk_value *values[MAX_INPUTS];
        int count = make_inputs(&cases[c], inputs);
        lk_graph *graph = lk_graph_create(true);
        for (int i = 0; i < count; i++) {
            params[i] = lk_param_create("input", inputs[i], lk_dtype_is_float(inputs[i]->dtype));
            values[i] = lk_graph_param(graph, params[i]);
        }
        if (!cases[c].function(values, count, NULL)) fail_msg("%s: %s", cases[c].name, lk_error());
        for (int i = 0; i < count; i++) {
            second asked = {&cases[c], i};
            if (has_second_gradient(&asked) && !gradient_of(values, count, &asked))
                fail_msg("%s: %s", cases[c].name, lk_error());
        }
        for (lki_node *node = graph->first; node; node = node->next)
            if (node->out[0]->needs_grad) seen[node->op] = true;
        lk_graph_free(graph);
        for (int i = 0; i < count; i++) lk_param_free(params[i]);
    }
    for (int op = 0; op < LK_OP_COUNT; op++) {
        bool differentiable =
            !(lk_op_flags(op) & (LK_OP_HAS_NO_GRADIENT | LK_OP_IS_LEAF | LK_OP_RUNS_ON_HOST));
        if (differentiable && !seen[op]) fail_msg("the gradient of \"%s\" is not checked", lk_op_name(op));
    }
}

static void every_op_has_its_rules(void **state)
{
    (void)state;
    for (int op = 0; op < LK_OP_COUNT; op++) {
        bool leaf = lk_op_flags(op) & LK_OP_IS_LEAF, update = lki_op_output_count(op) == 0;
        bool differentiable = !leaf && !(lk_op_flags(op) & LK_OP_HAS_NO_GRADIENT);
        bool has_shape = !leaf && !update && op != LK_OP_REORDER;
        if (has_shape != (lki_rules[op].infer != NULL)) fail_msg("\"%s\": the shape rule", lk_op_name(op));
        if (differentiable != (lki_rules[op].backward != NULL))
            fail_msg("\"%s\": the gradient rule", lk_op_name(op));
    }
}

/* y = relu(x) computed with a kink that the differences see and the gradient does not. */
FUNCTION(wrong_at_the_kink, lk_op_relu(in[0]))
FUNCTION(of_another_dtype, lk_op_cast(in[0], LK_F32))
FUNCTION(of_a_bad_shape, lk_op_matmul(in[0], in[0]))
FUNCTION(of_nothing, lk_op_greater(in[0], in[0]) ? NULL : in[0])

static void it_finds_what_is_wrong(void **state)
{
    (void)state;
    double numbers[] = {1, 2, 3, 4, 0, 5};
    lk_tensor *x = lk_tensor_from(LK_F64, LK_SHAPE(2, 3), numbers);
    lkt_fails(lk_gradcheck(wrong_at_the_kink, NULL, &x, 1, 1e-7), LK_ERR_RANGE,
              "gradcheck: input 0 at (1, 1): the gradient is 0, central differences give ");
    lkt_fails(lk_gradcheck(of_another_dtype, NULL, &x, 1, 1e-7), LK_ERR_DTYPE, "must return f64, not f32");
    lkt_fails(lk_gradcheck(of_a_bad_shape, NULL, &x, 1, 1e-7), LK_ERR_SHAPE,
              "matmul: shapes (2, 3) and (2, 3)");
    lkt_fails(lk_gradcheck(of_nothing, NULL, &x, 1, 1e-7), LK_ERR_INVALID, "returned no value");
    lk_tensor_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_has_its_rules),
        cmocka_unit_test(every_differentiable_op_is_checked),
        cmocka_unit_test(gradients_equal_central_differences),
        cmocka_unit_test(second_gradients_equal_central_differences),
        cmocka_unit_test(refused_and_stopped_gradients),
        cmocka_unit_test(it_finds_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
