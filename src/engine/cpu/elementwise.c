/* Elementwise ops and fused chains: tile by tile, each step over a tile that stays in the first cache.
 * Operands that are broadcast or of another dtype are first spread out into a tile of floats. */
#include "engine/cpu/cpu.h"

#include "base/status.h"

#include <string.h>

enum { TILE = 1024, TILE_GRAIN = LKI_CPU_GRAIN / TILE, MAX_SLOTS = LK_MAX_FUSED_INPUTS + LK_MAX_FUSED_STEPS };

typedef struct operand {
    lk_dtype dtype;
    int slot;                    /* the tile it is spread into; -1 where it is read in place */
    int64_t stride[LK_MAX_DIMS]; /* over the chain's collapsed axes; 0 where it repeats */
} operand;

typedef struct step {
    lki_tile_fn run;
    lki_tile_args args;
    int from[3]; /* an input, or input_count + a step; -1: not taken */
    int slot;    /* the tile its result goes to; -1: straight to the output */
} step;

/* A chain made ready: what call->state points to. */
typedef struct chain {
    int input_count, step_count, slot_count;
    int rank; /* of the output after axes that are walked alike by all inputs were merged */
    int64_t dim[LK_MAX_DIMS];
    int64_t count;
    operand in[LK_MAX_FUSED_INPUTS];
    step step[LK_MAX_FUSED_STEPS];
} chain;

static void broadcast_strides(int64_t *stride, lk_shape in, lk_shape out)
{
    int64_t step = 1;
    int added = out.rank - in.rank;
    for (int i = out.rank - 1; i >= 0; i--) {
        int64_t dim = i < added ? 1 : in.dim[i - added];
        stride[i] = dim == 1 ? 0 : step;
        step *= dim;
    }
}

/* Merges axis i into the one after it where every input steps through both as through one. */
static void collapse_axes(chain *c, lk_shape out, int64_t (*stride)[LK_MAX_DIMS])
{
    int axes[LK_MAX_DIMS], kept = 0; /* innermost first */
    for (int i = out.rank - 1; i >= 0; i--) {
        if (out.dim[i] == 1) continue;
        bool merges = kept > 0;
        for (int k = 0; k < c->input_count && merges; k++)
            merges = stride[k][i] == stride[k][axes[kept - 1]] * c->dim[kept - 1];
        if (merges) {
            c->dim[kept - 1] *= out.dim[i];
        } else {
            axes[kept] = i;
            c->dim[kept++] = out.dim[i];
        }
    }
    c->rank = kept;
    for (int i = 0; i < kept / 2; i++) {
        int64_t dim = c->dim[i];
        c->dim[i] = c->dim[kept - 1 - i];
        c->dim[kept - 1 - i] = dim;
    }
    for (int k = 0; k < c->input_count; k++)
        for (int i = 0; i < kept; i++) c->in[k].stride[i] = stride[k][axes[kept - 1 - i]];
}

static bool is_in_place(const chain *c, const operand *in)
{
    return in->dtype == LK_F32 && (c->rank == 0 || (c->rank == 1 && in->stride[0] == 1));
}

static void describe_inputs(chain *c, const lk_call *call)
{
    int64_t stride[LK_MAX_FUSED_INPUTS][LK_MAX_DIMS];
    lk_shape out = call->out[0].shape;
    for (int k = 0; k < c->input_count; k++) broadcast_strides(stride[k], call->in[k].shape, out);
    collapse_axes(c, out, stride);
    c->count = lk_shape_count(out);
    for (int k = 0; k < c->input_count; k++) {
        c->in[k].dtype = call->in[k].dtype;
        c->in[k].slot = is_in_place(c, &c->in[k]) ? -1 : c->slot_count++;
    }
}

static int operand_count(lk_op op)
{
    switch (op) {
    case LK_OP_WHERE: return 3;
    case LK_OP_ADD:
    case LK_OP_SUB:
    case LK_OP_MUL:
    case LK_OP_DIV:
    case LK_OP_POW:
    case LK_OP_MAXIMUM:
    case LK_OP_MINIMUM:
    case LK_OP_GREATER:
    case LK_OP_GREATER_EQUAL:
    case LK_OP_EQUAL:
    case LK_OP_TANH_GRAD:
    case LK_OP_SIGMOID_GRAD:
    case LK_OP_RELU_GRAD:
    case LK_OP_LEAKY_RELU_GRAD:
    case LK_OP_ELU_GRAD:
    case LK_OP_GELU_GRAD:
    case LK_OP_SILU_GRAD:
    case LK_OP_SOFTPLUS_GRAD:
    case LK_OP_CLAMP_GRAD:
    case LK_OP_DROPOUT_GRAD: return 2;
    default: return 1;
    }
}

