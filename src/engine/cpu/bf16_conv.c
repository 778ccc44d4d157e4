#include "engine/cpu/bf16_conv.h"

#include "engine/cpu/conv.h"
#include "engine/cpu/bf16.h"

#include "base/memory.h"
#include "base/status.h"

#include <stdatomic.h>
#include <string.h>

/* Below so many output channels most of a tile would be zeros. */
enum { LEAST_OUTPUTS = 16 };

/* What call->state points to. The scratch begins with the weights of all groups: in tiles, and before that,
 * where they have to be turned, in the order of the turned convolution. Then comes what each thread has of
 * its own. */
typedef struct plan {
    lki_conv_sizes s;
    int64_t k;      /* rows of the columns: group_in * taps */
    int64_t tile;   /* output positions at a time */
    bool pointwise; /* reads its input as the columns */
    void *shift;    /* of the weight's gradient, where it can do without columns; or NULL */
    size_t turned_nbytes, packed_a_nbytes; /* of all groups, of one */
    size_t col_nbytes, packed_b_nbytes, partial_nbytes, own_a_nbytes, thread_nbytes;
} plan;

static size_t rounded_up(size_t nbytes)
{
    return (nbytes + 63) / 64 * 64;
}

/* A 1 x 1 convolution without stride or padding. */
static bool is_pointwise(const lki_conv_sizes *s)
{
    for (int i = 0; i < 3; i++)
        if (s->one.kernel[i] != 1 || s->one.stride[i] != 1 || s->one.padding[i] != 0 ||
            s->one.in[i] != s->one.out[i])
            return false;
    return true;
}

/* Columns of about `nbytes`, a whole number of panels wide. */
static int64_t tile_width(const lki_conv_sizes *s, int64_t k, int64_t nbytes)
{
    int64_t width = nbytes / (int64_t)sizeof(uint16_t) / k / 32 * 32,
            most = lki_bf16_parts(s->out_plane) * 32;
    if (width < 64) width = 64;
    if (width > LKI_BF16_BLOCK_K) width = LKI_BF16_BLOCK_K;
    return width < most ? width : most;
}

/* False where there is nothing to compute, or f32 is faster. */
static bool is_worth_it(const lki_cpu *cpu, const lki_conv_sizes *s)
{
    if (s->batch * s->groups * s->group_in * s->group_out * s->out_plane * s->in_plane == 0) return false;
    if (s->group_out < LEAST_OUTPUTS) return false;
    return cpu->low->outruns_winograd || !lki_winograd_suits(cpu, s);
}

static plan *new_plan(lk_call *call, const lki_conv_sizes *s, int64_t col_nbytes)
{
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return NULL;
    p->s = *s;
    p->k = s->group_in * s->taps;
    p->tile = tile_width(s, p->k, col_nbytes);
    p->pointwise = is_pointwise(s);
    p->col_nbytes = p->pointwise ? 0 : rounded_up((size_t)(p->k * p->tile) * sizeof(uint16_t));
    return p;
}

static int64_t tile_count(const plan *p)
{
    return (p->s.out_plane + p->tile - 1) / p->tile;
}

/* ---- Forward: y (o, p) = W (o, c k) col (c k, p) + b ---- */

typedef struct forward {
    const lk_call *call;
    const plan *p;
    const uint16_t *weights; /* (groups, group_out, k) */
} forward;

static char *packed_weights(const forward *f, int64_t group)
{
    return (char *)f->call->scratch + f->p->turned_nbytes + (size_t)group * f->p->packed_a_nbytes;
}

/* Blocks of 32 output channels, group after group. */
static void pack_weights(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const forward *f = context;
    const plan *p = f->p;
    int64_t blocks = lki_bf16_parts(p->s.group_out);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / blocks;
        lki_bf16_gemm g = {.m = p->s.group_out,
                           .k = p->k,
                           .a = f->weights + group * p->s.group_out * p->k,
                           .a_row = p->k,
                           .a_col = 1,
                           .packed_a = (uint16_t *)packed_weights(f, group)};
        lki_cpu_of(f->call)->low->pack_a(&g, i % blocks, i % blocks + 1);
    }
}

