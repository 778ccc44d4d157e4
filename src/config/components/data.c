/* torch.utils.data's loader and datasets, MNIST, and tensors to make datasets of. */
#include "config/components/components.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/transform.h"

#include <lockstep/data.h>
#include <lockstep/random.h>

#include <string.h>

enum { MAX_BATCH_TRANSFORMS = 8 };

/* What only workers, or only a drawn order, can have an effect on. As PyTorch, which takes its default for
 * left out. */
static lk_status check_prefetch(lk_args *args)
{
    int prefetch_factor = lk_arg_int(args, "prefetch_factor");
    if (prefetch_factor < 1)
        return lki_fail(LK_ERR_CONFIG, "prefetch_factor: expected at least 1, found %d", prefetch_factor);
    if (prefetch_factor != 2 && lk_arg_int(args, "num_workers") == 0)
        return lki_fail(LK_ERR_CONFIG, "prefetch_factor: there are no workers: write num_workers: 1 or more");
    bool draws = lk_arg_bool(args, "shuffle") || lk_arg_given(args, "sampler") ||
                 lk_arg_given(args, "batch_sampler") || lk_arg_given(args, "batch_transforms");
    if (lk_arg_given(args, "seed") && !draws)
        return lki_fail(LK_ERR_CONFIG, "seed: the loader draws no order: write shuffle: y, or leave it out");
    return LK_OK;
}

static lk_status check_loader(lk_args *args)
{
    int batch_size = lk_arg_int(args, "batch_size"), num_workers = lk_arg_int(args, "num_workers");
    if (batch_size < 1)
        return lki_fail(LK_ERR_CONFIG, "batch_size: expected at least 1, found %d", batch_size);
    if (num_workers < 0)
        return lki_fail(LK_ERR_CONFIG, "num_workers: expected at least 0, found %d", num_workers);
    if (lk_arg_given(args, "sampler") && lk_arg_given(args, "batch_sampler"))
        return lki_fail(LK_ERR_CONFIG, "either a sampler or a batch_sampler, not both");
    if (lk_arg_given(args, "batch_sampler") && lk_arg_bool(args, "drop_last"))
        return lki_fail(LK_ERR_CONFIG, "drop_last: a batch_sampler makes whole batches: leave it out");
    return check_prefetch(args);
}

/* 0 leaves it to the sampler, which may make batches of its own. PyTorch takes a batch_size of 1 beside a
 * batch_sampler for the default, so that is no wish there. */
static int64_t wished_batch_size(lk_args *args)
{
    int batch_size = lk_arg_int(args, "batch_size");
    bool is_default =
        !lk_arg_given(args, "batch_size") || (batch_size == 1 && lk_arg_given(args, "batch_sampler"));
    return is_default ? 0 : batch_size;
}

/* What collates comes first: the others change the batch that it has made. */
static lk_status take_batch_transforms(lk_args *args, lk_transform **out, int *count)
{
    int first = 0, rest = 0;
    *count = 0;
    LKI_TRY(lki_take_transforms(args, "collate_fn", out, MAX_BATCH_TRANSFORMS, &first));
    for (int i = 0; i < first; i++) {
        if (out[i]->reshapes) continue;
        lki_fail(LK_ERR_CONFIG,
                 "collate_fn: expected PadCollate, found %s: samples of one length are stacked "
                 "without it, and batch_transforms change batches",
                 out[i]->kind);
        goto failed;
    }
    if (lki_take_transforms(args, "batch_transforms", out + first, MAX_BATCH_TRANSFORMS - first, &rest))
        goto failed;
    *count = first + rest;
    return LK_OK;
failed:
    for (int i = 0; i < first; i++) lk_transform_free(out[i]);
    return lki_last_status();
}

