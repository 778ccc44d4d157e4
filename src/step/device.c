/* Steps on engines with memory of their own: where the parameters are kept, and the whole step as one
 * recorded program.
 *
 * The first batch of a plan runs call by call, so that kernels warm up. The second is recorded, from the
 * forward half to the update, and every later one is a replay: the host tells the device the numbers that
 * have changed and starts it. A recording is made anew when its addresses have changed or one more output is
 * wanted on the host. */
#include "step/step.h"

#include "base/log.h"
#include "base/status.h"

#include <math.h>

/* ---- Where the parameters are ---- */

static lk_status place_flat(lk_step *step)
{
    const lki_flat *flat = &step->flat;
    if (!flat->values) return LK_OK;
    size_t nbytes = (size_t)flat->count * lk_dtype_nbytes(flat->dtype);
    LKI_TRY(lki_mirror_add(step->mirror, lki_buffer_data(flat->values), nbytes, false, "the parameters"));
    LKI_TRY(lki_mirror_add(step->mirror, lki_buffer_data(flat->grads), nbytes, true, "the gradients"));
    if (flat->sums)
        LKI_TRY(lki_mirror_add(step->mirror, lki_buffer_data(flat->sums), nbytes, false,
                               "the accumulated gradients"));
    for (int i = 0; i < flat->state_count; i++)
        LKI_TRY(lki_mirror_add(step->mirror, lki_buffer_data(flat->states[i]), nbytes, false,
                               "the optimizer's state"));
    if (!step->scaler.numbers) return LK_OK;
    step->scaler.scale->mirror = step->mirror;
    return lki_mirror_add(step->mirror, lki_buffer_data(step->scaler.numbers),
                          LK_SCALER_COUNT * lk_dtype_nbytes(step->scaler.dtype), false, "the loss scale");
}

/* A parameter lives in one place: with the step that trains it or, where none does, with the first that came.
 * Steps of the same engine use it there. Those of other engines borrow it: they have copies, which are
 * brought up to date through the host when a batch begins. */
static bool is_borrowed(const lk_step *step, const lk_param *param)
{
    return param->mirror && lki_mirror_engine(param->mirror) != step->engine;
}

static lk_status borrow(lk_step *step, const lk_param *param)
{
    if (!step->borrowed) LKI_TRY(lki_mirror_create(&step->borrowed, step->engine));
    return lki_mirror_add(step->borrowed, param->value->data, lk_tensor_nbytes(param->value), false,
                          "a copy of a parameter");
}

static void return_borrowed(lk_step *step)
{
    lki_mirror_free(step->borrowed);
    step->borrowed = NULL;
    step->borrowed_version = 0;
}

/* Frozen ones and buffers, or all of a step that does not train. Counters stay on the host. Who trains moves
 * the statistics of batch norms with each batch: a new trainer takes those over. */
static lk_status place_others(lk_step *step, bool takes_buffers)
{
    return_borrowed(step);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!lk_dtype_is_float(param->value->dtype)) continue;
        if (lki_mirror_engine(param->mirror) == step->engine) continue;
        if (takes_buffers && param->is_buffer) LKI_TRY(lki_param_leave(param));
        LKI_TRY(param->mirror ? borrow(step, param) : lki_param_join(param, step->mirror));
    }
    return LK_OK;
}

/* Parameters that were moved into the flat buffers have left their earlier mirror. */
static void adopt_flat(lk_step *step)
{
    for (int i = 0; i < step->flat.slice_count; i++) step->flat.slices[i].param->mirror = step->mirror;
}

lk_status lki_step_place_params(lk_step *step)
{
    lk_engine *engine = step->engine;
    if (!engine->ops->alloc) return LK_OK;
    if (!step->watched)
        step->watched = engine->ops->alloc_host(engine, sizeof *step->watched * LKI_LANES, "the loss");
    if (!step->watched) return LK_ERR_NOMEM;
    if (step->mirror) return place_others(step, false);
    LKI_TRY(lki_mirror_create(&step->mirror, engine));
    LKI_TRY(place_flat(step));
    adopt_flat(step);
    return place_others(step, step->flat.values != NULL);
}

