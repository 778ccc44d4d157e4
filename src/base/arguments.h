/* What named arguments mean to the functions that take them: zero stands for the default, LK_ZERO for a zero
 * that is meant. Pure functions, for any thread. */
#ifndef LKI_BASE_ARGUMENTS_H
#define LKI_BASE_ARGUMENTS_H

#include <lockstep/arguments.h>
#include <lockstep/status.h>

#include <stdbool.h>

/* Whether the argument is anything but a plain zero. */
bool lki_number_given(double argument);

/* The argument, or `standard` if it is a plain zero; LK_ZERO gives 0. */
double lki_number_or(double argument, double standard);

/* What to pass on for a number that was read elsewhere, from a config say, and is meant even if it is 0. */
double lki_number_meant(double number);

/* The same as lki_number_or for a whole number, such as an index. LK_ERR_INVALID names the owner and the
 * argument if the number has a fraction or is too large: "Flatten: start_dim: expected a whole number". */
lk_status lki_whole_or(double argument, int64_t standard, const char *owner, const char *name, int64_t *out);

#endif
