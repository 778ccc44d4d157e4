/* The backend of engines with memory of their own: the tables that the step and the graph see, and what is
 * too short for a file. */
#include "step/device/device.h"

#include "base/memory.h"
#include "base/status.h"

/* ---- What the graph sees ---- */

static void *home_alloc(lki_home *home, size_t nbytes, const char *what)
{
    return home->engine->ops->alloc(home->engine, nbytes, what);
}

static void home_release(lki_home *home, void *data)
{
    home->engine->ops->release(home->engine, data);
}

static lk_status home_download(lki_home *home, void *host, const void *data, size_t nbytes)
{
    return home->engine->ops->download(home->engine, host, data, nbytes);
}

static lk_status open_plan(lki_home *home, lki_plan *plan, lk_graph *graph, lki_plan_home **out)
{
    return lki_plan_home_create(out, home, plan, graph);
}

static const lki_home_ops home_ops = {
    .pull_param = lki_device_pull_param,
    .param_changed = lki_device_param_changed,
    .remove_param = lki_device_remove_param,
    .version = lki_device_version,
    .alloc = home_alloc,
    .release = home_release,
    .download = home_download,
    .aside_nbytes = (size_t)64 << 20,
    .open_plan = open_plan,
    .close_plan = lki_plan_home_free,
    .param_address = lki_plan_home_param,
    .constant_address = lki_plan_home_constant,
    .bind = lki_plan_home_bind,
    .begin_calls = lki_plan_home_begin_calls,
    .output = lki_plan_home_output,
};

/* ---- What the step sees ---- */

static bool runs_ahead(const lk_engine *engine)
{
    return engine->ops->mark != NULL;
}

static bool keeps_rows(const lk_engine *engine)
{
    return engine->ops->gather_rows != NULL;
}

static void free_device(lki_backend *backend)
{
    lki_device *self = (lki_device *)backend;
    lki_residents_release(&self->residents);
    if (self->watched) backend->engine->ops->release_host(backend->engine, self->watched);
    lki_mirror_free(self->borrowed);
    lki_mirror_free(self->mirror);
    lki_free(self);
}

static lk_status create(lki_backend **out, lk_engine *engine)
{
    lki_device *self = LKI_NEW(lki_device);
    if (!self) return LK_ERR_NOMEM;
    self->home = (lki_home){.ops = &home_ops, .engine = engine};
    self->backend = (lki_backend){.ops = &lki_on_device, .engine = engine, .home = &self->home};
    self->residents.engine = engine;
    lk_generator_seed(&self->spare, 0);
    self->mirror = lki_mirror_create(engine);
    if (!self->mirror) {
        free_device(&self->backend);
        return LK_ERR_NOMEM;
    }
    *out = &self->backend;
    return LK_OK;
}

static lk_status add(lki_backend *backend, void *host, size_t nbytes, bool scratch, const char *what)
{
    return lki_mirror_add(((lki_device *)backend)->mirror, host, nbytes, scratch, what);
}

static void *address(const lki_backend *backend, void *host)
{
    return lki_mirror_address(((const lki_device *)backend)->mirror, host);
}

static lk_status pull(lki_backend *backend, void *block)
{
    lki_mirror *mirror = ((lki_device *)backend)->mirror;
    return block ? lki_mirror_pull_block(mirror, block) : lki_mirror_pull(mirror);
}

static lk_status push(lki_backend *backend, void *block)
{
    lki_mirror *mirror = ((lki_device *)backend)->mirror;
    return block ? lki_mirror_push_block(mirror, block) : lki_mirror_push(mirror);
}

static void changed(lki_backend *backend)
{
    lki_mirror_host_changed(((lki_device *)backend)->mirror);
}

static bool give_way(lk_step *step)
{
    return lki_device_leave_lanes(step) || lki_residents_give_way(&lki_device_of(step)->residents);
}

/* A plan whose program found no room tries again if others give way. */
static lk_status enter(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    lki_plan_home *held = lki_plan_held(step->current->plan);
    lki_programs *programs = lki_plan_home_programs(held);
    if (programs->lacks_program && !device->flight_count && give_way(step)) programs->lacks_program = false;
    LKI_TRY(lki_plan_home_enter(held, device->next_lane, device->next_ahead));
    device->lane = device->next_lane;
    return LK_OK;
}

static lk_status bind_rows(lk_step *step, int index, const lk_input *field, const lki_announced *announced)
{
    return lki_residents_bind(&lki_device_of(step)->residents, step->current->plan, index, field, announced);
}

static void forget_rows(lk_step *step)
{
    lki_residents_release(&lki_device_of(step)->residents);
}

const lki_backend_ops lki_on_device = {
    .runs_ahead = runs_ahead,
    .keeps_rows = keeps_rows,
    .create = create,
    .free = free_device,
    .add = add,
    .address = address,
    .pull = pull,
    .push = push,
    .changed = changed,
    .place_params = lki_device_place_params,
    .refresh_params = lki_device_refresh_params,
    .params_changed = lki_device_params_changed,
    .release_params = lki_device_release_params,
    .may_begin = lki_device_may_begin,
    .settle = lki_device_settle,
    .enter = enter,
    .bind_rows = bind_rows,
    .begin_calls = lki_device_begin_calls,
    .read_loss = lki_device_read_loss,
    .records = lki_device_records,
    .replay = lki_device_replay,
    .finish = lki_device_finish,
    .forget_programs = lki_device_forget_programs,
    .may_launch = lki_device_may_launch,
    .launch = lki_device_launch,
    .land = lki_device_land,
    .give_way = give_way,
    .forget_rows = forget_rows,
};
