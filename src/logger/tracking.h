/* A run in MLflow's file layout: mlruns/EXPERIMENT/RUN/{meta.yaml, params/, metrics/, tags/, artifacts/}, for
 * its pages and its Python to read. One thread, one process: the master's. */
#ifndef LKI_LOGGER_TRACKING_H
#define LKI_LOGGER_TRACKING_H

#include <lockstep/tensor.h>

#include <stdint.h>

typedef struct lki_tracking lki_tracking;

typedef enum lki_run_state {
    LKI_RUN_RUNNING = 1,
    LKI_RUN_FINISHED = 3,
    LKI_RUN_FAILED = 4,
    LKI_RUN_KILLED = 5
} lki_run_state;

/* A new run of the experiment, which is made where there is none of that name. */
lk_status lki_tracking_begin(lki_tracking **out, const char *folder, const char *experiment,
                             const char *run_name);
void lki_tracking_free(lki_tracking *tracking);

/* Names may have folders ("train/loss"). The layout knows letters, digits and "_-. :/" alone: others become
 * "_". */
lk_status lki_tracking_param(lki_tracking *tracking, const char *name, const char *value);
lk_status lki_tracking_metric(lki_tracking *tracking, const char *name, double value, int64_t step);
/* Copies a file; one that is not there is left out. */
lk_status lki_tracking_artifact(lki_tracking *tracking, const char *path);
/* A picture, as artifacts/NAME.png. */
lk_status lki_tracking_image(lki_tracking *tracking, const char *name, const lk_tensor *pixels);
/* What became of the run; may be called again. */
lk_status lki_tracking_state(lki_tracking *tracking, lki_run_state state);

#endif
