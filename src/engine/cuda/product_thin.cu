/* Products in f32 with a short side of at most 32: a layer of few inputs and very many outputs, forward and
 * backward. They wait for memory, so each long operand is read once, and the short side is held in registers,
 * where a number that was loaded serves several multiplications.
 *
 *     THIN_OUT    c (m, n) = a (m, k) b (n, k) turned, k short, n long
 *     THIN_WEIGHT c (m, n) = a (k, m) turned b (k, n), n short, m long
 *     THIN_IN     c (m, n) = a (m, k) b (k, n), n short, k long
 *     TINY        any of few elements and a short k: a thread an element, and nothing to wait for twice
 *
 * SIDE is the short side made full with zeros; rows of SIDE lie SIDE + 4 apart in shared memory, so that
 * eight threads that read 16 bytes of eight rows meet eight different banks. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/product.cuh"

enum { MOST_SIDE = 32, LONG = 1024, PER_THREAD = 4 };

static __device__ float4 load4(const float *from)
{
    return *(const float4 *)from;
}

static __device__ float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* `count` rows of `side` numbers, back to back, from memory to shared memory; THREADS threads. */
template <int SIDE, int STEP, int THREADS, int ROWS>
static __device__ void stage_rows(float (*to)[STEP], const float *from, int count, int side)
{
    for (int i = (int)threadIdx.x; i < ROWS * (SIDE / 4); i += THREADS) {
        int row = i / (SIDE / 4), at = i % (SIDE / 4) * 4;
        bool in = row < count && at < side;
        *(float4 *)&to[row][at] = in ? load4(from + (int64_t)row * side + at) : make_float4(0, 0, 0, 0);
    }
}

/* ---- Forward ---- */

enum { OUT_THREADS = 128, OUT_ROWS = 32 };
/* Blocks along the second axis of a grid. */
static const int64_t MOST_GRID_Y = 65535;

/* A block has OUT_ROWS rows of c and COLUMNS times OUT_THREADS columns; a thread the columns t, t +
 * OUT_THREADS ..., whose factors it holds. */
template <int SIDE, int COLUMNS>
static __global__ void __launch_bounds__(OUT_THREADS) out_kernel(lki_cuda_shape s, lki_cuda_factors f)
{
    __shared__ __align__(16) float a[OUT_ROWS][SIDE];
    __shared__ __align__(16) float staged[OUT_THREADS][SIDE + 4];
    int k = (int)s.k, t = (int)threadIdx.x;
    int64_t first = blockIdx.x * (int64_t)(OUT_THREADS * COLUMNS), row = blockIdx.y * (int64_t)OUT_ROWS;
    int rows = (int)min(s.m - row, (int64_t)OUT_ROWS);
    float4 b[COLUMNS][SIDE / 4]; /* at first the thread's share of what lies side by side in memory */
    float bias[COLUMNS];
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) {
        int64_t column = first + j * OUT_THREADS;
        bias[j] = f.bias && column + t < s.n ? ((const float *)f.bias)[column + t] : 0.0f;
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++) {
            int i = t + q * OUT_THREADS, r = i / (SIDE / 4), at = i % (SIDE / 4) * 4;
            bool in = column + r < s.n && at < k;
            b[j][q] = in ? load4((const float *)f.b + (column + r) * k + at) : make_float4(0, 0, 0, 0);
        }
    }
    stage_rows<SIDE, SIDE, OUT_THREADS, OUT_ROWS>(a, (const float *)f.a + row * k, rows, k);
#pragma unroll
    for (int j = 0; j < COLUMNS; j++) { /* then its own column, by way of shared memory */
        __syncthreads();
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++) {
            int i = t + q * OUT_THREADS;
            *(float4 *)&staged[i / (SIDE / 4)][i % (SIDE / 4) * 4] = b[j][q];
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++) b[j][q] = load4(&staged[t][4 * q]);
    }
    float *c = (float *)f.c + row * s.n + first + t;
