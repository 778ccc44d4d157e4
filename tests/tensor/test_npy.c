/* .npy files against NumPy itself, and files that are wrong. */
#include "lktest.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "tensor/npy.h"

static char folder[1100];

static bool have_numpy(void)
{
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") == 0) return true;
    print_message("skipped: /usr/bin/python3 has no numpy\n");
    return false;
}

static lk_tensor *read_in_folder(const char *name)
{
    char path[1300];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    return lki_npy_read(path);
}

static void expect_0_to_11(const char *name, bool is_bool)
{
    lk_tensor *tensor = read_in_folder(name);
    lkt_not_null(tensor);
    assert_true(lk_shape_equal(tensor->shape, LK_SHAPE(3, 4)));
    assert_true(lk_tensor_is_contiguous(tensor));
    for (int i = 0; i < 12; i++) lkt_close(lk_tensor_get(tensor, i), is_bool ? i > 0 : i, 0);
    lk_tensor_free(tensor);
}

static void arrays_of_numpy(void **state)
{
    (void)state;
    char command[2400], name[64];
    if (!have_numpy()) skip();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("npy"));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/npy_check.py' write '%s'",
             LK_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    static const char *const kinds[] = {"f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "u2", "u4", "b1"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int variant = 0; variant < 4; variant++) {
            snprintf(name, sizeof name, "%s-%s%s", variant & 1 ? "be" : "le", kinds[k],
                     variant & 2 ? "-fortran" : "");
            expect_0_to_11(name, strcmp(kinds[k], "b1") == 0);
        }
    lk_tensor *tensor = read_in_folder("scalar");
    lkt_not_null(tensor);
    assert_int_equal(tensor->shape.rank, 0);
    lkt_close(lk_tensor_get(tensor, 0), 7, 0);
    lk_tensor_free(tensor);
    tensor = read_in_folder("vector");
    lkt_not_null(tensor);
    assert_true(tensor->dtype == LK_I64 && lk_shape_equal(tensor->shape, LK_SHAPE(5)));
    lk_tensor_free(tensor);
    tensor = read_in_folder("negative");
    lkt_not_null(tensor);
    lkt_close(lk_tensor_get(tensor, 1), -2, 0);
    lk_tensor_free(tensor);
    tensor = read_in_folder("version2");
    lkt_not_null(tensor);
    lkt_close(lk_tensor_get(tensor, 2), 2, 0);
    lk_tensor_free(tensor);
    assert_null(read_in_folder("complex"));
    lkt_contains(lk_error(), "complex.npy: arrays of type '<c16' are not supported");
}

static void numpy_reads_ours(void **state)
{
    (void)state;
    char command[3600], path[1300], line[300];
    static const char *const expected[] = {
        "float32 2x3 0.0 1.0 2.0 3.0 4.0 5.0\n",
        "float64 2x3 0.0 1.0 2.0 3.0 4.0 5.0\n",
        "float32 2x3 0.0 1.0 2.0 3.0 4.0 5.0\n",
        "float16 2x3 0.0 1.0 2.0 3.0 4.0 5.0\n",
        "int64 2x3 0 1 2 3 4 5\n",
        "int32 2x3 0 1 2 3 4 5\n",
        "uint8 2x3 0 1 2 3 4 5\n",
        "bool 2x3 False True True True True True\n",
    };
    if (!have_numpy()) skip();
    snprintf(path, sizeof path, "%s/ours.npy", lkt_scratch_folder("npy-ours"));
    for (int dtype = LK_F32; dtype <= LK_BOOL; dtype++) {
        lk_tensor *tensor = lk_tensor_create((lk_dtype)dtype, LK_SHAPE(3, 2));
        lk_tensor *view = lk_tensor_permute(tensor, (int[]){1, 0});
        for (int i = 0; i < 6; i++) lk_tensor_set(view, i, i);
        lkt_ok(lki_npy_write(path, view));
        snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/npy_check.py' read '%s'",
                 LK_SOURCE_DIR, path);
        FILE *pipe = popen(command, "r");
        assert_non_null(fgets(line, sizeof line, pipe));
        assert_int_equal(pclose(pipe), 0);
        assert_string_equal(line, expected[dtype]);
        lk_tensor_free(view);
        lk_tensor_free(tensor);
    }
}

static void truncated_and_malformed(void **state)
{
    (void)state;
    char path[1300];
    char *bytes;
    size_t nbytes;
    snprintf(path, sizeof path, "%s/bad.npy", lkt_scratch_folder("npy-bad"));
    lk_tensor *tensor = lk_tensor_create(LK_F32, LK_SHAPE(5));
    lkt_ok(lki_npy_write(path, tensor));
    lk_tensor_free(tensor);
    lkt_ok(lki_read_file(&bytes, &nbytes, path));
    assert_int_equal(nbytes % 64, 20); /* the data starts at a multiple of 64 */
    for (size_t length = 0; length < nbytes; length++) {
        lkt_ok(lki_write_file_atomic(path, bytes, length));
        assert_null(lki_npy_read(path));
        lkt_contains(lk_error(), "bad.npy: ");
    }
    for (size_t at = 0; at < nbytes - 20; at++) { /* any byte of the header may be wrong: no crash */
        char saved = bytes[at];
        for (int change = 1; change < 256; change += 51) {
            bytes[at] = (char)(saved ^ change);
            FILE *file = fopen(path, "wb");
            fwrite(bytes, 1, nbytes, file);
            fclose(file);
            lk_tensor_free(lki_npy_read(path));
        }
        bytes[at] = saved;
    }
    lki_free(bytes);
    assert_null(lki_npy_read("/nowhere.npy"));
    lkt_contains(lk_error(), "/nowhere.npy: no such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_of_numpy),
        cmocka_unit_test(numpy_reads_ours),
        cmocka_unit_test(truncated_and_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
