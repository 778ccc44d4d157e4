/* Which GPU and which cores a rank takes. They ask no driver. */
#ifndef LKI_LAUNCH_DEVICES_H
#define LKI_LAUNCH_DEVICES_H

#include <lockstep/status.h>

#include <stdbool.h>

/* How many GPUs this host has, by its device files, whatever CUDA_VISIBLE_DEVICES hides. */
int lki_host_gpu_count(void);

/* How many of a host's GPUs CUDA_VISIBLE_DEVICES (NULL: not set) lets this process see. It reads the list as
 * CUDA does: a number out of range, a doubled one or -1 ends it; UUIDs count one each. */
int lki_visible_gpu_count(const char *cuda_visible_devices, int gpu_count);

/* The index, among the visible ones, of a local rank's GPU. One visible GPU was picked for us by a scheduler.
 * More ranks than GPUs share them in turn; *shared says so. LK_ERR_UNSUPPORTED where none is visible. */
lk_status lki_gpu_of_rank(int *index, bool *shared, int local_rank, int local_size, int visible_count);

/* The cores [*begin, *begin + *count) among those that the process may use that a local rank owns. False
 * where there are fewer cores than ranks: nobody is pinned then. */
bool lki_cores_of_rank(int *begin, int *count, int core_count, int local_rank, int local_size);

/* Pins this thread, and the threads it starts later, to its rank's share of the cores it may use now. The old
 * set is kept for unpin. Does nothing where there are fewer cores than ranks. */
void lki_pin_rank(int local_rank, int local_size);
void lki_unpin_rank(void);

#endif
