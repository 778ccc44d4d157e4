/* Calls as places of a trace (base/trace.h): what they are called, and what they cost at least. */
#ifndef LKI_GRAPH_TRACE_CALLS_H
#define LKI_GRAPH_TRACE_CALLS_H

#include "base/trace.h"

#include <lockstep/sys/engine.h>

/* The work of a call by its shapes: the multiplications and additions of a product or a convolution, 0 for
 * ops whose arithmetic is slight, and the bytes of its operands, each counted once per reading and writing.
 * Both are -1 for ops whose traffic the data decides, and for those between ranks. Kernels may do with less:
 * they skip zeros, and convolve by Winograd's method. */
void lki_call_work(const lk_call *call, double *flops, double *nbytes);

/* The call as a new site; -1 if there is no memory. `where` may be NULL. */
int lki_trace_add_call(lki_trace *trace, lki_trace_kind kind, const lk_call *call, const char *where);

#endif
