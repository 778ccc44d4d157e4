#include "case_steps.h"

#include "lktest.h"

#include <lockstep/lockstep.h>

enum { STEPS = 3, CLASSES = 5 };

#define ONE_KERNEL  "steps: one kernel"
#define GRAPH       "steps: a recorded graph"
#define FOLDED_NORM "norms: channels side by side, with a ReLU"
#define FOLDED_CONV "convolutions: four places as one"

typedef struct fast_step {
    const char *name;
    lk_module *(*model)(int size);
    int size; /* what the model makes of it */
    lk_shape features;
    lk_dtype precision;
    const char *enters, *avoids; /* paths; NULL: none */
    const char *channels_last;   /* LOCKSTEP_CHANNELS_LAST; NULL: the engine chooses */
} fast_step;

static lk_module *perceptron(int hidden)
{
    return lk_sequential(lk_linear(33, hidden), lk_relu(), lk_linear(hidden, CLASSES));
}

/* An activation that has no place in one kernel. */
static lk_module *with_tanh(int hidden)
{
    return lk_sequential(lk_linear(33, hidden), lk_tanh(), lk_linear(hidden, CLASSES));
}

static lk_module *deep(int layers)
{
    lk_module *list[32] = {lk_linear(33, 8)};
    int count = 1;
    for (int i = 0; i < layers; i++) {
        list[count++] = lk_relu();
        list[count++] = lk_linear(8, i + 1 < layers ? 8 : CLASSES);
    }
    return lk_sequential_with(list, count);
}

static lk_module *head(int channels)
{
    return lk_sequential(lk_adaptive_avg_pool2d(1), lk_flatten(), lk_linear(channels, CLASSES));
}

static lk_module *norm_and_relu(int channels)
{
    return lk_sequential(lk_conv2d(8, channels, 3, .padding = 1), lk_batch_norm2d(channels), lk_relu(),
                         lk_conv2d(channels, 16, 3), head(16));
}

static lk_module *norm_and_tanh(int channels)
{
    return lk_sequential(lk_conv2d(8, channels, 3, .padding = 1), lk_batch_norm2d(channels), lk_tanh(),
                         lk_conv2d(channels, 16, 3), head(16));
}

/* The addend is the input of the layer, then another norm's result. */
static lk_module *norm_and_sum(int channels)
{
    return lk_sequential(
        lk_conv2d(8, channels, 1),
        lk_residual(lk_conv2d(channels, channels, 3, .padding = 1), lk_batch_norm2d(channels)), lk_relu(),
        lk_conv2d(channels, channels, 1), lk_batch_norm2d(channels),
        lk_residual(lk_conv2d(channels, channels, 1), lk_batch_norm2d(channels)), lk_relu(), head(channels));
}

static lk_module *first_conv(int kernel)
{
    return lk_sequential(lk_conv2d(3, 16, kernel, .stride = 2, .padding = kernel / 2), lk_relu(),
                         lk_conv2d(16, 16, 3, .padding = 1), head(16));
}

static const fast_step steps[] = {
    {"a small step", perceptron, 21, {2, {7, 33}}, LK_F32, ONE_KERNEL, GRAPH, NULL},
    {"a small step of one sample", perceptron, 67, {2, {1, 33}}, LK_F32, ONE_KERNEL, GRAPH, NULL},
    {"a small step, tiles at their edges", perceptron, 64, {2, {32, 33}}, LK_F32, ONE_KERNEL, GRAPH, NULL},
    {"a step with a tanh", with_tanh, 21, {2, {7, 33}}, LK_F32, GRAPH, ONE_KERNEL, NULL},
    {"a small step in bf16", perceptron, 21, {2, {7, 33}}, LK_BF16, GRAPH, ONE_KERNEL, NULL},
    {"two layers more", deep, 2, {2, {7, 33}}, LK_F32, ONE_KERNEL, GRAPH, NULL},
    {"more layers than one kernel takes", deep, 14, {2, {7, 33}}, LK_F32, GRAPH, ONE_KERNEL, NULL},
    {"a norm and a ReLU", norm_and_relu, 16, {4, {3, 8, 9, 7}}, LK_BF16, FOLDED_NORM, ONE_KERNEL, "1"},
    {"a norm of odd channels", norm_and_relu, 13, {4, {3, 8, 9, 7}}, LK_BF16, FOLDED_NORM, NULL, "1"},
    {"norms and sums", norm_and_sum, 16, {4, {3, 8, 5, 7}}, LK_BF16, FOLDED_NORM, ONE_KERNEL, "1"},
    {"norms and sums in f32", norm_and_sum, 16, {4, {3, 8, 5, 7}}, LK_F32, FOLDED_NORM, NULL, "1"},
    {"a norm and a tanh", norm_and_tanh, 16, {4, {3, 8, 9, 7}}, LK_BF16, GRAPH, FOLDED_NORM, "1"},
    {"a norm, row-major", norm_and_relu, 16, {4, {3, 8, 9, 7}}, LK_BF16, GRAPH, FOLDED_NORM, "0"},
    {"a first convolution of 7", first_conv, 7, {4, {2, 3, 17, 19}}, LK_BF16, FOLDED_CONV, ONE_KERNEL, "1"},
    {"a first convolution of 5", first_conv, 5, {4, {2, 3, 17, 19}}, LK_BF16, FOLDED_CONV, ONE_KERNEL, "1"},
    {"a first convolution of 3", first_conv, 3, {4, {2, 3, 17, 19}}, LK_BF16, GRAPH, FOLDED_CONV, "1"},
    {"a first convolution in f32", first_conv, 7, {4, {2, 3, 17, 19}}, LK_F32, GRAPH, FOLDED_CONV, "1"},
    {"a first convolution, row-major", first_conv, 7, {4, {2, 3, 17, 19}}, LK_BF16, GRAPH, FOLDED_CONV, "0"},
};

