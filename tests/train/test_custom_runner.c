/* Runners of one's own: every part overridden, several models by key, several criteria. */
#include "case.h"

#include <sys/mman.h>

/* ---- Every get_ ---- */

typedef struct parts {
    int engine, loaders, model, criterion, optimizer, scheduler, callbacks, loggers, batches, frees;
    int epoch_ends, logged;
} parts;

static parts *parts_of(lk_runner *runner)
{
    return runner->context;
}

static lk_status get_engine(lk_runner *runner, lk_train_options *options)
{
    parts_of(runner)->engine++;
    options->device = "ref";
    return LK_OK;
}

static lk_status get_loaders(lk_runner *runner, lk_named_loader *out, int capacity, int *count)
{
    parts_of(runner)->loaders++;
    assert_true(capacity >= 2);
    out[0] = (lk_named_loader){"train", lk_loader(lkt_points(24, 1), .batch_size = 8)};
    out[1] = (lk_named_loader){"valid", lk_loader(lkt_points(8, 2), .batch_size = 8)};
    *count = 2;
    return LK_OK;
}

static lk_module *get_model(lk_runner *runner)
{
    parts_of(runner)->model++;
    return lkt_linear_model();
}

static lk_criterion *get_criterion(lk_runner *runner)
{
    parts_of(runner)->criterion++;
    return lk_cross_entropy_loss();
}

static lk_optimizer *get_optimizer(lk_runner *runner, lk_module *model)
{
    parts_of(runner)->optimizer++;
    assert_ptr_equal(model, runner->model);
    return lk_sgd(.lr = 0.4);
}

static lk_scheduler *get_scheduler(lk_runner *runner, lk_optimizer *optimizer)
{
    parts_of(runner)->scheduler++;
    assert_ptr_equal(optimizer, runner->optimizer);
    return lk_step_lr(1, .gamma = 0.5);
}

static lk_status count_epoch_end(lk_callback *callback, lk_runner *runner)
{
    (void)runner;
    ((parts *)callback->context)->epoch_ends++;
    return LK_OK;
}

static lk_status get_callbacks(lk_runner *runner, lk_callback **out, int capacity, int *count)
{
    parts_of(runner)->callbacks++;
    assert_true(capacity >= 1);
    out[(*count)++] = lk_on(epoch_end, count_epoch_end, runner->context);
    return LK_OK;
}

static lk_status log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                             lk_metric_values values)
{
    assert_int_equal(scope, LK_LOG_LOADER);
    assert_true(values.count > 0 && step->loader_key);
    ((parts *)context)->logged++;
    return LK_OK;
}

static lk_status get_loggers(lk_runner *runner, lk_logger **out, int capacity, int *count)
{
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops), .log_metrics = log_metrics};
    parts_of(runner)->loggers++;
    assert_true(capacity >= 1);
    out[(*count)++] = lk_logger_create(&ops, LK_LOG_LOADER, runner->context);
    return LK_OK;
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    parts_of(runner)->batches++;
    assert_ptr_equal(batch, runner->batch);
    return lk_runner_supervised_batch(runner, batch);
}

static void free_user(lk_runner *runner)
{
    parts_of(runner)->frees++;
}

static void every_part_can_be_overridden(void **state)
{
    (void)state;
    static const lk_runner_ops ops = {
        LK_SIZE(lk_runner_ops), get_engine,    get_loaders, get_model,    get_criterion, get_optimizer,
        get_scheduler,          get_callbacks, get_loggers, handle_batch, free_user};
    parts asked = {0};
    lk_runner *runner = lk_custom_runner(&ops, &asked);
    lkt_ok(lk_train(runner, .num_epochs = 3, .callbacks = lk_callbacks(lk_criterion_callback())));
    assert_string_equal(lk_engine_name(runner->engine), "ref");
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.05, 1e-12);
    lk_runner_free(runner);
    const parts expected = {1, 1, 1, 1, 1, 1, 1, 1, 3 * 4, 1, 3, 3 * 2};
    assert_memory_equal(&asked, &expected, sizeof asked);
}

