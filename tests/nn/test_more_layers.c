/* The layers that are compositions of a few ops, against PyTorch 1.13 (tests/oracle/nn_more.py), and what
 * they refuse. */
#include "layer_parity.h"

#include <lockstep/contrib.h>

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

/* A module of two inputs, which are the first and the second half of the first axis; the widths of 0 are
 * whole. */
typedef struct halves {
    int64_t widths[2];
} halves;

static lk_value *halves_forward(lk_module *module, lk_value *x)
{
    const halves *own = lk_module_context(module);
    int64_t count = lk_value_shape(x).dim[0] / 2;
    lk_value *y, *parts[2];
    for (int i = 0; i < 2; i++) {
        parts[i] = lk_op_slice(x, 0, i * count, (i + 1) * count, 1);
        if (own->widths[i]) parts[i] = lk_op_slice(parts[i], -1, 0, own->widths[i], 1);
    }
    return lk_module_call(lk_module_child(module, "inner"), parts, 2, &y, 1) ? NULL : y;
}

static lk_module *halves_of(lk_module *inner, int64_t first, int64_t second)
{
    halves *own = malloc(sizeof *own);
    *own = (halves){{first, second}};
    return lk_custom_module(.type = "Halves", .forward = halves_forward, .context = own, .free_context = free,
                            .children = lk_children({"inner", inner}));
}

/* Indices with offsets: rows 0 and 1 of the input. */
static lk_value *bag_forward(lk_module *module, lk_value *x)
{
    const halves *own = lk_module_context(module);
    lk_value *y, *index = lk_op_squeeze(lk_op_slice(x, 0, 0, 1, 1), 0);
    lk_value *offsets = lk_op_slice(lk_op_squeeze(lk_op_slice(x, 0, 1, 2, 1), 0), 0, 0, own->widths[0], 1);
    return lk_module_call(lk_module_child(module, "inner"), LK_VALUES(index, offsets), &y, 1) ? NULL : y;
}

static lk_module *bag_of(int64_t bags, lk_module *inner)
{
    halves *own = malloc(sizeof *own);
    *own = (halves){{bags}};
    return lk_custom_module(.type = "Bag", .forward = bag_forward, .context = own, .free_context = free,
                            .children = lk_children({"inner", inner}));
}

static lk_value *weighted_bag_forward(lk_module *module, lk_value *x)
{
    lk_value *y, *shares = lk_graph_param(lk_value_graph(x), lk_module_param(module, "shares"));
    return lk_module_call(lk_module_child(module, "inner"), LK_VALUES(x, NULL, shares), &y, 1) ? NULL : y;
}

static lk_module *weighted_bag(void)
{
    lk_module *module =
        lk_custom_module(.type = "WeightedBag", .forward = weighted_bag_forward,
                         .children = lk_children(
                             {"inner", lk_embedding_bag(7, 3, .mode = LK_BAG_SUM, .padding_idx = 2)}));
    lk_tensor *shares = lk_tensor_create(LK_F32, LK_SHAPE(3, 4));
    for (int i = 0; i < 12; i++) lk_tensor_set(shares, i, 0.5);
    lkt_ok(lk_module_add_param(module, lk_param_create("shares", shares, true)));
    return module;
}

/* What RReLU is in evaluation: in training it draws other numbers than PyTorch. */
static lk_value *evaluated_forward(lk_module *module, lk_value *x)
{
    if (!lk_graph_is_training(lk_value_graph(x)))
        return lk_module_forward(lk_module_child(module, "inner"), x);
    return lk_op_leaky_relu(x, 0.3);
}

static lk_module *evaluated(lk_module *inner)
{
    return lk_custom_module(.type = "Evaluated", .forward = evaluated_forward,
                            .children = lk_children({"inner", inner}));
}

