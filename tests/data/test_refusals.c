/* What <lockstep/data.h> refuses: samplers, transforms, loaders and data sets. */
#include "refusals.h"

#include <lockstep/data.h>

static lk_dataset *pictures(void)
{
    return lk_tensor_dataset({"features", lk_tensor_full(LK_F32, LK_SHAPE(6, 1, 4, 4), 1)},
                             {"targets", lk_tensor_create(LK_I64, LK_SHAPE(6))});
}

/* A sampler carries its error to the loader. */
#define REFUSED_SAMPLER(fragment, ...)                                                                       \
    REFUSED(fragment, lk_loader_free, lk_loader(pictures(), .sampler = (__VA_ARGS__)))

static void samplers(void **state)
{
    (void)state;
    static const int64_t labels[] = {0, 1, 0, 1, 0, 1}, outside[] = {1, 6};
    static const double weights[] = {1, 1, 1, 1, 1, 1}, negative[] = {1, -1, 1, 1, 1, 1},
                        nan[] = {1, NAN, 1, 1, 1, 1}, zeros[6] = {0}, infinite[] = {INFINITY, 1, 1, 1, 1, 1};
    REFUSED_SAMPLER("length", lk_sequential_sampler(-1));
    REFUSED_SAMPLER("length", lk_random_sampler(-1));
    REFUSED_SAMPLER("length", lk_random_sampler(0));
    REFUSED_SAMPLER("num_samples", lk_random_sampler(6, .num_samples = -1));
    REFUSED_SAMPLER("num_samples", lk_random_sampler(6, .replacement = true, .num_samples = -2));
    REFUSED_SAMPLER("indices", lk_subset_random_sampler(NULL, 3));
    REFUSED_SAMPLER("", lk_subset_random_sampler(labels, -1));
    REFUSED_SAMPLER("", lk_subset_random_sampler(labels, 0));
    REFUSED_SAMPLER("weights", lk_weighted_random_sampler(NULL, 6, 6));
    REFUSED_SAMPLER("weight", lk_weighted_random_sampler(negative, 6, 6));
    REFUSED_SAMPLER("weight", lk_weighted_random_sampler(nan, 6, 6));
    REFUSED_SAMPLER("weight", lk_weighted_random_sampler(infinite, 6, 6));
    REFUSED_SAMPLER("weight", lk_weighted_random_sampler(zeros, 6, 6));
    REFUSED_SAMPLER("", lk_weighted_random_sampler(weights, 6, -1));
    REFUSED_SAMPLER("", lk_weighted_random_sampler(weights, 6, 0));
    REFUSED_SAMPLER("", lk_weighted_random_sampler(weights, 0, 3));
    REFUSED_SAMPLER("", lk_weighted_random_sampler(weights, 6, 7, .no_replacement = true));
    REFUSED_SAMPLER("label", lk_balance_class_sampler(NULL, 6));
    REFUSED_SAMPLER("", lk_balance_class_sampler(labels, 0));
    REFUSED_SAMPLER("mode", lk_balance_class_sampler(labels, 6, .mode = "upsamplin"));
    REFUSED_SAMPLER("samples_per_class", lk_balance_class_sampler(labels, 6, .samples_per_class = -1));
    REFUSED_SAMPLER("label", lk_batch_balance_class_sampler(NULL, 6, 2, 1));
    REFUSED_SAMPLER("num_classes", lk_batch_balance_class_sampler(labels, 6, 0, 1));
    REFUSED_SAMPLER("num_classes", lk_batch_balance_class_sampler(labels, 6, 3, 1));
    REFUSED_SAMPLER("num_samples", lk_batch_balance_class_sampler(labels, 6, 2, 0));
    REFUSED_SAMPLER("num_batches", lk_batch_balance_class_sampler(labels, 6, 2, 2, .num_batches = -1));
    REFUSED_SAMPLER("mini_epoch_len", lk_mini_epoch_sampler(6, 0));
    REFUSED_SAMPLER("shuffle", lk_mini_epoch_sampler(6, 2, .shuffle = "often"));
    REFUSED_SAMPLER("", lk_mini_epoch_sampler(0, 2));
    REFUSED_SAMPLER("num_replicas", lk_distributed_sampler(6, .num_replicas = -1));
    REFUSED_SAMPLER("rank", lk_distributed_sampler(6, .num_replicas = 2, .rank = 2));
    REFUSED_SAMPLER("rank", lk_distributed_sampler(6, .num_replicas = 2, .rank = -1));
    REFUSED_SAMPLER("length", lk_distributed_sampler(-1));
    REFUSED_SAMPLER("", lk_distributed_sampler_wrapper(NULL));
    REFUSED_SAMPLER("draw", lk_custom_sampler(4, NULL, NULL, NULL));
    lkt_all_refused();
    /* An index that the data set does not have is found at the latest when a pass begins. */
    lk_loader *loader = lk_loader(pictures(), .sampler = lk_subset_random_sampler(outside, 2));
    if (loader) lkt_fails(lk_loader_begin(loader, NULL, NULL), LK_ERR_RANGE, "sample 6");
    lk_loader_free(loader);
}

