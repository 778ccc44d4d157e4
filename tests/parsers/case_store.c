/* What may come to the store's server on a connection: from a stranger, and from one who knows the token. */
#define _GNU_SOURCE
#include "parsers.h"

#include "comm/store/store_server.c" /* what it does with bytes, without its sockets */
#include "comm/store/store_wire.c"

enum { WORLD_SIZE = 4, MAX_MESSAGES = 64 };
#define TOKEN "the job's token"

typedef struct visit {
    lki_store_server server;
    unsigned char joined[WORLD_SIZE];
    lki_lost lost[WORLD_SIZE];
    lki_client *client;
    lki_wire_session session; /* of the other side */
} visit;

static void open_visit(visit *v)
{
    memset(v, 0, sizeof *v);
    v->server = (lki_store_server){.listener = -1,
                                   .epoll = -1,
                                   .wakeup = -1,
                                   .world_size = WORLD_SIZE,
                                   .handshake_timeout_ms = 5000,
                                   .return_ms = 3000,
                                   .token = TOKEN,
                                   .joined = v->joined,
                                   .lost = v->lost,
                                   .stranger_count = 1};
    pthread_mutex_init(&v->server.lock, NULL);
    v->client = LKI_NEW(lki_client);
    must(v->client != NULL, "there is memory");
    v->client->fd = v->client->rank = -1;
    snprintf(v->client->from, sizeof v->client->from, "10.0.0.1");
    v->server.clients = v->client;
}

static void close_visit(visit *v)
{
    free_client(&v->server, v->client);
    must(v->server.stranger_count == 0 && v->server.here_count == 0, "nobody is left");
    lki_table_fini(&v->server.table);
    pthread_mutex_destroy(&v->server.lock);
}

static void arrive(visit *v, const void *data, size_t nbytes)
{
    if (v->client->doomed || v->client->closing) return;
    must(lki_bytes_append(&v->client->in, data, nbytes) == LK_OK, "there is memory");
    digest(&v->server, v->client);
    v->server.clients = v->client;
    lki_server_answer_waiting(&v->server);
}

/* Bytes in pieces, from one who knows nothing. */
static void parse_stranger(const uint8_t *data, size_t nbytes)
{
    visit v;
    open_visit(&v);
    for (size_t at = 0, piece; at < nbytes; at += piece) {
        piece = 1 + data[at] % 97;
        if (piece > nbytes - at) piece = nbytes - at;
        arrive(&v, data + at, piece);
    }
    must(v.client->stage != LKI_CLIENT_READY, "a stranger stays out");
    must(v.server.table.entry_count == 0 && v.server.joined_count == 0, "a stranger changes nothing");
    close_visit(&v);
}

/* Each reply is the next one of the server, and one that the other side understands. */
static void take_replies(visit *v)
{
    lki_bytes *out = &v->client->out;
    size_t at = 0;
    while (at < out->length) {
        uint32_t length;
        lki_wire_message reply;
        must(out->length - at > 4, "a reply has a length");
        memcpy(&length, out->data + at, 4);
        length = le32toh(length);
        must(4 + (size_t)length + LKI_WIRE_MAC <= out->length - at, "a reply is whole");
        must(lki_wire_is_next(&v->session, out->data + at, 4 + (size_t)length), "a reply is the next one");
        must(lki_wire_unpack(&reply, out->data + at + 4, length), "a reply can be unpacked");
        at += 4 + (size_t)length + LKI_WIRE_MAC;
    }
    out->length = 0;
}

static void shake_hands(visit *v, int rank, int world_size, uint32_t flags)
{
    lki_wire_hello hello = {.magic = htole32(LKI_WIRE_MAGIC),
                            .version = htole32(LKI_WIRE_VERSION),
                            .rank = (int32_t)htole32((uint32_t)rank),
                            .world_size = (int32_t)htole32((uint32_t)world_size),
                            .flags = htole32(flags)};
    unsigned char proof[LKI_WIRE_MAC];
    arrive(v, &hello, sizeof hello);
    must(v->client->out.length == sizeof(lki_wire_answer), "a hello is answered");
    const lki_wire_answer *answer = (const void *)v->client->out.data;
    lki_wire_session_start(&v->session, TOKEN, false, &hello, answer->nonce);
    lki_wire_prove(proof, TOKEN, "client", &hello, answer->nonce);
    v->client->out.length = 0;
    arrive(v, proof, sizeof proof);
    must(v->client->stage == LKI_CLIENT_READY, "who knows the token is in");
    take_replies(v);
}

