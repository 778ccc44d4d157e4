#include "graph/trace_calls.h"

#include <lockstep/sys/op.h>

static double count_of(const lk_tensor *tensor)
{
    return (double)lk_shape_count(tensor->shape);
}

static double last_dim(const lk_tensor *tensor)
{
    return tensor->shape.rank > 0 ? (double)tensor->shape.dim[tensor->shape.rank - 1] : 1;
}

static double first_dim(const lk_tensor *tensor)
{
    return tensor->shape.rank > 0 && tensor->shape.dim[0] > 0 ? (double)tensor->shape.dim[0] : 1;
}

/* Of products and convolutions: 2 for each number that is multiplied and added. */
static double count_flops(const lk_call *call)
{
    const lk_tensor *a = &call->in[0], *b = &call->in[1], *y = &call->out[0];
    switch (call->op) {
    case LK_OP_MATMUL:
    case LK_OP_LINEAR: return 2 * count_of(y) * last_dim(a);
    case LK_OP_LINEAR_GRAD: return 2 * count_of(a) * last_dim(b);                     /* (dy, x) -> dw */
    case LK_OP_CONV: return 2 * count_of(y) * count_of(b) / first_dim(b);             /* (x, w) */
    case LK_OP_CONV_GRAD_INPUT: return 2 * count_of(a) * count_of(b) / first_dim(b);  /* (dy, w) */
    case LK_OP_CONV_GRAD_WEIGHT: return 2 * count_of(a) * count_of(y) / first_dim(y); /* (dy, x) -> dw */
    case LK_OP_CONV_TRANSPOSE: return 2 * count_of(a) * count_of(b) / first_dim(b);   /* (x, w) */
    default: return 0;
    }
}

static double count_nbytes(const lk_call *call)
{
    bool writes_first = call->op == LK_OP_UPDATE || call->op == LK_OP_ACCUMULATE ||
                        call->op == LK_OP_CLIP_NORM || call->op == LK_OP_CLIP_VALUE;
    double nbytes = 0;
    for (int i = 0; i < call->input_count; i++) {
        double each = count_of(&call->in[i]) * (double)lk_dtype_nbytes(call->in[i].dtype);
        bool is_state = call->op == LK_OP_UPDATE && i >= 2;
        if (!call->in[i].data) continue;
        nbytes += (writes_first && i == 0) || is_state ? 2 * each : each;
    }
    for (int i = 0; i < call->output_count; i++)
        nbytes += count_of(&call->out[i]) * (double)lk_dtype_nbytes(call->out[i].dtype);
    return nbytes;
}

void lki_call_work(const lk_call *call, double *flops, double *nbytes)
{
    *flops = *nbytes = -1;
    if (lk_op_flags(call->op) & LK_OP_RUNS_ON_HOST) return;
    switch (call->op) {
    case LK_OP_EMBEDDING:
    case LK_OP_EMBEDDING_GRAD:
    case LK_OP_GATHER:
    case LK_OP_GATHER_GRAD:
    case LK_OP_SLICE: return;
    default: break;
    }
    *flops = count_flops(call);
    *nbytes = count_nbytes(call);
}

int lki_trace_add_call(lki_trace *trace, lki_trace_kind kind, const lk_call *call, const char *where)
{
    bool between_ranks = (lk_op_flags(call->op) & LK_OP_RUNS_ON_HOST) && call->op != LK_OP_ASSIGN &&
                         lk_op_family_of(call->op) != LK_FAMILY_CUSTOM;
    lki_trace_site site = {.kind = between_ranks ? LKI_TRACE_COMMUNICATION : kind,
                           .name = lk_op_name(call->op),
                           .where = (char *)where,
                           .key = call,
                           .fallback = call->fallback,
                           .dtype = call->input_count ? (int)call->in[0].dtype : -1};
    lki_call_work(call, &site.flops, &site.nbytes);
    return lki_trace_add_site(trace, site);
}
