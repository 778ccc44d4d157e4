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
        }
    }
    return !c.bad;
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
