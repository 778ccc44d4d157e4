/* Estimators: data, model, training and evaluation of physical fields in one object, after
 * Sapsan's.
 *
 *     lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 5, .ddp = true);
 *     if (lk_estimator_train(estimator) == LK_OK) {
 *         lk_evaluation result;
 *         lk_estimator_evaluate(estimator, lk_fields_features(fields), lk_fields_targets(fields),
 *                               &result);
 *         lk_estimator_save(estimator, "cnn3d");
 *     }
 *     lk_estimator_free(estimator);
 *
 * Training runs on the device that the config names, on several ranks with ddp. Evaluation and
 * prediction run on the CPU. An estimator with your own model is lk_estimator("Name", model,
 * loaders, ...).
 *
 * Life: an estimator owns what it was made of, also if the constructor fails and returns NULL. A
 * NULL part makes the estimator NULL, and the first call that uses it reports the error. Threads:
 * an estimator belongs to one thread. */
#ifndef LOCKSTEP_ESTIMATOR_H
#define LOCKSTEP_ESTIMATOR_H

#include <lockstep/arguments.h>
#include <lockstep/config.h>
#include <lockstep/fields.h>
#include <lockstep/runner.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lk_estimator lk_estimator;

enum { LK_MAX_TRAINING_CALLBACKS = 20 };
/* What a training backend gets. It must hand all of it to lk_train. */
typedef struct lk_training {
    lk_runner *runner;
    const struct lk_estimator_config *config;
    lk_loader_list loaders;
    lk_module *model;
    /* NULL in a second run, like the next two: the runner has them. */
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_callback_list callbacks; /* at most LK_MAX_TRAINING_CALLBACKS */
} lk_training;
typedef lk_status (*lk_training_backend)(const lk_training *training);
/* The backend of the library: early stopping and the scheduler watch the loss of the first
 * loader, and no checkpoints are written. */
lk_status lk_supervised_backend(const lk_training *training);

/* One struct for all estimators. Each reads the fields that it knows. Zero is the default;
 * strings are copied. */
typedef struct lk_estimator_config {
    size_t struct_size;
    int n_epochs; /* 1 */
    /* 10; epochs without improvement before the run ends, and before the learning rate falls. */
    int patience;
    double min_delta; /* 1e-5; a smaller change is no improvement */
    /* "./logs/"; replaces the logs of an earlier run of an estimator, never weights. */
    const char *logdir;
    double lr;          /* 1e-3 */
    double min_lr;      /* lr * 1e-2 */
    const char *device; /* "auto" */
    bool ddp;           /* starts one rank per GPU, or per core */
    int nproc;          /* number of ranks; 0: one per GPU or core */
    bool verbose;       /* prints the device and the ranks before a run */
    /* A folder, "mlruns", for parameters, metrics and artifacts in the layout of MLflow; off. */
    const char *tracking;
    const char *experiment; /* of the tracking; "Default" */

    /* Parts of your own, owned. The defaults are SmoothL1, Adam(lr) and
     * ReduceLROnPlateau(patience, min_lr). */
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_callback_list callbacks;  /* additional ones, for the first run */
    lk_training_backend backend; /* lk_supervised_backend */

    int nfilters;           /* PICAE: channels between its layers; 6 */
    const char *activation; /* PIMLturb: "relu", "tanh", "silu", "leaky_relu"; "relu" */
    double sigma;           /* PIMLturb: width of the Gaussian layer, in points; 1 */
    double ks_frac;         /* PIMLturb: the share of the KS term in the loss; 0.5 */
    double l1_scale;        /* PIMLturb: factor of the SmoothL1 term; 1 */
    double ks_scale;        /* PIMLturb: factor of the KS term; 1 */
    double l1_beta;         /* PIMLturb: beta of SmoothL1; 1 */
    double alpha, gamma;    /* KRR: the ridge, 1; of the kernel, 1 / features */
} lk_estimator_config;

/* Reads a config from a JSON object with the names above ({"n_epochs": 5, "ddp": true}). What is
 * missing has its default. Free it with lk_estimator_config_free; an estimator copies what it
 * needs. NULL on failure. */
lk_estimator_config *lk_estimator_config_read(const char *path);
void lk_estimator_config_free(lk_estimator_config *config);

