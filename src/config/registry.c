#include "config/registry.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/suggest.h"
#include "base/take.h"
#include "config/components/components.h"

#include <lockstep/runner.h>

#include <string.h>

/* The library's own components, a table a file; each ends with a NULL name. */
static const lk_component *const tables[] = {
    lki_module_components,        lki_transformer_components,
    lki_more_module_components,   lki_node_components,
    lki_zoo_components,           lki_window_components,
    lki_criterion_components,     lki_contrib_components,
    lki_optimizer_components,     lki_scheduler_components,
    lki_data_components,          lki_sampler_components,
    lki_file_components,          lki_transform_components,
    lki_metric_components,        lki_callback_components,
    lki_control_components,       lki_function_components,
    lki_run_components,           lki_call_components,
    lki_contrib_loss_components,  lki_picture_components,
    lki_collection_components,    lki_text_components,
    lki_contrib_layer_components, lki_catalyst_callback_components,
    lki_rest_module_components,
};

static void free_module(void *object)
{
    lk_module_free(object);
}

static void free_criterion(void *object)
{
    lk_criterion_free(object);
}

static void free_optimizer(void *object)
{
    lk_optimizer_free(object);
}

static void free_scheduler(void *object)
{
    lk_scheduler_free(object);
}

static void free_dataset(void *object)
{
    lk_dataset_free(object);
}

static void free_loader(void *object)
{
    lk_loader_free(object);
}

static void free_sampler(void *object)
{
    lk_sampler_free(object);
}

static void free_transform(void *object)
{
    lk_transform_free(object);
}

static void free_callback(void *object)
{
    lk_callback_free(object);
}

static void close_logger(void *object)
{
    lk_logger_close(object);
}

static void free_runner(void *object)
{
    lk_runner_free(object);
}

static void free_tensor(void *object)
{
    lk_tensor_free(object);
}

/* How an object is freed that was built and then not used, by its kind; NULL: nothing to free. */
static void (*free_by_kind[LK_KIND_COUNT])(void *object) = {
    [LK_KIND_MODULE] = free_module,       [LK_KIND_CRITERION] = free_criterion,
    [LK_KIND_OPTIMIZER] = free_optimizer, [LK_KIND_SCHEDULER] = free_scheduler,
    [LK_KIND_DATASET] = free_dataset,     [LK_KIND_LOADER] = free_loader,
    [LK_KIND_SAMPLER] = free_sampler,     [LK_KIND_TRANSFORM] = free_transform,
    [LK_KIND_TENSOR] = free_tensor,       [LK_KIND_CALLBACK] = free_callback,
    [LK_KIND_LOGGER] = close_logger,      [LK_KIND_RUNNER] = free_runner,
};

static const lk_component **added;
static int added_count;

const char *lk_component_kind_name(lk_component_kind kind)
{
    static const char *const names[] = {
#define X(symbol, name, phrase) name,
        LK_COMPONENT_KIND_LIST(X)
#undef X
    };
    return (unsigned)kind < LK_KIND_COUNT ? names[kind] : "unknown kind";
}

const char *lki_kind_phrase(lk_component_kind kind)
{
    static const char *const phrases[] = {
#define X(symbol, name, phrase) phrase,
        LK_COMPONENT_KIND_LIST(X)
#undef X
    };
    return phrases[kind];
}

const lk_component *lk_component_at(int index)
{
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const lk_component *c = tables[t]; c && c->name; c++)
            if (index-- == 0) return c;
    return index >= 0 && index < added_count ? added[index] : NULL;
}

/* Whether `name` is one of the words of `words`, which spaces separate. */
static bool has_word(const char *words, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = words; at && *at; at += strcspn(at, " ")) {
        at += strspn(at, " ");
        if (strcspn(at, " ") == length && !strncmp(at, name, length) && length) return true;
    }
    return false;
}

const lk_component *lk_component_find(const char *name)
{
    const lk_component *component;
    for (int i = 0; (component = lk_component_at(i)); i++)
        if (!strcmp(component->name, name) || has_word(component->aliases, name)) return component;
    return NULL;
}

typedef void (*name_visitor)(const char *name, const lk_component *component, void *context);

/* Aliases share one string, so each is copied out for the visitor. */
static void each_alias(const lk_component *component, name_visitor visit, void *context)
{
    char name[128];
    for (const char *at = component->aliases; at && *at;) {
        at += strspn(at, " ");
        size_t length = strcspn(at, " ");
        if (length > 0 && length < sizeof name) {
            memcpy(name, at, length);
            name[length] = 0;
            visit(name, component, context);
        }
        at += length;
    }
}

void lki_registry_each_name(name_visitor visit, void *context)
{
    const lk_component *component;
    for (int i = 0; (component = lk_component_at(i)); i++) {
        visit(component->name, component, context);
        each_alias(component, visit, context);
    }
}

typedef struct name_search {
    const char *wanted;
    char best[128];
    int best_distance;
} name_search;

/* People forget or mistype the module path as often as the name: the last part alone is compared too. */
static void offer_name(const char *name, const lk_component *component, void *context)
{
    name_search *search = context;
    const char *dot = strrchr(search->wanted, '.');
    lki_suggestion whole = {.wanted = search->wanted}, tail = {.wanted = dot ? dot + 1 : search->wanted};
    (void)component;
    lki_suggest_offer(&whole, name);
    if (dot) lki_suggest_offer(&tail, name);
    if (!whole.best && !tail.best) return;
    int distance = whole.best ? whole.best_distance : tail.best_distance + 1;
    if (tail.best && tail.best_distance + 1 < distance) distance = tail.best_distance + 1;
    if (*search->best && distance >= search->best_distance) return;
    snprintf(search->best, sizeof search->best, "%s", name);
    search->best_distance = distance;
}

