/* Who this process is, and how its peers are found.
 *
 * lki_launch_role is a pure function of the flags, the environment and the GPUs: it changes nothing and asks
 * nobody. The process's own role is set once, by whoever launches (lki_process_role_set), and read by
 * everyone else. */
#ifndef LKI_LAUNCH_ROLE_H
#define LKI_LAUNCH_ROLE_H

#include <lockstep/status.h>

#include <stdbool.h>

/* X(symbol, name) */
#define LKI_ROLE_SOURCE_LIST(X)                                                                              \
    X(LKI_ROLE_LOCAL, "this process")                                                                        \
    X(LKI_ROLE_FLAGS, "flags")                                                                               \
    X(LKI_ROLE_ENVIRONMENT, "environment")                                                                   \
    X(LKI_ROLE_SLURM, "slurm")                                                                               \
    X(LKI_ROLE_MPI, "mpi")                                                                                   \
    X(LKI_ROLE_FORKED, "forked")

typedef enum lki_role_source {
#define X(symbol, name) symbol,
    LKI_ROLE_SOURCE_LIST(X)
#undef X
} lki_role_source;

const char *lki_role_source_name(lki_role_source source);

typedef struct lki_role {
    lki_role_source source;
    int rank, world_size; /* of this process; of the first rank it is to fork where fork_count > 1 */
    int local_rank;       /* within the host; -1: found out when connecting */
    int local_size;       /* ranks of this host; 0: found out when connecting */
    int node_rank, node_count;
    int fork_count;   /* ranks that this task must become by forking: one task a node; 1: it is one itself */
    char master[256]; /* the host of rank 0; "" where nobody has to be met over a network */
    int port;         /* of the store in rank 0 */
    int port_count;   /* ports from `port` on that it may be at: a scheduler's choice may be taken by another
                         job */
    char token[160];  /* names the job; once the secret is added, proves that we belong to it */
    int gpu_count;    /* GPUs that Slurm has given this task; 0: none that we know of */
    int shm_fd;       /* the shared memory of forked ranks that are the whole job; -1: none */
    int shm_round;    /* how often they have connected through it */
} lki_role;

/* The launch flags; zero means not given, and has_rank says whether rank is. */
typedef struct lki_launch_flags {
    int world_size;
    bool has_rank;
    int rank;
    const char *host, *token_file;
    int port;
    int nproc;
    int default_world_size; /* what --rank and --host mean without --world-size; 0: an error */
} lki_launch_flags;

/* The first argument that is wrong is named: "--rank: expected a number, found "two"". What is taken is
 * removed from argv. Strings point into argv. */
lk_status lki_launch_flags_parse(lki_launch_flags *flags, int *argc, char **argv);

/* `environment` is a NULL-terminated list of "NAME=value"; NULL is the process's own. `gpu_count` is of this
 * host, for a Slurm task that stands for a whole node; below 0: no rank wants one. */
lk_status lki_launch_role(lki_role *out, const lki_launch_flags *flags, const char *const *environment,
                          int gpu_count);

/* The role of this process: rank 0 of 1 until set. */
const lki_role *lki_process_role(void);
void lki_process_role_set(const lki_role *role);
/* The flags that lk_launch_arguments remembered. */
const lki_launch_flags *lki_process_flags(void);

/* The value, or NULL if it is not set or empty. */
const char *lki_environment_get(const char *const *environment, const char *name);
/* *found tells an absent variable from a number; a value that is no number in [least, most] is LK_ERR_CONFIG.
 */
lk_status lki_environment_int(const char *const *environment, const char *name, long least, long most,
                              int *out, bool *found);

/* slurm.c and mpi_environment.c: *found says whether this process was started that way. */
lk_status lki_slurm_role(lki_role *out, const lki_launch_flags *flags, const char *const *environment,
                         int gpu_count, bool *found);
/* Replaces a master whose name this machine does not know by the address that Slurm has for the node, if it
 * has one: slurm_node.c. */
void lki_slurm_find_master(lki_role *role);
lk_status lki_mpi_role(lki_role *out, const char *const *environment, bool *found);
/* Gives a role that came from MPI a place where its ranks meet by themselves; others stay as they are. */
lk_status lki_meet_without_mpi(lki_role *role);
/* A port of the range that is left to jobs which nobody has given one: the same for the same text and number.
 */
int lki_port_of_text(const char *text, int number);

#endif
