/* Reductions over the channels of (outer, channels, inner): batch norm and its gradient, and the gradients of
 * the weights of layer and group norm.
 *
 * Channels of few elements have one block each, which adds up, finishes and normalises in one launch. Large
 * ones are cut into parts: one launch adds the parts up, one joins them in order, one normalises. Where inner
 * is 1 (and where channels come last) a block has a tile of neighbouring channels. */
#include "engine/cuda/norm.cuh"

constexpr int THREADS = 256;

/* Where the sums of a channel come from. */
typedef enum source { OWN, GIVEN, CONSTANT } source;

template <typename T, typename P> struct operands {
    const T *x, *dy;
    const P *weight, *bias;
    P *running_mean, *running_var, *mean, *istd;
    T *out;
    P *dweight, *dbias;
};

/* out = scale (g - center - (x - mean) slope), g = dy backward; forward out = (x - mean) scale + center. */
template <typename A> struct line {
    A mean, scale, center, slope;
};

/* The set that element (n, c) belongs to. */
static __device__ int64_t set_of(const lki_cuda_norm &v, int64_t n, int c)
{
    if (v.kind == LKI_CUDA_BATCH) return c;
    return v.kind == LKI_CUDA_LAYER ? n : n * v.groups + c / (v.channels / v.groups);
}

template <typename T> static __device__ double shift_of(const lki_cuda_norm &v, const T *x, int c)
{
    return v.outer > 0 && v.inner > 0 ? double(x[(int64_t)c * v.inner]) : 0;
}

template <typename T, typename A, bool BACK>
static __device__ void accumulate(lki_cuda_pair *sum, T x, T dy, double shift, A mean, A istd)
{
    if (BACK) {
        sum->a += double(dy);
        sum->b += double(A(dy) * ((A(x) - mean) * istd));
    } else {
        double d = double(x) - shift;
        sum->a += d;
        sum->b += d * d;
    }
}

/* V neighbours: of one channel (STEP 0), or one each of V channels (STEP 1). */
template <typename T, typename P, bool BACK, int V, int STEP>
static __device__ void accumulate_at(const lki_cuda_norm &v, const operands<T, P> &o, int64_t at, int64_t n,
                                     int c, const double *shift, lki_cuda_pair *sum)
{
    using A = typename lki_cuda_wide<T>::type;
    lki_cuda_pack<T, V> x = lki_cuda_load<T, V>(o.x + at), dy = BACK ? lki_cuda_load<T, V>(o.dy + at) : x;
#pragma unroll
    for (int e = 0; e < V; e++) {
        int64_t set = BACK ? set_of(v, n, c + e * STEP) : 0;
        A mean = BACK ? A(o.mean[set]) : A(0), istd = BACK ? A(o.istd[set]) : A(0);
        accumulate<T, A, BACK>(&sum[e * STEP], x.at[e], dy.at[e], shift[e * STEP], mean, istd);
    }
}

/* Writes what a channel has but one of, and says how its elements are normalised. */
template <typename T, typename P, bool BACK>
static __device__ line<typename lki_cuda_wide<T>::type>
finish_channel(const lki_cuda_norm &v, const operands<T, P> &o, int c, lki_cuda_pair sum, bool writes)
{
    using A = typename lki_cuda_wide<T>::type;
    double n = (double)v.outer * v.inner, weight = o.weight ? double(o.weight[c]) : 1;
    if (BACK) {
        if (writes && o.dweight) o.dweight[c] = P(A(sum.b));
        if (writes && o.dbias) o.dbias[c] = P(A(sum.a));
        if (!o.out) return {};
        double istd = double(o.istd[c]), through = v.constant ? 0 : 1 / n;
        return {A(o.mean[c]), A(istd * weight), A(sum.a * through), A(sum.b * through * istd)};
    }
    double mean, variance;
    if (v.has_moments) {
        mean = double(o.running_mean[c]);
        variance = double(o.running_var[c]);
    } else {
        lki_cuda_moments(sum, shift_of(v, o.x, c), n, &mean, &variance);
    }
    double istd = 1 / sqrt(variance + v.eps), m = v.momentum;
    bool moves = writes && !v.has_moments && n > 0; /* an empty batch teaches nothing */
    if (moves && o.running_mean) o.running_mean[c] = P(A((1 - m) * double(o.running_mean[c]) + m * mean));
    if (moves && o.running_var)
        o.running_var[c] = P(A((1 - m) * double(o.running_var[c]) + m * variance * n / (n - 1)));
    if (writes && o.mean) o.mean[c] = P(A(mean));
    if (writes && o.istd) o.istd[c] = P(A(istd));
    double rest = mean - double(A(mean)); /* what rounding the mean leaves out */
    return {A(mean), A(istd * weight), A((o.bias ? double(o.bias[c]) : 0) - rest * istd * weight), A(0)};
}

