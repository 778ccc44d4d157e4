/* Data: datasets, samplers, transforms, and the loader that makes batches of them.
 *
 *     lk_loader *loader = lk_loader(lk_mnist("data", .train = true), .batch_size = 32, .shuffle = true);
 *
 * What is handed to a constructor belongs to what it returns, also when it fails and returns NULL; a NULL
 * part passes through with its error sentence. To use a dataset twice, hand lk_dataset_share(dataset) to one
 * of the two. A loader belongs to one thread; its own worker threads start with its first pass, and a forked
 * child, which does not have them, begins a pass of its own. Every named-argument macro has a plain function
 * below it. */
#ifndef LOCKSTEP_DATA_H
#define LOCKSTEP_DATA_H

#include <lockstep/arguments.h>
#include <lockstep/random.h>
#include <lockstep/sys/dataset.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Samplers: the order of the samples ---- */

/* A sampler that cannot be built carries its error to the loader, which fails with it: an order is never
 * replaced by another one in silence. Samplers draw from the loader's generator, by default the default one,
 * as PyTorch's do. */
typedef struct lk_sampler lk_sampler;

lk_sampler *lk_sequential_sampler(int64_t length);

typedef struct lk_random_sampler_options {
    size_t struct_size;
    bool replacement;
    int64_t num_samples; /* default: the length */
} lk_random_sampler_options;
lk_sampler *lk_random_sampler_with(int64_t length, const lk_random_sampler_options *options);
#define lk_random_sampler(...) LK_CALL1_(lk_random_sampler_with, lk_random_sampler_options, __VA_ARGS__, )

/* A permutation of the given indices, which are copied. */
lk_sampler *lk_subset_random_sampler(const int64_t *indices, int64_t count);

typedef struct lk_weighted_random_sampler_options {
    size_t struct_size;
    bool no_replacement;
} lk_weighted_random_sampler_options;
/* num_samples draws from 0..count-1 with the given weights, as torch.multinomial. */
lk_sampler *lk_weighted_random_sampler_with(const double *weights, int64_t count, int64_t num_samples,
                                            const lk_weighted_random_sampler_options *options);
#define lk_weighted_random_sampler(...)                                                                      \
    LK_CALL3_(lk_weighted_random_sampler_with, lk_weighted_random_sampler_options, __VA_ARGS__, )

typedef struct lk_balance_class_sampler_options {
    size_t struct_size;
    const char *mode;          /* "downsampling" (default) or "upsampling" */
    int64_t samples_per_class; /* given: this many of each class, whatever the mode */
} lk_balance_class_sampler_options;
/* As many samples of every class: the smallest class's, the largest's, or a given number. */
lk_sampler *lk_balance_class_sampler_with(const int64_t *labels, int64_t count,
                                          const lk_balance_class_sampler_options *options);
#define lk_balance_class_sampler(...)                                                                        \
    LK_CALL2_(lk_balance_class_sampler_with, lk_balance_class_sampler_options, __VA_ARGS__, )

typedef struct lk_batch_balance_class_sampler_options {
    size_t struct_size;
    int64_t num_batches; /* default: count / (num_classes * num_samples) */
} lk_batch_balance_class_sampler_options;
/* Batches of num_classes * num_samples: random classes, num_samples of each. It sets the loader's batch size.
 */
lk_sampler *lk_batch_balance_class_sampler_with(const int64_t *labels, int64_t count, int64_t num_classes,
                                                int64_t num_samples,
                                                const lk_batch_balance_class_sampler_options *options);
#define lk_batch_balance_class_sampler(...)                                                                  \
    LK_CALL4_(lk_batch_balance_class_sampler_with, lk_batch_balance_class_sampler_options, __VA_ARGS__, )

typedef struct lk_mini_epoch_sampler_options {
    size_t struct_size;
    bool drop_last;      /* leave the short last mini-epoch out */
    const char *shuffle; /* NULL, "per_mini_epoch" or "per_epoch" */
} lk_mini_epoch_sampler_options;
/* Each pass is the next mini_epoch_length samples; it wraps around at the end of the data. */
lk_sampler *lk_mini_epoch_sampler_with(int64_t length, int64_t mini_epoch_length,
                                       const lk_mini_epoch_sampler_options *options);
