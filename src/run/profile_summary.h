/* What a trace says in a few lines: where a training step's time goes, on all ranks, the ten most expensive
 * ops of rank 0 beside what the machine could do, and what to try. */
#ifndef LKI_RUN_PROFILE_SUMMARY_H
#define LKI_RUN_PROFILE_SUMMARY_H

#include <lockstep/runner.h>

/* All ranks together, after lki_trace_sort. On rank 0 it writes LOGDIR/profile.txt and returns the text, to
 * be freed with lki_free; elsewhere *out is NULL. */
lk_status lki_profile_summarize(lk_runner *runner, char **out);

#endif
