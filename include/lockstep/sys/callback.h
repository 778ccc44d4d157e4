/* Callbacks: what else happens at the moments of a run.
 *
 * A run calls its callbacks in the order of their `order` (equal ones in the order in which they
 * were given), at Catalyst's moments: experiment { epoch { loader { batch } } }, and at
 * Torchbearer's finer ones inside a training batch: the sample has been loaded, the forward half is
 * done, the loss is known, the gradients are there, the update is made. For *_start the runner's
 * own work comes first; for *_end it follows. A slot that returns a failure ends the run with it.
 *
 * Every slot is optional and runs on the thread that trains; in a distributed run on every rank, so
 * that all ranks see the same collectives; what prints or writes files asks runner->is_master. */
#ifndef LOCKSTEP_SYS_CALLBACK_H
#define LOCKSTEP_SYS_CALLBACK_H

#include <lockstep/checkpoint.h>
#include <lockstep/sized.h>
#include <lockstep/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_runner lk_runner;
typedef struct lk_callback lk_callback;

/* Catalyst's orders. */
enum {
    LK_ORDER_INTERNAL = 0,
    LK_ORDER_METRIC = 10,
    LK_ORDER_AGGREGATION = 20,
    LK_ORDER_BACKWARD = 30,
    LK_ORDER_OPTIMIZER = 40,
    LK_ORDER_SCHEDULER = 50,
    LK_ORDER_CHECKPOINT = 60,
    LK_ORDER_EXTERNAL = 100,
};

/* X(moment): each is one slot of the ops below, on_<moment>. New ones are added at the end. */
#define LK_MOMENT_LIST(X)                                                                                    \
    X(experiment_start)                                                                                      \
    X(epoch_start)                                                                                           \
    X(loader_start)                                                                                          \
    X(batch_start)                                                                                           \
    X(sample)                                                                                                \
    X(forward)                                                                                               \
    X(criterion)                                                                                             \
    X(backward)                                                                                              \
    X(step)                                                                                                  \
    X(batch_end)                                                                                             \
    X(loader_end)                                                                                            \
    X(epoch_end)                                                                                             \
    X(settled)                                                                                               \
    X(experiment_end)                                                                                        \
    X(exception)

typedef lk_status (*lk_callback_slot)(lk_callback *callback, lk_runner *runner);

typedef struct lk_callback_ops {
    size_t struct_size;
    const char *name; /* "EarlyStopping" */
    /* Optional: what resume needs, under names that start with `prefix`, and taking it back. */
    lk_status (*save_state)(lk_callback *callback, lk_state_dict *state, const char *prefix);
    lk_status (*load_state)(lk_callback *callback, const lk_state_dict *state, const char *prefix);
    /* Optional: frees the context. Called once, when the run's callbacks are freed. */
    void (*free)(lk_callback *callback);
    /* Optional, each. Last, so that a later version can add a moment. */
#define X(moment) lk_callback_slot on_##moment;
    LK_MOMENT_LIST(X)
#undef X
} lk_callback_ops;

struct lk_callback {
    const lk_callback_ops *ops;
    void *context; /* the callback's own */
    int order;
    /* Says that on_batch_end and on_settled may be called when the next batch is under way already,
     * which lets a GPU work while the host looks at the last batch. Everything about the batch is
     * as it was (the runner's counters, lk_runner_tensor, batch_metrics), but nothing may be
     * changed for the next one, the weights and the optimizer must not be looked at, and of the
     * outputs only those that were asked for at the first batch of the loader too. Unless all
     * callbacks of a run say so, each batch is waited for. May be set until the experiment has
     * started. */
    bool may_lag;
    /* Says that every metric which it sets is declared in on_experiment_start
     * (lk_runner_declare_metric), if it sets any. If all callbacks say so that have a slot which is
     * called in the loader, a metric that nobody reports is found before the first batch; a name
     * that differs from a known one by a single letter inside a word, always. Else it is found when
     * the loader has ended for the first time. */
    bool declares_metrics;
};

/* A callback of your own. The ops are copied and need no size; the context is yours until it
 * succeeds. NULL with the reason on failure. */
lk_callback *lk_callback_create(const lk_callback_ops *ops, void *context, int order);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_callback_ops)
static inline lk_callback *lk_callback_create_sized_(const lk_callback_ops *ops, void *context, int order)
{
    lk_callback_ops room;
    return lk_callback_create(lk_callback_ops_at_(ops, &room), context, order);
}
#define lk_callback_create lk_callback_create_sized_
#endif
void lk_callback_free(lk_callback *callback);

#ifdef __cplusplus
}
#endif
#endif
