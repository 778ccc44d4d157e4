/* Steps whose kernels' starts take longer than their work: the whole step as one kernel.
 *
 * While a step is recorded, calls whose work has a place in that kernel leave a note beside their launches.
 * Where every node of the recorded graph has been noted, the program is that kernel instead of the graph
 * (small.cu): it takes the news of the step and goes through the noted ops (small_kernel.cuh).
 *
 * An op is cut into pieces, and block b takes pieces b, b + blocks, ... . Ops that depend on one another need
 * a barrier of all blocks between them, unless what one piece writes only the same piece of the other reads
 * (rows), or every block has written all of it for itself (a batch's labels).
 *
 * Life: notes from record_begin to record_end; a small program from there to program_free. Thread rule: that
 * of engines. */
#ifndef LKI_CUDA_SMALL_SMALL_CUH
#define LKI_CUDA_SMALL_SMALL_CUH

#include "engine/cuda/loss_classes.cuh"
#include "engine/cuda/product.cuh"
#include "engine/cuda/prologue.cuh"

enum {
    LKI_CUDA_SMALL_OPS = 16,
    LKI_CUDA_SMALL_TOUCHES = 32,
    LKI_CUDA_SMALL_RANGES = 8,
    LKI_CUDA_SMALL_UPDATES = 4,
    LKI_CUDA_SMALL_BLOCK = 256,
    LKI_CUDA_SMALL_TILE = 16, /* the side of a tile: a thread an element, */
    LKI_CUDA_SMALL_WIDE = 32, /* or four where there would be more than MOST_TILES */
    LKI_CUDA_SMALL_MOST_TILES = 128,
    LKI_CUDA_SMALL_SIDE = 4, /* a warp computes so many by so many dot products, */
    LKI_CUDA_SMALL_DOWN = 2, /* and a block so many by so many warps' */
    LKI_CUDA_SMALL_ACROSS = 4,
    LKI_CUDA_SMALL_DEPTH = 128, /* of the factors of a tile so much is at hand at once */
    LKI_CUDA_SMALL_SAMPLES = 4096,
    LKI_CUDA_SMALL_CLASSES = 32
};

typedef enum lki_cuda_small_kind {
    LKI_CUDA_SMALL_DOTS_ROW,  /* a row of c a piece, a warp an element */
    LKI_CUDA_SMALL_DOTS_TILE, /* SIDE by SIDE elements a warp */
    LKI_CUDA_SMALL_ROW,       /* a row of c a piece, a thread an element */
    LKI_CUDA_SMALL_TILES,     /* a tile a piece; with sums, and with an update */
    LKI_CUDA_SMALL_LOSS,      /* a sample a piece; with its gradient */
    LKI_CUDA_SMALL_LOSS_GRAD, /* only as a note */
    LKI_CUDA_SMALL_TOTAL,     /* the samples' losses, summed; with a watch */
    LKI_CUDA_SMALL_RELU_GRAD,
    LKI_CUDA_SMALL_UPDATE,
    LKI_CUDA_SMALL_WATCH, /* only as a note */
    LKI_CUDA_SMALL_COPY
} lki_cuda_small_kind;

/* As lki_cuda_shape and lki_cuda_factors, of f32 and without leading axes. */
typedef struct lki_cuda_small_product {
    const float *a, *b, *bias;
    float *c, *sums;
    const float *mask; /* c where this is above 0, */
    float *masked;     /* written here; NULL: not asked for */
    int m, n, k, a_row, a_column, b_row, b_column;
    bool relu;
    short update; /* the op that updates the parameters whose gradients c and sums are, at once; -1: none */
    short gather; /* a's rows are read where this one of the news finds them: nobody waits for it; -1: none */
} lki_cuda_small_product;

/* cross_entropy of (samples, classes). */
typedef struct lki_cuda_small_loss {
    lki_cuda_class_loss l;
    const float *x, *dloss;      /* logits; dloss where there is a gradient */
    float *logp, *grad, *losses; /* losses: one a sample */
    float *out;                  /* the reduced one */
    int lanes, warps;            /* of a sample, and of the block whose order of summing is kept */
    lk_watched *host;            /* NULL: nobody watches */
    bool guard;
    short tiny; /* the targets are these tiny rows of the news, which a block has at hand; -1: none */
} lki_cuda_small_loss;

/* Element i of all slices; only those within the ranges are this op's own. */
typedef struct lki_cuda_small_update {
    float *data[5]; /* param, grad, state0..2; NULL where absent */
    int slot, rule, number, range_count;
    int begin[LKI_CUDA_SMALL_RANGES], end[LKI_CUDA_SMALL_RANGES];
} lki_cuda_small_update;

typedef struct lki_cuda_small_pointwise {
    const float *dy, *y;
    float *out;
    int width, count; /* elements a piece, and in all */
} lki_cuda_small_pointwise;

