/* Models that are no straight line: values against the same ops written by hand, and the line that names the
 * node for everything that can be wrong. */
#include "golden.h"
#include "lktest.h"

#include "graph/graph.h"

#include <lockstep/nodes.h>
#include <lockstep/random.h>
#include <lockstep/step.h>

typedef lk_module *(*module_maker)(void);

static lk_value *run_module(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                            void *context)
{
    lk_value *y = NULL;
    (void)names;
    lk_module_call(context, inputs, count, &y, 1);
    lk_graph_output(graph, "y", y);
    return NULL;
}

static lk_tensor *numbers(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, sin(0.37 * (double)(i * i + 1)));
    return tensor;
}

/* The output of a module over inputs of the same numbers, the caller's. */
static lk_tensor *output_of(lk_module *module, lk_tensor *const *inputs, int count)
{
    static const char *const names[] = {"a", "b", "c"};
    lk_input fields[3];
    for (int i = 0; i < count; i++) fields[i] = (lk_input){names[i], inputs[i]};
    lkt_not_null(module);
    lk_step *step = lk_step(.model = module, .function = run_module, .context = module);
    lkt_not_null(step);
    lkt_ok(lk_step_evaluate(step, fields, count));
    lk_tensor *y = lk_tensor_clone(lk_step_output(step, "y"));
    lk_step_free(step);
    return y;
}

static void expect_same(lk_module *module, lk_module *by_hand, lk_shape shape)
{
    lk_tensor *x = numbers(shape);
    lk_tensor *actual = output_of(module, &x, 1), *expected = output_of(by_hand, &x, 1);
    assert_true(lk_shape_equal(actual->shape, expected->shape));
    lkt_near(actual, expected, 1, 0, lk_module_type(module));
    lk_tensor_free(x);
    lk_tensor_free(actual);
    lk_tensor_free(expected);
    lk_module_free(module);
    lk_module_free(by_hand);
}

/* ---- values ---- */

static lk_module *block(void)
{
    return lk_node_graph(lk_nodes(lk_node("sum", lk_add(), "again x relu"), /* before what it needs */
                                  lk_node("conv", lk_conv2d(4, 4, 3, .padding = 1), "x"),
                                  lk_node("relu", lk_relu()), lk_node("again", NULL, .same_as = "conv"),
                                  lk_node("both", lk_cat(1), "sum, conv")));
}

static lk_value *block_by_hand(lk_module *module, lk_value *x)
{
    lk_module *conv = lk_module_child(module, "conv");
    lk_value *first = lk_module_forward(conv, x), *relu = lk_op_relu(first);
    lk_value *sum = lk_op_add(lk_op_add(lk_module_forward(conv, relu), x), relu);
    return lk_op_concat((lk_value *const[]){sum, first}, 2, 1);
}

static void a_graph_computes_what_its_nodes_do(void **state)
{
    (void)state;
    lk_manual_seed(1);
    lk_module *graph = block();
    lkt_not_null(graph);
    assert_int_equal(lk_module_param_count(graph), 4 * 4 * 9 + 4);
    lk_manual_seed(1);
    lk_module *by_hand =
        lk_custom_module(.forward = block_by_hand,
                         .children = lk_children({"conv", lk_conv2d(4, 4, 3, .padding = 1)}));
    lk_module *copy = lk_module_clone(graph), *other = lk_module_clone(by_hand);
    expect_same(graph, by_hand, LK_SHAPE(2, 4, 5, 5));
    expect_same(copy, other, LK_SHAPE(2, 4, 5, 5));
}

static lk_value *shortcut_by_hand(lk_module *module, lk_value *x)
{
    lk_value *y = lk_op_tanh(lk_module_forward(lk_module_child(module, "0"), x));
    return lk_op_add(lk_module_forward(lk_module_child(module, "shortcut"), x), y);
}

static lk_value *parallel_by_hand(lk_module *module, lk_value *x)
{
    lk_value *a = lk_module_forward(lk_module_child(module, "0"), x);
    return lk_op_concat((lk_value *const[]){a, lk_op_sigmoid(x)}, 2, 1);
}

