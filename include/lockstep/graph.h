/* The graph: a model written down once as values and the ops between them, then compiled and
 * replayed for every batch.
 *
 * You need it to write your own module, which is a C function that takes values and returns one:
 *
 *     lk_value *residual_block(lk_value *x, void *context)
 *     {
 *         return lk_op_add(x, lk_op_relu(lk_module_forward(context, x)));
 *     }
 *
 * Ops check shapes and dtypes when they are recorded. An op that fails sets lk_error(), marks the
 * graph as failed and returns NULL, and an op of NULL returns NULL. So a function needs no
 * checks: whoever compiles the graph makes the only one.
 *
 * Life: a value belongs to its graph and lives as long. Threads: one thread records a graph. */
#ifndef LOCKSTEP_GRAPH_H
#define LOCKSTEP_GRAPH_H

#include <lockstep/arguments.h>
#include <lockstep/sized.h>
#include <lockstep/sys/engine.h>
#include <lockstep/sys/op.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_graph lk_graph;
typedef struct lk_value lk_value;

/* A tensor that outlives the graph and that training changes: a weight, or (trainable false) a
 * buffer such as a running mean. `value` may move into the flat buffer of its model but keeps its
 * contents.
 *
 * A GPU trains a copy of it. Whenever the library gives control to you, `value` and `grad` are up
 * to date: what lk_module_param and lk_module_params return, and parameters that you keep, in
 * callbacks (unless they set may_lag), in handle_batch, and after lk_train, lk_step_train and
 * lk_step_update. Only .asynchronous steps need lk_step_pull. After you write to `value`, call
 * lk_param_changed. */
typedef struct lk_param {
    char *name; /* "weight"; the module knows its full path, "0.weight" */
    lk_tensor *value;
    lk_tensor *grad; /* NULL until a step that trains it is compiled */
    bool trainable;
    bool is_buffer;        /* never trained: running statistics */
    struct lki_home *home; /* the library's own; NULL: it is in the host's memory */
    bool is_shown;         /* somebody outside the library holds it; the library's */
    int holder_count;      /* the library's; see lk_param_share */
    bool steers;           /* the library's: a buffer that training reads, so ranks share it */
    bool is_computed;      /* the library's: a counter that the step itself moves */
} lk_param;

/* Returns a parameter, which owns the tensor from the call on, or NULL on failure. */
lk_param *lk_param_create(const char *name, lk_tensor *value_owned, bool trainable);
void lk_param_free(lk_param *param);
/* Returns the same parameter for one more module, so that both have it: see lk_module_set_param.
 * NULL passes through. */
lk_param *lk_param_share(lk_param *param);
/* Declares that the program has written to param->value. A GPU takes over the new values before
 * its next batch. */
void lk_param_changed(lk_param *param);

/* Returns an empty graph, or NULL on failure. In a training graph dropout is on, and batch norms
 * use the statistics of the batch. */
lk_graph *lk_graph_create(bool training);
void lk_graph_free(lk_graph *graph);
bool lk_graph_is_training(const lk_graph *graph);

/* Adds an input. Its name is copied. */
lk_value *lk_graph_input(lk_graph *graph, const char *name, lk_dtype dtype, lk_shape shape);
/* Adds a parameter. Adding it twice gives the same value. */
lk_value *lk_graph_param(lk_graph *graph, lk_param *param);
/* Copies the tensor into the graph. */
lk_value *lk_graph_constant(lk_graph *graph, const lk_tensor *tensor);
/* Names a value, so that it can be read after each replay. */
lk_status lk_graph_output(lk_graph *graph, const char *name, lk_value *value);

lk_graph *lk_value_graph(const lk_value *value);
lk_shape lk_value_shape(const lk_value *value);
lk_dtype lk_value_dtype(const lk_value *value);

/* Names the layer that the following ops belong to, for error messages, until it is popped. */
void lk_graph_push_scope(lk_graph *graph, const char *name, const char *type);
void lk_graph_pop_scope(lk_graph *graph);

