#include "data/image.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <math.h>
#include <string.h>
#include <strings.h>

bool lki_image_is_named_so(const char *name)
{
    static const char *const endings[] = {".png", ".jpg", ".jpeg"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strcasecmp(name + length - ending, endings[i]) == 0) return true;
    }
    return false;
}

void lki_image_fini(lki_image *image)
{
    lki_free(image->data);
    *image = (lki_image){0};
}

lk_status lki_image_read(lki_image *out, const char *path, int channels)
{
    *out = (lki_image){0};
    lk_buffer *file = NULL;
    LKI_TRY(lki_map_file(&file, path));
    const unsigned char *bytes = lki_buffer_data(file);
    size_t nbytes = lki_buffer_nbytes(file);
    lk_status status;
    if (nbytes > 8 && memcmp(bytes, "\x89PNG\r\n\x1a\n", 8) == 0)
        status = lki_png_decode(out, path, bytes, nbytes, channels);
    else if (nbytes > 3 && memcmp(bytes, "\xff\xd8\xff", 3) == 0)
        status = lki_jpeg_decode(out, path, bytes, nbytes, channels);
    else
        status = lki_fail(LK_ERR_FORMAT, "%s: neither a PNG nor a JPEG picture", path);
    lki_buffer_release(file);
    if (status != LK_OK) lki_image_fini(out);
    return status;
}

static float sample(const lki_image *image, double y, double x, int c)
{
    int64_t y0 = (int64_t)floor(y), x0 = (int64_t)floor(x);
    double fy = y - (double)y0, fx = x - (double)x0;
    int64_t y1 = y0 + 1 < image->height ? y0 + 1 : y0, x1 = x0 + 1 < image->width ? x0 + 1 : x0;
    const uint8_t *d = image->data;
    int64_t w = image->width, n = image->channels;
    double top = d[(y0 * w + x0) * n + c] * (1 - fx) + d[(y0 * w + x1) * n + c] * fx;
    double bottom = d[(y1 * w + x0) * n + c] * (1 - fx) + d[(y1 * w + x1) * n + c] * fx;
    return (float)(top * (1 - fy) + bottom * fy) / 255.0f;
}

static double clamp(double value, double high)
{
    return value < 0 ? 0 : value > high ? high : value;
}

void lki_image_to_f32(const lki_image *image, float *out, int64_t out_height, int64_t out_width)
{
    if (out_height == image->height && out_width == image->width) {
        int64_t area = out_height * out_width;
        for (int c = 0; c < image->channels; c++)
            for (int64_t i = 0; i < area; i++) *out++ = image->data[i * image->channels + c] / 255.0f;
        return;
    }
    /* Pixel centres: as torch's interpolate(mode="bilinear", align_corners=False). */
    double scale_y = (double)image->height / (double)out_height,
           scale_x = (double)image->width / (double)out_width;
    for (int c = 0; c < image->channels; c++)
        for (int64_t y = 0; y < out_height; y++)
            for (int64_t x = 0; x < out_width; x++)
                *out++ = sample(image, clamp(((double)y + .5) * scale_y - .5, (double)(image->height - 1)),
                                clamp(((double)x + .5) * scale_x - .5, (double)(image->width - 1)), c);
}
