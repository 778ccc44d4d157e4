/* Linear layers over inputs that are mostly zeros: see kernels/sparse.h. Written digits are four fifths
 * background, and a product that skips it does a third of the work. Whether a batch is sparse enough is
 * counted at every run, which costs a few microseconds; the answer depends on the data alone, so results
 * repeat. */
#ifndef LKI_CPU_SPARSE_H
#define LKI_CPU_SPARSE_H

#include "engine/cpu/cpu.h"

/* Scratch for a layer of these sizes; 0 where the sparse way is never worth a try. */
size_t lki_cpu_sparse_scratch(const lki_cpu *cpu, int64_t m, int64_t n, int64_t k);

/* y = x w' (+ bias, relu); false: x is not sparse, nothing was done. */
bool lki_cpu_sparse_forward(lki_cpu *cpu, lki_sparse *s, const float *w, void *scratch);
/* dw = dy' x; false likewise. */
bool lki_cpu_sparse_gradient(lki_cpu *cpu, lki_sparse *s, void *scratch);

#endif
