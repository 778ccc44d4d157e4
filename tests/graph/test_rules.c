/* Shapes that ops infer, operands that they refuse, and what recording does with a refusal. */
#include "lktest.h"

#include "graph/record_util.h"

#include <lockstep/graph.h>
#include <lockstep/log.h>

static lk_graph *graph;

static int open_graph(void **state)
{
    (void)state;
    graph = lk_graph_create(true);
    return graph ? 0 : -1;
}

static int close_graph(void **state)
{
    (void)state;
    lk_graph_free(graph);
    return 0;
}

/* Inputs of f32, f64, i64. */
#define F32(...) lk_graph_input(graph, "x", LK_F32, LK_SHAPE(__VA_ARGS__))
#define F64(...) lk_graph_input(graph, "x", LK_F64, LK_SHAPE(__VA_ARGS__))
#define I64(...) lk_graph_input(graph, "i", LK_I64, LK_SHAPE(__VA_ARGS__))
#define SCALAR   lk_graph_input(graph, "s", LK_F32, lk_scalar_shape())

static void check_shape(lk_value *value, lk_dtype dtype, lk_shape expected, int line)
{
    char found_text[160], expected_text[160];
    if (!value) fail_msg("line %d: %s", line, lk_error());
    lk_shape_format(found_text, sizeof found_text, value->shape);
    lk_shape_format(expected_text, sizeof expected_text, expected);
    if (!lk_shape_equal(value->shape, expected))
        fail_msg("line %d: %s, expected %s", line, found_text, expected_text);
    if (value->dtype != dtype) fail_msg("line %d: dtype %s", line, lk_dtype_name(value->dtype));
}
#define gives(value, ...)           check_shape((value), LK_F32, LK_SHAPE(__VA_ARGS__), __LINE__)
#define gives_scalar(value)         check_shape((value), LK_F32, lk_scalar_shape(), __LINE__)
#define gives_of(dtype, value, ...) check_shape((value), (dtype), LK_SHAPE(__VA_ARGS__), __LINE__)

static void check_refused(lk_value *value, lk_status status, const char *sentence, int line)
{
    if (value) fail_msg("line %d: it was recorded, expected \"%s\"", line, sentence);
    if (!graph->status) fail_msg("line %d: the graph does not know of the failure", line);
    if (strcmp(lk_error(), sentence) != 0)
        fail_msg("line %d: \"%s\", expected \"%s\"", line, lk_error(), sentence);
    if (graph->status != status) fail_msg("line %d: status %s", line, lk_status_name(graph->status));
    lk_graph_free(graph); /* a failure sticks: the next one needs a fresh graph */
    graph = lk_graph_create(true);
}
#define refuses(value, status, sentence) check_refused((value), (status), (sentence), __LINE__)

static void elementwise(void **state)
{
    (void)state;
    gives(lk_op_add(F32(3, 4), F32(3, 4)), 3, 4);
    gives(lk_op_mul(F32(8, 1, 6, 1), F32(7, 1, 5)), 8, 7, 6, 5);
    gives(lk_op_div(SCALAR, F32(2, 3)), 2, 3);
    gives_scalar(lk_op_sub(SCALAR, SCALAR));
    gives_of(LK_F64, lk_op_pow(F64(2), F64(1)), 2);
    gives_of(LK_BOOL, lk_op_greater(F32(3, 1), F32(4)), 3, 4);
    gives(lk_op_where(lk_op_equal(F32(3, 1), F32(1)), F32(4), SCALAR), 3, 4);
    gives(lk_op_gelu(F32(2, 3), true), 2, 3);
    gives(lk_op_add(F32(0, 3), F32(3)), 0, 3);
    gives_of(LK_I64, lk_op_cast(F32(2, 3), LK_I64), 2, 3);
    refuses(lk_op_add(F32(3, 4), F32(2, 4)), LK_ERR_SHAPE, "add: shapes (3, 4) and (2, 4) do not broadcast");
    refuses(lk_op_maximum(F32(3), F32(2, 4)), LK_ERR_SHAPE,
            "maximum: shapes (3,) and (2, 4) do not broadcast");
    refuses(lk_op_mul(F32(3), F64(3)), LK_ERR_DTYPE, "mul: dtypes f32 and f64 do not mix");
    refuses(lk_op_add(F32(3), I64(3)), LK_ERR_DTYPE,
            "add: expected floating-point numbers, found i64 of shape (3,)");
    refuses(lk_op_exp(I64(3)), LK_ERR_DTYPE, "exp: expected floating-point numbers, found i64 of shape (3,)");
    refuses(lk_op_where(F32(3), F32(3), F32(3)), LK_ERR_DTYPE,
            "where: expected bool, found f32 of shape (3,)");
    refuses(lk_op_where(lk_op_equal(F32(5), F32(5)), F32(3), F32(3)), LK_ERR_SHAPE,
            "where: shapes (5,) and (3,) do not broadcast");
    refuses(lk_op_softplus(F32(3), 0, 20), LK_ERR_INVALID, "softplus: beta must be above 0, not 0");
    refuses(lk_op_clamp(F32(3), NAN, 1), LK_ERR_INVALID, "clamp: the limits nan and 1 are no numbers");
}

