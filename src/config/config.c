#include "config/config.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/suggest.h"
#include "config/registry.h"
#include "run/loaders.h"

#include <string.h>

lk_config *lk_config_create(void)
{
    return LKI_NEW(lk_config);
}

void lk_config_free(lk_config *config)
{
    if (!config) return;
    lki_tree_fini(&config->tree);
    lki_free(config);
}

lk_status lk_config_load(lk_config *config, const char *path)
{
    return lki_tree_read_file(&config->tree, path);
}

lk_status lk_config_load_text(lk_config *config, const char *name, const char *text)
{
    return lki_tree_read_text(&config->tree, name, text, strlen(text));
}

lk_status lk_config_override(lk_config *config, const char *assignment)
{
    LKI_SCOPED char *name = lki_format("--%s", assignment);
    return name ? lki_tree_override(&config->tree, name, assignment) : LK_ERR_NOMEM;
}

/* The library's own calls are the runner's; added ones may have no use for it. */
static bool needs_runner(const lki_node *run)
{
    for (int i = 0; i < run->count; i++)
        if (!lki_component_is_added(lki_node_object(run->entries[i].value)->component)) return true;
    return false;
}

static const lki_node *value_of(const lki_object *call, const char *parameter)
{
    int index = lki_component_parameter_index(call->component, parameter);
    return index < 0 ? NULL : call->values[index];
}

/* A call that names one of its own loaders has that loader. */
static lk_status check_valid_loader(const lki_object *call)
{
    const lki_node *loaders = value_of(call, "loaders"), *key = value_of(call, "valid_loader");
    bool is_map = loaders && loaders->kind == LKI_NODE_MAP && !loaders->object;
    char hint[160];
    if (lki_node_is_null(key) || !is_map || !loaders->count || lki_node_get(loaders, key->text)) return LK_OK;
    lki_suggestion near = {.wanted = key->text};
    for (int i = 0; i < loaders->count; i++) lki_suggest_offer(&near, loaders->entries[i].key);
    return lki_fail_at(key->place, "valid_loader: there is no loader \"%.60s\"%s", key->text,
                       lki_suggest_text(&near, hint, sizeof hint));
}

/* Keys of loaders become names of files. */
static lk_status check_loader_keys(const lki_object *owner)
{
    const lki_node *loaders = owner ? value_of(owner, "loaders") : NULL;
    bool is_map = loaders && loaders->kind == LKI_NODE_MAP && !loaders->object;
    for (int i = 0; is_map && i < loaders->count; i++) {
        const lki_entry *entry = &loaders->entries[i];
        const char *fault = lki_loader_key_fault(entry->key);
        if (fault) return lki_fail_at(entry->place, "loader \"%.100s\": %s", entry->key, fault);
    }
    return LK_OK;
}

static bool is_among(const lki_object *owner, const char *parameter, const lki_object *wanted)
{
    const lki_object *object;
    for (int i = 0; (object = lki_object_argument(owner, parameter, i)); i++)
        if (object == wanted) return true;
    return false;
}

/* A schedule changes the rate of the run's optimizer. One that it names must be that: another would not be
 * trained with. */
static lk_status check_schedule(const lki_object *owner, const lki_object *schedule)
{
    const lki_object *inner, *optimizer = lki_object_argument(schedule, "optimizer", 0);
    if (optimizer && !is_among(owner, "optimizer", optimizer))
        return lki_fail_at(value_of(schedule, "optimizer")->place,
                           "%s: optimizer: it is not the one that %s trains with: name that one, as in "
                           "optimizer: {_var_: optimizer}, or leave it out",
                           schedule->called, owner->called);
    for (int i = 0; (inner = lki_object_argument(schedule, "schedulers", i)); i++)
        LKI_TRY(check_schedule(owner, inner));
    inner = lki_object_argument(schedule, "then", 0);
    return inner ? check_schedule(owner, inner) : LK_OK;
}

static lk_status check_schedules(const lki_object *owner)
{
    const lki_object *schedule = owner ? lki_object_argument(owner, "scheduler", 0) : NULL;
    return schedule ? check_schedule(owner, schedule) : LK_OK;
}

static lk_status check_call(const lki_object *call)
{
    LKI_TRY(check_schedules(call));
    LKI_TRY(check_schedules(lki_object_argument(call, "estimator", 0)));
    LKI_TRY(check_valid_loader(call));
    LKI_TRY(check_loader_keys(call));
    return check_loader_keys(lki_object_argument(call, "estimator", 0));
}

/* `lockstep tune` takes the study out, and puts values in the place of what a trial suggests. */
static lk_status check_no_study(const lki_node *root)
{
    const lki_node *study = lki_node_get(root, "study"), *target = lki_node_get(study, "_target_");
    bool is_optuna = target && target->kind == LKI_NODE_SCALAR && !strncmp(target->text, "optuna.", 7);
    return is_optuna ? lki_fail_at(study->place, "study: this config is for `lockstep tune`") : LK_OK;
}

lk_status lki_config_plan(lk_config *config, lki_plan *plan)
{
    const lki_node *root = config->tree.root;
    *plan = (lki_plan){.tree = &config->tree};
    LKI_TRY(lki_components_offered());
    if (!root) return lki_fail(LK_ERR_CONFIG, "the config is empty");
    LKI_TRY(check_no_study(root));
    LKI_TRY(lki_datasets_to_loaders(plan->tree));
    LKI_TRY(lki_plan_make(plan));
    const lki_node *runner = lki_node_get(root, "runner"), *run = lki_node_get(root, "run");
    if (!runner && (!run || needs_runner(run)))
        return lki_fail_at(root->place, "\"runner\" is missing: what to train with");
    if (!run || !run->count)
        return lki_fail_at(root->place, "\"run\" is missing: the calls to make, as in `- _call_: train`");
    for (int i = 0; i < run->count; i++) LKI_TRY(check_call(lki_node_object(run->entries[i].value)));
    if (!runner) return lki_plan_check_top(plan);
    plan->runner = lki_node_object(runner);
    if (!plan->runner || plan->runner->component->kind != LK_KIND_RUNNER)
        return lki_fail_at(runner->place, "runner: expected a runner, as in `_target_: SupervisedRunner`");
    return lki_plan_check_top(plan);
}

lk_status lk_config_check(lk_config *config)
{
    lki_plan plan;
    lk_status status = lki_config_plan(config, &plan);
    lki_plan_fini(&plan);
    return status;
}

lk_status lk_config_write(const lk_config *config, const char *path)
{
    char *text = NULL;
    LKI_TRY(lki_tree_to_yaml(&config->tree, &text));
    lk_status status = lki_write_file_atomic(path, text, strlen(text));
    lki_free(text);
    return status;
}
