/* Products and updates inside the one kernel of a small step (small_kernel.cu, which alone includes this). */
#ifndef LKI_CUDA_SMALL_PRODUCT_CUH
#define LKI_CUDA_SMALL_PRODUCT_CUH

#include "engine/cuda/small.cuh"
#include "engine/cuda/update_rules.cuh"

namespace
{

constexpr int BLOCK = LKI_CUDA_SMALL_BLOCK, WARPS = BLOCK / 32, TILE = LKI_CUDA_SMALL_TILE,
              WIDE = LKI_CUDA_SMALL_WIDE, SIDE = LKI_CUDA_SMALL_SIDE, DOWN = LKI_CUDA_SMALL_DOWN,
              ACROSS = LKI_CUDA_SMALL_ACROSS;

using product = lki_cuda_small_product;
using numbers = lki_cuda_numbers<float>;

/* What a block has at hand. */
struct desk { /* functions copy of it what they use more than once: it may be changed by any store */
    lki_cuda_small_op op[LKI_CUDA_SMALL_OPS];
    numbers n[LKI_CUDA_SMALL_UPDATES]; /* of the updates */
    double mass;                       /* of the loss, where its samples weigh the same */
    int skip;                          /* the loss is not finite: updates change nothing */
};

/* ---- Updates ---- */

__device__ lki_cuda_element<float> load_element(const lki_cuda_small_update &u, int64_t i)
{
    lki_cuda_element<float> e = {u.data[0][i], 0, 0, 0, 0};
    if (u.data[2]) e.s0 = u.data[2][i];
    if (u.data[3]) e.s1 = u.data[3][i];
    if (u.data[4]) e.s2 = u.data[4][i];
    return e;
}

__device__ void store_element(const lki_cuda_small_update &u, int64_t i, const lki_cuda_element<float> &e)
{
    u.data[0][i] = e.p;
    if (u.data[2]) u.data[2][i] = e.s0;
    if (u.data[3]) u.data[3][i] = e.s1;
    if (u.data[4]) u.data[4][i] = e.s2;
}

__device__ void apply(const numbers &n, int rule, lki_cuda_element<float> &e)
{
    switch (rule) {
    case LK_UPDATE_SGD: lki_cuda_apply_rule<float, LK_UPDATE_SGD>(n, e); break;
    case LK_UPDATE_ADAM: lki_cuda_apply_rule<float, LK_UPDATE_ADAM>(n, e); break;
    case LK_UPDATE_ADAMW: lki_cuda_apply_rule<float, LK_UPDATE_ADAMW>(n, e); break;
    case LK_UPDATE_RMSPROP: lki_cuda_apply_rule<float, LK_UPDATE_RMSPROP>(n, e); break;
    default: lki_cuda_apply_rule<float, LK_UPDATE_ADAGRAD>(n, e); break;
    }
}

__device__ void run_update(const desk &d, const lki_cuda_small_update &u, int block)
{
    if (d.skip) return;
    int thread = block * BLOCK + (int)threadIdx.x, threads = (int)gridDim.x * BLOCK;
    for (int r = 0; r < u.range_count; r++)
        for (int i = u.begin[r] + thread; i < u.end[r]; i += threads) {
            lki_cuda_element<float> e = load_element(u, i);
            e.g = u.data[1][i];
            apply(d.n[u.number], u.rule, e);
            store_element(u, i, e);
        }
}

/* ---- Products ---- */

__device__ void finish(const product &p, int64_t at, float bias, float value)
{
    if (p.bias) value += bias;
    if (p.relu && value < 0) value = 0;
    p.c[at] = value;
}

/* Adds each of COUNT numbers up over the warp, in the pairs of lki_cuda_warp_sum: the sum of number i ends in
 * the lanes whose highest bits are i. */
template <int COUNT> __device__ float sums_of(float (&value)[COUNT], int lane)
{
    int mask = 16;
#pragma unroll
    for (int count = COUNT / 2; count; count /= 2, mask /= 2) {
        bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < count; i++) {
            float mine = upper ? value[i + count] : value[i], other = upper ? value[i] : value[i + count];
            value[i] = mine + __shfl_xor_sync(0xffffffffu, other, mask);
        }
    }
    for (; mask; mask /= 2) value[0] += __shfl_xor_sync(0xffffffffu, value[0], mask);
    return value[0];
}

