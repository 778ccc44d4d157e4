/* examples/catalyst: the runners that Catalyst's own test configs name, run from configs of the same
 * structure and keys. The losses of the first batches are PyTorch's: tests/oracle/catalyst_first.py. */
#include "command.h"

enum { COUNT = 16, PIXELS = 28 * 28 };

static char folder[1024];

static const char *path_of(const char *name)
{
    static char path[1300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_npy(const char *name, const char *descr, const char *shape, const void *data, size_t nbytes)
{
    char header[118];
    memset(header, ' ', sizeof header);
    int used = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (%s), }",
                        descr, shape);
    header[used] = ' ';
    header[sizeof header - 1] = '\n';
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fwrite("\x93NUMPY\x01\x00\x76\x00", 1, 10, file);
    fwrite(header, 1, sizeof header, file);
    fwrite(data, 1, nbytes, file);
    fclose(file);
}

static void write_idx(const char *name, const unsigned char *header, size_t header_nbytes,
                      const unsigned char *data, size_t nbytes)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    fwrite(header, 1, header_nbytes, file);
    fwrite(data, 1, nbytes, file);
    fclose(file);
}

/* The arrays of the oracle, and the same number of pictures as MNIST's test files. */
static void enter(void **state)
{
    static float x[COUNT * PIXELS];
    static unsigned char pixels[COUNT * PIXELS], labels[COUNT];
    static const unsigned char of_images[] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, 28, 0, 0, 0, 28};
    static const unsigned char of_labels[] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    int64_t y[COUNT], y4[COUNT];
    (void)state;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_catalyst"));
    lkt_shell_in(folder, "mkdir tests my && cp %s/examples/catalyst/* my/", LK_SOURCE_DIR);
    for (int i = 0; i < COUNT * PIXELS; i++) x[i] = (float)(i % 17) / 17;
    for (int i = 0; i < COUNT * PIXELS; i++) pixels[i] = (unsigned char)(i % 256);
    for (int i = 0; i < COUNT; i++) y[i] = i % 10, y4[i] = i % 10 % 4, labels[i] = (unsigned char)(i % 10);
    write_npy("tests/X.npy", "<f4", "16, 1, 28, 28", x, sizeof x);
    write_npy("tests/rows.npy", "<f4", "16, 784", x, sizeof x);
    write_npy("tests/y.npy", "<i8", "16,", y, sizeof y);
    write_npy("tests/y1.npy", "<i8", "16,", y4, sizeof y4);
    static const char *const sets[] = {"train", "t10k"};
    for (int i = 0; i < 2; i++) {
        char name[64];
        snprintf(name, sizeof name, "tests/%s-images-idx3-ubyte", sets[i]);
        write_idx(name, of_images, sizeof of_images, pixels, sizeof pixels);
        snprintf(name, sizeof name, "tests/%s-labels-idx1-ubyte", sets[i]);
        write_idx(name, of_labels, sizeof of_labels, labels, sizeof labels);
    }
    unsetenv("CC");
    unsetenv("CFLAGS");
    unsetenv("LDFLAGS");
}