/* Output positions [p0, p1) of one group of one sample. */
static void forward_tile(const forward *f, int64_t plane, int64_t p0, int64_t p1, char *scratch)
{
    const plan *p = f->p;
    const lki_bf16_kernels *low = lki_cpu_of(f->call)->low;
    int64_t group = plane % p->s.groups, outs = p->s.group_out;
    const lk_tensor *y = &f->call->out[0];
    const uint16_t *x = (const uint16_t *)f->call->in[0].data + plane * p->s.group_in * p->s.in_plane;
    const float *bias = f->call->op == LK_OP_CONV ? lki_cpu_in(f->call, 2) : NULL;
    uint16_t *col = (uint16_t *)scratch;
    if (!p->pointwise) low->im2col(col, p->tile, &p->s.one, x, p0, p1);
    lki_bf16_gemm g = {
        .m = outs,
        .n = p1 - p0,
        .k = p->k,
        .b = p->pointwise ? x + p0 : col,
        .b_row = p->pointwise ? p->s.in_plane : p->tile,
        .b_col = 1,
        .c = (char *)y->data + (size_t)(plane * outs * p->s.out_plane + p0) * lk_dtype_nbytes(y->dtype),
        .c_row = p->s.out_plane,
        .c_dtype = y->dtype,
        .row_bias = bias ? bias + group * outs : NULL,
        .relu = f->call->attr->conv.activation == LK_ACTIVATION_RELU,
        .packed_a = (uint16_t *)packed_weights(f, group),
        .packed_b = (uint16_t *)(scratch + p->col_nbytes),
        .partial = p->partial_nbytes ? (float *)(scratch + p->col_nbytes + p->packed_b_nbytes) : NULL,
    };
    low->pack_b(&g, 0, lki_bf16_parts(g.n));
    low->multiply(&g, 0, lki_bf16_parts(g.m) * lki_bf16_parts(g.n));
}

static void forward_range(int64_t begin, int64_t end, int thread, void *context)
{
    const forward *f = context;
    const plan *p = f->p;
    int64_t tiles = tile_count(p);
    char *scratch = (char *)f->call->scratch + p->turned_nbytes + (size_t)p->s.groups * p->packed_a_nbytes +
                    (size_t)thread * p->thread_nbytes;
    for (int64_t i = begin; i < end; i++) {
        int64_t p0 = i % tiles * p->tile, p1 = p0 + p->tile < p->s.out_plane ? p0 + p->tile : p->s.out_plane;
        forward_tile(f, i / tiles, p0, p1, scratch);
    }
}

static void run_forward(const lk_call *call, const uint16_t *weights)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    forward f = {call, p, weights};
    int64_t tile_work = p->s.group_out * p->k * p->tile, blocks = lki_bf16_parts(p->s.group_out);
    int64_t pack_grain = LKI_CPU_GRAIN * 4 / (LKI_BF16_SIDE * p->k) + 1;
    lki_parallel_for(cpu->pool, p->s.groups * blocks, pack_grain, pack_weights, &f);
    lki_parallel_for(cpu->pool, p->s.batch * p->s.groups * tile_count(p),
                     cpu->low->thread_work / tile_work + 1, forward_range, &f);
}

static lk_status run_conv(const lk_call *call)
{
    run_forward(call, call->in[1].data);
    return LK_OK;
}

static lk_status prepare_forward(lki_cpu *cpu, lk_call *call, const lki_conv_sizes *s, bool turns)
{
    plan *p = new_plan(call, s, 48 << 10);
    if (!p) return LK_ERR_NOMEM;
    size_t weight_count = (size_t)(s->groups * s->group_out * p->k);
    p->turned_nbytes = turns ? rounded_up(weight_count * sizeof(uint16_t)) : 0;
    p->packed_a_nbytes = lki_bf16_packed_nbytes(s->group_out, p->k);
    p->packed_b_nbytes = lki_bf16_packed_nbytes(p->tile, p->k);
    p->partial_nbytes = p->k > LKI_BF16_DEPTH ? lki_bf16_partial_nbytes(s->group_out, p->tile) : 0;
    p->thread_nbytes = p->col_nbytes + p->packed_b_nbytes + p->partial_nbytes;
    call->scratch_nbytes = p->turned_nbytes + (size_t)s->groups * p->packed_a_nbytes +
                           (size_t)cpu->thread_count * p->thread_nbytes;
    return LK_OK;
}

lk_status lki_bf16_prepare_conv(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->in[0].shape, call->out[0].shape);
    if (!is_worth_it(cpu, &s)) return LK_OK;
    if (lki_bf16_shift_suits(&s)) return lki_bf16_prepare_shift(cpu, call, &s, false);
    LKI_TRY(prepare_forward(cpu, call, &s, false));
    call->run = run_conv;
    return LK_OK;
}

/* ---- The input's gradient with stride 1: a convolution of dy with the weights turned around ---- */

/* dx (c, i) = sum over (o, t) of dy (o, i - pad' + t dilation) W (o, c, last - t), pad' = (kernel - 1)
 * dilation - pad.
 */
