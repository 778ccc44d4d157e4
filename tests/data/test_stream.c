/* Streams: every sample once per epoch on any number of ranks and workers, the same batches after a restart,
 * uneven ends, and ragged samples as padded batches. */
#include "lktest.h"

#include <lockstep/data.h>
#include <lockstep/sys/stream.h>
#include <lockstep/text.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "data/loader.h"

#include <pthread.h>

enum { SAMPLES = 20000, LONGEST = 24, RANKS = 3, WORKERS = 4 };

/* ---- A stream of numbered samples: sample i has length_of(i) values i, i + 1, ... ---- */

typedef struct numbers {
    int64_t count;
    int64_t fails_at;   /* -1: never */
    bool has_no_shards; /* all samples are in shard 0 */
} numbers;

typedef struct cursor {
    int64_t at, step;
} cursor;

static int64_t length_of(int64_t i)
{
    return 1 + i * 7 % LONGEST;
}

static lk_status open_numbers(void *context, const lk_pass *pass, int shard, int shard_count, void **out)
{
    const numbers *self = context;
    cursor *made = lki_calloc(sizeof *made, "a cursor");
    (void)pass;
    *made = (cursor){shard, shard_count};
    if (self->has_no_shards) *made = (cursor){shard ? self->count : 0, 1};
    *out = made;
    return LK_OK;
}

static lk_status next_number(void *context, void *pointer, void *const *slots, bool *found)
{
    const numbers *self = context;
    cursor *at = pointer;
    int64_t *features = slots[0], *length = slots[1], *id = slots[2];
    if (at->at == self->fails_at) return LK_ERR_IO;
    *found = at->at < self->count;
    if (!*found) return LK_OK;
    *length = length_of(at->at);
    for (int64_t i = 0; i < LONGEST; i++) features[i] = i < *length ? at->at + i : -7;
    *id = at->at;
    at->at += at->step;
    return LK_OK;
}

static lk_status skip_numbers(void *context, void *pointer, int64_t count, int64_t *skipped)
{
    const numbers *self = context;
    cursor *at = pointer;
    for (*skipped = 0; *skipped < count && at->at < self->count; ++*skipped) at->at += at->step;
    return LK_OK;
}

static void close_numbers(void *context, void *pointer)
{
    (void)context;
    lki_free(pointer);
}

static lk_dataset *stream(numbers options, bool skips, int64_t shuffle_buffer)
{
    const lk_stream_ops ops = {LK_SIZE(lk_stream_ops), .open = open_numbers,
                               .next = next_number,    .skip = skips ? skip_numbers : NULL,
                               .close = close_numbers, .free = lki_free};
    const lk_field fields[] = {
        {"features", LK_I64, LK_SHAPE(LONGEST)}, {"features_lengths", LK_I64, {0}}, {"id", LK_I64, {0}}};
    numbers *context = lki_calloc(sizeof *context, "numbers");
    *context = options;
    lk_dataset *dataset = lk_stream_dataset(&ops, fields, 3, context, .shuffle_buffer = shuffle_buffer);
    lkt_not_null(dataset);
    return dataset;
}

static lk_dataset *all_samples(void)
{
    return stream((numbers){SAMPLES, -1, false}, true, 0);
}

/* ---- Ranks as threads that agree as a run's ranks do ---- */

typedef struct meeting {
    pthread_barrier_t barrier;
    int64_t said[RANKS];
    int ranks;
} meeting;

typedef struct rank_context {
    meeting *with;
    int rank;
} rank_context;

static lk_status agree(void *pointer, int64_t own, int64_t *most)
{
    rank_context *self = pointer;
    self->with->said[self->rank] = own;
    pthread_barrier_wait(&self->with->barrier);
    *most = 0;
    for (int i = 0; i < self->with->ranks; i++)
        if (self->with->said[i] > *most) *most = self->with->said[i];
    pthread_barrier_wait(&self->with->barrier);
    return LK_OK;
}

typedef struct job {
    rank_context rank;
    lk_dataset *dataset; /* a hold of its own */
    int workers;
    int64_t batch_size, first; /* the batch to begin at */
    bool train, collates;
    int64_t *ids, *counts; /* what was seen: ids, and samples of each batch; enough room */
    int64_t id_count, batch_count, padding, shapes;
} job;

