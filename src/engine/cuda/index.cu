/* Elements and rows by their numbers, and the gradients of that in the form of sums: every element of the
 * result looks for the positions that named it, in order, so that no two threads add to one place.
 *
 * The forward ops report an index that is wrong and read nothing for it; the gradients, which see the same
 * indices, leave it out. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/movement.cuh"

#include <cub/device/device_radix_sort.cuh>

namespace
{

struct indices {
    const void *data;
    lk_dtype dtype;
    int64_t count, limit;      /* how many there are; each lies in 0..limit-1 */
    unsigned long long *fault; /* NULL: they have been checked before */
    int *fault_found, fault_number;
};

/* The index at a position; -1 where it is wrong. */
__device__ int64_t index_at(const indices &x, int64_t position)
{
    int64_t index = lki_cuda_index_at(x.data, x.dtype, position);
    if (index >= 0 && index < x.limit) return index;
    if (x.fault) lki_cuda_report(x.fault, x.fault_found, x.fault_number, position);
    return -1;
}

/* ---- gather ---- */

/* The shape of the index and the strides of x; `axis` is the one whose coordinate is looked up. */
struct gathering {
    int rank, axis;
    int64_t dim[LK_MAX_DIMS], stride[LK_MAX_DIMS], size[LK_MAX_DIMS]; /* size: of x */
    int64_t count;                                                    /* of the output */
};

template <typename U>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) gather_kernel(gathering g, indices index, const U *x, U *y)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < g.count; i += stride) {
        int64_t chosen = index_at(index, i), rest = i, from = 0;
        for (int k = g.rank - 1; k >= 0; k--) {
            int64_t next = rest / g.dim[k];
            from += (k == g.axis ? chosen : rest - next * g.dim[k]) * g.stride[k];
            rest = next;
        }
        y[i] = chosen >= 0 ? x[from] : U();
    }
}

/* dx[..., c, ...] = sum over j with index[..., j, ...] = c of dy[..., j, ...]; zero where the index has no
 * such line. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    gather_grad_kernel(gathering g, indices index, const T *dy, T *dx)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < g.count; i += stride) {
        int64_t rest = i, first = 0, apart = 0, scale = 1, own = 0;
        bool has_line = true;
        for (int k = g.rank - 1; k >= 0; k--) {
            int64_t next = rest / g.size[k], at = rest - next * g.size[k];
            rest = next;
            if (k == g.axis) {
                own = at;
                apart = scale;
            } else {
                has_line = has_line && at < g.dim[k];
                first += at * scale;
            }
            scale *= g.dim[k];
        }
        W sum = 0;
        for (int64_t j = 0; has_line && j < g.dim[g.axis]; j++) {
            int64_t position = first + j * apart;
            if (lki_cuda_index_at(index.data, index.dtype, position) == own)
                sum += lki_cuda_widen(dy[position]);
        }
        dx[i] = lki_cuda_narrow<T>::of(sum);
    }
}

/* y = x, but at each place the last element of the source that names it, or with `adds` x and all of them.
 * Every place looks through the line of the index that may name it. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    scatter_kernel(gathering g, indices index, bool adds, const T *x, const T *source, T *y)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < g.count; i += stride) {
        int64_t rest = i, first = 0, apart = 0, scale = 1, own = 0;
        bool has_line = true;
        for (int k = g.rank - 1; k >= 0; k--) {
            int64_t next = rest / g.size[k], at = rest - next * g.size[k];
            rest = next;
            if (k == g.axis) {
                own = at;
                apart = scale;
            } else {
                has_line = has_line && at < g.dim[k];
                first += at * scale;
            }
            scale *= g.dim[k];
        }
        W value = lki_cuda_widen(x[i]);
        for (int64_t j = 0; has_line && j < g.dim[g.axis]; j++) {
            int64_t position = first + j * apart;
            if (index_at(index, position) == own)
                value = (adds ? value : (W)0) + lki_cuda_widen(source[position]);
        }
        y[i] = lki_cuda_narrow<T>::of(value);
    }
}

/* ---- embedding ---- */

