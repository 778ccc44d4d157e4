/* What the parity tests do with a layer: the first weights bit for bit, then forward, gradients, 20 steps of
 * training and an evaluation within 1e-5. */
#ifndef LKT_NN_LAYER_CHECK_H
#define LKT_NN_LAYER_CHECK_H

#include "probe.h"

#include <lockstep/random.h>

#define TOLERANCE 1e-5

/* Whether a layer draws random numbers in training. */
static bool drops(const char *name);

static lk_engine *open_engine(const parity_case *test)
{
    lk_engine *engine = lk_engine_open(test->engine, LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lkt_not_null(engine);
    return engine;
}

/* One forward and backward: y and every gradient. */
static void check_gradients(const parity_case *test, lk_module *probe, lk_engine *engine)
{
    const lk_tensor *input = lkt_golden_get(test->golden, "%s/input", test->name);
    const lk_tensor *y = lkt_golden_get(test->golden, "%s/y", test->name);
    parity_context context = {probe, NULL};
    lk_optimizer *optimizer = lk_sgd(.lr = 0.05);
    lk_step *step = lk_step(.model = probe, .function = parity_function, .context = &context,
                            .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lk_input fields[] = {{"input", input},
                         {"cotangent", lkt_golden_get(test->golden, "%s/cotangent", test->name)}};
    lk_manual_seed((uint64_t)lk_tensor_get(lkt_golden_get(test->golden, "%s/seed", test->name), 0) + 1);
    lkt_ok(lk_step_begin(step, fields, 2, true));
    lkt_ok(lk_step_forward(step));
    lkt_ok(lk_step_criterion(step));
    lkt_ok(lk_step_backward(step));
    lkt_near(lk_step_output(step, "y"), y, lkt_largest(y), TOLERANCE, test->name);
    lkt_ok(lk_step_pull(step));
    compare_section(test, probe, "grad", true, TOLERANCE);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
}

/* 20 steps, the weights afterwards, and what they compute in evaluation. */
static void check_training_and_evaluation(const parity_case *test, lk_module *probe, lk_engine *engine)
{
    const lk_tensor *y = lkt_golden_get(test->golden, "%s/y_eval", test->name);
    lk_criterion *criterion = lk_mse_loss();
    parity_context context = {probe, criterion};
    lk_optimizer *optimizer = lk_sgd(.lr = 0.05, .momentum = 0.9);
    lk_step *step = lk_step(.model = probe, .function = parity_function, .context = &context,
                            .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lk_input fields[] = {{"input", lkt_golden_get(test->golden, "%s/input", test->name)},
                         {"targets", lkt_golden_get(test->golden, "%s/target", test->name)}};
    check_training(test, step, fields);
    lkt_ok(lk_step_pull(step));
    compare_section(test, probe, "final", false, TOLERANCE);
    lkt_ok(lk_step_evaluate(step, fields, 2));
    lkt_near(lk_step_output(step, "y"), y, lkt_largest(y), TOLERANCE, test->name);
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
}

static void layer_equals_pytorch(void **state)
{
    const parity_case *test = *state;
    lk_engine *engine = open_engine(test);
    if (engine->ops->begin_step && drops(test->name)) { /* a GPU draws its own numbers */
        lk_engine_close(engine);
        skip();
    }
    lk_manual_seed((uint64_t)lk_tensor_get(lkt_golden_get(test->golden, "%s/seed", test->name), 0));
    lk_module *module = test->make();
    lkt_not_null(module);
    lk_module *probe = make_probe(module, lkt_golden_get(test->golden, "%s/input", test->name));
    compare_section(test, probe, "init", false, 0);
    check_gradients(test, probe, engine);
    check_training_and_evaluation(test, probe, engine);
    compare_names(test, probe, "final");
    lk_module_free(probe);
    lk_engine_close(engine);
}

#endif
