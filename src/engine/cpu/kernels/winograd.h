/* Winograd's convolution with 3 x 3 kernels, F(4 x 4, 3 x 3): an output tile of 4 x 4 comes from an input
 * tile of 6 x 6 with 36 multiplications for each pair of channels instead of 144.
 *
 * In one dimension, for a signal d of 6, a kernel g of 3 and the points 0, +-a, +-b and infinity:
 *
 *     y = A^T ((G g) * (B^T d))
 *
 * with A^T holding powers of the points, G powers divided by the products of differences, and B^T the
 * polynomials that vanish at all points but one. a = 5/8 and b = 3/2 keep the rounding error near 1e-6 of the
 * largest result; whole numbers would be five times worse. The gradient of the kernel is the same algorithm
 * with the sizes of kernel and output exchanged, F(3 x 3, 4 x 4), over the same points, so the input's half
 * is shared.
 *
 * Sixteen tiles go through the lanes of a vector. Only for AVX-512. */
#ifndef LKI_CPU_KERNELS_WINOGRAD_H
#define LKI_CPU_KERNELS_WINOGRAD_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/conv.h"

#if LKI_SIMD == 512

static const float WA = 0.625f, WB = 1.5f;
#define WA2 (0.625f * 0.625f)
#define WB2 (1.5f * 1.5f)
#define WA3 (WA2 * 0.625f)
#define WB3 (WB2 * 1.5f)

/* t = B^T d */
INLINE void wino_bt(v t[6], const v d[6])
{
    const v a = v_set(WA), b = v_set(WB), a2 = v_set(-WA2), b2 = v_set(-WB2), s = v_set(-(WA2 + WB2)),
            p = v_set(WA2 * WB2);
    v even_a = v_fma(b2, d[2], d[4]), odd_a = a * v_fma(b2, d[1], d[3]);
    v even_b = v_fma(a2, d[2], d[4]), odd_b = b * v_fma(a2, d[1], d[3]);
    t[0] = v_fma(p, d[0], v_fma(s, d[2], d[4]));
    t[1] = even_a + odd_a;
    t[2] = even_a - odd_a;
    t[3] = even_b + odd_b;
    t[4] = even_b - odd_b;
    t[5] = v_fma(p, d[1], v_fma(s, d[3], d[5]));
}

/* y = A^T m, for an output of 4 or of 3. */
INLINE void wino_at(v *y, const v m[6], const int size)
{
    v sum_a = m[1] + m[2], difference_a = m[1] - m[2], sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + sum_a + sum_b;
    y[1] = v_fma(v_set(WA), difference_a, v_set(WB) * difference_b);
    y[2] = v_fma(v_set(WA2), sum_a, v_set(WB2) * sum_b);
    if (size == 3)
        y[2] += m[5];
    else
        y[3] = v_fma(v_set(WA3), difference_a, v_fma(v_set(WB3), difference_b, m[5]));
}

/* t = G g, for a kernel of 3 or of 4. */
INLINE void wino_g(v t[6], const v *g, const int size)
{
    const float fa = 2 * WA2 * (WA2 - WB2), fb = 2 * WB2 * (WB2 - WA2);
    v even_a = v_fma(v_set(WA2), g[2], g[0]), even_b = v_fma(v_set(WB2), g[2], g[0]);
    v odd_a = size == 3 ? g[1] : v_fma(v_set(WA2), g[3], g[1]),
      odd_b = size == 3 ? g[1] : v_fma(v_set(WB2), g[3], g[1]);
    t[0] = g[0] * v_set(1 / (WA2 * WB2));
    t[1] = v_fma(v_set(WA), odd_a, even_a) * v_set(1 / fa);
    t[2] = v_fma(v_set(-WA), odd_a, even_a) * v_set(1 / fa);
    t[3] = v_fma(v_set(WB), odd_b, even_b) * v_set(1 / fb);
    t[4] = v_fma(v_set(-WB), odd_b, even_b) * v_set(1 / fb);
    t[5] = g[size - 1];
}

/* U (36, rows, columns) = G g G^T for the 3 x 3 kernels g, whose element (row, column, tap) lies at w[row *
 * row_stride + column * column_stride + tap], with the taps reversed where `flip`. */
