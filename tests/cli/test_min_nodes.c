/* lockstep run --min-nodes: a job whose host is gone for good goes on without it, and takes it back. Each
 * rank has a LOCKSTEP_HOST_ID of its own, so that each counts as a host. */
#include "command.h"

#include "comm/comm.h"
#include "comm/net.h"

#include <lockstep/checkpoint.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

enum { MOST = 4 };

static char folder[1024];
static int port;

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
}

static void new_job(void)
{
    int fd;
    port = 0;
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_min_nodes"));
}

static void be_the_rank(int rank, int size, const char *const *words)
{
    char texts[3][16], name[32];
    const char *line[48] = {"lockstep",     "run",       "-C",     LK_SOURCE_DIR "/examples/mnist.yml",
                            "--world-size", texts[0],    "--rank", texts[1],
                            "--host",       "127.0.0.1", "--port", texts[2]};
    int count = 12;
    snprintf(texts[0], sizeof texts[0], "%d", size);
    snprintf(texts[1], sizeof texts[1], "%d", rank);
    snprintf(texts[2], sizeof texts[2], "%d", port);
    while (*words) line[count++] = *words++;
    if (chdir(folder) != 0) _exit(3);
    snprintf(name, sizeof name, "host %d", rank);
    setenv("LOCKSTEP_HOST_ID", name, 1);
    setenv("LOCKSTEP_TOKEN", "the ranks of test_min_nodes", 1);
    setenv("LOCKSTEP_JOIN_TIMEOUT", "300", 1);
    setenv("LOCKSTEP_NODE_TIMEOUT", "3", 1);
    snprintf(name, sizeof name, "err-%d", rank);
    dup2(open(name, O_WRONLY | O_CREAT | O_APPEND, 0644), STDERR_FILENO);
    snprintf(name, sizeof name, "out-%d", rank);
    dup2(open(name, O_WRONLY | O_CREAT | O_APPEND, 0644), STDOUT_FILENO);
    execv(LK_BUILD_DIR "/lockstep", (char *const *)line);
    _exit(4);
}

static pid_t start(int rank, int size, const char *const *words)
{
    pid_t pid = fork();
    if (pid == 0) be_the_rank(rank, size, words);
    return pid;
}

static void start_all(pid_t *runs, int size, const char *const *words)
{
    for (int rank = 0; rank < size; rank++) runs[rank] = start(rank, size, words);
}

static void read_of(const char *kind, int rank, char *text, size_t capacity)
{
    char path[1300];
    snprintf(path, sizeof path, "%s/%s-%d", folder, kind, rank);
    read_whole(path, text, capacity);
}

static void expect_end(const pid_t *runs, int size, int but, int exit_code)
{
    char text[16384];
    for (int rank = 0; rank < size; rank++) {
        int status;
        if (rank == but) continue;
        assert_int_equal(waitpid(runs[rank], &status, 0), runs[rank]);
        read_of("err", rank, text, sizeof text);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != exit_code)
            fail_msg("rank %d, status %d: %s", rank, status, text);
    }
}

static ino_t checkpoint(void)
{
    char path[1300];
    struct stat found;
    snprintf(path, sizeof path, "%s/logs/checkpoints/runner.last.safetensors", folder);
    return stat(path, &found) == 0 ? found.st_ino : 0;
}

/* Until the job has saved its place once more. */
static void wait_for_save(pid_t run)
{
    ino_t before = checkpoint();
    char text[16384];
    for (int status; checkpoint() == before; nap()) {
        if (waitpid(run, &status, WNOHANG) != run) continue;
        read_of("err", 0, text, sizeof text);
        fail_msg("the job has ended: %s", text);
    }
}

static void wait_for_line(pid_t run, int rank, const char *line)
{
    char text[65536];
    for (int status;; nap()) {
        read_of("err", rank, text, sizeof text);
        if (strstr(text, line)) return;
        if (waitpid(run, &status, WNOHANG) == run) fail_msg("no \"%s\" in: %s", line, text);
    }
}

/* The waiting process goes, and its rank with it: nobody starts either again. */
static void lose(pid_t *run)
{
    int status;
    kill(*run, SIGKILL);
    assert_int_equal(waitpid(*run, &status, 0), *run);
}