/* Sapsan's convolutional network in three dimensions: (channels, size...) to a flat field with
 * the size of the targets. Targets may be flat or not. */
#define lk_cnn3d(...) LK_CALL1_(lk_cnn3d_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_cnn3d_with(lk_loader_list loaders, const lk_estimator_config *config);
/* The physics-informed convolutional autoencoder: a periodic vector field (3, size...), with
 * sizes that are multiples of 8, to a field of the same shape. The output is a curl, so its
 * divergence (by central differences) is zero. */
#define lk_picae(...) LK_CALL1_(lk_picae_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_picae_with(lk_loader_list loaders, const lk_estimator_config *config);
/* Turbulent quantities that are never negative, in one or three dimensions: convolutions, whose
 * squared output a fixed Gaussian smooths. The loss combines SmoothL1 with the distance of the
 * distributions. */
#define lk_pimlturb1d(...) LK_CALL1_(lk_pimlturb1d_with, lk_estimator_config, __VA_ARGS__, )
#define lk_pimlturb3d(...) LK_CALL1_(lk_pimlturb3d_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_pimlturb1d_with(lk_loader_list loaders, const lk_estimator_config *config);
lk_estimator *lk_pimlturb3d_with(lk_loader_list loaders, const lk_estimator_config *config);
/* Kernel ridge regression with the kernel exp(-gamma |a - b|^2), from the channels of a point to
 * its targets. It is solved, not trained: memory grows with the square of the number of points. */
#define lk_krr(...) LK_CALL1_(lk_krr_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_krr_with(lk_loader_list loaders, const lk_estimator_config *config);

/* An estimator with your own model over "features", whose output has as many numbers as
 * "targets". */
#define lk_estimator(...) LK_CALL3_(lk_estimator_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_estimator_with(const char *name, lk_module *model, lk_loader_list loaders,
                                const lk_estimator_config *config);
/* Frees the estimator. NULL is allowed. */
void lk_estimator_free(lk_estimator *estimator);

/* An estimator of your own as a component, for configs. Put LK_ESTIMATOR_PARAMETERS, the loaders
 * and numbers that every estimator has, into the table of the component; lk_estimator_from_args
 * builds the estimator from them. Owns the model. NULL on failure.
 *
 *     static lk_status build(const lk_component *self, lk_args *args, void **out)
 *     {
 *         *out = lk_estimator_from_args("StressNet", stress_net(lk_arg_int(args, "width")), args);
 *         return *out ? LK_OK : lk_error_status();
 *     } */
lk_estimator *lk_estimator_from_args(const char *name, lk_module *model_owned, lk_args *args);
#define LK_ESTIMATOR_PARAMETER_(name_, type_, default_, help_)                                               \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_##type_, .default_value = default_, .help = help_                \
    }
#define LK_ESTIMATOR_PART_(name_, type_, kind_, default_, help_)                                             \
    {                                                                                                        \
        .name = name_, .type = LK_PARAMETER_##type_, .kind = LK_KIND_##kind_, .default_value = default_,     \
        .help = help_                                                                                        \
    }
#define LK_SOLVED_ESTIMATOR_PARAMETERS_                                                                      \
    LK_ESTIMATOR_PART_("loaders", OBJECTS, LOADER, NULL, "Loaders by key; the first one trains."),           \
        LK_ESTIMATOR_PARAMETER_("logdir", STRING, "./logs/", "The folder for logs."),                        \
        LK_ESTIMATOR_PARAMETER_("device", STRING, "auto", "auto, cpu, cuda or ref."),                        \
        LK_ESTIMATOR_PARAMETER_("verbose", BOOL, "y", "Print device and ranks before the run."),             \
        LK_ESTIMATOR_PARAMETER_("tracking", STRING, "", "A folder, mlruns, for a record as MLflow's; off."), \
        LK_ESTIMATOR_PARAMETER_("experiment", STRING, "Default", "The record's experiment.")
