/* CNN3d on turbulence, as in Sapsan's example: HDF5 cubes (or turbulence made up), sampled, trained on all cores
 * or GPUs, evaluated on the CPU, drawn, saved.
 *
 *     build/examples/07_cnn3d [DATA]        DATA holds cnn_krr/t0/u_dim32_fm15.h5; without it turbulence is made up
 *                                           where data/ has none */
#include "arguments.h"

#include <lockstep/lockstep.h>

#include <stdio.h>

/* The velocity from a folder; NULL is data/, which need not be there. */
static lk_fields *velocity(const char *root)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/cnn_krr/t{checkpoint:1.0f}/{feature}_dim32_fm15.h5", root ? root : "data");
    lk_fields *fields = lk_hdf5_fields(path, .features = lk_names("u"), .targets = lk_names("u"),
                                       .checkpoints = lk_numbers(0), .input_size = {32, 32, 32},
                                       .sample_to = {16, 16, 16}, .batch_size = {8, 8, 8});
    if (fields || root || lk_error_status() != LK_ERR_NOT_FOUND) return fields;
    if (lk_rank() == 0)
        fprintf(stderr, "%s\nturbulence with a spectrum of k^(-5/3) is made up instead\n", lk_error());
    lk_tensor *made_up = lk_synthetic_turbulence(3, 3, (int64_t[]){32, 32, 32}, -5.0 / 3, NULL);
    lk_tensor *sample = made_up ? lk_tensor_reshape(made_up, LK_SHAPE(1, 3, 32, 32, 32)) : NULL;
    lk_tensor_free(made_up);
    return lk_tensor_fields(sample, NULL, .sample_to = {16, 16, 16}, .batch_size = {8, 8, 8});
}

static lk_status evaluate(lk_estimator *estimator, const lk_fields *fields)
{
    lk_evaluation eval;
    lk_status status = lk_estimator_evaluate(estimator, lk_fields_features(fields), lk_fields_targets(fields), &eval);
    if (!status) status = lk_estimator_save(estimator, "cnn3d");
    if (!status)
        printf("train - loss: %.4e, train - runtime: %.2f s\neval - MSE Loss: %.4e, eval - KS Stat: %.4f, "
               "eval - runtime: %.2f s\n",
               lk_estimator_loss(estimator), lk_estimator_runtime(estimator), eval.mse, eval.ks, eval.runtime_s);
    return status;
}

/* Without PLplot there are no pictures, which is no reason to fail. */
static void draw(lk_estimator *estimator, const lk_fields *fields)
{
    lk_tensor *samples = lk_estimator_predict(estimator, lk_fields_features(fields));
    lk_tensor *prediction = lk_fields_combine(fields, samples);
    lk_tensor *target = lk_fields_combine(fields, lk_fields_targets(fields));
    if (!prediction || !target || lk_plot_distributions("pdf_cdf.png", prediction, target) ||
        lk_plot_slices("slices.png", prediction, target, 3, 0) ||
        lk_plot_spectra("spectra.png", prediction, target, 3) || lk_plot_losses("losses.png", estimator))
        printf("no pictures: %s\n", lk_error());
    lk_tensor_free(samples);
    lk_tensor_free(prediction);
    lk_tensor_free(target);
}

int main(int argc, char **argv)
{
    lk_set_log_sink(lk_log_to_stderr, NULL);
    int code = take_arguments(&argc, argv, 1, "[DATA]");
    if (code >= 0) return code;
    lk_manual_seed(0);

    lk_fields *fields = velocity(argc > 1 ? argv[1] : NULL);
    lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields, .batch_size = 4),
        .n_epochs = 5,
        .verbose = true,
        .patience = 10,
        .min_delta = 1e-5,
        .logdir = "./logs/cnn3d_estimator",
        .ddp = true);

    lk_status status = lk_estimator_train(estimator);
    bool master = lk_rank() == 0; /* the one that evaluates and writes, whoever has started the ranks */
    if (!status && master) status = evaluate(estimator, fields);
    if (!status && master) draw(estimator, fields);
    if (status) fprintf(stderr, "%s\n", lk_error());
    lk_estimator_free(estimator);
    lk_fields_free(fields);
    return status != LK_OK;
}
