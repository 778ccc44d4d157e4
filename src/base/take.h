/* Structs that a program built for another version may hand over: options and ops, which begin with their
 * size
 * (<lockstep/sized.h>). The library never reads them in place. It takes a copy that is as large as its own
 * headers say, with zeros for the fields that the program did not have. */
#ifndef LKI_BASE_TAKE_H
#define LKI_BASE_TAKE_H

#include <lockstep/sized.h>
#include <lockstep/status.h>

/* Copies `given`, a `type`, into `own`, which has own_nbytes. NULL gives zeros. LK_ERR_INVALID if struct_size
 * is missing, LK_ERR_UNSUPPORTED if a field that this library does not know is set; `own` then holds the
 * fields that are known, so that what was handed over can be freed. */
lk_status lki_take(void *own, size_t own_nbytes, const void *given, const char *type);

/* The same for a struct of given_nbytes that does not begin with its size. */
lk_status lki_take_nbytes(void *own, size_t own_nbytes, const void *given, size_t given_nbytes,
                          const char *type);

/* Declares `name`, a copy of the caller's `given`, or returns `failure` from the function that it is in. */
#define LKI_TAKE(type, name, given, failure)                                                                 \
    type name;                                                                                               \
    if (lki_take(&name, sizeof name, (given), #type) != LK_OK) return failure

/* Whether a part that was compiled for version `built_for` (LK_VERSION_NUMBER) can be loaded by this library.
 * LK_ERR_UNSUPPORTED with a sentence that begins with `what`. */
lk_status lki_check_version(const char *what, int built_for);

#endif
