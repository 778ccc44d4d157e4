/* CIFAR-10 and CIFAR-100 from their binary files: records of labels and of 32 x 32 pixels of three colours.
 */
#include <lockstep/vision.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/cifar.h"
#include "data/file.h"
#include "data/memory_dataset.h"
#include "tensor/buffer.h"

#include <string.h>

enum { SIDE = 32, PIXELS = LKI_CIFAR_PIXELS, MAX_FILES = 5, COARSE_COUNT = 20 };

/* The files of one of the two versions of a data set. */
typedef struct version {
    const char *folder;                         /* in the root */
    const char *train[MAX_FILES + 1], *test[2]; /* ended by NULL */
    const char *names, *coarse_names;           /* where the names of the classes are */
    const char *label_keys[3]; /* of the Python version, ended by NULL; none: it is the binary one */
} version;

enum { BINARY, PYTHON, VERSIONS };

/* One of the two data sets. */
typedef struct kind {
    lki_cifar_archive archive;
    version versions[VERSIONS];
    int label_count; /* bytes in front of the pixels */
    int class_count; /* of the last label */
} kind;

static const kind cifar10 = {
    .archive = {"CIFAR-10", "cifar-10-batches-bin", "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530"},
    .versions = {{.folder = "cifar-10-batches-bin",
                  .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                            "data_batch_5.bin"},
                  .test = {"test_batch.bin"},
                  .names = "batches.meta.txt"},
                 {.folder = "cifar-10-batches-py",
                  .train = {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5"},
                  .test = {"test_batch"},
                  .names = "batches.meta",
                  .label_keys = {"labels"}}},
    .label_count = 1,
    .class_count = 10,
};
static const kind cifar100 = {
    .archive = {"CIFAR-100", "cifar-100-binary", "cifar-100-binary.tar.gz",
                "03b5dce01913d631647c71ecec9e9cb8"},
    .versions = {{.folder = "cifar-100-binary",
                  .train = {"train.bin"},
                  .test = {"test.bin"},
                  .names = "fine_label_names.txt",
                  .coarse_names = "coarse_label_names.txt"},
                 {.folder = "cifar-100-python",
                  .train = {"train"},
                  .test = {"test"},
                  .names = "meta",
                  .coarse_names = "meta",
                  .label_keys = {"coarse_labels", "fine_labels"}}},
    .label_count = 2,
    .class_count = 100,
};

/* ---- Finding the files ---- */

/* A version that is there, and its folder, which the caller frees. */
typedef struct place {
    const version *version;
    char *folder;
} place;

static const char *const *files_of(const version *version, bool train)
{
    return train ? version->train : version->test;
}

static bool has_all(const char *folder, const char *const *files)
{
    for (int i = 0; files[i]; i++) {
        LKI_SCOPED char *path = lki_format("%s/%s", folder, files[i]);
        if (!path || !lki_file_exists(path)) return false;
    }
    return true;
}

/* Either version, in the root or in the folder that its archive makes there. */
static lk_status find_files(place *out, const kind *which, const char *root, bool train)
{
    for (int i = 0; i < 2 * VERSIONS; i++) {
        const version *version = &which->versions[i / 2];
        char *folder = i % 2 ? lki_format("%s/%s", root, version->folder) : lki_strdup(root);
        if (!folder) return LK_ERR_NOMEM;
        *out = (place){version, folder};
        if (has_all(folder, files_of(version, train))) return LK_OK;
        lki_free(folder);
    }
    *out = (place){NULL, NULL};
    const char *const *files = files_of(&which->versions[BINARY], train);
    return lki_fail(LK_ERR_NOT_FOUND, "%s: no %s%s in %s or %s/%s: set download, or unpack %s%s there",
                    which->archive.name, files[0], files[1] ? " to data_batch_5.bin" : "", root, root,
                    which->archive.folder, LKI_CIFAR_MIRROR, which->archive.file);
}

/* ---- Reading them ---- */

typedef struct samples {
    lk_tensor *images, *labels; /* (count, 3, 32, 32) and (count) of bytes */
    int64_t count;
} samples;

static lk_status read_file(lk_buffer **out, const char *path, const version *version)
{
    return version->label_keys[0] ? lki_cifar_unpickle(out, path, version->label_keys)
                                  : lki_file_read(out, path);
}

static lk_status read_files(lk_buffer **buffers, char *paths[MAX_FILES], const kind *which,
                            const place *found, bool train, int64_t *count)
{
    const char *const *files = files_of(found->version, train);
    size_t record = (size_t)which->label_count + PIXELS;
    for (int i = 0; files[i]; i++) {
        paths[i] = lki_format("%s/%s", found->folder, files[i]);
        if (!paths[i]) return LK_ERR_NOMEM;
        LKI_TRY(read_file(&buffers[i], paths[i], found->version));
        size_t nbytes = lki_buffer_nbytes(buffers[i]);
        if (nbytes % record != 0)
            return lki_fail(LK_ERR_FORMAT, "%s: %zu bytes are no whole number of records of %zu", paths[i],
                            nbytes, record);
        *count += (int64_t)(nbytes / record);
    }
    return LK_OK;
}

