/* Cases of the normalisations and of dropout. */
#include "case.h"

#include "lktest.h"

/* (x, weight?, bias?) and the gradient (dy, x, weight?, mean, istd), whatever is normalised over. */
static void norm_pair(lkt_case_list *list, lk_op op, lk_op gradient, lk_shape shape, lk_shape weight,
                      lk_shape moments, lk_norm_attr attr, bool affine, int running)
{
    char text[64];
    lk_shape_format(text, sizeof text, shape);
    long long parts = op == LK_OP_LAYER_NORM ? attr.axis_count : (long long)attr.group_count;
    attr.eps = 1e-5;
    lkt_case *c = lkt_case_add(list, op, "%s by %lld affine %d running %d training %d", text, parts, affine,
                               running, attr.training);
    c->attr.norm = attr;
    c->tolerance = 2e-5;
    lkt_in_f32(c, shape, LKT_NORMAL);
    for (int i = 0; i < 2; i++) {
        if (affine)
            lkt_in_f32(c, weight, LKT_NORMAL);
        else
            lkt_in_absent(c);
    }
    for (int i = 0; i < 2 && op == LK_OP_BATCH_NORM; i++) {
        if (running)
            lkt_in_f32(c, weight, i ? LKT_POSITIVE : LKT_NORMAL);
        else
            lkt_in_absent(c);
    }
    lkt_out_f32(c, shape);
    lkt_out_f32(c, moments);
    lkt_out_f32(c, moments);
    for (int i = 1; i < LKT_MAX_INPUTS; i++) c->keeps_f32[i] = true;
    lkt_case *backward = lkt_case_add(list, gradient, "%s by %lld affine %d running %d training %d", text,
                                      parts, affine, running, attr.training);
    backward->attr.norm = attr;
    backward->tolerance = 5e-5;
    for (int i = 2; i < LKT_MAX_INPUTS; i++) backward->keeps_f32[i] = true;
    lkt_in_f32(backward, shape, LKT_NORMAL);
    lkt_in_operand(backward, c, 0);
    lkt_in_operand(backward, c, 1);
    lkt_in_result(backward, c, 1);
    lkt_in_result(backward, c, 2);
    lkt_out_f32(backward, shape);
    lkt_out_f32(backward, weight);
    lkt_out_f32(backward, weight);
    backward->unwanted[1] = backward->unwanted[2] = !affine;
}

