/* MNIST: the real files where they are at hand, and broken ones made here. */
#include "lktest.h"

#include <lockstep/data.h>
#include <lockstep/log.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "data/file.h"
#include "tensor/mapped.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

/* The folder of the real files, or NULL where there is none. */
static const char *real_root(void)
{
    static char root[1024];
    const char *shared = getenv("LOCKSTEP_SHARED");
    if (shared)
        snprintf(root, sizeof root, "%s/data/mnist", shared);
    else
        snprintf(root, sizeof root, "%s/../shared/data/mnist", LK_SOURCE_DIR);
    char file[1100];
    snprintf(file, sizeof file, "%s/t10k-labels-idx1-ubyte.gz", root);
    return access(file, R_OK) == 0 ? root : NULL;
}

#define NEEDS_REAL_MNIST(root)                                                                               \
    const char *root = real_root();                                                                          \
    if (!root) {                                                                                             \
        print_message("the real MNIST is not at hand (LOCKSTEP_SHARED)\n");                                  \
        skip();                                                                                              \
    }

static void real_test_set(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    lk_dataset *dataset = lk_mnist(root);
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 10000);
    const lk_field *features = lk_dataset_field(dataset, 0), *targets = lk_dataset_field(dataset, 1);
    assert_string_equal(features->name, "features");
    assert_true(features->dtype == LK_F32 && lk_shape_equal(features->shape, LK_SHAPE(1, 28, 28)));
    assert_string_equal(targets->name, "targets");
    assert_true(targets->dtype == LK_I64 && targets->shape.rank == 0);
    lk_storage storage;
    assert_true(lk_dataset_storage(dataset, 0, &storage));
    const uint8_t *pixels = storage.data;
    static const int64_t first_labels[] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    float images[10 * 784];
    int64_t labels[10], indices[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    lkt_ok(lk_dataset_gather(dataset, &(lk_pass){0}, indices, 10, (void *[]){images, labels}));
    assert_memory_equal(labels, first_labels, sizeof labels);
    for (int i = 0; i < 10 * 784; i++) assert_true(images[i] == (float)pixels[i] / 255.0f);
    lk_dataset_free(dataset);
}

/* The three scalings, each step in f32 as numpy and torch do it; bit for bit over all 256 values. */
static void scalings(void **state)
{
    (void)state;
    const char *folder = lkt_scratch_folder("mnist_scalings");
    unsigned char images[16 + 256] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 16, 0, 0, 0, 16},
                              labels[9] = {0, 0, 8, 1, 0, 0, 0, 1, 9};
    for (int i = 0; i < 256; i++) images[16 + i] = (unsigned char)i;
    char path[1200];
    snprintf(path, sizeof path, "%s/t10k-images-idx3-ubyte", folder);
    lkt_ok(lki_write_file_atomic(path, images, sizeof images));
    snprintf(path, sizeof path, "%s/t10k-labels-idx1-ubyte", folder);
    lkt_ok(lki_write_file_atomic(path, labels, sizeof labels));
    lk_dataset *plain = lk_mnist(folder), *catalyst = lk_mnist(folder, .catalyst_scaling = true);
    lk_dataset *normal = lk_mnist(folder, .normalize = true),
               *own = lk_mnist(folder, .normalize = true, .mean = .5f, .std = .25f);
    float a[256], b[256], c[256], d[256];
    int64_t label, zero = 0;
    lkt_ok(lk_dataset_gather(plain, &(lk_pass){0}, &zero, 1, (void *[]){a, &label}));
    lkt_ok(lk_dataset_gather(catalyst, &(lk_pass){0}, &zero, 1, (void *[]){b, &label}));
    lkt_ok(lk_dataset_gather(normal, &(lk_pass){0}, &zero, 1, (void *[]){c, &label}));
    lkt_ok(lk_dataset_gather(own, &(lk_pass){0}, &zero, 1, (void *[]){d, &label}));
    assert_int_equal(label, 9);
    for (int i = 0; i < 256; i++) {
        volatile float x = (float)i / 255.0f, y = (float)i - 0.1307f, z = x - 0.1307f, w = x - 0.5f;
        assert_true(a[i] == x);
        assert_true(b[i] == y / 0.3081f);
        assert_true(c[i] == z / 0.3081f);
        assert_true(d[i] == w / 0.25f);
    }
    lk_dataset_free(plain);
    lk_dataset_free(catalyst);
    lk_dataset_free(normal);
    lk_dataset_free(own);
}

