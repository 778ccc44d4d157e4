#include "run/run_header.h"

#include "base/log.h"
#include "base/memory.h"
#include "base/number_text.h"
#include "base/status.h"
#include "comm/comm.h"
#include "run/loop.h"
#include "run/model_file.h"
#include "run/run.h"

#include <lockstep/version.h>

#include <stdarg.h>
#include <string.h>

/* ---- Notes ---- */

static bool is_said(const char *notes, const char *line)
{
    size_t length = strlen(line);
    for (const char *at = notes; at && *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, length) == 0 && at[length] == '\n') return true;
    return false;
}

lk_status lki_header_note(char **notes, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    lki_vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (is_said(*notes, line)) return LK_OK;
    char *longer = lki_format("%s%s\n", *notes ? *notes : "", line);
    if (!longer) return LK_ERR_NOMEM;
    lki_free(*notes);
    *notes = longer;
    return LK_OK;
}

/* ---- The header ---- */

static void print_count(char *text, size_t capacity, int64_t count)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < capacity; i++) {
        if (i && (length - i) % 3 == 0) text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = 0;
}

static void print_model(FILE *stream, const lk_runner *runner)
{
    lk_dtype dtype;
    lk_shape shape;
    char *text = NULL;
    if (!runner->model || !lki_run_batch_shape(runner, &dtype, &shape)) return;
    if (lk_module_summary(runner->model, dtype, shape, &text) == LK_OK) fprintf(stream, "%s", text);
    lk_text_free(text);
}

static const char *precision_name(lk_dtype dtype)
{
    return dtype == LK_F16 ? "fp16 with loss scaling" : dtype == LK_BF16 ? "bf16" : "fp32";
}

/* Exactly what runs: nobody has to guess what ddp did. */
void lki_header_print(FILE *stream, const lk_runner *runner, const char *gpus, bool with_layers)
{
    const lki_run *run = runner->run;
    char parameters[48], over[96] = "", shards[32] = "";
    bool tf32 = run->engine.options.allow_tf32 && *gpus && run->batch.step_options.precision == LK_F32;
    bool benchmark = run->engine.options.benchmark && *gpus;
    bool staged = *gpus && run->ranks.comm && !run->ranks.comm->ops->on_device;
    const char *note = gpus;
    char mixed[64];
    if (!*gpus && run->engine.mixed_cpus && runner->engine->ops->kernels) {
        snprintf(mixed, sizeof mixed, "%s on all ranks, whose CPUs differ",
                 runner->engine->ops->kernels(runner->engine));
        note = mixed;
    }
    if (with_layers) print_model(stream, runner);
    print_count(parameters, sizeof parameters, runner->model ? lk_module_param_count(runner->model) : 0);
    if (run->given.options.shards)
        snprintf(shards, sizeof shards, ", %d shard%s", run->given.options.shards,
                 run->given.options.shards == 1 ? "" : "s");
    if (run->ranks.comm) lki_comm_describe(run->ranks.comm, over, sizeof over);
    fprintf(
        stream,
        "lockstep %s: %s%s%s parameters; device %s%s%s%s, precision %s%s%s; %d rank%s%s%s%s%s%s%s%s; batch "
        "%lld, global "
        "batch %lld; seed %llu\n",
        lk_version(), runner->model ? lk_module_type(runner->model) : "", runner->model ? " with " : "",
        parameters, lk_engine_name(runner->engine), *note ? " (" : "", note, *note ? ")" : "",
        precision_name(run->batch.step_options.precision), tf32 ? " with tf32 products" : "",
        benchmark ? ", convolutions by trial" : "", runner->world_size, runner->world_size == 1 ? "" : "s",
        run->ranks.comm ? " over " : "", over, staged ? " through the host's memory" : "",
        run->ranks.launch_note ? " (" : "", run->ranks.launch_note ? run->ranks.launch_note : "",
        run->ranks.launch_note ? ")" : "", shards,
        (long long)lk_loader_batch_size(run->loaders.items[0].loader),
        (long long)lk_loader_batch_size(run->loaders.items[0].loader) * lki_run_share_count(runner),
        (unsigned long long)runner->seed);
    for (int i = 0; i < run->loaders.count; i++) {
        char samples[48];
        int64_t length = lk_dataset_length(lk_loader_dataset(run->loaders.items[i].loader));
        print_count(samples, sizeof samples, length);
        fprintf(stream, "%s%s: %s", i ? ", " : "", run->loaders.items[i].key,
                length == LK_LENGTH_UNKNOWN ? "a stream of" : samples);
        fputs(" samples", stream);
    }
    fprintf(stream, "\n%s", run->reporting.notes ? run->reporting.notes : "");
    if (runner->epoch_step)
        fprintf(stream, "resumed %s epoch %lld\n", run->resuming.inside_epoch ? "inside" : "after",
                (long long)runner->epoch_step);
    fflush(stream);
}

/* A run that was resumed and ends at once says why, verbose or not. */
void lki_header_nothing_left(const lk_runner *runner)
{
    char text[128], limit[48] = "the run had stopped early";
    long long done = lki_run_epochs_done(runner);
    if (lki_limits_steps_done(runner))
        snprintf(limit, sizeof limit, "max_steps is %lld", (long long)runner->run->given.options.max_steps);
    else if (!runner->need_early_stop)
        snprintf(limit, sizeof limit, "num_epochs is %lld", (long long)runner->num_epochs);
    snprintf(text, sizeof text, "nothing to train: %lld epoch%s done, %s", done, done == 1 ? " is" : "s are",
             limit);
    lki_log(LKI_LOG_INFO, "%s", text);
    if (runner->run->reporting.log_file) fprintf(runner->run->reporting.log_file, "%s\n", text);
}

/* ---- Options without effect ---- */

/* On a CPU, or on one rank. They are no mistake, as one config may serve several machines, but nobody should
 * believe that they did something. */
void lki_header_warn_of_idle_options(const lk_runner *runner, bool has_gpus)
{
    const lk_train_options *options = &runner->run->given.options;
    bool is_alone = runner->world_size == 1;
    const struct {
        const char *name;
        bool is_idle;
        const char *why;
    } notes[] = {
        {"tf32", options->tf32 && !has_gpus, "it is for GPUs"},
        {"benchmark", options->benchmark && !has_gpus, "it is for GPUs"},
        {"comm", options->comm && strcmp(options->comm, "auto") && is_alone, NULL},
        {"sync_batch_norm", options->sync_batch_norm && is_alone, NULL},
        {"compress_gradients", options->compress_gradients && is_alone, NULL},
        {"check_replicas", options->check_replicas > 0 && is_alone, NULL},
    };
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (notes[i].is_idle)
            lki_log(LKI_LOG_WARNING, "%s has no effect here: %s", notes[i].name,
                    notes[i].why ? notes[i].why : "there is one rank; ddp: y or nproc: N starts several");
}
