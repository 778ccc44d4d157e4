/* An estimator of one's own: a small residual network learns the subgrid stress of turbulence that the program
 * makes up, and is compared with Smagorinsky's model of it.
 *
 *     build/examples/08_own_estimator [EPOCHS] */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>
#include <stdlib.h>

enum { N = 32, CUBE = 8, FILTER = 4 };

/* Periodic convolutions do not fit into a cube that was cut out of a field: its border is repeated instead. */
static lk_module *conv(int64_t in, int64_t out)
{
    return lk_conv3d(in, out, 3, .padding = 1, .padding_mode = LK_PAD_REPLICATE);
}

/* velocity (n, 3, x, y, z) -> stress (n, 9, x, y, z): only the six different components are learned. */
static lk_value *stress_forward(lk_module *module, lk_value *x)
{
    static const int component[] = {0, 1, 2, 1, 3, 4, 2, 4, 5};
    lk_value *parts[9];
    x = lk_op_silu(lk_module_forward(lk_module_child(module, "lift"), x));
    x = lk_module_forward(lk_module_child(module, "body"), x);
    x = lk_module_forward(lk_module_child(module, "project"), x);
    for (int i = 0; i < 9; i++) parts[i] = lk_op_slice(x, 1, component[i], component[i] + 1, 1);
    return lk_op_concat(parts, 9, 1);
}

static lk_module *stress_net(int64_t width)
{
    return lk_custom_module(.type = "StressNet", .forward = stress_forward,
        .children = lk_children(
            {"lift", conv(3, width)},
            {"body", lk_sequential(lk_residual(conv(width, width), lk_silu(), conv(width, width)),
                                   lk_residual(conv(width, width), lk_silu(), conv(width, width)))},
            {"project", conv(width, 6)}));
}

/* The filtered velocity and the stress that the filter leaves out, cut into sub-cubes. */
static lk_fields *make_fields(lk_tensor **smooth, lk_tensor **stress)
{
    lk_tensor *velocity = lk_synthetic_turbulence(3, 3, (int64_t[]){N, N, N}, -5.0 / 3, NULL);
    *smooth = lk_filter_box(velocity, 3, FILTER);
    *stress = lk_reynolds_stress(velocity, 3, lk_filter_box, FILTER);
    lk_tensor_free(velocity);
    if (!*smooth || !*stress) return NULL;
    return lk_tensor_fields(lk_tensor_reshape(*smooth, LK_SHAPE(1, 3, N, N, N)),
                            lk_tensor_reshape(*stress, LK_SHAPE(1, 9, N, N, N)), .batch_size = {CUBE, CUBE, CUBE});
}

static lk_status compare(lk_estimator *estimator, const lk_fields *fields, const lk_tensor *smooth,
                         const lk_tensor *stress)
{
    lk_evaluation eval;
    lk_status status =
        lk_estimator_evaluate(estimator, lk_fields_features(fields), lk_fields_targets(fields), &eval);
    if (status) return status;
    lk_tensor *model = lk_smagorinsky_stress(smooth, 3, .width = FILTER);
    if (!model) return LK_ERR_NOMEM;
    printf("%-12s MSE %.4e, KS %.4f (%.2f s)\n", lk_estimator_name(estimator), eval.mse, eval.ks, eval.runtime_s);
    printf("%-12s MSE %.4e, KS %.4f\n", "Smagorinsky", lk_mean_squared_error(model, stress),
           lk_ks_statistic(model, stress));
    lk_tensor_free(model);
    return lk_estimator_save(estimator, "stressnet");
}

int main(int argc, char **argv)
{
    lk_tensor *smooth = NULL, *stress = NULL;
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 1, "[EPOCHS]");
    if (code >= 0) return code;
    lk_manual_seed(0);
    lk_fields *fields = make_fields(&smooth, &stress);
    lk_estimator *estimator = lk_estimator("StressNet", stress_net(16),
        lk_fields_loaders(fields, .batch_size = 8, .train_fraction = 0.75, .shuffle = true),
        .n_epochs = argc > 1 ? atoi(argv[1]) : 10,
        .criterion = lk_mse_loss(),
        .optimizer = lk_adamw(.lr = 3e-3),
        .logdir = "./logs/stressnet",
        .verbose = true);
    lk_status status = lk_estimator_train(estimator);
    if (!status && lk_rank() == 0) status = compare(estimator, fields, smooth, stress);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_estimator_free(estimator);
    lk_fields_free(fields);
    lk_tensor_free(smooth);
    lk_tensor_free(stress);
    return status != LK_OK;
}
