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
    bool rests;
} lki_listener;

/* Those that have a slot for a moment. */
typedef struct lki_moment_listeners {
    lki_listener items[LKI_MAX_CALLBACKS];
    int count;
    bool has_resting; /* some of them are to be left out */
} lki_moment_listeners;

typedef struct lki_listeners {
    lk_callback *callbacks[LKI_MAX_CALLBACKS]; /* sorted by order */
    int count;
    lki_moment_listeners at[LKI_MOMENT_COUNT];
} lki_listeners;

/* Takes the callback over, also when it fails. */
lk_status lki_run_add_callback(lk_runner *runner, lk_callback *callback_owned);
/* For a callback that finds that it has nothing to do at this moment in any batch of the loader: it is not
 * called then until the loader has ended. One that is wrapped in another goes on being called. */
void lki_run_rest(lk_runner *runner, const lk_callback *callback, lki_moment moment);
/* Ends all rests. */
void lki_run_wake(lk_runner *runner);
/* Calls the callbacks that have a slot for the moment. */
lk_status lki_run_call(lk_runner *runner, lki_moment moment);

#endif
