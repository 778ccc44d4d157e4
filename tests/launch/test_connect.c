/* From roles to comms, with real processes: one host, several (told apart by LOCKSTEP_HOST_ID), two network
 * namespaces, and mpirun; and all the ways in which ranks fail to meet. */
#define _GNU_SOURCE
#include "../comm/conformance.h"

#include "base/status.h"
#include "comm/comm.h"
#include "comm/net.h"
#include "comm/store/store.h"
#include "launch/connect.h"
#include "launch/job_key.h"
#include "launch/ranks.h"

#include <lockstep/launch.h>
#include <lockstep/log.h>

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/socket.h>

static const char *self_path;

/* A role as --rank R --world-size W --host H --port P gives it. */
typedef struct plan {
    int port;
    const char *host;
    const char *hosts;    /* by rank: a letter for its host; NULL: all on one */
    const char *backend;  /* of the options */
    const char *expected; /* the comm's name */
} plan;

static int free_port(void)
{
    int fd, port = 0;
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    return port;
}

static lk_status connect_planned(lk_comm **out, int rank, int size, void *context)
{
    const plan *p = context;
    lki_role role;
    lki_launch_flags flags = {.world_size = size,
                              .has_rank = true,
                              .rank = rank,
                              .host = p->host ? p->host : "127.0.0.1",
                              .port = p->port};
    if (p->hosts) setenv("LOCKSTEP_HOST_ID", (char[]){p->hosts[rank], 0}, 1);
    lk_status status = lki_launch_role(&role, &flags, NULL, 0);
    if (status != LK_OK) return status;
    lki_connect_options options = {.backend = p->backend, .join_timeout_ms = 60000, .no_pinning = true};
    status = lki_comm_connect(out, &role, &options);
    if (status == LK_OK && p->expected && strcmp((*out)->ops->name, p->expected) != 0) {
        fprintf(stderr, "rank %d: the comm is %s, not %s\n", rank, (*out)->ops->name, p->expected);
        return LK_ERR_INVALID;
    }
    return status;
}

static void run_plan(plan p, int size, rank_body body, int killed, int stride)
{
    _Atomic int *arrived = shared_zeros(sizeof *arrived);
    if (!p.port) p.port = free_port();
    conformance suite = {
        .connect = connect_planned, .context = &p, .arrived = arrived, .stride = stride, .stall_ms = 3000};
    run_processes_but(size, killed, body, &suite);
    munmap(arrived, sizeof *arrived);
}

static void need_gloo(void)
{
    if (lki_comm_has_gloo()) return;
    print_message("built without Gloo\n");
    skip();
}

static void by_hand_on_one_host(void **state)
{
    (void)state;
    run_plan((plan){.expected = "self"}, 1, conformance_body, -1, 0);
    run_plan((plan){.expected = "shm"}, 3, conformance_body, -1, 0);
}

static void across_hosts(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "abbab", .expected = "hierarchy"}, 5, conformance_body, -1, 5);
    run_plan((plan){.hosts = "aab", .expected = "hierarchy"}, 3, conformance_body, -1, 5);
    run_plan((plan){.hosts = "aabb", .expected = "hierarchy"}, 4, steady_body, -1, 5);
}

static void gloo_when_asked_for(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.backend = "gloo"}, 2, conformance_body, -1, 5);
}

/* Rank 1 is killed: first as a rank behind its host's leader, then as a leader with ranks behind it, then
 * alone. */
static void a_killed_rank_is_named_everywhere(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "aabb"}, 4, killed_body, 1, 0);
    run_plan((plan){.hosts = "abab"}, 4, killed_body, 1, 0);
    run_plan((plan){.hosts = "aba"}, 3, killed_body, 1, 0);
}

static void a_stall_names_who_is_behind(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "aabb"}, 4, stalled_body, -1, 0);
    run_plan((plan){.hosts = "aba"}, 3, stalled_body, -1, 0);
}

