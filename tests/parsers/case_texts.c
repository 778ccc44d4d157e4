/* Configs, overrides, host lists and other texts. */
#include "parsers.h"

#include "base/memory.h"
#include "config/tree/tree.h"
#include "launch/hostlist.h"

#include <lockstep/fields.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool same(const lki_node *a, const lki_node *b)
{
    if (a->kind != b->kind || a->count != b->count || lki_node_is_null(a) != lki_node_is_null(b))
        return false;
    if (a->kind == LKI_NODE_SCALAR) return lki_node_is_null(a) || !strcmp(a->text, b->text);
    for (int i = 0; i < a->count; i++) {
        if (a->kind == LKI_NODE_MAP && strcmp(a->entries[i].key, b->entries[i].key)) return false;
        if (!same(a->entries[i].value, b->entries[i].value)) return false;
    }
    return true;
}

static void parse_config(const uint8_t *data, size_t nbytes)
{
    lki_tree tree = {0}, again = {0};
    char *text = NULL;
    if (lki_tree_read_text(&tree, "a.yml", (const char *)data, nbytes)) {
        check_refusal();
    } else if (lki_tree_to_yaml(&tree, &text)) {
        check_refusal();
    } else {
        must(lki_tree_read_text(&again, "again.yml", text, strlen(text)) == LK_OK,
             "a config that was written is read");
        must(same(tree.root, again.root), "a config that was written says the same");
    }
    lki_free(text);
    lki_tree_fini(&again);
    lki_tree_fini(&tree);
}

static const char base_config[] =
    "shared: {n: &n 10, base: &base {lr: 1e-3, betas: [0.9, 0.999]}}\n"
    "runner:\n  _target_: SupervisedRunner\n  model: {_var_: model, _target_: Sequential, args: [Flatten, "
    "{_target_: Linear, in_features: 784, out_features: *n}]}\n"
    "run:\n- {_call_: train, optimizer: {<<: *base, _target_: Adam}, num_epochs: 3}\n";

/* A line each: overrides of one config, one after the other. */
static void parse_overrides(const uint8_t *data, size_t nbytes)
{
    lki_tree tree = {0};
    char *text = as_text(data, nbytes), *rest = text, *line;
    must(lki_tree_read_text(&tree, "a.yml", base_config, strlen(base_config)) == LK_OK, "the config is read");
    for (int i = 0; i < 8 && (line = strsep(&rest, "\n")); i++)
        if (lki_tree_override(&tree, line, line)) check_refusal();
    free(text);
    lki_tree_fini(&tree);
}

static void parse_hosts(const uint8_t *data, size_t nbytes)
{
    lki_hostlist list = {0};
    int tasks;
    char *text = as_text(data, nbytes);
    if (lki_hostlist_expand(&list, text))
        check_refusal();
    else
        for (int i = 0; i < list.count; i++) must(list.names[i] != NULL, "each host has a name");
    lki_hostlist_fini(&list);
    if (lki_tasks_of_node(&tasks, text, 2)) check_refusal();
    free(text);
}

/* Templates of paths. The first byte chooses the number. */
static void parse_path(const uint8_t *data, size_t nbytes)
{
    static const double numbers[] = {0, 1, -3, 0.5, 1e300, 123456789, NAN, -INFINITY};
    if (nbytes < 1) return;
    char *text = as_text(data + 1, nbytes - 1), *path = lk_field_path(text, "ux", numbers[data[0] % 8]);
    if (!path) check_refusal();
    lk_text_free(path);
    free(text);
}

const parser text_parsers[] = {{"config", parse_config},
                               {"override", parse_overrides},
                               {"hosts", parse_hosts},
                               {"path", parse_path},
                               {NULL, NULL}};
