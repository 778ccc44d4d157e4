/* The step: what happens with one batch, compiled. A runner drives one for you; a loop of your own uses it
 * like this:
 *
 *     lk_step *step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(),
 *                             .optimizer = lk_adam(.lr = 0.02));
 *     for (;;) {
 *         // fill x (32, 1, 28, 28) and y (32)
 *         lk_input batch[] = {{"features", x}, {"targets", y}};
 *         if (lk_step_train(step, batch, 2)) break;
 *         printf("%g\n", lk_step_loss(step));
 *     }
 *     lk_step_free(step);
 *
 * The first batch of a new shape is recorded, differentiated and compiled; every later one of that shape is a
 * replay that allocates nothing. The step keeps the 64 shapes that it used last; one that comes again later
 * is compiled again. A parameter that the loss of a batch does not reach stays as it is, with its optimizer's
 * state, as in PyTorch with a grad of None. If a batch does not fit into memory, the call fails with
 * LK_ERR_NOMEM, nothing has changed, and the step goes on with smaller ones. Life: the step borrows model,
 * criterion, optimizer and engine, which must outlive it, unless
 * `.owned` says that they are its own. Creating a step with an optimizer moves the model's parameters into
 * one flat buffer (lk_param.value keeps pointing at them). Several steps may share a model, wherever their
 * engines work; on a GPU those of one engine share its copy of the parameters too, while others copy it
 * through the host whenever it has changed. One thread. */
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

/* One named tensor of a batch: (batch, ...), contiguous, in host memory. */
typedef struct lk_input {
    const char *name;
    const lk_tensor *tensor;
} lk_input;

/* A forward half of one's own: inputs are the batch's fields in their order, with their names. Names its
 * outputs with lk_graph_output and returns the loss, or NULL where there is none to compute (a batch without
 * targets). */
typedef lk_value *(*lk_step_function)(lk_graph *graph, const char *const *names, lk_value *const *inputs,
                                      int count, void *context);

/* How the loss is scaled where the precision is f16: as PyTorch's GradScaler, with its defaults for zeros. */
typedef struct lk_scaler_options {
    double init_scale;       /* 65536 */
    double growth_factor;    /* 2 */
    double backoff_factor;   /* 0.5: after gradients that are not finite, whose update is skipped */
    int64_t growth_interval; /* 2000: updates without such gradients before the scale grows */
} lk_scaler_options;

typedef struct lk_step_options {
    size_t struct_size;
    lk_module *model;
    lk_criterion *criterion;   /* NULL: the step only predicts */
    lk_optimizer *optimizer;   /* NULL: the step never trains */
    const char *input_key;     /* "features" */
    const char *output_key;    /* "logits" */
    const char *target_key;    /* "targets" */
    const char *loss_key;      /* "loss" */
    lk_step_function function; /* instead of model and criterion; `model` then only says what is trained */
    void *context;
    lk_engine *engine;       /* NULL: one of its own, "auto" */
    lk_generator *generator; /* for dropout; NULL: the default one */
    lk_dtype precision;      /* LK_F32, LK_BF16, or LK_F16, whose loss is scaled */
    lk_scaler_options scaler;
    /* Batches per update; 0 means 1. Their gradients are summed, as PyTorch's backward does: divide the loss,
     * or the learning rate, if you want their mean. Batches that fill no group stay for the next one. */
    int accumulation_steps;
    /* 0: gradients are not clipped. With accumulation_steps the sum so far is clipped after every batch, as
     * Catalyst does; in f16 once per update, when it is unscaled. */
    double clip_norm;
    double clip_value;
    /* With other ranks: gradients are averaged, replicas stay identical. NULL: the ranks of the run if a
     * callback or handle_batch makes the step, else alone. lk_comm_alone() stays alone inside a run too. All
     * ranks make such a step together. */
    struct lk_comm *comm;
    bool sync_batch_norm; /* batch norms look at the batches of all ranks */
    int64_t
        bucket_nbytes; /* of gradients that travel together; 0: 4 MiB; the first bucket is a quarter of it */
    bool compress_gradients; /* they travel as bf16, with error feedback */
    int check_replicas;      /* compare the replicas' weights every so many updates; 0: every 1,000, below 0:
                             never */
    bool allow_nan;          /* do not stop at a loss that is not finite */
    bool asynchronous; /* on a GPU: lk_step_train returns before the batch is through; lk_step_wait waits */
    bool owned;        /* lk_step_free frees model, criterion and optimizer too */
} lk_step_options;

