/* Catalyst's callbacks around models, batches, metrics and files. */
#include "golden.h"
#include "lktest.h"

#include "callbacks/prune.h"

#include <lockstep/lockstep.h>

#include <unistd.h>

enum { SAMPLES = 16, WIDTH = 4, CLASSES = 3 };

static const char *folder;

static lk_dataset *data(bool one_hot)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(SAMPLES, WIDTH));
    lk_tensor *y = one_hot ? lk_tensor_create(LK_F32, LK_SHAPE(SAMPLES, CLASSES))
                           : lk_tensor_create(LK_I64, LK_SHAPE(SAMPLES));
    for (int i = 0; i < SAMPLES * WIDTH; i++) lk_tensor_set(x, i, ((i * 7) % 11) / 8.0 - 0.5);
    for (int i = 0; i < SAMPLES; i++)
        lk_tensor_set(y, one_hot ? i * CLASSES + i % CLASSES : i, one_hot ? 1 : i % CLASSES);
    lk_dataset *dataset = lk_tensor_dataset({"features", x}, {"targets", y});
    lkt_not_null(dataset);
    return dataset;
}

static lk_module *model(void)
{
    lk_manual_seed(1);
    return lk_sequential(lk_linear(WIDTH, 5), lk_relu(), lk_linear(5, CLASSES));
}

static lk_status train(lk_runner *runner, lk_callback *callback, const char *logdir, int epochs)
{
    lkt_not_null(callback);
    return lk_train(runner, .model = model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.5),
                    .loaders = lk_loaders({"train", lk_loader(data(false), .batch_size = 6)},
                                          {"valid", lk_loader(data(false), .batch_size = 5)}),
                    .callbacks = lk_callbacks(callback, lk_accuracy_callback(.topk = {1})),
                    .num_epochs = epochs, .logdir = logdir);
}

static void fails_with(lk_callback *callback, const char *fragment)
{
    lk_runner *runner = lk_supervised_runner();
    assert_int_not_equal(train(runner, callback, NULL, 1), LK_OK);
    lkt_contains(lk_error(), fragment);
    lk_runner_free(runner);
}

/* ---- SoftUpdate ---- */

static lk_module *of_number(double number)
{
    lk_module *module = lk_linear(1, 1, .no_bias = true);
    lkt_not_null(module);
    lkt_ok(lk_init_constant(lk_module_param(module, "weight"), number));
    return module;
}

static lk_status nothing(lk_runner *runner, const lk_batch *batch)
{
    (void)batch;
    return lk_metrics_set(runner->batch_metrics, "loss", 0);
}

