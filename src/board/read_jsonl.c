/* JSON lines as the JSONL logger writes them. A key "time" has seconds since the epoch. */
#include "board/read_log.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* null stands for a value that is not finite: JSON has no such numbers. */
static double number_of(const json_t *value)
{
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static lk_status add_entry(const lki_board_reading *reading, const json_t *entry)
{
    const char *scope = json_string_value(json_object_get(entry, "scope"));
    const char *loader = json_string_value(json_object_get(entry, "loader"));
    json_t *metrics = json_object_get(entry, "metrics"), *value;
    const char *name;
    if (!scope || !json_is_object(metrics)) return LK_OK;
    bool is_batch = !strcmp(scope, "batch");
    if (!is_batch && strcmp(scope, "epoch") != 0) return LK_OK;
    lki_board_axis axis = is_batch ? LKI_BOARD_SAMPLE : LKI_BOARD_EPOCH;
    double step = number_of(json_object_get(entry, is_batch ? "sample" : "epoch"));
    double time = number_of(json_object_get(entry, "time"));
    if (!isfinite(step)) {
        lki_board_note_bad(reading->file, "lines without a step");
        return LK_OK;
    }
    json_object_foreach(metrics, name, value)
    {
        lki_board_series *series =
            lki_board_series_claim(reading->series, LKI_BOARD_JSONL, axis, loader ? loader : "_epoch_", name);
        if (!series) return LK_ERR_NOMEM;
        LKI_TRY(lki_board_series_add(series, step, time, number_of(value)));
    }
    return LK_OK;
}

size_t lki_board_read_jsonl(void *context, const char *bytes, size_t nbytes)
{
    lki_board_reading *reading = context;
    const char *at = bytes, *end = bytes + nbytes;
    reading->status = LK_OK;
    while (!reading->status && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (!newline) break;
        json_t *entry = json_loadb(at, (size_t)(newline - at), 0, NULL);
        if (entry)
            reading->status = add_entry(reading, entry);
        else if (newline > at)
            lki_board_note_bad(reading->file, "lines that are no JSON");
        json_decref(entry);
        at = newline + 1;
    }
    return (size_t)(at - bytes);
}
