/* The losses of contrib.h that score regions, embeddings, recommendations and regressions, against their
 * definitions: value, gradients and 20 steps of training, on every engine of this build. */
#define TOLERANCE 1e-6
#include "loss_parity.h"

#include <lockstep/contrib.h>

/* clang-format off */
#define LOSSES(X) \
    X(dice, lk_sigmoid, lk_dice_loss()) \
    X(dice_micro, lk_sigmoid, lk_dice_loss(.mode = LK_REGION_MICRO)) \
    X(dice_weighted, lk_sigmoid, lk_dice_loss(.mode = LK_REGION_WEIGHTED, .eps = 0.5, \
        .weights = (const double[]){0.2, 0.5, 0.3}, .weight_count = 3)) \
    X(dice_last_axis, lk_sigmoid, lk_dice_loss(.class_dim = -1)) \
    X(dice_empty_class, gate, lk_dice_loss()) \
    X(dice_one_number, lk_sigmoid, lk_dice_loss()) \
    X(smoothing_dice, lk_sigmoid, lk_smoothing_dice_loss()) \
    X(smoothing_dice_micro, lk_sigmoid, lk_smoothing_dice_loss(.mode = LK_REGION_MICRO)) \
    X(iou, lk_sigmoid, lk_iou_loss()) \
    X(iou_empty_class, gate, lk_iou_loss(.mode = LK_REGION_WEIGHTED, \
        .weights = (const double[]){1, 2, 0.5}, .weight_count = 3)) \
    X(trevsky, lk_sigmoid, lk_trevsky_loss(.alpha = 0.3)) \
    X(trevsky_options, lk_sigmoid, lk_trevsky_loss(.alpha = 0.3, .beta = 0.4, .eps = 0.1, .mode = LK_REGION_MICRO)) \
    X(focal_trevsky, lk_sigmoid, lk_focal_trevsky_loss(.alpha = 0.3)) \
    X(focal_trevsky_options, lk_sigmoid, lk_focal_trevsky_loss(.alpha = 0.2, .beta = 0.9, .gamma = 2, \
        .mode = LK_REGION_MICRO)) \
    X(focal_binary, lk_identity, lk_focal_loss_binary()) \
    X(focal_binary_options, lk_identity, lk_focal_loss_binary(.gamma = 1.5, .no_alpha = true, \
        .reduction = LK_REDUCTION_NONE)) \
    X(focal_binary_ignore, lk_identity, lk_focal_loss_binary(.alpha = 0.75, .has_ignore = true, .ignore = 2, \
        .reduction = LK_REDUCTION_SUM)) \
    X(focal_binary_reduced, lk_identity, lk_focal_loss_binary(.reduced = true)) \
    X(focal_all_ignored, lk_identity, lk_focal_loss_binary(.has_ignore = true, .ignore = 1)) \
    X(focal_multi_class, lk_identity, lk_focal_loss_multi_class()) \
    X(focal_multi_class_ignore, lk_identity, lk_focal_loss_multi_class(.gamma = LK_ZERO, .has_ignore = true, \
        .ignore = -1)) \
    X(focal_multi_class_reduced, lk_identity, lk_focal_loss_multi_class(.reduced = true, .threshold = 0.3, \
        .reduction = LK_REDUCTION_NONE)) \
    X(lovasz_binary, lk_identity, lk_lovasz_loss_binary()) \
    X(lovasz_binary_per_image, lk_identity, lk_lovasz_loss_binary(.per_image = true)) \
    X(lovasz_binary_ignore, lk_identity, lk_lovasz_loss_binary(.per_image = true, .has_ignore = true, .ignore = 255)) \
    X(lovasz_binary_one, lk_identity, lk_lovasz_loss_binary()) \
    X(lovasz_binary_none, lk_identity, lk_lovasz_loss_binary()) \
    X(lovasz_binary_ties, rounded, lk_lovasz_loss_binary()) \
    X(lovasz_multi_label, lk_identity, lk_lovasz_loss_multi_label()) \
    X(lovasz_multi_label_per_image, lk_identity, lk_lovasz_loss_multi_label(.per_image = true)) \
    X(lovasz_multi_class, softmax, lk_lovasz_loss_multi_class()) \
    X(lovasz_multi_class_per_image, softmax, lk_lovasz_loss_multi_class(.per_image = true, .has_ignore = true, \
        .ignore = 1)) \
    X(lovasz_multi_class_sigmoid, lk_sigmoid, lk_lovasz_loss_multi_class()) \
    X(lovasz_multi_class_none, softmax, lk_lovasz_loss_multi_class(.has_ignore = true, .ignore = 2)) \
    X(nt_xent, lk_identity, lk_nt_xent_loss(.tau = 0.5)) \
    X(nt_xent_none, lk_identity, lk_nt_xent_loss(.tau = 0.1, .reduction = LK_REDUCTION_NONE)) \
    X(nt_xent_two, lk_identity, lk_nt_xent_loss(.tau = 0.5, .reduction = LK_REDUCTION_SUM)) \
    X(supervised_contrastive, lk_identity, lk_supervised_contrastive_loss(.tau = 0.5)) \
    X(supervised_contrastive_out, lk_identity, lk_supervised_contrastive_loss(.tau = 0.2, .outside = true, \
        .reduction = LK_REDUCTION_NONE)) \
    X(supervised_contrastive_alone, lk_identity, lk_supervised_contrastive_loss(.tau = 0.5)) \
    X(barlow_twins, lk_identity, lk_barlow_twins_loss()) \
    X(barlow_twins_options, lk_identity, lk_barlow_twins_loss(.offdiag_lambda = 0.01, .eps = 0.5)) \
    X(circle, unit, lk_circle_loss(.margin = 0.25, .gamma = 32)) \
    X(circle_one_class, unit, lk_circle_loss(.margin = 0.25, .gamma = 8)) \
    X(contrastive_distance, lk_sigmoid, lk_contrastive_distance_loss()) \
    X(contrastive_distance_options, lk_sigmoid, lk_contrastive_distance_loss(.margin = 0.4, \
        .reduction = LK_REDUCTION_SUM)) \
    X(contrastive_pairwise, lk_identity, lk_contrastive_pairwise_embedding_loss()) \
    X(triplet_pairwise, lk_identity, lk_triplet_pairwise_embedding_loss()) \
    X(triplet_pairwise_options, lk_identity, lk_triplet_pairwise_embedding_loss(.margin = 1.5, \
        .reduction = LK_REDUCTION_SUM)) \
    X(margin, lk_identity, lk_embedding_margin_loss()) \
    X(margin_options, lk_identity, lk_embedding_margin_loss(.alpha = 0.5, .beta = 0.7, \
        .skip_labels = (const int64_t[]){0, 2}, .skip_label_count = 2)) \
    X(bpr, lk_identity, lk_bpr_loss()) \
    X(bpr_options, lk_identity, lk_bpr_loss(.gamma = 0.1)) \
    X(logistic, lk_identity, lk_logistic_loss()) \
    X(hinge, lk_identity, lk_hinge_loss()) \
    X(adaptive_hinge, lk_identity, lk_adaptive_hinge_loss()) \
    X(warp, seeded, lk_warp_loss()) \
    X(warp_trials, seeded, lk_warp_loss(.max_num_trials = 2)) \
    X(huber_v0, lk_identity, lk_huber_loss_v0()) \
    X(huber_v0_options, lk_identity, lk_huber_loss_v0(.clip_delta = 0.3, .reduction = LK_REDUCTION_SUM)) \
    X(quantile, lk_identity, lk_quantile_regression_loss()) \
    X(quantile_options, lk_identity, lk_quantile_regression_loss(.num_atoms = 4, .clip_delta = 0.5)) \
    X(wing, lk_identity, lk_wing_loss()) \
    X(wing_options, lk_identity, lk_wing_loss(.width = 0.7, .curvature = 2, .reduction = LK_REDUCTION_SUM)) \
    X(r_square, lk_identity, lk_r_square_loss()) \
    X(naive_cross_entropy, lk_identity, lk_naive_cross_entropy_loss()) \
    X(naive_cross_entropy_sum, lk_identity, lk_naive_cross_entropy_loss(.no_size_average = true)) \
    X(symmetric_cross_entropy, softmax, lk_symmetric_cross_entropy_loss()) \
    X(symmetric_cross_entropy_options, softmax, lk_symmetric_cross_entropy_loss(.alpha = 0.5, .beta = 2)) \
    X(mean_output, lk_identity, lk_mean_output_loss())