static void reductions(void **state)
{
    (void)state;
    gives_scalar(lk_op_sum(F32(2, 3), LK_ALL_AXES, false));
    gives(lk_op_sum(F32(2, 3), LK_ALL_AXES, true), 1, 1);
    gives(lk_op_mean(F32(2, 3, 4), LK_AXES(0, -1), false), 3);
    gives(lk_op_max(F32(2, 3, 4), LK_AXES(1), true), 2, 1, 4);
    gives(lk_op_var(F32(2, 3, 4), LK_AXES(-3), false, 1), 3, 4);
    gives_scalar(lk_op_sum(SCALAR, LK_ALL_AXES, true));
    gives_of(LK_I64, lk_op_argmax(F32(2, 3), -1, false), 2);
    gives_of(LK_I64, lk_op_argmax(F32(2, 3), 0, true), 1, 3);
    gives(lk_op_softmax(F32(2, 3), -2), 2, 3);
    refuses(lk_op_sum(F32(2, 3), LK_AXES(2), false), LK_ERR_RANGE, "sum: axis 2 is outside of shape (2, 3)");
    refuses(lk_op_mean(F32(2, 3), LK_AXES(1, -1), false), LK_ERR_RANGE,
            "mean: axis -1 is given twice for shape (2, 3)");
    refuses(lk_op_softmax(F32(2, 3), 2), LK_ERR_RANGE, "softmax: axis 2 is outside of shape (2, 3)");
    refuses(lk_op_argmax(F32(2, 3), -3, false), LK_ERR_RANGE, "argmax: axis -3 is outside of shape (2, 3)");
    refuses(lk_op_max(F32(0, 3), LK_AXES(0), false), LK_ERR_SHAPE, "max: nothing to reduce in shape (0, 3)");
    refuses(lk_op_var(F32(1, 3), LK_AXES(0), false, 1), LK_ERR_SHAPE,
            "var: 1 numbers of shape (1, 3) have no variance with correction 1");
    refuses(lk_op_sum(I64(3), LK_ALL_AXES, false), LK_ERR_DTYPE,
            "sum: expected floating-point numbers, found i64 of shape (3,)");
}

static void shapes_and_axes(void **state)
{
    (void)state;
    gives(lk_op_reshape(F32(2, 3, 4), LK_SHAPE(6, 4)), 6, 4);
    gives(lk_op_reshape(F32(2, 3, 4), LK_SHAPE(2, -1)), 2, 12);
    gives(lk_op_reshape(F32(0, 3), LK_SHAPE(-1, 3)), 0, 3);
    gives_scalar(lk_op_reshape(F32(1, 1), lk_scalar_shape()));
    gives_of(LK_I64, lk_op_reshape(I64(4), LK_SHAPE(2, 2)), 2, 2);
    gives(lk_op_permute(F32(2, 3, 4), (const int[]){-1, 0, 1}), 4, 2, 3);
    gives(lk_op_transpose(F32(2, 3, 4), -1, 0), 4, 3, 2);
    gives(lk_op_expand(F32(3, 1), LK_SHAPE(2, -1, 5)), 2, 3, 5);
    refuses(lk_op_reshape(F32(2, 3), LK_SHAPE(4, 2)), LK_ERR_SHAPE,
            "reshape: cannot view shape (2, 3) as (4, 2)");
    refuses(lk_op_reshape(F32(2, 3), LK_SHAPE(4, -1)), LK_ERR_SHAPE,
            "reshape: cannot view shape (2, 3) as (4, -1)");
    refuses(lk_op_reshape(F32(0, 3), LK_SHAPE(0, -1)), LK_ERR_SHAPE,
            "reshape: cannot view shape (0, 3) as (0, -1)");
    refuses(lk_op_reshape(F32(2, 3), LK_SHAPE(-1, -1)), LK_ERR_INVALID,
            "reshape: (-1, -1) is no shape; one dimension may be -1");
    refuses(lk_op_permute(F32(2, 3), (const int[]){0, 0}), LK_ERR_INVALID,
            "permute: the order is no permutation of the axes of shape (2, 3)");
    refuses(lk_op_transpose(F32(2, 3), 0, 2), LK_ERR_RANGE, "transpose: axis 2 is outside of shape (2, 3)");
    refuses(lk_op_expand(F32(3, 2), LK_SHAPE(3, 4)), LK_ERR_SHAPE,
            "expand: shape (3, 2) does not broadcast to (3, 4)");
    refuses(lk_op_expand(F32(3, 2), LK_SHAPE(2)), LK_ERR_SHAPE,
            "expand: shape (3, 2) does not broadcast to (2,)");
    refuses(lk_op_expand(F32(3), LK_SHAPE(-1, 3)), LK_ERR_SHAPE, "expand: (-1, 3) is no shape");
    refuses(lk_op_expand(F32(1, 1), LK_SHAPE(INT64_MAX, 4)), LK_ERR_NOMEM,
            "out of memory: a tensor of shape (9223372036854775807, 4) is larger than any memory");
}

