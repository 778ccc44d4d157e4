/* Pooling of planes. Output columns go through the lanes of a vector; a tap's inputs are a strided run of a
 * row. The blocked forms have the sixteen channels of a block side by side, which go through the lanes
 * instead. */
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

/* Columns [begin, begin + n), n <= VN, of output row `row` of one plane. */
INLINE winner max_of_columns(const lki_conv *c, const float *x, int64_t row, int64_t begin, int64_t n)
{
    winner w = {v_set(-INFINITY), v_set_int(-1)};
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], stride = c->stride[2];
    vint steps = lane_numbers() * (int32_t)stride;
    for (int64_t k = 0; k < taps; k++) {
        tap t = tap_of(c, k);
        int64_t from = input_row(c, &t, row), low = clip_to(t.low - begin, 0, n),
                high = clip_to(t.high - begin, low, n);
        if (from < 0 || low >= high) continue;
        int64_t first = from * c->in[2] + begin * stride + t.shift;
        contend(&w, load_strided(x + first, stride, low, high), steps + (int32_t)first,
                lanes_between(low, high));
    }
    return w;
}

static void max_pool_plane(float *y, int32_t *index, const lki_conv *c, const float *x)
{
    int64_t rows = c->out[0] * c->out[1], width = c->out[2];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t begin = 0; begin < width; begin += VN) {
            int64_t n = width - begin < VN ? width - begin : VN;
            winner w = max_of_columns(c, x, row, begin, n);
            if (y) v_store_n(y + row * width + begin, w.value, n);
            if (index) store_int_n(index + row * width + begin, w.place, n);
        }
}

/* Sums of windows, not yet divided. */
static void sum_pool_plane(float *y, const lki_conv *c, const float *x)
{
    int64_t rows = c->out[0] * c->out[1], width = c->out[2],
            taps = c->kernel[0] * c->kernel[1] * c->kernel[2];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t begin = 0; begin < width; begin += VN) {
            int64_t n = width - begin < VN ? width - begin : VN;
            v total = v_set(0.0f);
            for (int64_t k = 0; k < taps; k++) {
                tap t = tap_of(c, k);
                int64_t from = input_row(c, &t, row), low = clip_to(t.low - begin, 0, n);
                int64_t high = clip_to(t.high - begin, low, n);
                if (from < 0 || low >= high) continue;
                total += load_strided(x + from * c->in[2] + begin * c->stride[2] + t.shift, c->stride[2], low,
                                      high);
            }
            v_store_n(y + row * width + begin, total, n);
        }
}

/* One block of 16 channels: x (in..., 16) to y, index (out..., 16). The places are those of the plane. */
static void max_pool_block(float *y, int32_t *index, const lki_conv *c, const float *x)
{
    int64_t at = 0;
    for (int64_t oz = 0; oz < c->out[0]; oz++)
        for (int64_t oy = 0; oy < c->out[1]; oy++)
            for (int64_t ox = 0; ox < c->out[2]; ox++, at += 16)
                for (int lane = 0; lane < 16; lane += VN) {
                    winner w = {v_set(-INFINITY), v_set_int(-1)};
                    int64_t z0 = oz * c->stride[0] - c->padding[0], y0 = oy * c->stride[1] - c->padding[1];
                    int64_t x0 = ox * c->stride[2] - c->padding[2];
                    for (int64_t kz = 0, iz = z0; kz < c->kernel[0]; kz++, iz += c->dilation[0])
                        for (int64_t ky = 0, iy = y0; ky < c->kernel[1]; ky++, iy += c->dilation[1])
                            for (int64_t kx = 0, ix = x0; kx < c->kernel[2]; kx++, ix += c->dilation[2]) {
                                if (iz < 0 || iz >= c->in[0] || iy < 0 || iy >= c->in[1] || ix < 0 ||
                                    ix >= c->in[2])
                                    continue;
                                int64_t place = (iz * c->in[1] + iy) * c->in[2] + ix;
                                contend(&w, v_load(x + place * 16 + lane), v_set_int((int32_t)place),
                                        lanes_between(0, VN));
                            }
                    if (y) v_store(y + at + lane, w.value);
                    if (index) store_int_n(index + at + lane, w.place, VN);
                }
}

#endif