/* y[i, :] = weight[index[i], :], in units. */
template <typename U>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    embedding_kernel(indices index, int64_t width, const U *weight, U *y)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK, count = index.count * width;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride) {
        int64_t position = i / width, row = index_at(index, position);
        y[i] = row >= 0 ? weight[row * width + i - position * width] : U();
    }
}

enum { SCAN = 256 };

/* dweight[r, :], a block a row: the block looks through the list of indices piece by piece, writes down which
 * of a piece are its row's, in order, and adds those up. */
template <typename T>
__global__ void __launch_bounds__(SCAN)
    scan_kernel(indices index, int64_t padding, int64_t width, const T *dy, T *dweight)
{
    using W = typename lki_cuda_wide<T>::type;
    __shared__ int found[SCAN], counts[SCAN / 32];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int64_t row = blockIdx.x; row < index.limit; row += gridDim.x)
        for (int64_t column = threadIdx.x; column - threadIdx.x < width; column += SCAN) {
            W sum = 0;
            for (int64_t piece = 0; piece < index.count && row != padding; piece += SCAN) {
                int64_t position = piece + threadIdx.x;
                bool hit =
                    position < index.count && lki_cuda_index_at(index.data, index.dtype, position) == row;
                unsigned hits = __ballot_sync(0xffffffffu, hit);
                if (lane == 0) counts[warp] = __popc(hits);
                __syncthreads();
                int before = 0, total = 0;
                for (int k = 0; k < SCAN / 32; k++) {
                    if (k < warp) before += counts[k];
                    total += counts[k];
                }
                if (hit) found[before + __popc(hits & ((1u << lane) - 1))] = (int)threadIdx.x;
                __syncthreads();
                for (int k = 0; k < total && column < width; k++)
                    sum += lki_cuda_widen(dy[(piece + found[k]) * width + column]);
                __syncthreads();
            }
            if (column < width) dweight[row * width + column] = lki_cuda_narrow<T>::of(sum);
        }
}

/* ---- embedding_grad of long lists into large tables: positions sorted by their row ---- */

/* Rows as keys; what adds to no row gets the key behind the last. */
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    keys_kernel(indices index, int64_t padding, unsigned *keys, unsigned *positions)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < index.count; i += stride) {
        int64_t row = index_at(index, i);
        keys[i] = (unsigned)(row < 0 || row == padding ? index.limit : row);
        positions[i] = (unsigned)i;
    }
}

/* A block a sorted position: the first of its row adds up all of them, which lie in their order. */
template <typename T>
__global__ void __launch_bounds__(128)
    sorted_kernel(int64_t count, int64_t rows, int64_t width, const unsigned *keys, const unsigned *positions,
                  const T *dy, T *dweight)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t first = blockIdx.x;
    unsigned row = keys[first];
    if (row >= rows || (first > 0 && keys[first - 1] == row)) return;
    for (int64_t column = threadIdx.x; column < width; column += blockDim.x) {
        W sum = 0;
        for (int64_t i = first; i < count && keys[i] == row; i++)
            sum += lki_cuda_widen(dy[(int64_t)positions[i] * width + column]);
        dweight[row * width + column] = lki_cuda_narrow<T>::of(sum);
    }
}

/* ---- Launches ---- */

struct index_state {
    lki_cuda *cuda;
    lki_cuda_check check; /* number 0: this call checks nothing */
    gathering g;
    int64_t limit, width;
    bool sorts;
    size_t sort_nbytes; /* of the sort's own scratch memory */
    int key_bits;
};

