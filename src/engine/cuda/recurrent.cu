/* Recurrent layers: one direction of one layer. Each step is a launch of its own, or three on the way back: a
 * thread adds up one unit's products by itself, in order. Simple rather than fast: nobody has measured it on
 * a GPU. */
#include "engine/cuda/kernels.cuh"

namespace
{

/* The sizes of a layer; see LK_OP_LIST. */
struct layer {
    lk_recurrent kind;
    bool reverse, projected;
    int64_t steps, batch, gates, hidden, width, rows, saved, state; /* T, N, G, H, R, G H, S, R [+ H] */
    const int64_t *lengths;                                         /* or NULL */
};

struct recurrent_state {
    lki_cuda *cuda;
    layer l;
    lki_cuda_check check;
};

/* A length that is wrong has been reported; no memory beyond the operands is touched for it. */
__device__ int64_t length_of(const layer &l, int64_t n)
{
    if (!l.lengths) return l.steps;
    int64_t length = l.lengths[n];
    return length < 0 ? 0 : length > l.steps ? l.steps : length;
}

template <typename W> __device__ W sigmoid_of(W x)
{
    return (W)1 / ((W)1 + exp(-x));
}

/* The sum of a[i] b[i stride]. */
template <typename T> __device__ T dot(const T *a, const T *b, int64_t stride, int64_t count)
{
    T sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i * stride];
    return sum;
}

#define FOR_EACH(i, count)                                                                                   \
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < (count);                        \
         i += (int64_t)gridDim.x * LKI_CUDA_BLOCK)

__global__ void __launch_bounds__(LKI_CUDA_BLOCK)
    check_kernel(layer l, unsigned long long *fault, int *found, int number)
{
    FOR_EACH(n, l.batch)
    {
        int64_t length = l.lengths[n];
        if (length < 0 || length > l.steps) lki_cuda_report(fault, found, number, n);
    }
}

/* ---- forward ---- */

template <typename T> struct forward {
    layer l;
    const T *x, *w_hh, *b_hh, *h0, *c0, *w_hr;
    T *y, *last, *saved;
    T *h[2], *c, *raw; /* scratch: the state before and after a step, and an h to project */
};

/* The first states into the scratch. */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) begin_kernel(forward<T> f)
{
    FOR_EACH(i, f.l.batch * f.l.width) f.h[0][i] = f.h0 ? f.h0[i] : (T)0;
    FOR_EACH(i, f.l.batch * f.l.hidden) f.c[i] = f.c0 ? f.c0[i] : (T)0;
}

