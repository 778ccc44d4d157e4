#include "data/image.h"

#include "base/memory.h"
#include "base/status.h"

#if LOCKSTEP_HAVE_PNG

#include <png.h>
#include <string.h>

lk_status lki_png_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, nbytes))
        return lki_fail(LK_ERR_FORMAT, "%s: unreadable PNG: %s", path, image.message);
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

#else

lk_status lki_png_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    (void)out, (void)bytes, (void)nbytes, (void)channels;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: this build cannot read PNG (no libpng)", path);
}

#endif
