/* MAML: a network that learns a new sine wave from a few points, with one step of gradient descent.
 *
 *     build/examples/15_maml [STEPS] [--nproc N]
 *
 * Each sample is a task. The inner step makes new weights of the old ones and of their gradients, which lk_op_grads gives
 * as values; the loss is that of the new weights on other points, and its gradient flows through the inner step. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { POINTS = 10, TASKS = 8, HIDDEN = 32, WEIGHTS = 6 };
enum { SUPPORT_X, SUPPORT_Y, QUERY_X, QUERY_Y, FIELDS };
static const char *const fields_of_a_task[FIELDS] = {"support_x", "support_y", "query_x", "query_y"};

static lk_value *net(lk_value *x, lk_value *const *weights)
{
    for (int i = 0; i < WEIGHTS; i += 2) {
        x = lk_op_linear(x, weights[i], weights[i + 1]);
        if (i + 2 < WEIGHTS) x = lk_op_tanh(x);
    }
    return x;
}

static lk_value *error_of(lk_value *const *weights, lk_value *x, lk_value *y)
{
    return lk_op_pointwise_loss(net(x, weights), y, NULL, NULL, LK_LOSS_MSE, 0, LK_REDUCTION_MEAN);
}

static lk_value *learn(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *model)
{
    static const char *const paths[] = {"0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"};
    lk_value *weights[WEIGHTS], *adapted[WEIGHTS], *grads[WEIGHTS], *tasks[FIELDS][TASKS];
    lk_value *before = NULL, *after = NULL;
    (void)names;
    for (int i = 0; i < WEIGHTS; i++) weights[i] = lk_graph_param(graph, lk_module_param(model, paths[i]));
    for (int i = 0; i < count; i++)
        if (lk_op_unbind(tasks[i], TASKS, inputs[i], 0)) return NULL;
    for (int t = 0; t < TASKS; t++) {
        lk_value *error = error_of(weights, tasks[SUPPORT_X][t], tasks[SUPPORT_Y][t]);
        if (lk_op_grads(grads, error, weights, WEIGHTS)) return NULL;
        for (int i = 0; i < WEIGHTS; i++) adapted[i] = lk_op_sub(weights[i], lk_op_mul_scalar(grads[i], 0.05));
        lk_value *left = error_of(adapted, tasks[QUERY_X][t], tasks[QUERY_Y][t]);
        before = before ? lk_op_add(before, error) : error;
        after = after ? lk_op_add(after, left) : left;
    }
    lk_graph_output(graph, "before", lk_op_mul_scalar(before, 1.0 / TASKS));
    return lk_op_mul_scalar(after, 1.0 / TASKS);
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "maml",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = learn,
                   .context = runner->model));
    lk_input fields[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        fields[i] = (lk_input){fields_of_a_task[i], lk_batch_get(batch, fields_of_a_task[i])};
    lk_status status = step ? lk_step_train(step, fields, FIELDS) : lk_error_status();
    if (status) return status;
    if (runner->is_master && runner->batch_step <= 20)
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    if (runner->is_master && runner->batch_step % 100 == 0)
        printf("step %d: the error is %.4f before the inner step, %.4f after it\n", (int)runner->batch_step,
               lk_tensor_get(lk_step_output(step, "before"), 0), lk_step_loss(step));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

/* Waves of any height and phase; the points of each lie anywhere in (-5, 5). */
static lk_dataset *waves(int64_t count)
{
    lk_tensor *drawn[FIELDS] = {NULL}, *heights = lk_rand(LK_SHAPE(count)), *phases = lk_rand(LK_SHAPE(count));
    for (int i = 0; i < FIELDS; i++) drawn[i] = lk_rand(LK_SHAPE(count, POINTS, 1));
    for (int i = SUPPORT_X; i <= QUERY_X; i += 2)
        for (int64_t k = 0; k < count * POINTS; k++) {
            double x = 10 * lk_tensor_get(drawn[i], k) - 5, height = 0.5 + 2 * lk_tensor_get(heights, k / POINTS);
            lk_tensor_set(drawn[i], k, x);
            lk_tensor_set(drawn[i + 1], k, height * sin(x + 3.14159265 * lk_tensor_get(phases, k / POINTS)));
        }
    lk_tensor_free(heights);
    lk_tensor_free(phases);
    return lk_tensor_dataset({"support_x", drawn[0]}, {"support_y", drawn[1]}, {"query_x", drawn[2]}, {"query_y", drawn[3]});
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_dataset *tasks = waves((int64_t)TASKS * (argc > 1 ? atoi(argv[1]) : 1000));
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_module_list(lk_linear(1, HIDDEN), lk_linear(HIDDEN, HIDDEN), lk_linear(HIDDEN, 1)),
        .optimizer = lk_adam(.lr = 3e-3),
        .loaders = lk_loaders({"train", lk_loader(tasks, .batch_size = TASKS, .no_shuffle = true, .drop_last = true)}));
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
