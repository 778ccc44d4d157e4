/* A runner of one's own, as in Catalyst's tutorial: it says on what it runs, and makes the data when they are needed.
 *
 *     build/examples/03_custom_runner [DATA [EPOCHS]]   DATA holds MNIST's four IDX files; without it digits
 *                                                       are drawn where data/ has none
 *
 * The data are made once, before the ranks are forked: they share the memory. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

/* MNIST from a folder; NULL is data/, which need not be there. */
static lk_dataset *digits(const char *root, bool train)
{
    lk_dataset *mnist = lk_mnist(root ? root : "data", .train = train);
    if (mnist || root || lk_error_status() != LK_ERR_NOT_FOUND) return mnist;
    if (train && lk_rank() == 0) fprintf(stderr, "%s\ndigits are drawn instead\n", lk_error());
    return lk_synthetic_digits(.train = train);
}

/* Ranks on every GPU, or on every core of a machine without. */
static lk_status get_engine(lk_runner *runner, lk_train_options *options)
{
    (void)runner;
    options->ddp = true;
    return LK_OK;
}

static lk_status get_loaders(lk_runner *runner, lk_named_loader *out, int capacity, int *count)
{
    const char *root = runner->context;
    (void)capacity;
    lk_dataset *train_data = digits(root, true), *valid_data = digits(root, false);
    out[0] = (lk_named_loader){"train", lk_loader(train_data, .batch_size = 32,
                                                  .sampler = lk_distributed_sampler(lk_dataset_length(train_data)))};
    out[1] = (lk_named_loader){"valid", lk_loader(valid_data, .batch_size = 32)};
    *count = 2;
    return LK_OK;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops custom_runner = {LK_SIZE(lk_runner_ops), .get_engine = get_engine,
                                                .get_loaders = get_loaders};
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 2, "[DATA [EPOCHS]]");
    if (code >= 0) return code;
    const char *root = argc > 1 ? argv[1] : NULL;
    lk_manual_seed(42);

    lk_runner *runner = lk_custom_runner(&custom_runner, (void *)root);
    lk_status status = lk_train(runner,
        .model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10)),
        .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_adam(.lr = 0.02),
        .callbacks = lk_callbacks(
            lk_accuracy_callback(.input_key = "logits", .target_key = "targets", .num_classes = 10),
            lk_precision_recall_f1_support_callback(.input_key = "logits", .target_key = "targets", .num_classes = 10),
            lk_auc_callback(.input_key = "logits", .target_key = "targets"),
            lk_confusion_matrix_callback(.input_key = "logits", .target_key = "targets", .num_classes = 10)),
        .num_epochs = argc > 2 ? atoi(argv[2]) : 8, .logdir = "./logs/custom_runner", .valid_loader = "valid",
        .valid_metric = "loss", .minimize_valid_metric = true, .verbose = true);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
