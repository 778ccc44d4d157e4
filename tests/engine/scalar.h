/* The numbers of an elementwise op from a table that has two of them for each op. */
#ifndef LKT_ENGINE_SCALAR_H
#define LKT_ENGINE_SCALAR_H

#include <lockstep/sys/op.h>

static inline lk_scalar_attr lkt_scalar(lk_op op, double first, double second, bool by_tanh)
{
    lk_scalar_attr attr = {.number = first};
    switch (op) {
    case LK_OP_SOFTPLUS:
    case LK_OP_SOFTPLUS_GRAD:
        attr.softplus.beta = first;
        attr.softplus.threshold = second;
        break;
    case LK_OP_CLAMP:
    case LK_OP_CLAMP_GRAD:
        attr.clamp.min = first;
        attr.clamp.max = second;
        break;
    case LK_OP_LEAKY_RELU:
    case LK_OP_LEAKY_RELU_GRAD: attr.slope = first; break;
    case LK_OP_ELU:
    case LK_OP_ELU_GRAD: attr.alpha = first; break;
    case LK_OP_GELU:
    case LK_OP_GELU_GRAD: attr.by_tanh = by_tanh; break;
    default: break;
    }
    return attr;
}

#endif
