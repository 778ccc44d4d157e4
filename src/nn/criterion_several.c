/* Losses of several values, and those of lists of classes. All are compositions of a few ops. */
#include <lockstep/nn.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

typedef struct several {
    double margin, p, eps;
    bool swap, full;
    lk_reduction reduction;
} several;

static lk_criterion *create(const char *type, lk_criterion_call_function call, int inputs, several draft)
{
    if (lki_check_reduction(type, draft.reduction)) return NULL;
    if (!isfinite(draft.margin))
        return lki_fail_null(LK_ERR_INVALID, "%s: margin: expected a number, found %g", type, draft.margin);
    return lki_several_criterion(type, call, inputs, &draft, sizeof draft);
}

static void *shapes_differ(lk_value *a, lk_value *b)
{
    return lki_graph_fail(lk_value_graph(a), LK_ERR_SHAPE, "expected values of one shape, found %s and %s",
                          LKI_SHOW(lk_value_shape(a)), LKI_SHOW(lk_value_shape(b)));
}

static bool same_shape(lk_value *a, lk_value *b)
{
    return lk_shape_equal(lk_value_shape(a), lk_value_shape(b));
}

/* ---- Triplets ---- */

/* |a - b + eps|_p over the last axis */
static lk_value *distance(const several *own, lk_value *a, lk_value *b)
{
    return lk_op_norm(lk_op_add_scalar(lk_op_sub(a, b), own->eps), own->p, LK_AXES(-1), false);
}

static lk_value *triplet_forward(lk_value *const *inputs, int count, void *context)
{
    const several *own = context;
    lk_value *anchor = inputs[0], *positive = inputs[1], *negative = inputs[2];
    (void)count;
    if (!same_shape(anchor, positive)) return shapes_differ(anchor, positive);
    if (!same_shape(anchor, negative)) return shapes_differ(anchor, negative);
    lk_shape shape = lk_value_shape(anchor);
    if (shape.rank < 1 || shape.rank > 2)
        return lki_graph_fail(lk_value_graph(anchor), LK_ERR_SHAPE,
                              "expected embeddings (samples, width) or (width), found %s", LKI_SHOW(shape));
    lk_value *near = distance(own, anchor, positive), *far = distance(own, anchor, negative);
    if (own->swap) far = lk_op_minimum(far, distance(own, positive, negative));
    return lki_reduced(lk_op_relu(lk_op_add_scalar(lk_op_sub(near, far), own->margin)), own->reduction);
}

lk_criterion *lk_triplet_margin_loss_with(const lk_triplet_margin_loss_options *given)
{
    LKI_TAKE(lk_triplet_margin_loss_options, options, given, NULL);
    several draft = {.margin = lki_number_or(options.margin, 1),
                     .p = lki_number_or(options.p, 2),
                     .eps = lki_number_or(options.eps, 1e-6),
                     .swap = options.swap,
                     .reduction = options.reduction};
    if (!(draft.p >= 0))
        return lki_fail_null(LK_ERR_INVALID, "TripletMarginLoss: p: expected 0 or more, found %g", draft.p);
    if (!(draft.eps >= 0) || isinf(draft.eps))
        return lki_fail_null(LK_ERR_INVALID, "TripletMarginLoss: eps: expected 0 or more, found %g",
                             draft.eps);
    return create("TripletMarginLoss", triplet_forward, 3, draft);
}

/* ---- Pairs ---- */

/* Where the target is `sign`, else 0. The other's gradient is 0, too. */
static lk_value *where_target(lk_value *target, double sign, lk_value *each)
{
    return lk_op_where(lk_op_equal(target, lki_scalar_like(target, sign)), each, lki_scalar_like(each, 0));
}

