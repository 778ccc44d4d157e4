/* Ops that move elements and compute nothing: permute, slice and its gradient, concat. What is moved is moved
 * bit for bit, in any dtype. */
#include "engine/cuda/movement.cuh"

namespace
{

struct movement {
    lki_cuda *cuda;
    lki_cuda_view view; /* the output's axes, with the input's strides */
    int64_t count;      /* of the output */
    int64_t first;      /* where the view begins */
    size_t nbytes;      /* of an element */
    /* A transpose of two axes of the view: `fast` is where the input's neighbours lie; -1: none. */
    int fast;
    /* slice_grad: the axes of dx, and which of their places dy covers. */
    int rank;
    int64_t dim[LK_MAX_DIMS], begin[LK_MAX_DIMS], step[LK_MAX_DIMS], size[LK_MAX_DIMS];
};

/* ---- Through a view ---- */

template <typename U, typename I>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    view_kernel(lki_cuda_view view, I count, const U *in, U *out)
{
    I stride = (I)gridDim.x * LKI_CUDA_BLOCK;
    for (I i = (I)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride)
        out[i] = in[lki_cuda_offset<I>(view, i)];
}

/* How many elements can be moved as one: neighbours in both tensors, at addresses that allow it. */
int64_t unit_of(const lki_cuda_view *view, size_t nbytes, const void *in, const void *out)
{
    int last = view->rank - 1;
    if (last < 0 || view->stride[last] != 1) return 1;
    int64_t unit = (int64_t)(16 / nbytes);
    for (; unit > 1; unit /= 2) {
        size_t size = nbytes * (size_t)unit;
        bool fits =
            view->dim[last] % unit == 0 && lki_cuda_is_aligned(in, size) && lki_cuda_is_aligned(out, size);
        for (int i = 0; i < last; i++) fits = fits && view->stride[i] % unit == 0;
        if (fits) break;
    }
    return unit;
}

lki_cuda_view in_units(lki_cuda_view view, int64_t unit)
{
    if (unit == 1) return view;
    int last = view.rank - 1;
    view.dim[last] /= unit;
    for (int i = 0; i < last; i++) view.stride[i] /= unit;
    return view;
}

/* The furthest that an offset reaches, so that 32 bits are used only where they are enough. */
bool is_near(const lki_cuda_view *view, int64_t count)
{
    int64_t reach = 0;
    for (int i = 0; i < view->rank; i++) reach += (view->dim[i] - 1) * view->stride[i];
    return reach < 0x7fffffff && count < 0x7fffffff;
}

lk_status run_view(const lk_call *call)
{
    const movement *m = (const movement *)call->state;
    if (!m->count) return LK_OK;
    const char *in = (const char *)call->in[0].data + m->first * (int64_t)m->nbytes;
    void *out = call->out[0].data;
    int64_t unit = unit_of(&m->view, m->nbytes, in, out), count = m->count / unit;
    lki_cuda_view view = in_units(m->view, unit);
    int grid = lki_cuda_grid(m->cuda, count);
    cudaStream_t stream = m->cuda->compute;
    LKI_CUDA_UNIT_SWITCH(m->nbytes * (size_t)unit, U, {
        if (is_near(&view, count))
            view_kernel<U, unsigned>
                <<<grid, LKI_CUDA_BLOCK, 0, stream>>>(view, (unsigned)count, (const U *)in, (U *)out);
        else
            view_kernel<U, int64_t>
                <<<grid, LKI_CUDA_BLOCK, 0, stream>>>(view, count, (const U *)in, (U *)out);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- Transposes: tiles by way of shared memory, so that both sides touch neighbours ---- */

enum { TILE = 32, TILE_LINES = 8 };

struct transpose {
    int64_t fast, slow;         /* axis sizes: neighbours in the input, neighbours in the output */
    int64_t slow_in, fast_out;  /* strides of the other side */
    lki_cuda_view others, outs; /* all other axes: where their tile begins in the input and in the output */
    int64_t count;              /* of the others */
};

template <typename U>
__global__ void __launch_bounds__(TILE *TILE_LINES) transpose_kernel(transpose t, const U *in, U *out)
{
    __shared__ U tile[TILE][TILE + 1];
    for (int64_t k = blockIdx.z; k < t.count; k += gridDim.z) {
        const U *from = in + lki_cuda_offset<int64_t>(t.others, k);
        U *to = out + lki_cuda_offset<int64_t>(t.outs, k);
        int64_t fast = (int64_t)blockIdx.x * TILE, slow = (int64_t)blockIdx.y * TILE;
        for (int line = threadIdx.y; line < TILE; line += TILE_LINES)
            if (fast + threadIdx.x < t.fast && slow + line < t.slow)
                tile[line][threadIdx.x] = from[fast + threadIdx.x + (slow + line) * t.slow_in];
        __syncthreads();
        for (int line = threadIdx.y; line < TILE; line += TILE_LINES)
            if (slow + threadIdx.x < t.slow && fast + line < t.fast)
                to[slow + threadIdx.x + (fast + line) * t.fast_out] = tile[threadIdx.x][line];
        __syncthreads();
    }
}

transpose transpose_of(const movement *m)
{
    transpose t = {};
    const lki_cuda_view *view = &m->view;
    int last = view->rank - 1;
    int64_t out_stride = 1, out_strides[LK_MAX_DIMS] = {};
    for (int i = last; i >= 0; i--) {
        out_strides[i] = out_stride;
        out_stride *= view->dim[i];
    }
    t.fast = view->dim[m->fast];
    t.slow = view->dim[last];
    t.slow_in = view->stride[last];
    t.fast_out = out_strides[m->fast];
    t.count = 1;
    for (int i = 0; i < last; i++) {
        if (i == m->fast) continue;
        int next = t.others.rank++;
        t.outs.rank++;
        t.others.dim[next] = t.outs.dim[next] = view->dim[i];
        t.others.stride[next] = view->stride[i];
        t.outs.stride[next] = out_strides[i];
        t.count *= view->dim[i];
    }
    return t;
}

lk_status run_transpose(const lk_call *call)
{
    const movement *m = (const movement *)call->state;
    transpose t = transpose_of(m);
    int64_t slow_tiles = (t.slow + TILE - 1) / TILE;
    if (slow_tiles > 65535) return run_view(call);
    dim3 grid((unsigned)((t.fast + TILE - 1) / TILE), (unsigned)slow_tiles,
              (unsigned)(t.count < 65535 ? t.count : 65535));
    LKI_CUDA_UNIT_SWITCH(m->nbytes, U, {
        transpose_kernel<U><<<grid, dim3(TILE, TILE_LINES), 0, m->cuda->compute>>>(
            t, (const U *)call->in[0].data, (U *)call->out[0].data);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status prepare_permute(movement *m, lk_call *call)
{
    lk_shape in = call->in[0].shape;
    int64_t stride[LK_MAX_DIMS];
    lki_cuda_strides(in, stride);
    for (int i = 0; i < in.rank; i++)
        lki_cuda_view_add(&m->view, in.dim[call->attr->permute.order[i]],
                          stride[call->attr->permute.order[i]]);
    int last = m->view.rank - 1;
    m->fast = -1;
    for (int i = 0; i < last; i++)
        if (m->view.stride[i] == 1) m->fast = i;
    bool tiles = m->count && m->fast >= 0 && m->view.dim[m->fast] >= 8 && m->view.dim[last] >= 8;
    m->cuda->paths[tiles ? LKI_CUDA_PATH_TRANSPOSE : LKI_CUDA_PATH_VIEW].entered++;
    call->run = tiles ? run_transpose : run_view;
    return LK_OK;
}

lk_status prepare_slice(movement *m, lk_call *call)
{
    lk_shape in = call->in[0].shape, out = call->out[0].shape;
    int64_t stride[LK_MAX_DIMS];
    lki_cuda_strides(in, stride);
    for (int i = 0; i < out.rank; i++) {
        m->first += call->attr->slice.begin[i] * stride[i];
        lki_cuda_view_add(&m->view, out.dim[i], stride[i] * call->attr->slice.step[i]);
    }
    call->run = run_view;
    return LK_OK;
}

/* ---- slice_grad: every place of dx looks whether the slice shows it ---- */

template <typename U>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) slice_grad_kernel(movement m, const U *dy, U *dx)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < m.count; i += stride) {
        int64_t rest = i, from = 0, scale = 1;
        bool shown = true;
        for (int k = m.rank - 1; k >= 0; k--) {
            int64_t next = rest / m.dim[k], at = rest - next * m.dim[k] - m.begin[k], place = at / m.step[k];
            rest = next;
            shown = shown && at >= 0 && place < m.size[k] && place * m.step[k] == at;
            from += place * scale;
            scale *= m.size[k];
        }
        dx[i] = shown ? dy[from] : U();
    }
}

lk_status run_slice_grad(const lk_call *call)
{
    const movement *m = (const movement *)call->state;
    if (!m->count) return LK_OK;
    int grid = lki_cuda_grid(m->cuda, m->count);
    LKI_CUDA_UNIT_SWITCH(m->nbytes, U, {
        slice_grad_kernel<U><<<grid, LKI_CUDA_BLOCK, 0, m->cuda->compute>>>(*m, (const U *)call->in[0].data,
                                                                            (U *)call->out[0].data);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

/* Axes that the slice shows whole are merged with the one before where that is whole too. */
lk_status prepare_slice_grad(movement *m, lk_call *call)
{
    lk_shape in = call->in[0].shape, out = call->out[0].shape;
    bool was_whole = false;
    for (int i = 0; i < out.rank; i++) {
        bool whole = in.dim[i] == out.dim[i];
        if (whole && was_whole) {
            m->dim[m->rank - 1] *= out.dim[i];
            m->size[m->rank - 1] *= out.dim[i];
            continue;
        }
        was_whole = whole;
        m->dim[m->rank] = out.dim[i];
        m->size[m->rank] = in.dim[i];
        m->begin[m->rank] = whole ? 0 : call->attr->slice.begin[i];
        m->step[m->rank++] = whole ? 1 : call->attr->slice.step[i];
    }
    call->run = run_slice_grad;
    return LK_OK;
}

/* ---- slices_grad: zeros, then every part is added at its places, one after another ---- */

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    part_kernel(lki_cuda_view view, int64_t count, const T *dy, T *dx)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride) {
        int64_t to = lki_cuda_offset<int64_t>(view, i);
        dx[to] = lki_cuda_narrow<T>::of(lki_cuda_widen(dx[to]) + lki_cuda_widen(dy[i]));
    }
}

template <typename T> lk_status add_part(const movement *m, const lk_call *call, int k)
{
    lk_shape whole = call->out[0].shape, part = call->in[k].shape;
    const lk_slice_attr *slice = &call->attr->slices.parts[k];
    int64_t stride[LK_MAX_DIMS], first = 0, count = lki_cuda_count(&call->in[k]);
    lki_cuda_view view = {};
    lki_cuda_strides(whole, stride);
    for (int i = 0; i < whole.rank; i++) {
        first += slice->begin[i] * stride[i];
        lki_cuda_view_add(&view, part.dim[i], stride[i] * slice->step[i]);
    }
    if (!count) return LK_OK;
    part_kernel<T><<<lki_cuda_grid(m->cuda, count), LKI_CUDA_BLOCK, 0, m->cuda->compute>>>(
        view, count, lki_cuda_in<T>(call, k), lki_cuda_out<T>(call, 0) + first);
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_slices_grad(const lk_call *call)
{
    const movement *m = (const movement *)call->state;
    if (!m->count) return LK_OK;
    LKI_CUDA(cudaMemsetAsync(call->out[0].data, 0, (size_t)m->count * m->nbytes, m->cuda->compute));
    for (int k = 0; k < call->input_count; k++) {
        LKI_CUDA_FLOAT_SWITCH(call->out[0].dtype, T, LKI_TRY(add_part<T>(m, call, k)))
    }
    return LK_OK;
}

/* ---- concat ---- */

enum { PARTS = 16 };

/* Some of the inputs, in units: the rows of the output from column `first` on are theirs. */
struct parts {
    int count;
    int64_t outer, out_row, first, row; /* row: of these inputs together */
    const void *data[PARTS];
    int64_t begin[PARTS + 1]; /* columns, from `first` on */
};

template <typename U> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) concat_kernel(parts p, U *out)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK, count = p.outer * p.row;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < count; i += stride) {
        int64_t line = i / p.row, column = i - line * p.row;
        int k = 0;
        while (column >= p.begin[k + 1]) k++;
        const U *from = (const U *)p.data[k];
        int64_t size = p.begin[k + 1] - p.begin[k];
        out[line * p.out_row + p.first + column] = from[line * size + column - p.begin[k]];
    }
}

/* Bytes that every row and address of a concat is a multiple of. */
size_t concat_unit(const lk_call *call, int64_t inner, size_t nbytes)
{
    size_t unit = 16;
    for (; unit > nbytes; unit /= 2) {
        bool fits = lki_cuda_is_aligned(call->out[0].data, unit);
        for (int k = 0; k < call->input_count; k++) {
            size_t row = (size_t)(call->in[k].shape.dim[call->attr->axis.axis] * inner) * nbytes;
            fits = fits && row % unit == 0 && lki_cuda_is_aligned(call->in[k].data, unit);
        }
        if (fits) break;
    }
    return unit;
}

lk_status launch_parts(const movement *m, const parts &p, void *out, size_t unit)
{
    int64_t count = p.outer * p.row;
    if (!count) return LK_OK;
    int grid = lki_cuda_grid(m->cuda, count);
    LKI_CUDA_UNIT_SWITCH(unit, U,
                         { concat_kernel<U><<<grid, LKI_CUDA_BLOCK, 0, m->cuda->compute>>>(p, (U *)out); })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_concat(const lk_call *call)
{
    const movement *m = (const movement *)call->state;
    lk_shape shape = call->out[0].shape;
    int axis = call->attr->axis.axis;
    int64_t inner = lki_cuda_span(shape, axis + 1, shape.rank);
    size_t unit = concat_unit(call, inner, m->nbytes);
    int64_t each = (int64_t)(unit / m->nbytes);
    parts p = {};
    p.outer = lki_cuda_span(shape, 0, axis);
    p.out_row = shape.dim[axis] * inner / each;
    for (int k = 0; k < call->input_count; k++) {
        int64_t size = call->in[k].shape.dim[axis] * inner / each;
        p.data[p.count] = call->in[k].data;
        p.begin[p.count + 1] = p.begin[p.count] + size;
        p.row = p.begin[++p.count];
        if (p.count < PARTS && k + 1 < call->input_count) continue;
        LKI_TRY(launch_parts(m, p, call->out[0].data, unit));
        p.first += p.row;
        p.count = 0;
    }
    return LK_OK;
}

bool is_supported(const lk_call *call)
{
    for (int k = 0; k < call->input_count; k++)
        if (call->in[k].dtype != call->out[0].dtype) return false;
    return true;
}

} // namespace

lk_status lki_cuda_prepare_movement(lki_cuda *cuda, lk_call *call)
{
    if (!is_supported(call))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel that moves %s to %s",
                             lki_cuda_dtype_name(call->in[0].dtype), lki_cuda_dtype_name(call->out[0].dtype));
    if (call->op == LK_OP_PAD || call->op == LK_OP_PAD_GRAD) return lki_cuda_prepare_pad(cuda, call);
    movement *m = (movement *)lki_cuda_new_state(call, sizeof *m);
    if (!m) return LK_ERR_NOMEM;
    m->cuda = cuda;
    m->count = lki_cuda_count(&call->out[0]);
    m->nbytes = lki_cuda_dtype_nbytes(call->out[0].dtype);
    switch (call->op) {
    case LK_OP_PERMUTE: return prepare_permute(m, call);
    case LK_OP_SLICE: return prepare_slice(m, call);
    case LK_OP_SLICE_GRAD: return prepare_slice_grad(m, call);
    case LK_OP_SLICES_GRAD: call->run = run_slices_grad; return LK_OK;
    default: call->run = run_concat; return LK_OK;
    }
}
