/* The profile of a run: what the first batches of an epoch, the first one unless a callback wishes for
 * another, did when, on every rank.
 *
 * begin makes a trace (base/trace.h) before that epoch, and end writes it to LOGDIR/trace.json after it, with
 * those of all ranks on rank 0's clock; in between, next_batch stops tracing once a loader has had its
 * batches. From then on a profiled run is like any other. All ranks call begin and end together. A summary
 * goes to LOGDIR/profile.txt and is printed when the run ends. */
#ifndef LKI_RUN_PROFILE_H
#define LKI_RUN_PROFILE_H

#include <lockstep/runner.h>

#include "base/trace.h"

typedef struct lki_profile {
    lki_trace *trace;               /* NULL: nothing is traced, or no more */
    int64_t offset_ns;              /* from this rank's clock to rank 0's */
    int64_t origin_ns;              /* of the trace, on rank 0's clock */
    int batches_left;               /* of this pass */
    int64_t traced, seen;           /* train batches of the epoch that is traced */
    int64_t evaluated, evaluations; /* the other loaders' */
    char *summary;                  /* on rank 0 */
    bool was_begun;                 /* a run has one trace */
    struct {
        bool given;             /* by a ProfilerCallback */
        int64_t epoch;          /* counts from 1 */
        const char *loader_key; /* borrowed; NULL: all loaders */
        const char *path;       /* borrowed; NULL: LOGDIR/trace.json */
    } wish;
} lki_profile;

/* The path of the trace, which the caller frees; NULL if memory runs out. */
char *lki_profile_path(const lk_runner *runner);

/* Before each epoch. */
lk_status lki_profile_begin(lk_runner *runner);
lk_status lki_profile_end(lk_runner *runner);
void lki_profile_begin_pass(lk_runner *runner);
void lki_profile_end_pass(lk_runner *runner);
/* Before each batch while there is a trace. */
void lki_profile_next_batch(lk_runner *runner);
void lki_profile_print(const lk_runner *runner);
void lki_profile_drop_trace(lki_profile *profile);
void lki_profile_fini(lki_profile *profile);

#endif
