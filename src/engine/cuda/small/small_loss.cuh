/* Losses inside the one kernel of a small step (small_kernel.cuh). */
#ifndef LKI_CUDA_SMALL_SMALL_LOSS_CUH
#define LKI_CUDA_SMALL_SMALL_LOSS_CUH

#include "engine/cuda/small/small_desk.cuh"

#include <math.h>

namespace
{

using loss = lki_cuda_small_loss;

/* Of all that was noted, and of what the kernel is for: code for anything else is left out. */
template <typename F> __device__ void say_what_is_known(lki_cuda_class_loss &l)
{
    l.inner = 1;
    l.probabilities = l.none = false;
    if (!F::IS_PLAIN) return;
    l.weight = NULL;
    l.smoothing = l.share = 0;
    l.mean = true;
    l.target_dtype = LK_I64;
}

/* The divisor of a mean, as every block of the gradient's kernel finds it. */
__device__ double mass_of_all(const lki_cuda_class_loss &l)
{
    bool counts = l.mean && !l.weight && !l.probabilities && l.samples <= BLOCK;
    if (!counts) return lki_cuda_count_mass<float>(l);
    int i = (int)threadIdx.x;
    return __syncthreads_count(i < (int)l.samples && lki_cuda_sample_at<float>(l, i).target >= 0);
}

/* As (float)(dloss / mass): where the divisor is a number of samples, so is its quotient in f32. */
__device__ float slope_of_one(const lki_cuda_class_loss &l, float dloss, double mass)
{
    return l.weight ? (float)((double)dloss / mass) : __fdiv_rn(dloss, (float)mass);
}

/* A sum over the classes, one a lane: as a warp's lanes add, or one thread. */
__device__ float class_sum(const loss &o, float value)
{
    if (o.lanes == 32) return lki_cuda_warp_sum(value);
    float sum = 0;
    for (int c = 0; c < (int)o.l.classes; c++) sum += __shfl_sync(0xffffffffu, value, c);
    return sum;
}

/* The sum of - q value over the classes; only one of them counts where there is no smoothing. */
__device__ float sample_sum(const loss &o, float q, float value)
{
    float sum = 0;
    if (q != 0) sum -= q * value;
    if (o.lanes == 32 || lki_cuda_is_single(o.l)) return lki_cuda_warp_sum(sum);
    sum = 0;
    for (int c = 0; c < (int)o.l.classes; c++) {
        float qc = __shfl_sync(0xffffffffu, q, c), vc = __shfl_sync(0xffffffffu, value, c);
        if (qc != 0) sum -= qc * vc;
    }
    return sum;
}

/* One sample by one warp: its loss, log-probabilities and gradient (loss_classes.cuh). */
__device__ void run_sample(const loss &o, int i, float x, float g)
{
    int lane = (int)threadIdx.x % 32, classes = (int)o.l.classes, at = i * classes + lane;
    bool in = lane < classes;
    lki_cuda_sample<float> s = lki_cuda_sample_at<float>(o.l, i);
    float most = lki_cuda_warp_max(x);
    float rest = log(class_sum(o, in ? (float)exp(x - most) : 0.0F));
    float value = (x - most) - rest, q = in ? lki_cuda_coefficient(o.l, s, lane) : 0.0F;
    if (in && o.logp) o.logp[at] = value;
    float sum = sample_sum(o, q, value);
    if (lane == 0) o.losses[i] = sum;
    if (!o.grad) return;
    float mass = s.target >= 0 ? lki_cuda_weight_of<float>(o.l, s.target) : 0.0F;
    if (!lki_cuda_is_single(o.l)) mass = class_sum(o, q);
    float slope = exp(value) * mass - q;
    if (in) o.grad[at] = s.counts ? g * slope : 0.0F;
}

/* This lane's score of a sample. */
__device__ float load_score(const loss &o, int i, int pieces)
{
    int lane = (int)threadIdx.x % 32, classes = (int)o.l.classes;
    return i < pieces && lane < classes ? o.x[i * classes + lane] : -INFINITY;
}

template <typename F> __device__ void run_loss(desk &d, loss o, int pieces)
{
    say_what_is_known<F>(o.l);
    if (o.tiny >= 0) o.l.target = d.tiny[o.tiny];
    float dloss = o.grad ? o.dloss[0] : 0; /* before it is needed */
    int step = (int)gridDim.x, first = (int)blockIdx.x + (int)threadIdx.x / 32 * step;
    float x = load_score(o, first, pieces);
    double mass = mass_of_all(o.l);
    float g = o.grad ? slope_of_one(o.l, dloss, mass) : 0;
    if (threadIdx.x == 0) d.mass = mass;
    for (int i = first; i < pieces; i += WARPS * step) {
        run_sample(o, i, x, g);
        x = load_score(o, i + WARPS * step, pieces);
    }
}

/* What a thread of the loss's own kernel has of the sum and the divisor. */
__device__ void add_samples(const loss &o, int first, int step, double *sum, double *mass)
{
    *sum = *mass = 0;
    for (int i = first; i < (int)o.l.samples; i += step) {
        *sum += o.losses[i];
        if (o.l.weight) *mass += lki_cuda_mass_of(o.l, lki_cuda_sample_at<float>(o.l, i));
    }
}

/* lki_cuda_warp_sum where only the first `count` lanes have anything but 0. */
__device__ double few_lanes_sum(double value, int count)
{
    for (int mask = 16; mask; mask >>= 1)
        if (mask < count) value += __shfl_xor_sync(0xffffffffu, value, mask);
    return value;
}

/* The whole sum, and the divisor of samples that have weights, in the last warp. */
__device__ void add_all_samples(const loss &o, double *sum, double *mass)
{
    __shared__ double sums[32], masses[32];
    int lane = (int)threadIdx.x % 32;
    if (o.lanes == 32) { /* the first lane of each warp has its share */
        if (threadIdx.x / 32 != WARPS - 1) return;
        add_samples(o, lane < o.warps ? lane : (int)o.l.samples, o.warps, sum, mass);
    } else {
        for (int warp = (int)threadIdx.x / 32; warp < o.warps; warp += WARPS) {
            add_samples(o, warp * 32 + lane, o.warps * 32, sum, mass);
            *sum = lki_cuda_warp_sum(*sum);
            if (o.l.weight) *mass = lki_cuda_warp_sum(*mass);
            if (lane == 0) {
                sums[warp] = *sum;
                masses[warp] = *mass;
            }
        }
        __syncthreads();
        if (threadIdx.x / 32 != WARPS - 1) return;
        *sum = lane < o.warps ? sums[lane] : 0;
        *mass = lane < o.warps ? masses[lane] : 0;
    }
    *sum = few_lanes_sum(*sum, o.warps);
    if (o.l.weight) *mass = few_lanes_sum(*mass, o.warps);
}

/* Every block finds the loss for itself, and so whether its updates are to be made; the first tells others.
 * The last warp does: others may go on to the next barrier. */
template <typename F> __device__ void run_total(const args &a, desk &d, const loss &known)
{
    loss o = known;
    say_what_is_known<F>(o.l);
    if (o.tiny >= 0) o.l.target = d.tiny[o.tiny];
    double sum, mass;
    bool tells = threadIdx.x == (WARPS - 1) * 32;
    unsigned long long fault = tells ? a.faults[0] : 0; /* before it is needed */
    add_all_samples(o, &sum, &mass);
    if (!tells) return;
    if (!o.l.weight) mass = d.mass;
    float value = (float)(o.l.mean ? sum / mass : sum);
    bool lost = fault != ~0ull || d.skip || (o.guard && !isfinite(value));
    if (o.host && o.guard && lost) d.skip = 1;
    if (blockIdx.x) return;
    if (o.out) *o.out = value;
    if (!o.host) return;
    o.host->loss = (double)value;
    o.host->lost = lost ? o.host->lost + 1 : 0;
    if (o.guard && lost) a.live->skip = 1;
}

} // namespace

#endif
