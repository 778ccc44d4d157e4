/* Making and freeing runners, and the parts that a run of several models keeps by key. */
#include "run/run.h"
#include "step/step.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"

#include <string.h>

static void set_keys(lk_runner *runner, const lk_supervised_runner_options *options)
{
    runner->input_key = options->input_key ? options->input_key : "features";
    runner->output_key = options->output_key ? options->output_key : "logits";
    runner->target_key = options->target_key ? options->target_key : "targets";
    runner->loss_key = options->loss_key ? options->loss_key : "loss";
}

/* The library's copy of a custom runner's ops lies behind the runner, in one block. */
typedef struct created_runner {
    lk_runner runner;
    lk_runner_ops ops;
} created_runner;

lk_runner *lk_supervised_runner_with(const lk_supervised_runner_options *given)
{
    LKI_TAKE(lk_supervised_runner_options, options, given, NULL);
    created_runner *made = LKI_NEW(created_runner);
    if (!made) return NULL;
    lk_runner *runner = &made->runner;
    runner->run = LKI_NEW(lki_run);
    runner->batch_metrics = lki_metrics_create();
    runner->epoch_metrics = lki_metrics_create();
    if (!runner->run || !runner->batch_metrics || !runner->epoch_metrics) {
        lk_runner_free(runner);
        return NULL;
    }
    set_keys(runner, &options);
    runner->world_size = 1;
    runner->is_master = true;
    return runner;
}

lk_runner *lk_custom_runner(const lk_runner_ops *given, void *context)
{
    LKI_TAKE(lk_runner_ops, ops, given, NULL);
    lk_runner *runner = lk_supervised_runner();
    if (!runner) return NULL;
    created_runner *made = (created_runner *)runner;
    made->ops = ops;
    runner->ops = &made->ops;
    runner->context = context;
    return runner;
}

static void free_part(lki_part *part)
{
    lki_step_drop(&part->step, &part->kept);
    lk_module_free(part->model);
    lk_criterion_free(part->criterion);
    lk_optimizer_free(part->optimizer);
    lki_free(part->key);
}

void lk_runner_free(lk_runner *runner)
{
    if (!runner) return;
    if (runner->ops && runner->ops->free) runner->ops->free(runner);
    if (runner->run) {
        lki_run_teardown(runner);
        lki_step_drop(&runner->step, &runner->run->kept);
        for (int i = 0; i < runner->run->part_count; i++) free_part(&runner->run->parts[i]);
        lk_engine_close(runner->run->engine);
    }
    lk_module_free(runner->model);
    lk_criterion_free(runner->criterion);
    lk_optimizer_free(runner->optimizer);
    lk_scheduler_free(runner->scheduler);
    lki_metrics_free(runner->batch_metrics);
    lki_metrics_free(runner->epoch_metrics);
    lki_free(runner->run);
    lki_free(runner);
}

static lki_part *find_part(const lk_runner *runner, const char *key)
{
    for (int i = 0; i < runner->run->part_count; i++)
        if (strcmp(runner->run->parts[i].key, key) == 0) return &runner->run->parts[i];
    return NULL;
}

static lki_part *find_or_add_part(lk_runner *runner, const char *key)
{
    lki_part *part = find_part(runner, key);
    if (part) return part;
    lki_run *run = runner->run;
    if (run->part_count == LKI_MAX_PARTS)
        return lki_fail_null(LK_ERR_INVALID, "a runner keeps at most %d parts by key", LKI_MAX_PARTS);
    if (!lki_is_utf8(key))
        return lki_fail_null(LK_ERR_INVALID, "the key \"%s\" of a part is not UTF-8: checkpoints name it",
                             key);
    char *copy = lki_strdup(key);
    if (!copy) return NULL;
    part = &run->parts[run->part_count++];
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

lk_status lki_run_check_all_have_batches(const lk_runner *runner)
{
    const lk_comm *comm = runner->run->comm;
    lk_pass_size size;
    if (!comm || comm->size == 1 || !runner->batch || runner->is_train_loader) return LK_OK;
    lk_pass_options last = {LK_SIZE(lk_pass_options), .rank = comm->size - 1, .world = comm->size};
    LKI_TRY(lk_loader_size(runner->loader, &last, &size));
    if (size.batch_count > 0) return LK_OK;
    return lki_fail(
        LK_ERR_INVALID,
        "all ranks make a step together, but loader \"%s\" has no batch for some of the %d ranks: "
        "make the step when the experiment starts, or let a train loader come first",
        runner->loader_key, comm->size);
}

lk_step *lk_runner_step(lk_runner *runner, const char *key, const lk_step_options *given)
{
    LKI_TAKE(lk_step_options, options, given, NULL);
    lki_part *part = find_or_add_part(runner, key);
    if (!part) return NULL;
    if (!part->step) {
        if (!options.engine) options.engine = runner->engine;
        if (!options.comm) options.comm = runner->run->step_options.comm;
        if (lki_run_check_all_have_batches(runner)) return NULL;
        part->step = lk_step_with(&options);
        if (part->step &&
            (lki_step_take_kept(part->step, &part->kept) || lki_part_restore_step(runner, part)))
            lki_step_drop(&part->step, &part->kept);
    }
    return part->step;
}

const lk_metrics *lk_runner_loader_metrics(const lk_runner *runner, const char *loader_key)
{
    int index = lki_run_find_loader(runner->run, loader_key);
    return index >= 0 && runner->run->loaders[index].has_metrics ? runner->run->loaders[index].metrics : NULL;
}

lk_status lki_run_show_params(lk_runner *runner)
{
    const lki_run *run = runner->run;
    if (runner->step) LKI_TRY(lki_step_show_params(runner->step));
    for (int i = 0; i < run->part_count; i++)
        if (run->parts[i].step) LKI_TRY(lki_step_show_params(run->parts[i].step));
    return LK_OK;
}
