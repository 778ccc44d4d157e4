/* WGAN-GP: a generator learns to draw points on a circle. Two models, two optimizers, and a gradient inside the loss.
 *
 *     build/examples/12_wgan_gp [STEPS] [--nproc N]
 *
 * The critic's gradient between real and drawn points is to have length 1. lk_op_grad gives it as a value, and training
 * differentiates it again. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NOISE = 8, BATCH = 64, CRITIC_STEPS = 5 };

static lk_value *mean(lk_value *x)
{
    return lk_op_mean(x, LK_ALL_AXES, false);
}

static lk_value *draw_points(lk_runner *runner, lk_graph *graph, int64_t count)
{
    lk_value *noise = lk_op_normal(graph, LK_SHAPE(count, NOISE), 0, 1, LK_F32);
    return lk_module_forward(lk_runner_model(runner, "generator"), noise);
}

/* mean(critic(fake)) - mean(critic(real)) + 0.1 mean((|slope| - 1)^2) */
static lk_value *judge(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *context)
{
    lk_module *critic = lk_runner_model(context, "critic");
    int64_t points = lk_value_shape(inputs[0]).dim[0];
    (void)names, (void)count;
    lk_value *real = inputs[0], *fake = lk_op_detach(draw_points(context, graph, points));
    lk_value *weight = lk_op_uniform(graph, LK_SHAPE(points, 1), 0, 1, LK_F32);
    lk_value *between = lk_op_add(real, lk_op_mul(weight, lk_op_sub(fake, real)));
    lk_value *slope = lk_op_grad(lk_module_forward(critic, between), between);
    lk_value *excess = lk_op_add_scalar(lk_op_norm(slope, 2, LK_AXES(1), false), -1);
    lk_value *penalty = lk_op_mul_scalar(mean(lk_op_mul(excess, excess)), 0.1);
    lk_value *distance = lk_op_sub(mean(lk_module_forward(critic, fake)), mean(lk_module_forward(critic, real)));
    return lk_op_add(distance, penalty);
}

static lk_value *forge(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *context)
{
    (void)names, (void)count;
    lk_value *fake = draw_points(context, graph, lk_value_shape(inputs[0]).dim[0]);
    lk_graph_output(graph, "points", fake);
    return lk_op_neg(mean(lk_module_forward(lk_runner_model(context, "critic"), fake)));
}

/* How far the drawn points are from the circle, on average. */
static double distance_to_circle(const lk_tensor *points)
{
    double sum = 0;
    for (int64_t i = 0; i < points->shape.dim[0]; i++)
        sum += fabs(hypot(lk_tensor_get(points, 2 * i), lk_tensor_get(points, 2 * i + 1)) - 1);
    return sum / (double)points->shape.dim[0];
}

static lk_status play(lk_runner *runner, const lk_batch *batch, const char *key, lk_step_function function)
{
    lk_step *step = lk_runner_step(runner, key,
        LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, key), .function = function, .context = runner,
                   .optimizer = lk_runner_optimizer(runner, key)));
    lk_input fields[] = {{"features", lk_batch_get(batch, "features")}};
    lk_status status = step ? lk_step_train(step, fields, 1) : lk_error_status();
    if (status) return status;
    const lk_tensor *drawn = lk_step_output(step, "points");
    if (runner->is_master && runner->batch_step <= 20)
        printf("step %d: %s loss %.9g\n", (int)runner->batch_step, key, lk_step_loss(step));
    if (runner->is_master && drawn && runner->batch_step % 100 == 0)
        printf("step %d: the points are %.3f from the circle\n", (int)runner->batch_step, distance_to_circle(drawn));
    return lk_metrics_set(runner->batch_metrics, key, lk_step_loss(step));
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_status status = play(runner, batch, "critic", judge);
    if (!status && runner->batch_step % CRITIC_STEPS == 0) status = play(runner, batch, "generator", forge);
    return status;
}

static lk_dataset *circle(int64_t count)
{
    lk_tensor *points = lk_tensor_create(LK_F32, LK_SHAPE(count, 2));
    for (int64_t i = 0; points && i < count; i++) {
        lk_tensor_set(points, 2 * i, cos(2.4 * (double)i));
        lk_tensor_set(points, 2 * i + 1, sin(2.4 * (double)i));
    }
    return lk_tensor_dataset({"features", points});
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_runner_add_model(runner, "generator", lk_sequential(lk_linear(NOISE, 64), lk_relu(), lk_linear(64, 64), lk_relu(), lk_linear(64, 2)));
    lk_runner_add_model(runner, "critic",
                        lk_sequential(lk_linear(2, 64), lk_tanh(), lk_linear(64, 64), lk_tanh(), lk_linear(64, 1)));
    lk_runner_add_optimizer(runner, "generator", lk_adam(.lr = 2e-3, .beta1 = 0.5, .beta2 = 0.9));
    lk_runner_add_optimizer(runner, "critic", lk_adam(.lr = 2e-3, .beta1 = 0.5, .beta2 = 0.9));
    lk_status status = lk_train(runner,
        .loaders = lk_loaders({"train", lk_loader(circle(BATCH * (argc > 1 ? atoi(argv[1]) : 2000)),
                                                  .batch_size = BATCH, .no_shuffle = true)}),
        .valid_metric = "critic", .minimize_valid_metric = true);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
