/* Products by rows inside the one kernel of a small step (small_kernel.cuh). */
#ifndef LKI_CUDA_SMALL_SMALL_PRODUCT_CUH
#define LKI_CUDA_SMALL_SMALL_PRODUCT_CUH

#include "engine/cuda/small/small_desk.cuh"

namespace
{

__device__ void finish(const product &p, int64_t at, float bias, float value)
{
    if (p.bias) value += bias;
    if (p.relu && value < 0) value = 0;
    p.c[at] = value;
}

/* Adds each of COUNT numbers up over the warp, in the pairs of lki_cuda_warp_sum: the sum of number i ends in
 * the lanes whose highest bits are i. */
template <int COUNT> __device__ float sums_of(float (&value)[COUNT], int lane)
{
    int mask = 16;
#pragma unroll
    for (int count = COUNT / 2; count; count /= 2, mask /= 2) {
        bool upper = lane & mask;
#pragma unroll
        for (int i = 0; i < count; i++) {
            float mine = upper ? value[i + count] : value[i], other = upper ? value[i] : value[i + count];
            value[i] = mine + __shfl_xor_sync(0xffffffffu, other, mask);
        }
    }
    for (; mask; mask /= 2) value[0] += __shfl_xor_sync(0xffffffffu, value[0], mask);
    return value[0];
}

__device__ float dot4(float4 a, float4 b, float sum)
{
    return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

/* A row's, from piece `begin` of k to `end`: AHEAD pieces at a time, all their loads on their way before the
 * first is used. */
template <int R, int C, int AHEAD>
__device__ void dots_of_vectors(const float *const (&a)[R], const float *const (&b)[C], int begin, int end,
                                float (&acc)[R * C])
{
    for (int first = begin + (int)threadIdx.x % 32; first < end; first += 32 * AHEAD) {
        float4 left[AHEAD][R], right[AHEAD][C];
#pragma unroll
        for (int e = 0; e < AHEAD; e++) {
            int l = min(first + 32 * e, end - 1); /* what is read twice is not added */
#pragma unroll
            for (int i = 0; i < R; i++) left[e][i] = ((const float4 *)a[i])[l];
#pragma unroll
            for (int j = 0; j < C; j++) right[e][j] = ((const float4 *)b[j])[l];
        }
#pragma unroll
        for (int e = 0; e < AHEAD; e++)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) {
                    float sum = dot4(left[e][i], right[e][j], acc[i * C + j]);
                    acc[i * C + j] = first + 32 * e < end ? sum : acc[i * C + j];
                }
    }
}

/* A row of the first factor: in the batch, or where the batch has it from; rows beyond the last are the last,
 * and not stored. */
__device__ const float *left_row(const args &a, const product &p, int row)
{
    row = min(row, p.m - 1);
    if (p.gather < 0) return p.a + (int64_t)row * p.k;
    const lki_cuda_gather &g = a.news.gather[p.gather];
    return (const float *)g.stored + g.index[row] * p.k;
}

__device__ const float *right_row(const product &p, int column)
{
    return p.b + (int64_t)min(column, p.n - 1) * p.k;
}

/* Which of a warp's R by C elements of c this lane stores when they are summed. */
struct dots_place {
    int row, column;
    bool stores;
    float bias; /* before it is needed */
};

template <int R, int C> __device__ dots_place place_of_dots(const product &p, int row, int column, int step)
{
    constexpr int LANES = 32 / (R * C);
    int lane = (int)threadIdx.x % 32, number = lane / LANES;
    dots_place t = {row + number / C, column + number % C * step, false, 0};
    t.stores = lane % LANES == 0 && t.row < p.m && t.column < p.n;
    if (p.bias && t.stores) t.bias = p.bias[t.column];
    return t;
}

template <int COUNT> __device__ void store_dots(const product &p, const dots_place &t, float (&acc)[COUNT])
{
    float sum = sums_of(acc, (int)threadIdx.x % 32);
    if (t.stores) finish(p, (int64_t)t.row * p.n + t.column, t.bias, sum);
}

/* A warp's R by C elements of c. */
template <int R, int C, int AHEAD>
__device__ void dots(const args &all, const product &p, int row, int column, int step)
{
    const float *a[R], *b[C];
    float acc[R * C] = {};
#pragma unroll
    for (int i = 0; i < R; i++) a[i] = left_row(all, p, row + i);
#pragma unroll
    for (int j = 0; j < C; j++) b[j] = right_row(p, column + j * step);
    dots_place t = place_of_dots<R, C>(p, row, column, step);
    if (p.k % 4 == 0 && (((uintptr_t)p.a | (uintptr_t)p.b) & 15) == 0)
        dots_of_vectors<R, C, AHEAD>(a, b, 0, p.k / 4, acc);
    else
        for (int l = (int)threadIdx.x % 32; l < p.k; l += 32)
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < C; j++) acc[i * C + j] = fmaf(a[i][l], b[j][l], acc[i * C + j]);
    store_dots(p, t, acc);
}

__device__ void run_dots_row(const args &a, product p, int piece)
{
    for (int column = (int)threadIdx.x / 32; column < p.n; column += 2 * WARPS)
        dots<1, 2, 8>(a, p, piece, column, WARPS);
}

__device__ void run_dots_tile(const args &a, product p, int piece)
{
    int across = (p.n + SIDE * ACROSS - 1) / (SIDE * ACROSS), warp = (int)threadIdx.x / 32;
    int row = (piece / across * DOWN + warp / ACROSS) * SIDE;
    int column = (piece % across * ACROSS + warp % ACROSS) * SIDE;
    if (row < p.m && column < p.n) dots<SIDE, SIDE, 4>(a, p, row, column, 1);
}

__device__ void run_row(product p, int piece)
{
    for (int column = (int)threadIdx.x; column < p.n; column += BLOCK) {
        const float *a = p.a + (int64_t)piece * p.a_row, *b = p.b + (int64_t)column * p.b_column;
        int64_t at = (int64_t)piece * p.n + column;
        float sum = 0, bias = p.bias ? p.bias[column] : 0, mask = p.masked ? p.mask[at] : 0;
#pragma unroll 8
        for (int l = 0; l < p.k; l++) sum = fmaf(a[(int64_t)l * p.a_column], b[(int64_t)l * p.b_row], sum);
        finish(p, at, bias, sum);
        if (p.masked) p.masked[at] = mask <= 0 ? 0 : sum;
    }
}

} // namespace

#endif
