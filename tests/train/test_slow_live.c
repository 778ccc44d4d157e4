/* The same training in PyTorch, live: the losses of the first 200 steps, the order of the samples and the
 * metrics of the epochs. */
#include "case.h"

enum { STEPS = 200, BATCH = 32 };
static const double tolerance = 1e-4;

static char folder[1024], mnist_root[2048];
static bool has_mnist;

/* Runs the script once; false, with a word about it, where there is no PyTorch. */
static bool train_with_pytorch(void)
{
    static int outcome;
    char command[8192];
    if (outcome) return outcome > 0;
    outcome = -1;
    if (system("/usr/bin/python3 -c 'import torch, numpy' 2>/dev/null") != 0) {
        print_message("skipped: /usr/bin/python3 has no torch\n");
        return false;
    }
    const char *shared = lkt_shared();
    has_mnist = shared != NULL;
    snprintf(mnist_root, sizeof mnist_root, "%s/data/mnist", shared ? shared : "");
    snprintf(folder, sizeof folder, "%s", lkt_scratch_folder("train_live"));
    snprintf(command, sizeof command,
             "/usr/bin/python3 '%s/tests/oracle/train_live.py' '%s' %s%s%s 2>/dev/null", LK_SOURCE_DIR,
             folder, has_mnist ? "'" : "", has_mnist ? mnist_root : "", has_mnist ? "'" : "");
    assert_int_equal(system(command), 0);
    outcome = 1;
    return true;
}

typedef struct job {
    const char *name;
    lk_tensor *losses, *order, *epochs;
    int step;
    double largest; /* relative difference of a loss */
} job;

static void open_job(job *job, const char *name)
{
    *job = (struct job){.name = name};
    lkt_not_null(job->losses = lk_npy_read(lkt_path(folder, "%s_losses.npy", name)));
    lkt_not_null(job->order = lk_npy_read(lkt_path(folder, "%s_order.npy", name)));
    lkt_not_null(job->epochs = lk_npy_read(lkt_path(folder, "%s_epochs.npy", name)));
}

static void close_job(job *job)
{
    print_message("%s: the losses of %d steps differ by at most %.2g\n", job->name, job->step, job->largest);
    lk_tensor_free(job->losses);
    lk_tensor_free(job->order);
    lk_tensor_free(job->epochs);
}

static lk_status compare_batch(lk_callback *callback, lk_runner *runner)
{
    job *job = callback->context;
    if (!runner->is_train_loader || job->step >= STEPS) return LK_OK;
    double actual = lk_metrics_get(runner->batch_metrics, "loss"),
           expected = lk_tensor_get(job->losses, job->step);
    double difference = fabs(actual - expected) / fabs(expected);
    if (!(difference <= tolerance))
        fail_msg("%s: the loss of step %d is %.9g, PyTorch's %.9g", job->name, job->step + 1, actual,
                 expected);
    if (difference > job->largest) job->largest = difference;
    for (int64_t i = 0; i < runner->batch_size; i++)
        assert_int_equal(runner->batch->indices[i],
                         (int64_t)lk_tensor_get(job->order, (int64_t)job->step * BATCH + i));
    job->step++;
    return LK_OK;
}

static void compare_number(const job *job, lk_runner *runner, int column, const char *loader,
                           const char *metric)
{
    double actual = lk_metrics_get(lk_runner_loader_metrics(runner, loader), metric);
    double expected = lk_tensor_get(job->epochs, (runner->epoch_step - 1) * 3 + column);
    if (!(fabs(actual - expected) <= tolerance * fabs(expected)))
        fail_msg("%s: %s %s of epoch %d is %.9g, PyTorch's %.9g", job->name, loader, metric,
                 (int)runner->epoch_step, actual, expected);
}

static lk_status compare_epoch(lk_callback *callback, lk_runner *runner)
{
    job *job = callback->context;
    compare_number(job, runner, 0, "train", "loss");
    compare_number(job, runner, 1, "valid", "loss");
    if (lk_metrics_has(lk_runner_loader_metrics(runner, "valid"), "accuracy01"))
        compare_number(job, runner, 2, "valid", "accuracy01");
    return LK_OK;
}

