/* Elementwise ops, fused chains of them, and what only fills, casts or repeats elements.
 *
 * All are chains: a single op is a chain of one step. Each chain becomes source text (source.cu) and then a
 * kernel of its own (nvrtc.cu). An output may lie over an input of the same shape and dtype: every thread
 * reads its elements before it writes them. */
#include "engine/cuda/nvrtc.cuh"
#include "engine/cuda/small/small.cuh"
#include "engine/cuda/source.cuh"

#include <string.h>

namespace
{

enum { MOST_NOTED = 1 << 18 };

struct elementwise {
    lki_cuda *cuda;
    lki_cuda_kernels kernels;
    int64_t count;
    int input_count, width;
    int alignment[LK_MAX_FUSED_INPUTS]; /* what the vector kernel needs of each input; 1 where nothing */
    int out_alignment;
};

bool may_use_vectors(const elementwise *e, const lk_call *call)
{
    if (e->width <= 1 || !lki_cuda_is_aligned(call->out[0].data, (size_t)e->out_alignment)) return false;
    for (int k = 0; k < e->input_count; k++)
        if (!lki_cuda_is_aligned(call->in[k].data, (size_t)e->alignment[k])) return false;
    return true;
}

/* For a step that is one kernel; rows are its pieces, as those of the products around it. */
void take_note(const lk_call *call, lki_cuda *cuda)
{
    const lk_tensor *out = &call->out[0];
    bool fits = call->op == LK_OP_RELU_GRAD && out->dtype == LK_F32 && out->shape.rank > 0;
    for (int i = 0; fits && i < 2; i++)
        fits = call->in[i].dtype == LK_F32 && lki_cuda_count(&call->in[i]) == lki_cuda_count(out);
    if (!fits || lki_cuda_count(out) > MOST_NOTED) return;
    lki_cuda_note *note = lki_cuda_take_note(cuda, LKI_CUDA_SMALL_RELU_GRAD, 1, out->shape.dim[0]);
    if (!note) return;
    size_t nbytes = sizeof(float) * (size_t)lki_cuda_count(out), row = nbytes / (size_t)out->shape.dim[0];
    lki_cuda_small_pointwise *o = &note->op.pointwise;
    o->dy = lki_cuda_in<float>(call, 0);
    o->y = lki_cuda_in<float>(call, 1);
    o->out = lki_cuda_out<float>(call, 0);
    o->count = (int)lki_cuda_count(out);
    o->width = (int)(row / sizeof(float));
    lki_cuda_reads(note, o->dy, nbytes, row);
    lki_cuda_reads(note, o->y, nbytes, row);
    lki_cuda_writes(note, o->out, nbytes, row);
}

lk_status run(const lk_call *call)
{
    const elementwise *e = (const elementwise *)call->state;
    take_note(call, e->cuda);
    bool vectors = may_use_vectors(e, call);
    int64_t threads = vectors ? (e->count + e->width - 1) / e->width : e->count;
    long long count = e->count;
    void *arguments[LK_MAX_FUSED_INPUTS + 2], *data = call->out[0].data;
    arguments[0] = &data;
    for (int k = 0; k < e->input_count; k++) arguments[1 + k] = &call->in[k].data;
    arguments[1 + e->input_count] = &count;
    LKI_CUDA(cudaLaunchKernel(vectors ? e->kernels.vector : e->kernels.plain,
                              dim3((unsigned)lki_cuda_grid(e->cuda, threads)), dim3(LKI_CUDA_BLOCK),
                              arguments, 0, e->cuda->compute));
    return LK_OK;
}

lk_status run_nothing(const lk_call *call)
{
    (void)call;
    return LK_OK;
}

/* One op as a chain; what moves bits only has no steps. */
void set_single(lki_cuda_chain *chain, const lk_call *call)
{
    lk_fused *fused = &chain->fused;
    lk_op op = call->op;
    fused->input_count = op == LK_OP_FULL ? 0 : call->input_count;
    bool same = fused->input_count == 1 && call->in[0].dtype == call->out[0].dtype;
    chain->moves =
        op == LK_OP_EXPAND || op == LK_OP_REORDER || (same && (op == LK_OP_COPY || op == LK_OP_CAST));
    bool compares = op == LK_OP_EQUAL || op == LK_OP_GREATER || op == LK_OP_GREATER_EQUAL;
    chain->integers = (op == LK_OP_CAST || compares) && !lki_cuda_is_float(call->in[0].dtype);
    if (chain->moves) return;
    fused->step_count = 1;
    fused->step[0].op = op;
    for (int k = 0; k < 3; k++) fused->step[0].operand[k] = k;
    if (op == LK_OP_FULL)
        fused->step[0].scalar.number = call->attr->fill.value;
    else if (lki_cuda_op_family(op) == LK_FAMILY_SCALAR)
        fused->step[0].scalar = call->attr->scalar;
}

lk_status describe(lki_cuda_chain *chain, const lk_call *call)
{
    memset(chain, 0, sizeof *chain);
    if (call->op == LK_OP_FUSED)
        chain->fused = *call->attr->fused.chain;
    else
        set_single(chain, call);
    if (chain->fused.input_count > LK_MAX_FUSED_INPUTS || chain->fused.input_count > call->input_count)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for an elementwise op of %d inputs",
                             chain->fused.input_count);
    if (chain->moves && call->in[0].dtype != call->out[0].dtype)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel that moves %s to %s",
                             lki_cuda_dtype_name(call->in[0].dtype), lki_cuda_dtype_name(call->out[0].dtype));
    for (int k = 0; k < chain->fused.input_count; k++) chain->in_dtype[k] = call->in[k].dtype;
    chain->out_dtype = call->out[0].dtype;
    lki_cuda_chain_axes(chain, call->in, &call->out[0]);
    return LK_OK;
}

lk_status compile(lki_cuda *cuda, const lki_cuda_chain *chain, lki_cuda_kernels *out)
{
    char *source = (char *)lki_host->alloc(LKI_CUDA_SOURCE_NBYTES, "a kernel's source");
    if (!source) return LK_ERR_NOMEM;
    lk_status status = lki_cuda_chain_write(chain, source);
    if (status == LK_OK) status = lki_cuda_compile(cuda, source, chain->width > 1, out);
    lki_host->free(source);
    return status;
}

} // namespace

lk_status lki_cuda_prepare_elementwise(lki_cuda *cuda, lk_call *call)
{
    if (!lki_cuda_count(&call->out[0])) {
        call->run = run_nothing;
        return LK_OK;
    }
    lki_cuda_chain chain;
    lki_cuda_kernels kernels = {};
    LKI_TRY(describe(&chain, call));
    LKI_TRY(compile(cuda, &chain, &kernels));
    elementwise *e = (elementwise *)lki_cuda_new_state(call, sizeof *e);
    if (!e) return LK_ERR_NOMEM;
    e->cuda = cuda;
    e->kernels = kernels;
    e->count = chain.count;
    e->input_count = chain.fused.input_count;
    e->width = chain.width;
    e->out_alignment = chain.width * (int)lki_cuda_dtype_nbytes(chain.out_dtype);
    for (int k = 0; k < e->input_count; k++)
        e->alignment[k] = lki_cuda_chain_is_dense(&chain, k)
                              ? chain.width * (int)lki_cuda_dtype_nbytes(chain.in_dtype[k])
                              : 1;
    call->run = run;
    return LK_OK;
}
