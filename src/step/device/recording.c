/* A step as one recorded program.
 *
 * The first batch of a plan runs call by call, so that kernels warm up. The second is recorded, from the
 * forward half to the update, and every later one is a replay: the host tells the device the numbers that
 * have changed and starts it. A recording is made anew when its addresses have changed or one more output is
 * wanted on the host. */
#include "step/device/device.h"

#include "base/log.h"
#include "base/status.h"

static lki_plan_home *current(const lk_step *step)
{
    return lki_plan_held(step->current->plan);
}

static lk_watched *watched(const lk_step *step)
{
    const lki_device *device = lki_device_of(step);
    return &device->watched[device->lane];
}

/* Other ranks that are reached through the host need it in between. */
bool lki_device_records(const lk_step *step)
{
    const lk_comm *comm = step->replicas.comm;
    if (!step->engine->ops->record_begin) return false;
    if (!comm) return !step->options.sync_batch_norm || !step->options.comm || step->options.comm->size == 1;
    return comm->ops->on_device && lki_replicas_overlap(&step->replicas) && !step->flat.sums;
}

/* A batch that needs no random numbers does not move the step's generator, whatever other plans the engine
 * has. */
static lk_generator *source(const lk_step *step)
{
    return lki_plan_draws(step->current->plan) ? lki_step_generator(step) : &lki_device_of(step)->spare;
}

lk_status lki_device_begin_calls(lk_step *step, bool draws)
{
    lk_engine *engine = step->engine;
    return engine->ops->begin_step ? engine->ops->begin_step(engine, draws ? source(step) : NULL) : LK_OK;
}

lk_status lki_device_read_loss(lk_step *step)
{
    const lk_tensor *loss = step->current->loss;
    if (loss) LKI_TRY(lki_plan_home_watch(current(step), loss, watched(step), false));
    LKI_TRY(lki_plan_home_finish(current(step)));
    if (loss) step->loss = watched(step)->loss;
    return LK_OK;
}

static lk_status make_calls(lk_step *step, lki_program_kind kind)
{
    lki_plan *plan = step->current->plan;
    LKI_TRY(lki_plan_run_sections(plan, LKI_SECTION_FORWARD, LKI_SECTION_CRITERION));
    bool guard = kind != LKI_PROGRAM_EVALUATE && !step->options.allow_nan;
    if (step->current->loss)
        LKI_TRY(lki_plan_home_watch(current(step), step->current->loss, watched(step), guard));
    LKI_TRY(lki_plan_home_fetch_outputs(current(step)));
    if (kind == LKI_PROGRAM_EVALUATE) return LK_OK;
    LKI_TRY(lki_plan_run_sections(plan, LKI_SECTION_BACKWARD, LKI_SECTION_BACKWARD));
    LKI_TRY(lki_update_accumulate(&step->update));
    if (kind == LKI_PROGRAM_UPDATE) return lki_update_apply(&step->update);
    return lki_update_clips_each(&step->update) ? lki_update_clip(&step->update) : LK_OK;
}

/* A recorded update leaves out what it left out then. */
static uint64_t program_skips(const lk_step *step, lki_program_kind kind)
{
    return kind == LKI_PROGRAM_UPDATE ? lki_update_skips(&step->update) : 0;
}

static lki_program *program_of(const lk_step *step, lki_program_kind kind)
{
    return &lki_plan_home_programs(current(step))->of[lki_device_of(step)->lane][kind];
}

static lk_status record(lk_step *step, lki_program_kind kind)
{
    lk_engine *engine = step->engine;
    lki_program *program = program_of(step, kind);
    if (program->recording) engine->ops->program_free(engine, program->recording);
    program->recording = NULL;
    LKI_TRY(engine->ops->record_begin(engine));
    lk_status status = make_calls(step, kind);
    void *recording = NULL;
    lk_status ended = engine->ops->record_end(engine, &recording);
    if (status == LK_OK) status = ended;
    if (status != LK_OK) {
        if (recording) engine->ops->program_free(engine, recording);
        return status;
    }
    *program = (lki_program){recording, lki_plan_home_version(current(step)), program_skips(step, kind)};
    return LK_OK;
}

