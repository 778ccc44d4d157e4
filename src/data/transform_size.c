/* Transforms of the size of pictures (C, H, W): resize, centre crop, pad, random resized crop. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/buffer.h"

#include <math.h>
#include <string.h>

enum { TRIES = 10 }; /* torchvision draws as often before it takes the middle */

static lk_status check_size(const char *kind, int64_t height, int64_t width)
{
    if (height >= 1 && width >= 0) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: size: expected at least 1, found %lld", kind,
                    (long long)(height < 1 ? height : width));
}

static lki_window whole(const lki_sample *in)
{
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    return (lki_window){in->data, height, width, 0, 0, height, width};
}

/* ---- Resize ---- */

/* The size of a picture whose shorter edge becomes `edge`; torchvision cuts fractions off. */
static void keep_proportions(int64_t edge, int64_t most, int64_t *height, int64_t *width)
{
    bool is_tall = *height > *width;
    double shorter = (double)(is_tall ? *width : *height), longer = (double)(is_tall ? *height : *width);
    int64_t new_short = edge, new_long = (int64_t)((double)edge * longer / shorter);
    if (most > 0 && new_long > most) {
        new_short = (int64_t)((double)(most * new_short) / (double)new_long);
        new_long = most;
    }
    *height = is_tall ? new_long : new_short;
    *width = is_tall ? new_short : new_long;
}

static lk_status plan_resize(const lk_transform *self, const lk_field *in, lk_field *out)
{
    const lk_resize_options *options = &self->options.resize;
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    LKI_TRY(lki_transform_check_picture(self, in));
    if (height < 1 || width < 1)
        return lki_fail(LK_ERR_SHAPE, "%s: a picture without pixels has no other size", self->kind);
    if (options->width) {
        height = self->size;
        width = options->width;
    } else {
        keep_proportions(self->size, options->max_size, &height, &width);
    }
    if (height < 1 || width < 1)
        return lki_fail(LK_ERR_SHAPE, "%s: with max_size %lld a picture of %lldx%lld would vanish",
                        self->kind, (long long)options->max_size, (long long)in->shape.dim[2],
                        (long long)in->shape.dim[1]);
    out->shape = LK_SHAPE(in->shape.dim[0], height, width);
    return lki_shape_check(LK_F32, out->shape);
}

static lk_status apply_resize(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    (void)random;
    lki_window from = whole(in);
    return lki_resize(&from, out->data, in->shape.dim[0], out->shape.dim[1], out->shape.dim[2],
                      self->interpolation, !self->options.resize.no_antialias);
}

static lk_status check_resize(int64_t height, const lk_resize_options *options)
{
    LKI_TRY(check_size("resize", height, options->width));
    if (options->max_size && options->width)
        return lki_fail(LK_ERR_INVALID,
                        "resize: max_size: the size says both edges: leave it out, or give one number as the "
                        "size");
    if (options->max_size < 0 || (options->max_size && options->max_size <= height))
        return lki_fail(LK_ERR_INVALID,
                        "resize: max_size: expected more than the shorter edge, %lld, found %lld",
                        (long long)height, (long long)options->max_size);
    return LK_OK;
}

lk_transform *lk_resize_with(int64_t height, const lk_resize_options *given)
{
    LKI_TAKE(lk_resize_options, options, given, NULL);
    lki_interpolation interpolation;
    if (check_resize(height, &options)) return NULL;
    if (lki_interpolation_parse(&interpolation, "resize", options.interpolation)) return NULL;
    lk_transform *transform = lki_picture_transform("resize", options.key);
    if (!transform) return NULL;
    transform->options.resize = options;
    transform->interpolation = interpolation;
    transform->size = height;
    transform->plan = plan_resize;
    transform->apply = apply_resize;
    return transform;
}

/* ---- A window of the picture, which may be larger than it ---- */

static void copy_window(const lki_sample *in, lki_sample *out, int64_t top, int64_t left, float fill)
{
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    const float *source = in->data;
    float *target = out->data;
    for (int64_t c = 0; c < out->shape.dim[0]; c++)
        for (int64_t y = top; y < top + out->shape.dim[1]; y++)
            for (int64_t x = left; x < left + out->shape.dim[2]; x++) {
                bool inside = y >= 0 && y < height && x >= 0 && x < width;
                *target++ = inside ? source[(c * height + y) * width + x] : fill;
            }
}

static lk_status plan_center(const lk_transform *self, const lk_field *in, lk_field *out)
{
    LKI_TRY(lki_transform_check_picture(self, in));
    out->shape = LK_SHAPE(in->shape.dim[0], self->size, self->options.center.width);
    return LK_OK;
}

/* Where the window begins along one edge: torchvision pads a short edge first, the smaller half before it,
 * and rounds the place of the crop as Python does. */
static int64_t center_of(int64_t edge, int64_t wanted)
{
    return wanted > edge ? -((wanted - edge) / 2) : (int64_t)rint((double)(edge - wanted) / 2);
}

