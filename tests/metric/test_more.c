/* The metrics of tests/oracle/metric_more.py against scikit-learn and against their definitions: the golden
 * cases, and fresh ones where scikit-learn is installed. Bad input, too. */
#include "lktest.h"

#include <lockstep/metric.h>

enum { MAX_METRICS = 5 };

typedef struct test_case {
    char kind[32];
    int64_t batch;
    lk_tensor *scores, *targets;
    lk_metric *metrics[MAX_METRICS];
    int metric_count, checked;
} test_case;

static lk_shape read_shape(FILE *file)
{
    lk_shape shape = {0};
    long dim;
    while (fscanf(file, "%ld", &dim) == 1 && dim > 0) shape.dim[shape.rank++] = dim;
    return shape;
}

static void read_numbers(FILE *file, const char *expected, lk_tensor *to)
{
    char word[32];
    double value;
    assert_int_equal(fscanf(file, "%31s", word), 1);
    assert_string_equal(word, expected);
    for (int64_t i = 0; i < lk_tensor_count(to); i++) {
        assert_int_equal(fscanf(file, "%lf", &value), 1);
        lk_tensor_set(to, i, value);
    }
}

static void read_case(FILE *file, test_case *c)
{
    long batch;
    assert_int_equal(fscanf(file, "%31s %ld", c->kind, &batch), 2);
    c->batch = batch;
    lk_shape outputs = read_shape(file), targets = read_shape(file);
    c->scores = lk_tensor_create(LK_F32, outputs);
    c->targets = lk_tensor_create(strcmp(c->kind, "regions") == 0 ? LK_F32 : LK_I64, targets);
    read_numbers(file, "scores", c->scores);
    read_numbers(file, "targets", c->targets);
}

static void make_metrics(test_case *c)
{
    lk_metric **m = c->metrics;
    int n = 0;
    if (strcmp(c->kind, "classes") == 0) {
        m[n++] = lk_average_precision_metric(.compute_per_class_metrics = true);
        m[n++] = lk_cohen_kappa_metric(.prefix = "");
        m[n++] = lk_matthews_metric(.num_classes = (int)c->scores->shape.dim[1]);
        m[n++] = lk_accuracy_metric(.topk = {1, 2}, .compute_per_class_metrics = true);
        m[n++] = lk_calibration_error_metric(.num_bins = 10, .from_logits = true);
        if (c->scores->shape.dim[1] == 2) { /* the best 2 of 2 are always right */
            lk_metric_free(m[3]);
            m[3] = lk_accuracy_metric(.compute_per_class_metrics = true);
        }
    } else if (strcmp(c->kind, "probabilities") == 0) {
        m[n++] = lk_calibration_error_metric(.num_bins = 10);
    } else if (strcmp(c->kind, "tokens") == 0) {
        m[n++] = c->scores->shape.rank == 3 ? lk_perplexity_metric(.ignore_index = 3)
                                            : lk_perplexity_metric(.prefix = "");
    } else if (strcmp(c->kind, "sentences") == 0) {
        m[n++] = lk_bleu_metric(.ignore_index = LK_ZERO);
        m[n++] = lk_bleu_metric(.ignore_index = LK_ZERO, .max_order = 2, .prefix = "two_");
        m[n++] = lk_bleu_metric(.ignore_index = LK_ZERO, .smooth = true, .prefix = "smooth_");
    } else {
        assert_string_equal(c->kind, "regions");
        m[n++] = lk_trevsky_metric(.alpha = 0.3);
    }
    for (int i = 0; i < n; i++) lkt_not_null(m[i]);
    c->metric_count = n;
}

/* Rows of a tensor, as one of its own. */
static lk_tensor *rows(const lk_tensor *from, int64_t begin, int64_t end)
{
    lk_shape shape = from->shape;
    int64_t width = lk_tensor_count(from) / shape.dim[0];
    shape.dim[0] = end - begin;
    lk_tensor *part = lk_tensor_create(from->dtype, shape);
    for (int64_t i = 0; i < (end - begin) * width; i++)
        lk_tensor_set(part, i, lk_tensor_get(from, begin * width + i));
    return part;
}

static void feed(test_case *c)
{
    int64_t samples = c->scores->shape.dim[0];
    for (int64_t begin = 0; begin < samples; begin += c->batch) {
        int64_t end = begin + c->batch < samples ? begin + c->batch : samples;
        lk_tensor *outputs = rows(c->scores, begin, end), *targets = rows(c->targets, begin, end);
        for (int i = 0; i < c->metric_count; i++) lkt_ok(lk_metric_update(c->metrics[i], outputs, targets));
        lk_tensor_free(outputs);
        lk_tensor_free(targets);
    }
}