template <typename T, typename P, bool BACK, int V, int STEP>
static __device__ void apply_at(const operands<T, P> &o, int64_t at,
                                const line<typename lki_cuda_wide<T>::type> *lines)
{
    using A = typename lki_cuda_wide<T>::type;
    lki_cuda_pack<T, V> x = lki_cuda_load<T, V>(o.x + at), dy = BACK ? lki_cuda_load<T, V>(o.dy + at) : x, to;
#pragma unroll
    for (int e = 0; e < V; e++) {
        const line<A> &l = lines[e * STEP];
        A d = A(x.at[e]) - l.mean;
        to.at[e] = T(BACK ? l.scale * (A(dy.at[e]) - l.center - d * l.slope) : d * l.scale + l.center);
    }
    *(lki_cuda_pack<T, V> *)(o.out + at) = to;
}

/* ---- inner > 1: block (channel, part); rows are elements of the channel, V at a time ---- */

template <int V> static __device__ int64_t row_place(const lki_cuda_norm &v, int c, int64_t row, int64_t *n)
{
    int rest;
    *n = lki_cuda_divide(row, v.inner / V, &rest);
    return (*n * v.channels + c) * v.inner + (int64_t)rest * V;
}

template <typename T, typename P, bool BACK, int V>
static __device__ lki_cuda_pair sum_rows(const lki_cuda_norm &v, const operands<T, P> &o, int c,
                                         int64_t begin, int64_t end)
{
    __shared__ lki_cuda_pair shared[32];
    double shift = BACK ? 0 : shift_of(v, o.x, c);
    lki_cuda_pair sum = {0, 0};
    for (int64_t row = begin + threadIdx.x; row < end; row += THREADS) {
        int64_t n, at = row_place<V>(v, c, row, &n);
        accumulate_at<T, P, BACK, V, 0>(v, o, at, n, c, &shift, &sum);
    }
    return lki_cuda_block_sum(sum, shared);
}

template <typename T, typename P, bool BACK, int V>
static __global__ void __launch_bounds__(THREADS)
    rows_kernel(lki_cuda_norm v, operands<T, P> o, source from, const lki_cuda_pair *sums)
{
    int c = (int)(blockIdx.x % (unsigned)v.channels), part = (int)(blockIdx.x / (unsigned)v.channels);
    int64_t begin = part * v.span, end = min(begin + v.span, v.outer * (v.inner / V));
    lki_cuda_pair sum = {0, 0};
    if (from == OWN) sum = sum_rows<T, P, BACK, V>(v, o, c, begin, end);
    if (from == GIVEN) sum = sums[c];
    auto l = finish_channel<T, P, BACK>(v, o, c, sum, part == 0 && threadIdx.x == 0);
    if (!o.out) return;
    for (int64_t row = begin + threadIdx.x; row < end; row += THREADS) {
        int64_t n, at = row_place<V>(v, c, row, &n);
        apply_at<T, P, BACK, V, 0>(o, at, &l);
    }
}

template <typename T, typename P, bool BACK, int V>
static __global__ void __launch_bounds__(THREADS)
    rows_part_kernel(lki_cuda_norm v, operands<T, P> o, lki_cuda_pair *partial)
{
    int c = (int)(blockIdx.x % (unsigned)v.channels), part = (int)(blockIdx.x / (unsigned)v.channels);
    int64_t begin = part * v.span, end = min(begin + v.span, v.outer * (v.inner / V));
    lki_cuda_pair sum = sum_rows<T, P, BACK, V>(v, o, c, begin, end);
    if (threadIdx.x == 0) partial[(int64_t)part * v.channels + c] = sum;
}

/* ---- inner == 1: block (tile of channels, part); `across` threads side by side have V channels each ---- */

