/* Inside of a transform: one function over options, for a sample's field or for a batch.
 *
 * A transform is immutable and may be used from many threads. Random numbers come from an lki_keyed
 * generator, keyed by (seed, epoch, sample index, position of the transform), never from a shared state. */
#ifndef LKI_DATA_TRANSFORM_H
#define LKI_DATA_TRANSFORM_H

#include <lockstep/vision.h>

#include "data/keyed.h"
#include "data/resize.h"

/* One sample's field on its way: data (shape) of dtype. */
typedef struct lki_sample {
    lk_dtype dtype;
    lk_shape shape;
    void *data;
} lki_sample;

struct lk_transform {
    const char *kind; /* "random_crop", for messages */
    char *key;        /* the field; NULL for a transform of batches */

    /* For samples: what the field becomes; LK_ERR_SHAPE or LK_ERR_DTYPE where the transform does not fit it.
     */
    lk_status (*plan)(const lk_transform *self, const lk_field *in, lk_field *out);
    /* From one scratch buffer into another; shapes and dtypes are the planned ones. */
    lk_status (*apply)(const lk_transform *self, const lki_sample *in, lki_sample *out, lki_keyed *random);

    /* For batches: checks the fields; changes the batch in place. */
    lk_status (*check_batch)(const lk_transform *self, const lk_dataset *dataset);
    lk_status (*apply_batch)(const lk_transform *self, lk_batch *batch, lki_keyed *random);
    /* Optional: the fields that it adds to a batch, at most `capacity`, and their number. Their names are the
     * transform's. */
    int (*added_fields)(const lk_transform *self, const lk_dataset *dataset, lk_field *out, int capacity);
    bool reshapes; /* it changes the shape of the batch: ranks cannot share one */

    union {
        lk_normalize_options normalize;
        lk_random_crop_options crop;
        lk_flip_options flip;
        lk_random_affine_options affine;
        lk_cutout_options cutout;
        lk_mix_options mix;
        lk_resize_options resize;
        lk_center_crop_options center;
        lk_pad_picture_options pad;
        lk_random_resized_crop_options part;
        lk_grayscale_options grey;
        lk_chance_options chance;
        lk_color_jitter_options jitter;
        lk_random_rotation_options rotation;
        lk_random_erasing_options erasing;
        lk_gaussian_blur_options blur;
        lk_random_apply_options several;
        lk_pad_collate_options collate;
    } options;
    char *masks[LK_MAX_FIELDS], *lengths[LK_MAX_FIELDS]; /* pad_collate's names, per key */
    int64_t size;                                        /* crop's height, cutout's side, one-hot's classes */
    double range[2];                                     /* of angles; a threshold */
    lki_interpolation interpolation;

    /* Of a transform of transforms: those that it owns, and the weight of each where they have one. */
    lk_transform **children;
    double *weights;
    int child_count;
};

/* A transform of samples with a key (default_key where NULL). */
lk_transform *lki_transform_create(const char *kind, const char *key, const char *default_key);

/* The same for pictures that keep their shape, with the key "features". */
lk_transform *lki_picture_transform(const char *kind, const char *key);

/* LK_ERR_INVALID, unless it is a probability, or a finite number. `kind` and `what` name it. */
lk_status lki_check_chance(const char *kind, double p);
lk_status lki_check_finite(const char *kind, const char *what, double value);

/* Evenly from [low, high). */
static inline double lki_keyed_between(lki_keyed *random, double low, double high)
{
    return low + (high - low) * lki_keyed_f64(random);
}

/* Whether what happens with probability p happens. */
static inline bool lki_keyed_chance(lki_keyed *random, double p)
{
    return lki_keyed_f64(random) < p;
}

/* A normal random number, of two even ones. */
double lki_keyed_normal(lki_keyed *random);

/* LK_OK for a field of f32 pictures (C, H, W): what the geometric transforms take. */
lk_status lki_transform_check_picture(const lk_transform *transform, const lk_field *field);

/* A pixel of a plane at a place between pixels; what lies outside is `fill`. */
float lki_pixel_bilinear(const float *plane, int64_t height, int64_t width, double y, double x, float fill);

/* Output pixel (x, y), counted from the centre, reads input pixel (m[0] x + m[1] y + m[2], m[3] x + m[4] y +
 * m[5]), counted likewise, bilinearly; what lies outside is `fill`. Pictures are (channels, height, width).
 */
void lki_affine_picture(const float *in, float *out, int64_t channels, int64_t height, int64_t width,
                        const double m[6], float fill);

lk_status lki_transform_check_batch(const lk_transform *transform, const lk_dataset *dataset);
int lki_transform_added_fields(const lk_transform *transform, const lk_dataset *dataset, lk_field *out,
                               int capacity);
lk_status lki_transform_apply_batch(const lk_transform *transform, const lk_pass *pass, lk_batch *batch);

#endif
