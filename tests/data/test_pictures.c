/* Transforms of pictures: torchvision's results where nothing is drawn, its rules where something is. */
#include "lktest.h"

#include <lockstep/vision.h>

#include "base/memory.h"

#define GOLDEN LK_SOURCE_DIR "/tests/golden/data/pictures.txt"

enum { CHANNELS = 3, HEIGHT = 11, WIDTH = 8, AREA = HEIGHT * WIDTH, MOST = 3 * 40 * 40 };

/* The picture of tests/oracle/data_pictures.py, `count` times. */
static lk_dataset *pictures(int64_t count, int64_t channels)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, channels, HEIGHT, WIDTH));
    int64_t one = channels * AREA;
    for (int64_t i = 0; i < count * one; i++) {
        int64_t k = i % one;
        ((float *)x->data)[i] = (float)((7 * k * k + 3 * k) % 256) / 255.0f;
    }
    return lk_tensor_dataset({"features", x});
}

/* The result of a transform of the picture in an epoch; returns its shape. */
static lk_shape get(lk_transform *transform, int64_t channels, int64_t epoch, float *out)
{
    lk_dataset *dataset = lk_transformed(pictures(1, channels), lk_transforms(transform));
    lkt_not_null(dataset);
    lk_shape shape = lk_dataset_field(dataset, 0)->shape;
    assert_true(lk_shape_count(shape) <= MOST);
    int64_t zero = 0;
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){.seed = 1, .epoch = epoch}, &zero, 1, (void *[]){out}));
    lk_dataset_free(dataset);
    return shape;
}

/* The numbers of a line of the golden file. */
static int read_golden(const char *name, double *out, int most)
{
    char word[100];
    FILE *file = fopen(GOLDEN, "r");
    assert_non_null(file);
    while (fscanf(file, "%99s", word) == 1 && strcmp(word, name) != 0)
        while (fgetc(file) != '\n')
            if (feof(file)) fail_msg("no line %s", name);
    int count = 0;
    for (int c; (c = fgetc(file)) == ' ' && count < most; count++)
        assert_int_equal(fscanf(file, "%lf", &out[count]), 1);
    fclose(file);
    return count;
}

static void check(const char *name, lk_transform *transform, double tolerance)
{
    static float found[MOST];
    static double expected[MOST];
    int count = read_golden(name, expected, MOST);
    lk_shape shape = get(transform, CHANNELS, 0, found);
    if (lk_shape_count(shape) != count)
        fail_msg("%s: %d numbers, expected %d", name, (int)lk_shape_count(shape), count);
    for (int i = 0; i < count; i++)
        if (!(fabs((double)found[i] - expected[i]) <= tolerance))
            fail_msg("%s: number %d: %.9g, expected %.9g", name, i, (double)found[i], expected[i]);
}

static void sizes(void **state)
{
    (void)state;
    static const char *const modes[] = {"nearest", "bilinear", "bicubic"};
    static const int64_t sizes[][2] = {{5, 3}, {20, 17}, {4, 30}, {11, 8}};
    for (int m = 0; m < 3; m++)
        for (int a = 0; a < 2; a++)
            for (int s = 0; s < 4; s++) {
                char name[100];
                if (m == 0 && a) continue;
                snprintf(name, sizeof name, "resize_%s_%d_%dx%d", modes[m], a, (int)sizes[s][0],
                         (int)sizes[s][1]);
                check(name,
                      lk_resize(sizes[s][0], .width = sizes[s][1], .interpolation = modes[m],
                                .no_antialias = !a),
                      1e-6);
            }
    check("resize_edge_5", lk_resize(5), 1e-6);
    check("resize_edge_5_max_6", lk_resize(5, .max_size = 6), 1e-6);
    check("center_4x4", lk_center_crop(4), 1e-6);
    check("center_5x5", lk_center_crop(5), 1e-6);
    check("center_6x3", lk_center_crop(6, .width = 3), 1e-6);
    check("center_12x5", lk_center_crop(12, .width = 5), 1e-6);
    check("center_14x13", lk_center_crop(14, .width = 13), 1e-6);
    check("center_3x11", lk_center_crop(3, .width = 11), 1e-6);
    check("pad_constant", lk_pad_picture(.top = 2, .bottom = 1, .left = 4, .right = 3, .fill = .5f), 1e-6);
    check("pad_edge", lk_pad_picture(.top = 2, .bottom = 1, .left = 4, .right = 3, .padding_mode = "edge"),
          1e-6);
    check("pad_reflect",
          lk_pad_picture(.top = 2, .bottom = 1, .left = 4, .right = 3, .padding_mode = "reflect"), 1e-6);
    check("pad_symmetric",
          lk_pad_picture(.top = 2, .bottom = 1, .left = 4, .right = 3, .padding_mode = "symmetric"), 1e-6);
}

