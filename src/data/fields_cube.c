/* Cubes: taking every n-th point, cutting into sub-cubes, and putting them together again. */
#include "data/fields.h"

#include "base/status.h"

#include <string.h>

enum { X, Y, Z };

lk_status lki_count_dims(const int64_t *size, const char *what, int *dims)
{
    *dims = 0;
    for (int i = 0; i < LK_MAX_SPATIAL; i++) {
        if (size[i] < 0 || (size[i] > 0 && *dims < i))
            return lki_fail(LK_ERR_INVALID,
                            "%s: expected one to three positive sizes, found {%lld, %lld, %lld}", what,
                            (long long)size[0], (long long)size[1], (long long)size[2]);
        if (size[i] > 0) *dims = i + 1;
    }
    return LK_OK;
}

lki_box lki_box_of(int dims, const int64_t *size)
{
    lki_box box = {.dims = dims, .size = {1, 1, 1}};
    for (int i = 0; i < dims; i++) box.size[LK_MAX_SPATIAL - dims + i] = size[i];
    return box;
}

lk_status lki_field_axes(const lk_tensor *field, int dims, lki_box *box, int64_t *samples, int64_t *channels)
{
    char text[128];
    if (!field) return lki_last_status();
    int rank = field->shape.rank;
    if (dims < 1 || dims > LK_MAX_SPATIAL)
        return lki_fail(LK_ERR_INVALID, "a field has one to three dimensions, not %d", dims);
    if (rank < dims || rank > dims + 2)
        return lki_fail(LK_ERR_SHAPE, "expected (samples, channels, size...) in %d dimensions, found %s",
                        dims, lk_shape_format(text, sizeof text, field->shape));
    if (lk_tensor_count(field) == 0)
        return lki_fail(LK_ERR_SHAPE, "a field of shape %s has no points",
                        lk_shape_format(text, sizeof text, field->shape));
    *box = lki_box_of(dims, field->shape.dim + rank - dims);
    *channels = rank > dims ? field->shape.dim[rank - dims - 1] : 1;
    *samples = rank > dims + 1 ? field->shape.dim[0] : 1;
    return LK_OK;
}

/* A contiguous f32 view or copy of a field with both leading axes; the caller frees it. */
static lk_tensor *dense(const lk_tensor *field, int dims, lki_box *box, int64_t *samples, int64_t *channels)
{
    if (lki_field_axes(field, dims, box, samples, channels)) return NULL;
    if (field->dtype != LK_F32) return lk_tensor_cast(field, LK_F32);
    return lk_tensor_is_contiguous(field) ? lk_tensor_view(field) : lk_tensor_clone(field);
}

static lk_shape shape_of(int64_t samples, int64_t channels, int dims, const int64_t *size)
{
    lk_shape shape = {.rank = dims + 2, .dim = {samples, channels}};
    memcpy(shape.dim + 2, size, sizeof *size * (size_t)dims);
    return shape;
}

/* The step that leaves `sample` of `size` points: int(size / sample), or the next one where that rounding
 * left too many (17 points to 9). 0 where neither does. */
static int64_t find_step(int64_t size, int64_t sample)
{
    if (sample < 1 || sample > size) return 0;
    for (int64_t step = size / sample; step <= size / sample + 1; step++)
        if ((size + step - 1) / step == sample) return step;
    return 0;
}

lk_status lki_sample_steps(const lki_box *box, const lki_box *to, int64_t step[LK_MAX_SPATIAL])
{
    for (int i = 0; i < LK_MAX_SPATIAL; i++) {
        step[i] = find_step(box->size[i], to->size[i]);
        if (step[i] == 0)
            return lki_fail(LK_ERR_SHAPE, "sampling: no integer step reduces %lld points to %lld",
                            (long long)box->size[i], (long long)to->size[i]);
    }
    return LK_OK;
}

lk_tensor *lk_sample_equidistant(const lk_tensor *field, int dims, const int64_t *sample)
{
    lki_box box;
    int64_t samples, channels, step[LK_MAX_SPATIAL];
    lk_tensor *source = dense(field, dims, &box, &samples, &channels);
    if (!source) return NULL;
    lki_box to = lki_box_of(dims, sample);
    lk_tensor *out = NULL;
    if (lki_sample_steps(&box, &to, step)) goto out;
    out = lk_tensor_create(LK_F32, shape_of(samples, channels, dims, sample));
    if (!out) goto out;
    const float *from = source->data;
    float *at = out->data;
    for (int64_t row = 0; row < samples * channels; row++, from += box.size[X] * box.size[Y] * box.size[Z])
        for (int64_t x = 0; x < to.size[X]; x++)
            for (int64_t y = 0; y < to.size[Y]; y++) {
                const float *line = from + (x * step[X] * box.size[Y] + y * step[Y]) * box.size[Z];
                for (int64_t z = 0; z < to.size[Z]; z++) *at++ = line[z * step[Z]];
            }
out:
    lk_tensor_free(source);
    return out;
}

