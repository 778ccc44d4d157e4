/* Channels last: a network of everything that keeps that layout learns as it does row-major, and what users
 * see of it (outputs, parameters, running values) is row-major. For engines that have the layout: a GPU,
 * which LOCKSTEP_TEST_ENGINE=cuda asks for. */
#include "engines.h"
#include "lktest.h"
#include "resnet.h"

#include <lockstep/lockstep.h>

#include "step/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, BATCH = 4, SIZE = 32, MOST_VALUES = 60000 };

/* A picture's convolution; residual layers with and without a projection; grouped and transposed
 * convolutions, with biases; every pool; channels that do not fill 16 bytes. */
static lk_module *network(void)
{
    lk_manual_seed(11);
    return lk_named_sequential(
        {"conv1", resnet_conv(3, 16, 7, 2)}, {"bn1", lk_batch_norm2d(16)}, {"relu", lk_relu()},
        {"maxpool", lk_max_pool2d(3, .stride = 2, .padding = 1)}, {"layer1", resnet_layer(16, 8, 2, true, 2)},
        {"groups", lk_conv2d(32, 32, 3, .padding = 1, .groups = 4)}, {"bn2", lk_batch_norm2d(32)},
        {"relu2", lk_relu()}, {"wider", lk_conv_transpose2d(32, 12, 3)}, {"silu", lk_silu()},
        {"avgpool", lk_avg_pool2d(2)}, {"conv3", lk_conv2d(12, 12, 1)},
        {"bn3", lk_batch_norm2d(12, .no_affine = true)}, {"relu3", lk_relu()});
}

/* The pool takes the ReLU along. */
static lk_module *rectified_pool(void)
{
    lk_manual_seed(12);
    return lk_sequential(lk_conv2d(3, 16, 3, .padding = 1), lk_max_pool2d(2), lk_relu(),
                         lk_conv2d(16, 12, 1));
}

/* The network's result is an output of the graph as it is, and read on in it. */
static lk_value *forward(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                         void *context)
{
    (void)names, (void)count;
    lk_value *map = lk_module_forward(context, inputs[0]);
    lk_graph_output(graph, "map", map);
    lk_value *pooled =
        lk_op_reshape(lk_op_adaptive_avg_pool(map, (const int64_t[]){1, 1}, 2), LK_SHAPE(BATCH, 12));
    return lk_op_cross_entropy(pooled, inputs[1], NULL, LK_REDUCTION_MEAN, -100, 0);
}

/* All that can be seen after some steps, and how many values changed their layout on the way. */
typedef struct result {
    double loss[STEPS];
    float value[MOST_VALUES];
    int count, reorders, folded, led, joined;
} result;

static void look(result *r, const lk_tensor *tensor)
{
    int64_t count = lk_shape_count(tensor->shape);
    assert_int_equal(tensor->dtype, LK_F32);
    assert_true(r->count + count <= MOST_VALUES);
    memcpy(r->value + r->count, tensor->data, sizeof(float) * (size_t)count);
    r->count += (int)count;
}

static void count_calls(result *r, const lki_plan *plan)
{
    for (int i = 0; i < lki_plan_call_count(plan); i++) {
        const lk_call *call = lki_plan_call(plan, i);
        r->reorders += call->op == LK_OP_REORDER;
        r->led += call->is_led;
        r->joined += call->op == LK_OP_BATCH_NORM_RELU && call->input_count > 6;
        r->folded += call->op == LK_OP_BATCH_NORM_RELU || call->op == LK_OP_BATCH_NORM_RELU_GRAD;
    }
}

/* channels_last: LOCKSTEP_CHANNELS_LAST; NULL: it is not set. */
static void learn_by(lk_module *model, lk_engine_options how, const char *channels_last, lk_dtype precision,
                     result *r)
{
    memset(r, 0, sizeof *r);
    if (channels_last) setenv("LOCKSTEP_CHANNELS_LAST", channels_last, 1);
    lk_engine *engine = lk_engine_open("cuda", &how);
    lkt_not_null(engine);
    lkt_not_null(model);
    lk_step *step =
        lk_step(.model = model, .function = forward, .context = model, .engine = engine,
                .precision = precision, .optimizer = lk_sgd(.lr = 0.02, .momentum = 0.9), .owned = true);
    lkt_not_null(step);
    lk_tensor *x = lk_randn(LK_SHAPE(BATCH, 3, SIZE, SIZE)), *y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    for (int i = 0; i < BATCH; i++) ((int64_t *)y->data)[i] = i * 5 % 12;
    const lk_input fields[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < STEPS; i++) {
        lkt_ok(lk_step_train(step, fields, 2));
        r->loss[i] = lk_step_loss(step);
    }
    count_calls(r, step->current->plan);
    look(r, lk_step_output(step, "map"));
    lkt_ok(lk_step_pull(step));
    for (int i = 0; i < step->params.count; i++)
        if (step->params.items[i].param->value->dtype == LK_F32) look(r, step->params.items[i].param->value);
    lkt_ok(lk_step_evaluate(step, fields, 2));
    look(r, lk_step_output(step, "map"));
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_step_free(step);
    lk_engine_close(engine);
    unsetenv("LOCKSTEP_CHANNELS_LAST");
}

