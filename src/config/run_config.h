/* Running a config: what its parts wish of the engine, and the calls under `run:`. */
#ifndef LKI_CONFIG_RUN_CONFIG_H
#define LKI_CONFIG_RUN_CONFIG_H

#include "config/build.h"

#include <lockstep/runner.h>

/* What an engine of a config asks for. */
typedef struct lki_engine_wish {
    const char *device; /* NULL: the best that is there */
    bool ddp, half, tf32;
} lki_engine_wish;

/* Plans a config, seeds the generator and builds all objects: what comes before the calls. The plan must be
 * finished, on failure too. */
lk_status lki_config_build(lk_config *config, lki_plan *plan);

/* Makes the calls in order. */
lk_status lki_config_call(lk_config *config, lki_plan *plan);

/* The first call of that name under `run:`; NULL where there is none. */
lki_object *lki_config_find_call(const lk_config *config, const char *name);

/* Where predictions go: to a file in the format of its ending (write_outputs.h), as JSON to stdout, or
 * both. */
typedef struct lki_prediction_target {
    const char *path; /* NULL: no file */
    bool json;
} lki_prediction_target;

/* Runs the model over a loader and writes its outputs, (samples, ...): of several ranks that call it, rank 0.
 * An ending without a format is refused before the model runs; the loader is then freed, too. */
lk_status lki_predict_to_file(lk_runner *runner, lk_loader *loader, lk_evaluate_options options,
                              lki_prediction_target target);

/* What `lockstep evaluate` and `lockstep predict` do with a training config. */
typedef struct lki_evaluation {
    const char *checkpoint; /* weights to load; NULL: as they are built */
    const char *loader_key; /* NULL: the run's valid_loader */
    const char *device;     /* NULL: the config's */
    const char *onnx;       /* export: the ONNX file; nothing is predicted or reported */
    bool predicts;          /* without onnx; else it reports metrics */
    lki_prediction_target target;
    bool verbose;
} lki_evaluation;

/* Of a built plan. The metrics are in the runner's loader_metrics afterwards. */
lk_status lki_config_evaluate(lk_config *config, lki_plan *plan, const lki_evaluation *wish);

/* Hands metrics to the log, a line each: "accuracy01: 0.8583". On rank 0. */
void lki_config_report(const lk_metrics *metrics);

#endif
