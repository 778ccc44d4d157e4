/* Where a node of Slurm's is: Slurm knows the addresses of its nodes, DNS need not know their names. */
#define _GNU_SOURCE
#include "launch/role.h"

#include "base/log.h"

#include <fcntl.h>
#include <netdb.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_known(const char *host)
{
    struct addrinfo *addresses = NULL, hints = {.ai_socktype = SOCK_STREAM};
    if (getaddrinfo(host, NULL, &hints, &addresses) != 0) return false;
    freeaddrinfo(addresses);
    return true;
}

/* What `scontrol show node NAME` prints; "" if it cannot be asked. */
static void ask(const char *name, char *text, size_t capacity)
{
    char *arguments[] = {"scontrol", "--oneliner", "show", "node", (char *)(uintptr_t)name, NULL};
    posix_spawn_file_actions_t actions;
    int pipes[2];
    pid_t pid = -1;
    size_t length = 0;
    text[0] = '\0';
    if (pipe2(pipes, O_CLOEXEC) != 0) return;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, pipes[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int failed = posix_spawnp(&pid, "scontrol", &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(pipes[1]);
    for (ssize_t got = 1; !failed && got > 0 && length + 1 < capacity; length += got > 0 ? (size_t)got : 0)
        got = read(pipes[0], text + length, capacity - 1 - length);
    text[length] = '\0';
    close(pipes[0]);
    if (!failed) waitpid(pid, NULL, 0);
}

/* "... NodeAddr=10.0.0.7 NodeHostName=n1 ..." */
static bool find_value(const char *text, const char *name, char *value, size_t capacity)
{
    const char *place = strstr(text, name);
    if (!place) return false;
    place += strlen(name);
    size_t length = strcspn(place, " \n");
    if (length == 0 || length >= capacity) return false;
    memcpy(value, place, length);
    value[length] = '\0';
    return true;
}

void lki_slurm_find_master(lki_role *role)
{
    char said[8192], address[sizeof role->master];
    if (!role->master[0] || is_known(role->master)) return;
    ask(role->master, said, sizeof said);
    if (!find_value(said, "NodeAddr=", address, sizeof address) || strcmp(address, role->master) == 0) return;
    if (role->rank == 0)
        lki_log(LKI_LOG_INFO, "host \"%s\" is not known by name: Slurm has it at %s", role->master, address);
    snprintf(role->master, sizeof role->master, "%s", address);
}
