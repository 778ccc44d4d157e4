#include "run/listeners.h"

#include "base/activity.h"
#include "base/status.h"
#include "base/trace.h"
#include "run/parts.h"
#include "run/run.h"

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

/* Who is called when is settled here, not at every batch. */
static void list_all(lki_listeners *listeners)
{
    for (int moment = 0; moment < LKI_MOMENT_COUNT; moment++) {
        lki_moment_listeners *at = &listeners->at[moment];
        at->count = 0;
        at->has_resting = false;
        for (int i = 0; i < listeners->count; i++) {
            lk_callback_slot slot = slot_of(listeners->callbacks[i], (lki_moment)moment);
            if (slot) at->items[at->count++] = (lki_listener){slot, listeners->callbacks[i], false};
        }
    }
}

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
    list_all(listeners);
    return LK_OK;
}

void lki_run_rest(lk_runner *runner, const lk_callback *callback, lki_moment moment)
{
    lki_moment_listeners *at = &runner->run->listeners.at[moment];
    for (int i = 0; i < at->count; i++)
        if (at->items[i].callback == callback) at->has_resting = at->items[i].rests = true;
}

/* When nobody goes through the list. */
static void leave_out_resting(lki_moment_listeners *at)
{
    int kept = 0;
    for (int i = 0; i < at->count; i++)
        if (!at->items[i].rests) at->items[kept++] = at->items[i];
    at->count = kept;
    at->has_resting = false;
}

void lki_run_wake(lk_runner *runner)
{
    list_all(&runner->run->listeners);
}

/* Whether a callback may look at the weights: all may, but for those that have said they come late. */
static bool may_look_at_weights(const lk_callback *callback, lki_moment moment)
{
    return !callback->may_lag || (moment != LKI_MOMENT_batch_end && moment != LKI_MOMENT_settled);
}

static const char *moment_name(lki_moment moment)
{
    static const char *const names[] = {
#define X(name) #name,
        LK_MOMENT_LIST(X)
#undef X
    };
    return names[moment];
}

lk_status lki_run_call(lk_runner *runner, lki_moment moment)
{
    lki_moment_listeners *at = &runner->run->listeners.at[moment];
    bool are_shown = false;
    lki_activity_words before = lki_activity_current();
    for (int i = 0; i < at->count; i++) {
        const lki_listener *listener = &at->items[i];
        unsigned long said = lki_fail_count();
        if (!are_shown && may_look_at_weights(listener->callback, moment)) {
            LKI_TRY(lki_run_show_params(runner));
            are_shown = true;
        }
        const char *name = listener->callback->ops->name;
        int64_t begin_ns = lki_trace_begin();
        lki_activity_set("in callback ", name);
        LKI_TRY(lki_fail_if_silent(listener->slot(listener->callback, runner), said, "callback", name));
        if (begin_ns) lki_trace_finish(LKI_TRACE_CALLBACK, name, moment_name(moment), begin_ns);
    }
    if (at->count) lki_activity_set(before.what, before.name);
    if (at->has_resting) leave_out_resting(at);
    return LK_OK;
}
