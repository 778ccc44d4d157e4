/* Transforms of pictures (C, H, W): random crop, flips, affine, cutout. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <math.h>
#include <string.h>

lk_status lki_transform_check_picture(const lk_transform *transform, const lk_field *field)
{
    char text[160];
    if (field->dtype == LK_F32 && field->shape.rank == 3) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: field \"%s\": expected f32 (C, H, W), found %s %s", transform->kind,
                    field->name, lk_dtype_name(field->dtype),
                    lk_shape_format(text, sizeof text, field->shape));
}

static lk_status plan_same(const lk_transform *self, const lk_field *in, lk_field *out)
{
    (void)out;
    return lki_transform_check_picture(self, in);
}

lk_transform *lki_picture_transform(const char *kind, const char *key)
{
    lk_transform *transform = lki_transform_create(kind, key, "features");
    if (transform) transform->plan = plan_same;
    return transform;
}

lk_status lki_check_chance(const char *kind, double p)
{
    if (p >= 0 && p <= 1) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: p: expected 0 to 1, found %g", kind, p);
}

lk_status lki_check_finite(const char *kind, const char *what, double value)
{
    if (isfinite(value)) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected a finite number, found %g", kind, what, value);
}

static lk_status check_from_zero(const char *kind, const char *what, double value, double below)
{
    if (value >= 0 && value < below) return LK_OK;
    if (isinf(below))
        return lki_fail(LK_ERR_INVALID, "%s: %s: expected 0 or more, found %g", kind, what, value);
    return lki_fail(LK_ERR_INVALID, "%s: %s: expected 0 or more and below %g, found %g", kind, what, below,
                    value);
}

/* ---- Random crop ---- */

static lk_status plan_crop(const lk_transform *self, const lk_field *in, lk_field *out)
{
    LKI_TRY(lki_transform_check_picture(self, in));
    const lk_random_crop_options *options = &self->options.crop;
    int64_t height = in->shape.dim[1] + 2 * options->padding, width = in->shape.dim[2] + 2 * options->padding;
    if (self->size > height || options->width > width)
        return lki_fail(LK_ERR_SHAPE, "%s: a crop of %lldx%lld from a picture of %lldx%lld", self->kind,
                        (long long)self->size, (long long)options->width, (long long)height,
                        (long long)width);
    out->shape = LK_SHAPE(in->shape.dim[0], self->size, options->width);
    return LK_OK;
}

static lk_status apply_crop(const lk_transform *self, const lki_sample *in, lki_sample *out,
                            lki_keyed *random)
{
    const lk_random_crop_options *options = &self->options.crop;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2], padding = options->padding;
    int64_t top = lki_keyed_below(random, height + 2 * padding - self->size + 1) - padding;
    int64_t left = lki_keyed_below(random, width + 2 * padding - options->width + 1) - padding;
    const float *source = in->data;
    float *target = out->data;
    for (int64_t c = 0; c < out->shape.dim[0]; c++)
        for (int64_t y = top; y < top + self->size; y++)
            for (int64_t x = left; x < left + options->width; x++) {
                bool inside = y >= 0 && y < height && x >= 0 && x < width;
                *target++ = inside ? source[(c * height + y) * width + x] : options->fill;
            }
    return LK_OK;
}

lk_transform *lk_random_crop_with(int64_t height, const lk_random_crop_options *given)
{
    LKI_TAKE(lk_random_crop_options, options, given, NULL);
    if (height < 1 || options.width < 0 || options.padding < 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "random_crop: height, width and padding must not be negative, found %lld, %lld "
                             "and %lld",
                             (long long)height, (long long)options.width, (long long)options.padding);
    if (lki_check_finite("random_crop", "fill", options.fill)) return NULL;
    if (options.width == 0) options.width = height;
    lk_transform *transform = lki_picture_transform("random_crop", options.key);
    if (!transform) return NULL;
    transform->options.crop = options;
    transform->size = height;
    transform->plan = plan_crop;
    transform->apply = apply_crop;
    return transform;
}

/* ---- Flips ---- */

