/* Data: datasets, samplers, transforms, and the loader that makes batches of them.
 *
 *     lk_loader *loader = lk_loader(lk_mnist("data", .train = true),
 *                                   .batch_size = 32, .shuffle = true);
 *
 * Life: what you hand to a constructor belongs to the object that it returns, also if the
 * constructor fails and returns NULL. A NULL part makes the whole NULL and keeps its error. To
 * use a dataset twice, hand over lk_dataset_share(dataset) once.
 *
 * Threads: a loader belongs to one thread. Its worker threads start with its first pass. A forked
 * child does not have them, so it must begin a pass of its own. */
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

/* A sampler decides the order of the samples. If it cannot be built, the loader that gets it
 * fails with its error: no order is silently replaced by another. Samplers draw from the
 * generator of the loader, as in PyTorch. */
typedef struct lk_sampler lk_sampler;

/* Each constructor returns a sampler that the caller owns, or NULL on failure.
 *
 * 0, 1, ..., length - 1. */
lk_sampler *lk_sequential_sampler(int64_t length);

typedef struct lk_random_sampler_options {
    size_t struct_size;
    bool replacement;
    int64_t num_samples; /* the length */
} lk_random_sampler_options;
/* A permutation, or with replacement random samples. */
lk_sampler *lk_random_sampler_with(int64_t length, const lk_random_sampler_options *options);
#define lk_random_sampler(...) LK_CALL1_(lk_random_sampler_with, lk_random_sampler_options, __VA_ARGS__, )

/* A permutation of the given indices, which are copied. */
lk_sampler *lk_subset_random_sampler(const int64_t *indices, int64_t count);

typedef struct lk_weighted_random_sampler_options {
    size_t struct_size;
    bool no_replacement;
} lk_weighted_random_sampler_options;
/* Draws num_samples of 0 ... count - 1 with the given weights, as torch.multinomial does. The
 * weights are copied. */
lk_sampler *lk_weighted_random_sampler_with(const double *weights, int64_t count, int64_t num_samples,
                                            const lk_weighted_random_sampler_options *options);
#define lk_weighted_random_sampler(...)                                                                      \
    LK_CALL3_(lk_weighted_random_sampler_with, lk_weighted_random_sampler_options, __VA_ARGS__, )

typedef struct lk_balance_class_sampler_options {
    size_t struct_size;
    const char *mode;          /* "downsampling" (default) or "upsampling" */
    int64_t samples_per_class; /* if set: this many per class, in either mode */
} lk_balance_class_sampler_options;
/* The same number of samples of every class: that of the smallest class, that of the largest, or
 * a given number. The labels are copied. */
lk_sampler *lk_balance_class_sampler_with(const int64_t *labels, int64_t count,
                                          const lk_balance_class_sampler_options *options);
#define lk_balance_class_sampler(...)                                                                        \
    LK_CALL2_(lk_balance_class_sampler_with, lk_balance_class_sampler_options, __VA_ARGS__, )

typedef struct lk_batch_balance_class_sampler_options {
    size_t struct_size;
    int64_t num_batches; /* default: count / (num_classes * num_samples) */
} lk_batch_balance_class_sampler_options;
/* Batches of num_classes * num_samples: random classes, and num_samples of each. It sets the
 * batch size of the loader. */
lk_sampler *lk_batch_balance_class_sampler_with(const int64_t *labels, int64_t count, int64_t num_classes,
                                                int64_t num_samples,
                                                const lk_batch_balance_class_sampler_options *options);
#define lk_batch_balance_class_sampler(...)                                                                  \
    LK_CALL4_(lk_batch_balance_class_sampler_with, lk_batch_balance_class_sampler_options, __VA_ARGS__, )

typedef struct lk_mini_epoch_sampler_options {
    size_t struct_size;
    bool drop_last;      /* leaves out the short last mini-epoch */
    const char *shuffle; /* NULL, "per_mini_epoch" or "per_epoch" */
} lk_mini_epoch_sampler_options;
/* Each pass takes the next mini_epoch_length samples, and starts again at the end of the data. */
lk_sampler *lk_mini_epoch_sampler_with(int64_t length, int64_t mini_epoch_length,
                                       const lk_mini_epoch_sampler_options *options);
