/* Datasets over streams. */
#include "data/stream.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <string.h>

/* The rows that this thread gathers from. */
static __thread struct {
    const lki_stream *stream;
    const lki_stream_rows *rows;
} staged;

static int64_t stream_length(void *context)
{
    (void)context;
    return LK_LENGTH_UNKNOWN;
}

static lk_status stream_gather(void *context, const lk_pass *pass, const int64_t *indices, int64_t count,
                               void *const *destinations)
{
    const lki_stream *self = context;
    (void)pass;
    if (staged.stream != self)
        return lki_fail(LK_ERR_UNSUPPORTED, "a stream has no sample numbers: read it with a loader");
    const lki_stream_rows *from = staged.rows;
    for (int f = 0; f < self->field_count; f++)
        for (int64_t i = 0; i < count; i++) {
            size_t row = (size_t)((indices[i] - from->first) / from->step);
            memcpy((char *)destinations[f] + (size_t)i * self->nbytes[f],
                   (const char *)from->rows[f] + row * self->nbytes[f], self->nbytes[f]);
        }
    return LK_OK;
}

lk_status lki_stream_gather(const lki_stream *stream, const lki_stream_rows *rows, const lki_gatherer *by,
                            const lk_pass *pass, const int64_t *indices, int64_t count,
                            void *const *destinations)
{
    staged.stream = stream;
    staged.rows = rows;
    lk_status status = by->gather(by->context, pass, indices, count, destinations);
    staged.stream = NULL;
    return status;
}

static void stream_free(void *context)
{
    lki_stream *self = context;
    if (self->ops.free) self->ops.free(self->context);
    lki_free(self);
}

static lk_status check(const lk_stream_ops *ops, const lk_stream_options *options, int field_count)
{
    if (!ops->open || !ops->next) return lki_fail(LK_ERR_INVALID, "a stream needs open and next");
    if (field_count < 1 || field_count > LK_MAX_FIELDS)
        return lki_fail(LK_ERR_INVALID, "a stream has 1 to %d fields, not %d", LK_MAX_FIELDS, field_count);
    if (options->shuffle_buffer < 0)
        return lki_fail(LK_ERR_INVALID, "shuffle_buffer: expected at least 1 sample, found %lld",
                        (long long)options->shuffle_buffer);
    return LK_OK;
}

static lk_dataset *make(lki_stream *self, const lk_field *fields)
{
    static const lk_dataset_ops ops = {LK_SIZE(lk_dataset_ops), .length = stream_length,
                                       .gather = stream_gather, .free = stream_free};
    int field_count = self->field_count;
    lk_dataset *dataset = lk_dataset_create(&ops, fields, field_count, self);
    if (!dataset) return NULL;
    for (int f = 0; f < field_count; f++) {
        self->nbytes[f] = lki_field_nbytes(lk_dataset_field(dataset, f));
        self->sample_nbytes += (self->nbytes[f] + 63) / 64 * 64;
    }
    lki_dataset_set_stream(dataset, self);
    return dataset;
}

lk_dataset *lk_stream_dataset_with(const lk_stream_ops *given_ops, const lk_field *fields, int field_count,
                                   void *context, const lk_stream_options *given)
{
    lk_stream_ops ops;
    lk_stream_options options;
    lk_status status = lki_take(&ops, sizeof ops, given_ops, "lk_stream_ops");
    if (!status) status = lki_take(&options, sizeof options, given, "lk_stream_options");
    if (!status) status = check(&ops, &options, field_count);
    lki_stream *self = status ? NULL : LKI_NEW(lki_stream);
    if (!self) {
        if (ops.free) ops.free(context);
        return NULL;
    }
    *self = (lki_stream){ops, context, options.shuffle_buffer, .field_count = field_count};
    return make(self, fields);
}
