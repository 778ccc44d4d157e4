/* A physics-informed network: u(t, x) solves Burgers' equation u_t + u u_x = 0.01 / pi u_xx, without any data.
 *
 *     build/examples/16_burgers [STEPS] [--nproc N]
 *
 * It begins as -sin(pi x) and is 0 at x = -1 and x = 1. The derivatives are those of the network, by lk_op_grad, and
 * training differentiates them once more. */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

#define PI 3.14159265358979323846
enum { BATCH = 64 };
enum { T, X, FIRST_X, EDGE_T, FIELDS };
static const char *const names_of_fields[FIELDS] = {"t", "x", "first_x", "edge_t"};

static lk_value *u_at(lk_module *model, lk_value *t, lk_value *x)
{
    return lk_module_forward(model, lk_op_concat((lk_value *[]){t, x}, 2, 1));
}

static lk_value *mean_square(lk_value *x)
{
    return lk_op_mean(lk_op_mul(x, x), LK_ALL_AXES, false);
}

static lk_value *learn(lk_graph *graph, const char *const *names, lk_value *const *in, int count, void *model)
{
    (void)names, (void)count;
    lk_value *u = u_at(model, in[T], in[X]), *first[2];
    if (lk_op_grads(first, u, (lk_value *[]){in[T], in[X]}, 2)) return NULL;
    lk_value *u_t = first[0], *u_x = first[1], *u_xx = lk_op_grad(u_x, in[X]);
    lk_value *residual = lk_op_sub(lk_op_add(u_t, lk_op_mul(u, u_x)), lk_op_mul_scalar(u_xx, 0.01 / PI));

    lk_value *start = u_at(model, lk_op_zeros_like(in[FIRST_X]), in[FIRST_X]);
    lk_value *sine = lk_op_sin(lk_op_mul_scalar(in[FIRST_X], PI));
    lk_value *right = u_at(model, in[EDGE_T], lk_op_ones_like(in[EDGE_T]));
    lk_value *left = u_at(model, in[EDGE_T], lk_op_full_like(in[EDGE_T], -1));
    lk_graph_output(graph, "residual", mean_square(residual));
    return lk_op_add(lk_op_add(mean_square(residual), mean_square(lk_op_add(start, sine))),
                     lk_op_add(mean_square(left), mean_square(right)));
}

static lk_status handle_batch(lk_runner *runner, const lk_batch *batch)
{
    lk_step *step = lk_runner_step(runner, "burgers",
        LK_OPTIONS(lk_step_options, .model = runner->model, .optimizer = runner->optimizer, .function = learn,
                   .context = runner->model));
    lk_input fields[FIELDS];
    for (int i = 0; i < FIELDS; i++)
        fields[i] = (lk_input){names_of_fields[i], lk_batch_get(batch, names_of_fields[i])};
    lk_status status = step ? lk_step_train(step, fields, FIELDS) : lk_error_status();
    if (status) return status;
    if (runner->is_master && runner->batch_step <= 20)
        printf("step %d: loss %.9g\n", (int)runner->batch_step, lk_step_loss(step));
    if (runner->is_master && runner->batch_step % 1000 == 0)
        printf("step %d: loss %.5f, of the equation %.5f\n", (int)runner->batch_step, lk_step_loss(step),
               lk_tensor_get(lk_step_output(step, "residual"), 0));
    return lk_metrics_set(runner->batch_metrics, "loss", lk_step_loss(step));
}

/* t in (0, 1) and x in (-1, 1), anywhere. */
static lk_dataset *places(int64_t count)
{
    lk_tensor *drawn[FIELDS] = {NULL};
    for (int i = 0; i < FIELDS; i++) {
        drawn[i] = lk_rand(LK_SHAPE(count, 1));
        for (int64_t k = 0; (i == X || i == FIRST_X) && drawn[i] && k < count; k++)
            lk_tensor_set(drawn[i], k, 2 * lk_tensor_get(drawn[i], k) - 1);
    }
    return lk_tensor_dataset({"t", drawn[T]}, {"x", drawn[X]}, {"first_x", drawn[FIRST_X]}, {"edge_t", drawn[EDGE_T]});
}

/* u at one time, from x = -1 to x = 1. */
static lk_status show(lk_module *model, double t)
{
    lk_tensor *places = lk_tensor_create(LK_F32, LK_SHAPE(9, 2));
    lk_step *step = places ? lk_step(.model = model) : NULL;
    for (int i = 0; step && i < 9; i++) lk_tensor_set(places, 2 * i, t), lk_tensor_set(places, 2 * i + 1, i / 4.0 - 1);
    lk_status status = step ? lk_step_evaluate(step, (lk_input[]){{"features", places}}, 1) : lk_error_status();
    printf("u(%.1f, x):", t);
    for (int i = 0; !status && i < 9; i++) printf(" %6.3f", lk_tensor_get(lk_step_output(step, "logits"), i));
    printf("\n");
    lk_step_free(step);
    lk_tensor_free(places);
    return status;
}

int main(int argc, char **argv)
{
    static const lk_runner_ops ops = {.handle_batch = handle_batch};
    int code = take_arguments(&argc, argv, 1, "[STEPS]");
    if (code >= 0) return code;
    lk_manual_seed(42);
    lk_dataset *dataset = places((int64_t)BATCH * (argc > 1 ? atoi(argv[1]) : 5000));
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_sequential(lk_linear(2, 20), lk_tanh(), lk_linear(20, 20), lk_tanh(), lk_linear(20, 20), lk_tanh(),
                               lk_linear(20, 1)),
        .optimizer = lk_adam(.lr = 2e-3),
        .loaders = lk_loaders({"train", lk_loader(dataset, .batch_size = BATCH, .no_shuffle = true)}));
    for (int i = 0; !status && i <= 2; i++) status = show(runner->model, i / 2.0);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_runner_free(runner);
    return status != LK_OK;
}
