/* From a role to a comm: the backend that fits, connected to all peers. */
#ifndef LKI_LAUNCH_CONNECT_H
#define LKI_LAUNCH_CONNECT_H

#include <lockstep/sys/comm.h>

#include "launch/role.h"

typedef struct lki_connect_options {
    const char *backend;     /* "auto" (and NULL), "self", "shm", "gloo", "mpi", "nccl" */
    const char *device;      /* what the ranks compute on, as engines are named; NULL: nothing with a GPU */
    int64_t join_timeout_ms; /* for all ranks to come; 0: LOCKSTEP_JOIN_TIMEOUT (seconds), or 120 s */
    int64_t timeout_ms;      /* of a collective; 0: LOCKSTEP_COMM_TIMEOUT (seconds), or the default */
    bool no_pinning;
    int min_nodes; /* go on without ranks that stay away, if so many hosts are left; 0: all ranks must come */
    int shards;    /* with min_nodes: the ranks that go on must divide them; 0: any number may go on */
} lki_connect_options;

/* auto: one rank is self; ranks that compute on a GPU each speak NCCL, where it is installed and MPI has not
 * started us. Of all others, ranks of one host share memory; on several hosts they do so inside each, and one
 * leader a host speaks Gloo with the others, or MPI where MPI started us. Every rank calls it.
 * role->local_rank and local_size are filled in where they were not known; role->shm_round counts the call,
 * and forked ranks that connect again must hand that on. Ranks that nobody has bound to
 * cores are pinned to their share. With min_nodes, role->rank and world_size are of those that have come. */
lk_status lki_comm_connect(lk_comm **out, lki_role *role, const lki_connect_options *options);

/* Whether ranks of this process have connected before: all of them were there once. */
bool lki_ranks_have_met(void);

#endif
