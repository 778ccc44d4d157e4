/* Catalyst's example "image segmentation": which pixels of a noisy picture belong to a disc. */
#include "minimal.h"

#include <lockstep/contrib.h>

enum { SIDE = 16, PIXELS = SIDE * SIDE };

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_randn(LK_SHAPE(count, 1, SIDE, SIDE)), *where = lk_rand(LK_SHAPE(count, 3));
    lk_tensor *y = lk_tensor_create(LK_F32, LK_SHAPE(count, 1, SIDE, SIDE));
    for (int64_t i = 0; x && where && y && i < count; i++) {
        double row = 4 + 8 * lk_tensor_get(where, i * 3), column = 4 + 8 * lk_tensor_get(where, i * 3 + 1);
        double radius = 2.5 + 2 * lk_tensor_get(where, i * 3 + 2);
        for (int p = 0; p < PIXELS; p++) {
            double dy = p / SIDE - row, dx = p % SIDE - column;
            bool inside = dx * dx + dy * dy < radius * radius;
            lk_tensor_set(y, i * PIXELS + p, inside);
            lk_tensor_set(x, i * PIXELS + p, 0.5 * lk_tensor_get(x, i * PIXELS + p) + inside);
        }
    }
    lk_tensor_free(where);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

int main(void)
{
    lk_manual_seed(42);
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(400), .batch_size = 16, .shuffle = true)},
                                        {"valid", lk_loader(samples(100), .batch_size = 16)});
    lk_module *first = lk_conv2d(1, 8, 3, .padding = 1), *second = lk_conv2d(8, 8, 5, .padding = 2),
              *last = lk_conv2d(8, 1, 3, .padding = 1);
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_sequential(first, lk_relu(), second, lk_relu(), last, lk_sigmoid()),
        .criterion = lk_iou_loss(), .optimizer = lk_adam(.lr = 0.02), .loaders = loaders, .num_epochs = 6,
        .callbacks = lk_callbacks(lk_iou_callback(.threshold = 0.5), lk_dice_callback(.threshold = 0.5),
                                  lk_trevsky_callback(.threshold = 0.5, .alpha = 0.2)),
        .valid_loader = "valid", .valid_metric = "iou", .verbose = true);
    return learned(runner, status, "iou", 0.8);
}