static void raw_batches(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    lk_loader *bytes = lk_loader(lk_mnist(root), .batch_size = 32, .raw = true);
    lk_loader *floats = lk_loader(lk_mnist(root), .batch_size = 32);
    lk_batch *a, *b;
    lkt_ok(lk_loader_begin(bytes, NULL, NULL));
    lkt_ok(lk_loader_begin(floats, NULL, NULL));
    lkt_ok(lk_loader_next(bytes, &a));
    lkt_ok(lk_loader_next(floats, &b));
    const lk_tensor *x = lk_batch_get(a, "features"), *y = lk_batch_get(b, "features");
    assert_true(x->dtype == LK_U8 && y->dtype == LK_F32 && lk_shape_equal(x->shape, y->shape));
    for (int i = 0; i < 32 * 784; i++) assert_true(((uint8_t *)x->data)[i] / 255.0f == ((float *)y->data)[i]);
    assert_memory_equal(lk_batch_get(a, "targets")->data, lk_batch_get(b, "targets")->data,
                        32 * sizeof(int64_t));
    lk_loader_free(bytes);
    lk_loader_free(floats);
    lk_dataset *subset = lk_subset(lk_mnist(root), (int64_t[]){3}, 1);
    lk_loader *indirect = lk_loader(subset, .raw = true);
    lkt_fails(lk_loader_begin(indirect, NULL, NULL), LK_ERR_UNSUPPORTED, "\"features\"");
    lk_loader_free(indirect);
}

static void class_balance_on_the_test_set(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    lk_dataset *dataset = lk_mnist(root);
    lk_storage storage;
    assert_true(lk_dataset_storage(dataset, 1, &storage));
    int64_t *labels = LKI_NEW_ARRAY(int64_t, 10000);
    for (int i = 0; i < 10000; i++) labels[i] = ((const uint8_t *)storage.data)[i];
    static const struct {
        const char *mode;
        int64_t given, expected;
    } cases[] = {{NULL, 0, 892}, {"downsampling", 0, 892}, {"upsampling", 0, 1135}, {NULL, 77, 77}};
    for (int c = 0; c < 4; c++) {
        lk_sampler *sampler = lk_balance_class_sampler(labels, 10000, .mode = cases[c].mode,
                                                       .samples_per_class = cases[c].given);
        lk_loader *loader = lk_loader(lk_dataset_share(dataset), .batch_size = 100, .sampler = sampler);
        int64_t count[10] = {0};
        lkt_ok(lk_loader_begin(loader, NULL, NULL));
        for (lk_batch *batch;;) {
            lkt_ok(lk_loader_next(loader, &batch));
            if (!batch) break;
            for (int64_t i = 0; i < batch->count; i++) count[labels[batch->indices[i]]]++;
        }
        for (int k = 0; k < 10; k++) assert_int_equal(count[k], cases[c].expected);
        lk_loader_free(loader);
    }
    lki_free(labels);
    lk_dataset_free(dataset);
}

/* ---- Broken files ---- */

static void write_gz(const char *path, const void *data, size_t nbytes)
{
    gzFile file = gzopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, data, (unsigned)nbytes), (int)nbytes);
    gzclose(file);
}

/* Writes both files of a tiny test set and says what loading them gives. */
static void check_broken(const char *folder, const void *images, size_t images_nbytes, const void *labels,
                         size_t labels_nbytes, bool packed, const char *fragment)
{
    char image_path[1200], label_path[1200];
    snprintf(image_path, sizeof image_path, "%s/t10k-images-idx3-ubyte%s", folder, packed ? ".gz" : "");
    snprintf(label_path, sizeof label_path, "%s/t10k-labels-idx1-ubyte", folder);
    if (packed)
        write_gz(image_path, images, images_nbytes);
    else
        lkt_ok(lki_write_file_atomic(image_path, images, images_nbytes));
    lkt_ok(lki_write_file_atomic(label_path, labels, labels_nbytes));
    lk_dataset *dataset = lk_mnist(folder);
    if (!fragment) {
        lkt_not_null(dataset);
    } else {
        assert_null(dataset);
        lkt_contains(lk_error(), fragment);
        lkt_contains(lk_error(), folder);
    }
    lk_dataset_free(dataset);
    unlink(image_path);
    unlink(label_path);
}

