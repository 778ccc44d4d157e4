/* Small steps on a GPU are one kernel: they give the bits of the recorded graph, and find what is wrong with
 * a batch as that does. Skips loudly where there is no GPU. */
#include "lktest.h"

#include "device/open_plugin.h"
#include "step/step.h"

#include <lockstep/lockstep.h>

enum { STEPS = 5, MOST_PARAMS = 1 << 16, CLASSES = 10 };

/* What of a batch is rows of a dataset that are gathered on the GPU. */
typedef enum source { FED, BYTES, BYTES_AND_CLASSES, FLOATS_AND_CLASSES } source;

typedef struct example {
    const char *name;
    lk_module *(*model)(void);
    lk_criterion *(*criterion)(void);
    lk_optimizer *(*optimizer)(void);
    int batch, features;
    source from;
} example;

static lk_module *linear(void)
{
    return lk_sequential(lk_linear(784, CLASSES));
}

static lk_module *mlp(void)
{
    return lk_sequential(lk_linear(96, 72), lk_relu(), lk_linear(72, CLASSES));
}

static lk_module *wide(void)
{
    return lk_sequential(lk_linear(300, 120), lk_relu(), lk_linear(120, CLASSES));
}

static lk_module *odd(void)
{
    return lk_sequential(lk_linear(33, 21), lk_relu(), lk_linear(21, 67), lk_relu(),
                         lk_linear(67, CLASSES, .no_bias = true));
}

static lk_criterion *plain(void)
{
    return lk_cross_entropy_loss();
}

static lk_criterion *smoothed(void)
{
    return lk_cross_entropy_loss(.label_smoothing = 0.1, .ignore_index = 3);
}

static lk_optimizer *adam(void)
{
    return lk_adam(.lr = 0.02);
}
static lk_optimizer *adamw(void)
{
    return lk_adamw(.lr = 0.01, .weight_decay = 0.1);
}
static lk_optimizer *sgd(void)
{
    return lk_sgd(.lr = 0.05);
}
static lk_optimizer *amsgrad(void)
{
    return lk_adamw(.lr = 0.01, .amsgrad = true, .weight_decay = 0.1);
}
static lk_optimizer *momentum(void)
{
    return lk_sgd(.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01);
}
static lk_optimizer *rmsprop(void)
{
    return lk_rmsprop(.lr = 0.001, .centered = true, .momentum = 0.5);
}
static lk_optimizer *adagrad(void)
{
    return lk_adagrad(.lr = 0.02, .lr_decay = 0.01);
}

static const example examples[] = {
    {"linear", linear, plain, adam, 32, 784, BYTES},
    {"linear, fed", linear, smoothed, adam, 7, 784, FED},
    {"mlp", mlp, plain, momentum, 96, 96, BYTES},
    {"mlp, many samples", mlp, plain, adagrad, 150, 96, FED},
    {"odd", odd, smoothed, amsgrad, 17, 33, BYTES},
    {"wide", wide, plain, adam, 40, 300, BYTES},
    {"wide, one sample", wide, smoothed, momentum, 1, 300, FED},
    {"odd, one sample", odd, plain, rmsprop, 1, 33, FED},
    /* Usual ones, which have kernels of their own. */
    {"linear, bytes", linear, plain, adam, 32, 784, BYTES_AND_CLASSES},
    {"mlp, bytes", mlp, plain, momentum, 128, 96, BYTES_AND_CLASSES},
    {"wide, bytes", wide, plain, sgd, 40, 300, BYTES_AND_CLASSES},
    {"odd, bytes", odd, plain, adamw, 17, 33, BYTES_AND_CLASSES},
    {"linear, floats", linear, plain, adam, 32, 784, FLOATS_AND_CLASSES},
    {"mlp, floats", mlp, plain, sgd, 128, 96, FLOATS_AND_CLASSES},
    {"wide, floats", wide, plain, momentum, 40, 300, FLOATS_AND_CLASSES},
    {"odd, floats", odd, plain, adamw, 17, 33, FLOATS_AND_CLASSES},
    {"odd, floats, unusual", odd, smoothed, adamw, 17, 33, FLOATS_AND_CLASSES},
    {"linear, floats, many samples", linear, plain, adam, 200, 784, FLOATS_AND_CLASSES},
    {"wide, floats, many samples", wide, plain, adam, 200, 300, FLOATS_AND_CLASSES},
};