static void weights(char hash[LK_HASH_LENGTH + 1])
{
    char path[1300];
    snprintf(path, sizeof path, "%s/logs/checkpoints/model.last.safetensors", folder);
    lk_state_dict *state = lk_load_safetensors(path);
    lkt_not_null(state);
    lkt_ok(lk_weights_hash(state, hash));
    lk_state_dict_free(state);
}

/* Hosts speak Gloo with each other. */
static void need_gloo(void)
{
    if (!lki_comm_has_gloo()) skip();
}

static void test_gone_for_good(void **state)
{
    (void)state;
    need_gloo();
    const char *words[] = {"--logdir",       "logs", "-e",          "12", "-b", "128",
                           "--max-restarts", "1",    "--min-nodes", "2",  NULL};
    char text[16384];
    pid_t runs[MOST];
    new_job();
    start_all(runs, 3, words);
    wait_for_save(runs[0]);
    lose(&runs[1]);
    expect_end(runs, 3, 1, 0);
    read_of("err", 0, text, sizeof text);
    lkt_contains(text, "rank 1 on 127.0.0.1 died");
    lkt_contains(text, "restart 1 of 1, from logs/checkpoints/runner.last.safetensors");
    lkt_contains(text,
                 "rank 1 has not come within 3 s: 2 of 3 ranks go on, numbered from 0; 2 nodes are left");
    read_of("out", 0, text, sizeof text);
    lkt_contains(text, "epoch 12/12");
    lkt_contains(text, "2 ranks over gloo; batch 128, global batch 256");
}