static void wino_weights(float *u, const float *w, int64_t rows, int64_t columns, int64_t row_stride,
                         int64_t column_stride, bool flip)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += VN) {
            int64_t n = columns - c < VN ? columns - c : VN;
            float lane[9][VN];
            for (int64_t i = 0; i < n; i++)
                for (int tap = 0; tap < 9; tap++)
                    lane[tap][i] = w[r * row_stride + (c + i) * column_stride + (flip ? 8 - tap : tap)];
            v half[6][3];
            for (int x = 0; x < 3; x++) {
                v g[3], t[6];
                for (int y = 0; y < 3; y++) g[y] = v_load_n(lane[y * 3 + x], n);
                wino_g(t, g, 3);
                for (int i = 0; i < 6; i++) half[i][x] = t[i];
            }
            for (int i = 0; i < 6; i++) {
                v t[6];
                wino_g(t, half[i], 3);
                for (int j = 0; j < 6; j++) v_store_n(u + ((i * 6 + j) * rows + r) * columns + c, t[j], n);
            }
        }
}

/* dw (rows, columns, 3, 3) = A^T U A of the summed products U (36, rows, columns). */
static void wino_weights_back(float *dw, const float *u, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c += VN) {
            int64_t n = columns - c < VN ? columns - c : VN;
            v half[3][6];
            for (int x = 0; x < 6; x++) {
                v m[6], y[3];
                for (int i = 0; i < 6; i++) m[i] = v_load_n(u + ((i * 6 + x) * rows + r) * columns + c, n);
                wino_at(y, m, 3);
                for (int i = 0; i < 3; i++) half[i][x] = y[i];
            }
            for (int i = 0; i < 3; i++) {
                float lane[3][VN];
                v y[3];
                wino_at(y, half[i], 3);
                for (int j = 0; j < 3; j++) v_store(lane[j], y[j]);
                for (int64_t k = 0; k < n; k++)
                    for (int j = 0; j < 3; j++) dw[(r * columns + c + k) * 9 + i * 3 + j] = lane[j][k];
            }
        }
}

/* Sixteen tiles: where each begins, and which of its rows and columns exist. Four neighbours in a row of
 * tiles are one run of memory, column after column; so that such a run needs no rearranging, lane 4 i + j of
 * a vector belongs to tile 4 j + i. */
typedef struct tile_group {
    int64_t at[16];      /* from the first plane of the tensor, channel 0; may lie before it in the padding */
    uint8_t mask[6][16]; /* columns that exist, by row of the tile; 0 for a row outside */
    bool whole;          /* every element of every tile exists */
    bool run[4];         /* tiles 4 q to 4 q + 3 are whole and side by side */
} tile_group;

INLINE void find_runs(tile_group *g, const bool *tile_is_whole)
{
    for (int q = 0; q < 4; q++) {
        g->run[q] = true;
        for (int i = 4 * q; i < 4 * q + 4; i++)
            g->run[q] = g->run[q] && tile_is_whole[i] && g->at[i] == g->at[4 * q] + 4 * (i - 4 * q);
    }
}

/* `size` rows and columns from (tile row * 4 - pad_y, tile column * 4 - pad_x) on, in planes of height by
 * width. */
static void locate_tiles(tile_group *g, const lki_winograd *w, int64_t first, int64_t count, int size,
                         int64_t channels, int64_t height, int64_t width, int64_t pad_y, int64_t pad_x)
{
    bool is_whole[16];
    g->whole = count == 16;
    for (int i = 0; i < 16; i++) {
        int64_t tile = first + i, sample = tile / (w->tiles_y * w->tiles_x),
                place = tile % (w->tiles_y * w->tiles_x);
        int64_t y = place / w->tiles_x * 4 - pad_y, x = place % w->tiles_x * 4 - pad_x;
        g->at[i] = i < count ? sample * channels * height * width + y * width + x : 0;
        uint8_t columns = 0;
        is_whole[i] = true;
        for (int j = 0; j < size; j++)
            if (x + j >= 0 && x + j < width) columns |= (uint8_t)(1 << j);
        for (int j = 0; j < size; j++) {
            g->mask[j][i] = i < count && y + j >= 0 && y + j < height ? columns : 0;
            if (g->mask[j][i] != (1 << size) - 1) is_whole[i] = g->whole = false;
        }
    }
    find_runs(g, is_whole);
}

