/* Data of other dtypes than model and criterion take, from every kind of dataset: the run converts it and
 * ends in the same weights as over data that was right from the start. */
#include "case.h"

#include "data/dataset.h"

enum { SAMPLES = 24, WIDTH = 4, CLASSES = 3 };

static double feature(int i)
{
    return (i * 29 % 53 - 26) / 17.0;
}

static int label(int i)
{
    return (i * i + 1) % CLASSES;
}

static lk_tensor *features_as(lk_dtype dtype)
{
    lk_tensor *wide = lk_tensor_create(LK_F64, LK_SHAPE(SAMPLES, WIDTH));
    for (int i = 0; i < SAMPLES * WIDTH; i++) lk_tensor_set(wide, i, feature(i));
    lk_tensor *tensor = lk_tensor_cast(wide, dtype);
    lk_tensor_free(wide);
    return tensor;
}

static lk_tensor *targets_as(lk_dtype dtype)
{
    lk_tensor *tensor = lk_tensor_create(dtype, LK_SHAPE(SAMPLES));
    for (int i = 0; i < SAMPLES; i++) lk_tensor_set(tensor, i, label(i));
    return tensor;
}

static lk_dataset *tensors(lk_dtype features, lk_dtype targets)
{
    return lk_tensor_dataset({"features", features_as(features)}, {"targets", targets_as(targets)});
}

/* The hash of the weights after a short run; `logdir` may be NULL. */
static const char *trained(lk_dataset *train, lk_dataset *valid, const char *logdir)
{
    lk_runner *runner = lk_supervised_runner();
    lk_manual_seed(11);
    lkt_ok(lk_train(runner, .model = lk_linear(WIDTH, CLASSES), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1),
                    .loaders = lk_loaders({"train", lk_loader(train, .batch_size = 5, .shuffle = true)},
                                          {"valid", lk_loader(valid, .batch_size = 5)}),
                    .callbacks = lk_callbacks(lk_accuracy_callback()), .num_epochs = 2, .logdir = logdir,
                    .no_checkpoints = true, .device = "cpu"));
    const char *hash = lkt_hash(runner->model);
    lk_runner_free(runner);
    return hash;
}

static const char *expected(void)
{
    static char hash[128];
    snprintf(hash, sizeof hash, "%s", trained(tensors(LK_F32, LK_I64), tensors(LK_F32, LK_I64), NULL));
    return hash;
}

static void test_tensors_and_what_wraps_them(void **state)
{
    (void)state;
    int64_t all[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) all[i] = i;
    const char *hash = expected();
    for (lk_dtype dtype = LK_I64; dtype <= LK_U8; dtype++)
        assert_string_equal(trained(tensors(LK_F64, dtype), tensors(LK_F64, dtype), NULL), hash);
    /* Two subsets of one dataset, which is converted once. */
    lk_dataset *whole = tensors(LK_F64, LK_I32);
    lk_dataset *one = lk_subset(lk_dataset_share(whole), all, SAMPLES), *other = lk_subset(whole, all, 7);
    assert_string_equal(trained(one, other, NULL), hash);
    lk_dataset *joined = lk_concat(lk_subset(tensors(LK_F64, LK_I32), all, 10),
                                   lk_subset(tensors(LK_F64, LK_I32), all + 10, SAMPLES - 10));
    assert_string_equal(trained(joined, tensors(LK_F64, LK_U8), NULL), hash);
}

static void test_files(void **state)
{
    (void)state;
    char folder[1024], path[1200];
    const char *hash = expected();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_dtypes"));
    snprintf(path, sizeof path, "%s/data.safetensors", folder);
    lk_state_dict *dict = lk_state_dict_create();
    lkt_ok(lk_state_dict_put(dict, "features", features_as(LK_F64)));
    lkt_ok(lk_state_dict_put(dict, "targets", targets_as(LK_I32)));
    lkt_ok(lk_save_safetensors(path, dict));
    lk_state_dict_free(dict);
    const char *logdir = lkt_path(folder, "logs");
    assert_string_equal(trained(lk_safetensors_dataset(path), lk_safetensors_dataset(path), logdir), hash);
    char *text = lkt_read(lkt_path(logdir, "log.txt"));
    lkt_contains(text, "features: float64 → float32\ntargets: int32 → int64\n");
    free(text);
    /* A CSV file has no dtypes: its targets are class numbers because the criterion takes no others. */
    snprintf(path, sizeof path, "%s/data.csv", folder);
    FILE *file = fopen(path, "w");
    fprintf(file, "a,b,c,d,label\n");
    for (int i = 0; i < SAMPLES; i++) {
        for (int j = 0; j < WIDTH; j++) fprintf(file, "%.17g,", feature(i * WIDTH + j));
        fprintf(file, "%d\n", label(i));
    }
    fclose(file);
    assert_string_equal(trained(lk_csv_dataset(path), lk_csv_dataset(path), NULL), hash);
}

