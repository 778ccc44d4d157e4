/* SimSiam: an encoder learns to see two disturbed views of a sample as the same, without labels.
 *
 *     build/examples/13_simsiam [STEPS] [--nproc N]
 *
 * Each view predicts the other one, and lk_op_detach stops the gradient at what is predicted. Without the stop, all
 * samples would soon look the same. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { WIDTH = 16, GROUPS = 4, BATCH = 32, SHOWN = 64 };

/* Each sample as it is, with numbers of its own added. */
static lk_value *view(lk_graph *graph, lk_value *x)
{
    return lk_op_add(x, lk_op_normal(graph, lk_value_shape(x), 0, 0.5, LK_F32));
}

/* The mean of -cos(a, b) over the rows. */
static lk_value *distance(lk_value *a, lk_value *b)
{
    lk_value *product = lk_op_sum(lk_op_mul(a, b), LK_AXES(1), false);
    lk_value *lengths = lk_op_mul(lk_op_norm(a, 2, LK_AXES(1), false), lk_op_norm(b, 2, LK_AXES(1), false));
    return lk_op_neg(lk_op_mean(lk_op_div(product, lengths), LK_ALL_AXES, false));
}

static lk_value *learn(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *model)
{
    lk_module *encoder = lk_module_child(model, "encoder"), *predictor = lk_module_child(model, "predictor");
    (void)names, (void)count;
    lk_value *a = lk_module_forward(encoder, view(graph, inputs[0]));
    lk_value *b = lk_module_forward(encoder, view(graph, inputs[0]));
    lk_value *from_a = distance(lk_module_forward(predictor, a), lk_op_detach(b));
    lk_value *from_b = distance(lk_module_forward(predictor, b), lk_op_detach(a));
    return lk_op_mul_scalar(lk_op_add(from_a, from_b), 0.5);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "simsiam",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = learn,
                   .context = runner->model));
    lk_input fields[] = {{"features", lk_batch_get(batch, "features")}};
    lk_status status = step ? lk_step_train(step, fields, 1) : lk_error_status();
    if (status) return status;
    if (runner->is_master && (runner->batch_step <= 20 || runner->batch_step % 100 == 0))
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

static double cosine(const lk_tensor *rows, int64_t a, int64_t b)
{
    double product = 0, aa = 0, bb = 0;
    for (int64_t k = 0; k < WIDTH; k++) {
        double x = lk_tensor_get(rows, a * WIDTH + k), y = lk_tensor_get(rows, b * WIDTH + k);
        product += x * y, aa += x * x, bb += y * y;
    }
    return product / sqrt(aa * bb);
}

/* How alike the encoder finds samples of one group and samples of two. */
static lk_status compare_groups(lk_module *encoder, const lk_tensor *samples)
{
    double same = 0, other = 0;
    lk_step *step = lk_step(.model = encoder);
    lk_status status = step ? lk_step_evaluate(step, (lk_input[]){{"features", samples}}, 1) : lk_error_status();
    for (int64_t i = 0; !status && i < SHOWN - GROUPS; i++) {
        same += cosine(lk_step_output(step, "logits"), i, i + GROUPS) / (SHOWN - GROUPS);
        other += cosine(lk_step_output(step, "logits"), i, i + 1) / (SHOWN - GROUPS);
    }
    if (!status) printf("mean cosine within a group %.3f, between two %.3f\n", same, other);
    lk_step_free(step);
    return status;
}

/* Sample i belongs to group i % GROUPS. */
static lk_tensor *make_samples(int64_t count)
{
    lk_tensor *centers = lk_randn(LK_SHAPE(GROUPS, WIDTH)), *samples = lk_randn(LK_SHAPE(count, WIDTH));
    for (int64_t i = 0; centers && samples && i < count * WIDTH; i++)
        lk_tensor_set(samples, i, (float)lk_tensor_get(samples, i) * 0.5f +
                                      (float)lk_tensor_get(centers, i % (GROUPS * WIDTH)));
    lk_tensor_free(centers);
    return samples;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_tensor *samples = make_samples((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 400)), *shown = make_samples(SHOWN);
    lk_module *encoder = lk_sequential(lk_linear(WIDTH, 32), lk_batch_norm1d(32), lk_relu(), lk_linear(32, WIDTH),
                                       lk_batch_norm1d(WIDTH));
    lk_module *predictor = lk_sequential(lk_linear(WIDTH, 8), lk_batch_norm1d(8), lk_relu(), lk_linear(8, WIDTH));
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_module_dict({"encoder", encoder}, {"predictor", predictor}),
        .optimizer = lk_sgd(.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-4),
        .loaders = lk_loaders({"train", lk_loader(lk_tensor_dataset({"features", samples}), .batch_size = BATCH, .no_shuffle = true)}));
    if (!status) status = compare_groups(lk_module_child(runner->model, "encoder"), shown);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_tensor_free(shown);
    lk_runner_free(runner);
    return status != LK_OK;
}