static bool turn_around(lki_conv_sizes *turned, const lki_conv_sizes *s)
{
    *turned = *s;
    turned->group_in = turned->one.channels = s->group_out;
    turned->group_out = s->group_in;
    turned->in_plane = s->out_plane;
    turned->out_plane = s->in_plane;
    for (int i = 0; i < 3; i++) {
        int64_t padding = (s->one.kernel[i] - 1) * s->one.dilation[i] - s->one.padding[i];
        if (s->one.stride[i] != 1 || padding < 0) return false;
        turned->one.in[i] = s->one.out[i];
        turned->one.out[i] = s->one.in[i];
        turned->one.padding[i] = padding;
    }
    return true;
}

/* W' (groups, c, o, taps) from W (groups, o, c, taps), each kernel from its end: channels c of all groups in
 * a row. */
static void turn_weights(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const lki_conv_sizes *s = &((const plan *)call->state)->s; /* of the turned one */
    const uint16_t *w = call->in[1].data;
    int64_t channels = s->group_out, outs = s->group_in, taps = s->taps;
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / channels, c = i % channels;
        uint16_t *out = (uint16_t *)call->scratch + i * outs * taps;
        for (int64_t o = 0; o < outs; o++) {
            const uint16_t *from = w + ((group * outs + o) * channels + c) * taps;
            for (int64_t t = 0; t < taps; t++) out[o * taps + t] = from[taps - 1 - t];
        }
    }
}

static lk_status run_conv_grad_input(const lk_call *call)
{
    const plan *p = call->state;
    lki_parallel_for(lki_cpu_of(call)->pool, p->s.groups * p->s.group_out, LKI_CPU_GRAIN / p->k + 1,
                     turn_weights, (void *)call);
    run_forward(call, call->scratch);
    return LK_OK;
}

lk_status lki_bf16_prepare_conv_grad_input(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->out[0].shape, call->in[0].shape),
                   turned;
    if (!turn_around(&turned, &s) || !is_worth_it(cpu, &turned)) return LK_OK;
    if (lki_bf16_shift_suits(&turned)) return lki_bf16_prepare_shift(cpu, call, &turned, true);
    LKI_TRY(prepare_forward(cpu, call, &turned, true));
    call->run = run_conv_grad_input;
    return LK_OK;
}

/* ---- The weight's gradient: dw (o, c k) += dy (o, p) col (c k, p)^T; db (o) += sum of dy (o, p) ---- */

/* A thread's scratch: the sums of all groups' blocks and of the biases, the columns, both operands in tiles.
 */
static size_t sums_nbytes(const plan *p)
{
    return (size_t)p->s.groups * p->partial_nbytes +
           rounded_up((size_t)(p->s.groups * p->s.group_out) * sizeof(float));
}

static lki_bf16_gemm gradient_of(const lk_call *call, const plan *p, int64_t group, char *sums)
{
    const lk_tensor *dw = &call->out[0];
    int64_t outs = p->s.group_out;
    return (lki_bf16_gemm){
        .m = outs,
        .n = p->k,
        .a_row = p->s.out_plane,
        .a_col = 1,
        .b_row = 1,
        .c = (char *)dw->data + (size_t)(group * outs * p->k) * lk_dtype_nbytes(dw->dtype),
        .c_row = p->k,
        .c_dtype = dw->dtype,
        .partial = (float *)(sums + (size_t)group * p->partial_nbytes),
        .keep = true,
    };
}

static void gradient_tile(const lk_call *call, const plan *p, lki_bf16_gemm *g, const uint16_t *dy,
                          const uint16_t *x, int64_t p0, char *scratch)
{
    const lki_bf16_kernels *low = lki_cpu_of(call)->low;
    int64_t p1 = p0 + p->tile < p->s.out_plane ? p0 + p->tile : p->s.out_plane;
    uint16_t *col = (uint16_t *)scratch;
    if (!p->pointwise) low->im2col(col, p->tile, &p->s.one, x, p0, p1);
    g->k = p1 - p0;
    g->a = dy + p0;
    g->b = p->pointwise ? x + p0 : col;
    g->b_col = p->pointwise ? p->s.in_plane : p->tile;
    g->packed_a = (uint16_t *)(scratch + p->col_nbytes);
    g->packed_b = (uint16_t *)(scratch + p->col_nbytes + p->own_a_nbytes);
    low->pack_a(g, 0, lki_bf16_parts(g->m));
    low->pack_b(g, 0, lki_bf16_parts(g->n));
    low->multiply(g, 0, lki_bf16_parts(g->m) * lki_bf16_parts(g->n));
}