static lk_status no_loaders(lk_runner *runner, lk_named_loader *out, int capacity, int *count)
{
    (void)runner;
    (void)capacity;
    out[0] = (lk_named_loader){"train", lk_loader(lkt_points(8, 1), .batch_size = 8)};
    out[1] = (lk_named_loader){"valid", lk_loader(lk_mnist("/nowhere"), .batch_size = 8)};
    out[2] = (lk_named_loader){"test", lk_loader(lkt_points(8, 1), .batch_size = 8)};
    *count = 3;
    return LK_OK;
}

static void a_part_that_cannot_be_made_is_the_error(void **state)
{
    (void)state;
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .get_loaders = no_loaders};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    assert_int_not_equal(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                                  .optimizer = lk_adam()),
                         LK_OK);
    lkt_contains(lk_error(), "/nowhere");
    lk_runner_free(runner);
}

/* The sentence is that of what failed last: it must not stand behind the key of what failed before. */
static void a_loader_is_not_blamed_for_another(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lk_loader *train = lk_loader(lk_mnist("/nowhere"), .batch_size = 8);
    lk_loader *valid = lk_loader(lk_mnist("/elsewhere"), .batch_size = 8);
    assert_int_not_equal(lk_train(runner, .model = lkt_linear_model(), .optimizer = lk_adam(),
                                  .loaders = lk_loaders({"train", train}, {"valid", valid})),
                         LK_OK);
    lkt_contains(lk_error(), "/elsewhere");
    assert_null(strstr(lk_error(), "train\""));
    lk_runner_free(runner);
}

/* ---- Two models, two optimizers, two steps: a generator against a discriminator ---- */

enum { NOISE = 4 };

static lk_value *find(const char *const *names, lk_value *const *inputs, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0) return inputs[i];
    return NULL;
}

static lk_value *score(lk_runner *runner, lk_value *x, lk_value *labels)
{
    return lk_criterion_forward(lk_runner_criterion(runner, "bce"),
                                lk_module_forward(lk_runner_model(runner, "discriminator"), x), labels);
}

static lk_value *judge(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                       void *context)
{
    lk_runner *runner = context;
    (void)graph;
    lk_value *fake =
        lk_module_forward(lk_runner_model(runner, "generator"), find(names, inputs, count, "noise"));
    return lk_op_add(
        score(runner, find(names, inputs, count, "features"), find(names, inputs, count, "ones")),
        score(runner, fake, find(names, inputs, count, "zeros")));
}

static lk_value *forge(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                       void *context)
{
    lk_runner *runner = context;
    lk_value *fake =
        lk_module_forward(lk_runner_model(runner, "generator"), find(names, inputs, count, "noise"));
    lk_graph_output(graph, "fake", fake);
    return score(runner, fake, find(names, inputs, count, "ones"));
}

static lk_status play(lk_runner *runner, const char *key, lk_step_function function, const lk_input *fields,
                      int count)
{
    lk_step *step = lk_runner_step(runner, key,
                                   LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, key),
                                              .optimizer = lk_runner_optimizer(runner, key),
                                              .function = function, .context = runner));
    char name[64];
    if (!step) return LK_ERR_INVALID;
    lk_status status =
        runner->is_train_loader ? lk_step_train(step, fields, count) : lk_step_evaluate(step, fields, count);
    if (status) return status;
    snprintf(name, sizeof name, "loss_%s", key);
    return lk_metrics_set(runner->batch_metrics, name, lk_step_loss(step));
}

static lk_status play_both(lk_runner *runner, const lk_batch *batch)
{
    lk_tensor *noise = lk_randn(LK_SHAPE(batch->count, NOISE));
    lk_tensor *ones = lk_tensor_full(LK_F32, LK_SHAPE(batch->count, 1), 1);
    lk_tensor *zeros = lk_tensor_full(LK_F32, LK_SHAPE(batch->count, 1), 0);
    const lk_input fields[] = {
        {"features", lk_batch_get(batch, "features")}, {"noise", noise}, {"ones", ones}, {"zeros", zeros}};
    lk_status status = play(runner, "discriminator", judge, fields, 4);
    if (status == LK_OK) status = play(runner, "generator", forge, fields, 4);
    lk_tensor_free(noise);
    lk_tensor_free(ones);
    lk_tensor_free(zeros);
    return status;
}

