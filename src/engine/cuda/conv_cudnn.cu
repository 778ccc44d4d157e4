/* Convolutions by cuDNN: the first algorithm of its heuristic that gives the same bits each time. It is not
 * a measured one: the same shapes then get the same algorithm in every process. Where that was waived
 * (lk_engine_options.benchmark), it is the fastest of all in a trial. Those with channels last are planned by
 * conv_plan.cu. */
#include "engine/cuda/conv.cuh"

static const size_t MOST_WORKSPACE = (size_t)1 << 30, ALIGNMENT = 256;

static size_t align(size_t nbytes)
{
    return (nbytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static cudnnDataType_t type_of(lk_dtype dtype)
{
    switch (dtype) {
    case LK_F64: return CUDNN_DATA_DOUBLE;
    case LK_BF16: return CUDNN_DATA_BFLOAT16;
    case LK_F16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_FLOAT;
    }
}

/* cuDNN wants two spatial axes at least. */
static int axes_of(const lki_cuda_conv_shape *s)
{
    return s->rank < 3 ? 2 : 3;
}

/* One side, (n, c, s...). */
static lk_status describe_side(cudnnTensorDescriptor_t *out, cudnnDataType_t type,
                               const lki_cuda_conv_shape *s, bool is_in)
{
    int axes = axes_of(s), dim[5] = {(int)s->batch, is_in ? s->in_channels : s->out_channels}, stride[5];
    for (int i = 0; i < axes; i++) {
        const lki_cuda_axis &axis = s->window.axis[3 - axes + i];
        dim[2 + i] = is_in ? axis.in : axis.out;
    }
    int step = 1;
    for (int i = axes + 1; i >= 0; i--) {
        stride[i] = step;
        step *= dim[i];
    }
    LKI_CUDNN(cudnnCreateTensorDescriptor(out));
    LKI_CUDNN(cudnnSetTensorNdDescriptor(*out, type, axes + 2, dim, stride));
    return LK_OK;
}

static lk_status describe_weight(cudnnFilterDescriptor_t *out, cudnnDataType_t type,
                                 const lki_cuda_conv_shape *s)
{
    int axes = axes_of(s), dim[5] = {s->out_channels, s->group_in};
    for (int i = 0; i < axes; i++) dim[2 + i] = s->window.axis[3 - axes + i].kernel;
    LKI_CUDNN(cudnnCreateFilterDescriptor(out));
    LKI_CUDNN(cudnnSetFilterNdDescriptor(*out, type, CUDNN_TENSOR_NCHW, axes + 2, dim));
    return LK_OK;
}

static lk_status describe_window(cudnnConvolutionDescriptor_t *out, const lki_cuda_conv_shape *s,
                                 lk_dtype dtype, cudnnMathType_t math)
{
    int axes = axes_of(s), padding[3], stride[3], dilation[3];
    for (int i = 0; i < axes; i++) {
        const lki_cuda_axis &axis = s->window.axis[3 - axes + i];
        padding[i] = axis.padding;
        stride[i] = axis.stride;
        dilation[i] = axis.dilation;
    }
    cudnnDataType_t compute = dtype == LK_F64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    LKI_CUDNN(cudnnCreateConvolutionDescriptor(out));
    LKI_CUDNN(cudnnSetConvolutionNdDescriptor(*out, axes, padding, stride, dilation, CUDNN_CROSS_CORRELATION,
                                              compute));
    LKI_CUDNN(cudnnSetConvolutionGroupCount(*out, s->groups));
    LKI_CUDNN(cudnnSetConvolutionMathType(*out, math));
    return LK_OK;
}

/* cuDNN's answers for one convolution, the best first. */
template <typename Perf> struct answers {
    enum { MOST = 16 };
    Perf at[MOST];
    int count;
};

/* The first answer that can be had, and its math, which it wants back. */
template <typename Perf>
static lk_status choose(lki_cuda_descs *c, const answers<Perf> &a, cudnnMathType_t math, bool any_order,
                        bool *found)
{
    for (int i = 0; i < a.count; i++) {
        const Perf &p = a.at[i];
        if (p.status != CUDNN_STATUS_SUCCESS || (p.determinism != CUDNN_DETERMINISTIC && !any_order))
            continue;
        /* FMA forbids tensor cores; the rest may still choose not to use them. */
        if (p.memory > MOST_WORKSPACE || (math == CUDNN_FMA_MATH && p.mathType == CUDNN_TENSOR_OP_MATH))
            continue;
        c->algo = (int)p.algo;
        c->workspace_nbytes = p.memory;
        LKI_CUDNN(cudnnSetConvolutionMathType(c->conv, math == CUDNN_FMA_MATH ? math : p.mathType));
        *found = true;
        return LK_OK;
    }
    return LK_OK;
}

/* What a trial writes to and reads. */
typedef struct room {
    char *in, *out, *weight, *workspace; /* all NULL: no trial, the heuristic is asked */
} room;

/* Where there is no room for a trial there is none. */
static room make_room(const lki_cuda_conv_shape *s, cudnnDataType_t type)
{
    room r = {};
    size_t size = type == CUDNN_DATA_DOUBLE  ? 8
                  : type == CUDNN_DATA_FLOAT ? 4
                                             : 2,
           in = align(size * (size_t)lki_cuda_conv_in_count(s)),
           out = align(size * (size_t)lki_cuda_conv_out_count(s)),
           weight = align(size * (size_t)lki_cuda_conv_weight_count(s));
    if (cudaMalloc((void **)&r.in, in + out + weight + MOST_WORKSPACE) != cudaSuccess) {
        cudaGetLastError();
        return {};
    }
    r.out = r.in + in;
    r.weight = r.out + out;
    r.workspace = r.weight + weight;
    return r;
}

static cudnnStatus_t ask_out(cudnnHandle_t handle, const lki_cuda_descs *c, const room *r,
                             answers<cudnnConvolutionFwdAlgoPerf_t> *a)
{
    if (!r->in)
        return cudnnGetConvolutionForwardAlgorithm_v7(handle, c->in, c->weight, c->conv, c->out, a->MOST,
                                                      &a->count, a->at);
    return cudnnFindConvolutionForwardAlgorithmEx(handle, c->in, r->in, c->weight, r->weight, c->conv, c->out,
                                                  r->out, a->MOST, &a->count, a->at, r->workspace,
                                                  MOST_WORKSPACE);
}

static cudnnStatus_t ask_in(cudnnHandle_t handle, const lki_cuda_descs *c, const room *r,
                            answers<cudnnConvolutionBwdDataAlgoPerf_t> *a)
{
    if (!r->in)
        return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, c->weight, c->out, c->conv, c->in, a->MOST,
                                                           &a->count, a->at);
    return cudnnFindConvolutionBackwardDataAlgorithmEx(handle, c->weight, r->weight, c->out, r->out, c->conv,
                                                       c->in, r->in, a->MOST, &a->count, a->at, r->workspace,
                                                       MOST_WORKSPACE);
}

static cudnnStatus_t ask_weight(cudnnHandle_t handle, const lki_cuda_descs *c, const room *r,
                                answers<cudnnConvolutionBwdFilterAlgoPerf_t> *a)
{
    if (!r->in)
        return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle, c->in, c->out, c->conv, c->weight,
                                                             a->MOST, &a->count, a->at);
    return cudnnFindConvolutionBackwardFilterAlgorithmEx(handle, c->in, r->in, c->out, r->out, c->conv,
                                                         c->weight, r->weight, a->MOST, &a->count, a->at,
                                                         r->workspace, MOST_WORKSPACE);
}

