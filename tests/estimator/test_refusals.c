/* What <lockstep/fields.h> and <lockstep/estimator.h> refuse. */
#include "refusals.h"

#include <lockstep/lockstep.h>

static void cubes(void **state)
{
    (void)state;
    static const int64_t four[] = {4, 4, 4}, two[] = {2, 2, 2}, zero[] = {2, 0, 2}, negative[] = {2, -2, 2};
    lk_tensor *field = lk_tensor_full(LK_F32, LK_SHAPE(1, 2, 4, 4, 4), 1),
              *cubes = lk_tensor_full(LK_F32, LK_SHAPE(7, 2, 2, 2, 2), 1);
    REFUSED("", lk_tensor_free, lk_sample_equidistant(field, 0, two));
    REFUSED("", lk_tensor_free, lk_sample_equidistant(field, 4, two));
    REFUSED("", lk_tensor_free, lk_sample_equidistant(field, 3, zero));
    REFUSED("", lk_tensor_free, lk_sample_equidistant(field, 3, negative));
    REFUSED("", lk_tensor_free, lk_split_cubes(field, 3, zero));
    REFUSED("", lk_tensor_free, lk_split_cubes(field, 3, negative));
    REFUSED("", lk_tensor_free, lk_split_cubes(field, 5, two));
    REFUSED("", lk_tensor_free, lk_combine_cubes(cubes, 3, four));
    REFUSED("", lk_tensor_free, lk_combine_cubes(cubes, 3, zero));
    REFUSED("", lk_tensor_free, lk_filter_spectral(field, 3, NAN));
    REFUSED("", lk_tensor_free, lk_filter_spectral(field, 3, -1));
    REFUSED("", lk_tensor_free, lk_filter_spectral(field, 9, 1));
    REFUSED("", lk_tensor_free, lk_filter_box(field, 3, 0));
    REFUSED("", lk_tensor_free, lk_filter_box(field, 3, 1.5));
    REFUSED("", lk_tensor_free, lk_filter_box(field, 3, NAN));
    REFUSED("", lk_tensor_free, lk_filter_gaussian(field, 3, -1));
    REFUSED("", lk_tensor_free, lk_filter_gaussian(field, 3, NAN));
    REFUSED("", lk_tensor_free, lk_filter_gaussian(field, 0, 1));
    REFUSED("", lk_tensor_free, lk_synthetic_turbulence(0, 3, four, 0, NULL));
    REFUSED("", lk_tensor_free, lk_synthetic_turbulence(1, 3, zero, 0, NULL));
    REFUSED("", lk_tensor_free, lk_synthetic_turbulence(1, 4, four, 0, NULL));
    REFUSED("", lk_tensor_free, lk_synthetic_turbulence(1, 3, four, NAN, NULL));
    lkt_all_refused();
    lk_tensor_free(field);
    lk_tensor_free(cubes);
}

static void files(void **state)
{
    (void)state;
    REFUSED("path", lk_fields_free, lk_hdf5_fields(NULL, .features = lk_names("u"), .input_size = {4, 4, 4}));
    REFUSED("features", lk_fields_free, lk_hdf5_fields("{feature}.h5", .input_size = {4, 4, 4}));
    REFUSED("input_size", lk_fields_free, lk_hdf5_fields("{feature}.h5", .features = lk_names("u")));
    REFUSED("input_size", lk_fields_free,
            lk_hdf5_fields("{feature}.h5", .features = lk_names("u"), .input_size = {4, -4}));
    REFUSED("sample_to", lk_fields_free,
            lk_hdf5_fields("{feature}.h5", .features = lk_names("u"), .input_size = {4}, .sample_to = {-2}));
    REFUSED("batch_num", lk_fields_free,
            lk_hdf5_fields("{feature}.h5", .features = lk_names("u"), .input_size = {4}, .batch_num = -1));
    REFUSED("feature_labels", lk_fields_free,
            lk_hdf5_fields("{feature}.h5", .features = lk_names("u"), .input_size = {4},
                           .feature_labels = lk_names("a", "b")));
    REFUSED("", lk_text_free, lk_field_path(NULL, "u", 0));
    REFUSED("", lk_text_free, lk_field_path("{nope}", "u", 0));
    lkt_all_refused();
}

static lk_loader *points(void)
{
    return lk_loader(lk_tensor_dataset({"features", lk_tensor_full(LK_F32, LK_SHAPE(4, 3, 8, 8, 8), 1)},
                                       {"targets", lk_tensor_full(LK_F32, LK_SHAPE(4, 3, 8, 8, 8), 1)}));
}

#define REFUSED_ESTIMATOR(fragment, ...)                                                                     \
    REFUSED(fragment, lk_estimator_free,                                                                     \
            lk_cnn3d(lk_loaders({"train", points()}, {"valid", points()}), __VA_ARGS__))

static void estimators(void **state)
{
    (void)state;
    REFUSED_ESTIMATOR("n_epochs", .n_epochs = -1);
    REFUSED_ESTIMATOR("patience", .patience = -1);
    REFUSED_ESTIMATOR("min_delta", .min_delta = NAN);
    REFUSED_ESTIMATOR("lr", .lr = -1);
    REFUSED_ESTIMATOR("lr", .lr = NAN);
    REFUSED_ESTIMATOR("min_lr", .min_lr = -1);
    REFUSED_ESTIMATOR("nproc", .nproc = -1);
    REFUSED("nfilters", lk_estimator_free, lk_picae(lk_loaders({"train", points()}), .nfilters = -1));
    REFUSED("activation", lk_estimator_free,
            lk_pimlturb3d(lk_loaders({"train", points()}), .activation = "swish"));
    REFUSED("sigma", lk_estimator_free, lk_pimlturb3d(lk_loaders({"train", points()}), .sigma = -1));
    REFUSED("ks_frac", lk_estimator_free, lk_pimlturb3d(lk_loaders({"train", points()}), .ks_frac = 2));
    REFUSED("l1_beta", lk_estimator_free, lk_pimlturb3d(lk_loaders({"train", points()}), .l1_beta = NAN));
    REFUSED("alpha", lk_estimator_free, lk_krr(lk_loaders({"train", points()}), .alpha = -1));
    REFUSED("gamma", lk_estimator_free, lk_krr(lk_loaders({"train", points()}), .gamma = NAN));
    lkt_all_refused();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cubes),
        cmocka_unit_test(files),
        cmocka_unit_test(estimators),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
