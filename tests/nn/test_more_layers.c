/* The layers that are compositions of a few ops, against PyTorch 1.13 (tests/oracle/nn_more.py), and what
 * they refuse. */
#include "layer_parity.h"

/* One module at two places. */
static lk_module *twice(lk_module *module, lk_module *between)
{
    return lk_sequential(lk_module_share(module), between, module);
}

/* Two layers with one weight and two biases. */
static lk_module *tied(void)
{
    lk_module *module = lk_sequential(lk_linear(6, 6), lk_tanh(), lk_linear(6, 6));
    lkt_ok(lk_module_set_param(module, "2.weight", lk_param_share(lk_module_param(module, "0.weight"))));
    return module;
}

/* clang-format off */
#define LAYERS(X) \
    X(relu6, lk_relu6()) \
    X(hardsigmoid, lk_hardsigmoid()) \
    X(hardswish, lk_hardswish()) \
    X(mish, lk_mish()) \
    X(selu, lk_selu()) \
    X(log_sigmoid, lk_log_sigmoid()) \
    X(softsign, lk_softsign()) \
    X(tanhshrink, lk_tanhshrink()) \
    X(softmin, lk_softmin(1)) \
    X(threshold, lk_threshold(0.1, -2)) \
    X(glu, lk_glu()) \
    X(glu_dim, lk_glu(.dim = LK_ZERO)) \
    X(hardtanh, lk_hardtanh()) \
    X(hardtanh_options, lk_hardtanh(.min_val = -0.5, .max_val = 0.25)) \
    X(celu, lk_celu()) \
    X(celu_options, lk_celu(.alpha = 0.7)) \
    X(hardshrink, lk_hardshrink()) \
    X(hardshrink_options, lk_hardshrink(.lambd = 0.2)) \
    X(softshrink, lk_softshrink()) \
    X(softshrink_options, lk_softshrink(.lambd = 0.2)) \
    X(prelu, lk_prelu()) \
    X(prelu_channels, lk_prelu(.num_parameters = 4, .init = 0.1)) \
    X(instance_norm1d, lk_instance_norm1d(4)) \
    X(instance_norm2d, lk_instance_norm2d(4, .affine = true)) \
    X(instance_norm3d, lk_instance_norm3d(4, .eps = 1e-3)) \
    X(instance_norm1d_unbatched, lk_instance_norm1d(4)) \
    X(dropout1d, lk_dropout1d()) \
    X(dropout1d_unbatched, lk_dropout1d()) \
    X(dropout2d, lk_dropout2d(.p = 0.3)) \
    X(dropout3d, lk_dropout3d(.p = 0.3)) \
    X(adaptive_max_pool1d, lk_adaptive_max_pool1d(4)) \
    X(adaptive_max_pool2d, lk_adaptive_max_pool2d(0, .output_sizes = {3, 4})) \
    X(adaptive_max_pool2d_whole, lk_adaptive_max_pool2d(0, .output_sizes = {7, 2})) \
    X(adaptive_max_pool2d_none, lk_adaptive_max_pool2d(0, .output_sizes = {0, 4})) \
    X(adaptive_max_pool2d_ties, lk_adaptive_max_pool2d(2)) \
    X(adaptive_max_pool3d, lk_adaptive_max_pool3d(0, .output_sizes = {2, 3, 4})) \
    X(zero_pad2d, lk_zero_pad2d(0, .paddings = {1, 2, 0, 3})) \
    X(constant_pad1d, lk_constant_pad1d(2, .value = 0.5)) \
    X(constant_pad2d, lk_constant_pad2d(0, .paddings = {1, 0, 2, 1}, .value = -1.5)) \
    X(constant_pad2d_negative, lk_constant_pad2d(0, .paddings = {-1, 2, 0, -2}, .value = 0.5)) \
    X(constant_pad3d, lk_constant_pad3d(1, .value = 0.5)) \
    X(reflection_pad1d, lk_reflection_pad1d(0, .paddings = {3, 1})) \
    X(reflection_pad2d, lk_reflection_pad2d(2)) \
    X(reflection_pad3d, lk_reflection_pad3d(0, .paddings = {1, 2, 2, 1, 0, 1})) \
    X(replication_pad1d, lk_replication_pad1d(3)) \
    X(replication_pad2d, lk_replication_pad2d(0, .paddings = {1, 2, 3, 0})) \
    X(replication_pad3d, lk_replication_pad3d(1)) \
    X(pixel_shuffle, lk_pixel_shuffle(2)) \
    X(pixel_unshuffle, lk_pixel_unshuffle(3)) \
    X(shared_linear, twice(lk_linear(6, 6), lk_tanh())) \
    X(shared_norm, twice(lk_batch_norm1d(6), lk_tanh())) \
    X(shared_nested, twice(twice(lk_linear(6, 6), lk_tanh()), lk_sigmoid())) \
    X(tied_weight, tied())
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_module *make_##symbol(void)                                                                    \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LAYERS(X)
#undef X