static void parts(void **state)
{
    (void)state;
    const int64_t one[] = {1, 1}, none[] = {0, 0}, four[] = {0, 4};
    gives(lk_op_slice(F32(5, 4), 0, 1, 4, 2), 2, 4);
    gives(lk_op_slice(F32(5, 4), -1, -3, INT64_MAX, 1), 5, 3);
    gives(lk_op_concat((lk_value *[]){F32(2, 3), F32(2, 1), F32(2, 4)}, 3, -1), 2, 8);
    gives(lk_op_pad(F32(2, 4), one, none, LK_PAD_REFLECT, 0), 3, 5);
    gives(lk_op_pad(F32(2, 4), none, four, LK_PAD_CIRCULAR, 0), 2, 8);
    gives(lk_op_gather(F32(3, 4), 1, I64(2, 7)), 2, 7);
    gives(lk_op_embedding(F32(10, 4), I64(2, 3), -1), 2, 3, 4);
    refuses(lk_op_slice(F32(5, 4), 2, 0, 1, 1), LK_ERR_RANGE, "slice: axis 2 is outside of shape (5, 4)");
    refuses(lk_op_slice(F32(5, 4), 0, 3, 3, 1), LK_ERR_RANGE,
            "slice: [3, 3) of axis 0 is empty or outside of shape (5, 4)");
    refuses(lk_op_slice(F32(5, 4), 0, 0, 3, 0), LK_ERR_INVALID, "slice: the step must be at least 1, not 0");
    refuses(lk_op_concat((lk_value *[]){F32(2, 3), F32(3, 3)}, 2, 1), LK_ERR_SHAPE,
            "concat: shapes (2, 3) and (3, 3) differ outside of axis 1");
    refuses(lk_op_concat((lk_value *[]){F32(2, 3), F64(2, 3)}, 2, 1), LK_ERR_DTYPE,
            "concat: dtypes f32 and f64 do not mix");
    refuses(lk_op_pad(F32(2, 4), four, none, LK_PAD_REFLECT, 0), LK_ERR_SHAPE,
            "pad: 4 is too much for axis 1 of shape (2, 4) in reflect mode");
    refuses(lk_op_pad(F32(2, 3), four, none, LK_PAD_CIRCULAR, 0), LK_ERR_SHAPE,
            "pad: 4 is too much for axis 1 of shape (2, 3) in circular mode");
    refuses(lk_op_pad(F32(2), (const int64_t[]){-1}, none, LK_PAD_CONSTANT, 0), LK_ERR_INVALID,
            "pad: -1 before and 0 after axis 0 of shape (2,): expected no negative number");
    refuses(lk_op_gather(F32(3, 4), 1, I64(4, 7)), LK_ERR_SHAPE,
            "gather: index (4, 7) does not fit input (3, 4) along axis 1");
    refuses(lk_op_gather(F32(3, 4), 1, F32(3, 4)), LK_ERR_DTYPE,
            "gather: expected i64, found f32 of shape (3, 4)");
    refuses(lk_op_embedding(F32(10), I64(2), -1), LK_ERR_SHAPE,
            "embedding: weight (10,) has not 2 dimensions");
    refuses(lk_op_embedding(F32(10, 4), F32(2), -1), LK_ERR_DTYPE,
            "embedding: expected i64, found f32 of shape (2,)");
    refuses(lk_op_embedding(F32(10, 4), I64(2), 10), LK_ERR_RANGE,
            "embedding: the padding index 10 is outside of weight (10, 4)");
}

