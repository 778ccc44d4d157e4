/* The networks of docs/performance.md as workloads, and one as large as ResNet-50. */
#include "cli/bench/scaling.h"

#include "base/memory.h"
#include "base/status.h"

#include <lockstep/optim.h>

#include <stdio.h>
#include <string.h>

enum { MAX_GRADIENTS = 16, RESNET_GRADIENTS = 161, RESNET_BATCH = 32 };

typedef struct network {
    const char *name;
    lk_module *(*model)(void);
    bool sgd, classes;
    lk_shape x, y;
    double forward_us, backward_us, update_us;
    struct {
        int64_t count;
        double ready; /* as a share of the backward half */
    } gradients[MAX_GRADIENTS];
} network;

static lk_module *mnist_linear(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 10));
}

static lk_module *mlp(void)
{
    return lk_sequential(lk_flatten(), lk_linear(784, 100), lk_relu(), lk_linear(100, 10));
}

static lk_module *convnet(void)
{
    return lk_sequential(lk_conv2d(1, 32, 3), lk_relu(), lk_conv2d(32, 64, 3), lk_relu(), lk_max_pool2d(2),
                         lk_flatten(), lk_linear(9216, 128), lk_relu(), lk_linear(128, 10));
}

static lk_module *cnn3d(void)
{
    return lk_sequential(lk_conv3d(3, 6, 2, .stride = 2, .padding = 1), lk_max_pool3d(2, .padding = 1),
                         lk_relu(), lk_conv3d(6, 6, 2, .stride = 2, .padding = 1),
                         lk_max_pool3d(2, .padding = 1), lk_relu(),
                         lk_conv3d(6, 12, 2, .stride = 2, .padding = 1), lk_max_pool3d(2), lk_flatten(),
                         lk_linear(12, 24), lk_relu(), lk_linear(24, 98304));
}

/* Of one core; a gradient's share is of the backward half, which finishes the last parameters first. */
static const network networks[] = {
    {"mnist-linear",
     mnist_linear,
     false,
     true,
     {4, {32, 1, 28, 28}},
     {1, {32}},
     5.1,
     5.7,
     2.3,
     {{7840, 1}, {10, 1}}},
    {"mlp",
     mlp,
     true,
     true,
     {4, {128, 1, 28, 28}},
     {1, {128}},
     200,
     201,
     6.4,
     {{78400, 1}, {100, 1}, {1000, 0.043}, {10, 0.043}}},
    {"convnet",
     convnet,
     false,
     true,
     {4, {64, 1, 28, 28}},
     {1, {64}},
     9600,
     20650,
     650,
     {{288, 1},
      {32, 1},
      {18432, 0.965},
      {64, 0.965},
      {1179648, 0.1},
      {128, 0.1},
      {1280, 0.001},
      {10, 0.001}}},
    {"cnn3d",
     cnn3d,
     false,
     false,
     {5, {16, 3, 32, 32, 32}},
     {2, {16, 98304}},
     3560,
     4730,
     1200,
     {{144, 1},
      {6, 1},
      {288, 0.719},
      {6, 0.719},
      {576, 0.684},
      {12, 0.684},
      {288, 0.677},
      {24, 0.677},
      {2359296, 0.677},
      {98304, 0.677}}},
};
enum { NETWORKS = sizeof networks / sizeof *networks };

static const char resnet[] = "resnet-50";

const char *const *lki_workload_names(void)
{
    static const char *names[NETWORKS + 2];
    for (int i = 0; i < NETWORKS; i++) names[i] = networks[i].name;
    names[NETWORKS] = resnet;
    return names;
}

/* ---- As large as ResNet-50 ---- */

/* While its parameters are listed in order: the multiplications of each say when its gradient is there. */
typedef struct listing {
    lki_workload *w;
    double flops[RESNET_GRADIENTS], all_flops;
} listing;

static void add_gradient(listing *l, int64_t count, double flops)
{
    int i = l->w->gradient_count++;
    l->w->gradients[i].nbytes = count * (int64_t)sizeof(float);
    l->w->parameter_count += count;
    l->flops[i] = flops;
    l->all_flops += flops;
}

/* A convolution to size x size outputs and its batch norm. */
static void add_conv(listing *l, int64_t in, int64_t out, int64_t kernel, int64_t size)
{
    int64_t weights = in * out * kernel * kernel;
    add_gradient(l, weights, (double)(weights * size * size));
    add_gradient(l, out, 0);
    add_gradient(l, out, 0);
}

