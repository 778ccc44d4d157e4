/* Fields inside: what the files of this part share. */
#ifndef LKI_DATA_FIELDS_H
#define LKI_DATA_FIELDS_H

#include <lockstep/fields.h>

/* A size of one to three axes, seen as three: missing axes come first and have one point. */
typedef struct lki_box {
    int dims;
    int64_t size[LK_MAX_SPATIAL];
} lki_box;

struct lk_fields {
    int dims;
    int64_t size[LK_MAX_SPATIAL]; /* of a whole field, after sampling */
    lk_tensor *features, *targets;
    lk_shape target_shape; /* of one sub-cube: (channels, cube...) */
};

/* How many of the sizes are given; fails where a 0 lies between them or one is negative. */
lk_status lki_count_dims(const int64_t *size, const char *what, int *dims);

lki_box lki_box_of(int dims, const int64_t *size);

/* Every how many points of each axis are taken to leave those of `to`; fails where that cannot be. */
lk_status lki_sample_steps(const lki_box *box, const lki_box *to, int64_t step[LK_MAX_SPATIAL]);

/* The sub-cubes in a box; fails where they do not divide it. */
lk_status lki_count_cubes(const lki_box *box, const lki_box *cube, int64_t *count);

/* Cuts some channels of one sample into sub-cubes that have `all_channels`: `cubes` is where the first of
 * them lies in the first sub-cube. */
void lki_cut_channels(float *cubes, const float *whole, int64_t channels, int64_t all_channels,
                      const lki_box *box, const lki_box *cube);

/* Sizes of `options` that make no sense for fields of so many dimensions, before anything is read. */
lk_status lki_check_field_options(const lk_fields_options *options, int dims);
/* The sub-cube that the options ask for in a field of this size: the whole field where it is not cut. */
lk_status lki_choose_cube(int dims, const int64_t *size, const lk_fields_options *options, int64_t *cube);

/* Puts the first file of a template and its array in front of the current error: what could not be cut. */
void lki_fields_fail_at(const char *path_template, const lk_fields_options *options);

/* The last `dims` axes of a tensor, the number of samples and of channels before them. */
lk_status lki_field_axes(const lk_tensor *field, int dims, lki_box *box, int64_t *samples, int64_t *channels);

/* What a mode is multiplied by: k holds its place along each axis, from 0 to size - 1. */
typedef void (*lki_fft_factor)(const int64_t k[LK_MAX_SPATIAL], double factor[2], void *context);

/* Transforms each of `rows` arrays (box) of f64, multiplies every mode and transforms back, in place. The
 * factors of k and -k must be conjugates: the result is real. */
lk_status lki_fft_multiply(double *values, int64_t rows, const lki_box *box, lki_fft_factor factor,
                           void *context);

/* |transform|^2 / points^2 of one real array (box), added to `power`: every mode, in the order of the points.
 */
lk_status lki_fft_add_power(double *power, const double *values, const lki_box *box);

/* The wave number of place k of an axis: -n/2 < result <= n/2. */
static inline int64_t lki_wave_number(int64_t k, int64_t n)
{
    return k <= n / 2 ? k : k - n;
}

#endif