static void regression(void **state)
{
    (void)state;
    if (!train_with_pytorch()) skip();
    job job;
    open_job(&job, "regression");
    lk_manual_seed(42);
    lk_tensor *x = lk_rand(LK_SHAPE(10000, 10)), *y = lk_rand(LK_SHAPE(10000));
    lk_dataset *data = lk_tensor_dataset({"features", x}, {"targets", y});
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lk_linear(10, 1), .criterion = lk_mse_loss(), .optimizer = lk_adam(),
                    .scheduler = lk_multi_step_lr(.milestones = lk_milestones(3, 6)),
                    .loaders = lk_loaders({"train", lk_loader(lk_dataset_share(data), .batch_size = BATCH)},
                                          {"valid", lk_loader(data, .batch_size = BATCH)}),
                    .callbacks = lk_callbacks(lk_on(batch_end, compare_batch, &job),
                                              lk_on(epoch_end, compare_epoch, &job)),
                    .num_epochs = 8));
    assert_int_equal(job.step, STEPS);
    lk_runner_free(runner);
    close_job(&job);
}

static void need_mnist(void)
{
    if (!train_with_pytorch()) skip();
    if (has_mnist) return;
    print_message("skipped: there is no shared data beside the project\n");
    skip();
}

static void train_linear(const char *name, bool shuffle)
{
    job job;
    open_job(&job, name);
    lk_manual_seed(42);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lk_sequential(lk_flatten(), lk_linear(784, 10)),
                    .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
                    .loaders = lk_loaders({"train", lk_loader(lk_mnist(mnist_root, .train = true),
                                                              .batch_size = BATCH, .shuffle = shuffle)},
                                          {"valid", lk_loader(lk_mnist(mnist_root), .batch_size = BATCH)}),
                    .callbacks =
                        lk_callbacks(lk_accuracy_callback(.topk = {1}), lk_on(batch_end, compare_batch, &job),
                                     lk_on(epoch_end, compare_epoch, &job)),
                    .num_epochs = 2));
    assert_int_equal(job.step, STEPS);
    lk_runner_free(runner);
    close_job(&job);
}

static void mnist_linear(void **state)
{
    (void)state;
    need_mnist();
    train_linear("linear", false);
}

static void mnist_linear_shuffled(void **state)
{
    (void)state;
    need_mnist();
    train_linear("linear_shuffled", true);
}

static lk_dataset *first_digits(bool train, int64_t count)
{
    int64_t *indices = calloc((size_t)count, sizeof *indices);
    for (int64_t i = 0; i < count; i++) indices[i] = i;
    lk_dataset *subset = lk_subset(lk_mnist(mnist_root, .train = train), indices, count);
    free(indices);
    return subset;
}

/* The model must have been made right after lk_manual_seed(42). */
static void train_on_few(const char *name, lk_module *model)
{
    job job;
    open_job(&job, name);
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(
        runner, .model = model, .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_sgd(.lr = 0.005, .momentum = 0.9),
        .loaders =
            lk_loaders({"train", lk_loader(first_digits(true, 3200), .batch_size = BATCH, .shuffle = true)},
                       {"valid", lk_loader(first_digits(false, 1000), .batch_size = BATCH)}),
        .callbacks = lk_callbacks(lk_accuracy_callback(.topk = {1}), lk_on(batch_end, compare_batch, &job),
                                  lk_on(epoch_end, compare_epoch, &job)),
        .num_epochs = 2));
    assert_int_equal(job.step, STEPS);
    lk_runner_free(runner);
    close_job(&job);
}

static void convolution(void **state)
{
    (void)state;
    need_mnist();
    lk_manual_seed(42);
    train_on_few("convolution", lk_sequential(lk_conv2d(1, 8, 3, .stride = 2), lk_batch_norm2d(8), lk_relu(),
                                              lk_conv2d(8, 16, 3, .stride = 2), lk_batch_norm2d(16),
                                              lk_relu(), lk_flatten(), lk_linear(576, 10)));
}

static void pooling(void **state)
{
    (void)state;
    need_mnist();
    lk_manual_seed(42);
    train_on_few("pooling", lk_sequential(lk_conv2d(1, 8, 3), lk_batch_norm2d(8), lk_tanh(), lk_avg_pool2d(2),
                                          lk_conv2d(8, 16, 3), lk_batch_norm2d(16), lk_tanh(),
                                          lk_avg_pool2d(2), lk_flatten(), lk_linear(400, 10)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(regression),
        cmocka_unit_test(mnist_linear),
        cmocka_unit_test(mnist_linear_shuffled),
        cmocka_unit_test(convolution),
        cmocka_unit_test(pooling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
