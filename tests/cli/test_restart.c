/* lockstep run --max-restarts: a run whose ranks are killed ends with the weights of one that was left alone.
 */
#include "command.h"

#include "comm/comm.h"
#include "comm/net.h"

#include <lockstep/checkpoint.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

#define CONFIG "-C " LK_SOURCE_DIR "/examples/mnist.yml --nproc 2"

static char folder[1024];

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

/* The command as a child of ours, its stderr in FOLDER/err. */
static pid_t start(const char *logdir, const char *epochs, const char *max_restarts)
{
    pid_t pid = fork();
    if (pid != 0) return pid;
    if (chdir(folder) != 0) _exit(3);
    int fd = open("err", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    dup2(fd, STDERR_FILENO);
    dup2(open("out", O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
    execl(LK_BUILD_DIR "/lockstep", "lockstep", "run", "-C", LK_SOURCE_DIR "/examples/mnist.yml", "--nproc",
          "2", "--num-epochs", epochs, "--logdir", logdir, "--overwrite", "--max-restarts", max_restarts,
          (char *)NULL);
    _exit(4);
}

/* The first process that `parent` has forked; 0: none. */
static pid_t child_of(pid_t parent)
{
    char path[64];
    int pid = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%d", &pid) != 1) pid = 0;
    fclose(file);
    return pid;
}

static bool ended(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) == pid;
}

/* The checkpoint's inode: every one written is a new file. */
static ino_t checkpoint(const char *logdir)
{
    char path[1300];
    struct stat found;
    snprintf(path, sizeof path, "%s/%s/checkpoints/runner.last.safetensors", folder, logdir);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

/* Kills rank 0 or rank 1 once the attempt has saved something of its own. False where the run ended before
 * that. */
static bool kill_rank(pid_t run, const char *logdir, int rank, pid_t *last_attempt, int *status)
{
    ino_t before = checkpoint(logdir);
    for (;;) {
        pid_t attempt = child_of(run), other = attempt ? child_of(attempt) : 0;
        if (ended(run, status)) return false;
        if (attempt && other && attempt != *last_attempt && checkpoint(logdir) != before) {
            *last_attempt = attempt;
            kill(rank == 0 ? attempt : other, SIGKILL);
            return true;
        }
        nap();
    }
}

static void weights_of(const char *logdir, char hash[LK_HASH_LENGTH + 1])
{
    char path[1300];
    snprintf(path, sizeof path, "%s/%s/checkpoints/model.last.safetensors", folder, logdir);
    lk_state_dict *weights = lk_load_safetensors(path);
    lkt_not_null(weights);
    lkt_ok(lk_weights_hash(weights, hash));
    lk_state_dict_free(weights);
}

static void need_children_files(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)getpid(), (int)getpid());
    if (access(path, R_OK) == 0) return;
    print_message("this kernel does not say who is whose child\n");
    skip();
}

static void test_killed_ranks(void **state)
{
    (void)state;
    char expected[LK_HASH_LENGTH + 1], actual[LK_HASH_LENGTH + 1], text[16384], path[1300];
    need_children_files();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    const said *r = lockstep_in(folder, "run " CONFIG " --num-epochs 20 --logdir alone");
    assert_int_equal(r->exit_code, 0);
    weights_of("alone", expected);
    int status = 0;
    pid_t attempt = 0, run = start("killed", "20", "2");
    assert_true(kill_rank(run, "killed", 1, &attempt, &status));
    assert_true(kill_rank(run, "killed", 0, &attempt, &status));
    assert_int_equal(waitpid(run, &status, 0), run);
    snprintf(path, sizeof path, "%s/err", folder);
    read_whole(path, text, sizeof text);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) fail_msg("status %d: %s", status, text);
    lkt_contains(text, "rank 1 on ");
    lkt_contains(text, "was killed by signal 9 (Killed)");
    lkt_contains(text, "restart 1 of 2, from killed/checkpoints/runner.last.safetensors");
    lkt_contains(text, "rank 0 (process ");
    lkt_contains(text, "restart 2 of 2, from killed/checkpoints/runner.last.safetensors");
    weights_of("killed", actual);
    assert_string_equal(actual, expected);
}

