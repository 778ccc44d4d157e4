/* Saved estimators whose files are damaged or do not belong together, and configs from JSON. */
#include "case.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <stdlib.h>

static char folder[1024];

static const char *path_of(const char *name)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* ---- A config alone ---- */

static lk_estimator_config *read_config(const char *json)
{
    FILE *file = fopen(path_of("config.json"), "w");
    assert_non_null(file);
    fputs(json, file);
    fclose(file);
    return lk_estimator_config_read(path_of("config.json"));
}

static void a_config_is_read(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("config_read"));
    lk_estimator_config *config = read_config("{\"n_epochs\": 2147483647, \"patience\": 1, \"nproc\": 0, "
                                              "\"verbose\": true, \"lr\": 1, \"alpha\": 0}");
    lkt_not_null(config);
    assert_int_equal(config->n_epochs, 2147483647);
    assert_int_equal(config->patience, 1);
    assert_true(config->verbose);
    assert_true(config->lr == 1);
    lk_estimator_config_free(config);
}

static void what_does_not_fit_a_config_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{\"n_epochs\": 4294967298}",
         "config.json: \"n_epochs\": expected an integer of at least 1, found 4294967298"},
        {"{\"n_epochs\": 0}", "\"n_epochs\": expected an integer of at least 1, found 0"},
        {"{\"n_epochs\": 1.5}", "\"n_epochs\": expected an integer of at least 1, found 1.5"},
        {"{\"patience\": 0}", "\"patience\": expected an integer of at least 1, found 0"},
        {"{\"nfilters\": -3}", "\"nfilters\": expected an integer of at least 1, found -3"},
        {"{\"nproc\": -1}", "\"nproc\": expected an integer of at least 0, found -1"},
        {"{\"nproc\": -4294967294}", "\"nproc\": expected an integer of at least 0"},
        {"{\"verbose\": 1}", "\"verbose\": expected true or false, found 1"},
        {"{\"ddp\": \"yes\"}", "\"ddp\": expected true or false, found \"yes\""},
        {"{\"lr\": \"fast\"}", "\"lr\": expected a number, found \"fast\""},
        {"{\"logdir\": [1]}", "\"logdir\": expected a text, found [1]"},
        {"{\"alpha\": -1}", "\"alpha\": expected at least 0, found -1"},
        {"{\"gamma\": 0}", "\"gamma\": expected more than 0, found 0"},
        {"{\"epochs\": 3}", "\"epochs\" is not a name of the config"},
    };
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("config_refused"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(read_config(cases[i].json));
        lkt_contains(lk_error(), cases[i].message);
        assert_int_equal(lk_error_status(), LK_ERR_CONFIG);
    }
}

/* ---- Files that do not belong together ---- */

/* A regression from 2 channels to `targets`, saved in the folder's `name`. */
static void save_krr(const char *name, int targets, double alpha)
{
    lk_tensor *y = lkt_wavy(LK_SHAPE(1, targets, 4, 4));
    lk_fields *fields = lk_tensor_fields(lkt_wavy(LK_SHAPE(1, 2, 4, 4)), y);
    lk_estimator *krr =
        lk_krr(lk_fields_loaders(fields), .alpha = alpha, .logdir = lkt_scratch_folder("krr_save_logs"));
    lkt_not_null(krr);
    lkt_ok(lk_estimator_train(krr));
    lkt_ok(lk_estimator_save(krr, path_of(name)));
    lk_estimator_free(krr);
    lk_fields_free(fields);
}

static void check_not_opened(const char *name, const char *message)
{
    assert_null(lk_estimator_open(path_of(name)));
    lkt_contains(lk_error(), message);
}

static void enter_with_krr(const char *name)
{
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder(name));
    save_krr("one", 1, 1);
    save_krr("three", 3, 1);
    save_krr("other", 1, 2);
}

/* As a save that is killed between its files leaves them. */
static void files_of_two_saves_are_refused(void **state)
{
    (void)state;
    enter_with_krr("krr_pairs");
    lk_estimator *good = lk_estimator_open(path_of("one"));
    lkt_not_null(good);
    lk_estimator_free(good);
    lkt_shell_in(folder, "cp other/model.safetensors one/");
    check_not_opened("one",
                     "one/model.safetensors: it was not saved together with the params.json beside it");
    /* A number that somebody changes by hand is theirs to change. */
    lkt_shell_in(folder, "sed -i 's/\"device\": \"auto\"/\"device\": \"cpu\"/' three/params.json && "
                         "grep -q '\"device\": \"cpu\"' three/params.json");
    good = lk_estimator_open(path_of("three"));
    lkt_not_null(good);
    assert_string_equal(lk_estimator_get_config(good)->device, "cpu");
    lk_estimator_free(good);
}

/* Files without the word that says which belong together are still checked by their shapes. */
static void shapes_that_differ_are_refused(void **state)
{
    (void)state;
    enter_with_krr("krr_shapes");
    lk_state_dict *whole = lk_load_safetensors(path_of("three/model.safetensors"));
    lk_state_dict *plain = lk_state_dict_create();
    lkt_not_null(whole);
    for (int64_t i = 0; i < lk_state_dict_count(whole); i++)
        lkt_ok(lk_state_dict_put(plain, lk_state_dict_name(whole, i),
                                 lk_tensor_clone(lk_state_dict_tensor(whole, i))));
    for (int64_t i = 0; i < lk_state_dict_string_count(whole); i++) {
        const char *key = lk_state_dict_string_name(whole, i);
        if (strcmp(key, "save") != 0)
            lkt_ok(lk_state_dict_put_string(plain, key, lk_state_dict_get_string(whole, key)));
    }
    lkt_ok(lk_save_safetensors(path_of("one/model.safetensors"), plain));
    lk_state_dict_free(plain);
    lk_state_dict_free(whole);
    lkt_shell_in(folder, "sed -i '/\"save\"/d; s/\"gamma\": \\([^,]*\\),/\"gamma\": \\1/' one/params.json");
    check_not_opened("one", "KRR: it has 2 features and 3 targets per point, expected 2 and 1");
}

static void numbers_of_params_that_do_not_fit(void **state)
{
    (void)state;
    enter_with_krr("krr_numbers");
    lkt_shell_in(folder, "sed -i 's/\"n_epochs\": 1/\"n_epochs\": 4294967298/' one/params.json");
    check_not_opened("one", "\"n_epochs\" is missing or of the wrong kind");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_is_read),
        cmocka_unit_test(what_does_not_fit_a_config_is_refused),
        cmocka_unit_test(files_of_two_saves_are_refused),
        cmocka_unit_test(shapes_that_differ_are_refused),
        cmocka_unit_test(numbers_of_params_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