static const parity_case cases[] = {
#define X(symbol, ...) {.name = #symbol, .make = make_##symbol},
    LAYERS(X)
#undef X
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static bool drops(const char *name)
{
    return strncmp(name, "dropout", 7) == 0;
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_hardtanh(.min_val = 1, .max_val = 0.5));
    lkt_contains(lk_error(), "Hardtanh: max_val: expected more than min_val 1, found 0.5");
    assert_null(lk_celu(.alpha = LK_ZERO));
    lkt_contains(lk_error(), "CELU: alpha");
    assert_null(lk_hardshrink(.lambd = -1));
    lkt_contains(lk_error(), "Hardshrink: lambd: expected at least 0, found -1");
    assert_null(lk_softshrink(.lambd = NAN));
    lkt_contains(lk_error(), "Softshrink: lambd");
    assert_null(lk_threshold(NAN, 0));
    lkt_contains(lk_error(), "Threshold: threshold");
    assert_null(lk_prelu(.num_parameters = -1));
    lkt_contains(lk_error(), "PReLU: num_parameters: expected at least 1, found -1");
    assert_null(lk_glu(.dim = 0.5));
    lkt_contains(lk_error(), "GLU: dim");
    assert_null(lk_instance_norm2d(0));
    lkt_contains(lk_error(), "InstanceNorm2d: expected at least 1 feature, found 0");
    assert_null(lk_instance_norm1d(3, .eps = -1));
    lkt_contains(lk_error(), "InstanceNorm1d: eps");
    assert_null(lk_dropout3d(.p = 2));
    lkt_contains(lk_error(), "Dropout3d: p: expected a probability, found 2");
    assert_null(lk_adaptive_max_pool1d(-1));
    lkt_contains(lk_error(), "AdaptiveMaxPool1d: output_size");
    assert_null(lk_reflection_pad1d(-1));
    lkt_contains(lk_error(), "ReflectionPad1d: padding: expected at least 0, found -1");
    assert_null(lk_replication_pad2d(1, .value = 2));
    lkt_contains(lk_error(), "ReplicationPad2d: value belongs to ConstantPad2d");
    assert_null(lk_zero_pad2d(1, .value = 2));
    lkt_contains(lk_error(), "value belongs to ConstantPad2d");
    assert_null(lk_constant_pad1d(0, .paddings = {1, 1, 1}));
    lkt_contains(lk_error(), "ConstantPad1d: paddings: expected 2 numbers");
    assert_null(lk_pixel_shuffle(0));
    lkt_contains(lk_error(), "PixelShuffle: expected a factor from 1 to 1048576, found 0");
    assert_null(lk_pixel_unshuffle((int64_t)1 << 32));
    lkt_contains(lk_error(), "PixelUnshuffle: expected a factor from 1 to 1048576");
}

static void refuse(lk_module *module, lk_shape shape, const char *fragment)
{
    lk_graph *graph = lk_graph_create(true);
    lkt_not_null(module);
    assert_null(lk_module_forward(module, lk_graph_input(graph, "x", LK_F32, shape)));
    lkt_contains(lk_error(), fragment);
    lk_module_free(module);
    lk_graph_free(graph);
}

static void inputs_that_do_not_fit(void **state)
{
    (void)state;
    refuse(lk_glu(), LK_SHAPE(2, 5), "axis -1 of (2, 5) has no two halves");
    refuse(lk_prelu(.num_parameters = 3), LK_SHAPE(2, 5), "expected 3 channels on axis 1, found (2, 5)");
    refuse(lk_instance_norm2d(3), LK_SHAPE(2, 4, 5, 5), "4 dimensions with 3 channels, found (2, 4, 5, 5)");
    refuse(lk_instance_norm1d(3), LK_SHAPE(2, 3, 1), "more than 1 value per channel");
    refuse(lk_dropout2d(), LK_SHAPE(2, 3), "expected an input of 4 dimensions, found (2, 3)");
    refuse(lk_adaptive_max_pool2d(2), LK_SHAPE(2, 3), "expected an input of 4 dimensions, found (2, 3)");
    refuse(lk_zero_pad2d(1), LK_SHAPE(2, 3), "expected an input of 3 or 4 dimensions, found (2, 3)");
    refuse(lk_reflection_pad1d(5), LK_SHAPE(2, 3, 4), "pad");
    refuse(lk_constant_pad1d(0, .paddings = {0, -5}), LK_SHAPE(2, 3, 3), "axis 2 of 3 places cannot lose 5");
    refuse(lk_pixel_shuffle(2), LK_SHAPE(2, 3, 4, 4), "C divisible by 4, found (2, 3, 4, 4)");
    refuse(lk_pixel_unshuffle(3), LK_SHAPE(2, 3, 4, 4), "H and W divisible by 3");
}

/* A NaN must not disappear in a clamp: the run would not see that it has diverged. */
static void nan_stays_nan(void **state)
{
    (void)state;
    lk_module *modules[] = {lk_relu6(),      lk_hardsigmoid(), lk_hardswish(),     lk_hardtanh(),
                            lk_hardshrink(), lk_softshrink(),  lk_threshold(0, 1), lk_prelu(),
                            lk_mish(),       lk_celu()};
    const float x[] = {NAN, 1};
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        lk_step *step = lk_step(.model = modules[i]);
        lk_tensor *input = lk_tensor_from(LK_F32, LK_SHAPE(1, 2), x);
        lk_input fields[] = {{"features", input}};
        lkt_not_null(step);
        lkt_ok(lk_step_evaluate(step, fields, 1));
        const lk_tensor *y = lk_step_output(step, "logits");
        lkt_not_null(y);
        assert_true(isnan(lk_tensor_get(y, 0)));
        assert_false(isnan(lk_tensor_get(y, 1)));
        lk_step_free(step);
        lk_tensor_free(input);
        lk_module_free(modules[i]);
    }
}

static void layer_equals_pytorch(void **state)
{
    const parity_case *test = *state;
    check_layer(test, drops(test->name));
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/more_layers.lkg");
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(inputs_that_do_not_fit),
                                       cmocka_unit_test(nan_stays_nan)};
    int failed = run_parity_cases("more layers", cases, CASE_COUNT, golden, layer_equals_pytorch);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
