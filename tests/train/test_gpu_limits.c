/* What a GPU has only so much of: places for the numbers of updates, for calls that check indices, and
 * memory. Skips loudly where there is no GPU. */
#include "lktest.h"

#include "base/status.h"
#include "device/open_plugin.h"

#include <lockstep/lockstep.h>

enum {
    LAYERS = 40,
    GROUPS = 100,
    SHAPES = 1100,
    BATCH = 8,
    WORDS = 10,
    DIM = 4,
    MOST_PIECES = 4096,
    HALF_MIB = 1 << 19
};

static bool has_gpu(void)
{
    char why[256];
    bool found = lki_cuda_device_count(why) > 0;
    if (!found) print_message("SKIPPED: %s\n", why);
    return found;
}

static lk_engine *open_gpu(void)
{
    lk_engine *engine = lk_engine_open("cuda", NULL);
    lkt_not_null(engine);
    return engine;
}

static void fill(lk_tensor *tensor, double first, double step)
{
    for (int64_t i = 0; i < lk_tensor_count(tensor); i++) lk_tensor_set(tensor, i, first + step * (double)i);
}

/* Trains twice on rows of `width` numbers; the losses. */
static void train_twice(lk_step *step, int width, double losses[2])
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, width)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    fill(x, -1, 0.05);
    lk_input batch[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < 2; i++) {
        lkt_ok(lk_step_train(step, batch, 2));
        losses[i] = lk_step_loss(step);
    }
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* ---- Updates ---- */

static lk_step *deep_lamb(lk_engine *engine)
{
    lk_manual_seed(3);
    lk_module *model = lk_linear(DIM, DIM);
    for (int i = 1; i < LAYERS; i++) model = lk_sequential(model, lk_linear(DIM, DIM));
    return lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_lamb(.lr = 0.1),
                   .engine = engine, .owned = true);
}

static lk_step *many_groups(lk_engine *engine)
{
    lk_param_group groups[GROUPS];
    lk_module *model = NULL;
    lk_manual_seed(3);
    for (int i = 0; i < GROUPS; i++) {
        lk_module *layer = lk_linear(DIM, DIM);
        groups[i] = (lk_param_group){.module = layer, .lr = 1e-4 * (i + 1)};
        model = model ? lk_sequential(model, layer) : layer;
    }
    return lk_step(.model = model, .criterion = lk_cross_entropy_loss(), .engine = engine, .owned = true,
                   .optimizer = lk_sgd(.lr = 0.1, .groups = {groups, GROUPS}));
}

static void losses_are_the_cpus(lk_step *(*make)(lk_engine *engine))
{
    double expected[2], losses[2];
    lk_engine *engines[] = {lk_engine_open("cpu", LK_OPTIONS(lk_engine_options, .thread_count = 1)),
                            open_gpu()};
    for (int i = 0; i < 2; i++) {
        lk_step *step = make(engines[i]);
        lkt_not_null(step);
        train_twice(step, DIM, i ? losses : expected);
        lk_step_free(step);
        lk_engine_close(engines[i]);
    }
    for (int i = 0; i < 2; i++) lkt_close(losses[i], expected[i], 1e-5);
}

static void lamb_updates_many_tensors(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    losses_are_the_cpus(deep_lamb);
}

static void there_may_be_many_groups(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    losses_are_the_cpus(many_groups);
}

/* ---- Indices ---- */

static lk_status evaluate(lk_step *step, int64_t samples)
{
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(samples, 2)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(samples));
    lk_input batch[] = {{"features", x}, {"targets", y}};
    lk_status status = lk_step_evaluate(step, batch, 2);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

static void batches_of_many_lengths(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    lk_engine *engine = open_gpu();
    lk_step *step = lk_step(.model = lk_linear(2, 3), .criterion = lk_cross_entropy_loss(), .engine = engine,
                            .owned = true);
    lkt_not_null(step);
    for (int i = 1; i <= SHAPES; i++) lkt_ok(evaluate(step, i));
    lk_step_free(step);
    lk_engine_close(engine);
}

/* Each error names its own element, however many were wrong the time before. */
static void two_wrong_indices_in_a_step(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    lk_engine *engine = open_gpu();
    lk_step *step = lk_step(.model = lk_embedding(WORDS, DIM), .criterion = lk_cross_entropy_loss(),
                            .optimizer = lk_sgd(.lr = 0.1), .engine = engine, .owned = true);
    lk_tensor *words = lk_tensor_create(LK_I64, LK_SHAPE(BATCH)),
              *classes = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    lk_input batch[] = {{"features", words}, {"targets", classes}};
    for (int i = 0; i < 3; i++) {
        lk_tensor_set(words, 1, 11);
        lk_tensor_set(classes, 2, 22);
        assert_int_equal(lk_step_train(step, batch, 2), LK_ERR_RANGE);
        lk_tensor_set(words, 1, 0);
        lkt_fails(lk_step_train(step, batch, 2), LK_ERR_RANGE, "22 at position 2 is outside of 0..3");
        lk_tensor_set(classes, 2, 0);
        lk_tensor_set(classes, 5, 55);
        lkt_fails(lk_step_train(step, batch, 2), LK_ERR_RANGE, "55 at position 5 is outside of 0..3");
        lk_tensor_set(classes, 5, 0);
        lk_tensor_set(words, 6, 66);
        lkt_fails(lk_step_train(step, batch, 2), LK_ERR_RANGE, "66 at position 6 is outside of 0..9");
        lk_tensor_set(words, 6, 0);
        lkt_ok(lk_step_train(step, batch, 2));
    }
    lk_tensor_free(words);
    lk_tensor_free(classes);
    lk_step_free(step);
    lk_engine_close(engine);
}