static void colours(void **state)
{
    (void)state;
    check("grey", lk_grayscale(), 1e-6);
    check("grey_3", lk_grayscale(.num_output_channels = 3), 1e-6);
    check("grey_3", lk_random_grayscale(.p = 1), 1e-6);
    check("brightness_1.7", lk_color_jitter(.brightness = {1.7, 1.7}), 1e-6);
    check("contrast_0.3", lk_color_jitter(.contrast = {.3, .3}), 1e-6);
    check("contrast_2", lk_color_jitter(.contrast = {2, 2}), 1e-6);
    check("saturation_0.4", lk_color_jitter(.saturation = {.4, .4}), 1e-6);
    check("saturation_1.8", lk_color_jitter(.saturation = {1.8, 1.8}), 1e-6);
    check("hue_0.25", lk_color_jitter(.hue = {.25, .25}), 2e-6);
    check("hue_-0.4", lk_color_jitter(.hue = {-.4, -.4}), 2e-6);
    check("invert", lk_random_invert(.p = 1), 1e-6);
    check("solarize_0.5", lk_random_solarize(.5, .p = 1), 1e-6);
    check("posterize_3", lk_random_posterize(3, .p = 1), 1e-6);
    check("sharpness_0", lk_random_adjust_sharpness(0, .p = 1), 1e-6);
    check("sharpness_1.6", lk_random_adjust_sharpness(1.6, .p = 1), 1e-6);
    check("autocontrast", lk_random_autocontrast(.p = 1), 1e-6);
}

/* The picture three times as large, in 16 levels up to a half. */
static void equalized(void **state)
{
    (void)state;
    static float plain[MOST], found[MOST];
    static double expected[MOST];
    enum { LARGE = 9 * AREA };
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(1, CHANNELS, 3 * HEIGHT, 3 * WIDTH));
    get(lk_resize(HEIGHT, .width = WIDTH), CHANNELS, 0, plain);
    for (int i = 0; i < CHANNELS * LARGE; i++) {
        int c = i / LARGE, row = i % LARGE / (3 * WIDTH) / 3, column = i % (3 * WIDTH) / 3;
        double level = rint((double)plain[c * AREA + row * WIDTH + column] * 15);
        ((float *)x->data)[i] = (float)floor(level * 17 / 2) / 255.0f;
    }
    lk_dataset *dataset =
        lk_transformed(lk_tensor_dataset({"features", x}), lk_transforms(lk_random_equalize(.p = 1)));
    int64_t zero = 0;
    lkt_not_null(dataset);
    lkt_ok(lk_dataset_gather(dataset, NULL, &zero, 1, (void *[]){found}));
    lk_dataset_free(dataset);
    assert_int_equal(read_golden("equalize", expected, MOST), CHANNELS * LARGE);
    for (int i = 0; i < CHANNELS * LARGE; i++) lkt_close(found[i], expected[i], 1e-6);
    check("equalize_small", lk_random_equalize(.p = 1), 1e-6);
}

static void places(void **state)
{
    (void)state;
    check("rotate_30_nearest", lk_random_rotation(30, 30), 1e-6);
    check("rotate_-75_bilinear", lk_random_rotation(-75, -75, .interpolation = "bilinear"), 2e-6);
    check("rotate_40_bilinear_center",
          lk_random_rotation(40, 40, .interpolation = "bilinear", .center_x = 2, .center_y = 9,
                             .has_center = true),
          2e-6);
    check("blur_5x3_1.3", lk_gaussian_blur(5, .kernel_width = 3, .sigma_min = 1.3), 1e-6);
}

/* ---- What is drawn ---- */

