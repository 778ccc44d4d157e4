/* Every schedule against PyTorch 1.13: 60 epochs of rates and momenta of two groups; saving and going on; bad
 * arguments. */
#include "golden.h"
#include "lktest.h"

#include <lockstep/scheduler.h>
#include <lockstep/step.h>

#define TOLERANCE 1e-6
enum { EPOCH_COUNT = 60 };

static double power_of_epoch(int64_t epoch, int group, void *context)
{
    (void)group;
    return pow(*(double *)context, (double)epoch);
}

static double rising(int64_t epoch, int group, void *context)
{
    (void)group, (void)context;
    return 0.95 + 0.001 * (double)epoch;
}

static double ninety_five = 0.95;

/* clang-format off */
#define SCHEDULERS(X) \
    X(step_lr, lk_step_lr(7)) \
    X(step_lr_gamma, lk_step_lr(3, .gamma = 0.7)) \
    X(multi_step_lr, lk_multi_step_lr(.milestones = lk_milestones(30, 4, 9, 9), .gamma = 0.5)) \
    X(exponential_lr, lk_exponential_lr(0.93)) \
    X(constant_lr, lk_constant_lr()) \
    X(constant_lr_options, lk_constant_lr(.factor = 0.25, .total_iters = 11)) \
    X(linear_lr, lk_linear_lr()) \
    X(linear_lr_options, lk_linear_lr(.start_factor = 0.9, .end_factor = 0.1, .total_iters = 20)) \
    X(polynomial_lr, lk_polynomial_lr(.total_iters = 15, .power = 2)) \
    X(cosine_annealing_lr, lk_cosine_annealing_lr(12)) \
    X(cosine_annealing_lr_options, lk_cosine_annealing_lr(9, .eta_min = 0.004)) \
    X(cosine_annealing_warm_restarts, lk_cosine_annealing_warm_restarts(7)) \
    X(cosine_annealing_warm_restarts_options, lk_cosine_annealing_warm_restarts(4, .t_mult = 2, .eta_min = 0.001)) \
    X(lambda_lr, lk_lambda_lr(power_of_epoch, &ninety_five)) \
    X(multiplicative_lr, lk_multiplicative_lr(rising, NULL)) \
    X(chained_scheduler, lk_chained_scheduler(.schedulers = lk_schedulers( \
        lk_constant_lr(.factor = 0.1, .total_iters = 4), lk_exponential_lr(0.95), \
        lk_multi_step_lr(.milestones = lk_milestones(10, 30), .gamma = 0.5)))) \
    X(one_cycle_lr, lk_one_cycle_lr(0.5, .total_steps = 60)) \
    X(one_cycle_lr_options, lk_one_cycle_lr(0.5, .epochs = 6, .steps_per_epoch = 10, .pct_start = 0.25, \
        .anneal_strategy = LK_ANNEAL_LINEAR, .base_momentum = 0.7, .max_momentum = 0.99, .div_factor = 10, \
        .final_div_factor = 100, .three_phase = true)) \
    X(one_cycle_lr_groups, lk_one_cycle_lr(0, .total_steps = 60, .max_lrs = (const double[]){0.5, 0.2}, .max_lr_count = 2)) \
    X(cyclic_lr_groups, lk_cyclic_lr(0, 0, .step_size_up = 8, .base_lrs = (const double[]){0.01, 0.02}, .base_lr_count = 2, \
        .max_lrs = (const double[]){0.2, 0.1}, .max_lr_count = 2)) \
    X(cyclic_lr_high_groups, lk_cyclic_lr(0.01, 0, .step_size_up = 8, .max_lrs = (const double[]){0.2, 0.1}, .max_lr_count = 2)) \
    X(cyclic_lr, lk_cyclic_lr(0.01, 0.2, .step_size_up = 8)) \
    X(cyclic_lr_triangular2, lk_cyclic_lr(0.01, 0.2, .step_size_up = 5, .step_size_down = 9, .mode = LK_CYCLIC_TRIANGULAR2, \
        .no_cycle_momentum = true)) \
    X(cyclic_lr_exp_range, lk_cyclic_lr(0.01, 0.2, .step_size_up = 5, .mode = LK_CYCLIC_EXP_RANGE, .gamma = 0.98, \
        .base_momentum = 0.5, .max_momentum = 0.95)) \
    X(reduce_lr_on_plateau, lk_reduce_lr_on_plateau(.patience = 3)) \
    X(reduce_lr_on_plateau_options, lk_reduce_lr_on_plateau(.maximize = true, .factor = 0.5, .patience = LK_ZERO, \
        .threshold = 0.05, .absolute_threshold = true, .cooldown = 2, .min_lr = 0.003)) \
    X(reduce_lr_on_plateau_max, lk_reduce_lr_on_plateau(.maximize = true, .factor = 0.3, .patience = 2)) \
    X(sequential_lr, lk_sequential_lr(.schedulers = lk_schedulers(lk_constant_lr(.factor = 0.1, .total_iters = 3), \
        lk_exponential_lr(0.9), lk_step_lr(4)), .milestones = lk_milestones(5, 20))) \
    X(warmup_lr, lk_warmup_lr(8, .start_factor = 0.01, .then = lk_cosine_annealing_lr(20))) \
    X(sequential_cyclic, lk_sequential_lr(.schedulers = lk_schedulers(lk_exponential_lr(0.9), \
        lk_cyclic_lr(0.02, 0.2, .step_size_up = 4, .max_momentum = 0.95)), .milestones = lk_milestones(10))) \
    X(sequential_cycles, lk_sequential_lr(.schedulers = lk_schedulers(lk_one_cycle_lr(0.2, .total_steps = 50), \
        lk_cyclic_lr(0.02, 0.3, .step_size_up = 4, .base_momentum = 0.7), lk_step_lr(4)), .milestones = lk_milestones(7, 30))) \
    X(sequential_one_cycle, lk_sequential_lr(.schedulers = lk_schedulers(lk_exponential_lr(0.9), \
        lk_linear_lr(.start_factor = 0.5), lk_one_cycle_lr(0.2, .total_steps = 50)), .milestones = lk_milestones(5, 12))) \
    X(warmup_cyclic, lk_warmup_lr(8, .start_factor = 0.01, \
        .then = lk_cyclic_lr(0.02, 0.2, .step_size_up = 5, .max_momentum = 0.8, .base_momentum = 0.6)))
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_scheduler *make_##symbol(void)                                                                 \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
SCHEDULERS(X)
#undef X

