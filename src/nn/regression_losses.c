/* catalyst.contrib's losses of regression, and its cross-entropies. */
#include <lockstep/contrib.h>

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/embeddings.h"

#include <math.h>
#include <string.h>

typedef struct contrib_loss {
    double delta, width, curvature, alpha, beta;
    int num_atoms;
    bool sums;
    lk_reduction reduction;
} contrib_loss;

/* 0.5 min(|d|, delta)^2 + delta (|d| - min(|d|, delta)) */
static lk_value *huber_each(lk_value *difference, double delta)
{
    lk_value *size = lk_op_abs(difference);
    lk_value *quadratic = lk_op_clamp(size, -INFINITY, delta);
    lk_value *linear = lk_op_mul_scalar(lk_op_sub(size, quadratic), delta);
    return lk_op_add(lk_op_mul_scalar(lk_op_mul(quadratic, quadratic), 0.5), linear);
}

static lk_value *huber_forward(lk_value *x, lk_value *target, void *context)
{
    const contrib_loss *own = context;
    lk_value *each = huber_each(lk_op_sub(lki_target_like(x, target), x), own->delta);
    if (each && lk_value_shape(each).rank < 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected (samples, numbers, ...), found %s",
                              LKI_SHOW(lk_value_shape(each)));
    return lki_reduced(lk_op_mean(each, LK_AXES(1), false), own->reduction);
}

/* |tau_i - [t_j < x_i]| huber(t_j - x_i) / atoms, the mean over i, j and the samples. */
static lk_value *quantile_forward(lk_value *x, lk_value *target, void *context)
{
    const contrib_loss *own = context;
    lk_value *t = lki_target_like(x, target);
    if (!t) return NULL;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank != 2 || shape.dim[1] != own->num_atoms)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected (samples, %d atoms), found %s",
                              own->num_atoms, LKI_SHOW(shape));
    double atoms = own->num_atoms, low = 1 / (2 * atoms);
    double step = atoms > 1 ? (1 - 2 * low) / (atoms - 1) : 0;
    lk_value *difference = lk_op_sub(lk_op_unsqueeze(t, 1), lk_op_unsqueeze(x, 2)); /* (n, i, j) */
    if (!difference) return NULL;
    lk_value *below = lk_op_less(difference, lki_scalar_like(difference, 0));
    lk_value *place = lk_op_arange(lk_value_graph(x), 0, atoms, 1, lk_value_dtype(x));
    lk_value *tau = lk_op_add_scalar(lk_op_mul_scalar(place, step), low);
    tau = lk_op_reshape(tau, LK_SHAPE(1, own->num_atoms, 1));
    lk_value *weights = lk_op_abs(lk_op_sub(tau, lk_op_cast(below, lk_value_dtype(x))));
    lk_value *loss = lk_op_mul(huber_each(difference, own->delta), weights);
    return lk_op_mul_scalar(lk_op_mean(loss, LK_ALL_AXES, false), 1 / atoms);
}

/* w log(1 + |d| / c) below w, and |d| - w + w log(1 + w / c) beyond. */
static lk_value *wing_forward(lk_value *x, lk_value *target, void *context)
{
    const contrib_loss *own = context;
    lk_value *size = lk_op_abs(lk_op_sub(lki_target_like(x, target), x));
    if (!size) return NULL;
    double shift = own->width - own->width * log(1 + own->width / own->curvature);
    lk_value *inner = lk_op_log(lk_op_add_scalar(lk_op_mul_scalar(size, 1 / own->curvature), 1));
    lk_value *is_near = lk_op_less(size, lki_scalar_like(size, own->width));
    lk_value *each =
        lk_op_where(is_near, lk_op_mul_scalar(inner, own->width), lk_op_add_scalar(size, -shift));
    return lki_reduced(each, own->reduction);
}

