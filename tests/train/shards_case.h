/* What the tests of runs with shards share: small pictures, models of every kind that a shard's state could
 * show in, and a run of them. */
#ifndef LKT_TRAIN_SHARDS_CASE_H
#define LKT_TRAIN_SHARDS_CASE_H

#include "case.h"

#include "base/status.h"

#include <signal.h>
#include <stdio.h>

enum { LKT_SIDE = 8, LKT_PICTURES = 210, LKT_VALID_PICTURES = 53, LKT_DIGITS = 5 };

typedef enum lkt_shard_model { LKT_PERCEPTRON, LKT_CONVNET } lkt_shard_model;

typedef struct lkt_shard_run {
    int shards, ranks, threads;
    lkt_shard_model model;
    const char *comm, *precision, *logdir, *autoresume;
    int accumulation, epochs, workers, batch_size;
    double clip_norm;
    bool mixes, drop_last, own_loss;
    int stop_epoch, stop_batch; /* raises SIGTERM there; 0: nowhere */
    bool stops_in_valid;
    int save_every, killed_rank; /* counted from 1: it kills itself there instead */
    /* What it comes to. */
    char hash[LK_HASH_LENGTH + 1];
    double loss, accuracy, valid_loss, auc;
} lkt_shard_run;

/* Bright squares whose place says the class, in noise. */
static lk_dataset *lkt_pictures(int64_t count, uint64_t seed)
{
    lk_generator generator;
    lk_generator_seed(&generator, seed);
    lk_tensor *x = lk_tensor_create(LK_F32, LK_SHAPE(count, 1, LKT_SIDE, LKT_SIDE)),
              *y = lk_tensor_create(LK_I64, LK_SHAPE(count));
    lk_normal(x, 0, 1, &generator);
    for (int64_t i = 0; i < count; i++) {
        int64_t class = lk_randint(LKT_DIGITS, &generator);
        int64_t corner = i * LKT_SIDE * LKT_SIDE + class * LKT_SIDE + class;
        lk_tensor_set(y, i, (double)class);
        for (int k = 0; k < 3; k++) lk_tensor_set(x, corner + k, lk_tensor_get(x, corner + k) + 2);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static lk_module *lkt_shard_module(lkt_shard_model model)
{
    lk_manual_seed(7);
    if (model == LKT_PERCEPTRON)
        return lk_sequential(lk_flatten(), lk_linear(LKT_SIDE * LKT_SIDE, 96), lk_batch_norm1d(96), lk_relu(),
                             lk_dropout(.p = 0.3), lk_linear(96, LKT_DIGITS));
    return lk_sequential(lk_conv2d(1, 12, 3, .padding = 1), lk_batch_norm2d(12), lk_relu(), lk_max_pool2d(2),
                         lk_conv2d(12, 16, 3, .padding = 1), lk_relu(), lk_flatten(), lk_dropout(.p = 0.2),
                         lk_linear(16 * 16, LKT_DIGITS));
}

static lk_status lkt_shard_stop(lk_callback *callback, lk_runner *runner)
{
    const lkt_shard_run *run = callback->context;
    bool is_here = run->stops_in_valid ? !runner->is_train_loader : runner->is_train_loader;
    if (is_here && runner->epoch_step == run->stop_epoch && runner->loader_batch_step == run->stop_batch)
        if (!run->killed_rank || run->killed_rank == runner->rank + 1)
            raise(run->killed_rank ? SIGKILL : SIGTERM);
    return LK_OK;
}

/* A loss whose samples are not known one by one. */
static lk_value *lkt_own_loss(lk_value *outputs, lk_value *targets, void *context)
{
    (void)context;
    return lk_op_mul_scalar(lk_op_cross_entropy(outputs, targets, NULL, LK_REDUCTION_MEAN, -100, 0), 0.7);
}

static lk_status lkt_shard_train(lkt_shard_run *run)
{
    lk_runner *runner = lk_supervised_runner();
    lk_module *model = lkt_shard_module(run->model);
    lk_transform *mix = run->mixes ? lk_mixup(.keys = {"features"}) : NULL;
    lk_loader *train =
        lk_loader(lk_transformed(lkt_pictures(LKT_PICTURES, 1), lk_transforms(lk_random_horizontal_flip())),
                  .batch_size = run->batch_size ? run->batch_size : 6, .num_workers = run->workers,
                  .drop_last = run->drop_last, .batch_transforms = {&mix, mix != NULL});
    lk_callback *callbacks[] = {
        lk_accuracy_callback(.num_classes = LKT_DIGITS), lk_auc_callback(.num_classes = LKT_DIGITS),
        lk_optimizer_callback(.accumulation_steps = run->accumulation, .clip_norm = run->clip_norm),
        lk_on(batch_end, lkt_shard_stop, run)};
    lk_optimizer *optimizer = lk_adam(.lr = 0.01);
    lk_status status = lk_train(
        runner, .model = model,
        .criterion = run->own_loss ? lk_custom_criterion(.forward = lkt_own_loss) : lk_cross_entropy_loss(),
        .optimizer = optimizer, .scheduler = lk_reduce_lr_on_plateau(.patience = 1),
        .loaders = lk_loaders({"train", train},
                              {"valid", lk_loader(lkt_pictures(LKT_VALID_PICTURES, 2), .batch_size = 4)}),
        .callbacks = {callbacks, 4}, .num_epochs = run->epochs ? run->epochs : 2, .seed = 11,
        .valid_loader = "valid", .logdir = run->logdir, .autoresume = run->autoresume, .nproc = run->ranks,
        .comm = run->comm, .precision = run->precision, .device = "cpu", .thread_count = run->threads,
        .check_replicas = 1, .shards = run->shards, .save_every = run->save_every);
    snprintf(run->hash, sizeof run->hash, "%s", lkt_hash(runner->model));
    const lk_metrics *trained = lk_runner_loader_metrics(runner, "train");
    const lk_metrics *valid = lk_runner_loader_metrics(runner, "valid");
    if (status == LK_OK) {
        run->loss = lk_metrics_get(trained, "loss");
        run->accuracy = lk_metrics_get(trained, "accuracy01");
        run->valid_loss = lk_metrics_get(valid, "loss");
        run->auc = lk_metrics_get(valid, "auc");
    }
    lk_runner_free(runner);
    return status;
}

/* The same weights and the same metrics, to the last bit. */
static void lkt_same_run(const lkt_shard_run *a, const lkt_shard_run *b)
{
    if (strcmp(a->hash, b->hash) != 0)
        fail_msg("%d shards: %d ranks of %d threads over %s end with %s, %d of %d over %s with %s", b->shards,
                 a->ranks, a->threads, a->comm ? a->comm : "auto", a->hash, b->ranks, b->threads,
                 b->comm ? b->comm : "auto", b->hash);
    const double ours[] = {a->loss, a->accuracy, a->valid_loss, a->auc},
                 theirs[] = {b->loss, b->accuracy, b->valid_loss, b->auc};
    for (int i = 0; i < 4; i++)
        if (memcmp(&ours[i], &theirs[i], sizeof ours[i]) != 0)
            fail_msg("%d and %d ranks: metric %d is %.17g and %.17g", a->ranks, b->ranks, i, ours[i],
                     theirs[i]);
}

#endif