/* One role's question and what is made of the answers. */
template <typename Perf>
static lk_status
ask(cudnnStatus_t (*question)(cudnnHandle_t, const lki_cuda_descs *, const room *, answers<Perf> *),
    cudnnHandle_t handle, lki_cuda_descs *c, cudnnMathType_t math, const room *r, bool *found)
{
    answers<Perf> a = {};
    if (question(handle, c, r, &a) != CUDNN_STATUS_SUCCESS) return LK_OK;
    return choose(c, a, math, r->in != NULL, found);
}

static lk_status ask_role(cudnnHandle_t handle, lki_cuda_conv_role role, lki_cuda_descs *c,
                          cudnnMathType_t math, const room *r, bool *found)
{
    switch (role) {
    case LKI_CUDA_CONV_OUT: return ask(ask_out, handle, c, math, r, found);
    case LKI_CUDA_CONV_IN: return ask(ask_in, handle, c, math, r, found);
    default: return ask(ask_weight, handle, c, math, r, found);
    }
}

static int64_t left_count(const lki_cuda_conv_shape *s)
{
    return s->role == LKI_CUDA_CONV_OUT ? lki_cuda_conv_in_count(s) : lki_cuda_conv_out_count(s);
}

static int64_t right_count(const lki_cuda_conv_shape *s)
{
    return s->role == LKI_CUDA_CONV_WEIGHT ? lki_cuda_conv_in_count(s) : lki_cuda_conv_weight_count(s);
}

/* Of 16-bit elements. */
static size_t in_nbytes(const lki_cuda_conv_shape *s)
{
    return align(sizeof(uint16_t) * (size_t)lki_cuda_conv_in_count(s));
}

static size_t weight_nbytes(const lki_cuda_conv_shape *s)
{
    return align(sizeof(uint16_t) * (size_t)lki_cuda_conv_weight_count(s));
}

