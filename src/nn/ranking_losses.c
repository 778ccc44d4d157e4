/* Losses of recommendations: scores of what was chosen above scores of what was not. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

typedef struct ranking_loss {
    double gamma;
    int64_t max_num_trials;
} ranking_loss;

static lk_value *bpr_forward(lk_value *positive, lk_value *negative, void *context)
{
    const ranking_loss *own = context;
    lk_value *ahead = lk_op_sub(positive, lki_target_like(positive, negative));
    lk_value *each = lk_op_log(lk_op_add_scalar(lk_op_sigmoid(ahead), own->gamma));
    return lk_op_neg(lk_op_mean(each, LK_ALL_AXES, false));
}

lk_criterion *lk_bpr_loss_with(const lk_bpr_loss_options *given)
{
    LKI_TAKE(lk_bpr_loss_options, options, given, NULL);
    ranking_loss draft = {.gamma = lki_number_or(options.gamma, 1e-10)};
    if (!(draft.gamma >= 0) || isinf(draft.gamma))
        return lki_fail_null(LK_ERR_INVALID, "BPRLoss: gamma: expected 0 or more, found %g", draft.gamma);
    return lki_contrib_criterion("BPRLoss", bpr_forward, &draft, sizeof draft);
}

static lk_value *logistic_forward(lk_value *positive, lk_value *negative, void *context)
{
    (void)context;
    lk_value *wrong = lk_op_sigmoid(lki_target_like(positive, negative));
    lk_value *each = lk_op_add(lk_op_add_scalar(lk_op_neg(lk_op_sigmoid(positive)), 1), wrong);
    return lk_op_mean(each, LK_ALL_AXES, false);
}

lk_criterion *lk_logistic_loss(void)
{
    return lki_contrib_criterion("LogisticLoss", logistic_forward, NULL, 0);
}

static lk_value *hinge_forward(lk_value *positive, lk_value *negative, void *context)
{
    (void)context;
    lk_value *behind = lk_op_sub(lki_target_like(positive, negative), positive);
    return lk_op_mean(lk_op_relu(lk_op_add_scalar(behind, 1)), LK_ALL_AXES, false);
}

lk_criterion *lk_hinge_loss(void)
{
    return lki_contrib_criterion("HingeLoss", hinge_forward, NULL, 0);
}

static lk_value *adaptive_hinge_forward(lk_value *positive, lk_value *negatives, void *context)
{
    if (lk_value_shape(negatives).rank < 1)
        return lki_graph_fail(lk_value_graph(positive), LK_ERR_SHAPE,
                              "expected scores of negatives (negatives, ...), found a single number");
    return hinge_forward(positive, lk_op_max(negatives, LK_AXES(0), false), context);
}

lk_criterion *lk_adaptive_hinge_loss(void)
{
    return lki_contrib_criterion("AdaptiveHingeLoss", adaptive_hinge_forward, NULL, 0);
}

/* ---- WARP ---- */

/* (samples, 1): x at the place of the index. */
static lk_value *at(lk_value *x, lk_value *index)
{
    return lk_op_gather(x, 1, index);
}

static lk_value *warp_forward(lk_value *x, lk_value *target, void *context)
{
    const ranking_loss *own = context;
    lk_value *t = lki_target_like(x, target);
    if (!t) return NULL;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != 2 || shape.dim[1] < 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected scores (samples, labels) of at least 2 labels, found %s",
                              LKI_SHOW(shape));
    int64_t labels = shape.dim[1];
    int64_t trials =
        own->max_num_trials > 0 && own->max_num_trials < labels ? own->max_num_trials : labels - 1;
    lk_dtype dtype = lk_value_dtype(x);
    lk_value *wanted = lk_op_cast(lk_op_not_equal(t, lki_scalar_like(t, 0)), dtype);
    lk_value *positive = lk_op_argmax(wanted, 1, true); /* (samples, 1): the first 1 */
    /* Negatives in the order in which they are drawn; the positive comes last. */
    lk_value *keys = lk_op_uniform(lk_value_graph(x), shape, 0, 1, dtype);
    lk_value *twos = lk_op_full_like(lk_op_slice(keys, 1, 0, 1, 1), 2);
    lk_value *order = lk_op_argsort(lk_op_scatter(keys, 1, positive, twos), 1, false);
    order = lk_op_slice(order, 1, 0, trials, 1);
    lk_value *ahead = lk_op_add_scalar(lk_op_sub(at(x, order), at(x, positive)), 1);
    lk_value *seen = lk_op_detach(ahead);
    if (!seen) return NULL;
    lk_value *violates = lk_op_cast(lk_op_greater_equal(seen, lki_scalar_like(seen, 0)), dtype);
    lk_value *first = lk_op_argmax(violates, 1, true);
    /* Whether there is one, and a row without a positive has none. */
    lk_value *any = lk_op_mul(at(violates, first), lk_op_max(wanted, LK_AXES(1), true));
    lk_value *tried = lk_op_add_scalar(lk_op_cast(first, dtype), 1);
    lk_value *whole = lk_op_full_like(tried, (double)(labels - 1));
    lk_value *weight = lk_op_mul(lk_op_log(lk_op_floor(lk_op_div(whole, tried))), any);
    return lk_op_sum(lk_op_mul(lk_op_detach(weight), at(ahead, first)), LK_ALL_AXES, false);
}

lk_criterion *lk_warp_loss_with(const lk_warp_loss_options *given)
{
    LKI_TAKE(lk_warp_loss_options, options, given, NULL);
    if (options.max_num_trials < 0)
        return lki_fail_null(LK_ERR_INVALID, "WARPLoss: max_num_trials: expected at least 1, found %lld",
                             (long long)options.max_num_trials);
    ranking_loss draft = {.max_num_trials = options.max_num_trials};
    return lki_contrib_criterion("WARPLoss", warp_forward, &draft, sizeof draft);
}
