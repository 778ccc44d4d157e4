/* Our own products: for small ones, where a launch must cost no more than two microseconds, for those that
 * wait for memory, and for all that cuBLASLt does not take. */
#include "engine/cuda/product.cuh"

constexpr int STEP = 32, PAD = 4; /* k of one tile; PAD keeps rows of a tile apart in the banks */

/* The sum is complete: bias, activation, store. */
template <typename T, typename A>
static __device__ void finish(const lki_cuda_factors &f, int64_t at, int64_t column, A value)
{
    if (f.bias) value += f.wide_bias ? ((const A *)f.bias)[column] : A(((const T *)f.bias)[column]);
    if (f.relu && value < A(0)) value = A(0);
    if (f.wide_c)
        ((A *)f.c)[at] = value;
    else
        ((T *)f.c)[at] = T(value);
}

template <typename T, typename A>
static __device__ void finish_sum(const lki_cuda_factors &f, int64_t row, A value)
{
    if (f.wide_sums)
        ((A *)f.sums)[row] = value;
    else
        ((T *)f.sums)[row] = T(value);
}

/* Where the matrices of one index of the leading axes begin. */
static __device__ void matrices_at(const lki_cuda_shape &s, int64_t index, int64_t *a, int64_t *b)
{
    *a = *b = 0;
    for (int i = s.axes - 1; i >= 0; i--) {
        int64_t at = index % s.dim[i];
        index /= s.dim[i];
        *a += at * s.a_step[i];
        *b += at * s.b_step[i];
    }
}

/* How a block's threads go through a TILE by STEP piece of a factor: neighbours in memory by neighbouring
 * threads. Element e of a thread lies at (i + e di, l + e dl), `step` behind the one before. */
struct walk {
    int i, l, di, dl;
    int64_t step;
};

template <int TILE, int THREADS> static __device__ walk walk_of(int64_t row_step, int64_t k_step)
{
    int t = (int)threadIdx.x;
    if (k_step == 1) return {t / STEP, t % STEP, THREADS / STEP, 0, THREADS / STEP * row_step};
    return {t % TILE, t / TILE, 0, THREADS / TILE, THREADS / TILE * k_step};
}

template <typename T, typename A, int PER>
static __device__ void fetch(A (&to)[PER], const T *from, const walk &w, int rows, int64_t depth)
{
    int deep = (int)min(depth, (int64_t)STEP);
#pragma unroll
    for (int e = 0; e < PER; e++)
        to[e] = w.i + e * w.di < rows && w.l + e * w.dl < deep ? A(from[e * w.step]) : A(0);
}

template <typename A, int TILE, int PER>
static __device__ void put(A (*tile)[TILE + PAD], const A (&from)[PER], const walk &w)
{
#pragma unroll
    for (int e = 0; e < PER; e++) tile[w.l + e * w.dl][w.i + e * w.di] = from[e];
}

/* One block computes a TILE by TILE piece of c over one range of k; a thread has ROWS by 4 of it, its columns
 * a quarter of the tile apart so that stores are contiguous. The next pieces are on their way while these are
 * multiplied. With several ranges the sums go to `partial`: c's for each range, then the rows' sums. */
