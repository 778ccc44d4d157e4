/* Transforms of places of pictures (C, H, W): rotation, erasing, blur. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/scratch.h"

#include <math.h>
#include <string.h>

enum { TRIES = 10 }; /* torchvision draws as often before it leaves the picture alone */

/* ---- Rotation ---- */

static float nearest(const float *plane, int64_t height, int64_t width, double y, double x, float fill)
{
    /* Half a pixel is rounded to the even one, as grid_sample does it. */
    double row = rint(y), column = rint(x);
    bool inside = row >= 0 && row < (double)height && column >= 0 && column < (double)width;
    return inside ? plane[(int64_t)row * width + (int64_t)column] : fill;
}

/* Output pixel p, counted from the centre, reads R (p - c) + c; R turns clockwise, as y points down. */
static lk_status apply_rotation(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                lki_keyed *random)
{
    const lk_random_rotation_options *o = &self->options.rotation;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    double angle = lki_keyed_between(random, self->range[0], self->range[1]) * M_PI / 180;
    double cosine = cos(angle), sine = sin(angle);
    double middle_y = (double)(height - 1) / 2, middle_x = (double)(width - 1) / 2;
    double cx = o->has_center ? o->center_x - (double)width / 2 : 0;
    double cy = o->has_center ? o->center_y - (double)height / 2 : 0;
    float *target = out->data;
    bool smooth = self->interpolation == LKI_INTERPOLATION_BILINEAR;
    for (int64_t c = 0; c < in->shape.dim[0]; c++)
        for (int64_t row = 0; row < height; row++)
            for (int64_t column = 0; column < width; column++) {
                const float *plane = (const float *)in->data + c * height * width;
                double x = (double)column - middle_x - cx, y = (double)row - middle_y - cy;
                double from_x = cosine * x - sine * y + cx + middle_x;
                double from_y = sine * x + cosine * y + cy + middle_y;
                *target++ = smooth ? lki_pixel_bilinear(plane, height, width, from_y, from_x, o->fill)
                                   : nearest(plane, height, width, from_y, from_x, o->fill);
            }
    return LK_OK;
}

lk_transform *lk_random_rotation_with(double from, double to, const lk_random_rotation_options *given)
{
    static const char kind[] = "random_rotation";
    LKI_TAKE(lk_random_rotation_options, options, given, NULL);
    lki_interpolation interpolation;
    if (!isfinite(from) || !isfinite(to) || from > to)
        return lki_fail_null(LK_ERR_INVALID, "%s: degrees: expected min <= max, found %g to %g", kind, from,
                             to);
    if (!options.interpolation) options.interpolation = "nearest";
    if (lki_interpolation_parse(&interpolation, kind, options.interpolation)) return NULL;
    if (interpolation == LKI_INTERPOLATION_BICUBIC)
        return lki_fail_null(LK_ERR_INVALID, "%s: interpolation: expected nearest or bilinear, found bicubic",
                             kind);
    if (lki_check_finite(kind, "fill", options.fill) || lki_check_finite(kind, "center", options.center_x) ||
        lki_check_finite(kind, "center", options.center_y))
        return NULL;
    lk_transform *transform = lki_picture_transform(kind, options.key);
    if (!transform) return NULL;
    transform->options.rotation = options;
    transform->interpolation = interpolation;
    transform->range[0] = from;
    transform->range[1] = to;
    transform->apply = apply_rotation;
    return transform;
}

/* ---- Erasing ---- */

typedef struct rectangle {
    int64_t top, left, height, width;
} rectangle;

/* False where no rectangle of the wanted area and ratio fits. */
static bool draw_rectangle(const lk_random_erasing_options *options, const lki_sample *in, rectangle *out,
                           lki_keyed *random)
{
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    for (int i = 0; i < TRIES; i++) {
        double area = (double)(height * width);
        area *= lki_keyed_between(random, options->scale_min, options->scale_max);
        double ratio = exp(lki_keyed_between(random, log(options->ratio_min), log(options->ratio_max)));
        out->height = (int64_t)rint(sqrt(area * ratio));
        out->width = (int64_t)rint(sqrt(area / ratio));
        if (out->height >= height || out->width >= width) continue;
        out->top = lki_keyed_below(random, height - out->height + 1);
        out->left = lki_keyed_below(random, width - out->width + 1);
        return true;
    }
    return false;
}