#pragma unroll 2
    for (int i = 0; i < rows; i++, c += s.n) {
        float sum[COLUMNS] = {};
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++) {
            float4 left = load4(&a[i][4 * q]);
#pragma unroll
            for (int j = 0; j < COLUMNS; j++) sum[j] = dot4(left, b[j][q], sum[j]);
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; j++) {
            float value = sum[j] + bias[j];
            if (f.relu && value < 0) value = 0;
            if (first + j * OUT_THREADS + t < s.n) c[j * OUT_THREADS] = value;
        }
    }
}

/* ---- The weight's gradient ---- */

enum { WEIGHT_THREADS = 64, WEIGHT_DEPTH = 64, WEIGHT_ROWS = 2 };

/* Rows of a that are on their way: what a thread of several columns has of them hides the way to memory. */
template <int ROWS> constexpr int AHEAD = ROWS == 1 ? 8 : 16;

/* The next AHEAD rows of a, at the thread's places. */
template <int ROWS>
static __device__ void fetch_ahead(float (&to)[AHEAD<ROWS>][ROWS], const float *from, int64_t m, int depth,
                                   int64_t left)
{
#pragma unroll
    for (int l = 0; l < AHEAD<ROWS>; l++)
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            to[l][j] =
                l < depth && j * WEIGHT_THREADS < left ? from[l * m + (int64_t)j * WEIGHT_THREADS] : 0.0f;
}

template <int SIDE, int ROWS>
static __device__ void add_ahead(float (&sum)[ROWS][SIDE], float (&row_sum)[ROWS],
                                 const float (&a)[AHEAD<ROWS>][ROWS], const float (*b)[SIDE])
{
#pragma unroll
    for (int l = 0; l < AHEAD<ROWS>; l++) {
#pragma unroll
        for (int j = 0; j < ROWS; j++) row_sum[j] += a[l][j];
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++) {
            float4 right = load4(&b[l][4 * q]);
#pragma unroll
            for (int j = 0; j < ROWS; j++) {
                sum[j][4 * q] = fmaf(a[l][j], right.x, sum[j][4 * q]);
                sum[j][4 * q + 1] = fmaf(a[l][j], right.y, sum[j][4 * q + 1]);
                sum[j][4 * q + 2] = fmaf(a[l][j], right.z, sum[j][4 * q + 2]);
                sum[j][4 * q + 3] = fmaf(a[l][j], right.w, sum[j][4 * q + 3]);
            }
        }
    }
}

/* A block has ROWS times WEIGHT_THREADS rows of c, a thread the rows t, t + WEIGHT_THREADS ...; a is read
 * AHEAD rows at a time. */
