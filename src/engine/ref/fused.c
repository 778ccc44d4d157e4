/* A chain of elementwise ops, element by element: each step reads inputs and the results of earlier steps. */
#include "engine/ref/ref.h"

static double run_chain(const lk_fused *fused, double *value)
{
    for (int s = 0; s < fused->step_count; s++) {
        double operand[3] = {0};
        for (int k = 0; k < 3; k++) {
            int from = fused->step[s].operand[k];
            bool known = from >= 0 && from < fused->input_count +
                                                 s; /* operands that an op does not take may be anything */
            operand[k] = known ? value[from] : 0;
        }
        value[fused->input_count + s] =
            lki_ref_scalar(fused->step[s].op, &fused->step[s].scalar, operand[0], operand[1], operand[2]);
    }
    return value[fused->input_count + fused->step_count - 1];
}

lk_status lki_ref_fused(const lk_call *call)
{
    const lk_tensor *out = &call->out[0];
    const lk_fused *fused = call->attr->fused.chain;
    lk_tensor in[LK_MAX_FUSED_INPUTS] = {{0}};
    for (int k = 0; k < fused->input_count; k++) in[k] = lki_ref_broadcast(&call->in[k], out->shape);
    int64_t count = lk_tensor_count(out);
    for (int64_t i = 0; i < count; i++) {
        double value[LK_MAX_FUSED_INPUTS + LK_MAX_FUSED_STEPS];
        for (int k = 0; k < fused->input_count; k++)
            value[k] = lki_ref_get(&in[k], lki_ref_offset(&in[k], i));
        lki_ref_set(out, i, run_chain(fused, value));
    }
    return LK_OK;
}
