/* Fuse: merges what one kernel can do.
 *
 * First, an activation that alone reads a product or a max pool is folded into it, and a ReLU's gradient goes
 * before that of the pool that read its result, or into that of the pool it was folded into. Then an
 * elementwise node swallows the elementwise nodes that only it reads, so that a chain walks over memory once.
 */
#include "graph/graph.h"

#include "base/status.h"

#include <string.h>

static bool is_private(const lk_value *value)
{
    return value->use_count == 1 && !value->is_output && value->storage == LKI_STORAGE_ARENA;
}

/* Where an op that can end with an activation says which; NULL for the others. */
static lk_activation *activation_of(lki_node *node)
{
    switch (node->op) {
    case LK_OP_LINEAR: return &node->attr.linear.activation;
    case LK_OP_CONV: return &node->attr.conv.activation;
    case LK_OP_MAX_POOL: return &node->attr.pool.activation;
    default: return NULL;
    }
}

static void fold_activation(lk_graph *graph, lki_node *relu)
{
    lk_value *x = relu->in[0];
    lki_node *product = x->node;
    lk_activation *activation = x == product->out[0] ? activation_of(product) : NULL;
    bool foldable = activation && *activation == LK_ACTIVATION_NONE && is_private(x) &&
                    product->section == relu->section && x->dtype == relu->out[0]->dtype;
    if (!foldable) return;
    *activation = LK_ACTIVATION_RELU;
    lk_value *y = relu->out[0];
    x->use_count = y->use_count;
    lki_graph_replace_uses(graph, y, x, relu->next);
    relu->dead = true;
    lki_graph_remove(graph, relu);
}

/* The gradient of a pool over a ReLU's result: what wins a window is that window's own maximum, so whether
 * the ReLU let it through can be asked of the smaller tensor. Exchanges the two, which also ends the life of
 * the ReLU's result with the forward half. */
static lk_status exchange_with_pool(lk_graph *graph, lki_node *relu)
{
    lk_value *dx = relu->in[0], *y = relu->in[1];
    lki_node *pool_grad = dx->node;
    bool fits = pool_grad->op == LK_OP_MAX_POOL_GRAD && is_private(dx) &&
                pool_grad->section == relu->section && relu->out[0]->storage == LKI_STORAGE_ARENA;
    lki_node *pool = fits ? pool_grad->in[1]->node : NULL;
    if (!pool || pool->op != LK_OP_MAX_POOL || pool->in[0] != y) return LK_OK;
    lk_value *inputs[] = {pool_grad->in[0], pool->out[0]};
    if (!lk_shape_equal(inputs[0]->shape, inputs[1]->shape) || inputs[0]->dtype != inputs[1]->dtype ||
        dx->dtype != relu->out[0]->dtype || dx->dtype != inputs[0]->dtype)
        return LK_OK;
    lki_node *smaller = lki_graph_insert(graph, pool_grad, LK_OP_RELU_GRAD, inputs, 2, &relu->attr);
    if (!smaller) return LK_ERR_NOMEM;
    smaller->scope = relu->scope;
    pool_grad->in[0] = smaller->out[0];
    lki_graph_replace_uses(graph, relu->out[0], dx, relu->next);
    lki_graph_remove(graph, relu);
    return LK_OK;
}

/* The gradient of a ReLU that was folded into a pool: where it let nothing through, nothing has won, so the
 * pool's own gradient needs no help. */
static void drop_before_pool(lk_graph *graph, lki_node *pool_grad)
{
    lki_node *relu = pool_grad->in[0]->node, *pool = pool_grad->in[1]->node;
    if (!relu || relu->op != LK_OP_RELU_GRAD || !pool || pool->op != LK_OP_MAX_POOL) return;
    if (pool->attr.pool.activation != LK_ACTIVATION_RELU || relu->in[1] != pool->out[0]) return;
    if (!is_private(relu->out[0]) || relu->in[0]->dtype != relu->out[0]->dtype) return;
    pool_grad->in[0] = relu->in[0];
    lki_graph_remove(graph, relu);
}

/* Comparisons, selections and casts mix dtypes; chains keep to one. */
static bool is_fusable(const lki_node *node)
{
    switch (node->op) {
    case LK_OP_GREATER:
    case LK_OP_GREATER_EQUAL:
    case LK_OP_EQUAL:
    case LK_OP_WHERE:
    case LK_OP_CAST:
    case LK_OP_COPY: return false;
    default: break;
    }
    if (node->dead || !(lk_op_flags(node->op) & LK_OP_IS_ELEMENTWISE)) return false;
    if (!lk_dtype_is_float(node->out[0]->dtype)) return false;
    for (int i = 0; i < node->input_count; i++)
        if (!node->in[i] || node->in[i]->dtype != node->out[0]->dtype) return false;
    return true;
}

static bool can_swallow(const lki_node *node, const lk_value *input)
{
    const lki_node *producer = input->node;
    return is_private(input) && is_fusable(producer) && producer->section == node->section &&
           lk_shape_equal(input->shape, node->out[0]->shape);
}

