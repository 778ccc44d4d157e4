/* Pictures: transforms with torchvision's results, classic data sets, and random splits.
 *
 *     lk_dataset *pictures = lk_transformed(
 *         lk_image_folder("flowers/train"),
 *         lk_transforms(lk_random_resized_crop(224), lk_random_horizontal_flip(),
 *                       lk_color_jitter(.brightness = {0.4}, .hue = {0.1})));
 *
 * Transforms here take f32 pictures (C, H, W) in the field `key`, "features" if it is NULL. Colours
 * are expected in 0..1. Without a random choice the result is that of torchvision for tensors.
 * Random choices follow torchvision's distributions, but are drawn from (seed, epoch, sample
 * index), so the number of workers and ranks does not change them.
 *
 * Life and threads: as in data.h. Each constructor returns an object that the caller owns, or NULL
 * if an argument is wrong. */
#ifndef LOCKSTEP_VISION_H
#define LOCKSTEP_VISION_H

#include <lockstep/data.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Sizes ---- */

typedef struct lk_resize_options {
    size_t struct_size;
    const char *key;
    /* If set: pictures become (height, width). Otherwise the shorter edge becomes `height` and the
     * picture keeps its proportions. */
    int64_t width;
    int64_t max_size;          /* the longer edge is at most this; only without a width */
    const char *interpolation; /* "bilinear" (default), "bicubic" or "nearest" */
    /* Takes too few pixels into account when a picture becomes smaller, as
     * interpolate(antialias=False) does. Has no effect on "nearest". */
    bool no_antialias;
} lk_resize_options;
lk_transform *lk_resize_with(int64_t height, const lk_resize_options *options);
#define lk_resize(...) LK_CALL1_(lk_resize_with, lk_resize_options, __VA_ARGS__, )

typedef struct lk_center_crop_options {
    size_t struct_size;
    const char *key;
    int64_t width; /* default: as the height */
} lk_center_crop_options;
/* The middle of the picture. A picture that is too small is first padded with zeros. */
lk_transform *lk_center_crop_with(int64_t height, const lk_center_crop_options *options);
#define lk_center_crop(...) LK_CALL1_(lk_center_crop_with, lk_center_crop_options, __VA_ARGS__, )

typedef struct lk_pad_picture_options {
    size_t struct_size;
    const char *key;
    int64_t left, top, right, bottom; /* pixels; negative numbers cut pixels off, if constant */
    float fill;
    const char *padding_mode; /* "constant" (default), "edge", "reflect" or "symmetric" */
} lk_pad_picture_options;
lk_transform *lk_pad_picture_with(const lk_pad_picture_options *options);
#define lk_pad_picture(...) LK_CALL0_(lk_pad_picture_with, lk_pad_picture_options, __VA_ARGS__)

typedef struct lk_random_resized_crop_options {
    size_t struct_size;
    const char *key;
    int64_t width;               /* default: as the height */
    double scale_min, scale_max; /* of the area; 0.08 to 1 */
    double ratio_min, ratio_max; /* width / height; 3/4 to 4/3 */
    const char *interpolation;   /* as for lk_resize */
    bool no_antialias;
} lk_random_resized_crop_options;
/* A random part of the picture, resized. */
lk_transform *lk_random_resized_crop_with(int64_t height, const lk_random_resized_crop_options *options);
#define lk_random_resized_crop(...)                                                                          \
    LK_CALL1_(lk_random_resized_crop_with, lk_random_resized_crop_options, __VA_ARGS__, )

/* ---- Colours ---- */

typedef struct lk_grayscale_options {
    size_t struct_size;
    const char *key;
    int num_output_channels; /* 1 (default) or 3 */
} lk_grayscale_options;
/* 0.2989 r + 0.587 g + 0.114 b. A picture of one channel keeps its values. */
lk_transform *lk_grayscale_with(const lk_grayscale_options *options);
#define lk_grayscale(...) LK_CALL0_(lk_grayscale_with, lk_grayscale_options, __VA_ARGS__)

typedef struct lk_chance_options {
    size_t struct_size;
    const char *key;
    double p; /* how often; each function says its default */
} lk_chance_options;
/* Grey in all channels, with probability p; 0.1. */
lk_transform *lk_random_grayscale_with(const lk_chance_options *options);
#define lk_random_grayscale(...) LK_CALL0_(lk_random_grayscale_with, lk_chance_options, __VA_ARGS__)

