#include "logger/tensorboard_read.h"

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "logger/event.h"

#include <string.h>

typedef struct collector {
    lki_tensorboard_scalars *out;
    lk_status status;
} collector;

static void collect(const lki_event_value *value, void *context)
{
    collector *c = context;
    if (c->status != LK_OK || !value->is_scalar) return;
    if (c->out->count == c->out->capacity) {
        int64_t capacity = c->out->capacity ? c->out->capacity * 2 : 64;
        size_t nbytes = sizeof *c->out->items * (size_t)capacity;
        lki_tensorboard_scalar *grown = lki_realloc(c->out->items, nbytes, "TensorBoard scalars");
        c->status = grown ? LK_OK : LK_ERR_NOMEM;
        if (!grown) return;
        c->out->items = grown;
        c->out->capacity = capacity;
    }
    char *tag = lki_strndup(value->tag, value->tag_length);
    c->status = tag ? LK_OK : LK_ERR_NOMEM;
    if (tag)
        c->out->items[c->out->count++] =
            (lki_tensorboard_scalar){tag, value->step, value->wall_time, value->scalar};
}

static lk_status read_records(lki_tensorboard_scalars *out, const uint8_t *bytes, size_t total, bool growing)
{
    size_t offset = 0, nbytes;
    const uint8_t *data;
    while (offset < total) {
        collector c = {out, LK_OK};
        lk_status status = lki_event_next(bytes, total, &offset, &data, &nbytes);
        if (status == LK_ERR_NOT_FOUND && growing) return LK_OK;
        if (status != LK_OK) return lki_fail(LK_ERR_FORMAT, "%s", lk_error());
        LKI_TRY(lki_event_parse(data, nbytes, collect, &c));
        LKI_TRY(c.status);
        out->record_count++;
    }
    return LK_OK;
}

lk_status lki_tensorboard_check(lki_tensorboard_scalars *out, const char *path, bool growing)
{
    LKI_SCOPED char *bytes = NULL;
    size_t total;
    *out = (lki_tensorboard_scalars){0};
    LKI_TRY(lki_read_file(&bytes, &total, path));
    lk_status status = read_records(out, (const uint8_t *)bytes, total, growing);
    if (status == LK_OK) return LK_OK;
    lki_tensorboard_scalars_fini(out);
    return lki_fail_prefix(status, "%s", path);
}

void lki_tensorboard_scalars_fini(lki_tensorboard_scalars *scalars)
{
    for (int64_t i = 0; i < scalars->count; i++) lki_free(scalars->items[i].tag);
    lki_free(scalars->items);
    *scalars = (lki_tensorboard_scalars){0};
}

typedef struct limits {
    int64_t epoch_step, sample_step;
    bool later;
} limits;

static void compare_step(const lki_event_value *value, void *context)
{
    limits *l = context;
    bool batch = value->tag_length >= 6 && memcmp(value->tag + value->tag_length - 6, "/batch", 6) == 0;
    if (value->step > (batch ? l->sample_step : l->epoch_step)) l->later = true;
}

/* It is a log: a run must be able to go on without a part of it. */
static void warn_of_damage(const char *path)
{
    lki_log(LKI_LOG_WARNING, "%s: damaged, what can be read is kept: %s", path, lk_error());
}

lk_status lki_tensorboard_truncate(const char *path, int64_t epoch_step, int64_t sample_step)
{
    LKI_SCOPED char *bytes = NULL;
    size_t total, offset = 0, nbytes, kept = 0;
    const uint8_t *data;
    bool damaged = false;
    LKI_TRY(lki_read_file(&bytes, &total, path));
    while (offset < total) {
        size_t start = offset;
        limits l = {epoch_step, sample_step, false};
        lk_status status = lki_event_next((const uint8_t *)bytes, total, &offset, &data, &nbytes);
        if (status == LK_ERR_NOT_FOUND) break;
        if (status == LK_OK) status = lki_event_parse(data, nbytes, compare_step, &l);
        if (status != LK_OK && !damaged) warn_of_damage(path);
        damaged |= status != LK_OK;
        if (offset == start) break;
        if (l.later || status != LK_OK) continue;
        memmove(bytes + kept, bytes + start, offset - start);
        kept += offset - start;
    }
    return kept == total ? LK_OK : lki_write_file_atomic(path, bytes, kept);
}
