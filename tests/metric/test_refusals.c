/* What <lockstep/metric.h> and <lockstep/sys/metric.h> refuse. */
#include "refusals.h"

#include <lockstep/metric.h>
#include <lockstep/sys/metric.h>

static void classes(void **state)
{
    (void)state;
    REFUSED("num_classes", lk_metric_free, lk_accuracy_metric(.num_classes = -1));
    REFUSED("num_classes", lk_metric_free, lk_multilabel_accuracy_metric(.num_classes = -1));
    REFUSED("num_classes", lk_metric_free, lk_precision_recall_f1_support_metric(.num_classes = -2));
    REFUSED("num_classes", lk_metric_free,
            lk_multilabel_precision_recall_f1_support_metric(.num_classes = -2));
    REFUSED("num_classes", lk_metric_free, lk_auc_metric(.num_classes = -1));
    REFUSED("num_classes", lk_metric_free, lk_iou_metric(.num_classes = -1));
    REFUSED("num_classes", lk_metric_free, lk_dice_metric(.num_classes = -1));
    REFUSED("num_classes", lk_metric_free, lk_confusion_matrix_metric(.num_classes = -1));
    REFUSED("topk", lk_metric_free, lk_accuracy_metric(.topk = {-1}));
    REFUSED("topk", lk_metric_free, lk_accuracy_metric(.topk = {1, -3}));
    REFUSED("topk", lk_metric_free, lk_accuracy_metric(.num_classes = 3, .topk = {1, 4}));
    lkt_all_refused();
}

static void numbers(void **state)
{
    (void)state;
    static const double bad[] = {NAN, INFINITY, -INFINITY};
    static const double below[] = {1, -1, 1}, nan[] = {1, NAN, 1}, zeros[] = {0, 0, 0};
    for (int i = 0; i < 3; i++) {
        REFUSED("threshold", lk_metric_free, lk_multilabel_accuracy_metric(.threshold = bad[i]));
        REFUSED("threshold", lk_metric_free,
                lk_multilabel_precision_recall_f1_support_metric(.threshold = bad[i]));
        REFUSED("threshold", lk_metric_free, lk_iou_metric(.threshold = bad[i]));
        REFUSED("threshold", lk_metric_free, lk_dice_metric(.threshold = bad[i]));
    }
    REFUSED("zero_division", lk_metric_free,
            lk_precision_recall_f1_support_metric(.zero_division = INFINITY));
    REFUSED("zero_division", lk_metric_free, lk_precision_recall_f1_support_metric(.zero_division = 2));
    REFUSED("zero_division", lk_metric_free,
            lk_multilabel_precision_recall_f1_support_metric(.zero_division = -1));
    REFUSED("class_weights", lk_metric_free, lk_iou_metric(.num_classes = 3, .class_weights = below));
    REFUSED("class_weights", lk_metric_free, lk_dice_metric(.num_classes = 3, .class_weights = nan));
    REFUSED("class_weights", lk_metric_free, lk_dice_metric(.num_classes = 3, .class_weights = zeros));
    REFUSED("class_weights", lk_metric_free, lk_iou_metric(.class_weights = below));
    lkt_all_refused();
}

static void names(void **state)
{
    (void)state;
    static const char *const one[] = {"a", NULL, "b"};
    REFUSED("name", lk_metric_free, lk_mean_metric(NULL));
    REFUSED("name", lk_metric_free, lk_mean_metric(""));
    REFUSED("class_names", lk_metric_free, lk_confusion_matrix_metric(.class_names = one));
    REFUSED("class_names", lk_metric_free, lk_confusion_matrix_metric(.num_classes = 3, .class_names = one));
    REFUSED("class_names", lk_metric_free, lk_iou_metric(.num_classes = 3, .class_names = one));
    lkt_all_refused();
}

/* More than there are is found with the first batch, if nobody has said how many classes there are. */
static void more_than_the_classes(void **state)
{
    (void)state;
    lk_tensor *outputs = lk_tensor_full(LK_F32, LK_SHAPE(2, 3), 0),
              *targets = lk_tensor_create(LK_I64, LK_SHAPE(2));
    lk_metric *metric = lk_accuracy_metric(.topk = {1, 4});
    lkt_not_null(metric);
    lkt_fails(lk_metric_update(metric, outputs, targets), LK_ERR_INVALID, "topk: 4");
    lk_metric_free(metric);
    lk_tensor_free(outputs);
    lk_tensor_free(targets);
}

static lk_status update(void *context, const lk_tensor *outputs, const lk_tensor *targets)
{
    (void)context, (void)outputs, (void)targets;
    return LK_OK;
}

static lk_status compute(void *context, double *values)
{
    (void)context;
    values[0] = 0;
    return LK_OK;
}

static void your_own(void **state)
{
    (void)state;
    static const char *const values[] = {"x", NULL}, *const none[] = {NULL}, *const empty[] = {"", NULL};
    static int64_t number;
    static float small;
#define OWN(...) lk_custom_metric(.name = "own", .update = update, .compute = compute, __VA_ARGS__)
    REFUSED("value_names", lk_metric_free, OWN(.value_names = NULL));
    REFUSED("value_names", lk_metric_free, OWN(.value_names = none));
    REFUSED("value_names", lk_metric_free,
            OWN(.value_names = empty, .parts = {{LK_JOIN_SUM, LK_I64, &number, 1}}));
    REFUSED("update", lk_metric_free,
            lk_custom_metric(.name = "own", .compute = compute, .value_names = values));
    REFUSED("compute", lk_metric_free,
            lk_custom_metric(.name = "own", .update = update, .value_names = values));
    REFUSED("part", lk_metric_free,
            OWN(.value_names = values, .parts = {{LK_JOIN_SUM, LK_I64, &number, -1}}));
    REFUSED("part", lk_metric_free, OWN(.value_names = values, .parts = {{LK_JOIN_SUM, LK_F32, &small, 1}}));
    REFUSED("part", lk_metric_free, OWN(.value_names = values, .parts = {{(lk_join)9, LK_I64, &number, 1}}));
#undef OWN
    lkt_all_refused();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes),  cmocka_unit_test(numbers),
        cmocka_unit_test(names),    cmocka_unit_test(more_than_the_classes),
        cmocka_unit_test(your_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
