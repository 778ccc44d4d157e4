/* No option of the command line is accepted and has no effect: each is given alone to a real command, and
 * what is printed and written must differ, or the option is refused. */
#include "command.h"

#include "key_cases.h"

#include "tensor/npy.h"

#include <lockstep/tensor.h>

typedef struct option_case {
    const char *option; /* "run --seed", as `lockstep completion --list` has it */
    const char *base; /* a line for the shell, in which $L is the command; it is run in a folder of its own */
    const char *changed; /* the same with the option */
    const char *says;    /* NULL: the result differs; else the command says this, which it does not without */
} option_case;

#define RUN      "$L run -C ../c.yml"
#define LOUD     "$L run -C ../e.yml"
#define TRAINED  RUN " && $L "
#define MODEL    " -c logs/checkpoints/model.last.safetensors"
#define EVALUATE TRAINED "evaluate -C ../c.yml" MODEL
#define PREDICT  TRAINED "predict -C ../c.yml" MODEL " -o out.npy"
#define PLOT     TRAINED "plot logs"
#define BENCH    "$L bench --model mnist-linear --simulate"
#define EXPORT   TRAINED "export logs/checkpoints/model.last.safetensors --to pth -o out.pth"
#define TUNE     "$L tune -C ../t.yml -q"
#define TERMINAL "script -qec"
#define TOKENIZE "printf 'ab a' > t.txt && $L tokenize t.txt -o t.bin"

