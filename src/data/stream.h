/* Inside of a stream: the dataset over it, and the reader that a loader opens for a pass.
 *
 * A reader hands out samples in their order, first those of its rank's shard, then, if it pads, the first
 * ones again. They lie in rows; the datasets around the stream, which gather by number, find them there while
 * lki_stream_gather runs. A reader belongs to one thread at a time. */
#ifndef LKI_DATA_STREAM_H
#define LKI_DATA_STREAM_H

#include <lockstep/sys/stream.h>

#include "data/dataset.h"

typedef struct lki_stream {
    lk_stream_ops ops;
    void *context;
    int64_t shuffle_buffer;
    int field_count;
    size_t nbytes[LK_MAX_FIELDS]; /* of one sample */
    size_t sample_nbytes;         /* of all its fields, each padded to 64 bytes */
} lki_stream;

typedef struct lki_stream_reader lki_stream_reader;

typedef struct lki_stream_place {
    lk_pass pass;
    int rank, world;
    bool pads;
} lki_stream_place;

/* Opens a pass and goes on behind its first `skipped` samples. */
lk_status lki_stream_reader_open(lki_stream_reader **out, const lki_stream *stream,
                                 const lki_stream_place *place, int64_t skipped);
void lki_stream_reader_close(lki_stream_reader *reader);

/* Reads up to `count` samples; rows[f] has room for them. *own are of the shard, the others padding. After a
 * failure there are no more samples. */
lk_status lki_stream_reader_take(lki_stream_reader *reader, void *const *rows, int64_t count, int64_t *own,
                                 int64_t *total);

/* Samples that were read, through the datasets around the stream. Their numbers are first, first + step, ...
 */
typedef struct lki_stream_rows {
    void *const *rows;
    int64_t first, step;
} lki_stream_rows;
lk_status lki_stream_gather(const lki_stream *stream, const lki_stream_rows *rows, const lki_gatherer *by,
                            const lk_pass *pass, const int64_t *indices, int64_t count,
                            void *const *destinations);

#endif
