/* Triplet losses with miners: which triplets of a batch count is found out in the graph itself, by distances
 * through which no gradient flows. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>

/* PyTorch's pairwise distance adds it to each difference. */
static const double DISTANCE_EPS = 1e-6;

typedef struct triplet_loss {
    double margin;
    lk_triplets sampler;
    bool norm_required;
} triplet_loss;

/* Rows of a and b, (n, width) each: the distance of row i of a to row i of b, (n). */
static lk_value *distance(lk_value *a, lk_value *b)
{
    lk_value *difference = lk_op_add_scalar(lk_op_sub(a, b), DISTANCE_EPS);
    return lk_op_norm(difference, 2, LK_AXES(-1), false);
}

/* max(0, d(a, p) - d(a, n) + margin), (n) */
static lk_value *triplet_margin(const triplet_loss *own, lk_value *anchor, lk_value *positive,
                                lk_value *negative)
{
    lk_value *apart = lk_op_sub(distance(anchor, positive), distance(anchor, negative));
    return lk_op_relu(lk_op_add_scalar(apart, own->margin));
}

/* (n, n): how far sample j is from sample i, where `mask` (f32, 1 or 0) allows it, and `otherwise` elsewhere.
 */
static lk_value *masked(lk_value *distances, lk_value *mask, double otherwise)
{
    lk_value *excluded = lk_op_equal(mask, lki_scalar_like(mask, 0));
    return lk_op_masked_fill(distances, excluded, otherwise);
}

/* Whether a row of the mask has any 1: f32 (n). */
static lk_value *any_in_row(lk_value *mask)
{
    return lk_op_max(mask, LK_AXES(1), false);
}

static lk_value *hard_triplets(const triplet_loss *own, lk_value *x, lk_value *labels)
{
    lk_value *same = lki_same_labels(labels, lk_value_dtype(x));
    lk_value *others = lk_op_sub(lk_op_ones_like(same), same);
    lk_value *positives = lk_op_sub(same, lki_identity_like(same));
    lk_value *seen = lk_op_detach(x);
    if (own->norm_required) seen = lki_normalized(seen, 1, 1e-12);
    lk_value *distances = lki_squared_distances(seen, seen);
    lk_value *farthest = lk_op_argmax(masked(distances, positives, -1), 1, false);
    lk_value *nearest = lk_op_argmin(masked(distances, others, INFINITY), 1, false);
    lk_value *loss =
        triplet_margin(own, x, lk_op_index_select(x, 0, farthest), lk_op_index_select(x, 0, nearest));
    return lki_weighted_mean(loss, lk_op_mul(any_in_row(positives), any_in_row(others)));
}

/* Each sample stands for the mean of its class, with a weight that makes all classes count alike. */
static lk_value *hard_clusters(const triplet_loss *own, lk_value *x, lk_value *labels)
{
    lk_value *same = lki_same_labels(labels, lk_value_dtype(x));
    lk_value *others = lk_op_sub(lk_op_ones_like(same), same);
    lk_value *sizes = lk_op_sum(same, LK_AXES(1), false);
    lk_value *means = lk_op_div(lk_op_matmul(same, x), lk_op_unsqueeze(sizes, 1)); /* (n, width) */
    lk_value *seen = lk_op_detach(means);
    lk_value *to_samples = lki_squared_distances(seen, lk_op_detach(x));
    lk_value *farthest = lk_op_argmax(masked(to_samples, same, -1), 1, false);
    lk_value *to_means = lki_squared_distances(seen, seen);
    lk_value *nearest = lk_op_argmin(masked(to_means, others, INFINITY), 1, false);
    lk_value *loss =
        triplet_margin(own, means, lk_op_index_select(x, 0, farthest), lk_op_index_select(means, 0, nearest));
    lk_value *shares = lk_op_div(any_in_row(others), sizes);
    return lki_weighted_mean(loss, shares);
}

/* d(a, p) - d(a, n) for all of (a, p, n): (n, n, n), of which those with a < p of one class and n of another
 * count. */
static lk_value *all_triplets(const triplet_loss *own, lk_value *x, lk_value *labels)
{
    lk_value *same = lki_same_labels(labels, lk_value_dtype(x));
    lk_value *others = lk_op_sub(lk_op_ones_like(same), same);
    lk_value *distances = distance(lk_op_unsqueeze(x, 1), lk_op_unsqueeze(x, 0)); /* (n, n) */
    lk_value *apart = lk_op_sub(lk_op_unsqueeze(distances, 2), lk_op_unsqueeze(distances, 1));
    lk_value *loss = lk_op_relu(lk_op_add_scalar(apart, own->margin));
    lk_value *counts = lk_op_mul(lk_op_unsqueeze(lk_op_triu(same, 1), 2), lk_op_unsqueeze(others, 1));
    return lki_weighted_mean(loss, counts);
}

static lk_value *triplet_forward(lk_value *x, lk_value *labels, void *context)
{
    const triplet_loss *own = context;
    if (lki_check_embeddings(x, labels)) return NULL;
    if (own->sampler == LK_TRIPLETS_HARD) return hard_triplets(own, x, labels);
    return own->sampler == LK_TRIPLETS_ALL ? all_triplets(own, x, labels) : hard_clusters(own, x, labels);
}

lk_criterion *
lk_triplet_margin_loss_with_sampler_with(const lk_triplet_margin_loss_with_sampler_options *given)
{
    LKI_TAKE(lk_triplet_margin_loss_with_sampler_options, options, given, NULL);
    triplet_loss draft = {lki_number_or(options.margin, 1), options.sampler, options.norm_required};
    if (!isfinite(draft.margin))
        return lki_fail_null(LK_ERR_INVALID,
                             "TripletMarginLossWithSampler: margin: expected a number, found %g",
                             draft.margin);
    if ((int)draft.sampler < LK_TRIPLETS_ALL || draft.sampler > LK_TRIPLETS_HARD_CLUSTER)
        return lki_fail_null(LK_ERR_INVALID,
                             "TripletMarginLossWithSampler: sampler: expected one of "
                             "lk_triplets, found %d",
                             (int)draft.sampler);
    if (draft.norm_required && draft.sampler != LK_TRIPLETS_HARD)
        return lki_fail_null(LK_ERR_INVALID,
                             "TripletMarginLossWithSampler: norm_required is for LK_TRIPLETS_HARD alone");
    return lki_contrib_criterion("TripletMarginLossWithSampler", triplet_forward, &draft, sizeof draft);
}
