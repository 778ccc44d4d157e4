/* cuDNN: convolutions over its descriptors, by plain loops. cudnn_graph.cc has its graphs. */
#include "convolution.h"

#include <string.h>

#include <vector>

using namespace lkt_gpu;

number lkt_gpu::number_of(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE: return F64;
    case CUDNN_DATA_BFLOAT16: return BF16;
    case CUDNN_DATA_HALF: return F16;
    case CUDNN_DATA_FLOAT: return F32;
    default: refuse("cuDNN of data type %d is not emulated", (int)type);
    }
}

namespace
{

int64_t count_of(const sides &s)
{
    int64_t count = 1;
    for (int i = 0; i < RANK; i++) count *= s.dim[i];
    return count;
}

void set_axes(sides *s, int rank, const int *dim, const int *stride)
{
    int missing = RANK - rank;
    for (int i = 0; i < RANK; i++) {
        bool is_there = i < 2 || i >= 2 + missing;
        int from = i < 2 ? i : i - missing;
        s->dim[i] = is_there ? dim[from] : 1;
        s->stride[i] = is_there ? stride[from] : 0;
    }
}

} // namespace

struct cudnnTensorStruct : sides {
};

struct cudnnFilterStruct : sides {
};

struct cudnnConvolutionStruct : window {
    cudnnMathType_t math;
};