static void transforms(void **state)
{
    (void)state;
    REFUSED("channels", lk_transform_free, lk_normalize(.channels = -1));
    REFUSED("channels", lk_transform_free, lk_normalize(.channels = LK_MAX_CHANNELS + 1));
    REFUSED("mean", lk_transform_free, lk_normalize(.mean = {NAN}));
    REFUSED("std", lk_transform_free, lk_normalize(.std = {-1}));
    REFUSED("std", lk_transform_free, lk_normalize(.std = {NAN}));
    REFUSED("height", lk_transform_free, lk_random_crop(0));
    REFUSED("height", lk_transform_free, lk_random_crop(-4));
    REFUSED("width", lk_transform_free, lk_random_crop(4, .width = -1));
    REFUSED("padding", lk_transform_free, lk_random_crop(4, .padding = -1));
    REFUSED("fill", lk_transform_free, lk_random_crop(4, .fill = NAN));
    REFUSED("p", lk_transform_free, lk_random_horizontal_flip(.p = 1.5));
    REFUSED("p", lk_transform_free, lk_random_horizontal_flip(.p = -0.5));
    REFUSED("p", lk_transform_free, lk_random_vertical_flip(.p = NAN));
    REFUSED("degrees", lk_transform_free, lk_random_affine(.degrees = NAN));
    REFUSED("degrees", lk_transform_free, lk_random_affine(.degrees = -1));
    REFUSED("translate", lk_transform_free, lk_random_affine(.translate_x = 1.5));
    REFUSED("translate", lk_transform_free, lk_random_affine(.translate_y = -0.5));
    REFUSED("scale", lk_transform_free, lk_random_affine(.scale_min = 2, .scale_max = 1));
    REFUSED("scale", lk_transform_free, lk_random_affine(.scale_min = -1));
    REFUSED("scale", lk_transform_free, lk_random_affine(.scale_max = NAN));
    REFUSED("shear", lk_transform_free, lk_random_affine(.shear = INFINITY));
    REFUSED("fill", lk_transform_free, lk_random_affine(.fill = INFINITY));
    REFUSED("size", lk_transform_free, lk_cutout(0));
    REFUSED("size", lk_transform_free, lk_cutout(-2));
    REFUSED("count", lk_transform_free, lk_cutout(2, .count = -1));
    REFUSED("p", lk_transform_free, lk_cutout(2, .p = 2));
    REFUSED("fill", lk_transform_free, lk_cutout(2, .fill = NAN));
    REFUSED("num_classes", lk_transform_free, lk_one_hot(0));
    REFUSED("num_classes", lk_transform_free, lk_one_hot(-3));
    REFUSED("alpha", lk_transform_free, lk_mixup(.alpha = -1));
    REFUSED("alpha", lk_transform_free, lk_mixup(.alpha = NAN));
    REFUSED("alpha", lk_transform_free, lk_cutmix(.alpha = INFINITY));
    REFUSED("field", lk_dataset_free, lk_transformed(pictures(), lk_transforms(lk_to_tensor(.key = "nope"))));
    REFUSED("batch", lk_dataset_free, lk_transformed(pictures(), lk_transforms(lk_mixup())));
    lkt_all_refused();
}

