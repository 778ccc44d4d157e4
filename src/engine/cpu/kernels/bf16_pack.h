/* Operands of bf16 products as tiles (bf16.h), and the columns of a convolution in 16 bits. Without AVX-512
 * in plain C: for the tests of the tiles' logic on any machine. */
#ifndef LKI_CPU_KERNELS_BF16_PACK_H
#define LKI_CPU_KERNELS_BF16_PACK_H

#include "engine/cpu/kernels/conv_walk.h"
#include "engine/cpu/kernels/transpose.h"
#include "engine/cpu/bf16.h"

/* `lines` of 32 elements along k, `stride` apart, of which `count` along k are there: a tile of A, or of B
 * where its columns are such lines. */
typedef struct lines {
    const uint16_t *data;
    int64_t stride, lines, count;
} lines;

#if LKI_SIMD == 512

INLINE void load_along_k(__m512 r[16], const lines *l)
{
    const __mmask32 mask = l->count >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << l->count) - 1;
    UNROLL for (int i = 0; i < 16; i++) r[i] =
        i < l->lines ? (__m512)_mm512_maskz_loadu_epi16(mask, l->data + i * l->stride) : _mm512_setzero_ps();
}

/* Line i of 16 elements is k = i: two lines become sixteen pairs. */
INLINE __m512 load_pair(const lines *l, int i, __mmask16 mask)
{
    const __m512i zip = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7,
                                         22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const uint16_t *from = l->data + i * l->stride;
    __m256i even = i < l->count ? _mm256_maskz_loadu_epi16(mask, from) : _mm256_setzero_si256();
    __m256i odd =
        i + 1 < l->count ? _mm256_maskz_loadu_epi16(mask, from + l->stride) : _mm256_setzero_si256();
    __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(even), odd, 1);
    return (__m512)_mm512_permutexvar_epi16(zip, both);
}

INLINE void load_across_k(__m512 r[16], const lines *l)
{
    const __mmask16 mask = (__mmask16)((1u << l->lines) - 1);
    UNROLL for (int i = 0; i < 16; i++) r[i] = load_pair(l, 2 * i, mask);
}

INLINE void store_tile(uint16_t *out, const __m512 r[16])
{
    UNROLL for (int i = 0; i < 16; i++) _mm512_storeu_ps(out + 32 * i, r[i]);
}

INLINE void pack_along_k(uint16_t *out, const lines *l, bool turn)
{
    __m512 r[16];
    load_along_k(r, l);
    if (turn) transpose_registers(r);
    store_tile(out, r);
}

INLINE void pack_across_k(uint16_t *out, const lines *l, bool turn)
{
    __m512 r[16];
    load_across_k(r, l);
    if (turn) transpose_registers(r);
    store_tile(out, r);
}

#else

/* Element (line, k) of the tile of lines, which `turn` makes one of pairs. */
INLINE int64_t place(int64_t line, int64_t k, bool pairs)
{
    return pairs ? (k / 2) * 32 + line * 2 + k % 2 : line * 32 + k;
}

INLINE void pack_along_k(uint16_t *out, const lines *l, bool turn)
{
    for (int64_t i = 0; i < 16; i++)
        for (int64_t p = 0; p < 32; p++)
            out[place(i, p, turn)] = i < l->lines && p < l->count ? l->data[i * l->stride + p] : 0;
}

INLINE void pack_across_k(uint16_t *out, const lines *l, bool turn)
{
    for (int64_t i = 0; i < 16; i++)
        for (int64_t p = 0; p < 32; p++)
            out[place(i, p, !turn)] = i < l->lines && p < l->count ? l->data[p * l->stride + i] : 0;
}

#endif

/* One operand: element (line, k) lies at data[line * line_stride + k * k_stride]. */
typedef struct factor {
    const uint16_t *data;
    int64_t line_stride, k_stride, lines, k;
    bool pairs; /* tiles of B */
    uint16_t *out;
} factor;

