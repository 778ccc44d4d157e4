/* Optimizers, with PyTorch's names, arguments and numbers.
 *
 *     lk_optimizer *optimizer = lk_adam(.lr = 0.02);
 *
 * An optimizer is created without parameters. It gets them from the step or the runner that it is
 * given to. Parameters may be divided into groups with their own numbers:
 *
 *     lk_sgd(.lr = 0.1, .momentum = 0.9,
 *            .groups = lk_param_groups({.prefix = "head.", .lr = 1.0},
 *                                      {.module = trunk, .lr = 0.01}));
 *
 * A parameter belongs to the first group that names it, otherwise to the default group, which has
 * the numbers of the optimizer itself. Zero means PyTorch's default, and LK_ZERO means zero.
 *
 * Life: an optimizer belongs to you until you hand it to a runner or an owning step. Constructors
 * return NULL on failure. Threads: an optimizer belongs to one thread. */
#ifndef LOCKSTEP_OPTIM_H
#define LOCKSTEP_OPTIM_H

#include <lockstep/arguments.h>
#include <lockstep/nn.h>
#include <lockstep/sys/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_optimizer lk_optimizer;

/* A group: which parameters it has, and which numbers differ from the optimizer's (0: none). */
typedef struct lk_param_group {
    /* Parameters whose full name begins like this. With a *, ? or [ it is a shell pattern for the
     * whole name: "*.bias". Copied. */
    const char *prefix;
    const lk_module *module; /* or the parameters of this part of the model */
    double lr, momentum, weight_decay, beta1, beta2, eps;
} lk_param_group;

typedef struct lk_param_group_list {
    const lk_param_group *items;
    int count;
} lk_param_group_list;
LK_LIST_TO_END_(lk_param_group_list, lk_param_group)
#define lk_param_groups(...)                                                                                 \
    lk_param_group_list_to_end((const lk_param_group[]){__VA_ARGS__, {.prefix = LK_END}})

typedef struct lk_sgd_options {
    size_t struct_size;
    double lr; /* required, as in PyTorch */
    double momentum, dampening, weight_decay;
    bool nesterov, maximize;
    lk_param_group_list groups;
} lk_sgd_options;
#define lk_sgd(...) LK_CALL0_(lk_sgd_with, lk_sgd_options, __VA_ARGS__)
lk_optimizer *lk_sgd_with(const lk_sgd_options *options);

typedef struct lk_adam_options {
    size_t struct_size;
    double lr;           /* 1e-3 */
    double beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 0; AdamW 1e-2 */
    bool amsgrad, maximize;
    lk_param_group_list groups;
} lk_adam_options;
#define lk_adam(...)  LK_CALL0_(lk_adam_with, lk_adam_options, __VA_ARGS__)
#define lk_adamw(...) LK_CALL0_(lk_adamw_with, lk_adam_options, __VA_ARGS__)
/* Layer-wise adaptive moments: the direction of Adam, scaled per parameter by |w| / |direction|. */
#define lk_lamb(...) LK_CALL0_(lk_lamb_with, lk_adam_options, __VA_ARGS__)
lk_optimizer *lk_adam_with(const lk_adam_options *options);
lk_optimizer *lk_adamw_with(const lk_adam_options *options);
lk_optimizer *lk_lamb_with(const lk_adam_options *options);

typedef struct lk_catalyst_lamb_options {
    size_t struct_size;
    double lr;           /* 1e-3 */
    double beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-6 */
    double weight_decay; /* 0 */
    bool adam;           /* fixes the trust ratio at 1 */
    lk_param_group_list groups;
} lk_catalyst_lamb_options;
/* LAMB as catalyst.contrib.optimizers.Lamb computes it: the moments are not corrected for their
 * start at zero, and |w| counts as at most 10. */
#define lk_catalyst_lamb(...) LK_CALL0_(lk_catalyst_lamb_with, lk_catalyst_lamb_options, __VA_ARGS__)
/* LAMB as catalyst.contrib.optimizers.Lamb computes it: without bias correction of the moments,
 * and with |w| limited to 10. */
