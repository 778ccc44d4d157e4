/* The step is what happens with one batch, compiled. A runner drives one for you. Your own
 * training loop uses it like this:
 *
 *     lk_step *step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(),
 *                             .optimizer = lk_adam(.lr = 0.02), .owned = true);
 *     for (int i = 0; i < 100; i++) {
 *         lk_input batch[] = {{"features", x}, {"targets", y}}; // (32, 1, 28, 28) and (32)
 *         if (lk_step_train(step, batch, 2)) break;
 *         printf("%g\n", lk_step_loss(step));
 *     }
 *     lk_step_free(step);
 *
 * The first batch of a shape is recorded, differentiated and compiled. Every later batch of that
 * shape is a replay that allocates nothing. The step keeps the 64 shapes that it used last and
 * compiles others again. As in PyTorch with a grad of None, a parameter that the loss does not
 * reach stays as it is, and so does its optimizer state. If a batch does not fit into memory, the
 * call fails with LK_ERR_NOMEM, nothing has changed, and the step can go on with smaller batches.
 *
 * Life: the step borrows model, criterion, optimizer and engine, which must outlive it, unless
 * `.owned` is set. A step with an optimizer moves the parameters of the model into one flat
 * buffer; lk_param.value keeps pointing at them. Several steps may share a model, also on
 * different engines. On a GPU, the steps of one engine share its copy of the parameters; other
 * steps copy the parameters through the host when they have changed.
 *
 * Threads: a step belongs to one thread. */
#ifndef LOCKSTEP_STEP_H
#define LOCKSTEP_STEP_H

#include <lockstep/arguments.h>
#include <lockstep/graph.h>
#include <lockstep/nn.h>
#include <lockstep/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_step lk_step;

/* One named tensor of a batch: (batch, ...), in host memory. The step computes on a contiguous
 * tensor where it lies. Any other one, such as a section of an array, is copied once. */
typedef struct lk_input {
    const char *name;
    const lk_tensor *tensor;
} lk_input;

/* A forward half of your own. `inputs` are the fields of the batch in their order, with their
 * names. The function names its outputs with lk_graph_output and returns the loss, or NULL if it
 * computes none, as for a batch without targets. */
typedef lk_value *(*lk_step_function)(lk_graph *graph, const char *const *names, lk_value *const *inputs,
                                      int count, void *context);

/* How the loss is scaled in f16, as by PyTorch's GradScaler and with its defaults. */
typedef struct lk_scaler_options {
    double init_scale;    /* 65536 */
    double growth_factor; /* 2 */
    /* 0.5; applied when a gradient is not finite. That update is skipped. */
    double backoff_factor;
    /* 2000; updates with finite gradients before the scale grows. */
    int64_t growth_interval;
} lk_scaler_options;

typedef struct lk_step_options {
    size_t struct_size;
    lk_module *model;
    lk_criterion *criterion; /* NULL: the step only predicts */
    lk_optimizer *optimizer; /* NULL: the step never trains */
    const char *input_key;   /* "features" */
    const char *output_key;  /* "logits" */
    const char *target_key;  /* "targets" */
    const char *loss_key;    /* "loss" */
    /* Replaces model and criterion. `model` then only says which parameters are trained. */
    lk_step_function function;
    void *context;           /* passed to `function` */
    lk_engine *engine;       /* NULL: the step creates its own, "auto" */
    lk_generator *generator; /* for dropout; NULL: the default generator */
    lk_dtype precision;      /* LK_F32, LK_BF16, or LK_F16 with a scaled loss */
    lk_scaler_options scaler;
    /* Batches per update; 0 means 1. Their gradients are summed, as PyTorch's backward does:
     * divide the loss, or the learning rate, if you want their mean. Batches that fill no group
     * stay for the next one. */
    int accumulation_steps;
    /* 0: gradients are not clipped. With accumulation_steps the sum so far is clipped after every
     * batch, as Catalyst does; in f16 once per update, when it is unscaled. */
    double clip_norm;
    double clip_value;
    /* With other ranks: gradients are averaged, replicas stay identical. NULL: the ranks of the
     * run if a callback or handle_batch makes the step, else alone. lk_comm_alone() stays alone
     * inside a run too. All ranks make such a step together. */
    struct lk_comm *comm;
    bool sync_batch_norm; /* batch norms use the batches of all ranks */
    /* Bytes of gradients per all-reduce; 0: 4 MiB. The first bucket is a quarter of it. */
    int64_t bucket_nbytes;
    bool compress_gradients; /* all-reduces gradients as bf16, with error feedback */
    /* Number of updates between two comparisons of the ranks' weights. 0: 1,000. Below 0: never. */
    int check_replicas;
    bool allow_nan; /* does not stop at a loss that is not finite */
    /* On a GPU, lk_step_train returns before the batch is done, and lk_step_wait waits for it. */
    bool asynchronous;
    bool owned; /* lk_step_free frees model, criterion, optimizer and scheduler too */
    /* Ranks may have batches of different sizes, also of no rows. All rows count alike: gradients
     * and lk_step_loss are those of one process that has the rows of all ranks. The rows are the
     * first dimension of the first field. Gradients travel after the backward half.
     * lk_step_evaluate stays this rank's own. */
    bool uneven_batches;
    /* The name of a field (batch) of weights, one per row: the loss is sum(w l) / sum(w), where l
     * is the mean over the elements of a row. It needs the mean of a loss of the library without
     * class weights. A step with a `function` gets the field as any other and weights the loss
     * itself. */
    const char *weight_key;
    /* Attached to the optimizer and moved on after every update; borrowed unless `owned`. Schedules
     * that watch a metric are yours to step. */
    struct lk_scheduler *scheduler;
} lk_step_options;

