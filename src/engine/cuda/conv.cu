/* conv, conv_grad_input, conv_grad_weight and conv_transpose: which convolution each one is, and who computes
 * it. cuDNN has those of many channels; ours are the small ones, and those of few channels, which wait for
 * memory. The choice depends on shapes and dtypes alone. */
#include "engine/cuda/conv.cuh"

/* Up to so many multiplications a convolution is ours; and up to so many weights a tap, with so many taps. */
static const int64_t MOST_WORK = (int64_t)1 << 19;
enum { MOST_CHANNEL_PAIRS = 256, MOST_TAPS = 27 };

typedef struct state {
    lki_cuda_conv conv;
    bool by_cudnn;
} state;

static bool is_ours(const lki_cuda_conv_shape *s)
{
    int64_t work = s->batch * s->window.out_size * lki_cuda_conv_weight_count(s);
    if (s->window.channels_last) return false;
    if (work <= MOST_WORK || !s->fits) return true;
    return (int64_t)s->group_in * s->group_out <= MOST_CHANNEL_PAIRS && s->window.kernel_size <= MOST_TAPS;
}

static bool has_expected_size(const lki_cuda_window *w)
{
    for (int i = 0; i < 3; i++) {
        const lki_cuda_axis &a = w->axis[i];
        int64_t reach = (int64_t)a.dilation * (a.kernel - 1) + 1;
        if ((a.in + 2 * (int64_t)a.padding - reach) / a.stride + 1 != a.out) return false;
    }
    return true;
}

/* The three tensors of a call by their parts. */
static lk_status describe(const lk_call *call, bool last, lki_cuda_conv_shape *s)
{
    const lk_window *window = &call->attr->conv.window;
    lk_shape in = call->in[0].shape, out = call->out[0].shape, weight = call->in[1].shape;
    s->role = LKI_CUDA_CONV_OUT;
    if (call->op == LK_OP_CONV_GRAD_INPUT || call->op == LK_OP_CONV_TRANSPOSE) {
        in = call->out[0].shape;
        out = call->in[0].shape;
        s->role = LKI_CUDA_CONV_IN;
    } else if (call->op == LK_OP_CONV_GRAD_WEIGHT) {
        in = call->in[1].shape;
        out = call->in[0].shape;
        weight = call->out[0].shape;
        s->role = LKI_CUDA_CONV_WEIGHT;
    }
    lk_window complete = *window; /* the kernel is the weight's, whatever the window says */
    for (int i = 0; i < window->rank; i++) complete.kernel[i] = weight.dim[2 + i];
    LKI_TRY(lki_cuda_window_of(&s->window, &complete, in, out, last));
    s->rank = window->rank;
    s->batch = in.dim[0];
    s->in_channels = (int)in.dim[1];
    s->out_channels = (int)out.dim[1];
    s->groups = window->groups > 0 ? (int)window->groups : 1;
    s->group_in = s->in_channels / s->groups;
    s->group_out = s->out_channels / s->groups;
    s->fits = has_expected_size(&s->window);
    return LK_OK;
}

static lki_cuda_conv_operands operands_of(const lk_call *call, lk_dtype dtype)
{
    lki_cuda_conv_operands o = {};
    o.left = call->in[0].data;
    o.right = call->in[1].data;
    o.to = lki_cuda_out<void>(call, 0);
    o.wide_to = call->out[0].dtype != dtype;
    if (call->op == LK_OP_CONV || call->op == LK_OP_CONV_TRANSPOSE) {
        o.bias = lki_cuda_in<void>(call, 2);
        o.wide_bias = o.bias && call->in[2].dtype != dtype;
    }
    if (call->op != LK_OP_CONV_GRAD_WEIGHT) {
        o.relu = call->attr->conv.activation == LK_ACTIVATION_RELU;
    } else if (call->attr->conv.wants_bias) {
        o.sums = lki_cuda_out<void>(call, 1);
        o.wide_sums = o.sums && call->out[1].dtype != dtype;
    }
    return o;
}

/* cuDNN's kernels may load 16 bytes at once. */
static bool is_aligned(const lki_cuda_conv_operands *o)
{
    return (((uintptr_t)o->left | (uintptr_t)o->right | (uintptr_t)o->to) & 15) == 0;
}

