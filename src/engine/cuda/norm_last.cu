/* Batch norm of activations whose channels lie side by side in memory (channels last, or one place a
 * channel) in f32 or 16 bits, with f32 statistics and weights. It waits for memory alone: one read for the
 * sums, one read and one write to normalise; an addend, a ReLU and the ReLU's mask going back come along for
 * what they read.
 *
 * Two kernels: the sums, and the rest. A thread has V neighbouring channels and walks over rows, several
 * loads ahead; a block has a tile of channels and a part of the rows. Sums are kept in f32 by a thread, about
 * the median of three of the channel's elements, so that an outlier does not cost the others' digits, and
 * joined in a fixed order: a block's in f64, and those of a tile's blocks by each block that needs them,
 * while its first elements are on their way. Tiles are narrow, so that these are few. The sums go from the
 * last row to the first and the rest from the first to the last, so that what was read or written last is met
 * in the cache. */
#include "engine/cuda/norm.cuh"
#include "engine/cuda/vector_load.cuh"

constexpr int THREADS = 256, WARPS = THREADS / 32, ACROSS = 8, MOST_WIDE = 8 * ACROSS;

/* Blocks for every multiprocessor, in one wave. */
enum { BLOCKS_EACH = 2 };

/* Rows of channels, and how the grid is cut: `tiles` of channels by `parts` of rows. */
typedef struct field {
    int64_t rows;
    int channels, across, tiles, parts;
} field;

template <typename T> struct operands {
    const T *x, *dy, *addend;
    T *out;
    const T *first, *second, *gate; /* lki_cuda_norm_operands's */
    const float *addend_mean, *addend_istd, *addend_weight, *addend_bias;
    const float *weight, *bias;
    float *running_mean, *running_var, *mean, *istd, *dweight, *dbias;
};

/* What a channel's elements are normalised by. Forward: (x - mean) scale + center. Backward: scale (dy -
 * center - (x - mean) slope), for dy where (x - mean) scale + bias > 0 with a ReLU. */
struct __align__(16) line
{
    float mean, scale, center, slope;
};

/* What the sums leave for the rest: a pair a channel, part and tile, and about what forward ones are. */
typedef struct notes {
    float2 *partial;
    float *shift;
} notes;

/* Where a thread stands: its channels, and its rows, `count` of them, `step` elements apart. */
struct stand {
    int tile, part, channel, count;
    int64_t first, step;
};

template <int V> static __device__ stand stand_of(const field &f)
{
    int down = THREADS / f.across, x = (int)threadIdx.x % f.across, y = (int)threadIdx.x / f.across;
    stand s;
    s.tile = (int)(blockIdx.x % (unsigned)f.tiles);
    s.part = (int)(blockIdx.x / (unsigned)f.tiles);
    s.channel = (s.tile * f.across + x) * V;
    int64_t row = (int64_t)s.part * down + y, rows = (int64_t)f.parts * down;
    bool idle = s.channel >= f.channels || row >= f.rows;
    s.count = idle ? 0 : (int)((f.rows - row + rows - 1) / rows);
    s.first = row * f.channels + s.channel;
    s.step = rows * f.channels;
    return s;
}

/* ---- Sums ---- */

/* About what a channel's elements are added up: the middle one of its first, its middle and its last. */
template <typename T> static __device__ float shift_of(const field &f, const T *x, int channel)
{
    float a = float(x[channel]), b = float(x[f.rows / 2 * f.channels + channel]),
          c = float(x[(f.rows - 1) * f.channels + channel]);
    float low = fminf(a, b), high = fmaxf(a, b);
    return fmaxf(low, fminf(high, c));
}