/* Copies between a whole cube and its sub-cubes, line by line; `to_cubes` says which way. Between the
 * channels of one sub-cube and those of the next lie `gap` numbers of others. */
static void copy_cubes(float *whole, float *cubes, int64_t channels, const lki_box *box, const lki_box *cube,
                       int64_t gap, bool to_cubes)
{
    int64_t plane = box->size[Y] * box->size[Z], points = box->size[X] * plane;
    size_t line = (size_t)cube->size[Z] * sizeof(float);
    for (int64_t x0 = 0; x0 < box->size[X]; x0 += cube->size[X])
        for (int64_t y0 = 0; y0 < box->size[Y]; y0 += cube->size[Y])
            for (int64_t z0 = 0; z0 < box->size[Z]; z0 += cube->size[Z], cubes += gap)
                for (int64_t c = 0; c < channels; c++)
                    for (int64_t x = x0; x < x0 + cube->size[X]; x++)
                        for (int64_t y = y0; y < y0 + cube->size[Y]; y++, cubes += cube->size[Z]) {
                            float *in_whole = whole + c * points + x * plane + y * box->size[Z] + z0;
                            memcpy(to_cubes ? cubes : in_whole, to_cubes ? in_whole : cubes, line);
                        }
}

void lki_cut_channels(float *cubes, const float *whole, int64_t channels, int64_t all_channels,
                      const lki_box *box, const lki_box *cube)
{
    int64_t points = cube->size[X] * cube->size[Y] * cube->size[Z];
    if (memcmp(box->size, cube->size, sizeof box->size) == 0)
        memcpy(cubes, whole, (size_t)(channels * points) * sizeof(float));
    else
        copy_cubes((float *)whole, cubes, channels, box, cube, (all_channels - channels) * points, true);
}

lk_status lki_count_cubes(const lki_box *box, const lki_box *cube, int64_t *count)
{
    *count = 1;
    for (int i = 0; i < LK_MAX_SPATIAL; i++) {
        if (cube->size[i] < 1 || box->size[i] < 1 || box->size[i] % cube->size[i] != 0)
            return lki_fail(LK_ERR_SHAPE, "%lld points do not divide into sub-cubes of %lld",
                            (long long)box->size[i], (long long)cube->size[i]);
        *count *= box->size[i] / cube->size[i];
    }
    return LK_OK;
}

lk_tensor *lk_split_cubes(const lk_tensor *field, int dims, const int64_t *cube_size)
{
    lki_box box;
    int64_t samples, channels, count;
    lk_tensor *source = dense(field, dims, &box, &samples, &channels);
    if (!source) return NULL;
    lki_box cube = lki_box_of(dims, cube_size);
    lk_tensor *out = NULL;
    if (lki_count_cubes(&box, &cube, &count) == LK_OK)
        out = lk_tensor_create(LK_F32, shape_of(samples * count, channels, dims, cube_size));
    int64_t numbers = out ? channels * box.size[X] * box.size[Y] * box.size[Z] : 0;
    for (int64_t n = 0; out && n < samples; n++)
        copy_cubes((float *)source->data + n * numbers, (float *)out->data + n * numbers, channels, &box,
                   &cube, 0, true);
    lk_tensor_free(source);
    return out;
}

lk_tensor *lk_combine_cubes(const lk_tensor *cubes, int dims, const int64_t *size)
{
    lki_box cube;
    int64_t samples, channels, count;
    lk_tensor *source = dense(cubes, dims, &cube, &samples, &channels);
    if (!source) return NULL;
    lki_box box = lki_box_of(dims, size);
    lk_tensor *out = NULL;
    if (lki_count_cubes(&box, &cube, &count) == LK_OK) {
        if (samples % count == 0)
            out = lk_tensor_create(LK_F32, shape_of(samples / count, channels, dims, size));
        else
            lki_fail(LK_ERR_SHAPE, "%lld sub-cubes are not whole fields of %lld each", (long long)samples,
                     (long long)count);
    }
    int64_t numbers = out ? channels * box.size[X] * box.size[Y] * box.size[Z] : 0;
    for (int64_t n = 0; out && n < samples / count; n++)
        copy_cubes((float *)out->data + n * numbers, (float *)source->data + n * numbers, channels, &box,
                   &cube, 0, false);
    lk_tensor_free(source);
    return out;
}
