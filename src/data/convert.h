/* Values of one dtype as another, checked: a value that the other dtype cannot hold is found, never changed
 * in silence.
 *
 * Floats round to a narrower float as NumPy's astype does, and integers to a float likewise. A finite value
 * that would become infinite, a fraction that should become an integer, and an integer out of range are bad.
 * Any thread. */
#ifndef LKI_DATA_CONVERT_H
#define LKI_DATA_CONVERT_H

#include <lockstep/tensor.h>

/* Converts `count` elements and returns the position of the first bad one, or -1. The arrays do not overlap.
 */
int64_t lki_convert(void *out, lk_dtype to, const void *in, lk_dtype from, int64_t count);

/* LK_ERR_RANGE with a sentence about element `position` of `in`, which lki_convert found bad. `sample` is its
 * row. */
lk_status lki_convert_fail(const char *field, int64_t sample, lk_dtype to, const void *in, lk_dtype from,
                           int64_t position);

/* NumPy's name of a dtype, "float32"; "bfloat16" is PyTorch's. */
const char *lki_dtype_long_name(lk_dtype dtype);

#endif