static lk_status stop_at(lk_callback *callback, lk_runner *runner)
{
    return runner->batch_step == *(int *)callback->context ? LK_ERR_INVALID : LK_OK;
}

static lk_status train_gan(const char *logdir, int fail_batch, char *hash, double *first, double *last)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = play_both};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_manual_seed(3);
    lkt_ok(lk_runner_add_model(runner, "generator",
                               lk_sequential(lk_linear(NOISE, 16), lk_relu(), lk_linear(16, LKT_FEATURES))));
    lkt_ok(lk_runner_add_model(runner, "discriminator",
                               lk_sequential(lk_linear(LKT_FEATURES, 16), lk_relu(), lk_linear(16, 1))));
    lkt_ok(lk_runner_add_optimizer(runner, "generator", lk_adam(.lr = 1e-2)));
    lkt_ok(lk_runner_add_optimizer(runner, "discriminator", lk_adam(.lr = 1e-3)));
    lkt_ok(lk_runner_add_criterion(runner, "bce", lk_bce_with_logits_loss()));
    lk_status status = lk_train(
        runner,
        .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8, .shuffle = true)},
                              {"valid", lk_loader(lkt_points(16, 2), .batch_size = 8)}),
        .callbacks = lk_callbacks(lk_criterion_callback(.metric_key = "loss_generator"),
                                  lk_criterion_callback(.metric_key = "loss_discriminator"),
                                  lk_checkpoint_callback(.save_every_batches = 3),
                                  lk_on(batch_end, stop_at, &fail_batch)),
        .num_epochs = 6, .logdir = logdir, .valid_loader = "valid", .valid_metric = "loss_discriminator",
        .minimize_valid_metric = true, .seed = 4, .autoresume = "last");
    snprintf(hash, 65, "%.30s%.30s", lkt_hash(lk_runner_model(runner, "generator")),
             lkt_hash(lk_runner_model(runner, "discriminator")));
    if (status == LK_OK) {
        *first = lkt_csv(logdir, "train", 1, "loss_generator");
        *last = lkt_csv(logdir, "train", 6, "loss_generator");
    }
    lk_runner_free(runner);
    return status;
}

static void a_generator_against_a_discriminator(void **state)
{
    (void)state;
    char hash[65], resumed[65], logdir[1024];
    double first = 0, last = 0;
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_gan"));
    lkt_ok(train_gan(logdir, 0, hash, &first, &last));
    assert_true(last < first); /* forging is learnt */
    /* Both models are in one file of weights, behind their keys. */
    lk_state_dict *best = lk_load_safetensors(lkt_path(logdir, "checkpoints/model.best.safetensors"));
    lkt_not_null(best);
    assert_true(lk_state_dict_has(best, "generator.0.weight") &&
                lk_state_dict_has(best, "discriminator.2.bias"));
    lk_state_dict_free(best);
    /* Both optimizers go on where they stopped, though their steps are made by the first batch. */
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_gan_resumed"));
    assert_int_equal(train_gan(logdir, 29, resumed, &first, &last), LK_ERR_INVALID);
    lkt_ok(train_gan(logdir, 0, resumed, &first, &last));
    assert_string_equal(resumed, hash);
}

/* ---- Several criteria ---- */

static lk_value *two_losses(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                            void *context)
{
    lk_runner *runner = context;
    lk_value *logits = lk_module_forward(runner->model, find(names, inputs, count, "features"));
    lk_value *entropy = lk_criterion_forward(lk_runner_criterion(runner, "entropy"), logits,
                                             find(names, inputs, count, "targets"));
    lk_value *size = lk_op_mean(lk_op_mul(logits, logits), (int[]){0, 1}, 2, false);
    lk_graph_output(graph, "logits", logits);
    lk_graph_output(graph, "entropy", entropy);
    lk_graph_output(graph, "size", size);
    return lk_op_add(entropy, lk_op_mul_scalar(size, 0.5));
}

