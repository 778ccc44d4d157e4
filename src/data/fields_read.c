/* Fields from HDF5 files: the template names them, each is read once, checked, sampled, and stacked as
 * channels. */
#include "data/fields.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/fields_host.h"
#include "data/fields_twin.h"
#include "data/hdf5.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* One array that has been read: (channels, size...) f32, sampled. */
typedef struct block {
    char *path;
    const char *label;
    lk_tensor *tensor;
} block;

/* What is remembered of the first file of a feature, for those of the other checkpoints. */
typedef struct first_file {
    const char *feature, *label;
    lki_twin twin;
} first_file;

typedef struct reading {
    const char *path_template;
    const lk_fields_options *options;
    int dims;
    block *blocks;
    int block_count;
    first_file *firsts;
    int first_count;
    bool wants_twins; /* there are several checkpoints */
} reading;

static const char *label_for(lk_name_list labels, int index)
{
    if (labels.count == 0) return NULL;
    return labels.items[labels.count == 1 ? 0 : index];
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* "u00000" for messages, also where the label is the file's last. */
static const char *label_text(const char *path, const char *label, char *text, size_t capacity)
{
    if (label) return label;
    lki_hdf5_last_label(path, text, capacity);
    return text;
}

static lk_status check_shape(const reading *reading, const lk_tensor *tensor, const char *path,
                             const char *label)
{
    char found[128], expected[128], text[200];
    int dims = reading->dims, rank = tensor->shape.rank;
    lk_shape wanted = {.rank = dims};
    memcpy(wanted.dim, reading->options->input_size, sizeof *wanted.dim * (size_t)dims);
    bool fits = rank == dims || rank == dims + 1;
    for (int i = 0; fits && i < dims; i++) fits = tensor->shape.dim[rank - dims + i] == wanted.dim[i];
    if (fits && lk_tensor_count(tensor) > 0) return LK_OK;
    return lki_fail(LK_ERR_SHAPE, "%s: array \"%s\" has shape %s, input_size is %s", path,
                    label_text(path, label, text, sizeof text),
                    lk_shape_format(found, sizeof found, tensor->shape),
                    lk_shape_format(expected, sizeof expected, wanted));
}

/* A float is not finite where all bits of its exponent are set: adding one to the exponent then runs over
 * into the sign. Looking at bits lets the compiler look at many floats at once. */
static bool all_finite(const float *values, int64_t count)
{
    uint32_t overrun = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        overrun |= (bits & 0x7f800000u) + 0x00800000u;
    }
    return !(overrun & 0x80000000u);
}

static lk_status check_finite(const lk_tensor *tensor, const char *path, const char *label)
{
    char text[200];
    const float *values = tensor->data;
    int64_t count = lk_tensor_count(tensor), at = 0;
    if (all_finite(values, count)) return LK_OK;
    while (isfinite(values[at])) at++;
    return lki_fail(LK_ERR_NAN, "%s: array \"%s\" holds %f at element %lld of %lld", path,
                    label_text(path, label, text, sizeof text), (double)values[at], (long long)at,
                    (long long)count);
}

static first_file *find_first(reading *reading, const char *feature, const char *path, const char *label)
{
    for (int i = 0; i < reading->first_count; i++)
        if (strcmp(reading->firsts[i].feature, feature) == 0 && same_text(reading->firsts[i].label, label))
            return &reading->firsts[i];
    first_file *grown =
        lki_realloc(reading->firsts, sizeof(first_file) * (size_t)(reading->first_count + 1), "fields");
    if (!grown) return NULL;
    reading->firsts = grown;
    first_file *first = &grown[reading->first_count++];
    *first = (first_file){.feature = feature, .label = label};
    lki_twin_init(&first->twin, path, label);
    return first;
}

/* The array of a file: the short way where it is like the feature's first one, else, and for whatever is
 * wrong with it, HDF5's. */
static lk_tensor *read_array(reading *reading, const char *feature, const char *path, const char *label)
{
    const first_file *first = reading->wants_twins ? find_first(reading, feature, path, label) : NULL;
    lk_tensor *tensor = first ? lki_twin_read(&first->twin, path) : NULL;
    return tensor ? tensor : lk_hdf5_read(path, label);
}