static void test_no_more_than_so_often(void **state)
{
    (void)state;
    char text[16384], path[1300];
    need_children_files();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    int status = 0;
    pid_t attempt = 0, run = start("logs", "100", "1");
    assert_true(kill_rank(run, "logs", 1, &attempt, &status));
    assert_true(kill_rank(run, "logs", 1, &attempt, &status));
    assert_int_equal(waitpid(run, &status, 0), run);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    snprintf(path, sizeof path, "%s/err", folder);
    read_whole(path, text, sizeof text);
    lkt_contains(text, "restart 1 of 1");
    assert_null(strstr(text, "restart 2"));
    /* A run that was asked to stop is not started again. */
    run = start("stopped", "100", "5");
    while (!checkpoint("stopped")) nap();
    kill(run, SIGTERM);
    assert_int_equal(waitpid(run, &status, 0), run);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    read_whole(path, text, sizeof text);
    lkt_contains(text, "stopped by a signal in epoch");
    lkt_contains(text, "saved stopped/checkpoints/runner.last.safetensors; go on with:\n");
    lkt_contains(text, "--max-restarts 5 --autoresume last\n");
    assert_null(strstr(text, "restart 1 of"));
}

/* Ctrl-Z stops the one that waits, the attempt and its other rank; fg lets all of them go on. */
static void test_ctrl_z(void **state)
{
    (void)state;
    need_children_files();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    int status = 0;
    pid_t run = start("paused", "100000", "1");
    while (!checkpoint("paused")) nap();
    for (int round = 0; round < 2; round++) {
        pid_t family[] = {run, child_of(run), child_of(child_of(run))};
        for (int i = 0; i < 3; i++) assert_true(family[i] > 0);
        kill(run, SIGTSTP);
        for (int i = 0; i < 3; i++) lkt_until_stopped(family[i], true);
        ino_t before = checkpoint("paused");
        kill(run, SIGCONT);
        for (int i = 0; i < 3; i++) lkt_until_stopped(family[i], false);
        while (checkpoint("paused") == before) nap();
    }
    kill(run, SIGTERM);
    assert_int_equal(waitpid(run, &status, 0), run);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
}

/* ---- Ranks that are started one by one: each has a process that waits ---- */

enum { HAND_COUNT = 3 };

static int port_of_test(void)
{
    int fd, port = 0;
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    return port;
}

/* Rank `rank` of a job by hand, its stderr in FOLDER/err-RANK. More words may follow. */
static pid_t start_by_hand(int rank, int port, const char *const *words)
{
    char number[16], port_text[16], err[32];
    const char *line[32] = {"lockstep",     "run",       "-C",     LK_SOURCE_DIR "/examples/mnist.yml",
                            "--world-size", "3",         "--rank", number,
                            "--host",       "127.0.0.1", "--port", port_text};
    int count = 12;
    pid_t pid = fork();
    if (pid != 0) return pid;
    snprintf(number, sizeof number, "%d", rank);
    snprintf(port_text, sizeof port_text, "%d", port);
    snprintf(err, sizeof err, "err-%d", rank);
    while (*words) line[count++] = *words++;
    if (chdir(folder) != 0) _exit(3);
    setenv("LOCKSTEP_TOKEN", "the ranks of test_restart", 1);
    setenv("LOCKSTEP_JOIN_TIMEOUT", "300", 1);
    dup2(open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execv(LK_BUILD_DIR "/lockstep", (char *const *)line);
    _exit(4);
}

static void read_err(int rank, char *text, size_t capacity)
{
    char path[1300];
    snprintf(path, sizeof path, "%s/err-%d", folder, rank);
    read_whole(path, text, capacity);
}

static void wait_for_hands(const pid_t *runs, int exit_code)
{
    char text[16384];
    for (int rank = 0; rank < HAND_COUNT; rank++) {
        int status;
        assert_int_equal(waitpid(runs[rank], &status, 0), runs[rank]);
        read_err(rank, text, sizeof text);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != exit_code)
            fail_msg("rank %d, status %d: %s", rank, status, text);
    }
}