#define lk_mini_epoch_sampler(...)                                                                           \
    LK_CALL2_(lk_mini_epoch_sampler_with, lk_mini_epoch_sampler_options, __VA_ARGS__, )

typedef struct lk_distributed_sampler_options {
    size_t struct_size;
    int num_replicas, rank; /* default: those of the pass */
    bool no_shuffle, drop_last;
    uint64_t seed;
} lk_distributed_sampler_options;
/* torch's DistributedSampler: a padded, disjoint share for each rank, permuted with seed + epoch. */
lk_sampler *lk_distributed_sampler_with(int64_t length, const lk_distributed_sampler_options *options);
#define lk_distributed_sampler(...)                                                                          \
    LK_CALL1_(lk_distributed_sampler_with, lk_distributed_sampler_options, __VA_ARGS__, )
/* The same over what another sampler yields (Catalyst's DistributedSamplerWrapper). */
lk_sampler *lk_distributed_sampler_wrapper_with(lk_sampler *sampler,
                                                const lk_distributed_sampler_options *options);
#define lk_distributed_sampler_wrapper(...)                                                                  \
    LK_CALL1_(lk_distributed_sampler_wrapper_with, lk_distributed_sampler_options, __VA_ARGS__, )

/* A user's own order: writes up to `capacity` indices and their number; drawn once a pass, on the loader's
 * thread. */
typedef lk_status (*lk_sampler_draw)(void *context, lk_generator *generator, int64_t epoch, int64_t *indices,
                                     int64_t capacity, int64_t *count);
/* `free_context` may be NULL. */
lk_sampler *lk_custom_sampler(int64_t capacity, lk_sampler_draw draw, void *context,
                              void (*free_context)(void *context));

/* The indices of a pass, as PyTorch's len(): a distributed sampler's are one rank's share where it was told
 * num_replicas, else all. */
int64_t lk_sampler_length(const lk_sampler *sampler);
void lk_sampler_free(lk_sampler *sampler);

/* ---- Transforms ---- */

/* A transform acts on one sample's field, or on a whole batch (mixup, cutmix). Its random numbers are keyed
 * by (seed, epoch, sample index): neither the number of workers nor of ranks changes them. */
typedef struct lk_transform lk_transform;

typedef struct lk_transform_list {
    lk_transform *const *items;
    int count;
} lk_transform_list;
LK_LIST_TO_END_(lk_transform_list, lk_transform *)
#define lk_transforms(...) lk_transform_list_to_end((lk_transform *const[]){__VA_ARGS__, LK_END})

/* The dataset with its samples transformed in this order. Owns the transforms. */
lk_dataset *lk_transformed(lk_dataset *dataset, lk_transform_list transforms);
void lk_transform_free(lk_transform *transform);

typedef struct lk_key_options {
    size_t struct_size;
    const char *key; /* the field; default "features" */
} lk_key_options;

/* (H, W) or (H, W, C) of u8 to (C, H, W) of f32 in 0..1; other dtypes keep their values. */
lk_transform *lk_to_tensor_with(const lk_key_options *options);
#define lk_to_tensor(...) LK_CALL0_(lk_to_tensor_with, lk_key_options, __VA_ARGS__)

enum { LK_MAX_CHANNELS = 16 };
typedef struct lk_normalize_options {
    size_t struct_size;
    const char *key;
    float mean[LK_MAX_CHANNELS],
        std[LK_MAX_CHANNELS]; /* one value for all channels, or one a channel; std 0 is 1 */
    int channels;             /* how many are given; default 1 */
} lk_normalize_options;
/* (x - mean) / std. */
lk_transform *lk_normalize_with(const lk_normalize_options *options);
#define lk_normalize(...) LK_CALL0_(lk_normalize_with, lk_normalize_options, __VA_ARGS__)

