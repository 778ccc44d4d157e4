/* The sections `tune` and `study` of a config. `study` is Optuna's, as `catalyst-dl tune` reads it. */
#include "cli/tune.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"

#include <stddef.h>
#include <string.h>

enum { DEFAULT_TRIALS = 20, DEFAULT_FAILURES = 5, DEFAULT_SEED = 42, MAX_INT = 1000000000 };

/* ---- Maps ---- */

static lk_status read_key(const lki_entry *entry, const lki_tune_key *key, void *out)
{
    void *at = (char *)out + key->offset;
    const char *name = entry->key;
    if (lki_node_is_null(entry->value)) return LK_OK;
    switch (key->type) {
    case LKI_TUNE_FLOAT: return lki_node_float(entry->value, name, at);
    case LKI_TUNE_BOOL: return lki_node_bool(entry->value, name, at);
    case LKI_TUNE_TEXT: return lki_node_string(entry->value, name, at);
    case LKI_TUNE_NODE: *(const lki_node **)at = entry->value; return LK_OK;
    case LKI_TUNE_INT: break;
    }
    LKI_TRY(lki_node_int(entry->value, name, at));
    int64_t value = *(int64_t *)at;
    if (value >= key->minimum && value <= MAX_INT) return LK_OK;
    return lki_fail_at(entry->value->place, "%s: expected an integer from %lld to %d, found %lld", name,
                       (long long)key->minimum, MAX_INT, (long long)value);
}

lk_status lki_tune_read_map(const lki_node *map, const char *what, const lki_tune_key *keys, void *out)
{
    char found[LKI_DESCRIBE_CAPACITY], hint[160];
    if (map->kind != LKI_NODE_MAP)
        return lki_fail_at(map->place, "%s: expected a map, found %s", what,
                           lki_node_describe(map, found, sizeof found));
    for (int i = 0; i < map->count; i++) {
        const lki_tune_key *key = keys;
        lki_suggestion near = {.wanted = map->entries[i].key};
        for (; key->name && strcmp(key->name, near.wanted) != 0; key++) lki_suggest_offer(&near, key->name);
        if (!key->name)
            return lki_fail_at(map->entries[i].place, "%s: unknown key \"%s\"%s", what, near.wanted,
                               lki_suggest_text(&near, hint, sizeof hint));
        LKI_TRY(read_key(&map->entries[i], key, out));
    }
    return LK_OK;
}

/* ---- Searches and pruners ---- */

typedef struct part_values {
    const char *target;
    int64_t seed, startup, candidates, warmup, interval, resource, factor, rate;
    const lki_node *bootstrap;
} part_values;

#define PART(field) offsetof(part_values, field)
#define TARGET                                                                                               \
    {                                                                                                        \
        "_target_", LKI_TUNE_TEXT, PART(target), 0                                                           \
    }
#define SEED                                                                                                 \
    {                                                                                                        \
        "seed", LKI_TUNE_INT, PART(seed), 0                                                                  \
    }
static const lki_tune_key seed_keys[] = {TARGET, SEED, {0}};
static const lki_tune_key tpe_keys[] = {TARGET,
                                        SEED,
                                        {"n_startup_trials", LKI_TUNE_INT, PART(startup), 1},
                                        {"n_ei_candidates", LKI_TUNE_INT, PART(candidates), 1},
                                        {0}};
static const lki_tune_key no_keys[] = {TARGET, {0}};
static const lki_tune_key median_keys[] = {TARGET,
                                           {"n_startup_trials", LKI_TUNE_INT, PART(startup), 0},
                                           {"n_warmup_steps", LKI_TUNE_INT, PART(warmup), 0},
                                           {"interval_steps", LKI_TUNE_INT, PART(interval), 1},
                                           {0}};
static const lki_tune_key halving_keys[] = {TARGET,
                                            {"min_resource", LKI_TUNE_INT, PART(resource), 1},
                                            {"reduction_factor", LKI_TUNE_INT, PART(factor), 2},
                                            {"min_early_stopping_rate", LKI_TUNE_INT, PART(rate), 0},
                                            {0}};

