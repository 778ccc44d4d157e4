/* What <lockstep/nn.h> refuses: layers, initialisers and criteria. */
#include "refusals.h"

#include <lockstep/nn.h>

#define REFUSED_LAYER(fragment, ...)     REFUSED(fragment, lk_module_free, __VA_ARGS__)
#define REFUSED_CRITERION(fragment, ...) REFUSED(fragment, lk_criterion_free, __VA_ARGS__)

static void containers(void **state)
{
    (void)state;
    REFUSED_LAYER("", lk_named_sequential({NULL, lk_relu()}));
    REFUSED_LAYER("", lk_named_sequential({"", lk_relu()}));
    REFUSED_LAYER("", lk_named_sequential({"a.b", lk_relu()}));
    REFUSED_LAYER("a", lk_named_sequential({"a", lk_relu()}, {"a", lk_relu()}));
    REFUSED_LAYER("", lk_sequential_with(NULL, -1));
    REFUSED_LAYER("", lk_sequential_with(NULL, 2));
    REFUSED_LAYER("", lk_residual_with(NULL, 2));
    REFUSED_LAYER("function", lk_function(NULL, NULL));
    lkt_all_refused();
}

static void products(void **state)
{
    (void)state;
    REFUSED_LAYER("feature", lk_linear(0, 3));
    REFUSED_LAYER("feature", lk_linear(-1, 3));
    REFUSED_LAYER("feature", lk_linear(3, 0));
    REFUSED_LAYER("channel", lk_conv2d(0, 3, 3));
    REFUSED_LAYER("channel", lk_conv2d(3, -1, 3));
    REFUSED_LAYER("kernel", lk_conv2d(3, 3, 0));
    REFUSED_LAYER("kernel", lk_conv3d(3, 3, 0, .kernels = {1, -1, 1}));
    REFUSED_LAYER("stride", lk_conv1d(3, 3, 3, .stride = -1));
    REFUSED_LAYER("stride", lk_conv2d(3, 3, 3, .strides = {1, -1}));
    REFUSED_LAYER("padding", lk_conv2d(3, 3, 3, .padding = -1));
    REFUSED_LAYER("dilation", lk_conv2d(3, 3, 3, .dilation = -1));
    REFUSED_LAYER("groups", lk_conv2d(3, 3, 3, .groups = 2));
    REFUSED_LAYER("groups", lk_conv2d(3, 3, 3, .groups = -1));
    REFUSED_LAYER("padding", lk_conv2d(3, 3, 3, .padding_mode = (lk_pad_mode)9));
    REFUSED_LAYER("stride", lk_conv2d(3, 3, 3, .same_padding = true, .stride = 2));
    REFUSED_LAYER("output_padding", lk_conv_transpose2d(3, 3, 3, .output_padding = -1));
    REFUSED_LAYER("padding", lk_conv_transpose1d(3, 3, 3, .same_padding = true));
    REFUSED_LAYER("input_size", lk_lstm(0, 4));
    REFUSED_LAYER("hidden_size", lk_gru(4, -1));
    REFUSED_LAYER("num_layers", lk_rnn(4, 4, .num_layers = -1));
    REFUSED_LAYER("dropout", lk_lstm(4, 4, .dropout = 0.5));
    REFUSED_LAYER("dropout", lk_lstm(4, 4, .dropout = NAN, .num_layers = 2));
    REFUSED_LAYER("proj_size", lk_lstm(4, 4, .proj_size = 4));
    REFUSED_LAYER("proj_size", lk_lstm(4, 4, .proj_size = -1));
    REFUSED_LAYER("proj_size", lk_gru(4, 4, .proj_size = 2));
    REFUSED_LAYER("relu", lk_lstm(4, 4, .relu = true));
    REFUSED_LAYER("returns", lk_lstm(4, 4, .returns = (lk_recurrent_returns)2));
    REFUSED_LAYER("relu", lk_gru_cell(4, 4, .relu = true));
    REFUSED_LAYER("input_size", lk_lstm_cell(0, 4));
    REFUSED_LAYER("embed_dim", lk_multihead_attention(0, 1));
    REFUSED_LAYER("heads", lk_multihead_attention(8, 0));
    REFUSED_LAYER("heads", lk_multihead_attention(8, 3));
    REFUSED_LAYER("dropout", lk_multihead_attention(8, 2, .dropout = 1.5));
    REFUSED_LAYER("dropout", lk_multihead_attention(8, 2, .dropout = NAN));
    REFUSED_LAYER("kdim", lk_multihead_attention(8, 2, .kdim = -1));
    REFUSED_LAYER("vdim", lk_multihead_attention(8, 2, .vdim = -1));
    REFUSED_LAYER("feature", lk_transformer_encoder_layer(8, 2, .dim_feedforward = -1));
    REFUSED_LAYER("dropout", lk_transformer_encoder_layer(8, 2, .dropout = -0.5));
    REFUSED_LAYER("eps", lk_transformer_encoder_layer(8, 2, .layer_norm_eps = NAN));
    REFUSED_LAYER("activation",
                  lk_transformer_encoder_layer(8, 2, .activation = (lk_transformer_activation)7));
    REFUSED_LAYER("layer", lk_transformer_encoder(lk_transformer_encoder_layer(8, 2), 0));
    lkt_all_refused();
}

