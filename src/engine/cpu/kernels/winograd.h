/* Winograd's convolution with 3 x 3 kernels, F(4 x 4, 3 x 3): an output tile of 4 x 4 comes from an input
 * tile of 6 x 6 with 36 multiplications for each pair of channels instead of 144; see winograd_math.h.
 *
 * Sixteen channels go through the lanes of a vector, so that tiles need no rearranging and products no
 * packing; tensors stay in plain NCHW. In between, a strip (one row of tiles) of sixteen channels lies in the
 * first cache as (rows, columns, 16): the stage. Only for AVX-512. */
#ifndef LKI_CPU_KERNELS_WINOGRAD_H
#define LKI_CPU_KERNELS_WINOGRAD_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/gemm.h"
#include "engine/cpu/kernels/winograd_math.h"

#if LKI_SIMD == 512

/* Up to sixteen planes of one sample. */
typedef struct planes {
    float *data;
    int64_t channels, height, width;
} planes;

INLINE planes planes_of(const float *tensor, int64_t sample, int64_t channels, int64_t first, int64_t height,
                        int64_t width)
{
    int64_t left = channels - first;
    return (planes){(float *)tensor + (sample * channels + first) * height * width, left < 16 ? left : 16,
                    height, width};
}

INLINE void zero_columns(float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) v_store(to + i * 16, v_set(0.0f));
}

/* to (16, 16) = 16 numbers of each plane from place `at` on, zero beyond `columns` of them. Planes are read a
 * few rows at a time, each far from the other: the next strip, four rows on, is asked for early. */
INLINE void gather_columns(float *to, const planes *p, const int channels, int64_t at, int64_t columns)
{
    const float *from = p->data + at;
    const __mmask16 mask = (__mmask16)((1u << columns) - 1);
    int64_t plane = p->height * p->width, ahead = 4 * p->width;
    __m512 r[16];
    UNROLL for (int i = 0; i < 16; i++)
    {
        bool exists = channels == 16 || i < p->channels;
        r[i] = exists ? _mm512_maskz_loadu_ps(mask, from + i * plane) : _mm512_setzero_ps();
        __builtin_prefetch(from + i * plane + ahead, 0, 2);
    }
    transpose_registers(r);
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_ps(to + i * 16, r[i]);
}

INLINE void scatter_columns(const planes *p, const int channels, int64_t at, const float *from,
                            int64_t columns)
{
    const __mmask16 mask = (__mmask16)((1u << columns) - 1);
    int64_t plane = p->height * p->width;
    float *to = p->data + at;
    __m512 r[16];
    UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(from + i * 16);
    transpose_registers(r);
    UNROLL for (int i = 0; i < 16; i++) if (channels == 16 || i < p->channels)
        _mm512_mask_storeu_ps(to + i * plane, mask, r[i]);
}

/* A run of `count` places; the last sixteen columns of `to` are written whole, of `from` read whole. */
INLINE void gather_planes(float *to, const planes *p, int64_t at, int64_t count)
{
    for (int64_t c = 0; c < count; c += 16) {
        int64_t columns = count - c < 16 ? count - c : 16;
        if (p->channels == 16)
            gather_columns(to + c * 16, p, 16, at + c, columns);
        else
            gather_columns(to + c * 16, p, 0, at + c, columns);
    }
}

INLINE void spread_planes(const planes *p, int64_t at, const float *from, int64_t count)
{
    for (int64_t c = 0; c < count; c += 16) {
        int64_t columns = count - c < 16 ? count - c : 16;
        if (p->channels == 16)
            scatter_columns(p, 16, at + c, from + c * 16, columns);
        else
            scatter_columns(p, 0, at + c, from + c * 16, columns);
    }
}

/* stage (rows, columns, 16) = the planes' rows from y and columns from x on, zero outside of them. Rows as
 * long as the planes' own are one run. */
