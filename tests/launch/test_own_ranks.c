/* lk_comm_connect: processes that their own program has started and numbered. */
#include "../comm/ranks.h"

#include "comm/net.h"

#include <lockstep/launch.h>
#include <lockstep/sys/comm.h>

#include <sys/stat.h>

typedef struct meeting_place {
    char address[64], file[600];
} meeting_place;

static const char *meet_and_add(int rank, int size, void *context)
{
    meeting_place *place = context;
    double value = rank + 1;
    bool by_file = *place->file;
    if (rank == 0 && by_file) nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL); /* the others wait */
    lk_comm *comm = by_file
                        ? lk_comm_connect(rank, size, .file = place->file, .join_timeout_ms = 60000)
                        : lk_comm_connect(rank, size, .address = place->address, .join_timeout_ms = 60000);
    rank_check(comm && comm->rank == rank && comm->size == size);
    rank_ok(lk_comm_all_reduce(comm, &value, 1, LK_F64, LK_REDUCE_SUM));
    rank_check(value == size * (size + 1) / 2.0);
    lk_comm_free(comm);
    return NULL;
}

static void by_an_address(void **state)
{
    meeting_place place = {0};
    int fd, port = 0;
    (void)state;
    lkt_ok(lki_net_listen(&fd, &port));
    close(fd);
    snprintf(place.address, sizeof place.address, "127.0.0.1:%d", port);
    run_processes(3, meet_and_add, &place);
}

static void by_a_file(void **state)
{
    meeting_place place = {0};
    (void)state;
    snprintf(place.file, sizeof place.file, "%s/tests/own-ranks-%d", LK_BUILD_DIR, (int)getpid());
    run_processes(3, meet_and_add, &place);
    assert_int_not_equal(access(place.file, F_OK), 0);
    run_processes(2, meet_and_add, &place);
}

static void alone(void **state)
{
    (void)state;
    lk_comm *comm = lk_comm_connect(0, 1);
    assert_non_null(comm);
    assert_int_equal(comm->size, 1);
    lk_comm_free(comm);
}

static void mistakes(void **state)
{
    char path[600];
    (void)state;
    assert_null(lk_comm_connect(2, 2, .address = "localhost:1"));
    lkt_contains(lk_error(), "rank 2 of 2: ranks count from 0");
    assert_null(lk_comm_connect(0, 2));
    lkt_contains(lk_error(), "give the address of rank 0 or a file that all ranks reach");
    assert_null(lk_comm_connect(0, 2, .address = "localhost:1", .file = "x"));
    lkt_contains(lk_error(), "not both");
    assert_null(lk_comm_connect(0, 2, .address = "localhost"));
    lkt_contains(lk_error(), "address: expected HOST:PORT, found \"localhost\"");
    assert_null(lk_comm_connect(1, 2, .file = "/nowhere/at/all", .join_timeout_ms = 30));
    lkt_contains(lk_error(), "/nowhere/at/all: rank 0 has not written it");
    snprintf(path, sizeof path, "%s/tests/own-ranks-stale-%d", LK_BUILD_DIR, (int)getpid());
    fclose(fopen(path, "w"));
    assert_null(lk_comm_connect(0, 2, .file = path));
    lkt_contains(lk_error(), "it is left from another job: remove it");
    assert_null(lk_comm_connect(1, 2, .file = path, .join_timeout_ms = 30));
    lkt_contains(lk_error(), "expected HOST:PORT, found \"\"");
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_an_address),
        cmocka_unit_test(by_a_file),
        cmocka_unit_test(alone),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