typedef struct part_kind {
    const char *name, *optuna; /* "tpe", "TPESampler" */
    int kind;
    const lki_tune_key *keys;
} part_kind;

static const part_kind searches[] = {{"random", "RandomSampler", LKI_SEARCH_RANDOM, seed_keys},
                                     {"grid", "GridSampler", LKI_SEARCH_GRID, no_keys},
                                     {"tpe", "TPESampler", LKI_SEARCH_TPE, tpe_keys},
                                     {0}};
static const part_kind pruners[] = {{"none", "NopPruner", LKI_PRUNER_NONE, no_keys},
                                    {"median", "MedianPruner", LKI_PRUNER_MEDIAN, median_keys},
                                    {"halving", "SuccessiveHalvingPruner", LKI_PRUNER_HALVING, halving_keys},
                                    {0}};

/* "tpe", "TPESampler", "optuna.samplers.TPESampler". */
static const part_kind *find_kind(const part_kind *kinds, const char *name)
{
    const char *dot = strrchr(name, '.'), *last = !strncmp(name, "optuna.", 7) && dot ? dot + 1 : name;
    for (; kinds->name; kinds++)
        if (!strcmp(kinds->name, last) || !strcmp(kinds->optuna, last)) return kinds;
    return NULL;
}

/* A name, or a map with `_target_`. */
static lk_status read_part(const lki_node *node, const char *what, const part_kind *kinds,
                           const part_kind **kind, part_values *values)
{
    const lki_node *name = node->kind == LKI_NODE_MAP ? lki_node_get(node, "_target_") : node;
    const char *text = NULL;
    if (!name) return lki_fail_at(node->place, "%s: _target_ is missing", what);
    LKI_TRY(lki_node_string(name, what, &text));
    *kind = find_kind(kinds, text);
    if (!*kind)
        return lki_fail_at(name->place, "%s: expected %s, %s or %s, found \"%.60s\"", what, kinds[0].name,
                           kinds[1].name, kinds[2].name, text);
    return node->kind == LKI_NODE_MAP ? lki_tune_read_map(node, what, (*kind)->keys, values) : LK_OK;
}

static lk_status read_search(lki_tuning *tuning, const lki_node *node)
{
    part_values values = {.seed = -1, .startup = 10, .candidates = 24};
    const part_kind *kind;
    LKI_TRY(read_part(node, "search", searches, &kind, &values));
    tuning->search = (lki_search){(lki_search_kind)kind->kind, (int)values.startup, (int)values.candidates};
    if (values.seed >= 0) tuning->seed = (uint64_t)values.seed;
    return LK_OK;
}

static lk_status read_pruner(lki_tuning *tuning, const lki_node *node)
{
    part_values values = {.startup = 5, .interval = 1, .resource = 1, .factor = 4};
    const part_kind *kind;
    LKI_TRY(read_part(node, "pruner", pruners, &kind, &values));
    tuning->pruner = (lki_pruner){
        .kind = (lki_pruner_kind)kind->kind,
        .startup_trials = (int)values.startup,
        .warmup_epochs = (int)values.warmup,
        .interval_epochs = (int)values.interval,
        .min_epochs = (int)values.resource,
        .reduction_factor = (int)values.factor,
        .early_stopping_rate = (int)values.rate,
    };
    return LK_OK;
}

/* ---- The call, its metric and its callback ---- */

static const lki_node *call_of(const lki_tuning *tuning)
{
    return lki_node_get(tuning->config->tree.root, "run")->entries[tuning->call].value;
}

