/* Compiling and replaying: gradients, fusion, shared memory, errors that name the layer. */
#include "lktest.h"

#include <lockstep/graph.h>

#include "base/memory.h"
#include "graph/plan.h"

#include <math.h>

typedef struct fixture {
    lk_engine *engine;
    lki_workspace *workspace;
    lk_param *w1, *b1, *w2;
    lk_tensor *x, *y;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    lk_manual_seed(3);
    f->engine = lk_engine_open("ref", NULL);
    f->workspace = lki_workspace_create(NULL);
    f->w1 = lk_param_create("w1", lk_randn(LK_SHAPE(7, 5)), true);
    f->b1 = lk_param_create("b1", lk_randn(LK_SHAPE(7)), true);
    f->w2 = lk_param_create("w2", lk_randn(LK_SHAPE(3, 7)), true);
    f->x = lk_randn(LK_SHAPE(4, 5));
    f->y = lk_randn(LK_SHAPE(4, 3));
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    lk_param_free(f->w1);
    lk_param_free(f->b1);
    lk_param_free(f->w2);
    lk_tensor_free(f->x);
    lk_tensor_free(f->y);
    lki_workspace_free(f->workspace);
    lk_engine_close(f->engine);
    free(f);
    return 0;
}

/* loss = mean((silu(relu(x w1' + b1) * 2 + 1) w2' - y)^2), with enough elementwise ops in a row to be fused.
 */
static lk_value *record_model(lk_graph *graph, fixture *f)
{
    lk_value *x = lk_graph_input(graph, "x", LK_F32, f->x->shape);
    lk_value *y = lk_graph_input(graph, "y", LK_F32, f->y->shape);
    lk_value *h = lk_op_relu(lk_op_linear(x, lk_graph_param(graph, f->w1), lk_graph_param(graph, f->b1)));
    h = lk_op_silu(lk_op_add_scalar(lk_op_mul_scalar(h, 2), 1));
    lk_value *out = lk_op_linear(h, lk_graph_param(graph, f->w2), NULL);
    lkt_ok(lk_graph_output(graph, "out", out));
    graph->section = LKI_SECTION_CRITERION;
    lk_value *loss = lk_op_pointwise_loss(out, y, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
    lkt_ok(lk_graph_output(graph, "loss", loss));
    return loss;
}

static lki_plan *compile_model(fixture *f, bool no_fusion)
{
    lk_graph *graph = lk_graph_create(true);
    lk_value *loss = record_model(graph, f);
    lki_autodiff_report report;
    lk_param *params[] = {f->w1, f->b1, f->w2};
    lkt_ok(lki_pass_autodiff(graph, loss, params, 3, &report));
    assert_int_equal(report.unused_count, 0);
    lki_plan *plan;
    lkt_ok(lki_plan_compile(
        &plan, graph,
        (lki_plan_options){.engine = f->engine, .workspace = f->workspace, .no_fusion = no_fusion}));
    lki_plan_bind(plan, lki_plan_find_input(plan, "x"), f->x->data);
    lki_plan_bind(plan, lki_plan_find_input(plan, "y"), f->y->data);
    return plan;
}

static double loss_of(lki_plan *plan)
{
    lkt_ok(lki_plan_run(plan));
    return lk_tensor_get(lki_plan_output(plan, "loss"), 0);
}

static void gradients_are_those_of_differences(void **state)
{
    fixture *f = *state;
    lki_plan *plan = compile_model(f, false);
    lk_param *params[] = {f->w1, f->b1, f->w2};
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0; i < lk_tensor_count(params[p]->value); i++) {
            double value = lk_tensor_get(params[p]->value, i), h = 1e-3;
            loss_of(plan);
            double gradient = lk_tensor_get(params[p]->grad, i);
            lk_tensor_set(params[p]->value, i, value + h);
            double above = loss_of(plan);
            lk_tensor_set(params[p]->value, i, value - h);
            double below = loss_of(plan);
            lk_tensor_set(params[p]->value, i, value);
            lkt_close(gradient, (above - below) / (2 * h), 2e-2);
        }
    lki_plan_free(plan);
}

static int count_calls(const lki_plan *plan, lk_op op)
{
    int count = 0;
    for (int i = 0; i < lki_plan_call_count(plan); i++) count += lki_plan_call(plan, i)->op == op;
    return count;
}

