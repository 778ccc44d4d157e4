#define _GNU_SOURCE
#include "comm/store/store.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/net.h"
#include "comm/store/store_wire.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    DEFAULT_TIMEOUT_MS = 60000,
    REPLY_TIMEOUT_MS = 20000, /* of a server that answers at once, on a busy host */
    HANDSHAKE_TIMEOUT_MS = 5000,
    RETRY_MS = 20,
    SILENCE_MS = 15000,
    RETURN_MS = 4000, /* of a server that was there and is not */
};

struct lki_store_client {
    int fd;
    int end_waits;     /* readable: a wait is to end; -1: none */
    bool is_silent;    /* it has not answered in time, and the connection was given up */
    bool was_closed;   /* the other side closed it */
    int tells_silence; /* 1 + the rank that says that the server is silent; 0: none does */
    int port;
    char place[300]; /* "host:port", for sentences */
    lki_wire_session session;
    lki_bytes out, in;
};

static lk_status lost(lki_store_client *store, const char *why)
{
    store->was_closed = true;
    return lki_fail(LK_ERR_PEER, "rank 0 at %s is gone: %s", store->place, why);
}

static lk_status send_all(lki_store_client *store, const void *data, size_t nbytes)
{
    int64_t deadline_ns = lki_now_ns() + REPLY_TIMEOUT_MS * 1000000LL;
    int error = lki_net_send(store->fd, data, nbytes, deadline_ns);
    return error ? lost(store, strerror(error)) : LK_OK;
}

static lk_status receive_exactly(lki_store_client *store, void *data, size_t nbytes, int64_t deadline_ns)
{
    int error = lki_net_receive(store->fd, data, nbytes, deadline_ns);
    if (error == ETIMEDOUT) return lki_fail(LK_ERR_TIMEOUT, "no answer from rank 0 at %s", store->place);
    if (error) return lost(store, error == ECONNRESET ? "it closed the connection" : strerror(error));
    return LK_OK;
}

/* Reads one message into store->in and unpacks it. */
static lk_status receive_message(lki_store_client *store, lki_wire_message *message, int64_t deadline_ns)
{
    uint32_t length;
    LKI_TRY(receive_exactly(store, &length, 4, deadline_ns));
    size_t nbytes = 4 + (size_t)le32toh(length), sealed = nbytes + LKI_WIRE_MAC;
    if (nbytes < 5 || nbytes > 4 + LKI_WIRE_MAX_MESSAGE)
        return lki_fail(LK_ERR_PEER, "%s does not answer as a lockstep store", store->place);
    if (store->in.capacity < sealed) {
        unsigned char *grown = lki_realloc(store->in.data, sealed, "a message");
        if (!grown) return LK_ERR_NOMEM;
        store->in.data = grown;
        store->in.capacity = sealed;
    }
    memcpy(store->in.data, &length, 4);
    LKI_TRY(receive_exactly(store, store->in.data + 4, sealed - 4, deadline_ns));
    if (!lki_wire_is_next(&store->session, store->in.data, nbytes))
        return lki_fail(LK_ERR_PEER,
                        "a message from rank 0 at %s was changed on its way: who is on the network?",
                        store->place);
    if (!lki_wire_unpack(message, store->in.data + 4, nbytes - 4))
        return lki_fail(LK_ERR_PEER, "%s does not answer as a lockstep store", store->place);
    return LK_OK;
}

/* A reply that is not LK_OK carries its sentence in the first field. */
static lk_status reply_status(const lki_store_client *store, const lki_wire_message *reply)
{
    if (reply->head == LK_OK) return LK_OK;
    int length = reply->field_count > 0 ? (int)reply->fields[0].nbytes : 0;
    bool is_silent = !length || !*(const char *)reply->fields[0].data;
    if (is_silent || reply->head > LK_ERR_DEVICE)
        return lki_fail(LK_ERR_PEER, "rank 0 at %s has refused, and does not say why", store->place);
    return lki_fail((lk_status)reply->head, "%.*s", length, (const char *)reply->fields[0].data);
}

void lki_store_end_waits_by(lki_store_client *store, int fd)
{
    store->end_waits = fd;
}

