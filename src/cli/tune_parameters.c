/* What a study searches: `parameters:` of the section `tune`, and trial.suggest_... anywhere in the config.
 */
#include "cli/tune.h"

#include "base/memory.h"
#include "base/status.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- The list ---- */

static lk_status add_path(lki_tuning *tuning, lki_tune_parameter *parameter, const char *path)
{
    lki_arena *arena = &tuning->config->tree.arena;
    const char **grown = LKI_ARENA_NEW_ARRAY(arena, const char *, parameter->path_count + 1);
    if (!grown) return LK_ERR_NOMEM;
    for (int i = 0; i < parameter->path_count; i++) grown[i] = parameter->paths[i];
    grown[parameter->path_count++] = path;
    parameter->paths = grown;
    return LK_OK;
}

static lk_status add_parameter(lki_tuning *tuning, lki_place place, lki_tune_parameter **out)
{
    lki_arena *arena = &tuning->config->tree.arena;
    if (tuning->parameter_count == LKI_TUNE_MAX_PARAMETERS)
        return lki_fail_at(place, "tune: more than %d parameters", LKI_TUNE_MAX_PARAMETERS);
    if (!tuning->parameters) {
        tuning->parameters = LKI_ARENA_NEW_ARRAY(arena, lki_tune_parameter, LKI_TUNE_MAX_PARAMETERS);
        tuning->spaces = LKI_ARENA_NEW_ARRAY(arena, lki_parameter_space, LKI_TUNE_MAX_PARAMETERS);
        if (!tuning->parameters || !tuning->spaces) return LK_ERR_NOMEM;
    }
    *out = &tuning->parameters[tuning->parameter_count++];
    (*out)->place = place;
    return LK_OK;
}

/* ---- Choices ---- */

static void put_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if (*text == '\n')
            fputs("\\n", out);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

/* YAML in one line. */
static void put_node(FILE *out, const lki_node *node)
{
    bool is_map = node->kind == LKI_NODE_MAP;
    if (node->kind == LKI_NODE_SCALAR) {
        if (node->quoted)
            put_quoted(out, node->text);
        else
            fputs(node->text, out);
        return;
    }
    fputc(is_map ? '{' : '[', out);
    for (int i = 0; i < node->count; i++) {
        if (i) fputs(", ", out);
        if (is_map) fprintf(out, "%s: ", node->entries[i].key);
        put_node(out, node->entries[i].value);
    }
    fputc(is_map ? '}' : ']', out);
}

/* What an override says for this value. */
static const char *text_of_choice(lki_arena *arena, const lki_node *node)
{
    char *text = NULL;
    size_t nbytes;
    if (node->kind == LKI_NODE_SCALAR) return lki_arena_strdup(arena, node->text);
    FILE *out = open_memstream(&text, &nbytes);
    if (!out) return NULL;
    put_node(out, node);
    if (fclose(out) != 0) return NULL;
    const char *kept = lki_arena_strdup(arena, text);
    free(text);
    return kept;
}

static lk_status read_choices(lki_tuning *tuning, lki_tune_parameter *parameter, const lki_node *list)
{
    lki_arena *arena = &tuning->config->tree.arena;
    if (list->kind != LKI_NODE_LIST || !list->count)
        return lki_fail_at(list->place, "tune: expected a list of choices");
    parameter->range = (lki_range){LKI_RANGE_CHOICE, 0, list->count - 1, false, 1, 0};
    parameter->choices = LKI_ARENA_NEW_ARRAY(arena, const char *, list->count);
    parameter->are_texts = LKI_ARENA_NEW_ARRAY(arena, bool, list->count);
    if (!parameter->choices || !parameter->are_texts) return LK_ERR_NOMEM;
    for (int i = 0; i < list->count; i++) {
        parameter->choices[i] = text_of_choice(arena, list->entries[i].value);
        parameter->are_texts[i] =
            list->entries[i].value->kind == LKI_NODE_SCALAR && list->entries[i].value->quoted;
        if (!parameter->choices[i]) return lki_fail(LK_ERR_NOMEM, "out of memory for a choice");
    }
    return LK_OK;
}

/* ---- Ranges ---- */