static void broken_files(void **state)
{
    (void)state;
    const char *folder = lkt_scratch_folder("mnist_broken");
    unsigned char images[16 + 8] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
    unsigned char labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 9, 0};
    check_broken(folder, images, 24, labels, 10, false, NULL);
    check_broken(folder, images, 24, labels, 10, true, NULL);
    check_broken(folder, images, 20, labels, 10, false,
                 "truncated: the header promises 24 bytes, the file has 20");
    check_broken(folder, images, 20, labels, 10, true,
                 "truncated: the header promises 24 bytes, the file has 20");
    check_broken(folder, images, 7, labels, 10, false,
                 "truncated: the header ends at offset 16, the file at 7");
    check_broken(folder, images, 2, labels, 10, false, "truncated");
    check_broken(folder, images, 0, labels, 10, false, "empty");
    check_broken(folder, labels, 10, labels, 10, false,
                 "offset 0: magic number 2049, expected 2051 (images)");
    labels[9] = 10;
    check_broken(folder, images, 24, labels, 10, false, "offset 9: label 10, expected 0 to 9");
    labels[9] = 0;
    labels[7] = 1;
    check_broken(folder, images, 24, labels, 9, false, "1 labels for 2 images");
    check_broken(folder, images, 24, labels, 10, false, "too long");
    memset(images + 4, 0xff, 12);
    check_broken(folder, images, 24, labels, 10, false, "too large");
}

static void broken_gzip(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    char source[1200], target[1200], folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("mnist_gzip"));
    snprintf(source, sizeof source, "%s/t10k-images-idx3-ubyte.gz", root);
    snprintf(target, sizeof target, "%s/t10k-images-idx3-ubyte.gz", folder);
    lk_buffer *packed;
    lkt_ok(lki_map_file(&packed, source));
    size_t nbytes = lki_buffer_nbytes(packed);
    char *copy = lki_calloc(nbytes, "a copy");
    memcpy(copy, lki_buffer_data(packed), nbytes);
    lkt_ok(lki_write_file_atomic(target, copy, nbytes / 2));
    assert_null(lk_mnist(folder));
    lkt_contains(lk_error(), "truncated gzip: it ends at offset 824438");
    for (size_t i = 0; i < 64; i++) copy[nbytes / 2 + i] ^= 0x5a;
    lkt_ok(lki_write_file_atomic(target, copy, nbytes));
    assert_null(lk_mnist(folder));
    lkt_contains(lk_error(), "corrupt gzip at offset");
    lki_buffer_release(packed);
    lki_free(copy);
}

static void missing_files_and_folders(void **state)
{
    (void)state;
    char folder[1024], message[1300];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("mnist_missing"));
    assert_null(lk_mnist(folder, .train = true));
    lkt_contains(lk_error(), "no train-images-idx3-ubyte");
    static const char *const tried[] = {"", "/MNIST/raw", "/mnist", "/raw"};
    for (int i = 0; i < 4; i++) {
        snprintf(message, sizeof message, "%s%s", folder, tried[i]);
        lkt_contains(lk_error(), message);
    }
    assert_null(lk_mnist(NULL));
    NEEDS_REAL_MNIST(root);
    char command[8000];
    for (int i = 0; i < 4; i++) {
        snprintf(command, sizeof command,
                 "rm -rf '%s' && mkdir -p '%s%s' && cp '%s'/t10k-* '%s%s' && gunzip '%s%s'/t10k-labels*",
                 folder, folder, tried[i], root, folder, tried[i], folder, tried[i]);
        assert_int_equal(system(command), 0);
        lk_dataset *dataset = lk_mnist(folder);
        lkt_not_null(dataset);
        lk_dataset_free(dataset);
    }
}

/* ---- Downloads, from a real server on this machine ---- */

/* Starts tests/data/mirror.py over `folder`; returns its process and writes its port. */
static pid_t start_mirror(const char *folder, const char *mode, int *port)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 1);
        close(ends[0]);
        execl("/usr/bin/python3", "python3", LK_SOURCE_DIR "/tests/data/mirror.py", folder, mode,
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    FILE *output = fdopen(ends[0], "r");
    int found = fscanf(output, "%d", port);
    fclose(output);
    if (found == 1) return child;
    waitpid(child, NULL, 0);
    return -1;
}

