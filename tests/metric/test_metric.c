/* The cases of Catalyst's own documentation, the names in the logs, and what bad input gives. */
#include "lktest.h"

#include <lockstep/metric.h>

#include "metric/classification.h"
#include "metric/moments.h"

static lk_tensor *indices(int64_t count, const int64_t *values)
{
    return lk_tensor_from(LK_I64, LK_SHAPE(count), values);
}

/* Scores whose argmax is the given class. */
static lk_tensor *one_hot(int64_t count, int64_t classes, const int64_t *values)
{
    lk_tensor *scores = lk_tensor_create(LK_F32, LK_SHAPE(count, classes));
    for (int64_t i = 0; i < count; i++) lk_tensor_set(scores, i * classes + values[i], 1);
    return scores;
}

static void update_and_free(lk_metric *metric, lk_tensor *outputs, lk_tensor *targets)
{
    lkt_ok(lk_metric_update(metric, outputs, targets));
    lk_tensor_free(outputs);
    lk_tensor_free(targets);
}

static void accuracy_of_catalyst(void **state)
{
    (void)state;
    const float logits[] = {.2f, .5f, 0, .3f, .9f, .1f, 0, 0, 0, .1f, .6f, .3f, 0, .8f, .2f, 0};
    lk_metric *metric = lk_accuracy_metric(.num_classes = 4, .topk = {1, 2});
    update_and_free(metric, lk_tensor_from(LK_F32, LK_SHAPE(4, 4), logits),
                    indices(4, (int64_t[]){3, 0, 2, 2}));
    lkt_close(lk_metric_get(metric, "accuracy01"), 0.5, 0);
    lkt_close(lk_metric_get(metric, "accuracy02"), 1.0, 0);
    lkt_close(lk_metric_get(metric, "accuracy01/std"), 0, 0);
    lk_metric_free(metric);
}

static void scores_that_are_nan_are_never_right(void **state)
{
    (void)state;
    lk_metric *metric = lk_accuracy_metric(.num_classes = 3, .topk = {1});
    const float logits[] = {NAN, NAN, NAN, 1, NAN, 0};
    update_and_free(metric, lk_tensor_from(LK_F32, LK_SHAPE(2, 3), logits), indices(2, (int64_t[]){0, 0}));
    lkt_close(lk_metric_get(metric, "accuracy01"), 0, 0);
    lk_metric_free(metric);
}

static void additive_mean_and_std(void **state)
{
    (void)state;
    static const double means[] = {1, 1.666667, 2.333333, 3, 3.666667},
                        stds[] = {0, .472192, .745978, 1.0005, 1.247635};
    lk_metric *metric = lk_mean_metric("loss", .prefix = "p_");
    for (int i = 0; i < 5; i++) {
        lk_metric_values values;
        lkt_ok(lk_metric_update_value(metric, i + 1, 100 * (i + 1)));
        lkt_close(lk_metric_get(metric, "p_loss"), means[i], 5e-7);
        lkt_close(lk_metric_get(metric, "p_loss/mean"), means[i], 5e-7);
        lkt_close(lk_metric_get(metric, "p_loss/std"), stds[i], 5e-7);
        lkt_ok(lk_metric_compute_batch(metric, &values));
        assert_int_equal(values.count, 1);
        lkt_close(values.items[0].value, i + 1, 0);
    }
    lk_metric_free(metric);
}

static void a_small_spread_beside_a_large_mean(void **state)
{
    (void)state;
    lki_moments a = {0}, b = {0}, all = {0};
    for (int i = 0; i < 1000; i++) {
        double value = 1e9 + (i % 2 ? 1e-3 : -1e-3);
        lki_moments_add(i < 300 ? &a : &b, value, 1);
        lki_moments_add(&all, value, 1);
    }
    lki_moments_merge(&a, &b);
    /* The values themselves carry a rounding of 1e-7, hence the tolerance. */
    lkt_close(lki_moments_std(&all) * 1e3, 1.0005, 1e-3);
    lkt_close(lki_moments_std(&a) * 1e3, 1.0005, 1e-3);
}

