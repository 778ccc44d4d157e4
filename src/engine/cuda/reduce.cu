/* Reductions over any set of axes.
 *
 * The axes of x are split into those that stay and those that go, each kind merged as far as it can be; a
 * result is a walk over the second kind at one place of the first. Three kernels share the work: threads
 * beside each other walk along the elements of one result where those are neighbours (rows), or along the
 * results where these are (columns); where there are few results of many elements each, both are cut into
 * parts that a second kernel puts together in order. Sums are taken in f64. */
#include "engine/cuda/kernels.cuh"

namespace
{

struct reduction {
    lki_cuda_view kept, gone;
    int64_t kept_count, gone_count, part; /* elements of one result that one part takes */
    double divisor;                       /* mean's and var's */
    bool vectors;                         /* rows of x may be read 16 bytes at a time */
};

/* ---- What is reduced: an accumulator, how it takes an element, how two are put together ---- */

template <typename T> struct sum_op {
    using X = typename lki_cuda_wide<T>::type;
    using out = T;
    struct acc {
        double sum;
    };
    static __device__ acc start(void)
    {
        return {0};
    }
    static __device__ void take(acc &a, X x, X, int64_t)
    {
        a.sum += x;
    }
    static __device__ void merge(acc &a, const acc &b)
    {
        a.sum += b.sum;
    }
    static __device__ T finish(const acc &a, const reduction &r)
    {
        return lki_cuda_narrow<T>::of((X)(a.sum / r.divisor));
    }
};

/* sum (x - mean)^2 / max(0, n - correction), from sums of what lies above the first element: those are small
 * where the spread is. */
template <typename T> struct var_op {
    using X = typename lki_cuda_wide<T>::type;
    using out = T;
    struct acc {
        double sum, square;
    };
    static __device__ acc start(void)
    {
        return {0, 0};
    }
    static __device__ void take(acc &a, X x, X first, int64_t)
    {
        double d = (double)x - (double)first;
        a.sum += d;
        a.square += d * d;
    }
    static __device__ void merge(acc &a, const acc &b)
    {
        a.sum += b.sum;
        a.square += b.square;
    }
    static __device__ T finish(const acc &a, const reduction &r)
    {
        double square = a.square - a.sum * a.sum / (double)r.gone_count;
        return lki_cuda_narrow<T>::of((X)((square < 0 ? 0 : square) / r.divisor));
    }
};

/* A NaN is larger than any number, as in PyTorch. */
template <typename X> __device__ bool is_larger(X x, X largest)
{
    return x > largest || (x != x && largest == largest);
}

template <typename T> struct max_op {
    using X = typename lki_cuda_wide<T>::type;
    using out = T;
    struct acc {
        X largest;
    };
    static __device__ acc start(void)
    {
        return {(X)-INFINITY};
    }
    static __device__ void take(acc &a, X x, X, int64_t)
    {
        if (is_larger(x, a.largest)) a.largest = x;
    }
    static __device__ void merge(acc &a, const acc &b)
    {
        take(a, b.largest, 0, 0);
    }
    static __device__ T finish(const acc &a, const reduction &)
    {
        return lki_cuda_narrow<T>::of(a.largest);
    }
};

/* The first of equals: elements reach an accumulator in any order, so the place decides. */
template <typename T> struct argmax_op {
    using X = typename lki_cuda_wide<T>::type;
    using out = int64_t;
    struct acc {
        int64_t place; /* INT64_MAX: none yet */
        X largest;
    };
    static __device__ acc start(void)
    {
        return {INT64_MAX, (X)-INFINITY};
    }
    static __device__ void take(acc &a, X x, X, int64_t j)
    {
        if (is_larger(x, a.largest) || (!is_larger(a.largest, x) && j < a.place)) a = {j, x};
    }
    static __device__ void merge(acc &a, const acc &b)
    {
        take(a, b.largest, 0, b.place);
    }
    static __device__ int64_t finish(const acc &a, const reduction &)
    {
        return a.place == INT64_MAX ? 0 : a.place;
    }
};

/* ---- Walks ---- */

/* The accumulator of a whole warp, in lane 0. */
template <typename Op> __device__ typename Op::acc merge_warp(typename Op::acc a)
{
#pragma unroll
    for (int distance = 16; distance; distance >>= 1) Op::merge(a, lki_cuda_shuffle_down(a, distance));
    return a;
}

/* The accumulator of a whole block of at most 32 warps, in thread 0. */
template <typename Op> __device__ typename Op::acc merge_block(typename Op::acc a)
{
    __shared__ typename Op::acc partial[32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
    a = merge_warp<Op>(a);
    if (lane == 0) partial[warp] = a;
    __syncthreads();
    return merge_warp<Op>(lane < warps ? partial[lane] : Op::start());
}

template <typename Op>
__device__ void put(const reduction &r, typename Op::out *out, void *parts, int64_t i,
                    const typename Op::acc &a)
{
    if (gridDim.y == 1)
        out[i] = Op::finish(a, r);
    else
        ((typename Op::acc *)parts)[blockIdx.y * r.kept_count + i] = a;
}

/* Elements begin..end of a row whose elements are neighbours. */
template <typename Op, typename T>
__device__ void walk_dense(typename Op::acc &a, const T *x, int64_t begin, int64_t end, int thread,
                           int threads)
{
    constexpr int width = 16 / sizeof(T);
    auto first = lki_cuda_widen(x[0]);
    for (int64_t j = begin / width + thread; j < end / width; j += threads) {
        lki_cuda_pack<T, width> pack = ((const lki_cuda_pack<T, width> *)x)[j];
#pragma unroll
        for (int k = 0; k < width; k++) Op::take(a, lki_cuda_widen(pack.at[k]), first, j * width + k);
    }
    for (int64_t j = end / width * width + thread; j < end; j += threads)
        Op::take(a, lki_cuda_widen(x[j]), first, j);
}

template <typename Op, typename T>
__device__ typename Op::acc walk(const reduction &r, const T *x, int64_t i, int thread, int threads)
{
    typename Op::acc a = Op::start();
    int64_t begin = blockIdx.y * r.part, end = begin + r.part < r.gone_count ? begin + r.part : r.gone_count;
    if (begin >= end) return a;
    x += lki_cuda_offset<int64_t>(r.kept, i);
    if (r.vectors) {
        walk_dense<Op>(a, x, begin, end, thread, threads);
        return a;
    }
    auto first = lki_cuda_widen(x[0]);
    int64_t stride = r.gone.rank ? r.gone.stride[0] : 0;
    for (int64_t j = begin + thread; j < end; j += threads) {
        int64_t at = r.gone.rank <= 1 ? j * stride : lki_cuda_offset<int64_t>(r.gone, j);
        Op::take(a, lki_cuda_widen(x[at]), first, j);
    }
    return a;
}

/* A block a result. */
template <typename Op, typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    rows_kernel(reduction r, const T *x, typename Op::out *out, void *parts)
{
    typename Op::acc a = merge_block<Op>(walk<Op>(r, x, blockIdx.x, (int)threadIdx.x, (int)blockDim.x));
    if (threadIdx.x == 0) put<Op>(r, out, parts, blockIdx.x, a);
}

/* A warp a result. */
template <typename Op, typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    warps_kernel(reduction r, const T *x, typename Op::out *out, void *parts)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= r.kept_count) return;
    typename Op::acc a = merge_warp<Op>(walk<Op>(r, x, i, (int)(threadIdx.x % 32), 32));
    if (threadIdx.x % 32 == 0) put<Op>(r, out, parts, i, a);
}

