/* The configs of a study: of a trial, of the check before the first one, and of the best values. */
#include "cli/tune.h"

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *lki_tune_value_text(const lki_tune_parameter *parameter, double value)
{
    char text[64];
    if (parameter->choices) return lki_strdup(parameter->choices[(int)value]);
    bool is_whole = parameter->is_cut || parameter->range.kind == LKI_RANGE_INT;
    lki_snprintf(text, sizeof text, is_whole ? "%.0f" : "%.6g", parameter->is_cut ? trunc(value) : value);
    return lki_strdup(text);
}

static lk_status override(lk_config *config, const char *path, const char *value)
{
    LKI_SCOPED char *assignment = lki_format("%s=%s", path, value);
    return assignment ? lk_config_override(config, assignment) : LK_ERR_NOMEM;
}

/* What stands at a path from the top; NULL where nothing does. */
static const lki_node *node_at(const lki_node *node, const char *path)
{
    while (node && *path) {
        size_t length = strcspn(path, "/");
        LKI_SCOPED char *part = lki_strndup(path, length);
        int64_t index = -1;
        if (node->kind == LKI_NODE_LIST && part && lki_parse_int(part, &index) && index < node->count)
            node = index >= 0 ? node->entries[index].value : NULL;
        else
            node = part ? lki_node_get(node, part) : NULL;
        path += length + (path[length] == '/');
    }
    return node;
}

/* A suggestion that was an alias of one which has its value by now has it, too. */
static bool is_still_suggested(const lk_config *config, const char *path)
{
    const lki_node *node = node_at(config->tree.root, path);
    return node && (lki_node_get(node, "_var_") || lki_tune_is_call(node));
}

static const char *type_of(const lki_tune_parameter *parameter, double value)
{
    return parameter->choices && parameter->are_texts[(int)value] ? ":str" : "";
}

static lk_status set_value(const lki_tuning *tuning, lk_config *config, int parameter, double value)
{
    const lki_tune_parameter *p = &tuning->parameters[parameter];
    LKI_SCOPED char *text = lki_tune_value_text(p, value);
    LKI_SCOPED char *typed = text ? lki_format("%s%s", text, type_of(p, value)) : NULL;
    if (!typed) return LK_ERR_NOMEM;
    for (int i = 0; i < p->path_count; i++)
        if (i == 0 || is_still_suggested(config, p->paths[i])) LKI_TRY(override(config, p->paths[i], typed));
    return LK_OK;
}

lk_status lki_tune_set_values(const lki_tuning *tuning, lk_config *config, const double *values)
{
    for (int i = 0; i < tuning->parameter_count; i++) LKI_TRY(set_value(tuning, config, i, values[i]));
    return LK_OK;
}

char *lki_tune_logdir_of(const lki_tuning *tuning, const lki_trial *trial)
{
    return lki_format("%s/trial_%04d", tuning->logdir, trial->number);
}

/* ---- A trial ---- */

static lk_status override_call(const lki_tuning *tuning, int call, const char *key, const char *value,
                               const char *type)
{
    LKI_SCOPED char *path = lki_format("run/%d/%s", call, key);
    LKI_SCOPED char *text = lki_format("%s%s", value, type);
    return path && text ? override(tuning->config, path, text) : LK_ERR_NOMEM;
}

/* The settings, for the loggers and the board's comparison of runs. */
static lk_status set_hparams(const lki_tuning *tuning, int call, const lki_trial *trial)
{
    for (int i = 0; i < tuning->parameter_count; i++) {
        const lki_tune_parameter *parameter = &tuning->parameters[i];
        LKI_SCOPED char *key = lki_format("hparams/%s", parameter->name);
        LKI_SCOPED char *text = lki_tune_value_text(parameter, trial->values[i]);
        if (!key || !text) return LK_ERR_NOMEM;
        bool is_text = parameter->choices && (strpbrk(text, "{[") || *type_of(parameter, trial->values[i]));
        LKI_TRY(override_call(tuning, call, key, text, is_text ? ":str" : ""));
    }
    return LK_OK;
}

/* A trial that was interrupted goes on from its last checkpoint, else from its start. */
static lk_status set_place(const lki_tuning *tuning, int call, const char *logdir)
{
    LKI_SCOPED char *last = lki_format("%s/checkpoints/runner.last.safetensors", logdir);
    LKI_SCOPED char *older = lki_format("%s/checkpoints/runner.last.1.safetensors", logdir);
    if (!last || !older) return LK_ERR_NOMEM;
    bool is_there = access(last, F_OK) == 0 || access(older, F_OK) == 0;
    LKI_TRY(override_call(tuning, call, "logdir", logdir, ":str"));
    LKI_TRY(override_call(tuning, call, "resume", "null", ""));
    LKI_TRY(override_call(tuning, call, "overwrite", is_there ? "n" : "y", ""));
    return override_call(tuning, call, "autoresume", is_there ? "last" : "null", "");
}

