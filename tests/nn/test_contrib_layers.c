/* The pools, blocks and heads of contrib.h against their definitions in PyTorch 1.13
 * (tests/oracle/nn_contrib_layers.py): first weights, values, gradients, 20 steps of training and an
 * evaluation, on every engine of this build; and what they refuse. */
#include "layer_parity.h"

#include <lockstep/contrib.h>

/* The second input of a head: the oracle's TARGET. */
static lk_value *head_forward(lk_module *module, lk_value *x)
{
    static int64_t classes[] = {2, 0, 3, 1, 2, 2};
    lk_tensor *labels = lk_tensor_from(LK_I64, LK_SHAPE(6), classes);
    lk_value *inputs[] = {x, lk_graph_constant(lk_value_graph(x), labels)}, *output;
    lk_tensor_free(labels);
    return lk_module_call(lk_module_context(module), inputs, 2, &output, 1) == LK_OK ? output : NULL;
}

/* A head that gets classes; its parameters keep their names. */
static lk_module *labelled(lk_module *head)
{
    lkt_not_null(head);
    lk_module *module = lk_custom_module(.type = "Labelled", .forward = head_forward, .context = head,
                                         .free_context = (void (*)(void *))lk_module_free);
    lkt_not_null(module);
    static const char *const names[] = {"weight", "t", "s"};
    for (int i = 0; i < 3; i++) {
        lk_param *param = lk_module_param(head, names[i]);
        if (param) lkt_ok(lk_module_add_param(module, lk_param_share(param)));
    }
    return module;
}

/* clang-format off */
#define LAYERS(X) \
    X(avg_pool, lk_global_avg_pool2d()) \
    X(max_pool, lk_global_max_pool2d()) \
    X(max_pool_ties, lk_global_max_pool2d()) \
    X(concat_pool, lk_global_concat_pool2d()) \
    X(attn_pool, lk_global_attn_pool2d(4)) \
    X(attn_pool_other, lk_global_attn_pool2d(4, .activation = lk_softsign())) \
    X(avg_attn_pool, lk_global_avg_attn_pool2d(4)) \
    X(max_attn_pool, lk_global_max_attn_pool2d(4)) \
    X(concat_attn_pool, lk_global_concat_attn_pool2d(4, .activation = lk_softsign())) \
    X(gem, lk_gem2d(.eps = 0.1)) \
    X(gem_trained, lk_gem2d(.p = 2.2, .p_trainable = true, .eps = 0.2)) \
    X(gem_infinite, lk_gem2d(.p = INFINITY, .p_trainable = true)) \
    X(cse, lk_cse(6, .r = 2)) \
    X(sse, lk_sse(4)) \
    X(scse, lk_scse(6, .r = 3)) \
    X(rms, lk_rms_norm_layer(5)) \
    X(rms_options, lk_rms_norm_layer(5, .epsilon = 0.1, .is_bias = true)) \
    X(arc, labelled(lk_arc_face(5, 4, .s = 1.3))) \
    X(arc_far, labelled(lk_arc_face(5, 4, .s = 1.3, .m = 2.5))) \
    X(sub_center, labelled(lk_sub_center_arc_face(5, 4, .k = 2, .s = 1.3, .m = 0.35))) \
    X(cos, labelled(lk_cos_face(5, 4, .s = 1.3))) \
    X(am, labelled(lk_am_softmax(5, 4, .s = 1.3))) \
    X(curricular, labelled(lk_curricular_face(5, 4, .s = 1.3))) \
    X(curricular_far, labelled(lk_curricular_face(5, 4, .s = 1.3, .m = 2.5))) \
    X(ada, labelled(lk_ada_cos(5, 4))) \
    X(ada_fixed, labelled(lk_ada_cos(5, 4, .no_dynamical_s = true))) \
    X(product, lk_arc_margin_product(5, 4)) \
    X(softmax, lk_softmax_head(5, 4)) \
    X(noise, lk_gaussian_noise(0.3))
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_module *make_##symbol(void)                                                                    \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LAYERS(X)
#undef X

static const parity_case layers[] = {
#define X(symbol, ...) {.name = #symbol, .make = make_##symbol},
    LAYERS(X)
#undef X
};

