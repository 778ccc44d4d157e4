#include "tensor/pictures/pictures_plugin.h"

#include "base/memory.h"
#include "base/status.h"

#if LOCKSTEP_HAVE_JPEG

#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

typedef struct failure {
    struct jpeg_error_mgr base; /* first: libjpeg hands back this pointer */
    jmp_buf jump;
    char message[JMSG_LENGTH_MAX];
} failure;

static void on_error(j_common_ptr info)
{
    failure *self = (failure *)info->err;
    self->base.format_message(info, self->message);
    longjmp(self->jump, 1);
}

/* A warning means missing or damaged data: the picture would be partly grey, so it counts as unreadable. */
static void on_message(j_common_ptr info, int level)
{
    if (level < 0) on_error(info);
}

/* A block of 64 pixels takes at least a bit, and with arithmetic coding hardly less than a 64th of one. A
 * file that is too short for its own size must not ask for the memory of that size. */
static lk_status check_size(const struct jpeg_decompress_struct *info, const char *path, size_t nbytes)
{
    uint64_t pixels = (uint64_t)info->image_height * info->image_width;
    if (pixels / (info->arith_code ? 512 * 64 : 512) <= nbytes) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "%s: unreadable JPEG: %zu bytes are too few for %u x %u pixels", path,
                    nbytes, info->image_height, info->image_width);
}

/* Everything that may jump out; what must survive a jump lives in the caller. */
static lk_status decode_rows(struct jpeg_decompress_struct *info, lki_image *out, const char *path,
                             const void *bytes, size_t nbytes, int channels)
{
    jpeg_mem_src(info, bytes, (unsigned long)nbytes);
    jpeg_read_header(info, TRUE);
    LKI_TRY(check_size(info, path, nbytes));
    info->out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(info);
    out->height = info->output_height;
    out->width = info->output_width;
    out->channels = channels;
    out->data = lki_calloc((size_t)out->height * (size_t)out->width * (size_t)channels, "a picture");
    if (!out->data) return LK_ERR_NOMEM;
    while (info->output_scanline < info->output_height) {
        JSAMPROW row = out->data + (size_t)info->output_scanline * (size_t)out->width * (size_t)channels;
        jpeg_read_scanlines(info, &row, 1);
    }
    jpeg_finish_decompress(info);
    return LK_OK;
}

lk_status lki_decode_jpeg(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    struct jpeg_decompress_struct info = {0};
    failure error;
    info.err = jpeg_std_error(&error.base);
    error.base.error_exit = on_error;
    error.base.emit_message = on_message;
    lk_status status;
    if (setjmp(error.jump)) {
        status = lki_fail(LK_ERR_FORMAT, "%s: unreadable JPEG: %s", path, error.message);
    } else {
        jpeg_create_decompress(&info);
        status = decode_rows(&info, out, path, bytes, nbytes, channels);
    }
    jpeg_destroy_decompress(&info);
    return status;
}

#else

lk_status lki_decode_jpeg(lki_image *out, const char *path, const void *bytes, size_t nbytes, int channels)
{
    (void)out, (void)bytes, (void)nbytes, (void)channels;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: this build cannot read JPEG (no libjpeg)", path);
}

#endif
