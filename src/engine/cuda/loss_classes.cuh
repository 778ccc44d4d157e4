/* Losses over classes, sample by sample: for the kernels of loss.cu and for steps that are one kernel
 * (small_kernel.cuh).
 * A loss is a reduction of one number a sample:
 *
 *     loss_i = - sum_c q_ic logp_ic
 *
 * where q is the target: for class t with weights w and label smoothing s over C classes
 *
 *     q_ic = w_c ((1 - s) [c = t_i] + s / C)
 *
 * (all zero where t_i is ignore_index) and for probability targets q_ic = w_c ((1 - s) t_ic + s / C). The
 * mean divides by sum_i w_{t_i} over the samples that count, or by the number of samples where the targets
 * are probabilities. */
#ifndef LKI_CUDA_LOSS_CLASSES_CUH
#define LKI_CUDA_LOSS_CLASSES_CUH

#include "engine/cuda/kernels.cuh"

/* Logits (n, c, s...) as outer by classes by inner; i64 targets, or probabilities of the scores' dtype. */
struct lki_cuda_class_loss {
    const void *target, *weight;
    lk_dtype target_dtype;
    double smoothing, share; /* share: smoothing / classes */
    bool probabilities, mean, none;
    int64_t ignored, samples, classes, inner;
    unsigned long long *fault; /* NULL: somebody else has checked the targets */
    int *fault_found, fault_number;
};

/* One sample's way through the scores. */
template <typename T> struct lki_cuda_sample {
    using W = typename lki_cuda_wide<T>::type;
    int64_t i, base, stride; /* class c lies at base + c stride */
    int64_t target;          /* -1: ignored, wrong or a set of probabilities */
    bool counts;
};

template <typename T>
static __device__ typename lki_cuda_sample<T>::W lki_cuda_weight_of(const lki_cuda_class_loss &l, int64_t c)
{
    return l.weight ? lki_cuda_widen(((const T *)l.weight)[c]) : (typename lki_cuda_sample<T>::W)1;
}

template <typename T>
static __device__ lki_cuda_sample<T> lki_cuda_sample_at(const lki_cuda_class_loss &l, int64_t i)
{
    lki_cuda_sample<T> s = {i, i * l.classes, l.inner, -1, true};
    if (l.inner > 1) s.base = i / l.inner * l.classes * l.inner + i % l.inner;
    if (l.probabilities) return s;
    int64_t target = lki_cuda_index_at(l.target, l.target_dtype, i);
    if (target == l.ignored)
        s.counts = false;
    else if (target >= 0 && target < l.classes)
        s.target = target;
    else if (l.fault)
        lki_cuda_report(l.fault, l.fault_found, l.fault_number, i);
    return s;
}

/* q_ic */
template <typename T>
static __device__ typename lki_cuda_sample<T>::W lki_cuda_coefficient(const lki_cuda_class_loss &l,
                                                                      const lki_cuda_sample<T> &s, int64_t c)
{
    using W = typename lki_cuda_sample<T>::W;
    if (!s.counts) return 0;
    W share =
        l.probabilities ? lki_cuda_widen(((const T *)l.target)[s.base + c * s.stride]) : (W)(s.target == c);
    return lki_cuda_rounded_product(lki_cuda_weight_of<T>(l, c), (W)(1 - l.smoothing) * share + (W)l.share);
}

/* Whether only the target's own class has a coefficient. */
static __device__ bool lki_cuda_is_single(const lki_cuda_class_loss &l)
{
    return !l.probabilities && l.smoothing == 0;
}

/* What a sample adds to the divisor of a mean. */
template <typename T>
static __device__ double lki_cuda_mass_of(const lki_cuda_class_loss &l, const lki_cuda_sample<T> &s)
{
    if (l.probabilities) return 1;
    return s.target >= 0 ? (double)lki_cuda_weight_of<T>(l, s.target) : 0;
}

/* Sum and maximum over the lanes that share a sample. */
template <int LANES, typename W> static __device__ W lki_cuda_lanes_sum(W value)
{
    return LANES == 32 ? lki_cuda_warp_sum(value) : value;
}

template <int LANES, typename W> static __device__ W lki_cuda_lanes_max(W value)
{
    return LANES == 32 ? lki_cuda_warp_max(value) : value;
}

/* The largest score and log sum exp(x - largest): apart, because their sum would round away the second. */
template <typename T, int LANES>
static __device__ void lki_cuda_log_sum_exp(const lki_cuda_class_loss &l, const lki_cuda_sample<T> &s,
                                            const T *x, int lane, typename lki_cuda_sample<T>::W *largest,
                                            typename lki_cuda_sample<T>::W *rest)
{
    using W = typename lki_cuda_sample<T>::W;
    W most = (W)-INFINITY, sum = 0;
    for (int64_t c = lane; c < l.classes; c += LANES)
        most = lki_cuda_larger(most, (W)lki_cuda_widen(x[s.base + c * s.stride]));
    most = lki_cuda_lanes_max<LANES>(most);
    for (int64_t c = lane; c < l.classes; c += LANES) {
        W above = lki_cuda_widen(x[s.base + c * s.stride]) - most;
        sum += exp(above);
    }
    *largest = most;
    *rest = log(lki_cuda_lanes_sum<LANES>(sum));
}

