/* Included before every file that clang-tidy reads. The analyser sees one file at a time: this tells it that a failure never
 * looks like success. */
#include "base/status.h"

#define lki_fail(status, ...)        ((void)lki_fail((status), __VA_ARGS__), (status))
#define lki_fail_null(status, ...)   ((void)lki_fail_null((status), __VA_ARGS__), (void *)0)
#define lki_fail_prefix(status, ...) ((void)lki_fail_prefix((status), __VA_ARGS__), (status))
#define lki_last_status()            (lki_last_status() ? lki_last_status() : LK_ERR_INVALID)
