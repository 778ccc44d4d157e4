#include "resume/run_terms.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "optim/optimizer.h"
#include "optim/scheduler.h"
#include "run/run.h"
#include "run/run_header.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_GROUPS = 4 }; /* whose numbers are compared */

/* ---- What a run was given ---- */

static void add(lki_terms *terms, bool is_saved_one, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add(lki_terms *terms, bool is_saved_one, const char *name, const char *format, ...)
{
    va_list arguments;
    if (terms->count == LKI_MAX_TERMS) return;
    lki_term *term = &terms->items[terms->count++];
    snprintf(term->name, sizeof term->name, "%s", name);
    term->is_saved_one = is_saved_one;
    va_start(arguments, format);
    lki_vsnprintf(term->value, sizeof term->value, format, arguments);
    va_end(arguments);
}

static void add_group(lki_terms *terms, const lk_optimizer *optimizer, int group)
{
    const lk_hyper *hyper = &optimizer->groups[group].hyper;
    double *momentum = lki_group_momentum(optimizer, group);
    const struct {
        const char *name;
        double value;
        bool is_saved_one;
    } numbers[] = {{"lr", hyper->lr, true},
                   {"momentum", *momentum, true},
                   {"weight_decay", hyper->weight_decay, false},
                   {"dampening", hyper->dampening, false},
                   {"beta2", hyper->beta2, false},
                   {"alpha", hyper->alpha, false},
                   {"eps", hyper->eps, false}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char name[64];
        snprintf(name, sizeof name, group ? "%s of group %d" : "%s", numbers[i].name, group);
        add(terms, numbers[i].is_saved_one, name, "%.12g", numbers[i].value);
    }
}

lki_terms *lki_terms_of(const lk_runner *runner)
{
    static const char *const precisions[] = {[LK_F32] = "fp32", [LK_BF16] = "bf16", [LK_F16] = "fp16"};
    const lki_run *run = runner->run;
    lki_terms *terms = LKI_NEW(lki_terms);
    if (!terms) return NULL;
    add(terms, true, "seed", "%llu", (unsigned long long)runner->seed);
    if (lki_run_shards(runner))
        add(terms, false, "shards", "%d", lki_run_shards(runner));
    else
        add(terms, false, "ranks", "%d", runner->world_size);
    add(terms, false, "num_epochs", "%lld", (long long)runner->num_epochs);
    add(terms, false, "precision", "%s", precisions[run->batch.step_options.precision]);
    for (int i = 0; i < run->loaders.count; i++) {
        char name[64];
        snprintf(name, sizeof name, "batch_size of %.40s", run->loaders.items[i].key);
        add(terms, false, name, "%lld", (long long)lk_loader_batch_size(run->loaders.items[i].loader));
    }
    add(terms, false, "optimizer", "%s", runner->optimizer ? lk_optimizer_name(runner->optimizer) : "none");
    for (int g = 0; runner->optimizer && g < runner->optimizer->group_count && g < MAX_GROUPS; g++)
        add_group(terms, runner->optimizer, g);
    add(terms, false, "scheduler", "%s", runner->scheduler ? lk_scheduler_name(runner->scheduler) : "none");
    return terms;
}

/* ---- In a checkpoint ---- */

lk_status lki_terms_save(const lk_runner *runner, lk_state_dict *state)
{
    const lki_terms *terms = runner->run->resuming.terms;
    for (int i = 0; terms && i < terms->count; i++) {
        LKI_SCOPED char *name = lki_format("run.%s", terms->items[i].name);
        if (!name) return LK_ERR_NOMEM;
        LKI_TRY(lk_state_dict_put_string(state, name, terms->items[i].value));
    }
    return LK_OK;
}

/* NULL where the checkpoint does not say, as those of older versions. */
static const char *saved_value(const lk_state_dict *state, const char *name)
{
    for (int64_t i = 0; i < lk_state_dict_string_count(state); i++) {
        const char *known = lk_state_dict_string_name(state, i);
        if (strncmp(known, "run.", 4) == 0 && strcmp(known + 4, name) == 0)
            return lk_state_dict_get_string(state, known);
    }
    return NULL;
}

/* Without a scheduler the rate stays where it is. */
lk_status lki_terms_check(const lk_runner *runner, const lk_state_dict *state)
{
    const char *saved = saved_value(state, "scheduler");
    const char *own = runner->scheduler ? lk_scheduler_name(runner->scheduler) : NULL;
    if (!saved || !own || strcmp(saved, own) == 0) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "scheduler: the checkpoint was written with %s, this run has %s: go on with the same one, or "
        "start anew from the weights (resume_model of CheckpointCallback, autoresume best)",
        saved, own);
}

static lk_status note_difference(lk_runner *runner, lki_term *term, const char *saved)
{
    char line[256];
    if (term->is_saved_one)
        snprintf(line, sizeof line, "resume: %s %s is not taken: the run goes on as it was begun, with %.60s",
                 term->name, term->value, saved);
    else
        snprintf(line, sizeof line, "resume: %s %s is taken from here on: the run was begun with %.60s",
                 term->name, term->value, saved);
    if (term->is_saved_one && runner->is_master) lki_log(LKI_LOG_WARNING, "%s", line);
    if (term->is_saved_one) snprintf(term->value, sizeof term->value, "%s", saved);
    return lki_header_note(&runner->run->reporting.notes, "%s", line);
}

lk_status lki_terms_restore(lk_runner *runner, const lk_state_dict *state)
{
    lki_terms *terms = runner->run->resuming.terms;
    for (int i = 0; terms && i < terms->count; i++) {
        const char *saved = saved_value(state, terms->items[i].name);
        if (saved && strcmp(saved, terms->items[i].value) != 0)
            LKI_TRY(note_difference(runner, &terms->items[i], saved));
    }
    return LK_OK;
}
