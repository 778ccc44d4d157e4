/* Fields: samples of physical fields in memory, and the loaders over them. */
#include "data/fields.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <math.h>
#include <string.h>

/* ---- From tensors ---- */

static int64_t whole_root(int64_t number, int degree)
{
    int64_t root = (int64_t)llround(pow((double)number, 1.0 / degree)), power = 1;
    for (int i = 0; i < degree; i++) power *= root;
    return power == number ? root : 0;
}

lk_status lki_check_field_options(const lk_fields_options *options, int dims)
{
    int given;
    LKI_TRY(lki_count_dims(options->sample_to, "sample_to", &given));
    if (given && given != dims)
        return lki_fail(LK_ERR_INVALID, "sample_to: expected %d sizes, found %d", dims, given);
    if (options->batch_num < 0)
        return lki_fail(LK_ERR_INVALID, "batch_num: expected at least 1 sub-cube, found %lld",
                        (long long)options->batch_num);
    if (options->batch_num && options->batch_size[0])
        return lki_fail(LK_ERR_INVALID, "batch_num: batch_size says already how a field is cut");
    return LK_OK;
}

lk_status lki_choose_cube(int dims, const int64_t *size, const lk_fields_options *options, int64_t *cube)
{
    int given;
    LKI_TRY(lki_count_dims(options->batch_size, "batch_size", &given));
    if (given && given != dims)
        return lki_fail(LK_ERR_INVALID, "batch_size: expected %d sizes, found %d", dims, given);
    bool counted = !given && options->batch_num != 0 && options->batch_num != 1;
    memcpy(cube, given ? options->batch_size : size, sizeof *cube * (size_t)dims);
    if (!counted) return LK_OK;
    int64_t parts = options->batch_num > 0 ? whole_root(options->batch_num, dims) : 0;
    if (parts == 0)
        return lki_fail(LK_ERR_INVALID,
                        "batch_num: %lld sub-cubes are not the same number along each of %d axes",
                        (long long)options->batch_num, dims);
    for (int i = 0; i < dims; i++) {
        if (size[i] % parts != 0)
            return lki_fail(LK_ERR_SHAPE, "batch_num: %lld points do not divide into %lld parts",
                            (long long)size[i], (long long)parts);
        cube[i] = size[i] / parts;
    }
    return LK_OK;
}

/* One of the two tensors: sampled and cut. The caller frees what it gave and what it gets. */
static lk_tensor *prepare(lk_fields *fields, const lk_tensor *tensor, const lk_fields_options *options)
{
    int64_t cube[LK_MAX_SPATIAL];
    bool samples = options->sample_to[0] > 0;
    lk_tensor *sampled =
        samples ? lk_sample_equidistant(tensor, fields->dims, options->sample_to) : lk_tensor_view(tensor);
    if (!sampled) return NULL;
    size_t axes_nbytes = sizeof *fields->size * (size_t)fields->dims;
    memcpy(fields->size, sampled->shape.dim + 2, axes_nbytes);
    lk_tensor *parts = NULL;
    if (lki_choose_cube(fields->dims, fields->size, options, cube) == LK_OK) {
        bool cuts = memcmp(cube, fields->size, axes_nbytes) != 0;
        parts = cuts ? lk_split_cubes(sampled, fields->dims, cube) : lk_tensor_view(sampled);
    }
    lk_tensor_free(sampled);
    return parts;
}

static lk_tensor *flatten(lk_tensor *owned, bool flat)
{
    if (!owned || !flat) return owned;
    lk_shape shape = owned->shape;
    int64_t points = lk_tensor_count(owned) / (shape.dim[0] * shape.dim[1]);
    lk_tensor *view = lk_tensor_reshape(owned, LK_SHAPE(shape.dim[0], shape.dim[1], points));
    lk_tensor_free(owned);
    return view;
}

static lk_status check_tensors(const lk_tensor *features, const lk_tensor *targets, int *dims)
{
    char a[128], b[128];
    *dims = features->shape.rank - 2;
    bool fits = *dims >= 1 && *dims <= LK_MAX_SPATIAL && lk_tensor_count(features) > 0;
    if (!fits)
        return lki_fail(LK_ERR_SHAPE, "features: expected (samples, channels, size...), found %s",
                        lk_shape_format(a, sizeof a, features->shape));
    if (!targets) return LK_OK;
    fits = targets->shape.rank == features->shape.rank && targets->shape.dim[1] > 0;
    for (int i = 0; fits && i < features->shape.rank; i++)
        fits = i == 1 || targets->shape.dim[i] == features->shape.dim[i];
    if (fits) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "targets: %s do not lie on the points of the features %s",
                    lk_shape_format(a, sizeof a, targets->shape),
                    lk_shape_format(b, sizeof b, features->shape));
}

static lk_tensor *as_f32(const lk_tensor *tensor)
{
    return tensor->dtype == LK_F32 ? lk_tensor_view(tensor) : lk_tensor_cast(tensor, LK_F32);
}