indices indices_of(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    indices x = {};
    x.data = call->in[1].data;
    x.dtype = call->in[1].dtype;
    x.count = lki_cuda_count(&call->in[1]);
    x.limit = state->limit;
    if (!state->check.number) return x;
    x.fault = state->cuda->fault.first;
    x.fault_found = state->cuda->fault.found_on_device;
    x.fault_number = state->check.number;
    return x;
}

lk_status run_gather(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    if (!state->g.count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, state->g.count);
    LKI_CUDA_UNIT_SWITCH(lki_cuda_dtype_nbytes(call->in[0].dtype), U, {
        gather_kernel<U><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            state->g, indices_of(call), (const U *)call->in[0].data, (U *)call->out[0].data);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_gather_grad(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    if (!state->g.count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, state->g.count);
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        gather_grad_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            state->g, indices_of(call), lki_cuda_in<T>(call, 0), lki_cuda_out<T>(call, 0));
    })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_scatter(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    if (!state->g.count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, state->g.count);
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        scatter_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            state->g, indices_of(call), call->op == LK_OP_SCATTER_ADD, lki_cuda_in<T>(call, 0),
            lki_cuda_in<T>(call, 2), lki_cuda_out<T>(call, 0));
    })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_embedding(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    indices index = indices_of(call);
    size_t nbytes = lki_cuda_dtype_nbytes(call->in[0].dtype), unit = 16;
    const void *weight = call->in[0].data;
    void *y = call->out[0].data;
    if (!index.count || !state->width) return LK_OK;
    size_t row = (size_t)state->width * nbytes;
    while (unit > nbytes &&
           (row % unit || !lki_cuda_is_aligned(weight, unit) || !lki_cuda_is_aligned(y, unit)))
        unit /= 2;
    int64_t width = (int64_t)(row / unit);
    int grid = lki_cuda_grid(state->cuda, index.count * width);
    LKI_CUDA_UNIT_SWITCH(unit, U, {
        embedding_kernel<U>
            <<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(index, width, (const U *)weight, (U *)y);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

/* keys, positions, and both once more, sorted; then the sort's own memory. */
size_t list_nbytes(int64_t count)
{
    return ((size_t)count * sizeof(unsigned) + 255) / 256 * 256;
}

template <typename T> lk_status add_sorted(const lk_call *call, const indices &index)
{
    const index_state *state = (const index_state *)call->state;
    cudaStream_t stream = state->cuda->compute;
    char *lists = (char *)call->scratch;
    size_t each = list_nbytes(index.count), nbytes = state->sort_nbytes;
    unsigned *list[4];
    for (int i = 0; i < 4; i++) list[i] = (unsigned *)(lists + each * (size_t)i);
    LKI_CUDA(
        cudaMemsetAsync(call->out[0].data, 0, (size_t)(state->limit * state->width) * sizeof(T), stream));
    keys_kernel<<<lki_cuda_grid(state->cuda, index.count), LKI_CUDA_BLOCK, 0, stream>>>(
        index, call->attr->embedding.padding_index, list[0], list[1]);
    LKI_CUDA(cub::DeviceRadixSort::SortPairs(lists + 4 * each, nbytes, list[0], list[2], list[1], list[3],
                                             (int)index.count, 0, state->key_bits, stream));
    sorted_kernel<T><<<(unsigned)index.count, 128, 0, stream>>>(index.count, state->limit, state->width,
                                                                list[2], list[3], lki_cuda_in<T>(call, 0),
                                                                lki_cuda_out<T>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> lk_status add_scanned(const lk_call *call, const indices &index)
{
    const index_state *state = (const index_state *)call->state;
    unsigned grid = (unsigned)(state->limit < 0x7fffffff ? state->limit : 0x7fffffff);
    scan_kernel<T><<<grid, SCAN, 0, state->cuda->compute>>>(index, call->attr->embedding.padding_index,
                                                            state->width, lki_cuda_in<T>(call, 0),
                                                            lki_cuda_out<T>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_embedding_grad(const lk_call *call)
{
    const index_state *state = (const index_state *)call->state;
    indices index = indices_of(call);
    if (!state->limit || !state->width) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T,
                          { return state->sorts ? add_sorted<T>(call, index) : add_scanned<T>(call, index); })
    return LK_OK;
}

void free_state(void *data)
{
    index_state *state = (index_state *)data;
    if (state->check.number) lki_cuda_check_fini(state->cuda, &state->check);
    lki_host->free(state);
}

void describe_gather(index_state *state, const lk_call *call, lk_shape x)
{
    gathering *g = &state->g;
    lk_shape index = call->in[1].shape;
    g->rank = index.rank;
    g->axis = call->attr->gather.axis;
    g->count = lki_cuda_count(&call->out[0]);
    lki_cuda_strides(x, g->stride);
    for (int i = 0; i < index.rank; i++) {
        g->dim[i] = index.dim[i];
        g->size[i] = x.dim[i];
    }
    state->limit = x.rank ? x.dim[g->axis] : 1;
}

/* Looking through the whole list for every row is quickest where that is little: one launch. */
enum { SCANNED = 1 << 23 };

lk_status choose_sum(index_state *state, lk_call *call)
{
    int64_t count = lki_cuda_count(&call->in[1]);
    state->sorts = state->limit * count > SCANNED && state->limit < 0xffffffff && count < 0x7fffffff;
    if (!state->sorts) return LK_OK;
    while (state->limit >> state->key_bits) state->key_bits++;
    const unsigned *in = NULL;
    unsigned *out = NULL;
    LKI_CUDA(cub::DeviceRadixSort::SortPairs(NULL, state->sort_nbytes, in, out, in, out, (int)count, 0,
                                             state->key_bits));
    call->scratch_nbytes = 4 * list_nbytes(count) + state->sort_nbytes;
    return LK_OK;
}

lk_status prepare_op(index_state *state, lk_call *call)
{
    switch (call->op) {
    case LK_OP_GATHER:
        describe_gather(state, call, call->in[0].shape);
        call->run = run_gather;
        return LK_OK;
    case LK_OP_GATHER_GRAD:
        describe_gather(state, call, call->out[0].shape);
        call->run = run_gather_grad;
        return LK_OK;
    case LK_OP_SCATTER:
    case LK_OP_SCATTER_ADD:
        describe_gather(state, call, call->out[0].shape);
        call->run = run_scatter;
        return LK_OK;
    case LK_OP_EMBEDDING:
        state->limit = call->in[0].shape.dim[0];
        state->width = call->in[0].shape.dim[1];
        call->run = run_embedding;
        return LK_OK;
    default:
        state->limit = call->out[0].shape.dim[0];
        state->width = call->out[0].shape.dim[1];
        call->run = run_embedding_grad;
        return choose_sum(state, call);
    }
}

} // namespace

lk_status lki_cuda_prepare_index(lki_cuda *cuda, lk_call *call)
{
    bool backward = call->op == LK_OP_GATHER_GRAD || call->op == LK_OP_EMBEDDING_GRAD;
    lk_dtype dtype = call->in[0].dtype;
    bool fits = call->out[0].dtype == dtype && lki_cuda_is_index(call->in[1].dtype);
    bool scatters = call->op == LK_OP_SCATTER || call->op == LK_OP_SCATTER_ADD;
    if (scatters) fits = fits && call->in[2].dtype == dtype;
    if (!fits || ((backward || scatters) && !lki_cuda_is_float(dtype)))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel that looks up %s by %s",
                             lki_cuda_dtype_name(dtype), lki_cuda_dtype_name(call->in[1].dtype));
    index_state *state = (index_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    call->free_state = free_state;
    state->cuda = cuda;
    LKI_TRY(prepare_op(state, call));
    if (!backward) LKI_TRY(lki_cuda_check_init(cuda, call, 1, state->limit, &state->check));
    return LK_OK;
}
