/* Callbacks of one's own: a whole one with a state that survives a restart, and two of a single function.
 *
 *     build/examples/04_custom_callback [LOGDIR]
 *
 * Start it, stop it with Ctrl-C, start it again: it goes on where it was. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

/* How often an epoch's loss was below every earlier one. */
typedef struct records {
    double best;
    int64_t count;
} records;

static lk_status epoch_end(lk_callback *callback, lk_runner *runner)
{
    records *records = callback->context;
    double loss = lk_metrics_get(lk_runner_loader_metrics(runner, "valid"), "loss");
    if (records->count == 0 || loss < records->best) {
        records->best = loss;
        records->count++;
    }
    return lk_metrics_set(runner->epoch_metrics, "records", (double)records->count);
}

static lk_status save_state(lk_callback *callback, lk_state_dict *state, const char *prefix)
{
    const records *records = callback->context;
    char name[256];
    snprintf(name, sizeof name, "%srecords", prefix);
    const double numbers[] = {records->best, (double)records->count};
    return lk_state_dict_put(state, name, lk_tensor_from(LK_F64, LK_SHAPE(2), numbers));
}

static lk_status load_state(lk_callback *callback, const lk_state_dict *state, const char *prefix)
{
    records *records = callback->context;
    char name[256];
    snprintf(name, sizeof name, "%srecords", prefix);
    const lk_tensor *numbers = lk_state_dict_get(state, name);
    if (!numbers) return LK_ERR_FORMAT;
    records->best = lk_tensor_get(numbers, 0);
    records->count = (int64_t)lk_tensor_get(numbers, 1);
    return LK_OK;
}

/* Torchbearer's on_sample: a little noise on what the model learns from. The default generator is part of what a run
 * saves, so a resumed run adds the noise that it would have added. */
static lk_status add_noise(lk_callback *callback, lk_runner *runner)
{
    lk_generator *generator = lk_default_generator();
    lk_tensor *features = lk_batch_get(runner->batch, "features");
    (void)callback;
    if (!runner->is_train_loader) return LK_OK;
    for (int64_t i = 0; i < lk_tensor_count(features); i++)
        lk_tensor_set(features, i, lk_tensor_get(features, i) + 0.1 * (lk_generator_f64(generator) - 0.5));
    return LK_OK;
}

static lk_status report_first_batch(lk_callback *callback, lk_runner *runner)
{
    (void)callback;
    if (runner->is_master)
        printf("first batch of epoch %lld: loss %.4f\n", (long long)runner->epoch_step,
               lk_metrics_get(runner->batch_metrics, "loss"));
    return LK_OK;
}

int main(int argc, char **argv)
{
    static const lk_callback_ops records_callback = {LK_SIZE(lk_callback_ops),
                                                     .name = "Records",
                                                     .on_epoch_end = epoch_end,
                                                     .save_state = save_state,
                                                     .load_state = load_state};
    records records = {0};
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 1, "[LOGDIR]");
    if (code >= 0) return code;
    lk_manual_seed(42);

    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner,
        .model = lk_sequential(lk_flatten(), lk_linear(28 * 28, 10)),
        .criterion = lk_cross_entropy_loss(),
        .optimizer = lk_sgd(.lr = 0.1),
        .loaders = lk_loaders(
            {"train", lk_loader(lk_synthetic_digits(.train = true, .count = 4000), .batch_size = 32, .shuffle = true)},
            {"valid", lk_loader(lk_synthetic_digits(.count = 1000), .batch_size = 100)}),
        .callbacks = lk_callbacks(
            lk_callback_create(&records_callback, &records, LK_ORDER_EXTERNAL),
            lk_on(sample, add_noise, NULL),
            lk_once_per_epoch(lk_on(batch_end, report_first_batch, NULL)),
            lk_early_stopping_callback(.patience = 3)),
        .num_epochs = 5, .logdir = argc > 1 ? argv[1] : "./logs/custom_callback", .valid_loader = "valid",
        .autoresume = "last", .verbose = true);
    if (status && status != LK_ERR_STOPPED) fprintf(stderr, "%s\n", lk_error());
    if (lk_rank() == 0) printf("%lld records, the best loss %.4f\n", (long long)records.count, records.best);
    lk_runner_free(runner);
    return status != LK_OK;
}