typedef struct schedule {
    const char *name;
    lk_scheduler *(*make)(void);
    const lkt_golden *golden;
} schedule;

/* Two groups, the second the default one. */
static lk_optimizer *two_groups(void)
{
    lk_optimizer *optimizer =
        lk_sgd(.lr = 0.1, .momentum = 0.9, .groups = lk_param_groups({.prefix = "0.", .lr = 0.01}));
    lkt_not_null(optimizer);
    return optimizer;
}

static void compare_epoch(const schedule *test, const lk_optimizer *optimizer, int epoch)
{
    const lk_tensor *lr = lkt_golden_get(test->golden, "%s/lr", test->name);
    const lk_tensor *momentum = lkt_golden_get(test->golden, "%s/momentum", test->name);
    for (int group = 0; group < 2; group++) {
        double expected = lk_tensor_get(lr, 2 * epoch + group), actual = lk_optimizer_lr(optimizer, group);
        if (!(fabs(actual - expected) <= TOLERANCE * fabs(expected) + 1e-15))
            fail_msg("%s: epoch %d, group %d: lr %.12g, expected %.12g", test->name, epoch, group, actual,
                     expected);
        expected = lk_tensor_get(momentum, 2 * epoch + group);
        actual = lk_optimizer_momentum(optimizer, group);
        if (!(fabs(actual - expected) <= TOLERANCE))
            fail_msg("%s: epoch %d, group %d: momentum %.12g, expected %.12g", test->name, epoch, group,
                     actual, expected);
    }
}

static void advance(const schedule *test, lk_scheduler *scheduler, int epoch)
{
    const lk_tensor *metrics = lkt_golden_find(test->golden, "%s/metrics", test->name);
    assert_int_equal(lk_scheduler_needs_metric(scheduler), metrics != NULL);
    if (metrics)
        lkt_ok(lk_scheduler_step_metric(scheduler, lk_tensor_get(metrics, epoch)));
    else
        lkt_ok(lk_scheduler_step(scheduler));
}

static void schedule_equals_pytorch(void **state)
{
    const schedule *test = *state;
    lk_optimizer *optimizer = two_groups();
    lk_scheduler *scheduler = test->make();
    lkt_not_null(scheduler);
    lkt_ok(lk_scheduler_attach(scheduler, optimizer));
    for (int epoch = 0; epoch < EPOCH_COUNT; epoch++) {
        compare_epoch(test, optimizer, epoch);
        advance(test, scheduler, epoch);
    }
    lk_scheduler_free(scheduler);
    lk_optimizer_free(optimizer);
}

