/* The ring: a few batch slots that are filled again and again, by worker threads ahead of the reader or by
 * the reader itself where there are none.
 *
 * All slots lie in one block, so that an engine can pin it. In the steady state nothing is allocated. A ring
 * belongs to the thread that reads it; workers start when the ring is created, so create it after a fork. */
#ifndef LKI_DATA_RING_H
#define LKI_DATA_RING_H

#include <lockstep/data.h>

#include "data/batch_share.h"

typedef struct lki_ring lki_ring;

typedef struct lki_ring_setup {
    const lk_dataset *dataset; /* borrowed */
    int64_t batch_size;        /* of one rank */
    int share_count;           /* ranks whose samples a batch holds */
    int worker_count, slot_count;
    bool raw;
    bool defer; /* leave large fields that lie in memory to whoever reads the batch: lk_batch_field.rows */
    lk_transform_list transforms;    /* borrowed: act on whole batches */
    const struct lki_stream *stream; /* what the dataset reads; NULL: samples have numbers */
    bool drop_last;                  /* of a stream; else the pass says how many batches there are */
} lki_ring_setup;

/* Asks all ranks for the most samples that one of them has for this batch. */
typedef lk_status (*lki_ring_agree)(void *context, int64_t own, int64_t *most);

/* The batches of one pass: indices[0..index_count) cut into batches; borrowed until the next start or stop.
 */
typedef struct lki_ring_pass {
    lk_pass pass;
    const int64_t *indices;
    int64_t index_count, batch_count;
    int64_t padded_from;              /* the indices from here on repeat others: lk_batch.padding */
    const lki_pass_share *shares;     /* (share_count); NULL with one */
    struct lki_stream_reader *reader; /* of a stream, at the first batch; borrowed. There are no indices. */
    int rank, world;                  /* of a stream: they number the samples */
    lki_ring_agree agree;             /* of a stream: NULL where each rank ends by itself */
    void *agree_context;
} lki_ring_pass;

lk_status lki_ring_create(lki_ring **out, const lki_ring_setup *setup);
void lki_ring_free(lki_ring *ring);

/* True in a process that was forked after the ring was created: its workers are not here, so free it and make
 * another. */
bool lki_ring_is_inherited(const lki_ring *ring);

/* Starts at batch `first`; whatever ran before is dropped. */
void lki_ring_start(lki_ring *ring, const lki_ring_pass *pass, int64_t first);
void lki_ring_stop(lki_ring *ring);

/* The next batch, or NULL after the last. The batch before stays as it is until the next call, the one before
 * that becomes free to be overwritten. Needs at least two slots. */
lk_status lki_ring_next(lki_ring *ring, lk_batch **out);

/* The block that all slots lie in. */
void lki_ring_memory(const lki_ring *ring, void **data, size_t *nbytes);

#endif
