/* Upsampling by the nearest element or by linear interpolation, along the last one to three axes.
 *
 * Every output reads up to two elements of each axis with weights that sum to one. Places move on with the
 * outputs, so the outputs that read one element are neighbours: the gradient finds where they begin and adds
 * them up in order. Which elements those are is computed exactly as the reference does. */
#include "engine/cuda/kernels.cuh"

namespace
{

/* One spatial axis; missing ones come first and have size 1. */
struct axis {
    int64_t in, out;
    float nearest;  /* the step of the nearest element, in f32 as PyTorch takes it */
    double scale;   /* the step without aligned corners */
    double inverse; /* outputs an input, about */
};

struct upsample {
    bool linear, align_corners;
    axis axes[3];
    int64_t planes, in_size, out_size;
};

struct upsample_state {
    lki_cuda *cuda;
    upsample v;
};

/* The two places of an axis that an output reads, and the weight of the second. */
struct taps {
    int64_t low, high;
    double weight;
};

/* Source coordinate: p (in - 1) / (out - 1) with aligned corners, else (p + 1/2) scale - 1/2, not below 0.
 * The products are rounded on their own, as on the CPU. An axis that keeps its size is copied, whatever the
 * factor was. */
__device__ taps taps_at(const upsample &v, const axis &a, int64_t p)
{
    if (!v.linear) {
        int64_t place = (int64_t)floorf(__fmul_rn((float)p, a.nearest));
        if (place > a.in - 1) place = a.in - 1;
        return {place, place, 0};
    }
    double at = 0;
    if (!v.align_corners)
        at = fmax(0., __dadd_rn(__dmul_rn((double)p + 0.5, a.scale), -0.5));
    else if (a.out > 1)
        at = (double)p * (double)(a.in - 1) / (double)(a.out - 1);
    int64_t low = (int64_t)at;
    if (low > a.in - 1) low = a.in - 1;
    return {low, low < a.in - 1 ? low + 1 : low, fmin(at - (double)low, 1.)};
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) forward_kernel(upsample v, const T *x, T *y)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t count = v.planes * v.out_size, stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride) {
        int64_t row = i / v.axes[2].out, slice = row / v.axes[1].out, plane = slice / v.axes[0].out;
        taps t[3] = {taps_at(v, v.axes[0], slice % v.axes[0].out), taps_at(v, v.axes[1], row % v.axes[1].out),
                     taps_at(v, v.axes[2], i % v.axes[2].out)};
        const T *from = x + plane * v.in_size;
        W sum = 0;
#pragma unroll
        for (int corner = 0; corner < 8; corner++) {
            double weight = 1;
            int64_t at = 0;
#pragma unroll
            for (int k = 0; k < 3; k++) {
                bool second = corner >> k & 1;
                weight *= second ? t[k].weight : 1 - t[k].weight;
                at = at * v.axes[k].in + (second ? t[k].high : t[k].low);
            }
            if (weight != 0) sum += (W)weight * lki_cuda_widen(from[at]);
        }
        y[i] = lki_cuda_narrow<T>::of(sum);
    }
}

/* The first output whose lower place is `wanted` or beyond: from a guess, because places never step back. */
__device__ int64_t first_reader(const upsample &v, const axis &a, int64_t wanted)
{
    int64_t p = (int64_t)((double)wanted * a.inverse) - 1;
    if (p > a.out) p = a.out;
    if (p < 0) p = 0;
    while (p > 0 && taps_at(v, a, p - 1).low >= wanted) p--;
    while (p < a.out && taps_at(v, a, p).low < wanted) p++;
    return p;
}

