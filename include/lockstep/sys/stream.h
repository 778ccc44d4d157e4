/* What a stream is to those who write one: a dataset whose length is not known before it ends, as
 * PyTorch's IterableDataset.
 *
 * Implement lk_stream_ops over a context of your own and hand both to lk_stream_dataset. A loader
 * opens one cursor per rank and pass, and reads it from one thread at a time. Transforms, and what
 * else makes batches, run in the loader's workers: their number does not change a batch. A pass
 * that is resumed opens its cursor again and skips what was read.
 *
 * A dataset over a stream has no sample numbers: samplers, shuffle, subsets and concatenations
 * refuse it, and so does what needs the number of batches of a pass. */
#ifndef LOCKSTEP_SYS_STREAM_H
#define LOCKSTEP_SYS_STREAM_H

#include <lockstep/arguments.h>
#include <lockstep/sys/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_stream_ops {
    size_t struct_size;
    /* Required. Begins a pass over the samples of one shard of `shard_count`. Each sample of the
     * pass belongs to exactly one shard; sample i to shard i % shard_count, if nothing speaks
     * against it. The same pass gives the same samples in the same order. Called from any thread,
     * and again before the first cursor is closed. */
    lk_status (*open)(void *context, const lk_pass *pass, int shard, int shard_count, void **cursor);

    /* Required. Writes the next sample into one slot per field, in the order of the fields, and
     * true to *found; or false at the end of the shard. One thread at a time. */
    lk_status (*next)(void *context, void *cursor, void *const *slots, bool *found);

    /* Optional: moves on by `count` samples and writes how many there were, fewer only at the end
     * of the shard. Without it they are read. */
    lk_status (*skip)(void *context, void *cursor, int64_t count, int64_t *skipped);

    /* Optional: ends a pass. Called once per cursor. */
    void (*close)(void *context, void *cursor);

    /* Optional: frees the context. Called once, by whoever lets the last hold of the dataset go. */
    void (*free)(void *context);
} lk_stream_ops;

typedef struct lk_stream_options {
    size_t struct_size;
    /* If not 0: each rank keeps this many samples and hands out a random one of them, drawn from
     * (seed, epoch, rank), another order in every epoch. */
    int64_t shuffle_buffer;
} lk_stream_options;

/* A dataset over `context`, which it owns from here on, also when NULL is returned. The ops, which
 * set their struct_size, and the fields are copied. Its length is LK_LENGTH_UNKNOWN.
 *
 * Ranks whose shards end early: in evaluation they have fewer batches. In training all ranks take
 * as many batches as the one with the most samples, and all batches of a step have the same number
 * of samples. What a rank lacks are the first samples of its shard once more (of the whole stream,
 * if the shard is empty), as lk_batch.padding says: they are trained on, but metrics do not count
 * them. */
lk_dataset *lk_stream_dataset_with(const lk_stream_ops *ops, const lk_field *fields, int field_count,
                                   void *context, const lk_stream_options *options);
#define lk_stream_dataset(...) LK_CALL4_(lk_stream_dataset_with, lk_stream_options, __VA_ARGS__, )

#ifdef __cplusplus
}
#endif
#endif
