/* The rendezvous: keys, who may join, and what garbage does to it (nothing). */
#include "lktest.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/net.h"
#include "comm/store/store.h"
#include "comm/store/store_wire.h"

#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

static lki_store_server *start_server(int world_size)
{
    lki_store_server *server = NULL;
    lkt_ok(lki_store_server_start(&server, &(lki_store_server_options){.world_size = world_size,
                                                                       .token = "secret",
                                                                       .handshake_timeout_ms = 3000}));
    return server;
}

static lki_store_options options_of(lki_store_server *server, int rank, int world_size)
{
    return (lki_store_options){.host = "127.0.0.1",
                               .port = lki_store_server_port(server),
                               .token = "secret",
                               .rank = rank,
                               .world_size = world_size,
                               .registers = true,
                               .timeout_ms = 60000};
}

static lki_store_client *connect_to(lki_store_server *server, int rank, int world_size)
{
    lki_store_client *store = NULL;
    lki_store_options options = options_of(server, rank, world_size);
    lkt_ok(lki_store_connect(&store, &options));
    return store;
}

static void assert_works(lki_store_server *server)
{
    lki_store_client *store = NULL;
    lki_store_options options = options_of(server, -1, 2);
    char *value = NULL;
    options.registers = false;
    lkt_ok(lki_store_connect(&store, &options));
    lkt_ok(lki_store_set(store, "alive", "yes", 3));
    lkt_ok(lki_store_get(store, "alive", &value, NULL));
    assert_string_equal(value, "yes");
    lki_free(value);
    lki_store_close(store);
}

static void keys(void **state)
{
    (void)state;
    lki_store_server *server = start_server(1);
    lki_store_client *store = connect_to(server, 0, 1);
    char *value = NULL;
    size_t nbytes = 0;
    int64_t sum = 0;
    bool swapped = false;
    lkt_fails(lki_store_get(store, "a", &value, &nbytes), LK_ERR_NOT_FOUND, "no key \"a\"");
    assert_null(value);
    lkt_ok(lki_store_set(store, "a", "x\0y", 3));
    lkt_ok(lki_store_get(store, "a", &value, &nbytes));
    assert_int_equal(nbytes, 3);
    assert_memory_equal(value, "x\0y", 4);
    lki_free(value);
    lkt_ok(lki_store_set(store, "a", "", 0));
    lkt_ok(lki_store_get(store, "a", &value, &nbytes));
    assert_int_equal(nbytes, 0);
    lki_free(value);
    lkt_ok(lki_store_add(store, "n", 5, &sum));
    lkt_ok(lki_store_add(store, "n", -7, &sum));
    assert_int_equal(sum, -2);
    lkt_ok(lki_store_compare_set(store, "c", NULL, "one", &swapped));
    assert_true(swapped);
    lkt_ok(lki_store_compare_set(store, "c", NULL, "two", &swapped));
    assert_false(swapped);
    lkt_ok(lki_store_compare_set(store, "c", "one", "two", &swapped));
    assert_true(swapped);
    lkt_fails(lki_store_wait(store, "never", 30, &value, NULL), LK_ERR_TIMEOUT, "no rank has set \"never\"");
    for (int i = 0; i < 500; i++) {
        char key[32];
        snprintf(key, sizeof key, "key-%d", i);
        lkt_ok(lki_store_set(store, key, key, strlen(key)));
    }
    lkt_ok(lki_store_get(store, "key-321", &value, NULL));
    assert_string_equal(value, "key-321");
    lki_free(value);
    char *large = lki_calloc(LKI_STORE_MAX_VALUE + 1, "large");
    memset(large, 'z', LKI_STORE_MAX_VALUE);
    lkt_ok(lki_store_set(store, "large", large, LKI_STORE_MAX_VALUE));
    lkt_ok(lki_store_get(store, "large", &value, &nbytes));
    assert_memory_equal(value, large, LKI_STORE_MAX_VALUE);
    lki_free(value);
    lkt_fails(lki_store_set(store, "larger", large, LKI_STORE_MAX_VALUE + 1), LK_ERR_INVALID, "too many");
    lki_free(large);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
}