/* The sums of the tile's channels go to shared[0 .. across V). */
template <typename T, typename P, bool BACK, int V>
static __device__ void sum_columns(const lki_cuda_norm &v, const operands<T, P> &o, int first, int64_t begin,
                                   int64_t end, lki_cuda_pair *shared)
{
    int down = THREADS / v.across, width = v.across * V;
    int c = first + (int)threadIdx.x % v.across * V;
    lki_cuda_pair sum[V] = {};
    double shift[V] = {};
    if (c < v.channels) {
        for (int e = 0; e < V && !BACK; e++) shift[e] = shift_of(v, o.x, c + e);
        for (int64_t n = begin + (int)threadIdx.x / v.across; n < end; n += down)
            accumulate_at<T, P, BACK, V, 1>(v, o, n * v.channels + c, n, c, shift, sum);
    }
    for (int e = 0; e < V; e++) shared[(int)threadIdx.x * V + e] = sum[e];
    __syncthreads();
    lki_cuda_pair total = {0, 0};
    for (int r = 0; r < down && (int)threadIdx.x < width; r++)
        total = lki_cuda_add(total, shared[r * width + (int)threadIdx.x]);
    __syncthreads();
    if ((int)threadIdx.x < width) shared[threadIdx.x] = total;
    __syncthreads();
}

template <typename T, typename P, bool BACK, int V>
static __global__ void __launch_bounds__(THREADS)
    columns_kernel(lki_cuda_norm v, operands<T, P> o, source from, const lki_cuda_pair *sums)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ lki_cuda_pair shared[THREADS * V];
    __shared__ line<A> lines[THREADS];
    int width = v.across * V, tiles = (v.channels + width - 1) / width;
    int first = (int)(blockIdx.x % (unsigned)tiles) * width, part = (int)(blockIdx.x / (unsigned)tiles);
    int64_t begin = part * v.span, end = min(begin + v.span, v.outer);
    if (from == OWN) sum_columns<T, P, BACK, V>(v, o, first, begin, end, shared);
    int own = first + (int)threadIdx.x;
    if ((int)threadIdx.x < width && own < v.channels) {
        lki_cuda_pair sum = {0, 0};
        if (from == OWN) sum = shared[threadIdx.x];
        if (from == GIVEN) sum = sums[own];
        lines[threadIdx.x] = finish_channel<T, P, BACK>(v, o, own, sum, part == 0);
    }
    __syncthreads();
    int x = (int)threadIdx.x % v.across * V, c = first + x;
    if (!o.out || c >= v.channels) return;
    line<A> mine[V];
    for (int e = 0; e < V; e++) mine[e] = lines[x + e];
    for (int64_t n = begin + (int)threadIdx.x / v.across; n < end; n += THREADS / v.across)
        apply_at<T, P, BACK, V, 1>(o, n * v.channels + c, mine);
}

template <typename T, typename P, bool BACK, int V>
static __global__ void __launch_bounds__(THREADS)
    columns_part_kernel(lki_cuda_norm v, operands<T, P> o, lki_cuda_pair *partial)
{
    __shared__ lki_cuda_pair shared[THREADS * V];
    int width = v.across * V, tiles = (v.channels + width - 1) / width;
    int first = (int)(blockIdx.x % (unsigned)tiles) * width, part = (int)(blockIdx.x / (unsigned)tiles);
    int64_t begin = part * v.span, end = min(begin + v.span, v.outer);
    sum_columns<T, P, BACK, V>(v, o, first, begin, end, shared);
    int c = first + (int)threadIdx.x;
    if ((int)threadIdx.x < width && c < v.channels)
        partial[(int64_t)part * v.channels + c] = shared[threadIdx.x];
}

/* Adds the parts of a channel up in order: 32 channels a block, 8 threads each. */
static __global__ void join_kernel(int channels, int parts, const lki_cuda_pair *partial, lki_cuda_pair *sums)
{
    __shared__ lki_cuda_pair shared[8][32];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32, c = (int)blockIdx.x * 32 + lane;
    lki_cuda_pair sum = {0, 0};
    for (int p = group; p < parts && c < channels; p += 8)
        sum = lki_cuda_add(sum, partial[(int64_t)p * channels + c]);
    shared[group][lane] = sum;
    __syncthreads();
    if (group || c >= channels) return;
    for (int g = 1; g < 8; g++) sum = lki_cuda_add(sum, shared[g][lane]);
    sums[c] = sum;
}

/* ---- Launches ---- */

/* At least this many elements are worth a block of their own. */
static const int64_t PART_ELEMENTS = 4096;
enum { MOST_PARTS = 512, PART_ROWS = 64 };

/* Vectors are decided when it runs, so the rows that a part has are counted in elements here. */
size_t lki_cuda_plan_channels(const lki_cuda *cuda, lki_cuda_norm *v)
{
    int64_t wanted = 4 * (int64_t)cuda->processor_count, rows = v->outer * v->inner, parts;
    if (v->inner == 1) {
        parts = wanted / ((v->channels + 31) / 32 + 1);
        if (parts > rows / PART_ROWS) parts = rows / PART_ROWS;
    } else {
        parts = wanted / (v->channels > 0 ? v->channels : 1);
        if (parts > rows / PART_ELEMENTS) parts = rows / PART_ELEMENTS;
    }
    v->parts = (int)(parts < 2 ? 1 : parts > MOST_PARTS ? (int64_t)MOST_PARTS : parts);
    return v->parts > 1 ? sizeof(double[2]) * (size_t)v->channels * (size_t)(v->parts + 1) : 0;
}

