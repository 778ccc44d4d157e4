/* How long a collective takes, computed instead of measured: what each backend does, step by step, on a
 * network of which only a few numbers are known. docs/scaling.md derives the formulas and holds them against
 * measurements. Pure functions of their arguments; seconds and bytes. */
#ifndef LKI_CLI_BENCH_NETWORK_MODEL_H
#define LKI_CLI_BENCH_NETWORK_MODEL_H

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

/* Gloo's all-reduce between `hosts` ranks on as many hosts. */
double lki_model_gloo(const lki_network *network, int hosts, double nbytes);

/* Our MPI comm between as many hosts over TCP: by pairs, or as Open MPI's MPI_Iallreduce does it: a binomial
 * tree up and another one down, or recursive halving and doubling. */
double lki_model_mpi(const lki_network *network, int hosts, double nbytes);

/* Shared memory between the ranks of one host. */
double lki_model_shm_all_reduce(const lki_network *network, int ranks, double nbytes);
double lki_model_shm_broadcast(const lki_network *network, int ranks, double nbytes);

#endif
