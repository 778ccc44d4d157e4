/* The order of one pass: which samples, in which order, this rank sees. PyTorch's, number for number:
 * sequential, or a permutation as RandomSampler's, or a share of one as DistributedSampler's. */
#ifndef LKI_DATA_ORDER_H
#define LKI_DATA_ORDER_H

#include "data/sampler.h"

typedef struct lki_order {
    int64_t length;      /* of the dataset */
    lk_sampler *sampler; /* NULL: 0..length-1, shuffled or not */
    bool shuffle, no_shuffle;
    uint64_t seed; /* of a distributed order, together with the epoch */
    int64_t epoch;
    int rank, world;
    bool train;
} lki_order;

/* The samples of this rank and of all ranks, before anything is drawn. */
void lki_order_size(const lki_order *order, int64_t *mine, int64_t *total);

/* The indices that lki_order_draw may write. */
int64_t lki_order_room(const lki_order *order);

/* `is_users` says that the generator was given for this loader: RandomSampler then permutes with it directly.
 * The last *padding of the indices repeat others, so that all ranks have as many. */
lk_status lki_order_draw(const lki_order *order, lk_generator *generator, bool is_users, int64_t *indices,
                         int64_t *count, int64_t *padding);

#endif