/* Elementwise, with the broadcasting of NumPy and PyTorch. */
lk_value *lk_op_add(lk_value *a, lk_value *b);
lk_value *lk_op_sub(lk_value *a, lk_value *b);
lk_value *lk_op_mul(lk_value *a, lk_value *b);
lk_value *lk_op_div(lk_value *a, lk_value *b);
lk_value *lk_op_pow(lk_value *a, lk_value *b);
lk_value *lk_op_maximum(lk_value *a, lk_value *b);
lk_value *lk_op_minimum(lk_value *a, lk_value *b);
/* Comparisons give bool. Both operands have one dtype, which may be any. */
lk_value *lk_op_greater(lk_value *a, lk_value *b);
lk_value *lk_op_greater_equal(lk_value *a, lk_value *b);
lk_value *lk_op_equal(lk_value *a, lk_value *b);
lk_value *lk_op_less(lk_value *a, lk_value *b);
lk_value *lk_op_less_equal(lk_value *a, lk_value *b);
lk_value *lk_op_not_equal(lk_value *a, lk_value *b);
lk_value *lk_op_logical_not(lk_value *x); /* x is bool */
lk_value *lk_op_where(lk_value *condition, lk_value *a, lk_value *b);
lk_value *lk_op_add_scalar(lk_value *x, double scalar);
lk_value *lk_op_mul_scalar(lk_value *x, double scalar);
lk_value *lk_op_pow_scalar(lk_value *x, double exponent);
lk_value *lk_op_neg(lk_value *x);
lk_value *lk_op_abs(lk_value *x);
lk_value *lk_op_sign(lk_value *x);
lk_value *lk_op_floor(lk_value *x);
lk_value *lk_op_ceil(lk_value *x);
lk_value *lk_op_round(lk_value *x); /* halves go to the even neighbour */
/* `value` wherever the bool mask is true. */
lk_value *lk_op_masked_fill(lk_value *x, lk_value *mask, double value);
lk_value *lk_op_exp(lk_value *x);
lk_value *lk_op_log(lk_value *x);
lk_value *lk_op_sqrt(lk_value *x);
lk_value *lk_op_sin(lk_value *x);
lk_value *lk_op_cos(lk_value *x);
lk_value *lk_op_erf(lk_value *x);
lk_value *lk_op_tanh(lk_value *x);
lk_value *lk_op_sigmoid(lk_value *x);
lk_value *lk_op_relu(lk_value *x);
lk_value *lk_op_leaky_relu(lk_value *x, double slope);
lk_value *lk_op_elu(lk_value *x, double alpha);
lk_value *lk_op_gelu(lk_value *x, bool tanh_approximation);
lk_value *lk_op_silu(lk_value *x);
lk_value *lk_op_softplus(lk_value *x, double beta, double threshold);
lk_value *lk_op_clamp(lk_value *x, double min, double max);
lk_value *lk_op_cast(lk_value *x, lk_dtype dtype);

/* Over a set of axes, LK_AXES(0, -1), or all of them, LK_ALL_AXES. Negative axes count from the
 * end. */
