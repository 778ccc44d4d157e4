/* What travels between a store's client and server: the handshake, then messages of a length and a body.
 *
 *     client  hello    "LKST", version, rank, world size, flags, 32-byte nonce
 *     server  answer   "LKST", version, a zero, 32-byte nonce, HMAC("server", both nonces)
 *     client  proof    HMAC("client", both nonces, rank, world size, flags)
 *     server  message  the first reply: accepted, or why not
 *     client  message  one request at a time; server one reply each, in order
 *
 * Each message ends with an HMAC by a key of this connection, which follows from the token and both nonces.
 * It covers the message, the side that sends it and its number. Nobody without the token can therefore
 * change, repeat, leave out, reorder or send back a message; who tries ends the connection. Values are not
 * secret.
 *
 * Integers are little-endian on the wire. */
#ifndef LKI_COMM_STORE_STORE_WIRE_H
#define LKI_COMM_STORE_STORE_WIRE_H

#include <lockstep/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    LKI_WIRE_VERSION = 4,
    LKI_WIRE_NONCE = 32,
    LKI_WIRE_MAC = 32,
    LKI_WIRE_REGISTERS = 1, /* a flag of the hello */
    LKI_WIRE_MAX_MESSAGE = (1 << 20) + 4096,
};
#define LKI_WIRE_MAGIC 0x54534b4cu /* "LKST" */

typedef struct lki_wire_hello {
    uint32_t magic;
    uint32_t version;
    int32_t rank, world_size;
    uint32_t flags;
    unsigned char nonce[LKI_WIRE_NONCE];
} lki_wire_hello;

typedef struct lki_wire_answer {
    uint32_t magic;
    uint32_t version;
    uint32_t zero;
    unsigned char nonce[LKI_WIRE_NONCE];
    unsigned char proof[LKI_WIRE_MAC];
} lki_wire_answer;

typedef enum lki_wire_verb {
    LKI_WIRE_SET = 1,
    LKI_WIRE_GET,
    LKI_WIRE_WAIT,
    LKI_WIRE_ADD,
    LKI_WIRE_COMPARE_SET,
    LKI_WIRE_JOIN,
    LKI_WIRE_GOODBYE,
} lki_wire_verb;

/* A growing string of bytes; zero is empty. */
typedef struct lki_bytes {
    unsigned char *data;
    size_t length, capacity;
} lki_bytes;

lk_status lki_bytes_append(lki_bytes *bytes, const void *data, size_t nbytes);
void lki_bytes_drop_front(lki_bytes *bytes, size_t nbytes);
void lki_bytes_fini(lki_bytes *bytes);

/* A body is a row of fields, each a 32-bit length and its bytes. The first of a request is the verb, of a
 * reply the status. A message puts the body's length before it. */
typedef struct lki_field {
    const void *data;
    size_t nbytes;
    bool present; /* false is told apart from empty */
} lki_field;

/* The two directions of a connection, as one side has them. */
typedef struct lki_wire_session {
    unsigned char key[LKI_WIRE_MAC];
    bool is_server;
    uint64_t sent, received; /* messages */
} lki_wire_session;

void lki_wire_session_start(lki_wire_session *session, const char *token, bool is_server,
                            const lki_wire_hello *hello, const unsigned char *server_nonce);

/* Appends a message of this side, its length and its HMAC included. */
lk_status lki_wire_pack(lki_bytes *out, lki_wire_session *session, uint8_t head, const lki_field *fields,
                        int field_count);
/* Whether a received message (length and body; the HMAC follows) is the other side's next one. */
bool lki_wire_is_next(lki_wire_session *session, const unsigned char *message, size_t nbytes);

enum { LKI_WIRE_MAX_FIELDS = 3 };

typedef struct lki_wire_message {
    uint8_t head;
    int field_count;
    lki_field fields[LKI_WIRE_MAX_FIELDS]; /* into the body */
} lki_wire_message;

/* False where the body is malformed. */
bool lki_wire_unpack(lki_wire_message *message, const unsigned char *body, size_t nbytes);

lk_status lki_wire_random(void *nonce, size_t nbytes);

/* The proof of one side. Both nonces and everything the hello claims are in it. */
void lki_wire_prove(unsigned char proof[LKI_WIRE_MAC], const char *token, const char *side,
                    const lki_wire_hello *hello, const unsigned char *server_nonce);
bool lki_wire_equal(const unsigned char *a, const unsigned char *b, size_t nbytes);

#endif
