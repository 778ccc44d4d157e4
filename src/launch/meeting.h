/* How ranks that were started apart find each other: rank 0 opens the store, all join, and each learns who
 * shares a host with whom.
 *
 * A meeting is over when the comm that it led to is freed: rank 0's server then waits a moment for the
 * others' goodbyes. */
#ifndef LKI_LAUNCH_MEETING_H
#define LKI_LAUNCH_MEETING_H

#include "comm/monitor.h"
#include "comm/store/store.h"
#include "launch/role.h"

typedef struct lki_meeting {
    lki_store_server *server; /* rank 0's */
    lki_store_client *store;
    lki_monitor *monitor; /* of leaders, once started */
    char host[256];       /* where the store is */
    int port;
    int *host_of; /* by rank */
    int host_count;
    int *locals; /* the ranks of this host, ascending */
    int local_size, local_rank;
    char nonce[33];       /* of this run, the same on all ranks: part of every name it uses on a host */
    char address[64];     /* of this host, as the store's host sees it */
    int rank, world_size; /* of this rank among those that met: the role's, unless the job goes on without
                             some */
} lki_meeting;

/* What a rank says of itself to all others, of fixed size. */
typedef struct lki_rank_word {
    char identity[160]; /* lki_host_identity */
    char terms[160];    /* how it means to connect: a line per thing that has to be the same */
} lki_rank_word;

/* This rank's own. */
void lki_rank_word_init(lki_rank_word *word, const char *terms);
/* Fails, with the same sentence on every rank, if one has other terms than rank 0. */
lk_status lki_check_same_terms(const lki_rank_word *words, int world_size);

typedef struct lki_meeting_options {
    const char *terms;       /* how this rank means to connect */
    int64_t join_timeout_ms; /* 0: the default */
    int min_nodes;           /* go on with so many if the other ranks stay away; 0: all must come */
    int64_t settle_ms;       /* with min_nodes: how long the others may take */
    int shards;              /* with min_nodes: what the ranks that go on must divide; 0: nothing */
} lki_meeting_options;

/* Every rank calls it; LK_ERR_TIMEOUT names the ranks that did not. */
lk_status lki_meeting_open(lki_meeting **out, const lki_role *role, const lki_meeting_options *options);
void lki_meeting_close(lki_meeting *meeting);

/* What identifies this host: equal where two processes can share memory and see each other's pids and
 * network. */
void lki_host_identity(char *text, size_t capacity);

/* Fills host_of, locals and the rest from each rank's identity; also used with words that came over MPI. */
lk_status lki_meeting_sort_hosts(lki_meeting *meeting, int rank, int world_size, const lki_rank_word *words);

#endif