/* Copies the records of a file to sample `at` and those after it; returns how many. */
static lk_status copy_records(const samples *out, int64_t at, const lk_buffer *buffer, const char *path,
                              const kind *which, bool coarse, int64_t *copied)
{
    const uint8_t *bytes = lki_buffer_data(buffer);
    size_t record = (size_t)which->label_count + PIXELS;
    int class_count = coarse ? COARSE_COUNT : which->class_count;
    int position = coarse ? 0 : which->label_count - 1;
    *copied = (int64_t)(lki_buffer_nbytes(buffer) / record);
    for (int64_t i = 0; i < *copied; i++, bytes += record) {
        uint8_t label = bytes[position];
        if (label >= class_count)
            return lki_fail(LK_ERR_RANGE, "%s: offset %zu: label %d, expected 0 to %d", path,
                            (size_t)i * record + (size_t)position, label, class_count - 1);
        ((uint8_t *)out->labels->data)[at + i] = label;
        memcpy((uint8_t *)out->images->data + (size_t)(at + i) * PIXELS, bytes + which->label_count, PIXELS);
    }
    return LK_OK;
}

static lk_status read_samples(samples *out, const kind *which, const place *found,
                              const lk_cifar_options *options)
{
    lk_buffer *buffers[MAX_FILES] = {NULL};
    char *paths[MAX_FILES] = {NULL};
    lk_status status = LK_OK;
    LKI_TRY_OUT(read_files(buffers, paths, which, found, options->train, &out->count));
    out->images = lk_tensor_create(LK_U8, LK_SHAPE(out->count, 3, SIDE, SIDE));
    out->labels = lk_tensor_create(LK_U8, LK_SHAPE(out->count));
    if (!out->images || !out->labels) status = lki_last_status();
    for (int64_t i = 0, at = 0, copied = 0; status == LK_OK && i < MAX_FILES && buffers[i]; i++, at += copied)
        status = copy_records(out, at, buffers[i], paths[i], which, options->coarse, &copied);
out:
    for (int i = 0; i < MAX_FILES; i++) {
        lki_buffer_release(buffers[i]);
        lki_free(paths[i]);
    }
    return status;
}

/* ---- The names of the classes, where their file is there ---- */

enum { MAX_CLASSES = 100 };

/* Splits the text into its lines, without those that are empty; returns how many, or -1 if they are too many.
 */
static int split_lines(char *text, char *lines[MAX_CLASSES])
{
    int count = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
        if (count == MAX_CLASSES) return -1;
        lines[count++] = line;
    }
    return count;
}

static lk_status read_names(char **out, const char *path, const version *version, bool coarse)
{
    lk_buffer *buffer = NULL;
    if (version->label_keys[0]) {
        const char *key = coarse                  ? "coarse_label_names"
                          : version->coarse_names ? "fine_label_names"
                                                  : "label_names";
        return lki_cifar_unpickle_names(out, path, key);
    }
    LKI_TRY(lki_file_read(&buffer, path));
    *out = lki_format("%.*s", (int)lki_buffer_nbytes(buffer), (const char *)lki_buffer_data(buffer));
    lki_buffer_release(buffer);
    return *out ? LK_OK : LK_ERR_NOMEM;
}

static lk_status name_classes(lk_dataset *dataset, const kind *which, const place *found, bool coarse)
{
    int expected = coarse ? COARSE_COUNT : which->class_count;
    const char *file = coarse ? found->version->coarse_names : found->version->names;
    LKI_SCOPED char *path = lki_format("%s/%s", found->folder, file), *text = NULL;
    char *lines[MAX_CLASSES];
    if (!path) return LK_ERR_NOMEM;
    if (!lki_file_exists(path)) return LK_OK;
    LKI_TRY(read_names(&text, path, found->version, coarse));
    int count = split_lines(text, lines);
    if (count != expected)
        return lki_fail(LK_ERR_FORMAT, "%s: expected the names of %d classes, a line each", path, expected);
    return lk_dataset_set_classes(dataset, "targets", (const char *const *)lines, count);
}

/* ---- The dataset ---- */

static lk_dataset *make(const kind *which, const place *found, const lk_cifar_options *options)
{
    samples all = {NULL, NULL, 0};
    if (read_samples(&all, which, found, options)) {
        lk_tensor_free(all.images);
        lk_tensor_free(all.labels);
        return NULL;
    }
    lki_memory_field fields[] = {{.name = "features",
                                  .tensor = all.images,
                                  .dtype = LK_F32,
                                  .shape = LK_SHAPE(3, SIDE, SIDE),
                                  .divisor = 255},
                                 {.name = "targets", .tensor = all.labels, .dtype = LK_I64}};
    lk_dataset *dataset = lki_memory_dataset_create(fields, 2);
    if (!dataset || name_classes(dataset, which, found, options->coarse) == LK_OK) return dataset;
    lk_dataset_free(dataset);
    return NULL;
}

static lk_dataset *open_cifar(const kind *which, const char *root, const lk_cifar_options *options)
{
    place found;
    if (!root) return lki_fail_null(LK_ERR_INVALID, "%s: no root folder", which->archive.name);
    lk_status status = find_files(&found, which, root, options->train);
    if (status == LK_ERR_NOT_FOUND && options->download) {
        const char *const *files = files_of(&which->versions[BINARY], options->train);
        status = lki_cifar_download(&which->archive, root, files);
        if (status == LK_OK) status = find_files(&found, which, root, options->train);
    }
    if (status) return NULL;
    lk_dataset *dataset = make(which, &found, options);
    lki_free(found.folder);
    return dataset;
}

lk_dataset *lk_cifar10_with(const char *root, const lk_cifar_options *given)
{
    LKI_TAKE(lk_cifar_options, options, given, NULL);
    if (options.coarse)
        return lki_fail_null(LK_ERR_INVALID,
                             "CIFAR-10: coarse: only CIFAR-100 has superclasses: leave it out");
    return open_cifar(&cifar10, root, &options);
}

lk_dataset *lk_cifar100_with(const char *root, const lk_cifar_options *given)
{
    LKI_TAKE(lk_cifar_options, options, given, NULL);
    return open_cifar(&cifar100, root, &options);
}