#define lk_mini_epoch_sampler(...)                                                                           \
    LK_CALL2_(lk_mini_epoch_sampler_with, lk_mini_epoch_sampler_options, __VA_ARGS__, )

typedef struct lk_distributed_sampler_options {
    size_t struct_size;
    int num_replicas, rank; /* those of the pass */
    bool no_shuffle, drop_last;
    uint64_t seed;
} lk_distributed_sampler_options;
/* torch's DistributedSampler: a padded, disjoint share per rank, permuted with seed + epoch. */
lk_sampler *lk_distributed_sampler_with(int64_t length, const lk_distributed_sampler_options *options);
#define lk_distributed_sampler(...)                                                                          \
    LK_CALL1_(lk_distributed_sampler_with, lk_distributed_sampler_options, __VA_ARGS__, )
/* The same over the indices of another sampler, which it owns: Catalyst's
 * DistributedSamplerWrapper. */
lk_sampler *lk_distributed_sampler_wrapper_with(lk_sampler *sampler,
                                                const lk_distributed_sampler_options *options);
#define lk_distributed_sampler_wrapper(...)                                                                  \
    LK_CALL1_(lk_distributed_sampler_wrapper_with, lk_distributed_sampler_options, __VA_ARGS__, )

/* An order of your own: writes at most `capacity` indices and their number. It is called once per
 * pass, on the thread of the loader. */
typedef lk_status (*lk_sampler_draw)(void *context, lk_generator *generator, int64_t epoch, int64_t *indices,
                                     int64_t capacity, int64_t *count);
/* A sampler from a function. If `free_context` is not NULL, the sampler owns the context. */
lk_sampler *lk_custom_sampler(int64_t capacity, lk_sampler_draw draw, void *context,
                              void (*free_context)(void *context));

/* Returns the number of indices of a pass, as len() does in PyTorch. For a distributed sampler
 * with num_replicas this is the share of one rank. */
int64_t lk_sampler_length(const lk_sampler *sampler);
void lk_sampler_free(lk_sampler *sampler);

/* ---- Transforms ---- */

/* A transform changes one field of a sample, or a whole batch (mixup, cutmix). Its random numbers
 * depend only on (seed, epoch, sample index), so the number of workers and ranks does not change
 * them. */
typedef struct lk_transform lk_transform;

typedef struct lk_transform_list {
    lk_transform *const *items;
    int count;
} lk_transform_list;
LK_LIST_TO_END_(lk_transform_list, lk_transform *)
#define lk_transforms(...) lk_transform_list_to_end((lk_transform *const[]){__VA_ARGS__, LK_END})

/* Returns the dataset with its samples transformed in this order. Owns dataset and transforms.
 * NULL on failure. */
lk_dataset *lk_transformed(lk_dataset *dataset, lk_transform_list transforms);
void lk_transform_free(lk_transform *transform);

typedef struct lk_key_options {
    size_t struct_size;
    const char *key; /* the field; default "features" */
} lk_key_options;

/* u8 of (H, W) or (H, W, C) to f32 of (C, H, W) in 0..1. Other dtypes keep their values. */
lk_transform *lk_to_tensor_with(const lk_key_options *options);
#define lk_to_tensor(...) LK_CALL0_(lk_to_tensor_with, lk_key_options, __VA_ARGS__)

enum { LK_MAX_CHANNELS = 16 };
typedef struct lk_normalize_options {
    size_t struct_size;
    const char *key;
    /* One value for all channels, or one per channel. A std of 0 means 1. */
    float mean[LK_MAX_CHANNELS], std[LK_MAX_CHANNELS];
    int channels; /* number of values given; 1 */
} lk_normalize_options;
/* (x - mean) / std. */
lk_transform *lk_normalize_with(const lk_normalize_options *options);
#define lk_normalize(...) LK_CALL0_(lk_normalize_with, lk_normalize_options, __VA_ARGS__)

