/* Two ranks of the library beside two live PyTorch ranks over Gloo: the same samples in the same order, the
 * same losses. */
#include "case.h"

#include <lockstep/launch.h>

enum { RANKS = 2, EPOCHS = 3, BATCH = 8, SAMPLES = 203 };

static lk_tensor *losses, *order;

typedef struct progress {
    int step;
    int64_t sample;
} progress;

static lk_status differs(const lk_runner *runner, int step, double actual, double expected)
{
    fprintf(stderr, "rank %d, step %d: %.9g, PyTorch's %.9g\n", runner->rank, step, actual, expected);
    return LK_ERR_RANGE;
}

static lk_status compare(lk_callback *callback, lk_runner *runner)
{
    progress *p = callback->context;
    int64_t steps = losses->shape.dim[1], samples = order->shape.dim[1];
    double actual = lk_metrics_get(runner->batch_metrics, "loss");
    double expected = lk_tensor_get(losses, runner->rank * steps + p->step);
    if (!(fabs(actual - expected) <= 1e-4 * fabs(expected)))
        return differs(runner, p->step, actual, expected);
    for (int64_t i = 0; i < runner->batch_size; i++, p->sample++) {
        double index = lk_tensor_get(order, runner->rank * samples + p->sample);
        if ((double)runner->batch->indices[i] != index)
            return differs(runner, p->step, (double)runner->batch->indices[i], index);
    }
    p->step++;
    return LK_OK;
}

static void losses_and_order_are_those_of_two_pytorch_ranks(void **state)
{
    (void)state;
    char folder[1024], command[4096];
    if (system("/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no torch\n");
        skip();
    }
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("ddp_live"));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s/tests/oracle/ddp_pytorch.py' '%s' 2>/dev/null",
             LK_SOURCE_DIR, folder);
    assert_int_equal(system(command), 0);
    lkt_not_null(losses = lk_npy_read(lkt_path(folder, "%s", "ddp_losses.npy")));
    lkt_not_null(order = lk_npy_read(lkt_path(folder, "%s", "ddp_order.npy")));

    lk_manual_seed(5);
    lk_tensor *x = lk_rand(LK_SHAPE(SAMPLES, 12)), *y = lk_rand(LK_SHAPE(SAMPLES, 1));
    lk_module *model = lk_sequential(lk_linear(12, 16), lk_relu(), lk_linear(16, 1));
    progress p = {0};
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(
        runner, .model = model, .criterion = lk_mse_loss(), .optimizer = lk_adam(.lr = 0.01),
        .loaders = lk_loaders(
            {"train", lk_loader(lk_tensor_dataset({"features", x}, {"targets", y}), .batch_size = BATCH)}),
        .callbacks = lk_callbacks(lk_on(batch_end, compare, &p)), .num_epochs = EPOCHS, .nproc = RANKS,
        .check_replicas = 1, .thread_count = 1));
    assert_int_equal(p.step, losses->shape.dim[1]);
    lk_runner_free(runner);
    lk_tensor_free(losses);
    lk_tensor_free(order);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(losses_and_order_are_those_of_two_pytorch_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
