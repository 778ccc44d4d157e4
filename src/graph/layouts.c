/* Layouts: convolutions that their engine would rather compute with channels last get and give such
 * activations, and what lies between them keeps those.
 *
 * A value with channels last has the shape it always had, (n, c, s...), and lies in memory as (n, s..., c).
 * Inputs, parameters, their gradients and the outputs of the graph are row-major always. LK_OP_REORDER nodes
 * stand where the two meet, once a value and direction. Where there is one channel or one place, both
 * layouts are the same memory: such a value counts as row-major and is taken for either. */
#include "graph/graph.h"

#include "base/status.h"
#include "graph/ask_engine.h"

/* Which operands of a node have channels last together: bit i stands for operand i. */
typedef struct reach {
    uint32_t in, out;
} reach;

enum { MOST_OPERANDS = 32 };

/* Whether the two layouts of it differ. */
static bool has_layouts(const lk_value *value)
{
    int64_t places = 1;
    for (int i = 2; i < value->shape.rank; i++) places *= value->shape.dim[i];
    return value->shape.rank > 2 && value->shape.dim[1] > 1 && places > 1;
}

static bool is_last(const lk_value *value)
{
    return value->layout == LK_LAYOUT_CHANNELS_LAST;
}

/* Element by element over operands of one shape, or of one element. */
static bool goes_elementwise(const lki_node *node)
{
    if (!(lk_op_flags(node->op) & LK_OP_IS_ELEMENTWISE)) return false;
    for (int i = 0; i < node->input_count; i++)
        if (!node->in[i] || (!lk_shape_equal(node->in[i]->shape, node->out[0]->shape) &&
                             lk_shape_count(node->in[i]->shape) != 1))
            return false;
    return node->input_count > 0 && node->input_count <= MOST_OPERANDS;
}

/* The operands of a node that can keep channels last; none of a node that cannot. */
static reach reach_of(const lki_node *node)
{
    bool pools = lk_op_family_of(node->op) == LK_FAMILY_POOL && node->out[0] &&
                 node->out[0]->shape.rank == node->attr.pool.window.rank + 2;
    switch (node->op) {
    case LK_OP_BATCH_NORM: return (reach){1, 1};
    case LK_OP_BATCH_NORM_GRAD: return (reach){3, 1};
    case LK_OP_MAX_POOL: return pools ? (reach){1, 3} : (reach){0, 0};
    case LK_OP_MAX_POOL_GRAD: return pools ? (reach){3, 1} : (reach){0, 0};
    case LK_OP_AVG_POOL:
    case LK_OP_AVG_POOL_GRAD:
    case LK_OP_ADAPTIVE_AVG_POOL:
    case LK_OP_ADAPTIVE_AVG_POOL_GRAD: return pools ? (reach){1, 1} : (reach){0, 0};
    default: break;
    }
    if (!goes_elementwise(node)) return (reach){0, 0};
    uint32_t in = 0;
    for (int i = 0; i < node->input_count; i++) in |= (uint32_t)has_layouts(node->in[i]) << i;
    return (reach){in, 1};
}

/* A gradient of a parameter is row-major, and what writes it. */
static bool writes_gradient(const lki_node *node, uint32_t outputs)
{
    for (int i = 0; i < node->output_count; i++)
        if ((outputs >> i & 1) && node->out[i]->storage == LKI_STORAGE_GRAD) return true;
    return false;
}

static bool wants_last(lk_engine *engine, const lki_node *node, bool wherever_possible)
{
    lk_preference answer = lki_ask_engine(engine, node);
    return answer == LK_PREFERRED || (answer == LK_POSSIBLE && wherever_possible);
}

/* Somebody who reads a value has another operand with channels last already: its gradient's other half. */
static bool is_wanted_last(const lk_value *value)
{
    for (const lki_node *reader = value->node->next; reader; reader = reader->next) {
        bool reads = false, last = false;
        if (reader->dead) continue;
        for (int i = 0; i < reader->input_count; i++) {
            reads = reads || reader->in[i] == value;
            last = last || (reader->in[i] && is_last(reader->in[i]));
        }
        if (reads) return last && reach_of(reader).in;
    }
    return false;
}

