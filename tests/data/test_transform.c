/* Transforms: what they compute, and that threads, ranks and order do not change what they draw. */
#include "lktest.h"

#include <lockstep/data.h>

#include "base/memory.h"
#include "data/keyed.h"
#include "data/transform.h"

#define GOLDEN LK_SOURCE_DIR "/tests/golden/data/"

enum { SIDE = 6, AREA = SIDE * SIDE };

/* `count` pictures (2, 6, 6) whose pixels are all different, with class labels. */
static lk_dataset *pictures(int64_t count)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, 2, SIDE, SIDE));
    lk_tensor *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < lk_tensor_count(x); i++) ((float *)x->data)[i] = (float)(i + 1);
    for (int64_t i = 0; i < count; i++) ((int64_t *)y->data)[i] = i % 3;
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static void get(lk_dataset *dataset, lk_pass pass, int64_t index, float *x, void *y)
{
    lkt_ok(lk_dataset_gather(dataset, &pass, &index, 1, (void *[]){x, y}));
}

static void to_tensor_and_normalize(void **state)
{
    (void)state;
    lk_tensor *x = lk_tensor_create(LK_U8, LK_SHAPE(1, 2, 3, 2));
    for (int i = 0; i < 12; i++) ((uint8_t *)x->data)[i] = (uint8_t)(20 * i);
    lk_dataset *dataset = lk_transformed(
        lk_tensor_dataset({"features", x}),
        lk_transforms(lk_to_tensor(), lk_normalize(.mean = {.5f, .25f}, .std = {.5f, 2}, .channels = 2)));
    lkt_not_null(dataset);
    assert_true(lk_shape_equal(lk_dataset_field(dataset, 0)->shape, LK_SHAPE(2, 2, 3)));
    float out[12];
    get(dataset, (lk_pass){0}, 0, out, NULL);
    for (int c = 0; c < 2; c++)
        for (int i = 0; i < 6; i++) {
            volatile float pixel = (float)(20 * (2 * i + c)) / 255.0f, centred = pixel - (c ? .25f : .5f);
            assert_true(out[6 * c + i] == centred / (c ? 2 : .5f));
        }
    lk_dataset_free(dataset);
}

static void flips_and_crops(void **state)
{
    (void)state;
    float plain[2 * AREA], out[2 * AREA];
    int64_t y;
    lk_dataset *dataset = pictures(3);
    get(dataset, (lk_pass){0}, 1, plain, &y);
    lk_dataset *mirrored =
        lk_transformed(lk_dataset_share(dataset), lk_transforms(lk_random_horizontal_flip(.p = 1)));
    get(mirrored, (lk_pass){0}, 1, out, &y);
    for (int i = 0; i < 2 * AREA; i++) assert_true(out[i] == plain[i / SIDE * SIDE + SIDE - 1 - i % SIDE]);
    lk_dataset_free(mirrored);
    lk_dataset *upside =
        lk_transformed(lk_dataset_share(dataset), lk_transforms(lk_random_vertical_flip(.p = 1)));
    get(upside, (lk_pass){0}, 1, out, &y);
    for (int i = 0; i < 2 * AREA; i++)
        assert_true(out[i] == plain[i / AREA * AREA + (SIDE - 1 - i % AREA / SIDE) * SIDE + i % SIDE]);
    lk_dataset_free(upside);
    /* A crop of (4, 3) is a window of the padded picture; over many epochs every corner occurs. */
    lk_dataset *cropped = lk_transformed(
        lk_dataset_share(dataset), lk_transforms(lk_random_crop(4, .width = 3, .padding = 1, .fill = -7)));
    assert_true(lk_shape_equal(lk_dataset_field(cropped, 0)->shape, LK_SHAPE(2, 4, 3)));
    int seen[5][6] = {{0}};
    for (int epoch = 0; epoch < 400; epoch++) {
        get(cropped, (lk_pass){1, epoch}, 1, out, &y);
        int matches = 0;
        for (int top = 0; top < 5; top++)
            for (int left = 0; left < 6; left++) {
                bool same = true;
                for (int c = 0; c < 2 && same; c++)
                    for (int i = 0; i < 12 && same; i++) {
                        int row = top + i / 3 - 1, column = left + i % 3 - 1;
                        bool inside = row >= 0 && row < SIDE && column >= 0 && column < SIDE;
                        same = out[12 * c + i] == (inside ? plain[c * AREA + row * SIDE + column] : -7);
                    }
                matches += same;
                seen[top][left] += same;
            }
        assert_int_equal(matches, 1);
    }
    for (int i = 0; i < 30; i++) assert_true(seen[i / 6][i % 6] > 0);
    lk_dataset_free(cropped);
    lk_dataset_free(dataset);
}