enum { COLUMNS = 32, LINES = LKI_CUDA_BLOCK / COLUMNS };

/* Neighbouring threads take neighbouring results; the lines of a block share their elements. */
template <typename Op, typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    columns_kernel(reduction r, const T *x, typename Op::out *out, void *parts)
{
    __shared__ typename Op::acc partial[LINES][COLUMNS];
    int64_t i = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    int line = threadIdx.x / COLUMNS;
    typename Op::acc a = i < r.kept_count ? walk<Op>(r, x, i, line, LINES) : Op::start();
    partial[line][threadIdx.x % COLUMNS] = a;
    __syncthreads();
    if (line || i >= r.kept_count) return;
    for (int k = 1; k < LINES; k++) Op::merge(a, partial[k][threadIdx.x]);
    put<Op>(r, out, parts, i, a);
}

/* Puts the parts of each result together, a warp a result. */
template <typename Op>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    parts_kernel(reduction r, int part_count, const typename Op::acc *parts, typename Op::out *out)
{
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= r.kept_count) return;
    typename Op::acc a = Op::start();
    for (int k = threadIdx.x % 32; k < part_count; k += 32) Op::merge(a, parts[k * r.kept_count + i]);
    a = merge_warp<Op>(a);
    if (threadIdx.x % 32 == 0) out[i] = Op::finish(a, r);
}

