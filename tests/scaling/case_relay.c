/* The delaying relay: a switch of raw sockets with a queue in time. It stands where a kernel with netem would
 * do the same. */
#define _GNU_SOURCE
#include "parts.h"

#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <arpa/inet.h>

enum { MAX_PORTS = 16, MAX_FRAME = 2048, QUEUE_LENGTH = 1 << 15, SOCKET_NBYTES = 8 << 20 };

typedef struct frame {
    int64_t due_ns;
    int from;
    int nbytes;
    unsigned char data[MAX_FRAME];
} frame;

typedef struct relay {
    int64_t delay_ns;
    int port_count;
    struct pollfd ports[MAX_PORTS];
    unsigned char addresses[MAX_PORTS][ETH_ALEN]; /* of who was last heard behind each port */
    frame *queue;
    uint64_t begin, end;
} relay;

/* The clock of the kernel's time stamps. */
static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int open_port(const char *interface)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK, htons(ETH_P_ALL)), on = 1, nbytes = SOCKET_NBYTES;
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    if (fd < 0 || address.sll_ifindex == 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        perror(interface);
        exit(1);
    }
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &nbytes, sizeof nbytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &nbytes, sizeof nbytes);
    return fd;
}

static int64_t stamp_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        struct timespec at;
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SO_TIMESTAMPNS) continue;
        memcpy(&at, CMSG_DATA(c), sizeof at);
        return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
    }
    return now_ns();
}

/* Takes what waits at a port. Frames that this process itself sent are seen too, and left out. */
static void take_frames(relay *r, int port)
{
    for (int i = 0; i < 64 && r->end - r->begin < QUEUE_LENGTH; i++) {
        frame *f = &r->queue[r->end % QUEUE_LENGTH];
        struct sockaddr_ll from;
        union {
            char bytes[128];
            struct cmsghdr align;
        } control;
        struct iovec where = {f->data, sizeof f->data};
        struct msghdr message = {.msg_name = &from,
                                 .msg_namelen = sizeof from,
                                 .msg_iov = &where,
                                 .msg_iovlen = 1,
                                 .msg_control = &control,
                                 .msg_controllen = sizeof control};
        ssize_t nbytes = recvmsg(r->ports[port].fd, &message, 0);
        if (nbytes < 0) return;
        if (from.sll_pkttype == PACKET_OUTGOING || nbytes < ETH_HLEN) continue;
        if (message.msg_flags & MSG_TRUNC) {
            fprintf(stderr, "relay: a frame of more than %d bytes\n", MAX_FRAME);
            exit(1);
        }
        memcpy(r->addresses[port], f->data + ETH_ALEN, ETH_ALEN);
        f->due_ns = stamp_of(&message) + r->delay_ns;
        f->from = port;
        f->nbytes = (int)nbytes;
        r->end++;
    }
}

/* To the port behind which the receiver was heard; to all others where it is not known, or is everybody. */
static void hand_on(const relay *r, const frame *f)
{
    int only = -1;
    for (int p = 0; p < r->port_count; p++)
        if (memcmp(f->data, r->addresses[p], ETH_ALEN) == 0) only = p;
    for (int p = 0; p < r->port_count; p++) {
        if (p == f->from || (only >= 0 && p != only)) continue;
        if (send(r->ports[p].fd, f->data, (size_t)f->nbytes, 0) < 0) perror("relay: send");
    }
}

int be_the_relay(int argc, char **argv)
{
    relay r = {.delay_ns = atoll(argv[2]) * 1000, .port_count = argc - 3};
    r.queue = mmap(NULL, sizeof *r.queue * QUEUE_LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (r.queue == MAP_FAILED || r.port_count > MAX_PORTS) return 1;
    prctl(PR_SET_TIMERSLACK, 1000UL);
    for (int p = 0; p < r.port_count; p++)
        r.ports[p] = (struct pollfd){.fd = open_port(argv[3 + p]), .events = POLLIN};
    puts("ready");
    fflush(stdout);
    for (;;) {
        int64_t wait_ns = -1, now = now_ns();
        for (; r.begin < r.end && r.queue[r.begin % QUEUE_LENGTH].due_ns <= now; r.begin++)
            hand_on(&r, &r.queue[r.begin % QUEUE_LENGTH]);
        if (r.begin < r.end) wait_ns = r.queue[r.begin % QUEUE_LENGTH].due_ns - now_ns();
        if (r.begin < r.end && wait_ns < 0) wait_ns = 0;
        struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
        if (ppoll(r.ports, (nfds_t)r.port_count, wait_ns < 0 ? NULL : &wait, NULL) <= 0) continue;
        for (int p = 0; p < r.port_count; p++)
            if (r.ports[p].revents) take_frames(&r, p);
    }
}

static bool switch_off(int fd, const char *interface, unsigned command)
{
    struct ethtool_value value = {.cmd = command};
    struct ifreq request = {.ifr_data = (char *)&value};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", interface);
    return ioctl(fd, SIOCETHTOOL, &request) == 0;
}

int be_a_wire(const char *interface)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    bool done = switch_off(fd, interface, ETHTOOL_STSO) && switch_off(fd, interface, ETHTOOL_SGSO) &&
                switch_off(fd, interface, ETHTOOL_STXCSUM) && switch_off(fd, interface, ETHTOOL_SGRO);
    if (!done) perror(interface);
    close(fd);
    return !done;
}
