#include "comm/monitor.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/quiet_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

enum { TURN_MS = 500, BEAT_TURNS = 4, SILENT_MS = 6000, DOING_NBYTES = 128 };

struct lki_monitor {
    lki_monitor_options options;
    char host[256];
    lki_store_client *watching; /* the thread's own */
    lki_store_client *asking;   /* under ask_lock */
    pthread_mutex_t ask_lock;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t changed;
    bool failed;
    char sentence[512];
    void (*callback)(void *context, const char *sentence);
    void *callback_context;
    bool calling;
    atomic_bool stopping;
    int stop_event; /* an eventfd that ends the thread's wait */
    pthread_t thread;
    bool running;
    uint64_t *published; /* by index: the sum of what was said last */
    uint64_t beat;       /* counts turns: who repeats one has stopped */
    uint64_t stuck_at;   /* the collective that this rank was in a turn ago */
    int stuck_turns;     /* and how many turns it has been in it */
    lki_stall stall;
    struct heard { /* by rank, under ask_lock */
        uint64_t beat;
        int64_t since_ns;
    } * heard;
};

/* Records the first failure and calls back. */
static void note_failure(lki_monitor *monitor, const char *sentence)
{
    pthread_mutex_lock(&monitor->lock);
    if (!monitor->failed) {
        monitor->failed = true;
        snprintf(monitor->sentence, sizeof monitor->sentence, "%s", sentence);
    }
    void (*callback)(void *, const char *) = monitor->callback;
    void *context = monitor->callback_context;
    monitor->callback = NULL;
    if (callback) monitor->calling = true; /* another thread may be in a call already */
    pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
    if (!callback) return;
    callback(context, monitor->sentence); /* it does not change any more */
    pthread_mutex_lock(&monitor->lock);
    monitor->calling = false;
    pthread_cond_broadcast(&monitor->changed);
    pthread_mutex_unlock(&monitor->lock);
}

/* What has changed; every few turns all of it, so that others know that this host is alive. */
static lk_status publish_progress(lki_monitor *monitor)
{
    const lki_monitor_options *options = &monitor->options;
    bool all = monitor->beat++ % BEAT_TURNS == 0;
    for (int i = 0; options->progress && i < options->rank_count; i++) {
        lk_comm_progress at = {0};
        char key[48], text[160 + DOING_NBYTES], doing[DOING_NBYTES] = "";
        options->progress(options->context, i, &at);
        uint64_t sum = at.started + at.finished;
        if (!at.known || (!all && sum == monitor->published[i])) continue;
        bool still = options->doing && options->doing(options->context, i, doing, sizeof doing);
        snprintf(key, sizeof key, "lockstep/progress/%d", options->ranks[i]);
        int length = snprintf(text, sizeof text, "%llu %llu %d %lld %llu %d %s",
                              (unsigned long long)at.started, (unsigned long long)at.finished, (int)at.kind,
                              (long long)at.count, (unsigned long long)monitor->beat, still, doing);
        LKI_TRY(lki_store_set(monitor->watching, key, text, (size_t)length));
        monitor->published[i] = sum;
    }
    return LK_OK;
}

/* How far the rank of this monitor is. */
static bool own_progress(lki_monitor *monitor, lk_comm_progress *at)
{
    const lki_monitor_options *options = &monitor->options;
    *at = (lk_comm_progress){0};
    for (int i = 0; options->progress && i < options->rank_count; i++)
        if (options->ranks[i] == options->rank) options->progress(options->context, i, at);
    return at->known;
}

/* By turns, so that the time for which the whole job is stopped is not counted. */
static void look_for_stall(lki_monitor *monitor, const lk_comm_progress *own)
{
    lki_stall *stall = &monitor->stall;
    if (monitor->stuck_turns == 0) *stall = (lki_stall){0};
    if (monitor->stuck_turns == 0 || !monitor->options.stalled) return;
    int64_t now = lki_now_ns(), begin_ns = now - monitor->stuck_turns * (TURN_MS * 1000000LL);
    if (!stall->begin_ns || now - stall->seen_ns > 10LL * TURN_MS * 1000000) {
        int looks = stall->looks;
        *stall = (lki_stall){.begin_ns = begin_ns, .looks = looks};
    }
    stall->seen_ns = now;
    if (now >= lki_stall_next(stall)) monitor->options.stalled(monitor->options.context, stall, own);
}

/* A collective that two ranks describe differently never ends by itself. Who waits looks at what the others
 * are in: after a second, and then twice as long after each time. */
