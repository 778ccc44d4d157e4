/* What the callbacks share. */
#ifndef LKI_TRAIN_CALLBACKS_H
#define LKI_TRAIN_CALLBACKS_H

#include <lockstep/callback.h>

#include "train/run.h"

/* A callback with a zeroed context of its own; its ops' free should end in lki_callback_free_context. */
lk_callback *lki_callback_new(const lk_callback_ops *ops, size_t context_nbytes, int order);
void lki_callback_free_context(lk_callback *callback);

/* The number that a decision looks at; keys of NULL are the run's. False where that loader did not run in
 * this epoch. */
bool lki_callback_metric(const lk_runner *runner, const char *loader_key, const char *metric_key,
                         double *out);
lk_status lki_callback_no_metric(const lk_runner *runner, const char *who, const char *loader_key,
                                 const char *metric_key);

/* Which way is better: what the callback says, else what the run says. */
static inline bool lki_callback_minimizes(const lk_runner *runner, bool minimize, bool maximize)
{
    return minimize || (!maximize && runner->minimize_valid_metric);
}

#endif
