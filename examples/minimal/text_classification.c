/* Text classification: sentences of twelve words, of which two kinds say something about the class. */
#include "minimal.h"

#include <lockstep/nodes.h>

enum { WORDS = 100, LENGTH = 12, CLASSES = 3, SIGNS = 5 };

static int64_t draw(int64_t below)
{
    return lk_randint(below, lk_default_generator());
}

/* Words below CLASSES * SIGNS are signs of a class; most words are not. */
static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_tensor_create(LK_I64, LK_SHAPE(count, LENGTH)), *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    for (int64_t i = 0; x && y && i < count; i++) {
        int64_t of = draw(CLASSES);
        for (int k = 0; k < LENGTH; k++) {
            int64_t first = draw(4) == 0 ? of * SIGNS : CLASSES * SIGNS;
            lk_tensor_set(x, i * LENGTH + k, (double)(first + draw(first == of * SIGNS ? SIGNS : WORDS - first)));
        }
        lk_tensor_set(y, i, (double)of);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

int main(void)
{
    lk_manual_seed(42);
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(1500), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(400), .batch_size = 32)});
    lk_module *words = lk_embedding(WORDS, 16), *head = lk_linear(16, CLASSES);
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_sequential(words, lk_mean(LK_SHAPE(1), false), head), /* the mean over the words */
        .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.02), .loaders = loaders, .num_epochs = 8,
        .callbacks = lk_callbacks(lk_accuracy_callback(.num_classes = CLASSES)),
        .valid_loader = "valid", .valid_metric = "accuracy01", .verbose = true);
    return learned(runner, status, "accuracy01", 0.85);
}
