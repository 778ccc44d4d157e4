#include "logger/event.h"

#include "base/crc32c.h"
#include "base/memory.h"
#include "base/status.h"
#include "tensor/png.h"

#include <string.h>

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };
enum { HEADER_NBYTES = 12, FOOTER_NBYTES = 4 };

void lki_event_buffer_fini(lki_event_buffer *buffer)
{
    lki_free(buffer->data);
    *buffer = (lki_event_buffer){0};
}

static lk_status reserve(lki_event_buffer *buffer, size_t extra)
{
    if (buffer->used + extra <= buffer->capacity) return LK_OK;
    size_t capacity =
        buffer->capacity * 2 > buffer->used + extra ? buffer->capacity * 2 : buffer->used + extra + 1024;
    uint8_t *grown = lki_realloc(buffer->data, capacity, "TensorBoard events");
    if (!grown) return LK_ERR_NOMEM;
    buffer->data = grown;
    buffer->capacity = capacity;
    return LK_OK;
}

static uint32_t masked_crc(const void *data, size_t nbytes)
{
    uint32_t crc = lki_crc32c(0, data, nbytes);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

static void store_little(uint8_t *at, uint64_t value, int nbytes)
{
    for (int i = 0; i < nbytes; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* The writers below need their room reserved beforehand. */
static void put_bytes(lki_event_buffer *buffer, const void *data, size_t nbytes)
{
    memcpy(buffer->data + buffer->used, data, nbytes);
    buffer->used += nbytes;
}

static void put_varint(lki_event_buffer *buffer, uint64_t value)
{
    for (; value >= 128; value >>= 7) buffer->data[buffer->used++] = (uint8_t)(value | 128);
    buffer->data[buffer->used++] = (uint8_t)value;
}

static size_t varint_nbytes(uint64_t value)
{
    size_t nbytes = 1;
    for (; value >= 128; value >>= 7) nbytes++;
    return nbytes;
}

static void put_key(lki_event_buffer *buffer, int field, int wire)
{
    put_varint(buffer, (uint64_t)(field << 3 | wire));
}

static void put_double(lki_event_buffer *buffer, int field, double value)
{
    uint64_t bits;
    put_key(buffer, field, WIRE_FIXED64);
    memcpy(&bits, &value, sizeof bits);
    store_little(buffer->data + buffer->used, bits, 8);
    buffer->used += 8;
}

static void put_float(lki_event_buffer *buffer, int field, float value)
{
    uint32_t bits;
    put_key(buffer, field, WIRE_FIXED32);
    memcpy(&bits, &value, sizeof bits);
    store_little(buffer->data + buffer->used, bits, 4);
    buffer->used += 4;
}

static void put_length(lki_event_buffer *buffer, int field, size_t length)
{
    put_key(buffer, field, WIRE_BYTES);
    put_varint(buffer, length);
}

/* Leaves room for the record's header; returns where it is. */
static size_t begin_record(lki_event_buffer *buffer)
{
    size_t start = buffer->used;
    buffer->used += HEADER_NBYTES;
    return start;
}

static void end_record(lki_event_buffer *buffer, size_t start)
{
    uint8_t *header = buffer->data + start;
    size_t length = buffer->used - start - HEADER_NBYTES;
    store_little(header, length, 8);
    store_little(header + 8, masked_crc(header, 8), 4);
    store_little(buffer->data + buffer->used, masked_crc(header + HEADER_NBYTES, length), 4);
    buffer->used += FOOTER_NBYTES;
}

lk_status lki_event_put_version(lki_event_buffer *buffer, double wall_time)
{
    static const char version[] = "brain.Event:2";
    LKI_TRY(reserve(buffer, 64));
    size_t start = begin_record(buffer);
    put_double(buffer, 1, wall_time);
    put_length(buffer, 3, sizeof version - 1);
    put_bytes(buffer, version, sizeof version - 1);
    end_record(buffer, start);
    return LK_OK;
}

/* The bytes of a Summary.Value with a scalar, without its own key and length. */
static size_t scalar_nbytes(size_t tag_length)
{
    return 1 + varint_nbytes(tag_length) + tag_length + 5;
}

lk_status lki_event_put_scalars(lki_event_buffer *buffer, double wall_time, int64_t step,
                                lk_metric_values values, const char *suffix)
{
    size_t suffix_length = strlen(suffix), summary = 0;
    for (int i = 0; i < values.count; i++) {
        size_t nbytes = scalar_nbytes(strlen(values.items[i].name) + suffix_length);
        summary += 1 + varint_nbytes(nbytes) + nbytes;
    }
    LKI_TRY(reserve(buffer, summary + 64));
    size_t start = begin_record(buffer);
    put_double(buffer, 1, wall_time);
    put_key(buffer, 2, WIRE_VARINT);
    put_varint(buffer, (uint64_t)step);
    put_length(buffer, 5, summary);
    for (int i = 0; i < values.count; i++) {
        size_t name_length = strlen(values.items[i].name);
        put_length(buffer, 1, scalar_nbytes(name_length + suffix_length));
        put_length(buffer, 1, name_length + suffix_length);
        put_bytes(buffer, values.items[i].name, name_length);
        put_bytes(buffer, suffix, suffix_length);
        put_float(buffer, 2, (float)values.items[i].value);
    }
    end_record(buffer, start);
    return LK_OK;
}

lk_status lki_event_put_image(lki_event_buffer *buffer, double wall_time, int64_t step, const char *tag,
                              const lk_tensor *pixels)
{
    LKI_SCOPED void *png = NULL;
    size_t png_nbytes, tag_length = strlen(tag);
    LKI_TRY(lki_png_encode(&png, &png_nbytes, pixels));
    uint64_t height = (uint64_t)pixels->shape.dim[0], width = (uint64_t)pixels->shape.dim[1];
    size_t image =
        1 + varint_nbytes(height) + 1 + varint_nbytes(width) + 2 + 1 + varint_nbytes(png_nbytes) + png_nbytes;
    size_t value = 1 + varint_nbytes(tag_length) + tag_length + 1 + varint_nbytes(image) + image;
    LKI_TRY(reserve(buffer, value + 128));
    size_t start = begin_record(buffer);
    put_double(buffer, 1, wall_time);
    put_key(buffer, 2, WIRE_VARINT);
    put_varint(buffer, (uint64_t)step);
    put_length(buffer, 5, 1 + varint_nbytes(value) + value);
    put_length(buffer, 1, value);
    put_length(buffer, 1, tag_length);
    put_bytes(buffer, tag, tag_length);
    put_length(buffer, 4, image);
    put_key(buffer, 1, WIRE_VARINT);
    put_varint(buffer, height);
    put_key(buffer, 2, WIRE_VARINT);
    put_varint(buffer, width);
    put_key(buffer, 3, WIRE_VARINT);
    put_varint(buffer, (uint64_t)pixels->shape.dim[2]); /* 1 grey, 3 RGB: the format's own numbers */
    put_length(buffer, 4, png_nbytes);
    put_bytes(buffer, png, png_nbytes);
    end_record(buffer, start);
    return LK_OK;
}

static uint64_t load_little(const uint8_t *at, int nbytes)
{
    uint64_t value = 0;
    for (int i = nbytes - 1; i >= 0; i--) value = value << 8 | at[i];
    return value;
}

lk_status lki_event_next(const uint8_t *bytes, size_t total, size_t *offset, const uint8_t **data,
                         size_t *nbytes)
{
    size_t left = total - *offset;
    const uint8_t *at = bytes + *offset;
    if (left < HEADER_NBYTES) return lki_fail(LK_ERR_NOT_FOUND, "the record at byte %zu is cut off", *offset);
    if (load_little(at + 8, 4) != masked_crc(at, 8))
        return lki_fail(LK_ERR_FORMAT, "the record at byte %zu has a length with a wrong checksum", *offset);
    uint64_t length = load_little(at, 8);
    if (left - HEADER_NBYTES < FOOTER_NBYTES || length > left - HEADER_NBYTES - FOOTER_NBYTES)
        return lki_fail(LK_ERR_NOT_FOUND, "the record at byte %zu is cut off", *offset);
    size_t start = *offset;
    *data = at + HEADER_NBYTES;
    *nbytes = (size_t)length;
    *offset += HEADER_NBYTES + (size_t)length + FOOTER_NBYTES;
    if (load_little(*data + length, 4) == masked_crc(*data, *nbytes)) return LK_OK;
    return lki_fail(LK_ERR_FORMAT, "the record at byte %zu has data with a wrong checksum", start);
}
