/* Some of MNIST's samples, as Catalyst's datasets for metric learning take them. */
#include <lockstep/contrib.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "base/arguments.h"
#include "data/mnist.h"

#include <math.h>
#include <string.h>

enum { CLASS_COUNT = 10 };

/* How many samples of each class there is still room for. */
typedef struct selection {
    int64_t room[CLASS_COUNT];
} selection;

static selection all_between(int first, int last)
{
    selection wanted = {{0}};
    for (int i = first; i <= last; i++) wanted.room[i] = INT64_MAX;
    return wanted;
}

/* Moves the rows of the wanted classes to the front of both arrays; returns how many. */
static int64_t compact(lki_mnist_samples *samples, selection wanted)
{
    uint8_t *images = samples->images->data, *labels = samples->labels->data;
    size_t row = (size_t)(samples->images->shape.dim[1] * samples->images->shape.dim[2]);
    int64_t kept = 0;
    for (int64_t i = 0; i < samples->labels->shape.dim[0]; i++) {
        if (wanted.room[labels[i]] == 0) continue;
        wanted.room[labels[i]]--;
        labels[kept] = labels[i];
        memmove(images + (size_t)kept * row, images + (size_t)i * row, row);
        kept++;
    }
    return kept;
}

/* The first `count` rows in memory of their own; frees the tensor. */
static lk_tensor *shortened(lk_tensor *tensor, int64_t count)
{
    lk_tensor *view = lk_tensor_slice(tensor, 0, 0, count);
    lk_tensor *copy = view ? lk_tensor_clone(view) : NULL;
    lk_tensor_free(view);
    lk_tensor_free(tensor);
    return copy;
}

/* Files are mapped and cannot be written to, so the samples are copied first. */
static lk_status read_selected(lki_mnist_samples *out, const char *root, const lk_mnist_options *options,
                               selection wanted)
{
    lki_mnist_samples all;
    LKI_TRY(lki_mnist_read(&all, &lki_mnist_itself, root, options));
    lki_mnist_samples own = {lk_tensor_clone(all.images), lk_tensor_clone(all.labels)};
    lk_tensor_free(all.images);
    lk_tensor_free(all.labels);
    int64_t kept = own.images && own.labels ? compact(&own, wanted) : 0;
    if (own.images && own.labels) {
        own.images = shortened(own.images, kept);
        own.labels = shortened(own.labels, kept);
    }
    if (own.images && own.labels) {
        *out = own;
        return LK_OK;
    }
    lk_tensor_free(own.images);
    lk_tensor_free(own.labels);
    return lki_last_status();
}

static lk_mnist_options mnist_options(const lk_mnist_part_options *options, bool train)
{
    return (lk_mnist_options){LK_SIZE(lk_mnist_options), .train = train, .download = options->download,
                              .catalyst_scaling = options->catalyst_scaling};
}

lk_dataset *lk_mnist_ml_dataset_with(const char *root, const lk_mnist_part_options *given)
{
    LKI_TAKE(lk_mnist_part_options, options, given, NULL);
    lk_mnist_options whole = mnist_options(&options, true);
    lki_mnist_samples samples;
    if (read_selected(&samples, root, &whole, all_between(0, 4))) return NULL;
    lki_memory_field fields[] = {lki_mnist_images_field(samples.images, &whole),
                                 {.name = "targets", .tensor = samples.labels, .dtype = LK_I64}};
    return lki_memory_dataset_create(fields, 2);
}

lk_dataset *lk_mnist_qg_dataset_with(const char *root, const lk_mnist_part_options *given)
{
    LKI_TAKE(lk_mnist_part_options, options, given, NULL);
    lk_mnist_options whole = mnist_options(&options, false);
    double share = lki_number_or(options.gallery_fraq, 0.2);
    lki_mnist_samples samples;
    if (!(share >= 0 && share <= 1))
        return lki_fail_null(LK_ERR_INVALID, "MnistQGDataset: gallery_fraq: expected 0 to 1, found %g",
                             share);
    if (read_selected(&samples, root, &whole, all_between(5, 9))) return NULL;
    int64_t count = samples.labels->shape.dim[0], queries = count - (int64_t)(share * (double)count);
    lk_tensor *is_query = lk_tensor_create(LK_BOOL, LK_SHAPE(count));
    for (int64_t i = 0; is_query && i < count; i++) ((uint8_t *)is_query->data)[i] = i < queries;
    if (!is_query) {
        lk_tensor_free(samples.images);
        lk_tensor_free(samples.labels);
        return NULL;
    }
    lki_memory_field fields[] = {lki_mnist_images_field(samples.images, &whole),
                                 {.name = "targets", .tensor = samples.labels, .dtype = LK_I64},
                                 lki_memory_field_of("is_query", is_query)};
    return lki_memory_dataset_create(fields, 3);
}

static lk_status choose(selection *wanted, const lk_mnist_part_options *options)
{
    int64_t each = options->num_samples ? options->num_samples : 100;
    int count = options->class_count ? options->class_count : 3;
    if (each < 1)
        return lki_fail(LK_ERR_INVALID, "PartialMNIST: num_samples: expected at least 1, found %lld",
                        (long long)each);
    if (count < 1 || count > CLASS_COUNT)
        return lki_fail(LK_ERR_INVALID, "PartialMNIST: classes: expected 1 to %d, found %d", CLASS_COUNT,
                        count);
    *wanted = (selection){{0}};
    for (int i = 0; i < count; i++) {
        int class = options->class_count ? options->classes[i] : i;
        if (class < 0 || class >= CLASS_COUNT)
            return lki_fail(LK_ERR_INVALID, "PartialMNIST: classes: expected 0 to %d, found %d",
                            CLASS_COUNT - 1, class);
        wanted->room[class] = each;
    }
    return LK_OK;
}

lk_dataset *lk_partial_mnist_with(const char *root, const lk_mnist_part_options *given)
{
    LKI_TAKE(lk_mnist_part_options, options, given, NULL);
    lk_mnist_options whole = mnist_options(&options, !options.test);
    lki_mnist_samples samples;
    selection wanted;
    if (choose(&wanted, &options) || read_selected(&samples, root, &whole, wanted)) return NULL;
    lki_memory_field fields[] = {lki_mnist_images_field(samples.images, &whole),
                                 {.name = "targets", .tensor = samples.labels, .dtype = LK_I64}};
    return lki_memory_dataset_create(fields, 2);
}
