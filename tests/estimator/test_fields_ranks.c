/* HDF5 files read by several processes that were started one by one, and by forked readers: the numbers are
 * those that one process reads, and a bad file is named by all of them in the same words. */
#include "case.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if LOCKSTEP_HAVE_HDF5
#include <hdf5.h>

enum { RANKS = 3, CHECKPOINTS = 4 };

static char folder[512], program[512];

/* ---- Files ---- */

/* As a simulation may write them: plain f32, or f64 in compressed chunks. */
static void write_array(const char *name, const char *label, lk_tensor *owned, bool packed, bool append)
{
    char path[1200];
    hsize_t dims[LK_MAX_DIMS];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (int i = 0; i < owned->shape.rank; i++) dims[i] = (hsize_t)owned->shape.dim[i];
    hid_t file = append ? H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT)
                        : H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t space = H5Screate_simple(owned->shape.rank, dims, NULL), how = H5Pcreate(H5P_DATASET_CREATE);
    if (packed) {
        H5Pset_chunk(how, owned->shape.rank, dims);
        H5Pset_deflate(how, 1);
    }
    hid_t array = H5Dcreate2(file, label, packed ? H5T_IEEE_F64LE : H5T_IEEE_F32LE, space, H5P_DEFAULT, how,
                             H5P_DEFAULT);
    assert_true(H5Dwrite(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, owned->data) >= 0);
    H5Dclose(array);
    H5Pclose(how);
    H5Sclose(space);
    H5Fclose(file);
    lk_tensor_free(owned);
}

static lk_tensor *numbers(lk_shape shape, double first)
{
    lk_tensor *out = lk_tensor_create(LK_F32, shape);
    float *values = out->data;
    for (int64_t i = 0, n = lk_tensor_count(out); i < n; i++)
        values[i] = (float)(first + (double)(i % 9973) / 64);
    return out;
}

/* u: two channels, plain; rho: none, packed; s: a file of two arrays. */
static void make_files(const char *where, int64_t points)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(where));
    for (int t = 0; t < CHECKPOINTS; t++) {
        char u[32], rho[32], s[32];
        snprintf(u, sizeof u, "u_%d.h5", t);
        snprintf(rho, sizeof rho, "rho_%d.h5", t);
        snprintf(s, sizeof s, "s_%d.h5", t);
        write_array(u, "velocity", numbers(LK_SHAPE(2, points, points, points), 100 * t), false, false);
        write_array(rho, "density", numbers(LK_SHAPE(points, points, points), 100 * t + 1), true, false);
        write_array(s, "a", numbers(LK_SHAPE(1, points, points, points), 100 * t + 2), false, false);
        write_array(s, "b", numbers(LK_SHAPE(3, points, points, points), 100 * t + 3), true, true);
    }
}

/* ---- What is read ---- */

enum { WHOLE, SAMPLED, CUT, CUT_FLAT, NO_TARGETS, WAYS };

static lk_fields *read_fields(int way, int64_t points)
{
    char path[1200];
    static const char *const features[] = {"u", "rho", "s"}, *const targets[] = {"s", "u"};
    static const char *const labels[] = {"velocity", "density", "b"}, *const target_labels[] = {"a",
                                                                                                "velocity"};
    static const double checkpoints[CHECKPOINTS] = {0, 1, 2, 3};
    lk_fields_options options = {LK_SIZE(lk_fields_options),
                                 .features = {features, 3},
                                 .targets = {targets, 2},
                                 .feature_labels = {labels, 3},
                                 .target_labels = {target_labels, 2},
                                 .checkpoints = {checkpoints, CHECKPOINTS},
                                 .input_size = {points, points, points}};
    if (way == NO_TARGETS) options.targets.count = options.target_labels.count = 0;
    for (int i = 0; i < 3; i++) {
        if (way == SAMPLED) options.sample_to[i] = points / 2;
        if (way == CUT || way == CUT_FLAT) options.batch_size[i] = points / 4;
    }
    options.flat = way == CUT_FLAT;
    snprintf(path, sizeof path, "%s/{feature}_{checkpoint:.0f}.h5", folder);
    return lk_hdf5_fields_with(path, &options);
}

