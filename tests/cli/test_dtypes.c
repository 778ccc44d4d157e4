/* Data in NumPy's dtypes: runs over float64 features and labels of every integer dtype equal, bit for bit,
 * the run over float32 and int64 files, and PyTorch's with .float() and .long() written out. */
#include "run_folder.h"

#include <lockstep/checkpoint.h>
#include <lockstep/data.h>
#include <lockstep/lockstep.h>

#include <string.h>

enum { SAMPLES = 48, WIDTH = 5 };

/* A .npy file of SAMPLES rows of `width` elements; width 0 is a vector. */
static void write_npy(const char *name, const char *descr, int width, const void *data, size_t nbytes)
{
    char header[128], columns[16] = "";
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    if (width) snprintf(columns, sizeof columns, "%d", width);
    int length =
        snprintf(header + 10, sizeof header - 10,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %s), }", descr, SAMPLES, columns);
    header[10 + length] = ' ';
    header[127] = '\n';
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(header, 1, sizeof header, file), sizeof header);
    assert_int_equal(fwrite(data, 1, nbytes, file), nbytes);
    fclose(file);
}

/* The features as float64, rounded to float32 as NumPy rounds, and as small integers. */
static void write_features(void)
{
    static double wide[SAMPLES * WIDTH];
    static float narrow[SAMPLES * WIDTH];
    static int16_t small[SAMPLES * WIDTH];
    static uint8_t bytes[SAMPLES * WIDTH];
    static float of_small[SAMPLES * WIDTH], of_bytes[SAMPLES * WIDTH];
    for (int i = 0; i < SAMPLES * WIDTH; i++) {
        wide[i] = (i * 37 % 101 - 50) / 31.0;
        narrow[i] = (float)wide[i];
        of_small[i] = small[i] = (int16_t)(i * 37 % 101 - 50);
        of_bytes[i] = bytes[i] = (uint8_t)(i * 37 % 7);
    }
    write_npy("x_f8.npy", "<f8", WIDTH, wide, sizeof wide);
    write_npy("x_f4.npy", "<f4", WIDTH, narrow, sizeof narrow);
    write_npy("x_i2.npy", "<i2", WIDTH, small, sizeof small);
    write_npy("x_i2f4.npy", "<f4", WIDTH, of_small, sizeof of_small);
    write_npy("x_u1.npy", "|u1", WIDTH, bytes, sizeof bytes);
    write_npy("x_u1f4.npy", "<f4", WIDTH, of_bytes, sizeof of_bytes);
}

#define WRITE_LABELS(name, descr, type, classes)                                                             \
    do {                                                                                                     \
        type labels[SAMPLES];                                                                                \
        for (int i = 0; i < SAMPLES; i++) labels[i] = (type)((i * i + i / 3) % (classes));                   \
        write_npy(name, descr, width, labels, sizeof labels);                                                \
    } while (0)

static void write_labels(void)
{
    int width = 0;
    WRITE_LABELS("y_i8.npy", "<i8", int64_t, 3);
    WRITE_LABELS("y_i4.npy", "<i4", int32_t, 3);
    WRITE_LABELS("y_i2.npy", "<i2", int16_t, 3);
    WRITE_LABELS("y_i1.npy", "|i1", int8_t, 3);
    WRITE_LABELS("y_u1.npy", "|u1", uint8_t, 3);
    WRITE_LABELS("y_u2.npy", "<u2", uint16_t, 3);
    WRITE_LABELS("y_u4.npy", "<u4", uint32_t, 3);
    WRITE_LABELS("y_u8.npy", "<u8", uint64_t, 3);
    WRITE_LABELS("y_f8.npy", "<f8", double, 3);
    WRITE_LABELS("y_b1.npy", "|b1", uint8_t, 2);
    WRITE_LABELS("y_b1i8.npy", "<i8", int64_t, 2);
    /* Columns, for a model of one output. */
    width = 1;
    WRITE_LABELS("c_b1.npy", "|b1", uint8_t, 2);
    WRITE_LABELS("c_i8.npy", "<i8", int64_t, 2);
    WRITE_LABELS("c_f4.npy", "<f4", float, 2);
}

static void write_config(const char *name, const char *dataset, const char *layers, const char *criterion)
{
    char text[4096];
    snprintf(text, sizeof text,
             "shared:\n"
             "  dataset: &dataset %s\n"
             "runner: {_target_: SupervisedRunner, model: %s}\n"
             "run:\n"
             "  - _call_: train\n"
             "    criterion: {_target_: %s}\n"
             "    optimizer: {_target_: SGD, lr: 0.1}\n"
             "    loaders:\n"
             "      train: {_target_: DataLoader, batch_size: 8, shuffle: n, dataset: *dataset}\n"
             "      valid: {_target_: DataLoader, batch_size: 8, dataset: *dataset}\n"
             "    num_epochs: 3\n"
             "    verbose: y\n",
             dataset, layers, criterion);
    write_text(name, text);
}

