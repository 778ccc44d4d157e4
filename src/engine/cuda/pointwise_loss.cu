/* Losses between numbers: one term an element, then a reduction, in f64 and in order; where it is wanted, the
 * gradient beside it. */
#include "engine/cuda/kernels.cuh"
#include "engine/cuda/loss.cuh"

namespace
{

struct operands {
    const void *dloss, *x, *target, *weight, *pos_weight;
    int64_t count;
    double parameter, divisor;
    bool whole; /* one loss for all */
    unsigned long long *fault;
    int *fault_found, fault_number;
};

/* One element's operands; b is the loss's parameter. */
template <typename W> struct term {
    W x, t, weight, pos_weight, b;
};

template <typename W> __device__ W softplus(W x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

/* PyTorch's bce never lets a logarithm fall below -100. */
template <typename W> __device__ W clamped_log(W x)
{
    return lki_cuda_larger((W)log(x), (W)-100);
}

/* x / b: mostly b is 1, and divisions are what these kernels spend their time with. */
template <typename W> __device__ W over(W x, W b)
{
    return b == (W)1 ? x : x / b;
}

template <int MODE, typename W> __device__ W value_of(const term<W> &v)
{
    W d = v.x - v.t, size = fabs(d);
    switch (MODE) {
    case LK_LOSS_MSE: return d * d;
    case LK_LOSS_L1: return size;
    case LK_LOSS_SMOOTH_L1: return size < v.b ? over((W)0.5 * d * d, v.b) : size - (W)0.5 * v.b;
    case LK_LOSS_HUBER: return size <= v.b ? (W)0.5 * d * d : v.b * (size - (W)0.5 * v.b);
    case LK_LOSS_BCE: return v.weight * ((v.t - 1) * clamped_log(1 - v.x) - v.t * clamped_log(v.x));
    case LK_LOSS_BCE_WITH_LOGITS:
        return v.weight * ((1 - v.t) * v.x + ((v.pos_weight - 1) * v.t + 1) * softplus(-v.x));
    default:
        if (v.b != 0) return (W)exp(v.t) * (v.t - v.x);
        return v.t > 0 ? v.t * ((W)log(v.t) - v.x) : (W)0;
    }
}

/* d value / d x. */
template <int MODE, typename W> __device__ W slope_of(const term<W> &v)
{
    W d = v.x - v.t;
    switch (MODE) {
    case LK_LOSS_MSE: return 2 * d;
    case LK_LOSS_L1: return (W)((d > 0) - (d < 0));
    case LK_LOSS_SMOOTH_L1:
        return d <= -v.b ? (W)-1 : d >= v.b ? (W)1 : over(d, v.b); /* -1 at 0 with b = 0, as in PyTorch */
    case LK_LOSS_HUBER: return d <= -v.b ? -v.b : d >= v.b ? v.b : d;
    case LK_LOSS_BCE: return v.weight * d / lki_cuda_larger((1 - v.x) * v.x, (W)1e-12);
    case LK_LOSS_BCE_WITH_LOGITS:
        return v.weight * ((1 - v.t) - ((v.pos_weight - 1) * v.t + 1) / (1 + (W)exp(v.x)));
    default:
        if (v.b != 0) return -(W)exp(v.t);
        return v.t > 0 ? -v.t : (W)0;
    }
}

template <typename T> __device__ term<typename lki_cuda_wide<T>::type> term_at(const operands &o, int64_t i)
{
    using W = typename lki_cuda_wide<T>::type;
    term<W> v;
    v.x = lki_cuda_widen(((const T *)o.x)[i]);
    v.t = lki_cuda_widen(((const T *)o.target)[i]);
    v.weight = o.weight ? (W)lki_cuda_widen(((const T *)o.weight)[i]) : (W)1;
    v.pos_weight = o.pos_weight ? (W)lki_cuda_widen(((const T *)o.pos_weight)[i]) : (W)1;
    v.b = (W)o.parameter;
    return v;
}

/* One loss for all: where it goes, what the blocks leave for the last of them, and where its gradient is
 * wanted. */
struct joint {
    void *out, *dx;
    double *parts;
    unsigned *ticket;
};

template <typename T, int MODE>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) loss_kernel(operands o, T *out)
{
    using W = typename lki_cuda_wide<T>::type;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < o.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        term<W> v = term_at<T>(o, i);
        if (MODE == LK_LOSS_BCE && !(v.x >= 0 && v.x <= 1))
            lki_cuda_report(o.fault, o.fault_found, o.fault_number, i);
        out[i] = lki_cuda_narrow<T>::of(value_of<MODE>(v));
    }
}

