/* Options that are right alone, and meet: shards and limits, checkpointed modules and moving buffers, streams
 * and what needs a length, restarts and resuming. */
#include "run_folder.h"

#define MODEL                                                                                                \
    "runner:\n  _target_: SupervisedRunner\n"                                                                \
    "  model: {_target_: Sequential, args: [Flatten, {_target_: Linear, args: [784, 10]}]}\n"
#define TRAIN "run:\n- _call_: train\n  criterion: CrossEntropyLoss\n  optimizer: {_target_: SGD, lr: 0.1}\n"
#define DIGITS                                                                                               \
    "{_target_: DataLoader, dataset: {_target_: SyntheticDigits, train: y, count: 240}, batch_size: 4, "     \
    "shuffle: y}"
#define LOADERS "  loaders: {train: " DIGITS ", valid: " DIGITS "}\n"

/* Trains with these options into `logdir`; its weights. */
static const char *weights_of(const char *logdir, const char *options)
{
    char line[512], last[128];
    snprintf(line, sizeof line, "run -q -C c.yml --overwrite --logdir %s %s", logdir, options);
    check_done(line);
    snprintf(last, sizeof last, "%s/checkpoints/model.last.safetensors", logdir);
    return hash_of(last);
}

static void limits_are_those_of_the_shards(void **state)
{
    (void)state;
    static const char *const limits[] = {"  max_steps: 13\n", "  num_epochs: 2\n  valid_every: 4\n",
                                         "  num_epochs: 2\n  max_minutes: 90\n"};
    enter("cli_combinations");
    for (int i = 0; i < 3; i++) {
        char text[2048];
        snprintf(text, sizeof text, "%s%s%s%s", MODEL, TRAIN, LOADERS, limits[i]);
        write_text("c.yml", text);
        const char *one = weights_of("one", "--shards 4");
        assert_string_equal(weights_of("two", "--shards 4 --nproc 2"), one);
        assert_string_equal(weights_of("four", "--shards 4 --nproc 4"), one);
    }
}

/* A run that has left a pass goes on with it on another number of ranks. */
static void a_pass_goes_on_with_other_ranks(void **state)
{
    (void)state;
    enter("cli_combinations");
    write_text("c.yml", MODEL TRAIN LOADERS "  num_epochs: 3\n");
    const char *whole = weights_of("whole", "--shards 4 --run/0/max_steps=20");
    weights_of("parts", "--shards 4 --nproc 2 --run/0/max_steps=7");
    check_done("run -q -C c.yml --logdir parts --shards 4 --autoresume last --run/0/max_steps=20");
    assert_string_equal(hash_of(LAST("parts")), whole);
}

static void checkpointed_buffers_are_those_of_the_forward_pass(void **state)
{
    (void)state;
    static const char *const heads[] = {"AdaCos", "CurricularFace"};
    enter("cli_combinations");
    for (int i = 0; i < 2; i++) {
        char text[2048], hash[2][LK_HASH_LENGTH + 1];
        for (int again = 0; again < 2; again++) {
            snprintf(text, sizeof text,
                     "runner:\n  _target_: SupervisedRunner\n  input_key: [features, targets]\n  model:\n"
                     "    _target_: Graph\n    inputs: [features, targets]\n    nodes:\n"
                     "      flat: {module: Flatten, inputs: features}\n"
                     "      body: {module: {_target_: Linear, args: [784, 6]}, inputs: flat}\n"
                     "      head: {module: {_target_: %s, in_features: 6, out_features: 10, checkpoint: %s}, "
                     "inputs: [body, targets]}\n" TRAIN "  loaders: {train: " DIGITS "}\n  num_epochs: 2\n",
                     heads[i], again ? "y" : "n");
            write_text("c.yml", text);
            snprintf(hash[again], sizeof hash[again], "%s", weights_of("head", ""));
        }
        assert_string_equal(hash[0], hash[1]);
    }
}

