#include "tensor/png.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"

#ifdef LOCKSTEP_HAVE_PNG
#include <png.h>
#include <string.h>

lk_status lki_png_encode(void **out, size_t *nbytes, const lk_tensor *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    lk_status status = LK_OK;
    lk_tensor *dense = NULL;
    *out = NULL;
    if (!lk_tensor_is_contiguous(pixels) && !(pixels = dense = lk_tensor_clone(pixels)))
        return lki_last_status();
    image.height = (png_uint_32)pixels->shape.dim[0];
    image.width = (png_uint_32)pixels->shape.dim[1];
    image.format = pixels->shape.dim[2] == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    png_alloc_size_t needed = PNG_IMAGE_PNG_SIZE_MAX(image);
    *out = lki_calloc(needed, "a PNG picture");
    if (!*out)
        status = LK_ERR_NOMEM;
    else if (!png_image_write_to_memory(&image, *out, &needed, 0, pixels->data, 0, NULL))
        status = lki_fail(LK_ERR_INVALID, "PNG picture: %s", image.message);
    if (status != LK_OK) {
        lki_free(*out);
        *out = NULL;
    }
    *nbytes = needed;
    png_image_free(&image);
    lk_tensor_free(dense);
    return status;
}

lk_tensor *lki_png_read(const char *path)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    LKI_SCOPED char *bytes = NULL;
    size_t nbytes;
    lk_tensor *pixels = NULL;
    if (lki_read_file(&bytes, &nbytes, path)) return NULL;
    if (!png_image_begin_read_from_memory(&image, bytes, nbytes))
        return lki_fail_null(LK_ERR_FORMAT, "%s: no PNG picture: %s", path, image.message);
    image.format = PNG_FORMAT_RGB;
    pixels = lk_tensor_create(LK_U8, LK_SHAPE(image.height, image.width, 3));
    png_color white = {255, 255, 255};
    if (pixels && !png_image_finish_read(&image, &white, pixels->data, 0, NULL)) {
        lki_fail(LK_ERR_FORMAT, "%s: damaged PNG picture: %s", path, image.message);
        lk_tensor_free(pixels);
        pixels = NULL;
    }
    png_image_free(&image);
    return pixels;
}
#else
lk_status lki_png_encode(void **out, size_t *nbytes, const lk_tensor *pixels)
{
    (void)pixels;
    *out = NULL;
    *nbytes = 0;
    return lki_fail(LK_ERR_UNSUPPORTED, "this build has no PNG pictures (libpng was not found)");
}

lk_tensor *lki_png_read(const char *path)
{
    return lki_fail_null(LK_ERR_UNSUPPORTED, "%s: this build has no PNG pictures (libpng was not found)",
                         path);
}
#endif

lk_status lki_png_write(const char *path, const lk_tensor *pixels)
{
    LKI_SCOPED void *bytes = NULL;
    size_t nbytes;
    lk_status status = lki_png_encode(&bytes, &nbytes, pixels);
    if (status != LK_OK) return lki_fail_prefix(status, "%s", path);
    return lki_write_file_atomic(path, bytes, nbytes);
}