static void branches_meet(void **state)
{
    (void)state;
    lk_manual_seed(2);
    lk_module *shortcut = lk_shortcut(lk_linear(5, 3), lk_linear(5, 3), lk_tanh());
    lk_manual_seed(2);
    lk_module *by_hand =
        lk_custom_module(.forward = shortcut_by_hand,
                         .children = lk_children({"shortcut", lk_linear(5, 3)}, {"0", lk_linear(5, 3)}));
    expect_same(shortcut, by_hand, LK_SHAPE(2, 5));
    lk_manual_seed(3);
    lk_module *parallel = lk_parallel(lk_cat(1), lk_linear(5, 3), lk_sigmoid());
    lk_manual_seed(3);
    expect_same(
        parallel,
        lk_custom_module(.forward = parallel_by_hand, .children = lk_children({"0", lk_linear(5, 3)})),
        LK_SHAPE(2, 5));
}

static lk_value *places_by_hand(lk_module *module, lk_value *x)
{
    (void)module; /* (2, 3, 4) -> (2, 4, 3) -> (2, 2, 3) -> (2, 3) -> (3) */
    x = lk_op_slice(lk_op_transpose(x, 1, 2), 1, 1, 3, 1);
    x = lk_op_reshape(lk_op_slice(x, 1, 1, 2, 1), LK_SHAPE(2, 3));
    x = lk_op_mean(lk_op_pow_scalar(x, 2), LK_AXES(0), false);
    return lk_op_clamp(lk_op_reshape(x, LK_SHAPE(3, 1)), -INFINITY, 0.25);
}

static void places_are_moved_and_chosen(void **state)
{
    (void)state;
    lk_module *module = lk_sequential(lk_permute(LK_SHAPE(0, 2, 1)), lk_transpose(1, 1), lk_slice(1, 1, -1),
                                      lk_select(-2, -1), lk_lambda("square", 0), lk_mean(LK_SHAPE(0), false),
                                      lk_reshape(LK_SHAPE(0, -1)), lk_lambda("min", 0.25));
    expect_same(module, lk_custom_module(.forward = places_by_hand), LK_SHAPE(2, 3, 4));
}

/* Three inputs, two outputs. */
static void several_values_go_in_and_out(void **state)
{
    (void)state;
    lk_module *module =
        lk_node_graph(lk_nodes(lk_node("product", lk_mul(), "a b"), lk_node("rest", lk_sub(), "product c"),
                               lk_node("ratio", lk_div(), "a c")),
                      .inputs = "a b c", .outputs = "rest ratio");
    lkt_not_null(module);
    assert_string_equal(lk_node_graph_output(module, 0), "rest");
    assert_string_equal(lk_node_graph_output(module, 1), "ratio");
    assert_null(lk_node_graph_output(module, 2));
    lk_graph *graph = lk_graph_create(false);
    lk_value *in[3], *out[2];
    for (int i = 0; i < 3; i++)
        in[i] = lk_graph_input(graph, (const char *[]){"a", "b", "c"}[i], LK_F32, LK_SHAPE(4));
    lkt_ok(lk_module_call(module, in, 3, out, 2));
    assert_true(out[0] && out[1] && out[0] != out[1]);
    lk_graph_free(graph);
    graph = lk_graph_create(false);
    in[0] = lk_graph_input(graph, "a", LK_F32, LK_SHAPE(4));
    assert_null(lk_module_forward(module, in[0]));
    lkt_contains(lk_error(), "takes 3 values");
    lk_graph_free(graph);
    lk_module_free(module);
}

/* With one head and without a mask, by the formula; a causal first place sees itself alone. */
static void attention_without_parameters(void **state)
{
    (void)state;
    lk_tensor *in[3] = {numbers(LK_SHAPE(1, 3, 4)), numbers(LK_SHAPE(1, 3, 4)), numbers(LK_SHAPE(1, 3, 4))};
    for (int64_t i = 0; i < 12; i++) lk_tensor_set(in[2], i, (double)i);
    lk_module *causal = lk_attend(.num_heads = 2, .is_causal = true), *whole = lk_attend();
    lk_tensor *y = output_of(causal, in, 3);
    for (int64_t i = 0; i < 4; i++) assert_true(fabs(lk_tensor_get(y, i) - (double)i) < 1e-6);
    lk_tensor_free(y);
    y = output_of(whole, in, 3);
    double weight[3], sum = 0, expected = 0;
    for (int k = 0; k < 3; k++) {
        double score = 0;
        for (int i = 0; i < 4; i++) score += lk_tensor_get(in[0], i) * lk_tensor_get(in[1], k * 4 + i);
        sum += weight[k] = exp(score / 2);
    }
    for (int k = 0; k < 3; k++) expected += weight[k] / sum * (k * 4);
    assert_true(fabs(lk_tensor_get(y, 0) - expected) < 1e-5);
    lk_tensor_free(y);
    for (int i = 0; i < 3; i++) lk_tensor_free(in[i]);
    lk_module_free(causal);
    lk_module_free(whole);
}