/* (channels, size...) f32 of one array, checked and sampled. */
static lk_tensor *read_block(reading *reading, const char *feature, const char *path, const char *label)
{
    char text[200];
    lk_tensor *raw = read_array(reading, feature, path, label);
    if (!raw) return NULL;
    lk_tensor *values = raw->dtype == LK_F32 ? lk_tensor_view(raw) : lk_tensor_cast(raw, LK_F32);
    lk_tensor *sampled = NULL;
    if (values && check_shape(reading, values, path, label) == LK_OK &&
        check_finite(values, path, label) == LK_OK) {
        bool samples = reading->options->sample_to[0] > 0;
        sampled = samples ? lk_sample_equidistant(values, reading->dims, reading->options->sample_to)
                          : lk_tensor_view(values);
        if (!sampled)
            lki_fail_prefix(lki_last_status(), "%s: array \"%s\"", path,
                            label_text(path, label, text, sizeof text));
    }
    lk_tensor_free(values);
    lk_tensor_free(raw);
    return sampled;
}

/* The array of one feature at one checkpoint, read now or before. */
static const block *find_block(reading *reading, const char *feature, const char *label, double checkpoint)
{
    char *path = lk_field_path(reading->path_template, feature, checkpoint);
    if (!path) return NULL;
    for (int i = 0; i < reading->block_count; i++) {
        const block *seen = &reading->blocks[i];
        if (strcmp(seen->path, path) != 0 || !same_text(seen->label, label)) continue;
        lki_free(path);
        return seen;
    }
    lk_tensor *tensor = read_block(reading, feature, path, label);
    block *grown =
        tensor ? lki_realloc(reading->blocks, sizeof(block) * (size_t)(reading->block_count + 1), "fields")
               : NULL;
    if (!grown) {
        if (!tensor) lki_fail_prefix(lki_last_status(), "\"%s\" at checkpoint %g", feature, checkpoint);
        lk_tensor_free(tensor);
        lki_free(path);
        return NULL;
    }
    reading->blocks = grown;
    grown[reading->block_count] = (block){path, label, tensor};
    return &grown[reading->block_count++];
}

static int64_t channel_count(const reading *reading, const block *block)
{
    int64_t points = 1;
    const lk_shape *shape = &block->tensor->shape;
    for (int i = 0; i < reading->dims; i++) points *= shape->dim[shape->rank - reading->dims + i];
    return lk_tensor_count(block->tensor) / points;
}

/* The channels of all names at a checkpoint; blocks may move in memory while others are read. */
static lk_status count_channels(reading *reading, lk_name_list names, lk_name_list labels, double checkpoint,
                                int64_t *channels)
{
    *channels = 0;
    for (int f = 0; f < names.count; f++) {
        const block *block = find_block(reading, names.items[f], label_for(labels, f), checkpoint);
        if (!block) return lki_last_status();
        *channels += channel_count(reading, block);
    }
    return LK_OK;
}

static lk_tensor *create_stack(const reading *reading, int64_t checkpoints, int64_t channels)
{
    const lk_tensor *any = reading->blocks[0].tensor;
    lk_shape shape = {.rank = reading->dims + 2, .dim = {checkpoints, channels}};
    memcpy(shape.dim + 2, any->shape.dim + any->shape.rank - reading->dims,
           sizeof *shape.dim * (size_t)reading->dims);
    return lk_tensor_create(LK_F32, shape);
}