__device__ float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* A row's: AHEAD pieces of k at a time, all their loads on their way before the first is used. */
template <int R, int C, int AHEAD>
__device__ void dots_of_vectors(const float *const (&a)[R], const float *const (&b)[C], int k, int lane,
                                float (&acc)[R * C])
{
    int pieces = k / 4;
    for (int first = lane; first < pieces; first += 32 * AHEAD) {
        float4 left[AHEAD][R], right[AHEAD][C];
#pragma unroll
        for (int e = 0; e < AHEAD; e++) {
            int l = min(first + 32 * e, pieces - 1); /* what is read twice is not added */
#pragma unroll
            for (int i = 0; i < R; i++) left[e][i] = ((const float4 *)a[i])[l];
#pragma unroll
            for (int j = 0; j < C; j++) right[e][j] = ((const float4 *)b[j])[l];
        }
#pragma unroll
        for (int e = 0; e < AHEAD; e++)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) {
                    float sum = dot4(left[e][i], right[e][j], acc[i * C + j]);
                    acc[i * C + j] = first + 32 * e < pieces ? sum : acc[i * C + j];
                }
    }
}

/* A warp's R by C elements of c; rows and columns beyond the last are read as the last, and not stored. */
template <int R, int C, int AHEAD> __device__ void dots(const product &p, int row, int column, int step)
{
    const float *a[R], *b[C];
    float acc[R * C] = {};
    int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < R; i++) a[i] = p.a + (int64_t)min(row + i, p.m - 1) * p.k;
#pragma unroll
    for (int j = 0; j < C; j++) b[j] = p.b + (int64_t)min(column + j * step, p.n - 1) * p.k;
    int number = lane / (32 / (R * C)), to = column + number % C * step, at = row + number / C;
    bool stores = lane % (32 / (R * C)) == 0 && at < p.m && to < p.n;
    float bias = p.bias && stores ? p.bias[to] : 0; /* before it is needed */
    if (p.k % 4 == 0 && (((uintptr_t)p.a | (uintptr_t)p.b) & 15) == 0)
        dots_of_vectors<R, C, AHEAD>(a, b, p.k, lane, acc);
    else
        for (int l = lane; l < p.k; l += 32)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) acc[i * C + j] = fmaf(a[i][l], b[j][l], acc[i * C + j]);
    float sum = sums_of(acc, lane);
    if (stores) finish(p, (int64_t)at * p.n + to, bias, sum);
}

__device__ void run_dots_row(product p, int piece)
{
    for (int column = (int)threadIdx.x / 32; column < p.n; column += 2 * WARPS)
        dots<1, 2, 8>(p, piece, column, WARPS);
}

__device__ void run_dots_tile(product p, int piece)
{
    int across = (p.n + SIDE * ACROSS - 1) / (SIDE * ACROSS), warp = (int)threadIdx.x / 32;
    int row = (piece / across * DOWN + warp / ACROSS) * SIDE;
    int column = (piece % across * ACROSS + warp % ACROSS) * SIDE;
    if (row < p.m && column < p.n) dots<SIDE, SIDE, 2>(p, row, column, 1);
}

__device__ void run_row(product p, int piece)
{
    for (int column = (int)threadIdx.x; column < p.n; column += BLOCK) {
        const float *a = p.a + (int64_t)piece * p.a_row, *b = p.b + (int64_t)column * p.b_column;
        float sum = 0, bias = p.bias ? p.bias[column] : 0;
#pragma unroll 8
        for (int l = 0; l < p.k; l++) sum = fmaf(a[(int64_t)l * p.a_column], b[(int64_t)l * p.b_row], sum);
        finish(p, (int64_t)piece * p.n + column, bias, sum);
    }
}