typedef struct lk_random_crop_options {
    size_t struct_size;
    const char *key;
    int64_t width;   /* default: as the height */
    int64_t padding; /* added on every side before cropping */
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
    double degrees;                  /* rotates by at most this, in either direction */
    double translate_x, translate_y; /* moves by at most this fraction of the size */
    double scale_min, scale_max;     /* 1 */
    double shear;                    /* degrees, along x */
    float fill;
} lk_random_affine_options;
/* Bilinear, around the centre of the picture. */
lk_transform *lk_random_affine_with(const lk_random_affine_options *options);
#define lk_random_affine(...) LK_CALL0_(lk_random_affine_with, lk_random_affine_options, __VA_ARGS__)

typedef struct lk_cutout_options {
    size_t struct_size;
    const char *key;
    int count; /* number of holes; 1 */
    float fill;
    double p; /* default 1 */
} lk_cutout_options;
/* Fills square holes of this size, with centres anywhere in the picture. */
lk_transform *lk_cutout_with(int64_t size, const lk_cutout_options *options);
#define lk_cutout(...) LK_CALL1_(lk_cutout_with, lk_cutout_options, __VA_ARGS__, )

/* Class indices to f32 vectors of num_classes, for mixup and soft labels. The default key is
 * "targets". */
lk_transform *lk_one_hot_with(int64_t num_classes, const lk_key_options *options);
#define lk_one_hot(...) LK_CALL1_(lk_one_hot_with, lk_key_options, __VA_ARGS__, )

typedef struct lk_mix_options {
    size_t struct_size;
    const char *keys[LK_MAX_FIELDS]; /* f32 fields; "features" and "targets" */
    double alpha;                    /* of the Beta distribution; 0.2 for mixup, 1 for cutmix */
} lk_mix_options;
/* x = w x + (1 - w) x[another sample of the batch], with w from Beta(alpha, alpha), for all keys.
 */
lk_transform *lk_mixup_with(const lk_mix_options *options);
#define lk_mixup(...) LK_CALL0_(lk_mixup_with, lk_mix_options, __VA_ARGS__)
/* Copies a rectangle of a picture (C, H, W) from another sample. Fields of other ranks are mixed
 * by its area. */
lk_transform *lk_cutmix_with(const lk_mix_options *options);
#define lk_cutmix(...) LK_CALL0_(lk_cutmix_with, lk_mix_options, __VA_ARGS__)

typedef struct lk_pad_collate_options {
    size_t struct_size;
    const char *keys[LK_MAX_FIELDS];  /* "features" */
    double pad_values[LK_MAX_FIELDS]; /* per key; 0 */
    /* Batches are as long as their longest sample, rounded up to a multiple of this, so that there
     * are not as many shapes as lengths: a step keeps a plan per shape. Default 8. */
    int64_t multiple;
} lk_pad_collate_options;
/* Batches of samples of different lengths. Field `key` holds samples at the front of (max_length,
 * ...), and field `key`_lengths (i64) says how long each is. The batch becomes (count, longest,
 * ...), with the pad value behind each sample's end, and gets a field `key`_mask (count, longest),
 * which is true there: the key_padding_mask of attention. Fields of other keys with the lengths of
 * the first one need no lengths of their own and get no mask. */
lk_transform *lk_pad_collate_with(const lk_pad_collate_options *options);
#define lk_pad_collate(...) LK_CALL0_(lk_pad_collate_with, lk_pad_collate_options, __VA_ARGS__)

/* ---- Batches ---- */

typedef struct lk_batch_field {
    const char *name;
    /* (count, ...); 64-byte aligned; a view into the ring of the loader. */
    lk_tensor tensor;
    /* Not NULL if the values are not gathered yet: a GPU gathers them from its own copy of these
     * rows. lk_batch_get gathers them on the host. */
    const lk_rows *rows;
} lk_batch_field;

typedef struct lk_batch {
    int64_t count;  /* samples; the last batch may be short */
    int64_t number; /* counts from 0 within the pass of this rank */
    /* Number of samples, at the end of the batch, that only make the shares of the ranks equal.
     * They repeat samples of other batches. They are trained on, but metrics do not count them. */
    int64_t padding;
    const int64_t *indices; /* (count): indices into the dataset */
    int field_count;
    lk_batch_field *fields;
} lk_batch;

/* Returns the tensor of a field with its values, or NULL if there is no such field (lk_error() is
 * not set). It belongs to the batch. */
