/* Cases on both sides of the thresholds of every fast path (lk_engine_ops.paths), with numbers that a
 * shortcut is likely to get wrong: many zeros, whole rows of padding, one number far larger than the others,
 * infinities and NaNs. */
#include "case.h"

#include <math.h>
#include <string.h>

typedef enum spoil { PLAIN, ZEROS, PADDED, OUTLIER, INFINITE, NOT_A_NUMBER, SPOIL_COUNT } spoil;

static const char *const spoil_names[] = {"plain", "zeros", "padded", "outlier", "inf", "nan"};

/* Changes a tensor in place. `row`: elements of a row, of which three in four are padding (all zero). */
static void spoil_tensor(lk_tensor *x, spoil how, int64_t row)
{
    int64_t count = lk_tensor_count(x);
    for (int64_t i = 0; i < count && how == ZEROS; i++)
        if (i * 7 % 10 < 8) lk_tensor_set(x, i, 0);
    for (int64_t i = 0; i < count && how == PADDED; i++)
        if (i / row % 4) lk_tensor_set(x, i, 0);
    if (!count || how < OUTLIER) return;
    double odd = how == OUTLIER ? 1e6 : how == INFINITE ? INFINITY : NAN;
    lk_tensor_set(x, count / 3, odd);
}

static bool is_finite_spoil(spoil how)
{
    return how < INFINITE;
}

static void linear(lkt_case_list *list, int64_t m, int64_t n, int64_t k, spoil x, spoil other)
{
    lkt_case *c =
        lkt_case_add(list, LK_OP_LINEAR, "fast %d %d %d %s", (int)m, (int)n, (int)k, spoil_names[x]);
    c->tolerance = 1e-4;
    spoil_tensor(lkt_in_f32(c, LK_SHAPE(m, k), LKT_NORMAL), x, k);
    if (x >= INFINITE) spoil_tensor(c->in[0], ZEROS, k);
    spoil_tensor(lkt_in_f32(c, LK_SHAPE(n, k), LKT_NORMAL), other, k);
    lkt_in_f32(c, LK_SHAPE(n), LKT_NORMAL);
    c->attr.linear.activation = m % 2 ? LK_ACTIVATION_RELU : LK_ACTIVATION_NONE;
    lkt_out_f32(c, LK_SHAPE(m, n));
    lkt_case *grad =
        lkt_case_add(list, LK_OP_LINEAR_GRAD, "fast %d %d %d %s", (int)m, (int)n, (int)k, spoil_names[x]);
    grad->tolerance = 1e-4;
    spoil_tensor(lkt_in_f32(grad, LK_SHAPE(m, n), LKT_NORMAL), other, n);
    lkt_in_operand(grad, c, 0);
    lkt_out_f32(grad, LK_SHAPE(n, k));
    lkt_out_f32(grad, LK_SHAPE(n));
    grad->attr.linear.wants_bias = true;
}

/* The sparse way begins at 16 rows, 32 outputs and 256 inputs, a multiple of 4, and at 35% of zeros. */
static void linears(lkt_case_list *list)
{
    static const int64_t sizes[][3] = {{15, 33, 300}, {16, 31, 300}, {16, 32, 252},  {16, 32, 256},
                                       {17, 40, 257}, {19, 47, 260}, {17, 113, 300}, {40, 33, 500},
                                       {31, 64, 268}, {16, 225, 284}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        linear(list, sizes[i][0], sizes[i][1], sizes[i][2], ZEROS, PLAIN);
        linear(list, sizes[i][0], sizes[i][1], sizes[i][2], PADDED, PLAIN);
    }
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++) {
        linear(list, 18, 35, 300, how, PLAIN);
        linear(list, 18, 36, 300, ZEROS, how);
    }
    linear(list, 0, 40, 300, PLAIN, PLAIN);
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++) { /* one side is short, another long */
        linear(list, 9, 1030, 24, how, PLAIN);
        linear(list, 70, 1027, 20, PLAIN, how);
        linear(list, 3, 7, 5, how, PLAIN);
        linear(list, 65, 33, 129, PLAIN, how);
    }
    linear(list, 9, 300, 1028, PLAIN, PLAIN);
    linear(list, 128, 128, 256, PLAIN, PLAIN);
    linear(list, 300, 260, 280, PLAIN, PLAIN);
    linear(list, 200, 90, 300, PLAIN, PLAIN); /* several threads, by rows and by columns */
    linear(list, 30, 700, 300, PLAIN, PLAIN);
}

