/* What each rank has of its own: the gradients that it has accumulated and not used, what compression has
 * left out of its gradients, and inside an epoch its share of the metrics.
 *
 * Rank 0 writes the checkpoint; the others' share travels to it as bytes and lies there as "rank.<number>".
 * Where all ranks hold the same there is nothing to gather.
 *
 * With shards, any number of ranks may go on inside an epoch: each takes the shares of those whose first
 * shard it has, and adds them up. */
#ifndef LKI_RESUME_RANK_STATE_H
#define LKI_RESUME_RANK_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/runner.h>

/* Whether saving now is a matter of all ranks. All of them say the same. */
bool lki_rank_state_is_needed(const lk_runner *runner);
/* Collective: every rank calls it, and every rank's share is in every state afterwards. */
lk_status lki_rank_state_save(lk_runner *runner, lk_state_dict *state);
/* Takes this rank's share out of a checkpoint, where there is one; its part of all shares where there were
 * other ranks. */
lk_status lki_rank_state_restore(lk_runner *runner, const lk_state_dict *state);
/* For a metric that is registered, or a step that is made, after the state was loaded. */
lk_status lki_rank_state_restore_metric(lk_runner *runner, int index);
lk_status lki_rank_state_restore_step(lk_runner *runner, lk_step *step, const char *key);

#endif
