/* Estimators: data, model, training and evaluation of physical fields in one object, after Sapsan's.
 *
 *     lk_estimator *estimator = lk_cnn3d(lk_fields_loaders(fields), .n_epochs = 5, .ddp = true);
 *     if (lk_estimator_train(estimator) == LK_OK) {
 *         lk_evaluation result;
 *         lk_estimator_evaluate(estimator, lk_fields_features(fields), lk_fields_targets(fields), &result);
 *         lk_estimator_save(estimator, "cnn3d");
 *     }
 *     lk_estimator_free(estimator);
 *
 * Training runs on the device that the config asks for, with as many ranks as ddp gives; evaluation and
 * prediction run on the CPU. An estimator of one's own is lk_estimator("Name", model, loaders, ...).
 *
 * Life: an estimator owns what it was made of, also where making it failed; a NULL part passes through and
 * the first call that uses the estimator reports it. One thread. */
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

/* What a training backend gets: everything that lk_train wants, which it must hand on to it. */
enum { LK_MAX_TRAINING_CALLBACKS = 20 };
typedef struct lk_training {
    lk_runner *runner;
    const struct lk_estimator_config *config;
    lk_loader_list loaders;
    lk_module *model;
    lk_criterion *criterion; /* NULL in a second run: the runner has it; likewise the two below */
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_callback_list callbacks; /* of the estimator; at most LK_MAX_TRAINING_CALLBACKS */
} lk_training;
typedef lk_status (*lk_training_backend)(const lk_training *training);
/* The library's: early stopping and the scheduler on the first loader's loss, no checkpoint at the epochs. */
lk_status lk_supervised_backend(const lk_training *training);

/* One struct for all estimators; each reads what it knows. Zero is the default; texts are copied. */
typedef struct lk_estimator_config {
    size_t struct_size;
    int n_epochs;       /* 1 */
    int patience;       /* 10: epochs without a better loss before the run ends, and before the rate falls */
    double min_delta;   /* 1e-5: what counts as better */
    const char *logdir; /* "./logs/"; the logs of an estimator's earlier run there make way, weights never */
    double lr;          /* 1e-3 */
    double min_lr;      /* lr * 1e-2 */
    const char *device; /* "auto" */
    bool ddp;
    int nproc;            /* ranks; 0: as many as there are GPUs or cores */
    bool verbose;         /* print the device and DDP to stdout before a run */
    const char *tracking; /* a folder, "mlruns": parameters, metrics and artifacts in MLflow's layout; off */
    const char *experiment; /* of the tracking; "Default" */

    /* An estimator's own parts, owned. The defaults: SmoothL1, Adam(lr), ReduceLROnPlateau(patience, min_lr).
     */
    lk_criterion *criterion;
    lk_optimizer *optimizer;
    lk_scheduler *scheduler;
    lk_callback_list callbacks;  /* more of them, for the first run */
    lk_training_backend backend; /* lk_supervised_backend */

    int nfilters;           /* PICAE: channels between its layers; 6 */
    const char *activation; /* PIMLturb: "relu", "tanh", "silu", "leaky_relu"; "relu" */
    double sigma;           /* PIMLturb: of the Gaussian layer, in points; 1 */
    double ks_frac;         /* PIMLturb: the share of the KS term in the loss; 0.5 */
    double l1_scale;        /* PIMLturb: what the SmoothL1 term is multiplied by; 1 */
    double ks_scale;        /* PIMLturb: what the KS term is multiplied by; 1 */
    double l1_beta;         /* PIMLturb: where SmoothL1 turns from square to line; 1 */
    double alpha, gamma;    /* KRR: the ridge, 1; the kernel's, 1 / features */
} lk_estimator_config;

/* A config from a JSON object with the names above ({"n_epochs": 5, "ddp": true}); what is not there is
 * default. Free it with lk_estimator_config_free; an estimator copies what it needs of it. */
lk_estimator_config *lk_estimator_config_read(const char *path);
void lk_estimator_config_free(lk_estimator_config *config);

/* Sapsan's convolutional network in three dimensions: (channels, size...) -> a flat field of the targets'
 * size. Targets may be flat or not. */
