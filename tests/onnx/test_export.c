/* ONNX files: what is refused, and that a file is written. tests/oracle/onnx_live.sh runs the files with
 * onnxruntime. */
#include "lktest.h"

#include "onnx/protobuf/onnx_plugin.h"

#include <lockstep/lockstep.h>

static void skip_without_plugin(void)
{
    if (lki_plugin_open(&lki_onnx)) return;
    print_message("skipped: %s\n", lk_error());
    skip();
}

static lk_status export(lk_module *module, lk_shape shape, const char *path)
{
    lk_tensor *features = lk_tensor_full(LK_F32, shape, 0);
    lkt_not_null(module);
    lk_status status = lk_export_onnx(module, path, features);
    lk_tensor_free(features);
    lk_module_free(module);
    return status;
}

static void test_refused_layers(void **state)
{
    (void)state;
    skip_without_plugin();
    lkt_fails(export(lk_sequential(lk_conv2d(1, 1, 3, .padding = 1, .padding_mode = LK_PAD_CIRCULAR)),
                     LK_SHAPE(4, 1, 8, 8), "x.onnx"),
              LK_ERR_UNSUPPORTED,
              "ONNX: layer 0 (Conv2d): circular padding has no standard op in opset 17 of ONNX");
    lkt_fails(export(lk_sequential(lk_avg_pool2d(3, .ceil_mode = true)), LK_SHAPE(4, 1, 8, 8), "x.onnx"),
              LK_ERR_UNSUPPORTED, "0 (AvgPool2d): average pooling with ceil_mode");
    lkt_fails(export(lk_sequential(lk_max_pool2d(2, .stride = 3, .padding = 1, .ceil_mode = true)),
                     LK_SHAPE(4, 1, 5, 5), "x.onnx"),
              LK_ERR_UNSUPPORTED, "0 (MaxPool2d): ONNX counts one window more");
    lkt_fails(export(lk_sequential(lk_adaptive_avg_pool2d(3)), LK_SHAPE(4, 1, 8, 8), "x.onnx"),
              LK_ERR_UNSUPPORTED, "0 (AdaptiveAvgPool2d): adaptive pooling");
    lkt_fails(lk_export_onnx(NULL, "x.onnx", NULL), LK_ERR_INVALID, "NULL was passed");
}

/* The sum over the batch, divided by its size as a number. */
static lk_value *mean_forward(lk_module *module, lk_value *x)
{
    (void)module;
    return lk_op_mul_scalar(x, 1.0 / (double)lk_value_shape(x).dim[0]);
}

static lk_value *pad_forward(lk_module *module, lk_value *x)
{
    (void)module;
    int64_t before[] = {0, lk_value_shape(x).dim[0] - 2}, after[] = {0, 3 - lk_value_shape(x).dim[0]};
    return lk_op_pad(x, before, after, LK_PAD_CONSTANT, 0);
}

/* Another of the two results before. */
static lk_value *wire_forward(lk_module *module, lk_value *x)
{
    (void)module;
    lk_value *values[] = {lk_op_exp(x), lk_op_sin(x)};
    return lk_op_neg(values[lk_value_shape(x).dim[0] % 2]);
}

static void test_numbers_of_the_batch(void **state)
{
    (void)state;
    skip_without_plugin();
    lk_value *(*const forwards[])(lk_module *, lk_value *) = {mean_forward, pad_forward, wire_forward};
    for (int i = 0; i < 3; i++)
        lkt_fails(export(lk_custom_module(.type = "Odd", .forward = forwards[i]), LK_SHAPE(5, 3), "x.onnx"),
                  LK_ERR_UNSUPPORTED, "what it computes depends on the batch size");
}

/* onnx's checker looks at the dtypes. */
static void test_float64(void **state)
{
    (void)state;
    skip_without_plugin();
    char path[1200], command[1500];
    snprintf(path, sizeof path, "%s/f64.onnx", lkt_scratch_folder("onnx_f64"));
    lk_module *module =
        lk_sequential(lk_group_norm(2, 4, .no_affine = true), lk_batch_norm2d(4, .no_affine = true),
                      lk_layer_norm(LK_SHAPE(3, 3), .no_affine = true));
    lk_tensor *features = lk_tensor_full(LK_F64, LK_SHAPE(2, 4, 3, 3), 0);
    lkt_not_null(module);
    lkt_ok(lk_module_to(module, LK_F64));
    lkt_ok(lk_export_onnx(module, path, features));
    lk_tensor_free(features);
    lk_module_free(module);
    if (system("/usr/bin/python3 -c 'import onnx' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no onnx\n");
        skip();
    }
    snprintf(
        command, sizeof command,
        "/usr/bin/python3 -c 'import onnx; onnx.checker.check_model(onnx.load(\"%s\"), full_check=True)'",
        path);
    assert_int_equal(system(command), 0);
}

static void test_a_file(void **state)
{
    (void)state;
    skip_without_plugin();
    char path[1200];
    snprintf(path, sizeof path, "%s/a.onnx", lkt_scratch_folder("onnx"));
    lkt_ok(export(lk_sequential(lk_linear(3, 2), lk_relu()), LK_SHAPE(5, 3), path));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    uint8_t bytes[2];
    assert_int_equal(fread(bytes, 1, 2, file), 2);
    fclose(file);
    assert_int_equal(bytes[0], 0x08); /* field 1, ir_version */
    assert_int_equal(bytes[1], 8);
    lkt_fails(export(lk_sequential(lk_linear(3, 2)), LK_SHAPE(5, 3), "/nowhere/a.onnx"), LK_ERR_IO,
              "/nowhere");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_layers),
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_numbers_of_the_batch),
        cmocka_unit_test(test_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
