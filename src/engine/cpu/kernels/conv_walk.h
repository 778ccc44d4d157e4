/* Which elements of the input a tap of a convolution's kernel reads, output row by output row. */
#ifndef LKI_CPU_KERNELS_CONV_WALK_H
#define LKI_CPU_KERNELS_CONV_WALK_H

#include "engine/cpu/kernels.h"
#include "engine/cpu/kernels/simd.h"

/* The output columns whose tap at kernel column `at` falls inside of a row of the input. */
typedef struct tap {
    int64_t low, high;
    int64_t shift; /* input column = output column * stride + shift */
} tap;

INLINE tap tap_of(const lki_conv *c, int64_t at)
{
    int64_t shift = at * c->dilation[2] - c->padding[2], stride = c->stride[2], room = c->in[2] - 1 - shift;
    int64_t low = shift >= 0 ? 0 : (-shift + stride - 1) / stride, high = room < 0 ? 0 : room / stride + 1;
    if (low > c->out[2]) low = c->out[2];
    if (high > c->out[2]) high = c->out[2];
    return (tap){low, high < low ? low : high, shift};
}

INLINE int64_t clip_to(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* A walk over output rows: (z, y) counted along, since divisions would cost more than the rows do. */
typedef struct row_walk {
    int64_t z, y;       /* the output row */
    int64_t in_z, in_y; /* the input row that kernel row (kz, ky) reads there, inside or not */
    int64_t first_y;    /* in_y at y = 0 */
} row_walk;

INLINE row_walk walk_from(const lki_conv *c, int64_t row, int64_t kz, int64_t ky)
{
    row_walk w = {.z = row / c->out[1], .y = row % c->out[1]};
    w.first_y = ky * c->dilation[1] - c->padding[1];
    w.in_z = w.z * c->stride[0] + kz * c->dilation[0] - c->padding[0];
    w.in_y = w.y * c->stride[1] + w.first_y;
    return w;
}

INLINE void walk_on(row_walk *w, const lki_conv *c)
{
    w->in_y += c->stride[1];
    if (++w->y < c->out[1]) return;
    w->y = 0;
    w->in_y = w->first_y;
    w->z++;
    w->in_z += c->stride[0];
}

/* Where the input row begins in its plane, or -1 in the padding. */
INLINE int64_t row_begin(const row_walk *w, const lki_conv *c)
{
    if (w->in_z < 0 || w->in_z >= c->in[0] || w->in_y < 0 || w->in_y >= c->in[1]) return -1;
    return (w->in_z * c->in[1] + w->in_y) * c->in[2];
}

/* The bits [low, high) of 64, each end held within 0..64. */
INLINE uint64_t bits_between(int64_t low, int64_t high)
{
    low = clip_to(low, 0, 64);
    high = clip_to(high, 0, 64);
    return high <= low ? 0 : (~UINT64_C(0) >> (64 - (high - low))) << low;
}

#endif
