/* The loader: batches, threads, seeking, saving and restoring, and what it says when it cannot. */
#include "lktest.h"

#include <lockstep/data.h>

#include "base/memory.h"
#include "data/loader.h"

#include <sys/wait.h>
#include <unistd.h>

static lk_dataset *numbers(int64_t length)
{
    lk_tensor *features = lk_tensor_create(LK_F32, LK_SHAPE(length, 3));
    lk_tensor *targets = lk_tensor_create(LK_I64, LK_SHAPE(length));
    for (int64_t i = 0; i < length; i++) {
        for (int j = 0; j < 3; j++) ((float *)features->data)[3 * i + j] = (float)(10 * i + j);
        ((int64_t *)targets->data)[i] = i;
    }
    return lk_tensor_dataset({"features", features}, {"targets", targets});
}

static void check_batch(const lk_batch *batch)
{
    const lk_tensor *features = lk_batch_get(batch, "features"), *targets = lk_batch_get(batch, "targets");
    assert_true(features->shape.rank == 2 && features->shape.dim[0] == batch->count &&
                features->shape.dim[1] == 3);
    assert_true(targets->shape.rank == 1 && targets->shape.dim[0] == batch->count);
    assert_int_equal((uintptr_t)features->data % 64, 0);
    assert_int_equal((uintptr_t)targets->data % 64, 0);
    for (int64_t i = 0; i < batch->count; i++) {
        assert_int_equal(((int64_t *)targets->data)[i], batch->indices[i]);
        for (int j = 0; j < 3; j++)
            assert_true(((float *)features->data)[3 * i + j] == (float)(10 * batch->indices[i] + j));
    }
    assert_null(lk_batch_get(batch, "logits"));
}

static void batches_have_shapes_and_values(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 3; workers++) {
        lk_loader *loader = lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .num_workers = workers);
        for (int epoch = 0; epoch < 3; epoch++) {
            lk_pass_size size;
            lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = epoch), &size));
            assert_int_equal(size.batch_count, 7);
            lk_batch *batch;
            int64_t count = 0;
            for (;;) {
                lkt_ok(lk_loader_next(loader, &batch));
                if (!batch) break;
                check_batch(batch);
                count += batch->count;
            }
            assert_int_equal(count, 50);
            lkt_ok(lk_loader_next(loader, &batch)); /* past the end stays past the end */
            assert_null(batch);
        }
        lk_loader_free(loader);
    }
}

static void steady_state_allocates_nothing(void **state)
{
    (void)state;
    for (int workers = 0; workers <= 2; workers++) {
        lk_loader *loader = lk_loader(numbers(500), .batch_size = 8, .num_workers = workers);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        uint64_t before = lki_allocation_count();
        lk_batch *batch;
        do lkt_ok(lk_loader_next(loader, &batch));
        while (batch);
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = 1), NULL));
        assert_int_equal(lki_allocation_count(), before);
        void *memory;
        size_t nbytes;
        lki_loader_memory(loader, &memory, &nbytes);
        lkt_ok(lk_loader_next(loader, &batch));
        const char *data = lk_batch_get(batch, "features")->data;
        assert_true(data >= (char *)memory && data < (char *)memory + nbytes);
        lk_loader_free(loader);
    }
}

/* Leaving a pass in the middle, and beginning again, must not mix batches of two passes. */
static void passes_can_be_left_early(void **state)
{
    (void)state;
    lk_loader *loader = lk_loader(numbers(100), .batch_size = 4, .shuffle = true, .num_workers = 2);
    for (int epoch = 0; epoch < 50; epoch++) {
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = epoch), NULL));
        for (int i = 0; i < epoch % 5; i++) {
            lk_batch *batch;
            lkt_ok(lk_loader_next(loader, &batch));
            assert_int_equal(batch->number, i);
            check_batch(batch);
        }
    }
    lk_loader_free(loader);
}