static lk_status apply_erasing(const lk_transform *self, const lki_sample *in, lki_sample *out,
                               lki_keyed *random)
{
    const lk_random_erasing_options *options = &self->options.erasing;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    rectangle hole;
    memcpy(out->data, in->data, (size_t)lk_shape_count(in->shape) * sizeof(float));
    if (!lki_keyed_chance(random, options->p) || !draw_rectangle(options, in, &hole, random)) return LK_OK;
    for (int64_t c = 0; c < in->shape.dim[0]; c++)
        for (int64_t y = hole.top; y < hole.top + hole.height; y++) {
            float *row = (float *)out->data + (c * height + y) * width;
            for (int64_t x = hole.left; x < hole.left + hole.width; x++)
                row[x] = options->random ? (float)lki_keyed_normal(random)
                                         : options->values[options->channels > 1 ? c : 0];
        }
    return LK_OK;
}

static lk_status plan_erasing(const lk_transform *self, const lk_field *in, lk_field *out)
{
    const lk_random_erasing_options *options = &self->options.erasing;
    (void)out;
    LKI_TRY(lki_transform_check_picture(self, in));
    if (options->channels <= 1 || options->channels == in->shape.dim[0]) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: %d values for field \"%s\" of %lld channels", self->kind,
                    options->channels, in->name, (long long)in->shape.dim[0]);
}

static lk_status check_erasing(const lk_random_erasing_options *options)
{
    static const char kind[] = "random_erasing";
    LKI_TRY(lki_check_chance(kind, options->p));
    if (!(options->scale_min >= 0 && options->scale_max >= options->scale_min && options->scale_max <= 1))
        return lki_fail(LK_ERR_INVALID, "%s: scale: expected 0 <= min <= max <= 1, found %g to %g", kind,
                        options->scale_min, options->scale_max);
    if (!(options->ratio_min > 0 && options->ratio_max >= options->ratio_min) || isinf(options->ratio_max))
        return lki_fail(LK_ERR_INVALID, "%s: ratio: expected 0 < min <= max, found %g to %g", kind,
                        options->ratio_min, options->ratio_max);
    if (options->channels < 0 || options->channels > LK_MAX_CHANNELS)
        return lki_fail(LK_ERR_INVALID, "%s: channels: expected 0 to %d, found %d", kind, LK_MAX_CHANNELS,
                        options->channels);
    if (options->random && options->channels)
        return lki_fail(LK_ERR_INVALID, "%s: either random or values, not both", kind);
    for (int i = 0; i < LK_MAX_CHANNELS; i++) LKI_TRY(lki_check_finite(kind, "values", options->values[i]));
    return LK_OK;
}

lk_transform *lk_random_erasing_with(const lk_random_erasing_options *given)
{
    LKI_TAKE(lk_random_erasing_options, options, given, NULL);
    options.scale_min = lki_number_or(options.scale_min, 0.02);
    options.scale_max = lki_number_or(options.scale_max, 0.33);
    options.ratio_min = lki_number_or(options.ratio_min, 0.3);
    options.ratio_max = lki_number_or(options.ratio_max, 3.3);
    if (check_erasing(&options)) return NULL;
    options.p = lki_number_or(options.p, 0.5);
    lk_transform *transform = lki_picture_transform("random_erasing", options.key);
    if (!transform) return NULL;
    transform->options.erasing = options;
    transform->plan = plan_erasing;
    transform->apply = apply_erasing;
    return transform;
}

/* ---- Blur ---- */

static void fill_kernel(double *kernel, int64_t count, double sigma)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        double x = ((double)i - (double)(count - 1) / 2) / sigma;
        kernel[i] = exp(-0.5 * x * x);
        sum += kernel[i];
    }
    for (int64_t i = 0; i < count; i++) kernel[i] /= sum;
}

