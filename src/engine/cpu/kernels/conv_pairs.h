/* Convolutions whose kernels are two columns wide with stride 2, and which have few output channels: the two
 * taps of a kernel row are the even and the odd numbers of one run of the input, so no columns need to be
 * written down. Sixteen output columns go through the lanes; the one or two that a row may have beyond that
 * are done with output channels in the lanes instead. Only for AVX-512. */
#ifndef LKI_CPU_KERNELS_CONV_PAIRS_H
#define LKI_CPU_KERNELS_CONV_PAIRS_H

#include "engine/cpu/kernels/conv.h"
#include "engine/cpu/kernels/gemm.h"

#if LKI_SIMD == 512

enum { PAIR_CHANNELS = 6 }; /* twice as many sums fit in registers */

/* The kernel rows [low, high) of an axis that fall inside of the input at output `place`, and the input row
 * of kernel row 0. */
typedef struct kernel_rows {
    int64_t low, high, first;
} kernel_rows;

/* How many steps reach `distance`; a division only where it takes one. */
INLINE int64_t steps_to(int64_t distance, int64_t step)
{
    return step == 1 ? distance : (distance + step - 1) / step;
}

INLINE kernel_rows kernel_rows_at(const lki_conv *c, int axis, int64_t place)
{
    int64_t first = place * c->stride[axis] - c->padding[axis], step = c->dilation[axis];
    int64_t low = first < 0 ? steps_to(-first, step) : 0;
    int64_t high = c->in[axis] > first ? steps_to(c->in[axis] - first, step) : 0;
    if (high > c->kernel[axis]) high = c->kernel[axis];
    return (kernel_rows){low, high, first};
}

/* How many columns of each row go through the lanes. */
INLINE int64_t lane_columns(const lki_conv *c)
{
    return c->out[2] > 16 && c->out[2] % 16 <= 2 ? c->out[2] / 16 * 16 : c->out[2];
}

INLINE void load_pairs(v *even, v *odd, const float *from, uint32_t mask)
{
    __m512 a = _mm512_maskz_loadu_ps((__mmask16)mask, from);
    __m512 b = _mm512_maskz_loadu_ps((__mmask16)(mask >> 16), from + 16);
    *even = (v)pick(a, b, 0);
    *odd = (v)pick(a, b, 1);
}

#define FOR_EACH_KERNEL_ROW(c, zs, ys)                                                                       \
    for (int64_t channel = 0; channel < (c)->channels; channel++)                                            \
        for (int64_t kz = (zs).low; kz < (zs).high; kz++)                                                    \
            for (int64_t ky = (ys).low; ky < (ys).high; ky++)

/* Where the input row that a kernel row reads begins, and the number of its first tap. */
INLINE int64_t input_row(const lki_conv *c, kernel_rows zs, kernel_rows ys, int64_t channel, int64_t kz,
                         int64_t ky)
{
    int64_t z = channel * c->in[0] + zs.first + kz * c->dilation[0];
    return (z * c->in[1] + ys.first + ky * c->dilation[1]) * c->in[2];
}

INLINE int64_t first_tap(const lki_conv *c, int64_t channel, int64_t kz, int64_t ky)
{
    return ((channel * c->kernel[0] + kz) * c->kernel[1] + ky) * 2;
}

/* The columns [begin, begin + n) of an output row, which go through the lanes together. */
typedef struct lane_run {
    int64_t begin, n;
    uint32_t mask; /* of the input columns that they read, those that exist */
} lane_run;

INLINE lane_run lane_run_at(const lki_conv *c, int64_t begin)
{
    int64_t left = lane_columns(c) - begin, n = left < 16 ? left : 16;
    return (lane_run){begin, n, pair_mask(c, begin, n)};
}

