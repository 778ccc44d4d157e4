/* How a training step scales, computed: what one rank needs for its batch, the buckets in which its gradients
 * travel, and the collectives of the backend that would carry them (cli/bench/network_model.h) give the time
 * of a step at any number of ranks. docs/scaling.md explains the model and how well it holds.
 *
 * A workload is one of the table, or measured from a step; lki_workload_fini frees it. Predicting changes
 * nothing. */
#ifndef LKI_CLI_BENCH_SCALING_H
#define LKI_CLI_BENCH_SCALING_H

#include <lockstep/status.h>
#include <lockstep/step.h>

#include "cli/bench/network_model.h"

#include <stdbool.h>
#include <stdint.h>

/* One parameter's gradient. */
typedef struct lki_gradient {
    int64_t nbytes;
    double ready_s; /* after the backward half has begun */
} lki_gradient;

/* One batch on one rank. */
typedef struct lki_workload {
    char name[64];
    int64_t batch_size, parameter_count;
    double forward_s, backward_s, update_s; /* the forward half with its criterion */
    lki_gradient *gradients;                /* in the order of the parameters */
    int gradient_count;
} lki_workload;

typedef enum lki_scaling_backend {
    LKI_SCALING_AUTO, /* shm inside a host, Gloo between one leader a host */
    LKI_SCALING_GLOO, /* Gloo between all ranks */
    LKI_SCALING_MPI,  /* MPI between all ranks */
} lki_scaling_backend;

/* What the job would run on. Zero means the default. */
typedef struct lki_cluster {
    lki_network network;
    lki_scaling_backend backend;
    int ranks_per_host;    /* 1 */
    int64_t bucket_nbytes; /* as in lk_step_options */
    int accumulation;      /* batches to an update: 1 */
    bool compress;         /* gradients travel as bf16 */
} lki_cluster;

typedef struct lki_prediction {
    int ranks, hosts, buckets;
    double step_s;          /* one update, all its batches included */
    double communication_s; /* all collectives of it, one after the other */
    double exposed_s;       /* what of that no computation hides */
    double efficiency;      /* compute / step: 1 where nothing is lost */
    double samples_per_s;   /* of all ranks */
} lki_prediction;

void lki_predict(const lki_workload *workload, const lki_cluster *cluster, int ranks, lki_prediction *out);

/* The networks that are known by name; NULL at the end. What they cost was measured on the machine of
 * docs/performance.md, but for resnet-50's, which is only as large as that network and takes a round 100 ms.
 */
const char *const *lki_workload_names(void);
lk_status lki_workload_named(lki_workload *out, const char *name);

/* A step of a named network that has seen its batch once, for lki_workload_measure. resnet-50 cannot be run:
 * LK_ERR_UNSUPPORTED. Zero is none; lki_trial_fini frees. */
typedef struct lki_trial {
    lk_engine *engine;
    lk_step *step;
    lk_tensor *x, *y;
} lki_trial;
lk_status lki_trial_init(lki_trial *trial, const char *name, int thread_count);
void lki_trial_fini(lki_trial *trial);

/* Times the step on the training batch that it has seen last, part by part, for about `seconds`. The batch's
 * memory must still be there; the weights are moved by it. */
lk_status lki_workload_measure(lki_workload *out, lk_step *step, const char *name, double seconds);

/* Makes the whole batch take `seconds`: another machine, or a guess. */
void lki_workload_scale(lki_workload *workload, double seconds);
void lki_workload_fini(lki_workload *workload);

#endif
