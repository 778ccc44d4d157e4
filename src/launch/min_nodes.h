/* A job that goes on without some of its ranks: who may, how long it waits for them, and the door at which
 * they wait to be taken in again. Used by the thread that trains alone. */
#ifndef LKI_LAUNCH_MIN_NODES_H
#define LKI_LAUNCH_MIN_NODES_H

#include "launch/meeting.h"

/* Fails in one sentence if ranks of this role cannot go on without some of them. */
lk_status lki_connect_check_min_nodes(int min_nodes, const char *backend, const lki_role *role);

/* Fills in how->settle_ms. */
lk_status lki_min_nodes_settle_ms(lki_meeting_options *how);

/* The meeting's store is where ranks that come later wait, as long as the meeting lasts. */
void lki_door_open(const lki_meeting *meeting);
/* As open, for a comm that has no use for the meeting, which now lasts until the door is closed. */
void lki_door_keep(lki_meeting *meeting);

/* Rank 0 of a job that goes on without some ranks: whether any of them wait to be taken in, as "rank 2 has
 * come back". They are, when the ranks meet again. False in other processes. */
bool lki_ranks_wait(char *text, size_t capacity);
/* After the comm of lki_comm_connect has been freed. */
void lki_ranks_close_door(void);

#endif