static void matmul(lkt_case_list *list, lk_shape a, lk_shape b, lk_shape out, spoil how)
{
    char text[64];
    lkt_case *c = lkt_case_add(list, LK_OP_MATMUL, "fast %s %s", lk_shape_format(text, sizeof text, a),
                               spoil_names[how]);
    c->tolerance = 1e-4;
    spoil_tensor(lkt_in_f32(c, a, LKT_NORMAL), how, a.dim[a.rank - 1]);
    lkt_in_f32(c, b, LKT_NORMAL);
    lkt_out_f32(c, out);
}

static void matmuls(lkt_case_list *list)
{
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++) {
        matmul(list, LK_SHAPE(5, 7, 33), LK_SHAPE(5, 33, 17), LK_SHAPE(5, 7, 17), how);
        matmul(list, LK_SHAPE(5, 9, 33), LK_SHAPE(33, 17), LK_SHAPE(5, 9, 17), how);
        matmul(list, LK_SHAPE(1, 129), LK_SHAPE(129, 67), LK_SHAPE(1, 67), how);
        matmul(list, LK_SHAPE(9, 1028), LK_SHAPE(1028, 24), LK_SHAPE(9, 24), how);
    }
    matmul(list, LK_SHAPE(0, 9, 33), LK_SHAPE(33, 17), LK_SHAPE(0, 9, 17), PLAIN);
}

typedef struct conv {
    int64_t batch, in, out, size[2], kernel[2], stride, padding;
} conv;

static void conv_case(lkt_case_list *list, const conv *v, spoil how, spoil other)
{
    int64_t h = (v->size[0] + 2 * v->padding - v->kernel[0]) / v->stride + 1,
            w = (v->size[1] + 2 * v->padding - v->kernel[1]) / v->stride + 1;
    lk_shape x = LK_SHAPE(v->batch, v->in, v->size[0], v->size[1]), y = LK_SHAPE(v->batch, v->out, h, w),
             weight = LK_SHAPE(v->out, v->in, v->kernel[0], v->kernel[1]);
    static const lk_op ops[] = {LK_OP_CONV, LK_OP_CONV_GRAD_INPUT, LK_OP_CONV_GRAD_WEIGHT};
    for (int i = 0; i < 3; i++) {
        lkt_case *c =
            lkt_case_add(list, ops[i], "fast %d %d %d %d x %d %s %s", (int)v->batch, (int)v->in, (int)v->out,
                         (int)v->size[0], (int)v->size[1], spoil_names[how], spoil_names[other]);
        lk_shape first = i == 0 ? x : y, second = i == 2 ? x : weight;
        c->attr.conv.window = (lk_window){.rank = 2, .groups = 1};
        for (int d = 0; d < 2; d++) {
            c->attr.conv.window.kernel[d] = v->kernel[d];
            c->attr.conv.window.stride[d] = v->stride;
            c->attr.conv.window.padding[d] = v->padding;
            c->attr.conv.window.dilation[d] = 1;
        }
        c->tolerance = 2e-4;
        spoil_tensor(lkt_in_f32(c, first, LKT_NORMAL), how, first.dim[2] * first.dim[3]);
        spoil_tensor(lkt_in_f32(c, second, LKT_NORMAL), other, second.dim[2] * second.dim[3]);
        if (i == 0) lkt_in_f32(c, LK_SHAPE(v->out), LKT_NORMAL);
        lkt_out_f32(c, i == 0 ? y : i == 1 ? x : weight);
        if (i == 2) lkt_out_f32(c, LK_SHAPE(v->out));
        c->attr.conv.wants_bias = i == 2;
    }
}

/* Winograd's begins at 16 channels on both sides and 4 places along both axes; pairs of columns at 8 places.
 */
