/* Steps on an engine with memory of its own: the backend's parts, and what they share.
 *
 *     mirror.c         copies of host memory, and which side is newer
 *     placed_params.c  where the parameters live, and how steps of several engines share them
 *     plan_home.c      a plan's constants, inputs and outputs, and its recorded programs
 *     residents.c      copies of whole datasets, from which batches are gathered
 *     recording.c      a step as one program
 *     flight.c         one batch ahead
 *     on_device.c      the two tables of functions, for the step and for the graph
 *
 * A batch has a lane: its inputs on the device and the place of its outputs on the host. Batches in different
 * lanes can be in flight at once. */
#ifndef LKI_STEP_DEVICE_DEVICE_H
#define LKI_STEP_DEVICE_DEVICE_H

#include "step/device/mirror.h"
#include "step/device/plan_home.h"
#include "step/device/residents.h"
#include "step/step.h"

#include <stddef.h>

/* A batch that others may follow before it is waited for. */
typedef struct lki_flight {
    int plan, lane; /* step->plans[plan] */
    bool training, draws;
    lk_generator before; /* the generator when the batch was launched; only of one that draws */
} lki_flight;

typedef struct lki_device {
    lki_backend backend;
    lki_home home;
    lki_mirror *mirror;        /* of the flat buffers, and of parameters that no step trains */
    lki_mirror *borrowed;      /* copies of parameters that live on another engine; NULL: there are none */
    uint64_t borrowed_version; /* of the homes that they live in, all together; 0: not copied yet */
    bool is_placed;            /* the parameters of the step are in the mirrors */
    lk_watched *watched;       /* where the engine writes the losses, one per lane */
    lki_residents residents;   /* datasets whose rows are the batches */
    lk_generator spare;        /* what batches without random numbers draw from */
    int started;               /* programs that were started and not waited for */
    int lane;                  /* of the last batch that began */
    int next_lane;             /* of the batch that begins; next_ahead: others may be in flight */
    bool next_ahead;
    lki_flight flights[LKI_LANES]; /* the oldest first */
    int flight_count;
} lki_device;

static inline lki_device *lki_device_of(const lk_step *step)
{
    return (lki_device *)step->backend;
}

static inline lki_device *lki_device_at(const lki_home *home)
{
    return (lki_device *)((char *)home - offsetof(lki_device, home));
}

/* placed_params.c */
lk_status lki_device_pull_param(lki_home *home, const lk_param *param);
void lki_device_param_changed(lki_home *home, const lk_param *param);
lk_status lki_device_remove_param(lki_home *home, lk_param *param);
uint64_t lki_device_version(const lki_home *home);
void *lki_device_param_address(lki_home *home, const lk_param *param, const lk_tensor *tensor);
lk_status lki_device_place_params(lk_step *step);
lk_status lki_device_refresh_params(lk_step *step);
lk_status lki_device_params_changed(lk_step *step);
void lki_device_release_params(lk_step *step);

/* recording.c */
bool lki_device_records(const lk_step *step);
lk_status lki_device_begin_calls(lk_step *step, bool draws);
lk_status lki_device_read_loss(lk_step *step);
/* Starts the batch that has begun. */
lk_status lki_device_start(lk_step *step, bool training);
lk_status lki_device_replay(lk_step *step, bool training);
lk_status lki_device_finish(lk_step *step);
lk_status lki_device_settle(lk_step *step, const lk_input *fields, int count, bool training);
void lki_device_forget_programs(lk_step *step);
/* The last `count` training batches that were started count as never started. */
void lki_device_take_back(lk_step *step, int count);

/* flight.c */
lk_status lki_device_may_begin(lk_step *step);
bool lki_device_may_launch(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lki_device_launch(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lki_device_land(lk_step *step, bool *lost);
/* Gives back what running ahead takes of the device's memory, from now on; false if that is nothing. */
bool lki_device_leave_lanes(lk_step *step);

#endif
