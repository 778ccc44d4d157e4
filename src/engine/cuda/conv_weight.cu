/* The gradient of a convolution's weight straight from the definition.
 *
 *     dw[o, c, k] = sum over n, p of dy[n, o, p] x[n, c, p stride - padding + k dilation]
 *
 * A block has a tile of OUTS o by TAPS k of INS c, over one part of all (n, p): each number that is loaded
 * serves a row or a column of the tile. Of the blocks that share a tile, the last to finish adds up what all
 * have left, in order. */
#include "engine/cuda/conv.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, GROUPS = THREADS / 64 };

/* What all blocks share. */
typedef struct job {
    lki_cuda_divisor size, height, width; /* of the output side */
    int parts;
    int64_t span;
    unsigned *tickets; /* one a tile */
} job;

/* Which tile a block has. */
typedef struct tile {
    int group, out, c, tap; /* out: the first within its group; tap: the first */
    int part, number;
} tile;

template <int OUTS, int TAPS, int INS> static __device__ tile tile_of(const lki_cuda_conv_shape &s, int parts)
{
    tile t;
    int taps = (s.window.kernel_size + TAPS - 1) / TAPS, outs = (s.group_out + OUTS - 1) / OUTS;
    unsigned rest = blockIdx.x;
    t.part = (int)(rest % (unsigned)parts), rest /= (unsigned)parts;
    t.number = (int)rest;
    t.tap = (int)(rest % (unsigned)taps) * TAPS, rest /= (unsigned)taps;
    t.c = (int)(rest % (unsigned)(s.group_in / INS)) * INS, rest /= (unsigned)(s.group_in / INS);
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

/* The places that the taps read. A kernel of 2 by 2 by 2 (CUBE) asks each axis once. */
template <int TAPS, bool CUBE>
static __device__ void tap_places(const lki_cuda_window &w, const int begin[3], const int (&packed)[TAPS],
                                  int (&at)[TAPS])
{
    if (!CUBE) {
#pragma unroll
        for (int k = 0; k < TAPS; k++) at[k] = tap_place(w, begin, packed[k]);
        return;
    }
    bool in[3][2];
    int first = (begin[0] * w.axis[1].in + begin[1]) * w.axis[2].in + begin[2], step[3];
    for (int d = 0; d < 3; d++) {
        in[d][0] = (unsigned)begin[d] < (unsigned)w.axis[d].in;
        in[d][1] = (unsigned)(begin[d] + w.axis[d].dilation) < (unsigned)w.axis[d].in;
    }
    step[2] = w.axis[2].dilation;
    step[1] = w.axis[1].dilation * w.axis[2].in;
    step[0] = w.axis[0].dilation * w.axis[1].in * w.axis[2].in;
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
        bool all = in[0][k >> 2 & 1] && in[1][k >> 1 & 1] && in[2][k & 1];
        at[k] = all ? first + (k >> 2 & 1) * step[0] + (k >> 1 & 1) * step[1] + (k & 1) * step[2] : -1;
    }
}

/* What one place adds: the gradients there, and what the taps read. */
template <typename A, int OUTS, int TAPS, int INS> struct terms {
    A g[OUTS], value[INS][TAPS];
    unsigned in; /* bit k: tap k reads something */
};

template <typename T, typename A, int OUTS, int TAPS, int INS, bool CUBE>
static __device__ void load_terms(const lki_cuda_conv_shape &s, const job &b, const tile &t, const T *dy,
                                  const T *x, const int (&packed)[TAPS], int64_t i,
                                  terms<A, OUTS, TAPS, INS> &to)
{
    const lki_cuda_window &w = s.window;
    int place, row, p[3], from[3], at[TAPS];
    int64_t n = lki_cuda_split(b.size, i, &place);
    row = lki_cuda_quotient(b.width, place, &p[2]);
    p[0] = lki_cuda_quotient(b.height, row, &p[1]);
    for (int d = 0; d < 3; d++) from[d] = p[d] * w.axis[d].stride - w.axis[d].padding;
    tap_places<TAPS, CUBE>(w, from, packed, at);
    const T *left = dy + (n * s.out_channels + t.group * s.group_out + t.out) * w.out_size + place;
    const T *right = x + (n * s.in_channels + t.group * s.group_in + t.c) * w.in_size;
    to.in = 0;
#pragma unroll
    for (int j = 0; j < OUTS; j++)
        to.g[j] = t.out + j < s.group_out ? A(left[(int64_t)j * w.out_size]) : A(0);
#pragma unroll
    for (int k = 0; k < TAPS; k++) to.in |= (unsigned)(at[k] >= 0) << k;
#pragma unroll
    for (int k = 0; k < INS * TAPS; k++)
        to.value[k / TAPS][k % TAPS] =
            at[k % TAPS] >= 0 ? A(right[(int64_t)(k / TAPS) * w.in_size + at[k % TAPS]]) : A(0);
}

