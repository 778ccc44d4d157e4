/* A metric of your own: it says how its state joins, and then has the same bits at any number of ranks. */
#include "lktest.h"

#include <lockstep/lockstep.h>

#include "resume/metric_state.h"

enum { CLASSES = 3, SAMPLES = 103 };

/* The highest and lowest logit, how many samples, a sum of fractions, the mean of the targets, and all
 * targets in one list, from which a median comes. */
typedef struct own {
    double highest, rounded;
    int64_t seen, lowest_target;
    lk_exact_sum fractions;
    lk_metric_array targets;
    int resets, frees;
} own;

static lk_status update(void *context, const lk_tensor *outputs, const lk_tensor *targets)
{
    own *o = context;
    int64_t count = outputs->shape.dim[0];
    o->seen += count;
    for (int64_t i = 0; i < lk_tensor_count(outputs); i++) {
        double value = lk_tensor_get(outputs, i);
        if (value > o->highest) o->highest = value;
        lk_exact_sum_add(&o->fractions, exp(value));
        o->rounded += 1;
    }
    for (int64_t i = 0; targets && i < count; i++) {
        int64_t target = (int64_t)lk_tensor_get(targets, i);
        if (target < o->lowest_target) o->lowest_target = target;
        lk_status status = lk_metric_array_append(&o->targets, &target, 1);
        if (status) return status;
    }
    return LK_OK;
}

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static lk_status compute(void *context, double *values)
{
    own *o = context;
    int64_t count = o->targets.count;
    if (count) qsort(o->targets.data, (size_t)count, sizeof(int64_t), by_value);
    values[0] = o->highest;
    values[1] = (double)o->seen;
    values[2] = (double)o->lowest_target;
    values[3] = lk_exact_sum_value(&o->fractions);
    values[4] = o->rounded;
    values[5] = count ? (double)((int64_t *)o->targets.data)[count / 2] : NAN;
    return LK_OK;
}

static void reset(void *context)
{
    ((own *)context)->resets++;
}

static void set_free(void *context)
{
    ((own *)context)->frees++;
}

static const char *const names[] = {"max_logit", "seen", "lowest", "fractions", "cells", "median", NULL};

static lk_metric *make(own *o)
{
    return lk_custom_metric(.name = "own", .context = o, .value_names = names, .update = update,
                            .compute = compute, .reset = reset, .free = set_free, .prefix = "my_",
                            .parts = {{LK_JOIN_MAX, LK_F64, &o->highest, 1},
                                      {LK_JOIN_SUM, LK_I64, &o->seen, 1},
                                      {LK_JOIN_MIN, LK_I64, &o->lowest_target, 1},
                                      {LK_JOIN_EXACT_SUM, 0, &o->fractions, 1},
                                      {LK_JOIN_SUM, LK_F64, &o->rounded, 1},
                                      {LK_JOIN_CONCAT, LK_I64, &o->targets, 0}});
}

static lk_dataset *numbers(int64_t count)
{
    lk_generator generator;
    lk_generator_seed(&generator, 5);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, CLASSES)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; i < count * CLASSES; i++)
        lk_tensor_set(x, i, (double)lk_randint(64, &generator) / 16);
    for (int64_t i = 0; i < count; i++) lk_tensor_set(y, i, (double)lk_randint(CLASSES, &generator));
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

/* Integer weights: no order of additions rounds the outputs. */
static lk_module *integers(void)
{
    lk_module *model = lk_linear(CLASSES, CLASSES, .no_bias = true);
    for (int64_t i = 0; i < CLASSES * CLASSES; i++)
        lk_tensor_set(lk_module_param(model, "weight")->value, i, (double)(i % 3) - 1);
    return model;
}

static void describe(int ranks, int batch_size, char *text, size_t capacity)
{
    static const char *const keys[] = {"train", "valid"};
    own *o = calloc(1, sizeof *o);
    size_t used = 0;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(
        runner, .model = integers(), .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = LK_ZERO),
        .loaders = lk_loaders({"train", lk_loader(numbers(SAMPLES), .batch_size = batch_size)},
                              {"valid", lk_loader(numbers(SAMPLES - 2), .batch_size = batch_size)}),
        .callbacks = lk_callbacks(lk_metric_callback(make(o), NULL, NULL)), .nproc = ranks, .thread_count = 1,
        .device = "cpu"));
    for (int k = 0; k < 2; k++) {
        const lk_metrics *metrics = lk_runner_loader_metrics(runner, keys[k]);
        for (int i = 0; names[i]; i++) {
            char name[64];
            snprintf(name, sizeof name, "my_%s", names[i]);
            assert_true(lk_metrics_has(metrics, name));
            used += (size_t)snprintf(text + used, capacity - used, "%s %s %a\n", keys[k], name,
                                     lk_metrics_get(metrics, name));
        }
        assert_true(lk_metrics_get(metrics, "my_seen") == (k ? SAMPLES - 2 : SAMPLES));
        assert_true(lk_metrics_get(metrics, "my_cells") == CLASSES * (k ? SAMPLES - 2 : SAMPLES));
    }
    lk_runner_free(runner);
    assert_int_equal(o->frees, 1);
    assert_true(o->resets >= 2);
    free(o);
}

