/* The fast paths of the cpu engine: ways to compute an op that only some shapes, or only some data, take.
 *
 * Each has a name and a counter. prepare() or, when the data decides, the kernel's run counts an entry by
 * lki_cpu_enter. The conformance suite reads the counters through lk_engine_ops.paths and fails if none of
 * its cases has entered a path, so that a new one comes with cases on both sides of its thresholds. The flag
 * says which vector levels have it: 512 for AVX-512 alone, 0 for all. */
#ifndef LKI_CPU_PATHS_H
#define LKI_CPU_PATHS_H

#define LKI_CPU_PATH_LIST(X)                                                                                 \
    X(SPARSE_FORWARD, "linear: sparse input", 512)                                                           \
    X(SPARSE_GRADIENT, "linear_grad: sparse input", 512)                                                     \
    X(GEMM_ALONE, "product: one thread", 0)                                                                  \
    X(GEMM_ROWS, "product: threads take rows", 0)                                                            \
    X(GEMM_COLUMNS, "product: threads take columns", 0)                                                      \
    X(MATMUL_SHARED, "matmul: one second operand for all", 0)                                                \
    X(MATMUL_BATCH, "matmul: threads take matrices", 0)                                                      \
    X(WINOGRAD, "conv: Winograd", 512)                                                                       \
    X(WINOGRAD_INPUT, "conv_grad_input: Winograd", 512)                                                      \
    X(WINOGRAD_WEIGHT, "conv_grad_weight: Winograd", 512)                                                    \
    X(WINOGRAD_LEFT, "convolutions: direct, since Winograd would lose digits", 512)                          \
    X(PAIRS, "conv: pairs of columns", 512)                                                                  \
    X(PAIRS_WEIGHT, "conv_grad_weight: pairs of columns", 512)                                               \
    X(CONV_POINTWISE, "convolutions: the input is the columns", 0)                                           \
    X(CONV_COLUMNS, "convolutions: columns are written down", 0)                                             \
    X(GLOBAL_POOL, "adaptive_avg_pool: to one place", 0)                                                     \
    X(REDUCE_RUNS, "reductions: runs of memory", 0)                                                          \
    X(REDUCE_ROWS, "reductions: rows to rows", 0)                                                            \
    X(SOFTMAX_ROWS, "softmax: rows", 0)                                                                      \
    X(SOFTMAX_COLUMNS, "softmax: columns", 0)                                                                \
    X(CLASS_INDICES, "cross_entropy: class indices without smoothing", 0)                                    \
    X(NORM_PLANES, "batch_norm: planes", 0)                                                                  \
    X(NORM_SINGLES, "batch_norm: one place", 0)                                                              \
    X(COPY_RUNS, "movement: runs of memory", 0)                                                              \
    X(COPY_TRANSPOSED, "movement: tiles of a transpose", 0)                                                  \
    X(PAD_CONSTANT, "pad: constant", 0)                                                                      \
    X(PAD_ELEMENTS, "pad: by elements", 0)                                                                   \
    X(CHAIN_FLAT, "elementwise: every operand in place", 0)                                                  \
    X(CHAIN_SPREAD, "elementwise: an operand is spread", 0)                                                  \
    X(ATTENTION_ONE_TILE, "attention: all keys in one tile", 0)                                              \
    X(ATTENTION_TILES, "attention: tiles of keys", 0)                                                        \
    X(WIDENED, "16-bit operands: widened to f32", 0)

typedef enum lki_cpu_path {
#define X(symbol, name, level) LKI_CPU_PATH_##symbol,
    LKI_CPU_PATH_LIST(X)
#undef X
        LKI_CPU_PATH_COUNT
} lki_cpu_path;

#endif