template <int SIDE, int ROWS>
static __global__ void __launch_bounds__(WEIGHT_THREADS) weight_kernel(lki_cuda_shape s, lki_cuda_factors f)
{
    constexpr int STEP = AHEAD<ROWS>;
    __shared__ __align__(16) float b[WEIGHT_DEPTH][SIDE];
    __shared__ __align__(16) float staged[WEIGHT_THREADS][SIDE + 4];
    int n = (int)s.n, t = (int)threadIdx.x;
    int64_t first = blockIdx.x * (int64_t)(WEIGHT_THREADS * ROWS), left = s.m - first - t;
    const float *a = (const float *)f.a + first + t;
    float sum[ROWS][SIDE] = {}, row_sum[ROWS] = {};
    for (int64_t l = 0; l < s.k; l += WEIGHT_DEPTH) {
        int depth = (int)min(s.k - l, (int64_t)WEIGHT_DEPTH);
        __syncthreads();
        stage_rows<SIDE, SIDE, WEIGHT_THREADS, WEIGHT_DEPTH>(b, (const float *)f.b + l * n, depth, n);
        __syncthreads();
        float now[STEP][ROWS], next[STEP][ROWS];
        fetch_ahead<ROWS>(next, a + l * s.m, s.m, depth, left);
        for (int i = 0; i < depth; i += STEP) {
#pragma unroll
            for (int e = 0; e < STEP * ROWS; e++) now[e / ROWS][e % ROWS] = next[e / ROWS][e % ROWS];
            if (i + STEP < depth)
                fetch_ahead<ROWS>(next, a + (l + i + STEP) * s.m, s.m, depth - i - STEP, left);
            add_ahead<SIDE, ROWS>(sum, row_sum, now, &b[i]);
        }
    }
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        int64_t row = first + j * WEIGHT_THREADS;
        int count = (int)max((int64_t)0, min(s.m - row, (int64_t)WEIGHT_THREADS));
        if (f.sums && t < count) ((float *)f.sums)[row + t] = row_sum[j];
        __syncthreads();
#pragma unroll
        for (int q = 0; q < SIDE / 4; q++)
            *(float4 *)&staged[t][4 * q] =
                make_float4(sum[j][4 * q], sum[j][4 * q + 1], sum[j][4 * q + 2], sum[j][4 * q + 3]);
        __syncthreads();
        for (int i = t; i < count * (n / 4); i += WEIGHT_THREADS)
            *(float4 *)((float *)f.c + row * n + 4 * i) = load4(&staged[i / (n / 4)][i % (n / 4) * 4]);
    }
}

/* ---- The input's gradient ---- */

enum { IN_THREADS = 128, IN_DEPTH = 64, IN_STEP = IN_DEPTH + 4, IN_WARPS = IN_THREADS / 32 };

/* The pieces of both factors that a thread carries to shared memory. */
template <int ROWS, int SIDE> struct pieces {
    float4 a[ROWS * 8 * IN_DEPTH / 4 / IN_THREADS], b[IN_DEPTH * SIDE / 4 / IN_THREADS];
};

template <int ROWS, int SIDE>
static __device__ void fetch_pieces(pieces<ROWS, SIDE> &to, const lki_cuda_shape &s,
                                    const lki_cuda_factors &f, int64_t row, int64_t k)
{
    constexpr int A = ROWS * 8 * IN_DEPTH / 4 / IN_THREADS, B = IN_DEPTH * SIDE / 4 / IN_THREADS;
    float4 zero = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int e = 0; e < A; e++) {
        int i = (int)threadIdx.x + e * IN_THREADS, r = i / (IN_DEPTH / 4), l = i % (IN_DEPTH / 4) * 4;
        bool in = row + r < s.m && k + l < s.k;
        to.a[e] = in ? load4((const float *)f.a + (row + r) * s.k + k + l) : zero;
    }
#pragma unroll
    for (int e = 0; e < B; e++) {
        int i = (int)threadIdx.x + e * IN_THREADS, l = i / (SIDE / 4), at = i % (SIDE / 4) * 4;
        bool in = k + l < s.k && at < (int)s.n;
        to.b[e] = in ? load4((const float *)f.b + (k + l) * s.n + at) : zero;
    }
}

template <int ROWS, int SIDE>
static __device__ void put_pieces(const pieces<ROWS, SIDE> &from, float *a, float *b)
{
    constexpr int A = ROWS * 8 * IN_DEPTH / 4 / IN_THREADS, B = IN_DEPTH * SIDE / 4 / IN_THREADS;
#pragma unroll
    for (int e = 0; e < A; e++) {
        int i = (int)threadIdx.x + e * IN_THREADS, r = i / (IN_DEPTH / 4), l = i % (IN_DEPTH / 4) * 4;
        *(float4 *)&a[r * IN_STEP + l] = from.a[e];
    }
#pragma unroll
    for (int e = 0; e < B; e++) *(float4 *)&b[4 * ((int)threadIdx.x + e * IN_THREADS)] = from.b[e];
}