/* A batch, and the dataset that it may be rows of. */
typedef struct data {
    lk_tensor *x, *y;
    unsigned char *bytes, *byte_classes;
    float *floats;
    int64_t *indices, *classes;
    lk_rows rows, class_rows;
} data;

static lk_rows rows_of(const void *stored, lk_dtype dtype, int length, int width)
{
    return (lk_rows){
        .data = stored, .stored = dtype, .length = length, .width = width, .divisor = 1, .std = 1};
}

/* A dataset twice as long as a batch, stored as the example wants it. */
static void make_rows(const example *e, data *d)
{
    int length = 2 * e->batch;
    bool floats = e->from == FLOATS_AND_CLASSES;
    d->rows = rows_of(floats ? (void *)d->floats : d->bytes, floats ? LK_F32 : LK_U8, length, e->features);
    d->class_rows =
        rows_of(floats ? (void *)d->classes : d->byte_classes, floats ? LK_I64 : LK_U8, length, 1);
    if (floats) return;
    d->rows.divisor = 255;
    d->rows.mean = 0.25F;
    d->rows.std = 0.5F;
}

static void make_data(const example *e, data *d)
{
    int length = 2 * e->batch;
    lk_manual_seed(11);
    d->x = lk_rand(LK_SHAPE(e->batch, e->features));
    d->y = lk_tensor_create(LK_I64, LK_SHAPE(e->batch));
    d->bytes = malloc((size_t)(length * e->features));
    d->floats = malloc(sizeof *d->floats * (size_t)(length * e->features));
    d->indices = malloc(sizeof *d->indices * (size_t)e->batch);
    d->classes = malloc(sizeof *d->classes * (size_t)length);
    d->byte_classes = malloc((size_t)length);
    assert_true(d->x && d->y && d->bytes && d->floats && d->indices && d->classes && d->byte_classes);
    for (int i = 0; i < length * e->features; i++) {
        d->bytes[i] = (unsigned char)(i * 37 % 251);
        d->floats[i] = (float)(i * 53 % 257) / 128 - 1;
    }
    for (int i = 0; i < length; i++) {
        d->classes[i] = i * 3 % CLASSES;
        d->byte_classes[i] = (unsigned char)(i * 9 % CLASSES);
    }
    for (int i = 0; i < e->batch; i++) {
        ((int64_t *)d->y->data)[i] = i * 7 % CLASSES;
        d->indices[i] = (i * 5 + 1) % length;
    }
    make_rows(e, d);
}

static void free_data(data *d)
{
    lk_tensor_free(d->x);
    lk_tensor_free(d->y);
    free(d->bytes);
    free(d->byte_classes);
    free(d->floats);
    free(d->indices);
    free(d->classes);
}

static const lk_engine_ops *real_ops; /* of an engine some of whose ops are the test's */

/* A step on an engine of its own; `way` is LOCKSTEP_ONE_KERNEL's. */
typedef struct trained {
    lk_engine *engine;
    lk_step *step;
    lk_optimizer *optimizer;
} trained;

static trained make_step(const example *e, const char *way)
{
    trained t;
    setenv("LOCKSTEP_ONE_KERNEL", way, 1);
    t.engine = lk_engine_open("cuda", NULL);
    unsetenv("LOCKSTEP_ONE_KERNEL");
    if (!t.engine) fail_msg("%s", lk_error());
    lk_manual_seed(3);
    t.optimizer = e->optimizer();
    t.step = lk_step(.model = e->model(), .criterion = e->criterion(), .optimizer = t.optimizer,
                     .engine = t.engine, .owned = true);
    if (!t.step) fail_msg("%s", lk_error());
    return t;
}

