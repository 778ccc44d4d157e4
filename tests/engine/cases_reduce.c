/* Cases of reductions and softmax: every set of axes, short and long, inner and outer. */
#include "case.h"

static lk_shape reduced(lk_shape shape, uint32_t axes, bool keep)
{
    lk_shape out = lk_scalar_shape();
    for (int i = 0; i < shape.rank; i++) {
        if (!(axes & (1u << i)))
            out.dim[out.rank++] = shape.dim[i];
        else if (keep)
            out.dim[out.rank++] = 1;
    }
    return out;
}

static lkt_case *add_reduction(lkt_case_list *list, lk_op op, lk_shape shape, uint32_t axes, bool keep,
                               int64_t correction)
{
    char text[64];
    lkt_case *c = lkt_case_add(list, op, "%s axes %x keep %d correction %lld",
                               lk_shape_format(text, sizeof text, shape), axes, keep, (long long)correction);
    c->attr.reduce = (lk_reduce_attr){.axes = axes, .keep_dims = keep, .correction = correction};
    c->tolerance = 2e-5;
    lkt_in_f32(c, shape, op == LK_OP_MAX ? LKT_COARSE : LKT_NORMAL);
    lkt_out_f32(c, reduced(shape, axes, keep));
    return c;
}

static void reductions(lkt_case_list *list, lk_shape shape)
{
    for (uint32_t axes = 1; axes < 1u << shape.rank; axes++)
        for (int keep = 0; keep < 2; keep++) {
            add_reduction(list, LK_OP_SUM, shape, axes, keep, 0);
            add_reduction(list, LK_OP_MEAN, shape, axes, keep, 0);
            lkt_case *max = add_reduction(list, LK_OP_MAX, shape, axes, keep, 0);
            int64_t together = lk_shape_count(shape) / lk_shape_count(reduced(shape, axes, false));
            add_reduction(list, LK_OP_VAR, shape, axes, keep, keep && together > 1);
            if (!keep) continue;
            char text[64];
            lkt_case *c = lkt_case_add(list, LK_OP_MAX_GRAD, "%s axes %x",
                                       lk_shape_format(text, sizeof text, shape), axes);
            lkt_in_f32(c, reduced(shape, axes, true), LKT_NORMAL);
            lkt_in_operand(c, max, 0);
            lkt_in_result(c, max, 0);
            lkt_out_f32(c, shape);
        }
}

static void along_axes(lkt_case_list *list, lk_shape shape)
{
    char text[64];
    lk_shape_format(text, sizeof text, shape);
    for (int axis = 0; axis < shape.rank; axis++) {
        for (int keep = 0; keep < 2; keep++) {
            lkt_case *c = lkt_case_add(list, LK_OP_ARGMAX, "%s axis %d keep %d", text, axis, keep);
            c->attr.axis = (lk_axis_attr){.axis = axis, .keep_dims = keep};
            lkt_in_f32(c, shape, LKT_COARSE);
            lkt_out(c, LK_I64, reduced(shape, 1u << axis, keep));
        }
        static const lk_op ops[][2] = {{LK_OP_SOFTMAX, LK_OP_SOFTMAX_GRAD},
                                       {LK_OP_LOG_SOFTMAX, LK_OP_LOG_SOFTMAX_GRAD}};
        for (int k = 0; k < 2; k++) {
            lkt_case *forward = lkt_case_add(list, ops[k][0], "%s axis %d", text, axis);
            forward->attr.axis.axis = axis;
            lkt_in_f32(forward, shape, LKT_NORMAL);
            lkt_out_f32(forward, shape);
            lkt_case *backward = lkt_case_add(list, ops[k][1], "%s axis %d", text, axis);
            backward->attr.axis.axis = axis;
            lkt_in_f32(backward, shape, LKT_NORMAL);
            lkt_in_result(backward, forward, 0);
            lkt_out_f32(backward, shape);
        }
    }
}

static void large_logits(lkt_case_list *list)
{
    static const lk_op ops[] = {LK_OP_SOFTMAX, LK_OP_LOG_SOFTMAX};
    for (int k = 0; k < 2; k++) {
        lkt_case *c = lkt_case_add(list, ops[k], "of large numbers");
        c->attr.axis.axis = 1;
        lk_tensor *x = lkt_in_f32(c, LK_SHAPE(2, 19), LKT_NORMAL);
        for (int64_t i = 0; i < 38; i++) lk_tensor_set(x, i, (double)((i * 37) % 400 - 200));
        lkt_out_f32(c, LK_SHAPE(2, 19));
        c->tolerance = 1e-5;
    }
}

void lkt_cases_reduce(lkt_case_list *list)
{
    reductions(list, LK_SHAPE(1));
    reductions(list, LK_SHAPE(67));
    reductions(list, LK_SHAPE(33, 17));
    reductions(list, LK_SHAPE(5, 3, 19));
    reductions(list, LK_SHAPE(2, 3, 4, 5));
    reductions(list, LK_SHAPE(7, 1031));
    reductions(list, LK_SHAPE(1031, 7));
    add_reduction(list, LK_OP_SUM, LK_SHAPE(0, 5), 1, false, 0);
    add_reduction(list, LK_OP_SUM, LK_SHAPE(0, 5), 2, false, 0);
    add_reduction(list, LK_OP_MEAN, LK_SHAPE(0, 5), 2, true, 0);
    add_reduction(list, LK_OP_SUM, LK_SHAPE(200003), 1, false, 0)->tolerance = 1e-4;
    along_axes(list, LK_SHAPE(10));
    along_axes(list, LK_SHAPE(33, 10));
    along_axes(list, LK_SHAPE(5, 1));
    along_axes(list, LK_SHAPE(3, 5, 17));
    along_axes(list, LK_SHAPE(2, 3, 4, 67));
    along_axes(list, LK_SHAPE(3, 1000));
    large_logits(list);
}