static lk_status run_conv(const lk_call *call)
{
    lki_cuda *cuda = lki_cuda_of(call);
    const state *s = (const state *)call->state;
    const lki_cuda_conv *conv = &s->conv;
    lki_cuda_conv_operands o = operands_of(call, conv->dtype);
    bool last = conv->shape.window.channels_last;
    if (s->by_cudnn && o.to && (is_aligned(&o) || last))
        return lki_cuda_run_cudnn(cuda, conv, &o, call->scratch);
    if (conv->shape.role != LKI_CUDA_CONV_WEIGHT) return o.to ? lki_cuda_run_direct(cuda, conv, &o) : LK_OK;
    if (!o.to) return o.sums ? lki_cuda_conv_sums(cuda, conv, &o) : LK_OK;
    cudaStream_t before;
    LKI_TRY(lki_cuda_begin_aside(cuda, call, &before));
    lk_status status = lki_cuda_run_weight(cuda, conv, &o, call->scratch);
    lki_cuda_end_aside(cuda, before);
    return status;
}

static void free_conv(void *data)
{
    lki_cuda_free_cudnn(&((state *)data)->conv.cudnn);
    lki_host->free(data);
}

lk_status lki_cuda_prepare_conv(lki_cuda *cuda, lk_call *call)
{
    LKI_TRY(lki_cuda_check_factors(call, "convolution"));
    state *s = (state *)lki_cuda_new_state(call, sizeof *s);
    if (!s) return LK_ERR_NOMEM;
    call->free_state = free_conv;
    call->run = run_conv;
    s->conv.dtype = call->in[0].dtype;
    LKI_TRY(describe(call, lki_cuda_is_last(call), &s->conv.shape));
    size_t own_nbytes = 0, cudnn_nbytes = 0;
    if (s->conv.shape.role == LKI_CUDA_CONV_WEIGHT) lki_cuda_plan_weight(cuda, &s->conv, &own_nbytes);
    if (!is_ours(&s->conv.shape))
        LKI_TRY(lki_cuda_plan_cudnn(cuda, &s->conv, call->out[0].dtype != s->conv.dtype, &s->by_cudnn,
                                    &cudnn_nbytes));
    call->scratch_nbytes = own_nbytes > cudnn_nbytes ? own_nbytes : cudnn_nbytes;
    bool is_weight = s->conv.shape.role == LKI_CUDA_CONV_WEIGHT;
    cuda->paths[s->by_cudnn ? LKI_CUDA_PATH_CONV_CUDNN
                : is_weight ? LKI_CUDA_PATH_CONV_WEIGHT
                            : LKI_CUDA_PATH_CONV_DIRECT]
        .entered++;
    if (s->by_cudnn && s->conv.cudnn.folds) cuda->paths[LKI_CUDA_PATH_CONV_FOLDED].entered++;
    if (s->by_cudnn) call->aside = false; /* its handle is the compute stream's, and so must its scratch be */
    if (s->by_cudnn || !s->conv.shape.window.channels_last) return LK_OK;
    return lki_cuda_fail(LK_ERR_UNSUPPORTED,
                         "cuDNN has no deterministic algorithm for this convolution of %s with "
                         "channels last",
                         lki_cuda_dtype_name(s->conv.dtype));
}

/* Tensor cores read planes with channels last. What is ours, or f32 without them, is better off row-major. */
lk_preference lki_cuda_conv_preference(lki_cuda *cuda, const lk_call *call)
{
    lki_cuda_conv conv = {};
    bool found = false;
    size_t nbytes;
    conv.dtype = call->in[0].dtype;
    if (lki_cuda_check_factors(call, "convolution") || describe(call, false, &conv.shape))
        return LK_IMPOSSIBLE;
    bool by_tensor_cores =
             conv.dtype == LK_BF16 || conv.dtype == LK_F16 || (conv.dtype == LK_F32 && cuda->tf32),
         prefers = by_tensor_cores && conv.shape.rank == 2 && !is_ours(&conv.shape);
    if (!conv.shape.fits || describe(call, true, &conv.shape)) return LK_IMPOSSIBLE;
    lk_status status = lki_cuda_plan_cudnn(cuda, &conv, call->out[0].dtype != conv.dtype, &found, &nbytes);
    lki_cuda_free_cudnn(&conv.cudnn);
    if (status || !found) return LK_IMPOSSIBLE;
    return prefers ? LK_PREFERRED : LK_POSSIBLE;
}
