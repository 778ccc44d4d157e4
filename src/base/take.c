#include "base/take.h"

#include "base/status.h"

#include <lockstep/version.h>

#include <stdbool.h>
#include <string.h>

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return false;
    return true;
}

lk_status lki_take_nbytes(void *own, size_t own_nbytes, const void *given, size_t given_nbytes,
                          const char *type)
{
    size_t known = given_nbytes < own_nbytes ? given_nbytes : own_nbytes;
    memset(own, 0, own_nbytes);
    memcpy(own, given, known);
    if (is_zero((const char *)given + known, given_nbytes - known)) return LK_OK;
    return lki_fail(
        LK_ERR_UNSUPPORTED,
        "%s: built for a newer lockstep: it sets a field that this one, " LK_VERSION ", does not know", type);
}

lk_status lki_take(void *own, size_t own_nbytes, const void *given, const char *type)
{
    size_t size = 0;
    memset(own, 0, own_nbytes);
    lk_status status = LK_OK;
    if (given) memcpy(&size, given, sizeof size);
    if (size >= sizeof size)
        status = lki_take_nbytes(own, own_nbytes, given, size, type);
    else if (given)
        status = lki_fail(LK_ERR_INVALID, "%s: struct_size is not set: begin with LK_SIZE(%s)", type, type);
    memcpy(own, &own_nbytes, sizeof own_nbytes);
    return status;
}

/* Before 1.0 each minor version may break what was built for another; from then on each major one. A later
 * library runs what was built for an earlier one of its series. */
static int series(int version)
{
    return version < 10000 ? version / 100 : version / 10000 * 10000;
}

lk_status lki_check_version(const char *what, int built_for)
{
    if (series(built_for) == series(LK_VERSION_NUMBER) && built_for / 100 <= LK_VERSION_NUMBER / 100)
        return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "%s: built for lockstep %d.%d.%d, but this is " LK_VERSION ": compile it again", what,
                    built_for / 10000, built_for / 100 % 100, built_for % 100);
}