void lki_bf16_add_bias(const lk_call *call, const uint16_t *dy, int64_t outs, int64_t plane, float *db)
{
    enum { RUN = 512 };
    const lki_cpu_kernels *kernels = lki_cpu_of(call)->kernels;
    float run[RUN];
    for (int64_t o = 0; o < outs; o++) {
        double sum = 0;
        for (int64_t i = 0; i < plane; i += RUN) {
            int64_t count = plane - i < RUN ? plane - i : RUN;
            kernels->tile_load(run, dy + o * plane + i, LK_BF16, count);
            sum += kernels->sum(run, count);
        }
        db[o] += (float)sum;
    }
}

static void gradient_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    char *sums = (char *)call->scratch + (size_t)thread * p->thread_nbytes, *scratch = sums + sums_nbytes(p);
    float *db = (float *)(sums + (size_t)p->s.groups * p->partial_nbytes);
    for (int64_t plane = begin * p->s.groups; plane < end * p->s.groups; plane++) {
        int64_t group = plane % p->s.groups;
        const uint16_t *dy = (const uint16_t *)call->in[0].data + plane * p->s.group_out * p->s.out_plane;
        const uint16_t *x = (const uint16_t *)call->in[1].data + plane * p->s.group_in * p->s.in_plane;
        lki_bf16_gemm g = gradient_of(call, p, group, sums);
        for (int64_t p0 = 0; p0 < p->s.out_plane; p0 += p->tile)
            gradient_tile(call, p, &g, dy, x, p0, scratch);
        if (call->attr->conv.wants_bias)
            lki_bf16_add_bias(call, dy, p->s.group_out, p->s.out_plane, db + group * p->s.group_out);
    }
}

typedef struct search {
    const lki_bf16_kernels *low;
    const uint16_t *x;
    atomic_bool found;
} search;

static void search_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    search *s = context;
    if (!s->low->is_finite(s->x + begin, end - begin)) atomic_store(&s->found, true);
}

static bool is_finite(const lk_call *call, const lk_tensor *x)
{
    lki_cpu *cpu = lki_cpu_of(call);
    search s = {cpu->low, x->data, false};
    lki_parallel_for(cpu->pool, lk_tensor_count(x), 8 * LKI_CPU_GRAIN, search_range, &s);
    return !atomic_load(&s.found);
}

/* Each thread has its own sums over its samples; they are added in the order of threads. */
static lk_status run_conv_grad_weight(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    if (p->shift && is_finite(call, &call->in[1])) {
        lki_bf16_run_shift_gradient(call, p->shift);
        return LK_OK;
    }
    char *sums = call->scratch;
    int64_t count = (int64_t)(sums_nbytes(p) / sizeof(float)), outs = p->s.groups * p->s.group_out;
    for (int thread = 0; thread < cpu->thread_count; thread++)
        memset(sums + (size_t)thread * p->thread_nbytes, 0, sums_nbytes(p));
    lki_parallel_for(cpu->pool, p->s.batch, 1, gradient_range, (void *)call);
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to((float *)sums, (const float *)(sums + (size_t)thread * p->thread_nbytes), count);
    for (int64_t group = 0; group < p->s.groups; group++) {
        lki_bf16_gemm g = gradient_of(call, p, group, sums);
        cpu->low->finish(&g, 0, lki_bf16_parts(g.m) * lki_bf16_parts(g.n));
    }
    if (call->attr->conv.wants_bias && call->out[1].data)
        memcpy(call->out[1].data, sums + (size_t)p->s.groups * p->partial_nbytes,
               (size_t)outs * sizeof(float));
    return LK_OK;
}

static void free_plan(void *state)
{
    plan *p = state;
    lki_free(p->shift);
    lki_free(p);
}

lk_status lki_bf16_prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->in[1].shape, call->in[0].shape);
    if (!is_worth_it(cpu, &s)) return LK_OK;
    plan *p = new_plan(call, &s, 128 << 10);
    if (!p) return LK_ERR_NOMEM;
    p->partial_nbytes = lki_bf16_partial_nbytes(s.group_out, p->k);
    p->own_a_nbytes = lki_bf16_packed_nbytes(s.group_out, p->tile);
    p->packed_b_nbytes = lki_bf16_packed_nbytes(p->k, p->tile);
    p->thread_nbytes = sums_nbytes(p) + p->col_nbytes + p->own_a_nbytes + p->packed_b_nbytes;
    call->scratch_nbytes = (size_t)cpu->thread_count * p->thread_nbytes;
    call->free_state = free_plan;
    if (lki_bf16_shift_suits(&s))
        LKI_TRY(lki_bf16_plan_shift_gradient(&p->shift, cpu, &s, &call->scratch_nbytes));
    call->run = run_conv_grad_weight;
    return LK_OK;
}
