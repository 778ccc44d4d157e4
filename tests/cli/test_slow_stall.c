/* A rank that stands still is named within half a minute, by one line that says what it does; when it goes
 * on, so does the job. Jobs of three ranks over shared memory, over Gloo, and with two ranks on one host, at
 * the same time. */
#include "command.h"

#include "comm/comm.h"
#include "comm/net.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>

enum { RANKS = 3, MOST_S = 30 };

/* `hosts`: a letter for each rank. The victim stops so long after the first checkpoint. */
typedef struct stall {
    const char *name, *hosts;
    int victim, after_ms, speaker;
    const char *line[2];
    char folder[1100];
    int port;
    pid_t ranks[RANKS];
} stall;

static void nap(int ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

static void be_the_rank(const stall *job, int rank)
{
    char texts[2][16], name[32], host[2] = {job->hosts[rank], 0};
    snprintf(texts[0], sizeof texts[0], "%d", rank);
    snprintf(texts[1], sizeof texts[1], "%d", job->port);
    if (chdir(job->folder) != 0) _exit(3);
    setenv("LOCKSTEP_HOST_ID", host, 1);
    setenv("LOCKSTEP_TOKEN", "the ranks of test_slow_stall", 1);
    snprintf(name, sizeof name, "err-%d", rank);
    dup2(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
    dup2(open("/dev/null", O_WRONLY), STDOUT_FILENO);
    execl(LK_BUILD_DIR "/lockstep", "lockstep", "run", "-C", LK_SOURCE_DIR "/examples/mnist.yml", "--logdir",
          "logs", "-e", "1000000", "--world-size", "3", "--rank", texts[0], "--host", "127.0.0.1", "--port",
          texts[1], (char *)NULL);
    _exit(4);
}

static void start(stall *job, const char *folder, int number)
{
    int fd;
    job->port = 0;
    lkt_ok(lki_net_listen(&fd, &job->port));
    close(fd);
    snprintf(job->folder, sizeof job->folder, "%s/%d", folder, number);
    assert_int_equal(mkdir(job->folder, 0755), 0);
    for (int rank = 0; rank < RANKS; rank++)
        if ((job->ranks[rank] = fork()) == 0) be_the_rank(job, rank);
}

static void wait_for_checkpoint(const stall *job)
{
    char path[1300];
    struct stat found;
    int status;
    snprintf(path, sizeof path, "%s/logs/checkpoints/runner.last.safetensors", job->folder);
    while (stat(path, &found) != 0) {
        if (waitpid(job->ranks[0], &status, WNOHANG) != 0) fail_msg("%s: rank 0 has ended", job->name);
        nap(2);
    }
}

static void expect_line(const stall *job)
{
    char path[1300], text[16384] = "";
    snprintf(path, sizeof path, "%s/err-%d", job->folder, job->speaker);
    for (int i = 0; i < MOST_S * 10; i++, nap(100)) {
        read_whole(path, text, sizeof text);
        if (strstr(text, job->line[0]) && strstr(text, job->line[1])) return;
    }
    fail_msg("%s: no \"%s ... %s\" in: %s", job->name, job->line[0], job->line[1], text);
}

static void end(const stall *job)
{
    int status;
    kill(job->ranks[job->victim], SIGCONT);
    nap(500);
    for (int rank = 0; rank < RANKS; rank++) kill(job->ranks[rank], SIGTERM);
    for (int rank = 0; rank < RANKS; rank++) {
        assert_int_equal(waitpid(job->ranks[rank], &status, 0), job->ranks[rank]);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGTERM)
            fail_msg("%s: rank %d ended with status %d", job->name, rank, status);
    }
}

static void test_who_is_behind_is_named(void **state)
{
    (void)state;
    static stall jobs[] = {
        {.name = "shm",
         .hosts = "aaa",
         .victim = 1,
         .after_ms = 30,
         .speaker = 0,
         .line = {"rank 0 of 3 has waited 15 s in ", "rank 1 "}},
        {.name = "shm, rank 0",
         .hosts = "aaa",
         .victim = 0,
         .after_ms = 55,
         .speaker = 1,
         .line = {"rank 1 of 3 has waited 15 s in ", "stopped by a signal"}},
        {.name = "hosts",
         .hosts = "abc",
         .victim = 2,
         .after_ms = 45,
         .speaker = 0,
         .line = {"rank 0 of 3 has waited 15 s in ", "rank 2 "}},
        {.name = "hosts, rank 0",
         .hosts = "abc",
         .victim = 0,
         .after_ms = 20,
         .speaker = 1,
         .line = {"rank 1 has waited 15 s for rank 0 at 127.0.0.1:", "silent"}},
        {.name = "two on a host",
         .hosts = "aab",
         .victim = 1,
         .after_ms = 10,
         .speaker = 0,
         .line = {"rank 0 of 3 has waited 15 s in ", "stopped by a signal"}},
    };
    enum { COUNT = sizeof jobs / sizeof *jobs };
    if (!lki_comm_has_gloo()) skip();
    char folder[1024];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("cli_slow_stall"));
    for (int i = 0; i < COUNT; i++) start(&jobs[i], folder, i);
    for (int i = 0; i < COUNT; i++) {
        wait_for_checkpoint(&jobs[i]);
        nap(jobs[i].after_ms);
        kill(jobs[i].ranks[jobs[i].victim], SIGSTOP);
    }
    for (int i = 0; i < COUNT; i++) expect_line(&jobs[i]);
    for (int i = 0; i < COUNT; i++) end(&jobs[i]);
}

/* The rank for which the others wait is told at the end of a verbose run. */
static void test_stragglers(void **state)
{
    (void)state;
    const char *config = "run -C " LK_SOURCE_DIR "/examples/mnist.yml -e 2 --logdir logs --overwrite ";
    char words[600];
    const char *folder = lkt_scratch_folder("cli_slow_stall");
    snprintf(words, sizeof words, "%s--nproc 2 --verbose", config);
    const said *r = lockstep_in(folder, words);
    assert_int_equal(r->exit_code, 0);
    lkt_contains(r->out, "the ranks waited for each other ");
    snprintf(words, sizeof words, "%s--nproc 2", config);
    r = lockstep_in(folder, words);
    assert_null(strstr(r->out, "the ranks waited for each other "));
    snprintf(words, sizeof words, "%s--nproc 1 --verbose", config);
    r = lockstep_in(folder, words);
    assert_null(strstr(r->out, "the ranks waited for each other "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_who_is_behind_is_named),
        cmocka_unit_test(test_stragglers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
