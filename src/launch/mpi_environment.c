/* A role from an MPI launcher, read from what it leaves in the environment, before MPI itself is started. */
#include "launch/role.h"

#include "base/status.h"

#include <stdio.h>

enum { PORT_COUNT = 16 };

/* The variables of each launcher, the most telling first. */
typedef struct mpi_names {
    const char *rank, *size, *local_rank, *local_size;
} mpi_names;

static const mpi_names launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
};

/* What differs from job to job and is the same for all ranks of one. */
static void choose_token(lki_role *role, const char *const *environment)
{
    static const char *const names[] = {"OMPI_MCA_orte_precondition_transports", "PMIX_NAMESPACE",
                                        "PMI_JOBID", "OMPI_MCA_ess_base_jobid", "HYDI_CONTROL_FD"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *value = lki_environment_get(environment, names[i]);
        if (!value) continue;
        snprintf(role->token, sizeof role->token, "mpi %.80s", value);
        return;
    }
    snprintf(role->token, sizeof role->token, "mpi");
}

lk_status lki_meet_without_mpi(lki_role *role)
{
    if (role->source != LKI_ROLE_MPI || role->world_size == 1) return LK_OK;
    if (role->world_size < 1)
        return lki_fail(LK_ERR_CONFIG,
                        "--max-restarts: this MPI does not say how many ranks there are before "
                        "it is started: leave --max-restarts out");
    if (role->master[0]) return LK_OK;
    if (role->local_size != role->world_size)
        return lki_fail(LK_ERR_CONFIG,
                        "--max-restarts: MPI cannot start a lost rank again, so the ranks meet without it: "
                        "--host or MASTER_ADDR must give the address of rank 0");
    snprintf(role->master, sizeof role->master, "127.0.0.1");
    role->port = lki_port_of_text(role->token, 0);
    role->port_count = PORT_COUNT;
    return LK_OK;
}

lk_status lki_mpi_role(lki_role *out, const char *const *environment, bool *found)
{
    lki_role role = {.source = LKI_ROLE_MPI,
                     .local_rank = -1,
                     .fork_count = 1,
                     .shm_fd = -1,
                     .port = 29500,
                     .port_count = 1};
    bool has_size = false, has_local;
    *found = false;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers && !*found; i++) {
        const mpi_names *names = &launchers[i];
        LKI_TRY(lki_environment_int(environment, names->rank, 0, 100000000, &role.rank, found));
        if (!*found) continue;
        LKI_TRY(lki_environment_int(environment, names->size, 1, 100000000, &role.world_size, &has_size));
        LKI_TRY(
            lki_environment_int(environment, names->local_rank, 0, 1000000, &role.local_rank, &has_local));
        LKI_TRY(
            lki_environment_int(environment, names->local_size, 1, 1000000, &role.local_size, &has_local));
        if (!has_size) return lki_fail(LK_ERR_CONFIG, "%s is set, but not %s", names->rank, names->size);
        if (role.rank >= role.world_size)
            return lki_fail(LK_ERR_CONFIG, "%s is %d, but %s is %d", names->rank, role.rank, names->size,
                            role.world_size);
    }
    if (!*found) {
        /* PMIx alone tells no size: MPI is asked when connecting, and 0 stands for that. */
        LKI_TRY(lki_environment_int(environment, "PMIX_RANK", 0, 100000000, &role.rank, found));
        if (!*found) return LK_OK;
    }
    const char *master = lki_environment_get(environment, "MASTER_ADDR");
    bool has_port;
    LKI_TRY(lki_environment_int(environment, "MASTER_PORT", 1, 65535, &role.port, &has_port));
    if (master) snprintf(role.master, sizeof role.master, "%s", master);
    choose_token(&role, environment);
    *out = role;
    return LK_OK;
}
