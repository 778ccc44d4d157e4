/* Products of bf16 operands where the processor multiplies bf16 (bf16.h). Results are f32 or bf16 as the call
 * says; a bias is f32. What is left out here (f16, a bias of 16 bits, empty operands) is widened. */
#include "engine/cpu/bf16.h"

#include "engine/cpu/batched_matmul.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/bf16_conv.h"

#include "base/status.h"

static bool is_bf16(const lk_call *call)
{
    lk_dtype out = call->out[0].dtype;
    if (call->in[0].dtype != LK_BF16 || call->in[1].dtype != LK_BF16) return false;
    if (call->input_count > 2 && call->in[2].dtype != LK_F32) return false;
    if (call->output_count > 1 && call->out[1].dtype != LK_F32) return false;
    return call->out[0].data && (out == LK_F32 || out == LK_BF16);
}

static bool needs_partial(const lki_bf16_gemm *g)
{
    return g->k > LKI_BF16_DEPTH;
}

static size_t product_nbytes(const lki_bf16_gemm *g)
{
    return lki_bf16_packed_nbytes(g->m, g->k) + lki_bf16_packed_nbytes(g->n, g->k) +
           (needs_partial(g) ? lki_bf16_partial_nbytes(g->m, g->n) : 0);
}

/* Divides scratch of product_nbytes between the parts of a product. */
static void place_parts(lki_bf16_gemm *g, void *scratch)
{
    char *at = scratch;
    g->packed_a = (uint16_t *)at;
    at += lki_bf16_packed_nbytes(g->m, g->k);
    g->packed_b = (uint16_t *)at;
    at += lki_bf16_packed_nbytes(g->n, g->k);
    g->partial = needs_partial(g) ? (float *)at : NULL;
}

typedef struct product {
    const lki_bf16_kernels *kernels;
    const lki_bf16_gemm *g;
} product;

/* The blocks of A come first, then the panels of B. */
static void pack_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const product *p = context;
    int64_t blocks = lki_bf16_parts(p->g->m);
    if (begin < blocks) p->kernels->pack_a(p->g, begin, end < blocks ? end : blocks);
    if (end > blocks) p->kernels->pack_b(p->g, begin > blocks ? begin - blocks : 0, end - blocks);
}

static void multiply_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const product *p = context;
    p->kernels->multiply(p->g, begin, end);
}

static void run_product(lki_cpu *cpu, const lki_bf16_gemm *g)
{
    product p = {cpu->low, g};
    int64_t blocks = lki_bf16_parts(g->m), panels = lki_bf16_parts(g->n);
    int64_t threads = g->m * g->n * g->k / cpu->low->thread_work + 1;
    if (threads > cpu->thread_count) threads = cpu->thread_count;
    lki_parallel_for(cpu->pool, blocks + panels, (blocks + panels + threads - 1) / threads, pack_range, &p);
    lki_parallel_for(cpu->pool, blocks * panels, (blocks * panels + threads - 1) / threads, multiply_range,
                     &p);
}

/* y (m, n) = x (m, k) w (n, k)^T + b */
static lki_bf16_gemm describe_linear(const lk_call *call)
{
    const lk_tensor *x = &call->in[0], *w = &call->in[1];
    int64_t n = w->shape.dim[0], k = w->shape.dim[1];
    return (lki_bf16_gemm){
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
        .c_dtype = call->out[0].dtype,
        .bias = lki_cpu_in(call, 2),
        .relu = call->attr->linear.activation == LK_ACTIVATION_RELU,
    };
}

static lk_status run_linear(const lk_call *call)
{
    lki_bf16_gemm g = describe_linear(call);
    place_parts(&g, call->scratch);
    run_product(lki_cpu_of(call), &g);
    return LK_OK;
}

/* dw (n, k) = dy (m, n)^T x (m, k) */
static lki_bf16_gemm describe_linear_grad(const lk_call *call)
{
    const lk_tensor *dy = &call->in[0], *x = &call->in[1];
    int64_t n = dy->shape.dim[dy->shape.rank - 1], k = x->shape.dim[x->shape.rank - 1];
    return (lki_bf16_gemm){
        .m = n,
        .n = k,
        .k = lki_cpu_span(x->shape, 0, x->shape.rank - 1),
        .a = dy->data,
        .a_row = 1,
        .a_col = n,
        .b = x->data,
        .b_row = k,
        .b_col = 1,
        .c = call->out[0].data,
        .c_row = k,
        .c_dtype = call->out[0].dtype,
    };
}

enum { SUM_COLUMNS = 256, SUM_ROWS = 128 };

/* The bias's gradient, the sum over rows of dy (rows, n): row after row is widened and added, in blocks of
 * rows so that long sums do not drift. */
