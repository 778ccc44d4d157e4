/* Catalyst's ProfilerCallback: it tells the run what to trace, and when. */
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"
#include "run/loaders.h"

#include <limits.h>
#include <string.h>

/* Before an epoch is spent. */
static lk_status make_folder_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || slash == path) return LK_OK;
    LKI_SCOPED char *folder = lki_format("%.*s", (int)(slash - path), path);
    return folder ? lki_make_folders(folder) : LK_ERR_NOMEM;
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const lk_profiler_callback_options *own = callback->context;
    lki_run *run = runner->run;
    const char *loader = own->loader_key ? own->loader_key : run->loaders.items[0].key;
    if (!runner->logdir)
        return lki_fail(LK_ERR_INVALID,
                        "ProfilerCallback: profile.txt is written to the logdir: give the run one");
    if (lki_run_find_loader(&run->loaders, loader) < 0)
        return lki_fail(LK_ERR_NOT_FOUND, "ProfilerCallback: loader_key: the run has no loader \"%s\"",
                        loader);
    if (own->epoch > runner->num_epochs)
        return lki_fail(LK_ERR_INVALID, "ProfilerCallback: epoch: the run has %lld epochs, and no epoch %d",
                        (long long)runner->num_epochs, own->epoch);
    if (runner->is_master) LKI_TRY(make_folder_of(own->export_chrome_trace_path));
    run->given.options.profile = true;
    run->given.options.profile_batches = own->num_batches ? own->num_batches : INT_MAX;
    run->profile.wish.given = true;
    run->profile.wish.epoch = own->epoch;
    run->profile.wish.loader_key = loader;
    run->profile.wish.path = own->export_chrome_trace_path;
    return LK_OK;
}

static void free_context(lk_callback *callback)
{
    lk_profiler_callback_options *own = callback->context;
    lki_free((char *)own->loader_key);
    lki_free((char *)own->export_chrome_trace_path);
    lki_free(own);
}

lk_callback *lk_profiler_callback_with(const lk_profiler_callback_options *given)
{
    LKI_TAKE(lk_profiler_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Profiler",
                                        .on_experiment_start = start, .free = free_context};
    if (options.epoch < 0 || options.num_batches < 0)
        return lki_fail_null(LK_ERR_INVALID, "ProfilerCallback: epoch and num_batches: expected at least 1");
    lk_callback *callback = lki_callback_new(&ops, sizeof options, LK_ORDER_INTERNAL);
    if (!callback) return NULL;
    lk_profiler_callback_options *own = callback->context;
    *own = options;
    callback->may_lag = true;
    own->epoch = options.epoch ? options.epoch : 1;
    own->loader_key = lki_strdup(options.loader_key);
    own->export_chrome_trace_path = lki_strdup(options.export_chrome_trace_path);
    if ((own->loader_key || !options.loader_key) &&
        (own->export_chrome_trace_path || !options.export_chrome_trace_path))
        return callback;
    lk_callback_free(callback);
    return NULL;
}