static void fusion_changes_the_plan_and_not_the_numbers(void **state)
{
    fixture *f = *state;
    lki_plan *fused = compile_model(f, false), *plain = compile_model(f, true);
    double expected = loss_of(plain);
    lk_tensor *gradient = lk_tensor_clone(f->w1->grad);
    double actual = loss_of(fused);
    lkt_close(actual, expected, 1e-6);
    for (int64_t i = 0; i < lk_tensor_count(gradient); i++)
        lkt_close(lk_tensor_get(f->w1->grad, i), lk_tensor_get(gradient, i), 1e-5);
    assert_int_equal(count_calls(fused, LK_OP_RELU), 0);
    assert_int_equal(count_calls(fused, LK_OP_ADD_SCALAR), 0);
    assert_true(count_calls(fused, LK_OP_FUSED) >= 1);
    assert_true(lki_plan_call_count(fused) < lki_plan_call_count(plain));
    lk_tensor_free(gradient);
    lki_plan_free(fused);
    lki_plan_free(plain);
}

/* loss = mean((max_pool(relu(x)) - y)^2), or the other way round, of a parameter x (1, 2, 5, 5), ties and
 * zeros in it: half of its numbers are equal. */
static lki_plan *compile_pool(fixture *f, lk_param *x, lk_tensor *y, bool pool_first, bool no_fusion)
{
    lk_graph *graph = lk_graph_create(true);
    lk_value *h = lk_op_mul_scalar(lk_graph_param(graph, x), 2);
    lk_window window = {.rank = 2, .kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    h = pool_first ? lk_op_relu(lk_op_max_pool(h, window)) : lk_op_max_pool(lk_op_relu(h), window);
    lk_value *target = lk_graph_input(graph, "y", LK_F32, y->shape);
    lk_value *loss = lk_op_pointwise_loss(h, target, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
    lkt_ok(lk_graph_output(graph, "loss", loss));
    lki_autodiff_report report;
    lki_plan *plan;
    lkt_ok(lki_pass_autodiff(graph, loss, &x, 1, &report));
    lkt_ok(lki_plan_compile(
        &plan, graph,
        (lki_plan_options){.engine = f->engine, .workspace = f->workspace, .no_fusion = no_fusion}));
    lki_plan_bind(plan, lki_plan_find_input(plan, "y"), y->data);
    return plan;
}

static lk_param *create_with_ties(void)
{
    lk_param *x = lk_param_create("x", lk_randn(LK_SHAPE(1, 2, 5, 5)), true);
    for (int64_t i = 0; i < 50; i++)
        if (i % 4 < 2) lk_tensor_set(x->value, i, i % 4 == 0 ? -1 : 0.5);
    return x;
}

static void expect_same_gradients(lki_plan *fused, lki_plan *plain, lk_param *x)
{
    double expected = loss_of(plain);
    lk_tensor *gradient = lk_tensor_clone(x->grad);
    assert_true(loss_of(fused) == expected);
    for (int64_t i = 0; i < 50; i++) assert_true(lk_tensor_get(x->grad, i) == lk_tensor_get(gradient, i));
    lk_tensor_free(gradient);
}

static void a_relu_below_a_pool_has_its_gradient_taken_first(void **state)
{
    fixture *f = *state;
    lk_param *x = create_with_ties();
    lk_tensor *y = lk_randn(LK_SHAPE(1, 2, 3, 3));
    lki_plan *fused = compile_pool(f, x, y, false, false), *plain = compile_pool(f, x, y, false, true);
    expect_same_gradients(fused, plain, x);
    for (int i = 0; i < lki_plan_call_count(fused); i++) {
        const lk_call *call = lki_plan_call(fused, i);
        if (call->op == LK_OP_RELU_GRAD) assert_int_equal(call->out[0].shape.dim[3], 3);
    }
    lk_tensor_free(y);
    lki_plan_free(fused);
    lki_plan_free(plain);
    lk_param_free(x);
}

static void a_relu_above_a_pool_becomes_part_of_it(void **state)
{
    fixture *f = *state;
    lk_param *x = create_with_ties();
    for (int64_t i = 0; i < 15; i++) lk_tensor_set(x->value, i, -1); /* windows of which nothing is left */
    lk_tensor *y = lk_randn(LK_SHAPE(1, 2, 3, 3));
    lki_plan *fused = compile_pool(f, x, y, true, false), *plain = compile_pool(f, x, y, true, true);
    expect_same_gradients(fused, plain, x);
    assert_int_equal(count_calls(plain, LK_OP_RELU) + count_calls(plain, LK_OP_RELU_GRAD), 2);
    assert_int_equal(count_calls(fused, LK_OP_RELU) + count_calls(fused, LK_OP_RELU_GRAD), 0);
    lk_tensor_free(y);
    lki_plan_free(fused);
    lki_plan_free(plain);
    lk_param_free(x);
}

static void a_replay_allocates_nothing(void **state)
{
    fixture *f = *state;
    lki_plan *plan = compile_model(f, false);
    loss_of(plan);
    uint64_t before = lki_allocation_count();
    for (int i = 0; i < 10; i++) lkt_ok(lki_plan_run(plan));
    assert_int_equal(lki_allocation_count(), before);
    lki_plan_free(plan);
}

static void memory_is_shared_along_a_chain(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(false);
    lk_value *v = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(1000));
    for (int i = 0; i < 40; i++)
        v = lk_op_softmax(v, 0); /* not elementwise: two buffers at a time are needed */
    lkt_ok(lk_graph_output(graph, "out", v));
    lki_plan *plan;
    lkt_ok(
        lki_plan_compile(&plan, graph, (lki_plan_options){.engine = f->engine, .workspace = f->workspace}));
    assert_true(lki_plan_arena_nbytes(plan) <= 2 * 4032);
    lki_plan_free(plan);
}

static void errors_name_the_layer_and_both_shapes(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(true);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(4, 9));
    lk_graph_push_scope(graph, "head", "Linear");
    assert_null(lk_op_linear(x, lk_graph_param(graph, f->w1), NULL));
    lk_graph_pop_scope(graph);
    assert_int_equal(graph->status, LK_ERR_SHAPE);
    lkt_contains(lk_error(), "layer head (Linear)");
    lkt_contains(lk_error(), "(4, 9)");
    lkt_contains(lk_error(), "(7, 5)");
    lki_plan *plan;
    lkt_fails(
        lki_plan_compile(&plan, graph, (lki_plan_options){.engine = f->engine, .workspace = f->workspace}),
        LK_ERR_SHAPE, "layer head (Linear)");
}

