/* Datasets from files: .npy, .safetensors, CSV, pictures, HDF5; good ones, and what is said about bad ones.
 */
#include "lktest.h"

#include <lockstep/checkpoint.h>
#include <lockstep/data.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "data/file.h"
#include "data/image.h"

#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/data/"

static char scratch[1024];

static const char *in_scratch(const char *name)
{
    static char path[1300];
    snprintf(path, sizeof path, "%s/%s", scratch, name);
    return path;
}

static const char *write_text(const char *name, const char *text)
{
    const char *path = in_scratch(name);
    lkt_ok(lki_write_file_atomic(path, text, strlen(text)));
    return path;
}

/* ---- .npy ---- */

static void npy_files(void **state)
{
    (void)state;
    lk_tensor *x = lk_npy_read(GOLDEN "x.npy");
    lkt_not_null(x);
    assert_true(x->dtype == LK_F32 && lk_shape_equal(x->shape, LK_SHAPE(4, 2, 3)));
    for (int i = 0; i < 24; i++) assert_true(((float *)x->data)[i] == (float)i / 7.0f);
    lk_tensor_free(x);
    x = lk_npy_read(GOLDEN "scalar.npy");
    assert_true(x->dtype == LK_F64 && x->shape.rank == 0 && lk_tensor_get(x, 0) == 2.5);
    lk_tensor_free(x);
    lk_dataset *dataset = lk_npy_dataset({"features", GOLDEN "x.npy"}, {"targets", GOLDEN "y.npy"},
                                         {"bytes", GOLDEN "bytes.npy"});
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 4);
    float features[12];
    int64_t targets[2], indices[] = {2, 0};
    uint8_t bytes[4];
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, indices, 2, (void *[]){features, targets, bytes}));
    assert_true(features[0] == 12 / 7.0f && features[6] == 0 && targets[0] == 4 && targets[1] == 3 &&
                bytes[1] == 5);
    lk_dataset_free(dataset);
}

static void bad_npy_files(void **state)
{
    (void)state;
    assert_null(lk_npy_read("/nowhere/x.npy"));
    lkt_contains(lk_error(), "/nowhere/x.npy");
    assert_null(lk_npy_dataset({"features", GOLDEN "x.npy"}, {"targets", "/nowhere/y.npy"}));
    assert_null(lk_npy_dataset({"features", GOLDEN "scalar.npy"}));
    lkt_contains(lk_error(), "a scalar has no samples");
}

/* ---- safetensors ---- */

static void safetensors_files(void **state)
{
    (void)state;
    char path[1300];
    snprintf(path, sizeof path, "%s", in_scratch("made.safetensors"));
    lk_state_dict *dict = lk_state_dict_create();
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(5, 2)), *y = lk_tensor_create(LK_I64, LK_SHAPE(5));
    for (int i = 0; i < 10; i++) lk_tensor_set(x, i, i / 2.0);
    for (int i = 0; i < 5; i++) lk_tensor_set(y, i, 10 - i);
    lkt_ok(lk_state_dict_put(dict, "X", x));
    lkt_ok(lk_state_dict_put(dict, "y", y));
    lkt_ok(lk_save_safetensors(path, dict));
    lk_state_dict_free(dict);
    lk_dataset *whole = lk_safetensors_dataset(path),
               *named = lk_safetensors_dataset(path, .features = "X", .targets = "y");
    lkt_not_null(whole);
    lkt_not_null(named);
    assert_int_equal(lk_dataset_find_field(whole, "X"), 0);
    assert_int_equal(lk_dataset_find_field(named, "targets"), 1);
    float features[2];
    int64_t target, three = 3;
    lkt_ok(lk_dataset_gather(named, &(lk_pass){0}, &three, 1, (void *[]){features, &target}));
    assert_true(features[0] == 3 && features[1] == 3.5f && target == 7);
    lk_dataset_free(whole);
    lk_dataset_free(named);
    assert_null(lk_safetensors_dataset(path, .features = "Z"));
    lkt_contains(lk_error(), "made.safetensors: ");
    lkt_contains(lk_error(), "Z");
    assert_null(lk_safetensors_dataset(in_scratch("nowhere.safetensors")));
    assert_null(lk_safetensors_dataset(write_text("text.safetensors", "hello")));
}

