/* Gradients at ties, kinks and other edges, where central differences cannot judge: PyTorch's own
 * (tests/oracle/graph_edges.py). */
#include "lktest.h"

#include "graph/plan.h"

#include <lockstep/graph.h>

enum { MAX_NUMBERS = 16 };

typedef struct edge_case {
    const char *name;
    lk_graph_function function;
    const double *input[2];
    lk_shape shape[2];
} edge_case;

static const double X[] = {-1, -0.5, 0, 0, 0.5, 1}, Y[] = {-1, 0.5, 0, 1, 0.5, -1},
                    TIES[] = {1, 3, 3, 2, 2, 2}, UNIT[] = {0, 1, 0.5, 0, 1, 0.25},
                    BITS[] = {0, 1, 1, 1, 0, 0}, ROOTS[] = {0, 0.25, 1, 4},
                    DIVISORS[] = {1, 2, 4, 0, -1, 0.5}, BASES[] = {0, 0, 0, 2, 2, -1, 0},
                    EXPONENTS[] = {0, 1, 2, 0, 3, 2, -1}, PLATEAU[] = {1, 2, 2, 2, 1, 2}, THREE[] = {1, 2, 4},
                    OTHERS[] = {0.5, 3, 4};

#define FUNCTION(name, expression)                                                                           \
    static lk_value *name(lk_value *const *in, int count, void *context)                                     \
    {                                                                                                        \
        (void)count, (void)context;                                                                          \
        return expression;                                                                                   \
    }

