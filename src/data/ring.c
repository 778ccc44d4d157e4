#include "data/ring.h"

#include "base/memory.h"
#include "base/status.h"
#include "data/dataset.h"
#include "data/rows.h"
#include "data/stream.h"
#include "data/transform.h"
#include "tensor/buffer.h"
#include "tensor/mapped.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { ALIGNMENT = 64, LARGE_WIDTH = 64 };

typedef struct slot {
    lk_batch batch;
    lk_batch_field fields[LK_MAX_FIELDS];
    void *destinations[LK_MAX_FIELDS];
    void *rows[LK_MAX_FIELDS]; /* of a stream: the samples as they were read */
    int64_t *indices;          /* (batch_size) of a stream */
    int64_t own;               /* samples of a stream that are no padding */
    int64_t ready;             /* the number of the batch that lies here; -1 for none */
    lki_error error;           /* of the thread that filled it */
} slot;

struct lki_ring {
    lki_ring_setup setup;
    lki_gatherer samples; /* of the dataset */
    bool use_rows;        /* every field lies in memory and is gathered as it is stored */
    lki_rows rows[LK_MAX_FIELDS];
    lk_rows deferred[LK_MAX_FIELDS]; /* data is NULL for fields that are gathered here */
    void *memory;
    size_t nbytes;
    slot *slots;
    void *staging;                  /* of a stream: what the slots' rows and indices lie in */
    lk_shape shapes[LK_MAX_FIELDS]; /* of a whole batch */

    lki_ring_pass pass;
    int64_t next_read; /* the batch that the reader gets next */

    pid_t owner; /* the process that started the workers: a forked child has the ring but not the threads */
    pthread_t *workers;
    int started_count;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool active, stopping;
    int64_t next_fill; /* the batch that the next idle worker takes */
    int64_t next_take; /* of a stream: the batch that is read next; one thread at a time */
    int64_t first;     /* of this pass */
    int64_t held;      /* the oldest batch in the reader's hands: slots from here on are not free */
    int busy_count;
};