/* Two numbers, the lower one first. */
static lk_status read_bounds(const lki_node *list, lki_range *range)
{
    if (list->kind != LKI_NODE_LIST || list->count != 2)
        return lki_fail_at(list->place, "tune: expected the lowest and the highest value, as in [1e-4, 1]");
    LKI_TRY(lki_node_float(list->entries[0].value, "the lowest value", &range->low));
    return lki_node_float(list->entries[1].value, "the highest value", &range->high);
}

static bool is_whole(double number)
{
    return number == floor(number) && fabs(number) <= 1e15;
}

/* Whether the numbers make a range. */
static lk_status check_range(lki_place place, lki_range *range)
{
    bool is_int = range->kind == LKI_RANGE_INT;
    if (!isfinite(range->low) || !isfinite(range->high) || range->low > range->high ||
        (range->low == range->high && !is_int))
        return lki_fail_at(place, "tune: expected the lowest value before the highest, found %g and %g",
                           range->low, range->high);
    if (is_int && (!is_whole(range->low) || !is_whole(range->high) || !is_whole(range->step)))
        return lki_fail_at(place, "tune: expected integers, found %g, %g and a step of %g", range->low,
                           range->high, range->step);
    if (range->log && range->low <= 0)
        return lki_fail_at(place, "tune: a logarithm needs numbers above 0, found %g", range->low);
    if (range->log && range->step > 0 && !(is_int && range->step == 1))
        return lki_fail_at(place, "tune: log and step exclude each other: give points, or leave log out");
    if (range->points && range->step > 0)
        return lki_fail_at(place, "tune: points and step are two ways to say the same: keep one of them");
    if (range->step < 0)
        return lki_fail_at(place, "tune: step: expected a number above 0, found %g", range->step);
    lki_range_settle(range);
    return LK_OK;
}

typedef struct range_map {
    const lki_node *uniform, *whole, *log, *choices;
    const char *name;
    double step;
    int64_t points;
} range_map;

#define AT(field) offsetof(range_map, field)

static const lki_tune_key range_keys[] = {
    {"uniform", LKI_TUNE_NODE, AT(uniform), 0}, {"int", LKI_TUNE_NODE, AT(whole), 0},
    {"log", LKI_TUNE_NODE, AT(log), 0},         {"choices", LKI_TUNE_NODE, AT(choices), 0},
    {"step", LKI_TUNE_FLOAT, AT(step), 0},      {"points", LKI_TUNE_INT, AT(points), 2},
    {"name", LKI_TUNE_TEXT, AT(name), 0},       {0}};

/* {int: [1, 8], step: 2}, {int: [1, 64], log: y}, {uniform: [0, 1]}, {log: [1e-4, 1], points: 5}. */
static lk_status read_range(lki_tune_parameter *parameter, const lki_node *map, const range_map *said)
{
    lki_range *range = &parameter->range;
    bool log_is_flag = said->log && said->log->kind == LKI_NODE_SCALAR;
    const lki_node *bounds = said->whole ? said->whole : said->uniform ? said->uniform : said->log;
    int kinds = !!said->whole + !!said->uniform + !!said->choices + (said->log && !log_is_flag);
    if (kinds != 1)
        return lki_fail_at(map->place,
                           "tune: expected one of uniform, log, int and choices, as in {log: [1e-4, 1]}");
    if (said->whole && said->points)
        return lki_fail_at(map->place, "tune: points are for numbers with a fraction: give an int a step");
    range->kind = said->whole ? LKI_RANGE_INT : LKI_RANGE_FLOAT;
    range->step = said->step ? said->step : said->whole ? 1 : 0;
    range->points = said->points;
    range->log = said->log && !log_is_flag;
    if (log_is_flag) LKI_TRY(lki_node_bool(said->log, "log", &range->log));
    LKI_TRY(read_bounds(bounds, range));
    return check_range(map->place, range);
}

static lk_status read_parameter(lki_tuning *tuning, const lki_entry *entry)
{
    lki_tune_parameter *parameter = NULL;
    range_map said = {0};
    LKI_TRY(add_parameter(tuning, entry->place, &parameter));
    LKI_TRY(add_path(tuning, parameter, entry->key));
    if (entry->value->kind == LKI_NODE_LIST) return read_choices(tuning, parameter, entry->value);
    LKI_TRY(lki_tune_read_map(entry->value, entry->key, range_keys, &said));
    parameter->name = said.name;
    if (!said.choices) return read_range(parameter, entry->value, &said);
    if (said.uniform || said.whole || said.log || said.step || said.points)
        return lki_fail_at(entry->value->place, "tune: choices take nothing but a name beside them");
    return read_choices(tuning, parameter, said.choices);
}

