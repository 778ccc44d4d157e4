#include "data/loader.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/batch_share.h"
#include "data/dataset.h"
#include "data/order.h"
#include "data/ring.h"
#include "data/stream.h"
#include "data/transform.h"
#include "tensor/random.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { STATE_VERSION = 1, MAX_WORKERS = 256 };

struct lk_loader {
    lk_dataset *dataset;
    lk_loader_options options;
    char *name;
    lk_transform_list transforms; /* owned array and items */
    lk_generator own;             /* used where .seed is given */

    bool defer;
    lki_ring *ring;
    int64_t *order; /* (pass size) of this rank */
    int64_t order_capacity;
    int64_t padded_from; /* what of the order only makes the ranks' shares equal */
    int share_count;     /* of ranks, from the pass's on, that each batch holds; 0 and 1: that rank's alone */
    lki_pass_share *shares; /* (share_count) of the pass; NULL with one */

    lki_stream_reader *reader; /* of a stream's pass */
    lki_ring_agree agree;
    void *agree_context;
    lk_batch *ahead; /* taken by lki_loader_has_next and not handed out yet */

    bool in_pass;
    lk_pass_options pass;
    lk_pass_size size;
    int64_t next_batch;
    lk_generator source_at_begin;
    int64_t sampler_at_begin[4];
};

/* ---- Life ---- */

static void free_parts(lk_dataset *dataset, const lk_loader_options *options)
{
    lk_dataset_free(dataset);
    lk_sampler_free(options->sampler);
    for (int i = 0; i < options->batch_transforms.count; i++)
        lk_transform_free(options->batch_transforms.items[i]);
}

/* An order of a stream's samples would need their numbers. */
static lk_status check_stream_options(const lk_dataset *dataset, const lk_loader_options *options)
{
    if (!lki_dataset_stream(dataset)) return LK_OK;
    if (options->sampler) return lki_dataset_check_length(dataset, "sampler");
    if (options->shuffle)
        return lki_fail(LK_ERR_UNSUPPORTED,
                        "shuffle: the dataset is a stream, which is read in its order: give the stream a "
                        "shuffle_buffer");
    return options->raw ? lki_dataset_check_length(dataset, "raw") : LK_OK;
}

static lk_status check_options(const lk_dataset *dataset, lk_loader_options *options)
{
    LKI_TRY(check_stream_options(dataset, options));
    if (options->sampler) {
        LKI_TRY(lki_sampler_check(options->sampler));
        int64_t batch_size = options->sampler->batch_size;
        if (batch_size && options->batch_size && options->batch_size != batch_size)
            return lki_fail(LK_ERR_INVALID, "batch_size: the sampler makes batches of %lld, not %lld",
                            (long long)batch_size, (long long)options->batch_size);
        if (batch_size) options->batch_size = batch_size;
        if (options->shuffle)
            return lki_fail(LK_ERR_INVALID, "shuffle: a loader with a sampler has its order already");
    }
    if (options->batch_size < 0)
        return lki_fail(LK_ERR_INVALID, "batch_size: expected at least 1, found %lld",
                        (long long)options->batch_size);
    if (options->num_workers < 0 || options->num_workers > MAX_WORKERS)
        return lki_fail(LK_ERR_INVALID, "num_workers: expected 0 to %d, found %d", MAX_WORKERS,
                        options->num_workers);
    if (options->prefetch < 0)
        return lki_fail(LK_ERR_INVALID, "prefetch: expected at least 1, found %d", options->prefetch);
    if (options->prefetch && !options->num_workers)
        return lki_fail(LK_ERR_INVALID, "prefetch: batches are made ahead by workers: add num_workers");
    if (options->seed && options->generator)
        return lki_fail(LK_ERR_INVALID, "seed: the loader has a generator already: leave one of them out");
    if (options->shuffle && options->no_shuffle)
        return lki_fail(LK_ERR_INVALID, "shuffle and no_shuffle exclude each other");
    if (options->raw && options->batch_transforms.count > 0)
        return lki_fail(LK_ERR_INVALID, "raw: batches of bytes cannot be transformed");
    for (int i = 0; i < options->batch_transforms.count; i++)
        LKI_TRY(lki_transform_check_batch(options->batch_transforms.items[i], dataset));
    return LK_OK;
}