static lk_status find_call(lki_tuning *tuning)
{
    const lki_node *root = tuning->config->tree.root, *calls = lki_node_get(root, "run");
    tuning->call = -1;
    for (int i = 0; calls && calls->kind == LKI_NODE_LIST && i < calls->count; i++) {
        const lki_node *name = lki_node_get(calls->entries[i].value, "_call_");
        if (name && name->kind == LKI_NODE_SCALAR && !strcmp(name->text, "train")) tuning->call = i;
    }
    if (tuning->call >= 0) return LK_OK;
    return lki_fail_at(root->place, "tune: the config has no call of train under \"run\" to tune");
}

static bool is_pruning(const lki_node *node)
{
    const lki_node *name = node->kind == LKI_NODE_MAP ? lki_node_get(node, "_target_") : node;
    const lk_component *component =
        name && name->kind == LKI_NODE_SCALAR ? lk_component_find(name->text) : NULL;
    return component && !strcmp(component->name, "OptunaPruning");
}

const lki_node *lki_tune_pruning_callback(const lki_tuning *tuning)
{
    const lki_node *callbacks = lki_node_get(call_of(tuning), "callbacks");
    if (!callbacks) return NULL;
    if (is_pruning(callbacks)) return callbacks;
    for (int i = 0; i < callbacks->count; i++)
        if (is_pruning(callbacks->entries[i].value)) return callbacks->entries[i].value;
    return NULL;
}

/* The callback's own key, which must not contradict what the section says. */
static lk_status take_key(const lki_node *callback, const char *key, const char **value)
{
    const lki_node *node = lki_node_get(callback, key);
    const char *text;
    if (lki_node_is_null(node)) return LK_OK;
    LKI_TRY(lki_node_string(node, key, &text));
    if (*value && strcmp(*value, text) != 0)
        return lki_fail_at(node->place, "OptunaPruningCallback: %s: the study watches \"%s\": leave one out",
                           key, *value);
    *value = text;
    return LK_OK;
}

/* Says both loader and metric: those of the section, of the callback, of the call. */
static lk_status settle_metric(lki_tuning *tuning)
{
    const lki_node *call = call_of(tuning), *callback = lki_tune_pruning_callback(tuning);
    const lki_node *loader = lki_node_get(call, "valid_loader"), *metric = lki_node_get(call, "valid_metric");
    const lki_node *loaders = lki_node_get(call, "loaders"), *keys = lki_node_get(call, "datasets");
    const lki_node *loss = lki_node_get(lki_node_get(tuning->config->tree.root, "runner"), "loss_key");
    LKI_TRY(take_key(callback, "loader_key", &tuning->loader_key));
    LKI_TRY(take_key(callback, "metric_key", &tuning->metric_key));
    if (!tuning->loader_key && !lki_node_is_null(loader))
        LKI_TRY(lki_node_string(loader, "valid_loader", &tuning->loader_key));
    if (!tuning->metric_key && !lki_node_is_null(metric))
        LKI_TRY(lki_node_string(metric, "valid_metric", &tuning->metric_key));
    if (!tuning->metric_key && !lki_node_is_null(loss))
        LKI_TRY(lki_node_string(loss, "loss_key", &tuning->metric_key));
    if (!tuning->metric_key) tuning->metric_key = "loss";
    if (!tuning->loader_key && loaders && loaders->kind == LKI_NODE_MAP && loaders->count)
        tuning->loader_key = loaders->entries[0].key;
    if (!tuning->loader_key && keys) tuning->loader_key = "train";
    return LK_OK;
}

/* Less is better if the section says so, or the callback, or the call; or if the metric is a loss. */
static lk_status settle_direction(lki_tuning *tuning, const lki_node *said)
{
    const lki_node *call = call_of(tuning),
                   *own = lki_node_get(lki_tune_pruning_callback(tuning), "minimize");
    const lki_node *run = lki_node_get(call, "minimize_valid_metric");
    const lki_node *node = !lki_node_is_null(said) ? said : !lki_node_is_null(own) ? own : run;
    bool minimize;
    if (lki_node_is_null(node)) {
        tuning->minimize = strstr(tuning->metric_key, "loss") != NULL;
        return LK_OK;
    }
    LKI_TRY(lki_node_bool(node, "minimize", &tuning->minimize));
    if (lki_node_is_null(own)) return LK_OK;
    LKI_TRY(lki_node_bool(own, "minimize", &minimize));
    if (minimize == tuning->minimize) return LK_OK;
    return lki_fail_at(own->place, "OptunaPruningCallback: minimize: the study %s",
                       tuning->minimize ? "minimizes" : "maximizes");
}

