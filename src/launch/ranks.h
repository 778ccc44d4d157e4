/* Ranks forked on this host: the caller is one of them and looks after the others.
 *
 *     lki_ranks *ranks;
 *     LKI_TRY(lki_fork_ranks(&ranks, &role, nproc, &options));   // returns in every rank
 *     lk_status status = work();
 *     return lki_ranks_finish(ranks, status);                    // returns in the caller alone; the others
 * end here
 *
 * A thread in the caller passes on what the others write to stderr, keeps their last lines, and when one
 * fails stops the rest: they have a moment to end by themselves, then get SIGTERM, then SIGKILL. The kernel
 * kills them when the caller dies, whatever the way. They are in process groups of their own, so that Ctrl-C
 * is the caller's to handle.
 *
 * Fork from the main thread, before other threads exist and after the data sets do: ranks share their pages.
 */
#ifndef LKI_LAUNCH_RANKS_H
#define LKI_LAUNCH_RANKS_H

#include "launch/role.h"

#include <stddef.h>

typedef struct lki_ranks lki_ranks;

typedef struct lki_fork_options {
    bool no_pinning;
    bool no_memory;     /* do not make shared memory: the ranks are part of a larger job */
    size_t slot_nbytes; /* of the shared memory; 0: the default */
    int grace_ms; /* for the others to end by themselves after a failure; 0: 2 s. Then SIGTERM, 1 s later
                     SIGKILL */
} lki_fork_options;

/* `role` is the caller's: the ranks are role->rank .. role->rank + nproc - 1 of role->world_size, or of nproc
 * where that is
 * 1. Sets the process's role in every rank. nproc of 1 forks nobody. On failure nobody is left behind. */
lk_status lki_fork_ranks(lki_ranks **out, const lki_role *role, int nproc, const lki_fork_options *options);

/* Whether a forked rank has failed: a long computation may look at it. Any thread. False in the forked ranks.
 */
bool lki_ranks_failed(const lki_ranks *ranks);

/* The same of the ranks that this process has forked and not finished; false if there are none. */
bool lki_forked_rank_failed(void);

/* What the job came to. A forked rank reports its status and ends here. In the caller: waits for the others
 * and returns LK_OK, or the status and sentence of the first failure: "rank 2 on host (process 71) was killed
 * by signal 9 (Killed); last lines: ...". */
lk_status lki_ranks_finish(lki_ranks *ranks, lk_status status);

#endif
