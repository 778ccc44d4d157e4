/* The inside of the store's server. One thread owns everything here from start to stop. */
#ifndef LKI_COMM_STORE_STORE_SERVER_H
#define LKI_COMM_STORE_STORE_SERVER_H

#include "comm/store/store.h"
#include "comm/store/store_table.h"
#include "comm/store/store_wire.h"

#include <pthread.h>
#include <stdatomic.h>

typedef enum lki_client_stage { LKI_CLIENT_HELLO, LKI_CLIENT_PROOF, LKI_CLIENT_READY } lki_client_stage;

typedef struct lki_client {
    struct lki_client *next;
    int fd;
    lki_client_stage stage;
    bool closing; /* once `out` is sent */
    bool doomed;  /* at the end of the turn */
    bool registered;
    bool watched_for_sending;
    int rank;
    char from[64];
    lki_wire_hello hello;
    unsigned char nonce[LKI_WIRE_NONCE];
    lki_wire_session session; /* from its proof on */
    lki_bytes in, out;
    int64_t deadline_ns;   /* for the handshake or the rest of a message; 0: none */
    lki_wire_verb waiting; /* WAIT or JOIN that is not answered yet, or 0 */
    lki_bytes wait_key;
    int64_t wait_until_ns;
    uint64_t node;        /* a hash of its host's identity, from its first JOIN on; 0: not said */
    const char *no_place; /* why its JOIN is refused, or NULL */
} lki_client;

/* A job that may go on without some of its ranks: store_settle.c. Ranks have the numbers here that they were
 * started with, also when those that are left have been given others. */
typedef struct lki_settlement {
    int min_nodes; /* 0: there is none, and all ranks must come */
    int shards, full_size;
    bool takes_back, is_settled;
    int64_t wait_ms, due_ns;
    bool *is_member;     /* by rank */
    int64_t *knocked_ns; /* by rank: when it last asked to be taken in; 0: never */
    char returning[160]; /* under the server's lock: who has, or "" */
} lki_settlement;

/* A rank that left before all had joined. */
typedef struct lki_lost {
    int64_t until_ns; /* the job has failed if it is not back by then; 0: it is not lost */
    char from[64];
} lki_lost;

struct lki_store_server {
    int listener, epoll, wakeup; /* wakeup: an eventfd that stop writes to */
    int port, world_size, handshake_timeout_ms, return_ms;
    char *token;
    pthread_t thread;
    bool running;
    atomic_bool stopping;
    _Atomic int64_t stop_by_ns;
    lki_client *clients;
    int stranger_count;    /* clients that have not proved anything */
    bool rests, rested;    /* it has run out of descriptors once; its listener is not watched at the moment */
    pthread_mutex_t lock;  /* over `reached` */
    char reached[64];      /* an address of this host that others have connected to; "": only this host has */
    unsigned char *joined; /* by rank: 0 never, 1 here, 2 has said goodbye */
    int joined_count, here_count;
    lki_lost *lost; /* by rank */
    int lost_count;
    lki_table table;
    lki_settlement settlement;
};

/* store_requests.c: what a client that is in may ask for. False: the client broke the rules and is dropped.
 */
bool lki_server_handle(lki_store_server *server, lki_client *client, const lki_wire_message *request);
/* Answers the WAITs and JOINs whose time has come, one way or the other. */
void lki_server_answer_waiting(lki_store_server *server);
void lki_server_reply(lki_client *client, lk_status status, const void *data, size_t nbytes);
/* A rank left before all had joined: it may come back for a moment. */
void lki_server_note_lost(lki_store_server *server, const lki_client *client);
/* The first such sentence is what the job failed of. */
void lki_server_publish_failure(lki_store_server *server, const char *sentence);
bool lki_server_has_failed(const lki_store_server *server);
/* Who waits in JOIN for ranks that have not come. */
lk_status lki_server_missing_ranks(const lki_store_server *server);

/* store_settle.c */
lk_status lki_settlement_init(lki_store_server *server, const lki_store_server_options *options);
void lki_settlement_fini(lki_store_server *server);
/* In each turn: goes on without those that have not come, if their time is over, and looks who waits at the
 * door. */
void lki_server_settle(lki_store_server *server);
/* Whether who claims to be this rank is one that the job goes on without: it has been answered, and is to be
 * closed. */
bool lki_server_turns_back(lki_store_server *server, lki_client *client, int rank, int world_size);

#endif
