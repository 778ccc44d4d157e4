/* The update half of a step, over flat slices and in place: optimizers, clipping, accumulation.
 *
 * What changes from step to step is read on the device from live->hyper, so a recorded program needs no new
 * parameters; where live->skip is set, or the scaler says that the gradients were not finite, every kernel
 * returns at once. */
#include "engine/cuda/small/small.cuh"
#include "engine/cuda/update_more.cuh"
#include "engine/cuda/update_rules.cuh"

namespace
{

struct update_state {
    lki_cuda *cuda;
    int slot;
};

struct slices {
    void *data[5]; /* param, grad, state0..2; NULL where absent */
    int64_t count;
    const lki_cuda_live *live;
    int slot;
    const void *scaler; /* of the gradients' dtype; NULL where there is none */
};

template <typename T> __device__ T scaler_at(const slices &s, lk_scaler_field field)
{
    return s.scaler ? ((const T *)s.scaler)[field] : (T)0;
}

template <typename T> __device__ bool skips(const slices &s)
{
    return s.live->skip || scaler_at<T>(s, LK_SCALER_FOUND) != (T)0;
}

template <typename T>
__device__ lki_cuda_numbers<typename lki_cuda_wide<T>::type> read_numbers(const slices &s, int rule)
{
    using W = typename lki_cuda_wide<T>::type;
    return lki_cuda_numbers_of<W>(&s.live->hyper[s.slot], (double)scaler_at<T>(s, LK_SCALER_SKIPPED), rule);
}

template <typename T, int N> __device__ lki_cuda_pack<T, N> load(const slices &s, int operand, int64_t i)
{
    lki_cuda_pack<T, N> pack = {};
    if (s.data[operand]) pack = ((const lki_cuda_pack<T, N> *)s.data[operand])[i];
    return pack;
}

template <typename T, int N>
__device__ void store(const slices &s, int operand, int64_t i, const lki_cuda_pack<T, N> &pack)
{
    if (s.data[operand]) ((lki_cuda_pack<T, N> *)s.data[operand])[i] = pack;
}

/* What a walk over the slices writes back; the gradient never is. */
enum { READS = 0, PARAM = 1, STATES = 2 };

/* Runs `each` over pack `i` of all slices. */
template <typename T, int N, int WRITES, typename Each>
__device__ void over_pack(const slices &s, int64_t i, Each each)
{
    using W = typename lki_cuda_wide<T>::type;
    lki_cuda_pack<T, N> x[5];
#pragma unroll
    for (int k = 0; k < 5; k++) x[k] = load<T, N>(s, k, i);
#pragma unroll
    for (int j = 0; j < N; j++) {
        lki_cuda_element<W> e = {x[0].at[j], x[1].at[j], x[2].at[j], x[3].at[j], x[4].at[j]};
        each(e);
        x[0].at[j] = e.p;
        x[2].at[j] = e.s0;
        x[3].at[j] = e.s1;
        x[4].at[j] = e.s2;
    }
    if (WRITES & PARAM) store<T, N>(s, 0, i, x[0]);
#pragma unroll
    for (int k = 2; k < 5; k++)
        if (WRITES & STATES) store<T, N>(s, k, i, x[k]);
}

/* Whole packs first, then what is left, one by one; who does which element does not depend on the data. */
template <typename T, int N, int WRITES, typename Each>
__device__ void over_slices(const slices &s, Each each)
{
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < s.count / N; i += stride) over_pack<T, N, WRITES>(s, i, each);
    if (N > 1)
        for (int64_t i = s.count / N * N + first; i < s.count; i += stride)
            over_pack<T, 1, WRITES>(s, i, each);
}

template <typename T, int N, int RULE>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) update_kernel(slices s)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    const lki_cuda_numbers<W> n = read_numbers<T>(s, RULE);
    over_slices<T, N, PARAM | STATES>(s, [&](lki_cuda_element<W> &e) { lki_cuda_apply_rule<W, RULE>(n, e); });
}

