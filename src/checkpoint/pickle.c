#include "checkpoint/pickle.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdbool.h>
#include <string.h>

typedef struct machine {
    lki_arena *arena;
    const char *name;
    const uint8_t *begin, *at, *end;
    lki_pickle **stack, **memo;
    int depth, stack_capacity, memo_count;
    lki_pickle *persistent;
    int64_t next_memo; /* of an instruction that gives no number */
    int *marks, mark_count, mark_capacity;
} machine;

enum { MAX_NBYTES = 128 << 20 };

static lk_status damaged(const machine *m)
{
    return lki_fail(LK_ERR_FORMAT, "%s: the pickle is damaged or cut off", m->name);
}

static lki_pickle *new_value(machine *m, lki_pickle_kind kind)
{
    lki_pickle *value = LKI_ARENA_NEW(m->arena, lki_pickle);
    if (value) value->kind = kind;
    return value;
}

static lk_status push(machine *m, lki_pickle *value)
{
    if (!value) return LK_ERR_NOMEM;
    if (m->depth == m->stack_capacity) {
        int capacity = m->stack_capacity ? 2 * m->stack_capacity : 64;
        lki_pickle **grown = lki_realloc(m->stack, sizeof *grown * (size_t)capacity, "a pickle's stack");
        if (!grown) return LK_ERR_NOMEM;
        m->stack = grown;
        m->stack_capacity = capacity;
    }
    m->stack[m->depth++] = value;
    return LK_OK;
}

/* The lowest place that may be popped: nothing below the last mark. */
static int floor_of(const machine *m)
{
    return m->mark_count ? m->marks[m->mark_count - 1] : 0;
}

static lki_pickle *pop(machine *m)
{
    return m->depth > floor_of(m) ? m->stack[--m->depth] : NULL;
}

static lk_status push_mark(machine *m)
{
    if (m->mark_count == m->mark_capacity) {
        int capacity = m->mark_capacity ? 2 * m->mark_capacity : 64;
        int *grown = lki_realloc(m->marks, sizeof *grown * (size_t)capacity, "a pickle's marks");
        if (!grown) return LK_ERR_NOMEM;
        m->marks = grown;
        m->mark_capacity = capacity;
    }
    m->marks[m->mark_count++] = m->depth;
    return LK_OK;
}

/* How many values stand above the last mark, which is taken away; -1 where there is none. */
static int pop_mark(machine *m)
{
    if (!m->mark_count) return -1;
    int count = m->depth - m->marks[--m->mark_count];
    m->depth -= count;
    return count;
}

static lk_status add_item(machine *m, lki_pickle *list, lki_pickle *item)
{
    if (list->count == list->capacity) {
        int capacity = list->capacity ? 2 * list->capacity : 4;
        lki_pickle **grown = LKI_ARENA_NEW_ARRAY(m->arena, lki_pickle *, capacity);
        if (!grown) return LK_ERR_NOMEM;
        if (list->count) memcpy(grown, list->items, sizeof *grown * (size_t)list->count);
        list->items = grown;
        list->capacity = capacity;
    }
    list->items[list->count++] = item;
    return LK_OK;
}

static lk_status push_items(machine *m, lki_pickle_kind kind, int count)
{
    lki_pickle *value = new_value(m, kind);
    if (count < 0) return damaged(m);
    if (!value) return LK_ERR_NOMEM;
    for (int i = 0; i < count; i++) LKI_TRY(add_item(m, value, m->stack[m->depth + i]));
    return push(m, value);
}

static lk_status push_last(machine *m, int count)
{
    if (m->depth - floor_of(m) < count) return damaged(m);
    m->depth -= count;
    return push_items(m, LKI_PICKLE_TUPLE, count);
}

static bool take(machine *m, size_t count, const uint8_t **out)
{
    if ((size_t)(m->end - m->at) < count) return false;
    *out = m->at;
    m->at += count;
    return true;
}

