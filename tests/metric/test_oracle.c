/* Every metric against scikit-learn: the golden cases, and fresh ones from a live scikit-learn where it is
 * installed. */
#include "lktest.h"

#include <lockstep/metric.h>

#include <unistd.h>

enum { MAX_METRICS = 5 };

typedef struct test_case {
    char kind[32];
    int64_t samples, classes, batch;
    double zero_division;
    float *scores;
    double *targets;
    int64_t target_count;
    lk_metric *metrics[MAX_METRICS];
    int metric_count, checked;
} test_case;

static void read_case(FILE *file, test_case *c)
{
    char word[32];
    assert_int_equal(
        fscanf(file, "%31s %ld %ld %ld %lf", c->kind, &c->samples, &c->classes, &c->batch, &c->zero_division),
        5);
    c->target_count = strcmp(c->kind, "multiclass") == 0 ? c->samples : c->samples * c->classes;
    c->scores = malloc(sizeof(float) * (size_t)(c->samples * c->classes));
    c->targets = malloc(sizeof(double) * (size_t)c->target_count);
    assert_int_equal(fscanf(file, "%31s", word), 1);
    for (int64_t i = 0; i < c->samples * c->classes; i++)
        assert_int_equal(fscanf(file, "%f", &c->scores[i]), 1);
    assert_int_equal(fscanf(file, "%31s", word), 1);
    for (int64_t i = 0; i < c->target_count; i++) assert_int_equal(fscanf(file, "%lf", &c->targets[i]), 1);
}

static void make_metrics(test_case *c)
{
    lk_metric **m = c->metrics;
    int classes = (int)c->classes;
    double zero_division = c->zero_division;
    if (strcmp(c->kind, "multiclass") == 0) {
        m[c->metric_count++] = lk_accuracy_metric(.num_classes = classes);
        m[c->metric_count++] =
            lk_precision_recall_f1_support_metric(.compute_per_class_metrics = true,
                                                  .zero_division = zero_division, .num_classes = classes);
        m[c->metric_count++] = lk_auc_metric(.compute_per_class_metrics = true);
        m[c->metric_count++] = lk_confusion_matrix_metric(.num_classes = classes);
    } else if (strcmp(c->kind, "multilabel") == 0) {
        m[c->metric_count++] = lk_multilabel_accuracy_metric(.prefix = "");
        m[c->metric_count++] =
            lk_multilabel_precision_recall_f1_support_metric(.compute_per_class_metrics = true,
                                                             .zero_division = zero_division);
        m[c->metric_count++] = lk_auc_metric(.compute_per_class_metrics = true);
        m[c->metric_count++] = lk_iou_metric(.threshold = 0.5);
        m[c->metric_count++] = lk_dice_metric(.threshold = 0.5);
    } else if (strcmp(c->kind, "ranking") == 0) {
        m[c->metric_count++] = lk_hitrate_metric(.topk = {1, 3, 5}, .zero_division = zero_division);
        m[c->metric_count++] = lk_mrr_metric(.topk = {1, 3, 5});
        m[c->metric_count++] = lk_map_metric(.topk = {1, 3, 5}, .num_classes = classes);
        m[c->metric_count++] = lk_ndcg_metric(.topk = {1, 3, 5});
    } else {
        m[c->metric_count++] = lk_r2_metric(.prefix = "");
        m[c->metric_count++] = lk_mse_metric(.prefix = "");
        m[c->metric_count++] = lk_mae_metric(.prefix = "");
    }
    for (int i = 0; i < c->metric_count; i++) lkt_not_null(m[i]);
}

