#include "graph/ask_engine.h"

enum { MOST_INPUTS = 16 };

lk_preference lki_ask_engine(lk_engine *engine, const lki_node *node)
{
    lk_tensor in[MOST_INPUTS] = {{0}};
    int in_layout[MOST_INPUTS] = {0};
    if (!engine->ops->preference || node->input_count > MOST_INPUTS) return LK_IMPOSSIBLE;
    lk_call call = {.op = node->op,
                    .attr = &node->attr,
                    .input_count = node->input_count,
                    .output_count = node->output_count,
                    .in = in,
                    .in_layout = in_layout,
                    .engine = engine};
    for (int i = 0; i < call.input_count; i++) {
        if (!node->in[i]) continue;
        in[i] = (lk_tensor){.dtype = node->in[i]->dtype, .shape = node->in[i]->shape};
        in_layout[i] = node->in[i]->layout;
    }
    for (int i = 0; i < call.output_count; i++) {
        call.out[i] = (lk_tensor){.dtype = node->out[i]->dtype, .shape = node->out[i]->shape};
        call.out_layout[i] = node->out[i]->layout;
    }
    return engine->ops->preference(engine, &call);
}