static lk_value *constant(lk_value *like, lk_dtype dtype, lk_shape shape, const void *data)
{
    lk_tensor *tensor = lk_tensor_from(dtype, shape, data);
    lk_value *value = lk_graph_constant(like->graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

#define LOSS(target, kind, parameter, reduction)                                                             \
    lk_op_pointwise_loss(in[0], target, NULL, NULL, LK_LOSS_##kind, parameter, LK_REDUCTION_##reduction)

FUNCTION(maximum, lk_op_maximum(in[0], in[1]))
FUNCTION(minimum, lk_op_minimum(in[0], in[1]))
FUNCTION(absolute, lk_op_abs(in[0]))
FUNCTION(relu, lk_op_relu(in[0]))
FUNCTION(leaky_relu, lk_op_leaky_relu(in[0], 0.1))
FUNCTION(elu, lk_op_elu(in[0], 1.3))
FUNCTION(gelu, lk_op_gelu(in[0], false))
FUNCTION(softplus, lk_op_softplus(in[0], 2, 1))
FUNCTION(clamp, lk_op_clamp(in[0], -0.5, 0.5))
FUNCTION(square_root, lk_op_sqrt(in[0]))
FUNCTION(logarithm, lk_op_log(in[0]))
FUNCTION(divide, lk_op_div(in[0], in[1]))
FUNCTION(power, lk_op_pow(in[0], in[1]))
FUNCTION(power_0, lk_op_pow_scalar(in[0], 0))
FUNCTION(power_1, lk_op_pow_scalar(in[0], 1))
FUNCTION(power_2, lk_op_pow_scalar(in[0], 2))
FUNCTION(amax, lk_op_max(in[0], LK_AXES(1), false))
FUNCTION(amax_all, lk_op_max(in[0], LK_ALL_AXES, false))
FUNCTION(max_pool, lk_op_max_pool(lk_op_reshape(in[0], LK_SHAPE(1, 1, 6)),
                                  (lk_window){.rank = 1, .kernel = {3}, .stride = {1}}))
FUNCTION(mse_broadcast, lk_op_pointwise_loss(lk_op_reshape(in[0], LK_SHAPE(3, 1)), in[1], NULL, NULL,
                                             LK_LOSS_MSE, 0, LK_REDUCTION_MEAN))
FUNCTION(l1, LOSS(in[1], L1, 0, NONE))
FUNCTION(smooth_l1, LOSS(in[1], SMOOTH_L1, 1, NONE))
FUNCTION(smooth_l1_0, LOSS(in[1], SMOOTH_L1, 0, SUM))
FUNCTION(huber, LOSS(in[1], HUBER, 1, NONE))
FUNCTION(bce, LOSS(constant(in[0], LK_F64, LK_SHAPE(6), BITS), BCE, 0, MEAN))
FUNCTION(embedding_padding,
         lk_op_embedding(lk_op_reshape(in[0], LK_SHAPE(3, 2)),
                         constant(in[0], LK_I64, LK_SHAPE(6), (const int64_t[]){0, 2, 1, 1, 0, 1}), 1))
FUNCTION(dropout_1, lk_op_dropout(in[0], 1))
FUNCTION(cross_entropy_ignored,
         lk_op_cross_entropy(lk_op_reshape(in[0], LK_SHAPE(2, 3)),
                             constant(in[0], LK_I64, LK_SHAPE(2), (const int64_t[]){-100, 1}), NULL,
                             LK_REDUCTION_MEAN, -100, 0))
FUNCTION(softmax_large, lk_op_softmax(lk_op_mul_scalar(in[0], 2000), 0))
FUNCTION(where, lk_op_where(lk_op_greater(in[0], in[1]), in[0], in[1]))

static const edge_case cases[] = {
    {"maximum", maximum, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"minimum", minimum, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"abs", absolute, {X}, {LK_SHAPE(6)}},
    {"relu", relu, {X}, {LK_SHAPE(6)}},
    {"leaky_relu", leaky_relu, {X}, {LK_SHAPE(6)}},
    {"elu", elu, {X}, {LK_SHAPE(6)}},
    {"gelu", gelu, {X}, {LK_SHAPE(6)}},
    {"softplus", softplus, {X}, {LK_SHAPE(6)}},
    {"clamp", clamp, {X}, {LK_SHAPE(6)}},
    {"sqrt", square_root, {ROOTS}, {LK_SHAPE(4)}},
    {"log", logarithm, {ROOTS}, {LK_SHAPE(4)}},
    {"div", divide, {X, DIVISORS}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"pow", power, {BASES, EXPONENTS}, {LK_SHAPE(7), LK_SHAPE(7)}},
    {"pow_scalar_0", power_0, {X}, {LK_SHAPE(6)}},
    {"pow_scalar_1", power_1, {X}, {LK_SHAPE(6)}},
    {"pow_scalar_2", power_2, {X}, {LK_SHAPE(6)}},
    {"amax", amax, {TIES}, {LK_SHAPE(2, 3)}},
    {"amax_all", amax_all, {TIES}, {LK_SHAPE(2, 3)}},
    {"max_pool", max_pool, {PLATEAU}, {LK_SHAPE(6)}},
    {"mse_broadcast", mse_broadcast, {THREE, OTHERS}, {LK_SHAPE(3), LK_SHAPE(3)}},
    {"l1", l1, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"smooth_l1", smooth_l1, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"smooth_l1_0", smooth_l1_0, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"huber", huber, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
    {"bce", bce, {UNIT}, {LK_SHAPE(6)}},
    {"embedding_padding", embedding_padding, {X}, {LK_SHAPE(6)}},
    {"dropout_1", dropout_1, {X}, {LK_SHAPE(6)}},
    {"cross_entropy_ignored", cross_entropy_ignored, {X}, {LK_SHAPE(6)}},
    {"softmax_large", softmax_large, {X}, {LK_SHAPE(6)}},
    {"where", where, {X, Y}, {LK_SHAPE(6), LK_SHAPE(6)}},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

/* The weights 1, 2, 3, ... in the shape of y. */
static lk_value *weighted_sum(lk_value *y)
{
    lk_tensor *weights = lk_tensor_create(LK_F64, y->shape);
    for (int64_t i = 0; i < lk_tensor_count(weights); i++) lk_tensor_set(weights, i, (double)(i + 1));
    lk_value *value = lk_graph_constant(y->graph, weights);
    lk_tensor_free(weights);
    return lk_op_sum(lk_op_mul(y, value), LK_ALL_AXES, false);
}

/* The gradients of all inputs, one after another; returns how many numbers they are. */
static int gradients(const edge_case *self, double *out)
{
    lk_param *params[2] = {0};
    lk_value *values[2] = {0};
    lki_autodiff_report report;
    lki_plan *plan;
    lk_engine *engine = lk_engine_open("ref", NULL);
    lki_workspace *workspace = lki_workspace_create(NULL);
    lk_graph *graph = lk_graph_create(true);
    int count = self->input[1] ? 2 : 1, filled = 0;
    for (int i = 0; i < count; i++) {
        params[i] = lk_param_create("input", lk_tensor_from(LK_F64, self->shape[i], self->input[i]), true);
        values[i] = lk_graph_param(graph, params[i]);
    }
    lk_value *y = self->function(values, count, NULL);
    lkt_not_null(y);
    lkt_ok(lki_pass_autodiff(graph, weighted_sum(y), params, count, &report));
    lkt_ok(lki_plan_compile(&plan, graph, (lki_plan_options){.engine = engine, .workspace = workspace}));
    lkt_ok(lki_plan_run(plan));
    for (int i = 0; i < count; i++) {
        int64_t n = lk_tensor_count(params[i]->grad);
        for (int64_t k = 0; k < n; k++) out[filled++] = lk_tensor_get(params[i]->grad, k);
    }
    lki_plan_free(plan);
    lki_workspace_free(workspace);
    lk_engine_close(engine);
    for (int i = 0; i < count; i++) lk_param_free(params[i]);
    return filled;
}

static int expected_gradients(const char *name, double *out)
{
    char line[1024], found[64];
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/graph/edges.txt", "r");
    int count = -1;
    assert_non_null(file);
    while (count < 0 && fgets(line, sizeof line, file)) {
        int used = 0, step;
        if (sscanf(line, "%63s%n", found, &used) != 1 || strcmp(found, name) != 0) continue;
        count = 0;
        while (count < MAX_NUMBERS && sscanf(line + used, "%lf%n", &out[count], &step) == 1)
            used += step, count++;
    }
    fclose(file);
    return count;
}

/* PyTorch keeps some of its small constants as f32, so the last half of the digits may differ. */
static bool same(double found, double expected)
{
    if (isnan(expected)) return isnan(found);
    if (isinf(expected)) return found == expected;
    return fabs(found - expected) <= 1e-8 * fmax(1, fabs(expected));
}

static void gradients_equal_pytorch(void **state)
{
    (void)state;
    int failures = 0;
    for (int c = 0; c < CASE_COUNT; c++) {
        double found[MAX_NUMBERS], expected[MAX_NUMBERS];
        int count = gradients(&cases[c], found);
        assert_int_equal(expected_gradients(cases[c].name, expected), count);
        for (int i = 0; i < count; i++) {
            if (same(found[i], expected[i])) continue;
            print_error("%s: number %d is %.9g, expected %.9g\n", cases[c].name, i, found[i], expected[i]);
            failures++;
        }
    }
    assert_int_equal(failures, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_equal_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
