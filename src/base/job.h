/* What can be known of the job before anybody joins it: whether processes like this one were started beside
 * it on this host. Ranks that are forked later do not count. Any thread. */
#ifndef LKI_BASE_JOB_H
#define LKI_BASE_JOB_H

#include <stdbool.h>

/* The environment of Slurm, MPI and launchers of PyTorch's kind says so, or lki_job_expect_others has been
 * called. Where it is not sure, true. */
bool lki_job_has_others(void);

/* Flags of the command line have said so. */
void lki_job_expect_others(void);

#endif