lk_status lki_tune_become_trial(const lki_tuning *tuning, const lki_trial *trial)
{
    LKI_SCOPED char *logdir = lki_tune_logdir_of(tuning, trial);
    if (!logdir) return LK_ERR_NOMEM;
    LKI_TRY(lki_tune_set_values(tuning, tuning->config, trial->values));
    const lki_node *calls = lki_node_get(tuning->config->tree.root, "run");
    int count = calls->count;
    for (int i = 0; i < count; i++) {
        calls = lki_node_get(tuning->config->tree.root, "run");
        const lki_node *name = lki_node_get(calls->entries[i].value, "_call_");
        if (!name || name->kind != LKI_NODE_SCALAR || strcmp(name->text, "train") != 0) continue;
        LKI_SCOPED char *others = lki_format("%s.call_%d", logdir, i);
        if (!others) return LK_ERR_NOMEM;
        LKI_TRY(set_hparams(tuning, i, trial));
        LKI_TRY(set_place(tuning, i, i == tuning->call ? logdir : others));
    }
    return LK_OK;
}

/* ---- Before the first trial ---- */

/* An override leaves the source of before whole, and planning changes only what that means. */
static lk_status check_values(const lki_tuning *tuning, const double *values)
{
    lki_tree *tree = &tuning->config->tree;
    lki_node *source = tree->source;
    lki_error first = {0};
    lk_status status = lki_error_keep(&first, lki_tune_set_values(tuning, tuning->config, values));
    if (!status) lki_error_keep(&first, lk_config_check(tuning->config));
    tree->source = source;
    LKI_TRY(lki_tree_resolve(tree));
    return lki_error_restore(&first);
}

/* With one parameter after the other at its ends, or at each of its choices. */
lk_status lki_tune_check(const lki_tuning *tuning)
{
    double values[LKI_TUNE_MAX_PARAMETERS];
    for (int i = 0; i < tuning->parameter_count; i++) values[i] = tuning->parameters[i].range.low;
    LKI_TRY(check_values(tuning, values));
    for (int i = 0; i < tuning->parameter_count; i++) {
        const lki_range *range = &tuning->parameters[i].range;
        double step = range->kind == LKI_RANGE_CHOICE ? 1 : range->high - range->low;
        for (double value = range->low + step; step > 0 && value <= range->high; value += step) {
            values[i] = value;
            LKI_TRY(check_values(tuning, values));
        }
        values[i] = range->low;
    }
    return LK_OK;
}

/* ---- The study's file ---- */

static json_t *describe_parameter(const lki_tune_parameter *parameter)
{
    json_t *paths = json_array(), *object = json_object();
    for (int i = 0; i < parameter->path_count; i++)
        json_array_append_new(paths, json_string(parameter->paths[i]));
    json_object_set_new(object, "name", json_string(parameter->name));
    json_object_set_new(object, "paths", paths);
    if (parameter->choices) {
        json_t *choices = json_array();
        for (int i = 0; i <= (int)parameter->range.high; i++)
            json_array_append_new(choices, json_string(parameter->choices[i]));
        json_object_set_new(object, "choices", choices);
        return object;
    }
    json_object_set_new(object, "int", json_boolean(parameter->range.kind == LKI_RANGE_INT));
    json_object_set_new(object, "low", json_real(parameter->range.low));
    json_object_set_new(object, "high", json_real(parameter->range.high));
    json_object_set_new(object, "log", json_boolean(parameter->range.log));
    if (parameter->is_cut) json_object_set_new(object, "is_cut", json_true());
    json_object_set_new(object, "step", json_real(parameter->range.step));
    json_object_set_new(object, "points", json_integer(parameter->range.points));
    return object;
}

static json_t *describe_search(const lki_tuning *tuning)
{
    static const char *const names[] = {"random", "grid", "tpe"};
    const lki_search *search = &tuning->search;
    if (search->kind != LKI_SEARCH_TPE) return json_pack("{s:s}", "kind", names[search->kind]);
    return json_pack("{s:s, s:i, s:i}", "kind", names[search->kind], "n_startup_trials",
                     search->startup_trials, "n_ei_candidates", search->candidates);
}

