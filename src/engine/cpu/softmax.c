/* Softmax and log-softmax over one axis, and their gradients. */
#include "engine/cpu/cpu.h"

typedef struct rows {
    const lk_call *call;
    int64_t c, inner;
    bool log, grad;
} rows;

static void run_rows(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const rows *r = context;
    const lki_cpu_kernels *kernels = lki_cpu_of(r->call)->kernels;
    int64_t at = begin * r->c * r->inner;
    float *out = lki_cpu_out(r->call, 0) + at;
    const float *first = lki_cpu_in(r->call, 0) + at;
    if (r->grad)
        kernels->softmax_grad(out, first, lki_cpu_in(r->call, 1) + at, end - begin, r->c, r->inner, r->log);
    else
        kernels->softmax(out, first, end - begin, r->c, r->inner, r->log);
}

static lk_status run_softmax(const lk_call *call)
{
    lk_shape shape = call->in[0].shape;
    int axis = shape.rank ? call->attr->axis.axis : -1;
    rows r = {
        .call = call,
        .c = axis < 0 ? 1 : shape.dim[axis],
        .inner = axis < 0 ? 1 : lki_cpu_span(shape, axis + 1, shape.rank),
        .log = call->op == LK_OP_LOG_SOFTMAX || call->op == LK_OP_LOG_SOFTMAX_GRAD,
        .grad = call->op == LK_OP_SOFTMAX_GRAD || call->op == LK_OP_LOG_SOFTMAX_GRAD,
    };
    int64_t outer = axis < 0 ? 1 : lki_cpu_span(shape, 0, axis);
    lki_parallel_for(lki_cpu_of(call)->pool, outer, LKI_CPU_GRAIN / 4 / (r.c * r.inner + 1) + 1, run_rows,
                     &r);
    return LK_OK;
}

lk_status lki_cpu_prepare_softmax(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    lk_shape shape = call->in[0].shape;
    bool rows = !shape.rank || lki_cpu_span(shape, call->attr->axis.axis + 1, shape.rank) == 1;
    lki_cpu_enter(cpu, rows ? LKI_CPU_PATH_SOFTMAX_ROWS : LKI_CPU_PATH_SOFTMAX_COLUMNS);
    call->run = run_softmax;
    return LK_OK;
}
