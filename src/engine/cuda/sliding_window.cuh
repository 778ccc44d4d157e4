/* Windows that slide over one to three spatial axes, seen as always three: missing axes come first and have
 * size 1. Shared by the pools and the convolutions of the cuda engine.
 *
 * Life: plain values, made at prepare and passed to kernels. Thread rule: none. */
#ifndef LKI_CUDA_SLIDING_WINDOW_CUH
#define LKI_CUDA_SLIDING_WINDOW_CUH

#include "engine/cuda/cuda.cuh"

/* An operand of one channel or one place says that it is row-major, whatever the others are. */
static inline bool lki_cuda_is_last(const lk_call *call)
{
    for (int i = 0; call->in_layout && i < call->input_count; i++)
        if (call->in_layout[i] == LK_LAYOUT_CHANNELS_LAST) return true;
    return call->output_count > 0 && call->out_layout[0] == LK_LAYOUT_CHANNELS_LAST;
}

/* One spatial axis of a window, from the input's plane to the output's. */
typedef struct lki_cuda_axis {
    int kernel, stride, padding, dilation, in, out;
} lki_cuda_axis;

typedef struct lki_cuda_window {
    lki_cuda_axis axis[3];
    int in_size, out_size, kernel_size; /* elements of a plane, taps of a kernel */
    int64_t planes;                     /* batch times channels */
    int channels;
    bool channels_last;
} lki_cuda_window;

/* `in` and `out` are the shapes on the two sides of the window, whichever of them an op writes. Fails where
 * a plane has more elements than an int counts. */
static inline lk_status lki_cuda_window_of(lki_cuda_window *w, const lk_window *window, lk_shape in,
                                           lk_shape out, bool channels_last)
{
    int64_t in_size = 1, out_size = 1, taps = 1;
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - window->rank), at = in.rank - 3 + i;
        int64_t a = from < 0 ? 1 : in.dim[at], b = from < 0 ? 1 : out.dim[out.rank - 3 + i];
        lki_cuda_axis axis = {1, 1, 0, 1, (int)a, (int)b};
        if (from >= 0) {
            axis.kernel = (int)window->kernel[from];
            axis.stride = window->stride[from] > 0 ? (int)window->stride[from] : 1;
            axis.padding = (int)window->padding[from];
            axis.dilation = window->dilation[from] > 0 ? (int)window->dilation[from] : 1;
        }
        w->axis[i] = axis;
        in_size *= a;
        out_size *= b;
        taps *= axis.kernel;
    }
    if (in_size > INT32_MAX || out_size > INT32_MAX || taps > INT32_MAX)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for planes of %lld elements",
                             (long long)(in_size > out_size ? in_size : out_size));
    w->in_size = (int)in_size;
    w->out_size = (int)out_size;
    w->kernel_size = (int)taps;
    w->planes = lki_cuda_span(in, 0, in.rank - window->rank);
    w->channels = in.rank > window->rank ? (int)in.dim[in.rank - window->rank - 1] : 1;
    w->channels_last = channels_last;
    return LK_OK;
}

/* Division by a number that the host knows, of dividends below 2^31: a product instead. */
typedef struct lki_cuda_divisor {
    uint32_t by, factor;
    int shift;
} lki_cuda_divisor;

static inline lki_cuda_divisor lki_cuda_divisor_of(int by)
{
    int shift = 0;
    if (by < 1) by = 1; /* nobody divides where there is nothing */
    while ((uint64_t)1 << shift < (uint64_t)by) shift++;
    uint64_t factor = (((((uint64_t)1 << shift) - (uint64_t)by) << 32) / (uint64_t)by) + 1;
    return {(uint32_t)by, (uint32_t)factor, shift};
}

/* Pools with channels last, many at once; false where it has no kernel for these. */
bool lki_cuda_run_pool_last(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *window);

#ifdef __CUDACC__
/* a / b and a % b, in 32 bits where they suffice: 64-bit divisions are long. */
static __device__ inline int64_t lki_cuda_divide(int64_t a, int b, int *rest)
{
    if ((uint64_t)a >> 32 == 0) {
        uint32_t quotient = (uint32_t)a / (uint32_t)b;
        *rest = (int)((uint32_t)a - quotient * (uint32_t)b);
        return quotient;
    }
    *rest = (int)(a % b);
    return a / b;
}

static __device__ inline int lki_cuda_quotient(const lki_cuda_divisor &d, int a, int *rest)
{
    uint32_t quotient = (__umulhi((uint32_t)a, d.factor) + (uint32_t)a) >> d.shift;
    *rest = a - (int)(quotient * d.by);
    return (int)quotient;
}

/* The same of any dividend. */
static __device__ inline int64_t lki_cuda_split(const lki_cuda_divisor &d, int64_t a, int *rest)
{
    if (a >> 31 == 0) return lki_cuda_quotient(d, (int)a, rest);
    *rest = (int)(a % d.by);
    return a / d.by;
}

/* Where a thread with element `index` (in memory's order) of one side stands: its place in the plane, and
 * where the planes begin on both sides; neighbours of a plane lie `step` apart. */
typedef struct lki_cuda_spot {
    int place, step;
    int64_t in, out;
} lki_cuda_spot;

static __device__ inline lki_cuda_spot lki_cuda_spot_of(const lki_cuda_window &w, int64_t index, int size)
{
    lki_cuda_spot spot;
    int channel = 0;
    if (w.channels_last) index = lki_cuda_divide(index, w.channels, &channel);
    int64_t plane = lki_cuda_divide(index, size, &spot.place);
    spot.step = w.channels_last ? w.channels : 1;
    spot.in = plane * w.in_size * spot.step + channel;
    spot.out = plane * w.out_size * spot.step + channel;
    return spot;
}

/* A place of a plane as three coordinates. */
static __device__ inline void lki_cuda_unflatten(int at[3], int place, int height, int width)
{
    int rows = place / width;
    at[2] = place - rows * width;
    at[0] = rows / height;
    at[1] = rows - at[0] * height;
}

/* Which outputs' windows reach input coordinate s along an axis (with dilation: may reach): [*first, *last].
 */
static __device__ inline void lki_cuda_readers(const lki_cuda_axis &a, int s, int *first, int *last)
{
    int low = s + a.padding - a.dilation * (a.kernel - 1), high = (s + a.padding) / a.stride;
    *first = low <= 0 ? 0 : (low + a.stride - 1) / a.stride;
    *last = high < a.out - 1 ? high : a.out - 1;
}
#endif

#endif
