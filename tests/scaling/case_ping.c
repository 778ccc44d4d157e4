/* What a link can do, by plain TCP and nothing else: the numbers that the model is given. */
#include "parts.h"

#include "base/clock.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <arpa/inet.h>

enum { LARGE = 512 * 1024, SMALL = 1, PINGS = 21, STREAMS = 7 };

static bool read_all(int fd, char *data, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t got = read(fd, data + done, nbytes - done);
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int fd, const char *data, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        ssize_t put = write(fd, data + done, nbytes - done);
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

static struct sockaddr_in address_of(const char *host, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (host) inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

/* Reads messages that begin with their length, and answers each with one byte. */
int be_pong(int port)
{
    static char data[LARGE];
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = address_of(NULL, port);
    uint32_t nbytes;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0)
        return 1;
    int fd = accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (read_all(fd, (char *)&nbytes, sizeof nbytes))
        if (nbytes > LARGE || !read_all(fd, data, nbytes) || !write_all(fd, data, 1)) return 1;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The median seconds until a message of `nbytes` is there and the answer is back. */
static double round_trip_s(int fd, uint32_t nbytes, int count)
{
    static char data[LARGE + sizeof nbytes];
    double seconds[PINGS];
    for (int i = -count / 2; i < count; i++) {
        double begin = lki_now_s();
        memcpy(data, &nbytes, sizeof nbytes);
        if (!write_all(fd, data, nbytes + sizeof nbytes) || !read_all(fd, data, 1)) return -1;
        if (i >= 0) seconds[i] = lki_now_s() - begin;
    }
    qsort(seconds, (size_t)count, sizeof *seconds, ascending);
    return seconds[count / 2];
}

int be_ping(const char *host, int port)
{
    int fd = -1, on = 1;
    struct sockaddr_in address = address_of(host, port);
    for (int i = 0; i < 100; i++) { /* until the other one listens */
        fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0) break;
        close(fd);
        fd = -1;
        usleep(50000);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    double small_s = round_trip_s(fd, SMALL, PINGS), large_s = round_trip_s(fd, LARGE, STREAMS);
    if (small_s < 0 || large_s <= small_s) return 1;
    printf("%.9f %.1f\n", small_s / 2, LARGE / (large_s - small_s));
    return 0;
}