/* One run of one output row, for `outs` channels from o on. */
INLINE void pairs_lanes(const int outs, float *y, int64_t y_plane, const lki_pairs *p, const float *x,
                        int64_t o0, kernel_rows zs, kernel_rows ys, lane_run run)
{
    const lki_conv *c = &p->one;
    const float *from = x + 2 * run.begin - c->padding[2], *w = p->w + o0 * p->k;
    const int64_t k = p->k, ahead = 4 * c->stride[1] * c->in[2]; /* rows are read once, from far away */
    v acc[PAIR_CHANNELS];
    UNROLL for (int o = 0; o < outs; o++) acc[o] = v_set(p->bias ? p->bias[o0 + o] : 0.0f);
    FOR_EACH_KERNEL_ROW(c, zs, ys)
    {
        const float *row = from + input_row(c, zs, ys, channel, kz, ky);
        const float *taps = w + first_tap(c, channel, kz, ky);
        v even, odd;
        load_pairs(&even, &odd, row, run.mask);
        __builtin_prefetch(row + ahead);
        __builtin_prefetch(row + ahead + 16);
        UNROLL for (int o = 0; o < outs; o++) acc[o] = v_fma(v_set(taps[o * k]), even, acc[o]);
        UNROLL for (int o = 0; o < outs; o++) acc[o] = v_fma(v_set(taps[o * k + 1]), odd, acc[o]);
    }
    UNROLL for (int o = 0; o < outs; o++)
    {
        if (p->relu) acc[o] = v_max(v_set(0.0f), acc[o]);
        v_store_n(y + o * y_plane + run.begin, acc[o], run.n);
    }
}

/* One output column of one row, all channels at once: wt (k, 16) are the transposed weights. */
INLINE void pairs_column(float *y, int64_t y_plane, const lki_pairs *p, const float *x, const float *wt,
                         kernel_rows zs, kernel_rows ys, int64_t column)
{
    const lki_conv *c = &p->one;
    int64_t first = 2 * column - c->padding[2];
    bool has_even = first >= 0 && first < c->in[2], has_odd = first + 1 >= 0 && first + 1 < c->in[2];
    v even = p->bias ? v_load_n(p->bias, p->outs) : v_set(0.0f), odd = v_set(0.0f);
    float lane[16];
    FOR_EACH_KERNEL_ROW(c, zs, ys)
    {
        const float *from = x + input_row(c, zs, ys, channel, kz, ky) + first;
        const float *taps = wt + first_tap(c, channel, kz, ky) * 16;
        if (has_even) even = v_fma(v_set(from[0]), v_load(taps), even);
        if (has_odd) odd = v_fma(v_set(from[1]), v_load(taps + 16), odd);
    }
    even += odd;
    if (p->relu) even = v_max(v_set(0.0f), even);
    v_store(lane, even);
    for (int64_t o = 0; o < p->outs; o++) y[o * y_plane + column] = lane[o];
}

#define PAIRS_LANES(n)                                                                                       \
    case n: pairs_lanes(n, y + o * plane, plane, p, x, o, zs, ys, run); break;

/* One run of one output row, all channels. */
INLINE void pairs_row(float *y, int64_t plane, const lki_pairs *p, const float *x, kernel_rows zs,
                      kernel_rows ys, lane_run run)
{
    for (int64_t o = 0; o < p->outs; o += PAIR_CHANNELS) switch (p->outs - o) {
            PAIRS_LANES(1)
            PAIRS_LANES(2)
            PAIRS_LANES(3)
            PAIRS_LANES(4)
            PAIRS_LANES(5)
        default: pairs_lanes(PAIR_CHANNELS, y + o * plane, plane, p, x, o, zs, ys, run);
        }
}

