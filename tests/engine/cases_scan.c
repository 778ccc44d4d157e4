/* Cases of the ops that look at whole lines (running sums, sorting), of scatter and of the slices' gradients,
 * and of random numbers. */
#include "case.h"

#include <math.h>

static const lk_shape shapes[] = {{1, {1}},        {1, {67}},      {2, {5, 19}},
                                  {3, {2, 7, 33}}, {2, {3, 1029}}, {2, {0, 3}}};
enum { SHAPE_COUNT = sizeof shapes / sizeof *shapes };

static void scans(lkt_case_list *list)
{
    static const lk_op ops[] = {LK_OP_CUMSUM, LK_OP_CUMPROD, LK_OP_CUMPROD_GRAD};
    for (int i = 0; i < SHAPE_COUNT; i++)
        for (int axis = 0; axis < shapes[i].rank; axis++)
            for (int k = 0; k < 6; k++) {
                lk_op op = ops[k / 2];
                lkt_case *c = lkt_case_add(list, op, "%d along %d way %d", i, axis, k % 2);
                c->attr.scan = (lk_scan_attr){.axis = axis, .reverse = k % 2};
                lkt_in_f32(c, shapes[i], op == LK_OP_CUMPROD ? LKT_UNIT : LKT_COARSE);
                if (op == LK_OP_CUMPROD_GRAD) lkt_in_f32(c, shapes[i], LKT_UNIT);
                lkt_out_f32(c, shapes[i]);
            }
    lkt_case *zeros = lkt_case_add(list, LK_OP_CUMPROD_GRAD, "with zeros");
    lkt_in_f32(zeros, LK_SHAPE(4, 6), LKT_NORMAL);
    lk_tensor *x = lkt_in_f32(zeros, LK_SHAPE(4, 6), LKT_COARSE);
    for (int64_t i = 0; i < 24; i += 5) lk_tensor_set(x, i, 0);
    zeros->attr.scan.axis = 1;
    lkt_out_f32(zeros, LK_SHAPE(4, 6));
    lkt_case *scalar = lkt_case_add(list, LK_OP_CUMSUM, "of a scalar");
    lkt_in_f32(scalar, lk_scalar_shape(), LKT_NORMAL);
    lkt_out_f32(scalar, lk_scalar_shape());
}

static void sort(lkt_case_list *list, lk_shape shape, lk_sort_attr attr, lkt_fill fill, bool odd)
{
    lkt_case *c =
        lkt_case_add(list, LK_OP_SORT, "rank %d of %lld along %d %s, %lld kept, fill %d%s", shape.rank,
                     (long long)lk_shape_count(shape), attr.axis, attr.descending ? "down" : "up",
                     (long long)attr.count, (int)fill, odd ? ", odd" : "");
    lk_tensor *x = lkt_in_f32(c, shape, fill);
    static const double numbers[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0};
    for (int64_t i = 0; odd && i < lk_tensor_count(x); i += 3) lk_tensor_set(x, i, numbers[i / 3 % 5]);
    if (attr.count) shape.dim[attr.axis] = attr.count;
    lkt_out_f32(c, shape);
    lkt_out(c, LK_I64, shape);
    c->attr.sort = attr;
}

static void sorts(lkt_case_list *list)
{
    for (int i = 0; i < SHAPE_COUNT; i++)
        for (int axis = 0; axis < shapes[i].rank; axis++)
            for (int k = 0; k < 4; k++) {
                int64_t count = k % 2 ? (shapes[i].dim[axis] + 1) / 2 : 0;
                lk_sort_attr attr = {.axis = axis, .descending = k / 2, .count = count};
                sort(list, shapes[i], attr, LKT_COARSE, false);
                sort(list, shapes[i], attr, LKT_NORMAL, false);
            }
    sort(list, LK_SHAPE(4, 21), (lk_sort_attr){.axis = 1}, LKT_NORMAL, true);
    sort(list, LK_SHAPE(4, 21), (lk_sort_attr){.axis = 0, .descending = true}, LKT_COARSE, true);
}

static void scatters(lkt_case_list *list)
{
    for (int axis = 0; axis < 3; axis++)
        for (int add = 0; add < 2; add++) {
            lk_shape shape = LK_SHAPE(4, 5, 19), index = LK_SHAPE(3, 4, 17);
            index.dim[axis] = 23;
            lkt_case *c = lkt_case_add(list, add ? LK_OP_SCATTER_ADD : LK_OP_SCATTER, "along %d", axis);
            c->attr.gather.axis = axis;
            lkt_in_f32(c, shape, LKT_NORMAL);
            lkt_in_index(c, index, shape.dim[axis]);
            lkt_in_f32(c, index, LKT_NORMAL);
            lkt_out_f32(c, shape);
            lkt_case *none =
                lkt_case_add(list, add ? LK_OP_SCATTER_ADD : LK_OP_SCATTER, "of nothing along %d", axis);
            none->attr.gather.axis = axis;
            index.dim[axis] = 0;
            lkt_in_f32(none, shape, LKT_NORMAL);
            lkt_in_index(none, index, shape.dim[axis]);
            lkt_in_f32(none, index, LKT_NORMAL);
            lkt_out_f32(none, shape);
        }
}

