/* Products: matmul, linear and its gradient, each as one or more calls of the gemm kernel. */
#include "engine/cpu/batched_matmul.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/sparse.h"

#include "base/status.h"

/* Multiply-adds that make a second thread worth waking. */
static const int64_t THREAD_WORK = 400000;

typedef struct product {
    const lki_gemm *g;
    const lki_cpu_kernels *kernels;
    float *scratch;
    int64_t scratch_count, unit;
    bool by_columns;
} product;

static void run_part(int64_t begin, int64_t end, int thread, void *context)
{
    const product *p = context;
    int64_t limit = p->by_columns ? p->g->n : p->g->m;
    begin *= p->unit;
    end = end * p->unit < limit ? end * p->unit : limit;
    float *scratch = p->scratch + thread * p->scratch_count;
    if (p->by_columns)
        p->kernels->gemm(p->g, 0, p->g->m, begin, end, scratch);
    else
        p->kernels->gemm(p->g, begin, end, 0, p->g->n, scratch);
}

size_t lki_cpu_gemm_scratch(const lki_cpu *cpu, int64_t n, int64_t k)
{
    return (size_t)(lki_gemm_scratch_count(n, k) * cpu->thread_count) * sizeof(float);
}

void lki_cpu_gemm(lki_cpu *cpu, const lki_gemm *g, void *scratch)
{
    int64_t work = g->m * g->n * g->k;
    if (cpu->thread_count == 1 || work < 2 * THREAD_WORK) {
        lki_cpu_enter(cpu, LKI_CPU_PATH_GEMM_ALONE);
        cpu->kernels->gemm(g, 0, g->m, 0, g->n, scratch);
        return;
    }
    product p = {g, cpu->kernels, scratch, lki_gemm_scratch_count(g->n, g->k), 0, g->n >= 2 * g->m};
    lki_cpu_enter(cpu, p.by_columns ? LKI_CPU_PATH_GEMM_COLUMNS : LKI_CPU_PATH_GEMM_ROWS);
    p.unit = p.by_columns ? LKI_GEMM_PANEL : 14;
    int64_t units = ((p.by_columns ? g->n : g->m) + p.unit - 1) / p.unit;
    lki_parallel_for(cpu->pool, units, units * THREAD_WORK / work + 1, run_part, &p);
}

static lk_status run_linear(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *w = &call->in[1]; /* x (..., k), w (n, k) */
    int64_t n = w->shape.dim[0], k = w->shape.dim[1];
    lki_gemm g = {
        .m = lki_cpu_span(x->shape, 0, x->shape.rank - 1),
        .n = n,
        .k = k,
        .a = x->data,
        .a_row = k,
        .a_col = 1,
        .b = w->data,
        .b_row = 1,
        .b_col = k,
        .c = call->out[0].data,
        .c_row = n,
        .bias = lki_cpu_in(call, 2),
        .relu = call->attr->linear.activation == LK_ACTIVATION_RELU,
    };
    lki_sparse s = {.m = g.m, .n = n, .k = k, .x = g.a, .y = g.c, .bias = g.bias, .relu = g.relu};
    if (!lki_cpu_sparse_forward(lki_cpu_of(call), &s, w->data, call->scratch))
        lki_cpu_gemm(lki_cpu_of(call), &g, call->scratch);
    return LK_OK;
}

static void need_scratch(lk_call *call, size_t nbytes)
{
    if (call->scratch_nbytes < nbytes) call->scratch_nbytes = nbytes;
}

lk_status lki_cpu_prepare_linear(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    int64_t n = call->in[1].shape.dim[0], k = call->in[1].shape.dim[1];
    int64_t m = lki_cpu_span(call->in[0].shape, 0, call->in[0].shape.rank - 1);
    need_scratch(call, lki_cpu_gemm_scratch(cpu, n, k));
    need_scratch(call, lki_cpu_sparse_scratch(cpu, m, n, k));
    call->run = run_linear;
    return LK_OK;
}

typedef struct columns {
    const lki_cpu_kernels *kernels;
    const float *x; /* (rows, n) */
    float *out;     /* (n) */
    int64_t rows, n;
} columns;

