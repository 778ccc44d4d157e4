#include "launch/hostlist.h"

#include "base/memory.h"
#include "base/status.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_HOSTS = 65536, MAX_NAME = 255, MAX_DIGITS = 9 };

typedef struct expansion {
    lki_hostlist *out;
    const char *text; /* the whole list, for sentences */
    char name[MAX_NAME + 1];
    int capacity;
} expansion;

static lk_status malformed(const expansion *e, const char *what)
{
    return lki_fail(LK_ERR_FORMAT, "host list \"%s\": %s", e->text, what);
}

static lk_status add_host(expansion *e, size_t length)
{
    if (length == 0) return malformed(e, "an empty name");
    if (e->out->count == MAX_HOSTS) return malformed(e, "more than 65,536 hosts");
    if (e->out->count == e->capacity) {
        int capacity = e->capacity ? e->capacity * 2 : 16;
        char **names = lki_realloc(e->out->names, (size_t)capacity * sizeof *names, "a host list");
        if (!names) return LK_ERR_NOMEM;
        e->out->names = names;
        e->capacity = capacity;
    }
    char *name = lki_strndup(e->name, length);
    if (!name) return LK_ERR_NOMEM;
    e->out->names[e->out->count++] = name;
    return LK_OK;
}

/* A number of at most nine digits; *width is how many it was written with. */
static bool read_number(const char **at, long *value, int *width)
{
    *value = 0;
    for (*width = 0; isdigit((unsigned char)**at); ++*width, ++*at) {
        if (*width == MAX_DIGITS) return false;
        *value = *value * 10 + (**at - '0');
    }
    return *width > 0;
}

static lk_status expand_from(expansion *e, const char *at, const char *end, size_t length);

/* "[001-003,007]": every number in turn, followed by every way to read the rest. */
static lk_status expand_brackets(expansion *e, const char *at, const char *end, size_t length)
{
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close) return malformed(e, "a [ without its ]");
    at++;
    while (at < close) {
        long first, last;
        int width, last_width;
        if (!read_number(&at, &first, &width)) return malformed(e, "expected a number between [ and ]");
        last = first;
        if (*at == '-') {
            at++;
            if (!read_number(&at, &last, &last_width)) return malformed(e, "expected a number after -");
        }
        if (last < first) return malformed(e, "a range that runs backwards");
        if (last - first >= MAX_HOSTS) return malformed(e, "more than 65,536 hosts");
        for (long number = first; number <= last; number++) {
            int digits = snprintf(e->name + length, sizeof e->name - length, "%0*ld", width, number);
            if (length + (size_t)digits > MAX_NAME) return malformed(e, "a name of more than 255 characters");
            LKI_TRY(expand_from(e, close + 1, end, length + (size_t)digits));
        }
        if (at < close && *at != ',') return malformed(e, "expected , or ] after a range");
        if (at < close && ++at == close) return malformed(e, "expected a number between [ and ]");
    }
    return close[-1] == '[' ? malformed(e, "expected a number between [ and ]") : LK_OK;
}

/* The name so far is e->name[0 .. length); [at, end) is the rest of one item. */
static lk_status expand_from(expansion *e, const char *at, const char *end, size_t length)
{
    for (; at < end; at++) {
        if (*at == '[') return expand_brackets(e, at, end, length);
        if (*at == ']') return malformed(e, "a ] without its [");
        if (isspace((unsigned char)*at)) return malformed(e, "a space inside");
        if (length == MAX_NAME) return malformed(e, "a name of more than 255 characters");
        e->name[length++] = *at;
    }
    return add_host(e, length);
}

/* The end of the item that begins here: the next comma outside brackets. */
static const char *end_of_item(const char *at)
{
    bool inside = false;
    for (; *at && (inside || *at != ','); at++) {
        if (*at == '[') inside = true;
        if (*at == ']') inside = false;
    }
    return at;
}

lk_status lki_hostlist_expand(lki_hostlist *out, const char *text)
{
    expansion e = {.out = out, .text = text};
    lk_status status = LK_OK;
    *out = (lki_hostlist){0};
    for (const char *at = text;; at++) {
        const char *end = end_of_item(at);
        status = expand_from(&e, at, end, 0);
        at = end;
        if (status != LK_OK || !*at) break;
    }
    if (status != LK_OK) lki_hostlist_fini(out);
    return status;
}

void lki_hostlist_fini(lki_hostlist *list)
{
    for (int i = 0; i < list->count; i++) lki_free(list->names[i]);
    lki_free(list->names);
    *list = (lki_hostlist){0};
}

lk_status lki_tasks_of_node(int *out, const char *text, int node)
{
    const char *at = text;
    while (*at) {
        long tasks, repeat = 1;
        int width;
        if (!read_number(&at, &tasks, &width)) break;
        if (strncmp(at, "(x", 2) == 0) {
            at += 2;
            if (!read_number(&at, &repeat, &width) || *at != ')') break;
            at++;
        }
        if (node < repeat) {
            *out = (int)tasks;
            return LK_OK;
        }
        node -= (int)repeat;
        if (*at != ',') break;
        at++;
    }
    return lki_fail(LK_ERR_FORMAT,
                    "tasks per node \"%s\": expected a form such as 2(x3),1 with a place for every node",
                    text);
}