#if LOCKSTEP_HAVE_HDF5

#include <hdf5.h>

static void put_array(hid_t file, const char *name, hid_t type, hid_t memory, int width, const void *data)
{
    hid_t space = H5Screate_simple(width ? 2 : 1, (hsize_t[]){SAMPLES, (hsize_t)width}, NULL);
    hid_t array = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Dwrite(array, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(array);
    H5Sclose(space);
}

/* NumPy's bool as h5py writes it. */
static hid_t bool_type(void)
{
    hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
    H5Tenum_insert(type, "FALSE", &(int8_t){0});
    H5Tenum_insert(type, "TRUE", &(int8_t){1});
    return type;
}

static void test_hdf5(void **state)
{
    (void)state;
    char path[1200];
    double features[SAMPLES * WIDTH];
    int16_t labels[SAMPLES];
    int8_t flags[SAMPLES];
    uint64_t huge[SAMPLES] = {0};
    snprintf(path, sizeof path, "%s/data.h5", lkt_scratch_folder("train_dtypes_hdf5"));
    for (int i = 0; i < SAMPLES * WIDTH; i++) features[i] = feature(i);
    for (int i = 0; i < SAMPLES; i++) labels[i] = (int16_t)label(i);
    for (int i = 0; i < SAMPLES; i++) flags[i] = label(i) > 0;
    huge[5] = UINT64_MAX - 1;
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), flag = bool_type();
    put_array(file, "x", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, WIDTH, features);
    put_array(file, "y", H5T_STD_I16LE, H5T_NATIVE_INT16, 0, labels);
    put_array(file, "flags", flag, flag, 0, flags);
    put_array(file, "huge", H5T_STD_U64LE, H5T_NATIVE_UINT64, 0, huge);
    H5Tclose(flag);
    H5Fclose(file);
    lk_dataset *train = lk_hdf5_dataset(path, .features = "x", .targets = "y");
    assert_string_equal(trained(train, lk_hdf5_dataset(path, .features = "x", .targets = "y"), NULL),
                        expected());
    lk_tensor *read = lk_hdf5_read(path, "flags");
    lkt_not_null(read);
    for (int i = 0; i < SAMPLES; i++) assert_true(lk_tensor_get(read, i) == flags[i]);
    lk_tensor_free(read);
    assert_null(lk_hdf5_read(path, "huge"));
    lkt_contains(lk_error(), "element 5 is 18446744073709551614, which int64 cannot hold");
}

#else

static void test_hdf5(void **state)
{
    (void)state;
    print_message("skipped: built without HDF5\n");
    skip();
}

#endif

/* ---- A user's own dataset, and values that do not fit ---- */

static int64_t own_length(void *context)
{
    (void)context;
    return SAMPLES;
}

static lk_status own_get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    (void)pass;
    for (int j = 0; j < WIDTH; j++) ((double *)slots[0])[j] = feature((int)index * WIDTH + j);
    *(double *)slots[1] = label((int)index) + (context && index == 13 ? 0.25 : 0);
    return LK_OK;
}

static lk_dataset *own(void *with_fraction)
{
    static const lk_dataset_ops ops = {LK_SIZE(lk_dataset_ops), .length = own_length, .get = own_get};
    const lk_field fields[] = {{"features", LK_F64, LK_SHAPE(WIDTH)}, {"targets", LK_F64, {0}}};
    return lk_dataset_create(&ops, fields, 2, with_fraction);
}

static void test_own_datasets_are_converted_while_they_are_gathered(void **state)
{
    (void)state;
    assert_string_equal(trained(own(NULL), own(NULL), NULL), expected());
    /* Around another wrapper that needs room of its own. */
    lk_dataset *twice = lk_transformed(lk_cast_fields(own(NULL), {"features", LK_F32}),
                                       lk_transforms(lk_normalize(.mean = {0}, .std = {1})));
    assert_string_equal(trained(twice, own(NULL), NULL), expected());
}

static void test_a_value_that_does_not_fit(void **state)
{
    (void)state;
    int here = 1;
    lk_dataset *given = own(&here);
    lk_dataset *cast = lki_dataset_cast(given, 1, LK_I64);
    lkt_not_null(cast);
    double features[WIDTH];
    int64_t label_out, index = 12;
    lkt_ok(lk_dataset_gather(cast, NULL, &index, 1, (void *[]){features, &label_out}));
    index = 13;
    lkt_fails(lk_dataset_gather(cast, NULL, &index, 1, (void *[]){features, &label_out}), LK_ERR_RANGE,
              "field \"targets\", sample 13: ");
    lk_dataset_free(cast);
    lk_dataset_free(given);
    assert_null(lk_cast_fields(tensors(LK_F32, LK_I32), {"labels", LK_I64}));
    lkt_contains(lk_error(), "no field \"labels\"");
    lk_tensor *many = lk_tensor_full(LK_I64, LK_SHAPE(2), 300);
    assert_null(lk_cast_fields(lk_tensor_dataset({"targets", many}), {"targets", LK_U8}));
    lkt_contains(lk_error(), "field \"targets\", sample 0: 300 (int64) cannot be held by uint8");
}