/* All but one may go: the last rank trains alone, and still has a door at which others wait. */
static void test_the_last_takes_back(void **state)
{
    (void)state;
    need_gloo();
    const char *words[] = {"--logdir", "logs",        "-e", "1000000", "--max-restarts",
                           "1",        "--min-nodes", "1",  NULL};
    char text[65536];
    pid_t runs[MOST];
    int status;
    new_job();
    start_all(runs, 3, words);
    wait_for_save(runs[0]);
    lose(&runs[2]);
    lose(&runs[1]);
    wait_for_line(runs[0], 0, "ranks 1, 2 have not come within 3 s: 1 of 3 ranks go on");
    wait_for_save(runs[0]);
    runs[2] = start(2, 3, words);
    wait_for_line(runs[0], 0, "rank 2 has come back: taken in after epoch");
    wait_for_line(runs[0], 0, "rank 1 has not come within 3 s: 2 of 3 ranks go on");
    wait_for_save(runs[0]);
    kill(runs[2], SIGTERM);
    for (int rank = 0; rank < 3; rank += 2) {
        assert_int_equal(waitpid(runs[rank], &status, 0), runs[rank]);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    read_of("err", 0, text, sizeof text);
    lkt_contains(text, "the ranks meet again, to go on from logs/checkpoints/runner.last.safetensors");
    assert_null(strstr(text, "restart 2"));
    read_of("err", 2, text, sizeof text);
    lkt_contains(text,
                 "rank 2 waits: the job goes on without this rank, and takes it in at the end of an epoch");
}

/* Of three that are left two can share four shards; the third waits as well. */
static void test_same_bits_with_shards(void **state)
{
    (void)state;
    need_gloo();
    const char *alone[] = {"--logdir", "logs", "-e", "6", "-b", "64", "--shards", "4", NULL};
    const char *words[] = {
        "--logdir",       "logs", "-e",          "6", "-b",           "64", "--shards", "4",
        "--max-restarts", "2",    "--min-nodes", "2", "--save-every", "3",  NULL};
    char expected[LK_HASH_LENGTH + 1], actual[LK_HASH_LENGTH + 1], text[16384];
    pid_t runs[MOST];
    new_job();
    start_all(runs, 1, alone);
    expect_end(runs, 1, -1, 0);
    weights(expected);
    new_job();
    start_all(runs, 4, words);
    for (int i = 0; i < 3; i++) wait_for_save(runs[0]);
    lose(&runs[2]);
    wait_for_line(runs[0], 0, "rank 2 has not come within 3 s: 2 of 4 ranks go on");
    runs[2] = start(2, 4, words);
    expect_end(runs, 4, -1, 0);
    read_of("err", 0, text, sizeof text);
    lkt_contains(text, "1 more waits, as 4 shards need fewer");
    lkt_contains(text, "ranks 2, 3 have come back: taken in after epoch");
    weights(actual);
    assert_string_equal(actual, expected);
}

static void test_too_few(void **state)
{
    (void)state;
    need_gloo();
    const char *words[] = {"--logdir", "logs",        "-e", "1000000", "--max-restarts",
                           "5",        "--min-nodes", "3",  NULL};
    char text[16384];
    pid_t runs[MOST];
    new_job();
    start_all(runs, 3, words);
    wait_for_save(runs[0]);
    lose(&runs[2]);
    expect_end(runs, 3, 2, 1);
    for (int rank = 0; rank < 2; rank++) {
        read_of("err", rank, text, sizeof text);
        lkt_contains(text,
                     "2 nodes are left after waiting 3 s for rank 2: these are fewer than --min-nodes 3");
        assert_null(strstr(text, "restart 2"));
    }
}

/* Rank 0 has the checkpoints: the others wait until it is started again, and go on from them. */
static void test_rank_0_comes_back(void **state)
{
    (void)state;
    need_gloo();
    const char *words[] = {"--logdir",       "logs", "-e",          "12", "-b", "128",
                           "--max-restarts", "1",    "--min-nodes", "2",  NULL};
    char text[16384];
    pid_t runs[MOST];
    new_job();
    start_all(runs, 3, words);
    wait_for_save(runs[0]);
    lose(&runs[0]);
    runs[0] = start(0, 3, words);
    expect_end(runs, 3, -1, 0);
    read_of("err", 0, text, sizeof text);
    lkt_contains(
        text, "the other ranks were started again: going on from logs/checkpoints/runner.last.safetensors");
}

#define RUN     "run -C " LK_SOURCE_DIR "/examples/mnist.yml --logdir logs -e 1 --min-nodes 2 "
#define BY_HAND "--world-size 2 --rank 0 --host 127.0.0.1 "

static void test_refused(void **state)
{
    (void)state;
    check_refused(NULL, RUN BY_HAND, 2, "min_nodes: ranks that lose one have to be started again to go on");
    check_refused(NULL, RUN "--max-restarts 1 --nproc 2", 2,
                  "min_nodes: these ranks are forked by one process");
    check_refused(NULL, "run -C " LK_SOURCE_DIR "/examples/mnist.yml --min-nodes 0", 2,
                  "--min-nodes: expected at least 1");
    check_refused(NULL, RUN BY_HAND "--max-restarts 1 --min-nodes 3", 2,
                  "min_nodes: expected a number from 1 to 2, the number of ranks, found 3");
    check_refused(NULL, RUN BY_HAND "--max-restarts 1 --comm mpi", 2, "min_nodes: MPI ends a job that loses");
    new_job();
    const said *r =
        lockstep_in(folder, "run -C " LK_SOURCE_DIR "/examples/mnist.yml --logdir logs -e 1 --min-nodes 1 "
                            "--world-size 1 --rank 0 --max-restarts 1 --save-every 2");
    assert_int_equal(r->exit_code, 1);
    lkt_contains(r->err, "min_nodes: other ranks cannot go on inside an epoch: add shards");
    assert_int_equal(setenv("OMPI_COMM_WORLD_RANK", "0", 1) | setenv("OMPI_COMM_WORLD_SIZE", "2", 1), 0);
    check_refused(NULL, RUN "--max-restarts 1", 2, "min_nodes: MPI ends a job that loses a process");
    assert_int_equal(unsetenv("OMPI_COMM_WORLD_RANK") | unsetenv("OMPI_COMM_WORLD_SIZE"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gone_for_good),         cmocka_unit_test(test_the_last_takes_back),
        cmocka_unit_test(test_same_bits_with_shards), cmocka_unit_test(test_too_few),
        cmocka_unit_test(test_rank_0_comes_back),     cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