static void products(void **state)
{
    (void)state;
    gives(lk_op_matmul(F32(2, 3), F32(3, 4)), 2, 4);
    gives(lk_op_matmul(F32(5, 1, 2, 3), F32(6, 3, 4)), 5, 6, 2, 4);
    gives_scalar(lk_op_matmul(F32(3), F32(3)));
    gives(lk_op_matmul(F32(5, 2, 3), F32(3)), 5, 2);
    gives(lk_op_matmul(F32(3), F32(5, 3, 2)), 5, 2);
    gives(lk_op_linear(F32(32, 784), F32(10, 784), F32(10)), 32, 10);
    gives(lk_op_linear(F32(2, 5, 7), F32(3, 7), NULL), 2, 5, 3);
    refuses(lk_op_matmul(F32(2, 3), F32(4, 5)), LK_ERR_SHAPE,
            "matmul: shapes (2, 3) and (4, 5) do not multiply: 3 columns meet 4 rows");
    refuses(lk_op_matmul(F32(2, 2, 3), F32(4, 3, 5)), LK_ERR_SHAPE,
            "matmul: the leading dimensions of shapes (2, 2, 3) and (4, 3, 5) do not broadcast");
    refuses(lk_op_matmul(SCALAR, F32(3, 3)), LK_ERR_SHAPE,
            "matmul: shapes () and (3, 3): expected at least 2 dimensions");
    refuses(lk_op_matmul(F32(2, 3), F64(3, 4)), LK_ERR_DTYPE, "matmul: dtypes f32 and f64 do not mix");
    refuses(lk_op_linear(F32(32, 100), F32(10, 784), F32(10)), LK_ERR_SHAPE,
            "linear: input (32, 100) does not fit weight (10, 784): the last dimension must be 784");
    refuses(lk_op_linear(F32(32, 784), F32(10, 784), F32(11)), LK_ERR_SHAPE,
            "linear: bias (11,) does not fit weight (10, 784): expected (10,)");
    refuses(lk_op_linear(F32(32, 784), F32(784), NULL), LK_ERR_SHAPE,
            "linear: weight (784,) has not 2 dimensions");
    refuses(lk_op_linear(I64(32, 784), F32(10, 784), NULL), LK_ERR_DTYPE,
            "linear: expected floating-point numbers, found i64 of shape (32, 784)");
    refuses(lk_op_linear(F32(32, 784), F64(10, 784), NULL), LK_ERR_DTYPE,
            "linear: dtypes f32 and f64 do not mix");
}

static void convolutions(void **state)
{
    (void)state;
    lk_window plain = {0}, strided = {.stride = {2, 2}, .padding = {1, 1}}, grouped = {.groups = 2};
    gives(lk_op_conv(F32(8, 3, 16, 16), F32(6, 3, 3, 3), F32(6), plain), 8, 6, 14, 14);
    gives(lk_op_conv(F32(8, 3, 15, 16), F32(6, 3, 3, 3), NULL, strided), 8, 6, 8, 8);
    gives(lk_op_conv(F32(3, 16, 16), F32(6, 3, 3, 3), NULL, plain), 6, 14, 14);
    gives(lk_op_conv(F32(2, 4, 9), F32(6, 2, 3), NULL, grouped), 2, 6, 7);
    gives(lk_op_conv(F32(1, 1, 9, 9, 9), F32(2, 1, 3, 3, 3), F32(2), (lk_window){.dilation = {1, 2, 4}}), 1,
          2, 7, 5, 1);
    gives(lk_op_conv_transpose(F32(2, 4, 5), F32(4, 3, 3), F32(3), plain), 2, 3, 7);
    gives(lk_op_conv_transpose(
              F32(2, 4, 5, 5), F32(4, 3, 4, 4), NULL,
              (lk_window){.stride = {2, 3}, .padding = {1, 0}, .output_padding = {1, 2}, .groups = 2}),
          2, 6, 11, 18);
    refuses(lk_op_conv(F32(8, 3, 16, 16), F32(6, 4, 3, 3), NULL, plain), LK_ERR_SHAPE,
            "conv: input (8, 3, 16, 16) has 3 channels, the weight (6, 4, 3, 3) expects 4");
    refuses(lk_op_conv(F32(2, 4, 9), F32(5, 2, 3), NULL, grouped), LK_ERR_SHAPE,
            "conv: the 5 channels that weight (5, 2, 3) gives do not split into 2 groups");
    refuses(lk_op_conv(F32(8, 3, 4, 4), F32(6, 3, 7, 3), NULL, (lk_window){.padding = {1, 0}}), LK_ERR_SHAPE,
            "conv: input (8, 3, 4, 4) is too small for weight (6, 3, 7, 3): the kernel reaches over 7, the "
            "padded input "
            "has 6");
    refuses(lk_op_conv(F32(8, 16), F32(6, 3, 3, 3), NULL, plain), LK_ERR_SHAPE,
            "conv: input (8, 16) does not fit weight (6, 3, 3, 3): expected 4 dimensions, (batch, channels, "
            "...)");
    refuses(lk_op_conv(F32(8, 3, 9, 9), F32(6, 3), NULL, plain), LK_ERR_SHAPE,
            "conv: weight (6, 3): expected 3 to 5 dimensions");
    refuses(lk_op_conv(F32(8, 3, 9, 9), F32(6, 3, 3, 3), F32(5), plain), LK_ERR_SHAPE,
            "conv: bias (5,) does not fit weight (6, 3, 3, 3): expected (6,)");
    refuses(lk_op_conv(F32(8, 3, 9, 9), F32(6, 3, 3, 3), NULL, (lk_window){.stride = {-1}}), LK_ERR_INVALID,
            "conv: stride -1, dilation 1, padding 0, output padding 0: expected no negative number");
    refuses(lk_op_conv(F32(8, 3, 9, 9), F32(6, 3, 3, 3), NULL, (lk_window){.kernel = {3, 5}}), LK_ERR_SHAPE,
            "conv: kernel (3, 5) does not fit weight (6, 3, 3, 3)");
    refuses(lk_op_conv(F32(8, 3, 9, 9), F32(6, 3, 3, 3), NULL, (lk_window){.groups = -2}), LK_ERR_INVALID,
            "conv: groups must be at least 1, not -2");
    refuses(lk_op_conv_transpose(F32(2, 3, 5), F32(4, 3, 3), NULL, plain), LK_ERR_SHAPE,
            "conv_transpose: input (2, 3, 5) has 3 channels, the weight (4, 3, 3) expects 4");
    refuses(lk_op_conv_transpose(F32(2, 4, 5), F32(4, 3, 3), NULL, (lk_window){.output_padding = {1}}),
            LK_ERR_INVALID, "conv_transpose: output padding 1 must be below the stride 1 or the dilation 1");
    refuses(lk_op_conv_transpose(F32(2, 4, 1), F32(4, 3, 2), NULL, (lk_window){.padding = {1}}), LK_ERR_SHAPE,
            "conv_transpose: input (2, 4, 1) and weight (4, 3, 2) would give shape (2, 3, 0)");
}