typedef struct chain {
    lk_fused program;
    lk_value *in[LK_MAX_FUSED_INPUTS];
} chain;

/* The operand number of an input, which joins the inputs where it is new; -1 where there are too many. */
static int join_input(chain *merged, lk_value *value)
{
    for (int i = 0; i < merged->program.input_count; i++)
        if (merged->in[i] == value) return i;
    if (merged->program.input_count == LK_MAX_FUSED_INPUTS) return -1;
    merged->in[merged->program.input_count] = value;
    return merged->program.input_count++;
}

static int step_limit(const lki_node *node)
{
    return node->op == LK_OP_FUSED ? node->attr.fused.chain->step_count : 1;
}

/* Inputs are numbered from 0 and steps from STEP_BASE while a chain grows; the final numbering needs the
 * input count. */
enum { STEP_BASE = 1000 };

/* Appends the steps of `node`; its input `replaced`, where not NULL, is the result of step `result`. False:
 * no room. */
static bool append_steps(chain *merged, const lki_node *node, const lk_value *replaced, int result)
{
    lk_fused single = {.input_count = node->input_count, .step_count = 1};
    single.step[0].op = node->op;
    if (lk_op_family_of(node->op) == LK_FAMILY_SCALAR) single.step[0].scalar = node->attr.scalar;
    for (int i = 0; i < 3; i++) single.step[0].operand[i] = i < node->input_count ? i : 0;
    const lk_fused *program = node->op == LK_OP_FUSED ? node->attr.fused.chain : &single;
    int first_step = merged->program.step_count;
    if (first_step + program->step_count > LK_MAX_FUSED_STEPS) return false;
    for (int s = 0; s < program->step_count; s++) {
        merged->program.step[first_step + s] = program->step[s];
        for (int k = 0; k < 3; k++) {
            int operand = program->step[s].operand[k], joined;
            if (operand >= program->input_count)
                joined = STEP_BASE + first_step + operand - program->input_count;
            else if (node->in[operand] == replaced)
                joined = STEP_BASE + result;
            else
                joined = join_input(merged, node->in[operand]);
            if (joined < 0) return false;
            merged->program.step[first_step + s].operand[k] = joined;
        }
    }
    merged->program.step_count += program->step_count;
    return true;
}

static lk_status swallow(lk_graph *graph, lki_node *node, lk_value *input, bool *done)
{
    chain merged;
    memset(&merged, 0, sizeof merged);
    *done = false;
    if (step_limit(node) + step_limit(input->node) > LK_MAX_FUSED_STEPS) return LK_OK;
    if (!append_steps(&merged, input->node, NULL, 0)) return LK_OK;
    if (!append_steps(&merged, node, input, merged.program.step_count - 1)) return LK_OK;
    lk_fused *program = LKI_ARENA_NEW(&graph->arena, lk_fused);
    lk_value **in = LKI_ARENA_NEW_ARRAY(&graph->arena, lk_value *, merged.program.input_count + 1);
    if (!program || !in) return LK_ERR_NOMEM;
    for (int s = 0; s < merged.program.step_count; s++)
        for (int k = 0; k < 3; k++) {
            int *operand = &merged.program.step[s].operand[k];
            if (*operand >= STEP_BASE) *operand += merged.program.input_count - STEP_BASE;
        }
    *program = merged.program;
    memcpy(in, merged.in, sizeof *in * (size_t)merged.program.input_count);
    lki_graph_remove(graph, input->node);
    node->op = LK_OP_FUSED;
    node->attr = (lk_attr){.fused = {.chain = program, .shape = node->out[0]->shape}};
    node->in = in;
    node->input_count = merged.program.input_count;
    *done = true;
    return LK_OK;
}

/* Swallows until nothing more fits. The use counts of the inputs change only by merging equal ones: recount
 * at the end. */
static lk_status grow_chain(lk_graph *graph, lki_node *node)
{
    for (bool again = true; again;) {
        again = false;
        for (int i = 0; i < node->input_count && !again; i++)
            if (can_swallow(node, node->in[i])) LKI_TRY(swallow(graph, node, node->in[i], &again));
    }
    return LK_OK;
}

lk_status lki_pass_fuse(lk_graph *graph)
{
    lki_graph_count_uses(graph);
    for (lki_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->dead && !(lk_op_flags(node->op) & LK_OP_IS_LEAF)) lki_graph_remove(graph, node);
    }
    lki_graph_count_uses(graph);
    for (lki_node *node = graph->first, *next; node; node = next) {
        next = node->next;
        if (node->op == LK_OP_RELU) fold_activation(graph, node);
        if (node->op == LK_OP_RELU_GRAD) LKI_TRY(exchange_with_pool(graph, node));
    }
    lki_graph_count_uses(graph);
    for (lki_node *node = graph->first; node; node = node->next)
        if (node->op == LK_OP_MAX_POOL_GRAD) drop_before_pool(graph, node);
    lki_graph_count_uses(graph);
    for (lki_node *node = graph->first; node; node = node->next)
        if (is_fusable(node)) LKI_TRY(grow_chain(graph, node));
    lki_graph_count_uses(graph);
    return LK_OK;
}
