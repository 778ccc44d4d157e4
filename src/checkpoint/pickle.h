/* Python's pickles as data.
 *
 * A pickle is a program; this runs its building instructions over plain values and calls nothing: a call
 * stays a value that says which function was to be called with what. Values live in the caller's arena and
 * may be shared, even contain themselves. A name outside of a short list is refused (pickle_globals.c). */
#ifndef LKI_CHECKPOINT_PICKLE_H
#define LKI_CHECKPOINT_PICKLE_H

#include "base/arena.h"

#include <lockstep/status.h>

#include <stdint.h>

typedef enum lki_pickle_kind {
    LKI_PICKLE_NONE,
    LKI_PICKLE_BOOL,
    LKI_PICKLE_INT,
    LKI_PICKLE_LARGE_INT, /* of more than 64 bits: its number is not kept */
    LKI_PICKLE_FLOAT,
    LKI_PICKLE_STRING,     /* text, of `number` bytes */
    LKI_PICKLE_BYTES,      /* which are not kept */
    LKI_PICKLE_TUPLE,      /* items; lists too */
    LKI_PICKLE_DICT,       /* items: key, value, key, value, ... */
    LKI_PICKLE_GLOBAL,     /* text: "torch._utils _rebuild_tensor_v2" */
    LKI_PICKLE_CALL,       /* items: what is called, its arguments; what its result is filled with: `extra` */
    LKI_PICKLE_PERSISTENT, /* items: the one value that names it */
} lki_pickle_kind;

typedef struct lki_pickle lki_pickle;
struct lki_pickle {
    lki_pickle_kind kind;
    int64_t number;
    double real;
    const char *text;
    lki_pickle **items;
    int count, capacity;
    lki_pickle *extra; /* of a call: a dict of the items set on its result, or a tuple of those appended;
                          NULL: none */
    lki_pickle *state; /* of a call: what its result was built with (BUILD); NULL: nothing */
};

typedef struct lki_pickled {
    lki_pickle *root;
    lki_pickle *persistent; /* a tuple of all its persistent values */
    size_t nbytes;          /* its length */
} lki_pickled;

/* The most instructions that the pickles of one file may have. An instruction of one byte makes a value of
 * 70, so this bounds the memory. */
enum { LKI_PICKLE_INSTRUCTIONS = 8 << 20 };

/* Reads the pickle at the beginning of `data`, which may be followed by something else. `name` is for
 * messages. `left` is how many instructions it may have; those that it has are subtracted. */
lk_status lki_unpickle(lki_arena *arena, const char *name, const uint8_t *data, size_t nbytes, int *left,
                       lki_pickled *out);

/* LK_ERR_UNSUPPORTED for a global ("os system") that no file of tensors needs. */
lk_status lki_pickle_check_global(const char *path, const char *name);

#endif
