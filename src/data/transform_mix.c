/* Transforms of batches: mixup and cutmix. */
#include "data/transform.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/scratch.h"

#include <math.h>
#include <string.h>

/* ---- Beta(alpha, alpha) from keyed uniforms ---- */

double lki_keyed_normal(lki_keyed *random)
{
    double u = 1 - lki_keyed_f64(random), v = lki_keyed_f64(random);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* Marsaglia and Tsang's method; a shape below one goes through shape + 1. */
static double keyed_gamma(lki_keyed *random, double shape)
{
    if (shape < 1) {
        double u = 1 - lki_keyed_f64(random);
        return keyed_gamma(random, shape + 1) * pow(u, 1 / shape);
    }
    double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        double x = lki_keyed_normal(random), v = 1 + c * x;
        if (v <= 0) continue;
        v = v * v * v;
        double u = 1 - lki_keyed_f64(random);
        if (log(u) < 0.5 * x * x + d - d * v + d * log(v)) return d * v;
    }
}

static double keyed_beta(lki_keyed *random, double alpha)
{
    double a = keyed_gamma(random, alpha), b = keyed_gamma(random, alpha);
    return a + b > 0 ? a / (a + b) : 0.5;
}

/* ---- What both share ---- */

static lk_status check_mix(const lk_transform *self, const lk_dataset *dataset)
{
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++) {
        const char *key = self->options.mix.keys[k];
        const lk_field *field = lk_dataset_field(dataset, lk_dataset_find_field(dataset, key));
        if (!field) return lki_fail(LK_ERR_NOT_FOUND, "%s: the dataset has no field \"%s\"", self->kind, key);
        if (field->dtype != LK_F32)
            return lki_fail(
                LK_ERR_DTYPE,
                "%s: field \"%s\" is %s: only f32 can be mixed (for classes lk_one_hot, in a config OneHot)",
                self->kind, key, lk_dtype_name(field->dtype));
    }
    return LK_OK;
}

/* A copy of the field and the other sample for each of the batch, in this thread's scratch. */
typedef struct partners {
    const int64_t *other; /* (count) */
    float *copy;          /* (count, ...) of the largest field */
} partners;

static lk_status draw_partners(const lk_transform *self, const lk_batch *batch, lki_keyed *random,
                               partners *out)
{
    size_t largest = 0, indices_nbytes = ((size_t)batch->count * sizeof(int64_t) + 63) / 64 * 64;
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++) {
        size_t nbytes = lk_tensor_nbytes(lk_batch_get(batch, self->options.mix.keys[k]));
        if (nbytes > largest) largest = nbytes;
    }
    char *memory = lki_scratch_take(indices_nbytes + largest); /* its user gives it back */
    if (!memory) return LK_ERR_NOMEM;
    int64_t *other = (int64_t *)memory;
    for (int64_t i = 0; i < batch->count; i++) other[i] = i;
    for (int64_t i = 0; i + 1 < batch->count; i++) {
        int64_t j = i + lki_keyed_below(random, batch->count - i), swapped = other[i];
        other[i] = other[j];
        other[j] = swapped;
    }
    *out = (partners){other, (float *)(memory + indices_nbytes)};
    return LK_OK;
}

static void mix_whole(lk_tensor *tensor, const partners *with, float weight)
{
    int64_t count = tensor->shape.dim[0], width = count ? lk_tensor_count(tensor) / count : 0;
    float *data = tensor->data;
    memcpy(with->copy, data, lk_tensor_nbytes(tensor));
    for (int64_t i = 0; i < count; i++) {
        const float *other = with->copy + with->other[i] * width;
        for (int64_t j = 0; j < width; j++)
            data[i * width + j] = weight * data[i * width + j] + (1 - weight) * other[j];
    }
}

typedef lk_status (*apply_mix)(const lk_transform *self, lk_batch *batch, lki_keyed *random);

static lk_transform *make_mix(const char *kind, lk_mix_options options, double default_alpha, apply_mix apply)
{
    options.alpha = lki_number_or(options.alpha, default_alpha);
    if (!(options.alpha > 0) || isinf(options.alpha))
        return lki_fail_null(LK_ERR_INVALID, "%s: alpha: expected more than 0, found %g", kind,
                             options.alpha);
    lk_transform *transform = lki_transform_create(kind, NULL, NULL);
    if (!transform) return NULL;
    if (!options.keys[0]) {
        options.keys[0] = "features";
        options.keys[1] = "targets";
    }
    transform->options.mix = *LK_OPTIONS(lk_mix_options, .alpha = options.alpha);
    transform->check_batch = check_mix;
    transform->apply_batch = apply;
    for (int k = 0; k < LK_MAX_FIELDS && options.keys[k]; k++) {
        transform->options.mix.keys[k] = lki_strdup(options.keys[k]);
        if (transform->options.mix.keys[k]) continue;
        lk_transform_free(transform);
        return NULL;
    }
    return transform;
}

