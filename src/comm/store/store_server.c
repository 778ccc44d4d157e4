/* The store's server: connections, the handshake, deadlines. */
#define _GNU_SOURCE
#include "comm/store/store_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/net.h"
#include "comm/quiet_thread.h"

#include <endian.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    DEFAULT_HANDSHAKE_MS = 5000,
    DEFAULT_RETURN_MS = 3000,
    TURN_MS = 50, /* the grain of all deadlines here */
    MAX_STRANGERS = 256,
    MAX_OUT = 8 << 20, /* what a client may leave unread */
    READ_NBYTES = 65536,
    EVENT_COUNT = 64,
};

static void watch(lki_store_server *server, lki_client *client, int operation)
{
    bool sends = client->out.length > 0;
    if (operation == EPOLL_CTL_MOD && sends == client->watched_for_sending) return;
    struct epoll_event event = {.events = EPOLLIN | (sends ? EPOLLOUT : 0), .data.ptr = client};
    epoll_ctl(server->epoll, operation, client->fd, &event);
    client->watched_for_sending = sends;
}

static void set_deadline(lki_store_server *server, lki_client *client)
{
    client->deadline_ns = lki_now_ns() + server->handshake_timeout_ms * 1000000LL;
}

/* A crowd of strangers does not keep a rank out: a handshake takes milliseconds, so the oldest one is the
 * least likely. */
static void doom_oldest_stranger(lki_store_server *server)
{
    lki_client *oldest = NULL;
    for (lki_client *client = server->clients; client; client = client->next)
        if (client->stage != LKI_CLIENT_READY && !client->doomed) oldest = client;
    if (oldest) oldest->doomed = true;
}

/* Who knocks is heard again in the next turn: until then the listener would say without end that somebody
 * is there. */
static void rest_from_accepting(lki_store_server *server)
{
    if (!server->rests)
        lki_log(
            LKI_LOG_WARNING,
            "rank 0 cannot take more connections: %s; ranks that are missing wait until it can (ulimit -n "
            "raises the limit)",
            strerror(errno));
    server->rests = server->rested = true;
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, server->listener, NULL);
}