/* ---- max_grad ---- */

/* dx = dy [x = y] / how many of its group equal y: a group of `threads` threads a result. */
template <typename T>
__device__ void share_maximum(const reduction &r, int64_t i, const T *dy, const T *x, const T *y, T *dx,
                              int thread, int threads)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t base = lki_cuda_offset<int64_t>(r.kept, i);
    W largest = lki_cuda_widen(y[i]), slope = lki_cuda_widen(dy[i]);
    int equal = 0;
    for (int64_t j = thread; j < r.gone_count; j += threads)
        equal += lki_cuda_widen(x[base + lki_cuda_offset<int64_t>(r.gone, j)]) == largest;
    if (threads == 32) equal = lki_cuda_warp_sum(equal);
    if (threads > 32) equal = lki_cuda_block_sum(equal);
    for (int64_t j = thread; j < r.gone_count; j += threads) {
        int64_t at = base + lki_cuda_offset<int64_t>(r.gone, j);
        W mask = lki_cuda_widen(x[at]) == largest;
        dx[at] = lki_cuda_narrow<T>::of(slope * mask / (W)equal);
    }
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    max_grad_kernel(reduction r, int threads, const T *dy, const T *x, const T *y, T *dx)
{
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / threads;
    if (i < r.kept_count) share_maximum(r, i, dy, x, y, dx, (int)threadIdx.x % threads, threads);
}

/* ---- Launches ---- */

struct reduce_state {
    lki_cuda *cuda;
    reduction r;
    int part_count;
    bool columns, warps;
};

enum { MAX_PARTS = 256, PART = 4096, MAX_ACC_NBYTES = 16 };

template <typename Op, typename T> lk_status launch(const lk_call *call)
{
    const reduce_state *state = (const reduce_state *)call->state;
    reduction r = state->r;
    const T *x = lki_cuda_in<T>(call, 0);
    typename Op::out *out = lki_cuda_out<typename Op::out>(call, 0);
    r.vectors = r.vectors && lki_cuda_is_aligned(x, 16);
    int64_t each = state->columns ? COLUMNS : state->warps ? LKI_CUDA_BLOCK / 32 : 1;
    dim3 grid((unsigned)((r.kept_count + each - 1) / each), (unsigned)state->part_count);
    cudaStream_t stream = state->cuda->compute;
    if (state->columns)
        columns_kernel<Op, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(r, x, out, call->scratch);
    else if (state->warps)
        warps_kernel<Op, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(r, x, out, call->scratch);
    else
        rows_kernel<Op, T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(r, x, out, call->scratch);
    if (state->part_count > 1) {
        int64_t results = LKI_CUDA_BLOCK / 32;
        parts_kernel<Op><<<(unsigned)((r.kept_count + results - 1) / results), LKI_CUDA_BLOCK, 0, stream>>>(
            r, state->part_count, (const typename Op::acc *)call->scratch, out);
    }
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> lk_status launch_max_grad(const lk_call *call)
{
    const reduce_state *state = (const reduce_state *)call->state;
    const reduction &r = state->r;
    int threads = state->columns ? 1 : state->warps ? 32 : LKI_CUDA_BLOCK;
    int64_t each = LKI_CUDA_BLOCK / threads;
    max_grad_kernel<T>
        <<<(unsigned)((r.kept_count + each - 1) / each), LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            r, threads, lki_cuda_in<T>(call, 0), lki_cuda_in<T>(call, 1), lki_cuda_in<T>(call, 2),
            lki_cuda_out<T>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    const reduce_state *state = (const reduce_state *)call->state;
    if (!state->r.kept_count || (call->op == LK_OP_MAX_GRAD && !state->r.gone_count)) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        switch (call->op) {
        case LK_OP_MAX: return launch<max_op<T>, T>(call);
        case LK_OP_VAR: return launch<var_op<T>, T>(call);
        case LK_OP_ARGMAX: return launch<argmax_op<T>, T>(call);
        case LK_OP_MAX_GRAD: return launch_max_grad<T>(call);
        default: return launch<sum_op<T>, T>(call);
        }
    })
    return LK_OK;
}

