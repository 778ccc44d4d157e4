/* Pools with channels last: a thread has V neighbouring channels, 16 bytes of them, which pool.cu's kernels
 * do one by one. The window counts such packs for channels. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/pool.cuh"

#define EACH(index, count)                                                                                   \
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;                                          \
    index < (count);                                                                                         \
    index += (int64_t)gridDim.x * blockDim.x

template <typename T> struct pack_of {
    static constexpr int V = 16 / sizeof(T);
    using type = lki_cuda_pack<T, V>;
    using index = lki_cuda_pack<int32_t, V>;
};

/* How a thread finds its place. */
typedef struct squares {
    lki_cuda_divisor channels, width, height;
} squares;

static squares squares_of(const lki_cuda_window *w, int height, int width)
{
    return {lki_cuda_divisor_of(w->channels), lki_cuda_divisor_of(width), lki_cuda_divisor_of(height)};
}

/* As in pool.cu: the first of equals wins; a NaN wins over any number. */
template <typename T>
static __global__ void max_kernel(lki_cuda_window w, const typename pack_of<T>::type *x,
                                  typename pack_of<T>::type *y, typename pack_of<T>::index *index,
                                  int64_t count, bool relu)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.out_size);
        int p[3], begin[3];
        typename pack_of<T>::index best;
        A largest[V];
        lki_cuda_unflatten(p, spot.place, w.axis[1].out, w.axis[2].out);
        for (int d = 0; d < 3; d++) begin[d] = p[d] * w.axis[d].stride - w.axis[d].padding;
#pragma unroll
        for (int e = 0; e < V; e++) {
            best.at[e] = -1;
            largest[e] = -INFINITY;
        }
        for (int k0 = 0, s0 = begin[0]; k0 < w.axis[0].kernel; k0++, s0 += w.axis[0].dilation) {
            if (s0 < 0 || s0 >= w.axis[0].in) continue;
            for (int k1 = 0, s1 = begin[1]; k1 < w.axis[1].kernel; k1++, s1 += w.axis[1].dilation) {
                if (s1 < 0 || s1 >= w.axis[1].in) continue;
                int row = (s0 * w.axis[1].in + s1) * w.axis[2].in;
                for (int k2 = 0, s2 = begin[2]; k2 < w.axis[2].kernel; k2++, s2 += w.axis[2].dilation) {
                    if (s2 < 0 || s2 >= w.axis[2].in) continue;
                    typename pack_of<T>::type values = x[spot.in + (int64_t)(row + s2) * spot.step];
#pragma unroll
                    for (int e = 0; e < V; e++) {
                        A value = lki_cuda_widen(values.at[e]);
                        if (best.at[e] >= 0 && !(value > largest[e]) && value == value) continue;
                        best.at[e] = row + s2;
                        largest[e] = value;
                    }
                }
            }
        }
        typename pack_of<T>::type to;
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (relu) lki_cuda_max_relu(&largest[e], &best.at[e]);
            to.at[e] = lki_cuda_narrow<T>::of(largest[e]);
        }
        if (y) y[i] = to;
        if (index) index[i] = best;
    }
}

template <typename T>
static __global__ void max_grad_kernel(lki_cuda_window w, const typename pack_of<T>::type *dy,
                                       const typename pack_of<T>::index *index, typename pack_of<T>::type *dx,
                                       int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.in_size);
        int s[3], first[3], last[3];
        A sum[V] = {};
        lki_cuda_unflatten(s, spot.place, w.axis[1].in, w.axis[2].in);
        for (int d = 0; d < 3; d++) lki_cuda_readers(w.axis[d], s[d], &first[d], &last[d]);
        for (int p0 = first[0]; p0 <= last[0]; p0++)
            for (int p1 = first[1]; p1 <= last[1]; p1++)
                for (int p2 = first[2]; p2 <= last[2]; p2++) {
                    int p = (p0 * w.axis[1].out + p1) * w.axis[2].out + p2;
                    int64_t at = spot.out + (int64_t)p * spot.step;
                    typename pack_of<T>::index winners = index[at];
                    typename pack_of<T>::type given = dy[at];
#pragma unroll
                    for (int e = 0; e < V; e++)
                        if (winners.at[e] == spot.place) sum[e] += lki_cuda_widen(given.at[e]);
                }
        typename pack_of<T>::type to;
#pragma unroll
        for (int e = 0; e < V; e++) to.at[e] = lki_cuda_narrow<T>::of(sum[e]);
        dx[i] = to;
    }
}

/* Windows of up to three that go in steps of two: two of them at most reach a pair of neighbours. A thread
 * has two by two places of dx and looks at each of their windows once. */
