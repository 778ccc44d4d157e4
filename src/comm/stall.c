#include "comm/stall.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { PRIME_S = 8, FIRST_S = 15, LATER_S = 60, NAMED = 4 };

/* The state of a process, as the kernel has it; 0: not known. */
static char process_state(int pid)
{
    char path[64], line[512], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (name_end && name_end[1] == ' ') state = name_end[2];
    fclose(file);
    return state;
}

bool lki_stall_process(int pid, const char *activity, char *text, size_t capacity)
{
    char state = process_state(pid);
    bool is_stopped = state == 'T' || state == 't';
    const char *how = is_stopped     ? "stopped by a signal"
                      : state == 'D' ? "in a wait of the kernel's (a disk or file server)"
                                     : "";
    snprintf(text, capacity, "%s%s%s", how, *how && *activity ? ", " : "", activity);
    return is_stopped;
}

/* What the rank does, where the comm can tell; true if it stands still. */
static bool ask(lk_comm *comm, int rank, char *text, size_t capacity)
{
    *text = '\0';
    return comm->ops->doing && comm->ops->doing(comm, rank, text, capacity);
}

static size_t describe_one(const lk_comm_progress *at, int rank, const char *doing, char *text,
                           size_t capacity)
{
    char place[120];
    if (!at->known)
        snprintf(place, sizeof place, "%s", "has told nothing since the ranks met");
    else if (at->silent)
        snprintf(place, sizeof place, "has not come");
    else if (at->started == 0)
        snprintf(place, sizeof place, "is behind: it has started none");
    else
        snprintf(place, sizeof place, "is behind: it %s #%llu (%s of %lld)",
                 at->finished >= at->started ? "has finished" : "is at", (unsigned long long)at->started,
                 lk_comm_kind_name(at->kind), (long long)at->count);
    int length = snprintf(text, capacity, "; rank %d %s%s%s", rank, place, *doing ? "; it is " : "", doing);
    return (size_t)length < capacity ? (size_t)length : capacity;
}

int lki_stall_describe(lk_comm *comm, uint64_t seq, char *text, size_t capacity)
{
    int behind = 0, still = 0;
    size_t length = 0, still_length = 0;
    char stopped[400] = "";
    text[0] = '\0';
    for (int rank = 0; rank < comm->size && comm->ops->progress; rank++) {
        lk_comm_progress at = {0};
        char doing[160];
        if (rank == comm->rank) continue;
        comm->ops->progress(comm, rank, &at);
        bool stands_still = ask(comm, rank, doing, sizeof doing);
        bool is_behind = at.known && at.started < seq;
        if (is_behind && ++behind <= NAMED && length < capacity)
            length += describe_one(&at, rank, doing, text + length, capacity - length);
        if (!is_behind && stands_still && ++still <= NAMED && still_length < sizeof stopped)
            still_length += (size_t)snprintf(stopped + still_length, sizeof stopped - still_length,
                                             "; rank %d is %s", rank, doing);
    }
    if (behind > NAMED && length < capacity)
        snprintf(text + length, capacity - length, "; and %d more", behind - NAMED);
    if (behind == 0) snprintf(text, capacity, "%s", stopped);
    return behind ? behind : still;
}

/* The lowest of the ranks that wait speaks for all of them. */
static bool speaks(lk_comm *comm, uint64_t seq)
{
    for (int rank = 0; rank < comm->rank && comm->ops->progress; rank++) {
        lk_comm_progress at = {0};
        char doing[160];
        comm->ops->progress(comm, rank, &at);
        if (at.known && at.started >= seq && !ask(comm, rank, doing, sizeof doing)) return false;
    }
    return true;
}

int64_t lki_stall_next(lki_stall *stall)
{
    if (!stall->next_ns) stall->next_ns = stall->begin_ns + PRIME_S * 1000000000LL;
    return stall->next_ns;
}

void lki_stall_look(lki_stall *stall, lk_comm *comm, uint64_t seq, lk_comm_kind kind)
{
    char who[500];
    int64_t now = lki_now_ns();
    bool is_first = stall->looks++ == 0;
    stall->next_ns = is_first ? stall->begin_ns + FIRST_S * 1000000000LL : now + LATER_S * 1000000000LL;
    if (stall->next_ns <= now) stall->next_ns = now + (FIRST_S - PRIME_S) * 1000000000LL;
    /* The first look is compared with the second: a rank that has told nothing in between is silent. */
    int count = lki_stall_describe(comm, seq, who, sizeof who);
    if (is_first || !speaks(comm, seq)) return;
    lki_log(LKI_LOG_WARNING, "rank %d of %d has waited %lld s in %s #%llu%s", comm->rank, comm->size,
            (long long)((now - stall->begin_ns) / 1000000000), lk_comm_kind_name(kind),
            (unsigned long long)seq, count ? who : "; all ranks are in it");
}
