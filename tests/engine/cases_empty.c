/* Cases with a dimension of size zero, of every op that has none elsewhere: a batch without samples, and what
 * else PyTorch allows. Results that are not empty are one number everywhere, which is PyTorch's:
 * tests/oracle/empty_shapes.py asks it. Operands, running statistics too, stay as they were. */
#include "case.h"

#include <math.h>

static lkt_case *add(lkt_case_list *list, lk_op op, double outcome, const char *text)
{
    lkt_case *c = lkt_case_add(list, op, "empty: %s", text);
    c->is_empty = true;
    c->outcome = outcome;
    return c;
}

static lkt_case *one_to_one(lkt_case_list *list, lk_op op, lk_shape in, lk_shape out, double outcome,
                            const char *text)
{
    lkt_case *c = add(list, op, outcome, text);
    lkt_in_f32(c, in, LKT_NORMAL);
    lkt_out_f32(c, out);
    return c;
}

static lkt_case *two_to_one(lkt_case_list *list, lk_op op, lk_shape a, lk_shape b, lk_shape out,
                            double outcome, const char *text)
{
    lkt_case *c = add(list, op, outcome, text);
    lkt_in_f32(c, a, LKT_NORMAL);
    lkt_in_f32(c, b, LKT_NORMAL);
    lkt_out_f32(c, out);
    return c;
}

/* PyTorch refuses a maximum over nothing; its variance is not a number. */
static void reductions(lkt_case_list *list)
{
    lk_shape none = LK_SHAPE(0, 5);
    one_to_one(list, LK_OP_MAX, none, LK_SHAPE(0), 0, "rows")->attr.reduce.axes = 2;
    one_to_one(list, LK_OP_VAR, none, LK_SHAPE(0), 0, "rows")->attr.reduce.axes = 2;
    lkt_case *var = one_to_one(list, LK_OP_VAR, none, LK_SHAPE(5), NAN, "columns");
    var->attr.reduce.axes = 1;
    var->attr.reduce.correction = 1;
    one_to_one(list, LK_OP_MEAN, none, LK_SHAPE(5), NAN, "columns")->attr.reduce.axes = 1;
    one_to_one(list, LK_OP_SUM, none, lk_scalar_shape(), 0, "all")->attr.reduce.axes = 3;
    lkt_case *grad = add(list, LK_OP_MAX_GRAD, 0, "rows");
    lkt_in_f32(grad, LK_SHAPE(0, 1), LKT_NORMAL);
    lkt_in_f32(grad, none, LKT_NORMAL);
    lkt_in_f32(grad, LK_SHAPE(0, 1), LKT_NORMAL);
    lkt_out_f32(grad, none);
    lkt_case *argmax = add(list, LK_OP_ARGMAX, 0, "rows");
    lkt_in_f32(argmax, none, LKT_NORMAL);
    lkt_out(argmax, LK_I64, LK_SHAPE(0));
    argmax->attr.axis.axis = 1;
}

static void softmaxes(lkt_case_list *list)
{
    static const lk_shape shapes[] = {{2, {0, 5}}, {2, {5, 0}}, {3, {2, 3, 0}}};
    static const lk_op ops[] = {LK_OP_SOFTMAX, LK_OP_LOG_SOFTMAX, LK_OP_SOFTMAX_GRAD, LK_OP_LOG_SOFTMAX_GRAD};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 4; k++)
            for (int axis = 0; axis < 2; axis++) {
                lkt_case *c = k < 2 ? one_to_one(list, ops[k], shapes[i], shapes[i], 0, "softmax")
                                    : two_to_one(list, ops[k], shapes[i], shapes[i], shapes[i], 0, "softmax");
                c->attr.axis.axis = axis;
            }
}

