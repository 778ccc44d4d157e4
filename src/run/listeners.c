#include "run/listeners.h"

#include "base/status.h"
#include "run/parts.h"
#include "run/run.h"

lk_status lki_run_add_callback(lk_runner *runner, lk_callback *callback)
{
    lki_listeners *listeners = &runner->run->listeners;
    if (!callback) return lki_last_status();
    if (listeners->count == LKI_MAX_CALLBACKS) {
        lk_callback_free(callback);
        return lki_fail(LK_ERR_INVALID, "a run has at most %d callbacks", LKI_MAX_CALLBACKS);
    }
    /* Sorted by order, those of equal order as they came. */
    int place = listeners->count++;
    for (; place > 0 && listeners->callbacks[place - 1]->order > callback->order; place--)
        listeners->callbacks[place] = listeners->callbacks[place - 1];
    listeners->callbacks[place] = callback;
#define X(moment) listeners->hears[LKI_MOMENT_##moment] |= callback->ops->on_##moment != NULL;
    LK_MOMENT_LIST(X)
#undef X
    return LK_OK;
}

static lk_callback_slot slot_of(const lk_callback *callback, lki_moment moment)
{
    switch (moment) {
#define X(name)                                                                                              \
    case LKI_MOMENT_##name: return callback->ops->on_##name;
        LK_MOMENT_LIST(X)
#undef X
    case LKI_MOMENT_COUNT: break;
    }
    return NULL;
}

/* Whether a callback may look at the weights: all may, but for those that have said they come late. */
static bool may_look_at_weights(const lk_callback *callback, lki_moment moment)
{
    return !callback->may_lag || (moment != LKI_MOMENT_batch_end && moment != LKI_MOMENT_settled);
}

lk_status lki_run_call(lk_runner *runner, lki_moment moment)
{
    lki_run *run = runner->run;
    bool are_shown = false;
    if (!run->listeners.hears[moment]) return LK_OK;
    for (int i = 0; i < run->listeners.count; i++) {
        lk_callback_slot slot = slot_of(run->listeners.callbacks[i], moment);
        unsigned long said = lki_fail_count();
        if (!slot) continue;
        if (!are_shown && may_look_at_weights(run->listeners.callbacks[i], moment)) {
            LKI_TRY(lki_run_show_params(runner));
            are_shown = true;
        }
        LKI_TRY(lki_fail_if_silent(slot(run->listeners.callbacks[i], runner), said, "callback",
                                   run->listeners.callbacks[i]->ops->name));
    }
    return LK_OK;
}