/* clang-format off */
#define LAYERS(X) \
    X(unfold, lk_unfold(3)) \
    X(unfold_options, lk_unfold(0, .kernels = {3, 2}, .dilations = {1, 2}, .paddings = {1, 0}, .strides = {2, 1})) \
    X(unfold_single, lk_unfold(2, .padding = 1)) \
    X(fold, lk_fold(0, 2, .output_sizes = {4, 5})) \
    X(fold_options, lk_fold(0, 0, .output_sizes = {5, 6}, .kernels = {3, 2}, .dilations = {1, 2}, .paddings = {1, 1}, .strides = {2, 1})) \
    X(fold_single, lk_fold(4, 2, .stride = 2)) \
    X(channel_shuffle, lk_channel_shuffle(3)) \
    X(softmax2d, lk_softmax2d()) \
    X(local_response_norm, lk_local_response_norm(3)) \
    X(local_response_norm_options, lk_local_response_norm(2, .alpha = 0.5, .beta = 0.6, .k = 2)) \
    X(lp_pool1d, lk_lp_pool1d(2, 3)) \
    X(lp_pool2d, lk_lp_pool2d(2, 2)) \
    X(lp_pool2d_options, lk_lp_pool2d(4, 0, .kernels = {3, 2}, .strides = {2, 1}, .ceil_mode = true)) \
    X(upsampling_nearest2d, lk_upsample(.scale_factor = 2, .axes = 2)) \
    X(upsampling_bilinear2d, lk_upsample(.sizes = {9, 11}, .mode = LK_UPSAMPLE_LINEAR, .align_corners = true, .axes = 2)) \
    X(upsample_bicubic, lk_upsample(.scale_factors = {1.7, 2}, .mode = LK_UPSAMPLE_BICUBIC)) \
    X(upsample_bicubic_size, lk_upsample(.sizes = {3, 11}, .mode = LK_UPSAMPLE_BICUBIC, .align_corners = true)) \
    X(upsample_bicubic_smaller, lk_upsample(.sizes = {3, 4}, .mode = LK_UPSAMPLE_BICUBIC)) \
    X(upsample_nearest_exact, lk_upsample(.scale_factor = 1.7, .mode = LK_UPSAMPLE_NEAREST_EXACT)) \
    X(upsample_nearest_exact_size, lk_upsample(.sizes = {3, 4, 9}, .mode = LK_UPSAMPLE_NEAREST_EXACT)) \
    X(alpha_dropout, lk_alpha_dropout()) \
    X(alpha_dropout_p, lk_alpha_dropout(.p = 0.2)) \
    X(feature_alpha_dropout, lk_feature_alpha_dropout(.p = 0.3)) \
    X(rrelu, evaluated(lk_rrelu(.lower = 0.1, .upper = 0.5))) \
    X(cosine_similarity, halves_of(lk_cosine_similarity(), 0, 0)) \
    X(cosine_similarity_dim, halves_of(lk_cosine_similarity(.dim = -2, .eps = 1e-3), 0, 0)) \
    X(pairwise_distance, halves_of(lk_pairwise_distance(), 0, 0)) \
    X(pairwise_distance_options, halves_of(lk_pairwise_distance(.p = 1, .eps = 1e-2, .keepdim = true), 0, 0)) \
    X(bilinear, halves_of(lk_bilinear(5, 3, 4), 5, 3)) \
    X(bilinear_no_bias, halves_of(lk_bilinear(4, 5, 2, .no_bias = true), 4, 5)) \
    X(embedding_bag, lk_embedding_bag(7, 3)) \
    X(embedding_bag_sum, lk_embedding_bag(7, 3, .mode = LK_BAG_SUM)) \
    X(embedding_bag_max, lk_embedding_bag(7, 3, .mode = LK_BAG_MAX, .padding_idx = 2)) \
    X(embedding_bag_padding, lk_embedding_bag(7, 3, .padding_idx = 2)) \
    X(embedding_bag_frequency, lk_embedding_bag(7, 3, .scale_grad_by_freq = true)) \
    X(embedding_bag_offsets, bag_of(4, lk_embedding_bag(7, 3))) \
    X(embedding_bag_offsets_sum, bag_of(3, lk_embedding_bag(7, 3, .mode = LK_BAG_SUM, .padding_idx = 2))) \
    X(embedding_bag_offsets_max, bag_of(4, lk_embedding_bag(7, 3, .mode = LK_BAG_MAX))) \
    X(embedding_bag_last_offset, bag_of(4, lk_embedding_bag(7, 3, .include_last_offset = true))) \
    X(embedding_bag_weights, weighted_bag()) \
    X(embedding_frequency, lk_embedding(7, 5, .scale_grad_by_freq = true)) \
    X(embedding_frequency_padding, lk_embedding(7, 5, .padding_idx = 2, .scale_grad_by_freq = true)) \
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
    X(instance_norm1d_running, lk_instance_norm1d(4, .track_running_stats = true)) \
    X(instance_norm2d_running, lk_instance_norm2d(4, .momentum = 0.3, .affine = true, .track_running_stats = true)) \
    X(batch_norm2d_cumulative, lk_batch_norm2d(4, .cumulative = true)) \
    X(batch_norm1d_cumulative, lk_batch_norm1d(6, .cumulative = true, .no_affine = true)) \
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
    return strstr(name, "dropout") != NULL;
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
    assert_null(lk_instance_norm1d(3, .momentum = 0.3));
    lkt_contains(lk_error(), "InstanceNorm1d: momentum is for track_running_stats");
    assert_null(lk_batch_norm1d(3, .momentum = 0.3, .cumulative = true));
    lkt_contains(lk_error(), "BatchNorm1d: cumulative stands instead of a momentum");
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
    assert_null(lk_unfold(0));
    lkt_contains(lk_error(), "Unfold: kernel_size: expected at least 1, found 0");
    assert_null(lk_unfold(2, .output_sizes = {4}));
    lkt_contains(lk_error(), "Unfold: output_sizes belongs to Fold");
    assert_null(lk_fold(0, 2));
    lkt_contains(lk_error(), "Fold: output_size: expected at least 1, found 0");
    assert_null(lk_channel_shuffle(0));
    lkt_contains(lk_error(), "ChannelShuffle: groups: expected at least 1, found 0");
    assert_null(lk_local_response_norm(0));
    lkt_contains(lk_error(), "LocalResponseNorm: size: expected at least 1, found 0");
    assert_null(lk_local_response_norm(2, .beta = NAN));
    lkt_contains(lk_error(), "LocalResponseNorm: alpha, beta, k: expected numbers");
    assert_null(lk_lp_pool1d(0, 2));
    lkt_contains(lk_error(), "LPPool1d: norm_type: expected a number other than 0, found 0");
    assert_null(lk_lp_pool2d(2, 0));
    lkt_contains(lk_error(), "LPPool2d: kernel_size: expected at least 1, found 0");
    assert_null(lk_alpha_dropout(.p = 2));
    lkt_contains(lk_error(), "AlphaDropout: p: expected a probability, found 2");
    assert_null(lk_rrelu(.lower = 0.5));
    lkt_contains(lk_error(), "RReLU: expected lower to be at most upper, found 0.5");
    assert_null(lk_cosine_similarity(.eps = -1));
    lkt_contains(lk_error(), "CosineSimilarity: eps: expected 0 or more, found -1");
    assert_null(lk_cosine_similarity(.keepdim = true));
    lkt_contains(lk_error(), "p and keepdim belong to PairwiseDistance");
    assert_null(lk_pairwise_distance(.p = -1));
    lkt_contains(lk_error(), "PairwiseDistance: p: expected 0 or more, found -1");
    assert_null(lk_pairwise_distance(.dim = 1));
    lkt_contains(lk_error(), "dim belongs to CosineSimilarity");
    assert_null(lk_bilinear(2, 0, 3));
    lkt_contains(lk_error(), "Bilinear: expected at least 1 feature in and out, found 2, 0 and 3");
    assert_null(lk_embedding_bag(0, 3));
    lkt_contains(lk_error(), "EmbeddingBag: expected at least 1 row and 1 column, found 0 and 3");
    assert_null(lk_embedding_bag(4, 3, .padding_idx = 4));
    lkt_contains(lk_error(), "EmbeddingBag: padding_idx: 4 is not one of 4 rows");
    assert_null(lk_embedding_bag(4, 3, .mode = LK_BAG_MAX, .scale_grad_by_freq = true));
    lkt_contains(lk_error(), "scale_grad_by_freq: not with the mode max");
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
    refuse(lk_unfold(5), LK_SHAPE(2, 3, 4, 4), "no patch fits into an input of (2, 3, 4, 4)");
    refuse(lk_unfold(2), LK_SHAPE(4, 4), "expected an input of 4 dimensions");
    refuse(lk_fold(4, 2), LK_SHAPE(2, 8, 8),
           "expected (N, C x 4, 9) for a picture of 4 x 4, found (2, 8, 8)");
    refuse(lk_channel_shuffle(2), LK_SHAPE(2, 3, 4), "C divisible by 2, found (2, 3, 4)");
    refuse(lk_upsample(.scale_factor = 2, .mode = LK_UPSAMPLE_BICUBIC), LK_SHAPE(2, 3, 4),
           "bicubic: input (2, 3, 4): expected 4 dimensions");
    refuse(lk_softmax2d(), LK_SHAPE(2, 3), "expected an input of 3 or 4 dimensions, found (2, 3)");
    refuse(lk_local_response_norm(2), LK_SHAPE(2, 3), "expected an input of 3 or more dimensions");
    refuse(lk_feature_alpha_dropout(), LK_SHAPE(5), "expected an input of 2 or more dimensions");
    refuse(halves_of(lk_cosine_similarity(), 2, 3), LK_SHAPE(2, 3), "(1, 2) and (1, 3) do not broadcast");
    refuse(halves_of(lk_cosine_similarity(.dim = 2), 0, 0), LK_SHAPE(2, 3), "dim: (1, 3) has no axis 2");
    refuse(halves_of(lk_bilinear(3, 3, 2), 2, 3), LK_SHAPE(2, 3), "expected inputs (..., 3) and (..., 3)");
    refuse(lk_bilinear(3, 3, 2), LK_SHAPE(2, 3), "Bilinear takes 2 values, found 1");
    refuse(lk_pixel_shuffle(2), LK_SHAPE(2, 3, 4, 4), "C divisible by 4, found (2, 3, 4, 4)");
    refuse(lk_pixel_unshuffle(3), LK_SHAPE(2, 3, 4, 4), "H and W divisible by 3");
}