/* The same by other means: each array through lk_hdf5_read, then stacked and cut in memory. */
static lk_tensor *stack(const char *const *names, const char *const *labels, int count, int64_t points)
{
    int64_t channels = 0, cube = points * points * points;
    float *all = NULL;
    size_t used = 0;
    for (int t = 0; t < CHECKPOINTS; t++) {
        channels = 0;
        for (int i = 0; i < count; i++) {
            char path[1200];
            snprintf(path, sizeof path, "%s/%s_%d.h5", folder, names[i], t);
            lk_tensor *raw = lk_hdf5_read(path, labels[i]), *values = lk_tensor_cast(raw, LK_F32);
            size_t nbytes = lk_tensor_nbytes(values);
            all = realloc(all, used + nbytes);
            memcpy((char *)all + used, values->data, nbytes);
            used += nbytes;
            channels += lk_tensor_count(values) / cube;
            lk_tensor_free(values);
            lk_tensor_free(raw);
        }
    }
    lk_tensor *out = lk_tensor_create(LK_F32, LK_SHAPE(CHECKPOINTS, channels, points, points, points));
    memcpy(out->data, all, used);
    free(all);
    return out;
}

static lk_fields *expected_fields(int way, int64_t points)
{
    const char *const features[] = {"u", "rho", "s"}, *const targets[] = {"s", "u"};
    const char *const labels[] = {"velocity", "density", "b"}, *const target_labels[] = {"a", "velocity"};
    lk_fields_options options = {LK_SIZE(lk_fields_options), .flat = way == CUT_FLAT};
    for (int i = 0; i < 3; i++) {
        if (way == SAMPLED) options.sample_to[i] = points / 2;
        if (way == CUT || way == CUT_FLAT) options.batch_size[i] = points / 4;
    }
    return lk_tensor_fields_with(stack(features, labels, 3, points),
                                 way == NO_TARGETS ? NULL : stack(targets, target_labels, 2, points),
                                 &options);
}

static void expect_same(const lk_tensor *a, const lk_tensor *b)
{
    assert_true(lk_shape_equal(a->shape, b->shape));
    assert_memory_equal(a->data, b->data, lk_tensor_nbytes(b));
}

static void expect_fields(const lk_fields *fields, int way, int64_t points)
{
    lkt_not_null(fields);
    lk_fields *expected = expected_fields(way, points);
    lkt_not_null(expected);
    expect_same(lk_fields_features(fields), lk_fields_features(expected));
    expect_same(lk_fields_targets(fields), lk_fields_targets(expected));
    lk_tensor *a = lk_fields_combine(fields, lk_fields_targets(fields));
    lk_tensor *b = lk_fields_combine(expected, lk_fields_targets(expected));
    expect_same(a, b);
    lk_tensor_free(a);
    lk_tensor_free(b);
    lk_fields_free(expected);
}

/* ---- Ranks: this program again, with arguments ---- */

enum { POINTS = 8 };

/* Writes the numbers, or the sentence, to standard output. */
static int be_rank(char **argv)
{
    snprintf(folder, sizeof folder, "%s", argv[1]);
    lk_fields *fields = read_fields(atoi(argv[2]), POINTS);
    if (!fields) return printf("%s\n", lk_error()) < 0;
    const lk_tensor *x = lk_fields_features(fields), *y = lk_fields_targets(fields);
    bool written = fwrite(x->data, 1, lk_tensor_nbytes(x), stdout) == lk_tensor_nbytes(x) &&
                   fwrite(y->data, 1, lk_tensor_nbytes(y), stdout) == lk_tensor_nbytes(y);
    lk_fields_free(fields);
    return !written;
}

