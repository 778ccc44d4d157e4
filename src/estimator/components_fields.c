/* Fields by name, for configs. Entries of one config that read the same files read them once. */
#include "estimator/estimator.h"

#include "base/log.h"
#include "base/status.h"
#include "config/build.h"
#include "config/components/components.h"
#include "data/fields.h"

#include <string.h>
#include <unistd.h>

enum { MAX_NAMES = 64, MAX_CHECKPOINTS = 4096 };

/* The options with the memory that they point to. */
typedef struct wish {
    lk_fields_options options;
    const char *names[4][MAX_NAMES];
    double checkpoints[MAX_CHECKPOINTS];
} wish;

static lk_status read_names(lk_args *args, const char *name, const char **texts, lk_name_list *out)
{
    int count = lk_arg_count(args, name);
    if (count > MAX_NAMES) return lki_fail(LK_ERR_CONFIG, "%s: at most %d names", name, MAX_NAMES);
    for (int i = 0; i < count; i++) texts[i] = lk_arg_string_at(args, name, i);
    *out = (lk_name_list){texts, count};
    return LK_OK;
}

static lk_status read_axes(lk_args *args, const char *name, int64_t *sizes)
{
    int count = lk_arg_count(args, name);
    if (count > LK_MAX_SPATIAL)
        return lki_fail(LK_ERR_CONFIG, "%s: at most %d axes, found %d", name, LK_MAX_SPATIAL, count);
    for (int i = 0; i < count; i++) sizes[i] = lk_arg_int_at(args, name, i);
    return LK_OK;
}

static lk_status read_wish(lk_args *args, wish *w)
{
    lk_fields_options *options = &w->options;
    options->struct_size = sizeof *options;
    int count = lk_arg_count(args, "checkpoints");
    if (count > MAX_CHECKPOINTS) return lki_fail(LK_ERR_CONFIG, "checkpoints: at most %d", MAX_CHECKPOINTS);
    LKI_TRY(read_names(args, "features", w->names[0], &options->features));
    LKI_TRY(read_names(args, "targets", w->names[1], &options->targets));
    LKI_TRY(read_names(args, "feature_labels", w->names[2], &options->feature_labels));
    LKI_TRY(read_names(args, "target_labels", w->names[3], &options->target_labels));
    for (int i = 0; i < count; i++) w->checkpoints[i] = lk_arg_float_at(args, "checkpoints", i);
    options->checkpoints = (lk_number_list){w->checkpoints, count};
    LKI_TRY(read_axes(args, "input_size", options->input_size));
    LKI_TRY(read_axes(args, "sample_to", options->sample_to));
    LKI_TRY(read_axes(args, "batch_size", options->batch_size));
    options->batch_num = lk_arg_int(args, "batch_num");
    options->flat = lk_arg_bool(args, "flat");
    return LK_OK;
}

/* ---- Reading once ---- */

/* All values of some parameters as one text: what two entries must agree in to share what they read. */
static char *describe(lk_args *args, const char *begin, const char *const *names)
{
    size_t nbytes = strlen(begin) + 1;
    for (int n = 0; names[n]; n++) {
        nbytes += strlen(names[n]) + 1;
        for (int i = 0; i < lk_arg_count(args, names[n]); i++)
            nbytes += strlen(lk_arg_string_at(args, names[n], i)) + 1;
    }
    char *text = lki_arena_alloc(&args->plan->tree->arena, nbytes), *end = text;
    if (!text) return NULL;
    end = stpcpy(end, begin);
    for (int n = 0; names[n]; n++) {
        *end++ = '\n';
        end = stpcpy(end, names[n]);
        for (int i = 0; i < lk_arg_count(args, names[n]); i++) {
            *end++ = '\t';
            end = stpcpy(end, lk_arg_string_at(args, names[n], i));
        }
    }
    return text;
}

static void free_fields(void *object)
{
    lk_fields_free(object);
}

/* Where some files are there, one that is missing is a mistake. */
static bool has_first(lk_args *args, const lk_fields_options *options)
{
    char *path = lk_field_path(lk_arg_string(args, "path"), options->features.items[0],
                               options->checkpoints.count ? options->checkpoints.items[0] : 0);
    bool there = path && access(path, F_OK) == 0;
    lk_text_free(path);
    return there;
}

/* `missing: turbulence` is for first steps: a machine without the files makes its own, and says so. */
static lk_fields *made_up(lk_args *args, const lk_fields_options *options)
{
    int dims = 0;
    if (lki_last_status() != LK_ERR_NOT_FOUND || has_first(args, options) ||
        strcmp(lk_arg_string(args, "missing"), "turbulence") != 0)
        return NULL;
    lki_log(LKI_LOG_WARNING, "%s: turbulence is made up instead", lk_error());
    while (dims < LK_MAX_SPATIAL && options->input_size[dims] > 0) dims++;
    lk_generator generator;
    lk_generator_seed(&generator, 0); /* the model's weights do not depend on it */
    lk_tensor *flow = lk_synthetic_turbulence(3, dims, options->input_size, 0, &generator);
    lk_shape shape = {.rank = dims + 2, .dim = {1, 3}};
    memcpy(shape.dim + 2, options->input_size, sizeof *shape.dim * (size_t)dims);
    lk_tensor *sample = flow ? lk_tensor_reshape(flow, shape) : NULL;
    lk_tensor_free(flow);
    return lk_tensor_fields_with(sample, NULL, options);
}