static lk_status apply_horizontal(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                  lki_keyed *random)
{
    int64_t rows = in->shape.dim[0] * in->shape.dim[1], width = in->shape.dim[2];
    bool flipped = lki_keyed_f64(random) < self->options.flip.p;
    for (int64_t y = 0; y < rows; y++) {
        const float *source = (const float *)in->data + y * width;
        float *target = (float *)out->data + y * width;
        for (int64_t x = 0; x < width; x++) target[x] = source[flipped ? width - 1 - x : x];
    }
    return LK_OK;
}

static lk_status apply_vertical(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                lki_keyed *random)
{
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    bool flipped = lki_keyed_f64(random) < self->options.flip.p;
    for (int64_t c = 0; c < in->shape.dim[0]; c++)
        for (int64_t y = 0; y < height; y++) {
            int64_t from = flipped ? height - 1 - y : y;
            memcpy((float *)out->data + (c * height + y) * width,
                   (const float *)in->data + (c * height + from) * width, (size_t)width * sizeof(float));
        }
    return LK_OK;
}

static lk_transform *flip(const char *kind, lk_flip_options options)
{
    if (lki_check_chance(kind, options.p)) return NULL;
    options.p = lki_number_or(options.p, 0.5);
    lk_transform *transform = lki_picture_transform(kind, options.key);
    if (transform) transform->options.flip = options;
    return transform;
}

lk_transform *lk_random_horizontal_flip_with(const lk_flip_options *given)
{
    LKI_TAKE(lk_flip_options, options, given, NULL);
    lk_transform *transform = flip("random_horizontal_flip", options);
    if (transform) transform->apply = apply_horizontal;
    return transform;
}

lk_transform *lk_random_vertical_flip_with(const lk_flip_options *given)
{
    LKI_TAKE(lk_flip_options, options, given, NULL);
    lk_transform *transform = flip("random_vertical_flip", options);
    if (transform) transform->apply = apply_vertical;
    return transform;
}

/* ---- Affine ---- */

static float pixel_or(const float *plane, int64_t height, int64_t width, int64_t y, int64_t x, float fill)
{
    return y >= 0 && y < height && x >= 0 && x < width ? plane[y * width + x] : fill;
}

float lki_pixel_bilinear(const float *plane, int64_t height, int64_t width, double y, double x, float fill)
{
    double top = floor(y), left = floor(x);
    if (!(top >= -1 && top < (double)height && left >= -1 && left < (double)width)) return fill;
    int64_t y0 = (int64_t)top, x0 = (int64_t)left;
    float fy = (float)(y - top), fx = (float)(x - left);
    float upper = pixel_or(plane, height, width, y0, x0, fill) * (1 - fx) +
                  pixel_or(plane, height, width, y0, x0 + 1, fill) * fx;
    float lower = pixel_or(plane, height, width, y0 + 1, x0, fill) * (1 - fx) +
                  pixel_or(plane, height, width, y0 + 1, x0 + 1, fill) * fx;
    return upper * (1 - fy) + lower * fy;
}

void lki_affine_picture(const float *in, float *out, int64_t channels, int64_t height, int64_t width,
                        const double m[6], float fill)
{
    double centre_y = (double)(height - 1) / 2, centre_x = (double)(width - 1) / 2;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t row = 0; row < height; row++)
            for (int64_t column = 0; column < width; column++) {
                double x = (double)column - centre_x, y = (double)row - centre_y;
                *out++ = lki_pixel_bilinear(in + c * height * width, height, width,
                                            m[3] * x + m[4] * y + m[5] + centre_y,
                                            m[0] * x + m[1] * y + m[2] + centre_x, fill);
            }
}

/* The picture is sheared, scaled, turned and moved; the matrix is the way back: R^-1 S^-1 (p - t), shear
 * last. */
