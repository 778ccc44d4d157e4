/* Fields in configs: entries that read the same files share what was read. */
#include "case.h"

#include "config/config.h"
#include "config/registry.h"
#include "config/run_config.h"
#include "estimator/estimator.h"

static lk_config *config;
static lki_plan plan;

/* A config of named fields; {common} is what they have in common. */
static void build(const char *common, const char *a, const char *b)
{
    char text[4096];
    snprintf(text, sizeof text,
             "a: {_var_: a, _target_: HDF5Fields, %s, %s}\n"
             "b: {_var_: b, _target_: HDF5Fields, %s, %s}\n"
             "run:\n  - {_call_: train_estimator, estimator: {_target_: KRR, loaders: {train: "
             "{_target_: DataLoader, dataset: {_var_: a}}}}}\n",
             common, a, common, b);
    config = lk_config_create();
    lkt_ok(lk_config_load_text(config, "c.yml", text));
    lkt_ok(lki_config_build(config, &plan));
}

static void drop(void)
{
    lki_plan_fini(&plan);
    lk_config_free(config);
}

/* Where the features of a named entry lie. */
static const char *place_of(const char *name)
{
    lk_storage storage;
    for (lki_object *object = plan.first; object; object = object->next)
        if (object->var && !strcmp(object->var, name)) {
            assert_true(lk_dataset_storage(object->pointer, 0, &storage));
            return storage.data;
        }
    fail_msg("there is no %s", name);
    return NULL;
}

static int64_t length_of(const char *name)
{
    for (lki_object *object = plan.first; object; object = object->next)
        if (object->var && !strcmp(object->var, name)) return lk_dataset_length(object->pointer);
    return -1;
}

#define CUBES "batch_size: [8, 8, 8], train_fraction: 0.75"

static void check_sharing(const char *common)
{
    build(common, CUBES, CUBES ", train: n");
    assert_int_equal(length_of("a"), 6);
    assert_int_equal(length_of("b"), 2);
    assert_ptr_equal(place_of("b"), place_of("a") + sizeof(float) * 6 * 3 * 8 * 8 * 8);
    drop();
    build(common, "flat: n", "train: n"); /* one sample is both, and nothing is copied */
    assert_ptr_equal(place_of("b"), place_of("a"));
    drop();
    build(common, "flat: n", CUBES); /* cut otherwise: read once, but other numbers in memory */
    assert_ptr_not_equal(place_of("b"), place_of("a"));
    drop();
}

static void test_made_up(void **state)
{
    (void)state;
    check_sharing(
        "path: 'nowhere/{feature}.h5', features: u, input_size: [32, 32, 32], sample_to: [16, 16, 16], "
        "missing: turbulence");
}

static void test_files(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    char common[2048];
    snprintf(common, sizeof common,
             "path: '%s/cnn_krr/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5', features: u, "
             "input_size: [32, 32, 32], sample_to: [16, 16, 16]",
             folder);
    check_sharing(common);
    build(common, "flat: n", "targets: u"); /* other words for the same are not looked through */
    assert_ptr_not_equal(place_of("b"), place_of("a"));
    drop();
}

static void test_mistakes_name_file_and_feature(void **state)
{
    (void)state;
    char filled[1024];
    static const struct {
        const char *more, *fragment;
    } cases[] = {{"batch_size: [5, 5, 5]", "nowhere/u.h5: array \"u\": 32 points do not divide"},
                 {"sample_to: [33, 33, 33]", "33"},
                 {"batch_size: [8, 8, 8, 8]", "batch_size: at most 3 axes, found 4"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(filled, sizeof filled,
                 "a: {_var_: a, _target_: HDF5Fields, path: 'nowhere/{feature}.h5', features: u, "
                 "input_size: [32, 32, 32], missing: turbulence, %s}\n"
                 "run:\n  - {_call_: train_estimator, estimator: {_target_: KRR, loaders: {train: "
                 "{_target_: DataLoader, dataset: {_var_: a}}}}}\n",
                 cases[i].more);
        config = lk_config_create();
        lkt_ok(lk_config_load_text(config, "c.yml", filled));
        assert_int_not_equal(lki_config_build(config, &plan), LK_OK);
        lkt_contains(lk_error(), "c.yml:1: HDF5Fields: ");
        lkt_contains(lk_error(), cases[i].fragment);
        drop();
    }
}

/* What is made up stands in for files that are not there at all, not for those that are wrong. */
static void test_files_that_are_wrong_are_not_made_up(void **state)
{
    (void)state;
    NEEDS_SAPSAN(folder);
    char filled[2048];
    static const struct {
        const char *more, *fragment;
    } cases[] = {{"feature_labels: w", "u_dim32_fm15.h5: no array \"w\": the file has u00000"},
                 {"checkpoints: [0, 77]", "t77/u_dim32_fm15.h5: no such file"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(filled, sizeof filled,
                 "a: {_var_: a, _target_: HDF5Fields, path: "
                 "'%s/cnn_krr/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5', features: u, "
                 "input_size: [32, 32, 32], missing: turbulence, %s}\n"
                 "run:\n  - {_call_: train_estimator, estimator: {_target_: KRR, loaders: {train: "
                 "{_target_: DataLoader, dataset: {_var_: a}}}}}\n",
                 folder, cases[i].more);
        config = lk_config_create();
        lkt_ok(lk_config_load_text(config, "c.yml", filled));
        assert_int_not_equal(lki_config_build(config, &plan), LK_OK);
        lkt_contains(lk_error(), cases[i].fragment);
        drop();
    }
}

static int add_components(void **state)
{
    (void)state;
    return lki_estimator_components_add();
}

static int forget_components(void **state)
{
    (void)state;
    lki_registry_reset();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_up),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_mistakes_name_file_and_feature),
        cmocka_unit_test(test_files_that_are_wrong_are_not_made_up),
    };
    return cmocka_run_group_tests(tests, add_components, forget_components);
}