template <typename T, int V, bool BACK, bool RELU> struct adder {
    float mean[V], scale[V], bias[V], a[V], b[V];

    __device__ void begin(const field &f, const operands<T> &o, int channel)
    {
        for (int e = 0; e < V; e++) {
            int c = channel + e;
            mean[e] = BACK ? o.mean[c] : shift_of(f, o.x, c);
            if (BACK && RELU) {
                scale[e] = o.istd[c] * (o.weight ? o.weight[c] : 1.f);
                bias[e] = o.bias ? o.bias[c] : 0.f;
            }
            a[e] = b[e] = 0;
        }
    }
    __device__ void add(const lki_cuda_wides<V> &x, const lki_cuda_wides<V> &dy)
    {
#pragma unroll
        for (int e = 0; e < V; e++) {
            float d = x.at[e] - mean[e], g = d;
            if (BACK) g = RELU && !(d * scale[e] + bias[e] > 0) ? 0.f : dy.at[e];
            a[e] += g;
            b[e] += g * d;
        }
    }
};

/* Over the threads of a block that have the same channels; the sum of channel c is then in *a and *b of
 * thread c. */
template <int V> static __device__ void block_sums(int across, float *a, float *b)
{
    __shared__ float shared[2][WARPS][MOST_WIDE];
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int step = 16; step >= across; step /= 2)
#pragma unroll
        for (int e = 0; e < V; e++) {
            a[e] += __shfl_xor_sync(~0u, a[e], step);
            b[e] += __shfl_xor_sync(~0u, b[e], step);
        }
#pragma unroll
    for (int e = 0; e < V; e++)
        if (lane < across) {
            shared[0][warp][lane * V + e] = a[e];
            shared[1][warp][lane * V + e] = b[e];
        }
    __syncthreads();
    if ((int)threadIdx.x >= across * V) return;
    lki_cuda_pair total = {0, 0};
#pragma unroll
    for (int w = 0; w < WARPS; w++)
        total = lki_cuda_add(total, {double(shared[0][w][threadIdx.x]), double(shared[1][w][threadIdx.x])});
    *a = float(total.a);
    *b = float(total.b);
}

/* What passes the gate, as it is written and read again. */
template <typename T, int V>
static __device__ lki_cuda_bits<T, V> pass(const lki_cuda_bits<T, V> &first,
                                           const lki_cuda_bits<T, V> &second, const lki_cuda_bits<T, V> &gate,
                                           bool both)
{
    lki_cuda_wides<V> dy = lki_cuda_widen_all<T, V>(first), y = lki_cuda_widen_all<T, V>(gate);
    if (both) {
        lki_cuda_wides<V> more = lki_cuda_widen_all<T, V>(second);
#pragma unroll
        for (int e = 0; e < V; e++) dy.at[e] += more.at[e];
    }
#pragma unroll
    for (int e = 0; e < V; e++) dy.at[e] = y.at[e] <= 0 ? 0.f : dy.at[e];
    return lki_cuda_narrow_all<T, V>(dy);
}

template <typename T, int V, bool BACK, bool RELU, bool GATED>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH) sum_kernel(field f, operands<T> o, notes n)
{
    constexpr int AHEAD = GATED ? 2 : BACK ? 4 : 8;
    stand s = stand_of<V>(f);
    adder<T, V, BACK, RELU> sum = {};
    if (s.count) sum.begin(f, o, s.channel);
    for (int i = s.count - 1; i >= 0; i -= AHEAD) {
        lki_cuda_bits<T, V> x[AHEAD], dy[AHEAD], second[AHEAD], gate[AHEAD];
        int64_t last = s.first + i * s.step;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t at = last - k * s.step;
            if (i >= k) x[k] = lki_cuda_load_bits<T, V>(o.x + at);
            if (BACK && i >= k) dy[k] = lki_cuda_load_bits<T, V>((GATED ? o.first : o.dy) + at);
            if (GATED && i >= k) gate[k] = lki_cuda_load_bits<T, V>(o.gate + at);
            if (GATED && i >= k && o.second) second[k] = lki_cuda_load_bits<T, V>(o.second + at);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i < k) continue;
            if (GATED) {
                dy[k] = pass<T, V>(dy[k], second[k], gate[k], o.second);
                *(lki_cuda_bits<T, V> *)((T *)o.dy + last - k * s.step) = dy[k];
            }
            sum.add(lki_cuda_widen_all<T, V>(x[k]), lki_cuda_widen_all<T, V>(BACK ? dy[k] : x[k]));
        }
    }
    block_sums<V>(f.across, sum.a, sum.b);
    int width = f.across * V, c = (int)threadIdx.x;
    if (c >= width) return;
    n.partial[((int64_t)s.tile * f.parts + s.part) * width + c] = make_float2(sum.a[0], sum.b[0]);
    int channel = s.tile * width + c;
    if (!BACK && s.part == 0 && channel < f.channels)
        n.shift[channel] = f.rows ? shift_of(f, o.x, channel) : 0.f;
}

