/* The graph inside: nodes, values, and how passes walk and change them.
 *
 * A graph is a list of nodes in an order that respects data flow (the order of recording; autodiff appends
 * the backward half). Passes run in this order: autodiff, precision, fuse, layouts, fold_norms, checkpoint,
 * gather_casts, place; then the plan is made. All objects live in the graph's arena and are freed with it. */
#ifndef LKI_GRAPH_GRAPH_H
#define LKI_GRAPH_GRAPH_H

#include <lockstep/graph.h>
#include <lockstep/sys/engine.h>

#include "base/arena.h"

typedef struct lki_node lki_node;

/* The halves of a step, in order. A plan can be replayed section by section. */
typedef enum lki_section {
    LKI_SECTION_FORWARD,
    LKI_SECTION_CRITERION,
    LKI_SECTION_BACKWARD,
    LKI_SECTION_COUNT
} lki_section;

/* Where a value's memory comes from. */
typedef enum lki_storage_kind {
    LKI_STORAGE_ARENA,    /* the plan's arena, at `offset` */
    LKI_STORAGE_INPUT,    /* bound before each replay */
    LKI_STORAGE_PARAM,    /* the parameter's value */
    LKI_STORAGE_GRAD,     /* the parameter's gradient: autodiff made this value write there directly */
    LKI_STORAGE_CONSTANT, /* the constant's tensor */
    LKI_STORAGE_VIEW,     /* the memory of input 0 of its node */
    LKI_STORAGE_NONE,     /* nobody wants it */
} lki_storage_kind;

/* What one checkpointed module records. */
typedef struct lki_region {
    struct lki_region *outer;
    int depth; /* 1 for a region that lies in no other */
} lki_region;

struct lk_value {
    lk_graph *graph;
    lki_node *node; /* who computes it; for leaves a node without kernel */
    int index;      /* which output of the node */
    lk_dtype dtype;
    lk_shape shape;
    bool needs_grad; /* a trainable parameter is upstream */
    lki_storage_kind storage;
    lk_param *param;        /* LKI_STORAGE_PARAM, LKI_STORAGE_GRAD */
    lk_tensor *constant;    /* LKI_STORAGE_CONSTANT */
    const char *name;       /* of an input or an output */
    bool is_output;         /* must survive until the end of the replay */
    int layout;             /* lk_layout */
    lk_value *gradient;     /* autodiff's: the sum of the contributions so far */
    struct lki_part *parts; /* autodiff's: contributions of slices, which are joined at last */
    lk_value *low, *wide;   /* precision's: the same value in 16 bits, and in f32 */
    lk_value *turned;       /* layouts': the same value in the other layout */
    lk_value *again;        /* checkpoint's: the same value computed a second time */
    bool is_kept;           /* checkpoint's: it is read outside of its region */
    int use_count;          /* how many node inputs refer to it; kept by lki_graph_count_uses */
    size_t offset;          /* place's */
    int first, last;        /* place's: first and last instruction that touch its memory */
    int number;             /* place's: among the values of the arena; -1 while it has no offset */
};

struct lki_node {
    lki_node *previous, *next;
    lk_op op;
    lk_attr attr;
    int input_count, output_count;
    lk_value **in; /* NULL for an absent optional input */
    lk_value *out[LK_MAX_OUTPUTS];
    lki_section section;
    const char *scope;  /* "1 (Linear)", or NULL at top level */
    bool dead;          /* nobody needs it */
    bool aside;         /* what it reads stays until the end: it may run beside the nodes after it */
    int order;          /* its place in the list, kept by lki_graph_number */
    lki_region *region; /* the innermost one that it was recorded in, or NULL */
    bool is_again;      /* checkpoint's: a copy of a node of the forward half */
};

typedef struct lki_scope {
    struct lki_scope *outer;
    const char *text;   /* the whole path with the innermost type: "encoder.0 (Linear)" */
    const char *path;   /* "encoder.0" */
    lki_region *region; /* of the innermost checkpointed module, or NULL */
} lki_scope;

/* How attention is recorded. */
typedef enum lki_attention_form {
    LKI_ATTENTION_AS_WRITTEN, /* lk_op_scaled_dot_product_attention as one op, layers as products */
    LKI_ATTENTION_JOINED,     /* as one op */
    LKI_ATTENTION_SPLIT,      /* as products, unless the scores are very large */
} lki_attention_form;

struct lk_graph {
    lki_arena arena;
    bool training;
    lki_attention_form attention;
    lk_status status; /* the first failure of recording */
    char *error;      /* its sentence */
    lki_node *first, *last;
    lki_section section; /* of what is recorded now */
    lki_scope *scope;
    const char *scope_override; /* autodiff's: the layer of the node whose gradient is being recorded */
    struct lk_comm *sync_comm;  /* batch norms look at the batches of all its ranks; NULL: at their own */
    lk_value *seed;             /* the loss's gradient; NULL: one */
    lk_value **inputs, **outputs, **params;
    int input_count, output_count, param_count;
    lk_param **counters; /* i64 buffers that a training batch adds 1 to, once per entry */
    int counter_count;
};

