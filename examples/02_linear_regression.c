/* Linear regression, as in Catalyst's distributed tutorial: random numbers, Adam, and a rate that falls at two epochs.
 *
 *     build/examples/02_linear_regression [LOGDIR]
 *
 * The tutorial's targets have the shape (32), its outputs (32, 1), so that its loss compares every output with every
 * target; the library says so in a warning. Here the targets are (32, 1), which is what is meant. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    const int64_t num_samples = 10000, num_features = 10;
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 1, "[LOGDIR]");
    if (code >= 0) return code;
    lk_manual_seed(42);

    lk_tensor *x = lk_rand(LK_SHAPE(num_samples, num_features));
    lk_tensor *y = lk_rand(LK_SHAPE(num_samples, 1));
    lk_dataset *dataset = lk_tensor_dataset({"features", x}, {"targets", y});

    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_linear(num_features, 1),
        .criterion = lk_mse_loss(),
        .optimizer = lk_adam(),
        .scheduler = lk_multi_step_lr(.milestones = lk_milestones(3, 6)),
        .loaders = lk_loaders(
            {"train", lk_loader(lk_dataset_share(dataset), .batch_size = 32, .num_workers = 1)},
            {"valid", lk_loader(dataset, .batch_size = 32, .num_workers = 1)}),
        .callbacks = lk_callbacks(lk_r2_callback()),
        .num_epochs = 8, .logdir = argc > 1 ? argv[1] : "./logs/linear_regression", .valid_loader = "valid",
        .verbose = true);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