/* The part of the whole picture that a crop without resizing would be: every result is a window of it. */
static void resized_crops(void **state)
{
    (void)state;
    static float plain[MOST], out[MOST];
    get(lk_resize(HEIGHT, .width = WIDTH), CHANNELS, 0, plain);
    int different = 0;
    for (int epoch = 0; epoch < 50; epoch++) {
        /* The whole area at its own ratio: nothing to choose. */
        lk_shape shape = get(
            lk_random_resized_crop(6, .width = 5, .scale_min = 1, .ratio_min = 8. / 11, .ratio_max = 8. / 11),
            CHANNELS, epoch, out);
        assert_true(lk_shape_equal(shape, LK_SHAPE(3, 6, 5)));
        static float whole[MOST];
        get(lk_resize(6, .width = 5), CHANNELS, 0, whole);
        assert_memory_equal(out, whole, 90 * sizeof *out);
        get(lk_random_resized_crop(6), CHANNELS, epoch, out);
        for (int i = 0; i < 108; i++) assert_true(out[i] >= 0 && out[i] <= 1);
        different += memcmp(out, whole, 30 * sizeof *out) != 0;
    }
    assert_int_equal(different, 50);
    /* No rectangle of this ratio has this area: the middle is taken. */
    static float middle[MOST];
    get(lk_random_resized_crop(4, .width = 8, .scale_min = 1, .ratio_min = 2, .ratio_max = 2), CHANNELS, 3,
        out);
    get(lk_compose(lk_transforms(lk_center_crop(4, .width = 8), lk_resize(4, .width = 8))), CHANNELS, 0,
        middle);
    /* int((11 - 4) / 2) = 3 where the centre crop rounds 3.5 to 4: the row above. */
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 24; i++) assert_true(out[c * 32 + 8 + i] == middle[c * 32 + i]);
}

static void jitters(void **state)
{
    (void)state;
    static float plain[MOST], out[MOST], other[MOST];
    get(lk_resize(HEIGHT, .width = WIDTH), CHANNELS, 0, plain);
    /* One number is a range around one. */
    double low = 9, high = 0;
    for (int epoch = 0; epoch < 300; epoch++) {
        get(lk_color_jitter(.brightness = {.3}), CHANNELS, epoch, out);
        int i = 1; /* 10 / 255 */
        double factor = (double)out[i] / (double)plain[i];
        if (factor < low) low = factor;
        if (factor > high) high = factor;
    }
    assert_true(low >= .7 - 1e-6 && low < .72 && high <= 1.3 + 1e-6 && high > 1.28);
    get(lk_color_jitter(), CHANNELS, 0, out);
    assert_memory_equal(out, plain, 3 * AREA * sizeof *out);
    get(lk_color_jitter(.brightness = {LK_ZERO, LK_ZERO}), CHANNELS, 0, out);
    for (int i = 0; i < 3 * AREA; i++) assert_true(out[i] == 0);
    /* A picture of one channel has no hue. */
    get(lk_resize(HEIGHT, .width = WIDTH), 1, 0, plain);
    get(lk_color_jitter(.hue = {.3}, .saturation = {.5}), 1, 0, out);
    assert_memory_equal(out, plain, AREA * sizeof *out);
    /* The order of the four matters, and is drawn. */
    bool differs = false;
    for (int epoch = 0; epoch < 20 && !differs; epoch++) {
        get(lk_color_jitter(.brightness = {1.5, 1.5}, .contrast = {.5, .5}), CHANNELS, epoch, out);
        get(lk_color_jitter(.brightness = {1.5, 1.5}, .contrast = {.5, .5}), CHANNELS, epoch + 100, other);
        differs = memcmp(out, other, 3 * AREA * sizeof *out) != 0;
    }
    assert_true(differs);
}

static void erased_rectangles(void **state)
{
    (void)state;
    static float plain[MOST], out[MOST];
    int erased = 0;
    get(lk_resize(HEIGHT, .width = WIDTH), CHANNELS, 0, plain);
    for (int epoch = 0; epoch < 200; epoch++) {
        get(lk_random_erasing(.values = {-1, -2, -3}, .channels = 3), CHANNELS, epoch, out);
        int count = 0, top = HEIGHT, bottom = -1, left = WIDTH, right = -1;
        for (int i = 0; i < AREA; i++) {
            bool hole = out[i] == -1;
            assert_int_equal(out[AREA + i] == -2, hole);
            assert_int_equal(out[2 * AREA + i] == -3, hole);
            if (!hole) assert_true(out[i] == plain[i]);
            if (!hole) continue;
            count++;
            int y = i / WIDTH, x = i % WIDTH;
            if (y < top) top = y;
            if (y > bottom) bottom = y;
            if (x < left) left = x;
            if (x > right) right = x;
        }
        erased += count > 0;
        if (count) assert_int_equal(count, (bottom - top + 1) * (right - left + 1));
        assert_true(count <= .33 * AREA + 12); /* edges are rounded */
    }
    assert_in_range(erased, 70, 130);
    get(lk_random_erasing(.p = 1, .random = true), CHANNELS, 0, out);
    int changed = 0;
    for (int i = 0; i < AREA; i++) changed += out[i] != plain[i];
    assert_true(changed > 0 && changed < AREA / 2);
}

