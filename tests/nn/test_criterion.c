/* Every loss against PyTorch 1.13: value, gradient and 20 steps of training, on every engine of this build.
 */
#include "loss_parity.h"

static const float four_weights[] = {0.5f, 1.0f, 2.0f, 0.25f}, three_weights[] = {0.5f, 2.0f, 1.5f},
                   positive_weights[] = {3.0f, 1.0f, 0.5f};

/* The criteria copy their weights, so views over constants of this file will do. */
static const lk_tensor *weights_of(const float *data, int64_t count)
{
    static lk_tensor tensors[2];
    static int turn;
    lk_tensor *tensor = &tensors[turn++ % 2];
    *tensor = (lk_tensor){.dtype = LK_F32, .shape = LK_SHAPE(count), .stride = {1}, .data = (void *)data};
    return tensor;
}
#define FOUR     weights_of(four_weights, 4)
#define THREE    weights_of(three_weights, 3)
#define POSITIVE weights_of(positive_weights, 3)

static lk_value *fourth_power(lk_value *prediction, lk_value *target, void *context)
{
    (void)context;
    return lk_op_mean(lk_op_pow_scalar(lk_op_sub(prediction, target), 4), LK_ALL_AXES, false);
}

/* clang-format off */
#define LOSSES(X) \
    X(cross_entropy, lk_identity(), lk_cross_entropy_loss()) \
    X(cross_entropy_weight, lk_identity(), lk_cross_entropy_loss(.weight = FOUR)) \
    X(cross_entropy_smooth, lk_identity(), lk_cross_entropy_loss(.label_smoothing = 0.1)) \
    X(cross_entropy_all, lk_identity(), lk_cross_entropy_loss(.weight = FOUR, .label_smoothing = 0.2, .ignore_index = 1)) \
    X(cross_entropy_ignore, lk_identity(), lk_cross_entropy_loss()) \
    X(cross_entropy_ignore_zero, lk_identity(), lk_cross_entropy_loss(.ignore_index = LK_ZERO)) \
    X(cross_entropy_sum, lk_identity(), lk_cross_entropy_loss(.reduction = LK_REDUCTION_SUM)) \
    X(cross_entropy_none, lk_identity(), lk_cross_entropy_loss(.reduction = LK_REDUCTION_NONE)) \
    X(cross_entropy_images, lk_identity(), lk_cross_entropy_loss(.weight = FOUR)) \
    X(cross_entropy_probabilities, lk_identity(), lk_cross_entropy_loss(.label_smoothing = 0.1)) \
    X(nll, lk_log_softmax(1), lk_nll_loss()) \
    X(nll_weight, lk_log_softmax(1), lk_nll_loss(.weight = FOUR, .ignore_index = 2)) \
    X(nll_sum, lk_log_softmax(1), lk_nll_loss(.reduction = LK_REDUCTION_SUM)) \
    X(bce, lk_sigmoid(), lk_bce_loss()) \
    X(bce_weight, lk_sigmoid(), lk_bce_loss(.weight = THREE, .reduction = LK_REDUCTION_SUM)) \
    X(bce_with_logits, lk_identity(), lk_bce_with_logits_loss()) \
    X(bce_with_logits_weights, lk_identity(), lk_bce_with_logits_loss(.weight = THREE, .pos_weight = POSITIVE)) \
    X(bce_with_logits_none, lk_identity(), lk_bce_with_logits_loss(.reduction = LK_REDUCTION_NONE)) \
    X(mse, lk_identity(), lk_mse_loss()) \
    X(mse_sum, lk_identity(), lk_mse_loss(.reduction = LK_REDUCTION_SUM)) \
    X(mse_none, lk_identity(), lk_mse_loss(.reduction = LK_REDUCTION_NONE)) \
    X(l1, lk_identity(), lk_l1_loss()) \
    X(smooth_l1, lk_identity(), lk_smooth_l1_loss()) \
    X(smooth_l1_beta, lk_identity(), lk_smooth_l1_loss(.beta = 0.5)) \
    X(smooth_l1_zero, lk_identity(), lk_smooth_l1_loss(.beta = LK_ZERO)) \
    X(huber, lk_identity(), lk_huber_loss()) \
    X(huber_delta, lk_identity(), lk_huber_loss(.delta = 0.3, .reduction = LK_REDUCTION_SUM)) \
    X(kl_div, lk_log_softmax(1), lk_kl_div_loss()) \
    X(kl_div_batchmean, lk_log_softmax(1), lk_kl_div_loss(.reduction = LK_REDUCTION_BATCH_MEAN)) \
    X(kl_div_log, lk_log_softmax(1), lk_kl_div_loss(.reduction = LK_REDUCTION_BATCH_MEAN, .log_target = true)) \
    X(custom, lk_identity(), lk_custom_criterion(.type = "FourthPower", .forward = fourth_power))
