#include "tensor/pictures/pictures_plugin.h"

#include "base/memory.h"
#include "base/status.h"

#if LOCKSTEP_HAVE_PNG

#include <png.h>
#include <stdint.h>
#include <string.h>

/* Deflate makes at most 1,032 bytes of one, and a row has a byte more than its pixels, of which eight may
 * share one. A file that is too short for its own size must not ask for the memory of that size. */
static lk_status check_size(const png_image *image, const char *path, size_t nbytes)
{
    uint64_t least = (uint64_t)image->height * (image->width / 8 + 1) / 1032;
    if (least <= nbytes) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: unreadable PNG: %zu bytes are too few for %u x %u pixels", path,
                    nbytes, image->height, image->width);
}

lk_status lki_decode_png(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, nbytes))
        return lki_fail(LK_ERR_FORMAT, "%s: unreadable PNG: %s", path, image.message);
    if (check_size(&image, path, nbytes)) {
        png_image_free(&image);
        return LK_ERR_FORMAT;
    }
    image.format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    out->height = image.height;
    out->width = image.width;
    out->channels = channels;
    out->data = lki_calloc((size_t)out->height * (size_t)out->width * (size_t)channels, "a picture");
    if (!out->data) {
        png_image_free(&image);
        return LK_ERR_NOMEM;
    }
    const png_color black = {0, 0, 0}; /* what shows through transparent pixels */
    if (!png_image_finish_read(&image, &black, out->data, 0, NULL))
        return lki_fail(LK_ERR_FORMAT, "%s: unreadable PNG: %s", path, image.message);
    return LK_OK;
}

lk_status lki_encode_png(void **out, size_t *nbytes, const lk_tensor *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    lk_status status = LK_OK;
    *out = NULL;
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
    return status;
}

lk_tensor *lki_decode_png_tensor(const char *path, const void *bytes, size_t nbytes)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    lk_tensor *pixels = NULL;
    if (!png_image_begin_read_from_memory(&image, bytes, nbytes))
        return lki_fail_null(LK_ERR_FORMAT, "%s: no PNG picture: %s", path, image.message);
    image.format = PNG_FORMAT_RGB;
    if (check_size(&image, path, nbytes) == LK_OK)
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

lk_status lki_decode_png(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    (void)out, (void)bytes, (void)nbytes, (void)channels;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: this build cannot read PNG (no libpng)", path);
}

lk_status lki_encode_png(void **out, size_t *nbytes, const lk_tensor *pixels)
{
    (void)pixels;
    *out = NULL;
    *nbytes = 0;
    return lki_fail(LK_ERR_UNSUPPORTED, "this build has no PNG pictures (libpng was not found)");
}

lk_tensor *lki_decode_png_tensor(const char *path, const void *bytes, size_t nbytes)
{
    (void)bytes, (void)nbytes;
    return lki_fail_null(LK_ERR_UNSUPPORTED, "%s: this build has no PNG pictures (libpng was not found)",
                         path);
}

#endif