static double soft_update(const char *scope, int epochs)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = nothing};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lkt_not_null(runner);
    lkt_ok(lk_runner_add_model(runner, "target", of_number(2)));
    lkt_ok(lk_runner_add_model(runner, "source", of_number(10)));
    lkt_ok(lk_train(
        runner,
        .loaders = lk_loaders({"train", lk_loader(data(false), .batch_size = 8)},
                              {"valid", lk_loader(data(false), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_soft_update_callback(.target_model = "target", .source_model = "source",
                                                          .tau = 0.25, .scope = scope)),
        .num_epochs = epochs));
    double weight = lk_tensor_get(lk_module_param(lk_runner_model(runner, "target"), "weight")->value, 0);
    assert_true(lk_tensor_get(lk_module_param(lk_runner_model(runner, "source"), "weight")->value, 0) == 10);
    lk_runner_free(runner);
    return weight;
}

static void soft_update_moves_the_target(void **state)
{
    (void)state;
    double once = 2 * 0.75 + 10 * 0.25, twice = once * 0.75 + 10 * 0.25;
    assert_true(soft_update("on_epoch_end", 1) == once);
    assert_true(soft_update("on_epoch_start", 2) == twice);
    assert_true(soft_update("on_batch_end", 1) == twice); /* of two train batches */
    assert_true(soft_update("on_batch_start", 1) == twice);
}

static void soft_update_refuses(void **state)
{
    (void)state;
    assert_null(
        lk_soft_update_callback(.target_model = "a", .source_model = "b", .tau = 0.5, .scope = "often"));
    lkt_contains(lk_error(),
                 "scope is on_batch_end, on_batch_start, on_epoch_end or on_epoch_start, not \"often\"");
    assert_null(
        lk_soft_update_callback(.target_model = "a", .source_model = "b", .tau = 2, .scope = "on_batch_end"));
    lkt_contains(lk_error(), "tau: expected more than 0, at most 1, found 2");
    assert_null(lk_soft_update_callback(.tau = 0.5, .scope = "on_batch_end"));
    lkt_contains(lk_error(), "target_model and source_model are required");
    fails_with(lk_soft_update_callback(.target_model = "a", .source_model = "b", .tau = 0.5,
                                       .scope = "on_batch_end"),
               "the run has no model and no child of its model called \"a\"");
}

/* ---- Mixup ---- */

static double mixed_loss(lk_transform *transform, lk_callback *callback)
{
    lk_runner *runner = lk_supervised_runner();
    lk_transform *transforms[] = {transform};
    lk_callback *callbacks[] = {callback};
    lkt_ok(lk_train(
        runner, .model = model(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.5),
        .loaders = lk_loaders({"train", lk_loader(data(true), .batch_size = 6, .shuffle = true,
                                                  .batch_transforms = {transforms, transform ? 1 : 0})},
                              {"valid", lk_loader(data(true), .batch_size = 5)}),
        .callbacks = {callbacks, callback ? 1 : 0}, .num_epochs = 3, .seed = 5));
    double loss = lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss");
    lk_runner_free(runner);
    return loss;
}

static void mixup_is_that_of_the_loader(void **state)
{
    (void)state;
    double callback = mixed_loss(NULL, lk_mixup_callback(.alpha = 0.4)), plain = mixed_loss(NULL, NULL);
    double transform = mixed_loss(lk_mixup(.alpha = 0.4), NULL);
    double everywhere = mixed_loss(NULL, lk_mixup_callback(.alpha = 0.4, .no_on_train_only = true));
    assert_true(callback == transform);
    assert_true(callback != plain);
    assert_true(callback != everywhere);
}

static void mix_refuses(void **state)
{
    (void)state;
    assert_null(lk_mixup_callback(.alpha = -1));
    lkt_contains(lk_error(), "alpha: expected more than 0");
    fails_with(lk_mixup_callback(),
               "loader \"train\": mixup: field \"targets\" is i64: only f32 can be mixed");
    fails_with(lk_mixup_callback(.keys = {"nothing"}), "the dataset has no field \"nothing\"");
    fails_with(lk_cutmix_callback(.keys = {"features"}), "none of its fields is a picture");
}

/* ---- Metrics ---- */

static lk_status hits(double *value, const lk_tensor *outputs, const lk_tensor *targets, void *context)
{
    int64_t count = outputs->shape.dim[0], right = 0;
    for (int64_t i = 0; i < count; i++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            if (lk_tensor_get(outputs, i * CLASSES + c) > lk_tensor_get(outputs, i * CLASSES + best))
                best = c;
        right += best == (int)lk_tensor_get(targets, i);
    }
    *value = (double)right / (double)count;
    return context ? lk_fail(LK_ERR_INVALID, "no") : LK_OK;
}

static void functional_metric_is_a_mean_over_samples(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(train(runner,
                 lk_functional_metric_callback(.metric_fn = hits, .metric_key = "hits", .prefix = "my_"),
                 NULL, 2));
    const lk_metrics *metrics = lk_runner_loader_metrics(runner, "valid");
    double expected = lk_metrics_get(metrics, "accuracy01");
    assert_true(fabs(lk_metrics_get(metrics, "my_hits") - expected) < 1e-12);
    assert_true(fabs(lk_metrics_get(metrics, "my_hits/std") - lk_metrics_get(metrics, "accuracy01/std")) <
                1e-9);
    lk_runner_free(runner);
    assert_null(lk_functional_metric_callback(.metric_key = "hits"));
    lkt_contains(lk_error(), "metric_fn and metric_key are required");
    fails_with(lk_functional_metric_callback(.metric_fn = hits, .metric_key = "hits", .input_key = "nothing"),
               "neither a field nor an output named \"nothing\"");
    fails_with(
        lk_functional_metric_callback(.metric_fn = hits, .metric_key = "hits", .context = (void *)&folder),
        "no");
}

static void metric_callbacks_report_any_metric(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        lk_runner *runner = lk_supervised_runner();
        lk_metric *metric = lk_accuracy_metric(.topk = {2}, .prefix = "own_");
        lkt_ok(train(runner,
                     i ? lk_loader_metric_callback(metric, "logits", "targets")
                       : lk_batch_metric_callback(metric),
                     NULL, 1));
        assert_true(lk_metrics_has(lk_runner_loader_metrics(runner, "valid"), "own_accuracy02"));
        lk_runner_free(runner);
    }
}