/* A little-endian number of up to 8 bytes, signed where asked. */
static lk_status read_number(machine *m, size_t nbytes, bool is_signed, int64_t *out)
{
    const uint8_t *bytes;
    uint64_t value = 0;
    if (nbytes > 8 || !take(m, nbytes, &bytes)) return damaged(m);
    for (size_t i = 0; i < nbytes; i++) value |= (uint64_t)bytes[i] << (8 * i);
    if (is_signed && nbytes && nbytes < 8 && bytes[nbytes - 1] & 0x80) value |= UINT64_MAX << (8 * nbytes);
    *out = (int64_t)value;
    return LK_OK;
}

static lk_status push_number(machine *m, lki_pickle_kind kind, int64_t number)
{
    lki_pickle *value = new_value(m, kind);
    if (value) value->number = number;
    return push(m, value);
}

static lk_status push_int(machine *m, size_t nbytes, bool is_signed)
{
    int64_t number = 0;
    LKI_TRY(read_number(m, nbytes, is_signed, &number));
    return push_number(m, LKI_PICKLE_INT, number);
}

static lk_status push_float(machine *m)
{
    const uint8_t *bytes;
    uint64_t bits = 0;
    lki_pickle *value = new_value(m, LKI_PICKLE_FLOAT);
    if (!take(m, 8, &bytes)) return damaged(m);
    for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i];
    if (value) memcpy(&value->real, &bits, sizeof bits);
    return push(m, value);
}

static lk_status push_text(machine *m, lki_pickle_kind kind, const uint8_t *bytes, size_t nbytes)
{
    lki_pickle *value = new_value(m, kind);
    char *text = lki_arena_alloc(m->arena, nbytes + 1);
    if (!value || !text) return LK_ERR_NOMEM;
    memcpy(text, bytes, nbytes);
    value->text = text;
    value->number = (int64_t)nbytes;
    return push(m, value);
}

static lk_status push_string(machine *m, size_t length_nbytes)
{
    const uint8_t *bytes;
    int64_t length = 0;
    LKI_TRY(read_number(m, length_nbytes, false, &length));
    if (length < 0 || !take(m, (size_t)length, &bytes)) return damaged(m);
    return push_text(m, LKI_PICKLE_STRING, bytes, (size_t)length);
}

/* Two lines, module and name, which become one text. */
static lk_status push_global(machine *m)
{
    const uint8_t *begin = m->at, *first = memchr(begin, '\n', (size_t)(m->end - begin));
    const uint8_t *second = first ? memchr(first + 1, '\n', (size_t)(m->end - first - 1)) : NULL;
    if (!second) return damaged(m);
    m->at = second + 1;
    LKI_TRY(push_text(m, LKI_PICKLE_GLOBAL, begin, (size_t)(second - begin)));
    char *text = (char *)m->stack[m->depth - 1]->text;
    text[first - begin] = ' ';
    return lki_pickle_check_global(m->name, text);
}

/* Module and name from the stack. */
static lk_status push_stack_global(machine *m)
{
    const lki_pickle *name = pop(m), *module = pop(m);
    if (!name || !module || name->kind != LKI_PICKLE_STRING || module->kind != LKI_PICKLE_STRING)
        return damaged(m);
    LKI_SCOPED char *text = lki_format("%s %s", module->text, name->text);
    if (!text) return LK_ERR_NOMEM;
    LKI_TRY(push_text(m, LKI_PICKLE_GLOBAL, (const uint8_t *)text, strlen(text)));
    return lki_pickle_check_global(m->name, text);
}

static lk_status push_bytes(machine *m, size_t length_nbytes)
{
    const uint8_t *bytes;
    int64_t length = 0;
    LKI_TRY(read_number(m, length_nbytes, false, &length));
    if (length < 0 || !take(m, (size_t)length, &bytes)) return damaged(m);
    return push(m, new_value(m, LKI_PICKLE_BYTES));
}

static lk_status put_memo(machine *m, int64_t index)
{
    /* Each number has its instruction. */
    if (index < 0 || index >= m->end - m->begin || index >= LKI_PICKLE_INSTRUCTIONS ||
        m->depth <= floor_of(m))
        return damaged(m);
    if (index >= m->memo_count) {
        int count = (int)index + 64 + m->memo_count;
        lki_pickle **grown = lki_realloc(m->memo, sizeof *grown * (size_t)count, "a pickle's memo");
        if (!grown) return LK_ERR_NOMEM;
        memset(grown + m->memo_count, 0, sizeof *grown * (size_t)(count - m->memo_count));
        m->memo = grown;
        m->memo_count = count;
    }
    m->memo[index] = m->stack[m->depth - 1];
    if (index >= m->next_memo) m->next_memo = index + 1;
    return LK_OK;
}

