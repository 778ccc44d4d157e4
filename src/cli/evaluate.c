/* lockstep evaluate and lockstep predict: a checkpoint on a loader of the config that it was trained with. */
#include "cli/commands.h"
#include "cli/load.h"

#include "base/status.h"
#include "config/config.h"
#include "config/run_config.h"
#include "config/write_outputs.h"

#include <lockstep/launch.h>

typedef struct evaluate_options {
    lki_config_options config;
    const char *checkpoint, *loader, *device, *output;
    bool verbose, json;
} evaluate_options;

#define OFFSET(field) offsetof(evaluate_options, field)
#define CONFIG                                                                                               \
    {                                                                                                        \
        "config", 'C', LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL,                                 \
            "a config; later files are merged over earlier ones", 0                                          \
    }
#define CHECKPOINT                                                                                           \
    {                                                                                                        \
        "checkpoint", 'c', LKI_OPTION_TEXT, OFFSET(checkpoint), "FILE", NULL,                                \
            "weights: a safetensors file, or PyTorch's", 0                                                   \
    }
#define LOADER                                                                                               \
    {                                                                                                        \
        "loader", 'l', LKI_OPTION_TEXT, OFFSET(loader), "KEY", NULL,                                         \
            "the loader to use (the run's valid_loader)", 0                                                  \
    }
#define DEVICE                                                                                               \
    {                                                                                                        \
        "device", 0, LKI_OPTION_TEXT, OFFSET(device), NULL, "auto|cpu|cuda|ref", "the device to run on", 0   \
    }
#define VERBOSE                                                                                              \
    {                                                                                                        \
        "verbose", 'v', LKI_OPTION_FLAG, OFFSET(verbose), NULL, NULL, "print progress", 0                    \
    }

#define EXPDIR LKI_EXPDIR_OPTION(OFFSET(config.expdir))

static const lki_option evaluate_table[] = {
    CONFIG,
    EXPDIR,
    CHECKPOINT,
    LOADER,
    DEVICE,
    {"json", 0, LKI_OPTION_FLAG, OFFSET(json), NULL, NULL, "print one JSON object", 0},
    {"output", 'o', LKI_OPTION_TEXT, OFFSET(output), "FILE", NULL,
     "write the metrics to FILE.csv or FILE.json, too", 0},
    VERBOSE,
    {0},
};
static const lki_option predict_table[] = {
    CONFIG,
    EXPDIR,
    CHECKPOINT,
    LOADER,
    DEVICE,
    {"output", 'o', LKI_OPTION_TEXT, OFFSET(output), "FILE", NULL,
     "write the outputs to FILE.npy, .csv, .json or .jsonl", 0},
    {"json", 0, LKI_OPTION_FLAG, OFFSET(json), NULL, NULL, "print the outputs as one JSON list", 0},
    VERBOSE,
    {0},
};

/* On rank 0. */
static lk_status report_metrics(const lk_metrics *metrics, const evaluate_options *options)
{
    if (options->json)
        lki_print_metrics_json(stdout, metrics);
    else
        lki_print_metrics(stdout, metrics);
    return options->output ? lki_write_metrics(options->output, metrics) : LK_OK;
}

static int run_config(lk_config *config, const evaluate_options *options, bool predicts)
{
    const lki_evaluation wish = {.checkpoint = options->checkpoint,
                                 .loader_key = options->loader,
                                 .device = options->device,
                                 .predicts = predicts,
                                 .target = {options->output, options->json},
                                 .verbose = options->verbose};
    lki_plan plan;
    int exit_code = LKI_EXIT_DONE;
    lk_status status = lki_config_build(config, &plan);
    if (status) {
        exit_code = lki_report(lki_build_exit_code(status));
    } else {
        status = lki_config_evaluate(config, &plan, &wish);
        if (!status && !predicts && lk_rank() == 0)
            status = report_metrics(((lk_runner *)plan.runner->pointer)->loader_metrics, options);
        if (status) exit_code = lki_report(status == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    }
    lki_plan_fini(&plan);
    return exit_code;
}

/* Before anything is built. */
static lk_status check_output(const evaluate_options *options, const char *command, bool predicts)
{
    if (!options->checkpoint) return lki_fail(LK_ERR_CONFIG, "%s: needs --checkpoint FILE", command);
    if (!options->output && predicts && !options->json)
        return lki_fail(LK_ERR_CONFIG, "%s: needs --output FILE or --json", command);
    if (options->json && options->verbose)
        return lki_fail(LK_ERR_CONFIG, "%s: --json prints nothing else: leave --verbose out", command);
    if (!options->output) return LK_OK;
    lk_status status =
        predicts ? lki_check_predictions_path(options->output) : lki_check_metrics_path(options->output);
    return status ? lki_fail_prefix(status, "%s: --output", command) : LK_OK;
}

static int run_either(const evaluate_options *options, const char *command, bool predicts)
{
    if (check_output(options, command, predicts)) return lki_report(LKI_EXIT_WRONG);
    int exit_code = lki_load_components(options->config.expdir);
    if (exit_code) return exit_code;
    lk_config *config = lki_load_config(command, &options->config);
    if (!config) return lki_report(LKI_EXIT_WRONG);
    exit_code = run_config(config, options, predicts);
    lk_config_free(config);
    return exit_code;
}

static int run_evaluate(const void *options)
{
    return run_either(options, "evaluate", false);
}

static int run_predict(const void *options)
{
    return run_either(options, "predict", true);
}

const lki_command lki_command_evaluate = {
    .name = "evaluate",
    .usage = "-C FILE -c CHECKPOINT [--loader KEY] [--a/b/0=VALUE ...] [options]",
    .summary = "Prints the metrics of a checkpoint on one loader of its config.",
    .options = evaluate_table,
    .options_nbytes = sizeof(evaluate_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run_evaluate,
};

const lki_command lki_command_predict = {
    .name = "predict",
    .usage = "-C FILE -c CHECKPOINT [-o OUTPUT] [--json] [--loader KEY] [--a/b/0=VALUE ...] [options]",
    .summary = "Writes the outputs of a checkpoint for one loader of its config.",
    .options = predict_table,
    .options_nbytes = sizeof(evaluate_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run_predict,
};
