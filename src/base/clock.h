/* Monotonic time, and the time of day, in the units that names carry. */
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

/* Seconds since the epoch, as logs have them. */
static inline double lki_wall_time_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* A count that goes on with time, at a rate that who reports it finds out by the clock. Where the processor
 * has a counter of its own it takes half as long to read, which shows where what is timed takes half a
 * microsecond. */
static inline uint64_t lki_now_ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return (uint64_t)lki_now_ns();
#endif
}

/* A wait that takes longer than it was to by more than this: the process was stopped meanwhile, and deadlines
 * do not count that time. */
#define LKI_STOPPED_NS 2000000000LL

static inline double lki_now_s(void)
{
    return (double)lki_now_ns() * 1e-9;
}

#endif