static void groups(void **state)
{
    (void)state;
    static float plain[MOST], out[MOST], inverted[MOST];
    get(lk_resize(HEIGHT, .width = WIDTH), CHANNELS, 0, plain);
    get(lk_random_invert(.p = 1), CHANNELS, 0, inverted);
    int applied = 0, chosen = 0;
    for (int epoch = 0; epoch < 400; epoch++) {
        get(lk_random_apply(lk_transforms(lk_random_invert(.p = 1), lk_pad_picture(.left = 1),
                                          lk_pad_picture(.left = -1)),
                            .p = .25),
            CHANNELS, epoch, out);
        bool is_inverted = memcmp(out, inverted, 3 * AREA * sizeof *out) == 0;
        if (!is_inverted) assert_memory_equal(out, plain, 3 * AREA * sizeof *out);
        applied += is_inverted;
        const double weights[] = {3, 0, 1};
        get(lk_random_choice(lk_transforms(lk_random_invert(.p = 1), lk_random_solarize(0, .p = 1),
                                           lk_resize(HEIGHT, .width = WIDTH)),
                             .p = weights),
            CHANNELS, epoch, out);
        is_inverted = memcmp(out, inverted, 3 * AREA * sizeof *out) == 0;
        if (!is_inverted) assert_memory_equal(out, plain, 3 * AREA * sizeof *out);
        chosen += is_inverted;
    }
    assert_in_range(applied, 70, 130);
    assert_in_range(chosen, 265, 335);
    /* Solarize after invert is not invert after solarize. */
    int orders = 0;
    get(lk_compose(lk_transforms(lk_random_invert(.p = 1), lk_random_solarize(.3, .p = 1))), CHANNELS, 0,
        plain);
    for (int epoch = 0; epoch < 100; epoch++) {
        get(lk_random_order(lk_transforms(lk_random_invert(.p = 1), lk_random_solarize(.3, .p = 1))),
            CHANNELS, epoch, out);
        orders += memcmp(out, plain, 3 * AREA * sizeof *out) == 0;
    }
    assert_in_range(orders, 30, 70);
}

/* ---- Bad input ---- */

static void refuse(lk_transform *transform, const char *text)
{
    assert_null(lk_transformed(pictures(1, CHANNELS), lk_transforms(transform)));
    lkt_contains(lk_error(), text);
}

static void misfits(void **state)
{
    (void)state;
    refuse(lk_resize(0), "resize: size: expected at least 1, found 0");
    refuse(lk_resize(5, .interpolation = "lanczos"),
           "expected nearest, bilinear or bicubic, found \"lanczos\"");
    refuse(lk_resize(5, .max_size = 5), "resize: max_size: expected more than the shorter edge");
    refuse(lk_resize(5, .width = 5, .max_size = 9), "resize: max_size");
    refuse(lk_resize(5, .key = "masks"), "no field \"masks\"");
    refuse(lk_center_crop(-1), "center_crop: size");
    refuse(lk_pad_picture(.left = 9, .padding_mode = "reflect"), "pad: reflect: expected at most 7");
    refuse(lk_pad_picture(.left = 9, .padding_mode = "symmetric"), "pad: symmetric: expected at most 8");
    refuse(lk_pad_picture(.left = -8), "nothing is left");
    refuse(lk_pad_picture(.left = -1, .padding_mode = "edge"), "edge cannot have -1");
    refuse(lk_pad_picture(.padding_mode = "mirror"), "found \"mirror\"");
    refuse(lk_pad_picture(.left = 1, .fill = 1, .padding_mode = "edge"), "fill");
    refuse(lk_random_resized_crop(5, .scale_min = .5, .scale_max = .4), "scale");
    refuse(lk_random_resized_crop(5, .ratio_min = -1), "ratio");
    refuse(lk_grayscale(.num_output_channels = 2), "expected 1 or 3, found 2");
    refuse(lk_color_jitter(.hue = {.6}), "hue: expected 0 to 0.5");
    refuse(lk_color_jitter(.brightness = {-1}), "brightness");
    refuse(lk_color_jitter(.contrast = {2, 1}), "contrast");
    refuse(lk_random_solarize(128), "threshold: expected 0 to 1, found 128");
    refuse(lk_random_posterize(9), "bits");
    refuse(lk_random_adjust_sharpness(-1), "sharpness_factor: expected at least 0");
    refuse(lk_random_invert(.p = 2), "random_invert: p");
    refuse(lk_random_rotation(3, 2), "degrees");
    refuse(lk_random_rotation(0, 2, .interpolation = "bicubic"), "expected nearest or bilinear");
    refuse(lk_random_erasing(.values = {1, 2}, .channels = 2),
           "2 values for field \"features\" of 3 channels");
    refuse(lk_random_erasing(.random = true, .channels = 1), "either random or values");
    refuse(lk_random_erasing(.scale_max = 2), "scale");
    refuse(lk_gaussian_blur(4), "odd");
    refuse(lk_gaussian_blur(23), "too large for a picture of 8x11");
    refuse(lk_gaussian_blur(3, .sigma_min = -1), "sigma");
    refuse(lk_random_apply(lk_transforms(lk_resize(5)), .p = .5), "the same shape with and without");
    refuse(lk_random_apply(lk_transforms(lk_grayscale()), .p = 3), "p: expected 0 to 1");
    refuse(lk_random_choice(lk_transforms(lk_resize(5), lk_resize(6))), "must lead to the same shape");
    refuse(lk_random_choice(lk_transforms(lk_resize(5)), .p = (const double[]){0}), "all weights are 0");
    refuse(lk_random_order(lk_transforms(lk_random_invert(), lk_resize(5))), "must keep the shape");
    refuse(lk_compose(lk_transforms(lk_mixup())), "mixup acts on batches");
    refuse(lk_compose(lk_transforms(lk_random_invert(), lk_one_hot(3))), "must change the same field");
    refuse(lk_compose(lk_transforms(lk_random_invert(), lk_resize(0))), "resize: size");
    refuse(lk_random_order((lk_transform_list){NULL, 0}), "expected 1 to 32, found 0");
    assert_null(lk_transformed(pictures(1, 2), lk_transforms(lk_grayscale())));
    lkt_contains(lk_error(), "expected 1 or 3 channels, found 2");
}

