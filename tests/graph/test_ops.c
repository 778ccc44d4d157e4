/* Ops against PyTorch: values, gradients and second gradients of everything that lk_op_grad can go through
 * (tests/oracle/graph_ops.py), and the numbers that a graph draws. */
#include "lktest.h"

#include "base/memory.h"
#include "graph/plan.h"

#include <lockstep/graph.h>

#include <math.h>

enum { MAX_NUMBERS = 128, LINE_NBYTES = 1 << 13 };

#define A in[0]
#define B in[1]
#define FUNCTION(name, expression)                                                                           \
    static lk_value *do_##name(lk_value *const *in, int count, void *context)                                \
    {                                                                                                        \
        (void)count, (void)context;                                                                          \
        return expression;                                                                                   \
    }

static lk_value *whole_numbers(lk_value *like, lk_shape shape, const int64_t *numbers)
{
    lk_tensor *tensor = lk_tensor_from(LK_I64, shape, numbers);
    lk_value *value = lk_graph_constant(like->graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

static lk_value *number(lk_value *like, double value)
{
    return lk_op_full(like->graph, lk_scalar_shape(), value, LK_F64);
}

#define INDEX              whole_numbers(A, LK_SHAPE(4), (const int64_t[]){2, 0, 1, 2})
#define COLUMN             lk_op_unsqueeze(INDEX, 1)
#define COUNT              lk_op_arange(A->graph, 0, 3, 1, LK_I64)
#define PLACES             whole_numbers(A, LK_SHAPE(2, 4), (const int64_t[]){0, 1, 2, 1, 2, 0, 0, 0})
#define DISTINCT           whole_numbers(A, LK_SHAPE(2, 4), (const int64_t[]){0, 1, 2, 1, 2, 0, 0, 2})
#define PICTURE(x)         lk_op_reshape(x, LK_SHAPE(1, 1, 3, 4))
#define CELLS(x)           lk_op_reshape(x, LK_SHAPE(2, 2, 3))
#define ROW(i)             lk_op_squeeze(lk_op_slice(B, 0, i, (i) + 1, 1), 0)
#define LOSS(kind, target) lk_op_pointwise_loss(A, target, NULL, NULL, LK_LOSS_##kind, 1, LK_REDUCTION_MEAN)

/* (1, 1, 2, 2) */
static lk_value *kernel(lk_value *x)
{
    return lk_op_slice(lk_op_slice(PICTURE(x), 2, 0, 2, 1), 3, 0, 2, 1);
}

static lk_value *topk_index(lk_value *x)
{
    lk_value *index;
    lk_op_topk(x, 2, 1, true, &index);
    return index;
}

static lk_value *split(lk_value *x)
{
    lk_value *part[2];
    lkt_ok(lk_op_split(part, 2, x, 3, 1));
    return lk_op_mul(lk_op_sum(part[0], LK_AXES(1), false), lk_op_squeeze(part[1], 1));
}

static lk_value *split_sizes(lk_value *x)
{
    lk_value *part[3];
    lkt_ok(lk_op_split_sizes(part, (const int64_t[]){1, 2, 1}, 3, x, 1));
    for (int i = 0; i < 3; i++) part[i] = lk_op_mul_scalar(part[i], i);
    return lk_op_concat(part, 3, 1);
}

static lk_value *chunk(lk_value *x)
{
    lk_value *part[2];
    lkt_ok(lk_op_chunk(part, 2, x, 1));
    return lk_op_mul(part[0], part[1]);
}

static lk_value *unbind(lk_value *x)
{
    lk_value *part[3];
    lkt_ok(lk_op_unbind(part, 3, x, 0));
    return lk_op_mul(part[0], part[2]);
}

FUNCTION(floor, lk_op_floor(A))
FUNCTION(ceil, lk_op_ceil(A))
FUNCTION(round, lk_op_add(lk_op_mul_scalar(lk_op_round(lk_op_mul_scalar(A, 2)), 0.5), A))
FUNCTION(argsort, lk_op_argsort(A, 1, true))
FUNCTION(argmin, lk_op_argmin(A, 0, false))
FUNCTION(any, lk_op_any(lk_op_greater(A, number(A, 1.2)), LK_AXES(1), false))
FUNCTION(all, lk_op_all(lk_op_greater(A, number(A, -1.2)), LK_AXES(0), false))
FUNCTION(one_hot, lk_op_one_hot(INDEX, 3))
FUNCTION(equal, lk_op_equal(COLUMN, COUNT))
FUNCTION(not_equal, lk_op_not_equal(COLUMN, COUNT))
FUNCTION(less, lk_op_less(A, B))
FUNCTION(less_equal, lk_op_less_equal(COLUMN, INDEX))
FUNCTION(arange, lk_op_arange(A->graph, 1, -2, -0.5, LK_F64))
FUNCTION(topk_index, topk_index(A))
FUNCTION(stack, lk_op_stack((lk_value *[]){A, B, lk_op_mul(A, B)}, 3, -1))
FUNCTION(split, split(A))
FUNCTION(split_sizes, split_sizes(lk_op_exp(A)))
FUNCTION(chunk, chunk(A))
FUNCTION(unbind, unbind(A))
FUNCTION(squeeze, lk_op_mul(lk_op_squeeze(lk_op_unsqueeze(A, 1), 1), A))
FUNCTION(flip, lk_op_mul(lk_op_flip(A, LK_ALL_AXES), A))
FUNCTION(roll, lk_op_mul(lk_op_roll(A, -3, 1), A))
FUNCTION(repeat, lk_op_repeat(A, (const int64_t[]){2, 1, 3}, 3))
FUNCTION(triu, lk_op_triu(A, 1))
FUNCTION(tril, lk_op_tril(A, -1))
FUNCTION(masked_fill, lk_op_masked_fill(A, lk_op_greater(B, number(A, 0)), 0.5))
FUNCTION(min, lk_op_min(A, LK_AXES(1), false))
FUNCTION(logsumexp, lk_op_logsumexp(A, LK_ALL_AXES, false))
FUNCTION(norm_0, lk_op_norm(A, 0, LK_AXES(1), false))
FUNCTION(norm_1, lk_op_norm(A, 1, LK_AXES(1), false))
FUNCTION(norm_2, lk_op_norm(A, 2, LK_ALL_AXES, false))
FUNCTION(norm_3, lk_op_norm(A, 3, LK_AXES(0), false))
FUNCTION(norm_3_zeros, lk_op_norm(lk_op_triu(A, 2), 3, LK_AXES(1), false))
FUNCTION(norm_half_zeros, lk_op_norm(lk_op_triu(A, 2), 0.5, LK_AXES(1), false))
FUNCTION(norm_inf, lk_op_norm(A, INFINITY, LK_AXES(1), false))
FUNCTION(cumsum, lk_op_cumsum(lk_op_mul(A, A), 1))
FUNCTION(cumprod, lk_op_cumprod(A, 0))
FUNCTION(sort, lk_op_mul(lk_op_sort(A, 1, false, NULL), B))
FUNCTION(topk, lk_op_topk(A, 2, 0, false, NULL))
FUNCTION(index_select, lk_op_pow_scalar(lk_op_index_select(A, 0, INDEX), 2))
FUNCTION(index_add, lk_op_index_add(B, 1, INDEX, lk_op_mul(A, B)))
FUNCTION(scatter, lk_op_scatter(lk_op_mul(A, A), 0, DISTINCT, B))
FUNCTION(scatter_source, lk_op_scatter(B, 0, DISTINCT, lk_op_mul(A, A)))
FUNCTION(scatter_add, lk_op_scatter_add(B, 0, PLACES, lk_op_mul(A, A)))
FUNCTION(einsum_matmul, lk_op_einsum("ij,kj->ik", in, 2))
FUNCTION(einsum_implicit, lk_op_einsum("ji,jk", in, 2))
FUNCTION(einsum_sum, lk_op_einsum("ij->j", in, 1))
FUNCTION(einsum_transpose, lk_op_einsum("ij -> ji", in, 1))
FUNCTION(einsum_elementwise, lk_op_einsum("ij,ij->ij", in, 2))
FUNCTION(einsum_dot, lk_op_einsum("ij,ij->", in, 2))
FUNCTION(einsum_batched, lk_op_einsum("abc,adc->dba", (lk_value *[]){CELLS(A), CELLS(B)}, 2))
FUNCTION(einsum_lonely, lk_op_einsum("ij,kl->lj", in, 2))
FUNCTION(detach, lk_op_mul(A, lk_op_detach(A)))
FUNCTION(tanh, lk_op_tanh(A))
FUNCTION(sigmoid, lk_op_sigmoid(A))
FUNCTION(relu, lk_op_relu(A))
FUNCTION(elu, lk_op_elu(A, 1.3))
FUNCTION(gelu, lk_op_gelu(A, false))
FUNCTION(gelu_tanh, lk_op_gelu(A, true))
FUNCTION(silu, lk_op_silu(A))
FUNCTION(softplus, lk_op_softplus(A, 2, 1))
FUNCTION(div, lk_op_div(B, A))
FUNCTION(var, lk_op_var(A, LK_AXES(1), false, 1))
FUNCTION(softmax, lk_op_softmax(A, 1))
FUNCTION(log_softmax, lk_op_log_softmax(A, 0))
FUNCTION(matmul, lk_op_matmul(A, lk_op_transpose(B, 0, 1)))
FUNCTION(linear, lk_op_tanh(lk_op_linear(A, B, lk_op_squeeze(lk_op_slice(B, 1, 0, 1, 1), 1))))
FUNCTION(conv, lk_op_tanh(lk_op_conv(PICTURE(A), kernel(B), NULL, (lk_window){.padding = {1, 1}})))
FUNCTION(conv_weight, lk_op_tanh(lk_op_conv(PICTURE(B), kernel(A), NULL,
                                            (lk_window){.padding = {1, 1}, .stride = {2, 2}})))
FUNCTION(conv_transpose,
         lk_op_tanh(lk_op_conv_transpose(PICTURE(A), kernel(B), NULL, (lk_window){.stride = {2, 2}})))
FUNCTION(max_pool, lk_op_max_pool(PICTURE(A), (lk_window){.rank = 2, .kernel = {2, 2}, .stride = {1, 1}}))
FUNCTION(avg_pool,
         lk_op_tanh(lk_op_avg_pool(PICTURE(A), (lk_window){.rank = 2, .kernel = {2, 2}, .stride = {1, 1}})))
FUNCTION(batch_norm, lk_op_batch_norm(A, ROW(0), ROW(1), NULL, NULL, 0.1, 1e-5))
FUNCTION(layer_norm, lk_op_layer_norm(A, ROW(0), ROW(1), 1, 1e-5))
FUNCTION(group_norm, lk_op_group_norm(lk_op_reshape(A, LK_SHAPE(1, 4, 3)), ROW(0), ROW(1), 2, 1e-5))
FUNCTION(cross_entropy,
         lk_op_cross_entropy(A, lk_op_slice(INDEX, 0, 0, 3, 1), NULL, LK_REDUCTION_MEAN, -100, 0.1))
FUNCTION(mse, LOSS(MSE, B))
FUNCTION(bce_with_logits, LOSS(BCE_WITH_LOGITS, lk_op_sigmoid(B)))
FUNCTION(smooth_l1, LOSS(SMOOTH_L1, B))

static const struct {
    const char *name;
    lk_graph_function function;
} cases[] = {
    {"floor", do_floor},
    {"ceil", do_ceil},
    {"round", do_round},
    {"argsort", do_argsort},
    {"argmin", do_argmin},
    {"any", do_any},
    {"all", do_all},
    {"one_hot", do_one_hot},
    {"equal", do_equal},
    {"not_equal", do_not_equal},
    {"less", do_less},
    {"less_equal", do_less_equal},
    {"arange", do_arange},
    {"topk_index", do_topk_index},
    {"stack", do_stack},
    {"split", do_split},
    {"split_sizes", do_split_sizes},
    {"chunk", do_chunk},
    {"unbind", do_unbind},
    {"squeeze", do_squeeze},
    {"flip", do_flip},
    {"roll", do_roll},
    {"repeat", do_repeat},
    {"triu", do_triu},
    {"tril", do_tril},
    {"masked_fill", do_masked_fill},
    {"min", do_min},
    {"logsumexp", do_logsumexp},
    {"norm_0", do_norm_0},
    {"norm_1", do_norm_1},
    {"norm_2", do_norm_2},
    {"norm_3", do_norm_3},
    {"norm_3_zeros", do_norm_3_zeros},
    {"norm_half_zeros", do_norm_half_zeros},
    {"norm_inf", do_norm_inf},
    {"cumsum", do_cumsum},
    {"cumprod", do_cumprod},
    {"sort", do_sort},
    {"topk", do_topk},
    {"index_select", do_index_select},
    {"index_add", do_index_add},
    {"scatter", do_scatter},
    {"scatter_source", do_scatter_source},
    {"scatter_add", do_scatter_add},
    {"einsum_matmul", do_einsum_matmul},
    {"einsum_implicit", do_einsum_implicit},
    {"einsum_sum", do_einsum_sum},
    {"einsum_transpose", do_einsum_transpose},
    {"einsum_elementwise", do_einsum_elementwise},
    {"einsum_dot", do_einsum_dot},
    {"einsum_batched", do_einsum_batched},
    {"einsum_lonely", do_einsum_lonely},
    {"detach", do_detach},
    {"tanh", do_tanh},
    {"sigmoid", do_sigmoid},
    {"relu", do_relu},
    {"elu", do_elu},
    {"gelu", do_gelu},
    {"gelu_tanh", do_gelu_tanh},
    {"silu", do_silu},
    {"softplus", do_softplus},
    {"div", do_div},
    {"var", do_var},
    {"softmax", do_softmax},
    {"log_softmax", do_log_softmax},
    {"matmul", do_matmul},
    {"linear", do_linear},
    {"conv", do_conv},
    {"conv_weight", do_conv_weight},
    {"conv_transpose", do_conv_transpose},
    {"max_pool", do_max_pool},
    {"avg_pool", do_avg_pool},
    {"batch_norm", do_batch_norm},
    {"layer_norm", do_layer_norm},
    {"group_norm", do_group_norm},
    {"cross_entropy", do_cross_entropy},
    {"mse", do_mse},
    {"bce_with_logits", do_bce_with_logits},
    {"smooth_l1", do_smooth_l1},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

/* What the script has written for a kind and a case; -1 if there is no such line. */
static int expected_numbers(const char *kind, const char *name, double *out)
{
    char *line = lki_calloc(LINE_NBYTES, "a line"), found_kind[16], found[64];
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/graph/ops.txt", "r");
    int count = -1;
    assert_non_null(file);
    while (count < 0 && fgets(line, LINE_NBYTES, file)) {
        int used = 0, step;
        if (sscanf(line, "%15s %63s%n", found_kind, found, &used) != 2) continue;
        if (strcmp(found_kind, kind) || strcmp(found, name)) continue;
        count = 0;
        while (count < MAX_NUMBERS && sscanf(line + used, "%lf%n", &out[count], &step) == 1)
            used += step, count++;
    }
    fclose(file);
    lki_free(line);
    return count;
}

static int differences(const lk_tensor *found, const char *kind, const char *name, double tolerance)
{
    double expected[MAX_NUMBERS];
    int count = expected_numbers(kind, name, expected);
    if (count != lk_tensor_count(found)) {
        print_error("%s of %s: %lld numbers, expected %d\n", kind, name, (long long)lk_tensor_count(found),
                    count);
        return 1;
    }
    for (int i = 0; i < count; i++) {
        double value = lk_tensor_get(found, i);
        if (fabs(value - expected[i]) <= tolerance * fmax(1, fabs(expected[i]))) continue;
        print_error("%s of %s: number %d is %.9g, expected %.9g\n", kind, name, i, value, expected[i]);
        return 1;
    }
    return 0;
}

/* The sum with the weights 1, 2, 3, ... */
static lk_value *weighted(lk_value *y)
{
    if (!y) return NULL;
    lk_value *weights = lk_op_arange(y->graph, 1, (double)lk_shape_count(y->shape) + 1, 1, LK_F64);
    return lk_op_sum(lk_op_mul(y, lk_op_reshape(weights, y->shape)), LK_ALL_AXES, false);
}

static lk_tensor *input(double offset)
{
    lk_tensor *tensor = lk_tensor_create(LK_F64, LK_SHAPE(3, 4));
    for (int i = 0; i < 12; i++) lk_tensor_set(tensor, i, 1.7 * sin(1.3 * i + offset));
    return tensor;
}

/* Compiles, replays and compares the outputs that the script has numbers for. */
static int check_case(lk_engine *engine, int c)
{
    static const char *const kinds[] = {"value", "grad", "second"};
    double ignored[MAX_NUMBERS];
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_graph *graph = lk_graph_create(true);
    lk_tensor *data[] = {input(0.5), input(2)};
    lk_value *in[] = {lk_graph_input(graph, "a", LK_F64, LK_SHAPE(3, 4)),
                      lk_graph_input(graph, "b", LK_F64, LK_SHAPE(3, 4))};
    lk_value *y = cases[c].function(in, 2, NULL), *outputs[] = {lk_op_cast(y, LK_F64), NULL, NULL};
    if (expected_numbers("grad", cases[c].name, ignored) >= 0) outputs[1] = lk_op_grad(weighted(y), in[0]);
    if (expected_numbers("second", cases[c].name, ignored) >= 0)
        outputs[2] = lk_op_grad(weighted(lk_op_grad(lk_op_mul(y, y), in[0])), in[0]);
    for (int k = 0; k < 3; k++)
        if (outputs[k]) lkt_ok(lk_graph_output(graph, kinds[k], outputs[k]));
    if (graph->status) fail_msg("%s: %s", cases[c].name, graph->error);
    lki_plan *plan;
    lkt_ok(lki_plan_compile(&plan, graph, (lki_plan_options){.engine = engine, .workspace = workspace}));
    for (int i = 0; i < 2; i++) lkt_ok(lki_plan_bind(plan, i, data[i]->data));
    lkt_ok(lki_plan_run(plan));
    int failures = 0;
    for (int k = 0; k < 3; k++)
        if (outputs[k])
            failures += differences(lki_plan_output(plan, kinds[k]), kinds[k], cases[c].name, 1e-8);
    lki_plan_free(plan);
    lki_workspace_free(workspace);
    for (int i = 0; i < 2; i++) lk_tensor_free(data[i]);
    return failures;
}

static void ops_equal_pytorch(void **state)
{
    (void)state;
    int failures = 0;
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_not_null(engine);
    for (int c = 0; c < CASE_COUNT; c++) failures += check_case(engine, c);
    lk_engine_close(engine);
    assert_int_equal(failures, 0);
}

/* On the CPU a graph draws PyTorch's numbers, in the order of its ops, and others at the next replay. */
static void random_numbers_equal_pytorch(void **state)
{
    (void)state;
    static const char *const names[] = {"uniform", "normal", "few_normal", "bernoulli"};
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_graph *graph = lk_graph_create(true);
    lk_value *drawn[] = {
        lk_op_uniform(graph, LK_SHAPE(20), -1, 3, LK_F32), lk_op_normal(graph, LK_SHAPE(20), 0.5, 2, LK_F32),
        lk_op_normal(graph, LK_SHAPE(5), 0.5, 2, LK_F32), lk_op_bernoulli(graph, LK_SHAPE(20), 0.3, LK_F32)};
    for (int i = 0; i < 4; i++) lkt_ok(lk_graph_output(graph, names[i], drawn[i]));
    lk_generator generator;
    lk_generator_seed(&generator, 7);
    lki_plan *plan;
    lkt_ok(lki_plan_compile(
        &plan, graph, (lki_plan_options){.engine = engine, .workspace = workspace, .generator = &generator}));
    lkt_ok(lki_plan_run(plan));
    int failures = 0;
    for (int i = 0; i < 4; i++)
        failures += differences(lki_plan_output(plan, names[i]), "random", names[i], 1e-7);
    assert_int_equal(failures, 0);
    double first = lk_tensor_get(lki_plan_output(plan, "uniform"), 0);
    lkt_ok(lki_plan_run(plan));
    assert_true(first != lk_tensor_get(lki_plan_output(plan, "uniform"), 0));
    lki_plan_free(plan);
    lki_workspace_free(workspace);
    lk_engine_close(engine);
}

/* Each mistake is one line that names the op. */
static void bad_input_is_refused(void **state)
{
    (void)state;
    for (int k = 0;; k++) {
        lk_graph *graph = lk_graph_create(true);
        lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(3, 4)), *out[3];
        lk_value *index = lk_graph_input(graph, "index", LK_I64, LK_SHAPE(2));
        lk_value *pair[] = {x, x};
        const char *sentence = NULL;
        switch (k) {
        case 0:
            lk_op_split(out, 3, x, 2, 1), sentence = "split: axis 1 of shape (3, 4) gives 2 parts, not 3";
            break;
        case 1: lk_op_unbind(out, 3, x, 2), sentence = "unbind: axis 2 is outside of shape (3, 4)"; break;
        case 2: lk_op_einsum("ii->i", pair, 1), sentence = "einsum: \"ii->i\" with 1 operands"; break;
        case 3: lk_op_einsum("ij,jk->ik", pair, 2), sentence = "shapes (3, 4) and (3, 4) do not fit"; break;
        case 4: lk_op_topk(x, 5, 1, true, NULL), sentence = "sort: 5 of axis 1 of shape (3, 4)"; break;
        case 5:
            lk_op_grad(x, index), sentence = "grad: there is no gradient of f32 with respect to i64";
            break;
        case 6:
            lk_op_index_select(x, 0, x), sentence = "index_select: the index must be i64 of one axis";
            break;
        case 7:
            lk_op_index_add(x, 0, index, x),
                sentence = "index_add: source (3, 4) does not fit: expected (2, 4)";
            break;
        case 8: lk_op_norm(x, -1, LK_ALL_AXES, false), sentence = "norm: p must be at least 0"; break;
        case 9: lk_op_equal(x, index), sentence = "equal: dtypes f32 and i64 do not mix"; break;
        case 10:
            lk_op_bernoulli(graph, LK_SHAPE(2), 2, LK_F32),
                sentence = "bernoulli: p must lie between 0 and 1";
            break;
        case 11:
            lk_op_uniform(graph, LK_SHAPE(2), 0, 1, LK_BF16),
                sentence = "random: expected f32 or f64, not bf16";
            break;
        case 12:
            lk_op_arange(graph, 0, 3, -1, LK_I64),
                sentence = "arange: there is no way from 0 to 3 in steps of -1";
            break;
        case 13:
            lk_op_repeat(x, (const int64_t[]){2}, 1),
                sentence = "repeat: shape (3, 4) needs one number per axis";
            break;
        case 14:
            lk_op_split_sizes(out, (int64_t[]){-1, 5}, 2, x, 1), sentence = "split: size -1 is negative";
            break;
        default: break;
        }
        if (sentence && (!graph->error || !strstr(graph->error, sentence)))
            fail_msg("expected \"%s\", found \"%s\"", sentence, graph->error ? graph->error : "nothing");
        lk_graph_free(graph);
        if (!sentence) break;
    }
}

/* y = x^3 and its gradient, as a program writes them. */
static lk_status cube(lk_tensor *out, const lk_tensor *in, int count, void *context)
{
    (void)count, (void)context;
    for (int64_t i = 0; i < lk_tensor_count(out); i++)
        lk_tensor_set(out, i, pow(lk_tensor_get(&in[0], i), 3));
    return LK_OK;
}

static lk_status cube_gradient(lk_tensor *grad_in, const lk_tensor *grad_out, const lk_tensor *out,
                               const lk_tensor *in, int count, void *context)
{
    (void)out, (void)count;
    double factor = *(const double *)context;
    for (int64_t i = 0; grad_in[0].data && i < lk_tensor_count(grad_out); i++) {
        double x = lk_tensor_get(&in[0], i);
        lk_tensor_set(&grad_in[0], i, factor * x * x * lk_tensor_get(grad_out, i));
    }
    return LK_OK;
}

static lk_value *call_cube(lk_value *const *in, int count, void *context)
{
    (void)count;
    static const lk_custom_op op = {LK_SIZE(lk_custom_op), .name = "cube", .forward = cube,
                                    .backward = cube_gradient};
    return lk_op_sin(lk_op_custom(&op, in, 1, context));
}

static lk_value *cube_twice(lk_value *const *in, int count, void *context)
{
    return lk_op_grad(call_cube(in, count, context), in[0]);
}

static void an_op_of_the_programs_own(void **state)
{
    (void)state;
    double right = 3, wrong = 2;
    lk_tensor *x = input(0.5);
    lkt_ok(lk_gradcheck(call_cube, &right, &x, 1, 1e-7));
    lkt_fails(lk_gradcheck(call_cube, &wrong, &x, 1, 1e-7), LK_ERR_RANGE, "gradcheck: input 0 at (0, 0)");
    lkt_fails(lk_gradcheck(cube_twice, &right, &x, 1, 1e-7), LK_ERR_UNSUPPORTED,
              "custom_grad: it has no gradient, but one is asked for");
    lk_tensor_free(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_equal_pytorch),
        cmocka_unit_test(random_numbers_equal_pytorch),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(an_op_of_the_programs_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
