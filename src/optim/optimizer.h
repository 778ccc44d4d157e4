/* An optimizer inside: a rule and groups of numbers. The tensors that it updates, and its state, belong to
 * the step. */
#ifndef LKI_OPTIM_OPTIMIZER_H
#define LKI_OPTIM_OPTIMIZER_H

#include <lockstep/optim.h>

typedef struct lki_group {
    char *prefix;
    const lk_module *module;
    lk_hyper hyper;    /* live: kernels read it, schedulers change it */
    double initial_lr; /* what schedulers count from */
    double initial_momentum;
} lki_group;

struct lk_optimizer {
    const char *name; /* "Adam" */
    lk_update_rule rule;
    lki_group *groups; /* the default group is the last */
    int group_count;
    double initial_state;      /* what state 0 starts from: Adagrad's accumulator */
    lk_update_function update; /* a rule of the user's own; NULL: `rule` */
    int state_count;           /* of that */
    void *context;
    void (*free_context)(void *context);
    char *own_name;
    bool has_step;      /* a step has made its state: a momentum that was 0 must stay so */
    bool has_scheduler; /* one was attached: what the groups' rates count from is settled */
};

/* Which group a parameter belongs to. */
int lki_optimizer_group_of(const lk_optimizer *optimizer, const char *path, const lk_param *param);

/* How many state tensors the rule needs for these numbers, and their names as PyTorch's state_dict has them.
 */
int lki_optimizer_state_count(const lk_optimizer *optimizer);
const char *lki_optimizer_state_name(const lk_optimizer *optimizer, int state);

/* Whether it has Adam's two betas. */
bool lki_rule_has_betas(lk_update_rule rule);

/* Momentum in the sense of cyclic schedules: SGD's and RMSprop's momentum, beta1 of Adam and its kin. */
double *lki_group_momentum(const lk_optimizer *optimizer, int group);

#endif