static void other_layers(void **state)
{
    (void)state;
    REFUSED_LAYER("kernel", lk_max_pool2d(0));
    REFUSED_LAYER("stride", lk_max_pool2d(2, .stride = -1));
    REFUSED_LAYER("padding", lk_max_pool2d(2, .padding = -1));
    REFUSED_LAYER("padding", lk_max_pool2d(2, .padding = 2));
    REFUSED_LAYER("dilation", lk_avg_pool2d(2, .dilation = 2));
    REFUSED_LAYER("divisor_override", lk_avg_pool2d(2, .divisor_override = -1));
    REFUSED_LAYER("divisor_override", lk_max_pool2d(2, .divisor_override = 2));
    REFUSED_LAYER("output_size", lk_adaptive_avg_pool1d(-1));
    REFUSED_LAYER("output_size", lk_adaptive_avg_pool2d(0, .output_sizes = {-1, 2}));
    REFUSED_LAYER("", lk_upsample(.size = -1));
    REFUSED_LAYER("", lk_upsample());
    REFUSED_LAYER("", lk_upsample(.size = 2, .scale_factor = 2));
    REFUSED_LAYER("scale", lk_upsample(.scale_factor = -1));
    REFUSED_LAYER("mode", lk_upsample(.size = 2, .mode = (lk_upsample_mode)9));
    REFUSED_LAYER("axes", lk_upsample(.size = 2, .axes = -1));
    REFUSED_LAYER("axes", lk_upsample(.size = 2, .axes = 4));
    REFUSED_LAYER("feature", lk_batch_norm1d(0));
    REFUSED_LAYER("momentum", lk_batch_norm1d(3, .momentum = NAN));
    REFUSED_LAYER("", lk_layer_norm(0));
    REFUSED_LAYER("", lk_layer_norm(LK_SHAPE(3, -1)));
    REFUSED_LAYER("groups", lk_group_norm(0, 4));
    REFUSED_LAYER("groups", lk_group_norm(3, 4));
    REFUSED_LAYER("feature", lk_group_norm(1, 0));
    REFUSED_LAYER("alpha", lk_elu(.alpha = NAN));
    REFUSED_LAYER("beta", lk_softplus(.beta = NAN));
    REFUSED_LAYER("p", lk_dropout(.p = 1.5));
    REFUSED_LAYER("p", lk_dropout(.p = -0.5));
    REFUSED_LAYER("p", lk_dropout(.p = NAN));
    REFUSED_LAYER("", lk_embedding(0, 3));
    REFUSED_LAYER("", lk_embedding(3, 0));
    REFUSED_LAYER("padding_idx", lk_embedding(3, 2, .padding_idx = 3));
    REFUSED_LAYER("padding_idx", lk_embedding(3, 2, .padding_idx = -4));
    REFUSED_LAYER("", lk_unflatten(1, LK_SHAPE(-1, -1)));
    REFUSED_LAYER("", lk_unflatten(1, LK_SHAPE(2, -3)));
    REFUSED_LAYER("", lk_unflatten(1, lk_scalar_shape()));
    lkt_all_refused();
}