typedef struct lk_color_jitter_options {
    size_t struct_size;
    const char *key;
    /* Each is drawn from a range. One number b means [max(0, 1 - b), 1 + b], for the hue [-b, b].
     * Two numbers are the range itself. */
    double brightness[2], contrast[2], saturation[2], hue[2];
} lk_color_jitter_options;
/* Changes the four properties in a random order. A picture of one channel has no saturation and no
 * hue to change. */
lk_transform *lk_color_jitter_with(const lk_color_jitter_options *options);
#define lk_color_jitter(...) LK_CALL0_(lk_color_jitter_with, lk_color_jitter_options, __VA_ARGS__)

/* 1 - x, with probability p; 0.5. */
lk_transform *lk_random_invert_with(const lk_chance_options *options);
#define lk_random_invert(...) LK_CALL0_(lk_random_invert_with, lk_chance_options, __VA_ARGS__)
/* Inverts the values of at least `threshold`, with probability p; 0.5. */
lk_transform *lk_random_solarize_with(double threshold, const lk_chance_options *options);
#define lk_random_solarize(...) LK_CALL1_(lk_random_solarize_with, lk_chance_options, __VA_ARGS__, )
/* Keeps `bits` bits of each value, taken as a byte, with probability p; 0.5. */
lk_transform *lk_random_posterize_with(int bits, const lk_chance_options *options);
#define lk_random_posterize(...) LK_CALL1_(lk_random_posterize_with, lk_chance_options, __VA_ARGS__, )
/* Stretches each channel to 0..1, with probability p; 0.5. */
lk_transform *lk_random_autocontrast_with(const lk_chance_options *options);
#define lk_random_autocontrast(...) LK_CALL0_(lk_random_autocontrast_with, lk_chance_options, __VA_ARGS__)

/* Makes all levels of a channel, taken as bytes, about equally frequent, at times: p is 0.5. */
lk_transform *lk_random_equalize_with(const lk_chance_options *options);
#define lk_random_equalize(...) LK_CALL0_(lk_random_equalize_with, lk_chance_options, __VA_ARGS__)
/* Blurs with a factor below 1 and sharpens above it, with probability p; 0.5. */
lk_transform *lk_random_adjust_sharpness_with(double sharpness_factor, const lk_chance_options *options);
#define lk_random_adjust_sharpness(...)                                                                      \
    LK_CALL1_(lk_random_adjust_sharpness_with, lk_chance_options, __VA_ARGS__, )

/* ---- Places ---- */

typedef struct lk_random_rotation_options {
    size_t struct_size;
    const char *key;
    const char *interpolation; /* "nearest" (default) or "bilinear" */
    /* The point that stays where it is, in pixels from the upper left corner. Default: the centre.
     * has_center says that the two numbers are meant. */
    double center_x, center_y;
    bool has_center;
    float fill; /* of what lies outside of the picture */
} lk_random_rotation_options;
/* Turns by an angle between `from` and `to`, in degrees, counter-clockwise. */
lk_transform *lk_random_rotation_with(double from, double to, const lk_random_rotation_options *options);
#define lk_random_rotation(...) LK_CALL2_(lk_random_rotation_with, lk_random_rotation_options, __VA_ARGS__, )

typedef struct lk_random_erasing_options {
    size_t struct_size;
    const char *key;
    double p;                      /* default 0.5 */
    double scale_min, scale_max;   /* of the area; 0.02 to 0.33 */
    double ratio_min, ratio_max;   /* height / width; 0.3 to 3.3 */
    float values[LK_MAX_CHANNELS]; /* what the rectangle becomes; zeros */
    int channels;                  /* number of values: one for all channels, or one each */
    bool random;                   /* normal random numbers instead of values */
} lk_random_erasing_options;
lk_transform *lk_random_erasing_with(const lk_random_erasing_options *options);
#define lk_random_erasing(...) LK_CALL0_(lk_random_erasing_with, lk_random_erasing_options, __VA_ARGS__)

typedef struct lk_gaussian_blur_options {
    size_t struct_size;
    const char *key;
    int64_t kernel_width;        /* odd; default: as the height */
    double sigma_min, sigma_max; /* 0.1 to 2; a minimum alone is the sigma */
} lk_gaussian_blur_options;
/* A Gaussian kernel of this odd height; edges are reflected. */
lk_transform *lk_gaussian_blur_with(int64_t kernel_height, const lk_gaussian_blur_options *options);
#define lk_gaussian_blur(...) LK_CALL1_(lk_gaussian_blur_with, lk_gaussian_blur_options, __VA_ARGS__, )

/* ---- Transforms of transforms ---- */

/* They own the transforms of the list, which must all change the same field. */

/* All of them, in order. */
lk_transform *lk_compose(lk_transform_list transforms);

