/* Cases of the losses: every reduction, weights, label smoothing, ignored and soft targets. */
#include "case.h"

#include <stdio.h>

/* The shape of one loss a sample: (n, s...). */
static lk_shape samples_of(lk_shape logits)
{
    lk_shape shape = LK_SHAPE(logits.dim[0]);
    for (int i = 2; i < logits.rank; i++) shape.dim[shape.rank++] = logits.dim[i];
    return shape;
}

typedef struct class_loss {
    lk_shape logits;
    lk_reduction reduction;
    double smoothing;
    bool weighted, soft;
} class_loss;

/* The target and the weight, as operands of `c`. Every fifth target is ignored. */
static void add_targets(lkt_case *c, const class_loss *v)
{
    if (v->soft) {
        lk_tensor *target = lkt_in_f32(c, v->logits, LKT_UNIT);
        int64_t count = lk_tensor_count(target);
        for (int64_t i = 0; i < count; i++)
            lk_tensor_set(target, i, lk_tensor_get(target, i) / (double)v->logits.dim[1]);
    } else {
        lk_tensor *target = lkt_in_index(c, samples_of(v->logits), v->logits.dim[1]);
        int64_t count = lk_tensor_count(target);
        for (int64_t i = 1; i < count; i += 5) lk_tensor_set(target, i, -100);
    }
    if (v->weighted)
        lkt_in_f32(c, LK_SHAPE(v->logits.dim[1]), LKT_POSITIVE);
    else
        lkt_in_absent(c);
}

static void set_attributes(lkt_case *c, const class_loss *v)
{
    c->attr.class_loss = (lk_class_loss_attr){
        .reduction = v->reduction, .ignore_index = -100, .label_smoothing = v->smoothing};
}

static lk_shape loss_shape(const class_loss *v)
{
    return v->reduction == LK_REDUCTION_NONE ? samples_of(v->logits) : lk_scalar_shape();
}

static void class_losses(lkt_case_list *list, const class_loss *v)
{
    char text[96], shape[64];
    snprintf(text, sizeof text, "%s reduction %d smoothing %g weighted %d soft %d",
             lk_shape_format(shape, sizeof shape, v->logits), v->reduction, v->smoothing, v->weighted,
             v->soft);
    lkt_case *forward = lkt_case_add(list, LK_OP_CROSS_ENTROPY, "%s", text);
    set_attributes(forward, v);
    lkt_in_f32(forward, v->logits, LKT_NORMAL);
    add_targets(forward, v);
    lkt_out_f32(forward, loss_shape(v));
    lkt_out_f32(forward, v->logits);
    lkt_case *backward = lkt_case_add(list, LK_OP_CROSS_ENTROPY_GRAD, "%s", text);
    set_attributes(backward, v);
    lkt_in_f32(backward, loss_shape(v), LKT_NORMAL);
    lkt_in_result(backward, forward, 1);
    lkt_in_operand(backward, forward, 1);
    lkt_in_operand(backward, forward, 2);
    lkt_out_f32(backward, v->logits);
    if (v->soft || v->smoothing != 0) return;
    lkt_case *nll = lkt_case_add(list, LK_OP_NLL, "%s", text);
    set_attributes(nll, v);
    lkt_in_result(nll, forward, 1);
    lkt_in_operand(nll, forward, 1);
    lkt_in_operand(nll, forward, 2);
    lkt_out_f32(nll, loss_shape(v));
    lkt_case *nll_backward = lkt_case_add(list, LK_OP_NLL_GRAD, "%s", text);
    set_attributes(nll_backward, v);
    lkt_in_f32(nll_backward, loss_shape(v), LKT_NORMAL);
    for (int i = 0; i < 3; i++) lkt_in_operand(nll_backward, nll, i);
    lkt_out_f32(nll_backward, v->logits);
}

