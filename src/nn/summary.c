/* The table of a model: layer, output shape, parameters. */
#include "nn/module.h"

#include "base/memory.h"
#include "base/status.h"
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct table {
    char *text;
    size_t length, capacity;
    lk_status status;
    int layer_width, shape_width; /* of the columns */
} table;

static void append(table *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void append(table *out, const char *format, ...)
{
    if (out->status != LK_OK) return;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t wanted = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
    va_end(arguments);
    if (out->length + wanted > out->capacity) {
        size_t capacity = 2 * (out->length + wanted);
        char *grown = lki_realloc(out->text, capacity, "the summary");
        if (!grown) out->status = LK_ERR_NOMEM;
        if (grown) out->text = grown;
        if (grown) out->capacity = capacity;
    }
    if (out->status == LK_OK)
        out->length += (size_t)vsnprintf(out->text + out->length, wanted, format, again);
    va_end(again);
}

/* 1,234,567 */
static const char *with_commas(char *text, size_t capacity, int64_t number)
{
    char digits[32];
    int count = snprintf(digits, sizeof digits, "%lld", (long long)number);
    size_t length = 0;
    for (int i = 0; i < count && length + 2 < capacity; i++) {
        text[length++] = digits[i];
        if ((count - 1 - i) % 3 == 0 && i + 1 < count) text[length++] = ',';
    }
    text[length] = 0;
    return text;
}

static void forget_recording(lk_module *module)
{
    module->was_recorded = false;
    for (int i = 0; i < module->child_count; i++) forget_recording(module->children[i].module);
}

/* "  0 (Linear)", two spaces a level. */
static int layer_label(char *text, size_t capacity, const lk_module *module, const char *name, int depth)
{
    if (!name) return snprintf(text, capacity, "%s", module->type);
    return snprintf(text, capacity, "%*s%s (%s)", 2 * depth, "", name, module->type);
}

static const char *shape_label(char *text, size_t capacity, const lk_module *module)
{
    return module->was_recorded ? lk_shape_format(text, capacity, module->output_shape) : "-";
}

static void measure(table *out, const lk_module *module, const char *name, int depth)
{
    char text[160];
    int width = layer_label(text, sizeof text, module, name, depth);
    if (width > out->layer_width) out->layer_width = width;
    width = (int)strlen(shape_label(text, sizeof text, module));
    if (width > out->shape_width) out->shape_width = width;
    for (int i = 0; i < module->child_count; i++)
        measure(out, module->children[i].module, module->children[i].name, depth + 1);
}

static int64_t own_param_count(const lk_module *module)
{
    int64_t count = 0;
    for (int i = 0; i < module->param_count; i++)
        if (!module->params[i].param->is_buffer) count += lk_tensor_count(module->params[i].param->value);
    return count;
}

static void list(table *out, const lk_module *module, const char *name, int depth)
{
    char layer[160], shape[160], count[32];
    layer_label(layer, sizeof layer, module, name, depth);
    append(out, "%-*s  %-*s  %14s\n", out->layer_width, layer, out->shape_width,
           shape_label(shape, sizeof shape, module),
           with_commas(count, sizeof count, own_param_count(module)));
    for (int i = 0; i < module->child_count; i++)
        list(out, module->children[i].module, module->children[i].name, depth + 1);
}

/* A shared parameter counts once. */
static int64_t total_param_count(const lk_module *module)
{
    lk_param_list params;
    int64_t count = 0;
    if (lki_module_params(module, &params) != LK_OK) return 0;
    for (int i = 0; i < params.count; i++)
        if (!params.items[i].param->is_buffer) count += lk_tensor_count(params.items[i].param->value);
    lk_param_list_free(&params);
    return count;
}

static void rule(table *out)
{
    for (int i = 0; i < out->layer_width + out->shape_width + 18; i++) append(out, "-");
    append(out, "\n");
}

static void write_table(table *out, const lk_module *module)
{
    char total[32], trainable[32];
    measure(out, module, NULL, 0);
    append(out, "%-*s  %-*s  %14s\n", out->layer_width, "Layer", out->shape_width, "Output shape",
           "Parameters");
    rule(out);
    list(out, module, NULL, 0);
    rule(out);
    append(out, "Total: %s parameters, %s trainable\n",
           with_commas(total, sizeof total, total_param_count(module)),
           with_commas(trainable, sizeof trainable, lk_module_param_count(module)));
}

lk_status lk_module_summary(lk_module *module, lk_dtype dtype, lk_shape shape, char **text)
{
    *text = NULL;
    if (!module)
        return lki_last_status() ? lki_last_status() : lki_fail(LK_ERR_INVALID, "the module is NULL");
    lk_graph *graph = lk_graph_create(false);
    if (!graph) return LK_ERR_NOMEM;
    table out = {.layer_width = 5, .shape_width = 12};
    forget_recording(module);
    lk_value *y = lk_module_forward(module, lk_graph_input(graph, "input", dtype, shape));
    lk_status status = LK_OK;
    if (!y) status = graph->status != LK_OK ? lki_fail(graph->status, "%s", graph->error) : LK_ERR_INVALID;
    if (status == LK_OK) write_table(&out, module);
    if (status == LK_OK) status = out.status;
    lk_graph_free(graph);
    if (status == LK_OK)
        *text = out.text;
    else
        lki_free(out.text);
    return status;
}