static void loaders(void **state)
{
    (void)state;
    REFUSED("batch_size", lk_loader_free, lk_loader(pictures(), .batch_size = -1));
    REFUSED("num_workers", lk_loader_free, lk_loader(pictures(), .num_workers = -1));
    REFUSED("prefetch", lk_loader_free, lk_loader(pictures(), .num_workers = 1, .prefetch = -1));
    REFUSED("prefetch", lk_loader_free, lk_loader(pictures(), .prefetch = 2));
    REFUSED("shuffle", lk_loader_free, lk_loader(pictures(), .shuffle = true, .no_shuffle = true));
    REFUSED("shuffle", lk_loader_free,
            lk_loader(pictures(), .shuffle = true, .sampler = lk_sequential_sampler(6)));
    REFUSED("lk_transformed", lk_loader_free,
            lk_loader(pictures(), .batch_transforms = lk_transforms(lk_one_hot(3))));
    REFUSED("seed", lk_loader_free, lk_loader(pictures(), .seed = 3, .generator = lk_default_generator()));
    lkt_all_refused();
}

static void datasets(void **state)
{
    (void)state;
    const char *folder = lkt_scratch_folder("refusals_data");
    static const int64_t some[] = {1, 9};
    lk_tensor *three = lk_tensor_create(LK_F32, LK_SHAPE(3)), *four = lk_tensor_create(LK_F32, LK_SHAPE(4));
    REFUSED("", lk_dataset_free, lk_tensor_dataset_with(NULL, 0));
    REFUSED("name", lk_dataset_free, lk_tensor_dataset({NULL, lk_tensor_view(three)}));
    REFUSED("name", lk_dataset_free, lk_tensor_dataset({"", lk_tensor_view(three)}));
    REFUSED("x", lk_dataset_free,
            lk_tensor_dataset({"x", lk_tensor_view(three)}, {"x", lk_tensor_view(three)}));
    REFUSED("samples", lk_dataset_free,
            lk_tensor_dataset({"x", lk_tensor_view(three)}, {"y", lk_tensor_view(four)}));
    REFUSED("samples", lk_dataset_free,
            lk_tensor_dataset({"x", lk_tensor_create(LK_F32, lk_scalar_shape())}));
    REFUSED("", lk_dataset_free, lk_subset(pictures(), NULL, 2));
    REFUSED("", lk_dataset_free, lk_subset(pictures(), some, -1));
    REFUSED("9", lk_dataset_free, lk_subset(pictures(), some, 2));
    REFUSED("", lk_dataset_free, lk_concat_with(NULL, 0));
    REFUSED("", lk_dataset_free, lk_concat(pictures(), lk_tensor_dataset({"x", lk_tensor_view(three)})));
    REFUSED("nope", lk_dataset_free, lk_cast_fields(pictures(), {"nope", LK_F32}));
    REFUSED("", lk_dataset_free, lk_cast_fields(pictures(), {NULL, LK_F32}));
    REFUSED("dtype", lk_dataset_free, lk_cast_fields(pictures(), {"features", (lk_dtype)99}));
    REFUSED("", lk_dataset_free, lk_mnist(NULL));
    REFUSED("std", lk_dataset_free, lk_mnist(folder, .normalize = true, .std = -1));
    REFUSED("mean", lk_dataset_free, lk_mnist(folder, .normalize = true, .mean = NAN));
    REFUSED("count", lk_dataset_free, lk_synthetic_digits(.count = -1));
    REFUSED("", lk_dataset_free, lk_npy_dataset_with(NULL, 0));
    REFUSED("", lk_dataset_free, lk_npy_dataset({"x", NULL}));
    REFUSED("", lk_dataset_free, lk_npy_dataset({NULL, "x.npy"}));
    REFUSED("", lk_tensor_free, lk_npy_read(NULL));
    REFUSED("", lk_dataset_free, lk_safetensors_dataset(NULL));
    REFUSED("", lk_dataset_free, lk_csv_dataset(NULL));
    REFUSED("", lk_dataset_free, lk_image_folder(NULL));
    REFUSED("channels", lk_dataset_free, lk_image_folder(folder, .channels = 2));
    REFUSED("height", lk_dataset_free, lk_image_folder(folder, .height = -1, .width = 4));
    REFUSED("", lk_dataset_free, lk_hdf5_dataset(NULL));
    REFUSED("", lk_tensor_free, lk_hdf5_read(NULL, NULL));
    lkt_all_refused();
    lk_tensor_free(three);
    lk_tensor_free(four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samplers),
        cmocka_unit_test(transforms),
        cmocka_unit_test(loaders),
        cmocka_unit_test(datasets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
