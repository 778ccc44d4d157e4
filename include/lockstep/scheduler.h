/* Learning-rate schedules, with PyTorch's names, arguments and numbers.
 *
 *     lk_scheduler *scheduler = lk_multi_step_lr(.milestones = lk_milestones(30, 80));
 *
 * A scheduler is created without an optimizer and attached later; a runner does that. Attaching
 * sets the rates of epoch 0, and each lk_scheduler_step sets the rates of the next epoch, for
 * every group of the optimizer. Most schedules multiply the current rate. So several schedulers
 * may be attached to one optimizer, and a rate that you set by hand is respected. A schedule that
 * cycles momentum must be attached before the step is compiled, because it gives momentum to an
 * optimizer that has none.
 *
 * Life: a scheduler borrows its optimizer and owns the schedulers that it is made of.
 * Constructors return NULL on bad arguments or if a part is NULL. Zero means PyTorch's default,
 * and LK_ZERO means zero. Threads: a scheduler belongs to one thread. */
#ifndef LOCKSTEP_SCHEDULER_H
#define LOCKSTEP_SCHEDULER_H

#include <lockstep/arguments.h>
#include <lockstep/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_scheduler lk_scheduler;

/* Attaches the scheduler and sets the rates of epoch 0. The optimizer must outlive it. */
lk_status lk_scheduler_attach(lk_scheduler *scheduler, lk_optimizer *optimizer);
/* Goes on to the next epoch, or to the next batch for schedules that count batches. */
lk_status lk_scheduler_step(lk_scheduler *scheduler);
/* The same with a metric, for schedules that watch one. Other schedules ignore it. */
lk_status lk_scheduler_step_metric(lk_scheduler *scheduler, double metric);
/* Returns whether the schedule watches a metric. */
bool lk_scheduler_needs_metric(const lk_scheduler *scheduler);
const char *lk_scheduler_name(const lk_scheduler *scheduler);
/* Frees the scheduler and its parts. NULL is allowed. */
void lk_scheduler_free(lk_scheduler *scheduler);

/* The state of a scheduler, as names and numbers: "last_epoch", "best", "1.last_epoch". The rates
 * belong to the optimizer. */
typedef struct lk_named_number {
    char name[48];
    double value;
} lk_named_number;
/* Writes as many numbers as fit and returns how many there are. */
int lk_scheduler_save(const lk_scheduler *scheduler, lk_named_number *numbers, int capacity);
/* Restores an attached scheduler. Fails if a number is missing. */
lk_status lk_scheduler_restore(lk_scheduler *scheduler, const lk_named_number *numbers, int count);

typedef struct lk_milestone_list {
    const int64_t *items;
    int count;
} lk_milestone_list;
#define lk_milestones(...)                                                                                   \
    ((lk_milestone_list){(const int64_t[]){__VA_ARGS__},                                                     \
                         (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))})

/* lr * gamma every step_size epochs. */
typedef struct lk_step_lr_options {
    size_t struct_size;
    double gamma; /* 0.1 */
} lk_step_lr_options;
#define lk_step_lr(...) LK_CALL1_(lk_step_lr_with, lk_step_lr_options, __VA_ARGS__, )
lk_scheduler *lk_step_lr_with(int64_t step_size, const lk_step_lr_options *options);

/* lr * gamma at each milestone. */
typedef struct lk_multi_step_lr_options {
    size_t struct_size;
    lk_milestone_list milestones; /* required; copied */
    double gamma;                 /* 0.1 */
} lk_multi_step_lr_options;
#define lk_multi_step_lr(...) LK_CALL0_(lk_multi_step_lr_with, lk_multi_step_lr_options, __VA_ARGS__)
lk_scheduler *lk_multi_step_lr_with(const lk_multi_step_lr_options *options);

/* lr * gamma every epoch. */
lk_scheduler *lk_exponential_lr(double gamma);

/* lr * factor until total_iters. */
typedef struct lk_constant_lr_options {
    size_t struct_size;
    double factor;       /* 1/3 */
    int64_t total_iters; /* 5 */
} lk_constant_lr_options;
#define lk_constant_lr(...) LK_CALL0_(lk_constant_lr_with, lk_constant_lr_options, __VA_ARGS__)
lk_scheduler *lk_constant_lr_with(const lk_constant_lr_options *options);

