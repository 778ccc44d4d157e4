/* Path templates: Python's str.format, as far as names and numbers need it. */
#include "data/fields.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_PATH_LENGTH = 4096, MAX_SPEC_LENGTH = 32 };

typedef struct writer {
    const char *path_template;
    const char *feature;
    double checkpoint;
    char out[MAX_PATH_LENGTH];
    size_t used;
} writer;

static lk_status append(writer *writer, const char *text, size_t length)
{
    if (writer->used + length >= sizeof writer->out)
        return lki_fail(LK_ERR_INVALID, "path template \"%s\": the path is too long", writer->path_template);
    memcpy(writer->out + writer->used, text, length);
    writer->used += length;
    writer->out[writer->used] = 0;
    return LK_OK;
}

static lk_status bad_spec(const writer *writer, const char *spec)
{
    return lki_fail(
        LK_ERR_INVALID,
        "path template \"%s\": format \"%s\" is not understood: expected [0][width][.precision] and "
        "f, e, g or d",
        writer->path_template, spec);
}

/* "01.0f" into C's "%01.0f"; the type, where it is not given, is 0. */
static bool parse_spec(const char *spec, char *type, char *c_format, size_t capacity)
{
    size_t digits = strspn(spec, "0123456789");
    size_t end = digits;
    if (spec[end] == '.') {
        size_t precision = strspn(spec + end + 1, "0123456789");
        if (precision == 0) return false;
        end += 1 + precision;
    }
    *type = spec[end];
    if (*type && (!strchr("fFeEgGds", *type) || spec[end + 1])) return false;
    /* Wide enough for any path, narrow enough for the buffer below. */
    if (digits > 3) return false;
    return snprintf(c_format, capacity, "%%%.*s", (int)end, spec) < (int)capacity - 2;
}

static lk_status append_integer(writer *writer, const char *c_format)
{
    char format[MAX_SPEC_LENGTH + 4], text[1024];
    if (writer->checkpoint != floor(writer->checkpoint) || fabs(writer->checkpoint) > 1e15)
        return lki_fail(LK_ERR_INVALID, "path template \"%s\": checkpoint %g is not an integer",
                        writer->path_template, writer->checkpoint);
    snprintf(format, sizeof format, "%slld", c_format);
    int length = snprintf(text, sizeof text, format, (long long)writer->checkpoint);
    return append(writer, text, (size_t)length);
}

static lk_status append_checkpoint(writer *writer, const char *spec)
{
    char type, c_format[MAX_SPEC_LENGTH], format[MAX_SPEC_LENGTH + 4], text[1400];
    if (!parse_spec(spec, &type, c_format, sizeof c_format) || type == 's') return bad_spec(writer, spec);
    bool whole = writer->checkpoint == floor(writer->checkpoint) && fabs(writer->checkpoint) < 1e15;
    if (type == 'd' && strchr(spec, '.')) return bad_spec(writer, spec);
    if (type == 'd' || (!type && whole && !strchr(spec, '.'))) return append_integer(writer, c_format);
    if (!type && !strchr(spec, '.')) { /* as Python prints a float: the shortest text that reads back */
        for (int precision = 1; precision <= 17; precision++) {
            lki_snprintf(text, sizeof text, "%.*g", precision, writer->checkpoint);
            if (lki_strtod(text, NULL) == writer->checkpoint) break;
        }
        return append(writer, text, strlen(text));
    }
    snprintf(format, sizeof format, "%s%c", c_format, type ? type : 'g');
    int length = lki_snprintf(text, sizeof text, format, writer->checkpoint);
    if (length < 0 || (size_t)length >= sizeof text) return bad_spec(writer, spec);
    return append(writer, text, (size_t)length);
}

/* One "{name}" or "{name:spec}"; `field` is what lies between the braces. */
static lk_status append_field(writer *writer, const char *field, size_t length)
{
    char text[64];
    if (length >= sizeof text)
        return lki_fail(LK_ERR_INVALID, "path template \"%s\": what is between the braces is too long",
                        writer->path_template);
    memcpy(text, field, length);
    text[length] = 0;
    char *spec = strchr(text, ':');
    if (spec) *spec++ = 0;
    if (strcmp(text, "feature") == 0) {
        if (spec && *spec && strcmp(spec, "s") != 0) return bad_spec(writer, spec);
        return append(writer, writer->feature, strlen(writer->feature));
    }
    if (strcmp(text, "checkpoint") == 0) return append_checkpoint(writer, spec ? spec : "");
    return lki_fail(LK_ERR_INVALID,
                    "path template \"%s\": unknown name {%s}: there are {feature} and {checkpoint}",
                    writer->path_template, text);
}

static lk_status write_path(writer *writer)
{
    const char *at = writer->path_template;
    while (*at) {
        size_t plain = strcspn(at, "{}");
        LKI_TRY(append(writer, at, plain));
        at += plain;
        if (!*at) return LK_OK;
        if (at[1] == at[0]) { /* "{{" or "}}" */
            LKI_TRY(append(writer, at, 1));
            at += 2;
            continue;
        }
        const char *close = *at == '{' ? strchr(at, '}') : NULL;
        if (!close)
            return lki_fail(LK_ERR_INVALID, "path template \"%s\": a \"%c\" has no partner",
                            writer->path_template, *at);
        LKI_TRY(append_field(writer, at + 1, (size_t)(close - at - 1)));
        at = close + 1;
    }
    return LK_OK;
}

char *lk_field_path(const char *path_template, const char *feature, double checkpoint)
{
    if (!path_template || !feature) return lki_fail_null(LK_ERR_INVALID, "path template: there is none");
    writer *state = LKI_NEW(writer);
    if (!state) return NULL;
    state->path_template = path_template;
    state->feature = feature;
    state->checkpoint = checkpoint;
    char *path = write_path(state) == LK_OK ? lki_strdup(state->out) : NULL;
    lki_free(state);
    return path;
}
