/* Modules at several places, modules of several values, and hooks. What shared modules train is compared with
 * PyTorch in test_more_layers.c. */
#include "lktest.h"

#include "graph/graph.h"

#include <lockstep/checkpoint.h>
#include <lockstep/nn.h>
#include <lockstep/runner.h>
#include <lockstep/step.h>

static lk_tensor *counting(lk_shape shape)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, 0.25 * (double)(i % 7) - 0.5);
    return tensor;
}

static lk_module *shared_model(void)
{
    lk_module *tied = lk_linear(4, 4);
    return lk_sequential(lk_module_share(tied), lk_tanh(), lk_residual(lk_module_share(tied)), tied);
}

static void names_are_those_of_pytorch(void **state)
{
    (void)state;
    static const char *const expected[] = {"0.weight", "0.bias",   "2.0.weight",
                                           "2.0.bias", "3.weight", "3.bias"};
    lk_module *model = shared_model();
    lkt_not_null(model);
    assert_int_equal(lk_module_param_count(model), 20);
    lk_param_list list;
    lkt_ok(lk_module_params(model, &list));
    assert_int_equal(list.count, 2);
    assert_string_equal(list.items[0].path, "0.weight");
    lk_param_list_free(&list);
    assert_ptr_equal(lk_module_param(model, "0.weight"), lk_module_param(model, "2.0.weight"));
    lk_state_dict *dict = lk_module_state_dict(model);
    assert_int_equal(lk_state_dict_count(dict), 6);
    for (int i = 0; i < 6; i++) assert_string_equal(lk_state_dict_name(dict, i), expected[i]);
    char *text;
    lkt_ok(lk_module_summary(model, LK_F32, LK_SHAPE(2, 4), &text));
    lkt_contains(text, "    0 (Linear)");
    lkt_contains(text, "  3 (Linear)");
    lkt_contains(text, "Total: 20 parameters, 20 trainable");
    lk_text_free(text);
    lkt_ok(lk_module_to(model, LK_F64));
    assert_int_equal(lk_module_param(model, "3.weight")->value->dtype, LK_F64);
    lk_state_dict_free(dict);
    lk_module_free(model);
}

/* A file that stores a shared parameter once fits, too. */
static void files_with_one_name_fit(void **state)
{
    (void)state;
    lk_module *model = shared_model();
    lk_state_dict *dict = lk_state_dict_create();
    lk_tensor *weight = counting(LK_SHAPE(4, 4));
    lkt_ok(lk_state_dict_put(dict, "2.0.weight", lk_tensor_view(weight)));
    lkt_fails(lk_module_load_state_dict(model, dict), LK_ERR_NOT_FOUND, "bias");
    lkt_ok(lk_state_dict_put(dict, "3.bias", counting(LK_SHAPE(4))));
    lkt_ok(lk_module_load_state_dict(model, dict));
    const lk_param *own = lk_module_param(model, "0.weight");
    assert_memory_equal(own->value->data, weight->data, lk_tensor_nbytes(weight));
    lk_tensor_free(weight);
    lk_state_dict_free(dict);
    lk_module_free(model);
}

static void copies_share_as_the_original(void **state)
{
    (void)state;
    lk_module *model = shared_model();
    lkt_ok(lk_module_add_child(model, "head", lk_linear(4, 4)));
    lkt_ok(lk_module_set_param(model, "head.bias", lk_param_share(lk_module_param(model, "0.bias"))));
    lk_module *copy = lk_module_clone(model);
    lkt_not_null(copy);
    assert_int_equal(lk_module_param_count(copy), 20 + 16);
    assert_ptr_equal(lk_module_child(copy, "0"), lk_module_child(copy, "2.0"));
    assert_ptr_equal(lk_module_param(copy, "0.bias"), lk_module_param(copy, "head.bias"));
    assert_ptr_not_equal(lk_module_param(copy, "0.bias"), lk_module_param(model, "0.bias"));
    lk_module_free(model);
    assert_int_equal(lk_module_param(copy, "3.weight")->value->shape.dim[0], 4);
    lk_module_free(copy);
}

/* Whatever fails, what was handed over is freed once, and what a parent holds stays (the sanitizer counts).
 */
static void holds_are_counted(void **state)
{
    (void)state;
    lk_module *tied = lk_linear(2, 2);
    assert_null(lk_sequential(lk_module_share(tied), lk_residual(tied, lk_dropout(2))));
    lkt_contains(lk_error(), "Dropout: p");
    lk_module *kept = lk_linear(2, 2), *first = lk_sequential(lk_module_share(kept));
    assert_null(lk_named_sequential({"a", lk_module_share(kept)}, {"a", kept}, {"b", lk_relu()}));
    lkt_contains(lk_error(), "there is already a child \"a\"");
    assert_int_equal(lk_module_param_count(first), 6);
    assert_null(lk_sequential(lk_relu(), lk_module_child(first, "0")));
    lkt_contains(lk_error(), "is already the child \"0\" of a module");
    lk_module_free(first);
    lk_module *inner = lk_sequential(lk_relu()), *outer = lk_sequential(inner);
    lkt_fails(lk_module_add_child(inner, "loop", lk_module_share(outer)), LK_ERR_INVALID,
              "\"loop\" (Sequential) contains this module");
    lk_module_free(outer);
    assert_null(lk_module_share(NULL));
    assert_null(lk_param_share(NULL));
}