static lk_value *r_square_forward(lk_value *x, lk_value *target, void *context)
{
    (void)context;
    lk_value *t = lki_target_like(x, target);
    lk_value *error = lk_op_pointwise_loss(x, t, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
    lk_value *share = lk_op_div(error, lk_op_var(t, LK_ALL_AXES, false, 0));
    return lk_op_add_scalar(lk_op_neg(share), 1);
}

enum { HAS_DELTA = 1, HAS_ATOMS = 2, HAS_WING = 4, HAS_REDUCTION = 8 };

static lk_status check_positive(const char *type, const char *name, double value)
{
    if (value > 0 && !isinf(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected more than 0, found %g", type, name, value);
}

static lk_status check_others(const char *type, const lk_contrib_regression_options *options, unsigned has)
{
    const char *what = NULL;
    if (!(has & HAS_DELTA) && lki_number_given(options->clip_delta)) what = "clip_delta";
    if (!(has & HAS_ATOMS) && options->num_atoms) what = "num_atoms";
    if (!(has & HAS_WING) && lki_number_given(options->width)) what = "width";
    if (!(has & HAS_WING) && lki_number_given(options->curvature)) what = "curvature";
    if (!(has & HAS_REDUCTION) && options->reduction) what = "reduction";
    return what ? lki_fail(LK_ERR_INVALID, "%s: it has no %s", type, what) : LK_OK;
}

static lk_criterion *create(const char *type, lk_criterion_function forward, unsigned has,
                            const lk_contrib_regression_options *given)
{
    LKI_TAKE(lk_contrib_regression_options, options, given, NULL);
    contrib_loss draft = {.delta = lki_number_or(options.clip_delta, 1),
                          .width = lki_number_or(options.width, 5),
                          .curvature = lki_number_or(options.curvature, 0.5),
                          .num_atoms = options.num_atoms ? options.num_atoms : 51,
                          .reduction = options.reduction};
    if (check_others(type, &options, has) || lki_check_reduction(type, draft.reduction)) return NULL;
    if (check_positive(type, "clip_delta", draft.delta) || check_positive(type, "width", draft.width) ||
        check_positive(type, "curvature", draft.curvature) ||
        check_positive(type, "num_atoms", draft.num_atoms))
        return NULL;
    return lki_contrib_criterion(type, forward, &draft, sizeof draft);
}

lk_criterion *lk_huber_loss_v0_with(const lk_contrib_regression_options *options)
{
    return create("HuberLossV0", huber_forward, HAS_DELTA | HAS_REDUCTION, options);
}

lk_criterion *lk_quantile_regression_loss_with(const lk_contrib_regression_options *options)
{
    return create("QuantileRegressionLoss", quantile_forward, HAS_DELTA | HAS_ATOMS, options);
}

lk_criterion *lk_wing_loss_with(const lk_contrib_regression_options *options)
{
    return create("WingLoss", wing_forward, HAS_WING | HAS_REDUCTION, options);
}

lk_criterion *lk_r_square_loss(void)
{
    return lki_contrib_criterion("RSquareLoss", r_square_forward, NULL, 0);
}

/* ---- Cross-entropies ---- */

static lk_value *naive_forward(lk_value *x, lk_value *target, void *context)
{
    const contrib_loss *own = context;
    lk_value *t = lki_target_like(x, target);
    if (t && lk_value_shape(x).rank != 2)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected (samples, classes), found %s",
                              LKI_SHOW(lk_value_shape(x)));
    lk_value *sum = lk_op_neg(lk_op_sum(lk_op_mul(lk_op_log_softmax(x, 1), t), LK_ALL_AXES, false));
    return own->sums || !sum ? sum : lk_op_mul_scalar(sum, 1.0 / (double)lk_value_shape(x).dim[0]);
}

static lk_value *symmetric_forward(lk_value *x, lk_value *target, void *context)
{
    const contrib_loss *own = context;
    lk_shape shape = lk_value_shape(x), of_target = lk_value_shape(target);
    if (shape.rank != 2 || of_target.rank != 1 || of_target.dim[0] != shape.dim[0])
        return lki_graph_fail(
            lk_value_graph(x), LK_ERR_SHAPE,
            "expected probabilities (samples, classes) and classes (samples), found %s and %s",
            LKI_SHOW(shape), LKI_SHOW(of_target));
    lk_value *p = lk_op_clamp(x, 1e-7, 1);
    lk_value *t = lk_op_cast(lk_op_one_hot(target, shape.dim[1]), lk_value_dtype(x));
    t = lk_op_clamp(t, 1e-4, 1);
    lk_value *there = lk_op_mul_scalar(lk_op_mul(t, lk_op_log(p)), own->alpha);
    lk_value *back = lk_op_mul_scalar(lk_op_mul(p, lk_op_log(t)), own->beta);
    lk_value *each = lk_op_sum(lk_op_add(there, back), LK_AXES(1), false);
    return lk_op_neg(lk_op_mean(each, LK_ALL_AXES, false));
}

lk_criterion *lk_naive_cross_entropy_loss_with(const lk_contrib_entropy_options *given)
{
    LKI_TAKE(lk_contrib_entropy_options, options, given, NULL);
    if (lki_number_given(options.alpha) || lki_number_given(options.beta))
        return lki_fail_null(LK_ERR_INVALID,
                             "NaiveCrossEntropyLoss: alpha and beta belong to SymmetricCrossEntropyLoss");
    contrib_loss draft = {.sums = options.no_size_average};
    return lki_contrib_criterion("NaiveCrossEntropyLoss", naive_forward, &draft, sizeof draft);
}

lk_criterion *lk_symmetric_cross_entropy_loss_with(const lk_contrib_entropy_options *given)
{
    LKI_TAKE(lk_contrib_entropy_options, options, given, NULL);
    contrib_loss draft = {.alpha = lki_number_or(options.alpha, 1), .beta = lki_number_or(options.beta, 1)};
    if (options.no_size_average)
        return lki_fail_null(LK_ERR_INVALID,
                             "SymmetricCrossEntropyLoss: no_size_average belongs to NaiveCrossEntropyLoss");
    if (!isfinite(draft.alpha) || !isfinite(draft.beta))
        return lki_fail_null(LK_ERR_INVALID,
                             "SymmetricCrossEntropyLoss: alpha and beta: expected numbers, found %g and %g",
                             draft.alpha, draft.beta);
    return lki_contrib_criterion("SymmetricCrossEntropyLoss", symmetric_forward, &draft, sizeof draft);
}

static lk_value *mean_output_forward(lk_value *x, lk_value *target, void *context)
{
    (void)target, (void)context;
    return lk_op_mean(x, LK_ALL_AXES, false);
}

lk_criterion *lk_mean_output_loss(void)
{
    return lki_contrib_criterion("MeanOutputLoss", mean_output_forward, NULL, 0);
}