/* Vectors q of four columns of tiles 4 q to 4 q + 3 become four vectors of one column over all tiles; and
 * back. */
INLINE void transpose_quarters(v column[4], const __m512 z[4])
{
    __m512 t0 = _mm512_unpacklo_ps(z[0], z[1]), t1 = _mm512_unpackhi_ps(z[0], z[1]);
    __m512 t2 = _mm512_unpacklo_ps(z[2], z[3]), t3 = _mm512_unpackhi_ps(z[2], z[3]);
    column[0] = (v)_mm512_unpacklo_pd((__m512d)t0, (__m512d)t2);
    column[1] = (v)_mm512_unpackhi_pd((__m512d)t0, (__m512d)t2);
    column[2] = (v)_mm512_unpacklo_pd((__m512d)t1, (__m512d)t3);
    column[3] = (v)_mm512_unpackhi_pd((__m512d)t1, (__m512d)t3);
}

INLINE __m512 join_quarters(__m128 a, __m128 b, __m128 c, __m128 d)
{
    __m512 z = _mm512_insertf32x4(_mm512_castps128_ps512(a), b, 1);
    return _mm512_insertf32x4(_mm512_insertf32x4(z, c, 2), d, 3);
}

INLINE __m128 load_masked(const float *p, uint8_t mask)
{
    return _mm_maskz_loadu_ps(mask, p);
}

INLINE __m128 load_pair(const float *p)
{
    return (__m128)_mm_load_sd((const double *)(const void *)p);
}

/* Columns `first` to `first` + 3 of row `row` of tiles 4 q to 4 q + 3; of the second four only two are
 * wanted, and read. */
INLINE __m512 load_quad(const tile_group *g, const float *from, int row, int q, const int first)
{
    const int64_t *at = g->at + 4 * q;
    const uint8_t *mask = g->mask[row] + 4 * q;
    if (g->run[q]) return _mm512_maskz_loadu_ps(first ? 0x3fff : 0xffff, from + at[0]);
    if (!g->whole)
        return join_quarters(
            load_masked(from + at[0], mask[0] >> first), load_masked(from + at[1], mask[1] >> first),
            load_masked(from + at[2], mask[2] >> first), load_masked(from + at[3], mask[3] >> first));
    if (first)
        return join_quarters(load_pair(from + at[0]), load_pair(from + at[1]), load_pair(from + at[2]),
                             load_pair(from + at[3]));
    return join_quarters(_mm_loadu_ps(from + at[0]), _mm_loadu_ps(from + at[1]), _mm_loadu_ps(from + at[2]),
                         _mm_loadu_ps(from + at[3]));
}

/* Row `row` of sixteen tiles, 4 or 6 columns, from plane x on. */
INLINE void load_tile_row(v *column, const tile_group *g, const float *x, int64_t width, int row,
                          const int size)
{
    const float *from = x + row * width;
    __m512 z[4];
    v rest[4];
    UNROLL for (int q = 0; q < 4; q++) z[q] = load_quad(g, from, row, q, 0);
    transpose_quarters(column, z);
    if (size == 4) return;
    UNROLL for (int q = 0; q < 4; q++) z[q] = load_quad(g, from + 4, row, q, 4);
    transpose_quarters(rest, z);
    column[4] = rest[0];
    column[5] = rest[1];
}

/* One channel of a group of tiles: V's 36 rows at `out`, each `row` floats after the one before. */
INLINE void input_group(float *out, int64_t row, const tile_group *g, const float *x, int64_t width)
{
    v half[6][6];
    for (int i = 0; i < 6; i++) {
        v d[6];
        load_tile_row(d, g, x, width, i, 6);
        wino_bt(half[i], d);
    }
    for (int j = 0; j < 6; j++) {
        v d[6], r[6];
        UNROLL for (int i = 0; i < 6; i++) d[i] = half[i][j];
        wino_bt(r, d);
        UNROLL for (int i = 0; i < 6; i++) v_store(out + (i * 6 + j) * row, r[i]);
    }
}

