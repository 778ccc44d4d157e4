/* Every layer against PyTorch 1.13: the first weights bit for bit, then forward, gradients, 20 steps of
 * training and an evaluation within 1e-5, on every engine of this build. */
#include "layer_check.h"

static lk_value *double_and_shift(lk_value *x, void *context)
{
    (void)context;
    return lk_op_add_scalar(lk_op_mul_scalar(x, 2), 1);
}

static lk_value *bool_constant(lk_graph *graph, lk_shape shape, const uint8_t *values)
{
    lk_tensor *tensor = lk_tensor_from(LK_BOOL, shape, values);
    lk_value *value = lk_graph_constant(graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

/* Queries of 5, keys and values of 4 places. */
static lk_value *masked_attention(lk_module *module, lk_value *x)
{
    uint8_t hidden[5 * 4], ignored[2 * 4] = {0};
    for (int i = 0; i < 20; i++) hidden[i] = i % 4 > i / 4;
    ignored[7] = 1;
    lk_graph *graph = lk_value_graph(x);
    return lk_multihead_attention_forward(lk_module_child(module, "attn"), lk_op_slice(x, 0, 0, 5, 1),
                                          lk_op_slice(x, 0, 5, 9, 1), lk_op_slice(x, 0, 9, 13, 1),
                                          .attn_mask = bool_constant(graph, LK_SHAPE(5, 4), hidden),
                                          .key_padding_mask = bool_constant(graph, LK_SHAPE(2, 4), ignored));
}

static lk_value *unequal_attention(lk_module *module, lk_value *x)
{
    lk_value *key = lk_op_slice(lk_op_slice(x, 0, 5, 9, 1), 2, 0, 6, 1);
    lk_value *value = lk_op_slice(lk_op_slice(x, 0, 9, 13, 1), 2, 0, 4, 1);
    return lk_multihead_attention_forward(lk_module_child(module, "attn"), lk_op_slice(x, 0, 0, 5, 1), key,
                                          value);
}

static lk_value *masked_encoder(lk_module *module, lk_value *x)
{
    float mask[16];
    for (int i = 0; i < 16; i++) mask[i] = i % 4 > i / 4 ? -INFINITY : 0;
    lk_tensor *tensor = lk_tensor_from(LK_F32, LK_SHAPE(4, 4), mask);
    lk_value *constant = lk_graph_constant(lk_value_graph(x), tensor);
    lk_tensor_free(tensor);
    return lk_transformer_encoder_forward(lk_module_child(module, "encoder"), x, constant, NULL);
}

/* clang-format off */
#define LAYERS(X) \
    X(linear, lk_linear(5, 3)) \
    X(linear_no_bias, lk_linear(5, 3, .no_bias = true)) \
    X(linear_large, lk_linear(37, 19)) \
    X(conv1d, lk_conv1d(4, 6, 3)) \
    X(conv1d_options, lk_conv1d(4, 6, 3, .stride = 2, .padding = 2, .dilation = 2, .groups = 2)) \
    X(conv1d_same, lk_conv1d(4, 2, 4, .same_padding = true)) \
    X(conv2d, lk_conv2d(4, 6, 3)) \
    X(conv2d_options, lk_conv2d(4, 6, 0, .kernels = {3, 2}, .strides = {2, 1}, .paddings = {1, 2}, .dilations = {1, 2}, .groups = 2)) \
    X(conv2d_no_bias, lk_conv2d(4, 4, 3, .padding = 1, .no_bias = true)) \
    X(conv2d_depthwise, lk_conv2d(4, 4, 3, .padding = 1, .groups = 4)) \
    X(conv2d_reflect, lk_conv2d(4, 3, 3, .padding = 2, .padding_mode = LK_PAD_REFLECT)) \
    X(conv2d_replicate, lk_conv2d(4, 3, 3, .paddings = {1, 2}, .padding_mode = LK_PAD_REPLICATE)) \
    X(conv2d_circular, lk_conv2d(4, 3, 3, .padding = 1, .padding_mode = LK_PAD_CIRCULAR)) \
    X(conv2d_unbatched, lk_conv2d(4, 3, 3)) \
    X(conv3d, lk_conv3d(4, 3, 3)) \
    X(conv3d_options, lk_conv3d(4, 4, 2, .strides = {1, 2, 2}, .padding = 1, .groups = 2)) \
    X(conv_transpose1d, lk_conv_transpose1d(4, 6, 3)) \
    X(conv_transpose1d_options, lk_conv_transpose1d(4, 6, 3, .stride = 3, .padding = 1, .output_padding = 2, .groups = 2, .dilation = 2)) \
    X(conv_transpose2d, lk_conv_transpose2d(4, 3, 3)) \
    X(conv_transpose2d_options, lk_conv_transpose2d(4, 6, 0, .kernels = {3, 2}, .stride = 2, .padding = 1, .output_paddings = {1, 0}, .groups = 2)) \
    X(conv_transpose2d_pointwise, lk_conv_transpose2d(4, 6, 1, .dilations = {2, 1}, .output_paddings = {1, 0})) \
    X(conv_transpose3d, lk_conv_transpose3d(4, 2, 2)) \
    X(conv_transpose3d_options, lk_conv_transpose3d(4, 2, 3, .stride = 2, .padding = 1, .output_padding = 1, .no_bias = true)) \
    X(max_pool1d, lk_max_pool1d(3)) \
    X(max_pool1d_options, lk_max_pool1d(3, .stride = 2, .padding = 1, .dilation = 2, .ceil_mode = true)) \
    X(max_pool2d, lk_max_pool2d(2)) \
    X(max_pool2d_options, lk_max_pool2d(0, .kernels = {3, 2}, .strides = {1, 2}, .paddings = {1, 0}, .ceil_mode = true)) \
    X(max_pool3d, lk_max_pool3d(2)) \
    X(max_pool3d_options, lk_max_pool3d(2, .padding = 1)) \
    X(avg_pool1d, lk_avg_pool1d(3)) \
    X(avg_pool1d_options, lk_avg_pool1d(3, .stride = 2, .padding = 1, .no_count_include_pad = true)) \
    X(avg_pool2d, lk_avg_pool2d(2)) \
    X(avg_pool2d_options, lk_avg_pool2d(0, .kernels = {3, 2}, .stride = 2, .padding = 1, .ceil_mode = true)) \
    X(avg_pool2d_divisor, lk_avg_pool2d(2, .divisor_override = 3)) \
    X(avg_pool3d, lk_avg_pool3d(2)) \
    X(avg_pool3d_options, lk_avg_pool3d(3, .stride = 2, .padding = 1, .no_count_include_pad = true)) \
    X(adaptive_avg_pool1d, lk_adaptive_avg_pool1d(4)) \
    X(adaptive_avg_pool2d, lk_adaptive_avg_pool2d(0, .output_sizes = {3, 0})) \
    X(adaptive_avg_pool3d, lk_adaptive_avg_pool3d(0, .output_sizes = {2, 4, 3})) \
    X(upsample_nearest, lk_upsample(.scale_factor = 2)) \
    X(upsample_nearest_size, lk_upsample(.sizes = {9, 11})) \
    X(upsample_linear, lk_upsample(.scale_factor = 1.7, .mode = LK_UPSAMPLE_LINEAR)) \
    X(upsample_bilinear, lk_upsample(.scale_factors = {2, 1.5}, .mode = LK_UPSAMPLE_LINEAR)) \
    X(upsample_bilinear_corners, lk_upsample(.sizes = {9, 4}, .mode = LK_UPSAMPLE_LINEAR, .align_corners = true)) \
    X(upsample_same_size, lk_upsample(.scale_factors = {1.1, 2}, .mode = LK_UPSAMPLE_LINEAR)) \
    X(upsample_trilinear, lk_upsample(.scale_factor = 2, .mode = LK_UPSAMPLE_LINEAR)) \
    X(batch_norm1d, lk_batch_norm1d(4)) \
    X(batch_norm1d_flat, lk_batch_norm1d(5, .eps = 1e-3, .momentum = 0.3)) \
    X(batch_norm2d, lk_batch_norm2d(4)) \
    X(batch_norm2d_no_affine, lk_batch_norm2d(4, .no_affine = true)) \
    X(batch_norm2d_no_running, lk_batch_norm2d(4, .no_track_running_stats = true)) \
    X(batch_norm3d, lk_batch_norm3d(4)) \
    X(layer_norm, lk_layer_norm(7)) \
    X(layer_norm_two, lk_layer_norm(LK_SHAPE(5, 7), .eps = 1e-3)) \
    X(layer_norm_no_affine, lk_layer_norm(7, .no_affine = true)) \
    X(group_norm, lk_group_norm(2, 4)) \
    X(group_norm_options, lk_group_norm(4, 4, .eps = 1e-3, .no_affine = true)) \
    X(dropout, lk_dropout()) \
    X(dropout_p, lk_sequential(lk_linear(7, 9), lk_dropout(0.2), lk_linear(9, 3))) \
    X(embedding, lk_embedding(7, 5)) \
    X(embedding_padding, lk_embedding(6, 3, .padding_idx = LK_ZERO)) \
    X(embedding_padding_last, lk_embedding(6, 3, .padding_idx = -1)) \
    X(flatten, lk_sequential(lk_flatten(), lk_linear(168, 4))) \
    X(flatten_options, lk_flatten(.start_dim = LK_ZERO, .end_dim = 2)) \
    X(unflatten, lk_unflatten(1, LK_SHAPE(2, 2))) \
    X(unflatten_open, lk_unflatten(-1, LK_SHAPE(2, -1))) \
    X(identity, lk_identity()) \
    X(relu, lk_relu()) \
    X(leaky_relu, lk_leaky_relu()) \
    X(leaky_relu_slope, lk_leaky_relu(.negative_slope = 0.2)) \
    X(elu, lk_elu()) \
    X(elu_alpha, lk_elu(0.5)) \
    X(gelu, lk_gelu()) \
    X(gelu_tanh, lk_gelu(.approximate_tanh = true)) \
    X(silu, lk_silu()) \
    X(tanh, lk_tanh()) \
    X(sigmoid, lk_sigmoid()) \
    X(softplus, lk_softplus()) \
    X(softplus_options, lk_softplus(.beta = 3, .threshold = 2)) \
    X(softmax, lk_softmax(1)) \
    X(log_softmax, lk_log_softmax(-1)) \
    X(sequential, lk_sequential(lk_linear(6, 8), lk_relu(), lk_sequential(lk_linear(8, 4), lk_tanh()), lk_linear(4, 2))) \
    X(named_sequential, lk_named_sequential({"net1", lk_linear(6, 8)}, {"relu", lk_relu()}, {"net2", lk_linear(8, 4)})) \
    X(residual, lk_residual(lk_linear(6, 6), lk_relu())) \
    X(function, lk_sequential(lk_linear(6, 6), lk_function(double_and_shift, NULL))) \
    X(convnet, lk_sequential(lk_conv2d(1, 4, 3, .padding = 1), lk_batch_norm2d(4), lk_relu(), lk_max_pool2d(2), lk_dropout(0.25), \
                             lk_conv2d(4, 6, 3), lk_relu(), lk_adaptive_avg_pool2d(2), lk_flatten(), lk_linear(24, 3))) \
    X(multihead_attention, lk_multihead_attention(8, 2)) \
    X(multihead_attention_batch_first, lk_multihead_attention(8, 4, .batch_first = true)) \
    X(multihead_attention_options, lk_multihead_attention(8, 2, .no_bias = true, .dropout = 0.3)) \
    X(multihead_attention_masks, lk_custom_module(.forward = masked_attention, .children = lk_children({"attn", lk_multihead_attention(8, 2)}))) \
    X(multihead_attention_kdim, lk_custom_module(.forward = unequal_attention, .children = lk_children({"attn", lk_multihead_attention(8, 2, .kdim = 6, .vdim = 4)}))) \
    X(transformer_encoder_layer, lk_transformer_encoder_layer(8, 2, .dim_feedforward = 12, .dropout = LK_ZERO)) \
    X(transformer_encoder_layer_options, lk_transformer_encoder_layer(8, 4, .dim_feedforward = 12, .activation = LK_TRANSFORMER_GELU, \
                                                                      .layer_norm_eps = 1e-4, .batch_first = true, .norm_first = true)) \
    X(transformer_encoder, lk_transformer_encoder(lk_transformer_encoder_layer(8, 2, .dim_feedforward = 12, .dropout = LK_ZERO), 2, .norm = lk_layer_norm(8))) \
    X(transformer_encoder_masked, lk_custom_module(.forward = masked_encoder, .children = lk_children({"encoder", lk_transformer_encoder( \
                                      lk_transformer_encoder_layer(8, 2, .dim_feedforward = 12, .dropout = LK_ZERO), 2)})))
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

/* Whether a layer draws random numbers in training. */
static bool drops(const char *name)
{
    static const char *const those[] = {"dropout", "dropout_p", "convnet", "multihead_attention_options",
                                        "transformer_encoder_layer_options"};
    for (size_t i = 0; i < sizeof those / sizeof *those; i++)
        if (strcmp(name, those[i]) == 0) return true;
    return false;
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/layers.lkg");
    int failed = run_parity_cases("layers", cases, CASE_COUNT, golden, layer_equals_pytorch);
    lkt_golden_free(golden);
    return failed;
}
