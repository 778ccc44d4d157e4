/* Parameters that a loss does not reach stay as they are, with their optimizer's state and count, as
 * PyTorch's do whose grad is None. Values are PyTorch's (tests/oracle/unreached_parameters.py), on every
 * engine. */
#include "case.h"
#include "engines.h"

#include <lockstep/lockstep.h>

#include <math.h>

enum { BATCHES = 8, VALUES = 20 };

static const int HEADS[BATCHES] = {1, 1, 0, 1, 0, 0, 1, 0};
static const int64_t ROWS[] = {4, 3};

static void fill(lk_tensor *tensor, int64_t start)
{
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, (double)((start + 7 * i) % 11 - 5) / 8);
}

static const char *const names[] = {"0.weight", "0.bias", "1.weight", "1.bias",
                                    "2.weight", "2.bias", "3.weight", "3.bias"};

static lk_module *make_model(void)
{
    lk_module *model = lk_sequential(lk_linear(3, 2), lk_linear(2, 1), lk_linear(2, 1), lk_linear(2, 2));
    for (int i = 0; i < 8; i++) fill(lk_module_param(model, names[i])->value, i);
    return model;
}

/* The rows of the batch say which head its loss goes through. */
static lk_value *one_head(lk_graph *graph, const char *const *fields, lk_value *const *inputs, int count,
                          void *context)
{
    (void)graph, (void)fields, (void)count;
    lk_module *model = context;
    bool second = lk_value_shape(inputs[0]).dim[0] == ROWS[1];
    lk_value *trunk = lk_module_forward(lk_module_child(model, "0"), inputs[0]);
    lk_value *y = lk_module_forward(lk_module_child(model, second ? "2" : "1"), trunk);
    return lk_op_mean(lk_op_mul(y, y), LK_ALL_AXES, false);
}

static lk_optimizer *make_optimizer(const char *name)
{
    if (!strcmp(name, "sgd")) return lk_sgd(.lr = 0.1, .momentum = 0.9, .weight_decay = 0.05);
    if (!strcmp(name, "adam")) return lk_adam(.lr = 0.05, .weight_decay = 0.05);
    if (!strcmp(name, "adamw")) return lk_adamw(.lr = 0.05, .weight_decay = 0.1);
    if (!strcmp(name, "rmsprop")) return lk_rmsprop(.lr = 0.01, .momentum = 0.9, .weight_decay = 0.05);
    if (!strcmp(name, "lamb")) return lk_lamb(.lr = 0.05, .weight_decay = 0.1);
    if (!strcmp(name, "nadam")) return lk_nadam(.lr = 0.05, .weight_decay = 0.05);
    if (!strcmp(name, "asgd")) return lk_asgd(.lr = 0.05, .lambd = 0.1, .t0 = 2);
    if (!strcmp(name, "rprop")) return lk_rprop(.lr = 0.05);
    return lk_adagrad(.lr = 0.1, .lr_decay = 0.1, .weight_decay = 0.05, .initial_accumulator_value = 0.1);
}

static void train(int which, const char *name, int accumulation, double *values)
{
    lk_engine *engine = open_engine(which);
    lk_module *model = make_model();
    lk_optimizer *optimizer = make_optimizer(name);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer, .function = one_head, .context = model,
                            .engine = engine, .accumulation_steps = accumulation);
    lkt_not_null(step);
    for (int i = 0; i < BATCHES; i++) {
        lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(ROWS[HEADS[i]], 3));
        fill(x, 3 * i);
        lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}}, 1));
        lk_tensor_free(x);
    }
    lkt_ok(lk_step_pull(step));
    for (int i = 0, at = 0; i < 8; i++) {
        const lk_tensor *value = lk_module_param(model, names[i])->value;
        for (int64_t k = 0; k < lk_tensor_count(value); k++) values[at++] = lk_tensor_get(value, k);
    }
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    lk_engine_close(engine);
}

