/* Callbacks around another callback: the same slots, called only where the wrapper wants them. */
#include "base/memory.h"
#include "base/status.h"
#include "callbacks/callbacks.h"

static bool is_always_passed_on(lki_moment moment)
{
    return moment == LKI_MOMENT_experiment_start || moment == LKI_MOMENT_experiment_end ||
           moment == LKI_MOMENT_exception;
}

/* The wrapper begins with its callback. */
static lki_wrapper *wrapper_of(lk_callback *callback)
{
    return (lki_wrapper *)callback;
}

static lk_status start_wrapper(lk_callback *callback, lk_runner *runner)
{
    lki_wrapper *wrapper = wrapper_of(callback);
    lk_callback_slot slot = wrapper->inner->ops->on_experiment_start;
    if (wrapper->ops->start) LKI_TRY(wrapper->ops->start(wrapper, runner));
    return slot ? slot(wrapper->inner, runner) : LK_OK;
}

#define X(moment)                                                                                            \
    static lk_status pass_on_##moment(lk_callback *callback, lk_runner *runner)                              \
    {                                                                                                        \
        lki_wrapper *wrapper = wrapper_of(callback);                                                         \
        bool wanted = wrapper->ops->wants(wrapper, runner, LKI_MOMENT_##moment);                             \
        if (!wanted && !is_always_passed_on(LKI_MOMENT_##moment)) return LK_OK;                              \
        lk_callback_slot slot = wrapper->inner->ops->on_##moment;                                            \
        return slot ? slot(wrapper->inner, runner) : LK_OK;                                                  \
    }
LK_MOMENT_LIST(X)
#undef X

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    lki_wrapper *wrapper = wrapper_of(callback);
    if (wrapper->ops->save_state) LKI_TRY(wrapper->ops->save_state(wrapper, state, prefix));
    const lk_callback_ops *inner = wrapper->inner->ops;
    return inner->save_state ? inner->save_state(wrapper->inner, state, prefix) : LK_OK;
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    lki_wrapper *wrapper = wrapper_of(callback);
    if (wrapper->ops->load_state) LKI_TRY(wrapper->ops->load_state(wrapper, state, prefix));
    const lk_callback_ops *inner = wrapper->inner->ops;
    return inner->load_state ? inner->load_state(wrapper->inner, state, prefix) : LK_OK;
}

static void free_context(const lki_wrapper_ops *ops, void *context)
{
    if (context && ops->fini) ops->fini(context);
    lki_free(context);
}

static void free_wrapper(lk_callback *callback)
{
    lki_wrapper *wrapper = wrapper_of(callback);
    lk_callback_free(wrapper->inner);
    free_context(wrapper->ops, wrapper->context);
}

lk_callback *lki_wrapper_create(const lki_wrapper_ops *ops, lk_callback *inner, void *context)
{
    lki_wrapper *wrapper = inner ? LKI_NEW(lki_wrapper) : NULL;
    if (!wrapper) {
        lk_callback_free(inner);
        free_context(ops, context);
        return NULL;
    }
    wrapper->inner = inner;
    wrapper->ops = ops;
    wrapper->context = context;
    wrapper->callback = (lk_callback){
        .ops = &wrapper->slots, .order = inner->order, .declares_metrics = inner->declares_metrics};
    /* What asks for outputs at some batches alone must not be late for them. */
    wrapper->callback.may_lag = inner->may_lag && ops->decides_at_loader_start;
    wrapper->slots =
        (lk_callback_ops){LK_SIZE(lk_callback_ops), .name = inner->ops->name, .save_state = save_state,
                          .load_state = load_state, .free = free_wrapper};
    /* Only what the inner one listens to: the finer moments cost a run its fastest way through a batch. */
#define X(moment)                                                                                            \
    if (inner->ops->on_##moment) wrapper->slots.on_##moment = pass_on_##moment;
    LK_MOMENT_LIST(X)
#undef X
    wrapper->slots.on_experiment_start = ops->start ? start_wrapper : wrapper->slots.on_experiment_start;
    if (ops->decides_at_loader_start) wrapper->slots.on_loader_start = pass_on_loader_start;
    return &wrapper->callback;
}

lk_status lki_names_copy(char ***out, const char *const *names)
{
    int count = 0;
    *out = NULL;
    if (!names) return LK_OK;
    while (names[count]) count++;
    char **copy = LKI_NEW_ARRAY(char *, count + 1);
    for (int i = 0; copy && i < count; i++) {
        copy[i] = lki_strdup(names[i]);
        if (copy[i]) continue;
        lki_names_free(copy);
        return LK_ERR_NOMEM;
    }
    *out = copy;
    return copy ? LK_OK : LK_ERR_NOMEM;
}

void lki_names_free(char **names)
{
    for (int i = 0; names && names[i]; i++) lki_free(names[i]);
    lki_free(names);
}
