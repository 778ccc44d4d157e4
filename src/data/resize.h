/* Pictures of another size, as torch.nn.functional.interpolate makes them with align_corners=False. Any
 * thread. */
#ifndef LKI_DATA_RESIZE_H
#define LKI_DATA_RESIZE_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef enum lki_interpolation {
    LKI_INTERPOLATION_NEAREST,
    LKI_INTERPOLATION_BILINEAR,
    LKI_INTERPOLATION_BICUBIC
} lki_interpolation;

/* NULL means "bilinear". LK_ERR_INVALID names `kind`, the transform. */
lk_status lki_interpolation_parse(lki_interpolation *out, const char *kind, const char *name);

/* A rectangle of a picture of f32. */
typedef struct lki_window {
    const float *data; /* of the whole picture, (channels, picture_height, picture_width) */
    int64_t picture_height, picture_width;
    int64_t top, left, height, width;
} lki_window;

/* Resizes a rectangle to (channels, out_height, out_width). `antialias` takes every pixel into account when
 * the picture becomes smaller. Fails only when memory is short. */
lk_status lki_resize(const lki_window *from, float *out, int64_t channels, int64_t out_height,
                     int64_t out_width, lki_interpolation interpolation, bool antialias);

#endif