static void convs(lkt_case_list *list)
{
    static const conv sizes[] = {
        {2, 15, 16, {7, 9}, {3, 3}, 1, 1}, {2, 16, 15, {7, 9}, {3, 3}, 1, 1},
        {1, 16, 16, {5, 6}, {3, 3}, 1, 0}, {3, 16, 16, {6, 6}, {3, 3}, 1, 0},
        {2, 17, 33, {9, 7}, {3, 3}, 1, 2}, {1, 31, 35, {13, 4}, {3, 3}, 1, 1},
        {2, 3, 16, {8, 16}, {2, 2}, 2, 0}, {2, 3, 17, {8, 16}, {2, 2}, 2, 0},
        {2, 3, 5, {6, 14}, {2, 2}, 2, 0},  {2, 5, 9, {10, 33}, {2, 2}, 2, 1},
        {2, 17, 6, {5, 7}, {1, 1}, 1, 0},  {0, 16, 16, {8, 8}, {3, 3}, 1, 1},
        {0, 3, 16, {8, 16}, {2, 2}, 2, 0}, {0, 5, 6, {5, 7}, {1, 1}, 1, 0},
        {2, 5, 6, {5, 7}, {3, 3}, 2, 1},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        conv_case(list, &sizes[i], PLAIN, PLAIN);
        conv_case(list, &sizes[i], ZEROS, PLAIN);
    }
    static const conv spoilt[] = {{2, 16, 17, {9, 11}, {3, 3}, 1, 0},
                                  {2, 3, 7, {8, 18}, {2, 2}, 2, 0},
                                  {2, 17, 6, {5, 7}, {1, 1}, 1, 0},
                                  {2, 5, 6, {5, 7}, {3, 3}, 2, 0}};
    for (size_t i = 0; i < sizeof spoilt / sizeof *spoilt; i++)
        for (spoil how = PADDED; how < SPOIL_COUNT; how++) {
            conv_case(list, &spoilt[i], how, PLAIN);
            conv_case(list, &spoilt[i], PLAIN, how);
        }
}

/* Rows of 15, 16 and 17 classes and more, and planes of them, around a large offset. */
static void classes(lkt_case_list *list, int64_t n, int64_t c, int64_t inner, double offset, spoil how)
{
    lk_shape shape = inner ? LK_SHAPE(n, c, inner) : LK_SHAPE(n, c);
    lk_shape targets = inner ? LK_SHAPE(n, inner) : LK_SHAPE(n);
    static const lk_op ops[] = {LK_OP_SOFTMAX, LK_OP_LOG_SOFTMAX, LK_OP_CROSS_ENTROPY};
    for (int i = 0; i < 3; i++) {
        lkt_case *k = lkt_case_add(list, ops[i], "fast %d of %d by %d at %g %s", (int)n, (int)c, (int)inner,
                                   offset, spoil_names[how]);
        lk_tensor *x = lkt_in_f32(k, shape, LKT_COARSE);
        for (int64_t j = 0; j < lk_tensor_count(x); j++) lk_tensor_set(x, j, lk_tensor_get(x, j) + offset);
        spoil_tensor(x, how, c);
        if (ops[i] != LK_OP_CROSS_ENTROPY) {
            k->attr.axis.axis = 1;
        } else {
            k->attr.class_loss = (lk_class_loss_attr){.reduction = LK_REDUCTION_MEAN, .ignore_index = -100};
            lkt_in_index(k, targets, c);
            lkt_out_f32(k, lk_scalar_shape());
        }
        lkt_out_f32(k, shape);
        if (!is_finite_spoil(how) || ops[i] == LK_OP_CROSS_ENTROPY || offset != 0) continue;
        lkt_case *grad = lkt_case_add(list, i ? LK_OP_LOG_SOFTMAX_GRAD : LK_OP_SOFTMAX_GRAD,
                                      "fast %d of %d by %d", (int)n, (int)c, (int)inner);
        lkt_in_f32(grad, shape, LKT_NORMAL);
        lkt_in_result(grad, k, 0);
        grad->attr.axis.axis = 1;
        lkt_out_f32(grad, shape);
    }
}

static void softmaxes(lkt_case_list *list)
{
    static const int64_t counts[] = {1, 2, 4, 5, 8, 9, 15, 16, 17, 20, 33, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        classes(list, 3, counts[i], 0, 0, PLAIN);
        classes(list, 3, counts[i], 0, 1e4, PLAIN);
        classes(list, 2, counts[i], 19, -1e6, PLAIN);
    }
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++) {
        classes(list, 4, 20, 0, 0, how);
        classes(list, 4, 7, 5, 0, how);
    }
    classes(list, 0, 20, 0, 0, PLAIN);
    classes(list, 0, 20, 3, 0, PLAIN);
}

