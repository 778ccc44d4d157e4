// MNIST from C++: 01_mnist.c through <lockstep/lockstep.hpp>, with the same numbers.
//
//     build/examples/10_mnist [DATA]        DATA holds MNIST's four IDX files; without it digits are
//                                           drawn where data/ has none
#include "arguments.h"

#include <lockstep/lockstep.hpp>

#include <cstdio>

namespace ls = lockstep;

// MNIST from a folder; NULL is data/, which need not be there.
static ls::dataset_ptr digits(const char *root, bool train)
{
    auto part = [&](auto &o) { o.train = train; };
    try {
        return ls::mnist(root ? root : "data", part);
    } catch (const ls::error &e) {
        if (root || e.status() != LK_ERR_NOT_FOUND) throw;
        if (train && lk_rank() == 0) std::fprintf(stderr, "%s\ndigits are drawn instead\n", e.what());
        return ls::synthetic_digits(part);
    }
}

int main(int argc, char **argv)
try {
    lk_set_log_sink(lk_log_to_stderr, nullptr);
    int code = take_arguments(&argc, argv, 1, "[DATA]");
    if (code >= 0) return code;
    const char *root = argc > 1 ? argv[1] : nullptr;
    lk_manual_seed(42);

    auto batches = [](auto &o) { o.batch_size = 32; };
    auto keys = [](auto &o) { o.input_key = "logits", o.target_key = "targets"; };
    auto classes = [&](auto &o) { keys(o), o.num_classes = 10; };
    ls::runner_ptr runner = ls::supervised_runner();
    ls::train(runner, [&](auto &o) {
        o.model = ls::sequential({ls::flatten(), ls::linear(28 * 28, 10)});
        o.criterion = ls::cross_entropy_loss();
        o.optimizer = ls::adam([](auto &o) { o.lr = 0.02; });
        o.loaders = ls::loaders({{"train", ls::loader(digits(root, true), batches)},
                                 {"valid", ls::loader(digits(root, false), batches)}});
        o.callbacks = ls::callbacks({ls::accuracy_callback(classes),
                                     ls::precision_recall_f1_support_callback(classes), ls::auc_callback(keys)});
        o.num_epochs = 8, o.logdir = "./logs/mnist_cpp", o.valid_loader = "valid", o.valid_metric = "loss";
        o.minimize_valid_metric = o.verbose = true;
    });
} catch (const ls::error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
