/* lockstep run, evaluate and predict as a user runs them: real processes, real files, and the values that the
 * systems whose configs these are gave for them. */
#include "run_folder.h"

#include "comm/net.h"
#include "tensor/npy.h"

#include <lockstep/nn.h>
#include <lockstep/random.h>

#include <stdarg.h>
#include <sys/stat.h>

static void test_regression_has_the_known_losses(void **state)
{
    (void)state;
    static const double train[] = {.138276529, .107809362, .096867637, .093146172,
                                   .092610810, .092084632, .091792084, .091738388};
    static const double valid[] = {.115602419, .101124018, .093404777, .092866808,
                                   .092334306, .091816394, .091763216, .091709095};
    enter("cli_regression");
    check_done("run -C " EXAMPLES "/regression.yml");
    for (int epoch = 0; epoch < 8; epoch++) {
        lkt_close(logged("logs/csv_logger/train.csv", "loss", epoch + 1) / train[epoch], 1, 1e-5);
        lkt_close(logged("logs/csv_logger/valid.csv", "loss", epoch + 1) / valid[epoch], 1, 1e-5);
    }
    lkt_close(logged("logs/csv_logger/train.csv", "lr", 8), 1e-5, 1e-12);
}

static const char *mnist_folder(void)
{
    static char path[1100];
    const char *shared = getenv("LOCKSTEP_SHARED");
    snprintf(path, sizeof path, "%s/data/mnist", shared ? shared : LK_SOURCE_DIR "/../shared");
    if (access(path, R_OK) && !shared)
        snprintf(path, sizeof path, "%s/data/mnist", LK_SOURCE_DIR "/../../shared");
    return access(path, R_OK) ? NULL : path;
}

static void test_mnist_has_the_known_values(void **state)
{
    (void)state;
    char arguments[4096];
    const char *data = mnist_folder();
    if (!data) {
        print_message("MNIST is not there\n");
        skip();
    }
    enter("cli_mnist");
    snprintf(arguments, sizeof arguments,
             "run -C " EXAMPLES
             "/mnist.yml --run/0/loaders/train/dataset/root=%s --run/0/loaders/valid/dataset/root=%s",
             data, data);
    check_done(arguments);
    lkt_close(logged("logs/csv_logger/train.csv", "loss", 1) / 0.5142139671, 1, 1e-3);
    lkt_close(logged("logs/csv_logger/valid.csv", "loss", 1) / 0.8360391955, 1, 1e-3);
    lkt_close(logged("logs/csv_logger/valid.csv", "accuracy01", 1), .8506, 5e-4);
    lkt_close(logged("logs/csv_logger/valid.csv", "accuracy01/std", 1), .0845893, 5e-4);
    lkt_close(logged("logs/csv_logger/valid.csv", "auc/_macro", 1), .96895, 5e-4);
    lkt_close(logged("logs/csv_logger/valid.csv", "precision/_weighted", 1), .86993, 5e-4);
    /* Catalyst's own class feeds pixels that are not divided by 255: losses in the hundreds. */
    strcat(arguments,
           " --run/0/loaders/train/dataset/_target_=catalyst.contrib.datasets.MNIST"
           " --run/0/loaders/valid/dataset/_target_=catalyst.contrib.datasets.MNIST --logdir catalyst");
    check_done(arguments);
    assert_true(logged("catalyst/csv_logger/train.csv", "loss", 1) > 50);
}

