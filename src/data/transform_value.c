/* Transforms of values: ToTensor, Normalize, one-hot. */
#include "data/transform.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "tensor/element.h"

#include <math.h>
#include <string.h>

/* ---- ToTensor: (H, W[, C]) -> (C, H, W) of f32, bytes divided by 255 ---- */

static lk_status plan_to_tensor(const lk_transform *self, const lk_field *in, lk_field *out)
{
    if (in->shape.rank != 2 && in->shape.rank != 3)
        return lki_fail(LK_ERR_SHAPE, "%s: field \"%s\": expected (H, W) or (H, W, C), found %d dimensions",
                        self->kind, in->name, in->shape.rank);
    int64_t channels = in->shape.rank == 3 ? in->shape.dim[2] : 1;
    out->shape = LK_SHAPE(channels, in->shape.dim[0], in->shape.dim[1]);
    out->dtype = LK_F32;
    return LK_OK;
}

static lk_status apply_to_tensor(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                 lki_keyed *random)
{
    (void)self, (void)random;
    int64_t channels = out->shape.dim[0], area = out->shape.dim[1] * out->shape.dim[2];
    float *target = out->data;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = 0; i < area; i++) {
            float value = (float)lki_load(in->dtype, in->data, i * channels + c);
            target[c * area + i] = in->dtype == LK_U8 ? value / 255.0f : value;
        }
    return LK_OK;
}

lk_transform *lk_to_tensor_with(const lk_key_options *given)
{
    LKI_TAKE(lk_key_options, options, given, NULL);
    lk_transform *transform = lki_transform_create("to_tensor", options.key, "features");
    if (!transform) return NULL;
    transform->plan = plan_to_tensor;
    transform->apply = apply_to_tensor;
    return transform;
}

/* ---- Normalize ---- */

static lk_status plan_normalize(const lk_transform *self, const lk_field *in, lk_field *out)
{
    (void)out;
    int channels = self->options.normalize.channels;
    if (in->dtype != LK_F32)
        return lki_fail(LK_ERR_DTYPE,
                        "%s: field \"%s\" is %s: it must be f32 (lk_to_tensor, in a config ToTensor)",
                        self->kind, in->name, lk_dtype_name(in->dtype));
    if (channels > 1 && (in->shape.rank < 1 || in->shape.dim[0] != channels))
        return lki_fail(LK_ERR_SHAPE, "%s: %d means for field \"%s\" of %lld channels", self->kind, channels,
                        in->name, (long long)(in->shape.rank ? in->shape.dim[0] : 1));
    return LK_OK;
}

static lk_status apply_normalize(const lk_transform *self, const lki_sample *in, lki_sample *out,
                                 lki_keyed *random)
{
    (void)random;
    const lk_normalize_options *options = &self->options.normalize;
    int64_t count = lk_shape_count(in->shape), per_channel = count / options->channels;
    const float *source = in->data;
    float *target = out->data;
    for (int c = 0; c < options->channels; c++) {
        float mean = options->mean[c], std = options->std[c];
        for (int64_t i = c * per_channel; i < (c + 1) * per_channel; i++)
            target[i] = (source[i] - mean) / std;
    }
    return LK_OK;
}

lk_transform *lk_normalize_with(const lk_normalize_options *given)
{
    LKI_TAKE(lk_normalize_options, options, given, NULL);
    if (options.channels < 0 || options.channels > LK_MAX_CHANNELS)
        return lki_fail_null(LK_ERR_INVALID, "normalize: channels: expected 1 to %d, found %d",
                             LK_MAX_CHANNELS, options.channels);
    if (options.channels == 0) options.channels = 1;
    for (int c = 0; c < options.channels; c++) {
        if (!isfinite(options.mean[c]) || !(options.std[c] >= 0) || isinf(options.std[c]))
            return lki_fail_null(
                LK_ERR_INVALID,
                "normalize: mean and std: expected numbers, std above 0, found %g and %g for channel %d",
                (double)options.mean[c], (double)options.std[c], c);
        if (options.std[c] == 0) options.std[c] = 1;
    }
    lk_transform *transform = lki_transform_create("normalize", options.key, "features");
    if (!transform) return NULL;
    transform->options.normalize = options;
    transform->plan = plan_normalize;
    transform->apply = apply_normalize;
    return transform;
}

/* ---- One-hot ---- */

static lk_status plan_one_hot(const lk_transform *self, const lk_field *in, lk_field *out)
{
    if (in->dtype != LK_I64 || in->shape.rank != 0)
        return lki_fail(LK_ERR_DTYPE, "%s: field \"%s\": expected an i64 class number", self->kind, in->name);
    out->dtype = LK_F32;
    out->shape = LK_SHAPE(self->size);
    return LK_OK;
}

static lk_status apply_one_hot(const lk_transform *self, const lki_sample *in, lki_sample *out,
                               lki_keyed *random)
{
    (void)random;
    int64_t label = *(const int64_t *)in->data;
    if (label < 0 || label >= self->size)
        return lki_fail(LK_ERR_RANGE, "%s: class %lld, expected 0 to %lld", self->kind, (long long)label,
                        (long long)self->size - 1);
    memset(out->data, 0, (size_t)self->size * sizeof(float));
    ((float *)out->data)[label] = 1;
    return LK_OK;
}

lk_transform *lk_one_hot_with(int64_t num_classes, const lk_key_options *given)
{
    LKI_TAKE(lk_key_options, options, given, NULL);
    if (num_classes < 1)
        return lki_fail_null(LK_ERR_INVALID, "one_hot: num_classes: expected at least 1, found %lld",
                             (long long)num_classes);
    lk_transform *transform = lki_transform_create("one_hot", options.key, "targets");
    if (!transform) return NULL;
    transform->size = num_classes;
    transform->plan = plan_one_hot;
    transform->apply = apply_one_hot;
    return transform;
}
