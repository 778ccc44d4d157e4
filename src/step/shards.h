/* A global batch that is computed as a fixed number of shards, on any number of ranks that divides it.
 *
 * A rank has `own` neighbouring shards and replays its plan for each of them, with the inputs that the rank
 * of that number would have among `total` ranks, from the same state of the generator. Gradients are added by
 * one binary tree over all shards, whose lower part lies within a rank and whose upper part lies between the
 * ranks: the sum has the same bits whatever the number of ranks. Running statistics are those of shard 0, as
 * they are rank 0's without shards. On the host only. One thread. */
#ifndef LKI_STEP_SHARDS_H
#define LKI_STEP_SHARDS_H

#include <lockstep/step.h>

#include "data/batch_share.h"

#include <stdbool.h>

/* 2^LKI_SHARD_LEVELS shards at most. Loops are cut into LKI_SHARD_LANES chunks on any number of threads. */
enum { LKI_SHARD_LEVELS = 10, LKI_SHARD_LANES = 8 };

/* An output of all of the rank's shards. */
typedef struct lki_shard_output {
    lk_tensor *tensor; /* the shards' rows in the batch's order; of one number each, the mean */
    double *values;    /* (own) of each shard, where it is one number */
    bool is_number;
} lki_shard_output;

typedef struct lki_shards {
    int total, own;          /* 0: the step knows no shards */
    lki_batch_share *places; /* (own) of the batch that comes next, or is under way */
    bool is_placed;          /* places are those of the batch that comes next */
    bool has_batch;          /* the step's current batch is made of shards */

    lk_input *fields; /* (field_count) of that batch, borrowed */
    int field_count;
    bool training;
    lk_tensor *views;  /* (field_count) of one shard's rows */
    void **copies;     /* (field_count) of rows that could not stay where they are; NULL: none yet */
    size_t *copy_room; /* (field_count) bytes */

    double *losses, *all_losses; /* (own), (total) */
    bool has_loss;
    lki_shard_output *outputs;
    int output_count;

    void *sums[LKI_SHARD_LEVELS]; /* of 1, 2, 4 ... shards, that wait for their neighbours' */
    void *gathered;               /* a piece of all ranks' gradients, for comms without a window */
    void *buffers;                /* the model's before the batch, then after the first shard */
    size_t buffers_nbytes;
} lki_shards;

static inline bool lki_shards_are_on(const lki_shards *shards)
{
    return shards->total > 1;
}

/* For a step that has not begun a batch yet; `total` is a power of two that the step's ranks divide. */
lk_status lki_shards_init(lk_step *step, int total, int world_size);
void lki_shards_fini(lki_shards *shards);

/* Where the next batch's shards lie in its fields; (own) of them. */
void lki_shards_place(lk_step *step, const lki_batch_share *places);

/* Instead of beginning, running and averaging one batch. lki_shards_run also goes backward. */
lk_status lki_shards_begin(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lki_shards_run(lk_step *step);
lk_status lki_shards_average(lk_step *step);

const lk_tensor *lki_shards_output(lk_step *step, const char *name);
/* What a shard of the last batch says of a number: its loss, or an output of one number. False: nothing. */
bool lki_shards_number(lk_step *step, const char *name, int shard, double *out);

/* shard_tree.c's. Adds shard `index`'s gradients, which are in the step's, to those before it; after the last
 * of the rank's shards the step's are the sum of all. */
lk_status lki_shards_add(lk_step *step, int index);
/* The mean over all shards of all ranks, in the step's gradients. */
lk_status lki_shards_reduce(lk_step *step);

#endif
