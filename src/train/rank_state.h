/* What each rank has of its own inside an epoch: its share of the metrics, and the gradients it has
 * accumulated.
 *
 * Rank 0 writes the checkpoint; the others' share travels to it as bytes and lies there as "rank.<number>".
 * Between epochs all ranks hold the same, and there is nothing to gather. */
#ifndef LKI_TRAIN_RANK_STATE_H
#define LKI_TRAIN_RANK_STATE_H

#include "train/run.h"

/* Whether saving now is a matter of all ranks. */
bool lki_rank_state_is_needed(const lk_runner *runner);
/* Collective: every rank calls it, and every rank's share is in every state afterwards. */
lk_status lki_rank_state_put(lk_runner *runner, lk_state_dict *state);
/* Takes this rank's share out of a checkpoint, where there is one. */
lk_status lki_rank_state_get(lk_runner *runner, const lk_state_dict *state);
/* For a metric that is registered, or a step that is made, after the state was loaded. */
lk_status lki_rank_state_get_metric(lk_runner *runner, int index);
lk_status lki_rank_state_get_step(lk_runner *runner, lk_step *step, const char *key);

#endif
