/* lk_comm_connect: a comm of processes that their own program has numbered. */
#include <lockstep/launch.h>
#include <lockstep/sys/comm.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "comm/net.h"
#include "launch/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_JOIN_TIMEOUT_MS = 120000, TURN_MS = 10, MAX_HOST = 256 };

typedef struct place {
    char host[MAX_HOST];
    int port;
} place;

/* The last colon: an address of IPv6 has others. */
static lk_status read_place(place *out, const char *text, const char *what)
{
    const char *colon = strrchr(text, ':');
    char *end = NULL;
    long port = colon ? strtol(colon + 1, &end, 10) : 0;
    while (end && *end == '\n') end++;
    if (!colon || colon == text || colon - text >= MAX_HOST || !end || *end || port < 1 || port > 65535)
        return lki_fail(LK_ERR_INVALID, "%s: expected HOST:PORT, found \"%.100s\"", what, text);
    snprintf(out->host, sizeof out->host, "%.*s", (int)(colon - text), text);
    out->port = (int)port;
    return LK_OK;
}

static lk_status write_file(const char *path, const char *text)
{
    LKI_SCOPED char *aside = lki_format("%s.%ld", path, (long)getpid());
    if (!aside) return LK_ERR_NOMEM;
    int fd = open(aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: could not make: %s", aside, strerror(errno));
    ssize_t length = (ssize_t)strlen(text);
    bool is_written = write(fd, text, (size_t)length) == length;
    int error = errno;
    close(fd);
    if (is_written && link(aside, path) != 0) { /* unlike a rename, never over an older file */
        is_written = false;
        error = errno;
    }
    unlink(aside);
    if (is_written) return LK_OK;
    return lki_fail(LK_ERR_IO, "%s: could not make: %s%s", path, strerror(error),
                    error == EEXIST ? ": it is left from another job: remove it, or give each job its own"
                                    : "");
}

/* Rank 0 is found by the name of its host. */
static lk_status offer(place *out, const char *path)
{
    char text[MAX_HOST + 16];
    int fd;
    LKI_TRY(lki_net_listen(&fd, &out->port)); /* a port that is free */
    close(fd);
    if (gethostname(out->host, sizeof out->host - 1) != 0) snprintf(out->host, sizeof out->host, "localhost");
    snprintf(text, sizeof text, "%s:%d\n", out->host, out->port);
    return write_file(path, text);
}

static lk_status look_up(place *out, const char *path, int64_t timeout_ms)
{
    int64_t deadline_ns = lki_now_ns() + timeout_ms * 1000000;
    char text[MAX_HOST + 16];
    for (;;) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            ssize_t length = read(fd, text, sizeof text - 1);
            close(fd);
            text[length > 0 ? length : 0] = '\0';
            return read_place(out, text, path);
        }
        if (errno != ENOENT) return lki_fail(LK_ERR_IO, "%s: could not open: %s", path, strerror(errno));
        if (lki_now_ns() >= deadline_ns)
            return lki_fail(LK_ERR_TIMEOUT, "%s: rank 0 has not written it within %lld s", path,
                            (long long)(timeout_ms / 1000));
        nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
    }
}

static lk_status check(int rank, int size, const lk_comm_connect_options *options)
{
    if (size < 1 || rank < 0 || rank >= size)
        return lki_fail(LK_ERR_INVALID,
                        "lk_comm_connect: rank %d of %d: ranks count from 0 and are less than the size", rank,
                        size);
    if (!options->address == !options->file && size > 1)
        return lki_fail(LK_ERR_INVALID,
                        "lk_comm_connect: give the address of rank 0 or a file that all ranks reach%s",
                        options->address ? ", not both" : "");
    if (options->join_timeout_ms < 0 || options->timeout_ms < 0)
        return lki_fail(LK_ERR_INVALID, "lk_comm_connect: a timeout must not be negative");
    return LK_OK;
}

static lk_status find_place(place *out, int rank, const lk_comm_connect_options *options, int64_t timeout_ms)
{
    if (options->address) return read_place(out, options->address, "lk_comm_connect: address");
    return rank == 0 ? offer(out, options->file) : look_up(out, options->file, timeout_ms);
}

static lk_status connect_ranks(lk_comm **out, int rank, int size, const lk_comm_connect_options *options)
{
    place at = {.host = "localhost", .port = 1};
    static const char *const nothing[] = {NULL}; /* what a launcher has set is not about these ranks */
    int64_t patience_ms = options->join_timeout_ms ? options->join_timeout_ms : DEFAULT_JOIN_TIMEOUT_MS;
    lki_role role;
    if (size > 1) LKI_TRY(find_place(&at, rank, options, patience_ms));
    lki_launch_flags flags = {
        .world_size = size, .has_rank = true, .rank = rank, .host = at.host, .port = at.port};
    LKI_TRY(lki_launch_role(&role, &flags, nothing, -1));
    lki_connect_options wanted = {
        .join_timeout_ms = patience_ms, .timeout_ms = options->timeout_ms, .no_pinning = true};
    lk_status status = lki_comm_connect(out, &role, &wanted);
    if (options->file && rank == 0 && size > 1) unlink(options->file);
    return status;
}

lk_comm *lk_comm_connect_with(int rank, int size, const lk_comm_connect_options *given)
{
    LKI_TAKE(lk_comm_connect_options, options, given, NULL);
    lk_comm *comm = NULL;
    if (check(rank, size, &options)) return NULL;
    return connect_ranks(&comm, rank, size, &options) ? NULL : comm;
}