static void pairs_forward(float *y, const lki_pairs *p, const float *x, float *wt)
{
    const lki_conv *c = &p->one;
    int64_t plane = c->out[0] * c->out[1] * c->out[2], columns = lane_columns(c);
    for (int64_t t = 0; t < p->k; t++)
        for (int64_t o = 0; o < 16; o++) wt[t * 16 + o] = o < p->outs ? p->w[o * p->k + t] : 0;
    for (int64_t begin = 0; begin < columns; begin += 16) {
        lane_run run = lane_run_at(c, begin);
        for (int64_t oz = 0; oz < c->out[0]; oz++) {
            kernel_rows zs = kernel_rows_at(c, 0, oz);
            for (int64_t oy = 0; oy < c->out[1]; oy++) {
                kernel_rows ys = kernel_rows_at(c, 1, oy);
                float *to = y + (oz * c->out[1] + oy) * c->out[2];
                pairs_row(to, plane, p, x, zs, ys, run);
                for (int64_t i = columns; i < c->out[2] && begin + 16 >= columns; i++)
                    pairs_column(to, plane, p, x, wt, zs, ys, i);
            }
        }
    }
}

/* dw's two columns of one kernel row, for `outs` channels, over the output rows [low, high) of slice oz. x
 * begins with the input row that output row 0 would read. */
INLINE void pairs_grad_lanes(const int outs, float *dw, const lki_pairs *p, const float *x, const float *dy,
                             int64_t dy_plane, int64_t low, int64_t high)
{
    const lki_conv *c = &p->one;
    const int64_t ahead = c->stride[0] * c->in[1] * c->in[2]; /* the next slice reads there */
    v even_sum[PAIR_CHANNELS + 2], odd_sum[PAIR_CHANNELS + 2];
    UNROLL for (int o = 0; o < PAIR_CHANNELS + 2; o++) even_sum[o] = odd_sum[o] = v_set(0.0f);
    for (int64_t begin = 0; begin < lane_columns(c); begin += 16) {
        const lane_run run = lane_run_at(c, begin);
        const float *from = x + 2 * begin - c->padding[2], *at = dy + begin;
        for (int64_t oy = low; oy < high; oy++) {
            const float *row = from + oy * c->stride[1] * c->in[2];
            v even, odd;
            load_pairs(&even, &odd, row, run.mask);
            __builtin_prefetch(row + ahead, 0, 2);
            __builtin_prefetch(row + ahead + 16, 0, 2);
            UNROLL for (int o = 0; o < outs; o++)
            {
                v d = v_load_n(at + o * dy_plane + oy * c->out[2], run.n);
                even_sum[o] = v_fma(d, even, even_sum[o]);
                odd_sum[o] = v_fma(d, odd, odd_sum[o]);
            }
        }
    }
    float sum[2][PAIR_CHANNELS + 2];
    for (int o = 0; o < outs; o += 4) {
        sum_four(sum[0] + o, even_sum[o], even_sum[o + 1], even_sum[o + 2], even_sum[o + 3]);
        sum_four(sum[1] + o, odd_sum[o], odd_sum[o + 1], odd_sum[o + 2], odd_sum[o + 3]);
    }
    for (int o = 0; o < outs; o++) {
        dw[o * p->k] += sum[0][o];
        dw[o * p->k + 1] += sum[1][o];
    }
}

/* The same for one output column: lanes (rows, 16) are dy's channels there. */
INLINE void pairs_grad_column(float *dw, const lki_pairs *p, const float *x, const float *lanes,
                              int64_t column, int64_t low, int64_t high)
{
    const lki_conv *c = &p->one;
    int64_t first = 2 * column - c->padding[2];
    bool has_even = first >= 0 && first < c->in[2], has_odd = first + 1 >= 0 && first + 1 < c->in[2];
    v even = v_set(0.0f), odd = v_set(0.0f);
    for (int64_t oy = low; oy < high; oy++) {
        const float *from = x + oy * c->stride[1] * c->in[2] + first;
        v d = v_load(lanes + oy * 16);
        if (has_even) even = v_fma(v_set(from[0]), d, even);
        if (has_odd) odd = v_fma(v_set(from[1]), d, odd);
    }
    float sum[2][16];
    v_store(sum[0], even);
    v_store(sum[1], odd);
    for (int64_t o = 0; o < p->outs; o++) {
        dw[o * p->k] += sum[0][o];
        dw[o * p->k + 1] += sum[1][o];
    }
}