typedef struct lk_random_crop_options {
    size_t struct_size;
    const char *key;
    int64_t width;   /* default: as the height */
    int64_t padding; /* added on every side first */
    float fill;
} lk_random_crop_options;
lk_transform *lk_random_crop_with(int64_t height, const lk_random_crop_options *options);
#define lk_random_crop(...) LK_CALL1_(lk_random_crop_with, lk_random_crop_options, __VA_ARGS__, )

typedef struct lk_flip_options {
    size_t struct_size;
    const char *key;
    double p; /* default 0.5 */
} lk_flip_options;
lk_transform *lk_random_horizontal_flip_with(const lk_flip_options *options);
#define lk_random_horizontal_flip(...) LK_CALL0_(lk_random_horizontal_flip_with, lk_flip_options, __VA_ARGS__)
lk_transform *lk_random_vertical_flip_with(const lk_flip_options *options);
#define lk_random_vertical_flip(...) LK_CALL0_(lk_random_vertical_flip_with, lk_flip_options, __VA_ARGS__)

typedef struct lk_random_affine_options {
    size_t struct_size;
    const char *key;
    double degrees;                  /* turned by up to this much either way */
    double translate_x, translate_y; /* moved by up to this fraction of the width and height */
    double scale_min, scale_max;     /* default 1 */
    double shear;                    /* degrees, along x */
    float fill;
} lk_random_affine_options;
/* Bilinear, about the centre of the picture. */
lk_transform *lk_random_affine_with(const lk_random_affine_options *options);
#define lk_random_affine(...) LK_CALL0_(lk_random_affine_with, lk_random_affine_options, __VA_ARGS__)

typedef struct lk_cutout_options {
    size_t struct_size;
    const char *key;
    int count; /* holes; default 1 */
    float fill;
    double p; /* default 1 */
} lk_cutout_options;
/* Square holes of this size whose centres lie anywhere in the picture. */
lk_transform *lk_cutout_with(int64_t size, const lk_cutout_options *options);
#define lk_cutout(...) LK_CALL1_(lk_cutout_with, lk_cutout_options, __VA_ARGS__, )

/* Class indices to f32 vectors of num_classes, for mixup and soft labels; the default key is "targets". */
lk_transform *lk_one_hot_with(int64_t num_classes, const lk_key_options *options);
#define lk_one_hot(...) LK_CALL1_(lk_one_hot_with, lk_key_options, __VA_ARGS__, )

typedef struct lk_mix_options {
    size_t struct_size;
    const char *keys[LK_MAX_FIELDS]; /* f32 fields; default "features" and "targets" */
    double alpha;                    /* of the Beta distribution; default 0.2 for mixup, 1 for cutmix */
} lk_mix_options;
/* x = w x + (1 - w) x[other sample of the batch], w from Beta(alpha, alpha), for all the keys. */
lk_transform *lk_mixup_with(const lk_mix_options *options);
#define lk_mixup(...) LK_CALL0_(lk_mixup_with, lk_mix_options, __VA_ARGS__)
/* A rectangle of pictures (C, H, W) from another sample; fields of other ranks are mixed by its area. */
lk_transform *lk_cutmix_with(const lk_mix_options *options);
#define lk_cutmix(...) LK_CALL0_(lk_cutmix_with, lk_mix_options, __VA_ARGS__)

/* ---- Batches ---- */

typedef struct lk_batch_field {
    const char *name;
    lk_tensor tensor; /* (count, ...); 64-byte aligned; a view into the loader's ring */
    const lk_rows
        *rows; /* not gathered yet: a GPU does that from its own copy of these. lk_batch_get gathers */
} lk_batch_field;

typedef struct lk_batch {
    int64_t count;          /* samples; the last batch may be short */
    int64_t number;         /* from 0, within the pass and this rank */
    int64_t padding;        /* how many of them, the last ones, only make the ranks' shares equal: they repeat
                               samples of other batches, are trained on, and no metric counts them */
    const int64_t *indices; /* (count): which samples of the dataset */
    int field_count;
    lk_batch_field *fields;
} lk_batch;

