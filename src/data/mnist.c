#include "data/mnist.h"

#include <lockstep/data.h>

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/file.h"
#include "data/idx.h"

#include <math.h>

enum { CLASS_COUNT = 10 };

static const lki_mnist_file known_files[] = {
    {"t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
    {"t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
    {"train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
    {"train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
};

/* Plain files come first: they are mapped, not unpacked. */
static const char *const folders[] = {"", "/MNIST/raw", "/mnist", "/raw"};
static const char *const endings[] = {"", ".gz"};

static lk_status find(char **out, const char *root, const char *name)
{
    for (int e = 0; e < 2; e++) {
        for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
            char *path = lki_format("%s%s/%s%s", root, folders[f], name, endings[e]);
            if (!path) return LK_ERR_NOMEM;
            if (lki_file_exists(path)) {
                *out = path;
                return LK_OK;
            }
            lki_free(path);
        }
    }
    return lki_fail(LK_ERR_NOT_FOUND,
                    "MNIST: no %s or %s.gz in %s, %s/MNIST/raw, %s/mnist, %s/raw (set download to fetch it)",
                    name, name, root, root, root, root);
}

static lk_status find_and_read(lk_tensor **out, char **path, const char *root, const char *name, int rank)
{
    LKI_TRY(find(path, root, name));
    return lki_idx_read(out, *path, rank);
}

/* Downloads nothing where both files are there already, in whichever folder. */
static lk_status fetch_missing(const char *root, const lki_mnist_file *files)
{
    for (int i = 0; i < 2; i++) {
        char *path = NULL;
        lk_status status = find(&path, root, files[i].name);
        lki_free(path);
        if (status == LK_ERR_NOT_FOUND) status = lki_mnist_download(root, &files[i], 1);
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

static lk_status check_options(const lk_mnist_options *options, const char *root)
{
    if (!root) return lki_fail(LK_ERR_INVALID, "MNIST: no root folder");
    if (!isfinite(options->mean) || !(options->std >= 0) || isinf(options->std))
        return lki_fail(LK_ERR_INVALID, "MNIST: mean and std: expected numbers, std above 0, found %g and %g",
                        (double)options->mean, (double)options->std);
    if (!options->normalize && (options->mean != 0 || options->std != 0))
        return lki_fail(LK_ERR_INVALID, "MNIST: mean and std have no effect without normalize: add it");
    return LK_OK;
}

lk_status lki_mnist_read(lki_mnist_samples *out, const char *root, const lk_mnist_options *options)
{
    const lki_mnist_file *files = known_files + (options->train ? 2 : 0);
    LKI_SCOPED char *images_path = NULL;
    LKI_SCOPED char *labels_path = NULL;
    lk_status status = LK_OK;
    *out = (lki_mnist_samples){0};
    LKI_TRY(check_options(options, root));
    if (options->download) LKI_TRY(fetch_missing(root, files));
    LKI_TRY_OUT(find_and_read(&out->images, &images_path, root, files[0].name, 3));
    LKI_TRY_OUT(find_and_read(&out->labels, &labels_path, root, files[1].name, 1));
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

lk_dataset *lk_mnist_with(const char *root, const lk_mnist_options *given)
{
    LKI_TAKE(lk_mnist_options, options, given, NULL);
    lki_mnist_samples samples;
    if (lki_mnist_read(&samples, root, &options)) return NULL;
    lki_memory_field fields[] = {lki_mnist_images_field(samples.images, &options),
                                 {.name = "targets", .tensor = samples.labels, .dtype = LK_I64}};
    return lki_memory_dataset_create(fields, 2);
}