/* 200 points of four classes that can be told apart, as NumPy files. */
static void write_points(void)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(200, 10)), *y = lk_tensor_create(LK_I64, LK_SHAPE(200));
    lk_manual_seed(0);
    lkt_ok(lk_uniform(x, 0, 1, lk_default_generator()));
    for (int i = 0; i < 200; i++) {
        lk_tensor_set(y, i, i % 4);
        lk_tensor_set(x, i * 10 + i % 4, 3);
    }
    lkt_ok(lki_npy_write(path_of("X.npy"), x));
    lkt_ok(lki_npy_write(path_of("y.npy"), y));
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static void test_classification_writes_its_files(void **state)
{
    (void)state;
    static const char *const names[] = {"logs/config.yml",
                                        "logs/hparams.json",
                                        "logs/csv_logger/train.csv",
                                        "logs/csv_logger/_epoch_.csv",
                                        "logs/tensorboard/valid",
                                        "logs/checkpoints/model.best.safetensors",
                                        LAST("logs"),
                                        "logs/checkpoints/model.storage.json",
                                        "logs/checkpoints/runner.last.safetensors"};
    char text[8192];
    enter("cli_classification");
    write_points();
    check_done("run -C " EXAMPLES "/classification.yml " EXAMPLES "/engine_cpu.yml");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!exists(names[i])) fail_msg("there is no %s", names[i]);
    read_whole(path_of("logs/hparams.json"), text, sizeof text);
    lkt_contains(text, "model/width");
    read_whole(path_of("logs/config.yml"), text, sizeof text);
    lkt_contains(text, "_target_: catalyst.engines.CPUEngine");
    assert_null(strchr(text, '&'));
}

static void test_multilabel(void **state)
{
    (void)state;
    enter("cli_multilabel");
    write_points();
    lk_tensor *labels = lk_tensor_create(LK_F32, LK_SHAPE(200, 4));
    for (int i = 0; i < 200; i++) lk_tensor_set(labels, i * 4 + i % 4, 1);
    lkt_ok(lki_npy_write(path_of("labels.npy"), labels));
    lk_tensor_free(labels);
    check_done("run -C " EXAMPLES
               "/multilabel.yml -e 40 --run/0/optimizer/lr=0.05 --run/0/scheduler/milestones=[30]");
    /* Scores, not logits, meet the threshold of a half. */
    assert_true(logged("logs/csv_logger/valid.csv", "accuracy", 40) > 0.95);
    assert_true(logged("logs/csv_logger/valid.csv", "f1/_macro", 40) > 0.9);
}

/* The files that torch.save writes, named as in a Catalyst config; the run is the same as with NumPy's. */
static void test_tensors_of_pytorch(void **state)
{
    (void)state;
    char command[2048];
    if (system("/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null")) {
        print_message("PyTorch is not installed\n");
        skip();
    }
    enter("cli_torch");
    write_points();
    snprintf(command, sizeof command,
             "cd '%s' && /usr/bin/python3 -c \"import numpy, torch; "
             "[torch.save(torch.from_numpy(numpy.load(n + '.npy')), n + '.pt') "
             "for n in 'Xy']\"",
             folder);
    assert_int_equal(system(command), 0);
    check_done("run -C " EXAMPLES "/classification.yml --logdir one");
    check_done("run -C " EXAMPLES "/classification.yml --logdir two --shared/loader/dataset/args/0/f=X.pt "
               "--shared/loader/dataset/args/1=y.pt");
    assert_string_equal(hash_of(LAST("one")), hash_of(LAST("two")));
}

static void test_callbacks(void **state)
{
    (void)state;
    static const char *const others[] = {
        "{_target_: LRFinder, final_lr: 1.0}",
        "{_target_: SWA, swa_start: 1}",
        "SkipCheckpoint",
        "{_target_: CheckRun, num_batch_steps: 2, num_epoch_steps: 2}",
        "Tqdm",
        "{_target_: L1WeightDecay, rate: 0.001}",
        "{_target_: L2WeightDecay, rate: 0.001}",
        "GradientNorm",
        "{_target_: BatchTransform, transform: {_target_: torch.softmax, dim: 1}, output_key: p}"};
    char arguments[512];
    enter("cli_callbacks");
    check_done("run -C " EXAMPLES "/callbacks.yml");
    assert_true(exists("logs/confusion_matrix/valid_0002.csv"));
    assert_false(exists("logs/confusion_matrix/valid_0001.csv"));
    assert_true(exists("log.jsonl"));
    lkt_close(logged("logs/csv_logger/train.csv", "twice", 2),
              2 * logged("logs/csv_logger/train.csv", "loss", 2), 1e-5);
    assert_true(logged("logs/csv_logger/train.csv", "my_accuracy01", 4) > 0.4);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(arguments, sizeof arguments,
                 "run -C " EXAMPLES "/digits.json '--run/0/callbacks=[%s]' --logdir other%d", others[i],
                 (int)i);
        check_done(arguments);
    }
    assert_true(exists("other0/lr_finder.csv"));
    assert_false(exists("other2/checkpoints/model.last.safetensors"));
    assert_true(logged("other7/csv_logger/train.csv", "grad_norm", 1) > 0);
}