/* (checkpoints, channels, size...) of all names, one after the other as channels. */
static lk_tensor *stack(reading *reading, lk_name_list names, lk_name_list labels, lk_number_list checkpoints)
{
    int64_t channels = 0, others;
    for (int c = 0; c < checkpoints.count; c++) {
        if (count_channels(reading, names, labels, checkpoints.items[c], &others)) return NULL;
        if (c == 0) channels = others;
        if (others != channels)
            return lki_fail_null(LK_ERR_SHAPE, "%s: checkpoint %g has %lld channels, the first one %lld",
                                 reading->path_template, checkpoints.items[c], (long long)others,
                                 (long long)channels);
    }
    lk_tensor *out = create_stack(reading, checkpoints.count, channels);
    char *at = out ? out->data : NULL;
    for (int c = 0; out && c < checkpoints.count; c++)
        for (int f = 0; f < names.count; f++) {
            const block *block =
                find_block(reading, names.items[f], label_for(labels, f), checkpoints.items[c]);
            if (!block) { /* only where memory has run out: it was read above */
                lk_tensor_free(out);
                return NULL;
            }
            memcpy(at, block->tensor->data, lk_tensor_nbytes(block->tensor));
            at += lk_tensor_nbytes(block->tensor);
        }
    return out;
}

static lk_status check_labels(const char *what, lk_name_list names, lk_name_list labels)
{
    if (labels.count == 0 || labels.count == 1 || labels.count == names.count) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s: %d labels for %d names: give none, one for all or one each", what,
                    labels.count, names.count);
}

static lk_status check_options(const lk_fields_options *options, int *dims)
{
    LKI_TRY(lki_count_dims(options->input_size, "input_size", dims));
    if (*dims == 0)
        return lki_fail(LK_ERR_INVALID, "input_size: the points of a field along each axis are needed");
    if (options->features.count < 1) return lki_fail(LK_ERR_INVALID, "features: there are none");
    LKI_TRY(check_labels("feature_labels", options->features, options->feature_labels));
    return check_labels("target_labels", options->targets, options->target_labels);
}

static bool same_names(const lk_fields_options *options)
{
    bool same = options->targets.count == options->features.count;
    for (int i = 0; same && i < options->features.count; i++)
        same = strcmp(options->features.items[i], options->targets.items[i]) == 0 &&
               same_text(label_for(options->feature_labels, i), label_for(options->target_labels, i));
    return same || options->targets.count == 0;
}

static void free_blocks(reading *reading)
{
    for (int i = 0; i < reading->block_count; i++) {
        lki_free(reading->blocks[i].path);
        lk_tensor_free(reading->blocks[i].tensor);
    }
    for (int i = 0; i < reading->first_count; i++) lki_twin_fini(&reading->firsts[i].twin);
    lki_free(reading->blocks);
    lki_free(reading->firsts);
}

void lki_fields_fail_at(const char *path_template, const lk_fields_options *options)
{
    lk_status status = lki_last_status();
    char sentence[512], text[200] = "";
    snprintf(sentence, sizeof sentence, "%s", lk_error());
    char *path = lk_field_path(path_template, options->features.items[0],
                               options->checkpoints.count ? options->checkpoints.items[0] : 0);
    const char *label = label_for(options->feature_labels, 0);
    if (path) label = label_text(path, label, text, sizeof text);
    lki_fail(status, "%s: array \"%s\": %s", path ? path : path_template,
             label && *label ? label : options->features.items[0], sentence);
    lki_free(path);
}

static lk_fields *load(const char *path, lk_fields_options options)
{
    reading reading = {.path_template = path, .options = &options};
    check_options(&options, &reading.dims);
    lk_number_list checkpoints = options.checkpoints.count ? options.checkpoints : lk_numbers(0);
    reading.wants_twins = checkpoints.count > 1;
    lk_tensor *features = stack(&reading, options.features, options.feature_labels, checkpoints);
    lk_tensor *targets = NULL;
    bool whole = features != NULL;
    if (whole && !same_names(&options)) {
        targets = stack(&reading, options.targets, options.target_labels, checkpoints);
        whole = targets != NULL;
    }
    free_blocks(&reading);
    if (!whole) {
        lk_tensor_free(features);
        return NULL;
    }
    memset(options.sample_to, 0, sizeof options.sample_to); /* the blocks have been sampled */
    lk_fields *fields = lk_tensor_fields_create(features, targets, options);
    if (!fields) lki_fields_fail_at(path, &options);
    return fields;
}

lk_fields *lk_hdf5_fields_create(const char *path, lk_fields_options options)
{
    int dims;
    return check_options(&options, &dims) ? NULL : lki_fields_of_host(path, &options, load);
}