static void it_has_the_same_bits_on_all_ranks(void **state)
{
    (void)state;
    static char alone[4096], several[4096];
    describe(1, 10, alone, sizeof alone);
    for (int ranks = 1; ranks <= 4; ranks++) {
        describe(ranks, 7, several, sizeof several);
        assert_string_equal(several, alone);
    }
}

static void feed(lk_metric *metric, double first)
{
    const float outputs[] = {(float)first, 0.25f, -3, 1, 2, 0.1f};
    const int64_t targets[] = {2, 1};
    lk_tensor *x = lk_tensor_from(LK_F32, LK_SHAPE(2, 3), outputs),
              *y = lk_tensor_from(LK_I64, LK_SHAPE(2), targets);
    lkt_ok(lk_metric_update(metric, x, y));
    lk_tensor_free(x);
    lk_tensor_free(y);
}

/* As a checkpoint inside an epoch does it. */
static void its_state_is_saved(void **state)
{
    (void)state;
    own a = {0}, b = {0};
    lk_metric *saved = make(&a), *loaded = make(&b);
    lk_state_dict *dict = lk_state_dict_create();
    feed(saved, 9);
    feed(loaded, 100); /* is forgotten */
    lkt_ok(lki_metric_save(saved, dict, "m."));
    lkt_ok(lki_metric_restore(loaded, dict, "m."));
    feed(saved, 7);
    feed(loaded, 7);
    for (int i = 0; names[i]; i++) {
        char name[64];
        snprintf(name, sizeof name, "my_%s", names[i]);
        assert_true(lk_metric_get(saved, name) == lk_metric_get(loaded, name));
    }
    assert_true(lk_metric_get(loaded, "my_max_logit") == 9);
    lk_metric_reset(loaded);
    assert_true(lk_metric_get(loaded, "my_max_logit") == -INFINITY);
    assert_true(lk_metric_get(loaded, "my_seen") == 0);
    lk_state_dict_free(dict);
    lk_metric_free(saved);
    lk_metric_free(loaded);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    own o = {0};
    float wrong = 0;
    lk_metric_part part = {LK_JOIN_SUM, LK_I64, &o.seen, 1};
    assert_null(lk_custom_metric(.name = "m", .value_names = names, .compute = compute, .parts = {part}));
    lkt_contains(lk_error(), "m: a metric of your own needs update and compute");
    assert_null(lk_custom_metric(.name = "m", .update = update, .compute = compute, .parts = {part}));
    lkt_contains(lk_error(), "value_names");
    assert_null(lk_custom_metric(.name = "m", .value_names = names, .update = update, .compute = compute,
                                 .context = &o, .free = set_free));
    lkt_contains(lk_error(), "list it");
    assert_int_equal(o.frees, 1);
    assert_null(lk_custom_metric(.name = "m", .value_names = names, .update = update, .compute = compute,
                                 .parts = {{LK_JOIN_SUM, LK_F32, &wrong, 1}}));
    lkt_contains(lk_error(), "part 0: expected i64 or f64, found f32");
    assert_null(lk_custom_metric(.name = "m", .value_names = names, .update = update, .compute = compute,
                                 .parts = {part, {LK_JOIN_MAX, LK_F64, &o.highest, 0}}));
    lkt_contains(lk_error(), "part 1: count");
    lk_metric_array loose = {0};
    lkt_fails(lk_metric_array_append(&loose, &o.seen, 1), LK_ERR_INVALID, "not among the parts");
}

/* A failure of the metric's own ends the run with its name. */
static lk_status fail_update(void *context, const lk_tensor *outputs, const lk_tensor *targets)
{
    (void)context, (void)outputs, (void)targets;
    return LK_ERR_INVALID;
}

static void a_failing_update_is_told(void **state)
{
    (void)state;
    own o = {0};
    lk_metric *metric =
        lk_custom_metric(.name = "stubborn", .value_names = names, .update = fail_update, .compute = compute,
                         .context = &o, .parts = {{LK_JOIN_SUM, LK_I64, &o.seen, 1}});
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(2, 3));
    lkt_fails(lk_metric_update(metric, x, NULL), LK_ERR_INVALID, "stubborn");
    lk_tensor_free(x);
    lk_metric_free(metric);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_has_the_same_bits_on_all_ranks),
        cmocka_unit_test(its_state_is_saved),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(a_failing_update_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