static void parameters_that_cannot_be_set(void **state)
{
    (void)state;
    lk_module *model = lk_sequential(lk_linear(4, 4), lk_linear(4, 3), lk_batch_norm1d(3));
    lk_param *weight = lk_module_param(model, "0.weight");
    lkt_fails(lk_module_set_param(model, "1.weight", lk_param_share(weight)), LK_ERR_SHAPE,
              "1.weight is (3, 4) and cannot be replaced by (4, 4)");
    lkt_fails(lk_module_set_param(model, "3.weight", lk_param_share(weight)), LK_ERR_NOT_FOUND,
              "there is no parameter \"3.weight\"");
    lkt_fails(lk_module_set_param(model, "2.running_mean", lk_param_share(lk_module_param(model, "1.bias"))),
              LK_ERR_INVALID, "a parameter and a buffer cannot be one");
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer);
    lkt_not_null(step);
    lkt_fails(lk_module_set_param(model, "0.weight",
                                  lk_param_create("w", lk_tensor_create(LK_F32, LK_SHAPE(4, 4)), true)),
              LK_ERR_INVALID, "is trained already");
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
}

/* ---- several values ---- */

/* a W + b, and a - b. */
static lk_status mix(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                     int output_count)
{
    (void)input_count, (void)output_count;
    outputs[0] = lk_op_add(lk_module_forward(lk_module_child(module, "net"), inputs[0]), inputs[1]);
    outputs[1] = lk_op_sub(inputs[0], inputs[1]);
    return LK_OK;
}

static lk_module *mixer(void)
{
    return lk_custom_module(.type = "Mixer", .call = mix, .inputs = 2, .outputs = 2,
                            .children = lk_children({"net", lk_linear(3, 3)}));
}

typedef struct seen {
    int calls, inputs, outputs;
    lk_status fails;
} seen;

static lk_status negate(lk_module *module, lk_value **inputs, int input_count, void *context)
{
    seen *own = context;
    (void)module;
    own->inputs = input_count;
    for (int i = 0; i < input_count; i++) inputs[i] = lk_op_neg(inputs[i]);
    return LK_OK;
}

static lk_status watch(lk_module *module, lk_value *const *inputs, int input_count, lk_value **outputs,
                       int output_count, void *context)
{
    seen *own = context;
    (void)inputs, (void)input_count;
    own->calls++;
    own->outputs = output_count;
    if (own->fails) return lk_fail(own->fails, "the hook of %s does not like it", lk_module_type(module));
    lkt_ok(lk_graph_output(lk_value_graph(outputs[0]), "features", outputs[0]));
    outputs[0] = lk_op_mul_scalar(outputs[0], 2);
    return LK_OK;
}

static lk_value *both(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                      void *context)
{
    (void)names;
    lk_value *outputs[2];
    if (lk_module_call(context, inputs, count, outputs, 2)) return NULL;
    lk_graph_output(graph, "mixed", outputs[0]);
    lk_graph_output(graph, "difference", outputs[1]);
    return lk_op_sum(lk_op_mul(outputs[0], outputs[1]), LK_ALL_AXES, false);
}

static void several_values(void **state)
{
    (void)state;
    lk_module *model = mixer();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.01);
    lk_step *step = lk_step(.model = model, .function = both, .context = model, .optimizer = optimizer);
    lkt_not_null(step);
    lk_tensor *a = counting(LK_SHAPE(2, 3)), *b = counting(LK_SHAPE(2, 3));
    lk_tensor_set(b, 0, 3);
    lk_input fields[] = {{"a", a}, {"b", b}};
    const float *w = lk_module_param(model, "net.weight")->value->data;
    double expected = lk_tensor_get(lk_module_param(model, "net.bias")->value, 0) + 3;
    for (int i = 0; i < 3; i++) expected += (double)w[i] * lk_tensor_get(a, i);
    lkt_ok(lk_step_train(step, fields, 2));
    assert_true(fabs(lk_tensor_get(lk_step_output(step, "mixed"), 0) - expected) < 1e-5);
    assert_true(fabs(lk_tensor_get(lk_step_output(step, "difference"), 0) + 3.5) < 1e-6);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_tensor_free(a);
    lk_tensor_free(b);
    lk_module_free(model);
}