/* The factor changes linearly from start to end over total_iters. */
typedef struct lk_linear_lr_options {
    size_t struct_size;
    double start_factor; /* 1/3 */
    double end_factor;   /* 1 */
    int64_t total_iters; /* 5 */
} lk_linear_lr_options;
#define lk_linear_lr(...) LK_CALL0_(lk_linear_lr_with, lk_linear_lr_options, __VA_ARGS__)
lk_scheduler *lk_linear_lr_with(const lk_linear_lr_options *options);

/* lr * (1 - epoch / total_iters) ^ power */
typedef struct lk_polynomial_lr_options {
    size_t struct_size;
    int64_t total_iters; /* 5 */
    double power;        /* 1 */
} lk_polynomial_lr_options;
#define lk_polynomial_lr(...) LK_CALL0_(lk_polynomial_lr_with, lk_polynomial_lr_options, __VA_ARGS__)
lk_scheduler *lk_polynomial_lr_with(const lk_polynomial_lr_options *options);

/* Half a cosine from lr to eta_min over t_max epochs, and back. */
typedef struct lk_cosine_annealing_lr_options {
    size_t struct_size;
    double eta_min; /* 0 */
} lk_cosine_annealing_lr_options;
#define lk_cosine_annealing_lr(...)                                                                          \
    LK_CALL1_(lk_cosine_annealing_lr_with, lk_cosine_annealing_lr_options, __VA_ARGS__, )
lk_scheduler *lk_cosine_annealing_lr_with(int64_t t_max, const lk_cosine_annealing_lr_options *options);

/* The same with restarts: after t_0 epochs, then after t_0 * t_mult, ... */
typedef struct lk_cosine_annealing_warm_restarts_options {
    size_t struct_size;
    int64_t t_mult; /* 1 */
    double eta_min; /* 0 */
} lk_cosine_annealing_warm_restarts_options;
#define lk_cosine_annealing_warm_restarts(...)                                                               \
    LK_CALL1_(lk_cosine_annealing_warm_restarts_with, lk_cosine_annealing_warm_restarts_options,             \
              __VA_ARGS__, )
lk_scheduler *
lk_cosine_annealing_warm_restarts_with(int64_t t_0, const lk_cosine_annealing_warm_restarts_options *options);

/* initial lr * function(epoch) */
typedef double (*lk_lr_function)(int64_t epoch, int group, void *context);
/* initial lr * function(epoch). `context` is borrowed and must outlive the scheduler. */
lk_scheduler *lk_lambda_lr(lk_lr_function function, void *context);

/* The rate times function(epoch) at every epoch but the first. `context` as for lk_lambda_lr. */
lk_scheduler *lk_multiplicative_lr(lk_lr_function function, void *context);

typedef enum lk_anneal { LK_ANNEAL_COS, LK_ANNEAL_LINEAR } lk_anneal;

/* Rises from max_lr / div_factor to max_lr and falls to almost zero, with momentum in the
 * opposite direction. Counts batches. */
typedef struct lk_one_cycle_lr_options {
    size_t struct_size;
    int64_t total_steps; /* or both of the following */
    int64_t epochs, steps_per_epoch;
    double pct_start; /* 0.3 */
    lk_anneal anneal_strategy;
    bool no_cycle_momentum;
    double base_momentum;    /* 0.85 */
    double max_momentum;     /* 0.95 */
    double div_factor;       /* 25 */
    double final_div_factor; /* 1e4 */
    bool three_phase;
    /* Instead of max_lr, one per parameter group, in their order, copied. The default group may be
     * left out; it then has the last one. */
    const double *max_lrs;
    int max_lr_count;
} lk_one_cycle_lr_options;
#define lk_one_cycle_lr(...) LK_CALL1_(lk_one_cycle_lr_with, lk_one_cycle_lr_options, __VA_ARGS__, )
lk_scheduler *lk_one_cycle_lr_with(double max_lr, const lk_one_cycle_lr_options *options);

