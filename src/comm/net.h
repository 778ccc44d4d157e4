/* TCP with deadlines. Errors are errno values, since only the caller knows what the other side is. */
#ifndef LKI_COMM_NET_H
#define LKI_COMM_NET_H

#include <lockstep/status.h>

#include <stddef.h>
#include <stdint.h>

/* Tries every address of the host again and again until the deadline: the server may not be up yet. The
 * socket is non-blocking, without delay, and notices a dead host in a few seconds. */
lk_status lki_net_connect(int *fd, const char *host, int port, int64_t deadline_ns);

/* Listens on all addresses of this host, IPv6 and IPv4; port 0 takes a free one and *port says which. */
lk_status lki_net_listen(int *fd, int *port);

/* 0, or ETIMEDOUT, ECONNRESET (closed by the other side) or another errno. */
int lki_net_send(int fd, const void *data, size_t nbytes, int64_t deadline_ns);
int lki_net_receive(int fd, void *data, size_t nbytes, int64_t deadline_ns);

/* Options of an accepted or connected socket. */
void lki_net_tune(int fd);

#endif
