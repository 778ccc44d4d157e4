/* Losses of how much of two regions is common: Dice, IoU, Trevsky. */
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

typedef enum region_score { SCORE_DICE, SCORE_SMOOTHING_DICE, SCORE_IOU, SCORE_TREVSKY } region_score;

typedef struct region_loss {
    region_score score;
    lk_region_mode mode;
    double eps, alpha, beta;
    double gamma; /* 0: not of each sample by itself */
    int64_t class_dim;
    lk_tensor *weights; /* (classes), owned */
} region_loss;

static void free_region_loss(void *context)
{
    region_loss *own = context;
    lk_tensor_free(own->weights);
    lki_free(own);
}

/* The sums over everything but the classes, (classes); of each sample by itself, (samples, classes). */
static lk_value *sum_per_class(const region_loss *own, lk_value *x, int class_axis)
{
    int axes[LK_MAX_DIMS], count = 0;
    if (!x) return NULL;
    for (int axis = 0; axis < lk_value_shape(x).rank; axis++)
        if (axis != class_axis && !(own->gamma != 0 && axis == 0)) axes[count++] = axis;
    if (count == 0) return x;
    return lk_op_sum(x, axes, count, false);
}

static lk_value *one_minus(lk_value *x)
{
    return lk_op_add_scalar(lk_op_neg(x), 1);
}

/* What the sums of one kind are: those of the classes, or of all of them together. */
static lk_value *joined(const region_loss *own, lk_value *per_class)
{
    return own->mode == LK_REGION_MICRO ? lk_op_sum(per_class, LK_AXES(-1), true) : per_class;
}

static lk_value *smoothing_dice(const region_loss *own, lk_value *x, lk_value *t, int class_axis)
{
    lk_value *tp = joined(own, sum_per_class(own, lk_op_mul(x, t), class_axis));
    lk_value *of_x = joined(own, sum_per_class(own, lk_op_mul(x, x), class_axis));
    lk_value *of_t = joined(own, sum_per_class(own, lk_op_mul(t, t), class_axis));
    return lk_op_div(lk_op_mul_scalar(tp, 2), lk_op_add_scalar(lk_op_add(of_x, of_t), own->eps));
}

/* (a tp + eps [nothing there]) / (a tp + b fp + c fn + eps) */
static lk_value *region_score_of(const region_loss *own, lk_value *x, lk_value *t, int class_axis)
{
    if (own->score == SCORE_SMOOTHING_DICE) return smoothing_dice(own, x, t, class_axis);
    lk_value *tp = joined(own, sum_per_class(own, lk_op_mul(x, t), class_axis));
    lk_value *fp = joined(own, sum_per_class(own, lk_op_mul(x, one_minus(t)), class_axis));
    lk_value *fn = joined(own, sum_per_class(own, lk_op_mul(t, one_minus(x)), class_axis));
    lk_value *all = lk_op_add(lk_op_add(tp, fp), fn);
    if (!all) return NULL;
    lk_value *nothing = lk_op_cast(lk_op_equal(all, lki_scalar_like(all, 0)), lk_value_dtype(all));
    lk_value *top = lki_scaled(tp, own->score == SCORE_DICE ? 2 : 1);
    lk_value *errors = lk_op_add(lki_scaled(fp, own->beta), lki_scaled(fn, own->alpha));
    lk_value *bottom = lk_op_add_scalar(lk_op_add(top, errors), own->eps);
    return lk_op_div(lk_op_add(top, lk_op_mul_scalar(nothing, own->eps)), bottom);
}

static lk_value *mode_of(const region_loss *own, lk_value *score)
{
    if (own->mode != LK_REGION_WEIGHTED) return lk_op_mean(score, LK_AXES(-1), false);
    if (!score) return NULL;
    int64_t classes = lk_value_shape(score).dim[lk_value_shape(score).rank - 1];
    if (own->weights->shape.dim[0] != classes)
        return lki_graph_fail(lk_value_graph(score), LK_ERR_SHAPE, "weights: %lld numbers for %lld classes",
                              (long long)own->weights->shape.dim[0], (long long)classes);
    lk_value *weights = lk_graph_constant(lk_value_graph(score), own->weights);
    if (lk_value_dtype(score) != LK_F32) weights = lk_op_cast(weights, lk_value_dtype(score));
    return lk_op_sum(lk_op_mul(score, weights), LK_AXES(-1), false);
}

static lk_value *region_forward(lk_value *x, lk_value *target, void *context)
{
    const region_loss *own = context;
    lk_value *t = lki_target_like(x, target);
    if (!t) return NULL;
    int rank = lk_value_shape(x).rank;
    int64_t class_axis = own->class_dim < 0 ? own->class_dim + rank : own->class_dim;
    int64_t first = own->gamma != 0 ? 1 : 0;
    if (class_axis < first || class_axis >= rank)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "class_dim: there are no classes along axis %lld of %s",
                              (long long)own->class_dim, LKI_SHOW(lk_value_shape(x)));
    lk_value *loss = one_minus(mode_of(own, region_score_of(own, x, t, (int)class_axis)));
    if (own->gamma == 0) return loss;
    return lk_op_mean(lk_op_pow_scalar(loss, own->gamma), LK_ALL_AXES, false);
}