/* The warp's sixteen k of a piece: a lane has the rows y, y + 8 ... and COLUMNS columns. */
template <int ROWS, int SIDE>
static __device__ void add_piece(float (&sum)[ROWS][SIDE / 4], const float *a, const float *b, int x, int y)
{
    constexpr int COLUMNS = SIDE / 4;
#pragma unroll
    for (int l = 0; l < IN_DEPTH / IN_WARPS; l += 4) {
        float4 left[ROWS];
#pragma unroll
        for (int i = 0; i < ROWS; i++) left[i] = load4(&a[(y + 8 * i) * IN_STEP + l]);
#pragma unroll
        for (int e = 0; e < 4; e++) {
            float right[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS; j += 2) {
                float2 two = *(const float2 *)&b[(l + e) * SIDE + x * COLUMNS + j];
                right[j] = two.x;
                right[j + 1] = two.y;
            }
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                float value = e == 0 ? left[i].x : e == 1 ? left[i].y : e == 2 ? left[i].z : left[i].w;
#pragma unroll
                for (int j = 0; j < COLUMNS; j++) sum[i][j] = fmaf(value, right[j], sum[i][j]);
            }
        }
    }
}

/* A block has 8 ROWS rows of c and one range of k; its warps share the k of each piece and add up their sums
 * at the end. The ranges are joined by a second launch. */
template <int ROWS, int SIDE>
static __global__ void __launch_bounds__(IN_THREADS)
    in_kernel(lki_cuda_shape s, lki_cuda_factors f, int64_t span, float *partial)
{
    constexpr int COLUMNS = SIDE / 4, TILE = 8 * ROWS * SIDE, PIECES = 8 * ROWS * IN_STEP + IN_DEPTH * SIDE;
    __shared__ __align__(16) float shared[PIECES > IN_WARPS * TILE ? PIECES : IN_WARPS * TILE];
    float *a = shared, *b = shared + 8 * ROWS * IN_STEP;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, x = lane % 4, y = lane / 4;
    int64_t row = blockIdx.y * (int64_t)(8 * ROWS), k = blockIdx.x * span, end = min(k + span, s.k);
    float sum[ROWS][COLUMNS] = {};
    pieces<ROWS, SIDE> next;
    if (k < end) fetch_pieces<ROWS, SIDE>(next, s, f, row, k);
    for (; k < end; k += IN_DEPTH) {
        __syncthreads();
        put_pieces<ROWS, SIDE>(next, a, b);
        __syncthreads();
        if (k + IN_DEPTH < end) fetch_pieces<ROWS, SIDE>(next, s, f, row, k + IN_DEPTH);
        int part = warp * (IN_DEPTH / IN_WARPS);
        add_piece<ROWS, SIDE>(sum, a + part, b + part * SIDE, x, y);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            shared[warp * TILE + (y + 8 * i) * SIDE + x * COLUMNS + j] = sum[i][j];
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE; i += IN_THREADS) {
        float total = shared[i];
        for (int w = 1; w < IN_WARPS; w++) total += shared[w * TILE + i];
        int64_t r = row + i / SIDE, column = i % SIDE;
        if (r < s.m && column < s.n) partial[(blockIdx.x * s.m + r) * s.n + column] = total;
    }
}

/* Adds the ranges up, always in the same order: 16 elements a block, 16 threads an element. */
static __global__ void __launch_bounds__(256)
    in_join_kernel(int64_t count, float *c, int parts, const float *partial)
{
    __shared__ float sums[16][17];
    int lane = (int)threadIdx.x % 16, group = (int)threadIdx.x / 16;
    int64_t at = blockIdx.x * (int64_t)16 + lane;
    float sum = 0;
    if (at < count)
#pragma unroll 4
        for (int p = group; p < parts; p += 16) sum += partial[p * count + at];
    sums[group][lane] = sum;
    __syncthreads();
    if (group || at >= count) return;
    for (int g = 1; g < 16; g++) sum += sums[g][lane];
    c[at] = sum;
}