/* What each rank printed lies in FOLDER/out.RANK. */
static void run_ranks(int way)
{
    pid_t ranks[RANKS];
    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        ranks[i] = fork();
        if (ranks[i]) continue;
        char out[600], text[12];
        snprintf(out, sizeof out, "%s/out.%d", folder, i);
        snprintf(text, sizeof text, "%d", way);
        setenv("WORLD_SIZE", "3", 1);
        int fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0) _exit(1);
        execl(program, program, folder, text, (char *)NULL);
        _exit(1);
    }
    for (int i = 0; i < RANKS; i++) {
        int status = 0;
        assert_int_equal(waitpid(ranks[i], &status, 0), ranks[i]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static char *printed(int rank, size_t *nbytes)
{
    char path[600];
    struct stat status;
    snprintf(path, sizeof path, "%s/out.%d", folder, rank);
    FILE *file = fopen(path, "r");
    assert_true(file && fstat(fileno(file), &status) == 0);
    char *text = calloc(1, (size_t)status.st_size + 1);
    *nbytes = fread(text, 1, (size_t)status.st_size, file);
    fclose(file);
    return text;
}

static void ranks_read_what_one_process_reads(void **state)
{
    (void)state;
    make_files("fields_ranks", POINTS);
    for (int way = 0; way < WAYS; way++) {
        lk_fields *alone = read_fields(way, POINTS);
        expect_fields(alone, way, POINTS);
        const lk_tensor *x = lk_fields_features(alone), *y = lk_fields_targets(alone);
        run_ranks(way);
        for (int i = 0; i < RANKS; i++) {
            size_t nbytes;
            char *bytes = printed(i, &nbytes);
            assert_int_equal(nbytes, lk_tensor_nbytes(x) + lk_tensor_nbytes(y));
            assert_memory_equal(bytes, x->data, lk_tensor_nbytes(x));
            assert_memory_equal(bytes + lk_tensor_nbytes(x), y->data, lk_tensor_nbytes(y));
            free(bytes);
        }
        lk_fields_free(alone);
    }
}

static void expect_sentence(const char *fragment)
{
    run_ranks(WHOLE);
    assert_null(read_fields(WHOLE, POINTS));
    lkt_contains(lk_error(), fragment);
    for (int i = 0; i < RANKS; i++) {
        size_t nbytes;
        char *text = printed(i, &nbytes);
        assert_true(nbytes > 1 && text[nbytes - 1] == '\n');
        text[nbytes - 1] = 0;
        assert_string_equal(text, lk_error());
        free(text);
    }
}

static void damage(const char *name, off_t from_end, bool tear)
{
    char path[600], zeros[64] = {0};
    struct stat status;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &status) == 0);
    if (tear)
        assert_int_equal(ftruncate(fd, status.st_size / 2), 0);
    else
        assert_int_equal(pwrite(fd, zeros, sizeof zeros, status.st_size - from_end), (ssize_t)sizeof zeros);
    close(fd);
}

static void a_bad_file_is_named_by_all(void **state)
{
    (void)state;
    make_files("fields_ranks_bad", POINTS);
    lk_tensor *holes = numbers(LK_SHAPE(2, POINTS, POINTS, POINTS), 1);
    lk_tensor_set(holes, 7, NAN);
    write_array("u_2.h5", "velocity", holes, false, false);
    expect_sentence("u_2.h5: array \"velocity\" holds nan at element 7 of 1024");
    damage("rho_1.h5", 200, false); /* in the packed numbers: they come last */
    expect_sentence("rho_1.h5: array \"density\" cannot be read: the file is damaged");
    damage("u_1.h5", 0, true);
    expect_sentence("\"u\" (array \"velocity\") at checkpoint 1: ");
    lkt_contains(lk_error(), "u_1.h5: not a readable HDF5 file");
    write_array("u_1.h5", "speed", numbers(LK_SHAPE(2, POINTS, POINTS, POINTS), 1), false, false);
    expect_sentence("u_1.h5: no array \"velocity\": the file has speed");
    damage("u_0.h5", 0, true);
    expect_sentence("u_0.h5: not a readable HDF5 file");
}

static void forked_readers_read_the_same(void **state)
{
    (void)state;
    make_files("fields_ranks_large", 64); /* 4 * 7 MB and the packed ones */
    for (int way = 0; way < WAYS; way += CUT) {
        lk_fields *fields = read_fields(way, 64);
        expect_fields(fields, way, 64);
        lk_fields_free(fields);
    }
    damage("u_1.h5", 0, true);
    assert_null(read_fields(WHOLE, 64));
    lkt_contains(lk_error(), "u_1.h5: not a readable HDF5 file");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_read_what_one_process_reads),
        cmocka_unit_test(a_bad_file_is_named_by_all),
        cmocka_unit_test(forked_readers_read_the_same),
    };
    if (argc == 3) return be_rank(argv);
    snprintf(program, sizeof program, "%s", argv[0]);
    unsetenv("WORLD_SIZE");
    setenv("LOCKSTEP_SHM", lkt_scratch_folder("fields_ranks_shared"), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    printf("SKIPPED: this build has no HDF5\n");
    return 0;
}

#endif
