/* Forked ranks: results, failures of every kind, and that nobody is left behind. */
#define _GNU_SOURCE
#include "lktest.h"

#include "base/clock.h"
#include "base/status.h"
#include "comm/comm.h"
#include "launch/connect.h"
#include "launch/ranks.h"

#include <lockstep/launch.h>

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct shared_state {
    _Atomic int pids[16];
    _Atomic int sum;
    _Atomic int64_t failed_ns; /* when the rank that fails was about to */
} shared_state;

static shared_state *shared;
static float result[100];

static int share(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED;
}

static void start_over(void)
{
    memset(shared, 0, sizeof *shared);
}

static lk_status join_comm(lk_comm **comm)
{
    const lki_role *role = lki_process_role();
    atomic_store(&shared->pids[role->rank], (int)getpid());
    if (role->world_size == 1) return lki_comm_self_create(comm);
    lki_shm_options options = {.rank = role->rank, .size = role->world_size, .fd = role->shm_fd};
    return lki_comm_shm_create(comm, &options);
}

static void assert_all_gone(int count)
{
    for (int rank = 1; rank < count; rank++) {
        pid_t pid = atomic_load(&shared->pids[rank]);
        if (pid && (kill(pid, 0) == 0 || errno != ESRCH))
            fail_msg("rank %d (process %d) is still there", rank, (int)pid);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child, not even a zombie */
    assert_int_equal(lk_rank(), 0);
    assert_int_equal(lk_world_size(), 1);
}

/* Before and after a run too, so that a program prints on one rank alone. */
static void the_environment_says_which_rank_this_is(void **state)
{
    (void)state;
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "3", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    assert_int_equal(lk_rank(), 1);
    assert_int_equal(lk_world_size(), 3);
    assert_int_equal(lk_local_rank(), 0);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    unsetenv("MASTER_ADDR");
    assert_int_equal(lk_rank(), 0);
    assert_int_equal(lk_world_size(), 1);
}

static lk_status adds_up(void *context)
{
    lk_comm *comm = NULL;
    LKI_TRY(join_comm(&comm));
    for (int i = 0; i < 100; i++) result[i] = (float)(lk_rank() + *(int *)context);
    LKI_TRY(lk_comm_all_reduce(comm, result, 100, LK_F32, LK_REDUCE_SUM));
    atomic_fetch_add(&shared->sum, lk_rank() + 1);
    lk_comm_free(comm);
    return LK_OK;
}

static void the_caller_is_rank_0_and_holds_the_result(void **state)
{
    (void)state;
    int start = 10;
    for (int nproc = 1; nproc <= 4; nproc++) {
        start_over();
        lkt_ok(lk_distributed_run(adds_up, &start, .nproc = nproc));
        for (int i = 0; i < 100; i++) assert_true(result[i] == (float)(nproc * 10 + nproc * (nproc - 1) / 2));
        assert_int_equal(atomic_load(&shared->sum), nproc * (nproc + 1) / 2);
        assert_all_gone(nproc);
    }
}

/* Rank `victim` of three ends in one of several ways; the others wait for it in a collective. */
typedef enum way_to_go { RETURNS_ERROR, KILLED, SEGFAULTS, EXITS, EXITS_TOO_SOON, RETURNS_WELL } way_to_go;

typedef struct ending {
    way_to_go way;
    int victim;
} ending;

static lk_status end_somehow(way_to_go way)
{
    atomic_store(&shared->failed_ns, lki_now_ns());
    fprintf(stderr, "first words\nabout to go\nfamous last words");
    switch (way) {
    case RETURNS_ERROR: return lki_fail(LK_ERR_NAN, "the loss is not a number at step 7");
    case KILLED: raise(SIGKILL); break;
    case SEGFAULTS:
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
        break;
    case EXITS: _exit(7);
    case EXITS_TOO_SOON: _exit(0);
    case RETURNS_WELL: break;
    }
    return LK_OK;
}

static lk_status one_goes(void *context)
{
    const ending *end = context;
    lk_comm *comm = NULL;
    float value = 1;
    LKI_TRY(join_comm(&comm));
    LKI_TRY(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM));
    lk_status status = lk_rank() == end->victim ? end_somehow(end->way) : lk_comm_barrier(comm);
    lk_comm_free(comm);
    return status;
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    start_over();
    lkt_fails(lk_distributed_run(one_goes, &((ending){RETURNS_ERROR, 2}), .nproc = 3), LK_ERR_NAN,
              "rank 2 on ");
    lkt_contains(lk_error(), "failed: the loss is not a number at step 7");
    assert_all_gone(3);
    lkt_fails(lk_distributed_run(one_goes, &((ending){KILLED, 1}), .nproc = 3), LK_ERR_PEER, "rank 1 on ");
    lkt_contains(
        lk_error(),
        "was killed by signal 9 (Killed); last lines: first words | about to go | famous last words");
    assert_all_gone(3);
    lkt_fails(lk_distributed_run(one_goes, &((ending){SEGFAULTS, 1}), .nproc = 2), LK_ERR_PEER, "signal 11");
    assert_all_gone(2);
    lkt_fails(lk_distributed_run(one_goes, &((ending){EXITS, 1}), .nproc = 3), LK_ERR_PEER,
              "exited with status 7");
    assert_all_gone(3);
    lkt_fails(lk_distributed_run(one_goes, &((ending){EXITS_TOO_SOON, 1}), .nproc = 2), LK_ERR_PEER,
              "ended before its work was done");
    assert_all_gone(2);
}

