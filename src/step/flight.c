/* One batch ahead: a batch is launched while the one before it is still under way, so that the device has
 * work while the host looks at outputs and prepares the next.
 *
 * Batches take turns in the lanes of their plans, so that what the host reads of one is not written by the
 * next. The device makes sure that nothing is updated after a batch that went wrong; the host then takes back
 * what it has counted for all batches under way. */
#include "step/step.h"

#include "base/log.h"
#include "base/status.h"

/* No room for a second batch is no failure: each is waited for then. */
static bool make_room(lki_step_plan *plan)
{
    if (plan->has_room || plan->lacks_room) return plan->has_room;
    plan->has_room = true;
    for (int lane = 0; lane < LKI_LANES && plan->has_room; lane++)
        plan->has_room = lki_plan_enter(plan->plan, lane, true) == LK_OK;
    plan->lacks_room = !plan->has_room;
    if (plan->lacks_room) lki_log(LKI_LOG_WARNING, "each batch is waited for: %s", lk_error());
    return plan->has_room;
}

bool lki_step_may_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    const lk_engine_ops *ops = step->engine->ops;
    if (!ops->mark || step->replicas.comm || step->options.asynchronous || step->in_flight) return false;
    if (!lki_step_records(step) || step->generation != lki_flat_generation()) return false;
    lki_step_plan *plan = lki_step_find_plan(step, fields, count, training);
    return plan && plan->has_run && !plan->lacks_program && plan->has_loss && make_room(plan);
}

bool lki_step_leave_lanes(lk_step *step)
{
    bool had_room = false;
    for (int i = 0; i < step->plan_count; i++) {
        lki_step_plan *plan = &step->plans[i];
        had_room = had_room || plan->has_room;
        for (int lane = 1; lane < LKI_LANES; lane++) lki_step_free_lane(step, plan, lane);
        lki_plan_leave(plan->plan);
        plan->has_room = false;
        plan->lacks_room = true;
    }
    if (had_room) lki_log(LKI_LOG_WARNING, "from here on each batch is waited for: %s", lk_error());
    return had_room;
}

lk_status lki_step_launch(lk_step *step, const lk_input *fields, int count, bool training)
{
    int lane = step->flight_count ? (step->flights[step->flight_count - 1].lane + 1) % LKI_LANES : 0;
    if (step->flight_count == LKI_LANES)
        return lki_fail(LK_ERR_INVALID, "%d batches are under way already", LKI_LANES);
    lki_flight *flight = &step->flights[step->flight_count];
    LKI_TRY(lki_step_begin_in_lane(step, fields, count, training, lane, true));
    flight->plan = (int)(step->current - step->plans);
    flight->lane = lane;
    flight->training = training;
    flight->draws = lki_plan_draws(step->current->plan);
    if (flight->draws) flight->before = *lki_step_generator(step);
    LKI_TRY(lki_step_start(step, training));
    step->flight_count++;
    return step->engine->ops->mark(step->engine, lane);
}

/* The newest first. What the failure was the batch will say when it is made again. */
static void take_back(lk_step *step)
{
    step->engine->ops->synchronize(step->engine, NULL);
    for (; step->flight_count > 0; step->flight_count--) {
        const lki_flight *flight = &step->flights[step->flight_count - 1];
        if (flight->draws) *lki_step_generator(step) = flight->before;
        if (flight->training) lki_step_take_back(step, 1);
    }
}

lk_status lki_step_land(lk_step *step, bool *lost)
{
    const lki_flight *flight = &step->flights[0];
    int lane = flight->lane;
    *lost = false;
    LKI_TRY(step->engine->ops->wait_for(step->engine, lane));
    step->current = &step->plans[flight->plan];
    lki_plan_arrived(step->current->plan, lane, step->flight_count > 1);
    if (step->watched[lane].lost) {
        *lost = true;
        take_back(step);
        return LK_OK;
    }
    step->loss = step->watched[lane].loss;
    step->has_loss = true;
    for (int i = 1; i < step->flight_count; i++) step->flights[i - 1] = step->flights[i];
    step->flight_count--;
    return LK_OK;
}