static lk_status run_calls(lk_step *step, lki_program_kind kind)
{
    LKI_TRY(lki_device_begin_calls(step, true));
    LKI_TRY(make_calls(step, kind));
    lki_plan_home_programs(current(step))->has_run = true;
    return LK_OK;
}

static bool is_fresh(const lk_step *step, lki_program_kind kind)
{
    const lki_program *program = program_of(step, kind);
    return program->recording && program->version == lki_plan_home_version(current(step)) &&
           program->skips == program_skips(step, kind);
}

/* Without room for a program the batch is made call by call; before the next one others may give way. */
static lk_status start(lk_step *step, lki_program_kind kind)
{
    lki_programs *programs = lki_plan_home_programs(current(step));
    if (!programs->has_run || programs->lacks_program) return run_calls(step, kind);
    lk_status status = is_fresh(step, kind) ? LK_OK : record(step, kind);
    if (status == LK_ERR_NOMEM) {
        lki_log(LKI_LOG_WARNING, "the step is made call by call, which takes longer: %s", lk_error());
        programs->lacks_program = true;
        return run_calls(step, kind);
    }
    LKI_TRY(status);
    lki_plan_home_replayed(current(step));
    return step->engine->ops->replay(step->engine, program_of(step, kind)->recording, source(step));
}

lk_status lki_device_start(lk_step *step, bool training)
{
    if (!training) return start(step, LKI_PROGRAM_EVALUATE);
    bool updates = lki_update_count(&step->update, step->current->unreached);
    if (updates) lki_update_advance(&step->update);
    lki_plan_count_batches(step->current->plan, 1);
    lk_status status = start(step, updates ? LKI_PROGRAM_UPDATE : LKI_PROGRAM_ACCUMULATE);
    if (status != LK_OK) lki_device_take_back(step, 1);
    lk_status told = lki_device_params_changed(step);
    return status != LK_OK ? status : told;
}

lk_status lki_device_replay(lk_step *step, bool training)
{
    LKI_TRY(lki_device_start(step, training));
    lki_device_of(step)->started++;
    return step->options.asynchronous && training ? LK_OK : lki_device_finish(step);
}

void lki_device_take_back(lk_step *step, int count)
{
    for (int i = 0; i < count; i++) lki_update_retreat(&step->update);
    lki_plan_count_batches(step->current->plan, -count);
}

/* How many of those that were started, after a failure; a device that is lost itself may not have said. */
static int lost_count(const lk_step *step, int started)
{
    int64_t lost = watched(step)->lost;
    if (lost < 1) return 1;
    return lost < started ? (int)lost : started;
}

lk_status lki_device_finish(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    int started = device->started;
    if (!started) return LK_OK;
    device->started = 0;
    lk_status status = lki_plan_home_finish(current(step));
    if (status == LK_OK && step->current->loss) {
        step->loss = watched(step)->loss;
        status = lki_step_check_loss(step);
        if (status == LK_OK && watched(step)->lost)
            status = lki_fail(LK_ERR_NAN, "the loss of an earlier batch was not finite: nothing was updated "
                                          "since");
    }
    if (!step->current->training) return status;
    if (status != LK_OK)
        lki_device_take_back(step, lost_count(step, started)); /* the weights are as before */
    if (status != LK_OK || step->update.accumulated > 0) return status;
    return lki_replicas_check_if_due(&step->replicas, step->update.step_count);
}

/* If the batch waits for those in flight anyhow, they are heard of first: what the engine says of a step that
 * went wrong it says once. */
lk_status lki_device_settle(lk_step *step, const lk_input *fields, int count, bool training)
{
    if (!lki_device_of(step)->started) return LK_OK;
    const lki_step_plan *next = lki_step_find_plan(step, fields, count, training);
    bool is_due = !training || !next || lki_plan_home_is_full(lki_plan_held(next->plan));
    return is_due ? lki_device_finish(step) : LK_OK;
}

void lki_device_forget_programs(lk_step *step)
{
    for (int i = 0; i < step->plan_count; i++)
        for (int lane = 0; lane < LKI_LANES; lane++)
            lki_plan_home_free_programs(lki_plan_held(step->plans[i].plan), lane);
}