/* One unit of one sequence at step t, from h[from] to h[1 - from], or to raw. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) step_kernel(forward<T> f, int64_t t, int from)
{
    const layer &l = f.l;
    FOR_EACH(i, l.batch * l.hidden)
    {
        int64_t n = i / l.hidden, j = i - n * l.hidden, at = t * l.batch + n;
        bool is_over = t >= length_of(l, n);
        T gate[4] = {0, 0, 0, 0}, extra = 0, h = 0;
        for (int g = 0; g < l.gates && !is_over; g++) {
            int64_t row = g * l.hidden + j;
            T share = dot(f.w_hh + row * l.width, f.h[from] + n * l.width, 1, l.width);
            if (f.b_hh) share += f.b_hh[row];
            T x = f.x[at * l.rows + row];
            if (l.kind == LK_RECURRENT_GRU && g == 2) {
                extra = share;
                gate[2] = tanh(x + gate[0] * share);
            } else if (l.kind == LK_RECURRENT_RNN_RELU) {
                T sum = x + share;
                gate[0] = sum > 0 || sum != sum ? sum : (T)0;
            } else {
                bool is_tanh = l.kind == LK_RECURRENT_RNN_TANH || g == 2;
                gate[g] = is_tanh ? tanh(x + share) : sigmoid_of(x + share);
            }
        }
        if (l.kind == LK_RECURRENT_LSTM && !is_over) {
            extra = f.c[i] = gate[1] * f.c[i] + gate[0] * gate[2];
            h = gate[3] * tanh(extra);
        } else if (l.kind == LK_RECURRENT_GRU && !is_over) {
            h = gate[2] + gate[1] * (f.h[from][i] - gate[2]);
        } else {
            h = gate[0];
        }
        if (f.saved && l.saved) {
            for (int g = 0; g < l.gates; g++) f.saved[at * l.saved + g * l.hidden + j] = gate[g];
            f.saved[at * l.saved + l.rows + j] = extra;
        }
        if (l.projected) {
            f.raw[i] = h;
        } else {
            f.h[1 - from][i] = is_over ? f.h[from][i] : h;
            if (f.y) f.y[at * l.width + j] = is_over ? (T)0 : h;
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) project_kernel(forward<T> f, int64_t t, int from)
{
    const layer &l = f.l;
    FOR_EACH(i, l.batch * l.width)
    {
        int64_t n = i / l.width, k = i - n * l.width;
        bool is_over = t >= length_of(l, n);
        T h = is_over ? (T)0 : dot(f.w_hr + k * l.hidden, f.raw + n * l.hidden, 1, l.hidden);
        f.h[1 - from][i] = is_over ? f.h[from][i] : h;
        if (f.y) f.y[t * l.batch * l.width + i] = h;
    }
}

/* (N, R [+ H]) = h and c side by side. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) end_kernel(layer l, const T *h, const T *c, T *out)
{
    FOR_EACH(i, l.batch * l.state)
    {
        int64_t n = i / l.state, k = i - n * l.state;
        out[i] = k < l.width ? h[n * l.width + k] : c[n * l.hidden + k - l.width];
    }
}

template <typename T> lk_status run_forward(const lk_call *call)
{
    const recurrent_state *state = (const recurrent_state *)call->state;
    lki_cuda *cuda = state->cuda;
    cudaStream_t stream = cuda->compute;
    forward<T> f = {};
    f.l = state->l;
    f.l.lengths = lki_cuda_in<int64_t>(call, 6);
    const layer &l = f.l;
    f.x = lki_cuda_in<T>(call, 0), f.w_hh = lki_cuda_in<T>(call, 1), f.b_hh = lki_cuda_in<T>(call, 2);
    f.h0 = lki_cuda_in<T>(call, 3), f.c0 = lki_cuda_in<T>(call, 4), f.w_hr = lki_cuda_in<T>(call, 5);
    f.y = lki_cuda_out<T>(call, 0), f.last = lki_cuda_out<T>(call, 1), f.saved = lki_cuda_out<T>(call, 2);
    f.h[0] = (T *)call->scratch, f.h[1] = f.h[0] + l.batch * l.width, f.c = f.h[1] + l.batch * l.width;
    f.raw = f.c + l.batch * l.hidden;
    if (!l.batch || !l.hidden) return LK_OK;
    if (l.lengths)
        check_kernel<<<lki_cuda_grid(cuda, l.batch), LKI_CUDA_BLOCK, 0, stream>>>(
            l, cuda->fault.first, cuda->fault.found_on_device, state->check.number);
    int units = lki_cuda_grid(cuda, l.batch * l.hidden), columns = lki_cuda_grid(cuda, l.batch * l.width);
    begin_kernel<T><<<units, LKI_CUDA_BLOCK, 0, stream>>>(f);
    for (int64_t i = 0; i < l.steps; i++) {
        int64_t t = l.reverse ? l.steps - 1 - i : i;
        step_kernel<T><<<units, LKI_CUDA_BLOCK, 0, stream>>>(f, t, (int)(i % 2));
        if (l.projected) project_kernel<T><<<columns, LKI_CUDA_BLOCK, 0, stream>>>(f, t, (int)(i % 2));
    }
    if (f.last)
        end_kernel<T><<<lki_cuda_grid(cuda, l.batch * l.state), LKI_CUDA_BLOCK, 0, stream>>>(
            l, f.h[l.steps % 2], f.c, f.last);
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- back through the steps ---- */

template <typename T> struct backward {
    layer l;
    const T *y, *saved, *w_hh, *dy, *dlast, *h0, *c0, *w_hr;
    T *dgates, *dfirst, *dh_out;
    T *dh, *dc, *shares, *rest; /* scratch: (N, R), (N, H), (N, G H): of h's shares, (N, H): z dh of a GRU */
};

