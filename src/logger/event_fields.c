/* Messages of protocol buffers, field by field, and what event files have of plug-ins and graphs. */
#include "logger/event.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, MAX_VARINT = 10 };

static uint8_t *claim(lki_event_buffer *buffer, size_t extra)
{
    if (buffer->used + extra > buffer->capacity) {
        size_t capacity =
            2 * buffer->capacity > buffer->used + extra ? 2 * buffer->capacity : buffer->used + extra + 256;
        uint8_t *grown = lki_realloc(buffer->data, capacity, "TensorBoard events");
        if (!grown) return NULL;
        buffer->data = grown;
        buffer->capacity = capacity;
    }
    return buffer->data + buffer->used;
}

static size_t store_varint(uint8_t *at, uint64_t value)
{
    size_t count = 0;
    for (; value >= 128; value >>= 7) at[count++] = (uint8_t)(value | 128);
    at[count++] = (uint8_t)value;
    return count;
}

static void store_little(uint8_t *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

lk_status lki_field_varint(lki_event_buffer *buffer, int field, uint64_t value)
{
    uint8_t *at = claim(buffer, 2 * MAX_VARINT);
    if (!at) return LK_ERR_NOMEM;
    size_t count = store_varint(at, (uint64_t)field << 3 | WIRE_VARINT);
    buffer->used += count + store_varint(at + count, value);
    return LK_OK;
}

lk_status lki_field_double(lki_event_buffer *buffer, int field, double value)
{
    uint64_t bits;
    uint8_t *at = claim(buffer, MAX_VARINT + 8);
    if (!at) return LK_ERR_NOMEM;
    size_t count = store_varint(at, (uint64_t)field << 3 | WIRE_FIXED64);
    memcpy(&bits, &value, sizeof bits);
    store_little(at + count, bits, 8);
    buffer->used += count + 8;
    return LK_OK;
}

lk_status lki_field_bytes(lki_event_buffer *buffer, int field, const void *data, size_t nbytes)
{
    uint8_t *at = claim(buffer, 2 * MAX_VARINT + nbytes);
    if (!at) return LK_ERR_NOMEM;
    size_t count = store_varint(at, (uint64_t)field << 3 | WIRE_BYTES);
    count += store_varint(at + count, nbytes);
    if (nbytes) memcpy(at + count, data, nbytes);
    buffer->used += count + nbytes;
    return LK_OK;
}

lk_status lki_field_text(lki_event_buffer *buffer, int field, const char *text)
{
    return lki_field_bytes(buffer, field, text, strlen(text));
}

static uint32_t masked_crc(const void *data, size_t nbytes)
{
    uint32_t crc = lki_crc32c(0, data, nbytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

lk_status lki_event_put_record(lki_event_buffer *buffer, const lki_event_buffer *event)
{
    uint8_t *at = claim(buffer, event->used + 16);
    if (!at) return LK_ERR_NOMEM;
    store_little(at, event->used, 8);
    store_little(at + 8, masked_crc(at, 8), 4);
    memcpy(at + 12, event->data, event->used);
    store_little(at + 12 + event->used, masked_crc(event->data, event->used), 4);
    buffer->used += event->used + 16;
    return LK_OK;
}

/* ---- Histograms ---- */

static lk_status put_doubles(lki_event_buffer *to, int field, double first, const double *rest, int count)
{
    lki_event_buffer packed = {0};
    size_t nbytes = 8 * ((size_t)count + 1);
    uint64_t bits;
    if (!claim(&packed, nbytes)) return LK_ERR_NOMEM;
    for (int i = 0; i <= count; i++) {
        memcpy(&bits, i ? &rest[i - 1] : &first, sizeof bits);
        store_little(packed.data + 8 * (size_t)i, bits, 8);
    }
    lk_status status = lki_field_bytes(to, field, packed.data, nbytes);
    lki_event_buffer_fini(&packed);
    return status;
}

/* The first bucket is empty and ends at the least value: readers take the left edge of the second from it. */
static lk_status put_histogram(lki_event_buffer *to, const lk_histogram *h)
{
    LKI_TRY(lki_field_double(to, 1, h->min));
    LKI_TRY(lki_field_double(to, 2, h->max));
    LKI_TRY(lki_field_double(to, 3, (double)h->count));
    LKI_TRY(lki_field_double(to, 4, h->sum));
    LKI_TRY(lki_field_double(to, 5, h->sum_squares));
    LKI_TRY(put_doubles(to, 6, h->min, h->limits, h->bucket_count));
    return put_doubles(to, 7, 0, h->counts, h->bucket_count);
}

lk_status lki_event_put_histogram(lki_event_buffer *buffer, double wall_time, int64_t step, const char *tag,
                                  const lk_histogram *histogram)
{
    lki_event_buffer histo = {0}, value = {0}, summary = {0}, event = {0};
    lk_status status;
    LKI_TRY_OUT(put_histogram(&histo, histogram));
    LKI_TRY_OUT(lki_field_text(&value, 1, tag));
    LKI_TRY_OUT(lki_field_bytes(&value, 5, histo.data, histo.used));
    LKI_TRY_OUT(lki_field_bytes(&summary, 1, value.data, value.used));
    LKI_TRY_OUT(lki_field_double(&event, 1, wall_time));
    LKI_TRY_OUT(lki_field_varint(&event, 2, (uint64_t)step));
    LKI_TRY_OUT(lki_field_bytes(&event, 5, summary.data, summary.used));
    status = lki_event_put_record(buffer, &event);
out:
    lki_event_buffer_fini(&histo);
    lki_event_buffer_fini(&value);
    lki_event_buffer_fini(&summary);
    lki_event_buffer_fini(&event);
    return status;
}
