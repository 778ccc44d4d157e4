/* Monotonic time, in the units that names carry. */
#ifndef LKI_BASE_CLOCK_H
#define LKI_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t lki_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline double lki_now_s(void)
{
    return (double)lki_now_ns() * 1e-9;
}

#endif
