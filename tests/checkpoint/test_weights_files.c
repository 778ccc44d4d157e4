/* Files of weights of PyTorch's and NumPy's: their values, and a sentence for those that mean harm. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <unistd.h>

#define GOLDEN LK_SOURCE_DIR "/tests/golden/checkpoint/weights"

/* The path stays valid until the next call. */
static const char *path_in(const char *folder, const char *name)
{
    static char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static lk_state_dict *load_golden(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.pth", name);
    return lk_load_checkpoint(path_in(GOLDEN, file));
}

static void check(const lk_state_dict *dict, const char *name, lk_shape shape, const double *values)
{
    const lk_tensor *tensor = lk_state_dict_get(dict, name);
    lkt_not_null(tensor);
    assert_true(lk_shape_equal(tensor->shape, shape));
    for (int64_t i = 0; i < lk_shape_count(shape); i++) lkt_close(lk_tensor_get(tensor, i), values[i], 0);
}

#define CHECK(name, shape, ...) check(dict, name, shape, (const double[]){__VA_ARGS__})

static void check_weights(const lk_state_dict *dict)
{
    assert_int_equal(lk_state_dict_count(dict), 6);
    assert_string_equal(lk_state_dict_name(dict, 0), "0.weight");
    CHECK("0.weight", LK_SHAPE(2, 3), 0.5, -1, 2, 3, 4, -5.5);
    CHECK("0.bias", LK_SHAPE(2), 0.25, -0.75);
    CHECK("1.num_batches_tracked", lk_scalar_shape(), 7);
    CHECK("tied", LK_SHAPE(2, 2), 1, 2, 3, 4);
    CHECK("tied_too", LK_SHAPE(2, 2), 1, 2, 3, 4);
    CHECK("turned", LK_SHAPE(2, 2), 1, 3, 2, 4);
}

static void test_weights(void **state)
{
    (void)state;
    static const char *const names[] = {"plain", "old", "wrapped", "wrapped_old", "protocol4"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        lk_state_dict *dict = load_golden(names[i]);
        lkt_not_null(dict);
        check_weights(dict);
        lk_state_dict_free(dict);
    }
}

static void test_harmful_files(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message;
    } cases[] = {
        {"evil", "it asks Python for posix.system, which no file of tensors needs; nothing was run"},
        {"evil_old", "posix.system"},
        {"evil4", "posix.system"},
        {"module", "torch.nn.modules.linear.Linear"},
        {"script", "a program of TorchScript"},
        {"expanded", "its tensors are more than 16 times as large as the file"},
        {"laughs", "a value stands in too many places"},
        {"deep", "nested more than 32 levels deep"},
        {"two_lines", "a name that cannot be printed"},
        {"same_names", "two tensors are named \"module.a\""},
        {"list", "it holds no state dict"},
        {"parent", "an entry's name leads out of the archive"},
        {"absolute", "an entry's name leads out of the archive"},
        {"packed", "the entry data.pkl is packed"},
        {"twice", "two entries of the archive have one name"},
        {"big_endian", "its numbers are big-endian"},
        {"big_endian_old", "its numbers are big-endian"},
        {"cut", "cut off"},
        {"cut_old", "cut off"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_null(load_golden(cases[i].name));
        lkt_contains(lk_error(), cases[i].message);
        lkt_contains(lk_error(), cases[i].name);
        assert_null(strchr(lk_error(), '\n'));
    }
    assert_null(lk_load_checkpoint("/no/such.pth"));
    lkt_contains(lk_error(), "/no/such.pth");
    assert_null(lk_load_checkpoint(NULL));
}

/* An instruction that does nothing, many times: over the limit only in both pickles together. */
static void test_many_instructions(void **state)
{
    (void)state;
    static const uint8_t magic[] = {0x80, 2,    0x8a, 10,   0x6c, 0xfc, 0x9c, 0x46,
                                    0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    const char *path = path_in(lkt_scratch_folder("weights_many"), "many.pth");
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fwrite(magic, 1, sizeof magic, file);
    for (int pickle = 0; pickle < 2; pickle++) {
        for (int i = 0; i < 5 << 20; i++) fwrite("\x80\2", 1, 2, file);
        fwrite("M\xe9\3.", 1, 4, file); /* 1001 */
    }
    assert_int_equal(fclose(file), 0);
    assert_null(lk_load_checkpoint(path));
    lkt_contains(lk_error(), "many.pth: its pickles have more than 8388608 instructions");
    assert_int_equal(unlink(path), 0);
}

static lk_state_dict *make_dict(void)
{
    lk_state_dict *dict = lk_state_dict_create();
    lk_tensor *matrix = lk_tensor_full(LK_F32, LK_SHAPE(2, 3), 0);
    for (int i = 0; i < 6; i++) lk_tensor_set(matrix, i, i);
    int order[] = {1, 0};
    lkt_ok(lk_state_dict_put(dict, "turned", lk_tensor_permute(matrix, order)));
    lkt_ok(lk_state_dict_put(dict, "matrix", matrix));
    for (int dtype = LK_F32; dtype <= LK_BOOL; dtype++)
        lkt_ok(lk_state_dict_put(dict, lk_dtype_name((lk_dtype)dtype),
                                 lk_tensor_full((lk_dtype)dtype, LK_SHAPE(3), 1)));
    lkt_ok(lk_state_dict_put(dict, "empty", lk_tensor_full(LK_F32, LK_SHAPE(0, 4), 0)));
    lkt_ok(lk_state_dict_put_i64(dict, "number", -3));
    return dict;
}

/* Names, order, dtypes and values come back. A live comparison is tests/oracle/torch_exchange_live.sh. */
static void test_written_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        lk_status (*save)(const char *path, const lk_state_dict *dict);
    } formats[] = {{"a.pth", lk_save_pth}, {"a.npz", lk_save_npz}, {"a.safetensors", lk_save_safetensors}};
    lk_state_dict *dict = make_dict();
    for (size_t f = 0; f < 3; f++) {
        const char *path = path_in(lkt_scratch_folder("weights_files"), formats[f].name);
        lkt_ok(formats[f].save(path, dict));
        lk_state_dict *again = lk_load_checkpoint(path);
        lkt_not_null(again);
        assert_int_equal(lk_state_dict_count(again), lk_state_dict_count(dict));
        for (int64_t i = 0; i < lk_state_dict_count(dict); i++) {
            const char *name = lk_state_dict_name(dict, i);
            const lk_tensor *tensor = lk_state_dict_tensor(dict, i), *found = lk_state_dict_get(again, name);
            bool widened = f == 1 && tensor->dtype == LK_BF16; /* NumPy has no bf16 */
            assert_true(lk_shape_equal(found->shape, tensor->shape));
            assert_int_equal(found->dtype, widened ? LK_F32 : tensor->dtype);
            if (f == 0) assert_string_equal(lk_state_dict_name(again, i), name);
            lk_tensor *dense = lk_tensor_clone(tensor);
            for (int64_t k = 0; k < lk_tensor_count(tensor); k++)
                lkt_close(lk_tensor_get(found, k), lk_tensor_get(dense, k), 0);
            lk_tensor_free(dense);
        }
        lk_state_dict_free(again);
    }
    lkt_fails(lk_save_pth("/nowhere/x.pth", dict), LK_ERR_IO, "/nowhere");
    lkt_ok(lk_state_dict_put_i64(dict, "a/b", 1));
    lkt_fails(lk_save_npz("x.npz", dict), LK_ERR_INVALID, "a tensor named \"a/b\" cannot stand in a .npz");
    lk_state_dict_free(dict);
}

