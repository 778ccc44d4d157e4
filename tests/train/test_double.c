/* Models of f64: values are PyTorch's of module.double() (tests/oracle/double_model.py) to 1e-10 (a bias
 * before a batch norm has gradients of rounding alone), in steps and in runs with checkpoints and the
 * callbacks that look at gradients. */
#include "engines.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include <math.h>

enum { BATCHES = 5, MAX_VALUES = 64 };

static const char *const names[] = {"0.weight", "0.bias", "1.weight",       "1.bias",
                                    "3.weight", "3.bias", "1.running_mean", "1.running_var"};

static void fill(lk_tensor *tensor, int64_t start, double more)
{
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, (double)((start + 7 * i) % 11 - 5) / 8 + more);
}

static lk_module *make_model(void)
{
    lk_module *model = lk_sequential(lk_linear(3, 4), lk_batch_norm1d(4), lk_relu(), lk_linear(4, 2));
    lkt_ok(lk_module_to(model, LK_F64));
    for (int i = 0; i < 6; i++) fill(lk_module_param(model, names[i])->value, i, i == 2 ? 1.25 : 0);
    return model;
}

static lk_tensor *filled(lk_dtype dtype, lk_shape shape, int64_t start)
{
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    fill(tensor, start, 0);
    return tensor;
}

static int train(int which, const char *name, double *values)
{
    lk_engine *engine = open_engine(which);
    lk_module *model = make_model();
    lk_criterion *criterion = lk_mse_loss();
    lk_optimizer *optimizer = !strcmp(name, "sgd") ? lk_sgd(.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01)
                                                   : lk_adam(.lr = 0.01);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    int at = 0;
    for (int i = 0; i < BATCHES; i++) {
        lk_tensor *x = filled(LK_F64, LK_SHAPE(6, 3), 3 * i), *y = filled(LK_F64, LK_SHAPE(6, 2), 5 * i + 1);
        lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
        values[at++] = lk_step_loss(step);
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    lkt_ok(lk_step_pull(step));
    for (int i = 0; i < 8; i++) {
        const lk_tensor *value = lk_module_param(model, names[i])->value;
        assert_int_equal(value->dtype, LK_F64);
        for (int64_t k = 0; k < lk_tensor_count(value); k++) values[at++] = lk_tensor_get(value, k);
    }
    lk_step_free(step);
    lk_criterion_free(criterion);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    lk_engine_close(engine);
    return at;
}

/* The bias before the batch norm has gradients of rounding alone, which Adam makes large; the running mean
 * follows it. */
static double tolerance_of(int number)
{
    bool is_bias = number >= BATCHES + 12 && number < BATCHES + 16,
         is_mean = number >= BATCHES + 34 && number < BATCHES + 38;
    return is_bias || is_mean ? 1e-6 : 1e-11;
}

static void on_engine(int which)
{
    char line[4096];
    FILE *golden = fopen(LK_SOURCE_DIR "/tests/golden/train/double.txt", "r");
    assert_non_null(golden);
    while (fgets(line, sizeof line, golden)) {
        double values[MAX_VALUES];
        char *rest, *name = strtok_r(line, " ", &rest);
        int count = train(which, name, values);
        for (int i = 0; i < count; i++) {
            double expected = strtod(strtok_r(NULL, " \n", &rest), NULL);
            if (!(fabs(values[i] - expected) <= tolerance_of(i)))
                fail_msg("engine %d, %s: number %d is %.17g, expected %.17g", which, name, i, values[i],
                         expected);
        }
    }
    fclose(golden);
}

static void pytorchs_values(void **state)
{
    (void)state;
    if (gpu_is_asked_for()) {
        on_engine(GPU);
        return;
    }
    on_engine(REF);
    on_engine(CPU);
    on_engine(FAR);
}

/* What a run of f64 and one of f32 report of the same data. */
static lk_status note_norm(lk_callback *callback, lk_runner *runner)
{
    double *sum = callback->context;
    if (runner->is_train_loader) *sum += lk_metrics_get(runner->batch_metrics, "grad_norm");
    return LK_OK;
}

static double run(lk_dtype dtype, const char *logdir, const char *resume, int epochs, double *weight)
{
    double norms = 0;
    lk_manual_seed(5);
    lk_runner *runner = lk_supervised_runner();
    lk_module *model = lk_sequential(lk_linear(3, 4), lk_relu(), lk_linear(4, 2));
    lkt_ok(lk_module_to(model, dtype));
    lk_callback *callbacks[] = {lk_l2_weight_decay_callback(0.1), lk_l1_weight_decay_callback(0.01),
                                lk_gradient_norm_callback(), lk_on(batch_end, note_norm, &norms)};
    lk_status status =
        lk_train(runner, .model = model, .criterion = lk_mse_loss(), .optimizer = lk_adam(.lr = 0.01),
                 .loaders = lk_loaders(
                     {"train", lk_loader(lk_tensor_dataset({"features", filled(dtype, LK_SHAPE(12, 3), 1)},
                                                           {"targets", filled(dtype, LK_SHAPE(12, 2), 2)}),
                                         .batch_size = 4, .no_shuffle = true)}),
                 .callbacks = {callbacks, 4}, .num_epochs = epochs, .logdir = logdir, .resume = resume,
                 .device = "cpu");
    if (status) fail_msg("%s: %s", lk_dtype_name(dtype), lk_error());
    const lk_param *param = lk_module_param(runner->model, "0.weight");
    assert_int_equal(param->value->dtype, dtype);
    *weight = lk_tensor_get(param->value, 0);
    lk_runner_free(runner);
    return norms;
}

static void runs_with_callbacks(void **state)
{
    (void)state;
    double single, twice, weight, wide;
    single = run(LK_F32, NULL, NULL, 3, &weight);
    twice = run(LK_F64, NULL, NULL, 3, &wide);
    assert_true(twice > 0);
    lkt_close(twice, single, 1e-4);
    lkt_close(wide, weight, 1e-5);
    assert_true(wide != weight);
}

/* A run that stops and goes on ends where one that does not stop ends, bit for bit. */
static void resumes(void **state)
{
    (void)state;
    char checkpoint[600];
    double whole, second, ignored;
    const char *folder = lkt_scratch_folder("double");
    snprintf(checkpoint, sizeof checkpoint, "%s/checkpoints/runner.last.safetensors", folder);
    run(LK_F64, NULL, NULL, 4, &whole);
    run(LK_F64, folder, NULL, 2, &ignored);
    run(LK_F64, NULL, checkpoint, 4, &second);
    lkt_close(second, whole, 0);
}

static void what_cannot_be(void **state)
{
    (void)state;
    lk_module *model = lk_linear(2, 2);
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lkt_fails(lk_module_to(model, LK_BF16), LK_ERR_DTYPE, "expected f32 or f64, found bf16");
    lk_engine *engine = open_engine(CPU);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lkt_fails(lk_module_to(model, LK_F64), LK_ERR_INVALID, "before a step is made");
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    lk_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_values),
        cmocka_unit_test(runs_with_callbacks),
        cmocka_unit_test(resumes),
        cmocka_unit_test(what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