/* How much of output p element `at` of the axis gives. */
template <typename W> __device__ W part_of(const taps &t, int64_t at)
{
    return (W)((t.low == at ? 1 - t.weight : 0) + (t.high == at ? t.weight : 0));
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) grad_kernel(upsample v, const T *dy, T *dx)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t count = v.planes * v.in_size, stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride) {
        int64_t row = i / v.axes[2].in, slice = row / v.axes[1].in, plane = slice / v.axes[0].in;
        int64_t at[3] = {slice % v.axes[0].in, row % v.axes[1].in, i % v.axes[2].in}, first[3];
#pragma unroll
        for (int k = 0; k < 3; k++) first[k] = first_reader(v, v.axes[k], v.linear ? at[k] - 1 : at[k]);
        const T *from = dy + plane * v.out_size;
        W sum = 0;
        for (int64_t a = first[0]; a < v.axes[0].out; a++) {
            taps depth = taps_at(v, v.axes[0], a);
            if (depth.low > at[0]) break;
            for (int64_t b = first[1]; b < v.axes[1].out; b++) {
                taps height = taps_at(v, v.axes[1], b);
                if (height.low > at[1]) break;
                W outer = part_of<W>(depth, at[0]) * part_of<W>(height, at[1]);
                for (int64_t c = first[2]; c < v.axes[2].out; c++) {
                    taps width = taps_at(v, v.axes[2], c);
                    if (width.low > at[2]) break;
                    W weight = outer * part_of<W>(width, at[2]);
                    if (weight != 0)
                        sum += weight * lki_cuda_widen(from[(a * v.axes[1].out + b) * v.axes[2].out + c]);
                }
            }
        }
        dx[i] = lki_cuda_narrow<T>::of(sum);
    }
}

/* ---- Launches ---- */

template <typename T> lk_status launch(const lk_call *call)
{
    const upsample_state *state = (const upsample_state *)call->state;
    int64_t count = lki_cuda_count(&call->out[0]);
    if (!count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, count);
    const T *in = lki_cuda_in<T>(call, 0);
    T *out = lki_cuda_out<T>(call, 0);
    if (call->op == LK_OP_UPSAMPLE)
        forward_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(state->v, in, out);
    else
        grad_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(state->v, in, out);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, return launch<T>(call))
    return LK_OK;
}

axis axis_of(int64_t in, int64_t out, double factor, bool linear, bool align_corners)
{
    axis a = {in, out, 0, 0, 1};
    a.nearest = factor > 0 ? (float)(1 / factor) : (float)in / (float)out;
    a.scale = factor > 0 && in != out ? 1 / factor : (double)in / (double)out;
    if (align_corners && in > 1)
        a.inverse = (double)(out - 1) / (double)(in - 1);
    else if (in > 0)
        a.inverse = factor > 0 && (in != out || !linear) ? factor : (double)out / (double)in;
    return a;
}

void describe(upsample *v, const lk_upsample_attr *attr, lk_shape in, lk_shape out)
{
    int rank = attr->rank;
    v->linear = attr->mode == LK_UPSAMPLE_LINEAR;
    v->align_corners = attr->align_corners;
    v->planes = lki_cuda_span(in, 0, in.rank - rank);
    v->in_size = lki_cuda_span(in, in.rank - rank, in.rank);
    v->out_size = lki_cuda_span(out, out.rank - rank, out.rank);
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - rank);
        v->axes[i] = from < 0 ? axis_of(1, 1, 0, v->linear, v->align_corners)
                              : axis_of(in.dim[in.rank - rank + from], out.dim[out.rank - rank + from],
                                        attr->scale[from], v->linear, v->align_corners);
    }
}

} // namespace

lk_status lki_cuda_prepare_upsample(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    if (!lki_cuda_is_float(dtype) || call->out[0].dtype != dtype)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for upsampling of %s",
                             lki_cuda_dtype_name(dtype));
    upsample_state *state = (upsample_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    lk_shape in = call->in[0].shape, out = call->out[0].shape;
    if (call->op == LK_OP_UPSAMPLE)
        describe(&state->v, &call->attr->upsample, in, out);
    else
        describe(&state->v, &call->attr->upsample, out, in);
    call->run = run;
    return LK_OK;
}
