/* The other ranks' copies of the model: made equal at the start, kept equal by averaged gradients, compared
 * now and then.
 *
 * lki_replicas_init gives every rank rank 0's parameters and buffers; that they hold the same model has been
 * checked by then (same.h). All ranks call each of these functions in the same order. */
#ifndef LKI_STEP_REPLICAS_H
#define LKI_STEP_REPLICAS_H

#include "graph/ddp.h"
#include "step/backend.h"
#include "step/flat.h"

typedef struct lki_replicas_options {
    int64_t bucket_nbytes;
    bool compress;
    bool at_once;       /* gradients travel after the backward half even so */
    int check_replicas; /* updates between two comparisons; 0: LKI_CHECK_EVERY, below 0: none */
} lki_replicas_options;

/* A comparison reads the weights once: of a thousand updates that is nothing that can be measured. */
enum { LKI_CHECK_EVERY = 1000 };

typedef struct lki_replicas {
    lk_comm *comm; /* NULL: there are no other ranks */
    lki_backend *backend;
    lki_flat *flat;
    const lk_param_list *params;
    lki_replicas_options options;
    lki_ddp ddp;
    lk_param **bucket_params; /* all buckets' lists, one after another */
    uint16_t *packed;         /* compressed gradients */
    float *residual;          /* what compression left out so far */
    int64_t checked_at;       /* the update that the ranks were last compared after */
} lki_replicas;

lk_status lki_replicas_init(lki_replicas *replicas, lk_comm *comm, lki_backend *backend, lki_flat *flat,
                            const lk_param_list *params, lki_replicas_options options);
void lki_replicas_fini(lki_replicas *replicas);

/* Whether gradients travel bucket by bucket inside the backward half. Compressed ones travel after it, and so
 * do those that each rank scales first. */
static inline bool lki_replicas_overlap(const lki_replicas *replicas)
{
    return replicas->comm && !replicas->options.compress && !replicas->options.at_once;
}

/* Gives every rank rank 0's numbers; of the buffers alone on request. */
lk_status lki_params_share(lk_comm *comm, const lk_param_list *params, bool buffers_only);

/* Averages a whole flat buffer over the ranks. */
lk_status lki_replicas_average(lki_replicas *replicas, lk_buffer *gradients);

/* Gives every rank rank 0's buffers (running statistics, which each rank has moved by its own batches). */
lk_status lki_replicas_share_buffers(lki_replicas *replicas);

/* Fails if the ranks' weights are not bit for bit the same, naming the first rank that differs. Does nothing
 * if comparisons are switched off. */
lk_status lki_replicas_check(lki_replicas *replicas, int64_t step_count);

static inline lk_status lki_replicas_check_if_due(lki_replicas *replicas, int64_t step_count)
{
    int every = replicas->options.check_replicas ? replicas->options.check_replicas : LKI_CHECK_EVERY;
    bool is_due = replicas->comm && every > 0 && step_count / every != replicas->checked_at / every;
    return is_due ? lki_replicas_check(replicas, step_count) : LK_OK;
}

#endif
