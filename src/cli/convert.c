/* lockstep import and lockstep export: weights from one file format to another. */
#include "cli/commands.h"
#include "cli/load.h"

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "config/run_config.h"

#include <lockstep/checkpoint.h>

#include <string.h>

typedef struct convert_options {
    const char *to, *output, *checkpoint, *weights;
    lki_texts files;
    lki_config_options config; /* for ONNX, which needs the model too */
} convert_options;

#define OFFSET(field) offsetof(convert_options, field)
#define OUTPUT                                                                                               \
    {                                                                                                        \
        "output", 'o', LKI_OPTION_TEXT, OFFSET(output), "FILE", NULL, "the file to write", 0                 \
    }

#define WEIGHTS                                                                                              \
    {                                                                                                        \
        "weights", 'w', LKI_OPTION_TEXT, OFFSET(weights), NULL, "bf16|int8", "round the weights to this", 0  \
    }

static const lki_option import_table[] = {OUTPUT, {0}};
static const lki_option export_table[] = {
    {"to", 0, LKI_OPTION_TEXT, OFFSET(to), NULL, "pth|safetensors|npz|onnx", "the format", 0},
    OUTPUT,
    {"config", 'C', LKI_OPTION_TEXTS, OFFSET(config.files), "FILE", NULL, "for onnx: the config of the model",
     0},
    LKI_EXPDIR_OPTION(OFFSET(config.expdir)),
    {"checkpoint", 'c', LKI_OPTION_TEXT, OFFSET(checkpoint), "FILE", NULL, "for onnx: its weights", 0},
    WEIGHTS,
    {0},
};

static const struct {
    const char *name;
    lk_status (*save)(const char *path, const lk_state_dict *dict);
} formats[] = {{"pth", lk_save_pth}, {"safetensors", lk_save_safetensors}, {"npz", lk_save_npz}};

static lk_status save_as(const char *format, const char *path, const lk_state_dict *dict)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, format) == 0) return formats[i].save(path, dict);
    return lki_fail(LK_ERR_CONFIG, "--to: expected pth, safetensors or npz, found \"%s\"", format);
}

/* The weights alone, under the model's own names: a runner's checkpoint has much beside them. */
static lk_state_dict *weights_of(const lk_state_dict *state)
{
    bool whole = lk_state_dict_has(state, "runner.format");
    lk_state_dict *weights = lk_state_dict_create();
    for (int64_t i = 0; weights && i < lk_state_dict_count(state); i++) {
        const char *name = lk_state_dict_name(state, i);
        bool is_weight = !whole || !strncmp(name, "model.", 6) || !strncmp(name, "model:", 6);
        if (!is_weight) continue;
        if (lk_state_dict_put(weights, whole ? name + 6 : name,
                              lk_tensor_view(lk_state_dict_tensor(state, i)))) {
            lk_state_dict_free(weights);
            return NULL;
        }
    }
    return weights;
}

/* The dict, or in place of it one with rounded weights; NULL on failure. */
static lk_state_dict *rounded(lk_state_dict *weights, const char *wanted)
{
    if (!weights || !wanted) return weights;
    bool is_int8 = !strcmp(wanted, "int8");
    lk_state_dict *small = lk_state_dict_shrink(weights, is_int8 ? LK_WEIGHTS_INT8 : LK_WEIGHTS_BF16);
    lk_state_dict_free(weights);
    return small;
}

static lk_status convert(const char *from, const char *format, const char *to, const char *wanted)
{
    lk_state_dict *state = lk_load_checkpoint(from);
    lk_state_dict *weights = state ? rounded(weights_of(state), wanted) : NULL;
    lk_status status = weights ? LK_OK : lki_last_status();
    if (weights && lk_state_dict_count(weights) == 0)
        status = lki_fail(LK_ERR_FORMAT, "%s: there are no weights in it", from);
    if (!status) status = save_as(format, to, weights);
    if (!status) printf("%s: %lld tensors\n", to, (long long)lk_state_dict_count(weights));
    lk_state_dict_free(weights);
    lk_state_dict_free(state);
    return status;
}