static void check_collated(const lk_batch *batch)
{
    const lk_tensor *features = lk_batch_get(batch, "features"), *mask = lk_batch_get(batch, "features_mask");
    const int64_t *lengths = lk_batch_get(batch, "features_lengths")->data,
                  *ids = lk_batch_get(batch, "id")->data;
    int64_t width = features->shape.dim[1], longest = 0;
    assert_int_equal(mask->shape.dim[0], batch->count);
    assert_int_equal(mask->shape.dim[1], width);
    for (int64_t i = 0; i < batch->count; i++) {
        assert_int_equal(lengths[i], length_of(ids[i]));
        if (lengths[i] > longest) longest = lengths[i];
        for (int64_t t = 0; t < width; t++) {
            int64_t expected = t < lengths[i] ? ids[i] + t : 99;
            assert_int_equal(((int64_t *)features->data)[i * width + t], expected);
            assert_int_equal(((bool *)mask->data)[i * width + t], t >= lengths[i]);
        }
    }
    assert_true(width >= longest && width % 8 == 0 && width <= LONGEST);
}

/* Ranks are processes, each with a default generator; here they share one. */
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void *run_rank(void *pointer)
{
    job *self = pointer;
    lk_transform_list none = {0};
    lk_loader *loader = lk_loader(
        self->dataset, .batch_size = self->batch_size, .num_workers = self->workers,
        .batch_transforms = self->collates ? lk_transforms(lk_pad_collate(.pad_values = {99})) : none);
    lkt_not_null(loader);
    if (self->train) lki_loader_set_agree(loader, agree, &self->rank);
    pthread_mutex_lock(&one_at_a_time);
    lkt_ok(
        lk_loader_begin(loader,
                        LK_OPTIONS(lk_pass_options, .rank = self->rank.rank, .world = self->rank.with->ranks,
                                   .train = self->train, .epoch = 1, .seed = 5),
                        NULL));
    if (self->first) lkt_ok(lk_loader_seek(loader, self->first));
    pthread_mutex_unlock(&one_at_a_time);
    for (lk_batch *batch;;) {
        lkt_ok(lk_loader_next(loader, &batch));
        if (!batch) break;
        assert_int_equal(batch->number, self->first + self->batch_count);
        const int64_t *ids = lk_batch_get(batch, "id")->data;
        memcpy(self->ids + self->id_count, ids, (size_t)batch->count * sizeof *ids);
        if (self->collates) check_collated(batch);
        self->counts[self->batch_count++] = batch->count;
        self->id_count += batch->count;
        self->padding += batch->padding;
    }
    lk_loader_free(loader);
    return NULL;
}

static job *run_ranks(int ranks, job like)
{
    static job jobs[RANKS];
    static meeting with;
    pthread_t threads[RANKS];
    with.ranks = ranks;
    pthread_barrier_init(&with.barrier, NULL, (unsigned)ranks);
    for (int i = 0; i < ranks; i++) {
        lki_free(jobs[i].ids);
        lki_free(jobs[i].counts);
        jobs[i] = like;
        jobs[i].rank = (rank_context){&with, i};
        jobs[i].dataset = lk_dataset_share(like.dataset);
        jobs[i].ids = lki_calloc(sizeof(int64_t) * 3 * SAMPLES, "ids");
        jobs[i].counts = lki_calloc(sizeof(int64_t) * 3 * SAMPLES, "counts");
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &jobs[i]), 0);
    }
    for (int i = 0; i < ranks; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&with.barrier);
    lk_dataset_free(like.dataset);
    return jobs;
}

/* How often each sample was seen; padding repeats some. */
static void count_samples(const job *jobs, int ranks, int *seen)
{
    memset(seen, 0, SAMPLES * sizeof *seen);
    for (int r = 0; r < ranks; r++)
        for (int64_t i = 0; i < jobs[r].id_count; i++) seen[jobs[r].ids[i]]++;
}

static void every_sample_once(void **state)
{
    static int seen[SAMPLES];
    (void)state;
    for (int train = 0; train <= 1; train++)
        for (int ranks = 1; ranks <= RANKS; ranks += 2)
            for (int workers = 0; workers <= WORKERS; workers += 4) {
                job *jobs = run_ranks(ranks, (job){.dataset = all_samples(),
                                                   .workers = workers,
                                                   .batch_size = 32,
                                                   .train = train,
                                                   .collates = true});
                int64_t padding = 0, twice = 0;
                count_samples(jobs, ranks, seen);
                for (int i = 0; i < SAMPLES; i++) {
                    assert_true(seen[i] >= 1);
                    twice += seen[i] - 1;
                }
                for (int r = 0; r < ranks; r++) {
                    padding += jobs[r].padding;
                    if (train) assert_int_equal(jobs[r].batch_count, jobs[0].batch_count);
                    if (train) assert_int_equal(jobs[r].id_count, jobs[0].id_count);
                }
                assert_int_equal(twice, padding);
                assert_int_equal(padding, train && ranks == 3 ? 1 : 0); /* 20,000 = 3 * 6,667 - 1 */
            }
}

