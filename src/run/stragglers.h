/* Which rank kept the others waiting: a line at the end of a verbose run of several ranks. The rank that
 * waits least in collectives is the one for which the others wait. */
#ifndef LKI_RUN_STRAGGLERS_H
#define LKI_RUN_STRAGGLERS_H

#include <lockstep/runner.h>

/* Collective. Prints nothing on one rank, nor over a comm whose waits the host does not see (NCCL). */
lk_status lki_stragglers_report(lk_runner *runner);

#endif
