/* One suite that every dataset passes: what the ops promise, whoever implements it. */
#include "lktest.h"

#include <lockstep/data.h>
#include <lockstep/text.h>
#include <lockstep/vision.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "data/dataset.h"

#include <pthread.h>
#include <sys/stat.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/data/"

static char scratch[1024];

/* ---- One of each ---- */

static lk_dataset *tensors(void)
{
    lk_manual_seed(5);
    return lk_tensor_dataset({"features", lk_rand(LK_SHAPE(23, 3, 8, 8))},
                             {"targets", lk_tensor_full(LK_I64, LK_SHAPE(23), 2)});
}

static lk_dataset *digits(void)
{
    return lk_synthetic_digits(.count = 31);
}

static lk_dataset *npy(void)
{
    return lk_npy_dataset({"features", GOLDEN "x.npy"}, {"targets", GOLDEN "y.npy"});
}

static lk_dataset *csv(void)
{
    char path[1200];
    static const char text[] = "a,b,c\n1,2,3\n4,5,6\n7,8,9\n";
    snprintf(path, sizeof path, "%s/table.csv", scratch);
    lkt_ok(lki_write_file_atomic(path, text, strlen(text)));
    return lk_csv_dataset(path);
}

static lk_dataset *windows(void)
{
    return lk_text_dataset(LK_SOURCE_DIR "/examples/rhyme.txt", lk_byte_tokenizer(), 16, .random = true,
                           .count = 40);
}

static lk_dataset *lines(void)
{
    return lk_text_lines(LK_SOURCE_DIR "/examples/rhyme.txt", lk_byte_tokenizer(), 30, .truncate = true,
                         .next_token = true);
}

static lk_dataset *subset(void)
{
    static const int64_t some[] = {30, 2, 2, 17};
    return lk_subset(digits(), some, 4);
}

static lk_dataset *concatenation(void)
{
    return lk_concat(digits(), subset(), digits());
}

static lk_dataset *augmented(void)
{
    return lk_transformed(
        tensors(), lk_transforms(lk_random_affine(.degrees = 40), lk_random_crop(7, .padding = 1),
                                 lk_random_horizontal_flip(), lk_normalize(.mean = {.5f}), lk_one_hot(3)));
}

static lk_dataset *subset_of_augmented(void)
{
    static const int64_t some[] = {3, 1, 4, 1, 5};
    return lk_subset(augmented(), some, 5);
}

/* Every transform of pictures, in groups too. */
static lk_dataset *pictures(void)
{
    lk_dataset *parts[2];
    const double lengths[] = {.75, .25};
    if (lk_random_split(tensors(), lengths, 2, parts, .seed = 3)) return NULL;
    lk_dataset_free(parts[1]);
    return lk_transformed(
        parts[0],
        lk_transforms(lk_resize(12), lk_random_resized_crop(9),
                      lk_random_choice(lk_transforms(
                          lk_random_rotation(-20, 20),
                          lk_compose(lk_transforms(lk_pad_picture(.left = 2), lk_center_crop(9))))),
                      lk_random_apply(lk_transforms(lk_color_jitter(.brightness = {.4}, .hue = {.1}),
                                                    lk_gaussian_blur(3))),
                      lk_random_order(lk_transforms(lk_random_invert(), lk_random_solarize(.5),
                                                    lk_random_posterize(4), lk_random_autocontrast())),
                      lk_random_grayscale(), lk_random_equalize(), lk_random_adjust_sharpness(2),
                      lk_random_erasing(.random = true)));
}