#define lk_cnn3d(...) LK_CALL1_(lk_cnn3d_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_cnn3d_with(lk_loader_list loaders, const lk_estimator_config *config);
/* The physics-informed convolutional autoencoder: a periodic vector field (3, size...), each size a multiple
 * of 8, -> a field of that shape whose divergence (central differences) is zero, as it is a curl. */
#define lk_picae(...) LK_CALL1_(lk_picae_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_picae_with(lk_loader_list loaders, const lk_estimator_config *config);
/* Turbulent quantities that are never negative, in one or three dimensions: convolutions, the square of what
 * they give, smoothed by a fixed Gaussian; the loss weighs SmoothL1 with the distance of the distributions.
 */
#define lk_pimlturb1d(...) LK_CALL1_(lk_pimlturb1d_with, lk_estimator_config, __VA_ARGS__, )
#define lk_pimlturb3d(...) LK_CALL1_(lk_pimlturb3d_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_pimlturb1d_with(lk_loader_list loaders, const lk_estimator_config *config);
lk_estimator *lk_pimlturb3d_with(lk_loader_list loaders, const lk_estimator_config *config);
/* Kernel ridge regression with the kernel exp(-gamma |a - b|^2): from the channels of a point to its targets.
 * It is solved, not trained: memory grows with the square of the number of points. */
#define lk_krr(...) LK_CALL1_(lk_krr_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_krr_with(lk_loader_list loaders, const lk_estimator_config *config);

/* One's own: any model over "features" whose output has as many numbers as "targets". */
#define lk_estimator(...) LK_CALL3_(lk_estimator_with, lk_estimator_config, __VA_ARGS__, )
lk_estimator *lk_estimator_with(const char *name, lk_module *model, lk_loader_list loaders,
                                const lk_estimator_config *config);
void lk_estimator_free(lk_estimator *estimator);

/* An estimator of one's own as a component, for configs: LK_ESTIMATOR_PARAMETERS are the loaders and the
 * numbers that every estimator has, for the component's table; lk_estimator_from_args makes it of them.
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

/* Trains for n_epochs, or until the first loader's loss has not fallen for `patience` epochs. Writes logdir.
 */
lk_status lk_estimator_train(lk_estimator *estimator);
/* A run uses its loaders up; training again goes on from where it ended, with these. */
lk_status lk_estimator_set_loaders(lk_estimator *estimator, lk_loader_list loaders);

/* The model's output for (samples, ...), on the CPU, in the shape of the targets; the caller frees it. */
lk_tensor *lk_estimator_predict(lk_estimator *estimator, const lk_tensor *features);
/* The same on a device by its name: "cpu", "cuda", ... KRR knows the CPU alone. */
lk_tensor *lk_estimator_predict_on(lk_estimator *estimator, const lk_tensor *features, const char *device);

typedef struct lk_evaluation {
    double mse;       /* eval - MSE Loss */
    double ks;        /* eval - KS Stat */
    double runtime_s; /* eval - runtime */
} lk_evaluation;
lk_status lk_estimator_evaluate(lk_estimator *estimator, const lk_tensor *features, const lk_tensor *targets,
                                lk_evaluation *out);

/* folder/model.safetensors: the weights under PyTorch's names, the optimizer's state, the epoch and the loss;
 * folder/params.json: the name, the shapes and the config. */
lk_status lk_estimator_save(lk_estimator *estimator, const char *folder);
/* Takes weights, optimizer, epoch, loss and config from there. */
lk_status lk_estimator_load(lk_estimator *estimator, const char *folder);
/* One of the library's own estimators from its folder alone, without loaders. */
lk_estimator *lk_estimator_open(const char *folder);

const char *lk_estimator_name(const lk_estimator *estimator);
lk_module *lk_estimator_model(const lk_estimator *estimator); /* borrowed; NULL for KRR */
const lk_estimator_config *lk_estimator_get_config(const lk_estimator *estimator);
/* The epochs trained so far, the loss of the last one, and how long the last run took. */
int64_t lk_estimator_epoch(const lk_estimator *estimator);
double lk_estimator_loss(const lk_estimator *estimator);
double lk_estimator_runtime(const lk_estimator *estimator);
/* The losses of a loader by epoch, of all runs so far; the estimator's own. Returns how many. */
int64_t lk_estimator_history(const lk_estimator *estimator, const char *loader_key, const double **losses);

