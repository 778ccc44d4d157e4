#include "step/divided_update.h"

#include "base/status.h"
#include "comm/reduction.h"

bool lki_step_may_divide(const lk_step *step)
{
    const lk_step_options *options = &step->options;
    return options->comm && options->comm->size > 1 && step->backend->ops->on_host &&
           lki_update_divides(options->optimizer);
}

/* The same place of every other rank's parameters. */
static void hand_out(const lk_step *step, const char *data, size_t nbytes)
{
    const lk_comm *comm = step->options.comm;
    size_t offset = (size_t)(data - (const char *)lk_comm_window_block(step->flat.window, comm->rank));
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank)
            lki_stream((char *)lk_comm_window_block(step->flat.window, r) + offset, data, nbytes);
}

lk_status lki_step_divided_update(lk_step *step)
{
    lki_update *update = &step->update;
    LKI_TRY(lki_update_prepare(update));
    LKI_TRY(lk_comm_barrier(step->options.comm)); /* nobody reads parameters any more */
    for (int i = 0; i < update->call_count - update->first_rule; i++) {
        void *data;
        size_t nbytes;
        LKI_TRY(lki_update_apply_call(update, i, &data, &nbytes));
        hand_out(step, data, nbytes);
    }
    return lk_comm_barrier(step->options.comm); /* all of them are new */
}
