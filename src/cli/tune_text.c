/* A suggestion as a call of Python's, as the configs of Catalyst before 22 have it:
 *     num_filters: "int(trial.suggest_loguniform('num_filters', 4, 32))"
 * becomes the map that says the same. */
#include "cli/tune.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

/* The names of the arguments by position. */
static const struct {
    const char *function, *arguments[5];
} calls[] = {{"trial.suggest_float", {"name", "low", "high"}},
             {"trial.suggest_int", {"name", "low", "high", "step", "log"}},
             {"trial.suggest_categorical", {"name", "choices"}},
             {"trial.suggest_uniform", {"name", "low", "high"}},
             {"trial.suggest_loguniform", {"name", "low", "high"}},
             {"trial.suggest_discrete_uniform", {"name", "low", "high", "q"}}};
enum { CALL_COUNT = sizeof calls / sizeof *calls, MAX_ARGUMENTS = 5 };

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\n");
}

bool lki_tune_is_call(const lki_node *node)
{
    if (node->kind != LKI_NODE_SCALAR) return false;
    const char *at = skip_blanks(node->text);
    if (!strncmp(at, "int(", 4)) at = skip_blanks(at + 4);
    if (!strncmp(at, "float(", 6)) at = skip_blanks(at + 6);
    return !strncmp(at, "trial.suggest_", 14);
}

/* The end of an argument: a comma or a parenthesis outside of quotes and brackets. */
static const char *end_of_argument(const char *at)
{
    char quote = 0;
    for (int depth = 0; *at; at++) {
        if (quote) {
            quote = *at == quote ? 0 : quote;
        } else if (*at == '\'' || *at == '"') {
            quote = *at;
        } else if (depth == 0 && (*at == ',' || *at == ')')) {
            return at;
        } else {
            depth += (*at == '[' || *at == '(') - (*at == ']' || *at == ')');
        }
    }
    return NULL;
}

static lk_status fail_call(const lki_node *node)
{
    return lki_fail_at(node->place,
                       "expected a call as in trial.suggest_float('lr', 1e-4, 1), found \"%.100s\"",
                       node->text);
}

/* "low=4" or "4": `, low: 4` behind what is there. */
static char *add_argument(char *map, const char *begin, const char *end, const char *position)
{
    size_t length = strspn(begin, "abcdefghijklmnopqrstuvwxyz_");
    const char *equals = skip_blanks(begin + length);
    bool is_named = length && *equals == '=' && equals < end;
    LKI_SCOPED char *name = is_named ? lki_strndup(begin, length) : lki_strdup(position);
    const char *value = is_named ? skip_blanks(equals + 1) : begin;
    char *grown = name ? lki_format("%s, %s: %.*s", map, name, (int)(end - value), value) : NULL;
    lki_free(map);
    return grown;
}

/* The arguments from behind the parenthesis on; *rest is behind the closing one. */
static lk_status read_arguments(const lki_node *node, int call, const char *at, char **map, const char **rest)
{
    *map = lki_format("{_var_: %s", calls[call].function);
    for (int i = 0; *map; i++) {
        at = skip_blanks(at);
        const char *end = end_of_argument(at);
        bool is_last = end && *end == ')';
        if (!end || (at == end && !is_last) || i > MAX_ARGUMENTS) return fail_call(node);
        const char *position = i < MAX_ARGUMENTS ? calls[call].arguments[i] : NULL;
        bool has_name = memchr(at, '=', (size_t)(end - at)) != NULL;
        if (at < end && !position && !has_name) return fail_call(node);
        if (at < end) *map = add_argument(*map, at, end, position ? position : "");
        *rest = end + 1;
        if (is_last) return *map ? LK_OK : LK_ERR_NOMEM;
        at = end + 1;
    }
    return LK_ERR_NOMEM;
}

static int find_call(const char *at)
{
    size_t length = strcspn(at, "( \t\n");
    for (int i = 0; i < CALL_COUNT; i++)
        if (strlen(calls[i].function) == length && !strncmp(calls[i].function, at, length)) return i;
    return -1;
}

lk_status lki_tune_read_call(lki_tree *tree, const lki_node *node, lki_node **out, bool *is_cut)
{
    const char *at = skip_blanks(node->text), *rest = NULL;
    LKI_SCOPED char *map = NULL;
    *is_cut = !strncmp(at, "int(", 4);
    bool is_wrapped = *is_cut || !strncmp(at, "float(", 6);
    if (is_wrapped) at = skip_blanks(strchr(at, '(') + 1);
    int call = find_call(at);
    const char *open = call < 0 ? NULL : skip_blanks(at + strlen(calls[call].function));
    if (!open || *open != '(') return fail_call(node);
    LKI_TRY(read_arguments(node, call, open + 1, &map, &rest));
    rest = skip_blanks(rest);
    if (is_wrapped && *rest++ != ')') return fail_call(node);
    if (*skip_blanks(rest)) return fail_call(node);
    LKI_SCOPED char *whole = lki_format("%s}", map);
    if (!whole) return LK_ERR_NOMEM;
    if (lki_tree_read_value(tree, node->place.file, whole, out)) return fail_call(node);
    if ((*out)->kind != LKI_NODE_MAP) return fail_call(node);
    (*out)->place = node->place;
    for (int i = 0; i < (*out)->count; i++)
        (*out)->entries[i].place = (*out)->entries[i].value->place = node->place;
    return LK_OK;
}