static void read_rest(lk_loader *loader, int64_t *order, int64_t *count)
{
    lk_batch *batch;
    *count = 0;
    for (;;) {
        lkt_ok(lk_loader_next(loader, &batch));
        if (!batch) return;
        check_batch(batch);
        memcpy(order + *count, batch->indices, (size_t)batch->count * sizeof *order);
        *count += batch->count;
    }
}

static void seek_within_a_pass(void **state)
{
    (void)state;
    int64_t whole[64], part[64], whole_count, part_count;
    for (int workers = 0; workers <= 2; workers += 2) {
        lk_loader *loader = lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .num_workers = workers);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        lkt_fails(lk_loader_seek(loader, 8), LK_ERR_RANGE, "batch 8 of a pass of 7");
        read_rest(loader, whole, &whole_count);
        lkt_fails(lk_loader_seek(loader, 1), LK_ERR_INVALID, "begun");
        lk_manual_seed(3);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        read_rest(loader, whole, &whole_count);
        lk_manual_seed(3);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        lkt_ok(lk_loader_seek(loader, 5));
        read_rest(loader, part, &part_count);
        assert_int_equal(part_count, 10);
        assert_memory_equal(part, whole + 40, 10 * sizeof *part);
        lk_loader_free(loader);
    }
}

/* Read `read` batches of the second pass, save, and let a fresh loader go on: it must see what the first
 * would have. */
static void check_resume(lk_loader *(*make)(void), int read, lk_pass_options options)
{
    int64_t expected[256], resumed[256], expected_count, resumed_count;
    lk_manual_seed(11);
    lk_loader *first = make();
    lk_batch *batch;
    lkt_ok(lk_loader_begin(first, &options, NULL));
    do lkt_ok(lk_loader_next(first, &batch));
    while (batch);
    options.epoch++;
    lkt_ok(lk_loader_begin(first, &options, NULL));
    for (int i = 0; i < read; i++) lkt_ok(lk_loader_next(first, &batch));
    lk_loader_state saved;
    lk_loader_save(first, &saved);
    lk_generator at_save = *lk_default_generator();
    read_rest(first, expected, &expected_count);
    options.epoch++;
    lkt_ok(lk_loader_begin(first, &options, NULL));
    int64_t next_epoch_count;
    read_rest(first, expected + expected_count, &next_epoch_count);
    lk_loader_free(first);

    lk_manual_seed(99);
    lk_loader *second = make();
    *lk_default_generator() = at_save;
    lkt_ok(lk_loader_restore(second, &saved, NULL));
    assert_memory_equal(lk_default_generator(), &at_save, sizeof at_save);
    read_rest(second, resumed, &resumed_count);
    assert_int_equal(resumed_count, expected_count);
    lkt_ok(lk_loader_begin(second, &options, NULL));
    read_rest(second, resumed + resumed_count, &next_epoch_count);
    assert_memory_equal(resumed, expected, (size_t)(expected_count + next_epoch_count) * sizeof *resumed);
    lk_loader_free(second);
}

static lk_loader *shuffled(void)
{
    return lk_loader(numbers(50), .batch_size = 8, .shuffle = true);
}

static lk_loader *shuffled_by_workers(void)
{
    return lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .num_workers = 2);
}

static lk_loader *seeded(void)
{
    return lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .seed = 5);
}

/* Seeded again for each loader, as in a process that starts anew. */
static lk_loader *by_a_users_generator(void)
{
    static lk_generator generator;
    lk_generator_seed(&generator, 3);
    return lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .generator = &generator);
}

static lk_loader *mini_epochs(void)
{
    return lk_loader(numbers(50), .batch_size = 4,
                     .sampler = lk_mini_epoch_sampler(50, 20, .shuffle = "per_epoch"));
}

static lk_loader *wrapped_mini_epochs(void)
{
    return lk_loader(numbers(50), .batch_size = 4,
                     .sampler = lk_distributed_sampler_wrapper(lk_mini_epoch_sampler(50, 20)));
}