template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) begin_back_kernel(backward<T> b)
{
    const layer &l = b.l;
    FOR_EACH(i, l.batch * l.width)
    b.dh[i] = b.dlast ? b.dlast[i / l.width * l.state + i % l.width] : (T)0;
    bool has_cell = l.state > l.width;
    FOR_EACH(i, l.batch * l.hidden)
    b.dc[i] = b.dlast && has_cell ? b.dlast[i / l.hidden * l.state + l.width + i % l.hidden] : (T)0;
}

/* dh += dy of the step. */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) add_kernel(backward<T> b, int64_t t)
{
    const layer &l = b.l;
    FOR_EACH(i, l.batch * l.width)
    {
        int64_t at = t * l.batch * l.width + i;
        bool is_over = t >= length_of(l, i / l.width);
        if (b.dy && !is_over) b.dh[i] += b.dy[at];
        if (b.dh_out) b.dh_out[at] = is_over ? (T)0 : b.dh[i];
    }
}

/* One unit of one sequence at step t; the formulas stand in engine/ref/recurrent.c. */
template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) step_back_kernel(backward<T> b, int64_t t)
{
    const layer &l = b.l;
    FOR_EACH(i, l.batch * l.hidden)
    {
        int64_t n = i / l.hidden, j = i - n * l.hidden, at = t * l.batch + n, length = length_of(l, n);
        int64_t before = at + (l.reverse ? l.batch : -l.batch);
        bool is_over = t >= length, is_first = t == (l.reverse ? length - 1 : 0);
        T d[4] = {0, 0, 0, 0}, gate[4] = {0, 0, 0, 0}, extra = 0, dh = 0;
        if (!is_over) {
            dh = l.projected ? dot(b.dh + n * l.width, b.w_hr + j, l.hidden, l.width) : b.dh[i];
            for (int g = 0; g < l.gates && l.saved; g++) gate[g] = b.saved[at * l.saved + g * l.hidden + j];
            if (l.saved) extra = b.saved[at * l.saved + l.rows + j];
        }
        if (is_over) {
            /* nothing */
        } else if (l.kind == LK_RECURRENT_LSTM) {
            T tanh_c = tanh(extra), dc = b.dc[i] + dh * gate[3] * (1 - tanh_c * tanh_c);
            T c = is_first ? (b.c0 ? b.c0[i] : (T)0) : b.saved[before * l.saved + l.rows + j];
            d[0] = dc * gate[2] * gate[0] * (1 - gate[0]);
            d[1] = dc * c * gate[1] * (1 - gate[1]);
            d[2] = dc * gate[0] * (1 - gate[2] * gate[2]);
            d[3] = dh * tanh_c * gate[3] * (1 - gate[3]);
            b.dc[i] = dc * gate[1];
        } else if (l.kind == LK_RECURRENT_GRU) {
            T h = is_first ? (b.h0 ? b.h0[i] : (T)0) : b.y[before * l.width + j];
            d[1] = dh * (h - gate[2]) * gate[1] * (1 - gate[1]);
            d[2] = dh * (1 - gate[1]) * (1 - gate[2] * gate[2]);
            d[0] = d[2] * extra * gate[0] * (1 - gate[0]);
        } else {
            T y = b.y[at * l.width + j];
            d[0] = l.kind == LK_RECURRENT_RNN_TANH ? dh * (1 - y * y) : y > 0 ? dh : (T)0;
        }
        b.rest[i] = l.kind == LK_RECURRENT_GRU ? dh * gate[1] : (T)0;
        for (int g = 0; g < l.gates; g++) {
            bool scaled = l.kind == LK_RECURRENT_GRU && g == 2;
            b.shares[n * l.rows + g * l.hidden + j] = scaled ? d[2] * gate[0] : d[g];
            if (b.dgates) b.dgates[at * l.rows + g * l.hidden + j] = d[g];
        }
    }
}

/* dh of the state before the step. */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) carry_kernel(backward<T> b, int64_t t)
{
    const layer &l = b.l;
    FOR_EACH(i, l.batch * l.width)
    {
        int64_t n = i / l.width, k = i - n * l.width;
        if (t >= length_of(l, n)) continue;
        T rest = l.kind == LK_RECURRENT_GRU ? b.rest[i] : (T)0;
        b.dh[i] = rest + dot(b.shares + n * l.rows, b.w_hh + k, l.width, l.rows);
    }
}

