/* Weights that are rounded after the training: the numbers against the formula, every format of files, a
 * model that is read back, and damaged files. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

static lk_state_dict *some(void)
{
    lk_state_dict *dict = lk_state_dict_create();
    lk_manual_seed(5);
    lk_tensor *silent = lk_randn(LK_SHAPE(3, 16));
    for (int i = 0; i < 16; i++) lk_tensor_set(silent, 16 + i, 0); /* a row without any magnitude */
    lk_state_dict_put(dict, "fc.weight", silent);
    lk_state_dict_put(dict, "conv.weight", lk_randn(LK_SHAPE(4, 2, 3, 3)));
    lk_state_dict_put(dict, "thin.weight", lk_randn(LK_SHAPE(4, 2))); /* its scales would outweigh it */
    lk_state_dict_put(dict, "fc.bias", lk_randn(LK_SHAPE(3)));
    lk_state_dict_put_i64(dict, "num_batches_tracked", 7);
    return dict;
}

static lk_tensor *get(const lk_state_dict *dict, const char *name)
{
    lk_tensor *tensor = lk_state_dict_get(dict, name);
    assert_non_null(tensor);
    return tensor;
}

/* round(w / s) * s with s = max |w| / 127 of the row, by itself. */
static void check_row(const lk_tensor *was, const lk_tensor *now, int64_t begin, int64_t length)
{
    double largest = 0;
    for (int64_t i = begin; i < begin + length; i++) largest = fmax(largest, fabs(lk_tensor_get(was, i)));
    for (int64_t i = begin; i < begin + length; i++) {
        double step = largest / 127, w = lk_tensor_get(was, i);
        double wanted = step > 0 ? nearbyint(w / step) * step : 0;
        assert_true(fabs(lk_tensor_get(now, i) - wanted) <= 1e-6 * largest);
        assert_true(fabs(lk_tensor_get(now, i) - w) <= 0.5001 * step);
    }
}

static void test_int8_in_every_format(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        lk_status (*save)(const char *path, const lk_state_dict *dict);
    } formats[] = {{"pth", lk_save_pth}, {"safetensors", lk_save_safetensors}, {"npz", lk_save_npz}};
    lk_state_dict *dict = some(), *small = lk_state_dict_shrink(dict, LK_WEIGHTS_INT8);
    assert_non_null(small);
    assert_int_equal(get(small, "fc.weight")->dtype, LK_U8);
    assert_int_equal(get(small, "thin.weight")->dtype, LK_F32);
    assert_int_equal(get(small, "conv.weight.int8_scale")->shape.dim[0], 4);
    assert_int_equal(lk_state_dict_count(small), 7);
    for (int i = 0; i < 3; i++) {
        char path[1200];
        snprintf(path, sizeof path, "%s/small.%s", lkt_scratch_folder("small_weights"), formats[i].name);
        assert_int_equal(formats[i].save(path, small), LK_OK);
        lk_state_dict *back = lk_load_checkpoint(path);
        if (!back) fail_msg("%s", lk_error());
        assert_int_equal(lk_state_dict_count(back), 5);
        for (int row = 0; row < 3; row++)
            check_row(get(dict, "fc.weight"), get(back, "fc.weight"), 16 * row, 16);
        for (int row = 0; row < 4; row++)
            check_row(get(dict, "conv.weight"), get(back, "conv.weight"), 18 * row, 18);
        for (int at = 0; at < 3; at++)
            assert_true(lk_tensor_get(get(back, "fc.bias"), at) == lk_tensor_get(get(dict, "fc.bias"), at));
        lk_state_dict_free(back);
    }
    lk_state_dict_free(small);
    lk_state_dict_free(dict);
}

static void test_bf16(void **state)
{
    (void)state;
    char path[1200];
    lk_state_dict *dict = some(), *small = lk_state_dict_shrink(dict, LK_WEIGHTS_BF16);
    assert_int_equal(get(small, "conv.weight")->dtype, LK_BF16);
    assert_int_equal(get(small, "fc.bias")->dtype, LK_F32);
    snprintf(path, sizeof path, "%s/half.safetensors", lkt_scratch_folder("small_weights_bf16"));
    assert_int_equal(lk_save_safetensors(path, small), LK_OK);
    lk_module *model = lk_named_sequential({"fc", lk_linear(16, 3)});
    assert_int_equal(lk_load_weights(model, path, .names = "fc.*", .no_strict = true), LK_OK);
    const lk_tensor *was = get(dict, "fc.weight"), *now = lk_module_param(model, "fc.weight")->value;
    for (int64_t i = 0; i < 48; i++) /* 8 bits of the fraction: half a unit of the last place */
        assert_true(fabs(lk_tensor_get(now, i) - lk_tensor_get(was, i)) <= fabs(lk_tensor_get(was, i)) / 256);
    lk_module_free(model);
    lk_state_dict_free(small);
    lk_state_dict_free(dict);
}

static void refuse_file(lk_state_dict *dict, const char *fragment)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/bad.safetensors", lkt_scratch_folder("small_weights_bad"));
    assert_int_equal(lk_save_safetensors(path, dict), LK_OK);
    lk_state_dict_free(dict);
    assert_null(lk_load_checkpoint(path));
    assert_int_equal(lk_error_status(), LK_ERR_FORMAT);
    lkt_contains(lk_error(), "bad.safetensors: ");
    lkt_contains(lk_error(), fragment);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    lk_state_dict *dict = some();
    lk_tensor_set(get(dict, "conv.weight"), 3, NAN);
    assert_null(lk_state_dict_shrink(dict, LK_WEIGHTS_INT8));
    assert_int_equal(lk_error_status(), LK_ERR_NAN);
    lkt_contains(lk_error(), "conv.weight");
    assert_null(lk_state_dict_shrink(dict, (lk_weight_format)9));
    assert_null(lk_state_dict_shrink(NULL, LK_WEIGHTS_BF16));
    lk_state_dict_free(dict);
    dict = lk_state_dict_create();
    lk_state_dict_put(dict, "w.int8_scale", lk_randn(LK_SHAPE(3)));
    refuse_file(dict, "w.int8_scale: the weights of these scales are missing");
    dict = lk_state_dict_create();
    lk_state_dict_put(dict, "w", lk_tensor_create(LK_U8, LK_SHAPE(4, 9)));
    lk_state_dict_put(dict, "w.int8_scale", lk_randn(LK_SHAPE(3)));
    refuse_file(dict, "w: the int8 weights and their scales do not fit");
    dict = lk_state_dict_create();
    lk_state_dict_put(dict, "w", lk_randn(LK_SHAPE(3, 9)));
    lk_state_dict_put(dict, "w.int8_scale", lk_randn(LK_SHAPE(3)));
    refuse_file(dict, "do not fit");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_int8_in_every_format),
        cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
