/* Convolutions of bf16 with stride 1 over the input itself (kernels/bf16_shift.h): the result, the input's
 * gradient, which is a convolution of dy with the weights turned around, and the weight's gradient. Samples
 * are divided between threads. */
#include "engine/cpu/bf16_conv.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/element.h"

#include <string.h>

/* Fewer channels would leave most of a tile along k empty. */
enum { LEAST_CHANNELS = 16 };

/* What call->state points to. */
typedef struct plan {
    lki_conv_sizes s;
    lki_bf16_shift shift;
    bool turns;            /* weights are turned around: the input's gradient */
    size_t weights_nbytes; /* (groups, outs, taps, depth) */
    size_t packed_nbytes;  /* of one group's weights, or of a sample's dy */
    size_t turned_nbytes;  /* of a thread: the input with channels last, or spread over the grid */
    size_t spread_nbytes;  /* of a thread: dy spread over the grid */
    size_t sums_nbytes;    /* of a thread: all groups' sums, then the biases' */
    size_t thread_nbytes;
    int64_t offsets[]; /* tap_at, then step_at */
} plan;

static size_t rounded_up(size_t nbytes)
{
    return (nbytes + 63) / 64 * 64;
}

bool lki_bf16_shift_suits(const lki_conv_sizes *s)
{
    for (int i = 0; i < 3; i++)
        if (s->one.stride[i] != 1) return false;
    return s->group_in >= LEAST_CHANNELS;
}

static void describe(plan *p)
{
    const lki_conv *c = &p->s.one;
    lki_bf16_shift *s = &p->shift;
    s->channels = p->s.group_in;
    s->depth = lki_bf16_parts(s->channels) * LKI_BF16_SIDE;
    s->outs = p->s.group_out;
    s->taps = p->s.taps;
    for (int i = 0; i < 3; i++) {
        s->in[i] = c->in[i];
        s->out[i] = c->out[i];
        s->padding[i] = c->padding[i];
        s->grid[i] = c->in[i] + 2 * c->padding[i];
    }
    int64_t last = ((s->out[0] - 1) * s->grid[1] + s->out[1] - 1) * s->grid[2] + s->out[2];
    s->places = lki_bf16_parts(last) * LKI_BF16_SIDE;
}

static void find_offsets(plan *p)
{
    const lki_conv *c = &p->s.one;
    const int64_t *grid = p->shift.grid;
    int64_t *tap_at = p->offsets, *step_at = tap_at + p->shift.taps, steps = p->shift.depth / LKI_BF16_SIDE;
    p->shift.tap_at = tap_at;
    p->shift.step_at = step_at;
    for (int64_t z = 0; z < c->kernel[0]; z++)
        for (int64_t y = 0; y < c->kernel[1]; y++)
            for (int64_t x = 0; x < c->kernel[2]; x++) {
                int64_t at =
                    (z * c->dilation[0] * grid[1] + y * c->dilation[1]) * grid[2] + x * c->dilation[2];
                *tap_at++ = at;
                for (int64_t i = 0; i < steps; i++) *step_at++ = at * p->shift.depth + i * LKI_BF16_SIDE;
            }
}

static plan *new_plan(const lki_conv_sizes *s)
{
    int64_t count = s->taps * (1 + lki_bf16_parts(s->group_in));
    plan *p = lki_calloc(sizeof *p + (size_t)count * sizeof(int64_t), "a kernel's state");
    if (!p) return NULL;
    p->s = *s;
    describe(p);
    find_offsets(p);
    return p;
}

/* Places that a block may read: those of the outputs, and the last tap's. */
static int64_t places_read(const plan *p)
{
    return p->shift.places + p->shift.tap_at[p->shift.taps - 1];
}

/* ---- Forward, and the input's gradient ---- */

static uint16_t *weights_of(const lk_call *call, const plan *p, int64_t group)
{
    return (uint16_t *)call->scratch + group * p->shift.outs * p->shift.taps * p->shift.depth;
}

static uint16_t *packed_of(const lk_call *call, const plan *p, int64_t group)
{
    return (uint16_t *)((char *)call->scratch + p->weights_nbytes + (size_t)group * p->packed_nbytes);
}

/* Rows of weights (outs, taps, depth), zero beyond the channels; turned, from W (channels, outs, taps) of the
 * forward convolution, each kernel from its end. */
static void order_weights(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_bf16_shift *s = &p->shift;
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i / s->outs, o = i % s->outs;
        const uint16_t *w = (const uint16_t *)call->in[1].data + group * s->outs * s->channels * s->taps;
        uint16_t *out = weights_of(call, p, group) + o * s->taps * s->depth;
        memset(out, 0, (size_t)(s->taps * s->depth) * sizeof *out);
        for (int64_t c = 0; c < s->channels; c++) {
            const uint16_t *kernel = w + (p->turns ? c * s->outs + o : o * s->channels + c) * s->taps;
            for (int64_t t = 0; t < s->taps; t++)
                out[t * s->depth + c] = kernel[p->turns ? s->taps - 1 - t : t];
        }
    }
}