static void pack_factor(const factor *f, int64_t begin, int64_t end)
{
    int64_t steps = lki_bf16_parts(f->k);
    bool along = f->k_stride == 1;
    for (int64_t part = begin; part < end; part++)
        for (int64_t half = 0; half < 2 && part * 32 + half * 16 < f->lines; half++) {
            int64_t line = part * 32 + half * 16, rest = f->lines - line;
            uint16_t *out = f->out + part * steps * 2 * LKI_BF16_TILE + half * LKI_BF16_TILE;
            for (int64_t p = 0; p < f->k; p += 32, out += 2 * LKI_BF16_TILE) {
                lines l = {.data = f->data + line * f->line_stride + p * f->k_stride,
                           .stride = along ? f->line_stride : f->k_stride,
                           .lines = rest < 16 ? rest : 16,
                           .count = f->k - p < 32 ? f->k - p : 32};
                if (along)
                    pack_along_k(out, &l, f->pairs);
                else
                    pack_across_k(out, &l, !f->pairs);
            }
        }
}

static void bf16_pack_a(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    pack_factor(&(factor){g->a, g->a_row, g->a_col, g->m, g->k, false, g->packed_a}, begin, end);
}

static void bf16_pack_b(const lki_bf16_gemm *g, int64_t begin, int64_t end)
{
    pack_factor(&(factor){g->b, g->b_col, g->b_row, g->n, g->k, true, g->packed_b}, begin, end);
}

/* Output columns [begin, begin + n) of one output row: kernels/conv.h has the same for floats. */
INLINE void low_gather(uint16_t *out, const tap *t, int64_t stride, const uint16_t *in, int64_t begin,
                       int64_t n)
{
    int64_t low = clip_to(t->low - begin, 0, n), high = clip_to(t->high - begin, low, n), i = 0;
    const uint16_t *from = in + begin * stride + t->shift;
#if LKI_SIMD == 512
    const __m512i even = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30,
                                          28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (; stride <= 2 && i < n; i += 32) {
        int64_t left = n - i < 32 ? n - i : 32, first = clip_to(low - i, 0, left),
                last = clip_to(high - i, 0, left);
        __m512i a;
        if (stride == 1) {
            a = _mm512_maskz_loadu_epi16((__mmask32)bits_between(first, last), from + i);
        } else {
            uint64_t mask = bits_between(2 * first, 2 * last - 1);
            a = _mm512_permutex2var_epi16(
                _mm512_maskz_loadu_epi16((__mmask32)mask, from + 2 * i), even,
                _mm512_maskz_loadu_epi16((__mmask32)(mask >> 32), from + 2 * i + 32));
        }
        _mm512_mask_storeu_epi16(out + i, (__mmask32)bits_between(0, left), a);
    }
    if (stride <= 2) return;
#endif
    for (; i < n; i++) out[i] = i >= low && i < high ? from[i * stride] : 0;
}

static void low_im2col_tap(uint16_t *first, int64_t col_row, const lki_conv *c, const uint16_t *x, int64_t p0,
                           int64_t p1, int64_t kz, int64_t ky, int64_t kx)
{
    int64_t taps = c->kernel[0] * c->kernel[1] * c->kernel[2], plane = c->in[0] * c->in[1] * c->in[2];
    tap t = tap_of(c, kx);
    row_walk w = walk_from(c, p0 / c->out[2], kz, ky);
    int64_t begin = p0 % c->out[2];
    for (int64_t p = p0; p < p1; walk_on(&w, c), begin = 0) {
        int64_t n = c->out[2] - begin < p1 - p ? c->out[2] - begin : p1 - p, from = row_begin(&w, c);
        uint16_t *out = first + p - p0;
        for (int64_t channel = 0; channel < c->channels; channel++, out += taps * col_row) {
            if (from < 0)
                memset(out, 0, (size_t)n * sizeof *out);
            else
                low_gather(out, &t, c->stride[2], x + channel * plane + from, begin, n);
        }
        p += n;
    }
}

static void low_im2col(uint16_t *col, int64_t col_row, const lki_conv *c, const uint16_t *x, int64_t p0,
                       int64_t p1)
{
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            for (int64_t kx = 0; kx < c->kernel[2]; kx++, col += col_row)
                low_im2col_tap(col, col_row, c, x, p0, p1, kz, ky, kx);
}

static bool low_is_finite(const uint16_t *x, int64_t n)
{
    unsigned found = 0;
    for (int64_t i = 0; i < n; i++) found |= (x[i] & 0x7f80u) == 0x7f80u;
    return !found;
}

#endif
