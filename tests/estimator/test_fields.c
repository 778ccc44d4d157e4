/* Fields: templates, sampling, cutting and combining, HDF5 files good and bad, loaders. */
#include "case.h"

#if LOCKSTEP_HAVE_HDF5
#include <hdf5.h>
#endif

/* ---- Templates ---- */

static void expect_path(const char *path_template, const char *feature, double checkpoint,
                        const char *expected)
{
    char *path = lk_field_path(path_template, feature, checkpoint);
    lkt_not_null(path);
    assert_string_equal(path, expected);
    lk_text_free(path);
}

/* What Python's str.format gives. */
static void paths_as_in_python(void **state)
{
    (void)state;
    expect_path("data/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5", "u", 0, "data/t0/u_dim32_fm15.h5");
    expect_path("{feature}_it{checkpoint:.0f}.h5", "vel", 233, "vel_it233.h5");
    expect_path("{checkpoint:04d}", "u", 7, "0007");
    expect_path("{checkpoint:5.2f}|", "u", 3.14159, " 3.14|");
    expect_path("{checkpoint:08.3f}", "u", 2.5, "0002.500");
    expect_path("{checkpoint:.3e}", "u", 12345.678, "1.235e+04");
    expect_path("{checkpoint:g}", "u", 0.1, "0.1");
    expect_path("{checkpoint:.3g}", "u", 1234.5, "1.23e+03");
    expect_path("{checkpoint}", "u", 12, "12");
    expect_path("{checkpoint}", "u", 0.25, "0.25");
    expect_path("{{{feature}}}", "u", 0, "{u}");
    expect_path("plain.h5", "u", 0, "plain.h5");
}

static void expect_no_path(const char *path_template, double checkpoint, const char *fragment)
{
    assert_null(lk_field_path(path_template, "u", checkpoint));
    lkt_contains(lk_error(), fragment);
}

static void bad_templates(void **state)
{
    (void)state;
    expect_no_path("{step}.h5", 0, "unknown name {step}");
    expect_no_path("{checkpoint", 0, "a \"{\" has no partner");
    expect_no_path("a}b", 0, "a \"}\" has no partner");
    expect_no_path("{checkpoint:x}", 0, "format \"x\" is not understood");
    expect_no_path("{checkpoint:d}", 0.5, "checkpoint 0.5 is not an integer");
    expect_no_path("{checkpoint:9999f}", 0, "is not understood");
    expect_no_path("{feature:5d}", 0, "is not understood");
}

/* ---- Cubes ---- */

static void same_values(const lk_tensor *a, const lk_tensor *b)
{
    lkt_not_null(a);
    lkt_not_null(b);
    assert_true(lk_shape_equal(a->shape, b->shape));
    assert_memory_equal(a->data, b->data, lk_tensor_nbytes(b));
}

static void check_identity(lk_shape shape, int dims, const int64_t *cube)
{
    lk_tensor *field = lkt_wavy(shape);
    lk_tensor *parts = lk_split_cubes(field, dims, cube);
    lkt_not_null(parts);
    lk_tensor *whole = lk_combine_cubes(parts, dims, shape.dim + 2);
    same_values(whole, field);
    lk_tensor_free(whole);
    lk_tensor_free(parts);
    lk_tensor_free(field);
}

static void split_then_combine_is_the_identity(void **state)
{
    (void)state;
    check_identity(LK_SHAPE(2, 3, 12), 1, (int64_t[]){4});
    check_identity(LK_SHAPE(2, 3, 12, 6), 2, (int64_t[]){4, 3});
    check_identity(LK_SHAPE(2, 3, 12, 6, 8), 3, (int64_t[]){4, 3, 2});
    check_identity(LK_SHAPE(1, 1, 4, 4, 4), 3, (int64_t[]){4, 4, 4});
    check_identity(LK_SHAPE(1, 1, 4, 4, 4), 3, (int64_t[]){1, 1, 1});
}