/* ---- random_split ---- */

static void splits(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double lengths[3];
    } cases[] = {{"split_fractions", {.62, .2, .18}}, {"split_lengths", {4, 0, 13}}};
    for (int c = 0; c < 2; c++) {
        double expected[20];
        assert_int_equal(read_golden(cases[c].name, expected, 20), 20);
        lk_tensor *x = lk_tensor_create(LK_I64, LK_SHAPE(17));
        for (int i = 0; i < 17; i++) ((int64_t *)x->data)[i] = i;
        lk_dataset *parts[3];
        lkt_ok(lk_random_split(lk_tensor_dataset({"features", x}), cases[c].lengths, 3, parts, .seed = 42));
        int at = 0;
        for (int p = 0; p < 3; p++) {
            assert_int_equal(lk_dataset_length(parts[p]), (int64_t)expected[at++]);
            for (int64_t i = 0; i < lk_dataset_length(parts[p]); i++) {
                int64_t value;
                lkt_ok(lk_dataset_gather(parts[p], NULL, &i, 1, (void *[]){&value}));
                assert_int_equal(value, (int64_t)expected[at++]);
            }
            lk_dataset_free(parts[p]);
        }
    }
    lk_dataset *parts[2] = {NULL, NULL};
    lkt_fails(lk_random_split(pictures(5, 1), ((const double[]){3, 3}), 2, parts), LK_ERR_INVALID,
              "their sum is 6, the dataset has 5 samples");
    lkt_fails(lk_random_split(pictures(5, 1), ((const double[]){2.5, 2.5}), 2, parts), LK_ERR_INVALID,
              "found 2.5");
    lkt_fails(lk_random_split(pictures(5, 1), ((const double[]){-.5, 1.5}), 2, parts), LK_ERR_INVALID,
              "fractions from 0 to 1");
    lkt_fails(lk_random_split(pictures(5, 1), NULL, 0, parts), LK_ERR_INVALID, "lengths");
    lkt_fails(lk_random_split(pictures(5, 1), ((const double[]){1}), 1, parts, .seed = 1,
                              .generator = lk_default_generator()),
              LK_ERR_INVALID, "either a seed or a generator");
    assert_null(parts[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(colours),
        cmocka_unit_test(equalized),
        cmocka_unit_test(places),
        cmocka_unit_test(jitters),
        cmocka_unit_test(resized_crops),
        cmocka_unit_test(erased_rectangles),
        cmocka_unit_test(groups),
        cmocka_unit_test(misfits),
        cmocka_unit_test(splits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
