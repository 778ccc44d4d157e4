/* Physical fields: cubes of numbers from HDF5 files, sampled, cut into sub-cubes, filtered, and turned into
 * loaders.
 *
 *     lk_fields *fields = lk_hdf5_fields("data/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5",
 *         .features = lk_names("u"), .targets = lk_names("u"), .checkpoints = lk_numbers(0),
 *         .input_size = {32, 32, 32}, .sample_to = {16, 16, 16});
 *     lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 5, .ddp = true);
 *
 * Features are stacked as channels: a sample is (channels, size...), in one, two or three dimensions, f32.
 * Every array is read once on a host, by its ranks together or, before they are forked, by several threads;
 * the ranks share one copy.
 *
 * Life: lk_hdf5_fields returns an object that the caller frees; loaders made from it share its tensors and
 * may outlive it. A failed constructor returns NULL with one line in lk_error() that names the file and the
 * array, and what gets a NULL object passes it through. Fields are read-only after creation: any thread may
 * read. */
#ifndef LOCKSTEP_FIELDS_H
#define LOCKSTEP_FIELDS_H

#include <lockstep/arguments.h>
#include <lockstep/data.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_name_list {
    const char *const *items;
    int count;
} lk_name_list;
LK_LIST_TO_END_(lk_name_list, const char *)
#define lk_names(...) lk_name_list_to_end((const char *const[]){__VA_ARGS__, LK_END})

typedef struct lk_number_list {
    const double *items;
    int count;
} lk_number_list;
#define lk_numbers(...)                                                                                      \
    ((lk_number_list){(const double[]){__VA_ARGS__},                                                         \
                      (int)(sizeof((const double[]){__VA_ARGS__}) / sizeof(double))})

enum { LK_MAX_SPATIAL = 3 };

typedef struct lk_fields lk_fields;

typedef struct lk_fields_options {
    size_t struct_size;
    lk_name_list features;       /* required: what {feature} in the path stands for */
    lk_name_list targets;        /* likewise; none: the features themselves */
    lk_name_list feature_labels; /* arrays in the files: one for all or one a feature; none: the last */
    lk_name_list target_labels;  /* likewise for the targets */
    lk_number_list checkpoints;  /* what {checkpoint} stands for; none: 0 */
    int64_t input_size[LK_MAX_SPATIAL]; /* required: the points of a field; fewer axes: leave the rest 0 */
    int64_t sample_to[LK_MAX_SPATIAL];  /* every int(input/sample)-th point; none: all points */
    int64_t batch_size[LK_MAX_SPATIAL]; /* the sub-cubes that a field is cut into; none: not cut */
    int64_t batch_num;                  /* or how many: as many along each axis */
    bool flat;                          /* samples are (channels, points) instead of cubes */
} lk_fields_options;
#define lk_hdf5_fields(...) LK_CALL1_(lk_hdf5_fields_with, lk_fields_options, __VA_ARGS__, )
/* `path` is a template with Python's format: "{feature}", "{checkpoint}", "{checkpoint:1.0f}",
 * "{checkpoint:04d}", "{{" and "}}" for braces. */
lk_fields *lk_hdf5_fields_with(const char *path, const lk_fields_options *options);
/* Fields from memory: (samples, channels, size...) of any float dtype; the tensors belong to the result, also
 * when it is NULL. Targets of NULL are the features. Of the options only sample_to, batch_size, batch_num and
 * flat are read. */
#define lk_tensor_fields(...) LK_CALL2_(lk_tensor_fields_with, lk_fields_options, __VA_ARGS__, )
lk_fields *lk_tensor_fields_with(lk_tensor *features_owned, lk_tensor *targets_owned,
                                 const lk_fields_options *options);
void lk_fields_free(lk_fields *fields);

/* (samples, channels, size...), the fields' own. NULL in gives NULL. */
const lk_tensor *lk_fields_features(const lk_fields *fields);
const lk_tensor *lk_fields_targets(const lk_fields *fields);
/* What a model made of the samples put together again: (samples, ...) with as many numbers as the targets, in
 * any shape -> (checkpoints, channels, size...). */
lk_tensor *lk_fields_combine(const lk_fields *fields, const lk_tensor *samples);

typedef struct lk_fields_loaders_options {
    size_t struct_size;
    int64_t batch_size;    /* samples to a step of one rank; 1 */
    double train_fraction; /* the first so many samples train, the others validate; none: all do both */
    bool shuffle;          /* the training samples, anew in every epoch; else their order is kept */
    int num_workers;
    uint64_t seed; /* of the shuffling; 0: the default generator */
} lk_fields_loaders_options;
/* The samples of one of the two, "train" or "valid", as a dataset of "features" and "targets"; one sample
 * alone is both. */
lk_dataset *lk_fields_dataset(lk_fields *fields, const char *key, double train_fraction);
/* One of the two loaders. */
lk_loader *lk_fields_loader(lk_fields *fields, const char *key, const lk_fields_loaders_options *options);
/* Both, as the list that lk_train and estimators take: {"train", ...}, {"valid", ...}. */
#define lk_fields_loaders(...) LK_FIELDS_LOADERS_(__VA_ARGS__, )
#define LK_FIELDS_LOADERS_(fields, ...)                                                                      \
    lk_fields_loaders_with((fields), (lk_named_loader[2]){{NULL, NULL}},                                     \
                           LK_OPTIONS(lk_fields_loaders_options, __VA_ARGS__))
/* `storage` has room for two and must live until the list has been handed over. */
lk_loader_list lk_fields_loaders_with(lk_fields *fields, lk_named_loader *storage,
                                      const lk_fields_loaders_options *options);

/* One path of a template; release it with lk_text_free. */
char *lk_field_path(const char *path_template, const char *feature, double checkpoint);

/* ---- Cubes: (samples, channels, size...) with `dims` spatial axes ---- */

/* Every int(size / sample)-th point of each axis; `sample` holds `dims` sizes. */
lk_tensor *lk_sample_equidistant(const lk_tensor *field, int dims, const int64_t *sample);
/* Cuts each sample into sub-cubes of `cube` points, the last axis fastest: (samples * cubes, channels,
 * cube...). */
lk_tensor *lk_split_cubes(const lk_tensor *field, int dims, const int64_t *cube);
/* The inverse: sub-cubes in that order -> (samples, channels, size...). */
lk_tensor *lk_combine_cubes(const lk_tensor *cubes, int dims, const int64_t *size);

/* ---- Filters, periodic, over the last `dims` axes; the result has the field's dtype and shape ---- */

typedef lk_tensor *(*lk_field_filter)(const lk_tensor *field, int dims, double size);
/* Keeps the modes |k| < modes of each axis. */
lk_tensor *lk_filter_spectral(const lk_tensor *field, int dims, double modes);
/* The mean over `width` (a whole number) points of each axis: from i - width/2 on. */
lk_tensor *lk_filter_box(const lk_tensor *field, int dims, double width);
/* A Gaussian of `sigma` points, cut off at 4 sigma. */
lk_tensor *lk_filter_gaussian(const lk_tensor *field, int dims, double sigma);

/* Turbulence made up: (channels, size...) f32 with random phases, zero mean, unit variance in each channel
 * and energy E(k) ~ k^slope (0: -5/3). Draws from `generator`; NULL: the default one. */
lk_tensor *lk_synthetic_turbulence(int64_t channels, int dims, const int64_t *size, double slope,
                                   lk_generator *generator);

#ifdef __cplusplus
}
#endif
#endif
