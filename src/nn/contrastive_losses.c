/* Losses that compare the embeddings of a batch with each other. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>
#include <string.h>

/* Stands for the logarithm of 0: far below any similarity, but the difference of two is a number. */
static const double EXCLUDED = -1e30;

typedef struct contrastive_loss {
    double tau, margin, gamma, lambda, eps;
    bool outside;
    lk_reduction reduction;
} contrastive_loss;

static lk_value *check_views(lk_value *x, lk_value *other)
{
    if (!x || !other) return NULL;
    if (lk_value_shape(x).rank != 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected embeddings (samples, width), found %s", LKI_SHOW(lk_value_shape(x)));
    return lki_target_like(x, other);
}

/* Cosines of all pairs divided by tau, with EXCLUDED on the diagonal. */
static lk_value *similarities(const contrastive_loss *own, lk_value *x)
{
    lk_value *unit = lki_normalized(x, 1, 1e-12);
    lk_value *pairs = lk_op_mul_scalar(lk_op_matmul(unit, lk_op_transpose(unit, 0, 1)), 1 / own->tau);
    if (!pairs) return NULL;
    lk_value *self = lk_op_equal(lki_identity_like(pairs), lki_scalar_like(pairs, 1));
    return lk_op_masked_fill(pairs, self, EXCLUDED);
}

/* -cos(x_i, y_i) / tau + log(sum over all others of exp(cos / tau)), of the rows of x and those of y. */
static lk_value *nt_xent_forward(lk_value *x, lk_value *other, void *context)
{
    const contrastive_loss *own = context;
    other = check_views(x, other);
    if (!other) return NULL;
    lk_value *views[] = {x, other};
    lk_value *all = lk_op_logsumexp(similarities(own, lk_op_concat(views, 2, 0)), LK_AXES(1), false);
    lk_value *products = lk_op_mul(lki_normalized(x, 1, 1e-8), lki_normalized(other, 1, 1e-8));
    lk_value *near = lk_op_mul_scalar(lk_op_sum(products, LK_AXES(1), false), 1 / own->tau);
    lk_value *pairs[] = {near, near};
    return lki_reduced(lk_op_sub(all, lk_op_concat(pairs, 2, 0)), own->reduction);
}

static lk_value *supervised_forward(lk_value *x, lk_value *labels, void *context)
{
    const contrastive_loss *own = context;
    if (lki_check_embeddings(x, labels)) return NULL;
    lk_value *pairs = similarities(own, x);
    lk_value *same = lki_same_labels(labels, lk_value_dtype(x));
    lk_value *positives = lk_op_sub(same, lki_identity_like(same));
    lk_value *count = lk_op_sum(positives, LK_AXES(1), false);
    if (!pairs || !count) return NULL;
    lk_value *has_any = lk_op_cast(lk_op_greater(count, lki_scalar_like(count, 0)), lk_value_dtype(x));
    lk_value *divisor = lk_op_clamp(count, 1, INFINITY);
    lk_value *others = lk_op_equal(positives, lki_scalar_like(positives, 0));
    lk_value *near;
    if (own->outside)
        near = lk_op_div(lk_op_sum(lk_op_masked_fill(pairs, others, 0), LK_AXES(1), false), divisor);
    else
        near = lk_op_sub(lk_op_logsumexp(lk_op_masked_fill(pairs, others, EXCLUDED), LK_AXES(1), false),
                         lk_op_log(divisor));
    lk_value *each = lk_op_sub(lk_op_logsumexp(pairs, LK_AXES(1), false), near);
    lk_value *alone = lk_op_equal(has_any, lki_scalar_like(has_any, 0));
    each = lk_op_masked_fill(each, alone, 0);
    return own->reduction == LK_REDUCTION_MEAN ? lki_weighted_mean(each, has_any)
                                               : lki_reduced(each, own->reduction);
}

/* (x - mean) / sqrt(var + eps) of each column. */
static lk_value *standardised(lk_value *x, double eps)
{
    lk_value *apart = lk_op_sub(x, lk_op_mean(x, LK_AXES(0), true));
    lk_value *var = lk_op_var(x, LK_AXES(0), true, 1);
    return lk_op_div(apart, lk_op_sqrt(lk_op_add_scalar(var, eps)));
}

static lk_value *barlow_forward(lk_value *x, lk_value *other, void *context)
{
    const contrastive_loss *own = context;
    other = check_views(x, other);
    if (!other) return NULL;
    int64_t samples = lk_value_shape(x).dim[0];
    if (samples < 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected at least 2 samples, found %lld",
                              (long long)samples);
    lk_value *left = standardised(x, own->eps), *right = standardised(other, own->eps);
    lk_value *c = lk_op_mul_scalar(lk_op_matmul(lk_op_transpose(left, 0, 1), right), 1.0 / (double)samples);
    lk_value *identity = lki_identity_like(c);
    lk_value *apart = lk_op_sub(c, identity);
    lk_value *weights =
        lk_op_add_scalar(lk_op_mul_scalar(identity, 1 - own->lambda), own->lambda); /* 1 on the diagonal */
    return lk_op_sum(lk_op_mul(weights, lk_op_mul(apart, apart)), LK_ALL_AXES, false);
}

/* log(sum(exp(gamma w (s - delta)))) over the pairs of `mask`, with weights w = max(0, +-s + bias). */
static lk_value *circle_part(const contrastive_loss *own, lk_value *pairs, lk_value *mask, bool positive)
{
    double sign = positive ? -1 : 1, bias = own->margin + (positive ? 1 : 0);
    double delta = positive ? 1 - own->margin : own->margin;
    lk_value *seen = lk_op_mul_scalar(lk_op_detach(pairs), sign);
    lk_value *weight = lk_op_clamp(lk_op_add_scalar(seen, bias), 0, INFINITY);
    lk_value *logit = lk_op_mul(weight, lk_op_add_scalar(pairs, -delta));
    logit = lk_op_mul_scalar(logit, sign * own->gamma);
    if (!mask) return NULL;
    lk_value *excluded = lk_op_equal(mask, lki_scalar_like(mask, 0));
    return lk_op_logsumexp(lk_op_masked_fill(logit, excluded, EXCLUDED), LK_ALL_AXES, false);
}

static lk_value *circle_forward(lk_value *x, lk_value *labels, void *context)
{
    const contrastive_loss *own = context;
    if (lki_check_embeddings(x, labels)) return NULL;
    lk_value *pairs = lk_op_matmul(x, lk_op_transpose(x, 0, 1));
    lk_value *same = lki_same_labels(labels, lk_value_dtype(x));
    lk_value *others = lk_op_sub(lk_op_ones_like(same), same);
    lk_value *near = circle_part(own, pairs, lk_op_triu(same, 1), true);
    lk_value *far = circle_part(own, pairs, lk_op_triu(others, 1), false);
    return lk_op_softplus(lk_op_add(far, near), 1, 20);
}

/* (1 - t) d^2 + t max(0, margin - d)^2; the mean halves it, as the paper does. */
static lk_value *distance_forward(lk_value *distance, lk_value *target, void *context)
{
    const contrastive_loss *own = context;
    lk_value *t = lki_target_like(distance, target);
    lk_value *apart = lk_op_relu(lk_op_add_scalar(lk_op_neg(distance), own->margin));
    lk_value *near = lk_op_mul(distance, distance);
    lk_value *each = lk_op_add(lk_op_sub(near, lk_op_mul(t, near)), lk_op_mul(t, lk_op_mul(apart, apart)));
    if (!each || own->reduction != LK_REDUCTION_MEAN) return lki_reduced(each, own->reduction);
    int64_t samples = lk_value_shape(each).rank > 0 ? lk_value_shape(each).dim[0] : 1;
    return lk_op_mul_scalar(lk_op_sum(each, LK_ALL_AXES, false), 0.5 / (double)samples);
}

/* The products of each predicted with each true row, (n, n). */
static lk_value *products(lk_value *x, lk_value *target)
{
    return lk_op_matmul(x, lk_op_transpose(check_views(x, target), 0, 1));
}

static lk_value *pairwise_forward(lk_value *x, lk_value *target, void *context)
{
    const contrastive_loss *own = context;
    lk_value *pairs = products(x, target);
    if (!pairs) return NULL;
    lk_value *own_row = lk_op_arange(lk_value_graph(x), 0, (double)lk_value_shape(x).dim[0], 1, LK_I64);
    return lk_op_cross_entropy(pairs, own_row, NULL, own->reduction, -100, 0);
}

static lk_value *triplet_pairwise_forward(lk_value *x, lk_value *target, void *context)
{
    const contrastive_loss *own = context;
    lk_value *pairs = products(x, target);
    if (!pairs) return NULL;
    lk_value *identity = lki_identity_like(pairs);
    lk_value *near = lk_op_sum(lk_op_mul(pairs, identity), LK_AXES(1), false);
    lk_value *others = lk_op_sub(pairs, lk_op_mul_scalar(identity, 1e9));
    lk_value *hardest = lk_op_argmax(lk_op_detach(others), 1, true);
    lk_value *far = lk_op_squeeze(lk_op_gather(pairs, 1, hardest), 1);
    lk_value *each = lk_op_relu(lk_op_add_scalar(lk_op_sub(far, near), own->margin));
    return lki_reduced(each, own->reduction);
}

/* ---- Options ---- */

/* Which of the options a loss has. */
enum { HAS_TAU = 1, HAS_MARGIN = 2, HAS_GAMMA = 4, HAS_LAMBDA = 8, HAS_REDUCTION = 16, HAS_OUTSIDE = 32 };

static lk_status check_positive(const char *type, const char *name, double value)
{
    if (value > 0 && !isinf(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected more than 0, found %g", type, name, value);
}

static lk_status refuse(const char *type, const char *name)
{
    return lki_fail(LK_ERR_INVALID, "%s: it has no %s", type, name);
}

static lk_status check_others(const char *type, const lk_contrastive_loss_options *options, unsigned has)
{
    if (!(has & HAS_TAU) && lki_number_given(options->tau)) return refuse(type, "tau");
    if (!(has & HAS_MARGIN) && lki_number_given(options->margin)) return refuse(type, "margin");
    if (!(has & HAS_GAMMA) && lki_number_given(options->gamma)) return refuse(type, "gamma");
    if (!(has & HAS_LAMBDA) && (lki_number_given(options->offdiag_lambda) || lki_number_given(options->eps)))
        return refuse(type, "offdiag_lambda and no eps");
    if (!(has & HAS_REDUCTION) && options->reduction) return refuse(type, "reduction");
    if (!(has & HAS_OUTSIDE) && options->outside) return refuse(type, "pos_aggregation");
    return LK_OK;
}

static lk_criterion *create(const char *type, lk_criterion_function forward, unsigned has, double margin,
                            const lk_contrastive_loss_options *given)
{
    LKI_TAKE(lk_contrastive_loss_options, options, given, NULL);
    contrastive_loss draft = {.tau = options.tau,
                              .margin = lki_number_or(options.margin, margin),
                              .gamma = options.gamma,
                              .lambda = lki_number_or(options.offdiag_lambda, 1),
                              .eps = lki_number_or(options.eps, 1e-12),
                              .outside = options.outside,
                              .reduction = options.reduction};
    if (check_others(type, &options, has) || lki_check_reduction(type, draft.reduction)) return NULL;
    if ((has & HAS_TAU) && check_positive(type, "tau", draft.tau)) return NULL;
    if ((has & HAS_GAMMA) && check_positive(type, "gamma", draft.gamma)) return NULL;
    if (!isfinite(draft.margin))
        return lki_fail_null(LK_ERR_INVALID, "%s: margin: expected a number, found %g", type, draft.margin);
    if (!isfinite(draft.lambda) || !(draft.eps >= 0))
        return lki_fail_null(LK_ERR_INVALID, "%s: offdiag_lambda and eps: expected numbers, eps 0 or more",
                             type);
    return lki_contrib_criterion(type, forward, &draft, sizeof draft);
}

lk_criterion *lk_nt_xent_loss_with(const lk_contrastive_loss_options *options)
{
    return create("NTXentLoss", nt_xent_forward, HAS_TAU | HAS_REDUCTION, 0, options);
}

lk_criterion *lk_barlow_twins_loss_with(const lk_contrastive_loss_options *options)
{
    return create("BarlowTwinsLoss", barlow_forward, HAS_LAMBDA, 0, options);
}

lk_criterion *lk_supervised_contrastive_loss_with(const lk_contrastive_loss_options *options)
{
    return create("SupervisedContrastiveLoss", supervised_forward, HAS_TAU | HAS_REDUCTION | HAS_OUTSIDE, 0,
                  options);
}

lk_criterion *lk_circle_loss_with(const lk_contrastive_loss_options *options)
{
    return create("CircleLoss", circle_forward, HAS_MARGIN | HAS_GAMMA, NAN, options);
}

lk_criterion *lk_contrastive_distance_loss_with(const lk_contrastive_loss_options *options)
{
    return create("ContrastiveDistanceLoss", distance_forward, HAS_MARGIN | HAS_REDUCTION, 1, options);
}

lk_criterion *lk_contrastive_pairwise_embedding_loss_with(const lk_contrastive_loss_options *options)
{
    return create("ContrastivePairwiseEmbeddingLoss", pairwise_forward, HAS_REDUCTION, 0, options);
}

lk_criterion *lk_triplet_pairwise_embedding_loss_with(const lk_contrastive_loss_options *options)
{
    return create("TripletPairwiseEmbeddingLoss", triplet_pairwise_forward, HAS_MARGIN | HAS_REDUCTION, 0.3,
                  options);
}

/* ---- MarginLoss ---- */

typedef struct margin_loss {
    double alpha, beta;
    lk_tensor *skipped; /* i64, owned */
} margin_loss;

static void free_margin_loss(void *context)
{
    margin_loss *own = context;
    lk_tensor_free(own->skipped);
    lki_free(own);
}

static lk_value *margin_forward(lk_value *x, lk_value *labels, void *context)
{
    const margin_loss *own = context;
    if (lki_check_embeddings(x, labels)) return NULL;
    lk_value *unit = lki_normalized(x, 1, 1e-12);
    lk_value *distances = lki_squared_distances(unit, unit);
    lk_value *signs = lk_op_add_scalar(lk_op_mul_scalar(lki_same_labels(labels, lk_value_dtype(x)), 2), -1);
    lk_value *far = lk_op_mul(signs, lk_op_add_scalar(distances, -own->beta));
    lk_value *skipped = lk_graph_constant(lk_value_graph(x), own->skipped);
    if (lk_value_dtype(labels) != LK_I64) skipped = lk_op_cast(skipped, lk_value_dtype(labels));
    lk_value *is_skipped = lk_op_any(lk_op_equal(lk_op_unsqueeze(labels, 1), skipped), LK_AXES(1), false);
    lk_value *out = lk_op_cast(is_skipped, lk_value_dtype(x));
    lk_value *both = lk_op_mul(lk_op_unsqueeze(out, 1), lk_op_unsqueeze(out, 0));
    if (!both) return NULL;
    lk_value *counts = lk_op_sub(lk_op_ones_like(both), both);
    lk_value *loss = lk_op_mul(counts, lk_op_relu(lk_op_add_scalar(far, own->alpha)));
    return lk_op_div(lk_op_sum(loss, LK_ALL_AXES, false),
                     lk_op_add_scalar(lk_op_sum(counts, LK_ALL_AXES, false), 1e-8));
}

lk_criterion *lk_embedding_margin_loss_with(const lk_embedding_margin_loss_options *given)
{
    LKI_TAKE(lk_embedding_margin_loss_options, options, given, NULL);
    double alpha = lki_number_or(options.alpha, 0.2), beta = lki_number_or(options.beta, 1);
    int count = options.skip_labels ? options.skip_label_count : 0;
    if (!isfinite(alpha) || !isfinite(beta))
        return lki_fail_null(LK_ERR_INVALID, "MarginLoss: alpha and beta: expected numbers, found %g and %g",
                             alpha, beta);
    margin_loss *own = LKI_NEW(margin_loss);
    if (!own) return NULL;
    *own = (margin_loss){alpha, beta, lk_tensor_create(LK_I64, LK_SHAPE(count > 0 ? count : 1))};
    if (!own->skipped) {
        lki_free(own);
        return NULL;
    }
    int64_t *labels = own->skipped->data;
    labels[0] = -1;
    for (int i = 0; i < count; i++) labels[i] = options.skip_labels[i];
    return lk_custom_criterion(.type = "MarginLoss", .forward = margin_forward, .context = own,
                               .free_context = free_margin_loss);
}