/* ---- mistakes ---- */

static void expect_refused(lk_module *module, const char *sentence)
{
    assert_null(module);
    lkt_contains(lk_error(), sentence);
}

static void mistakes_name_the_node(void **state)
{
    (void)state;
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu(), "c"), lk_node("b", lk_relu(), "a"),
                                          lk_node("c", lk_tanh(), "b"))),
                   "a cycle: \"c\", which goes into \"a\", which goes into \"b\", which goes into \"c\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu(), "a"))), "a cycle: \"a\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("conv", lk_relu()), lk_node("b", lk_relu(), "cnov"))),
                   "node \"b\": there is no node or input \"cnov\"; did you mean \"conv\"?");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu()), lk_node("lost", lk_relu()),
                                          lk_node("c", lk_tanh(), "a"))),
                   "nobody uses node \"lost\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu())), .inputs = "x mask"),
                   "no node uses the input \"mask\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu())), .outputs = "b"),
                   "outputs: there is no node");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu()), lk_node("a", lk_relu()))),
                   "two nodes or inputs \"a\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("x", lk_relu()))), "two nodes or inputs \"x\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu()), lk_node("b", lk_relu(), "x a"))),
                   "node \"b\" (ReLU) takes one input, found 2");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu()), lk_node("b", lk_sub(), "x a x"))),
                   "node \"b\" (Sub) takes 2 inputs, found 3");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_relu(), "  "))), "node \"a\" has no input");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", NULL, .same_as = "b"))),
                   "node \"a\": there is no module of a node \"b\"");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a", lk_linear(0, 1)), lk_node("b", lk_relu()))),
                   "at least 1 feature");
    expect_refused(lk_node_graph(lk_nodes(lk_node("a b", lk_relu()))), "node 0 needs a name");
    expect_refused(lk_parallel(lk_relu(), lk_relu()), "ReLU does not take several inputs");
    expect_refused(lk_permute(LK_SHAPE(0, 0)), "each of 2 axes once");
    expect_refused(lk_reshape(LK_SHAPE(-1, -1)), "at most one size");
    expect_refused(lk_lambda("sqr", 0), "there is no function \"sqr\"");
    expect_refused(lk_attend(.dropout = 2), "expected a probability");
}

static void expect_does_not_fit(lk_module *module, lk_shape shape, const char *sentence)
{
    lkt_not_null(module);
    lk_graph *graph = lk_graph_create(false);
    assert_null(lk_module_forward(module, lk_graph_input(graph, "x", LK_F32, shape)));
    lkt_contains(graph->error, sentence);
    lk_graph_free(graph);
    lk_module_free(module);
}

static void shapes_that_do_not_fit_name_the_node(void **state)
{
    (void)state;
    expect_does_not_fit(
        lk_node_graph(lk_nodes(lk_node("half", lk_linear(4, 2)), lk_node("total", lk_add(), "x half"))),
        LK_SHAPE(3, 4), "total");
    expect_does_not_fit(lk_sequential(lk_select(1, 4)), LK_SHAPE(3, 4),
                        "there is no place 4 on axis 1 of (3, 4)");
    expect_does_not_fit(lk_sequential(lk_slice(1, 2, 9)), LK_SHAPE(3, 4), "2 to 9 is no part of axis 1");
    expect_does_not_fit(lk_sequential(lk_permute(LK_SHAPE(0, 2, 1))), LK_SHAPE(3, 4), "dims names 3 axes");
    expect_does_not_fit(lk_sequential(lk_reshape(LK_SHAPE(0, 0, 0))), LK_SHAPE(3, 4), "no axis 2 to keep");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_computes_what_its_nodes_do),
        cmocka_unit_test(branches_meet),
        cmocka_unit_test(places_are_moved_and_chosen),
        cmocka_unit_test(several_values_go_in_and_out),
        cmocka_unit_test(attention_without_parameters),
        cmocka_unit_test(mistakes_name_the_node),
        cmocka_unit_test(shapes_that_do_not_fit_name_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
