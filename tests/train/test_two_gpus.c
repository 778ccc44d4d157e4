/* Engines of several GPUs in one thread, and one that another thread uses than the one that opened it: each
 * works on its own GPU. Skips loudly where there are not two GPUs. */
#include "lktest.h"

#include "device/open_plugin.h"

#include <lockstep/lockstep.h>

#include <pthread.h>

enum { BATCH = 8, WIDTH = 12, CLASSES = 5, STEPS = 4 };

static bool has_two_gpus(void)
{
    char why[256] = "there is one GPU";
    bool found = lki_cuda_device_count(why) > 1;
    if (!found) print_message("SKIPPED: %s\n", why);
    return found;
}

static size_t free_nbytes(int device)
{
    lki_cuda_device gpu;
    lkt_ok(lki_cuda_plugin_get()->describe(device, &gpu));
    return gpu.free_nbytes;
}

/* A step of its own on each GPU, from the same start. */
typedef struct trained {
    lk_engine *engine;
    lk_step *step;
    lk_tensor *x, *y;
    lk_input batch[2];
    double losses[STEPS];
} trained;

static void open_on(trained *t, const char *name)
{
    t->engine = lk_engine_open(name, NULL);
    lkt_not_null(t->engine);
    lk_manual_seed(5);
    t->step = lk_step(.model = lk_sequential(lk_linear(WIDTH, WIDTH), lk_relu(), lk_linear(WIDTH, CLASSES)),
                      .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),
                      .engine = t->engine, .clip_norm = 1, .owned = true);
    lkt_not_null(t->step);
    t->x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, WIDTH));
    t->y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    for (int i = 0; i < BATCH * WIDTH; i++) lk_tensor_set(t->x, i, 0.03 * i - 1);
    for (int i = 0; i < BATCH; i++) lk_tensor_set(t->y, i, i % CLASSES);
    t->batch[0] = (lk_input){"features", t->x};
    t->batch[1] = (lk_input){"targets", t->y};
}

static void close_all(trained *t)
{
    lk_step_free(t->step);
    lk_engine_close(t->engine);
    lk_tensor_free(t->x);
    lk_tensor_free(t->y);
}

/* Whichever GPU the thread had to do with last. */
static void memory_lies_where_it_belongs(void **state)
{
    (void)state;
    if (!has_two_gpus()) skip();
    enum { NBYTES = 1 << 22 };
    lk_engine *first = lk_engine_open("cuda:0", NULL);
    lkt_not_null(first);
    lk_engine *second = lk_engine_open("cuda:1", NULL);
    lkt_not_null(second);
    size_t before[] = {free_nbytes(0), free_nbytes(1)};
    void *data = first->ops->alloc(first, NBYTES, "a tensor");
    lkt_not_null(data);
    assert_true(before[0] - free_nbytes(0) >= NBYTES);
    assert_true(before[1] == free_nbytes(1));
    first->ops->release(first, data);
    lk_engine_close(first);
    lk_engine_close(second);
}

static void two_engines_take_turns(void **state)
{
    (void)state;
    if (!has_two_gpus()) skip();
    trained t[2];
    open_on(&t[0], "cuda:0");
    open_on(&t[1], "cuda:1");
    for (int i = 0; i < STEPS; i++)
        for (int k = 0; k < 2; k++) {
            lkt_ok(lk_step_train(t[k].step, t[k].batch, 2));
            t[k].losses[i] = lk_step_loss(t[k].step);
        }
    for (int k = 0; k < 2; k++) {
        assert_true(t[k].losses[STEPS - 1] < t[k].losses[0]);
        close_all(&t[k]);
    }
}

/* The parts of a step, with the other engine's between them. */
static void two_engines_take_turns_within_a_step(void **state)
{
    (void)state;
    if (!has_two_gpus()) skip();
    trained t[2];
    open_on(&t[0], "cuda:0");
    open_on(&t[1], "cuda:1");
    for (int i = 0; i < STEPS; i++) {
        for (int k = 0; k < 2; k++) lkt_ok(lk_step_begin(t[k].step, t[k].batch, 2, true));
        for (int k = 0; k < 2; k++) lkt_ok(lk_step_forward(t[k].step));
        for (int k = 0; k < 2; k++) lkt_ok(lk_step_criterion(t[k].step));
        for (int k = 0; k < 2; k++) lkt_ok(lk_step_backward(t[k].step));
        for (int k = 0; k < 2; k++) lkt_ok(lk_step_update(t[k].step));
        for (int k = 0; k < 2; k++) t[k].losses[i] = lk_step_loss(t[k].step);
    }
    for (int k = 0; k < 2; k++) {
        assert_true(t[k].losses[STEPS - 1] < t[k].losses[0]);
        close_all(&t[k]);
    }
}

static void *train_elsewhere(void *data)
{
    trained *t = data;
    for (int i = 0; i < STEPS; i++) {
        if (lk_step_train(t->step, t->batch, 2)) {
            print_error("%s\n", lk_error());
            return data;
        }
        t->losses[i] = lk_step_loss(t->step);
    }
    return NULL;
}

static void another_thread_than_the_one_that_opened(void **state)
{
    (void)state;
    if (!has_two_gpus()) skip();
    trained t;
    pthread_t thread;
    void *failed;
    open_on(&t, "cuda:1");
    assert_int_equal(pthread_create(&thread, NULL, train_elsewhere, &t), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    assert_null(failed);
    assert_true(t.losses[STEPS - 1] < t.losses[0]);
    close_all(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory_lies_where_it_belongs),
                                       cmocka_unit_test(two_engines_take_turns),
                                       cmocka_unit_test(two_engines_take_turns_within_a_step),
                                       cmocka_unit_test(another_thread_than_the_one_that_opened)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