/* ---- Few elements ---- */

enum { TINY_THREADS = 128, TINY_K = 64, TINY_ELEMENTS = 2048, TINY_AHEAD = 16 };

/* The threads of the first column also add up their row of a. */
static __global__ void __launch_bounds__(TINY_THREADS) tiny_kernel(lki_cuda_shape s, lki_cuda_factors f)
{
    int i = (int)(blockIdx.x * TINY_THREADS + threadIdx.x), n = (int)s.n, row = i / n, column = i % n;
    if (row >= (int)s.m) return;
    const float *a = (const float *)f.a + row * s.a_row, *b = (const float *)f.b + column * s.b_column;
    float sum = 0, row_sum = 0;
    for (int l = 0; l < (int)s.k; l += TINY_AHEAD) {
        float left[TINY_AHEAD], right[TINY_AHEAD];
#pragma unroll
        for (int e = 0; e < TINY_AHEAD; e++) {
            left[e] = l + e < (int)s.k ? a[(l + e) * s.a_column] : 0.0f;
            right[e] = l + e < (int)s.k ? b[(l + e) * s.b_row] : 0.0f;
        }
#pragma unroll
        for (int e = 0; e < TINY_AHEAD; e++) {
            sum = fmaf(left[e], right[e], sum);
            row_sum += left[e];
        }
    }
    if (f.bias) sum += ((const float *)f.bias)[column];
    ((float *)f.c)[i] = f.relu && sum < 0 ? 0.0f : sum;
    if (f.sums && column == 0) ((float *)f.sums)[row] = row_sum;
}

/* ---- Plan and launches ---- */

static lki_cuda_thin kind_of(const lki_cuda_product *p, bool with_sums)
{
    const lki_cuda_shape *s = &p->shape;
    bool a_rows = s->a_column == 1 && s->a_row == s->k, b_rows = s->b_column == 1 && s->b_row == s->n;
    if (p->dtype != LK_F32 || s->batch != 1 || s->m == 0 || s->n == 0) return LKI_CUDA_NOT_THIN;
    if (s->k <= TINY_K && s->m * s->n <= TINY_ELEMENTS) return LKI_CUDA_TINY;
    if (!with_sums && a_rows && s->b_row == 1 && s->b_column == s->k && s->k > 0 && s->k <= MOST_SIDE &&
        s->k % 4 == 0 && s->n >= LONG && (s->m + OUT_ROWS - 1) / OUT_ROWS <= MOST_GRID_Y)
        return LKI_CUDA_THIN_OUT;
    if (!b_rows || s->n <= 0 || s->n > MOST_SIDE || s->n % 4) return LKI_CUDA_NOT_THIN;
    if (s->a_row == 1 && s->a_column == s->m && s->m >= LONG && s->k > 0) return LKI_CUDA_THIN_WEIGHT;
    if (!with_sums && a_rows && s->k >= LONG && s->k % 4 == 0 && s->m <= 256) return LKI_CUDA_THIN_IN;
    return LKI_CUDA_NOT_THIN;
}

bool lki_cuda_plan_thin(const lki_cuda *cuda, lki_cuda_product *p, bool with_sums, size_t *scratch_nbytes)
{
    const lki_cuda_shape *s = &p->shape;
    p->thin = kind_of(p, with_sums);
    if (p->thin != LKI_CUDA_THIN_IN) return p->thin != LKI_CUDA_NOT_THIN;
    int64_t tiles = (s->m + 63) / 64, chunks = (s->k + IN_DEPTH - 1) / IN_DEPTH,
            parts = 2 * (int64_t)cuda->processor_count / tiles;
    if (parts > chunks) parts = chunks;
    if (parts < 1) parts = 1;
    p->thin_span = (chunks + parts - 1) / parts * IN_DEPTH;
    p->thin_parts = (int)((s->k + p->thin_span - 1) / p->thin_span);
    size_t nbytes = sizeof(float) * (size_t)(p->thin_parts * s->m * s->n);
    if (nbytes > *scratch_nbytes) *scratch_nbytes = nbytes;
    return true;
}

