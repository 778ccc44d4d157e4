/* Catalyst's example "multiclass classification": one of four classes for each sample. */
#include "minimal.h"

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_rand(LK_SHAPE(count, 10)), *y = largest(x, 0, 4);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

int main(void)
{
    lk_manual_seed(42);
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(2000), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(500), .batch_size = 32)});
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_linear(10, 4), .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
        .scheduler = lk_multi_step_lr(.milestones = lk_milestones(4)), .loaders = loaders, .num_epochs = 6,
        .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = 4),
                                  lk_precision_recall_f1_support_callback(.num_classes = 4),
                                  lk_auc_callback()),
        .valid_loader = "valid", .valid_metric = "accuracy03", .verbose = true);
    return learned(runner, status, "accuracy01", 0.9);
}