static lk_status copy_options(lk_loader *loader, const lk_loader_options *options)
{
    loader->options = *options;
    if (loader->options.batch_size == 0) loader->options.batch_size = 1;
    if (loader->options.prefetch == 0) loader->options.prefetch = 2 * options->num_workers;
    loader->options.name = loader->name = lki_strdup(options->name);
    if (options->name && !loader->name) return LK_ERR_NOMEM;
    int count = options->batch_transforms.count;
    if (count > 0) {
        lk_transform **items = LKI_NEW_ARRAY(lk_transform *, count);
        if (!items) return LK_ERR_NOMEM;
        memcpy(items, options->batch_transforms.items, (size_t)count * sizeof *items);
        loader->transforms = (lk_transform_list){items, count};
    }
    if (options->seed) lk_generator_seed(&loader->own, options->seed);
    return LK_OK;
}

lk_loader *lk_loader_with(lk_dataset *dataset, const lk_loader_options *given)
{
    lk_loader_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_loader_options");
    bool whole = status == LK_OK && dataset;
    for (int i = 0; i < options.batch_transforms.count; i++)
        whole = whole && options.batch_transforms.items[i];
    lk_loader *loader = NULL;
    if (whole && check_options(dataset, &options) == LK_OK) loader = LKI_NEW(lk_loader);
    if (loader && copy_options(loader, &options) != LK_OK) {
        lki_free(loader->name);
        lki_free(loader);
        loader = NULL;
    }
    if (!loader) {
        free_parts(dataset, &options);
        return NULL;
    }
    loader->dataset = dataset;
    return loader;
}

/* The ring must not use it any more. */
static void close_reader(lk_loader *loader)
{
    loader->ahead = NULL;
    lki_stream_reader_close(loader->reader);
    loader->reader = NULL;
}

void lk_loader_free(lk_loader *loader)
{
    if (!loader) return;
    lki_ring_free(loader->ring);
    close_reader(loader);
    loader->options.batch_transforms = loader->transforms;
    free_parts(loader->dataset, &loader->options);
    lki_free((void *)loader->transforms.items);
    lki_free(loader->order);
    lki_free(loader->shares);
    lki_free(loader->name);
    lki_free(loader);
}

lk_dataset *lk_loader_dataset(const lk_loader *loader)
{
    return loader->dataset;
}

int64_t lk_loader_batch_size(const lk_loader *loader)
{
    return loader->options.batch_size;
}

const char *lk_loader_name(const lk_loader *loader)
{
    return loader->name ? loader->name : "";
}

lk_status lk_loader_set_name(lk_loader *loader, const char *name)
{
    char *copy = lki_strdup(name);
    if (name && !copy) return LK_ERR_NOMEM;
    lki_free(loader->name);
    loader->options.name = loader->name = copy;
    return LK_OK;
}

/* `loader "train"`, or `loader` without a name. */
static const char *called(const lk_loader *loader, char *text, size_t capacity)
{
    if (!loader->name) return "loader";
    snprintf(text, capacity, "loader \"%s\"", loader->name);
    return text;
}

const lk_loader_options *lki_loader_options(const lk_loader *loader)
{
    return &loader->options;
}

static void forget_ring(lk_loader *loader)
{
    lki_ring_free(loader->ring);
    loader->ring = NULL;
    close_reader(loader);
    loader->in_pass = false;
}

void lki_loader_defer(lk_loader *loader, bool defer)
{
    if (loader->defer == defer) return;
    loader->defer = defer;
    forget_ring(loader);
}

/* A batch that ranks share has the samples of known shares side by side, in one shape. */
lk_status lki_loader_check_shards(const lk_loader *loader)
{
    LKI_TRY(lki_loader_check_length(loader, "shards"));
    for (int i = 0; i < loader->transforms.count; i++)
        if (loader->transforms.items[i]->reshapes)
            return lki_fail(LK_ERR_UNSUPPORTED, "shards: %s makes batches of different shapes: leave one out",
                            loader->transforms.items[i]->kind);
    return LK_OK;
}

