/* Ranks of one host through shared memory: as processes, as threads, by name, with small slots, and when one
 * of them dies. */
#include "conformance.h"

#include "comm/comm.h"

#include <stdatomic.h>

typedef struct shared_memory {
    int fd;
    const char *name;
    size_t slot_nbytes;
} shared_memory;

static lk_status connect_shm(lk_comm **out, int rank, int size, void *context)
{
    const shared_memory *memory = context;
    lki_shm_options options = {.rank = rank,
                               .size = size,
                               .fd = memory->fd,
                               .name = memory->name,
                               .slot_nbytes = memory->slot_nbytes,
                               .join_timeout_ms = 30000};
    return lki_comm_shm_create(out, &options);
}

static void run_suite(int size, size_t slot_nbytes, int64_t largest, bool threads, rank_body body, int killed)
{
    shared_memory memory = {.fd = -1, .slot_nbytes = slot_nbytes};
    _Atomic int *arrived = shared_zeros(sizeof *arrived);
    conformance suite = {.connect = connect_shm,
                         .context = &memory,
                         .arrived = arrived,
                         .rank_order = true,
                         .largest = largest};
    lkt_ok(lki_shm_memory_create(&memory.fd, size, slot_nbytes));
    if (threads)
        run_threads(size, body, &suite);
    else
        run_processes_but(size, killed, body, &suite);
    close(memory.fd);
    munmap(arrived, sizeof *arrived);
}

static void conforms_as_processes(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 4, 7};
    for (int i = 0; i < 5; i++) run_suite(sizes[i], 0, 0, false, conformance_body, -1);
}

static void conforms_as_threads(void **state)
{
    (void)state;
    run_suite(2, 0, 0, true, conformance_body, -1);
    run_suite(3, 0, 0, true, conformance_body, -1);
}

static void conforms_with_small_slots(void **state)
{
    (void)state;
    run_suite(2, 64, 20000, false, conformance_body, -1);
    run_suite(3, 200, 20000, false, conformance_body, -1);
}

static const char *hundred_megabytes(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    RUN_PART(same_bits_everywhere(comm, rank, 25000003, true));
    lk_comm_free(comm);
    return NULL;
}

static void a_hundred_megabytes(void **state)
{
    (void)state;
    run_suite(2, 0, 0, false, hundred_megabytes, -1);
    run_suite(3, 0, 0, false, hundred_megabytes, -1);
}

static void steady_state(void **state)
{
    (void)state;
    run_suite(2, 0, 0, false, steady_body, -1);
    run_suite(4, 0, 0, false, steady_body, -1);
}

static void a_killed_rank_is_named(void **state)
{
    (void)state;
    run_suite(2, 0, 0, false, killed_body, 1);
    run_suite(4, 0, 0, false, killed_body, 1);
}

static void a_stall_names_who_is_behind(void **state)
{
    (void)state;
    run_suite(2, 0, 0, false, stalled_body, -1);
    run_suite(3, 0, 0, false, stalled_body, -1);
}

static void an_abort_reaches_all(void **state)
{
    (void)state;
    run_suite(3, 0, 0, false, aborted_body, -1);
}

static const char *leaver(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    rank_ok(lk_comm_barrier(comm));
    if (rank != 1) {
        rank_check(lk_comm_barrier(comm) == LK_ERR_PEER);
        rank_check(strstr(lk_error(), "barrier #2: rank 1 has left the job") != NULL);
    }
    lk_comm_free(comm);
    return NULL;
}

static void one_that_leaves_early_is_named(void **state)
{
    (void)state;
    run_suite(3, 0, 0, false, leaver, -1);
    run_suite(2, 0, 0, true, leaver, -1);
}

static const char *disagreeing(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float data[100] = {0};
    rank_ok(suite->connect(&comm, rank, size, suite->context));
    lk_status status = rank == 1 ? lk_comm_all_reduce(comm, data, 99, LK_F32, LK_REDUCE_SUM)
                                 : lk_comm_all_reduce(comm, data, 100, LK_F32, LK_REDUCE_SUM);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), "ranks disagree") != NULL);
    lk_comm_free(comm);
    return NULL;
}

static void a_disagreement_is_an_error(void **state)
{
    (void)state;
    run_suite(2, 0, 0, false, disagreeing, -1);
}

