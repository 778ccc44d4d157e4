/* Losses over classes. A loss is a reduction of one number a sample:
 *
 *     loss_i = - sum_c q_ic logp_ic
 *
 * where q is the target: for class t with weights w and label smoothing s over C classes
 *
 *     q_ic = w_c ((1 - s) [c = t_i] + s / C)
 *
 * (all zero where t_i is ignore_index) and for probability targets q_ic = w_c ((1 - s) t_ic + s / C). The
 * mean divides by sum_i w_{t_i} over the samples that count, or by the number of samples where the targets
 * are probabilities.
 *
 * A sample is taken by a warp, or by one thread where neighbouring samples are neighbours in memory. A small
 * batch is one block's work from the logits to the mean; a larger one leaves its samples' losses for a second
 * kernel, which sums them in order, in f64. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/loss.cuh"

namespace
{

/* Logits (n, c, s...) as outer by classes by inner; i64 targets, or probabilities of the scores' dtype. */
struct class_loss {
    const void *target, *weight;
    lk_dtype target_dtype;
    double smoothing, share; /* share: smoothing / classes */
    bool probabilities, mean, none;
    int64_t ignored, samples, classes, inner;
    unsigned long long *fault; /* NULL: somebody else has checked the targets */
    int *fault_number_on_device, fault_number;
};

/* One sample's way through the scores. */
template <typename T> struct sample {
    using W = typename lki_cuda_wide<T>::type;
    int64_t i, base, stride; /* class c lies at base + c stride */
    int64_t target;          /* -1: ignored, wrong or a set of probabilities */
    bool counts;
};

template <typename T> __device__ typename sample<T>::W weight_of(const class_loss &l, int64_t c)
{
    return l.weight ? lki_cuda_widen(((const T *)l.weight)[c]) : (typename sample<T>::W)1;
}

template <typename T> __device__ sample<T> sample_at(const class_loss &l, int64_t i)
{
    sample<T> s = {i, i / l.inner * l.classes * l.inner + i % l.inner, l.inner, -1, true};
    if (l.probabilities) return s;
    int64_t target = lki_cuda_index_at(l.target, l.target_dtype, i);
    if (target == l.ignored)
        s.counts = false;
    else if (target >= 0 && target < l.classes)
        s.target = target;
    else if (l.fault)
        lki_cuda_report(l.fault, l.fault_number_on_device, l.fault_number, i);
    return s;
}

/* q_ic */
template <typename T>
__device__ typename sample<T>::W coefficient(const class_loss &l, const sample<T> &s, int64_t c)
{
    using W = typename sample<T>::W;
    if (!s.counts) return 0;
    W share =
        l.probabilities ? lki_cuda_widen(((const T *)l.target)[s.base + c * s.stride]) : (W)(s.target == c);
    return weight_of<T>(l, c) * ((W)(1 - l.smoothing) * share + (W)l.share);
}

/* Whether only the target's own class has a coefficient. */
static __device__ bool is_single(const class_loss &l)
{
    return !l.probabilities && l.smoothing == 0;
}

/* What a sample adds to the divisor of a mean. */
template <typename T> __device__ double mass_of(const class_loss &l, const sample<T> &s)
{
    if (l.probabilities) return 1;
    return s.target >= 0 ? (double)weight_of<T>(l, s.target) : 0;
}

/* Sum and maximum over the lanes that share a sample. */
template <int LANES, typename W> __device__ W lanes_sum(W value)
{
    return LANES == 32 ? lki_cuda_warp_sum(value) : value;
}

template <int LANES, typename W> __device__ W lanes_max(W value)
{
    return LANES == 32 ? lki_cuda_warp_max(value) : value;
}

/* The largest score and log sum exp(x - largest): apart, because their sum would round away the second. */
template <typename T, int LANES>
__device__ void log_sum_exp(const class_loss &l, const sample<T> &s, const T *x, int lane,
                            typename sample<T>::W *largest, typename sample<T>::W *rest)
{
    using W = typename sample<T>::W;
    W most = (W)-INFINITY, sum = 0;
    for (int64_t c = lane; c < l.classes; c += LANES)
        most = lki_cuda_larger(most, (W)lki_cuda_widen(x[s.base + c * s.stride]));
    most = lanes_max<LANES>(most);
    for (int64_t c = lane; c < l.classes; c += LANES) {
        W above = lki_cuda_widen(x[s.base + c * s.stride]) - most;
        sum += exp(above);
    }
    *largest = most;
    *rest = log(lanes_sum<LANES>(sum));
}

/* loss_i, and on the way the log-probabilities where `logp` is wanted. LOGITS: x are no log-probabilities
 * yet. */
