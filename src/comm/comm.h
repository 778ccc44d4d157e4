/* The backends of <lockstep/sys/comm.h>, and how each one is made. All are freed with lk_comm_free. */
#ifndef LKI_COMM_COMM_H
#define LKI_COMM_COMM_H

#include <lockstep/sys/comm.h>

#include "comm/monitor.h"
#include "comm/store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A job of one rank. */
lk_status lki_comm_self_create(lk_comm **out);

/* Ranks of one host through shared memory. */
typedef struct lki_shm_options {
    int rank, size;
    int fd;           /* of lki_shm_memory_create, inherited over fork; below 0: by name */
    int round;        /* how many comms these ranks have made of the fd before this one */
    const char *name; /* where fd is below 0: the same on every rank, different for every comm of the host */
    size_t slot_nbytes; /* of a chunk, 0: chosen from the size; tests make it small. The same on all ranks */
    int64_t join_timeout_ms; /* 0: 60 s */
    int64_t timeout_ms;      /* of a collective; 0: the default */
    const int *names;        /* the ranks' numbers in a larger job, for sentences; copied. NULL: their own */
    bool owner_reports;      /* lki_shm_report says how far a rank is, not the comm by itself */
    /* Optional: asked a few times per second while this rank waits for the others to join. A failure, such as
     * that of a rank that cannot come any more, ends the wait. */
    lk_status (*still_wanted)(void *context);
    void *context;
} lki_shm_options;

/* Memory for ranks that are forked from this process: an fd to hand to lki_comm_shm_create in each of them,
 * closed by the caller when all are. It holds one comm after another, or several at once. */
lk_status lki_shm_memory_create(int *fd, int size, size_t slot_nbytes);

/* Says there that one of the ranks has ended: who waits for it to join need not any longer. */
void lki_shm_memory_mark_ended(int fd, int size, int rank);

/* Joins the others; returns when all of them are there. Errors name the ranks that did not come. */
lk_status lki_comm_shm_create(lk_comm **out, const lki_shm_options *options);

/* For comms made of comms: how far this rank is, and a failure elsewhere that ends this comm in those very
 * words. */
void lki_shm_report(lk_comm *comm, const lk_comm_progress *at);
void lki_shm_publish_activity(lk_comm *comm); /* this thread's words appear there: base/activity.h */
void lki_shm_forward_failure(lk_comm *comm, const char *sentence);

/* Ranks that meet in a store and speak TCP. Where the feature is not built: LK_ERR_UNSUPPORTED. */
typedef struct lki_gloo_options {
    int rank, size;
    lki_store_client *store; /* borrowed while connecting */
    const char *prefix;      /* of its keys in the store: one a comm */
    lki_monitor *monitor;    /* optional, borrowed for life: names who has failed, and who is behind */
    const char *host;        /* the address to listen on, which the others can reach */
    const char *interface;   /* or the network interface; both NULL: the host name's address */
    int64_t join_timeout_ms, timeout_ms;
    int name_wait_ms; /* how long a failure waits for the monitor to name its rank; 0: 3 s */
} lki_gloo_options;
lk_status lki_comm_gloo_create(lk_comm **out, const lki_gloo_options *options);

/* The processes that an MPI launcher started, or `count` of them by their ranks in MPI_COMM_WORLD (NULL:
 * all). Collective over those. MPI is initialised by the first such call of a process and finalised when it
 * ends. */
typedef struct lki_mpi_options {
    const int *ranks;
    int count;
    int64_t timeout_ms;
    int64_t part_nbytes; /* what is larger goes as several of MPI's collectives; 0: 1 GiB */
} lki_mpi_options;
lk_status lki_comm_mpi_create(lk_comm **out, const lki_mpi_options *options);

/* The ranks of a communicator that the program itself has made, by its Fortran handle. Collective over them.
 * MPI stays the program's. */
lk_status lki_comm_mpi_adopt(lk_comm **out, int handle);

/* Ranks with a GPU each, or with a share of one, that meet in a store and speak NCCL. LK_ERR_UNSUPPORTED
 * where the GPU part or NCCL is missing. */
typedef struct lki_comm_nccl_options {
    int rank, size;
    lki_store_client *store;        /* borrowed while connecting */
    const char *prefix;             /* of its keys in the store: one a comm */
    lki_monitor *monitor;           /* optional, borrowed for life: ends the comm when a rank dies */
    int device;                     /* the GPU, by its number among the visible ones */
    bool shares_gpu;                /* other ranks have the same GPU */
    void (*on_free)(void *context); /* optional: called first when the comm is freed; may end the monitor */
    void *context;
    int64_t join_timeout_ms, timeout_ms;
} lki_comm_nccl_options;
lk_status lki_comm_nccl_create(lk_comm **out, const lki_comm_nccl_options *options);

/* How long this rank has stood still for collectives since the comm was made. */
int64_t lki_comm_waited_ns(const lk_comm *comm);

/* How far this rank is, by what the comm has counted; from any thread, and then a moment old. */
void lki_comm_progress_of(lk_comm *comm, lk_comm_progress *out);

/* Processes that were started one by one, and know each other through a store: they become one MPI job.
 * Collective over all of them. */
typedef struct lki_mpi_meet_options {
    int rank, size;
    lki_store_client *store; /* borrowed while connecting */
    int64_t join_timeout_ms, timeout_ms;
} lki_mpi_meet_options;
lk_status lki_comm_mpi_meet(lk_comm **out, const lki_mpi_meet_options *options);

/* Ranks of several hosts: shared memory inside a host, another comm between one leader a host. */
typedef struct lki_hierarchy_options {
    int rank, size;
    const int *host_of; /* by rank: the number of its host; hosts are numbered in the order of their first
                           ranks. Copied */
    lk_comm *up,
        *down; /* of this host's ranks, in rank order; NULL where there is but one. Its own from success on */
    lk_comm
        *leaders; /* of the hosts' first ranks, in host order; NULL on other ranks. Its own from success on */
    lki_monitor *monitor;           /* optional, borrowed for life */
    void (*on_free)(void *context); /* optional: called when all of it is freed */
    void *context;
    int64_t timeout_ms;
} lki_hierarchy_options;
lk_status lki_comm_hierarchy_create(lk_comm **out, const lki_hierarchy_options *options);
/* What a comm is made of, for people: "shm", or "shm within hosts, gloo between". On rank 0, or any leader.
 */
void lki_comm_describe(const lk_comm *comm, char *text, size_t capacity);
/* How far this rank is. Any thread. */
void lki_hierarchy_progress(lk_comm *comm, lk_comm_progress *out);
/* What this rank does, if it is alone on its host. Any thread. */
void lki_hierarchy_doing(lk_comm *comm, char *text, size_t capacity);

bool lki_comm_has_gloo(void);
bool lki_comm_has_mpi(void);

#ifdef __cplusplus
}
#endif
#endif
