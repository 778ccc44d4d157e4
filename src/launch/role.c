/* The precedence: flags, the environment, Slurm, MPI, else this process alone. */
#define _GNU_SOURCE
#include "launch/role.h"

#include "base/status.h"
#include "comm/store/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RANKS = 100000000 };

/* ---- Reading the environment ---- */

const char *lki_environment_get(const char *const *environment, const char *name)
{
    size_t length = strlen(name);
    if (!environment) environment = (const char *const *)environ;
    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return (*environment)[length + 1] ? *environment + length + 1 : NULL;
    return NULL;
}

lk_status lki_environment_int(const char *const *environment, const char *name, long least, long most,
                              int *out, bool *found)
{
    const char *text = lki_environment_get(environment, name);
    char *end = NULL;
    *found = text != NULL;
    if (!text) return LK_OK;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return lki_fail(LK_ERR_CONFIG, "%s: expected a number from %ld to %ld, found \"%s\"", name, least,
                        most, text);
    *out = (int)value;
    return LK_OK;
}

/* ---- Roles ---- */

const char *lki_role_source_name(lki_role_source source)
{
    static const char *const names[] = {
#define X(symbol, name) name,
        LKI_ROLE_SOURCE_LIST(X)
#undef X
    };
    return names[source];
}

/* For those who start the ranks by hand. The secret is added when the ranks connect (job_key.h). The world
 * size is no part of it: ranks that were told different sizes are to hear just that. */
static void shared_token(lki_role *role)
{
    snprintf(role->token, sizeof role->token, "lockstep by hand");
}

static lk_status role_from_flags(lki_role *out, const lki_launch_flags *flags, const char *const *environment)
{
    lki_role role = {
        .source = LKI_ROLE_FLAGS, .local_rank = -1, .fork_count = 1, .shm_fd = -1, .port_count = 1};
    bool found;
    role.world_size = flags->world_size ? flags->world_size : flags->default_world_size;
    if (!flags->has_rank) return lki_fail(LK_ERR_CONFIG, "--world-size %d needs --rank", flags->world_size);
    if (role.world_size < 1) return lki_fail(LK_ERR_CONFIG, "--rank %d needs --world-size", flags->rank);
    role.rank = flags->rank;
    if (role.rank >= role.world_size)
        return lki_fail(LK_ERR_CONFIG, "--rank %d: ranks of --world-size %d go from 0 to %d", role.rank,
                        role.world_size, role.world_size - 1);
    const char *host = flags->host ? flags->host : lki_environment_get(environment, "MASTER_ADDR");
    if (!host && role.world_size > 1)
        return lki_fail(LK_ERR_CONFIG, "--rank %d of %d needs --host, the address of rank 0", role.rank,
                        role.world_size);
    snprintf(role.master, sizeof role.master, "%s", host ? host : "");
    role.port = LKI_STORE_DEFAULT_PORT;
    LKI_TRY(lki_environment_int(environment, "MASTER_PORT", 1, 65535, &role.port, &found));
    if (flags->port) role.port = flags->port;
    LKI_TRY(lki_environment_int(environment, "LOCAL_RANK", 0, 1000000, &role.local_rank, &found));
    shared_token(&role);
    *out = role;
    return LK_OK;
}

int lki_port_of_text(const char *text, int number)
{
    enum { FIRST_PORT = 12000, PORT_RANGE = 16000 };
    uint32_t hash = 2166136261u ^ (uint32_t)number;
    for (const char *c = text; *c; c++) hash = (hash ^ (unsigned char)*c) * 16777619u;
    return FIRST_PORT + (int)((hash ^ hash >> 16) % PORT_RANGE);
}

/* torchrun's agent keeps MASTER_PORT for a store of its own. Every rank finds the same other ports from what
 * the agent told them, below those that systems hand out by themselves. The token tells the job's restarts
 * apart. */
