#include "cli/bench/network_model.h"

#include "comm/all_reduce_choice.h"

#include <math.h>

enum {
    SEGMENTS_IN_FLIGHT = 2,   /* of Gloo's ring */
    SHM_SPLIT_NBYTES = 16384, /* see shm.c */
    MAX_SEGMENT_NBYTES = 1 << 20,
    MPI_EAGER_NBYTES = 64 << 10, /* over TCP */
};

static void fill_in(double *value, double otherwise)
{
    if (*value == 0) *value = otherwise;
}

void lki_network_defaults(lki_network *network)
{
    fill_in(&network->latency_s, 25e-6);
    fill_in(&network->bandwidth, 10e9 / 8);
    fill_in(&network->overhead_s, 20e-6);
    fill_in(&network->queue_s, 1e-3);
    fill_in(&network->reduce_rate, 10e9);
    fill_in(&network->shm_latency_s, 1.5e-6);
    fill_in(&network->copy_rate, 45e9);
    fill_in(&network->memory_rate, 150e9);
}

/* One of the ring's two passes: `count` segments leave every host one after the other, two of them under way
 * at a time. All hosts do the same at the same time, so one of them stands for all. A segment is sent when
 * the receiver has said that it is ready, which it says when it has dealt with the segment before the last;
 * that word has to pass what already waits in front of the receiver's own link. Returns when the last segment
 * has been dealt with. */
static double ring_pass(const lki_network *n, int hosts, long count, double segment_nbytes, double reduce_s)
{
    double hop_s = n->latency_s + n->overhead_s, transfer_s = segment_nbytes / n->bandwidth;
    double done_s[SEGMENTS_IN_FLIGHT] = {0}, queued_s = 0, link_free_s = 0;
    /* Between two hosts both directions of one connection are in use, and a connection keeps its order. */
    double queue_s = hosts == 2 ? INFINITY : n->queue_s;
    for (long i = 0; i < count; i++) {
        double ready_s = done_s[i % SEGMENTS_IN_FLIGHT];
        double before_s = queued_s < ready_s ? fmin(fmax(link_free_s - ready_s, 0), queue_s) : 0;
        queued_s = ready_s + before_s + hop_s;
        link_free_s = fmax(queued_s, link_free_s) + transfer_s;
        done_s[i % SEGMENTS_IN_FLIGHT] = link_free_s + hop_s + reduce_s;
    }
    return fmax(done_s[0], done_s[1]);
}

/* Each host owns at least two segments of the data. They go round once to be added up and once more to be
 * handed out. */
static double ring_s(const lki_network *n, int hosts, double nbytes)
{
    double least = 2.0 * hosts, needed = ceil(nbytes / MAX_SEGMENT_NBYTES);
    double segments = ceil(fmax(least, needed) / hosts) * hosts, segment_nbytes = ceil(nbytes / segments);
    long count = (long)(segments - segments / hosts);
    return ring_pass(n, hosts, count, segment_nbytes, segment_nbytes / n->reduce_rate) +
           ring_pass(n, hosts, count, segment_nbytes, 0);
}

/* One step among `group` hosts that hold the same `nbytes`: each gets its share of it from all others, all at
 * once, and adds it up; later it sends the sum of its share to all of them. Every message waits for the word
 * that its receiver is ready. */
static double group_s(const lki_network *n, int group, double nbytes)
{
    double hop_s = n->latency_s + n->overhead_s, moved = nbytes * (group - 1) / group;
    return 2 * (2 * hop_s + moved / n->bandwidth) + moved / n->reduce_rate;
}

/* Groups of two as long as the hosts can be halved, then one of all that are left. */
static double cube_s(const lki_network *n, int hosts, double nbytes)
{
    double seconds = 0;
    for (; hosts % 2 == 0; hosts /= 2, nbytes /= 2) seconds += group_s(n, 2, nbytes);
    return hosts > 1 ? seconds + group_s(n, hosts, nbytes) : seconds;
}

double lki_model_gloo(const lki_network *n, int hosts, double nbytes)
{
    if (hosts < 2 || nbytes <= 0) return 0;
    return lki_gloo_takes_cube(hosts, nbytes) ? cube_s(n, hosts, nbytes) : ring_s(n, hosts, nbytes);
}

/* A message; a large one is announced and asked for first, unless it is sent in pieces. */
static double mpi_message_s(const lki_network *n, int hosts, double nbytes)
{
    double hop_s = n->latency_s + n->overhead_s;
    bool is_announced = nbytes > MPI_EAGER_NBYTES && !lki_mpi_goes_by_pairs(hosts);
    return (is_announced ? 3 : 1) * hop_s + nbytes / n->bandwidth;
}

/* Hosts beyond a power of two hand theirs to another one first, and get the result in the end. */
static double halving_s(const lki_network *n, int hosts, double nbytes)
{
    int power = 1;
    while (2 * power <= hosts) power *= 2;
    double seconds = power < hosts ? 2 * mpi_message_s(n, hosts, nbytes) + nbytes / n->reduce_rate : 0;
    for (; power > 1; power /= 2) {
        nbytes /= 2;
        seconds += 2 * mpi_message_s(n, hosts, nbytes) + nbytes / n->reduce_rate;
    }
    return seconds;
}

double lki_model_mpi(const lki_network *n, int hosts, double nbytes)
{
    if (hosts < 2 || nbytes <= 0) return 0;
    if (lki_mpi_halves(hosts, nbytes)) return halving_s(n, hosts, nbytes);
    int ways = lki_mpi_goes_by_pairs(hosts) ? 1 : 2; /* both at once, or up and down */
    return ceil(log2(hosts)) * (ways * mpi_message_s(n, hosts, nbytes) + nbytes / n->reduce_rate);
}

/* Every rank moves `passes` times the data; together they are held to what the memory delivers. */
static double moving_s(const lki_network *n, int ranks, double nbytes)
{
    return fmax(nbytes / n->copy_rate, ranks * nbytes / n->memory_rate);
}

/* A rank copies its data to where the others see it, and adds theirs to its own. From three ranks on, and
 * where it is worth one more exchange, each adds up a part and copies the others' parts. */
double lki_model_shm_all_reduce(const lki_network *n, int ranks, double nbytes)
{
    if (ranks < 2) return 0;
    double flags_s = n->shm_latency_s * (1 + 0.1 * ranks);
    if (ranks == 2 || nbytes <= SHM_SPLIT_NBYTES) return flags_s + moving_s(n, ranks, (1 + ranks) * nbytes);
    return 2 * flags_s + moving_s(n, ranks, 3 * nbytes);
}

/* The root copies out, the others copy in, slot by slot at the same time. */
double lki_model_shm_broadcast(const lki_network *n, int ranks, double nbytes)
{
    if (ranks < 2) return 0;
    return n->shm_latency_s * (1 + 0.1 * ranks) + moving_s(n, ranks, nbytes);
}
