/* 16-bit floats for kernels that have only f32: operands are widened into scratch, the f32 kernel runs on
 * them, and 16-bit results are narrowed. What call->state points to holds a call of its own, prepared for the
 * f32 operands. */
#include "engine/cpu/cpu.h"

#include "base/memory.h"
#include "base/status.h"

enum { MAX_INPUTS = 10 };

typedef struct widened {
    lk_call call; /* the f32 call */
    lk_tensor in[MAX_INPUTS];
    int in_layout[MAX_INPUTS];
    size_t in_offset[MAX_INPUTS],
        out_offset[LK_MAX_OUTPUTS]; /* in scratch, for operands that are converted */
} widened;

static bool is_low(lk_dtype dtype)
{
    return dtype == LK_BF16 || dtype == LK_F16;
}

/* What is changed in place has to be there as it is: of a batch norm those are the running values. */
static bool writes_to_no_low(const lk_call *call)
{
    if (!(lk_op_flags(call->op) & LK_OP_WRITES_OPERANDS)) return true;
    if (call->op != LK_OP_BATCH_NORM) return false;
    for (int i = 3; i < call->input_count; i++)
        if (is_low(call->in[i].dtype)) return false;
    return true;
}

bool lki_cpu_has_low_operands(const lk_call *call)
{
    bool low = false;
    for (int i = 0; i < call->input_count; i++) {
        if (call->in[i].dtype == LK_F64) return false;
        low = low || is_low(call->in[i].dtype);
    }
    for (int i = 0; i < call->output_count; i++) {
        if (call->out[i].dtype == LK_F64) return false;
        low = low || is_low(call->out[i].dtype);
    }
    return low && call->input_count <= MAX_INPUTS && writes_to_no_low(call);
}

typedef struct conversion {
    const lki_cpu_kernels *kernels;
    const lk_tensor *low;
    float *wide;
    bool narrow;
} conversion;

static void convert_range(int64_t begin, int64_t end, int thread, void *context)
{
    (void)thread;
    const conversion *c = context;
    char *low = (char *)c->low->data + (size_t)begin * lk_dtype_nbytes(c->low->dtype);
    if (c->narrow)
        c->kernels->tile_save(low, c->wide + begin, c->low->dtype, end - begin);
    else
        c->kernels->tile_load(c->wide + begin, low, c->low->dtype, end - begin);
}

static void convert(const lk_call *call, const lk_tensor *low, float *wide, bool narrow)
{
    lki_cpu *cpu = lki_cpu_of(call);
    conversion c = {cpu->kernels, low, wide, narrow};
    lki_parallel_for(cpu->pool, lk_tensor_count(low), LKI_CPU_GRAIN, convert_range, &c);
}

static lk_status run_widened(const lk_call *call)
{
    widened *w = call->state;
    char *scratch = call->scratch;
    for (int i = 0; i < call->input_count; i++) {
        w->in[i].data = call->in[i].data;
        if (!is_low(call->in[i].dtype) || !call->in[i].data) continue;
        w->in[i].data = scratch + w->in_offset[i];
        convert(call, &call->in[i], w->in[i].data, false);
    }
    for (int i = 0; i < call->output_count; i++) {
        bool converted = is_low(call->out[i].dtype) && call->out[i].data;
        w->call.out[i].data = converted ? scratch + w->out_offset[i] : call->out[i].data;
    }
    w->call.scratch = scratch;
    w->call.generator = call->generator;
    LKI_TRY(w->call.run(&w->call));
    for (int i = 0; i < call->output_count; i++)
        if (is_low(call->out[i].dtype) && call->out[i].data)
            convert(call, &call->out[i], w->call.out[i].data, true);
    return LK_OK;
}

static void free_widened(void *state)
{
    widened *w = state;
    if (w->call.free_state) w->call.free_state(w->call.state);
    lki_free(w);
}

/* Room for an f32 copy at the end of the scratch, which grows. */
static size_t reserve(size_t *nbytes, const lk_tensor *tensor)
{
    size_t offset = *nbytes;
    *nbytes += ((size_t)lk_tensor_count(tensor) * sizeof(float) + 63) / 64 * 64;
    return offset;
}

lk_status lki_cpu_prepare_widened(lk_engine *engine, lk_call *call)
{
    widened *w = LKI_NEW(widened);
    if (!w) return LK_ERR_NOMEM;
    call->state = w;
    call->free_state = free_widened;
    w->call = *call;
    w->call.state = NULL;
    w->call.free_state = NULL;
    w->call.scratch_nbytes = 0;
    w->call.in = w->in;
    w->call.in_layout = w->in_layout;
    for (int i = 0; i < call->input_count; i++) {
        w->in[i] = call->in[i];
        if (is_low(w->in[i].dtype)) w->in[i].dtype = LK_F32;
    }
    for (int i = 0; i < call->output_count; i++)
        if (is_low(call->out[i].dtype)) w->call.out[i].dtype = LK_F32;
    LKI_TRY(engine->ops->prepare(engine, &w->call));
    size_t nbytes = (w->call.scratch_nbytes + 63) / 64 * 64;
    for (int i = 0; i < call->input_count; i++)
        if (is_low(call->in[i].dtype)) w->in_offset[i] = reserve(&nbytes, &call->in[i]);
    for (int i = 0; i < call->output_count; i++)
        if (is_low(call->out[i].dtype)) w->out_offset[i] = reserve(&nbytes, &call->out[i]);
    call->scratch_nbytes = nbytes;
    call->run = run_widened;
    call->fallback = w->call.fallback;
    lki_cpu_enter(engine->state, LKI_CPU_PATH_WIDENED);
    return LK_OK;
}