template <typename A, int OUTS, int TAPS, int INS, int COUNT>
static __device__ void add_terms(const terms<A, OUTS, TAPS, INS> &v, A (&sum)[INS][COUNT])
{
#pragma unroll
    for (int k = 0; k < INS * TAPS; k++)
#pragma unroll
        for (int j = 0; j < OUTS; j++)
            if (v.in >> k % TAPS & 1)
                sum[k / TAPS][j * TAPS + k % TAPS] += v.g[j] * v.value[k / TAPS][k % TAPS];
#pragma unroll
    for (int j = 0; j < OUTS; j++) sum[0][OUTS * TAPS + j] += v.g[j];
}

/* Adds up one thread's places: for each c the tile at j * TAPS + k, then (for the first) the sums of dy. Of
 * several c the next place is on its way meanwhile. */
template <typename T, typename A, int OUTS, int TAPS, int INS, bool CUBE, int COUNT>
static __device__ void add_places(const lki_cuda_conv_shape &s, const job &b, const tile &t, const T *dy,
                                  const T *x, A (&sum)[INS][COUNT])
{
    int packed[TAPS];
    if (!CUBE) taps_of<TAPS>(s.window, t.tap, packed);
    int64_t begin = t.part * b.span, end = min(begin + b.span, s.batch * s.window.out_size),
            i = begin + threadIdx.x;
    terms<A, OUTS, TAPS, INS> now, next;
    if (INS == 1) {
#pragma unroll 2
        for (; i < end; i += THREADS) {
            load_terms<T, A, OUTS, TAPS, INS, CUBE>(s, b, t, dy, x, packed, i, now);
            add_terms(now, sum);
        }
        return;
    }
    if (i < end) load_terms<T, A, OUTS, TAPS, INS, CUBE>(s, b, t, dy, x, packed, i, now);
#pragma unroll 2
    for (; i < end; i += THREADS) {
        if (i + THREADS < end)
            load_terms<T, A, OUTS, TAPS, INS, CUBE>(s, b, t, dy, x, packed, i + THREADS, next);
        add_terms(now, sum);
        now = next;
    }
}

/* Adds COUNT numbers up over a warp, each lane keeping its half of what is left at every step: with BIT 16
 * lane l ends with the sums of numbers l PER to l PER + PER - 1, where PER is COUNT / 32. */
template <typename A, int COUNT, int HALF, int BIT> static __device__ void share_sums(A (&value)[COUNT])
{
    bool upper = (int)threadIdx.x & BIT;
#pragma unroll
    for (int i = 0; i < HALF; i++) {
        A sent = upper ? value[i] : value[i + HALF], kept = upper ? value[i + HALF] : value[i];
        value[i] = kept + __shfl_xor_sync(~0u, sent, BIT);
    }
    if constexpr (BIT > 1) share_sums<A, COUNT, HALF / 2, BIT / 2>(value);
}

