/* The times of day in the logs, which no two runs share. */
#ifndef TESTS_SUPPORT_TIMES_H
#define TESTS_SUPPORT_TIMES_H

/* In place: the column "time" of a CSV log and "time" in JSON lines go, so that the rest can be compared. */
void lkt_drop_times(char *text, const char *name);

#endif
