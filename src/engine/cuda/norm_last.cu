/* Batch norm of 16-bit activations whose channels lie side by side in memory (channels last, or one place a
 * channel), with f32 statistics and weights. It waits for memory alone: one read for the sums, one read and
 * one write to normalise; an addend, a ReLU and the ReLU's mask going back come along for what they read.
 *
 * A thread has V neighbouring channels and walks over rows, several loads ahead. Sums are kept in f32 by a
 * thread, about the channel's first element, and joined in f64 in a fixed order. The sums go from the last
 * row to the first and the rest from the first to the last, so that what was read or written last is met in
 * the cache. */
#include "engine/cuda/norm.cuh"

constexpr int THREADS = 256, AHEAD = 4, JOIN_CHANNELS = 8, JOIN_LANES = 32;

/* Rows of channels, and how the grid is cut: `tiles` of channels by `parts` of rows. */
typedef struct field {
    int64_t rows;
    int channels, across, tiles, parts;
} field;

template <typename T> struct operands {
    const T *x, *dy, *addend;
    T *out;
    const float *weight, *bias;
    float *running_mean, *running_var, *mean, *istd, *dweight, *dbias;
};

/* What a channel's elements are normalised by. Forward: (x - mean) scale + center. Backward: scale (dy -
 * center - (x - mean) slope), for dy where (x - mean) scale + bias > 0 with a ReLU. */
struct __align__(16) line
{
    float mean, scale, center, slope;
};

/* Where a thread stands. */
struct stand {
    int channel;
    int64_t first, step;
    int count; /* of rows: first, first + step, ... */
};

template <int V> static __device__ stand stand_of(const field &f)
{
    int tile = (int)(blockIdx.x % (unsigned)f.tiles), part = (int)(blockIdx.x / (unsigned)f.tiles);
    int down = THREADS / f.across, x = (int)threadIdx.x % f.across, y = (int)threadIdx.x / f.across;
    stand s;
    s.channel = (tile * f.across + x) * V;
    s.first = (int64_t)part * down + y;
    s.step = (int64_t)f.parts * down;
    bool idle = s.channel >= f.channels || s.first >= f.rows;
    s.count = idle ? 0 : (int)((f.rows - s.first + s.step - 1) / s.step);
    return s;
}

/* ---- Sums ---- */

template <typename T, int V, bool BACK, bool RELU> struct adder {
    float mean[V], scale[V], bias[V], a[V], b[V];

    __device__ void begin(const operands<T> &o, int channel)
    {
        for (int e = 0; e < V; e++) {
            int c = channel + e;
            mean[e] = BACK ? o.mean[c] : float(o.x[c]);
            if (BACK && RELU) {
                scale[e] = o.istd[c] * (o.weight ? o.weight[c] : 1.f);
                bias[e] = o.bias ? o.bias[c] : 0.f;
            }
            a[e] = b[e] = 0;
        }
    }
    __device__ void add(const lki_cuda_pack<T, V> &x, const lki_cuda_pack<T, V> &dy)
    {
#pragma unroll
        for (int e = 0; e < V; e++) {
            float d = float(x.at[e]) - mean[e], g = d;
            if (BACK) g = RELU && !(d * scale[e] + bias[e] > 0) ? 0.f : float(dy.at[e]);
            a[e] += g;
            b[e] += g * d;
        }
    }
};

