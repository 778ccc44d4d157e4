/* An estimator inside, for the files of this folder. */
#ifndef LKI_ESTIMATOR_ESTIMATOR_H
#define LKI_ESTIMATOR_ESTIMATOR_H

#include <lockstep/config.h>
#include <lockstep/estimator.h>

#include "logger/tracking.h"

enum { LKI_MAX_ESTIMATOR_LOADERS = 8 };

/* The losses of one loader, epoch by epoch. */
typedef struct lki_history {
    char *key;
    double *losses;
    int64_t count, capacity;
} lki_history;

/* What a kernel ridge regression has learned (krr.c). */
typedef struct lki_krr {
    int64_t count, features, targets;
    double gamma;
    double *points;  /* (count, features) */
    double *weights; /* (count, targets) */
} lki_krr;

struct lk_estimator {
    char *name;
    lk_shape features, targets; /* of one sample */
    lk_estimator_config config; /* texts are copies; parts that are handed to the runner are NULL */
    lk_module *model;           /* the runner's, once it has trained */
    lk_named_loader loaders[LKI_MAX_ESTIMATOR_LOADERS];
    int loader_count;
    lk_callback *callbacks[16]; /* of the first run */
    int callback_count;
    lk_runner *runner;
    bool runner_owns_model, has_parts;
    bool is_krr;
    lki_krr krr;

    lki_history histories[LKI_MAX_ESTIMATOR_LOADERS];
    int history_count;
    lk_state_dict *optimizer_state; /* after a run, or loaded; NULL before */
    int64_t epoch;
    double loss, runtime_s;
    lki_tracking *tracking; /* of the last run, on the master; NULL where it is off */
};

/* estimator.c. Both own the loaders and the config's parts. `shapes` are of one sample. */
lk_estimator *lki_estimator_new(const char *name, lk_loader_list loaders, const lk_estimator_config *given);
/* Gives it its model, which may be NULL after a failure: then the estimator is freed and NULL is returned. */
lk_estimator *lki_estimator_with_model(lk_estimator *estimator, lk_module *model_owned);
void lki_free_loader_list(lk_loader_list loaders);
/* All samples of a dataset: features and targets, (samples, ...) each, the caller's, on failure too. */
lk_status lki_gather_samples(lk_dataset *dataset, lk_tensor **features, lk_tensor **targets);
lk_status lki_history_add(lk_estimator *estimator, const char *key, double loss);
/* The config with every default filled in. */
lk_status lki_config_resolve(lk_estimator_config *config);
void lki_config_free(lk_estimator_config *config);

/* track.c: a run's tracking, on the master where the config asks for it. `runner` is NULL for KRR. */
lk_status lki_estimator_track_begin(lk_estimator *estimator, const lk_runner *runner);
lk_status lki_estimator_track_end(lk_estimator *estimator, lk_status status);
/* Whether this process is the one that writes: rank 0, whoever started the ranks. */
bool lki_estimator_is_master(void);

/* logdir.c: removes the logs that an estimator's earlier run has written into a folder, and nothing else. */
#define LKI_MODEL_DETAILS "model_details.txt" /* what shows that an estimator has been there */
lk_status lki_logdir_wipe(const char *logdir);

/* The library's own models: of the shapes of a sample; NULL with the reason. */
lk_module *lki_cnn3d_model(const lk_estimator *estimator);
lk_module *lki_picae_model(const lk_estimator *estimator);
lk_module *lki_pimlturb_model(const lk_estimator *estimator, int dims);
lk_criterion *lki_pimlturb_criterion(const lk_estimator_config *config);
/* The SmoothL1 loss over targets of any shape with as many numbers. */
lk_criterion *lki_field_loss(void);

/* save.c: an estimator of the library by its name, without loaders. */
lk_estimator *lki_estimator_by_name(const char *name, lk_shape features, lk_shape targets,
                                    lk_estimator_config config);

/* components*.c: models, losses, fields, estimators and the call that trains one by name, for configs. */
lk_status lki_estimator_components_add(void);
extern const lk_component lki_estimator_table[], lki_fields_component;

/* predict.c: the measures of a prediction, tracked where the run is; runtime_s is the caller's. */
lk_status lki_estimator_score(lk_estimator *estimator, const lk_tensor *prediction, const lk_tensor *targets,
                              lk_evaluation *out);

/* report.c: what comes after a run from a config: the measures and pictures of a dataset. */
typedef struct lki_report_options {
    const char *save;     /* a folder for the model; NULL: none */
    const char *pictures; /* a folder; NULL: none */
    const char *format;   /* "png", "svg" */
} lki_report_options;
lk_status lki_estimator_report(lk_estimator *estimator, lk_dataset *dataset,
                               const lki_report_options *options);

/* krr.c */
lk_status lki_krr_fit(lk_estimator *estimator);
lk_tensor *lki_krr_predict(const lk_estimator *estimator, const lk_tensor *features);
lk_status lki_krr_save(const lki_krr *krr, lk_state_dict *state);
lk_status lki_krr_load(lk_estimator *estimator, const lk_state_dict *state);
void lki_krr_free(lki_krr *krr);

#endif