static void feed(test_case *c)
{
    bool multiclass = strcmp(c->kind, "multiclass") == 0;
    for (int64_t begin = 0; begin < c->samples; begin += c->batch) {
        int64_t end = begin + c->batch < c->samples ? begin + c->batch : c->samples, count = end - begin;
        lk_tensor *outputs =
            lk_tensor_borrow(LK_F32, LK_SHAPE(count, c->classes), c->scores + begin * c->classes);
        lk_tensor *targets = multiclass ? lk_tensor_create(LK_I64, LK_SHAPE(count))
                                        : lk_tensor_create(LK_F32, LK_SHAPE(count, c->classes));
        int64_t width = multiclass ? 1 : c->classes;
        for (int64_t i = 0; i < count * width; i++) lk_tensor_set(targets, i, c->targets[begin * width + i]);
        for (int i = 0; i < c->metric_count; i++) lkt_ok(lk_metric_update(c->metrics[i], outputs, targets));
        lk_tensor_free(outputs);
        lk_tensor_free(targets);
    }
}

static double confusion_cell(lk_metric *metric, const char *name)
{
    int64_t row, column;
    assert_int_equal(sscanf(name, "confusion/%ld/%ld", &row, &column), 2);
    lk_tensor *matrix = lk_confusion_matrix(metric);
    double value = lk_tensor_get(matrix, row * matrix->shape.dim[0] + column);
    lk_tensor_free(matrix);
    return value;
}

static void expect(test_case *c, const char *name, double expected)
{
    bool is_count = strncmp(name, "support", 7) == 0 || strncmp(name, "confusion", 9) == 0;
    if (strncmp(name, "confusion", 9) == 0) {
        lkt_close(confusion_cell(c->metrics[3], name), expected, 1e-9);
        c->checked++;
        return;
    }
    for (int i = 0; i < c->metric_count; i++) {
        lk_metric_values values;
        lkt_ok(lk_metric_compute(c->metrics[i], &values));
        for (int v = 0; v < values.count; v++) {
            if (strcmp(values.items[v].name, name) != 0) continue;
            double actual = values.items[v].value;
            double tolerance = is_count ? 1e-9 : 1e-9 * (1 + fabs(expected));
            if (!(isnan(actual) && isnan(expected)) && !(fabs(actual - expected) <= tolerance))
                fail_msg("%s of a %s case: %.12g, expected %.12g", name, c->kind, actual, expected);
            c->checked++;
            return;
        }
    }
    fail_msg("no metric has the name %s", name);
}

static void run_case(FILE *file)
{
    test_case c = {0};
    char word[64], name[64];
    double value;
    read_case(file, &c);
    make_metrics(&c);
    for (int pass = 0; pass < 2; pass++) { /* the second pass shows that a reset forgets everything */
        for (int i = 0; i < c.metric_count; i++) lk_metric_reset(c.metrics[i]);
        feed(&c);
    }
    while (fscanf(file, "%63s", word) == 1 && strcmp(word, "expect") == 0) {
        assert_int_equal(fscanf(file, "%63s %lf", name, &value), 2);
        expect(&c, name, value);
    }
    assert_string_equal(word, "end");
    assert_true(c.checked > 0);
    for (int i = 0; i < c.metric_count; i++) lk_metric_free(c.metrics[i]);
    free(c.scores);
    free(c.targets);
}

static int run_file(FILE *file)
{
    char word[64];
    int count = 0;
    while (fscanf(file, "%63s", word) == 1) {
        assert_string_equal(word, "case");
        run_case(file);
        count++;
    }
    return count;
}

static void golden_cases(void **state)
{
    (void)state;
    FILE *file = fopen(LK_SOURCE_DIR "/tests/golden/metric/cases.txt", "r");
    assert_non_null(file);
    assert_int_equal(run_file(file), 15);
    fclose(file);
}

static void live_cases(void **state)
{
    (void)state;
    if (system("/usr/bin/python3 -c 'import sklearn, numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no scikit-learn\n");
        skip();
    }
    for (int seed = 1; seed <= 3; seed++) {
        char command[1100];
        snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/metric_cases.py' %d",
                 LK_SOURCE_DIR, seed);
        FILE *pipe = popen(command, "r");
        assert_non_null(pipe);
        assert_int_equal(run_file(pipe), 15);
        assert_int_equal(pclose(pipe), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_cases),
        cmocka_unit_test(live_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
