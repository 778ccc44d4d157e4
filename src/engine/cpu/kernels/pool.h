/* Pooling of planes. Output columns go through the lanes of a vector; a tap's inputs are a strided run of a
 * row. */
#ifndef LKI_CPU_KERNELS_POOL_H
#define LKI_CPU_KERNELS_POOL_H

#include "engine/cpu/kernels/conv.h"

INLINE vint lane_numbers(void)
{
    vint lanes;
    for (int i = 0; i < VN; i++) lanes[i] = i;
    return lanes;
}

/* True in the lanes [low, high). */
INLINE vmask lanes_between(int64_t low, int64_t high)
{
#if LKI_SIMD == 512
    return (__mmask16)(((1u << high) - 1) & ~((1u << low) - 1));
#else
    vint lanes = lane_numbers();
    return (lanes >= v_set_int((int)low)) & (lanes < v_set_int((int)high));
#endif
}

/* p[lane * stride] in the lanes [low, high), and nothing read elsewhere. */
INLINE v load_strided(const float *p, int64_t stride, int64_t low, int64_t high)
{
#if LKI_SIMD == 512
    if (stride == 1) return (v)_mm512_maskz_loadu_ps(lanes_between(low, high), p);
    if (stride == 2) {
        const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
        uint64_t mask = ((UINT64_C(1) << (2 * high - 1)) - 1) & ~((UINT64_C(1) << (2 * low)) - 1);
        __m512 first = _mm512_maskz_loadu_ps((__mmask16)mask, p);
        __m512 second = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), p + 16);
        return (v)_mm512_permutex2var_ps(first, even, second);
    }
#endif
    float lane[VN] = {0};
    for (int64_t i = low; i < high; i++) lane[i] = p[i * stride];
    return v_load(lane);
}

INLINE void store_int_n(int32_t *p, vint a, int64_t n)
{
    v_store_n((float *)(void *)p, (v)a, n);
}

/* The largest so far and where it is; a lane that has seen nothing has place -1. */
typedef struct winner {
    v value;
    vint place;
} winner;

/* The first of equals stays, a NaN takes over. */
INLINE void contend(winner *w, v x, vint place, vmask valid)
{
#if LKI_SIMD == 512
    vmask empty = _mm512_movepi32_mask((__m512i)w->place);
    vmask wins = valid & (v_less(w->value, x) | v_unequal(x, x) | empty);
#else
    vmask empty = w->place < 0;
    vmask wins = valid & (v_less(w->value, x) | v_unequal(x, x) | empty);
#endif
    w->value = v_select(wins, x, w->value);
    w->place = (vint)v_select(wins, (v)place, (v)w->place);
}

/* Windows of any width; those of up to eight columns have their taps at hand. */
typedef struct tap_list {
    tap known[8];
} tap_list;

INLINE void fill_taps(tap_list *list, const lki_conv *c)
{
    for (int64_t kx = 0; kx < c->kernel[2] && kx < 8; kx++) list->known[kx] = tap_of(c, kx);
}

/* Calls `body` for each tap of the output columns [begin, begin + n) of row (z, y) that exists in some lane:
 * from is the flat place that lane 0 reads, [low, high) the lanes whose input exists. */
#define FOR_EACH_TAP(c, list, z, y, begin, n, body)                                                          \
    for (int64_t kz = 0, iz = (z) * (c)->stride[0] - (c)->padding[0]; kz < (c)->kernel[0];                   \
         kz++, iz += (c)->dilation[0]) {                                                                     \
        if (iz < 0 || iz >= (c)->in[0]) continue;                                                            \
        for (int64_t ky = 0, iy = (y) * (c)->stride[1] - (c)->padding[1]; ky < (c)->kernel[1];               \
             ky++, iy += (c)->dilation[1]) {                                                                 \
            if (iy < 0 || iy >= (c)->in[1]) continue;                                                        \
            int64_t row_at = (iz * (c)->in[1] + iy) * (c)->in[2] + (begin) * (c)->stride[2];                 \
            for (int64_t kx = 0; kx < (c)->kernel[2]; kx++) {                                                \
                tap t = kx < 8 ? (list)->known[kx] : tap_of(c, kx);                                          \
                int64_t low = clip_to(t.low - (begin), 0, n), high = clip_to(t.high - (begin), low, n);      \
                int64_t from = row_at + t.shift;                                                             \
                if (low < high) body;                                                                        \
            }                                                                                                \
        }                                                                                                    \
    }

#if LKI_SIMD == 512
/* The even bits of 32, closed up. */
INLINE __mmask16 even_bits(uint32_t bits)
{
    bits &= 0x55555555;
    bits = (bits | bits >> 1) & 0x33333333;
    bits = (bits | bits >> 2) & 0x0f0f0f0f;
    bits = (bits | bits >> 4) & 0x00ff00ff;
    return (__mmask16)(bits | bits >> 8);
}

/* Sixteen windows of two columns with stride 2, side by side: which of their columns exist. */
typedef struct window_pairs {
    uint32_t mask;         /* of the 32 columns from `from` on */
    __mmask16 even, odd;   /* the same for first and second columns */
    int64_t from;          /* the first one's place in its row, perhaps in the padding */
    __m512i places, first; /* of the first columns, and of each window's first column that exists */
} window_pairs;

INLINE window_pairs window_pairs_of(const lki_conv *c, int64_t begin, int64_t n)
{
    window_pairs p = {.mask = pair_mask(c, begin, n), .from = 2 * begin - c->padding[2]};
    p.even = even_bits(p.mask);
    p.odd = even_bits(p.mask >> 1);
    p.places = _mm512_add_epi32((__m512i)(lane_numbers() * 2), _mm512_set1_epi32((int)p.from));
    p.first = _mm512_mask_add_epi32(p.places, (__mmask16)~p.even, p.places, _mm512_set1_epi32(1));
    return p;
}

