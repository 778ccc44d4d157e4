/* A step's backend: on the host nothing of a device is there to be called; on an engine with memory of its
 * own parameters live there. */
#include "far_engine.h"
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "step/step.h"

enum { ROWS = 6, INPUTS = 4, CLASSES = 3 };

static lk_step *train_once(lk_engine *engine)
{
    lk_manual_seed(5);
    lk_step *step =
        lk_step(.model = lk_sequential(lk_linear(INPUTS, 8), lk_batch_norm1d(8), lk_linear(8, CLASSES)),
                .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.1), .engine = engine,
                .owned = true);
    lkt_not_null(step);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(ROWS, INPUTS)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(ROWS));
    lk_generator generator;
    lk_generator_seed(&generator, 7);
    lkt_ok(lk_normal(x, 0, 1, &generator));
    for (int64_t i = 0; i < ROWS; i++) ((int64_t *)y->data)[i] = i % CLASSES;
    lk_input fields[] = {{"features", x}, {"targets", y}};
    lkt_ok(lk_step_train(step, fields, 2));
    lk_tensor_free(x);
    lk_tensor_free(y);
    return step;
}

/* Slots for devices are empty: a step on the host cannot get there. */
static void the_host_has_no_device(void **state)
{
    (void)state;
    lk_engine *engine = lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1));
    lkt_not_null(engine);
    lk_step *step = train_once(engine);
    const lki_backend_ops *ops = step->backend->ops;
    assert_ptr_equal(ops, &lki_on_host);
    assert_true(ops->on_host);
    assert_null(step->backend->home);
    assert_true(!ops->add && !ops->address && !ops->pull && !ops->push && !ops->changed);
    assert_true(!ops->place_params && !ops->release_params && !ops->refresh_params && !ops->params_changed);
    assert_true(!ops->may_begin && !ops->settle && !ops->enter && !ops->begin_calls && !ops->read_loss);
    assert_true(!ops->records && !ops->replay && !ops->finish && !ops->forget_programs);
    assert_true(!ops->may_launch && !ops->launch && !ops->land);
    assert_true(!ops->give_way && !ops->forget_rows);
    assert_null(lki_plan_held(step->current->plan));
    for (int i = 0; i < step->params.count; i++) assert_null(step->params.items[i].param->home);
    assert_false(lki_engine_runs_ahead(engine));
    assert_false(lki_engine_keeps_rows(engine));
    int64_t count;
    assert_ptr_equal(lki_backend_address(step->backend, lk_step_flat_params(step, &count)),
                     lk_step_flat_params(step, &count));
    lk_step_free(step);
    lk_engine_close(engine);
}

/* Numbers live there while the step does; afterwards they are on the host again. */
static void numbers_live_on_the_device(void **state)
{
    (void)state;
    lk_engine *engine = lkt_far_engine_open(.eager = true);
    lkt_not_null(engine);
    lk_step *step = train_once(engine);
    assert_ptr_equal(step->backend->ops, &lki_on_device);
    assert_non_null(step->backend->home);
    assert_non_null(lki_plan_held(step->current->plan));
    for (int i = 0; i < step->params.count; i++) {
        const lk_param *param = step->params.items[i].param;
        bool lives_there = lk_dtype_is_float(param->value->dtype); /* counters stay on the host */
        assert_ptr_equal(param->home, lives_there ? step->backend->home : NULL);
    }
    int64_t count;
    void *values = lk_step_flat_params(step, &count);
    assert_ptr_not_equal(lki_backend_address(step->backend, values), values);
    assert_true(lki_engine_runs_ahead(engine));
    step->options.owned = false;
    lk_module *model = step->options.model;
    lk_criterion_free(step->options.criterion);
    lk_optimizer *optimizer = step->options.optimizer;
    lk_step_free(step);
    lk_optimizer_free(optimizer);
    lk_param_list params;
    lkt_ok(lk_module_params(model, &params));
    for (int i = 0; i < params.count; i++) assert_null(params.items[i].param->home);
    lk_param_list_free(&params);
    lk_module_free(model);
    lk_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_host_has_no_device),
        cmocka_unit_test(numbers_live_on_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
