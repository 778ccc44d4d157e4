/* Layer and group norm: a set is one run of memory. A warp has a short one, a block a long one; x comes from
 * the cache when it is read the second time. */
#include "engine/cuda/norm.cuh"

/* The channel of element j of set s. */
static __device__ int channel_of(const lki_cuda_norm &v, int64_t s, int64_t j)
{
    if (v.kind == LKI_CUDA_LAYER) return (int)j;
    int rest;
    return (int)(s % v.groups) * (v.channels / v.groups) + (int)lki_cuda_divide(j, v.inner, &rest);
}

template <typename T, typename P> struct operands {
    const T *x, *dy;
    const P *weight, *bias;
    P *mean, *istd;
    T *out;
};

template <typename P, typename A> static __device__ A at_or(const P *values, int c, A otherwise)
{
    return values ? A(values[c]) : otherwise;
}

/* The sums that a set's elements need: d and d d; or g and g xh, with g = dy w. */
template <typename T, typename P, bool BACK, int V, int LANES>
static __device__ lki_cuda_pair sum_set(const lki_cuda_norm &v, const operands<T, P> &o, int64_t s, int lane,
                                        double shift)
{
    using A = typename lki_cuda_wide<T>::type;
    A mean = BACK ? A(o.mean[s]) : A(0), istd = BACK ? A(o.istd[s]) : A(0);
    lki_cuda_pair sum = {0, 0};
    for (int64_t j = (int64_t)lane * V; j < v.set_size; j += LANES * V) {
        int64_t at = s * v.set_size + j;
        lki_cuda_pack<T, V> x = lki_cuda_load<T, V>(o.x + at), dy = BACK ? lki_cuda_load<T, V>(o.dy + at) : x;
#pragma unroll
        for (int e = 0; e < V; e++) {
            if (BACK) {
                A g = A(dy.at[e]) * at_or(o.weight, o.weight ? channel_of(v, s, j + e) : 0, A(1));
                sum.a += double(g);
                sum.b += double(g * ((A(x.at[e]) - mean) * istd));
            } else {
                double d = double(x.at[e]) - shift;
                sum.a += d;
                sum.b += d * d;
            }
        }
    }
    return sum;
}

template <typename T, typename P, bool BACK, int V, int LANES>
static __device__ void apply_set(const lki_cuda_norm &v, const operands<T, P> &o, int64_t s, int lane,
                                 typename lki_cuda_wide<T>::type mean, typename lki_cuda_wide<T>::type istd,
                                 typename lki_cuda_wide<T>::type rest, lki_cuda_pair sum)
{
    using A = typename lki_cuda_wide<T>::type;
    A center = A(sum.a / (double)v.set_size), slope = A(sum.b / (double)v.set_size);
    for (int64_t j = (int64_t)lane * V; j < v.set_size; j += LANES * V) {
        int64_t at = s * v.set_size + j;
        lki_cuda_pack<T, V> x = lki_cuda_load<T, V>(o.x + at), dy = BACK ? lki_cuda_load<T, V>(o.dy + at) : x,
                            to;
#pragma unroll
        for (int e = 0; e < V; e++) {
            int c = o.weight || o.bias ? channel_of(v, s, j + e) : 0;
            A normal = (A(x.at[e]) - mean) * istd + rest, weight = at_or(o.weight, c, A(1));
            to.at[e] = T(BACK ? istd * (A(dy.at[e]) * weight - center - normal * slope)
                              : normal * weight + at_or(o.bias, c, A(0)));
        }
        *(lki_cuda_pack<T, V> *)(o.out + at) = to;
    }
}

/* LANES threads a set: a warp, or a whole block. */
template <typename T, typename P, bool BACK, int V, int LANES>
static __global__ void sets_kernel(lki_cuda_norm v, operands<T, P> o)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ lki_cuda_pair shared[32];
    int lane = (int)threadIdx.x % LANES;
    int64_t s = blockIdx.x * (int64_t)(blockDim.x / LANES) + threadIdx.x / LANES;
    if (s >= v.set_count) return; /* whole warps, or never */
    double shift = BACK || v.set_size == 0 ? 0 : double(o.x[s * v.set_size]);
    lki_cuda_pair sum = sum_set<T, P, BACK, V, LANES>(v, o, s, lane, shift);
    sum = LANES == 32 ? lki_cuda_warp_sum(sum) : lki_cuda_block_sum(sum, shared);
    A mean, istd, rest = A(0); /* what rounding the mean leaves out */
    if (BACK) {
        mean = A(o.mean[s]);
        istd = A(o.istd[s]);
    } else {
        double m, variance;
        lki_cuda_moments(sum, shift, (double)v.set_size, &m, &variance);
        mean = A(m);
        istd = A(1 / sqrt(variance + v.eps));
        rest = A((double(mean) - m) * double(istd));
        if (lane == 0 && o.mean) o.mean[s] = P(mean);
        if (lane == 0 && o.istd) o.istd[s] = P(istd);
    }
    if (o.out) apply_set<T, P, BACK, V, LANES>(v, o, s, lane, mean, istd, rest, sum);
}

template <typename T, typename P, bool BACK, int V>
static void launch_wide(lki_cuda *cuda, const lki_cuda_norm &v, const operands<T, P> &o)
{
    if (v.set_size <= 1024)
        sets_kernel<T, P, BACK, V, 32><<<(unsigned)((v.set_count + 7) / 8), 256, 0, cuda->compute>>>(v, o);
    else if (v.set_size <= 32768)
        sets_kernel<T, P, BACK, V, 256><<<(unsigned)v.set_count, 256, 0, cuda->compute>>>(v, o);
    else
        sets_kernel<T, P, BACK, V, 1024><<<(unsigned)v.set_count, 1024, 0, cuda->compute>>>(v, o);
}

template <typename T, typename P, bool BACK>
static void launch(lki_cuda *cuda, const lki_cuda_norm *v, const lki_cuda_norm_operands *from)
{
    constexpr int V = 16 / sizeof(T);
    operands<T, P> o = {(const T *)from->x,    (const T *)from->dy, (const P *)from->weight,
                        (const P *)from->bias, (P *)from->mean,     (P *)from->istd,
                        (T *)from->out};
    bool aligned = (((uintptr_t)from->x | (uintptr_t)from->dy | (uintptr_t)from->out) & 15) == 0;
    if (aligned && v->set_size % V == 0)
        launch_wide<T, P, BACK, V>(cuda, *v, o);
    else
        launch_wide<T, P, BACK, 1>(cuda, *v, o);
}

lk_status lki_cuda_run_sets(lki_cuda *cuda, const lki_cuda_norm *v, lki_cuda_norm_dtypes dtypes,
                            const lki_cuda_norm_operands *o, bool backward)
{
    if (v->set_count == 0) return LK_OK;
    if (backward)
        LKI_CUDA_NORM_SWITCH(dtypes, T, P, (launch<T, P, true>(cuda, v, o)))
    else
        LKI_CUDA_NORM_SWITCH(dtypes, T, P, (launch<T, P, false>(cuda, v, o)))
    LKI_LAUNCHED();
    return LK_OK;
}
