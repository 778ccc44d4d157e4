/* The ops: what a node of the graph can be. One list; the graph expands it into shape and gradient
 * rules, each engine into kernels, so an op exists in exactly one place and nothing can be
 * forgotten.
 *
 * All operands are contiguous and row-major unless an engine's layout pass said otherwise. "f"
 * stands for any float dtype; the result has the dtype of the first float operand. An optional
 * operand ("?") that is absent has data == NULL. */
#ifndef LOCKSTEP_SYS_OP_H
#define LOCKSTEP_SYS_OP_H

#include <lockstep/random.h>
#include <lockstep/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */
/* X(SYMBOL, name, output_count, FAMILY, flags): lk_op_family says which attributes it reads,
 * lk_op_flag what may be assumed of it. Above a group of ops stands what they take and give. */
#define LK_OP_LIST(X) \
    /* Leaves: they have storage and no kernel. */ \
    X(INPUT, "input", 1, NONE, LK_OP_IS_LEAF) \
    X(PARAM, "param", 1, NONE, LK_OP_IS_LEAF) \
    X(CONSTANT, "constant", 1, NONE, LK_OP_IS_LEAF) \
    \
    /* () -> one value everywhere. */ \
    X(FULL, "full", 1, FILL, LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT) \
    \
    /* Elementwise with broadcasting: (a f, b f) -> f. Comparisons give bool, and take two operands \
     * of any one dtype. where: (condition bool, a, b). */ \
    X(ADD, "add", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SUB, "sub", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(MUL, "mul", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(DIV, "div", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(POW, "pow", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(MAXIMUM, "maximum", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(MINIMUM, "minimum", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(GREATER, "greater", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(GREATER_EQUAL, "greater_equal", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(EQUAL, "equal", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    X(WHERE, "where", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    \
    /* Elementwise: (x f) -> f. */ \
    X(NEG, "neg", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(ABS, "abs", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SIGN, "sign", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT) \
    X(EXP, "exp", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(LOG, "log", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(SQRT, "sqrt", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(SIN, "sin", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(COS, "cos", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(ERF, "erf", 1, NONE, LK_OP_IS_ELEMENTWISE) \
    X(TANH, "tanh", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SIGMOID, "sigmoid", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(RELU, "relu", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(LEAKY_RELU, "leaky_relu", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(ELU, "elu", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(GELU, "gelu", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SILU, "silu", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(SOFTPLUS, "softplus", 1, SCALAR, LK_OP_IS_ELEMENTWISE) \
    X(CLAMP, "clamp", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    X(ADD_SCALAR, "add_scalar", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)  /* x + number */ \
    X(MUL_SCALAR, "mul_scalar", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS)  /* x * number */ \
    X(POW_SCALAR, "pow_scalar", 1, SCALAR, LK_OP_IS_ELEMENTWISE)  /* x ^ number */ \
    X(CAST, "cast", 1, CAST, LK_OP_IS_ELEMENTWISE)  /* any dtype to any dtype */ \
    X(COPY, "copy", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_KEEPS_16_BITS) \
    \
    /* Their gradients, with the attributes of the op: (dy, y) of tanh, sigmoid and relu, (dy, x) of the others -> \
     * dx. relu_grad: dy where y > 0. clamp_grad: dy where min <= x <= max. */ \
    X(TANH_GRAD, "tanh_grad", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(SIGMOID_GRAD, "sigmoid_grad", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(RELU_GRAD, "relu_grad", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(LEAKY_RELU_GRAD, "leaky_relu_grad", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(ELU_GRAD, "elu_grad", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(GELU_GRAD, "gelu_grad", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(SILU_GRAD, "silu_grad", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(SOFTPLUS_GRAD, "softplus_grad", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT) \
    X(CLAMP_GRAD, "clamp_grad", 1, SCALAR, LK_OP_IS_ELEMENTWISE | LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    \
    /* A chain of elementwise ops, made by the fuse pass: (inputs...) -> f. */ \
    X(FUSED, "fused", 1, FUSED, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT) \
    \
    /* Reductions over a set of axes: (x f) -> f. max_grad: (dy, x, y), all of x's rank -> dx, shared evenly by \
     * all elements that equal the maximum. argmax: (x f) -> i64, the first of equals. */ \
    X(SUM, "sum", 1, REDUCE, 0) \
    X(MEAN, "mean", 1, REDUCE, 0) \
    X(MAX, "max", 1, REDUCE, 0) \
    X(VAR, "var", 1, REDUCE, 0) \
    X(MAX_GRAD, "max_grad", 1, NONE, LK_OP_IS_GRADIENT) \
    X(ARGMAX, "argmax", 1, AXIS, LK_OP_HAS_NO_GRADIENT) \
    X(EXPAND, "expand", 1, SHAPE, LK_OP_KEEPS_16_BITS)  /* broadcasts x to the shape */ \
    \
    /* Along one axis. The gradients take (dy, y). */ \
    X(SOFTMAX, "softmax", 1, AXIS, 0) \
    X(LOG_SOFTMAX, "log_softmax", 1, AXIS, 0) \
    X(SOFTMAX_GRAD, "softmax_grad", 1, AXIS, LK_OP_IS_GRADIENT) \
    X(LOG_SOFTMAX_GRAD, "log_softmax_grad", 1, AXIS, LK_OP_IS_GRADIENT) \
    \
    /* Moving data. The gradients give dx of the attributes' shape; slice_grad's is 0 \
     * outside of the slice. concat: (x0, x1, ...). gather: (x f, index i64 \
     * of x's rank), as torch.gather; its gradient takes (dy, index). embedding: (weight (n, d), index i64 (...)) -> \
     * (..., d); its gradient: (dy, index) -> dweight, nothing for the padding row. */ \
    X(RESHAPE, "reshape", 1, SHAPE, LK_OP_IS_VIEW | LK_OP_KEEPS_16_BITS)  /* the same memory */ \
    X(PERMUTE, "permute", 1, PERMUTE, LK_OP_KEEPS_16_BITS) \
    X(SLICE, "slice", 1, SLICE, LK_OP_KEEPS_16_BITS) \
    X(SLICE_GRAD, "slice_grad", 1, SLICE, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(CONCAT, "concat", 1, AXIS, LK_OP_KEEPS_16_BITS) \
    X(PAD, "pad", 1, PAD, LK_OP_KEEPS_16_BITS) \
    X(PAD_GRAD, "pad_grad", 1, PAD, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(GATHER, "gather", 1, GATHER, 0) \
    X(GATHER_GRAD, "gather_grad", 1, GATHER, LK_OP_IS_GRADIENT) \
    X(EMBEDDING, "embedding", 1, EMBEDDING, 0) \
    X(EMBEDDING_GRAD, "embedding_grad", 1, EMBEDDING, LK_OP_IS_GRADIENT) \
    \
    /* Products. matmul: (a (..., m, k), b (..., k, n)), leading axes broadcast. linear: (x (..., k), w (n, k), \
     * b? (n)) -> (..., n), then the activation. linear_grad: (dy (..., n), x (..., k)) -> dw (n, k), db (n). */ \
    X(MATMUL, "matmul", 1, MATMUL, LK_OP_WANTS_16_BITS) \
    X(LINEAR, "linear", 1, LINEAR, LK_OP_WANTS_16_BITS) \
    X(LINEAR_GRAD, "linear_grad", 2, LINEAR, LK_OP_IS_GRADIENT | LK_OP_WANTS_16_BITS) \
    \
    /* Convolutions. conv: (x (n, c, s...), w (o, c/groups, k...), b? (o)), then the activation. conv_grad_input: \
     * (dy, w) -> dx. conv_grad_weight: (dy, x) -> dw, db (o). conv_transpose: (x (n, c, s...), w (c, o/groups, \
     * k...), b? (o)). */ \
    X(CONV, "conv", 1, CONV, LK_OP_WANTS_16_BITS) \
    X(CONV_GRAD_INPUT, "conv_grad_input", 1, CONV, LK_OP_IS_GRADIENT | LK_OP_WANTS_16_BITS) \
    X(CONV_GRAD_WEIGHT, "conv_grad_weight", 2, CONV, LK_OP_IS_GRADIENT | LK_OP_WANTS_16_BITS) \
    X(CONV_TRANSPOSE, "conv_transpose", 1, CONV, LK_OP_WANTS_16_BITS) \
    \
    /* Pooling over the last axes. max_pool: (x) -> y, index i32: the flat place of the winner (the first of \
     * equals; a NaN wins) inside its (s...) plane, then the activation: if a ReLU lets nothing through, index is \
     * -1. Its gradient: (dy, index) -> dx; nothing flows to an index of -1. The others: (x) -> y, (dy) -> dx. */ \
    X(MAX_POOL, "max_pool", 2, POOL, LK_OP_KEEPS_16_BITS) \
    X(MAX_POOL_GRAD, "max_pool_grad", 1, POOL, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(AVG_POOL, "avg_pool", 1, POOL, LK_OP_KEEPS_16_BITS) \
    X(AVG_POOL_GRAD, "avg_pool_grad", 1, POOL, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(ADAPTIVE_AVG_POOL, "adaptive_avg_pool", 1, POOL, LK_OP_KEEPS_16_BITS) \
    X(ADAPTIVE_AVG_POOL_GRAD, "adaptive_avg_pool_grad", 1, POOL, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(UPSAMPLE, "upsample", 1, UPSAMPLE, 0) \
    X(UPSAMPLE_GRAD, "upsample_grad", 1, UPSAMPLE, LK_OP_IS_GRADIENT) \
    \
    /* Normalisation. batch_norm: (x (n, c, ...), weight? (c), bias? (c), running_mean? (c), running_var? (c)) -> \
     * y, mean (c), inverse std (c). In training it normalises by the batch and moves the running values in place \
     * (the running variance takes the unbiased one), else by the running values. layer_norm: (x, w?, b?) -> y, \
     * mean, inverse std (one per row). group_norm: (x (n, c, ...), w? (c), b? (c)) -> y, mean, inverse std \
     * (n, groups). The gradients: (dy, x, weight?, mean, inverse std) -> dx, dweight, dbias. */ \
    X(BATCH_NORM, "batch_norm", 3, NORM, LK_OP_WRITES_OPERANDS | LK_OP_KEEPS_16_BITS) \
    X(BATCH_NORM_GRAD, "batch_norm_grad", 3, NORM, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(LAYER_NORM, "layer_norm", 3, NORM, 0) \
    X(LAYER_NORM_GRAD, "layer_norm_grad", 3, NORM, LK_OP_IS_GRADIENT) \
    X(GROUP_NORM, "group_norm", 3, NORM, 0) \
    X(GROUP_NORM_GRAD, "group_norm_grad", 3, NORM, LK_OP_IS_GRADIENT) \
    \
    /* A batch norm with the ReLU behind it, made by the fold_norms pass. batch_norm_relu: (the inputs of batch_norm, \
     * addend?, mean? (c), inverse_std? (c), addend_weight? (c), addend_bias? (c)) -> y = relu(batch_norm(x) + \
     * addend), mean, inverse std. The addend has x's shape. If its mean and inverse std are there, it is the x of \
     * another batch norm, and is normalised with them before it is added. batch_norm_relu_grad, if there was no \
     * addend: (the inputs of batch_norm_grad, bias? (c)) -> dx, dweight, dbias, where dy counts as 0 if the ReLU \
     * let nothing through. */ \
    X(BATCH_NORM_RELU, "batch_norm_relu", 3, NORM, LK_OP_IS_OPTIONAL | LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) \
    X(BATCH_NORM_RELU_GRAD, "batch_norm_relu_grad", 3, NORM, LK_OP_IS_OPTIONAL | LK_OP_HAS_NO_GRADIENT | LK_OP_KEEPS_16_BITS) \
    \
    /* dropout: (x) -> y, mask u8. Draws one f64 per element, in order, from call->generator: keeps an element if \
     * the draw < 1 - p, and scales it by 1 / (1 - p), as PyTorch. dropout_grad: (dy, mask) -> dx. */ \
    X(DROPOUT, "dropout", 2, DROPOUT, LK_OP_IS_RANDOM | LK_OP_KEEPS_16_BITS) \
    X(DROPOUT_GRAD, "dropout_grad", 1, DROPOUT, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    \
    /* Losses over classes. cross_entropy: (logits (n, c, s...), target i64 (n, s...) or f of the logits' shape, \
     * weight? (c)) -> loss, log-probabilities (the logits' shape). Its gradient: (dloss, logp, target, weight?) -> \
     * dlogits. nll: (logp, target i64, weight?); its gradient: (dloss, logp, target, weight?) -> dlogp. A target \
     * outside of 0..c-1 that is not ignored: LK_ERR_RANGE. */ \
    X(CROSS_ENTROPY, "cross_entropy", 2, CLASS_LOSS, 0) \
    X(CROSS_ENTROPY_GRAD, "cross_entropy_grad", 1, CLASS_LOSS, LK_OP_IS_GRADIENT) \
    X(NLL, "nll", 1, CLASS_LOSS, 0) \
    X(NLL_GRAD, "nll_grad", 1, CLASS_LOSS, LK_OP_IS_GRADIENT) \
    \
    /* Losses between numbers: (x f, target f, weight?, pos_weight? of bce_with_logits), all of one shape -> loss. \
     * The gradient: (dloss, x, target, weight?, pos_weight?) -> dx. dloss is a scalar, or of x's shape if the \
     * reduction is none. pointwise_loss_with_grad, if it is not none, made by the join_losses pass: -> loss, and the \
     * dx of a dloss of 1. */ \
    X(POINTWISE_LOSS, "pointwise_loss", 1, POINTWISE_LOSS, 0) \
    X(POINTWISE_LOSS_GRAD, "pointwise_loss_grad", 1, POINTWISE_LOSS, LK_OP_IS_GRADIENT) \
    X(POINTWISE_LOSS_WITH_GRAD, "pointwise_loss_with_grad", 2, POINTWISE_LOSS, LK_OP_IS_OPTIONAL | LK_OP_HAS_NO_GRADIENT) \
    \
    /* A change of memory layout (lk_layout in <lockstep/sys/engine.h>), also from f32 to 16 bits or back. Made by \
     * the layout pass. */ \
    X(REORDER, "reorder", 1, NONE, LK_OP_HAS_NO_GRADIENT) \
    \
    /* The update half of a step, over flat slices. update: (param, grad, state0?, state1?, state2?, scaler?) in \
     * place. clip_norm: (grad, scaler?) in place, to a norm of hyper->clip; the norm that it found goes to \
     * hyper->grad_norm. clip_value: (grad, scaler?). accumulate: (sum, grad): sum += grad, or sum = grad if \
     * hyper->first. unscale: (grad, scaler) of one dtype: grad /= the scale, which then shrinks if a gradient is \
     * not finite, and grows after enough updates without one. Updates and clips do nothing after a gradient that \
     * is not finite: see lk_scaler_field. */ \
    X(UPDATE, "update", 0, UPDATE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(CLIP_NORM, "clip_norm", 0, UPDATE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(CLIP_VALUE, "clip_value", 0, UPDATE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(ACCUMULATE, "accumulate", 0, UPDATE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    X(UNSCALE, "unscale", 0, UNSCALE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT) \
    \
    /* Between ranks. all_reduce: (x f) -> the sum over all ranks. reduce_start: (gradients...) begins to average a \
     * bucket, a slice of the flat gradients; reduce_poll moves it on (in host memory alone); reduce_wait ends it. \
     * assign: (param, value): param = value. */ \
    X(ALL_REDUCE, "all_reduce", 1, EXCHANGE, LK_OP_RUNS_ON_HOST) \
    X(REDUCE_START, "reduce_start", 0, EXCHANGE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(REDUCE_WAIT, "reduce_wait", 0, EXCHANGE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(ASSIGN, "assign", 0, NONE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    X(REDUCE_POLL, "reduce_poll", 0, EXCHANGE, LK_OP_WRITES_OPERANDS | LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    \
    /* Recurrent layers, one direction of one layer over all T steps, with gates G: 4 of an LSTM (i, f, g, o), 3 of a \
     * GRU (r, z, n), 1 of an RNN. recurrent: (the inputs' share of the gates (T, N, G H), w_hh (G H, R), b_hh? (G H), \
     * h0? (N, R), c0? (N, H), w_hr? (R, H), lengths? i64 (N)) -> y (T, N, R), the last states (N, R), of an LSTM \
     * h and c (N, R + H), and what the gradient needs: the gates, and c of an LSTM or W_hn h + b_hn of a GRU \
     * (T, N, S). R is H, or less if w_hr projects h. Steps at or after a sequence's length leave its state alone \
     * and give 0; a length outside of 0..T: LK_ERR_RANGE. recurrent_grad: (y, saved, w_hh, dy?, dlast?, h0?, c0?, \
     * w_hr?, lengths?) -> dgates (T, N, G H), the gradient of the first states (N, R [+ H]), and with w_hr that of \
     * h (T, N, R). recurrent_grad_weight: (dgates, y, saved, h0?, dh?, lengths?) -> dw_hh, db_hh, dw_hr. */ \
    X(RECURRENT, "recurrent", 3, RECURRENT, 0) \
    X(RECURRENT_GRAD, "recurrent_grad", 3, RECURRENT, LK_OP_HAS_NO_GRADIENT) \
    X(RECURRENT_GRAD_WEIGHT, "recurrent_grad_weight", 3, RECURRENT, LK_OP_HAS_NO_GRADIENT) \
    \
    /* Elementwise: (x f) -> f. round: to the nearest, halves to the even one. detach: the same memory, without its \
     * gradient. */ \
    X(FLOOR, "floor", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT) \
    X(CEIL, "ceil", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT) \
    X(ROUND, "round", 1, NONE, LK_OP_IS_ELEMENTWISE | LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT) \
    X(DETACH, "detach", 1, NONE, LK_OP_IS_VIEW | LK_OP_HAS_NO_GRADIENT | LK_OP_IS_FLAT | LK_OP_KEEPS_16_BITS) \
    \
    /* Along one axis: (x f) -> f. y_k is the sum (or the product) of x_0 to x_k, or with `reverse` of x_k to the \
     * last. cumprod_grad: (dy, x) -> dx. sort: (x f) -> values, index i64: stable, a NaN counts as the largest; the \
     * first `count` of them, or all if it is 0. */ \
    X(CUMSUM, "cumsum", 1, SCAN, 0) \
    X(CUMPROD, "cumprod", 1, SCAN, 0) \
    X(CUMPROD_GRAD, "cumprod_grad", 1, SCAN, LK_OP_HAS_NO_GRADIENT) \
    X(SORT, "sort", 2, SORT, 0) \
    \
    /* (x f, index i64 of x's rank, source f of the index's shape) -> x with the source at the places that torch.gather \
     * would read: the last of equals stays (scatter), or all are added in their order (scatter_add). */ \
    X(SCATTER, "scatter", 1, GATHER, 0) \
    X(SCATTER_ADD, "scatter_add", 1, GATHER, 0) \
    \
    /* The gradient of many slices of one tensor: (dy0, dy1, ...) -> dx of the attributes' shape: 0, then each is \
     * added at the place of its slice, in their order. */ \
    X(SLICES_GRAD, "slices_grad", 1, SLICES, LK_OP_IS_GRADIENT | LK_OP_KEEPS_16_BITS) \
    \
    /* () -> numbers that are drawn at every replay, in order, from call->generator: PyTorch's. */ \
    X(RANDOM, "random", 1, RANDOM, LK_OP_IS_RANDOM | LK_OP_HAS_NO_GRADIENT) \
    \
    /* A function of the program's own (lk_custom_op in <lockstep/graph.h>): (inputs...) -> y. custom_grad: (dy, y, \
     * inputs...) -> the gradients of the first inputs. */ \
    X(CUSTOM, "custom", 1, CUSTOM, LK_OP_RUNS_ON_HOST) \
    X(CUSTOM_GRAD, "custom_grad", 3, CUSTOM, LK_OP_HAS_NO_GRADIENT | LK_OP_RUNS_ON_HOST) \
    \
    /* Attention: softmax(scale q k^T + masks) v of each head, without the (L, S) scores in memory. attention: (q, k?, \
     * v?, mask? (B, H, L, S), key_mask? (B, S)) -> y, the logarithm of each row's sum of exponentials (B, H, L), and \
     * with 0 < p < 1 where the draws of dropout begin: u8 (B, H, ceil(L / LK_ATTENTION_ROWS), \
     * sizeof(lk_generator)), else empty. The layout of the attributes says in which order q and y, k and v have \
     * their dimensions: of q (B, L, H, D), k (B, S, G, D), v (B, S, G, E) and y (B, L, H, E) with H a multiple of \
     * G. Without v, k holds the heads of k and then those of v (E = D). Without k too, q holds the heads of q, k \
     * and v: what one linear layer gives for all three is used as it is. A mask is of bool, or numbers that are \
     * added (f32, or of q's dtype); its first three dimensions may be 1. With is_causal, query i sees keys 0 to i. \
     * A row without any key is NaN. Dropout draws for all of (B, H, L, S) in order, as `dropout` does; an engine \
     * that draws by counters writes its key to the first bytes of the third result. attention_grad: (dy, y, q, k?, \
     * v?, mask?, key_mask?, row logarithms, draws) -> the gradients of q, k and v; of those that are absent, none. */ \
    X(ATTENTION, "attention", 3, ATTENTION, LK_OP_IS_RANDOM | LK_OP_WANTS_16_BITS) \
    X(ATTENTION_GRAD, "attention_grad", 3, ATTENTION, LK_OP_IS_GRADIENT | LK_OP_WANTS_16_BITS)
/* clang-format on */

typedef enum lk_op {
#define X(symbol, name, output_count, family, flags) LK_OP_##symbol,
    LK_OP_LIST(X)
#undef X
        LK_OP_COUNT
} lk_op;

/* What a pass or an engine may assume of an op. The two flags of 16 bits follow PyTorch's autocast.
 */
typedef enum lk_op_flag {
    LK_OP_IS_LEAF = 1 << 0,         /* it has storage and no kernel */
    LK_OP_IS_VIEW = 1 << 1,         /* its result is the memory of its input: it has no kernel */
    LK_OP_IS_ELEMENTWISE = 1 << 2,  /* one output, of the shape of the broadcast inputs; it may work
                                       in place,  and may be fused */
    LK_OP_IS_RANDOM = 1 << 3,       /* it draws random numbers */
    LK_OP_WRITES_OPERANDS = 1 << 4, /* it changes some of its inputs in place */
    LK_OP_HAS_NO_GRADIENT = 1 << 5,
    LK_OP_IS_OPTIONAL = 1 << 9,   /* made only if lk_engine_ops.preference wants it */
    LK_OP_RUNS_ON_HOST = 1 << 6,  /* the graph brings the kernel, for engines on the host */
    LK_OP_WANTS_16_BITS = 1 << 7, /* it gains from 16-bit operands */
    LK_OP_IS_GRADIENT = 1 << 10,  /* made by the gradient rule of another op */
    LK_OP_IS_FLAT = 1 << 11,      /* small changes of its inputs change nothing */
    LK_OP_KEEPS_16_BITS = 1 << 8, /* it reads and writes 16-bit numbers and computes in f32 between;
                                     statistics and weights stay f32 */
} lk_op_flag;

enum { LK_MAX_OUTPUTS = 3, LK_MAX_FUSED_STEPS = 16, LK_MAX_FUSED_INPUTS = 8 };
enum { LK_ATTENTION_ROWS = 64 }; /* so many queries begin with draws of their own */

typedef enum lk_activation { LK_ACTIVATION_NONE, LK_ACTIVATION_RELU } lk_activation;
typedef enum lk_reduction {
    LK_REDUCTION_MEAN,
    LK_REDUCTION_SUM,
    LK_REDUCTION_NONE,
    LK_REDUCTION_BATCH_MEAN
} lk_reduction;
typedef enum lk_pad_mode { LK_PAD_CONSTANT, LK_PAD_REFLECT, LK_PAD_CIRCULAR, LK_PAD_REPLICATE } lk_pad_mode;
/* "linear" is bilinear in two dimensions and trilinear in three. The op has the first two modes;
 * lk_op_upsample makes the others of other ops. */
typedef enum lk_upsample_mode {
    LK_UPSAMPLE_NEAREST,
    LK_UPSAMPLE_LINEAR,
    LK_UPSAMPLE_BICUBIC,
    LK_UPSAMPLE_NEAREST_EXACT
} lk_upsample_mode;

/* With d = x - t: mse d^2; l1 |d|; smooth_l1 and huber with the parameter b; bce -(t log x + (1-t)
 * log(1-x)), logs not below -100; bce_with_logits; kl_div t (log t - x), 0 where t = 0, or with log
 * targets (the parameter is 1) exp(t) (t - x). */
typedef enum lk_pointwise_loss {
    LK_LOSS_MSE,
    LK_LOSS_L1,
    LK_LOSS_SMOOTH_L1,
    LK_LOSS_HUBER,
    LK_LOSS_BCE,
    LK_LOSS_BCE_WITH_LOGITS,
    LK_LOSS_KL_DIV,
} lk_pointwise_loss;

/* h' of an RNN is tanh or relu of its gate. */
typedef enum lk_recurrent {
    LK_RECURRENT_LSTM,
    LK_RECURRENT_GRU,
    LK_RECURRENT_RNN_TANH,
    LK_RECURRENT_RNN_RELU
} lk_recurrent;

/* The order of dimensions: batch, heads, sequence, width of a head. */
typedef enum lk_attention_layout {
    LK_ATTENTION_HEADS_FIRST,   /* (B, H, L, D) */
    LK_ATTENTION_BATCH_FIRST,   /* (B, L, H, D) */
    LK_ATTENTION_SEQUENCE_FIRST /* (L, B, H, D) */
} lk_attention_layout;

typedef enum lk_update_rule {
    LK_UPDATE_SGD,     /* state0: momentum buffer, where momentum != 0 */
    LK_UPDATE_ADAM,    /* state0: m, state1: v, state2: max v with amsgrad */
    LK_UPDATE_ADAMW,   /* as adam, with decoupled decay */
    LK_UPDATE_RMSPROP, /* state0: square average, state1: momentum buffer, state2: gradient average
                          where centered */
    LK_UPDATE_ADAGRAD, /* state0: sum of squares */
    LK_UPDATE_LAMB,    /* state0: m, state1: v; one parameter a call, for its two norms */
    /* These read a number that they share with no other rule from a field that they do not need. */
    LK_UPDATE_NADAM,    /* state0: m, state1: v, state2: product of mu; lr_decay: momentum decay */
    LK_UPDATE_RADAM,    /* state0: m, state1: v */
    LK_UPDATE_ADADELTA, /* state0: square average, state1: that of changes; alpha: rho */
    LK_UPDATE_ADAMAX,   /* state0: m, state1: the largest gradient, which fades */
    LK_UPDATE_RPROP,    /* state0: last gradient, state1: step size; alpha, lr_decay: etas; eps,
                           clip: bounds of a step */
    LK_UPDATE_ASGD,     /* state0: averaged parameter, state1: eta; lr_decay: lambd, dampening:
                           t0 */
    LK_UPDATE_LION,     /* state0: m */
    LK_UPDATE_COUNT
} lk_update_rule;

/* The numbers of an update that change between steps. They live in the optimizer; a kernel reads
 * them at every replay. */
typedef struct lk_hyper {
    double lr, momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay;
    bool nesterov, amsgrad, centered, maximize;
    bool no_debias;    /* lamb: averages are not corrected for their start at zero */
    bool no_trust;     /* lamb: the trust ratio is 1 */
    bool first;        /* of accumulate: overwrite instead of adding */
    int64_t step;      /* 1 at the first update */
    double clip;       /* largest norm or magnitude; lamb: bound of |p|, or 0; rprop: of a step */
    double grad_scale; /* gradients are multiplied by it first; 0 stands for 1 */
    double grad_norm;  /* out: what clip_norm measured */
} lk_hyper;

/* What a scaler holds: the factor that a loss in f16 is multiplied with, so that its gradients do
 * not vanish, and what became of it. It lies beside the gradients, so that no host has to be asked
 * whether to update. */
typedef enum lk_scaler_field {
    LK_SCALER_SCALE,
    LK_SCALER_TRACKER, /* updates since the scale has last changed */
    LK_SCALER_FOUND,   /* 1: the last gradients were not finite; updates and clips change nothing */
    LK_SCALER_SKIPPED, /* how many updates that were; an update is number hyper->step less these */
    LK_SCALER_PENDING, /* an engine's own, 0 between calls */
    LK_SCALER_COUNT = 8
} lk_scaler_field;

/* uniform in [a, b); normal with mean a and standard deviation b; 1 with probability a, else 0. */
typedef enum lk_random_kind { LK_RANDOM_UNIFORM, LK_RANDOM_NORMAL, LK_RANDOM_BERNOULLI } lk_random_kind;

typedef struct lk_window {
    int rank; /* spatial dimensions, 1 to 3 */
    int64_t kernel[3], stride[3], padding[3], dilation[3], output_padding[3];
    int64_t groups;
    bool ceil_mode, exclude_pad; /* exclude_pad: PyTorch's count_include_pad = False */
    int64_t divisor;             /* avg_pool's divisor_override; 0 for none */
} lk_window;

/* The attributes: what an op needs to know besides its operands. Each family of ops has its own
 * struct. Comments name the ops that read a field if not all of the family do. `shape` of a
 * gradient is that of its result. */

typedef struct lk_fill_attr {
    double value;
    lk_dtype dtype;
    lk_shape shape;
} lk_fill_attr;

/* The numbers of an elementwise op. A gradient reads what its op does. */
typedef union lk_scalar_attr {
    double number; /* add_scalar, mul_scalar, pow_scalar */
    double slope;  /* leaky_relu: below 0 */
    double alpha;  /* elu */
    bool by_tanh;  /* gelu: the approximation by tanh instead of erf */
    struct {
        double beta, threshold;
    } softplus;
    struct {
        double min, max;
    } clamp;
} lk_scalar_attr;

typedef struct lk_cast_attr {
    lk_dtype dtype;
} lk_cast_attr;

/* Step i of a fused chain computes an elementwise op of its operands: below input_count an input,
 * else the result of step (operand - input_count). The last step is the result. Inputs broadcast to
 * the output's shape. */
typedef struct lk_fused {
    int input_count, step_count;
    struct {
        lk_op op;
        int operand[3];
        lk_scalar_attr scalar;
    } step[LK_MAX_FUSED_STEPS];
} lk_fused;

typedef struct lk_fused_attr {
    const lk_fused *chain;
    lk_shape shape; /* of the result */
} lk_fused_attr;

typedef struct lk_reduce_attr {
    uint32_t axes; /* bit i stands for axis i */
    bool keep_dims;
    int64_t correction; /* var: the sum of squares is divided by the count less this */
} lk_reduce_attr;

typedef struct lk_axis_attr {
    int axis;
    bool keep_dims; /* argmax */
} lk_axis_attr;

typedef struct lk_shape_attr {
    lk_shape shape; /* of the result */
} lk_shape_attr;

typedef struct lk_permute_attr {
    int order[LK_MAX_DIMS]; /* y.dim[i] = x.dim[order[i]] */
} lk_permute_attr;

typedef struct lk_slice_attr {
    int64_t begin[LK_MAX_DIMS], end[LK_MAX_DIMS], step[LK_MAX_DIMS]; /* per axis, step >= 1 */
    lk_shape shape;                                                  /* slice_grad */
} lk_slice_attr;

typedef struct lk_pad_attr {
    int64_t before[LK_MAX_DIMS], after[LK_MAX_DIMS]; /* per axis */
    lk_pad_mode mode;
    double value;   /* LK_PAD_CONSTANT */
    lk_shape shape; /* pad_grad */
} lk_pad_attr;

typedef struct lk_gather_attr {
    int axis;
    lk_shape shape; /* gather_grad */
} lk_gather_attr;

typedef struct lk_embedding_attr {
    int64_t padding_index; /* the row that gets no gradient, or -1 */
    lk_shape shape;        /* embedding_grad */
} lk_embedding_attr;

typedef struct lk_matmul_attr {
    bool transpose_a, transpose_b; /* the last two axes */
} lk_matmul_attr;

typedef struct lk_linear_attr {
    lk_activation activation; /* linear */
    bool wants_bias;          /* linear_grad: whether db is computed */
} lk_linear_attr;

typedef struct lk_conv_attr {
    lk_window window;
    lk_activation activation; /* conv */
    bool wants_bias;          /* conv_grad_weight: whether db is computed */
    lk_shape shape;           /* conv_grad_input, conv_grad_weight */
} lk_conv_attr;

typedef struct lk_pool_attr {
    lk_window window;         /* adaptive pools read its rank alone */
    lk_activation activation; /* max_pool */
    lk_shape shape;           /* the gradients; adaptive_avg_pool: of the whole result */
} lk_pool_attr;

typedef struct lk_upsample_attr {
    int rank; /* spatial dimensions, 1 to 3 */
    lk_upsample_mode mode;
    bool align_corners; /* LK_UPSAMPLE_LINEAR */
    double scale[3];    /* the scale factors given, or 0 if only the size was */
    lk_shape shape;     /* of the whole result */
} lk_upsample_attr;

typedef struct lk_norm_attr {
    double eps;
    double momentum;     /* batch_norm */
    bool training;       /* batch_norm: by the batch, not by the running values */
    int axis_count;      /* layer_norm: how many axes, the last ones, are normalised together */
    int64_t group_count; /* group_norm */
} lk_norm_attr;

typedef struct lk_dropout_attr {
    double p; /* the share that is dropped */
} lk_dropout_attr;

typedef struct lk_recurrent_attr {
    lk_recurrent kind;
    bool reverse; /* from the last step to the first */
} lk_recurrent_attr;

typedef struct lk_attention_attr {
    lk_attention_layout layout;
    int64_t heads, kv_heads; /* H of q; G of k and v */
    double scale;
    double p; /* the share of the weights that is dropped */
    bool is_causal;
    bool mask_forbids; /* a true of a mask takes a key away; else it lets it take part */
} lk_attention_attr;

typedef struct lk_class_loss_attr {
    lk_reduction reduction; /* mean (weighted), sum or none */
    int64_t ignore_index;
    double label_smoothing; /* cross_entropy */
} lk_class_loss_attr;

typedef struct lk_pointwise_loss_attr {
    lk_pointwise_loss kind;
    lk_reduction reduction; /* batch_mean divides the sum by dim 0 */
    double parameter;       /* see lk_pointwise_loss */
} lk_pointwise_loss_attr;

typedef struct lk_scan_attr {
    int axis;
    bool reverse;
} lk_scan_attr;

typedef struct lk_sort_attr {
    int axis;
    bool descending;
    int64_t count; /* how many of each line are kept; 0: all */
} lk_sort_attr;

typedef struct lk_slices_attr {
    const lk_slice_attr *parts; /* one per input */
    lk_shape shape;
} lk_slices_attr;

typedef struct lk_random_attr {
    lk_random_kind kind;
    double a, b; /* see lk_random_kind */
    lk_dtype dtype;
    lk_shape shape;
} lk_random_attr;

typedef struct lk_custom_attr {
    const struct lk_custom_op *op;
    void *context;
} lk_custom_attr;

typedef struct lk_update_attr {
    lk_update_rule rule; /* update */
    lk_hyper *hyper;
} lk_update_attr;

typedef struct lk_unscale_attr {
    double growth_factor, backoff_factor; /* of the scale, when it grows or shrinks */
    int64_t growth_interval;              /* it grows after so many updates with finite gradients */
} lk_unscale_attr;

typedef struct lk_exchange_attr {
    struct lk_comm *comm;      /* all_reduce */
    struct lki_bucket *bucket; /* reduce_start, reduce_poll, reduce_wait */
} lk_exchange_attr;

/* X(FAMILY, member): the families, each with the member of lk_attr that its ops read. */
#define LK_OP_FAMILY_LIST(X)                                                                                 \
    X(FILL, fill)                                                                                            \
    X(SCALAR, scalar)                                                                                        \
    X(CAST, cast)                                                                                            \
    X(FUSED, fused)                                                                                          \
    X(REDUCE, reduce)                                                                                        \
    X(AXIS, axis)                                                                                            \
    X(SHAPE, shape)                                                                                          \
    X(PERMUTE, permute)                                                                                      \
    X(SLICE, slice)                                                                                          \
    X(PAD, pad)                                                                                              \
    X(GATHER, gather)                                                                                        \
    X(EMBEDDING, embedding)                                                                                  \
    X(MATMUL, matmul)                                                                                        \
    X(LINEAR, linear)                                                                                        \
    X(CONV, conv)                                                                                            \
    X(POOL, pool)                                                                                            \
    X(UPSAMPLE, upsample)                                                                                    \
    X(NORM, norm)                                                                                            \
    X(DROPOUT, dropout)                                                                                      \
    X(CLASS_LOSS, class_loss)                                                                                \
    X(POINTWISE_LOSS, pointwise_loss)                                                                        \
    X(UPDATE, update)                                                                                        \
    X(UNSCALE, unscale)                                                                                      \
    X(EXCHANGE, exchange)                                                                                    \
    X(RECURRENT, recurrent)                                                                                  \
    X(SCAN, scan)                                                                                            \
    X(SORT, sort)                                                                                            \
    X(SLICES, slices)                                                                                        \
    X(RANDOM, random)                                                                                        \
    X(CUSTOM, custom)                                                                                        \
    X(ATTENTION, attention)

typedef enum lk_op_family {
    LK_FAMILY_NONE, /* it has no attributes */
#define X(symbol, member) LK_FAMILY_##symbol,
    LK_OP_FAMILY_LIST(X)
#undef X
} lk_op_family;

/* The attributes of one op: the member of its family. */
typedef union lk_attr {
#define X(symbol, member) lk_##member##_attr member;
    LK_OP_FAMILY_LIST(X)
#undef X
} lk_attr;

const char *lk_op_name(lk_op op);
unsigned lk_op_flags(lk_op op); /* lk_op_flag */
lk_op_family lk_op_family_of(lk_op op);

#ifdef __cplusplus
}
#endif
#endif