#define LK_ESTIMATOR_PARAMETERS                                                                              \
    LK_SOLVED_ESTIMATOR_PARAMETERS_,                                                                         \
        LK_ESTIMATOR_PARAMETER_("n_epochs", INT, "1", "How many times over the data."),                      \
        LK_ESTIMATOR_PARAMETER_("patience", INT, "10",                                                       \
                                "Epochs without a better loss before the run ends and the rate falls."),     \
        LK_ESTIMATOR_PARAMETER_("min_delta", FLOAT, "1e-5", "What counts as better."),                       \
        LK_ESTIMATOR_PARAMETER_("lr", FLOAT, "1e-3", "The learning rate."),                                  \
        LK_ESTIMATOR_PARAMETER_("min_lr", FLOAT, "", "Where it stops falling; lr / 100."),                   \
        LK_ESTIMATOR_PARAMETER_("ddp", BOOL, "n", "Ranks on all GPUs, or on all cores."),                    \
        LK_ESTIMATOR_PARAMETER_("nproc", INT, "0", "How many ranks; 0: as many as there are."),              \
        LK_ESTIMATOR_PART_("criterion", OBJECT, CRITERION, "", "The loss; the estimator's own."),            \
        LK_ESTIMATOR_PART_("optimizer", OBJECT, OPTIMIZER, "", "Adam(lr) where left out."),                  \
        LK_ESTIMATOR_PART_("scheduler", OBJECT, SCHEDULER, "",                                               \
                           "ReduceLROnPlateau(patience, min_lr) where left out."),                           \
        LK_ESTIMATOR_PART_("callbacks", OBJECTS, CALLBACK, "", "More of them.")

/* Trains for n_epochs, or until the loss of the first loader has not fallen for `patience`
 * epochs. Writes to logdir. */
lk_status lk_estimator_train(lk_estimator *estimator);
/* A run consumes its loaders. Set new ones to train again from where the last run ended. */
lk_status lk_estimator_set_loaders(lk_estimator *estimator, lk_loader_list loaders);

/* Returns the output of the model for (samples, ...), computed on the CPU, in the shape of the
 * targets. The caller frees it. NULL on failure. */
lk_tensor *lk_estimator_predict(lk_estimator *estimator, const lk_tensor *features);
/* The same on a device: "cpu", "cuda", ... KRR supports only the CPU. */
lk_tensor *lk_estimator_predict_on(lk_estimator *estimator, const lk_tensor *features, const char *device);

typedef struct lk_evaluation {
    double mse;       /* eval - MSE Loss */
    double ks;        /* eval - KS Stat */
    double runtime_s; /* eval - runtime */
} lk_evaluation;
/* Compares the output for `features` with `targets`. */
lk_status lk_estimator_evaluate(lk_estimator *estimator, const lk_tensor *features, const lk_tensor *targets,
                                lk_evaluation *out);

/* Writes folder/model.safetensors (weights under PyTorch's names, optimizer state, epoch and
 * loss) and folder/params.json (name, shapes and config). */
lk_status lk_estimator_save(lk_estimator *estimator, const char *folder);
/* Loads weights, optimizer state, epoch, loss and config from such a folder. */
lk_status lk_estimator_load(lk_estimator *estimator, const char *folder);
/* Opens one of the library's own estimators from its folder alone, without loaders. NULL on
 * failure. */
lk_estimator *lk_estimator_open(const char *folder);

/* Properties of an estimator. What is returned belongs to it. The model of KRR is NULL. */
const char *lk_estimator_name(const lk_estimator *estimator);
lk_module *lk_estimator_model(const lk_estimator *estimator); /* borrowed; NULL for KRR */
const lk_estimator_config *lk_estimator_get_config(const lk_estimator *estimator);
/* Return the number of epochs trained so far, the loss of the last one, and the seconds that the
 * last run took. */
int64_t lk_estimator_epoch(const lk_estimator *estimator);
double lk_estimator_loss(const lk_estimator *estimator);
double lk_estimator_runtime(const lk_estimator *estimator);
/* Returns the number of epochs, and in `losses` the losses of a loader per epoch, over all runs.
 * They belong to the estimator. */
int64_t lk_estimator_history(const lk_estimator *estimator, const char *loader_key, const double **losses);

/* ---- Evaluating fields of any float dtype, with the numbers of NumPy and SciPy ---- */

double lk_mean_squared_error(const lk_tensor *a, const lk_tensor *b);
/* Returns the two-sample Kolmogorov-Smirnov statistic, the largest distance of the two
 * distribution functions, or NaN after an error. */