static int64_t reflected(int64_t at, int64_t edge)
{
    return at < 0 ? -at : at >= edge ? 2 * (edge - 1) - at : at;
}

/* One line of `count` pixels, `stride` apart. */
static void blur_line(const float *in, float *out, int64_t count, int64_t stride, const double *kernel,
                      int64_t taps)
{
    for (int64_t i = 0; i < count; i++) {
        double sum = 0;
        for (int64_t k = 0; k < taps; k++)
            sum += kernel[k] * (double)in[reflected(i + k - taps / 2, count) * stride];
        out[i * stride] = (float)sum;
    }
}

static lk_status apply_blur(const lk_transform *self, const lki_sample *in, lki_sample *out,
                            lki_keyed *random)
{
    const lk_gaussian_blur_options *o = &self->options.blur;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2], area = height * width;
    int64_t taps_y = self->size, taps_x = o->kernel_width;
    size_t kernels = ((size_t)(taps_y + taps_x) * sizeof(double) + 63) / 64 * 64;
    double sigma = lki_keyed_between(random, o->sigma_min, o->sigma_max);
    char *memory = lki_scratch_take(kernels + (size_t)area * sizeof(float));
    if (!memory) return lki_last_status();
    double *kernel_y = (double *)memory, *kernel_x = kernel_y + taps_y;
    float *rows = (float *)(memory + kernels);
    fill_kernel(kernel_y, taps_y, sigma);
    fill_kernel(kernel_x, taps_x, sigma);
    for (int64_t c = 0; c < in->shape.dim[0]; c++) {
        const float *plane = (const float *)in->data + c * area;
        for (int64_t y = 0; y < height; y++)
            blur_line(plane + y * width, rows + y * width, width, 1, kernel_x, taps_x);
        for (int64_t x = 0; x < width; x++)
            blur_line(rows + x, (float *)out->data + c * area + x, height, width, kernel_y, taps_y);
    }
    lki_scratch_give();
    return LK_OK;
}

static lk_status plan_blur(const lk_transform *self, const lk_field *in, lk_field *out)
{
    (void)out;
    LKI_TRY(lki_transform_check_picture(self, in));
    if (self->size / 2 < in->shape.dim[1] && self->options.blur.kernel_width / 2 < in->shape.dim[2])
        return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: a kernel of %lldx%lld is too large for a picture of %lldx%lld",
                    self->kind, (long long)self->options.blur.kernel_width, (long long)self->size,
                    (long long)in->shape.dim[2], (long long)in->shape.dim[1]);
}

lk_transform *lk_gaussian_blur_with(int64_t kernel_height, const lk_gaussian_blur_options *given)
{
    LKI_TAKE(lk_gaussian_blur_options, options, given, NULL);
    if (options.kernel_width == 0) options.kernel_width = kernel_height;
    const int64_t sizes[] = {kernel_height, options.kernel_width};
    for (int i = 0; i < 2; i++)
        if (sizes[i] < 1 || sizes[i] % 2 == 0 || sizes[i] > INT32_MAX)
            return lki_fail_null(LK_ERR_INVALID,
                                 "gaussian_blur: kernel_size: expected an odd number, found %lld",
                                 (long long)sizes[i]);
    options.sigma_max = lki_number_or(options.sigma_max, options.sigma_min != 0 ? options.sigma_min : 2);
    options.sigma_min = lki_number_or(options.sigma_min, 0.1);
    if (!(options.sigma_min > 0 && options.sigma_max >= options.sigma_min) || isinf(options.sigma_max))
        return lki_fail_null(LK_ERR_INVALID, "gaussian_blur: sigma: expected 0 < min <= max, found %g to %g",
                             options.sigma_min, options.sigma_max);
    lk_transform *transform = lki_picture_transform("gaussian_blur", options.key);
    if (!transform) return NULL;
    transform->options.blur = options;
    transform->size = kernel_height;
    transform->plan = plan_blur;
    transform->apply = apply_blur;
    return transform;
}