static void look_for_disagreement(lki_monitor *monitor)
{
    lk_comm_progress own, theirs;
    char sentence[256];
    if (!own_progress(monitor, &own)) return;
    bool stuck = own.started > own.finished && own.started == monitor->stuck_at;
    monitor->stuck_at = own.started;
    monitor->stuck_turns = stuck ? monitor->stuck_turns + 1 : 0;
    look_for_stall(monitor, &own);
    if (monitor->stuck_turns < 2 || (monitor->stuck_turns & (monitor->stuck_turns - 1))) return;
    for (int rank = 0; rank < monitor->options.world_size; rank++) {
        lki_monitor_progress(monitor, rank, &theirs);
        if (!theirs.known || theirs.started != own.started || theirs.finished == own.started ||
            (theirs.kind == own.kind && theirs.count == own.count))
            continue;
        snprintf(sentence, sizeof sentence,
                 "ranks disagree: rank %d is at %s #%llu of %lld, rank %d at %s #%llu of %lld", rank,
                 lk_comm_kind_name(theirs.kind), (unsigned long long)theirs.started, (long long)theirs.count,
                 monitor->options.rank, lk_comm_kind_name(own.kind), (unsigned long long)own.started,
                 (long long)own.count);
        lki_monitor_fail(monitor, sentence);
        return;
    }
}

static void *watch(void *argument)
{
    lki_monitor *monitor = argument;
    int64_t publish_ns = 0;
    while (!atomic_load(&monitor->stopping)) {
        char *sentence = NULL;
        lk_status status = LK_OK;
        if (lki_now_ns() >= publish_ns) {
            status = publish_progress(monitor);
            if (status == LK_OK) look_for_disagreement(monitor);
            publish_ns = lki_now_ns() + TURN_MS * 1000000LL;
        }
        if (status == LK_OK)
            status = lki_store_wait(monitor->watching, LKI_STORE_FAILED_KEY, TURN_MS, &sentence, NULL);
        if (status == LK_ERR_TIMEOUT || (status == LK_ERR_STOPPED && atomic_load(&monitor->stopping)))
            continue;
        note_failure(monitor, status == LK_OK ? sentence : lk_error());
        lki_free(sentence);
        return NULL;
    }
    return NULL;
}

static lk_status open_monitor(lki_monitor *monitor, const lki_monitor_options *options)
{
    lki_store_options where = {.host = monitor->host,
                               .port = options->port,
                               .token = options->token,
                               .rank = options->rank,
                               .world_size = options->world_size,
                               .was_there = options->standing != NULL};
    LKI_TRY(lki_store_connect(&monitor->asking, &where));
    where.registers = where.was_there = true;
    if (!monitor->watching) LKI_TRY(lki_store_connect(&monitor->watching, &where));
    monitor->stop_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (monitor->stop_event < 0) return lki_fail(LK_ERR_IO, "could not open an eventfd: %s", strerror(errno));
    if (options->tells_silence) lki_store_tell_silence(monitor->watching, options->rank);
    lki_store_end_waits_by(monitor->watching, monitor->stop_event);
    LKI_TRY(lki_quiet_thread_start(&monitor->thread, watch, monitor, "the monitor"));
    monitor->running = true;
    return LK_OK;
}

lk_status lki_monitor_start(lki_monitor **out, const lki_monitor_options *options)
{
    *out = NULL;
    lki_monitor *monitor = LKI_NEW(lki_monitor);
    if (!monitor) {
        lki_store_close(options->standing);
        return LK_ERR_NOMEM;
    }
    monitor->options = *options;
    monitor->watching = options->standing;
    monitor->stop_event = -1;
    snprintf(monitor->host, sizeof monitor->host, "%s", options->host);
    pthread_mutex_init(&monitor->lock, NULL);
    pthread_mutex_init(&monitor->ask_lock, NULL);
    pthread_condattr_t steady; /* a wall clock that is set in the middle of a wait must not end it */
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&monitor->changed, &steady);
    pthread_condattr_destroy(&steady);
    monitor->published = LKI_NEW_ARRAY(uint64_t, options->rank_count + 1);
    monitor->heard = LKI_NEW_ARRAY(struct heard, options->world_size);
    lk_status status = monitor->published && monitor->heard ? open_monitor(monitor, options) : LK_ERR_NOMEM;
    if (status != LK_OK) {
        lki_monitor_stop(monitor);
        return status;
    }
    *out = monitor;
    return LK_OK;
}

void lki_monitor_on_failure(lki_monitor *monitor, void (*callback)(void *context, const char *sentence),
                            void *context)
{
    pthread_mutex_lock(&monitor->lock);
    while (monitor->calling && !callback) pthread_cond_wait(&monitor->changed, &monitor->lock);
    monitor->callback = callback;
    monitor->callback_context = context;
    bool failed = monitor->failed;
    pthread_mutex_unlock(&monitor->lock);
    if (failed && callback) note_failure(monitor, "");
}

