/* Catalyst's example "multilabel classification": any of four labels for each sample. */
#include "minimal.h"

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_rand(LK_SHAPE(count, 10)), *y = above(x, 0, 4, 0.5);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

int main(void)
{
    lk_manual_seed(42);
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(2000), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(500), .batch_size = 32)});
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_linear(10, 4), .criterion = lk_bce_with_logits_loss(), .optimizer = lk_adam(.lr = 0.05),
        .loaders = loaders, .num_epochs = 6,
        .callbacks = lk_callbacks(lk_multilabel_accuracy_callback(.from_logits = true),
                                  lk_multilabel_precision_recall_f1_support_callback(.from_logits = true,
                                                                                     .num_classes = 4)),
        .valid_loader = "valid", .valid_metric = "accuracy", .verbose = true);
    return learned(runner, status, "accuracy", 0.9);
}