static void sum_columns(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const columns *c = context;
    c->kernels->column_sums(c->out + begin, c->x + begin, c->rows, c->n, end - begin);
}

static lk_status run_linear_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lk_tensor *dy = &call->in[0], *x = &call->in[1]; /* dy (..., n), x (..., k) */
    int64_t n = dy->shape.dim[dy->shape.rank - 1], k = x->shape.dim[x->shape.rank - 1];
    int64_t rows = lki_cpu_span(x->shape, 0, x->shape.rank - 1);
    lki_gemm g = {
        .m = n,
        .n = k,
        .k = rows,
        .a = dy->data,
        .a_row = 1,
        .a_col = n,
        .b = x->data,
        .b_row = k,
        .b_col = 1,
        .c = call->out[0].data,
        .c_row = k,
    };
    lki_sparse s = {.m = rows, .n = n, .k = k, .x = x->data, .dy = dy->data, .dw = g.c};
    if (g.c && !lki_cpu_sparse_gradient(cpu, &s, call->scratch)) lki_cpu_gemm(cpu, &g, call->scratch);
    if (call->attr->linear.wants_bias && call->out[1].data) {
        columns c = {cpu->kernels, dy->data, call->out[1].data, rows, n};
        lki_parallel_for(cpu->pool, n, LKI_CPU_GRAIN / (rows + 1) + 1, sum_columns, &c);
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_linear_grad(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    const lk_shape *x = &call->in[1].shape;
    const lk_shape *dy = &call->in[0].shape;
    int64_t rows = lki_cpu_span(*x, 0, x->rank - 1), n = dy->dim[dy->rank - 1], k = x->dim[x->rank - 1];
    need_scratch(call, lki_cpu_gemm_scratch(cpu, k, rows));
    need_scratch(call, lki_cpu_sparse_scratch(cpu, rows, n, k));
    call->run = run_linear_grad;
    return LK_OK;
}

static lki_gemm product_at(const lki_batch *p, const lk_call *call, int64_t index)
{
    int64_t a, b;
    lki_batch_offsets(p, index, &a, &b);
    return (lki_gemm){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = (const float *)call->in[0].data + a,
        .a_row = p->a_row,
        .a_col = p->a_col,
        .b = (const float *)call->in[1].data + b,
        .b_row = p->b_row,
        .b_col = p->b_col,
        .c = (float *)call->out[0].data + index * p->m * p->n,
        .c_row = p->n,
    };
}

static void run_products(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const lki_batch *p = call->state;
    float *scratch = (float *)call->scratch + thread * lki_gemm_scratch_count(p->n, p->k);
    for (int64_t i = begin; i < end; i++) {
        lki_gemm g = product_at(p, call, i);
        lki_cpu_of(call)->kernels->gemm(&g, 0, g.m, 0, g.n, scratch);
    }
}

static lk_status run_matmul(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lki_batch *p = call->state;
    int64_t work = p->m * p->n * p->k;
    if (p->count > 1) {
        lki_parallel_for(cpu->pool, p->count, THREAD_WORK / (work + 1) + 1, run_products, (void *)call);
    } else if (p->count == 1) {
        lki_gemm g = product_at(p, call, 0);
        lki_cpu_gemm(cpu, &g, call->scratch);
    }
    return LK_OK;
}

lk_status lki_cpu_prepare_matmul(lki_cpu *cpu, lk_call *call)
{
    if (!lki_cpu_all_f32(call, 0)) return LK_OK;
    lki_batch *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    *p = lki_batch_of(call);
    if (p->count > 1) lki_cpu_enter(cpu, LKI_CPU_PATH_MATMUL_BATCH);
    if (call->out[0].shape.rank > 2 && p->rank == 0) lki_cpu_enter(cpu, LKI_CPU_PATH_MATMUL_SHARED);
    call->scratch_nbytes = lki_cpu_gemm_scratch(cpu, p->n, p->k);
    call->run = run_matmul;
    return LK_OK;
}