/* One operand with channels last decides; where none has layouts, whoever reads the result. */
static bool keeps_last(const lki_node *node, reach r)
{
    bool open = true;
    if (!r.in || writes_gradient(node, r.out)) return false;
    for (int i = 0; i < node->input_count && i < MOST_OPERANDS; i++) {
        if (!(r.in >> i & 1) || !node->in[i]) continue;
        if (is_last(node->in[i])) return true;
        open = open && !has_layouts(node->in[i]);
    }
    return open && has_layouts(node->out[0]) && is_wanted_last(node->out[0]);
}

static void set_last(lk_value *value)
{
    if (has_layouts(value)) value->layout = LK_LAYOUT_CHANNELS_LAST;
}

/* Floats of 16 and 32 bits are cast on the way. */
static bool is_cast_on_the_way(const lki_node *cast)
{
    lk_dtype from = cast->in[0]->dtype, to = cast->out[0]->dtype;
    bool low = from == LK_BF16 || from == LK_F16 || to == LK_BF16 || to == LK_F16;
    return low && (from == LK_F32 || to == LK_F32) && !cast->out[0]->is_output;
}

/* The value in its other layout, made before `place`. */
static lk_value *turn(lk_graph *graph, lk_value *value, lki_node *place)
{
    if (value->turned) return value->turned;
    lk_value *from = value;
    const lki_node *maker = value->node;
    bool last = is_last(value);
    if (maker->op == LK_OP_CAST && !last && is_cast_on_the_way(maker)) from = maker->in[0];
    lki_node *node = lki_graph_insert(graph, place, LK_OP_REORDER, &from, 1, NULL);
    if (!node) return NULL;
    lk_value *turned = node->out[0];
    turned->dtype = value->dtype;
    turned->shape = value->shape;
    if (!last) set_last(turned);
    turned->turned = value;
    value->turned = turned;
    return turned;
}

static lk_status give(lk_graph *graph, lki_node *node, int index, bool last)
{
    lk_value *value = node->in[index];
    if (!value || !has_layouts(value) || is_last(value) == last) return LK_OK;
    lk_value *turned = turn(graph, value, node);
    if (!turned) return LK_ERR_NOMEM;
    node->in[index] = turned;
    return LK_OK;
}

/* What leaves the graph is row-major, as soon as it is there. */
static lk_status turn_output(lk_graph *graph, lk_value *value)
{
    if (!value->is_output || !is_last(value)) return LK_OK;
    lki_node *maker = value->node;
    lk_value *turned = turn(graph, value, maker->next);
    if (!turned) return LK_ERR_NOMEM;
    turned->node->section = maker->section;
    turned->node->scope = maker->scope;
    turned->node->region = maker->region;
    turned->is_output = true;
    turned->name = value->name;
    value->is_output = false;
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] == value) graph->outputs[i] = turned;
    return LK_OK;
}

static lk_status lay_out(lk_graph *graph, lki_node *node, reach r)
{
    for (int i = 0; i < node->input_count; i++)
        LKI_TRY(give(graph, node, i, i < MOST_OPERANDS && (r.in >> i & 1)));
    for (int i = 0; i < node->output_count; i++) {
        if (!(r.out >> i & 1)) continue;
        set_last(node->out[i]);
        LKI_TRY(turn_output(graph, node->out[i]));
    }
    return LK_OK;
}

/* A gradient of a weight is row-major: its engine turns it. */
static reach reach_of_convolution(lk_engine *engine, const lki_node *node, bool wherever_possible)
{
    uint32_t out = node->op == LK_OP_CONV_GRAD_WEIGHT ? 0 : 1;
    if (writes_gradient(node, out) || !wants_last(engine, node, wherever_possible)) return (reach){0, 0};
    return (reach){3, out};
}

lk_status lki_pass_layouts(lk_graph *graph, lk_engine *engine, bool wherever_possible)
{
    if (!engine->ops->preference) return LK_OK;
    for (lki_node *node = graph->first; node; node = node->next) {
        if (node->dead || node->op == LK_OP_REORDER || (lk_op_flags(node->op) & LK_OP_IS_LEAF)) continue;
        bool convolves = lk_op_family_of(node->op) == LK_FAMILY_CONV;
        reach r = convolves ? reach_of_convolution(engine, node, wherever_possible) : reach_of(node);
        if (!convolves && !keeps_last(node, r)) r = (reach){0, 0};
        LKI_TRY(lay_out(graph, node, r));
    }
    lki_graph_count_uses(graph);
    return LK_OK;
}