/* Trains into a logdir and returns the hash of the last weights, and what it printed in `said_text`. */
static const char *train(const char *logdir, const char *config, const char *more, char *said_text,
                         size_t capacity)
{
    char arguments[1024], last[256];
    snprintf(arguments, sizeof arguments, "run -C %s --run/0/logdir=%s %s", config, logdir, more);
    const said *r = lockstep_in(folder, arguments);
    if (r->exit_code) fail_msg("lockstep %s: exit code %d\n%s", arguments, r->exit_code, r->err);
    if (said_text) {
        assert_true(strlen(r->out) < capacity);
        strcpy(said_text, r->out);
    }
    snprintf(last, sizeof last, "%s/checkpoints/model.last.safetensors", logdir);
    return hash_of(last);
}

typedef struct one_case {
    const char *features, *targets, *layers, *criterion;
    const char *same_features, *same_targets;
    const char *notes[2];
} one_case;

#define LINEAR(outputs) "{_target_: Linear, in_features: 5, out_features: " #outputs "}"
#define EMBEDDING                                                                                            \
    "{_target_: Sequential, args: [{_target_: Embedding, num_embeddings: 7, embedding_dim: 2}, "             \
    "{_target_: Flatten}, {_target_: Linear, in_features: 10, out_features: 3}]}"