/* A program that ignores SIGCHLD never learns how a child ended, only that it did. */
static void nobody_waits_for_children(void **state)
{
    (void)state;
    int start = 10;
    start_over();
    void (*before)(int) = signal(SIGCHLD, SIG_IGN);
    lkt_ok(lk_distributed_run(adds_up, &start, .nproc = 3));
    assert_all_gone(3);
    lkt_fails(lk_distributed_run(one_goes, &((ending){RETURNS_ERROR, 2}), .nproc = 3), LK_ERR_NAN,
              "failed: the loss is not a number at step 7");
    lkt_fails(lk_distributed_run(one_goes, &((ending){KILLED, 1}), .nproc = 3), LK_ERR_PEER,
              "ended before its work was done; last lines: first words");
    assert_all_gone(3);
    signal(SIGCHLD, before);
}

static void the_callers_own_failure_is_reported(void **state)
{
    (void)state;
    start_over();
    lkt_fails(lk_distributed_run(one_goes, &((ending){RETURNS_ERROR, 0}), .nproc = 3), LK_ERR_NAN,
              "the loss is not a number at step 7");
    assert_all_gone(3);
}

/* A rank that ignores everything but SIGKILL while another fails. */
static lk_status stubborn(void *context)
{
    (void)context;
    lk_comm *comm = NULL;
    LKI_TRY(join_comm(&comm));
    LKI_TRY(lk_comm_barrier(comm));
    if (lk_rank() == 1) {
        signal(SIGTERM, SIG_IGN);
        for (;;) pause();
    }
    lk_comm_free(comm);
    if (lk_rank() != 2) return LK_OK;
    atomic_store(&shared->failed_ns, lki_now_ns());
    return lki_fail(LK_ERR_IO, "the disk is full");
}

static void a_stubborn_rank_is_killed(void **state)
{
    (void)state;
    start_over();
    lkt_fails(lk_distributed_run(stubborn, NULL, .nproc = 3), LK_ERR_IO, "failed: the disk is full");
    assert_all_gone(3);
}

/* Whether the whole job is over within 5 s of the failure. A machine that does other things may take longer:
 * then it is tried again. */
static bool ends_in_time(lk_status (*body)(void *), void *context)
{
    enum { TRIES = 4, LIMIT_MS = 5000 };
    for (int i = 0; i < TRIES; i++) {
        start_over();
        assert_true(lk_distributed_run(body, context, .nproc = 3) != LK_OK);
        int64_t since_ms = (lki_now_ns() - atomic_load(&shared->failed_ns)) / 1000000;
        assert_true(atomic_load(&shared->failed_ns) > 0);
        assert_all_gone(3);
        if (since_ms <= LIMIT_MS) return true;
        print_message("over after %lld ms\n", (long long)since_ms);
    }
    return false;
}