static lk_loader *subset_sampled(void)
{
    static const int64_t some[] = {1, 2, 3, 5, 8, 13, 21, 34};
    return lk_loader(numbers(50), .batch_size = 2, .sampler = lk_subset_random_sampler(some, 8));
}

static void resume_anywhere(void **state)
{
    (void)state;
    lk_loader *(*const makers[])(void) = {
        shuffled,    shuffled_by_workers, seeded,        by_a_users_generator,
        mini_epochs, wrapped_mini_epochs, subset_sampled};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
        for (int read = 0; read <= 2; read++) {
            check_resume(makers[i], read, *LK_OPTIONS(lk_pass_options));
            check_resume(makers[i], read, *LK_OPTIONS(lk_pass_options, .world = 2, .rank = 1, .train = true));
        }
}

/* ---- A dataset written by a user ---- */

typedef struct squares {
    int64_t length, bad_index;
    int *freed;
} squares;

static int64_t squares_length(void *context)
{
    return ((squares *)context)->length;
}

static lk_status squares_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    (void)pass;
    const squares *self = context;
    if (index == self->bad_index) return lk_tensor_create(LK_F32, LK_SHAPE(-1)) ? LK_OK : LK_ERR_SHAPE;
    *(double *)slots[0] = (double)(index * index);
    return LK_OK;
}

static void squares_free(void *context)
{
    ++*((squares *)context)->freed;
}

static const lk_dataset_ops squares_ops = {LK_SIZE(lk_dataset_ops), .length = squares_length,
                                           .get = squares_get, .free = squares_free};

static void users_dataset(void **state)
{
    (void)state;
    int freed = 0;
    squares context = {.length = 20, .bad_index = -1, .freed = &freed};
    const lk_field field = {"features", LK_F64, {0}};
    lk_dataset *dataset = lk_dataset_create(&squares_ops, &field, 1, &context);
    lkt_not_null(dataset);
    lk_loader *first = lk_loader(lk_dataset_share(dataset), .batch_size = 6, .num_workers = 2);
    lk_loader *second = lk_loader(dataset, .batch_size = 7);
    for (int which = 0; which < 2; which++) {
        lk_loader *loader = which ? second : first;
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (;;) {
            lk_batch *batch;
            lkt_ok(lk_loader_next(loader, &batch));
            if (!batch) break;
            for (int64_t i = 0; i < batch->count; i++)
                assert_true(((double *)lk_batch_get(batch, "features")->data)[i] ==
                            (double)(batch->indices[i] * batch->indices[i]));
        }
    }
    lk_loader_free(first);
    assert_int_equal(freed, 0);
    lk_loader_free(second);
    assert_int_equal(freed, 1);
    /* A failure on a worker arrives with its sentence, and where. */
    context.bad_index = 13;
    for (int workers = 0; workers <= 2; workers++) {
        dataset = lk_dataset_create(&squares_ops, &field, 1, &context);
        lk_loader *loader = lk_loader(dataset, .batch_size = 5, .num_workers = workers, .name = "train");
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        lkt_ok(lk_loader_next(loader, &batch));
        lkt_ok(lk_loader_next(loader, &batch));
        lkt_fails(lk_loader_next(loader, &batch), LK_ERR_SHAPE,
                  "loader \"train\", batch 2: negative dimension");
        lk_loader_free(loader);
    }
}

