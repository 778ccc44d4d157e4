/* The parameters in 16 bits, as they lie or with channels last: all of a step at once. Each is cut into
 * pieces of neighbouring results, a block a piece. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/sliding_window.cuh"

namespace
{

enum { PIECE = 4096, MOST = 64, V = 8 };

/* `places` of a kernel; with more than one they go before the channels. */
struct cast {
    const float *from;
    void *to;
    int64_t count;
    int channels, places;
    int first; /* its first piece among those of all */
};

struct casts {
    cast item[MOST];
    int count;
};

/* The last one that does not begin behind this block. */
__device__ int find(const casts &c)
{
    int low = 0, high = c.count - 1;
    while (low < high) {
        int middle = (low + high + 1) / 2;
        if (c.item[middle].first <= (int)blockIdx.x)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

template <typename T> __device__ void narrow(const cast &c, int64_t begin, int64_t end)
{
    using wide = lki_cuda_pack<float, 4>;
    using written = lki_cuda_pack<T, V>;
    const wide *from = (const wide *)c.from;
    bool packs = ((uintptr_t)c.from | (uintptr_t)c.to) % 16 == 0;
    int64_t last = packs ? end / V * V : begin;
    for (int64_t i = begin / V + threadIdx.x; i < last / V; i += LKI_CUDA_BLOCK) {
        wide x[2] = {from[2 * i], from[2 * i + 1]};
        written to;
#pragma unroll
        for (int e = 0; e < V; e++) to.at[e] = T(x[e / 4].at[e % 4]);
        ((written *)c.to)[i] = to;
    }
    for (int64_t i = last + threadIdx.x; i < end; i += LKI_CUDA_BLOCK) ((T *)c.to)[i] = T(c.from[i]);
}

/* In the order of the results; what lies between two reads of a kernel's neighbours is in the cache. */
template <typename T> __device__ void turn(const cast &c, int64_t begin, int64_t end)
{
#pragma unroll 4
    for (int64_t i = begin + threadIdx.x; i < end; i += LKI_CUDA_BLOCK) {
        int channel, place;
        int64_t out = lki_cuda_divide(lki_cuda_divide(i, c.channels, &channel), c.places, &place);
        ((T *)c.to)[i] = T(c.from[(out * c.channels + channel) * c.places + place]);
    }
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) casts_kernel(const __grid_constant__ casts all)
{
    const cast &c = all.item[find(all)];
    int64_t begin = (int64_t)((int)blockIdx.x - c.first) * PIECE, end = begin + PIECE;
    if (end > c.count) end = c.count;
    if (c.places > 1)
        turn<T>(c, begin, end);
    else
        narrow<T>(c, begin, end);
}

cast cast_of(const lk_call *call, int first)
{
    const lk_tensor *to = &call->out[0];
    cast c = {(const float *)call->in[0].data, to->data, lki_cuda_count(to), 1, 1, first};
    if (call->out_layout[0] == LK_LAYOUT_CHANNELS_LAST) {
        c.channels = (int)to->shape.dim[1];
        c.places = (int)lki_cuda_span(to->shape, 2, to->shape.rank);
    }
    return c;
}

lk_status launch(lki_cuda *cuda, lk_dtype dtype, const casts *all, int pieces)
{
    if (pieces == 0) return LK_OK;
    if (dtype == LK_BF16)
        casts_kernel<__nv_bfloat16><<<pieces, LKI_CUDA_BLOCK, 0, cuda->compute>>>(*all);
    else
        casts_kernel<__half><<<pieces, LKI_CUDA_BLOCK, 0, cuda->compute>>>(*all);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    casts all = {};
    int64_t pieces = 0;
    for (int i = 0; i <= call->followers; i++) {
        cast c = cast_of(call + i, (int)pieces);
        if (c.count > 0) all.item[all.count++] = c;
        pieces += (c.count + PIECE - 1) / PIECE;
        if (all.count < MOST && i < call->followers && pieces < INT32_MAX / 2) continue;
        LKI_TRY(launch(cuda, call->out[0].dtype, &all, (int)pieces));
        all.count = 0;
        pieces = 0;
    }
    return LK_OK;
}

lk_status run_nothing(const lk_call *call)
{
    (void)call;
    return LK_OK;
}

} // namespace

lk_status lki_cuda_prepare_casts(lki_cuda *cuda, lk_call *call)
{
    (void)cuda;
    call->run = call->is_led ? run_nothing : run;
    return LK_OK;
}