void lki_store_tell_silence(lki_store_client *store, int rank)
{
    store->tells_silence = 1 + rank;
}

/* A process that was stopped itself has seen nothing. */
static void tell_silence(lki_store_client *store, int64_t begin_ns)
{
    if (!store->tells_silence || lki_now_ns() - begin_ns > (SILENCE_MS + 2000) * 1000000LL) return;
    lki_log(LKI_LOG_WARNING,
            "rank %d has waited %d s for rank 0 at %s, which is silent: it is stopped, or its host is",
            store->tells_silence - 1, SILENCE_MS / 1000, store->place);
    store->tells_silence = 0;
}

/* Until the answer begins to come, or nobody wants it any more. The deadline is the receiver's to look at. */
static lk_status await_answer(lki_store_client *store)
{
    struct pollfd both[] = {{.fd = store->fd, .events = POLLIN}, {.fd = store->end_waits, .events = POLLIN}};
    int64_t begin_ns = lki_now_ns();
    int ready;
    if (store->end_waits < 0) return LK_OK;
    while ((ready = poll(both, 2, SILENCE_MS)) < 0 && errno == EINTR) continue;
    if (ready == 0) {
        tell_silence(store, begin_ns);
        while (poll(both, 2, REPLY_TIMEOUT_MS - SILENCE_MS) < 0 && errno == EINTR) continue;
    }
    if (!both[0].revents && both[1].revents) return lki_fail(LK_ERR_STOPPED, "the wait was ended");
    return LK_OK;
}

static lk_status exchange(lki_store_client *store, lki_wire_verb verb, const lki_field *fields,
                          int field_count, int64_t timeout_ms, lki_wire_message *reply)
{
    store->out.length = 0;
    if (store->fd < 0)
        return lost(store, store->is_silent ? "it has not answered for 20 s (stopped, or its host is)"
                                            : "the connection is closed");
    LKI_TRY(lki_wire_pack(&store->out, &store->session, (uint8_t)verb, fields, field_count));
    if (store->out.length > LKI_WIRE_MAX_MESSAGE)
        return lki_fail(LK_ERR_INVALID, "store: a value of %zu bytes is too large", store->out.length);
    lk_status status = send_all(store, store->out.data, store->out.length);
    if (status == LK_OK && verb == LKI_WIRE_WAIT) LKI_TRY(await_answer(store));
    if (status == LK_OK)
        status = receive_message(store, reply, lki_now_ns() + (timeout_ms + REPLY_TIMEOUT_MS) * 1000000);
    if (status == LK_OK) return reply_status(store, reply);
    store->is_silent = status == LK_ERR_TIMEOUT;
    close(store->fd); /* what comes next on it would answer the wrong question */
    store->fd = -1;
    return status;
}

static lk_status shake_hands(lki_store_client *store, const lki_store_options *options)
{
    int64_t deadline_ns = lki_now_ns() + HANDSHAKE_TIMEOUT_MS * 1000000LL;
    lki_wire_hello hello = {
        .magic = htole32(LKI_WIRE_MAGIC),
        .version = htole32(LKI_WIRE_VERSION),
        .rank = (int32_t)htole32((uint32_t)options->rank),
        .world_size = (int32_t)htole32((uint32_t)options->world_size),
        .flags = htole32(options->registers ? LKI_WIRE_REGISTERS : 0),
    };
    lki_wire_answer answer;
    lki_wire_message reply;
    unsigned char proof[LKI_WIRE_MAC];
    LKI_TRY(lki_wire_random(hello.nonce, sizeof hello.nonce));
    LKI_TRY(send_all(store, &hello, sizeof hello));
    LKI_TRY(receive_exactly(store, &answer, 8, deadline_ns));
    if (le32toh(answer.magic) != LKI_WIRE_MAGIC)
        return lki_fail(LK_ERR_PEER, "%s is no lockstep store: is another program using the port?",
                        store->place);
    if (le32toh(answer.version) != LKI_WIRE_VERSION)
        return lki_fail(
            LK_ERR_PEER,
            "the store at %s speaks version %u, this program %d: all ranks need the same lockstep",
            store->place, le32toh(answer.version), LKI_WIRE_VERSION);
    LKI_TRY(receive_exactly(store, (char *)&answer + 8, sizeof answer - 8, deadline_ns));
    lki_wire_prove(proof, options->token, "server", &hello, answer.nonce);
    if (!lki_wire_equal(proof, answer.proof, sizeof proof))
        return lki_fail(LK_ERR_PEER,
                        "the store at %s belongs to another job: it has a different job token "
                        "(LOCKSTEP_TOKEN, --token-file, or the key in the user's home)",
                        store->place);
    lki_wire_session_start(&store->session, options->token, false, &hello, answer.nonce);
    lki_wire_prove(proof, options->token, "client", &hello, answer.nonce);
    LKI_TRY(send_all(store, proof, sizeof proof));
    LKI_TRY(receive_message(store, &reply, deadline_ns));
    return reply_status(store, &reply);
}