static size_t padded(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static lk_status find_rows(lki_ring *ring)
{
    if (!ring->setup.raw) return LK_OK;
    for (int f = 0; f < lk_dataset_field_count(ring->setup.dataset); f++) {
        const lk_field *field = lk_dataset_field(ring->setup.dataset, f);
        lk_storage storage;
        if (!lk_dataset_storage(ring->setup.dataset, f, &storage))
            return lki_fail(LK_ERR_UNSUPPORTED, "raw: field \"%s\" of the dataset does not lie in memory",
                            field->name);
        /* Only pictures stay bytes; labels come in the dtype that criteria expect. */
        lk_dtype dtype = storage.dtype == LK_U8 && field->dtype == LK_F32 ? LK_U8 : field->dtype;
        ring->rows[f] = (lki_rows){.data = storage.data,
                                   .width = lk_shape_count(field->shape),
                                   .stored = storage.dtype,
                                   .dtype = dtype,
                                   .divisor = storage.divisor,
                                   .mean = storage.mean,
                                   .std = storage.std};
    }
    ring->use_rows = true;
    return LK_OK;
}

/* Deferring is an offer: where some field does not lie in memory, or batches are transformed, nothing is. */
static void find_deferred(lki_ring *ring)
{
    const lk_dataset *dataset = ring->setup.dataset;
    int field_count = lk_dataset_field_count(dataset);
    lk_rows found[LK_MAX_FIELDS] = {{0}};
    if (!ring->setup.defer || ring->setup.raw || ring->setup.transforms.count > 0) return;
    for (int f = 0; f < field_count; f++) {
        const lk_field *field = lk_dataset_field(dataset, f);
        lk_storage storage;
        if (!lk_dataset_storage(dataset, f, &storage)) return;
        found[f] = (lk_rows){.data = storage.data,
                             .stored = storage.dtype,
                             .length = lk_dataset_length(dataset),
                             .width = lk_shape_count(field->shape),
                             .divisor = storage.divisor,
                             .mean = storage.mean,
                             .std = storage.std};
        ring->rows[f] = lki_rows_of(&found[f], field->dtype);
        if (lki_rows_check(&ring->rows[f], field->name)) return;
    }
    for (int f = 0; f < field_count; f++)
        if (found[f].width >= LARGE_WIDTH) ring->deferred[f] = found[f];
    ring->use_rows = true;
}

/* Of a batch. */
static int64_t most_rows(const lki_ring *ring)
{
    return ring->setup.batch_size * ring->setup.share_count;
}

/* The dataset's fields, and those that transforms of batches add. */
static int list_fields(const lki_ring *ring, lk_field *out)
{
    int count = lk_dataset_field_count(ring->setup.dataset);
    for (int f = 0; f < count; f++) {
        out[f] = *lk_dataset_field(ring->setup.dataset, f);
        if (ring->use_rows) out[f].dtype = ring->rows[f].dtype;
    }
    for (int i = 0; i < ring->setup.transforms.count; i++)
        count += lki_transform_added_fields(ring->setup.transforms.items[i], ring->setup.dataset, out + count,
                                            LK_MAX_FIELDS - count);
    return count;
}

static void place_slots(lki_ring *ring, int field_count, const size_t *offsets, size_t slot_nbytes)
{
    for (int s = 0; s < ring->setup.slot_count; s++) {
        slot *one = &ring->slots[s];
        one->batch.fields = one->fields;
        one->batch.field_count = field_count;
        for (int f = 0; f < field_count; f++)
            one->destinations[f] = one->fields[f].tensor.data =
                (char *)ring->memory + (size_t)s * slot_nbytes + offsets[f];
    }
}

static lk_status make_slots(lki_ring *ring)
{
    lk_field fields[LK_MAX_FIELDS];
    int field_count = list_fields(ring, fields);
    size_t offsets[LK_MAX_FIELDS], slot_nbytes = 0;
    for (int f = 0; f < field_count; f++) {
        const lk_field *field = &fields[f];
        lk_shape whole = {.rank = field->shape.rank + 1, .dim = {most_rows(ring)}};
        for (int i = 0; i < field->shape.rank; i++) whole.dim[i + 1] = field->shape.dim[i];
        LKI_TRY(lki_shape_check(field->dtype, whole));
        ring->shapes[f] = whole;
        offsets[f] = slot_nbytes;
        slot_nbytes += padded((size_t)lk_shape_count(whole) * lk_dtype_nbytes(field->dtype));
        for (int s = 0; s < ring->setup.slot_count; s++) {
            lk_batch_field *out = &ring->slots[s].fields[f];
            *out = (lk_batch_field){.name = field->name, .tensor = {.dtype = field->dtype, .shape = whole}};
            lki_tensor_set_contiguous(&out->tensor);
        }
    }
    ring->nbytes = slot_nbytes * (size_t)ring->setup.slot_count;
    ring->memory = lki_calloc_aligned(ring->nbytes, "the batches of a loader");
    if (!ring->memory) return LK_ERR_NOMEM;
    place_slots(ring, field_count, offsets, slot_nbytes);
    return LK_OK;
}

/* A stream is read into rows of its own: the datasets around it gather from there. */
static lk_status make_staging(lki_ring *ring)
{
    const lki_stream *stream = ring->setup.stream;
    if (!stream) return LK_OK;
    size_t count = (size_t)ring->setup.batch_size, at = 0;
    size_t slot_nbytes = padded(count * sizeof(int64_t));
    for (int f = 0; f < stream->field_count; f++) slot_nbytes += padded(count * stream->nbytes[f]);
    ring->staging =
        lki_alloc_aligned(slot_nbytes * (size_t)ring->setup.slot_count, "the samples of a stream");
    if (!ring->staging) return LK_ERR_NOMEM;
    for (int s = 0; s < ring->setup.slot_count; s++) {
        slot *one = &ring->slots[s];
        one->indices = (int64_t *)((char *)ring->staging + at);
        at += padded(count * sizeof(int64_t));
        for (int f = 0; f < stream->field_count; f++) {
            one->rows[f] = (char *)ring->staging + at;
            at += padded(count * stream->nbytes[f]);
        }
    }
    return LK_OK;
}

/* A transform of the batch before may have left others. */
static void set_shapes(const lki_ring *ring, slot *one, int64_t count)
{
    for (int f = 0; f < one->batch.field_count; f++) {
        lk_tensor *tensor = &one->fields[f].tensor;
        tensor->shape = ring->shapes[f];
        lki_tensor_set_contiguous(tensor);
        tensor->shape.dim[0] = count;
        one->fields[f].rows = ring->deferred[f].data ? &ring->deferred[f] : NULL;
    }
}

static void prepare(const lki_ring *ring, slot *one, int64_t number)
{
    int64_t begin = number * most_rows(ring);
    int64_t count = ring->pass.index_count - begin;
    if (count > most_rows(ring)) count = most_rows(ring);
    one->batch.count = count;
    one->batch.number = number;
    int64_t padding = begin + count - ring->pass.padded_from;
    one->batch.padding = padding < 0 ? 0 : padding < count ? padding : count;
    one->batch.indices = ring->pass.indices + begin;
    set_shapes(ring, one, count);
}

static lk_status transform_batch(const lki_ring *ring, lk_batch *batch)
{
    for (int i = 0; i < ring->setup.transforms.count; i++)
        LKI_TRY(lki_transform_apply_batch(ring->setup.transforms.items[i], &ring->pass.pass, batch));
    return LK_OK;
}

static size_t row_nbytes(const lk_tensor *tensor)
{
    int64_t rows = tensor->shape.dim[0];
    return rows ? lk_tensor_nbytes(tensor) / (size_t)rows : 0;
}

/* Whose rows do not follow one another: through a copy. */
static lk_status transform_scattered(const lki_ring *ring, const lk_batch *whole, lk_batch *own,
                                     const lki_batch_share *share)
{
    int64_t rows = lki_share_rows(share);
    LKI_SCOPED int64_t *indices = LKI_NEW_ARRAY(int64_t, rows);
    if (!indices) return LK_ERR_NOMEM;
    lki_share_gather(share, whole->indices, sizeof *indices, indices);
    own->indices = indices;
    size_t nbytes = 0, at = 0;
    for (int f = 0; f < whole->field_count; f++)
        nbytes += padded(row_nbytes(&whole->fields[f].tensor) * (size_t)rows);
    char *copy = lki_calloc_aligned(nbytes + 1, "one rank's share of a batch");
    if (!copy) return LK_ERR_NOMEM;
    for (int f = 0; f < whole->field_count; f++) {
        size_t row = row_nbytes(&whole->fields[f].tensor);
        own->fields[f].tensor.data = copy + at;
        lki_share_gather(share, whole->fields[f].tensor.data, row, copy + at);
        at += padded(row * (size_t)rows);
    }
    lk_status status = transform_batch(ring, own);
    for (int f = 0; f < whole->field_count; f++)
        lki_share_scatter(share, own->fields[f].tensor.data, row_nbytes(&whole->fields[f].tensor),
                          whole->fields[f].tensor.data);
    lki_free(copy);
    return status;
}

/* What is mixed is mixed within each rank's samples, as that rank would. */
static lk_status transform_shares(const lki_ring *ring, const lk_batch *whole)
{
    LKI_SCOPED lki_batch_share *shares = LKI_NEW_ARRAY(lki_batch_share, ring->setup.share_count);
    if (!shares) return LK_ERR_NOMEM;
    lki_place_shares(ring->pass.shares, ring->setup.share_count, whole->number, ring->setup.batch_size,
                     shares);
    for (int i = 0; i < ring->setup.share_count; i++) {
        lk_batch_field fields[LK_MAX_FIELDS];
        lk_batch own = *whole;
        int64_t begin = lki_share_begin(&shares[i]);
        own.fields = fields;
        own.count = lki_share_rows(&shares[i]);
        own.padding = shares[i].pad_count;
        own.indices = whole->indices + begin;
        if (own.count == 0) continue;
        for (int f = 0; f < whole->field_count; f++) {
            fields[f] = whole->fields[f];
            fields[f].tensor.shape.dim[0] = own.count;
            fields[f].tensor.data =
                (char *)whole->fields[f].tensor.data + (size_t)begin * row_nbytes(&whole->fields[f].tensor);
        }
        LKI_TRY(lki_share_is_whole(&shares[i]) ? transform_batch(ring, &own)
                                               : transform_scattered(ring, whole, &own, &shares[i]));
    }
    return LK_OK;
}

/* ---- Out of a stream ---- */

/* Batches are read one after the other, whichever worker makes them. Those before this one are being made, so
 * its turn comes. */
static lk_status read_rows(lki_ring *ring, slot *one, int64_t number, int64_t *total)
{
    bool alone = ring->setup.worker_count == 0;
    if (!alone) {
        pthread_mutex_lock(&ring->lock);
        while (ring->next_take != number) pthread_cond_wait(&ring->done, &ring->lock);
        pthread_mutex_unlock(&ring->lock);
    }
    lk_status status =
        lki_stream_reader_take(ring->pass.reader, one->rows, ring->setup.batch_size, &one->own, total);
    if (alone) return status;
    pthread_mutex_lock(&ring->lock);
    ring->next_take = number + 1;
    pthread_cond_broadcast(&ring->done);
    pthread_mutex_unlock(&ring->lock);
    return status;
}

/* Sample i of the pass of rank r of n has the number r + i n, as where ranks deal out an order in turn. */
static lk_status fill_from_stream(lki_ring *ring, slot *one, int64_t number)
{
    int64_t total, world = ring->pass.world;
    lki_stream_rows from = {
        .rows = one->rows, .first = ring->pass.rank + number * ring->setup.batch_size * world, .step = world};
    one->batch.number = number;
    one->batch.count = one->own = 0;
    LKI_TRY(read_rows(ring, one, number, &total));
    for (int64_t i = 0; i < total; i++) one->indices[i] = from.first + i * world;
    one->batch.count = total;
    one->batch.padding = total - one->own;
    one->batch.indices = one->indices;
    set_shapes(ring, one, total);
    if (total == 0) return LK_OK;
    LKI_TRY(lki_stream_gather(ring->setup.stream, &from, &ring->samples, &ring->pass.pass, one->indices,
                              total, one->destinations));
    LKI_TRY(transform_batch(ring, &one->batch));
    return lki_mapped_check();
}

/* How many samples of a batch count: those that this rank has, or as many as the rank that has the most. */
static lk_status settle_stream_batch(const lki_ring *ring, slot *one, bool *is_over)
{
    int64_t most = one->own;
    lk_batch *batch = &one->batch;
    if (ring->pass.agree) LKI_TRY(ring->pass.agree(ring->pass.agree_context, one->own, &most));
    *is_over = most == 0 || (ring->setup.drop_last && most < ring->setup.batch_size);
    if (*is_over) return LK_OK;
    if (most > batch->count)
        return lki_fail(LK_ERR_INVALID,
                        "a pass over the stream gave samples, and the same pass now gives none");
    batch->count = most;
    batch->padding = most - one->own;
    for (int f = 0; f < batch->field_count; f++) batch->fields[f].tensor.shape.dim[0] = most;
    return LK_OK;
}

static lk_status fill(lki_ring *ring, slot *one, int64_t number)
{
    if (ring->setup.stream) return fill_from_stream(ring, one, number);
    prepare(ring, one, number);
    const lk_batch *batch = &one->batch;
    if (ring->use_rows) {
        for (int f = 0; f < batch->field_count; f++)
            if (!ring->deferred[f].data)
                lki_rows_gather(&ring->rows[f], batch->indices, batch->count, one->destinations[f]);
    } else {
        LKI_TRY(ring->samples.gather(ring->samples.context, &ring->pass.pass, batch->indices, batch->count,
                                     one->destinations));
    }
    if (ring->setup.transforms.count > 0)
        LKI_TRY(ring->pass.shares ? transform_shares(ring, &one->batch) : transform_batch(ring, &one->batch));
    return lki_mapped_check();
}

/* ---- With workers ---- */

static bool has_work(const lki_ring *ring)
{
    return ring->active && ring->next_fill < ring->pass.batch_count &&
           ring->next_fill < ring->held + ring->setup.slot_count;
}

static void fill_next(lki_ring *ring)
{
    int64_t number = ring->next_fill++;
    slot *one = &ring->slots[number % ring->setup.slot_count];
    one->ready = -1;
    ring->busy_count++;
    pthread_mutex_unlock(&ring->lock);
    one->error.status = LK_OK;
    lki_error_keep(&one->error, fill(ring, one, number));
    pthread_mutex_lock(&ring->lock);
    one->ready = number;
    ring->busy_count--;
    pthread_cond_broadcast(&ring->done);
}

static void *worker_main(void *argument)
{
    lki_ring *ring = argument;
    pthread_mutex_lock(&ring->lock);
    while (!ring->stopping) {
        if (has_work(ring))
            fill_next(ring);
        else
            pthread_cond_wait(&ring->work, &ring->lock);
    }
    pthread_mutex_unlock(&ring->lock);
    return NULL;
}

static lk_status start_workers(lki_ring *ring)
{
    if (ring->setup.worker_count == 0) return LK_OK;
    ring->workers = LKI_NEW_ARRAY(pthread_t, ring->setup.worker_count);
    if (!ring->workers) return LK_ERR_NOMEM;
    for (int i = 0; i < ring->setup.worker_count; i++) {
        if (pthread_create(&ring->workers[i], NULL, worker_main, ring))
            return lki_fail(LK_ERR_NOMEM, "could not start worker %d of %d of a loader", i + 1,
                            ring->setup.worker_count);
        ring->started_count++;
    }
    return LK_OK;
}

void lki_ring_stop(lki_ring *ring)
{
    pthread_mutex_lock(&ring->lock);
    ring->active = false;
    while (ring->busy_count > 0) pthread_cond_wait(&ring->done, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
}

void lki_ring_start(lki_ring *ring, const lki_ring_pass *pass, int64_t first)
{
    lki_ring_stop(ring);
    pthread_mutex_lock(&ring->lock);
    ring->pass = *pass;
    ring->next_read = ring->next_fill = ring->held = ring->first = ring->next_take = first;
    for (int s = 0; s < ring->setup.slot_count; s++) ring->slots[s].ready = -1;
    ring->active = true;
    pthread_cond_broadcast(&ring->work);
    pthread_mutex_unlock(&ring->lock);
}

static void wait_for(lki_ring *ring, const slot *one, int64_t number)
{
    pthread_mutex_lock(&ring->lock);
    ring->held = number > ring->first ? number - 1 : number;
    pthread_cond_broadcast(&ring->work);
    while (one->ready != number) pthread_cond_wait(&ring->done, &ring->lock);
    pthread_mutex_unlock(&ring->lock);
}

lk_status lki_ring_next(lki_ring *ring, lk_batch **out)
{
    *out = NULL;
    if (ring->next_read >= ring->pass.batch_count) return LK_OK;
    int64_t number = ring->next_read++;
    slot *one = &ring->slots[number % ring->setup.slot_count];
    if (ring->setup.worker_count > 0) {
        wait_for(ring, one, number);
        LKI_TRY(lki_error_restore(&one->error));
    } else {
        LKI_TRY(fill(ring, one, number));
    }
    bool is_over = false;
    if (ring->setup.stream) LKI_TRY(settle_stream_batch(ring, one, &is_over));
    *out = is_over ? NULL : &one->batch;
    return LK_OK;
}

lk_status lki_ring_create(lki_ring **out, const lki_ring_setup *setup)
{
    *out = NULL;
    lki_ring *ring = LKI_NEW(lki_ring);
    if (!ring) return LK_ERR_NOMEM;
    ring->setup = *setup;
    ring->samples = lki_dataset_gatherer(setup->dataset);
    ring->owner = getpid();
    pthread_mutex_init(&ring->lock, NULL);
    pthread_cond_init(&ring->work, NULL);
    pthread_cond_init(&ring->done, NULL);
    ring->slots = LKI_NEW_ARRAY(slot, setup->slot_count);
    lk_status status = ring->slots ? find_rows(ring) : LK_ERR_NOMEM;
    if (status == LK_OK) find_deferred(ring);
    if (status == LK_OK) status = make_slots(ring);
    if (status == LK_OK) status = make_staging(ring);
    if (status == LK_OK) status = start_workers(ring);
    if (status != LK_OK) {
        lki_ring_free(ring);
        return status;
    }
    *out = ring;
    return LK_OK;
}

bool lki_ring_is_inherited(const lki_ring *ring)
{
    return ring->owner != getpid();
}

/* In a child the lock may be held by a thread that does not exist here: only the memory can be let go. */
static void end_workers(lki_ring *ring)
{
    if (lki_ring_is_inherited(ring)) return;
    pthread_mutex_lock(&ring->lock);
    ring->stopping = true;
    pthread_cond_broadcast(&ring->work);
    pthread_mutex_unlock(&ring->lock);
    for (int i = 0; i < ring->started_count; i++) pthread_join(ring->workers[i], NULL);
    pthread_cond_destroy(&ring->done);
    pthread_cond_destroy(&ring->work);
    pthread_mutex_destroy(&ring->lock);
}

void lki_ring_free(lki_ring *ring)
{
    if (!ring) return;
    end_workers(ring);
    lki_free(ring->workers);
    lki_free(ring->slots);
    lki_free(ring->memory);
    lki_free(ring->staging);
    lki_free(ring);
}

void lki_ring_memory(const lki_ring *ring, void **data, size_t *nbytes)
{
    *data = ring->memory;
    *nbytes = ring->nbytes;
}