/* One after the other: rank 1, and rank 0, which has the store and the checkpoints. */
static void check_by_hand(const char *comm)
{
    const char *words[] = {"--logdir",    "hands",          "-e", "8",      "-b", "128",
                           "--overwrite", "--max-restarts", "3",  "--comm", comm, NULL};
    char text[16384], expected[LK_HASH_LENGTH + 1], actual[LK_HASH_LENGTH + 1];
    static const int victims[] = {1, 0};
    pid_t runs[HAND_COUNT], attempts[HAND_COUNT] = {0};
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    int port = port_of_test(), status;
    const char *alone[] = {"--logdir", "alone", "-e", "8", "-b", "128", "--comm", comm, NULL};
    for (int rank = 0; rank < HAND_COUNT; rank++) runs[rank] = start_by_hand(rank, port, alone);
    wait_for_hands(runs, 0);
    weights_of("alone", expected);
    for (int rank = 0; rank < HAND_COUNT; rank++) runs[rank] = start_by_hand(rank, port, words);
    for (int i = 0; i < 2; i++) {
        ino_t before = checkpoint("hands");
        pid_t attempt = 0;
        while (checkpoint("hands") == before || attempt == 0 || attempt == attempts[victims[i]]) {
            assert_false(ended(runs[0], &status));
            attempt = child_of(runs[victims[i]]);
            nap();
        }
        for (int rank = 0; rank < HAND_COUNT; rank++) attempts[rank] = child_of(runs[rank]);
        kill(attempt, SIGKILL);
    }
    wait_for_hands(runs, 0);
    read_err(0, text, sizeof text);
    lkt_contains(text, "rank 0 (process ");
    lkt_contains(text, "restart 2 of 3, from hands/checkpoints/runner.last.safetensors");
    weights_of("hands", actual);
    assert_string_equal(actual, expected);
}

static void test_by_hand(void **state)
{
    (void)state;
    need_children_files();
    check_by_hand("auto");
}

static void test_by_hand_over_gloo(void **state)
{
    (void)state;
    need_children_files();
    if (!lki_comm_has_gloo()) skip();
    check_by_hand("gloo");
}

/* What a rank did wrong itself ends the job: no other attempt is made, and all have its sentence. */
static void test_own_failure(void **state)
{
    (void)state;
    pid_t runs[HAND_COUNT];
    char text[16384];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    char path[1300];
    snprintf(path, sizeof path, "%s/no-folder", folder);
    close(open(path, O_WRONLY | O_CREAT, 0644));
    const char *words[] = {"--logdir", "no-folder/logs", "--num-epochs", "1", "--max-restarts", "3", NULL};
    int port = port_of_test();
    for (int rank = 0; rank < HAND_COUNT; rank++) runs[rank] = start_by_hand(rank, port, words);
    wait_for_hands(runs, 1);
    for (int rank = 0; rank < HAND_COUNT; rank++) {
        read_err(rank, text, sizeof text);
        lkt_contains(text, "no-folder");
        assert_null(strstr(text, "restart 1 of"));
    }
}

/* Told to stop, one rank tells the others, and no attempt follows. */
static void test_stop_by_hand(void **state)
{
    (void)state;
    pid_t runs[HAND_COUNT];
    char text[16384];
    need_children_files();
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_restart"));
    const char *words[] = {"--logdir", "hands", "--num-epochs", "100000", "--max-restarts", "3", NULL};
    int port = port_of_test();
    for (int rank = 0; rank < HAND_COUNT; rank++) runs[rank] = start_by_hand(rank, port, words);
    while (!checkpoint("hands")) nap();
    kill(runs[1], SIGTERM);
    for (int rank = 0; rank < HAND_COUNT; rank++) {
        int status;
        assert_int_equal(waitpid(runs[rank], &status, 0), runs[rank]);
        read_err(rank, text, sizeof text);
        lkt_contains(text, "stopped by a signal in epoch");
        assert_null(strstr(text, "restart 1 of"));
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
}

static void test_refused(void **state)
{
    (void)state;
    const said *r =
        lockstep("run " CONFIG " --max-restarts 2 --rank 0 --world-size 2 --host localhost --comm mpi");
    assert_int_equal(r->exit_code, 2);
    lkt_contains(r->err, "--comm mpi: MPI cannot start a lost rank again");
    assert_null(strstr(r->err, "restart 1 of"));
    check_refused(NULL, "run " CONFIG " --max-restarts -1", 2, "--max-restarts: expected at least 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_ranks),
        cmocka_unit_test(test_no_more_than_so_often),
        cmocka_unit_test(test_ctrl_z),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_by_hand_over_gloo),
        cmocka_unit_test(test_own_failure),
        cmocka_unit_test(test_stop_by_hand),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