/* JAX's and Keras' weights have such names. */
static void test_names_with_folders(void **state)
{
    (void)state;
    char command[3000];
    if (system("/usr/bin/python3 -c 'import numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no numpy\n");
        skip();
    }
    const char *folder = lkt_scratch_folder("weights_folders");
    snprintf(
        command, sizeof command,
        "cd '%s' && /usr/bin/python3 -c 'import numpy as n\n"
        "n.savez(\"a.npz\", **{\"head/kernel\": [1.0, 2.0], \"embedding/kernel\": [3.0], \"x/y/z\": [4.0]})'"
        " && cp a.npz a.weights",
        folder);
    assert_int_equal(system(command), 0);
    static const char *const files[] = {"a.npz", "a.weights"};
    for (int i = 0; i < 2; i++) {
        lk_state_dict *dict = lk_load_checkpoint(path_in(folder, files[i]));
        lkt_not_null(dict);
        assert_int_equal(lk_state_dict_count(dict), 3);
        CHECK("head/kernel", LK_SHAPE(2), 1, 2);
        CHECK("embedding/kernel", LK_SHAPE(1), 3);
        CHECK("x/y/z", LK_SHAPE(1), 4);
        lk_state_dict_free(dict);
    }
}

/* Every byte of a small file changed, and the file cut anywhere: read or refused, never more. */
static void test_damaged_files(void **state)
{
    (void)state;
    static const char *const names[] = {"old.pth", "plain.pth", "protocol4.pth"};
    static uint8_t whole[16384];
    char path[1200];
    snprintf(path, sizeof path, "%s/damaged.pth", lkt_scratch_folder("weights_damaged"));
    for (size_t n = 0; n < 3; n++) {
        FILE *file = fopen(path_in(GOLDEN, names[n]), "rb");
        size_t nbytes = fread(whole, 1, sizeof whole, file);
        fclose(file);
        for (size_t at = 0; at < nbytes; at += n == 0 ? 1 : 3) {
            uint8_t kept = whole[at];
            whole[at] = (uint8_t)(at % 3 == 0 ? 0xff : at % 3 == 1 ? kept ^ 1 : 'R');
            file = fopen(path, "wb");
            fwrite(whole, 1, at % 5 ? nbytes : at, file);
            fclose(file);
            whole[at] = kept;
            lk_state_dict *dict = lk_load_checkpoint(path);
            if (!dict) assert_non_null(strstr(lk_error(), "damaged.pth"));
            lk_state_dict_free(dict);
        }
    }
}

