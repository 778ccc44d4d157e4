/* Golden numbers: files that tests/oracle/nn_parity.py wrote, and comparisons with them.
 *
 * The folder is tests/golden, or what the environment variable LOCKSTEP_GOLDEN names: the live comparison
 * writes fresh ones elsewhere. */
#ifndef LKT_GOLDEN_H
#define LKT_GOLDEN_H

#include <lockstep/tensor.h>

typedef struct lkt_golden lkt_golden;

/* Fails the test where the file is missing or malformed. */
lkt_golden *lkt_golden_open(const char *name);
void lkt_golden_free(lkt_golden *golden);
/* NULL where there is none. */
const lk_tensor *lkt_golden_find(const lkt_golden *golden, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Fails the test where there is none. */
const lk_tensor *lkt_golden_get(const lkt_golden *golden, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
int lkt_golden_count(const lkt_golden *golden);
const char *lkt_golden_name(const lkt_golden *golden, int index);

double lkt_largest(const lk_tensor *tensor);
/* The same dtype, shape and bits. */
void lkt_same_bits(const lk_tensor *actual, const lk_tensor *expected, const char *what);
/* |a - e| <= tolerance * max(|e|, scale), element by element. */
void lkt_near(const lk_tensor *actual, const lk_tensor *expected, double scale, double tolerance,
              const char *what);

#endif
