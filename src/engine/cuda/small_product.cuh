/* Products and updates inside the one kernel of a small step (small_kernel.cuh). */
#ifndef LKI_CUDA_SMALL_PRODUCT_CUH
#define LKI_CUDA_SMALL_PRODUCT_CUH

#include "engine/cuda/small.cuh"
#include "engine/cuda/update_rules.cuh"

namespace
{

constexpr int BLOCK = LKI_CUDA_SMALL_BLOCK, DEPTH = LKI_CUDA_SMALL_DEPTH, WARPS = BLOCK / 32,
              TILE = LKI_CUDA_SMALL_TILE, WIDE = LKI_CUDA_SMALL_WIDE, SIDE = LKI_CUDA_SMALL_SIDE,
              DOWN = LKI_CUDA_SMALL_DOWN, ACROSS = LKI_CUDA_SMALL_ACROSS;

using args = lki_cuda_small_args;
using product = lki_cuda_small_product;
using numbers = lki_cuda_numbers<float>;

/* What a kernel was compiled for: of usual steps most of what a body asks is known. -1: it has to look. */
template <int RULE_, int STATES_, int ROWS_, int LABELS_> struct facts {
    static constexpr int RULE = RULE_;           /* of all updates, */
    static constexpr int STATES = STATES_;       /* and how many states they have */
    static constexpr int ROWS = ROWS_;           /* how rows are converted, */
    static constexpr int LABELS = LABELS_;       /* and those that are tiny */
    static constexpr bool IS_PLAIN = RULE_ >= 0; /* a mean over i64 classes that weigh the same, unsmoothed */
};

/* What a block has at hand. */
struct desk { /* functions copy of it what they use more than once: it may be changed by any store */
    lki_cuda_small_op op[LKI_CUDA_SMALL_OPS];
    numbers n[LKI_CUDA_SMALL_UPDATES];          /* of the updates */
    uint64_t tiny[LKI_CUDA_MAX_GATHERS][BLOCK]; /* rows, as they lie in memory */
    double mass;                                /* of the loss, where its samples weigh the same */
    bool has_tiny;
    int skip; /* the loss is not finite: updates change nothing */
};

/* What ops have of shared memory beside it, each for itself. */
__device__ float *pool()
{
    extern __shared__ __align__(16) unsigned char memory[];
    return (float *)memory;
}

/* ---- Updates ---- */

/* What of an update its elements need. */
struct slices {
    float *data[5];
    int rule, number;
};

template <typename F> __device__ slices slices_of(const lki_cuda_small_update &u)
{
    slices s = {{u.data[0], u.data[1], u.data[2], u.data[3], u.data[4]}, u.rule, u.number};
    if (F::STATES >= 0)
        for (int k = F::STATES; k < 3; k++) s.data[2 + k] = NULL;
    if (F::RULE >= 0) s.rule = F::RULE;
    return s;
}

/* States that are absent are read as the parameter: loads that may be left out wait for one another. */
template <typename F> __device__ lki_cuda_element<float> load_element(const slices &u, int64_t i)
{
    lki_cuda_element<float> e = {u.data[0][i], 0, 0, 0, 0};
    if (F::STATES != 0) e.s0 = (u.data[2] ? u.data[2] : u.data[0])[i];
    if (F::STATES < 0 || F::STATES > 1) e.s1 = (u.data[3] ? u.data[3] : u.data[0])[i];
    if (F::STATES < 0 || F::STATES > 2) e.s2 = (u.data[4] ? u.data[4] : u.data[0])[i];
    return e;
}

__device__ void store_element(const slices &u, int64_t i, const lki_cuda_element<float> &e)
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

template <typename F>
__device__ void run_update(const desk &d, const lki_cuda_small_update &u, int block, int blocks)
{
    if (d.skip) return;
    const slices all = slices_of<F>(u);
    int thread = block * BLOCK + (int)threadIdx.x, threads = blocks * BLOCK;
    for (int r = 0; r < u.range_count; r++)
        for (int i = u.begin[r] + thread; i < u.end[r]; i += threads) {
            lki_cuda_element<float> e = load_element<F>(all, i);
            e.g = all.data[1][i];
            apply(d.n[all.number], all.rule, e);
            store_element(all, i, e);
        }
}

/* ---- Products ---- */

__device__ void finish(const product &p, int64_t at, float bias, float value)
{
    if (p.bias) value += bias;
    if (p.relu && value < 0) value = 0;
    p.c[at] = value;
}

template <typename F> __device__ void run_total(const args &a, desk &d, const lki_cuda_small_loss &o);

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

/* A row's, from piece `begin` of k to `end`: AHEAD pieces at a time, all their loads on their way before the
 * first is used. */
template <int R, int C, int AHEAD>
__device__ void dots_of_vectors(const float *const (&a)[R], const float *const (&b)[C], int begin, int end,
                                float (&acc)[R * C])
{
    for (int first = begin + (int)threadIdx.x % 32; first < end; first += 32 * AHEAD) {
        float4 left[AHEAD][R], right[AHEAD][C];
#pragma unroll
        for (int e = 0; e < AHEAD; e++) {
            int l = min(first + 32 * e, end - 1); /* what is read twice is not added */
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
                    acc[i * C + j] = first + 32 * e < end ? sum : acc[i * C + j];
                }
    }
}

/* A row of the first factor: in the batch, or where the batch has it from; rows beyond the last are the last,
 * and not stored. */
__device__ const float *left_row(const args &a, const product &p, int row)
{
    row = min(row, p.m - 1);
    if (p.gather < 0) return p.a + (int64_t)row * p.k;
    const lki_cuda_gather &g = a.news.gather[p.gather];
    return (const float *)g.stored + g.index[row] * p.k;
}

__device__ const float *right_row(const product &p, int column)
{
    return p.b + (int64_t)min(column, p.n - 1) * p.k;
}

/* Which of a warp's R by C elements of c this lane stores when they are summed. */
struct dots_place {
    int row, column;
    bool stores;
    float bias; /* before it is needed */
};

template <int R, int C> __device__ dots_place place_of_dots(const product &p, int row, int column, int step)
{
    constexpr int LANES = 32 / (R * C);
    int lane = (int)threadIdx.x % 32, number = lane / LANES;
    dots_place t = {row + number / C, column + number % C * step, false, 0};
    t.stores = lane % LANES == 0 && t.row < p.m && t.column < p.n;
    if (p.bias && t.stores) t.bias = p.bias[t.column];
    return t;
}

template <int COUNT> __device__ void store_dots(const product &p, const dots_place &t, float (&acc)[COUNT])
{
    float sum = sums_of(acc, (int)threadIdx.x % 32);
    if (t.stores) finish(p, (int64_t)t.row * p.n + t.column, t.bias, sum);
}

/* A warp's R by C elements of c. */
template <int R, int C, int AHEAD>
__device__ void dots(const args &all, const product &p, int row, int column, int step)
{
    const float *a[R], *b[C];
    float acc[R * C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) a[i] = left_row(all, p, row + i);
#pragma unroll
    for (int j = 0; j < C; j++) b[j] = right_row(p, column + j * step);
    dots_place t = place_of_dots<R, C>(p, row, column, step);
    if (p.k % 4 == 0 && (((uintptr_t)p.a | (uintptr_t)p.b) & 15) == 0)
        dots_of_vectors<R, C, AHEAD>(a, b, 0, p.k / 4, acc);
    else
        for (int l = (int)threadIdx.x % 32; l < p.k; l += 32)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) acc[i * C + j] = fmaf(a[i][l], b[j][l], acc[i * C + j]);
    store_dots(p, t, acc);
}