/* `parts`: the axes of a layer norm, the groups of a group norm. */
static void norm(lkt_case_list *list, lk_op op, lk_shape shape, int parts, double offset, spoil how)
{
    char text[64];
    bool by_batch = op == LK_OP_BATCH_NORM, by_group = op == LK_OP_GROUP_NORM;
    lk_shape moments = by_batch   ? LK_SHAPE(shape.dim[1])
                       : by_group ? LK_SHAPE(shape.dim[0], parts)
                                  : LK_SHAPE(shape.dim[0]);
    lkt_case *c = lkt_case_add(list, op, "fast %s by %d at %g %s", lk_shape_format(text, sizeof text, shape),
                               parts, offset, spoil_names[how]);
    c->attr.norm = (lk_norm_attr){.eps = 1e-5, .training = true, .axis_count = parts, .group_count = parts};
    c->tolerance = 1e-4;
    lk_tensor *x = lkt_in_f32(c, shape, LKT_COARSE);
    for (int64_t j = 0; j < lk_tensor_count(x); j++)
        lk_tensor_set(x, j, offset + (offset != 0 ? 1.0 / 64 : 1) * lk_tensor_get(x, j));
    spoil_tensor(x, how, shape.dim[shape.rank - 1]);
    for (int i = by_batch ? 4 : 2; i > 0; i--) lkt_in_absent(c);
    lkt_out_f32(c, shape);
    lkt_out_f32(c, moments);
    lkt_out_f32(c, moments);
}

/* One number per set gives 0; numbers that differ little from a large mean keep their digits. An outlier
 * costs no more than its own share. */
static void norms(lkt_case_list *list)
{
    static const struct {
        lk_op op;
        lk_shape shape;
        int parts;
    } sets[] = {
        {LK_OP_GROUP_NORM, {2, {3, 8}}, 8},         {LK_OP_GROUP_NORM, {2, {3, 8}}, 4},
        {LK_OP_GROUP_NORM, {4, {2, 6, 5, 7}}, 3},   {LK_OP_GROUP_NORM, {3, {2, 4, 1}}, 4},
        {LK_OP_LAYER_NORM, {2, {5, 1}}, 1},         {LK_OP_LAYER_NORM, {2, {5, 67}}, 1},
        {LK_OP_BATCH_NORM, {2, {33, 5}}, 0},        {LK_OP_BATCH_NORM, {4, {2, 3, 5, 7}}, 0},
        {LK_OP_GROUP_NORM, {4, {1, 4, 33, 17}}, 2}, {LK_OP_BATCH_NORM, {4, {3, 2, 53, 59}}, 0},
        {LK_OP_BATCH_NORM, {4, {3, 17, 16, 9}}, 0}, {LK_OP_BATCH_NORM, {3, {64, 65, 4}}, 0},
    };
    static const double offsets[] = {0, 1, 100, 1e4, -1e4};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        for (size_t k = 0; k < sizeof offsets / sizeof *offsets; k++)
            norm(list, sets[i].op, sets[i].shape, sets[i].parts, offsets[k], PLAIN);
        for (spoil how = ZEROS; how < SPOIL_COUNT; how++)
            norm(list, sets[i].op, sets[i].shape, sets[i].parts, 0, how);
    }
}

/* Vectors of 16 bits with statistics of f32: channels that lie side by side. The outlier stands in the first
 * row. */
static void low_norm(lkt_case_list *list, lk_op op, int64_t rows, int64_t channels, double outlier)
{
    lkt_case *c = lkt_case_add(list, op, "fast bf16 %d by %d with %g", (int)rows, (int)channels, outlier);
    c->attr.norm = (lk_norm_attr){.eps = 1e-5, .training = true};
    c->tolerance = 2e-2;
    lk_tensor *x = lkt_in(c, LK_BF16, LK_SHAPE(rows, channels), LKT_NORMAL);
    for (int64_t i = 0; i < channels && outlier != 0; i++) lk_tensor_set(x, i, outlier);
    for (int i = 0; i < 4; i++) lkt_in_absent(c);
    lkt_out(c, LK_BF16, LK_SHAPE(rows, channels));
    lkt_out_f32(c, LK_SHAPE(channels));
    lkt_out_f32(c, LK_SHAPE(channels));
}

