/* The confusion matrix of each loader and epoch: as PNG and CSV under LOGDIR/confusion_matrix, as a picture
 * for the loggers, and as a drawing on the terminal where verbose. */
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static lk_status save_files(const lk_runner *runner, const lk_metric *metric, const char *name)
{
    if (!runner->logdir) return LK_OK;
    LKI_SCOPED char *folder = lki_format("%s/%s", runner->logdir, name);
    if (!folder) return LK_ERR_NOMEM;
    LKI_TRY(lki_make_folders(folder));
    LKI_SCOPED char *csv =
        lki_format("%s/%s_%04lld.csv", folder, runner->loader_key, (long long)runner->epoch_step);
    LKI_SCOPED char *png =
        lki_format("%s/%s_%04lld.png", folder, runner->loader_key, (long long)runner->epoch_step);
    if (!csv || !png) return LK_ERR_NOMEM;
    LKI_TRY(lk_confusion_matrix_save_csv(metric, csv));
    return lk_confusion_matrix_save_png(metric, png);
}

static lk_status log_picture(lk_runner *runner, const lk_metric *metric, const char *name)
{
    if (runner->run->reporting.logger_count == 0) return LK_OK;
    lk_tensor *pixels = lk_confusion_matrix_draw(metric);
    if (!pixels) return lki_last_status();
    lk_status status = lki_report_image(runner, name, pixels);
    lk_tensor_free(pixels);
    return status;
}

static lk_status draw(const lk_runner *runner, const lk_metric *metric)
{
    if (!runner->verbose) return LK_OK;
    char *text = lk_confusion_matrix_text(metric, isatty(STDOUT_FILENO));
    if (!text) return lki_last_status();
    printf("%s (%lld/%lld)\n%s", runner->loader_key, (long long)runner->epoch_step,
           (long long)runner->num_epochs, text);
    lk_text_free(text);
    return LK_OK;
}

/* The state has been joined over the ranks by now: the first one speaks for all. */
static lk_status publish(lk_runner *runner, lk_metric *metric, void *context)
{
    const char *name = context;
    if (!runner->is_master) return LK_OK;
    LKI_TRY(save_files(runner, metric, name));
    LKI_TRY(log_picture(runner, metric, name));
    return draw(runner, metric);
}

/* The name is that of a folder in the logdir, or of one below it. */
static lk_status check_name(const char *name)
{
    for (const char *part = name; part; part = strchr(part, '/')) {
        part += *part == '/';
        if (!strncmp(part, "..", 2) && (!part[2] || part[2] == '/'))
            return lki_fail(LK_ERR_INVALID, "ConfusionMatrix: \"%.100s\" leads out of the logdir", name);
    }
    return LK_OK;
}

lk_callback *lk_confusion_matrix_callback_with(const lk_metric_callback_options *given)
{
    LKI_TAKE(lk_metric_callback_options, options, given, NULL);
    lk_metric_options counted = lki_metric_callback_options(&options);
    lk_metric *metric = lk_confusion_matrix_metric_with(&counted);
    char *name = lki_format("%sconfusion_matrix%s", options.prefix ? options.prefix : "",
                            options.suffix ? options.suffix : "");
    if (!metric || !name || check_name(name)) {
        lk_metric_free(metric);
        lki_free(name);
        return NULL;
    }
    /* Behind the progress bar, which has left the terminal's line by then. */
    return lki_metric_callback_new(metric, &options, LK_ORDER_EXTERNAL + 1, publish, name);
}