static void list_resnet(listing *l)
{
    static const int blocks[] = {3, 4, 6, 3};
    int64_t in = 64, width = 64, size = 56;
    add_conv(l, 3, 64, 7, 112);
    for (int stage = 0; stage < 4; stage++, width *= 2, size /= 2)
        for (int block = 0; block < blocks[stage]; block++, in = 4 * width) {
            int64_t before = block == 0 && stage > 0 ? 2 * size : size;
            add_conv(l, in, width, 1, before);
            add_conv(l, width, width, 3, size);
            add_conv(l, width, 4 * width, 1, size);
            if (block == 0) add_conv(l, in, 4 * width, 1, size);
        }
    add_gradient(l, 2048 * 1000, 2048 * 1000);
    add_gradient(l, 1000, 0);
}

/* The backward half goes from the last parameter to the first and takes twice the forward half. */
static lk_status make_resnet(lki_workload *w)
{
    listing l = {.w = w};
    double done = 0;
    w->gradients = LKI_NEW_ARRAY(lki_gradient, RESNET_GRADIENTS);
    if (!w->gradients) return LK_ERR_NOMEM;
    list_resnet(&l);
    w->batch_size = RESNET_BATCH;
    w->forward_s = 0.032;
    w->backward_s = 0.064;
    w->update_s = 0.004;
    for (int i = w->gradient_count - 1; i >= 0; i--) {
        done += l.flops[i];
        w->gradients[i].ready_s = w->backward_s * done / l.all_flops;
    }
    return LK_OK;
}

/* ---- By name ---- */

static const network *find(const char *name)
{
    for (int i = 0; i < NETWORKS; i++)
        if (strcmp(networks[i].name, name) == 0) return &networks[i];
    return NULL;
}

static lk_status unknown(const char *name)
{
    return lki_fail(
        LK_ERR_NOT_FOUND,
        "there is no network \"%.60s\" to predict: known are mnist-linear, mlp, convnet, cnn3d and resnet-50",
        name);
}

lk_status lki_workload_named(lki_workload *out, const char *name)
{
    const network *n = find(name);
    *out = (lki_workload){0};
    if (!n && strcmp(name, resnet) != 0) return unknown(name);
    snprintf(out->name, sizeof out->name, "%s", name);
    if (!n) return make_resnet(out);
    out->gradients = LKI_NEW_ARRAY(lki_gradient, MAX_GRADIENTS);
    if (!out->gradients) return LK_ERR_NOMEM;
    out->batch_size = n->x.dim[0];
    out->forward_s = n->forward_us * 1e-6;
    out->backward_s = n->backward_us * 1e-6;
    out->update_s = n->update_us * 1e-6;
    for (int i = 0; i < MAX_GRADIENTS && n->gradients[i].count; i++, out->gradient_count++) {
        out->gradients[i].nbytes = n->gradients[i].count * (int64_t)sizeof(float);
        out->gradients[i].ready_s = n->gradients[i].ready * out->backward_s;
        out->parameter_count += n->gradients[i].count;
    }
    return LK_OK;
}

static lk_tensor *make_targets(const network *n)
{
    if (!n->classes) return lk_rand(n->y);
    lk_tensor *y = lk_tensor_create(LK_I64, n->y);
    for (int64_t i = 0; y && i < n->y.dim[0]; i++) lk_tensor_set(y, i, (double)(i % 10));
    return y;
}

lk_status lki_trial_init(lki_trial *trial, const char *name, int thread_count)
{
    const network *n = find(name);
    *trial = (lki_trial){0};
    if (!n && strcmp(name, resnet) == 0)
        return lki_fail(LK_ERR_UNSUPPORTED, "%s is only a size here, and cannot be run: use --simulate",
                        name);
    if (!n) return unknown(name);
    lk_manual_seed(0);
    trial->engine = lk_engine_open("auto", LK_OPTIONS(lk_engine_options, .thread_count = thread_count));
    trial->step = lk_step(.model = n->model(), .engine = trial->engine, .owned = true,
                          .criterion = n->classes ? lk_cross_entropy_loss() : lk_smooth_l1_loss(),
                          .optimizer = n->sgd ? lk_sgd(.lr = 1e-3) : lk_adam(.lr = 1e-3));
    trial->x = lk_rand(n->x);
    trial->y = make_targets(n);
    lk_input batch[] = {{"features", trial->x}, {"targets", trial->y}};
    lk_status status = trial->engine && trial->step && trial->x && trial->y
                           ? lk_step_train(trial->step, batch, 2)
                           : lki_last_status();
    if (status) lki_trial_fini(trial);
    return status;
}

void lki_trial_fini(lki_trial *trial)
{
    lk_step_free(trial->step);
    lk_engine_close(trial->engine);
    lk_tensor_free(trial->x);
    lk_tensor_free(trial->y);
    *trial = (lki_trial){0};
}