/* ---- Names: the shortest end of a path that no other path has ---- */

/* The last `parts` parts of a path; all of it if it has fewer. */
static const char *tail(const char *path, int parts)
{
    const char *at = path + strlen(path);
    while (at > path && (at[-1] != '/' || --parts > 0)) at--;
    return at;
}

static bool is_taken(const lki_tuning *tuning, const lki_tune_parameter *but, const char *name, int parts)
{
    for (int i = 0; i < tuning->parameter_count; i++) {
        const lki_tune_parameter *other = &tuning->parameters[i];
        if (other == but) continue;
        if (lki_same_text(other->name, name) || !strcmp(tail(other->paths[0], parts), name)) return true;
    }
    return false;
}

static lk_status name_parameters(lki_tuning *tuning)
{
    for (int i = 0; i < tuning->parameter_count; i++) {
        lki_tune_parameter *parameter = &tuning->parameters[i];
        const char *path = parameter->paths[0], *name = parameter->name;
        for (int parts = 1; !name; parts++) {
            const char *end = tail(path, parts);
            bool is_clear =
                !isdigit((unsigned char)*end) && *end != '_' && !is_taken(tuning, parameter, end, parts);
            if (is_clear || end == path) name = end;
        }
        parameter->name = name;
        for (int k = 0; k < i; k++)
            if (!strcmp(tuning->parameters[k].name, name))
                return lki_fail_at(parameter->place, "tune: two parameters are named \"%s\"", name);
    }
    return LK_OK;
}

lk_status lki_tune_read_parameters(lki_tuning *tuning, const lki_node *map)
{
    if (map->kind != LKI_NODE_MAP || !map->count)
        return lki_fail_at(map->place,
                           "parameters: expected a map of paths, as in optimizer/lr: {log: [1e-4, 1]}");
    for (int i = 0; i < map->count; i++) LKI_TRY(read_parameter(tuning, &map->entries[i]));
    return LK_OK;
}

/* ---- trial.suggest_... ---- */

typedef struct suggestion {
    const char *var, *name;
    double low, high, step;
    bool log;
    const lki_node *choices;
} suggestion;

#define IN(field) offsetof(suggestion, field)
#define NAMED                                                                                                \
    {"_var_", LKI_TUNE_TEXT, IN(var), 0},                                                                    \
    {                                                                                                        \
        "name", LKI_TUNE_TEXT, IN(name), 0                                                                   \
    }
#define BOUNDED                                                                                              \
    {"low", LKI_TUNE_FLOAT, IN(low), 0},                                                                     \
    {                                                                                                        \
        "high", LKI_TUNE_FLOAT, IN(high), 0                                                                  \
    }

static const lki_tune_key plain_keys[] = {NAMED, BOUNDED, {0}};
static const lki_tune_key number_keys[] = {
    NAMED, BOUNDED, {"step", LKI_TUNE_FLOAT, IN(step), 0}, {"log", LKI_TUNE_BOOL, IN(log), 0}, {0}};
static const lki_tune_key discrete_keys[] = {NAMED, BOUNDED, {"q", LKI_TUNE_FLOAT, IN(step), 0}, {0}};
static const lki_tune_key choice_keys[] = {NAMED, {"choices", LKI_TUNE_NODE, IN(choices), 0}, {0}};

static const struct {
    const char *name;
    lki_range_kind kind;
    bool log;
    const lki_tune_key *keys;
} suggestions[] = {{"trial.suggest_float", LKI_RANGE_FLOAT, false, number_keys},
                   {"trial.suggest_int", LKI_RANGE_INT, false, number_keys},
                   {"trial.suggest_categorical", LKI_RANGE_CHOICE, false, choice_keys},
                   {"trial.suggest_uniform", LKI_RANGE_FLOAT, false, plain_keys},
                   {"trial.suggest_loguniform", LKI_RANGE_FLOAT, true, plain_keys},
                   {"trial.suggest_discrete_uniform", LKI_RANGE_FLOAT, false, discrete_keys}};
enum { SUGGESTION_COUNT = sizeof suggestions / sizeof *suggestions };