/* ---- CSV ---- */

/* Names of classes are numbered in the order of their bytes, or in a given order; columns may be left out. */
static void csv_tables_of_names(void **state)
{
    (void)state;
    const char *path =
        write_text("names.csv", "id,bill,kind,note\nA1,1,wren,x\nA2,2,\"an \"\"owl\"\"\",y\nA3,3,robin,\n"
                                "A4,4,wren,z\n");
    static const char *const orders[] = {NULL, "wren,robin,an \"owl\""};
    static const int64_t labels[][4] = {{2, 0, 1, 2}, {0, 2, 1, 0}};
    for (int i = 0; i < 2; i++) {
        lk_dataset *dataset = lk_csv_dataset(path, .target_columns = "kind", .class_targets = true,
                                             .feature_columns = "bill", .classes = orders[i]);
        assert_non_null(dataset);
        float features[4];
        int64_t targets[4];
        void *const slots[] = {features, targets};
        assert_int_equal(lk_dataset_gather(dataset, NULL, (int64_t[]){0, 1, 2, 3}, 4, slots), LK_OK);
        assert_memory_equal(targets, labels[i], sizeof targets);
        for (int k = 0; k < 4; k++) assert_true(features[k] == (float)(k + 1));
        assert_int_equal(lk_dataset_class_count(dataset), 3);
        assert_string_equal(lk_dataset_class_name(dataset, (int)labels[i][0]), "wren");
        assert_string_equal(lk_dataset_class_name(dataset, (int)labels[i][1]), "an \"owl\"");
        lk_dataset_free(dataset);
    }
}

static void csv_tables(void **state)
{
    (void)state;
    const char *path = write_text("good.csv", "a, b,\"the class\"\r\n1,2.5,0\r\n\r\n-3e2,\"4\",2\n5,6,1");
    lk_dataset *dataset = lk_csv_dataset(path, .class_targets = true);
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 3);
    float features[6];
    int64_t targets[3], all[] = {0, 1, 2};
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, all, 3, (void *[]){features, targets}));
    static const float expected[] = {1, 2.5f, -300, 4, 5, 6};
    static const int64_t classes[] = {0, 2, 1};
    assert_memory_equal(features, expected, sizeof expected);
    assert_memory_equal(targets, classes, sizeof classes);
    lk_dataset_free(dataset);
    dataset = lk_csv_dataset(path, .target_columns = "b,a");
    lkt_not_null(dataset);
    assert_true(lk_shape_equal(lk_dataset_field(dataset, 0)->shape, LK_SHAPE(1)));
    assert_true(lk_shape_equal(lk_dataset_field(dataset, 1)->shape, LK_SHAPE(2)));
    lk_dataset_free(dataset);
    dataset = lk_csv_dataset(write_text("bare.csv", "1;2;3\n4;5;6\n"), .delimiter = ';', .no_header = true,
                             .target_columns = "0");
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 2);
    lk_dataset_free(dataset);
}

