/* Which calls of a step are computed by plain kernels, as lines for who asked for all that there is. */
#include "run/op_text.h"
#include "run/run.h"
#include "run/screen.h"

#include "graph/plan.h"
#include "step/step.h"

static void print_calls(FILE *out, const lk_step *step, bool training)
{
    const lki_plan *plan = step->current->plan;
    const lki_update *update = &step->update;
    for (int c = 0; c < lki_plan_call_count(plan); c++) {
        const lk_call *call = lki_plan_call(plan, c);
        if (call->fallback)
            lki_print_fallback(out, "", lk_op_name(call->op), lki_plan_call_layer(plan, c), call->fallback);
    }
    for (int i = 0; training && i < update->call_count; i++)
        if (update->calls[i].fallback)
            lki_print_fallback(out, "", lk_op_name(update->calls[i].op), lk_optimizer_name(update->optimizer),
                               update->calls[i].fallback);
}

lk_status lki_screen_note_fallbacks(lk_runner *runner)
{
    lki_screen *screen = &runner->run->screen;
    const lk_step *step = runner->step;
    bool *noted = &screen->noted_fallbacks[runner->is_train_loader];
    FILE *file = runner->run->reporting.log_file;
    bool shows = screen->level == LK_SHOW_ALL && runner->is_master && step && step->current;
    if (!shows || *noted) return LK_OK;
    *noted = true;
    lki_progress_clear(&screen->progress);
    print_calls(stdout, step, runner->is_train_loader);
    fflush(stdout);
    if (file) print_calls(file, step, runner->is_train_loader);
    return LK_OK;
}