static void test_named_dtypes_are_kept(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_dataset *kept = lk_cast_fields(tensors(LK_F64, LK_I64), {"features", LK_F64});
    lkt_not_null(kept);
    lkt_fails(lk_train(runner, .model = lk_linear(WIDTH, CLASSES), .criterion = lk_cross_entropy_loss(),
                       .optimizer = lk_sgd(.lr = 0.1), .device = "cpu", .num_epochs = 1,
                       .loaders = lk_loaders({"train", lk_loader(kept, .batch_size = 5)})),
              LK_ERR_DTYPE, "f64");
    lk_runner_free(runner);
    lk_dataset *picked = lk_cast_fields(tensors(LK_F64, LK_I32), {"features", LK_F32}, {"targets", LK_I64});
    assert_int_equal(lk_dataset_field(picked, 0)->dtype, LK_F32);
    assert_int_equal(lk_dataset_field(picked, 1)->dtype, LK_I64);
    assert_string_equal(trained(picked, tensors(LK_F32, LK_I64), NULL), expected());
}

static void test_predicting_one_batch(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_tensor *plain = features_as(LK_F32), *wide = features_as(LK_F64);
    lkt_ok(lk_train(runner, .model = lk_linear(WIDTH, CLASSES), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .device = "cpu",
                    .loaders = lk_loaders({"train", lk_loader(tensors(LK_F64, LK_I32), .batch_size = 5)})));
    lk_tensor *expected_output = lk_predict_batch(runner, plain), *output = lk_predict_batch(runner, wide);
    lkt_not_null(expected_output);
    lkt_not_null(output);
    assert_memory_equal(output->data, expected_output->data, lk_tensor_nbytes(output));
    lk_tensor *bytes = lk_tensor_full(LK_U8, LK_SHAPE(2, WIDTH), 3),
              *same = lk_tensor_full(LK_F32, LK_SHAPE(2, WIDTH), 3);
    lk_tensor_free(output);
    lk_tensor_free(expected_output);
    output = lk_predict_batch(runner, bytes);
    expected_output = lk_predict_batch(runner, same);
    lkt_not_null(output);
    assert_memory_equal(output->data, expected_output->data, lk_tensor_nbytes(output));
    lk_tensor_set(wide, 5, 1e300);
    assert_null(lk_predict_batch(runner, wide));
    lkt_contains(lk_error(), "field \"features\", sample 1");
    lk_tensor *others[] = {plain, wide, bytes, same, output, expected_output};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) lk_tensor_free(others[i]);
    lk_runner_free(runner);
}

static lk_status as_usual(lk_runner *runner, const lk_batch *batch)
{
    return lk_runner_supervised_batch(runner, batch);
}

/* Only the author of a handle_batch knows what it does with a field: it is told what to convert. */
static void test_a_step_of_your_own_says_what_it_got(void **state)
{
    (void)state;
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = as_usual};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lkt_fails(lk_train(runner, .model = lk_linear(WIDTH, CLASSES), .criterion = lk_cross_entropy_loss(),
                       .optimizer = lk_sgd(.lr = 0.1), .device = "cpu",
                       .loaders = lk_loaders({"train", lk_loader(tensors(LK_F64, LK_I32), .batch_size = 5)})),
              LK_ERR_DTYPE,
              "features is f64, targets is i32: lk_cast_fields or lk_tensor_cast converts them");
    lk_runner_free(runner);
    lk_module *model = lk_linear(WIDTH, CLASSES);
    lk_tensor *x = features_as(LK_F32), *y = targets_as(LK_U8);
    lk_step *step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .owned = true);
    const lk_input fields[] = {{"features", x}, {"targets", y}};
    lkt_fails(lk_step_evaluate(step, fields, 2), LK_ERR_DTYPE, "features is f32, targets is u8");
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_and_what_wraps_them),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_hdf5),
        cmocka_unit_test(test_own_datasets_are_converted_while_they_are_gathered),
        cmocka_unit_test(test_a_value_that_does_not_fit),
        cmocka_unit_test(test_named_dtypes_are_kept),
        cmocka_unit_test(test_predicting_one_batch),
        cmocka_unit_test(test_a_step_of_your_own_says_what_it_got),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
