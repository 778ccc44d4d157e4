/* The files that the configs of the cases name: tensors, tables, pictures, fields. */
#include "key_cases.h"

#include "lktest.h"

#include "tensor/npy.h"
#include "tensor/png.h"

#include <lockstep/lockstep.h>

#if LOCKSTEP_HAVE_HDF5
#include <hdf5.h>
#endif

static const char *folder;

static void write_numbers(const char *name, lk_dtype dtype, lk_shape shape, int classes)
{
    char path[1200];
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++) {
        double wave = sin(0.7 * (double)i * (double)i + 0.3 * (double)i);
        lk_tensor_set(tensor, i,
                      classes ? (double)(((uint32_t)i * 2654435761u >> 16) % (uint32_t)classes) : wave);
    }
    snprintf(path, sizeof path, "%s/data/%s.npy", folder, name);
    lkt_ok(lki_npy_write(path, tensor));
    lk_tensor_free(tensor);
}

/* Classes of which the last one does not exist. */
static void write_wrong_classes(void)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/data/y.npy", folder);
    lk_tensor *tensor = lk_npy_read(path);
    lkt_not_null(tensor);
    lk_tensor *copy = lk_tensor_clone(tensor);
    lk_tensor_set(copy, 15, 9);
    snprintf(path, sizeof path, "%s/data/wrong.npy", folder);
    lkt_ok(lki_npy_write(path, copy));
    lk_tensor_free(copy);
    lk_tensor_free(tensor);
}

/* begin, begin + 1, ..., again after `count` numbers. */
static void write_counts(const char *name, lk_dtype dtype, lk_shape shape, int begin, int count)
{
    char path[1200];
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, begin + (double)(i % count));
    snprintf(path, sizeof path, "%s/data/%s.npy", folder, name);
    lkt_ok(lki_npy_write(path, tensor));
    lk_tensor_free(tensor);
}

static void write_data(void)
{
    write_counts("sign", LK_F32, LK_SHAPE(16), -1, 3);
    write_counts("signs", LK_F32, LK_SHAPE(16, 3), -1, 3);
    write_counts("var", LK_F32, LK_SHAPE(16, 3), 1, 3);
    write_counts("ranks", LK_I64, LK_SHAPE(16, 3), -1, 4); /* classes, -1 ends a list */
    write_counts("lengths", LK_I64, LK_SHAPE(16), 1, 4);
    write_counts("short", LK_I64, LK_SHAPE(16), 2, 2);
    write_numbers("x", LK_F32, LK_SHAPE(16, 4), 0);
    write_numbers("x2", LK_F32, LK_SHAPE(16, 4), 7);
    write_numbers("y", LK_I64, LK_SHAPE(16), 3);
    write_numbers("y2", LK_I64, LK_SHAPE(16), 2);
    write_numbers("z", LK_F32, LK_SHAPE(16, 3), 0);     /* targets of a regression */
    write_numbers("b", LK_F32, LK_SHAPE(16, 3), 2);     /* three labels */
    write_numbers("s", LK_F32, LK_SHAPE(16, 2, 12), 0); /* sequences, pictures, volumes */
    write_numbers("p", LK_F32, LK_SHAPE(16, 2, 7, 7), 0);
    write_numbers("q", LK_F32, LK_SHAPE(16, 2, 7, 7), 2);
    write_numbers("m", LK_I64, LK_SHAPE(16, 7, 7), 3); /* a class per pixel */
    write_numbers("v", LK_F32, LK_SHAPE(16, 2, 5, 5, 5), 0);
    write_numbers("k", LK_I64, LK_SHAPE(16, 6), 9); /* words */
}

/* Some of MNIST's format: 8 pictures of 28 by 28, and their classes. */
static void write_mnist(const char *set, int count, int shift)
{
    char path[1200];
    unsigned char pictures[16] = {0, 0, 8, 3, 0, 0, 0, (unsigned char)count, 0, 0, 0, 28, 0, 0, 0, 28};
    const unsigned char classes[8] = {0, 0, 8, 1, 0, 0, 0, (unsigned char)count};
    snprintf(path, sizeof path, "%s/data/mnist/%s-images-idx3-ubyte", folder, set);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(pictures, 1, sizeof pictures, file);
    for (int i = 0; i < count * 784; i++) fputc((i * i / 7 + shift) % 256, file);
    fclose(file);
    snprintf(path, sizeof path, "%s/data/mnist/%s-labels-idx1-ubyte", folder, set);
    file = fopen(path, "w");
    assert_non_null(file);
    fwrite(classes, 1, sizeof classes, file);
    for (int i = 0; i < count; i++) fputc(i % 10, file);
    fclose(file);
}

/* A file of CIFAR's: records of labels and pixels; `labels` bytes in front of each picture. */
static void write_cifar(const char *name, int labels, int shift)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/data/cifar/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < labels; k++) fputc((i + shift + k) % 2, file);
        for (int k = 0; k < 3072; k++) fputc((k * k / 5 + 40 * i + shift) % 256, file);
    }
    fclose(file);
}

static void write_all_cifar(void)
{
    char name[30];
    for (int i = 1; i <= 5; i++) {
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        write_cifar(name, 1, i);
    }
    write_cifar("test_batch.bin", 1, 9);
    write_cifar("train.bin", 2, 1);
    write_cifar("test.bin", 2, 8);
}

/* Four users and five items of MovieLens. */
static void write_ratings(void)
{
    lkt_shell_in(folder,
                 "cd data/ratings && printf '1\\t2\\t5\\t8\\n2\\t5\\t2\\t8\\n4\\t1\\t3\\t8\\n' > ua.base && "
                 "printf '3\\t3\\t4\\t8\\n' > ua.test");
}

