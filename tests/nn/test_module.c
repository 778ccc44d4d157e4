/* Modules as trees: names, ownership, failures in the middle of an expression, copies, summaries, several
 * graphs. */
#include "lktest.h"

#include "base/memory.h"
#include "graph/graph.h"

#include <lockstep/random.h>
#include <lockstep/step.h>

static lk_module *small_model(void)
{
    return lk_sequential(lk_conv2d(1, 4, 3, .padding = 1), lk_batch_norm2d(4), lk_relu(), lk_max_pool2d(2),
                         lk_flatten(), lk_linear(4 * 4 * 4, 10));
}

static void paths_are_pytorchs(void **state)
{
    (void)state;
    static const char *const expected[] = {"0.weight",
                                           "0.bias",
                                           "1.weight",
                                           "1.bias",
                                           "1.running_mean",
                                           "1.running_var",
                                           "1.num_batches_tracked",
                                           "5.weight",
                                           "5.bias"};
    lk_module *model = small_model();
    lkt_not_null(model);
    lk_param_list list;
    lkt_ok(lk_module_params(model, &list));
    assert_int_equal(list.count, 9);
    for (int i = 0; i < 9; i++) assert_string_equal(list.items[i].path, expected[i]);
    assert_true(list.items[4].param->is_buffer && !list.items[4].param->trainable);
    assert_int_equal(list.items[6].param->value->dtype, LK_I64);
    assert_int_equal(list.items[6].param->value->shape.rank, 0);
    lk_param_list_free(&list);
    assert_int_equal(lk_module_param_count(model), 40 + 8 + 650);
    lk_module_set_trainable(lk_module_child(model, "0"), false);
    assert_int_equal(lk_module_param_count(model), 8 + 650);
    lk_module_free(model);
}

static void lookup_by_path(void **state)
{
    (void)state;
    lk_module *model = lk_transformer_encoder(lk_transformer_encoder_layer(8, 2, .dim_feedforward = 16), 2);
    lkt_not_null(model);
    assert_string_equal(lk_module_type(lk_module_child(model, "layers.1.self_attn")), "MultiheadAttention");
    lkt_not_null(lk_module_param(model, "layers.0.self_attn.in_proj_weight"));
    lkt_not_null(lk_module_param(model, "layers.1.self_attn.out_proj.bias"));
    assert_null(lk_module_child(model, "layers.2"));
    lkt_contains(lk_error(), "there is no module \"layers.2\"");
    assert_null(lk_module_param(model, "layers.0.linear3.weight"));
    lkt_contains(lk_error(), "there is no parameter \"layers.0.linear3.weight\"");
    lk_module_free(model);
}

static void expect_norm(lk_module *module, lk_shape shape, bool training, const char *sentence)
{
    lk_graph *graph = lk_graph_create(training);
    lk_value *y = lk_module_forward(module, lk_graph_input(graph, "x", LK_F32, shape));
    assert_true((y == NULL) == (sentence != NULL));
    if (sentence) lkt_contains(graph->error, sentence);
    lk_graph_free(graph);
}

/* As PyTorch: a variance needs two values, unless it is a running one. */
static void one_value_has_no_variance(void **state)
{
    (void)state;
    lk_module *batch = lk_batch_norm1d(3), *group = lk_group_norm(3, 3);
    expect_norm(batch, LK_SHAPE(1, 3), true, "expected more than 1 value per channel when training");
    expect_norm(batch, LK_SHAPE(1, 3), false, NULL);
    expect_norm(batch, LK_SHAPE(1, 3, 2), true, NULL);
    expect_norm(batch, LK_SHAPE(2, 3), true, NULL);
    expect_norm(group, LK_SHAPE(1, 3), false, "expected more than 1 value per group");
    expect_norm(group, LK_SHAPE(2, 3), true, NULL);
    lk_module_free(batch);
    lk_module_free(group);
}

static void copies_are_independent(void **state)
{
    (void)state;
    lk_module *model = small_model(), *copy = lk_module_clone(model);
    lkt_not_null(copy);
    lk_param *original = lk_module_param(model, "5.weight"), *copied = lk_module_param(copy, "5.weight");
    assert_memory_equal(original->value->data, copied->value->data, lk_tensor_nbytes(original->value));
    lk_tensor_set(copied->value, 0, 100);
    assert_true(lk_tensor_get(original->value, 0) != 100);
    assert_true(lk_module_param(copy, "1.running_var")->is_buffer);
    lk_module_free(model);
    lk_module_free(copy);
}

