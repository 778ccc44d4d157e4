/* Losses that are compositions of a few ops. */
#include <lockstep/nn.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"
#include "nn/module.h"

#include <math.h>

typedef struct loss {
    lk_reduction reduction;
    lk_tensor *weight; /* owned; NULL for none */
    double margin, eps;
    bool log_input, full, squared;
} loss;

static void free_loss(void *context)
{
    loss *own = context;
    lk_tensor_free(own->weight);
    lki_free(own);
}

static lk_status check_weight(const char *type, const lk_tensor *weight)
{
    if (weight && weight->shape.rank != 1)
        return lki_fail(LK_ERR_SHAPE, "%s: weight: expected one number per class, found a tensor of %d axes",
                        type, weight->shape.rank);
    for (int64_t i = 0; weight && i < lk_tensor_count(weight); i++)
        if (!isfinite(lk_tensor_get(weight, i)))
            return lki_fail(LK_ERR_INVALID, "%s: weight: expected finite numbers, found %g", type,
                            lk_tensor_get(weight, i));
    return LK_OK;
}

/* Takes a copy of the weight of `draft`. */
static lk_criterion *create(const char *type, lk_criterion_function forward, loss draft)
{
    if ((int)draft.reduction < LK_REDUCTION_MEAN || draft.reduction > LK_REDUCTION_NONE)
        return lki_fail_null(LK_ERR_INVALID, "%s: reduction: expected mean, sum or none", type);
    if (!isfinite(draft.margin))
        return lki_fail_null(LK_ERR_INVALID, "%s: margin: expected a number, found %g", type, draft.margin);
    if (check_weight(type, draft.weight)) return NULL;
    loss *own = LKI_NEW(loss);
    if (!own) return NULL;
    *own = draft;
    own->weight = draft.weight ? lk_tensor_cast(draft.weight, LK_F32) : NULL;
    if (draft.weight && !own->weight) {
        lki_free(own);
        return NULL;
    }
    return lk_custom_criterion(.type = type, .forward = forward, .context = own, .free_context = free_loss);
}

static lk_value *reduced(const loss *own, lk_value *each)
{
    if (own->reduction == LK_REDUCTION_NONE) return each;
    return own->reduction == LK_REDUCTION_SUM ? lk_op_sum(each, LK_ALL_AXES, false)
                                              : lk_op_mean(each, LK_ALL_AXES, false);
}

/* The target in x's dtype, and of x's shape. */
static lk_value *like(lk_value *x, lk_value *target)
{
    char mine[128], theirs[128];
    if (!lk_shape_equal(lk_value_shape(x), lk_value_shape(target)))
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "the prediction is %s and the target %s",
                              lk_shape_format(mine, sizeof mine, lk_value_shape(x)),
                              lk_shape_format(theirs, sizeof theirs, lk_value_shape(target)));
    return lk_value_dtype(target) == lk_value_dtype(x) ? target : lk_op_cast(target, lk_value_dtype(x));
}

/* One number per class, (classes), in x's dtype. */
static lk_value *class_weight(const loss *own, lk_value *x)
{
    lk_value *weight = lk_graph_constant(lk_value_graph(x), own->weight);
    return lk_value_dtype(x) == LK_F32 ? weight : lk_op_cast(weight, lk_value_dtype(x));
}

/* log(1 + exp(-t x)), with targets of 1 and -1. */
static lk_value *soft_margin_forward(lk_value *x, lk_value *target, void *context)
{
    target = like(x, target);
    return reduced(context, lk_op_softplus(lk_op_neg(lk_op_mul(target, x)), 1, 20));
}

lk_criterion *lk_soft_margin_loss_with(const lk_margin_loss_options *given)
{
    LKI_TAKE(lk_margin_loss_options, options, given, NULL);
    if (options.margin != 0) return lki_fail_null(LK_ERR_INVALID, "SoftMarginLoss: it has no margin");
    return create("SoftMarginLoss", soft_margin_forward, (loss){.reduction = options.reduction});
}

/* x for a target of 1, max(0, margin - x) for one of -1. */
static lk_value *hinge_embedding_forward(lk_value *x, lk_value *target, void *context)
{
    const loss *own = context;
    target = like(x, target);
    if (!target) return NULL;
    lk_value *zero = lki_scalar_like(x, 0);
    lk_value *apart = lk_op_clamp(lk_op_add_scalar(lk_op_neg(x), own->margin), 0, INFINITY);
    lk_value *far = lk_op_where(lk_op_equal(target, lki_scalar_like(x, 1)), zero, apart);
    lk_value *near = lk_op_where(lk_op_equal(target, lki_scalar_like(x, -1)), zero, x);
    return reduced(own, lk_op_add(far, near));
}

lk_criterion *lk_hinge_embedding_loss_with(const lk_margin_loss_options *given)
{
    LKI_TAKE(lk_margin_loss_options, options, given, NULL);
    return create("HingeEmbeddingLoss", hinge_embedding_forward,
                  (loss){.reduction = options.reduction, .margin = lki_number_or(options.margin, 1)});
}

