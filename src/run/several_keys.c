#include "run/several_keys.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"

#include <lockstep/nn.h>

#include <string.h>

enum { MOST_KEYS = 8 };

typedef struct key_list {
    char *names[MOST_KEYS];
    int count;
} key_list;

typedef struct several_keys {
    key_list inputs, outputs;
} several_keys;

static lk_value *find_field(const char *key, const char *const *names, lk_value *const *inputs, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], key) == 0) return inputs[i];
    return NULL;
}

static lk_status forward(lk_runner *runner, lk_graph *graph, const char *const *names,
                         lk_value *const *inputs, int count)
{
    const several_keys *own = runner->context;
    lk_value *given[MOST_KEYS], *made[MOST_KEYS];
    for (int i = 0; i < own->inputs.count; i++) {
        given[i] = find_field(own->inputs.names[i], names, inputs, count);
        if (given[i]) continue;
        lki_graph_fail(graph, LK_ERR_NOT_FOUND, "input_key: a batch has no field \"%s\"",
                       own->inputs.names[i]);
        return graph->status;
    }
    LKI_TRY(lk_module_call(runner->model, given, own->inputs.count, made, own->outputs.count));
    for (int i = 0; i < own->outputs.count; i++)
        LKI_TRY(lk_graph_output(graph, own->outputs.names[i], made[i]));
    return LK_OK;
}

static void free_keys(lk_runner *runner)
{
    several_keys *own = runner->context;
    for (int i = 0; own && i < MOST_KEYS; i++) {
        lki_free(own->inputs.names[i]);
        lki_free(own->outputs.names[i]);
    }
    lki_free(own);
}

/* The names of the list, or the one name where there is no list. */
static lk_status copy_keys(key_list *out, const char *const *list, const char *one, const char *what)
{
    const char *const single[] = {one, NULL};
    if (!list) list = single;
    for (int i = 0; list[i]; i++) {
        if (i == MOST_KEYS) return lki_fail(LK_ERR_INVALID, "%s: at most %d names", what, MOST_KEYS);
        for (int k = 0; k < i; k++)
            if (strcmp(list[k], list[i]) == 0)
                return lki_fail(LK_ERR_INVALID, "%s: \"%s\" is named twice", what, list[i]);
        out->names[i] = lki_strdup(list[i]);
        if (!out->names[i]) return LK_ERR_NOMEM;
        out->count++;
    }
    return out->count ? LK_OK : lki_fail(LK_ERR_INVALID, "%s: expected at least 1 name", what);
}

lk_status lki_run_use_several_keys(lk_runner *runner, const lk_supervised_runner_options *options)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .forward = forward, .free = free_keys};
    several_keys *own = LKI_NEW(several_keys);
    if (!own) return LK_ERR_NOMEM;
    runner->ops = &ops;
    runner->context = own;
    LKI_TRY(copy_keys(&own->inputs, options->input_keys, runner->input_key, "input_key"));
    LKI_TRY(copy_keys(&own->outputs, options->output_keys, runner->output_key, "output_key"));
    runner->input_key = own->inputs.names[0];
    runner->output_key = own->outputs.names[0];
    return LK_OK;
}