double lk_ks_statistic(const lk_tensor *a, const lk_tensor *b);

/* A histogram as a density: `edges` (bins + 1) over [min, max] and `density` (bins), both f64.
 * The caller frees them with lk_distribution_free. */
typedef struct lk_distribution {
    lk_tensor *edges, *density;
} lk_distribution;
/* numpy.histogram(field, bins, density=True). 0 bins means 100. */
lk_status lk_pdf(const lk_tensor *field, int bins, lk_distribution *out);
/* The distribution function: the sorted values and (i + 1) / count, as (count) tensors that the
 * caller frees. */
lk_status lk_cdf(const lk_tensor *field, lk_tensor **values, lk_tensor **fractions);
void lk_distribution_free(lk_distribution *distribution);

/* Returns the mean of (channels, size...) over all axes but one spatial axis: (channels, points
 * of that axis). The caller frees it. NULL on failure. */
lk_tensor *lk_profile(const lk_tensor *field, int dims, int axis);

/* E(k) = 1/2 sum over channels and over k - 1/2 <= |k| < k + 1/2 of |u_k|^2, for k = 1 ... n/2 of
 * the shortest axis. u_k are the Fourier coefficients (FFT / points). The caller frees
 * `wave_numbers` and `energy`, which are f64. */
lk_status lk_power_spectrum(const lk_tensor *field, int dims, lk_tensor **wave_numbers, lk_tensor **energy);

/* Returns the subgrid stress filter(u_i u_j) - filter(u_i) filter(u_j) of a velocity (dims,
 * size...): (dims, dims, size...) f32. `filter` is one of the lk_filter_* functions, with its
 * size. The caller frees the result. NULL on failure. */
lk_tensor *lk_reynolds_stress(const lk_tensor *velocity, int dims, lk_field_filter filter,
                              double filter_size);

/* Smagorinsky's model of the subgrid stress: -2 (c width)^2 |S| S_ij with |S| = sqrt(2 S_ij
 * S_ij), periodic central differences, and points at a distance of `spacing`. */
typedef struct lk_smagorinsky_stress_options {
    size_t struct_size;
    double c, width, spacing; /* 0.16, spacing, 1 */
} lk_smagorinsky_stress_options;
#define lk_smagorinsky_stress(...)                                                                           \
    LK_CALL2_(lk_smagorinsky_stress_with, lk_smagorinsky_stress_options, __VA_ARGS__, )
lk_tensor *lk_smagorinsky_stress_with(const lk_tensor *velocity, int dims,
                                      const lk_smagorinsky_stress_options *options);
/* The same with (c width)^2 from the field itself: Germano's identity with a box filter of
 * `ratio` points, and Lilly's least squares over the whole field. `c_squared` receives the
 * coefficient; it may be NULL. The caller frees the result. NULL on failure. */
lk_tensor *lk_dynamic_smagorinsky_stress(const lk_tensor *velocity, int dims, int64_t ratio, double spacing,
                                         double *c_squared);

/* Adds the estimators, their fields, losses and calls to the components that configs and
 * lk_component_make may name. `lockstep` does so at its start. Another call does nothing. Not
 * thread-safe. */
lk_status lk_estimator_components(void);

/* ---- Pictures, as PNG or SVG by the name of the file. Tensors are (channels, size...). ---- */

/* Plots the densities (logarithmic) of the values, and the distribution functions with their
 * distance. */
lk_status lk_plot_distributions(const char *path, const lk_tensor *prediction, const lk_tensor *target);
/* Plots target, prediction and error of one channel, with colour bars: the middle of the first
 * axis in three dimensions, the whole field in two, lines in one. */
lk_status lk_plot_slices(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                         int64_t channel);
/* Plots the means along one axis, with a panel per channel (at most four). */
lk_status lk_plot_profiles(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                           int axis);
/* Plots both power spectra (logarithmic) and the line of k^(-5/3). */
lk_status lk_plot_spectra(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims);
/* Plots the losses of each loader by epoch (logarithmic). */
lk_status lk_plot_losses(const char *path, const lk_estimator *estimator);

#ifdef __cplusplus
}
#endif
#endif