static void batch_norms(lkt_case_list *list)
{
    static const lk_shape shapes[] = {
        {2, {8, 5}},       {2, {33, 67}},        {3, {4, 3, 19}},   {4, {2, 16, 7, 9}},
        {4, {3, 5, 4, 4}}, {5, {2, 8, 3, 4, 5}}, {4, {2, 3, 1, 1}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int affine = 0; affine < 2; affine++)
            for (int running = 0; running < 2; running++)
                for (int training = !running; training < 2; training++) {
                    lk_shape channels = LK_SHAPE(shapes[i].dim[1]);
                    lk_norm_attr attr = {.momentum = 0.1, .training = training};
                    norm_pair(list, LK_OP_BATCH_NORM, LK_OP_BATCH_NORM_GRAD, shapes[i], channels, channels,
                              attr, affine, running);
                }
}

static void layer_norms(lkt_case_list *list)
{
    static const struct {
        lk_shape shape;
        int axes;
    } cases[] = {
        {{1, {19}}, 1},      {{2, {5, 67}}, 1},      {{3, {2, 3, 64}}, 1},
        {{3, {4, 5, 6}}, 2}, {{4, {2, 3, 4, 5}}, 3}, {{2, {33, 512}}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int affine = 0; affine < 2; affine++) {
            lk_shape shape = cases[i].shape, rows = shape, weight = {.rank = cases[i].axes};
            rows.rank -= cases[i].axes;
            for (int d = 0; d < weight.rank; d++) weight.dim[d] = shape.dim[rows.rank + d];
            lk_norm_attr attr = {.axis_count = cases[i].axes};
            norm_pair(list, LK_OP_LAYER_NORM, LK_OP_LAYER_NORM_GRAD, shape, weight, rows, attr, affine, 0);
        }
}

static void group_norms(lkt_case_list *list)
{
    static const struct {
        lk_shape shape;
        int groups;
    } cases[] = {
        {{2, {3, 8}}, 2},       {{3, {2, 6, 19}}, 3},   {{4, {2, 8, 5, 7}}, 4},
        {{4, {2, 6, 3, 3}}, 1}, {{4, {2, 6, 3, 3}}, 6}, {{5, {1, 4, 3, 4, 5}}, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int affine = 0; affine < 2; affine++) {
            lk_shape shape = cases[i].shape;
            lk_norm_attr attr = {.group_count = cases[i].groups};
            norm_pair(list, LK_OP_GROUP_NORM, LK_OP_GROUP_NORM_GRAD, shape, LK_SHAPE(shape.dim[1]),
                      LK_SHAPE(shape.dim[0], cases[i].groups), attr, affine, 0);
        }
}

/* The suite seeds every run's generator alike, so engines that draw from it must draw alike. */
static void dropouts(lkt_case_list *list)
{
    static const double ps[] = {0, 0.1, 0.5, 0.9, 1};
    static const int64_t sizes[] = {0, 1, 17, 1027};
    for (int p = 0; p < 5; p++)
        for (int i = 0; i < 4; i++) {
            lkt_case *c = lkt_case_add(list, LK_OP_DROPOUT, "of %lld p %g", (long long)sizes[i], ps[p]);
            c->attr.dropout.p = ps[p];
            lkt_in_f32(c, LK_SHAPE(sizes[i]), LKT_NORMAL);
            lkt_out_f32(c, LK_SHAPE(sizes[i]));
            lkt_out(c, LK_U8, LK_SHAPE(sizes[i]));
            lkt_case *backward =
                lkt_case_add(list, LK_OP_DROPOUT_GRAD, "of %lld p %g", (long long)sizes[i], ps[p]);
            backward->attr.dropout.p = ps[p];
            lkt_in_f32(backward, LK_SHAPE(sizes[i]), LKT_NORMAL);
            lkt_in_result(backward, c, 1);
            lkt_out_f32(backward, LK_SHAPE(sizes[i]));
        }
}

/* Which of the inputs behind those of a batch norm are there. */
typedef enum addition { NOTHING, A_TENSOR, ANOTHER_NORM, ANOTHER_NORM_WITHOUT_WEIGHT } addition;

static void add_addend(lkt_case *c, lk_shape shape, addition what)
{
    lk_shape channels = LK_SHAPE(shape.dim[1]);
    if (what != NOTHING) lkt_in_f32(c, shape, LKT_NORMAL);
    if (what < ANOTHER_NORM) return;
    lkt_in_f32(c, channels, LKT_NORMAL);
    lkt_in_f32(c, channels, LKT_POSITIVE);
    if (what == ANOTHER_NORM_WITHOUT_WEIGHT) return;
    lkt_in_f32(c, channels, LKT_NORMAL);
    lkt_in_f32(c, channels, LKT_NORMAL);
}

/* The gradient's mask is computed from x: a result near 0 would be a matter of rounding. */
static void keep_off_zero(lk_tensor *x, const lkt_case *c)
{
    lk_engine *engine = lk_engine_open("ref", NULL);
    lkt_case plain = *c;
    lkt_result result;
    plain.op = LK_OP_BATCH_NORM;
    lkt_ok(lkt_run(engine, &plain, (lkt_variant){0}, &result));
    for (int64_t i = 0; i < lk_tensor_count(x); i++)
        if (fabs(lk_tensor_get(result.out[0], i)) < 0.05) lk_tensor_set(x, i, lk_tensor_get(x, i) + 0.25);
    lkt_result_free(&result);
    lk_engine_close(engine);
}

static void relu_pair(lkt_case_list *list, lk_shape shape, bool training, bool affine, addition what)
{
    char text[64];
    lk_shape channels = LK_SHAPE(shape.dim[1]);
    lk_shape_format(text, sizeof text, shape);
    lkt_case *c = lkt_case_add(list, LK_OP_BATCH_NORM_RELU, "%s training %d affine %d adds %d", text,
                               training, affine, (int)what);
    c->attr.norm = (lk_norm_attr){.eps = 1e-5, .momentum = 0.1, .training = training};
    c->tolerance = 2e-5;
    lk_tensor *x = lkt_in_f32(c, shape, LKT_NORMAL);
    for (int i = 0; i < 4; i++)
        if (affine || i > 1)
            lkt_in_f32(c, channels, i == 3 ? LKT_POSITIVE : LKT_NORMAL);
        else
            lkt_in_absent(c);
    lkt_out_f32(c, shape);
    lkt_out_f32(c, channels);
    lkt_out_f32(c, channels);
    keep_off_zero(x, c);
    add_addend(c, shape, what);
    for (int i = 1; i < LKT_MAX_INPUTS; i++) c->keeps_f32[i] = i != 5;
    if (what != NOTHING) return;
    lkt_case *backward =
        lkt_case_add(list, LK_OP_BATCH_NORM_RELU_GRAD, "%s training %d affine %d", text, training, affine);
    backward->attr = c->attr;
    backward->tolerance = 5e-5;
    lkt_in_f32(backward, shape, LKT_NORMAL);
    lkt_in_operand(backward, c, 0);
    lkt_in_operand(backward, c, 1);
    lkt_in_result(backward, c, 1);
    lkt_in_result(backward, c, 2);
    lkt_in_operand(backward, c, 2);
    lkt_out_f32(backward, shape);
    lkt_out_f32(backward, channels);
    lkt_out_f32(backward, channels);
    for (int i = 2; i < LKT_MAX_INPUTS; i++) backward->keeps_f32[i] = true;
}

static void norms_with_relu(lkt_case_list *list)
{
    static const lk_shape shapes[] = {
        {4, {2, 3, 5, 7}}, {4, {4, 16, 3, 3}}, {3, {5, 33, 9}}, {5, {2, 8, 3, 2, 5}}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int form = 0; form < 4; form++)
            for (addition what = NOTHING; what <= ANOTHER_NORM_WITHOUT_WEIGHT; what++)
                relu_pair(list, shapes[i], form & 1, form & 2, what);
}

void lkt_cases_norm(lkt_case_list *list)
{
    norms_with_relu(list);
    batch_norms(list);
    layer_norms(list);
    group_norms(list);
    dropouts(list);
}