lk_optimizer *lk_catalyst_lamb_with(const lk_catalyst_lamb_options *options);

typedef struct lk_rmsprop_options {
    size_t struct_size;
    double lr;    /* 1e-2 */
    double alpha; /* 0.99 */
    double eps;   /* 1e-8 */
    double weight_decay, momentum;
    bool centered, maximize;
    lk_param_group_list groups;
} lk_rmsprop_options;
#define lk_rmsprop(...) LK_CALL0_(lk_rmsprop_with, lk_rmsprop_options, __VA_ARGS__)
lk_optimizer *lk_rmsprop_with(const lk_rmsprop_options *options);

typedef struct lk_adagrad_options {
    size_t struct_size;
    double lr; /* 1e-2 */
    double lr_decay, weight_decay;
    double eps;                       /* 1e-10 */
    double initial_accumulator_value; /* 0 */
    bool maximize;
    lk_param_group_list groups;
} lk_adagrad_options;
#define lk_adagrad(...) LK_CALL0_(lk_adagrad_with, lk_adagrad_options, __VA_ARGS__)
lk_optimizer *lk_adagrad_with(const lk_adagrad_options *options);

typedef struct lk_nadam_options {
    size_t struct_size;
    double lr;             /* 2e-3 */
    double beta1, beta2;   /* 0.9, 0.999 */
    double eps;            /* 1e-8 */
    double weight_decay;   /* 0 */
    double momentum_decay; /* 4e-3 */
    bool maximize;
    lk_param_group_list groups;
} lk_nadam_options;
/* Adam with Nesterov's momentum. */
#define lk_nadam(...) LK_CALL0_(lk_nadam_with, lk_nadam_options, __VA_ARGS__)
lk_optimizer *lk_nadam_with(const lk_nadam_options *options);

typedef struct lk_radam_options {
    size_t struct_size;
    double lr;           /* RAdam 1e-3, Adamax 2e-3 */
    double beta1, beta2; /* 0.9, 0.999 */
    double eps;          /* 1e-8 */
    double weight_decay; /* 0 */
    bool maximize;
    lk_param_group_list groups;
} lk_radam_options;
typedef lk_radam_options lk_adamax_options;
/* Adam that follows the average gradient alone until its second moment is known well enough. */
#define lk_radam(...) LK_CALL0_(lk_radam_with, lk_radam_options, __VA_ARGS__)
/* Adam that divides by the largest gradient so far, which fades. */
#define lk_adamax(...) LK_CALL0_(lk_adamax_with, lk_adamax_options, __VA_ARGS__)
lk_optimizer *lk_radam_with(const lk_radam_options *options);
lk_optimizer *lk_adamax_with(const lk_adamax_options *options);

typedef struct lk_adadelta_options {
    size_t struct_size;
    double lr;           /* 1 */
    double rho;          /* 0.9 */
    double eps;          /* 1e-6 */
    double weight_decay; /* 0 */
    bool maximize;
    lk_param_group_list groups;
} lk_adadelta_options;
#define lk_adadelta(...) LK_CALL0_(lk_adadelta_with, lk_adadelta_options, __VA_ARGS__)
lk_optimizer *lk_adadelta_with(const lk_adadelta_options *options);

typedef struct lk_rprop_options {
    size_t struct_size;
    double lr;                           /* 1e-2: the first size of each step */
    double eta_minus, eta_plus;          /* 0.5, 1.2: by how much a step shrinks and grows */
    double step_size_min, step_size_max; /* 1e-6, 50 */
    bool maximize;
    lk_param_group_list groups;
} lk_rprop_options;
/* Steps by the sign of the gradient, longer while the sign stays. For whole-dataset batches. */
#define lk_rprop(...) LK_CALL0_(lk_rprop_with, lk_rprop_options, __VA_ARGS__)
lk_optimizer *lk_rprop_with(const lk_rprop_options *options);