/* Records a node: checks shapes, makes the outputs, appends it. Returns output 0, or NULL with the graph's
 * error set. NULL among the first `required` inputs passes through. */
lk_value *lki_record(lk_graph *graph, lk_op op, lk_value *const *inputs, int input_count, int required,
                     const lk_attr *attr);

/* As lki_record, at another place of the list: before `place`. For passes. */
lki_node *lki_graph_insert(lk_graph *graph, lki_node *place, lk_op op, lk_value *const *inputs,
                           int input_count, const lk_attr *attr);
/* Inserts a copy of `node` into the backward half, before `place`, as `op` of other inputs: its results have
 * the dtypes, shapes and layouts of the node's own. NULL: out of memory. */
lki_node *lki_graph_copy_node(lk_graph *graph, lki_node *place, const lki_node *node, lk_op op,
                              lk_value *const *inputs, int input_count);
void lki_graph_remove(lk_graph *graph, lki_node *node);
void lki_graph_move(lk_graph *graph, lki_node *node, lki_node *place); /* before `place` */

/* Makes every node input (and output list entry) that reads `old` read `fresh` instead, from node `from` on.
 */
void lki_graph_replace_uses(lk_graph *graph, lk_value *old, lk_value *fresh, lki_node *from);

/* Recounts value->use_count (outputs of the graph and stored gradients count too) and marks nodes nobody
 * needs as dead. */
void lki_graph_count_uses(lk_graph *graph);
void lki_graph_number(lk_graph *graph);

/* What is recorded from now on until the current scope is popped is computed again in the backward half. */
void lki_graph_begin_region(lk_graph *graph);

/* Has each training batch add 1 to an i64 buffer, once more per call. */
void lki_graph_count_batches(lk_graph *graph, lk_param *counter);

/* The value whose memory this one shares: itself, or the root of a chain of views. */
lk_value *lki_value_root(lk_value *value);
size_t lki_value_nbytes(const lk_value *value);

/* Fails the recording: remembers the first error with the scope in front. Returns NULL. */
lk_value *lki_graph_fail(lk_graph *graph, lk_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The rules of one op. */
typedef struct lki_rule {
    /* Checks the inputs of a node whose in and attr are set (it may complete attr) and fills dtype and shape
     * of outputs. Errors are plain sentences; the recorder adds the layer. */
    lk_status (*infer)(lki_node *node);
    /* Records the gradient: grad_out[i] is NULL where output i has none; sets grad_in[i] where input i needs
     * one (it may set more). NULL for ops without gradient. */
    lk_status (*backward)(lki_node *node, lk_value *const *grad_out, lk_value **grad_in);
} lki_rule;

extern const lki_rule lki_rules[LK_OP_COUNT];

/* The passes. */
typedef struct lki_autodiff_report {
    lk_param **unused; /* trainable parameters that the loss does not depend on; in the graph's arena */
    int unused_count;
} lki_autodiff_report;
/* Appends the backward half: d loss / d every parameter of `params`, written to the parameter's grad tensor.
 */
lk_status lki_pass_autodiff(lk_graph *graph, lk_value *loss, lk_param *const *params, int param_count,
                            lki_autodiff_report *report);
/* Casts the operands of ops that gain from it (LK_OP_WANTS_16_BITS) to `low`; results stay f32, or with
 * `activations` become `low` too and are kept so by ops that can (LK_OP_KEEPS_16_BITS). */
lk_status lki_pass_precision(lk_graph *graph, lk_dtype low, bool activations);
/* Has a loss between numbers compute its gradient too, if the engine wants LK_OP_POINTWISE_LOSS_WITH_GRAD. */
void lki_pass_join_losses(lk_graph *graph, lk_engine *engine);
/* Folds activations into products and chains of elementwise ops into one. */
lk_status lki_pass_fuse(lk_graph *graph);
/* Gives activations of convolutions, and what lies between them, channels last: where the engine prefers it,
 * or wherever it can. */
lk_status lki_pass_layouts(lk_graph *graph, lk_engine *engine, bool wherever_possible);
/* Folds the addend and the ReLU behind batch norms into them, if the engine wants LK_OP_BATCH_NORM_RELU. */
lk_status lki_pass_fold_norms(lk_graph *graph, lk_engine *engine);
/* Has the backward half compute again what lies inside of regions (lki_graph_begin_region). */
lk_status lki_pass_checkpoint(lk_graph *graph);
/* Brings the casts of parameters to 16 bits to the front, for engines that do them at once. */
void lki_pass_gather_casts(lk_graph *graph);
bool lki_is_param_cast(const lki_node *node);
/* Gives every arena value an offset; returns the arena's size. Gradients of weights that nobody reads before
 * the update stand aside where that costs at most `aside_nbytes` more; 0: none does. */
lk_status lki_pass_place(lk_graph *graph, size_t aside_nbytes, size_t *arena_nbytes);

#endif