static void by_name(void **state)
{
    (void)state;
    char name[64], path[128];
    snprintf(name, sizeof name, "test-%d", (int)getpid());
    shared_memory memory = {.fd = -1, .name = name};
    _Atomic int *arrived = shared_zeros(sizeof *arrived);
    conformance suite = {.connect = connect_shm, .context = &memory, .arrived = arrived, .rank_order = true};
    run_processes(3, conformance_body, &suite);
    snprintf(path, sizeof path, "/dev/shm/lockstep-%u-%s", (unsigned)geteuid(), name);
    assert_int_not_equal(access(path, F_OK), 0);
    munmap(arrived, sizeof *arrived);
}

static void those_who_do_not_join_are_named(void **state)
{
    (void)state;
    lki_shm_options options = {.rank = 1, .size = 4, .join_timeout_ms = 50};
    lk_comm *comm = NULL, *twin = NULL;
    lkt_ok(lki_shm_memory_create(&options.fd, 4, 0));
    lkt_fails(lki_comm_shm_create(&comm, &options), LK_ERR_TIMEOUT,
              "3 of 4 ranks did not join in time: 0, 2, 3");
    lkt_fails(lki_comm_shm_create(&twin, &options), LK_ERR_PEER, "two processes say that they are rank 1");
    options.size = 5;
    options.rank = 2;
    lkt_fails(lki_comm_shm_create(&twin, &options), LK_ERR_PEER, "is for 4 ranks, this one says 5");
    close(options.fd);
    options =
        (lki_shm_options){.rank = 1, .size = 2, .fd = -1, .name = "nobody-made-this", .join_timeout_ms = 20};
    lkt_fails(lki_comm_shm_create(&comm, &options), LK_ERR_TIMEOUT, "rank 0 has not made");
}

static const char *meet_again(int rank, int size, void *context)
{
    const shared_memory *memory = context;
    lki_shm_options options = {
        .rank = rank, .size = size, .fd = memory->fd, .round = 1, .join_timeout_ms = 50, .timeout_ms = 30000};
    lk_comm *comm = NULL;
    if (rank == 0) usleep(300000);
    rank_ok(lki_comm_shm_create(&comm, &options));
    lk_comm_free(comm);
    return NULL;
}

/* What one of them does alone between two runs may take as long as between two collectives. */
static void those_who_meet_again_wait_longer(void **state)
{
    (void)state;
    shared_memory memory = {.fd = -1};
    lkt_ok(lki_shm_memory_create(&memory.fd, 2, 0));
    run_processes(2, meet_again, &memory);
    close(memory.fd);
}

static const char *join_one_by_one(int rank, int size, void *context)
{
    const shared_memory *memory = context;
    lki_shm_options options = {.rank = rank, .size = size, .fd = memory->fd, .join_timeout_ms = 5000};
    lk_comm *comm = NULL;
    usleep(2000000 * (useconds_t)rank);
    rank_ok(lki_comm_shm_create(&comm, &options));
    lk_comm_free(comm);
    return NULL;
}

/* Rank 3 joins six seconds after rank 0, and somebody has joined within each five of them. */
static void nobody_gives_up_while_ranks_arrive(void **state)
{
    (void)state;
    shared_memory memory = {.fd = -1};
    lkt_ok(lki_shm_memory_create(&memory.fd, 4, 0));
    run_processes(4, join_one_by_one, &memory);
    close(memory.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms_as_processes),
        cmocka_unit_test(conforms_as_threads),
        cmocka_unit_test(conforms_with_small_slots),
        cmocka_unit_test(a_hundred_megabytes),
        cmocka_unit_test(steady_state),
        cmocka_unit_test(a_killed_rank_is_named),
        cmocka_unit_test(a_stall_names_who_is_behind),
        cmocka_unit_test(an_abort_reaches_all),
        cmocka_unit_test(one_that_leaves_early_is_named),
        cmocka_unit_test(a_disagreement_is_an_error),
        cmocka_unit_test(by_name),
        cmocka_unit_test(those_who_do_not_join_are_named),
        cmocka_unit_test(those_who_meet_again_wait_longer),
        cmocka_unit_test(nobody_gives_up_while_ranks_arrive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
