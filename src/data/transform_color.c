/* Transforms of the colours of pictures (C, H, W): grey, jitter, and those of AutoAugment. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <math.h>
#include <string.h>

static int64_t area_of(const lki_sample *in)
{
    return in->shape.dim[1] * in->shape.dim[2];
}

static float clamp(float value)
{
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* Of pixel i of three planes, or of one. */
static float grey_at(const float *data, int64_t channels, int64_t area, int64_t i)
{
    if (channels == 1) return data[i];
    return 0.2989f * data[i] + 0.587f * data[area + i] + 0.114f * data[2 * area + i];
}

static lk_status check_colours(const lk_transform *self, const lk_field *in)
{
    LKI_TRY(lki_transform_check_picture(self, in));
    if (in->shape.dim[0] == 1 || in->shape.dim[0] == 3) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: field \"%s\": expected 1 or 3 channels, found %lld", self->kind,
                    in->name, (long long)in->shape.dim[0]);
}

static lk_status plan_colours(const lk_transform *self, const lk_field *in, lk_field *out)
{
    (void)out;
    return check_colours(self, in);
}

/* ---- Grey ---- */

static void make_grey(const lki_sample *in, lki_sample *out)
{
    int64_t area = area_of(in), channels = out->shape.dim[0];
    float *target = out->data;
    for (int64_t i = 0; i < area; i++) {
        float grey = grey_at(in->data, in->shape.dim[0], area, i);
        for (int64_t c = 0; c < channels; c++) target[c * area + i] = grey;
    }
}

static lk_status plan_grey(const lk_transform *self, const lk_field *in, lk_field *out)
{
    LKI_TRY(check_colours(self, in));
    out->shape.dim[0] = self->options.grey.num_output_channels;
    return LK_OK;
}

static lk_status apply_grey(const lk_transform *self, const lki_sample *in, lki_sample *out,
                            lki_keyed *random)
{
    (void)self, (void)random;
    make_grey(in, out);
    return LK_OK;
}

lk_transform *lk_grayscale_with(const lk_grayscale_options *given)
{
    LKI_TAKE(lk_grayscale_options, options, given, NULL);
    if (options.num_output_channels == 0) options.num_output_channels = 1;
    if (options.num_output_channels != 1 && options.num_output_channels != 3)
        return lki_fail_null(LK_ERR_INVALID, "grayscale: num_output_channels: expected 1 or 3, found %d",
                             options.num_output_channels);
    lk_transform *transform = lki_picture_transform("grayscale", options.key);
    if (!transform) return NULL;
    transform->options.grey = options;
    transform->plan = plan_grey;
    transform->apply = apply_grey;
    return transform;
}

/* ---- What happens with a probability ---- */

typedef lk_status (*apply_sample)(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                  lki_keyed *random);

static lk_transform *by_chance(const char *kind, lk_chance_options options, double p, apply_sample apply)
{
    if (lki_check_chance(kind, options.p)) return NULL;
    options.p = lki_number_or(options.p, p);
    lk_transform *transform = lki_picture_transform(kind, options.key);
    if (!transform) return NULL;
    transform->options.chance = options;
    transform->apply = apply;
    return transform;
}

/* Whether the transform happens; if not, the picture stays as it is. */
static bool happens(const lk_transform *self, const lki_sample *in, lki_sample *out, lki_keyed *random)
{
    if (lki_keyed_chance(random, self->options.chance.p)) return true;
    memcpy(out->data, in->data, (size_t)lk_shape_count(in->shape) * sizeof(float));
    return false;
}

static lk_status apply_random_grey(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                   lki_keyed *random)
{
    if (happens(self, in, out, random)) make_grey(in, out);
    return LK_OK;
}

lk_transform *lk_random_grayscale_with(const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    lk_transform *transform = by_chance("random_grayscale", options, 0.1, apply_random_grey);
    if (transform) transform->plan = plan_colours;
    return transform;
}

static lk_status apply_invert(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    const float *source = in->data;
    for (int64_t i = 0; i < lk_shape_count(in->shape); i++) ((float *)out->data)[i] = 1 - source[i];
    return LK_OK;
}

lk_transform *lk_random_invert_with(const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    return by_chance("random_invert", options, 0.5, apply_invert);
}

static lk_status apply_solarize(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    const float *source = in->data;
    for (int64_t i = 0; i < lk_shape_count(in->shape); i++)
        ((float *)out->data)[i] = (double)source[i] >= self->range[0] ? 1 - source[i] : source[i];
    return LK_OK;
}

lk_transform *lk_random_solarize_with(double threshold, const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    if (!(threshold >= 0 && threshold <= 1))
        return lki_fail_null(LK_ERR_INVALID, "random_solarize: threshold: expected 0 to 1, found %g",
                             threshold);
    lk_transform *transform = by_chance("random_solarize", options, 0.5, apply_solarize);
    if (transform) transform->range[0] = threshold;
    return transform;
}

static lk_status apply_posterize(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                 lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    const float *source = in->data;
    int mask = 256 - (1 << (8 - self->size));
    for (int64_t i = 0; i < lk_shape_count(in->shape); i++)
        ((float *)out->data)[i] = (float)((int)rintf(clamp(source[i]) * 255) & mask) / 255.0f;
    return LK_OK;
}