/* A CPU has no TF32, and tries nothing: the run is one of fp32, to the bit, and the header says so. */
static void test_tf32_is_a_wish(void **state)
{
    (void)state;
    enter("cli_tf32");
    static const char *const ways[] = {"--logdir a", "--tf32 --logdir b", "--run/0/allow_tf32=y --logdir c",
                                       "--benchmark --logdir d",
                                       "--run/0/benchmark=y --deterministic --logdir e"};
    for (int i = 0; i < 5; i++) {
        char arguments[160];
        snprintf(arguments, sizeof arguments, "run -C " EXAMPLES "/digits.json -v --device cpu %s", ways[i]);
        const said *r = lockstep_in(folder, arguments);
        assert_int_equal(r->exit_code, 0);
        lkt_contains(r->out, "precision fp32;");
    }
    char first[80];
    snprintf(first, sizeof first, "%s", hash_of(LAST("a")));
    assert_string_equal(first, hash_of(LAST("b")));
    assert_string_equal(first, hash_of(LAST("c")));
    assert_string_equal(first, hash_of(LAST("d")));
    assert_string_equal(first, hash_of(LAST("e")));
}

/* What people type who come from catalyst-dl run. */
static void test_catalysts_flags(void **state)
{
    (void)state;
    enter("cli_catalyst_flags");
    static const char *const ways[] = {
        "--config " EXAMPLES
        "/digits.json --run/0/loaders/train/batch_size=8 --run/0/loaders/valid/batch_size=8 "
        "--logdir a",
        "--configs " EXAMPLES "/digits.json -b 8 --logdir b",
        "-C " EXAMPLES "/digits.json --batch-size 8 -j 2 --deterministic --logdir c"};
    for (int i = 0; i < 3; i++) {
        char arguments[400];
        snprintf(arguments, sizeof arguments, "run %s", ways[i]);
        check_done(arguments);
    }
    char first[80];
    snprintf(first, sizeof first, "%s", hash_of(LAST("a")));
    assert_string_equal(first, hash_of(LAST("b")));
    assert_string_equal(first, hash_of(LAST("c")));
    check_done("run -C " EXAMPLES "/digits.json --logdir other");
    assert_string_not_equal(first, hash_of(LAST("other")));
    const said *r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json --distributed --nproc 2 -v");
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "2 ranks");
    r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json -b 0");
    assert_int_equal(r->exit_code, 2);
    lkt_contains(r->err, "batch-size");
    r = lockstep_in(folder,
                    "run -C " EXAMPLES "/digits.json '--run/0/loaders/valid={_var_: elsewhere}' -j 2");
    assert_int_equal(r->exit_code, 2);
    lkt_contains(r->err,
                 "loader \"valid\" is not built in the call of train: set its num_workers where it is built");
}

/* The same run by all of its names; another one than bf16's. */
static void test_fp16_by_its_names(void **state)
{
    (void)state;
    enter("cli_fp16");
    static const char *const ways[] = {
        "--run/0/fp16=y --logdir a", "--precision fp16 --logdir b", "--amp --logdir c",
        "'--run/0/engine={_target_: DeviceEngine, device: cpu, fp16: y}' --logdir d",
        "--precision bf16 --logdir e"};
    char arguments[200], first[80];
    for (int i = 0; i < 5; i++) {
        snprintf(arguments, sizeof arguments, "run -C " EXAMPLES "/digits.json -v %s", ways[i]);
        const said *r = lockstep_in(folder, arguments);
        assert_int_equal(r->exit_code, 0);
        lkt_contains(r->out, i < 4 ? "precision fp16 with loss scaling;" : "precision bf16;");
    }
    snprintf(first, sizeof first, "%s", hash_of(LAST("a")));
    assert_string_equal(first, hash_of(LAST("b")));
    assert_string_equal(first, hash_of(LAST("c")));
    assert_string_equal(first, hash_of(LAST("d")));
    assert_string_not_equal(first, hash_of(LAST("e")));
    const said *r = lockstep_in(folder, "run -C " EXAMPLES "/digits.json --fp16 --run/0/backoff_factor=2");
    lkt_contains(r->err, "backoff_factor: expected a number between 0 and 1");
}