typedef struct setter {
    lki_store_server *server;
    int rank, world_size;
} setter;

static void *set_later(void *argument)
{
    setter *work = argument;
    lki_store_client *store = NULL;
    lki_store_options options = options_of(work->server, work->rank, work->world_size);
    if (lki_store_connect(&store, &options) != LK_OK) return "connect";
    if (lki_store_join(store, 5000) != LK_OK) return "join";
    usleep(20000);
    if (lki_store_set(store, "late", "here", 4) != LK_OK) return "set";
    lki_store_close(store);
    return NULL;
}

static void waiting_and_joining(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    setter work = {server, 1, 2};
    pthread_t thread;
    void *failure = NULL;
    char *value = NULL;
    assert_int_equal(pthread_create(&thread, NULL, set_later, &work), 0);
    lki_store_client *store = connect_to(server, 0, 2);
    lkt_ok(lki_store_join(store, 5000));
    lkt_ok(lki_store_wait(store, "late", 5000, &value, NULL));
    assert_string_equal(value, "here");
    lki_free(value);
    pthread_join(thread, &failure);
    if (failure) fail_msg("%s failed", (char *)failure);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
}

static void the_missing_are_named(void **state)
{
    (void)state;
    lki_store_server *server = start_server(5);
    lki_store_client *zero = connect_to(server, 0, 5), *two = connect_to(server, 2, 5);
    lkt_fails(lki_store_join(zero, 60), LK_ERR_TIMEOUT, "2 of 5 ranks have joined; missing: rank 1, 3, 4");
    lki_store_close(two);
    lki_store_close(zero);
    lki_store_server_stop(server, 0);
}

static void wrong_claims_are_refused(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    lki_store_client *store = connect_to(server, 0, 2), *other = NULL;
    lki_store_options options = options_of(server, 0, 2);
    lkt_fails(lki_store_connect(&other, &options), LK_ERR_PEER, "two processes say that they are rank 0");
    options.rank = 2;
    lkt_fails(lki_store_connect(&other, &options), LK_ERR_PEER, "rank 2 is not one of 2 ranks");
    options.rank = 1;
    options.world_size = 3;
    lkt_fails(lki_store_connect(&other, &options), LK_ERR_PEER,
              "rank 0 expects 2 ranks, rank 1 says there are 3");
    options.world_size = 2;
    options.token = "Secret";
    lkt_fails(lki_store_connect(&other, &options), LK_ERR_PEER, "belongs to another job");
    assert_null(other);
    assert_works(server);
    lki_store_close(store);
    lki_store_server_stop(server, 1000);
}

static void a_death_is_published(void **state)
{
    (void)state;
    lki_store_server *server = start_server(3);
    lki_store_client *zero = connect_to(server, 0, 3), *one = connect_to(server, 1, 3),
                     *two = connect_to(server, 2, 3);
    char *value = NULL;
    lki_store_close(one); /* a goodbye is no death */
    lki_store_drop(two);
    lkt_ok(lki_store_wait(zero, LKI_STORE_FAILED_KEY, 5000, &value, NULL));
    lkt_contains(value, "rank 2 on 127.0.0.1 died");
    if (!strstr(value, "127.0.0.1")) fail();
    lki_free(value);
    lki_store_close(zero);
    lki_store_server_stop(server, 1000);
}

/* Ranks 1 and 2 leave before rank 3 has come, and only rank 1 comes back: nobody waits longer for rank 2. */
static void each_lost_rank_is_remembered(void **state)
{
    (void)state;
    lki_store_server *server = NULL;
    lkt_ok(lki_store_server_start(
        &server, &(lki_store_server_options){.world_size = 4, .token = "secret", .return_ms = 4000}));
    lki_store_client *zero = connect_to(server, 0, 4), *one = connect_to(server, 1, 4),
                     *two = connect_to(server, 2, 4);
    lki_store_drop(one);
    lkt_fails(lki_store_join(zero, 200), LK_ERR_TIMEOUT, "missing: rank");
    lki_store_drop(two);
    lkt_fails(lki_store_join(zero, 200), LK_ERR_TIMEOUT, "missing: rank");
    one = connect_to(server, 1, 4);
    lkt_fails(lki_store_join(zero, 60000), LK_ERR_PEER, "rank 2 on 127.0.0.1 died before all ranks had");
    lki_store_close(one);
    lki_store_close(zero);
    lki_store_server_stop(server, 1000);
}