/* Element i of a tile's c number `in` is complete. */
template <typename T, typename A, int OUTS, int TAPS>
static __device__ void store(const lki_cuda_conv_shape &s, const lki_cuda_conv_operands &o, const tile &t,
                             int in, int i, A sum)
{
    bool is_sum = i >= OUTS * TAPS;
    int out = t.out + (is_sum ? i - OUTS * TAPS : i / TAPS), tap = t.tap + i % TAPS;
    if (out >= s.group_out) return;
    out += t.group * s.group_out;
    if (!is_sum && tap < s.window.kernel_size)
        lki_cuda_conv_store<T, A>(o, ((int64_t)out * s.group_in + t.c + in) * s.window.kernel_size + tap, 0,
                                  sum);
    if (is_sum && o.sums && !in && !t.c && !t.tap) lki_cuda_conv_store_sum<T, A>(o, out, sum);
}

/* Adds up what the warps have of a tile; the sums are in the first USED threads. */
template <typename A, int USED, int COUNT> static __device__ A join_warps(A (&sum)[COUNT])
{
    constexpr int PER = COUNT / 32;
    __shared__ A shared[WARPS][COUNT];
    int thread = (int)threadIdx.x;
    share_sums<A, COUNT, COUNT / 2, 16>(sum);
    __syncthreads(); /* an earlier tile may still be being read */
#pragma unroll
    for (int i = 0; i < PER; i++) shared[thread / 32][thread % 32 * PER + i] = sum[i];
    __syncthreads();
    A total = 0;
    for (int r = 0; r < WARPS && thread < USED; r++) total += shared[r][thread];
    return total;
}

/* The same of what the parts have left, of all INS c at once: GROUPS threads an element, in order. */
template <typename A, int USED, int INS>
static __device__ void join_parts(const A *partial, int parts, A (&total)[INS])
{
    __shared__ A shared[GROUPS][INS][64];
    int element = (int)threadIdx.x % 64, group = (int)threadIdx.x / 64;
#pragma unroll
    for (int e = 0; e < INS; e++) total[e] = 0;
    if (element < USED)
#pragma unroll 8
        for (int p = group; p < parts; p += GROUPS)
#pragma unroll
            for (int e = 0; e < INS; e++)
                total[e] += __ldcg(partial + ((int64_t)e * parts + p) * USED + element);
#pragma unroll
    for (int e = 0; e < INS; e++) shared[group][e][element] = total[e];
    __syncthreads();
    for (int r = 1; r < GROUPS && group == 0; r++)
#pragma unroll
        for (int e = 0; e < INS; e++) total[e] += shared[r][e][element];
}

template <typename T, int OUTS, int TAPS, int INS, bool CUBE>
static __global__ void __launch_bounds__(THREADS, sizeof(T) == 8 || INS > 1 ? 1 : 2)
    weight_kernel(lki_cuda_conv_shape s, lki_cuda_conv_operands o, job b,
                  typename lki_cuda_wide<T>::type *partial)
{
    using A = typename lki_cuda_wide<T>::type;
    constexpr int USED = OUTS * TAPS + OUTS, COUNT = USED <= 32 ? 32 : 64;
    tile t = tile_of<OUTS, TAPS, INS>(s, b.parts);
    int thread = (int)threadIdx.x;
    A sum[INS][COUNT] = {};
    add_places<T, A, OUTS, TAPS, INS, CUBE, COUNT>(s, b, t, (const T *)o.left, (const T *)o.right, sum);
    partial += (int64_t)t.number * INS * b.parts * USED;
#pragma unroll
    for (int e = 0; e < INS; e++) {
        A total = join_warps<A, USED, COUNT>(sum[e]);
        if (thread < USED && b.parts > 1) partial[((int64_t)e * b.parts + t.part) * USED + thread] = total;
        if (thread < USED && b.parts == 1) store<T, A, OUTS, TAPS>(s, o, t, e, thread, total);
    }
    if (b.parts == 1 || !lki_cuda_is_last(&b.tickets[t.number], (unsigned)b.parts)) return;
    A total[INS];
    join_parts<A, USED, INS>(partial, b.parts, total);
#pragma unroll
    for (int e = 0; e < INS; e++)
        if (thread < USED) store<T, A, OUTS, TAPS>(s, o, t, e, thread, total[e]);
}

/* ---- Launches ---- */

typedef struct tiling {
    int outs, taps, ins;
} tiling;

/* Many places: a thread takes three channels, for which it looks at a place once. */
enum { MANY_PLACES = 1 << 15 };