static lk_status refresh_borrowed(lk_step *step)
{
    uint64_t version = 0;
    for (int i = 0; i < step->params.count; i++)
        if (is_borrowed(step, step->params.items[i].param))
            version += lki_mirror_version(step->params.items[i].param->mirror);
    if (version == step->borrowed_version) return LK_OK;
    for (int i = 0; i < step->params.count; i++)
        if (is_borrowed(step, step->params.items[i].param))
            LKI_TRY(lki_param_pull(step->params.items[i].param));
    lki_mirror_host_changed(step->borrowed);
    LKI_TRY(lki_mirror_push(step->borrowed));
    step->borrowed_version = version;
    return LK_OK;
}

lk_status lki_step_refresh_params(lk_step *step)
{
    LKI_TRY(lki_mirror_push(step->mirror));
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!step->mirror)
            LKI_TRY(lki_param_pull(param));
        else if (!is_borrowed(step, param))
            LKI_TRY(lki_mirror_push(param->mirror));
    }
    return step->borrowed ? refresh_borrowed(step) : LK_OK;
}

/* A statistic that lives elsewhere was moved in the copy. */
static lk_status give_back(lk_step *step, lk_param *param)
{
    LKI_TRY(lki_param_pull(param)); /* the block may hold more than this one */
    LKI_TRY(lki_mirror_pull_block(step->borrowed, param->value->data));
    lki_param_push(param);
    return LK_OK;
}

lk_status lki_step_params_changed(lk_step *step)
{
    lki_mirror_device_changed(step->mirror);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!step->mirror)
            lki_param_push(param);
        else if (param->is_buffer && is_borrowed(step, param))
            LKI_TRY(give_back(step, param));
        else if (param->is_buffer && param->mirror != step->mirror)
            lki_param_device_changed(param);
    }
    return LK_OK;
}

void lki_step_release_params(lk_step *step)
{
    if (step->watched) step->engine->ops->release_host(step->engine, step->watched);
    step->watched = NULL;
    if (!step->mirror) return;
    return_borrowed(step);
    lki_mirror_pull(step->mirror);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (param->mirror == step->mirror) param->mirror = NULL;
    }
    if (step->scaler.scale) step->scaler.scale->mirror = NULL;
    lki_mirror_free(step->mirror);
    step->mirror = NULL;
    lki_flat_moved(); /* other steps of the same parameters must look for them again */
}

/* ---- The step as one program ---- */

/* Other ranks that are reached through the host need it in between. */
bool lki_step_records(const lk_step *step)
{
    const lk_comm *comm = step->replicas.comm;
    if (!step->mirror || !step->engine->ops->record_begin) return false;
    if (!comm) return !step->options.sync_batch_norm || !step->options.comm || step->options.comm->size == 1;
    return comm->ops->on_device && lki_replicas_overlap(&step->replicas) && !step->flat.sums;
}

static lk_status make_calls(lk_step *step, lki_program_kind kind)
{
    lki_plan *plan = step->current->plan;
    LKI_TRY(lki_plan_run_section(plan, LKI_SECTION_FORWARD));
    LKI_TRY(lki_plan_run_section(plan, LKI_SECTION_CRITERION));
    bool guard = kind != LKI_PROGRAM_EVALUATE && !step->options.allow_nan;
    if (step->current->has_loss)
        LKI_TRY(lki_plan_watch(plan, step->options.loss_key, &step->watched[step->lane], guard));
    LKI_TRY(lki_plan_fetch_outputs(plan));
    if (kind == LKI_PROGRAM_EVALUATE) return LK_OK;
    LKI_TRY(lki_plan_run_section(plan, LKI_SECTION_BACKWARD));
    LKI_TRY(lki_update_accumulate(&step->update));
    if (kind == LKI_PROGRAM_UPDATE) return lki_update_apply(&step->update);
    return lki_update_clips_each(&step->update) ? lki_update_clip(&step->update) : LK_OK;
}

/* A recorded update leaves out what it left out then. */
static uint64_t program_skips(const lk_step *step, lki_program_kind kind)
{
    return kind == LKI_PROGRAM_UPDATE ? lki_update_skips(&step->update) : 0;
}

