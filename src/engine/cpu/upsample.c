/* Upsampling and its gradient: along each axis an output reads two places with weights that sum to one (one
 * place for the nearest). Rows are first mixed along depth and height, which is a loop over memory, then
 * along the width. */
#include "engine/cpu/conv.h"

#include "base/memory.h"

#include <math.h>
#include <string.h>

/* The two places of an axis that each output reads, and the weight of the second. */
typedef struct axis_taps {
    int64_t in, out;
    int64_t *low, *high;
    float *weight;
} axis_taps;

/* What call->state points to; the tables lie behind it in the same block. */
typedef struct plan {
    axis_taps axis[3];
    int64_t planes, in_plane, out_plane;
    bool forward;
} plan;

/* In f32, as PyTorch: which side of a whole number it falls on is a matter of rounding. */
static void fill_nearest(axis_taps *t, double factor)
{
    float scale = factor > 0 ? (float)(1 / factor) : (float)t->in / (float)t->out;
    for (int64_t p = 0; p < t->out; p++) {
        int64_t place = (int64_t)floorf((float)p * scale);
        t->low[p] = t->high[p] = place < t->in - 1 ? place : t->in - 1;
        t->weight[p] = 0;
    }
}

/* Source coordinate: p (in - 1) / (out - 1) with aligned corners, else (p + 1/2) scale - 1/2, not below 0. */
static void fill_linear(axis_taps *t, double factor, bool align_corners)
{
    double scale = factor > 0 && t->in != t->out ? 1 / factor : (double)t->in / (double)t->out;
    for (int64_t p = 0; p < t->out; p++) {
        double at = align_corners ? (t->out > 1 ? (double)p * (double)(t->in - 1) / (double)(t->out - 1) : 0)
                                  : fmax(0, ((double)p + 0.5) * scale - 0.5);
        t->low[p] = (int64_t)at < t->in - 1 ? (int64_t)at : t->in - 1;
        t->high[p] = t->low[p] < t->in - 1 ? t->low[p] + 1 : t->low[p];
        t->weight[p] = (float)fmin(at - (double)t->low[p], 1);
    }
}

static void add_scaled(float *to, const float *from, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
}

/* For each of the up to four input rows that output row (z, y) reads: its place in the plane and its weight.
 */
static int rows_of(const plan *p, int64_t z, int64_t y, int64_t place[4], float weight[4])
{
    const axis_taps *depth = &p->axis[0], *height = &p->axis[1];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        float w = (i & 2 ? depth->weight[z] : 1 - depth->weight[z]) *
                  (i & 1 ? height->weight[y] : 1 - height->weight[y]);
        if (w == 0) continue;
        int64_t row = (i & 2 ? depth->high[z] : depth->low[z]) * height->in +
                      (i & 1 ? height->high[y] : height->low[y]);
        place[count] = row * p->axis[2].in;
        weight[count++] = w;
    }
    return count;
}

static void forward_row(const plan *p, float *y, const float *x, int64_t oz, int64_t oy, float *mixed)
{
    const axis_taps *t = &p->axis[2];
    int64_t place[4];
    float weight[4];
    int count = rows_of(p, oz, oy, place, weight);
    const float *row = count == 1 && weight[0] == 1 ? x + place[0] : mixed;
    if (row == mixed) {
        memset(mixed, 0, (size_t)t->in * sizeof(float));
        for (int i = 0; i < count; i++) add_scaled(mixed, x + place[i], weight[i], t->in);
    }
    for (int64_t i = 0; i < t->out; i++) {
        float w = t->weight[i];
        y[i] = w == 0 ? row[t->low[i]] : row[t->low[i]] * (1 - w) + row[t->high[i]] * w;
    }
}

static void backward_row(const plan *p, float *dx, const float *dy, int64_t oz, int64_t oy, float *mixed)
{
    const axis_taps *t = &p->axis[2];
    int64_t place[4];
    float weight[4];
    memset(mixed, 0, (size_t)t->in * sizeof(float));
    for (int64_t i = 0; i < t->out; i++) {
        mixed[t->low[i]] += dy[i] * (1 - t->weight[i]);
        mixed[t->high[i]] += dy[i] * t->weight[i];
    }
    int count = rows_of(p, oz, oy, place, weight);
    for (int i = 0; i < count; i++) add_scaled(dx + place[i], mixed, weight[i], t->in);
}

static void run_planes(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    float *mixed = (float *)call->scratch + thread * p->axis[2].in;
    for (int64_t n = begin; n < end; n++) {
        const float *in = lki_cpu_in(call, 0) + n * (p->forward ? p->in_plane : p->out_plane);
        float *out = lki_cpu_out(call, 0) + n * (p->forward ? p->out_plane : p->in_plane);
        if (!p->forward) memset(out, 0, (size_t)p->in_plane * sizeof(float));
        for (int64_t z = 0; z < p->axis[0].out; z++)
            for (int64_t y = 0; y < p->axis[1].out; y++) {
                int64_t row = (z * p->axis[1].out + y) * p->axis[2].out;
                if (p->forward)
                    forward_row(p, out + row, in, z, y, mixed);
                else
                    backward_row(p, out, in + row, z, y, mixed);
            }
    }
}

static lk_status run_upsample(const lk_call *call)
{
    const plan *p = call->state;
    int64_t grain = 4096 / (p->out_plane + 1) + 1;
    lki_parallel_for(lki_cpu_of(call)->pool, p->planes, grain, run_planes, (void *)call);
    return LK_OK;
}

static plan *new_plan(lk_call *call, const int64_t in[3], const int64_t out[3])
{
    size_t places = (size_t)(out[0] + out[1] + out[2]);
    plan *p = lki_cpu_new_state(call, sizeof *p + places * (2 * sizeof(int64_t) + sizeof(float)));
    if (!p) return NULL;
    int64_t *indices = (int64_t *)(p + 1);
    float *weights = (float *)(indices + 2 * places);
    for (int i = 0; i < 3; i++) {
        p->axis[i] = (axis_taps){in[i], out[i], indices, indices + out[i], weights};
        indices += 2 * out[i];
        weights += out[i];
    }
    p->in_plane = in[0] * in[1] * in[2];
    p->out_plane = out[0] * out[1] * out[2];
    return p;
}

lk_status lki_cpu_prepare_upsample(lki_cpu *cpu, lk_call *call)
{
    bool forward = call->op == LK_OP_UPSAMPLE;
    lk_shape small = forward ? call->in[0].shape : call->out[0].shape,
             large = forward ? call->out[0].shape : call->in[0].shape;
    int rank = call->attr->upsample.rank;
    int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
    double factor[3] = {0, 0, 0};
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    for (int i = 0; i < rank; i++) {
        in[3 - rank + i] = small.dim[small.rank - rank + i];
        out[3 - rank + i] = large.dim[large.rank - rank + i];
        factor[3 - rank + i] = call->attr->upsample.scale[i];
    }
    plan *p = new_plan(call, in, out);
    if (!p) return LK_ERR_NOMEM;
    p->forward = forward;
    p->planes = lki_cpu_span(small, 0, small.rank - rank);
    for (int i = 0; i < 3; i++) {
        if (call->attr->upsample.mode == LK_UPSAMPLE_NEAREST)
            fill_nearest(&p->axis[i], factor[i]);
        else
            fill_linear(&p->axis[i], factor[i], call->attr->upsample.align_corners);
    }
    call->scratch_nbytes = (size_t)(cpu->thread_count * in[2]) * sizeof(float);
    call->run = run_upsample;
    return LK_OK;
}