static lk_status handle_two_losses(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step =
        lk_runner_step(runner, "both",
                       LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer,
                                  .function = two_losses, .context = runner));
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")},
                               {"targets", lk_batch_get(batch, "targets")}};
    if (!step) return LK_ERR_INVALID;
    lk_status status =
        runner->is_train_loader ? lk_step_train(step, fields, 2) : lk_step_evaluate(step, fields, 2);
    if (status) return status;
    double entropy = lk_tensor_get(lk_step_output(step, "entropy"), 0);
    double size = lk_tensor_get(lk_step_output(step, "size"), 0);
    lkt_close(lk_step_loss(step), entropy + 0.5 * size, 1e-6);
    lk_metrics_set(runner->batch_metrics, "entropy", entropy);
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static void train_two_losses(const char *logdir, int epochs, char *hash)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = handle_two_losses};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lkt_ok(lk_runner_add_criterion(runner, "entropy", lk_cross_entropy_loss()));
    lkt_fails(lk_runner_add_criterion(runner, "entropy", lk_mse_loss()), LK_ERR_INVALID, "already");
    lkt_ok(lk_train(
        runner, .model = lkt_linear_model(), .optimizer = lk_adam(.lr = 0.1),
        .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8, .shuffle = true)}),
        .callbacks = lk_callbacks(lk_criterion_callback(), lk_criterion_callback(.metric_key = "entropy")),
        .num_epochs = epochs, .logdir = logdir, .autoresume = "last", .seed = 9));
    const lk_metrics *train = lk_runner_loader_metrics(runner, "train");
    assert_true(lk_metrics_get(train, "loss") > lk_metrics_get(train, "entropy"));
    assert_null(lk_runner_model(runner, "none"));
    strcpy(hash, lkt_hash(runner->model));
    lk_runner_free(runner);
}

static void several_criteria(void **state)
{
    (void)state;
    char hash[65], resumed[65], logdir[1024];
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_criteria"));
    train_two_losses(logdir, 4, hash);
    snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_criteria_resumed"));
    train_two_losses(logdir, 2, resumed);
    train_two_losses(logdir, 4, resumed);
    assert_string_equal(resumed, hash);
}

/* ---- One runner, several runs ---- */

static void a_runner_trains_twice(void **state)
{
    (void)state;
    lk_runner *runner = lk_supervised_runner();
    lkt_ok(lk_train(runner, .model = lkt_linear_model(), .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.1), .scheduler = lk_step_lr(1, .gamma = 0.5), .num_epochs = 2,
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)})));
    double first = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "loss");
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.025, 1e-12);
    lkt_ok(lk_train(runner, .num_epochs = 2,
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)})));
    assert_true(lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "loss") < first);
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.1 / 16, 1e-12);
    lkt_ok(lk_train(runner, .optimizer = lk_adam(.lr = 0.01),
                    .callbacks = lk_callbacks(lk_optimizer_callback(.accumulation_steps = 2)),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 16)})));
    lkt_close(lk_optimizer_lr(runner->optimizer, 0), 0.01, 1e-12);
    lkt_ok(lk_train(runner, .model = lkt_deep_model(),
                    .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 16)})));
    lk_runner_free(runner);
}

/* ---- A model by key, on ranks ---- */

enum { RANKS = 2, MEANS = 3 };
typedef double means[RANKS][MEANS];

static lk_status batch_of_keyed_model(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "m",
                                   LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, "m"),
                                              .optimizer = lk_runner_optimizer(runner, "m"),
                                              .criterion = lk_runner_criterion(runner, "m")));
    if (!step) return LK_ERR_INVALID;
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")},
                               {"targets", lk_batch_get(batch, "targets")}};
    lk_status status =
        runner->is_train_loader ? lk_step_train(step, fields, 2) : lk_step_evaluate(step, fields, 2);
    return status ? status : lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static lk_status note_means(lk_callback *callback, lk_runner *runner)
{
    means *seen = callback->context;
    if (!runner->is_train_loader)
        lkt_weights(lk_runner_model(runner, "m"), "1.running_mean", (*seen)[runner->rank], MEANS);
    return LK_OK;
}

