/* The cpu engine inside: what open() makes, and one prepare function a family of ops.
 *
 * A prepare function looks at a call's dtypes, shapes and attributes, sets run (and state, scratch_nbytes),
 * or leaves run NULL where it has nothing better than the reference kernel, which is then used. Operand
 * addresses may change between replays, so kernels read them from the call. Thread rule: that of engines;
 * loops inside a call use the engine's pool. */
#ifndef LKI_CPU_CPU_H
#define LKI_CPU_CPU_H

#include <lockstep/sys/engine.h>

#include "base/threads.h"
#include "engine/cpu/kernels.h"
#include "engine/cpu/machine.h"
#include "engine/cpu/paths.h"

typedef struct lki_cpu {
    lki_pool *pool;
    int thread_count;               /* into so many chunks at most a loop is cut: the lanes of the pool */
    lki_cpu_level level;            /* while low_is_known is false, at most AVX512 */
    const lki_cpu_kernels *kernels; /* of that level */
    const lki_bf16_kernels *low;    /* for bf16, through lki_cpu_low; NULL where it is widened */
    lki_cpu_level wanted, limit;    /* what the environment and the options allow */
    bool low_is_known;
    lk_engine_path paths[LKI_CPU_PATH_COUNT];
} lki_cpu;

static inline void lki_cpu_enter(lki_cpu *cpu, lki_cpu_path path)
{
    cpu->paths[path].entered++;
}

/* The kernels for bf16, or NULL: when they are first asked for, the level is found that they belong to. */
const lki_bf16_kernels *lki_cpu_low(lki_cpu *cpu);

typedef lk_status (*lki_cpu_prepare)(lki_cpu *cpu, lk_call *call);

lk_status lki_cpu_prepare_elementwise(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_fill(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_matmul(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_linear(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_linear_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_conv(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_conv_grad_input(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_conv_grad_weight(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_max_pool(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_max_pool_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_avg_pool(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_avg_pool_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_adaptive_avg_pool(lki_cpu *cpu, lk_call *call);
/* From planes of `in` to those of `out`, which have several places. */
lk_status lki_cpu_prepare_adaptive_places(lk_call *call, lk_shape in, lk_shape out);
lk_status lki_cpu_prepare_scan(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_places(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_batch_norm(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_batch_norm_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_group_norm(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_group_norm_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_layer_norm(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_layer_norm_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_dropout(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_reduction(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_max_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_argmax(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_permute(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_slice(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_slice_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_slices_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_sort(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_concat(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_pad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_pad_by_elements(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_upsample(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_embedding(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_embedding_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_softmax(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_recurrent(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_recurrent_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_recurrent_grad_weight(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_attention(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_attention_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_cross_entropy(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_cross_entropy_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_nll(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_nll_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_pointwise_loss(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_pointwise_loss_grad(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_update(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_clip(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_accumulate(lki_cpu *cpu, lk_call *call);
lk_status lki_cpu_prepare_unscale(lki_cpu *cpu, lk_call *call);

/* Products of bf16 by instructions for them; leaves call->run NULL where there are none, or f32 is faster. */
lk_status lki_cpu_prepare_low(lki_cpu *cpu, lk_call *call);
/* Whether a call has bf16 or f16 operands that could be widened to f32, and how to run it so. */
bool lki_cpu_has_low_operands(const lk_call *call);
lk_status lki_cpu_prepare_widened(lk_engine *engine, lk_call *call);

static inline lki_cpu *lki_cpu_of(const lk_call *call)
{
    return call->engine->state;
}

/* Input or output `index` of a call as floats; NULL where it is absent. */
static inline const float *lki_cpu_in(const lk_call *call, int index)
{
    return index < call->input_count ? call->in[index].data : NULL;
}

static inline float *lki_cpu_out(const lk_call *call, int index)
{
    return index < call->output_count ? call->out[index].data : NULL;
}

static inline bool lki_cpu_has(const lk_call *call, int index)
{
    return index < call->input_count && call->in[index].data;
}

/* True where every operand is f32 (an absent one has the zero dtype, which is f32); `others` has a bit for
 * each input that may be anything. Addresses say nothing yet when a call is prepared: inputs of the graph are
 * bound later. */
bool lki_cpu_all_f32(const lk_call *call, unsigned others);

/* Memory for call->state, freed with the call. */
void *lki_cpu_new_state(lk_call *call, size_t nbytes);

/* The product of the dimensions from `begin` to before `end`. */
static inline int64_t lki_cpu_span(lk_shape shape, int begin, int end)
{
    int64_t count = 1;
    for (int i = begin; i < end; i++) count *= shape.dim[i];
    return count;
}

/* Runs a product on all threads; scratch holds lki_cpu_gemm_scratch bytes. */
size_t lki_cpu_gemm_scratch(const lki_cpu *cpu, int64_t n, int64_t k);
void lki_cpu_gemm(lki_cpu *cpu, const lki_gemm *g, void *scratch);

/* How many elements a thread should have at least before a loop over memory is worth cutting. */
enum { LKI_CPU_GRAIN = 16384 };

#endif
