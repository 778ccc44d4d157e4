/* Signals that ask a run to end: SIGTERM and SIGUSR1 (a batch system's warning) and SIGINT (a user's Ctrl-C).
 *
 * Between lki_signals_begin and lki_signals_end they only set a flag, which the loop looks at between two
 * batches, so that a stopped run can save its place. A second SIGINT ends the process as usual. A signal that
 * the program ignores stays ignored. Calls nest; the first installs and the last restores what was there. */
#ifndef LKI_TRAIN_SIGNALS_H
#define LKI_TRAIN_SIGNALS_H

/* The flag: 0, or the number of the signal that came. It stays valid. */
volatile int *lki_signals_begin(void);
void lki_signals_end(void);

#endif
