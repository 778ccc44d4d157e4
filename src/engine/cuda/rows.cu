/* A batch out of a dataset that lies on the device: rows by their indices, converted on the way. The indices
 * travel as the kernel's arguments, so that nothing has to be copied before it. */
#include "engine/cuda/cuda.cuh"

#include <type_traits>

namespace
{

constexpr int64_t MAX_INDICES = 480, BLOCK = 256;

struct index_list {
    long long index[MAX_INDICES];
};

/* As the host's loader: each operation rounded to f32. */
struct scaling {
    float divisor, mean, std;
};

template <typename S, typename T> __device__ T convert(S stored, scaling s)
{
    if constexpr (std::is_same<T, float>::value)
        return (T)__fdiv_rn(__fsub_rn(__fdiv_rn((float)stored, s.divisor), s.mean), s.std);
    else
        return (T)stored;
}

template <typename S, typename T>
__global__ void gather(T *out, const S *stored, int64_t width, scaling s,
                       const __grid_constant__ index_list list)
{
    const S *row = stored + list.index[blockIdx.y] * width;
    T *to = out + blockIdx.y * width;
    for (int64_t i = blockIdx.x * BLOCK + threadIdx.x; i < width; i += gridDim.x * BLOCK)
        to[i] = convert<S, T>(row[i], s);
}

template <typename S, typename T>
lk_status launch(lki_cuda *cuda, void *out, const lk_rows *rows, const void *stored, const int64_t *indices,
                 int64_t count)
{
    scaling s = {rows->divisor, rows->mean, rows->std};
    for (int64_t begin = 0; begin < count; begin += MAX_INDICES) {
        int64_t rest = count - begin < MAX_INDICES ? count - begin : MAX_INDICES;
        index_list list;
        for (int64_t i = 0; i < rest; i++) list.index[i] = indices[begin + i];
        int64_t across = (rows->width + 4 * BLOCK - 1) / (4 * BLOCK);
        dim3 grid((unsigned)(across < 64 ? across : 64), (unsigned)rest);
        gather<S, T><<<grid, BLOCK, 0, cuda->compute>>>((T *)out + begin * rows->width, (const S *)stored,
                                                        rows->width, s, list);
        LKI_LAUNCHED();
    }
    return LK_OK;
}

} // namespace

lk_status lki_cuda_gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                               const void *stored, const int64_t *indices, int64_t count)
{
    lki_cuda *cuda = (lki_cuda *)engine->state;
    if (count == 0 || rows->width == 0) return LK_OK;
    if (rows->stored == LK_U8 && dtype == LK_F32)
        return launch<uint8_t, float>(cuda, out, rows, stored, indices, count);
    if (rows->stored == LK_U8 && dtype == LK_I64)
        return launch<uint8_t, int64_t>(cuda, out, rows, stored, indices, count);
    if (rows->stored == LK_I32 && dtype == LK_I64)
        return launch<int32_t, int64_t>(cuda, out, rows, stored, indices, count);
    if (rows->stored != dtype)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "rows of %s cannot become a batch of %s on the GPU",
                             lki_cuda_dtype_name(rows->stored), lki_cuda_dtype_name(dtype));
    switch (lki_cuda_dtype_nbytes(dtype)) {
    case 1: return launch<uint8_t, uint8_t>(cuda, out, rows, stored, indices, count);
    case 2: return launch<uint16_t, uint16_t>(cuda, out, rows, stored, indices, count);
    case 4: return launch<uint32_t, uint32_t>(cuda, out, rows, stored, indices, count);
    default: return launch<uint64_t, uint64_t>(cuda, out, rows, stored, indices, count);
    }
}