typedef struct lk_asgd_options {
    size_t struct_size;
    double lr;           /* 1e-2 */
    double lambd;        /* 1e-4: the decay term */
    double alpha;        /* 0.75: the power by which the rate falls */
    double t0;           /* 1e6: the update at which averaging begins */
    double weight_decay; /* 0 */
    bool maximize;
    lk_param_group_list groups;
} lk_asgd_options;
/* Averaged gradient descent. As in PyTorch, the average is part of the state ("ax"), and the model
 * keeps the parameters themselves. */
#define lk_asgd(...) LK_CALL0_(lk_asgd_with, lk_asgd_options, __VA_ARGS__)
lk_optimizer *lk_asgd_with(const lk_asgd_options *options);

typedef struct lk_lion_options {
    size_t struct_size;
    double lr;           /* 1e-4 */
    double beta1, beta2; /* 0.9, 0.99 */
    double weight_decay; /* 0; apart from the gradient, as AdamW's */
    bool maximize;
    lk_param_group_list groups;
} lk_lion_options;
/* The sign of an interpolated momentum (Chen et al., 2023). One state instead of Adam's two. */
#define lk_lion(...) LK_CALL0_(lk_lion_with, lk_lion_options, __VA_ARGS__)
lk_optimizer *lk_lion_with(const lk_lion_options *options);

/* A rule of your own, in C, for engines that compute in host memory (device "cpu"):
 *
 *     static void sign_sgd(const lk_update *u)
 *     {
 *         for (int64_t i = 0; i < u->count; i++)
 *             u->values[i] -= (float)u->lr * (float)((u->grads[i] > 0) - (u->grads[i] < 0));
 *     }
 *
 *     lk_optimizer *own = lk_custom_optimizer(.name = "SignSGD", .update = sign_sgd, .lr = 0.01);
 *
 * The library calls it at every update, once per contiguous range of parameters of one group.
 * Gradients are already clipped, accumulated and averaged over the ranks. The state starts at 0
 * and is saved and resumed. The function runs in the floating-point mode of your program: unlike
 * the rules of the library, it does not flush denormals unless you set that. */
enum { LK_MAX_UPDATE_STATES = 3 };
typedef struct lk_update {
    float *values;
    const float *grads;
    float *states[LK_MAX_UPDATE_STATES]; /* as many as state_count says */
    int64_t count;
    /* Of the group, as schedules have set them. */
    double lr, momentum, weight_decay, beta1, beta2, eps;
    int64_t step; /* 1 at the first update */
    void *context;
} lk_update;
typedef void (*lk_update_function)(const lk_update *update);

typedef struct lk_custom_optimizer_options {
    size_t struct_size;
    const char *name; /* "custom" */
    lk_update_function update;
    /* Number of values to keep per parameter element: 0 to LK_MAX_UPDATE_STATES. */
    int state_count;
    double lr;                                        /* required */
    double momentum, weight_decay, beta1, beta2, eps; /* 0; what they mean is the rule's */
    lk_param_group_list groups;
    /* Borrowed: it must outlive the optimizer, unless free_context is set. */
    void *context;
    void (*free_context)(void *context);
} lk_custom_optimizer_options;
#define lk_custom_optimizer(...) LK_CALL0_(lk_custom_optimizer_with, lk_custom_optimizer_options, __VA_ARGS__)
lk_optimizer *lk_custom_optimizer_with(const lk_custom_optimizer_options *options);

/* Frees the optimizer. NULL is allowed. */
void lk_optimizer_free(lk_optimizer *optimizer);

/* The groups, in their order. The last one is the default group. */
int lk_optimizer_group_count(const lk_optimizer *optimizer);
double lk_optimizer_lr(const lk_optimizer *optimizer, int group);
void lk_optimizer_set_lr(lk_optimizer *optimizer, int group, double lr);
/* Returns what Catalyst logs as momentum: the momentum of SGD and RMSprop, beta1 of Adam. */
double lk_optimizer_momentum(const lk_optimizer *optimizer, int group);
const char *lk_optimizer_name(const lk_optimizer *optimizer);

#ifdef __cplusplus
}
#endif
#endif
