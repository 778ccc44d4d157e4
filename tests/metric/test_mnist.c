/* The metrics of a real run: one epoch of the linear model on MNIST in PyTorch, whose values Catalyst 21.12
 * has logged. */
#include "lktest.h"

#include <lockstep/metric.h>

#include "tensor/npy.h"

#include <unistd.h>

enum { METRICS = 4, BATCH = 32 };

static lk_tensor *load(const char *folder, const char *name)
{
    char path[1300];
    snprintf(path, sizeof path, "%s/%s.npy", folder, name);
    lk_tensor *tensor = lki_npy_read(path);
    lkt_not_null(tensor);
    return tensor;
}

/* False, with the reason, where PyTorch or the data are not here. */
static bool train(const char *out)
{
    char command[4000], data[1100];
    const char *shared = getenv("LOCKSTEP_SHARED");
    snprintf(data, sizeof data, "%s/data/mnist", shared ? shared : LK_SOURCE_DIR "/../shared");
    if (access(data, R_OK) != 0) {
        print_message("skipped: no MNIST in %s\n", data);
        return false;
    }
    if (system("/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no PyTorch\n");
        return false;
    }
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/metric_mnist.py' '%s' '%s'",
             LK_SOURCE_DIR, data, out);
    assert_int_equal(system(command), 0);
    return true;
}

static void feed(lk_metric **metrics, const char *folder)
{
    lk_tensor *logits = load(folder, "logits"), *targets = load(folder, "targets"),
              *losses = load(folder, "losses");
    int64_t samples = logits->shape.dim[0];
    for (int64_t begin = 0; begin < samples; begin += BATCH) {
        int64_t end = begin + BATCH < samples ? begin + BATCH : samples;
        lk_tensor *x = lk_tensor_slice(logits, 0, begin, end), *y = lk_tensor_slice(targets, 0, begin, end);
        for (int i = 0; i < METRICS - 1; i++) lkt_ok(lk_metric_update(metrics[i], x, y));
        lkt_ok(
            lk_metric_update_value(metrics[METRICS - 1], lk_tensor_get(losses, begin / BATCH), end - begin));
        lk_tensor_free(x);
        lk_tensor_free(y);
    }
    lk_tensor_free(logits);
    lk_tensor_free(targets);
    lk_tensor_free(losses);
}

static void values_that_catalyst_logged(void **state)
{
    (void)state;
    static const struct {
        int metric;
        const char *name;
        double value, tolerance;
    } expected[] = {
        {0, "accuracy01", .8506, 5e-4},
        {0, "accuracy01/std", .0845893, 5e-4},
        {0, "accuracy03", .9584, 5e-4},
        {0, "accuracy05", .9889, 5e-4},
        {1, "precision/_macro", .86796, 5e-4},
        {1, "precision/_weighted", .86993, 5e-4},
        {1, "recall/_macro", .84832, 5e-4},
        {1, "f1/_macro", .83995, 5e-4},
        {2, "auc", .96895, 1e-4},
        {2, "auc/_macro", .96895, 1e-4},
        {2, "auc/_micro", .96839, 1e-4},
        {2, "auc/_weighted", .96957, 1e-4},
        {3, "loss", .8360391955, 1e-3},
        {3, "loss/mean", .8360391955, 1e-3},
        {3, "loss/std", .58579, 1e-3},
    };
    char folder[1100];
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("metric-mnist"));
    if (!train(folder)) skip();
    lk_metric *metrics[METRICS] = {lk_accuracy_metric(.num_classes = 10),
                                   lk_precision_recall_f1_support_metric(.num_classes = 10), lk_auc_metric(),
                                   lk_mean_metric("loss")};
    feed(metrics, folder);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        lkt_close(lk_metric_get(metrics[expected[i].metric], expected[i].name), expected[i].value,
                  expected[i].tolerance);
    for (int i = 0; i < METRICS; i++) lk_metric_free(metrics[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_that_catalyst_logged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
