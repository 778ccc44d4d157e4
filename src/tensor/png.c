/* PNG and JPEG pictures. What knows their formats is a plug-in. */
#include "tensor/png.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/plugin.h"
#include "base/status.h"
#include "tensor/pictures/pictures_plugin.h"
#include "tensor/tensor_services.h"

lki_plugin lki_pictures = {
    .name = "pictures",
    .library = "PNG and JPEG pictures",
    .package = "libpng-dev and libjpeg-dev",
    .functions_nbytes = sizeof(lki_pictures_functions),
    .services = &lki_tensor_services_table,
    .services_nbytes = sizeof lki_tensor_services_table,
};

static const lki_pictures_functions *open_pictures(const char *path)
{
    const lki_pictures_functions *pictures = lki_plugin_open(&lki_pictures);
    if (!pictures) lki_fail_prefix(LK_ERR_UNSUPPORTED, "%s", path);
    return pictures;
}

lk_status lki_png_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    const lki_pictures_functions *pictures = open_pictures(path);
    return pictures ? pictures->decode_png(out, path, bytes, nbytes, channels) : LK_ERR_UNSUPPORTED;
}

lk_status lki_jpeg_decode(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    const lki_pictures_functions *pictures = open_pictures(path);
    return pictures ? pictures->decode_jpeg(out, path, bytes, nbytes, channels) : LK_ERR_UNSUPPORTED;
}

lk_status lki_png_encode(void **out, size_t *nbytes, const lk_tensor *pixels)
{
    const lki_pictures_functions *pictures = lki_plugin_open(&lki_pictures);
    lk_tensor *dense = NULL;
    *out = NULL;
    *nbytes = 0;
    if (!pictures) return LK_ERR_UNSUPPORTED;
    if (!lk_tensor_is_contiguous(pixels) && !(pixels = dense = lk_tensor_clone(pixels)))
        return lki_last_status();
    lk_status status = pictures->encode_png(out, nbytes, pixels);
    lk_tensor_free(dense);
    return status;
}

lk_tensor *lki_png_read(const char *path)
{
    const lki_pictures_functions *pictures = open_pictures(path);
    LKI_SCOPED char *bytes = NULL;
    size_t nbytes;
    if (!pictures || lki_read_file(&bytes, &nbytes, path)) return NULL;
    return pictures->decode_png_tensor(path, bytes, nbytes);
}

lk_status lki_png_write(const char *path, const lk_tensor *pixels)
{
    LKI_SCOPED void *bytes = NULL;
    size_t nbytes;
    lk_status status = lki_png_encode(&bytes, &nbytes, pixels);
    if (status != LK_OK) return lki_fail_prefix(status, "%s", path);
    return lki_write_file_atomic(path, bytes, nbytes);
}