static void an_abort_reaches_all(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "aabb"}, 4, aborted_body, -1, 0);
    run_plan((plan){.hosts = "bbaa"}, 4, aborted_body, -1, 0);
    run_plan((plan){.hosts = "aab"}, 3, aborted_body, -1, 0);
}

/* The last rank brings more: nobody crashes or waits for the timeout, and all hear who is at odds. */
static const char *one_brings_more(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    static float data[300000];
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_barrier(comm));
    lk_status status =
        lk_comm_all_reduce(comm, data, rank == size - 1 ? 300000 : 1000, LK_F32, LK_REDUCE_SUM);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "ranks disagree: rank ") != NULL);
    lk_comm_free(comm);
    return NULL;
}

static void a_disagreement_is_named(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.backend = "gloo"}, 2, one_brings_more, -1, 0);
    run_plan((plan){.hosts = "aab"}, 3, one_brings_more, -1, 0);
    run_plan((plan){.hosts = "abcd"}, 4, one_brings_more, -1, 0);
}

/* Rank 1 dies when it has joined and rank 2 has not; then it comes again. */
static const char *one_comes_twice(int rank, int size, void *context)
{
    conformance *suite = context;
    const plan *p = suite->context;
    lk_comm *comm = NULL;
    lki_store_client *first = NULL;
    char token[160] = "lockstep by hand";
    setenv("LOCKSTEP_TOKEN", "of mine", 1);
    rank_ok(lki_job_key_add(token, sizeof token, NULL));
    if (rank == 1) {
        rank_ok(lki_store_connect(&first, &(lki_store_options){.host = "127.0.0.1",
                                                               .port = p->port,
                                                               .token = token,
                                                               .rank = 1,
                                                               .world_size = size,
                                                               .registers = true}));
        lki_store_drop(first);
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* the server sees it, sooner or later */
        atomic_fetch_add(suite->arrived, 1);
    }
    while (rank == 2 && atomic_load(suite->arrived) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_barrier(comm));
    lk_comm_free(comm);
    return NULL;
}

static void a_rank_that_dies_while_joining_may_come_again(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "abc"}, 3, one_comes_twice, -1, 0);
}

/* Rank 1's network interface does not exist: all hear of it, long before the join timeout. */
static const char *one_cannot_connect(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    if (rank == 1) setenv("LOCKSTEP_INTERFACE", "nosuch0", 1);
    rank_check(suite->connect(&comm, rank, size, suite->context) == LK_ERR_PEER);
    if (rank != 1) rank_check(strstr(lk_error(), "rank 1 could not connect: gloo: ") != NULL);
    return NULL;
}

static void a_failure_while_connecting_is_told(void **state)
{
    (void)state;
    need_gloo();
    run_plan((plan){.hosts = "abc"}, 3, one_cannot_connect, -1, 0);
    run_plan((plan){.hosts = "ab"}, 2, one_cannot_connect, -1, 0);
}

/* Ranks that would connect in different ways say so instead of waiting for each other. */
static const char *one_speaks_otherwise(int rank, int size, void *context)
{
    conformance *suite = context;
    plan own = *(const plan *)suite->context;
    lk_comm *comm = NULL;
    if (rank == 1) own.backend = "shm";
    rank_check(connect_planned(&comm, rank, size, &own) == LK_ERR_PEER);
    rank_check(
        strstr(lk_error(), "the ranks cannot connect: rank 1 has --comm shm where rank 0 has --comm auto") !=
        NULL);
    return NULL;
}

static void different_comms_are_refused(void **state)
{
    (void)state;
    run_plan((plan){.hosts = "aa"}, 2, one_speaks_otherwise, -1, 0);
    run_plan((plan){.hosts = "abb"}, 3, one_speaks_otherwise, -1, 0);
}