static void format_address(const struct sockaddr_storage *address, socklen_t length, char *text,
                           size_t capacity)
{
    if (getnameinfo((const struct sockaddr *)address, length, text, (socklen_t)capacity, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(text, capacity, "an unknown host");
    if (strncmp(text, "::ffff:", 7) == 0) memmove(text, text + 7, strlen(text + 7) + 1);
}

/* Where others have reached this host is where they reach it again: its own name may mean loopback here. */
static void note_reached(lki_store_server *server, int fd, const char *from)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    char text[64];
    if (server->reached[0] || lki_net_is_loopback(from)) return;
    if (getsockname(fd, (struct sockaddr *)&own, &length) != 0) return;
    format_address(&own, length, text, sizeof text);
    if (lki_net_is_loopback(text)) return;
    pthread_mutex_lock(&server->lock);
    snprintf(server->reached, sizeof server->reached, "%s", text);
    pthread_mutex_unlock(&server->lock);
}

void lki_store_server_reached(lki_store_server *server, char *text, size_t capacity)
{
    pthread_mutex_lock(&server->lock);
    snprintf(text, capacity, "%s", server->reached);
    pthread_mutex_unlock(&server->lock);
}

static void accept_client(lki_store_server *server)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    int fd = accept4(server->listener, (struct sockaddr *)&address, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
        rest_from_accepting(server);
    if (fd < 0) return;
    if (server->stranger_count >= MAX_STRANGERS) doom_oldest_stranger(server);
    lki_client *client = LKI_NEW(lki_client);
    if (!client) {
        close(fd);
        return;
    }
    client->fd = fd;
    client->rank = -1;
    format_address(&address, length, client->from, sizeof client->from);
    client->next = server->clients;
    server->clients = client;
    server->stranger_count++;
    lki_net_tune(fd);
    set_deadline(server, client);
    watch(server, client, EPOLL_CTL_ADD);
}

/* Nobody relies on it yet: started again at once, by whatever watches over it, it is as good as any. The
 * others do not wait longer than a moment: whoever starts ranks by hand starts all of them again. */
void lki_server_note_lost(lki_store_server *server, const lki_client *client)
{
    server->joined[client->rank] = 0;
    server->joined_count--;
    if (lki_server_has_failed(server)) return;
    lki_lost *lost = &server->lost[client->rank];
    snprintf(lost->from, sizeof lost->from, "%s", client->from);
    lost->until_ns = lki_now_ns() + server->return_ms * 1000000LL;
    if (server->lost_count++ > 0) return; /* the first one is told: a host may have left with all its ranks */
    lki_log(LKI_LOG_WARNING, "rank %d on %s left before all ranks had joined: waiting a moment for it",
            client->rank, client->from);
}

static void give_up_lost(lki_store_server *server)
{
    char sentence[160];
    int64_t now = lki_now_ns();
    if (server->lost_count == 0 || server->settlement.min_nodes || lki_server_has_failed(server)) return;
    for (int rank = 0; rank < server->world_size; rank++) {
        const lki_lost *lost = &server->lost[rank];
        if (lost->until_ns == 0 || now < lost->until_ns) continue;
        snprintf(sentence, sizeof sentence,
                 "rank %d on %s died before all ranks had joined: its connection is closed", rank,
                 lost->from);
        lki_server_publish_failure(server, sentence);
        return;
    }
}

static void note_return(lki_store_server *server, int rank)
{
    if (server->lost[rank].until_ns == 0) return;
    server->lost[rank].until_ns = 0;
    server->lost_count--;
}

static void free_client(lki_store_server *server, lki_client *client)
{
    char sentence[160];
    if (client->stage != LKI_CLIENT_READY) server->stranger_count--;
    if (client->registered && server->joined_count < server->world_size) {
        lki_server_note_lost(server, client);
        server->here_count--;
    } else if (client->registered) {
        snprintf(sentence, sizeof sentence, "rank %d on %s died: its connection is closed", client->rank,
                 client->from);
        lki_server_publish_failure(server, sentence);
        server->joined[client->rank] = 2;
        server->here_count--;
    }
    /* Closing alone would not do it while a child that was just forked has the descriptor, too. */
    epoll_ctl(server->epoll, EPOLL_CTL_DEL, client->fd, NULL);
    close(client->fd);
    lki_bytes_fini(&client->in);
    lki_bytes_fini(&client->out);
    lki_bytes_fini(&client->wait_key);
    lki_free(client);
}

/* Turns a client away with a sentence, which this side hears, too: the ranks that it waits for may be among
 * those that are turned away. */
static void refuse(lki_client *client)
{
    lki_log(LKI_LOG_WARNING, "a process on %s cannot join: %s", client->from, lk_error());
    lki_server_reply(client, LK_ERR_PEER, lk_error(), strlen(lk_error()));
    client->closing = true;
}

/* Returns the bytes used, 0 where more are needed. */
static size_t take_hello(lki_store_server *server, lki_client *client)
{
    if (client->in.length < sizeof client->hello) return 0;
    memcpy(&client->hello, client->in.data, sizeof client->hello);
    if (le32toh(client->hello.magic) != LKI_WIRE_MAGIC) {
        client->doomed = true;
        return 0;
    }
    lki_wire_answer answer = {.magic = htole32(LKI_WIRE_MAGIC), .version = htole32(LKI_WIRE_VERSION)};
    if (lki_wire_random(client->nonce, sizeof client->nonce) != LK_OK) client->doomed = true;
    memcpy(answer.nonce, client->nonce, sizeof client->nonce);
    lki_wire_prove(answer.proof, server->token, "server", &client->hello, client->nonce);
    if (lki_bytes_append(&client->out, &answer, sizeof answer) != LK_OK) client->doomed = true;
    client->stage = LKI_CLIENT_PROOF;
    client->closing = le32toh(client->hello.version) != LKI_WIRE_VERSION;
    return sizeof client->hello;
}

/* The claims of a client that knows the token, against each other and the job. */
static lk_status check_claims(const lki_store_server *server, int rank, int world_size, bool registers)
{
    if (world_size != server->world_size)
        return lki_fail(LK_ERR_PEER, "rank 0 expects %d ranks, rank %d says there are %d", server->world_size,
                        rank, world_size);
    if (rank >= server->world_size || (registers && rank < 0))
        return lki_fail(LK_ERR_PEER, "rank %d is not one of %d ranks", rank, server->world_size);
    if (registers && server->joined[rank] == 1)
        return lki_fail(LK_ERR_PEER, "two processes say that they are rank %d", rank);
    return LK_OK;
}

/* Who comes now is too late for this job. If it is started again, it is too early for the next one. */
static void tell_failure(lki_store_server *server, lki_client *client)
{
    const lki_bytes *failure =
        lki_table_get(&server->table, LKI_STORE_FAILED_KEY, strlen(LKI_STORE_FAILED_KEY));
    lki_server_reply(client, LK_ERR_STOPPED, failure->data, failure->length);
    client->closing = true;
}

static size_t take_proof(lki_store_server *server, lki_client *client)
{
    unsigned char expected[LKI_WIRE_MAC];
    if (client->in.length < sizeof expected) return 0;
    lki_wire_prove(expected, server->token, "client", &client->hello, client->nonce);
    if (!lki_wire_equal(expected, client->in.data, sizeof expected)) {
        client->doomed = true;
        return 0;
    }
    lki_wire_session_start(&client->session, server->token, true, &client->hello, client->nonce);
    client->stage = LKI_CLIENT_READY;
    client->deadline_ns = 0;
    server->stranger_count--;
    int rank = (int)le32toh((uint32_t)client->hello.rank),
        world_size = (int)le32toh((uint32_t)client->hello.world_size);
    bool registers = le32toh(client->hello.flags) & LKI_WIRE_REGISTERS;
    if (registers && !lki_server_has_failed(server) &&
        lki_server_turns_back(server, client, rank, world_size))
        return sizeof expected;
    if (check_claims(server, rank, world_size, registers) != LK_OK) {
        refuse(client);
        return sizeof expected;
    }
    if (registers && lki_server_has_failed(server)) {
        tell_failure(server, client);
        return sizeof expected;
    }
    client->rank = rank;
    if (registers) note_reached(server, client->fd, client->from);
    if (registers) {
        client->registered = true;
        if (server->joined[rank] == 0) server->joined_count++; /* a rank may say goodbye and come back */
        note_return(server, rank);
        server->joined[rank] = 1;
        server->here_count++;
    }
    lki_server_reply(client, LK_OK, "", 0);
    return sizeof expected;
}

static size_t take_message(lki_store_server *server, lki_client *client)
{
    uint32_t length;
    lki_wire_message message;
    if (client->in.length < 4) return 0;
    memcpy(&length, client->in.data, 4);
    length = le32toh(length);
    if (length < 1 || length > LKI_WIRE_MAX_MESSAGE) {
        client->doomed = true;
        return 0;
    }
    if (client->in.length < 4 + (size_t)length + LKI_WIRE_MAC) return 0;
    if (!lki_wire_is_next(&client->session, client->in.data, 4 + (size_t)length) ||
        !lki_wire_unpack(&message, client->in.data + 4, length) ||
        !lki_server_handle(server, client, &message))
        client->doomed = true;
    return 4 + (size_t)length + LKI_WIRE_MAC;
}

/* Handles whatever is complete in the client's input. */
static void digest(lki_store_server *server, lki_client *client)
{
    size_t used = 1;
    while (used > 0 && !client->doomed && !client->closing) {
        used = client->stage == LKI_CLIENT_HELLO   ? take_hello(server, client)
               : client->stage == LKI_CLIENT_PROOF ? take_proof(server, client)
                                                   : take_message(server, client);
        lki_bytes_drop_front(&client->in, used);
    }
    /* A message that has begun must end in time; the handshake's clock runs from the start. */
    if (client->stage == LKI_CLIENT_READY) {
        if (client->in.length == 0)
            client->deadline_ns = 0;
        else if (client->deadline_ns == 0)
            set_deadline(server, client);
    }
}

static void receive_some(lki_store_server *server, lki_client *client)
{
    unsigned char chunk[READ_NBYTES];
    ssize_t received = recv(client->fd, chunk, sizeof chunk, 0);
    if (received > 0) {
        if (lki_bytes_append(&client->in, chunk, (size_t)received) != LK_OK) client->doomed = true;
        digest(server, client);
    } else if (received == 0 || (errno != EAGAIN && errno != EINTR)) {
        client->doomed = true;
    }
}

static void send_some(lki_client *client)
{
    if (client->out.length == 0) return;
    ssize_t sent = send(client->fd, client->out.data, client->out.length, MSG_NOSIGNAL);
    if (sent > 0)
        lki_bytes_drop_front(&client->out, (size_t)sent);
    else if (errno != EAGAIN && errno != EINTR)
        client->doomed = true;
    if (client->out.length > MAX_OUT) client->doomed = true;
}

static lk_status watch_listener(lki_store_server *server)
{
    struct epoll_event on_listener = {.events = EPOLLIN, .data.ptr = server};
    server->rested = false;
    if (epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->listener, &on_listener) == 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "store: %s", strerror(errno));
}