/* As spreadsheets write them: a byte order mark first, quotes in quotes doubled. */
static void csv_tables_of_spreadsheets(void **state)
{
    (void)state;
    static const float expected[] = {1, 2, 3, 4};
    float features[4], targets[2];
    int64_t all[] = {0, 1};
    lk_dataset *dataset = lk_csv_dataset(write_text("mark.csv", "\xef\xbb\xbf"
                                                                "a,b,y\n1,2,0\n3,4,1\n"),
                                         .target_columns = "y");
    lkt_not_null(dataset);
    lk_dataset_free(dataset);
    dataset = lk_csv_dataset(write_text("mark.csv", "\xef\xbb\xbf"
                                                    "y,a\n0,1\n"),
                             .target_columns = "y");
    lkt_not_null(dataset);
    lk_dataset_free(dataset);
    dataset = lk_csv_dataset(write_text("mark.csv", "\xef\xbb\xbf"
                                                    "1,2,5\n3,4,6\n"),
                             .no_header = true);
    lkt_not_null(dataset);
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, all, 2, (void *[]){features, targets}));
    assert_memory_equal(features, expected, sizeof expected);
    lk_dataset_free(dataset);
    dataset = lk_csv_dataset(write_text("quotes.csv", "\"a \"\"q\"\"\",\"\"\"\",b\"\"c\n1,2,0\n"),
                             .target_columns = "a \"q\",\",b\"\"c");
    assert_null(dataset); /* all of them were found, and none is left */
    lkt_contains(lk_error(), "no column is left for the features");
    assert_null(lk_csv_dataset(write_text("mark.csv", "\xef\xbb\xbf"), .no_header = true));
    lkt_contains(lk_error(), "no line to read");
}

static void check_bad_csv(const char *text, lk_csv_dataset_options options, const char *fragment)
{
    const char *path = write_text("bad.csv", text);
    assert_null(lk_csv_dataset_with(path, &options));
    lkt_contains(lk_error(), fragment);
}

static void bad_csv_tables(void **state)
{
    (void)state;
    lk_csv_dataset_options plain = {LK_SIZE(lk_csv_dataset_options)};
    check_bad_csv("a,b\n1,2\n3,nan\n", plain, "bad.csv:3: column \"b\": expected a number, found \"nan\"");
    check_bad_csv("a,b\n1,2\n\n3,fast\n", plain,
                  "bad.csv:4: column \"b\": expected a number, found \"fast\"");
    check_bad_csv("a,b\n1,inf\n", plain, "bad.csv:2");
    check_bad_csv("a,b\n,2\n", plain, "bad.csv:2: column \"a\": expected a number, found \"\"");
    check_bad_csv("a,b\n1,2,3\n", plain, "bad.csv:2: more than 2 cells");
    check_bad_csv("a,b\n1,2\n3\n", plain, "bad.csv:3: 1 cells, expected 2");
    check_bad_csv("a,b\n1,\"2\n", plain, "bad.csv:2: a quote is not closed");
    check_bad_csv("a,b\n1,\"2\"\"\n", plain, "bad.csv:2: a quote is not closed");
    check_bad_csv("a,b\n1,\"2\"x\n", plain, "bad.csv:2: text after a closing quote");
    check_bad_csv("\n\n", plain, "no line to read");
    check_bad_csv("a\n1\n", plain, "no column is left");
    check_bad_csv("a,b\n1,2\n", *LK_OPTIONS(lk_csv_dataset_options, .target_columns = "c"),
                  "no column \"c\"");
    check_bad_csv("a,b\n1,2.5\n", *LK_OPTIONS(lk_csv_dataset_options, .class_targets = true),
                  "row 1: column \"b\": expected a class number");
    check_bad_csv("a,b\n1,wren\n", plain, "found \"wren\"; class_targets takes names of classes");
    check_bad_csv("a,b\nwren,1\n", plain, "found \"wren\"; feature_columns chooses columns");
    lk_csv_dataset_options classes = {LK_SIZE(lk_csv_dataset_options), .class_targets = true};
    check_bad_csv("a,b\n1,wren\n2,\n", classes, "bad.csv:3: column \"b\": expected a class, found \"\"");
    check_bad_csv("a,b\n1,0\n2,wren\n", classes,
                  "bad.csv:3: column \"b\": expected a number, found \"wren\"");
    classes.classes = "wren,robin";
    check_bad_csv("a,b\n1,wren\n2,owl\n", classes,
                  "bad.csv:3: column \"b\": expected one of the classes, found \"owl\"");
    classes.classes = "wren,wren";
    check_bad_csv("a,b\n1,wren\n", classes, "classes: \"wren\" is there twice");
    check_bad_csv("a,b\n1,2\n", *LK_OPTIONS(lk_csv_dataset_options, .classes = "x"),
                  "classes needs class_targets");
    check_bad_csv("a,b\n1,2\n", *LK_OPTIONS(lk_csv_dataset_options, .feature_columns = "a,b"),
                  "column \"b\" cannot be both a feature and a target");
    check_bad_csv("a,b\n1,1e999\n", plain, "bad.csv:2");
    assert_null(lk_csv_dataset("/nowhere/table.csv"));
    lkt_contains(lk_error(), "/nowhere/table.csv: no such file");
}

