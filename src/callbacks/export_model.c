/* Files that a run writes of its model when it ends: for ONNX, and with weights of fewer bits. */
#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <string.h>

typedef struct export_context {
    char *input_key; /* ONNX; NULL: the runner's */
    char *logdir;    /* NULL: the run's */
    char *filename;
    lk_tensor *features; /* ONNX: of the first batch */
    lk_weight_format format;
} export_context;

static char *path_of(const export_context *own, const lk_runner *runner)
{
    const char *folder = own->logdir ? own->logdir : runner->logdir;
    return lki_format("%s/%s", folder, own->filename);
}

static lk_status start(lk_callback *callback, lk_runner *runner)
{
    const export_context *own = callback->context;
    if (!runner->model)
        return lki_fail(LK_ERR_INVALID, "%sCallback: the run has no model", callback->ops->name);
    if (!own->logdir && !runner->logdir)
        return lki_fail(LK_ERR_INVALID, "%sCallback: logdir: say where, or give the run a logdir",
                        callback->ops->name);
    return own->logdir && runner->is_master ? lki_make_folders(own->logdir) : LK_OK;
}

/* ---- ONNX ---- */

static lk_status write_onnx(const export_context *own, lk_runner *runner)
{
    LKI_SCOPED char *path = path_of(own, runner);
    return path ? lk_export_onnx(runner->model, path, own->features) : LK_ERR_NOMEM;
}

/* After the first batch, and not when hours have passed, the user hears of a layer that ONNX has not. */
static lk_status look_at_batch(lk_callback *callback, lk_runner *runner)
{
    export_context *own = callback->context;
    if (own->features || !runner->is_master) return LK_OK;
    const char *key = own->input_key ? own->input_key : runner->input_key;
    const lk_tensor *features = lk_batch_get(runner->batch, key);
    if (!features) return lki_fail(LK_ERR_NOT_FOUND, "OnnxCallback: the batch has no field \"%s\"", key);
    own->features = lk_tensor_clone(features);
    return own->features ? write_onnx(own, runner) : lki_last_status();
}

static lk_status end_with_onnx(lk_callback *callback, lk_runner *runner)
{
    const export_context *own = callback->context;
    return own->features ? write_onnx(own, runner) : LK_OK;
}

/* ---- Fewer bits ---- */

static lk_status end_with_weights(lk_callback *callback, lk_runner *runner)
{
    const export_context *own = callback->context;
    if (!runner->is_master) return LK_OK;
    LKI_SCOPED char *path = path_of(own, runner);
    lk_state_dict *weights = lk_module_state_dict(runner->model), *small = NULL;
    if (path && weights) small = lk_state_dict_shrink(weights, own->format);
    lk_status status = !path ? LK_ERR_NOMEM : small ? lk_save_safetensors(path, small) : lki_last_status();
    lk_state_dict_free(small);
    lk_state_dict_free(weights);
    return status;
}

/* ---- Making them ---- */

static void free_context(lk_callback *callback)
{
    export_context *own = callback->context;
    lki_free(own->input_key);
    lki_free(own->logdir);
    lki_free(own->filename);
    lk_tensor_free(own->features);
    lki_free(own);
}

static lk_callback *create(const lk_callback_ops *ops, const char *logdir, const char *filename,
                           const char *input_key)
{
    lk_callback *callback = lki_callback_new(ops, sizeof(export_context), LK_ORDER_EXTERNAL + 1);
    if (!callback) return NULL;
    export_context *own = callback->context;
    own->logdir = lki_strdup(logdir);
    own->filename = lki_strdup(filename);
    own->input_key = lki_strdup(input_key);
    if (own->filename && (own->logdir || !logdir) && (own->input_key || !input_key)) return callback;
    lk_callback_free(callback);
    return NULL;
}

lk_callback *lk_onnx_callback_with(const lk_onnx_callback_options *given)
{
    LKI_TAKE(lk_onnx_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops),           .name = "Onnx",
                                        .on_experiment_start = start,       .on_batch_end = look_at_batch,
                                        .on_experiment_end = end_with_onnx, .free = free_context};
    return create(&ops, options.logdir, options.filename ? options.filename : "model.onnx",
                  options.input_key);
}

lk_callback *lk_quantization_callback_with(const lk_quantization_callback_options *given)
{
    LKI_TAKE(lk_quantization_callback_options, options, given, NULL);
    static const lk_callback_ops ops = {LK_SIZE(lk_callback_ops), .name = "Quantization",
                                        .on_experiment_start = start, .on_experiment_end = end_with_weights,
                                        .free = free_context};
    const char *dtype = options.dtype ? options.dtype : "qint8";
    bool is_bf16 = strcmp(dtype, "bfloat16") == 0;
    if (!is_bf16 && strcmp(dtype, "qint8") != 0)
        return lki_fail_null(LK_ERR_INVALID, "QuantizationCallback: dtype is qint8 or bfloat16, not \"%s\"",
                             dtype);
    lk_callback *callback =
        create(&ops, options.logdir, options.filename ? options.filename : "quantized.safetensors", NULL);
    if (callback) ((export_context *)callback->context)->format = is_bf16 ? LK_WEIGHTS_BF16 : LK_WEIGHTS_INT8;
    return callback;
}