/* 1 - cos for a target of 1, max(0, cos - margin) for one of -1. */
static lk_value *cosine_forward(lk_value *const *inputs, int count, void *context)
{
    const several *own = context;
    lk_value *a = inputs[0], *b = inputs[1], *target = inputs[2];
    lk_shape shape = lk_value_shape(a), of_target = lk_value_shape(target);
    (void)count;
    if (!same_shape(a, b)) return shapes_differ(a, b);
    if (shape.rank < 1 || shape.rank > 2 || of_target.rank != shape.rank - 1 ||
        (shape.rank == 2 && of_target.dim[0] != shape.dim[0]))
        return lki_graph_fail(lk_value_graph(a), LK_ERR_SHAPE,
                              "expected embeddings (samples, width) and a target for each, found %s and %s",
                              LKI_SHOW(shape), LKI_SHOW(of_target));
    target = lk_op_cast(target, lk_value_dtype(a));
    lk_value *product = lk_op_sum(lk_op_mul(a, b), LK_AXES(-1), false);
    lk_value *of_a = lk_op_add_scalar(lk_op_sum(lk_op_mul(a, a), LK_AXES(-1), false), 1e-12);
    lk_value *of_b = lk_op_add_scalar(lk_op_sum(lk_op_mul(b, b), LK_AXES(-1), false), 1e-12);
    lk_value *cosine = lk_op_div(product, lk_op_sqrt(lk_op_mul(of_a, of_b)));
    lk_value *alike = where_target(target, 1, lk_op_add_scalar(lk_op_neg(cosine), 1));
    lk_value *apart = where_target(target, -1, lk_op_relu(lk_op_add_scalar(cosine, -own->margin)));
    return lki_reduced(lk_op_add(alike, apart), own->reduction);
}

lk_criterion *lk_cosine_embedding_loss_with(const lk_pair_loss_options *given)
{
    LKI_TAKE(lk_pair_loss_options, options, given, NULL);
    several draft = {.margin = lki_number_or(options.margin, 0), .reduction = options.reduction};
    return create("CosineEmbeddingLoss", cosine_forward, 3, draft);
}

/* max(0, -t (x1 - x2) + margin) */
static lk_value *ranking_forward(lk_value *const *inputs, int count, void *context)
{
    const several *own = context;
    (void)count;
    if (!same_shape(inputs[0], inputs[1])) return shapes_differ(inputs[0], inputs[1]);
    if (!same_shape(inputs[0], inputs[2])) return shapes_differ(inputs[0], inputs[2]);
    lk_value *target = lk_op_cast(inputs[2], lk_value_dtype(inputs[0]));
    lk_value *behind = lk_op_neg(lk_op_mul(target, lk_op_sub(inputs[0], inputs[1])));
    return lki_reduced(lk_op_clamp(lk_op_add_scalar(behind, own->margin), 0, INFINITY), own->reduction);
}

lk_criterion *lk_margin_ranking_loss_with(const lk_pair_loss_options *given)
{
    LKI_TAKE(lk_pair_loss_options, options, given, NULL);
    several draft = {.margin = lki_number_or(options.margin, 0), .reduction = options.reduction};
    return create("MarginRankingLoss", ranking_forward, 3, draft);
}

/* ---- A normal distribution ---- */

/* The variance in a shape that broadcasts over the prediction. */
static lk_value *variance_for(lk_value *x, lk_value *variance)
{
    lk_shape wanted = lk_value_shape(x), shape = lk_value_shape(variance);
    if (lk_shape_equal(wanted, shape)) return variance;
    bool fits = wanted.rank > 0 && (shape.rank == wanted.rank - 1 ||
                                    (shape.rank == wanted.rank && shape.dim[wanted.rank - 1] == 1));
    for (int i = 0; fits && i < wanted.rank - 1; i++) fits = shape.dim[i] == wanted.dim[i];
    if (fits) return shape.rank == wanted.rank ? variance : lk_op_unsqueeze(variance, -1);
    return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "the prediction is %s and the variance %s",
                          LKI_SHOW(wanted), LKI_SHOW(shape));
}

/* (log(var) + (x - t)^2 / var) / 2. As in PyTorch, a variance below eps counts as eps, and its gradient is
 * that of eps. */
