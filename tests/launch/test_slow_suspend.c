/* A job of two hosts that is stopped as a whole and goes on: longer than any reply of the store
 * and than any collective may take. */
#define _GNU_SOURCE
#include "../comm/ranks.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "launch/connect.h"

#include <signal.h>

enum { RANKS = 3, STOPPED_S = 25, BEFORE_S = 3, AFTER_S = 6 };

/* Collectives and pauses until well after the stop: some of the ranks are in one of each when it comes. */
static int be_a_rank(int rank, int port)
{
    lki_launch_flags flags = {
        .world_size = RANKS, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = port};
    int64_t end_ns = lki_now_ns() + (BEFORE_S + STOPPED_S + AFTER_S) * 1000000000LL;
    lki_role role;
    lk_comm *comm = NULL;
    setenv("LOCKSTEP_HOST_ID", rank == 2 ? "b" : "a", 1);
    lk_status status = lki_launch_role(&role, &flags, NULL, 0);
    if (status == LK_OK)
        status = lki_comm_connect(
            &comm, &role,
            &(lki_connect_options){.join_timeout_ms = 60000, .timeout_ms = 10000, .no_pinning = true});
    for (float over = 0; status == LK_OK && over == 0;) {
        over = lki_now_ns() >= end_ns;
        status = lk_comm_all_reduce(comm, &over, 1, LK_F32, LK_REDUCE_MIN);
        if (rank == 1) nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    }
    if (status != LK_OK) fprintf(stderr, "rank %d: %s\n", rank, lk_error());
    lk_comm_free(comm);
    return status != LK_OK;
}

static void send_all(const pid_t *pids, int number)
{
    for (int r = 0; r < RANKS; r++) assert_int_equal(kill(pids[r], number), 0);
}

static void a_stopped_job_goes_on(void **state)
{
    (void)state;
    int fd, port = 0, failed = 0;
    pid_t pids[RANKS];
    if (!lki_comm_has_gloo()) {
        print_message("built without Gloo\n");
        skip();
    }
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    for (int r = 0; r < RANKS; r++)
        if ((pids[r] = fork()) == 0) _exit(be_a_rank(r, port));
    sleep(BEFORE_S);
    send_all(pids, SIGSTOP);
    sleep(STOPPED_S);
    send_all(pids, SIGCONT);
    for (int r = 0; r < RANKS; r++) {
        int status;
        assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
        failed += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    assert_int_equal(failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_stopped_job_goes_on)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