lk_status lki_fail_unknown_component(const char *name)
{
    name_search search = {.wanted = name};
    char hint[160] = "";
    lki_registry_each_name(offer_name, &search);
    if (*search.best) snprintf(hint, sizeof hint, "; did you mean \"%s\"?", search.best);
    return lki_fail(LK_ERR_CONFIG, "unknown component \"%.100s\"%s", name, hint);
}

static void find_clash(const char *name, const lk_component *component, void *context)
{
    const lk_component **clash = context;
    (void)component;
    if (!*clash) *clash = lk_component_find(name);
}

/* A component that was compiled with smaller or larger structs than ours, as ours. They live until the
 * registry is reset. */
typedef struct adapted_component {
    lk_component component;
    struct adapted_component *next;
    lk_parameter parameters[];
} adapted_component;
static adapted_component *adapted;

static lk_status adapt(const lk_component *given, const lk_build *build, const lk_component **out)
{
    lk_component component;
    LKI_TRY(lki_take_nbytes(&component, sizeof component, given, build->component_nbytes, "lk_component"));
    const char *from = (const char *)component.parameters;
    size_t count = 0; /* the name comes first in every version, and NULL ends the table */
    while (from && *(const char *const *)(from + count * build->parameter_nbytes)) count++;
    size_t nbytes = sizeof(adapted_component) + (count + 1) * sizeof(lk_parameter);
    adapted_component *made = lki_calloc(nbytes, "a component");
    if (!made) return LK_ERR_NOMEM;
    made->component = component;
    if (from) made->component.parameters = made->parameters;
    made->next = adapted;
    adapted = made;
    for (size_t i = 0; i < count; i++)
        LKI_TRY(lki_take_nbytes(&made->parameters[i], sizeof(lk_parameter),
                                from + i * build->parameter_nbytes, build->parameter_nbytes, "lk_parameter"));
    *out = &made->component;
    return LK_OK;
}

static lk_status add(const lk_component *component);

lk_status lk_component_add_built(const lk_component *component, const lk_build *given)
{
    LKI_TAKE(lk_build, build, given, lk_error_status());
    LKI_TRY(lki_check_version("the components", build.version));
    bool is_ours =
        build.component_nbytes == sizeof(lk_component) && build.parameter_nbytes == sizeof(lk_parameter);
    if (component && !is_ours) LKI_TRY(adapt(component, &build, &component));
    return add(component);
}

static lk_status add(const lk_component *component)
{
    const lk_component *clash = NULL;
    if (!component || !component->name || !*component->name || !component->build)
        return lki_fail(LK_ERR_INVALID, "a component needs a name and a build function");
    if ((unsigned)component->kind >= LK_KIND_COUNT)
        return lki_fail(LK_ERR_INVALID, "component %s: unknown kind %d", component->name,
                        (int)component->kind);
    if (component->rest && lki_component_parameter_index(component, component->rest) < 0)
        return lki_fail(LK_ERR_INVALID, "component %s: it has no parameter \"%s\" to take the rest",
                        component->name, component->rest);
    find_clash(component->name, component, &clash);
    each_alias(component, find_clash, &clash);
    if (clash)
        return lki_fail(LK_ERR_INVALID, "component %s: the name is already taken by %s", component->name,
                        clash->name);
    size_t nbytes = sizeof *added * (size_t)(added_count + 1);
    const lk_component **grown = lki_realloc(added, nbytes, "the registry");
    if (!grown) return LK_ERR_NOMEM;
    added = grown;
    added[added_count++] = component;
    return LK_OK;
}

bool lki_component_is_added(const lk_component *component)
{
    for (int i = 0; i < added_count; i++)
        if (added[i] == component) return true;
    return false;
}

int lki_registry_added(void)
{
    return added_count;
}

void lki_registry_keep(int count)
{
    added_count = count;
}

void lki_registry_reset(void)
{
    while (adapted) {
        adapted_component *next = adapted->next;
        lki_free(adapted);
        adapted = next;
    }
    lki_free(added);
    added = NULL;
    added_count = 0;
}

int lki_component_parameter_count(const lk_component *component)
{
    int count = 0;
    while (component->parameters && component->parameters[count].name) count++;
    return count;
}

int lki_component_parameter_index(const lk_component *component, const char *name)
{
    for (int i = 0; component->parameters && component->parameters[i].name; i++)
        if (!strcmp(component->parameters[i].name, name)) return i;
    return -1;
}

void lki_registry_free_kind(lk_component_kind kind, void (*free)(void *object))
{
    free_by_kind[kind] = free;
}

void lki_component_dispose(const lk_component *component, void *object)
{
    void (*dispose)(void *) = component->free ? component->free : free_by_kind[component->kind];
    if (object && dispose) dispose(object);
}

void *lki_component_share(const lk_component *component, void *object)
{
    if (component->free) return NULL; /* an object of its own making */
    if (component->kind == LK_KIND_DATASET) return lk_dataset_share(object);
    if (component->kind == LK_KIND_TENSOR) return lk_tensor_view(object);
    return NULL;
}
