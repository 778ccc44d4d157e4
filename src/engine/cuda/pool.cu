/* Pooling over the last one to three axes. Gradients gather: each element of dx asks the windows that cover
 * it, in order, so overlapping windows need no atomics. */
#include "engine/cuda/pool.cuh"

typedef struct pool {
    lki_cuda_window window;
    bool exclude_pad;
    int divisor;
    bool is_disjoint;
    bool by_warps; /* adaptive: bins so large that a warp adds one up */
} pool;

#define EACH(index, count)                                                                                   \
    int64_t index = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;                                          \
    index < (count);                                                                                         \
    index += (int64_t)gridDim.x * blockDim.x

/* ---- max ---- */

/* The first of equals wins; a NaN wins over any number, the last of several over the others. */
template <typename T>
static __global__ void max_kernel(lki_cuda_window w, const T *x, T *y, int32_t *index, int64_t count,
                                  bool relu)
{
    using A = typename lki_cuda_wide<T>::type;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.out_size);
        int p[3], best = -1;
        lki_cuda_unflatten(p, spot.place, w.axis[1].out, w.axis[2].out);
        int begin[3];
        for (int d = 0; d < 3; d++) begin[d] = p[d] * w.axis[d].stride - w.axis[d].padding;
        A largest = -INFINITY;
        for (int k0 = 0, s0 = begin[0]; k0 < w.axis[0].kernel; k0++, s0 += w.axis[0].dilation) {
            if (s0 < 0 || s0 >= w.axis[0].in) continue;
            for (int k1 = 0, s1 = begin[1]; k1 < w.axis[1].kernel; k1++, s1 += w.axis[1].dilation) {
                if (s1 < 0 || s1 >= w.axis[1].in) continue;
                int row = (s0 * w.axis[1].in + s1) * w.axis[2].in;
                for (int k2 = 0, s2 = begin[2]; k2 < w.axis[2].kernel; k2++, s2 += w.axis[2].dilation) {
                    if (s2 < 0 || s2 >= w.axis[2].in) continue;
                    A value = A(x[spot.in + (int64_t)(row + s2) * spot.step]);
                    if (best >= 0 && !(value > largest) && value == value) continue;
                    best = row + s2;
                    largest = value;
                }
            }
        }
        if (relu) lki_cuda_max_relu(&largest, &best);
        if (y) y[i] = T(largest);
        if (index) index[i] = best;
    }
}

/* The windows that may cover an input element, as ranges of outputs. */
static __device__ void readers_of(const lki_cuda_window &w, int place, int first[3], int last[3])
{
    int s[3];
    lki_cuda_unflatten(s, place, w.axis[1].in, w.axis[2].in);
    for (int d = 0; d < 3; d++) lki_cuda_readers(w.axis[d], s[d], &first[d], &last[d]);
}

template <typename T>
static __global__ void max_grad_kernel(lki_cuda_window w, const T *dy, const int32_t *index, T *dx,
                                       int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.in_size);
        int first[3], last[3];
        readers_of(w, spot.place, first, last);
        A sum = 0;
        for (int p0 = first[0]; p0 <= last[0]; p0++)
            for (int p1 = first[1]; p1 <= last[1]; p1++)
                for (int p2 = first[2]; p2 <= last[2]; p2++) {
                    int p = (p0 * w.axis[1].out + p1) * w.axis[2].out + p2;
                    int64_t at = spot.out + (int64_t)p * spot.step;
                    if (index[at] == spot.place) sum += A(dy[at]);
                }
        dx[i] = T(sum);
    }
}

/* ---- average ---- */

/* What the sum over a window is divided by: the override; or the window's size, cut at the far edge of the
 * padding; or, with exclude_pad, the number of elements of the input that it covers. */
static __device__ int divisor_of(const pool &v, int p0, int p1, int p2)
{
    if (v.divisor) return v.divisor;
    int p[3] = {p0, p1, p2}, size = 1;
    for (int d = 0; d < 3; d++) {
        const lki_cuda_axis &a = v.window.axis[d];
        int begin = p[d] * a.stride - a.padding, end = begin + a.kernel;
        int edge = a.in + (v.exclude_pad ? 0 : a.padding);
        if (v.exclude_pad && begin < 0) begin = 0;
        size *= min(end, edge) - begin;
    }
    return size;
}