/* ---- Pictures ---- */

#if LOCKSTEP_HAVE_PNG && LOCKSTEP_HAVE_JPEG
#include <jpeglib.h>
#include <png.h>

static void write_png(const char *path, const uint8_t *pixels, int height, int width, bool grey)
{
    png_image image = {
        .version = PNG_IMAGE_VERSION, .width = (png_uint_32)width, .height = (png_uint_32)height};
    image.format = grey ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
    assert_true(png_image_write_to_file(&image, path, 0, pixels, 0, NULL));
}

static void write_jpeg(const char *path, uint8_t *pixels, int height, int width)
{
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr error;
    FILE *file = fopen(path, "wb");
    info.err = jpeg_std_error(&error);
    jpeg_create_compress(&info);
    jpeg_stdio_dest(&info, file);
    info.image_width = (JDIMENSION)width;
    info.image_height = (JDIMENSION)height;
    info.input_components = 3;
    info.in_color_space = JCS_RGB;
    jpeg_set_defaults(&info);
    jpeg_set_quality(&info, 100, TRUE);
    jpeg_start_compress(&info, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = pixels + y * width * 3;
        jpeg_write_scanlines(&info, &row, 1);
    }
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    fclose(file);
}

static void make_pictures(uint8_t *colours)
{
    mkdir(in_scratch("pictures"), 0777);
    mkdir(in_scratch("pictures/zebra"), 0777);
    mkdir(in_scratch("pictures/Ant"), 0777);
    uint8_t flat[6 * 4 * 3];
    for (int i = 0; i < 72; i++) colours[i] = (uint8_t)(3 * i);
    memset(flat, 200, sizeof flat);
    write_png(in_scratch("pictures/zebra/1.png"), colours, 6, 4, false);
    write_png(in_scratch("pictures/zebra/0.PNG"), colours, 6, 4, true);
    write_jpeg(in_scratch("pictures/Ant/x.jpeg"), flat, 6, 4);
    write_text("pictures/Ant/notes.txt", "not a picture");
    write_text("pictures/README", "not a class");
}

static void picture_folders(void **state)
{
    (void)state;
    uint8_t colours[72];
    make_pictures(colours);
    char root[1300];
    snprintf(root, sizeof root, "%s", in_scratch("pictures"));
    lk_dataset *dataset = lk_image_folder(root);
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 3);
    assert_true(lk_shape_equal(lk_dataset_field(dataset, 0)->shape, LK_SHAPE(3, 6, 4)));
    float pixels[3][72];
    int64_t labels[3], all[] = {0, 1, 2};
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, all, 3, (void *[]){pixels, labels}));
    assert_true(labels[0] == 0 && labels[1] == 1 && labels[2] == 1);
    for (int i = 0; i < 72; i++) {
        lkt_close(pixels[0][i], 200 / 255.0, 0.01);            /* JPEG is not exact */
        assert_true(pixels[1][i] == colours[i % 24] / 255.0f); /* grey in all three channels */
        assert_true(pixels[2][i] == colours[i % 24 * 3 + i / 24] / 255.0f);
    }
    /* Many threads read pictures at once. */
    lk_loader *loader = lk_loader(dataset, .batch_size = 1, .num_workers = 3);
    for (int epoch = 0; epoch < 5; epoch++) {
        lk_batch *batch;
        lkt_ok(lk_loader_begin(loader, LK_OPTIONS(lk_pass_options, .epoch = epoch), NULL));
        for (int i = 0; i < 3; i++) {
            lkt_ok(lk_loader_next(loader, &batch));
            assert_memory_equal(lk_batch_get(batch, "features")->data, pixels[i], sizeof pixels[i]);
        }
    }
    lk_loader_free(loader);
    /* Other sizes and channels. */
    uint8_t large[8 * 8 * 3] = {0};
    write_png(in_scratch("pictures/zebra/2.png"), large, 8, 8, false);
    dataset = lk_image_folder(root);
    int64_t last = 3;
    lkt_fails(lk_dataset_gather(dataset, &(lk_pass){0}, &last, 1, (void *[]){pixels, labels}), LK_ERR_SHAPE,
              "2.png: 8x8 pixels, the first picture has 4x6");
    lk_dataset_free(dataset);
    dataset = lk_image_folder(root, .height = 3, .width = 2, .channels = 1);
    assert_true(lk_shape_equal(lk_dataset_field(dataset, 0)->shape, LK_SHAPE(1, 3, 2)));
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, &last, 1, (void *[]){pixels, labels}));
    lk_dataset_free(dataset);
}

