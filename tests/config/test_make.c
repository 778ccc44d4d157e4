/* lk_component_make: one component at a time, with objects that exist already. */
#include "lktest.h"

#include <lockstep/config.h>
#include <lockstep/runner.h>

#include <string.h>

static void *made(const char *text, lk_component_kind kind)
{
    void *object = NULL;
    lkt_ok(lk_component_make(text, NULL, 0, kind, &object));
    lkt_not_null(object);
    return object;
}

static void a_layer_has_the_weights_of_its_constructor(void **state)
{
    (void)state;
    lk_manual_seed(3);
    lk_module *expected = lk_linear(4, 2);
    lk_manual_seed(3);
    lk_module *module = made("{\"_target_\": \"torch.nn.Linear\", \"args\": [4, 2]}", LK_KIND_MODULE);
    const lk_tensor *a = lk_module_param(expected, "weight")->value,
                    *b = lk_module_param(module, "weight")->value;
    assert_memory_equal(a->data, b->data, lk_tensor_nbytes(a));
    lk_module_free(expected);
    lk_component_dispose(LK_KIND_MODULE, module);
}

static void a_run_of_given_objects(void **state)
{
    (void)state;
    lk_tensor *x = lk_rand(LK_SHAPE(20, 4)), *y = lk_rand(LK_SHAPE(20, 2));
    lk_given_object tensors[] = {{.name = "x", .kind = LK_KIND_TENSOR, .object = x},
                                 {.name = "y", .kind = LK_KIND_TENSOR, .object = y}};
    void *dataset = NULL, *nothing = NULL;
    lkt_ok(lk_component_make("{_target_: TensorDataset, args: [{_var_: x}, {_var_: y}]}", tensors, 2,
                             LK_KIND_DATASET, &dataset));
    assert_false(tensors[0].taken); /* views of it were */
    lk_given_object objects[] = {
        {.name = "runner",
         .kind = LK_KIND_RUNNER,
         .object = made("{_target_: SupervisedRunner}", LK_KIND_RUNNER)},
        {.name = "model",
         .kind = LK_KIND_MODULE,
         .object = made("{_target_: Linear, args: [4, 2]}", LK_KIND_MODULE)},
        {.name = "data", .kind = LK_KIND_DATASET, .object = dataset},
    };
    lk_runner *runner = objects[0].object;
    lkt_ok(
        lk_component_make("{_call_: train, model: {_var_: model}, criterion: MSELoss, num_epochs: 2,"
                          " optimizer: {_target_: Adam, params: {_var_: model.parameters}, lr: 0.1},"
                          " loaders: {train: {_target_: DataLoader, dataset: {_var_: data}, batch_size: 5}}}",
                          objects, 3, LK_KIND_CALL, &nothing));
    assert_null(nothing);
    assert_true(objects[1].taken);
    assert_false(objects[2].taken);
    assert_ptr_equal(runner->model, objects[1].object);
    assert_true(lk_metrics_has(runner->loader_metrics, "loss"));
    lk_runner_free(runner);
    lk_component_dispose(LK_KIND_DATASET, dataset);
    lk_component_dispose(LK_KIND_TENSOR, x);
    lk_component_dispose(LK_KIND_TENSOR, y);
}

static void refused(const char *text, lk_component_kind kind, const char *piece)
{
    void *object = (void *)text;
    if (lk_component_make(text, NULL, 0, kind, &object) == LK_OK) fail_msg("accepted: %s", text);
    assert_null(object);
    if (!strstr(lk_error(), piece)) fail_msg("\"%s\" is not in \"%s\"", piece, lk_error());
}

static void mistakes(void **state)
{
    (void)state;
    refused("{_target_: Liner}", LK_KIND_MODULE, "did you mean \"Linear\"");
    refused("{_target_: Linear, args: [4]}", LK_KIND_MODULE, "out_features");
    refused("{_target_: Linear, args: [4, 2]}", LK_KIND_DATASET, "Linear is a module, not a dataset");
    refused("{_target_: Sequential, args: [{_var_: layer}]}", LK_KIND_MODULE, "named \"layer\"");
    refused("{_call_: train}", LK_KIND_CALL, "it needs a runner");
    refused("{_call_: evaluate_loader, loader: {_target_: DataLoader}}", LK_KIND_CALL, "dataset");
    refused("[1, 2]", LK_KIND_MODULE, "a map of keys");
    refused("5", LK_KIND_MODULE, "");
    refused("{_target_: ", LK_KIND_MODULE, "arguments");
    refused("", LK_KIND_MODULE, "");
    lk_given_object nameless = {.kind = LK_KIND_MODULE};
    void *object;
    lkt_fails(lk_component_make("{_target_: ReLU}", &nameless, 1, LK_KIND_MODULE, &object), LK_ERR_INVALID,
              "needs a name");
}

static void a_mistake_leaves_given_objects_alone(void **state)
{
    (void)state;
    lk_given_object layer = {.name = "layer", .kind = LK_KIND_MODULE, .object = lk_linear(4, 4)};
    void *object;
    lkt_fails(lk_component_make("{_target_: Sequential, args: [{_var_: layer}, {_target_: Linear}]}", &layer,
                                1, LK_KIND_MODULE, &object),
              LK_ERR_CONFIG, "in_features");
    assert_false(layer.taken);
    lk_component_dispose(LK_KIND_MODULE, layer.object);
}

static lk_module *module_of(const char *text)
{
    char path[700];
    snprintf(path, sizeof path, "%s/model.yml", lkt_scratch_folder("make"));
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
    lk_manual_seed(5);
    return lk_module_from_config(path);
}

/* A file that is a component, and a config of a run: both give the weights of the constructor. */
static void models_of_files(void **state)
{
    (void)state;
    lk_manual_seed(5);
    lk_module *own = lk_sequential(lk_linear(3, 2));
    const char *texts[] = {"_target_: Sequential\nargs:\n  - {_target_: Linear, args: [3, 2]}\n",
                           "runner:\n  _target_: SupervisedRunner\n  model:\n    _target_: Sequential\n"
                           "    args: [{_target_: Linear, args: [3, 2]}]\n"
                           "run:\n  - _call_: train\n    criterion: MSELoss\n"
                           "    loaders: {train: {_target_: DataLoader, batch_size: 4,\n"
                           "             dataset: {_target_: CSVDataset, path: nowhere.csv}}}\n"};
    for (int k = 0; k < 2; k++) {
        lk_module *module = module_of(texts[k]);
        if (!module) fail_msg("%s", lk_error());
        for (int i = 0; i < 6; i++)
            assert_true(lk_tensor_get(lk_module_param(module, "0.weight")->value, i) ==
                        lk_tensor_get(lk_module_param(own, "0.weight")->value, i));
        lk_module_free(module);
    }
    lk_module_free(own);
    assert_null(module_of("_target_: Sequential\nargs:\n  - {_target_: Linear, args: [3]}\n"));
    lkt_contains(lk_error(), "model.yml:3: ");
    lkt_contains(lk_error(), "out_features");
    assert_null(module_of("_target_: MSELoss\n"));
    lkt_contains(lk_error(), "MSELoss is a criterion, not a module");
    assert_null(module_of("loaders: {}\n"));
    assert_null(lk_module_from_config("/nowhere.yml"));
    lkt_contains(lk_error(), "/nowhere.yml: ");
    assert_null(lk_module_from_config(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_has_the_weights_of_its_constructor),
        cmocka_unit_test(a_run_of_given_objects),
        cmocka_unit_test(mistakes),
        cmocka_unit_test(a_mistake_leaves_given_objects_alone),
        cmocka_unit_test(models_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