/* The second process stands for ranks 1 and 2, and rank 2 ends before it comes. */
static const char *a_forked_one_ends(int index, int count, void *context)
{
    conformance *suite = context;
    const plan *p = suite->context;
    lki_launch_flags flags = {
        .world_size = 3, .has_rank = true, .rank = index, .host = "127.0.0.1", .port = p->port};
    lki_connect_options options = {.join_timeout_ms = 60000, .no_pinning = true};
    lki_role role;
    lki_ranks *ranks = NULL;
    lk_comm *comm = NULL;
    (void)count;
    int rank = index;
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    if (index == 1) rank_ok(lki_fork_ranks(&ranks, &role, 2, &(lki_fork_options){.no_pinning = true}));
    if (index == 1) role = *lki_process_role();
    if (role.rank == 2) _exit(3);
    lk_status status = lki_comm_connect(&comm, &role, &options);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "ended before it joined") != NULL);
    if (!ranks) return NULL;
    rank_check(lki_ranks_finish(ranks, status) != LK_OK);
    rank_check(strstr(lk_error(), "rank 2 on ") && strstr(lk_error(), "exited with status 3"));
    return NULL;
}

static void a_forked_rank_of_a_larger_job_that_ends_is_told(void **state)
{
    (void)state;
    run_plan((plan){0}, 2, a_forked_one_ends, -1, 0);
}

/* Rank 1 belongs to another job: it is told so, and rank 0 hears who is missing. */
static const char *strangers(int rank, int size, void *context)
{
    plan *p = context;
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    lki_role role;
    lk_comm *comm = NULL;
    if (rank == 1) setenv("LOCKSTEP_TOKEN", "another", 1);
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    lk_status status =
        lki_comm_connect(&comm, &role, &(lki_connect_options){.join_timeout_ms = rank == 0 ? 6000 : 60000});
    if (rank == 0) {
        rank_check(status == LK_ERR_TIMEOUT);
        rank_check(strstr(lk_error(), "1 of 2 ranks have joined; missing: rank 1") != NULL);
    } else {
        rank_check(status == LK_ERR_PEER);
        rank_check(strstr(lk_error(), "belongs to another job") != NULL);
    }
    return NULL;
}

static void another_jobs_rank_is_kept_out(void **state)
{
    (void)state;
    run_processes(2, strangers, &(plan){.port = free_port()});
}

static char logged[4096];

static void remember(const char *level, const char *line, void *context)
{
    size_t length = strlen(logged);
    (void)level, (void)context;
    snprintf(logged + length, sizeof logged - length, "%s\n", line);
}

/* Rank 1 was told of one rank more: it hears both numbers; rank 0 says whom it turned away and for whom it
 * waits. The environment says for how long. */
