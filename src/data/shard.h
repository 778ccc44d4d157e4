/* Sharing one order of samples between ranks.
 *
 * The order is cut into units (a sample, or a whole batch where a sampler makes batches) that are dealt out
 * in turn: rank r takes units r, r + world, r + 2 world, ... Training shards are padded from the front of the
 * order, or cut, so that every rank takes as many steps; evaluation shards are neither, so that every sample
 * counts once. */
#ifndef LKI_DATA_SHARD_H
#define LKI_DATA_SHARD_H

#include <stdbool.h>
#include <stdint.h>

typedef enum lki_shard_ends { LKI_SHARD_EXACT, LKI_SHARD_PAD, LKI_SHARD_CUT } lki_shard_ends;

typedef struct lki_shard {
    int rank, world;
    int64_t unit; /* samples that stay together */
    lki_shard_ends ends;
} lki_shard;

/* How many of `count` indices the rank gets, and how many all ranks get. */
int64_t lki_shard_count(const lki_shard *shard, int64_t count);
int64_t lki_shard_total(const lki_shard *shard, int64_t count);

/* How many of this rank's indices, at their end, repeat the front of the order: the padding. */
int64_t lki_shard_padding(const lki_shard *shard, int64_t count);

/* Writes this rank's indices; `out` has room for lki_shard_count. */
void lki_shard_take(const lki_shard *shard, const int64_t *indices, int64_t count, int64_t *out);

#endif