#define lk_step(...) LK_CALL0_(lk_step_with, lk_step_options, __VA_ARGS__)
lk_step *lk_step_with(const lk_step_options *options);
void lk_step_free(lk_step *step);

/* Forward, criterion, backward and, every accumulation_steps-th time, the update. A loss that is not finite
 * is LK_ERR_NAN with the layer that made it, and nothing is updated. */
lk_status lk_step_train(lk_step *step, const lk_input *fields, int count);
/* Forward and, where the fields hold a target, the criterion; dropout off, batch norm by its running values.
 */
lk_status lk_step_evaluate(lk_step *step, const lk_input *fields, int count);

/* Says that a field of the next batch is rows of something larger, such as a whole dataset: its tensor, which
 * needs no data, says dtype and shape alone, and row i of the batch is rows->data[indices[i]]. A GPU gets a
 * copy of all rows once, and batches are gathered there: rows->data must stay as it is until the step forgets
 * it, the rest until the next batch has begun, or failed to. */
lk_status lk_step_take_rows(lk_step *step, const char *name, const lk_rows *rows, const int64_t *indices);
/* Gives the copies of all rows back, between two batches: what rows->data pointed at may change from here on,
 * or be freed. Runs do that for their loaders by themselves. */
void lk_step_forget_rows(lk_step *step);

/* With .asynchronous: waits for the last batch; its error comes back here, and its loss is known from here
 * on. Outputs wait by themselves. */
lk_status lk_step_wait(lk_step *step);
/* A GPU trains copies of the parameters: brings lk_param.value and .grad up to date with them. You need it
 * with .asynchronous alone: see lk_param in graph.h. */
lk_status lk_step_pull(lk_step *step);

/* The same in parts, for those who look in between. `begin` compiles where needed and binds the fields. After
 * `backward` the gradients of a batch that an update follows are averaged over the ranks. */
lk_status lk_step_begin(lk_step *step, const lk_input *fields, int count, bool training);
lk_status lk_step_forward(lk_step *step);
lk_status lk_step_criterion(lk_step *step);
lk_status lk_step_backward(lk_step *step);
lk_status lk_step_update(lk_step *step);

/* Of the last batch. Outputs are views that live until the next one. */
double lk_step_loss(const lk_step *step);
bool lk_step_has_loss(const lk_step *step);
const lk_tensor *lk_step_output(lk_step *step, const char *name);
/* The gradients' norm before clipping, where clip_norm is on. */
double lk_step_grad_norm(const lk_step *step);
/* In f16: what the loss is multiplied with, and how many updates were skipped because of gradients that were
 * not finite. 1 and 0 otherwise. */
double lk_step_loss_scale(lk_step *step);
int64_t lk_step_skipped_updates(lk_step *step);

/* The flat buffers, for those who communicate or inspect: all trainable parameters, and their gradients, of a
 * GPU as fresh copies. In f16 the gradients are multiplied with the loss scale until the update. NULL before
 * a step with an optimizer has been created; `count` is in elements of the parameters' dtype. */
void *lk_step_flat_params(lk_step *step, int64_t *count);
void *lk_step_flat_grads(lk_step *step, int64_t *count);
/* Says that the gradients have been changed through lk_step_flat_grads: the update that follows, on a GPU
 * too, uses what they are now. */
lk_status lk_step_grads_changed(lk_step *step);

#ifdef __cplusplus
}
#endif
#endif
