/* The way to the GPUs: finds liblockstep_cuda.so and opens it once.
 *
 * It is looked for at $LOCKSTEP_CUDA_PLUGIN, and then where all plug-ins are: base/plugin.h. Thread-safe. */
#ifndef LKI_DEVICE_OPEN_PLUGIN_H
#define LKI_DEVICE_OPEN_PLUGIN_H

#include "device/plugin.h"

/* NULL with the reason if there is none. Starts nothing itself. Stays loaded until the process ends. CUDA
 * does not survive a fork: a process whose parent had started it gets a copy of all libraries of its own. */
const lki_cuda_plugin *lki_cuda_plugin_get(void);

/* This process starts CUDA now. */
void lki_cuda_note_start(void);

/* Whether this machine has an NVIDIA GPU at all, or a plugin that $LOCKSTEP_CUDA_PLUGIN names: a look at
 * /dev, without loading anything. */
bool lki_cuda_has_device(void);

/* The number of GPUs that this process may use; 0 where there is none, or where they cannot be used: *why, if
 * wanted, then holds the reason (of 256 bytes). Starts CUDA in this process: call it after any fork. */
int lki_cuda_device_count(char *why);

#endif
