#define _GNU_SOURCE
#include "launch/meeting.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/settings.h"
#include "base/status.h"
#include "comm/net.h"
#include "comm/store/store_wire.h"
#include "launch/ranks.h"
#include "launch/restart.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_JOIN_TIMEOUT_MS = 120000, GOODBYE_MS = 5000 };
enum { JOIN_TURN_MS = 500, DOOR_MS = 300 };
enum { SETTLED_MS = 10000 }; /* rank 0 settles a job; who waits for that waits a little longer */
enum { QUIET_MS = 5000 };    /* how long a rank waits without saying what for */

static unsigned long inode_of(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 ? (unsigned long)info.st_ino ^ (unsigned long)info.st_dev << 32 : 0;
}

void lki_host_identity(char *text, size_t capacity)
{
    const char *given = lki_setting_text(LKI_SETTING_HOST_ID);
    char boot[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd >= 0 ? read(fd, boot, sizeof boot - 1) : 0;
    if (fd >= 0) close(fd);
    boot[length > 0 ? length : 0] = '\0';
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(text, capacity, "%s %lx %lx %lx %u %.40s", boot, inode_of("/proc/self/ns/pid"),
             inode_of("/proc/self/ns/net"), inode_of("/dev/shm"), (unsigned)geteuid(), given ? given : "");
}

void lki_rank_word_init(lki_rank_word *word, const char *terms)
{
    memset(word, 0, sizeof *word);
    lki_host_identity(word->identity, sizeof word->identity);
    snprintf(word->terms, sizeof word->terms, "%s", terms);
}

lk_status lki_check_same_terms(const lki_rank_word *words, int world_size)
{
    for (int r = 1; r < world_size; r++) {
        const char *first = words[0].terms, *theirs = words[r].terms;
        if (strcmp(first, theirs) == 0) continue;
        while (strcspn(first, "\n") == strcspn(theirs, "\n") && *first && *theirs &&
               strncmp(first, theirs, strcspn(first, "\n")) == 0) {
            size_t length = strcspn(first, "\n") + (first[strcspn(first, "\n")] == '\n');
            first += length;
            theirs += length;
        }
        return lki_fail(LK_ERR_PEER, "the ranks cannot connect: rank %d has %.*s where rank 0 has %.*s", r,
                        (int)strcspn(theirs, "\n"), theirs, (int)strcspn(first, "\n"), first);
    }
    return LK_OK;
}

lk_status lki_meeting_sort_hosts(lki_meeting *meeting, int rank, int world_size, const lki_rank_word *words)
{
    int *first = LKI_NEW_ARRAY(int, world_size); /* by host: its first rank */
    meeting->host_of = LKI_NEW_ARRAY(int, world_size);
    meeting->locals = LKI_NEW_ARRAY(int, world_size);
    meeting->host_count = meeting->local_size = 0;
    lk_status status = first && meeting->host_of && meeting->locals ? LK_OK : LK_ERR_NOMEM;
    for (int r = 0; status == LK_OK && r < world_size; r++) {
        int host = 0;
        while (host < meeting->host_count &&
               strncmp(words[first[host]].identity, words[r].identity, sizeof words[r].identity) != 0)
            host++;
        if (host == meeting->host_count) first[meeting->host_count++] = r;
        meeting->host_of[r] = host;
    }
    for (int r = 0; status == LK_OK && r < world_size; r++) {
        if (meeting->host_of[r] != meeting->host_of[rank]) continue;
        if (r == rank) meeting->local_rank = meeting->local_size;
        meeting->locals[meeting->local_size++] = r;
    }
    lki_free(first);
    return status;
}

/* The one address to listen on. A name may mean another address on each host (Debian's machines call
 * themselves 127.0.1.1): then it is all of them. */
static const char *address_to_listen_on(const lki_role *role)
{
    struct in6_addr number;
    if (strcmp(role->master, "localhost") == 0) return "127.0.0.1";
    bool is_number = inet_pton(AF_INET, role->master, &number) == 1 || strchr(role->master, ':');
    return is_number ? role->master : NULL;
}

/* An address that leads here through another machine (a service of Kubernetes) is none of this host's. */
static lk_status listen_at(lki_meeting *meeting, lki_store_server_options *options)
{
    lk_status status = lki_store_server_start(&meeting->server, options);
    if (status != LK_ERR_NOT_FOUND) return status;
    options->address = NULL;
    return lki_store_server_start(&meeting->server, options);
}

/* Rank 0's store listens at the first port of the role that is free. */
static lk_status open_server(lki_meeting *meeting, const lki_role *role, const lki_meeting_options *wanted)
{
    lk_status status = LK_OK;
    for (int i = 0; i < role->port_count; i++) {
        lki_store_server_options options = {.port = role->port + i,
                                            .world_size = role->world_size,
                                            .address = address_to_listen_on(role),
                                            .token = role->token,
                                            .min_nodes = wanted->min_nodes,
                                            .settle_ms = wanted->settle_ms,
                                            .shards = wanted->shards,
                                            .takes_back = lki_restarts_allowed() > 0};
        status = listen_at(meeting, &options);
        if (status != LK_ERR_IO) return status;
    }
    return status;
}

static int64_t left_ms(int64_t deadline_ns)
{
    int64_t left = (deadline_ns - lki_now_ns()) / 1000000;
    return left > 0 ? left : 1;
}

static lk_status try_port(lki_meeting *meeting, const lki_role *role, int port, int64_t timeout_ms)
{
    meeting->port = port;
    return lki_store_connect(&meeting->store, &(lki_store_options){.host = role->master,
                                                                   .port = port,
                                                                   .token = role->token,
                                                                   .rank = role->rank,
                                                                   .world_size = role->world_size,
                                                                   .registers = true,
                                                                   .timeout_ms = timeout_ms});
}

/* Another job may sit at the first ports of a scheduler's choice: its store does not know our token, and we
 * go on to the next. */
static bool may_be_elsewhere(const lki_meeting *meeting, const lki_role *role)
{
    return role->port_count > 1 && !meeting->server &&
           (strstr(lk_error(), "another job") || strstr(lk_error(), "no lockstep store"));
}

/* Who is there without being ours tells more than the last port's silence: perhaps our token is wrong. */
static lk_status nothing_found(const lki_role *role, const lki_error *foreign, lk_status status)
{
    if (!foreign->status) return status;
    return lki_fail_prefix(lki_error_restore(foreign),
                           "none of the ports %d to %d of %s has this job's store", role->port,
                           role->port + role->port_count - 1, role->master);
}

/* The store of an attempt that has failed takes nobody in. It ends soon, and then comes that of the next one.
 */
static void rest(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
}

/* A rank that the job goes on without waits at the door, as long as there is one. */
static void wait_at_door(const lki_role *role, bool *told, int64_t *deadline_ns, int64_t timeout_ms)
{
    if (!*told) lki_log(LKI_LOG_INFO, "rank %d waits: %s", role->rank, lk_error());
    *told = true;
    *deadline_ns = lki_now_ns() + timeout_ms * 1000000;
    nanosleep(&(struct timespec){.tv_nsec = DOOR_MS * 1000000L}, NULL);
}

static lk_status find_store(lki_meeting *meeting, const lki_role *role, int64_t timeout_ms)
{
    int64_t deadline_ns = lki_now_ns() + timeout_ms * 1000000;
    bool waits = false;
    lki_error foreign = {0};
    int64_t turn_ms = role->port_count > 1 ? 100 : QUIET_MS;
    bool told = role->port_count > 1; /* a scheduler's ranks are many, and rank 0 speaks for them */
    for (;;) {
        lk_status status = LK_OK;
        for (int i = 0; i < role->port_count; i++) {
            int port = meeting->server ? lki_store_server_port(meeting->server) : role->port + i;
            int64_t left = left_ms(deadline_ns);
            status = try_port(meeting, role, port, turn_ms < left ? turn_ms : left);
            if (status == LK_ERR_STOPPED &&
                strstr(lk_error(), LKI_STORE_WAITS)) /* none of our own is there */
                wait_at_door(role, &waits, &deadline_ns, timeout_ms);
            else if (status == LK_ERR_STOPPED && lki_restarts_allowed() > 0)
                rest();
            bool may_come = status == LK_ERR_TIMEOUT || status == LK_ERR_NOT_FOUND ||
                            (status == LK_ERR_STOPPED && lki_restarts_allowed() > 0);
            if (may_come) continue;
            if (status == LK_ERR_STOPPED) return LK_ERR_PEER; /* the sentence is the job's */
            if (status == LK_OK || !may_be_elsewhere(meeting, role)) return status;
            if (!strstr(foreign.sentence, "another job"))
                foreign.status = LK_OK; /* that one tells the most */
            lki_error_keep(&foreign, status);
        }
        if (lki_now_ns() >= deadline_ns) return nothing_found(role, &foreign, status);
        if (!told && status != LK_ERR_STOPPED)
            lki_log(LKI_LOG_INFO, "rank %d goes on trying: %s", role->rank, lk_error());
        told = true;
    }
}

/* Ranks that this process has forked may die before they come: then nobody need wait for them. */
static lk_status check_forked(lki_meeting *meeting)
{
    static const char sentence[] = "a rank that was forked on a host of the job ended before it joined";
    bool swapped;
    if (!lki_forked_rank_failed()) return LK_OK;
    lki_store_compare_set(meeting->store, LKI_STORE_FAILED_KEY, NULL, sentence, &swapped);
    return lki_fail(LK_ERR_PEER, "%s", sentence);
}

/* Until all ranks are there, or the job goes on without some. Rank 0 says for whom it waits if that takes
 * longer than a moment. */
static lk_status wait_for_all(lki_meeting *meeting, const lki_role *role, int64_t deadline_ns)
{
    char node[160];
    lki_store_place place = {role->rank, role->world_size};
    lki_host_identity(node, sizeof node);
    int64_t say_ns = lki_now_ns() + QUIET_MS * 1000000LL;
    bool told = role->rank != 0;
    for (;;) {
        int64_t left = left_ms(deadline_ns), before_ns = lki_now_ns();
        lk_status status =
            lki_store_join_node(meeting->store, node, left < JOIN_TURN_MS ? left : JOIN_TURN_MS, &place);
        int64_t now = lki_now_ns(), beyond_ns = now - before_ns - JOIN_TURN_MS * 1000000LL;
        meeting->rank = place.rank;
        meeting->world_size = place.world_size;
        if (status != LK_ERR_TIMEOUT) return status;
        if (beyond_ns > LKI_STOPPED_NS) deadline_ns += beyond_ns;
        if (now >= deadline_ns) return status;
        if (!told && now >= say_ns) {
            lki_log(LKI_LOG_INFO, "rank 0 waits at %s:%d: %s", meeting->host, meeting->port, lk_error());
            told = true;
        }
        LKI_TRY(check_forked(meeting));
    }
}

/* The first rank that has waited long enough says for whom. Those that wait with it end with the same
 * sentence, not with one that counts the ranks that have given up as missing. */
static lk_status tell_missing(lki_meeting *meeting, lk_status status)
{
    bool swapped;
    lki_error first = {0};
    lki_error_keep(&first, status);
    lki_store_compare_set(meeting->store, LKI_STORE_FAILED_KEY, NULL, first.sentence, &swapped);
    return lki_error_restore(&first);
}

/* Rank 0 gathers the words of all ranks and hands them to everyone in one piece. */
static lk_status exchange_words(lki_meeting *meeting, const char *terms, int64_t timeout_ms, char **all)
{
    char key[64];
    lki_rank_word mine;
    size_t nbytes = (size_t)meeting->world_size * sizeof mine;
    lki_rank_word_init(&mine, terms);
    snprintf(key, sizeof key, "lockstep/host/%d", meeting->rank);
    LKI_TRY(lki_store_set(meeting->store, key, &mine, sizeof mine));
    if (meeting->rank == 0) {
        LKI_SCOPED lki_rank_word *table = LKI_NEW_ARRAY(lki_rank_word, meeting->world_size);
        if (!table) return LK_ERR_NOMEM;
        for (int r = 0; r < meeting->world_size; r++) {
            LKI_SCOPED char *value = NULL;
            size_t length = 0;
            snprintf(key, sizeof key, "lockstep/host/%d", r);
            LKI_TRY(lki_store_wait(meeting->store, key, timeout_ms, &value, &length));
            memcpy(&table[r], value, length < sizeof mine ? length : sizeof mine);
        }
        unsigned char random[16];
        LKI_TRY(lki_wire_random(random, sizeof random));
        for (int i = 0; i < 16; i++) snprintf(meeting->nonce + 2 * i, 3, "%02x", random[i]);
        LKI_TRY(lki_store_set(meeting->store, "lockstep/nonce", meeting->nonce, 32));
        LKI_TRY(lki_store_set(meeting->store, "lockstep/hosts", table, nbytes));
    }
    size_t length = 0;
    LKI_TRY(lki_store_wait(meeting->store, "lockstep/hosts", timeout_ms, all, &length));
    if (length != nbytes) return lki_fail(LK_ERR_PEER, "rank 0 sent a table of hosts of the wrong size");
    LKI_SCOPED char *nonce = NULL;
    LKI_TRY(lki_store_get(meeting->store, "lockstep/nonce", &nonce, NULL));
    snprintf(meeting->nonce, sizeof meeting->nonce, "%s", nonce);
    return LK_OK;
}

/* The address at which the other hosts reach this one. Ranks of rank 0's host may have come to the store by
 * loopback (Debian's /etc/hosts says that a machine's own name is 127.0.1.1): they take the address that
 * others have come by. */
static lk_status find_own_address(lki_meeting *meeting, int64_t timeout_ms)
{
    static const char key[] = "lockstep/address";
    char reached[64] = "", link[64];
    LKI_SCOPED char *said = NULL;
    if (meeting->server) {
        lki_store_server_reached(meeting->server, reached, sizeof reached);
        LKI_TRY(lki_store_set(meeting->store, key, reached, strlen(reached)));
    }
    lki_store_local_address(meeting->store, meeting->address, sizeof meeting->address);
    if (lki_net_is_loopback(meeting->address)) {
        LKI_TRY(lki_store_wait(meeting->store, key, timeout_ms, &said, NULL));
        if (*said) snprintf(meeting->address, sizeof meeting->address, "%.63s", said);
    }
    snprintf(link, sizeof link, "%s", meeting->address);
    if (lki_net_is_link_local(link)) /* it means another machine on each link: an address of its neighbour */
        lki_net_global_address(link, meeting->address, sizeof meeting->address);
    return LK_OK;
}

/* A wrong --host is the most likely reason why nobody comes: it is said before the wait. A name that leads
 * here through another machine (a service of Kubernetes) may be right all the same. */
static void warn_of_foreign_master(const lki_role *role)
{
    if (role->rank == 0 && !lki_net_is_own(role->master))
        lki_log(LKI_LOG_WARNING,
                "rank 0 was told that it is at %s, which is not an address of this machine: set --host (or "
                "MASTER_ADDR) to an address of rank 0's machine",
                role->master);
}

/* Comes to the store and waits there for the others. */
static lk_status come_together(lki_meeting *meeting, const lki_role *role, const lki_meeting_options *options,
                               int64_t deadline_ns)
{
    lk_status status = LK_ERR_STOPPED;
    while (status == LK_ERR_STOPPED) { /* sent back to the door */
        lki_store_close(meeting->store);
        meeting->store = NULL;
        int64_t left = left_ms(deadline_ns), settled_ns = 0;
        LKI_TRY(find_store(meeting, role, left));
        if (options->min_nodes) settled_ns = lki_now_ns() + (options->settle_ms + SETTLED_MS) * 1000000;
        status = wait_for_all(meeting, role, settled_ns > deadline_ns ? settled_ns : deadline_ns);
        if (status == LK_ERR_STOPPED) deadline_ns = lki_now_ns() + options->join_timeout_ms * 1000000;
    }
    if (status == LK_ERR_TIMEOUT) status = tell_missing(meeting, status);
    if (status == LK_OK) return LK_OK;
    return lki_fail_prefix(status, "waiting at %s:%d for all ranks", meeting->host, meeting->port);
}

static lk_status meet(lki_meeting *meeting, const lki_role *role, const lki_meeting_options *options)
{
    int64_t timeout_ms = options->join_timeout_ms, deadline_ns = lki_now_ns() + timeout_ms * 1000000;
    char *words = NULL;
    snprintf(meeting->host, sizeof meeting->host, "%s", role->master);
    warn_of_foreign_master(role);
    if (role->rank == 0) LKI_TRY(open_server(meeting, role, options));
    LKI_TRY(come_together(meeting, role, options, deadline_ns));
    LKI_TRY(find_own_address(meeting, timeout_ms));
    int rank = meeting->rank, world_size = meeting->world_size;
    lk_status status = exchange_words(meeting, options->terms, timeout_ms, &words);
    if (status == LK_OK) status = lki_check_same_terms((const lki_rank_word *)words, world_size);
    if (status == LK_OK)
        status = lki_meeting_sort_hosts(meeting, rank, world_size, (const lki_rank_word *)words);
    lki_free(words);
    return status;
}

lk_status lki_meeting_open(lki_meeting **out, const lki_role *role, const lki_meeting_options *given)
{
    lki_meeting_options options = *given;
    *out = NULL;
    lki_meeting *meeting = LKI_NEW(lki_meeting);
    if (!meeting) return LK_ERR_NOMEM;
    if (!options.join_timeout_ms) options.join_timeout_ms = DEFAULT_JOIN_TIMEOUT_MS;
    lk_status status = meet(meeting, role, &options);
    if (status != LK_OK) {
        lki_meeting_close(meeting);
        return status;
    }
    *out = meeting;
    return LK_OK;
}

void lki_meeting_close(lki_meeting *meeting)
{
    if (!meeting) return;
    lki_monitor_stop(meeting->monitor);
    lki_store_close(meeting->store);
    lki_store_server_stop(meeting->server, GOODBYE_MS);
    lki_free(meeting->host_of);
    lki_free(meeting->locals);
    lki_free(meeting);
}
