/* Joins a loss between numbers and its gradient: both read the same two tensors, and the gradient of a step's
 * own loss is that of 1. What was the result of the gradient's node becomes output 1 of the loss. */
#include "graph/graph.h"

#include "graph/ask_engine.h"

static bool is_one(const lk_value *seed)
{
    const lki_node *node = seed->node;
    if (node->op == LK_OP_FULL) return node->attr.fill.value == 1;
    return node->op == LK_OP_CONSTANT && lk_tensor_get(seed->constant, 0) == 1;
}

/* The gradient of this loss with respect to its input 0, and nothing else. */
static bool belongs_to(const lki_node *gradient, const lki_node *loss)
{
    const lk_value *dx = gradient->out[0];
    if (gradient->op != LK_OP_POINTWISE_LOSS_GRAD || gradient->dead || !is_one(gradient->in[0])) return false;
    if (gradient->in[1] != loss->in[0] || gradient->in[2] != loss->in[1]) return false;
    for (int i = 2; i < 4; i++) {
        const lk_value *mine = i < loss->input_count ? loss->in[i] : NULL,
                       *its = i + 1 < gradient->input_count ? gradient->in[i + 1] : NULL;
        if (mine != its) return false;
    }
    const lk_pointwise_loss_attr *its = &gradient->attr.pointwise_loss, *mine = &loss->attr.pointwise_loss;
    return its->kind == mine->kind && its->parameter == mine->parameter &&
           its->reduction == mine->reduction && dx->storage == LKI_STORAGE_ARENA &&
           dx->dtype == loss->in[0]->dtype && dx->dtype == loss->out[0]->dtype;
}

/* The loss with this output too; false if the engine would rather not. */
static bool take_output(lk_engine *engine, lki_node *loss, lk_value *dx)
{
    lki_node both = *loss;
    both.op = LK_OP_POINTWISE_LOSS_WITH_GRAD;
    both.out[1] = dx;
    both.output_count = 2;
    if (lki_ask_engine(engine, &both) != LK_PREFERRED) return false;
    *loss = both;
    dx->node = loss;
    dx->index = 1;
    return true;
}

static void join(lk_graph *graph, lk_engine *engine, lki_node *loss)
{
    if (loss->dead || loss->attr.pointwise_loss.reduction == LK_REDUCTION_NONE) return;
    for (lki_node *node = loss->next; node; node = node->next) {
        if (!belongs_to(node, loss)) continue;
        lk_value *dx = node->out[0];
        if (take_output(engine, loss, dx)) lki_graph_remove(graph, node);
        return;
    }
}

void lki_pass_join_losses(lk_graph *graph, lk_engine *engine)
{
    for (lki_node *node = graph->first; node; node = node->next)
        if (node->op == LK_OP_POINTWISE_LOSS) join(graph, engine, node);
    lki_graph_count_uses(graph);
}