static lk_status memo_op(machine *m, size_t nbytes, bool is_put)
{
    int64_t index = 0;
    LKI_TRY(read_number(m, nbytes, false, &index));
    if (is_put) return put_memo(m, index);
    if (index < 0 || index >= m->memo_count || !m->memo[index]) return damaged(m);
    return push(m, m->memo[index]);
}

/* What items are added to: the value itself, or the result of a call such as OrderedDict() or deque(). */
static lki_pickle *container_of(machine *m, lki_pickle *target, lki_pickle_kind kind)
{
    if (target && target->kind == LKI_PICKLE_CALL) {
        if (!target->extra) target->extra = new_value(m, kind);
        target = target->extra;
    }
    return target && target->kind == kind ? target : NULL;
}

/* Adds the `count` values above the stack's top to the value at the top. */
static lk_status extend(machine *m, int count, bool is_dict)
{
    lki_pickle *target = m->depth > floor_of(m) ? m->stack[m->depth - 1] : NULL;
    lki_pickle *into = container_of(m, target, is_dict ? LKI_PICKLE_DICT : LKI_PICKLE_TUPLE);
    if (count < 0 || !into || (is_dict && count % 2)) return damaged(m);
    for (int i = 0; i < count; i++) LKI_TRY(add_item(m, into, m->stack[m->depth + i]));
    return LK_OK;
}

static lk_status extend_last(machine *m, int count, bool is_dict)
{
    if (m->depth - floor_of(m) < count + 1) return damaged(m);
    m->depth -= count;
    return extend(m, count, is_dict);
}

/* REDUCE and NEWOBJ: function and arguments become a call. */
static lk_status push_call(machine *m)
{
    if (m->depth - floor_of(m) < 2) return damaged(m);
    m->depth -= 2;
    return push_items(m, LKI_PICKLE_CALL, 2);
}

/* BUILD: a call remembers the state that its result gets; of other values it is dropped. */
static lk_status build(machine *m)
{
    lki_pickle *state = pop(m);
    if (!state || m->depth <= floor_of(m)) return damaged(m);
    lki_pickle *built = m->stack[m->depth - 1];
    if (built->kind == LKI_PICKLE_CALL) built->state = state;
    return LK_OK;
}

/* As push_call, of keyword arguments too, which nothing here needs. */
static lk_status push_keyword_call(machine *m)
{
    if (!pop(m)) return damaged(m);
    return push_call(m);
}

static lk_status push_again(machine *m)
{
    return m->depth > floor_of(m) ? push(m, m->stack[m->depth - 1]) : damaged(m);
}

static lk_status push_persistent(machine *m)
{
    if (m->depth - floor_of(m) < 1) return damaged(m);
    m->depth -= 1;
    LKI_TRY(push_items(m, LKI_PICKLE_PERSISTENT, 1));
    return add_item(m, m->persistent, m->stack[m->depth - 1]);
}

static lk_status skip(machine *m, size_t nbytes)
{
    const uint8_t *bytes;
    return take(m, nbytes, &bytes) ? LK_OK : damaged(m);
}

/* An int of any length, which stands before it; the shortest that holds it. */
static lk_status push_long(machine *m, size_t length_nbytes)
{
    int64_t nbytes = 0;
    LKI_TRY(read_number(m, length_nbytes, false, &nbytes));
    if (nbytes >= 0 && nbytes <= 8) return push_int(m, (size_t)nbytes, true);
    LKI_TRY(skip(m, (size_t)nbytes));
    return push_number(m, LKI_PICKLE_LARGE_INT, 0);
}