static lk_value *gaussian_forward(lk_value *const *inputs, int count, void *context)
{
    const several *own = context;
    (void)count;
    lk_value *target = lki_target_like(inputs[0], inputs[1]);
    lk_value *variance = variance_for(inputs[0], inputs[2]);
    if (!target || !variance) return NULL;
    variance = lk_op_cast(variance, lk_value_dtype(inputs[0]));
    lk_value *moved = lk_op_sub(lk_op_clamp(variance, own->eps, INFINITY), variance);
    variance = lk_op_add(variance, lk_op_detach(moved));
    lk_value *apart = lk_op_sub(inputs[0], target);
    lk_value *each = lk_op_add(lk_op_log(variance), lk_op_div(lk_op_mul(apart, apart), variance));
    each = lk_op_mul_scalar(each, 0.5);
    if (own->full) each = lk_op_add_scalar(each, 0.5 * log(2 * M_PI));
    return lki_reduced(each, own->reduction);
}

lk_criterion *lk_gaussian_nll_loss_with(const lk_gaussian_nll_loss_options *given)
{
    LKI_TAKE(lk_gaussian_nll_loss_options, options, given, NULL);
    several draft = {
        .eps = lki_number_or(options.eps, 1e-6), .full = options.full, .reduction = options.reduction};
    if (!(draft.eps > 0) || isinf(draft.eps))
        return lki_fail_null(LK_ERR_INVALID, "GaussianNLLLoss: eps: expected more than 0, found %g",
                             draft.eps);
    return create("GaussianNLLLoss", gaussian_forward, 3, draft);
}

/* ---- Lists of classes ---- */

/* The sum over the listed classes j and all others i of max(0, 1 - x_j + x_i), divided by the number of
 * classes. */
static lk_value *multi_label_forward(lk_value *const *inputs, int count, void *context)
{
    const several *own = context;
    lk_value *x = inputs[0], *target = inputs[1];
    lk_shape shape = lk_value_shape(x);
    lk_dtype dtype = lk_value_dtype(x);
    (void)count;
    if (!same_shape(x, target) || shape.rank < 1 || shape.rank > 2 || lk_value_dtype(target) != LK_I64)
        return lki_graph_fail(
            lk_value_graph(x), LK_ERR_SHAPE,
            "expected scores (samples, classes) and i64 classes of that shape, found %s and "
            "%s %s",
            LKI_SHOW(shape), lk_dtype_name(lk_value_dtype(target)), LKI_SHOW(lk_value_shape(target)));
    if (shape.rank == 1) x = lk_op_unsqueeze(x, 0), target = lk_op_unsqueeze(target, 0);
    lk_value *zero = lk_op_full(lk_value_graph(x), lk_scalar_shape(), 0, LK_I64);
    lk_value *counts = lk_op_cast(lk_op_greater_equal(target, zero), dtype);
    counts = lk_op_cumprod(counts, 1); /* (n, j): 1 before the first -1 */
    lk_value *is_listed = lk_op_greater(counts, lki_scalar_like(counts, 0));
    lk_value *place = lki_where_index(is_listed, target, 0);
    lk_value *marks = lk_op_one_hot(lki_where_index(is_listed, target, -1), shape.dim[shape.rank - 1]);
    marks = lk_op_cast(marks, dtype); /* (n, j, i) */
    lk_value *others =
        lk_op_cast(lk_op_equal(lk_op_sum(marks, LK_AXES(1), false), lki_scalar_like(x, 0)), dtype);
    lk_value *behind =
        lk_op_sub(lk_op_unsqueeze(x, 1), lk_op_unsqueeze(lk_op_gather(x, 1, place), 2)); /* (n, j, i) */
    lk_value *each = lk_op_relu(lk_op_add_scalar(behind, 1));
    each = lk_op_mul(lk_op_mul(each, lk_op_unsqueeze(counts, 2)), lk_op_unsqueeze(others, 1));
    each = lk_op_mul_scalar(lk_op_sum(each, LK_AXES(1, 2), false), 1 / (double)shape.dim[shape.rank - 1]);
    if (shape.rank == 1) each = lk_op_squeeze(each, 0);
    return lki_reduced(each, own->reduction);
}

lk_criterion *lk_multi_label_margin_loss_with(const lk_multi_label_margin_loss_options *given)
{
    LKI_TAKE(lk_multi_label_margin_loss_options, options, given, NULL);
    return create("MultiLabelMarginLoss", multi_label_forward, 2, (several){.reduction = options.reduction});
}
