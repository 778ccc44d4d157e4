#include "graph/peak.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdlib.h>

static bool is_in_arena(const lk_value *value)
{
    return !value->node->dead && value->storage == LKI_STORAGE_ARENA &&
           !(lk_op_flags(value->node->op) & LK_OP_IS_LEAF);
}

/* Whether the value's bytes are in use while instruction `order` runs, as its own. A value that the
 * instruction writes over has given its bytes to the result. */
static bool is_in_use(const lk_value *value, const lki_node *at)
{
    if (!is_in_arena(value) || value->first > at->order || value->last < at->order) return false;
    if (value->node == at || value->last > at->order || at->output_count == 0) return true;
    return !is_in_arena(at->out[0]) || at->out[0]->offset != value->offset;
}

/* The end of a value's bytes in the list of instructions. */
static int end_of(const lk_graph *graph, const lk_value *value, lki_node *const *nodes)
{
    bool stays = !graph->last || value->last > graph->last->order;
    return value->last + (stays || is_in_use(value, nodes[value->last]));
}

/* change[t]: how many bytes more are in use at instruction t than at the one before. */
static lki_node *find_busiest(const lk_graph *graph, lki_node *const *nodes, int64_t *change, size_t *nbytes)
{
    int64_t in_use = 0, most = -1;
    lki_node *busiest = NULL;
    for (lki_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->output_count; i++) {
            const lk_value *value = node->out[i];
            if (!is_in_arena(value)) continue;
            change[value->first] += (int64_t)lki_value_nbytes(value);
            change[end_of(graph, value, nodes)] -= (int64_t)lki_value_nbytes(value);
        }
    for (lki_node *node = graph->first; node; node = node->next) {
        in_use += change[node->order];
        if (in_use <= most) continue;
        most = in_use;
        busiest = node;
    }
    *nbytes = most > 0 ? (size_t)most : 0;
    return busiest;
}

static int by_size(const void *a, const void *b)
{
    const lki_peak_value *left = a, *right = b;
    return left->nbytes != right->nbytes ? (left->nbytes < right->nbytes ? 1 : -1) : 0;
}

static lk_status list_values(const lk_graph *graph, const lki_node *at, lki_peak *out)
{
    int count = 0;
    for (const lki_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->output_count; i++) count += is_in_use(node->out[i], at);
    out->values = LKI_NEW_ARRAY(lki_peak_value, count + 1);
    if (!out->values) return LK_ERR_NOMEM;
    for (const lki_node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->output_count; i++)
            if (is_in_use(node->out[i], at))
                out->values[out->value_count++] =
                    (lki_peak_value){lk_op_name(node->op), node->scope, lki_value_nbytes(node->out[i])};
    qsort(out->values, (size_t)out->value_count, sizeof *out->values, by_size);
    return LK_OK;
}

lk_status lki_plan_find_peak(const lki_plan *plan, lki_peak *out)
{
    const lk_graph *graph = lki_plan_graph(plan);
    int count = graph->last ? graph->last->order + 1 : 0;
    LKI_SCOPED int64_t *change = LKI_NEW_ARRAY(int64_t, count + 3);
    LKI_SCOPED lki_node **nodes = LKI_NEW_ARRAY(lki_node *, count + 1);
    *out = (lki_peak){0};
    if (!change || !nodes) return LK_ERR_NOMEM;
    for (lki_node *node = graph->first; node; node = node->next) nodes[node->order] = node;
    const lki_node *at = find_busiest(graph, nodes, change, &out->nbytes);
    if (!at) return LK_OK;
    out->op = lk_op_name(at->op);
    out->layer = at->scope;
    out->section = at->section;
    return list_values(graph, at, out);
}
