/* Max pools whose windows of two by two, or two by two by two, lie side by side: the most usual ones. A
 * window's elements are asked for at once; backward two neighbours ask the one window that they may lie in.
 */
#include "engine/cuda/pool.cuh"

/* What a thread needs to find its place in a plane: of the windows, or backward of pairs of elements. */
typedef struct places {
    lki_cuda_divisor size, height, width;
} places;

static places places_of(int depth, int height, int width)
{
    return {lki_cuda_divisor_of(depth * height * width), lki_cuda_divisor_of(height),
            lki_cuda_divisor_of(width)};
}

/* The plane of element `index`, its place there and that as three coordinates. */
static __device__ int64_t place_of(const places &v, int64_t index, int *place, int p[3])
{
    int64_t plane = lki_cuda_split(v.size, index, place);
    int row = lki_cuda_quotient(v.width, *place, &p[2]);
    p[0] = lki_cuda_quotient(v.height, row, &p[1]);
    return plane;
}

/* Element k of the window at p: its place in the plane, or -1. */
static __device__ int element_at(const lki_cuda_window &w, const int p[3], int k)
{
    int s0 = p[0] * w.axis[0].stride - w.axis[0].padding + (k >> 2);
    int s1 = p[1] * 2 - w.axis[1].padding + (k >> 1 & 1), s2 = p[2] * 2 - w.axis[2].padding + (k & 1);
    bool in = (unsigned)s0 < (unsigned)w.axis[0].in && (unsigned)s1 < (unsigned)w.axis[1].in &&
              (unsigned)s2 < (unsigned)w.axis[2].in;
    return in ? (s0 * w.axis[1].in + s1) * w.axis[2].in + s2 : -1;
}

/* The first of equals wins; a NaN wins over any number, the last of several over the others. */
template <typename T, int DEPTH>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    max_kernel(lki_cuda_window w, places v, const T *x, T *y, int32_t *index, int64_t count, bool relu)
{
    using A = typename lki_cuda_wide<T>::type;
    for (int64_t i = blockIdx.x * (int64_t)LKI_CUDA_BLOCK + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * LKI_CUDA_BLOCK) {
        int p[3], place, at[4 * DEPTH], best = -1;
        const T *from = x + place_of(v, i, &place, p) * w.in_size;
        A value[4 * DEPTH], largest = -INFINITY;
#pragma unroll
        for (int k = 0; k < 4 * DEPTH; k++) {
            at[k] = element_at(w, p, k);
            value[k] = at[k] >= 0 ? A(from[at[k]]) : A(0);
        }
#pragma unroll
        for (int k = 0; k < 4 * DEPTH; k++) {
            if (at[k] < 0 || (best >= 0 && !(value[k] > largest) && value[k] == value[k])) continue;
            best = at[k];
            largest = value[k];
        }
        if (relu) lki_cuda_max_relu(&largest, &best);
        if (y) y[i] = T(largest);
        if (index) index[i] = best;
    }
}

/* `whole`: every pair lies in its row, and can be written at once. */
template <typename T, int DEPTH>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    max_grad_kernel(lki_cuda_window w, places v, const T *dy, const int32_t *index, T *dx, int64_t count,
                    bool whole)
{
    struct __align__(2 * sizeof(T)) pair
    {
        T a, b;
    };
    for (int64_t i = blockIdx.x * (int64_t)LKI_CUDA_BLOCK + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * LKI_CUDA_BLOCK) {
        int p[3], place, width = w.axis[2].in;
        int64_t plane = place_of(v, i, &place, p);
        int x = 2 * p[2] - w.axis[2].padding, first = (p[0] * w.axis[1].in + p[1]) * width + x;
        if (DEPTH == 2) p[0] = (p[0] + w.axis[0].padding) / 2;
        p[1] = (p[1] + w.axis[1].padding) / 2;
        bool in = p[0] < w.axis[0].out && p[1] < w.axis[1].out && p[2] < w.axis[2].out;
        int64_t at = plane * w.out_size + (in ? (p[0] * w.axis[1].out + p[1]) * w.axis[2].out + p[2] : 0);
        T g = dy[at], *to = dx + plane * w.in_size + first;
        int winner = in ? index[at] - first : -1;
        T a = winner == 0 ? g : T(0.0f), b = winner == 1 ? g : T(0.0f);
        if (whole) {
            *(pair *)to = {a, b};
            continue;
        }
        if (x >= 0) to[0] = a;
        if (x + 1 < width) to[1] = b;
    }
}

static bool is_pair(const lki_cuda_axis *a)
{
    return a->kernel == 2 && a->stride == 2 && a->dilation == 1;
}

bool lki_cuda_is_disjoint(const lki_cuda_window *w)
{
    const lki_cuda_axis *a = &w->axis[0];
    bool single = a->kernel == 1 && a->stride == 1 && a->padding == 0;
    return !w->channels_last && is_pair(&w->axis[1]) && is_pair(&w->axis[2]) && (single || is_pair(a));
}

template <typename T, int DEPTH>
static void launch(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *w)
{
    const T *in = (const T *)call->in[0].data;
    T *out = (T *)call->out[0].data;
    if (call->op == LK_OP_MAX_POOL) {
        int64_t count = w->planes * w->out_size;
        places v = places_of(w->axis[0].out, w->axis[1].out, w->axis[2].out);
        max_kernel<T, DEPTH><<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
            *w, v, in, out, lki_cuda_out<int32_t>(call, 1), count, lki_cuda_pool_relu(call));
        return;
    }
    const lki_cuda_axis &row = w->axis[2];
    int pairs = (row.in + row.padding + 1) / 2;
    int64_t count = w->planes * w->axis[0].in * w->axis[1].in * pairs;
    bool whole = row.in % 2 == 0 && row.padding == 0 && (uintptr_t)out % (2 * sizeof(T)) == 0;
    places v = places_of(w->axis[0].in, w->axis[1].in, pairs);
    max_grad_kernel<T, DEPTH><<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
        *w, v, in, lki_cuda_in<int32_t>(call, 1), out, count, whole);
}

lk_status lki_cuda_run_disjoint(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *w)
{
    if (w->axis[0].kernel == 2)
        LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, (launch<T, 2>(cuda, call, w)))
    else
        LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, (launch<T, 1>(cuda, call, w)))
    LKI_LAUNCHED();
    return LK_OK;
}