/* The whole job may be stopped for a while, by a scheduler or a debugger: no deadline counts that time. */
static void pass_over_stop(lki_store_server *server, int64_t stopped_ns)
{
    for (lki_client *client = server->clients; client; client = client->next) {
        if (client->deadline_ns) client->deadline_ns += stopped_ns;
        client->wait_until_ns += stopped_ns;
    }
    for (int rank = 0; rank < server->world_size; rank++)
        if (server->lost[rank].until_ns) server->lost[rank].until_ns += stopped_ns;
    server->settlement.due_ns += stopped_ns;
}

/* Sends what is ready, drops who is late or done. */
static void end_turn(lki_store_server *server)
{
    int64_t now = lki_now_ns();
    give_up_lost(server);
    lki_server_settle(server);
    lki_server_answer_waiting(server);
    for (lki_client **place = &server->clients; *place;) {
        lki_client *client = *place;
        send_some(client);
        if (client->closing && client->out.length == 0) client->doomed = true;
        if (client->deadline_ns && now > client->deadline_ns) client->doomed = true;
        if (client->doomed) {
            *place = client->next;
            free_client(server, client);
            continue;
        }
        watch(server, client, EPOLL_CTL_MOD);
        place = &client->next;
    }
}

static bool is_over(lki_store_server *server)
{
    if (!atomic_load(&server->stopping)) return false;
    return server->here_count == 0 || lki_now_ns() >= atomic_load(&server->stop_by_ns);
}

