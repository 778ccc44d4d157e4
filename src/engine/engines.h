/* The engines that this build can have. engine.c lists those that were linked; each lives in its own folder.
 */
#ifndef LKI_ENGINE_ENGINES_H
#define LKI_ENGINE_ENGINES_H

#include <lockstep/sys/engine.h>

/* Plain C, every op, every float dtype: the oracle that the others are tested against. */
extern const lk_engine_ops lki_ref_engine_ops;

/* Threads and vector kernels for the host's processor. */
extern const lk_engine_ops lki_cpu_engine_ops;

/* What lk_engine_ops.kernels of a cpu engine says, for one that computes in f32 or f64 alone: the
 * instructions for bf16 are not tried. */
const char *lki_cpu_f32_kernels(const lk_engine *engine);

#endif
