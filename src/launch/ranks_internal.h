/* What fork.c, supervise.c and job_control.c share. */
#ifndef LKI_LAUNCH_RANKS_INTERNAL_H
#define LKI_LAUNCH_RANKS_INTERNAL_H

#include "launch/ranks.h"
#include "launch/restart.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    LKI_RANK_LINES = 6,
    LKI_RANK_LINE_NBYTES = 256,
};

/* What a forked rank leaves behind, in memory that it shares with the caller. */
typedef struct lki_rank_report {
    _Atomic int done;
    int status;
    int64_t time_ns;
    char text[512];
} lki_rank_report;

/* A forked rank, as the caller sees it. */
typedef struct lki_child {
    pid_t pid; /* 0: never started */
    int rank;
    int pipe;          /* its stderr; -1 at the end */
    bool reaped, told; /* told: we sent it a signal, so its end is our doing */
    int wait_status;
    int64_t end_ns;
    char lines[LKI_RANK_LINES][LKI_RANK_LINE_NBYTES]; /* the last ones, in a ring */
    int line_count;
    char partial[LKI_RANK_LINE_NBYTES];
    size_t partial_length;
} lki_child;

struct lki_ranks {
    bool is_child;
    int index; /* of this rank among those forked together */
    int rank;
    lki_role before;          /* the process's role, put back at the end */
    lki_rank_report *reports; /* by index */
    int count;
    lki_child *children; /* count - 1 of them */
    int shm_fd;
    int grace_ms;
    char host[128];
    pthread_t supervisor;
    bool supervised;
    int wakeup; /* an eventfd */
    atomic_bool failed;
    _Atomic int caller; /* 0 at work, 1 has finished well, 2 has failed */
    int64_t fail_ns;
};

/* job_control.c: from here on Ctrl-Z stops the forked ranks with the caller, unless the program looks after
 * that signal itself. */
void lki_stop_together_begin(lki_ranks *ranks);
void lki_stop_together_end(const lki_ranks *ranks);

/* supervise.c */
void *lki_supervise(void *ranks);
/* Nobody waits any longer for this rank to join. */
void lki_ranks_mark_ended(const lki_ranks *ranks, int index);
/* The sentence about a child that did not end well; false where it did. `primary` tells a cause from a
 * consequence. */
bool lki_describe_end(const lki_ranks *ranks, const lki_child *child, char *text, size_t capacity,
                      bool *primary);

#endif
