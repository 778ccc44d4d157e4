/* Looks after the ranks of other hosts through the store: who has died, who gave up and why, who is how far.
 *
 * Its thread holds the connection that stands for this rank: when the process dies, the server tells
 * everyone. Twice a second it publishes how far this host's ranks have come, for the report of a stall. Start
 * after fork; all calls are thread-safe. */
#ifndef LKI_COMM_MONITOR_H
#define LKI_COMM_MONITOR_H

#include <lockstep/sys/comm.h>

#include "comm/stall.h"
#include "comm/store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lki_monitor lki_monitor;

typedef struct lki_monitor_options {
    const char *host; /* the store's */
    int port;
    const char *token;
    int rank, world_size;
    /* Optional: the connection that stands for this rank already. The monitor's own from the call on,
     * whatever comes of it, so that there is no moment in which nobody would notice the rank's death. */
    lki_store_client *standing;
    /* Optional: how far `rank` has come, called from the monitor's thread for each of `ranks`. */
    void (*progress)(void *context, int index, lk_comm_progress *out);
    /* Optional, as progress: what it does, in a few words; whether it stands still. */
    bool (*doing)(void *context, int index, char *text, size_t capacity);
    /* Optional: called from the monitor's thread while `rank` is in the same collective as long as the wait
     * says. */
    void (*stalled)(void *context, lki_stall *wait, const lk_comm_progress *own);
    bool tells_silence; /* says when rank 0 is silent: one of the monitors does */
    const int *ranks;   /* the ranks to publish; borrowed until stop */
    int rank_count;
    void *context;
} lki_monitor_options;

lk_status lki_monitor_start(lki_monitor **out, const lki_monitor_options *options);

/* Calls back once, from the monitor's thread, when the job has failed; at once where it has already. NULL
 * takes it away and returns when no call is under way. */
void lki_monitor_on_failure(lki_monitor *monitor, void (*callback)(void *context, const char *sentence),
                            void *context);

/* What the job failed of, where that is known within wait_ms. */
bool lki_monitor_failure(lki_monitor *monitor, int wait_ms, char *text, size_t capacity);

/* Tells all ranks that this one gives up. The first such sentence counts. */
void lki_monitor_fail(lki_monitor *monitor, const char *sentence);

/* How far a rank said it was; known is false where it has said nothing. */
void lki_monitor_progress(lki_monitor *monitor, int rank, lk_comm_progress *out);

/* What a rank said that it does, or that it has not been heard from between two calls some seconds apart.
 * Returns whether it stands still. */
bool lki_monitor_doing(lki_monitor *monitor, int rank, char *text, size_t capacity);

/* Says goodbye. NULL is fine. */
void lki_monitor_stop(lki_monitor *monitor);

#ifdef __cplusplus
}
#endif
#endif
