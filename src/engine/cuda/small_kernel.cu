/* The one kernel of a small step: the bodies of its ops, and the barrier between them.
 *
 * Its time is a chain of latencies: loads are issued together and before they are needed, what every block
 * needs is computed while it waits, and code that runs once is short. Each body adds in the order of the
 * kernels that it stands for (product_own.cu, loss.cu, update.cu), so that a step gives the same bits however
 * it is run. Nothing here may be read through the read-only cache: other blocks write it. */
#include "engine/cuda/small_loss.cuh"
#include "engine/cuda/small_product.cuh"

namespace
{

/* ---- Numbers ---- */

/* From the news where they are new, else from what earlier steps left: nobody has to wait for block 0. */
__device__ void find_numbers(const lki_cuda_small_args &a, desk &d, int k)
{
    const lki_cuda_small_update &u = d.op[a.update[k]].update;
    bool fresh = a.news.hyper_count && a.news.slot[0] == u.slot;
    d.n[k] = lki_cuda_numbers_of<float>(fresh ? &a.news.hyper[0] : &a.live->hyper[u.slot], 0, u.rule);
}

/* By the first threads of different warps, but not of the one that waits; and block 0 leaves the numbers for
 * later steps. */
__device__ void find_all_numbers(const lki_cuda_small_args &a, desk &d)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (lane == 0 && warp >= 1 && warp <= a.update_count) find_numbers(a, d, warp - 1);
    if (blockIdx.x == 0 && warp == WARPS - 1 && a.waits) lki_cuda_take_numbers(a.live, a.news, lane, 32);
}

/* ---- The barrier ---- */

/* Until all blocks have come here, `goal` arrivals counted from the first launch on. */
__device__ void wait_for_blocks(const lki_cuda_small_args &a, desk &d, unsigned goal, bool first)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(a.arrivals, 1u);
        while ((int)(*(volatile unsigned *)a.arrivals - goal) < 0) continue;
        __threadfence();
    } else if (first) {
        find_all_numbers(a, d);
    }
    __syncthreads();
}

/* ---- News ---- */

