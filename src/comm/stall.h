/* Who keeps the others waiting: for the report of a collective that does not end. Called by the thread that
 * waits, or by the monitor where that is out of reach meanwhile. */
#ifndef LKI_COMM_STALL_H
#define LKI_COMM_STALL_H

#include <lockstep/sys/comm.h>

/* Of one wait. */
typedef struct lki_stall {
    int64_t begin_ns, seen_ns; /* when it began, and when its thread was seen last */
    int64_t next_ns;           /* when to look again; 0: not known yet */
    int looks;
} lki_stall;

/* When to look. */
int64_t lki_stall_next(lki_stall *stall);
/* Looks: after 15 seconds, and each minute from then on, one of the ranks that wait says in a line who is
 * behind and what that rank does. */
void lki_stall_look(lki_stall *stall, lk_comm *comm, uint64_t seq, lk_comm_kind kind);

/* Appends "; rank 1 is behind: it is at #15 (barrier of 0), in callback Slow" for those that have not come as
 * far as collective `seq`, or else for those that have stopped in it; says how many. */
int lki_stall_describe(lk_comm *comm, uint64_t seq, char *text, size_t capacity);

/* What a process of this host does: "stopped by a signal", "in callback Slow", or "". True if it stands
 * still. */
bool lki_stall_process(int pid, const char *activity, char *text, size_t capacity);

#endif
