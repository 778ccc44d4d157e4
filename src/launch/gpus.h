/* Which GPU a rank computes on, and whether the ranks of a job can speak NCCL.
 *
 * All of this asks the driver, which starts CUDA in the process: only after any fork. */
#ifndef LKI_LAUNCH_GPUS_H
#define LKI_LAUNCH_GPUS_H

#include "launch/meeting.h"

/* Whether an engine of this name ("auto", "cuda", "cuda:1", "cpu"; NULL: none) may be a GPU's. Asks nobody.
 */
bool lki_gpu_is_meant(const char *device);

/* The GPU of a local rank, among those that this process sees: "cuda:1" is 1 for all, else they take them in
 * turn. -1 where there is none, and `why` (of 256 bytes, may be NULL) says why. */
int lki_gpu_choose(const char *device, int local_rank, int local_size, char *why);

/* Whether each of `local_size` ranks of this host, all of which see the same GPUs, gets one of its own and
 * NCCL is there. */
bool lki_gpus_suffice(const char *device, int local_size);

typedef struct lki_gpu_plan {
    bool nccl;   /* the ranks speak NCCL */
    int device;  /* this rank's GPU, where they do */
    bool shared; /* another rank has it too */
} lki_gpu_plan;

/* All ranks say which GPU they have, and rank 0 decides for all: NCCL where each has one of its own, or where
 * it `must` be. Then a rank without a GPU, or without NCCL, is everybody's failure, and named. */
lk_status lki_gpus_agree(lki_gpu_plan *out, const lki_meeting *meeting, const lki_role *role,
                         const char *device, bool must, int64_t timeout_ms);

#endif
