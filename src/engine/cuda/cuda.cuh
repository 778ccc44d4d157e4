/* The cuda engine inside: what open() makes, what every family of ops shares, and one prepare function a
 * family.
 *
 * A prepare function looks at a call's dtypes, shapes and attributes and sets run (and state, free_state,
 * scratch_nbytes). run enqueues kernels on the compute stream and returns: it never waits, never allocates,
 * and works the same while a program is being recorded. Operand addresses may change between replays (before
 * a recording), so run reads them from the call; nothing else that run does may depend on the data. What only
 * the data shows (an index out of range) is reported through lki_cuda_fault. Every kernel gives the same bits
 * each time. Thread rule: that of engines. */
#ifndef LKI_CUDA_CUDA_CUH
#define LKI_CUDA_CUDA_CUH

#include "device/plugin.h"
#include "engine/cuda/paths.cuh"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <cudnn.h>

/* ---- Failures ---- */

extern const lki_cuda_host *lki_host;

/* As lki_fail. */
lk_status lki_cuda_fail(lk_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The oldest GPUs that there are kernels for: compute capability 8.0. */
enum { LKI_CUDA_LEAST_MAJOR = 8 };
/* LK_ERR_DEVICE with a sentence for one that is too old. */
lk_status lki_cuda_check_capability(int device, const cudaDeviceProp *properties);
/* Errors of the libraries. LK_ERR_NOMEM where the GPU's memory is what was lacking: the sentence then says
 * that it was for `what`, and how much is free. */
lk_status lki_cuda_error(cudaError_t error, const char *what);
lk_status lki_cublas_error(cublasStatus_t error, const char *what);
lk_status lki_cudnn_error(cudnnStatus_t error, const char *what);

/* cudaMalloc and cudaHostAlloc; likewise, with how much was asked for. *out is NULL where they fail. */
lk_status lki_cuda_malloc(void **out, size_t nbytes, const char *what);
lk_status lki_cuda_malloc_host(void **out, size_t nbytes, unsigned flags, const char *what);

#define LKI_TRY(call)                                                                                        \
    do {                                                                                                     \
        lk_status lki_try_status_ = (call);                                                                  \
        if (lki_try_status_ != LK_OK) return lki_try_status_;                                                \
    } while (0)
#define LKI_CUDA(call)                                                                                       \
    do {                                                                                                     \
        cudaError_t lki_cuda_status_ = (call);                                                               \
        if (lki_cuda_status_ != cudaSuccess) return lki_cuda_error(lki_cuda_status_, #call);                 \
    } while (0)
#define LKI_CUBLAS(call)                                                                                     \
    do {                                                                                                     \
        cublasStatus_t lki_cublas_status_ = (call);                                                          \
        if (lki_cublas_status_ != CUBLAS_STATUS_SUCCESS) return lki_cublas_error(lki_cublas_status_, #call); \
    } while (0)
#define LKI_CUDNN(call)                                                                                      \
    do {                                                                                                     \
        cudnnStatus_t lki_cudnn_status_ = (call);                                                            \
        if (lki_cudnn_status_ != CUDNN_STATUS_SUCCESS) return lki_cudnn_error(lki_cudnn_status_, #call);     \
    } while (0)
/* After a launch. */
#define LKI_LAUNCHED() LKI_CUDA(cudaPeekAtLastError())

/* ---- The engine ---- */

enum {
    LKI_CUDA_MAX_HYPERS = 1024,
    LKI_CUDA_POSITION_BITS = 40,
    LKI_CUDA_NEWS = 16,
    LKI_CUDA_MAX_GATHERS = 2,
    LKI_CUDA_GATHER_ROWS = 128,
    LKI_CUDA_BLOCK = 256,
    LKI_CUDA_TICKETS = 4096
};

/* The live numbers of an update on the device: what begin_step made of an lk_hyper. */
typedef struct lki_cuda_hyper {
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay, clip, grad_scale;
    double bias1, bias2; /* 1 - beta^step */
    int nesterov, amsgrad, centered, maximize, no_debias, no_trust, first, is_first_step;
    long long step;
} lki_cuda_hyper;

/* What kernels of a step read that changes from step to step; one block of device memory. */
typedef struct lki_cuda_live {
    unsigned long long draw; /* this step's random bits: the key of every dropout of the step */
    int skip;                /* the loss is not finite: updates change nothing */
    lki_cuda_hyper hyper[LKI_CUDA_MAX_HYPERS];
    unsigned tickets[LKI_CUDA_TICKETS]; /* drawn by the blocks of a kernel, all 0 again at its end */
} lki_cuda_live;

/* Where kernels say that an index is wrong: the number of the call that found it and, in the lower
 * LKI_CUDA_POSITION_BITS, the position; of several the smallest, which the order of threads does not change.
 * And that there is one, in host memory that the device writes to. */
typedef struct lki_cuda_fault {
    unsigned long long *first; /* device: ~0 while nothing is wrong */
    volatile int *found;       /* host, mapped: 0 while nothing is wrong */
    int *found_on_device;
} lki_cuda_fault;

/* Rows of a dataset on the device that the coming step reads: gathered by the launch that begins it. */
typedef struct lki_cuda_gather {
    void *out;
    const void *stored;
    int64_t width;
    int row_count, conversion; /* prologue.cu's */
    float divisor, mean, std;
    int64_t index[LKI_CUDA_GATHER_ROWS];
} lki_cuda_gather;

/* How many bytes a gather reads from `stored` on, and writes from `out` on. */
typedef struct lki_cuda_reach {
    size_t read, written;
} lki_cuda_reach;

/* A call that can find a wrong index: its number, which input holds the indices, and how many there are to
 * choose from. */
typedef struct lki_cuda_check {
    int number, operand;
    int64_t limit;
} lki_cuda_check;

typedef struct lki_cuda {
    int device, major, minor, processor_count;
    size_t shared_nbytes;       /* a block may opt in to so much shared memory */
    cudaStream_t compute, side; /* side: communication and copies beside the computation */
    cudaStream_t copy;          /* batches on their way here, beside both */
    cudaEvent_t fork, join, fed;
    cudaEvent_t marks[LK_ENGINE_MARKS];
    bool is_fed_ahead; /* something is on the copy stream that no step has waited for */
    bool settled; /* nothing that was under way can have failed unseen: the next step takes `skip` back */
    bool recording;
    bool side_is_busy;       /* work was forked to the side stream and not joined yet */
    lk_comm *comm;           /* whose collectives are among the engine's work: whoever waits looks after it */
    int comm_count;          /* prepared calls that use it */
    cublasLtHandle_t cublas; /* these two are NULL until somebody asks for them: many models need none */
    cudnnHandle_t cudnn;
    struct lki_cuda_conv_plan *conv_plans; /* conv_plan.cu's */
    bool tf32;                             /* products of f32 may round their operands to TF32 */
    bool benchmark;                        /* row-major convolutions by the fastest algorithm of a trial */

    lki_cuda_live *live;                         /* device */
    lki_cuda_live sent;                          /* what it holds, as far as hypers go */
    bool may_skip;                               /* a loss is watched */
    const lk_hyper *hypers[LKI_CUDA_MAX_HYPERS]; /* whose numbers live->hyper[i] holds */
    int hyper_users[LKI_CUDA_MAX_HYPERS];        /* prepared calls that read them */
    lk_hyper *norm_hypers[LKI_CUDA_MAX_HYPERS];  /* whose grad_norm norms[i] is */
    double *norms, *norms_on_device;             /* mapped host memory */
    int hyper_count;
    int dropout_count; /* prepared so far: without one nothing is drawn */
    int ticket_count;  /* given out so far */

    lki_cuda_gather gathers[LKI_CUDA_MAX_GATHERS]; /* asked for, not launched yet */
    lki_cuda_reach reach[LKI_CUDA_MAX_GATHERS];    /* of each */
    int gather_count;
    bool has_fresh_rows; /* the next step's gathers read what the launch before it writes */
    struct {             /* the small program that was found to run as a whole last (small_kernel.cu) */
        const void *kernel;
        size_t shared_nbytes;
        int blocks;
    } fitting;
    lk_engine_path paths[LKI_CUDA_PATH_COUNT];

    struct lki_cuda_notes *notes; /* of the recording under way (small.cuh); NULL: none are taken */
    unsigned *arrivals;           /* device: blocks that have come to a barrier of a small program, ever */
    unsigned arrived;             /* how many those will be when all that was launched has run */
    bool never_small, only_small; /* LOCKSTEP_ONE_KERNEL=0, or 1: for tests */

    lki_cuda_fault fault;
    struct lki_cuda_checked *checked; /* faults.cu's: calls that look for wrong indices, by number */
    int checked_count, checked_capacity;
    int vacant_check; /* a number that was given back; 0: there is none */
} lki_cuda;

static inline lki_cuda *lki_cuda_of(const lk_call *call)
{
    return (lki_cuda *)call->engine->state;
}

/* Handles, opened by the first who asks; cuDNN's is bound to the compute stream. */
lk_status lki_cuda_cublas(lki_cuda *cuda, cublasLtHandle_t *out);
lk_status lki_cuda_cudnn(lki_cuda *cuda, cudnnHandle_t *out);

/* Memory for call->state, zeroed, freed with the call. */
void *lki_cuda_new_state(lk_call *call, size_t nbytes);

/* `count` neighbouring tickets for a call whose last block goes on with what the others leave; at most a
 * quarter of them all. They come round again: kernels that run at the same time must not be further apart. */
unsigned *lki_cuda_take_tickets(lki_cuda *cuda, int count);

/* The place in live->hyper of these numbers, which all calls share that have them; -1 with a sentence where
 * there are too many. A call that measures a norm has one of its own, and norms[slot] with it. */
int lki_cuda_hyper_slot(lki_cuda *cuda, lk_hyper *hyper, bool with_norm);
void lki_cuda_hyper_release(lki_cuda *cuda, int slot); /* from free_state */

/* Registers a call that can find a wrong index: kernels report with lki_cuda_report. synchronize then says
 * "<index> at position <position> is outside of 0..<limit - 1>": it reads the index from input `operand` of
 * the call. */
lk_status lki_cuda_check_init(lki_cuda *cuda, lk_call *call, int operand, int64_t limit, lki_cuda_check *out);
void lki_cuda_check_fini(lki_cuda *cuda, const lki_cuda_check *check);

#ifdef __CUDACC__
static __device__ inline void lki_cuda_report(unsigned long long *first, int *found, int number,
                                              int64_t position)
{
    atomicMin(first, (unsigned long long)number << LKI_CUDA_POSITION_BITS | (unsigned long long)position);
    *found = 1;
}
#endif

#ifdef __CUDACC__
/* Whether this block is the last of `count` that draw this ticket: what the others wrote before is then seen
 * by __ldcg. All threads of the block must ask. */
static __device__ inline bool lki_cuda_is_last(unsigned *ticket, unsigned count)
{
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1u) == count - 1;
        if (last) *ticket = 0;
        __threadfence();
    }
    __syncthreads();
    return last;
}
#endif

/* Work that may run beside the computation: fork makes the side stream wait for all that was asked for so
 * far, join makes the compute stream wait for the side stream. */
lk_status lki_cuda_fork(lki_cuda *cuda);
lk_status lki_cuda_join(lki_cuda *cuda);

/* The same for one call that may stand aside, in a recording: what it enqueues on the compute stream before
 * lki_cuda_end_aside goes to the side stream. NULL, and nothing to end, where it runs among the others. */
lk_status lki_cuda_begin_aside(lki_cuda *cuda, const lk_call *call, cudaStream_t *before);
void lki_cuda_end_aside(lki_cuda *cuda, cudaStream_t before);

/* What begins from here on sees what was fed ahead. */
lk_status lki_cuda_take_fed(lki_cuda *cuda);

/* Until the computation has come to its end, or the other ranks have failed: then with their sentence. */
lk_status lki_cuda_wait(lki_cuda *cuda);

/* ---- Shapes and dtypes; the plugin links nothing of liblockstep ---- */

static inline size_t lki_cuda_dtype_nbytes(lk_dtype dtype)
{
    switch (dtype) {
#define X(symbol, name, nbytes)                                                                              \
    case symbol: return nbytes;
        LK_DTYPE_LIST(X)
#undef X
    }
    return 0;
}

static inline const char *lki_cuda_dtype_name(lk_dtype dtype)
{
    switch (dtype) {
#define X(symbol, name, nbytes)                                                                              \
    case symbol: return name;
        LK_DTYPE_LIST(X)
#undef X
    }
    return "?";
}

static inline int64_t lki_cuda_span(lk_shape shape, int begin, int end)
{
    int64_t count = 1;
    for (int i = begin; i < end; i++) count *= shape.dim[i];
    return count;
}

static inline int64_t lki_cuda_count(const lk_tensor *tensor)
{
    return lki_cuda_span(tensor->shape, 0, tensor->shape.rank);
}

/* Input or output `index` of a call; NULL where it is absent or nobody wants it. */
template <typename T> static inline const T *lki_cuda_in(const lk_call *call, int index)
{
    return index < call->input_count ? (const T *)call->in[index].data : NULL;
}
template <typename T> static inline T *lki_cuda_out(const lk_call *call, int index)
{
    return index < call->output_count ? (T *)call->out[index].data : NULL;
}

/* Blocks of LKI_CUDA_BLOCK threads for a loop with a grid's stride over `count` elements. */
static inline int lki_cuda_grid(const lki_cuda *cuda, int64_t count)
{
    int64_t blocks = (count + LKI_CUDA_BLOCK - 1) / LKI_CUDA_BLOCK,
            most = (int64_t)cuda->processor_count * 16;
    return (int)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* Runs `body` with T as the C++ type of a float dtype: f32, f64, bf16 or f16. */
#define LKI_CUDA_FLOAT_SWITCH(dtype, T, ...)                                                                 \
    switch (dtype) {                                                                                         \
    case LK_F32: {                                                                                           \
        using T = float;                                                                                     \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case LK_F64: {                                                                                           \
        using T = double;                                                                                    \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case LK_BF16: {                                                                                          \
        using T = __nv_bfloat16;                                                                             \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    case LK_F16: {                                                                                           \
        using T = __half;                                                                                    \
        __VA_ARGS__;                                                                                         \
    } break;                                                                                                 \
    default: break;                                                                                          \
    }

/* What a float dtype is computed in: itself for f32 and f64, f32 for the short ones. */
template <typename T> struct lki_cuda_wide {
    using type = float;
};
template <> struct lki_cuda_wide<double> {
    using type = double;
};

/* ---- The families; each lies in a file of its name ---- */

typedef lk_status (*lki_cuda_prepare)(lki_cuda *cuda, lk_call *call);
lki_cuda_prepare lki_cuda_family(lk_op op); /* NULL where no family has it */
const char *lki_cuda_op_name(lk_op op);
lk_op_family lki_cuda_op_family(lk_op op);
/* Whether products and convolutions take these dtypes; `what` names the call in the sentence. */
lk_status lki_cuda_check_factors(const lk_call *call, const char *what);

void lki_cuda_free_conv_plans(lki_cuda *cuda);
/* lk_engine_ops.preference: of a convolution with channels last, of a batch norm with a ReLU, of a loss with
 * its gradient. */
lk_preference lki_cuda_conv_preference(lki_cuda *cuda, const lk_call *call);
lk_preference lki_cuda_norm_preference(const lk_call *call);
lk_preference lki_cuda_loss_preference(const lk_call *call);
/* `count` matrices of `rows` by `columns`, each turned; of one dtype, or from f32 to a short one or back. */
lk_status lki_cuda_transpose(lki_cuda *cuda, lk_dtype from_dtype, const void *from, lk_dtype to_dtype,
                             void *to, int64_t count, int rows, int columns);

lk_status lki_cuda_prepare_elementwise(lki_cuda *cuda,
                                       lk_call *call); /* elementwise ops, full, fused, cast, copy, expand */
lk_status lki_cuda_prepare_reduce(lki_cuda *cuda, lk_call *call);  /* sum, mean, max, var, max_grad, argmax */
lk_status lki_cuda_prepare_softmax(lki_cuda *cuda, lk_call *call); /* and log_softmax, and their gradients */
lk_status lki_cuda_prepare_movement(lki_cuda *cuda,
                                    lk_call *call); /* permute, slice(s)(_grad), concat, pad(_grad) */
lk_status lki_cuda_prepare_index(lki_cuda *cuda,
                                 lk_call *call); /* gather, embedding, their gradients, scatter */
lk_status lki_cuda_prepare_scan(lki_cuda *cuda, lk_call *call); /* cumsum, cumprod, its gradient, sort */
lk_status lki_cuda_prepare_reorder(lki_cuda *cuda, lk_call *call);
lk_status lki_cuda_prepare_casts(lki_cuda *cuda, lk_call *call);   /* of parameters, a run of them */
lk_status lki_cuda_prepare_product(lki_cuda *cuda, lk_call *call); /* matmul, linear, linear_grad */
lk_status lki_cuda_prepare_conv(lki_cuda *cuda, lk_call *call);    /* conv, its gradients, conv_transpose */
lk_status lki_cuda_prepare_pool(lki_cuda *cuda, lk_call *call); /* max, avg, adaptive avg, their gradients */
lk_status lki_cuda_prepare_upsample(lki_cuda *cuda, lk_call *call);
lk_status lki_cuda_prepare_norm(lki_cuda *cuda, lk_call *call);      /* batch, layer, group, their gradients */
lk_status lki_cuda_prepare_dropout(lki_cuda *cuda, lk_call *call);   /* and its gradient, random */
lk_status lki_cuda_prepare_recurrent(lki_cuda *cuda, lk_call *call); /* recurrent and its gradients */
lk_status lki_cuda_prepare_attention(lki_cuda *cuda, lk_call *call); /* attention and its gradient */
lk_status lki_cuda_prepare_loss(lki_cuda *cuda, lk_call *call); /* cross_entropy, nll, pointwise, gradients */
lk_status lki_cuda_prepare_update(lki_cuda *cuda,
                                  lk_call *call); /* update, clip_norm, clip_value, accumulate */
lk_status lki_cuda_prepare_unscale(lki_cuda *cuda, lk_call *call);
lk_status lki_cuda_prepare_ranks(lki_cuda *cuda, lk_call *call); /* all_reduce, reduce_start/_wait, assign */

/* prologue.cu: what a step starts with. Gathers are kept until the step begins, or until somebody needs what
 * they touch. */
lk_status lki_cuda_gather_rows(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                               const void *stored, const int64_t *indices, int64_t count);
/* A few bytes of pinned host memory, with the next step's first launch. False where they are too many, or
 * that launch is full. */
bool lki_cuda_gather_bytes(lki_cuda *cuda, void *out, const void *host, size_t nbytes);
lk_status lki_cuda_flush_gathers(lki_cuda *cuda);
/* For who writes to memory: launches the gathers that were asked for if one of them touches it. */
lk_status lki_cuda_write_after_gathers(lki_cuda *cuda, const void *data, size_t nbytes, bool *met);
lk_status lki_cuda_begin_step(lk_engine *engine, lk_generator *generator);

/* ---- For the plugin's table ---- */

extern const lk_engine_ops lki_cuda_ops;
int lki_nccl_version(void); /* 0 where it is not there */
lk_status lki_nccl_id(char id[LKI_NCCL_ID_NBYTES]);
lk_status lki_nccl_create(lk_comm **out, const lki_nccl_options *options);
void lki_nccl_fail(lk_comm *comm, const char *sentence);

#endif