static lk_status apply_center(const lk_transform *self, const lki_sample *in, lki_sample *out,
                              lki_keyed *random)
{
    (void)self, (void)random;
    copy_window(in, out, center_of(in->shape.dim[1], out->shape.dim[1]),
                center_of(in->shape.dim[2], out->shape.dim[2]), 0);
    return LK_OK;
}

lk_transform *lk_center_crop_with(int64_t height, const lk_center_crop_options *given)
{
    LKI_TAKE(lk_center_crop_options, options, given, NULL);
    if (check_size("center_crop", height, options.width)) return NULL;
    if (options.width == 0) options.width = height;
    lk_transform *transform = lki_picture_transform("center_crop", options.key);
    if (!transform) return NULL;
    transform->options.center = options;
    transform->size = height;
    transform->plan = plan_center;
    transform->apply = apply_center;
    return transform;
}

/* ---- Pad ---- */

enum { PAD_CONSTANT, PAD_EDGE, PAD_REFLECT, PAD_SYMMETRIC };

/* The most that can be added on a side of an edge: what is mirrored must be there. */
static int64_t most_padding(int64_t mode, int64_t edge)
{
    return mode == PAD_REFLECT ? edge - 1 : mode == PAD_SYMMETRIC ? edge : INT64_MAX;
}

static lk_status check_sides(const lk_transform *self, int64_t before, int64_t after, int64_t edge)
{
    int64_t most = most_padding(self->size, edge);
    if (before + edge + after < 1)
        return lki_fail(LK_ERR_SHAPE, "%s: nothing is left of %lld pixels", self->kind, (long long)edge);
    if (before > most || after > most)
        return lki_fail(LK_ERR_SHAPE,
                        "%s: %s: expected at most %lld for a picture of %lld pixels, found %lld", self->kind,
                        self->options.pad.padding_mode, (long long)most, (long long)edge,
                        (long long)(before > most ? before : after));
    return LK_OK;
}

static lk_status plan_pad(const lk_transform *self, const lk_field *in, lk_field *out)
{
    const lk_pad_picture_options *o = &self->options.pad;
    LKI_TRY(lki_transform_check_picture(self, in));
    LKI_TRY(check_sides(self, o->top, o->bottom, in->shape.dim[1]));
    LKI_TRY(check_sides(self, o->left, o->right, in->shape.dim[2]));
    out->shape = LK_SHAPE(in->shape.dim[0], in->shape.dim[1] + o->top + o->bottom,
                          in->shape.dim[2] + o->left + o->right);
    return lki_shape_check(LK_F32, out->shape);
}

/* The pixel of an edge that a place outside of it shows. */
static int64_t mirrored(int64_t mode, int64_t at, int64_t edge)
{
    if (mode == PAD_EDGE) return at < 0 ? 0 : at >= edge ? edge - 1 : at;
    int64_t again = mode == PAD_SYMMETRIC; /* the edge itself is shown twice */
    if (at < 0) return -at - again;
    return at >= edge ? 2 * (edge - 1) - at + again : at;
}

static lk_status apply_pad(const lk_transform *self, const lki_sample *in, lki_sample *out, lki_keyed *random)
{
    const lk_pad_picture_options *options = &self->options.pad;
    (void)random;
    if (self->size == PAD_CONSTANT) {
        copy_window(in, out, -options->top, -options->left, options->fill);
        return LK_OK;
    }
    int64_t height = in->shape.dim[1], width = in->shape.dim[2];
    float *target = out->data;
    for (int64_t c = 0; c < in->shape.dim[0]; c++)
        for (int64_t y = 0; y < out->shape.dim[1]; y++) {
            int64_t row = mirrored(self->size, y - options->top, height);
            const float *source = (const float *)in->data + (c * height + row) * width;
            for (int64_t x = 0; x < out->shape.dim[2]; x++)
                *target++ = source[mirrored(self->size, x - options->left, width)];
        }
    return LK_OK;
}

static lk_status check_pad(const lk_pad_picture_options *options, int64_t *mode)
{
    static const char *const modes[] = {"constant", "edge", "reflect", "symmetric"};
    const int64_t sides[] = {options->left, options->top, options->right, options->bottom};
    for (*mode = 0; *mode < 4; ++*mode)
        if (strcmp(modes[*mode], options->padding_mode) == 0) break;
    if (*mode == 4)
        return lki_fail(LK_ERR_INVALID,
                        "pad: padding_mode: expected constant, edge, reflect or symmetric, found \"%s\"",
                        options->padding_mode);
    LKI_TRY(lki_check_finite("pad", "fill", options->fill));
    if (*mode != PAD_CONSTANT && options->fill != 0)
        return lki_fail(LK_ERR_INVALID,
                        "pad: fill: padding_mode %s shows pixels of the picture: leave it out", modes[*mode]);
    for (int i = 0; i < 4; i++)
        if (sides[i] < (*mode == PAD_CONSTANT ? -INT32_MAX : 0) || sides[i] > INT32_MAX)
            return lki_fail(LK_ERR_INVALID, "pad: padding: %s cannot have %lld pixels", modes[*mode],
                            (long long)sides[i]);
    return LK_OK;
}