static void affine_is_torchs_grid_sample(void **state)
{
    (void)state;
    float image[20], out[20];
    for (int i = 0; i < 20; i++) image[i] = (float)((7 * i * i) % 256) / 255.0f;
    /* torch's theta works in units of half the width and height. */
    const double w = 4, h = 5;
    const double m[6] = {.8, -.4 * w / h, .1 * w / 2, .3 * h / w, .9, -.2 * h / 2};
    lki_affine_picture(image, out, 1, 5, 4, m, 0);
    FILE *file = fopen(GOLDEN "resize.txt", "r");
    double expected;
    for (int i = 0; i < 18; i++) assert_int_equal(fscanf(file, "%lf", &expected), 1); /* the first line */
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        lkt_close(out[i], expected, 1e-6);
    }
    fclose(file);
    /* Nothing asked for: nothing changed. */
    lk_dataset *same = lk_transformed(pictures(2), lk_transforms(lk_random_affine()));
    float picture[2 * AREA];
    int64_t y;
    get(same, (lk_pass){0}, 0, picture, &y);
    for (int i = 0; i < 2 * AREA; i++) assert_true(picture[i] == (float)(i + 1));
    lk_dataset_free(same);
}

static void cutout_holes(void **state)
{
    (void)state;
    lk_dataset *dataset = lk_transformed(pictures(50), lk_transforms(lk_cutout(3, .fill = -1)));
    float out[2 * AREA];
    int64_t y;
    for (int i = 0; i < 50; i++) {
        get(dataset, (lk_pass){0}, i, out, &y);
        int holes = 0;
        for (int j = 0; j < AREA; j++) {
            assert_int_equal(out[j] == -1, out[AREA + j] == -1);
            holes += out[j] == -1;
        }
        assert_true(holes == 9 || holes == 6 || holes == 4); /* whole, at an edge, in a corner */
    }
    lk_dataset_free(dataset);
}

static lk_loader *augmented(int workers)
{
    lk_dataset *dataset = lk_transformed(
        pictures(40),
        lk_transforms(lk_random_affine(.degrees = 30, .translate_x = .2, .scale_min = .8, .shear = 10),
                      lk_random_crop(6, .padding = 2), lk_random_horizontal_flip(), lk_cutout(2, .p = .5),
                      lk_one_hot(3)));
    return lk_loader(dataset, .batch_size = 8, .num_workers = workers,
                     .batch_transforms = lk_transforms(lk_mixup(), lk_cutmix()));
}

/* Whatever the number of workers, the same bits; another epoch or seed, other bits. */
static void workers_change_nothing(void **state)
{
    (void)state;
    enum { BATCH = 8 * 2 * AREA };
    float *reference = LKI_NEW_ARRAY(float, 5 * BATCH);
    for (int round = 0; round < 6; round++) {
        static const int workers[] = {0, 1, 2, 5, 0, 0};
        lk_loader *loader = augmented(workers[round]);
        lk_pass_options options = {LK_SIZE(lk_pass_options), .epoch = round == 4 ? 8 : 7,
                                   .seed = round == 5 ? 4 : 3};
        lkt_ok(lk_loader_begin(loader, &options, NULL));
        for (int b = 0; b < 5; b++) {
            lk_batch *batch;
            lkt_ok(lk_loader_next(loader, &batch));
            const float *x = lk_batch_get(batch, "features")->data;
            if (round == 0)
                memcpy(reference + b * BATCH, x, BATCH * sizeof *x);
            else if (round < 4)
                assert_memory_equal(reference + b * BATCH, x, BATCH * sizeof *x);
            else
                assert_memory_not_equal(reference + b * BATCH, x, BATCH * sizeof *x);
        }
        lk_loader_free(loader);
    }
    lki_free(reference);
}