static bool is_cube(const lki_cuda_window *w)
{
    return w->axis[0].kernel == 2 && w->axis[1].kernel == 2 && w->axis[2].kernel == 2;
}

static tiling tiling_of(const lki_cuda_conv *conv)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    int outs = s->group_out % 6 == 0 ? 6 : s->group_out > 1 ? 4 : 1;
    int taps = s->window.kernel_size % 9 == 0 ? 9 : s->window.kernel_size > 1 ? 8 : 1;
    bool three = conv->dtype != LK_F64 && outs == 6 && is_cube(&s->window) && s->group_in % 3 == 0 &&
                 s->batch * s->window.out_size >= MANY_PLACES;
    return {outs, taps, three ? 3 : 1};
}

static int64_t tiles_of(const lki_cuda_conv *conv)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    tiling t = tiling_of(conv);
    return (int64_t)s->groups * ((s->group_out + t.outs - 1) / t.outs) * (s->group_in / t.ins) *
           ((s->window.kernel_size + t.taps - 1) / t.taps);
}

void lki_cuda_plan_weight(lki_cuda *cuda, lki_cuda_conv *conv, size_t *scratch_nbytes)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    tiling t = tiling_of(conv);
    int64_t places = s->batch * s->window.out_size, tiles = tiles_of(conv), parts = 1;
    if (tiles > 0) parts = (t.ins > 1 ? 1 : 2) * (int64_t)cuda->processor_count / tiles;
    if (parts > places / (2 * THREADS)) parts = places / (2 * THREADS);
    conv->parts = parts < 2 ? 1 : (int)parts;
    conv->span = (places + conv->parts - 1) / conv->parts;
    size_t wide = conv->dtype == LK_F64 ? sizeof(double) : sizeof(float);
    *scratch_nbytes = 0;
    if (conv->parts == 1) return;
    *scratch_nbytes = (size_t)(tiles * conv->parts * t.ins * t.outs * (t.taps + 1)) * wide;
    conv->tickets = lki_cuda_take_tickets(cuda, (int)tiles);
}

template <typename T, int OUTS, int TAPS, int INS, bool CUBE>
static void launch(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o, void *scratch)
{
    using A = typename lki_cuda_wide<T>::type;
    const lki_cuda_conv_shape &s = conv->shape;
    const lki_cuda_window &w = s.window;
    job b = {lki_cuda_divisor_of(w.out_size),
             lki_cuda_divisor_of(w.axis[1].out),
             lki_cuda_divisor_of(w.axis[2].out),
             conv->parts,
             conv->span,
             conv->tickets};
    unsigned blocks = (unsigned)(tiles_of(conv) * conv->parts);
    weight_kernel<T, OUTS, TAPS, INS, CUBE><<<blocks, THREADS, 0, cuda->compute>>>(s, *o, b, (A *)scratch);
}

template <typename T, int OUTS>
static void pick(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o, void *scratch)
{
    tiling t = tiling_of(conv);
    bool cube = is_cube(&conv->shape.window);
    if (t.taps == 9)
        launch<T, OUTS, 9, 1, false>(cuda, conv, o, scratch);
    else if (t.taps == 1)
        launch<T, OUTS, 1, 1, false>(cuda, conv, o, scratch);
    else if (cube && t.ins == 3)
        launch<T, OUTS, 8, OUTS == 6 && sizeof(T) < 8 ? 3 : 1, true>(cuda, conv, o, scratch);
    else if (cube)
        launch<T, OUTS, 8, 1, true>(cuda, conv, o, scratch);
    else
        launch<T, OUTS, 8, 1, false>(cuda, conv, o, scratch);
}

template <typename T>
static void pick_outs(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                      void *scratch)
{
    switch (tiling_of(conv).outs) {
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
    if (tiles_of(conv) * conv->parts > INT32_MAX)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for a weight of %lld elements",
                             (long long)lki_cuda_conv_weight_count(s));
    LKI_CUDA_FLOAT_SWITCH(conv->dtype, T, pick_outs<T>(cuda, conv, o, scratch));
    LKI_LAUNCHED();
    return LK_OK;
}