static lk_status record(lk_step *step, lki_program_kind kind)
{
    lki_step_plan *current = step->current;
    lk_engine *engine = step->engine;
    void **place = &current->programs[step->lane][kind];
    if (*place) engine->ops->program_free(engine, *place);
    *place = NULL;
    LKI_TRY(engine->ops->record_begin(engine));
    lk_status status = make_calls(step, kind);
    void *program = NULL;
    lk_status ended = engine->ops->record_end(engine, &program);
    if (status == LK_OK) status = ended;
    if (status != LK_OK) {
        if (program) engine->ops->program_free(engine, program);
        return status;
    }
    *place = program;
    current->versions[step->lane][kind] = lki_plan_version(current->plan);
    current->skips[step->lane][kind] = program_skips(step, kind);
    return LK_OK;
}

static lk_status run_calls(lk_step *step, lki_program_kind kind)
{
    LKI_TRY(step->engine->ops->begin_step(step->engine, lki_step_source(step)));
    LKI_TRY(make_calls(step, kind));
    step->current->has_run = true;
    return LK_OK;
}

/* Without room for a program the batch is made call by call; before the next one others may give way. */
static lk_status start(lk_step *step, lki_program_kind kind)
{
    lki_step_plan *current = step->current;
    if (!current->has_run || current->lacks_program) return run_calls(step, kind);
    void **place = &current->programs[step->lane][kind];
    bool fresh = *place && current->versions[step->lane][kind] == lki_plan_version(current->plan) &&
                 current->skips[step->lane][kind] == program_skips(step, kind);
    lk_status status = fresh ? LK_OK : record(step, kind);
    if (status == LK_ERR_NOMEM) {
        lki_log(LKI_LOG_WARNING, "the step is made call by call, which takes longer: %s", lk_error());
        current->lacks_program = true;
        return run_calls(step, kind);
    }
    LKI_TRY(status);
    lki_plan_replayed(current->plan);
    return step->engine->ops->replay(step->engine, *place, lki_step_source(step));
}

lk_status lki_step_start(lk_step *step, bool training)
{
    if (!training) return start(step, LKI_PROGRAM_EVALUATE);
    bool updates = lki_update_count(&step->update, step->current->unreached);
    if (updates) lki_update_advance(&step->update);
    lki_step_count_batches(step, 1);
    lk_status status = start(step, updates ? LKI_PROGRAM_UPDATE : LKI_PROGRAM_ACCUMULATE);
    if (status != LK_OK) lki_step_take_back(step, 1);
    lk_status told = lki_step_params_changed(step);
    return status != LK_OK ? status : told;
}

lk_status lki_step_run_recorded(lk_step *step, bool training)
{
    LKI_TRY(lki_step_start(step, training));
    step->in_flight++;
    return step->options.asynchronous && training ? LK_OK : lki_step_finish(step);
}

void lki_step_take_back(lk_step *step, int count)
{
    for (int i = 0; i < count; i++) lki_update_retreat(&step->update);
    lki_step_count_batches(step, -count);
}

/* How many of those that were started, after a failure; a device that is lost itself may not have said. */
static int lost_count(const lk_step *step, int started)
{
    int64_t lost = step->watched[step->lane].lost;
    if (lost < 1) return 1;
    return lost < started ? (int)lost : started;
}

lk_status lki_step_finish(lk_step *step)
{
    int started = step->in_flight;
    if (!started) return LK_OK;
    step->in_flight = 0;
    lk_status status = lki_plan_finish(step->current->plan);
    if (status == LK_OK && step->current->has_loss) {
        step->loss = step->watched[step->lane].loss;
        status = lki_step_check_loss(step);
        if (status == LK_OK && step->watched[step->lane].lost)
            status = lki_fail(LK_ERR_NAN, "the loss of an earlier batch was not finite: nothing was updated "
                                          "since");
    }
    if (!step->current->training) return status;
    if (status != LK_OK) lki_step_take_back(step, lost_count(step, started)); /* the weights are as before */
    if (status != LK_OK || step->update.accumulated > 0) return status;
    return lki_replicas_check_if_due(&step->replicas, step->update.step_count);
}

void lki_step_free_lane(lk_step *step, lki_step_plan *plan, int lane)
{
    for (int i = 0; i < LKI_PROGRAM_COUNT; i++) {
        if (plan->programs[lane][i]) step->engine->ops->program_free(step->engine, plan->programs[lane][i]);
        plan->programs[lane][i] = NULL;
    }
}

void lki_step_free_programs(lk_step *step, lki_step_plan *plan)
{
    for (int lane = 0; lane < LKI_LANES; lane++) lki_step_free_lane(step, plan, lane);
}