/* The tensor of a field with its values, or NULL where there is none (no error is set). */
lk_tensor *lk_batch_get(const lk_batch *batch, const char *name);

/* ---- The loader ---- */

typedef struct lk_loader lk_loader;

typedef struct lk_loader_options {
    size_t struct_size;
    int64_t batch_size; /* default 1, or that of a sampler that makes batches */
    bool shuffle;
    bool no_shuffle; /* keep the order in distributed training too, where the default is to shuffle */
    bool drop_last;
    int num_workers;                    /* threads that make batches; 0: the caller's own thread makes them */
    int prefetch;                       /* batches made ahead; default 2 a worker */
    lk_sampler *sampler;                /* owned */
    lk_transform_list batch_transforms; /* owned: mixup, cutmix */
    lk_generator *generator; /* borrowed; where the order is drawn from; default: lk_default_generator() */
    uint64_t seed;           /* not 0: a generator of the loader's own, with this seed */
    bool raw;                /* fields kept as bytes come as they are stored (u8), for a device to convert */
    const char *name;        /* for messages: loader "train" */
} lk_loader_options;

lk_loader *lk_loader_with(lk_dataset *dataset, const lk_loader_options *options);
#define lk_loader(...) LK_CALL1_(lk_loader_with, lk_loader_options, __VA_ARGS__, )
void lk_loader_free(lk_loader *loader);

/* How the pass is shared between ranks. Zero is a pass by one process. */
typedef struct lk_pass_options {
    size_t struct_size;
    int64_t epoch;
    int rank, world; /* world 0 is 1 */
    bool train;      /* shards are padded so that all ranks take as many steps; evaluation is never padded */
    uint64_t seed;   /* keys random transforms; default: the loader's seed, else the default generator's */
} lk_pass_options;

typedef struct lk_pass_size {
    int64_t batch_count, sample_count; /* of this rank */
    int64_t total_sample_count;        /* of all ranks, padding included */
} lk_pass_size;

/* The size of such a pass, without starting it and without drawing a random number. */
lk_status lk_loader_size(const lk_loader *loader, const lk_pass_options *options, lk_pass_size *out);

/* Starts a pass: draws its order exactly as PyTorch's DataLoader would. `size` may be NULL. A loader that has
 * no sample for any rank is an error; one rank without a sample is not. */
lk_status lk_loader_begin(lk_loader *loader, const lk_pass_options *options, lk_pass_size *size);

/* The next batch, valid until the next call on this loader; *out is NULL after the last. */
lk_status lk_loader_next(lk_loader *loader, lk_batch **out);

/* Makes batch `number` (from 0) of the pass the next one; the number of batches itself is the end of the
 * pass. */
lk_status lk_loader_seek(lk_loader *loader, int64_t number);

/* Everything a pass depends on, as plain bytes, for a checkpoint in the middle of an epoch or between two. */
typedef struct lk_loader_state {
    uint32_t version;
    int32_t rank, world, train, in_pass;
    int32_t has_position;
    int64_t epoch, next_batch;
    uint64_t seed;         /* of the transforms */
    int64_t sampler[4];    /* the sampler's own state as the pass began */
    lk_generator source;   /* the generator the order was drawn from, as the pass began */
    lk_generator position; /* the loader's .generator, or its own (.seed), now */
} lk_loader_state;

void lk_loader_save(const lk_loader *loader, lk_loader_state *out);
/* Starts the saved pass again, in the same order, at the same batch, and puts a generator of the loader's to
 * where it was. The default generator is left as it is: restoring it is the caller's. */
lk_status lk_loader_restore(lk_loader *loader, const lk_loader_state *state, lk_pass_size *size);

lk_dataset *lk_loader_dataset(const lk_loader *loader); /* borrowed */
int64_t lk_loader_batch_size(const lk_loader *loader);
const char *lk_loader_name(const lk_loader *loader); /* "" without one */
lk_status lk_loader_set_name(lk_loader *loader, const char *name);

