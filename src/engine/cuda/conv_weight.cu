/* The gradient of a convolution's weight straight from the definition, and small helpers beside cuDNN.
 *
 *     dw[o, c, k] = sum over n, p of dy[n, o, p] x[n, c, p stride - padding + k dilation]
 *
 * A block has a tile of OUTS o by TAPS k of one c, over one part of all (n, p): each number that is loaded
 * serves a row or a column of the tile. Parts are joined in order by a second launch. */
#include "engine/cuda/conv.cuh"

enum { THREADS = 128, WARPS = THREADS / 32 };

/* Which tile a block has. */
typedef struct tile {
    int group, out, c, tap; /* out: the first within its group; tap: the first */
    int part;
} tile;

template <int OUTS, int TAPS> static __device__ tile tile_of(const lki_cuda_conv_shape &s, int parts)
{
    tile t;
    int taps = (s.window.kernel_size + TAPS - 1) / TAPS, outs = (s.group_out + OUTS - 1) / OUTS;
    unsigned rest = blockIdx.x;
    t.part = (int)(rest % (unsigned)parts), rest /= (unsigned)parts;
    t.tap = (int)(rest % (unsigned)taps) * TAPS, rest /= (unsigned)taps;
    t.c = (int)(rest % (unsigned)s.group_in), rest /= (unsigned)s.group_in;
    t.out = (int)(rest % (unsigned)outs) * OUTS, rest /= (unsigned)outs;
    t.group = (int)rest;
    return t;
}

/* The three offsets of each tap, packed: 10 bits hold any kernel that anybody uses, and prepare checked. */
template <int TAPS> static __device__ void taps_of(const lki_cuda_window &w, int first, int (&packed)[TAPS])
{
#pragma unroll
    for (int j = 0; j < TAPS; j++) {
        int k[3];
        lki_cuda_unflatten(k, first + j, w.axis[1].kernel, w.axis[2].kernel);
        packed[j] = first + j < w.kernel_size ? k[0] | k[1] << 10 | k[2] << 20 : -1;
    }
}

/* The place that a tap reads, or -1. */
static __device__ int tap_place(const lki_cuda_window &w, const int begin[3], int packed)
{
    if (packed < 0) return -1;
    int s0 = begin[0] + (packed & 1023) * w.axis[0].dilation;
    int s1 = begin[1] + (packed >> 10 & 1023) * w.axis[1].dilation,
        s2 = begin[2] + (packed >> 20) * w.axis[2].dilation;
    bool in = (unsigned)s0 < (unsigned)w.axis[0].in && (unsigned)s1 < (unsigned)w.axis[1].in &&
              (unsigned)s2 < (unsigned)w.axis[2].in;
    return in ? (s0 * w.axis[1].in + s1) * w.axis[2].in + s2 : -1;
}

/* Adds up one thread's places. */
template <typename T, typename A, int OUTS, int TAPS>
static __device__ void add_places(const lki_cuda_conv_shape &s, const tile &t, int64_t begin, int64_t end,
                                  const T *dy, const T *x, A (&acc)[OUTS][TAPS], A (&sums)[OUTS])
{
    const lki_cuda_window &w = s.window;
    int packed[TAPS];
    taps_of<TAPS>(w, t.tap, packed);
    for (int64_t i = begin + threadIdx.x; i < end; i += THREADS) {
        int place, p[3], from[3];
        int64_t n = lki_cuda_divide(i, w.out_size, &place);
        lki_cuda_unflatten(p, place, w.axis[1].out, w.axis[2].out);
        for (int d = 0; d < 3; d++) from[d] = p[d] * w.axis[d].stride - w.axis[d].padding;
        const T *left = dy + (n * s.out_channels + t.group * s.group_out + t.out) * w.out_size + place;
        const T *right = x + (n * s.in_channels + t.group * s.group_in + t.c) * w.in_size;
        A g[OUTS];
#pragma unroll
        for (int j = 0; j < OUTS; j++) {
            g[j] = t.out + j < s.group_out ? A(left[(int64_t)j * w.out_size]) : A(0);
            sums[j] += g[j];
        }
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            int at = tap_place(w, from, packed[k]);
            A value = at >= 0 ? A(right[at]) : A(0);
#pragma unroll
            for (int j = 0; j < OUTS; j++) acc[j][k] += at >= 0 ? g[j] * value : A(0);
        }
    }
}

template <typename A> static __device__ A warp_sum(A sum)
{
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
}

template <typename T, int OUTS, int TAPS>
static __global__ void __launch_bounds__(THREADS)
    weight_kernel(lki_cuda_conv_shape s, lki_cuda_conv_operands o, int parts, int64_t span,
                  typename lki_cuda_wide<T>::type *partial)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ A shared[WARPS][OUTS * TAPS + OUTS];
    tile t = tile_of<OUTS, TAPS>(s, parts);
    int64_t begin = t.part * span, places = s.batch * s.window.out_size, end = min(begin + span, places);
    A acc[OUTS][TAPS] = {}, sums[OUTS] = {};
    add_places<T, A, OUTS, TAPS>(s, t, begin, end, (const T *)o.left, (const T *)o.right, acc, sums);
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < OUTS; j++) {
#pragma unroll
        for (int k = 0; k < TAPS; k++) {
            A sum = warp_sum(acc[j][k]);
            if (lane == 0) shared[warp][j * TAPS + k] = sum;
        }
        A sum = warp_sum(sums[j]);
        if (lane == 0) shared[warp][OUTS * TAPS + j] = sum;
    }
    __syncthreads();
    int i = (int)threadIdx.x;
    if (i >= OUTS * TAPS + OUTS) return;
    A sum = shared[0][i];
    for (int r = 1; r < WARPS; r++) sum += shared[r][i];
    bool is_sum = i >= OUTS * TAPS;
    int out = t.out + (is_sum ? i - OUTS * TAPS : i / TAPS), tap = t.tap + i % TAPS;
    if (out >= s.group_out || (is_sum ? !o.sums || t.c || t.tap : tap >= s.window.kernel_size)) return;
    out += t.group * s.group_out;
    int64_t at = ((int64_t)out * s.group_in + t.c) * s.window.kernel_size + tap;
    int64_t weights = (int64_t)s.out_channels * s.group_in * s.window.kernel_size;
    if (parts > 1)
        partial[t.part * (weights + s.out_channels) + (is_sum ? weights + out : at)] = sum;
    else if (is_sum)
        lki_cuda_conv_store_sum<T, A>(o, out, sum);
    else
        lki_cuda_conv_store<T, A>(o, at, 0, sum);
}