static void pools(void **state)
{
    (void)state;
    lk_window two = {.rank = 2, .kernel = {2, 2}};
    gives(lk_op_max_pool(F32(8, 6, 7, 8), two), 8, 6, 3, 4);
    gives(lk_op_max_pool(F32(6, 7, 8), two), 6, 3, 4);
    lk_value *y = lk_op_max_pool(F32(8, 6, 8, 8), two);
    gives_of(LK_I32, y->node->out[1], 8, 6, 4, 4);
    two.ceil_mode = true;
    gives(lk_op_max_pool(F32(8, 6, 7, 8), two), 8, 6, 4, 4);
    /* The last window would begin in the right padding: PyTorch drops it. */
    gives(lk_op_avg_pool(
              F32(1, 1, 3),
              (lk_window){.rank = 1, .kernel = {2}, .stride = {2}, .padding = {1}, .ceil_mode = true}),
          1, 1, 2);
    gives(
        lk_op_avg_pool(F32(1, 1, 5, 5, 5), (lk_window){.rank = 3, .kernel = {3, 3, 3}, .stride = {1, 2, 3}}),
        1, 1, 3, 2, 1);
    gives(lk_op_adaptive_avg_pool(F32(2, 3, 7, 9), (const int64_t[]){1, 4}, 2), 2, 3, 1, 4);
    gives(lk_op_adaptive_avg_pool(F32(3, 7), (const int64_t[]){9}, 1), 3, 9);
    gives(lk_op_upsample(F32(2, 3, 5, 5), NULL, (const double[]){2, 1.5}, LK_UPSAMPLE_NEAREST, false), 2, 3,
          10, 7);
    gives(lk_op_upsample(F32(2, 3, 5), (const int64_t[]){11}, NULL, LK_UPSAMPLE_LINEAR, true), 2, 3, 11);
    refuses(
        lk_op_max_pool(F32(8, 6, 1, 8), (lk_window){.rank = 2, .kernel = {2, 2}}), LK_ERR_SHAPE,
        "max_pool: input (8, 6, 1, 8) is too small along axis 2 for kernel 2 with padding 0 and dilation 1");
    refuses(lk_op_max_pool(F32(8, 6, 8, 8), (lk_window){.rank = 2, .kernel = {2, 2}, .padding = {0, 2}}),
            LK_ERR_INVALID, "max_pool: padding 2 must lie between 0 and half of the kernel 2");
    refuses(lk_op_max_pool(F32(8, 6, 8, 8), (lk_window){.rank = 2}), LK_ERR_INVALID,
            "max_pool: kernel 0, stride 0 and dilation 1 must be at least 1");
    refuses(lk_op_max_pool(F32(8, 6, 8, 8), (lk_window){.kernel = {2}}), LK_ERR_INVALID,
            "max_pool: expected 1 to 3 spatial dimensions, not 0");
    refuses(lk_op_avg_pool(F32(8, 6), (lk_window){.rank = 2, .kernel = {2, 2}}), LK_ERR_SHAPE,
            "avg_pool: input (8, 6): expected 4 dimensions, (batch, channels, ...)");
    refuses(lk_op_avg_pool(F32(8, 6, 8), (lk_window){.rank = 1, .kernel = {2}, .dilation = {2}}),
            LK_ERR_INVALID, "avg_pool: has no dilation, but 2 is asked for");
    refuses(lk_op_adaptive_avg_pool(F32(2, 3, 7, 9), (const int64_t[]){0, 4}, 2), LK_ERR_SHAPE,
            "adaptive_avg_pool: input (2, 3, 7, 9) cannot become (2, 3, 0, 4)");
    refuses(lk_op_upsample(F32(2, 3, 5), NULL, NULL, LK_UPSAMPLE_NEAREST, false), LK_ERR_INVALID,
            "upsample: expected either a size or a scale");
    refuses(lk_op_upsample(F32(2, 3, 5), NULL, (const double[]){0.1}, LK_UPSAMPLE_NEAREST, false),
            LK_ERR_SHAPE, "upsample: input (2, 3, 5) cannot become (2, 3, 0)");
    refuses(lk_op_upsample(F32(2, 3, 5), NULL, (const double[]){-1}, LK_UPSAMPLE_NEAREST, false),
            LK_ERR_INVALID, "upsample: the scale must be above 0, but is -1");
    refuses(lk_op_upsample(F32(2, 3, 5), (const int64_t[]){7}, NULL, LK_UPSAMPLE_NEAREST, true),
            LK_ERR_INVALID, "upsample: align_corners needs the linear mode");
}

