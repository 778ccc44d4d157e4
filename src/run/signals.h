/* Signals that ask a run to end: SIGTERM and SIGUSR1 (a batch system's warning) and SIGINT (a user's Ctrl-C).
 *
 * Between lki_signals_begin and lki_signals_end they only set a flag, which the loop looks at between two
 * batches, so that a stopped run can save its place. A second SIGINT ends the process as usual. A signal that
 * the program ignores stays ignored. Calls nest; the first installs and the last restores what was there.
 *
 * A signal that came too late for the run to stop at is not lost: when all is over, lki_signals_pass_on
 * raises it again, for what the program itself does about it. SIGUSR1, by which a scheduler says that time is
 * nearly up, would end the program before it could use what the run has made: it stops the next run instead,
 * at once. */
#ifndef LKI_RUN_SIGNALS_H
#define LKI_RUN_SIGNALS_H

#include <stdbool.h>

/* The flag: 0, or the number of the signal that came. It stays valid. */
volatile int *lki_signals_begin(void);
/* `heard`: the caller of the run learns from its status that it did not come to its end. */
void lki_signals_end(bool heard);
void lki_signals_pass_on(void);

/* The signal that stopped the latest run which was stopped by one, on any rank: the caller of the run may
 * want to end by it too. 0 for none. */
void lki_signals_note_stop(int number);
int lki_signals_stopped_by(void);

#endif