template <typename T> lk_status run_backward(const lk_call *call)
{
    const recurrent_state *state = (const recurrent_state *)call->state;
    lki_cuda *cuda = state->cuda;
    cudaStream_t stream = cuda->compute;
    backward<T> b = {};
    b.l = state->l;
    b.l.lengths = lki_cuda_in<int64_t>(call, 8);
    const layer &l = b.l;
    b.y = lki_cuda_in<T>(call, 0), b.saved = lki_cuda_in<T>(call, 1), b.w_hh = lki_cuda_in<T>(call, 2);
    b.dy = lki_cuda_in<T>(call, 3), b.dlast = lki_cuda_in<T>(call, 4), b.h0 = lki_cuda_in<T>(call, 5);
    b.c0 = lki_cuda_in<T>(call, 6), b.w_hr = lki_cuda_in<T>(call, 7);
    b.dgates = lki_cuda_out<T>(call, 0), b.dfirst = lki_cuda_out<T>(call, 1);
    b.dh_out = l.projected ? lki_cuda_out<T>(call, 2) : NULL;
    b.dh = (T *)call->scratch, b.dc = b.dh + l.batch * l.width, b.rest = b.dc + l.batch * l.hidden;
    b.shares = b.rest + l.batch * l.hidden;
    if (!l.batch || !l.hidden) return LK_OK;
    int units = lki_cuda_grid(cuda, l.batch * l.hidden), columns = lki_cuda_grid(cuda, l.batch * l.width);
    begin_back_kernel<T><<<units, LKI_CUDA_BLOCK, 0, stream>>>(b);
    for (int64_t i = l.steps - 1; i >= 0; i--) {
        int64_t t = l.reverse ? l.steps - 1 - i : i;
        add_kernel<T><<<columns, LKI_CUDA_BLOCK, 0, stream>>>(b, t);
        step_back_kernel<T><<<units, LKI_CUDA_BLOCK, 0, stream>>>(b, t);
        carry_kernel<T><<<columns, LKI_CUDA_BLOCK, 0, stream>>>(b, t);
    }
    if (b.dfirst)
        end_kernel<T>
            <<<lki_cuda_grid(cuda, l.batch * l.state), LKI_CUDA_BLOCK, 0, stream>>>(l, b.dh, b.dc, b.dfirst);
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- the weights' gradients ---- */

template <typename T> struct weights {
    layer l;
    const T *dgates, *y, *saved, *h0, *dh;
    T *dw_hh, *db_hh, *dw_hr;
};

/* Element (g, k) of dw_hh, or with k = R element g of db_hh: the sum over all steps of all sequences. */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) weight_kernel(weights<T> w)
{
    const layer &l = w.l;
    FOR_EACH(i, l.rows * (l.width + 1))
    {
        int64_t g = i / (l.width + 1), k = i - g * (l.width + 1);
        bool is_bias = k == l.width, scaled = l.kind == LK_RECURRENT_GRU && g >= 2 * l.hidden;
        T sum = 0;
        for (int64_t t = 0; t < l.steps; t++)
            for (int64_t n = 0; n < l.batch; n++) {
                int64_t at = t * l.batch + n, length = length_of(l, n);
                if (t >= length) continue;
                bool is_first = t == (l.reverse ? length - 1 : 0);
                T d = w.dgates[at * l.rows + g], h = 1;
                if (scaled) d *= w.saved[at * l.saved + g - 2 * l.hidden];
                if (!is_bias && is_first) h = w.h0 ? w.h0[n * l.width + k] : (T)0;
                if (!is_bias && !is_first) h = w.y[(at + (l.reverse ? l.batch : -l.batch)) * l.width + k];
                sum += d * h;
            }
        if (is_bias && w.db_hh) w.db_hh[g] = sum;
        if (!is_bias && w.dw_hh) w.dw_hh[g * l.width + k] = sum;
    }
}

/* dw_hr = dh^T (o tanh c) */
template <typename T> __global__ void __launch_bounds__(LKI_CUDA_BLOCK) projection_kernel(weights<T> w)
{
    const layer &l = w.l;
    FOR_EACH(i, l.width * l.hidden)
    {
        int64_t k = i / l.hidden, j = i - k * l.hidden;
        T sum = 0;
        for (int64_t at = 0; at < l.steps * l.batch; at++) {
            const T *saved = w.saved + at * l.saved + j;
            sum += w.dh[at * l.width + k] * saved[3 * l.hidden] * tanh(saved[4 * l.hidden]);
        }
        w.dw_hr[i] = sum;
    }
}