static void pack_weights(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    const plan *p = call->state;
    int64_t panels = lki_bf16_parts(p->shift.outs), depth = p->shift.taps * p->shift.depth;
    for (int64_t i = begin; i < end; i++) {
        lki_bf16_gemm g = {.n = p->shift.outs,
                           .k = depth,
                           .b = weights_of(call, p, i / panels),
                           .b_row = 1,
                           .b_col = depth,
                           .packed_b = packed_of(call, p, i / panels)};
        lki_cpu_of(call)->low->pack_b(&g, i % panels, i % panels + 1);
    }
}

/* Samples and groups [begin, end). */
static void forward_range(int64_t begin, int64_t end, int thread, void *context)
{
    const lk_call *call = context;
    const plan *p = call->state;
    const lki_bf16_kernels *low = lki_cpu_of(call)->low;
    const lk_tensor *y = &call->out[0];
    const float *bias = p->turns ? NULL : lki_cpu_in(call, 2);
    lki_bf16_shift s = p->shift;
    s.turned = (uint16_t *)((char *)packed_of(call, p, p->s.groups) + (size_t)thread * p->thread_nbytes);
    s.relu = call->attr->conv.activation == LK_ACTIVATION_RELU;
    s.y_dtype = y->dtype;
    memset(s.turned, 0, p->turned_nbytes);
    for (int64_t i = begin; i < end; i++) {
        int64_t group = i % p->s.groups;
        low->shift_turn(&s, (const uint16_t *)call->in[0].data + i * s.channels * p->s.in_plane);
        s.packed = packed_of(call, p, group);
        s.bias = bias ? bias + group * s.outs : NULL;
        s.y = (char *)y->data + (size_t)(i * s.outs * p->s.out_plane) * lk_dtype_nbytes(y->dtype);
        low->shift_forward(&s);
    }
}

static lk_status run_forward(const lk_call *call)
{
    const plan *p = call->state;
    lki_pool *pool = lki_cpu_of(call)->pool;
    int64_t row = p->shift.taps * p->shift.depth;
    lki_parallel_for(pool, p->s.groups * p->shift.outs, LKI_CPU_GRAIN / row + 1, order_weights, (void *)call);
    lki_parallel_for(pool, p->s.groups * lki_bf16_parts(p->shift.outs), LKI_CPU_GRAIN / (row * 4) + 1,
                     pack_weights, (void *)call);
    lki_parallel_for(pool, p->s.batch * p->s.groups, 1, forward_range, (void *)call);
    return LK_OK;
}

lk_status lki_bf16_prepare_shift(lki_cpu *cpu, lk_call *call, const lki_conv_sizes *s, bool turns)
{
    plan *p = new_plan(s);
    if (!p) return LK_ERR_NOMEM;
    call->state = p;
    call->free_state = lki_free;
    int64_t row = p->shift.taps * p->shift.depth;
    p->turns = turns;
    p->weights_nbytes = rounded_up((size_t)(s->groups * p->shift.outs * row) * sizeof(uint16_t));
    p->packed_nbytes = lki_bf16_packed_nbytes(p->shift.outs, row);
    p->turned_nbytes = rounded_up((size_t)(places_read(p) * p->shift.depth) * sizeof(uint16_t));
    p->thread_nbytes = p->turned_nbytes;
    call->scratch_nbytes = p->weights_nbytes + (size_t)s->groups * p->packed_nbytes +
                           (size_t)cpu->thread_count * p->thread_nbytes;
    call->run = run_forward;
    return LK_OK;
}

/* ---- The weight's gradient ---- */

/* A thread's scratch: sums, x spread over the grid, dy spread over the grid, dy in tiles. */
typedef struct parts {
    float *sums, *biases;
    uint16_t *x, *dy, *packed;
} parts;

static parts parts_of(const plan *p, char *scratch)
{
    parts own = {.sums = (float *)scratch};
    size_t biases_nbytes = rounded_up((size_t)(p->s.groups * p->shift.outs) * sizeof(float));
    own.biases = (float *)(scratch + p->sums_nbytes - biases_nbytes);
    own.x = (uint16_t *)(scratch + p->sums_nbytes);
    own.dy = (uint16_t *)((char *)own.x + p->turned_nbytes);
    own.packed = (uint16_t *)((char *)own.dy + p->spread_nbytes);
    return own;
}

static int64_t group_sums(const plan *p)
{
    return p->shift.taps * lki_bf16_parts(p->shift.outs) * lki_bf16_parts(p->shift.channels) * LKI_BF16_SUMS;
}

typedef struct gradient {
    const lk_call *call;
    const plan *p;
} gradient;

