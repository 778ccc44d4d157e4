/* What a rank may hear from the port that it takes for rank 0's store. */
#define _GNU_SOURCE
#include "parsers.h"

#include "comm/store/store_client.c" /* its connection is made here */

#define TOKEN "the job's token"

static lki_store_client *client_on(int fd)
{
    lki_store_client *store = LKI_NEW(lki_store_client);
    must(store != NULL, "there is memory");
    snprintf(store->place, sizeof store->place, "10.0.0.1:29500");
    store->fd = fd;
    store->end_waits = -1;
    return store;
}

/* The other end of a client's connection, at which all of its bytes lie already. */
static lki_store_client *client_that_hears(const uint8_t *data, size_t nbytes, int *other)
{
    int both[2];
    must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both) == 0, "a pair of sockets");
    if (nbytes > 32768) nbytes = 32768;
    must(nbytes == 0 || send(both[1], data, nbytes, 0) == (ssize_t)nbytes, "the bytes fit");
    shutdown(both[1], SHUT_WR);
    *other = both[1];
    return client_on(both[0]);
}

static void parse_answer(const uint8_t *data, size_t nbytes)
{
    int other;
    lki_store_options options = {
        .host = "10.0.0.1", .token = TOKEN, .rank = 1, .world_size = 2, .registers = true};
    lki_store_client *store = client_that_hears(data, nbytes, &other);
    must(shake_hands(store, &options) != LK_OK, "only a store of the job is one");
    check_refusal();
    lki_store_drop(store);
    close(other);
}

/* Replies of a store of this job: a length and bytes each, sealed; a length of 255 is followed by what is
 * not. */
static void parse_reply(const uint8_t *data, size_t nbytes)
{
    lki_wire_session server = {.is_server = true};
    lki_bytes bytes = {0};
    int other;
    for (size_t at = 0; at + 2 < nbytes;) {
        size_t length = data[at++], left = nbytes - at;
        bool is_sealed = length != 255;
        uint8_t head = data[at++];
        if (length > left - 1) length = left - 1;
        lki_field field = {data + at, length, true};
        lk_status status = is_sealed ? lki_wire_pack(&bytes, &server, head % 16, &field, head < 240)
                                     : lki_bytes_append(&bytes, data + at, length);
        must(status == LK_OK, "there is memory");
        at += length;
    }
    lki_store_client *store = client_that_hears(bytes.data, bytes.length, &other);
    char *value = NULL;
    bool swapped;
    int64_t sum;
    if (lki_store_get(store, "a", &value, NULL)) check_refusal();
    lki_free(value);
    if (lki_store_add(store, "a", 1, &sum)) check_refusal();
    if (lki_store_compare_set(store, "a", NULL, "b", &swapped)) check_refusal();
    if (lki_store_wait(store, "a", 1, &value, NULL)) check_refusal();
    lki_free(value);
    lki_store_drop(store);
    lki_bytes_fini(&bytes);
    close(other);
}

const parser client_parsers[] = {{"answer", parse_answer}, {"reply", parse_reply}, {NULL, NULL}};
