/* reorder: (n, c, s...) as (n, s..., c) in memory, and back. Both are matrices, one a sample, that are
 * turned.
 *
 * Large matrices go through shared memory in tiles, so that both sides are read and written in runs; narrow
 * ones (a kernel's nine taps) element by element in the order of the result. A picture's three channels are
 * laid side by side, in 16 bits, by threads that have eight places each. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/sliding_window.cuh"

constexpr int TILE = 32, TILE_ROWS = 8, NARROW = 16, EIGHT = 8;

template <typename F, typename T> struct convert {
    static __device__ T of(F x)
    {
        return T(lki_cuda_widen(x));
    }
};
template <typename T> struct convert<T, T> {
    static __device__ T of(T x)
    {
        return x;
    }
};

template <typename F, typename T>
static __global__ void __launch_bounds__(TILE *TILE_ROWS)
    tile_kernel(const F *from, T *to, int rows, int columns, int row_tiles, int column_tiles)
{
    __shared__ T tile[TILE][TILE + 1];
    int column_tile, row_tile;
    int64_t rest = lki_cuda_divide(blockIdx.x, column_tiles, &column_tile);
    int64_t base = lki_cuda_divide(rest, row_tiles, &row_tile) * rows * columns;
    int x = (int)threadIdx.x % TILE, y = (int)threadIdx.x / TILE;
    int column = column_tile * TILE + x;
    for (int k = y; k < TILE; k += TILE_ROWS) {
        int row = row_tile * TILE + k;
        if (row < rows && column < columns)
            tile[k][x] = convert<F, T>::of(from[base + (int64_t)row * columns + column]);
    }
    __syncthreads();
    int row = row_tile * TILE + x;
    for (int k = y; k < TILE; k += TILE_ROWS) {
        column = column_tile * TILE + k;
        if (row < rows && column < columns) to[base + (int64_t)column * rows + row] = tile[x][k];
    }
}

template <typename F, typename T>
static __global__ void narrow_kernel(const F *from, T *to, int rows, int columns, int64_t count)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        int row, column;
        int64_t sample = lki_cuda_divide(lki_cuda_divide(i, rows, &row), columns, &column);
        to[i] = convert<F, T>::of(from[(sample * rows + row) * columns + column]);
    }
}

/* `groups` is how many threads a sample has. */
template <typename F, typename T, int ROWS>
static __global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    few_kernel(const F *from, T *to, int columns, int groups, int64_t count)
{
    using read = lki_cuda_pack<F, 16 / sizeof(F)>;
    using written = lki_cuda_pack<T, 16 / sizeof(T)>;
    constexpr int READS = EIGHT * sizeof(F) / 16, WRITES = ROWS * EIGHT * sizeof(T) / 16;
    for (int64_t i = blockIdx.x * (int64_t)LKI_CUDA_BLOCK + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * LKI_CUDA_BLOCK) {
        int group;
        int64_t sample = lki_cuda_divide(i, groups, &group);
        read in[ROWS][READS];
        written out[WRITES];
#pragma unroll
        for (int r = 0; r < ROWS; r++)
#pragma unroll
            for (int k = 0; k < READS; k++)
                in[r][k] = ((const read *)(from + (sample * ROWS + r) * columns))[group * READS + k];
#pragma unroll
        for (int e = 0; e < ROWS * EIGHT; e++)
            out[e * sizeof(T) / 16].at[e % (16 / sizeof(T))] =
                convert<F, T>::of(in[e % ROWS][e / ROWS * sizeof(F) / 16].at[e / ROWS % (16 / sizeof(F))]);
#pragma unroll
        for (int k = 0; k < WRITES; k++) ((written *)to)[i * WRITES + k] = out[k];
    }
}

/* Puts them on their way where there are so few rows, and they can be read and written by 16 bytes. */
template <typename F, typename T, int ROWS>
static bool launch_few(lki_cuda *cuda, const void *from, void *to, int64_t count, int rows, int columns)
{
    if constexpr (sizeof(F) == 4 && sizeof(T) == 2) {
        int64_t threads = count * (columns / EIGHT);
        if (rows != ROWS || columns % EIGHT || !lki_cuda_is_aligned(from, 16) || !lki_cuda_is_aligned(to, 16))
            return false;
        few_kernel<F, T, ROWS><<<lki_cuda_grid(cuda, threads), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
            (const F *)from, (T *)to, columns, columns / EIGHT, threads);
        return true;
    }
    return false;
}

