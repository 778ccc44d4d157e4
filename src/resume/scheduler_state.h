/* A scheduler's numbers, "scheduler.<number>". Without a scheduler there are none. */
#ifndef LKI_RESUME_SCHEDULER_STATE_H
#define LKI_RESUME_SCHEDULER_STATE_H

#include <lockstep/checkpoint.h>
#include <lockstep/scheduler.h>

lk_status lki_scheduler_save(lk_state_dict *state, const lk_scheduler *scheduler);
lk_status lki_scheduler_restore(const lk_state_dict *state, lk_scheduler *scheduler);

#endif