/* ---- The same batches ---- */

typedef struct record {
    int64_t *ids, *counts, id_count, batch_count;
} record;

static record keep(const job *from)
{
    record out = {lki_calloc(sizeof(int64_t) * (size_t)(from->id_count + 1), "ids"),
                  lki_calloc(sizeof(int64_t) * (size_t)(from->batch_count + 1), "counts"), from->id_count,
                  from->batch_count};
    memcpy(out.ids, from->ids, sizeof(int64_t) * (size_t)from->id_count);
    memcpy(out.counts, from->counts, sizeof(int64_t) * (size_t)from->batch_count);
    return out;
}

/* What the first pass had from batch `first` on. */
static void assert_same_from(const record *whole, const job *part, int64_t first)
{
    int64_t skipped = 0;
    for (int64_t b = 0; b < first; b++) skipped += whole->counts[b];
    assert_int_equal(part->batch_count, whole->batch_count - first);
    assert_int_equal(part->id_count, whole->id_count - skipped);
    assert_memory_equal(part->ids, whole->ids + skipped, sizeof(int64_t) * (size_t)part->id_count);
    assert_memory_equal(part->counts, whole->counts + first, sizeof(int64_t) * (size_t)part->batch_count);
}

static void workers_and_restarts_change_nothing(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) { /* with skip, without it, with a shuffle buffer */
        numbers options = {4001, -1, false};
        int64_t buffer = kind == 2 ? 100 : 0;
        record whole[RANKS];
        job *jobs = run_ranks(
            RANKS, (job){.dataset = stream(options, kind != 1, buffer), .batch_size = 16, .train = true});
        for (int r = 0; r < RANKS; r++) whole[r] = keep(&jobs[r]);
        static const int64_t firsts[] = {0, 1, 40, 83};
        for (int f = 0; f < 4; f++) {
            jobs = run_ranks(RANKS, (job){.dataset = stream(options, kind != 1, buffer),
                                          .batch_size = 16,
                                          .train = true,
                                          .workers = WORKERS,
                                          .first = firsts[f]});
            for (int r = 0; r < RANKS; r++) assert_same_from(&whole[r], &jobs[r], firsts[f]);
        }
        if (kind == 2) assert_true(whole[0].ids[0] != 0 || whole[0].ids[1] != 3 || whole[0].ids[2] != 6);
        for (int r = 0; r < RANKS; r++) lki_free(whole[r].ids), lki_free(whole[r].counts);
    }
}

static void ranks_without_samples_repeat(void **state)
{
    (void)state;
    job *jobs = run_ranks(
        RANKS, (job){.dataset = stream((numbers){10, -1, true}, true, 0), .batch_size = 4, .train = true});
    static const int64_t own[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(jobs[r].batch_count, 3);
        assert_int_equal(jobs[r].counts[2], 2);
        assert_memory_equal(jobs[r].ids, own, sizeof own); /* of the whole stream, as the shard is empty */
        assert_int_equal(jobs[r].padding, r ? 10 : 0);
    }
    jobs = run_ranks(
        2, (job){.dataset = stream((numbers){3, -1, false}, true, 0), .batch_size = 4, .train = true});
    assert_memory_equal(jobs[0].ids, ((int64_t[]){0, 2}), 2 * sizeof(int64_t));
    assert_memory_equal(jobs[1].ids, ((int64_t[]){1, 1}), 2 * sizeof(int64_t));
    jobs = run_ranks(RANKS, (job){.dataset = stream((numbers){10, -1, true}, true, 0), .batch_size = 4});
    assert_int_equal(jobs[0].batch_count, 3); /* evaluated once each */
    assert_int_equal(jobs[1].batch_count, 0);
}