/* Loaders by key, for a run: lk_loaders({"train", ...}, {"valid", ...}). */
typedef struct lk_named_loader {
    /* A key begins with "train", "valid" or "infer", which says what the run does with the loader. It also
     * names files in the logdir: UTF-8 without a "/". */
    const char *key;
    lk_loader *loader;
} lk_named_loader;

typedef struct lk_loader_list {
    const lk_named_loader *items;
    int count;
} lk_loader_list;
LK_LIST_TO_END_(lk_loader_list, lk_named_loader)
#define lk_loaders(...) lk_loader_list_to_end((const lk_named_loader[]){__VA_ARGS__, {.key = LK_END}})

/* ---- Datasets ---- */

typedef struct lk_named_tensor {
    const char *name;
    lk_tensor *tensor;
} lk_named_tensor;
/* lk_tensor_dataset({"features", x}, {"targets", y}): tensors in memory, (samples, ...). Owns the tensors. */
lk_dataset *lk_tensor_dataset_with(const lk_named_tensor *tensors, int count);
LK_CALL_TO_END_(lk_dataset *, lk_tensor_dataset, lk_named_tensor)
#define lk_tensor_dataset(...)                                                                               \
    lk_tensor_dataset_to_end((const lk_named_tensor[]){__VA_ARGS__, {.name = LK_END}})

/* Some samples of a dataset, by index (copied); several datasets with equal fields, one after the other. */
lk_dataset *lk_subset(lk_dataset *dataset, const int64_t *indices, int64_t count);
lk_dataset *lk_concat_with(lk_dataset *const *datasets, int count);
LK_CALL_TO_END_(lk_dataset *, lk_concat, lk_dataset *)
#define lk_concat(...) lk_concat_to_end((lk_dataset *const[]){__VA_ARGS__, LK_END})

typedef struct lk_field_dtype {
    const char *field;
    lk_dtype dtype;
} lk_field_dtype;
/* The dataset with fields of the dtypes that you name: lk_cast_fields(dataset, {"features", LK_F64}).
 *
 * Without it a run converts float64 features, int32 or bool labels and the like to what its model and its
 * criterion need, once, before the first batch, and its header says so. A field that is named here keeps the
 * dtype it gets here. Data in memory or in files is converted in this call, other data while it is gathered.
 * A float is rounded as NumPy's astype does it; a value that the dtype cannot hold is an error that names the
 * sample. Owns the dataset; NULL with an error. */
lk_dataset *lk_cast_fields_with(lk_dataset *dataset, const lk_field_dtype *dtypes, int count);
static inline lk_dataset *lk_cast_fields_to_end(lk_dataset *dataset, const lk_field_dtype *dtypes)
{
    return lk_cast_fields_with(dataset, dtypes, lk_count_to_end(dtypes, sizeof *dtypes));
}
#define lk_cast_fields(dataset, ...)                                                                         \
    lk_cast_fields_to_end((dataset), (const lk_field_dtype[]){__VA_ARGS__, {.field = LK_END}})

typedef struct lk_mnist_options {
    size_t struct_size;
    bool train;            /* the 60,000 instead of the 10,000 */
    bool download;         /* fetch what is missing into root/MNIST/raw */
    bool catalyst_scaling; /* (pixel - 0.1307) / 0.3081 without dividing by 255, as Catalyst's own class */
    bool normalize;        /* (pixel / 255 - mean) / std */
    float mean, std;       /* default 0.1307 and 0.3081 */
} lk_mnist_options;
/* "features" (1, 28, 28) f32, "targets" i64. The IDX files, gzipped or not, are looked for in root,
 * root/MNIST/raw, root/mnist, root/raw. The bytes stay bytes in memory. */
lk_dataset *lk_mnist_with(const char *root, const lk_mnist_options *options);
#define lk_mnist(...) LK_CALL1_(lk_mnist_with, lk_mnist_options, __VA_ARGS__, )