static void counts_are_checked(void **state)
{
    (void)state;
    lk_module *model = mixer(), *plain = lk_linear(3, 3), *list = lk_module_dict({"a", lk_relu()});
    struct {
        lk_module *module;
        int inputs, outputs;
        const char *fragment;
    } cases[] = {{model, 1, 2, "Mixer takes 2 values, found 1"},
                 {model, 2, 1, "Mixer gives 2 values, but 1 are asked for"},
                 {plain, 2, 1, "Linear takes 1 value, found 2"},
                 {plain, 1, 2, "Linear gives 1 value, but 2 are asked for"},
                 {list, 1, 1, "ModuleDict: the module has no forward function"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_graph *graph = lk_graph_create(false);
        lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(2, 3)), *y[2];
        assert_true(
            lk_module_call(cases[i].module, (lk_value *[]){x, x}, cases[i].inputs, y, cases[i].outputs));
        lkt_contains(graph->error, cases[i].fragment);
        assert_null(y[0]);
        lk_graph_free(graph);
    }
    lkt_not_null(lk_module_child(list, "a"));
    assert_null(lk_custom_module(.forward = lk_module_forward, .call = mix));
    lkt_contains(lk_error(), "forward and call: give one of them");
    assert_null(lk_custom_module(.forward = lk_module_forward, .inputs = 2));
    lkt_contains(lk_error(), "they are those of call");
    lk_module_free(model);
    lk_module_free(plain);
    lk_module_free(list);
}

/* An LSTM as a module of three values gives what lk_recurrent_forward does. */
static void recurrent_layers_take_their_states(void **state)
{
    (void)state;
    lk_module *lstm = lk_lstm(3, 5), *gru = lk_gru(3, 5);
    lk_graph *graph = lk_graph_create(true);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(4, 2, 3)), *y[3],
             *h = lk_graph_input(graph, "h", LK_F32, LK_SHAPE(1, 2, 5));
    lkt_ok(lk_module_call(lstm, LK_VALUES(x, h, h), y, 3));
    assert_int_equal(lk_value_shape(y[2]).dim[0], 1);
    assert_true(lk_module_call(gru, LK_VALUES(x, h, h), y, 1));
    lkt_contains(graph->error, "GRU takes and gives at most 2 values, found 3 and 1");
    lk_graph_free(graph);
    lk_module_free(lstm);
    lk_module_free(gru);
}

/* ---- hooks ---- */

static void hooks_see_and_replace_values(void **state)
{
    (void)state;
    seen own = {0};
    lk_module *model = lk_sequential(lk_identity(), lk_identity());
    lk_module *first = lk_module_child(model, "0");
    lkt_ok(lk_module_register_forward_pre_hook(first, negate, &own));
    lkt_ok(lk_module_register_forward_hook(first, watch, &own));
    lk_step *step = lk_step(.model = model);
    lk_tensor *x = counting(LK_SHAPE(2, 3));
    lk_input fields[] = {{"features", x}};
    for (int i = 0; i < 3; i++) lkt_ok(lk_step_evaluate(step, fields, 1));
    assert_int_equal(own.calls, 1); /* recorded once, replayed three times */
    assert_int_equal(own.inputs, 1);
    assert_int_equal(own.outputs, 1);
    assert_true(lk_tensor_get(lk_step_output(step, "features"), 0) == 0.5);
    assert_true(lk_tensor_get(lk_step_output(step, "logits"), 0) == 1);
    lk_step_free(step);
    lk_module *copy = lk_module_clone(model);
    lk_module_remove_forward_hook(first, watch, &own);
    lk_module_remove_forward_pre_hook(first, negate, &own);
    lk_step *plain = lk_step(.model = model), *copied = lk_step(.model = copy);
    lkt_ok(lk_step_evaluate(plain, fields, 1));
    assert_true(lk_tensor_get(lk_step_output(plain, "logits"), 0) == -0.5);
    own.fails = LK_ERR_UNSUPPORTED;
    lkt_fails(lk_step_evaluate(copied, fields, 1), LK_ERR_UNSUPPORTED,
              "the hook of Identity does not like it");
    lk_step_free(plain);
    lk_step_free(copied);
    lk_tensor_free(x);
    lk_module_free(model);
    lk_module_free(copy);
    lkt_fails(lk_module_register_forward_hook(NULL, watch, NULL), LK_ERR_UNSUPPORTED, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_those_of_pytorch),
        cmocka_unit_test(files_with_one_name_fit),
        cmocka_unit_test(copies_share_as_the_original),
        cmocka_unit_test(holds_are_counted),
        cmocka_unit_test(parameters_that_cannot_be_set),
        cmocka_unit_test(several_values),
        cmocka_unit_test(counts_are_checked),
        cmocka_unit_test(recurrent_layers_take_their_states),
        cmocka_unit_test(hooks_see_and_replace_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
