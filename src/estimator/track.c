/* What is tracked of a run, under Sapsan's names: parameters when it begins, the time and the files when it
 * ends. The metrics in between are written where they are known. */
#include "estimator/estimator.h"

#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "run/run.h"

#include <lockstep/launch.h>

#include <stdarg.h>
#include <stdio.h>

bool lki_estimator_is_master(void)
{
    return lk_rank() == 0;
}

static lk_status param(lk_estimator *estimator, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static lk_status param(lk_estimator *estimator, const char *name, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return lki_tracking_param(estimator->tracking, name, text);
}

static lk_status track_network(lk_estimator *estimator, const lk_runner *runner)
{
    const lk_estimator_config *config = &estimator->config;
    LKI_TRY(param(estimator, "model - n_epochs", "%d", config->n_epochs));
    LKI_TRY(param(estimator, "model - patience", "%d", config->patience));
    LKI_TRY(param(estimator, "model - min_delta", "%g", config->min_delta));
    LKI_TRY(param(estimator, "model - lr", "%g", config->lr));
    LKI_TRY(param(estimator, "model - min_lr", "%g", config->min_lr));
    LKI_TRY(param(estimator, "model - parameters", "%lld", (long long)lk_module_param_count(runner->model)));
    LKI_TRY(param(estimator, "model - device", "%s", lk_engine_name(runner->engine)));
    LKI_TRY(param(estimator, "model - ddp", "%s", runner->world_size > 1 ? "True" : "False"));
    LKI_TRY(param(estimator, "model - logdir", "%s", config->logdir));
    return param(estimator, "data - batch_size", "%lld",
                 (long long)lk_loader_batch_size(runner->run->loaders.items[0].loader));
}

static lk_status track_krr(lk_estimator *estimator)
{
    const lk_estimator_config *config = &estimator->config;
    double gamma = config->gamma > 0 ? config->gamma : 1.0 / (double)estimator->features.dim[0];
    LKI_TRY(param(estimator, "model - alpha", "%g", config->alpha));
    LKI_TRY(param(estimator, "model - gamma", "%.17g", gamma));
    LKI_TRY(param(estimator, "model - kernel", "rbf"));
    return param(estimator, "model - device", "cpu");
}

lk_status lki_estimator_track_begin(lk_estimator *estimator, const lk_runner *runner)
{
    const lk_estimator_config *config = &estimator->config;
    char shape[128];
    lki_tracking_free(estimator->tracking);
    estimator->tracking = NULL;
    if (!*config->tracking || (runner && !runner->is_master)) return LK_OK;
    LKI_TRY(lki_tracking_begin(&estimator->tracking, config->tracking, config->experiment, estimator->name));
    LKI_TRY(param(estimator, "model - name", "%s", estimator->name));
    LKI_TRY(
        param(estimator, "data - features", "%s", lk_shape_format(shape, sizeof shape, estimator->features)));
    LKI_TRY(
        param(estimator, "data - targets", "%s", lk_shape_format(shape, sizeof shape, estimator->targets)));
    return runner ? track_network(estimator, runner) : track_krr(estimator);
}

lk_status lki_estimator_track_end(lk_estimator *estimator, lk_status status)
{
    if (!estimator->tracking) return LK_OK;
    LKI_SCOPED char *details = lki_format("%s/model_details.txt", estimator->config.logdir);
    if (!details) return LK_ERR_NOMEM;
    LKI_TRY(
        lki_tracking_metric(estimator->tracking, "train - runtime", estimator->runtime_s, estimator->epoch));
    if (!estimator->is_krr) LKI_TRY(lki_tracking_artifact(estimator->tracking, details));
    return lki_tracking_state(estimator->tracking, status ? LKI_RUN_FAILED : LKI_RUN_FINISHED);
}
