/* Physical fields: cubes of numbers from HDF5 files, sampled, cut into sub-cubes, filtered, and
 * turned into loaders.
 *
 *     lk_fields *fields = lk_hdf5_fields("data/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5",
 *         .features = lk_names("u"), .targets = lk_names("u"), .checkpoints = lk_numbers(0),
 *         .input_size = {32, 32, 32}, .sample_to = {16, 16, 16});
 *     lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 5, .ddp = true);
 *
 * Features are stacked as channels: a sample is (channels, size...) f32, in one, two or three
 * dimensions. A host reads every array once, by its ranks together or, before they are forked, by
 * several threads. The ranks share one copy.
 *
 * Life: the caller frees the fields. Loaders made from them share their tensors and may outlive
 * them. A constructor that fails returns NULL, and lk_error() names the file and the array. A
 * function that gets NULL fields returns NULL. Threads: fields do not change after their
 * creation, so any thread may read them. */
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
    lk_name_list features; /* required: the values of {feature} in the path */
    lk_name_list targets;  /* the same for targets; the features themselves */
    /* Arrays in the files: one for all features or one per feature. Default: the last array of
     * the file. */
    lk_name_list feature_labels;
    lk_name_list target_labels;         /* the same for targets */
    lk_number_list checkpoints;         /* the values of {checkpoint}; 0 */
    int64_t input_size[LK_MAX_SPATIAL]; /* required: points per axis; leave unused axes 0 */
    int64_t sample_to[LK_MAX_SPATIAL];  /* takes every int(input/sample)-th point; all points */
    /* The size of the sub-cubes that a field is cut into; not cut. */
    int64_t batch_size[LK_MAX_SPATIAL];
    int64_t batch_num; /* or the number of sub-cubes, the same along each axis */
    bool flat;         /* samples are (channels, points) instead of cubes */
} lk_fields_options;
#define lk_hdf5_fields(...) LK_CALL1_(lk_hdf5_fields_with, lk_fields_options, __VA_ARGS__, )
/* `path` is a template in Python's format: "{feature}", "{checkpoint}", "{checkpoint:1.0f}",
 * "{checkpoint:04d}", and "{{" and "}}" for braces. */
lk_fields *lk_hdf5_fields_with(const char *path, const lk_fields_options *options);
/* Fields from memory: (samples, channels, size...) of any float dtype. The tensors belong to the
 * result, also if it is NULL. Targets of NULL mean the features. Of the options, only sample_to,
 * batch_size, batch_num and flat are used. */
#define lk_tensor_fields(...) LK_CALL2_(lk_tensor_fields_with, lk_fields_options, __VA_ARGS__, )
lk_fields *lk_tensor_fields_with(lk_tensor *features_owned, lk_tensor *targets_owned,
                                 const lk_fields_options *options);
/* Frees the fields. NULL is allowed. */
void lk_fields_free(lk_fields *fields);

/* Return (samples, channels, size...), which belongs to the fields. */
const lk_tensor *lk_fields_features(const lk_fields *fields);
const lk_tensor *lk_fields_targets(const lk_fields *fields);
/* Puts the outputs of a model together again: (samples, ...) in any shape, with as many numbers
 * as the targets, becomes (checkpoints, channels, size...). The caller frees it. NULL on failure.
 */
lk_tensor *lk_fields_combine(const lk_fields *fields, const lk_tensor *samples);

typedef struct lk_fields_loaders_options {
    size_t struct_size;
    int64_t batch_size; /* samples per step of one rank; 1 */
    /* The first part of the samples trains, the rest validates. Default: all samples do both. */
    double train_fraction;
    bool shuffle; /* shuffles the training samples in every epoch */
    int num_workers;
    uint64_t seed; /* of the shuffling; 0: the default generator */
} lk_fields_loaders_options;
/* Returns the samples of "train" or "valid" as a dataset of "features" and "targets", or NULL on
 * failure. A single sample is in both. */
lk_dataset *lk_fields_dataset(lk_fields *fields, const char *key, double train_fraction);
/* Returns one of the two loaders, or NULL on failure. */
lk_loader *lk_fields_loader(lk_fields *fields, const char *key, const lk_fields_loaders_options *options);
/* Both loaders, as the list that lk_train and the estimators take: {"train", ...}, {"valid",
 * ...}. */
#define lk_fields_loaders(...) LK_FIELDS_LOADERS_(__VA_ARGS__, )
#define LK_FIELDS_LOADERS_(fields, ...)                                                                      \
    lk_fields_loaders_with((fields), (lk_named_loader[2]){{NULL, NULL}},                                     \
                           LK_OPTIONS(lk_fields_loaders_options, __VA_ARGS__))
/* `storage` has room for two items and must live until the list has been handed over. */
lk_loader_list lk_fields_loaders_with(lk_fields *fields, lk_named_loader *storage,
                                      const lk_fields_loaders_options *options);

/* Fills in a path template. Free the result with lk_text_free. NULL on failure. */
char *lk_field_path(const char *path_template, const char *feature, double checkpoint);

/* ---- Cubes: (samples, channels, size...) with `dims` spatial axes ---- */

/* Takes every int(size / sample)-th point of each axis. `sample` holds `dims` sizes. */
lk_tensor *lk_sample_equidistant(const lk_tensor *field, int dims, const int64_t *sample);
/* Cuts each sample into sub-cubes of `cube` points, with the last axis fastest: (samples * cubes,
 * channels, cube...). */
lk_tensor *lk_split_cubes(const lk_tensor *field, int dims, const int64_t *cube);
/* The inverse: sub-cubes in that order become (samples, channels, size...). */
lk_tensor *lk_combine_cubes(const lk_tensor *cubes, int dims, const int64_t *size);

/* ---- Periodic filters over the last `dims` axes; dtype and shape stay ---- */

typedef lk_tensor *(*lk_field_filter)(const lk_tensor *field, int dims, double size);
/* Keeps the modes |k| < modes of each axis. */
lk_tensor *lk_filter_spectral(const lk_tensor *field, int dims, double modes);
/* The mean over `width` (a whole number) points of each axis, starting at i - width/2. */
lk_tensor *lk_filter_box(const lk_tensor *field, int dims, double width);
/* A Gaussian of `sigma` points, truncated at 4 sigma. */
lk_tensor *lk_filter_gaussian(const lk_tensor *field, int dims, double sigma);

/* Synthetic turbulence: (channels, size...) f32 with random phases, zero mean, unit variance per
 * channel and energy E(k) ~ k^slope (0 means -5/3). Draws from `generator`; NULL means the
 * default one. */
lk_tensor *lk_synthetic_turbulence(int64_t channels, int dims, const int64_t *size, double slope,
                                   lk_generator *generator);

#ifdef __cplusplus
}
#endif
#endif
