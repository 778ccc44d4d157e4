/* Padding, and its gradient in the form of a sum: every element of dx adds up the padded elements that showed
 * it, in the order in which they lie. */
#include "engine/cuda/movement.cuh"

namespace
{

/* The axes of x and of the padded tensor; neighbours without padding are merged. */
struct padding {
    lk_pad_mode mode;
    int rank;
    int64_t dim[LK_MAX_DIMS], padded[LK_MAX_DIMS], begin[LK_MAX_DIMS];
    int64_t count; /* of the output */
};

struct pad_state {
    lki_cuda *cuda;
    padding p;
    unsigned long long value; /* the constant's bits */
};

/* Which element of an axis of `size` is seen at `index`, which may lie outside; -1 for the constant. */
__device__ int64_t padded_index(lk_pad_mode mode, int64_t index, int64_t size)
{
    if (index >= 0 && index < size) return index;
    switch (mode) {
    case LK_PAD_REFLECT: return index < 0 ? -index : 2 * (size - 1) - index;
    case LK_PAD_CIRCULAR: return ((index % size) + size) % size;
    case LK_PAD_REPLICATE: return index < 0 ? 0 : size - 1;
    default: return -1;
    }
}

template <typename U>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) pad_kernel(padding p, U value, const U *x, U *y)
{
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < p.count; i += stride) {
        int64_t rest = i, from = 0, scale = 1;
        bool inside = true;
        for (int k = p.rank - 1; k >= 0; k--) {
            int64_t next = rest / p.padded[k];
            int64_t at = padded_index(p.mode, rest - next * p.padded[k] - p.begin[k], p.dim[k]);
            rest = next;
            inside = inside && at >= 0;
            from += at * scale;
            scale *= p.dim[k];
        }
        y[i] = inside ? x[from] : value;
    }
}

/* The places of a padded axis that show element `at`: place[0..2] with reflection, else `count` places from
 * `first` on, `step` apart. */
struct shown {
    int64_t first, step, count, place[3];
};

__device__ void add_place(shown *s, int64_t place, int64_t padded)
{
    if (place >= 0 && place < padded) s->place[s->count++] = place;
}

__device__ shown shown_at(const padding &p, int axis, int64_t at)
{
    int64_t size = p.dim[axis], padded = p.padded[axis], begin = p.begin[axis], own = at + begin;
    shown s = {own, 1, 0, {0, 0, 0}};
    if (p.mode == LK_PAD_REFLECT) {
        if (at > 0) add_place(&s, begin - at, padded);
        add_place(&s, own, padded);
        if (at < size - 1) add_place(&s, begin + 2 * (size - 1) - at, padded);
        return s;
    }
    int64_t last = own;
    if (p.mode == LK_PAD_CIRCULAR) {
        s.step = size;
        s.first = (own % size + size) % size;
        last = padded - 1;
    } else if (p.mode == LK_PAD_REPLICATE) {
        if (at == 0) s.first = 0;
        if (at == size - 1) last = padded - 1;
    }
    if (s.first < 0) s.first = 0;
    if (last > padded - 1) last = padded - 1;
    if (own < 0 && p.mode == LK_PAD_CONSTANT) last = -1;
    s.count = last < s.first ? 0 : (last - s.first) / s.step + 1;
    return s;
}

template <typename T>
__global__ void __launch_bounds__(LKI_CUDA_BLOCK) pad_grad_kernel(padding p, const T *dy, T *dx)
{
    using W = typename lki_cuda_wide<T>::type;
    int64_t stride = (int64_t)gridDim.x * LKI_CUDA_BLOCK;
    for (int64_t i = (int64_t)blockIdx.x * LKI_CUDA_BLOCK + threadIdx.x; i < p.count; i += stride) {
        shown axis[LK_MAX_DIMS];
        int64_t rest = i, total = 1;
        for (int k = p.rank - 1; k >= 0; k--) {
            int64_t next = rest / p.dim[k];
            axis[k] = shown_at(p, k, rest - next * p.dim[k]);
            rest = next;
            total *= axis[k].count;
        }
        W sum = 0;
        for (int64_t t = 0; t < total; t++) {
            int64_t left = t, from = 0, scale = 1;
            for (int k = p.rank - 1; k >= 0; k--) {
                int64_t next = left / axis[k].count, which = left - next * axis[k].count;
                left = next;
                from +=
                    (p.mode == LK_PAD_REFLECT ? axis[k].place[which] : axis[k].first + which * axis[k].step) *
                    scale;
                scale *= p.padded[k];
            }
            sum += lki_cuda_widen(dy[from]);
        }
        dx[i] = lki_cuda_narrow<T>::of(sum);
    }
}