static void errors(void **state)
{
    (void)state;
    int64_t beyond[] = {1, 99};
    assert_null(lk_loader(NULL, .batch_size = 4));
    assert_null(lk_loader(NULL, .sampler = lk_sequential_sampler(4)));
    assert_null(lk_loader(numbers(4), .batch_size = -2));
    lkt_contains(lk_error(), "batch_size: expected at least 1, found -2");
    assert_null(lk_loader(numbers(4), .num_workers = -1));
    assert_null(lk_loader(numbers(4), .sampler = lk_weighted_random_sampler(NULL, 0, 3)));
    lkt_contains(lk_error(), "weighted sampler: no weights");
    assert_null(lk_loader(numbers(4), .sampler = lk_random_sampler(0)));
    assert_null(lk_loader(numbers(4), .shuffle = true, .sampler = lk_random_sampler(4)));
    lk_loader *loader = lk_loader(numbers(4), .sampler = lk_subset_random_sampler(beyond, 2));
    lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_RANGE, "sample 99");
    lk_loader_free(loader);
    loader = lk_loader(numbers(0), .name = "train");
    lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_INVALID, "loader \"train\" is empty");
    lkt_ok(lk_loader_set_name(loader, "valid"));
    lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_INVALID, "loader \"valid\" is empty");
    lk_loader_free(loader);
    loader = lk_loader(numbers(5), .batch_size = 8, .drop_last = true);
    lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_INVALID, "5 samples make no batch of 8");
    for (int train = 0; train < 2; train++)
        for (int rank = 0; rank < 2; rank++)
            lkt_fails(
                lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .world = 2, .rank = rank, .train = train),
                                NULL),
                LK_ERR_INVALID,
                train ? "6 samples, shared by 2 ranks, make no batch of 8" : "5 samples, shared by 2 ranks,");
    lkt_fails(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .world = 2, .rank = 2), NULL),
              LK_ERR_INVALID, "rank 2");
    lk_loader_free(loader);
    lk_loader_state state_of_nothing = {0};
    loader = lk_loader(numbers(5));
    lkt_fails(lk_loader_restore(loader, &state_of_nothing, NULL), LK_ERR_FORMAT, "version 0");
    lk_loader_free(loader);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(3, 2)), *y = lk_tensor_create(LK_F32, LK_SHAPE(4));
    assert_null(lk_tensor_dataset({"features", x}, {"targets", y}));
    lkt_contains(lk_error(), "4 samples");
    assert_null(lk_tensor_dataset({"features", lk_tensor_create(LK_F32, LK_SHAPE(3))}, {"targets", NULL}));
}

static void out_of_memory(void **state)
{
    (void)state;
    lk_loader *loader = lk_loader(numbers(50), .batch_size = 50);
    lki_set_allocation_limit(700);
    lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_NOMEM, "out of memory");
    lki_set_allocation_limit(0);
    lkt_ok(lk_loader_begin(loader, NULL, NULL));
    lk_loader_free(loader);
}

static void subset_and_concat(void **state)
{
    (void)state;
    static const int64_t some[] = {4, 2, 9};
    lk_dataset *joined =
        lk_concat(lk_subset(numbers(10), some, 3), numbers(5), lk_subset(numbers(3), NULL, 0), numbers(2));
    lkt_not_null(joined);
    assert_int_equal(lk_dataset_length(joined), 10);
    static const int64_t expected[] = {4, 2, 9, 0, 1, 2, 3, 4, 0, 1};
    float features[30];
    int64_t targets[10], all[10];
    for (int i = 0; i < 10; i++) all[i] = i;
    void *places[] = {features, targets};
    lkt_ok(lk_dataset_gather(joined, &(lk_pass){0}, all, 10, places));
    assert_memory_equal(targets, expected, sizeof expected);
    for (int i = 0; i < 10; i++) assert_true(features[3 * i + 2] == (float)(10 * expected[i] + 2));
    all[0] = 10;
    lkt_fails(lk_dataset_gather(joined, &(lk_pass){0}, all, 10, places), LK_ERR_RANGE, "sample 10");
    lk_dataset_free(joined);
    assert_null(lk_subset(numbers(3), (int64_t[]){3}, 1));
    lkt_contains(lk_error(), "subset: sample 3");
    assert_null(lk_concat(numbers(3), lk_tensor_dataset({"other", lk_tensor_create(LK_F32, LK_SHAPE(2))})));
    lkt_contains(lk_error(), "other fields");
    assert_null(lk_concat(numbers(3), NULL));
}

