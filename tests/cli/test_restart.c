/* lockstep run --max-restarts: a run whose ranks are killed ends with the weights of one that was left alone.
 */
#include "command.h"

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

static void test_refused(void **state)
{
    (void)state;
    check_refused(NULL, "run " CONFIG " --max-restarts 2 --rank 0 --world-size 2 --host localhost", 2,
                  "--max-restarts is for ranks that this process starts itself");
    check_refused(NULL, "run " CONFIG " --max-restarts -1", 2, "--max-restarts: expected at least 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_ranks),
        cmocka_unit_test(test_no_more_than_so_often),
        cmocka_unit_test(test_ctrl_z),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