/* Tiles of framed samples: all of them whole. Lanes beyond `count` repeat the first tile. */
static void locate_framed(tile_group *g, const lki_winograd *w, int64_t first, int64_t count,
                          int64_t first_sample)
{
    int64_t rows = lki_winograd_frame_rows(w), columns = lki_winograd_frame_columns(w);
    bool is_whole[16];
    g->whole = true;
    for (int i = 0; i < 16; i++) {
        is_whole[i] = true;
        int64_t tile = first + (i < count ? i : 0), place = tile % (w->tiles_y * w->tiles_x);
        int64_t sample = tile / (w->tiles_y * w->tiles_x) - first_sample;
        g->at[i] = (sample * rows + place / w->tiles_x * 4) * columns + place % w->tiles_x * 4;
    }
    find_runs(g, is_whole);
}

/* One channel of the samples [begin, end) into their frames, whose borders are zero already. */
static void fill_frames(float *pad, const lki_winograd *w, const float *x, int64_t begin, int64_t end,
                        int64_t channel)
{
    int64_t rows = lki_winograd_frame_rows(w), columns = lki_winograd_frame_columns(w);
    int64_t height = w->in_height < rows - w->pad_y ? w->in_height : rows - w->pad_y;
    int64_t width = w->in_width < columns - w->pad_x ? w->in_width : columns - w->pad_x;
    for (int64_t n = begin; n < end; n++) {
        const float *from = x + (n * w->in_channels + channel) * w->in_height * w->in_width;
        float *to = pad + ((n - begin) * rows + w->pad_y) * columns + w->pad_x;
        for (int64_t i = 0; i < height; i++) copy_run(to + i * columns, from + i * w->in_width, width);
    }
}

enum { MOST_GROUPS = 12 };

static void input_framed(float *out, const lki_winograd *w, const float *x, int64_t first, int64_t count,
                         int64_t block, float *pad)
{
    tile_group g[MOST_GROUPS];
    int64_t tiles = w->tiles_y * w->tiles_x, begin = first / tiles, end = (first + count - 1) / tiles + 1;
    int64_t row = lki_winograd_stride(w->in_channels, block);
    memset(pad, 0, (size_t)lki_winograd_pad_count(w, block) * sizeof(float));
    for (int64_t t = 0; t < count; t += 16)
        locate_framed(&g[t / 16], w, first + t, count - t < 16 ? count - t : 16, begin);
    for (int64_t c = 0; c < w->in_channels; c++) {
        fill_frames(pad, w, x, begin, end, c);
        for (int64_t t = 0; t < count; t += 16)
            input_group(out + c * block + t, row, &g[t / 16], pad, lki_winograd_frame_columns(w));
    }
}

/* V (36, channels, block) = B^T d B of tiles [first, first + count) of x (batch, channels, height, width). */
static void wino_input(float *out, const lki_winograd *w, const float *x, int64_t first, int64_t count,
                       int64_t block, float *pad)
{
    int64_t plane = w->in_height * w->in_width;
    bool borders = w->pad_y || w->pad_x || w->out_height % 4 || w->out_width % 4;
    if (borders && lki_winograd_pad_count(w, block) && block <= 16 * MOST_GROUPS) {
        input_framed(out, w, x, first, count, block, pad);
        return;
    }
    for (int64_t t = 0; t < count; t += 16) {
        tile_group g;
        locate_tiles(&g, w, first + t, count - t < 16 ? count - t : 16, 6, w->in_channels, w->in_height,
                     w->in_width, w->pad_y, w->pad_x);
        for (int64_t c = 0; c < w->in_channels; c++)
            input_group(out + c * block + t, lki_winograd_stride(w->in_channels, block), &g, x + c * plane,
                        w->in_width);
    }
}

