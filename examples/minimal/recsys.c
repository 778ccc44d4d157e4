/* Catalyst's example "RecSys": which of ten items each user likes, judged by the order that the scores give. */
#include "minimal.h"

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_rand(LK_SHAPE(count, 10)), *y = above(x, 0, 10, 0.8);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

int main(void)
{
    lk_manual_seed(42);
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(2000), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(500), .batch_size = 32)});
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_linear(10, 10), .criterion = lk_bce_with_logits_loss(), .optimizer = lk_adam(.lr = 0.02),
        .loaders = loaders, .num_epochs = 6,
        .callbacks = lk_callbacks(lk_hitrate_callback(.topk = {1, 3, 5}), lk_mrr_callback(.topk = {1, 3, 5}),
                                  lk_map_callback(.topk = {1, 3, 5}), lk_ndcg_callback(.topk = {1, 3, 5})),
        .valid_loader = "valid", .valid_metric = "mrr03", .verbose = true);
    return learned(runner, status, "ndcg03", 0.8);
}
