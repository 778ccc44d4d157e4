/* The arithmetic of the reductions: out = in[0] op in[1] op ... in that order, so that whoever computes it
 * gets the same bits. bf16 and f16 are summed in f32 and rounded once. Denormals count as zero, whatever mode
 * the calling thread is in: it may be within a step, which flushes them, or not. Vectorised for the processor
 * that runs it. */
#ifndef LKI_COMM_REDUCTION_H
#define LKI_COMM_REDUCTION_H

#include <lockstep/sys/comm.h>

#ifdef __cplusplus
extern "C" {
#endif

/* `out` may be one of the inputs. `divisor` is what AVG divides by; the other operations ignore it. */
void lki_reduce(void *out, const void *const *in, int in_count, int64_t count, lk_dtype dtype,
                lk_reduce reduce, int divisor);

/* data times 1/divisor, for the second half of an average that was summed elsewhere. Floats alone. */
void lki_scale(void *data, int64_t count, lk_dtype dtype, int divisor);

/* A copy past this core's caches, into memory that another one reads next. It is there before anything that
 * is written after it. */
void lki_stream(void *to, const void *from, size_t nbytes);

#ifdef __cplusplus
}
#endif
#endif
