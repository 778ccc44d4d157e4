/* MNIST, as in Catalyst's tutorial: a linear model, all the metrics, checkpoints and logs.
 *
 *     build/examples/01_mnist [DATA]        DATA holds MNIST's four IDX files; without it digits are
 *                                           drawn where data/ has none */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

/* MNIST from a folder; NULL is data/, which need not be there. */
static lk_dataset *digits(const char *root, bool train)
{
    lk_dataset *mnist = lk_mnist(root ? root : "data", .train = train);
    if (mnist || root || lk_error_status() != LK_ERR_NOT_FOUND) return mnist;
    if (train && lk_rank() == 0) fprintf(stderr, "%s\ndigits are drawn instead\n", lk_error());
    return lk_synthetic_digits(.train = train);
}

int main(int argc, char **argv)
{
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 1, "[DATA]");
    if (code >= 0) return code;
    const char *root = argc > 1 ? argv[1] : NULL;
    lk_manual_seed(42);

    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10)),
        .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_adam(.lr = 0.02),
        .loaders = lk_loaders(
            {"train", lk_loader(digits(root, true), .batch_size = 32)},
            {"valid", lk_loader(digits(root, false), .batch_size = 32)}),
        .callbacks = lk_callbacks(
            lk_accuracy_callback(.input_key = "logits", .target_key = "targets", .num_classes = 10),
            lk_precision_recall_f1_support_callback(.input_key = "logits", .target_key = "targets", .num_classes = 10),
            lk_auc_callback(.input_key = "logits", .target_key = "targets")),
        .num_epochs = 8, .logdir = "./logs/mnist", .valid_loader = "valid", .valid_metric = "loss",
        .minimize_valid_metric = true, .verbose = true);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