static const char *different_sizes(int rank, int size, void *context)
{
    plan *p = context;
    lki_launch_flags flags = {
        .world_size = size + rank, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    lki_role role;
    lk_comm *comm = NULL;
    char waits[128];
    lk_set_log_sink(remember, NULL);
    setenv("LOCKSTEP_JOIN_TIMEOUT", rank == 0 ? "6" : "60", 1);
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    lk_status status = lki_comm_connect(&comm, &role, NULL);
    if (rank == 1) {
        rank_check(status == LK_ERR_PEER);
        rank_check(strstr(lk_error(), "rank 0 expects 2 ranks, rank 1 says there are 3") != NULL);
        return NULL;
    }
    rank_check(status == LK_ERR_TIMEOUT);
    snprintf(waits, sizeof waits, "rank 0 waits at 127.0.0.1:%d: 1 of 2 ranks have joined; missing: rank 1\n",
             p->port);
    rank_check(strstr(logged, waits) != NULL);
    rank_check(strstr(logged, "127.0.0.1 cannot join: rank 0 expects 2 ranks, rank 1 says there are 3\n") !=
               NULL);
    return NULL;
}

static void ranks_of_different_sizes_hear_both(void **state)
{
    (void)state;
    run_processes(2, different_sizes, &(plan){.port = free_port()});
}

static void a_rank_says_that_it_cannot_reach_rank_0(void **state)
{
    (void)state;
    lki_launch_flags flags = {
        .world_size = 2, .has_rank = true, .rank = 1, .host = "127.0.0.1", .port = free_port()};
    lki_role role;
    lk_comm *comm = NULL;
    lk_set_log_sink(remember, NULL);
    lkt_ok(lki_launch_role(&role, &flags, NULL, 0));
    lkt_fails(lki_comm_connect(&comm, &role, &(lki_connect_options){.join_timeout_ms = 5500}), LK_ERR_TIMEOUT,
              "could not reach rank 0 at 127.0.0.1");
    lk_set_log_sink(NULL, NULL);
    lkt_contains(logged, "rank 1 goes on trying: could not reach rank 0 at 127.0.0.1");
}

static lk_status connect_with(const char *variable, const char *value, int64_t *timeout_ms)
{
    lki_role role = *lki_process_role();
    lk_comm *comm = NULL;
    setenv(variable, value, 1);
    lk_status status = lki_comm_connect(&comm, &role, NULL);
    unsetenv(variable);
    if (comm) *timeout_ms = comm->timeout_ms;
    lk_comm_free(comm);
    return status;
}

static lk_status limited_by_environment(void *context)
{
    int64_t timeout_ms = 0;
    LKI_TRY(connect_with("LOCKSTEP_COMM_TIMEOUT", "7", &timeout_ms));
    return timeout_ms == 7000 ? LK_OK : lki_fail(LK_ERR_INVALID, "%s", (const char *)context);
}

static void the_environment_sets_the_limits(void **state)
{
    (void)state;
    int64_t ignored;
    lk_status limited = lk_distributed_run(limited_by_environment, "another limit", .nproc = 2);
    lkt_ok(limited);
    lkt_fails(connect_with("LOCKSTEP_COMM_TIMEOUT", "soon", &ignored), LK_ERR_CONFIG,
              "LOCKSTEP_COMM_TIMEOUT: expected a number from 1 to 1000000, found \"soon\"");
    lkt_fails(connect_with("LOCKSTEP_JOIN_TIMEOUT", "0", &ignored), LK_ERR_CONFIG, "LOCKSTEP_JOIN_TIMEOUT: ");
}

static void nobody_there(void **state)
{
    (void)state;
    lki_launch_flags flags = {
        .world_size = 2, .has_rank = true, .rank = 1, .host = "127.0.0.1", .port = free_port()};
    lki_role role;
    lk_comm *comm = NULL;
    lkt_ok(lki_launch_role(&role, &flags, NULL, 0));
    lkt_fails(lki_comm_connect(&comm, &role, &(lki_connect_options){.join_timeout_ms = 100}), LK_ERR_TIMEOUT,
              "could not reach rank 0 at 127.0.0.1");
    int fd = -1, port = 0;
    lkt_ok(lki_net_listen(&fd, &port));
    role.rank = 0;
    role.port = port;
    lkt_fails(lki_comm_connect(&comm, &role, &(lki_connect_options){.join_timeout_ms = 100}), LK_ERR_IO,
              "is in use");
    close(fd);
    lkt_fails(lki_comm_connect(&comm, &role, &(lki_connect_options){.backend = "nccl9"}), LK_ERR_CONFIG,
              "unknown \"nccl9\"");
    lki_role forked = role;
    forked.shm_fd = 0;
    lkt_fails(lki_comm_connect(&comm, &forked, &(lki_connect_options){.backend = "mpi"}), LK_ERR_CONFIG,
              "--comm mpi is not for forked ranks");
    lkt_fails(lki_comm_connect(&comm, &role, &(lki_connect_options){.backend = "self"}), LK_ERR_CONFIG,
              "not 2");
    assert_null(comm);
}

/* Two Slurm jobs whose numbers lead to the same port, at the same time on the same host. */
static const char *rank_of_a_job(int index, int count, void *context)
{
    int rank = index / 2, job = index % 2;
    char job_id[64], proc[64];
    (void)count;
    snprintf(job_id, sizeof job_id, "SLURM_JOB_ID=%d", *(int *)context + 10000 * job);
    snprintf(proc, sizeof proc, "SLURM_PROCID=%d", rank);
    const char *const environment[] = {
        job_id, proc, "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_JOB_NODELIST=localhost", NULL};
    lki_role role;
    lk_comm *comm = NULL;
    int32_t sum = job + 1;
    rank_ok(lki_launch_role(&role, NULL, environment, 0));
    rank_ok(
        lki_comm_connect(&comm, &role, &(lki_connect_options){.join_timeout_ms = 60000, .no_pinning = true}));
    rank_ok(lk_comm_all_reduce(comm, &sum, 1, LK_I32, LK_REDUCE_SUM));
    rank_check(sum == 2 * (job + 1));
    lk_comm_free(comm);
    return NULL;
}

static void two_jobs_on_one_host_do_not_meet(void **state)
{
    (void)state;
    int job_id = 70000 + (int)getpid() % 9000;
    run_processes(4, rank_of_a_job, &job_id);
}

/* lk_distributed_run's ranks over Gloo. */
static lk_status forked_gloo(void *context)
{
    lki_role role = *lki_process_role();
    lk_comm *comm = NULL;
    int64_t sum = role.rank + 1;
    LKI_TRY(lki_comm_connect(&comm, &role, &(lki_connect_options){.backend = context}));
    lk_status status = lk_comm_all_reduce(comm, &sum, 1, LK_I64, LK_REDUCE_SUM);
    lk_comm_free(comm);
    if (status == LK_OK && sum != 6) return lki_fail(LK_ERR_INVALID, "the sum is %lld", (long long)sum);
    return status;
}

static void forked_ranks(void **state)
{
    (void)state;
    lki_ranks *ranks = NULL;
    for (int i = 0; i < 3; i++) {
        const char *backend = i == 0 ? "auto" : i == 1 ? "shm" : "gloo";
        if (i == 2 && !lki_comm_has_gloo()) break;
        lkt_ok(lki_fork_ranks(&ranks, lki_process_role(), 3, NULL));
        lkt_ok(lki_ranks_finish(ranks, forked_gloo((void *)(intptr_t)backend)));
    }
}

/* As a program: --as-rank flags|auto BACKEND EXPECTED [rank size host port] */
static int be_a_rank(int argc, char **argv)
{
    lki_role role;
    lki_launch_flags flags = {0};
    if (argc > 8)
        flags = (lki_launch_flags){.has_rank = true,
                                   .rank = atoi(argv[5]),
                                   .world_size = atoi(argv[6]),
                                   .host = argv[7],
                                   .port = atoi(argv[8])};
    if (lki_launch_role(&role, &flags, NULL, 0) != LK_OK) {
        fprintf(stderr, "%s\n", lk_error());
        return 1;
    }
    lk_comm *comm = NULL;
    if (lki_comm_connect(&comm, &role,
                         &(lki_connect_options){.backend = argv[3], .join_timeout_ms = 30000}) != LK_OK) {
        fprintf(stderr, "rank %d: %s\n", role.rank, lk_error());
        return 1;
    }
    int failed = strcmp(comm->ops->name, argv[4]) != 0;
    if (failed) fprintf(stderr, "rank %d: %s, not %s\n", role.rank, comm->ops->name, argv[4]);
    float value = (float)role.rank;
    if (lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM) != LK_OK ||
        value != (float)(role.world_size * (role.world_size - 1) / 2)) {
        fprintf(stderr, "rank %d: sum %g: %s\n", role.rank, value, lk_error());
        failed = 1;
    }
    const char *failure = failed ? NULL : same_bits_everywhere(comm, role.rank, 30000, false);
    if (failure) fprintf(stderr, "%s\n", failure);
    lk_comm_free(comm);
    return failed || failure;
}