void split(reduction *r, lk_shape shape, uint32_t axes)
{
    int64_t stride[LK_MAX_DIMS];
    lki_cuda_strides(shape, stride);
    r->kept.rank = r->gone.rank = 0;
    r->kept_count = r->gone_count = 1;
    for (int i = 0; i < shape.rank; i++) {
        bool goes = axes & (1u << i);
        *(goes ? &r->gone_count : &r->kept_count) *= shape.dim[i];
        lki_cuda_view_add(goes ? &r->gone : &r->kept, shape.dim[i], stride[i]);
    }
}

uint32_t axes_of(const lk_call *call)
{
    if (call->op == LK_OP_ARGMAX) return call->in[0].shape.rank ? 1u << call->attr->axis.axis : 0;
    if (call->op != LK_OP_MAX_GRAD) return call->attr->reduce.axes;
    uint32_t axes = 0;
    for (int i = 0; i < call->in[1].shape.rank; i++)
        if (call->in[2].shape.dim[i] == 1) axes |= 1u << i;
    return axes;
}

/* Cuts the elements of each result into parts where there are too few results to keep the GPU busy. */
void choose(reduce_state *state, lk_call *call)
{
    reduction *r = &state->r;
    size_t nbytes = lki_cuda_dtype_nbytes(call->in[0].dtype);
    int64_t width = (int64_t)(16 / nbytes);
    bool rows = r->gone.rank && r->gone.stride[r->gone.rank - 1] == 1;
    state->columns = !rows && r->kept_count >= COLUMNS;
    state->warps = !state->columns && r->gone_count <= 1024;
    r->vectors = rows && r->gone.rank == 1 && r->gone_count % width == 0;
    int64_t each = state->columns ? COLUMNS : state->warps ? LKI_CUDA_BLOCK / 32 : 1;
    int64_t blocks = (r->kept_count + each - 1) / each, part = state->columns ? PART / 32 : PART;
    int64_t wanted = blocks ? 2 * (int64_t)state->cuda->processor_count / blocks : 1;
    int64_t parts = (r->gone_count + part - 1) / part;
    parts = parts < wanted ? parts : wanted;
    parts = parts < 1 || call->op == LK_OP_MAX_GRAD ? 1 : parts < MAX_PARTS ? parts : (int64_t)MAX_PARTS;
    r->part = ((r->gone_count + parts - 1) / parts + width - 1) / width * width;
    state->part_count = (int)parts;
    if (parts > 1) call->scratch_nbytes = (size_t)(parts * r->kept_count) * MAX_ACC_NBYTES;
}

double divisor_of(const lk_call *call, const reduction *r)
{
    if (call->op == LK_OP_MEAN) return (double)r->gone_count;
    if (call->op == LK_OP_VAR) return fmax(0, (double)(r->gone_count - call->attr->reduce.correction));
    return 1;
}

} // namespace

lk_status lki_cuda_prepare_reduce(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    if (!lki_cuda_is_float(dtype) || (call->op != LK_OP_ARGMAX && call->out[0].dtype != dtype))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for reductions of %s",
                             lki_cuda_dtype_name(dtype));
    reduce_state *state = (reduce_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    split(&state->r, call->in[call->op == LK_OP_MAX_GRAD ? 1 : 0].shape, axes_of(call));
    state->r.divisor = divisor_of(call, &state->r);
    choose(state, call);
    cuda->paths[state->part_count > 1 ? LKI_CUDA_PATH_REDUCE_PARTS
                : state->columns      ? LKI_CUDA_PATH_REDUCE_COLUMNS
                : state->warps        ? LKI_CUDA_PATH_REDUCE_WARPS
                                      : LKI_CUDA_PATH_REDUCE_BLOCKS]
        .entered++;
    call->run = run;
    return LK_OK;
}