lk_tensor *lk_batch_get(const lk_batch *batch, const char *name);

/* ---- The loader ---- */

typedef struct lk_loader lk_loader;

typedef struct lk_loader_options {
    size_t struct_size;
    int64_t batch_size; /* 1, or that of a sampler that makes batches */
    bool shuffle;       /* draws a new order in every pass */
    /* Keeps the order with two or more ranks too, where train loaders shuffle by default. One
     * rank, also if ddp finds one core, shuffles only with `shuffle`. */
    bool no_shuffle;
    bool drop_last;
    int num_workers;                    /* threads that make batches; 0: the thread of the caller */
    int prefetch;                       /* batches to make ahead; 2 per worker */
    lk_sampler *sampler;                /* owned */
    lk_transform_list batch_transforms; /* owned: mixup, cutmix */
    lk_generator *generator;            /* Borrowed. Draws the order; lk_default_generator(). */
    /* If not 0: the loader has its own generator with this seed. */
    uint64_t seed;
    /* Fields that are stored as bytes stay u8, for a device to convert. */
    bool raw;
    const char *name; /* for messages: loader "train" */
} lk_loader_options;

/* Returns a loader over a dataset, which it owns, or NULL on failure. */
lk_loader *lk_loader_with(lk_dataset *dataset, const lk_loader_options *options);
#define lk_loader(...) LK_CALL1_(lk_loader_with, lk_loader_options, __VA_ARGS__, )
void lk_loader_free(lk_loader *loader);

/* How a pass is divided between ranks. All zeros mean a pass by one process. */
typedef struct lk_pass_options {
    size_t struct_size;
    int64_t epoch;
    int rank, world; /* 0 means 1 */
    /* Pads the shares so that all ranks take the same number of steps. Evaluation is never
     * padded. */
    bool train;
    /* Seeds random transforms. Default: the seed of the loader, else of the default generator. */
    uint64_t seed;
} lk_pass_options;

typedef struct lk_pass_size {
    int64_t batch_count, sample_count; /* of this rank */
    int64_t total_sample_count;        /* of all ranks, padding included */
} lk_pass_size;

/* Computes the size of such a pass without starting it and without drawing a random number. */
lk_status lk_loader_size(const lk_loader *loader, const lk_pass_options *options, lk_pass_size *out);

/* Starts a pass and draws its order exactly as PyTorch's DataLoader does. `size` may be NULL.
 * Fails if the loader has no sample for any rank; one rank without a sample is no failure. */
lk_status lk_loader_begin(lk_loader *loader, const lk_pass_options *options, lk_pass_size *size);

/* Gives the next batch, or NULL after the last one. The batch is valid until the next call on
 * this loader. */
lk_status lk_loader_next(lk_loader *loader, lk_batch **out);

/* Makes batch `number` (from 0) of the pass the next one. The number of batches is the end of the
 * pass. */
lk_status lk_loader_seek(lk_loader *loader, int64_t number);

/* Everything that a pass depends on, as plain bytes, for a checkpoint within an epoch or between
 * two. */
typedef struct lk_loader_state {
    uint32_t version;
    int32_t rank, world, train, in_pass;
    int32_t has_position;
    int64_t epoch, next_batch;
    uint64_t seed;       /* of the transforms */
    int64_t sampler[4];  /* the state of the sampler at the start of the pass */
    lk_generator source; /* the generator of the order, at the start of the pass */
    /* The current state of .generator, or of the own generator (.seed). */
    lk_generator position;
} lk_loader_state;

/* Writes the state of the loader to `out`. */
void lk_loader_save(const lk_loader *loader, lk_loader_state *out);
/* Starts the saved pass again, in the same order and at the same batch, and restores the
 * generator of the loader. It does not restore the default generator: the caller does. */
lk_status lk_loader_restore(lk_loader *loader, const lk_loader_state *state, lk_pass_size *size);

/* Properties of a loader. What is returned belongs to it. */
lk_dataset *lk_loader_dataset(const lk_loader *loader); /* borrowed */
int64_t lk_loader_batch_size(const lk_loader *loader);
const char *lk_loader_name(const lk_loader *loader); /* "" without one */
lk_status lk_loader_set_name(lk_loader *loader, const char *name);