static void a_lost_server_is_an_error(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    lki_store_client *store = connect_to(server, 1, 2);
    lki_store_options options = options_of(server, 1, 2);
    lki_store_server_stop(server, 0);
    lkt_fails(lki_store_set(store, "a", "b", 1), LK_ERR_PEER, "rank 0 at 127.0.0.1");
    lkt_fails(lki_store_set(store, "a", "b", 1), LK_ERR_PEER, "is gone");
    lki_store_close(store);
    options.timeout_ms = 100;
    lkt_fails(lki_store_connect(&store, &options), LK_ERR_TIMEOUT, "could not reach rank 0 at 127.0.0.1");
    options.host = "no-such-host.invalid";
    assert_int_not_equal(lki_store_connect(&store, &options), LK_OK);
    lkt_contains(lk_error(), "no-such-host.invalid");
}

static void ports(void **state)
{
    (void)state;
    lki_store_server *server = start_server(1), *second = NULL;
    assert_true(lki_store_server_port(server) > 0);
    lki_store_server_options options = {.port = lki_store_server_port(server), .world_size = 1, .token = "t"};
    lkt_fails(lki_store_server_start(&second, &options), LK_ERR_IO, "is in use");
    assert_null(second);
    lki_store_server_stop(server, 0);
    lkt_ok(lki_store_server_start(&second, &options)); /* free again at once */
    lki_store_server_stop(second, 0);
}

static int raw_connect(lki_store_server *server)
{
    int fd = -1;
    lkt_ok(lki_net_connect(&fd, "127.0.0.1", lki_store_server_port(server), lki_now_ns() + 60000000000));
    return fd;
}

/* The server must close the connection by itself. */
static void assert_closed(int fd)
{
    char byte[256];
    int error;
    while ((error = lki_net_receive(fd, byte, 1, lki_now_ns() + 60000000000)) == 0) continue;
    if (error == ETIMEDOUT) fail_msg("the server keeps a stranger's connection open");
    close(fd);
}

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void garbage_before_the_handshake(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    unsigned seed = 7;
    unsigned char noise[4096];
    for (int round = 0; round < 200; round++) {
        size_t nbytes = next_random(&seed) % sizeof noise;
        for (size_t i = 0; i < nbytes; i++) noise[i] = (unsigned char)next_random(&seed);
        if (round % 3 == 0) memcpy(noise, &(uint32_t){htole32(LKI_WIRE_MAGIC)}, 4);
        if (round % 6 == 0) memcpy(noise + 4, &(uint32_t){htole32(LKI_WIRE_VERSION)}, 4);
        int fd = raw_connect(server);
        lki_net_send(fd, noise, nbytes, lki_now_ns() + 60000000000);
        close(fd);
    }
    int fd = raw_connect(server);
    lki_net_send(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n0123456789012345678901234567890123456789", 66,
                 lki_now_ns() + 60000000000);
    assert_closed(fd);
    assert_works(server);
    lki_store_server_stop(server, 0);
}

static void silence_is_cut_off(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    int silent = raw_connect(server), slow = raw_connect(server);
    lki_net_send(slow, "LKS", 3, lki_now_ns() + 60000000000);
    assert_works(server); /* nobody else waits for them */
    assert_closed(silent);
    assert_closed(slow);
    lki_store_server_stop(server, 0);
}

static void a_crowd_of_strangers_keeps_nobody_out(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    int fds[400];
    for (int i = 0; i < 400; i++) fds[i] = raw_connect(server);
    assert_works(server);
    for (int i = 0; i < 400; i++) close(fds[i]);
    assert_works(server);
    lki_store_server_stop(server, 0);
}

/* Someone who knows the token but not the manners. */
static lki_wire_session raw_session;

