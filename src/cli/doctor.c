/* What this machine can do, a line a fact. */
#include "cli/commands.h"
#include "cli/environment.h"

#include "base/memory.h"
#include "base/settings.h"
#include "base/threads.h"
#include "board/http.h"
#include "comm/gloo/gloo_plugin.h"
#include "comm/mpi/mpi_plugin.h"
#include "data/curl/curl_plugin.h"
#include "data/fftw/fftw_plugin.h"
#include "onnx/protobuf/onnx_plugin.h"
#include "data/hdf5/hdf5_plugin.h"
#include "engine/cpu/machine.h"
#include "plot/plplot/plplot_plugin.h"
#include "launch/devices.h"
#include "launch/role.h"
#include "tensor/pictures/pictures_plugin.h"

#include <lockstep/sys/engine.h>
#include <lockstep/version.h>

#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
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
#ifdef LOCKSTEP_HAVE_BLAS
        "OpenBLAS",
#endif
#ifdef LOCKSTEP_HAVE_CUDA
        "CUDA",
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

/* Each engine is opened: what is listed as ready can run. */
static void print_engines(void)
{
    for (const char *const *name = lk_engine_names(); *name; name++) {
        lk_engine *engine = lk_engine_open(*name, NULL);
        printf("%-12s %s: %s\n", "engine", *name, engine ? "ready" : lk_error());
        if (engine) lk_engine_close(engine);
    }
}

static void print_cpu(void)
{
    static const char *const wanted[] = {" avx2 ", " avx512f ", " avx512_bf16 ", " amx_bf16 ", NULL};
    char line[8192], flags[8200] = " ", model[256] = "unknown";
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        line[strcspn(line, "\n")] = 0;
        if (value && !strncmp(line, "model name", 10)) snprintf(model, sizeof model, "%.250s", value + 2);
        if (value && !strncmp(line, "flags", 5)) snprintf(flags, sizeof flags, "%s ", value + 1);
    }
    if (file) fclose(file);
    printf("%-12s %s:", "cpu", model);
    for (int i = 0; wanted[i]; i++)
        if (strstr(flags, wanted[i])) printf(" %.*s", (int)strlen(wanted[i]) - 2, wanted[i] + 1);
    putchar('\n');
}

/* The kernels that this process gets, after a trial of the instructions for bf16. */
static void print_kernels(void)
{
    lki_cpu_level level;
    char line[128];
    if (lki_cpu_level_of_machine(&level)) {
        print_fact("kernels", lk_error());
        return;
    }
    const lki_bf16_kernels *low = lki_bf16_kernels_of(level);
    snprintf(line, sizeof line, "%s; bf16: %s%s", lki_cpu_level_name(level),
             low ? low->name : "widened to f32",
             lki_setting_text(LKI_SETTING_CPU_LEVEL) ? ", as LOCKSTEP_CPU_LEVEL asks" : "");
    print_fact("kernels", line);
}

static void print_comms(void)
{
    struct statvfs shm;
    char room[32];
    if (statvfs("/dev/shm", &shm) == 0)
        printf("%-12s shm: ready, %s in /dev/shm\n", "comm",
               lki_format_nbytes(room, sizeof room, (uint64_t)shm.f_bavail * shm.f_frsize));
    else
        print_fact("comm", "shm: no /dev/shm");
    if (lki_comm_has_gloo()) print_fact("comm", "gloo: ready");
    if (lki_comm_has_mpi()) print_fact("comm", "mpi: ready");
#ifdef LOCKSTEP_HAVE_CUDA
    print_fact("comm", "nccl: built in; it needs GPUs, and NCCL's library, as below");
#endif
}

#ifdef LOCKSTEP_HAVE_MPICH
/* In a process of its own: a second MPI must not come into this one. */
static void print_plugin_alone(lki_plugin *plugin)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        printf("%-12s %s: %s\n", "plug-in", plugin->name, lki_plugin_open(plugin) ? "ready" : lk_error());
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        printf("%-12s %s: a process that opened it ended\n", "plug-in", plugin->name);
}
#endif

/* Each plug-in is opened, with the libraries that it needs. */
static void print_plugins(void)
{
    lki_plugin *const plugins[] = {&lki_mpi,      &lki_gloo,   &lki_hdf5, &lki_fftw, &lki_curl,
                                   &lki_pictures, &lki_plplot, &lki_onnx, &lki_http, NULL};
    for (int i = 0; plugins[i]; i++)
        printf("%-12s %s: %s\n", "plug-in", plugins[i]->name,
               lki_plugin_open(plugins[i]) ? "ready" : lk_error());
#ifdef LOCKSTEP_HAVE_MPICH
    print_plugin_alone(&lki_mpich);
#endif
}

/* Who would this process be, were a run started here? */
static void print_role(void)
{
    lki_role role;
    char line[512];
    if (lki_launch_role(&role, lki_process_flags(), NULL, lki_host_gpu_count()))
        snprintf(line, sizeof line, "%s", lk_error());
    else if (role.source == LKI_ROLE_LOCAL)
        snprintf(line, sizeof line, "alone; with --ddp, %d ranks on this machine", lki_core_count());
    else
        snprintf(line, sizeof line, "rank %d of %d, from %s, rank 0 at %s:%d", role.rank, role.world_size,
                 lki_role_source_name(role.source), *role.master ? role.master : "this host", role.port);
    print_fact("role", line);
    print_fact("slurm", getenv("SLURM_JOB_ID")               ? "in a job"
                        : access("/usr/bin/srun", X_OK) == 0 ? "installed, not in a job"
                                                             : "none");
    print_fact("mpi", getenv("OMPI_COMM_WORLD_SIZE") || getenv("PMI_SIZE") ? "started by it"
                      : access("/usr/bin/mpirun", X_OK) == 0               ? "installed"
                                                                           : "none");
}

static int run(const void *options)
{
    (void)options;
    print_fact("lockstep", lk_version());
    print_machine();
    print_cpu();
    print_kernels();
    print_features();
    print_engines();
    print_comms();
    print_plugins();
    lki_doctor_gpus();
    print_role();
    lki_environment_print_set(stdout);
    return LKI_EXIT_DONE;
}

const lki_command lki_command_doctor = {
    .name = "doctor",
    .usage = "",
    .summary = "Prints what this machine can do: engines, kernels, comms, GPUs, MPI, Slurm.",
    .run = run,
};