static void test_the_kept_config_runs_the_same(void **state)
{
    (void)state;
    enter("cli_again");
    write_points();
    check_done("run -C " EXAMPLES "/classification.yml --run/0/num_epochs=2 --seed 5");
    check_done("run -C logs/config.yml --logdir again");
    assert_string_equal(hash_of(LAST("logs")), hash_of(LAST("again")));
    check_done("run -C logs/config.yml --logdir other --seed=6");
    assert_string_not_equal(hash_of(LAST("logs")), hash_of(LAST("other")));
}

static void test_the_example(void **state)
{
    (void)state;
    enter("cli_example");
    check_done("run -C " LK_SOURCE_DIR "/examples/mnist.yml -e 2 --optimizer/lr=0.01");
    lkt_close(logged("logs/csv_logger/train.csv", "lr", 1), 0.01, 1e-12);
    double accuracy = logged("logs/csv_logger/valid.csv", "accuracy01", 2);
    assert_true(accuracy > 0.8 && accuracy < 0.99);
}

static void test_json_and_options(void **state)
{
    (void)state;
    enter("cli_json");
    check_done("run --config=" EXAMPLES "/digits.json --logdir one -e 1 --device=cpu");
    lkt_close(logged("one/csv_logger/train.csv", "step", 1), 1, 0);
    check_done("run -C" EXAMPLES "/digits.json --logdir two --num-epochs 1 --device ref");
    lkt_close(logged("one/csv_logger/valid.csv", "loss", 1), logged("two/csv_logger/valid.csv", "loss", 1),
              1e-4);
    check_done("run -C " EXAMPLES "/digits.json --logdir three --check");
    check_done("run -C " EXAMPLES "/digits.json --logdir four --overfit --timeit -v");
    assert_true(logged("four/csv_logger/train.csv", "_timer/batch_time", 1) >= 0);
}

/* The parameters of the trunk, which the first call does not train, are those that the seed gives. */
static void test_stages(void **state)
{
    (void)state;
    enter("cli_stages");
    check_done("run -C " EXAMPLES "/stages.yml");
    lk_manual_seed(7);
    lk_module *trunk = lk_linear(784, 32), *head = lk_linear(32, 10);
    lk_state_dict *dict = lk_load_safetensors(path_of(LAST("logs/head")));
    lkt_not_null(dict);
    const lk_tensor *kept = lk_state_dict_get(dict, "trunk.weight"),
                    *moved = lk_state_dict_get(dict, "head.weight");
    assert_true(lk_tensor_get(kept, 123) == lk_tensor_get(lk_module_param(trunk, "weight")->value, 123));
    assert_true(lk_tensor_get(moved, 12) != lk_tensor_get(lk_module_param(head, "weight")->value, 12));
    lk_state_dict_free(dict);
    dict = lk_load_safetensors(path_of(LAST("logs/all")));
    lkt_not_null(dict);
    kept = lk_state_dict_get(dict, "trunk.weight");
    assert_true(lk_tensor_get(kept, 400) != lk_tensor_get(lk_module_param(trunk, "weight")->value, 400));
    lk_state_dict_free(dict);
    lk_module_free(trunk);
    lk_module_free(head);
    lk_tensor *predictions = lki_npy_read(path_of("predictions.npy"));
    lkt_not_null(predictions);
    assert_true(lk_shape_equal(predictions->shape, LK_SHAPE(200, 10)));
    lk_tensor_free(predictions);
}

