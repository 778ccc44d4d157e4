#include "metric/moments.h"

#include <math.h>

double lki_moments_mean(const lki_moments *moments)
{
    return moments->count > 0 ? moments->mean : NAN;
}

double lki_moments_std(const lki_moments *moments)
{
    if (moments->count <= 0) return NAN;
    return moments->count > 1 ? sqrt(moments->squares / (moments->count - 1)) : 0;
}