/* exp(x) - t x, or x - t log(x + eps); with Stirling's formula for the rest where t > 1. */
static lk_value *poisson_nll_forward(lk_value *x, lk_value *target, void *context)
{
    const loss *own = context;
    target = like(x, target);
    if (!target) return NULL;
    lk_value *each = own->log_input
                         ? lk_op_sub(lk_op_exp(x), lk_op_mul(target, x))
                         : lk_op_sub(x, lk_op_mul(target, lk_op_log(lk_op_add_scalar(x, own->eps))));
    if (own->full) {
        lk_value *one = lki_scalar_like(x, 1), *t = lk_op_maximum(target, one);
        lk_value *rest = lk_op_sub(lk_op_mul(t, lk_op_log(t)), t);
        rest = lk_op_add(rest, lk_op_mul_scalar(lk_op_log(lk_op_mul_scalar(t, 2 * M_PI)), 0.5));
        each = lk_op_add(each, lk_op_where(lk_op_greater(target, one), rest, lki_scalar_like(x, 0)));
    }
    return reduced(own, each);
}

lk_criterion *lk_poisson_nll_loss_with(const lk_poisson_nll_loss_options *given)
{
    LKI_TAKE(lk_poisson_nll_loss_options, options, given, NULL);
    double eps = lki_number_or(options.eps, 1e-8);
    if (!(eps >= 0) || isinf(eps))
        return lki_fail_null(LK_ERR_INVALID, "PoissonNLLLoss: eps: expected 0 or more, found %g", eps);
    return create("PoissonNLLLoss", poisson_nll_forward,
                  (loss){.reduction = options.reduction,
                         .eps = eps,
                         .log_input = !options.no_log_input,
                         .full = options.full});
}

/* The mean over the classes of bce_with_logits. */
static lk_value *multi_label_soft_margin_forward(lk_value *x, lk_value *target, void *context)
{
    const loss *own = context;
    target = like(x, target);
    if (!target) return NULL;
    lk_value *weight = own->weight ? lk_op_expand(class_weight(own, x), lk_value_shape(x)) : NULL;
    lk_value *each =
        lk_op_pointwise_loss(x, target, weight, NULL, LK_LOSS_BCE_WITH_LOGITS, 0, LK_REDUCTION_NONE);
    return reduced(own, lk_op_mean(each, LK_AXES(-1), false));
}

lk_criterion *lk_multi_label_soft_margin_loss_with(const lk_multi_margin_loss_options *given)
{
    LKI_TAKE(lk_multi_margin_loss_options, options, given, NULL);
    if (options.margin != 0 || options.p)
        return lki_fail_null(LK_ERR_INVALID, "MultiLabelSoftMarginLoss: it has no margin and no p");
    return create("MultiLabelSoftMarginLoss", multi_label_soft_margin_forward,
                  (loss){.reduction = options.reduction, .weight = (lk_tensor *)options.weight});
}

/* The mean over the classes i of max(0, margin - x_y + x_i)^p without i = y, times the weight of y. That one
 * would be max(0, margin)^p whatever x is, so it is taken off the sum. */
static lk_value *multi_margin_forward(lk_value *x, lk_value *target, void *context)
{
    const loss *own = context;
    lk_shape shape = lk_value_shape(x), of_target = lk_value_shape(target);
    if (shape.rank != 2 || of_target.rank != 1 || of_target.dim[0] != shape.dim[0] ||
        lk_value_dtype(target) != LK_I64) {
        char mine[128], theirs[128];
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected a prediction of (N, C) and i64 classes of (N), found %s and %s",
                              lk_shape_format(mine, sizeof mine, shape),
                              lk_shape_format(theirs, sizeof theirs, of_target));
    }
    lk_value *index = lk_op_reshape(target, LK_SHAPE(shape.dim[0], 1));
    lk_value *right = lk_op_gather(x, 1, index);
    lk_value *each = lk_op_relu(lk_op_add_scalar(lk_op_sub(x, right), own->margin));
    double margin = own->margin > 0 ? own->margin : 0;
    if (own->squared) each = lk_op_mul(each, each);
    lk_value *sum =
        lk_op_add_scalar(lk_op_sum(each, LK_AXES(1), true), own->squared ? -margin * margin : -margin);
    if (own->weight) sum = lk_op_mul(sum, lk_op_gather(lk_op_expand(class_weight(own, x), shape), 1, index));
    sum = lk_op_mul_scalar(sum, 1 / (double)shape.dim[1]);
    return reduced(own, lk_op_reshape(sum, of_target));
}

lk_criterion *lk_multi_margin_loss_with(const lk_multi_margin_loss_options *given)
{
    LKI_TAKE(lk_multi_margin_loss_options, options, given, NULL);
    if (options.p < 0 || options.p > 2)
        return lki_fail_null(LK_ERR_INVALID, "MultiMarginLoss: p: expected 1 or 2, found %d", options.p);
    return create("MultiMarginLoss", multi_margin_forward,
                  (loss){.reduction = options.reduction,
                         .margin = lki_number_or(options.margin, 1),
                         .squared = options.p == 2,
                         .weight = (lk_tensor *)options.weight});
}
