/* One batch ahead: a batch is launched while the one before it is still under way, so that the device has
 * work while the host looks at outputs and prepares the next.
 *
 * Batches take turns in the lanes of their plans, so that what the host reads of one is not written by the
 * next. The device makes sure that nothing is updated after a batch that went wrong; the host then takes back
 * what it has counted for all batches under way. */
#include "step/device/device.h"

#include "base/log.h"
#include "base/status.h"

/* No room for a second batch is no failure: each is waited for then. */
static bool make_room(lki_plan_home *held)
{
    lki_programs *programs = lki_plan_home_programs(held);
    if (programs->has_room || programs->lacks_room) return programs->has_room;
    programs->has_room = true;
    for (int lane = 0; lane < LKI_LANES && programs->has_room; lane++)
        programs->has_room = lki_plan_home_enter(held, lane, true) == LK_OK;
    programs->lacks_room = !programs->has_room;
    if (programs->lacks_room) lki_log(LKI_LOG_WARNING, "each batch is waited for: %s", lk_error());
    return programs->has_room;
}

bool lki_device_may_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    const lki_device *device = lki_device_of(step);
    if (!step->engine->ops->mark || step->replicas.comm || step->options.asynchronous || device->started)
        return false;
    if (!lki_device_records(step) || step->generation != lki_flat_generation()) return false;
    const lki_step_plan *plan = lki_step_find_plan(step, fields, count, training);
    if (!plan || !plan->loss) return false;
    lki_plan_home *held = lki_plan_held(plan->plan);
    const lki_programs *programs = lki_plan_home_programs(held);
    return programs->has_run && !programs->lacks_program && make_room(held);
}

bool lki_device_leave_lanes(lk_step *step)
{
    bool had_room = false;
    for (int i = 0; i < step->plan_count; i++) {
        lki_plan_home *held = lki_plan_held(step->plans[i].plan);
        lki_programs *programs = lki_plan_home_programs(held);
        had_room = had_room || programs->has_room;
        for (int lane = 1; lane < LKI_LANES; lane++) lki_plan_home_free_programs(held, lane);
        lki_plan_home_leave(held);
        programs->has_room = false;
        programs->lacks_room = true;
    }
    if (had_room) lki_log(LKI_LOG_WARNING, "from here on each batch is waited for: %s", lk_error());
    return had_room;
}

lk_status lki_device_may_begin(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    if (device->flight_count)
        return lki_fail(LK_ERR_INVALID, "the runner's step is under way with the next batch: a callback that "
                                        "uses it must not lag (lk_callback.may_lag)");
    device->next_lane = 0;
    device->next_ahead = false;
    return LK_OK;
}

lk_status lki_device_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    lki_device *device = lki_device_of(step);
    int in_flight = device->flight_count;
    if (in_flight == LKI_LANES)
        return lki_fail(LK_ERR_INVALID, "%d batches are under way already", LKI_LANES);
    lki_flight *flight = &device->flights[in_flight];
    device->next_lane = in_flight ? (device->flights[in_flight - 1].lane + 1) % LKI_LANES : 0;
    device->next_ahead = true;
    LKI_TRY(lki_step_begin(step, fields, count, training));
    *flight = (lki_flight){.plan = (int)(step->current - step->plans),
                           .lane = device->lane,
                           .training = training,
                           .draws = lki_plan_draws(step->current->plan)};
    if (flight->draws) flight->before = *lki_step_generator(step);
    LKI_TRY(lki_device_start(step, training));
    device->flight_count++;
    step->current->in_flight++;
    return step->engine->ops->mark(step->engine, device->lane);
}

/* The newest first. What the failure was the batch will say when it is made again. */
static void take_back(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    step->engine->ops->synchronize(step->engine, NULL);
    for (; device->flight_count > 0; device->flight_count--) {
        const lki_flight *flight = &device->flights[device->flight_count - 1];
        if (flight->draws) *lki_step_generator(step) = flight->before;
        if (flight->training) lki_device_take_back(step, 1);
        step->plans[flight->plan].in_flight--;
    }
}

lk_status lki_device_land(lk_step *step, bool *lost)
{
    lki_device *device = lki_device_of(step);
    const lki_flight *flight = &device->flights[0];
    int lane = flight->lane;
    *lost = false;
    LKI_TRY(step->engine->ops->wait_for(step->engine, lane));
    step->current = &step->plans[flight->plan];
    lki_plan_home_arrived(lki_plan_held(step->current->plan), lane, device->flight_count > 1);
    if (device->watched[lane].lost) {
        *lost = true;
        take_back(step);
        return LK_OK;
    }
    step->loss = device->watched[lane].loss;
    step->has_loss = true;
    step->current->in_flight--;
    for (int i = 1; i < device->flight_count; i++) device->flights[i - 1] = device->flights[i];
    device->flight_count--;
    return LK_OK;
}