static void prf(double zero_division, const int64_t *predicted, const int64_t *targets, const double *macro,
                double weighted_precision)
{
    lk_metric *metric =
        lk_precision_recall_f1_support_metric(.num_classes = 5, .zero_division = zero_division);
    update_and_free(metric, one_hot(6, 5, predicted), indices(6, targets));
    lkt_close(lk_metric_get(metric, "precision/_macro"), macro[0], 5e-7);
    lkt_close(lk_metric_get(metric, "recall/_macro"), macro[1], 5e-7);
    lkt_close(lk_metric_get(metric, "f1/_macro"), macro[2], 5e-7);
    if (weighted_precision >= 0)
        lkt_close(lk_metric_get(metric, "precision/_weighted"), weighted_precision, 5e-7);
    lk_metric_free(metric);
}

static void precision_recall_f1_of_catalyst(void **state)
{
    (void)state;
    const int64_t p1[] = {1, 0, 3, 2, 2, 2}, y1[] = {0, 0, 2, 4, 3, 1}, p2[] = {2, 2, 2, 3, 3, 4},
                  y2[] = {4, 4, 2, 1, 3, 1};
    prf(1, p1, y1, (double[]){.4, .1, .133333}, .5);
    prf(0, p2, y2, (double[]){.166667, .4, .233333}, -1);
    prf(1, p2, y2, (double[]){.566667, .6, .433333}, -1);
    const int64_t three[] = {0, 1, 3, 1, 2, 3, 2, 2, 2};
    lki_prf_averages averages = lki_prf_average(three, 3, 0, NULL);
    lkt_close(averages.macro.precision, .277778, 5e-7);
    lkt_close(averages.macro.recall, .311111, 5e-7);
    lkt_close(averages.macro.f1, .292929, 5e-7);
    const int64_t four[] = {1, 2, 2, 0, 0, 0, 0, 2, 2, 0, 0, 0};
    averages = lki_prf_average(four, 4, 0, NULL);
    lkt_close(averages.weighted.precision, 1, 5e-7);
    lkt_close(averages.weighted.recall, .714286, 5e-7);
    lkt_close(averages.weighted.f1, .785714, 5e-7);
    lkt_close(averages.micro.precision, .714286, 5e-7);
}

static void a_batch_alone(void **state)
{
    (void)state;
    lk_metric *metric = lk_precision_recall_f1_support_metric(.num_classes = 2);
    lk_metric_values values;
    update_and_free(metric, one_hot(2, 2, (int64_t[]){0, 0}), indices(2, (int64_t[]){1, 1}));
    update_and_free(metric, one_hot(2, 2, (int64_t[]){0, 1}), indices(2, (int64_t[]){0, 1}));
    for (int twice = 0; twice < 2; twice++) {
        lkt_ok(lk_metric_compute_batch(metric, &values));
        assert_string_equal(values.items[1].name, "precision/_micro");
        lkt_close(values.items[1].value, 1, 0);
    }
    lkt_close(lk_metric_get(metric, "precision/_micro"), .5, 0);
    lk_metric_free(metric);
}

static void multilabel_accuracy_of_catalyst(void **state)
{
    (void)state;
    const float scores[] = {.1f, .9f, 0, .8f, .96f, .01f, .85f, .2f, .98f, .4f, .2f, .1f, .1f, .89f, .2f, 0};
    const uint8_t targets[] = {0, 1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 0};
    lk_metric *metric = lk_multilabel_accuracy_metric(.threshold = 0.6);
    update_and_free(metric, lk_tensor_from(LK_F32, LK_SHAPE(4, 4), scores),
                    lk_tensor_from(LK_U8, LK_SHAPE(4, 4), targets));
    lkt_close(lk_metric_get(metric, "accuracy"), 0.75, 0);
    lk_metric_free(metric);
    metric = lk_multilabel_accuracy_metric(.threshold = LK_ZERO);
    lk_metric *logits = lk_multilabel_accuracy_metric(.from_logits = true);
    for (int i = 0; i < 2; i++)
        update_and_free(i ? metric : logits, lk_tensor_from(LK_F32, LK_SHAPE(1, 4), (float[]){-1, 0, .1f, 2}),
                        lk_tensor_from(LK_U8, LK_SHAPE(1, 4), (uint8_t[]){0, 0, 1, 1}));
    lkt_close(lk_metric_get(metric, "accuracy"), 1, 0);
    lkt_close(lk_metric_get(logits, "accuracy"), 1, 0);
    lk_metric_free(metric);
    lk_metric_free(logits);
}

