/* MPI between processes that nobody started together: each is an MPI job of one, and they join one after the
 * other.
 *
 * Rank 0 opens a port; for k = 1, 2, ... the ranks below k accept together, rank k connects, and the two
 * sides become one communicator in which it is the last. Open MPI's jobs find each other through a small
 * server, `ompi-server`, which rank 0 runs for as long as it lives. */
#define _GNU_SOURCE
#include "comm/comm.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/mpi_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SERVER_TIMEOUT_MS = 20000, TURN_MS = 20, MAX_URI = 1024, DEFAULT_JOIN_TIMEOUT_MS = 120000 };

#ifdef OPEN_MPI
static const bool needs_server = true;
#else
static const bool needs_server = false;
#endif

static const char server_key[] = "mpi/server", port_key[] = "mpi/port";

/* The server writes where it is into a file, whose first line it is. */
static lk_status read_uri(pid_t pid, const char *path, char *uri, size_t capacity)
{
    for (int waited_ms = 0; waited_ms < SERVER_TIMEOUT_MS; waited_ms += TURN_MS) {
        FILE *file = fopen(path, "r");
        bool complete = file && fgets(uri, (int)capacity, file) && strchr(uri, '\n');
        if (file) fclose(file);
        if (complete) {
            uri[strcspn(uri, "\n")] = '\0';
            return LK_OK;
        }
        if (waitpid(pid, NULL, WNOHANG) != 0) break;
        nanosleep(&(struct timespec){.tv_nsec = TURN_MS * 1000000L}, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return lki_fail(LK_ERR_UNSUPPORTED,
                    "--comm mpi: ranks that are started by hand need Open MPI's ompi-server, which did not "
                    "start; start them with mpirun or srun");
}

/* It ends with this process, which is rank 0. */
static lk_status start_server(char *uri, size_t capacity)
{
    char path[] = "/tmp/lockstep-mpi-XXXXXX";
    pid_t parent = getpid();
    int fd = mkstemp(path);
    if (fd < 0) return lki_fail(LK_ERR_IO, "%s: %s", path, strerror(errno));
    close(fd);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        if (getppid() != parent) _exit(1);
        setpgid(0, 0); /* Ctrl-C is rank 0's to handle */
        fd = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(fd, i);
        execlp("ompi-server", "ompi-server", "--no-daemonize", "-r", path, (char *)NULL);
        _exit(127);
    }
    lk_status status = pid > 0 ? read_uri(pid, path, uri, capacity)
                               : lki_fail(LK_ERR_NOMEM, "could not fork: %s", strerror(errno));
    unlink(path);
    return status;
}

/* Before MPI starts: where the server is. Other MPIs need none. */
static lk_status find_server(const lki_mpi_meet_options *options, int64_t timeout_ms)
{
    char uri[MAX_URI] = "-";
    LKI_SCOPED char *said = NULL;
    if (!needs_server) return LK_OK;
    if (options->rank == 0) {
        lki_error first = {0};
        if (lki_error_keep(&first, start_server(uri, sizeof uri))) { /* the others wait for the word */
            lki_store_set(options->store, server_key, "", 0);
            return lki_error_restore(&first);
        }
        LKI_TRY(lki_store_set(options->store, server_key, uri, strlen(uri)));
    }
    LKI_TRY(lki_store_wait(options->store, server_key, timeout_ms, &said, NULL));
    if (!said || !*said)
        return lki_fail(LK_ERR_UNSUPPORTED, "--comm mpi: rank 0 could not start ompi-server");
    setenv("OMPI_MCA_pmix_server_uri", said, 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0); /* a job of one process is ours alone */
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    return LK_OK;
}

/* Makes one communicator of ours and the newcomer's; `last` is the newcomer's side. */
static lk_status merge(MPI_Comm between, MPI_Comm *joined, bool last)
{
    lk_status status = lki_mpi_check(MPI_Intercomm_merge(between, last, joined), "MPI_Intercomm_merge");
    MPI_Comm_free(&between);
    return status;
}

/* Rank `rank`'s turn has come when rank 0 says so. */
static lk_status join(const lki_mpi_meet_options *options, MPI_Comm *joined, int64_t timeout_ms)
{
    char key[48];
    LKI_SCOPED char *port = NULL, *turn = NULL;
    MPI_Comm between;
    snprintf(key, sizeof key, "mpi/turn/%d", options->rank);
    LKI_TRY(lki_store_wait(options->store, key, timeout_ms, &turn, NULL));
    LKI_TRY(lki_store_get(options->store, port_key, &port, NULL));
    LKI_TRY(
        lki_mpi_check(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &between), "MPI_Comm_connect"));
    return merge(between, joined, true);
}

static lk_status accept_one(const lki_mpi_meet_options *options, MPI_Comm *joined, const char *port, int rank)
{
    char key[48];
    MPI_Comm between, before = *joined;
    snprintf(key, sizeof key, "mpi/turn/%d", rank);
    if (options->rank == 0) LKI_TRY(lki_store_set(options->store, key, "1", 1));
    LKI_TRY(lki_mpi_check(MPI_Comm_accept(port, MPI_INFO_NULL, 0, before, &between), "MPI_Comm_accept"));
    LKI_TRY(merge(between, joined, false));
    if (before != MPI_COMM_SELF) MPI_Comm_free(&before);
    return LK_OK;
}

lk_status lki_comm_mpi_meet(lk_comm **out, const lki_mpi_meet_options *options)
{
    char port[MPI_MAX_PORT_NAME] = "";
    int64_t timeout_ms = options->join_timeout_ms ? options->join_timeout_ms : DEFAULT_JOIN_TIMEOUT_MS;
    MPI_Comm joined = MPI_COMM_SELF;
    *out = NULL;
    if (!lki_mpi_is_initialised()) LKI_TRY(find_server(options, timeout_ms));
    LKI_TRY(lki_mpi_initialise());
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (options->rank == 0) {
        LKI_TRY(lki_mpi_check(MPI_Open_port(MPI_INFO_NULL, port), "MPI_Open_port"));
        LKI_TRY(lki_store_set(options->store, port_key, port, strlen(port)));
    } else {
        LKI_TRY(join(options, &joined, timeout_ms));
    }
    for (int rank = options->rank + 1; rank < options->size; rank++)
        LKI_TRY(accept_one(options, &joined, port, rank));
    if (options->rank == 0) MPI_Close_port(port);
    return lki_mpi_wrap(out, joined, &(lki_mpi_wrapping){.timeout_ms = options->timeout_ms});
}