static void initialisers(void **state)
{
    (void)state;
    lk_module *model = lk_linear(2, 2);
    lk_param *weight = lk_module_param(model, "weight"), *bias = lk_module_param(model, "bias");
    REFUSED_CALL("", lk_init_uniform(weight, 1, 0));
    REFUSED_CALL("", lk_init_uniform(weight, NAN, 1));
    REFUSED_CALL("std", lk_init_normal(weight, 0, -1));
    REFUSED_CALL("std", lk_init_normal(weight, 0, NAN));
    REFUSED_CALL("std", lk_init_trunc_normal(weight, 0, -1, -2, 2));
    REFUSED_CALL("", lk_init_trunc_normal(weight, 0, 1, 2, -2));
    REFUSED_CALL("", lk_init_xavier_uniform(weight, NAN));
    REFUSED_CALL("", lk_init_xavier_normal(bias, 1));
    REFUSED_CALL("", lk_init_kaiming_uniform(weight, .a = NAN));
    REFUSED_CALL("", lk_init_kaiming_normal(weight, .nonlinearity = (lk_nonlinearity)99));
    REFUSED_CALL("", lk_init_orthogonal(bias, 1));
    lk_module_free(model);
    lkt_all_refused();
}

static void criteria(void **state)
{
    (void)state;
    lk_tensor *nan = lk_tensor_full(LK_F32, LK_SHAPE(3), NAN),
              *matrix = lk_tensor_full(LK_F32, LK_SHAPE(3, 3), 1);
    REFUSED_CRITERION("label_smoothing", lk_cross_entropy_loss(.label_smoothing = -0.1));
    REFUSED_CRITERION("label_smoothing", lk_cross_entropy_loss(.label_smoothing = 1.1));
    REFUSED_CRITERION("label_smoothing", lk_cross_entropy_loss(.label_smoothing = NAN));
    REFUSED_CRITERION("weight", lk_cross_entropy_loss(.weight = matrix));
    REFUSED_CRITERION("weight", lk_cross_entropy_loss(.weight = nan));
    REFUSED_CRITERION("reduction", lk_cross_entropy_loss(.reduction = LK_REDUCTION_BATCH_MEAN));
    REFUSED_CRITERION("reduction", lk_cross_entropy_loss(.reduction = (lk_reduction)99));
    REFUSED_CRITERION("weight", lk_nll_loss(.weight = nan));
    REFUSED_CRITERION("reduction", lk_nll_loss(.reduction = (lk_reduction)-1));
    REFUSED_CRITERION("weight", lk_bce_loss(.weight = nan));
    REFUSED_CRITERION("pos_weight", lk_bce_loss(.pos_weight = matrix));
    REFUSED_CRITERION("pos_weight", lk_bce_with_logits_loss(.pos_weight = nan));
    REFUSED_CRITERION("reduction", lk_bce_with_logits_loss(.reduction = (lk_reduction)99));
    REFUSED_CRITERION("beta", lk_mse_loss(.beta = 1));
    REFUSED_CRITERION("delta", lk_l1_loss(.delta = 1));
    REFUSED_CRITERION("beta", lk_smooth_l1_loss(.beta = -1));
    REFUSED_CRITERION("beta", lk_smooth_l1_loss(.beta = NAN));
    REFUSED_CRITERION("delta", lk_smooth_l1_loss(.delta = 1));
    REFUSED_CRITERION("delta", lk_huber_loss(.delta = -1));
    REFUSED_CRITERION("delta", lk_huber_loss(.delta = LK_ZERO));
    REFUSED_CRITERION("beta", lk_huber_loss(.beta = 1));
    REFUSED_CRITERION("reduction", lk_kl_div_loss(.reduction = (lk_reduction)99));
    REFUSED_CRITERION("function", lk_custom_criterion(.type = "Mine"));
    lkt_all_refused();
    lk_tensor_free(nan);
    lk_tensor_free(matrix);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(containers),   cmocka_unit_test(products), cmocka_unit_test(other_layers),
        cmocka_unit_test(initialisers), cmocka_unit_test(criteria),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