/* Whether they wait for the one that fails, or do not even listen. */
static void the_others_stop_within_five_seconds(void **state)
{
    (void)state;
    assert_true(ends_in_time(one_goes, &((ending){KILLED, 1})));
    assert_true(ends_in_time(one_goes, &((ending){RETURNS_ERROR, 0})));
    assert_true(ends_in_time(one_goes, &((ending){EXITS, 2})));
    assert_true(ends_in_time(stubborn, NULL));
}

/* As lk_train connects, for the `round`th time. */
static lk_status add_up_once_more(int round)
{
    lki_role role = *lki_process_role();
    lk_comm *comm = NULL;
    int64_t sum = role.rank + round;
    atomic_store(&shared->pids[role.rank], (int)getpid());
    lk_status status = lki_comm_connect(&comm, &role, NULL);
    lki_process_role_set(&role);
    if (status == LK_OK) status = lk_comm_all_reduce(comm, &sum, 1, LK_I64, LK_REDUCE_SUM);
    lk_comm_free(comm);
    if (status == LK_OK && sum != 3 + 3 * round)
        return lki_fail(LK_ERR_INVALID, "round %d: the sum is %lld", round, (long long)sum);
    return status;
}

typedef struct early_end {
    ending end;
    int rounds; /* that all ranks make together first */
} early_end;

/* The others wait for the victim to join them. */
static lk_status one_goes_before_it_joins(void *context)
{
    const early_end *early = context;
    for (int round = 0; round < early->rounds; round++) LKI_TRY(add_up_once_more(round));
    if (lk_rank() == early->end.victim) return end_somehow(early->end.way);
    return add_up_once_more(early->rounds);
}

static void the_others_do_not_wait_for_one_that_never_joins(void **state)
{
    (void)state;
    for (int rounds = 0; rounds < 3; rounds += 2)
        for (int victim = 0; victim < 3; victim++) {
            early_end fails = {{RETURNS_ERROR, victim}, rounds}, leaves = {{RETURNS_WELL, victim}, rounds};
            assert_true(ends_in_time(one_goes_before_it_joins, &fails));
            lkt_contains(lk_error(), "the loss is not a number at step 7");
            assert_true(ends_in_time(one_goes_before_it_joins, &leaves));
            lkt_contains(lk_error(), " ended before it joined the others");
            if (victim == 0) continue; /* this process */
            assert_true(ends_in_time(one_goes_before_it_joins, &((early_end){{KILLED, victim}, rounds})));
            lkt_contains(lk_error(), "was killed by signal 9");
        }
}

enum { MANY_ROUNDS = 100 };

static lk_status many_rounds(void *context)
{
    (void)context;
    struct stat memory;
    for (int round = 0; round < MANY_ROUNDS; round++) LKI_TRY(add_up_once_more(round));
    if (fstat(lki_process_role()->shm_fd, &memory) != 0) return lki_fail(LK_ERR_IO, "no shared memory");
    return memory.st_blocks * 512 < 20 << 20
               ? LK_OK
               : lki_fail(LK_ERR_NOMEM, "%lld blocks of shared memory are held", (long long)memory.st_blocks);
}

/* A segment of three ranks is 3 MiB: what a hundred of them held is given back on the way. */
static void ranks_connect_as_often_as_they_like(void **state)
{
    (void)state;
    start_over();
    lkt_ok(lk_distributed_run(many_rounds, NULL, .nproc = 3));
    assert_all_gone(3);
}

static lk_status sleeps(void *context)
{
    lk_comm *comm = NULL;
    LKI_TRY(join_comm(&comm));
    LKI_TRY(lk_comm_barrier(comm));
    if (lk_rank() == 0) atomic_store(&shared->sum, 1);
    (void)context;
    for (;;) pause();
}