/* Tiles of SIDE by SIDE: a thread has every (BLOCK / SIDE)-th element of a column from its first row on. */
constexpr int DEPTH = 32;
template <int SIDE> constexpr int OWN = SIDE *SIDE / BLOCK;
template <int SIDE> constexpr int PER = SIDE *DEPTH / BLOCK;

/* A SIDE by DEPTH piece of a factor: neighbours in memory by neighbouring threads. */
template <int SIDE>
__device__ void fetch_tile(float (&to)[PER<SIDE>], const float *from, int rows, int depth, int row_step,
                           int k_step)
{
#pragma unroll
    for (int e = 0; e < PER<SIDE>; e++) {
        int t = e * BLOCK + (int)threadIdx.x;
        int i = k_step == 1 ? t / DEPTH : t % SIDE, l = k_step == 1 ? t % DEPTH : t / SIDE;
        to[e] = i < rows && l < depth ? from[(int64_t)i * row_step + (int64_t)l * k_step] : 0;
    }
}

template <int SIDE>
__device__ void put_tile(float (&tile)[DEPTH][SIDE + 1], const float (&from)[PER<SIDE>], int k_step)
{
#pragma unroll
    for (int e = 0; e < PER<SIDE>; e++) {
        int t = e * BLOCK + (int)threadIdx.x;
        int i = k_step == 1 ? t / DEPTH : t % SIDE, l = k_step == 1 ? t % DEPTH : t / SIDE;
        tile[l][i] = from[e];
    }
}

/* What a thread has of a tile: its elements, and where the sums of rows are wanted one of those. */
template <int SIDE> struct tile_sums {
    float own[OWN<SIDE>], row;
};

/* The next pieces are on their way while these are multiplied. One copy of it: what a step runs through once
 * takes longer the more code it is. */
template <int SIDE>
__attribute__((noinline)) __device__ tile_sums<SIDE> multiply_tile(product p, int row, int column)
{
    tile_sums<SIDE> sum = {};
    __shared__ float left[DEPTH][SIDE + 1], right[DEPTH][SIDE + 1];
    int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE;
    bool sums = p.sums && column == 0 && (int)threadIdx.x < SIDE;
    const float *a = p.a + (int64_t)row * p.a_row, *b = p.b + (int64_t)column * p.b_column;
    float a_next[PER<SIDE>], b_next[PER<SIDE>];
    fetch_tile<SIDE>(a_next, a, p.m - row, p.k, p.a_row, p.a_column);
    fetch_tile<SIDE>(b_next, b, p.n - column, p.k, p.b_column, p.b_row);
    for (int k = 0; k < p.k; k += DEPTH) {
        __syncthreads(); /* the last ones have been used */
        put_tile<SIDE>(left, a_next, p.a_column);
        put_tile<SIDE>(right, b_next, p.b_row);
        __syncthreads();
        a += (int64_t)DEPTH * p.a_column;
        b += (int64_t)DEPTH * p.b_row;
        fetch_tile<SIDE>(a_next, a, p.m - row, p.k - k - DEPTH, p.a_row, p.a_column);
        fetch_tile<SIDE>(b_next, b, p.n - column, p.k - k - DEPTH, p.b_column, p.b_row);
#pragma unroll 8
        for (int l = 0; l < DEPTH; l++)
#pragma unroll
            for (int j = 0; j < OWN<SIDE>; j++)
                sum.own[j] = fmaf(left[l][y + j * (BLOCK / SIDE)], right[l][x], sum.own[j]);
        if (sums) {
#pragma unroll 8
            for (int l = 0; l < DEPTH; l++) sum.row += left[l][threadIdx.x];
        }
    }
    return sum;
}

/* Where a piece's tile is, and what this thread has of it. */
struct tile_place {
    int row, column, r, c;
    bool sums;
};

template <int SIDE> __device__ tile_place place_of(const product &p, int piece)
{
    tile_place t;
    int across = (p.n + SIDE - 1) / SIDE;
    t.row = piece / across * SIDE;
    t.column = piece % across * SIDE;
    t.r = t.row + (int)threadIdx.x / SIDE;
    t.c = t.column + (int)threadIdx.x % SIDE;
    t.sums = p.sums && t.column == 0 && (int)threadIdx.x < SIDE && t.row + (int)threadIdx.x < p.m;
    return t;
}