static void flat_samples_combine_too(void **state)
{
    (void)state;
    for (int flat = 0; flat < 2; flat++) {
        lk_tensor *field = lkt_wavy(LK_SHAPE(2, 3, 8, 8));
        lk_fields *fields = lk_tensor_fields(lk_tensor_view(field), NULL, .batch_num = 4, .flat = flat);
        lkt_not_null(fields);
        const lk_tensor *x = lk_fields_features(fields);
        assert_true(lk_shape_equal(x->shape, flat ? LK_SHAPE(8, 3, 16) : LK_SHAPE(8, 3, 4, 4)));
        lk_tensor *very_flat = lk_tensor_reshape(x, LK_SHAPE(8, 48));
        lk_tensor *whole = lk_fields_combine(fields, x), *again = lk_fields_combine(fields, very_flat);
        same_values(whole, field);
        same_values(again, field);
        lk_tensor_free(whole);
        lk_tensor_free(again);
        lk_tensor_free(very_flat);
        lk_tensor_free(field);
        lk_fields_free(fields);
    }
}

static void sampling_takes_every_nth_point(void **state)
{
    (void)state;
    lk_tensor *field = lkt_wavy(LK_SHAPE(1, 2, 8, 6));
    lk_tensor *sampled = lk_sample_equidistant(field, 2, (int64_t[]){4, 2});
    lkt_not_null(sampled);
    assert_true(lk_shape_equal(sampled->shape, LK_SHAPE(1, 2, 4, 2)));
    for (int64_t c = 0; c < 2; c++)
        for (int64_t x = 0; x < 4; x++)
            for (int64_t y = 0; y < 2; y++)
                assert_true(lk_tensor_get(sampled, (c * 4 + x) * 2 + y) ==
                            lk_tensor_get(field, (c * 8 + 2 * x) * 6 + 3 * y));
    assert_null(lk_sample_equidistant(field, 2, (int64_t[]){5, 6}));
    lkt_contains(lk_error(), "no integer step reduces 8 points to 5");
    lk_tensor_free(sampled);
    lk_tensor_free(field);
    lk_tensor *odd = lkt_wavy(LK_SHAPE(1, 1, 17));
    sampled = lk_sample_equidistant(odd, 1, (int64_t[]){9});
    lkt_not_null(sampled);
    assert_true(lk_tensor_get(sampled, 8) == lk_tensor_get(odd, 16));
    lk_tensor_free(sampled);
    lk_tensor_free(odd);
}

static void sizes_that_do_not_divide(void **state)
{
    (void)state;
    lk_tensor *field = lkt_wavy(LK_SHAPE(1, 1, 8, 8, 8));
    assert_null(lk_split_cubes(field, 3, (int64_t[]){8, 3, 8}));
    lkt_contains(lk_error(), "8 points do not divide into sub-cubes of 3");
    assert_null(lk_tensor_fields(lk_tensor_view(field), NULL, .batch_num = 4));
    lkt_contains(lk_error(), "batch_num: 4 sub-cubes are not the same number along each of 3 axes");
    assert_null(lk_tensor_fields(lk_tensor_view(field), NULL, .batch_num = 27));
    lkt_contains(lk_error(), "8 points do not divide into 3 parts");
    assert_null(lk_tensor_fields(lk_tensor_view(field), NULL, .batch_size = {4, 4}));
    lkt_contains(lk_error(), "batch_size: expected 3 sizes, found 2");
    assert_null(lk_tensor_fields(lk_tensor_view(field), lkt_wavy(LK_SHAPE(1, 1, 8, 8, 7))));
    lkt_contains(lk_error(), "do not lie on the points of the features");
    lk_tensor_free(field);
}

/* ---- Loaders ---- */

static int64_t samples_of(lk_fields *fields, const char *key, lk_fields_loaders_options options)
{
    lk_loader *loader = lk_fields_loader(fields, key, &options);
    lkt_not_null(loader);
    int64_t count = lk_dataset_length(lk_loader_dataset(loader));
    lk_loader_free(loader);
    return count;
}

static void loaders_share_the_samples(void **state)
{
    (void)state;
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 16)), NULL, .batch_size = {2});
    lkt_not_null(fields);
    assert_int_equal(samples_of(fields, "train", *LK_OPTIONS(lk_fields_loaders_options)), 8);
    assert_int_equal(samples_of(fields, "valid", *LK_OPTIONS(lk_fields_loaders_options)), 8);
    assert_int_equal(
        samples_of(fields, "train", *LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 0.75)), 6);
    assert_int_equal(
        samples_of(fields, "valid", *LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 0.75)), 2);
    assert_int_equal(
        samples_of(fields, "valid", *LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 0.99)), 1);
    assert_null(
        lk_fields_loader(fields, "train", LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 1.5)));
    lkt_contains(lk_error(), "train_fraction: expected a number between 0 and 1, found 1.5");
    assert_null(lk_fields_loader(fields, "test", NULL));
    lk_fields_free(fields);
    fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 1, 16)), NULL);
    assert_int_equal(
        samples_of(fields, "train", *LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 0.5)), 1);
    assert_int_equal(
        samples_of(fields, "valid", *LK_OPTIONS(lk_fields_loaders_options, .train_fraction = 0.5)), 1);
    lk_fields_free(fields);
}

