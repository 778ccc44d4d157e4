/* A run whose global batches are made of a fixed number of shards, whatever the number of ranks: see
 * step/shards.h. Here is who has which of them, and what such a run cannot do. */
#ifndef LKI_RUN_SHARDS_H
#define LKI_RUN_SHARDS_H

#include <lockstep/metric.h>
#include <lockstep/runner.h>

/* What the run was asked for; 0: a rank is a shard. */
int lki_run_shards(const lk_runner *runner);
/* Shares of the data that a loader is dealt out in: the shards, or the ranks of a run without. */
int lki_run_share_count(const lk_runner *runner);
/* How many of them each rank has. */
int lki_run_own_share_count(const lk_runner *runner);
/* Whether ranks have to go together through what one rank alone might do otherwise. */
bool lki_run_is_shared(const lk_runner *runner);

/* What every rank knows before there are ranks, and what is known once they are connected and the engine is
 * open. Both fail in one line. */
lk_status lki_check_shards(const lk_train_options *options);
lk_status lki_run_check_shards(const lk_runner *runner);

/* The options of a pass of rank `rank`, for a loader that is told how many shares it takes. */
lk_pass_options lki_run_pass_of(const lk_runner *runner, int rank, bool train);

/* For a step that was just made; and whether one was made for the shards of this run. */
bool lki_run_has_its_shards(const lk_runner *runner, const lk_step *step);
lk_status lki_run_shard_step(const lk_runner *runner, lk_step *step);
/* Tells the runner's step where the shards lie in the batch that the loader has handed out. */
lk_status lki_run_place_shards(lk_runner *runner, const lk_batch *batch);
/* Adds a number of the step's last batch, whose mean over the shards is `value`, to a mean metric, shard by
 * shard. *done: it was one. */
lk_status lki_run_add_shards(lk_runner *runner, const char *name, double value, lk_metric *metric,
                             bool *done);

#endif