static int freed_count;

static void count_free(void *context)
{
    (void)context;
    freed_count++;
}

static lk_value *pass_through(lk_module *module, lk_value *x)
{
    return lk_module_forward(lk_module_child(module, "inner"), x);
}

/* A failing part anywhere in the expression: NULL, one sentence, and nothing lost (the sanitizer counts). */
static void a_null_part_passes_through(void **state)
{
    (void)state;
    assert_null(lk_sequential(lk_linear(4, 4), lk_linear(0, 3), lk_relu()));
    lkt_contains(lk_error(), "Linear: expected at least 1 feature in and out, found 0 and 3");
    assert_null(lk_sequential(lk_residual(lk_relu(), lk_conv2d(3, 4, 3, .groups = 2)), lk_relu()));
    lkt_contains(lk_error(), "Conv2d: 2 groups do not divide 3 channels in and 4 out");
    assert_null(lk_named_sequential({"a", lk_relu()}, {"b", lk_dropout(1.5)}, {"c", lk_relu()}));
    lkt_contains(lk_error(), "Dropout: p: expected a probability, found 1.5");
    assert_null(lk_transformer_encoder(lk_transformer_encoder_layer(7, 2), 2, .norm = lk_layer_norm(7)));
    lkt_contains(lk_error(), "2 heads do not divide embed_dim 7");
    freed_count = 0;
    assert_null(lk_custom_module(.forward = pass_through, .context = &freed_count, .free_context = count_free,
                                 .children = lk_children({"inner", lk_max_pool2d(2, .padding = 2)})));
    lkt_contains(lk_error(), "MaxPool2d: padding: expected at most half of the kernel 2, found 2");
    assert_int_equal(freed_count, 1);
    lk_module_free(NULL);
}

static void names_are_checked(void **state)
{
    (void)state;
    assert_null(lk_named_sequential({"a", lk_relu()}, {"a", lk_relu()}, {"b", lk_relu()}));
    lkt_contains(lk_error(), "there is already a child \"a\"");
    assert_null(lk_named_sequential({"a.b", lk_relu()}));
    lkt_contains(lk_error(), "must not contain a dot");
    lk_module *shared = lk_relu(), *first = lk_sequential(shared);
    assert_null(lk_sequential(lk_relu(), shared));
    lkt_contains(lk_error(), "is already the child \"0\" of a module: hand over lk_module_share(module)");
    lk_module_free(first);
    lk_module *twice = lk_relu();
    assert_null(lk_sequential(twice, twice));
    lk_module *holder = lk_custom_module(.type = "Holder");
    lkt_ok(
        lk_module_add_param(holder, lk_param_create("weight", lk_tensor_create(LK_F32, LK_SHAPE(2)), true)));
    lkt_fails(
        lk_module_add_param(holder, lk_param_create("weight", lk_tensor_create(LK_F32, LK_SHAPE(2)), true)),
        LK_ERR_INVALID, "Holder: there is already a parameter \"weight\"");
    lk_module_free(holder);
}

static void custom_modules(void **state)
{
    (void)state;
    freed_count = 0;
    lk_module *module =
        lk_custom_module(.type = "Mine", .forward = pass_through, .context = &freed_count,
                         .free_context = count_free, .children = lk_children({"inner", lk_linear(3, 2)}));
    lkt_not_null(module);
    assert_ptr_equal(lk_module_context(module), &freed_count);
    lkt_ok(
        lk_module_add_buffer(module, lk_param_create("seen", lk_tensor_create(LK_I64, LK_SHAPE(1)), true)));
    lkt_ok(
        lk_module_add_param(module, lk_param_create("scale", lk_tensor_create(LK_F32, LK_SHAPE(1)), true)));
    lk_param_list list;
    lkt_ok(lk_module_params(module, &list));
    assert_string_equal(list.items[0].path, "scale");
    assert_string_equal(list.items[1].path, "seen");
    assert_string_equal(list.items[2].path, "inner.weight");
    assert_false(list.items[1].param->trainable);
    lk_param_list_free(&list);
    assert_null(lk_module_clone(module));
    lkt_contains(lk_error(), "cannot be cloned");
    lk_module_free(module);
    assert_int_equal(freed_count, 1);
}