/* ---- What follows from them, a channel a thread; the first block of a tile writes it down ---- */

template <typename T>
static __device__ line finish_forward(const lki_cuda_norm &v, const operands<T> &o, int c, lki_cuda_pair sum,
                                      float shift, bool writes)
{
    double n = (double)v.outer, mean, variance, m = v.momentum;
    if (v.has_moments) {
        mean = double(o.running_mean[c]);
        variance = double(o.running_var[c]);
    } else {
        lki_cuda_moments(sum, double(shift), n, &mean, &variance);
        bool moves = writes && n > 0; /* an empty batch teaches nothing */
        if (moves && o.running_mean)
            o.running_mean[c] = float((1 - m) * double(o.running_mean[c]) + m * mean);
        if (moves && o.running_var)
            o.running_var[c] = float((1 - m) * double(o.running_var[c]) + m * variance * n / (n - 1));
    }
    float istd = float(1 / sqrt(variance + v.eps));
    if (writes && o.mean) o.mean[c] = float(mean);
    if (writes && o.istd) o.istd[c] = istd;
    float scale = istd * (o.weight ? o.weight[c] : 1.f);
    double rest = mean - double(float(mean)); /* what rounding the mean leaves out */
    return {float(mean), scale, float((o.bias ? double(o.bias[c]) : 0) - rest * double(scale)), 0};
}

template <typename T>
static __device__ line finish_backward(const lki_cuda_norm &v, const operands<T> &o, int c, lki_cuda_pair sum,
                                       bool writes)
{
    double istd = double(o.istd[c]), through = v.constant || v.outer == 0 ? 0 : 1 / (double)v.outer;
    if (writes && o.dweight) o.dweight[c] = float(sum.b * istd);
    if (writes && o.dbias) o.dbias[c] = float(sum.a);
    return {o.mean[c], o.istd[c] * (o.weight ? o.weight[c] : 1.f), float(sum.a * through),
            float(sum.b * istd * istd * through)};
}

/* The lines of a block's tile. Every block adds up what those of its tile left, in the same order. */
template <typename T, int V, bool BACK>
static __device__ void find_lines(const lki_cuda_norm &v, const field &f, const operands<T> &o,
                                  const notes &n, const stand &s, line *lines)
{
    constexpr int LANES = THREADS / MOST_WIDE;
    __shared__ lki_cuda_pair shared[LANES][MOST_WIDE];
    int width = f.across * V, c = (int)threadIdx.x % MOST_WIDE, y = (int)threadIdx.x / MOST_WIDE,
        channel = s.tile * width + c;
    bool mine = c < width && channel < f.channels;
    const float2 *partial = n.partial + (int64_t)s.tile * f.parts * width + c;
    lki_cuda_pair sum = {0, 0};
    if (mine && (BACK || !v.has_moments)) {
#pragma unroll 4
        for (int p = y; p < f.parts; p += LANES) {
            float2 part = partial[p * width];
            sum = lki_cuda_add(sum, {double(part.x), double(part.y)});
        }
    }
    shared[y][c] = sum;
    __syncthreads();
    if (y == 0 && mine) {
        for (int k = 1; k < LANES; k++) sum = lki_cuda_add(sum, shared[k][c]);
        lines[c] =
            BACK ? finish_backward(v, o, channel, sum, s.part == 0)
                 : finish_forward(v, o, channel, sum, v.has_moments ? 0.f : n.shift[channel], s.part == 0);
    }
    __syncthreads();
}

/* ---- Normalising ---- */

