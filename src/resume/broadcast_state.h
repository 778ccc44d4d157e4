/* A checkpoint that rank 0 reads for all: the others need not have the file, and cannot have another one. */
#ifndef LKI_RESUME_BROADCAST_STATE_H
#define LKI_RESUME_BROADCAST_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

/* Collective in a run of several ranks. What rank 0 finds at `path`, on every rank; the caller's to free.
 * NULL with rank 0's sentence on every rank if it cannot be read. The other ranks' shares of a runner's state
 * ("rank.3") are empty where the run has as many ranks as it had: a rank needs its own alone. */
lk_state_dict *lki_load_on_all(lk_runner *runner, const char *path);

/* Collective: *value becomes rank 0's. */
lk_status lki_take_word_of_master(lk_runner *runner, int64_t *value);
/* The largest of all ranks' numbers. */
lk_status lki_take_word_of_any(lk_runner *runner, int64_t *value);

#endif