static void compare_line(int which, char *line)
{
    double actual[VALUES];
    char *rest, *name = strtok_r(line, " ", &rest);
    int accumulation = atoi(strtok_r(NULL, " ", &rest));
    train(which, name, accumulation, actual);
    for (int i = 0; i < VALUES; i++) {
        double expected = strtod(strtok_r(NULL, " \n", &rest), NULL);
        if (!(fabs(actual[i] - expected) <= 2e-6))
            fail_msg("engine %d, %s, %d batches per update: value %d is %.9g, expected %.9g", which, name,
                     accumulation, i, actual[i], expected);
    }
}

static void on_engine(int which)
{
    char line[1024];
    FILE *golden = fopen(LK_SOURCE_DIR "/tests/golden/train/unreached.txt", "r");
    assert_non_null(golden);
    while (fgets(line, sizeof line, golden)) compare_line(which, line);
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

/* The rule with one call per parameter. */
static void lamb_leaves_them_alone(void **state)
{
    (void)state;
    double values[VALUES];
    train(gpu_is_asked_for() ? GPU : CPU, "lamb", 1, values);
    static const double first[] = {0.125, -0.375, 0.5, 0, 0.25, -0.25};
    for (int i = 0; i < 6; i++) lkt_close(values[14 + i], first[i], 0);
}

static lk_value *only_first(lk_module *module, lk_value *x)
{
    return lk_module_forward(lk_module_child(module, "first"), x);
}

static lk_runner *train_ranks(int ranks, lk_optimizer *optimizer, bool compress)
{
    lk_manual_seed(11);
    lk_module *model =
        lk_custom_module(.forward = only_first,
                         .children = lk_children({"first", lk_linear(LKT_FEATURES, LKT_CLASSES)},
                                                 {"second", lk_linear(3, 5)}));
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(
        runner, .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = optimizer,
        .loaders =
            lk_loaders({"train", lk_loader(lkt_points(16, 1), .batch_size = 8 / ranks, .no_shuffle = true)}),
        .num_epochs = 3, .nproc = ranks, .device = "cpu", .thread_count = 1, .compress_gradients = compress);
    if (status) fail_msg("%d ranks: %s", ranks, lk_error());
    return runner;
}

/* Ranks that divide the update, ranks that do not, and gradients that travel compressed. */
static void on_two_ranks(void **state)
{
    (void)state;
    lk_manual_seed(11);
    lk_module_free(lk_linear(LKT_FEATURES, LKT_CLASSES));
    lk_module *untouched = lk_linear(3, 5);
    for (int k = 0; k < 3; k++) {
        lk_runner *one =
            train_ranks(1, k == 1 ? lk_lamb(.lr = 0.05) : lk_adamw(.lr = 0.05, .weight_decay = 0.1), false);
        lk_runner *two =
            train_ranks(2, k == 1 ? lk_lamb(.lr = 0.05) : lk_adamw(.lr = 0.05, .weight_decay = 0.1), k == 2);
        const lk_tensor *expected = lk_module_param(untouched, "weight")->value,
                        *second = lk_module_param(two->model, "second.weight")->value,
                        *a = lk_module_param(one->model, "first.weight")->value,
                        *b = lk_module_param(two->model, "first.weight")->value;
        for (int64_t i = 0; i < lk_tensor_count(expected); i++)
            lkt_close(lk_tensor_get(second, i), lk_tensor_get(expected, i), 0);
        for (int64_t i = 0; i < lk_tensor_count(a); i++)
            lkt_close(lk_tensor_get(b, i), lk_tensor_get(a, i), k == 2 ? 5e-2 : 1e-4);
        lk_runner_free(one);
        lk_runner_free(two);
    }
    lk_module_free(untouched);
}

int main(void)
{
    const struct CMUnitTest on_gpu[] = {
        cmocka_unit_test(pytorchs_values),
        cmocka_unit_test(lamb_leaves_them_alone),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_values),
        cmocka_unit_test(lamb_leaves_them_alone),
        cmocka_unit_test(on_two_ranks),
    };
    if (gpu_is_asked_for()) return cmocka_run_group_tests(on_gpu, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