static void all_class_losses(lkt_case_list *list)
{
    static const lk_shape shapes[] = {{2, {32, 10}},   {2, {7, 1}},       {2, {3, 1003}},
                                      {3, {2, 3, 19}}, {4, {2, 5, 3, 4}}, {2, {257, 33}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int reduction = LK_REDUCTION_MEAN; reduction <= LK_REDUCTION_NONE; reduction++)
            for (int options = 0; options < 8; options++)
                class_losses(list, &(class_loss){.logits = shapes[i],
                                                 .reduction = (lk_reduction)reduction,
                                                 .smoothing = options & 1 ? 0.1 : 0,
                                                 .weighted = options >> 1 & 1,
                                                 .soft = options >> 2 & 1});
}

typedef struct pointwise {
    lk_pointwise_loss kind;
    double parameter;
    lkt_fill x, target;
    int weights; /* how many of weight and pos_weight it can take */
} pointwise;

static const pointwise pointwise_losses[] = {
    {LK_LOSS_MSE, 0, LKT_NORMAL, LKT_NORMAL, 0},
    {LK_LOSS_L1, 0, LKT_COARSE, LKT_COARSE, 0},
    {LK_LOSS_SMOOTH_L1, 1, LKT_NORMAL, LKT_NORMAL, 0},
    {LK_LOSS_SMOOTH_L1, 0.5, LKT_COARSE, LKT_COARSE, 0},
    {LK_LOSS_SMOOTH_L1, 0, LKT_COARSE, LKT_COARSE, 0},
    {LK_LOSS_HUBER, 1, LKT_NORMAL, LKT_NORMAL, 0},
    {LK_LOSS_HUBER, 0.5, LKT_COARSE, LKT_COARSE, 0},
    {LK_LOSS_BCE, 0, LKT_UNIT, LKT_UNIT, 1},
    {LK_LOSS_BCE_WITH_LOGITS, 0, LKT_NORMAL, LKT_UNIT, 2},
    {LK_LOSS_KL_DIV, 0, LKT_NORMAL, LKT_UNIT, 0},
    {LK_LOSS_KL_DIV, 1, LKT_NORMAL, LKT_NORMAL, 0},
};

static void pointwise_pair(lkt_case_list *list, const pointwise *v, lk_shape shape, lk_reduction reduction,
                           int weights)
{
    char text[64];
    lk_shape loss = reduction == LK_REDUCTION_NONE ? shape : lk_scalar_shape();
    lk_shape_format(text, sizeof text, shape);
    lkt_case *c = lkt_case_add(list, LK_OP_POINTWISE_LOSS, "%d alpha %g %s reduction %d weights %d", v->kind,
                               v->parameter, text, reduction, weights);
    c->attr.pointwise_loss =
        (lk_pointwise_loss_attr){.kind = v->kind, .reduction = reduction, .parameter = v->parameter};
    c->tolerance = reduction == LK_REDUCTION_SUM ? 3e-5 : 1e-5;
    lkt_in_f32(c, shape, v->x);
    lkt_in_f32(c, shape, v->target);
    for (int i = 0; i < 2; i++) {
        if (i < weights)
            lkt_in_f32(c, shape, LKT_POSITIVE);
        else
            lkt_in_absent(c);
    }
    lkt_out_f32(c, loss);
    lkt_case *backward =
        lkt_case_add(list, LK_OP_POINTWISE_LOSS_GRAD, "%d alpha %g %s reduction %d weights %d", v->kind,
                     v->parameter, text, reduction, weights);
    backward->attr = c->attr;
    lkt_in_f32(backward, loss, LKT_NORMAL);
    for (int i = 0; i < 4; i++) lkt_in_operand(backward, c, i);
    lkt_out_f32(backward, shape);
    if (reduction == LK_REDUCTION_NONE) return;
    lkt_case *both =
        lkt_case_add(list, LK_OP_POINTWISE_LOSS_WITH_GRAD, "%d alpha %g %s reduction %d weights %d", v->kind,
                     v->parameter, text, reduction, weights);
    both->attr = c->attr;
    both->tolerance = c->tolerance;
    for (int i = 0; i < 4; i++) lkt_in_operand(both, c, i);
    lkt_out_f32(both, loss);
    lkt_out_f32(both, shape);
}

void lkt_cases_loss(lkt_case_list *list)
{
    all_class_losses(list);
    static const lk_shape shapes[] = {{1, {1}}, {2, {5, 7}}, {2, {32, 67}}, {0, {0}}};
    for (size_t k = 0; k < sizeof pointwise_losses / sizeof *pointwise_losses; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            for (int weights = 0; weights <= pointwise_losses[k].weights; weights++)
                for (int reduction = LK_REDUCTION_MEAN; reduction <= LK_REDUCTION_BATCH_MEAN; reduction++)
                    pointwise_pair(list, &pointwise_losses[k], shapes[i], (lk_reduction)reduction, weights);
}
