/* A run inside: what lk_train makes of its options. Each part is declared by the file that owns it. */
#ifndef LKI_RUN_RUN_H
#define LKI_RUN_RUN_H

#include "resume/resuming.h"
#include "run/batch.h"
#include "run/batches.h"
#include "run/distributed.h"
#include "run/listeners.h"
#include "run/limits.h"
#include "run/loaders.h"
#include "run/loggers.h"
#include "run/metric_names.h"
#include "run/objective.h"
#include "run/parts.h"
#include "run/pass_metrics.h"
#include "run/profile.h"
#include "run/run_engine.h"
#include "run/screen.h"
#include "run/setup.h"
#include "run/shards.h"
#include "run/vitals.h"

typedef struct lki_run {
    lki_run_given given;
    lki_run_loaders loaders;
    lki_run_limits limits;
    lki_listeners listeners;
    lki_parts parts;
    lki_run_engine engine;
    lki_run_ranks ranks;
    lki_run_batch batch;
    lki_objective objective;
    lki_metric_names names;
    lki_pass_metrics pass;
    lki_reporting reporting;
    lki_profile profile;
    lki_screen screen;
    lki_vitals vitals;
    lki_resuming resuming;
    lki_run_stop stop;
    bool running;      /* its callbacks may be at work */
    bool evaluating;   /* not a training run: nothing moves optimizer or scheduler */
    bool inside_epoch; /* its loaders are being gone through */
} lki_run;

/* How many batches of a pass of `count` a loader takes. */
int64_t lki_run_limit_batches(const lki_run *run, const lki_run_loader *entry, int64_t count);

#endif