/* ---- Launches ---- */

lk_status run_pad(const lk_call *call)
{
    const pad_state *state = (const pad_state *)call->state;
    if (!state->p.count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, state->p.count);
    LKI_CUDA_UNIT_SWITCH(lki_cuda_dtype_nbytes(call->out[0].dtype), U, {
        U value;
        memcpy(&value, &state->value,
               sizeof value < sizeof state->value ? sizeof value : sizeof state->value);
        pad_kernel<U><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            state->p, value, (const U *)call->in[0].data, (U *)call->out[0].data);
    })
    LKI_LAUNCHED();
    return LK_OK;
}

lk_status run_pad_grad(const lk_call *call)
{
    const pad_state *state = (const pad_state *)call->state;
    if (!state->p.count) return LK_OK;
    int grid = lki_cuda_grid(state->cuda, state->p.count);
    LKI_CUDA_FLOAT_SWITCH(call->in[0].dtype, T, {
        pad_grad_kernel<T><<<grid, LKI_CUDA_BLOCK, 0, state->cuda->compute>>>(
            state->p, lki_cuda_in<T>(call, 0), lki_cuda_out<T>(call, 0));
    })
    LKI_LAUNCHED();
    return LK_OK;
}

template <typename T> unsigned long long bits_of(T value)
{
    unsigned long long bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

unsigned long long constant_bits(lk_dtype dtype, double value)
{
    switch (dtype) {
    case LK_F32: return bits_of((float)value);
    case LK_F64: return bits_of(value);
    case LK_BF16: return bits_of(__float2bfloat16_rn((float)value));
    case LK_F16: return bits_of(__float2half_rn((float)value));
    case LK_I64: return bits_of((int64_t)value);
    case LK_I32: return bits_of((int32_t)value);
    case LK_U8: return bits_of((uint8_t)value);
    case LK_BOOL: return value != 0;
    }
    return 0;
}

void describe(padding *p, const lk_pad_attr *attr, lk_shape x, lk_shape padded)
{
    bool was_whole = false;
    p->mode = attr->mode;
    for (int i = 0; i < x.rank; i++) {
        bool whole = attr->before[i] == 0 && attr->after[i] == 0;
        if (whole && was_whole) {
            p->dim[p->rank - 1] *= x.dim[i];
            p->padded[p->rank - 1] *= x.dim[i];
            continue;
        }
        was_whole = whole;
        p->dim[p->rank] = x.dim[i];
        p->padded[p->rank] = padded.dim[i];
        p->begin[p->rank++] = attr->before[i];
    }
}

} // namespace

lk_status lki_cuda_prepare_pad(lki_cuda *cuda, lk_call *call)
{
    bool backward = call->op == LK_OP_PAD_GRAD;
    if (backward && !lki_cuda_is_float(call->in[0].dtype))
        return lki_cuda_fail(LK_ERR_UNSUPPORTED, "the cuda engine has no kernel for pad_grad of %s",
                             lki_cuda_dtype_name(call->in[0].dtype));
    pad_state *state = (pad_state *)lki_cuda_new_state(call, sizeof *state);
    if (!state) return LK_ERR_NOMEM;
    state->cuda = cuda;
    state->p.count = lki_cuda_count(&call->out[0]);
    state->value = constant_bits(call->out[0].dtype, call->attr->pad.value);
    lk_shape in = call->in[0].shape, out = call->out[0].shape;
    describe(&state->p, &call->attr->pad, backward ? out : in, backward ? in : out);
    call->run = backward ? run_pad_grad : run_pad;
    return LK_OK;
}