/* ---- Into a model ---- */

static lk_module *model(int outputs)
{
    lk_module *whole = lk_sequential(lk_linear(3, 2), lk_linear(2, outputs));
    lkt_not_null(whole);
    return whole;
}

static void test_loading_by_name(void **state)
{
    (void)state;
    char path[1200], *report = NULL;
    snprintf(path, sizeof path, "%s/head.pth", lkt_scratch_folder("weights_by_name"));
    lk_module *other = model(5), *own = model(4);
    lk_state_dict *weights = lk_module_state_dict(other);
    lkt_ok(lk_state_dict_put_i64(weights, "extra", 1));
    lkt_ok(lk_save_pth(path, weights));
    lk_state_dict *before = lk_module_state_dict(own);
    double untouched = lk_tensor_get(lk_state_dict_get(before, "0.weight"), 0);

    lkt_fails(lk_load_weights(own, path), LK_ERR_SHAPE,
              "head.pth does not fit the model: 2 of 4 tensors fit; ");
    lkt_contains(lk_error(),
                 "unexpected: extra; of another shape: 1.weight is (5, 2) in the file and (4, 2) in "
                 "the model, 1.bias is (5,) in the file and (4,) in the model");
    lkt_fails(lk_load_weights(own, path, .no_strict = true), LK_ERR_SHAPE, "of another shape");
    lkt_close(lk_tensor_get(lk_state_dict_get(before, "0.weight"), 0), untouched, 0);

    lkt_ok(lk_load_weights(own, path, .names = "0.*", .report = &report));
    assert_string_equal(report, "2 of 2 tensors fit");
    lk_text_free(report);
    lkt_close(lk_tensor_get(lk_state_dict_get(before, "0.weight"), 0),
              lk_tensor_get(lk_state_dict_get(weights, "0.weight"), 0), 0);
    lkt_fails(lk_load_weights(own, path, .names = "2.*"), LK_ERR_NOT_FOUND, "is called \"2.*\"");
    lkt_ok(lk_load_weights(other, path, .no_strict = true, .report = &report));
    assert_string_equal(report, "4 of 4 tensors fit; unexpected: extra");
    lk_text_free(report);
    lkt_fails(lk_load_weights(other, path), LK_ERR_NOT_FOUND, "4 of 4 tensors fit; unexpected: extra");

    lk_module *longer = lk_sequential(lk_linear(3, 2), lk_linear(2, 5), lk_linear(5, 1));
    lkt_fails(lk_load_weights(longer, path), LK_ERR_NOT_FOUND,
              "missing: 2.weight, 2.bias; unexpected: extra");
    lkt_ok(lk_load_weights(longer, path, .names = "0.*, 1.weight"));
    lk_state_dict_free(before);
    lk_state_dict_free(weights);
    lk_module_free(longer);
    lk_module_free(other);
    lk_module_free(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),           cmocka_unit_test(test_harmful_files),
        cmocka_unit_test(test_written_files),     cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_loading_by_name),   cmocka_unit_test(test_names_with_folders),
        cmocka_unit_test(test_many_instructions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