/* All ranks evaluate the same model, and a second run finds neither the comm nor the engine of the first. */
static void keyed_models_train_on_ranks_twice(void **state)
{
    (void)state;
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = batch_of_keyed_model};
    means *seen = mmap(NULL, sizeof *seen, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(seen != MAP_FAILED);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lkt_ok(lk_runner_add_model(runner, "m", lkt_deep_model()));
    lkt_ok(lk_runner_add_optimizer(runner, "m", lk_adam(.lr = 0.01)));
    lkt_ok(lk_runner_add_criterion(runner, "m", lk_cross_entropy_loss()));
    for (int i = 0; i < 3; i++) {
        memset(*seen, 0, sizeof *seen);
        lkt_ok(lk_train(runner,
                        .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)},
                                              {"valid", lk_loader(lkt_points(16, 2), .batch_size = 8)}),
                        .callbacks =
                            lk_callbacks(lk_criterion_callback(), lk_on(loader_start, note_means, seen)),
                        .seed = 4, .nproc = i == 1 ? 1 : RANKS, .thread_count = 1));
        assert_true((*seen)[0][0] != 0);
        if (i != 1) assert_memory_equal((*seen)[0], (*seen)[1], sizeof(*seen)[0]);
    }
    lk_runner_free(runner);
    munmap(seen, sizeof *seen);
}

static lk_runner *keyed_runner(void)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = batch_of_keyed_model};
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lkt_ok(lk_runner_add_model(runner, "m", lkt_deep_model()));
    lkt_ok(lk_runner_add_optimizer(runner, "m", lk_adam(.lr = 0.01)));
    lkt_ok(lk_runner_add_criterion(runner, "m", lk_cross_entropy_loss()));
    return runner;
}

/* The step by key is made anew for a run that trains other parameters of its model. */
static void keyed_models_are_frozen_between_runs(void **state)
{
    (void)state;
    lk_runner *runner = keyed_runner();
    lk_module *model = lk_runner_model(runner, "m");
    double before[4], after[4];
    for (int i = 0; i < 3; i++) {
        lkt_weights(model, "0.weight", before, 4);
        lkt_ok(lk_train(runner,
                        .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)}),
                        .device = "cpu", .thread_count = 1));
        lkt_weights(model, "0.weight", after, 4);
        assert_int_equal(memcmp(before, after, sizeof before) == 0, i == 1);
        lk_module_param(model, "0.weight")->trainable = i > 0;
    }
    lk_runner_free(runner);
}

static lk_status train_keyed(lk_runner *runner, int nproc, int epochs, const char *logdir, bool resume)
{
    return lk_train(runner, .loaders = lk_loaders({"train", lk_loader(lkt_points(64, 1), .batch_size = 8)}),
                    .callbacks = lk_callbacks(lk_criterion_callback()), .num_epochs = epochs, .seed = 4,
                    .logdir = logdir,
                    .resume = resume ? lkt_path(logdir, "checkpoints/runner.last.safetensors") : NULL,
                    .nproc = nproc, .device = "cpu", .thread_count = 1);
}

/* What the optimizer knows of frozen parameters is saved, and so is that they are frozen. */
static void frozen_keyed_models_are_resumed(void **state)
{
    (void)state;
    char logdir[1024], hashes[2][65];
    for (int stops = 0; stops < 2; stops++) {
        lk_runner *runner = keyed_runner();
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_keyed_frozen"));
        lkt_ok(train_keyed(runner, 1, 1, NULL, false));
        lk_module_param(lk_runner_model(runner, "m"), "0.weight")->trainable = false;
        lkt_ok(train_keyed(runner, 1, stops ? 1 : 2, logdir, false));
        if (stops) {
            lk_runner_free(runner);
            runner = keyed_runner();
            lkt_ok(train_keyed(runner, 1, 2, logdir, true));
            assert_false(lk_module_param(lk_runner_model(runner, "m"), "0.weight")->trainable);
        }
        lk_module_set_trainable(lk_runner_model(runner, "m"), true);
        lkt_ok(train_keyed(runner, 1, 1, NULL, false));
        strcpy(hashes[stops], lkt_hash(lk_runner_model(runner, "m")));
        lk_runner_free(runner);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

/* ---- A model by key that rests ---- */

static lk_status train_one(lk_runner *runner, const lk_batch *batch, const char *key)
{
    lk_step *step = lk_runner_step(runner, key,
                                   LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, key),
                                              .optimizer = lk_runner_optimizer(runner, key),
                                              .criterion = lk_runner_criterion(runner, key)));
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")},
                               {"targets", lk_batch_get(batch, "targets")}};
    if (!step) return LK_ERR_INVALID;
    lk_status status = lk_step_train(step, fields, 2);
    return status ? status : lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static lk_status batch_of_two(lk_runner *runner, const lk_batch *batch)
{
    const int64_t *wakes = runner->context; /* the epoch from which "b" trains */
    lk_status status = train_one(runner, batch, "a");
    return status || runner->epoch_step < *wakes ? status : train_one(runner, batch, "b");
}