static void unused_parameters_are_reported(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(true);
    lk_value *loss = record_model(graph, f);
    lk_param *extra = lk_param_create("extra", lk_randn(LK_SHAPE(2)), true);
    lk_param *params[] = {f->w1, f->b1, f->w2, extra};
    lki_autodiff_report report;
    lkt_ok(lki_pass_autodiff(graph, loss, params, 4, &report));
    assert_int_equal(report.unused_count, 1);
    assert_ptr_equal(report.unused[0], extra);
    lk_graph_free(graph);
    lk_param_free(extra);
}

static void a_loss_that_is_not_finite_names_its_layer(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(false);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(3));
    lk_graph_push_scope(graph, "norm", "Log");
    lk_value *y = lk_op_log(lk_op_softmax(x, 0));
    lk_graph_pop_scope(graph);
    lkt_ok(lk_graph_output(graph, "loss", lk_op_sum(y, LK_ALL_AXES, false)));
    lki_plan *plan;
    lkt_ok(
        lki_plan_compile(&plan, graph, (lki_plan_options){.engine = f->engine, .workspace = f->workspace}));
    float values[] = {-1000, 0, 1000};
    lki_plan_bind(plan, 0, values);
    lkt_ok(lki_plan_run(plan));
    lkt_fails(lki_plan_explain_nan(plan), LK_ERR_NAN, "layer norm (Log)");
    values[1] = NAN;
    lkt_fails(lki_plan_explain_nan(plan), LK_ERR_NAN, "input \"x\"");
    lki_plan_free(plan);
}

static void an_unbound_input_is_an_error(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(false);
    lkt_ok(lk_graph_output(graph, "out", lk_op_exp(lk_graph_input(graph, "x", LK_F32, LK_SHAPE(3)))));
    lki_plan *plan;
    lkt_ok(
        lki_plan_compile(&plan, graph, (lki_plan_options){.engine = f->engine, .workspace = f->workspace}));
    lkt_fails(lki_plan_run(plan), LK_ERR_INVALID, "\"x\" is not bound");
    lki_plan_free(plan);
}

static void out_of_memory_is_an_error(void **state)
{
    fixture *f = *state;
    lk_graph *graph = lk_graph_create(false);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(1 << 20));
    lkt_ok(lk_graph_output(graph, "out", lk_op_softmax(lk_op_softmax(x, 0), 0)));
    lki_set_allocation_limit(1 << 20);
    lki_plan *plan;
    lk_status status =
        lki_plan_compile(&plan, graph, (lki_plan_options){.engine = f->engine, .workspace = f->workspace});
    lki_set_allocation_limit(0);
    assert_int_equal(status, LK_ERR_NOMEM);
    lkt_contains(lk_error(), "8.0 MiB for the activations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(gradients_are_those_of_differences, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fusion_changes_the_plan_and_not_the_numbers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_relu_below_a_pool_has_its_gradient_taken_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_relu_above_a_pool_becomes_part_of_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_replay_allocates_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(memory_is_shared_along_a_chain, set_up, tear_down),
        cmocka_unit_test_setup_teardown(errors_name_the_layer_and_both_shapes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unused_parameters_are_reported, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_that_is_not_finite_names_its_layer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unbound_input_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(out_of_memory_is_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