/* A server that was there may just be going down for a restart, but not for long: if its port is refused
 * after that, rank 0 has died. A host that is busy answers late, but it refuses nobody. */
static lk_status connect_again(lki_store_client *store, const lki_store_options *options, int64_t deadline_ns)
{
    int64_t return_ns = lki_now_ns() + RETURN_MS * 1000000LL;
    lk_status status = lki_net_connect(&store->fd, options->host, options->port, return_ns);
    if (status == LK_OK) return LK_OK;
    if (strstr(lk_error(), strerror(ECONNREFUSED)))
        return lki_fail(LK_ERR_PEER, "rank 0 at %s died while the ranks met: nobody is there any more",
                        store->place);
    return lki_net_connect(&store->fd, options->host, options->port, deadline_ns);
}

/* A server that closes during the handshake was busy with others, or has gone: try again. */
static lk_status reach(lki_store_client *store, const lki_store_options *options, int64_t deadline_ns)
{
    bool has_time = deadline_ns - lki_now_ns() >= RETURN_MS * 1000000LL;
    for (;;) {
        bool returns = (store->was_closed || options->was_there) && has_time;
        LKI_TRY(returns ? connect_again(store, options, deadline_ns)
                        : lki_net_connect(&store->fd, options->host, options->port, deadline_ns));
        store->was_closed = false;
        lk_status status = shake_hands(store, options);
        if (status == LK_OK || !store->was_closed || lki_now_ns() >= deadline_ns) return status;
        close(store->fd);
        store->fd = -1;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_MS * 1000000L}, NULL);
    }
}

lk_status lki_store_connect(lki_store_client **out, const lki_store_options *options)
{
    *out = NULL;
    lki_store_client *store = LKI_NEW(lki_store_client);
    if (!store) return LK_ERR_NOMEM;
    int64_t timeout_ms = options->timeout_ms ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    int64_t deadline_ns = lki_now_ns() + timeout_ms * 1000000;
    snprintf(store->place, sizeof store->place, "%.250s:%d", options->host, options->port);
    store->port = options->port;
    store->fd = store->end_waits = -1;
    lk_status status = reach(store, options, deadline_ns);
    if (status != LK_OK) {
        lki_store_drop(store);
        return status;
    }
    *out = store;
    return LK_OK;
}

void lki_store_drop(lki_store_client *store)
{
    if (!store) return;
    if (store->fd >= 0) close(store->fd);
    lki_bytes_fini(&store->out);
    lki_bytes_fini(&store->in);
    lki_free(store);
}

void lki_store_close(lki_store_client *store)
{
    if (store && store->fd >= 0) {
        store->out.length = 0;
        if (lki_wire_pack(&store->out, &store->session, LKI_WIRE_GOODBYE, NULL, 0) == LK_OK)
            lki_net_send(store->fd, store->out.data, store->out.length, lki_now_ns() + 1000000000);
    }
    lki_store_drop(store);
}

int lki_store_port(const lki_store_client *store)
{
    return store->port;
}