static const option_case cases[] = {
    {"run --config", RUN, RUN " -C ../d.yml", NULL},
    {"run --configs", RUN, RUN " --configs ../d.yml", NULL},
    {"run --expdir", RUN, RUN " --expdir nowhere", "nowhere"},
    {"run --logdir", RUN, RUN " --logdir other", NULL},
    {"run --num-epochs", RUN, RUN " -e 2", NULL},
    {"run --num-epochs", RUN, RUN " -e 0", "--num-epochs: expected at least 1"},
    {"run --batch-size", RUN, RUN " -b 2", NULL},
    {"run --num-workers", RUN " ; grep num_workers logs/config.yml",
     RUN " -j 3; grep num_workers logs/config.yml", "num_workers: 3"},
    {"run --num-workers", RUN, RUN " -j -1", "--num-workers: expected at least 0"},
    {"run --seed", RUN, RUN " --seed 7", NULL},
    {"run --resume", RUN, RUN " --resume nothing.safetensors", "nothing.safetensors"},
    {"run --autoresume", TRAINED "run -C ../c.yml", TRAINED "run -C ../c.yml --autoresume last",
     "nothing to train"},
    {"run --save-every", RUN "; grep save_every logs/config.yml",
     RUN " --save-every 1; grep save_every logs/config.yml", "save_every: 1"},
    {"run --save-every", RUN " --check", RUN " --check --save-every 1",
     "save_every: this run keeps no checkpoints"},
    {"run --save-every", RUN, RUN " --save-every 0", "--save-every: expected a number of batches"},
    {"run --save-every", RUN, RUN " --save-every 1.5", "--save-every: expected a number of batches"},
    {"run --save-every", RUN "; grep save_every logs/config.yml",
     RUN " --save-every 0.5m; grep save_every logs/config.yml", "save_every_minutes: 0.5"},
    {"run --overwrite", TRAINED "run -C ../c.yml", TRAINED "run -C ../c.yml --overwrite", NULL},
    {"run --ddp", RUN, RUN " --ddp", NULL},
    {"run --distributed", RUN, RUN " --distributed", NULL},
    {"run --nproc", RUN, RUN " --nproc 2", NULL},
    {"run --max-restarts", RUN, "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 " RUN " --max-restarts 1",
     "MPI cannot start a lost rank again, so the ranks meet without it: --host or MASTER_ADDR"},
    {"run --min-nodes", RUN, RUN " --min-nodes 2", "min_nodes: "},
    {"run --min-nodes", RUN, RUN " --min-nodes 0", "--min-nodes: expected at least 1"},
    {"run --shards", RUN, RUN " --shards 2", NULL},
    {"run --shards", RUN, RUN " --shards 3", "shards"},
    {"run --shards", RUN, RUN " --shards 0", "--shards: expected at least 1"},
    {"run --comm", RUN, RUN " --comm gloo", "comm has no effect here"},
    {"run --device", RUN "; grep device logs/hparams.json",
     RUN " --device ref; grep device logs/hparams.json", "\"ref\""},
    {"run --precision", RUN, RUN " --precision bf16", NULL},
    {"run --fp16", RUN, RUN " --fp16", NULL},
    {"run --fp16", RUN, RUN " --fp16 --precision bf16", "contradict"},
    {"run --amp", RUN, RUN " --amp", NULL},
    {"run --tf32", RUN, RUN " --tf32", "tf32 has no effect here"},
    {"run --benchmark", RUN, RUN " --benchmark", "benchmark has no effect here"},
    {"run --deterministic", RUN " --run/0/benchmark=y", RUN " --run/0/benchmark=y --deterministic", NULL},
    {"run --deterministic", RUN, RUN " --benchmark --deterministic",
     "--benchmark and --deterministic contradict"},
    {"run --check", RUN, RUN " --check", NULL},
    {"run --overfit", RUN, RUN " --overfit", NULL},
    {"run --overfit", RUN, RUN " --overfit --check", "--check and --overfit"},
    {"run --timeit", RUN, RUN " --timeit", NULL},
    {"run --verbose", RUN, RUN " -v", "loss/std"},
    {"run --verbose", RUN, RUN " -v -q", "--verbose and --quiet contradict"},
    {"run --quiet", LOUD " | grep -c .", LOUD " -q | grep -c .", NULL},
    {"run --quiet", LOUD " --tf32 2>&1 | grep -c tf32", LOUD " --tf32 -q 2>&1 | grep -c tf32", NULL},
    {"run --log-every", LOUD " | grep -c step", LOUD " --log-every 2 | grep -c step", NULL},
    {"run --log-every", LOUD, LOUD " --log-every 0", "--log-every: expected at least 1"},
    {"run --profile", LOUD, LOUD " --profile", "what to try: "},
    {"run --world-size", RUN, RUN " --world-size 2", "rank"},
    {"run --rank", RUN, RUN " --world-size 2 --rank 3", "rank"},
    {"run --token-file", RUN, RUN " --token-file secret", "--token-file secret needs ranks"},
    {"run --host", RUN, RUN " --host nowhere", "--host"},
    {"run --master", RUN, RUN " --master nowhere", "--host"},
    {"run --master-addr", RUN, RUN " --master-addr nowhere", "--host"},
    {"run --port", RUN, RUN " --port 12345", "--port"},

    {"watch --metric", TRAINED "watch logs", TRAINED "watch logs -m loss/std", NULL},
    {"watch --metric", TRAINED "watch logs", TRAINED "watch logs -m nothing", "nothing"},
    {"watch --every", TRAINED "watch logs", TRAINED "watch logs --every 0", "--every: expected at least 1"},
    {"import --output", RUN " && $L import logs/checkpoints/model.last.safetensors",
     RUN " && $L import logs/checkpoints/model.last.safetensors -o out.safetensors", NULL},
    {"tokenize --output", "printf 'ab a' > t.txt && $L tokenize t.txt", TOKENIZE, NULL},
    {"tokenize --tokenizer", TOKENIZE, TOKENIZE " -t chars", NULL},
    {"tokenize --tokenizer", TOKENIZE, TOKENIZE " -t bpe", "bpe needs --vocab FILE and --merges FILE"},
    {"tokenize --vocab", TOKENIZE " -t chars",
     "printf '{\"a\": 3, \"b\": 4, \" \": 5}' > v.json && " TOKENIZE " -t chars --vocab v.json", NULL},
    {"tokenize --vocab", TOKENIZE, TOKENIZE " --vocab v.json", "--vocab: bytes need none"},
    {"tokenize --merges", TOKENIZE, TOKENIZE " --merges m.txt", "bpe needs --vocab FILE and --merges FILE"},
    {"tokenize --merges", TOKENIZE " -t chars", TOKENIZE " -t chars --merges m.txt", "write -t bpe"},
    {"tokenize --end-token", TOKENIZE, TOKENIZE " --end-token b", NULL},
    {"tokenize --end-token", TOKENIZE, TOKENIZE " --end-token '<|endoftext|>'", "no token \"<|endoftext|>\""},
    {"tokenize --save-vocab", TOKENIZE, TOKENIZE " --save-vocab v.json", NULL},
    {"export --output", RUN " && $L export logs/checkpoints/model.last.safetensors --to pth", EXPORT, NULL},
    {"export --to", RUN " && $L export logs/checkpoints/model.last.safetensors -o out",
     RUN " && $L export logs/checkpoints/model.last.safetensors -o out --to npz", NULL},
    {"export --to", RUN " && $L export logs/checkpoints/model.last.safetensors -o out.pth",
     RUN " && $L export logs/checkpoints/model.last.safetensors -o out.pth --to npz", NULL},

    {"export --config", EXPORT, EXPORT " --to onnx", "needs -C CONFIG"},
    {"export --config", EXPORT, EXPORT " -C ../c.yml", "are for --to onnx alone"},
    {"export --checkpoint", EXPORT, EXPORT " -c nothing.pth", "are for --to onnx alone"},
    {"export --checkpoint", EXPORT, EXPORT " --to onnx -C ../c.yml -c nothing.pth",
     "--to onnx takes one checkpoint"},
    {"export --expdir", EXPORT, EXPORT " --expdir nowhere", "are for --to onnx alone"},
    {"export --expdir", EXPORT, EXPORT " --to onnx -C ../c.yml --expdir nowhere", "nowhere"},
    {"export --weights", EXPORT, EXPORT " --weights int8", NULL},
    {"export --weights", EXPORT, EXPORT " --weights int4", "--weights: expected one of"},
    {"export --weights", EXPORT, "$L export nothing.pth -o out.npz -w bf16",
     "--weights bf16: not in an npz file"},
    {"manual --list", "$L manual nan", "$L manual nan --list", "guides/slow-run"},
    {"manual --man-pages", "$L manual nan", "mkdir out && $L manual --man-pages out", NULL},

    {"evaluate --config", EVALUATE, EVALUATE " -C ../d.yml", NULL},
    {"evaluate --expdir", EVALUATE, EVALUATE " --expdir nowhere", "nowhere"},
    {"evaluate --checkpoint", EVALUATE, EVALUATE " -c nothing.safetensors", "nothing.safetensors"},
    {"evaluate --loader", EVALUATE, EVALUATE " -l valid", NULL},
    {"evaluate --loader", EVALUATE, EVALUATE " -l other", "other"},
    {"evaluate --device", EVALUATE, EVALUATE " --device nothing", "--device: expected one of"},
    {"evaluate --verbose",
     RUN "; " TERMINAL " \"$L evaluate -C ../c.yml" MODEL "\" out > /dev/null; grep -c Epoch out",
     RUN "; " TERMINAL " \"$L evaluate -v -C ../c.yml" MODEL "\" out > /dev/null; grep -c Epoch out", NULL},

    {"plot --output", PLOT, PLOT " -o there", NULL},
    {"plot --format", PLOT, PLOT " --format svg", NULL},
    {"plot --format", PLOT, PLOT " --format jpg", "--format: expected one of"},
    {"plot --metric", PLOT, PLOT " --metric accuracy01", "accuracy01"},
    {"predict --config", PREDICT, PREDICT " -C ../d.yml", NULL},
    {"predict --expdir", PREDICT, PREDICT " --expdir nowhere", "nowhere"},
    {"predict --checkpoint", PREDICT, PREDICT " -c nothing.safetensors", "nothing.safetensors"},
    {"predict --loader", PREDICT, PREDICT " -l valid", NULL},
    {"predict --device", PREDICT, PREDICT " --device nothing", "--device: expected one of"},
    {"evaluate --json", EVALUATE, EVALUATE " --json", NULL},
    {"evaluate --output", EVALUATE, EVALUATE " -o m.csv", NULL},
    {"evaluate --output", EVALUATE, EVALUATE " -o m.npy", "metrics are written as .csv or .json"},
    {"predict --output", PREDICT, PREDICT " -o other.npy", NULL},
    {"predict --output", PREDICT, PREDICT " -o other.xyz", "predictions are written as .npy"},
    {"predict --json", PREDICT, PREDICT " --json", NULL},
    {"predict --verbose",
     RUN "; " TERMINAL " \"$L predict -o out.npy -C ../c.yml" MODEL "\" out > /dev/null; grep -c Epoch out",
     RUN "; " TERMINAL " \"$L predict -v -o out.npy -C ../c.yml" MODEL
         "\" out > /dev/null; grep -c Epoch out",
     NULL},

    {"create --name", "$L create -n a", "$L create -n b", NULL},
    {"create --gtb", "$L create -n a", "$L create -n a --gtb", NULL},
    {"create --get-train-backend", "$L create -n a", "$L create -n a --get-train-backend", NULL},

    {"bench --config", BENCH, "$L bench -C nothing.yml", "nothing.yml"},
    {"bench --model", BENCH, "$L bench --model resnet-50 --simulate", NULL},
    {"bench --simulate", BENCH, "$L bench --model resnet-50", "use --simulate"},
    {"bench --measure", BENCH, "$L bench --model resnet-50 --simulate --measure", "use --simulate"},
    {"bench --measure", BENCH, "$L bench --measure", "--measure needs --simulate"},
    {"bench --latency-us", BENCH, BENCH " --latency-us 99", NULL},
    {"bench --bandwidth-gbit", BENCH, BENCH " --bandwidth-gbit 1", NULL},
    {"bench --overhead-us", BENCH, BENCH " --overhead-us 99", NULL},
    {"bench --ranks-per-host", BENCH, BENCH " --ranks-per-host 4", NULL},
    {"bench --max-ranks", BENCH, BENCH " --max-ranks 4", NULL},
    {"bench --backend", BENCH, BENCH " --backend mpi", NULL},
    {"bench --bucket-mb", "$L bench --model resnet-50 --simulate",
     "$L bench --model resnet-50 --simulate --bucket-mb 99", NULL},
    {"bench --accumulate", BENCH, BENCH " --accumulate 4", NULL},
    {"bench --compress", BENCH, BENCH " --compress", NULL},
    {"bench --compute-ms", BENCH, BENCH " --compute-ms 9", NULL},
    {"bench --nproc", BENCH, BENCH " --nproc 0", "--nproc: expected at least"},
    {"bench --seconds", BENCH, BENCH " --seconds 1", "--seconds"},
    {"bench --json", BENCH, BENCH " --json", NULL},

    {"bench --ops", BENCH, "$L bench --ops --filter nothing", "shares of the roofline"},
    {"bench --engine", BENCH, "$L bench --ops --engine tpu", "--engine: expected one of"},
    {"bench --filter", BENCH, "$L bench --filter softmax", "--filter needs --ops"},
    {"bench --split", BENCH, "$L bench --split", "--split needs -C FILE"},

    {"tune --config", TUNE, TUNE " -C nothing.yml", "nothing.yml"},
    {"tune --configs", TUNE, TUNE " --configs nothing.yml", "nothing.yml"},
    {"tune --expdir", TUNE, TUNE " --expdir nowhere", "nowhere"},
    {"tune --logdir", TUNE, TUNE " --logdir other", "other/trial_0000"},
    {"tune --trials", TUNE, TUNE " -n 3", "trial_0002"},
    {"tune --n-trials", TUNE, TUNE " --n-trials 3", "trial_0002"},
    {"tune --jobs", TUNE, TUNE " -j 0", "--jobs: expected at least 1"},
    {"tune --n-jobs", TUNE, TUNE " --n-jobs 0", "--n-jobs: expected at least 1"},
    {"tune --search", TUNE, TUNE " --search grid", "a grid needs values that can be counted"},
    {"tune --pruner", TUNE, TUNE " --pruner nothing", "--pruner: expected one of"},
    {"tune --seed", TUNE " | grep complete", TUNE " --seed 7 | grep complete", NULL},
    {"tune --timeout", TUNE, TUNE " --timeout 0", "--timeout: expected at least 1"},
    {"tune --max-failures", TUNE, TUNE " --max-failures 0", "--max-failures: expected at least 1"},
    {"tune --resume", TUNE, TUNE " --resume", "there is no study in logs"},
    {"tune --new", TUNE " && " TUNE "; ls", TUNE " && " TUNE " --new; ls", "logs.1"},
    {"tune --quiet", "$L tune -C ../t.yml | grep -c .", TUNE " | grep -c .", NULL},

    {"board --port", "$L board ../c.yml", "$L board ../c.yml --port 70000", "--port: expected at most 65535"},

    {"components --kind", "$L components", "$L components -k module", NULL},
    {"components --expdir", "$L components", "$L components --expdir nowhere", "nowhere"},
    {"components --names", "$L components", "$L components --names", NULL},
    {"components --markdown", "$L components", "$L components --markdown", NULL},
    {"components --markdown", "$L components", "$L components --markdown --names", "--names and --markdown"},
    {"help --expdir", "$L help", "$L help --expdir nowhere", "nowhere"},
    {"completion --list", "$L completion", "$L completion --list", NULL},
    {"completion --shell", "$L completion", "$L completion --shell fish", NULL},
    {"completion --shell", "$L completion", "$L completion --shell zsh", NULL},
    {"completion --shell", "$L completion --list", "$L completion --list --shell zsh", "leave one out"},
};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

