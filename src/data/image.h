/* Pictures from PNG and JPEG files. Any thread. */
#ifndef LKI_DATA_IMAGE_H
#define LKI_DATA_IMAGE_H

#include <lockstep/status.h>

#include "tensor/picture.h"

#include <stdbool.h>
#include <stdint.h>

/* Reads a picture as grey (1 channel) or RGB (3). The kind of file is told from its first bytes, not from its
 * name. */
lk_status lki_image_read(lki_image *out, const char *path, int channels);
void lki_image_fini(lki_image *image);

/* By its ending: .png, .jpg, .jpeg, in any case. */
bool lki_image_is_named_so(const char *name);

/* (height, width, channels) bytes to (channels, out_height, out_width) f32 in 0..1, bilinear where the size
 * differs. */
void lki_image_to_f32(const lki_image *image, float *out, int64_t out_height, int64_t out_width);

#endif