/* What is added: nothing, a tensor, or one that is normalised on the way. */
enum addition { NOTHING, AS_IT_IS, NORMALISED };

/* The addend as it would lie in memory. */
template <typename T, int V>
static __device__ lki_cuda_wides<V> normalise_addend(const line *l, lki_cuda_wides<V> x)
{
#pragma unroll
    for (int e = 0; e < V; e++) x.at[e] = (x.at[e] - l[e].mean) * l[e].scale + l[e].center;
    return lki_cuda_widen_all<T, V>(lki_cuda_narrow_all<T, V>(x));
}

template <typename T> static __device__ line addend_line(const operands<T> &o, int c)
{
    return {o.addend_mean[c], o.addend_istd[c] * (o.addend_weight ? o.addend_weight[c] : 1.f),
            o.addend_bias ? o.addend_bias[c] : 0.f, 0};
}

template <typename T, int V, bool BACK, bool RELU, bool ADD>
static __device__ lki_cuda_wides<V> normalise(const line *l, const float *bias, const lki_cuda_wides<V> &x,
                                              const lki_cuda_wides<V> &other)
{
    lki_cuda_wides<V> to;
#pragma unroll
    for (int e = 0; e < V; e++) {
        float d = x.at[e] - l[e].mean, y;
        if (BACK) {
            float g = RELU && !(d * l[e].scale + bias[e] > 0) ? 0.f : other.at[e];
            y = l[e].scale * (g - l[e].center - d * l[e].slope);
        } else {
            y = d * l[e].scale + l[e].center;
            if (ADD) y += other.at[e];
            if (RELU && y < 0) y = 0; /* a NaN stays one */
        }
        to.at[e] = y;
    }
    return to;
}

/* The first elements are on their way while the lines are found. */
template <typename T, int V, bool BACK, bool RELU, addition ADD>
static __global__ void __launch_bounds__(THREADS, BLOCKS_EACH)
    apply_kernel(lki_cuda_norm v, field f, operands<T> o, notes n)
{
    constexpr bool TWO = BACK || ADD != NOTHING;
    constexpr int AHEAD = ADD == NORMALISED ? 2 : TWO ? 4 : 8;
    __shared__ line lines[MOST_WIDE];
    stand s = stand_of<V>(f);
    const T *second = BACK ? o.dy : o.addend;
    lki_cuda_bits<T, V> x[AHEAD], other[AHEAD];
    line l[V], m[V];
    float bias[V];
    if (!o.out) s.count = 0;
    for (int i = 0; i < s.count || i == 0; i += AHEAD) {
        int64_t first = s.first + i * s.step;
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            int64_t at = first + k * s.step;
            if (i + k < s.count) x[k] = lki_cuda_load_bits<T, V>(o.x + at);
            if (TWO && i + k < s.count) other[k] = lki_cuda_load_bits<T, V>(second + at);
        }
        if (i == 0) {
            find_lines<T, V, BACK>(v, f, o, n, s, lines);
            if (!s.count) return;
#pragma unroll
            for (int e = 0; e < V; e++) {
                l[e] = lines[((int)threadIdx.x % f.across) * V + e];
                bias[e] = BACK && RELU && o.bias ? o.bias[s.channel + e] : 0.f;
                if (ADD == NORMALISED) m[e] = addend_line(o, s.channel + e);
            }
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            if (i + k >= s.count) continue;
            lki_cuda_wides<V> more = lki_cuda_widen_all<T, V>(TWO ? other[k] : x[k]);
            if (ADD == NORMALISED) more = normalise_addend<T, V>(m, more);
            lki_cuda_wides<V> to =
                normalise<T, V, BACK, RELU, ADD != NOTHING>(l, bias, lki_cuda_widen_all<T, V>(x[k]), more);
            lki_cuda_store_past<T, V>(o.out + first + k * s.step, lki_cuda_narrow_all<T, V>(to));
        }
    }
}

/* ---- Launches ---- */