static double curve_cell(lk_metric *metric, const char *name)
{
    long class, row, column;
    assert_int_equal(sscanf(name, "curve/%ld/%ld/%ld", &class, &row, &column), 3);
    lk_tensor *curve = lk_precision_recall_curve(metric, class);
    lkt_not_null(curve);
    double value = lk_tensor_get(curve, row * 3 + column);
    lk_tensor_free(curve);
    return value;
}

static double value_of(test_case *c, const char *name)
{
    if (strncmp(name, "curve", 5) == 0) return curve_cell(c->metrics[0], name);
    for (int i = 0; i < c->metric_count; i++) {
        lk_metric_values values;
        lkt_ok(lk_metric_compute(c->metrics[i], &values));
        for (int v = 0; v < values.count; v++)
            if (strcmp(values.items[v].name, name) == 0) return values.items[v].value;
    }
    /* Of two classes there is no accuracy02. */
    if (strncmp(name, "accuracy02", 10) != 0) fail_msg("no metric has the name %s", name);
    return INFINITY;
}

static void run_case(FILE *file)
{
    test_case c = {0};
    char word[64], name[64];
    double expected;
    read_case(file, &c);
    make_metrics(&c);
    for (int pass = 0; pass < 2; pass++) { /* the second pass shows that a reset forgets everything */
        for (int i = 0; i < c.metric_count; i++) lk_metric_reset(c.metrics[i]);
        feed(&c);
    }
    while (fscanf(file, "%63s", word) == 1 && strcmp(word, "expect") == 0) {
        assert_int_equal(fscanf(file, "%63s %lf", name, &expected), 2);
        double actual = value_of(&c, name);
        if (isinf(actual)) continue;
        if (!(isnan(actual) && isnan(expected)) && !(fabs(actual - expected) <= 1e-9 * (1 + fabs(expected))))
            fail_msg("%s of a %s case: %.12g, expected %.12g", name, c.kind, actual, expected);
        c.checked++;
    }
    assert_string_equal(word, "end");
    assert_true(c.checked > 0);
    for (int i = 0; i < c.metric_count; i++) lk_metric_free(c.metrics[i]);
    lk_tensor_free(c.scores);
    lk_tensor_free(c.targets);
}

static int run_file(FILE *file)
{
    char word[64];
    int count = 0;
    for (; fscanf(file, "%63s", word) == 1; count++) {
        assert_string_equal(word, "case");
        run_case(file);
    }
    return count;
}

static void golden_cases(void **state)
{
    (void)state;
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/metric/more.txt", "r");
    assert_non_null(file);
    assert_int_equal(run_file(file), 12);
    fclose(file);
}

static void live_cases(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import sklearn, numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no scikit-learn\n");
        skip();
    }
    FILE *pipe = popen("/usr/bin/python3 '" LK_SOURCE_DIR "/tests/oracle/metric_more.py' 1", "r");
    assert_non_null(pipe);
    assert_int_equal(run_file(pipe), 12);
    assert_int_equal(pclose(pipe), 0);
}

static void update_fails(lk_metric *metric, lk_tensor *outputs, lk_tensor *targets, const char *text)
{
    lkt_not_null(metric);
    assert_int_not_equal(lk_metric_update(metric, outputs, targets), LK_OK);
    lkt_contains(lk_error(), text);
    lk_metric_free(metric);
    lk_tensor_free(outputs);
    lk_tensor_free(targets);
}

#define REFUSES(call, text)                                                                                  \
    do {                                                                                                     \
        assert_null(call);                                                                                   \
        lkt_contains(lk_error(), text);                                                                      \
    } while (0)

static void bad_options(void **state)
{
    (void)state;
    REFUSES(lk_trevsky_metric(.alpha = 1), "trevsky: alpha and beta: expected numbers between 0 and 1");
    REFUSES(lk_trevsky_metric(.prefix = ""), "trevsky: alpha");
    REFUSES(lk_iou_metric(.alpha = 0.5), "iou: this metric has no alpha");
    REFUSES(lk_calibration_error_metric(.num_bins = -1), "num_bins: expected 1 to 10000, found -1");
    REFUSES(lk_calibration_error_metric(.threshold = 0.5), "this metric has no threshold");
    REFUSES(lk_bleu_metric(.max_order = 17), "bleu: max_order: expected 1 to 16, found 17");
    REFUSES(lk_bleu_metric(.ignore_index = 0.5), "ignore_index: expected a whole number");
    REFUSES(lk_perplexity_metric(.num_classes = 3), "perplexity: this metric has no num_classes");
    REFUSES(lk_auc_metric(.smooth = true), "auc: this metric has no smooth");
    REFUSES(lk_cohen_kappa_metric(.topk = {1}), "cohen_kappa: this metric has no topk");
    lk_metric *auc = lk_auc_metric(.prefix = ""), *empty = lk_average_precision_metric(.prefix = "");
    REFUSES(lk_precision_recall_curve(auc, 0), "no average precision");
    REFUSES(lk_precision_recall_curve(empty, 0), "no batch yet");
    lk_metric_free(auc);
    lk_metric_free(empty);
}