typedef struct lk_synthetic_digits_options {
    size_t struct_size;
    bool train;    /* other digits than without */
    int64_t count; /* default 10,000 for training, 2,000 else */
    uint64_t seed;
} lk_synthetic_digits_options;
/* Digits drawn by this library, fields as MNIST's: the same bytes on every machine, nothing to download. */
lk_dataset *lk_synthetic_digits_with(const lk_synthetic_digits_options *options);
#define lk_synthetic_digits(...) LK_CALL0_(lk_synthetic_digits_with, lk_synthetic_digits_options, __VA_ARGS__)

typedef struct lk_named_file {
    const char *name, *path;
} lk_named_file;
/* lk_npy_dataset({"features", "X.npy"}, {"targets", "y.npy"}): mapped, not read. */
lk_dataset *lk_npy_dataset_with(const lk_named_file *files, int count);
LK_CALL_TO_END_(lk_dataset *, lk_npy_dataset, lk_named_file)
#define lk_npy_dataset(...) lk_npy_dataset_to_end((const lk_named_file[]){__VA_ARGS__, {.name = LK_END}})
/* One array of a .npy file, mapped. */
lk_tensor *lk_npy_read(const char *path);

typedef struct lk_safetensors_dataset_options {
    size_t struct_size;
    const char *features,
        *targets; /* names of tensors; default: every tensor of the file is a field of its name */
} lk_safetensors_dataset_options;
lk_dataset *lk_safetensors_dataset_with(const char *path, const lk_safetensors_dataset_options *options);
#define lk_safetensors_dataset(...)                                                                          \
    LK_CALL1_(lk_safetensors_dataset_with, lk_safetensors_dataset_options, __VA_ARGS__, )

typedef struct lk_csv_dataset_options {
    size_t struct_size;
    char delimiter;             /* default ',' */
    bool no_header;             /* the first line is data; columns are then called "0", "1", ... */
    const char *target_columns; /* names, with commas between; default: the last column */
    bool class_targets;         /* targets are class numbers: an i64 scalar */
} lk_csv_dataset_options;
/* "features" (columns) f32 and "targets" (columns), or a scalar of one column: f32, or i64 class numbers. */
lk_dataset *lk_csv_dataset_with(const char *path, const lk_csv_dataset_options *options);
#define lk_csv_dataset(...) LK_CALL1_(lk_csv_dataset_with, lk_csv_dataset_options, __VA_ARGS__, )

typedef struct lk_image_folder_options {
    size_t struct_size;
    int64_t height, width; /* pictures are resized to this; default: all must have the first one's size */
    int channels;          /* 1 or 3; default 3 */
    const char
        *classes_of; /* the folder whose classes count, usually the train folder; default: root itself */
} lk_image_folder_options;
/* root/class/name.png or .jpg: "features" (channels, height, width) f32 in 0..1, "targets" i64 in the
 * alphabetical order of the classes. Pictures are read when they are asked for. A class of root that
 * classes_of does not have is an error. A run that has a train loader renumbers the labels of its other image
 * folders as the train folder's by itself: see lk_dataset_set_classes. */
lk_dataset *lk_image_folder_with(const char *root, const lk_image_folder_options *options);
#define lk_image_folder(...) LK_CALL1_(lk_image_folder_with, lk_image_folder_options, __VA_ARGS__, )

typedef struct lk_hdf5_dataset_options {
    size_t struct_size;
    const char *features; /* the label of an array in the file; default: the last one of the file */
    const char *targets;  /* likewise; default: no targets */
} lk_hdf5_dataset_options;
lk_dataset *lk_hdf5_dataset_with(const char *path, const lk_hdf5_dataset_options *options);
#define lk_hdf5_dataset(...) LK_CALL1_(lk_hdf5_dataset_with, lk_hdf5_dataset_options, __VA_ARGS__, )
/* One array of an HDF5 file as f32, f64, i32, i64 or u8; label NULL is the last one of the file. */
lk_tensor *lk_hdf5_read(const char *path, const char *label);

#ifdef __cplusplus
}
#endif
#endif
