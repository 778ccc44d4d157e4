/* Starts the programs of this folder under the mpirun of the MPI that they were compiled with. */
#ifndef LKT_INSITU_HOSTS_H
#define LKT_INSITU_HOSTS_H

#include "lktest.h"

#include <sys/wait.h>
#include <unistd.h>

/* Debian's names; "mpich" where there is but that one MPI is started by what CMake has found. */
static inline const char *mpirun_of(const char *library)
{
    return strcmp(library, "mpich") == 0
               ? "mpiexec.mpich"
               : "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none "
                 "mpirun.openmpi --bind-to none";
}

/* Runs build/tests/PROGRAM_LIBRARY on `ranks` ranks and returns its exit status. Skips the test if there is
 * no such program or no mpirun. */
static inline int run_host(const char *library, int ranks, const char *program, const char *arguments)
{
    char path[512], command[2048];
#ifdef __SANITIZE_THREAD__ /* not even an empty program does */
    if (strcmp(library, "mpich") == 0) {
        print_message("mpich: Debian's does not start under the thread sanitizer\n");
        skip();
    }
#endif
    snprintf(path, sizeof path, "%s/tests/%s_%s", LK_BUILD_DIR, program, library);
    snprintf(command, sizeof command, "command -v %s > /dev/null 2>&1",
             strcmp(library, "mpich") == 0 ? "mpiexec.mpich" : "mpirun.openmpi");
    if (access(path, X_OK) != 0 || system(command) != 0) {
        print_message("%s: not built with this MPI, or it has no mpirun\n", library);
        skip();
    }
    /* An MPI library keeps memory until the end. */
    snprintf(command, sizeof command, "ASAN_OPTIONS=detect_leaks=0 %s -n %d timeout 120 %s %s",
             mpirun_of(library), ranks, path, arguments);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#endif
