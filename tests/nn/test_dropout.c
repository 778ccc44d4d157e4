/* Dropout in a training step, on every engine. A GPU draws numbers of its own, so what is checked holds for
 * any draw: the gradient goes through what was kept and through nothing else, the share that is dropped,
 * another mask for every step, and the same masks for the same seed. */
#include "lktest.h"

#include <lockstep/step.h>
#include <lockstep/sys/engine.h>

enum { ROWS = 64, COLUMNS = 250, COUNT = ROWS * COLUMNS, STEPS = 3 };

static const double p = 0.3;

typedef struct draws {
    float y[STEPS][COUNT], dx[STEPS][COUNT], evaluated[COUNT];
} draws;

/* The input is a parameter, so that its gradient can be read. */
static lk_value *held_forward(lk_module *module, lk_value *input)
{
    (void)input;
    lk_value *x = lk_graph_param(lk_value_graph(input), lk_module_param(module, "x"));
    return lk_module_forward(lk_module_child(module, "dropout"), x);
}

static lk_value *weighted_sum(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                              void *context)
{
    (void)names, (void)count;
    lk_value *y = lk_module_forward(context, inputs[0]);
    lk_graph_output(graph, "y", y);
    return lk_op_sum(lk_op_mul(y, inputs[0]), LK_ALL_AXES, false);
}

/* x in [1, 2), so that a zero in y is one that was dropped. */
static lk_module *make_held(void)
{
    lk_module *held = lk_custom_module(.type = "Held", .forward = held_forward,
                                       .children = lk_children({"dropout", lk_dropout(p)}));
    lkt_not_null(held);
    lk_tensor *x = lk_rand(LK_SHAPE(ROWS, COLUMNS));
    for (int i = 0; i < COUNT; i++) ((float *)x->data)[i] += 1;
    lkt_ok(lk_module_add_param(held, lk_param_create("x", x, true)));
    return held;
}

static void draw(const char *name, uint64_t seed, lk_module *held, const lk_tensor *weights, draws *out)
{
    lk_engine *engine = lk_engine_open(name, NULL);
    lkt_not_null(engine);
    lk_optimizer *optimizer = lk_sgd(.lr = 1e-3);
    lk_step *step = lk_step(.model = held, .function = weighted_sum, .context = held, .optimizer = optimizer,
                            .engine = engine);
    lkt_not_null(step);
    lk_manual_seed(seed);
    lk_input fields[] = {{"features", weights}};
    for (int i = 0; i < STEPS; i++) {
        lkt_ok(lk_step_begin(step, fields, 1, true));
        lkt_ok(lk_step_forward(step));
        lkt_ok(lk_step_criterion(step));
        lkt_ok(lk_step_backward(step));
        memcpy(out->y[i], lk_step_output(step, "y")->data, sizeof out->y[i]);
        lkt_ok(lk_step_pull(step));
        memcpy(out->dx[i], lk_module_param(held, "x")->grad->data, sizeof out->dx[i]);
    }
    lkt_ok(lk_step_evaluate(step, fields, 1));
    memcpy(out->evaluated, lk_step_output(step, "y")->data, sizeof out->evaluated);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_engine_close(engine);
}

/* y = mask x / (1 - p) and dx = mask w / (1 - p). */
static void check_mask(const float *y, const float *dx, const float *x, const float *w, const char *engine)
{
    int dropped = 0;
    for (int i = 0; i < COUNT; i++) {
        bool kept = y[i] != 0;
        dropped += !kept;
        double scale = kept / (1 - p);
        if (!(fabs(y[i] - scale * x[i]) < 1e-6 * fabs(scale * x[i]) + 1e-12) ||
            !(fabs(dx[i] - scale * w[i]) < 1e-6 * fabs(scale * w[i]) + 1e-12))
            fail_msg("%s: element %d: x %g gives y %g, and %g comes back for %g", engine, i, x[i], y[i],
                     dx[i], w[i]);
    }
    double deviation = sqrt(COUNT * p * (1 - p));
    if (!(fabs(dropped - COUNT * p) < 6 * deviation))
        fail_msg("%s: %d of %d elements were dropped", engine, dropped, COUNT);
}

/* How many elements two masks agree on; of two that have nothing to do with each other p^2 + (1 - p)^2. */
static double agreement(const float *a, const float *b)
{
    int same = 0;
    for (int i = 0; i < COUNT; i++) same += (a[i] != 0) == (b[i] != 0);
    return (double)same / COUNT;
}

