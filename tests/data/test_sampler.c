/* Samplers of Catalyst's kind: balance, mini-epochs, a user's own. Their draws are ours, so what they promise
 * is checked. */
#include "lktest.h"

#include <lockstep/data.h>

#include "data/sampler.h"

static lk_dataset *numbers(int64_t length)
{
    return lk_tensor_dataset({"features", lk_tensor_create(LK_F32, LK_SHAPE(length))});
}

static int draw(lk_sampler *sampler, uint64_t seed, int64_t *out)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lki_draw how = {.generator = &generator, .world = 1};
    int64_t count;
    lkt_ok(lki_sampler_draw_pass(sampler, &how, out, &count));
    return (int)count;
}

/* 12 samples: six of class 7, four of class -1, two of class 3. */
static const int64_t labels[] = {7, 7, -1, 7, 3, -1, 7, 7, -1, 3, 7, -1};

static void balance_class(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        int64_t given;
        int expected;
    } cases[] = {{"downsampling", 0, 2}, {"upsampling", 0, 6}, {NULL, 3, 3}, {NULL, 9, 9}};
    for (int c = 0; c < 4; c++) {
        lk_sampler *sampler =
            lk_balance_class_sampler(labels, 12, .mode = cases[c].mode, .samples_per_class = cases[c].given);
        int64_t order[64], again[64];
        assert_int_equal(lk_sampler_length(sampler), 3 * cases[c].expected);
        assert_int_equal(draw(sampler, 1, order), 3 * cases[c].expected);
        draw(sampler, 1, again);
        assert_memory_equal(order, again, sizeof *order * 3 * (size_t)cases[c].expected);
        draw(sampler, 2, again);
        assert_memory_not_equal(order, again, sizeof *order * 3 * (size_t)cases[c].expected);
        int of_class[3] = {0}, times[12] = {0};
        for (int i = 0; i < 3 * cases[c].expected; i++) {
            of_class[labels[order[i]] == 7 ? 0 : labels[order[i]] == -1 ? 1 : 2]++;
            times[order[i]]++;
        }
        for (int k = 0; k < 3; k++) assert_int_equal(of_class[k], cases[c].expected);
        for (int i = 0; i < 12; i++) /* a class that has enough is not repeated */
            if (labels[i] == 7 && cases[c].expected <= 6) assert_true(times[i] <= 1);
        lk_sampler_free(sampler);
    }
    assert_null(lk_loader(numbers(12), .sampler = lk_balance_class_sampler(labels, 12, .mode = "sideways")));
    lkt_contains(lk_error(), "found \"sideways\"");
    assert_null(lk_loader(numbers(12), .sampler = lk_balance_class_sampler(NULL, 0)));
}

static void batch_balance(void **state)
{
    (void)state;
    lk_loader *loader = lk_loader(
        numbers(12), .sampler = lk_batch_balance_class_sampler(labels, 12, 2, 3, .num_batches = 10));
    lkt_not_null(loader);
    assert_int_equal(lk_loader_batch_size(loader), 6);
    for (int world = 1; world <= 3; world++)
        for (int rank = 0; rank < world; rank++) {
            lk_pass_size size;
            lkt_ok(lk_loader_begin(
                loader, LK_OPTIONS(lk_pass_options, .world = world, .rank = rank, .train = true), &size));
            assert_int_equal(size.batch_count, (10 + world - 1) / world); /* whole batches are dealt out */
            for (lk_batch *batch;;) {
                lkt_ok(lk_loader_next(loader, &batch));
                if (!batch) break;
                assert_int_equal(batch->count, 6);
                int64_t first = labels[batch->indices[0]], second = labels[batch->indices[3]];
                assert_true(first != second);
                for (int i = 0; i < 6; i++)
                    assert_true(labels[batch->indices[i]] == (i < 3 ? first : second));
            }
        }
    lk_loader_free(loader);
    lk_sampler *by_default = lk_batch_balance_class_sampler(labels, 12, 2, 2);
    assert_int_equal(lk_sampler_length(by_default), 12);
    lk_sampler_free(by_default);
    assert_null(
        lk_loader(numbers(12), .batch_size = 4, .sampler = lk_batch_balance_class_sampler(labels, 12, 2, 3)));
    lkt_contains(lk_error(), "batches of 6, not 4");
    assert_null(lk_loader(numbers(12), .sampler = lk_batch_balance_class_sampler(labels, 12, 4, 2)));
    lkt_contains(lk_error(), "expected 2 to 3, found 4");
    static const int64_t lonely[] = {0, 0, 1};
    assert_null(lk_loader(numbers(3), .sampler = lk_batch_balance_class_sampler(lonely, 3, 2, 2)));
    lkt_contains(lk_error(), "at least 2 samples");
}