/* The caller is killed: the kernel takes the others along. */
static void children_do_not_outlive_the_caller(int how)
{
    start_over();
    pid_t caller = fork();
    if (caller == 0) {
        signal(SIGINT, SIG_DFL);
        lk_distributed_run(sleeps, NULL, .nproc = 3);
        _exit(0);
    }
    while (atomic_load(&shared->sum) == 0) usleep(1000);
    kill(caller, how);
    int status = 0;
    waitpid(caller, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == how);
    for (int rank = 1; rank < 3; rank++) {
        pid_t pid = atomic_load(&shared->pids[rank]);
        for (int turn = 0; kill(pid, 0) == 0; turn++) { /* init has yet to reap it */
            char path[64], line[256] = "";
            snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
            FILE *file = fopen(path, "r");
            if (!file) break;
            if (fgets(line, sizeof line, file) && strstr(line, ") Z")) turn = 100000;
            fclose(file);
            if (turn >= 100000) break;
            if (turn == 10000) fail_msg("rank %d outlives the caller", rank);
            usleep(1000);
        }
    }
}

static lk_status counts(void *context)
{
    lk_comm *comm = NULL;
    LKI_TRY(join_comm(&comm));
    (void)context;
    for (float value = 1;; value = 1) {
        LKI_TRY(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM));
        if (lk_rank() == 0) atomic_fetch_add(&shared->sum, 1);
        usleep(1000);
    }
}

/* Ctrl-Z and fg: the other ranks stop and go on with the caller. */
static void stopped_caller(void **state)
{
    (void)state;
    start_over();
    pid_t caller = fork();
    if (caller == 0) {
        lk_distributed_run(counts, NULL, .nproc = 3);
        _exit(0);
    }
    while (atomic_load(&shared->sum) == 0) usleep(1000);
    for (int round = 0; round < 3; round++) {
        kill(caller, SIGTSTP);
        for (int rank = 0; rank < 3; rank++) lkt_until_stopped(atomic_load(&shared->pids[rank]), true);
        int sum = atomic_load(&shared->sum);
        kill(caller, SIGCONT);
        for (int rank = 0; rank < 3; rank++) lkt_until_stopped(atomic_load(&shared->pids[rank]), false);
        while (atomic_load(&shared->sum) < sum + 3) usleep(1000);
    }
    kill(caller, SIGKILL);
    waitpid(caller, NULL, 0);
}

static void killed_caller(void **state)
{
    (void)state;
    children_do_not_outlive_the_caller(SIGKILL);
}

static void interrupted_caller(void **state)
{
    (void)state;
    children_do_not_outlive_the_caller(SIGINT);
}

static lk_status nests(void *context)
{
    return lk_distributed_run(nests, context, .nproc = 2);
}

static void wrong_numbers(void **state)
{
    (void)state;
    lki_ranks *ranks = NULL;
    start_over();
    lkt_fails(lki_fork_ranks(&ranks, lki_process_role(), 0, NULL), LK_ERR_CONFIG, "found 0");
    lkt_fails(lki_fork_ranks(&ranks, lki_process_role(), 5000, NULL), LK_ERR_CONFIG, "found 5000");
    assert_null(ranks);
    lkt_fails(lk_distributed_run(nests, NULL, .nproc = 2), LK_ERR_INVALID, "cannot fork ranks of its own");
    assert_all_gone(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_says_which_rank_this_is),
        cmocka_unit_test(the_caller_is_rank_0_and_holds_the_result),
        cmocka_unit_test(the_first_failure_is_reported),
        cmocka_unit_test(nobody_waits_for_children),
        cmocka_unit_test(the_callers_own_failure_is_reported),
        cmocka_unit_test(a_stubborn_rank_is_killed),
        cmocka_unit_test(the_others_stop_within_five_seconds),
        cmocka_unit_test(the_others_do_not_wait_for_one_that_never_joins),
        cmocka_unit_test(ranks_connect_as_often_as_they_like),
        cmocka_unit_test(stopped_caller),
        cmocka_unit_test(killed_caller),
        cmocka_unit_test(interrupted_caller),
        cmocka_unit_test(wrong_numbers),
    };
    return cmocka_run_group_tests(tests, share, NULL);
}