/* Short factors with a wide result: widened to f32 they are exact in TF32, so that tensor cores give what
 * exact products give. */
static cudnnMathType_t math_of(const lki_cuda *cuda, const lki_cuda_conv *conv)
{
    if (conv->cudnn.widens) return CUDNN_DEFAULT_MATH;
    if (conv->dtype == LK_BF16 || conv->dtype == LK_F16) return CUDNN_TENSOR_OP_MATH;
    return conv->dtype == LK_F32 && cuda->tf32 ? CUDNN_DEFAULT_MATH : CUDNN_FMA_MATH;
}

static lk_status plan_last(lki_cuda *cuda, lki_cuda_conv *conv, cudnnDataType_t type)
{
    lki_cuda_conv_shape s = conv->cudnn.folds ? lki_cuda_fold_shape(&conv->shape) : conv->shape;
    return lki_cuda_find_conv_plan(cuda, &s, type, math_of(cuda, conv) != CUDNN_FMA_MATH, &conv->cudnn.plan,
                                   &conv->cudnn.workspace_nbytes);
}

/* The descriptors and an algorithm of a row-major convolution. */
static lk_status plan_row_major(lki_cuda *cuda, lki_cuda_conv *conv, cudnnDataType_t type, bool *found)
{
    cudnnHandle_t handle;
    lki_cuda_descs *c = &conv->cudnn;
    const lki_cuda_conv_shape *s = &conv->shape;
    cudnnMathType_t math = math_of(cuda, conv);
    LKI_TRY(lki_cuda_cudnn(cuda, &handle));
    LKI_TRY(describe_side(&c->in, type, s, true));
    LKI_TRY(describe_side(&c->out, type, s, false));
    LKI_TRY(describe_weight(&c->weight, type, s));
    LKI_TRY(describe_window(&c->conv, s, conv->dtype, math));
    room r = cuda->benchmark ? make_room(s, type) : room{};
    lk_status status = ask_role(handle, s->role, c, math, &r, found);
    cudaFree(r.in);
    return status;
}

lk_status lki_cuda_plan_cudnn(lki_cuda *cuda, lki_cuda_conv *conv, bool wide_to, bool *found,
                              size_t *scratch_nbytes)
{
    lki_cuda_descs *c = &conv->cudnn;
    const lki_cuda_conv_shape *s = &conv->shape;
    *found = false;
    *scratch_nbytes = 0;
    if (lki_cuda_conv_in_count(s) > INT32_MAX || lki_cuda_conv_out_count(s) > INT32_MAX) return LK_OK;
    c->turns = s->role == LKI_CUDA_CONV_WEIGHT && s->window.channels_last;
    c->widens = wide_to && !c->turns && (conv->dtype == LK_BF16 || conv->dtype == LK_F16);
    c->folds = !c->widens && lki_cuda_conv_folds(conv);
    cudnnDataType_t type = c->widens ? CUDNN_DATA_FLOAT : type_of(conv->dtype);
    if (s->window.channels_last) {
        LKI_TRY(plan_last(cuda, conv, type));
        *found = c->plan != NULL;
    } else {
        LKI_TRY(plan_row_major(cuda, conv, type, found));
    }
    if (!*found) return LK_OK;
    *scratch_nbytes = ALIGNMENT + align(c->workspace_nbytes);
    if (c->widens)
        *scratch_nbytes +=
            align(sizeof(float) * (size_t)left_count(s)) + align(sizeof(float) * (size_t)right_count(s));
    if (c->folds) {
        lki_cuda_conv_shape folded = lki_cuda_fold_shape(s);
        *scratch_nbytes += in_nbytes(&folded) + weight_nbytes(&folded);
    } else if (c->turns)
        *scratch_nbytes += align(lki_cuda_dtype_nbytes(conv->dtype) * (size_t)lki_cuda_conv_weight_count(s));
    return LK_OK;
}

static lk_status run_plan(lki_cuda *cuda, const lki_cuda_conv *conv, const void *left, const void *right,
                          void *to, void *workspace)
{
    const lki_cuda_conv_plan *plan = conv->cudnn.plan;
    switch (conv->shape.role) {
    case LKI_CUDA_CONV_OUT: return lki_cuda_run_conv_plan(cuda, plan, left, right, to, workspace);
    case LKI_CUDA_CONV_IN: return lki_cuda_run_conv_plan(cuda, plan, to, right, left, workspace);
    default: return lki_cuda_run_conv_plan(cuda, plan, right, to, left, workspace);
    }
}