/* ---- The sections ---- */

typedef struct section {
    const char *metric, *direction, *title, *target;
    int64_t trials, jobs, timeout, seed, max_failures;
    const lki_node *minimize, *search, *pruner, *parameters, *storage, *load_if_exists;
} section;

#define AT(field) offsetof(section, field)

static const lki_tune_key tune_keys[] = {{"metric", LKI_TUNE_TEXT, AT(metric), 0},
                                         {"minimize", LKI_TUNE_NODE, AT(minimize), 0},
                                         {"trials", LKI_TUNE_INT, AT(trials), 1},
                                         {"jobs", LKI_TUNE_INT, AT(jobs), 1},
                                         {"timeout", LKI_TUNE_INT, AT(timeout), 1},
                                         {"seed", LKI_TUNE_INT, AT(seed), 0},
                                         {"max_failures", LKI_TUNE_INT, AT(max_failures), 1},
                                         {"search", LKI_TUNE_NODE, AT(search), 0},
                                         {"pruner", LKI_TUNE_NODE, AT(pruner), 0},
                                         {"parameters", LKI_TUNE_NODE, AT(parameters), 0},
                                         {0}};
static const lki_tune_key study_keys[] = {{"_target_", LKI_TUNE_TEXT, AT(target), 0},
                                          {"direction", LKI_TUNE_TEXT, AT(direction), 0},
                                          {"study_name", LKI_TUNE_TEXT, AT(title), 0},
                                          {"sampler", LKI_TUNE_NODE, AT(search), 0},
                                          {"pruner", LKI_TUNE_NODE, AT(pruner), 0},
                                          {"storage", LKI_TUNE_NODE, AT(storage), 0},
                                          {"load_if_exists", LKI_TUNE_NODE, AT(load_if_exists), 0},
                                          {0}};

/* Optuna's create_study. Its defaults: less is better, TPE, and the median pruner, which acts if the config
 * has the callback that reports to it. */
static lk_status read_study(lki_tuning *tuning, const lki_node *node, section *out)
{
    bool load = true;
    LKI_TRY(lki_tune_read_map(node, "study", study_keys, out));
    if (!lki_same_text(out->target, "optuna.create_study"))
        return lki_fail_at(node->place, "study: expected `_target_: optuna.create_study`");
    if (!lki_node_is_null(out->storage))
        return lki_fail_at(out->storage->place, "storage: leave it out: the study is kept in its logdir");
    if (out->load_if_exists) LKI_TRY(lki_node_bool(out->load_if_exists, "load_if_exists", &load));
    if (!load)
        return lki_fail_at(out->load_if_exists->place,
                           "load_if_exists: a study goes on where its logdir has one: leave it out, and give "
                           "--new to begin anew");
    const char *direction = out->direction ? out->direction : "minimize";
    if (strcmp(direction, "minimize") != 0 && strcmp(direction, "maximize") != 0)
        return lki_fail_at(node->place, "direction: expected minimize or maximize, found \"%.60s\"",
                           direction);
    lki_tree *tree = &tuning->config->tree;
    LKI_TRY(lki_tree_read_value(tree, "study", !strcmp(direction, "minimize") ? "y" : "n",
                                (lki_node **)&out->minimize));
    tuning->title = out->title;
    tuning->search.kind = LKI_SEARCH_TPE;
    if (lki_tune_pruning_callback(tuning)) tuning->pruner.kind = LKI_PRUNER_MEDIAN;
    return LK_OK;
}

