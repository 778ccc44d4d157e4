/* What the callbacks share. */
#ifndef LKI_CALLBACKS_CALLBACKS_H
#define LKI_CALLBACKS_CALLBACKS_H

#include <lockstep/callback.h>

#include "run/run.h"

/* A callback with a zeroed context of its own; its ops' free should end in lki_callback_free_context. */
lk_callback *lki_callback_new(const lk_callback_ops *ops, size_t context_nbytes, int order);
void lki_callback_free_context(lk_callback *callback);

/* The number that a decision looks at; keys of NULL are the run's. False where that loader did not run in
 * this epoch. */
bool lki_callback_metric(const lk_runner *runner, const char *loader_key, const char *metric_key,
                         double *out);
lk_status lki_callback_no_metric(const lk_runner *runner, const char *who, const char *loader_key,
                                 const char *metric_key);

/* The samples of a tensor that count, the first ones: the tensor itself, or a part of it in `view`. */
const lk_tensor *lki_callback_counted(const lk_runner *runner, const lk_tensor *tensor, lk_tensor *view);

/* Declares what lk_mean_metric(name) reports. */
lk_status lki_callback_declare_mean(lk_runner *runner, const char *name);

/* Which way is better: what the callback says, else what the run says. */
static inline bool lki_callback_minimizes(const lk_runner *runner, bool minimize, bool maximize)
{
    return minimize || (!maximize && runner->minimize_valid_metric);
}

/* The callback of a metric, with something more to do with it when a loader has ended (NULL for nothing).
 * Owns the metric and `context` (lki_free), also when it fails. */
typedef lk_status (*lki_metric_publish)(lk_runner *runner, lk_metric *metric, void *context);
lk_callback *lki_metric_callback_new(lk_metric *metric, const lk_metric_callback_options *options, int order,
                                     lki_metric_publish publish, void *context);
/* Gives the callback of a metric other keys; fails for another callback. */
lk_status lki_metric_callback_use(lk_callback *callback, const char *input_key, const char *target_key,
                                  bool no_log_on_batch);
lk_metric_options lki_metric_callback_options(const lk_metric_callback_options *options);

/* Callbacks around another one (wrapper.c): it is called where `wants` agrees, with the slots, the order and
 * the name of what it wraps, and carries its state. The beginning and the end of a run are always passed on.
 * Owns inner and context (lki_free), also when it fails; a NULL inner gives NULL. */
typedef struct lki_wrapper lki_wrapper;
typedef struct lki_wrapper_ops {
    /* Required: whether this moment is passed on. */
    bool (*wants)(lki_wrapper *wrapper, lk_runner *runner, lki_moment moment);
    /* Optional: before the inner one starts. */
    lk_status (*start)(lki_wrapper *wrapper, lk_runner *runner);
    /* Optional: what the wrapper itself must remember. */
    lk_status (*save_state)(lki_wrapper *wrapper, lk_state_dict *state, const char *prefix);
    lk_status (*load_state)(lki_wrapper *wrapper, const lk_state_dict *state, const char *prefix);
    /* Optional: frees what the context points at; the context itself is freed after it. */
    void (*fini)(void *context);
    bool decides_at_loader_start; /* `wants` is asked then, also where the inner one has no such slot */
} lki_wrapper_ops;
struct lki_wrapper {
    lk_callback callback; /* first, so that one block is freed */
    lk_callback_ops slots;
    lk_callback *inner;
    const lki_wrapper_ops *ops;
    void *context;
};
lk_callback *lki_wrapper_create(const lki_wrapper_ops *ops, lk_callback *inner_owned, void *context_owned);

/* A copy of a NULL-terminated list of names (wrapper.c); NULL for NULL. */
lk_status lki_names_copy(char ***out, const char *const *names);
void lki_names_free(char **names);

/* What a PeriodicLoader callback is told of the metric that decides in the run; NULL: nothing. The run fails
 * when it starts where it is another one. */
typedef struct lki_deciding {
    const char *loader_key, *metric_key;
    bool says_minimize, minimize;
} lki_deciding;
lk_status lki_periodic_loader_expect(lk_callback *callback, const lki_deciding *decides);

#endif