template <typename T, typename A, int TILE, int THREADS>
static __global__ void __launch_bounds__(THREADS, sizeof(A) == 8 ? 1 : 640 / THREADS)
    tile_kernel(lki_cuda_shape s, lki_cuda_factors f, int64_t parts, int64_t span, A *partial)
{
    constexpr int ACROSS = TILE / 4, ROWS = TILE * TILE / THREADS / 4, PER = TILE * STEP / THREADS;
    __shared__ __align__(16) A a_tile[STEP][TILE + PAD];
    __shared__ __align__(16) A b_tile[STEP][TILE + PAD];
    int64_t across = (s.n + TILE - 1) / TILE, down = (s.m + TILE - 1) / TILE, block = blockIdx.x;
    int64_t column = block % across * TILE, row = block / across % down * TILE;
    int64_t part = block / across / down % parts, index = block / across / down / parts, a_at, b_at;
    matrices_at(s, index, &a_at, &b_at);
    int64_t k = part * span, k_end = min(k + span, s.k);
    walk a_walk = walk_of<TILE, THREADS>(s.a_row, s.a_column),
         b_walk = walk_of<TILE, THREADS>(s.b_column, s.b_row);
    const T *a = (const T *)f.a + a_at + (row + a_walk.i) * s.a_row + (k + a_walk.l) * s.a_column;
    const T *b = (const T *)f.b + b_at + (column + b_walk.i) * s.b_column + (k + b_walk.l) * s.b_row;
    int rows = (int)min(s.m - row, (int64_t)TILE), columns = (int)min(s.n - column, (int64_t)TILE);
    bool sums = f.sums && column == 0 && (int)threadIdx.x < TILE;

    A a_next[PER], b_next[PER], acc[ROWS][4] = {}, row_sum = 0;
    int x = (int)threadIdx.x % ACROSS, y = (int)threadIdx.x / ACROSS * ROWS;
    if (k < k_end) {
        fetch<T, A, PER>(a_next, a, a_walk, rows, k_end - k);
        fetch<T, A, PER>(b_next, b, b_walk, columns, k_end - k);
    }
    for (; k < k_end; k += STEP) {
        put<A, TILE, PER>(a_tile, a_next, a_walk);
        put<A, TILE, PER>(b_tile, b_next, b_walk);
        __syncthreads();
        if (k + STEP < k_end) {
            fetch<T, A, PER>(a_next, a += STEP * s.a_column, a_walk, rows, k_end - k - STEP);
            fetch<T, A, PER>(b_next, b += STEP * s.b_row, b_walk, columns, k_end - k - STEP);
        }
#pragma unroll 8
        for (int l = 0; l < STEP; l++) {
            A right[4];
#pragma unroll
            for (int j = 0; j < 4; j++) right[j] = b_tile[l][x + j * ACROSS];
#pragma unroll
            for (int i = 0; i < ROWS; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) acc[i][j] = fma(a_tile[l][y + i], right[j], acc[i][j]);
        }
        for (int l = 0; sums && l < STEP; l++) row_sum += a_tile[l][threadIdx.x];
        __syncthreads();
    }
    int64_t whole = s.batch * s.m * s.n;
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < 4; j++) {
            int64_t r = row + y + i, c = column + x + j * ACROSS;
            if (r >= s.m || c >= s.n || !f.c) continue;
            int64_t at = (index * s.m + r) * s.n + c;
            if (parts > 1)
                partial[part * whole + at] = acc[i][j];
            else
                finish<T, A>(f, at, c, acc[i][j]);
        }
    if (!sums || row + threadIdx.x >= s.m) return;
    if (parts > 1)
        partial[parts * whole + part * s.m + row + threadIdx.x] = row_sum;
    else
        finish_sum<T, A>(f, row + threadIdx.x, row_sum);
}

/* Adds the ranges up, always in the same order: 32 elements a block, 8 threads an element. */
template <typename T, typename A>
static __global__ void join_kernel(lki_cuda_shape s, lki_cuda_factors f, int64_t parts, const A *partial)
{
    __shared__ A sums[8][32];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int64_t whole = s.batch * s.m * s.n, at = blockIdx.x * (int64_t)32 + lane;
    bool is_sum = at >= whole, in = at < whole + (f.sums ? s.m : 0);
    const A *from = is_sum ? partial + parts * whole + (at - whole) : partial + at;
    int64_t step = is_sum ? s.m : whole;
    A sum = 0;
    if (in && (is_sum || f.c))
        for (int64_t p = group; p < parts; p += 8) sum += from[p * step];
    sums[group][lane] = sum;
    __syncthreads();
    if (group || !in) return;
    for (int g = 1; g < 8; g++) sum += sums[g][lane];
    if (is_sum)
        finish_sum<T, A>(f, at - whole, sum);
    else if (f.c)
        finish<T, A>(f, at, at % s.n, sum);
}

static int64_t tiles_of(const lki_cuda_shape *s, int64_t tile)
{
    return s->batch * ((s->m + tile - 1) / tile) * ((s->n + tile - 1) / tile);
}