typedef enum lk_cyclic_mode {
    LK_CYCLIC_TRIANGULAR,
    LK_CYCLIC_TRIANGULAR2,
    LK_CYCLIC_EXP_RANGE
} lk_cyclic_mode;

/* Moves back and forth between two rates. Counts batches. */
typedef struct lk_cyclic_lr_options {
    size_t struct_size;
    int64_t step_size_up;   /* 2000 */
    int64_t step_size_down; /* step_size_up */
    lk_cyclic_mode mode;
    double gamma; /* 1; for exp_range */
    bool no_cycle_momentum;
    double base_momentum; /* 0.8 */
    double max_momentum;  /* 0.9 */
    /* Instead of base_lr and max_lr, as in lk_one_cycle_lr_options. */
    const double *base_lrs, *max_lrs;
    int base_lr_count, max_lr_count;
} lk_cyclic_lr_options;
#define lk_cyclic_lr(...) LK_CALL2_(lk_cyclic_lr_with, lk_cyclic_lr_options, __VA_ARGS__, )
lk_scheduler *lk_cyclic_lr_with(double base_lr, double max_lr, const lk_cyclic_lr_options *options);

/* lr * factor when the metric has not improved for more than `patience` epochs. */
typedef struct lk_reduce_lr_on_plateau_options {
    size_t struct_size;
    bool maximize;           /* PyTorch's mode="max" */
    double factor;           /* 0.1 */
    double patience;         /* 10; a whole number */
    double threshold;        /* 1e-4 */
    bool absolute_threshold; /* PyTorch's threshold_mode="abs" */
    int64_t cooldown;        /* 0 */
    double min_lr;           /* 0 */
    double eps;              /* 1e-8; smaller changes are not made */
} lk_reduce_lr_on_plateau_options;
#define lk_reduce_lr_on_plateau(...)                                                                         \
    LK_CALL0_(lk_reduce_lr_on_plateau_with, lk_reduce_lr_on_plateau_options, __VA_ARGS__)
lk_scheduler *lk_reduce_lr_on_plateau_with(const lk_reduce_lr_on_plateau_options *options);

/* Schedules one after the other: scheduler i + 1 starts, from the initial rates, at milestone i. */
typedef struct lk_scheduler_list {
    lk_scheduler *const *items;
    int count;
} lk_scheduler_list;
LK_LIST_TO_END_(lk_scheduler_list, lk_scheduler *)
#define lk_schedulers(...) lk_scheduler_list_to_end((lk_scheduler *const[]){__VA_ARGS__, LK_END})
typedef struct lk_sequential_lr_options {
    size_t struct_size;
    lk_scheduler_list schedulers; /* lk_schedulers(first, second); owned */
    lk_milestone_list milestones; /* one fewer than schedulers; copied */
} lk_sequential_lr_options;
#define lk_sequential_lr(...) LK_CALL0_(lk_sequential_lr_with, lk_sequential_lr_options, __VA_ARGS__)
lk_scheduler *lk_sequential_lr_with(const lk_sequential_lr_options *options);

/* Several schedules at once: each step is a step of all of them, in their order. They are owned.
 * Use schedules that multiply the current rate. */
typedef struct lk_chained_scheduler_options {
    size_t struct_size;
    lk_scheduler_list schedulers; /* lk_schedulers(first, second); owned */
} lk_chained_scheduler_options;
#define lk_chained_scheduler(...)                                                                            \
    LK_CALL0_(lk_chained_scheduler_with, lk_chained_scheduler_options, __VA_ARGS__)
lk_scheduler *lk_chained_scheduler_with(const lk_chained_scheduler_options *options);

/* A linear warm-up over `steps` (epochs or batches, as the other schedule counts), then that
 * schedule. It is LinearLR and SequentialLR in one. */
typedef struct lk_warmup_lr_options {
    size_t struct_size;
    double start_factor; /* 1/3 */
    lk_scheduler *then;  /* owned; NULL: the initial rates */
} lk_warmup_lr_options;
#define lk_warmup_lr(...) LK_CALL1_(lk_warmup_lr_with, lk_warmup_lr_options, __VA_ARGS__, )
lk_scheduler *lk_warmup_lr_with(int64_t steps, const lk_warmup_lr_options *options);

#ifdef __cplusplus
}
#endif
#endif