/* A child has the loader of its parent but not the threads: it must neither wait for them nor disturb the
 * parent. */
static void forked_children_begin_anew(void **state)
{
#ifdef __SANITIZE_THREAD__
    print_message("skipped: the thread sanitizer does not follow threads of a forked child\n");
    skip();
#endif
    (void)state;
    for (int workers = 0; workers <= 2; workers += 2) {
        lk_loader *loader = lk_loader(numbers(400), .batch_size = 4, .shuffle = true, .num_workers = workers);
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (int i = 0; i < 10; i++) lkt_ok(lk_loader_next(loader, &batch));
#ifdef __SANITIZE_ADDRESS__
        usleep(200000); /* a thread that starts holds locks of the sanitizer's, which a child finds held */
#endif
        pid_t children[3];
        for (int c = 0; c < 3; c++) {
            children[c] = fork();
            if (children[c] != 0) continue;
            alarm(60);
            int64_t count = 0;
            lk_status status =
                c == 2 ? LK_OK
                       : lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .world = 2, .rank = c), NULL);
            while (status == LK_OK && c < 2) {
                status = lk_loader_next(loader, &batch);
                if (!batch) break;
                count += batch->count;
            }
            lk_loader_free(loader); /* the third child only frees it */
            _exit(status == LK_OK && count == (c == 2 ? 0 : 200) ? 0 : 1);
        }
        for (int c = 0; c < 3; c++) {
            int status;
            waitpid(children[c], &status, 0);
            assert_int_equal(status, 0);
        }
        int64_t rest[400], rest_count;
        read_rest(loader, rest, &rest_count);
        assert_int_equal(rest_count, 360);
        lk_loader_free(loader);
    }
}

/* How often each sample counts over all ranks: those that are no padding. */
static void count_samples(lk_loader *loader, int world, bool train, int *counted, int64_t *batches)
{
    for (int rank = 0; rank < world; rank++) {
        lk_pass_options pass = {LK_SIZE(lk_pass_options), .epoch = 2,     .rank = rank,
                                .world = world,           .train = train, .seed = 9};
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, &pass, NULL));
        batches[rank] = 0;
        for (;;) {
            lkt_ok(lk_loader_next(loader, &batch));
            if (!batch) break;
            batches[rank]++;
            assert_in_range(batch->padding, 0, batch->count);
            for (int64_t i = 0; i < batch->count - batch->padding; i++) counted[batch->indices[i]]++;
        }
    }
}

/* Ranks that train have as many batches each, some with samples that others have too: without that padding
 * each sample counts once, whoever deals them out. */
static void padding_is_known(void **state)
{
    (void)state;
    for (int length = 1; length <= 20; length++)
        for (int world = 1; world <= 8; world++)
            for (int kind = 0; kind < 3; kind++) {
                int counted[20] = {0};
                int64_t batches[8];
                lk_sampler *sampler = kind == 1 ? lk_distributed_sampler(length) : NULL;
                lk_loader *loader = lk_loader(numbers(length), .batch_size = 3, .sampler = sampler);
                count_samples(loader, world, kind < 2, counted, batches);
                for (int i = 0; i < length; i++) assert_int_equal(counted[i], 1);
                for (int r = 1; kind < 2 && r < world; r++) assert_int_equal(batches[r], batches[0]);
                lk_loader_free(loader);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_have_shapes_and_values),
        cmocka_unit_test(steady_state_allocates_nothing),
        cmocka_unit_test(passes_can_be_left_early),
        cmocka_unit_test(seek_within_a_pass),
        cmocka_unit_test(resume_anywhere),
        cmocka_unit_test(users_dataset),
        cmocka_unit_test(errors),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(subset_and_concat),
        cmocka_unit_test(padding_is_known),
        cmocka_unit_test(forked_children_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