/* As a task that stands for a node: --as-rank forks NPROC EXPECTED-WORLD-SIZE */
static int be_several_ranks(char **argv)
{
    lki_role role;
    lki_ranks *ranks = NULL;
    lki_launch_flags flags = {.nproc = atoi(argv[3])};
    lk_status status = lki_launch_role(&role, &flags, NULL, 0);
    if (status == LK_OK) status = lki_fork_ranks(&ranks, &role, role.fork_count, NULL);
    if (status == LK_OK) {
        lki_role mine = *lki_process_role();
        lk_comm *comm = NULL;
        int32_t sum = mine.rank;
        status = lki_comm_connect(&comm, &mine, &(lki_connect_options){.join_timeout_ms = 60000});
        if (status == LK_OK) status = lk_comm_all_reduce(comm, &sum, 1, LK_I32, LK_REDUCE_SUM);
        if (status == LK_OK && (comm->size != atoi(argv[4]) || sum != comm->size * (comm->size - 1) / 2))
            status = lki_fail(LK_ERR_INVALID, "rank %d of %d: the sum is %d", comm->rank, comm->size, sum);
        lk_comm_free(comm);
        status = lki_ranks_finish(ranks, status);
    }
    if (status != LK_OK) fprintf(stderr, "%s\n", lk_error());
    return status != LK_OK;
}