/* ---- Mixup ---- */

static lk_status apply_mixup(const lk_transform *self, lk_batch *batch, lki_keyed *random)
{
    partners with;
    float weight = (float)keyed_beta(random, self->options.mix.alpha);
    LKI_TRY(draw_partners(self, batch, random, &with));
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++)
        mix_whole(lk_batch_get(batch, self->options.mix.keys[k]), &with, weight);
    lki_scratch_give();
    return LK_OK;
}

lk_transform *lk_mixup_with(const lk_mix_options *given)
{
    LKI_TAKE(lk_mix_options, options, given, NULL);
    return make_mix("mixup", options, 0.2, apply_mixup);
}

/* ---- Cutmix ---- */

typedef struct rectangle {
    int64_t top, bottom, left, right;
} rectangle;

static int64_t clamp(int64_t value, int64_t high)
{
    return value < 0 ? 0 : value > high ? high : value;
}

/* A rectangle of about 1 - weight of the picture, cut off at its edges. */
static rectangle draw_rectangle(double weight, int64_t height, int64_t width, lki_keyed *random)
{
    double side = sqrt(1 - weight);
    int64_t h = (int64_t)((double)height * side), w = (int64_t)((double)width * side);
    int64_t y = lki_keyed_below(random, height), x = lki_keyed_below(random, width);
    return (rectangle){clamp(y - h / 2, height), clamp(y - h / 2 + h, height), clamp(x - w / 2, width),
                       clamp(x - w / 2 + w, width)};
}

static void paste(lk_tensor *tensor, const partners *with, const rectangle *r)
{
    int64_t channels = tensor->shape.dim[1], height = tensor->shape.dim[2], width = tensor->shape.dim[3];
    float *data = tensor->data;
    memcpy(with->copy, data, lk_tensor_nbytes(tensor));
    for (int64_t i = 0; i < tensor->shape.dim[0]; i++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t y = r->top; y < r->bottom && r->left < r->right; y++) {
                int64_t to = ((i * channels + c) * height + y) * width + r->left;
                int64_t from = ((with->other[i] * channels + c) * height + y) * width + r->left;
                memcpy(data + to, with->copy + from, (size_t)(r->right - r->left) * sizeof(float));
            }
}

/* The first picture among the keys sets the size of the rectangle. */
static const lk_tensor *first_picture(const lk_transform *self, const lk_batch *batch)
{
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++) {
        const lk_tensor *tensor = lk_batch_get(batch, self->options.mix.keys[k]);
        if (tensor->shape.rank == 4) return tensor;
    }
    return NULL;
}

static bool has_size_of(const lk_tensor *tensor, const lk_tensor *picture)
{
    return tensor->shape.rank == 4 && tensor->shape.dim[2] == picture->shape.dim[2] &&
           tensor->shape.dim[3] == picture->shape.dim[3];
}

static lk_status apply_cutmix(const lk_transform *self, lk_batch *batch, lki_keyed *random)
{
    const lk_tensor *picture = first_picture(self, batch);
    partners with;
    double weight = keyed_beta(random, self->options.mix.alpha);
    LKI_TRY(draw_partners(self, batch, random, &with));
    int64_t height = picture->shape.dim[2], width = picture->shape.dim[3];
    rectangle cut = draw_rectangle(weight, height, width, random);
    double area = (double)((cut.bottom - cut.top) * (cut.right - cut.left));
    float kept = (float)(1 - area / (double)(height * width));
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++) {
        lk_tensor *tensor = lk_batch_get(batch, self->options.mix.keys[k]);
        if (has_size_of(tensor, picture))
            paste(tensor, &with, &cut);
        else
            mix_whole(tensor, &with, kept);
    }
    lki_scratch_give();
    return LK_OK;
}

static lk_status check_cutmix(const lk_transform *self, const lk_dataset *dataset)
{
    LKI_TRY(check_mix(self, dataset));
    for (int k = 0; k < LK_MAX_FIELDS && self->options.mix.keys[k]; k++) {
        const lk_field *field =
            lk_dataset_field(dataset, lk_dataset_find_field(dataset, self->options.mix.keys[k]));
        if (field->shape.rank == 3 && lk_shape_count(field->shape) > 0) return LK_OK;
    }
    return lki_fail(LK_ERR_SHAPE, "cutmix: none of its fields is a picture (C, H, W)");
}

lk_transform *lk_cutmix_with(const lk_mix_options *given)
{
    LKI_TAKE(lk_mix_options, options, given, NULL);
    lk_transform *transform = make_mix("cutmix", options, 1, apply_cutmix);
    if (transform) transform->check_batch = check_cutmix;
    return transform;
}
