/* Whoever holds a parameter sees its current value, wherever the engine keeps it: every program here runs on
 * an engine with memory of its own and on the host, and must see the same numbers at the same moments. */
#include "case.h"
#include "far_engine.h"

#include "run/run.h"

#include <string.h>

enum { BATCHES = 5, MOMENTS = 64 };

typedef struct seen {
    lk_param *held;  /* asked for before the run, and held on to */
    lk_param *asked; /* asked for anew each time */
    double held_sums[MOMENTS], asked_sums[MOMENTS], grad_sums[MOMENTS];
    int count;
} seen;

static double sum_squares(const lk_tensor *tensor)
{
    double sum = 0;
    for (int64_t i = 0; tensor && i < lk_tensor_count(tensor); i++)
        sum += lk_tensor_get(tensor, i) * lk_tensor_get(tensor, i);
    return sum;
}

static void look_at(seen *s, const lk_module *model)
{
    assert_true(s->count < MOMENTS);
    s->held_sums[s->count] = sum_squares(s->held->value);
    s->grad_sums[s->count] = sum_squares(s->held->grad);
    s->asked = lk_module_param(model, "0.weight");
    s->asked_sums[s->count++] = sum_squares(s->asked->value);
}

static lk_status look(lk_callback *callback, lk_runner *runner)
{
    look_at(callback->context, runner->model);
    return LK_OK;
}

static lk_status look_late(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    (void)runner;
    return LK_OK;
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    look_at(runner->context, runner->model);
    return lk_runner_supervised_batch(runner, batch);
}

static lk_runner *runner_on(bool far, const lk_runner_ops *ops, void *user)
{
    lk_runner *runner = ops ? lk_custom_runner(ops, user) : lk_supervised_runner();
    lkt_not_null(runner);
    runner->run->engine.handle = runner->engine = far ? lkt_far_engine_open() : lk_engine_open("ref", NULL);
    lkt_not_null(runner->engine);
    strcpy(runner->run->engine.device, "auto");
    return runner;
}

static lk_loader_list loaders(lk_loader *loader)
{
    static lk_named_loader items[1];
    items[0] = (lk_named_loader){"train", loader};
    return (lk_loader_list){items, 1};
}

/* A run in which a callback looks at every moment that it can, or a handle_batch does. */
static void train_and_look(bool far, bool own_batches, seen *s)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = handle_batch};
    static const lk_callback_ops every = {
        LK_SIZE(lk_callback_ops), .name = "Look",       .on_batch_start = look, .on_backward = look,
        .on_step = look,          .on_batch_end = look, .on_loader_end = look,  .on_epoch_end = look};
    static const lk_callback_ops late = {LK_SIZE(lk_callback_ops), .name = "Late", .on_batch_end = look_late};
    lk_runner *runner = runner_on(far, own_batches ? &ops : NULL, s);
    lk_module *model = lkt_linear_model();
    s->held = lk_module_param(model, "0.weight");
    lkt_not_null(s->held);
    lk_callback *callback = lk_callback_create(own_batches ? &late : &every, s, LK_ORDER_EXTERNAL);
    lkt_not_null(callback);
    lkt_ok(lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.5, .momentum = 0.9),
                    .loaders = loaders(lk_loader(lkt_points(BATCHES * 8, 3), .batch_size = 8)),
                    .callbacks = lk_callbacks(callback), .num_epochs = 1));
    look_at(s, model);
    lk_runner_free(runner);
}

static void same_views(const seen *host, const seen *far)
{
    assert_int_equal(host->count, far->count);
    for (int i = 0; i < host->count; i++) {
        assert_true(host->held_sums[i] == far->held_sums[i]);
        assert_true(host->asked_sums[i] == far->asked_sums[i]);
        assert_true(host->grad_sums[i] == far->grad_sums[i]);
        assert_true(far->held_sums[i] == far->asked_sums[i]);
    }
    assert_true(far->held_sums[0] != far->held_sums[far->count - 1]);
}

static void callbacks_see_current_weights(void **state)
{
    (void)state;
    seen host = {0}, far = {0};
    train_and_look(false, false, &host);
    train_and_look(true, false, &far);
    same_views(&host, &far);
}

static void a_handle_batch_sees_current_weights(void **state)
{
    (void)state;
    seen host = {0}, far = {0};
    train_and_look(false, true, &host);
    train_and_look(true, true, &far);
    same_views(&host, &far);
}

/* A loop of the program's own; it also writes to a weight in the middle. */
static void train_own_loop(bool far, seen *s)
{
    lk_engine *engine = far ? lkt_far_engine_open() : lk_engine_open("ref", NULL);
    lk_module *model = lkt_linear_model();
    lk_criterion *criterion = lk_mse_loss();
    lk_optimizer *optimizer = lk_adam(.lr = 0.1);
    lk_tensor *x = lk_rand(LK_SHAPE(4, LKT_FEATURES)), *y = lk_rand(LK_SHAPE(4, LKT_CLASSES));
    lk_step *step = lk_step(.model = model, .criterion = criterion, .optimizer = optimizer, .engine = engine);
    lkt_not_null(step);
    lk_input fields[] = {{"features", x}, {"targets", y}};
    s->held = lk_module_param(model, "0.weight");
    for (int i = 0; i < BATCHES; i++) {
        lkt_ok(lk_step_train(step, fields, 2));
        look_at(s, model);
        if (i == 1) lkt_ok(lk_init_constant(s->held, 0.25));
        if (i != 2) continue;
        lk_tensor_set(s->held->value, 0, 3);
        lk_param_changed(s->held);
    }
    lk_module *copy = lk_module_clone(model);
    lkt_not_null(copy);
    assert_true(sum_squares(lk_module_param(copy, "0.weight")->value) == s->held_sums[BATCHES - 1]);
    lk_module_free(copy);
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    lk_optimizer_free(optimizer);
    lk_criterion_free(criterion);
    lk_module_free(model);
    lk_engine_close(engine);
}

static void loops_of_your_own_see_and_set_weights(void **state)
{
    (void)state;
    seen host = {0}, far = {0};
    train_own_loop(false, &host);
    train_own_loop(true, &far);
    same_views(&host, &far);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callbacks_see_current_weights),
        cmocka_unit_test(a_handle_batch_sees_current_weights),
        cmocka_unit_test(loops_of_your_own_see_and_set_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