static lk_status build_loader(const lk_component *self, lk_args *args, void **out)
{
    lk_transform *transforms[MAX_BATCH_TRANSFORMS];
    lk_loader_options options = {
        LK_SIZE(lk_loader_options),
        .batch_size = wished_batch_size(args),
        .shuffle = lk_arg_bool(args, "shuffle"),
        .no_shuffle = lk_arg_given(args, "shuffle") && !lk_arg_bool(args, "shuffle"),
        .drop_last = lk_arg_bool(args, "drop_last"),
        .num_workers = lk_arg_int(args, "num_workers"),
        .seed = (uint64_t)lk_arg_int64(args, "seed"),
        .batch_transforms.items = transforms,
    };
    (void)self;
    LKI_TRY(check_loader(args));
    LKI_TRY(take_batch_transforms(args, transforms, &options.batch_transforms.count));
    if (options.num_workers > 0) options.prefetch = options.num_workers * lk_arg_int(args, "prefetch_factor");
    options.sampler = lk_arg_take(args, lk_arg_given(args, "sampler") ? "sampler" : "batch_sampler");
    return lki_built(lk_loader_with(lk_arg_take(args, "dataset"), &options), out);
}

/* `missing: digits` is for examples and first steps: a machine without the files draws its own, and says so.
 */
static lk_dataset *mnist_or_digits(lk_args *args)
{
    bool train = lk_arg_bool(args, "train");
    const char *root = lk_arg_string(args, "root");
    lk_dataset *dataset = lk_mnist(root, .train = train, .download = lk_arg_bool(args, "download"),
                                   .normalize = lk_arg_bool(args, "normalize"));
    bool draws = !strcmp(lk_arg_string(args, "missing"), "digits");
    if (dataset || !draws || lki_last_status() != LK_ERR_NOT_FOUND) return dataset;
    lki_log(LKI_LOG_WARNING, "MNIST is not in \"%s\": %s with drawn digits instead", root,
            train ? "training" : "testing");
    return lk_synthetic_digits(.train = train);
}

static lk_status build_mnist(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lki_transform_dataset(args, mnist_or_digits(args)), out);
}

static lk_status build_catalyst_mnist(const lk_component *self, lk_args *args, void **out)
{
    bool scales = lk_arg_count(args, "transform") == 0;
    (void)self;
    lk_dataset *dataset = lk_mnist(lk_arg_string(args, "root"), .train = lk_arg_bool(args, "train"),
                                   .download = lk_arg_bool(args, "download"), .catalyst_scaling = scales);
    return lki_built(lki_transform_dataset(args, dataset), out);
}

/* The tensors of a dataset are its fields: features, targets, and whatever `keys` calls the others. */
static lk_status build_tensor_dataset(const lk_component *self, lk_args *args, void **out)
{
    lk_named_tensor tensors[LK_MAX_FIELDS];
    int count = lk_arg_count(args, "tensors"), named = lk_arg_count(args, "keys");
    (void)self;
    if (count < 1 || count > LK_MAX_FIELDS)
        return lki_fail(LK_ERR_CONFIG, "tensors: expected 1 to %d, found %d", LK_MAX_FIELDS, count);
    if (count > named)
        return lki_fail(LK_ERR_CONFIG, "keys: %d tensors need %d names, found %d", count, count, named);
    for (int i = 0; i < count; i++) {
        tensors[i].name = lk_arg_string_at(args, "keys", i);
        lk_status status = lki_arg_tensor_at(args, "tensors", i, &tensors[i].tensor);
        if (status == LK_OK) continue;
        while (i-- > 0) lk_tensor_free(tensors[i].tensor);
        return status;
    }
    return lki_built_with_dtypes(args, lk_tensor_dataset_with(tensors, count), out);
}

static lk_status build_subset(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "indices");
    LKI_SCOPED int64_t *indices = LKI_NEW_ARRAY(int64_t, count + 1);
    (void)self;
    if (!indices) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) indices[i] = lk_arg_int_at(args, "indices", i);
    return lki_built(lk_subset(lk_arg_take(args, "dataset"), indices, count), out);
}

