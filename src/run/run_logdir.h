/* A run's hold on its logdir; see run_logdir.c. */
#ifndef LKI_RUN_RUN_LOGDIR_H
#define LKI_RUN_RUN_LOGDIR_H

#include <lockstep/runner.h>

/* Takes a logdir, which is made when it is not there. *lock is what lki_logdir_unlock takes; it stays as it
 * is when the file system has no locks. LK_ERR_INVALID names the process that has the logdir. On the master.
 */
lk_status lki_logdir_lock(const char *logdir, int *lock);
/* Gives it back; harmless when *lock is -1, which it is afterwards. */
void lki_logdir_unlock(const char *logdir, int *lock);

/* Moves an earlier run's files to LOGDIR.1, .2, … when this run neither goes on with it nor overwrites it. On
 * the master, after what is resumed was loaded, before anything is written. */
lk_status lki_logdir_set_aside(lk_runner *runner, const char *logdir);

#endif
