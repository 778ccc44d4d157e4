/* What this machine can do, a line a fact. */
#include "cli/commands.h"

#include "base/memory.h"
#include "base/threads.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void print_fact(const char *name, const char *text)
{
    printf("%-12s %s\n", name, text);
}

static void print_machine(void)
{
    char host[256] = "?", memory[32], line[384];
    gethostname(host, sizeof host - 1);
    uint64_t nbytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGE_SIZE);
    snprintf(line, sizeof line, "%s, %d cores for this process, %s", host, lki_core_count(),
             lki_format_nbytes(memory, sizeof memory, nbytes));
    print_fact("machine", line);
}

/* What was found when this binary was built. */
static void print_features(void)
{
    static const char *const features[] = {
#ifdef LOCKSTEP_HAVE_DNNL
        "oneDNN",
#endif
#ifdef LOCKSTEP_HAVE_BLAS
        "OpenBLAS",
#endif
#ifdef LOCKSTEP_HAVE_CUDA
        "CUDA",
#endif
#ifdef LOCKSTEP_HAVE_NCCL
        "NCCL",
#endif
#ifdef LOCKSTEP_HAVE_MPI
        "MPI",
#endif
#ifdef LOCKSTEP_HAVE_GLOO
        "Gloo",
#endif
#ifdef LOCKSTEP_HAVE_HDF5
        "HDF5",
#endif
#ifdef LOCKSTEP_HAVE_PNG
        "PNG",
#endif
#ifdef LOCKSTEP_HAVE_JPEG
        "JPEG",
#endif
#ifdef LOCKSTEP_HAVE_CURL
        "downloads",
#endif
        NULL,
    };
    printf("%-12s", "built with");
    for (int i = 0; features[i]; i++) printf(" %s", features[i]);
    putchar('\n');
}

/* Who would this process be, were a run started here? */
static void print_role(void)
{
    const char *job = getenv("SLURM_JOB_ID"), *nodes = getenv("SLURM_JOB_NODELIST");
    const char *rank = getenv("RANK"), *world = getenv("WORLD_SIZE"), *mpi = getenv("OMPI_COMM_WORLD_SIZE");
    char line[512];
    snprintf(line, sizeof line, "job %s on %s", job ? job : "", nodes ? nodes : "?");
    print_fact("slurm", job ? line : access("/usr/bin/srun", X_OK) == 0 ? "installed, not in a job" : "none");
    snprintf(line, sizeof line, "world of %s", mpi ? mpi : "");
    print_fact("mpirun", mpi ? line : "not started by it");
    snprintf(line, sizeof line, "RANK=%s WORLD_SIZE=%s", rank ? rank : "", world ? world : "");
    print_fact("environment", rank || world ? line : "RANK and WORLD_SIZE are not set");
}

static int run(const void *options)
{
    (void)options;
    print_fact("lockstep", lk_version());
    print_machine();
    print_features();
    print_role();
    return LKI_EXIT_DONE;
}

const lki_command lki_command_doctor = {
    .name = "doctor",
    .usage = "",
    .summary = "Says what this machine can do: engines, comms, GPUs, MPI, Slurm.",
    .run = run,
};
