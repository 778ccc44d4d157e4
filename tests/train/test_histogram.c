/* The callback Histogram, and model.json: what a logger of the program's own is given. */
#include "case.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

typedef struct given {
    int weights, gradients, models;
    int64_t count, last_epoch;
    double sum, total; /* of the last histogram of the weights, and of its buckets */
    double expected;   /* sum */
    char *model;
} given;

static lk_status log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                             lk_metric_values values)
{
    (void)context, (void)scope, (void)step, (void)values;
    return LK_OK;
}

static lk_status log_histogram(void *context, const lk_log_step *step, const char *tag, const lk_histogram *h)
{
    given *g = context;
    assert_string_equal(step->loader_key, "train");
    assert_true(h->limits[h->bucket_count - 1] == h->max && h->min <= h->max);
    g->last_epoch = step->epoch_step;
    if (!strncmp(tag, "gradients/", 10)) g->gradients++;
    if (strncmp(tag, "weights/", 8) != 0) return LK_OK;
    g->weights++;
    if (strcmp(tag, "weights/0.weight") != 0) return LK_OK;
    g->count = h->count;
    g->sum = h->sum;
    g->total = 0;
    for (int i = 0; i < h->bucket_count; i++) g->total += h->counts[i];
    return LK_OK;
}

static lk_status log_model(void *context, const char *json)
{
    given *g = context;
    g->models++;
    free(g->model);
    g->model = strdup(json);
    return LK_OK;
}

static lk_status keep_context(void *context)
{
    (void)context;
    return LK_OK;
}

/* Also adds up the weights that the run ends with. */
static void train(given *g, const char *logdir, lk_callback *callback, int nproc)
{
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops), .log_metrics = log_metrics,
                                      .close = keep_context, .log_histogram = log_histogram,
                                      .log_model = log_model};
    lk_runner *runner = lk_supervised_runner();
    double values[LKT_FEATURES * LKT_CLASSES];
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(40, 1), .batch_size = 8)},
                                          {"valid", lk_loader(lkt_points(24, 2), .batch_size = 8)}),
                    .callbacks = lk_callbacks(callback),
                    .loggers = lk_loggers(lk_logger_create(&ops, LK_LOG_EPOCH, g)), .num_epochs = 4,
                    .logdir = logdir, .valid_loader = "valid", .nproc = nproc, .device = "cpu"));
    lkt_weights(runner->model, "0.weight", values, LKT_FEATURES * LKT_CLASSES);
    g->expected = 0;
    for (int i = 0; i < LKT_FEATURES * LKT_CLASSES; i++) g->expected += values[i];
    lk_runner_free(runner);
}

static void test_weights(void **state)
{
    (void)state;
    given g = {0};
    train(&g, lkt_scratch_folder("histogram_weights"), lk_histogram_callback(.bins = 7), 0);
    assert_int_equal(g.weights, 4 * 2);
    assert_int_equal(g.gradients, 0);
    assert_int_equal(g.count, LKT_FEATURES * LKT_CLASSES);
    assert_true(g.total == LKT_FEATURES * LKT_CLASSES);
    assert_true(fabs(g.sum - g.expected) < 1e-9);
    free(g.model);
}

static void test_gradients_and_every(void **state)
{
    (void)state;
    for (int nproc = 0; nproc <= 2; nproc += 2) {
        given g = {0};
        train(&g, NULL, lk_histogram_callback(.every = 3, .gradients = true), nproc);
        assert_int_equal(g.weights, 2 * 2); /* epochs 1 and 3 */
        assert_int_equal(g.gradients, 2 * 2);
        assert_int_equal(g.last_epoch, 3);
        free(g.model);
    }
    lkt_fails(lk_histogram_callback(.every = -1) ? LK_OK : LK_ERR_INVALID, LK_ERR_INVALID, "every is -1");
    lkt_fails(lk_histogram_callback(.bins = 5000) ? LK_OK : LK_ERR_INVALID, LK_ERR_INVALID, "from 1 to 1024");
    lkt_fails(lk_histogram_callback(.no_weights = true) ? LK_OK : LK_ERR_INVALID, LK_ERR_INVALID, "neither");
}

static void test_the_model_is_told(void **state)
{
    (void)state;
    given g = {0};
    const char *logdir = lkt_scratch_folder("histogram_model");
    train(&g, logdir, lk_timer_callback(), 0);
    assert_int_equal(g.models, 1);
    char *text = lkt_read(lkt_path(logdir, "model.json"));
    assert_string_equal(text, g.model);
    json_t *document = json_loads(text, 0, NULL), *nodes = json_object_get(document, "nodes");
    const json_t *layer = json_array_get(json_object_get(document, "layers"), 1);
    assert_string_equal(json_string_value(json_object_get(layer, "type")), "Linear");
    assert_int_equal(json_integer_value(json_object_get(layer, "parameters")),
                     LKT_FEATURES * LKT_CLASSES + LKT_CLASSES);
    assert_int_equal(json_array_size(nodes), 2);
    const json_t *linear = json_array_get(nodes, 1);
    assert_string_equal(json_string_value(json_array_get(json_object_get(linear, "inputs"), 0)), "input");
    assert_int_equal(json_integer_value(json_array_get(json_object_get(linear, "shape"), 0)), 8);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(linear, "shape"), 1)), LKT_CLASSES);
    json_decref(document);
    free(text);
    free(g.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_gradients_and_every),
        cmocka_unit_test(test_the_model_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