static void sum_columns(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    const lk_tensor *dy = &call->in[0];
    int64_t n = dy->shape.dim[dy->shape.rank - 1], rows = lki_cpu_span(dy->shape, 0, dy->shape.rank - 1);
    for (int64_t j = begin; j < end; j += SUM_COLUMNS) {
        float row[SUM_COLUMNS], part[SUM_COLUMNS], *db = (float *)call->out[1].data + j;
        int64_t count = end - j < SUM_COLUMNS ? end - j : SUM_COLUMNS;
        kernels->tile_fill(db, 0, count);
        for (int64_t first = 0; first < rows; first += SUM_ROWS) {
            kernels->tile_fill(part, 0, count);
            for (int64_t i = first; i < rows && i < first + SUM_ROWS; i++) {
                kernels->tile_load(row, (const uint16_t *)dy->data + i * n + j, LK_BF16, count);
                kernels->add_to(part, row, count);
            }
            kernels->add_to(db, part, count);
        }
    }
}

static lk_status run_linear_grad(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    lki_bf16_gemm g = describe_linear_grad(call);
    place_parts(&g, call->scratch);
    run_product(cpu, &g);
    if (call->attr->linear.wants_bias && call->out[1].data)
        lki_parallel_for(cpu->pool, g.m, LKI_CPU_GRAIN / (g.k + 1) + 1, sum_columns, (void *)call);
    return LK_OK;
}

static lki_bf16_gemm product_at(const lki_batch *p, const lk_call *call, int64_t index)
{
    int64_t a, b, c = index * p->m * p->n;
    lki_batch_offsets(p, index, &a, &b);
    return (lki_bf16_gemm){
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .a = (const uint16_t *)call->in[0].data + a,
        .a_row = p->a_row,
        .a_col = p->a_col,
        .b = (const uint16_t *)call->in[1].data + b,
        .b_row = p->b_row,
        .b_col = p->b_col,
        .c = (char *)call->out[0].data + (size_t)c * lk_dtype_nbytes(call->out[0].dtype),
        .c_row = p->n,
        .c_dtype = call->out[0].dtype,
    };
}

/* Several products: each by one thread, in scratch of its own. */
static void run_products(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const lki_bf16_kernels *kernels = lki_cpu_of(call)->low;
    for (int64_t i = begin; i < end; i++) {
        lki_bf16_gemm g = product_at(call->state, call, i);
        place_parts(&g, (char *)call->scratch + (size_t)thread * product_nbytes(&g));
        kernels->pack_a(&g, 0, lki_bf16_parts(g.m));
        kernels->pack_b(&g, 0, lki_bf16_parts(g.n));
        kernels->multiply(&g, 0, lki_bf16_parts(g.m) * lki_bf16_parts(g.n));
    }
}

static lk_status run_matmul(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const lki_batch *p = call->state;
    if (p->count > 1) {
        int64_t grain = cpu->low->thread_work / (p->m * p->n * p->k + 1) + 1;
        lki_parallel_for(cpu->pool, p->count, grain, run_products, (void *)call);
        return LK_OK;
    }
    lki_bf16_gemm g = product_at(p, call, 0);
    place_parts(&g, call->scratch);
    run_product(cpu, &g);
    return LK_OK;
}

static lk_status prepare_matmul(lki_cpu *cpu, lk_call *call)
{
    lki_batch batch = lki_batch_of(call);
    if (batch.count * batch.m * batch.n * batch.k == 0) return LK_OK;
    lki_batch *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    *p = batch;
    lki_bf16_gemm g = product_at(p, call, 0);
    call->scratch_nbytes = product_nbytes(&g) * (p->count > 1 ? (size_t)cpu->thread_count : 1);
    call->run = run_matmul;
    return LK_OK;
}

static lk_status prepare_one(lk_call *call, lki_bf16_gemm g, lk_kernel run)
{
    if (g.m * g.n * g.k == 0) return LK_OK;
    call->scratch_nbytes = product_nbytes(&g);
    call->run = run;
    return LK_OK;
}

lk_status lki_cpu_prepare_low(lki_cpu *cpu, lk_call *call)
{
    if (!(lk_op_flags(call->op) & LK_OP_WANTS_16_BITS) || !is_bf16(call) || !lki_cpu_low(cpu)) return LK_OK;
    switch (call->op) {
    case LK_OP_LINEAR: return prepare_one(call, describe_linear(call), run_linear);
    case LK_OP_LINEAR_GRAD: return prepare_one(call, describe_linear_grad(call), run_linear_grad);
    case LK_OP_MATMUL: return prepare_matmul(cpu, call);
    case LK_OP_CONV: return lki_bf16_prepare_conv(cpu, call);
    case LK_OP_CONV_GRAD_INPUT: return lki_bf16_prepare_conv_grad_input(cpu, call);
    case LK_OP_CONV_GRAD_WEIGHT: return lki_bf16_prepare_conv_grad_weight(cpu, call);
    default: return LK_OK;
    }
}
