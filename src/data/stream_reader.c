/* One pass over a rank's shard of a stream. */
#include "data/stream.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/keyed.h"

#include <string.h>

/* Keys the order of the shuffle buffer: no transform has this position. */
#define SHUFFLE_STREAM UINT64_C(0x73747265616d)

struct lki_stream_reader {
    const lki_stream *stream;
    lki_stream_place place;
    void *own, *again; /* cursors: the shard, and its beginning once more; NULL: closed */
    bool ended, failed;
    bool repeats_whole; /* the shard is empty: padding is the beginning of the whole stream */
    int64_t repeated;   /* samples that `again` has given */
    char *kept;         /* (shuffle_buffer, sample_nbytes) */
    int64_t kept_count;
    lki_keyed random;
};

static void close_cursor(const lki_stream *stream, void **cursor)
{
    if (*cursor && stream->ops.close) stream->ops.close(stream->context, *cursor);
    *cursor = NULL;
}

void lki_stream_reader_close(lki_stream_reader *reader)
{
    if (!reader) return;
    close_cursor(reader->stream, &reader->own);
    close_cursor(reader->stream, &reader->again);
    lki_free(reader->kept);
    lki_free(reader);
}

/* A cursor that is NULL would be taken for a closed one. */
static lk_status open_cursor(const lki_stream_reader *reader, int shard, int shard_count, void **out)
{
    const lki_stream *stream = reader->stream;
    unsigned long said = lki_fail_count();
    lk_status status = stream->ops.open(stream->context, &reader->place.pass, shard, shard_count, out);
    if (!status && !*out) return lki_fail(LK_ERR_INVALID, "the stream's open has made no cursor");
    if (status) *out = NULL;
    return lki_fail_if_silent(status, said, "the stream's", "open");
}

static lk_status next_of(const lki_stream_reader *reader, void *cursor, void *const *slots, bool *found)
{
    const lki_stream *stream = reader->stream;
    unsigned long said = lki_fail_count();
    *found = false;
    return lki_fail_if_silent(stream->ops.next(stream->context, cursor, slots, found), said, "the stream's",
                              "next");
}

/* ---- The shard ---- */

static lk_status next_in_order(lki_stream_reader *reader, void *const *slots, bool *found)
{
    *found = false;
    if (reader->ended) return LK_OK;
    LKI_TRY(next_of(reader, reader->own, slots, found));
    reader->ended = !*found;
    return LK_OK;
}

static void slots_of(const lki_stream *stream, char *sample, void **slots)
{
    for (int f = 0; f < stream->field_count; f++) {
        slots[f] = sample;
        sample += (stream->nbytes[f] + 63) / 64 * 64;
    }
}

/* A random one of those that are kept. The next one takes its place, or at the end the last one. */
static lk_status next_shuffled(lki_stream_reader *reader, void *const *slots, bool *found)
{
    const lki_stream *stream = reader->stream;
    void *kept[LK_MAX_FIELDS];
    bool more = true;
    while (more && reader->kept_count < stream->shuffle_buffer) {
        slots_of(stream, reader->kept + (size_t)reader->kept_count * stream->sample_nbytes, kept);
        LKI_TRY(next_in_order(reader, kept, &more));
        reader->kept_count += more;
    }
    *found = reader->kept_count > 0;
    if (!*found) return LK_OK;
    int64_t drawn = lki_keyed_below(&reader->random, reader->kept_count);
    char *place = reader->kept + (size_t)drawn * stream->sample_nbytes;
    slots_of(stream, place, kept);
    for (int f = 0; f < stream->field_count; f++) memcpy(slots[f], kept[f], stream->nbytes[f]);
    reader->kept_count--;
    if (drawn < reader->kept_count)
        memcpy(place, reader->kept + (size_t)reader->kept_count * stream->sample_nbytes,
               stream->sample_nbytes);
    return LK_OK;
}

static lk_status next_own(lki_stream_reader *reader, void *const *slots, bool *found)
{
    return reader->kept ? next_shuffled(reader, slots, found) : next_in_order(reader, slots, found);
}

/* ---- Padding ---- */

static lk_status open_again(lki_stream_reader *reader)
{
    if (reader->again) return LK_OK;
    reader->repeated = 0;
    return reader->repeats_whole
               ? open_cursor(reader, 0, 1, &reader->again)
               : open_cursor(reader, reader->place.rank, reader->place.world, &reader->again);
}