/* Factors and results of 16 bits, a bias of f32: what mixed precision makes of a linear layer. */
static void low_linears(lkt_case_list *list)
{
    static const struct {
        int64_t m, n, k;
    } sizes[] = {{64, 80, 64}, {33, 129, 65}, {8, 16, 24}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        int64_t m = sizes[i].m, n = sizes[i].n, k = sizes[i].k;
        for (int activation = 0; activation < 2; activation++) {
            lkt_case *c = lkt_case_add(list, LK_OP_LINEAR, "fast bf16 %d %d %d activation %d", (int)m, (int)n,
                                       (int)k, activation);
            c->attr.linear.activation = (lk_activation)activation;
            c->tolerance = 2e-2;
            lkt_in(c, LK_BF16, LK_SHAPE(m, k), LKT_NORMAL);
            lkt_in(c, LK_BF16, LK_SHAPE(n, k), LKT_NORMAL);
            lkt_in_f32(c, LK_SHAPE(n), LKT_NORMAL);
            lkt_out(c, LK_BF16, LK_SHAPE(m, n));
        }
    }
}

static void low_norms(lkt_case_list *list)
{
    static const double outliers[] = {0, 100, 10000, -10000, 1e6};
    for (size_t i = 0; i < sizeof outliers / sizeof *outliers; i++) {
        for (int relu = 0; relu < 2; relu++) {
            lk_op op = relu ? LK_OP_BATCH_NORM_RELU : LK_OP_BATCH_NORM;
            low_norm(list, op, 33, 5, outliers[i]);
            low_norm(list, op, 700, 65, outliers[i]);
            low_norm(list, op, 5000, 16, outliers[i]);
        }
    }
}

static void reduction(lkt_case_list *list, lk_op op, lk_shape x, uint32_t axes, lk_shape out, spoil how)
{
    char text[64];
    lkt_case *c = lkt_case_add(list, op, "fast %s over %u %s", lk_shape_format(text, sizeof text, x), axes,
                               spoil_names[how]);
    c->tolerance = 1e-4;
    c->attr.reduce.axes = axes;
    spoil_tensor(lkt_in_f32(c, x, LKT_NORMAL), how, x.dim[x.rank - 1]);
    if (op == LK_OP_VAR) c->attr.reduce.correction = 1;
    lkt_out_f32(c, out);
}

static void reductions(lkt_case_list *list)
{
    static const lk_op ops[] = {LK_OP_SUM, LK_OP_MEAN, LK_OP_MAX, LK_OP_VAR};
    for (int i = 0; i < 4; i++)
        for (spoil how = PLAIN; how < SPOIL_COUNT; how++) {
            reduction(list, ops[i], LK_SHAPE(5, 67), 2, LK_SHAPE(5), how);
            reduction(list, ops[i], LK_SHAPE(67, 5), 1, LK_SHAPE(5), how);
            reduction(list, ops[i], LK_SHAPE(3, 17, 9), 2, LK_SHAPE(3, 9), how);
            reduction(list, ops[i], LK_SHAPE(3, 17, 9), 5, LK_SHAPE(17), how);
        }
    for (int i = 0; i < 4; i++) { /* one block per result, several of them, and columns */
        reduction(list, ops[i], LK_SHAPE(3, 1500), 2, LK_SHAPE(3), PLAIN);
        reduction(list, ops[i], LK_SHAPE(2, 9001), 2, LK_SHAPE(2), PLAIN);
        reduction(list, ops[i], LK_SHAPE(67, 65), 1, LK_SHAPE(65), PLAIN);
    }
    reduction(list, LK_OP_SUM, LK_SHAPE(0, 5), 3, lk_scalar_shape(), PLAIN);
    reduction(list, LK_OP_MEAN, LK_SHAPE(0, 5), 3, lk_scalar_shape(), PLAIN);
    reduction(list, LK_OP_SUM, LK_SHAPE(0, 5), 1, LK_SHAPE(5), PLAIN);
    reduction(list, LK_OP_MEAN, LK_SHAPE(5, 0), 2, LK_SHAPE(5), PLAIN);
}