/* Z (36, channels, block) = G dy G^T of the same tiles of dy (batch, channels, out_height, out_width). */
static void wino_gradient(float *out, const lki_winograd *w, const float *dy, int64_t first, int64_t count,
                          int64_t block)
{
    int64_t row = lki_winograd_stride(w->out_channels, block);
    int64_t plane = w->out_height * w->out_width;
    for (int64_t t = 0; t < count; t += 16) {
        tile_group g;
        locate_tiles(&g, w, first + t, count - t < 16 ? count - t : 16, 4, w->out_channels, w->out_height,
                     w->out_width, 0, 0);
        for (int64_t c = 0; c < w->out_channels; c++) {
            v half[4][6];
            for (int i = 0; i < 4; i++) {
                v d[4];
                load_tile_row(d, &g, dy + c * plane, w->out_width, i, 4);
                wino_g(half[i], d, 4);
            }
            for (int j = 0; j < 6; j++) {
                v d[4], r[6];
                UNROLL for (int i = 0; i < 4; i++) d[i] = half[i][j];
                wino_g(r, d, 4);
                UNROLL for (int i = 0; i < 6; i++) v_store(out + (i * 6 + j) * row + c * block + t, r[i]);
            }
        }
    }
}

/* Row `row` of sixteen output tiles. */
INLINE void store_tile_row(float *y, const tile_group *g, int64_t width, int row, const v column[4])
{
    __m512 z[4];
    v quarter[4];
    UNROLL for (int q = 0; q < 4; q++) z[q] = (__m512)column[q];
    transpose_quarters(quarter, z);
    UNROLL for (int q = 0; q < 4; q++)
    {
        __m512 tiles = (__m512)quarter[q];
        const int64_t *at = g->at + 4 * q;
        const uint8_t *mask = g->mask[row] + 4 * q;
        float *to = y + row * width;
        if (g->run[q]) {
            _mm512_storeu_ps(to + at[0], tiles);
            continue;
        }
        _mm_mask_storeu_ps(to + at[0], mask[0], _mm512_castps512_ps128(tiles));
        _mm_mask_storeu_ps(to + at[1], mask[1], _mm512_extractf32x4_ps(tiles, 1));
        _mm_mask_storeu_ps(to + at[2], mask[2], _mm512_extractf32x4_ps(tiles, 2));
        _mm_mask_storeu_ps(to + at[3], mask[3], _mm512_extractf32x4_ps(tiles, 3));
    }
}

/* y = A^T M A (+ bias, then ReLU) for output channels [c0, c0 + channels), whose products M (36, channels,
 * block) are given. */
static void wino_output(float *y, const lki_winograd *w, const float *m, int64_t c0, int64_t channels,
                        int64_t first, int64_t count, int64_t block, const float *bias, bool relu)
{
    int64_t row = lki_winograd_stride(channels, block);
    int64_t plane = w->out_height * w->out_width;
    for (int64_t t = 0; t < count; t += 16) {
        tile_group g;
        locate_tiles(&g, w, first + t, count - t < 16 ? count - t : 16, 4, w->out_channels, w->out_height,
                     w->out_width, 0, 0);
        for (int64_t c = 0; c < channels; c++) {
            v half[4][6], shift = v_set(bias ? bias[c0 + c] : 0.0f);
            for (int j = 0; j < 6; j++) {
                v d[6], r[4];
                UNROLL for (int i = 0; i < 6; i++) d[i] = v_load(m + (i * 6 + j) * row + c * block + t);
                wino_at(r, d, 4);
                UNROLL for (int i = 0; i < 4; i++) half[i][j] = r[i];
            }
            for (int i = 0; i < 4; i++) {
                v r[4];
                wino_at(r, half[i], 4);
                UNROLL for (int j = 0; j < 4; j++)
                {
                    r[j] += shift;
                    if (relu) r[j] = v_max(v_set(0.0f), r[j]);
                }
                store_tile_row(y + (c0 + c) * plane, &g, w->out_width, i, r);
            }
        }
    }
}

static const lki_winograd_kernels winograd = {wino_weights, wino_weights_back, wino_input, wino_gradient,
                                              wino_output};
#define WINOGRAD &winograd
#else
#define WINOGRAD NULL
#endif

#endif
