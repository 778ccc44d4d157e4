/* A function of the user's over a field of the batch before the model sees it, or over a field or an output
 * after. */
#include "base/memory.h"
#include "base/status.h"
#include "base/take.h"
#include "callbacks/callbacks.h"

#include <string.h>

typedef struct transform_context {
    lk_status (*transform)(lk_tensor *tensor, lk_runner *runner, void *context);
    void *context;
    char *input_key;   /* NULL: the runner's */
    char *output_key;  /* NULL: in place */
    lk_tensor *result; /* of output_key; kept while batches have one shape */
} transform_context;

static lk_status copy_input(transform_context *context, const lk_tensor *tensor)
{
    lk_tensor *result = context->result;
    if (result && result->dtype == tensor->dtype && lk_shape_equal(result->shape, tensor->shape))
        return lk_tensor_copy(result, tensor);
    lk_tensor_free(result);
    context->result = lk_tensor_clone(tensor);
    return context->result ? LK_OK : lki_last_status();
}

static lk_status apply(lk_runner *runner, transform_context *context, const lk_tensor *tensor,
                       const char *key)
{
    if (!tensor)
        return lki_fail(LK_ERR_NOT_FOUND, "BatchTransformCallback: the batch has nothing named \"%s\"", key);
    if (!context->output_key) return context->transform((lk_tensor *)tensor, runner, context->context);
    LKI_TRY(copy_input(context, tensor));
    LKI_TRY(context->transform(context->result, runner, context->context));
    return lk_runner_put_tensor(runner, context->output_key, context->result);
}

/* Outputs are still the previous batch's here. */
static lk_status before(lk_callback *callback, lk_runner *runner)
{
    transform_context *context = callback->context;
    const char *key = context->input_key ? context->input_key : runner->input_key;
    return apply(runner, context, lk_batch_get(runner->batch, key), key);
}

static lk_status after(lk_callback *callback, lk_runner *runner)
{
    transform_context *context = callback->context;
    const char *key = context->input_key ? context->input_key : runner->output_key;
    return apply(runner, context, lk_runner_tensor(runner, key), key);
}

static void free_context(lk_callback *callback)
{
    transform_context *context = callback->context;
    lki_free(context->input_key);
    lki_free(context->output_key);
    lk_tensor_free(context->result);
    lki_free(context);
}

lk_callback *lk_batch_transform_callback_with(const lk_batch_transform_callback_options *given)
{
    LKI_TAKE(lk_batch_transform_callback_options, options, given, NULL);
    static const lk_callback_ops ops[] = {
        {LK_SIZE(lk_callback_ops), .name = "BatchTransform", .on_batch_start = before, .free = free_context},
        {LK_SIZE(lk_callback_ops), .name = "BatchTransform", .on_batch_end = after, .free = free_context},
    };
    const char *scope = options.scope ? options.scope : "on_batch_start";
    bool at_end = strcmp(scope, "on_batch_end") == 0;
    if (!at_end && strcmp(scope, "on_batch_start") != 0)
        return lki_fail_null(LK_ERR_INVALID,
                             "BatchTransformCallback: scope is on_batch_start or on_batch_end, not \"%s\"",
                             scope);
    if (!options.transform) return lki_fail_null(LK_ERR_INVALID, "BatchTransformCallback: no transform");
    lk_callback *callback = lki_callback_new(&ops[at_end], sizeof(transform_context), LK_ORDER_INTERNAL);
    if (!callback) return NULL;
    transform_context *context = callback->context;
    *context = (transform_context){.transform = options.transform,
                                   .context = options.context,
                                   .input_key = lki_strdup(options.input_key),
                                   .output_key = lki_strdup(options.output_key)};
    if ((options.input_key && !context->input_key) || (options.output_key && !context->output_key)) {
        lk_callback_free(callback);
        return NULL;
    }
    return callback;
}
