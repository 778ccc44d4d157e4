/* What <lockstep/optim.h> and <lockstep/scheduler.h> refuse. */
#include "refusals.h"

#include <lockstep/optim.h>
#include <lockstep/scheduler.h>

#define REFUSED_OPTIMIZER(fragment, ...) REFUSED(fragment, lk_optimizer_free, __VA_ARGS__)
#define REFUSED_SCHEDULE(fragment, ...)  REFUSED(fragment, lk_scheduler_free, __VA_ARGS__)

static void optimizers(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -1};
    REFUSED_OPTIMIZER("lr", lk_sgd());
    for (int i = 0; i < 3; i++) {
        REFUSED_OPTIMIZER("lr", lk_sgd(.lr = bad[i]));
        REFUSED_OPTIMIZER("momentum", lk_sgd(.lr = 1, .momentum = bad[i]));
        REFUSED_OPTIMIZER("weight_decay", lk_sgd(.lr = 1, .weight_decay = bad[i]));
        REFUSED_OPTIMIZER("lr", lk_adam(.lr = bad[i]));
        REFUSED_OPTIMIZER("beta1", lk_adam(.beta1 = bad[i]));
        REFUSED_OPTIMIZER("beta2", lk_adamw(.beta2 = bad[i]));
        REFUSED_OPTIMIZER("eps", lk_lamb(.eps = bad[i]));
        REFUSED_OPTIMIZER("weight_decay", lk_adamw(.weight_decay = bad[i]));
        REFUSED_OPTIMIZER("beta1", lk_catalyst_lamb(.beta1 = bad[i]));
        REFUSED_OPTIMIZER("alpha", lk_rmsprop(.alpha = bad[i]));
        REFUSED_OPTIMIZER("momentum", lk_rmsprop(.momentum = bad[i]));
        REFUSED_OPTIMIZER("eps", lk_adagrad(.eps = bad[i]));
        REFUSED_OPTIMIZER("lr_decay", lk_adagrad(.lr_decay = bad[i]));
        REFUSED_OPTIMIZER("momentum_decay", lk_nadam(.momentum_decay = bad[i]));
        REFUSED_OPTIMIZER("beta2", lk_radam(.beta2 = bad[i]));
        REFUSED_OPTIMIZER("eps", lk_adamax(.eps = bad[i]));
        REFUSED_OPTIMIZER("rho", lk_adadelta(.rho = bad[i]));
        REFUSED_OPTIMIZER("etas", lk_rprop(.eta_minus = bad[i]));
        REFUSED_OPTIMIZER("etas", lk_rprop(.eta_plus = bad[i]));
        REFUSED_OPTIMIZER("step_sizes", lk_rprop(.step_size_max = bad[i]));
        REFUSED_OPTIMIZER("lambd", lk_asgd(.lambd = bad[i]));
        REFUSED_OPTIMIZER("t0", lk_asgd(.t0 = bad[i]));
        REFUSED_OPTIMIZER("beta1", lk_lion(.beta1 = bad[i]));
        REFUSED_OPTIMIZER("lr", lk_sgd(.lr = 1, .groups = lk_param_groups({.prefix = "a", .lr = bad[i]})));
        REFUSED_OPTIMIZER("momentum",
                          lk_sgd(.lr = 1, .groups = lk_param_groups({.prefix = "a", .momentum = bad[i]})));
        REFUSED_OPTIMIZER("weight_decay",
                          lk_adam(.groups = lk_param_groups({.prefix = "a", .weight_decay = bad[i]})));
        REFUSED_OPTIMIZER("beta2", lk_adam(.groups = lk_param_groups({.prefix = "a", .beta2 = bad[i]})));
        REFUSED_OPTIMIZER("eps", lk_adam(.groups = lk_param_groups({.prefix = "a", .eps = bad[i]})));
        if (i == 2) continue; /* what a rule of your own makes of a negative number is its business */
        REFUSED_OPTIMIZER("dampening", lk_sgd(.lr = 1, .momentum = 0.5, .dampening = bad[i]));
    }
    REFUSED_OPTIMIZER("beta1", lk_adam(.beta1 = 1));
    REFUSED_OPTIMIZER("nesterov", lk_sgd(.lr = 1, .nesterov = true));
    REFUSED_OPTIMIZER("nesterov", lk_sgd(.lr = 1, .momentum = 0.9, .dampening = 0.5, .nesterov = true));
    REFUSED_OPTIMIZER("group", lk_sgd(.lr = 1, .groups = lk_param_groups({.lr = 2})));
    REFUSED_OPTIMIZER("beta1", lk_sgd(.lr = 1, .groups = lk_param_groups({.prefix = "a", .beta1 = 0.5})));
    REFUSED_OPTIMIZER("weight_decay",
                      lk_rprop(.groups = lk_param_groups({.prefix = "a", .weight_decay = 0.5})));
    REFUSED_OPTIMIZER("eps", lk_lion(.groups = lk_param_groups({.prefix = "a", .eps = 0.5})));
    REFUSED_OPTIMIZER("momentum", lk_adam(.groups = lk_param_groups({.prefix = "a", .momentum = 0.5})));
    lkt_all_refused();
}