/* clang-format on */

/* Class 1 is 0 everywhere, also in the prediction. */
static lk_value *gate_forward(lk_module *module, lk_value *x)
{
    static const float kept[] = {1, 0, 1};
    (void)module;
    lk_tensor *mask = lk_tensor_create(LK_F32, LK_SHAPE(1, 3, 1, 1));
    memcpy(mask->data, kept, sizeof kept);
    lk_value *y = lk_op_mul(lk_op_sigmoid(x), lk_graph_constant(lk_value_graph(x), mask));
    lk_tensor_free(mask);
    return y;
}

static lk_module *gate(void)
{
    return lk_custom_module(.type = "Gate", .forward = gate_forward);
}

static lk_value *round_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_add(x, lk_op_detach(lk_op_sub(lk_op_round(x), x)));
}

static lk_module *rounded(void)
{
    return lk_custom_module(.type = "Rounded", .forward = round_forward);
}

static lk_module *softmax(void)
{
    return lk_softmax(1);
}

static lk_module *unit(void)
{
    return lk_normalize_layer();
}

/* The first batch draws what torch.manual_seed(7) makes PyTorch draw. */
static lk_module *seeded(void)
{
    lk_manual_seed(7);
    return lk_identity();
}

#define X(symbol, before, ...)                                                                               \
    static lk_module *before_##symbol(void)                                                                  \
    {                                                                                                        \
        return before();                                                                                     \
    }                                                                                                        \
    static lk_criterion *make_##symbol(void)                                                                 \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LOSSES(X)
