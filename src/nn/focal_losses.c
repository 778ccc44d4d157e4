/* The focal losses: cross-entropies of each class against the others, of which samples that are right already
 * count less. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

typedef struct focal_loss {
    bool has_ignore, reduced, has_alpha;
    int64_t ignore;
    double gamma, alpha, threshold;
    lk_reduction reduction;
} focal_loss;

/* Of each logit against 0 or 1, t in x's dtype. p = exp(-cross-entropy). */
static lk_value *focal_each(const focal_loss *own, lk_value *x, lk_value *t)
{
    lk_value *entropy = lk_op_pointwise_loss(x, t, NULL, NULL, LK_LOSS_BCE_WITH_LOGITS, 0, LK_REDUCTION_NONE);
    lk_value *p = lk_op_exp(lk_op_neg(entropy));
    lk_value *away = lk_op_add_scalar(lk_op_neg(p), 1);
    if (!away) return NULL;
    if (own->reduced) {
        lk_value *weight = lk_op_pow_scalar(lk_op_mul_scalar(away, 1 / own->threshold), own->gamma);
        lk_value *is_far = lk_op_less(p, lki_scalar_like(p, own->threshold));
        return lk_op_mul(lk_op_masked_fill(weight, is_far, 1), entropy);
    }
    lk_value *loss = lk_op_mul(lk_op_pow_scalar(away, own->gamma), entropy);
    if (!own->has_alpha) return loss;
    lk_value *balance = lk_op_add_scalar(lk_op_mul_scalar(t, 2 * own->alpha - 1), 1 - own->alpha);
    return lk_op_mul(loss, balance);
}

/* 1 for targets that count, in x's dtype; NULL if all of them do. */
static lk_value *counted(const focal_loss *own, lk_value *target, lk_dtype dtype)
{
    if (!own->has_ignore) return NULL;
    lk_value *ignored = lki_scalar_like(target, (double)own->ignore);
    return lk_op_cast(lk_op_not_equal(target, ignored), dtype);
}

static lk_value *focal_reduced(const focal_loss *own, lk_value *each, lk_value *counts)
{
    if (!counts) return lki_reduced(each, own->reduction);
    if (own->reduction == LK_REDUCTION_SUM) return lk_op_sum(lk_op_mul(each, counts), LK_ALL_AXES, false);
    return lki_weighted_mean(each, counts);
}

static lk_value *binary_forward(lk_value *x, lk_value *target, void *context)
{
    const focal_loss *own = context;
    lk_value *t = lki_target_like(x, target);
    if (!t) return NULL;
    lk_value *counts = counted(own, target, lk_value_dtype(x));
    /* What does not count must not be computed with: 255 is no probability. */
    if (counts) t = lk_op_mul(t, counts);
    return focal_reduced(own, focal_each(own, x, t), counts);
}

static lk_value *multi_class_forward(lk_value *x, lk_value *target, void *context)
{
    const focal_loss *own = context;
    lk_shape shape = lk_value_shape(x), of_target = lk_value_shape(target);
    if (shape.rank != 2 || of_target.rank != 1 || of_target.dim[0] != shape.dim[0])
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected logits (samples, classes) and classes (samples), found %s and %s",
                              LKI_SHOW(shape), LKI_SHOW(of_target));
    lk_value *t = lk_op_cast(lk_op_one_hot(target, shape.dim[1]), lk_value_dtype(x));
    lk_value *each = lk_op_sum(focal_each(own, x, t), LK_AXES(1), false);
    return focal_reduced(own, each, counted(own, target, lk_value_dtype(x)));
}

static lk_criterion *create(const char *type, lk_criterion_function forward,
                            const lk_focal_loss_options *given)
{
    LKI_TAKE(lk_focal_loss_options, options, given, NULL);
    focal_loss draft = {.has_ignore = options.has_ignore,
                        .ignore = options.ignore,
                        .reduced = options.reduced,
                        .has_alpha = !options.no_alpha,
                        .gamma = lki_number_or(options.gamma, 2),
                        .alpha = lki_number_or(options.alpha, 0.25),
                        .threshold = lki_number_or(options.threshold, 0.5),
                        .reduction = options.reduction};
    if (lki_check_reduction(type, draft.reduction)) return NULL;
    if (draft.has_ignore && draft.reduction == LK_REDUCTION_NONE)
        return lki_fail_null(LK_ERR_INVALID, "%s: ignore: needs reduction mean or sum", type);
    if (!(draft.gamma >= 0) || isinf(draft.gamma))
        return lki_fail_null(LK_ERR_INVALID, "%s: gamma: expected 0 or more, found %g", type, draft.gamma);
    if (!(draft.alpha >= 0 && draft.alpha <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: alpha: expected 0 to 1, found %g", type, draft.alpha);
    if (!(draft.threshold > 0 && draft.threshold <= 1))
        return lki_fail_null(LK_ERR_INVALID, "%s: threshold: expected more than 0 and at most 1, found %g",
                             type, draft.threshold);
    if (draft.reduced && (lki_number_given(options.alpha) || options.no_alpha))
        return lki_fail_null(LK_ERR_INVALID, "%s: alpha: the reduced loss has none", type);
    if (!draft.reduced && lki_number_given(options.threshold))
        return lki_fail_null(LK_ERR_INVALID, "%s: threshold: only the reduced loss has one", type);
    return lki_contrib_criterion(type, forward, &draft, sizeof draft);
}

lk_criterion *lk_focal_loss_binary_with(const lk_focal_loss_options *options)
{
    return create("FocalLossBinary", binary_forward, options);
}

lk_criterion *lk_focal_loss_multi_class_with(const lk_focal_loss_options *options)
{
    return create("FocalLossMultiClass", multi_class_forward, options);
}