static void bad_batches(void **state)
{
    (void)state;
    lk_tensor *two = lk_tensor_create(LK_F32, LK_SHAPE(1, 3));
    lk_tensor_set(two, 0, 2);
    update_fails(lk_calibration_error_metric(.prefix = ""), two, lk_tensor_create(LK_I64, LK_SHAPE(1)),
                 "expected probabilities, found 2 in sample 0; for logits there is from_logits");
    lk_tensor *nine = lk_tensor_create(LK_I64, LK_SHAPE(2));
    lk_tensor_set(nine, 1, 9);
    update_fails(lk_perplexity_metric(.prefix = ""), lk_tensor_create(LK_F32, LK_SHAPE(2, 3)), nine,
                 "perplexity: target 9 is none of 3 classes");
    update_fails(lk_perplexity_metric(.prefix = ""), lk_tensor_create(LK_F32, LK_SHAPE(2, 3, 4)),
                 lk_tensor_create(LK_I64, LK_SHAPE(2, 3)), "perplexity: 6 targets for 8 tokens");
    update_fails(lk_bleu_metric(.prefix = ""), lk_tensor_create(LK_I64, LK_SHAPE(2, 3)),
                 lk_tensor_create(LK_I64, LK_SHAPE(3, 3)), "bleu: expected tokens (samples, length)");
    update_fails(lk_bleu_metric(.prefix = ""), lk_tensor_create(LK_I64, LK_SHAPE(2, 3)), NULL,
                 "bleu: there are no targets");
}

/* Nothing seen, or nothing that could disagree. */
static void empty_and_constant(void **state)
{
    (void)state;
    lk_metric *metrics[] = {lk_bleu_metric(.prefix = ""), lk_perplexity_metric(.prefix = ""),
                            lk_cohen_kappa_metric(.num_classes = 2), lk_matthews_metric(.num_classes = 2),
                            lk_calibration_error_metric(.prefix = "")};
    static const char *const names[] = {"bleu", "perplexity", "cohen_kappa", "matthews", "ece"};
    lk_tensor *outputs = lk_tensor_create(LK_F32, LK_SHAPE(3, 2));
    lk_tensor *targets = lk_tensor_create(LK_I64, LK_SHAPE(3));
    for (int i = 0; i < 5; i++) assert_true(isnan(lk_metric_get(metrics[i], names[i])));
    for (int i = 2; i < 4; i++) lkt_ok(lk_metric_update(metrics[i], outputs, targets));
    assert_true(isnan(lk_metric_get(metrics[2], "cohen_kappa")));
    assert_true(lk_metric_get(metrics[3], "matthews") == 0);
    for (int i = 0; i < 5; i++) lk_metric_free(metrics[i]);
    lk_tensor_free(outputs);
    lk_tensor_free(targets);
}

/* Logits (samples, tokens, length) stand for their highest tokens. */
static void bleu_of_logits(void **state)
{
    (void)state;
    lk_metric *metric = lk_bleu_metric(.max_order = 2);
    lk_tensor *logits = lk_tensor_create(LK_F32, LK_SHAPE(1, 3, 4));
    lk_tensor *targets = lk_tensor_create(LK_I64, LK_SHAPE(1, 4));
    for (int i = 0; i < 4; i++) {
        lk_tensor_set(targets, i, i % 3);
        lk_tensor_set(logits, (i % 3) * 4 + i, 5);
    }
    lkt_ok(lk_metric_update(metric, logits, targets));
    assert_true(lk_metric_get(metric, "bleu") == 1);
    lk_metric_free(metric);
    lk_tensor_free(logits);
    lk_tensor_free(targets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases),       cmocka_unit_test(live_cases),
        cmocka_unit_test(bad_options),        cmocka_unit_test(bad_batches),
        cmocka_unit_test(empty_and_constant), cmocka_unit_test(bleu_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