static const struct {
    const char *name;
    lk_dataset *(*make)(void);
} kinds[] = {
    {"tensors", tensors},
    {"digits", digits},
    {"npy", npy},
    {"csv", csv},
    {"windows", windows},
    {"lines", lines},
    {"subset", subset},
    {"concat", concatenation},
    {"transformed", augmented},
    {"subset of transformed", subset_of_augmented},
    {"pictures", pictures},
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

/* ---- Reading a whole dataset, in blocks of `block` samples, backwards or not ---- */

typedef struct copy {
    int field_count;
    char *fields[LK_MAX_FIELDS];
    size_t nbytes[LK_MAX_FIELDS]; /* of one sample */
} copy;

static copy read_all(lk_dataset *dataset, lk_pass pass, int64_t block, bool backwards)
{
    copy all = {.field_count = lk_dataset_field_count(dataset)};
    int64_t length = lk_dataset_length(dataset), indices[64];
    char *parts[LK_MAX_FIELDS];
    for (int f = 0; f < all.field_count; f++) {
        all.nbytes[f] = lki_field_nbytes(lk_dataset_field(dataset, f));
        all.fields[f] = lki_calloc(all.nbytes[f] * (size_t)length, "a copy");
        parts[f] = lki_calloc(all.nbytes[f] * (size_t)block, "a part");
    }
    for (int64_t begin = 0; begin < length; begin += block) {
        int64_t count = length - begin < block ? length - begin : block;
        for (int64_t i = 0; i < count; i++) indices[i] = backwards ? length - 1 - begin - i : begin + i;
        lkt_ok(lk_dataset_gather(dataset, &pass, indices, count, (void **)parts));
        for (int f = 0; f < all.field_count; f++)
            for (int64_t i = 0; i < count; i++)
                memcpy(all.fields[f] + (size_t)indices[i] * all.nbytes[f],
                       parts[f] + (size_t)i * all.nbytes[f], all.nbytes[f]);
    }
    for (int f = 0; f < all.field_count; f++) lki_free(parts[f]);
    return all;
}

static void free_copy(copy *all)
{
    for (int f = 0; f < all->field_count; f++) lki_free(all->fields[f]);
}

static void assert_same(const copy *a, const copy *b, int64_t length)
{
    for (int f = 0; f < a->field_count; f++)
        assert_memory_equal(a->fields[f], b->fields[f], a->nbytes[f] * (size_t)length);
}

static void blocks_and_order_do_not_matter(void **state)
{
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        lk_dataset *dataset = kinds[k].make();
        lkt_not_null(dataset);
        int64_t length = lk_dataset_length(dataset);
        assert_true(length > 0);
        lk_pass pass = {.seed = 9, .epoch = 4};
        copy one_by_one = read_all(dataset, pass, 1, false);
        copy in_blocks = read_all(dataset, pass, 7, false), backwards = read_all(dataset, pass, 64, true);
        assert_same(&one_by_one, &in_blocks, length);
        assert_same(&one_by_one, &backwards, length);
        free_copy(&one_by_one);
        free_copy(&in_blocks);
        free_copy(&backwards);
        lk_dataset_free(dataset);
    }
}

static void fields_are_described(void **state)
{
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        lk_dataset *dataset = kinds[k].make();
        int count = lk_dataset_field_count(dataset);
        assert_in_range(count, 1, LK_MAX_FIELDS);
        for (int f = 0; f < count; f++) {
            const lk_field *field = lk_dataset_field(dataset, f);
            assert_int_equal(lk_dataset_find_field(dataset, field->name), f);
            lk_storage storage;
            if (lk_dataset_storage(dataset, f, &storage)) assert_non_null(storage.data);
        }
        assert_null(lk_dataset_field(dataset, count));
        assert_null(lk_dataset_field(dataset, -1));
        assert_int_equal(lk_dataset_find_field(dataset, "no such field"), -1);
        int64_t beyond[] = {lk_dataset_length(dataset)}, before[] = {-1};
        lkt_fails(lk_dataset_gather(dataset, &(lk_pass){0}, beyond, 1, NULL), LK_ERR_RANGE, "samples");
        lkt_fails(lk_dataset_gather(dataset, &(lk_pass){0}, before, 1, NULL), LK_ERR_RANGE, "samples");
        lk_dataset_free(dataset);
    }
}

/* ---- Many threads at once ---- */

