/* liblockstep_pictures.so: base/plugin.h. Its services are tensor/tensor_services.h. A build may have but one
 * of libpng and libjpeg; the functions of the other then say so. */
#ifndef LKI_TENSOR_PICTURES_PICTURES_PLUGIN_H
#define LKI_TENSOR_PICTURES_PICTURES_PLUGIN_H

#include "base/plugin.h"
#include "tensor/picture.h"

/* Each decoder takes the whole file as `bytes`. */
lk_status lki_decode_png(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels);
lk_status lki_decode_jpeg(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels);
/* A dense u8 tensor (height, width, 1 or 3). */
lk_status lki_encode_png(void **out, size_t *nbytes, const lk_tensor *pixels);
/* RGB on white. */
lk_tensor *lki_decode_png_tensor(const char *path, const void *bytes, size_t nbytes);

typedef struct lki_pictures_functions {
    __typeof__(&lki_decode_png) decode_png;
    __typeof__(&lki_decode_jpeg) decode_jpeg;
    __typeof__(&lki_encode_png) encode_png;
    __typeof__(&lki_decode_png_tensor) decode_png_tensor;
} lki_pictures_functions;

extern lki_plugin lki_pictures; /* the library's side */

#endif
