/* Between the input of a convolution and its columns: row (c, tap) of the columns holds, for each output
 * position, the input element that this tap of channel c reads there. A convolution is then a product of
 * matrices. */
#ifndef LKI_CPU_KERNELS_CONV_H
#define LKI_CPU_KERNELS_CONV_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/conv_walk.h"
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

#if LKI_SIMD == 512
INLINE __m512 pick(__m512 first, __m512 second, int odd)
{
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(first, _mm512_add_epi32(even, _mm512_set1_epi32(odd)), second);
}

/* Both taps of a kernel row of two, with stride 2: the even and the odd elements of one run. What lies
 * outside of the row is masked away, which leaves the zeros of the padding. */
INLINE void gather_pair(float *out0, float *out1, const float *in, uint32_t mask, __mmask16 kept)
{
    __m512 first = _mm512_maskz_loadu_ps((__mmask16)mask, in);
    __m512 second = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), in + 16);
    _mm512_mask_storeu_ps(out0, kept, pick(first, second, 0));
    _mm512_mask_storeu_ps(out1, kept, pick(first, second, 1));
}

/* The masks of sixteen outputs from column `column` on, `left` of them wanted. */
INLINE uint32_t pair_mask(const lki_conv *c, int64_t column, int64_t left)
{
    int64_t from = 2 * column - c->padding[2];
    return (uint32_t)(bits_between(-from, c->in[2] - from) & bits_between(0, 2 * left));
}
#endif

/* Output columns [begin, begin + n) of one output row. */
INLINE void gather_run(float *out, const tap *t, int64_t stride, const float *in, int64_t begin, int64_t n)
{
    int64_t low = clip_to(t->low - begin, 0, n), high = clip_to(t->high - begin, low, n), i = 0;
    const float *from = in + begin * stride + t->shift;
#if LKI_SIMD == 512
    for (; stride <= 2 && i < n; i += 16) {
        int64_t left = n - i < 16 ? n - i : 16, first = clip_to(low - i, 0, left),
                last = clip_to(high - i, 0, left);
        __m512 a;
        if (stride == 1) {
            a = _mm512_maskz_loadu_ps((__mmask16)bits_between(first, last), from + i);
        } else {
            uint64_t mask = bits_between(2 * first, 2 * last - 1);
            a = pick(_mm512_maskz_loadu_ps((__mmask16)mask, from + 2 * i),
                     _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + 2 * i + 16), 0);
        }
        _mm512_mask_storeu_ps(out + i, (__mmask16)((1u << left) - 1), a);
    }
    if (stride <= 2) return;
#endif
    if (low > 0) zero_run(out, low);
    if (high < n) zero_run(out + high, n - high);
    for (i = low; i < high; i++) out[i] = from[i * stride];
}

/* The rows of columns of one kernel row (kz, ky), all its taps and channels. */
static void im2col_row(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0, int64_t p1,
                       int64_t kz, int64_t ky)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], plane = c->in[0] * c->in[1] * c->in[2],
            width = c->out[2];
    for (int64_t kx = 0; kx < c->kernel[2]; kx++) {
        tap t = tap_of(c, kx);
        float *first = col + ((kz * c->kernel[1] + ky) * c->kernel[2] + kx) * col_row;
        row_walk w = walk_from(c, p0 / width, kz, ky);
        int64_t begin = p0 % width;
        for (int64_t p = p0; p < p1; walk_on(&w, c), begin = 0) {
            int64_t n = width - begin < p1 - p ? width - begin : p1 - p, from = row_begin(&w, c);
            float *out = first + p - p0;
            for (int64_t channel = 0; channel < c->channels; channel++, out += taps * col_row) {
                if (from < 0)
                    zero_run(out, n);
                else
                    gather_run(out, &t, c->stride[2], x + channel * plane + from, begin, n);
            }
            p += n;
        }
    }
}

#if LKI_SIMD == 512
/* What the rows of one call have in common: the masks of a whole row. Longer rows work them out as they go.
 */
typedef struct pair_masks {
    uint32_t mask[8];
    __mmask16 kept[8];
} pair_masks;

INLINE void gather_last(float *out, int64_t col_row, const lki_conv *c, const float *row, int64_t column)
{
    int64_t from = 2 * column - c->padding[2];
    out[0] = from >= 0 && from < c->in[2] ? row[from] : 0;
    out[col_row] = from + 1 >= 0 && from + 1 < c->in[2] ? row[from + 1] : 0;
}

