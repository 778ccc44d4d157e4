/* An all-reduce between a power of two of ranks, in messages between pairs of them.
 *
 * Open MPI's MPI_Iallreduce goes up a tree and down again, which is twice the way, and moves all of the data
 * each time. Here small data goes both ways between the ranks of a pair at once: after log2(ranks) rounds
 * every rank has everything. Large data is halved in each round, each rank adding up the half that it keeps,
 * and doubled again on the way back. Between two ranks that is as fast as the MPI_Allreduce that blocks.
 *
 * Where a message takes long, which is over TCP, data is cut into messages that MPI sends at once. A larger
 * one is announced and asked for first, and where both sides send, the word that asks waits behind the
 * asker's own data: the two directions then take turns.
 *
 * The ranks take the same decisions from the same numbers. An element is added up in the same order wherever
 * that is done. Calls belong to the comm's thread and never block. */
#ifndef LKI_COMM_MPI_MPI_PAIRS_H
#define LKI_COMM_MPI_MPI_PAIRS_H

#include "comm/mpi/mpi_rollcall.h"

enum { LKI_PAIRS_REQUESTS = 128 };

/* One all-reduce under way. */
typedef struct lki_pairs {
    MPI_Comm comm; /* borrowed */
    MPI_Datatype type;
    int64_t piece_nbytes;  /* of a message, at most: lki_pairs_probe */
    void *staging;         /* borrowed: lki_pairs_staging_nbytes */
    MPI_Request *requests; /* borrowed: LKI_PAIRS_REQUESTS; those that receive come first */
    int receive_count, request_count;
    int64_t piece; /* elements of a message, at most */
    int round, rounds;
    int64_t moved; /* elements of this round that are through, each way */
} lki_pairs;

/* Finds out how large a message should be at most; the same on all ranks, who call it together. */
lk_status lki_pairs_probe(MPI_Comm comm, int rank, int size, int64_t *piece_nbytes);

/* What the request needs beside its own memory. */
size_t lki_pairs_staging_nbytes(const lk_comm *base, const lk_comm_op *op);

/* `pairs` holds what is borrowed, the type and piece_nbytes; the rest is filled in. `base` is the comm that
 * the ranks belong to.
 */
lk_status lki_pairs_start(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request);

/* As far as it goes, with as many looks for each message; *done says whether that is to the end. Not to be
 * called again then. */
lk_status lki_pairs_advance(lki_pairs *pairs, const lk_comm *base, const lk_comm_request *request, int looks,
                            bool *done);

#endif
