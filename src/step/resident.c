#include "step/resident.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "data/rows.h"
#include "graph/plan_device.h"

#include <string.h>

void lki_residents_release(lki_residents *residents)
{
    for (int i = 0; i < residents->count; i++)
        if (residents->items[i].device)
            residents->engine->ops->release(residents->engine, residents->items[i].device);
    residents->count = 0;
}

void lki_residents_fini(lki_residents *residents)
{
    lki_residents_release(residents);
    for (int i = 0; i < LKI_MAX_RESIDENTS; i++) lk_tensor_free(residents->gathered[i]);
    *residents = (lki_residents){.engine = residents->engine};
}

bool lki_residents_give_way(lki_residents *residents)
{
    bool had_some = false;
    for (int i = 0; i < residents->count; i++) {
        if (!residents->items[i].device) continue;
        had_some = true;
        residents->engine->ops->release(residents->engine, residents->items[i].device);
        residents->items[i].device = NULL;
    }
    if (had_some)
        lki_log(LKI_LOG_WARNING, "from here on batches are copied to the device one by one: %s", lk_error());
    return had_some;
}

static size_t rows_nbytes(const lk_rows *rows)
{
    return (size_t)(rows->length * rows->width) * lk_dtype_nbytes(rows->stored);
}

/* A dataset that does not fit is no failure: its batches travel one by one. */
static lk_status keep(lki_residents *residents, const lk_rows *rows, lki_resident **out)
{
    lk_engine *engine = residents->engine;
    size_t nbytes = rows_nbytes(rows);
    *out = NULL;
    for (int i = 0; i < residents->count; i++)
        if (residents->items[i].data == rows->data && residents->items[i].nbytes == nbytes)
            *out = &residents->items[i];
    if (*out || residents->count == LKI_MAX_RESIDENTS) return LK_OK;
    *out = &residents->items[residents->count++];
    **out = (lki_resident){.data = rows->data, .nbytes = nbytes};
    (*out)->device = engine->ops->alloc(engine, nbytes, "the dataset");
    if (!(*out)->device) {
        lki_log(LKI_LOG_WARNING, "batches are copied to the device one by one: %s", lk_error());
        return LK_OK;
    }
    lk_status status = engine->ops->upload(engine, (*out)->device, rows->data, nbytes);
    if (status != LK_OK) engine->ops->release(engine, residents->items[--residents->count].device);
    return status;
}

static int find_place(const lki_residents *residents, const char *name)
{
    int place = 0;
    while (place < residents->announced_count && strcmp(residents->announced[place].name, name) != 0) place++;
    return place;
}

static const lki_announced *find(const lki_residents *residents, const char *name)
{
    int place = find_place(residents, name);
    return place < residents->announced_count ? &residents->announced[place] : NULL;
}

lk_status lki_residents_announce(lki_residents *residents, lki_announced announced)
{
    int place = find_place(residents, announced.name);
    if (place == LKI_MAX_RESIDENTS)
        return lki_fail(LK_ERR_INVALID, "at most %d fields of a batch may be rows", LKI_MAX_RESIDENTS);
    if (place == residents->announced_count) residents->announced_count++;
    residents->announced[place] = announced;
    return LK_OK;
}

bool lki_residents_has(const lki_residents *residents, const char *name)
{
    return find(residents, name) != NULL;
}

void lki_residents_forget(lki_residents *residents)
{
    residents->announced_count = 0;
}

static lk_status bind_gathered(lki_residents *residents, lki_plan *plan, int index, const lk_input *field,
                               const lki_announced *announced)
{
    const lk_rows *rows = announced->rows;
    lk_tensor **gathered = &residents->gathered[index];
    if (!*gathered || (*gathered)->dtype != field->tensor->dtype ||
        !lk_shape_equal((*gathered)->shape, field->tensor->shape)) {
        lk_tensor_free(*gathered);
        *gathered = lk_tensor_create(field->tensor->dtype, field->tensor->shape);
        if (!*gathered) return LK_ERR_NOMEM;
    }
    lki_rows source = lki_rows_of(rows, field->tensor->dtype);
    LKI_TRY(lki_rows_check(&source, field->name));
    lki_rows_gather(&source, announced->indices, field->tensor->shape.dim[0], (*gathered)->data);
    return lki_plan_bind(plan, index, (*gathered)->data);
}

/* Straight into the memory that the device reads, as they are stored where that is shorter. */
static lk_status feed_gathered(lki_plan *plan, int index, const lk_input *field,
                               const lki_announced *announced)
{
    lki_plan_device *device = lki_plan_device_of(plan);
    const lk_rows *rows = announced->rows;
    int64_t count = field->tensor->shape.dim[0];
    lk_dtype dtype = field->tensor->dtype;
    size_t nbytes = (size_t)(count * rows->width) * lk_dtype_nbytes(rows->stored);
    lki_rows source = lki_rows_of(rows, dtype);
    void *slot;
    LKI_TRY(lki_rows_check(&source, field->name));
    bool as_stored = rows->stored != dtype && lki_plan_device_takes_rows(device, index, nbytes);
    LKI_TRY(lki_plan_device_stage(device, index, &slot));
    if (!as_stored) {
        lki_rows_gather(&source, announced->indices, count, slot);
        return lki_plan_device_feed_staged(device, index, slot);
    }
    lki_rows_gather_raw(&source, announced->indices, count, slot);
    return lki_plan_device_feed_rows(device, index, slot, rows, dtype, count);
}

lk_status lki_residents_bind(lki_residents *residents, lki_plan *plan, int index, const lk_input *field)
{
    lk_engine *engine = residents->engine;
    const lki_announced *announced = find(residents, field->name);
    if (!announced) return lki_plan_bind(plan, index, field->tensor->data);
    lki_resident *resident = NULL;
    if (engine->ops->gather_rows) LKI_TRY(keep(residents, announced->rows, &resident));
    void *input = lki_plan_device_input_of(plan, index);
    if (!input) return bind_gathered(residents, plan, index, field, announced);
    if (!resident || !resident->device) return feed_gathered(plan, index, field, announced);
    return engine->ops->gather_rows(engine, input, field->tensor->dtype, announced->rows, resident->device,
                                    announced->indices, field->tensor->shape.dim[0]);
}