template <typename T> static __global__ void avg_kernel(pool v, const T *x, T *y, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    const lki_cuda_window &w = v.window;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.out_size);
        int p[3], begin[3], end[3];
        lki_cuda_unflatten(p, spot.place, w.axis[1].out, w.axis[2].out);
        for (int d = 0; d < 3; d++) {
            int from = p[d] * w.axis[d].stride - w.axis[d].padding;
            begin[d] = max(from, 0);
            end[d] = min(from + w.axis[d].kernel, w.axis[d].in);
        }
        A sum = 0;
        for (int s0 = begin[0]; s0 < end[0]; s0++)
            for (int s1 = begin[1]; s1 < end[1]; s1++)
                for (int s2 = begin[2]; s2 < end[2]; s2++) {
                    int s = (s0 * w.axis[1].in + s1) * w.axis[2].in + s2;
                    sum += A(x[spot.in + (int64_t)s * spot.step]);
                }
        bool covers = begin[0] < end[0] && begin[1] < end[1] && begin[2] < end[2];
        y[i] = T(covers ? sum / A(divisor_of(v, p[0], p[1], p[2])) : A(0));
    }
}

template <typename T> static __global__ void avg_grad_kernel(pool v, const T *dy, T *dx, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    const lki_cuda_window &w = v.window;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.in_size);
        int first[3], last[3];
        readers_of(w, spot.place, first, last);
        A sum = 0;
        for (int p0 = first[0]; p0 <= last[0]; p0++)
            for (int p1 = first[1]; p1 <= last[1]; p1++)
                for (int p2 = first[2]; p2 <= last[2]; p2++) {
                    int p = (p0 * w.axis[1].out + p1) * w.axis[2].out + p2;
                    sum += A(dy[spot.out + (int64_t)p * spot.step]) / A(divisor_of(v, p0, p1, p2));
                }
        dx[i] = T(sum);
    }
}

/* ---- adaptive average ---- */

/* LANES threads share an output: 1, or a warp. */
template <typename T, int LANES>
static __global__ void adaptive_kernel(lki_cuda_window w, const T *x, T *y, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    int lane = (int)threadIdx.x % LANES;
    for (EACH(thread, count * LANES)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, thread / LANES, w.out_size);
        int p[3], begin[3], size[3];
        lki_cuda_unflatten(p, spot.place, w.axis[1].out, w.axis[2].out);
        for (int d = 0; d < 3; d++) {
            begin[d] = lki_cuda_bin_begin(p[d], w.axis[d].in, w.axis[d].out);
            size[d] = lki_cuda_bin_end(p[d], w.axis[d].in, w.axis[d].out) - begin[d];
        }
        int whole = size[0] * size[1] * size[2];
        A sum = 0;
        for (int k = lane; k < whole; k += LANES) {
            int at[3];
            lki_cuda_unflatten(at, k, size[1], size[2]);
            int s = ((begin[0] + at[0]) * w.axis[1].in + begin[1] + at[1]) * w.axis[2].in + begin[2] + at[2];
            sum += A(x[spot.in + (int64_t)s * spot.step]);
        }
        /* The grid's stride is a multiple of a warp, so a warp's lanes come and go together. */
        for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
        if (lane == 0) y[thread / LANES] = T(sum / A(whole));
    }
}

/* Bin p holds s where floor(s out / in) <= p < ceil((s + 1) out / in): the same formula turned round. */
template <typename T>
static __global__ void adaptive_grad_kernel(lki_cuda_window w, const T *dy, T *dx, int64_t count)
{
    using A = typename lki_cuda_wide<T>::type;
    for (EACH(i, count)) {
        lki_cuda_spot spot = lki_cuda_spot_of(w, i, w.in_size);
        int s[3], first[3], end[3];
        lki_cuda_unflatten(s, spot.place, w.axis[1].in, w.axis[2].in);
        for (int d = 0; d < 3; d++) {
            first[d] = lki_cuda_bin_begin(s[d], w.axis[d].out, w.axis[d].in);
            end[d] = lki_cuda_bin_end(s[d], w.axis[d].out, w.axis[d].in);
        }
        A sum = 0;
        for (int p0 = first[0]; p0 < end[0]; p0++)
            for (int p1 = first[1]; p1 < end[1]; p1++)
                for (int p2 = first[2]; p2 < end[2]; p2++) {
                    int p[3] = {p0, p1, p2}, whole = lki_cuda_bin_size(w, p);
                    int at = (p0 * w.axis[1].out + p1) * w.axis[2].out + p2;
                    sum += A(dy[spot.out + (int64_t)at * spot.step]) / A(whole);
                }
        dx[i] = T(sum);
    }
}