static void fill_stage(float *stage, const planes *p, int64_t y, int64_t rows, int64_t x, int64_t columns)
{
    int64_t low = x < 0 ? -x : 0, high = p->width - x < columns ? p->width - x : columns;
    if (x == 0 && columns == p->width && y >= 0 && y + rows <= p->height) {
        gather_planes(stage, p, y * columns, rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++, y++, stage += columns * 16) {
        if (y < 0 || y >= p->height) {
            zero_columns(stage, columns);
            continue;
        }
        zero_columns(stage, low);
        gather_planes(stage + low * 16, p, y * p->width + x + low, high - low);
        zero_columns(stage + high * 16, columns - high);
    }
}

/* The other way, of what lies inside of the planes. */
static void empty_stage(const planes *p, const float *stage, int64_t y, int64_t rows, int64_t x,
                        int64_t columns)
{
    int64_t low = x < 0 ? -x : 0, high = p->width - x < columns ? p->width - x : columns;
    if (x == 0 && columns == p->width && y >= 0 && y + rows <= p->height) {
        spread_planes(p, y * columns, stage, rows * columns);
        return;
    }
    for (int64_t r = 0; r < rows; r++, y++, stage += columns * 16)
        if (y >= 0 && y < p->height) spread_planes(p, y * p->width + x + low, stage + low * 16, high - low);
}

/* Along each column of the stage, in place: its 4 or 6 rows become 6. */
INLINE void stage_down(float *stage, int64_t columns, const int size)
{
    int64_t row = columns * 16;
    for (int64_t c = 0; c < columns; c++, stage += 16) {
        v d[6], t[6];
        UNROLL for (int i = 0; i < size; i++) d[i] = v_load(stage + i * row);
        if (size == 6)
            wino_bt(t, d);
        else
            wino_a(t, d);
        UNROLL for (int i = 0; i < 6; i++) v_store(stage + i * row, t[i]);
    }
}

/* Along its rows: each tile's 4 or 6 columns become 6, element (i, j) of tile t at out[t * tile + (i * 6 + j)
 * * channels]. */
INLINE void stage_across(float *out, int64_t tile, int64_t channels, const float *stage, int64_t columns,
                         int64_t tiles, const int size)
{
    for (int i = 0; i < 6; i++)
        for (int64_t t = 0; t < tiles; t++) {
            const float *from = stage + (i * columns + t * 4) * 16;
            float *to = out + t * tile + i * 6 * channels;
            v d[6], r[6];
            UNROLL for (int j = 0; j < size; j++) d[j] = v_load(from + j * 16);
            if (size == 6)
                wino_bt(r, d);
            else
                wino_a(r, d);
            UNROLL for (int j = 0; j < 6; j++) v_store(to + j * channels, r[j]);
        }
}

/* V = B^T d B of the strips [begin, end) of x (batch, in_channels, in_height, in_width). */
static void wino_input(float *out, const lki_winograd *w, const float *x, int64_t begin, int64_t end,
                       float *stage)
{
    int64_t channels = lki_winograd_lanes(w->in_channels), tile = lki_winograd_tile(w->in_channels);
    int64_t columns = lki_winograd_columns(w);
    for (int64_t c = 0; c < w->in_channels; c += 16)
        for (int64_t s = begin; s < end; s++) {
            planes p = planes_of(x, s / w->tiles_y, w->in_channels, c, w->in_height, w->in_width);
            fill_stage(stage, &p, s % w->tiles_y * 4 - w->pad_y, 6, -w->pad_x, columns);
            stage_down(stage, columns, 6);
            stage_across(out + (s - begin) * w->tiles_x * tile + c, tile, channels, stage, columns,
                         w->tiles_x, 6);
        }
}

/* sums (16) += the stage's numbers, which are few enough for floats a row. */
INLINE void sum_stage(double *sums, const float *stage, int64_t count)
{
    v total = v_set(0.0f);
    float lane[16];
    for (int64_t i = 0; i < count; i++) total += v_load(stage + i * 16);
    v_store(lane, total);
    for (int i = 0; i < 16; i++) sums[i] += (double)lane[i];
}

/* Z = A dy A^T of the strips [begin, end) of dy (batch, out_channels, out_height, out_width); and dy's sums
 * by channel are added to `sums` where that is not NULL. */
static void wino_gradient(float *out, const lki_winograd *w, const float *dy, int64_t begin, int64_t end,
                          float *stage, double *sums)
{
    int64_t channels = lki_winograd_lanes(w->out_channels), tile = lki_winograd_tile(w->out_channels);
    int64_t columns = w->tiles_x * 4;
    for (int64_t c = 0; c < w->out_channels; c += 16)
        for (int64_t s = begin; s < end; s++) {
            planes p = planes_of(dy, s / w->tiles_y, w->out_channels, c, w->out_height, w->out_width);
            fill_stage(stage, &p, s % w->tiles_y * 4, 4, 0, columns);
            for (int64_t r = 0; sums && r < 4; r++) sum_stage(sums + c, stage + r * columns * 16, columns);
            stage_down(stage, columns, 4);
            stage_across(out + (s - begin) * w->tiles_x * tile + c, tile, channels, stage, columns,
                         w->tiles_x, 4);
        }
}

/* The 4 x 4 results A^T m A of one tile, into the stage from `to` on. */
INLINE void output_tile(float *to, int64_t columns, const float *m, v shift, bool relu)
{
    v half[4][6];
    UNROLL for (int j = 0; j < 6; j++)
    {
        v d[6], r[4];
        UNROLL for (int i = 0; i < 6; i++) d[i] = v_load(m + (i * 6 + j) * LKI_WINOGRAD_PANEL);
        wino_at(r, d);
        UNROLL for (int i = 0; i < 4; i++) half[i][j] = r[i];
    }
    UNROLL for (int i = 0; i < 4; i++)
    {
        v r[4];
        wino_at(r, half[i]);
        UNROLL for (int j = 0; j < 4; j++)
        {
            r[j] += shift;
            if (relu) r[j] = v_max(v_set(0.0f), r[j]);
            v_store(to + (i * columns + j) * 16, r[j]);
        }
    }
}

/* y = A^T M A (+ bias, then ReLU) for the output channels from c0 on, a panel of them, whose products M are
 * given. */
static void wino_output(float *y, const lki_winograd *w, const float *m, int64_t c0, int64_t begin,
                        int64_t end, const float *bias, bool relu, float *stage)
{
    int64_t tile = lki_winograd_tile(LKI_WINOGRAD_PANEL), columns = w->tiles_x * 4;
    for (int64_t c = c0; c < c0 + LKI_WINOGRAD_PANEL && c < w->out_channels; c += 16) {
        int64_t left = w->out_channels - c < 16 ? w->out_channels - c : 16;
        v shift = bias ? v_load_n(bias + c, left) : v_set(0.0f);
        for (int64_t s = begin; s < end; s++) {
            const float *from = m + (s - begin) * w->tiles_x * tile + c - c0;
            planes p = planes_of(y, s / w->tiles_y, w->out_channels, c, w->out_height, w->out_width);
            for (int64_t t = 0; t < w->tiles_x; t++)
                output_tile(stage + t * 64, columns, from + t * tile, shift, relu);
            empty_stage(&p, stage, s % w->tiles_y * 4, 4, 0, columns);
        }
    }
}

/* Along the rows of one strip: tiles of 6 columns overlap by two, and are added there. */
INLINE void merge_across(float *stage, int64_t columns, const float *m, int64_t tile, int64_t tiles)
{
    for (int i = 0; i < 6; i++) {
        float *to = stage + i * columns * 16;
        v left[2] = {v_set(0.0f), v_set(0.0f)};
        for (int64_t t = 0; t < tiles; t++, to += 64) {
            v d[6], r[6];
            UNROLL for (int j = 0; j < 6; j++) d[j] = v_load(m + t * tile + (i * 6 + j) * LKI_WINOGRAD_PANEL);
            wino_b(r, d);
            v_store(to, r[0] + left[0]);
            v_store(to + 16, r[1] + left[1]);
            v_store(to + 32, r[2]);
            v_store(to + 48, r[3]);
            left[0] = r[4];
            left[1] = r[5];
        }
        v_store(to, left[0]);
        v_store(to + 16, left[1]);
    }
}

/* Along the columns, in place: the first two rows meet those that the strip above has left in `carry` (2,
 * columns, 16), which then takes the last two. */
INLINE void merge_down(float *stage, int64_t columns, float *carry, bool first)
{
    int64_t row = columns * 16;
    for (int64_t c = 0; c < columns; c++, stage += 16, carry += 16) {
        v d[6], r[6];
        UNROLL for (int i = 0; i < 6; i++) d[i] = v_load(stage + i * row);
        wino_b(r, d);
        if (!first) {
            r[0] += v_load(carry);
            r[1] += v_load(carry + row);
        }
        UNROLL for (int i = 0; i < 6; i++) v_store(stage + i * row, r[i]);
        UNROLL for (int i = 0; i < 2; i++) v_store(carry + i * row, r[4 + i]);
    }
}

/* dx = B M B^T for the input channels from c0 on, a panel of them, whose products M are given. Strips of a
 * sample must come in order; carry (32 / 16, 2, columns, 16) goes from one to the next. */
static void wino_input_back(float *dx, const lki_winograd *w, const float *m, int64_t c0, int64_t begin,
                            int64_t end, float *stage, float *carry)
{
    int64_t tile = lki_winograd_tile(LKI_WINOGRAD_PANEL), columns = lki_winograd_columns(w);
    for (int64_t c = c0; c < c0 + LKI_WINOGRAD_PANEL && c < w->in_channels; c += 16, carry += columns * 32)
        for (int64_t s = begin; s < end; s++) {
            int64_t place = s % w->tiles_y;
            planes p = planes_of(dx, s / w->tiles_y, w->in_channels, c, w->in_height, w->in_width);
            merge_across(stage, columns, m + (s - begin) * w->tiles_x * tile + c - c0, tile, w->tiles_x);
            merge_down(stage, columns, carry, place == 0);
            empty_stage(&p, stage, place * 4 - w->pad_y, place == w->tiles_y - 1 ? 6 : 4, -w->pad_x, columns);
        }
}

static const lki_winograd_kernels winograd = {wino_weights,  wino_weights_back, wino_input,
                                              wino_gradient, wino_output,       wino_input_back};
#define WINOGRAD &winograd
#else
#define WINOGRAD NULL
#endif

#endif
