/* Where the parameters of a step live on its device.
 *
 * A parameter lives in one place: with the step that trains it or, if none does, with the first that came.
 * Steps of the same engine use it there. Those of other engines borrow it: they have copies, which are
 * brought up to date through the host when a batch begins. */
#include "step/device/device.h"

#include "base/status.h"

/* The home is a device: that of this step, or of another step of the same engine. */
static lki_mirror *mirror_of(const lki_home *home)
{
    return lki_device_at(home)->mirror;
}

/* ---- One parameter ---- */

lk_status lki_device_pull_param(lki_home *home, const lk_param *param)
{
    return lki_mirror_pull_newer(mirror_of(home), param->value->data);
}

void lki_device_param_changed(lki_home *home, const lk_param *param)
{
    lki_mirror_host_changed_block(mirror_of(home), param->value->data);
}

lk_status lki_device_remove_param(lki_home *home, lk_param *param)
{
    LKI_TRY(lki_mirror_pull_newer(mirror_of(home), param->value->data));
    param->home = NULL;
    lki_mirror_remove(mirror_of(home), param->value->data, param);
    return LK_OK;
}

uint64_t lki_device_version(const lki_home *home)
{
    return lki_mirror_version(mirror_of(home));
}

static bool lives_on(const lk_param *param, const lk_engine *engine)
{
    return param->home && param->home->engine == engine;
}

void *lki_device_param_address(lki_home *home, const lk_param *param, const lk_tensor *tensor)
{
    bool lives_here = lives_on(param, home->engine);
    return lki_mirror_address(lives_here ? mirror_of(param->home) : lki_device_at(home)->borrowed,
                              tensor->data);
}

/* ---- Placing ---- */

static lk_status place_flat(lk_step *step)
{
    const lki_flat *flat = &step->flat;
    lki_device *device = lki_device_of(step);
    lki_mirror *mirror = device->mirror;
    if (!flat->values) return LK_OK;
    size_t nbytes = (size_t)flat->count * lk_dtype_nbytes(flat->dtype);
    LKI_TRY(lki_mirror_add(mirror, lki_buffer_data(flat->values), nbytes, false, "the parameters"));
    LKI_TRY(lki_mirror_add(mirror, lki_buffer_data(flat->grads), nbytes, true, "the gradients"));
    if (flat->sums)
        LKI_TRY(
            lki_mirror_add(mirror, lki_buffer_data(flat->sums), nbytes, false, "the accumulated gradients"));
    for (int i = 0; i < flat->state_count; i++)
        LKI_TRY(
            lki_mirror_add(mirror, lki_buffer_data(flat->states[i]), nbytes, false, "the optimizer's state"));
    if (!step->scaler.numbers) return LK_OK;
    step->scaler.scale->home = &device->home;
    return lki_mirror_add(mirror, lki_buffer_data(step->scaler.numbers),
                          LK_SCALER_COUNT * lk_dtype_nbytes(step->scaler.dtype), false, "the loss scale");
}

static bool is_borrowed(const lk_step *step, const lk_param *param)
{
    return param->home && !lives_on(param, step->engine);
}

static lk_status borrow(lk_step *step, const lk_param *param)
{
    lki_device *device = lki_device_of(step);
    if (!device->borrowed) device->borrowed = lki_mirror_create(step->engine);
    if (!device->borrowed) return LK_ERR_NOMEM;
    return lki_mirror_add(device->borrowed, param->value->data, lk_tensor_nbytes(param->value), false,
                          "a copy of a parameter");
}

static void return_borrowed(lki_device *device)
{
    lki_mirror_free(device->borrowed);
    device->borrowed = NULL;
    device->borrowed_version = 0;
}

static lk_status take_in(lki_device *device, lk_param *param)
{
    LKI_TRY(lki_mirror_join(device->mirror, param->value->data, lk_tensor_nbytes(param->value), param,
                            "a parameter"));
    param->home = &device->home;
    return LK_OK;
}

/* Frozen ones and buffers, or all of a step that does not train. Counters stay on the host, unless a step
 * computes with them. Who trains moves
 * the statistics of batch norms with each batch: a new trainer takes those over. */
static lk_status place_others(lk_step *step, bool takes_buffers)
{
    lki_device *device = lki_device_of(step);
    return_borrowed(device);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!lk_dtype_is_float(param->value->dtype) && !param->is_computed) continue;
        if (lives_on(param, step->engine)) continue;
        if (takes_buffers && param->is_buffer) LKI_TRY(lki_param_leave(param));
        LKI_TRY(param->home ? borrow(step, param) : take_in(device, param));
    }
    return LK_OK;
}

/* Parameters that were moved into the flat buffers have left their earlier home. */
static void adopt_flat(lk_step *step)
{
    lki_home *home = &lki_device_of(step)->home;
    for (int i = 0; i < step->flat.slice_count; i++) step->flat.slices[i].param->home = home;
}

lk_status lki_device_place_params(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    const lk_engine_ops *ops = step->engine->ops;
    if (!device->watched)
        device->watched = ops->alloc_host(step->engine, sizeof *device->watched * LKI_LANES, "the loss");
    if (!device->watched) return LK_ERR_NOMEM;
    if (device->is_placed) return place_others(step, false);
    device->is_placed = true;
    LKI_TRY(place_flat(step));
    adopt_flat(step);
    return place_others(step, step->flat.values != NULL);
}

/* ---- Around a batch ---- */

static lk_status refresh_borrowed(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    uint64_t version = 0;
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        if (is_borrowed(step, param)) version += param->home->ops->version(param->home);
    }
    if (version == device->borrowed_version) return LK_OK;
    for (int i = 0; i < step->params.count; i++)
        if (is_borrowed(step, step->params.items[i].param))
            LKI_TRY(lki_param_pull(step->params.items[i].param));
    lki_mirror_host_changed(device->borrowed);
    LKI_TRY(lki_mirror_push(device->borrowed));
    device->borrowed_version = version;
    return LK_OK;
}

lk_status lki_device_refresh_params(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    LKI_TRY(lki_mirror_push(device->mirror));
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        if (lives_on(param, step->engine)) LKI_TRY(lki_mirror_push(mirror_of(param->home)));
    }
    return device->borrowed ? refresh_borrowed(step) : LK_OK;
}

/* A statistic that lives elsewhere was moved in the copy. */
static lk_status give_back(lk_step *step, lk_param *param)
{
    LKI_TRY(lki_param_pull(param)); /* its block may hold more than this one */
    LKI_TRY(lki_mirror_pull_block(lki_device_of(step)->borrowed, param->value->data));
    lki_param_push(param);
    return LK_OK;
}

lk_status lki_device_params_changed(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    lki_mirror_device_changed(device->mirror);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (!param->is_buffer || !param->home || param->home == &device->home) continue;
        if (is_borrowed(step, param))
            LKI_TRY(give_back(step, param));
        else
            lki_mirror_device_changed_block(mirror_of(param->home), param->value->data);
    }
    return LK_OK;
}

void lki_device_release_params(lk_step *step)
{
    lki_device *device = lki_device_of(step);
    if (!device->is_placed) return;
    return_borrowed(device);
    lki_mirror_pull(device->mirror);
    for (int i = 0; i < step->params.count; i++) {
        lk_param *param = step->params.items[i].param;
        if (param->home == &device->home) param->home = NULL;
    }
    if (step->scaler.scale) step->scaler.scale->home = NULL;
    lki_mirror_free(device->mirror);
    device->mirror = NULL;
    lki_flat_moved(); /* other steps of the same parameters must look for them again */
}