/* Loaders by key, for a run: lk_loaders({"train", ...}, {"valid", ...}). */
typedef struct lk_named_loader {
    /* A key begins with "train", "valid" or "infer", which says what the run does with the
     * loader. It also names files in the logdir: UTF-8 without a "/". */
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
/* A dataset of tensors in memory, (samples, ...): lk_tensor_dataset({"features", x}, {"targets",
 * y}). Owns the tensors. NULL on failure. */
lk_dataset *lk_tensor_dataset_with(const lk_named_tensor *tensors, int count);
LK_CALL_TO_END_(lk_dataset *, lk_tensor_dataset, lk_named_tensor)
#define lk_tensor_dataset(...)                                                                               \
    lk_tensor_dataset_to_end((const lk_named_tensor[]){__VA_ARGS__, {.name = LK_END}})

/* Some samples of a dataset, by index; the indices are copied. Owns the dataset. NULL on failure.
 */
lk_dataset *lk_subset(lk_dataset *dataset, const int64_t *indices, int64_t count);
/* Several datasets with equal fields, one after the other. Owns the datasets. NULL on failure. */
lk_dataset *lk_concat_with(lk_dataset *const *datasets, int count);
LK_CALL_TO_END_(lk_dataset *, lk_concat, lk_dataset *)
#define lk_concat(...) lk_concat_to_end((lk_dataset *const[]){__VA_ARGS__, LK_END})

typedef struct lk_field_dtype {
    const char *field;
    lk_dtype dtype;
} lk_field_dtype;
/* The dataset with fields in the dtypes that you name: lk_cast_fields(dataset, {"features",
 * LK_F64}).
 *
 * Without it, a run converts float64 features, int32 or bool labels and the like to what its
 * model and its criterion need, once, before the first batch, and says so in its header. A field
 * that is named here keeps the dtype that it gets here. Data in memory or in files is converted
 * in this call, other data when it is gathered. Floats are rounded as by NumPy's astype. A value
 * that the dtype cannot hold is an error that names the sample. Owns the dataset. NULL on
 * failure. */
lk_dataset *lk_cast_fields_with(lk_dataset *dataset, const lk_field_dtype *dtypes, int count);
static inline lk_dataset *lk_cast_fields_to_end(lk_dataset *dataset, const lk_field_dtype *dtypes)
{
    return lk_cast_fields_with(dataset, dtypes, lk_count_to_end(dtypes, sizeof *dtypes));
}
#define lk_cast_fields(dataset, ...)                                                                         \
    lk_cast_fields_to_end((dataset), (const lk_field_dtype[]){__VA_ARGS__, {.field = LK_END}})

typedef struct lk_mnist_options {
    size_t struct_size;
    bool train;    /* the 60,000 training samples instead of the 10,000 others */
    bool download; /* downloads missing files into root/MNIST/raw */
    /* (pixel - 0.1307) / 0.3081 without a division by 255, as Catalyst's own class does. */
    bool catalyst_scaling;
    bool normalize;  /* (pixel / 255 - mean) / std */
    float mean, std; /* 0.1307 and 0.3081 */
} lk_mnist_options;
/* "features" (1, 28, 28) f32 and "targets" i64. The IDX files, gzipped or not, are searched for
 * in root, root/MNIST/raw, root/mnist and root/raw. In memory, pixels stay bytes. NULL with
 * LK_ERR_NOT_FOUND if a file is missing. */
lk_dataset *lk_mnist_with(const char *root, const lk_mnist_options *options);
#define lk_mnist(...) LK_CALL1_(lk_mnist_with, lk_mnist_options, __VA_ARGS__, )

typedef struct lk_synthetic_digits_options {
    size_t struct_size;
    bool train;    /* draws other digits than without it */
    int64_t count; /* 10,000 for training, otherwise 2,000 */
    uint64_t seed;
} lk_synthetic_digits_options;
/* Digits that this library draws, with the fields of MNIST. They are the same on every machine
 * and need no download. */
lk_dataset *lk_synthetic_digits_with(const lk_synthetic_digits_options *options);
#define lk_synthetic_digits(...) LK_CALL0_(lk_synthetic_digits_with, lk_synthetic_digits_options, __VA_ARGS__)

typedef struct lk_named_file {
    const char *name, *path;
} lk_named_file;
/* A dataset of .npy files, which are mapped, not read: lk_npy_dataset({"features", "X.npy"},
 * {"targets", "y.npy"}). NULL on failure. */
lk_dataset *lk_npy_dataset_with(const lk_named_file *files, int count);
LK_CALL_TO_END_(lk_dataset *, lk_npy_dataset, lk_named_file)
#define lk_npy_dataset(...) lk_npy_dataset_to_end((const lk_named_file[]){__VA_ARGS__, {.name = LK_END}})
/* Returns one array of a .npy file, mapped. The caller frees it. NULL on failure. */
lk_tensor *lk_npy_read(const char *path);

typedef struct lk_safetensors_dataset_options {
    size_t struct_size;
    /* Names of tensors. Default: every tensor of the file is a field with its name. */
    const char *features, *targets;
} lk_safetensors_dataset_options;
lk_dataset *lk_safetensors_dataset_with(const char *path, const lk_safetensors_dataset_options *options);
#define lk_safetensors_dataset(...)                                                                          \
    LK_CALL1_(lk_safetensors_dataset_with, lk_safetensors_dataset_options, __VA_ARGS__, )

typedef struct lk_csv_dataset_options {
    size_t struct_size;
    char delimiter; /* default ',' */
    /* The first line is data. Columns are then named "0", "1", ... */
    bool no_header;
    const char *target_columns; /* names, separated by commas; the last column */
    /* Targets are classes: an i64 scalar. The column has class numbers, or names of classes, which
     * are numbered in the order of their bytes. */
    bool class_targets;
    const char *feature_columns; /* names, separated by commas; all that are not targets */
    /* The names of the classes in the order of their numbers, separated by commas. Any other name
     * in the file is an error. */
    const char *classes;
} lk_csv_dataset_options;
/* "features" (columns) f32, and "targets" (columns), or a scalar if there is one column: f32, or
 * i64 class numbers. Other columns may hold any text. If the file does not say its own classes by
 * .classes, a run renumbers them to match those of the train loader: see lk_dataset_set_classes.
 * NULL with an error that names file and line. */
lk_dataset *lk_csv_dataset_with(const char *path, const lk_csv_dataset_options *options);
#define lk_csv_dataset(...) LK_CALL1_(lk_csv_dataset_with, lk_csv_dataset_options, __VA_ARGS__, )

typedef struct lk_image_folder_options {
    size_t struct_size;
    /* Pictures are resized to this. Default: all must have the size of the first. */
    int64_t height, width;
    int channels; /* 1 or 3; default 3 */
    /* The folder that defines the classes, usually the train folder; root itself. */
    const char *classes_of;
} lk_image_folder_options;
/* root/class/name.png or .jpg: "features" (channels, height, width) f32 in 0..1, and "targets"
 * i64 in the alphabetical order of the classes. Pictures are read when they are needed. A class
 * of root that classes_of does not have is an error. A run with a train loader renumbers the
 * labels of its other image folders to match those of the train folder: see
 * lk_dataset_set_classes. */
lk_dataset *lk_image_folder_with(const char *root, const lk_image_folder_options *options);
#define lk_image_folder(...) LK_CALL1_(lk_image_folder_with, lk_image_folder_options, __VA_ARGS__, )

typedef struct lk_hdf5_dataset_options {
    size_t struct_size;
    /* The label of an array in the file; the last one of the file. */
    const char *features;
    const char *targets; /* the same for targets; none */
} lk_hdf5_dataset_options;
lk_dataset *lk_hdf5_dataset_with(const char *path, const lk_hdf5_dataset_options *options);
#define lk_hdf5_dataset(...) LK_CALL1_(lk_hdf5_dataset_with, lk_hdf5_dataset_options, __VA_ARGS__, )
/* Returns one array of an HDF5 file as f32, f64, i32, i64 or u8. A label of NULL means the last
 * array of the file. The caller frees it. NULL on failure. */
lk_tensor *lk_hdf5_read(const char *path, const char *label);

#ifdef __cplusplus
}
#endif
#endif
