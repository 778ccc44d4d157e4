/* Options that change nothing where a run happens to be: on a CPU, or on one rank. They are no mistake, as
 * one config may serve several machines, but nobody should believe that they did something. */
#include "run/run.h"

#include "base/log.h"

#include <string.h>

void lki_run_note_options(const lk_runner *runner, bool has_gpus)
{
    const lk_train_options *options = &runner->run->options;
    bool is_alone = runner->world_size == 1;
    const struct {
        const char *name;
        bool is_idle;
        const char *why;
    } notes[] = {
        {"tf32", options->tf32 && !has_gpus, "it is for GPUs"},
        {"benchmark", options->benchmark && !has_gpus, "it is for GPUs"},
        {"comm", options->comm && strcmp(options->comm, "auto") && is_alone, NULL},
        {"sync_batch_norm", options->sync_batch_norm && is_alone, NULL},
        {"compress_gradients", options->compress_gradients && is_alone, NULL},
        {"check_replicas", options->check_replicas > 0 && is_alone, NULL},
    };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (notes[i].is_idle)
            lki_log(LKI_LOG_WARNING, "%s has no effect here: %s", notes[i].name,
                    notes[i].why ? notes[i].why : "there is one rank; ddp: y or nproc: N starts several");
}