/* The terms of N neighbours from element i on, added up; their gradients. */
template <typename T, int MODE, int N>
__device__ double add_pack(const operands &o, const joint &j, int64_t i,
                           typename lki_cuda_wide<T>::type scale)
{
    using W = typename lki_cuda_wide<T>::type;
    lki_cuda_pack<T, N> x = *(const lki_cuda_pack<T, N> *)((const T *)o.x + i),
                        t = *(const lki_cuda_pack<T, N> *)((const T *)o.target + i), dx;
    double sum = 0;
#pragma unroll
    for (int k = 0; k < N; k++) {
        term<W> v = {lki_cuda_widen(x.at[k]), lki_cuda_widen(t.at[k]), (W)1, (W)1, (W)o.parameter};
        if (o.weight) v.weight = lki_cuda_widen(((const T *)o.weight)[i + k]);
        if (o.pos_weight) v.pos_weight = lki_cuda_widen(((const T *)o.pos_weight)[i + k]);
        if (MODE == LK_LOSS_BCE && !(v.x >= 0 && v.x <= 1))
            lki_cuda_report(o.fault, o.fault_found, o.fault_number, i + k);
        sum += value_of<MODE>(v);
        dx.at[k] = lki_cuda_narrow<T>::of(scale * slope_of<MODE>(v));
    }
    if (j.dx) *(lki_cuda_pack<T, N> *)((T *)j.dx + i) = dx;
    return sum;
}

template <typename T, int MODE, int N>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) joint_kernel(operands o, joint j)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, stride = (int64_t)gridDim.x * blockDim.x;
    W scale = (W)1 / (W)o.divisor;
    double sum = 0;
#pragma unroll 2
    for (int64_t i = first; i < o.count / N; i += stride) sum += add_pack<T, MODE, N>(o, j, i * N, scale);
    for (int64_t i = o.count / N * N + first; N > 1 && i < o.count; i += stride)
        sum += add_pack<T, MODE, 1>(o, j, i, scale);
    sum = lki_cuda_block_sum(sum);
    if (gridDim.x > 1) {
        if (threadIdx.x == 0) j.parts[blockIdx.x] = sum;
        if (!lki_cuda_is_last(j.ticket, gridDim.x)) return;
        sum = 0;
        for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += __ldcg(&j.parts[i]);
        sum = lki_cuda_block_sum(sum);
    }
    if (threadIdx.x == 0 && j.out) *(T *)j.out = lki_cuda_narrow<T>::of((W)(sum / o.divisor));
}

template <typename T, int MODE>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) grad_kernel(operands o, T *dx)
{
    using W = typename lki_cuda_wide<T>::type;
    const T *dloss = (const T *)o.dloss;
    W divisor = (W)o.divisor, whole = o.whole ? lki_cuda_widen(dloss[0]) / divisor : (W)0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < o.count;
         i += (int64_t)gridDim.x * blockDim.x) {
        W g = o.whole ? whole : (W)lki_cuda_widen(dloss[i]);
        dx[i] = lki_cuda_narrow<T>::of(g * slope_of<MODE>(term_at<T>(o, i)));
    }
}

/* ---- Launches ---- */

struct pointwise_state {
    lki_cuda *cuda;
    lki_cuda_check check; /* number 0: this call checks nothing */
    double divisor;
    unsigned *ticket;
};

enum { ONE_BLOCK = 1024, MAX_GRID = 1024 };

/* Blocks for one loss of all: few elements are over sooner in one. */
template <typename T, int MODE> void launch_joint(const operands &o, const joint &j, lki_cuda *cuda)
{
    constexpr int width = 16 / sizeof(T);
    bool wide = ((uintptr_t)o.x | (uintptr_t)o.target | (uintptr_t)j.dx) % 16 == 0;
    int grid = lki_cuda_grid(cuda, wide ? (o.count + width - 1) / width : o.count);
    if (grid > MAX_GRID) grid = MAX_GRID;
    if (o.count <= ONE_BLOCK) grid = 1;
    if (wide)
        joint_kernel<T, MODE, width><<<grid, LKI_CUDA_BLOCK, 0, cuda->compute>>>(o, j);
    else
        joint_kernel<T, MODE, 1><<<grid, LKI_CUDA_BLOCK, 0, cuda->compute>>>(o, j);
}

