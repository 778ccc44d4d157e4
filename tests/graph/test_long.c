/* A loop over time that a program writes by hand, of thousands of values, against the layer that has one op
 * for it: the same losses, batch after batch, in all precisions. */
#include "lktest.h"

#include <lockstep/step.h>

enum { STEPS = 200, BATCH = 3, INPUTS = 4, HIDDEN = 8 };

static lk_value *sum_of_squares(lk_value *y)
{
    return lk_op_mul_scalar(lk_op_sum(lk_op_mul(y, y), LK_ALL_AXES, false), 1.0 / (BATCH * HIDDEN));
}

static lk_value *by_layer(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                          void *lstm)
{
    (void)graph, (void)names, (void)count;
    return sum_of_squares(lk_module_forward(lstm, in[0]));
}

static lk_value *by_hand(lk_graph *graph, const char *const *names, lk_value *const *in, int count,
                         void *lstm)
{
    lk_value *x[STEPS], *ys[STEPS], *gate[4];
    lk_value *h = lk_op_zeros(graph, LK_SHAPE(BATCH, HIDDEN), LK_F32), *c = h;
    lk_value *weight_ih = lk_graph_param(graph, lk_module_param(lstm, "weight_ih_l0"));
    lk_value *weight_hh = lk_graph_param(graph, lk_module_param(lstm, "weight_hh_l0"));
    lk_value *bias_ih = lk_graph_param(graph, lk_module_param(lstm, "bias_ih_l0"));
    lk_value *bias_hh = lk_graph_param(graph, lk_module_param(lstm, "bias_hh_l0"));
    (void)names, (void)count;
    if (lk_op_unbind(x, STEPS, in[0], 0)) return NULL;
    for (int t = 0; t < STEPS; t++) {
        lk_value *gates =
            lk_op_add(lk_op_linear(x[t], weight_ih, bias_ih), lk_op_linear(h, weight_hh, bias_hh));
        if (lk_op_chunk(gate, 4, gates, 1)) return NULL;
        lk_value *kept = lk_op_mul(lk_op_sigmoid(gate[1]), c);
        c = lk_op_add(kept, lk_op_mul(lk_op_sigmoid(gate[0]), lk_op_tanh(gate[2])));
        ys[t] = h = lk_op_mul(lk_op_sigmoid(gate[3]), lk_op_tanh(c));
    }
    return sum_of_squares(lk_op_stack(ys, STEPS, 0));
}

static void train(lk_step_function function, lk_dtype precision, double *losses, int count)
{
    lk_manual_seed(3);
    lk_module *lstm = lk_lstm(INPUTS, HIDDEN);
    lk_tensor *x = lk_randn(LK_SHAPE(STEPS, BATCH, INPUTS));
    lk_step *step = lk_step(.model = lstm, .function = function, .context = lstm,
                            .optimizer = lk_adam(.lr = 0.01), .precision = precision, .owned = true);
    lkt_not_null(step);
    for (int i = 0; i < count; i++) {
        lkt_ok(lk_step_train(step, (lk_input[]){{"x", x}}, 1));
        losses[i] = lk_step_loss(step);
    }
    lk_step_free(step);
    lk_tensor_free(x);
}

static void a_long_loop_computes_what_the_layer_does(void **state)
{
    (void)state;
    static const struct {
        lk_dtype precision;
        double tolerance;
    } cases[] = {{LK_F32, 1e-5}, {LK_BF16, 2e-2}, {LK_F16, 4e-3}};
    for (int k = 0; k < 3; k++) {
        double layer[5], hand[5];
        train(by_layer, cases[k].precision, layer, 5);
        train(by_hand, cases[k].precision, hand, 5);
        assert_true(layer[4] < layer[0]);
        for (int i = 0; i < 5; i++)
            if (!(fabs(hand[i] - layer[i]) <= cases[k].tolerance * layer[i]))
                fail_msg("%s: loss %d is %.7g by hand, %.7g by the layer", lk_dtype_name(cases[k].precision),
                         i, hand[i], layer[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_loop_computes_what_the_layer_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