lk_status lki_loader_set_shares(lk_loader *loader, int count)
{
    lki_pass_share *shares = NULL;
    if ((loader->share_count > 1 ? loader->share_count : 1) == count) return LK_OK;
    if (count > 1) LKI_TRY(lki_loader_check_shards(loader));
    if (count > 1 && !(shares = LKI_NEW_ARRAY(lki_pass_share, count))) return LK_ERR_NOMEM;
    lki_free(loader->shares);
    loader->shares = shares;
    loader->share_count = count;
    forget_ring(loader);
    return LK_OK;
}

lk_status lki_loader_set_batch_size(lk_loader *loader, int64_t batch_size)
{
    const lk_sampler *sampler = loader->options.sampler;
    if (batch_size == loader->options.batch_size) return LK_OK;
    if (sampler && sampler->batch_size)
        return lki_fail(LK_ERR_UNSUPPORTED, "batch_size: the sampler makes batches of %lld, not %lld",
                        (long long)sampler->batch_size, (long long)batch_size);
    loader->options.batch_size = batch_size;
    forget_ring(loader);
    return LK_OK;
}

lk_status lki_loader_set_dataset(lk_loader *loader, lk_dataset *dataset)
{
    lk_status status = dataset ? LK_OK : lki_last_status();
    for (int i = 0; !status && i < loader->transforms.count; i++)
        status = lki_transform_check_batch(loader->transforms.items[i], dataset);
    if (status) {
        lk_dataset_free(dataset);
        return status;
    }
    forget_ring(loader);
    lk_dataset_free(loader->dataset);
    loader->dataset = dataset;
    return LK_OK;
}

void lki_loader_memory(const lk_loader *loader, void **data, size_t *nbytes)
{
    *data = NULL;
    *nbytes = 0;
    if (loader->ring) lki_ring_memory(loader->ring, data, nbytes);
}

/* ---- A pass ---- */

bool lki_loader_is_stream(const lk_loader *loader)
{
    return lki_dataset_stream(loader->dataset) != NULL;
}

lk_status lki_loader_check_length(const lk_loader *loader, const char *who)
{
    char text[200];
    if (!lki_loader_is_stream(loader)) return LK_OK;
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: %s reads a stream, and how many batches it has is not known",
                    who, called(loader, text, sizeof text));
}

void lki_loader_set_agree(lk_loader *loader, lki_ring_agree agree, void *context)
{
    loader->agree = agree;
    loader->agree_context = context;
}

static int share_count(const lk_loader *loader)
{
    return loader->shares ? loader->share_count : 1;
}

static lki_order order_of(const lk_loader *loader, const lk_pass_options *pass, int share)
{
    const lk_loader_options *options = &loader->options;
    return (lki_order){.length = lk_dataset_length(loader->dataset),
                       .sampler = options->sampler,
                       .shuffle = options->shuffle,
                       .no_shuffle = options->no_shuffle,
                       .seed = options->seed,
                       .epoch = pass->epoch,
                       .rank = pass->rank + share,
                       .world = pass->world > 0 ? pass->world : 1,
                       .train = pass->train};
}

static void size_of_share(const lk_loader *loader, const lki_order *order, lk_pass_size *out)
{
    int64_t batch_size = loader->options.batch_size;
    lki_order_size(order, &out->sample_count, &out->total_sample_count);
    out->batch_count = (out->sample_count + (loader->options.drop_last ? 0 : batch_size - 1)) / batch_size;
    if (loader->options.drop_last) out->sample_count = out->batch_count * batch_size;
}

lk_status lk_loader_size(const lk_loader *loader, const lk_pass_options *given, lk_pass_size *out)
{
    LKI_TAKE(lk_pass_options, options, given, lk_error_status());
    lk_pass_size sum = {0}, one;
    if (lki_loader_is_stream(loader)) {
        if (options.rank < 0 || options.rank >= (options.world > 0 ? options.world : 1))
            return lki_fail(LK_ERR_INVALID, "rank %d of a world of %d", options.rank, options.world);
        *out = (lk_pass_size){LK_LENGTH_UNKNOWN, LK_LENGTH_UNKNOWN, LK_LENGTH_UNKNOWN};
        return LK_OK;
    }
    for (int i = 0; i < share_count(loader); i++) {
        lki_order order = order_of(loader, &options, i);
        if (order.rank < 0 || order.rank >= order.world)
            return lki_fail(LK_ERR_INVALID, "rank %d of a world of %d", order.rank, order.world);
        size_of_share(loader, &order, &one);
        sum.sample_count += one.sample_count;
        sum.total_sample_count = one.total_sample_count;
        if (one.batch_count > sum.batch_count) sum.batch_count = one.batch_count;
    }
    *out = sum;
    return LK_OK;
}