static int raw_handshake(lki_store_server *server, const char *token, uint32_t version)
{
    lki_wire_hello hello = {.magic = htole32(LKI_WIRE_MAGIC),
                            .version = htole32(version),
                            .rank = (int32_t)htole32((uint32_t)-1),
                            .world_size = (int32_t)htole32(2)};
    lki_wire_answer answer = {0};
    unsigned char proof[LKI_WIRE_MAC];
    int64_t deadline_ns = lki_now_ns() + 60000000000;
    int fd = raw_connect(server);
    assert_int_equal(lki_net_send(fd, &hello, sizeof hello, deadline_ns), 0);
    assert_int_equal(lki_net_receive(fd, &answer, sizeof answer, deadline_ns), 0);
    assert_int_equal(le32toh(answer.version), LKI_WIRE_VERSION);
    lki_wire_session_start(&raw_session, token, false, &hello, answer.nonce);
    lki_wire_prove(proof, token, "client", &hello, answer.nonce);
    lki_net_send(fd, proof, sizeof proof, deadline_ns);
    return fd;
}

static void a_wrong_proof_or_version_is_cut_off(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    assert_closed(raw_handshake(server, "wrong", LKI_WIRE_VERSION));
    assert_closed(raw_handshake(server, "secret", LKI_WIRE_VERSION + 1));
    assert_works(server);
    lki_store_server_stop(server, 0);
}

static void garbage_after_the_handshake(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    unsigned seed = 11;
    unsigned char noise[2048];
    for (int round = 0; round < 200; round++) {
        int fd = raw_handshake(server, "secret", LKI_WIRE_VERSION);
        size_t nbytes = 5 + next_random(&seed) % (sizeof noise - 5);
        for (size_t i = 0; i < nbytes; i++) noise[i] = (unsigned char)next_random(&seed);
        uint32_t length = round % 2 ? (uint32_t)nbytes - 4 : next_random(&seed);
        memcpy(noise, &(uint32_t){htole32(length)}, 4);
        if (round % 4 == 1) noise[4] = (unsigned char)(1 + round % 7); /* a real verb with nonsense fields */
        lki_net_send(fd, noise, nbytes, lki_now_ns() + 60000000000);
        close(fd);
    }
    for (int round = 0; round < 200; round++) { /* the same from somebody who has the key */
        int fd = raw_handshake(server, "secret", LKI_WIRE_VERSION);
        lki_bytes message = {0};
        for (size_t i = 0; i < 64; i++) noise[i] = (unsigned char)next_random(&seed);
        lki_field field = {noise, next_random(&seed) % 64, true};
        lkt_ok(lki_wire_pack(&message, &raw_session, (uint8_t)(1 + round % 7), &field, round % 2));
        lki_net_send(fd, message.data, message.length, lki_now_ns() + 60000000000);
        lki_bytes_fini(&message);
        close(fd);
    }
    int half = raw_handshake(server, "secret", LKI_WIRE_VERSION); /* a message that never ends */
    lki_net_send(half, "\x40\0\0\0\x01", 5, lki_now_ns() + 60000000000);
    assert_works(server);
    assert_closed(half);
    assert_works(server);
    lki_store_server_stop(server, 0);
}

/* What a message may suffer on its way, to or from the server. */
typedef enum mischief { CHANGED, REPEATED, SENT_BACK, MISCHIEF_COUNT } mischief;

typedef struct relay {
    int client, server; /* sockets */
    mischief how;
    bool to_client;
    int at; /* the message, from 0; the handshake comes before them */
} relay;

static bool pass_on(int from, int to, size_t nbytes)
{
    unsigned char text[256];
    int64_t deadline_ns = lki_now_ns() + 60000000000;
    return lki_net_receive(from, text, nbytes, deadline_ns) == 0 &&
           lki_net_send(to, text, nbytes, deadline_ns) == 0;
}

