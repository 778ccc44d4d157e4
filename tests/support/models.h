/* The networks that are trained and timed in more than one place: the tests of tests/train compare their
 * losses with PyTorch's and between engines, the programs of bench/ time their steps. tests/oracle/models.py
 * has the same.
 *
 * A model belongs to who calls its function, as every module does; NULL with the sentence in lk_error() where
 * one cannot be made. */
#ifndef LKT_MODELS_H
#define LKT_MODELS_H

#include <lockstep/nn.h>
#include <lockstep/optim.h>

/* One of them with what it is trained by, and on. */
typedef struct workload {
    const char *name;
    lk_module *(*model)(void);
    lk_criterion *(*criterion)(void);
    lk_optimizer *(*optimizer)(void);
    lk_shape input, target; /* a target of rank 1 is a class of ten */
} workload;

static inline lk_module *mnist_linear(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 10));
}

static inline lk_module *toy_mlp(void)
{
    return lk_sequential(lk_linear(784, 100), lk_relu(), lk_linear(100, 10));
}

/* Sapsan's network for cubes whose flat target has `outputs` numbers. */
static inline lk_module *cnn3d(int64_t channels, int64_t outputs)
{
    return lk_sequential(
        lk_conv3d(channels, 2 * channels, 2, .stride = 2, .padding = 1), lk_max_pool3d(2, .padding = 1),
        lk_relu(), lk_conv3d(2 * channels, 2 * channels, 2, .stride = 2, .padding = 1),
        lk_max_pool3d(2, .padding = 1), lk_relu(),
        lk_conv3d(2 * channels, 4 * channels, 2, .stride = 2, .padding = 1), lk_max_pool3d(2), lk_flatten(),
        lk_linear(4 * channels, 8 * channels), lk_relu(), lk_linear(8 * channels, outputs));
}

static inline lk_module *cnn3d_16(void)
{
    return cnn3d(3, 3 * 16 * 16 * 16);
}

static inline lk_module *cnn3d_32(void)
{
    return cnn3d(3, 3 * 32 * 32 * 32);
}

static inline lk_module *convnet(void)
{
    return lk_sequential(lk_conv2d(1, 32, 3), lk_relu(), lk_conv2d(32, 64, 3), lk_relu(), lk_max_pool2d(2),
                         lk_flatten(), lk_linear(9216, 128), lk_relu(), lk_linear(128, 10));
}

static inline lk_criterion *cross_entropy(void)
{
    return lk_cross_entropy_loss();
}

static inline lk_criterion *smooth_l1(void)
{
    return lk_smooth_l1_loss();
}

static inline lk_optimizer *adam_002(void)
{
    return lk_adam(.lr = 0.02);
}

static inline lk_optimizer *adam_0001(void)
{
    return lk_adam(.lr = 1e-3);
}

static inline lk_optimizer *sgd(void)
{
    return lk_sgd(.lr = 1e-3);
}

#endif