template <typename T, int LANES, bool LOGITS>
__device__ typename sample<T>::W sample_loss(const class_loss &l, const sample<T> &s, const T *x, T *logp,
                                             int lane)
{
    using W = typename sample<T>::W;
    W largest = 0, rest = 0, sum = 0;
    if (LOGITS) log_sum_exp<T, LANES>(l, s, x, lane, &largest, &rest);
    if (!logp && is_single(l)) {
        if (s.target < 0) return 0;
        W q = weight_of<T>(l, s.target), score = lki_cuda_widen(x[s.base + s.target * s.stride]);
        return q != 0 ? -q * ((score - largest) - rest) : (W)0;
    }
    for (int64_t c = lane; c < l.classes; c += LANES) {
        int64_t at = s.base + c * s.stride;
        W value = ((W)lki_cuda_widen(x[at]) - largest) - rest, q = coefficient(l, s, c);
        if (logp) logp[at] = lki_cuda_narrow<T>::of(value);
        if (q != 0) sum -= q * value; /* 0 times -inf is 0 here */
    }
    return lanes_sum<LANES>(sum);
}

/* ---- Forward ---- */

/* Takes the samples of this block's groups of LANES threads; every thread ends with its share of the sum and
 * of the divisor. `each` gets the losses one by one where they are wanted so. */
template <typename T, int LANES, bool LOGITS>
__device__ void over_samples(const class_loss &l, const T *x, T *logp, T *each, double *sum, double *mass)
{
    int lane = threadIdx.x % LANES;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int64_t stride = (int64_t)gridDim.x * blockDim.x / LANES;
    *sum = *mass = 0;
    for (int64_t i = first; i < l.samples; i += stride) {
        sample<T> s = sample_at<T>(l, i);
        auto loss = sample_loss<T, LANES, LOGITS>(l, s, x, logp, lane);
        if (lane) continue;
        if (l.none && each) each[i] = lki_cuda_narrow<T>::of(loss);
        *sum += loss;
        *mass += mass_of(l, s);
    }
}

struct share {
    double sum, mass;
};

template <typename T> __device__ void write_loss(const class_loss &l, T *out, double sum, double mass)
{
    using W = typename lki_cuda_wide<T>::type;
    if (threadIdx.x == 0 && out && !l.none) *out = lki_cuda_narrow<T>::of((W)(l.mean ? sum / mass : sum));
}

template <typename T, int LANES, bool LOGITS>
__global__ void __launch_bounds__(1024) loss_kernel(class_loss l, const T *x, T *logp, T *out, share *parts)
{
    double sum, mass;
    over_samples<T, LANES, LOGITS>(l, x, logp, out, &sum, &mass);
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
    total_kernel(class_loss l, const share *parts, int count, T *out)
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

/* The divisor of a mean, by one block, in every thread. */
template <typename T> __device__ double count_mass(const class_loss &l)
{
    if (!l.mean) return 1;
    if (l.probabilities) return (double)l.samples;
    double mass = 0;
    for (int64_t i = threadIdx.x; i < l.samples; i += blockDim.x) mass += mass_of(l, sample_at<T>(l, i));
    return lki_cuda_block_sum(mass);
}

template <typename T> __global__ void __launch_bounds__(1024) mass_kernel(class_loss l, double *mass)
{
    double total = count_mass<T>(l);
    if (threadIdx.x == 0) *mass = total;
}

/* dlogits_ic = g_i (exp(logp_ic) sum_k q_ik - q_ic) */
template <typename T, int LANES>
__device__ void cross_entropy_slopes(const class_loss &l, const sample<T> &s, typename sample<T>::W g,
                                     const T *logp, T *out, int lane)
{
    using W = typename sample<T>::W;
    W mass = 0;
    if (is_single(l)) {
        mass = s.target >= 0 ? weight_of<T>(l, s.target) : (W)0;
    } else {
        for (int64_t c = lane; c < l.classes; c += LANES) mass += coefficient(l, s, c);
        mass = lanes_sum<LANES>(mass);
    }
    for (int64_t c = lane; c < l.classes; c += LANES) {
        int64_t at = s.base + c * s.stride;
        W slope = exp((W)lki_cuda_widen(logp[at])) * mass - coefficient(l, s, c);
        out[at] = lki_cuda_narrow<T>::of(s.counts ? g * slope : (W)0);
    }
}

/* dlogp_ic = - g_i q_ic */
template <typename T, int LANES>
__device__ void nll_slopes(const class_loss &l, const sample<T> &s, typename sample<T>::W g, T *out, int lane)
{
    using W = typename sample<T>::W;
    for (int64_t c = lane; c < l.classes; c += LANES) {
        W q = coefficient(l, s, c);
        out[s.base + c * s.stride] = lki_cuda_narrow<T>::of(q != 0 ? -q * g : (W)0);
    }
}

/* g_i = dloss_i, or dloss / the divisor. A few samples' divisor is found by every block for itself. */
template <typename T, int LANES, bool LOGITS>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    grad_kernel(class_loss l, const T *dloss, const T *logp, T *out, const double *known_mass)
{
    using W = typename sample<T>::W;
    double mass = known_mass ? *known_mass : count_mass<T>(l);
    W whole = l.none ? (W)0 : (W)((double)lki_cuda_widen(dloss[0]) / mass);
    int lane = threadIdx.x % LANES;
    int64_t first = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    int64_t stride = (int64_t)gridDim.x * blockDim.x / LANES;
    for (int64_t i = first; i < l.samples; i += stride) {
        sample<T> s = sample_at<T>(l, i);
        W g = l.none ? (W)lki_cuda_widen(dloss[i]) : whole;
        if (LOGITS)
            cross_entropy_slopes<T, LANES>(l, s, g, logp, out, lane);
        else
            nll_slopes<T, LANES>(l, s, g, out, lane);
    }
}

/* ---- Launches ---- */

struct loss_state {
    lki_cuda *cuda;
    lki_cuda_check check; /* number 0: this call checks nothing */
    class_loss l;
    int target; /* which input it is */
};

enum { ONE_BLOCK = 16384, MAX_GRID = 1024, FEW_SAMPLES = 4096 };

/* A thread a sample where that reads neighbours, where a sample is one number, or where there are more short
 * samples than a block has warps to spare for. */
bool takes_threads(const class_loss &l, bool single)
{
    return l.inner >= 32 || l.classes == 1 || single || (l.classes <= 16 && l.samples >= 64);
}

int grid_of(const lki_cuda *cuda, const class_loss &l, int lanes)
{
    int grid = lki_cuda_grid(cuda, l.samples * lanes);
    return grid < MAX_GRID ? grid : (int)MAX_GRID;
}

template <typename T, bool LOGITS> lk_status forward(const lk_call *call, const class_loss &l, lki_cuda *cuda)
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
    return LK_OK;
}

