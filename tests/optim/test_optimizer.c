/* Every optimizer against PyTorch 1.13 (LAMB against the paper's formulas and Catalyst's): 20 steps of a
 * small network, from weights drawn here; parameter groups, clipping, accumulation and schedules as they meet
 * in a step. */
#include "golden.h"
#include "lktest.h"

#include <lockstep/random.h>
#include <lockstep/scheduler.h>
#include <lockstep/step.h>
#include <lockstep/sys/engine.h>

#define TOLERANCE 1e-5
enum { STEP_COUNT = 20 };

typedef struct descent {
    const char *name;
    lk_optimizer *(*make)(void);
    lk_scheduler *(*schedule)(void); /* NULL for none */
    int accumulation_steps;
    double clip_norm, clip_value;
    double factor; /* of the first weights; 0 means 1 */
    const char *engine;
    const lkt_golden *golden;
} descent;

/* clang-format off */
#define OPTIMIZERS(X) \
    X(sgd, lk_sgd(.lr = 0.1)) \
    X(sgd_momentum, lk_sgd(.lr = 0.1, .momentum = 0.9)) \
    X(sgd_dampening, lk_sgd(.lr = 0.1, .momentum = 0.8, .dampening = 0.3, .weight_decay = 0.01)) \
    X(sgd_nesterov, lk_sgd(.lr = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01)) \
    X(sgd_maximize, lk_sgd(.lr = 0.001, .maximize = true)) \
    X(adam, lk_adam()) \
    X(adam_options, lk_adam(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1)) \
    X(adam_amsgrad, lk_adam(.lr = 0.02, .amsgrad = true)) \
    X(adam_maximize, lk_adam(.lr = 0.002, .maximize = true)) \
    X(adamw, lk_adamw()) \
    X(adamw_options, lk_adamw(.lr = 0.02, .weight_decay = 0.2, .amsgrad = true)) \
    X(rmsprop, lk_rmsprop()) \
    X(rmsprop_options, lk_rmsprop(.lr = 0.005, .alpha = 0.9, .weight_decay = 0.01, .momentum = 0.5, .centered = true)) \
    X(rmsprop_centered, lk_rmsprop(.lr = 0.005, .centered = true)) \
    X(rmsprop_momentum, lk_rmsprop(.lr = 0.005, .momentum = 0.9)) \
    X(adagrad, lk_adagrad()) \
    X(adagrad_options, lk_adagrad(.lr = 0.1, .lr_decay = 0.05, .weight_decay = 0.01, .initial_accumulator_value = 0.2)) \
    X(lamb, lk_lamb()) \
    X(lamb_options, lk_lamb(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1)) \
    X(catalyst_lamb, lk_catalyst_lamb()) \
    X(catalyst_lamb_options, lk_catalyst_lamb(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-5, .weight_decay = 0.1)) \
    X(catalyst_lamb_large, lk_catalyst_lamb(.lr = 0.02, .eps = 1e-2, .weight_decay = 0.1)) \
    X(catalyst_lamb_adam, lk_catalyst_lamb(.lr = 0.02, .weight_decay = 0.1, .adam = true)) \
    X(nadam, lk_nadam()) \
    X(nadam_options, lk_nadam(.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-4, .weight_decay = 0.05, .momentum_decay = 0.05)) \
    X(radam, lk_radam()) \
    X(radam_options, lk_radam(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1)) \
    X(adamax, lk_adamax()) \
    X(adamax_options, lk_adamax(.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1)) \
    X(adamax_maximize, lk_adamax(.maximize = true)) \
    X(adadelta, lk_adadelta()) \
    X(adadelta_options, lk_adadelta(.lr = 0.5, .rho = 0.8, .eps = 1e-4, .weight_decay = 0.1)) \
    X(adadelta_maximize, lk_adadelta(.maximize = true)) \
    X(rprop, lk_rprop()) \
    X(rprop_options, lk_rprop(.lr = 0.02, .eta_minus = 0.3, .eta_plus = 1.4, .step_size_min = 1e-3, .step_size_max = 0.05)) \
    X(rprop_maximize, lk_rprop(.lr = 1e-3, .maximize = true)) \
    X(asgd, lk_asgd(.lr = 0.1)) \
    X(asgd_options, lk_asgd(.lr = 0.2, .lambd = 0.05, .alpha = 0.5, .t0 = 4, .weight_decay = 0.1)) \
    X(asgd_maximize, lk_asgd(.maximize = true)) \
    X(lion, lk_lion(.lr = 1e-3)) \
    X(lion_options, lk_lion(.lr = 0.01, .beta1 = 0.8, .beta2 = 0.95, .weight_decay = 0.1)) \
    X(nadam_clip_norm, lk_nadam(.lr = 0.02)) \
    X(asgd_cosine, lk_asgd(.lr = 0.1)) \
    X(radam_one_cycle, lk_radam()) \
    X(nadam_one_cycle, lk_nadam()) \
    X(accumulate_adamax, lk_adamax(.lr = 0.02)) \
    X(rprop_groups, lk_rprop(.groups = lk_param_groups({.prefix = "0.", .lr = 0.05}))) \
    X(groups, lk_adamw(.lr = 0.01, .groups = lk_param_groups({.prefix = "0.", .lr = 0.05, .weight_decay = 0.3}))) \
    X(clip_norm, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(clip_value, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(accumulate, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(accumulate_norm, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(accumulate_value, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(one_cycle, lk_sgd(.lr = 0.2, .momentum = 0.9)) \
    X(one_cycle_adam, lk_adam()) \
    X(cosine, lk_adam(.lr = 0.05))
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_optimizer *make_##symbol(void)                                                                 \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
OPTIMIZERS(X)
#undef X

static lk_scheduler *schedule_one_cycle(void)
{
    return lk_one_cycle_lr(0.3, .total_steps = 20);
}

static lk_scheduler *schedule_one_cycle_adam(void)
{
    return lk_one_cycle_lr(0.05, .total_steps = 20);
}

static lk_scheduler *schedule_cosine(void)
{
    return lk_cosine_annealing_lr(10);
}

/* What a case has besides its optimizer. */
static descent describe(const char *name, lk_optimizer *(*make)(void))
{
    descent test = {.name = name, .make = make, .accumulation_steps = 1};
    if (strstr(name, "clip_norm")) test.clip_norm = 0.3;
    if (strcmp(name, "clip_value") == 0) test.clip_value = 0.05;
    if (strncmp(name, "accumulate", 10) == 0) test.accumulation_steps = 3;
    if (strcmp(name, "accumulate_norm") == 0) test.clip_norm = 0.3;
    if (strcmp(name, "accumulate_value") == 0) test.clip_value = 0.05;
    if (strstr(name, "_large")) test.factor = 12;
    if (strcmp(name, "one_cycle") == 0) test.schedule = schedule_one_cycle;
    if (strcmp(name, "one_cycle_adam") == 0) test.schedule = schedule_one_cycle_adam;
    if (strstr(name, "adam_one_cycle")) test.schedule = schedule_one_cycle_adam;
    if (strstr(name, "cosine")) test.schedule = schedule_cosine;
    return test;
}

static void compare_weights(const descent *test, lk_module *model)
{
    lk_param_list list;
    char what[128];
    double scale = 0;
    lkt_ok(lk_module_params(model, &list));
    for (int i = 0; i < list.count; i++)
        scale = fmax(
            scale, lkt_largest(lkt_golden_get(test->golden, "%s/final/%s", test->name, list.items[i].path)));
    for (int i = 0; i < list.count; i++) {
        snprintf(what, sizeof what, "%s/final/%s on %s", test->name, list.items[i].path, test->engine);
        lkt_near(list.items[i].param->value,
                 lkt_golden_get(test->golden, "%s/final/%s", test->name, list.items[i].path), scale,
                 TOLERANCE, what);
    }
    lk_param_list_free(&list);
}

/* With accumulation each step sees a third of the rows, in turn. */
static void one_step(const descent *test, lk_step *step, int i)
{
    lk_tensor *x = lk_tensor_view(lkt_golden_get(test->golden, "%s/input", test->name));
    lk_tensor *y = lk_tensor_view(lkt_golden_get(test->golden, "%s/target", test->name));
    if (test->accumulation_steps > 1) {
        lk_tensor *whole_x = x, *whole_y = y;
        x = lk_tensor_slice(whole_x, 0, 4 * (i % 3), 4 * (i % 3) + 4);
        y = lk_tensor_slice(whole_y, 0, 4 * (i % 3), 4 * (i % 3) + 4);
        lk_tensor_free(whole_x);
        lk_tensor_free(whole_y);
    }
    lk_input fields[] = {{"features", x}, {"targets", y}};
    lkt_ok(lk_step_train(step, fields, 2));
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static void descend(const descent *test, lk_step *step, lk_scheduler *scheduler)
{
    const lk_tensor *losses = lkt_golden_get(test->golden, "%s/losses", test->name);
    const lk_tensor *norms = lkt_golden_find(test->golden, "%s/norms", test->name);
    for (int i = 0; i < STEP_COUNT; i++) {
        one_step(test, step, i);
        double expected = lk_tensor_get(losses, i);
        if (!(fabs(lk_step_loss(step) - expected) <= TOLERANCE * fabs(expected)))
            fail_msg("%s on %s: loss %d is %.9g, expected %.9g", test->name, test->engine, i,
                     lk_step_loss(step), expected);
        if (norms) lkt_close(lk_step_grad_norm(step), lk_tensor_get(norms, i), TOLERANCE);
        if (scheduler) lkt_ok(lk_scheduler_step(scheduler));
    }
}

static void multiply(lk_module *model, double factor)
{
    lk_param_list list;
    lkt_ok(lk_module_params(model, &list));
    for (int i = 0; i < list.count; i++) {
        lk_tensor *value = list.items[i].param->value;
        for (int64_t k = 0; k < lk_tensor_count(value); k++)
            lk_tensor_set(value, k, lk_tensor_get(value, k) * factor);
    }
    lk_param_list_free(&list);
}

static void optimizer_equals_pytorch(void **state)
{
    const descent *test = *state;
    lk_engine *engine = lk_engine_open(test->engine, LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lkt_not_null(engine);
    lk_manual_seed((uint64_t)lk_tensor_get(lkt_golden_get(test->golden, "%s/seed", test->name), 0));
    lk_module *model = lk_sequential(lk_linear(6, 8), lk_tanh(), lk_linear(8, 3));
    if (test->factor != 0) multiply(model, test->factor);
    lk_criterion *criterion = lk_mse_loss();
    lk_optimizer *optimizer = test->make();
    lk_scheduler *scheduler = test->schedule ? test->schedule() : NULL;
    lkt_not_null(optimizer);
    if (scheduler) lkt_ok(lk_scheduler_attach(scheduler, optimizer));
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = engine,
                            .accumulation_steps = test->accumulation_steps, .clip_norm = test->clip_norm,
                            .clip_value = test->clip_value);
    lkt_not_null(step);
    descend(test, step, scheduler);
    lkt_ok(lk_step_pull(step));
    compare_weights(test, model);
    lk_step_free(step);
    lk_scheduler_free(scheduler);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    lk_engine_close(engine);
}

/* ---- A rule of one's own: SGD, written by its formula, where PyTorch's numbers are known ---- */

static void own_sgd(const lk_update *u)
{
    for (int64_t i = 0; i < u->count; i++) {
        float *buffer = &u->states[0][i];
        *buffer = u->step == 1 ? u->grads[i] : (float)u->momentum * *buffer + u->grads[i];
        u->values[i] -= (float)u->lr * *buffer;
    }
}

static lk_optimizer *make_own(void)
{
    return lk_custom_optimizer(.name = "OwnSGD", .update = own_sgd, .state_count = 1, .lr = 0.1,
                               .momentum = 0.9);
}

static lk_optimizer *make_own_faster(void)
{
    return lk_custom_optimizer(.name = "OwnSGD", .update = own_sgd, .state_count = 1, .lr = 0.2,
                               .momentum = 0.9);
}

static void own_rules_meet_clipping_accumulation_and_schedules(void **state)
{
    (void)state;
    static const char *const names[] = {"sgd_momentum", "clip_norm", "clip_value",
                                        "accumulate",   "one_cycle", "accumulate_norm"};
    static const char *const engines[] = {"cpu", "ref"};
    lkt_golden *golden = lkt_golden_open("optim/optimizers.lkg");
    for (int i = 0; i < 12; i++) {
        descent test = describe(names[i / 2], i / 2 ? make_own_faster : make_own);
        void *as_state = &test;
        test.engine = engines[i % 2];
        test.golden = golden;
        optimizer_equals_pytorch(&as_state);
    }
    lkt_golden_free(golden);
}

/* A group by module takes the same parameters as one by prefix. */
static void groups_by_module(void **state)
{
    (void)state;
    lk_module *head = lk_linear(3, 2), *model = lk_sequential(lk_linear(4, 3), head);
    lk_optimizer *optimizer =
        lk_sgd(.lr = 0.5,
               .groups = lk_param_groups({.module = head, .lr = 0.25}, {.prefix = "0.bias", .lr = LK_ZERO}));
    lkt_not_null(optimizer);
    assert_int_equal(lk_optimizer_group_count(optimizer), 3);
    assert_true(lk_optimizer_lr(optimizer, 0) == 0.25);
    assert_true(lk_optimizer_lr(optimizer, 1) == 0);
    assert_true(lk_optimizer_lr(optimizer, 2) == 0.5);
    lk_tensor *frozen = lk_tensor_clone(lk_module_param(model, "0.bias")->value);
    lk_tensor *moved = lk_tensor_clone(lk_module_param(model, "1.bias")->value);
    lk_criterion *criterion = lk_mse_loss();
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer);
    lkt_not_null(step);
    lk_tensor *x = lk_rand(LK_SHAPE(5, 4)), *y = lk_rand(LK_SHAPE(5, 2));
    lk_input fields[] = {{"features", x}, {"targets", y}};
    lkt_ok(lk_step_train(step, fields, 2));
    lkt_ok(lk_step_pull(step));
    lkt_same_bits(lk_module_param(model, "0.bias")->value, frozen, "the frozen bias");
    lk_param *bias = lk_module_param(model, "1.bias");
    for (int i = 0; i < 2; i++)
        lkt_close(lk_tensor_get(bias->value, i),
                  lk_tensor_get(moved, i) - 0.25 * lk_tensor_get(bias->grad, i), 1e-6);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_tensor_free(frozen);
    lk_tensor_free(moved);
    lk_criterion_free(criterion);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_sgd());
    lkt_contains(lk_error(), "SGD: lr");
    assert_null(lk_sgd(.lr = -1));
    lkt_contains(lk_error(), "lr");
    assert_null(lk_sgd(.lr = 1, .nesterov = true));
    lkt_contains(lk_error(), "nesterov");
    assert_null(lk_adam(.beta1 = 1));
    lkt_contains(lk_error(), "beta1");
    assert_null(lk_adam(.eps = -1));
    lkt_contains(lk_error(), "eps");
    assert_null(lk_rmsprop(.weight_decay = -1));
    lkt_contains(lk_error(), "weight_decay");
    assert_null(lk_adagrad(.groups = lk_param_groups({.lr = 1})));
    lkt_contains(lk_error(), "group 0");
    assert_null(lk_lamb(.amsgrad = true));
    assert_null(lk_catalyst_lamb(.beta2 = 1));
    lkt_contains(lk_error(), "CatalystLamb: beta2");
    lk_optimizer_free(NULL);
}

int main(void)
{
    static lk_optimizer *(*const makers[])(void) = {
#define X(symbol, ...) make_##symbol,
        OPTIMIZERS(X)
#undef X
    };
    static const char *const names[] = {
#define X(symbol, ...) #symbol,
        OPTIMIZERS(X)
#undef X
    };
    enum { CASE_COUNT = sizeof names / sizeof *names };
    const struct CMUnitTest plain[] = {cmocka_unit_test(groups_by_module), cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(own_rules_meet_clipping_accumulation_and_schedules)};
    lkt_golden *golden = lkt_golden_open("optim/optimizers.lkg");
    int engine_count = 0, count = 0;
    while (lk_engine_names()[engine_count]) engine_count++;
    struct CMUnitTest *tests = calloc((size_t)(CASE_COUNT * engine_count), sizeof *tests);
    descent *runs = calloc((size_t)(CASE_COUNT * engine_count), sizeof *runs);
    for (int e = 0; e < engine_count; e++)
        for (int i = 0; i < CASE_COUNT; i++, count++) {
            runs[count] = describe(names[i], makers[i]);
            runs[count].engine = lk_engine_names()[e];
            runs[count].golden = golden;
            tests[count] = (struct CMUnitTest){names[i], optimizer_equals_pytorch, NULL, NULL, &runs[count]};
        }
    int failed = _cmocka_run_group_tests("optimizers", tests, (size_t)count, NULL, NULL);
    failed += cmocka_run_group_tests(plain, NULL, NULL);
    free(tests);
    free(runs);
    lkt_golden_free(golden);
    return failed;
}
