#include "step/device/residents.h"

#include "base/log.h"
#include "base/status.h"
#include "data/rows.h"
#include "step/device/plan_home.h"

void lki_residents_release(lki_residents *residents)
{
    for (int i = 0; i < residents->count; i++)
        if (residents->items[i].device)
            residents->engine->ops->release(residents->engine, residents->items[i].device);
    residents->count = 0;
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

/* Straight into the memory that the device reads, as they are stored where that is shorter. */
static lk_status feed_gathered(lki_plan_home *held, int index, const lk_input *field,
                               const lki_announced *announced)
{
    const lk_rows *rows = announced->rows;
    int64_t count = field->tensor->shape.dim[0];
    lk_dtype dtype = field->tensor->dtype;
    size_t nbytes = (size_t)(count * rows->width) * lk_dtype_nbytes(rows->stored);
    lki_rows source = lki_rows_of(rows, dtype);
    void *slot;
    LKI_TRY(lki_rows_check(&source, field->name));
    bool as_stored = rows->stored != dtype && lki_plan_home_takes_rows(held, index, nbytes);
    LKI_TRY(lki_plan_home_stage(held, index, &slot));
    if (!as_stored) {
        lki_rows_gather(&source, announced->indices, count, slot);
        return lki_plan_home_feed_staged(held, index, slot);
    }
    lki_rows_gather_raw(&source, announced->indices, count, slot);
    return lki_plan_home_feed_rows(held, index, slot, rows, dtype, count);
}

lk_status lki_residents_bind(lki_residents *residents, lki_plan *plan, int index, const lk_input *field,
                             const lki_announced *announced)
{
    lk_engine *engine = residents->engine;
    lki_plan_home *held = lki_plan_held(plan);
    lki_resident *resident = NULL;
    if (engine->ops->gather_rows) LKI_TRY(keep(residents, announced->rows, &resident));
    void *input = lki_plan_home_input(held, index);
    if (!resident || !resident->device) return feed_gathered(held, index, field, announced);
    return engine->ops->gather_rows(engine, input, field->tensor->dtype, announced->rows, resident->device,
                                    announced->indices, field->tensor->shape.dim[0]);
}