static lk_status check_options(const char *type, const lk_region_loss_options *options, double eps)
{
    if ((int)options->mode < LK_REGION_MACRO || options->mode > LK_REGION_WEIGHTED)
        return lki_fail(LK_ERR_INVALID, "%s: mode: expected one of lk_region_mode, found %d", type,
                        (int)options->mode);
    bool has_weights = options->weights && options->weight_count > 0;
    if (has_weights != (options->mode == LK_REGION_WEIGHTED))
        return lki_fail(LK_ERR_INVALID,
                        "%s: weights: mode weighted needs a number per class, and no other "
                        "mode takes them",
                        type);
    for (int i = 0; has_weights && i < options->weight_count; i++)
        if (!isfinite(options->weights[i]))
            return lki_fail(LK_ERR_INVALID, "%s: weights: expected finite numbers, found %g", type,
                            options->weights[i]);
    if (!(eps >= 0) || isinf(eps))
        return lki_fail(LK_ERR_INVALID, "%s: eps: expected 0 or more, found %g", type, eps);
    return LK_OK;
}

static lk_status take_trevsky(const char *type, const lk_region_loss_options *options, region_loss *draft)
{
    if (!lki_number_given(options->alpha) || !(options->alpha > 0 && options->alpha < 1))
        return lki_fail(LK_ERR_INVALID, "%s: alpha: expected a number between 0 and 1, found %g", type,
                        options->alpha);
    draft->alpha = options->alpha;
    draft->beta = lki_number_or(options->beta, 1 - options->alpha);
    if (!(draft->beta > 0 && draft->beta < 1))
        return lki_fail(LK_ERR_INVALID, "%s: beta: expected a number between 0 and 1, found %g", type,
                        draft->beta);
    return LK_OK;
}

static lk_criterion *create(const char *type, const lk_region_loss_options *given, region_loss draft,
                            bool is_focal)
{
    LKI_TAKE(lk_region_loss_options, options, given, NULL);
    draft.eps = lki_number_or(options.eps, 1e-7);
    draft.mode = options.mode;
    if (check_options(type, &options, draft.eps)) return NULL;
    if (lki_whole_or(options.class_dim, 1, type, "class_dim", &draft.class_dim)) return NULL;
    if (draft.score == SCORE_TREVSKY) {
        if (take_trevsky(type, &options, &draft)) return NULL;
    } else if (lki_number_given(options.alpha) || lki_number_given(options.beta)) {
        return lki_fail_null(LK_ERR_INVALID, "%s: alpha and beta belong to TrevskyLoss", type);
    }
    if (!is_focal && lki_number_given(options.gamma))
        return lki_fail_null(LK_ERR_INVALID, "%s: gamma belongs to FocalTrevskyLoss", type);
    if (is_focal) draft.gamma = lki_number_or(options.gamma, 4.0 / 3);
    if (is_focal && !(draft.gamma > 0))
        return lki_fail_null(LK_ERR_INVALID, "%s: gamma: expected more than 0, found %g", type, draft.gamma);
    if (draft.mode == LK_REGION_WEIGHTED) {
        draft.weights = lk_tensor_create(LK_F32, LK_SHAPE(options.weight_count));
        if (!draft.weights) return NULL;
        for (int i = 0; i < options.weight_count; i++) lk_tensor_set(draft.weights, i, options.weights[i]);
    }
    region_loss *own = LKI_NEW(region_loss);
    if (!own) {
        lk_tensor_free(draft.weights);
        return NULL;
    }
    *own = draft;
    return lk_custom_criterion(.type = type, .forward = region_forward, .context = own,
                               .free_context = free_region_loss);
}

lk_criterion *lk_dice_loss_with(const lk_region_loss_options *options)
{
    return create("DiceLoss", options, (region_loss){.score = SCORE_DICE, .alpha = 1, .beta = 1}, false);
}

lk_criterion *lk_smoothing_dice_loss_with(const lk_region_loss_options *options)
{
    return create("SmoothingDiceLoss", options, (region_loss){.score = SCORE_SMOOTHING_DICE}, false);
}

lk_criterion *lk_iou_loss_with(const lk_region_loss_options *options)
{
    return create("IoULoss", options, (region_loss){.score = SCORE_IOU, .alpha = 1, .beta = 1}, false);
}

lk_criterion *lk_trevsky_loss_with(const lk_region_loss_options *options)
{
    return create("TrevskyLoss", options, (region_loss){.score = SCORE_TREVSKY}, false);
}

lk_criterion *lk_focal_trevsky_loss_with(const lk_region_loss_options *options)
{
    return create("FocalTrevskyLoss", options, (region_loss){.score = SCORE_TREVSKY}, true);
}
