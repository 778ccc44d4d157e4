#include "launch/min_nodes.h"

#include "base/settings.h"
#include "base/status.h"
#include "launch/connect.h"
#include "launch/restart.h"

#include <string.h>

static struct {
    lki_store_server *server; /* of the latest meeting */
    lki_meeting *kept;
} door;

void lki_door_open(const lki_meeting *meeting)
{
    door.server = meeting->server;
}

void lki_door_keep(lki_meeting *meeting)
{
    lki_door_open(meeting);
    door.kept = meeting;
}

bool lki_ranks_wait(char *text, size_t capacity)
{
    *text = '\0';
    return door.server && lki_store_server_returning(door.server, text, capacity);
}

void lki_ranks_close_door(void)
{
    lki_meeting_close(door.kept);
    door.kept = NULL;
    door.server = NULL;
}

/* MPI ends a job that loses a process, and forked ranks are one process's: neither can go on without. */
lk_status lki_connect_check_min_nodes(int min_nodes, const char *backend, const lki_role *role)
{
    if (!min_nodes) return LK_OK;
    if (role->source == LKI_ROLE_LOCAL || role->source == LKI_ROLE_FORKED)
        return lki_fail(LK_ERR_CONFIG,
                        "min_nodes: these ranks are forked by one process and end with it: start them one by "
                        "one (--world-size, --rank and --host, srun or torchrun), or leave it out");
    if (role->source == LKI_ROLE_MPI || (backend && strcmp(backend, "mpi") == 0))
        return lki_fail(LK_ERR_CONFIG,
                        "min_nodes: MPI ends a job that loses a process: start the ranks by hand, with srun "
                        "or with torchrun, without --comm mpi, or leave it out");
    if (min_nodes < 0 || min_nodes > role->world_size)
        return lki_fail(LK_ERR_CONFIG,
                        "min_nodes: expected a number from 1 to %d, the number of ranks, found %d",
                        role->world_size, min_nodes);
    return LK_OK;
}

/* Ranks that have met before come back soon or not at all. At the start of a job they have the time that all
 * ranks have. */
lk_status lki_min_nodes_settle_ms(lki_meeting_options *how)
{
    enum { DEFAULT_NODE_TIMEOUT_S = 30, DEFAULT_JOIN_TIMEOUT_MS = 120000 };
    int seconds;
    LKI_TRY(lki_setting_seconds(LKI_SETTING_NODE_TIMEOUT, &seconds));
    bool have_been = lki_is_restart() || lki_ranks_have_met();
    int64_t join_ms = how->join_timeout_ms ? how->join_timeout_ms : DEFAULT_JOIN_TIMEOUT_MS;
    how->settle_ms = have_been ? (seconds ? seconds : DEFAULT_NODE_TIMEOUT_S) * 1000LL : join_ms;
    return LK_OK;
}
