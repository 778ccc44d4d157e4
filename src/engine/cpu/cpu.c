#include "engine/cpu/cpu.h"

#include "base/memory.h"
#include "base/status.h"
#include "engine/engines.h"

static const lki_cpu_prepare prepares[LK_OP_COUNT] = {
    [LK_OP_FULL] = lki_cpu_prepare_fill,
    [LK_OP_MATMUL] = lki_cpu_prepare_matmul,
    [LK_OP_LINEAR] = lki_cpu_prepare_linear,
    [LK_OP_LINEAR_GRAD] = lki_cpu_prepare_linear_grad,
    [LK_OP_CONV] = lki_cpu_prepare_conv,
    [LK_OP_CONV_GRAD_INPUT] = lki_cpu_prepare_conv_grad_input,
    [LK_OP_CONV_GRAD_WEIGHT] = lki_cpu_prepare_conv_grad_weight,
    [LK_OP_CONV_TRANSPOSE] = lki_cpu_prepare_conv_grad_input,
    [LK_OP_MAX_POOL] = lki_cpu_prepare_max_pool,
    [LK_OP_MAX_POOL_GRAD] = lki_cpu_prepare_max_pool_grad,
    [LK_OP_AVG_POOL] = lki_cpu_prepare_avg_pool,
    [LK_OP_AVG_POOL_GRAD] = lki_cpu_prepare_avg_pool_grad,
    [LK_OP_ADAPTIVE_AVG_POOL] = lki_cpu_prepare_adaptive_avg_pool,
    [LK_OP_ADAPTIVE_AVG_POOL_GRAD] = lki_cpu_prepare_adaptive_avg_pool,
    [LK_OP_BATCH_NORM] = lki_cpu_prepare_batch_norm,
    [LK_OP_BATCH_NORM_GRAD] = lki_cpu_prepare_batch_norm_grad,
    [LK_OP_LAYER_NORM] = lki_cpu_prepare_layer_norm,
    [LK_OP_LAYER_NORM_GRAD] = lki_cpu_prepare_layer_norm_grad,
    [LK_OP_GROUP_NORM] = lki_cpu_prepare_group_norm,
    [LK_OP_GROUP_NORM_GRAD] = lki_cpu_prepare_group_norm_grad,
    [LK_OP_DROPOUT] = lki_cpu_prepare_dropout,
    [LK_OP_SUM] = lki_cpu_prepare_reduction,
    [LK_OP_MEAN] = lki_cpu_prepare_reduction,
    [LK_OP_MAX] = lki_cpu_prepare_reduction,
    [LK_OP_VAR] = lki_cpu_prepare_reduction,
    [LK_OP_MAX_GRAD] = lki_cpu_prepare_max_grad,
    [LK_OP_ARGMAX] = lki_cpu_prepare_argmax,
    [LK_OP_EXPAND] = lki_cpu_prepare_elementwise,
    [LK_OP_PERMUTE] = lki_cpu_prepare_permute,
    [LK_OP_SLICE] = lki_cpu_prepare_slice,
    [LK_OP_SLICE_GRAD] = lki_cpu_prepare_slice_grad,
    [LK_OP_SLICES_GRAD] = lki_cpu_prepare_slices_grad,
    [LK_OP_SORT] = lki_cpu_prepare_sort,
    [LK_OP_CONCAT] = lki_cpu_prepare_concat,
    [LK_OP_PAD] = lki_cpu_prepare_pad,
    [LK_OP_PAD_GRAD] = lki_cpu_prepare_pad,
    [LK_OP_UPSAMPLE] = lki_cpu_prepare_upsample,
    [LK_OP_UPSAMPLE_GRAD] = lki_cpu_prepare_upsample,
    [LK_OP_EMBEDDING] = lki_cpu_prepare_embedding,
    [LK_OP_EMBEDDING_GRAD] = lki_cpu_prepare_embedding_grad,
    [LK_OP_SOFTMAX] = lki_cpu_prepare_softmax,
    [LK_OP_LOG_SOFTMAX] = lki_cpu_prepare_softmax,
    [LK_OP_SOFTMAX_GRAD] = lki_cpu_prepare_softmax,
    [LK_OP_LOG_SOFTMAX_GRAD] = lki_cpu_prepare_softmax,
    [LK_OP_RECURRENT] = lki_cpu_prepare_recurrent,
    [LK_OP_RECURRENT_GRAD] = lki_cpu_prepare_recurrent_grad,
    [LK_OP_RECURRENT_GRAD_WEIGHT] = lki_cpu_prepare_recurrent_grad_weight,
    [LK_OP_ATTENTION] = lki_cpu_prepare_attention,
    [LK_OP_ATTENTION_GRAD] = lki_cpu_prepare_attention_grad,
    [LK_OP_CROSS_ENTROPY] = lki_cpu_prepare_cross_entropy,
    [LK_OP_CROSS_ENTROPY_GRAD] = lki_cpu_prepare_cross_entropy_grad,
    [LK_OP_NLL] = lki_cpu_prepare_nll,
    [LK_OP_NLL_GRAD] = lki_cpu_prepare_nll_grad,
    [LK_OP_CUMSUM] = lki_cpu_prepare_scan,
    [LK_OP_CUMPROD] = lki_cpu_prepare_scan,
    [LK_OP_GATHER] = lki_cpu_prepare_places,
    [LK_OP_GATHER_GRAD] = lki_cpu_prepare_places,
    [LK_OP_SCATTER] = lki_cpu_prepare_places,
    [LK_OP_SCATTER_ADD] = lki_cpu_prepare_places,
    [LK_OP_POINTWISE_LOSS] = lki_cpu_prepare_pointwise_loss,
    [LK_OP_POINTWISE_LOSS_GRAD] = lki_cpu_prepare_pointwise_loss_grad,
    [LK_OP_DROPOUT_GRAD] = lki_cpu_prepare_elementwise,
    [LK_OP_UPDATE] = lki_cpu_prepare_update,
    [LK_OP_CLIP_NORM] = lki_cpu_prepare_clip,
    [LK_OP_CLIP_VALUE] = lki_cpu_prepare_clip,
    [LK_OP_ACCUMULATE] = lki_cpu_prepare_accumulate,
    [LK_OP_UNSCALE] = lki_cpu_prepare_unscale,
};