static void normalisations(void **state)
{
    (void)state;
    lk_value *y = lk_op_batch_norm(F32(4, 3, 5), F32(3), F32(3), F32(3), F32(3), 0.1, 1e-5);
    gives(y, 4, 3, 5);
    gives(y->node->out[1], 3);
    assert_true(y->node->attr.norm.training);
    lk_value *with_relu[] = {F32(4, 3, 5), F32(3), F32(3), NULL, NULL, F32(4, 3, 5), F32(3), F32(3), F32(3)};
    lk_attr training = {.norm = {.eps = 1e-5, .training = true}};
    y = lki_emit(LK_OP_BATCH_NORM_RELU, &training, 9, with_relu);
    gives(y, 4, 3, 5);
    gives(y->node->out[2], 3);
    y = lk_op_layer_norm(F32(4, 3, 5), F32(3, 5), NULL, 2, 1e-5);
    gives(y, 4, 3, 5);
    gives(y->node->out[2], 4);
    y = lk_op_group_norm(F32(4, 6, 5), F32(6), F32(6), 3, 1e-5);
    gives(y, 4, 6, 5);
    gives(y->node->out[1], 4, 3);
    y = lk_op_dropout(F32(4, 6), 0.5);
    gives(y, 4, 6);
    gives_of(LK_U8, y->node->out[1], 4, 6);
    refuses(lk_op_batch_norm(F32(4, 3, 5), F32(4), NULL, NULL, NULL, 0.1, 1e-5), LK_ERR_SHAPE,
            "batch_norm: weight (4,) does not fit input (4, 3, 5): expected (3,)");
    refuses(lk_op_batch_norm(F32(4, 3, 5), NULL, NULL, F32(3), F32(5), 0.1, 1e-5), LK_ERR_SHAPE,
            "batch_norm: running variance (5,) does not fit input (4, 3, 5): expected (3,)");
    refuses(lk_op_batch_norm(F32(1, 3), NULL, NULL, NULL, NULL, 0.1, 1e-5), LK_ERR_SHAPE,
            "batch_norm: input (1, 3): training needs more than 1 value per channel");
    lk_value *odd[] = {F32(4, 3, 5), NULL, NULL, NULL, NULL, F32(4, 3, 1)};
    refuses(lki_emit(LK_OP_BATCH_NORM_RELU, &training, 6, odd), LK_ERR_SHAPE,
            "batch_norm_relu: addend (4, 3, 1) does not fit input (4, 3, 5): expected (4, 3, 5)");
    lk_value *half[] = {F32(4, 3, 5), NULL, NULL, NULL, NULL, F32(4, 3, 5), F32(3)};
    refuses(lki_emit(LK_OP_BATCH_NORM_RELU, &training, 7, half), LK_ERR_INVALID,
            "batch_norm_relu: an addend is normalised by a mean and an inverse std, or not at all");
    refuses(lk_op_batch_norm(F32(7), NULL, NULL, NULL, NULL, 0.1, 1e-5), LK_ERR_SHAPE,
            "batch_norm: input (7,): expected at least 2 dimensions, (batch, channels, ...)");
    refuses(lk_op_batch_norm(F32(4, 3), NULL, NULL, NULL, NULL, 0.1, -1), LK_ERR_INVALID,
            "batch_norm: eps must not be negative, but is -1");
    refuses(lk_op_layer_norm(F32(4, 3, 5), F32(3), NULL, 1, 1e-5), LK_ERR_SHAPE,
            "layer_norm: weight (3,) does not fit input (4, 3, 5): expected (5,)");
    refuses(lk_op_layer_norm(F32(4), NULL, NULL, 2, 1e-5), LK_ERR_SHAPE,
            "layer_norm: input (4,) has no 2 axes to normalise");
    refuses(lk_op_group_norm(F32(4, 6, 5), NULL, NULL, 4, 1e-5), LK_ERR_SHAPE,
            "group_norm: the 6 channels of input (4, 6, 5) do not split into 4 groups");
    refuses(lk_op_dropout(F32(4), 1.5), LK_ERR_INVALID, "dropout: p must lie between 0 and 1, but is 1.5");
}

