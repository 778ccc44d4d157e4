/* What the rest of the library asks about a generator. */
#ifndef LKI_TENSOR_RANDOM_H
#define LKI_TENSOR_RANDOM_H

#include <lockstep/random.h>

/* Fails where these bytes, which `what` names, are no generator's: words would be read from beside its state.
 */
lk_status lki_generator_check(const lk_generator *generator, const char *what);

#endif
