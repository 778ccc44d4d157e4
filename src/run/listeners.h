/* Who listens to a run: its callbacks, in the order in which they are called. */
#ifndef LKI_RUN_LISTENERS_H
#define LKI_RUN_LISTENERS_H

#include <lockstep/runner.h>

enum { LKI_MAX_CALLBACKS = 64 };

/* The moments, as indices of the table of listeners. */
typedef enum lki_moment {
#define X(moment) LKI_MOMENT_##moment,
    LK_MOMENT_LIST(X)
#undef X
        LKI_MOMENT_COUNT
} lki_moment;

typedef struct lki_listener {
    lk_callback_slot slot;
    lk_callback *callback;
} lki_listener;

/* Those that have a slot for a moment. */
typedef struct lki_moment_listeners {
    lki_listener items[LKI_MAX_CALLBACKS];
    int count;
} lki_moment_listeners;

typedef struct lki_listeners {
    lk_callback *callbacks[LKI_MAX_CALLBACKS]; /* sorted by order */
    int count;
    lki_moment_listeners at[LKI_MOMENT_COUNT];
} lki_listeners;

/* Takes the callback over, also when it fails. */
lk_status lki_run_add_callback(lk_runner *runner, lk_callback *callback_owned);
/* Calls the callbacks that have a slot for the moment. */
lk_status lki_run_call(lk_runner *runner, lki_moment moment);

#endif
