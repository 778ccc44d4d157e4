/* The one kernel of a small step: the bodies of its ops, and the barrier between them. small_kernel.cu,
 * small_floats.cu and small_bytes.cu compile it, each for other steps.
 *
 * Its time is a chain of latencies: loads are issued together and before they are needed, what every block
 * needs is computed while it waits, and code that runs once is short. Each body adds in the order of the
 * kernels that it stands for (product_own.cu, loss.cu, update.cu), so that a step gives the same bits however
 * it is run. Nothing here may be read through the read-only cache: other blocks write it. */
#ifndef LKI_CUDA_SMALL_SMALL_KERNEL_CUH
#define LKI_CUDA_SMALL_SMALL_KERNEL_CUH

#include "engine/cuda/small/small_loss.cuh"
#include "engine/cuda/small/small_tile.cuh"

#ifndef LKI_CUDA_SPIN /* what an emulator does meanwhile */
#define LKI_CUDA_SPIN()
#endif

namespace
{

/* ---- The step before ---- */

/* The next step may start: it waits before it touches what this one does. */
__device__ void let_next_start()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Until all earlier work is done and can be seen. Before it only what no step writes may be read (the ops,
 * rows of datasets, and rows that were fed: a launch behind the kernel that wrote them does not start early),
 * and nothing may be written. */
__device__ void wait_for_earlier_work()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---- Numbers ---- */

/* From the news where they are new, else from what earlier steps left: nobody has to wait for block 0. */
template <typename F> __device__ void find_numbers(const lki_cuda_small_args &a, desk &d, int k)
{
    const lki_cuda_small_update &u = d.op[a.update[k]].update;
    int rule = F::RULE < 0 ? u.rule : F::RULE;
    bool fresh = a.news.hyper_count && a.news.slot[0] == u.slot;
    d.n[k] = lki_cuda_numbers_of<float>(fresh ? &a.news.hyper[0] : &a.live->hyper[u.slot], 0, rule);
}

/* By the first threads of different warps, but not of the one that waits; and block 0 leaves the numbers for
 * later steps. */
template <typename F> __device__ void find_all_numbers(const lki_cuda_small_args &a, desk &d)
{
    int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    if (lane == 0 && warp >= 1 && warp <= a.update_count) find_numbers<F>(a, d, warp - 1);
    if (blockIdx.x == 0 && warp == WARPS - 1 && a.waits) lki_cuda_take_numbers(a.live, a.news, lane, 32);
}

/* ---- The barrier ---- */

/* Until all blocks have come here, `goal` arrivals counted from the first launch on. */
template <typename F>
__device__ void wait_for_blocks(const lki_cuda_small_args &a, desk &d, unsigned goal, bool first)
{
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(a.arrivals, 1u);
        while ((int)(*(volatile unsigned *)a.arrivals - goal) < 0) LKI_CUDA_SPIN();
        __threadfence();
    } else if (first) {
        find_all_numbers<F>(a, d);
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
        for (int k = 0; k < 4; k++) x[k] = source[min(begin + k * BLOCK, count - 1)];
        wait_for_earlier_work();
#pragma unroll
        for (int k = 0; k < 4; k++)
            if (begin + k * BLOCK < count) target[begin + k * BLOCK] = each(x[k]);
    }
}

template <typename F> __device__ void take_row(const lki_cuda_gather &g, int row)
{
    int64_t from = g.index[row] * g.width, to = row * g.width;
    int width = (int)g.width;
    switch (F::ROWS < 0 ? g.conversion : F::ROWS) {
    case LKI_CUDA_BYTES_TO_F32:
        convert<uint8_t, float>(g, to, from, width,
                                [&](uint8_t x) { return lki_cuda_scaled(x, g.divisor, g.mean, g.std); });
        break;
    case LKI_CUDA_COPY_4:
        convert<uint32_t, uint32_t>(g, to, from, width, [](uint32_t x) { return x; });
        break;
    case LKI_CUDA_COPY_16: convert<uint4, uint4>(g, to, from, width, [](uint4 x) { return x; }); break;
    default:
        wait_for_earlier_work();
        for (int i = (int)threadIdx.x; i < width; i += BLOCK) lki_cuda_move_element(g, to + i, from + i);
    }
}