static void summary_of_a_model(void **state)
{
    (void)state;
    static const char expected[] = "Layer              Output shape      Parameters\n"
                                   "-----------------------------------------------\n"
                                   "Sequential         (2, 10)                    0\n"
                                   "  0 (Conv2d)       (2, 4, 8, 8)              40\n"
                                   "  1 (BatchNorm2d)  (2, 4, 8, 8)               8\n"
                                   "  2 (ReLU)         (2, 4, 8, 8)               0\n"
                                   "  3 (MaxPool2d)    (2, 4, 4, 4)               0\n"
                                   "  4 (Flatten)      (2, 64)                    0\n"
                                   "  5 (Linear)       (2, 10)                  650\n"
                                   "-----------------------------------------------\n"
                                   "Total: 698 parameters, 698 trainable\n";
    lk_module *model = small_model();
    char *text;
    lkt_ok(lk_module_summary(model, LK_F32, LK_SHAPE(2, 1, 8, 8), &text));
    assert_string_equal(text, expected);
    lk_text_free(text);
    lkt_fails(lk_module_summary(model, LK_F32, LK_SHAPE(2, 3, 8, 8), &text), LK_ERR_SHAPE,
              "layer 0 (Conv2d)");
    assert_null(text);
    lkt_fails(lk_module_summary(model, LK_F32, LK_SHAPE(2, 1, 12, 12), &text), LK_ERR_SHAPE,
              "layer 5 (Linear)");
    lkt_fails(lk_module_summary(model, LK_I64, LK_SHAPE(2, 1, 8, 8), &text), LK_ERR_DTYPE,
              "layer 0 (Conv2d)");
    assert_int_not_equal(lk_module_summary(NULL, LK_F32, LK_SHAPE(2), &text), LK_OK);
    lk_module_free(model);
}

/* What an input that does not fit is told: the layer, what it wanted, what it got. */
static void shape_errors_name_the_layer(void **state)
{
    (void)state;
    struct {
        lk_module *module;
        lk_shape shape;
        const char *fragment;
    } cases[] = {
        {lk_batch_norm2d(3), LK_SHAPE(2, 4, 5, 5),
         "BatchNorm2d: expected an input of 4 dimensions with 3 channels"},
        {lk_batch_norm1d(3), LK_SHAPE(3), "expected an input of 2 or 3 dimensions"},
        {lk_layer_norm(7), LK_SHAPE(2, 6), "the last axes must have the shape (7,), found (2, 6)"},
        {lk_flatten(.start_dim = 3), LK_SHAPE(2, 6), "cannot flatten axes 3 to -1 of (2, 6)"},
        {lk_unflatten(1, LK_SHAPE(2, 4)), LK_SHAPE(2, 6), "axis 1 of (2, 6) does not unflatten into (2, 4)"},
        {lk_unflatten(4, LK_SHAPE(2, 4)), LK_SHAPE(2, 6), "there is no axis 4 to unflatten in (2, 6)"},
        {lk_multihead_attention(8, 2), LK_SHAPE(3, 8), "expected 3 dimensions, the last of 8, found (3, 8)"},
        {lk_module_list(lk_relu()), LK_SHAPE(3), "the module has no forward function"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lk_graph *graph = lk_graph_create(true);
        lkt_not_null(cases[i].module);
        assert_null(lk_module_forward(cases[i].module, lk_graph_input(graph, "x", LK_F32, cases[i].shape)));
        lkt_contains(lk_error(), cases[i].fragment);
        lkt_contains(graph->error, cases[i].fragment);
        lk_graph_free(graph);
        lk_module_free(cases[i].module);
    }
    lk_graph *graph = lk_graph_create(true);
    assert_null(lk_module_forward(NULL, lk_graph_input(graph, "x", LK_F32, LK_SHAPE(2))));
    assert_int_not_equal(graph->status, LK_OK);
    assert_null(lk_module_forward(NULL, NULL));
    lk_graph_free(graph);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_conv1d(0, 1, 3));
    lkt_contains(lk_error(), "Conv1d: expected at least 1 channel");
    assert_null(lk_conv2d(1, 1, 0));
    lkt_contains(lk_error(), "Conv2d: kernel: expected at least 1, found 0");
    assert_null(lk_conv2d(1, 1, 3, .stride = -1));
    lkt_contains(lk_error(), "Conv2d: stride");
    assert_null(lk_conv3d(1, 1, 3, .padding = -1));
    lkt_contains(lk_error(), "Conv3d: padding");
    assert_null(lk_conv2d(1, 1, 3, .same_padding = true, .stride = 2));
    lkt_contains(lk_error(), "padding \"same\" needs stride 1, found 2");
    assert_null(lk_conv_transpose2d(1, 1, 3, .padding_mode = LK_PAD_REFLECT));
    lkt_contains(lk_error(), "ConvTranspose2d: only padding with zeros");
    assert_null(lk_avg_pool2d(2, .dilation = 2));
    lkt_contains(lk_error(), "AvgPool2d: dilation belongs to max pooling");
    assert_null(lk_max_pool2d(2, .no_count_include_pad = true));
    assert_null(lk_adaptive_avg_pool1d(-1));
    assert_null(lk_upsample());
    lkt_contains(lk_error(), "Upsample: expected either a size or a scale_factor, found neither");
    assert_null(lk_upsample(.size = 2, .scale_factor = 2));
    assert_null(lk_upsample(.scale_factor = -2));
    assert_null(lk_batch_norm2d(0));
    assert_null(lk_layer_norm(0));
    assert_null(lk_group_norm(3, 4));
    lkt_contains(lk_error(), "GroupNorm: 3 groups do not divide 4 channels");
    assert_null(lk_embedding(0, 4));
    assert_null(lk_embedding(4, 2, .padding_idx = 4));
    lkt_contains(lk_error(), "Embedding: padding_idx: 4 is not one of 4 rows");
    assert_null(lk_unflatten(1, LK_SHAPE(-1, -1)));
    assert_null(lk_softplus(.beta = LK_ZERO));
    assert_null(lk_function(NULL, NULL));
    assert_null(lk_multihead_attention(8, 2, .dropout = 2));
    assert_null(lk_transformer_encoder(lk_transformer_encoder_layer(8, 2), 0));
    lkt_contains(lk_error(), "TransformerEncoder: expected at least 1 layer, found 0");
}

