/* A rank dies while the ranks meet, before each of the messages that it sends: the others end at once and
 * name it. They are given a minute to join, so a rank that waited for that would name another reason. */
#define _GNU_SOURCE
#include "../comm/ranks.h"

#include "comm/comm.h"
#include "comm/net.h"
#include "comm/store/store_wire.h"
#include "launch/connect.h"

#include <lockstep/launch.h>

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Sends that are left until this process dies; 0: it lives. */
static _Atomic int sends_left;

/* What the ranks share: how many of those that are neither rank 0 nor the victim rank 0's store knows. Until
 * it knows them all the victim lives: how fast the others come must not matter. */
static _Atomic int *known_count;
static int awaited_count;
static bool is_awaited;

/* In place of the C library's, for the store's client and server. The first message after the handshake comes
 * from a rank that is known. */
ssize_t send(int fd, const void *data, size_t nbytes, int flags)
{
    if (is_awaited && nbytes != sizeof(lki_wire_hello) && nbytes != LKI_WIRE_MAC) {
        is_awaited = false;
        atomic_fetch_add(known_count, 1);
    }
    bool counts = atomic_load(&sends_left) > 0 && atomic_load(known_count) == awaited_count;
    if (counts && atomic_fetch_sub(&sends_left, 1) == 1) raise(SIGKILL);
    return sendto(fd, data, nbytes, flags, NULL, 0);
}

typedef struct meeting_plan {
    int port;
    const char *hosts; /* by rank: a letter for its host */
    const char *backend;
    int victim, at; /* dies before its at-th send */
    const char *expected;
} meeting_plan;

static const char *meet_and_die(int rank, int size, void *context)
{
    const meeting_plan *p = context;
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = "127.0.0.1", .port = p->port};
    lki_connect_options options = {.backend = p->backend, .join_timeout_ms = 60000, .no_pinning = true};
    lki_role role;
    lk_comm *comm = NULL;
    setenv("LOCKSTEP_HOST_ID", (char[]){p->hosts[rank], 0}, 1);
    rank_ok(lki_launch_role(&role, &flags, NULL, 0));
    is_awaited = rank != 0 && rank != p->victim;
    while (rank == p->victim && rank != 0 && atomic_load(known_count) < awaited_count) usleep(1000);
    if (rank == p->victim) atomic_store(&sends_left, p->at);
    lk_status status = lki_comm_connect(&comm, &role, &options);
    if (rank == p->victim) raise(SIGKILL); /* it has fewer messages to send */
    for (int i = 0; i < 3 && status == LK_OK; i++) status = lk_comm_barrier(comm);
    rank_check(status == LK_ERR_PEER);
    rank_check(strstr(lk_error(), p->expected) != NULL);
    lk_comm_free(comm);
    return NULL;
}

static void run_meetings(meeting_plan p, int size, int first, int last, int step)
{
    if (!lki_comm_has_gloo()) skip();
    known_count = shared_zeros(sizeof *known_count);
    awaited_count = p.victim == 0 ? size - 1 : size - 2;
    for (p.at = first; p.at <= last; p.at += step) {
        int fd;
        p.port = 0;
        atomic_store(known_count, 0);
        lkt_ok(lki_net_listen(&fd, &p.port));
        close(fd);
        run_processes_but(size, p.victim, meet_and_die, &p);
    }
    munmap(known_count, sizeof *known_count);
}

/* Before the third message nobody knows that it is rank 1 who came. */
static void a_rank_alone_on_its_host(void **state)
{
    (void)state;
    run_meetings((meeting_plan){.hosts = "abc", .victim = 1, .expected = "rank 1 on 127.0.0.1 died"}, 3, 3,
                 14, 1);
}

static void a_rank_behind_its_hosts_leader(void **state)
{
    (void)state;
    run_meetings((meeting_plan){.hosts = "aab", .victim = 1, .expected = "rank 1"}, 3, 3, 8, 1);
}

static void a_leader_of_others(void **state)
{
    (void)state;
    run_meetings((meeting_plan){.hosts = "abb", .victim = 1, .expected = "rank 1"}, 3, 5, 10, 1);
}

/* Its store is gone with it. Its server's messages count, too. Late in the meeting the others are about to
 * open more connections, and try for some seconds. */
static void rank_0(void **state)
{
    (void)state;
    meeting_plan p = {.hosts = "abc", .victim = 0, .expected = "rank 0 at 127.0.0.1"};
    run_meetings(p, 3, 1, 11, 1);
    run_meetings(p, 3, 12, 60, 19);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_alone_on_its_host),
        cmocka_unit_test(a_rank_behind_its_hosts_leader),
        cmocka_unit_test(a_leader_of_others),
        cmocka_unit_test(rank_0),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
