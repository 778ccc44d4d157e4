/* An all-reduce between a power of two of ranks, in messages between pairs of them.
 *
 * Open MPI's MPI_Iallreduce goes up a tree and down again, which is twice the way, and moves all of the data
 * each time. Here small data goes both ways between the ranks of a pair at once: after log2(ranks) rounds
 * every rank has everything. Large data is halved in each round, each rank adding up the half that it keeps,
 * and doubled again on the way back. Between two ranks that is as fast as the MPI_Allreduce that blocks.
 *
 * The ranks take the same decisions from the same numbers. An element is added up in the same order wherever
 * that is done. Calls belong to the comm's thread and never block. */
#ifndef LKI_COMM_MPI_PAIRS_H
#define LKI_COMM_MPI_PAIRS_H

#include "comm/mpi_rollcall.h"

/* One all-reduce under way. */
typedef struct lki_pairs {
    MPI_Comm comm; /* borrowed */
    MPI_Datatype type;
    void *staging; /* borrowed: lki_pairs_staging_nbytes */
    MPI_Request requests[2];
    int round, rounds;
    int expected; /* elements that the peer of this round sends */
} lki_pairs;

/* What the request needs beside its own memory. */
size_t lki_pairs_staging_nbytes(const lk_comm *base, const lk_comm_op *op);

/* `pairs` holds comm, type and staging; the rest is filled in. `base` is the comm that the ranks belong to.
 */
lk_status lki_pairs_start(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request);

/* As far as it goes, with as many looks for each message; *done says whether that is to the end. Not to be
 * called again then. */
lk_status lki_pairs_advance(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request, int looks,
                            bool *done);

#endif
