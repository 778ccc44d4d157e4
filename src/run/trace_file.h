/* LOGDIR/trace.json: the traces of all ranks in the format of Chrome's trace viewer, which Perfetto reads:
 * one process per rank, complete events ("X") sorted by their begin, times in microseconds. All ranks call
 * it; rank 0 writes, and holds no more than a piece of another rank's trace at a time. */
#ifndef LKI_RUN_TRACE_FILE_H
#define LKI_RUN_TRACE_FILE_H

#include <lockstep/runner.h>

#include "base/trace.h"

lk_status lki_trace_file_write(lk_runner *runner);

/* Sorts the spans so that each comes after the one that it lies in. */
void lki_trace_sort(lki_trace *trace);

#endif
