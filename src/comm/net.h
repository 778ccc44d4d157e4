/* TCP with deadlines. Errors are errno values, since only the caller knows what the other side is. */
#ifndef LKI_COMM_NET_H
#define LKI_COMM_NET_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tries every address of the host again and again until the deadline: the server may not be up yet, and its
 * name may not be known yet. LK_ERR_NOT_FOUND if it still is not. The socket is non-blocking, without delay,
 * and notices that a host is gone after LOCKSTEP_LINK_TIMEOUT seconds, 20 by default. */
lk_status lki_net_connect(int *fd, const char *host, int port, int64_t deadline_ns);

/* Listens on all addresses of this host, IPv6 and IPv4; port 0 takes a free one and *port says which. */
lk_status lki_net_listen(int *fd, int *port);
/* Listens on one address, a numeric one: LK_ERR_NOT_FOUND if it is none of this host's. NULL: on all. */
lk_status lki_net_listen_at(int *fd, int *port, const char *address);

/* As many descriptors as the system lets this process have: ranks of large jobs need one per peer. */
void lki_raise_descriptor_limit(void);

/* Whether one of the host's addresses belongs to this machine; true if that cannot be found out. */
bool lki_net_is_own(const char *host);

/* Whether the text is an address of this machine alone, or one that means another machine on every link. */
bool lki_net_is_loopback(const char *address);
bool lki_net_is_link_local(const char *address);
/* Another address of the interface that has this link-local one; false if there is none. */
bool lki_net_global_address(const char *link_local, char *text, size_t capacity);

/* 0, or ETIMEDOUT, ECONNRESET (closed by the other side) or another errno. The deadline does not count time
 * in which this process was stopped. */
int lki_net_send(int fd, const void *data, size_t nbytes, int64_t deadline_ns);
int lki_net_receive(int fd, void *data, size_t nbytes, int64_t deadline_ns);

/* Options of an accepted or connected socket. */
void lki_net_tune(int fd);

#endif