static void what_cannot_meet_is_refused(void **state)
{
    (void)state;
    enter("cli_combinations");
    lkt_shell_in(folder, "seq 1 50 > lines.txt && gzip -kf lines.txt");
#define TEXT(dataset)                                                                                        \
    MODEL TRAIN "  loaders: {train: {_target_: DataLoader, dataset: " dataset ", batch_size: 4}}\n"
    static const struct {
        const char *text, *options, *message;
    } cases[] = {
        {TEXT("{_target_: random_split, dataset: {_target_: TextStream, path: lines.txt, max_length: 8}, "
              "lengths: [0.5, 0.5], part: 0}"),
         "", "random_split"},
        {TEXT("{_target_: TextStream, path: lines.txt.gz, max_length: 8}"), "",
         "lines.txt.gz: a stream does not unpack gzip"},
        {MODEL TRAIN LOADERS "  valid_every: 2\n  callbacks: [{_target_: BatchOverfit, train: 5}]\n", "",
         "valid_every: loader \"train\" repeats its first batches"},
        {MODEL TRAIN LOADERS "  callbacks: [{_target_: MixupCallback, keys: [features]}]\n", "--shards 2",
         "give the loader batch_transforms instead"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[128];
        write_text("bad.yml", cases[i].text);
        snprintf(line, sizeof line, "run -q -C bad.yml %s", cases[i].options);
        const said *r = lockstep_in(folder, line);
        assert_in_range(r->exit_code, 1, 2);
        lkt_contains(r->err, cases[i].message);
    }
}

/* All texts, or the file as it was. */
static void a_text_that_is_not_there_leaves_the_tokens(void **state)
{
    (void)state;
    enter("cli_combinations");
    lkt_shell_in(folder, "seq 1 50 > a.txt && seq 51 99 > b.txt && cat a.txt b.txt > both.txt");
    check_done("tokenize a.txt b.txt -o two.bin");
    check_done("tokenize both.txt -o one.bin");
    lkt_shell_in(folder, "cmp one.bin two.bin && cp two.bin before.bin");
    check_refused(folder, "tokenize a.txt nowhere.txt -o two.bin", 1, "nowhere.txt");
    lkt_shell_in(folder, "cmp two.bin before.bin");
}

/* The attempt after a killed one goes on from its own checkpoint, whatever the run itself resumes. */
static void a_restart_goes_on_from_its_own_place(void **state)
{
    (void)state;
    enter("cli_combinations");
    write_text("c.yml", MODEL TRAIN LOADERS "  num_epochs: 6\n");
    const char *whole = weights_of("alone", "--nproc 2");
    lkt_shell_in(folder, "rm -rf killed && '" LK_BUILD_DIR
                         "/lockstep' run -q -C c.yml --nproc 2 --logdir killed --num-epochs 2");
    /* Rank 0 of the first attempt dies as soon as it has written an epoch of its own. */
    lkt_shell_in(
        folder,
        "'" LK_BUILD_DIR "/lockstep' run -q -C c.yml --nproc 2 --logdir killed --autoresume last "
        "--max-restarts 2 > out.txt 2>&1 & run=$!\n"
        "before=$(stat -c %%i killed/checkpoints/runner.last.safetensors)\n"
        "while kill -0 $run 2> /dev/null; do\n"
        "  [ \"$(stat -c %%i killed/checkpoints/runner.last.safetensors)\" = \"$before\" ] && continue\n"
        "  kill -9 $(cat /proc/$run/task/$run/children) 2> /dev/null; break\n"
        "done\n"
        "wait $run || { cat out.txt; exit 1; }");
    assert_string_equal(hash_of(LAST("killed")), whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_those_of_the_shards),
        cmocka_unit_test(a_pass_goes_on_with_other_ranks),
        cmocka_unit_test(checkpointed_buffers_are_those_of_the_forward_pass),
        cmocka_unit_test(what_cannot_meet_is_refused),
        cmocka_unit_test(a_text_that_is_not_there_leaves_the_tokens),
        cmocka_unit_test(a_restart_goes_on_from_its_own_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