/* Four elements of a row a thread, on their way together. */
template <typename From, typename To, typename Each>
__device__ void convert(const lki_cuda_gather &g, int64_t to, int64_t from, int count, Each each)
{
    const From *source = (const From *)g.stored + from;
    To *target = (To *)g.out + to;
    for (int begin = (int)threadIdx.x; begin < count; begin += 4 * BLOCK) {
        From x[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (begin + k * BLOCK < count) x[k] = source[begin + k * BLOCK];
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (begin + k * BLOCK < count) target[begin + k * BLOCK] = each(x[k]);
    }
}

__device__ void take_row(const lki_cuda_gather &g, int row)
{
    int64_t from = g.index[row] * g.width, to = row * g.width;
    int width = (int)g.width;
    switch (g.conversion) {
    case LKI_CUDA_BYTES_TO_F32:
        convert<uint8_t, float>(g, to, from, width,
                                [&](uint8_t x) { return lki_cuda_scaled(x, g.divisor, g.mean, g.std); });
        break;
    case LKI_CUDA_COPY_4:
        convert<uint32_t, uint32_t>(g, to, from, width, [](uint32_t x) { return x; });
        break;
    case LKI_CUDA_COPY_16: convert<uint4, uint4>(g, to, from, width, [](uint4 x) { return x; }); break;
    default:
        for (int i = (int)threadIdx.x; i < width; i += BLOCK) lki_cuda_move_element(g, to + i, from + i);
    }
}

/* An element as it will be stored, in the low bits. */
__device__ uint64_t load_tiny(const lki_cuda_gather &g, int i)
{
    int width = (int)g.width;
    if (g.conversion == LKI_CUDA_GIVEN_8) return (uint64_t)g.index[i];
    int64_t from = g.index[i / width] * width + i % width;
    switch (g.conversion) {
    case LKI_CUDA_BYTES_TO_F32:
        return __float_as_uint(lki_cuda_scaled(((const uint8_t *)g.stored)[from], g.divisor, g.mean, g.std));
    case LKI_CUDA_BYTES_TO_I64:
    case LKI_CUDA_COPY_1: return ((const uint8_t *)g.stored)[from];
    case LKI_CUDA_I32_TO_I64: return (uint64_t)(int64_t)((const int32_t *)g.stored)[from];
    case LKI_CUDA_COPY_2: return ((const uint16_t *)g.stored)[from];
    case LKI_CUDA_COPY_4: return ((const uint32_t *)g.stored)[from];
    default: return ((const uint64_t *)g.stored)[from];
    }
}

__device__ void store_tiny(const lki_cuda_gather &g, int i, uint64_t bits)
{
    switch (g.conversion) {
    case LKI_CUDA_COPY_1: ((uint8_t *)g.out)[i] = (uint8_t)bits; break;
    case LKI_CUDA_COPY_2: ((uint16_t *)g.out)[i] = (uint16_t)bits; break;
    case LKI_CUDA_BYTES_TO_F32:
    case LKI_CUDA_COPY_4: ((uint32_t *)g.out)[i] = (uint32_t)bits; break;
    default: ((uint64_t *)g.out)[i] = bits; break;
    }
}

/* Tiny rows are on their way while the others are moved. */
__device__ void take_news(const lki_cuda_small_args &a)
{
    uint64_t bits[LKI_CUDA_MAX_GATHERS];
    bool mine[LKI_CUDA_MAX_GATHERS];
#pragma unroll
    for (int i = 0; i < LKI_CUDA_MAX_GATHERS; i++) {
        const lki_cuda_gather &g = a.news.gather[i];
        mine[i] = i < a.news.gather_count && lki_cuda_is_tiny(g) && threadIdx.x < g.row_count * g.width;
        if (mine[i]) bits[i] = load_tiny(g, (int)threadIdx.x);
    }
    for (int i = 0; i < a.news.gather_count; i++) {
        const lki_cuda_gather &g = a.news.gather[i];
        if (lki_cuda_is_tiny(g)) continue;
        for (int row = (int)blockIdx.x; row < g.row_count; row += (int)gridDim.x) take_row(g, row);
    }
#pragma unroll
    for (int i = 0; i < LKI_CUDA_MAX_GATHERS; i++)
        if (mine[i]) store_tiny(a.news.gather[i], (int)threadIdx.x, bits[i]);
}

/* ---- The rest ---- */

__device__ void run_relu_grad(lki_cuda_small_pointwise o, int piece)
{
    int begin = piece * o.width, end = min(begin + o.width, o.count);
    for (int i = begin + (int)threadIdx.x; i < end; i += BLOCK) {
        float dy = o.dy[i], y = o.y[i];
        o.out[i] = y <= 0 ? 0 : dy;
    }
}

__device__ void run_copy(lki_cuda_small_copy o)
{
    int thread = (int)(blockIdx.x * BLOCK + threadIdx.x), threads = (int)gridDim.x * BLOCK;
    int words = (((uintptr_t)o.from | (uintptr_t)o.to) & 3) == 0 ? o.nbytes / 4 : 0;
    for (int i = thread; i < words; i += threads) ((unsigned *)o.to)[i] = ((const unsigned *)o.from)[i];
    for (int i = words * 4 + thread; i < o.nbytes; i += threads) o.to[i] = o.from[i];
}

__device__ void run_piece(const desk &d, const lki_cuda_small_op &op, int piece)
{
    switch (op.kind) {
    case LKI_CUDA_SMALL_DOTS_ROW: run_dots_row(op.product, piece); break;
    case LKI_CUDA_SMALL_DOTS_TILE: run_dots_tile(op.product, piece); break;
    case LKI_CUDA_SMALL_ROW: run_row(op.product, piece); break;
    case LKI_CUDA_SMALL_TILES: run_tiles(d, op.product, piece); break;
    default: run_relu_grad(op.pointwise, piece); break;
    }
}

__device__ void run_op(const lki_cuda_small_args &a, desk &d, const lki_cuda_small_op &op)
{
    int block = (int)blockIdx.x - op.shift;
    if (block < 0) block += (int)gridDim.x;
    switch (op.kind) {
    case LKI_CUDA_SMALL_LOSS: run_loss(d, op.loss, op.pieces); break;
    case LKI_CUDA_SMALL_TOTAL: run_total(a, d, op.loss); break;
    case LKI_CUDA_SMALL_UPDATE: run_update(d, op.update, block); break;
    case LKI_CUDA_SMALL_COPY: run_copy(op.copy); break;
    default:
        for (int piece = block; piece < op.pieces; piece += (int)gridDim.x) run_piece(d, op, piece);
    }
}

/* The ops come while the rows do. */
__device__ void start(const lki_cuda_small_args &a, desk &d, bool with_news)
{
    constexpr int WORDS = sizeof(lki_cuda_small_op) / sizeof(uint4), MOST = WORDS * LKI_CUDA_SMALL_OPS;
    static_assert(MOST <= 2 * BLOCK, "two a thread");
    uint4 word[2];
    int count = WORDS * a.op_count, t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (t + k * BLOCK < count) word[k] = ((const uint4 *)a.op)[t + k * BLOCK];
    int skip = t == 0 && !(with_news && a.news.clears) ? a.live->skip : 0;
    if (with_news) take_news(a);
    if (with_news && blockIdx.x == 0 && !a.waits) lki_cuda_take_numbers(a.live, a.news, t, BLOCK);
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (t + k * BLOCK < count) ((uint4 *)d.op)[t + k * BLOCK] = word[k];
    if (t == 0) d.skip = skip;
    __syncthreads();
}

/* Tiles have barriers of their own before they look at what the loss is. */
__device__ bool goes_on(const lki_cuda_small_op &before, const lki_cuda_small_op &op)
{
    return before.kind == LKI_CUDA_SMALL_TOTAL && op.kind == LKI_CUDA_SMALL_TILES;
}

__global__ void __launch_bounds__(BLOCK, 1)
    small_kernel(const __grid_constant__ lki_cuda_small_args a, int begin, int end)
{
    __shared__ __align__(16) desk d;
    unsigned goal = a.arrived;
    bool first = true;
    start(a, d, begin < 0);
    if (begin >= 0) {
        find_all_numbers(a, d);
        __syncthreads();
    }
    for (int i = begin < 0 ? 0 : begin; i < end; i++) {
        if (i > begin && d.op[i].waits) {
            wait_for_blocks(a, d, goal += gridDim.x, first);
            first = false;
        } else if (i > 0 && !goes_on(d.op[i - 1], d.op[i])) {
            __syncthreads();
        }
        run_op(a, d, d.op[i]);
    }
}

} // namespace

lk_status lki_cuda_small_launch(lki_cuda *cuda, const lki_cuda_small_args *args, int begin, int end,
                                int blocks, bool cooperative)
{
    if (!cooperative) {
        small_kernel<<<blocks, BLOCK, 0, cuda->compute>>>(*args, begin, end);
        LKI_LAUNCHED();
        return LK_OK;
    }
    void *arguments[] = {(void *)args, &begin, &end};
    LKI_CUDA(cudaLaunchCooperativeKernel((const void *)small_kernel, dim3((unsigned)blocks), dim3(BLOCK),
                                         arguments, 0, cuda->compute));
    return LK_OK;
}