static void cut_file(const char *from, const char *to, double fraction)
{
    char bytes[20000];
    FILE *file = fopen(from, "rb");
    size_t nbytes = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    lkt_ok(lki_write_file_atomic(to, bytes, (size_t)((double)nbytes * fraction)));
}

static void bad_pictures(void **state)
{
    (void)state;
    uint8_t colours[72];
    char source[1300];
    lki_image image;
    make_pictures(colours);
    snprintf(source, sizeof source, "%s", in_scratch("pictures/zebra/1.png"));
    cut_file(source, in_scratch("cut.png"), .6);
    lkt_fails(lki_image_read(&image, in_scratch("cut.png"), 3), LK_ERR_FORMAT, "cut.png: unreadable PNG");
    snprintf(source, sizeof source, "%s", in_scratch("pictures/Ant/x.jpeg"));
    for (double fraction = .1; fraction < .95; fraction += .1) {
        cut_file(source, in_scratch("cut.jpg"), fraction);
        lkt_fails(lki_image_read(&image, in_scratch("cut.jpg"), 3), LK_ERR_FORMAT,
                  "cut.jpg: unreadable JPEG");
    }
    lkt_fails(lki_image_read(&image, write_text("fake.png", "hello, world"), 3), LK_ERR_FORMAT, "neither");
    assert_null(lk_image_folder(in_scratch("nowhere")));
    lkt_contains(lk_error(), "nowhere: No such file");
    mkdir(in_scratch("hollow"), 0777);
    assert_null(lk_image_folder(in_scratch("hollow")));
    lkt_contains(lk_error(), "no pictures");
    assert_null(lk_image_folder(in_scratch("hollow"), .channels = 2));
}

static void resizing_is_torchs(void **state)
{
    (void)state;
    uint8_t bytes[20];
    for (int i = 0; i < 20; i++) bytes[i] = (uint8_t)((7 * i * i) % 256);
    float out[18];
    lki_image_to_f32(&(lki_image){5, 4, 1, bytes}, out, 3, 6);
    FILE *file = fopen(GOLDEN "resize.txt", "r");
    for (int i = 0; i < 18; i++) {
        double expected;
        assert_int_equal(fscanf(file, "%lf", &expected), 1);
        lkt_close(out[i], expected, 1e-6);
    }
    fclose(file);
}
#endif

/* ---- HDF5 ---- */

#if LOCKSTEP_HAVE_HDF5
#include <hdf5.h>