static void check_engine(const char *engine)
{
    lk_manual_seed(5);
    lk_module *held = make_held();
    lk_tensor *weights = lk_rand(LK_SHAPE(ROWS, COLUMNS));
    draws *first = calloc(1, sizeof *first), *again = calloc(1, sizeof *again);
    float *x = malloc(sizeof first->y[0]);
    memcpy(x, lk_module_param(held, "x")->value->data, sizeof first->y[0]);
    draw(engine, 7, held, weights, first);
    draw(engine, 7, held, weights, again);
    for (int i = 0; i < STEPS; i++) {
        check_mask(first->y[i], first->dx[i], x, weights->data, engine);
        assert_memory_equal(first->y[i], again->y[i], sizeof first->y[i]);
        for (int k = 0; k < i; k++)
            lkt_close(agreement(first->y[i], first->y[k]), p * p + (1 - p) * (1 - p), 0.03);
    }
    assert_memory_equal(first->evaluated, x, sizeof first->evaluated);
    draw(engine, 8, held, weights, again);
    lkt_close(agreement(first->y[0], again->y[0]), p * p + (1 - p) * (1 - p), 0.03);
    free(x);
    free(first);
    free(again);
    lk_tensor_free(weights);
    lk_module_free(held);
}

static void gradients_go_through_what_was_kept(void **state)
{
    (void)state;
    for (const char *const *name = lk_engine_names(); *name; name++) check_engine(*name);
}

enum { HEADS = 2, QUERIES = 70, KEYS = 40 };

/* Attention whose scores are all 0 and whose values are unit vectors: the result is the weights. */
static lk_value *even_attention(lk_module *module, lk_value *input)
{
    lk_graph *graph = lk_value_graph(input);
    lk_value *query = lk_op_full(graph, LK_SHAPE(1, HEADS, QUERIES, 8), 0, LK_F32);
    lk_value *key = lk_op_full(graph, LK_SHAPE(1, HEADS, KEYS, 8), 0, LK_F32);
    lk_value *value = lk_graph_param(graph, lk_module_param(module, "v"));
    return lk_op_scaled_dot_product_attention(query, key, value, .dropout_p = p);
}

/* dv is the transposed weights times w: the gradient has drawn what the op had drawn. */
static void check_weights(const float *y, const float *dv, const float *w, const char *engine)
{
    int dropped = 0;
    for (int i = 0; i < HEADS * QUERIES * KEYS; i++) {
        dropped += y[i] == 0;
        if (y[i] != 0) lkt_close(y[i], 1 / (KEYS * (1 - p)), 1e-6);
    }
    double share = (double)dropped / (HEADS * QUERIES * KEYS);
    if (!(fabs(share - p) < 0.04)) fail_msg("%s: attention dropped a share of %g", engine, share);
    for (int h = 0; h < HEADS; h++)
        for (int j = 0; j < KEYS; j++)
            for (int d = 0; d < KEYS; d++) {
                double sum = 0;
                for (int i = 0; i < QUERIES; i++)
                    sum += (double)y[(h * QUERIES + i) * KEYS + j] * w[(h * QUERIES + i) * KEYS + d];
                lkt_close(dv[(h * KEYS + j) * KEYS + d], sum, 1e-5);
            }
}

static void attention_draws_again(void **state)
{
    (void)state;
    for (const char *const *name = lk_engine_names(); *name; name++) {
        lk_module *held = lk_custom_module(.type = "Even", .forward = even_attention);
        lkt_not_null(held);
        lk_tensor *v = lk_tensor_create(LK_F32, LK_SHAPE(1, HEADS, KEYS, KEYS));
        for (int i = 0; i < HEADS * KEYS; i++) ((float *)v->data)[i * KEYS + i % KEYS] = 1;
        lkt_ok(lk_module_add_param(held, lk_param_create("v", v, true)));
        lk_tensor *weights = lk_rand(LK_SHAPE(1, HEADS, QUERIES, KEYS));
        lk_engine *engine = lk_engine_open(*name, NULL);
        lkt_not_null(engine);
        lk_optimizer *optimizer = lk_sgd(.lr = 1e-3);
        lk_step *step = lk_step(.model = held, .function = weighted_sum, .context = held,
                                .optimizer = optimizer, .engine = engine);
        lkt_not_null(step);
        lk_input fields[] = {{"features", weights}};
        lkt_ok(lk_step_begin(step, fields, 1, true));
        lkt_ok(lk_step_forward(step));
        lkt_ok(lk_step_criterion(step));
        lkt_ok(lk_step_backward(step));
        const float *y = lk_step_output(step, "y")->data;
        lkt_ok(lk_step_pull(step));
        check_weights(y, lk_module_param(held, "v")->grad->data, weights->data, *name);
        lk_step_free(step);
        lk_optimizer_free(optimizer);
        lk_engine_close(engine);
        lk_tensor_free(weights);
        lk_module_free(held);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_go_through_what_was_kept),
                                       cmocka_unit_test(attention_draws_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
