/* Ranks under a real mpirun. This program starts itself again under mpirun; the copies are the ranks. */
#include "conformance.h"

#include "comm/comm.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>

static const char *self_path;

static lk_status connect_mpi(lk_comm **out, int rank, int size, void *context)
{
    (void)rank, (void)size, (void)context;
    return lki_comm_mpi_create(out, &(lki_mpi_options){0});
}

/* As if MPI counted to very few: nearly everything goes in parts. */
static lk_status connect_in_parts(lk_comm **out, int rank, int size, void *context)
{
    (void)rank, (void)size, (void)context;
    return lki_comm_mpi_create(out, &(lki_mpi_options){.part_nbytes = 40});
}

/* A comm of some of the ranks only. */
static const char *odd_ones_out(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *all = NULL, *some = NULL;
    int even[16], count = 0;
    float value = (float)rank;
    rank_ok(suite->connect(&all, rank, size, NULL));
    for (int r = 0; r < size; r += 2) even[count++] = r;
    if (rank % 2 == 0) {
        rank_ok(lki_comm_mpi_create(&some, &(lki_mpi_options){.ranks = even, .count = count}));
        rank_check(some->size == count && some->rank == rank / 2);
        rank_ok(lk_comm_all_reduce(some, &value, 1, LK_F32, LK_REDUCE_SUM));
        rank_check(value == (float)(count * (count - 1)));
        lk_comm_free(some);
    }
    rank_ok(lk_comm_barrier(all));
    lk_comm_free(all);
    return NULL;
}

/* Several under way, small and large; even ranks wait for the first one first, odd ones for the last. Every
 * element of the sum is exact, so every order of adding gives it. */
static const char *others_wait_in_another_order(int rank, int size, void *context)
{
    static const int64_t counts[] = {1, 100003, 5000, 3, 70001, 0, 4096, 8191};
    enum { COUNT = sizeof counts / sizeof *counts, ROUNDS = 20 };
    conformance *suite = context;
    lk_comm *comm = NULL;
    lk_comm_request *requests[COUNT];
    float *data[COUNT];
    rank_ok(suite->connect(&comm, rank, size, NULL));
    for (int k = 0; k < COUNT; k++) data[k] = malloc((size_t)(counts[k] + 1) * sizeof(float));
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < COUNT; k++) {
            for (int64_t i = 0; i < counts[k]; i++) data[k][i] = (float)((i + k + round) % 1000 + rank);
            rank_ok(lk_comm_start(comm,
                                  &(lk_comm_op){.kind = LK_COMM_ALL_REDUCE,
                                                .dtype = LK_F32,
                                                .send = data[k],
                                                .recv = data[k],
                                                .count = counts[k]},
                                  &requests[k]));
        }
        for (int k = 0; k < COUNT; k++) rank_ok(lk_comm_wait(comm, requests[rank % 2 ? COUNT - 1 - k : k]));
        for (int k = 0; k < COUNT; k++)
            for (int64_t i = 0; i < counts[k]; i++)
                rank_check(data[k][i] ==
                           (float)(size * ((i + k + round) % 1000)) + (float)(size * (size - 1) / 2));
    }
    for (int k = 0; k < COUNT; k++) free(data[k]);
    lk_comm_free(comm);
    return NULL;
}

/* A rank that brings less than its peer expects is found out, on one of the two at least. */
static const char *one_brings_less(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float data[3] = {0};
    rank_ok(suite->connect(&comm, rank, size, NULL));
    lk_status status = lk_comm_all_reduce(comm, data, rank == 0 ? 3 : 2, LK_F32, LK_REDUCE_SUM);
    rank_check(status == LK_ERR_PEER);
    if (rank == 0)
        rank_check(strstr(lk_error(), "ranks disagree: rank 1 sent 2 elements where 3 were expected") !=
                   NULL);
    atomic_fetch_add(suite->arrived, 1);
    while (atomic_load(suite->arrived) < 2) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    lk_comm_free(comm);
    return NULL;
}

static const char *one_dies(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, NULL));
    rank_ok(lk_comm_barrier(comm));
    if (rank == 1) raise(SIGKILL);
    lk_comm_barrier(comm); /* mpirun ends it */
    return NULL;
}

/* Rank 1 does not come to the third collective: the others say who is missing, and the end of
 * the first of them ends the job, rank 1 included. */
static const char *one_stays_away(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    float value = 1;
    rank_ok(suite->connect(&comm, rank, size, NULL));
    rank_ok(lk_comm_barrier(comm));
    rank_ok(lk_comm_barrier(comm));
    if (rank == 1) nanosleep(&(struct timespec){.tv_sec = 150}, NULL);
    if (rank == 2) nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL); /* comes late, but comes */
    comm->timeout_ms = 6000; /* long enough for rank 2 to be heard on a machine that does other things */
    rank_check(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM) == LK_ERR_TIMEOUT);
    rank_check(strstr(lk_error(), "all-reduce #3 of 1 f32: no end after 6.0 s") != NULL);
    rank_check(strstr(lk_error(), "; rank 1 has not come; last here") != NULL);
    atomic_fetch_add(suite->arrived, 1);
    while (atomic_load(suite->arrived) < size - 1) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    lk_comm_free(comm);
    return NULL;
}

/* A rank that is only slow costs nobody anything, and what was said about it is forgotten. */
static const char *one_is_slow(int rank, int size, void *context)
{
    conformance *suite = context;
    lk_comm *comm = NULL;
    rank_ok(suite->connect(&comm, rank, size, NULL));
    comm->timeout_ms = 100000;
    for (int round = 0; round < 3; round++) {
        if (rank == round % size) nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 300000000}, NULL);
        float value = (float)rank;
        rank_ok(lk_comm_all_reduce(comm, &value, 1, LK_F32, LK_REDUCE_SUM));
        rank_check(value == (float)(size * (size - 1) / 2));
    }
    lk_comm_free(comm);
    return NULL;
}