static void make_hdf5(const char *path)
{
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hsize_t dims[] = {4, 3};
    float values[12];
    int16_t labels[4] = {1, -2, 3, 4};
    for (int i = 0; i < 12; i++) values[i] = (float)i / 4;
    hid_t space = H5Screate_simple(2, dims, NULL), line = H5Screate_simple(1, dims, NULL);
    hid_t group = H5Gcreate2(file, "zgroup", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t u = H5Dcreate2(file, "u", H5T_IEEE_F32BE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t y = H5Dcreate2(file, "classes", H5T_STD_I16LE, line, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    hid_t inner = H5Dcreate2(group, "v", H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(u, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dwrite(inner, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    H5Dwrite(y, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT, labels);
    H5Dclose(inner), H5Dclose(y), H5Dclose(u), H5Gclose(group), H5Sclose(line), H5Sclose(space),
        H5Fclose(file);
}

static void hdf5_files(void **state)
{
    (void)state;
    char path[1300];
    snprintf(path, sizeof path, "%s", in_scratch("made.h5"));
    make_hdf5(path);
    lk_dataset *dataset = lk_hdf5_dataset(path, .targets = "classes");
    lkt_not_null(dataset);
    float features[6];
    int32_t classes[2];
    int64_t indices[] = {3, 1};
    assert_true(lk_dataset_field(dataset, 0)->dtype == LK_F32 &&
                lk_dataset_field(dataset, 1)->dtype == LK_I32);
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, indices, 2, (void *[]){features, classes}));
    assert_true(features[0] == 2.25f && features[5] == 1.25f && classes[0] == 4 && classes[1] == -2);
    lk_dataset_free(dataset);
    lk_tensor *inner = lk_hdf5_read(path, "zgroup/v");
    assert_true(inner && inner->dtype == LK_F64 && lk_tensor_get(inner, 5) == 1.25);
    lk_tensor_free(inner);
    assert_null(lk_hdf5_dataset(path, .features = "velocity"));
    lkt_contains(lk_error(), "made.h5: no array \"velocity\": the file has classes, u");
    assert_null(lk_hdf5_dataset(path, .features = "u", .targets = "zgroup/w"));
    assert_null(lk_hdf5_read("/nowhere/made.h5", NULL));
    lkt_contains(lk_error(), "no such file");
    assert_null(lk_hdf5_read(write_text("text.h5", "hello"), NULL));
    lkt_contains(lk_error(), "not a readable HDF5 file");
}

static void real_turbulence(void **state)
{
    (void)state;
    const char *shared = getenv("LOCKSTEP_SHARED");
    char path[1300];
    snprintf(path, sizeof path, "%s/data/sapsan/cnn_krr/t0/u_dim32_fm15.h5",
             shared ? shared : LK_SOURCE_DIR "/../shared");
    if (access(path, R_OK) != 0) {
        print_message("the turbulence files are not at hand (LOCKSTEP_SHARED)\n");
        skip();
    }
    lk_tensor *u = lk_hdf5_read(path, NULL);
    lkt_not_null(u);
    assert_true(u->dtype == LK_F32 && lk_shape_equal(u->shape, LK_SHAPE(3, 32, 32, 32)));
    lk_tensor *same = lk_hdf5_read(path, "u00000");
    assert_memory_equal(u->data, same->data, lk_tensor_nbytes(u));
    lk_tensor_free(u);
    lk_tensor_free(same);
}
#endif

static int make_scratch(void **state)
{
    (void)state;
    snprintf(scratch, sizeof scratch, "%s", lkt_scratch_folder("data_files"));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy_files),
        cmocka_unit_test(bad_npy_files),
        cmocka_unit_test(safetensors_files),
        cmocka_unit_test(csv_tables),
        cmocka_unit_test(csv_tables_of_spreadsheets),
        cmocka_unit_test(csv_tables_of_names),
        cmocka_unit_test(bad_csv_tables),
#if LOCKSTEP_HAVE_PNG && LOCKSTEP_HAVE_JPEG
        cmocka_unit_test(picture_folders),
        cmocka_unit_test(bad_pictures),
        cmocka_unit_test(resizing_is_torchs),
#endif
#if LOCKSTEP_HAVE_HDF5
        cmocka_unit_test(hdf5_files),
        cmocka_unit_test(real_turbulence),
#endif
    };
    return cmocka_run_group_tests(tests, make_scratch, NULL);
}