template <typename F, typename T>
static lk_status launch(lki_cuda *cuda, const void *from, void *to, int64_t count, int rows, int columns)
{
    int64_t all = count * rows * columns, row_tiles = (rows + TILE - 1) / TILE,
            column_tiles = (columns + TILE - 1) / TILE, tiles = count * row_tiles * column_tiles;
    if (all == 0) return LK_OK;
    if (launch_few<F, T, 3>(cuda, from, to, count, rows, columns)) {
        LKI_LAUNCHED();
        return LK_OK;
    }
    if (rows < NARROW || columns < NARROW || tiles > INT32_MAX)
        narrow_kernel<F, T><<<lki_cuda_grid(cuda, all), LKI_CUDA_BLOCK, 0, cuda->compute>>>(
            (const F *)from, (T *)to, rows, columns, all);
    else
        tile_kernel<F, T><<<(unsigned)tiles, TILE * TILE_ROWS, 0, cuda->compute>>>(
            (const F *)from, (T *)to, rows, columns, (int)row_tiles, (int)column_tiles);
    LKI_LAUNCHED();
    return LK_OK;
}

static lk_status move(lki_cuda *cuda, size_t nbytes, const void *from, void *to, int64_t count, int rows,
                      int columns)
{
    switch (nbytes) {
    case 1: return launch<uint8_t, uint8_t>(cuda, from, to, count, rows, columns);
    case 2: return launch<uint16_t, uint16_t>(cuda, from, to, count, rows, columns);
    case 4: return launch<uint32_t, uint32_t>(cuda, from, to, count, rows, columns);
    default: return launch<uint64_t, uint64_t>(cuda, from, to, count, rows, columns);
    }
}

lk_status lki_cuda_transpose(lki_cuda *cuda, lk_dtype from_dtype, const void *from, lk_dtype to_dtype,
                             void *to, int64_t count, int rows, int columns)
{
    if (from_dtype == to_dtype)
        return move(cuda, lki_cuda_dtype_nbytes(to_dtype), from, to, count, rows, columns);
    if (from_dtype == LK_F32 && to_dtype == LK_BF16)
        return launch<float, __nv_bfloat16>(cuda, from, to, count, rows, columns);
    if (from_dtype == LK_F32 && to_dtype == LK_F16)
        return launch<float, __half>(cuda, from, to, count, rows, columns);
    if (from_dtype == LK_BF16 && to_dtype == LK_F32)
        return launch<__nv_bfloat16, float>(cuda, from, to, count, rows, columns);
    if (from_dtype == LK_F16 && to_dtype == LK_F32)
        return launch<__half, float>(cuda, from, to, count, rows, columns);
    return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                         "the cuda engine has no kernel for a change of layout of %s to %s",
                         lki_cuda_dtype_name(from_dtype), lki_cuda_dtype_name(to_dtype));
}

static lk_status run(const lk_call *call)
{
    const lk_tensor *from = &call->in[0], *to = &call->out[0];
    int channels = (int)to->shape.dim[1], places = (int)lki_cuda_span(to->shape, 2, to->shape.rank);
    bool last = call->out_layout[0] == LK_LAYOUT_CHANNELS_LAST;
    return lki_cuda_transpose(lki_cuda_of(call), from->dtype, from->data, to->dtype, to->data,
                              to->shape.dim[0], last ? channels : places, last ? places : channels);
}

lk_status lki_cuda_prepare_reorder(lki_cuda *cuda, lk_call *call)
{
    int from = call->in_layout ? call->in_layout[0] : LK_LAYOUT_ROW_MAJOR;
    if (from == call->out_layout[0]) return lki_cuda_prepare_elementwise(cuda, call);
    if (lki_cuda_span(call->out[0].shape, 2, call->out[0].shape.rank) > INT32_MAX)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                             "the cuda engine has no kernel for planes of so many elements");
    call->run = run;
    return LK_OK;
}
