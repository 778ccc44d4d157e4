#include "graph/ops_resize.h"

#include "base/status.h"
#include "graph/record_util.h"

#include <math.h>

enum { CUBIC_POINTS = 4 };

/* Input places per output place, in PyTorch's precision. */
static float step_of(const lk_upsample_attr *attr, int axis, int64_t from, int64_t to)
{
    if (attr->align_corners) return to > 1 ? (float)(from - 1) / (float)(to - 1) : 0;
    return attr->scale[axis] > 0 ? (float)(1.0 / attr->scale[axis]) : (float)from / (float)to;
}

static int64_t bounded(int64_t place, int64_t count)
{
    return place < 0 ? 0 : place >= count ? count - 1 : place;
}

/* Keys's cubic convolution with a = -0.75: the weights of the places -1, 0, 1 and 2 beside a point at t. */
static void cubic_weights(double t, double *weights)
{
    const double a = -0.75;
    const double distance[CUBIC_POINTS] = {t + 1, t, 1 - t, 2 - t};
    for (int k = 0; k < CUBIC_POINTS; k++) {
        double d = distance[k];
        weights[k] = k == 1 || k == 2 ? ((a + 2) * d - (a + 3)) * d * d + 1
                                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

static lk_value *constant_of(lk_graph *graph, lk_tensor *tensor)
{
    if (!tensor) return lki_graph_fail(graph, lki_last_status(), "%s", lk_error());
    lk_value *value = lk_graph_constant(graph, tensor);
    lk_tensor_free(tensor);
    return value;
}

static lk_value *nearest_exact(lk_value *x, int axis, int64_t to, float step)
{
    int64_t from = x->shape.dim[axis];
    lk_tensor *index = lk_tensor_create(LK_I64, LK_SHAPE(to));
    for (int64_t i = 0; index && i < to; i++)
        ((int64_t *)index->data)[i] = bounded((int64_t)floorf(((float)i + 0.5f) * step), from);
    return lk_op_index_select(x, axis, constant_of(x->graph, index));
}

/* The sum over the four places around each output place of a weight times x there. */
static lk_value *cubic(lk_value *x, int axis, int64_t to, float step, bool align_corners)
{
    int64_t from = x->shape.dim[axis];
    lk_shape shape = {.rank = x->shape.rank};
    for (int i = 0; i < shape.rank; i++) shape.dim[i] = i == axis ? to : 1;
    lk_value *sum = NULL;
    for (int k = 0; k < CUBIC_POINTS; k++) {
        lk_tensor *index = lk_tensor_create(LK_I64, LK_SHAPE(to));
        lk_tensor *weight = lk_tensor_create(LK_F32, shape);
        for (int64_t i = 0; index && weight && i < to; i++) {
            double weights[CUBIC_POINTS];
            float place = align_corners ? step * (float)i : step * ((float)i + 0.5f) - 0.5f;
            int64_t left = (int64_t)floorf(place);
            cubic_weights(place - (float)left, weights);
            ((int64_t *)index->data)[i] = bounded(left - 1 + k, from);
            ((float *)weight->data)[i] = (float)weights[k];
        }
        lk_value *factor = lk_op_cast(constant_of(x->graph, weight), x->dtype);
        lk_value *part = lk_op_mul(lk_op_index_select(x, axis, constant_of(x->graph, index)), factor);
        sum = sum ? lk_op_add(sum, part) : part;
    }
    return sum;
}

lk_value *lki_resize_by_index(lk_value *x, const lk_upsample_attr *attr)
{
    bool is_cubic = attr->mode == LK_UPSAMPLE_BICUBIC;
    if (is_cubic && attr->rank != 2)
        return lki_graph_fail(x->graph, LK_ERR_SHAPE, "bicubic: input %s: expected 4 dimensions",
                              LKI_SHOW(x->shape));
    for (int i = 0; i < attr->rank; i++)
        if (attr->shape.dim[i + 2] < 1 || x->shape.dim[i + 2] < 1)
            return lki_graph_fail(x->graph, LK_ERR_SHAPE, "upsample: %s cannot become %s", LKI_SHOW(x->shape),
                                  LKI_SHOW(attr->shape));
    for (int i = attr->rank - 1; i >= 0 && x; i--) {
        int64_t to = attr->shape.dim[i + 2];
        float step = step_of(attr, i, x->shape.dim[i + 2], to);
        x = is_cubic ? cubic(x, i + 2, to, step, attr->align_corners) : nearest_exact(x, i + 2, to, step);
    }
    return x;
}