/* Open MPI's own leaks are not ours to mend. */
static void run_mpirun(int size, const char *environment, const char *backend, const char *expected)
{
    char command[2048];
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 %s timeout 120 mpirun --allow-run-as-root --oversubscribe -np %d "
             "'%s' --as-rank auto %s %s 1>&2",
             environment, size, self_path, backend, expected);
    if (system(command) != 0) fail_msg("%s failed", command);
}

static void under_mpirun(void **state)
{
    (void)state;
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no MPI here\n");
        skip();
    }
    run_mpirun(4, "", "auto", "shm");
    run_mpirun(4, "", "mpi", "mpi");
    if (lki_comm_has_gloo()) {
        char environment[64];
        snprintf(environment, sizeof environment, "MASTER_ADDR=127.0.0.1 MASTER_PORT=%d", free_port());
        run_mpirun(2, environment, "gloo", "hierarchy");
    }
}

/* mpirun whose ranks are made to believe that they are on two hosts; `second` says of a rank $r whether it is
 * on the other one. */
static void run_on_two_hosts(int size, const char *second)
{
    char command[2048];
    snprintf(
        command, sizeof command,
        "ASAN_OPTIONS=detect_leaks=0 timeout 120 mpirun --allow-run-as-root --oversubscribe -np %d sh -c "
        "'r=$OMPI_COMM_WORLD_RANK; export LOCKSTEP_HOST_ID=$((%s)) OMPI_COMM_WORLD_LOCAL_SIZE=2; "
        "exec \"%s\" --as-rank auto auto hierarchy' 1>&2",
        size, second, self_path);
    if (system(command) != 0) fail_msg("%s failed", command);
}

/* Shm inside, MPI between. A host may have one rank only, whichever it is. */
static void hierarchy_under_mpirun(void **state)
{
    (void)state;
    if (!lki_comm_has_mpi() || system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("no MPI here\n");
        skip();
    }
    run_on_two_hosts(4, "r % 2");
    run_on_two_hosts(3, "r == 2");
    run_on_two_hosts(3, "r > 0");
    run_on_two_hosts(5, "r == 4");
    run_on_two_hosts(9, "r == 8");
}

static void remove_namespaces(int id)
{
    char command[128];
    snprintf(command, sizeof command, "ip netns del lkt%da; ip netns del lkt%db", id, id);
    if (system(command) != 0) print_message("a network namespace is left\n");
}

static void make_namespaces(int id)
{
    char command[2048];
    /* In a chroot, namespaces can be made but not entered: ip cannot mount /sys anew. */
    if (geteuid() != 0 ||
        system("n=lkt-probe-$$; ip netns add $n 2>/dev/null || exit 1; ip netns exec $n true "
               "2>/dev/null; s=$?; ip netns del $n; exit $s") != 0) {
        print_message("NOT TESTED: two network namespaces need root and an ip netns exec that works\n");
        skip();
    }
    snprintf(command, sizeof command,
             "a=lkt%da; b=lkt%db; ip netns add $a && ip netns add $b && "
             "ip link add $a type veth peer name $b && ip link set $a netns $a && ip link set $b netns $b && "
             "ip -n $a addr add 10.77.0.1/24 dev $a && ip -n $b addr add 10.77.0.2/24 dev $b && "
             "ip -n $a link set $a up && ip -n $b link set $b up && ip -n $a link set lo up && ip -n $b link "
             "set lo up",
             id, id);
    if (system(command) != 0) {
        remove_namespaces(id);
        fail_msg("no namespaces");
    }
}

