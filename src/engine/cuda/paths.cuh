/* The fast paths of the cuda engine, as those of the cpu engine (engine/cpu/paths.h): each is counted when it
 * is chosen, and tests/engine/test_fast_paths.c enters all of them: by calls, and by steps those that take
 * several calls together (tests/engine/case_steps.c). */
#ifndef LKI_CUDA_PATHS_CUH
#define LKI_CUDA_PATHS_CUH

#define LKI_CUDA_PATH_LIST(X)                                                                                \
    X(TINY, "product: tiny")                                                                                 \
    X(THIN_OUT, "product: thin, many columns")                                                               \
    X(THIN_WEIGHT, "product: thin, many rows of a transpose")                                                \
    X(THIN_IN, "product: thin, long sums")                                                                   \
    X(DOTS, "product: dots")                                                                                 \
    X(TILES, "product: tiles")                                                                               \
    X(LT, "product: cuBLASLt")                                                                               \
    X(CONV_CUDNN, "convolutions: cuDNN")                                                                     \
    X(CONV_DIRECT, "convolutions: direct")                                                                   \
    X(CONV_WEIGHT, "conv_grad_weight: our own")                                                              \
    X(NORM_CHANNELS, "norms: a block per channel")                                                           \
    X(NORM_PARTS, "norms: channels in parts")                                                                \
    X(NORM_LAST, "norms: channels side by side")                                                             \
    X(NORM_RELU, "norms: channels side by side, with a ReLU")                                                \
    X(NORM_WARP, "norms: a warp per set")                                                                    \
    X(NORM_BLOCK, "norms: a block per set")                                                                  \
    X(POOL_DISJOINT, "pools: disjoint windows")                                                              \
    X(POOL_WARPS, "pools: a warp per window")                                                                \
    X(POOL_PLAIN, "pools: overlapping windows")                                                              \
    X(REDUCE_COLUMNS, "reductions: columns")                                                                 \
    X(REDUCE_WARPS, "reductions: a warp per result")                                                         \
    X(REDUCE_BLOCKS, "reductions: a block per result")                                                       \
    X(REDUCE_PARTS, "reductions: in parts")                                                                  \
    X(TRANSPOSE, "permute: tiles of a transpose")                                                            \
    X(VIEW, "permute: element by element")                                                                   \
    X(CONV_FOLDED, "convolutions: four places as one")                                                       \
    X(ONE_KERNEL, "steps: one kernel")                                                                       \
    X(GRAPH, "steps: a recorded graph")

typedef enum lki_cuda_path {
#define X(symbol, name) LKI_CUDA_PATH_##symbol,
    LKI_CUDA_PATH_LIST(X)
#undef X
        LKI_CUDA_PATH_COUNT
} lki_cuda_path;

#endif