lk_transform *lk_pad_picture_with(const lk_pad_picture_options *given)
{
    static const char *const names[] = {"constant", "edge", "reflect", "symmetric"};
    LKI_TAKE(lk_pad_picture_options, options, given, NULL);
    int64_t mode;
    if (!options.padding_mode) options.padding_mode = names[0];
    if (check_pad(&options, &mode)) return NULL;
    lk_transform *transform = lki_picture_transform("pad", options.key);
    if (!transform) return NULL;
    options.padding_mode = names[mode]; /* the caller's text may not live as long */
    transform->options.pad = options;
    transform->size = mode;
    transform->plan = plan_pad;
    transform->apply = apply_pad;
    return transform;
}

/* ---- Random resized crop ---- */

static lk_status plan_part(const lk_transform *self, const lk_field *in, lk_field *out)
{
    LKI_TRY(lki_transform_check_picture(self, in));
    if (lk_shape_count(in->shape) == 0)
        return lki_fail(LK_ERR_SHAPE, "%s: a picture without pixels has no parts", self->kind);
    out->shape = LK_SHAPE(in->shape.dim[0], self->size, self->options.part.width);
    return LK_OK;
}

/* The largest rectangle in the middle whose ratio is allowed. */
static void take_middle(const lk_random_resized_crop_options *options, lki_window *part)
{
    double ratio = (double)part->picture_width / (double)part->picture_height;
    part->height = part->picture_height;
    part->width = part->picture_width;
    if (ratio < options->ratio_min)
        part->height = (int64_t)rint((double)part->width / options->ratio_min);
    else if (ratio > options->ratio_max)
        part->width = (int64_t)rint((double)part->height * options->ratio_max);
    /* A picture of one pixel may leave no whole pixel of the ratio. */
    if (part->height < 1) part->height = 1;
    if (part->width < 1) part->width = 1;
    part->top = (part->picture_height - part->height) / 2;
    part->left = (part->picture_width - part->width) / 2;
}

static void draw_part(const lk_random_resized_crop_options *options, lki_window *part, lki_keyed *random)
{
    double area = (double)part->picture_height * (double)part->picture_width;
    for (int i = 0; i < TRIES; i++) {
        double wanted = area * lki_keyed_between(random, options->scale_min, options->scale_max);
        double ratio = exp(lki_keyed_between(random, log(options->ratio_min), log(options->ratio_max)));
        part->width = (int64_t)rint(sqrt(wanted * ratio));
        part->height = (int64_t)rint(sqrt(wanted / ratio));
        if (part->width < 1 || part->width > part->picture_width || part->height < 1 ||
            part->height > part->picture_height)
            continue;
        part->top = lki_keyed_below(random, part->picture_height - part->height + 1);
        part->left = lki_keyed_below(random, part->picture_width - part->width + 1);
        return;
    }
    take_middle(options, part);
}

static lk_status apply_part(const lk_transform *self, const lki_sample *in, lki_sample *out,
                            lki_keyed *random)
{
    lki_window part = whole(in);
    draw_part(&self->options.part, &part, random);
    return lki_resize(&part, out->data, in->shape.dim[0], out->shape.dim[1], out->shape.dim[2],
                      self->interpolation, !self->options.part.no_antialias);
}

static lk_status check_part(const lk_random_resized_crop_options *options)
{
    if (!(options->scale_min > 0) || !(options->scale_max >= options->scale_min) || isinf(options->scale_max))
        return lki_fail(LK_ERR_INVALID, "random_resized_crop: scale: expected 0 < min <= max, found %g to %g",
                        options->scale_min, options->scale_max);
    if (!(options->ratio_min > 0) || !(options->ratio_max >= options->ratio_min) || isinf(options->ratio_max))
        return lki_fail(LK_ERR_INVALID, "random_resized_crop: ratio: expected 0 < min <= max, found %g to %g",
                        options->ratio_min, options->ratio_max);
    return LK_OK;
}

lk_transform *lk_random_resized_crop_with(int64_t height, const lk_random_resized_crop_options *given)
{
    LKI_TAKE(lk_random_resized_crop_options, options, given, NULL);
    lki_interpolation interpolation;
    if (check_size("random_resized_crop", height, options.width)) return NULL;
    if (lki_interpolation_parse(&interpolation, "random_resized_crop", options.interpolation)) return NULL;
    if (options.width == 0) options.width = height;
    options.scale_min = lki_number_or(options.scale_min, 0.08);
    options.scale_max = lki_number_or(options.scale_max, 1);
    options.ratio_min = lki_number_or(options.ratio_min, 3.0 / 4);
    options.ratio_max = lki_number_or(options.ratio_max, 4.0 / 3);
    if (check_part(&options)) return NULL;
    lk_transform *transform = lki_picture_transform("random_resized_crop", options.key);
    if (!transform) return NULL;
    transform->options.part = options;
    transform->interpolation = interpolation;
    transform->size = height;
    transform->plan = plan_part;
    transform->apply = apply_part;
    return transform;
}