/* Stops in the middle, saves, and goes on with a fresh scheduler and optimizer that are given the numbers. */
static void schedule_goes_on(void **state)
{
    const schedule *test = *state;
    lk_named_number numbers[32];
    lk_optimizer *optimizer = two_groups();
    lk_scheduler *scheduler = test->make();
    lkt_ok(lk_scheduler_attach(scheduler, optimizer));
    for (int epoch = 0; epoch < 25; epoch++) advance(test, scheduler, epoch);
    int count = lk_scheduler_save(scheduler, numbers, 32);
    assert_in_range(count, 1, 32);
    lk_optimizer *fresh_optimizer = two_groups();
    lk_scheduler *fresh = test->make();
    lkt_ok(lk_scheduler_attach(fresh, fresh_optimizer));
    lkt_ok(lk_scheduler_restore(fresh, numbers, count));
    for (int group = 0; group < 2; group++)
        lk_optimizer_set_lr(fresh_optimizer, group, lk_optimizer_lr(optimizer, group));
    lk_scheduler_free(scheduler);
    lk_optimizer_free(optimizer);
    for (int epoch = 25; epoch < EPOCH_COUNT; epoch++) {
        if (epoch > 25) compare_epoch(test, fresh_optimizer, epoch);
        advance(test, fresh, epoch);
    }
    lkt_fails(lk_scheduler_restore(fresh, numbers, 0), LK_ERR_NOT_FOUND, "last_epoch");
    lk_scheduler_free(fresh);
    lk_optimizer_free(fresh_optimizer);
}

/* lr of both groups after one epoch of two schedules that multiply. */
static void schedules_chain(void **state)
{
    (void)state;
    lk_optimizer *optimizer = two_groups();
    lk_scheduler *first = lk_exponential_lr(0.5), *second = lk_constant_lr(.factor = 0.1, .total_iters = 4);
    lkt_ok(lk_scheduler_attach(first, optimizer));
    lkt_ok(lk_scheduler_attach(second, optimizer));
    lkt_ok(lk_scheduler_step(first));
    lkt_ok(lk_scheduler_step(second));
    lkt_close(lk_optimizer_lr(optimizer, 1), 0.1 * 0.5 * 0.1, 1e-12);
    assert_string_equal(lk_scheduler_name(first), "ExponentialLR");
    lk_scheduler_free(first);
    lk_scheduler_free(second);
    lk_optimizer_free(optimizer);
}

static void momentum_cycles_adam_beta(void **state)
{
    (void)state;
    lk_optimizer *optimizer = lk_adam();
    lk_scheduler *cycle = lk_one_cycle_lr(0.1, .total_steps = 10);
    lkt_ok(lk_scheduler_attach(cycle, optimizer));
    lkt_close(lk_optimizer_momentum(optimizer, 0), 0.95, 1e-12);
    lk_scheduler_free(cycle);
    cycle = lk_cyclic_lr(0.01, 0.1);
    lkt_fails(
        lk_scheduler_attach(cycle, optimizer), LK_ERR_INVALID,
        "CyclicLR: Adam has no momentum to cycle: set no_cycle_momentum, in a config cycle_momentum: n");
    lk_scheduler_free(cycle);
    lk_optimizer_free(optimizer);
}

/* A first phase without a step is over at once: PyTorch divides by zero there. */
static void one_cycle_without_a_rise(void **state)
{
    (void)state;
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1, .momentum = 0.9);
    lk_scheduler *cycle = lk_one_cycle_lr(0.1, .total_steps = 10, .pct_start = 0.1);
    lkt_ok(lk_scheduler_attach(cycle, optimizer));
    lkt_close(lk_optimizer_lr(optimizer, 0), 0.1, 1e-12);
    lkt_close(lk_optimizer_momentum(optimizer, 0), 0.85, 1e-12);
    lk_scheduler_free(cycle);
    lk_optimizer_free(optimizer);
}