template <typename T> lk_status run_weights(const lk_call *call)
{
    const recurrent_state *state = (const recurrent_state *)call->state;
    weights<T> w = {};
    w.l = state->l;
    w.l.lengths = lki_cuda_in<int64_t>(call, 5);
    w.dgates = lki_cuda_in<T>(call, 0), w.y = lki_cuda_in<T>(call, 1), w.saved = lki_cuda_in<T>(call, 2);
    w.h0 = lki_cuda_in<T>(call, 3), w.dh = lki_cuda_in<T>(call, 4);
    w.dw_hh = lki_cuda_out<T>(call, 0), w.db_hh = lki_cuda_out<T>(call, 1);
    w.dw_hr = w.dh ? lki_cuda_out<T>(call, 2) : NULL;
    const layer &l = w.l;
    cudaStream_t stream = state->cuda->compute;
    if (!l.rows) return LK_OK;
    weight_kernel<T><<<lki_cuda_grid(state->cuda, l.rows * (l.width + 1)), LKI_CUDA_BLOCK, 0, stream>>>(w);
    if (w.dw_hr)
        projection_kernel<T>
            <<<lki_cuda_grid(state->cuda, l.width * l.hidden), LKI_CUDA_BLOCK, 0, stream>>>(w);
    LKI_LAUNCHED();
    return LK_OK;
}

/* ---- prepare ---- */

template <typename T> lk_status run(const lk_call *call)
{
    switch (call->op) {
    case LK_OP_RECURRENT: return run_forward<T>(call);
    case LK_OP_RECURRENT_GRAD: return run_backward<T>(call);
    default: return run_weights<T>(call);
    }
}

void describe(layer *l, const lk_call *call)
{
    lk_shape first = call->in[0].shape, second = call->in[1].shape;
    l->kind = call->attr->recurrent.kind;
    l->reverse = call->attr->recurrent.reverse;
    l->gates = l->kind == LK_RECURRENT_LSTM ? 4 : l->kind == LK_RECURRENT_GRU ? 3 : 1;
    l->steps = first.dim[0];
    l->batch = first.dim[1];
    l->rows = call->op == LK_OP_RECURRENT_GRAD ? call->in[2].shape.dim[0] : first.dim[2];
    l->width = call->op == LK_OP_RECURRENT_GRAD ? first.dim[2] : second.dim[second.rank - 1];
    l->hidden = l->rows / l->gates;
    l->saved = l->gates > 1 ? (l->gates + 1) * l->hidden : 0;
    l->state = l->width + (l->kind == LK_RECURRENT_LSTM ? l->hidden : 0);
    int projection = call->op == LK_OP_RECURRENT ? 5 : 7;
    l->projected = projection < call->input_count && call->in[projection].shape.rank == 2;
}

void free_state(void *data)
{
    recurrent_state *state = (recurrent_state *)data;
    if (state->check.number) lki_cuda_check_fini(state->cuda, &state->check);
    lki_host->free(state);
}

} // namespace

lk_status lki_cuda_prepare_recurrent(lki_cuda *cuda, lk_call *call)
{
    lk_dtype dtype = call->in[0].dtype;
    if (dtype != LK_F32 && dtype != LK_F64)
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for a recurrent layer of %s",
                             lki_cuda_dtype_name(dtype));
    recurrent_state *state = (recurrent_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    call->free_state = free_state;
    state->cuda = cuda;
    describe(&state->l, call);
    const layer &l = state->l;
    call->scratch_nbytes =
        (size_t)(l.batch * (2 * l.width + 2 * l.hidden + l.rows)) * lki_cuda_dtype_nbytes(dtype);
    call->run = dtype == LK_F32 ? run<float> : run<double>;
    if (call->op != LK_OP_RECURRENT || call->in[6].shape.rank == 0) return LK_OK;
    return lki_cuda_check_init(cuda, call, 6, l.steps + 1, &state->check);
}
