/* The models of docs/performance.md and a clock, for the programs that time a step of them. */
#ifndef LK_BENCH_WORKLOADS_H
#define LK_BENCH_WORKLOADS_H

#include <lockstep/lockstep.h>

#include "models.h"

#include <time.h>

static inline double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#endif
