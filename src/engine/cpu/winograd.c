/* Winograd's convolution: input tiles to 36 matrices V, products with the 36 matrices U of the weights, and
 * back. Tiles go through in blocks of strips whose matrices stay in the second cache, output channels in
 * panels. The two gradients are the transposed algorithm over the same tiles.
 *
 * A tile's elements are added to and subtracted from each other before they are multiplied. So one infinity
 * would reach all results of its tile, and next to a number that is thousands of times larger the digits of
 * the others are lost. Each run therefore looks at its operands first, and takes the direct way for those. */
#include "engine/cpu/conv.h"

#include "base/memory.h"
#include "base/status.h"

#include <string.h>

enum { FREQUENCIES = 36, PANEL = LKI_WINOGRAD_PANEL };

/* What call->state points to. */
typedef struct plan {
    lki_winograd w;
    int64_t strips, block; /* all of them, and how many go through at a time */
    int64_t unit;          /* strips that one thread must take in order */
    int64_t weight_count;  /* floats of scratch, and what each thread has of its own: */
    int64_t from_count, to_count, stage_count, carry_count, pack_count;
    lk_kernel run;  /* by this algorithm */
    lk_call direct; /* the same call without it */
} plan;

static int64_t rounded_up(int64_t value, int64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

bool lki_winograd_suits(const lki_cpu *cpu, const lki_conv_sizes *s)
{
    const lki_conv *c = &s->one;
    bool plain = c->in[0] == 1 && c->kernel[0] == 1 && c->padding[0] == 0 && c->kernel[1] == 3 &&
                 c->kernel[2] == 3 && c->stride[1] == 1 && c->stride[2] == 1 && c->dilation[1] == 1 &&
                 c->dilation[2] == 1;
    bool worth = s->group_in >= 16 && s->group_out >= 16 && c->out[1] >= 4 && c->out[2] >= 4;
    return cpu->kernels->winograd && plain && worth && s->groups == 1 && c->padding[1] <= 2 &&
           c->padding[2] <= 2 && s->batch > 0;
}

/* How many bits the largest magnitude may stand above the usual one. Beside it the transforms round away as
 * many bits of the others, of the 24 that they have. */
enum { HEADROOM_BITS = 10, SAMPLES = 512 };

/* The mean exponent of the numbers in a sample that are not zero; -1 where there is none. */
static double usual_exponent(const float *x, int64_t count)
{
    int64_t step = count / SAMPLES | 1, sum = 0, found = 0; /* odd: not along a column of zeros */
    for (int64_t i = 0; i < count; i += step) {
        uint32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        sum += bits >> 23 & 255;
        found += (bits & 0x7fffffff) != 0;
    }
    return found ? (double)sum / (double)found : -1;
}

/* Whether no number of x is infinite, or so large that its tile would lose digits. */
static bool is_even(const lki_cpu *cpu, const lk_tensor *x)
{
    int64_t count = lk_tensor_count(x);
    uint32_t largest = cpu->kernels->magnitude(x->data, count);
    if (largest == 0) return true;
    return largest < LKI_INFINITE_BITS && (largest >> 23) <= usual_exponent(x->data, count) + HEADROOM_BITS;
}

static lk_status run_either(const lk_call *call)
{
    plan *p = call->state;
    lki_cpu *cpu = lki_cpu_of(call);
    if (is_even(cpu, &call->in[0]) && is_even(cpu, &call->in[1])) return p->run(call);
    lki_cpu_enter(cpu, LKI_CPU_PATH_WINOGRAD_LEFT);
    p->direct.in = call->in;
    memcpy(p->direct.out, call->out, sizeof call->out);
    p->direct.scratch = call->scratch;
    return p->direct.run(&p->direct);
}

static void free_plan(void *state)
{
    plan *p = state;
    if (p->direct.free_state) p->direct.free_state(p->direct.state);
    lki_free(p);
}

/* What every one of the three ends with. */
static lk_status finish_prepare(lki_cpu *cpu, lk_call *call, lk_kernel run, lki_cpu_path path)
{
    plan *p = call->state;
    call->free_state = free_plan;
    p->direct = *call;
    p->direct.state = NULL;
    p->direct.free_state = NULL;
    p->direct.scratch_nbytes = 0;
    LKI_TRY(lki_cpu_prepare_direct(cpu, &p->direct));
    if (call->scratch_nbytes < p->direct.scratch_nbytes) call->scratch_nbytes = p->direct.scratch_nbytes;
    p->run = run;
    call->run = run_either;
    lki_cpu_enter(cpu, path);
    return LK_OK;
}

static lki_winograd describe(const lki_conv_sizes *s)
{
    return (lki_winograd){
        .batch = s->batch,
        .in_channels = s->group_in,
        .out_channels = s->group_out,
        .in_height = s->one.in[1],
        .in_width = s->one.in[2],
        .out_height = s->one.out[1],
        .out_width = s->one.out[2],
        .pad_y = s->one.padding[1],
        .pad_x = s->one.padding[2],
        .tiles_y = (s->one.out[1] + 3) / 4,
        .tiles_x = (s->one.out[2] + 3) / 4,
    };
}

/* `from` and `to` are the channels of the two sets of matrices that are alive at once. */
static void size_up(plan *p, int64_t from, int64_t to)
{
    enum { CACHE_NBYTES = 500 << 10 };
    int64_t tiles = CACHE_NBYTES / (int64_t)sizeof(float) / (lki_winograd_tile(from) + lki_winograd_tile(to));
    p->strips = p->w.batch * p->w.tiles_y;
    p->block = tiles / p->w.tiles_x;
    if (p->block < 1) p->block = 1;
    if (p->block > p->strips) p->block = p->strips;
    p->unit = p->block;
    p->from_count = p->block * p->w.tiles_x * lki_winograd_tile(from);
    p->to_count = p->block * p->w.tiles_x * lki_winograd_tile(to);
    p->stage_count = lki_winograd_stage_count(&p->w);
    p->pack_count = rounded_up(lki_gemm_scratch_count(from > to ? from : to, from > to ? from : to), 16);
}

static int64_t thread_floats(const plan *p)
{
    return p->from_count + p->to_count + p->stage_count + p->carry_count + p->pack_count;
}

/* One thread's part of the scratch, which begins at `memory`. */
typedef struct parts {
    float *from, *to, *stage, *carry, *pack;
} parts;

static parts part_of(const plan *p, float *memory)
{
    parts m = {.from = memory};
    m.to = m.from + p->from_count;
    m.stage = m.to + p->to_count;
    m.carry = m.stage + p->stage_count;
    m.pack = m.carry + p->carry_count;
    return m;
}

/* to (36, tiles, a panel of columns) = from (36, tiles, rows) U (36, rows, the panel) */
static void multiply(const lki_cpu *cpu, const parts *m, const float *u, int64_t tiles, int64_t rows,
                     int64_t columns)
{
    for (int f = 0; f < FREQUENCIES; f++) {
        lki_gemm g = {
            .m = tiles,
            .n = columns < PANEL ? columns : PANEL,
            .k = rows,
            .a = m->from + f * lki_winograd_lanes(rows),
            .a_row = lki_winograd_tile(rows),
            .a_col = 1,
            .b = u + f * rows * PANEL,
            .b_row = PANEL,
            .b_col = 1,
            .c = m->to + f * PANEL,
            .c_row = lki_winograd_tile(PANEL),
        };
        cpu->kernels->gemm(&g, 0, g.m, 0, g.n, m->pack);
    }
}

static void forward_units(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu *cpu = lki_cpu_of(call);
    const lki_winograd *w = &p->w;
    const float *bias = lki_cpu_in(call, 2);
    float *u = call->scratch;
    parts m = part_of(p, u + p->weight_count + thread * thread_floats(p));
    bool relu = call->attr->conv.activation == LK_ACTIVATION_RELU;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * p->block, last = first + p->block < p->strips ? first + p->block : p->strips;
        cpu->kernels->winograd->input(m.from, w, call->in[0].data, first, last, m.stage);
        for (int64_t c = 0; c < w->out_channels; c += PANEL) {
            multiply(cpu, &m, u + c * FREQUENCIES * w->in_channels, (last - first) * w->tiles_x,
                     w->in_channels, w->out_channels - c);
            cpu->kernels->winograd->output(call->out[0].data, w, m.to, c, first, last, bias, relu, m.stage);
        }
    }
}

