/* Pictures of bytes, and the plug-in that knows their formats. Any thread. */
#ifndef LKI_TENSOR_PICTURE_H
#define LKI_TENSOR_PICTURE_H

#include <lockstep/tensor.h>

#include <stddef.h>
#include <stdint.h>

/* Zero is an empty picture. */
typedef struct lki_image {
    int64_t height, width;
    int channels;  /* 1 or 3 */
    uint8_t *data; /* (height, width, channels), freed with lki_free */
} lki_image;

/* One reader per format; `bytes` is the whole file. `path` is for messages. */
lk_status lki_png_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels);
lk_status lki_jpeg_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels);

#endif