static void gradient_range(int64_t begin, int64_t end, int thread, void *context)
{
    const gradient *g = context;
    const plan *p = g->p;
    const lki_bf16_kernels *low = lki_cpu_of(g->call)->low;
    parts own = parts_of(p, (char *)g->call->scratch + (size_t)thread * p->thread_nbytes);
    lki_bf16_shift s = p->shift;
    s.turned = own.x;
    s.packed = own.packed;
    memset(own.x, 0, p->turned_nbytes + p->spread_nbytes);
    for (int64_t i = begin * p->s.groups; i < end * p->s.groups; i++) {
        int64_t group = i % p->s.groups;
        const uint16_t *dy = (const uint16_t *)g->call->in[0].data + i * s.outs * p->s.out_plane;
        lki_bf16_gemm pack = {
            .n = s.outs, .k = s.places, .b = own.dy, .b_row = 1, .b_col = s.places, .packed_b = own.packed};
        low->shift_spread(own.x, s.spread_plane, &s,
                          (const uint16_t *)g->call->in[1].data + i * s.channels * p->s.in_plane, s.channels,
                          true);
        low->shift_spread(own.dy, s.places, &s, dy, s.outs, false);
        low->pack_b(&pack, 0, lki_bf16_parts(s.outs));
        low->shift_gradient(&s, own.sums + group * group_sums(p));
        if (g->call->attr->conv.wants_bias)
            lki_bf16_add_bias(g->call, dy, s.outs, p->s.out_plane, own.biases + group * s.outs);
    }
}

/* dw (outs, channels, taps) of all groups from sums (taps, outs / 32, channels / 32, 32 channels, 32 outs).
 */
static void save_gradient(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const gradient *g = context;
    const lki_bf16_shift *s = &g->p->shift;
    const lk_tensor *dw = &g->call->out[0];
    int64_t blocks = lki_bf16_parts(s->channels), panels = lki_bf16_parts(s->outs);
    for (int64_t i = begin; i < end; i++) {
        int64_t o = i % s->outs;
        const float *sums = (const float *)g->call->scratch + i / s->outs * group_sums(g->p);
        for (int64_t c = 0; c < s->channels; c++)
            for (int64_t t = 0; t < s->taps; t++) {
                const float *block = sums + ((t * panels + o / 32) * blocks + c / 32) * LKI_BF16_SUMS;
                lki_store(dw->dtype, dw->data, (i * s->channels + c) * s->taps + t,
                          block[c % 32 * 32 + o % 32]);
            }
    }
}

/* Each thread has its own sums over its samples; they are added in the order of threads. */
void lki_bf16_run_shift_gradient(const lk_call *call, const void *shift_plan)
{
    lki_cpu *cpu = lki_cpu_of(call);
    gradient g = {call, shift_plan};
    const plan *p = shift_plan;
    char *scratch = call->scratch;
    int64_t outs = p->s.groups * p->shift.outs, row = p->shift.channels * p->shift.taps;
    for (int thread = 0; thread < cpu->thread_count; thread++)
        memset(scratch + (size_t)thread * p->thread_nbytes, 0, p->sums_nbytes);
    lki_parallel_for(cpu->pool, p->s.batch, 1, gradient_range, &g);
    for (int thread = 1; thread < cpu->thread_count; thread++)
        cpu->kernels->add_to((float *)scratch, (const float *)(scratch + (size_t)thread * p->thread_nbytes),
                             (int64_t)(p->sums_nbytes / sizeof(float)));
    lki_parallel_for(cpu->pool, outs, LKI_CPU_GRAIN / row + 1, save_gradient, &g);
    if (call->attr->conv.wants_bias && call->out[1].data)
        memcpy(call->out[1].data, parts_of(p, scratch).biases, (size_t)outs * sizeof(float));
}

/* The plan is the caller's to free; *nbytes grows to the scratch that it needs. */
lk_status lki_bf16_plan_shift_gradient(void **out, lki_cpu *cpu, const lki_conv_sizes *s, size_t *nbytes)
{
    plan *p = *out = new_plan(s);
    if (!p) return LK_ERR_NOMEM;
    int64_t blocks = lki_bf16_parts(p->shift.channels);
    p->shift.spread_plane = (places_read(p) + 31) / 32 * 32;
    p->turned_nbytes = rounded_up((size_t)(blocks * 32 * p->shift.spread_plane) * sizeof(uint16_t));
    p->spread_nbytes = rounded_up((size_t)(p->shift.outs * p->shift.places) * sizeof(uint16_t));
    p->packed_nbytes = lki_bf16_packed_nbytes(p->shift.outs, p->shift.places);
    p->sums_nbytes = (size_t)(s->groups * group_sums(p)) * sizeof(float) +
                     rounded_up((size_t)(s->groups * p->shift.outs) * sizeof(float));
    p->thread_nbytes = p->sums_nbytes + p->turned_nbytes + p->spread_nbytes + p->packed_nbytes;
    size_t needed = (size_t)cpu->thread_count * p->thread_nbytes;
    if (*nbytes < needed) *nbytes = needed;
    return LK_OK;
}
