/* Convolutions of bf16 with stride 1 without columns. A plane with its padding is one row of places, and what
 * a tap of the kernel reads lies a fixed number of places further on. So the sums of 32 places are products
 * of tiles that lie in the input itself: with channels last for the result and the input's gradient (k runs
 * over taps and channels), as it is for the weight's (k runs over places). Places beyond a row's last output
 * are computed and thrown away. */
#ifndef LKI_CPU_KERNELS_BF16_SHIFT_H
#define LKI_CPU_KERNELS_BF16_SHIFT_H

#include "engine/cpu/kernels/bf16_pack.h"
#include "tensor/half.h"

/* One row of the grid's interior: x (channels, plane) from element `from` on, to `out` (places, depth). */
INLINE void turn_row(uint16_t *out, const lki_bf16_shift *s, const uint16_t *from, int64_t plane)
{
    for (int64_t c = 0; c < s->channels; c += 32)
        for (int64_t x = 0; x < s->in[2]; x += 16) {
            uint16_t tile[LKI_BF16_TILE] __attribute__((aligned(64)));
            lines l = {.data = from + c * plane + x,
                       .stride = plane,
                       .lines = s->in[2] - x < 16 ? s->in[2] - x : 16,
                       .count = s->channels - c < 32 ? s->channels - c : 32};
            pack_across_k(tile, &l, true);
            for (int64_t i = 0; i < l.lines; i++)
                memcpy(out + (x + i) * s->depth + c, tile + i * 32, 32 * sizeof *tile);
        }
}

/* What lies around the interior stays as it is: zero. */
static void shift_turn(const lki_bf16_shift *s, const uint16_t *x)
{
    int64_t plane = s->in[0] * s->in[1] * s->in[2];
    for (int64_t z = 0; z < s->in[0]; z++)
        for (int64_t y = 0; y < s->in[1]; y++) {
            int64_t place =
                ((z + s->padding[0]) * s->grid[1] + y + s->padding[1]) * s->grid[2] + s->padding[2];
            turn_row(s->turned + place * s->depth, s, x + (z * s->in[1] + y) * s->in[2], plane);
        }
}

/* Of sixteen places those that are outputs, as runs: places [lane, lane + count) go to `to` and on. */
typedef struct run {
    int64_t lane, count, to;
} run;

INLINE int runs_of(run runs[16], const lki_bf16_shift *s, int64_t place)
{
    int count = 0;
    int64_t x = place % s->grid[2], y = place / s->grid[2] % s->grid[1], z = place / s->grid[2] / s->grid[1];
    for (int64_t lane = 0; lane < 16; x = 0) {
        int64_t n = s->grid[2] - x < 16 - lane ? s->grid[2] - x : 16 - lane;
        int64_t kept = z < s->out[0] && y < s->out[1] ? clip_to(s->out[2] - x, 0, n) : 0;
        if (kept > 0) runs[count++] = (run){lane, kept, (z * s->out[1] + y) * s->out[2] + x};
        lane += n;
        if (++y == s->grid[1]) y = 0, z++;
    }
    return count;
}

#if LKI_SIMD == 512
/* sums (16 places, 16 outputs of 32) to the planes of outputs [first, first + count). */
INLINE void shift_save(const lki_bf16_shift *s, const float *sums, const run *runs, int run_count,
                       int64_t first, int64_t count)
{
    __m512 r[16];
    int64_t plane = s->out[0] * s->out[1] * s->out[2];
    UNROLL for (int i = 0; i < 16; i++) r[i] = _mm512_loadu_ps(sums + 32 * i);
    transpose_registers(r);
    float turned[256] __attribute__((aligned(64)));
    UNROLL for (int i = 0; i < 16; i++) _mm512_store_ps(turned + 16 * i, r[i]);
    for (int64_t o = 0; o < count; o++) {
        __m512 x = _mm512_load_ps(turned + 16 * o);
        if (s->bias) x = _mm512_add_ps(x, _mm512_set1_ps(s->bias[first + o]));
        if (s->relu) x = _mm512_max_ps(_mm512_setzero_ps(), x);
        __m256i low = (__m256i)_mm512_cvtneps_pbh(x);
        for (int k = 0; k < run_count; k++) {
            const __mmask16 mask = (__mmask16)(((1u << runs[k].count) - 1) << runs[k].lane);
            int64_t at = (first + o) * plane + runs[k].to - runs[k].lane;
            if (s->y_dtype == LK_F32)
                _mm512_mask_storeu_ps((float *)s->y + at, mask, x);
            else
                _mm256_mask_storeu_epi16((uint16_t *)s->y + at, mask, low);
        }
    }
}
#else
INLINE void shift_save(const lki_bf16_shift *s, const float *sums, const run *runs, int run_count,
                       int64_t first, int64_t count)
{
    int64_t plane = s->out[0] * s->out[1] * s->out[2];
    for (int64_t o = 0; o < count; o++)
        for (int k = 0; k < run_count; k++)
            for (int64_t i = 0; i < runs[k].count; i++) {
                float x = sums[(runs[k].lane + i) * 32 + o] + (s->bias ? s->bias[first + o] : 0);
                int64_t at = (first + o) * plane + runs[k].to + i;
                if (s->relu) x = x > 0 || x != x ? x : 0;
                if (s->y_dtype == LK_F32)
                    ((float *)s->y)[at] = x;
                else
                    ((uint16_t *)s->y)[at] = lki_f32_to_bf16(x);
            }
}
#endif