static void soft_iou_and_dice_of_catalyst(void **state)
{
    (void)state;
    const float scores[] = {.8f, .1f, 0, 0, .4f, .3f, 0, 0, 1}, targets[] = {1, 0, 0, 0, 1, 0, 1, 1, 0};
    lk_metric *iou = lk_iou_metric(.prefix = ""), *dice = lk_dice_metric(.prefix = "");
    for (int i = 0; i < 2; i++)
        update_and_free(i ? iou : dice, lk_tensor_from(LK_F32, LK_SHAPE(1, 1, 3, 3), scores),
                        lk_tensor_from(LK_F32, LK_SHAPE(1, 1, 3, 3), targets));
    lkt_close(lk_metric_get(iou, "iou"), .2222222, 1e-6);
    lkt_close(lk_metric_get(iou, "iou/_micro"), .2222222, 1e-6);
    lkt_close(lk_metric_get(iou, "iou/class_00"), .2222222, 1e-6);
    lkt_close(lk_metric_get(dice, "dice/_macro"), .3636364, 1e-6);
    lk_metric_free(iou);
    lk_metric_free(dice);
}

static void regions_with_names_and_weights(void **state)
{
    (void)state;
    const char *const names[] = {"sky", "sea"};
    const double weights[] = {.25, .75};
    lk_metric *metric = lk_iou_metric(.num_classes = 2, .class_names = names, .class_weights = weights,
                                      .threshold = .5, .suffix = "_s");
    /* Class 0 is empty and left empty: 1. Class 1: one of two right. */
    update_and_free(metric, lk_tensor_from(LK_F32, LK_SHAPE(1, 2, 2), (float[]){0, 0, 1, 1}),
                    lk_tensor_from(LK_F32, LK_SHAPE(1, 2, 2), (float[]){0, 0, 1, 0}));
    lkt_close(lk_metric_get(metric, "iou_s/sky"), 1, 0);
    lkt_close(lk_metric_get(metric, "iou_s/sea"), .5, 0);
    lkt_close(lk_metric_get(metric, "iou_s/_weighted"), .625, 1e-12);
    lk_metric_free(metric);
}

static void names(void **state)
{
    (void)state;
    static const char *const expected[] = {"accuracy01",     "accuracy01/std", "accuracy03",
                                           "accuracy03/std", "accuracy05",     "accuracy05/std"};
    lk_metric_values values;
    for (int classes = 2; classes <= 6; classes++) {
        lk_metric *metric = lk_accuracy_metric(.num_classes = classes);
        lkt_ok(lk_metric_compute(metric, &values));
        assert_int_equal(values.count, classes > 5 ? 6 : classes > 3 ? 4 : 2);
        for (int i = 0; i < values.count; i++) {
            assert_string_equal(values.items[i].name, expected[i]);
            assert_true(isnan(values.items[i].value));
        }
        lk_metric_free(metric);
    }
    lk_metric *auc =
        lk_auc_metric(.prefix = "a_", .suffix = "_b", .num_classes = 2, .compute_per_class_metrics = true);
    lkt_ok(lk_metric_compute(auc, &values));
    assert_int_equal(values.count, 6);
    assert_string_equal(values.items[2].name, "a_auc_b/_micro");
    assert_string_equal(values.items[5].name, "a_auc_b/class_01");
    lk_metric_free(auc);
}

static void infinite_equal_and_nan_scores(void **state)
{
    (void)state;
    const float scores[] = {INFINITY, 1,     -INFINITY, 1,     2,      -INFINITY,
                            INFINITY, -0.0f, 0.0f,      3e38f, -3e38f, 1e-45f};
    const uint8_t labels[] = {1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1};
    int64_t twice = 0, positives = 0;
    for (int i = 0; i < 12; i++)
        for (int j = 0; j < 12; j++)
            if (labels[i] && !labels[j]) twice += (scores[i] > scores[j]) + (scores[i] >= scores[j]);
    for (int i = 0; i < 12; i++) positives += labels[i];
    lk_metric *auc = lk_auc_metric(.num_classes = 1);
    update_and_free(auc, lk_tensor_from(LK_F32, LK_SHAPE(12), scores),
                    lk_tensor_from(LK_U8, LK_SHAPE(12), labels));
    lkt_close(lk_metric_get(auc, "auc"), (double)twice / (double)(2 * positives * (12 - positives)), 1e-15);
    update_and_free(auc, lk_tensor_from(LK_F32, LK_SHAPE(1), (float[]){NAN}),
                    lk_tensor_from(LK_U8, LK_SHAPE(1), labels));
    assert_true(isnan(lk_metric_get(auc, "auc")));
    assert_true(isnan(lk_metric_get(auc, "auc/_micro")));
    lk_metric_free(auc);
}

