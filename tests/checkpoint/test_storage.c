/* model.storage.json, and JSON files that are wrong. */
#include "lktest.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "checkpoint/json_file.h"
#include "checkpoint/storage.h"

static void add(lki_storage *storage, const char *path, double metric, const char *expected_drop)
{
    char *dropped;
    lkt_ok(lki_storage_add(storage, path, metric, &dropped));
    if (expected_drop)
        assert_string_equal(dropped, expected_drop);
    else
        assert_null(dropped);
    lki_free(dropped);
}

static void the_best_are_kept(void **state)
{
    (void)state;
    char path[1200];
    lki_storage storage, loaded;
    snprintf(path, sizeof path, "%s/model.storage.json", lkt_scratch_folder("storage"));
    lkt_ok(lki_storage_init(&storage, "logs", "valid", "loss", true, 2));
    add(&storage, "model.0001.safetensors", 0.5, NULL);
    add(&storage, "model.0002.safetensors", NAN, NULL);
    add(&storage, "model.0003.safetensors", 0.4, "model.0002.safetensors");
    add(&storage, "model.0004.safetensors", 0.5, "model.0004.safetensors"); /* no better than what is there */
    add(&storage, "model.0005.safetensors", 0.1, "model.0001.safetensors");
    lkt_ok(lki_storage_save(&storage, path));
    lkt_ok(lki_storage_load(&loaded, path));
    assert_string_equal(loaded.logdir, "logs");
    assert_string_equal(loaded.loader_key, "valid");
    assert_string_equal(loaded.metric_key, "loss");
    assert_true(loaded.minimize);
    assert_int_equal(loaded.topk, 2);
    assert_int_equal(loaded.entry_count, 2);
    assert_string_equal(loaded.entries[0].logpath, "model.0005.safetensors");
    assert_string_equal(loaded.entries[1].logpath, "model.0003.safetensors");
    lkt_close(loaded.entries[0].metric, 0.1, 0);
    lki_storage_fini(&storage);
    lki_storage_fini(&loaded);
}

static void maximized_and_not_a_number(void **state)
{
    (void)state;
    char path[1200];
    lki_storage storage, loaded;
    snprintf(path, sizeof path, "%s/nan.json", lkt_scratch_folder("storage"));
    lkt_ok(lki_storage_init(&storage, "logs", NULL, NULL, false, 3));
    add(&storage, "a", NAN, NULL);
    add(&storage, "b", 1, NULL);
    add(&storage, "c", 2, NULL);
    assert_string_equal(storage.entries[0].logpath, "c");
    assert_string_equal(storage.entries[2].logpath, "a");
    lkt_ok(lki_storage_save(&storage, path));
    lkt_ok(lki_storage_load(&loaded, path));
    assert_true(isnan(loaded.entries[2].metric));
    assert_null(loaded.loader_key);
    lki_storage_fini(&storage);
    lki_storage_fini(&loaded);
}

/* The folder has been moved: paths follow it, and what did not come along is forgotten. */
static void a_list_of_another_folder(void **state)
{
    (void)state;
    char folder[1100], path[1200];
    lki_storage storage;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("storage_moved"));
    snprintf(path, sizeof path, "%s/model.0001.safetensors", folder);
    lkt_ok(lki_write_file_atomic(path, "x", 1));
    lkt_ok(lki_storage_init(&storage, "old", "valid", "loss", true, 3));
    add(&storage, "old/checkpoints/model.0001.safetensors", 0.5, NULL);
    add(&storage, "old/checkpoints/model.0002.safetensors", 0.4, NULL);
    add(&storage, "model.0003.safetensors", 0.6, NULL);
    lkt_ok(lki_storage_relocate(&storage, "new", folder));
    assert_string_equal(storage.logdir, "new");
    assert_int_equal(storage.entry_count, 1);
    assert_string_equal(storage.entries[0].logpath, path);
    lkt_close(storage.entries[0].metric, 0.5, 0);
    assert_true(lki_storage_is_of(&storage, "valid", "loss", true));
    assert_false(lki_storage_is_of(&storage, "valid", "loss", false));
    assert_false(lki_storage_is_of(&storage, "valid", "accuracy01", true));
    assert_false(lki_storage_is_of(&storage, NULL, "loss", true));
    lki_storage_fini(&storage);
}

static void wrong_files(void **state)
{
    (void)state;
    static const struct {
        const char *text, *fragment;
    } cases[] = {
        {"{\n\"a\": }", "s.json:2: "},
        {"{}", "s.json: no list named storage"},
        {"{\"storage\": [{\"metric\": 1}]}", "entry 0 of storage"},
        {"{\"storage\": [{\"logpath\": \"x\", \"metric\": \"y\"}]}", "entry 0 of storage"},
    };
    char path[1200];
    lki_storage storage;
    snprintf(path, sizeof path, "%s/s.json", lkt_scratch_folder("storage"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lkt_ok(lki_write_file_atomic(path, cases[i].text, strlen(cases[i].text)));
        lkt_fails(lki_storage_load(&storage, path), LK_ERR_FORMAT, cases[i].fragment);
    }
    lkt_fails(lki_storage_load(&storage, "/nowhere.json"), LK_ERR_NOT_FOUND, "/nowhere.json: no such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_are_kept),
        cmocka_unit_test(maximized_and_not_a_number),
        cmocka_unit_test(a_list_of_another_folder),
        cmocka_unit_test(wrong_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