template <typename T, int V, bool BACK, bool RELU>
static __global__ void __launch_bounds__(THREADS) sum_kernel(field f, operands<T> o, lki_cuda_pair *partial)
{
    __shared__ float shared[2][THREADS * V];
    stand s = stand_of<V>(f);
    adder<T, V, BACK, RELU> sum = {};
    if (s.count) sum.begin(o, s.channel);
    for (int i = s.count - 1; i >= 0; i -= AHEAD) {
        lki_cuda_pack<T, V> x[AHEAD], dy[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t at = (s.first + (i - k) * s.step) * f.channels + s.channel;
            if (i >= k) x[k] = lki_cuda_load<T, V>(o.x + at);
            if (BACK && i >= k) dy[k] = lki_cuda_load<T, V>(o.dy + at);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (i >= k) sum.add(x[k], BACK ? dy[k] : x[k]);
    }
#pragma unroll
    for (int e = 0; e < V; e++) {
        shared[0][(int)threadIdx.x * V + e] = sum.a[e];
        shared[1][(int)threadIdx.x * V + e] = sum.b[e];
    }
    __syncthreads();
    int width = f.across * V, tile = (int)(blockIdx.x % (unsigned)f.tiles),
        part = (int)(blockIdx.x / (unsigned)f.tiles);
    for (int c = (int)threadIdx.x; c < width && tile * width + c < f.channels; c += THREADS) {
        lki_cuda_pair total = {0, 0};
        for (int y = 0; y < THREADS / f.across; y++)
            total = lki_cuda_add(total, {double(shared[0][y * width + c]), double(shared[1][y * width + c])});
        partial[(int64_t)part * f.channels + tile * width + c] = total;
    }
}

/* ---- What follows from them, a channel a thread ---- */

template <typename T>
static __device__ line finish_forward(const lki_cuda_norm &v, const operands<T> &o, int c, lki_cuda_pair sum)
{
    double n = (double)v.outer, mean, variance, m = v.momentum;
    if (v.has_moments) {
        mean = double(o.running_mean[c]);
        variance = double(o.running_var[c]);
    } else {
        lki_cuda_moments(sum, v.outer > 0 ? double(o.x[c]) : 0, n, &mean, &variance);
        if (o.running_mean) o.running_mean[c] = float((1 - m) * double(o.running_mean[c]) + m * mean);
        if (o.running_var)
            o.running_var[c] = float((1 - m) * double(o.running_var[c]) + m * variance * n / (n - 1));
    }
    float istd = float(1 / sqrt(variance + v.eps));
    if (o.mean) o.mean[c] = float(mean);
    if (o.istd) o.istd[c] = istd;
    return {float(mean), istd * (o.weight ? o.weight[c] : 1.f), o.bias ? o.bias[c] : 0.f, 0};
}

template <typename T>
static __device__ line finish_backward(const lki_cuda_norm &v, const operands<T> &o, int c, lki_cuda_pair sum)
{
    double istd = double(o.istd[c]), through = v.constant || v.outer == 0 ? 0 : 1 / (double)v.outer;
    if (o.dweight) o.dweight[c] = float(sum.b * istd);
    if (o.dbias) o.dbias[c] = float(sum.a);
    return {o.mean[c], o.istd[c] * (o.weight ? o.weight[c] : 1.f), float(sum.a * through),
            float(sum.b * istd * istd * through)};
}

template <typename T, bool BACK>
static __global__ void __launch_bounds__(JOIN_CHANNELS *JOIN_LANES)
    join_kernel(lki_cuda_norm v, operands<T> o, int parts, const lki_cuda_pair *partial, line *lines)
{
    __shared__ lki_cuda_pair shared[JOIN_LANES][JOIN_CHANNELS];
    int x = (int)threadIdx.x % JOIN_CHANNELS, y = (int)threadIdx.x / JOIN_CHANNELS,
        c = (int)blockIdx.x * JOIN_CHANNELS + x;
    lki_cuda_pair sum = {0, 0};
#pragma unroll 4
    for (int p = y; p < parts; p += JOIN_LANES)
        if (c < v.channels) sum = lki_cuda_add(sum, partial[(int64_t)p * v.channels + c]);
    shared[y][x] = sum;
    __syncthreads();
    if (y || c >= v.channels) return;
    for (int k = 1; k < JOIN_LANES; k++) sum = lki_cuda_add(sum, shared[k][x]);
    lines[c] = BACK ? finish_backward(v, o, c, sum) : finish_forward(v, o, c, sum);
}

/* ---- Normalising ---- */

template <typename T, int V, bool BACK, bool RELU, bool ADD>
static __device__ lki_cuda_pack<T, V> normalise(const line *l, const float *bias, lki_cuda_pack<T, V> x,
                                                lki_cuda_pack<T, V> other)
{
    lki_cuda_pack<T, V> to;
#pragma unroll
    for (int e = 0; e < V; e++) {
        float d = float(x.at[e]) - l[e].mean, y;
        if (BACK) {
            float g = RELU && !(d * l[e].scale + bias[e] > 0) ? 0.f : float(other.at[e]);
            y = l[e].scale * (g - l[e].center - d * l[e].slope);
        } else {
            y = d * l[e].scale + l[e].center;
            if (ADD) y += float(other.at[e]);
            if (RELU && y < 0) y = 0; /* a NaN stays one */
        }
        to.at[e] = T(y);
    }
    return to;
}

template <typename T, int V, bool BACK, bool RELU, bool ADD>
static __global__ void __launch_bounds__(THREADS) apply_kernel(field f, operands<T> o, const line *lines)
{
    stand s = stand_of<V>(f);
    const T *second = BACK ? o.dy : o.addend;
    line l[V];
    float bias[V];
    if (!s.count) return;
#pragma unroll
    for (int e = 0; e < V; e++) {
        l[e] = lines[s.channel + e];
        bias[e] = BACK && RELU && o.bias ? o.bias[s.channel + e] : 0.f;
    }
    for (int i = 0; i < s.count; i += AHEAD) {
        lki_cuda_pack<T, V> x[AHEAD], other[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t at = (s.first + (i + k) * s.step) * f.channels + s.channel;
            if (i + k < s.count) x[k] = lki_cuda_load<T, V>(o.x + at);
            if ((BACK || ADD) && i + k < s.count) other[k] = lki_cuda_load<T, V>(second + at);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t at = (s.first + (i + k) * s.step) * f.channels + s.channel;
            if (i + k < s.count)
                *(lki_cuda_pack<T, V> *)(o.out + at) =
                    normalise<T, V, BACK, RELU, ADD>(l, bias, x[k], BACK || ADD ? other[k] : x[k]);
        }
    }
}

/* ---- Launches ---- */

/* Blocks for every multiprocessor, in one wave; no more than there are rows for. */
enum { BLOCKS_EACH = 4 };

static field field_of(const lki_cuda *cuda, const lki_cuda_norm *v, int width)
{
    field f = {};
    f.rows = v->outer;
    f.channels = v->channels;
    f.across = 1;
    while (f.across < 32 && f.across * width < v->channels) f.across *= 2;
    f.tiles = (v->channels + f.across * width - 1) / (f.across * width);
    int64_t down = THREADS / f.across, most = (v->outer + down - 1) / down,
            parts = (int64_t)BLOCKS_EACH * cuda->processor_count / f.tiles;
    f.parts = (int)(parts < 1 || most < 1 ? 1 : parts < most ? parts : most);
    return f;
}

/* The lines, then a pair a part and channel; the narrow kernel has no more parts than the wide one. */
static size_t lines_nbytes(const lki_cuda_norm *v)
{
    return sizeof(line) * (size_t)v->channels;
}

size_t lki_cuda_plan_last(const lki_cuda *cuda, const lki_cuda_norm *v)
{
    int parts = 1;
    for (int width = 1; width <= 8; width *= 8) {
        field f = field_of(cuda, v, width);
        parts = f.parts > parts ? f.parts : parts;
    }
    return lines_nbytes(v) + sizeof(lki_cuda_pair) * (size_t)v->channels * (size_t)parts;
}

template <typename T, int V, bool BACK, bool RELU>
static void launch(lki_cuda *cuda, const lki_cuda_norm *v, const operands<T> &o, void *scratch)
{
    field f = field_of(cuda, v, V);
    line *lines = (line *)scratch;
    lki_cuda_pair *partial = (lki_cuda_pair *)((char *)scratch + lines_nbytes(v));
    unsigned blocks = (unsigned)f.tiles * (unsigned)f.parts,
             joins = (unsigned)((v->channels + JOIN_CHANNELS - 1) / JOIN_CHANNELS);
    bool sums = BACK || !v->has_moments;
    if (sums) sum_kernel<T, V, BACK, RELU><<<blocks, THREADS, 0, cuda->compute>>>(f, o, partial);
    join_kernel<T, BACK>
        <<<joins, JOIN_CHANNELS * JOIN_LANES, 0, cuda->compute>>>(*v, o, sums ? f.parts : 0, partial, lines);
    if (!o.out || f.rows == 0) return;
    if (o.addend)
        apply_kernel<T, V, BACK, RELU, !BACK><<<blocks, THREADS, 0, cuda->compute>>>(f, o, lines);
    else
        apply_kernel<T, V, BACK, RELU, false><<<blocks, THREADS, 0, cuda->compute>>>(f, o, lines);
}

template <typename T, int V>
static void choose(lki_cuda *cuda, const lki_cuda_norm *v, const operands<T> &o, bool backward, void *scratch)
{
    if (backward && v->relu)
        launch<T, V, true, true>(cuda, v, o, scratch);
    else if (backward)
        launch<T, V, true, false>(cuda, v, o, scratch);
    else if (v->relu)
        launch<T, V, false, true>(cuda, v, o, scratch);
    else
        launch<T, V, false, false>(cuda, v, o, scratch);
}

template <typename T>
static void start(lki_cuda *cuda, const lki_cuda_norm *v, const lki_cuda_norm_operands *from, bool backward,
                  void *scratch)
{
    constexpr int V = 16 / sizeof(T);
    operands<T> o = {(const T *)from->x,          (const T *)from->dy,
                     (const T *)from->addend,     (T *)from->out,
                     (const float *)from->weight, (const float *)from->bias,
                     (float *)from->running_mean, (float *)from->running_var,
                     (float *)from->mean,         (float *)from->istd,
                     (float *)from->dweight,      (float *)from->dbias};
    uintptr_t bits =
        (uintptr_t)from->x | (uintptr_t)from->dy | (uintptr_t)from->out | (uintptr_t)from->addend;
    if (bits % 16 == 0 && v->channels % V == 0)
        choose<T, V>(cuda, v, o, backward, scratch);
    else
        choose<T, 1>(cuda, v, o, backward, scratch);
}

lk_status lki_cuda_run_last(lki_cuda *cuda, const lki_cuda_norm *v, lk_dtype dtype,
                            const lki_cuda_norm_operands *o, bool backward, void *scratch)
{
    if (v->channels == 0) return LK_OK;
    if (dtype == LK_BF16)
        start<__nv_bfloat16>(cuda, v, o, backward, scratch);
    else
        start<__half>(cuda, v, o, backward, scratch);
    LKI_LAUNCHED();
    return LK_OK;
}