/* In training a rank without a batch is one too many. Else rank 0 has the largest share: others may have no
 * batch where it has one. */
static lk_status check_not_empty(const lk_loader *loader, const lk_pass_size *size,
                                 const lk_pass_options *pass)
{
    char text[200], shared[40] = "";
    int64_t total = size->total_sample_count, batch_size = loader->options.batch_size;
    int world = pass->world > 0 ? pass->world : 1;
    if (total == LK_LENGTH_UNKNOWN) return LK_OK; /* a stream says at its end that it was empty */
    if (total == 0) return lki_fail(LK_ERR_INVALID, "%s is empty", called(loader, text, sizeof text));
    bool every_rank = pass->train || (total + world - 1) / world < batch_size;
    if (size->batch_count > 0 || !loader->options.drop_last || !every_rank) return LK_OK;
    if (world > 1) snprintf(shared, sizeof shared, ", shared by %d ranks,", world);
    return lki_fail(LK_ERR_INVALID, "%s is empty: %lld samples%s make no batch of %lld, and drop_last is on",
                    called(loader, text, sizeof text), (long long)total, shared, (long long)batch_size);
}

lk_status lki_loader_check_pass(const lk_loader *loader, const lk_pass_options *pass)
{
    lk_pass_size size;
    LKI_TRY(lk_loader_size(loader, pass, &size));
    return check_not_empty(loader, &size, pass);
}

static lk_status make_ring(lk_loader *loader)
{
    if (loader->ring) return LK_OK;
    const lk_loader_options *options = &loader->options;
    lki_ring_setup setup = {.dataset = loader->dataset,
                            .batch_size = options->batch_size,
                            .share_count = share_count(loader),
                            .worker_count = options->num_workers,
                            .slot_count = options->num_workers ? options->prefetch + 3 : 2,
                            .raw = options->raw,
                            .defer = loader->defer,
                            .transforms = loader->transforms,
                            .stream = lki_dataset_stream(loader->dataset),
                            .drop_last = options->drop_last};
    return lki_ring_create(&loader->ring, &setup);
}

static lk_status make_room(lk_loader *loader, int64_t count)
{
    if (count <= loader->order_capacity) return LK_OK;
    int64_t *order = lki_realloc(loader->order, (size_t)count * sizeof *order, "the order of a loader");
    if (!order) return LK_ERR_NOMEM;
    loader->order = order;
    loader->order_capacity = count;
    return LK_OK;
}

static lk_generator *generator_of(lk_loader *loader)
{
    if (loader->options.generator) return loader->options.generator;
    return loader->options.seed ? &loader->own : lk_default_generator();
}

static bool draws_from_the_default(const lk_loader *loader)
{
    const lk_loader_options *options = &loader->options;
    return options->generator ? options->generator == lk_default_generator() : !options->seed;
}

static lk_status draw_one(lk_loader *loader, int share, int64_t *indices, int64_t *count, int64_t *padding)
{
    lk_generator *generator = generator_of(loader);
    lki_draw_seed(generator); /* PyTorch's DataLoader draws the base seed of its workers here, with workers or
                                 without */
    lki_order order = order_of(loader, &loader->pass, share);
    return lki_order_draw(&order, generator, generator != lk_default_generator(), indices, count, padding);
}

