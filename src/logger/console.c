#include "logger/logger.h"

#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "logger/format.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

typedef struct console {
    FILE *stream;
    bool hparams;
} console;

static lk_status console_log_metrics(void *context, lk_log_scope scope, const lk_log_step *step,
                                     lk_metric_values values)
{
    FILE *stream = ((console *)context)->stream;
    if (scope == LK_LOG_LOADER)
        fprintf(stream, "%s (%" PRId64 "/%" PRId64 ") ", step->loader_key, step->epoch_step,
                step->epoch_count);
    else if (strcmp(step->loader_key, "_epoch_") == 0)
        fprintf(stream, "* Epoch (%" PRId64 "/%" PRId64 ") ", step->epoch_step, step->epoch_count);
    else
        return LK_OK; /* its line came when the loader ended */
    for (int i = 0; i < values.count; i++) {
        char number[LKI_NUMBER_LENGTH];
        fprintf(stream, "%s%s: %s", i ? " | " : "", values.items[i].name,
                lki_format_short(number, values.items[i].value));
    }
    fputc('\n', stream);
    if (fflush(stream) != 0) return lki_fail(LK_ERR_IO, "console: could not write: %s", strerror(errno));
    return LK_OK;
}

static lk_status console_log_hparams(void *context, const char *json)
{
    const console *self = context;
    if (!self->hparams) return LK_OK;
    fprintf(self->stream, "hparams: %s\n", json);
    if (fflush(self->stream) == 0) return LK_OK;
    return lki_fail(LK_ERR_IO, "console: could not write: %s", strerror(errno));
}

static lk_status console_close(void *context)
{
    FILE *stream = ((console *)context)->stream;
    lki_free(context);
    return fflush(stream) == 0 ? LK_OK : lki_fail(LK_ERR_IO, "console: could not write: %s", strerror(errno));
}

lk_logger *lk_console_logger_with(const lk_logger_options *given)
{
    LKI_TAKE(lk_logger_options, options, given, NULL);
    static const lk_logger_ops ops = {LK_SIZE(lk_logger_ops), .log_metrics = console_log_metrics,
                                      .log_hparams = console_log_hparams, .close = console_close};
    console *self = LKI_NEW(console);
    if (!self) return NULL;
    self->stream = options.stream ? options.stream : stdout;
    self->hparams = options.hparams;
    return lki_logger_create_to(&ops, LK_LOG_LOADER | LK_LOG_EPOCH, self,
                                (lki_logger_target){.stream = self->stream});
}
