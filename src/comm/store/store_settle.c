/* The store's server: a job that goes on without the ranks that stay away, and takes them back later.
 *
 * It is settled once: the ranks that are there get new numbers without gaps, in the order of their old ones,
 * so rank 0 stays rank 0. Who comes later is sent back to the door, where it knocks again and again until the
 * ranks meet anew. */
#include "comm/store/store_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { KNOCK_MS = 3000, NAMED = 12 }; /* who has not knocked for so long has gone away again */

lk_status lki_settlement_init(lki_store_server *server, const lki_store_server_options *options)
{
    lki_settlement *s = &server->settlement;
    *s = (lki_settlement){.min_nodes = options->min_nodes,
                          .shards = options->shards,
                          .full_size = options->world_size,
                          .takes_back = options->takes_back,
                          .wait_ms = options->settle_ms,
                          .due_ns = lki_now_ns() + options->settle_ms * 1000000};
    if (!s->min_nodes) return LK_OK;
    s->is_member = LKI_NEW_ARRAY(bool, s->full_size);
    s->knocked_ns = LKI_NEW_ARRAY(int64_t, s->full_size);
    return s->is_member && s->knocked_ns ? LK_OK : LK_ERR_NOMEM;
}

void lki_settlement_fini(lki_store_server *server)
{
    lki_free(server->settlement.is_member);
    lki_free(server->settlement.knocked_ns);
}

/* How many of so many ranks can share the shards: all of them without shards. */
static int usable(const lki_settlement *s, int count)
{
    int largest = 1;
    if (!s->shards) return count;
    while (2 * largest <= count && 2 * largest <= s->shards) largest *= 2;
    return largest;
}

/* ---- Settling ---- */

/* "ranks 1, 3", of those whose entry is what is looked for. */
static void list_ranks(char *text, size_t capacity, const bool *chosen, int count)
{
    int named = 0, total = 0;
    for (int rank = 0; rank < count; rank++) total += chosen[rank];
    size_t length = (size_t)snprintf(text, capacity, "rank%s", total == 1 ? "" : "s");
    for (int rank = 0; rank < count && named < NAMED; rank++) {
        if (!chosen[rank] || length >= capacity) continue;
        length += (size_t)snprintf(text + length, capacity - length, "%s%d", named++ ? ", " : " ", rank);
    }
    if (total > named && length < capacity) snprintf(text + length, capacity - length, ", ...");
}

/* The client that stands for a rank and has said on which host it is. */
static lki_client *client_of(lki_store_server *server, int rank)
{
    for (lki_client *client = server->clients; client; client = client->next)
        if (client->registered && client->rank == rank && client->node && !client->doomed) return client;
    return NULL;
}

/* Hosts of the ranks that are there, and how many ranks that are. */
static int count_nodes(lki_store_server *server, lki_client **by_rank, int *present)
{
    int nodes = 0;
    *present = 0;
    for (int rank = 0; rank < server->world_size; rank++) {
        bool is_new = true;
        by_rank[rank] = client_of(server, rank);
        if (!by_rank[rank]) continue;
        ++*present;
        for (int other = 0; other < rank && is_new; other++)
            is_new = !by_rank[other] || by_rank[other]->node != by_rank[rank]->node;
        nodes += is_new;
    }
    return nodes;
}

static void say_too_few(lki_store_server *server, const bool *away, int nodes)
{
    char names[100], sentence[300];
    lki_settlement *s = &server->settlement;
    list_ranks(names, sizeof names, away, s->full_size);
    snprintf(sentence, sizeof sentence,
             "%d node%s after waiting %lld s for %s: these " LKI_STORE_TOO_FEW " %d", nodes,
             nodes == 1 ? " is left" : "s are left", (long long)(s->wait_ms / 1000), names, s->min_nodes);
    lki_server_publish_failure(server, sentence);
}

/* A rank for which there is no place hears so when it asks for the others. It leaves, and knocks. */
static void send_away(lki_store_server *server, lki_client *client, const char *why)
{
    server->here_count--;
    client->registered = false;
    client->no_place = why;
}

/* Gives the first `count` of those that are there their new numbers. */
static void renumber(lki_store_server *server, lki_client **by_rank, int count)
{
    static const char spare[] = LKI_STORE_WAITS ": the shards cannot be divided among so many ranks";
    lki_settlement *s = &server->settlement;
    int members = 0;
    memset(server->joined, 0, (size_t)server->world_size);
    memset(server->lost, 0, (size_t)server->world_size * sizeof *server->lost);
    server->lost_count = 0;
    for (int rank = 0; rank < server->world_size; rank++) {
        lki_client *client = by_rank[rank];
        if (!client) continue;
        s->is_member[rank] = members < count;
        if (members == count) {
            s->knocked_ns[rank] = lki_now_ns(); /* it has been told of already */
            send_away(server, client, spare);
            continue;
        }
        client->rank = members;
        server->joined[members++] = 1;
    }
    for (lki_client *client = server->clients; client; client = client->next)
        if (client->registered && !client->node) /* it has not even asked for the others */
            send_away(server, client, LKI_STORE_WAITS ": it came too late");
    server->world_size = server->joined_count = count;
    s->is_settled = true;
}

