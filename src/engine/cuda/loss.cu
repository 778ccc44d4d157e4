/* The kernels of losses over classes (loss_classes.cuh).
 *
 * A sample is taken by a warp, or by one thread where neighbouring samples are neighbours in memory. A small
 * batch is one block's work from the logits to the mean; a larger one leaves its samples' losses for a second
 * kernel, which sums them in order, in f64. */
#include "engine/cuda/loss.cuh"
#include "engine/cuda/loss_classes.cuh"
#include "engine/cuda/small/small.cuh"

namespace
{

/* ---- Forward ---- */

struct share {
    double sum, mass;
};

template <typename T>
__device__ void write_loss(const lki_cuda_class_loss &l, T *out, double sum, double mass)
{
    using W = typename lki_cuda_wide<T>::type;
    if (threadIdx.x == 0 && out && !l.none) *out = lki_cuda_narrow<T>::of((W)(l.mean ? sum / mass : sum));
}

template <typename T, int LANES, bool LOGITS>
__global__ void __launch_bounds__(1024)
    loss_kernel(lki_cuda_class_loss l, const T *x, T *logp, T *out, share *parts)
{
    double sum, mass;
    lki_cuda_over_samples<T, LANES, LOGITS>(l, x, logp, out, (int64_t)blockIdx.x * blockDim.x + threadIdx.x,
                                            (int64_t)gridDim.x * blockDim.x, &sum, &mass);
    if (!out || l.none) return;
    sum = lki_cuda_block_sum(sum);
    mass = lki_cuda_block_sum(mass);
    if (gridDim.x == 1)
        write_loss(l, out, sum, mass);
    else if (threadIdx.x == 0)
        parts[blockIdx.x] = {sum, mass};
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    total_kernel(lki_cuda_class_loss l, const share *parts, int count, T *out)
{
    double sum = 0, mass = 0;
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        sum += parts[i].sum;
        mass += parts[i].mass;
    }
    sum = lki_cuda_block_sum(sum);
    mass = lki_cuda_block_sum(mass);
    write_loss(l, out, sum, mass);
}

/* ---- Backward ---- */

template <typename T> __global__ void __launch_bounds__(1024) mass_kernel(lki_cuda_class_loss l, double *mass)
{
    double total = lki_cuda_count_mass<T>(l);
    if (threadIdx.x == 0) *mass = total;
}

/* g_i = dloss_i, or dloss / the divisor. A few samples' divisor is found by every block for itself. */
template <typename T, int LANES, bool LOGITS>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    grad_kernel(lki_cuda_class_loss l, const T *dloss, const T *logp, T *out, const double *known_mass)
{
    using W = typename lki_cuda_sample<T>::W;
    double mass = known_mass ? *known_mass : lki_cuda_count_mass<T>(l);
    W whole = l.none ? (W)0 : (W)((double)lki_cuda_widen(dloss[0]) / mass);
    int lane = threadIdx.x % LANES;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int64_t stride = (int64_t)gridDim.x * blockDim.x / LANES;
    for (int64_t i = first; i < l.samples; i += stride) {
        lki_cuda_sample<T> s = lki_cuda_sample_at<T>(l, i);
        W g = l.none ? (W)lki_cuda_widen(dloss[i]) : whole;
        if (LOGITS)
            lki_cuda_cross_entropy_slopes<T, LANES>(l, s, g, logp, out, lane);
        else
            lki_cuda_nll_slopes<T, LANES>(l, s, g, out, lane);
    }
}

/* ---- Launches ---- */

struct loss_state {
    lki_cuda *cuda;
    lki_cuda_check check; /* number 0: this call checks nothing */
    lki_cuda_class_loss l;
    int target; /* which input it is */
};

enum { ONE_BLOCK = 16384, MAX_GRID = 1024, FEW_SAMPLES = 4096 };

/* A thread a sample where that reads neighbours, where a sample is one number, or where there are more short
 * samples than a block has warps to spare for. Losses one by one do not depend on how many there are. */
bool takes_threads(const lki_cuda_class_loss &l, bool single)
{
    return l.inner >= 32 || l.classes == 1 || single || (l.classes <= 16 && (l.none || l.samples >= 64));
}

int grid_of(const lki_cuda *cuda, const lki_cuda_class_loss &l, int lanes)
{
    int grid = lki_cuda_grid(cuda, l.samples * lanes);
    return grid < MAX_GRID ? grid : (int)MAX_GRID;
}

/* For a step that is one kernel. */
void take_note(const lk_call *call, const lki_cuda_class_loss &l, lki_cuda *cuda, int lanes, int warps)
{
    bool fits = call->in[0].dtype == LK_F32 && !l.none && !l.probabilities && l.inner == 1 &&
                l.samples <= LKI_CUDA_SMALL_SAMPLES && l.classes <= LKI_CUDA_SMALL_CLASSES;
    bool backward = call->op == LK_OP_CROSS_ENTROPY_GRAD;
    lki_cuda_small_kind kind = backward ? LKI_CUDA_SMALL_LOSS_GRAD : LKI_CUDA_SMALL_LOSS;
    lki_cuda_note *note = fits ? lki_cuda_take_note(cuda, kind, 1, l.samples) : NULL;
    if (!note) return;
    lki_cuda_small_loss *o = &note->op.loss;
    size_t row = sizeof(float) * (size_t)l.classes, nbytes = (size_t)l.samples * row;
    o->l = l;
    o->tiny = -1;
    o->lanes = lanes;
    o->warps = warps;
    o->x = lki_cuda_in<float>(call, backward ? 1 : 0);
    if (backward) {
        o->dloss = lki_cuda_in<float>(call, 0);
        o->grad = lki_cuda_out<float>(call, 0);
        lki_cuda_writes(note, o->grad, nbytes, row);
    } else {
        o->out = lki_cuda_out<float>(call, 0);
        o->logp = lki_cuda_out<float>(call, 1);
        lki_cuda_writes(note, o->logp, nbytes, row);
    }
    lki_cuda_reads(note, o->x, nbytes, row);
    lki_cuda_reads(note, l.weight, row, 0);
    lki_cuda_reads(note, l.target, (size_t)l.samples * lki_cuda_dtype_nbytes(l.target_dtype), 0);
}

template <typename T, bool LOGITS>
lk_status forward(const lk_call *call, const lki_cuda_class_loss &l, lki_cuda *cuda)
{
    const T *x = lki_cuda_in<T>(call, 0);
    T *out = lki_cuda_out<T>(call, 0), *logp = LOGITS ? lki_cuda_out<T>(call, 1) : NULL;
    share *parts = (share *)call->scratch;
    bool threads = takes_threads(l, !LOGITS && !l.probabilities);
    int lanes = threads ? 1 : 32;
    bool small = l.samples * l.classes <= ONE_BLOCK && l.samples * lanes <= ONE_BLOCK / 4;
    int grid = small ? 1 : grid_of(cuda, l, lanes);
    int64_t wanted = (l.samples * lanes + 31) / 32 * 32;
    int block = grid > 1 ? (int)LKI_CUDA_BLOCK : wanted < 32 ? 32 : wanted < 1024 ? (int)wanted : 1024;
    if (threads)
        loss_kernel<T, 1, LOGITS><<<grid, block, 0, cuda->compute>>>(l, x, logp, out, parts);
    else
        loss_kernel<T, 32, LOGITS><<<grid, block, 0, cuda->compute>>>(l, x, logp, out, parts);
    if (grid > 1 && out && !l.none)
        total_kernel<T><<<1, LKI_CUDA_BLOCK, 0, cuda->compute>>>(l, parts, grid, out);
    LKI_LAUNCHED();
    if (LOGITS && grid == 1) take_note(call, l, cuda, lanes, block / 32);
    return LK_OK;
}

template <typename T, bool LOGITS>
lk_status backward(const lk_call *call, const lki_cuda_class_loss &l, lki_cuda *cuda)
{
    const T *dloss = lki_cuda_in<T>(call, 0), *logp = lki_cuda_in<T>(call, 1);
    T *out = lki_cuda_out<T>(call, 0);
    if (!l.samples || !l.classes) return LK_OK;
    double *mass = l.mean && !l.probabilities && l.samples > FEW_SAMPLES ? (double *)call->scratch : NULL;
    if (mass) mass_kernel<T><<<1, 1024, 0, cuda->compute>>>(l, mass);
    if (LOGITS && !mass) take_note(call, l, cuda, takes_threads(l, false) ? 1 : 32, 0);
    if (takes_threads(l, false))
        grad_kernel<T, 1, LOGITS>
            <<<grid_of(cuda, l, 1), LKI_CUDA_BLOCK, 0, cuda->compute>>>(l, dloss, logp, out, mass);
    else
        grad_kernel<T, 32, LOGITS>
            <<<grid_of(cuda, l, 32), LKI_CUDA_BLOCK, 0, cuda->compute>>>(l, dloss, logp, out, mass);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    const loss_state *state = (const loss_state *)call->state;
    lki_cuda_class_loss l = state->l;
    l.target = call->in[state->target].data;
    l.weight = state->target + 1 < call->input_count ? call->in[state->target + 1].data : NULL;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        switch (call->op) {
        case LK_OP_CROSS_ENTROPY: return forward<T, true>(call, l, state->cuda);
        case LK_OP_NLL: return forward<T, false>(call, l, state->cuda);
        case LK_OP_CROSS_ENTROPY_GRAD: return backward<T, true>(call, l, state->cuda);
        default: return backward<T, false>(call, l, state->cuda);
        }
    })
    return LK_OK;
}