/* Batch after batch, and in each rank after rank; padding at the end. */
static lk_status join_shares(const lk_loader *loader, const int64_t *drawn, int64_t room)
{
    int64_t batch_size = loader->options.batch_size, *out = loader->order;
    LKI_SCOPED lki_batch_share *places = LKI_NEW_ARRAY(lki_batch_share, loader->share_count);
    if (!places) return LK_ERR_NOMEM;
    for (int64_t number = 0; number < loader->size.batch_count; number++) {
        lki_place_shares(loader->shares, loader->share_count, number, batch_size, places);
        int64_t rows = 0;
        for (int i = 0; i < loader->share_count; i++) {
            const int64_t *own = drawn + i * room + number * batch_size;
            lki_share_scatter(&places[i], own, sizeof *own, out);
            rows += lki_share_rows(&places[i]);
        }
        out += rows;
    }
    return LK_OK;
}

/* Each of these ranks would draw from the same state: so does each share. */
static lk_status draw_shares(lk_loader *loader, int64_t *count)
{
    lk_sampler *sampler = loader->options.sampler;
    int64_t batch_size = loader->options.batch_size, room = 0, total = 0, real = 0;
    for (int i = 0; i < loader->share_count; i++) {
        lki_order order = order_of(loader, &loader->pass, i);
        int64_t own = lki_order_room(&order);
        if (own > room) room = own;
    }
    LKI_SCOPED int64_t *drawn = LKI_NEW_ARRAY(int64_t, room * loader->share_count);
    if (!drawn) return LK_ERR_NOMEM;
    loader->size.batch_count = 0;
    for (int i = 0; i < loader->share_count; i++) {
        int64_t own = 0, padding = 0;
        *generator_of(loader) = loader->source_at_begin;
        if (sampler) memcpy(sampler->state, loader->sampler_at_begin, sizeof sampler->state);
        LKI_TRY(draw_one(loader, i, drawn + i * room, &own, &padding));
        int64_t kept = loader->options.drop_last ? own / batch_size * batch_size : own;
        loader->shares[i] = (lki_pass_share){.count = kept, .padded_from = own - padding};
        total += kept;
        real += own - padding < kept ? own - padding : kept;
        int64_t batches = (kept + batch_size - 1) / batch_size;
        if (batches > loader->size.batch_count) loader->size.batch_count = batches;
    }
    LKI_TRY(make_room(loader, room * loader->share_count));
    loader->size.sample_count = *count = total;
    loader->padded_from = real;
    return join_shares(loader, drawn, room);
}

static lk_status draw_order(lk_loader *loader, int64_t *count)
{
    int64_t padding = 0;
    lk_sampler *sampler = loader->options.sampler;
    loader->source_at_begin = *generator_of(loader);
    if (sampler) memcpy(loader->sampler_at_begin, sampler->state, sizeof sampler->state);
    if (loader->shares) return draw_shares(loader, count);
    LKI_TRY(draw_one(loader, 0, loader->order, count, &padding));
    loader->padded_from = *count - padding;
    return LK_OK;
}

static uint64_t transform_seed(lk_loader *loader, const lk_pass_options *options)
{
    if (options->seed) return options->seed;
    return loader->options.seed ? loader->options.seed : lk_default_generator()->seed;
}

/* What a sampler drew may be shorter than it said. */
static void set_size(lk_loader *loader, int64_t count)
{
    int64_t batch_size = loader->options.batch_size;
    if (loader->shares) return; /* draw_shares has */
    loader->size.batch_count =
        loader->options.drop_last ? count / batch_size : (count + batch_size - 1) / batch_size;
    loader->size.sample_count = loader->options.drop_last ? loader->size.batch_count * batch_size : count;
}

/* Opens the pass anew, behind the batches before `first`. */
static lk_status start_stream(lk_loader *loader, int64_t first)
{
    int64_t batch_size = loader->options.batch_size;
    lki_ring_pass pass = {.pass = {loader->pass.seed, loader->pass.epoch},
                          .batch_count = LK_LENGTH_UNKNOWN,
                          .rank = loader->pass.rank,
                          .world = loader->pass.world,
                          .agree = loader->agree,
                          .agree_context = loader->agree_context};
    lki_stream_place place = {pass.pass, pass.rank, pass.world, .pads = loader->agree != NULL};
    lki_ring_stop(loader->ring);
    close_reader(loader);
    if (first > INT64_MAX / batch_size)
        return lki_fail(LK_ERR_RANGE, "batch %lld is beyond any stream", (long long)first);
    LKI_TRY(lki_stream_reader_open(&loader->reader, lki_dataset_stream(loader->dataset), &place,
                                   first * batch_size));
    pass.reader = loader->reader;
    loader->next_batch = first;
    lki_ring_start(loader->ring, &pass, first);
    return LK_OK;
}