#define MORE_LOSSES(X) \
    X(soft_margin, lk_identity(), lk_soft_margin_loss()) \
    X(soft_margin_none, lk_identity(), lk_soft_margin_loss(.reduction = LK_REDUCTION_NONE)) \
    X(hinge_embedding, lk_identity(), lk_hinge_embedding_loss()) \
    X(hinge_embedding_margin, lk_identity(), lk_hinge_embedding_loss(.margin = 0.3, .reduction = LK_REDUCTION_SUM)) \
    X(poisson_nll, lk_identity(), lk_poisson_nll_loss()) \
    X(poisson_nll_full, lk_identity(), lk_poisson_nll_loss(.full = true, .reduction = LK_REDUCTION_SUM)) \
    X(poisson_nll_rate, lk_sigmoid(), lk_poisson_nll_loss(.no_log_input = true, .eps = 1e-3)) \
    X(multi_label_soft_margin, lk_identity(), lk_multi_label_soft_margin_loss()) \
    X(multi_label_soft_margin_weight, lk_identity(), lk_multi_label_soft_margin_loss(.weight = THREE, .reduction = LK_REDUCTION_NONE)) \
    X(multi_margin, lk_identity(), lk_multi_margin_loss()) \
    X(multi_margin_options, lk_identity(), lk_multi_margin_loss(.p = 2, .margin = 0.7, .weight = FOUR)) \
    X(multi_margin_none, lk_identity(), lk_multi_margin_loss(.margin = LK_ZERO, .reduction = LK_REDUCTION_NONE))
/* clang-format on */

#define X(symbol, before, ...)                                                                               \
    static lk_module *before_##symbol(void)                                                                  \
    {                                                                                                        \
        return before;                                                                                       \
    }                                                                                                        \
    static lk_criterion *make_##symbol(void)                                                                 \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LOSSES(X)
MORE_LOSSES(X)
#undef X

static const parity_case cases[] = {
#define X(symbol, ...) {.name = #symbol, .make = before_##symbol, .criterion = make_##symbol},
    LOSSES(X)
#undef X
};
static const parity_case more_cases[] = {
#define X(symbol, ...) {.name = #symbol, .make = before_##symbol, .criterion = make_##symbol},
    MORE_LOSSES(X)
#undef X
};
enum { CASE_COUNT = sizeof cases / sizeof *cases, MORE_CASE_COUNT = sizeof more_cases / sizeof *more_cases };

static void loss_equals_pytorch(void **state)
{
    check_loss(*state);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_cross_entropy_loss(.label_smoothing = 2));
    lkt_contains(lk_error(), "label_smoothing: expected 0 to 1, found 2");
    assert_null(lk_mse_loss(.reduction = LK_REDUCTION_BATCH_MEAN));
    lkt_contains(lk_error(), "MSELoss: reduction");
    assert_null(lk_huber_loss(.delta = -1));
    lkt_contains(lk_error(), "HuberLoss: delta");
    assert_null(lk_smooth_l1_loss(.beta = -1));
    lkt_contains(lk_error(), "SmoothL1Loss: beta");
    assert_null(lk_bce_loss(.pos_weight = THREE));
    lkt_contains(lk_error(), "pos_weight belongs to BCEWithLogitsLoss");
    assert_null(lk_soft_margin_loss(.margin = 1));
    lkt_contains(lk_error(), "SoftMarginLoss: it has no margin");
    assert_null(lk_hinge_embedding_loss(.margin = NAN));
    lkt_contains(lk_error(), "HingeEmbeddingLoss: margin");
    assert_null(lk_poisson_nll_loss(.eps = -1));
    lkt_contains(lk_error(), "PoissonNLLLoss: eps: expected 0 or more, found -1");
    assert_null(lk_multi_margin_loss(.p = 3));
    lkt_contains(lk_error(), "MultiMarginLoss: p: expected 1 or 2, found 3");
    assert_null(lk_multi_label_soft_margin_loss(.p = 1));
    lkt_contains(lk_error(), "it has no margin and no p");
    assert_null(lk_custom_criterion(.type = "Mine"));
    lkt_contains(lk_error(), "Mine: the criterion has no function");
}

/* A loss that does not fit names itself and both shapes. */
static void errors_name_the_loss(void **state)
{
    (void)state;
    lk_graph *graph = lk_graph_create(true);
    lk_criterion *criterion = lk_mse_loss();
    lk_value *prediction = lk_graph_input(graph, "p", LK_F32, LK_SHAPE(4, 2));
    lk_value *target = lk_graph_input(graph, "t", LK_F32, LK_SHAPE(4, 3));
    assert_null(lk_criterion_forward(criterion, prediction, target));
    lkt_contains(lk_error(), "MSELoss");
    lkt_contains(lk_error(), "(4, 2)");
    lkt_contains(lk_error(), "(4, 3)");
    assert_null(lk_criterion_forward(criterion, NULL, target));
    assert_null(lk_criterion_forward(NULL, prediction, target));
    assert_string_equal(lk_criterion_type(criterion), "MSELoss");
    lk_criterion_free(criterion);
    lk_criterion_free(NULL);
    lk_graph_free(graph);
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/losses.lkg");
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(errors_name_the_loss)};
    int failed = run_parity_cases("losses", cases, CASE_COUNT, golden, loss_equals_pytorch);
    lkt_golden_free(golden);
    golden = lkt_golden_open("nn/more_losses.lkg");
    failed += run_parity_cases("more losses", more_cases, MORE_CASE_COUNT, golden, loss_equals_pytorch);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