void free_state(void *data)
{
    loss_state *state = (loss_state *)data;
    if (state->check.number) lki_cuda_check_fini(state->cuda, &state->check);
    lki_host->free(state);
}

void describe(lki_cuda_class_loss *l, const lk_call *call, lk_shape scores, int target)
{
    bool entropy = call->op == LK_OP_CROSS_ENTROPY || call->op == LK_OP_CROSS_ENTROPY_GRAD;
    int axis = scores.rank > 1 ? 1 : 0;
    l->target_dtype = call->in[target].dtype;
    l->probabilities = lki_cuda_is_float(l->target_dtype);
    l->mean = call->attr->class_loss.reduction == LK_REDUCTION_MEAN;
    l->none = call->attr->class_loss.reduction == LK_REDUCTION_NONE;
    l->ignored = call->attr->class_loss.ignore_index;
    l->classes = scores.rank ? scores.dim[axis] : 1;
    l->inner = lki_cuda_span(scores, axis + 1, scores.rank);
    l->samples = lki_cuda_span(scores, 0, axis) * l->inner;
    l->smoothing = entropy ? call->attr->class_loss.label_smoothing : 0;
    l->share = l->smoothing / (double)l->classes;
}

/* The gradients leave the check to the forward half, which has seen the same targets. */
lk_status check_targets(lki_cuda *cuda, lk_call *call, loss_state *state)
{
    lki_cuda_class_loss *l = &state->l;
    if (l->probabilities || (call->op != LK_OP_CROSS_ENTROPY && call->op != LK_OP_NLL)) return LK_OK;
    LKI_TRY(lki_cuda_check_init(cuda, call, state->target, l->classes, &state->check));
    l->fault = cuda->fault.first;
    l->fault_found = cuda->fault.found_on_device;
    l->fault_number = state->check.number;
    return LK_OK;
}