/* ---- Launches ---- */

template <typename T>
static void launch_adaptive(lki_cuda *cuda, const pool *v, const T *x, T *y, int64_t count)
{
    if (v->by_warps)
        adaptive_kernel<T, 32>
            <<<lki_cuda_grid(cuda, count * 32), LKI_CUDA_BLOCK, 0, cuda->compute>>>(v->window, x, y, count);
    else
        adaptive_kernel<T, 1>
            <<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(v->window, x, y, count);
}

template <typename T> static void launch(lki_cuda *cuda, const lk_call *call, const pool *v, int64_t count)
{
    const T *in = (const T *)call->in[0].data;
    T *out = (T *)call->out[0].data;
    int blocks = lki_cuda_grid(cuda, count);
    switch (call->op) {
    case LK_OP_MAX_POOL:
        max_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(
            v->window, in, out, lki_cuda_out<int32_t>(call, 1), count, lki_cuda_pool_relu(call));
        break;
    case LK_OP_MAX_POOL_GRAD:
        max_grad_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(
            v->window, in, lki_cuda_in<int32_t>(call, 1), out, count);
        break;
    case LK_OP_AVG_POOL:
        avg_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(*v, in, out, count);
        break;
    case LK_OP_AVG_POOL_GRAD:
        avg_grad_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(*v, in, out, count);
        break;
    case LK_OP_ADAPTIVE_AVG_POOL: launch_adaptive<T>(cuda, v, in, out, count); break;
    default:
        adaptive_grad_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(v->window, in, out, count);
        break;
    }
}

static lk_status run_pool(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    const pool *v = (const pool *)call->state;
    int64_t count = lki_cuda_count(&call->out[0]);
    bool wanted = call->out[0].data || lki_cuda_out<void>(call, 1);
    if (count == 0 || !wanted) return LK_OK;
    if (v->is_disjoint) return lki_cuda_run_disjoint(cuda, call, &v->window);
    if (!lki_cuda_run_pool_last(cuda, call, &v->window))
        LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, launch<T>(cuda, call, v, count));
    LKI_LAUNCHED();
    return LK_OK;
}

static bool is_gradient(lk_op op)
{
    return op == LK_OP_MAX_POOL_GRAD || op == LK_OP_AVG_POOL_GRAD || op == LK_OP_ADAPTIVE_AVG_POOL_GRAD;
}

static lk_status check_dtypes(const lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    bool fits = dtype <= LK_F16 && call->out[0].dtype == dtype;
    if (call->op == LK_OP_MAX_POOL_GRAD) fits = fits && call->in[1].dtype == LK_I32;
    if (fits) return LK_OK;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for a pool of %s to %s",
                         lki_cuda_dtype_name(dtype), lki_cuda_dtype_name(call->out[0].dtype));
}

lk_status lki_cuda_prepare_pool(lki_cuda *cuda, lk_call *call)
{
    LKI_TRY(check_dtypes(call));
    pool *v = (pool *)lki_cuda_new_state(call, sizeof *v);
    if (!v) return LK_ERR_NOMEM;
    const lk_window *window = &call->attr->pool.window;
    lk_shape first = call->in[0].shape, second = call->out[0].shape;
    bool turned = is_gradient(call->op), last = lki_cuda_is_last(call);
    LKI_TRY(lki_cuda_window_of(&v->window, window, turned ? second : first, turned ? first : second, last));
    bool average = call->op == LK_OP_AVG_POOL || call->op == LK_OP_AVG_POOL_GRAD;
    for (int i = 0; i < 3 && average; i++) v->window.axis[i].dilation = 1;
    v->exclude_pad = window->exclude_pad;
    v->divisor = (int)window->divisor;
    bool largest = call->op == LK_OP_MAX_POOL || call->op == LK_OP_MAX_POOL_GRAD;
    v->is_disjoint = largest && lki_cuda_is_disjoint(&v->window);
    v->by_warps = !last && v->window.out_size > 0 && v->window.in_size / v->window.out_size >= 32;
    cuda->paths[v->is_disjoint ? LKI_CUDA_PATH_POOL_DISJOINT
                : v->by_warps  ? LKI_CUDA_PATH_POOL_WARPS
                               : LKI_CUDA_PATH_POOL_PLAIN]
        .entered++;
    call->run = run_pool;
    return LK_OK;
}