/* Large tiles where they keep every processor busy; ranges of k where even small ones do not. */
void lki_cuda_plan_tiles(const lki_cuda *cuda, lki_cuda_product *product, bool with_sums,
                         size_t *scratch_nbytes)
{
    const lki_cuda_shape *s = &product->shape;
    product->tile = tiles_of(s, 64) >= 2 * cuda->processor_count ? 64 : 32;
    int64_t tiles = tiles_of(s, product->tile), parts = 1;
    if (tiles > 0 && tiles < cuda->processor_count && s->k >= 256) {
        parts = 4 * (int64_t)cuda->processor_count / tiles;
        if (parts > s->k / 128) parts = s->k / 128;
    }
    int64_t span = (s->k + parts - 1) / parts;
    product->span = span < STEP ? STEP : (span + STEP - 1) / STEP * STEP;
    product->parts = s->k > 0 ? (s->k + product->span - 1) / product->span : 1;
    size_t wide = product->dtype == LK_F64 ? sizeof(double) : sizeof(float);
    int64_t elements = s->batch * s->m * s->n + (with_sums ? s->m : 0);
    *scratch_nbytes = product->parts > 1 ? (size_t)(product->parts * elements) * wide : 0;
}

template <typename T>
static void launch_tiles(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors &f, void *scratch)
{
    using A = typename lki_cuda_wide<T>::type;
    const lki_cuda_shape &s = p->shape;
    unsigned blocks = (unsigned)(tiles_of(&s, p->tile) * p->parts);
    if (p->tile == 64)
        tile_kernel<T, A, 64, 256><<<blocks, 256, 0, cuda->compute>>>(s, f, p->parts, p->span, (A *)scratch);
    else
        tile_kernel<T, A, 32, 128><<<blocks, 128, 0, cuda->compute>>>(s, f, p->parts, p->span, (A *)scratch);
    if (p->parts <= 1) return;
    int64_t elements = s.batch * s.m * s.n + (f.sums ? s.m : 0);
    join_kernel<T, A>
        <<<(unsigned)((elements + 31) / 32), 256, 0, cuda->compute>>>(s, f, p->parts, (const A *)scratch);
}

/* A part of c nobody asks for may still hide rows whose sums are wanted: n = 0 with sums. */
static lk_status run_sums(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f)
{
    return f->sums && p->shape.m > 0 ? lki_cuda_finish_product(cuda, p, f, false, true) : LK_OK;
}

lk_status lki_cuda_run_tiles(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f,
                             void *scratch)
{
    int64_t tiles = tiles_of(&p->shape, p->tile);
    if (tiles == 0 || !f->c) return run_sums(cuda, p, f);
    if (tiles * p->parts > INT32_MAX)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for products of %lld tiles",
                             (long long)tiles);
    LKI_CUDA_FLOAT_SWITCH(p->dtype, T, launch_tiles<T>(cuda, p, *f, scratch));
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- Dot products: short rows of f32, a warp for R by C of them ---- */

template <int VECTOR> struct piece;
template <> struct piece<1> {
    float x;
    __device__ static float dot(piece a, piece b, float sum)
    {
        return fmaf(a.x, b.x, sum);
    }
};
template <> struct __align__(16) piece<4>
{
    float x, y, z, w;
    __device__ static float dot(piece a, piece b, float sum)
    {
        return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
    }
};

/* Rows beyond the last are read as the last, and not stored. */
template <int VECTOR, int R, int C, int UNROLL>
static __global__ void __launch_bounds__(128) dots_kernel(lki_cuda_shape s, lki_cuda_factors f)
{
    using P = piece<VECTOR>;
    int64_t warp = (blockIdx.x * (int64_t)128 + threadIdx.x) / 32, across = (s.n + C - 1) / C;
    int lane = (int)threadIdx.x % 32;
    int64_t row = warp / across * R, column = warp % across * C, pieces = s.k / VECTOR;
    if (row >= s.m) return;
    const P *a[R], *b[C];
#pragma unroll
    for (int i = 0; i < R; i++) a[i] = (const P *)((const float *)f.a + min(row + i, s.m - 1) * s.k);
#pragma unroll
    for (int j = 0; j < C; j++) b[j] = (const P *)((const float *)f.b + min(column + j, s.n - 1) * s.k);
    float acc[R][C] = {};
#pragma unroll UNROLL
    for (int64_t l = lane; l < pieces; l += 32) {
        P left[R], right[C];
#pragma unroll
        for (int i = 0; i < R; i++) left[i] = a[i][l];
#pragma unroll
        for (int j = 0; j < C; j++) right[j] = b[j][l];
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < C; j++) acc[i][j] = P::dot(left[i], right[j], acc[i][j]);
    }
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < C; j++) {
            float sum = acc[i][j];
            for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
            if (lane == i * C + j && row + i < s.m && column + j < s.n)
                finish<float, float>(f, (row + i) * s.n + column + j, column + j, sum);
        }
}

