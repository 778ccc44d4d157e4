#define _GNU_SOURCE
#include "comm/net.h"

#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LISTEN_BACKLOG = 1024, RETRY_MS = 20, ATTEMPT_MS = 3000, DEFAULT_LINK_MS = 20000, SLICE_MS = 1000 };

/* How long a link may be away. A process that dies closes its connections at once; this is about hosts that
 * lose power and networks that come back. */
static int link_timeout_ms(void)
{
    int seconds;
    bool set = lki_setting_seconds(LKI_SETTING_LINK_TIMEOUT, &seconds) == LK_OK && seconds;
    return set ? seconds * 1000 : DEFAULT_LINK_MS;
}

void lki_net_tune(int fd)
{
    int on = 1, idle_s = 1, interval_s = 1, probes = 3, unacknowledged_ms = link_timeout_ms();
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
}

static int milliseconds_until(int64_t deadline_ns)
{
    int64_t left = (deadline_ns - lki_now_ns() + 999999) / 1000000;
    return left < 0 ? 0 : left > 1000000 ? 1000000 : (int)left;
}

/* 0 when ready. Moves the deadline on by the time in which this process was stopped. */
static int await(int fd, short events, int64_t *deadline_ns)
{
    for (;;) {
        struct pollfd one = {.fd = fd, .events = events};
        int left = milliseconds_until(*deadline_ns), slice = left < SLICE_MS ? left : SLICE_MS;
        int64_t start_ns = lki_now_ns();
        int count = poll(&one, 1, slice);
        int64_t beyond_ns = lki_now_ns() - start_ns - slice * 1000000LL;
        if (count > 0) return 0;
        if (count < 0 && errno != EINTR) return errno;
        if (beyond_ns > LKI_STOPPED_NS)
            *deadline_ns += beyond_ns;
        else if (count == 0 && left <= slice)
            return ETIMEDOUT;
    }
}

static int connect_one(int *out, const struct addrinfo *address, int64_t deadline_ns)
{
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0) return errno;
    int error = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t length = sizeof error;
        int64_t attempt_ns = lki_now_ns() + ATTEMPT_MS * 1000000LL;
        if (attempt_ns < deadline_ns) deadline_ns = attempt_ns;
        int waited = await(fd, POLLOUT, &deadline_ns);
        if (waited)
            error = waited;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
            error = errno;
    }
    if (error) {
        close(fd);
        return error;
    }
    lki_net_tune(fd);
    *out = fd;
    return 0;
}

lk_status lki_net_connect(int *fd, const char *host, int port, int64_t deadline_ns)
{
    char service[16];
    const char *why = "nobody answered";
    snprintf(service, sizeof service, "%d", port);
    for (;;) {
        struct addrinfo *addresses = NULL, hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
        int resolved = getaddrinfo(host, service, &hints, &addresses);
        if (resolved != 0) why = gai_strerror(resolved);
        for (struct addrinfo *address = addresses; address; address = address->ai_next) {
            int error = connect_one(fd, address, deadline_ns);
            if (error == 0) {
                freeaddrinfo(addresses);
                return LK_OK;
            }
            why = strerror(error);
        }
        if (addresses) freeaddrinfo(addresses);
        if (resolved != 0 && lki_now_ns() >= deadline_ns)
            return lki_fail(LK_ERR_NOT_FOUND, "host \"%s\" is not known: %s", host, why);
        if (lki_now_ns() >= deadline_ns)
            return lki_fail(LK_ERR_TIMEOUT, "could not reach rank 0 at %s:%d: %s", host, port, why);
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
    }
}

/* -1 and errno. */
static int listen_on(struct sockaddr *address, socklen_t length, int *port)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP), on = 1,
        off = 0;
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    ((struct sockaddr_in *)address)->sin_port =
        htons((uint16_t)*port); /* at the same place in both families */
    if (bind(fd, address, length) == 0 && listen(fd, LISTEN_BACKLOG) == 0) {
        struct sockaddr_in6 bound;
        length = sizeof bound;
        if (getsockname(fd, (struct sockaddr *)&bound, &length) == 0) *port = ntohs(bound.sin6_port);
        return fd;
    }
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static int listen_on_all(int *port)
{
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    int fd = listen_on((struct sockaddr *)&any6, sizeof any6, port);
    if (fd < 0 && errno != EADDRINUSE && errno != EACCES)
        fd = listen_on((struct sockaddr *)&any4, sizeof any4, port);
    return fd;
}

lk_status lki_net_listen_at(int *fd, int *port, const char *address)
{
    struct addrinfo *found = NULL,
                    hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    *fd = -1;
    if (address && getaddrinfo(address, NULL, &hints, &found) != 0)
        return lki_fail(LK_ERR_NOT_FOUND, "%s is no address to listen on", address);
    *fd = found ? listen_on(found->ai_addr, found->ai_addrlen, port) : listen_on_all(port);
    int error = errno;
    if (found) freeaddrinfo(found);
    if (*fd >= 0) return LK_OK;
    if (error == EADDRNOTAVAIL) return lki_fail(LK_ERR_NOT_FOUND, "%s is no address of this host", address);
    if (error == EADDRINUSE)
        return lki_fail(LK_ERR_IO, "port %d is in use on this host: choose another with --port", *port);
    return lki_fail(LK_ERR_IO, "could not listen on port %d: %s", *port, strerror(error));
}

lk_status lki_net_listen(int *fd, int *port)
{
    return lki_net_listen_at(fd, port, NULL);
}

int lki_net_send(int fd, const void *data, size_t nbytes, int64_t deadline_ns)
{
    const char *from = data;
    while (nbytes > 0) {
        ssize_t sent = send(fd, from, nbytes, MSG_NOSIGNAL);
        if (sent > 0) {
            from += sent;
            nbytes -= (size_t)sent;
        } else if (errno == EAGAIN || errno == EINTR) {
            int error = await(fd, POLLOUT, &deadline_ns);
            if (error) return error;
        } else {
            return errno;
        }
    }
    return 0;
}

int lki_net_receive(int fd, void *data, size_t nbytes, int64_t deadline_ns)
{
    char *to = data;
    while (nbytes > 0) {
        ssize_t received = recv(fd, to, nbytes, 0);
        if (received > 0) {
            to += received;
            nbytes -= (size_t)received;
        } else if (received == 0) {
            return ECONNRESET;
        } else if (errno == EAGAIN || errno == EINTR) {
            int error = await(fd, POLLIN, &deadline_ns);
            if (error) return error;
        } else {
            return errno;
        }
    }
    return 0;
}
