/* A run over a stream that is killed in the middle of an epoch and goes on gives the weights of one that was
 * left alone. */
#include "run_folder.h"

#include <signal.h>
#include <sys/stat.h>
#include <time.h>

static const char config[] =
    "runner:\n"
    "  _target_: SupervisedRunner\n"
    "  model:\n"
    "    _target_: Sequential\n"
    "    args:\n"
    "    - {_target_: Embedding, num_embeddings: 256, embedding_dim: 8}\n"
    "    - {_target_: Linear, args: [8, 256]}\n"
    "    - {_target_: Transpose, dim0: 1, dim1: 2}\n"
    "run:\n"
    "- _call_: train\n"
    "  criterion: CrossEntropyLoss\n"
    "  optimizer: {_target_: Adam, lr: 0.01}\n"
    "  loaders:\n"
    "    train:\n"
    "      _target_: DataLoader\n"
    "      dataset: {_target_: TextStream, path: lines.txt, max_length: 40, next_token: y, shuffle_buffer: "
    "100}\n"
    "      collate_fn: {_target_: PadCollate, keys: [features, targets], pad_values: [0, -100]}\n"
    "      batch_size: 16\n"
    "      num_workers: 2\n"
    "  num_epochs: 2\n"
    "  save_every: 10\n"
    "  seed: 1\n"
    "  logdir: logs\n";

static void write_lines(void)
{
    FILE *file = fopen(path_of("lines.txt"), "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 6001; i++) {
        for (unsigned k = 0; k < 2 + i * 13 % 37; k++) fputc('a' + (int)((i * 31 + k * k) % 23), file);
        fputc('\n', file);
    }
    fclose(file);
}

static pid_t start(const char *logdir)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(folder) != 0 || !freopen("out", "w", stdout) || !freopen("err", "w", stderr)) _exit(3);
    execl(LK_BUILD_DIR "/lockstep", "lockstep", "run", "-C", "c.yml", "--nproc", "3", "--device", "cpu",
          "--logdir", logdir, (char *)NULL);
    _exit(4);
}

/* Waits until something was saved inside the first epoch, and ends the run. */
static void end_early(const char *logdir, int signal_number)
{
    char path[1300];
    struct stat found;
    int status;
    pid_t pid = start(logdir);
    snprintf(path, sizeof path, "%s/%s/checkpoints/runner.last.safetensors", folder, logdir);
    while (stat(path, &found) != 0) {
        if (waitpid(pid, &status, WNOHANG) == pid) fail_msg("the run ended before it had saved anything");
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    assert_int_equal(kill(pid, signal_number), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void a_killed_run_goes_on(void **state)
{
    static const int signals[] = {SIGKILL, SIGTERM};
    char whole[65], words[256];
    (void)state;
    enter("cli_stream");
    write_text("c.yml", config);
    write_lines();
    check_done("run -C c.yml --nproc 3 --device cpu --logdir whole");
    snprintf(whole, sizeof whole, "%s", hash_of("whole/checkpoints/model.last.safetensors"));
    for (int i = 0; i < 2; i++) {
        const char *logdir = i ? "terminated" : "killed";
        end_early(logdir, signals[i]);
        snprintf(words, sizeof words, "run -C c.yml --nproc 3 --device cpu --logdir %s --autoresume last",
                 logdir);
        const said *r = lockstep_in(folder, words);
        assert_int_equal(r->exit_code, 0);
        lkt_contains(r->out, "resumed inside epoch");
        snprintf(words, sizeof words, "%s/checkpoints/model.last.safetensors", logdir);
        assert_string_equal(whole, hash_of(words));
    }
}

static void shuffling_is_refused_at_once(void **state)
{
    (void)state;
    enter("cli_stream");
    write_text("c.yml", config);
    write_lines();
    check_refused(
        folder, "run -C c.yml --loaders/train/shuffle=y", 2,
        "shuffle: the dataset is a stream, which is read in its order: give the stream a shuffle_buffer");
    check_refused(folder, "run -C c.yml --loaders/train/dataset/path=none.txt", 2, "none.txt");
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    enter("cli_stream");
    write_text("c.yml", config);
    write_lines();
    check_done("run -C c.yml --device cpu --num-epochs 1");
    check_refused(folder,
                  "predict -C c.yml -c logs/checkpoints/model.last.safetensors -o out.npy --loader train", 1,
                  "gives predictions of another shape than those before it");
    write_text("none.txt", "");
    check_refused(folder, "run -C c.yml --nproc 3 --loaders/train/dataset/path=none.txt --logdir empty", 1,
                  "loader \"train\" is empty: its stream has no batch");
    check_refused(
        folder,
        "run -C c.yml --nproc 3 --logdir empty --overwrite '--run/0/loaders/valid={_target_: DataLoader, "
        "dataset: {_target_: TextStream, path: none.txt, max_length: 4}}'",
        1, "loader \"valid\" is empty: its stream has no batch");
    check_refused(folder, "run -C c.yml --nproc 2 --shards 2", 1, "shards: loader \"train\" reads a stream");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_killed_run_goes_on),
        cmocka_unit_test(shuffling_is_refused_at_once),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