static json_t *describe_pruner(const lki_pruner *pruner)
{
    if (pruner->kind == LKI_PRUNER_MEDIAN)
        return json_pack("{s:s, s:i, s:i, s:i}", "kind", "median", "n_startup_trials", pruner->startup_trials,
                         "n_warmup_steps", pruner->warmup_epochs, "interval_steps", pruner->interval_epochs);
    if (pruner->kind == LKI_PRUNER_HALVING)
        return json_pack("{s:s, s:i, s:i, s:i}", "kind", "halving", "min_resource", pruner->min_epochs,
                         "reduction_factor", pruner->reduction_factor, "min_early_stopping_rate",
                         pruner->early_stopping_rate);
    return json_pack("{s:s}", "kind", "none");
}

/* A number that changes with the rest of the config. The logdir may move. */
static lk_status hash_config(const lki_tuning *tuning, uint32_t *out)
{
    char *text = NULL;
    LKI_TRY(lki_tree_to_yaml(&tuning->config->tree, &text));
    *out = lki_crc32c(0, text, strlen(text));
    lki_free(text);
    return LK_OK;
}

char *lki_tune_describe(const lki_tuning *tuning)
{
    uint32_t hash;
    if (hash_config(tuning, &hash)) return NULL;
    json_t *parameters = json_array();
    for (int i = 0; i < tuning->parameter_count; i++)
        json_array_append_new(parameters, describe_parameter(&tuning->parameters[i]));
    LKI_SCOPED char *metric = lki_format("%s/%s", tuning->loader_key, tuning->metric_key);
    json_t *object = json_pack(
        "{s:i, s:s, s:b, s:I, s:o, s:o, s:o, s:I}", "study", 1, "metric", metric ? metric : "", "minimize",
        tuning->minimize, "seed", (json_int_t)tuning->seed, "search", describe_search(tuning), "pruner",
        describe_pruner(&tuning->pruner), "parameters", parameters, "config", (json_int_t)hash);
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    char *kept = lki_strdup(text);
    json_decref(object);
    free(text);
    if (!kept) lki_fail(LK_ERR_NOMEM, "out of memory for the description of the study");
    return kept;
}

/* ---- The best values ---- */

static bool is_pruning(const lki_node *node)
{
    const lki_node *name = node->kind == LKI_NODE_MAP ? lki_node_get(node, "_target_") : node;
    const lk_component *component =
        name && name->kind == LKI_NODE_SCALAR ? lk_component_find(name->text) : NULL;
    return component && !strcmp(component->name, "OptunaPruning");
}

/* A callback that reports to a study has no place in a run of its own. */
static void drop_pruning(lki_node *call)
{
    lki_node *callbacks = lki_node_get(call, "callbacks");
    int kept = 0;
    if (!callbacks || callbacks->kind == LKI_NODE_SCALAR) return;
    for (int i = 0; i < callbacks->count; i++)
        if (!is_pruning(callbacks->entries[i].value)) callbacks->entries[kept++] = callbacks->entries[i];
    callbacks->count = kept;
}

/* Whether something below is an object that others refer to by its name. */
static bool names_object(const lki_node *node)
{
    if (lki_node_get(node, "_target_") && lki_node_get(node, "_var_")) return true;
    for (int i = 0; i < node->count; i++)
        if (names_object(node->entries[i].value)) return true;
    return false;
}

/* What was written for its anchors alone: there are no aliases any more. */
static void drop_anchors(lki_node *root)
{
    int kept = 0;
    for (int i = 0; i < root->count; i++) {
        const char *key = root->entries[i].key;
        if (!strcmp(key, "runner") || !strcmp(key, "run") || names_object(root->entries[i].value))
            root->entries[kept++] = root->entries[i];
    }
    root->count = kept;
}

lk_status lki_tune_write_best(const lki_tuning *tuning, const lki_trial *best, const char *path)
{
    LKI_SCOPED char *logdir = lki_format("%s/best", tuning->logdir);
    lki_tree *tree = &tuning->config->tree;
    if (!logdir) return LK_ERR_NOMEM;
    LKI_TRY(lki_tune_set_values(tuning, tuning->config, best->values));
    LKI_TRY(override_call(tuning, tuning->call, "logdir", logdir, ":str"));
    drop_pruning(lki_node_get(tree->root, "run")->entries[tuning->call].value);
    drop_anchors(tree->root);
    return lk_config_write(tuning->config, path);
}
