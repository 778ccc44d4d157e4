/* A measured step is divided into its halves also where an engine works behind the host: what a half has
 * asked for is counted in that half. */
#include "engines.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "cli/bench/scaling.h"

static void measure(int which, double least_share)
{
    lk_manual_seed(1);
    lk_engine *engine = open_engine(which);
    lk_module *model =
        lk_sequential(lk_linear(96, 96), lk_relu(), lk_linear(96, 96), lk_relu(), lk_linear(96, 10));
    lk_criterion *criterion = lk_cross_entropy_loss();
    lk_optimizer *optimizer = lk_adam(.lr = 0.001);
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lk_tensor *x = lk_randn(LK_SHAPE(64, 96)), *y = lk_tensor_create(LK_I64, LK_SHAPE(64));
    lkt_ok(lk_step_train(step, (lk_input[]){{"features", x}, {"targets", y}}, 2));
    lki_workload w;
    lkt_ok(lki_workload_measure(&w, step, "mlp", 0.2));
    /* Without waiting, the backward half would be the time of asking alone, below a thousandth. */
    if (!(w.backward_s > least_share * w.forward_s))
        fail_msg("forward %g s, backward %g s, update %g s", w.forward_s, w.backward_s, w.update_s);
    assert_true(w.update_s > 0);
    lki_workload_fini(&w);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_step_free(step);
    lk_criterion_free(criterion);
    lk_optimizer_free(optimizer);
    lk_module_free(model);
    lk_engine_close(engine);
}

static void each_half_has_its_own_work(void **state)
{
    (void)state;
    if (gpu_is_asked_for()) {
        measure(GPU, 0.01); /* an emulated one computes forward products far more slowly than a library's */
        return;
    }
    measure(REF, 0.4);
    measure(FAR, 0.4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_half_has_its_own_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
