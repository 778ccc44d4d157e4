/* How long a collective takes, computed instead of measured: what each backend does, step by step, on a
 * network of which only a few numbers are known. docs/scaling.md derives the formulas and holds them against
 * measurements. Pure functions of their arguments; seconds and bytes. */
#ifndef LKI_COMM_MODEL_H
#define LKI_COMM_MODEL_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Between hosts, and inside one. lki_network_defaults fills in what is 0. */
typedef struct lki_network {
    double latency_s;   /* of a small message between hosts, one way */
    double bandwidth;   /* of a host's link, bytes a second each way, as TCP delivers them */
    double overhead_s;  /* of the software at both ends of a message: waking the thread that waits for it */
    double queue_s;     /* what one connection lets wait in front of the link: others queue behind it */
    double reduce_rate; /* bytes a second that a rank adds up */

    double shm_latency_s; /* until one rank sees another's flag */
    double copy_rate;     /* bytes a second that a rank moves in memory */
    double memory_rate;   /* that all ranks of a host move together */
} lki_network;

void lki_network_defaults(lki_network *network);

/* Whether our Gloo comm asks for the cube (recursive halving and doubling, over the factors of `hosts`)
 * instead of the ring. */
bool lki_gloo_takes_cube(int hosts, double nbytes);

/* Gloo's all-reduce between `hosts` ranks on as many hosts. */
double lki_model_gloo(const lki_network *network, int hosts, double nbytes);

/* Whether our MPI comm exchanges messages between pairs of ranks (mpi_pairs.h) instead of asking for
 * MPI_Iallreduce: where they are a power of two. */
bool lki_mpi_goes_by_pairs(int hosts);

/* Whether data of this size is halved and doubled, by pairs or in the way that we hand it to Open MPI. */
bool lki_mpi_halves(int hosts, double nbytes);

/* Our MPI comm between as many hosts over TCP: by pairs, or as Open MPI's MPI_Iallreduce does it: a binomial
 * tree up and another one down, or recursive halving and doubling. */
double lki_model_mpi(const lki_network *network, int hosts, double nbytes);

/* Shared memory between the ranks of one host. */
double lki_model_shm_all_reduce(const lki_network *network, int ranks, double nbytes);
double lki_model_shm_broadcast(const lki_network *network, int ranks, double nbytes);

#ifdef __cplusplus
}
#endif
#endif
