/* The ops of a step one by one: what each call takes beside what it would take at the machine's roofline, and
 * which values fill the memory at its peak. */
#ifndef LKI_CLI_BENCH_STEP_OPS_H
#define LKI_CLI_BENCH_STEP_OPS_H

#include <lockstep/step.h>

#include "base/trace.h"
#include "run/roofline.h"

/* One call of the plan, or of the update. */
typedef struct lki_op_time {
    const char *op;       /* static */
    char *layer;          /* "layer 1 (Linear)", or NULL */
    lki_trace_kind part;  /* forward, criterion, backward or update */
    double best_s;        /* of many replays */
    double nbytes;        /* of its operands; below 0: not known */
    double roof_s;        /* what its work takes at least; below 0: not known */
    const char *limit;    /* "memory" or "compute": what that is limited by */
    const char *fallback; /* why a plain kernel computes it, or NULL */
} lki_op_time;

/* One op's share of the bytes in use at the peak. */
typedef struct lki_op_memory {
    const char *op;
    char *largest_layer; /* of the largest of its values, or NULL */
    size_t nbytes, largest_nbytes;
    int value_count;
} lki_op_memory;

/* Zero is none; lki_step_ops_fini frees. */
typedef struct lki_step_ops {
    lki_op_time *times; /* the slowest first */
    int time_count;
    lki_op_memory *memory; /* the largest first */
    int memory_count;
    size_t peak_nbytes, arena_nbytes, scratch_nbytes, param_nbytes, state_nbytes;
    char *peak_layer; /* of the call at the peak, or NULL */
    const char *peak_op, *peak_part;
} lki_step_ops;

/* The best time of each call of the step, whose batch was seen before, in a trace of about `seconds`. *trace
 * has a site for each time; both are the caller's (lki_free, lki_trace_free). */
lk_status lki_time_calls(lk_step *step, double seconds, lki_trace **trace, double **best_s);

/* Looks at the step on the training batch that it has seen last. On a device calls are not timed: times is
 * then empty. The weights are moved by it. */
lk_status lki_step_ops_measure(lki_step_ops *out, lk_step *step, double seconds);
/* The same with a roofline of the step's engine, which remembers what it has measured. */
lk_status lki_step_ops_measure_with(lki_step_ops *out, lk_step *step, double seconds, lki_roofline *roofline);
void lki_step_ops_fini(lki_step_ops *ops);

#endif