/* One product of the three tensors, into the one that is wanted. */
static lk_status convolve(lki_cuda *cuda, const lki_cuda_conv *conv, const void *left, const void *right,
                          void *to, void *workspace)
{
    static const float one_f32 = 1, zero_f32 = 0;
    static const double one_f64 = 1, zero_f64 = 0;
    const lki_cuda_descs *c = &conv->cudnn;
    cudnnHandle_t handle = cuda->cudnn;
    bool f64 = conv->dtype == LK_F64;
    const void *one = f64 ? (const void *)&one_f64 : &one_f32,
               *zero = f64 ? (const void *)&zero_f64 : &zero_f32;
    size_t nbytes = c->workspace_nbytes;
    switch (conv->shape.role) {
    case LKI_CUDA_CONV_OUT:
        LKI_CUDNN(cudnnConvolutionForward(handle, one, c->in, left, c->weight, right, c->conv,
                                          (cudnnConvolutionFwdAlgo_t)c->algo, workspace, nbytes, zero, c->out,
                                          to));
        break;
    case LKI_CUDA_CONV_IN:
        LKI_CUDNN(cudnnConvolutionBackwardData(handle, one, c->weight, right, c->out, left, c->conv,
                                               (cudnnConvolutionBwdDataAlgo_t)c->algo, workspace, nbytes,
                                               zero, c->in, to));
        break;
    default:
        LKI_CUDNN(cudnnConvolutionBackwardFilter(handle, one, c->in, right, c->out, left, c->conv,
                                                 (cudnnConvolutionBwdFilterAlgo_t)c->algo, workspace, nbytes,
                                                 zero, c->weight, to));
        break;
    }
    return LK_OK;
}

/* Wide copies of the factors, in `rest`. */
static lk_status widen_factors(lki_cuda *cuda, const lki_cuda_conv *conv, const void **left,
                               const void **right, char *rest)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    float *wide_left = (float *)rest,
          *wide_right = (float *)(rest + align(sizeof(float) * (size_t)left_count(s)));
    LKI_TRY(lki_cuda_widen(cuda, conv->dtype, *left, wide_left, left_count(s)));
    LKI_TRY(lki_cuda_widen(cuda, conv->dtype, *right, wide_right, right_count(s)));
    *left = wide_left;
    *right = wide_right;
    return LK_OK;
}

/* The folded input side in `rest`, the folded weight behind it. */
static lk_status run_folded(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                            void *workspace, char *rest)
{
    const lki_cuda_conv_shape *s = &conv->shape, folded = lki_cuda_fold_shape(s);
    char *weight = rest + in_nbytes(&folded);
    if (s->role == LKI_CUDA_CONV_OUT) {
        LKI_TRY(lki_cuda_fold_in(cuda, s, o->left, rest));
        LKI_TRY(lki_cuda_fold_weight(cuda, s, o->right, weight));
        return run_plan(cuda, conv, rest, weight, o->to, workspace);
    }
    LKI_TRY(lki_cuda_fold_in(cuda, s, o->right, rest));
    LKI_TRY(run_plan(cuda, conv, o->left, rest, weight, workspace));
    return lki_cuda_unfold_weight(cuda, conv, weight, o->to, o->wide_to);
}

static lk_status run_whole(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                           void *workspace, char *rest)
{
    const lki_cuda_conv_shape *s = &conv->shape;
    const void *left = o->left, *right = o->right;
    void *to = conv->cudnn.turns ? rest : o->to;
    if (conv->cudnn.widens) LKI_TRY(widen_factors(cuda, conv, &left, &right, rest));
    LKI_TRY((conv->cudnn.plan ? run_plan : convolve)(cuda, conv, left, right, to, workspace));
    if (!conv->cudnn.turns) return LK_OK;
    return lki_cuda_transpose(cuda, conv->dtype, to, o->wide_to ? LK_F32 : conv->dtype, o->to,
                              s->out_channels, s->window.kernel_size, s->group_in);
}

lk_status lki_cuda_run_cudnn(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                             void *scratch)
{
    char *workspace = (char *)align((size_t)scratch), *rest = workspace + align(conv->cudnn.workspace_nbytes);
    LKI_TRY((conv->cudnn.folds ? run_folded : run_whole)(
        cuda, conv, o, conv->cudnn.workspace_nbytes ? workspace : NULL, rest));
    if (conv->shape.role != LKI_CUDA_CONV_WEIGHT) return lki_cuda_finish_conv(cuda, conv, o);
    return o->sums ? lki_cuda_conv_sums(cuda, conv, o) : LK_OK;
}

void lki_cuda_free_cudnn(lki_cuda_descs *c)
{
    if (c->conv) cudnnDestroyConvolutionDescriptor(c->conv);
    if (c->in) cudnnDestroyTensorDescriptor(c->in);
    if (c->out) cudnnDestroyTensorDescriptor(c->out);
    if (c->weight) cudnnDestroyFilterDescriptor(c->weight);
}
