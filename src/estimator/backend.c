/* The training backend: what an estimator does to train. It is written against the public header alone, so a
 * project may have its own copy: `lockstep create --gtb` puts this file there, and what you change in it
 * changes the training. Adjust the runner, its callbacks, or what is passed to lk_train. */
#include <lockstep/lockstep.h>

lk_status lk_supervised_backend(const lk_training *training)
{
    const lk_estimator_config *config = training->config;
    const char *loader_key = training->loaders.items[0].key, *metric_key = "loss";
    lk_callback *callbacks[LK_MAX_TRAINING_CALLBACKS + 3];
    int count = 0;

    callbacks[count++] =
        lk_early_stopping_callback(.patience = config->patience, .min_delta = config->min_delta,
                                   .loader_key = loader_key, .metric_key = metric_key, .minimize = true);
    callbacks[count++] = lk_scheduler_callback(.loader_key = loader_key, .metric_key = metric_key);
    callbacks[count++] = lk_skip_checkpoint_callback();
    /* The estimator's own: they keep its losses and what a save needs. */
    for (int i = 0; i < training->callbacks.count; i++) callbacks[count++] = training->callbacks.items[i];

    return lk_train(training->runner, .model = training->model, .criterion = training->criterion,
                    .optimizer = training->optimizer, .scheduler = training->scheduler,
                    .loaders = training->loaders, .logdir = config->logdir,
                    .overwrite = config->logdir != NULL, .num_epochs = config->n_epochs,
                    .callbacks = {callbacks, count}, .valid_loader = loader_key, .valid_metric = metric_key,
                    .minimize_valid_metric = true, .verbose = false, .check = false, .device = config->device,
                    .ddp = config->ddp, .nproc = config->ddp ? config->nproc : 0);
}