static void outside_of_training(void **state)
{
    (void)state;
    lk_graph_free(graph);
    graph = lk_graph_create(false);
    lk_value *x = F32(4, 3);
    assert_ptr_equal(lk_op_dropout(x, 0.5), x);
    assert_false(lk_op_batch_norm(x, NULL, NULL, F32(3), F32(3), 0.1, 1e-5)->node->attr.norm.training);
    /* As PyTorch: without running values the batch is looked at in both modes. */
    assert_true(lk_op_batch_norm(x, NULL, NULL, NULL, NULL, 0.1, 1e-5)->node->attr.norm.training);
    refuses(lk_op_batch_norm(x, NULL, NULL, F32(3), NULL, 0.1, 1e-5), LK_ERR_INVALID,
            "batch_norm: outside of training it needs a running mean and variance");
}

static void dropout_at_its_ends(void **state)
{
    (void)state;
    lk_value *x = F32(4, 3);
    assert_ptr_equal(lk_op_dropout(x, 0), x);
    assert_int_equal(lk_op_dropout(x, 1)->node->op, LK_OP_MUL_SCALAR);
}

static void losses(void **state)
{
    (void)state;
    const lk_reduction mean = LK_REDUCTION_MEAN, none = LK_REDUCTION_NONE;
    lk_value *loss = lk_op_cross_entropy(F32(32, 10), I64(32), F32(10), mean, -100, 0.1);
    gives_scalar(loss);
    gives(loss->node->out[1], 32, 10);
    gives(lk_op_cross_entropy(F32(2, 10, 4, 5), I64(2, 4, 5), NULL, none, -100, 0), 2, 4, 5);
    gives(lk_op_cross_entropy(F32(2, 10), F32(2, 10), NULL, none, -100, 0), 2);
    gives_scalar(lk_op_nll(F32(2, 10), I64(2), NULL, LK_REDUCTION_SUM, -100));
    gives(lk_op_pointwise_loss(F32(2, 3), F32(2, 3), F32(3), NULL, LK_LOSS_BCE, 0, none), 2, 3);
    gives_scalar(lk_op_pointwise_loss(F32(2, 3), F32(2, 3), NULL, F32(3), LK_LOSS_BCE_WITH_LOGITS, 0, mean));
    refuses(lk_op_cross_entropy(F32(32, 10), I64(31), NULL, mean, -100, 0), LK_ERR_SHAPE,
            "cross_entropy: target (31,) does not fit input (32, 10): expected (32,)");
    refuses(lk_op_cross_entropy(F32(32, 10), I64(32, 1), NULL, mean, -100, 0), LK_ERR_SHAPE,
            "cross_entropy: target (32, 1) does not fit input (32, 10): expected (32,)");
    refuses(lk_op_cross_entropy(F32(32, 10), F32(32), NULL, mean, -100, 0), LK_ERR_DTYPE,
            "cross_entropy: target (32,) is f32: expected i64, or probabilities of shape (32, 10)");
    refuses(lk_op_cross_entropy(F32(32, 10), F32(32, 9), NULL, mean, -100, 0), LK_ERR_SHAPE,
            "cross_entropy: target (32, 9) does not fit input (32, 10): expected (32, 10)");
    refuses(lk_op_cross_entropy(F32(32, 10), lk_op_cast(F32(32), LK_I32), NULL, mean, -100, 0), LK_ERR_DTYPE,
            "cross_entropy: target (32,) is i32: expected i64 of shape (32,), or f32 of shape (32, 10)");
    refuses(lk_op_cross_entropy(F32(32, 10), I64(32), F32(9), mean, -100, 0), LK_ERR_SHAPE,
            "cross_entropy: weight (9,) does not fit input (32, 10): expected (10,)");
    refuses(lk_op_cross_entropy(F32(10), I64(10), NULL, mean, -100, 0), LK_ERR_SHAPE,
            "cross_entropy: input (10,): expected at least 2 dimensions, (batch, classes, ...)");
    refuses(lk_op_cross_entropy(F32(32, 10), I64(32), NULL, mean, -100, 1.5), LK_ERR_INVALID,
            "cross_entropy: label smoothing must lie between 0 and 1, but is 1.5");
    refuses(lk_op_cross_entropy(F32(32, 10), I64(32), NULL, LK_REDUCTION_BATCH_MEAN, -100, 0), LK_ERR_INVALID,
            "cross_entropy: its reduction is mean, sum or none, not 3");
    refuses(lk_op_nll(F32(32, 10), F32(32), NULL, mean, -100), LK_ERR_DTYPE,
            "nll: target (32,) is f32: expected i64 of shape (32,)");
    refuses(lk_op_pointwise_loss(F32(2, 3), F32(2, 4), NULL, NULL, LK_LOSS_MSE, 0, mean), LK_ERR_SHAPE,
            "mse_loss: target (2, 4) does not fit input (2, 3): expected (2, 3)");
    refuses(lk_op_pointwise_loss(F32(2, 1), F32(2), NULL, NULL, LK_LOSS_BCE, 0, mean), LK_ERR_SHAPE,
            "bce_loss: target (2,) does not fit input (2, 1): expected (2, 1)");
    refuses(lk_op_pointwise_loss(F32(2, 3), I64(2, 3), NULL, NULL, LK_LOSS_MSE, 0, mean), LK_ERR_DTYPE,
            "mse_loss: dtypes f32 and i64 do not mix");
    refuses(lk_op_pointwise_loss(F32(2, 3), F32(2, 3), F32(4), NULL, LK_LOSS_BCE, 0, mean), LK_ERR_SHAPE,
            "bce_loss: weight (4,) does not fit input (2, 3): expected (2, 3)");
    refuses(lk_op_pointwise_loss(F32(2, 3), F32(2, 3), NULL, F32(3), LK_LOSS_BCE, 0, mean), LK_ERR_INVALID,
            "bce_loss: only bce_with_logits_loss has a pos_weight");
    refuses(lk_op_pointwise_loss(F32(2, 3), F32(2, 3), NULL, NULL, LK_LOSS_HUBER, 0, mean), LK_ERR_INVALID,
            "huber_loss: its parameter must be above 0, but is 0");
    refuses(lk_op_pointwise_loss(SCALAR, SCALAR, NULL, NULL, LK_LOSS_KL_DIV, 0, LK_REDUCTION_BATCH_MEAN),
            LK_ERR_SHAPE, "kl_div_loss: input () has no batch to take the mean over");
}

