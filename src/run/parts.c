#include "run/parts.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "data/loader.h"
#include "nn/module.h"
#include "resume/kept_optimizer.h"
#include "resume/part_state.h"
#include "run/run.h"
#include "step/step.h"

#include <lockstep/sys/comm.h>

#include <string.h>

static void free_part(lki_part *part)
{
    lki_step_drop(&part->step, &part->kept);
    lk_module_free(part->model);
    lk_criterion_free(part->criterion);
    lk_optimizer_free(part->optimizer);
    lki_free(part->key);
}

void lki_run_free_parts(lki_parts *parts)
{
    for (int i = 0; i < parts->count; i++) lki_step_drop(&parts->items[i].step, &parts->items[i].kept);
    lk_module_free(parts->models);
    parts->models = NULL;
    for (int i = 0; i < parts->count; i++) free_part(&parts->items[i]);
    parts->count = 0;
}

static lki_part *find_part(const lk_runner *runner, const char *key)
{
    for (int i = 0; i < runner->run->parts.count; i++)
        if (strcmp(runner->run->parts.items[i].key, key) == 0) return &runner->run->parts.items[i];
    return NULL;
}

static lki_part *find_or_add_part(lk_runner *runner, const char *key)
{
    lki_part *part = find_part(runner, key);
    if (part) return part;
    lki_run *run = runner->run;
    if (run->parts.count == LKI_MAX_PARTS)
        return lki_fail_null(LK_ERR_INVALID, "a runner keeps at most %d parts by key", LKI_MAX_PARTS);
    if (!lki_is_utf8(key))
        return lki_fail_null(LK_ERR_INVALID, "the key \"%s\" of a part is not UTF-8: checkpoints name it",
                             key);
    char *copy = lki_strdup(key);
    if (!copy) return NULL;
    part = &run->parts.items[run->parts.count++];
    *part = (lki_part){.key = copy};
    return part;
}

/* A model that is added to a resumed run takes the weights it had; the others have none of their own. */
#define lki_part_added_model                   lki_part_restore_model
#define lki_part_added_criterion(runner, part) LK_OK
#define lki_part_added_optimizer(runner, part) LK_OK

#define DEFINE_PART(type, name)                                                                              \
    lk_status lk_runner_add_##name(lk_runner *runner, const char *key, type *name)                           \
    {                                                                                                        \
        lki_part *part = name ? find_or_add_part(runner, key) : NULL;                                        \
        if (!part || part->name) {                                                                           \
            if (part) lki_fail(LK_ERR_INVALID, "the runner has a " #name " named \"%s\" already", key);      \
            lk_status status = lki_last_status();                                                            \
            lk_##name##_free_part(name);                                                                     \
            return status;                                                                                   \
        }                                                                                                    \
        part->name = name;                                                                                   \
        return lki_part_added_##name(runner, part);                                                          \
    }                                                                                                        \
    type *lk_runner_##name(const lk_runner *runner, const char *key)                                         \
    {                                                                                                        \
        lki_part *part = find_part(runner, key);                                                             \
        return part ? part->name : NULL;                                                                     \
    }

#define lk_model_free_part     lk_module_free
#define lk_criterion_free_part lk_criterion_free
#define lk_optimizer_free_part lk_optimizer_free
DEFINE_PART(lk_module, model)
DEFINE_PART(lk_criterion, criterion)
DEFINE_PART(lk_optimizer, optimizer)

lk_module *lk_runner_models(lk_runner *runner)
{
    lki_parts *parts = &runner->run->parts;
    if (parts->models) return parts->models;
    lk_module *models = lki_module_create("Models", NULL, NULL, 0);
    for (int i = 0; models && i < parts->count; i++)
        if (parts->items[i].model)
            lki_module_note(models, lk_module_add_child(models, parts->items[i].key,
                                                        lk_module_share(parts->items[i].model)));
    return parts->models = lki_module_checked(models);
}

lk_status lki_run_check_all_have_batches(const lk_runner *runner)
{
    const lk_comm *comm = runner->run->ranks.comm;
    lk_pass_size size;
    if (!comm || comm->size == 1 || !runner->batch || runner->is_train_loader) return LK_OK;
    lk_pass_options last = {LK_SIZE(lk_pass_options), .rank = comm->size - 1, .world = comm->size};
    LKI_TRY(lki_loader_check_length(runner->loader, "a step that all ranks make in an evaluation"));
    LKI_TRY(lk_loader_size(runner->loader, &last, &size));
    if (size.batch_count > 0) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "all ranks make a step together, but loader \"%s\" has no batch for some of the %d ranks: "
        "make the step when the experiment starts, or let a train loader come first",
        runner->loader_key, comm->size);
}

/* What the run was asked for and the step does not say by itself. */
static void take_from_run(lk_step_options *own, const lk_runner *runner)
{
    const lk_step_options *run = &runner->run->batch.step_options;
    const lk_scaler_options *scaler = &own->scaler;
    if (!own->engine) own->engine = runner->engine;
    if (!own->comm) own->comm = run->comm;
    if (own->precision == LK_F32) own->precision = run->precision;
    if (scaler->init_scale == 0 && scaler->growth_factor == 0 && scaler->backoff_factor == 0 &&
        scaler->growth_interval == 0 && own->precision == LK_F16)
        own->scaler = run->scaler;
    own->sync_batch_norm = own->sync_batch_norm || run->sync_batch_norm;
    own->compress_gradients = own->compress_gradients || run->compress_gradients;
    if (own->check_replicas == 0) own->check_replicas = run->check_replicas;
}

#undef lk_runner_step /* the header fills in a size that is missing */
lk_step *lk_runner_step(lk_runner *runner, const char *key, const lk_step_options *given)
{
    LKI_TAKE(lk_step_options, options, given, NULL);
    lki_part *part = find_or_add_part(runner, key);
    if (!part) return NULL;
    if (!part->step) {
        take_from_run(&options, runner);
        if (lki_run_check_all_have_batches(runner)) return NULL;
        part->step = lk_step_with(&options);
        if (part->step &&
            (lki_step_restore_kept(part->step, &part->kept) || lki_part_restore_step(runner, part)))
            lki_step_drop(&part->step, &part->kept);
    }
    return part->step;
}

lk_status lki_run_show_params(lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->step) LKI_TRY(lki_step_show_params(runner->step));
    for (int i = 0; i < run->parts.count; i++)
        if (run->parts.items[i].step) LKI_TRY(lki_step_show_params(run->parts.items[i].step));
    return LK_OK;
}