static void rule(const lk_update *update)
{
    (void)update;
}

static void your_own_rule(void **state)
{
    (void)state;
    REFUSED_OPTIMIZER("update", lk_custom_optimizer(.lr = 1));
    REFUSED_OPTIMIZER("lr", lk_custom_optimizer(.update = rule));
    REFUSED_OPTIMIZER("lr", lk_custom_optimizer(.update = rule, .lr = NAN));
    REFUSED_OPTIMIZER("state_count", lk_custom_optimizer(.update = rule, .lr = 1, .state_count = -1));
    REFUSED_OPTIMIZER("state_count",
                      lk_custom_optimizer(.update = rule, .lr = 1, .state_count = LK_MAX_UPDATE_STATES + 1));
    lkt_all_refused();
}

static void schedules(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY};
    static const int64_t falling[] = {5, 3};
    for (int i = 0; i < 2; i++) {
        REFUSED_SCHEDULE("gamma", lk_step_lr(3, .gamma = bad[i]));
        REFUSED_SCHEDULE("gamma", lk_multi_step_lr(.milestones = lk_milestones(2), .gamma = bad[i]));
        REFUSED_SCHEDULE("gamma", lk_exponential_lr(bad[i]));
        REFUSED_SCHEDULE("factor", lk_constant_lr(.factor = bad[i]));
        REFUSED_SCHEDULE("start_factor", lk_linear_lr(.start_factor = bad[i]));
        REFUSED_SCHEDULE("end_factor", lk_linear_lr(.end_factor = bad[i]));
        REFUSED_SCHEDULE("power", lk_polynomial_lr(.power = bad[i]));
        REFUSED_SCHEDULE("eta_min", lk_cosine_annealing_lr(3, .eta_min = bad[i]));
        REFUSED_SCHEDULE("eta_min", lk_cosine_annealing_warm_restarts(3, .eta_min = bad[i]));
        REFUSED_SCHEDULE("max_lr", lk_one_cycle_lr(bad[i], .total_steps = 9));
        REFUSED_SCHEDULE("pct_start", lk_one_cycle_lr(1, .total_steps = 9, .pct_start = bad[i]));
        REFUSED_SCHEDULE("momentum", lk_one_cycle_lr(1, .total_steps = 9, .base_momentum = bad[i]));
        REFUSED_SCHEDULE("final_div_factor",
                         lk_one_cycle_lr(1, .total_steps = 9, .final_div_factor = bad[i]));
        REFUSED_SCHEDULE("max_lr", lk_cyclic_lr(0.1, bad[i]));
        REFUSED_SCHEDULE("gamma", lk_cyclic_lr(0.1, 1, .mode = LK_CYCLIC_EXP_RANGE, .gamma = bad[i]));
        REFUSED_SCHEDULE("momentum", lk_cyclic_lr(0.1, 1, .max_momentum = bad[i]));
        REFUSED_SCHEDULE("factor", lk_reduce_lr_on_plateau(.factor = bad[i]));
        REFUSED_SCHEDULE("threshold", lk_reduce_lr_on_plateau(.threshold = bad[i]));
        REFUSED_SCHEDULE("min_lr", lk_reduce_lr_on_plateau(.min_lr = bad[i]));
        REFUSED_SCHEDULE("eps", lk_reduce_lr_on_plateau(.eps = bad[i]));
        REFUSED_SCHEDULE("start_factor", lk_warmup_lr(3, .start_factor = bad[i]));
    }
    REFUSED_SCHEDULE("step_size", lk_step_lr(-1));
    REFUSED_SCHEDULE("milestones", lk_multi_step_lr(.milestones = lk_milestones(-1)));
    REFUSED_SCHEDULE("total_iters", lk_constant_lr(.total_iters = -1));
    REFUSED_SCHEDULE("factor", lk_constant_lr(.factor = 1.5));
    REFUSED_SCHEDULE("total_iters", lk_linear_lr(.total_iters = -1));
    REFUSED_SCHEDULE("start_factor", lk_linear_lr(.start_factor = 2));
    REFUSED_SCHEDULE("total_iters", lk_polynomial_lr(.total_iters = -1));
    REFUSED_SCHEDULE("T_max", lk_cosine_annealing_lr(0));
    REFUSED_SCHEDULE("T_0", lk_cosine_annealing_warm_restarts(0));
    REFUSED_SCHEDULE("T_mult", lk_cosine_annealing_warm_restarts(3, .t_mult = -1));
    REFUSED_SCHEDULE("function", lk_lambda_lr(NULL, NULL));
    REFUSED_SCHEDULE("total_steps", lk_one_cycle_lr(1));
    REFUSED_SCHEDULE("total_steps", lk_one_cycle_lr(1, .total_steps = -5));
    REFUSED_SCHEDULE("steps_per_epoch", lk_one_cycle_lr(1, .epochs = 3));
    REFUSED_SCHEDULE("pct_start", lk_one_cycle_lr(1, .total_steps = 9, .pct_start = 1.5));
    REFUSED_SCHEDULE("anneal", lk_one_cycle_lr(1, .total_steps = 9, .anneal_strategy = (lk_anneal)9));
    REFUSED_SCHEDULE("step sizes", lk_cyclic_lr(0.1, 1, .step_size_up = -1));
    REFUSED_SCHEDULE("step sizes", lk_cyclic_lr(0.1, 1, .step_size_down = -1));
    REFUSED_SCHEDULE("mode", lk_cyclic_lr(0.1, 1, .mode = (lk_cyclic_mode)9));
    REFUSED_SCHEDULE("factor", lk_reduce_lr_on_plateau(.factor = 1));
    REFUSED_SCHEDULE("patience", lk_reduce_lr_on_plateau(.patience = -1));
    REFUSED_SCHEDULE("cooldown", lk_reduce_lr_on_plateau(.cooldown = -1));
    REFUSED_SCHEDULE("milestones", lk_sequential_lr(.schedulers = lk_schedulers(lk_exponential_lr(0.9),
                                                                                lk_exponential_lr(0.9)),
                                                    .milestones = lk_milestones(2, 3)));
    REFUSED_SCHEDULE("milestones", lk_sequential_lr(.schedulers = lk_schedulers(lk_exponential_lr(0.9),
                                                                                lk_exponential_lr(0.9),
                                                                                lk_exponential_lr(0.9)),
                                                    .milestones = {falling, 2}));
    REFUSED_SCHEDULE("step", lk_warmup_lr(0));
    REFUSED_SCHEDULE("step", lk_warmup_lr(-1));
    lkt_all_refused();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(optimizers),
        cmocka_unit_test(your_own_rule),
        cmocka_unit_test(schedules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