typedef struct lk_random_apply_options {
    size_t struct_size;
    double p; /* default 0.5 */
} lk_random_apply_options;
/* All of them, in order, or none. Together they must keep the shape. */
lk_transform *lk_random_apply_with(lk_transform_list transforms, const lk_random_apply_options *options);
#define lk_random_apply(...) LK_CALL1_(lk_random_apply_with, lk_random_apply_options, __VA_ARGS__, )

typedef struct lk_random_choice_options {
    size_t struct_size;
    const double *p; /* a weight per transform, copied; default: all the same */
} lk_random_choice_options;
/* One of them. They must lead to the same shape. */
lk_transform *lk_random_choice_with(lk_transform_list transforms, const lk_random_choice_options *options);
#define lk_random_choice(...) LK_CALL1_(lk_random_choice_with, lk_random_choice_options, __VA_ARGS__, )

/* All of them, in a random order. Each must keep the shape. */
lk_transform *lk_random_order(lk_transform_list transforms);

/* ---- Random parts of a dataset ---- */

typedef struct lk_random_split_options {
    size_t struct_size;
    lk_generator *generator; /* borrowed; lk_default_generator() */
    uint64_t seed;           /* if not 0: a generator of its own with this seed */
} lk_random_split_options;
/* Splits a dataset into `count` parts without overlap, as torch.utils.data.random_split does: with
 * the same seed, the parts have the same samples. Lengths are whole numbers whose sum is the length
 * of the dataset, or fractions whose sum is 1. Writes the parts, which belong to the caller. Owns
 * the dataset. On failure no part is written. */
lk_status lk_random_split_with(lk_dataset *dataset, const double *lengths, int count, lk_dataset **parts,
                               const lk_random_split_options *options);
#define lk_random_split(...) LK_CALL4_(lk_random_split_with, lk_random_split_options, __VA_ARGS__, )

/* ---- Data sets ---- */

typedef struct lk_cifar_options {
    size_t struct_size;
    bool train;    /* the 50,000 training samples instead of the 10,000 others */
    bool download; /* downloads the archive of binary files if it is missing */
    bool coarse;   /* CIFAR-100: the 20 superclasses as targets */
} lk_cifar_options;
/* "features" (3, 32, 32) f32 in 0..1 and "targets" i64, with the names of the classes. The files of
 * the binary or of the Python version are searched for in root and in the folder that their archive
 * makes there: root/cifar-10-batches-bin, root/cifar-10-batches-py, root/cifar-100-binary,
 * root/cifar-100-python. In memory, pixels stay bytes. NULL with LK_ERR_NOT_FOUND if a file is
 * missing. */
lk_dataset *lk_cifar10_with(const char *root, const lk_cifar_options *options);
#define lk_cifar10(...) LK_CALL1_(lk_cifar10_with, lk_cifar_options, __VA_ARGS__, )
lk_dataset *lk_cifar100_with(const char *root, const lk_cifar_options *options);
#define lk_cifar100(...) LK_CALL1_(lk_cifar100_with, lk_cifar_options, __VA_ARGS__, )

/* As lk_mnist, with other pictures: clothes, and Japanese characters. The files are searched for in
 * root, root/NAME/raw, root/NAME and root/raw, where NAME is FashionMNIST or KMNIST.
 * .catalyst_scaling is refused. */
lk_dataset *lk_fashion_mnist_with(const char *root, const lk_mnist_options *options);
#define lk_fashion_mnist(...) LK_CALL1_(lk_fashion_mnist_with, lk_mnist_options, __VA_ARGS__, )
lk_dataset *lk_kmnist_with(const char *root, const lk_mnist_options *options);
#define lk_kmnist(...) LK_CALL1_(lk_kmnist_with, lk_mnist_options, __VA_ARGS__, )

typedef struct lk_movielens_options {
    size_t struct_size;
    bool train;        /* the ratings of ua.base instead of those of ua.test */
    double min_rating; /* lower ratings do not count */
} lk_movielens_options;
/* MovieLens-100K, a sample per user: "features" (items) f32 has the ratings of the user, 0 where
 * there is none, and "targets" (items) f32 is 1 where there is one. The files are searched for in
 * root, root/ml-100k and root/MovieLens/raw/ml-100k. NULL with LK_ERR_NOT_FOUND if one is missing.
 */
lk_dataset *lk_movielens_with(const char *root, const lk_movielens_options *options);
#define lk_movielens(...) LK_CALL1_(lk_movielens_with, lk_movielens_options, __VA_ARGS__, )

#ifdef __cplusplus
}
#endif
#endif
