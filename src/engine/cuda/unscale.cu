/* unscale: takes the factor of an f16 loss out of its gradients, looks whether all of them are finite, and
 * settles what the factor is from now on. The updates that follow read the verdict where it lies: nobody asks
 * the host. */
#include "engine/cuda/kernels.cuh"

namespace
{

/* How the scale changes. */
struct growth {
    double growth, backoff, interval;
};

/* A scale that has been right for long enough is made larger, unless it could not be larger in f32. */
template <typename T> __device__ void settle(T *scaler, bool found, const growth &g)
{
    double scale = scaler[LK_SCALER_SCALE], tracker = (double)scaler[LK_SCALER_TRACKER] + 1;
    scaler[LK_SCALER_FOUND] = found ? (T)1 : (T)0;
    if (found) {
        scaler[LK_SCALER_SCALE] = (T)(scale * g.backoff);
        scaler[LK_SCALER_SKIPPED] += (T)1;
        tracker = 0;
    } else if (tracker >= g.interval) {
        float grown = (float)(scale * g.growth);
        if (isfinite(grown)) scaler[LK_SCALER_SCALE] = (T)grown;
        tracker = 0;
    }
    scaler[LK_SCALER_TRACKER] = (T)tracker;
}

/* One pack in place; true where a number in it is not finite. */
template <typename T, int N> __device__ bool unscale_pack(T *grad, int64_t i, T factor)
{
    lki_cuda_pack<T, N> pack = ((const lki_cuda_pack<T, N> *)grad)[i];
    bool bad = false;
#pragma unroll
    for (int k = 0; k < N; k++) {
        bad = bad || !isfinite(pack.at[k]);
        pack.at[k] *= factor;
    }
    ((lki_cuda_pack<T, N> *)grad)[i] = pack;
    return bad;
}

/* A single block settles by itself; of several, those that found something leave word for settle_kernel. All
 * write the same, so their order does not matter. */
template <typename T, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    unscale_kernel(T *grad, int64_t count, T *scaler, const lki_cuda_live *live, growth g)
{
    if (live->skip) return;
    const T factor = (T)(1 / (double)scaler[LK_SCALER_SCALE]);
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (int64_t)gridDim.x * blockDim.x;
    bool bad = false;
    for (int64_t i = first; i < count / N; i += stride) bad = unscale_pack<T, N>(grad, i, factor) || bad;
    if (N > 1)
        for (int64_t i = count / N * N + first; i < count; i += stride)
            bad = unscale_pack<T, 1>(grad, i, factor) || bad;
    bool found = __syncthreads_or(bad);
    if (threadIdx.x != 0) return;
    if (gridDim.x == 1)
        settle(scaler, found, g);
    else if (found)
        scaler[LK_SCALER_PENDING] = (T)1;
}

template <typename T> __global__ void settle_kernel(T *scaler, const lki_cuda_live *live, growth g)
{
    if (live->skip) return;
    settle(scaler, scaler[LK_SCALER_PENDING] != (T)0, g);
    scaler[LK_SCALER_PENDING] = (T)0;
}

/* One block takes what it can do about as fast as two launches would. */
enum { ONE_BLOCK = 8192 };

template <typename T, int N> lk_status launch(const lk_call *call, int64_t count)
{
    lki_cuda *cuda = lki_cuda_of(call);
    T *grad = (T *)call->in[0].data, *scaler = (T *)call->in[1].data;
    const lk_unscale_attr *attr = &call->attr->unscale;
    growth g = {attr->growth_factor, attr->backoff_factor, (double)attr->growth_interval};
    int grid = count <= ONE_BLOCK ? 1 : lki_cuda_grid(cuda, (count + N - 1) / N);
    unscale_kernel<T, N><<<grid, LKI_CUDA_BLOCK, 0, cuda->compute>>>(grad, count, scaler, cuda->live, g);
    if (grid > 1) settle_kernel<T><<<1, 1, 0, cuda->compute>>>(scaler, cuda->live, g);
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> lk_status run_typed(const lk_call *call)
{
    int64_t count = lki_cuda_count(&call->in[0]);
    return lki_cuda_is_aligned(call->in[0].data, 16) ? launch<T, 16 / sizeof(T)>(call, count)
                                                     : launch<T, 1>(call, count);
}

lk_status run(const lk_call *call)
{
    LKI_TRY(lki_cuda_join(lki_cuda_of(call))); /* whether to skip is found beside the backward half */
    return call->in[0].dtype == LK_F64 ? run_typed<double>(call) : run_typed<float>(call);
}

} // namespace

lk_status lki_cuda_prepare_unscale(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    (void)cuda;
    if ((dtype != LK_F32 && dtype != LK_F64) || call->in[1].dtype != dtype)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel that unscales %s",
                             lki_cuda_dtype_name(dtype));
    call->run = run;
    return LK_OK;
}