static void check_bags_are_refused(lk_module *bag, int rank, bool has_offsets, bool has_weights,
                                   const char *fragment)
{
    lk_graph *graph = lk_graph_create(true);
    lk_shape shape = rank == 1 ? LK_SHAPE(6) : LK_SHAPE(2, 3);
    lk_value *y, *index = lk_graph_input(graph, "x", LK_I64, shape);
    lk_value *offsets = has_offsets ? lk_graph_input(graph, "o", LK_I64, LK_SHAPE(3)) : NULL;
    lk_value *weights = has_weights ? lk_graph_input(graph, "w", LK_F32, LK_SHAPE(6)) : NULL;
    lkt_not_null(bag);
    assert_int_not_equal(lk_module_call(bag, LK_VALUES(index, offsets, weights), &y, 1), LK_OK);
    lkt_contains(lk_error(), fragment);
    lk_module_free(bag);
    lk_graph_free(graph);
}

static void bags_that_do_not_fit(void **state)
{
    (void)state;
    check_bags_are_refused(lk_embedding_bag(4, 2), 1, false, false, "expected offsets beside");
    check_bags_are_refused(lk_embedding_bag(4, 2), 2, true, false, "offsets are for an input of 1 dimension");
    check_bags_are_refused(lk_embedding_bag(4, 2, .include_last_offset = true), 2, false, false,
                           "include_last_offset is for an input of 1 dimension");
    check_bags_are_refused(lk_embedding_bag(4, 2), 1, true, true, "per_sample_weights are for the mode sum");
    check_bags_are_refused(lk_embedding_bag(4, 2, .mode = LK_BAG_SUM), 2, false, true,
                           "per_sample_weights: expected one per index");
}