static void leave_port_to_agent(lki_role *role, const char *const *environment)
{
    enum { PORT_COUNT = 16 };
    const char *holds = lki_environment_get(environment, "TORCHELASTIC_USE_AGENT_STORE");
    const char *run = lki_environment_get(environment, "TORCHELASTIC_RUN_ID");
    const char *restart = lki_environment_get(environment, "TORCHELASTIC_RESTART_COUNT");
    size_t length = strlen(role->token);
    if (!holds || strcmp(holds, "True") != 0) return;
    snprintf(role->token + length, sizeof role->token - length, " %.64s %.16s", run ? run : "",
             restart ? restart : "0");
    role->port = lki_port_of_text(run ? run : "", role->port);
    role->port_count = PORT_COUNT;
}

static lk_status role_from_environment(lki_role *out, const char *const *environment, bool *found)
{
    lki_role role = {.source = LKI_ROLE_ENVIRONMENT,
                     .local_rank = -1,
                     .fork_count = 1,
                     .shm_fd = -1,
                     .port_count = 1,
                     .port = LKI_STORE_DEFAULT_PORT};
    bool has_size, has;
    LKI_TRY(lki_environment_int(environment, "RANK", 0, MAX_RANKS, &role.rank, found));
    if (!*found) return LK_OK;
    LKI_TRY(lki_environment_int(environment, "WORLD_SIZE", 1, MAX_RANKS, &role.world_size, &has_size));
    if (!has_size) return lki_fail(LK_ERR_CONFIG, "RANK is set, but not WORLD_SIZE");
    if (role.rank >= role.world_size)
        return lki_fail(LK_ERR_CONFIG, "RANK is %d, but WORLD_SIZE is %d", role.rank, role.world_size);
    LKI_TRY(lki_environment_int(environment, "LOCAL_RANK", 0, 1000000, &role.local_rank, &has));
    LKI_TRY(lki_environment_int(environment, "LOCAL_WORLD_SIZE", 1, 1000000, &role.local_size, &has));
    LKI_TRY(lki_environment_int(environment, "MASTER_PORT", 1, 65535, &role.port, &has));
    const char *master = lki_environment_get(environment, "MASTER_ADDR");
    if (!master && role.world_size > 1)
        return lki_fail(LK_ERR_CONFIG, "RANK is %d of WORLD_SIZE %d, but MASTER_ADDR is not set", role.rank,
                        role.world_size);
    snprintf(role.master, sizeof role.master, "%s", master ? master : "");
    shared_token(&role);
    leave_port_to_agent(&role, environment);
    *out = role;
    return LK_OK;
}

/* mpirun inside a Slurm allocation leaves the variables of its own helper tasks behind: the two then
 * disagree, and MPI is the one that started us. Where srun did, they agree or only one is there. */
static bool mpi_is_inside_slurm(const lki_role *slurm, const lki_role *mpi)
{
    return mpi->world_size > 0 && (mpi->rank != slurm->rank || mpi->world_size != slurm->world_size);
}

/* Nobody says which rank this is. WORLD_SIZE alone is a launch that went wrong half way: training alone would
 * look as if it had worked. */
static lk_status role_alone(lki_role *out, const lki_launch_flags *flags, const char *const *environment)
{
    int world_size = 1;
    bool found;
    LKI_TRY(lki_environment_int(environment, "WORLD_SIZE", 1, MAX_RANKS, &world_size, &found));
    if (world_size > 1) return lki_fail(LK_ERR_CONFIG, "WORLD_SIZE is %d, but RANK is not set", world_size);
    *out = (lki_role){.source = LKI_ROLE_LOCAL,
                      .world_size = 1,
                      .local_size = 1,
                      .node_count = 1,
                      .fork_count = flags->nproc > 1 ? flags->nproc : 1,
                      .shm_fd = -1};
    return LK_OK;
}