/* The whole fields, sampled but not cut: borrowed from the plan. */
static lk_fields *whole_fields(lk_args *args, const wish *w)
{
    static const char *const names[] = {"path",          "features",    "targets",    "feature_labels",
                                        "target_labels", "checkpoints", "input_size", "sample_to",
                                        "missing",       NULL};
    const char *key = describe(args, "fields", names);
    lk_fields_options options = w->options;
    if (!key) return NULL;
    lk_fields *fields = lki_plan_kept(args->plan, key);
    if (fields) return fields;
    memset(options.batch_size, 0, sizeof options.batch_size);
    options.batch_num = 0;
    options.flat = false;
    fields = lk_hdf5_fields_with(lk_arg_string(args, "path"), &options);
    if (!fields) fields = made_up(args, &options);
    return fields && lki_plan_keep(args->plan, key, fields, free_fields) == LK_OK ? fields : NULL;
}

/* The samples as the entry wants them: likewise. */
static lk_fields *cut_fields(lk_args *args, const wish *w)
{
    static const char *const names[] = {"batch_size", "batch_num", "flat", NULL};
    lk_fields *whole = whole_fields(args, w);
    lk_fields_options options = w->options;
    if (!whole) return NULL;
    const lk_tensor *x = lk_fields_features(whole), *y = lk_fields_targets(whole);
    const char *source = lki_arena_format(&args->plan->tree->arena, "samples of %p", (void *)whole);
    const char *key = source ? describe(args, source, names) : NULL;
    lk_fields *fields = key ? lki_plan_kept(args->plan, key) : NULL;
    if (fields || !key) return fields;
    memset(options.sample_to, 0, sizeof options.sample_to); /* they have been sampled */
    fields =
        lk_tensor_fields_with(lk_tensor_view(x), x->data == y->data ? NULL : lk_tensor_view(y), &options);
    if (!fields) {
        lki_fields_fail_at(lk_arg_string(args, "path"), &options);
        return NULL;
    }
    return lki_plan_keep(args->plan, key, fields, free_fields) == LK_OK ? fields : NULL;
}

static lk_status build_fields(const lk_component *self, lk_args *args, void **out)
{
    wish w = {0};
    (void)self;
    LKI_TRY(read_wish(args, &w));
    lk_fields *fields = cut_fields(args, &w);
    if (!fields) return lki_last_status();
    return lki_built(lk_fields_dataset(fields, lk_arg_bool(args, "train") ? "train" : "valid",
                                       lk_arg_float(args, "train_fraction")),
                     out);
}

static const lk_parameter parameters[] = {
    {.name = "path",
     .type = LK_PARAMETER_STRING,
     .help = "A template with {feature} and {checkpoint:1.0f} in it."},
    {.name = "features", .type = LK_PARAMETER_STRINGS, .help = "What {feature} stands for."},
    {.name = "targets",
     .type = LK_PARAMETER_STRINGS,
     .default_value = "",
     .help = "Likewise; the features themselves."},
    {.name = "feature_labels",
     .type = LK_PARAMETER_STRINGS,
     .default_value = "",
     .help = "Arrays in the files: one for all, or one per feature; the last of each file."},
    {.name = "target_labels",
     .type = LK_PARAMETER_STRINGS,
     .default_value = "",
     .help = "Likewise for the targets."},
    {.name = "checkpoints",
     .type = LK_PARAMETER_FLOATS,
     .default_value = "0",
     .help = "What {checkpoint} stands for."},
    {.name = "input_size", .type = LK_PARAMETER_INTS, .help = "Points of a field along each axis."},
    {.name = "sample_to",
     .type = LK_PARAMETER_INTS,
     .default_value = "",
     .help = "Every n-th point, so that as many are left."},
    {.name = "batch_size",
     .type = LK_PARAMETER_INTS,
     .default_value = "",
     .help = "Points of the sub-cubes to cut into."},
    {.name = "batch_num", .type = LK_PARAMETER_INT, .default_value = "0", .help = "Or how many sub-cubes."},
    {.name = "flat",
     .type = LK_PARAMETER_BOOL,
     .default_value = "n",
     .help = "Samples are (channels, points)."},
    {.name = "train",
     .type = LK_PARAMETER_BOOL,
     .default_value = "y",
     .help = "The samples to train with, or the others."},
    {.name = "train_fraction",
     .type = LK_PARAMETER_FLOAT,
     .default_value = "0",
     .help = "The share of the samples that train; 0: all train and all validate."},
    {.name = "missing",
     .type = LK_PARAMETER_STRING,
     .default_value = "error",
     .choices = "error|turbulence",
     .help = "What to do where a file is missing."},
    {0}};

const lk_component lki_fields_component = {
    .name = "HDF5Fields",
    .kind = LK_KIND_DATASET,
    .help = "Physical fields from HDF5 files, sampled and cut into sub-cubes.",
    .parameters = parameters,
    .build = build_fields};