static void check_mini_epochs(lk_sampler *sampler, const int *counts, int pass_count)
{
    int64_t order[64];
    for (int pass = 0; pass < pass_count; pass++) {
        assert_int_equal(lki_sampler_next_length(sampler, 0, 1), counts[pass]);
        assert_int_equal(draw(sampler, (uint64_t)pass, order), counts[pass]);
    }
    lk_sampler_free(sampler);
}

static void mini_epochs(void **state)
{
    (void)state;
    check_mini_epochs(lk_mini_epoch_sampler(10, 4), (int[]){4, 4, 2, 4, 4, 2}, 6);
    check_mini_epochs(lk_mini_epoch_sampler(10, 4, .drop_last = true), (int[]){4, 4, 4}, 3);
    check_mini_epochs(lk_mini_epoch_sampler(8, 4), (int[]){4, 4, 4}, 3);
    check_mini_epochs(lk_mini_epoch_sampler(3, 5), (int[]){3, 3}, 2);
    check_mini_epochs(lk_mini_epoch_sampler(3, 5, .shuffle = "per_epoch"), (int[]){5, 5}, 2);
    int64_t order[10];
    lk_sampler *plain = lk_mini_epoch_sampler(10, 4);
    for (int pass = 0; pass < 3; pass++) draw(plain, 0, order);
    assert_true(order[0] == 8 && order[1] == 9);
    lk_sampler_free(plain);
    /* Per epoch: the mini-epochs of one epoch share one permutation, so together they see every sample once.
     */
    lk_sampler *shared = lk_mini_epoch_sampler(10, 4, .shuffle = "per_epoch");
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[10] = {0};
        for (int pass = 0; pass < 3; pass++) {
            int count = draw(shared, (uint64_t)(3 * epoch + pass), order);
            for (int i = 0; i < count; i++) seen[order[i]]++;
        }
        for (int i = 0; i < 10; i++) assert_int_equal(seen[i], 1);
    }
    lk_sampler_free(shared);
    assert_null(lk_loader(numbers(9), .sampler = lk_mini_epoch_sampler(9, 3, .shuffle = "sometimes")));
    assert_null(lk_loader(numbers(9), .sampler = lk_mini_epoch_sampler(9, 0)));
}

static lk_status backwards(void *context, lk_generator *generator, int64_t epoch, int64_t *indices,
                           int64_t capacity, int64_t *count)
{
    (void)generator;
    int64_t wanted = *(int64_t *)context;
    for (int64_t i = 0; i < wanted && i < capacity; i++) indices[i] = capacity - 1 - i - epoch;
    *count = wanted;
    return LK_OK;
}

static int freed;
static void count_free(void *context)
{
    (void)context;
    freed++;
}

static void users_own(void **state)
{
    (void)state;
    int64_t wanted = 3;
    lk_loader *loader = lk_loader(numbers(5), .batch_size = 2,
                                  .sampler = lk_custom_sampler(5, backwards, &wanted, count_free));
    lk_pass_size size;
    lk_batch *batch;
    lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = 1), &size));
    assert_true(size.batch_count == 2 && size.sample_count == 3);
    lkt_ok(lk_loader_next(loader, &batch));
    assert_true(batch->indices[0] == 3 && batch->indices[1] == 2);
    wanted = 6;
    lkt_fails(lk_loader_begin(loader, NULL, &size), LK_ERR_RANGE, "says it wrote 6");
    lk_loader_free(loader);
    assert_int_equal(freed, 1);
    assert_null(lk_loader(numbers(5), .sampler = lk_custom_sampler(5, NULL, &wanted, count_free)));
    assert_int_equal(freed, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balance_class),
        cmocka_unit_test(batch_balance),
        cmocka_unit_test(mini_epochs),
        cmocka_unit_test(users_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