void lki_store_local_address(const lki_store_client *store, char *text, size_t capacity)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    if (getsockname(store->fd, (struct sockaddr *)&address, &length) != 0 ||
        getnameinfo((struct sockaddr *)&address, length, text, (socklen_t)capacity, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(text, capacity, "127.0.0.1");
}

static lki_field text_field(const char *text)
{
    return (lki_field){text, text ? strlen(text) : 0, text != NULL};
}

lk_status lki_store_join(lki_store_client *store, int64_t timeout_ms)
{
    lki_wire_message reply;
    int64_t limit = (int64_t)htole64((uint64_t)timeout_ms);
    return exchange(store, LKI_WIRE_JOIN, &(lki_field){&limit, 8, true}, 1, timeout_ms, &reply);
}

lk_status lki_store_join_node(lki_store_client *store, const char *node, int64_t timeout_ms,
                              lki_store_place *place)
{
    lki_wire_message reply;
    int64_t limit = (int64_t)htole64((uint64_t)timeout_ms);
    int32_t words[2];
    lki_field fields[] = {{&limit, 8, true}, text_field(node)};
    LKI_TRY(exchange(store, LKI_WIRE_JOIN, fields, 2, timeout_ms, &reply));
    if (reply.field_count < 1 || reply.fields[0].nbytes != sizeof words) return LK_OK; /* all have come */
    memcpy(words, reply.fields[0].data, sizeof words);
    *place = (lki_store_place){(int)le32toh((uint32_t)words[0]), (int)le32toh((uint32_t)words[1])};
    if (place->rank >= 0 && place->rank < place->world_size) return LK_OK;
    return lki_fail(LK_ERR_PEER, "%s does not answer as a lockstep store", store->place);
}

lk_status lki_store_set(lki_store_client *store, const char *key, const void *value, size_t nbytes)
{
    lki_wire_message reply;
    if (nbytes > LKI_STORE_MAX_VALUE)
        return lki_fail(LK_ERR_INVALID, "store: %s: %zu bytes are too many", key, nbytes);
    lki_field fields[] = {text_field(key), {value, nbytes, true}};
    return exchange(store, LKI_WIRE_SET, fields, 2, 0, &reply);
}

/* Hands the reply's value to the caller. */
static lk_status take_value(const lki_wire_message *reply, char **value, size_t *nbytes)
{
    size_t length = reply->field_count > 0 ? reply->fields[0].nbytes : 0;
    *value = lki_strndup(length ? (const char *)reply->fields[0].data : "", length);
    if (nbytes) *nbytes = length;
    return *value ? LK_OK : LK_ERR_NOMEM;
}

lk_status lki_store_get(lki_store_client *store, const char *key, char **value, size_t *nbytes)
{
    lki_wire_message reply;
    lki_field fields[] = {text_field(key)};
    *value = NULL;
    LKI_TRY(exchange(store, LKI_WIRE_GET, fields, 1, 0, &reply));
    return take_value(&reply, value, nbytes);
}

lk_status lki_store_wait(lki_store_client *store, const char *key, int64_t timeout_ms, char **value,
                         size_t *nbytes)
{
    lki_wire_message reply;
    int64_t limit = (int64_t)htole64((uint64_t)timeout_ms);
    lki_field fields[] = {text_field(key), {&limit, 8, true}};
    *value = NULL;
    LKI_TRY(exchange(store, LKI_WIRE_WAIT, fields, 2, timeout_ms, &reply));
    return take_value(&reply, value, nbytes);
}

lk_status lki_store_add(lki_store_client *store, const char *key, int64_t delta, int64_t *sum)
{
    lki_wire_message reply;
    int64_t little = (int64_t)htole64((uint64_t)delta);
    lki_field fields[] = {text_field(key), {&little, 8, true}};
    LKI_TRY(exchange(store, LKI_WIRE_ADD, fields, 2, 0, &reply));
    LKI_SCOPED char *text = NULL;
    LKI_TRY(take_value(&reply, &text, NULL));
    *sum = strtoll(text, NULL, 10);
    return LK_OK;
}

lk_status lki_store_compare_set(lki_store_client *store, const char *key, const char *expected,
                                const char *desired, bool *swapped)
{
    lki_wire_message reply;
    lki_field fields[] = {text_field(key), text_field(expected), text_field(desired)};
    LKI_TRY(exchange(store, LKI_WIRE_COMPARE_SET, fields, 3, 0, &reply));
    *swapped =
        reply.field_count > 0 && reply.fields[0].nbytes == 1 && *(const char *)reply.fields[0].data == '1';
    return LK_OK;
}