static void other_dtypes_and_strides(void **state)
{
    (void)state;
    lk_tensor *wide =
        lk_tensor_from(LK_F64, LK_SHAPE(2, 3), (double[]){0, 9, 1, 7, 2, 3}); /* (classes, samples) */
    lk_tensor *outputs = lk_tensor_permute(wide, (int[]){1, 0});
    lk_tensor *targets = lk_tensor_from(LK_U8, LK_SHAPE(3), (uint8_t[]){1, 0, 0});
    lk_metric *metric = lk_accuracy_metric(.topk = {1});
    lkt_ok(lk_metric_update(metric, outputs, targets));
    lkt_close(lk_metric_get(metric, "accuracy01"), 2.0 / 3, 1e-15);
    lk_metric_free(metric);
    lk_tensor_free(wide);
    lk_tensor_free(outputs);
    lk_tensor_free(targets);
}

static void bad_input(void **state)
{
    (void)state;
    lk_metric *metric = lk_accuracy_metric(.num_classes = 3);
    lk_tensor *outputs = lk_tensor_create(LK_F32, LK_SHAPE(2, 3)),
              *four = lk_tensor_create(LK_F32, LK_SHAPE(2, 4));
    lk_tensor *high = indices(2, (int64_t[]){0, 3}), *low = indices(2, (int64_t[]){-1, 0}),
              *three = indices(3, (int64_t[3]){0});
    lk_tensor *half = lk_tensor_from(LK_F32, LK_SHAPE(2), (float[]){0, .5f});
    lkt_fails(lk_metric_update(metric, outputs, high), LK_ERR_RANGE,
              "target 3 of sample 1 is outside of 0 to 2");
    lkt_fails(lk_metric_update(metric, outputs, low), LK_ERR_RANGE, "target -1 of sample 0");
    lkt_fails(lk_metric_update(metric, outputs, half), LK_ERR_RANGE, "sample 1");
    lkt_fails(lk_metric_update(metric, outputs, three), LK_ERR_SHAPE, "same samples");
    lkt_fails(lk_metric_update(metric, four, low), LK_ERR_SHAPE, "expected outputs for 3 classes, found 4");
    lkt_fails(lk_metric_update(metric, NULL, low), LK_ERR_INVALID, "NULL");
    lkt_fails(lk_metric_update_value(metric, 1, 1), LK_ERR_INVALID, "not one number");
    assert_true(isnan(lk_metric_get(metric, "accuracy01")));
    lk_metric_free(metric);
    assert_null(lk_accuracy_metric(.num_classes = -1));
    assert_null(lk_accuracy_metric(.topk = {-2}));
    assert_null(lk_iou_metric(.from_logits = true, .threshold = 1.5));
    lkt_contains(lk_error(), "iou: threshold: expected between 0 and 1");
    assert_null(lk_iou_metric(.class_weights = (double[]){1}));
    metric = lk_mean_metric("loss", .prefix = "");
    lkt_fails(lk_metric_update(metric, outputs, high), LK_ERR_INVALID, "one number a batch");
    lk_metric_free(metric);
    lk_tensor *all[] = {outputs, four, high, low, three, half};
    for (int i = 0; i < 6; i++) lk_tensor_free(all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracy_of_catalyst),
        cmocka_unit_test(scores_that_are_nan_are_never_right),
        cmocka_unit_test(additive_mean_and_std),
        cmocka_unit_test(a_small_spread_beside_a_large_mean),
        cmocka_unit_test(precision_recall_f1_of_catalyst),
        cmocka_unit_test(a_batch_alone),
        cmocka_unit_test(multilabel_accuracy_of_catalyst),
        cmocka_unit_test(soft_iou_and_dice_of_catalyst),
        cmocka_unit_test(regions_with_names_and_weights),
        cmocka_unit_test(names),
        cmocka_unit_test(infinite_equal_and_nan_scores),
        cmocka_unit_test(other_dtypes_and_strides),
        cmocka_unit_test(bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
