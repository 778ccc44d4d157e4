/* Products by tiles inside the one kernel of a small step (small_kernel.cuh), with the updates that their
 * results are the gradients of. */
#ifndef LKI_CUDA_SMALL_SMALL_TILE_CUH
#define LKI_CUDA_SMALL_SMALL_TILE_CUH

#include "engine/cuda/small/small_product.cuh"

namespace
{

template <typename F> __device__ void run_total(const args &a, desk &d, const lki_cuda_small_loss &o);

/* Tiles of SIDE by SIDE: a thread has OWN neighbours of a column, and DEPTH of k are at hand at once. */
template <int SIDE> constexpr int OWN = SIDE *SIDE / BLOCK;
template <int SIDE, int DEPTH> constexpr int PER = SIDE *DEPTH / BLOCK;
template <int SIDE> using neighbours = lki_cuda_pack<float, OWN<SIDE>>;

/* A SIDE by DEPTH piece of a factor: neighbours in memory by neighbouring threads, whose elements are each as
 * far from the last. */
template <int SIDE, int DEPTH> struct tile_walk {
    int i, l, i_step, l_step;
    __device__ explicit tile_walk(int k_step)
    {
        int t = (int)threadIdx.x;
        bool along = k_step == 1;
        i = along ? t / DEPTH : t % SIDE;
        l = along ? t % DEPTH : t / SIDE;
        i_step = along ? BLOCK / DEPTH : 0;
        l_step = along ? 0 : BLOCK / SIDE;
    }
};

/* What lies beyond the factor is read as its last, and put as 0: loads that may be left out wait for one
 * another. */
template <int SIDE, int DEPTH>
__device__ void fetch_tile(float (&to)[PER<SIDE, DEPTH>], const float *from, int rows, int depth,
                           int row_step, int k_step)
{
    const tile_walk<SIDE, DEPTH> w(k_step);
#pragma unroll
    for (int e = 0; e < PER<SIDE, DEPTH>; e++) {
        int i = min(w.i + e * w.i_step, rows - 1), l = min(w.l + e * w.l_step, depth - 1);
        to[e] = from[i * row_step + l * k_step];
    }
}

template <int SIDE, int DEPTH, int STRIDE>
__device__ void put_tile(float *tile, const float (&from)[PER<SIDE, DEPTH>], int rows, int depth, int k_step)
{
    const tile_walk<SIDE, DEPTH> w(k_step);
    int at = w.l * STRIDE + w.i, step = w.l_step * STRIDE + w.i_step;
#pragma unroll
    for (int e = 0; e < PER<SIDE, DEPTH>; e++) {
        bool in = w.i + e * w.i_step < rows && w.l + e * w.l_step < depth;
        tile[at + e * step] = in ? from[e] : 0;
    }
}

/* What a thread has of a tile: its elements, and where the sums of rows are wanted one of those. */
template <int SIDE> struct tile_sums {
    float own[OWN<SIDE>], row;
};

/* What is to be done while the first pieces of a tile come: the loss's sum. */
struct errand {
    const args *a;
    desk *d;
    const lki_cuda_small_loss *total; /* NULL: nothing */
};

/* The next pieces are on their way while these are multiplied. */
template <typename F, int SIDE, int DEPTH>
__device__ tile_sums<SIDE> multiply_tile(const product &p, int row, int column, const errand &e)
{
    constexpr int LEFT = SIDE + 4,
                  RIGHT = SIDE + 1; /* four neighbours are one load; and apart in the banks */
    tile_sums<SIDE> sum = {};
    float *left = pool(), *right = left + DEPTH * LEFT;
    int x = (int)threadIdx.x % SIDE, y = (int)threadIdx.x / SIDE * OWN<SIDE>;
    bool sums = p.sums && column == 0 && (int)threadIdx.x < SIDE;
    const float *a = p.a + (int64_t)row * p.a_row, *b = p.b + (int64_t)column * p.b_column;
    float a_next[PER<SIDE, DEPTH>], b_next[PER<SIDE, DEPTH>];
    fetch_tile<SIDE, DEPTH>(a_next, a, p.m - row, p.k, p.a_row, p.a_column);
    fetch_tile<SIDE, DEPTH>(b_next, b, p.n - column, p.k, p.b_column, p.b_row);
    if (e.total) run_total<F>(*e.a, *e.d, *e.total);
    for (int k = 0; k < p.k; k += DEPTH) {
        __syncthreads(); /* the last ones have been used */
        put_tile<SIDE, DEPTH, LEFT>(left, a_next, p.m - row, p.k - k, p.a_column);
        put_tile<SIDE, DEPTH, RIGHT>(right, b_next, p.n - column, p.k - k, p.b_row);
        __syncthreads();
        a += (int64_t)DEPTH * p.a_column;
        b += (int64_t)DEPTH * p.b_row;
        if (k + DEPTH < p.k) {
            fetch_tile<SIDE, DEPTH>(a_next, a, p.m - row, p.k - k - DEPTH, p.a_row, p.a_column);
            fetch_tile<SIDE, DEPTH>(b_next, b, p.n - column, p.k - k - DEPTH, p.b_column, p.b_row);
        }
        int depth = min((p.k - k + 7) / 8 * 8, DEPTH);
#pragma unroll 8
        for (int l = 0; l < depth; l++) {
            const neighbours<SIDE> a_own = *(const neighbours<SIDE> *)&left[l * LEFT + y];
            const float b_own = right[l * RIGHT + x];
#pragma unroll
            for (int j = 0; j < OWN<SIDE>; j++) sum.own[j] = fmaf(a_own.at[j], b_own, sum.own[j]);
            if (sums) sum.row += left[l * LEFT + (int)threadIdx.x];
        }
    }
    return sum;
}

/* Tiles of a short k take less of everything. */
template <typename F, int SIDE>
__device__ tile_sums<SIDE> tile_of(const product &p, int row, int column, const errand &e)
{
    constexpr int SHORT = SIDE == TILE ? DEPTH / 4 : DEPTH;
    if (p.k <= SHORT) return multiply_tile<F, SIDE, SHORT>(p, row, column, e);
    return multiply_tile<F, SIDE, DEPTH>(p, row, column, e);
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
    t.r = t.row + (int)threadIdx.x / SIDE * OWN<SIDE>;
    t.c = t.column + (int)threadIdx.x % SIDE;
    t.sums = p.sums && t.column == 0 && (int)threadIdx.x < SIDE && t.row + (int)threadIdx.x < p.m;
    return t;
}

/* A thread's parameters: those of its elements, and of a row's sum. */
template <int SIDE> struct tile_params {
    int64_t at, step, sums_at;
    int count;
    bool sums;
    lki_cuda_element<float> own[OWN<SIDE>], row;
};

template <typename F, int SIDE>
__device__ tile_params<SIDE> load_params(const product &p, const slices &u, const tile_place &t)
{
    tile_params<SIDE> e = {};
    e.at = p.c - u.data[1] + (int64_t)t.r * p.n + t.c;
    e.step = p.n;
    e.sums_at = p.sums - u.data[1] + t.row + (int)threadIdx.x;
    e.count = t.c < p.n ? max(min(p.m - t.r, OWN<SIDE>), 0) : 0;
    e.sums = t.sums;
#pragma unroll
    for (int j = 0; j < OWN<SIDE>; j++)
        e.own[j] = load_element<F>(u, e.count ? e.at + min(j, e.count - 1) * e.step : 0);
    if (p.sums && t.column == 0) e.row = load_element<F>(u, e.sums ? e.sums_at : 0);
    return e;
}

/* c's elements are parameters' gradients. */
template <int RULE, int SIDE>
__device__ void update_tile(const numbers &n, bool skips, const slices &u, tile_params<SIDE> &e,
                            const tile_sums<SIDE> &sum)
{
#pragma unroll
    for (int j = 0; j < OWN<SIDE>; j++) {
        if (j >= e.count) continue;
        int64_t at = e.at + j * e.step;
        u.data[1][at] = e.own[j].g = sum.own[j];
        if (skips) continue;
        lki_cuda_apply_rule<float, RULE>(n, e.own[j]);
        store_element(u, at, e.own[j]);
    }
    if (!e.sums) return;
    u.data[1][e.sums_at] = e.row.g = sum.row;
    if (skips) return;
    lki_cuda_apply_rule<float, RULE>(n, e.row);
    store_element(u, e.sums_at, e.row);
}

template <typename F, int SIDE>
__device__ void update_by_rule(const desk &d, const slices &u, tile_params<SIDE> &e,
                               const tile_sums<SIDE> &sum)
{
    numbers n = d.n[u.number];
    if (F::RULE == LK_UPDATE_SGD && F::STATES == 0) n.momentum = 0;
    if (F::STATES >= 0 && F::STATES < 3) n.amsgrad = n.centered = false;
    const bool skips = d.skip;
    switch (u.rule) {
    case LK_UPDATE_SGD: update_tile<LK_UPDATE_SGD>(n, skips, u, e, sum); break;
    case LK_UPDATE_ADAM: update_tile<LK_UPDATE_ADAM>(n, skips, u, e, sum); break;
    case LK_UPDATE_ADAMW: update_tile<LK_UPDATE_ADAMW>(n, skips, u, e, sum); break;
    case LK_UPDATE_RMSPROP: update_tile<LK_UPDATE_RMSPROP>(n, skips, u, e, sum); break;
    default: update_tile<LK_UPDATE_ADAGRAD>(n, skips, u, e, sum); break;
    }
}

template <int SIDE>
__device__ void store_tile(const product &p, const tile_place &t, float bias, const tile_sums<SIDE> &sum)
{
#pragma unroll
    for (int j = 0; j < OWN<SIDE>; j++)
        if (t.r + j < p.m && t.c < p.n) finish(p, (int64_t)(t.r + j) * p.n + t.c, bias, sum.own[j]);
    if (t.sums) p.sums[t.row + (int)threadIdx.x] = sum.row;
}

/* What is needed at the end is on its way while the tile is computed. */
template <typename F, int SIDE>
__device__ void run_tile(const desk &d, product p, int piece, const errand &errands)
{
    const tile_place t = place_of<SIDE>(p, piece);
    const slices u = p.update < 0 ? slices{} : slices_of<F>(d.op[p.update].update);
    tile_params<SIDE> params = {};
    if (p.update >= 0) params = load_params<F, SIDE>(p, u, t);
    float bias = p.bias && t.c < p.n ? p.bias[t.c] : 0;
    const tile_sums<SIDE> sum = tile_of<F, SIDE>(p, t.row, t.column, errands);
    if (p.update < 0)
        store_tile<SIDE>(p, t, bias, sum);
    else
        update_by_rule<F, SIDE>(d, u, params, sum);
}

template <typename F> __device__ void run_tiles(const desk &d, const product &p, int piece, const errand &e)
{
    if (lki_cuda_tile_side(p.m, p.n) == WIDE)
        run_tile<F, WIDE>(d, p, piece, e);
    else
        run_tile<F, TILE>(d, p, piece, e);
}

} // namespace

#endif
