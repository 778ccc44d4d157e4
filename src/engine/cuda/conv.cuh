/* Convolutions inside the cuda engine: what conv.cu (which op is which convolution, and who computes it),
 * conv_direct.cu and conv_weight.cu (our kernels) and conv_cudnn.cu share.
 *
 * A convolution ties three tensors: its input side (n, c, s...), its output side (n, o, p...) and the weight
 * (o, c / groups, k...). Each op computes one of them from the other two; the transposed convolution computes
 * the input side. Life: a conv lies in call->state. Thread rule: that of engines. */
#ifndef LKI_CUDA_CONV_CUH
#define LKI_CUDA_CONV_CUH

#include "engine/cuda/sliding_window.cuh"

typedef enum lki_cuda_conv_role {
    LKI_CUDA_CONV_OUT,
    LKI_CUDA_CONV_IN,
    LKI_CUDA_CONV_WEIGHT
} lki_cuda_conv_role;

typedef struct lki_cuda_conv_shape {
    lki_cuda_conv_role role; /* which of the three is computed */
    lki_cuda_window window;
    int rank; /* spatial axes, as the op has them */
    int64_t batch;
    int in_channels, out_channels, groups, group_in, group_out;
    bool fits; /* the output side has exactly the size that the window gives */
} lki_cuda_conv_shape;

/* The addresses of one run. left is the output side where that is given, else the input side; right the
 * other factor: the weight, or the input side where the weight is computed. */
typedef struct lki_cuda_conv_operands {
    const void *left, *right, *bias;
    void *to;   /* NULL: not wanted */
    void *sums; /* of left over all but its channels: the gradient of the bias; or NULL */
    bool wide_bias, wide_to, wide_sums, relu;
} lki_cuda_conv_operands;

typedef struct lki_cuda_conv_plan lki_cuda_conv_plan;

/* cuDNN's part; plan (channels last) and conv (row-major) are NULL where it takes none. */
typedef struct lki_cuda_descs {
    const lki_cuda_conv_plan *plan; /* the engine's */
    cudnnConvolutionDescriptor_t conv;
    cudnnTensorDescriptor_t in, out;
    cudnnFilterDescriptor_t weight;
    int algo;
    size_t workspace_nbytes;
    bool widens; /* short factors, f32 result: the factors are widened first, and TF32 then loses nothing */
    bool
        turns; /* a weight's gradient with channels last: it is brought into order (and widened) afterwards */
    bool folds; /* conv_fold.cu: cuDNN computes the folded convolution */
} lki_cuda_descs;

typedef struct lki_cuda_conv {
    lki_cuda_conv_shape shape;
    lk_dtype dtype;    /* of the factors */
    int parts;         /* of our weight gradient */
    int64_t span;      /* places of the output side that a part has */
    unsigned *tickets; /* one a tile, where there are several parts */
    lki_cuda_descs cudnn;
} lki_cuda_conv;

/* Our kernels, for row-major operands of every shape and alignment. */
lk_status lki_cuda_run_direct(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o);
void lki_cuda_plan_weight(lki_cuda *cuda, lki_cuda_conv *conv, size_t *scratch_nbytes);
lk_status lki_cuda_run_weight(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                              void *scratch);
/* to = relu(to + bias); sums. For what cuDNN leaves. */
lk_status lki_cuda_finish_conv(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o);
lk_status lki_cuda_conv_sums(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o);
/* A copy of `count` elements of a short dtype as f32. */
lk_status lki_cuda_widen(lki_cuda *cuda, lk_dtype dtype, const void *from, float *to, int64_t count);

/* Asks cuDNN for a deterministic algorithm; *found is false where it has none. */
lk_status lki_cuda_plan_cudnn(lki_cuda *cuda, lki_cuda_conv *conv, bool wide_to, bool *found,
                              size_t *scratch_nbytes);
lk_status lki_cuda_run_cudnn(lki_cuda *cuda, const lki_cuda_conv *conv, const lki_cuda_conv_operands *o,
                             void *scratch);
void lki_cuda_free_cudnn(lki_cuda_descs *cudnn);

/* A plan for channels last, kept by the engine; *out is NULL where cuDNN has none. With tensor_cores f32 may
 * be rounded to TF32. */
lk_status lki_cuda_find_conv_plan(lki_cuda *cuda, const lki_cuda_conv_shape *shape, cudnnDataType_t type,
                                  bool tensor_cores, const lki_cuda_conv_plan **out,
                                  size_t *workspace_nbytes);
/* conv_fold.cu: a convolution that goes over a few 16-bit channels, side by side, in steps of two is one over
 * four times as many in steps of one, with a kernel half as wide. */
bool lki_cuda_conv_folds(const lki_cuda_conv *conv);
lki_cuda_conv_shape lki_cuda_fold_shape(const lki_cuda_conv_shape *shape);
/* The input side, and the weight. */
lk_status lki_cuda_fold_in(lki_cuda *cuda, const lki_cuda_conv_shape *shape, const void *from, void *to);
lk_status lki_cuda_fold_weight(lki_cuda *cuda, const lki_cuda_conv_shape *shape, const void *from, void *to);
/* A folded weight's gradient as the row-major weight's, in f32 where it is to be wide. */
lk_status lki_cuda_unfold_weight(lki_cuda *cuda, const lki_cuda_conv *conv, const void *from, void *to,
                                 bool wide);

/* The three tensors, of which the role says which is written. */
lk_status lki_cuda_run_conv_plan(lki_cuda *cuda, const lki_cuda_conv_plan *plan, const void *in,
                                 const void *weight, const void *out, void *workspace);

static inline int64_t lki_cuda_conv_in_count(const lki_cuda_conv_shape *s)
{
    return s->batch * s->in_channels * s->window.in_size;
}
static inline int64_t lki_cuda_conv_out_count(const lki_cuda_conv_shape *s)
{
    return s->batch * s->out_channels * s->window.out_size;
}
static inline int64_t lki_cuda_conv_weight_count(const lki_cuda_conv_shape *s)
{
    return (int64_t)s->out_channels * s->group_in * s->window.kernel_size;
}

#ifdef __CUDACC__
/* The sum is complete: bias, activation, store. */
template <typename T, typename A>
static __device__ void lki_cuda_conv_store(const lki_cuda_conv_operands &o, int64_t at, int channel, A value)
{
    if (o.bias) value += o.wide_bias ? ((const A *)o.bias)[channel] : A(((const T *)o.bias)[channel]);
    if (o.relu && value < A(0)) value = A(0);
    if (o.wide_to)
        ((A *)o.to)[at] = value;
    else
        ((T *)o.to)[at] = T(value);
}

template <typename T, typename A>
static __device__ void lki_cuda_conv_store_sum(const lki_cuda_conv_operands &o, int channel, A value)
{
    if (o.wide_sums)
        ((A *)o.sums)[channel] = value;
    else
        ((T *)o.sums)[channel] = T(value);
}
#endif

#endif