lk_transform *lk_random_posterize_with(int bits, const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    if (bits < 0 || bits > 8)
        return lki_fail_null(LK_ERR_INVALID, "random_posterize: bits: expected 0 to 8, found %d", bits);
    lk_transform *transform = by_chance("random_posterize", options, 0.5, apply_posterize);
    if (transform) transform->size = bits;
    return transform;
}

/* (x - min) / (max - min) per channel; a channel of one value stays as it is. */
static lk_status apply_autocontrast(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                    lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    int64_t area = area_of(in);
    for (int64_t c = 0; c < in->shape.dim[0] && area; c++) {
        const float *source = (const float *)in->data + c * area;
        float *target = (float *)out->data + c * area, low = source[0], high = source[0];
        for (int64_t i = 1; i < area; i++) {
            if (source[i] < low) low = source[i];
            if (source[i] > high) high = source[i];
        }
        float scale = 1 / (high - low);
        bool is_flat = !isfinite(scale);
        for (int64_t i = 0; i < area; i++) target[i] = clamp(is_flat ? source[i] : (source[i] - low) * scale);
    }
    return LK_OK;
}

lk_transform *lk_random_autocontrast_with(const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    return by_chance("random_autocontrast", options, 0.5, apply_autocontrast);
}

/* ---- Equalize ---- */

enum { LEVELS = 256 };

static int level_of(float value)
{
    return (int)rintf(clamp(value) * (LEVELS - 1));
}

/* Which level each level becomes, so that all are about equally frequent; false where nothing changes: all
 * pixels but those of the highest level are fewer than there are levels. */
static bool fill_levels(int levels[LEVELS], const float *source, int64_t area)
{
    int64_t counts[LEVELS] = {0}, below = 0;
    int highest = 0;
    for (int64_t i = 0; i < area; i++) {
        int level = level_of(source[i]);
        counts[level]++;
        if (level > highest) highest = level;
    }
    int64_t step = (area - counts[highest]) / (LEVELS - 1);
    for (int i = 0; i < LEVELS && step; i++) {
        int64_t level = (below + step / 2) / step;
        levels[i] = level < LEVELS ? (int)level : LEVELS - 1;
        if (i == 0) levels[i] = 0;
        below += counts[i];
    }
    return step > 0;
}

static lk_status apply_equalize(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    int64_t area = area_of(in);
    for (int64_t c = 0; c < in->shape.dim[0]; c++) {
        const float *source = (const float *)in->data + c * area;
        float *target = (float *)out->data + c * area;
        int levels[LEVELS];
        bool changes = fill_levels(levels, source, area);
        for (int64_t i = 0; i < area; i++) {
            int level = level_of(source[i]);
            target[i] = (float)(changes ? levels[level] : level) / (LEVELS - 1);
        }
    }
    return LK_OK;
}

lk_transform *lk_random_equalize_with(const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    return by_chance("random_equalize", options, 0.5, apply_equalize);
}

/* ---- Sharpness ---- */

/* The mean of a pixel and its neighbours, where the pixel counts five times. */
static float smooth_at(const float *at, int64_t width)
{
    float sum = 4 * *at;
    for (int64_t y = -1; y <= 1; y++)
        for (int64_t x = -1; x <= 1; x++) sum += at[y * width + x];
    return sum / 13;
}

/* Pixels of the edge, which lack neighbours, keep their values. */
static lk_status apply_sharpness(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                 lki_keyed *random)
{
    if (!happens(self, in, out, random)) return LK_OK;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    float factor = (float)self->range[0];
    memcpy(out->data, in->data, (size_t)lk_shape_count(in->shape) * sizeof(float));
    for (int64_t c = 0; c < in->shape.dim[0]; c++)
        for (int64_t y = 1; y + 1 < height; y++)
            for (int64_t x = 1; x + 1 < width; x++) {
                int64_t i = (c * height + y) * width + x;
                const float *at = (const float *)in->data + i;
                float value = factor * *at + (1 - factor) * smooth_at(at, width);
                ((float *)out->data)[i] = clamp(value);
            }
    return LK_OK;
}

lk_transform *lk_random_adjust_sharpness_with(double sharpness_factor, const lk_chance_options *given)
{
    LKI_TAKE(lk_chance_options, options, given, NULL);
    if (!(sharpness_factor >= 0) || isinf(sharpness_factor))
        return lki_fail_null(LK_ERR_INVALID,
                             "random_adjust_sharpness: sharpness_factor: expected at least 0, found %g",
                             sharpness_factor);
    lk_transform *transform = by_chance("random_adjust_sharpness", options, 0.5, apply_sharpness);
    if (transform) transform->range[0] = sharpness_factor;
    return transform;
}

/* ---- Colour jitter ---- */

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, PROPERTIES };

static double *property(lk_color_jitter_options *options, int which)
{
    double *const properties[] = {options->brightness, options->contrast, options->saturation, options->hue};
    return properties[which];
}