static void a_saved_pass_goes_on(void **state)
{
    (void)state;
    lk_loader_state saved;
    int64_t ids[3][8];
    for (int workers = 0; workers <= 2; workers += 2) {
        lk_loader *loader = lk_loader(stream((numbers){50, -1, false}, true, 7), .batch_size = 8,
                                      .num_workers = workers, .drop_last = true);
        lk_loader *other =
            lk_loader(stream((numbers){50, -1, false}, true, 7), .batch_size = 8, .drop_last = true);
        lk_batch *batch;
        int64_t count = 0;
        bool has_next;
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = 3), NULL));
        for (int b = 0; b < 2; b++) lkt_ok(lk_loader_next(loader, &batch));
        lkt_ok(lki_loader_has_next(loader, &has_next));
        assert_true(has_next);
        lk_loader_save(loader, &saved); /* what was looked at was not taken */
        lkt_ok(lk_loader_restore(other, &saved, NULL));
        lkt_ok(lk_loader_next(loader, &batch));
        memcpy(ids[0], lk_batch_get(batch, "id")->data, sizeof ids[0]);
        lkt_ok(lk_loader_next(other, &batch));
        memcpy(ids[1], lk_batch_get(batch, "id")->data, sizeof ids[1]);
        assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
        for (; batch; count++) lkt_ok(lk_loader_next(other, &batch));
        assert_int_equal(count, 4); /* batches 2 to 5: 50 samples make 6 whole batches */
        lk_loader_free(loader);
        lk_loader_free(other);
    }
}

static void transforms_reach_streams(void **state)
{
    (void)state;
    lk_dataset *dataset =
        lk_transformed(stream((numbers){20, -1, false}, true, 0), lk_transforms(lk_one_hot(20, .key = "id")));
    lkt_not_null(dataset);
    lk_loader *loader = lk_loader(dataset, .batch_size = 6, .num_workers = 3);
    lkt_ok(lk_loader_begin(loader, NULL, NULL));
    lk_batch *batch;
    int64_t seen = 0;
    for (;;) {
        lkt_ok(lk_loader_next(loader, &batch));
        if (!batch) break;
        const float *hot = lk_batch_get(batch, "id")->data;
        for (int64_t i = 0; i < batch->count; i++, seen++) assert_true(hot[i * 20 + seen] == 1);
    }
    assert_int_equal(seen, 20);
    lk_loader_free(loader);
}

/* ---- Refusals ---- */

static void refuse(const void *made, const char *fragment)
{
    if (made) fail_msg("\"%s\" was expected", fragment);
    lkt_contains(lk_error(), fragment);
}

static void what_needs_a_length_is_refused(void **state)
{
    (void)state;
    int64_t zero = 0;
    refuse(lk_loader(all_samples(), .shuffle = true), "shuffle: the dataset is a stream");
    refuse(lk_loader(all_samples(), .sampler = lk_sequential_sampler(4)), "sampler: the dataset is a stream");
    refuse(lk_loader(all_samples(), .raw = true), "raw: the dataset is a stream");
    refuse(lk_subset(all_samples(), &zero, 1), "subset: the dataset is a stream");
    refuse(lk_concat(all_samples(), all_samples()), "concat: the dataset is a stream");
    lk_dataset *dataset = all_samples();
    assert_true(lk_dataset_length(dataset) == LK_LENGTH_UNKNOWN);
    lkt_fails(lk_dataset_gather(dataset, NULL, &zero, 1, NULL), LK_ERR_UNSUPPORTED,
              "gather: the dataset is a stream");
    lk_dataset_free(dataset);
    lk_loader *loader = lk_loader(stream((numbers){0, -1, false}, true, 0));
    lk_batch *batch;
    lk_pass_size size;
    lkt_ok(lk_loader_begin(loader, NULL, &size));
    assert_true(size.batch_count == LK_LENGTH_UNKNOWN);
    lkt_fails(lk_loader_next(loader, &batch), LK_ERR_INVALID, "is empty: its stream has no batch");
    lkt_fails(lki_loader_set_shares(loader, 2), LK_ERR_UNSUPPORTED, "shards: loader reads a stream");
    lk_loader_free(loader);
    const lk_stream_ops none = {LK_SIZE(lk_stream_ops)};
    const lk_field field = {"x", LK_F32, {0}};
    refuse(lk_stream_dataset(&none, &field, 1, NULL), "a stream needs open and next");
}

