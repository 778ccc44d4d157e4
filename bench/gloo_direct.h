/* Gloo without us, for bench_comm. Without Gloo, connecting gives NULL. */
#ifndef BENCH_GLOO_DIRECT_H
#define BENCH_GLOO_DIRECT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `folder` is empty and shared by the ranks. The context lives until the process ends. */
void *gloo_direct_connect(int rank, int size, const char *folder);
int gloo_direct_reduce(void *context, float *data, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
