/* Between the input of a convolution and its columns: row (c, tap) of the columns holds, for each output
 * position, the input element that this tap of channel c reads there. A convolution is then a product of
 * matrices. */
#ifndef LKI_CPU_KERNELS_CONV_H
#define LKI_CPU_KERNELS_CONV_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/simd.h"

INLINE void copy_run(float *out, const float *in, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(out + i, v_load(in + i));
    if (i < n) v_store_n(out + i, v_load_n(in + i, n - i), n - i);
}

INLINE void zero_run(float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN) v_store(out + i, v_set(0.0f));
    if (i < n) v_store_n(out + i, v_set(0.0f), n - i);
}

/* out[i] = in[2 i]; reads nothing beyond in[2 n - 2]. */
INLINE void copy_run_by_two(float *out, const float *in, int64_t n)
{
    int64_t i = 0;
#if LKI_SIMD == 512
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    for (; i < n; i += 16) {
        int64_t left = n - i < 16 ? n - i : 16;
        uint32_t mask = (uint32_t)((UINT64_C(1) << (2 * left - 1)) - 1);
        __m512 low = _mm512_maskz_loadu_ps((__mmask16)mask, in + 2 * i);
        __m512 high = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), in + 2 * i + 16);
        _mm512_mask_storeu_ps(out + i, (__mmask16)((1u << left) - 1),
                              _mm512_permutex2var_ps(low, even, high));
    }
#endif
    for (; i < n; i++) out[i] = in[2 * i];
}

/* The output places of one row, as a range, whose tap falls inside of an axis of the input. */
INLINE void inside(const lki_conv *c, int axis, int64_t tap, int64_t *low, int64_t *high)
{
    int64_t start = tap * c->dilation[axis] - c->padding[axis], stride = c->stride[axis];
    int64_t first = start >= 0 ? 0 : (-start + stride - 1) / stride;
    int64_t last = c->in[axis] - 1 - start < 0 ? 0 : (c->in[axis] - 1 - start) / stride + 1;
    *low = first < c->out[axis] ? first : c->out[axis];
    *high = last < c->out[axis] ? last : c->out[axis];
    if (*high < *low) *high = *low;
}

typedef struct tap {
    int64_t at[3];     /* its place in the kernel */
    int64_t low, high; /* output columns whose input column exists */
    int64_t shift;     /* input column = output column * stride + shift */
} tap;

INLINE tap tap_of(const lki_conv *c, int64_t index)
{
    tap t = {.at = {index / (c->kernel[1] * c->kernel[2]), index / c->kernel[2] % c->kernel[1],
                    index % c->kernel[2]}};
    inside(c, 2, t.at[2], &t.low, &t.high);
    t.shift = t.at[2] * c->dilation[2] - c->padding[2];
    return t;
}

/* The input row that a tap reads for an output row, or -1 in the padding. */
INLINE int64_t input_row(const lki_conv *c, const tap *t, int64_t row)
{
    int64_t z = row / c->out[1] * c->stride[0] - c->padding[0] + t->at[0] * c->dilation[0];
    int64_t y = row % c->out[1] * c->stride[1] - c->padding[1] + t->at[1] * c->dilation[1];
    if (z < 0 || z >= c->in[0] || y < 0 || y >= c->in[1]) return -1;
    return z * c->in[1] + y;
}

INLINE int64_t clip_to(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Output columns [begin, begin + n) of one output row. */
INLINE void gather_run(float *out, const lki_conv *c, const tap *t, const float *in, int64_t begin, int64_t n)
{
    int64_t low = clip_to(t->low, begin, begin + n), high = clip_to(t->high, low, begin + n),
            stride = c->stride[2];
    if (low > begin) zero_run(out, low - begin);
    if (high < begin + n) zero_run(out + high - begin, begin + n - high);
    if (high <= low) return;
    const float *from = in + low * stride + t->shift;
    out += low - begin;
    if (stride == 1)
        copy_run(out, from, high - low);
    else if (stride == 2)
        copy_run_by_two(out, from, high - low);
    else
        for (int64_t i = 0; i < high - low; i++) out[i] = from[i * stride];
}

static void im2col(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0, int64_t p1)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], plane = c->in[0] * c->in[1] * c->in[2],
            width = c->out[2];
    for (int64_t k = 0; k < taps; k++) {
        tap t = tap_of(c, k);
        for (int64_t p = p0; p < p1;) {
            int64_t row = p / width, begin = p % width, n = width - begin < p1 - p ? width - begin : p1 - p;
            int64_t from = input_row(c, &t, row);
            float *out = col + k * col_row + p - p0;
            for (int64_t channel = 0; channel < c->channels; channel++, out += taps * col_row) {
                if (from < 0)
                    zero_run(out, n);
                else
                    gather_run(out, c, &t, x + channel * plane + from * c->in[2], begin, n);
            }
            p += n;
        }
    }
}

/* The other way: adds each element of the columns to the input element that it came from. */
static void col2im(float *x, const lki_conv *c, const float *col, int64_t col_row, int64_t p0, int64_t p1)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], plane = c->in[0] * c->in[1] * c->in[2],
            width = c->out[2];
    for (int64_t k = 0; k < taps; k++) {
        tap t = tap_of(c, k);
        for (int64_t p = p0; p < p1;) {
            int64_t row = p / width, begin = p % width, n = width - begin < p1 - p ? width - begin : p1 - p;
            int64_t to = input_row(c, &t, row), low = clip_to(t.low, begin, begin + n),
                    high = clip_to(t.high, low, begin + n);
            const float *in = col + k * col_row + p - p0 + low - begin;
            for (int64_t channel = 0; channel < c->channels && to >= 0; channel++, in += taps * col_row) {
                float *out = x + channel * plane + to * c->in[2] + low * c->stride[2] + t.shift;
                if (c->stride[2] == 1)
                    for (int64_t i = 0; i < high - low; i++) out[i] += in[i];
                else
                    for (int64_t i = 0; i < high - low; i++) out[i * c->stride[2]] += in[i];
            }
            p += n;
        }
    }
}

#endif