static lk_status build_concat(const lk_component *self, lk_args *args, void **out)
{
    int count = lk_arg_count(args, "datasets");
    LKI_SCOPED lk_dataset **datasets = LKI_NEW_ARRAY(lk_dataset *, count + 1);
    (void)self;
    if (!datasets) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) datasets[i] = lk_arg_take_at(args, "datasets", i);
    return lki_built(lk_concat_with(datasets, count), out);
}

static lk_status build_random_tensor(const lk_component *self, lk_args *args, void **out)
{
    lk_shape shape = {.rank = lk_arg_count(args, "size")};
    if (shape.rank > LK_MAX_DIMS) return lki_fail(LK_ERR_CONFIG, "size: at most %d axes", LK_MAX_DIMS);
    for (int i = 0; i < shape.rank; i++) {
        shape.dim[i] = lk_arg_int_at(args, "size", i);
        if (shape.dim[i] < 0)
            return lki_fail(LK_ERR_CONFIG, "size: expected at least 0, found %d", (int)shape.dim[i]);
    }
    return lki_built(!strcmp(self->name, "rand") ? lk_rand(shape) : lk_randn(shape), out);
}

static lk_status build_tensor(const lk_component *self, lk_args *args, void **out)
{
    lk_tensor *tensor = NULL;
    (void)self;
    LKI_TRY(lki_arg_numbers(args, "data", &tensor));
    return lki_built(tensor, out);
}

static const lk_parameter loader_parameters[] = {
    LKI_OBJECT("dataset", DATASET, LKI_REQUIRED, "what to load from"),
    LKI_INT("batch_size", "1", "samples in a batch, for each rank; a batch_sampler says it by itself"),
    LKI_BOOL("shuffle", "false",
             "a new order for every epoch; if left out, several ranks shuffle train loaders, one does not"),
    LKI_OBJECT("sampler", SAMPLER, LKI_OPTIONAL, "the order of the samples"),
    LKI_OBJECT("batch_sampler", SAMPLER, LKI_OPTIONAL,
               "the order of the samples, and the size of the batches"),
    LKI_INT("num_workers", "0", "threads that make batches ahead"),
    LKI_OBJECTS("collate_fn", TRANSFORM, LKI_OPTIONAL,
                "PadCollate, for samples of different lengths; samples are stacked where left out"),
    LKI_NO_EFFECT("pin_memory", "false", "memory is pinned where it helps"),
    LKI_BOOL("drop_last", "false", "leave a short last batch out"),
    LKI_NO_EFFECT("timeout", "0", "workers are threads, which cannot be lost"),
    LKI_REFUSED("worker_init_fn", NULL,
                "leave it out: workers are threads, and share what the run has set up"),
    LKI_NO_EFFECT("multiprocessing_context", NULL, "workers are threads"),
    LKI_INT("prefetch_factor", "2", "batches made ahead by each worker"),
    LKI_NO_EFFECT("persistent_workers", "true", "workers are threads, and live as long as the loader"),
    LKI_OBJECTS("batch_transforms", TRANSFORM, LKI_OPTIONAL, "what is done to whole batches: Mixup, Cutmix"),
    LKI_INT64("seed", LKI_OPTIONAL, "an order of the loader's own, whatever else draws random numbers"),
    {0},
};
static const lk_parameter mnist_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED, "the folder of the IDX files, or one that has MNIST/raw"),
    LKI_BOOL("train", "true", "the 60,000 pictures for training instead of the 10,000 for testing"),
    LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL, "what is done to each sample, in order"),
    LKI_REFUSED("target_transform", NULL,
                "write it among the transforms with the key targets, as in transform: [{_target_: OneHot, "
                "num_classes: 10}]"),
    LKI_BOOL("download", "false", "fetch what is missing"),
    LKI_BOOL("normalize", "false", "(pixel / 255 - 0.1307) / 0.3081"),
    LKI_CHOICE("missing", "error", "error|digits", "where the files are not there: fail, or draw digits"),
    {0},
};
static const lk_parameter catalyst_mnist_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED, "the folder of the IDX files, or one that has MNIST/raw"),
    LKI_BOOL("train", "true", "the 60,000 pictures for training instead of the 10,000 for testing"),
    LKI_BOOL("download", "true", "fetch what is missing"),
    LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL,
                "what is done to each sample, in order, instead of the scaling; ToTensor gives 0..1"),
    LKI_REFUSED("target_transform", NULL,
                "write it among the transforms with the key targets, as in transform: [{_target_: OneHot, "
                "num_classes: 10}]"),
    {0},
};
static const lk_parameter tensor_dataset_parameters[] = {
    {.name = "tensors",
     .type = LK_PARAMETER_OBJECTS,
     .kind = LK_KIND_TENSOR,
     .takes_paths = true,
     .help = "tensors or .npy files, (samples, ...) each: features, then targets"},
    LKI_STRINGS("keys", "[features, targets]", "the names of the tensors in a batch"),
    LKI_DTYPE,
    {0},
};
static const lk_parameter subset_parameters[] = {
    LKI_OBJECT("dataset", DATASET, LKI_REQUIRED, "the whole"),
    LKI_INTS("indices", LKI_REQUIRED, "which samples of it"),
    {0},
};
static const lk_parameter concat_parameters[] = {
    LKI_OBJECTS("datasets", DATASET, LKI_REQUIRED, "datasets with equal fields"), {0}};
