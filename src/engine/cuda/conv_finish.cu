/* What cuDNN leaves to be done around a convolution: bias and activation, the gradient of the bias, and
 * factors made wide. */
#include "engine/cuda/conv.cuh"

template <typename T>
static __global__ void bias_kernel(lki_cuda_conv_operands o, int64_t count, int channels, int size,
                                   bool channels_last)
{
    using A = typename lki_cuda_wide<T>::type;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        int channel, rest;
        lki_cuda_divide(channels_last ? i : lki_cuda_divide(i, size, &rest), channels, &channel);
        A value = o.wide_to ? ((const A *)o.to)[i] : A(((const T *)o.to)[i]);
        lki_cuda_conv_store<T, A>(o, i, channel, value);
    }
}

lk_status lki_cuda_finish_conv(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    bool is_out = s->role == LKI_CUDA_CONV_OUT;
    int64_t count = is_out ? lki_cuda_conv_out_count(s) : lki_cuda_conv_in_count(s);
    if (count == 0 || (!o->bias && !o->relu)) return LK_OK;
    int channels = is_out ? s->out_channels : s->in_channels,
        size = is_out ? s->window.out_size : s->window.in_size;
    LKI_CUDA_FLOAT_SWITCH(conv->dtype, T,
                          (bias_kernel<T><<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
                              *o, count, channels, size, s->window.channels_last)));
    LKI_LAUNCHED();
    return LK_OK;
}

/* One block a channel; channels last: 32 channels a block, so that neighbours are read together. */
template <typename T>
static __global__ void __launch_bounds__(1024) sums_kernel(lki_cuda_conv_shape s, lki_cuda_conv_operands o)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ A shared[32];
    const T *dy = (const T *)o.left;
    int channel = (int)blockIdx.x, size = s.window.out_size;
    A sum = 0;
    for (int64_t i = threadIdx.x; i < s.batch * size; i += 1024) {
        int place;
        int64_t n = lki_cuda_divide(i, size, &place);
        sum += A(dy[(n * s.out_channels + channel) * size + place]);
    }
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    sum = shared[threadIdx.x];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x == 0) lki_cuda_conv_store_sum<T, A>(o, channel, sum);
}

template <typename T>
static __global__ void __launch_bounds__(1024)
    last_sums_kernel(lki_cuda_conv_shape s, lki_cuda_conv_operands o)
{
    using A = typename lki_cuda_wide<T>::type;
    __shared__ A shared[32][33];
    int lane = (int)threadIdx.x % 32, group = (int)threadIdx.x / 32, channel = (int)blockIdx.x * 32 + lane;
    A sum = 0;
    for (int64_t i = group; i < s.batch * s.window.out_size && channel < s.out_channels; i += 32)
        sum += A(((const T *)o.left)[i * s.out_channels + channel]);
    shared[group][lane] = sum;
    __syncthreads();
    sum = shared[lane][group];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    channel = (int)blockIdx.x * 32 + group;
    if (lane == 0 && channel < s.out_channels) lki_cuda_conv_store_sum<T, A>(o, channel, sum);
}

lk_status lki_cuda_conv_sums(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o)
{
    const lki_cuda_conv_shape &s = conv->shape;
    if (s.out_channels == 0) return LK_OK;
    if (s.window.channels_last)
        LKI_CUDA_FLOAT_SWITCH(
            conv->dtype, T,
            (last_sums_kernel<T><<<(s.out_channels + 31) / 32, 1024, 0, cuda->compute>>>(s, *o)))
    else
        LKI_CUDA_FLOAT_SWITCH(conv->dtype, T,
                              (sums_kernel<T><<<s.out_channels, 1024, 0, cuda->compute>>>(s, *o)))
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> static __global__ void widen_kernel(const T *from, float *to, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x)
        to[i] = float(from[i]);
}

lk_status lki_cuda_widen(lki_cuda *cuda, lk_dtype dtype, const void *from, float *to, int64_t count)
{
    if (count == 0) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(dtype, T,
                          (widen_kernel<T><<<lki_cuda_grid(cuda, count), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
                              (const T *)from, to, count)));
    LKI_LAUNCHED();
    return LK_OK;
}