static void test_evaluate_and_predict(void **state)
{
    (void)state;
    enter("cli_evaluate");
    check_done("run -C " EXAMPLES "/digits.json");
    const said *r =
        lockstep_in(folder, "evaluate -C " EXAMPLES "/digits.json -c " LAST("logs") " --loader valid");
    assert_int_equal(r->exit_code, 0);
    const char *at = strstr(r->out, "\nloss: ");
    assert_non_null(at);
    lkt_close(strtod(at + 7, NULL), logged("logs/csv_logger/valid.csv", "loss", 2), 1e-6);
    lkt_contains(r->out, "accuracy01: ");
    check_done("predict -C " EXAMPLES
               "/digits.json -c " LAST("logs") " -o out.npy --loader valid --device ref");
    lk_tensor *predictions = lki_npy_read(path_of("out.npy"));
    lkt_not_null(predictions);
    assert_true(lk_shape_equal(predictions->shape, LK_SHAPE(200, 10)));
    lk_tensor_free(predictions);
    check_refused(folder, "evaluate -C " EXAMPLES "/digits.json", 2, "evaluate: needs --checkpoint FILE");
    check_refused(folder, "predict -C " EXAMPLES "/digits.json -c x", 2, "predict: needs --output FILE");
    check_refused(folder, "evaluate -C " EXAMPLES "/digits.json -c " LAST("logs") " -l vaild", 2,
                  "there is no loader \"vaild\"; did you mean \"valid\"?");
    check_refused(folder, "evaluate -C " EXAMPLES "/digits.json -c no.safetensors", 1, "no.safetensors");
}

static void test_ranks(void **state)
{
    (void)state;
    enter("cli_ranks");
    check_done("run -C " EXAMPLES "/digits.json --ddp --nproc 2");
    assert_true(exists(LAST("logs")));
    assert_true(logged("logs/csv_logger/valid.csv", "accuracy01", 2) > 0.3);
}

/* The calls after a run on ranks go through all of the data. */
static const char three_calls[] =
    "runner:\n  _target_: SupervisedRunner\n  model: {_target_: Sequential, args: [Flatten, {_target_: "
    "Linear, args: [784, 10]}]}\nrun:\n"
    "- _call_: train\n  criterion: CrossEntropyLoss\n  optimizer: {_target_: Adam, lr: 0.01}\n"
    "  loaders: {train: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, count: 64}, batch_size: "
    "16}}\n"
    "- _call_: evaluate_loader\n"
    "  loader: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, count: 51}, batch_size: 16}\n"
    "- _call_: predict_loader\n  output: 0.npy\n"
    "  loader: {_target_: DataLoader, dataset: {_target_: SyntheticDigits, count: 51}, batch_size: 16}\n";

static void check_predictions(const char *name, int64_t count)
{
    lk_tensor *predictions = lki_npy_read(path_of(name));
    lkt_not_null(predictions);
    assert_int_equal(predictions->shape.dim[0], count);
    lk_tensor_free(predictions);
    remove(path_of(name));
}

static int free_port(void)
{
    int fd, port = 0;
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    return port;
}

static const char *said_in(const char *name)
{
    static char text[16384];
    read_whole(path_of(name), text, sizeof text);
    return text;
}

static void test_calls_after_ranks(void **state)
{
    (void)state;
    char command[4096];
    enter("cli_after_ranks");
    write_text("calls.yml", three_calls);
    check_done("run -C calls.yml --nproc 2 --device cpu");
    check_predictions("0.npy", 51);
    /* Ranks that somebody else has started all make the calls; rank 0 alone prints and writes. */
    snprintf(
        command, sizeof command,
        "cd '%s'; for r in 0 1; do RANK=$r WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=%d "
        "'%s/lockstep' run -C calls.yml --device cpu --run/2/output=$r.npy >$r.out 2>&1 && touch $r.done "
        "& done; wait",
        folder, free_port(), LK_BUILD_DIR);
    assert_int_equal(system(command), 0);
    if (!exists("0.done") || !exists("1.done")) fail_msg("%s", said_in(exists("0.done") ? "1.out" : "0.out"));
    lkt_contains(said_in("0.out"), "loss: ");
    assert_null(strstr(said_in("1.out"), "loss: "));
    check_predictions("0.npy", 51);
    assert_false(exists("1.npy"));
}