static void movement(lkt_case_list *list)
{
    for (int mode = LK_PAD_CONSTANT; mode <= LK_PAD_REPLICATE; mode++)
        for (int backward = 0; backward < 2; backward++) {
            lk_shape small = LK_SHAPE(0, 2, 5), padded = LK_SHAPE(0, 2, 7);
            lkt_case *c = one_to_one(list, backward ? LK_OP_PAD_GRAD : LK_OP_PAD, backward ? padded : small,
                                     backward ? small : padded, 0, "a batch to pad");
            c->attr.pad.mode = (lk_pad_mode)mode;
            c->attr.pad.before[2] = c->attr.pad.after[2] = 1;
        }
    lkt_case *filled = one_to_one(list, LK_OP_PAD, LK_SHAPE(0, 3), LK_SHAPE(3, 3), 0.5, "all is padding");
    filled->attr.pad.before[0] = 1;
    filled->attr.pad.after[0] = 2;
    filled->attr.pad.value = 0.5;
    lkt_case *gather = add(list, LK_OP_GATHER, 0, "no index");
    lkt_in_f32(gather, LK_SHAPE(2, 3), LKT_NORMAL);
    lkt_in_index(gather, LK_SHAPE(2, 0), 3);
    lkt_out_f32(gather, LK_SHAPE(2, 0));
    gather->attr.gather.axis = 1;
    lkt_case *grad = add(list, LK_OP_GATHER_GRAD, 0, "no index");
    lkt_in_f32(grad, LK_SHAPE(2, 0), LKT_NORMAL);
    lkt_in_index(grad, LK_SHAPE(2, 0), 3);
    lkt_out_f32(grad, LK_SHAPE(2, 3));
    grad->attr.gather.axis = 1;
    one_to_one(list, LK_OP_REORDER, LK_SHAPE(0, 3, 4, 5), LK_SHAPE(0, 3, 4, 5), 0, "row-major");
}