bool lki_cuda_thin_fits(const lki_cuda_product *p, const lki_cuda_factors *f)
{
    uintptr_t all =
        (uintptr_t)f->a | (uintptr_t)f->b | (p->thin == LKI_CUDA_THIN_WEIGHT ? (uintptr_t)f->c : 0);
    return f->c && all % 16 == 0;
}

template <int SIDE>
static void launch_thin(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors &f, float *partial)
{
    const lki_cuda_shape &s = p->shape;
    cudaStream_t stream = cuda->compute;
    if (p->thin == LKI_CUDA_THIN_OUT) {
        unsigned rows = (unsigned)((s.m + OUT_ROWS - 1) / OUT_ROWS);
        int64_t wide = (s.n + OUT_THREADS * PER_THREAD - 1) / (OUT_THREADS * PER_THREAD);
        if (wide * rows >= cuda->processor_count)
            out_kernel<SIDE, PER_THREAD><<<dim3((unsigned)wide, rows), OUT_THREADS, 0, stream>>>(s, f);
        else
            out_kernel<SIDE, 1>
                <<<dim3((unsigned)((s.n + OUT_THREADS - 1) / OUT_THREADS), rows), OUT_THREADS, 0, stream>>>(
                    s, f);
    } else if (p->thin == LKI_CUDA_THIN_WEIGHT) {
        int64_t wide = (s.m + WEIGHT_THREADS * WEIGHT_ROWS - 1) / (WEIGHT_THREADS * WEIGHT_ROWS);
        if (wide >= cuda->processor_count)
            weight_kernel<SIDE, WEIGHT_ROWS><<<(unsigned)wide, WEIGHT_THREADS, 0, stream>>>(s, f);
        else
            weight_kernel<SIDE, 1>
                <<<(unsigned)((s.m + WEIGHT_THREADS - 1) / WEIGHT_THREADS), WEIGHT_THREADS, 0, stream>>>(s,
                                                                                                         f);
    } else {
        dim3 grid((unsigned)p->thin_parts, (unsigned)((s.m + (s.m > 8 ? 63 : 7)) / (s.m > 8 ? 64 : 8)));
        if (s.m > 8)
            in_kernel<8, SIDE><<<grid, IN_THREADS, 0, stream>>>(s, f, p->thin_span, partial);
        else
            in_kernel<1, SIDE><<<grid, IN_THREADS, 0, stream>>>(s, f, p->thin_span, partial);
        in_join_kernel<<<(unsigned)((s.m * s.n + 15) / 16), 256, 0, stream>>>(s.m * s.n, (float *)f.c,
                                                                              p->thin_parts, partial);
    }
}

lk_status lki_cuda_run_thin(lki_cuda *cuda, const lki_cuda_product *p, const lki_cuda_factors *f,
                            void *scratch)
{
    int64_t side = p->thin == LKI_CUDA_THIN_OUT ? p->shape.k : p->shape.n;
    if (p->thin == LKI_CUDA_TINY)
        tiny_kernel<<<(unsigned)((p->shape.m * p->shape.n + TINY_THREADS - 1) / TINY_THREADS), TINY_THREADS,
                      0, cuda->compute>>>(p->shape, *f);
    else if (side <= 8)
        launch_thin<8>(cuda, p, *f, (float *)scratch);
    else if (side <= 16)
        launch_thin<16>(cuda, p, *f, (float *)scratch);
    else if (side <= 24)
        launch_thin<24>(cuda, p, *f, (float *)scratch);
    else
        launch_thin<32>(cuda, p, *f, (float *)scratch);
    LKI_LAUNCHED();
    return LK_OK;
}