template <typename T, bool LOGITS>
lk_status backward(const lk_call *call, const class_loss &l, lki_cuda *cuda)
{
    const T *dloss = lki_cuda_in<T>(call, 0), *logp = lki_cuda_in<T>(call, 1);
    T *out = lki_cuda_out<T>(call, 0);
    if (!l.samples || !l.classes) return LK_OK;
    double *mass = l.mean && !l.probabilities && l.samples > FEW_SAMPLES ? (double *)call->scratch : NULL;
    if (mass) mass_kernel<T><<<1, 1024, 0, cuda->compute>>>(l, mass);
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
    class_loss l = state->l;
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

void describe(class_loss *l, const lk_call *call, lk_shape scores, int target)
{
    bool entropy = call->op == LK_OP_CROSS_ENTROPY || call->op == LK_OP_CROSS_ENTROPY_GRAD;
    int axis = scores.rank > 1 ? 1 : 0;
    l->target_dtype = call->in[target].dtype;
    l->probabilities = lki_cuda_is_float(l->target_dtype);
    l->mean = call->attr->reduction == LK_REDUCTION_MEAN;
    l->none = call->attr->reduction == LK_REDUCTION_NONE;
    l->ignored = call->attr->index;
    l->classes = scores.rank ? scores.dim[axis] : 1;
    l->inner = lki_cuda_span(scores, axis + 1, scores.rank);
    l->samples = lki_cuda_span(scores, 0, axis) * l->inner;
    l->smoothing = entropy ? call->attr->alpha : 0;
    l->share = l->smoothing / (double)l->classes;
}

/* The gradients leave the check to the forward half, which has seen the same targets. */
lk_status check_targets(lki_cuda *cuda, lk_call *call, loss_state *state)
{
    class_loss *l = &state->l;
    if (l->probabilities || (call->op != LK_OP_CROSS_ENTROPY && call->op != LK_OP_NLL)) return LK_OK;
    LKI_TRY(lki_cuda_check_init(cuda, call, state->target, l->classes, &state->check));
    l->fault = cuda->fault.position;
    l->fault_number_on_device = cuda->fault.number_on_device;
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
    bool pointwise = call->op == LK_OP_POINTWISE_LOSS || call->op == LK_OP_POINTWISE_LOSS_GRAD;
    return pointwise ? lki_cuda_prepare_pointwise_loss(cuda, call) : prepare_classes(cuda, call);
}