/* Direct, by columns, and as large as Winograd's and a pair of columns' ways begin. */
static void convolutions(lkt_case_list *list)
{
    static const struct {
        int64_t in, out, kernel, stride;
    } sizes[] = {{3, 4, 3, 1}, {16, 16, 3, 1}, {3, 16, 2, 2}, {5, 6, 1, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t in = sizes[i].in, out = sizes[i].out, k = sizes[i].kernel,
                size = (8 - k) / sizes[i].stride + 1;
        lk_window w = {.rank = 2, .groups = 1};
        for (int d = 0; d < 2; d++) {
            w.kernel[d] = k;
            w.stride[d] = sizes[i].stride;
            w.dilation[d] = 1;
        }
        lk_shape x = LK_SHAPE(0, in, 8, 8), y = LK_SHAPE(0, out, size, size),
                 weight = LK_SHAPE(out, in, k, k);
        lkt_case *c = two_to_one(list, LK_OP_CONV, x, weight, y, 0, "conv");
        lkt_in_f32(c, LK_SHAPE(out), LKT_NORMAL);
        c->keeps_f32[2] = true;
        c->attr.conv.window = w;
        two_to_one(list, LK_OP_CONV_GRAD_INPUT, y, weight, x, 0, "conv")->attr.conv.window = w;
        lkt_case *grad = two_to_one(list, LK_OP_CONV_GRAD_WEIGHT, y, x, weight, 0, "conv");
        lkt_out_f32(grad, LK_SHAPE(out));
        grad->attr.conv.wants_bias = true;
        grad->attr.conv.window = w;
        int64_t wide = 7 * sizes[i].stride + k;
        lkt_case *back = two_to_one(list, LK_OP_CONV_TRANSPOSE, x, LK_SHAPE(in, out, k, k),
                                    LK_SHAPE(0, out, wide, wide), 0, "conv");
        lkt_in_f32(back, LK_SHAPE(out), LKT_NORMAL);
        back->keeps_f32[2] = true;
        back->attr.conv.window = w;
    }
}

static void pools(lkt_case_list *list)
{
    lk_shape whole = LK_SHAPE(0, 3, 8, 8), half = LK_SHAPE(0, 3, 4, 4), one = LK_SHAPE(0, 3, 1, 1);
    lk_window w = {.rank = 2, .kernel = {2, 2}, .stride = {2, 2}, .dilation = {1, 1}};
    lkt_case *max = one_to_one(list, LK_OP_MAX_POOL, whole, half, 0, "pool");
    lkt_out(max, LK_I32, half);
    max->attr.pool.window = w;
    lkt_case *grad = add(list, LK_OP_MAX_POOL_GRAD, 0, "pool");
    lkt_in_f32(grad, half, LKT_NORMAL);
    lkt_in(grad, LK_I32, half, LKT_ZERO);
    lkt_out_f32(grad, whole);
    grad->attr.pool.window = w;
    one_to_one(list, LK_OP_AVG_POOL, whole, half, 0, "pool")->attr.pool.window = w;
    one_to_one(list, LK_OP_AVG_POOL_GRAD, half, whole, 0, "pool")->attr.pool.window = w;
    lk_window axes = {.rank = 2};
    one_to_one(list, LK_OP_ADAPTIVE_AVG_POOL, whole, half, 0, "pool")->attr.pool.window = axes;
    one_to_one(list, LK_OP_ADAPTIVE_AVG_POOL, whole, one, 0, "to one")->attr.pool.window = axes;
    one_to_one(list, LK_OP_ADAPTIVE_AVG_POOL_GRAD, half, whole, 0, "pool")->attr.pool.window = axes;
    one_to_one(list, LK_OP_ADAPTIVE_AVG_POOL_GRAD, one, whole, 0, "to one")->attr.pool.window = axes;
    for (int mode = LK_UPSAMPLE_NEAREST; mode <= LK_UPSAMPLE_LINEAR; mode++)
        for (int backward = 0; backward < 2; backward++) {
            lkt_case *c = one_to_one(list, backward ? LK_OP_UPSAMPLE_GRAD : LK_OP_UPSAMPLE,
                                     backward ? whole : half, backward ? half : whole, 0, "twice");
            c->attr.upsample = (lk_upsample_attr){.rank = 2, .mode = (lk_upsample_mode)mode};
        }
}

/* A case of x (shape) and its gradient. The statistics of nothing are engine's own: nobody reads them. */
static void norm(lkt_case_list *list, lk_op op, lk_op gradient, lk_shape shape, lk_shape weight,
                 lk_shape moments, lk_norm_attr attr)
{
    bool has_running = op == LK_OP_BATCH_NORM || op == LK_OP_BATCH_NORM_RELU;
    attr.eps = 1e-5;
    attr.momentum = 0.1;
    lkt_case *c = add(list, op, 0, attr.training ? "norm in training" : "norm");
    c->attr.norm = attr;
    lkt_in_f32(c, shape, LKT_NORMAL);
    for (int i = 0; i < (has_running ? 4 : 2); i++) lkt_in_f32(c, weight, LKT_POSITIVE);
    lkt_out_f32(c, shape);
    lkt_out_f32(c, moments);
    lkt_out_f32(c, moments);
    c->unwanted[1] = c->unwanted[2] = true;
    lkt_case *grad = add(list, gradient, 0, attr.training ? "norm in training" : "norm");
    grad->attr.norm = attr;
    lkt_in_f32(grad, shape, LKT_NORMAL);
    lkt_in_f32(grad, shape, LKT_NORMAL);
    lkt_in_f32(grad, weight, LKT_POSITIVE);
    lkt_in_f32(grad, moments, LKT_NORMAL);
    lkt_in_f32(grad, moments, LKT_POSITIVE);
    if (gradient == LK_OP_BATCH_NORM_RELU_GRAD) lkt_in_f32(grad, weight, LKT_POSITIVE);
    lkt_out_f32(grad, shape);
    lkt_out_f32(grad, weight);
    lkt_out_f32(grad, weight);
    for (int i = 1; i < LKT_MAX_INPUTS; i++) c->keeps_f32[i] = true;
    for (int i = 2; i < LKT_MAX_INPUTS; i++) grad->keeps_f32[i] = true;
}

static void norms(lkt_case_list *list)
{
    static const lk_shape shapes[] = {{2, {0, 3}}, {4, {0, 16, 5, 7}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int training = 0; training < 2; training++) {
            lk_shape channels = LK_SHAPE(shapes[i].dim[1]);
            lk_norm_attr attr = {.training = training};
            norm(list, LK_OP_BATCH_NORM, LK_OP_BATCH_NORM_GRAD, shapes[i], channels, channels, attr);
            norm(list, LK_OP_BATCH_NORM_RELU, LK_OP_BATCH_NORM_RELU_GRAD, shapes[i], channels, channels,
                 attr);
        }
    norm(list, LK_OP_LAYER_NORM, LK_OP_LAYER_NORM_GRAD, LK_SHAPE(0, 3), LK_SHAPE(3), LK_SHAPE(0),
         (lk_norm_attr){.axis_count = 1});
    norm(list, LK_OP_LAYER_NORM, LK_OP_LAYER_NORM_GRAD, LK_SHAPE(3, 0), LK_SHAPE(0), LK_SHAPE(3),
         (lk_norm_attr){.axis_count = 1});
    norm(list, LK_OP_GROUP_NORM, LK_OP_GROUP_NORM_GRAD, LK_SHAPE(0, 4, 3), LK_SHAPE(4), LK_SHAPE(0, 2),
         (lk_norm_attr){.group_count = 2});
    norm(list, LK_OP_GROUP_NORM, LK_OP_GROUP_NORM_GRAD, LK_SHAPE(2, 4, 0), LK_SHAPE(4), LK_SHAPE(2, 2),
         (lk_norm_attr){.group_count = 2});
}

/* The mean over nothing is not a number, the sum is 0. */
static double loss_of_nothing(lk_reduction reduction)
{
    return reduction == LK_REDUCTION_MEAN || reduction == LK_REDUCTION_BATCH_MEAN ? NAN : 0;
}

static void class_losses(lkt_case_list *list, lk_reduction reduction, bool soft, double smoothing)
{
    lk_shape logits = LK_SHAPE(0, 3), loss = reduction == LK_REDUCTION_NONE ? LK_SHAPE(0) : lk_scalar_shape();
    static const lk_op ops[] = {LK_OP_CROSS_ENTROPY, LK_OP_CROSS_ENTROPY_GRAD, LK_OP_NLL, LK_OP_NLL_GRAD};
    for (int k = 0; k < (soft || smoothing != 0 ? 2 : 4); k++) {
        bool backward = k % 2;
        lkt_case *c = add(list, ops[k], backward ? 0 : loss_of_nothing(reduction), "classes");
        c->attr.class_loss =
            (lk_class_loss_attr){.reduction = reduction, .ignore_index = -100, .label_smoothing = smoothing};
        if (backward) lkt_in_f32(c, loss, LKT_NORMAL);
        lkt_in_f32(c, logits, LKT_NORMAL);
        if (soft)
            lkt_in_f32(c, logits, LKT_UNIT);
        else
            lkt_in_index(c, LK_SHAPE(0), 3);
        lkt_in_absent(c);
        lkt_out_f32(c, backward ? logits : loss);
        if (k == 0) lkt_out_f32(c, logits);
    }
}

static void pointwise_loss(lkt_case_list *list, lk_op op, lk_pointwise_loss_attr attr)
{
    bool backward = op == LK_OP_POINTWISE_LOSS_GRAD;
    lk_shape shape = LK_SHAPE(0, 3), loss = attr.reduction == LK_REDUCTION_NONE ? shape : lk_scalar_shape();
    lkt_case *c = add(list, op, backward ? 0 : loss_of_nothing(attr.reduction), "numbers");
    c->attr.pointwise_loss = attr;
    if (backward) lkt_in_f32(c, loss, LKT_NORMAL);
    lkt_in_f32(c, shape, LKT_UNIT);
    lkt_in_f32(c, shape, LKT_UNIT);
    lkt_in_absent(c);
    lkt_in_absent(c);
    lkt_out_f32(c, backward ? shape : loss);
    if (op == LK_OP_POINTWISE_LOSS_WITH_GRAD) lkt_out_f32(c, shape);
}

static void losses(lkt_case_list *list)
{
    for (int reduction = LK_REDUCTION_MEAN; reduction <= LK_REDUCTION_NONE; reduction++) {
        class_losses(list, (lk_reduction)reduction, false, 0);
        class_losses(list, (lk_reduction)reduction, false, 0.1);
        class_losses(list, (lk_reduction)reduction, true, 0);
    }
    for (int kind = LK_LOSS_MSE; kind <= LK_LOSS_KL_DIV; kind++)
        for (int reduction = LK_REDUCTION_MEAN; reduction <= LK_REDUCTION_BATCH_MEAN; reduction++) {
            lk_pointwise_loss_attr attr = {
                .kind = (lk_pointwise_loss)kind, .reduction = (lk_reduction)reduction, .parameter = 1};
            pointwise_loss(list, LK_OP_POINTWISE_LOSS, attr);
            pointwise_loss(list, LK_OP_POINTWISE_LOSS_GRAD, attr);
            if (reduction != LK_REDUCTION_NONE) pointwise_loss(list, LK_OP_POINTWISE_LOSS_WITH_GRAD, attr);
        }
}

void lkt_cases_empty(lkt_case_list *list)
{
    reductions(list);
    softmaxes(list);
    movement(list);
    convolutions(list);
    pools(list);
    norms(list);
    losses(list);
}
