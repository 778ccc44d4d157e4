/* Upsampling by the nearest element or by linear interpolation, along the last one to three axes.
 *
 * Every output reads up to two elements of each axis with weights that sum to one, so the forward pass and
 * its gradient walk the same taps. Scale factors, where the user gave them, take the place of input size /
 * output size. */
#include "engine/ref/sliding_window.h"

#include <math.h>

typedef struct upsample {
    lki_ref_planes in, out;
    double factor[3]; /* the scale factors given, or 0 */
    lk_upsample_mode mode;
    bool align_corners;
} upsample;

static upsample describe(const lk_call *call, lk_shape in, lk_shape out)
{
    const lk_upsample_attr *attr = &call->attr->upsample;
    upsample v = {
        .in = lki_ref_planes_of(in, attr->rank),
        .out = lki_ref_planes_of(out, attr->rank),
        .mode = attr->mode,
        .align_corners = attr->align_corners,
    };
    for (int i = 0; i < attr->rank; i++) v.factor[3 - attr->rank + i] = attr->scale[i];
    return v;
}

/* The two places of an axis that an output reads, and the weight of the second. */
typedef struct taps {
    int64_t place[2];
    double weight;
} taps;

/* The product is taken in f32, as PyTorch takes it for f32 tensors: where it falls on a whole number is a
 * matter of rounding, and all engines must fall on the same side. */
static taps nearest_taps(int64_t p, int64_t in, int64_t out, double factor)
{
    float scale = factor > 0 ? (float)(1 / factor) : (float)in / (float)out;
    int64_t place = (int64_t)floorf((float)p * scale);
    if (place > in - 1) place = in - 1;
    return (taps){{place, place}, 0};
}

/* Source coordinate: p (in - 1) / (out - 1) with aligned corners, else (p + 1/2) scale - 1/2, not below 0. An
 * axis that keeps its size is copied, whatever the factor was, as in PyTorch. */
static taps linear_taps(const upsample *v, int64_t p, int64_t in, int64_t out, double factor)
{
    double at;
    if (v->align_corners) {
        at = out > 1 ? (double)p * (double)(in - 1) / (double)(out - 1) : 0;
    } else {
        double scale = factor > 0 && in != out ? 1 / factor : (double)in / (double)out;
        at = fmax(0, ((double)p + 0.5) * scale - 0.5);
    }
    int64_t low = (int64_t)at;
    if (low > in - 1) low = in - 1;
    int64_t high = low < in - 1 ? low + 1 : low;
    return (taps){{low, high}, fmin(at - (double)low, 1)};
}

static void taps_of(const upsample *v, int64_t place, taps axis[3])
{
    int64_t p[3];
    lki_ref_unflatten(p, place, v->out.dim);
    for (int i = 0; i < 3; i++)
        axis[i] = v->mode == LK_UPSAMPLE_NEAREST
                      ? nearest_taps(p[i], v->in.dim[i], v->out.dim[i], v->factor[i])
                      : linear_taps(v, p[i], v->in.dim[i], v->out.dim[i], v->factor[i]);
}

/* Corner 0..7 of the taps: where it lies, and its weight. */
static int64_t corner_of(const upsample *v, const taps axis[3], int corner, double *weight)
{
    int64_t at[3];
    *weight = 1;
    for (int i = 0; i < 3; i++) {
        int side = corner >> i & 1;
        at[i] = axis[i].place[side];
        *weight *= side ? axis[i].weight : 1 - axis[i].weight;
    }
    return lki_ref_flatten(at, v->in.dim);
}

lk_status lki_ref_upsample(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *y = &call->out[0];
    upsample v = describe(call, x->shape, y->shape);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            taps axis[3];
            taps_of(&v, i, axis);
            double sum = 0, weight;
            for (int corner = 0; corner < 8; corner++) {
                int64_t from = corner_of(&v, axis, corner, &weight);
                if (weight != 0) sum += weight * lki_ref_get(x, n * v.in.size + from);
            }
            lki_ref_set(y, n * v.out.size + i, sum);
        }
    return LK_OK;
}

lk_status lki_ref_upsample_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *dx = &call->out[0];
    upsample v = describe(call, dx->shape, dy->shape);
    lki_ref_fill(dx, 0);
    for (int64_t n = 0; n < v.out.count; n++)
        for (int64_t i = 0; i < v.out.size; i++) {
            taps axis[3];
            taps_of(&v, i, axis);
            double weight;
            for (int corner = 0; corner < 8; corner++) {
                int64_t to = corner_of(&v, axis, corner, &weight);
                if (weight != 0)
                    lki_ref_add(dx, n * v.in.size + to, weight * lki_ref_get(dy, n * v.out.size + i));
            }
        }
    return LK_OK;
}