namespace
{

/* A tensor as one dense array of doubles, and back. */
std::vector<double> gather(const sides &s, const void *data)
{
    std::vector<double> out((size_t)count_of(s));
    int64_t at[RANK] = {0};
    for (size_t i = 0; i < out.size(); i++) {
        int64_t offset = 0;
        for (int k = 0; k < RANK; k++) offset += at[k] * s.stride[k];
        out[i] = load(data, s.type, offset);
        for (int k = RANK - 1; k >= 0 && ++at[k] == s.dim[k]; k--) at[k] = 0;
    }
    return out;
}

void scatter(const sides &s, void *data, const std::vector<double> &from)
{
    int64_t at[RANK] = {0};
    for (size_t i = 0; i < from.size(); i++) {
        int64_t offset = 0;
        for (int k = 0; k < RANK; k++) offset += at[k] * s.stride[k];
        store(data, s.type, offset, from[i]);
        for (int k = RANK - 1; k >= 0 && ++at[k] == s.dim[k]; k--) at[k] = 0;
    }
}

/* Places of the output side along one axis that meet the input side for one place of the window. */
void range(const convolution &c, int axis, int64_t tap, int64_t *begin, int64_t *end)
{
    int64_t shift = tap * c.how.dilation[axis] - c.how.padding[axis], stride = c.how.stride[axis];
    *begin = 0;
    *end = c.out.dim[2 + axis];
    while (*begin < *end && *begin * stride + shift < 0) ++*begin;
    while (*end > *begin && (*end - 1) * stride + shift >= c.in.dim[2 + axis]) --*end;
}

/* Calls f(x, y, count, step) for the lines of one channel pair and one place of the window: y[i] meets
 * x[i * step], both counted within their channel. */
template <typename F> void over_lines(const convolution &c, const int64_t *tap, const F &f)
{
    int64_t begin[AXES], end[AXES], shift[AXES];
    for (int a = 0; a < AXES; a++) {
        range(c, a, tap[a], &begin[a], &end[a]);
        shift[a] = tap[a] * c.how.dilation[a] - c.how.padding[a];
    }
    if (begin[2] >= end[2]) return;
    for (int64_t i = begin[0]; i < end[0]; i++)
        for (int64_t j = begin[1]; j < end[1]; j++) {
            int64_t x = (i * c.how.stride[0] + shift[0]) * c.in.dim[3] + j * c.how.stride[1] + shift[1];
            f(x * c.in.dim[4] + begin[2] * c.how.stride[2] + shift[2],
              (i * c.out.dim[3] + j) * c.out.dim[4] + begin[2], end[2] - begin[2], c.how.stride[2]);
        }
}

/* Calls f(x0, y0, w, tap) for every pair of channels of every sample and every place of the window. */
template <typename F> void over_pairs(const convolution &c, const F &f)
{
    const int64_t *k = &c.weight.dim[2];
    int64_t in_size = c.in.dim[2] * c.in.dim[3] * c.in.dim[4];
    int64_t out_size = c.out.dim[2] * c.out.dim[3] * c.out.dim[4], taps = k[0] * k[1] * k[2];
    int64_t outs = c.out.dim[1], group_in = c.weight.dim[1], group_out = outs / c.how.groups;
    for (int64_t n = 0; n < c.in.dim[0]; n++)
        for (int64_t o = 0; o < outs; o++)
            for (int64_t i = 0; i < group_in; i++) {
                int64_t x = (n * c.in.dim[1] + o / group_out * group_in + i) * in_size;
                int64_t y = (n * outs + o) * out_size, w = (o * group_in + i) * taps;
                for (int64_t t = 0; t < taps; t++) {
                    int64_t tap[AXES] = {t / k[2] / k[1], t / k[2] % k[1], t % k[2]};
                    f(x, y, w + t, tap);
                }
            }
}

void check(const convolution &c)
{
    bool fits = c.in.dim[0] == c.out.dim[0] && c.in.dim[1] == c.weight.dim[1] * c.how.groups &&
                c.out.dim[1] == c.weight.dim[0];
    for (int a = 0; a < AXES; a++) {
        int64_t window = c.how.dilation[a] * (c.weight.dim[2 + a] - 1) + 1;
        int64_t size = (c.in.dim[2 + a] + 2 * c.how.padding[a] - window) / c.how.stride[a] + 1;
        fits = fits && size == c.out.dim[2 + a];
    }
    if (!fits) refuse("cuDNN: the descriptors of a convolution do not fit each other");
}

void forward(const convolution &c, const std::vector<double> &x, const std::vector<double> &w,
             std::vector<double> &y)
{
    over_pairs(c, [&](int64_t x0, int64_t y0, int64_t at, const int64_t *tap) {
        over_lines(c, tap, [&](int64_t from, int64_t to, int64_t count, int64_t step) {
            const double *in = &x[(size_t)(x0 + from)];
            double *out = &y[(size_t)(y0 + to)], factor = w[(size_t)at];
            for (int64_t i = 0; i < count; i++) out[i] += factor * in[i * step];
        });
    });
}

void backward_data(const convolution &c, std::vector<double> &x, const std::vector<double> &w,
                   const std::vector<double> &y)
{
    over_pairs(c, [&](int64_t x0, int64_t y0, int64_t at, const int64_t *tap) {
        over_lines(c, tap, [&](int64_t to, int64_t from, int64_t count, int64_t step) {
            double *out = &x[(size_t)(x0 + to)], factor = w[(size_t)at];
            const double *in = &y[(size_t)(y0 + from)];
            for (int64_t i = 0; i < count; i++) out[i * step] += factor * in[i];
        });
    });
}

void backward_weight(const convolution &c, const std::vector<double> &x, std::vector<double> &w,
                     const std::vector<double> &y)
{
    over_pairs(c, [&](int64_t x0, int64_t y0, int64_t at, const int64_t *tap) {
        over_lines(c, tap, [&](int64_t first, int64_t second, int64_t count, int64_t step) {
            const double *a = &x[(size_t)(x0 + first)], *b = &y[(size_t)(y0 + second)];
            double sum = 0;
            for (int64_t i = 0; i < count; i++) sum += a[i * step] * b[i];
            w[(size_t)at] += sum;
        });
    });
}

/* First one that nobody may take, then one that all may. */
template <typename Perf>
cudnnStatus_t answer(const cudnnConvolutionStruct *how, int wanted, int *count, Perf *out)
{
    memset(out, 0, sizeof *out * (size_t)wanted);
    out[0].determinism = CUDNN_NON_DETERMINISTIC;
    out[1].determinism = CUDNN_DETERMINISTIC;
    for (int i = 0; i < 2; i++) {
        out[i].status = CUDNN_STATUS_SUCCESS;
        out[i].memory = CONVOLUTION_WORKSPACE_NBYTES;
        out[i].mathType = how->math;
    }
    out[1].algo = (decltype(out[1].algo))1;
    *count = 2;
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

void lkt_gpu::convolve(cudnnHandle_t handle, const convolution &c, role computed, const void *left,
                       const void *right, void *to, void *workspace)
{
    check(c);
    enqueue(handle->stream, [=] {
        memset(workspace, 0xff, CONVOLUTION_WORKSPACE_NBYTES);
        const sides &l = computed == IN ? c.out : c.in, &r = computed == WEIGHT ? c.out : c.weight;
        const sides &t = computed == OUT ? c.out : computed == IN ? c.in : c.weight;
        std::vector<double> a = gather(l, left), b = gather(r, right), sum((size_t)count_of(t));
        if (computed == OUT) forward(c, a, b, sum);
        if (computed == IN) backward_data(c, sum, b, a);
        if (computed == WEIGHT) backward_weight(c, a, sum, b);
        scatter(t, to, sum);
    });
}

namespace
{

cudnnStatus_t run(cudnnHandle_t handle, const convolution &c, role computed, const void *alpha,
                  const void *beta, const void *left, const void *right, void *to, void *workspace,
                  size_t nbytes)
{
    number scale = c.in.type == F64 ? F64 : F32;
    if (load(alpha, scale, 0) != 1 || load(beta, scale, 0) != 0) refuse("cuDNN with factors is not emulated");
    if (nbytes < CONVOLUTION_WORKSPACE_NBYTES || !workspace) return CUDNN_STATUS_BAD_PARAM;
    convolve(handle, c, computed, left, right, to, workspace);
    return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    void *memory;
    if (cudaMalloc(&memory, 1 << 20) != cudaSuccess)
        return CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
    *handle = new cudnnContext();
    (*handle)->memory = memory;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    cudaFree(handle->memory);
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
    return 1;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_SUCCESS ? "success" : "a failure of the emulated cuDNN";
}

/* ---- Descriptors ---- */

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *out)
{
    *out = new cudnnTensorStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor, cudnnDataType_t type, int rank,
                                         const int *dim, const int *stride)
{
    if (rank < 4 || rank > RANK) return CUDNN_STATUS_BAD_PARAM;
    tensor->type = number_of(type);
    set_axes(tensor, rank, dim, stride);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    delete tensor;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *out)
{
    *out = new cudnnFilterStruct();
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int rank, const int *dim)
{
    int stride[RANK], next = format == CUDNN_TENSOR_NHWC ? dim[1] : 1;
    if (rank < 4 || rank > RANK) return CUDNN_STATUS_BAD_PARAM;
    for (int i = rank - 1; i >= 2; i--) {
        stride[i] = next;
        next *= dim[i];
    }
    stride[1] = format == CUDNN_TENSOR_NHWC ? 1 : next;
    stride[0] = format == CUDNN_TENSOR_NHWC ? next : next * dim[1];
    filter->type = number_of(type);
    set_axes(filter, rank, dim, stride);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    delete filter;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *out)
{
    *out = new cudnnConvolutionStruct();
    (*out)->groups = 1;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t how, int axes, const int *padding,
                                              const int *stride, const int *dilation,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t)
{
    if (mode != CUDNN_CROSS_CORRELATION) refuse("turned windows are not emulated");
    for (int i = 0; i < AXES; i++) {
        int from = i - (AXES - axes);
        how->padding[i] = from < 0 ? 0 : padding[from];
        how->stride[i] = from < 0 ? 1 : stride[from];
        how->dilation[i] = from < 0 ? 1 : dilation[from];
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t how, int groups)
{
    how->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t how, cudnnMathType_t math)
{
    how->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t how)
{
    delete how;
    return CUDNN_STATUS_SUCCESS;
}

/* ---- Convolutions ---- */

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                     const cudnnFilterDescriptor_t,
                                                     const cudnnConvolutionDescriptor_t how,
                                                     const cudnnTensorDescriptor_t, const int wanted,
                                                     int *count, cudnnConvolutionFwdAlgoPerf_t *out)
{
    return answer(how, wanted, count, out);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, const cudnnFilterDescriptor_t,
                                                          const cudnnTensorDescriptor_t,
                                                          const cudnnConvolutionDescriptor_t how,
                                                          const cudnnTensorDescriptor_t, const int wanted,
                                                          int *count, cudnnConvolutionBwdDataAlgoPerf_t *out)
{
    return answer(how, wanted, count, out);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, const cudnnTensorDescriptor_t,
                                                            const cudnnTensorDescriptor_t,
                                                            const cudnnConvolutionDescriptor_t how,
                                                            const cudnnFilterDescriptor_t, const int wanted,
                                                            int *count,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *out)
{
    return answer(how, wanted, count, out);
}

/* Trials write to what they may write to, and answer as above. */
static cudnnStatus_t try_out(cudnnHandle_t handle, const convolution &c, role computed, const void *left,
                             const void *right, void *to, void *workspace, size_t nbytes)
{
    if (nbytes < CONVOLUTION_WORKSPACE_NBYTES || !workspace) return CUDNN_STATUS_BAD_PARAM;
    lkt_gpu::convolve(handle, c, computed, left, right, to, workspace);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(cudnnHandle_t handle, const cudnnTensorDescriptor_t in,
                                                     const void *x, const cudnnFilterDescriptor_t weight,
                                                     const void *w, const cudnnConvolutionDescriptor_t how,
                                                     const cudnnTensorDescriptor_t out, void *y,
                                                     const int wanted, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *to, void *workspace,
                                                     size_t nbytes)
{
    cudnnStatus_t status = try_out(handle, {*in, *out, *weight, *how}, OUT, x, w, y, workspace, nbytes);
    return status ? status : answer(how, wanted, count, to);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t weight, const void *w,
    const cudnnTensorDescriptor_t out, const void *dy, const cudnnConvolutionDescriptor_t how,
    const cudnnTensorDescriptor_t in, void *dx, const int wanted, int *count,
    cudnnConvolutionBwdDataAlgoPerf_t *to, void *workspace, size_t nbytes)
{
    cudnnStatus_t status = try_out(handle, {*in, *out, *weight, *how}, IN, dy, w, dx, workspace, nbytes);
    return status ? status : answer(how, wanted, count, to);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t in, const void *x, const cudnnTensorDescriptor_t out,
    const void *dy, const cudnnConvolutionDescriptor_t how, const cudnnFilterDescriptor_t weight, void *dw,
    const int wanted, int *count, cudnnConvolutionBwdFilterAlgoPerf_t *to, void *workspace, size_t nbytes)
{
    cudnnStatus_t status = try_out(handle, {*in, *out, *weight, *how}, WEIGHT, x, dy, dw, workspace, nbytes);
    return status ? status : answer(how, wanted, count, to);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                      const cudnnTensorDescriptor_t in, const void *x,
                                      const cudnnFilterDescriptor_t weight, const void *w,
                                      const cudnnConvolutionDescriptor_t how, cudnnConvolutionFwdAlgo_t,
                                      void *workspace, size_t nbytes, const void *beta,
                                      const cudnnTensorDescriptor_t out, void *y)
{
    return run(handle, {*in, *out, *weight, *how}, OUT, alpha, beta, x, w, y, workspace, nbytes);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           const cudnnFilterDescriptor_t weight, const void *w,
                                           const cudnnTensorDescriptor_t out, const void *dy,
                                           const cudnnConvolutionDescriptor_t how,
                                           cudnnConvolutionBwdDataAlgo_t, void *workspace, size_t nbytes,
                                           const void *beta, const cudnnTensorDescriptor_t in, void *dx)
{
    return run(handle, {*in, *out, *weight, *how}, IN, alpha, beta, dy, w, dx, workspace, nbytes);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             const cudnnTensorDescriptor_t in, const void *x,
                                             const cudnnTensorDescriptor_t out, const void *dy,
                                             const cudnnConvolutionDescriptor_t how,
                                             cudnnConvolutionBwdFilterAlgo_t, void *workspace, size_t nbytes,
                                             const void *beta, const cudnnFilterDescriptor_t weight, void *dw)
{
    return run(handle, {*in, *out, *weight, *how}, WEIGHT, alpha, beta, x, dy, dw, workspace, nbytes);
}
