/* lockstep evaluate and lockstep predict: a checkpoint on a loader of the config that it was trained with. */
#include "cli/commands.h"
#include "cli/load.h"

#include "base/status.h"
#include "config/config.h"
#include "config/run_config.h"

#include <lockstep/launch.h>

typedef struct evaluate_options {
    lki_config_options config;
    const char *checkpoint, *loader, *device, *output;
    bool verbose;
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

static const lki_option evaluate_table[] = {CONFIG, EXPDIR, CHECKPOINT, LOADER, DEVICE, VERBOSE, {0}};
static const lki_option predict_table[] = {
    CONFIG,
    EXPDIR,
    CHECKPOINT,
    LOADER,
    DEVICE,
    {"output", 'o', LKI_OPTION_TEXT, OFFSET(output), "FILE", NULL, "write the outputs to this .npy file", 0},
    VERBOSE,
    {0},
};

static void print_metrics(const lk_metrics *metrics)
{
    for (int i = 0; i < lk_metrics_count(metrics); i++)
        printf("%s: %.9g\n", lk_metrics_name(metrics, i), lk_metrics_value(metrics, i));
}

static int run_config(lk_config *config, const evaluate_options *options, const char *output)
{
    const lki_evaluation wish = {.checkpoint = options->checkpoint,
                                 .loader_key = options->loader,
                                 .device = options->device,
                                 .output = output,
                                 .verbose = options->verbose};
    lki_plan plan;
    int exit_code = LKI_EXIT_DONE;
    lk_status status = lki_config_build(config, &plan);
    if (status)
        exit_code = lki_report(lki_build_exit_code(status));
    else if ((status = lki_config_evaluate(config, &plan, &wish)))
        exit_code = lki_report(status == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    else if (!output && lk_rank() == 0)
        print_metrics(((lk_runner *)plan.runner->pointer)->loader_metrics);
    lki_plan_fini(&plan);
    return exit_code;
}

static int run_either(const evaluate_options *options, const char *command, const char *output)
{
    if (!options->checkpoint) {
        lki_fail(LK_ERR_CONFIG, "%s: needs --checkpoint FILE", command);
        return lki_report(LKI_EXIT_WRONG);
    }
    int exit_code = lki_load_components(options->config.expdir);
    if (exit_code) return exit_code;
    lk_config *config = lki_load_config(command, &options->config);
    if (!config) return lki_report(LKI_EXIT_WRONG);
    exit_code = run_config(config, options, output);
    lk_config_free(config);
    return exit_code;
}

static int run_evaluate(const void *options)
{
    return run_either(options, "evaluate", NULL);
}

static int run_predict(const void *pointer)
{
    const evaluate_options *options = pointer;
    if (options->output) return run_either(options, "predict", options->output);
    lki_fail(LK_ERR_CONFIG, "predict: needs --output FILE");
    return lki_report(LKI_EXIT_WRONG);
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
    .usage = "-C FILE -c CHECKPOINT -o OUTPUT [--loader KEY] [--a/b/0=VALUE ...] [options]",
    .summary = "Writes the outputs of a checkpoint for one loader of its config.",
    .options = predict_table,
    .options_nbytes = sizeof(evaluate_options),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .run = run_predict,
};