template <int SIDE> __device__ void run_tile(product p, int piece)
{
    tile_place t = place_of<SIDE>(p, piece);
    float bias = p.bias && t.c < p.n ? p.bias[t.c] : 0;
    const tile_sums<SIDE> sum = multiply_tile<SIDE>(p, t.row, t.column);
#pragma unroll
    for (int j = 0; j < OWN<SIDE>; j++) {
        int r = t.r + j * (BLOCK / SIDE);
        if (r < p.m && t.c < p.n) finish(p, (int64_t)r * p.n + t.c, bias, sum.own[j]);
    }
    if (t.sums) p.sums[t.row + (int)threadIdx.x] = sum.row;
}

/* c's elements are parameters' gradients: the parameters are on their way while these are computed. */
template <int RULE, int SIDE>
__device__ void run_tile_and_update(const desk &d, product p, lki_cuda_small_update u, int piece)
{
    constexpr int COUNT = OWN<SIDE>;
    tile_place t = place_of<SIDE>(p, piece);
    int count = t.c >= p.n || t.r >= p.m ? 0 : min((p.m - 1 - t.r) / (BLOCK / SIDE) + 1, COUNT);
    int64_t at = p.c - u.data[1] + (int64_t)t.r * p.n + t.c, step = (int64_t)(BLOCK / SIDE) * p.n,
            sums_at = p.sums - u.data[1] + t.row + (int)threadIdx.x;
    lki_cuda_element<float> e[COUNT], s = {};
#pragma unroll
    for (int j = 0; j < COUNT; j++)
        if (j < count) e[j] = load_element(u, at + j * step);
    if (t.sums) s = load_element(u, sums_at);
    const tile_sums<SIDE> sum = multiply_tile<SIDE>(p, t.row, t.column);
    const numbers n = d.n[u.number];
    const bool skips = d.skip;
#pragma unroll
    for (int j = 0; j < COUNT; j++) {
        if (j >= count) continue;
        u.data[1][at + j * step] = e[j].g = sum.own[j];
        if (skips) continue;
        lki_cuda_apply_rule<float, RULE>(n, e[j]);
        store_element(u, at + j * step, e[j]);
    }
    if (!t.sums) return;
    u.data[1][sums_at] = s.g = sum.row;
    if (skips) return;
    lki_cuda_apply_rule<float, RULE>(n, s);
    store_element(u, sums_at, s);
}

template <int SIDE>
__device__ void run_tile_by_rule(const desk &d, const product &p, const lki_cuda_small_update &u, int piece)
{
    switch (u.rule) {
    case LK_UPDATE_SGD: run_tile_and_update<LK_UPDATE_SGD, SIDE>(d, p, u, piece); break;
    case LK_UPDATE_ADAM: run_tile_and_update<LK_UPDATE_ADAM, SIDE>(d, p, u, piece); break;
    case LK_UPDATE_ADAMW: run_tile_and_update<LK_UPDATE_ADAMW, SIDE>(d, p, u, piece); break;
    case LK_UPDATE_RMSPROP: run_tile_and_update<LK_UPDATE_RMSPROP, SIDE>(d, p, u, piece); break;
    default: run_tile_and_update<LK_UPDATE_ADAGRAD, SIDE>(d, p, u, piece); break;
    }
}

__device__ void run_tiles(const desk &d, const product &p, int piece)
{
    bool wide = lki_cuda_tile_side(p.m, p.n) == WIDE;
    if (p.update < 0)
        wide ? run_tile<WIDE>(p, piece) : run_tile<TILE>(p, piece);
    else if (wide)
        run_tile_by_rule<WIDE>(d, p, d.op[p.update].update, piece);
    else
        run_tile_by_rule<TILE>(d, p, d.op[p.update].update, piece);
}

} // namespace

#endif
