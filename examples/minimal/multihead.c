/* Catalyst's example "multihead classification": two questions about each sample, with a shared layer. */
#include "minimal.h"

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_rand(LK_SHAPE(count, 10)), *y1 = largest(x, 0, 4), *y2 = largest(x, 4, 10);
    return lk_tensor_dataset({"features", x}, {"targets1", y1}, {"targets2", y2});
}

int main(void)
{
    static const char *const outputs[] = {"logits1", "logits2", NULL}, *const parts[] = {"loss1", "loss2", NULL};
    lk_manual_seed(42);
    lk_module *shared = lk_linear(10, 64), *head1 = lk_linear(64, 4), *head2 = lk_linear(64, 6);
    lk_module *model = lk_node_graph(lk_nodes(lk_node("shared", shared), lk_node("relu", lk_relu()),
                                              lk_node("head1", head1, "relu"), lk_node("head2", head2, "relu")),
                                     .outputs = "head1 head2");
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(2000), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(500), .batch_size = 32)});
    lk_runner *runner = lk_supervised_runner(.output_keys = outputs);
    lk_status status = lk_train(runner,
        .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02),
        .loaders = loaders, .num_epochs = 16,
        .callbacks = lk_callbacks(
            lk_criterion_callback(.metric_key = "loss1", .input_key = "logits1", .target_key = "targets1"),
            lk_criterion_callback(.metric_key = "loss2", .input_key = "logits2", .target_key = "targets2"),
            lk_metric_aggregation_callback(.metric_key = "loss", .metrics = parts, .mode = "mean"),
            lk_backward_callback(.metric_key = "loss"),
            lk_accuracy_callback(.input_key = "logits1", .target_key = "targets1", .topk = {1}, .prefix = "one_"),
            lk_accuracy_callback(.input_key = "logits2", .target_key = "targets2", .topk = {1}, .prefix = "two_")),
        .valid_loader = "valid", .verbose = true);
    return learned(runner, status, "two_accuracy01", 0.85);
}
