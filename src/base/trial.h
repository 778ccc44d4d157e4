/* Code that may take the process down, tried in a child process first: a processor that announces
 * instructions which then fault, as a hypervisor can make it. */
#ifndef LKI_BASE_TRIAL_H
#define LKI_BASE_TRIAL_H

#include <stdbool.h>

/* Runs `trial` in a copy of this process, which leaves no core file. True where it returns true there; false
 * where it returns false, dies, does not end within seconds, or no process can be made. The child has one
 * thread, whatever the caller has: a trial must not allocate, lock or print. Thread-safe; no SIGCHLD is sent.
 */
bool lki_trial_passes(bool (*trial)(void *context), void *context);

#endif