/* ---- RunningMean ---- */

enum { MOST_BATCHES = 64 };

typedef struct seen {
    double losses[MOST_BATCHES], running[MOST_BATCHES];
    int count;
} seen;

static lk_status note(lk_callback *callback, lk_runner *runner)
{
    seen *own = callback->context;
    if (!runner->is_train_loader) return LK_OK;
    own->losses[own->count] = lk_metrics_get(runner->batch_metrics, "loss");
    own->running[own->count++] = lk_metrics_get(runner->batch_metrics, "running_loss");
    return LK_OK;
}

/* Of 8 batches: windows of 3, renewed by every second batch, and by the first. */
static void running_mean_is_that_of_the_last_batches(void **state)
{
    (void)state;
    seen own = {.count = 0};
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.5),
                    .loaders = lk_loaders({"train", lk_loader(data(false), .batch_size = 2)}),
                    .callbacks = lk_callbacks(lk_running_mean_callback(.batch_size = 3, .step_size = 2),
                                              lk_on(batch_end, note, &own))));
    assert_int_equal(own.count, 8);
    for (int i = 0; i < 8; i++) {
        int last = i == 0 ? 0 : (i + 1) / 2 * 2 - 1, first = last < 2 ? 0 : last - 2;
        double sum = 0;
        for (int k = first; k <= last; k++) sum += own.losses[k];
        assert_true(own.running[i] == sum / (last - first + 1));
    }
    assert_true(lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "running_loss") == own.running[7]);
    lk_runner_free(runner);
    assert_null(lk_running_mean_callback(.batch_size = -1));
    lkt_contains(lk_error(), "expected at least 1");
    fails_with(lk_running_mean_callback(.metric_key = "nothing"), "has no metric \"nothing\"");
}

/* ---- Files ---- */

static char *path_in(const char *name)
{
    static char path[4][1300];
    static int next;
    char *own = path[next++ % 4];
    snprintf(own, sizeof path[0], "%s/%s", folder, name);
    return own;
}

static void quantized_weights_are_in_a_file(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(train(runner, lk_quantization_callback(.logdir = path_in("small"), .filename = "w.safetensors"),
                 NULL, 1));
    lk_state_dict *weights = lk_module_state_dict(runner->model);
    lk_state_dict *read = lk_load_checkpoint(path_in("small/w.safetensors"));
    lkt_not_null(read);
    assert_int_equal(lk_state_dict_count(read), lk_state_dict_count(weights));
    const lk_tensor *was = lk_state_dict_get(weights, "0.weight"), *is = lk_state_dict_get(read, "0.weight");
    lkt_near(is, was, lkt_largest(was), 1.0 / 254 + 1e-6, "int8");
    lkt_same_bits(lk_state_dict_get(read, "0.bias"), lk_state_dict_get(weights, "0.bias"), "bias");
    lk_state_dict_free(read);
    lk_state_dict_free(weights);
    lk_runner_free(runner);
    assert_null(lk_quantization_callback(.dtype = "qint4"));
    lkt_contains(lk_error(), "dtype is qint8 or bfloat16, not \"qint4\"");
    fails_with(lk_quantization_callback(), "QuantizationCallback: logdir");
}

static char *contents(const char *path, size_t *nbytes)
{
    FILE *file = fopen(path, "rb");
    if (!file) fail_msg("%s is not there", path);
    char *text = calloc(1, 1 << 20);
    *nbytes = fread(text, 1, (1 << 20) - 1, file);
    fclose(file);
    return text;
}

static void onnx_file_is_that_of_the_last_weights(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_status status = train(runner, lk_onnx_callback(.filename = "net.onnx"), path_in("onnx"), 2);
    if (status == LK_ERR_UNSUPPORTED) {
        lk_runner_free(runner);
        skip();
    }
    lkt_ok(status);
    lk_tensor *x = lk_rand(LK_SHAPE(6, WIDTH));
    lkt_ok(lk_export_onnx(runner->model, path_in("expected.onnx"), x));
    size_t counts[2];
    char *texts[] = {contents(path_in("onnx/net.onnx"), &counts[0]),
                     contents(path_in("expected.onnx"), &counts[1])};
    assert_int_equal(counts[0], counts[1]);
    assert_memory_equal(texts[0], texts[1], counts[0]);
    free(texts[0]);
    free(texts[1]);
    lk_tensor_free(x);
    lk_runner_free(runner);
    fails_with(lk_onnx_callback(.logdir = path_in("onnx2"), .input_key = "nothing"),
               "OnnxCallback: the batch has no field");
}

