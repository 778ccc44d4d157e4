/* Synthetic digits: the same bytes everywhere, ten classes, and as hard as they should be for the nearest
 * class mean. */
#include "lktest.h"

#include <lockstep/data.h>

#include "base/memory.h"
#include "data/file.h"

enum { AREA = 784 };

static const uint8_t *stored(const lk_dataset *dataset, int field)
{
    lk_storage storage;
    assert_true(lk_dataset_storage(dataset, field, &storage));
    return storage.data;
}

/* LOCKSTEP_DUMP_DIGITS=folder writes what tests/oracle/data_digits.py trains on. */
static void dump(const lk_dataset *dataset, const char *name)
{
    const char *folder = getenv("LOCKSTEP_DUMP_DIGITS");
    if (!folder) return;
    char path[1200];
    snprintf(path, sizeof path, "%s/%s.bin", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(stored(dataset, 1), 1, (size_t)lk_dataset_length(dataset), file);
    fwrite(stored(dataset, 0), AREA, (size_t)lk_dataset_length(dataset), file);
    fclose(file);
}

static void the_same_bytes_everywhere(void **state)
{
    (void)state;
    char sum[65];
    lk_dataset *test = lk_synthetic_digits(), *train = lk_synthetic_digits(.train = true);
    lkt_not_null(test);
    lkt_not_null(train);
    dump(test, "test");
    dump(train, "train");
    assert_int_equal(lk_dataset_length(test), 2000);
    assert_int_equal(lk_dataset_length(train), 10000);
    lki_sha256_hex(sum, stored(test, 0), 2000 * AREA);
    assert_string_equal(sum, "0f59a9bf5efc77322f70b8d3dcd046e449943bbe7e7525ee282af8791373393c");
    lki_sha256_hex(sum, stored(train, 0), 10000 * AREA);
    assert_string_equal(sum, "2bae4dcc14a57baddff4f52e6d73fc85ad3c1c464c0f19d714d2f1aa6cbce177");
    lk_dataset *other = lk_synthetic_digits(.seed = 1);
    assert_memory_not_equal(stored(other, 0), stored(test, 0), AREA);
    /* More of the same: the first ones do not change. */
    lk_dataset *more = lk_synthetic_digits(.count = 2500);
    assert_memory_equal(stored(more, 0), stored(test, 0), 2000 * AREA);
    lk_dataset_free(other);
    lk_dataset_free(more);
    lk_dataset_free(test);
    lk_dataset_free(train);
    assert_null(lk_synthetic_digits(.count = -1));
}

static void ten_classes_that_can_be_told_apart(void **state)
{
    (void)state;
    lk_dataset *train = lk_synthetic_digits(.train = true), *test = lk_synthetic_digits();
    double(*mean)[AREA] = lki_calloc(10 * sizeof *mean, "class means");
    int count[10] = {0}, right = 0;
    const uint8_t *images = stored(train, 0), *labels = stored(train, 1);
    for (int i = 0; i < 10000; i++) {
        count[labels[i]]++;
        for (int j = 0; j < AREA; j++) mean[labels[i]][j] += images[i * AREA + j];
    }
    for (int k = 0; k < 10; k++) {
        assert_in_range(count[k], 800, 1200);
        for (int j = 0; j < AREA; j++) mean[k][j] /= count[k];
    }
    images = stored(test, 0);
    labels = stored(test, 1);
    for (int i = 0; i < 2000; i++) {
        int best = 0;
        double least = INFINITY;
        for (int k = 0; k < 10; k++) {
            double distance = 0;
            for (int j = 0; j < AREA; j++)
                distance += (images[i * AREA + j] - mean[k][j]) * (images[i * AREA + j] - mean[k][j]);
            if (distance < least) least = distance, best = k;
        }
        right += best == labels[i];
    }
    assert_in_range(right, 1300, 1900); /* neither noise nor a toy */
    lki_free(mean);
    lk_dataset_free(train);
    lk_dataset_free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_everywhere),
        cmocka_unit_test(ten_classes_that_can_be_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