#define PAIRS_GRAD_LANES(n)                                                                                  \
    case n: pairs_grad_lanes(n, to, p, from, d, plane, low, high); break;

/* Kernel row (channel, kz, ky) over the output rows of slice oz. */
INLINE void pairs_grad_row(float *dw, const lki_pairs *p, const float *from, const float *dy, int64_t plane,
                           const float *lanes, int64_t low, int64_t high)
{
    const lki_conv *c = &p->one;
    for (int64_t o = 0; o < p->outs; o += PAIR_CHANNELS) {
        float *to = dw + o * p->k;
        const float *d = dy + o * plane;
        switch (p->outs - o) {
            PAIRS_GRAD_LANES(1)
            PAIRS_GRAD_LANES(2)
            PAIRS_GRAD_LANES(3)
            PAIRS_GRAD_LANES(4)
            PAIRS_GRAD_LANES(5)
        default: pairs_grad_lanes(PAIR_CHANNELS, to, p, from, d, plane, low, high);
        }
    }
    for (int64_t i = lane_columns(c); i < c->out[2]; i++)
        pairs_grad_column(dw, p, from, lanes + (i - lane_columns(c)) * c->out[1] * 16, i, low, high);
}

/* lanes (columns beyond the lanes, out rows, 16) = dy's channels of slice oz. */
INLINE void gather_channels(float *lanes, const lki_pairs *p, const float *dy, int64_t plane)
{
    const lki_conv *c = &p->one;
    for (int64_t i = lane_columns(c); i < c->out[2]; i++)
        for (int64_t oy = 0; oy < c->out[1]; oy++, lanes += 16)
            for (int64_t o = 0; o < 16; o++) lanes[o] = o < p->outs ? dy[o * plane + oy * c->out[2] + i] : 0;
}

/* The output rows [low, high) that kernel row ky reaches the input from. */
INLINE kernel_rows output_rows_of(const lki_conv *c, int64_t ky)
{
    int64_t shift = ky * c->dilation[1] - c->padding[1];
    int64_t low = shift < 0 ? steps_to(-shift, c->stride[1]) : 0;
    int64_t high = c->in[1] > shift ? steps_to(c->in[1] - shift, c->stride[1]) : 0;
    return (kernel_rows){low, high < c->out[1] ? high : c->out[1], shift};
}

static void pairs_gradient(float *dw, const lki_pairs *p, const float *x, const float *dy, float *lanes)
{
    const lki_conv *c = &p->one;
    int64_t plane = c->out[0] * c->out[1] * c->out[2];
    kernel_rows known[8];
    for (int64_t ky = 0; ky < c->kernel[1] && ky < 8; ky++) known[ky] = output_rows_of(c, ky);
    for (int64_t oz = 0; oz < c->out[0]; oz++, dy += c->out[1] * c->out[2]) {
        kernel_rows zs = kernel_rows_at(c, 0, oz), all = {0, c->kernel[1], 0};
        gather_channels(lanes, p, dy, plane);
        FOR_EACH_KERNEL_ROW(c, zs, all)
        {
            kernel_rows rows = ky < 8 ? known[ky] : output_rows_of(c, ky);
            const float *from = x + input_row(c, zs, all, channel, kz, ky) - c->padding[1] * c->in[2];
            pairs_grad_row(dw + first_tap(c, channel, kz, ky), p, from, dy, plane, lanes, rows.low,
                           rows.high);
        }
    }
}

static const lki_pairs_kernels pairs = {pairs_forward, pairs_gradient};
#define PAIRS &pairs
#else
#define PAIRS NULL
#endif

#endif
