/* Products and updates inside the one kernel of a small step (small_kernel.cu, which alone includes this). */
#ifndef LKI_CUDA_SMALL_PRODUCT_CUH
#define LKI_CUDA_SMALL_PRODUCT_CUH

#include "engine/cuda/small.cuh"
#include "engine/cuda/update_rules.cuh"

namespace
{

constexpr int BLOCK = LKI_CUDA_SMALL_BLOCK, WARPS = BLOCK / 32, TILE = LKI_CUDA_SMALL_TILE,
              SIDE = LKI_CUDA_SMALL_SIDE, DOWN = LKI_CUDA_SMALL_DOWN, ACROSS = LKI_CUDA_SMALL_ACROSS;

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

template <int R, int C, int UNROLL>
__device__ void dots_of_vectors(const float *const (&a)[R], const float *const (&b)[C], int k, int lane,
                                float (&acc)[R * C])
{
#pragma unroll UNROLL
    for (int l = lane; l < k / 4; l += 32) {
        float4 left[R], right[C];
#pragma unroll
        for (int i = 0; i < R; i++) left[i] = ((const float4 *)a[i])[l];
#pragma unroll
        for (int j = 0; j < C; j++) right[j] = ((const float4 *)b[j])[l];
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++)
                acc[i * C + j] =
                    fmaf(left[i].w, right[j].w,
                         fmaf(left[i].z, right[j].z,
                              fmaf(left[i].y, right[j].y, fmaf(left[i].x, right[j].x, acc[i * C + j]))));
    }
}

/* A warp's R by C elements of c; rows and columns beyond the last are read as the last, and not stored. */
template <int R, int C, int UNROLL> __device__ void dots(const product &p, int row, int column, int step)
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
        dots_of_vectors<R, C, UNROLL>(a, b, p.k, lane, acc);
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
        dots<1, 2, 4>(p, piece, column, WARPS);
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

/* A TILE by DEPTH piece of a factor: neighbours in memory by neighbouring threads. */
constexpr int DEPTH = 32, PER = TILE * DEPTH / BLOCK;
typedef float factor_tile[DEPTH][TILE + 1];

__device__ void fetch_tile(float (&to)[PER], const float *from, int rows, int depth, int row_step, int k_step)
{
#pragma unroll
    for (int e = 0; e < PER; e++) {
        int t = e * BLOCK + (int)threadIdx.x;
        int i = k_step == 1 ? t / DEPTH : t % TILE, l = k_step == 1 ? t % DEPTH : t / TILE;
        to[e] = i < rows && l < depth ? from[(int64_t)i * row_step + (int64_t)l * k_step] : 0;
    }
}

__device__ void put_tile(factor_tile &tile, const float (&from)[PER], int k_step)
{
#pragma unroll
    for (int e = 0; e < PER; e++) {
        int t = e * BLOCK + (int)threadIdx.x;
        int i = k_step == 1 ? t / DEPTH : t % TILE, l = k_step == 1 ? t % DEPTH : t / TILE;
        tile[l][i] = from[e];
    }
}

/* One element of a tile a thread, and where the sums of rows are wanted one of those. */
__device__ float multiply_tile(const product &p, int row, int column, float *row_sum)
{
    __shared__ factor_tile left, right;
    int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    bool sums = p.sums && column == 0 && (int)threadIdx.x < TILE;
    const float *a = p.a + (int64_t)row * p.a_row, *b = p.b + (int64_t)column * p.b_column;
    float a_next[PER], b_next[PER], sum = 0;
    for (int k = 0; k < p.k; k += DEPTH) {
        fetch_tile(a_next, a, p.m - row, p.k - k, p.a_row, p.a_column);
        fetch_tile(b_next, b, p.n - column, p.k - k, p.b_column, p.b_row);
        __syncthreads(); /* the last ones have been used */
        put_tile(left, a_next, p.a_column);
        put_tile(right, b_next, p.b_row);
        __syncthreads();
#pragma unroll 8
        for (int l = 0; l < DEPTH; l++) sum = fmaf(left[l][y], right[l][x], sum);
        if (sums) {
#pragma unroll 8
            for (int l = 0; l < DEPTH; l++) *row_sum += left[l][threadIdx.x];
        }
        a += (int64_t)DEPTH * p.a_column;
        b += (int64_t)DEPTH * p.b_row;
    }
    return sum;
}

/* Where a piece's tile is, and what this thread has of it. */
struct tile_place {
    int row, column, r, c;
    bool in, sums;
};

__device__ tile_place place_of(const product &p, int piece)
{
    tile_place t;
    int across = (p.n + TILE - 1) / TILE;
    t.row = piece / across * TILE;
    t.column = piece % across * TILE;
    t.r = t.row + (int)threadIdx.x / TILE;
    t.c = t.column + (int)threadIdx.x % TILE;
    t.in = t.r < p.m && t.c < p.n;
    t.sums = p.sums && t.column == 0 && (int)threadIdx.x < TILE && t.row + (int)threadIdx.x < p.m;
    return t;
}

__device__ void run_tile(product p, int piece)
{
    tile_place t = place_of(p, piece);
    float bias = p.bias && t.in ? p.bias[t.c] : 0, row_sum = 0;
    float sum = multiply_tile(p, t.row, t.column, &row_sum);
    if (t.in) finish(p, (int64_t)t.r * p.n + t.c, bias, sum);
    if (t.sums) p.sums[t.row + (int)threadIdx.x] = row_sum;
}

/* c's elements are parameters' gradients: the parameters are on their way while these are computed. */
template <int RULE>
__device__ void run_tile_and_update(const desk &d, product p, lki_cuda_small_update u, int piece)
{
    tile_place t = place_of(p, piece);
    int64_t at = p.c - u.data[1] + (int64_t)t.r * p.n + t.c,
            sums_at = p.sums - u.data[1] + t.row + (int)threadIdx.x;
    lki_cuda_element<float> e = {}, s = {};
    if (t.in) e = load_element(u, at);
    if (t.sums) s = load_element(u, sums_at);
    e.g = multiply_tile(p, t.row, t.column, &s.g);
    const numbers n = d.n[u.number];
    const bool skips = d.skip;
    if (t.in) u.data[1][at] = e.g;
    if (t.sums) u.data[1][sums_at] = s.g;
    if (skips) return;
    if (t.in) {
        lki_cuda_apply_rule<float, RULE>(n, e);
        store_element(u, at, e);
    }
    if (t.sums) {
        lki_cuda_apply_rule<float, RULE>(n, s);
        store_element(u, sums_at, s);
    }
}

__device__ void run_tiles(const desk &d, const product &p, int piece)
{
    if (p.update < 0) {
        run_tile(p, piece);
        return;
    }
    const lki_cuda_small_update &u = d.op[p.update].update;
    switch (u.rule) {
    case LK_UPDATE_SGD: run_tile_and_update<LK_UPDATE_SGD>(d, p, u, piece); break;
    case LK_UPDATE_ADAM: run_tile_and_update<LK_UPDATE_ADAM>(d, p, u, piece); break;
    case LK_UPDATE_ADAMW: run_tile_and_update<LK_UPDATE_ADAMW>(d, p, u, piece); break;
    case LK_UPDATE_RMSPROP: run_tile_and_update<LK_UPDATE_RMSPROP>(d, p, u, piece); break;
    default: run_tile_and_update<LK_UPDATE_ADAGRAD>(d, p, u, piece); break;
    }
}

} // namespace

#endif
