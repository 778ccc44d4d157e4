/* What an address says about who can reach it. */
#define _GNU_SOURCE
#include "comm/net.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void lki_raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit); /* who runs out of them says so */
}

static struct addrinfo *resolve(const char *host, int flags)
{
    struct addrinfo *addresses = NULL,
                    hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    return getaddrinfo(host, NULL, &hints, &addresses) == 0 ? addresses : NULL;
}

/* The kernel lets a socket have the addresses of this machine only. */
bool lki_net_is_own(const char *host)
{
    struct addrinfo *addresses = resolve(host, 0);
    bool own = !addresses;
    for (struct addrinfo *a = addresses; a && !own; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
        own = fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) == 0 || errno != EADDRNOTAVAIL;
        if (fd >= 0) close(fd);
    }
    if (addresses) freeaddrinfo(addresses);
    return own;
}

static bool has_kind(const char *text, bool (*is)(const struct sockaddr *address))
{
    struct addrinfo *address = resolve(text, AI_NUMERICHOST);
    bool found = address && is(address->ai_addr);
    if (address) freeaddrinfo(address);
    return found;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)address)->sin6_addr;
    return address->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127));
}

static bool is_link_local(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

bool lki_net_is_loopback(const char *address)
{
    return has_kind(address, is_loopback);
}

bool lki_net_is_link_local(const char *address)
{
    return has_kind(address, is_link_local);
}

bool lki_net_global_address(const char *link_local, char *text, size_t capacity)
{
    const char *zone = strchr(link_local, '%');
    struct ifaddrs *all = NULL;
    bool found = false;
    if (!zone || getifaddrs(&all) != 0) return false;
    for (struct ifaddrs *one = all; one && !found; one = one->ifa_next) {
        int family = one->ifa_addr ? one->ifa_addr->sa_family : AF_UNSPEC;
        if ((family != AF_INET && family != AF_INET6) || strcmp(one->ifa_name, zone + 1) != 0 ||
            is_link_local(one->ifa_addr))
            continue;
        socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
        found = getnameinfo(one->ifa_addr, length, text, (socklen_t)capacity, NULL, 0, NI_NUMERICHOST) == 0;
    }
    freeifaddrs(all);
    return found;
}