template <typename T, int N, int RULE> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) more_kernel(slices s)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    const lki_cuda_more_numbers<W> n =
        lki_cuda_more_numbers_of<W>(&s.live->hyper[s.slot], (double)scaler_at<T>(s, LK_SCALER_SKIPPED), RULE);
    over_slices<T, N, PARAM | STATES>(s, [&](lki_cuda_element<W> &e) { lki_cuda_apply_more<W, RULE>(n, e); });
}

/* ---- lamb ---- */

struct norms {
    double param, direction; /* squares */
};

/* r = |p| / |u| over the whole parameter, with |p| at most `clip`; 1 if either norm is 0. */
__device__ double trust_ratio(const lki_cuda_hyper *h, norms total)
{
    if (h->no_trust || !(total.param > 0) || !(total.direction > 0)) return 1;
    double norm = sqrt(total.param);
    return (h->clip > 0 && norm > h->clip ? h->clip : norm) / sqrt(total.direction);
}

/* p -= lr r u with the trust ratio r. */
template <typename T, int N> __device__ void lamb_apply(const slices &s, norms total)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_cuda_numbers<W> n = read_numbers<T>(s, LK_UPDATE_LAMB);
    const lki_cuda_hyper *h = &s.live->hyper[s.slot];
    W rate = (W)(h->lr * trust_ratio(h, total));
    over_slices<T, N, PARAM>(s, [&](lki_cuda_element<W> &e) { e.p -= rate * lki_cuda_lamb_direction(n, e); });
}

/* Moves the averages and leaves each block's share of the norms in `partial`. A single block goes on by
 * itself: each of its threads sees the elements that it wrote. */
template <typename T, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) lamb_average_kernel(slices s, norms *partial)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    const lki_cuda_numbers<W> n = read_numbers<T>(s, LK_UPDATE_LAMB);
    norms sum = {0, 0};
    over_slices<T, N, STATES>(s, [&](lki_cuda_element<W> &e) {
        lki_cuda_lamb_average(n, e);
        double p = e.p, u = lki_cuda_lamb_direction(n, e);
        sum.param += p * p;
        sum.direction += u * u;
    });
    sum.param = lki_cuda_block_sum(sum.param);
    sum.direction = lki_cuda_block_sum(sum.direction);
    if (gridDim.x == 1)
        lamb_apply<T, N>(s, sum);
    else if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

template <typename T, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) lamb_apply_kernel(slices s, const norms *partial, int count)
{
    if (skips<T>(s)) return;
    norms sum = {0, 0};
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        sum.param += partial[i].param;
        sum.direction += partial[i].direction;
    }
    sum.param = lki_cuda_block_sum(sum.param);
    sum.direction = lki_cuda_block_sum(sum.direction);
    lamb_apply<T, N>(s, sum);
}

/* ---- Clipping and accumulation: data[0] is what changes ---- */

/* n = |grad_scale g|; g *= clip / (n + 1e-6) where that is below 1; a NaN makes every gradient one. The scale
 * itself is left to the update. */
template <typename T, int N> __device__ void clip_apply(const slices &s, double square, double *norm_out)
{
    using W = typename lki_cuda_wide<T>::type;
    const lki_cuda_hyper *h = &s.live->hyper[s.slot];
    double norm = sqrt(square) * fabs(h->grad_scale);
    if (blockIdx.x == 0 && threadIdx.x == 0) *norm_out = norm;
    double factor = h->clip / (norm + 1e-6);
    if (factor >= 1) return;
    over_slices<T, N, PARAM>(s, [&](lki_cuda_element<W> &e) { e.p *= (W)factor; });
}

template <typename T, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) norm_kernel(slices s, double *partial, double *norm_out)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    double sum = 0;
    over_slices<T, N, READS>(s, [&](lki_cuda_element<W> &e) { sum += (double)e.p * (double)e.p; });
    sum = lki_cuda_block_sum(sum);
    if (gridDim.x == 1)
        clip_apply<T, N>(s, sum, norm_out);
    else if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