static void *serve(void *argument)
{
    lki_store_server *server = argument;
    struct epoll_event events[EVENT_COUNT];
    int64_t turn_ns = lki_now_ns();
    while (!is_over(server)) {
        int count = epoll_wait(server->epoll, events, EVENT_COUNT, TURN_MS);
        int64_t now = lki_now_ns(), beyond_ns = now - turn_ns - TURN_MS * 1000000LL;
        turn_ns = now;
        if (beyond_ns > LKI_STOPPED_NS) pass_over_stop(server, beyond_ns);
        if (server->rested && watch_listener(server) != LK_OK) return NULL;
        for (int i = 0; i < count; i++) {
            lki_client *client = events[i].data.ptr;
            if (client == NULL) {
                uint64_t ignored;
                if (read(server->wakeup, &ignored, sizeof ignored) < 0) continue;
            } else if ((void *)client == (void *)server) {
                accept_client(server);
            } else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
                receive_some(server, client);
            }
        }
        end_turn(server);
    }
    return NULL;
}

static void free_server(lki_store_server *server)
{
    while (server->clients) {
        lki_client *client = server->clients;
        server->clients = client->next;
        client->registered = false; /* the end of the job is nobody's death */
        free_client(server, client);
    }
    if (server->listener >= 0) close(server->listener);
    if (server->epoll >= 0) close(server->epoll);
    if (server->wakeup >= 0) close(server->wakeup);
    lki_table_fini(&server->table);
    lki_settlement_fini(server);
    pthread_mutex_destroy(&server->lock);
    lki_free(server->joined);
    lki_free(server->lost);
    lki_free(server->token);
    lki_free(server);
}

static lk_status open_server(lki_store_server *server, const char *address)
{
    lki_raise_descriptor_limit();
    LKI_TRY(lki_net_listen_at(&server->listener, &server->port, address));
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event on_wakeup = {.events = EPOLLIN, .data.ptr = NULL};
    if (server->epoll < 0 || server->wakeup < 0 ||
        epoll_ctl(server->epoll, EPOLL_CTL_ADD, server->wakeup, &on_wakeup) != 0)
        return lki_fail(LK_ERR_IO, "store: %s", strerror(errno));
    LKI_TRY(watch_listener(server));
    LKI_TRY(lki_quiet_thread_start(&server->thread, serve, server, "store"));
    server->running = true;
    return LK_OK;
}

lk_status lki_store_server_start(lki_store_server **out, const lki_store_server_options *options)
{
    *out = NULL;
    lki_store_server *server = LKI_NEW(lki_store_server);
    if (!server) return LK_ERR_NOMEM;
    server->listener = server->epoll = server->wakeup = -1;
    pthread_mutex_init(&server->lock, NULL);
    server->port = options->port;
    server->world_size = options->world_size;
    server->handshake_timeout_ms =
        options->handshake_timeout_ms ? options->handshake_timeout_ms : DEFAULT_HANDSHAKE_MS;
    server->return_ms = options->return_ms ? options->return_ms : DEFAULT_RETURN_MS;
    server->token = lki_strdup(options->token);
    server->joined = LKI_NEW_ARRAY(unsigned char, options->world_size);
    server->lost = LKI_NEW_ARRAY(lki_lost, options->world_size);
    bool enough = server->token && server->joined && server->lost;
    lk_status status = enough ? lki_settlement_init(server, options) : LK_ERR_NOMEM;
    if (status == LK_OK) status = open_server(server, options->address);
    if (status != LK_OK) {
        free_server(server);
        return status;
    }
    *out = server;
    return LK_OK;
}

int lki_store_server_port(const lki_store_server *server)
{
    return server->port;
}

void lki_store_server_stop(lki_store_server *server, int grace_ms)
{
    if (!server) return;
    if (server->running) {
        uint64_t one = 1;
        atomic_store(&server->stop_by_ns, lki_now_ns() + grace_ms * 1000000LL);
        atomic_store(&server->stopping, true);
        ssize_t ignored = write(server->wakeup, &one, sizeof one); /* it looks every TURN_MS anyway */
        (void)ignored;
        pthread_join(server->thread, NULL);
    }
    free_server(server);
}