static int64_t unit_count(const plan *p)
{
    return (p->strips + p->unit - 1) / p->unit;
}

/* Floats of U (36, rows, columns) in panels. */
static int64_t panels_count(int64_t rows, int64_t columns)
{
    return FREQUENCIES * rows * rounded_up(columns, PANEL);
}

static lk_status run_forward(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    cpu->kernels->winograd->weights(call->scratch, call->in[1].data, p->w.in_channels, p->w.out_channels, 9,
                                    p->w.in_channels * 9);
    lki_parallel_for(cpu->pool, unit_count(p), 1, forward_units, (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_winograd(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->in[0].shape, call->out[0].shape);
    if (!lki_winograd_suits(cpu, &s)) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    p->w = describe(&s);
    size_up(p, p->w.in_channels, PANEL);
    p->weight_count = panels_count(p->w.in_channels, p->w.out_channels);
    call->scratch_nbytes = (size_t)(p->weight_count + thread_floats(p) * cpu->thread_count) * sizeof(float);
    return finish_prepare(cpu, call, run_forward, LKI_CPU_PATH_WINOGRAD);
}

/* The strips [first, last), which belong to one unit. */
static void grad_input_block(const lk_call *call, const plan *p, const parts *m, int64_t first, int64_t last)
{
    const lki_cpu *cpu = lki_cpu_of(call);
    const lki_winograd *w = &p->w;
    const float *u = call->scratch;
    cpu->kernels->winograd->gradient(m->from, w, call->in[0].data, first, last, m->stage, NULL);
    for (int64_t c = 0; c < w->in_channels; c += PANEL) {
        multiply(cpu, m, u + c * FREQUENCIES * w->out_channels, (last - first) * w->tiles_x, w->out_channels,
                 w->in_channels - c);
        cpu->kernels->winograd->input_back(call->out[0].data, w, m->to, c, first, last, m->stage,
                                           m->carry + c * 2 * lki_winograd_columns(w));
    }
}

static void grad_input_units(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    parts m = part_of(p, (float *)call->scratch + p->weight_count + thread * thread_floats(p));
    for (int64_t i = begin; i < end; i++) {
        int64_t limit = (i + 1) * p->unit < p->strips ? (i + 1) * p->unit : p->strips;
        for (int64_t s = i * p->unit; s < limit; s += p->block)
            grad_input_block(call, p, &m, s, s + p->block < limit ? s + p->block : limit);
    }
}

static lk_status run_grad_input(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    cpu->kernels->winograd->weights(call->scratch, call->in[1].data, p->w.out_channels, p->w.in_channels,
                                    p->w.in_channels * 9, 9);
    lki_parallel_for(cpu->pool, unit_count(p), 1, grad_input_units, (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_winograd_grad_input(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->out[0].shape, call->in[0].shape);
    if (call->op == LK_OP_CONV_TRANSPOSE || !lki_winograd_suits(cpu, &s)) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    p->w = describe(&s);
    size_up(p, p->w.out_channels, PANEL);
    p->unit = (p->block > p->w.tiles_y ? p->block / p->w.tiles_y : 1) * p->w.tiles_y; /* whole samples */
    p->carry_count = rounded_up(p->w.in_channels, PANEL) * 2 * lki_winograd_columns(&p->w);
    p->weight_count = panels_count(p->w.out_channels, p->w.in_channels);
    call->scratch_nbytes = (size_t)(p->weight_count + thread_floats(p) * cpu->thread_count) * sizeof(float);
    return finish_prepare(cpu, call, run_grad_input, LKI_CPU_PATH_WINOGRAD_INPUT);
}

/* U (36, o, c) += Z (36, t, o)^T V (36, t, c) over the tiles t of a block. */
static void add_products(const lki_cpu *cpu, const lki_winograd *w, float *u, const parts *m, int64_t tiles)
{
    int64_t in = w->in_channels, out = w->out_channels;
    for (int f = 0; f < FREQUENCIES; f++) {
        lki_gemm g = {
            .m = out,
            .n = in,
            .k = tiles,
            .a = m->to + f * lki_winograd_lanes(out),
            .a_row = 1,
            .a_col = lki_winograd_tile(out),
            .b = m->from + f * lki_winograd_lanes(in),
            .b_row = lki_winograd_tile(in),
            .b_col = 1,
            .c = u + f * out * in,
            .c_row = in,
            .accumulate = true,
        };
        cpu->kernels->gemm(&g, 0, g.m, 0, g.n, m->pack);
    }
}

/* What each thread has of its own for the gradient of the weights: the sums of dy, U, and its parts. */
static int64_t sums_floats(const plan *p)
{
    return 2 * lki_winograd_lanes(p->w.out_channels);
}

static int64_t grad_weight_floats(const plan *p)
{
    return sums_floats(p) + p->weight_count + thread_floats(p);
}

static void grad_weight_units(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_cpu *cpu = lki_cpu_of(call);
    float *memory = (float *)call->scratch + thread * grad_weight_floats(p), *u = memory + sums_floats(p);
    double *sums = call->attr->conv.wants_bias && call->out[1].data ? (double *)(void *)memory : NULL;
    parts m = part_of(p, u + p->weight_count);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * p->block, last = first + p->block < p->strips ? first + p->block : p->strips;
        cpu->kernels->winograd->input(m.from, &p->w, call->in[1].data, first, last, m.stage);
        cpu->kernels->winograd->gradient(m.to, &p->w, call->in[0].data, first, last, m.stage, sums);
        add_products(cpu, &p->w, u, &m, (last - first) * p->w.tiles_x);
    }
}

static void add_bias_sums(const lk_call *call, const plan *p)
{
    for (int64_t o = 0; o < p->w.out_channels; o++) {
        double sum = 0;
        for (int thread = 0; thread < lki_cpu_of(call)->thread_count; thread++)
            sum += ((double *)(void *)((float *)call->scratch + thread * grad_weight_floats(p)))[o];
        lki_cpu_out(call, 1)[o] = (float)sum;
    }
}

static lk_status run_grad_weight(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    const plan *p = call->state;
    int64_t each = grad_weight_floats(p);
    float *memory = call->scratch, *u = memory + sums_floats(p);
    for (int thread = 0; thread < cpu->thread_count; thread++)
        memset(memory + thread * each, 0, (size_t)(sums_floats(p) + p->weight_count) * sizeof(float));
    lki_parallel_for(cpu->pool, unit_count(p), 1, grad_weight_units, (void *)call);
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to(u, u + thread * each, p->weight_count);
    cpu->kernels->winograd->weights_back(call->out[0].data, u, p->w.out_channels, p->w.in_channels);
    if (call->attr->conv.wants_bias && call->out[1].data) add_bias_sums(call, p);
    return LK_OK;
}

lk_status lki_cpu_prepare_winograd_grad_weight(lki_cpu *cpu, lk_call *call)
{
    lki_conv_sizes s = lki_conv_sizes_of(&call->attr->conv.window, call->in[1].shape, call->in[0].shape);
    if (!lki_winograd_suits(cpu, &s) || !call->out[0].data) return LK_OK;
    plan *p = lki_cpu_new_state(call, sizeof *p);
    if (!p) return LK_ERR_NOMEM;
    p->w = describe(&s);
    size_up(p, p->w.in_channels, p->w.out_channels);
    p->weight_count = FREQUENCIES * rounded_up(p->w.in_channels * p->w.out_channels, 16);
    call->scratch_nbytes = (size_t)(grad_weight_floats(p) * cpu->thread_count) * sizeof(float);
    return finish_prepare(cpu, call, run_grad_weight, LKI_CPU_PATH_WINOGRAD_WEIGHT);
}
