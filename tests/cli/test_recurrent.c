/* A char-LSTM written in YAML alone: it learns, goes on after a stop with the same bits, and on two ranks.
 * And the example in C: its first losses are PyTorch's (tests/oracle/char_lstm.py). */
#include "run_folder.h"

#include "tensor/npy.h"

/* The letter behind seven others of an alphabet that goes round in steps of 3. */
static const char config[] =
    "runner:\n"
    "  _target_: SupervisedRunner\n"
    "  model:\n"
    "    _target_: Sequential\n"
    "    args:\n"
    "    - {_target_: Embedding, num_embeddings: 10, embedding_dim: 8}\n"
    "    - {_target_: torch.nn.LSTM, input_size: 8, hidden_size: 16, num_layers: 2, dropout: 0.1,\n"
    "       bidirectional: y, batch_first: y, returns: last}\n"
    "    - {_target_: Linear, in_features: 32, out_features: 10}\n"
    "run:\n"
    "- _call_: train\n"
    "  criterion: CrossEntropyLoss\n"
    "  optimizer: {_target_: Adam, lr: 0.01}\n"
    "  loaders:\n"
    "    train: &loader {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [x.npy, y.npy]},\n"
    "                    batch_size: 8, shuffle: y}\n"
    "    valid: *loader\n"
    "  valid_loader: valid\n"
    "  valid_metric: loss\n"
    "  minimize_valid_metric: y\n"
    "  check_replicas: 1\n"
    "  logdir: logs\n"
    "  callbacks:\n"
    "  - {_target_: AccuracyCallback, input_key: logits, target_key: targets, num_classes: 10}\n";

static void write_data(void)
{
    lk_tensor *x = lk_tensor_create(LK_I64, LK_SHAPE(80, 7)), *y = lk_tensor_create(LK_I64, LK_SHAPE(80));
    for (int i = 0; i < 80; i++) {
        for (int t = 0; t < 7; t++) lk_tensor_set(x, i * 7 + t, (i + 3 * t) % 10);
        lk_tensor_set(y, i, (i + 21) % 10);
    }
    lkt_ok(lki_npy_write(path_of("x.npy"), x));
    lkt_ok(lki_npy_write(path_of("y.npy"), y));
    lk_tensor_free(x);
    lk_tensor_free(y);
    write_text("char.yml", config);
}

static void it_learns_and_resumes(void **state)
{
    (void)state;
    enter("cli_recurrent");
    write_data();
    check_done("run -C char.yml --logdir whole -e 6 --nproc 1");
    check_done("run -C char.yml --logdir half -e 3 --nproc 1");
    check_done("run -C char.yml --logdir half -e 6 --nproc 1 --autoresume last");
    assert_string_equal(hash_of(LAST("whole")), hash_of(LAST("half")));
    double accuracy = logged("whole/csv_logger/valid.csv", "accuracy01", 6);
    if (!(accuracy > 0.9)) fail_msg("the valid accuracy is %g", accuracy);
}

/* The ranks compare their weights after every update; a resumed run ends with the same bits. */
static void two_ranks_stay_equal(void **state)
{
    (void)state;
    enter("cli_recurrent_ranks");
    write_data();
    check_done("run -C char.yml --logdir whole -e 2 --nproc 2");
    check_done("run -C char.yml --logdir half -e 1 --nproc 2");
    check_done("run -C char.yml --logdir half -e 2 --nproc 2 --autoresume last");
    assert_string_equal(hash_of(LAST("whole")), hash_of(LAST("half")));
}

static void the_example_loses_as_pytorch_does(void **state)
{
    (void)state;
    char line[256], command[1300];
    int count = 0;
    snprintf(command, sizeof command, "'%s/examples/11_char_lstm' 20", LK_BUILD_DIR);
    FILE *golden = fopen(LK_SOURCE_DIR "/tests/golden/nn/char_lstm.txt", "r"), *example = popen(command, "r");
    assert_non_null(golden);
    assert_non_null(example);
    while (fgets(line, sizeof line, example)) {
        double actual, expected;
        if (sscanf(line, "step %*d: loss %lf", &actual) != 1) continue;
        assert_int_equal(fscanf(golden, "%lf", &expected), 1);
        count++;
        if (!(fabs(actual - expected) < 2e-5))
            fail_msg("loss %d is %.7f, PyTorch's %.7f", count, actual, expected);
    }
    fclose(golden);
    assert_int_equal(pclose(example), 0);
    assert_int_equal(count, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_learns_and_resumes),
        cmocka_unit_test(two_ranks_stay_equal),
        cmocka_unit_test(the_example_loses_as_pytorch_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
