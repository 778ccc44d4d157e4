/* A variational autoencoder whose runner makes everything itself, as in tests.pipelines.test_vae of Catalyst:
 * model, data, optimizer, loggers and callbacks. Its config says `_call_: run` and little else. */
#include "shared.h"

#include <stdlib.h>

typedef struct vae_options {
    int64_t hid_features;
    char *logdir;
} vae_options;

/* mean and logarithm of the variance of the code: (n, 2 hid) -> (n, hid) each */
static lk_value *autoencode(lk_module *model, lk_value *x, bool deterministic, lk_value **mean, lk_value **log_scale)
{
    lk_value *code = lk_module_forward(lk_module_child(model, "encoder"), x);
    if (!code) return NULL;
    int64_t hidden = lk_value_shape(code).dim[1] / 2;
    *mean = lk_op_slice(code, 1, 0, hidden, 1);
    *log_scale = lk_op_clamp(lk_op_slice(code, 1, hidden, 2 * hidden, 1), -10, 2);
    lk_value *z = *mean;
    if (!deterministic) {
        lk_value *noise = lk_op_normal(lk_value_graph(x), lk_value_shape(z), 0, 1, LK_F32);
        z = lk_op_add(z, lk_op_mul(lk_op_exp(lk_op_mul_scalar(*log_scale, 0.5)), noise));
    }
    return lk_module_forward(lk_module_child(model, "decoder"), z);
}

/* mse(x', x) + 0.01 KL, with KL = -0.5 sum(1 + log_scale - mean^2 - exp(log_scale)) per sample */
static lk_value *loss_of(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *context)
{
    const lk_runner *runner = context;
    lk_value *pictures = find_input(names, inputs, count, "features"), *mean, *log_scale;
    lk_value *x = lk_op_reshape(pictures, LK_SHAPE(-1, 28 * 28));
    lk_value *made = autoencode(runner->model, x, !lk_graph_is_training(graph), &mean, &log_scale);
    if (!made) return NULL;
    lk_value *error = lk_op_pointwise_loss(made, x, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
    lk_value *inside = lk_op_sub(lk_op_sub(lk_op_add_scalar(log_scale, 1), lk_op_mul(mean, mean)), lk_op_exp(log_scale));
    lk_value *divergence = lk_op_mean(lk_op_mul_scalar(lk_op_sum(inside, LK_AXES(1), false), -0.5), LK_ALL_AXES, false);
    lk_graph_output(graph, "loss_ae", error);
    lk_graph_output(graph, "loss_kld", divergence);
    return lk_op_add(error, lk_op_mul_scalar(divergence, 0.01));
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    static const char *const parts[] = {"loss_ae", "loss_kld"};
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")}};
    lk_step *step = lk_runner_step(runner, "vae",
                                   LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer,
                                              .function = loss_of, .context = runner));
    lk_status status = take_step(runner, step, fields, 1);
    for (int i = 0; i < 2 && !status; i++)
        status = lk_metrics_set(runner->batch_metrics, parts[i], lk_tensor_get(lk_step_output(step, parts[i]), 0));
    return status ? status : lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

/* ---- What the runner brings along ---- */

static lk_status get_engine(lk_runner *runner, lk_train_options *options)
{
    const vae_options *own = runner->context;
    options->num_epochs = 1;
    options->logdir = own->logdir;
    options->valid_loader = "valid";
    options->valid_metric = "loss";
    options->minimize_valid_metric = true;
    return LK_OK;
}

static lk_status get_loaders(lk_runner *runner, lk_named_loader *out, int capacity, int *count)
{
    static const char *const keys[] = {"train", "valid"};
    (void)runner, (void)capacity;
    for (*count = 0; *count < 2; (*count)++)
        out[*count] = (lk_named_loader){keys[*count], lk_loader(lk_mnist("tests", .catalyst_scaling = true),
                                                                .batch_size = 32)};
    return LK_OK;
}

static lk_module *get_model(lk_runner *runner)
{
    const vae_options *own = runner->context;
    return lk_custom_module(.type = "VAE",
                            .children = lk_children({"encoder", lk_linear(28 * 28, own->hid_features * 2)},
                                                    {"decoder", lk_sequential(lk_linear(own->hid_features, 28 * 28),
                                                                              lk_sigmoid())}));
}

static lk_optimizer *get_optimizer(lk_runner *runner, lk_module *model)
{
    (void)runner, (void)model;
    return lk_adam(.lr = 0.02);
}

static lk_status get_callbacks(lk_runner *runner, lk_callback **out, int capacity, int *count)
{
    const vae_options *own = runner->context;
    (void)capacity;
    out[(*count)++] = lk_backward_callback(.metric_key = "loss");
    out[(*count)++] = lk_optimizer_callback(.metric_key = "loss");
    out[(*count)++] = lk_checkpoint_callback(.logdir = own->logdir, .loader_key = "valid", .metric_key = "loss",
                                             .minimize = true, .topk = 3);
    return LK_OK;
}

static void free_runner(lk_runner *runner)
{
    vae_options *own = runner->context;
    free(own->logdir);
    free(own);
}

static lk_status build_runner(const lk_component *self, lk_args *args, void **out)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .get_engine = get_engine, .get_loaders = get_loaders,
                                      .get_model = get_model, .get_optimizer = get_optimizer,
                                      .get_callbacks = get_callbacks, .handle_batch = handle_batch,
                                      .free = free_runner};
    vae_options *own = malloc(sizeof *own);
    char *logdir = strdup(lk_arg_string(args, "logdir"));
    (void)self;
    if (own && logdir) {
        *own = (vae_options){lk_arg_int64(args, "hid_features"), logdir};
        *out = lk_custom_runner(&ops, own);
        if (*out) return LK_OK;
    }
    free(own);
    free(logdir);
    return lk_error_status() ? lk_error_status() : lk_fail(LK_ERR_NOMEM, "out of memory");
}

COMPONENT(runner_component, "tests.pipelines.test_vae.CustomRunner", RUNNER,
          "A variational autoencoder of MNIST, with all that it needs.", build_runner, ENGINE_PARAMETER,
          {.name = "hid_features", .type = LK_PARAMETER_INT, .help = "Numbers of the code."},
          {.name = "logdir", .type = LK_PARAMETER_STRING, .help = "The folder for logs and checkpoints."});

LK_COMPONENTS(&runner_component);