/* Adds the parts up in order: 32 elements a block, 8 threads each. */
template <typename T>
static __global__ void join_kernel(int64_t weights, int channels, lki_cuda_conv_operands o, int parts,
                                   const typename lki_cuda_wide<T>::type *partial)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ A shared[8][32];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32;
    int64_t i = blockIdx.x * (int64_t)32 + lane, step = weights + channels;
    bool in = i < weights + (o.sums ? channels : 0);
    A sum = 0;
    for (int p = group; p < parts && in; p += 8) sum += partial[p * step + i];
    shared[group][lane] = sum;
    __syncthreads();
    if (group || !in) return;
    for (int g = 1; g < 8; g++) sum += shared[g][lane];
    if (i >= weights)
        lki_cuda_conv_store_sum<T, A>(o, (int)(i - weights), sum);
    else
        lki_cuda_conv_store<T, A>(o, i, 0, sum);
}

/* ---- Launches ---- */

typedef struct tiling {
    int outs, taps;
} tiling;

static tiling tiling_of(const lki_cuda_conv_shape *s)
{
    int outs = s->group_out % 6 == 0 ? 6 : s->group_out > 1 ? 4 : 1;
    int taps = s->window.kernel_size % 9 == 0 ? 9 : s->window.kernel_size > 1 ? 8 : 1;
    return {outs, taps};
}

static int64_t tiles_of(const lki_cuda_conv_shape *s)
{
    tiling t = tiling_of(s);
    return (int64_t)s->groups * ((s->group_out + t.outs - 1) / t.outs) * s->group_in *
           ((s->window.kernel_size + t.taps - 1) / t.taps);
}

void lki_cuda_plan_weight(const lki_cuda *cuda, lki_cuda_conv *conv, size_t *scratch_nbytes)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    int64_t places = s->batch * s->window.out_size, tiles = tiles_of(s), parts = 1;
    if (tiles > 0) parts = 8 * (int64_t)cuda->processor_count / tiles;
    if (parts > places / (4 * THREADS)) parts = places / (4 * THREADS);
    conv->parts = parts < 2 ? 1 : (int)parts;
    conv->span = (places + conv->parts - 1) / conv->parts;
    size_t wide = conv->dtype == LK_F64 ? sizeof(double) : sizeof(float);
    size_t elements = (size_t)(lki_cuda_conv_weight_count(s) + s->out_channels);
    *scratch_nbytes = conv->parts > 1 ? elements * wide * (size_t)conv->parts : 0;
}

template <typename T, int OUTS, int TAPS>
static void launch(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o, void *scratch)
{
    using A = typename lki_cuda_wide<T>::type;
    const lki_cuda_conv_shape &s = conv->shape;
    unsigned blocks = (unsigned)(tiles_of(&s) * conv->parts);
    weight_kernel<T, OUTS, TAPS>
        <<<blocks, THREADS, 0, cuda->compute>>>(s, *o, conv->parts, conv->span, (A *)scratch);
    if (conv->parts <= 1) return;
    int64_t weights = lki_cuda_conv_weight_count(&s), all = weights + s.out_channels;
    join_kernel<T><<<(unsigned)((all + 31) / 32), 256, 0, cuda->compute>>>(weights, s.out_channels, *o,
                                                                           conv->parts, (const A *)scratch);
}

template <typename T, int OUTS>
static void pick(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o, void *scratch)
{
    switch (tiling_of(&conv->shape).taps) {
    case 9: launch<T, OUTS, 9>(cuda, conv, o, scratch); break;
    case 8: launch<T, OUTS, 8>(cuda, conv, o, scratch); break;
    default: launch<T, OUTS, 1>(cuda, conv, o, scratch); break;
    }
}

template <typename T>
static void pick_outs(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                      void *scratch)
{
    switch (tiling_of(&conv->shape).outs) {
    case 6: pick<T, 6>(cuda, conv, o, scratch); break;
    case 4: pick<T, 4>(cuda, conv, o, scratch); break;
    default: pick<T, 1>(cuda, conv, o, scratch); break;
    }
}

lk_status lki_cuda_run_weight(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                              void *scratch)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    if (lki_cuda_conv_weight_count(s) == 0 || !o->to)
        return o->sums ? lki_cuda_conv_sums(cuda, conv, o) : LK_OK;
    for (int i = 0; i < 3; i++)
        if (s->window.axis[i].kernel > 1023)
            return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                                 "the cuda engine has no kernel for the weight of a window of %d",
                                 s->window.axis[i].kernel);
    if (tiles_of(s) * conv->parts > INT32_MAX)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for a weight of %lld elements",
                             (long long)lki_cuda_conv_weight_count(s));
    LKI_CUDA_FLOAT_SWITCH(conv->dtype, T, pick_outs<T>(cuda, conv, o, scratch));
    LKI_LAUNCHED();
    return LK_OK;
}