/* The same module trains on two batch sizes and evaluates on a third; the running values move only in
 * training. */
static void one_module_in_several_graphs(void **state)
{
    (void)state;
    lk_manual_seed(3);
    lk_module *model = lk_sequential(lk_linear(4, 6), lk_batch_norm1d(6), lk_linear(6, 2));
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer);
    lkt_not_null(step);
    static const int64_t sizes[] = {8, 5, 8, 3};
    for (int i = 0; i < 4; i++) {
        lk_tensor *x = lk_rand(LK_SHAPE(sizes[i], 4)), *y = lk_tensor_create(LK_I64, LK_SHAPE(sizes[i]));
        lk_input fields[] = {{"features", x}, {"targets", y}};
        lk_tensor *before = lk_tensor_clone(lk_module_param(model, "1.running_mean")->value);
        lkt_ok(i < 3 ? lk_step_train(step, fields, 2) : lk_step_evaluate(step, fields, 2));
        bool moved = memcmp(before->data, lk_module_param(model, "1.running_mean")->value->data, 24) != 0;
        assert_int_equal(moved, i < 3);
        lk_tensor_free(before);
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    assert_true(lk_tensor_get(lk_module_param(model, "1.num_batches_tracked")->value, 0) == 3);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
}

/* A weight that does not fit in memory, anywhere in the expression; and every smaller allocation failing in
 * turn. */
static void out_of_memory(void **state)
{
    (void)state;
    for (size_t limit = 1 << 16; limit >= 8; limit /= 2) {
        lki_set_allocation_limit(limit);
        lk_module *model = lk_sequential(
            lk_relu(), lk_residual(lk_linear(8, 8), lk_batch_norm1d(8)),
            lk_transformer_encoder(lk_transformer_encoder_layer(8, 2), 2, .norm = lk_layer_norm(8)),
            lk_linear(8, 2));
        lki_set_allocation_limit(0);
        if (!model) lkt_contains(lk_error(), "out of memory");
        assert_true(model || limit < 1 << 16);
        lk_module_free(model);
    }
    assert_null(lk_linear(INT64_C(1) << 40, INT64_C(1) << 40));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_value_has_no_variance),
        cmocka_unit_test(paths_are_pytorchs),
        cmocka_unit_test(lookup_by_path),
        cmocka_unit_test(copies_are_independent),
        cmocka_unit_test(a_null_part_passes_through),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(custom_modules),
        cmocka_unit_test(summary_of_a_model),
        cmocka_unit_test(shape_errors_name_the_layer),
        cmocka_unit_test(bad_arguments),
        cmocka_unit_test(one_module_in_several_graphs),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