static void profiler_traces_what_it_is_told(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(train(runner,
                 lk_profiler_callback(.loader_key = "train", .epoch = 2, .num_batches = 2,
                                      .export_chrome_trace_path = path_in("own.json")),
                 path_in("profile"), 3));
    size_t nbytes;
    char *text = contents(path_in("profile/profile.txt"), &nbytes);
    lkt_contains(text, "profile of epoch 2: 2 of 3 train batches");
    lkt_contains(text, "own.json");
    free(text);
    free(contents(path_in("own.json"), &nbytes));
    assert_int_not_equal(access(path_in("profile/trace.json"), F_OK), 0);
    lk_runner_free(runner);
    fails_with(lk_profiler_callback(), "ProfilerCallback: profile.txt is written to the logdir");
    assert_null(lk_profiler_callback(.epoch = -1));
    runner = lk_supervised_runner();
    assert_int_not_equal(train(runner, lk_profiler_callback(.epoch = 9), path_in("late"), 2), LK_OK);
    lkt_contains(lk_error(), "epoch: the run has 2 epochs, and no epoch 9");
    lk_runner_free(runner);
    runner = lk_supervised_runner();
    assert_int_not_equal(train(runner, lk_profiler_callback(.loader_key = "test"), path_in("other"), 2),
                         LK_OK);
    lkt_contains(lk_error(), "the run has no loader \"test\"");
    lk_runner_free(runner);
}

/* ---- Pruning ---- */

static void check_pruning(const lkt_golden *golden, const char *name, const char *pruning_fn, double amount,
                          double dim, double norm)
{
    static const char *const times[] = {"once", "twice"};
    lki_prune how;
    lkt_ok(lki_prune_read(&how, pruning_fn, dim, norm));
    lk_tensor *weight = lk_tensor_clone(lkt_golden_get(golden, "%s/weight", name));
    lk_tensor *mask = lk_tensor_create(LK_U8, weight->shape);
    memset(mask->data, 1, lk_tensor_nbytes(mask));
    lkt_ok(lki_prune_check(&how, weight->shape, amount));
    for (int t = 0; t < 2; t++) {
        lki_keyed random = lki_keyed_make(1, 2, 3, 4);
        lkt_ok(lki_prune_mask(&how, amount, weight, mask, &random));
        const lk_tensor *left = lkt_golden_get(golden, "%s/%s", name, times[t]);
        for (int64_t i = 0; i < lk_tensor_count(weight); i++) {
            bool kept = ((const uint8_t *)mask->data)[i];
            if (kept != (lk_tensor_get(left, i) != 0)) fail_msg("%s, %s: element %d", name, times[t], (int)i);
        }
    }
    lk_tensor_free(mask);
    lk_tensor_free(weight);
}

static void pruned_weights_are_pytorchs(void **state)
{
    (void)state;
    lkt_golden *golden = lkt_golden_open("train/pruning.lkg");
    check_pruning(golden, "l1", "l1_unstructured", 0.3, 0, 0);
    check_pruning(golden, "l1_half", "l1_unstructured", 0.5, 0, 0);
    check_pruning(golden, "l1_count", "l1_unstructured", 11, 0, 0);
    check_pruning(golden, "ln_rows", "ln_structured", 0.4, LK_ZERO, 2);
    check_pruning(golden, "ln_columns", "ln_structured", 2, 1, 1);
    check_pruning(golden, "ln_last", "ln_structured", 0.4, -1, 3);
    check_pruning(golden, "ln_infinite", "ln_structured", 0.4, LK_ZERO, INFINITY);
    lkt_golden_free(golden);
}

static int zeros_of(lk_runner *runner, const char *name)
{
    const lk_tensor *weight = lk_module_param(runner->model, name)->value;
    int count = 0;
    for (int64_t i = 0; i < lk_tensor_count(weight); i++) count += lk_tensor_get(weight, i) == 0;
    return count;
}

static lk_callback *half(bool of_epochs)
{
    static const char *const layers[] = {"0", NULL};
    return lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 0.5, .layers_to_prune = layers,
                               .prune_on_epoch_end = of_epochs, .no_prune_on_end = of_epochs);
}