static lk_status run_instruction(machine *m, uint8_t code)
{
    switch (code) {
    case 0x80: return skip(m, 1);  /* PROTO */
    case 0x95: return skip(m, 8);  /* FRAME */
    case '(': return push_mark(m); /* MARK */
    case 'N': return push_number(m, LKI_PICKLE_NONE, 0);
    case 0x88: return push_number(m, LKI_PICKLE_BOOL, 1);
    case 0x89: return push_number(m, LKI_PICKLE_BOOL, 0);
    case 'K': return push_int(m, 1, false);
    case 'M': return push_int(m, 2, false);
    case 'J': return push_int(m, 4, true);
    case 0x8a: return push_long(m, 1);
    case 0x8b: return push_long(m, 4);
    case 'G': return push_float(m);
    case 'X': return push_string(m, 4);
    case 0x8c: return push_string(m, 1);
    case 0x8d: return push_string(m, 8);
    case 'U': return push_string(m, 1);
    case 'T': return push_string(m, 4);
    case 'C': return push_bytes(m, 1);
    case 'B': return push_bytes(m, 4);
    case 0x8e: return push_bytes(m, 8);
    case 0x96: return push_bytes(m, 8);
    case 'c': return push_global(m);
    case 0x93: return push_stack_global(m);
    case ')': return push_items(m, LKI_PICKLE_TUPLE, 0);
    case ']': return push_items(m, LKI_PICKLE_TUPLE, 0);
    case 0x8f: return push_items(m, LKI_PICKLE_TUPLE, 0);
    case 0x91: return push_items(m, LKI_PICKLE_TUPLE, pop_mark(m));
    case 'l': return push_items(m, LKI_PICKLE_TUPLE, pop_mark(m));
    case '}': return push_items(m, LKI_PICKLE_DICT, 0);
    case 't': return push_items(m, LKI_PICKLE_TUPLE, pop_mark(m));
    case 0x85: return push_last(m, 1);
    case 0x86: return push_last(m, 2);
    case 0x87: return push_last(m, 3);
    case 'q': return memo_op(m, 1, true);
    case 'r': return memo_op(m, 4, true);
    case 'h': return memo_op(m, 1, false);
    case 'j': return memo_op(m, 4, false);
    case 0x94: return put_memo(m, m->next_memo);
    case 's': return extend_last(m, 2, true);
    case 'u': return extend(m, pop_mark(m), true);
    case 'a': return extend_last(m, 1, false);
    case 'e': return extend(m, pop_mark(m), false);
    case 0x90: return extend(m, pop_mark(m), false);
    case 'R':
    case 0x81: return push_call(m);
    case 0x92: return push_keyword_call(m);
    case '2': return push_again(m);
    case '1': return pop_mark(m) < 0 ? damaged(m) : LK_OK;
    case 'Q': return push_persistent(m);
    case 'b': return build(m);
    case '0': return pop(m) ? LK_OK : damaged(m);
    }
    return lki_fail(LK_ERR_UNSUPPORTED, "%s: the pickle has an instruction that is not read here (0x%02x)",
                    m->name, code);
}

static lk_status run(machine *m, int *left, lki_pickle **out)
{
    while (m->at < m->end) {
        uint8_t code = *m->at++;
        if (code == '.') {
            *out = pop(m);
            return *out ? LK_OK : damaged(m);
        }
        if (m->at - m->begin > MAX_NBYTES)
            return lki_fail(LK_ERR_UNSUPPORTED, "%s: its pickle is larger than %d MiB", m->name,
                            MAX_NBYTES >> 20);
        if (--*left < 0)
            return lki_fail(LK_ERR_UNSUPPORTED,
                            "%s: its pickles have more than %d instructions: save the state_dict() alone",
                            m->name, LKI_PICKLE_INSTRUCTIONS);
        LKI_TRY(run_instruction(m, code));
    }
    return damaged(m);
}

lk_status lki_unpickle(lki_arena *arena, const char *name, const uint8_t *data, size_t nbytes, int *left,
                       lki_pickled *out)
{
    machine m = {.arena = arena, .name = name, .begin = data, .at = data, .end = data + nbytes};
    *out = (lki_pickled){0};
    m.persistent = new_value(&m, LKI_PICKLE_TUPLE);
    lk_status status = m.persistent ? run(&m, left, &out->root) : LK_ERR_NOMEM;
    out->persistent = m.persistent;
    out->nbytes = (size_t)(m.at - data);
    lki_free(m.stack);
    lki_free(m.memo);
    lki_free(m.marks);
    return status;
}