static const one_case cases[] = {
    {"x_f8", "y_i8", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\nfeatures: float64 → float32\n"}},
    {"x_f8",
     "y_i4",
     LINEAR(3),
     "CrossEntropyLoss",
     "x_f4",
     "y_i8",
     {"\nfeatures: float64 → float32\n", "\ntargets: int32 → int64\n"}},
    {"x_f4", "y_u1", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\ntargets: uint8 → int64\n"}},
    {"x_f4", "y_i2", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\ntargets: int32 → int64\n"}},
    {"x_f4", "y_i1", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\ntargets: int32 → int64\n"}},
    {"x_f4", "y_u2", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\ntargets: int32 → int64\n"}},
    {"x_f4", "y_u4", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {NULL}},
    {"x_f4", "y_u8", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {NULL}},
    {"x_f4", "y_f8", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_i8", {"\ntargets: float64 → int64\n"}},
    {"x_f4", "y_b1", LINEAR(3), "CrossEntropyLoss", "x_f4", "y_b1i8", {"\ntargets: bool → int64\n"}},
    {"x_f4", "c_b1", LINEAR(1), "BCEWithLogitsLoss", "x_f4", "c_f4", {"\ntargets: bool → float32\n"}},
    {"x_f8", "c_i8", LINEAR(1), "MSELoss", "x_f4", "c_f4", {"\ntargets: int64 → float32\n"}},
    {"x_i2", "y_i8", LINEAR(3), "CrossEntropyLoss", "x_i2f4", "y_i8", {"\nfeatures: int32 → float32\n"}},
    {"x_u1", "y_i8", LINEAR(3), "CrossEntropyLoss", "x_u1f4", "y_i8", {"\nfeatures: uint8 → float32\n"}},
    {"x_u1", "y_i8", EMBEDDING, "CrossEntropyLoss", "x_u1f4", "y_i8", {"\nfeatures: uint8 → int64\n"}},
};
enum { CASES = sizeof cases / sizeof *cases };

static void tensor_dataset(char *text, size_t capacity, const char *features, const char *targets)
{
    snprintf(text, capacity, "{_target_: TensorDataset, args: [%s.npy, %s.npy]}", features, targets);
}

static void check_case(const one_case *one, int number)
{
    char dataset[256], log[64], said_text[16384], hash[128], name[64], text[16384];
    tensor_dataset(dataset, sizeof dataset, one->features, one->targets);
    write_config("given.yml", dataset, one->layers, one->criterion);
    tensor_dataset(dataset, sizeof dataset, one->same_features, one->same_targets);
    write_config("same.yml", dataset, one->layers, one->criterion);
    snprintf(log, sizeof log, "given%d", number);
    snprintf(hash, sizeof hash, "%s", train(log, "given.yml", "", said_text, sizeof said_text));
    snprintf(log, sizeof log, "same%d", number);
    assert_string_equal(train(log, "same.yml", "", NULL, 0), hash);
    snprintf(name, sizeof name, "given%d/log.txt", number);
    read_whole(path_of(name), text, sizeof text);
    for (int i = 0; i < 2 && one->notes[i]; i++) {
        lkt_contains(said_text, one->notes[i]);
        lkt_contains(text, one->notes[i]);
    }
    if (!one->notes[0]) assert_null(strstr(said_text, "→"));
}

static void test_runs_equal_those_over_converted_files(void **state)
{
    (void)state;
    enter("cli_dtypes");
    write_features();
    write_labels();
    for (int i = 0; i < CASES; i++) check_case(&cases[i], i);
}

static void test_two_ranks_share_what_was_converted(void **state)
{
    (void)state;
    char dataset[256], hash[128], said_text[16384];
    enter("cli_dtypes_ranks");
    write_features();
    write_labels();
    tensor_dataset(dataset, sizeof dataset, "x_f8", "y_i4");
    write_config("given.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    tensor_dataset(dataset, sizeof dataset, "x_f4", "y_i8");
    write_config("same.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    snprintf(hash, sizeof hash, "%s",
             train("given", "given.yml", "--nproc 2 --device cpu", said_text, sizeof said_text));
    assert_string_equal(train("same", "same.yml", "--nproc 2 --device cpu", NULL, 0), hash);
    lkt_contains(said_text, "features: float64 → float32\ntargets: int32 → int64\n");
}

static void check_against_pytorch(const char *kind, const char *features, const char *targets)
{
    char command[4096];
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/tests/oracle/dtypes_live.py' '%s' %s %s.npy %s.npy 2>&1", LK_SOURCE_DIR,
             folder, kind, features, targets);
    FILE *python = popen(command, "r");
    assert_non_null(python);
    for (int epoch = 1; epoch <= 3; epoch++) {
        double loss;
        assert_int_equal(fscanf(python, "%lf", &loss), 1);
        lkt_close(logged("live/csv_logger/train.csv", "loss", epoch) / loss, 1, 1e-6);
    }
    assert_int_equal(pclose(python), 0);
}

static void test_pytorch_has_the_same_losses(void **state)
{
    (void)state;
    char dataset[256];
    if (system("/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null")) skip();
    enter("cli_dtypes_live");
    write_features();
    write_labels();
    tensor_dataset(dataset, sizeof dataset, "x_f8", "y_i2");
    write_config("live.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    train("live", "live.yml", "--seed 42", NULL, 0);
    check_against_pytorch("class", "x_f8", "y_i2");
}

/* ---- What cannot be converted ---- */

static void check_run_fails(const char *config, const char *more, const char *fragment)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments, "run -C %s %s", config, more);
    const said *r = lockstep_in(folder, arguments);
    assert_int_not_equal(r->exit_code, 0);
    lkt_contains(r->err, fragment);
}

static void test_values_that_do_not_fit_name_their_sample(void **state)
{
    (void)state;
    double halves[SAMPLES] = {0}, large[SAMPLES * WIDTH] = {0};
    uint64_t huge[SAMPLES] = {0};
    char dataset[256];
    enter("cli_dtypes_bad");
    write_features();
    write_labels();
    halves[7] = 1.5;
    large[3 * WIDTH + 1] = 1e300;
    huge[9] = UINT64_MAX;
    write_npy("halves.npy", "<f8", 0, halves, sizeof halves);
    write_npy("large.npy", "<f8", WIDTH, large, sizeof large);
    write_npy("huge.npy", "<u8", 0, huge, sizeof huge);
    tensor_dataset(dataset, sizeof dataset, "x_f4", "halves");
    write_config("bad.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    check_run_fails("bad.yml", "", "field \"targets\", sample 7: 1.5 (float64) cannot be held by int64");
    tensor_dataset(dataset, sizeof dataset, "large", "y_i8");
    write_config("bad.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    check_run_fails("bad.yml", "",
                    "field \"features\", sample 3: 1e+300 (float64) cannot be held by float32");
    tensor_dataset(dataset, sizeof dataset, "x_f4", "huge");
    write_config("bad.yml", dataset, LINEAR(3), "CrossEntropyLoss");
    check_run_fails("bad.yml", "", "huge.npy: element 9 is 18446744073709551615");
}

static void test_dtype_says_otherwise(void **state)
{
    (void)state;
    char hash[128], said_text[16384];
    enter("cli_dtypes_key");
    write_features();
    write_labels();
    write_config("keep.yml", "{_target_: TensorDataset, args: [x_f8.npy, y_i4.npy], dtype: float64}",
                 LINEAR(3), "CrossEntropyLoss");
    check_run_fails("keep.yml", "", "f64");
    write_config("picked.yml",
                 "{_target_: TensorDataset, args: [x_f8.npy, y_i4.npy], dtype: [float32, int64]}", LINEAR(3),
                 "CrossEntropyLoss");
    write_config("auto.yml", "{_target_: TensorDataset, args: [x_f8.npy, y_i4.npy], dtype: [auto, int64]}",
                 LINEAR(3), "CrossEntropyLoss");
    snprintf(hash, sizeof hash, "%s", train("picked", "picked.yml", "", said_text, sizeof said_text));
    assert_null(strstr(said_text, "→"));
    assert_string_equal(train("auto", "auto.yml", "", said_text, sizeof said_text), hash);
    lkt_contains(said_text, "features: float64 → float32\n");
    write_config("bad.yml", "{_target_: TensorDataset, args: [x_f8.npy, y_i4.npy], dtype: [auto, quad]}",
                 LINEAR(3), "CrossEntropyLoss");
    check_run_fails("bad.yml", "", "dtype: unknown dtype \"quad\"");
    write_config("bad.yml", "{_target_: TensorDataset, args: [x_f8.npy], dtype: [auto, int64]}", LINEAR(3),
                 "CrossEntropyLoss");
    check_run_fails("bad.yml", "", "dtype: 2 names for 1 fields");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_runs_equal_those_over_converted_files),
        cmocka_unit_test(test_two_ranks_share_what_was_converted),
        cmocka_unit_test(test_pytorch_has_the_same_losses),
        cmocka_unit_test(test_values_that_do_not_fit_name_their_sample),
        cmocka_unit_test(test_dtype_says_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