/* Who somebody else says that we are: the environment, Slurm or MPI. */
static lk_status role_from_launcher(lki_role *out, const lki_launch_flags *flags,
                                    const char *const *environment, int gpu_count)
{
    static const lki_launch_flags none;
    lki_role slurm = {0}, mpi = {0};
    bool found, in_slurm, in_mpi;
    LKI_TRY(role_from_environment(out, environment, &found));
    if (found) return LK_OK;
    LKI_TRY(lki_mpi_role(&mpi, environment, &in_mpi));
    LKI_TRY(lki_slurm_role(&slurm, in_mpi ? &none : flags, environment, in_mpi ? -1 : gpu_count, &in_slurm));
    if (in_slurm && !(in_mpi && mpi_is_inside_slurm(&slurm, &mpi)))
        *out = slurm;
    else if (in_mpi)
        *out = mpi;
    else
        return role_alone(out, flags, environment);
    return LK_OK;
}

/* --world-size beside a launcher is what the user believes: an allocation of another size is an error on
 * every rank. MPI may not have told its size yet. */
static lk_status check_world_size(const lki_role *role, const lki_launch_flags *flags)
{
    const char *remedy = role->source == LKI_ROLE_SLURM ? "srun -n" : "mpirun -np";
    if (role->source == LKI_ROLE_LOCAL)
        return lki_fail(LK_ERR_CONFIG, "--world-size %d needs --rank", flags->world_size);
    if (role->world_size == 0 || role->world_size == flags->world_size) return LK_OK;
    if (role->source == LKI_ROLE_ENVIRONMENT)
        return lki_fail(LK_ERR_CONFIG, "--world-size %d, but WORLD_SIZE is %d", flags->world_size,
                        role->world_size);
    if (role->fork_count > 1)
        return lki_fail(LK_ERR_CONFIG,
                        "--world-size %d, but %d nodes with %d ranks each make %d: ask Slurm for other "
                        "nodes (-N), or leave --world-size out",
                        flags->world_size, role->node_count, role->fork_count, role->world_size);
    return lki_fail(LK_ERR_CONFIG,
                    "--world-size %d, but %s has started %d tasks: start as many (%s %d), or leave "
                    "--world-size out",
                    flags->world_size, role->source == LKI_ROLE_SLURM ? "Slurm" : "MPI", role->world_size,
                    remedy, flags->world_size);
}

/* --host beside a launcher says where rank 0 is when the launcher's own name for it leads nowhere. */
static lk_status take_host(lki_role *role, const lki_launch_flags *flags)
{
    if (role->source == LKI_ROLE_LOCAL)
        return lki_fail(LK_ERR_CONFIG, "--host %s needs --rank and --world-size", flags->host);
    snprintf(role->master, sizeof role->master, "%s", flags->host);
    if (!flags->port) return LK_OK;
    role->port = flags->port;
    role->port_count = 1;
    return LK_OK;
}

lk_status lki_launch_role(lki_role *out, const lki_launch_flags *flags, const char *const *environment,
                          int gpu_count)
{
    static const lki_launch_flags none;
    if (!flags) flags = &none;
    if (flags->has_rank || (flags->world_size && flags->host))
        return role_from_flags(out, flags, environment);
    lki_role role;
    LKI_TRY(role_from_launcher(&role, flags, environment, gpu_count));
    if (flags->host) LKI_TRY(take_host(&role, flags));
    if (flags->token_file && role.source == LKI_ROLE_LOCAL)
        return lki_fail(LK_ERR_CONFIG,
                        "--token-file %s needs ranks that are started one by one, such as with "
                        "--rank and --world-size",
                        flags->token_file);
    if (flags->world_size) LKI_TRY(check_world_size(&role, flags));
    *out = role;
    return LK_OK;
}

static lki_role process_role = {.source = LKI_ROLE_LOCAL,
                                .world_size = 1,
                                .local_size = 1,
                                .node_count = 1,
                                .fork_count = 1,
                                .shm_fd = -1};

const lki_role *lki_process_role(void)
{
    return &process_role;
}

void lki_process_role_set(const lki_role *role)
{
    process_role = *role;
}
