/* A callback that is only called in some epochs, or for some loaders. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <string.h>

typedef struct control_context {
    lk_control_flow_callback_options options; /* its lists are copies */
    bool active;                              /* for the loader that runs; decided when it starts */
} control_context;

static bool is_among(const int *epochs, int64_t epoch)
{
    for (; epochs && *epochs; epochs++)
        if (*epochs == epoch) return true;
    return false;
}

static bool is_named(const char *const *names, const char *name)
{
    for (; names && *names; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

static bool suits_epoch(const lk_control_flow_callback_options *options, int64_t epoch)
{
    if (options->epochs > 0 && epoch % options->epochs != 0) return false;
    if (options->epoch_list && !is_among(options->epoch_list, epoch)) return false;
    if (options->ignore_epochs > 0 && epoch % options->ignore_epochs == 0) return false;
    return !is_among(options->ignore_epoch_list, epoch);
}

static bool suits_loader(const lk_control_flow_callback_options *options, int64_t epoch, const char *key)
{
    if (options->loaders && !is_named(options->loaders, key)) return false;
    if (is_named(options->ignore_loaders, key)) return false;
    return !options->filter_fn || options->filter_fn("train", epoch, key, options->context);
}

static lk_status check_loaders(const lk_runner *runner, const char *const *names)
{
    for (; names && *names; names++)
        LKI_TRY(lki_run_check_loader(&runner->run->loaders, "ControlFlowCallback", *names));
    return LK_OK;
}

static lk_status start(lki_wrapper *wrapper, lk_runner *runner)
{
    const lk_control_flow_callback_options *options = &((control_context *)wrapper->context)->options;
    LKI_TRY(check_loaders(runner, options->loaders));
    return check_loaders(runner, options->ignore_loaders);
}

/* An epoch's start and end depend on the epoch alone; everything between them on the loader too. */
static bool wants(lki_wrapper *wrapper, lk_runner *runner, lki_moment moment)
{
    control_context *context = wrapper->context;
    bool suits = suits_epoch(&context->options, runner->epoch_step);
    switch (moment) {
    case LKI_MOMENT_experiment_start:
    case LKI_MOMENT_experiment_end:
    case LKI_MOMENT_exception: return true;
    case LKI_MOMENT_epoch_start:
    case LKI_MOMENT_epoch_end: return suits;
    case LKI_MOMENT_settled: return suits && (!runner->batch || context->active);
    case LKI_MOMENT_loader_start:
        context->active = suits && suits_loader(&context->options, runner->epoch_step, runner->loader_key);
        return context->active;
    default: return context->active;
    }
}

static void fini(void *context)
{
    lk_control_flow_callback_options *options = &((control_context *)context)->options;
    lki_free((int *)options->epoch_list);
    lki_free((int *)options->ignore_epoch_list);
    lki_names_free((char **)options->loaders);
    lki_names_free((char **)options->ignore_loaders);
}

static lk_status copy_epochs(const int **list)
{
    const int *given = *list;
    int count = 0;
    *list = NULL;
    if (!given) return LK_OK;
    while (given[count]) count++;
    int *copy = LKI_NEW_ARRAY(int, count + 1);
    if (!copy) return LK_ERR_NOMEM;
    memcpy(copy, given, sizeof *copy * (size_t)count);
    *list = copy;
    return LK_OK;
}

static lk_status copy_lists(lk_control_flow_callback_options *options)
{
    const char *const *loaders = options->loaders, *const *ignored = options->ignore_loaders;
    char **copy;
    options->loaders = options->ignore_loaders = NULL;
    lk_status first = copy_epochs(&options->epoch_list), second = copy_epochs(&options->ignore_epoch_list);
    LKI_TRY(first ? first : second);
    LKI_TRY(lki_names_copy(&copy, loaders));
    options->loaders = (const char *const *)copy;
    LKI_TRY(lki_names_copy(&copy, ignored));
    options->ignore_loaders = (const char *const *)copy;
    return LK_OK;
}

static lk_status check_epochs(const char *what, int period, const int *list)
{
    if (period < 0)
        return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: %s: a period must not be negative, found %d",
                        what, period);
    if (list && !*list) return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: %s: the list is empty", what);
    for (int i = 0; list && list[i]; i++)
        if (list[i] < 0)
            return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: %s: there is no epoch %d", what, list[i]);
    return LK_OK;
}

static lk_status check_options(const lk_control_flow_callback_options *o)
{
    if (!o->epochs && !o->epoch_list && !o->ignore_epochs && !o->ignore_epoch_list && !o->loaders &&
        !o->ignore_loaders && !o->filter_fn)
        return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: expected epochs, ignore_epochs, loaders, "
                                        "ignore_loaders or filter_fn, found none");
    if (o->loaders && !*o->loaders)
        return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: loaders: the list is empty");
    if (o->ignore_loaders && !*o->ignore_loaders)
        return lki_fail(LK_ERR_INVALID, "ControlFlowCallback: ignore_loaders: the list is empty");
    LKI_TRY(check_epochs("epochs", o->epochs, o->epoch_list));
    return check_epochs("ignore_epochs", o->ignore_epochs, o->ignore_epoch_list);
}

lk_callback *lk_control_flow_callback_with(lk_callback *callback,
                                           const lk_control_flow_callback_options *given)
{
    lk_control_flow_callback_options options;
    lk_status status = lki_take(&options, sizeof options, given, "lk_control_flow_callback_options");
    static const lki_wrapper_ops ops = {
        .wants = wants, .start = start, .fini = fini, .decides_at_loader_start = true};
    control_context *context = LKI_NEW(control_context);
    if (!context) status = LK_ERR_NOMEM;
    if (status == LK_OK) status = check_options(&options);
    if (status == LK_OK) {
        context->options = options;
        status = copy_lists(&context->options);
        if (status) fini(context);
    }
    if (status) {
        lki_free(context);
        lk_callback_free(callback);
        return NULL;
    }
    return lki_wrapper_create(&ops, callback, context);
}
