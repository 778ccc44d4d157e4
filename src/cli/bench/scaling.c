#include "cli/bench/scaling.h"

#include "graph/ddp.h"

#include <math.h>

/* What is known of the buckets while they are walked through, first to last. */
typedef struct timeline {
    const lki_network *network;
    int hosts, local; /* ranks of a host that reduce among themselves first */
    lki_scaling_backend backend;
    double cpu_s;          /* what the rank itself has spent on shared memory so far */
    double network_free_s; /* when the collectives between hosts are over */
    double down_s;         /* of handing the last bucket down inside the host */
    double downs_s;        /* of all of them */
    double total_s;        /* of all collectives */
} timeline;

/* MPI goes up and down the same tree inside a host and between hosts. */
static double between_hosts_s(const timeline *t, double nbytes)
{
    const lki_network *n = t->network;
    if (t->backend != LKI_SCALING_MPI) return lki_model_gloo(n, t->hosts, nbytes);
    double inside_s = 2 * ceil(log2(t->local)) * (n->shm_latency_s + 2 * nbytes / n->copy_rate);
    return inside_s + lki_model_mpi(n, t->hosts, nbytes);
}

/* Between hosts collectives go on by themselves, in Gloo's thread or whenever the step looks after them, one
 * after the other. Shared memory is the rank's own work, in which it does not compute. */
static void start_bucket(timeline *t, double ready_s, double nbytes)
{
    bool shares_memory = t->local > 1 && t->backend == LKI_SCALING_AUTO;
    double up_s = shares_memory ? lki_model_shm_all_reduce(t->network, t->local, nbytes) : 0;
    t->cpu_s += up_s;
    t->total_s += up_s;
    double network_s = between_hosts_s(t, nbytes);
    if (network_s <= 0) return;
    t->network_free_s = fmax(t->network_free_s, ready_s + t->cpu_s) + network_s;
    t->down_s = shares_memory ? lki_model_shm_broadcast(t->network, t->local, nbytes) : 0;
    t->downs_s += t->down_s;
    t->total_s += network_s + t->down_s;
}

/* When all buckets are back, after the backward half began; it takes `backward_s` by itself. The buckets that
 * came back early are handed down while the last one is still away. */
static double finish(const timeline *t, double backward_s)
{
    return fmax(backward_s + t->cpu_s + t->downs_s, t->network_free_s + t->down_s);
}

/* The buckets of step/replicas.c, from the last gradient to the first. */
static double overlapped_s(timeline *t, const lki_workload *w, int64_t bucket_nbytes, int *bucket_count)
{
    int64_t nbytes = 0;
    double ready_s = 0;
    *bucket_count = 0;
    for (int i = w->gradient_count - 1; i >= 0; i--) {
        nbytes += w->gradients[i].nbytes;
        ready_s = fmax(ready_s, w->gradients[i].ready_s);
        if (nbytes < lki_bucket_room(*bucket_count, bucket_nbytes) && i > 0) continue;
        start_bucket(t, ready_s, (double)nbytes);
        (*bucket_count)++;
        nbytes = 0;
    }
    return finish(t, w->backward_s);
}

/* Accumulated and compressed gradients travel all at once, after the backward half. Compressing reads and
 * writes them a few times. */
static double at_once_s(timeline *t, const lki_workload *w, bool compress)
{
    double nbytes = 0, packing_s = 0;
    for (int i = 0; i < w->gradient_count; i++) nbytes += (double)w->gradients[i].nbytes;
    if (compress) packing_s = 4 * nbytes / t->network->copy_rate;
    start_bucket(t, w->backward_s, compress ? nbytes / 2 : nbytes);
    return finish(t, w->backward_s) + packing_s;
}

static timeline begin_timeline(const lki_cluster *cluster, const lki_network *network, int ranks)
{
    int per_host = cluster->ranks_per_host > 0 ? cluster->ranks_per_host : 1;
    timeline t = {.network = network,
                  .backend = cluster->backend,
                  .hosts = (ranks + per_host - 1) / per_host,
                  .local = ranks < per_host ? ranks : per_host};
    if (cluster->backend == LKI_SCALING_GLOO) {
        t.hosts =
            ranks; /* the slowest link of the ring sets its pace, and one of each host's is the network */
        t.local = 1;
    }
    return t;
}

void lki_predict(const lki_workload *w, const lki_cluster *cluster, int ranks, lki_prediction *out)
{
    lki_network network = cluster->network;
    lki_network_defaults(&network);
    int batches = cluster->accumulation > 1 ? cluster->accumulation : 1;
    int per_host = cluster->ranks_per_host > 0 ? cluster->ranks_per_host : 1;
    double compute_s = batches * (w->forward_s + w->backward_s) + w->update_s, backward_s = w->backward_s;
    timeline t = begin_timeline(cluster, &network, ranks);
    *out = (lki_prediction){.ranks = ranks, .hosts = (ranks + per_host - 1) / per_host, .buckets = 1};
    if (ranks > 1 && (batches > 1 || cluster->compress))
        backward_s = at_once_s(&t, w, cluster->compress);
    else if (ranks > 1)
        backward_s = overlapped_s(&t, w, cluster->bucket_nbytes, &out->buckets);
    out->exposed_s = backward_s - w->backward_s;
    out->communication_s = t.total_s;
    out->step_s = compute_s + out->exposed_s;
    out->efficiency = compute_s / out->step_s;
    out->samples_per_s = (double)ranks * (double)w->batch_size * batches / out->step_s;
}