typedef struct reader {
    lk_dataset *dataset; /* a hold of its own */
    const copy *expected;
    bool same;
} reader;

static void *read_often(void *argument)
{
    reader *self = argument;
    self->same = true;
    int64_t length = lk_dataset_length(self->dataset);
    for (int round = 0; round < 5; round++) {
        copy mine = read_all(self->dataset, (lk_pass){.seed = 1, .epoch = 1}, 1 + round, round % 2);
        for (int f = 0; f < mine.field_count; f++)
            self->same = self->same && memcmp(mine.fields[f], self->expected->fields[f],
                                              mine.nbytes[f] * (size_t)length) == 0;
        free_copy(&mine);
    }
    lk_dataset_free(self->dataset);
    return NULL;
}

static void threads_may_read(void **state)
{
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        lk_dataset *dataset = kinds[k].make();
        copy expected = read_all(dataset, (lk_pass){.seed = 1, .epoch = 1}, 5, false);
        pthread_t threads[3];
        reader readers[3];
        for (int t = 0; t < 3; t++) {
            readers[t] = (reader){lk_dataset_share(dataset), &expected, false};
            assert_int_equal(pthread_create(&threads[t], NULL, read_often, &readers[t]), 0);
        }
        lk_dataset_free(dataset); /* the threads hold it */
        for (int t = 0; t < 3; t++) {
            pthread_join(threads[t], NULL);
            if (!readers[t].same) fail_msg("%s: a thread read something else", kinds[k].name);
        }
        free_copy(&expected);
    }
}

static void loaders_agree(void **state)
{
    (void)state;
    for (int k = 0; k < KIND_COUNT; k++) {
        lk_dataset *dataset = kinds[k].make();
        copy expected = read_all(dataset, (lk_pass){.seed = 77, .epoch = 2}, 5, false);
        for (int workers = 0; workers <= 2; workers += 2) {
            lk_loader *loader = lk_loader(lk_dataset_share(dataset), .batch_size = 4, .shuffle = true,
                                          .num_workers = workers);
            lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = 2, .seed = 77), NULL));
            for (lk_batch *batch;;) {
                lkt_ok(lk_loader_next(loader, &batch));
                if (!batch) break;
                for (int f = 0; f < batch->field_count; f++)
                    for (int64_t i = 0; i < batch->count; i++)
                        assert_memory_equal(
                            (char *)batch->fields[f].tensor.data + (size_t)i * expected.nbytes[f],
                            expected.fields[f] + (size_t)batch->indices[i] * expected.nbytes[f],
                            expected.nbytes[f]);
            }
            lk_loader_free(loader);
        }
        free_copy(&expected);
        lk_dataset_free(dataset);
    }
}

/* Every allocation of every constructor may fail: an error, no crash, no leak. */
static void out_of_memory(void **state)
{
    (void)state;
    static const size_t limits[] = {1, 16, 40, 64, 100, 150, 200, 300, 400, 600, 1000, 2000, 5000, 20000};
    for (int k = 0; k < KIND_COUNT; k++)
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            if (kinds[k].make == csv) continue; /* its maker writes a file, which needs memory too */
            lki_set_allocation_limit(limits[i]);
            lk_loader *loader = lk_loader(kinds[k].make(), .batch_size = 4, .shuffle = true);
            lk_status status = loader ? lk_loader_begin(loader, NULL, NULL) : LK_ERR_NOMEM;
            lk_batch *batch = NULL;
            if (status == LK_OK) status = lk_loader_next(loader, &batch);
            lki_set_allocation_limit(0);
            if (status != LK_OK) lkt_contains(lk_error(), "out of memory");
            lk_loader_free(loader);
        }
}

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "%s", lkt_scratch_folder("data_conformance"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_and_order_do_not_matter),
        cmocka_unit_test(fields_are_described),
        cmocka_unit_test(threads_may_read),
        cmocka_unit_test(loaders_agree),
        cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, make_scratch, NULL);
}
