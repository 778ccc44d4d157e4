/* lki_error of base/status.h. Plug-ins have a copy of this file. */
#define _POSIX_C_SOURCE 200809L /* strnlen */
#include "base/status.h"

#include <string.h>

lk_status lki_error_keep(lki_error *error, lk_status status)
{
    if (status == LK_OK || error->status != LK_OK) return status;
    const char *sentence = lk_error();
    size_t length = strnlen(sentence, sizeof error->sentence - 1);
    error->status = status;
    memcpy(error->sentence, sentence, length);
    error->sentence[length] = '\0';
    return status;
}

lk_status lki_error_restore(const lki_error *error)
{
    return error->status == LK_OK ? LK_OK : lki_fail(error->status, "%s", error->sentence);
}