static const lk_engine_path *find_path(const lk_engine *engine, const char *name)
{
    int count;
    const lk_engine_path *paths = engine->ops->paths(engine, &count);
    for (int i = 0; i < count; i++)
        if (strcmp(paths[i].name, name) == 0) return &paths[i];
    return NULL;
}

static uint64_t entries(const lk_engine *engine, const char *name)
{
    const lk_engine_path *path = find_path(engine, name);
    if (!path) fail_msg("there is no path \"%s\"", name);
    return path ? path->entered : 0;
}

static lk_status train(lk_engine *engine, const fast_step *s, lk_dtype precision, double *losses)
{
    lk_manual_seed(5);
    lk_tensor *x = lk_tensor_create(LK_F32, s->features),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(s->features.dim[0]));
    lk_module *model = s->model(s->size);
    lk_step *step = lk_step(.model = model, .criterion = lk_cross_entropy_loss(),
                            .optimizer = lk_sgd(.lr = 0.05, .momentum = 0.9), .engine = engine,
                            .precision = precision, .owned = true);
    lk_status status = step && x && y ? lk_normal(x, 0, 1, lk_default_generator()) : LK_ERR_NOMEM;
    for (int64_t i = 0; i < s->features.dim[0]; i++) lk_tensor_set(y, i, (double)(i * 3 % CLASSES));
    const lk_input fields[] = {{"features", x}, {"targets", y}};
    for (int i = 0; i < STEPS && status == LK_OK; i++) {
        status = lk_step_train(step, fields, 2);
        losses[i] = status == LK_OK ? lk_step_loss(step) : NAN;
    }
    lk_step_free(step);
    lk_tensor_free(x);
    lk_tensor_free(y);
    return status;
}

static int run_step(lk_engine *engine, lk_engine *oracle, const fast_step *s, const char *where)
{
    double losses[STEPS], expected[STEPS], tolerance = s->precision == LK_F32 ? 1e-5 : 3e-2;
    uint64_t entered = s->enters ? entries(engine, s->enters) : 0,
             avoided = s->avoids ? entries(engine, s->avoids) : 0;
    lkt_ok(train(oracle, s, LK_F32, expected));
    if (s->channels_last) setenv("LOCKSTEP_CHANNELS_LAST", s->channels_last, 1);
    lk_status status = train(engine, s, s->precision, losses);
    unsetenv("LOCKSTEP_CHANNELS_LAST");
    if (status) {
        print_error("%s: %s: %s\n", where, s->name, lk_error());
        return 1;
    }
    if (s->enters && entries(engine, s->enters) == entered) {
        print_error("%s: %s has not entered the path \"%s\"\n", where, s->name, s->enters);
        return 1;
    }
    if (s->avoids && entries(engine, s->avoids) != avoided) {
        print_error("%s: %s has entered the path \"%s\"\n", where, s->name, s->avoids);
        return 1;
    }
    for (int i = 0; i < STEPS; i++) {
        if (fabs(losses[i] - expected[i]) <= tolerance * fmax(1, fabs(expected[i]))) continue;
        print_error("%s: %s: loss %d is %.9g, expected %.9g\n", where, s->name, i, losses[i], expected[i]);
        return 1;
    }
    return 0;
}

int lkt_run_fast_steps(lk_engine *engine, const char *where)
{
    int failures = 0;
    if (!find_path(engine, GRAPH)) return 0; /* an engine that takes calls one by one */
    lk_engine *oracle = lk_engine_open("ref", NULL);
    lkt_not_null(oracle);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        failures += run_step(engine, oracle, &steps[i], where);
    lk_engine_close(oracle);
    return failures;
}