static const lk_parameter size_parameters[] = {LKI_INTS("size", LKI_OPTIONAL, "the shape"), {0}};
static const lk_parameter data_parameters[] = {LKI_FLOATS("data", LKI_REQUIRED, "the numbers"), {0}};

const lk_component lki_data_components[] = {
    {"DataLoader", "torch.utils.data.DataLoader", LK_KIND_LOADER, "Makes batches of a dataset's samples.",
     .parameters = loader_parameters, .build = build_loader},
    {"MNIST", "torchvision.datasets.MNIST", LK_KIND_DATASET,
     "Handwritten digits: features (1, 28, 28) in 0..1 and targets 0..9.", .parameters = mnist_parameters,
     .build = build_mnist},
    {"catalyst.contrib.datasets.MNIST", "catalyst.contrib.datasets.mnist.MNIST", LK_KIND_DATASET,
     "MNIST as Catalyst scales it: (pixel - 0.1307) / 0.3081 with pixels of 0..255.",
     .parameters = catalyst_mnist_parameters, .build = build_catalyst_mnist},
    {"TensorDataset", "torch.utils.data.TensorDataset", LK_KIND_DATASET,
     "Samples from tensors in memory or in files.", .parameters = tensor_dataset_parameters,
     .rest = "tensors", .build = build_tensor_dataset},
    {"Subset", "torch.utils.data.Subset", LK_KIND_DATASET, "Some samples of a dataset.",
     .parameters = subset_parameters, .build = build_subset},
    {"ConcatDataset", "torch.utils.data.ConcatDataset", LK_KIND_DATASET, "Datasets one after the other.",
     .parameters = concat_parameters, .build = build_concat},
    {"rand", "torch.rand", LK_KIND_TENSOR, "A tensor of uniform random numbers.",
     .parameters = size_parameters, .rest = "size", .build = build_random_tensor},
    {"randn", "torch.randn", LK_KIND_TENSOR, "A tensor of normal random numbers.",
     .parameters = size_parameters, .rest = "size", .build = build_random_tensor},
    {"tensor", "torch.tensor torch.FloatTensor", LK_KIND_TENSOR, "A tensor of the given numbers.",
     .parameters = data_parameters, .build = build_tensor},
    {0},
};