bool is_supported(const lk_call *call, int target)
{
    lk_dtype dtype = call->in[0].dtype, labels = call->in[target].dtype;
    bool same = lki_cuda_is_float(dtype) && (labels == dtype || lki_cuda_is_index(labels));
    for (int i = 0; i < call->input_count; i++)
        same = same && (i == target || !call->in[i].data || call->in[i].dtype == dtype);
    for (int i = 0; i < call->output_count; i++)
        same = same && (!call->out[i].data || call->out[i].dtype == dtype);
    return same;
}

lk_status prepare_classes(lki_cuda *cuda, lk_call *call)
{
    bool backward = call->op == LK_OP_CROSS_ENTROPY_GRAD || call->op == LK_OP_NLL_GRAD;
    int target = backward ? 2 : 1;
    if (!is_supported(call, target))
        return lki_cuda_fail(
            LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for losses of %s with targets of %s",
            lki_cuda_dtype_name(call->in[0].dtype), lki_cuda_dtype_name(call->in[target].dtype));
    loss_state *state = (loss_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    call->free_state = free_state;
    state->cuda = cuda;
    state->target = target;
    describe(&state->l, call, call->in[target - 1].shape, target);
    LKI_TRY(check_targets(cuda, call, state));
    call->scratch_nbytes = MAX_GRID * sizeof(share);
    call->run = run;
    return LK_OK;
}

} // namespace

lk_status lki_cuda_prepare_loss(lki_cuda *cuda, lk_call *call)
{
    bool pointwise = lki_cuda_op_family(call->op) == LK_FAMILY_POINTWISE_LOSS;
    return pointwise ? lki_cuda_prepare_pointwise_loss(cuda, call) : prepare_classes(cuda, call);
}