static void learn(const char *channels_last, lk_dtype precision, result *r)
{
    learn_by(network(), *LK_OPTIONS(lk_engine_options), channels_last, precision, r);
}

/* The root of the mean square of what differs. */
static double distance(const result *a, const result *b)
{
    double sum = 0;
    assert_int_equal(a->count, b->count);
    for (int i = 0; i < a->count; i++) sum += pow((double)a->value[i] - (double)b->value[i], 2);
    return sqrt(sum / a->count);
}

static void it_learns_as_row_major(void **state)
{
    (void)state;
    static const struct {
        lk_dtype dtype;
        double loss;
    } cases[] = {{LK_F32, 1e-5}, {LK_BF16, 0.03}, {LK_F16, 0.015}};
    static result wide, rows, last;
    if (!gpu_is_asked_for()) {
        print_message("SKIPPED: the engines of the host have no channels last\n");
        skip();
    }
    learn("0", LK_F32, &wide);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        learn("0", cases[i].dtype, &rows);
        learn("1", cases[i].dtype, &last);
        assert_int_equal(rows.reorders, 0);
        assert_int_equal(rows.folded, 0);
        assert_true(last.reorders > 0);
        assert_true(last.folded > 0);
        assert_true((last.led > 0) == (cases[i].dtype != LK_F32)); /* weights are cast in one go */
        assert_true(last.joined > 0); /* a projection's norm is normalised where it is added */
        for (int k = 0; k < STEPS; k++) lkt_close(last.loss[k], wide.loss[k], cases[i].loss);
        /* 16 bits stray from f32 by as much in either layout. */
        assert_true(distance(&last, &wide) < 1e-5 + 1.5 * distance(&rows, &wide));
    }
}

static void a_relu_behind_a_pool_counts(void **state)
{
    (void)state;
    static result rows, last;
    if (!gpu_is_asked_for()) skip();
    learn_by(rectified_pool(), *LK_OPTIONS(lk_engine_options), "0", LK_F32, &rows);
    learn_by(rectified_pool(), *LK_OPTIONS(lk_engine_options), "1", LK_F32, &last);
    assert_true(last.reorders > 0);
    assert_true(distance(&last, &rows) < 1e-5);
    learn_by(rectified_pool(), *LK_OPTIONS(lk_engine_options), "1", LK_BF16, &last);
    for (int k = 0; k < STEPS; k++) lkt_close(last.loss[k], rows.loss[k], 0.01);
}

/* Tensor cores like channels last in f32 too, where they may be used. */
static void tf32_prefers_it(void **state)
{
    (void)state;
    static result wide, rounded;
    if (!gpu_is_asked_for()) skip();
    learn(NULL, LK_F32, &wide);
    learn_by(network(), *LK_OPTIONS(lk_engine_options, .allow_tf32 = true), NULL, LK_F32, &rounded);
    assert_int_equal(wide.reorders, 0);
    assert_true(rounded.reorders > 0);
    assert_true(rounded.folded > 0);
    for (int k = 0; k < STEPS; k++)
        lkt_close(rounded.loss[k], wide.loss[k], 0.015); /* it keeps as many bits as f16 */
}

/* Row-major convolutions by whatever was the fastest in a trial: the same sums, in another order. */
static void trials_learn_the_same(void **state)
{
    (void)state;
    static result wide, tried;
    if (!gpu_is_asked_for()) skip();
    learn("0", LK_F32, &wide);
    learn_by(network(), *LK_OPTIONS(lk_engine_options, .benchmark = true), "0", LK_F32, &tried);
    assert_int_equal(tried.reorders, 0);
    for (int k = 0; k < STEPS; k++) lkt_close(tried.loss[k], wide.loss[k], 1e-4);
}

/* The same bits each time. */
static void it_is_deterministic(void **state)
{
    (void)state;
    static result first, second;
    if (!gpu_is_asked_for()) skip();
    learn("1", LK_BF16, &first);
    learn("1", LK_BF16, &second);
    assert_memory_equal(first.value, second.value, sizeof first.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_as_row_major), cmocka_unit_test(a_relu_behind_a_pool_counts),
        cmocka_unit_test(tf32_prefers_it),        cmocka_unit_test(trials_learn_the_same),
        cmocka_unit_test(it_is_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
