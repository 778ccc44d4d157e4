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

static void max_pool_plane(float *y, int32_t *index, const lki_conv *c, const float *x)
{
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