static void free_step(trained *t)
{
    lk_step_free(t->step);
    lk_engine_close(t->engine);
}

static lk_status train(const example *e, const trained *t, data *d)
{
    lk_input batch[] = {{"features", d->x}, {"targets", d->y}};
    if (e->from != FED) lkt_ok(lk_step_take_rows(t->step, "features", &d->rows, d->indices));
    if (e->from > BYTES) lkt_ok(lk_step_take_rows(t->step, "targets", &d->class_rows, d->indices));
    return lk_step_train(t->step, batch, 2);
}

/* Losses of all steps, then the parameters, the gradients and an evaluation's outputs. */
typedef struct result {
    double losses[STEPS + 1];
    float params[MOST_PARAMS], grads[MOST_PARAMS], logits[MOST_PARAMS];
} result;

static void keep(float *to, const void *from, int64_t count)
{
    assert_non_null(from);
    assert_true(count <= MOST_PARAMS);
    memcpy(to, from, sizeof *to * (size_t)count);
}

static void run(const example *e, const char *way, result *r)
{
    data d;
    int64_t count;
    make_data(e, &d);
    trained t = make_step(e, way);
    memset(r, 0, sizeof *r);
    for (int i = 0; i < STEPS; i++) {
        if (i == 3) lk_optimizer_set_lr(t.optimizer, 0, 0.003);
        lkt_ok(train(e, &t, &d));
        r->losses[i] = lk_step_loss(t.step);
    }
    const void *params = lk_step_flat_params(t.step, &count);
    keep(r->params, params, count);
    const void *grads = lk_step_flat_grads(t.step, &count);
    keep(r->grads, grads, count);
    lk_input batch[] = {{"features", d.x}, {"targets", d.y}};
    for (int i = 0; i < 3; i++) { /* the second asks for its outputs, the third fetches them by itself */
        lkt_ok(lk_step_evaluate(t.step, batch, 2));
        const lk_tensor *logits = lk_step_output(t.step, "logits");
        assert_non_null(logits);
        keep(r->logits, logits->data, lk_tensor_count(logits));
    }
    r->losses[STEPS] = lk_step_loss(t.step);
    free_step(&t);
    free_data(&d);
}

static bool has_gpu(void)
{
    char why[256];
    bool found = lki_cuda_device_count(why) > 0;
    if (!found) print_message("SKIPPED: %s\n", why);
    return found;
}

static void bits_are_those_of_the_graph(void **state)
{
    (void)state;
    static result graph, kernel;
    if (!has_gpu()) skip();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        print_message("%s\n", examples[i].name);
        run(&examples[i], "0", &graph);
        run(&examples[i], "1", &kernel);
        for (int k = 0; k <= STEPS; k++) assert_true(graph.losses[k] == kernel.losses[k]);
        assert_memory_equal(graph.params, kernel.params, sizeof graph.params);
        assert_memory_equal(graph.grads, kernel.grads, sizeof graph.grads);
        assert_memory_equal(graph.logits, kernel.logits, sizeof graph.logits);
    }
}

/* A label that is none, or a number that is not finite, in the third batch: the sentence says so, and nothing
 * was updated. */
static void bad_batches_change_nothing(void **state)
{
    (void)state;
    static float before[MOST_PARAMS];
    const example *e = &examples[1];
    int64_t count;
    if (!has_gpu()) skip();
    for (int bad = 0; bad < 2; bad++) {
        data d;
        make_data(e, &d);
        trained t = make_step(e, "1");
        for (int i = 0; i < 3; i++) lkt_ok(train(e, &t, &d));
        const void *params = lk_step_flat_params(t.step, &count);
        keep(before, params, count);
        if (bad == 0) ((int64_t *)d.y->data)[4] = CLASSES;
        if (bad == 1) ((float *)d.x->data)[100] = NAN;
        assert_int_equal(train(e, &t, &d), bad == 0 ? LK_ERR_RANGE : LK_ERR_NAN);
        lkt_contains(lk_error(), bad == 0 ? "10 at position 4 is outside of 0..9" : "not finite");
        assert_memory_equal(lk_step_flat_params(t.step, &count), before, sizeof *before * (size_t)count);
        ((int64_t *)d.y->data)[4] = 1;
        ((float *)d.x->data)[100] = 0.5F;
        lkt_ok(train(e, &t, &d)); /* and it goes on */
        assert_memory_not_equal(lk_step_flat_params(t.step, &count), before, sizeof *before * (size_t)count);
        free_step(&t);
        free_data(&d);
    }
}