/* Parts that touch, that leave gaps, that overlap, and with steps. */
#define PART(begin0, begin1, end0, end1, step0, step1)                                                       \
    {                                                                                                        \
        .begin = {begin0, begin1}, .end = {end0, end1}, .step = { step0, step1 }                             \
    }
static const lk_slice_attr parts[][3] = {
    {PART(0, 0, 4, 6, 1, 1), PART(0, 6, 4, 12, 1, 1), PART(0, 12, 4, 18, 1, 1)},
    {PART(0, 2, 4, 5, 1, 1), PART(1, 6, 3, 9, 1, 1), PART(3, 17, 4, 18, 1, 1)},
    {PART(0, 0, 3, 10, 1, 1), PART(1, 5, 4, 18, 1, 1), PART(0, 3, 4, 9, 1, 1)},
    {PART(0, 0, 4, 18, 2, 3), PART(1, 1, 4, 18, 2, 4), PART(0, 0, 1, 18, 1, 1)},
};

static void slices(lkt_case_list *list)
{
    for (int i = 0; i < 4; i++)
        for (int count = 1; count <= 3; count++) {
            lkt_case *c = lkt_case_add(list, LK_OP_SLICES_GRAD, "parts %d of %d", count, i);
            for (int k = 0; k < count; k++) {
                lk_shape shape = {.rank = 2};
                for (int d = 0; d < 2; d++)
                    shape.dim[d] = (parts[i][k].end[d] - parts[i][k].begin[d] + parts[i][k].step[d] - 1) /
                                   parts[i][k].step[d];
                lkt_in_f32(c, shape, LKT_NORMAL);
            }
            lkt_out_f32(c, LK_SHAPE(4, 18));
            c->attr.slices.parts = parts[i];
        }
    static const lk_slice_attr empty[] = {PART(0, 0, 0, 2, 1, 1), PART(0, 2, 0, 3, 1, 1)};
    lkt_case *none = lkt_case_add(list, LK_OP_SLICES_GRAD, "of nothing");
    lkt_in_f32(none, LK_SHAPE(0, 2), LKT_NORMAL);
    lkt_in_f32(none, LK_SHAPE(0, 1), LKT_NORMAL);
    lkt_out_f32(none, LK_SHAPE(0, 3));
    none->attr.slices.parts = empty;
}

static void randoms(lkt_case_list *list)
{
    static const lk_random_attr draws[] = {
        {.kind = LK_RANDOM_UNIFORM, .a = -1, .b = 3},
        {.kind = LK_RANDOM_NORMAL, .a = 0.5, .b = 2},
        {.kind = LK_RANDOM_BERNOULLI, .a = 0.3},
    };
    static const int64_t sizes[] = {0, 1, 15, 16, 1029};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < 5; i++) {
            lkt_case *c = lkt_case_add(list, LK_OP_RANDOM, "kind %d of %lld", k, (long long)sizes[i]);
            c->attr.random = draws[k];
            lkt_out_f32(c, LK_SHAPE(sizes[i]));
        }
}

static void comparisons(lkt_case_list *list)
{
    static const lk_op ops[] = {LK_OP_EQUAL, LK_OP_GREATER, LK_OP_GREATER_EQUAL};
    for (int k = 0; k < 3; k++) {
        lkt_case *c = lkt_case_add(list, ops[k], "of whole numbers");
        lkt_in_index(c, LK_SHAPE(7, 1), 4);
        lkt_in_index(c, LK_SHAPE(1, 37), 4);
        lkt_out(c, LK_BOOL, LK_SHAPE(7, 37));
        c = lkt_case_add(list, ops[k], "of numbers that no double tells apart");
        lk_tensor *a = lkt_in_index(c, LK_SHAPE(6), 4), *b = lkt_in_index(c, LK_SHAPE(6), 4);
        for (int i = 0; i < 6; i++) {
            ((int64_t *)a->data)[i] += (int64_t)1 << 60;
            ((int64_t *)b->data)[i] += (int64_t)1 << 60;
        }
        lkt_out(c, LK_BOOL, LK_SHAPE(6));
        c = lkt_case_add(list, ops[k], "of masks");
        lkt_in(c, LK_BOOL, LK_SHAPE(67), LKT_MASK);
        lkt_in(c, LK_BOOL, lk_scalar_shape(), LKT_ZERO);
        lkt_out(c, LK_BOOL, LK_SHAPE(67));
    }
}

void lkt_cases_scan(lkt_case_list *list)
{
    scans(list);
    sorts(list);
    scatters(list);
    slices(list);
    randoms(list);
    comparisons(list);
}
