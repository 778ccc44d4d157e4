/* The tensors of a batch by key, for the library's own callbacks, which ask at every batch. */
#ifndef LKI_RUN_BATCH_TENSOR_H
#define LKI_RUN_BATCH_TENSOR_H

#include "data/batch_fields.h"
#include "run/run.h"
#include "step/step.h"

/* Asks the step once per batch: several metrics may look at one output. */
static inline const lk_tensor *lki_run_output(lki_run_batch *known, lk_step *step, const char *key)
{
    if (known->outputs_of != step->batch_count) known->output_count = 0;
    known->outputs_of = step->batch_count;
    for (int i = 0; i < known->output_count; i++)
        if (strcmp(known->outputs[i].key, key) == 0) return known->outputs[i].tensor;
    const lk_tensor *output = lk_step_output(step, key);
    if (output && known->output_count < LKI_MAX_MADE)
        known->outputs[known->output_count++] = (lki_made){key, output};
    return output;
}

/* What a callback has made of the batch, or a field of it; NULL if there is none of that name. */
static inline const lk_tensor *lki_run_made_or_field(const lk_runner *runner, const char *key)
{
    const lki_run_batch *known = &runner->run->batch;
    for (int i = 0; i < known->made_count; i++)
        if (strcmp(known->made[i].key, key) == 0) return known->made[i].tensor;
    return lki_batch_get(runner->batch, key);
}

/* As lk_runner_tensor, for a `key` that lives as long as the run. */
static inline const lk_tensor *lki_run_tensor(lk_runner *runner, const char *key)
{
    const lk_tensor *tensor = lki_run_made_or_field(runner, key);
    return tensor || !runner->step ? tensor : lki_run_output(&runner->run->batch, runner->step, key);
}

#endif