/* Windows side by side, and windows that overlap. */
static void pools(lkt_case_list *list)
{
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++)
        for (int kernel = 2; kernel < 4; kernel++)
            for (int batch = 0; batch < 3; batch += 2) {
                int64_t out = (11 - kernel) / 2 + 1;
                lkt_case *c =
                    lkt_case_add(list, LK_OP_MAX_POOL, "fast %d by %d %s", batch, kernel, spoil_names[how]);
                c->attr.pool.window =
                    (lk_window){.rank = 2, .kernel = {kernel, kernel}, .stride = {2, 2}, .dilation = {1, 1}};
                spoil_tensor(lkt_in_f32(c, LK_SHAPE(batch, 3, 11, 11), LKT_COARSE), how, 11);
                lkt_out_f32(c, LK_SHAPE(batch, 3, out, out));
                lkt_out(c, LK_I32, LK_SHAPE(batch, 3, out, out));
                lkt_case *grad = lkt_case_add(list, LK_OP_MAX_POOL_GRAD, "fast %d by %d %s", batch, kernel,
                                              spoil_names[how]);
                grad->attr.pool.window = c->attr.pool.window;
                spoil_tensor(lkt_in_f32(grad, LK_SHAPE(batch, 3, out, out), LKT_NORMAL), how, out);
                lkt_in_result(grad, c, 1);
                lkt_out_f32(grad, LK_SHAPE(batch, 3, 11, 11));
            }
}

/* Pools, pads, copies and chains of elementwise ops. */
static void others(lkt_case_list *list)
{
    for (spoil how = PLAIN; how < SPOIL_COUNT; how++)
        for (int batch = 0; batch < 3; batch += 2) {
            lkt_case *pool =
                lkt_case_add(list, LK_OP_ADAPTIVE_AVG_POOL, "fast %d %s", batch, spoil_names[how]);
            pool->attr.pool.window = (lk_window){.rank = 2};
            spoil_tensor(lkt_in_f32(pool, LK_SHAPE(batch, 3, 5, 7), LKT_NORMAL), how, 7);
            lkt_out_f32(pool, LK_SHAPE(batch, 3, 1, 1));
            for (int mode = 0; mode < 2; mode++) {
                lkt_case *pad =
                    lkt_case_add(list, LK_OP_PAD, "fast %d mode %d %s", batch, mode, spoil_names[how]);
                pad->attr.pad.mode = mode ? LK_PAD_REFLECT : LK_PAD_CONSTANT;
                pad->attr.pad.before[1] = pad->attr.pad.after[2] = 2;
                spoil_tensor(lkt_in_f32(pad, LK_SHAPE(batch, 3, 17), LKT_NORMAL), how, 17);
                lkt_out_f32(pad, LK_SHAPE(batch, 5, 19));
            }
            lkt_case *permute = lkt_case_add(list, LK_OP_PERMUTE, "fast %d %s", batch, spoil_names[how]);
            permute->attr.permute.order[0] = 0, permute->attr.permute.order[1] = 2,
            permute->attr.permute.order[2] = 1;
            spoil_tensor(lkt_in_f32(permute, LK_SHAPE(batch, 19, 35), LKT_NORMAL), how, 35);
            lkt_out_f32(permute, LK_SHAPE(batch, 35, 19));
            lkt_case *runs = lkt_case_add(list, LK_OP_PERMUTE, "fast runs %d %s", batch, spoil_names[how]);
            runs->attr.permute.order[0] = 1, runs->attr.permute.order[1] = 0, runs->attr.permute.order[2] = 2;
            spoil_tensor(lkt_in_f32(runs, LK_SHAPE(batch, 3, 35), LKT_NORMAL), how, 35);
            lkt_out_f32(runs, LK_SHAPE(3, batch, 35));
            for (int wide = 0; wide < 2; wide++) {
                lkt_case *add = lkt_case_add(list, LK_OP_ADD, "fast %d %d %s", batch, wide, spoil_names[how]);
                spoil_tensor(lkt_in_f32(add, LK_SHAPE(batch, 3, 333), LKT_NORMAL), how, 333);
                lkt_in_f32(add, wide ? LK_SHAPE(batch, 3, 333) : LK_SHAPE(3, 1), LKT_NORMAL);
                lkt_out_f32(add, LK_SHAPE(batch, 3, 333));
            }
        }
}

void lkt_cases_fast(lkt_case_list *list)
{
    linears(list);
    matmuls(list);
    convs(list);
    softmaxes(list);
    norms(list);
    low_linears(list);
    low_norms(list);
    reductions(list);
    pools(list);
    others(list);
    lkt_cases_attention(list);
    lkt_cases_recurrent(list); /* on every vector width and several threads */
}
