/* Which algorithm an all-reduce between hosts takes, by the number of hosts and the size of the data. The
 * comms ask here, and so does the model that predicts how long they take (cli/bench/network_model.h). */
#ifndef LKI_COMM_ALL_REDUCE_CHOICE_H
#define LKI_COMM_ALL_REDUCE_CHOICE_H

#include <stdbool.h>

enum {
    LKI_CUBE_SHARE_NBYTES = 512 << 10, /* per host: below this the cube beats the ring */
    LKI_MPI_HALVING_HOSTS = 4,
    LKI_MPI_HALVING_NBYTES = 65536,
    LKI_MPI_PAIRS_HALVING_NBYTES = 16384
};

/* Whether the Gloo comm asks for the cube (recursive halving and doubling, over the factors of `hosts`)
 * instead of the ring. */
static inline bool lki_gloo_takes_cube(int hosts, double nbytes)
{
    return hosts > 2 && nbytes / hosts < LKI_CUBE_SHARE_NBYTES;
}

/* Whether the MPI comm exchanges messages between pairs of ranks (mpi_pairs.h) instead of calling
 * MPI_Iallreduce: when the number of hosts is a power of two. */
static inline bool lki_mpi_goes_by_pairs(int hosts)
{
    return hosts > 1 && (hosts & (hosts - 1)) == 0;
}

/* Whether data of this size is halved and doubled, by pairs or in the way that we hand it to Open MPI. */
static inline bool lki_mpi_halves(int hosts, double nbytes)
{
    if (lki_mpi_goes_by_pairs(hosts)) return nbytes >= LKI_MPI_PAIRS_HALVING_NBYTES;
    return hosts >= LKI_MPI_HALVING_HOSTS && nbytes >= LKI_MPI_HALVING_NBYTES;
}

#endif