template <typename T, int MODE> lk_status launch(const lk_call *call, const operands &o, lki_cuda *cuda)
{
    const pointwise_state *state = (const pointwise_state *)call->state;
    T *out = lki_cuda_out<T>(call, 0);
    int grid = lki_cuda_grid(cuda, o.count);
    bool is_gradient = call->op == LK_OP_POINTWISE_LOSS_GRAD;
    if (!is_gradient && o.whole) {
        joint j = {out, lki_cuda_out<void>(call, 1), (double *)call->scratch, state->ticket};
        launch_joint<T, MODE>(o, j, cuda);
    } else if (o.count && !is_gradient) {
        loss_kernel<T, MODE><<<grid, LKI_CUDA_BLOCK, 0, cuda->compute>>>(o, out);
    } else if (o.count) {
        grad_kernel<T, MODE><<<grid, LKI_CUDA_BLOCK, 0, cuda->compute>>>(o, out);
    }
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> lk_status launch_mode(const lk_call *call, const operands &o, lki_cuda *cuda)
{
    switch (call->attr->pointwise_loss.kind) {
    case LK_LOSS_MSE: return launch<T, LK_LOSS_MSE>(call, o, cuda);
    case LK_LOSS_L1: return launch<T, LK_LOSS_L1>(call, o, cuda);
    case LK_LOSS_SMOOTH_L1: return launch<T, LK_LOSS_SMOOTH_L1>(call, o, cuda);
    case LK_LOSS_HUBER: return launch<T, LK_LOSS_HUBER>(call, o, cuda);
    case LK_LOSS_BCE: return launch<T, LK_LOSS_BCE>(call, o, cuda);
    case LK_LOSS_BCE_WITH_LOGITS: return launch<T, LK_LOSS_BCE_WITH_LOGITS>(call, o, cuda);
    case LK_LOSS_KL_DIV: return launch<T, LK_LOSS_KL_DIV>(call, o, cuda);
    }
    return LK_OK;
}

lk_status run(const lk_call *call)
{
    const pointwise_state *state = (const pointwise_state *)call->state;
    int first = call->op == LK_OP_POINTWISE_LOSS_GRAD ? 1 : 0;
    operands o = {};
    o.dloss = first ? call->in[0].data : NULL;
    o.x = call->in[first].data;
    o.target = call->in[first + 1].data;
    o.weight = lki_cuda_in<void>(call, first + 2);
    o.pos_weight = lki_cuda_in<void>(call, first + 3);
    o.count = lki_cuda_count(&call->in[first]);
    o.parameter = call->attr->pointwise_loss.parameter;
    o.divisor = state->divisor;
    o.whole = call->attr->pointwise_loss.reduction != LK_REDUCTION_NONE;
    o.fault = state->cuda->fault.first;
    o.fault_found = state->cuda->fault.found_on_device;
    o.fault_number = state->check.number;
    LKI_CUDA_FLOAT_SWITCH(call->in[first].dtype, T, return launch_mode<T>(call, o, state->cuda))
    return LK_OK;
}

void free_state(void *data)
{
    pointwise_state *state = (pointwise_state *)data;
    if (state->check.number) lki_cuda_check_fini(state->cuda, &state->check);
    lki_host->free(state);
}

double divisor_of(const lk_pointwise_loss_attr *attr, lk_shape shape)
{
    if (attr->reduction == LK_REDUCTION_MEAN) return (double)lki_cuda_span(shape, 0, shape.rank);
    if (attr->reduction == LK_REDUCTION_BATCH_MEAN) return shape.rank ? (double)shape.dim[0] : 1;
    return 1;
}

} // namespace

/* A loss and its gradient read the same tensors: both at once cost what one costs. */
lk_preference lki_cuda_loss_preference(const lk_call *call)
{
    bool whole = call->attr->pointwise_loss.reduction != LK_REDUCTION_NONE;
    return call->op == LK_OP_POINTWISE_LOSS_WITH_GRAD && whole ? LK_PREFERRED : LK_IMPOSSIBLE;
}

lk_status lki_cuda_prepare_pointwise_loss(lki_cuda *cuda, lk_call *call)
{
    int first = call->op == LK_OP_POINTWISE_LOSS_GRAD ? 1 : 0;
    lk_dtype dtype = call->in[first].dtype;
    bool same = lki_cuda_is_float(dtype) && call->out[0].dtype == dtype;
    for (int i = 0; i < call->input_count; i++)
        same = same && (!call->in[i].data || call->in[i].dtype == dtype);
    int kind = (int)call->attr->pointwise_loss.kind;
    if (!same || kind < LK_LOSS_MSE || kind > LK_LOSS_KL_DIV)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for loss %d of %s", kind,
                             lki_cuda_dtype_name(dtype));
    pointwise_state *state = (pointwise_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    call->free_state = free_state;
    state->cuda = cuda;
    state->divisor = divisor_of(&call->attr->pointwise_loss, call->in[first].shape);
    if (!first && kind == LK_LOSS_BCE) LKI_TRY(lki_cuda_check_init(cuda, call, 0, 2, &state->check));
    call->scratch_nbytes = MAX_GRID * sizeof(double);
    state->ticket = lki_cuda_take_tickets(cuda, 1);
    call->run = run;
    return LK_OK;
}