#define lk_step(...) LK_CALL0_(lk_step_with, lk_step_options, __VA_ARGS__)
/* Returns a step, or NULL on failure. */
lk_step *lk_step_with(const lk_step_options *options);
/* Frees the step, and model, criterion and optimizer if they are its own. NULL is allowed. */
void lk_step_free(lk_step *step);

/* Runs forward, criterion and backward and, every accumulation_steps batches, the update. If the
 * loss is not finite, the call fails with LK_ERR_NAN, the error names the layer that caused it,
 * and nothing is updated. */
lk_status lk_step_train(lk_step *step, const lk_input *fields, int count);
/* Runs forward and, if the fields hold a target, the criterion. Dropout is off, and batch norms
 * use their running statistics. */
lk_status lk_step_evaluate(lk_step *step, const lk_input *fields, int count);

/* Declares that a field of the next batch is rows of something larger, such as a dataset. The
 * tensor of the field then needs no data, only a dtype and a shape, and row i of the batch is
 * rows->data[indices[i]]. A GPU copies all rows once and gathers batches there. rows->data must
 * not change until lk_step_forget_rows; the other arguments are borrowed until the next batch has
 * begun or failed. */
lk_status lk_step_take_rows(lk_step *step, const char *name, const lk_rows *rows, const int64_t *indices);
/* Frees the copies of all rows. Call it between two batches. From then on rows->data may change
 * or be freed. A run does this for its loaders. */
void lk_step_forget_rows(lk_step *step);

/* With .asynchronous: waits for the last batch and returns its error. Its loss is known from then
 * on. Reading an output waits by itself. */
lk_status lk_step_wait(lk_step *step);
/* Updates lk_param.value and .grad from the copies that a GPU trains. Only .asynchronous steps
 * need it: see lk_param in graph.h. */
lk_status lk_step_pull(lk_step *step);

/* The same in parts, for callers that look in between. `begin` compiles if necessary and binds
 * the fields. After `backward`, the gradients of a batch that completes an update are averaged
 * over the ranks. */
lk_status lk_step_begin(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lk_step_forward(lk_step *step);
lk_status lk_step_criterion(lk_step *step);
lk_status lk_step_backward(lk_step *step);
lk_status lk_step_update(lk_step *step);

/* Save and restore all that later steps depend on: the model, the optimizer, the scheduler,
 * gradients that are being accumulated, the loss scale, and this rank's generator and running
 * statistics. What follows a restore has the same bits as if the program had not stopped. The file
 * is a safetensors file and appears whole or not at all.
 *
 * Not collective: every rank has a file of its own. Collective: all ranks of .comm make the call,
 * rank 0 writes one file for all of them, and all of them read it. A file is restored by as many
 * ranks as have saved it. If a restore fails, the step is not usable any more. */
typedef struct lk_step_file_options {
    size_t struct_size;
    bool collective;
} lk_step_file_options;
#define lk_step_save(...)    LK_CALL2_(lk_step_save_with, lk_step_file_options, __VA_ARGS__, )
#define lk_step_restore(...) LK_CALL2_(lk_step_restore_with, lk_step_file_options, __VA_ARGS__, )
lk_status lk_step_save_with(lk_step *step, const char *path, const lk_step_file_options *options);
lk_status lk_step_restore_with(lk_step *step, const char *path, const lk_step_file_options *options);

/* Results of the last batch. Outputs are views that are valid until the next batch;
 * lk_step_output returns NULL if there is no such output. */
double lk_step_loss(const lk_step *step);
bool lk_step_has_loss(const lk_step *step);
const lk_tensor *lk_step_output(lk_step *step, const char *name);
/* Returns the norm of the gradients before clipping, if clip_norm is set. */
double lk_step_grad_norm(const lk_step *step);
/* In f16: return the factor of the loss, and the number of updates that were skipped because a
 * gradient was not finite. Otherwise 1 and 0. */
double lk_step_loss_scale(lk_step *step);
int64_t lk_step_skipped_updates(lk_step *step);

/* Return the flat buffers of all trainable parameters and of their gradients, for your own
 * communication or inspection; from a GPU as fresh copies. `count` is in elements of the
 * parameters' dtype. In f16 the gradients are multiplied by the loss scale until the update. NULL
 * if the step has no optimizer. */
void *lk_step_flat_params(lk_step *step, int64_t *count);
void *lk_step_flat_grads(lk_step *step, int64_t *count);
/* Declares that you have changed the gradients through lk_step_flat_grads. The next update uses
 * the new values, also on a GPU. */
lk_status lk_step_grads_changed(lk_step *step);

#ifdef __cplusplus
}
#endif
#endif