static void layer_equals_its_definition(void **state)
{
    const parity_case *test = *state;
    check_layer(test, strcmp(test->name, "noise") == 0);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_gem2d(.p = LK_ZERO));
    lkt_contains(lk_error(), "GeM2d: p: expected a number other than 0");
    assert_null(lk_gem2d(.eps = -1));
    lkt_contains(lk_error(), "GeM2d: eps");
    assert_null(lk_cse(4));
    lkt_contains(lk_error(), "cSE: r: expected 1 to in_channels, 4, found 16");
    assert_null(lk_scse(4, .r = -1));
    lkt_contains(lk_error(), "cSE: r");
    assert_null(lk_global_attn_pool2d(0, .activation = lk_tanh()));
    assert_null(lk_rms_norm_layer(0));
    lkt_contains(lk_error(), "RMSNorm: dimension");
    assert_null(lk_arc_face(0, 4));
    lkt_contains(lk_error(), "ArcFace: expected at least 1 feature in and out, found 0 and 4");
    assert_null(lk_arc_face(4, 4, .k = 2));
    lkt_contains(lk_error(), "ArcFace: k belongs to SubCenterArcFace");
    assert_null(lk_cos_face(4, 4, .no_dynamical_s = true));
    lkt_contains(lk_error(), "no_dynamical_s belongs to AdaCos");
    assert_null(lk_cos_face(4, 4, .eps = 0.1));
    lkt_contains(lk_error(), "CosFace has no eps");
    assert_null(lk_sub_center_arc_face(4, 4, .k = -1));
    lkt_contains(lk_error(), "k: expected at least 1, found -1");
    assert_null(lk_am_softmax(4, 4, .eps = 1));
    lkt_contains(lk_error(), "AMSoftmax: eps");
    assert_null(lk_curricular_face(4, 4, .s = NAN));
    lkt_contains(lk_error(), "CurricularFace: s and m");
    assert_null(lk_ada_cos(4, 2));
    lkt_contains(lk_error(), "AdaCos: expected at least 3 classes, found 2");
    assert_null(lk_ada_cos(4, 4, .s = 2));
    lkt_contains(lk_error(), "AdaCos has neither s nor m");
    assert_null(lk_softmax_head(4, 0));
    assert_null(lk_arc_margin_product(0, 4));
}

static void refuse(lk_module *module, lk_shape x, lk_shape y, const char *fragment)
{
    lk_graph *graph = lk_graph_create(true);
    lk_value *inputs[] = {lk_graph_input(graph, "x", LK_F32, x), NULL}, *output;
    int count = y.rank > 0 ? 2 : 1;
    if (count == 2) inputs[1] = lk_graph_input(graph, "y", LK_I64, y);
    lkt_not_null(module);
    assert_int_not_equal(lk_module_call(module, inputs, count, &output, 1), LK_OK);
    lkt_contains(lk_error(), fragment);
    lk_module_free(module);
    lk_graph_free(graph);
}

static void inputs_that_do_not_fit(void **state)
{
    (void)state;
    refuse(lk_global_avg_pool2d(), LK_SHAPE(2, 3, 4), lk_scalar_shape(), "expected pictures");
    refuse(lk_global_max_pool2d(), LK_SHAPE(2, 3), lk_scalar_shape(), "expected pictures");
    refuse(lk_gem2d(), LK_SHAPE(2, 3), lk_scalar_shape(), "expected pictures");
    refuse(lk_sse(3), LK_SHAPE(2, 3), lk_scalar_shape(), "expected pictures");
    refuse(lk_rms_norm_layer(4), LK_SHAPE(2, 3), lk_scalar_shape(), "expected 4 numbers on the last axis");
    refuse(lk_arc_face(4, 3), LK_SHAPE(2, 3), LK_SHAPE(2), "expected features (samples, 4), found (2, 3)");
    refuse(lk_cos_face(4, 3), LK_SHAPE(2, 4), LK_SHAPE(3), "a class for each, found (2, 4) and (3,)");
}

/* Without classes a head gives the cosines. */
static void heads_without_classes(void **state)
{
    (void)state;
    float x[] = {3, 4}, weight[] = {1, 0, 0, 2};
    lk_module *head = lk_arc_face(2, 2);
    lkt_not_null(head);
    lk_param *param = lk_module_param(head, "weight");
    memcpy(param->value->data, weight, sizeof weight);
    lk_param_changed(param);
    lk_tensor *features = lk_tensor_from(LK_F32, LK_SHAPE(1, 2), x);
    lk_step *step = lk_step(.model = head);
    lkt_not_null(step);
    lkt_ok(lk_step_evaluate(step, (lk_input[]){{"features", features}}, 1));
    const lk_tensor *cosines = lk_step_output(step, "logits");
    lkt_not_null(cosines);
    assert_float_equal((float)lk_tensor_get(cosines, 0), 0.6, 1e-6);
    assert_float_equal((float)lk_tensor_get(cosines, 1), 0.8, 1e-6);
    lk_step_free(step);
    lk_tensor_free(features);
    lk_module_free(head);
}