/* "valid/loss" or "loss": a metric may have a slash itself, if a loader's key is the first part. */
static void split_metric(lki_tuning *tuning, const char *metric)
{
    const lki_node *loaders = lki_node_get(call_of(tuning), "loaders");
    size_t length = metric ? strcspn(metric, "/") : 0;
    tuning->metric_key = metric;
    if (!metric || !metric[length]) return;
    char *loader = lki_arena_format(&tuning->config->tree.arena, "%.*s", (int)length, metric);
    bool is_loader = !strcmp(loader, "_epoch_") || !loaders || lki_node_get(loaders, loader);
    if (!is_loader) return;
    tuning->loader_key = loader;
    tuning->metric_key = metric + length + 1;
}

/* Out of what was written, as if it had not been there. */
static lk_status take_out(lki_tree *tree, const char *key)
{
    lki_node *source = tree->source;
    for (int i = 0; i < source->count; i++) {
        if (strcmp(source->entries[i].key, key) != 0) continue;
        memmove(&source->entries[i], &source->entries[i + 1],
                sizeof *source->entries * (size_t)(source->count - i - 1));
        source->count--;
        return lki_tree_resolve(tree);
    }
    return LK_OK;
}

/* The options come before what the config says. */
static lk_status apply_options(lki_tuning *tuning, const section *said)
{
    const lki_tune_options *o = tuning->options;
    const lki_node search = {.text = o->search}, pruner = {.text = o->pruner};
    tuning->trials = (int)(o->trials.given ? o->trials.value : said->trials);
    tuning->jobs = (int)(o->jobs.given ? o->jobs.value : said->jobs);
    tuning->timeout_s = (int)(o->timeout.given ? o->timeout.value : said->timeout);
    tuning->max_failures = (int)(o->max_failures.given ? o->max_failures.value : said->max_failures);
    if (o->search) LKI_TRY(read_search(tuning, &search));
    if (o->pruner) LKI_TRY(read_pruner(tuning, &pruner));
    if (o->seed.given) tuning->seed = (uint64_t)o->seed.value;
    return LK_OK;
}

lk_status lki_tune_read(lki_tuning *tuning)
{
    lki_tree *tree = &tuning->config->tree;
    section said = {.jobs = 1, .max_failures = DEFAULT_FAILURES, .seed = DEFAULT_SEED};
    const lki_node *tune = lki_node_get(tree->root, "tune"), *study = lki_node_get(tree->root, "study");
    tuning->search = (lki_search){LKI_SEARCH_TPE, 10, 24};
    tuning->pruner =
        (lki_pruner){.startup_trials = 5, .interval_epochs = 1, .min_epochs = 1, .reduction_factor = 4};
    LKI_TRY(find_call(tuning));
    if (tune && study)
        return lki_fail_at(study->place, "study: \"tune\" says what to search, too: keep one of them");
    if (tune) LKI_TRY(lki_tune_read_map(tune, "tune", tune_keys, &said));
    if (study) LKI_TRY(read_study(tuning, study, &said));
    tuning->seed = (uint64_t)said.seed;
    if (said.search) LKI_TRY(read_search(tuning, said.search));
    if (said.pruner) LKI_TRY(read_pruner(tuning, said.pruner));
    LKI_TRY(apply_options(tuning, &said));
    split_metric(tuning, said.metric);
    LKI_TRY(settle_metric(tuning));
    LKI_TRY(settle_direction(tuning, said.minimize));
    LKI_TRY(take_out(tree, "tune"));
    LKI_TRY(take_out(tree, "study"));
    if (said.parameters) LKI_TRY(lki_tune_read_parameters(tuning, said.parameters));
    LKI_TRY(lki_tune_find_suggestions(tuning));
    if (!tuning->parameters && !tuning->parameter_count)
        return lki_fail_at(tree->root->place, "tune: nothing is to be searched");
    if (!tuning->trials && tuning->search.kind != LKI_SEARCH_GRID) tuning->trials = DEFAULT_TRIALS;
    return LK_OK;
}
