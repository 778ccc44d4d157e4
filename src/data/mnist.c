#include "data/mnist.h"

#include <lockstep/vision.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "data/idx.h"

#include <math.h>
#include <string.h>

enum { CLASS_COUNT = 10 };

#define IMAGES_TEST  "t10k-images-idx3-ubyte.gz"
#define LABELS_TEST  "t10k-labels-idx1-ubyte.gz"
#define IMAGES_TRAIN "train-images-idx3-ubyte.gz"
#define LABELS_TRAIN "train-labels-idx1-ubyte.gz"

const lki_mnist_kind lki_mnist_itself = {
    .name = "MNIST",
    .mirrors = "https://ossci-datasets.s3.amazonaws.com/mnist "
               "https://storage.googleapis.com/cvdf-datasets/mnist",
    .is_mnist = true,
    .files = {{IMAGES_TEST, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7", true},
              {LABELS_TEST, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2", true},
              {IMAGES_TRAIN, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db", true},
              {LABELS_TRAIN, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5", true}},
};
static const lki_mnist_kind fashion = {
    .name = "FashionMNIST",
    .mirrors = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    .files = {{IMAGES_TEST, "bef4ecab320f06d8554ea6380940ec79", false},
              {LABELS_TEST, "bb300cfdad3c16e7a12a480ee83cd310", false},
              {IMAGES_TRAIN, "8d4fb7e6c68d591d4c3dfef9ec88bf0d", false},
              {LABELS_TRAIN, "25c81989df183df01b3e8a0aad5dffbe", false}},
    .classes = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag",
                "Ankle boot"},
};
static const lki_mnist_kind kuzushiji = {
    .name = "KMNIST",
    .mirrors = "http://codh.rois.ac.jp/kmnist/dataset/kmnist",
    .files = {{IMAGES_TEST, "5c965bf0a639b31b8f53240b1b52f4d7", false},
              {LABELS_TEST, "7320c461ea6c1c855c0b718fb2a4b134", false},
              {IMAGES_TRAIN, "bdb82020997e1d708af4cf47b453dcf7", false},
              {LABELS_TRAIN, "e144d726b3acfaa3e44228e80efcd344", false}},
    .classes = {"o", "ki", "su", "tsu", "na", "ha", "ma", "ya", "re", "wo"},
};

char *lki_mnist_unpacked(const char *folder, const lki_published *file)
{
    return lki_format("%s/%.*s", folder, (int)(strlen(file->name) - strlen(".gz")), file->name);
}

/* The folders of a root that may have the files; false when memory is short. MNIST may lie in root/mnist,
 * too. */
enum { FOLDER_COUNT = 4 };
static bool name_folders(char *folders[FOLDER_COUNT], const lki_mnist_kind *kind, const char *root)
{
    folders[0] = lki_strdup(root);
    folders[1] = lki_format("%s/%s/raw", root, kind->name);
    folders[2] = kind->is_mnist ? lki_format("%s/mnist", root) : lki_format("%s/%s", root, kind->name);
    folders[3] = lki_format("%s/raw", root);
    return folders[0] && folders[1] && folders[2] && folders[3];
}

/* Plain files come first: they are mapped, not unpacked. */
static lk_status find_in(char **out, char *const folders[FOLDER_COUNT], const lki_published *file)
{
    for (int packed = 0; packed < 2; packed++)
        for (int f = 0; f < FOLDER_COUNT; f++) {
            char *path =
                packed ? lki_format("%s/%s", folders[f], file->name) : lki_mnist_unpacked(folders[f], file);
            if (!path) return LK_ERR_NOMEM;
            if (lki_file_exists(path)) {
                *out = path;
                return LK_OK;
            }
            lki_free(path);
        }
    return LK_ERR_NOT_FOUND;
}

static lk_status find(char **out, const lki_mnist_kind *kind, const char *root, const lki_published *file)
{
    char *folders[FOLDER_COUNT] = {NULL};
    lk_status status = name_folders(folders, kind, root) ? find_in(out, folders, file) : LK_ERR_NOMEM;
    if (status == LK_ERR_NOT_FOUND)
        lki_fail(status, "%s: no %.*s or %s in %s, %s, %s, %s (set download to fetch it)", kind->name,
                 (int)(strlen(file->name) - strlen(".gz")), file->name, file->name, folders[0], folders[1],
                 folders[2], folders[3]);
    for (int f = 0; f < FOLDER_COUNT; f++) lki_free(folders[f]);
    return status;
}

static lk_status find_and_read(lk_tensor **out, char **path, const lki_mnist_kind *kind, const char *root,
                               const lki_published *file, int rank)
{
    LKI_TRY(find(path, kind, root, file));
    return lki_idx_read(out, *path, rank);
}

/* Downloads nothing where both files are there already, in whichever folder. */
static lk_status fetch_missing(const lki_mnist_kind *kind, const char *root, const lki_published *files)
{
    for (int i = 0; i < 2; i++) {
        char *path = NULL;
        lk_status status = find(&path, kind, root, &files[i]);
        lki_free(path);
        if (status == LK_ERR_NOT_FOUND) status = lki_mnist_download(root, kind, &files[i]);
        LKI_TRY(status);
    }
    return LK_OK;
}

static lk_status check(const lk_tensor *images, const lk_tensor *labels, const char *labels_path)
{
    if (images->shape.dim[0] != labels->shape.dim[0])
        return lki_fail(LK_ERR_FORMAT, "%s: %lld labels for %lld images", labels_path,
                        (long long)labels->shape.dim[0], (long long)images->shape.dim[0]);
    const uint8_t *label = labels->data;
    for (int64_t i = 0; i < labels->shape.dim[0]; i++)
        if (label[i] >= CLASS_COUNT)
            return lki_fail(LK_ERR_RANGE, "%s: offset %lld: label %d, expected 0 to %d", labels_path,
                            (long long)i + 8, label[i], CLASS_COUNT - 1);
    return LK_OK;
}

static lk_status check_options(const lki_mnist_kind *kind, const lk_mnist_options *options, const char *root)
{
    if (!root) return lki_fail(LK_ERR_INVALID, "%s: no root folder", kind->name);
    if (options->catalyst_scaling && !kind->is_mnist)
        return lki_fail(LK_ERR_INVALID, "%s: catalyst_scaling is that of MNIST: use normalize", kind->name);
    if (!isfinite(options->mean) || !(options->std >= 0) || isinf(options->std))
        return lki_fail(LK_ERR_INVALID, "%s: mean and std: expected numbers, std above 0, found %g and %g",
                        kind->name, (double)options->mean, (double)options->std);
    if (!options->normalize && (options->mean != 0 || options->std != 0))
        return lki_fail(LK_ERR_INVALID, "%s: mean and std have no effect without normalize: add it",
                        kind->name);
    return LK_OK;
}

lk_status lki_mnist_read(lki_mnist_samples *out, const lki_mnist_kind *kind, const char *root,
                         const lk_mnist_options *options)
{
    const lki_published *files = kind->files + (options->train ? 2 : 0);
    LKI_SCOPED char *images_path = NULL;
    LKI_SCOPED char *labels_path = NULL;
    lk_status status = LK_OK;
    *out = (lki_mnist_samples){0};
    LKI_TRY(check_options(kind, options, root));
    if (options->download) LKI_TRY(fetch_missing(kind, root, files));
    LKI_TRY_OUT(find_and_read(&out->images, &images_path, kind, root, &files[0], 3));
    LKI_TRY_OUT(find_and_read(&out->labels, &labels_path, kind, root, &files[1], 1));
    LKI_TRY_OUT(check(out->images, out->labels, labels_path));
    return LK_OK;
out:
    lk_tensor_free(out->images);
    lk_tensor_free(out->labels);
    *out = (lki_mnist_samples){0};
    return status;
}

lki_memory_field lki_mnist_images_field(lk_tensor *images, const lk_mnist_options *options)
{
    lki_memory_field field = {.name = "features",
                              .tensor = images,
                              .dtype = LK_F32,
                              .shape = LK_SHAPE(1, images->shape.dim[1], images->shape.dim[2]),
                              .divisor = options->catalyst_scaling ? 1 : 255};
    if (options->catalyst_scaling || options->normalize) {
        bool own = !options->catalyst_scaling;
        field.mean = own ? (float)lki_number_or(options->mean, 0.1307f) : 0.1307f;
        field.std = own ? (float)lki_number_or(options->std, 0.3081f) : 0.3081f;
    }
    return field;
}

static lk_dataset *open_kind(const lki_mnist_kind *kind, const char *root, const lk_mnist_options *options)
{
    lki_mnist_samples samples;
    if (lki_mnist_read(&samples, kind, root, options)) return NULL;
    lki_memory_field fields[] = {lki_mnist_images_field(samples.images, options),
                                 {.name = "targets", .tensor = samples.labels, .dtype = LK_I64}};
    lk_dataset *dataset = lki_memory_dataset_create(fields, 2);
    if (!dataset || !kind->classes[0] ||
        lk_dataset_set_classes(dataset, "targets", kind->classes, CLASS_COUNT) == LK_OK)
        return dataset;
    lk_dataset_free(dataset);
    return NULL;
}

lk_dataset *lk_mnist_with(const char *root, const lk_mnist_options *given)
{
    LKI_TAKE(lk_mnist_options, options, given, NULL);
    return open_kind(&lki_mnist_itself, root, &options);
}

lk_dataset *lk_fashion_mnist_with(const char *root, const lk_mnist_options *given)
{
    LKI_TAKE(lk_mnist_options, options, given, NULL);
    return open_kind(&fashion, root, &options);
}

lk_dataset *lk_kmnist_with(const char *root, const lk_mnist_options *given)
{
    LKI_TAKE(lk_mnist_options, options, given, NULL);
    return open_kind(&kuzushiji, root, &options);
}
