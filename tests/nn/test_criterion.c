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

/* A loss of several values, made of what the prediction holds along its first axis. */
typedef lk_value *(*prepare_function)(lk_value *x);
typedef struct of_parts {
    lk_criterion *criterion;
    int count;
    prepare_function variance; /* of the second part; NULL: it is passed on as it is, before the target */
} of_parts;

static lk_value *parts_forward(lk_value *x, lk_value *target, void *context)
{
    const of_parts *own = context;
    lk_value *parts[3];
    lk_op_unbind(parts, own->count, x, 0);
    if (own->count == 3) return lk_criterion_call(own->criterion, parts, 3);
    if (own->variance)
        return lk_criterion_call(own->criterion, LK_VALUES(parts[0], target, own->variance(parts[1])));
    return lk_criterion_call(own->criterion, LK_VALUES(parts[0], parts[1], target));
}

/* The last two columns of the target are the lengths. */
static lk_value *ctc_forward(lk_value *x, lk_value *target, void *context)
{
    const of_parts *own = context;
    int axis = lk_value_shape(target).rank - 1;
    int64_t width = lk_value_shape(target).dim[axis];
    lk_value *labels = lk_op_slice(target, axis, 0, width - 2, 1);
    lk_value *lengths = lk_op_squeeze(lk_op_slice(target, axis, width - 2, width - 1, 1), axis);
    lk_value *counts = lk_op_squeeze(lk_op_slice(target, axis, width - 1, width, 1), axis);
    if (own->count) { /* one after the other; the case has 3, 3, 2 and 0 labels */
        lk_value *rows[3] = {0};
        for (int i = 0; i < 3; i++)
            rows[i] = lk_op_reshape(lk_op_slice(lk_op_slice(labels, 0, i, i + 1, 1), 1, 0, i < 2 ? 3 : 2, 1),
                                    LK_SHAPE(-1));
        labels = lk_op_concat(rows, 3, 0);
    }
    return lk_criterion_call(own->criterion, LK_VALUES(x, labels, lengths, counts));
}

static void free_parts(void *context)
{
    lk_criterion_free(((of_parts *)context)->criterion);
    free(context);
}

static lk_criterion *wrap(lk_criterion_function forward, of_parts draft)
{
    of_parts *own = malloc(sizeof *own);
    lkt_not_null(draft.criterion);
    *own = draft;
    return lk_custom_criterion(.type = "Parts", .forward = forward, .context = own,
                               .free_context = free_parts);
}

static lk_criterion *parts_of(int count, lk_criterion *criterion)
{
    return wrap(parts_forward, (of_parts){criterion, count, NULL});
}

static lk_criterion *gaussian(prepare_function variance, lk_criterion *criterion)
{
    return wrap(parts_forward, (of_parts){criterion, 2, variance});
}

static lk_criterion *ctc(bool flat, lk_criterion *criterion)
{
    return wrap(ctc_forward, (of_parts){criterion, flat, NULL});
}

static lk_value *mean_exp(lk_value *x)
{
    return lk_op_mean(lk_op_exp(x), LK_AXES(1), false);
}