/* y (outs, out...) = the sums over taps and channels at all places. */
static void shift_forward(const lki_bf16_shift *s)
{
    float sums[LKI_BF16_SUMS] __attribute__((aligned(64)));
    int64_t steps = s->taps * s->depth / 32;
    block_begin();
    for (int64_t place = 0; place < s->places; place += 32) {
        lki_bf16_rows rows = {s->turned + place * s->depth, s->depth, 16 * s->depth, s->step_at};
        run runs[2][16];
        int run_count[2] = {runs_of(runs[0], s, place), runs_of(runs[1], s, place + 16)};
        for (int64_t o = 0; o < s->outs; o += 32) {
            int64_t left = s->outs - o;
            block_sums(sums, &rows, s->packed + o / 32 * steps * 2 * LKI_BF16_TILE, steps, 2,
                       left > 16 ? 2 : 1, false);
            for (int half = 0; half < 2; half++)
                for (int64_t j = 0; j < left && j < 32; j += 16)
                    shift_save(s, sums + half * 16 * 32 + j, runs[half], run_count[half], o + j,
                               left - j < 16 ? left - j : 16);
        }
    }
    block_end();
}

/* Rows of a plane to the grid, `grid` elements a plane: x with its padding around it, dy without. */
static void shift_spread(uint16_t *out, int64_t out_plane, const lki_bf16_shift *s, const uint16_t *x,
                         int64_t channels, bool is_input)
{
    const int64_t *size = is_input ? s->in : s->out;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t z = 0; z < size[0]; z++)
            for (int64_t y = 0; y < size[1]; y++, x += size[2]) {
                int64_t row =
                    (z + (is_input ? s->padding[0] : 0)) * s->grid[1] + y + (is_input ? s->padding[1] : 0);
                memcpy(out + c * out_plane + row * s->grid[2] + (is_input ? s->padding[2] : 0), x,
                       (size_t)size[2] * sizeof *x);
            }
}

/* Adds to sums (taps, outs / 32, channels / 32, 32, 32) of one sample: A is x at a tap's places, B is dy in
 * tiles. Places go through in pieces that stay in the caches while all taps use them. */
static void shift_gradient(const lki_bf16_shift *s, float *sums)
{
    enum { PIECE = 32 };
    static const int64_t along[PIECE] = {0,   32,  64,  96,  128, 160, 192, 224, 256, 288, 320,
                                         352, 384, 416, 448, 480, 512, 544, 576, 608, 640, 672,
                                         704, 736, 768, 800, 832, 864, 896, 928, 960, 992};
    int64_t steps = s->places / 32, blocks = lki_bf16_parts(s->channels), panels = lki_bf16_parts(s->outs);
    block_begin();
    for (int64_t first = 0; first < steps; first += PIECE) {
        int64_t count = steps - first < PIECE ? steps - first : PIECE;
        for (int64_t tap = 0; tap < s->taps; tap++)
            for (int64_t panel = 0; panel < panels; panel++)
                for (int64_t block = 0; block < blocks; block++) {
                    const uint16_t *a =
                        s->turned + block * 32 * s->spread_plane + s->tap_at[tap] + first * 32;
                    lki_bf16_rows rows = {a, s->spread_plane, 16 * s->spread_plane, along};
                    block_sums(sums + ((tap * panels + panel) * blocks + block) * LKI_BF16_SUMS, &rows,
                               s->packed + (panel * steps + first) * 2 * LKI_BF16_TILE, count,
                               s->channels - block * 32 > 16 ? 2 : 1, s->outs - panel * 32 > 16 ? 2 : 1,
                               true);
                }
    }
    block_end();
}

#endif
