/* Engines: where ops run. An engine turns each op of a plan into a kernel once, at compile time;
 * replay calls the kernels.
 *
 * Life: an engine is opened by lk_engine_open (after any fork: engines start threads and devices),
 * prepares the calls of any number of plans, and is closed after all of them are freed. Thread
 * rule: one engine is used by one thread at a time; it may use threads of its own inside a call. */
#ifndef LOCKSTEP_SYS_ENGINE_H
#define LOCKSTEP_SYS_ENGINE_H

#include <lockstep/sized.h>
#include <lockstep/sys/dataset.h>
#include <lockstep/sys/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_engine lk_engine;
typedef struct lk_call lk_call;

/* Runs one prepared call. May fail for what only the data shows (an index out of range):
 * LK_ERR_RANGE with a sentence; the plan adds the layer's name. Must not allocate. While calls run,
 * the calling thread flushes denormals (x86-64 and arm64); an engine's own threads should do the
 * same. */
typedef lk_status (*lk_kernel)(const lk_call *call);

/* How the elements of (n, c, s...) lie in memory. */
typedef enum lk_layout {
    LK_LAYOUT_ROW_MAJOR,
    LK_LAYOUT_CHANNELS_LAST, /* n, s..., c */
} lk_layout;

/* One instruction of a plan: an op, its operands with their addresses, and what the engine prepared
 * for it.
 */
struct lk_call {
    lk_op op;
    const lk_attr *attr;
    int input_count, output_count;
    lk_tensor *in; /* contiguous; data == NULL where absent; addresses may change between replays */
    lk_tensor out[LK_MAX_OUTPUTS]; /* data == NULL where nobody wants the output */
    int *in_layout;                /* lk_layout */
    int out_layout[LK_MAX_OUTPUTS];
    lk_generator *generator; /* for ops that draw random numbers */
    bool aside;              /* may run beside later calls, up to the update (lki_pass_place) */
    /* Casts of parameters, in a run: the first has so many of them right behind it in memory, and
     * may do their work; they are led. 0 and false with an engine that does not join them. */
    int followers;
    bool is_led;
    lk_call *previous; /* the one that is always run right before it; its work may be taken over. Or
                          NULL */
    lk_engine *engine;
    lk_kernel run; /* set by prepare */
    void *state;   /* set by prepare; the engine's */
    void (*free_state)(void *state);
    /* scratch_nbytes of memory, 64-byte aligned, shared by all calls of the plan (aside: by
     * those). */
    void *scratch;
    size_t scratch_nbytes; /* set by prepare */
    /* Set by prepare if the engine hands the call on to `ref`, whose kernels are plain: why it
     * does. Static text; else NULL. */
    const char *fallback;
};

typedef enum lk_preference { LK_IMPOSSIBLE, LK_POSSIBLE, LK_PREFERRED } lk_preference;

/* What the host learns of a step's loss (lk_engine_ops.watch). */
typedef struct lk_watched {
    double loss;
    int64_t lost; /* how many steps in a row, this one last, have failed or followed one that had;
                     0: none */
} lk_watched;

enum { LK_ENGINE_MARKS = 4 };

/* A fast path: a way to compute an op that an engine takes for some shapes or data only. */
typedef struct lk_engine_path {
    const char *name;
    bool is_here;     /* whether this machine's engine has it */
    uint64_t entered; /* how often it was chosen since the engine was opened */
} lk_engine_path;

typedef struct lk_engine_options {
    size_t struct_size;
    int thread_count; /* 0: the cores this process may run on */
    int device;       /* which GPU, for engines that have several */
    bool allow_tf32;  /* products of f32 may round their operands to TF32 */
    bool benchmark;   /* convolutions may use the fastest algorithm, whose bits vary */
    /* cpu: the widest vector level to use, so that machines give the same bits: 1 base, 2 avx2,
     * 3 avx512, ...; 0: the machine's own. */
    int cpu_level;
    /* cpu: loops are cut into so many chunks, whatever the number of threads, so that the bits do
     * not depend on it; 0: one chunk per thread. */
    int lane_count;
} lk_engine_options;

