/* Classic data sets under torchvision's and Catalyst's names. */
#include "config/components/components.h"

#include "base/status.h"

#include <lockstep/vision.h>

typedef lk_dataset *(*make_like_mnist)(const char *root, const lk_mnist_options *options);
typedef struct like_mnist {
    make_like_mnist make;
} like_mnist;

static lk_status build_like_mnist(const lk_component *self, lk_args *args, void **out)
{
    lk_mnist_options options = {LK_SIZE(lk_mnist_options), .train = lk_arg_bool(args, "train"),
                                .download = lk_arg_bool(args, "download")};
    lk_dataset *dataset = ((const like_mnist *)self->context)->make(lk_arg_string(args, "root"), &options);
    return lki_built(lki_transform_dataset(args, dataset), out);
}

static lk_status build_cifar10(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_dataset *dataset = lk_cifar10(lk_arg_string(args, "root"), .train = lk_arg_bool(args, "train"),
                                     .download = lk_arg_bool(args, "download"));
    return lki_built(lki_transform_dataset(args, dataset), out);
}

static lk_status build_cifar100(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    lk_dataset *dataset =
        lk_cifar100(lk_arg_string(args, "root"), .train = lk_arg_bool(args, "train"),
                    .download = lk_arg_bool(args, "download"), .coarse = lk_arg_bool(args, "coarse"));
    return lki_built(lki_transform_dataset(args, dataset), out);
}

static lk_status build_movielens(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_movielens(lk_arg_string(args, "root"), .train = lk_arg_bool(args, "train"),
                                  .min_rating = lk_arg_float(args, "min_rating")),
                     out);
}

#define TRANSFORM LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL, "what is done to each sample, in order")
#define TARGET_TRANSFORM                                                                                     \
    LKI_REFUSED("target_transform", NULL,                                                                    \
                "write it among the transforms with the key targets, as in transform: [{_target_: OneHot, "  \
                "num_classes: 10}]")
#define DOWNLOAD LKI_BOOL("download", "false", "fetch what is missing")

static const lk_parameter like_mnist_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED,
               "the folder of the IDX files, or one that has FashionMNIST/raw or KMNIST/raw"),
    LKI_BOOL("train", "true", "the 60,000 pictures for training instead of the 10,000 for testing"),
    TRANSFORM,
    TARGET_TRANSFORM,
    DOWNLOAD,
    {0},
};
static const lk_parameter cifar10_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED,
               "the folder of the files, or one that has cifar-10-batches-bin or cifar-10-batches-py"),
    LKI_BOOL("train", "true", "the 50,000 pictures for training instead of the 10,000 for testing"),
    TRANSFORM,
    TARGET_TRANSFORM,
    DOWNLOAD,
    {0},
};
static const lk_parameter cifar100_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED,
               "the folder of the files, or one that has cifar-100-binary or cifar-100-python"),
    LKI_BOOL("train", "true", "the 50,000 pictures for training instead of the 10,000 for testing"),
    TRANSFORM,
    TARGET_TRANSFORM,
    DOWNLOAD,
    LKI_BOOL("coarse", "false", "the 20 superclasses as targets"),
    {0},
};
static const lk_parameter movielens_parameters[] = {
    LKI_STRING("root", LKI_REQUIRED, "the folder of ua.base and ua.test, or one that has ml-100k"),
    LKI_BOOL("train", "true", "the ratings of ua.base instead of those of ua.test"),
    LKI_REFUSED(
        "download", "false",
        "leave it out, and unpack https://files.grouplens.org/datasets/movielens/ml-100k.zip in the root"),
    LKI_FLOAT("min_rating", "0", "lower ratings do not count"),
    {0},
};

const lk_component lki_collection_components[] = {
    {"FashionMNIST", "torchvision.datasets.FashionMNIST", LK_KIND_DATASET,
     "Clothes of ten kinds: features (1, 28, 28) in 0..1 and targets 0..9.",
     .parameters = like_mnist_parameters, .build = build_like_mnist,
     .context = &(const like_mnist){lk_fashion_mnist_with}},
    {"KMNIST", "torchvision.datasets.KMNIST", LK_KIND_DATASET,
     "Japanese characters: features (1, 28, 28) in 0..1 and targets 0..9.",
     .parameters = like_mnist_parameters, .build = build_like_mnist,
     .context = &(const like_mnist){lk_kmnist_with}},
    {"CIFAR10", "torchvision.datasets.CIFAR10 catalyst.contrib.datasets.CIFAR10", LK_KIND_DATASET,
     "Small photographs: features (3, 32, 32) in 0..1 and targets 0..9.", .parameters = cifar10_parameters,
     .build = build_cifar10},
    {"CIFAR100", "torchvision.datasets.CIFAR100 catalyst.contrib.datasets.CIFAR100", LK_KIND_DATASET,
     "Small photographs: features (3, 32, 32) in 0..1 and targets 0..99.", .parameters = cifar100_parameters,
     .build = build_cifar100},
    {"MovieLens", "catalyst.contrib.datasets.MovieLens catalyst.contrib.datasets.movielens.MovieLens",
     LK_KIND_DATASET, "The ratings of each user: features and targets (items).",
     .parameters = movielens_parameters, .build = build_movielens},
    {0},
};
