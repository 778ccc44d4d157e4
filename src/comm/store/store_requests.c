/* The store's server: what each request does. */
#include "comm/store/store_server.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MISSING = 12 };

void lki_server_reply(lki_client *client, lk_status status, const void *data, size_t nbytes)
{
    if (lki_wire_pack(&client->out, &client->session, (uint8_t)status, &(lki_field){data, nbytes, true}, 1) !=
        LK_OK)
        client->doomed = true;
}

static void reply_error(lki_client *client, lk_status status)
{
    lki_server_reply(client, status, lk_error(), strlen(lk_error()));
}

static bool valid_key(const lki_wire_message *request)
{
    return request->field_count > 0 && request->fields[0].present && request->fields[0].nbytes > 0 &&
           request->fields[0].nbytes <= LKI_STORE_MAX_KEY;
}

static bool read_i64(const lki_wire_message *request, int index, int64_t *out)
{
    if (request->field_count <= index || request->fields[index].nbytes != 8) return false;
    uint64_t little;
    memcpy(&little, request->fields[index].data, 8);
    *out = (int64_t)le64toh(little);
    return true;
}

static const lki_bytes *value_of(lki_store_server *server, const lki_wire_message *request)
{
    return lki_table_get(&server->table, request->fields[0].data, request->fields[0].nbytes);
}

static lk_status set_value(lki_store_server *server, const lki_wire_message *request, const void *value,
                           size_t nbytes)
{
    return lki_table_set(&server->table, request->fields[0].data, request->fields[0].nbytes, value, nbytes);
}

static bool handle_set(lki_store_server *server, lki_client *client, const lki_wire_message *request)
{
    if (request->field_count != 2 || !request->fields[1].present) return false;
    lk_status status = set_value(server, request, request->fields[1].data, request->fields[1].nbytes);
    if (status == LK_OK)
        lki_server_reply(client, LK_OK, "", 0);
    else
        reply_error(client, status);
    return true;
}

static bool handle_get(lki_store_server *server, lki_client *client, const lki_wire_message *request)
{
    const lki_bytes *value = value_of(server, request);
    if (value)
        lki_server_reply(client, LK_OK, value->data, value->length);
    else
        reply_error(client, lki_fail(LK_ERR_NOT_FOUND, "the store has no key \"%.*s\"",
                                     (int)request->fields[0].nbytes, (const char *)request->fields[0].data));
    return true;
}

static bool handle_add(lki_store_server *server, lki_client *client, const lki_wire_message *request)
{
    int64_t delta;
    char text[32] = "0";
    if (!read_i64(request, 1, &delta)) return false;
    const lki_bytes *value = value_of(server, request);
    if (value)
        snprintf(text, sizeof text, "%.*s", (int)(value->length < 31 ? value->length : 31),
                 (const char *)value->data);
    int64_t sum = (int64_t)((uint64_t)strtoll(text, NULL, 10) + (uint64_t)delta);
    int length = snprintf(text, sizeof text, "%lld", (long long)sum);
    lk_status status = set_value(server, request, text, (size_t)length);
    if (status == LK_OK)
        lki_server_reply(client, LK_OK, text, (size_t)length);
    else
        reply_error(client, status);
    return true;
}

static bool handle_compare_set(lki_store_server *server, lki_client *client, const lki_wire_message *request)
{
    if (request->field_count != 3 || !request->fields[2].present) return false;
    const lki_field *expected = &request->fields[1], *desired = &request->fields[2];
    const lki_bytes *value = value_of(server, request);
    bool equal = value ? expected->present && expected->nbytes == value->length &&
                             (value->length == 0 || memcmp(expected->data, value->data, value->length) == 0)
                       : !expected->present;
    lk_status status = equal ? set_value(server, request, desired->data, desired->nbytes) : LK_OK;
    if (status == LK_OK)
        lki_server_reply(client, LK_OK, equal ? "1" : "0", 1);
    else
        reply_error(client, status);
    return true;
}

static bool handle_wait(lki_client *client, const lki_wire_message *request, lki_wire_verb verb)
{
    int64_t timeout_ms;
    if (!read_i64(request, verb == LKI_WIRE_WAIT ? 1 : 0, &timeout_ms)) return false;
    if (timeout_ms < 0) timeout_ms = 0;
    if (timeout_ms > 1000000000) timeout_ms = 1000000000;
    client->wait_key.length = 0;
    if (verb == LKI_WIRE_WAIT &&
        lki_bytes_append(&client->wait_key, request->fields[0].data, request->fields[0].nbytes) != LK_OK)
        return false;
    if (verb == LKI_WIRE_JOIN && request->field_count > 1) {
        uint64_t hash = 14695981039346656037u;
        for (size_t i = 0; i < request->fields[1].nbytes; i++)
            hash = (hash ^ ((const unsigned char *)request->fields[1].data)[i]) * 1099511628211u;
        client->node = hash ? hash : 1;
    }
    client->waiting = verb;
    client->wait_until_ns = lki_now_ns() + timeout_ms * 1000000;
    return true;
}