static lk_runner *runner_of_two(int64_t *wakes)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = batch_of_two};
    lk_runner *runner = lk_custom_runner(&ops, wakes);
    for (int i = 0; i < 2; i++) {
        const char *key = i ? "b" : "a";
        lkt_ok(lk_runner_add_model(runner, key, lkt_linear_model()));
        lkt_ok(lk_runner_add_optimizer(runner, key, lk_adam(.lr = 0.05)));
        lkt_ok(lk_runner_add_criterion(runner, key, lk_cross_entropy_loss()));
    }
    return runner;
}

/* "b" rests in the first two epochs; it may have been trained before. */
static void check_resting(bool trained)
{
    char logdir[1024], hashes[2][65];
    for (int stops = 0; stops < 2; stops++) {
        int64_t wakes = 1;
        lk_runner *runner = runner_of_two(&wakes);
        snprintf(logdir, sizeof logdir, "%s", lkt_scratch_folder("train_keyed_rests"));
        if (trained) lkt_ok(train_keyed(runner, RANKS, 1, NULL, false));
        wakes = 3;
        lkt_ok(train_keyed(runner, 1, stops ? 1 : 3, logdir, false));
        for (int epochs = 2; stops && epochs <= 3; epochs++) {
            lk_runner_free(runner);
            runner = runner_of_two(&wakes);
            lkt_ok(train_keyed(runner, 1, epochs, logdir, true));
        }
        strcpy(hashes[stops], lkt_hash(lk_runner_model(runner, "b")));
        lk_runner_free(runner);
    }
    assert_string_equal(hashes[0], hashes[1]);
}

/* Its optimizer's state is in every checkpoint: what a run on ranks has left, and what was resumed. */
static void what_rests_is_saved(void **state)
{
    (void)state;
    check_resting(true);
    check_resting(false);
}

/* All ranks make a step together: not where one of them has no batch to make it for. */
static void ranks_without_a_batch_are_named(void **state)
{
    (void)state;
    lk_runner *runner = keyed_runner();
    lk_status status =
        lk_train(runner,
                 .loaders = lk_loaders({"valid", lk_loader(lkt_points(1, 2), .batch_size = 8)},
                                       {"train", lk_loader(lkt_points(64, 1), .batch_size = 8)}),
                 .nproc = RANKS, .device = "cpu", .thread_count = 1);
    assert_int_equal(status, LK_ERR_INVALID);
    lkt_contains(lk_error(), "loader \"valid\" has no batch for some of the 2 ranks");
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keyed_models_train_on_ranks_twice),
        cmocka_unit_test(keyed_models_are_frozen_between_runs),
        cmocka_unit_test(frozen_keyed_models_are_resumed),
        cmocka_unit_test(what_rests_is_saved),
        cmocka_unit_test(ranks_without_a_batch_are_named),
        cmocka_unit_test(every_part_can_be_overridden),
        cmocka_unit_test(a_part_that_cannot_be_made_is_the_error),
        cmocka_unit_test(a_loader_is_not_blamed_for_another),
        cmocka_unit_test(a_generator_against_a_discriminator),
        cmocka_unit_test(several_criteria),
        cmocka_unit_test(a_runner_trains_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