static void stop_mirror(pid_t mirror)
{
    kill(mirror, SIGTERM);
    waitpid(mirror, NULL, 0);
}

static void set_mirrors(int first_port, int second_port)
{
    char mirrors[200];
    snprintf(mirrors, sizeof mirrors, "http://127.0.0.1:%d http://127.0.0.1:%d", first_port, second_port);
    setenv("LOCKSTEP_MNIST_MIRRORS", mirrors, 1);
    setenv("no_proxy", "127.0.0.1", 1);
}

#if LOCKSTEP_HAVE_CURL
static int note_count;
static void count_notes(const char *level, const char *line, void *context)
{
    (void)level, (void)context;
    if (strstr(line, "100%")) note_count++;
}

static void downloads(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    int good_port, drop_port, bad_port;
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("mnist_download"));
    pid_t good = start_mirror(root, "good", &good_port);
    if (good < 0) {
        print_message("no /usr/bin/python3 to serve files with\n");
        skip();
    }
    pid_t drop = start_mirror(root, "drop", &drop_port), bad = start_mirror(root, "corrupt", &bad_port);
    lk_set_log_sink(count_notes, NULL);
    /* The first mirror closes the connection half way; the second goes on where it stopped. */
    set_mirrors(drop_port, good_port);
    lk_dataset *dataset = lk_mnist(folder, .download = true);
    lkt_not_null(dataset);
    assert_int_equal(lk_dataset_length(dataset), 10000);
    lk_dataset_free(dataset);
    assert_int_equal(note_count, 2);
    /* Nothing is fetched twice. */
    set_mirrors(1, 1);
    dataset = lk_mnist(folder, .download = true);
    lkt_not_null(dataset);
    lk_dataset_free(dataset);
    /* Wrong bytes are refused, and the next mirror is asked. */
    char command[1200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    set_mirrors(bad_port, good_port);
    dataset = lk_mnist(folder, .download = true);
    lkt_not_null(dataset);
    lk_dataset_free(dataset);
    /* Nobody answers: every mirror is named, and nothing half-written stays. */
    assert_int_equal(system(command), 0);
    set_mirrors(bad_port, 1);
    assert_null(lk_mnist(folder, .download = true));
    lkt_contains(lk_error(), "could not download t10k-images-idx3-ubyte");
    lkt_contains(lk_error(), "checksum");
    lkt_contains(lk_error(), "127.0.0.1:1/");
    lk_set_log_sink(NULL, NULL);
    stop_mirror(good);
    stop_mirror(drop);
    stop_mirror(bad);
}

/* Four processes want the files at once: all get them, and the server sees each file asked for once. */
static void one_process_downloads(void **state)
{
    (void)state;
    NEEDS_REAL_MNIST(root);
    int port;
    char folder[1024], served[1100];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("mnist_race"));
    snprintf(served, sizeof served, "%s/requests.txt", folder);
    setenv("MIRROR_LOG", served, 1);
    pid_t mirror = start_mirror(root, "good", &port);
    unsetenv("MIRROR_LOG");
    if (mirror < 0) {
        print_message("no /usr/bin/python3 to serve files with\n");
        skip();
    }
    set_mirrors(port, port);
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            lk_dataset *dataset = lk_mnist(folder, .download = true);
            bool fine = dataset && lk_dataset_length(dataset) == 10000;
            lk_dataset_free(dataset);
            _exit(fine ? 0 : 1);
        }
    }
    for (int i = 0; i < 4; i++) {
        int status;
        waitpid(children[i], &status, 0);
        assert_int_equal(status, 0);
    }
    stop_mirror(mirror);
    FILE *log = fopen(served, "r");
    assert_non_null(log);
    int lines = 0;
    for (char line[200]; fgets(line, sizeof line, log);) lines++;
    fclose(log);
    assert_int_equal(lines, 2);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_test_set),
        cmocka_unit_test(scalings),
        cmocka_unit_test(raw_batches),
        cmocka_unit_test(class_balance_on_the_test_set),
        cmocka_unit_test(broken_files),
        cmocka_unit_test(broken_gzip),
        cmocka_unit_test(missing_files_and_folders),
#if LOCKSTEP_HAVE_CURL
        cmocka_unit_test(downloads),
        cmocka_unit_test(one_process_downloads),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