template <typename T, typename P, bool BACK, int V>
static void launch_rows(lki_cuda *cuda, lki_cuda_norm v, const operands<T, P> &o, lki_cuda_pair *scratch)
{
    int64_t rows = v.outer * (v.inner / V);
    v.span = (rows + v.parts - 1) / v.parts;
    unsigned blocks = (unsigned)v.channels * (unsigned)v.parts;
    source from = v.has_moments && !BACK ? CONSTANT : v.parts > 1 ? GIVEN : OWN;
    if (from == GIVEN) {
        rows_part_kernel<T, P, BACK, V><<<blocks, THREADS, 0, cuda->compute>>>(v, o, scratch + v.channels);
        join_kernel<<<(v.channels + 31) / 32, 256, 0, cuda->compute>>>(v.channels, v.parts,
                                                                       scratch + v.channels, scratch);
        if (!o.out) blocks = (unsigned)v.channels;
    }
    rows_kernel<T, P, BACK, V><<<blocks, THREADS, 0, cuda->compute>>>(v, o, from, scratch);
}

template <typename T, typename P, bool BACK, int V>
static void launch_columns(lki_cuda *cuda, lki_cuda_norm v, const operands<T, P> &o, lki_cuda_pair *scratch)
{
    v.across = 1;
    while (v.across < 32 && v.across * V < v.channels) v.across *= 2;
    v.span = (v.outer + v.parts - 1) / v.parts;
    unsigned tiles = (unsigned)((v.channels + v.across * V - 1) / (v.across * V)),
             blocks = tiles * (unsigned)v.parts;
    source from = v.has_moments && !BACK ? CONSTANT : v.parts > 1 ? GIVEN : OWN;
    if (from == GIVEN) {
        columns_part_kernel<T, P, BACK, V><<<blocks, THREADS, 0, cuda->compute>>>(v, o, scratch + v.channels);
        join_kernel<<<(v.channels + 31) / 32, 256, 0, cuda->compute>>>(v.channels, v.parts,
                                                                       scratch + v.channels, scratch);
        if (!o.out) blocks = tiles;
    }
    columns_kernel<T, P, BACK, V><<<blocks, THREADS, 0, cuda->compute>>>(v, o, from, scratch);
}

template <typename T, typename P, bool BACK>
static void launch(lki_cuda *cuda, const lki_cuda_norm *v, const lki_cuda_norm_operands *from, void *scratch)
{
    constexpr int V = 16 / sizeof(T);
    operands<T, P> o = {(const T *)from->x,    (const T *)from->dy,     (const P *)from->weight,
                        (const P *)from->bias, (P *)from->running_mean, (P *)from->running_var,
                        (P *)from->mean,       (P *)from->istd,         (T *)from->out,
                        (P *)from->dweight,    (P *)from->dbias};
    bool aligned = (((uintptr_t)from->x | (uintptr_t)from->dy | (uintptr_t)from->out) & 15) == 0;
    lki_cuda_pair *pairs = (lki_cuda_pair *)scratch;
    if (v->inner == 1 && aligned && v->channels % V == 0)
        launch_columns<T, P, BACK, V>(cuda, *v, o, pairs);
    else if (v->inner == 1)
        launch_columns<T, P, BACK, 1>(cuda, *v, o, pairs);
    else if (aligned && v->inner % V == 0)
        launch_rows<T, P, BACK, V>(cuda, *v, o, pairs);
    else
        launch_rows<T, P, BACK, 1>(cuda, *v, o, pairs);
}

lk_status lki_cuda_run_channels(lki_cuda *cuda, const lki_cuda_norm *v, lki_cuda_norm_dtypes dtypes,
                                const lki_cuda_norm_operands *o, bool backward, void *scratch)
{
    if (v->channels == 0) return LK_OK;
    if (backward)
        LKI_CUDA_NORM_SWITCH(dtypes, T, P, (launch<T, P, true>(cuda, v, o, scratch)))
    else
        LKI_CUDA_NORM_SWITCH(dtypes, T, P, (launch<T, P, false>(cuda, v, o, scratch)))
    LKI_LAUNCHED();
    return LK_OK;
}
