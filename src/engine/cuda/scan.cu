/* Ops that walk along the lines of one axis: running sums and products by one thread per line, and sorting,
 * where every element counts those of its line that stand before it. */
#include "engine/cuda/kernels.cuh"

namespace
{

struct lines {
    lki_cuda *cuda;
    int64_t count, length, stride, kept; /* kept: how many of a sorted line */
};

/* Where element k of line i lies, if a line has `length` elements. */
__device__ int64_t place(const lines &l, int64_t length, int64_t i, int64_t k)
{
    return i / l.stride * length * l.stride + i % l.stride + k * l.stride;
}

/* Sums in double, as the reference engine. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    scan_kernel(lines l, bool multiplies, bool reverse, const T *x, T *y)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < l.count; i += stride) {
        double sum = multiplies ? 1 : 0;
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = place(l, l.length, i, reverse ? l.length - 1 - j : j);
            double value = lki_cuda_widen(x[at]);
            sum = multiplies ? sum * value : sum + value;
            y[at] = lki_cuda_narrow<T>::of(sum);
        }
    }
}

/* dx_k = the product of x before k times s_k, with s_k = dy_k + x_(k+1) s_(k+1), which waits in dx. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    product_grad_kernel(lines l, bool reverse, const T *dy, const T *x, T *dx)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < l.count; i += stride) {
        double after = 0, before = 1;
        for (int64_t j = l.length - 1; j >= 0; j--) {
            int64_t at = place(l, l.length, i, reverse ? l.length - 1 - j : j);
            after += lki_cuda_widen(dy[at]);
            dx[at] = lki_cuda_narrow<T>::of(after);
            after *= lki_cuda_widen(x[at]);
        }
        for (int64_t j = 0; j < l.length; j++) {
            int64_t at = place(l, l.length, i, reverse ? l.length - 1 - j : j);
            /* what comes after a zero may be infinite by now */
            dx[at] = lki_cuda_narrow<T>::of(before == 0 ? 0.0 : before * lki_cuda_widen(dx[at]));
            before *= lki_cuda_widen(x[at]);
        }
    }
}

/* Whether a stands before b, where places decide between equals. A NaN is larger than any number. */
template <typename W> __device__ bool is_before(W a, int64_t at_a, W b, int64_t at_b, bool descending)
{
    bool nan_a = a != a, nan_b = b != b;
    if ((nan_a && nan_b) || a == b) return at_a < at_b;
    bool larger = nan_a || (!nan_b && a > b);
    return larger == descending;
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    sort_kernel(lines l, bool descending, const T *x, T *values, int64_t *index)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK, count = l.count * l.length;
    for (int64_t e = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; e < count; e += stride) {
        int64_t i = e / l.length, j = e - i * l.length, rank = 0;
        T own = x[place(l, l.length, i, j)];
        for (int64_t k = 0; k < l.length; k++)
            rank +=
                is_before(lki_cuda_widen(x[place(l, l.length, i, k)]), k, lki_cuda_widen(own), j, descending);
        if (rank >= l.kept) continue;
        int64_t to = place(l, l.kept, i, rank);
        if (values) values[to] = own;
        if (index) index[to] = j;
    }
}

template <typename T> lk_status launch(const lk_call *call)
{
    const lines *l = (const lines *)call->state;
    cudaStream_t stream = l->cuda->compute;
    const lk_attr *attr = call->attr;
    int grid = lki_cuda_grid(l->cuda, call->op == LK_OP_SORT ? l->count * l->length : l->count);
    if (call->op == LK_OP_SORT)
        sort_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(*l, attr->sort.descending,
                                                            lki_cuda_in<T>(call, 0), lki_cuda_out<T>(call, 0),
                                                            lki_cuda_out<int64_t>(call, 1));
    else if (call->op == LK_OP_CUMPROD_GRAD)
        product_grad_kernel<T>
            <<<grid, LKI_CUDA_BLOCK, 0, stream>>>(*l, attr->scan.reverse, lki_cuda_in<T>(call, 0),
                                                  lki_cuda_in<T>(call, 1), lki_cuda_out<T>(call, 0));
    else
        scan_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, stream>>>(*l, call->op == LK_OP_CUMPROD, attr->scan.reverse,
                                                            lki_cuda_in<T>(call, 0),
                                                            lki_cuda_out<T>(call, 0));
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    const lines *l = (const lines *)call->state;
    if (!l->count || !l->length) return LK_OK;
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, return launch<T>(call))
    return LK_OK;
}

} // namespace

lk_status lki_cuda_prepare_scan(lki_cuda *cuda, lk_call *call)
{
    lk_shape shape = call->in[0].shape;
    bool sorts = call->op == LK_OP_SORT;
    int axis = sorts ? call->attr->sort.axis : call->attr->scan.axis;
    if (!lki_cuda_is_float(call->in[0].dtype) ||
        (call->out[0].data && call->out[0].dtype != call->in[0].dtype))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for %s of %s",
                             lki_cuda_op_name(call->op), lki_cuda_dtype_name(call->in[0].dtype));
    lines *l = (lines *)lki_cuda_new_state(call, sizeof *l);
    if (!l) return LK_ERR_NOMEM;
    l->cuda = cuda;
    l->length = shape.rank ? shape.dim[axis] : 1;
    l->stride = shape.rank ? lki_cuda_span(shape, axis + 1, shape.rank) : 1;
    l->count = shape.rank ? lki_cuda_span(shape, 0, axis) * l->stride : 1;
    l->kept = sorts && call->attr->sort.count ? call->attr->sort.count : l->length;
    call->run = run;
    return LK_OK;
}