/* ---- Files ---- */

#if LOCKSTEP_HAVE_HDF5

static void write_h5(const char *path, const char *label, const lk_tensor *tensor, bool append)
{
    hsize_t dims[LK_MAX_DIMS];
    for (int i = 0; i < tensor->shape.rank; i++) dims[i] = (hsize_t)tensor->shape.dim[i];
    hid_t file = append ? H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT)
                        : H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(tensor->shape.rank, dims, NULL);
    hid_t array = H5Dcreate2(file, label, H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor->data) >= 0);
    H5Dclose(array);
    H5Sclose(space);
    H5Fclose(file);
}

static void put(const char *folder, const char *name, const char *label, lk_tensor *tensor_owned, bool append)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    write_h5(path, label, tensor_owned, append);
    lk_tensor_free(tensor_owned);
}

/* Two checkpoints, a velocity of two channels and a density without a channel axis. */
static const char *make_files(void)
{
    const char *folder = lkt_scratch_folder("fields");
    for (int t = 0; t < 2; t++) {
        char u[32], rho[32];
        snprintf(u, sizeof u, "u_%d.h5", t);
        snprintf(rho, sizeof rho, "rho_%d.h5", t);
        put(folder, u, "a_first", lk_tensor_full(LK_F32, LK_SHAPE(1, 4, 4), -1), false);
        put(folder, u, "u_last", lk_tensor_full(LK_F32, LK_SHAPE(2, 4, 4), 10 + t), true);
        put(folder, rho, "rho", lk_tensor_full(LK_F32, LK_SHAPE(4, 4), 20 + t), false);
    }
    return folder;
}

static lk_fields *read_files(const char *folder, lk_fields_options more)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/{feature}_{checkpoint:.0f}.h5", folder);
    more.features = more.features.count ? more.features : lk_names("u", "rho");
    more.checkpoints = more.checkpoints.count ? more.checkpoints : lk_numbers(0, 1);
    if (!more.input_size[0]) more.input_size[0] = more.input_size[1] = 4;
    return lk_hdf5_fields_with(path, &more);
}

static void features_are_stacked_as_channels(void **state)
{
    (void)state;
    lk_fields *fields = read_files(make_files(), *LK_OPTIONS(lk_fields_options, .targets = lk_names("rho")));
    lkt_not_null(fields);
    const lk_tensor *x = lk_fields_features(fields), *y = lk_fields_targets(fields);
    assert_true(lk_shape_equal(x->shape, LK_SHAPE(2, 3, 4, 4)) &&
                lk_shape_equal(y->shape, LK_SHAPE(2, 1, 4, 4)));
    for (int t = 0; t < 2; t++) {
        assert_true(lk_tensor_get(x, t * 48) == 10 + t && lk_tensor_get(x, t * 48 + 32) == 20 + t);
        assert_true(lk_tensor_get(y, t * 16) == 20 + t);
    }
    lk_fields_free(fields);
    fields = read_files(make_files(), *LK_OPTIONS(lk_fields_options, .features = lk_names("u"),
                                                  .feature_labels = lk_names("a_first")));
    lkt_not_null(fields);
    assert_true(lk_shape_equal(lk_fields_targets(fields)->shape, LK_SHAPE(2, 1, 4, 4)));
    assert_true(lk_tensor_get(lk_fields_features(fields), 0) == -1);
    lk_fields_free(fields);
}