__device__ void run_dots_row(const args &a, product p, int piece)
{
    for (int column = (int)threadIdx.x / 32; column < p.n; column += 2 * WARPS)
        dots<1, 2, 8>(a, p, piece, column, WARPS);
}

__device__ void run_dots_tile(const args &a, product p, int piece)
{
    int across = (p.n + SIDE * ACROSS - 1) / (SIDE * ACROSS), warp = (int)threadIdx.x / 32;
    int row = (piece / across * DOWN + warp / ACROSS) * SIDE;
    int column = (piece % across * ACROSS + warp % ACROSS) * SIDE;
    if (row < p.m && column < p.n) dots<SIDE, SIDE, 4>(a, p, row, column, 1);
}

__device__ void run_row(product p, int piece)
{
    for (int column = (int)threadIdx.x; column < p.n; column += BLOCK) {
        const float *a = p.a + (int64_t)piece * p.a_row, *b = p.b + (int64_t)column * p.b_column;
        int64_t at = (int64_t)piece * p.n + column;
        float sum = 0, bias = p.bias ? p.bias[column] : 0, mask = p.masked ? p.mask[at] : 0;
#pragma unroll 8
        for (int l = 0; l < p.k; l++) sum = fmaf(a[(int64_t)l * p.a_column], b[(int64_t)l * p.b_row], sum);
        finish(p, at, bias, sum);
        if (p.masked) p.masked[at] = mask <= 0 ? 0 : sum;
    }
}

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