static lk_module *linear_of(const lkt_golden *golden, const char *name)
{
    const lk_tensor *weight = lkt_golden_get(golden, "%s/weight", name);
    lk_module *linear = lk_linear(weight->shape.dim[1], weight->shape.dim[0]);
    lkt_not_null(linear);
    lkt_ok(lk_tensor_copy(lk_module_param(linear, "weight")->value, weight));
    lkt_ok(lk_tensor_copy(lk_module_param(linear, "bias")->value, lkt_golden_get(golden, "%s/bias", name)));
    return linear;
}

/* Each column of u with its row of vh, whose signs may both be the other ones. */
static void compare_factors(const lkt_golden *golden, const char *name, lk_module *module)
{
    const lk_tensor *u = lk_module_param(module, "u")->value, *vh = lk_module_param(module, "vh")->value;
    const lk_tensor *u0 = lkt_golden_get(golden, "%s/u", name), *vh0 = lkt_golden_get(golden, "%s/vh", name);
    assert_true(lk_shape_equal(u->shape, u0->shape) && lk_shape_equal(vh->shape, vh0->shape));
    int64_t kept = u->shape.dim[1], out = u->shape.dim[0], in = vh->shape.dim[1];
    for (int64_t k = 0; k < kept; k++) {
        double sign = lk_tensor_get(u, k) * lk_tensor_get(u0, k) < 0 ? -1 : 1;
        for (int64_t i = 0; i < out; i++)
            assert_true(fabs(lk_tensor_get(u, i * kept + k) - sign * lk_tensor_get(u0, i * kept + k)) < 1e-5);
        for (int64_t j = 0; j < in; j++)
            assert_true(fabs(lk_tensor_get(vh, k * in + j) - sign * lk_tensor_get(vh0, k * in + j)) < 1e-5);
    }
}

static void factorized_linear(void **state)
{
    static const struct {
        const char *name;
        double ratio;
    } cases[] = {{"whole", 1}, {"tall", 0.5}, {"wide", 0.6}};
    lkt_golden *golden = lkt_golden_open("nn/factorized.lkg");
    (void)state;
    for (int i = 0; i < 3; i++) {
        const char *name = cases[i].name;
        lk_module *module = lk_factorized_linear(linear_of(golden, name), .dim_ratio = cases[i].ratio);
        lkt_not_null(module);
        compare_factors(golden, name, module);
        lk_step *step = lk_step(.model = module);
        lkt_not_null(step);
        lkt_ok(lk_step_evaluate(step, (lk_input[]){{"features", lkt_golden_get(golden, "%s/x", name)}}, 1));
        const lk_tensor *y = lkt_golden_get(golden, "%s/y", name);
        lkt_near(lk_step_output(step, "logits"), y, lkt_largest(y), 1e-5, name);
        lk_step_free(step);
        lk_module_free(module);
    }
    lkt_golden_free(golden);
    assert_null(lk_factorized_linear(lk_relu()));
    lkt_contains(lk_error(), "expected a Linear with a bias, found ReLU");
    assert_null(lk_factorized_linear(lk_linear(3, 3, .no_bias = true)));
    assert_null(lk_factorized_linear(lk_linear(3, 3), .dim_ratio = 1.5));
    lkt_contains(lk_error(), "dim_ratio: expected 0.333333 to 1, found 1.5");
    assert_null(lk_factorized_linear(lk_linear(3, 3), .dim_ratio = 0.2));
    assert_null(lk_gaussian_noise(-1));
    lkt_contains(lk_error(), "GaussianNoise: stddev");
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/contrib_more_layers.lkg");
    const struct CMUnitTest plain[] = {
        cmocka_unit_test(bad_arguments), cmocka_unit_test(inputs_that_do_not_fit),
        cmocka_unit_test(heads_without_classes), cmocka_unit_test(factorized_linear)};
    int failed = run_parity_cases("contrib layers", layers, (int)(sizeof layers / sizeof *layers), golden,
                                  layer_equals_its_definition);
    lkt_golden_free(golden);
    return failed + cmocka_run_group_tests(plain, NULL, NULL);
}