/* *found is false only if the stream has no sample at all. */
static lk_status next_padding(lki_stream_reader *reader, void *const *slots, bool *found)
{
    for (;;) {
        LKI_TRY(open_again(reader));
        LKI_TRY(next_of(reader, reader->again, slots, found));
        if (*found) {
            reader->repeated++;
            return LK_OK;
        }
        close_cursor(reader->stream, &reader->again);
        if (reader->repeated == 0 && reader->repeats_whole) return LK_OK;
        if (reader->repeated == 0) reader->repeats_whole = true;
    }
}

/* ---- Taking ---- */

static lk_status take(lki_stream_reader *reader, void *const *rows, int64_t count, int64_t *own,
                      int64_t *total)
{
    const lki_stream *stream = reader->stream;
    bool found = true;
    for (*own = *total = 0; *total < count; ++*total) {
        void *slots[LK_MAX_FIELDS];
        for (int f = 0; f < stream->field_count; f++)
            slots[f] = (char *)rows[f] + (size_t)*total * stream->nbytes[f];
        if (found) LKI_TRY(next_own(reader, slots, &found));
        if (found) {
            ++*own;
            continue;
        }
        bool has_padding = false;
        if (reader->place.pads) LKI_TRY(next_padding(reader, slots, &has_padding));
        if (!has_padding) break;
    }
    return LK_OK;
}

lk_status lki_stream_reader_take(lki_stream_reader *reader, void *const *rows, int64_t count, int64_t *own,
                                 int64_t *total)
{
    *own = *total = 0;
    if (reader->failed) return LK_OK;
    lk_status status = take(reader, rows, count, own, total);
    reader->failed = status != LK_OK;
    return status;
}

/* ---- Opening ---- */

/* With a shuffle buffer, or padding, what is skipped is read: it says what the buffer holds. */
static lk_status read_over(lki_stream_reader *reader, int64_t count)
{
    LKI_SCOPED char *sample = lki_calloc_aligned(reader->stream->sample_nbytes, "a sample that is skipped");
    void *slots[LK_MAX_FIELDS];
    if (!sample) return LK_ERR_NOMEM;
    slots_of(reader->stream, sample, slots);
    for (int64_t own, total = 1; count > 0 && total > 0; count--)
        LKI_TRY(lki_stream_reader_take(reader, slots, 1, &own, &total));
    return LK_OK;
}

static lk_status skip(lki_stream_reader *reader, int64_t count)
{
    const lki_stream *stream = reader->stream;
    int64_t skipped = 0;
    if (count == 0) return LK_OK;
    if (!stream->ops.skip || reader->kept) return read_over(reader, count);
    unsigned long said = lki_fail_count();
    LKI_TRY(lki_fail_if_silent(stream->ops.skip(stream->context, reader->own, count, &skipped), said,
                               "the stream's", "skip"));
    if (skipped < 0 || skipped > count)
        return lki_fail(LK_ERR_INVALID, "the stream's skip of %lld samples has skipped %lld",
                        (long long)count, (long long)skipped);
    reader->ended = skipped < count;
    return skipped < count ? read_over(reader, count - skipped) : LK_OK;
}

static lk_status make_buffer(lki_stream_reader *reader)
{
    const lki_stream *stream = reader->stream;
    const lki_stream_place *place = &reader->place;
    if (!stream->shuffle_buffer) return LK_OK;
    if ((size_t)stream->shuffle_buffer > SIZE_MAX / 2 / stream->sample_nbytes)
        return lki_fail(LK_ERR_INVALID, "shuffle_buffer: %lld samples are more than memory can hold",
                        (long long)stream->shuffle_buffer);
    reader->random =
        lki_keyed_make(place->pass.seed, (uint64_t)place->pass.epoch, (uint64_t)place->rank, SHUFFLE_STREAM);
    reader->kept = lki_alloc_aligned((size_t)stream->shuffle_buffer * stream->sample_nbytes,
                                     "the shuffle buffer of a stream");
    return reader->kept ? LK_OK : LK_ERR_NOMEM;
}

lk_status lki_stream_reader_open(lki_stream_reader **out, const lki_stream *stream,
                                 const lki_stream_place *place, int64_t skipped)
{
    *out = NULL;
    lki_stream_reader *reader = LKI_NEW(lki_stream_reader);
    if (!reader) return LK_ERR_NOMEM;
    reader->stream = stream;
    reader->place = *place;
    lk_status status = make_buffer(reader);
    if (!status) status = open_cursor(reader, place->rank, place->world, &reader->own);
    if (!status) status = skip(reader, skipped);
    if (status) {
        lki_stream_reader_close(reader);
        return status;
    }
    *out = reader;
    return LK_OK;
}