static lk_status start_at(lk_loader *loader, int64_t first)
{
    if (lki_loader_is_stream(loader)) return start_stream(loader, first);
    lki_ring_pass pass = {.pass = {loader->pass.seed, loader->pass.epoch},
                          .indices = loader->order,
                          .index_count = loader->size.sample_count,
                          .batch_count = loader->size.batch_count,
                          .padded_from = loader->padded_from,
                          .shares = loader->shares};
    loader->next_batch = first;
    lki_ring_start(loader->ring, &pass, first);
    return LK_OK;
}

static void end_pass(lk_loader *loader)
{
    loader->in_pass = false;
    loader->ahead = NULL;
    if (!loader->ring) return;
    if (lki_ring_is_inherited(loader->ring)) {
        lki_ring_free(loader->ring);
        loader->ring = NULL;
    } else {
        lki_ring_stop(loader->ring);
    }
    close_reader(loader);
}

/* PyTorch's DataLoader draws the base seed of its workers for a stream, too. */
static lk_status begin_stream(lk_loader *loader, lk_pass_size *size)
{
    loader->source_at_begin = *generator_of(loader);
    lki_draw_seed(generator_of(loader));
    LKI_TRY(start_at(loader, 0));
    loader->in_pass = true;
    if (size) *size = loader->size;
    return LK_OK;
}

lk_status lk_loader_begin(lk_loader *loader, const lk_pass_options *given, lk_pass_size *size)
{
    LKI_TAKE(lk_pass_options, options, given, lk_error_status());
    end_pass(loader);
    lk_pass_size planned;
    LKI_TRY(lk_loader_size(loader, &options, &planned));
    LKI_TRY(check_not_empty(loader, &planned, &options));
    LKI_TRY(make_ring(loader));
    loader->pass = options;
    loader->pass.world = options.world > 0 ? options.world : 1;
    loader->pass.seed = transform_seed(loader, &options);
    loader->size = planned;
    if (lki_loader_is_stream(loader)) return begin_stream(loader, size);
    lki_order order = order_of(loader, &loader->pass, 0);
    LKI_TRY(make_room(loader, lki_order_room(&order)));
    int64_t count = 0;
    LKI_TRY(draw_order(loader, &count));
    LKI_TRY(lki_check_indices(loader->order, count, lk_dataset_length(loader->dataset)));
    set_size(loader, count);
    LKI_TRY(check_not_empty(loader, &loader->size, &options));
    loader->in_pass = true;
    LKI_TRY(start_at(loader, 0));
    if (size) *size = loader->size;
    return LK_OK;
}

/* A stream that ends before its first batch has none for any rank: alone, or if all agree. */
static lk_status check_stream_end(const lk_loader *loader)
{
    char text[200];
    bool all = loader->agree || loader->pass.world == 1;
    if (!lki_loader_is_stream(loader) || loader->next_batch > 0 || !all) return LK_OK;
    return lki_fail(LK_ERR_INVALID, "%s is empty: its stream has no batch%s",
                    called(loader, text, sizeof text),
                    loader->options.drop_last ? ", or only one that drop_last drops" : "");
}

lk_status lk_loader_next(lk_loader *loader, lk_batch **out)
{
    *out = NULL;
    if (!loader->in_pass) return LK_OK;
    if (loader->ahead) {
        *out = loader->ahead;
        loader->ahead = NULL;
        return LK_OK;
    }
    lk_status status = lki_ring_next(loader->ring, out);
    if (status != LK_OK) {
        char text[200];
        lki_fail_prefix(status, "%s, batch %lld", called(loader, text, sizeof text),
                        (long long)loader->next_batch);
    }
    if (!status && !*out) status = check_stream_end(loader);
    if (*out)
        loader->next_batch++;
    else
        loader->in_pass = false;
    return status;
}