typedef struct lk_engine_ops {
    size_t struct_size;
    const char *name; /* "cpu" */
    /* Required. Starts threads, opens the device; *state is the engine's own. */
    lk_status (*open)(void **state, const lk_engine_options *options);
    /* Required. Undoes open. */
    void (*close)(void *state);
    /* Required. Picks the kernel for a call whose operands are all placed: sets run, and where
     * wanted state, free_state and scratch_nbytes. LK_ERR_UNSUPPORTED with a sentence where it has
     * none. */
    lk_status (*prepare)(lk_engine *engine, lk_call *call);
    /* Whether 16-bit activations are kept as such between ops that can keep them
     * (LK_OP_KEEPS_16_BITS), in a run of such precision; else those get and give f32, and only the
     * factors of products are of 16 bits. */
    bool keeps_low;
    /* Whether casts of parameters from f32 to 16 bits (LK_OP_CAST, or LK_OP_REORDER to channels
     * last) shall come first, one after another, and the first of them do all: lk_call.followers.
     */
    bool joins_casts;
    /* Optional: what it says to a call that the graph could also do without. The operands have
     * dtypes, shapes and layouts, no memory yet. NULL: all of these are impossible. An op with
     * LK_OP_IS_OPTIONAL is made if the engine prefers it. A convolution, or a gradient of one, is
     * asked about with channels last: both sides and the weight it reads; a gradient of a weight is
     * row-major always. Batch norms, pools and elementwise ops beside such a convolution are then
     * asked for with channels last too, and LK_OP_REORDER between the layouts (and, on the way, f32
     * and 16 bits). An operand of one channel or one place is the same in both layouts and says
     * that it is row-major. */
    lk_preference (*preference)(lk_engine *engine, const lk_call *call);
    /* Optional, all or none: for engines whose memory is not the host's. NULL means host memory.
     * Calls, copies and fills take effect in the order in which they are asked for; the host may
     * run ahead of them. upload has read the host's memory when it returns; download waits until
     * the bytes are there. */
    void *(*alloc)(lk_engine *engine, size_t nbytes, const char *what); /* zeroed */
    void (*release)(lk_engine *engine, void *data);
    lk_status (*upload)(lk_engine *engine, void *device, const void *host, size_t nbytes);
    lk_status (*download)(lk_engine *engine, void *host, const void *device, size_t nbytes);
    /* With alloc: host memory that the device reads and writes by itself, and copies that the host
     * does not wait for: `feed` reads it, and `fetch` fills it, some time before the next
     * synchronize returns. */
    void *(*alloc_host)(lk_engine *engine, size_t nbytes, const char *what);
    void (*release_host)(lk_engine *engine, void *data);
    lk_status (*feed)(lk_engine *engine, void *device, const void *host, size_t nbytes);
    lk_status (*fetch)(lk_engine *engine, void *host, const void *device, size_t nbytes);
    /* Optional, with alloc: `count` rows of a copy of rows->data on the device, by their indices,
     * back to back as elements of `dtype`. Has read the indices when it returns, and finds what was
     * fed to the copy before, ahead or not. */
    lk_status (*gather_rows)(lk_engine *engine, void *out, lk_dtype dtype, const lk_rows *rows,
                             const void *stored, const int64_t *indices, int64_t count);
    /* Optional, with alloc: waits until all calls so far are done. Where one of them failed for
     * what its data held, that call goes to *failed (which may be NULL), and its status and
     * sentence come back. */
    lk_status (*synchronize)(lk_engine *engine, const lk_call **failed);
    /* Optional, all or none, with synchronize and watch: for a host that runs ahead by a step.
     * `mark` gives what was asked for so far a number below LK_ENGINE_MARKS; wait_for waits until
     * that is done, whatever was asked for since. It says nothing of calls that failed: what they
     * lost, watch tells. feed_ahead is feed beside the work under way, none of which uses `device`:
     * what begins with the next begin_step or replay sees it. */
    lk_status (*mark)(lk_engine *engine, int number);
    lk_status (*wait_for)(lk_engine *engine, int number);
    lk_status (*feed_ahead)(lk_engine *engine, void *device, const void *host, size_t nbytes);

    /* Optional, all or none, with alloc: calls between record_begin and record_end are not run but
     * kept as one program, which replay runs as often as wanted. Addresses are frozen in it. The
     * numbers behind attr.hyper and the random draws are not: begin_step takes them over before
     * calls, replay by itself. Without a generator the step goes on with the draws it has. */
    lk_status (*begin_step)(lk_engine *engine, lk_generator *generator);
    lk_status (*record_begin)(lk_engine *engine);
    lk_status (*record_end)(lk_engine *engine, void **program);
    lk_status (*replay)(lk_engine *engine, void *program, lk_generator *generator);
    void (*program_free)(lk_engine *engine, void *program);
    /* With them: after the next synchronize, or wait_for of a later mark, *host holds the scalar
     * `loss`. The step is lost where a call before this one has failed or, if `guard` is on, the
     * loss is not finite; so are all steps that begin before the next synchronize. Updates of lost
     * steps that are guarded change nothing. *host is alloc_host's. */
    lk_status (*watch)(lk_engine *engine, const lk_tensor *loss, lk_watched *host, bool guard);
    /* Optional: this thread is about to run calls, one after another. All other slots do the same
     * by themselves: the calls right behind them need no more. */
    lk_status (*enter)(lk_engine *engine);
    /* Optional: which of several sets of kernels it computes with, whose results round differently.
     */
    const char *(*kernels)(const lk_engine *engine);
    /* Optional: the engine's fast paths, for tests that must enter all of them. The list is the
     * engine's. */
    const lk_engine_path *(*paths)(const lk_engine *engine, int *count);
    /* Optional: whether attention as one op (LK_OP_ATTENTION) is about as fast as its products and
     * its softmax, in a step of such precision. Otherwise, and if NULL, a step records those,
     * unless the scores are very large. */
    bool (*joins_attention)(const lk_engine *engine, lk_dtype precision);
} lk_engine_ops;

struct lk_engine {
    const lk_engine_ops *ops;
    void *state;
};

/* Opens an engine by name: "ref", "cpu", "cuda" ("cuda:1" for a GPU by its number), or "auto" for
 * the fastest one here. NULL with the reason otherwise. The options need no size and may also be
 * passed by value. */
lk_engine *lk_engine_open(const char *name, const lk_engine_options *options);
#ifndef __cplusplus
LK_TAKES_SIZED_(lk_engine_options)
#define lk_engine_open(name, ...) lk_engine_open((name), LK_SIZED_(lk_engine_options, __VA_ARGS__))
#endif
void lk_engine_close(lk_engine *engine);
const char *lk_engine_name(const lk_engine *engine);

/* The names of the engines this build has, ending with NULL. */
const char *const *lk_engine_names(void);

#ifdef __cplusplus
}
#endif
#endif