/* An element as it will be stored, in the low bits. */
template <typename F> __device__ uint64_t load_tiny(const lki_cuda_gather &g, int i)
{
    const int conversion = F::LABELS < 0 ? g.conversion : F::LABELS;
    int width = (int)g.width;
    if (conversion == LKI_CUDA_GIVEN_8) return (uint64_t)g.index[i];
    int row = width == 1 ? i : i / width;
    int64_t from = g.index[row] * width + (i - row * width);
    switch (conversion) {
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

__device__ void store_tiny(int conversion, void *out, int i, uint64_t bits)
{
    switch (conversion) {
    case LKI_CUDA_COPY_1: ((uint8_t *)out)[i] = (uint8_t)bits; break;
    case LKI_CUDA_COPY_2: ((uint16_t *)out)[i] = (uint16_t)bits; break;
    case LKI_CUDA_BYTES_TO_F32:
    case LKI_CUDA_COPY_4: ((uint32_t *)out)[i] = (uint32_t)bits; break;
    default: ((uint64_t *)out)[i] = bits; break;
    }
}

/* Tiny rows are on their way while the others are moved. */
template <typename F> __device__ void take_news(const lki_cuda_small_args &a, desk &d)
{
    uint64_t bits[LKI_CUDA_MAX_GATHERS];
    bool mine[LKI_CUDA_MAX_GATHERS];
#pragma unroll
    for (int i = 0; i < LKI_CUDA_MAX_GATHERS; i++) {
        const lki_cuda_gather &g = a.news.gather[i];
        mine[i] = i < a.news.gather_count && lki_cuda_is_tiny(g) && threadIdx.x < g.row_count * g.width;
        if (mine[i]) bits[i] = load_tiny<F>(g, (int)threadIdx.x);
    }
    for (int i = 0; i < a.news.gather_count; i++) {
        const lki_cuda_gather &g = a.news.gather[i];
        if (lki_cuda_is_tiny(g)) continue;
        for (int row = (int)blockIdx.x; row < g.row_count; row += (int)gridDim.x) take_row<F>(g, row);
    }
    wait_for_earlier_work();
#pragma unroll
    for (int i = 0; i < LKI_CUDA_MAX_GATHERS; i++) {
        if (!mine[i]) continue;
        const int conversion = F::LABELS < 0 ? a.news.gather[i].conversion : F::LABELS;
        store_tiny(conversion, d.tiny[i], (int)threadIdx.x, bits[i]);
        store_tiny(conversion, a.news.gather[i].out, (int)threadIdx.x, bits[i]);
    }
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

__device__ void run_copy(lki_cuda_small_copy o, int block, int blocks)
{
    int thread = block * BLOCK + (int)threadIdx.x, threads = blocks * BLOCK;
    int words = (((uintptr_t)o.from | (uintptr_t)o.to) & 3) == 0 ? o.nbytes / 4 : 0;
    for (int i = thread; i < words; i += threads) ((unsigned *)o.to)[i] = ((const unsigned *)o.from)[i];
    for (int i = words * 4 + thread; i < o.nbytes; i += threads) o.to[i] = o.from[i];
}

/* Which piece of an op is this block's first. */
__device__ int first_piece(const lki_cuda_small_op &op)
{
    int block = (int)blockIdx.x - op.shift;
    return block < 0 ? block + (int)gridDim.x : block;
}

/* Whether this block has anything to do in an op: the loss is every block's. */
__device__ bool takes_part(const lki_cuda_small_op &op)
{
    return op.kind == LKI_CUDA_SMALL_LOSS || op.kind == LKI_CUDA_SMALL_TOTAL || first_piece(op) < op.pieces;
}

__device__ void run_piece(const lki_cuda_small_args &a, const lki_cuda_small_op &op, int piece)
{
    switch (op.kind) {
    case LKI_CUDA_SMALL_DOTS_ROW: run_dots_row(a, op.product, piece); break;
    case LKI_CUDA_SMALL_DOTS_TILE: run_dots_tile(a, op.product, piece); break;
    case LKI_CUDA_SMALL_ROW: run_row(op.product, piece); break;
    default: run_relu_grad(op.pointwise, piece); break;
    }
}

/* *total: the loss's sum, which is still to be made; -1: none is. */
template <typename F>
__device__ void run_op(const lki_cuda_small_args &a, desk &d, const lki_cuda_small_op &op, int *total)
{
    int block = first_piece(op), blocks = min((int)op.pieces, (int)gridDim.x);
    switch (op.kind) {
    case LKI_CUDA_SMALL_LOSS: run_loss<F>(d, op.loss, op.pieces); break;
    case LKI_CUDA_SMALL_TOTAL: run_total<F>(a, d, op.loss); break;
    case LKI_CUDA_SMALL_UPDATE: run_update<F>(d, op.update, block, blocks); break;
    case LKI_CUDA_SMALL_COPY: run_copy(op.copy, block, blocks); break;
    case LKI_CUDA_SMALL_TILES:
        for (int piece = block; piece < op.pieces; piece += (int)gridDim.x) {
            run_tiles<F>(d, op.product, piece, {&a, &d, *total < 0 ? NULL : &d.op[*total].loss});
            *total = -1;
        }
        break;
    default:
        for (int piece = block; piece < op.pieces; piece += (int)gridDim.x) run_piece(a, op, piece);
    }
}

/* The ops come while the rows do. */
template <typename F> __device__ void start(const lki_cuda_small_args &a, desk &d)
{
    constexpr int WORDS = sizeof(lki_cuda_small_op) / sizeof(uint4), MOST = WORDS * LKI_CUDA_SMALL_OPS;
    static_assert(MOST <= 2 * BLOCK, "two a thread");
    uint4 word[2];
    int count = WORDS * a.op_count, t = (int)threadIdx.x;
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (t + k * BLOCK < count) word[k] = ((const uint4 *)a.op)[t + k * BLOCK];
    take_news<F>(a, d);
    wait_for_earlier_work();
    int skip = t == 0 && !a.news.clears ? a.live->skip : 0;
    if (blockIdx.x == 0 && !a.waits) lki_cuda_take_numbers(a.live, a.news, t, BLOCK);
#pragma unroll
    for (int k = 0; k < 2; k++)
        if (t + k * BLOCK < count) ((uint4 *)d.op)[t + k * BLOCK] = word[k];
    if (t == 0) d.skip = skip;
    __syncthreads();
}

/* The sum of the loss is left to the tiles behind it, who have time while their factors come. */
__device__ bool is_left(const lki_cuda_small_op *op, int i, int end)
{
    return op[i].kind == LKI_CUDA_SMALL_TOTAL && i + 1 < end && op[i + 1].kind == LKI_CUDA_SMALL_TILES &&
           !op[i + 1].waits;
}

/* In no template, where compilers that are not for GPUs forget where a variable is to lie. */
__device__ desk &own_desk()
{
    __shared__ __align__(16) desk d;
    return d;
}

template <typename F>
__global__ void __launch_bounds__(BLOCK, 1) small_kernel(const __grid_constant__ lki_cuda_small_args a)
{
    desk &d = own_desk();
    unsigned goal = a.arrived;
    int total = -1; /* the op that is left */
    bool first = true;
    let_next_start();
    start<F>(a, d);
    for (int i = 0; i < a.run_count; i++) {
        bool mine = takes_part(d.op[i]);
        if (!mine && !d.op[i].waits) continue;
        if (d.op[i].waits) {
            wait_for_blocks<F>(a, d, goal += gridDim.x, first);
            first = false;
        } else if (i > 0 && total != i - 1) {
            __syncthreads();
        }
        if (total >= 0 && mine && d.op[i].kind != LKI_CUDA_SMALL_TILES) { /* this block had no tile */
            run_total<F>(a, d, d.op[total].loss);
            total = -1;
            __syncthreads();
        }
        if (is_left(d.op, i, a.run_count))
            total = i;
        else if (mine)
            run_op<F>(a, d, d.op[i], &total);
    }
    if (total >= 0) run_total<F>(a, d, d.op[total].loss);
}

/* ---- Which kernel ---- */

/* Usual steps have kernels of their own: less code to run through, and registers enough for it. */
template <int RULE, int STATES, int ROWS, int LABELS> struct usual {
    static constexpr lki_cuda_small_facts known = {RULE, STATES, ROWS, LABELS};
    static constexpr lki_cuda_small_function *kernel = small_kernel<facts<RULE, STATES, ROWS, LABELS>>;
};

/* The one for these facts; NULL where there is none among U. */
template <typename... U> lki_cuda_small_function *find_usual(const lki_cuda_small_facts &f)
{
    lki_cuda_small_function *found = NULL;
    auto look_at = [&](const lki_cuda_small_facts &known, lki_cuda_small_function *kernel) {
        bool same = known.rule == f.rule && known.states == f.states && known.rows == f.rows &&
                    known.labels == f.labels;
        if (same) found = kernel;
    };
    (look_at(U::known, U::kernel), ...);
    return found;
}

/* The rules that most train with, for rows and labels that are converted so. */
template <int ROWS, int LABELS> lki_cuda_small_function *find_rule(const lki_cuda_small_facts &f)
{
    return find_usual<usual<LK_UPDATE_SGD, 0, ROWS, LABELS>, usual<LK_UPDATE_SGD, 1, ROWS, LABELS>,
                      usual<LK_UPDATE_ADAM, 2, ROWS, LABELS>, usual<LK_UPDATE_ADAMW, 2, ROWS, LABELS>>(f);
}

} // namespace

#endif
