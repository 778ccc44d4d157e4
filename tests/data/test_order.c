/* The order of samples against PyTorch's own (tests/golden/data/order.txt), with and without worker threads.
 */
#include "lktest.h"

#include <lockstep/data.h>

#include "base/memory.h"

enum { MAX_ORDER = 1000 };

typedef struct golden {
    int64_t order[MAX_ORDER];
    int count;
    double next_rand;
} golden;

static golden load(const char *name)
{
    golden found = {0};
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/data/order.txt", "r");
    if (!file) fail_msg("no golden file");
    char line[16384];
    while (fgets(line, sizeof line, file)) {
        char *word = strtok(line, " \n");
        if (!word || strcmp(word, name) != 0) continue;
        while ((word = strtok(NULL, " \n")) && strcmp(word, "|") != 0)
            found.order[found.count++] = atoll(word);
        found.next_rand = atof(strtok(NULL, " \n"));
        fclose(file);
        return found;
    }
    fclose(file);
    fail_msg("no case %s", name);
    return found;
}

/* A dataset of the numbers 0..length-1. */
static lk_dataset *numbers(int64_t length)
{
    lk_tensor *tensor = lk_tensor_create(LK_I64, LK_SHAPE(length));
    for (int64_t i = 0; i < length; i++) ((int64_t *)tensor->data)[i] = i;
    return lk_tensor_dataset({"features", tensor});
}

static int read_pass(lk_loader *loader, lk_pass_options options, int64_t *order)
{
    lk_pass_size size;
    lkt_ok(lk_loader_begin(loader, &options, &size));
    lk_batch *batch = NULL;
    int count = 0, batches = 0;
    for (;;) {
        lkt_ok(lk_loader_next(loader, &batch));
        if (!batch) break;
        const int64_t *values = lk_batch_get(batch, "features")->data;
        assert_int_equal(batch->number, batches);
        for (int64_t i = 0; i < batch->count; i++) {
            assert_int_equal(values[i], batch->indices[i]);
            order[count++] = values[i];
        }
        batches++;
    }
    assert_int_equal(count, size.sample_count);
    assert_int_equal(batches, size.batch_count);
    return count;
}

static void check_case(const char *name, lk_loader *loader)
{
    lkt_not_null(loader);
    golden expected = load(name);
    int64_t order[MAX_ORDER];
    int count = read_pass(loader, *LK_OPTIONS(lk_pass_options), order);
    count += read_pass(loader, *LK_OPTIONS(lk_pass_options, .epoch = 1), order + count);
    assert_int_equal(count, expected.count);
    for (int i = 0; i < count; i++)
        if (order[i] != expected.order[i])
            fail_msg("%s: sample %d is %lld, PyTorch's is %lld", name, i, (long long)order[i],
                     (long long)expected.order[i]);
    lkt_close(lk_generator_f32(lk_default_generator()), expected.next_rand, 1e-7);
    lk_loader_free(loader);
    lk_manual_seed(7);
}

static void data_loader_orders(void **state)
{
    (void)state;
    lk_manual_seed(7);
    check_case("shuffle-workers0", lk_loader(numbers(103), .batch_size = 8, .shuffle = true));
    check_case("shuffle-workers2",
               lk_loader(numbers(103), .batch_size = 8, .shuffle = true, .num_workers = 3));
    check_case("plain-workers0", lk_loader(numbers(13), .batch_size = 4));
    check_case("plain-workers2", lk_loader(numbers(13), .batch_size = 4, .num_workers = 1));
    check_case("drop-last", lk_loader(numbers(103), .batch_size = 8, .shuffle = true, .drop_last = true));
    check_case("generator", lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .seed = 5));
    lk_generator generator;
    lk_generator_seed(&generator, 5);
    check_case("generator",
               lk_loader(numbers(50), .batch_size = 8, .shuffle = true, .generator = &generator));
}

static void sampler_orders(void **state)
{
    (void)state;
    int64_t subset[12];
    double weights[40];
    for (int i = 0; i < 12; i++) subset[i] = 3 + 4 * i;
    for (int i = 0; i < 40; i++) weights[i] = ((i * 37) % 11) / 3.0;
    lk_manual_seed(7);
    check_case("random-replacement", lk_loader(numbers(50), .sampler = lk_random_sampler(
                                                                50, .replacement = true, .num_samples = 70)));
    check_case("random-num-samples",
               lk_loader(numbers(10), .sampler = lk_random_sampler(10, .num_samples = 23)));
    check_case("subset",
               lk_loader(numbers(50), .batch_size = 8, .sampler = lk_subset_random_sampler(subset, 12)));
    check_case("weighted", lk_loader(numbers(40), .sampler = lk_weighted_random_sampler(weights, 40, 60)));
    check_case("weighted-once", lk_loader(numbers(40), .sampler = lk_weighted_random_sampler(
                                                           weights, 40, 20, .no_replacement = true)));
    check_case("weighted-single",
               lk_loader(numbers(40), .sampler = lk_weighted_random_sampler(weights, 40, 1)));
}

