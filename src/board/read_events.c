/* TensorBoard's event files. Lockstep puts "/epoch" or "/batch" behind a metric's name; another program's
 * tags stay as they are. */
#include "base/memory.h"
#include "board/read_log.h"
#include "logger/event.h"

#include <string.h>

static bool ends_with(const char *text, size_t length, const char *suffix)
{
    size_t suffix_length = strlen(suffix);
    return length > suffix_length && !memcmp(text + length - suffix_length, suffix, suffix_length);
}

static void add_histogram(const lki_event_value *value, lki_board_reading *reading)
{
    enum { MOST = 4096 };
    lk_histogram histogram;
    LKI_SCOPED double *numbers = LKI_NEW_ARRAY(double, 2 * MOST);
    LKI_SCOPED char *tag = lki_strndup(value->tag, value->tag_length);
    reading->status = numbers && tag ? LK_OK : LK_ERR_NOMEM;
    if (reading->status) return;
    if (lki_event_histogram(value, &histogram, numbers, numbers + MOST, MOST))
        lki_board_note_bad(reading->file, "damaged records");
    else
        reading->status = lki_board_histogram_add(reading->histograms, reading->file->loader, tag,
                                                  (double)value->step, &histogram);
}

static void add_value(const lki_event_value *value, void *context)
{
    enum { SUFFIX_LENGTH = 6 };
    lki_board_reading *reading = context;
    if (!reading->status && value->histogram) add_histogram(value, reading);
    if (reading->status || !value->is_scalar) return;
    bool is_epoch = ends_with(value->tag, value->tag_length, "/epoch");
    bool is_batch = ends_with(value->tag, value->tag_length, "/batch");
    lki_board_axis axis = is_epoch ? LKI_BOARD_EPOCH : is_batch ? LKI_BOARD_SAMPLE : LKI_BOARD_STEP;
    LKI_SCOPED char *name =
        lki_strndup(value->tag, value->tag_length - (is_epoch || is_batch ? SUFFIX_LENGTH : 0));
    lki_board_series *series =
        name ? lki_board_series_claim(reading->series, LKI_BOARD_EVENTS, axis, reading->file->loader, name)
             : NULL;
    reading->status =
        series ? lki_board_series_add(series, (double)value->step, value->wall_time, (double)value->scalar)
               : LK_ERR_NOMEM;
}

size_t lki_board_read_events(void *context, const char *bytes, size_t nbytes)
{
    lki_board_reading *reading = context;
    size_t offset = 0;
    reading->status = LK_OK;
    while (!reading->status && offset < nbytes) {
        const uint8_t *data;
        size_t data_nbytes, begin = offset;
        lk_status status = lki_event_next((const uint8_t *)bytes, nbytes, &offset, &data, &data_nbytes);
        if (status == LK_ERR_NOT_FOUND) break;
        if (status == LK_OK) status = lki_event_parse(data, data_nbytes, add_value, reading);
        if (status == LK_OK) continue;
        lki_board_note_bad(reading->file, "damaged records");
        /* Without a length there is no next record: the rest of the file cannot be read. */
        if (offset == begin) return nbytes;
    }
    return offset;
}
