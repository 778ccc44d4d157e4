#include "run/custom_runner.h"

#include "base/status.h"
#include "run/run.h"

static lk_status ask_for_loaders(lk_runner *runner)
{
    lk_named_loader loaders[LKI_MAX_LOADERS];
    int count = 0;
    LKI_TRY(runner->ops->get_loaders(runner, loaders, LKI_MAX_LOADERS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_loader_free(loaders[i].loader);
        else
            first = lki_run_add_loader(&runner->run->loaders, loaders[i].key, loaders[i].loader);
    }
    return first;
}

static lk_status ask_for_callbacks(lk_runner *runner)
{
    lk_callback *callbacks[LKI_MAX_CALLBACKS];
    int count = 0;
    LKI_TRY(runner->ops->get_callbacks(runner, callbacks, LKI_MAX_CALLBACKS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_callback_free(callbacks[i]);
        else
            first = lki_run_add_callback(runner, callbacks[i]);
    }
    return first;
}

static lk_status ask_for_loggers(lk_runner *runner)
{
    lk_logger *loggers[LKI_MAX_LOGGERS];
    int count = 0;
    LKI_TRY(runner->ops->get_loggers(runner, loggers, LKI_MAX_LOGGERS, &count));
    lk_status first = LK_OK;
    for (int i = 0; i < count; i++) {
        if (first)
            lk_logger_close(loggers[i]);
        else
            first = lki_run_add_logger(&runner->run->reporting, loggers[i]);
    }
    return first;
}

static lk_status ask_for_parts(lk_runner *runner)
{
    const lk_runner_ops *ops = runner->ops;
    if (!runner->model && ops->get_model && !(runner->model = ops->get_model(runner)))
        return lki_last_status();
    if (!runner->criterion && ops->get_criterion && !(runner->criterion = ops->get_criterion(runner)))
        return lki_last_status();
    if (!runner->optimizer && ops->get_optimizer &&
        !(runner->optimizer = ops->get_optimizer(runner, runner->model)))
        return lki_last_status();
    if (!runner->scheduler && ops->get_scheduler &&
        !(runner->scheduler = ops->get_scheduler(runner, runner->optimizer)))
        return lki_last_status();
    return LK_OK;
}

lk_status lki_run_ask_custom_runner(lk_runner *runner, lk_train_options *options)
{
    const lk_runner_ops *ops = runner->ops;
    if (!ops) return LK_OK;
    if (ops->get_engine) LKI_TRY(ops->get_engine(runner, options));
    if (runner->run->loaders.count == 0 && ops->get_loaders) LKI_TRY(ask_for_loaders(runner));
    LKI_TRY(ask_for_parts(runner));
    if (runner->run->evaluating) return LK_OK;
    if (ops->get_callbacks) LKI_TRY(ask_for_callbacks(runner));
    if (ops->get_loggers) LKI_TRY(ask_for_loggers(runner));
    return LK_OK;
}
