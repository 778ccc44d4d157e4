/* A scheduler inside: one function from (epoch, the rate found) to the next rate, and the numbers it needs.
 *
 * Formulas are PyTorch's chainable ones, step by step, so that the rounding is the same too. */
#ifndef LKI_OPTIM_SCHEDULER_H
#define LKI_OPTIM_SCHEDULER_H

#include <lockstep/scheduler.h>

typedef struct lki_phase {
    double end_step, start_lr, end_lr, start_momentum, end_momentum;
} lki_phase;

struct lk_scheduler {
    const char *name; /* "StepLR" */
    lk_optimizer *optimizer;
    double *base_lrs; /* one a group, found when attached */
    int64_t last_epoch;
    /* The rates of a cycle, one per group, if they were given as lists. */
    struct {
        double *low, *high;
        int low_count, high_count;
    } lists;

    /* Optional. Checks the optimizer and prepares its groups, before the rates of epoch 0. */
    lk_status (*prepare)(lk_scheduler *scheduler);
    /* Required unless `advance` is there. The rate of a group at last_epoch; `lr` is what it has now. */
    double (*rate)(const lk_scheduler *scheduler, int group, double lr);
    /* Optional. The momentum of every group at last_epoch. */
    double (*momentum)(const lk_scheduler *scheduler);
    /* Optional. Replaces the whole step; last_epoch is already the new one. `metric` is NULL where none was
     * given. */
    lk_status (*advance)(lk_scheduler *scheduler, const double *metric);
    /* Optional. Begins at epoch 0 whatever was before. */
    void (*restart)(lk_scheduler *scheduler);

    double gamma, factor, end_factor, power, eta_min; /* those that the schedule has */
    int64_t period;                                   /* step_size, total_iters, t_max, t_0 */
    int64_t *milestones;
    int milestone_count;
    struct {
        lk_lr_function function;
        void *context;
    } lambda;
    struct {
        int64_t t_mult, t_cur, t_i;
    } restarts;
    struct {
        lki_phase phases[3];
        int phase_count;
        int64_t total_steps;
        lk_anneal anneal;
        bool cycles_momentum;
    } one_cycle;
    struct {
        double base_lr, max_lr, total_size, step_ratio, base_momentum, max_momentum;
        lk_cyclic_mode mode;
        bool cycles_momentum;
    } cyclic;
    struct {
        lk_reduce_lr_on_plateau_options options;
        double best;
        int64_t bad_epochs, cooldown_left;
    } plateau;
    lk_scheduler **parts;
    int part_count;
};

lk_scheduler *lki_scheduler_create(const char *name);
/* Sorted copies of the milestones; frees the scheduler and returns NULL where memory is out. */
lk_scheduler *lki_scheduler_with_milestones(lk_scheduler *scheduler, lk_milestone_list milestones);
/* Sets the rates (and momenta) of last_epoch. */
void lki_scheduler_apply(lk_scheduler *scheduler);
/* Attaches without touching the rates. */
lk_status lki_scheduler_bind(lk_scheduler *scheduler, lk_optimizer *optimizer);
/* Epoch 0, from the initial rates. */
lk_status lki_scheduler_begin(lk_scheduler *scheduler);

/* What a constructor returns that refuses its arguments. */
#define lki_scheduler_refuse(...) (lki_fail_null(__VA_ARGS__), lki_scheduler_refused())
lk_scheduler *lki_scheduler_refused(void); /* NULL */
/* Whether the last failure of this thread is such a refusal that nobody has asked for yet: a run that was
 * handed NULL then fails with it, instead of training without the schedule. */
bool lki_scheduler_was_refused(void);

#endif
