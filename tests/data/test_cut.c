/* Files that lose their bytes while they are mapped, and shapes that no memory holds. */
#include "lktest.h"

#include <lockstep/data.h>
#include <lockstep/lockstep.h>

#include "tensor/npy.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAMPLES = 4096, WIDTH = 16 };

static char path[1200];

static void write_array(lk_dtype dtype)
{
    lk_tensor *tensor = lk_tensor_full(dtype, LK_SHAPE(SAMPLES, WIDTH), 1);
    snprintf(path, sizeof path, "%s/x.npy", lkt_scratch_folder("cut"));
    lkt_ok(lki_npy_write(path, tensor));
    lk_tensor_free(tensor);
}

static void test_a_file_that_is_cut_is_an_error(void **state)
{
    (void)state;
    static float row[WIDTH];
    int64_t first = 0, last = SAMPLES - 1;
    write_array(LK_F32);
    lk_dataset *dataset = lk_npy_dataset({"features", path});
    lkt_not_null(dataset);
    lkt_ok(lk_dataset_gather(dataset, NULL, &first, 1, (void *[]){row}));
    assert_true(row[0] == 1);
    assert_int_equal(truncate(path, 4096), 0);
    lkt_fails(lk_dataset_gather(dataset, NULL, &last, 1, (void *[]){row}), LK_ERR_IO, "x.npy");
    lkt_contains(lk_error(), "it was truncated, or its disk has failed");
    lk_dataset_free(dataset);
    /* Other files are not held responsible for it. */
    write_array(LK_F32);
    dataset = lk_npy_dataset({"features", path});
    lkt_ok(lk_dataset_gather(dataset, NULL, &last, 1, (void *[]){row}));
    lk_dataset_free(dataset);
}

static void test_a_loader_and_a_conversion_find_it_too(void **state)
{
    (void)state;
    for (int workers = 0; workers < 3; workers += 2) {
        lk_batch *batch = NULL;
        lk_status status = LK_OK;
        write_array(LK_F32);
        lk_loader *loader =
            lk_loader(lk_npy_dataset({"features", path}), .batch_size = 64, .num_workers = workers);
        lkt_not_null(loader);
        assert_int_equal(truncate(path, 4096), 0);
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        do status = lk_loader_next(loader, &batch);
        while (!status && batch);
        assert_int_equal(status, LK_ERR_IO);
        lkt_contains(lk_error(), "x.npy: can no longer be read");
        lk_loader_free(loader);
    }
    write_array(LK_F64);
    lk_dataset *dataset = lk_npy_dataset({"features", path});
    assert_int_equal(truncate(path, 4096), 0);
    assert_null(lk_cast_fields(dataset, {"features", LK_F32}));
    lkt_contains(lk_error(), "x.npy: can no longer be read");
}

/* A fault that is not ours ends the process as before. */
static void test_other_faults_are_left_alone(void **state)
{
    (void)state;
    int status;
    write_array(LK_F32);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL); /* instead of the test framework's */
        if (!lk_npy_read(path)) _exit(1);
        raise(SIGBUS);
        raise(SIGBUS);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void test_shapes_that_overflow_behind_a_zero(void **state)
{
    (void)state;
    char header[128];
    snprintf(path, sizeof path, "%s/shape.npy", lkt_scratch_folder("cut_shape"));
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    int length =
        snprintf(header + 10, sizeof header - 10,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 42), }");
    header[10 + length] = ' ';
    header[127] = '\n';
    FILE *file = fopen(path, "w");
    fwrite(header, 1, sizeof header, file);
    fclose(file);
    assert_null(lk_npy_read(path));
    lkt_contains(lk_error(), "larger than any memory");
    assert_null(lk_tensor_create(LK_F32, LK_SHAPE(INT64_MAX, 0, 42)));
    lk_tensor *empty = lk_tensor_create(LK_F32, LK_SHAPE(0, 5));
    lkt_not_null(empty);
    lk_tensor_free(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_is_cut_is_an_error),
        cmocka_unit_test(test_a_loader_and_a_conversion_find_it_too),
        cmocka_unit_test(test_other_faults_are_left_alone),
        cmocka_unit_test(test_shapes_that_overflow_behind_a_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