static char folder[1024];

/* What the line prints, its exit code and what it writes; the caller frees it. */
static char *try_line(const char *line)
{
    char place[1100], command[4096], *printed = calloc(1, 1 << 18), *whole = NULL;
    size_t nbytes;
    snprintf(place, sizeof place, "%s/run", folder);
    lkt_shell_in(folder, "rm -rf run said.txt && mkdir run");
    snprintf(command, sizeof command,
             "cd '%s' && (%s) > ../said.txt 2>&1 < /dev/null; echo \"code $?\" >> ../said.txt", place, line);
    if (system(command)) fail_msg("%s", command);
    snprintf(command, sizeof command, "%s/said.txt", folder);
    read_whole(command, printed, 1 << 18);
    char *files = lkt_list_results(place, false);
    FILE *out = open_memstream(&whole, &nbytes);
    fprintf(out, "%s%s", printed, files);
    fclose(out);
    free(printed);
    free(files);
    return whole;
}

static void test_every_option_has_an_effect(void **state)
{
    int wrong = 0;
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        const option_case *c = &cases[i];
        if (strstr(c->base, TERMINAL) && system("command -v script > /dev/null")) continue;
        char *base = try_line(c->base), *changed = try_line(c->changed);
        bool is_fine =
            c->says ? strstr(changed, c->says) && !strstr(base, c->says) : strcmp(base, changed) != 0;
        if (!is_fine ||
            (!c->says && strstr(changed, "code 0") == NULL && strstr(changed, "code 1") == NULL)) {
            fprintf(stderr, "%s: `%s` %s%s:\n%.600s\n", c->option, c->changed,
                    c->says ? "does not say " : "changes nothing", c->says ? c->says : "", changed);
            wrong++;
        }
        free(base);
        free(changed);
    }
    assert_int_equal(wrong, 0);
}