/* No more parts than there are rows for. */
static field field_of(const lki_cuda *cuda, const lki_cuda_norm *v, int width)
{
    field f = {};
    f.rows = v->outer;
    f.channels = v->channels;
    f.across = 1;
    while (f.across < (width == 1 ? 32 : ACROSS) && f.across * width < v->channels) f.across *= 2;
    f.tiles = (v->channels + f.across * width - 1) / (f.across * width);
    int64_t down = THREADS / f.across, most = (v->outer + down - 1) / down,
            parts = (int64_t)BLOCKS_EACH * cuda->processor_count / f.tiles;
    f.parts = (int)(parts < 1 || most < 1 ? 1 : parts < most ? parts : most);
    return f;
}

static size_t partial_nbytes(const field &f, int width)
{
    return sizeof(float2) * (size_t)f.tiles * (size_t)f.parts * (size_t)(f.across * width);
}

size_t lki_cuda_plan_last(const lki_cuda *cuda, const lki_cuda_norm *v)
{
    size_t most = 0;
    for (int width = 1; width <= 8; width *= 2) {
        size_t nbytes = partial_nbytes(field_of(cuda, v, width), width);
        if (nbytes > most) most = nbytes;
    }
    return most + sizeof(float) * (size_t)v->channels;
}

template <typename T, int V, bool BACK, bool RELU>
static void launch(lki_cuda *cuda, const lki_cuda_norm *v, const operands<T> &o, void *scratch)
{
    field f = field_of(cuda, v, V);
    notes n = {(float2 *)scratch, (float *)((char *)scratch + partial_nbytes(f, V))};
    unsigned blocks = (unsigned)f.tiles * (unsigned)f.parts,
             wanted = o.out && f.rows ? blocks : (unsigned)f.tiles;
    if (BACK && !RELU && o.gate)
        sum_kernel<T, V, BACK, RELU, BACK && !RELU><<<blocks, THREADS, 0, cuda->compute>>>(f, o, n);
    else if (BACK || !v->has_moments)
        sum_kernel<T, V, BACK, RELU, false><<<blocks, THREADS, 0, cuda->compute>>>(f, o, n);
    if (!BACK && o.addend && o.addend_mean)
        apply_kernel<T, V, BACK, RELU, BACK ? NOTHING : NORMALISED>
            <<<wanted, THREADS, 0, cuda->compute>>>(*v, f, o, n);
    else if (!BACK && o.addend)
        apply_kernel<T, V, BACK, RELU, BACK ? NOTHING : AS_IT_IS>
            <<<wanted, THREADS, 0, cuda->compute>>>(*v, f, o, n);
    else
        apply_kernel<T, V, BACK, RELU, NOTHING><<<wanted, THREADS, 0, cuda->compute>>>(*v, f, o, n);
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
    operands<T> o = {};
    o.x = (const T *)from->x;
    o.dy = (const T *)from->dy;
    o.addend = (const T *)from->addend;
    o.out = (T *)from->out;
    o.first = (const T *)from->first;
    o.second = (const T *)from->second;
    o.gate = (const T *)from->gate;
    o.addend_mean = (const float *)from->addend_mean;
    o.addend_istd = (const float *)from->addend_istd;
    o.addend_weight = (const float *)from->addend_weight;
    o.addend_bias = (const float *)from->addend_bias;
    o.weight = (const float *)from->weight;
    o.bias = (const float *)from->bias;
    o.running_mean = (float *)from->running_mean;
    o.running_var = (float *)from->running_var;
    o.mean = (float *)from->mean;
    o.istd = (float *)from->istd;
    o.dweight = (float *)from->dweight;
    o.dbias = (float *)from->dbias;
    uintptr_t bits = (uintptr_t)from->x | (uintptr_t)from->dy | (uintptr_t)from->out |
                     (uintptr_t)from->addend | (uintptr_t)from->first | (uintptr_t)from->second |
                     (uintptr_t)from->gate;
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
    else if (dtype == LK_F32)
        start<float>(cuda, v, o, backward, scratch);
    else
        start<__half>(cuda, v, o, backward, scratch);
    LKI_LAUNCHED();
    return LK_OK;
}