#undef X

static const parity_case losses[] = {
#define X(symbol, before, ...) {.name = #symbol, .make = before_##symbol, .criterion = make_##symbol},
    LOSSES(X)
#undef X
};

static void loss_equals_its_definition(void **state)
{
    check_loss(*state);
}

#define REFUSES(call, text)                                                                                  \
    do {                                                                                                     \
        assert_null(call);                                                                                   \
        lkt_contains(lk_error(), text);                                                                      \
    } while (0)

static void bad_arguments(void **state)
{
    (void)state;
    REFUSES(lk_dice_loss(.mode = (lk_region_mode)5), "mode: expected one of lk_region_mode, found 5");
    REFUSES(lk_dice_loss(.mode = LK_REGION_WEIGHTED), "DiceLoss: weights: mode weighted needs");
    REFUSES(lk_iou_loss(.eps = -1), "IoULoss: eps: expected 0 or more");
    REFUSES(lk_iou_loss(.alpha = 0.5), "alpha and beta belong to TrevskyLoss");
    REFUSES(lk_trevsky_loss(), "TrevskyLoss: alpha: expected a number between 0 and 1");
    REFUSES(lk_trevsky_loss(.alpha = 0.5, .beta = 1), "beta: expected a number between 0 and 1");
    REFUSES(lk_trevsky_loss(.alpha = 0.5, .gamma = 1), "gamma belongs to FocalTrevskyLoss");
    REFUSES(lk_focal_trevsky_loss(.alpha = 0.5, .gamma = -1), "gamma: expected more than 0");
    REFUSES(lk_focal_loss_binary(.gamma = -1), "FocalLossBinary: gamma: expected 0 or more");
    REFUSES(lk_focal_loss_binary(.alpha = 2), "alpha: expected 0 to 1");
    REFUSES(lk_focal_loss_binary(.reduced = true, .alpha = 0.5), "alpha: the reduced loss has none");
    REFUSES(lk_focal_loss_binary(.threshold = 0.5), "only the reduced loss has one");
    REFUSES(lk_focal_loss_multi_class(.has_ignore = true, .reduction = LK_REDUCTION_NONE),
            "ignore: needs reduction mean or sum");
    REFUSES(lk_nt_xent_loss(), "NTXentLoss: tau: expected more than 0");
    REFUSES(lk_nt_xent_loss(.tau = 1, .margin = 1), "NTXentLoss: it has no margin");
    REFUSES(lk_nt_xent_loss(.tau = 1, .reduction = LK_REDUCTION_BATCH_MEAN), "expected mean, sum or none");
    REFUSES(lk_barlow_twins_loss(.tau = 1), "BarlowTwinsLoss: it has no tau");
    REFUSES(lk_circle_loss(.gamma = 2), "CircleLoss: margin: expected a number");
    REFUSES(lk_circle_loss(.margin = 1), "CircleLoss: gamma: expected more than 0");
    REFUSES(lk_contrastive_pairwise_embedding_loss(.margin = 1), "it has no margin");
    REFUSES(lk_embedding_margin_loss(.alpha = NAN), "MarginLoss: alpha and beta");
    REFUSES(lk_bpr_loss(.gamma = -1), "BPRLoss: gamma");
    REFUSES(lk_warp_loss(.max_num_trials = -1), "WARPLoss: max_num_trials");
    REFUSES(lk_huber_loss_v0(.clip_delta = -1), "HuberLossV0: clip_delta: expected more than 0");
    REFUSES(lk_huber_loss_v0(.width = 1), "HuberLossV0: it has no width");
    REFUSES(lk_wing_loss(.num_atoms = 1), "WingLoss: it has no num_atoms");
    REFUSES(lk_naive_cross_entropy_loss(.alpha = 1), "belong to SymmetricCrossEntropyLoss");
    REFUSES(lk_symmetric_cross_entropy_loss(.no_size_average = true), "belongs to NaiveCrossEntropyLoss");
}