/* Two classes with two pictures each. */
static void write_images(const char *name, int shift)
{
    char path[1200];
    for (int i = 0; i < 4; i++) {
        lk_tensor *pixels = lk_tensor_create(LK_U8, LK_SHAPE(8, 8, 3));
        for (int64_t k = 0; k < lk_tensor_count(pixels); k++)
            lk_tensor_set(pixels, k, (double)((k * k + 31 * i + shift) % 256));
        snprintf(path, sizeof path, "%s/data/%s/%c/%d.png", folder, name, i < 2 ? 'a' : 'b', i);
        lkt_ok(lki_png_write(path, pixels));
        lk_tensor_free(pixels);
    }
}

static void write_bytes(const char *name, const void *data, size_t nbytes)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/data/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, nbytes, file), nbytes);
    fclose(file);
}

static void write_text(const char *name, const char *text)
{
    write_bytes(name, text, strlen(text));
}

/* Lines, files of tokens, and the numbers of characters and of pairs of them. */
static void write_words(void)
{
    uint16_t narrow[40];
    uint32_t wide[40];
    for (int i = 0; i < 40; i++) narrow[i] = (uint16_t)(i * i % 37), wide[i] = narrow[i] + 200;
    write_bytes("tokens.bin", narrow, sizeof narrow);
    write_bytes("wide.bin", wide, sizeof wide);
    for (int i = 0; i < 40; i++) narrow[i] = (uint16_t)(narrow[i] + 1);
    write_bytes("tokens2.bin", narrow, sizeof narrow);
    write_text("text.txt", "abba\nab abab\nbaba aba b\nbb ab\naab b\nba\n");
    write_text("text2.txt", "abbb\nab abab\nbaba abb b\nbb ab\naab b\nba\n");
    write_text("chars.json", "{\"a\": 9, \"b\": 5, \" \": 7, \"\\n\": 2}");
    write_text("vocab.json", "{\"a\": 0, \"b\": 1, \"\\u0120\": 2, \"ab\": 3, \"\\u010a\": 4}");
    write_text("merges.txt", "#version: 0.2\na b\n");
}

static void write_tensors(void)
{
    static const char *const names[] = {"x", "x2", "y", "y2"};
    char path[1200];
    lk_state_dict *dict = lk_state_dict_create();
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/data/%s.npy", folder, names[i]);
        lkt_ok(lk_state_dict_put(dict, names[i], lk_npy_read(path)));
    }
    snprintf(path, sizeof path, "%s/data/a.safetensors", folder);
    lkt_ok(lk_save_safetensors(path, dict));
    lk_state_dict_free(dict);
}

static void write_table(const char *name, char delimiter, int shift)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/data/%s.csv", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "1%c2%c3%c4%c0\n", delimiter, delimiter, delimiter, delimiter);
    for (int i = 0; i < 9; i++)
        fprintf(file, "%d%c%d%c%d%c%d%c%d\n", i, delimiter, i % 2 + shift, delimiter, i % 3, delimiter, i % 5,
                delimiter, (i + shift) % 3);
    fclose(file);
}

static void write_hdf5(void)
{
#if LOCKSTEP_HAVE_HDF5
    static const char *const names[] = {"x", "x2", "y", "y2"};
    char path[1200];
    snprintf(path, sizeof path, "%s/data/a.h5", folder);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/data/%s.npy", folder, names[i]);
        lk_tensor *tensor = lk_npy_read(path);
        lkt_not_null(tensor);
        hsize_t dims[] = {16, 4};
        hid_t type = tensor->dtype == LK_I64 ? H5T_NATIVE_INT64 : H5T_NATIVE_FLOAT;
        hid_t space = H5Screate_simple(tensor->shape.rank, dims, NULL);
        hid_t array = H5Dcreate2(file, names[i], type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(array, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, tensor->data);
        H5Dclose(array), H5Sclose(space);
        lk_tensor_free(tensor);
    }
    H5Fclose(file);
#endif
}

/* Two fields of 16 by 16 by 16 points, "a" and "b". */
static void write_fields(const char *name, int shift)
{
#if LOCKSTEP_HAVE_HDF5
    static float values[16 * 16 * 16];
    const hsize_t dims[] = {16, 16, 16};
    char path[1200];
    snprintf(path, sizeof path, "%s/data/%s.h5", folder, name);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(3, dims, NULL);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 16 * 16 * 16; i++) values[i] = sinf(0.1f * (float)(i * (shift + k + 1))) + 1.5f;
        hid_t array =
            H5Dcreate2(file, k ? "b" : "a", H5T_NATIVE_FLOAT, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
        H5Dclose(array);
    }
    H5Sclose(space), H5Fclose(file);
#else
    (void)name, (void)shift;
#endif
}

static void write_files(void)
{
    write_hdf5();
    write_fields("u0", 0);
    write_fields("u1", 3);
    write_fields("u2", 5);
    write_fields("w0", 7);
    lkt_shell_in(folder,
                 "cd data && mkdir -p mnist fashion cifar ratings images/a images/b images2/a images2/b");
    write_mnist("train", 8, 0);
    write_mnist("t10k", 7, 9);
    lkt_shell_in(folder, "cp data/mnist/* data/fashion");
    write_all_cifar();
    write_ratings();
    write_images("images", 0);
    write_images("images2", 5);
    write_tensors();
    write_words();
    write_table("t", ',', 0);
    write_table("u", ',', 1);
    write_table("w", ';', 0);
    lkt_shell_in(folder, "(echo a,b,c,d,e; tail -n +2 data/t.csv) > data/v.csv");
}

void lkt_key_data_write(const char *place)
{
    folder = place;
    lkt_shell_in(folder, "mkdir data");
    write_data();
    write_wrong_classes();
    write_files();
}