static lk_value *mean_exp_column(lk_value *x)
{
    return lk_op_mean(lk_op_exp(x), LK_AXES(1), true);
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
    X(multi_margin_none, lk_identity(), lk_multi_margin_loss(.margin = LK_ZERO, .reduction = LK_REDUCTION_NONE)) \
    X(triplet, lk_identity(), parts_of(3, lk_triplet_margin_loss())) \
    X(triplet_options, lk_identity(), parts_of(3, lk_triplet_margin_loss(.margin = 0.4, .p = 1, .eps = 1e-3, .swap = true, .reduction = LK_REDUCTION_SUM))) \
    X(triplet_single, lk_identity(), parts_of(3, lk_triplet_margin_loss(.margin = 3, .p = 3, .reduction = LK_REDUCTION_NONE))) \
    X(cosine_embedding, lk_identity(), parts_of(2, lk_cosine_embedding_loss())) \
    X(cosine_embedding_options, lk_identity(), parts_of(2, lk_cosine_embedding_loss(.margin = -0.3, .reduction = LK_REDUCTION_SUM))) \
    X(margin_ranking, lk_identity(), parts_of(2, lk_margin_ranking_loss())) \
    X(margin_ranking_options, lk_identity(), parts_of(2, lk_margin_ranking_loss(.margin = 0.5, .reduction = LK_REDUCTION_NONE))) \
    X(gaussian_nll, lk_identity(), gaussian(lk_op_exp, lk_gaussian_nll_loss())) \
    X(gaussian_nll_options, lk_identity(), gaussian(mean_exp, lk_gaussian_nll_loss(.full = true, .eps = 0.5, .reduction = LK_REDUCTION_SUM))) \
    X(gaussian_nll_column, lk_identity(), gaussian(mean_exp_column, lk_gaussian_nll_loss(.reduction = LK_REDUCTION_NONE))) \
    X(multi_label_margin, lk_identity(), lk_multi_label_margin_loss()) \
    X(multi_label_margin_none, lk_identity(), lk_multi_label_margin_loss(.reduction = LK_REDUCTION_NONE)) \
    X(multi_label_margin_single, lk_identity(), lk_multi_label_margin_loss(.reduction = LK_REDUCTION_SUM)) \
    X(ctc, lk_log_softmax(2), ctc(false, lk_ctc_loss())) \
    X(ctc_sum, lk_log_softmax(2), ctc(false, lk_ctc_loss(.reduction = LK_REDUCTION_SUM))) \
    X(ctc_none, lk_log_softmax(2), ctc(false, lk_ctc_loss(.reduction = LK_REDUCTION_NONE, .blank = 4))) \
    X(ctc_flat, lk_log_softmax(2), ctc(true, lk_ctc_loss())) \
    X(ctc_too_long, lk_log_softmax(2), ctc(false, lk_ctc_loss(.zero_infinity = true))) \
    X(ctc_raw, lk_identity(), ctc(false, lk_ctc_loss(.reduction = LK_REDUCTION_SUM))) \
    X(ctc_single, lk_log_softmax(1), ctc(false, lk_ctc_loss()))
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
    assert_null(lk_triplet_margin_loss(.p = -1));
    lkt_contains(lk_error(), "TripletMarginLoss: p: expected 0 or more, found -1");
    assert_null(lk_triplet_margin_loss(.eps = -1));
    lkt_contains(lk_error(), "TripletMarginLoss: eps");
    assert_null(lk_cosine_embedding_loss(.margin = NAN));
    lkt_contains(lk_error(), "CosineEmbeddingLoss: margin: expected a number");
    assert_null(lk_margin_ranking_loss(.reduction = LK_REDUCTION_BATCH_MEAN));
    lkt_contains(lk_error(), "MarginRankingLoss: reduction: expected mean, sum or none");
    assert_null(lk_gaussian_nll_loss(.eps = LK_ZERO));
    lkt_contains(lk_error(), "GaussianNLLLoss: eps: expected more than 0, found 0");
    assert_null(lk_ctc_loss(.blank = -1));
    lkt_contains(lk_error(), "CTCLoss: blank: expected 0 or more, found -1");
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

static void refuse(lk_criterion *criterion, lk_value *const *inputs, int count, const char *fragment)
{
    lkt_not_null(criterion);
    assert_null(lk_criterion_call(criterion, inputs, count));
    lkt_contains(lk_error(), fragment);
    lk_criterion_free(criterion);
}

static void several_values_that_do_not_fit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        lk_graph *graph = lk_graph_create(true);
        lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(4, 2)),
                 *y = lk_graph_input(graph, "y", LK_F32, LK_SHAPE(4, 3)),
                 *classes = lk_graph_input(graph, "c", LK_I64, LK_SHAPE(4)),
                 *scores = lk_graph_input(graph, "s", LK_F32, LK_SHAPE(5, 4, 3));
        if (i == 0)
            refuse(lk_triplet_margin_loss(), LK_VALUES(x, x), "it takes 3 values, found 2: name them");
        if (i == 1)
            refuse(lk_triplet_margin_loss(), LK_VALUES(x, y, x), "one shape, found (4, 2) and (4, 3)");
        if (i == 2) refuse(lk_cosine_embedding_loss(), LK_VALUES(x, x, x), "a target for each");
        if (i == 3)
            refuse(lk_margin_ranking_loss(), LK_VALUES(x, x, y), "one shape, found (4, 2) and (4, 3)");
        if (i == 4) refuse(lk_gaussian_nll_loss(), LK_VALUES(x, x, y), "the variance (4, 3)");
        if (i == 5) refuse(lk_multi_label_margin_loss(), LK_VALUES(x, x), "i64 classes of that shape");
        if (i == 6) refuse(lk_ctc_loss(), LK_VALUES(scores, x, classes, classes), "i64 targets (N, S)");
        if (i == 7)
            refuse(lk_ctc_loss(.blank = 3), LK_VALUES(scores, classes, classes, classes),
                   "a class of number 3");
        lk_graph_free(graph);
    }
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/losses.lkg");
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(errors_name_the_loss),
                                       cmocka_unit_test(several_values_that_do_not_fit)};
    int failed = run_parity_cases("losses", cases, CASE_COUNT, golden, loss_equals_pytorch);
    lkt_golden_free(golden);
    golden = lkt_golden_open("nn/more_losses.lkg");
    failed += run_parity_cases("more losses", more_cases, MORE_CASE_COUNT, golden, loss_equals_pytorch);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