static void check_distributed(int64_t length, int world, int rank, bool drop)
{
    char name[64];
    snprintf(name, sizeof name, "distributed-%lld-%d-%d-%d", (long long)length, world, rank, drop);
    golden expected = load(name);
    int64_t order[MAX_ORDER];
    /* By hand ... */
    lk_sampler *sampler =
        lk_distributed_sampler(length, .num_replicas = world, .rank = rank, .drop_last = drop);
    lk_loader *loader = lk_loader(numbers(length), .batch_size = 2, .sampler = sampler);
    if (expected.count) {
        int count = read_pass(loader, *LK_OPTIONS(lk_pass_options), order);
        count += read_pass(
            loader, *LK_OPTIONS(lk_pass_options, .epoch = 1, .train = true, .world = world, .rank = rank),
            order + count);
        assert_int_equal(count, expected.count);
        assert_memory_equal(order, expected.order, sizeof *order * (size_t)count);
    }
    lk_loader_free(loader);
    if (drop) return;
    /* ... and as the loader shards a training pass by itself. */
    loader = lk_loader(numbers(length), .batch_size = 2);
    int count =
        read_pass(loader, *LK_OPTIONS(lk_pass_options, .train = true, .world = world, .rank = rank), order);
    count += read_pass(loader,
                       *LK_OPTIONS(lk_pass_options, .epoch = 1, .train = true, .world = world, .rank = rank),
                       order + count);
    assert_int_equal(count, expected.count);
    assert_memory_equal(order, expected.order, sizeof *order * (size_t)count);
    lk_loader_free(loader);
}

static void distributed_orders(void **state)
{
    (void)state;
    static const int64_t cases[][2] = {{10, 3}, {103, 4}, {2, 5}};
    for (int c = 0; c < 3; c++)
        for (int rank = 0; rank < cases[c][1]; rank++)
            for (int drop = 0; drop < 2; drop++) check_distributed(cases[c][0], (int)cases[c][1], rank, drop);
}

/* Every sample once, over all ranks, whatever the sizes. */
static void check_exact(int64_t length, int world, lk_sampler *(*sampler)(int64_t))
{
    int seen[256] = {0};
    int64_t order[MAX_ORDER], total = 0;
    for (int rank = 0; rank < world; rank++) {
        lk_manual_seed((uint64_t)rank); /* ranks may have drawn different numbers before */
        lk_loader *loader =
            lk_loader(numbers(length), .batch_size = 3, .sampler = sampler ? sampler(length) : NULL);
        lk_pass_size size;
        lk_pass_options options = {LK_SIZE(lk_pass_options), .world = world, .rank = rank, .epoch = 2};
        lkt_ok(lk_loader_size(loader, &options, &size));
        assert_int_equal(size.total_sample_count, length);
        int count = read_pass(loader, options, order);
        for (int i = 0; i < count; i++) seen[order[i]]++;
        total += count;
        lk_loader_free(loader);
    }
    assert_int_equal(total, length);
    for (int64_t i = 0; i < length; i++) assert_int_equal(seen[i], 1);
}

static lk_sampler *random_order(int64_t length)
{
    return lk_random_sampler(length);
}

static void evaluation_is_never_padded(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 10, 103};
    for (int i = 0; i < 5; i++)
        for (int world = 1; world <= 7; world++) {
            check_exact(lengths[i], world, NULL);
            check_exact(lengths[i], world, lk_sequential_sampler);
            check_exact(lengths[i], world, random_order);
        }
}

static void users_sampler_is_sharded_once(void **state)
{
    (void)state;
    int seen[20] = {0};
    int64_t order[MAX_ORDER], first[MAX_ORDER];
    for (int rank = 0; rank < 2; rank++) {
        lk_loader *loader = lk_loader(numbers(20), .sampler = lk_random_sampler(20));
        int count =
            read_pass(loader, *LK_OPTIONS(lk_pass_options, .world = 2, .rank = rank, .train = true), order);
        assert_int_equal(count, 10);
        for (int i = 0; i < count; i++) seen[order[i]]++;
        lk_loader_free(loader);
    }
    for (int i = 0; i < 20; i++) assert_int_equal(seen[i], 1);
    /* The explicit wrapper takes its rank from the pass and is left alone by the loader. */
    memset(seen, 0, sizeof seen);
    for (int rank = 0; rank < 2; rank++) {
        lk_sampler *wrapped = lk_distributed_sampler_wrapper(lk_sequential_sampler(20), .no_shuffle = true);
        lk_loader *loader = lk_loader(numbers(20), .sampler = wrapped);
        int count =
            read_pass(loader, *LK_OPTIONS(lk_pass_options, .world = 2, .rank = rank, .train = true), first);
        assert_int_equal(count, 10);
        for (int i = 0; i < count; i++) assert_int_equal(first[i], 2 * i + rank);
        lk_loader_free(loader);
    }
    /* In training without shuffling, the order is kept and dealt out. */
    lk_loader *loader = lk_loader(numbers(5), .no_shuffle = true);
    static const int64_t kept[] = {1, 3, 0};
    assert_int_equal(
        read_pass(loader, *LK_OPTIONS(lk_pass_options, .world = 2, .rank = 1, .train = true), order), 3);
    assert_memory_equal(order, kept, sizeof kept);
    lk_loader_free(loader);
}

static void large_permutation(void **state)
{
    (void)state;
    golden expected = load("large-randperm");
    int64_t *order = LKI_NEW_ARRAY(int64_t, 60000);
    lk_manual_seed(1);
    for (int pass = 0; pass < 3; pass++) {
        lk_randperm(order, 60000, lk_default_generator());
        assert_memory_equal(order, expected.order + 5 * pass, 5 * sizeof *order);
    }
    lkt_close(lk_generator_f32(lk_default_generator()), expected.next_rand, 1e-7);
    lki_free(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_loader_orders),
        cmocka_unit_test(sampler_orders),
        cmocka_unit_test(distributed_orders),
        cmocka_unit_test(evaluation_is_never_padded),
        cmocka_unit_test(users_sampler_is_sharded_once),
        cmocka_unit_test(large_permutation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