static int warning_count;
static char last_warning[300];

static void note_warning(const char *level, const char *line, void *context)
{
    (void)level, (void)context;
    warning_count++;
    snprintf(last_warning, sizeof last_warning, "%s", line);
}

static void a_target_that_broadcasts_is_warned_about(void **state)
{
    (void)state;
    warning_count = 0;
    lk_set_log_sink(note_warning, NULL);
    gives(lk_op_pointwise_loss(F32(32, 1), F32(32), NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_NONE), 32, 32);
    lk_set_log_sink(NULL, NULL);
    assert_int_equal(warning_count, 1);
    assert_string_equal(last_warning,
                        "mse_loss: the target has shape (32,) and the input (32, 1); both are broadcast to "
                        "(32, 32), which is rarely meant");
}

static void a_failure_sticks_and_names_its_layer(void **state)
{
    (void)state;
    lk_graph_push_scope(graph, "1", "Linear");
    lk_value *y = lk_op_linear(F32(32, 100), F32(10, 784), NULL);
    lk_graph_pop_scope(graph);
    assert_null(y);
    assert_null(lk_op_softmax(lk_op_relu(lk_op_add(y, F32(1))), -1));
    assert_null(lk_op_matmul(F32(2, 2), y));
    assert_null(lk_op_max_pool(y, (lk_window){.rank = 2, .kernel = {2, 2}}));
    assert_null(lk_op_pointwise_loss(y, y, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN));
    lkt_fails(lk_graph_output(graph, "y", y), LK_ERR_SHAPE,
              "layer 1 (Linear): linear: input (32, 100) does not fit weight (10, 784): the last dimension "
              "must be 784");
}

static void operands_of_two_graphs_do_not_meet(void **state)
{
    (void)state;
    lk_graph *other = lk_graph_create(true);
    lk_value *foreign = lk_graph_input(other, "x", LK_F32, LK_SHAPE(2));
    refuses(lk_op_add(F32(2), foreign), LK_ERR_INVALID, "add: its operands belong to different graphs");
    lk_graph_free(other);
}

static void weights_of_losses_are_no_parameters(void **state)
{
    (void)state;
    lk_param *param = lk_param_create("w", lk_tensor_full(LK_F32, LK_SHAPE(10), 1), true);
    refuses(
        lk_op_cross_entropy(F32(32, 10), I64(32), lk_graph_param(graph, param), LK_REDUCTION_MEAN, -100, 0),
        LK_ERR_UNSUPPORTED,
        "cross_entropy: its weight has no gradient, but trainable parameters are upstream of it");
    lk_param_free(param);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_graph, close_graph)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(elementwise),
        TEST(reductions),
        TEST(shapes_and_axes),
        TEST(parts),
        TEST(products),
        TEST(convolutions),
        TEST(pools),
        TEST(normalisations),
        TEST(outside_of_training),
        TEST(dropout_at_its_ends),
        TEST(losses),
        TEST(a_target_that_broadcasts_is_warned_about),
        TEST(a_failure_sticks_and_names_its_layer),
        TEST(operands_of_two_graphs_do_not_meet),
        TEST(weights_of_losses_are_no_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