template <typename T, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    clip_kernel(slices s, const double *partial, int count, double *norm_out)
{
    if (skips<T>(s)) return;
    double sum = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) sum += partial[i];
    clip_apply<T, N>(s, lki_cuda_block_sum(sum), norm_out);
}

/* grad_scale g is held within -clip..clip. */
template <typename T, int N> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) clip_value_kernel(slices s)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    const lki_cuda_hyper *h = &s.live->hyper[s.slot];
    W limit = (W)(h->clip / fabs(h->grad_scale));
    over_slices<T, N, PARAM>(s, [&](lki_cuda_element<W> &e) {
        e.p = e.p > limit ? limit : e.p < -limit ? -limit : e.p;
    });
}

template <typename T, int N> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) accumulate_kernel(slices s)
{
    using W = typename lki_cuda_wide<T>::type;
    if (skips<T>(s)) return;
    bool first = s.live->hyper[s.slot].first;
    over_slices<T, N, PARAM>(s, [&](lki_cuda_element<W> &e) { e.p = first ? e.g : e.p + e.g; });
}

/* ---- Launches ---- */

template <typename T, int N>
lk_status launch_rule(const lk_call *call, const slices &s, int grid, cudaStream_t stream)
{
    norms *partial = (norms *)call->scratch;
    switch (call->attr->update.rule) {
    case LK_UPDATE_SGD: update_kernel<T, N, LK_UPDATE_SGD><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_ADAM: update_kernel<T, N, LK_UPDATE_ADAM><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_ADAMW: update_kernel<T, N, LK_UPDATE_ADAMW><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_RMSPROP:
        update_kernel<T, N, LK_UPDATE_RMSPROP><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s);
        break;
    case LK_UPDATE_ADAGRAD:
        update_kernel<T, N, LK_UPDATE_ADAGRAD><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s);
        break;
    case LK_UPDATE_LAMB:
        lamb_average_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s, partial);
        if (grid > 1) lamb_apply_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s, partial, grid);
        break;
    case LK_UPDATE_NADAM: more_kernel<T, N, LK_UPDATE_NADAM><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_RADAM: more_kernel<T, N, LK_UPDATE_RADAM><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_ADADELTA:
        more_kernel<T, N, LK_UPDATE_ADADELTA><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s);
        break;
    case LK_UPDATE_ADAMAX: more_kernel<T, N, LK_UPDATE_ADAMAX><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_RPROP: more_kernel<T, N, LK_UPDATE_RPROP><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_ASGD: more_kernel<T, N, LK_UPDATE_ASGD><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_LION: more_kernel<T, N, LK_UPDATE_LION><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_UPDATE_COUNT: break;
    }
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T, int N> lk_status launch(const lk_call *call, const slices &s, int grid, lki_cuda *cuda)
{
    cudaStream_t stream = cuda->compute;
    double *partial = (double *)call->scratch, *norm = cuda->norms_on_device + s.slot;
    switch (call->op) {
    case LK_OP_CLIP_NORM:
        norm_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s, partial, norm);
        if (grid > 1) clip_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s, partial, grid, norm);
        break;
    case LK_OP_CLIP_VALUE: clip_value_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    case LK_OP_ACCUMULATE: accumulate_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(s); break;
    default: return launch_rule<T, N>(call, s, grid, stream);
    }
    LKI_LAUNCHED();
    return LK_OK;
}

/* One block takes what it can do about as fast as two launches would. */
enum { ONE_BLOCK = 8192, MAX_GRID = 1024, MOST_NOTED = 1 << 20 };

bool has_norm(const lk_call *call)
{
    return call->op == LK_OP_CLIP_NORM ||
           (call->op == LK_OP_UPDATE && call->attr->update.rule == LK_UPDATE_LAMB);
}

int grid_of(const lk_call *call, const lki_cuda *cuda, int64_t count, int width)
{
    if (has_norm(call) && count <= ONE_BLOCK) return 1;
    int grid = lki_cuda_grid(cuda, (count + width - 1) / width);
    return has_norm(call) && grid > MAX_GRID ? MAX_GRID : grid;
}