static bool pass_message(const relay *r, bool to_client, int index)
{
    int from = to_client ? r->server : r->client, to = to_client ? r->client : r->server;
    unsigned char text[4096];
    uint32_t length;
    int64_t deadline_ns = lki_now_ns() + 60000000000;
    if (lki_net_receive(from, text, 4, deadline_ns) != 0) return false;
    memcpy(&length, text, 4);
    size_t nbytes = 4 + (size_t)le32toh(length) + LKI_WIRE_MAC;
    if (nbytes > sizeof text || lki_net_receive(from, text + 4, nbytes - 4, deadline_ns) != 0) return false;
    bool now = to_client == r->to_client && index == r->at;
    if (now && r->how == CHANGED) text[nbytes - LKI_WIRE_MAC - 1] ^= 1; /* the end of the last value */
    if (now && r->how == SENT_BACK) to = from;
    if (lki_net_send(to, text, nbytes, deadline_ns) != 0) return false;
    return !(now && r->how == REPEATED) || lki_net_send(to, text, nbytes, deadline_ns) == 0;
}

/* Between a client and the server. Ends when either closes. */
static void *relay_all(void *argument)
{
    const relay *r = argument;
    bool goes_on = pass_on(r->client, r->server, sizeof(lki_wire_hello)) &&
                   pass_on(r->server, r->client, sizeof(lki_wire_answer)) &&
                   pass_on(r->client, r->server, LKI_WIRE_MAC) && pass_message(r, true, 0);
    for (int i = 1; goes_on; i++) {
        bool back = r->how == SENT_BACK && i == r->at;
        goes_on = pass_message(r, false, i);
        if (back && !r->to_client) continue; /* the server has nothing to answer */
        goes_on = goes_on && pass_message(r, true, i);
        if (back) goes_on = goes_on && pass_message(r, true, i + 1); /* an answer to its own message */
    }
    close(r->client);
    close(r->server);
    return NULL;
}

static void *accept_and_relay(void *argument)
{
    relay *r = argument;
    int listener = r->client;
    struct pollfd knock = {.fd = listener, .events = POLLIN}; /* accept does not block */
    if (poll(&knock, 1, 60000) == 1 && (r->client = accept(listener, NULL, NULL)) >= 0) return relay_all(r);
    close(r->server);
    return NULL;
}

/* The fourth message of one direction suffers. Whatever the client is told before it fails is true. */
static void interfere(lki_store_server *server, mischief how, bool to_client)
{
    int port = 0, listener = -1;
    char *value = NULL;
    pthread_t thread;
    lki_store_client *store = NULL;
    lki_store_options options = options_of(server, -1, 2);
    relay r = {.how = how, .to_client = to_client, .at = 3};
    lkt_ok(lki_net_listen(&listener, &port));
    r.client = listener;
    r.server = raw_connect(server);
    assert_int_equal(pthread_create(&thread, NULL, accept_and_relay, &r), 0);
    options.port = port;
    options.registers = false;
    lkt_ok(lki_store_connect(&store, &options));
    lk_status status = lki_store_set(store, "key", "right", 5);
    for (int i = 0; i < 4 && status == LK_OK; i++) {
        status = lki_store_get(store, "key", &value, NULL);
        if (status == LK_OK) assert_string_equal(value, "right");
        lki_free(value);
    }
    assert_int_equal(status, LK_ERR_PEER);
    lki_store_close(store);
    pthread_join(thread, NULL);
    close(listener);
    assert_works(server);
}

static void a_message_that_is_tampered_with_ends_the_connection(void **state)
{
    (void)state;
    lki_store_server *server = start_server(2);
    for (mischief how = CHANGED; how < MISCHIEF_COUNT; how++)
        for (int to_client = 0; to_client < 2; to_client++) interfere(server, how, to_client);
    lki_store_server_stop(server, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys),
        cmocka_unit_test(waiting_and_joining),
        cmocka_unit_test(the_missing_are_named),
        cmocka_unit_test(wrong_claims_are_refused),
        cmocka_unit_test(a_death_is_published),
        cmocka_unit_test(each_lost_rank_is_remembered),
        cmocka_unit_test(a_lost_server_is_an_error),
        cmocka_unit_test(ports),
        cmocka_unit_test(garbage_before_the_handshake),
        cmocka_unit_test(silence_is_cut_off),
        cmocka_unit_test(a_crowd_of_strangers_keeps_nobody_out),
        cmocka_unit_test(a_wrong_proof_or_version_is_cut_off),
        cmocka_unit_test(garbage_after_the_handshake),
        cmocka_unit_test(a_message_that_is_tampered_with_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