bool lki_monitor_failure(lki_monitor *monitor, int wait_ms, char *text, size_t capacity)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += wait_ms % 1000 * 1000000L;
    until.tv_sec += wait_ms / 1000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&monitor->lock);
    while (!monitor->failed && pthread_cond_timedwait(&monitor->changed, &monitor->lock, &until) == 0)
        continue;
    bool failed = monitor->failed;
    if (failed) snprintf(text, capacity, "%s", monitor->sentence);
    pthread_mutex_unlock(&monitor->lock);
    return failed;
}

void lki_monitor_fail(lki_monitor *monitor, const char *sentence)
{
    bool swapped = false;
    pthread_mutex_lock(&monitor->ask_lock);
    lk_status status = lki_store_compare_set(monitor->asking, LKI_STORE_FAILED_KEY, NULL, sentence, &swapped);
    pthread_mutex_unlock(&monitor->ask_lock);
    if (status != LK_OK || swapped) note_failure(monitor, sentence);
}

void lki_monitor_progress(lki_monitor *monitor, int rank, lk_comm_progress *out)
{
    char key[48];
    char *text = NULL;
    unsigned long long started, finished;
    long long count;
    int kind;
    *out = (lk_comm_progress){0};
    snprintf(key, sizeof key, "lockstep/progress/%d", rank);
    pthread_mutex_lock(&monitor->ask_lock);
    lk_status status = lki_store_get(monitor->asking, key, &text, NULL);
    pthread_mutex_unlock(&monitor->ask_lock);
    if (status == LK_OK && sscanf(text, "%llu %llu %d %lld", &started, &finished, &kind, &count) == 4)
        *out = (lk_comm_progress){.started = started,
                                  .finished = finished,
                                  .kind = (lk_comm_kind)kind,
                                  .count = count,
                                  .known = true};
    lki_free(text);
}

/* The words of a beat: how far they go, and whether the rank stood still. */
static bool read_beat(const char *text, uint64_t *beat, int *still, const char **doing)
{
    int length = 0;
    unsigned long long number;
    if (sscanf(text, "%*u %*u %*d %*d %llu %d%n", &number, still, &length) != 2 || length == 0) return false;
    *beat = number;
    *doing = text[length] == ' ' ? text + length + 1 : "";
    return true;
}

bool lki_monitor_doing(lki_monitor *monitor, int rank, char *text, size_t capacity)
{
    char key[48];
    LKI_SCOPED char *value = NULL;
    const char *doing = "";
    uint64_t beat = 0;
    int still = 0;
    int64_t now = lki_now_ns();
    struct heard *heard = &monitor->heard[rank];
    snprintf(key, sizeof key, "lockstep/progress/%d", rank);
    pthread_mutex_lock(&monitor->ask_lock);
    lk_status status = lki_store_get(monitor->asking, key, &value, NULL);
    if (status == LK_OK && !read_beat(value, &beat, &still, &doing)) beat = 0;
    if (heard->since_ns == 0 || heard->beat != beat) *heard = (struct heard){beat, now};
    int64_t silent_ms = (now - heard->since_ns) / 1000000;
    pthread_mutex_unlock(&monitor->ask_lock);
    bool is_silent = (status == LK_OK || status == LK_ERR_NOT_FOUND) && silent_ms >= SILENT_MS;
    if (is_silent)
        snprintf(text, capacity, "silent for %lld s (stopped, or its host is)%s%s",
                 (long long)(silent_ms / 1000), *doing ? ", last " : "", doing);
    else
        snprintf(text, capacity, "%s", doing);
    return is_silent || still;
}

void lki_monitor_stop(lki_monitor *monitor)
{
    if (!monitor) return;
    atomic_store(&monitor->stopping, true);
    if (monitor->stop_event >= 0) {
        uint64_t one = 1;
        ssize_t ignored =
            write(monitor->stop_event, &one, sizeof one); /* the thread looks each turn anyway */
        (void)ignored;
    }
    if (monitor->running) pthread_join(monitor->thread, NULL);
    lki_store_close(monitor->watching);
    lki_store_close(monitor->asking);
    if (monitor->stop_event >= 0) close(monitor->stop_event);
    pthread_cond_destroy(&monitor->changed);
    pthread_mutex_destroy(&monitor->ask_lock);
    pthread_mutex_destroy(&monitor->lock);
    lki_free(monitor->published);
    lki_free(monitor->heard);
    lki_free(monitor);
}