template <int VECTOR, int SIDE, int UNROLL>
static void launch_dots(lki_cuda *cuda, const lki_cuda_shape *s, const lki_cuda_factors *f)
{
    int64_t warps = (s->m + SIDE - 1) / SIDE * ((s->n + SIDE - 1) / SIDE);
    dots_kernel<VECTOR, SIDE, SIDE, UNROLL><<<(unsigned)((warps + 3) / 4), 128, 0, cuda->compute>>>(*s, *f);
}

template <int VECTOR>
static void pick_dots(lki_cuda *cuda, const lki_cuda_shape *s, const lki_cuda_factors *f)
{
    int64_t most = 4 * (int64_t)cuda->processor_count; /* warps that run at their best at once */
    if (s->m * s->n >= 16 * most)
        launch_dots<VECTOR, 4, 1>(cuda, s, f);
    else if (s->m * s->n >= 4 * most)
        launch_dots<VECTOR, 2, 2>(cuda, s, f);
    else
        launch_dots<VECTOR, 1, 8>(cuda, s, f);
}

lk_status lki_cuda_run_dots(lki_cuda *cuda, const lki_cuda_shape *s, const lki_cuda_factors *f)
{
    if (s->m * s->n == 0) return LK_OK;
    if (s->k % 4 == 0 && (((uintptr_t)f->a | (uintptr_t)f->b) & 15) == 0)
        pick_dots<4>(cuda, s, f);
    else
        pick_dots<1>(cuda, s, f);
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- What cuBLASLt needs and leaves ---- */

template <typename T> static __global__ void narrow_kernel(const void *bias, T *to, int64_t n)
{
    int64_t j = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (j < n) to[j] = T(((const typename lki_cuda_wide<T>::type *)bias)[j]);
}

lk_status lki_cuda_narrow_bias(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f, void *to)
{
    int64_t n = p->shape.n;
    unsigned blocks = (unsigned)((n + LKI_CUDA_BLOCK - 1) / LKI_CUDA_BLOCK);
    LKI_CUDA_FLOAT_SWITCH(
        p->dtype, T, (narrow_kernel<T><<<blocks, LKI_CUDA_BLOCK, 0, cuda->compute>>>(f->bias, (T *)to, n)));
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> static __global__ void bias_kernel(lki_cuda_factors f, int64_t count, int64_t n)
{
    using A = typename lki_cuda_wide<T>::type;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        finish<T, A>(f, i, i % n, f.wide_c ? ((const A *)f.c)[i] : A(((const T *)f.c)[i]));
}

/* sums[i] = the sum over l of a(i, l): 32 rows a block, 32 threads each. */
template <typename T>
static __global__ void __launch_bounds__(1024) sums_kernel(lki_cuda_shape s, lki_cuda_factors f)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ A sums[32][33];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int64_t row = blockIdx.x * (int64_t)32 + lane;
    A sum = 0;
    if (row < s.m)
        for (int64_t l = group; l < s.k; l += 32) sum += A(((const T *)f.a)[row * s.a_row + l * s.a_column]);
    sums[group][lane] = sum;
    __syncthreads();
    sum = sums[lane][group]; /* turned: a warp adds one row's */
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    row = blockIdx.x * (int64_t)32 + group;
    if (lane == 0 && row < s.m) finish_sum<T, A>(f, row, sum);
}

lk_status lki_cuda_finish_product(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f,
                                  bool bias_and_relu, bool sums)
{
    const lki_cuda_shape &s = p->shape;
    int64_t count = s.batch * s.m * s.n;
    if (bias_and_relu && count > 0)
        LKI_CUDA_FLOAT_SWITCH(
            p->dtype, T,
            (bias_kernel<T>
             <<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(*f, count, s.n)));
    if (sums && s.m > 0)
        LKI_CUDA_FLOAT_SWITCH(
            p->dtype, T, (sums_kernel<T><<<(unsigned)((s.m + 31) / 32), 1024, 0, cuda->compute>>>(s, *f)));
    LKI_LAUNCHED();
    return LK_OK;
}