static void *refuse_datasets(lk_engine *engine, size_t nbytes, const char *what)
{
    return strcmp(what, "the dataset") == 0 ? NULL : real_ops->alloc(engine, nbytes, what);
}

/* Batches of other rows each, launched one ahead as runs do it, with the dataset on the GPU or not. */
static void run_ahead(const example *e, const char *way, bool resident, double losses[STEPS])
{
    data d;
    make_data(e, &d);
    trained t = make_step(e, way);
    real_ops = t.engine->ops;
    lk_engine_ops ops = *real_ops;
    ops.alloc = refuse_datasets;
    if (!resident) t.engine->ops = &ops;
    lkt_ok(train(e, &t, &d));
    lk_input batch[] = {{"targets", d.y}, {"features", d.x}};
    for (int i = 0; i < STEPS; i++) {
        bool lost = false;
        for (int k = 0; k < e->batch; k++) d.indices[k] = (k * 3 + i * 7) % (2 * e->batch);
        lkt_ok(lk_step_take_rows(t.step, "features", &d.rows, d.indices));
        lkt_ok(lk_step_take_rows(t.step, "targets", &d.class_rows, d.indices));
        if (i == 0)
            lkt_ok(lk_step_train(t.step, batch, 2)); /* the first of its order of fields */
        else
            lkt_ok(lki_step_launch(t.step, batch, 2, true));
        if (i > 0) lkt_ok(lki_step_land(t.step, &lost));
        assert_false(lost);
        losses[i] = lk_step_loss(t.step);
    }
    t.engine->ops = real_ops;
    free_step(&t);
    free_data(&d);
}

/* Few bytes that travel with the launch are there when it gathers them. */
static void few_rows_are_fed_ahead(void **state)
{
    (void)state;
    double resident[STEPS], fed[STEPS];
    if (!has_gpu()) skip();
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        const example *e = &examples[i];
        if (e->from != BYTES_AND_CLASSES || e->batch > 40) continue;
        for (int k = 0; k < 2; k++) {
            print_message("%s, %s\n", e->name, k ? "one kernel" : "a graph");
            run_ahead(e, k ? "1" : "0", true, resident);
            run_ahead(e, k ? "1" : "0", false, fed);
            assert_memory_equal(resident, fed, sizeof fed);
        }
    }
}

/* What has no place in the kernel stays a graph. */
static void others_are_graphs(void **state)
{
    (void)state;
    if (!has_gpu()) skip();
    const example *e = &examples[2];
    data d;
    make_data(e, &d);
    setenv("LOCKSTEP_ONE_KERNEL", "1", 1);
    lk_engine *engine = lk_engine_open("cuda", NULL);
    unsetenv("LOCKSTEP_ONE_KERNEL");
    lk_step *step = lk_step(.model = e->model(), .criterion = e->criterion(), .optimizer = e->optimizer(),
                            .engine = engine, .owned = true, .clip_norm = 1);
    assert_non_null(step);
    lk_input batch[] = {{"features", d.x}, {"targets", d.y}};
    lkt_ok(lk_step_train(step, batch, 2)); /* the first runs call by call */
    assert_int_equal(lk_step_train(step, batch, 2), LK_ERR_UNSUPPORTED);
    lkt_contains(lk_error(), "not one kernel");
    lk_step_free(step);
    lk_engine_close(engine);
    free_data(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_the_graph), cmocka_unit_test(bad_batches_change_nothing),
        cmocka_unit_test(few_rows_are_fed_ahead), cmocka_unit_test(others_are_graphs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