template <typename T>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    max_grad_squares_kernel(lki_cuda_window w, squares v, const typename pack_of<T>::type *dy,
                            const typename pack_of<T>::index *index, typename pack_of<T>::type *dx,
                            int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    int height = w.axis[1].in, width = w.axis[2].in;
    for (EACH(i, count)) {
        int channel, x, y, first[2], last[2], unused;
        int64_t sample = lki_cuda_split(
            v.height, lki_cuda_split(v.width, lki_cuda_split(v.channels, i, &channel), &x), &y);
        lki_cuda_readers(w.axis[1], 2 * y, &first[0], &unused);
        lki_cuda_readers(w.axis[1], 2 * y + 1, &unused, &last[0]);
        lki_cuda_readers(w.axis[2], 2 * x, &first[1], &unused);
        lki_cuda_readers(w.axis[2], 2 * x + 1, &unused, &last[1]);
        typename pack_of<T>::index winners[4];
        typename pack_of<T>::type given[4];
        A sum[4][V] = {};
        bool is_there[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            int p1 = first[0] + q / 2, p2 = first[1] + q % 2;
            int64_t at = (sample * w.out_size + p1 * w.axis[2].out + p2) * w.channels + channel;
            is_there[q] = p1 <= last[0] && p2 <= last[1];
            if (is_there[q]) winners[q] = index[at];
            if (is_there[q]) given[q] = dy[at];
        }
#pragma unroll
        for (int q = 0; q < 4; q++) {
            if (!is_there[q]) continue;
#pragma unroll
            for (int e = 0; e < V; e++) {
                int from = winners[q].at[e] - (2 * y * width + 2 * x);
                A value = lki_cuda_widen(given[q].at[e]);
#pragma unroll
                for (int k = 0; k < 4; k++)
                    if (from == k / 2 * width + k % 2) sum[k][e] += value;
            }
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            typename pack_of<T>::type to;
            int s1 = 2 * y + k / 2, s2 = 2 * x + k % 2;
#pragma unroll
            for (int e = 0; e < V; e++) to.at[e] = lki_cuda_narrow<T>::of(sum[k][e]);
            if (s1 < height && s2 < width)
                dx[(sample * w.in_size + s1 * width + s2) * w.channels + channel] = to;
        }
    }
}

static bool is_halving(const lki_cuda_axis *a)
{
    return a->stride == 2 && a->dilation == 1 && a->kernel <= 3;
}

static bool has_squares(const lki_cuda_window *w)
{
    return w->axis[0].in == 1 && w->axis[0].out == 1 && w->axis[0].kernel == 1 && is_halving(&w->axis[1]) &&
           is_halving(&w->axis[2]);
}

template <typename T>
static void launch_squares(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *w)
{
    using P = typename pack_of<T>::type;
    using I = typename pack_of<T>::index;
    int height = (w->axis[1].in + 1) / 2, width = (w->axis[2].in + 1) / 2;
    int64_t samples = lki_cuda_count(&call->out[0]) / pack_of<T>::V / w->channels / w->in_size,
            count = samples * height * width * w->channels;
    squares v = squares_of(w, height, width);
    max_grad_squares_kernel<T><<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
        *w, v, (const P *)call->in[0].data, lki_cuda_in<I>(call, 1), (P *)call->out[0].data, count);
}

/* ---- adaptive average ---- */

template <typename T>
static __global__ void adaptive_kernel(lki_cuda_window w, const typename pack_of<T>::type *x,
                                       typename pack_of<T>::type *y, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.out_size);
        int p[3], begin[3], end[3], whole = 1;
        A sum[V] = {};
        lki_cuda_unflatten(p, spot.place, w.axis[1].out, w.axis[2].out);
        for (int d = 0; d < 3; d++) {
            begin[d] = lki_cuda_bin_begin(p[d], w.axis[d].in, w.axis[d].out);
            end[d] = lki_cuda_bin_end(p[d], w.axis[d].in, w.axis[d].out);
            whole *= end[d] - begin[d];
        }
        for (int s0 = begin[0]; s0 < end[0]; s0++)
            for (int s1 = begin[1]; s1 < end[1]; s1++)
#pragma unroll 4
                for (int s2 = begin[2]; s2 < end[2]; s2++) {
                    int s = (s0 * w.axis[1].in + s1) * w.axis[2].in + s2;
                    typename pack_of<T>::type values = x[spot.in + (int64_t)s * spot.step];
#pragma unroll
                    for (int e = 0; e < V; e++) sum[e] += lki_cuda_widen(values.at[e]);
                }
        typename pack_of<T>::type to;
#pragma unroll
        for (int e = 0; e < V; e++) to.at[e] = lki_cuda_narrow<T>::of(sum[e] / A(whole));
        y[i] = to;
    }
}