static bool handle_goodbye(lki_store_server *server, lki_client *client)
{
    if (client->registered) {
        server->joined[client->rank] = 2;
        if (server->joined_count < server->world_size) lki_server_note_lost(server, client);
        server->here_count--;
        client->registered = false;
    }
    client->doomed = true;
    return true;
}

bool lki_server_handle(lki_store_server *server, lki_client *client, const lki_wire_message *request)
{
    if (request->head == LKI_WIRE_GOODBYE) return handle_goodbye(server, client); /* also of one who waits */
    if (client->waiting) return false;                                            /* one question at a time */
    if (request->head == LKI_WIRE_JOIN) return handle_wait(client, request, LKI_WIRE_JOIN);
    if (!valid_key(request)) return false;
    switch (request->head) {
    case LKI_WIRE_SET: return handle_set(server, client, request);
    case LKI_WIRE_GET: return handle_get(server, client, request);
    case LKI_WIRE_WAIT: return handle_wait(client, request, LKI_WIRE_WAIT);
    case LKI_WIRE_ADD: return handle_add(server, client, request);
    case LKI_WIRE_COMPARE_SET: return handle_compare_set(server, client, request);
    default: return false;
    }
}

lk_status lki_server_missing_ranks(const lki_store_server *server)
{
    char text[256] = "";
    size_t length = 0;
    int missing = 0;
    for (int rank = 0; rank < server->world_size; rank++) {
        if (server->joined[rank]) continue;
        if (++missing <= NAMED_MISSING)
            length +=
                (size_t)snprintf(text + length, sizeof text - length, "%s%d", missing > 1 ? ", " : "", rank);
    }
    return lki_fail(LK_ERR_TIMEOUT, "%d of %d ranks have joined; missing: rank %s%s", server->joined_count,
                    server->world_size, text, missing > NAMED_MISSING ? ", ..." : "");
}

static void answer_wait(lki_store_server *server, lki_client *client, int64_t now)
{
    const lki_bytes *value =
        lki_table_get(&server->table, (const char *)client->wait_key.data, client->wait_key.length);
    const lki_bytes *failure =
        lki_table_get(&server->table, LKI_STORE_FAILED_KEY, strlen(LKI_STORE_FAILED_KEY));
    if (value) {
        lki_server_reply(client, LK_OK, value->data, value->length);
    } else if (failure) { /* who was to set it may be the one that has failed */
        lki_server_reply(client, LK_ERR_PEER, failure->data, failure->length);
    } else if (now >= client->wait_until_ns) {
        reply_error(client, lki_fail(LK_ERR_TIMEOUT, "no rank has set \"%.*s\" in time",
                                     (int)client->wait_key.length, (const char *)client->wait_key.data));
    } else {
        return;
    }
    client->waiting = 0;
}

static void answer_join(lki_store_server *server, lki_client *client, int64_t now)
{
    const uint32_t place[] = {htole32((uint32_t)client->rank), htole32((uint32_t)server->world_size)};
    const lki_bytes *failure =
        lki_table_get(&server->table, LKI_STORE_FAILED_KEY, strlen(LKI_STORE_FAILED_KEY));
    client->closing = client->no_place != NULL;
    if (failure)
        lki_server_reply(client, LK_ERR_PEER, failure->data, failure->length);
    else if (client->no_place)
        lki_server_reply(client, LK_ERR_STOPPED, client->no_place, strlen(client->no_place));
    else if (server->joined_count == server->world_size)
        lki_server_reply(client, LK_OK, place, sizeof place);
    else if (now >= client->wait_until_ns)
        reply_error(client, lki_server_missing_ranks(server));
    else
        return;
    client->waiting = 0;
}

void lki_server_answer_waiting(lki_store_server *server)
{
    int64_t now = lki_now_ns();
    for (lki_client *client = server->clients; client; client = client->next) {
        if (client->waiting == LKI_WIRE_WAIT) answer_wait(server, client, now);
        if (client->waiting == LKI_WIRE_JOIN) answer_join(server, client, now);
    }
}

bool lki_server_has_failed(const lki_store_server *server)
{
    return lki_table_get(&server->table, LKI_STORE_FAILED_KEY, strlen(LKI_STORE_FAILED_KEY)) != NULL;
}

void lki_server_publish_failure(lki_store_server *server, const char *sentence)
{
    if (!lki_server_has_failed(server))
        lki_table_set(&server->table, LKI_STORE_FAILED_KEY, strlen(LKI_STORE_FAILED_KEY), sentence,
                      strlen(sentence));
}