/* factor x + (1 - factor) other, within 0..1. */
static float blend(float x, float other, float factor)
{
    return clamp(factor * x + (1 - factor) * other);
}

static void change_contrast(float *data, int64_t channels, int64_t area, float factor)
{
    double sum = 0;
    for (int64_t i = 0; i < area; i++) sum += (double)grey_at(data, channels, area, i);
    float mean = (float)(sum / (double)area);
    for (int64_t i = 0; i < channels * area; i++) data[i] = blend(data[i], mean, factor);
}

static void change_saturation(float *data, int64_t area, float factor)
{
    for (int64_t i = 0; i < area; i++) {
        float grey = grey_at(data, 3, area, i);
        for (int c = 0; c < 3; c++) data[c * area + i] = blend(data[c * area + i], grey, factor);
    }
}

/* The hue of a colour, 0 to 1, by the largest of its channels. */
static float hue_of(float r, float g, float b, float high, float low)
{
    if (high == low) return 0;
    float rc = (high - r) / (high - low), gc = (high - g) / (high - low), bc = (high - b) / (high - low);
    float hue = high == r ? bc - gc : high == g ? 2 + rc - bc : 4 + gc - rc;
    return fmodf(hue / 6 + 1, 1);
}

static void turn_hue(float *r, float *g, float *b, float by)
{
    float high = fmaxf(*r, fmaxf(*g, *b)), low = fminf(*r, fminf(*g, *b));
    float saturation = high == low ? 0 : (high - low) / high;
    float hue = hue_of(*r, *g, *b, high, low) + by;
    hue -= floorf(hue);
    float sector = floorf(hue * 6), f = hue * 6 - sector;
    float p = clamp(high * (1 - saturation)), q = clamp(high * (1 - saturation * f)),
          t = clamp(high * (1 - saturation * (1 - f)));
    const float colours[6][3] = {{high, t, p}, {q, high, p}, {p, high, t},
                                 {p, q, high}, {t, p, high}, {high, p, q}};
    const float *colour = colours[(int)sector % 6];
    *r = colour[0];
    *g = colour[1];
    *b = colour[2];
}

static void change(int which, float *data, int64_t channels, int64_t area, float factor)
{
    if (which == BRIGHTNESS) {
        for (int64_t i = 0; i < channels * area; i++) data[i] = clamp(data[i] * factor);
    } else if (which == CONTRAST) {
        change_contrast(data, channels, area, factor);
    } else if (channels == 3 && which == SATURATION) {
        change_saturation(data, area, factor);
    } else if (channels == 3) {
        for (int64_t i = 0; i < area; i++) turn_hue(data + i, data + area + i, data + 2 * area + i, factor);
    }
}

/* A property that keeps everything as it is has the range of one number only. */
static bool is_changed(const double range[2], int which)
{
    double same = which == HUE ? 0 : 1;
    return range[0] != same || range[1] != same;
}

static lk_status apply_jitter(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    lk_color_jitter_options options = self->options.jitter;
    int64_t area = area_of(in), channels = in->shape.dim[0];
    int order[PROPERTIES] = {BRIGHTNESS, CONTRAST, SATURATION, HUE};
    memcpy(out->data, in->data, (size_t)(channels * area) * sizeof(float));
    for (int i = 0; i < PROPERTIES; i++) {
        int j = i + (int)lki_keyed_below(random, PROPERTIES - i), which = order[j];
        order[j] = order[i];
        const double *range = property(&options, which);
        double factor = lki_keyed_between(random, range[0], range[1]);
        if (is_changed(range, which)) change(which, out->data, channels, area, (float)factor);
    }
    return LK_OK;
}

/* Turns what was given for a property into its range. */
static lk_status set_range(double range[2], int which)
{
    static const char *const names[] = {"brightness", "contrast", "saturation", "hue"};
    bool is_one = !lki_number_given(range[1]) && range[0] >= 0 && !signbit(range[0]);
    double centre = which == HUE ? 0 : 1, strength = range[0];
    if (is_one) {
        range[0] = centre - strength;
        range[1] = centre + strength;
        if (which != HUE && range[0] < 0) range[0] = 0;
    }
    bool fits = isfinite(range[0]) && isfinite(range[1]) && range[0] <= range[1];
    fits = fits && (which == HUE ? range[0] >= -0.5 && range[1] <= 0.5 : range[0] >= 0);
    if (fits) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "color_jitter: %s: expected %s, found %g and %g", names[which],
                    which == HUE ? "0 to 0.5, or a range within -0.5 to 0.5"
                                 : "a number of at least 0, or a range of such numbers",
                    is_one ? strength : range[0], is_one ? 0 : range[1]);
}

lk_transform *lk_color_jitter_with(const lk_color_jitter_options *given)
{
    LKI_TAKE(lk_color_jitter_options, options, given, NULL);
    for (int i = 0; i < PROPERTIES; i++)
        if (set_range(property(&options, i), i)) return NULL;
    lk_transform *transform = lki_picture_transform("color_jitter", options.key);
    if (!transform) return NULL;
    transform->options.jitter = options;
    transform->plan = plan_colours;
    transform->apply = apply_jitter;
    return transform;
}