INLINE void contend_pairs(__m512 *best, __m512i *place, __m512 x, __m512i at, __mmask16 valid)
{
    __mmask16 wins = _mm512_mask_cmp_ps_mask(valid, x, *best, _CMP_GT_OQ) |
                     _mm512_mask_cmp_ps_mask(valid, x, x, _CMP_UNORD_Q);
    *best = _mm512_mask_mov_ps(*best, wins, x);
    *place = _mm512_mask_mov_epi32(*place, wins, at);
}

/* Rows [low, high) of an axis that the window at `place` covers, in steps of the dilation. */
typedef struct cover {
    int64_t low, high;
} cover;

INLINE cover cover_of(const lki_conv *c, int axis, int64_t place)
{
    int64_t step = c->dilation[axis], low = place * c->stride[axis] - c->padding[axis];
    int64_t high = low + (c->kernel[axis] - 1) * step + 1;
    if (low < 0) low = step == 1 ? 0 : low + (-low + step - 1) / step * step;
    return (cover){low, high < c->in[axis] ? high : c->in[axis]};
}

/* Sixteen windows at once, with nothing to decide inside: a window that has seen nothing larger than -inf
 * answers with its first place, one that lies in the padding altogether with -1. */
static void max_pool_pairs(float *y, int32_t *index, const lki_conv *c, const float *x, int64_t begin)
{
    int64_t n = c->out[2] - begin < VN ? c->out[2] - begin : VN, at = begin;
    const __mmask16 kept = (__mmask16)((1u << n) - 1);
    const window_pairs p = window_pairs_of(c, begin, n);
    for (int64_t oz = 0; oz < c->out[0]; oz++) {
        const cover zs = cover_of(c, 0, oz);
        for (int64_t oy = 0; oy < c->out[1]; oy++, at += c->out[2]) {
            const cover ys = cover_of(c, 1, oy);
            int64_t row = (zs.low * c->in[1] + ys.low) * c->in[2];
            __m512 best = _mm512_set1_ps(-INFINITY);
            __mmask16 any = zs.low < zs.high && ys.low < ys.high ? p.even | p.odd : 0;
            __m512i place =
                _mm512_mask_add_epi32(_mm512_set1_epi32(-1), any, p.first, _mm512_set1_epi32((int)row));
            for (int64_t iz = zs.low; iz < zs.high; iz += c->dilation[0])
                for (int64_t iy = ys.low; iy < ys.high; iy += c->dilation[1]) {
                    row = (iz * c->in[1] + iy) * c->in[2];
                    __m512 a = _mm512_maskz_loadu_ps((__mmask16)p.mask, x + row + p.from);
                    __m512 b = _mm512_maskz_loadu_ps((__mmask16)(p.mask >> 16), x + row + p.from + 16);
                    __m512i here = _mm512_add_epi32(p.places, _mm512_set1_epi32((int)row));
                    contend_pairs(&best, &place, pick(a, b, 0), here, p.even);
                    here = _mm512_add_epi32(here, _mm512_set1_epi32(1));
                    contend_pairs(&best, &place, pick(a, b, 1), here, p.odd);
                }
            if (y) _mm512_mask_storeu_ps(y + at, kept, best);
            if (index) _mm512_mask_storeu_epi32(index + at, kept, place);
        }
    }
}
#endif

static void max_pool_plane(float *y, int32_t *index, const lki_conv *c, const float *x)
{
#if LKI_SIMD == 512
    if (c->kernel[2] == 2 && c->stride[2] == 2 && c->dilation[2] == 1) {
        for (int64_t begin = 0; begin < c->out[2]; begin += VN) max_pool_pairs(y, index, c, x, begin);
        return;
    }
#endif
    int64_t width = c->out[2], stride = c->stride[2], at = 0;
    vint steps = lane_numbers() * (int32_t)stride;
    tap_list taps;
    fill_taps(&taps, c);
    for (int64_t oz = 0; oz < c->out[0]; oz++)
        for (int64_t oy = 0; oy < c->out[1]; oy++, at += width)
            for (int64_t begin = 0; begin < width; begin += VN) {
                int64_t n = width - begin < VN ? width - begin : VN;
                winner w = {v_set(-INFINITY), v_set_int(-1)};
                FOR_EACH_TAP(c, &taps, oz, oy, begin, n,
                             contend(&w, load_strided(x + from, stride, low, high), steps + (int32_t)from,
                                     lanes_between(low, high)))
                if (y) v_store_n(y + at + begin, w.value, n);
                if (index) store_int_n(index + at + begin, w.place, n);
            }
}

/* Sums of windows, not yet divided. */
static void sum_pool_plane(float *y, const lki_conv *c, const float *x)
{
    int64_t width = c->out[2], stride = c->stride[2], at = 0;
    tap_list taps;
    fill_taps(&taps, c);
    for (int64_t oz = 0; oz < c->out[0]; oz++)
        for (int64_t oy = 0; oy < c->out[1]; oy++, at += width)
            for (int64_t begin = 0; begin < width; begin += VN) {
                int64_t n = width - begin < VN ? width - begin : VN;
                v total = v_set(0.0f);
                FOR_EACH_TAP(c, &taps, oz, oy, begin, n, total += load_strided(x + from, stride, low, high))
                v_store_n(y + at + begin, total, n);
            }
}

#endif