static int be_a_rank(const char *part, const char *shared_path)
{
    lk_comm *comm = NULL;
    if (lki_comm_mpi_create(&comm, &(lki_mpi_options){0}) != LK_OK) {
        fprintf(stderr, "%s\n", lk_error());
        return 1;
    }
    int rank = comm->rank, size = comm->size;
    lk_comm_free(comm);
    int fd = open(shared_path, O_RDWR);
    _Atomic int *arrived = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (arrived == MAP_FAILED) return 1;
    conformance suite = {.connect = connect_mpi, .arrived = arrived, .stride = 3};
    if (strcmp(part, "parts") == 0) suite.connect = connect_in_parts;
    rank_body body = strcmp(part, "conforms") == 0 ? conformance_body
                     : strcmp(part, "parts") == 0  ? conformance_body
                     : strcmp(part, "steady") == 0 ? steady_body
                     : strcmp(part, "some") == 0   ? odd_ones_out
                     : strcmp(part, "order") == 0  ? others_wait_in_another_order
                     : strcmp(part, "less") == 0   ? one_brings_less
                     : strcmp(part, "stalls") == 0 ? one_stays_away
                     : strcmp(part, "slow") == 0   ? one_is_slow
                                                   : one_dies;
    const char *failure = body(rank, size, &suite);
    if (failure) fprintf(stderr, "%s\n", failure);
    return failure != NULL;
}

/* Open MPI's own leaks are not ours to mend. */
static int run_under_mpirun(int size, const char *part)
{
    char path[1200], command[4096];
    snprintf(path, sizeof path, "%s/shared", lkt_scratch_folder("mpi"));
    FILE *file = fopen(path, "w");
    if (!file || fseek(file, 4095, SEEK_SET) != 0 || fputc(0, file) == EOF || fclose(file) != 0)
        fail_msg("no file");
    snprintf(command, sizeof command,
             "ASAN_OPTIONS=detect_leaks=0 timeout 200 mpirun --allow-run-as-root --oversubscribe -np %d '%s' "
             "--as-rank %s '%s' 2>'%s.err'",
             size, self_path, part, path, path);
    int status = system(command);
    if (status != 0 && strcmp(part, "dies") != 0 && strcmp(part, "stalls") != 0 &&
        strcmp(part, "less") != 0) {
        snprintf(command, sizeof command, "cat '%s.err' >&2", path);
        if (system(command) != 0) fail_msg("no output");
    }
    return status;
}

static void need_mpirun(void)
{
    if (!lki_comm_has_mpi()) {
        print_message("built without MPI\n");
        skip();
    }
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("mpirun is not installed\n");
        skip();
    }
}

static void conforms(void **state)
{
    (void)state;
    need_mpirun();
    assert_int_equal(run_under_mpirun(2, "conforms"), 0);
    assert_int_equal(run_under_mpirun(4, "conforms"), 0);
}

static void large_ones_go_in_parts(void **state)
{
    (void)state;
    need_mpirun();
    assert_int_equal(run_under_mpirun(2, "parts"), 0);
    assert_int_equal(run_under_mpirun(3, "parts"), 0);
}

static void steady_state(void **state)
{
    (void)state;
    need_mpirun();
    assert_int_equal(run_under_mpirun(2, "steady"), 0);
}

static void some_of_the_ranks(void **state)
{
    (void)state;
    need_mpirun();
    assert_int_equal(run_under_mpirun(4, "some"), 0);
}

static void any_order_of_waiting(void **state)
{
    (void)state;
    need_mpirun();
    for (int size = 2; size <= 4; size++) assert_int_equal(run_under_mpirun(size, "order"), 0);
    assert_int_equal(run_under_mpirun(8, "order"), 0);
}

static int arrived_ranks(void)
{
    char path[1200];
    int arrived = 0;
    snprintf(path, sizeof path, "%s/tests/scratch/mpi/shared", LK_BUILD_DIR);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fread(&arrived, sizeof arrived, 1, file), 1);
    fclose(file);
    return arrived;
}

/* The ranks end with MPI_Abort, as MPI itself knows no other end of such a comm. */
static void a_disagreement_is_found_out(void **state)
{
    (void)state;
    need_mpirun();
    int status = run_under_mpirun(2, "less");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 124);
    assert_int_equal(arrived_ranks(), 2);
}

static void a_stall_names_who_is_missing(void **state)
{
    (void)state;
    need_mpirun();
    for (int size = 3; size <= 4; size++) { /* over MPI's own collective, and by pairs */
        int status = run_under_mpirun(size, "stalls");
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 124);
        assert_int_equal(arrived_ranks(), size - 1); /* all have said what was expected */
    }
    assert_int_equal(run_under_mpirun(3, "slow"), 0);
}

static void a_death_ends_the_job(void **state)
{
    (void)state;
    need_mpirun();
    int status = run_under_mpirun(3, "dies");
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 124);
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "--as-rank") == 0) return be_a_rank(argv[2], argv[3]);
    static char path[1024];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    self_path = length > 0 ? path : argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conforms),
        cmocka_unit_test(large_ones_go_in_parts),
        cmocka_unit_test(steady_state),
        cmocka_unit_test(some_of_the_ranks),
        cmocka_unit_test(any_order_of_waiting),
        cmocka_unit_test(a_disagreement_is_found_out),
        cmocka_unit_test(a_stall_names_who_is_missing),
        cmocka_unit_test(a_death_ends_the_job),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