static lk_status apply_affine(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    const lk_random_affine_options *o = &self->options.affine;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    double angle = lki_keyed_between(random, -o->degrees, o->degrees) * M_PI / 180;
    double move_x = lki_keyed_between(random, -o->translate_x, o->translate_x) * (double)width;
    double move_y = lki_keyed_between(random, -o->translate_y, o->translate_y) * (double)height;
    double scale = lki_keyed_between(random, o->scale_min, o->scale_max);
    double shear = tan(lki_keyed_between(random, -o->shear, o->shear) * M_PI / 180);
    double c = cos(angle) / scale, s = sin(angle) / scale;
    double m[6] = {c + shear * s, s - shear * c, 0, -s, c, 0};
    m[2] = -(m[0] * move_x + m[1] * move_y);
    m[5] = -(m[3] * move_x + m[4] * move_y);
    lki_affine_picture(in->data, out->data, in->shape.dim[0], height, width, m, o->fill);
    return LK_OK;
}

static lk_status check_affine(const lk_random_affine_options *options)
{
    const char *kind = "random_affine";
    LKI_TRY(check_from_zero(kind, "degrees", options->degrees, INFINITY));
    LKI_TRY(check_from_zero(kind, "shear", options->shear, 90));
    LKI_TRY(lki_check_finite(kind, "fill", options->fill));
    const double moves[] = {options->translate_x, options->translate_y};
    for (int i = 0; i < 2; i++)
        if (!(moves[i] >= 0 && moves[i] <= 1))
            return lki_fail(LK_ERR_INVALID, "%s: translate: expected a fraction from 0 to 1, found %g", kind,
                            moves[i]);
    return LK_OK;
}

lk_transform *lk_random_affine_with(const lk_random_affine_options *given)
{
    LKI_TAKE(lk_random_affine_options, options, given, NULL);
    options.scale_min = lki_number_or(options.scale_min, 1);
    options.scale_max = lki_number_or(options.scale_max, options.scale_min > 1 ? options.scale_min : 1);
    if (!(options.scale_min > 0) || !(options.scale_max >= options.scale_min) || isinf(options.scale_max))
        return lki_fail_null(LK_ERR_INVALID, "random_affine: scale: expected 0 < min <= max, found %g to %g",
                             options.scale_min, options.scale_max);
    if (check_affine(&options)) return NULL;
    lk_transform *transform = lki_picture_transform("random_affine", options.key);
    if (!transform) return NULL;
    transform->options.affine = options;
    transform->apply = apply_affine;
    return transform;
}

/* ---- Cutout ---- */

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

static lk_status apply_cutout(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    const lk_cutout_options *options = &self->options.cutout;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    memcpy(out->data, in->data, (size_t)lk_shape_count(in->shape) * sizeof(float));
    if (!(lki_keyed_f64(random) < options->p)) return LK_OK;
    for (int hole = 0; hole < options->count; hole++) {
        int64_t top = lki_keyed_below(random, height) - self->size / 2;
        int64_t left = lki_keyed_below(random, width) - self->size / 2;
        int64_t y0 = clamp(top, 0, height), y1 = clamp(top + self->size, 0, height);
        int64_t x0 = clamp(left, 0, width), x1 = clamp(left + self->size, 0, width);
        for (int64_t c = 0; c < in->shape.dim[0]; c++)
            for (int64_t y = y0; y < y1; y++)
                for (int64_t x = x0; x < x1; x++)
                    ((float *)out->data)[(c * height + y) * width + x] = options->fill;
    }
    return LK_OK;
}

lk_transform *lk_cutout_with(int64_t size, const lk_cutout_options *given)
{
    LKI_TAKE(lk_cutout_options, options, given, NULL);
    if (size < 1 || options.count < 0)
        return lki_fail_null(LK_ERR_INVALID, "cutout: size and count must be at least 1");
    if (lki_check_finite("cutout", "fill", options.fill)) return NULL;
    if (lki_check_chance("cutout", options.p)) return NULL;
    options.p = lki_number_or(options.p, 1);
    if (options.count == 0) options.count = 1;
    lk_transform *transform = lki_picture_transform("cutout", options.key);
    if (!transform) return NULL;
    transform->options.cutout = options;
    transform->size = size;
    transform->apply = apply_cutout;
    return transform;
}