lk_status lki_loader_has_next(lk_loader *loader, bool *out)
{
    *out = loader->in_pass;
    if (!lki_loader_is_stream(loader)) *out = *out && loader->next_batch < loader->size.batch_count;
    if (!*out || !lki_loader_is_stream(loader)) return LK_OK;
    lk_batch *batch = NULL;
    LKI_TRY(lk_loader_next(loader, &batch));
    loader->ahead = batch;
    *out = batch != NULL;
    return LK_OK;
}

void lki_loader_last_shares(const lk_loader *loader, lki_batch_share *out)
{
    lki_place_shares(loader->shares, loader->share_count, loader->next_batch - 1, loader->options.batch_size,
                     out);
}

lk_status lk_loader_seek(lk_loader *loader, int64_t number)
{
    char text[200];
    if (!loader->in_pass)
        return lki_fail(LK_ERR_INVALID, "%s: seek needs a pass that has begun",
                        called(loader, text, sizeof text));
    if (number < 0 || number > loader->size.batch_count)
        return lki_fail(LK_ERR_RANGE, "%s: batch %lld of a pass of %lld", called(loader, text, sizeof text),
                        (long long)number, (long long)loader->size.batch_count);
    return start_at(loader, number);
}

/* ---- Saving and restoring ---- */

void lki_loader_save_between(const lk_loader *loader, lk_loader_state *out)
{
    const lk_loader_options *options = &loader->options;
    memset(out, 0, sizeof *out); /* also the padding: the bytes go into a file */
    out->version = STATE_VERSION;
    if (options->sampler) memcpy(out->sampler, options->sampler->state, sizeof out->sampler);
    if (draws_from_the_default(loader)) return;
    out->has_position = true;
    memcpy(&out->position, options->generator ? options->generator : &loader->own, sizeof out->position);
}

void lk_loader_save(const lk_loader *loader, lk_loader_state *out)
{
    lki_loader_save_between(loader, out);
    out->in_pass = loader->in_pass;
    out->rank = loader->pass.rank;
    out->world = loader->pass.world;
    out->train = loader->pass.train;
    out->epoch = loader->pass.epoch;
    out->seed = loader->pass.seed;
    out->next_batch = loader->next_batch - (loader->ahead != NULL);
    if (loader->in_pass) memcpy(out->sampler, loader->sampler_at_begin, sizeof out->sampler);
    memcpy(&out->source, &loader->source_at_begin, sizeof out->source);
}

static lk_status begin_again(lk_loader *loader, const lk_loader_state *state, lk_pass_size *size)
{
    lk_generator *generator = generator_of(loader);
    lk_generator now = *generator;
    *generator = state->source;
    lk_pass_options options = {LK_SIZE(lk_pass_options), .epoch = state->epoch, .rank = state->rank,
                               .world = state->world,    .train = state->train, .seed = state->seed};
    lk_status status = lk_loader_begin(loader, &options, size);
    *generator = now;
    if (status == LK_OK) status = lk_loader_seek(loader, state->next_batch);
    return status;
}

/* Older states have the position of a loader's own generator alone, whose seed is never 0, and do not say so.
 */
static bool knows_position(const lk_loader_state *state)
{
    return state->has_position || state->position.seed != 0;
}

static lk_status check_generators(const lk_loader *loader, const lk_loader_state *state)
{
    char text[200];
    const char *what = called(loader, text, sizeof text);
    if (state->in_pass) LKI_TRY(lki_generator_check(&state->source, what));
    return knows_position(state) ? lki_generator_check(&state->position, what) : LK_OK;
}

lk_status lk_loader_restore(lk_loader *loader, const lk_loader_state *state, lk_pass_size *size)
{
    char text[200];
    if (state->version != STATE_VERSION)
        return lki_fail(LK_ERR_FORMAT, "%s: state of version %u, expected %d",
                        called(loader, text, sizeof text), state->version, STATE_VERSION);
    LKI_TRY(check_generators(loader, state));
    end_pass(loader);
    if (loader->options.sampler)
        memcpy(loader->options.sampler->state, state->sampler, sizeof state->sampler);
    if (state->in_pass) LKI_TRY(begin_again(loader, state, size));
    if (!draws_from_the_default(loader) && knows_position(state)) *generator_of(loader) = state->position;
    return LK_OK;
}