/* Zeros stay while the other weights train on; a run that is resumed has the masks of the one before. */
static void pruned_weights_stay_pruned(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(train(runner, half(false), path_in("end"), 2));
    assert_int_equal(zeros_of(runner, "0.weight"), 10);
    assert_int_equal(zeros_of(runner, "2.weight"), 0);
    lk_state_dict *file = lk_load_safetensors(path_in("end/pruned.safetensors"));
    lkt_not_null(file);
    lkt_same_bits(lk_state_dict_get(file, "0.weight"), lk_module_param(runner->model, "0.weight")->value,
                  "file");
    lk_state_dict_free(file);
    lk_runner_free(runner);
    runner = lk_supervised_runner();
    lkt_ok(train(runner, half(true), path_in("epochs"), 3));
    assert_int_equal(zeros_of(runner, "0.weight"), 15); /* half, and half of what was left */
    lk_runner_free(runner);
    for (int epochs = 2; epochs <= 3; epochs++) {
        runner = lk_supervised_runner();
        lkt_ok(lk_train(runner, .model = model(), .criterion = lk_cross_entropy_loss(),
                        .optimizer = lk_sgd(.lr = 0.5),
                        .loaders = lk_loaders({"train", lk_loader(data(false), .batch_size = 6)},
                                              {"valid", lk_loader(data(false), .batch_size = 5)}),
                        .callbacks = lk_callbacks(half(true)), .num_epochs = epochs,
                        .logdir = path_in("resumed"), .autoresume = "last"));
        if (epochs == 2) lk_runner_free(runner);
    }
    assert_int_equal(zeros_of(runner, "0.weight"),
                     10); /* pruned after epoch 1, not after 2, which was the last */
    lk_runner_free(runner);
}

static void pruning_refuses(void **state)
{
    (void)state;
    static const char *const layers[] = {"7", NULL}, *const keys[] = {"gamma", NULL};
    assert_null(lk_pruning_callback(.pruning_fn = "global", .amount = 0.5));
    lkt_contains(lk_error(), "pruning_fn is l1_unstructured, random_unstructured");
    assert_null(lk_pruning_callback(.pruning_fn = "ln_structured", .amount = 0.5, .l_norm = 2));
    lkt_contains(lk_error(), "dim: ln_structured needs it");
    assert_null(lk_pruning_callback(.pruning_fn = "ln_structured", .amount = 0.5, .dim = 1));
    lkt_contains(lk_error(), "l_norm: ln_structured needs it");
    assert_null(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 0.5, .dim = 1));
    lkt_contains(lk_error(), "dim: l1_unstructured does not take it");
    assert_null(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 1.5));
    lkt_contains(lk_error(), "amount: expected a share below 1 or a number of weights, found 1.5");
    assert_null(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 0.5, .no_prune_on_end = true));
    lkt_contains(lk_error(), "neither prune_on_epoch_end nor prune_on_end");
    fails_with(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 0.5, .layers_to_prune = layers),
               "no layer \"7\" with \"weight\"");
    fails_with(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 0.5, .keys_to_prune = keys),
               "the model has no parameter \"gamma\"");
    fails_with(lk_pruning_callback(.pruning_fn = "l1_unstructured", .amount = 21),
               "0.weight: amount: it has 20 to prune");
    fails_with(lk_pruning_callback(.pruning_fn = "random_structured", .amount = 1, .dim = 2),
               "0.weight: dim: 2 is no axis of a tensor with 2 dimensions");
}

int main(void)
{
    folder = lkt_scratch_folder("catalyst_callbacks");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soft_update_moves_the_target),
        cmocka_unit_test(soft_update_refuses),
        cmocka_unit_test(mixup_is_that_of_the_loader),
        cmocka_unit_test(mix_refuses),
        cmocka_unit_test(functional_metric_is_a_mean_over_samples),
        cmocka_unit_test(metric_callbacks_report_any_metric),
        cmocka_unit_test(running_mean_is_that_of_the_last_batches),
        cmocka_unit_test(quantized_weights_are_in_a_file),
        cmocka_unit_test(onnx_file_is_that_of_the_last_weights),
        cmocka_unit_test(profiler_traces_what_it_is_told),
        cmocka_unit_test(pruned_weights_are_pytorchs),
        cmocka_unit_test(pruned_weights_stay_pruned),
        cmocka_unit_test(pruning_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
