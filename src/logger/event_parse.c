/* Reading an Event: only what we need of its protocol buffers; unknown fields are stepped over. */
#include "logger/event.h"

#include "base/status.h"

#include <string.h>

typedef struct cursor {
    const uint8_t *at, *end;
    bool bad;
} cursor;

/* One field: its number, and its payload as a number or as bytes. */
typedef struct field {
    uint64_t number;
    int wire;
    uint64_t value;
    cursor bytes;
} field;

static uint64_t take_varint(cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        uint8_t byte = *c->at++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return value;
    }
    c->bad = true;
    return 0;
}

static uint64_t take_fixed(cursor *c, size_t nbytes)
{
    uint64_t value = 0;
    if ((size_t)(c->end - c->at) < nbytes) {
        c->bad = true;
        return 0;
    }
    for (size_t i = nbytes; i > 0; i--) value = value << 8 | c->at[i - 1];
    c->at += nbytes;
    return value;
}

static bool next_field(cursor *c, field *out)
{
    if (c->bad || c->at == c->end) return false;
    uint64_t key = take_varint(c);
    *out = (field){.number = key >> 3, .wire = (int)(key & 7)};
    switch (out->wire) {
    case 0: out->value = take_varint(c); break;
    case 1: out->value = take_fixed(c, 8); break;
    case 5: out->value = take_fixed(c, 4); break;
    case 2: {
        uint64_t length = take_varint(c);
        if (c->bad || length > (uint64_t)(c->end - c->at)) {
            c->bad = true;
            break;
        }
        out->bytes = (cursor){c->at, c->at + length, false};
        c->at += length;
        break;
    }
    default: c->bad = true;
    }
    return !c->bad;
}

static bool parse_value(cursor c, lki_event_value *value)
{
    field f;
    while (next_field(&c, &f)) {
        if (f.number == 1 && f.wire == 2) {
            value->tag = (const char *)f.bytes.at;
            value->tag_length = (size_t)(f.bytes.end - f.bytes.at);
        } else if (f.number == 2 && f.wire == 5) {
            uint32_t bits = (uint32_t)f.value;
            memcpy(&value->scalar, &bits, sizeof bits);
            value->is_scalar = true;
        } else if (f.number == 5 && f.wire == 2) {
            value->histogram = f.bytes.at;
            value->histogram_nbytes = (size_t)(f.bytes.end - f.bytes.at);
        }
    }
    return !c.bad;
}

static double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Doubles, packed or one by one. */
static bool take_doubles(field *f, double *to, int *count, int capacity)
{
    if (f->wire == 1) {
        if (*count < capacity) to[(*count)++] = as_double(f->value);
        return true;
    }
    while (f->wire == 2 && f->bytes.at < f->bytes.end && !f->bytes.bad) {
        double value = as_double(take_fixed(&f->bytes, 8));
        if (*count < capacity) to[(*count)++] = value;
    }
    return f->wire == 2 && !f->bytes.bad;
}

lk_status lki_event_histogram(const lki_event_value *value, lk_histogram *out, double *limits, double *counts,
                              int capacity)
{
    cursor c = {value->histogram, value->histogram + value->histogram_nbytes, false};
    int limit_count = 0, bucket_count = 0;
    bool good = true;
    field f;
    *out = (lk_histogram){.limits = limits, .counts = counts};
    while (good && next_field(&c, &f)) {
        if (f.number == 1 && f.wire == 1) out->min = as_double(f.value);
        if (f.number == 2 && f.wire == 1) out->max = as_double(f.value);
        if (f.number == 3 && f.wire == 1) out->count = (int64_t)as_double(f.value);
        if (f.number == 4 && f.wire == 1) out->sum = as_double(f.value);
        if (f.number == 5 && f.wire == 1) out->sum_squares = as_double(f.value);
        if (f.number == 6) good = take_doubles(&f, limits, &limit_count, capacity);
        if (f.number == 7) good = take_doubles(&f, counts, &bucket_count, capacity);
    }
    out->bucket_count = limit_count;
    if (c.bad || !good || limit_count != bucket_count)
        return lki_fail(LK_ERR_FORMAT, "the histogram is malformed");
    return LK_OK;
}

static bool parse_summary(cursor c, const lki_event_value *common, lki_event_visit visit, void *context)
{
    field f;
    while (next_field(&c, &f)) {
        lki_event_value value = *common;
        if (f.number != 1 || f.wire != 2) continue;
        if (!parse_value(f.bytes, &value)) return false;
        if (value.tag) visit(&value, context);
    }
    return !c.bad;
}

lk_status lki_event_parse(const uint8_t *data, size_t nbytes, lki_event_visit visit, void *context)
{
    cursor c = {data, data + nbytes, false}, summary = {0};
    lki_event_value common = {0};
    field f;
    while (next_field(&c, &f)) {
        if (f.number == 1 && f.wire == 1) memcpy(&common.wall_time, &f.value, sizeof common.wall_time);
        if (f.number == 2 && f.wire == 0) common.step = (int64_t)f.value;
        if (f.number == 5 && f.wire == 2) summary = f.bytes;
    }
    if (c.bad || (summary.at && !parse_summary(summary, &common, visit, context)))
        return lki_fail(LK_ERR_FORMAT, "the event is malformed");
    return LK_OK;
}