static void run_config(const char *text, const char *more)
{
    char arguments[512];
    FILE *file = fopen(path_of("config.yml"), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    lkt_shell_in(folder, "rm -rf logs");
    snprintf(arguments, sizeof arguments, "run -C config.yml --expdir my --device cpu %s", more);
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
}

/* A number of LOGS/csv_logger/LOADER.csv: row 0 has the names. */
static double csv_value(const char *loader, int row, const char *name)
{
    static char text[65536];
    char file[128];
    snprintf(file, sizeof file, "logs/csv_logger/%s.csv", loader);
    read_whole(path_of(file), text, sizeof text);
    int column = -1, index = 0;
    for (const char *at = text; *at && *at != '\n'; at += strcspn(at, ",\n"), at += *at == ',', index++)
        if (strcspn(at, ",\n") == strlen(name) && !strncmp(at, name, strlen(name))) column = index;
    if (column < 0) fail_msg("%s.csv has no column %s", loader, name);
    const char *at = text;
    for (int i = 0; i < row && (at = strchr(at, '\n')); i++) at++;
    for (int i = 0; at && i < column; i++) at = strchr(at, ',') + 1;
    if (!at || !*at) fail_msg("%s.csv has no row %d", loader, row);
    return strtod(at, NULL);
}

static void expect(const char *loader, int row, const char *name, double expected)
{
    double found = csv_value(loader, row, name);
    if (!(fabs(found - expected) <= 1e-5 * fabs(expected)))
        fail_msg("%s: %s in epoch %d is %.9g, expected %.9g", loader, name, row, found, expected);
}

#define LOADER                                                                                               \
    "    loaders:\n"                                                                                         \
    "      train: {_target_: torch.utils.data.DataLoader, dataset: {_target_: tests.misc.TensorDataset, "    \
    "args: [{_target_: torch.load, f: tests/X.npy, _mode_: call}, {_target_: torch.load, f: tests/y.npy, "   \
    "_mode_: call}]}, batch_size: 16}\n"
#define RUNNER(name) "runner:\n  _target_: tests.pipelines." name ".CustomRunner\n"
#define ONE_MODEL                                                                                            \
    "  model: {_var_: model, _target_: torch.nn.Sequential, args: [{_target_: torch.nn.Flatten}, "           \
    "{_target_: torch.nn.Linear, in_features: 784, out_features: 10}]}\n"
#define TWO_MODELS                                                                                           \
    "  model:\n"                                                                                             \
    "    encoder: {_var_: model_encoder, _target_: torch.nn.Sequential, args: [{_target_: "                  \
    "torch.nn.Flatten}, {_target_: torch.nn.Linear, in_features: 784, out_features: 128}]}\n"                \
    "    head: {_var_: model_head, _target_: torch.nn.Linear, in_features: 128, out_features: 10}\n"
#define ADAM                                                                                                 \
    "    optimizer: {_var_: optimizer, _target_: torch.optim.Adam, params: {_var_: model.parameters}, lr: "  \
    "0.02}\n"
#define REST                                                                                                 \
    "    num_epochs: 3\n    logdir: logs\n    verbose: n\n    valid_loader: train\n    valid_metric: loss\n" \
    "    minimize_valid_metric: y\n"

static void runners_with_batches_of_their_own(void **state)
{
    enter(state);
    run_config(RUNNER("test_mnist_custom") ONE_MODEL "run:\n  - _call_: train\n" ADAM LOADER REST, "");
    expect("train", 1, "loss", 2.388165);
    run_config(RUNNER("test_mnist_multicriterion") ONE_MODEL
               "run:\n  - _call_: train\n"
               "    criterion: {multiclass: {_target_: torch.nn.CrossEntropyLoss}, multilabel: {_target_: "
               "torch.nn.BCEWithLogitsLoss}}\n" ADAM LOADER REST,
               "");
    expect("train", 1, "loss", 3.0923059);
    run_config(
        RUNNER("test_mnist_multimodel") TWO_MODELS
        "run:\n  - _call_: train\n"
        "    criterion: {_target_: torch.nn.CrossEntropyLoss}\n"
        "    optimizer: {_target_: torch.optim.Adam, params: [{params: {_var_: model_encoder.parameters}}, "
        "{params: {_var_: model_head.parameters}}], lr: 0.02}\n" LOADER REST,
        "");
    expect("train", 1, "loss", 2.38637304);
    expect("train", 2, "loss", 4.50943851);
    expect("train", 3, "loss", 10.5758572);
    run_config(
        RUNNER("test_mnist_multioptimizer") TWO_MODELS
        "run:\n  - _call_: train\n"
        "    criterion: {_target_: torch.nn.CrossEntropyLoss}\n"
        "    optimizer:\n"
        "      encoder: {_target_: torch.optim.Adam, params: {_var_: model_encoder.parameters}, lr: 0.02}\n"
        "      head: {_target_: torch.optim.Adam, params: {_var_: model_head.parameters}, lr: 0.001}\n" LOADER
            REST,
        "");
    expect("train", 2, "loss", 4.62626505);
    expect("train", 3, "loss", 8.31309319);
    assert_int_equal(access(path_of("logs/checkpoints/model.best.safetensors"), R_OK), 0);
}

static void a_generator_against_a_discriminator(void **state)
{
    enter(state);
    run_config(RUNNER("test_gan") "  model:\n"
                                  "    generator: {_var_: model_generator, _target_: torch.nn.Sequential, "
                                  "args: [{_target_: "
                                  "torch.nn.Linear, in_features: 32, out_features: 784}, {_target_: "
                                  "catalyst.contrib.layers.Lambda, "
                                  "lambda_fn: {_target_: tests.pipelines.test_gan._ddp_hack}}, {_target_: "
                                  "torch.nn.Sigmoid}]}\n"
                                  "    discriminator: {_var_: model_discriminator, _target_: "
                                  "torch.nn.Sequential, args: [{_target_: "
                                  "torch.nn.Flatten}, {_target_: torch.nn.Linear, in_features: 784, "
                                  "out_features: 1}]}\n"
                                  "  latent_dim: 32\n"
                                  "run:\n  - _call_: train\n"
                                  "    criterion: {generator: {_target_: torch.nn.BCEWithLogitsLoss}, "
                                  "discriminator: {_target_: "
                                  "torch.nn.BCEWithLogitsLoss}}\n"
                                  "    optimizer:\n"
                                  "      generator: {_target_: torch.optim.Adam, params: {_var_: "
                                  "model_generator.parameters}, lr: 0.0003, "
                                  "betas: [0.5, 0.999]}\n"
                                  "      discriminator: {_target_: torch.optim.Adam, params: {_var_: "
                                  "model_discriminator.parameters}, lr: "
                                  "0.0003, betas: [0.5, 0.999]}\n" LOADER "    callbacks:\n"
                                  "      - {_target_: catalyst.callbacks.CriterionCallback, input_key: "
                                  "combined_predictions, target_key: "
                                  "labels, metric_key: loss_discriminator, criterion_key: discriminator}\n"
                                  "      - {_target_: catalyst.callbacks.BackwardCallback, metric_key: "
                                  "loss_discriminator}\n"
                                  "      - {_target_: catalyst.callbacks.OptimizerCallback, optimizer_key: "
                                  "discriminator, metric_key: "
                                  "loss_discriminator}\n"
                                  "      - {_target_: catalyst.callbacks.CriterionCallback, input_key: "
                                  "generated_predictions, target_key: "
                                  "misleading_labels, metric_key: loss_generator, criterion_key: generator}\n"
                                  "      - {_target_: catalyst.callbacks.BackwardCallback, metric_key: "
                                  "loss_generator}\n"
                                  "      - {_target_: catalyst.callbacks.OptimizerCallback, optimizer_key: "
                                  "generator, metric_key: "
                                  "loss_generator}\n"
                                  "    valid_loader: train\n    valid_metric: loss_generator\n    "
                                  "minimize_valid_metric: y\n"
                                  "    num_epochs: 3\n    verbose: n\n    logdir: logs\n",
               "");
    static const double losses[] = {0.69985497,  0.65307647,  0.709895372,
                                    0.579683363, 0.713197887, 0.544405222};
    for (int i = 0; i < 3; i++) {
        expect("train", i + 1, "loss_discriminator", losses[2 * i]);
        expect("train", i + 1, "loss_generator", losses[2 * i + 1]);
    }
}

static void a_runner_that_brings_everything(void **state)
{
    enter(state);
    run_config(RUNNER("test_vae") "  hid_features: 64\n  logdir: logs\nrun:\n  - _call_: run\n", "");
    expect("train", 1, "loss_ae", 228034);
    expect("train", 1, "loss_kld", 2678297);
    expect("train", 1, "loss", 254816.969);
    assert_int_equal(access(path_of("logs/checkpoints/model.best.safetensors"), R_OK), 0);
}

#define HEADS                                                                                                \
    "shared:\n"                                                                                              \
    "  loader:\n"                                                                                            \
    "    _var_: loader\n"                                                                                    \
    "    _target_: torch.utils.data.DataLoader\n"                                                            \
    "    dataset: {_target_: tests.misc.TensorDataset, args: [{_target_: torch.load, f: tests/rows.npy, "    \
    "_mode_: call}, {_target_: torch.load, f: tests/y1.npy}, {_target_: torch.load, f: tests/y.npy}]}\n"     \
    "    batch_size: 16\n    num_workers: 1\n" RUNNER(                                                       \
        "test_multihead_classification") "  model: {_var_: model, _target_: "                                \
                                         "tests.pipelines.test_multihead_classification.CustomModule, "      \
                                         "in_features: 784, out_features1: 4, out_features2: 10}\n"          \
                                         "run:\n  - _call_: train\n"                                         \
                                         "    criterion: {_target_: torch.nn.CrossEntropyLoss}\n" ADAM       \
                                         "    scheduler: {_target_: torch.optim.lr_scheduler.MultiStepLR, "  \
                                         "optimizer: {_var_: optimizer}, "                                   \
                                         "milestones: [2]}\n"                                                \
                                         "    loaders: {train: {_var_: loader}, valid: {_var_: loader}}\n"   \
                                         "    callbacks:\n"                                                  \
                                         "      - {_target_: catalyst.callbacks.CriterionCallback, "         \
                                         "metric_key: loss1, input_key: logits1, "                           \
                                         "target_key: targets1}\n"                                           \
                                         "      - {_target_: catalyst.callbacks.CriterionCallback, "         \
                                         "metric_key: loss2, input_key: logits2, "                           \
                                         "target_key: targets2}\n"                                           \
                                         "      - {_target_: catalyst.callbacks.MetricAggregationCallback, " \
                                         "metric_key: loss, metrics: "                                       \
                                         "[loss1, loss2], mode: mean}\n"                                     \
                                         "      - {_target_: catalyst.callbacks.BackwardCallback, "          \
                                         "metric_key: loss}\n"                                               \
                                         "      - {_target_: catalyst.callbacks.OptimizerCallback, "         \
                                         "metric_key: loss}\n"                                               \
                                         "      - {_target_: catalyst.callbacks.SchedulerCallback}\n"        \
                                         "      - {_target_: catalyst.callbacks.AccuracyCallback, "          \
                                         "input_key: logits1, target_key: targets1, "                        \
                                         "num_classes: 4, prefix: one_}\n"                                   \
                                         "      - {_target_: catalyst.callbacks.CheckpointCallback, "        \
                                         "logdir: logs/one, loader_key: valid, "                             \
                                         "metric_key: one_accuracy01, minimize: n, topk: 1}\n"               \
                                         "      - {_target_: catalyst.callbacks.CheckpointCallback, "        \
                                         "logdir: logs/two, loader_key: valid, "                             \
                                         "metric_key: loss2, minimize: y, topk: 3}\n"                        \
                                         "    loggers: {csv: {_target_: catalyst.loggers.CSVLogger, "        \
                                         "logdir: logs}}\n"                                                  \
                                         "    num_epochs: 2\n    verbose: n\n"

static void a_model_with_two_heads(void **state)
{
    enter(state);
    run_config(HEADS, "");
    expect("train", 1, "loss1", 1.38525271);
    expect("train", 1, "loss2", 2.2995429);
    expect("train", 1, "loss", 1.84239781);
    assert_int_equal(access(path_of("logs/one/checkpoints/model.best.safetensors"), R_OK), 0);
    assert_int_equal(access(path_of("logs/two/checkpoints/model.0002.safetensors"), R_OK), 0);
    run_config(HEADS, "--ddp --nproc 2");
    expect("train", 1, "loss", 1.84239781);
}

static void embeddings_are_found_again(void **state)
{
    enter(state);
    run_config(
        "shared:\n  train_dataset: {_var_: train_dataset, _target_: "
        "catalyst.contrib.datasets.MnistMLDataset, root: "
        "tests}\n" RUNNER(
            "test_metric_learning") "  model: {_var_: model, _target_: "
                                    "catalyst.contrib.models.MnistSimpleNet, out_features: 4}\n"
                                    "  input_key: features\n  output_key: embeddings\n"
                                    "run:\n  - _call_: train\n"
                                    "    criterion: {_target_: "
                                    "catalyst.contrib.losses.TripletMarginLossWithSampler, margin: 0.5, "
                                    "sampler_inbatch: {_target_: catalyst.contrib.data.HardTripletsSampler, "
                                    "norm_required: n}}\n"
                                    "    optimizer: {_var_: optimizer, _target_: torch.optim.Adam, params: "
                                    "{_var_: model.parameters}, lr: 0.001}\n"
                                    "    loaders:\n"
                                    "      train: {_target_: torch.utils.data.DataLoader, dataset: {_var_: "
                                    "train_dataset}, batch_sampler: "
                                    "{_target_: catalyst.data.sampler.BatchBalanceClassSampler, labels: "
                                    "{_var_: train_dataset.get_labels}, "
                                    "num_classes: 2, num_samples: 2, num_batches: 2}}\n"
                                    "      valid: {_target_: torch.utils.data.DataLoader, dataset: "
                                    "{_target_: "
                                    "catalyst.contrib.datasets.MnistQGDataset, root: tests, gallery_fraq: "
                                    "0.2}, batch_size: 1024}\n"
                                    "    callbacks:\n"
                                    "      - {_target_: catalyst.callbacks.ControlFlowCallbackWrapper, "
                                    "base_callback: {_target_: "
                                    "catalyst.callbacks.CriterionCallback, input_key: embeddings, "
                                    "target_key: targets, metric_key: loss}, "
                                    "loaders: train}\n"
                                    "      - {_target_: catalyst.callbacks.ControlFlowCallbackWrapper, "
                                    "base_callback: {_target_: "
                                    "catalyst.callbacks.CMCScoreCallback, embeddings_key: embeddings, "
                                    "labels_key: targets, is_query_key: "
                                    "is_query, topk: [1]}, loaders: valid}\n"
                                    "      - {_target_: catalyst.callbacks.PeriodicLoaderCallback, "
                                    "valid_loader_key: valid, valid_metric_key: "
                                    "cmc01, minimize: n, valid: 2}\n"
                                    "    verbose: n\n    logdir: logs\n    valid_loader: valid\n    "
                                    "valid_metric: cmc01\n"
                                    "    minimize_valid_metric: n\n    num_epochs: 2\n",
        "");
    double cmc = csv_value("valid", 1, "cmc01");
    assert_true(cmc >= 0 && cmc <= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runners_with_batches_of_their_own),
        cmocka_unit_test(a_generator_against_a_discriminator),
        cmocka_unit_test(a_runner_that_brings_everything),
        cmocka_unit_test(a_model_with_two_heads),
        cmocka_unit_test(embeddings_are_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