/* ---- Memory ---- */

static void sentences_say_what_was_asked_for(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    lk_engine *engine = open_gpu();
    assert_null(engine->ops->alloc(engine, (size_t)1 << 40, "a whale"));
    assert_int_equal(lki_last_status(), LK_ERR_NOMEM);
    lkt_contains(lk_error(), "out of memory on GPU 0: 1024.0 GiB for a whale, where");
    lkt_contains(lk_error(), "are free");
    assert_null(engine->ops->alloc_host(engine, (size_t)1 << 46, "an elephant"));
    assert_int_equal(lki_last_status(), LK_ERR_NOMEM);
    lkt_contains(lk_error(), "out of pinned host memory: 65536.0 GiB for an elephant");
    lk_engine_close(engine);
}

/* All of a GPU's memory but `left` bytes, in pieces. Only of an emulated one: others share real ones. */
typedef struct hoard {
    lk_engine *engine;
    void *pieces[MOST_PIECES];
    int count;
} hoard;

static bool is_small_gpu(void)
{
    bool small = getenv("LOCKSTEP_EMULATED_MEMORY") != NULL;
    if (!small) print_message("SKIPPED: the memory of a real GPU is not filled\n");
    return small;
}

static void take_all_but(hoard *h, lk_engine *engine, size_t left)
{
    lki_cuda_device gpu;
    lkt_ok(lki_cuda_plugin_get()->describe(0, &gpu));
    *h = (hoard){.engine = engine};
    for (size_t rest = gpu.free_nbytes - left, nbytes = rest; nbytes && h->count < MOST_PIECES; nbytes /= 2)
        if (nbytes <= rest && (h->pieces[h->count] = engine->ops->alloc(engine, nbytes, "a hoard"))) {
            h->count++;
            rest -= nbytes;
        }
}

static void give_back(hoard *h)
{
    for (int i = 0; i < h->count; i++) h->engine->ops->release(h->engine, h->pieces[i]);
    h->count = 0;
}

static lk_step *perceptron(lk_engine *engine)
{
    return lk_step(.model = lk_linear(DIM, DIM), .criterion = lk_cross_entropy_loss(), .engine = engine,
                   .optimizer = lk_sgd(.lr = 0.1), .owned = true);
}

/* The first step runs call by call; the second is to be recorded, finds no room for it, and runs call by call
 * too. */
static void recording_runs_out(const char *one_kernel, const char *sentence)
{
    hoard h;
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(BATCH, DIM)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(BATCH));
    lk_input batch[] = {{"features", x}, {"targets", y}};
    setenv("LOCKSTEP_ONE_KERNEL", one_kernel, 1);
    lk_engine *engine = open_gpu();
    unsetenv("LOCKSTEP_ONE_KERNEL");
    lk_step *step = perceptron(engine);
    lkt_ok(lk_step_train(step, batch, 2));
    take_all_but(&h, engine, 0);
    lkt_ok(lk_step_train(step, batch, 2));
    lkt_contains(lk_error(), sentence);
    lkt_contains(lk_error(), "of 128.0 MiB are free");
    give_back(&h);
    lkt_ok(lk_step_train(step, batch, 2));
    lk_step_free(step);
    lk_engine_close(engine);
    lk_tensor_free(x);
    lk_tensor_free(y);
}

static void a_recorded_step_without_room(void **state)
{
    (void)state;
    if (!has_gpu() || !is_small_gpu()) skip();
    recording_runs_out("0", "out of memory on GPU 0 for a CUDA graph of the step, where");
    recording_runs_out("1", "for a step as one kernel, where");
}

/* Half a MiB is enough for the step, not for the library that it needs. */
static void library_runs_out(lk_module *model, lk_shape shape, const char *sentence)
{
    hoard h;
    lk_engine *engine = lk_engine_open("cuda", LK_OPTIONS(lk_engine_options, .allow_tf32 = true));
    lk_step *step = lk_step(.model = model, .engine = engine, .owned = true);
    lk_tensor *x = lk_tensor_create(LK_F32, shape);
    lk_input batch[] = {{"features", x}};
    take_all_but(&h, engine, HALF_MIB);
    lkt_fails(lk_step_evaluate(step, batch, 1), LK_ERR_NOMEM, sentence);
    give_back(&h);
    lkt_ok(lk_step_evaluate(step, batch, 1));
    lk_tensor_free(x);
    lk_step_free(step);
    lk_engine_close(engine);
}

static void libraries_without_room(void **state)
{
    (void)state;
    if (!has_gpu() || !is_small_gpu()) skip();
    library_runs_out(lk_linear(176, 176), LK_SHAPE(176, 176), "out of memory on GPU 0 for cuBLAS, where");
    library_runs_out(lk_conv2d(16, 32, 3), LK_SHAPE(1, 16, 14, 14),
                     "out of memory on GPU 0 for cuDNN, where");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lamb_updates_many_tensors),        cmocka_unit_test(there_may_be_many_groups),
        cmocka_unit_test(batches_of_many_lengths),          cmocka_unit_test(two_wrong_indices_in_a_step),
        cmocka_unit_test(sentences_say_what_was_asked_for), cmocka_unit_test(a_recorded_step_without_room),
        cmocka_unit_test(libraries_without_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
