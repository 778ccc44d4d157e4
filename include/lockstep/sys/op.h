/* The ops: what a node of the graph can be. One list; the graph expands it into shape and gradient rules,
 * each engine into kernels, so an op exists in exactly one place and nothing can be forgotten.
 *
 * All operands are contiguous and row-major unless an engine's layout pass said otherwise. "f" stands for any
 * float dtype; the result has the dtype of the first float operand. An optional operand ("?") that is absent
 * has data == NULL. */
#ifndef LOCKSTEP_SYS_OP_H
#define LOCKSTEP_SYS_OP_H

#include <lockstep/random.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
/* X(SYMBOL, name, output_count, flags), then what it takes and what it gives. lk_op_flag explains the flags. */
#define LK_OP_LIST(X) \
    /* Leaves: they have storage and no kernel. full is an ordinary op: attr.alpha everywhere, attr.shape, attr.dtype. */ \
    X(INPUT, "input", 1, LK_OP_IS_LEAF) \
    X(PARAM, "param", 1, LK_OP_IS_LEAF) \
    X(CONSTANT, "constant", 1, LK_OP_IS_LEAF) \
    X(FULL, "full", 1, LK_OP_HAS_NO_GRADIENT) \
    /* Elementwise with broadcasting: (a f, b f) -> f. Comparisons give bool. where: (cond bool, a, b). */ \
    X(ADD, "add", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SUB, "sub", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(MUL, "mul", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(DIV, "div", 1, LK_OP_IS_ELEMENTWISE) \
    X(POW, "pow", 1, LK_OP_IS_ELEMENTWISE) \
    X(MAXIMUM, "maximum", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(MINIMUM, "minimum", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(GREATER, "greater", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(GREATER_EQUAL, "greater_equal", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(EQUAL, "equal", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(WHERE, "where", 1, LK_OP_IS_ELEMENTWISE) \
    /* Elementwise: (x f) -> f. */ \
    X(NEG, "neg", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(ABS, "abs", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SIGN, "sign", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(EXP, "exp", 1, LK_OP_IS_ELEMENTWISE) \
    X(LOG, "log", 1, LK_OP_IS_ELEMENTWISE) \
    X(SQRT, "sqrt", 1, LK_OP_IS_ELEMENTWISE) \
    X(SIN, "sin", 1, LK_OP_IS_ELEMENTWISE) \
    X(COS, "cos", 1, LK_OP_IS_ELEMENTWISE) \
    X(ERF, "erf", 1, LK_OP_IS_ELEMENTWISE) \
    X(TANH, "tanh", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SIGMOID, "sigmoid", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(RELU, "relu", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(LEAKY_RELU, "leaky_relu", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)   /* alpha: the slope below 0 */ \
    X(ELU, "elu", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)                 /* alpha */ \
    X(GELU, "gelu", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)               /* mode: 0 erf, 1 tanh */ \
    X(SILU, "silu", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SOFTPLUS, "softplus", 1, LK_OP_IS_ELEMENTWISE)       /* alpha: PyTorch's beta; beta: its threshold */ \
    X(CLAMP, "clamp", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)             /* alpha: min; beta: max */ \
    X(ADD_SCALAR, "add_scalar", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)   /* x + alpha */ \
    X(MUL_SCALAR, "mul_scalar", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)   /* x * alpha */ \
    X(POW_SCALAR, "pow_scalar", 1, LK_OP_IS_ELEMENTWISE)   /* x ^ alpha */ \
    X(CAST, "cast", 1, LK_OP_IS_ELEMENTWISE)               /* to attr.dtype, any to any */ \
    X(COPY, "copy", 1, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    /* Their gradients: (dy, y or x) -> dx; same attributes as the op. */ \
    X(TANH_GRAD, "tanh_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)             /* (dy, y) */ \
    X(SIGMOID_GRAD, "sigmoid_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)       /* (dy, y) */ \
    X(RELU_GRAD, "relu_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)             /* (dy, y): dy where y > 0 */ \
    X(LEAKY_RELU_GRAD, "leaky_relu_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) /* (dy, x) */ \
    X(ELU_GRAD, "elu_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)               /* (dy, x) */ \
    X(GELU_GRAD, "gelu_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)             /* (dy, x) */ \
    X(SILU_GRAD, "silu_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)             /* (dy, x) */ \
    X(SOFTPLUS_GRAD, "softplus_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT)     /* (dy, x) */ \
    X(CLAMP_GRAD, "clamp_grad", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)           /* (dy, x): dy where alpha <= x <= beta */ \
    /* A chain of elementwise ops, made by the fuse pass: attr.fused, (inputs...) -> f of attr.shape. */ \
    X(FUSED, "fused", 1, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    /* Reductions over attr.axes (bit i = axis i), attr.keep_dims: (x f) -> f. var: attr.index is the correction. */ \
    X(SUM, "sum", 1, 0) \
    X(MEAN, "mean", 1, 0) \
    X(MAX, "max", 1, 0) \
    X(VAR, "var", 1, 0) \
    X(MAX_GRAD, "max_grad", 1, LK_OP_HAS_NO_GRADIENT)   /* (dy, x, y), all of x's rank -> dx: shared evenly by all that equal the maximum */ \
    X(ARGMAX, "argmax", 1, LK_OP_HAS_NO_GRADIENT)       /* over attr.axis, attr.keep_dims -> i64, the first of equals */ \
    X(EXPAND, "expand", 1, LK_OP_KEEPS_16_BITS)             /* broadcast x to attr.shape */ \
    /* Over attr.axis. The gradients take (dy, y). */ \
    X(SOFTMAX, "softmax", 1, 0) \
    X(LOG_SOFTMAX, "log_softmax", 1, 0) \
    X(SOFTMAX_GRAD, "softmax_grad", 1, LK_OP_HAS_NO_GRADIENT) \
    X(LOG_SOFTMAX_GRAD, "log_softmax_grad", 1, LK_OP_HAS_NO_GRADIENT) \
    /* Moving data. */ \
    X(RESHAPE, "reshape", 1, LK_OP_IS_VIEW | LK_OP_KEEPS_16_BITS)         /* to attr.shape: the same memory */ \
    X(PERMUTE, "permute", 1, LK_OP_KEEPS_16_BITS)               /* y.dim[i] = x.dim[attr.order[i]] */ \
    X(SLICE, "slice", 1, LK_OP_KEEPS_16_BITS)                   /* attr.begin, attr.end, attr.step per axis, step >= 1 */ \
    X(SLICE_GRAD, "slice_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)   /* (dy) -> dx of attr.shape, zero outside of the slice */ \
    X(CONCAT, "concat", 1, LK_OP_KEEPS_16_BITS)                 /* (x0, x1, ...) along attr.axis */ \
    X(PAD, "pad", 1, LK_OP_KEEPS_16_BITS)                       /* attr.begin before and attr.end after per axis; mode lk_pad_mode; alpha the value */ \
    X(PAD_GRAD, "pad_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)       /* (dy) -> dx of attr.shape */ \
    X(GATHER, "gather", 1, 0)                 /* (x f, index i64 of x's rank) along attr.axis, as torch.gather */ \
    X(GATHER_GRAD, "gather_grad", 1, LK_OP_HAS_NO_GRADIENT) /* (dy, index) -> dx of attr.shape */ \
    X(EMBEDDING, "embedding", 1, 0)           /* (weight (n, d), index i64 (...)) -> (..., d); attr.index: padding_idx or -1 */ \
    X(EMBEDDING_GRAD, "embedding_grad", 1, LK_OP_HAS_NO_GRADIENT) /* (dy, index) -> dweight of attr.shape, nothing to the padding row */ \
    /* Products. matmul: (a (..., m, k), b (..., k, n)) with attr.transpose_a/_b on the last two axes, leading axes broadcast. \
     * linear: (x (..., k), w (n, k), b? (n)) -> (..., n), then attr.activation. \
     * linear_grad: (dy (..., n), x (..., k)) -> dw (n, k), db (n); db is not wanted where attr.index is 0. */ \
    X(MATMUL, "matmul", 1, LK_OP_WANTS_16_BITS) \
    X(LINEAR, "linear", 1, LK_OP_WANTS_16_BITS) \
    X(LINEAR_GRAD, "linear_grad", 2, LK_OP_HAS_NO_GRADIENT | LK_OP_WANTS_16_BITS) \
    /* Convolutions in attr.window.rank dimensions. conv: (x (n, c, s...), w (o, c/groups, k...), b? (o)), then attr.activation. \
     * conv_grad_input: (dy, w) -> dx of attr.shape. conv_grad_weight: (dy, x) -> dw of attr.shape, db (o); db is not wanted \
     * where attr.index is 0. conv_transpose: (x (n, c, s...), w (c, o/groups, k...), b? (o)). */ \
    X(CONV, "conv", 1, LK_OP_WANTS_16_BITS) \
    X(CONV_GRAD_INPUT, "conv_grad_input", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_WANTS_16_BITS) \
    X(CONV_GRAD_WEIGHT, "conv_grad_weight", 2, LK_OP_HAS_NO_GRADIENT | LK_OP_WANTS_16_BITS) \
    X(CONV_TRANSPOSE, "conv_transpose", 1, LK_OP_WANTS_16_BITS) \
    /* Pooling over the last attr.window.rank axes. max_pool: (x) -> y, index i32: the flat place of the winner (the first of \
     * equals; a NaN wins) inside its (s...) plane, then attr.activation: where a ReLU lets nothing through, index is -1. The \
     * gradients give dx of attr.shape; to an index of -1 nothing flows. */ \
    X(MAX_POOL, "max_pool", 2, LK_OP_KEEPS_16_BITS) \
    X(MAX_POOL_GRAD, "max_pool_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)                   /* (dy, index) */ \
    X(AVG_POOL, "avg_pool", 1, LK_OP_KEEPS_16_BITS) \
    X(AVG_POOL_GRAD, "avg_pool_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS)                   /* (dy) */ \
    X(ADAPTIVE_AVG_POOL, "adaptive_avg_pool", 1, LK_OP_KEEPS_16_BITS)                 /* (x) -> attr.shape; window.rank spatial axes */ \
    X(ADAPTIVE_AVG_POOL_GRAD, "adaptive_avg_pool_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) /* (dy) -> dx of attr.shape */ \
    X(UPSAMPLE, "upsample", 1, 0)             /* (x) -> attr.shape; mode lk_upsample_mode; index 1: align_corners; window.rank axes; \
                                              * scale factors, where given, in window.scale */ \
    X(UPSAMPLE_GRAD, "upsample_grad", 1, LK_OP_HAS_NO_GRADIENT)                   /* (dy) -> dx of attr.shape */ \
    /* Normalisation. alpha: eps; beta: momentum. batch_norm: (x (n, c, ...), weight? (c), bias? (c), running_mean? (c), \
     * running_var? (c)) -> y, mean (c), inverse std (c). With attr.training it normalises by the batch and moves the running \
     * values in place (running var takes the unbiased variance), else by the running ones. Where the engine folds norms: a \
     * sixth input, of x's shape, is added to y, then comes attr.activation. Where a mean, an inverse std, a weight? and a bias? \
     * follow it, it is the x of another norm, which has attr.statistics_only and leaves its y out, and is normalised with them \
     * first. batch_norm_grad gets attr.activation where there was no sixth input, with the bias as its own sixth, and takes dy \
     * for 0 where the activation did not let y through. */ \
    X(BATCH_NORM, "batch_norm", 3, LK_OP_WRITES_OPERANDS | LK_OP_KEEPS_16_BITS) \
    X(BATCH_NORM_GRAD, "batch_norm_grad", 3, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) /* (dy, x, weight?, mean, istd) -> dx, dweight, dbias; attr.training as forward */ \
    X(LAYER_NORM, "layer_norm", 3, 0)                 /* over the last attr.index axes: (x, w?, b?) -> y, mean, istd (one a row) */ \
    X(LAYER_NORM_GRAD, "layer_norm_grad", 3, LK_OP_HAS_NO_GRADIENT) /* (dy, x, weight?, mean, istd) -> dx, dweight, dbias */ \
    X(GROUP_NORM, "group_norm", 3, 0)                 /* attr.index groups: (x (n, c, ...), w? (c), b? (c)) -> y, mean, istd (n, g) */ \
    X(GROUP_NORM_GRAD, "group_norm_grad", 3, LK_OP_HAS_NO_GRADIENT) /* (dy, x, weight?, mean, istd) -> dx, dweight, dbias */ \
    /* dropout: (x) -> y, mask u8. alpha: p. Draws one f64 an element, in order, from call->generator: keeps an element where the \
     * draw < 1 - p, and scales it by 1 / (1 - p), as PyTorch. dropout_grad: (dy, mask) -> dx. */ \
    X(DROPOUT, "dropout", 2, LK_OP_IS_RANDOM | LK_OP_KEEPS_16_BITS) \
    X(DROPOUT_GRAD, "dropout_grad", 1, LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) \
    /* Losses. cross_entropy: (logits (n, c, s...), target i64 (n, s...) or f of the logits' shape, weight? (c)) -> loss, \
     * log-probabilities (the logits' shape). alpha: label smoothing; index: ignore_index; reduction mean (weighted), sum, none. \
     * Its gradient: (dloss, logp, target, weight?) -> dlogits. nll: (logp, target i64, weight?); nll_grad: (dloss, logp, target, \
     * weight?) -> dlogp. A target outside of 0..c-1 that is not ignore_index: LK_ERR_RANGE. */ \
    X(CROSS_ENTROPY, "cross_entropy", 2, 0) \
    X(CROSS_ENTROPY_GRAD, "cross_entropy_grad", 1, LK_OP_HAS_NO_GRADIENT) \
    X(NLL, "nll", 1, 0) \
    X(NLL_GRAD, "nll_grad", 1, LK_OP_HAS_NO_GRADIENT) \
    /* (x f, target f of the same shape, weight? of the same shape, pos_weight? of the same shape: bce_with_logits') -> loss; mode \
     * lk_pointwise_loss, alpha its parameter, reduction (batch_mean divides the sum by dim 0). The gradient takes (dloss, x, \
     * target, weight?, pos_weight?) -> dx. dloss is a scalar, or of x's shape where the reduction is none. */ \
    X(POINTWISE_LOSS, "pointwise_loss", 1, 0) \
    X(POINTWISE_LOSS_GRAD, "pointwise_loss_grad", 1, LK_OP_HAS_NO_GRADIENT) \
    /* A change of memory layout (lk_layout in <lockstep/sys/engine.h>), also from f32 to 16 bits or back: the layout pass's. */ \
    X(REORDER, "reorder", 1, LK_OP_HAS_NO_GRADIENT) \
    /* The update half of a step, over flat slices. update: (param, grad, state0?, state1?, state2?, scaler?) in place, attr.mode \
     * lk_update_rule, live numbers in attr.hyper. clip_norm: (grad, scaler?) in place by hyper->clip, the norm found goes to \
     * hyper->grad_norm; clip_value: (grad, scaler?). accumulate: (sum, grad): sum += grad, or sum = grad where hyper->first. \
     * unscale: (grad, scaler) of one dtype: grad /= the scale, which then shrinks by beta where a gradient is not finite and grows \
     * by alpha after attr.index updates without such a one. Updates and clips do nothing after the former: see lk_scaler_field. */ \
    X(UPDATE, "update", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(CLIP_NORM, "clip_norm", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(CLIP_VALUE, "clip_value", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(ACCUMULATE, "accumulate", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(UNSCALE, "unscale", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    /* Between ranks. all_reduce: (x f) -> the sum over all ranks of attr.comm. reduce_start: (gradients...) begins to average \
     * attr.bucket, a slice of the flat gradients; reduce_poll moves what is under way on (in host memory alone); reduce_wait ends it. assign: (param, \
     * value): param = value. */ \
    X(ALL_REDUCE, "all_reduce", 1, LK_OP_RUNS_ON_HOST) \
    X(REDUCE_START, "reduce_start", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(REDUCE_WAIT, "reduce_wait", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(ASSIGN, "assign", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(REDUCE_POLL, "reduce_poll", 0, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST)
/* clang-format on */

typedef enum lk_op {
#define X(symbol, name, output_count, flags) LK_OP_##symbol,
    LK_OP_LIST(X)
#undef X
        LK_OP_COUNT
} lk_op;

/* What a pass or an engine may assume of an op. The two flags of 16 bits follow PyTorch's autocast. */
typedef enum lk_op_flag {
    LK_OP_IS_LEAF = 1 << 0,         /* it has storage and no kernel */
    LK_OP_IS_VIEW = 1 << 1,         /* its result is the memory of its input: it has no kernel */
    LK_OP_IS_ELEMENTWISE = 1 << 2,  /* one output, of the shape of the broadcast inputs; it may work in place,
                                       and may be fused */
    LK_OP_IS_RANDOM = 1 << 3,       /* it draws random numbers */
    LK_OP_WRITES_OPERANDS = 1 << 4, /* it changes some of its inputs in place */
    LK_OP_HAS_NO_GRADIENT = 1 << 5,
    LK_OP_RUNS_ON_HOST = 1 << 6,  /* the graph brings the kernel, for all engines that use host memory */
    LK_OP_WANTS_16_BITS = 1 << 7, /* it gains from 16-bit operands */
    LK_OP_KEEPS_16_BITS = 1 << 8, /* it reads and writes 16-bit numbers and computes in f32 between;
                                     statistics and weights stay f32 */
} lk_op_flag;

enum { LK_MAX_OUTPUTS = 3, LK_MAX_FUSED_STEPS = 16, LK_MAX_FUSED_INPUTS = 8 };

typedef enum lk_activation { LK_ACTIVATION_NONE, LK_ACTIVATION_RELU } lk_activation;
typedef enum lk_reduction {
    LK_REDUCTION_MEAN,
    LK_REDUCTION_SUM,
    LK_REDUCTION_NONE,
    LK_REDUCTION_BATCH_MEAN
} lk_reduction;
typedef enum lk_pad_mode { LK_PAD_CONSTANT, LK_PAD_REFLECT, LK_PAD_CIRCULAR, LK_PAD_REPLICATE } lk_pad_mode;
/* "linear" is bilinear in two dimensions and trilinear in three. */
typedef enum lk_upsample_mode { LK_UPSAMPLE_NEAREST, LK_UPSAMPLE_LINEAR } lk_upsample_mode;

/* With d = x - t: mse d^2; l1 |d|; smooth_l1 and huber with parameter b (alpha); bce -(t log x + (1-t)
 * log(1-x)), logs not below -100; bce_with_logits; kl_div t (log t - x), 0 where t = 0, or with log targets
 * (alpha = 1) exp(t) (t - x). */
typedef enum lk_pointwise_loss {
    LK_LOSS_MSE,
    LK_LOSS_L1,
    LK_LOSS_SMOOTH_L1,
    LK_LOSS_HUBER,
    LK_LOSS_BCE,
    LK_LOSS_BCE_WITH_LOGITS,
    LK_LOSS_KL_DIV,
} lk_pointwise_loss;

typedef enum lk_update_rule {
    LK_UPDATE_SGD,     /* state0: momentum buffer, where momentum != 0 */
    LK_UPDATE_ADAM,    /* state0: m, state1: v, state2: max v with amsgrad */
    LK_UPDATE_ADAMW,   /* as adam, with decoupled decay */
    LK_UPDATE_RMSPROP, /* state0: square average, state1: momentum buffer, state2: gradient average where
                          centered */
    LK_UPDATE_ADAGRAD, /* state0: sum of squares */
    LK_UPDATE_LAMB,    /* state0: m, state1: v; one parameter a call, for its two norms */
} lk_update_rule;

/* The numbers of an update that change between steps. They live in the optimizer; a kernel reads them at
 * every replay. */
typedef struct lk_hyper {
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay;
    bool nesterov, amsgrad, centered, maximize;
    bool no_debias; /* lamb: averages are not corrected for their start at zero */
    bool no_trust;  /* lamb: the trust ratio is 1 */
    bool first;     /* of accumulate: overwrite instead of adding */
    int64_t step;   /* 1 at the first update */
    double clip;    /* the largest norm, or the largest magnitude; lamb: what |p| counts as at most, or 0 */
    double grad_scale; /* gradients are multiplied by it first; 0 stands for 1 */
    double grad_norm;  /* out: what clip_norm measured */
} lk_hyper;

/* What a scaler holds: the factor that a loss in f16 is multiplied with, so that its gradients do not vanish,
 * and what became of it. It lies beside the gradients, so that no host has to be asked whether to update. */
typedef enum lk_scaler_field {
    LK_SCALER_SCALE,
    LK_SCALER_TRACKER, /* updates since the scale has last changed */
    LK_SCALER_FOUND,   /* 1: the last gradients were not finite; updates and clips change nothing */
    LK_SCALER_SKIPPED, /* how many updates that were; an update is number hyper->step less these */
    LK_SCALER_PENDING, /* an engine's own, 0 between calls */
    LK_SCALER_COUNT = 8
} lk_scaler_field;

typedef struct lk_window {
    int rank; /* spatial dimensions, 1 to 3 */
    int64_t kernel[3], stride[3], padding[3], dilation[3], output_padding[3];
    int64_t groups;
    bool ceil_mode, exclude_pad; /* exclude_pad: PyTorch's count_include_pad = False */
    int64_t divisor;             /* avg_pool's divisor_override; 0 for none */
    double scale[3];             /* upsample: the scale factors given, or 0 where only the size was */
} lk_window;

/* Step i of a fused chain computes an elementwise op of its operands: below input_count an input, else the
 * result of step (operand - input_count). The last step is the result. Inputs broadcast to the output's
 * shape. */
typedef struct lk_fused {
    int input_count, step_count;
    struct {
        lk_op op;
        int operand[3];
        int mode;
        double alpha, beta;
    } step[LK_MAX_FUSED_STEPS];
} lk_fused;

/* What an op needs to know besides its operands; each op's line above says which of these it reads. */
typedef struct lk_attr {
    double alpha, beta;
    int mode;
    int axis;
    uint32_t axes;
    bool keep_dims;
    bool transpose_a, transpose_b;
    bool training;
    bool statistics_only;
    lk_activation activation;
    lk_reduction reduction;
    int64_t index;
    int order[LK_MAX_DIMS];
    int64_t begin[LK_MAX_DIMS], end[LK_MAX_DIMS], step[LK_MAX_DIMS];
    lk_window window;
    lk_shape shape;
    lk_dtype dtype;
    const lk_fused *fused;
    lk_hyper *hyper;
    struct lk_comm *comm;
    struct lki_bucket *bucket;
} lk_attr;

const char *lk_op_name(lk_op op);
unsigned lk_op_flags(lk_op op); /* lk_op_flag */

#ifdef __cplusplus
}
#endif
#endif