/* A momentum that appears after the step has made its state would have no buffer. */
static void momentum_comes_before_the_step(void **state)
{
    (void)state;
    lk_module *model = lk_linear(2, 2);
    lk_optimizer *optimizer = lk_sgd(.lr = 0.1);
    lk_step *step = lk_step(.model = model, .optimizer = optimizer);
    lkt_not_null(step);
    lk_scheduler *cycle = lk_one_cycle_lr(0.1, .total_steps = 10);
    lkt_fails(lk_scheduler_attach(cycle, optimizer), LK_ERR_INVALID, "attach the scheduler before it");
    lk_scheduler_free(cycle);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_step_lr(0));
    lkt_contains(lk_error(), "StepLR: step_size: expected at least 1, found 0");
    assert_null(lk_constant_lr(.factor = 2));
    assert_null(lk_linear_lr(.start_factor = -1));
    assert_null(lk_linear_lr(.end_factor = 3));
    assert_null(lk_polynomial_lr(.total_iters = -1));
    assert_null(lk_cosine_annealing_lr(-2));
    assert_null(lk_cosine_annealing_warm_restarts(4, .t_mult = -1));
    assert_null(lk_lambda_lr(NULL, NULL));
    assert_null(lk_multiplicative_lr(NULL, NULL));
    assert_null(lk_chained_scheduler());
    lkt_contains(lk_error(), "at least one");
    assert_null(lk_chained_scheduler(.schedulers = lk_schedulers(lk_step_lr(2), lk_reduce_lr_on_plateau())));
    lkt_contains(lk_error(), "ReduceLROnPlateau cannot be a part");
    assert_null(lk_one_cycle_lr(0.1));
    lkt_contains(lk_error(), "OneCycleLR: expected total_steps");
    assert_null(lk_one_cycle_lr(0.1, .total_steps = 4, .pct_start = 2));
    assert_null(lk_one_cycle_lr(0.1, .total_steps = 4, .max_lrs = (const double[]){0.1}, .max_lr_count = 1));
    lkt_contains(lk_error(), "OneCycleLR: max_lrs stand instead of max_lr: pass 0");
    assert_null(lk_one_cycle_lr(0, .total_steps = 4, .max_lrs = (const double[]){0.1, 0}, .max_lr_count = 2));
    lkt_contains(lk_error(), "OneCycleLR: max_lr: expected finite rates");
    assert_null(lk_cyclic_lr(0.1, 0.2, .base_lrs = (const double[]){0.1}, .base_lr_count = 1));
    lkt_contains(lk_error(), "CyclicLR: lists stand instead of base_lr and max_lr: pass 0");
    assert_null(lk_cyclic_lr(0.1, 0.2, .step_size_up = -1));
    assert_null(lk_reduce_lr_on_plateau(.factor = 1));
    assert_null(lk_reduce_lr_on_plateau(.patience = -1));
    assert_null(lk_warmup_lr(0, .then = lk_exponential_lr(0.9)));
    assert_null(lk_warmup_lr(5, .start_factor = 7, .then = lk_exponential_lr(0.9)));
    assert_null(lk_sequential_lr(.schedulers = lk_schedulers(lk_step_lr(3), lk_step_lr(0)),
                                 .milestones = lk_milestones(4)));
    assert_null(lk_sequential_lr(.schedulers = lk_schedulers(lk_step_lr(3), lk_step_lr(2))));
    lkt_contains(lk_error(), "2 schedulers need 1 milestones, found 0");
    assert_null(lk_sequential_lr(.schedulers = lk_schedulers(lk_step_lr(3), lk_reduce_lr_on_plateau()),
                                 .milestones = lk_milestones(4)));
    lk_scheduler_free(NULL);
}

static void misuse(void **state)
{
    (void)state;
    lk_optimizer *optimizer = two_groups();
    lk_scheduler *scheduler = lk_reduce_lr_on_plateau();
    lkt_fails(lk_scheduler_step(scheduler), LK_ERR_INVALID, "not attached");
    lkt_ok(lk_scheduler_attach(scheduler, optimizer));
    lkt_fails(lk_scheduler_step(scheduler), LK_ERR_INVALID, "needs the metric");
    lkt_fails(lk_scheduler_attach(scheduler, optimizer), LK_ERR_INVALID, "already attached");
    lk_scheduler_free(scheduler);
    scheduler = lk_one_cycle_lr(0.1, .total_steps = 3);
    lkt_ok(lk_scheduler_attach(scheduler, optimizer));
    for (int i = 0; i < 3; i++) lkt_ok(lk_scheduler_step(scheduler));
    lkt_fails(lk_scheduler_step(scheduler), LK_ERR_INVALID, "step 4 of a schedule of 3 steps");
    lk_scheduler_free(scheduler);
    lk_optimizer_free(optimizer);
}

int main(void)
{
    static schedule cases[] = {
#define X(symbol, ...) {.name = #symbol, .make = make_##symbol},
        SCHEDULERS(X)
#undef X
    };
    enum { CASE_COUNT = sizeof cases / sizeof *cases };
    struct CMUnitTest tests[2 * CASE_COUNT];
    const struct CMUnitTest plain[] = {cmocka_unit_test(schedules_chain),
                                       cmocka_unit_test(momentum_cycles_adam_beta),
                                       cmocka_unit_test(one_cycle_without_a_rise),
                                       cmocka_unit_test(momentum_comes_before_the_step),
                                       cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(misuse)};
    lkt_golden *golden = lkt_golden_open("optim/schedulers.lkg");
    for (int i = 0; i < CASE_COUNT; i++) {
        cases[i].golden = golden;
        tests[2 * i] = (struct CMUnitTest){cases[i].name, schedule_equals_pytorch, NULL, NULL, &cases[i]};
        tests[2 * i + 1] = (struct CMUnitTest){cases[i].name, schedule_goes_on, NULL, NULL, &cases[i]};
    }
    int failed = _cmocka_run_group_tests("schedulers", tests, 2 * CASE_COUNT, NULL, NULL);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    lkt_golden_free(golden);
    return failed;
}
