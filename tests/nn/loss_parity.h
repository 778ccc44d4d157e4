/* One loss against PyTorch: value, gradients, 20 steps of training and the weights afterwards. */
#ifndef LKT_NN_LOSS_PARITY_H
#define LKT_NN_LOSS_PARITY_H

#include "probe.h"

#include <lockstep/random.h>

#ifndef TOLERANCE
#define TOLERANCE 1e-5
#endif

static inline void check_value_and_gradients(const parity_case *test, lk_module *probe, lk_step *step,
                                             const lk_input *fields)
{
    const lk_tensor *y = lkt_golden_get(test->golden, "%s/y", test->name);
    lkt_ok(lk_step_begin(step, fields, 2, true));
    lkt_ok(lk_step_forward(step));
    lkt_ok(lk_step_criterion(step));
    lkt_near(lk_step_output(step, "unreduced"), y, lkt_largest(y), TOLERANCE, test->name);
    lkt_ok(lk_step_backward(step));
    lkt_ok(lk_step_pull(step));
    compare_section(test, probe, "grad", true, TOLERANCE);
}

static inline void check_loss(const parity_case *test)
{
    lk_engine *engine = lk_engine_open(test->engine, LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lkt_not_null(engine);
    lk_module *probe = make_probe(test->make(), lkt_golden_get(test->golden, "%s/input", test->name));
    lk_criterion *criterion = test->criterion();
    lkt_not_null(criterion);
    parity_context context = {probe, criterion};
    lk_input fields[] = {{"input", lkt_golden_get(test->golden, "%s/input", test->name)},
                         {"targets", lkt_golden_get(test->golden, "%s/target", test->name)}};
    for (int round = 0; round < 2; round++) {
        lk_optimizer *optimizer = lk_sgd(.lr = 0.05, .momentum = 0.9);
        lk_step *step = lk_step(.model = probe, .function = parity_function, .context = &context,
                                .optimizer = optimizer, .engine = engine);
        lkt_not_null(step);
        if (round == 0) check_value_and_gradients(test, probe, step, fields);
        if (round == 1) check_training(test, step, fields);
        lk_step_free(step);
        lk_optimizer_free(optimizer);
    }
    compare_section(test, probe, "final", false, TOLERANCE);
    compare_names(test, probe, "final");
    lk_criterion_free(criterion);
    lk_module_free(probe);
    lk_engine_close(engine);
}

#endif
