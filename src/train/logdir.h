/* A run's hold on its logdir; see logdir.c. */
#ifndef LKI_TRAIN_LOGDIR_H
#define LKI_TRAIN_LOGDIR_H

#include "train/run.h"

/* Takes the logdir for this run, on the master. LK_ERR_INVALID names the process that has it. */
lk_status lki_logdir_lock(lk_runner *runner);
/* Gives it back; harmless without a lock. */
void lki_logdir_unlock(lk_runner *runner);

/* Moves an earlier run's files to LOGDIR.1, .2, … when this run neither goes on with it nor overwrites it. On
 * the master, after what is resumed was loaded, before anything is written. */
lk_status lki_logdir_set_aside(lk_runner *runner);

#endif