/* The first slot that no later step needs; a step may write over its own operands. */
static int free_slot(chain *c, int at)
{
    bool busy[MAX_SLOTS] = {false};
    for (int k = 0; k < c->input_count; k++)
        if (c->in[k].slot >= 0) busy[c->in[k].slot] = true;
    for (int s = at + 1; s < c->step_count; s++)
        for (int k = 0; k < 3; k++) {
            int from = c->step[s].from[k] - c->input_count;
            if (c->step[s].from[k] >= 0 && from >= 0 && from < at) busy[c->step[from].slot] = true;
        }
    int slot = 0;
    while (busy[slot]) slot++;
    if (slot >= c->slot_count) c->slot_count = slot + 1;
    return slot;
}

/* The numbers of an op as its tile kernel takes them. */
static lki_tile_args tile_args_of(lk_op op, const lk_scalar_attr *attr)
{
    switch (op) {
    case LK_OP_SOFTPLUS:
    case LK_OP_SOFTPLUS_GRAD:
        return (lki_tile_args){(float)attr->softplus.beta, (float)attr->softplus.threshold, 0};
    case LK_OP_CLAMP:
    case LK_OP_CLAMP_GRAD: return (lki_tile_args){(float)attr->clamp.min, (float)attr->clamp.max, 0};
    case LK_OP_GELU:
    case LK_OP_GELU_GRAD: return (lki_tile_args){0, 0, attr->by_tanh};
    case LK_OP_LEAKY_RELU:
    case LK_OP_LEAKY_RELU_GRAD: return (lki_tile_args){(float)attr->slope, 0, 0};
    case LK_OP_ELU:
    case LK_OP_ELU_GRAD: return (lki_tile_args){(float)attr->alpha, 0, 0};
    default: return (lki_tile_args){(float)attr->number, 0, 0};
    }
}

/* False where a step has no kernel here. */
static bool describe_steps(chain *c, const lki_cpu *cpu, const lk_fused *program, lk_dtype out)
{
    for (int s = 0; s < c->step_count; s++) {
        lk_op op = program->step[s].op;
        step *to = &c->step[s];
        to->run = cpu->kernels->tile[op];
        if (!to->run) return false;
        to->args = tile_args_of(op, &program->step[s].scalar);
        for (int k = 0; k < 3; k++) to->from[k] = k < operand_count(op) ? program->step[s].operand[k] : -1;
    }
    for (int s = 0; s < c->step_count; s++)
        c->step[s].slot = s == c->step_count - 1 && out == LK_F32 ? -1 : free_slot(c, s);
    return true;
}

/* Fills `out` with elements [begin, begin + n) of a broadcast input. */
static void spread(const chain *c, const lki_cpu_kernels *kernels, const operand *in, const void *data,
                   int64_t begin, int64_t n, float *out)
{
    if (c->rank == 0) {
        kernels->tile_load(out, data, in->dtype, n);
        return;
    }
    int64_t at[LK_MAX_DIMS], offset = 0, rest = begin;
    for (int i = c->rank - 1; i >= 0; i--) {
        at[i] = rest % c->dim[i];
        rest /= c->dim[i];
        offset += at[i] * in->stride[i];
    }
    int last = c->rank - 1;
    size_t nbytes = lk_dtype_nbytes(in->dtype);
    for (int64_t done = 0; done < n;) {
        int64_t run = c->dim[last] - at[last] < n - done ? c->dim[last] - at[last] : n - done;
        const char *from = (const char *)data + (size_t)offset * nbytes;
        if (in->stride[last]) {
            kernels->tile_load(out + done, from, in->dtype, run);
        } else {
            float value;
            kernels->tile_load(&value, from, in->dtype, 1);
            kernels->tile_fill(out + done, value, run);
        }
        done += run;
        offset -= at[last] * in->stride[last];
        at[last] = 0;
        for (int i = last - 1; i >= 0; i--) {
            offset += in->stride[i];
            if (++at[i] < c->dim[i]) break;
            offset -= at[i] * in->stride[i];
            at[i] = 0;
        }
    }
}

typedef struct work {
    const lk_call *call;
    const chain *chain;
    const lki_cpu_kernels *kernels;
} work;

static void run_tile(const work *w, int64_t begin, int64_t n, float *slots)
{
    const chain *c = w->chain;
    const float *value[LK_MAX_FUSED_INPUTS + LK_MAX_FUSED_STEPS];
    for (int k = 0; k < c->input_count; k++) {
        const operand *in = &c->in[k];
        value[k] = in->slot < 0 ? (const float *)w->call->in[k].data + begin : slots + in->slot * TILE;
        if (in->slot >= 0) spread(c, w->kernels, in, w->call->in[k].data, begin, n, slots + in->slot * TILE);
    }
    const lk_tensor *out = &w->call->out[0];
    for (int s = 0; s < c->step_count; s++) {
        const step *now = &c->step[s];
        const float *from[3];
        for (int k = 0; k < 3; k++) from[k] = now->from[k] < 0 ? NULL : value[now->from[k]];
        float *to = now->slot < 0 ? (float *)out->data + begin : slots + now->slot * TILE;
        now->run(to, from[0], from[1], from[2], n, &now->args);
        value[c->input_count + s] = to;
    }
    if (out->dtype == LK_F32) return;
    char *to = (char *)out->data + (size_t)begin * lk_dtype_nbytes(out->dtype);
    w->kernels->tile_save(to, value[c->input_count + c->step_count - 1], out->dtype, n);
}