/* The error of a loss over inputs of these shapes; a rank of 0 ends a shape. */
static void refuses_shapes(lk_criterion *criterion, lk_shape x, lk_dtype dtype, lk_shape y, const char *text)
{
    lkt_not_null(criterion);
    lk_graph *graph = lk_graph_create(true);
    lk_value *prediction = lk_graph_input(graph, "x", LK_F32, x);
    assert_null(lk_criterion_forward(criterion, prediction, lk_graph_input(graph, "y", dtype, y)));
    lkt_contains(lk_error(), text);
    lk_criterion_free(criterion);
    lk_graph_free(graph);
}

static void shapes_that_do_not_fit(void **state)
{
    (void)state;
    lk_shape pair = LK_SHAPE(4, 3), line = LK_SHAPE(4);
    refuses_shapes(lk_dice_loss(), pair, LK_F32, LK_SHAPE(4, 2),
                   "the prediction is (4, 3) and the target (4, 2)");
    refuses_shapes(lk_dice_loss(.class_dim = 2), pair, LK_F32, pair, "no classes along axis 2");
    refuses_shapes(lk_focal_trevsky_loss(.alpha = 0.5, .class_dim = LK_ZERO), pair, LK_F32, pair,
                   "no classes along axis 0");
    refuses_shapes(
        lk_dice_loss(.mode = LK_REGION_WEIGHTED, .weights = (const double[]){1}, .weight_count = 1), pair,
        LK_F32, pair, "weights: 1 numbers for 3 classes");
    refuses_shapes(lk_focal_loss_multi_class(), pair, LK_I64, pair, "expected logits (samples, classes)");
    refuses_shapes(lk_lovasz_loss_multi_label(), line, LK_F32, line,
                   "expected logits (samples, labels, ...)");
    refuses_shapes(lk_lovasz_loss_multi_class(), pair, LK_I64, line, "expected probabilities");
    refuses_shapes(lk_nt_xent_loss(.tau = 1), line, LK_F32, line, "expected embeddings (samples, width)");
    refuses_shapes(lk_barlow_twins_loss(), LK_SHAPE(1, 3), LK_F32, LK_SHAPE(1, 3),
                   "expected at least 2 samples");
    refuses_shapes(lk_circle_loss(.margin = 1, .gamma = 1), pair, LK_I64, LK_SHAPE(3), "a class for each");
    refuses_shapes(lk_warp_loss(), LK_SHAPE(4, 1), LK_F32, LK_SHAPE(4, 1), "at least 2 labels");
    refuses_shapes(lk_huber_loss_v0(), line, LK_F32, line, "expected (samples, numbers, ...)");
    refuses_shapes(lk_quantile_regression_loss(), pair, LK_F32, pair, "expected (samples, 51 atoms)");
    refuses_shapes(lk_naive_cross_entropy_loss(), line, LK_F32, line, "expected (samples, classes)");
    refuses_shapes(lk_symmetric_cross_entropy_loss(), pair, LK_I64, pair, "expected probabilities");
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/contrib_more_losses.lkg");
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(shapes_that_do_not_fit)};
    int failed = run_parity_cases("contrib losses", losses, (int)(sizeof losses / sizeof *losses), golden,
                                  loss_equals_its_definition);
    lkt_golden_free(golden);
    return failed + cmocka_run_group_tests(plain, NULL, NULL);
}