/* The same with rank 0's name for itself in --host, which means loopback there, as Debian's /etc/hosts has
 * it. `ip netns exec` puts /etc/netns/NAME/hosts in the place of /etc/hosts. */
static int run_by_name(int id)
{
    char command[4096];
    snprintf(command, sizeof command,
             "a=lkt%da; b=lkt%db; mkdir -p /etc/netns/$a /etc/netns/$b && "
             "echo '127.0.1.1 lkt-node-a' > /etc/netns/$a/hosts && echo '10.77.0.1 lkt-node-a' > "
             "/etc/netns/$b/hosts; fail=0; i=0; pids=; for ns in $a $a $b; do ip netns exec $ns timeout 100 "
             "'%s' --as-rank flags auto hierarchy $i 3 lkt-node-a 29656 1>&2 & pids=\"$pids $!\"; "
             "i=$((i+1)); done; for p in $pids; do wait $p || fail=1; done; rm -rf /etc/netns/$a "
             "/etc/netns/$b; rmdir /etc/netns 2>/dev/null; exit $fail",
             id, id, self_path);
    return system(command);
}

/* Two hosts, by hand: ranks 0 and 1 on the first, 2 on the second. */
static void two_network_namespaces(void **state)
{
    (void)state;
    int id = (int)getpid() % 1000000;
    char command[4096];
    need_gloo();
    make_namespaces(id);
    snprintf(command, sizeof command,
             "fail=0; i=0; pids=; for ns in a a b; do ip netns exec lkt%d$ns timeout 100 '%s' --as-rank "
             "flags auto hierarchy $i 3 "
             "10.77.0.1 29655 1>&2 & pids=\"$pids $!\"; i=$((i+1)); done; for p in $pids; do wait $p || "
             "fail=1; done; exit $fail",
             id, self_path);
    int status = system(command);
    int named = status == 0 ? run_by_name(id) : 0;
    remove_namespaces(id);
    assert_int_equal(status, 0);
    assert_int_equal(named, 0);
}

int main(int argc, char **argv)
{
    if (argc > 4 && strcmp(argv[1], "--as-rank") == 0)
        return strcmp(argv[2], "forks") == 0 ? be_several_ranks(argv) : be_a_rank(argc, argv);
    if (argc == 2) cmocka_set_test_filter(argv[1]);
    static char path[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    self_path = length > 0 ? path : argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand_on_one_host),
        cmocka_unit_test(across_hosts),
        cmocka_unit_test(gloo_when_asked_for),
        cmocka_unit_test(a_killed_rank_is_named_everywhere),
        cmocka_unit_test(a_stall_names_who_is_behind),
        cmocka_unit_test(an_abort_reaches_all),
        cmocka_unit_test(a_disagreement_is_named),
        cmocka_unit_test(a_rank_that_dies_while_joining_may_come_again),
        cmocka_unit_test(a_failure_while_connecting_is_told),
        cmocka_unit_test(different_comms_are_refused),
        cmocka_unit_test(a_forked_rank_of_a_larger_job_that_ends_is_told),
        cmocka_unit_test(another_jobs_rank_is_kept_out),
        cmocka_unit_test(ranks_of_different_sizes_hear_both),
        cmocka_unit_test(a_rank_says_that_it_cannot_reach_rank_0),
        cmocka_unit_test(the_environment_sets_the_limits),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(two_jobs_on_one_host_do_not_meet),
        cmocka_unit_test(forked_ranks),
        cmocka_unit_test(under_mpirun),
        cmocka_unit_test(hierarchy_under_mpirun),
        cmocka_unit_test(two_network_namespaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
