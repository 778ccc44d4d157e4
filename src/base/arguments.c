#include "base/arguments.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

int lk_count_to_end(const void *items, size_t item_nbytes)
{
    for (int count = 0; items; count++) {
        const void *first;
        memcpy(&first, (const char *)items + (size_t)count * item_nbytes, sizeof first);
        if (first == LK_END) return count;
    }
    return 0;
}

bool lki_number_given(double argument)
{
    return argument != 0 || signbit(argument);
}

double lki_number_or(double argument, double standard)
{
    if (!lki_number_given(argument)) return standard;
    return argument != 0 ? argument : 0;
}

double lki_number_meant(double number)
{
    return number != 0 ? number : LK_ZERO;
}

lk_status lki_whole_or(double argument, int64_t standard, const char *owner, const char *name, int64_t *out)
{
    double limit = 9007199254740992; /* 2^53: above it a double skips whole numbers */
    if (!(fabs(argument) <= limit) || argument != trunc(argument))
        return lki_fail(LK_ERR_INVALID, "%s: %s: expected a whole number, found %g", owner, name, argument);
    *out = lki_number_given(argument) ? (int64_t)argument : standard;
    return LK_OK;
}
