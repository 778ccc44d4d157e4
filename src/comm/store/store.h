/* The rendezvous: a small key-value server in rank 0, where the ranks of a job find each other.
 *
 * Who wants in must know the job token: both sides prove it with an HMAC over fresh nonces, so the token
 * never travels and a recorded proof is worth nothing. Whoever does not finish the handshake, or a message,
 * in a few seconds is dropped; a message has a size limit; garbage closes the connection it came on and
 * nothing else. Values are not secret.
 *
 * The server runs in a thread of its own from start to stop. A client belongs to one thread at a time. A
 * client that registers a rank stands for it: where its connection ends without a goodbye, the server
 * publishes that under LKI_STORE_FAILED_KEY, and the first such sentence stays. */
#ifndef LKI_COMM_STORE_STORE_H
#define LKI_COMM_STORE_STORE_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LKI_STORE_DEFAULT_PORT = 29500, LKI_STORE_MAX_VALUE = 1 << 20, LKI_STORE_MAX_KEY = 512 };
#define LKI_STORE_FAILED_KEY "lockstep/failed"

typedef struct lki_store_server lki_store_server;
typedef struct lki_store_client lki_store_client;

typedef struct lki_store_server_options {
    int port; /* 0: any free one */
    int world_size;
    const char *address;      /* the only one to listen on, numeric; NULL: all of the host's */
    const char *token;        /* copied */
    int handshake_timeout_ms; /* 0: 5 s; also the time a begun message has to end */
    int return_ms;     /* how long a rank that left before all had joined may take to come back; 0: 3 s */
    int min_nodes;     /* that are enough if the others stay away; 0: all ranks must come */
    int64_t settle_ms; /* with min_nodes: how long the others may take */
    int shards;        /* with min_nodes: the ranks that go on must divide them; 0: any number may */
    bool takes_back;   /* with min_nodes: who comes later waits until the ranks meet again */
} lki_store_server_options;

/* LK_ERR_IO names the port where it is taken. LK_ERR_NOT_FOUND: the address is none of this host's. */
lk_status lki_store_server_start(lki_store_server **out, const lki_store_server_options *options);
int lki_store_server_port(const lki_store_server *server);
/* An address of this host at which another host has reached the server; "" if none has. */
void lki_store_server_reached(lki_store_server *server, char *text, size_t capacity);
/* Ranks that a settled job goes on without and that wait to be taken in, as "rank 2 has come back"; false if
 * there are none with whom the job would become larger. */
bool lki_store_server_returning(lki_store_server *server, char *text, size_t capacity);
/* Waits up to grace_ms for registered clients to say goodbye, then closes everything. NULL is fine. */
void lki_store_server_stop(lki_store_server *server, int grace_ms);

typedef struct lki_store_options {
    const char *host;
    int port;
    const char *token;
    int rank, world_size; /* rank below 0: an onlooker, who stands for nobody */
    bool registers;       /* this connection stands for the rank */
    bool was_there;       /* the server has been spoken to: refused for a moment, it is gone */
    int64_t timeout_ms;   /* to reach the server, tried again and again; 0: 60 s */
} lki_store_options;

/* LK_ERR_TIMEOUT where nobody answers, LK_ERR_PEER where the other side is no store of this job, or has been
 * there and is gone. LK_ERR_STOPPED with the job's sentence where it has failed already: a rank cannot
 * register any more. */
lk_status lki_store_connect(lki_store_client **out, const lki_store_options *options);
/* Says goodbye. NULL is fine. */
void lki_store_close(lki_store_client *store);
/* Closes without a goodbye: as if this process had died. For tests. */
void lki_store_drop(lki_store_client *store);

/* The server's port; this side's own address on that connection: one that the store's host can reach. */
int lki_store_port(const lki_store_client *store);
void lki_store_local_address(const lki_store_client *store, char *text, size_t capacity);

/* Returns when every rank has registered; LK_ERR_TIMEOUT names those that have not. */
lk_status lki_store_join(lki_store_client *store, int64_t timeout_ms);

/* Begins the sentences of LK_ERR_STOPPED that send a rank back to the door: the job goes on without it, and
 * takes it in when its ranks meet again. */
#define LKI_STORE_WAITS "the job goes on without this rank"
/* Is in the failure of a job that has fewer nodes than it needs: meeting again would not help. */
#define LKI_STORE_TOO_FEW "are fewer than --min-nodes"

/* The place of a rank among those that have come: its own where all have, another one where the job was
 * settled without some. */
typedef struct lki_store_place {
    int rank, world_size;
} lki_store_place;

/* As join, for a server with min_nodes. `node` is what identifies this rank's host. */
lk_status lki_store_join_node(lki_store_client *store, const char *node, int64_t timeout_ms,
                              lki_store_place *place);

lk_status lki_store_set(lki_store_client *store, const char *key, const void *value, size_t nbytes);
/* The value is the caller's to lki_free; a zero byte follows it. LK_ERR_NOT_FOUND where there is none. */
lk_status lki_store_get(lki_store_client *store, const char *key, char **value, size_t *nbytes);
/* As get, but waits for the key to appear. LK_ERR_TIMEOUT names the key. */
lk_status lki_store_wait(lki_store_client *store, const char *key, int64_t timeout_ms, char **value,
                         size_t *nbytes);
/* A descriptor that becomes readable when the client's waits are to end: they then fail with LK_ERR_STOPPED,
 * and all that can be done with the client is to close it. */
void lki_store_end_waits_by(lki_store_client *store, int fd);
/* Says in one line that `rank` waits for rank 0, when a wait has had no answer for 15 seconds: rank 0's
 * process or its host stands still. Once per client. */
void lki_store_tell_silence(lki_store_client *store, int rank);
/* Adds to a decimal number (0 where there is none) and says what it has become. */
lk_status lki_store_add(lki_store_client *store, const char *key, int64_t delta, int64_t *sum);
/* Sets the key to `desired` where it holds `expected` (NULL: where there is none); *swapped says which. */
lk_status lki_store_compare_set(lki_store_client *store, const char *key, const char *expected,
                                const char *desired, bool *swapped);

#ifdef __cplusplus
}
#endif
#endif