static void bad_files_are_named(void **state)
{
    (void)state;
    const char *folder = make_files();
    char path[1200];
#define EXPECT(fragment, ...)                                                                                \
    assert_null(read_files(folder, *LK_OPTIONS(lk_fields_options, __VA_ARGS__)));                            \
    lkt_contains(lk_error(), fragment);                                                                      \
    assert_null(strchr(lk_error(), '\n'))
    EXPECT("rho_7.h5: no such file", .features = lk_names("rho"), .checkpoints = lk_numbers(0, 7));
    EXPECT("u_0.h5: no array \"w\": the file has a_first, u_last", .features = lk_names("u"),
           .feature_labels = lk_names("w"));
    EXPECT("u_0.h5: array \"u_last\" has shape (2, 4, 4), input_size is (5, 4)", .input_size = {5, 4});
    EXPECT("u_0.h5: array \"u_last\": sampling: no integer step reduces 4 points to 3", .sample_to = {3, 3});
    EXPECT("u_0.h5: array \"u_last\": 4 points do not divide into sub-cubes of 3", .batch_size = {3, 3});
    EXPECT("feature_labels: 3 labels for 2 names", .feature_labels = lk_names("a", "b", "c"));
    EXPECT("input_size: expected one to three positive sizes", .input_size = {4, 0, 4});

    lk_tensor *bad = lk_tensor_full(LK_F32, LK_SHAPE(4, 4), 1);
    lk_tensor_set(bad, 5, NAN);
    put(folder, "nan_0.h5", "field", bad, false);
    EXPECT("nan_0.h5: array \"field\" holds nan at element 5 of 16", .features = lk_names("nan"),
           .checkpoints = lk_numbers(0));

    bad = lk_tensor_full(LK_F32, LK_SHAPE(4, 4), 1);
    put(folder, "late_0.h5", "field", lk_tensor_clone(bad), false);
    lk_tensor_set(bad, 2, INFINITY);
    put(folder, "late_1.h5", "field", bad, false);
    EXPECT("late_1.h5: array \"field\" holds inf at element 2 of 16", .features = lk_names("late"));

    snprintf(path, sizeof path, "%s/torn_0.h5", folder);
    FILE *file = fopen(path, "w");
    fputs("this is no HDF5 file", file);
    fclose(file);
    EXPECT("torn_0.h5: not a readable HDF5 file", .features = lk_names("torn"));
    put(folder, "thin_1.h5", "u", lk_tensor_full(LK_F32, LK_SHAPE(1, 4, 4), 1), false);
    put(folder, "thin_0.h5", "u", lk_tensor_full(LK_F32, LK_SHAPE(2, 4, 4), 1), false);
    EXPECT("checkpoint 1 has 1 channels, the first one 2", .features = lk_names("thin"));
#undef EXPECT
}

#endif

/* Many checkpoints at once give what each gives alone. */
static void thirteen_real_steps(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    static const double steps[] = {40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 233, 313, 393};
    char path[1200];
    snprintf(path, sizeof path, "%s/ccsn-mri-sims/{feature}_dim17_s9_it{checkpoint:.0f}_float32.h5", folder);
    lk_fields *fields = lk_hdf5_fields(
        path, .features = lk_names("vel", "Bvec", "dvel", "dBvec"), .targets = lk_names("tnvel"),
        .checkpoints = lk_numbers(40, 60, 80, 100, 120, 140, 160, 180, 200, 220, 233, 313, 393),
        .input_size = {17, 17, 17}, .sample_to = {9, 9, 9});
    lkt_not_null(fields);
    assert_true(lk_shape_equal(lk_fields_features(fields)->shape, LK_SHAPE(13, 24, 9, 9, 9)));
    assert_int_equal(lk_fields_targets(fields)->shape.dim[0], 13);
    for (int i = 0; i < 13; i++) {
        lk_fields *one =
            lk_hdf5_fields(path, .features = lk_names("vel", "Bvec", "dvel", "dBvec"),
                           .checkpoints = {steps + i, 1}, .input_size = {17, 17, 17}, .sample_to = {9, 9, 9});
        lkt_not_null(one);
        const lk_tensor *x = lk_fields_features(one);
        assert_memory_equal((const char *)lk_fields_features(fields)->data + (size_t)i * lk_tensor_nbytes(x),
                            x->data, lk_tensor_nbytes(x));
        lk_fields_free(one);
    }
    lk_fields_free(fields);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_as_in_python),
        cmocka_unit_test(bad_templates),
        cmocka_unit_test(split_then_combine_is_the_identity),
        cmocka_unit_test(flat_samples_combine_too),
        cmocka_unit_test(sampling_takes_every_nth_point),
        cmocka_unit_test(sizes_that_do_not_divide),
        cmocka_unit_test(loaders_share_the_samples),
#if LOCKSTEP_HAVE_HDF5
        cmocka_unit_test(features_are_stacked_as_channels),
        cmocka_unit_test(bad_files_are_named),
#endif
        cmocka_unit_test(thirteen_real_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
