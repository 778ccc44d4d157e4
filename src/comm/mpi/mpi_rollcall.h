/* Who has come to a collective and who has not, asked over MPI itself.
 *
 * A rank that has waited for a while tells all others how far it is; those that wait as well answer in kind,
 * and who stays silent has not come. While collectives end in time nothing is sent. Calls belong to the
 * comm's thread. */
#ifndef LKI_COMM_MPI_MPI_ROLLCALL_H
#define LKI_COMM_MPI_MPI_ROLLCALL_H

#include <lockstep/sys/comm.h>

/* The C++ bindings of old MPIs are not wanted. */
#define OMPI_SKIP_MPICXX  1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

enum { LKI_ROLLCALL_WORDS = 4 };

typedef struct lki_rollcall {
    MPI_Comm comm;      /* borrowed; messages between two ranks do not disturb its collectives */
    int64_t *heard;     /* by rank: LKI_ROLLCALL_WORDS of the last thing it said */
    MPI_Request *sends; /* by rank */
    int64_t said[LKI_ROLLCALL_WORDS];
    int64_t since_ns, turned_ns; /* when the wait for the latter was noticed; of the last turn */
    uint64_t said_at, waits_for; /* sequence numbers: of what was said last, of what is being waited for */
} lki_rollcall;

lk_status lki_rollcall_init(lki_rollcall *call, MPI_Comm comm, int size);
/* `clean` says that MPI still works between all ranks: messages that came are then read. */
void lki_rollcall_fini(lki_rollcall *call, bool clean);

/* Again and again while this rank waits for `request`: by the clock, since on a busy machine every look may
 * take long. */
void lki_rollcall_turn(lki_rollcall *call, const lk_comm *comm, const lk_comm_request *request);

/* What is known of a rank. */
void lki_rollcall_progress(lki_rollcall *call, int rank, lk_comm_progress *out);

#endif