static bool has_case(const char *option)
{
    for (int i = 0; i < CASE_COUNT; i++)
        if (!strcmp(cases[i].option, option)) return true;
    return false;
}

static void test_every_option_has_a_case(void **state)
{
    (void)state;
    char *list = strdup(lockstep("completion --list")->out);
    for (char *line = strtok(list, "\n"); line; line = strtok(NULL, "\n")) {
        char *letter = strstr(line, " -");
        if (!letter) continue; /* a command */
        if ((letter = strstr(letter + 1, " -"))) *letter = 0;
        if (!has_case(line)) fail_msg("%s has no case: add one to tests/cli/test_options.c", line);
    }
    free(list);
}

static void write_array(const char *name, lk_dtype dtype, lk_shape shape, int classes)
{
    char path[1100];
    lk_tensor *tensor = lk_tensor_create(dtype, shape);
    lkt_not_null(tensor);
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++)
        lk_tensor_set(tensor, i, classes ? (double)(i * 7 % 11 % classes) : sin((double)(i * i)));
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    lkt_ok(lki_npy_write(path, tensor));
    lk_tensor_free(tensor);
}

static int prepare(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_options"));
    setenv("L", LK_BUILD_DIR "/lockstep", 1);
    lkt_use_two_cores();
    write_array("x", LK_F32, LK_SHAPE(16, 4), 0);
    write_array("x2", LK_F32, LK_SHAPE(16, 4), 5);
    write_array("y", LK_I64, LK_SHAPE(16), 3);
    lkt_shell_in(
        folder,
        "cat > c.yml <<'END'\n"
        "runner:\n"
        "  _target_: SupervisedRunner\n"
        "  model: {_target_: Sequential, args: [{_target_: Linear, args: [4, 3]}]}\n"
        "run:\n"
        "- _call_: train\n"
        "  criterion: CrossEntropyLoss\n"
        "  optimizer: {_target_: SGD, lr: 0.1}\n"
        "  loaders:\n"
        "    train: {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [../x.npy, "
        "../y.npy]}, batch_size: 4}\n"
        "    valid: {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [../x2.npy, "
        "../y.npy]}, batch_size: 4}\n"
        "  num_epochs: 4\n"
        "  logdir: logs\n"
        "  verbose: n\n" /* or else the times in the output would differ, whatever the option does */
        "END\n"
        "echo 'run: [{_call_: train, criterion: CrossEntropyLoss, optimizer: {_target_: SGD, lr: 0.3}, "
        "loaders: {train: {_target_: DataLoader, dataset: {_target_: TensorDataset, args: [../x2.npy, "
        "../y.npy]}, batch_size: 4}}, logdir: logs}]' > d.yml\n"
        "sed /verbose/d c.yml > e.yml\n"
        "(cat c.yml; echo 'tune: {metric: valid/loss, trials: 2, search: random, parameters: "
        "{optimizer/lr: {log: [1e-3, 1]}}}') > t.yml");
    return 0;
}

int main(void)
{
    pass_over_fonts();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_option_has_a_case),
        cmocka_unit_test(test_every_option_has_an_effect),
    };
    return cmocka_run_group_tests(tests, prepare, NULL);
}