/* ---- Evaluating fields. Tensors are of any float dtype; numbers are those of NumPy and SciPy. ---- */

double lk_mean_squared_error(const lk_tensor *a, const lk_tensor *b);
/* The two-sample Kolmogorov-Smirnov statistic: the largest distance of the two distribution functions. NaN
 * after an error. */
double lk_ks_statistic(const lk_tensor *a, const lk_tensor *b);

/* A histogram as a density: `edges` (bins + 1) over [min, max], `density` (bins), both f64 and the caller's.
 */
typedef struct lk_distribution {
    lk_tensor *edges, *density;
} lk_distribution;
/* numpy.histogram(field, bins, density=True); bins 0 is 100. */
lk_status lk_pdf(const lk_tensor *field, int bins, lk_distribution *out);
/* The distribution function: the values in order and (i + 1) / count, as (count) tensors. */
lk_status lk_cdf(const lk_tensor *field, lk_tensor **values, lk_tensor **fractions);
void lk_distribution_free(lk_distribution *distribution);

/* The mean of (channels, size...) over all axes but one spatial axis: (channels, points of that axis). */
lk_tensor *lk_profile(const lk_tensor *field, int dims, int axis);

/* E(k) = 1/2 sum over channels and over k - 1/2 <= |k| < k + 1/2 of |u_k|^2, for k = 1 ... n/2 of the
 * shortest axis: `wave_numbers` and `energy`, f64, the caller's. u_k are the Fourier coefficients (FFT /
 * points). */
lk_status lk_power_spectrum(const lk_tensor *field, int dims, lk_tensor **wave_numbers, lk_tensor **energy);

/* Subgrid stress: filter(u_i u_j) - filter(u_i) filter(u_j) of a velocity (dims, size...): (dims, dims,
 * size...) f32. `filter` is one of the lk_filter_* with its number. */
lk_tensor *lk_reynolds_stress(const lk_tensor *velocity, int dims, lk_field_filter filter,
                              double filter_size);

/* Smagorinsky's model of it: -2 (c width)^2 |S| S_ij with |S| = sqrt(2 S_ij S_ij), periodic central
 * differences and points `spacing` apart. c of 0 is 0.16. */
typedef struct lk_smagorinsky_stress_options {
    size_t struct_size;
    double c, width, spacing; /* 0.16, spacing, 1 */
} lk_smagorinsky_stress_options;
#define lk_smagorinsky_stress(...)                                                                           \
    LK_CALL2_(lk_smagorinsky_stress_with, lk_smagorinsky_stress_options, __VA_ARGS__, )
lk_tensor *lk_smagorinsky_stress_with(const lk_tensor *velocity, int dims,
                                      const lk_smagorinsky_stress_options *options);
/* The same with (c width)^2 from the field itself: Germano's identity with a box filter of `ratio` points,
 * Lilly's least squares over the whole field. Returns the stress; `c_squared`, where given, the coefficient.
 */
lk_tensor *lk_dynamic_smagorinsky_stress(const lk_tensor *velocity, int dims, int64_t ratio, double spacing,
                                         double *c_squared);

/* ---- Pictures, as PNG or SVG by the name of the file. Tensors are (channels, size...). ---- */

/* How the values are distributed: the densities (logarithmic), and the distribution functions with their
 * distance. */
lk_status lk_plot_distributions(const char *path, const lk_tensor *prediction, const lk_tensor *target);
/* Target, prediction and error of one channel in the middle of the first axis (all of a field in two
 * dimensions; lines in one), with colour bars. */
lk_status lk_plot_slices(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                         int64_t channel);
/* The means along one axis, a panel a channel (at most four). */
lk_status lk_plot_profiles(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims,
                           int axis);
/* Both power spectra (logarithmic) and the line of k^(-5/3). */
lk_status lk_plot_spectra(const char *path, const lk_tensor *prediction, const lk_tensor *target, int dims);
/* The losses of each loader by epoch (logarithmic). */
lk_status lk_plot_losses(const char *path, const lk_estimator *estimator);

#ifdef __cplusplus
}
#endif
#endif