template <typename T> lk_status run_typed(const lk_call *call, const slices &s, lki_cuda *cuda)
{
    constexpr int width = 16 / sizeof(T);
    bool aligned = true;
    for (int i = 0; i < 5; i++) aligned = aligned && lki_cuda_is_aligned(s.data[i], 16);
    return aligned ? launch<T, width>(call, s, grid_of(call, cuda, s.count, width), cuda)
                   : launch<T, 1>(call, s, grid_of(call, cuda, s.count, 1), cuda);
}

/* For a step that is one kernel. */
void take_note(const lk_call *call, const slices &s, lki_cuda *cuda)
{
    bool fits = call->op == LK_OP_UPDATE && call->in[0].dtype == LK_F32 && !s.scaler &&
                call->attr->update.rule < LK_UPDATE_LAMB && s.count <= MOST_NOTED;
    lki_cuda_note *note =
        fits ? lki_cuda_take_note(cuda, LKI_CUDA_SMALL_UPDATE, 1, (s.count + 1023) / 1024) : NULL;
    if (!note) return;
    lki_cuda_small_update *u = &note->op.update;
    size_t nbytes = sizeof(float) * (size_t)s.count;
    lki_cuda_writes(note, s.data[0], nbytes, 0);
    lki_cuda_reads(note, s.data[1], nbytes, 0); /* the second touch, as small_join.cu finds it */
    for (int i = 2; i < 5; i++) lki_cuda_writes(note, s.data[i], nbytes, 0);
    lki_cuda_reads(note, cuda->live, sizeof *cuda->live, 0);
    for (int i = 0; i < 5; i++) u->data[i] = (float *)s.data[i];
    u->slot = s.slot;
    u->rule = (int)call->attr->update.rule;
    u->range_count = 1;
    u->end[0] = (int)s.count;
}

lk_status run(const lk_call *call)
{
    const update_state *state = (const update_state *)call->state;
    slices s = {};
    s.count = lki_cuda_count(&call->in[0]);
    s.live = state->cuda->live;
    s.slot = state->slot;
    int scaler = call->op == LK_OP_UPDATE ? 5 : call->op == LK_OP_ACCUMULATE ? call->input_count : 1;
    for (int i = 0; i < call->input_count && i < 5 && i != scaler; i++) s.data[i] = call->in[i].data;
    if (scaler < call->input_count) s.scaler = call->in[scaler].data;
    if (!s.count && call->op != LK_OP_CLIP_NORM) return LK_OK;
    take_note(call, s, state->cuda);
    LKI_TRY(lki_cuda_join(state->cuda)); /* whether to skip is found beside the backward half */
    return call->in[0].dtype == LK_F64 ? run_typed<double>(call, s, state->cuda)
                                       : run_typed<float>(call, s, state->cuda);
}

void free_state(void *data)
{
    update_state *state = (update_state *)data;
    lki_cuda_hyper_release(state->cuda, state->slot);
    lki_host->free(state);
}

} // namespace

lk_status lki_cuda_prepare_update(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    bool same = dtype == LK_F32 || dtype == LK_F64;
    for (int i = 1; i < call->input_count; i++)
        same = same && (!call->in[i].data || call->in[i].dtype == dtype);
    if (!same)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for updates of %s",
                             lki_cuda_dtype_name(dtype));
    if (call->op == LK_OP_UPDATE &&
        (call->attr->update.rule < LK_UPDATE_SGD || call->attr->update.rule >= LK_UPDATE_COUNT))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "there is no update rule %d", (int)call->attr->update.rule);
    int slot = lki_cuda_hyper_slot(cuda, call->attr->update.hyper, call->op == LK_OP_CLIP_NORM);
    if (slot < 0) return LK_ERR_UNSUPPORTED;
    update_state *state = (update_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) {
        lki_cuda_hyper_release(cuda, slot);
        return LK_ERR_NOMEM;
    }
    state->cuda = cuda;
    state->slot = slot;
    call->free_state = free_state;
    if (has_norm(call)) call->scratch_nbytes = MAX_GRID * sizeof(norms);
    call->run = run;
    return LK_OK;
}