/* loss_i, and on the way the log-probabilities where `logp` is wanted. LOGITS: x are no log-probabilities
 * yet. */
template <typename T, int LANES, bool LOGITS>
static __device__ typename lki_cuda_sample<T>::W
lki_cuda_sample_loss(const lki_cuda_class_loss &l, const lki_cuda_sample<T> &s, const T *x, T *logp, int lane)
{
    using W = typename lki_cuda_sample<T>::W;
    W largest = 0, rest = 0, sum = 0;
    if (LOGITS) lki_cuda_log_sum_exp<T, LANES>(l, s, x, lane, &largest, &rest);
    if (!logp && lki_cuda_is_single(l)) {
        if (s.target < 0) return 0;
        W q = lki_cuda_weight_of<T>(l, s.target), score = lki_cuda_widen(x[s.base + s.target * s.stride]);
        return q != 0 ? -q * ((score - largest) - rest) : (W)0;
    }
    for (int64_t c = lane; c < l.classes; c += LANES) {
        int64_t at = s.base + c * s.stride;
        W value = ((W)lki_cuda_widen(x[at]) - largest) - rest, q = lki_cuda_coefficient(l, s, c);
        if (logp) logp[at] = lki_cuda_narrow<T>::of(value);
        if (q != 0) sum -= q * value; /* 0 times -inf is 0 here */
    }
    return lki_cuda_lanes_sum<LANES>(sum);
}

/* Thread `thread` of `threads` takes its samples, or its share of them: groups of LANES threads take one
 * each. It ends with its share of the sum and of the divisor. `each` gets the losses one by one where they
 * are wanted so. */
template <typename T, int LANES, bool LOGITS>
static __device__ void lki_cuda_over_samples(const lki_cuda_class_loss &l, const T *x, T *logp, T *each,
                                             int64_t thread, int64_t threads, double *sum, double *mass)
{
    int lane = (int)(thread % LANES);
    *sum = *mass = 0;
    for (int64_t i = thread / LANES; i < l.samples; i += threads / LANES) {
        lki_cuda_sample<T> s = lki_cuda_sample_at<T>(l, i);
        auto loss = lki_cuda_sample_loss<T, LANES, LOGITS>(l, s, x, logp, lane);
        if (lane) continue;
        if (l.none && each) each[i] = lki_cuda_narrow<T>::of(loss);
        *sum += loss;
        *mass += lki_cuda_mass_of(l, s);
    }
}

/* The divisor of a mean, by one block, in every thread. */
template <typename T> static __device__ double lki_cuda_count_mass(const lki_cuda_class_loss &l)
{
    if (!l.mean) return 1;
    if (l.probabilities) return (double)l.samples;
    double mass = 0;
    for (int64_t i = threadIdx.x; i < l.samples; i += blockDim.x)
        mass += lki_cuda_mass_of(l, lki_cuda_sample_at<T>(l, i));
    return lki_cuda_block_sum(mass);
}

/* dlogits_ic = g_i (exp(logp_ic) sum_k q_ik - q_ic) */
template <typename T, int LANES>
static __device__ void
lki_cuda_cross_entropy_slopes(const lki_cuda_class_loss &l, const lki_cuda_sample<T> &s,
                              typename lki_cuda_sample<T>::W g, const T *logp, T *out, int lane)
{
    using W = typename lki_cuda_sample<T>::W;
    W mass = 0;
    if (lki_cuda_is_single(l)) {
        mass = s.target >= 0 ? lki_cuda_weight_of<T>(l, s.target) : (W)0;
    } else {
        for (int64_t c = lane; c < l.classes; c += LANES) mass += lki_cuda_coefficient(l, s, c);
        mass = lki_cuda_lanes_sum<LANES>(mass);
    }
    for (int64_t c = lane; c < l.classes; c += LANES) {
        int64_t at = s.base + c * s.stride;
        W slope = exp((W)lki_cuda_widen(logp[at])) * mass - lki_cuda_coefficient(l, s, c);
        out[at] = lki_cuda_narrow<T>::of(s.counts ? g * slope : (W)0);
    }
}

/* dlogp_ic = - g_i q_ic */
template <typename T, int LANES>
static __device__ void lki_cuda_nll_slopes(const lki_cuda_class_loss &l, const lki_cuda_sample<T> &s,
                                           typename lki_cuda_sample<T>::W g, T *out, int lane)
{
    using W = typename lki_cuda_sample<T>::W;
    for (int64_t c = lane; c < l.classes; c += LANES) {
        W q = lki_cuda_coefficient(l, s, c);
        out[s.base + c * s.stride] = lki_cuda_narrow<T>::of(q != 0 ? -q * g : (W)0);
    }
}

#endif