#define LK_ALL_AXES  NULL, 0
#define LK_AXES(...) (const int[]){__VA_ARGS__}, (int)(sizeof((const int[]){__VA_ARGS__}) / sizeof(int))
lk_value *lk_op_sum(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_mean(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_max(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_var(lk_value *x, const int *axes, int axis_count, bool keep_dims, int correction);
lk_value *lk_op_min(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_logsumexp(lk_value *x, const int *axes, int axis_count, bool keep_dims);
/* The p-norm, as torch.linalg.vector_norm. p is at least 0 or INFINITY. */
lk_value *lk_op_norm(lk_value *x, double p, const int *axes, int axis_count, bool keep_dims);
/* Whether any, or all, elements differ from 0. They give bool and take any dtype. */
lk_value *lk_op_any(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_all(lk_value *x, const int *axes, int axis_count, bool keep_dims);
lk_value *lk_op_argmax(lk_value *x, int axis, bool keep_dims);
lk_value *lk_op_argmin(lk_value *x, int axis, bool keep_dims);
lk_value *lk_op_cumsum(lk_value *x, int axis);
lk_value *lk_op_cumprod(lk_value *x, int axis);
/* Sorts each line along the axis. The order is stable, and a NaN counts as the largest number. If
 * `index` is not NULL, it gets the places that the values came from, as i64. topk gives the first k
 * of that order, the largest or the smallest. */
lk_value *lk_op_sort(lk_value *x, int axis, bool descending, lk_value **index);
lk_value *lk_op_argsort(lk_value *x, int axis, bool descending);
lk_value *lk_op_topk(lk_value *x, int64_t k, int axis, bool largest, lk_value **index);
lk_value *lk_op_softmax(lk_value *x, int axis);
lk_value *lk_op_log_softmax(lk_value *x, int axis);

/* Shapes and places. One dimension of a reshape may be -1. */
lk_value *lk_op_reshape(lk_value *x, lk_shape shape);
lk_value *lk_op_permute(lk_value *x, const int *order);
lk_value *lk_op_transpose(lk_value *x, int axis_a, int axis_b);
lk_value *lk_op_expand(lk_value *x, lk_shape shape);
lk_value *lk_op_unsqueeze(lk_value *x, int axis);
lk_value *lk_op_squeeze(lk_value *x, int axis); /* x itself if that axis is longer than 1 */
lk_value *lk_op_flip(lk_value *x, const int *axes, int axis_count);
lk_value *lk_op_roll(lk_value *x, int64_t shift, int axis);
/* One number per axis. If there are more numbers than axes, x gets axes of 1 in front. */
lk_value *lk_op_repeat(lk_value *x, const int64_t *repeats, int count);
/* The triangle on and above (or below) a diagonal of the last two axes, 0 elsewhere. */
lk_value *lk_op_triu(lk_value *x, int64_t diagonal);
lk_value *lk_op_tril(lk_value *x, int64_t diagonal);
lk_value *lk_op_slice(lk_value *x, int axis, int64_t begin, int64_t end, int64_t step);
/* Fill `out`, which has room for `count` values, with parts of x: pieces of `size` (the last may be
 * smaller), of the given sizes, `count` pieces of about equal size, or all places of the axis
 * without that axis. They fail, with NULL in all of `out`, if x does not have exactly `count` of
 * them. */
lk_status lk_op_split(lk_value **out, int count, lk_value *x, int64_t size, int axis);
lk_status lk_op_split_sizes(lk_value **out, const int64_t *sizes, int count, lk_value *x, int axis);
lk_status lk_op_chunk(lk_value **out, int count, lk_value *x, int axis);
lk_status lk_op_unbind(lk_value **out, int count, lk_value *x, int axis);
lk_value *lk_op_stack(lk_value *const *values, int count, int axis);
lk_value *lk_op_concat(lk_value *const *values, int count, int axis);
/* `before` and `after` hold one number per axis. */
lk_value *lk_op_pad(lk_value *x, const int64_t *before, const int64_t *after, lk_pad_mode mode, double value);
lk_value *lk_op_gather(lk_value *x, int axis, lk_value *index);
/* Rows (or other lines) of x by a list of numbers, i64 (n). */
lk_value *lk_op_index_select(lk_value *x, int axis, lk_value *index);
/* x with the elements of `source` at the places that lk_op_gather(x, axis, index) reads. If several
 * elements go to one place, the last one stays; scatter_add and index_add add all of them, in
 * their order, so the bits do not depend on threads. Only the part of `source` that `index` covers
 * is read. */
lk_value *lk_op_scatter(lk_value *x, int axis, lk_value *index, lk_value *source);
lk_value *lk_op_scatter_add(lk_value *x, int axis, lk_value *index, lk_value *source);
lk_value *lk_op_index_add(lk_value *x, int axis, lk_value *index, lk_value *source);
/* i64 of one more axis: 1 at the class, 0 elsewhere, and 0 everywhere for a number that is no
 * class. */
lk_value *lk_op_one_hot(lk_value *index, int64_t class_count);
lk_value *lk_op_embedding(lk_value *weight, lk_value *index, int64_t padding_index);

/* Values that no input determines. arange counts from `start` to before `end`. */
lk_value *lk_op_full(lk_graph *graph, lk_shape shape, double value, lk_dtype dtype);
lk_value *lk_op_zeros(lk_graph *graph, lk_shape shape, lk_dtype dtype);
lk_value *lk_op_ones(lk_graph *graph, lk_shape shape, lk_dtype dtype);
lk_value *lk_op_full_like(lk_value *x, double value);
lk_value *lk_op_zeros_like(lk_value *x);
lk_value *lk_op_ones_like(lk_value *x);
lk_value *lk_op_arange(lk_graph *graph, double start, double end, double step, lk_dtype dtype);

/* Random numbers, f32 or f64. Every batch draws new ones from the step's generator, in the order in
 * which they were recorded. On the CPU they are those of tensor.uniform_(from, to),
 * .normal_(mean, std) and .bernoulli_(p). A GPU draws numbers of its own. */
lk_value *lk_op_uniform(lk_graph *graph, lk_shape shape, double from, double to, lk_dtype dtype);
lk_value *lk_op_normal(lk_graph *graph, lk_shape shape, double mean, double std, lk_dtype dtype);
lk_value *lk_op_bernoulli(lk_graph *graph, lk_shape shape, double p, lk_dtype dtype);

/* The same numbers, through which no gradient flows. */
lk_value *lk_op_detach(lk_value *x);
/* The gradient of y with respect to x, as a value that can be used and differentiated like any
 * other. If y is not one number, it is the gradient of its sum. It is 0 if y does not depend on x.
 * Fails with LK_ERR_UNSUPPORTED and names the op if one in between has no gradient that is itself
 * differentiable. A parameter or an input as x must have been used to compute y as that same
 * value. */
lk_value *lk_op_grad(lk_value *y, lk_value *x);
/* The same with respect to `count` values, for the price of one. As in torch.autograd.grad, the
 * gradient of a value from which another one is computed has what flows through that one. Fails,
 * with NULL in all of `out`, as lk_op_grad does. */
lk_status lk_op_grads(lk_value **out, lk_value *y, lk_value *const *x, int count);

/* An op of your own, for engines that compute on the host. Begin it with LK_SIZE(lk_custom_op).
 * NULL stands for the shape of input 0, or for no gradient. All tensors are contiguous. The
 * functions are called while a batch is computed, on the thread that trains. They must give the
 * same results for the same inputs. */
typedef struct lk_custom_op {
    size_t struct_size;
    const char *name; /* for errors */
    /* Fills in the shape of the result. Its dtype is that of input 0. */
    lk_status (*shape)(lk_shape *out, const lk_shape *in, int count, void *context);
    /* Fills `out`. Required. */
    lk_status (*forward)(lk_tensor *out, const lk_tensor *in, int count, void *context);
    /* Fills the gradients of the inputs, given the gradient of the result, which has been computed
     * from `in`. grad_in[i].data is NULL if nobody wants that gradient. There are gradients of the
     * first three inputs only. */
    lk_status (*backward)(lk_tensor *grad_in, const lk_tensor *grad_out, const lk_tensor *out,
                          const lk_tensor *in, int count, void *context);
} lk_custom_op;

/* Records a call on `count` inputs. `op` and `context` must live as long as the graph. Check your
 * gradients with lk_gradcheck. */
lk_value *lk_op_custom(const lk_custom_op *op, lk_value *const *inputs, int count, void *context);

/* Products. `bias` may be NULL. */
lk_value *lk_op_matmul(lk_value *a, lk_value *b);
/* torch.einsum of one or two operands, such as "bij,bjk->bik", "ij->ji" or "i,j->ij". Each letter
 * appears at most once per operand, and there is no "...". */
lk_value *lk_op_einsum(const char *equation, lk_value *const *values, int count);
lk_value *lk_op_linear(lk_value *x, lk_value *weight, lk_value *bias);
/* In a window, a stride, dilation or group count of zero means 1. */
lk_value *lk_op_conv(lk_value *x, lk_value *weight, lk_value *bias, lk_window window);
lk_value *lk_op_conv_transpose(lk_value *x, lk_value *weight, lk_value *bias, lk_window window);
lk_value *lk_op_max_pool(lk_value *x, lk_window window);
lk_value *lk_op_avg_pool(lk_value *x, lk_window window);
lk_value *lk_op_adaptive_avg_pool(lk_value *x, const int64_t *output_size, int rank);
/* Give either `size` or `scale` (one number per spatial axis); the other is NULL. */
lk_value *lk_op_upsample(lk_value *x, const int64_t *size, const double *scale, lk_upsample_mode mode,
                         bool align_corners);

/* Normalisation. Weight, bias and running statistics may be NULL. */
lk_value *lk_op_batch_norm(lk_value *x, lk_value *weight, lk_value *bias, lk_value *running_mean,
                           lk_value *running_var, double momentum, double eps);
lk_value *lk_op_layer_norm(lk_value *x, lk_value *weight, lk_value *bias, int axis_count, double eps);
lk_value *lk_op_group_norm(lk_value *x, lk_value *weight, lk_value *bias, int64_t group_count, double eps);
/* The identity in a graph that is not for training. */
lk_value *lk_op_dropout(lk_value *x, double p);

/* torch.nn.functional.scaled_dot_product_attention: softmax(q k^T scale + masks) v of each head,
 * with memory that grows with the length of the sequences and not with its square. query
 * (B, H, L, D), key (B, H, S, D), value (B, H, S, E) -> (B, H, L, E), or each without H. Key and
 * value may have fewer heads: then H / G heads of the query share one.
 *
 * With another layout the dimensions come in another order: see lk_attention_layout in
 * <lockstep/sys/op.h>. With `heads`, operands may have three dimensions, (B, L, H D) or
 * (L, B, H D). One linear layer may give all three: if value is NULL, key holds the heads of the
 * key and then those of the value; if key is NULL too, query holds the heads of query, key and
 * value. None of this copies anything.
 *
 * A query that may see no key gives NaN, as in PyTorch. A trainable attn_mask, and `weights`, keep
 * the whole matrix of weights in memory; so do second gradients, which need p = 0. */
typedef struct lk_attention_options {
    size_t struct_size;
    /* Broadcasts to (B, H, L, S). Of bool: true lets a key take part; else it is added. */
    lk_value *attn_mask;
    lk_value *key_padding_mask; /* (B, S), likewise */
    bool mask_forbids;          /* a true takes a key away, as in MultiheadAttention */
    bool is_causal;             /* query i sees keys 0 to i */
    double dropout_p;           /* of the weights, in a training graph */
    double scale;               /* 0: 1 / sqrt(D) */
    lk_attention_layout layout;
    int64_t heads, kv_heads; /* of operands that do not show them; kv_heads 0: heads */
    lk_value **weights;      /* receives the weights after dropout, (B, H, L, S) */
} lk_attention_options;
lk_value *lk_op_scaled_dot_product_attention_with(lk_value *query, lk_value *key, lk_value *value,
                                                  const lk_attention_options *options);
#define lk_op_scaled_dot_product_attention(...)                                                              \
    LK_CALL3_(lk_op_scaled_dot_product_attention_with, lk_attention_options, __VA_ARGS__, )

/* One direction of one recurrent layer. `gates` (T, N, G H) is what the inputs give to the gates of
 * each step, with their bias; LK_OP_LIST says what the other operands are. All but weight_hh may be
 * NULL. If the pointers are not NULL, they receive the states after each sequence's last step:
 * (N, R), and of an LSTM its cells (N, H). */
typedef struct lk_recurrent_operands {
    lk_value *gates, *weight_hh, *bias_hh, *first, *first_cell, *weight_hr, *lengths;
} lk_recurrent_operands;
lk_value *lk_op_recurrent(lk_recurrent kind, bool reverse, const lk_recurrent_operands *operands,
                          lk_value **last, lk_value **last_cell);

/* Losses. Weights may be NULL. */
lk_value *lk_op_cross_entropy(lk_value *logits, lk_value *target, lk_value *weight, lk_reduction reduction,
                              int64_t ignore_index, double label_smoothing);
lk_value *lk_op_nll(lk_value *log_probabilities, lk_value *target, lk_value *weight, lk_reduction reduction,
                    int64_t ignore_index);
lk_value *lk_op_pointwise_loss(lk_value *x, lk_value *target, lk_value *weight, lk_value *pos_weight,
                               lk_pointwise_loss kind, double parameter, lk_reduction reduction);

/* Compares the gradients of a function with central differences, in f64 on the reference engine.
 * `function` gets its inputs as values and returns any value, which lk_gradcheck sums with fixed
 * weights. Fails with LK_ERR_RANGE and an error that names the input, the position and both
 * numbers. */
typedef lk_value *(*lk_graph_function)(lk_value *const *inputs, int count, void *context);
lk_status lk_gradcheck(lk_graph_function function, void *context, lk_tensor *const *inputs, int count,
                       double tolerance);

#ifdef __cplusplus
}
#endif
#endif