/* A body of any bytes, with its length and its HMAC. */
static void send_sealed(visit *v, lki_bytes *last, const uint8_t *body, size_t nbytes)
{
    uint32_t length = htole32((uint32_t)nbytes);
    unsigned char mac[LKI_WIRE_MAC];
    last->length = 0;
    must(lki_bytes_append(last, &length, 4) == LK_OK && lki_bytes_append(last, body, nbytes) == LK_OK,
         "there is memory");
    seal(mac, &v->session, false, v->session.sent++, last->data, last->length);
    must(lki_bytes_append(last, mac, sizeof mac) == LK_OK, "there is memory");
    arrive(v, last->data, last->length);
}

/* A body of fields. */
static void send_fields(visit *v, lki_bytes *last, const uint8_t *body, size_t nbytes)
{
    lki_field fields[LKI_WIRE_MAX_FIELDS];
    int count = 0;
    for (size_t at = 1; at < nbytes && count < LKI_WIRE_MAX_FIELDS;) {
        size_t length = body[at++];
        bool present = length != 255;
        if (!present) length = 0;
        if (length > nbytes - at) length = nbytes - at;
        fields[count++] = (lki_field){body + at, length, present};
        at += length;
    }
    last->length = 0;
    must(lki_wire_pack(last, &v->session, body[0], fields, count) == LK_OK, "there is memory");
    arrive(v, last->data, last->length);
}

/* One who is in: three bytes of claims, then messages of a kind, a length and bytes. */
static void parse_member(const uint8_t *data, size_t nbytes)
{
    visit v;
    lki_bytes last = {0};
    if (nbytes < 3) return;
    open_visit(&v);
    shake_hands(&v, data[0] % 6 - 1, data[1] % 8 ? WORLD_SIZE : data[1], data[2]);
    size_t at = 3;
    for (int i = 0; i < MAX_MESSAGES && nbytes - at > 2; i++) {
        int kind = data[at] % 4;
        size_t length = 1 + data[at + 1];
        at += 2;
        if (length > nbytes - at) length = nbytes - at;
        if (!length) break;
        int64_t entries = (int64_t)v.server.table.entry_count;
        bool was_ready = !v.client->doomed && !v.client->closing;
        if (kind == 0)
            send_sealed(&v, &last, data + at, length);
        else if (kind == 1)
            send_fields(&v, &last, data + at, length);
        else
            arrive(&v, kind == 2 ? data + at : last.data, kind == 2 ? length : last.length);
        if (kind == 3 && last.length && was_ready && v.client->in.length == 0)
            must(v.client->doomed, "a message that is sent twice ends the connection");
        if (kind > 1)
            must((int64_t)v.server.table.entry_count == entries, "an unsealed message changes nothing");
        take_replies(&v);
        at += length;
    }
    lki_bytes_fini(&last);
    close_visit(&v);
}

/* Bodies alone. */
static void parse_body(const uint8_t *data, size_t nbytes)
{
    lki_wire_message message;
    if (!lki_wire_unpack(&message, data, nbytes)) return;
    must(message.field_count <= LKI_WIRE_MAX_FIELDS, "no more fields than there is room for");
    for (int i = 0; i < message.field_count; i++) {
        const lki_field *field = &message.fields[i];
        const uint8_t *begin = field->data;
        if (field->present)
            must(begin >= data && field->nbytes <= (size_t)(data + nbytes - begin),
                 "a field lies in its body");
    }
}

const parser store_parsers[] = {
    {"stranger", parse_stranger}, {"member", parse_member}, {"body", parse_body}, {NULL, NULL}};