static void mixed_batches(void **state)
{
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        lk_dataset *dataset = lk_transformed(pictures(32), lk_transforms(lk_one_hot(3)));
        lk_transform *mix = kind ? lk_cutmix() : lk_mixup(.alpha = 1);
        lk_loader *mixed =
            lk_loader(lk_dataset_share(dataset), .batch_size = 8, .batch_transforms = lk_transforms(mix));
        lk_loader *plain = lk_loader(dataset, .batch_size = 8);
        double total = 0;
        for (int epoch = 0; epoch < 20; epoch++) {
            lkt_ok(lk_loader_begin(mixed, LK_OPTIONS(lk_pass_options, .epoch = epoch), NULL));
            lkt_ok(lk_loader_begin(plain, LK_OPTIONS(lk_pass_options, .epoch = epoch), NULL));
            lk_batch *a, *b;
            for (;;) {
                lkt_ok(lk_loader_next(mixed, &a));
                lkt_ok(lk_loader_next(plain, &b));
                if (!a) break;
                const float *x = lk_batch_get(a, "features")->data,
                            *before = lk_batch_get(b, "features")->data;
                const float *y = lk_batch_get(a, "targets")->data;
                double sum = 0, sum_before = 0;
                for (int i = 0; i < 8; i++) lkt_close(y[3 * i] + y[3 * i + 1] + y[3 * i + 2], 1, 1e-6);
                for (int i = 0; i < 8 * 2 * AREA; i++) {
                    sum += x[i];
                    sum_before += before[i];
                    /* cutmix moves whole pixels within the batch */
                    if (kind)
                        assert_true(x[i] == floorf(x[i]) &&
                                    (int64_t)(x[i] - 1) % (2 * AREA) == i % (2 * AREA));
                }
                lkt_close(sum, sum_before, 1e-5); /* a permutation mixed in keeps the sum */
                total += fabs(x[0] - before[0]);
            }
        }
        assert_true(total > 0);
        lk_loader_free(mixed);
        lk_loader_free(plain);
    }
}

static void keyed_numbers_are_even(void **state)
{
    (void)state;
    int counts[10] = {0};
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        lki_keyed random = lki_keyed_make(42, 3, (uint64_t)i, 0);
        sum += lki_keyed_f64(&random);
        counts[lki_keyed_below(&random, 10)]++;
    }
    lkt_close(sum / 100000, .5, .005);
    for (int i = 0; i < 10; i++) assert_in_range(counts[i], 9600, 10400);
}

static void misfits(void **state)
{
    (void)state;
    assert_null(lk_transformed(NULL, lk_transforms(lk_to_tensor())));
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_cutout(0))));
    lkt_contains(lk_error(), "cutout");
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_to_tensor(.key = "images"))));
    lkt_contains(lk_error(), "to_tensor: the dataset has no field \"images\"");
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_random_crop(9))));
    lkt_contains(lk_error(), "a crop of 9x9 from a picture of 6x6");
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_cutout(2, .key = "targets"))));
    lkt_contains(lk_error(), "expected f32 (C, H, W), found i64");
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_mixup())));
    lkt_contains(lk_error(), "mixup acts on batches");
    assert_null(lk_transformed(pictures(1), lk_transforms(lk_random_horizontal_flip(.p = 1.5))));
    assert_null(lk_loader(pictures(1), .batch_transforms = lk_transforms(lk_mixup())));
    lkt_contains(lk_error(), "field \"targets\" is i64");
    assert_null(lk_loader(pictures(1), .batch_transforms = lk_transforms(lk_to_tensor())));
    lkt_contains(lk_error(), "acts on samples");
    assert_null(lk_loader(pictures(1), .batch_transforms = lk_transforms(lk_cutmix(.alpha = -1))));
    assert_null(lk_loader(lk_transformed(pictures(1), lk_transforms(lk_one_hot(3))), .raw = true,
                          .batch_transforms = lk_transforms(lk_mixup())));
    lk_dataset *few = lk_transformed(pictures(3), lk_transforms(lk_one_hot(2)));
    float x[2 * AREA], y[2];
    int64_t two = 2;
    lkt_fails(lk_dataset_gather(few, &(lk_pass){0}, &two, 1, (void *[]){x, y}), LK_ERR_RANGE,
              "class 2, expected 0 to 1");
    lk_dataset_free(few);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(to_tensor_and_normalize),      cmocka_unit_test(flips_and_crops),
        cmocka_unit_test(affine_is_torchs_grid_sample), cmocka_unit_test(cutout_holes),
        cmocka_unit_test(workers_change_nothing),       cmocka_unit_test(mixed_batches),
        cmocka_unit_test(keyed_numbers_are_even),       cmocka_unit_test(misfits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