INLINE void im2col_pair_run(float *out, int64_t col_row, const lki_conv *c, const float *row, int64_t begin,
                            int64_t n, const pair_masks *whole)
{
    __builtin_prefetch(row + 16 * c->in[2]); /* eight output rows on: every row is read once, from far away */
    __builtin_prefetch(row + 16 * c->in[2] + 16);
    bool is_whole = begin == 0 && n == c->out[2] && n <= 128;
    for (int64_t i = 0, k = 0; i < n; i += 16, k++) {
        int64_t left = n - i < 16 ? n - i : 16;
        if (left <= 2) { /* a row of 17: not worth two more vectors */
            for (int64_t j = i; j < n; j++) gather_last(out + j, col_row, c, row, begin + j);
            return;
        }
        uint32_t mask = is_whole ? whole->mask[k] : pair_mask(c, begin + i, left);
        __mmask16 kept = is_whole ? whole->kept[k] : (__mmask16)((1u << left) - 1);
        gather_pair(out + i, out + col_row + i, row + 2 * (begin + i) - c->padding[2], mask, kept);
    }
}

INLINE void zero_pair_run(float *out, int64_t col_row, int64_t n)
{
    zero_run(out, n);
    zero_run(out + col_row, n);
}

static void im2col_pairs(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0,
                         int64_t p1, int64_t kz, int64_t ky, const pair_masks *whole)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * 2, plane = c->in[0] * c->in[1] * c->in[2], width = c->out[2];
    float *first = col + (kz * c->kernel[1] + ky) * 2 * col_row;
    row_walk w = walk_from(c, p0 / width, kz, ky);
    int64_t begin = p0 % width;
    for (int64_t p = p0; p < p1; walk_on(&w, c), begin = 0) {
        int64_t n = width - begin < p1 - p ? width - begin : p1 - p, from = row_begin(&w, c);
        float *out = first + p - p0;
        for (int64_t channel = 0; channel < c->channels; channel++, out += taps * col_row) {
            if (from < 0)
                zero_pair_run(out, col_row, n);
            else
                im2col_pair_run(out, col_row, c, x + channel * plane + from, begin, n, whole);
        }
        p += n;
    }
}

static void im2col_all_pairs(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0,
                             int64_t p1)
{
    pair_masks whole = {0};
    for (int64_t i = 0; i < 8 && i * 16 < c->out[2]; i++) {
        int64_t left = c->out[2] - i * 16 < 16 ? c->out[2] - i * 16 : 16;
        whole.mask[i] = pair_mask(c, i * 16, left);
        whole.kept[i] = (__mmask16)((1u << left) - 1);
    }
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            im2col_pairs(col, col_row, c, x, p0, p1, kz, ky, &whole);
}
#endif

static void im2col(float *col, int64_t col_row, const lki_conv *c, const float *x, int64_t p0, int64_t p1)
{
#if LKI_SIMD == 512
    if (c->kernel[2] == 2 && c->stride[2] == 2 && c->dilation[2] == 1) {
        im2col_all_pairs(col, col_row, c, x, p0, p1);
        return;
    }
#endif
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++) im2col_row(col, col_row, c, x, p0, p1, kz, ky);
}

INLINE void scatter_run(float *out, int64_t stride, const float *in, int64_t n)
{
    if (stride == 1)
        for (int64_t i = 0; i < n; i++) out[i] += in[i];
    else
        for (int64_t i = 0; i < n; i++) out[i * stride] += in[i];
}

/* The other way: adds each element of the columns to the input element that it came from. */
static void col2im_row(float *x, const lki_conv *c, const float *col, int64_t col_row, int64_t p0, int64_t p1,
                       int64_t kz, int64_t ky)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], plane = c->in[0] * c->in[1] * c->in[2],
            width = c->out[2];
    for (int64_t kx = 0; kx < c->kernel[2]; kx++) {
        tap t = tap_of(c, kx);
        const float *first = col + ((kz * c->kernel[1] + ky) * c->kernel[2] + kx) * col_row;
        row_walk w = walk_from(c, p0 / width, kz, ky);
        int64_t begin = p0 % width;
        for (int64_t p = p0; p < p1; walk_on(&w, c), begin = 0) {
            int64_t n = width - begin < p1 - p ? width - begin : p1 - p, to = row_begin(&w, c);
            int64_t low = clip_to(t.low, begin, begin + n), high = clip_to(t.high, low, begin + n);
            const float *in = first + p - p0 + low - begin;
            for (int64_t channel = 0; channel < c->channels && to >= 0; channel++, in += taps * col_row)
                scatter_run(x + channel * plane + to + low * c->stride[2] + t.shift, c->stride[2], in,
                            high - low);
            p += n;
        }
    }
}

static void col2im(float *x, const lki_conv *c, const float *col, int64_t col_row, int64_t p0, int64_t p1)
{
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++) col2im_row(x, c, col, col_row, p0, p1, kz, ky);
}

#endif