typedef struct lki_cuda_small_copy {
    const unsigned char *from;
    unsigned char *to;
    int nbytes;
} lki_cuda_small_copy;

typedef struct __align__(16) lki_cuda_small_op
{
    short kind, pieces;
    short shift; /* piece 0 is this block's */
    bool waits;  /* for all blocks, before it */
    union {
        lki_cuda_small_product product;
        lki_cuda_small_loss loss;
        lki_cuda_small_update update;
        lki_cuda_small_pointwise pointwise;
        lki_cuda_small_copy copy;
    };
}
lki_cuda_small_op;

/* The arguments of the kernel. */
typedef struct lki_cuda_small_args {
    const lki_cuda_small_op *op; /* device */
    lki_cuda_live *live;
    unsigned long long *faults; /* lki_cuda_fault.first: not ~0 where anything is wrong */
    unsigned *arrivals;         /* blocks that have come to a barrier, ever */
    unsigned arrived;           /* before this launch */
    bool waits;                 /* there is a barrier */
    int op_count, run_count;    /* the last ones may be there only for others */
    short update[LKI_CUDA_SMALL_UPDATES], update_count; /* which ops are updates */
    lki_cuda_step_news news;
} lki_cuda_small_args;

/* What is the same in many steps: the rule of all updates and how many states they have, how the news convert
 * rows, and those that are tiny. All -1: there is something unusual about this one. */
typedef struct lki_cuda_small_facts {
    int rule, states, rows, labels;
} lki_cuda_small_facts;

static __host__ __device__ inline int lki_cuda_tile_count(int m, int n, int side)
{
    return (m + side - 1) / side * ((n + side - 1) / side);
}

/* The side of the tiles of an m by n product. */
static __host__ __device__ inline int lki_cuda_tile_side(int m, int n)
{
    int count = lki_cuda_tile_count(m, n, LKI_CUDA_SMALL_TILE);
    return count <= LKI_CUDA_SMALL_MOST_TILES ? LKI_CUDA_SMALL_TILE : LKI_CUDA_SMALL_WIDE;
}

/* Rows that every block gathers for itself: then it can read them all, at hand or in memory. */
static __host__ __device__ inline bool lki_cuda_is_tiny(const lki_cuda_gather &g)
{
    return g.row_count * g.width <= LKI_CUDA_SMALL_BLOCK && g.conversion != LKI_CUDA_COPY_16;
}

/* Memory that an op reads or writes; piece i only bytes i * piece .. (i + 1) * piece where that is not 0. */
typedef struct lki_cuda_touch {
    const char *begin;
    size_t nbytes, piece;
    bool writes;
    bool every; /* block writes all of it */
} lki_cuda_touch;

typedef struct lki_cuda_note {
    lki_cuda_small_op op;
    lki_cuda_touch touch[LKI_CUDA_SMALL_TOUCHES];
    int touch_count;
} lki_cuda_note;

/* What was noted of the recording under way. */
struct lki_cuda_notes {
    lki_cuda_note note[LKI_CUDA_SMALL_OPS];
    int count, node_count; /* nodes of the graph that they stand for */
    bool overflowed;
};

typedef struct lki_cuda_small lki_cuda_small;

/* A note of `nodes` nodes; NULL where nothing is recorded or there is no room. */
lki_cuda_note *lki_cuda_take_note(lki_cuda *cuda, lki_cuda_small_kind kind, int nodes, int64_t pieces);
void lki_cuda_reads(lki_cuda_note *note, const void *data, size_t nbytes, size_t piece);
void lki_cuda_writes(lki_cuda_note *note, const void *data, size_t nbytes, size_t piece);

/* Whether the noted ops are the graph: then *out is its program, else NULL. */
lk_status lki_cuda_small_create(lki_cuda *cuda, cudaGraph_t graph, lki_cuda_small **out);
void lki_cuda_small_free(lki_cuda_small *small);
lk_status lki_cuda_small_replay(lki_cuda *cuda, lki_cuda_small *small, lk_generator *generator);

/* The kernel. Usual steps have ones of their own, with less code to run through (small_floats.cu,
 * small_bytes.cu); NULL: these are others. */
typedef void lki_cuda_small_function(const lki_cuda_small_args a);
lki_cuda_small_function *lki_cuda_small_of_floats(const lki_cuda_small_facts *facts);
lki_cuda_small_function *lki_cuda_small_of_bytes(const lki_cuda_small_facts *facts);

/* small_kernel.cu: the news, then the ops. All blocks must be able to run at once. */
lk_status lki_cuda_small_launch(lki_cuda *cuda, const lki_cuda_small_facts *known,
                                const lki_cuda_small_args *args, int blocks, size_t shared_nbytes);

#endif