static void settle(lki_store_server *server, lki_client **by_rank, bool *away)
{
    int present, full = server->settlement.full_size, nodes = count_nodes(server, by_rank, &present);
    char names[100], spares[64] = "";
    for (int rank = 0; rank < full; rank++) away[rank] = !by_rank[rank];
    if (nodes < server->settlement.min_nodes) {
        say_too_few(server, away, nodes);
        return;
    }
    int count = usable(&server->settlement, present);
    list_ranks(names, sizeof names, away, full);
    if (count < present)
        snprintf(spares, sizeof spares, "; %d more wait%s, as %d shards need fewer", present - count,
                 present - count == 1 ? "s" : "", server->settlement.shards);
    lki_log(LKI_LOG_WARNING,
            "%s ha%s not come within %lld s: %d of %d ranks go on, numbered from 0; %d node%s left%s", names,
            full - present == 1 ? "s" : "ve", (long long)(server->settlement.wait_ms / 1000), count, full,
            nodes, nodes == 1 ? " is" : "s are", spares);
    renumber(server, by_rank, count);
}

/* ---- Those that come back ---- */

bool lki_server_turns_back(lki_store_server *server, lki_client *client, int rank, int world_size)
{
    static const char later[] = LKI_STORE_WAITS ", and takes it in at the end of an epoch";
    lki_settlement *s = &server->settlement;
    if (!s->is_settled || world_size != s->full_size || world_size == server->world_size) return false;
    if (rank < 0 || rank >= s->full_size) return false;
    if (!s->takes_back) {
        static const char late[] = LKI_STORE_WAITS ", and cannot take it in: its ranks are not started again "
                                                   "(--max-restarts)";
        lki_server_reply(client, LK_ERR_PEER, late, strlen(late));
    } else if (s->is_member[rank]) { /* its death has not been noticed yet: the ranks meet again soon */
        static const char again[] = "the ranks of the job meet again soon";
        lki_server_reply(client, LK_ERR_STOPPED, again, strlen(again));
    } else {
        int64_t now = lki_now_ns(), before = s->knocked_ns[rank];
        if (before == 0 || now - before > KNOCK_MS * 1000000LL)
            lki_log(LKI_LOG_WARNING, "rank %d on %s is there, and is taken in at the end of an epoch", rank,
                    client->from);
        s->knocked_ns[rank] = now;
        lki_server_reply(client, LK_ERR_STOPPED, later, strlen(later));
    }
    client->closing = true;
    return true;
}

static void look_at_door(lki_store_server *server, bool *waits)
{
    lki_settlement *s = &server->settlement;
    int64_t now = lki_now_ns();
    int count = 0;
    char names[100], text[sizeof s->returning] = "";
    for (int rank = 0; rank < s->full_size; rank++) {
        int64_t knocked = s->knocked_ns[rank];
        waits[rank] = knocked && now - knocked < KNOCK_MS * 1000000LL;
        count += waits[rank];
    }
    if (count && usable(s, server->world_size + count) > server->world_size) {
        list_ranks(names, sizeof names, waits, s->full_size);
        snprintf(text, sizeof text, "%s %s come back", names, count == 1 ? "has" : "have");
    }
    pthread_mutex_lock(&server->lock);
    snprintf(s->returning, sizeof s->returning, "%s", text);
    pthread_mutex_unlock(&server->lock);
}

bool lki_store_server_returning(lki_store_server *server, char *text, size_t capacity)
{
    pthread_mutex_lock(&server->lock);
    snprintf(text, capacity, "%s", server->settlement.returning);
    pthread_mutex_unlock(&server->lock);
    return *text != '\0';
}

void lki_server_settle(lki_store_server *server)
{
    lki_settlement *s = &server->settlement;
    bool all_came = server->joined_count == server->world_size;
    bool is_due = !all_came && !s->is_settled && lki_now_ns() >= s->due_ns && client_of(server, 0);
    if (!s->min_nodes || lki_server_has_failed(server) || !(is_due || s->is_settled)) return;
    LKI_SCOPED bool *chosen = LKI_NEW_ARRAY(bool, s->full_size);
    LKI_SCOPED lki_client **by_rank = LKI_NEW_ARRAY(lki_client *, s->full_size);
    if (!chosen || !by_rank) return; /* the next turn tries again */
    if (is_due)
        settle(server, by_rank, chosen);
    else
        look_at_door(server, chosen);
}
