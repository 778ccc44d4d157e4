/* Precision: products and convolutions read 16-bit operands; with `activations` they also write 16-bit
 * results, and what lies between them keeps those, so that an activation is stored in 16 bits and never cast
 * back and forth.
 *
 * Which op does what is said by its flags in op.h, after the lists of PyTorch's autocast. Losses, softmax,
 * sums and all ops without such a flag read f32. Parameters, their gradients and the outputs of the graph are
 * f32 always. A cast is made once a value: the backward half finds the forward half's. */
#include "graph/graph.h"

#include "base/status.h"

static bool is_low(const lk_value *value)
{
    return value->dtype == LK_BF16 || value->dtype == LK_F16;
}

static lk_status cast_operand(lk_graph *graph, lki_node *node, int index, lk_dtype dtype, lk_value **cache)
{
    lk_value *value = node->in[index];
    if (!*cache) {
        lk_attr attr = {.cast.dtype = dtype};
        lki_node *cast = lki_graph_insert(graph, node, LK_OP_CAST, &value, 1, &attr);
        if (!cast) return lki_last_status();
        *cache = cast->out[0];
    }
    node->in[index] = *cache;
    return LK_OK;
}

static lk_status lower_operand(lk_graph *graph, lki_node *node, int index, lk_dtype low)
{
    lk_value *value = node->in[index];
    if (!value || value->dtype != LK_F32) return LK_OK;
    return cast_operand(graph, node, index, low, &value->low);
}

/* A value that was f32 before is found again. */
static lk_status widen_operand(lk_graph *graph, lki_node *node, int index)
{
    lk_value *value = node->in[index];
    if (!value || !is_low(value)) return LK_OK;
    if (value->node->op == LK_OP_CAST && value->node->in[0]->dtype == LK_F32) {
        node->in[index] = value->node->in[0];
        return LK_OK;
    }
    return cast_operand(graph, node, index, LK_F32, &value->wide);
}

/* How many operands, from the first on, are activations; those after them (a bias, the statistics and weights
 * of a normalisation, indices) stay as they are. */
static int activation_count(const lki_node *node)
{
    switch (node->op) {
    case LK_OP_CONCAT:
    case LK_OP_SLICES_GRAD: return node->input_count;
    case LK_OP_BATCH_NORM_GRAD: return 2;
    case LK_OP_ATTENTION: return 3;      /* q, k, v; masks are added in f32 */
    case LK_OP_ATTENTION_GRAD: return 5; /* with dy and y before them */
    default: break;
    }
    if (lk_op_flags(node->op) & LK_OP_WANTS_16_BITS) return 2; /* the factors; a bias is added in f32 */
    return (lk_op_flags(node->op) & LK_OP_IS_ELEMENTWISE) ? node->input_count : 1;
}

static bool is_float_activation(const lki_node *node, int index)
{
    const lk_value *value = node->in[index];
    return value && (value->dtype == LK_F32 || is_low(value));
}

/* Whether an op that keeps what it gets gets 16 bits: all of them going forward, where f32 wins as it does in
 * PyTorch. Of a gradient the last one decides: the activation that it belongs to, where it reads that. */
static bool gets_low(const lki_node *node)
{
    int low = 0, count = 0, activations = activation_count(node);
    if (lk_op_flags(node->op) & (LK_OP_HAS_NO_GRADIENT | LK_OP_IS_GRADIENT))
        return is_low(node->in[activations - 1]);
    for (int i = 0; i < activations; i++) {
        if (!is_float_activation(node, i)) continue;
        count++;
        low += is_low(node->in[i]);
    }
    return count > 0 && low == count;
}

static bool is_stored_gradient(const lki_node *node)
{
    for (int i = 0; i < node->output_count; i++)
        if (node->out[i]->storage == LKI_STORAGE_GRAD) return true;
    return false;
}

/* What leaves the graph is f32. */
static lk_status widen_outputs(lk_graph *graph, lki_node *node)
{
    lk_value *value = node->out[0];
    if (!value->is_output) return LK_OK;
    lki_node *cast =
        lki_graph_insert(graph, node->next, LK_OP_CAST, &value, 1, &(lk_attr){.cast.dtype = LK_F32});
    if (!cast) return lki_last_status();
    cast->section = node->section;
    cast->scope = node->scope;
    cast->region = node->region;
    value->wide = cast->out[0];
    value->is_output = false;
    value->wide->is_output = true;
    value->wide->name = value->name;
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] == value) graph->outputs[i] = value->wide;
    return LK_OK;
}

/* A product's factors become 16 bits; its result too, but for gradients of parameters, which its second
 * result (of a bias) tells as well, and for what leaves the graph. */
static lk_status lower_product(lk_graph *graph, lki_node *node, lk_dtype low, bool activations)
{
    for (int i = 0; i < activation_count(node); i++) LKI_TRY(lower_operand(graph, node, i, low));
    bool to_low =
        is_low(node->in[0]) && (!node->in[1] || is_low(node->in[1])) && node->out[0]->dtype == LK_F32;
    if (!activations || !to_low || is_stored_gradient(node) || node->out[0]->is_output) return LK_OK;
    if (node->op == LK_OP_LINEAR_GRAD || node->op == LK_OP_CONV_GRAD_WEIGHT) return LK_OK;
    node->out[0]->dtype = low;
    for (int i = 1; node->op == LK_OP_ATTENTION_GRAD && i < 3; i++) node->out[i]->dtype = low;
    return LK_OK;
}

static lk_status keep(lk_graph *graph, lki_node *node, lk_dtype low)
{
    bool stored = node->op == LK_OP_BATCH_NORM_GRAD ? node->out[0]->storage == LKI_STORAGE_GRAD
                                                    : is_stored_gradient(node);
    bool lowers = gets_low(node) && !stored && node->out[0]->dtype == LK_F32;
    for (int i = 0; i < activation_count(node); i++)
        LKI_TRY(lowers ? lower_operand(graph, node, i, low) : widen_operand(graph, node, i));
    if (!lowers) return LK_OK;
    node->out[0]->dtype = low;
    return widen_outputs(graph, node);
}

/* Of an op that reads f32. A view shares its memory with what it reads, and has to be of its dtype: all views
 * keep. */
static lk_status widen(lk_graph *graph, lki_node *node)
{
    for (int i = 0; i < node->input_count; i++) LKI_TRY(widen_operand(graph, node, i));
    return LK_OK;
}

lk_status lki_pass_precision(lk_graph *graph, lk_dtype low, bool activations)
{
    for (lki_node *node = graph->first; node; node = node->next) {
        unsigned flags = lk_op_flags(node->op);
        if (node->dead || node->op == LK_OP_CAST || (flags & LK_OP_IS_LEAF)) continue;
        if (flags & LK_OP_WANTS_16_BITS)
            LKI_TRY(lower_product(graph, node, low, activations));
        else if (activations)
            LKI_TRY(flags & LK_OP_KEEPS_16_BITS ? keep(graph, node, low) : widen(graph, node));
    }
    lki_graph_count_uses(graph);
    return LK_OK;
}
