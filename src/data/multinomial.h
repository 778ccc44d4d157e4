/* torch.multinomial on the CPU, number for number, for weights in doubles. */
#ifndef LKI_DATA_MULTINOMIAL_H
#define LKI_DATA_MULTINOMIAL_H

#include <lockstep/random.h>

/* Weights must be finite, not negative, and not all zero; without replacement, at least `draws` of them
 * positive. */
lk_status lki_multinomial_check(const double *weights, int64_t count, int64_t draws, bool replacement);

lk_status lki_multinomial(const double *weights, int64_t count, int64_t draws, bool replacement,
                          lk_generator *generator, int64_t *out);

#endif