static lk_status finish(lk_fields *fields, const lk_tensor *features, const lk_tensor *targets,
                        const lk_fields_options *options)
{
    LKI_TRY(check_tensors(features, targets, &fields->dims));
    LKI_TRY(lki_check_field_options(options, fields->dims));
    lk_tensor *values = as_f32(features);
    fields->features = values ? prepare(fields, values, options) : NULL;
    lk_tensor_free(values);
    if (!fields->features) return lki_last_status();
    values = targets ? as_f32(targets) : NULL;
    if (targets)
        fields->targets = values ? prepare(fields, values, options) : NULL;
    else
        fields->targets = lk_tensor_view(fields->features);
    lk_tensor_free(values);
    if (!fields->targets) return lki_last_status();
    fields->target_shape = (lk_shape){.rank = fields->dims + 1};
    memcpy(fields->target_shape.dim, fields->targets->shape.dim + 1,
           sizeof *fields->target_shape.dim * (size_t)(fields->dims + 1));
    fields->features = flatten(fields->features, options->flat);
    fields->targets = flatten(fields->targets, options->flat);
    return fields->features && fields->targets ? LK_OK : lki_last_status();
}

lk_fields *lk_tensor_fields_with(lk_tensor *features, lk_tensor *targets, const lk_fields_options *given)
{
    lk_fields_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_fields_options");
    lk_fields *fields = features && status == LK_OK ? LKI_NEW(lk_fields) : NULL;
    if (fields && finish(fields, features, targets, &options)) {
        lk_fields_free(fields);
        fields = NULL;
    }
    lk_tensor_free(features);
    lk_tensor_free(targets);
    return fields;
}

void lk_fields_free(lk_fields *fields)
{
    if (!fields) return;
    lk_tensor_free(fields->features);
    lk_tensor_free(fields->targets);
    lki_free(fields);
}

const lk_tensor *lk_fields_features(const lk_fields *fields)
{
    return fields ? fields->features : NULL;
}

const lk_tensor *lk_fields_targets(const lk_fields *fields)
{
    return fields ? fields->targets : NULL;
}

lk_tensor *lk_fields_combine(const lk_fields *fields, const lk_tensor *samples)
{
    char text[128];
    if (!fields || !samples) return NULL;
    int64_t count = samples->shape.rank ? samples->shape.dim[0] : 0;
    if (count < 1 || lk_tensor_count(samples) != count * lk_shape_count(fields->target_shape))
        return lki_fail_null(LK_ERR_SHAPE, "%s are not samples of these fields",
                             lk_shape_format(text, sizeof text, samples->shape));
    lk_shape shape = {.rank = fields->dims + 2, .dim = {count}};
    memcpy(shape.dim + 1, fields->target_shape.dim, sizeof *shape.dim * (size_t)(fields->dims + 1));
    lk_tensor *cubes = lk_tensor_reshape(samples, shape);
    lk_tensor *whole = cubes ? lk_combine_cubes(cubes, fields->dims, fields->size) : NULL;
    lk_tensor_free(cubes);
    return whole;
}

/* ---- Loaders ---- */

/* The samples of one loader: [begin, end). */
static lk_status choose_range(int64_t count, bool train, double fraction, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = count;
    if (fraction < 0 || fraction > 1 || isnan(fraction))
        return lki_fail(LK_ERR_INVALID, "train_fraction: expected a number between 0 and 1, found %g",
                        fraction);
    if (fraction == 0 || fraction == 1 || count == 1) return LK_OK;
    int64_t cut = (int64_t)(fraction * (double)count);
    cut = cut < 1 ? 1 : cut > count - 1 ? count - 1 : cut;
    *(train ? end : begin) = cut;
    return LK_OK;
}

lk_dataset *lk_fields_dataset(lk_fields *fields, const char *key, double train_fraction)
{
    if (!fields) return NULL;
    bool train = key && strcmp(key, "train") == 0;
    int64_t begin, end;
    if (!train && (!key || strcmp(key, "valid") != 0))
        return lki_fail_null(LK_ERR_INVALID, "fields have the loaders \"train\" and \"valid\", not \"%s\"",
                             key ? key : "");
    if (choose_range(fields->features->shape.dim[0], train, train_fraction, &begin, &end)) return NULL;
    return lk_tensor_dataset({"features", lk_tensor_slice(fields->features, 0, begin, end)},
                             {"targets", lk_tensor_slice(fields->targets, 0, begin, end)});
}

lk_loader *lk_fields_loader(lk_fields *fields, const char *key, const lk_fields_loaders_options *given)
{
    LKI_TAKE(lk_fields_loaders_options, options, given, NULL);
    lk_dataset *dataset = lk_fields_dataset(fields, key, options.train_fraction);
    if (!dataset) return NULL;
    bool shuffle = strcmp(key, "train") == 0 && options.shuffle;
    return lk_loader(dataset, .batch_size = options.batch_size ? options.batch_size : 1, .shuffle = shuffle,
                     .no_shuffle = !shuffle, .num_workers = options.num_workers, .seed = options.seed,
                     .name = key);
}

lk_loader_list lk_fields_loaders_with(lk_fields *fields, lk_named_loader *storage,
                                      const lk_fields_loaders_options *options)
{
    static const char *const keys[] = {"train", "valid"};
    for (int i = 0; i < 2; i++)
        storage[i] = (lk_named_loader){keys[i], lk_fields_loader(fields, keys[i], options)};
    return (lk_loader_list){storage, 2};
}