static void a_failing_stream_is_an_error(void **state)
{
    (void)state;
    for (int workers = 0; workers <= WORKERS; workers += 2) {
        lk_loader *loader =
            lk_loader(stream((numbers){100, 37, false}, true, 0), .batch_size = 10, .num_workers = workers);
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (int b = 0; b < 3; b++) lkt_ok(lk_loader_next(loader, &batch));
        lkt_fails(lk_loader_next(loader, &batch), LK_ERR_IO, "loader, batch 3");
        lkt_contains(lk_error(), "next");
        lk_loader_free(loader);
    }
}

/* ---- Collating ---- */

static void collating_is_checked(void **state)
{
    (void)state;
    refuse(lk_pad_collate(.multiple = -1), "multiple");
    refuse(lk_loader(all_samples(), .batch_transforms = lk_transforms(lk_pad_collate(.keys = {"words"}))),
           "no field \"words\"");
    refuse(lk_loader(all_samples(), .batch_transforms = lk_transforms(lk_pad_collate(.keys = {"id"}))),
           "is a single number");
    lk_tensor *x = lk_tensor_full(LK_F32, LK_SHAPE(4, 6, 2), 3),
              *lengths = lk_tensor_full(LK_I64, LK_SHAPE(4), 2);
    lk_tensor_set(lengths, 3, 7);
    lk_dataset *dataset = lk_tensor_dataset({"x", x}, {"x_lengths", lengths});
    lk_loader *loader = lk_loader(
        dataset, .batch_size = 3,
        .batch_transforms = lk_transforms(lk_pad_collate(.keys = {"x"}, .multiple = 3, .pad_values = {-1})));
    lk_batch *batch;
    lkt_ok(lk_loader_begin(loader, NULL, NULL));
    lkt_ok(lk_loader_next(loader, &batch));
    lk_tensor *padded = lk_batch_get(batch, "x");
    assert_true(lk_shape_equal(padded->shape, LK_SHAPE(3, 3, 2)));
    static const float row[] = {3, 3, 3, 3, -1, -1};
    for (int i = 0; i < 3; i++) assert_memory_equal((float *)padded->data + 6 * i, row, sizeof row);
    lkt_fails(lk_loader_next(loader, &batch), LK_ERR_RANGE, "has the length 7, expected 0 to 6");
    lkt_fails(lki_loader_set_shares(loader, 2), LK_ERR_UNSUPPORTED,
              "pad_collate makes batches of different shapes");
    lk_loader_free(loader);
}

/* ---- Lines ---- */

static void lines_as_a_stream(void **state)
{
    (void)state;
    char path[1200], letters[16] = "";
    static const char text[] = "a\n\nbb\r\nccc\ndddd\n\neeeee";
    snprintf(path, sizeof path, "%s/lines.txt", lkt_scratch_folder("stream"));
    lkt_ok(lki_write_file_atomic(path, text, strlen(text)));
    for (int rank = 0; rank < 2; rank++) {
        lk_loader *loader =
            lk_loader(lk_text_stream(path, lk_byte_tokenizer(), 8), .batch_size = 2, .num_workers = 1,
                      .batch_transforms = lk_transforms(lk_pad_collate(.multiple = 1)));
        lkt_not_null(loader);
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .rank = rank, .world = 2), NULL));
        for (;;) {
            lkt_ok(lk_loader_next(loader, &batch));
            if (!batch) break;
            const lk_tensor *features = lk_batch_get(batch, "features");
            for (int64_t i = 0; i < batch->count; i++) {
                char letter[2] = {(char)((int64_t *)features->data)[i * features->shape.dim[1]], 0};
                strcat(letters, letter);
            }
        }
        lk_loader_free(loader);
    }
    assert_string_equal(letters, "acebd");
    refuse(lk_text_stream("nowhere.txt", lk_byte_tokenizer(), 8), "nowhere.txt: No such file");
    refuse(lk_text_stream(path, lk_byte_tokenizer(), 8, .shuffle_buffer = -1), "shuffle_buffer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_once),
        cmocka_unit_test(workers_and_restarts_change_nothing),
        cmocka_unit_test(ranks_without_samples_repeat),
        cmocka_unit_test(a_saved_pass_goes_on),
        cmocka_unit_test(transforms_reach_streams),
        cmocka_unit_test(what_needs_a_length_is_refused),
        cmocka_unit_test(a_failing_stream_is_an_error),
        cmocka_unit_test(collating_is_checked),
        cmocka_unit_test(lines_as_a_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