/* The model is built from its config, and its input has the shape of the config's data. */
static int export_onnx(const convert_options *options)
{
    const lki_evaluation wish = {.checkpoint = options->checkpoint, .device = "cpu", .onnx = options->output};
    lki_plan plan;
    int exit_code = lki_load_components(options->config.expdir);
    if (exit_code) return exit_code;
    lk_config *config = lki_load_config("export", &options->config);
    if (!config) return lki_report(LKI_EXIT_WRONG);
    lk_status status = lki_config_build(config, &plan);
    if (status)
        exit_code = lki_report(lki_build_exit_code(status));
    else if ((status = lki_config_evaluate(config, &plan, &wish)))
        exit_code = lki_report(status == LK_ERR_CONFIG ? LKI_EXIT_WRONG : LKI_EXIT_FAILED);
    else
        printf("%s: opset 17\n", options->output);
    lki_plan_fini(&plan);
    lk_config_free(config);
    return exit_code;
}

static int run_onnx(const convert_options *options)
{
    if (!options->output)
        lki_fail(LK_ERR_CONFIG, "export: needs --output FILE");
    else if (!options->config.files.count)
        lki_fail(LK_ERR_CONFIG, "export: --to onnx needs -C CONFIG, which describes the model");
    else if (options->files.count + (options->checkpoint != NULL) != 1)
        lki_fail(LK_ERR_CONFIG, "export: --to onnx takes one checkpoint, -c FILE");
    else {
        convert_options own = *options;
        if (!own.checkpoint) own.checkpoint = own.files.items[0];
        return export_onnx(&own);
    }
    return lki_report(LKI_EXIT_WRONG);
}

/* An output's ending says its format, if nothing else does. */
static const char *format_of(const convert_options *options)
{
    const char *dot = options->output ? strrchr(options->output, '.') : NULL;
    if (options->to) return options->to;
    if (dot && !strcmp(dot, ".onnx")) return "onnx";
    for (size_t i = 0; dot && i < sizeof formats / sizeof *formats; i++)
        if (strcmp(dot + 1, formats[i].name) == 0) return formats[i].name;
    return NULL;
}

static int run_either(const convert_options *options, const char *command, const char *format)
{
    if (!options->output)
        lki_fail(LK_ERR_CONFIG, "%s: needs --output FILE", command);
    else if (!format)
        lki_fail(LK_ERR_CONFIG, "%s: needs --to pth, safetensors or npz", command);
    else if (options->files.count != 1)
        lki_fail(LK_ERR_CONFIG, "%s: takes one file, found %d", command, options->files.count);
    else
        return convert(options->files.items[0], format, options->output, options->weights)
                   ? lki_report(LKI_EXIT_FAILED)
                   : LKI_EXIT_DONE;
    return lki_report(LKI_EXIT_WRONG);
}

static int run_import(const void *options)
{
    return run_either(options, "import", "safetensors");
}

static int run_export(const void *pointer)
{
    const convert_options *options = pointer;
    const char *format = format_of(options);
    bool is_onnx = format && !strcmp(format, "onnx"), is_npz = format && !strcmp(format, "npz");
    if (options->weights && (is_onnx || (is_npz && !strcmp(options->weights, "bf16")))) {
        lki_fail(LK_ERR_CONFIG, "export: --weights %s: not in an %s file", options->weights, format);
        return lki_report(LKI_EXIT_WRONG);
    }
    if (is_onnx) return run_onnx(options);
    if (options->config.files.count || options->config.overrides.count || options->config.expdir ||
        options->checkpoint) {
        lki_fail(LK_ERR_CONFIG,
                 "export: --config, --expdir, --checkpoint and overrides are for --to onnx alone");
        return lki_report(LKI_EXIT_WRONG);
    }
    return run_either(options, "export", format);
}

const lki_command lki_command_import = {
    .name = "import",
    .usage = "FILE -o OUTPUT",
    .summary = "Turns weights of PyTorch or NumPy into a safetensors file.",
    .options = import_table,
    .options_nbytes = sizeof(convert_options),
    .positional = "a file of torch.save or numpy.savez; nothing in it is run",
    .positional_offset = OFFSET(files),
    .positional_minimum = 1,
    .run = run_import,
};

const lki_command lki_command_export = {
    .name = "export",
    .usage = "CHECKPOINT -o OUTPUT [--to FORMAT] [--weights bf16|int8] | --to onnx -C CONFIG -c CHECKPOINT "
             "-o OUTPUT",
    .summary = "Writes weights for PyTorch or NumPy, or a model for ONNX.",
    .options = export_table,
    .options_nbytes = sizeof(convert_options),
    .positional = "a checkpoint",
    .positional_offset = OFFSET(files),
    .takes_overrides = true,
    .overrides_offset = OFFSET(config.overrides),
    .notes = "If --to is left out, the ending of OUTPUT says the format.",
    .run = run_export,
};