static const char good[] =
    "runner:\n  _target_: SupervisedRunner\n  model: {_var_: model, _target_: Sequential, args: [Flatten, "
    "{_target_: "
    "Linear, args: [784, 10]}]}\nrun:\n- _call_: train\n  criterion: CrossEntropyLoss\n  optimizer: "
    "{_target_: Adam, lr: 0.01}\n  loaders:\n    train:\n      _target_: DataLoader\n      dataset: "
    "{_target_: SyntheticDigits, count: 64}\n      batch_size: 32\n";

/* Catalyst's `datasets`: the same run as with the loaders that they stand for. */
static void test_datasets_instead_of_loaders(void **state)
{
    (void)state;
#define HEAD                                                                                                 \
    "data: {_var_: data, _target_: SyntheticDigits, count: 96}\nrunner: {_target_: SupervisedRunner, "       \
    "model: "                                                                                                \
    "{_target_: Sequential, args: [Flatten, {_target_: Linear, in_features: 784, out_features: 10}]}}\n"     \
    "run:\n- _call_: train\n  criterion: CrossEntropyLoss\n  optimizer: Adam\n  num_epochs: 2\n"
#define DATASETS(rest) HEAD "  datasets: {train: {_var_: data}, valid: {_var_: data}, " rest "}\n"
#define LOADER         "{_target_: DataLoader, dataset: {_var_: data}, batch_size: 32, drop_last: y, num_workers: 1"
    enter("cli_datasets");
    write_text("datasets.yml", DATASETS("batch_size: 32, drop_last: y, num_workers: 1, per_gpu_scaling: n"));
    write_text("loaders.yml", HEAD "  loaders: {train: " LOADER ", shuffle: y}, valid: " LOADER "}}\n");
    check_done("run -C datasets.yml --logdir a");
    check_done("run -C loaders.yml --logdir b");
    check_done("run -C datasets.yml --logdir c -b 48 -j 0");
    check_done("run -C loaders.yml --logdir d -b 48 -j 0");
    check_done("run -C a/config.yml --logdir e --valid_loader=valid");
    check_done("evaluate -C datasets.yml -c a/checkpoints/model.last.safetensors --loader train");
    check_done("run -C datasets.yml --run/0/loaders=null --logdir f");
    check_done("run -C f/config.yml --logdir g");
    const char *const same[][2] = {{"a", "b"}, {"c", "d"}, {"a", "e"}, {"a", "g"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char command[8192];
        snprintf(command, sizeof command,
                 "cd '%s' && cmp %s/checkpoints/model.last.safetensors %s/checkpoints/model.last.safetensors",
                 folder, same[i][0], same[i][1]);
        if (system(command)) fail_msg("%s", command);
    }
    write_text("bad.yml", HEAD "  datasets: {train: {_var_: data}}\n  loaders: {train: " LOADER "}}\n");
    check_refused(folder, "run -C bad.yml", 2, "bad.yml:8: datasets: \"train\" is a key of loaders, too");
    write_text("bad.yml", HEAD "  datasets: [{_var_: data}]\n");
    check_refused(folder, "run -C bad.yml", 2, "bad.yml:8: datasets: expected a map of datasets");
    write_text("bad.yml", HEAD "  datasets: {train: {_var_: data}}\n  loaders: 5\n");
    check_refused(folder, "run -C bad.yml", 2, "bad.yml:9: loaders: expected a map of loaders");
    write_text("bad.yml", DATASETS("batch_size: many"));
    check_refused(folder, "run -C bad.yml", 2, "bad.yml:8: batch_size: expected an integer, found \"many\"");
    write_text("bad.yml", DATASETS("a/b: {_var_: data}"));
    check_refused(folder, "run -C bad.yml", 2, "bad.yml:8: loader \"a/b\": its name is that of files");
#undef HEAD
#undef DATASETS
#undef LOADER
}

/* Line 1 of a second file that is merged over the good one, and what must be said about it. */
static void test_wrong_configs(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int exit_code;
        const char *message;
    } cases[] = {
        {"run: [", 2, "bad.yml:2: "},
        {"a: 1\na: 2\n", 2, "bad.yml:2: the key \"a\" is already given in line 1"},
        {"runner: {_target_: SupervisdRunner}", 2,
         "bad.yml:1: _target_: unknown component \"SupervisdRunner\"; did you mean "},
        {"runner: {modle: x}", 2,
         "bad.yml:1: SupervisedRunner: unknown key \"modle\"; did you mean \"model\"?"},
        {"runner: {input_key: [a, b]}", 1, "train: input_key: a batch has no field \"a\""},
        {"runner: {engine: CPU}", 2, "bad.yml:1: engine: unknown component \"CPU\""},
        {"runner: ~", 2, "bad.yml:1: runner: expected a runner"},
        {"run: ~", 2, "bad.yml:1: run: expected a list of calls, found nothing"},
        {"run: [{_call_: train}]", 2, "bad.yml:1: train: \"loaders\" is missing"},
        {"run: [{_call_: train, loaders: 5}]", 2, "bad.yml:1: loaders: "},
        {"run: [{_call_: train, loaders: {train: {_target_: DataLoader, dataset: {_target_: MNIST, root: "
         "/no/such}}}}]",
         2, "bad.yml:1: MNIST: "},
        {"run: [{_call_: fit}]", 2, "bad.yml:1: _call_: unknown component \"fit\""},
        {"run: [{_call_: train, loaders: {train: {_target_: DataLoader, dataset: {_target_: "
         "SyntheticDigits}}}, num_epochs: 0}]",
         2, "bad.yml:1: train: num_epochs: expected at least 1, found 0"},
        {"run: [{_call_: train, loaders: {train: {_target_: DataLoader, dataset: {_target_: "
         "SyntheticDigits}, batch_size: many}}}]",
         2, "bad.yml:1: batch_size: expected an integer, found \"many\""},
        {"run:\n- _call_: train\n  loaders: {train: {_target_: DataLoader, dataset: SyntheticDigits}}\n"
         "  valid_loader: trian\n",
         2, "bad.yml:4: valid_loader: there is no loader \"trian\"; did you mean \"train\"?"},
        {"run:\n- _call_: train\n  loaders:\n"
         "    ../../../escaped: {_target_: DataLoader, dataset: SyntheticDigits}\n",
         2, "bad.yml:4: loader \"../../../escaped\": its name is that of files in the logdir"},
    };
    enter("cli_wrong");
    write_text("good.yml", good);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_text("bad.yml", cases[i].text);
        check_refused(folder, "run -C good.yml -C bad.yml", cases[i].exit_code, cases[i].message);
    }
    check_refused(folder, "run", 2, "run: needs -C FILE");
    check_refused(folder, "run -C no.yml", 2,
                  "no.yml: the config could not be opened: No such file or directory");
    check_refused(folder, "run -C good.yml --run/0/optimizer/lr=fast", 2,
                  "--run/0/optimizer/lr=fast: lr: expected a number, found \"fast\"");
    check_refused(folder, "run -C good.yml --run/0/optimizer/rl=1", 2,
                  "unknown key \"rl\"; did you mean \"lr\"?");
    check_refused(folder, "run -C good.yml --run/3/lr=1", 2, "index 3 is beyond the list's 1 items");
    check_refused(folder, "run -C good.yml --device tpu", 2,
                  "--device: expected one of auto|cpu|cuda|ref, found \"tpu\"");
    check_refused(folder, "run -C good.yml --seed x", 2, "--seed: expected an integer");
    check_refused(folder, "run -C good.yml --num-epochs 0", 2, "--num-epochs: expected at least 1");
    check_refused(folder, "run -C good.yml --logdri x", 2, "unknown option --logdri; did you mean --logdir?");
    check_refused(folder, "run -C good.yml --logdri=x", 2, "\"logdri\" is no key of the config");
    check_refused(folder, "run -C good.yml --worldsize=2", 2, "; an option is called --world-size");
    check_refused(folder, "run -C good.yml --world_siz=2", 2, "; an option is called --world-size");
    check_refused(folder, "run -C good.yml --num-epcohs=2", 2, "unknown option --num-epcohs");
    check_refused(folder, "run -C good.yml --valid_metric", 2, "unknown option --valid_metric");
    check_refused(folder, "run -C good.yml --optimizer=SGD", 2, "--optimizer/_target_=SGD changes");
    check_refused(folder, "run -C good.yml --valid_loader=vaild", 2,
                  "--valid_loader=vaild: valid_loader: there is no loader \"vaild\"");
    check_refused(folder, "run -C good.yml --run/0/valid_loader=vaild", 2,
                  "--run/0/valid_loader=vaild: valid_loader: there is no loader \"vaild\"");
    check_refused(folder, "run -C good.yml --logdir 'caf\xe9'", 2, ": it is not UTF-8");
    check_refused(folder, "run -C good.yml --optimzer/lr=0.5", 2, "did you mean \"optimizer\"?");
    check_refused(folder, "run -C good.yml --run/0/device=tpu", 2, "device: no engine is named \"tpu\"");
}

