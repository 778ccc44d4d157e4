/* A generator against a discriminator, as in tests.pipelines.test_gan of Catalyst.
 *
 * Catalyst's callbacks compute both losses, then both backward halves, then both updates: so the
 * discriminator's gradients are those of the sum of both losses, and the generator's those of its own. Here
 * each model has a step: both go backward before either is updated. */
#include "shared.h"

#include <stdlib.h>

/* (n, 784) -> (n, 1, 28, 28) */
static lk_value *as_pictures(lk_value *x, void *context)
{
    (void)context;
    return lk_op_reshape(x, LK_SHAPE(-1, 1, 28, 28));
}

static lk_status build_pictures(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args;
    *out = lk_function(as_pictures, NULL);
    return *out ? LK_OK : lk_error_status();
}

static const lk_component pictures = {.name = "tests.pipelines.test_gan._ddp_hack", .kind = LK_KIND_MODULE,
                                      .help = "Rows of 784 numbers as pictures.", .build = build_pictures};

/* ---- The two losses ---- */

static lk_value *judge(const lk_runner *runner, lk_value *pictures_, lk_value *labels, const char *criterion,
                       lk_value **predictions)
{
    *predictions = lk_module_forward(lk_runner_model(runner, "discriminator"), pictures_);
    return lk_criterion_forward(lk_runner_criterion(runner, criterion), *predictions, labels);
}

static lk_value *discriminator_loss(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                                    const lk_runner *runner)
{
    lk_value *predictions, *noise = find_input(names, inputs, count, "noise");
    lk_value *fake = lk_op_detach(lk_module_forward(lk_runner_model(runner, "generator"), noise));
    lk_value *both[] = {fake, find_input(names, inputs, count, "features")};
    lk_value *loss = judge(runner, lk_op_concat(both, 2, 0), find_input(names, inputs, count, "labels"),
                           "discriminator", &predictions);
    lk_graph_output(graph, "combined_predictions", predictions);
    lk_graph_output(graph, "loss_discriminator", loss);
    return loss;
}

static lk_value *generator_loss(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                                const lk_runner *runner)
{
    lk_value *predictions, *noise = find_input(names, inputs, count, "more_noise");
    lk_value *fake = lk_module_forward(lk_runner_model(runner, "generator"), noise);
    lk_value *loss = judge(runner, fake, find_input(names, inputs, count, "misleading_labels"), "generator", &predictions);
    lk_graph_output(graph, "generated_predictions", predictions);
    lk_graph_output(graph, "loss_generator", loss);
    return loss;
}

static lk_value *for_discriminator(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                                   void *context)
{
    return lk_op_add(discriminator_loss(graph, names, inputs, count, context),
                     generator_loss(graph, names, inputs, count, context));
}

static lk_value *for_generator(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                               void *context)
{
    return generator_loss(graph, names, inputs, count, context);
}

/* ---- A batch ---- */

typedef struct drawn {
    lk_tensor *noise, *labels, *more_noise, *misleading_labels;
} drawn;

/* The same numbers in the same order as the Python class draws them. */
static lk_status draw(drawn *d, int64_t count, int64_t latent_dim)
{
    d->noise = lk_randn(LK_SHAPE(count, latent_dim));
    lk_tensor *jitter = lk_rand(LK_SHAPE(2 * count, 1));
    d->more_noise = lk_randn(LK_SHAPE(count, latent_dim));
    d->labels = lk_tensor_create(LK_F32, LK_SHAPE(2 * count, 1));
    d->misleading_labels = lk_tensor_full(LK_F32, LK_SHAPE(count, 1), 0);
    for (int64_t i = 0; d->labels && jitter && i < 2 * count; i++)
        lk_tensor_set(d->labels, i, (i < count) + 0.05 * lk_tensor_get(jitter, i));
    lk_tensor_free(jitter);
    return d->noise && d->more_noise && d->labels && d->misleading_labels ? LK_OK : lk_error_status();
}

static void drop(drawn *d)
{
    lk_tensor_free(d->noise);
    lk_tensor_free(d->labels);
    lk_tensor_free(d->more_noise);
    lk_tensor_free(d->misleading_labels);
}

static lk_status run_steps(lk_runner *runner, lk_step *const *steps, const lk_input *fields, int count)
{
    lk_status status = LK_OK;
    if (!runner->is_train_loader) return lk_step_evaluate(steps[0], fields, count);
    for (int i = 0; i < 2 && !status; i++) {
        status = lk_step_begin(steps[i], fields, count, true);
        if (!status) status = lk_step_forward(steps[i]);
        if (!status) status = lk_step_criterion(steps[i]);
        if (!status) status = lk_step_backward(steps[i]);
    }
    return status;
}

static lk_status report(lk_runner *runner, lk_step *step, const char *name)
{
    return lk_metrics_set(runner->batch_metrics, name, lk_tensor_get(lk_step_output(step, name), 0));
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    static const char *const keys[] = {"discriminator", "generator"};
    static const lk_step_function functions[] = {for_discriminator, for_generator};
    const int64_t *latent_dim = runner->context;
    lk_step *steps[2];
    drawn d = {0};
    for (int i = 0; i < 2; i++) {
        steps[i] = lk_runner_step(runner, keys[i],
                                  LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, keys[i]),
                                             .optimizer = lk_runner_optimizer(runner, keys[i]),
                                             .function = functions[i], .context = runner));
        if (!steps[i]) return lk_error_status();
    }
    lk_status status = draw(&d, batch->count, *latent_dim);
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")}, {"noise", d.noise},
                               {"labels", d.labels}, {"more_noise", d.more_noise},
                               {"misleading_labels", d.misleading_labels}};
    if (!status) status = run_steps(runner, steps, fields, 5);
    if (!status) status = report(runner, steps[0], "loss_discriminator");
    if (!status) status = report(runner, steps[0], "loss_generator");
    for (int i = 0; i < 2 && !status && runner->is_train_loader; i++) status = lk_step_update(steps[i]);
    drop(&d);
    return status;
}

static void free_runner(lk_runner *runner)
{
    free(runner->context);
}

static lk_status build_runner(const lk_component *self, lk_args *args, void **out)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .handle_batch = handle_batch, .free = free_runner};
    int64_t *latent_dim = malloc(sizeof *latent_dim);
    (void)self;
    if (!latent_dim) return lk_fail(LK_ERR_NOMEM, "out of memory");
    *latent_dim = lk_arg_int64(args, "latent_dim");
    *out = lk_custom_runner(&ops, latent_dim);
    if (!*out) free(latent_dim);
    return *out ? LK_OK : lk_error_status();
}

COMPONENT(runner_component, "tests.pipelines.test_gan.CustomRunner", RUNNER,
          "A generator of pictures against a discriminator.", build_runner, MODEL_PARAMETER, ENGINE_PARAMETER,
          {.name = "latent_dim", .type = LK_PARAMETER_INT, .default_value = "32", .help = "Numbers that a picture is made of."});

LK_COMPONENTS(&pictures, &runner_component);
