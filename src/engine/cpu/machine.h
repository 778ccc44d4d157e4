/* What this machine can compute with. Instructions for bf16 are tried once per process, in a child process:
 * where they fault or compute something else, the level below is used. */
#ifndef LKI_CPU_MACHINE_H
#define LKI_CPU_MACHINE_H

#include "engine/cpu/bf16.h"
#include "engine/cpu_level.h"

/* The best level of this machine that is not above `highest`. Intel's vdpbf16ps takes two cycles, so f32 on
 * widened operands is faster there: without AMX, an Intel processor has avx512bf16 only if that is `highest`.
 */
lki_cpu_level lki_machine_level(lki_cpu_level highest);

/* The level's kernels for bf16; NULL where bf16 is widened. */
const lki_bf16_kernels *lki_bf16_kernels_of(lki_cpu_level level);

/* Whether a product by these kernels equals a plain one, in this process: what the trial asks in its child.
 */
bool lki_bf16_kernels_work(const lki_bf16_kernels *kernels);

#endif
