/* Windows that slide over one to three spatial axes, seen as always three: missing axes come first and have
 * size 1. */
#ifndef LKI_ENGINE_REF_SLIDING_WINDOW_H
#define LKI_ENGINE_REF_SLIDING_WINDOW_H

#include "engine/ref/ref.h"

/* A tensor as planes of three spatial axes. */
typedef struct lki_ref_planes {
    int64_t count;  /* the product of all other axes */
    int64_t dim[3]; /* depth, height, width */
    int64_t size;   /* their product */
} lki_ref_planes;

static inline lki_ref_planes lki_ref_planes_of(lk_shape shape, int rank)
{
    lki_ref_planes planes = {.count = lki_ref_span(shape, 0, shape.rank - rank), .dim = {1, 1, 1}};
    for (int i = 0; i < rank; i++) planes.dim[3 - rank + i] = shape.dim[shape.rank - rank + i];
    planes.size = planes.dim[0] * planes.dim[1] * planes.dim[2];
    return planes;
}

/* The window with its axes moved to the last of three. */
static inline lk_window lki_ref_window(const lk_window *window)
{
    lk_window wide = *window;
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - window->rank);
        wide.kernel[i] = from < 0 ? 1 : window->kernel[from];
        wide.stride[i] = from < 0 ? 1 : window->stride[from];
        wide.padding[i] = from < 0 ? 0 : window->padding[from];
        wide.dilation[i] = from < 0 ? 1 : window->dilation[from];
    }
    return wide;
}

/* A flat index of a plane as three coordinates, and back. */
static inline void lki_ref_unflatten(int64_t at[3], int64_t index, const int64_t dim[3])
{
    at[2] = index % dim[2];
    at[1] = index / dim[2] % dim[1];
    at[0] = index / dim[2] / dim[1];
}

static inline int64_t lki_ref_flatten(const int64_t at[3], const int64_t dim[3])
{
    return (at[0] * dim[1] + at[1]) * dim[2] + at[2];
}

/* Which input element the tap `tap` of the window at output `out` reads, as a flat index of its plane; -1 in
 * the padding. */
static inline int64_t lki_ref_tap(const lk_window *window, const int64_t out[3], const int64_t tap[3],
                                  const int64_t dim[3])
{
    int64_t at[3];
    for (int i = 0; i < 3; i++) {
        at[i] = out[i] * window->stride[i] - window->padding[i] + tap[i] * window->dilation[i];
        if (at[i] < 0 || at[i] >= dim[i]) return -1;
    }
    return lki_ref_flatten(at, dim);
}

#endif
