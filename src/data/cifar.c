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

enum { SIDE = 32, PIXELS = 3 * SIDE * SIDE, MAX_FILES = 5 };

/* One of the two data sets. */
typedef struct kind {
    lki_cifar_archive archive;
    const char *train[MAX_FILES + 1], *test[2]; /* ended by NULL */
    int label_count;                            /* bytes in front of the pixels */
    int class_count;                            /* of the last label */
    const char *class_names;                    /* the file with a name a line */
} kind;

static const kind cifar10 = {
    .archive = {"CIFAR-10", "cifar-10-batches-bin", "cifar-10-binary.tar.gz",
                "c32a1d4ab5d03f1284b67883e8d87530"},
    .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
              "data_batch_5.bin"},
    .test = {"test_batch.bin"},
    .label_count = 1,
    .class_count = 10,
    .class_names = "batches.meta.txt",
};
static const kind cifar100 = {
    .archive = {"CIFAR-100", "cifar-100-binary", "cifar-100-binary.tar.gz",
                "03b5dce01913d631647c71ecec9e9cb8"},
    .train = {"train.bin"},
    .test = {"test.bin"},
    .label_count = 2,
    .class_count = 100,
    .class_names = "fine_label_names.txt",
};
enum { COARSE_COUNT = 20 };

/* ---- Finding the files ---- */

static const char *const *files_of(const kind *which, bool train)
{
    return train ? which->train : which->test;
}

/* The folder that has all the files: the root, or the archive's folder in it. The caller frees it. */
static lk_status find_folder(char **out, const kind *which, const char *root, bool train)
{
    const char *const *files = files_of(which, train);
    const lki_cifar_archive *archive = &which->archive;
    for (int place = 0; place < 2; place++) {
        char *folder = place ? lki_format("%s/%s", root, archive->folder) : lki_strdup(root);
        bool whole = true;
        for (int i = 0; folder && files[i]; i++) {
            LKI_SCOPED char *path = lki_format("%s/%s", folder, files[i]);
            whole = whole && path && lki_file_exists(path);
        }
        *out = folder;
        if (!folder) return LK_ERR_NOMEM;
        if (whole) return LK_OK;
        lki_free(folder);
    }
    *out = NULL;
    return lki_fail(LK_ERR_NOT_FOUND,
                    "%s: no %s%s in %s or %s/%s: set download, or unpack %s%s there (the binary version)",
                    archive->name, files[0], files[1] ? " to data_batch_5.bin" : "", root, root,
                    archive->folder, LKI_CIFAR_MIRROR, archive->file);
}

/* ---- Reading them ---- */

typedef struct samples {
    lk_tensor *images, *labels; /* (count, 3, 32, 32) and (count) of bytes */
    int64_t count;
} samples;

static lk_status map_files(lk_buffer **buffers, char *paths[MAX_FILES], const kind *which, const char *folder,
                           bool train, int64_t *count)
{
    const char *const *files = files_of(which, train);
    size_t record = (size_t)which->label_count + PIXELS;
    for (int i = 0; files[i]; i++) {
        paths[i] = lki_format("%s/%s", folder, files[i]);
        if (!paths[i]) return LK_ERR_NOMEM;
        LKI_TRY(lki_file_read(&buffers[i], paths[i]));
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

static lk_status read_samples(samples *out, const kind *which, const char *folder,
                              const lk_cifar_options *options)
{
    lk_buffer *buffers[MAX_FILES] = {NULL};
    char *paths[MAX_FILES] = {NULL};
    lk_status status = LK_OK;
    LKI_TRY_OUT(map_files(buffers, paths, which, folder, options->train, &out->count));
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

static lk_status name_classes(lk_dataset *dataset, const kind *which, const char *folder, bool coarse)
{
    int expected = coarse ? COARSE_COUNT : which->class_count;
    LKI_SCOPED char *path =
        lki_format("%s/%s", folder, coarse ? "coarse_label_names.txt" : which->class_names);
    lk_buffer *buffer = NULL;
    char *lines[MAX_CLASSES];
    if (!path) return LK_ERR_NOMEM;
    if (!lki_file_exists(path)) return LK_OK;
    LKI_TRY(lki_file_read(&buffer, path));
    LKI_SCOPED char *text =
        lki_format("%.*s", (int)lki_buffer_nbytes(buffer), (const char *)lki_buffer_data(buffer));
    lki_buffer_release(buffer);
    if (!text) return LK_ERR_NOMEM;
    int count = split_lines(text, lines);
    if (count != expected)
        return lki_fail(LK_ERR_FORMAT, "%s: expected the names of %d classes, a line each", path, expected);
    return lk_dataset_set_classes(dataset, "targets", (const char *const *)lines, count);
}

/* ---- The dataset ---- */

static lk_dataset *open_cifar(const kind *which, const char *root, const lk_cifar_options *options)
{
    LKI_SCOPED char *folder = NULL;
    samples all = {NULL, NULL, 0};
    if (!root) return lki_fail_null(LK_ERR_INVALID, "%s: no root folder", which->archive.name);
    lk_status status = find_folder(&folder, which, root, options->train);
    if (status == LK_ERR_NOT_FOUND && options->download) {
        status = lki_cifar_download(&which->archive, root, files_of(which, options->train));
        if (status == LK_OK) status = find_folder(&folder, which, root, options->train);
    }
    if (status == LK_OK) status = read_samples(&all, which, folder, options);
    if (status) {
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
    if (!dataset || name_classes(dataset, which, folder, options->coarse) == LK_OK) return dataset;
    lk_dataset_free(dataset);
    return NULL;
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
