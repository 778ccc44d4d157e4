/* What a user's program hands to the library: options of many kinds, a table of ops of each kind, and
 * components from a shared object. Prints what comes of it, every digit: the output must not depend on which
 * of two versions the program and the library were built from. program COMPONENTS.so CONFIG.yml
 *
 * With -DSET_LATER_FIELD it sets a field that only a later version's headers have. */
#include <lockstep/lockstep.h>

#include <stdio.h>
#include <string.h>

enum { SAMPLES = 64, WIDTH = 4 };

/* ---- A dataset: points and the side of a line that they lie on ---- */

static int64_t length(void *context)
{
    return *(int *)context;
}

static lk_status get(void *context, const lk_pass *pass, int64_t index, void *const *slots)
{
    (void)context, (void)pass;
    float *x = slots[0], sum = 0;
    for (int i = 0; i < WIDTH; i++) sum += x[i] = (float)((index * 7 + i * 13) % 29) / 29 - 0.5f;
    *(int64_t *)slots[1] = sum > 0;
    return LK_OK;
}

static const lk_dataset_ops points_ops = {LK_SIZE(lk_dataset_ops), .length = length, .get = get};

static lk_dataset *points(int *count)
{
    lk_field fields[] = {{"features", LK_F32, LK_SHAPE(WIDTH)}, {"targets", LK_I64, lk_scalar_shape()}};
    return lk_dataset_create(&points_ops, fields, 2, count);
}

/* ---- A callback, a logger and a runner ---- */

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    ++*(int *)callback->context;
    printf("epoch %lld: loss %.17g, lr %.17g\n", (long long)runner->epoch_step,
           lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss"),
           lk_optimizer_lr(runner->optimizer, 0));
    return LK_OK;
}

static const lk_callback_ops counter_ops = {LK_SIZE(lk_callback_ops), .name = "Counter",
                                            .on_epoch_end = epoch_end};

static lk_status log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                             lk_metric_values values)
{
    (void)scope;
    *(int *)context += values.count;
    return step->loader_key ? LK_OK : lk_fail(LK_ERR_INVALID, "no loader");
}

static const lk_logger_ops tally_ops = {LK_SIZE(lk_logger_ops), .log_metrics = log_metrics};

static lk_status get_engine(lk_runner *runner, lk_train_options *options)
{
    (void)runner;
    options->device = "cpu";
    options->thread_count = 1;
    return LK_OK;
}

static const lk_runner_ops runner_ops = {LK_SIZE(lk_runner_ops), .get_engine = get_engine};

static lk_optimizer *optimizer(void)
{
#ifdef SET_LATER_FIELD
    return lk_adam(.lr = 0.02, .later_field = 1);
#else
    return lk_adam(.lr = 0.02, .weight_decay = 1e-3);
#endif
}

static lk_status train(void)
{
    int count = SAMPLES, epochs = 0, logged = 0;
    lk_manual_seed(1);
    lk_runner *runner = lk_custom_runner(&runner_ops, NULL);
    lk_status status = lk_train(
        runner, .model = lk_sequential(lk_linear(WIDTH, 8), lk_batch_norm1d(8), lk_relu(), lk_linear(8, 2)),
        .criterion = lk_cross_entropy_loss(.label_smoothing = 0.1), .optimizer = optimizer(),
        .scheduler = lk_step_lr(2, .gamma = 0.5),
        .loaders = lk_loaders({"train", lk_loader(points(&count), .batch_size = 16, .shuffle = true)},
                              {"valid", lk_loader(points(&count), .batch_size = 10)}),
        .callbacks = lk_callbacks(lk_callback_create(&counter_ops, &epochs, LK_ORDER_EXTERNAL),
                                  lk_accuracy_callback(.num_classes = 2), lk_auc_callback()),
        .loggers = lk_loggers(lk_logger_create(&tally_ops, LK_LOG_LOADER, &logged)), .num_epochs = 3,
        .valid_loader = "valid", .no_checkpoints = true);
    char hash[LK_HASH_LENGTH + 1] = "";
    lk_state_dict *state = status ? NULL : lk_module_state_dict(runner->model);
    if (state) lk_weights_hash(state, hash);
    if (!status) printf("%d epochs, %d values, weights %s\n", epochs, logged, hash);
    lk_state_dict_free(state);
    lk_runner_free(runner);
    return status;
}

static lk_status run_config(const char *components, const char *path)
{
    lk_status status = lk_components_load(components);
    lk_config *config = status ? NULL : lk_config_create();
    if (config) status = lk_config_load(config, path);
    if (config && !status) status = lk_config_run(config);
    lk_config_free(config);
    return status;
}

int main(int argc, char **argv)
{
    lk_status status =
        argc == 3 ? train() : lk_fail(LK_ERR_INVALID, "usage: program COMPONENTS.so CONFIG.yml");
    if (!status) status = run_config(argv[1], argv[2]);
    if (status) fprintf(stderr, "%s\n", lk_error());
    return status != LK_OK;
}