static lk_status read_suggestion(lki_tuning *tuning, const lki_node *node, int kind, suggestion *said,
                                 lki_tune_parameter *out)
{
    said->log = suggestions[kind].log;
    LKI_TRY(lki_tune_read_map(node, suggestions[kind].name, suggestions[kind].keys, said));
    if (!said->name) return lki_fail_at(node->place, "%s: name is missing", suggestions[kind].name);
    *out = (lki_tune_parameter){.name = said->name, .place = node->place};
    out->range = (lki_range){suggestions[kind].kind, said->low, said->high, said->log, said->step, 0};
    if (said->choices) return read_choices(tuning, out, said->choices);
    if (suggestions[kind].kind == LKI_RANGE_CHOICE || !lki_node_get(node, "low") ||
        !lki_node_get(node, "high"))
        return lki_fail_at(node->place, "%s: %s missing", suggestions[kind].name,
                           suggestions[kind].kind == LKI_RANGE_CHOICE ? "choices are" : "low and high are");
    if (suggestions[kind].kind == LKI_RANGE_INT && out->range.step == 0) out->range.step = 1;
    return check_range(node->place, &out->range);
}

static bool is_same(const lki_tune_parameter *a, const lki_tune_parameter *b)
{
    const lki_range *x = &a->range, *y = &b->range;
    if (a->is_cut != b->is_cut) return false;
    if (x->kind != y->kind || x->low != y->low || x->high != y->high || x->log != y->log ||
        x->step != y->step)
        return false;
    for (int i = 0; a->choices && i <= x->high; i++)
        if (strcmp(a->choices[i], b->choices[i]) != 0) return false;
    return true;
}

/* A name that was there before is the same parameter at another place, as an alias makes it. */
static lk_status take_suggestion(lki_tuning *tuning, const lki_node *node, int kind, bool is_cut,
                                 const char *path)
{
    lki_tune_parameter new, *parameter = NULL;
    suggestion said = {0};
    LKI_TRY(read_suggestion(tuning, node, kind, &said, &new));
    new.is_cut = is_cut && !new.choices;
    for (int i = 0; i < tuning->parameter_count; i++)
        if (lki_same_text(tuning->parameters[i].name, new.name)) parameter = &tuning->parameters[i];
    if (parameter && !is_same(parameter, &new))
        return lki_fail_at(node->place, "tune: \"%s\" is suggested with another range before", new.name);
    if (!parameter) {
        LKI_TRY(add_parameter(tuning, node->place, &parameter));
        *parameter = new;
    }
    return add_path(tuning, parameter, path);
}

static int suggestion_of(const lki_node *node)
{
    const lki_node *var = lki_node_get(node, "_var_");
    for (int i = 0; var && var->kind == LKI_NODE_SCALAR && i < SUGGESTION_COUNT; i++)
        if (!strcmp(var->text, suggestions[i].name)) return i;
    return -1;
}

static lk_status find_below(lki_tuning *tuning, const lki_node *node, const char *path)
{
    lki_arena *arena = &tuning->config->tree.arena;
    bool is_cut = false;
    lki_node *call = NULL;
    if (lki_tune_is_call(node)) LKI_TRY(lki_tune_read_call(&tuning->config->tree, node, &call, &is_cut));
    if (call) node = call;
    int kind = suggestion_of(node);
    if (kind >= 0) return take_suggestion(tuning, node, kind, is_cut, path);
    for (int i = 0; i < node->count; i++) {
        const lki_entry *entry = &node->entries[i];
        const char *slash = *path ? "/" : "";
        const char *below = entry->key ? lki_arena_format(arena, "%s%s%s", path, slash, entry->key)
                                       : lki_arena_format(arena, "%s%s%d", path, slash, i);
        if (!below) return LK_ERR_NOMEM;
        LKI_TRY(find_below(tuning, entry->value, below));
    }
    return LK_OK;
}

lk_status lki_tune_find_suggestions(lki_tuning *tuning)
{
    LKI_TRY(find_below(tuning, tuning->config->tree.root, ""));
    LKI_TRY(name_parameters(tuning));
    for (int i = 0; i < tuning->parameter_count; i++)
        tuning->spaces[i] = (lki_parameter_space){tuning->parameters[i].name, tuning->parameters[i].range};
    return LK_OK;
}