static void test_wrong_environments(void **state)
{
    (void)state;
    enter("cli_environment");
    write_text("good.yml", good);
    setenv("LOCKSTEP_ENGINE", "abacus", 1);
    check_refused(folder, "run -C good.yml", 2, "LOCKSTEP_ENGINE: no engine is named \"abacus\"");
    unsetenv("LOCKSTEP_ENGINE");
    setenv("LOCKSTEP_CPU_LEVEL", "sse9", 1);
    check_refused(folder, "run -C good.yml --device cpu", 2,
                  "LOCKSTEP_CPU_LEVEL: expected amx, avx512bf16, avx512, avx2 or base, found \"sse9\"");
    unsetenv("LOCKSTEP_CPU_LEVEL");
}

static void test_runs_that_fail(void **state)
{
    (void)state;
    enter("cli_failed");
    write_text("good.yml", good);
    check_refused(folder, "run -C good.yml --logdir good.yml/logs", 1, "good.yml");
    check_refused(folder, "run -C good.yml --runner/model/args/1/args=[100,10]", 1, "784");
    check_refused(folder, "run -C good.yml --run/0/optimizer/lr=1e39", 1, "the loss is not finite");
    /* A file of labels that is cut off: the data is at fault, not the config. */
    char arguments[256];
    assert_int_equal(mkdir(path_of("data"), 0777), 0);
    write_text("data/train-images-idx3-ubyte", "not an idx file");
    write_text("data/train-labels-idx1-ubyte", "nor this");
    snprintf(arguments, sizeof arguments,
             "run -C good.yml '--run/0/loaders/train/dataset={_target_: MNIST, root: data}'");
    check_refused(folder, arguments, 1, "train-");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regression_has_the_known_losses),
        cmocka_unit_test(test_mnist_has_the_known_values),
        cmocka_unit_test(test_classification_writes_its_files),
        cmocka_unit_test(test_multilabel),
        cmocka_unit_test(test_tensors_of_pytorch),
        cmocka_unit_test(test_callbacks),
        cmocka_unit_test(test_tf32_is_a_wish),
        cmocka_unit_test(test_catalysts_flags),
        cmocka_unit_test(test_fp16_by_its_names),
        cmocka_unit_test(test_the_kept_config_runs_the_same),
        cmocka_unit_test(test_the_example),
        cmocka_unit_test(test_json_and_options),
        cmocka_unit_test(test_stages),
        cmocka_unit_test(test_evaluate_and_predict),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_datasets_instead_of_loaders),
        cmocka_unit_test(test_calls_after_ranks),
        cmocka_unit_test(test_wrong_configs),
        cmocka_unit_test(test_wrong_environments),
        cmocka_unit_test(test_runs_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