template <typename T>
static __global__ void adaptive_grad_kernel(lki_cuda_window w, const typename pack_of<T>::type *dy,
                                            typename pack_of<T>::type *dx, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.in_size);
        int s[3], first[3], end[3];
        A sum[V] = {};
        lki_cuda_unflatten(s, spot.place, w.axis[1].in, w.axis[2].in);
        for (int d = 0; d < 3; d++) {
            first[d] = lki_cuda_bin_begin(s[d], w.axis[d].out, w.axis[d].in);
            end[d] = lki_cuda_bin_end(s[d], w.axis[d].out, w.axis[d].in);
        }
        for (int p0 = first[0]; p0 < end[0]; p0++)
            for (int p1 = first[1]; p1 < end[1]; p1++)
                for (int p2 = first[2]; p2 < end[2]; p2++) {
                    int p[3] = {p0, p1, p2}, whole = lki_cuda_bin_size(w, p);
                    int at = (p0 * w.axis[1].out + p1) * w.axis[2].out + p2;
                    typename pack_of<T>::type given = dy[spot.out + (int64_t)at * spot.step];
#pragma unroll
                    for (int e = 0; e < V; e++) sum[e] += lki_cuda_widen(given.at[e]) / A(whole);
                }
        typename pack_of<T>::type to;
#pragma unroll
        for (int e = 0; e < V; e++) to.at[e] = lki_cuda_narrow<T>::of(sum[e]);
        dx[i] = to;
    }
}

/* Of one bin, the whole plane. */
template <typename T>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    whole_grad_kernel(lki_cuda_window w, squares v, const typename pack_of<T>::type *dy,
                      typename pack_of<T>::type *dx, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int V = pack_of<T>::V;
    for (EACH(i, count)) {
        int channel, unused;
        int64_t sample = lki_cuda_split(v.height, lki_cuda_split(v.channels, i, &channel), &unused);
        typename pack_of<T>::type given = dy[sample * w.channels + channel], to;
#pragma unroll
        for (int e = 0; e < V; e++)
            to.at[e] = lki_cuda_narrow<T>::of(lki_cuda_widen(given.at[e]) / A(w.in_size));
        dx[i] = to;
    }
}

/* ---- Launches ---- */

template <typename T> static void launch(lki_cuda *cuda, const lk_call *call, lki_cuda_window w)
{
    using P = typename pack_of<T>::type;
    using I = typename pack_of<T>::index;
    const P *in = (const P *)call->in[0].data;
    P *out = (P *)call->out[0].data;
    int64_t count = lki_cuda_count(&call->out[0]) / pack_of<T>::V;
    int blocks = lki_cuda_grid(cuda, count);
    w.channels /= pack_of<T>::V;
    switch (call->op) {
    case LK_OP_MAX_POOL:
        max_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(w, in, out, lki_cuda_out<I>(call, 1),
                                                                    count, lki_cuda_pool_relu(call));
        break;
    case LK_OP_MAX_POOL_GRAD:
        if (has_squares(&w)) return launch_squares<T>(cuda, call, &w);
        max_grad_kernel<T>
            <<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(w, in, lki_cuda_in<I>(call, 1), out, count);
        break;
    case LK_OP_ADAPTIVE_AVG_POOL:
        adaptive_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(w, in, out, count);
        break;
    case LK_OP_ADAPTIVE_AVG_POOL_GRAD:
        if (w.out_size == 1) {
            whole_grad_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(
                w, squares_of(&w, w.in_size, 1), in, out, count);
            break;
        }
        adaptive_grad_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(w, in, out, count);
        break;
    default: break;
    }
}

static bool is_aligned(const lk_call *call)
{
    uintptr_t bits = (uintptr_t)call->in[0].data | (uintptr_t)call->out[0].data;
    if (call->op == LK_OP_MAX_POOL) bits |= (uintptr_t)lki_cuda_out<void>(call, 1);
    if (call->op == LK_OP_MAX_POOL_GRAD) bits |= (uintptr_t)call->in[1].data;
    return bits % 32 == 0; /* a pack of indices is two of 16-bit numbers */
}

bool lki_cuda_run_pool_last(lki_cuda *cuda, const lk_call *call, const lki_cuda_window *w)
{
    lk_dtype dtype = call->in[0].dtype;
    bool has_kernel = call->op == LK_OP_MAX_POOL || call->op == LK_OP_MAX_POOL_GRAD ||
                      call->op == LK_OP_ADAPTIVE_AVG_POOL || call->op == LK_OP_ADAPTIVE_AVG_POOL_GRAD;
    int64_t width = 16 / (int64_t)lki_cuda_dtype_nbytes(dtype);
    if (!has_kernel || !w->channels_last || w->channels % width || !is_aligned(call)) return false;
    if (dtype == LK_F64) return false;
    if (dtype == LK_F32)
        launch<float>(cuda, call, *w);
    else if (dtype == LK_BF16)
        launch<__nv_bfloat16>(cuda, call, *w);
    else
        launch<__half>(cuda, call, *w);
    return true;
}