static void run_tiles(int64_t begin, int64_t end, int thread, void *context)
{
    const work *w = context;
    float *slots = (float *)w->call->scratch + (int64_t)thread * w->chain->slot_count * TILE;
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i * TILE, n = w->chain->count - first < TILE ? w->chain->count - first : TILE;
        run_tile(w, first, n, slots);
    }
}

static lk_status run_chain(const lk_call *call)
{
    lki_cpu *cpu = lki_cpu_of(call);
    work w = {call, call->state, cpu->kernels};
    lki_parallel_for(cpu->pool, (w.chain->count + TILE - 1) / TILE, TILE_GRAIN, run_tiles, &w);
    return LK_OK;
}

/* What floats can stand for: everything but f64 and whole numbers, except that a cast may come from or go to
 * those. */
static bool is_computable(const lk_call *call)
{
    lk_dtype out = call->out[0].dtype;
    if (call->op == LK_OP_CAST) {
        lk_dtype in = call->in[0].dtype;
        bool exact = in == LK_F32 || in == LK_BF16 || in == LK_F16 || in == LK_U8 || in == LK_BOOL;
        return exact || (out == LK_F32 && in != LK_F64) || (in == LK_F64 && out == LK_F32);
    }
    for (int i = 0; i < call->input_count; i++) {
        lk_dtype in = call->in[i].dtype;
        bool mask = in == LK_BOOL || (in == LK_U8 && call->op == LK_OP_DROPOUT_GRAD);
        if (in != LK_F32 && in != LK_BF16 && in != LK_F16 && !mask) return false;
    }
    return out == LK_F32 || out == LK_BF16 || out == LK_F16 || out == LK_BOOL;
}

/* dropout_grad is dy * mask * number, with 1 / (1 - p) for the number. */
static lk_scalar_attr scalar_of(const lk_call *call)
{
    lk_scalar_attr none = {0};
    if (lk_op_family_of(call->op) == LK_FAMILY_SCALAR) return call->attr->scalar;
    if (call->op != LK_OP_DROPOUT_GRAD) return none;
    double p = call->attr->dropout.p;
    return (lk_scalar_attr){.number = p < 1 ? 1 / (1 - p) : 0};
}

lk_status lki_cpu_prepare_elementwise(lki_cpu *cpu, lk_call *call)
{
    lk_fused single = {.input_count = call->input_count, .step_count = 1};
    single.step[0].op = call->op;
    single.step[0].scalar = scalar_of(call);
    for (int k = 0; k < 3; k++) single.step[0].operand[k] = k;
    const lk_fused *program = call->op == LK_OP_FUSED ? call->attr->fused.chain : &single;
    if (call->input_count > LK_MAX_FUSED_INPUTS || !is_computable(call)) return LK_OK;
    chain *c = lki_cpu_new_state(call, sizeof *c);
    if (!c) return LK_ERR_NOMEM;
    c->input_count = program->input_count;
    c->step_count = program->step_count;
    describe_inputs(c, call);
    if (!describe_steps(c, cpu, program, call->out[0].dtype)) return LK_OK;
    call->scratch_nbytes = (size_t)(cpu->thread_count * c->slot_count * TILE) * sizeof(float);
    bool flat = true;
    for (int k = 0; k < c->input_count; k++) flat = flat && c->in[k].slot < 0;
    lki_cpu_enter(cpu, flat ? LKI_CPU_PATH_CHAIN_FLAT : LKI_CPU_PATH_CHAIN_SPREAD);
    call->run = run_chain;
    return LK_OK;
}

static void fill_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const lk_call *call = context;
    lki_cpu_of(call)->kernels->tile_fill(lki_cpu_out(call, 0) + begin, (float)call->attr->fill.value,
                                         end - begin);
}

static lk_status run_fill(const lk_call *call)
{
    lki_parallel_for(lki_cpu_of(call)->pool, lk_tensor_count(&call->out[0]), LKI_CPU_GRAIN, fill_range,
                     (void *)call);
    return LK_OK;
}

lk_status lki_cpu_prepare_fill(lki_cpu *cpu, lk_call *call)
{
    (void)cpu;
    if (call->out[0].dtype == LK_F32) call->run = run_fill;
    return LK_OK;
}