/* The slopes of RReLU in training lie where they should, and are drawn for each element. */
static void random_slopes(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    lk_tensor *input = lk_tensor_create(LK_F32, LK_SHAPE(1, COUNT));
    for (int i = 0; i < COUNT; i++) lk_tensor_set(input, i, i % 2 ? -2 : 3);
    lk_module *model = lk_sequential(lk_prelu(.init = 1), lk_rrelu(.lower = 0.2, .upper = 0.4));
    lk_criterion *criterion = lk_mean_output_loss();
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer);
    lk_input fields[] = {{"features", input}, {"targets", input}};
    lkt_not_null(step);
    lkt_ok(lk_step_begin(step, fields, 2, true));
    lkt_ok(lk_step_forward(step));
    const lk_tensor *y = lk_step_output(step, "logits");
    double sum = 0, low = 1, high = 0;
    for (int i = 0; i < COUNT; i++) {
        double slope = lk_tensor_get(y, i) / -2;
        if (i % 2 == 0) assert_true(lk_tensor_get(y, i) == 3);
        if (i % 2 == 0) continue;
        sum += slope;
        low = fmin(low, slope);
        high = fmax(high, slope);
    }
    assert_true(low >= 0.2 && high <= 0.4 && high - low > 0.19);
    assert_true(fabs(sum / (COUNT / 2) - 0.3) < 0.01);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    lk_tensor_free(input);
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
                                       cmocka_unit_test(bags_that_do_not_fit),
                                       cmocka_unit_test(random_slopes), cmocka_unit_test(nan_stays_nan)};
    int failed = run_parity_cases("more layers", cases, CASE_COUNT, golden, layer_equals_pytorch);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