static const lki_cpu_kernels *kernels_of(lki_cpu_level level)
{
    switch (level) {
#if defined(__x86_64__)
    case LKI_CPU_LEVEL_AMX:
    case LKI_CPU_LEVEL_AVX512BF16:
    case LKI_CPU_LEVEL_AVX512: return &lki_cpu_kernels_avx512;
    case LKI_CPU_LEVEL_AVX2: return &lki_cpu_kernels_avx2;
#endif
    default: return &lki_cpu_kernels_base;
    }
}

static void name_paths(lki_cpu *cpu)
{
    bool wide = cpu->kernels->sparse != NULL; /* all of AVX-512's come together */
#define X(symbol, path, level)                                                                               \
    cpu->paths[LKI_CPU_PATH_##symbol] = (lk_engine_path){.name = path, .is_here = !(level) || wide};
    LKI_CPU_PATH_LIST(X)
#undef X
}

static const lk_engine_path *list_paths(const lk_engine *engine, int *count)
{
    const lki_cpu *cpu = engine->state;
    *count = LKI_CPU_PATH_COUNT;
    return cpu->paths;
}

static void close_cpu(void *state)
{
    lki_cpu *cpu = state;
    lki_pool_free(cpu->pool);
    lki_free(cpu);
}

static lki_cpu_level lower(lki_cpu_level a, lki_cpu_level b)
{
    return a < b ? a : b;
}

/* Instructions for bf16 are tried in a child process, so only those who compute in bf16 ask for them: a
 * program that trains in f32 is not forked. */
const lki_bf16_kernels *lki_cpu_low(lki_cpu *cpu)
{
    if (cpu->low || cpu->low_is_known) return cpu->low;
    cpu->level = lower(lki_machine_level(cpu->wanted), cpu->limit);
    cpu->low = lki_bf16_kernels_of(cpu->level);
    cpu->low_is_known = true;
    return cpu->low;
}

static lk_status open_cpu(void **state, const lk_engine_options *options)
{
    lki_cpu_level wanted,
        limit = options->cpu_level > 0 ? (lki_cpu_level)options->cpu_level : LKI_CPU_LEVEL_AMX;
    LKI_TRY(lki_cpu_level_wanted(&wanted));
    lki_cpu_level level = lower(lki_machine_level(lower(wanted, LKI_CPU_LEVEL_AVX512)), limit);
    lki_cpu *cpu = LKI_NEW(lki_cpu);
    if (!cpu) return LK_ERR_NOMEM;
    cpu->kernels = kernels_of(level);
    cpu->level = level;
    cpu->wanted = wanted;
    cpu->limit = limit;
    name_paths(cpu);
    lk_status status = lki_pool_create(&cpu->pool, options->thread_count, options->lane_count);
    if (status != LK_OK) {
        close_cpu(cpu);
        return status;
    }
    cpu->thread_count = lki_pool_lane_count(cpu->pool);
    *state = cpu;
    return LK_OK;
}

/* What an attempt that came to nothing left behind. */
static void reset(lk_call *call)
{
    if (call->free_state) call->free_state(call->state);
    call->run = NULL;
    call->state = NULL;
    call->free_state = NULL;
    call->scratch_nbytes = 0;
    call->fallback = NULL;
}

static bool is_f32_or_index(lk_dtype dtype)
{
    return dtype != LK_F64 && dtype != LK_BF16 && dtype != LK_F16;
}

/* Why `ref` computes a call. */
static const char *reason_to_fall_back(const lk_call *call, bool has_kernel)
{
    bool is_plain = true;
    if (!has_kernel) return "the cpu engine has no kernel for it";
    for (int i = 0; i < call->input_count; i++) {
        if (call->in[i].dtype == LK_F64) return "the kernel is for f32, and an operand is f64";
        is_plain = is_plain && is_f32_or_index(call->in[i].dtype);
    }
    if (call->output_count && call->out[0].dtype == LK_F64)
        return "the kernel is for f32, and the result is f64";
    return is_plain ? "the kernel does not have these options or dtypes"
                    : "the kernel does not have these options in 16 bits";
}

static lk_status prepare_low(lk_engine *engine, lk_call *call)
{
    LKI_TRY(lki_cpu_prepare_low(engine->state, call));
    if (call->run) return LK_OK;
    reset(call);
    return lki_cpu_prepare_widened(engine, call);
}

static lk_status prepare(lk_engine *engine, lk_call *call)
{
    lki_cpu *cpu = engine->state;
    call->free_state = NULL;
    reset(call);
    lki_cpu_prepare own = prepares[call->op];
    if (!own && (lk_op_flags(call->op) & LK_OP_IS_ELEMENTWISE)) own = lki_cpu_prepare_elementwise;
    if (own && (call->output_count != 1 || call->out[0].data)) LKI_TRY(own(cpu, call));
    if (call->run) return LK_OK;
    reset(call);
    if (own && lki_cpu_has_low_operands(call)) return prepare_low(engine, call);
    LKI_TRY(lki_ref_engine_ops.prepare(engine, call));
    if (call->output_count != 1 || call->out[0].data) call->fallback = reason_to_fall_back(call, own != NULL);
    return LK_OK;
}

static const char *kernels(const lk_engine *engine)
{
    lki_cpu *cpu = engine->state;
    lki_cpu_low(cpu);
    return lki_cpu_level_name(cpu->level);
}

/* AMX multiplies in bf16; attention as one op does so in f32. */
static bool joins_attention(const lk_engine *engine, lk_dtype precision)
{
    lki_cpu *cpu = engine->state;
    if (precision != LK_BF16) return true;
    lki_cpu_low(cpu); /* finds out about bf16, which it leaves until somebody asks */
    return cpu->level < LKI_CPU_LEVEL_AMX;
}

const char *lki_cpu_f32_kernels(const lk_engine *engine)
{
    const lki_cpu *cpu = engine->state;
    return lki_cpu_level_name(lower(cpu->level, LKI_CPU_LEVEL_AVX512));
}

const lk_engine_ops lki_cpu_engine_ops = {
    LK_SIZE(lk_engine_ops), .name = "cpu",       .open = open_cpu,
    .close = close_cpu,     .prepare = prepare,  .keeps_low = true,
    .kernels = kernels,     .paths = list_paths, .joins_attention = joins_attention,
};

bool lki_cpu_all_f32(const lk_call *call, unsigned others)
{
    for (int i = 0; i < call->input_count; i++)
        if (!(others & (1u << i)) && call->in[i].dtype != LK_F32) return false;
    return !call->output_count || call->out[0].dtype == LK_F32;
}

void *lki_cpu_new_state(lk_call *call, size_t nbytes)
{
    call->state = lki_calloc(nbytes, "a kernel's state");
    call->free_state = lki_free;
    return call->state;
}
