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

/* Whether our MPI comm hands large data over in a way that Open MPI halves and doubles. */
bool lki_mpi_halves(int hosts, double nbytes);

/* Open MPI's MPI_Iallreduce between as many hosts over TCP: a binomial tree up and another one down, or
 * recursive halving and doubling. */
double lki_model_mpi(const lki_network *network, int hosts, double nbytes);

/* Shared memory between the ranks of one host. */
double lki_model_shm_all_reduce(const lki_network *network, int ranks, double nbytes);
double lki_model_shm_broadcast(const lki_network *network, int ranks, double nbytes);

#ifdef __cplusplus
}
#endif
#endif
