#include "onnx/export.h"

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/status.h"
#include "graph/home.h"
#include "nn/module.h"
#include "onnx/builder.h"

#include <string.h>

lki_plugin lki_onnx = {
    .name = "onnx",
    .library = "ONNX's writer",
    .package = "libprotobuf-c-dev, protobuf-c-compiler and libonnx-dev",
    .functions_nbytes = sizeof(lki_onnx_functions),
};

lki_onnx_type lki_onnx_type_of(lk_dtype dtype)
{
    static const lki_onnx_type types[] = {
        [LK_F32] = LKI_ONNX_FLOAT,     [LK_F64] = LKI_ONNX_DOUBLE, [LK_F16] = LKI_ONNX_FLOAT16,
        [LK_BF16] = LKI_ONNX_BFLOAT16, [LK_I64] = LKI_ONNX_INT64,  [LK_I32] = LKI_ONNX_INT32,
        [LK_U8] = LKI_ONNX_UINT8,      [LK_BOOL] = LKI_ONNX_BOOL,
    };
    return types[dtype];
}

/* ---- What the translations use ---- */

static const char *note(lki_onnx_builder *b, lk_status status, const char *name)
{
    if (!b->status) b->status = status;
    return b->status ? NULL : name;
}

const char *lki_onnx_refuse(lki_onnx_builder *b, const char *why)
{
    const char *scope = b->node && b->node->scope ? b->node->scope : "the model";
    if (b->status) return NULL;
    return note(b, lki_fail(LK_ERR_UNSUPPORTED, "%s: %s", scope, why), NULL);
}

static const char *fresh(lki_onnx_builder *b)
{
    const char *name = lki_arena_format(&b->arena, "t%d", b->next++);
    return name ? name : note(b, LK_ERR_NOMEM, NULL);
}

const char *lki_onnx_emit(lki_onnx_builder *b, const char *op, const char *const *inputs,
                          const lki_onnx_attribute *attributes)
{
    int count = 0;
    const char *name = fresh(b);
    if (b->status) return NULL;
    while (inputs[count]) count++;
    while (count && !*inputs[count - 1]) count--; /* those left out at the end */
    return note(b, b->functions->add_node(b->model, op, inputs, count, name, attributes), name);
}

const char *lki_onnx_ints(lki_onnx_builder *b, const int64_t *values, int count)
{
    const char *name = fresh(b);
    int64_t dim = count, *copy = LKI_ARENA_NEW_ARRAY(&b->arena, int64_t, count + 1);
    if (b->status || !copy) return note(b, LK_ERR_NOMEM, NULL);
    memcpy(copy, values, sizeof *copy * (size_t)count);
    return note(
        b,
        b->functions->add_tensor(b->model, name, LKI_ONNX_INT64, &dim, 1, copy, sizeof *copy * (size_t)count),
        name);
}

const char *lki_onnx_tensor(lki_onnx_builder *b, lk_tensor *tensor)
{
    const char *name = fresh(b);
    size_t nbytes = tensor ? lk_tensor_nbytes(tensor) : 0;
    void *copy = tensor ? lki_arena_alloc(&b->arena, nbytes + 1) : NULL;
    if (!copy || !name) return lk_tensor_free(tensor), note(b, LK_ERR_NOMEM, NULL);
    memcpy(copy, tensor->data, nbytes);
    note(b,
         b->functions->add_tensor(b->model, name, lki_onnx_type_of(tensor->dtype), tensor->shape.dim,
                                  tensor->shape.rank, copy, nbytes),
         name);
    lk_tensor_free(tensor);
    return b->status ? NULL : name;
}

const char *lki_onnx_number(lki_onnx_builder *b, lk_dtype dtype, double value)
{
    return b->status ? NULL : lki_onnx_tensor(b, lk_tensor_full(dtype, lk_scalar_shape(), value));
}

const char *lki_onnx_vector(lki_onnx_builder *b, lk_dtype dtype, int64_t count, double value)
{
    return b->status ? NULL : lki_onnx_tensor(b, lk_tensor_full(dtype, LK_SHAPE(count), value));
}

const char *lki_onnx_name(lki_onnx_builder *b, const lk_value *value)
{
    if (value->node->op == LK_OP_INPUT) return "input";
    if (value->node->op == LK_OP_PARAM)
        for (int i = 0; i < b->params.count; i++)
            if (b->params.items[i].param == value->param) return b->params.items[i].path;
    const char *name = lki_arena_format(&b->arena, "v%d_%d", value->node->order, value->index);
    return name ? name : note(b, LK_ERR_NOMEM, NULL);
}

const char *lki_onnx_input(lki_onnx_builder *b, int index)
{
    const lki_node *node = b->node;
    return index < node->input_count && node->in[index] ? lki_onnx_name(b, node->in[index]) : "";
}

bool lki_onnx_shape(const lki_onnx_builder *b, int64_t *dims)
{
    lk_shape shape = b->node->out[0]->shape, other = b->twin->out[0]->shape;
    int free_count = 0;
    for (int i = 0; i < shape.rank; i++) {
        dims[i] = shape.dim[i] == other.dim[i] ? shape.dim[i] : -1;
        free_count += dims[i] < 0;
    }
    return free_count <= 1;
}

/* ---- The whole ---- */

static lk_status add_params(lki_onnx_builder *b, lk_graph *graph)
{
    for (int i = 0; i < b->params.count; i++) {
        lk_param *param = b->params.items[i].param;
        bool is_used = false;
        for (int p = 0; p < graph->param_count && !is_used; p++)
            is_used = graph->params[p]->param == param && graph->params[p]->use_count;
        if (!is_used) continue;
        LKI_TRY(lki_param_pull(param));
        const lk_tensor *value = param->value;
        LKI_TRY(b->functions->add_tensor(b->model, b->params.items[i].path, lki_onnx_type_of(value->dtype),
                                         value->shape.dim, value->shape.rank, value->data,
                                         lk_tensor_nbytes(value)));
    }
    return LK_OK;
}

static lk_status add_constant(lki_onnx_builder *b)
{
    const lk_value *value = b->node->out[0], *other = b->twin->out[0];
    const lk_tensor *tensor = value->constant;
    bool same = lk_shape_equal(value->shape, other->shape) &&
                !memcmp(tensor->data, other->constant->data, lk_tensor_nbytes(tensor));
    if (!same) return lki_onnx_refuse(b, "a constant depends on the batch size"), b->status;
    return b->functions->add_tensor(b->model, lki_onnx_name(b, value), lki_onnx_type_of(tensor->dtype),
                                    tensor->shape.dim, tensor->shape.rank, tensor->data,
                                    lk_tensor_nbytes(tensor));
}

/* Only the first result of an op may be used: the others are for gradients. */
static lk_status add_op(lki_onnx_builder *b)
{
    const lki_node *node = b->node;
    for (int i = 1; i < node->output_count; i++)
        if (node->out[i]->use_count)
            return lki_onnx_refuse(b, "a second result has no standard op"), b->status;
    const char *result = lki_onnx_translate(b);
    if (b->status) return lki_fail_prefix(b->status, "ONNX");
    const char *inputs[] = {result};
    return b->functions->add_node(b->model, "Identity", inputs, 1, lki_onnx_name(b, node->out[0]), NULL);
}

static lki_node *alive(lki_node *node)
{
    while (node && node->dead) node = node->next;
    return node;
}

static lk_status add_nodes(lki_onnx_builder *b, lk_graph *graph, lk_graph *other)
{
    b->node = alive(graph->first);
    b->twin = alive(other->first);
    for (; b->node; b->node = alive(b->node->next), b->twin = alive(b->twin->next)) {
        if (!b->twin || !lki_onnx_is_twin(b->node, b->twin))
            return lki_onnx_refuse(b, "what it computes depends on the batch size"),
                   lki_fail_prefix(b->status, "ONNX");
        if (b->node->op == LK_OP_CONSTANT)
            LKI_TRY(add_constant(b));
        else if (!(lk_op_flags(b->node->op) & LK_OP_IS_LEAF))
            LKI_TRY(add_op(b));
    }
    if (b->twin)
        return lki_fail(LK_ERR_UNSUPPORTED, "ONNX: what the model computes depends on the batch size");
    return LK_OK;
}

static lk_status add_ends(lki_onnx_builder *b, lk_graph *graph, lk_graph *other)
{
    const lk_value *in = graph->inputs[0], *out = graph->outputs[0], *twin = other->outputs[0];
    int64_t dims[LK_MAX_DIMS];
    memcpy(dims, in->shape.dim, sizeof dims);
    dims[0] = -1;
    LKI_TRY(
        b->functions->add_value(b->model, false, "input", lki_onnx_type_of(in->dtype), dims, in->shape.rank));
    for (int i = 0; i < out->shape.rank; i++) {
        bool is_batch = out->shape.dim[i] == b->batch && twin->shape.dim[i] == b->other_batch;
        dims[i] = out->shape.dim[i] == twin->shape.dim[i] ? out->shape.dim[i] : is_batch ? -1 : -2;
    }
    const char *inputs[] = {lki_onnx_name(b, out)};
    LKI_TRY(b->functions->add_node(b->model, "Identity", inputs, 1, "output", NULL));
    return b->functions->add_value(b->model, true, "output", lki_onnx_type_of(out->dtype), dims,
                                   out->shape.rank);
}

static lk_status record(lk_module *module, lk_dtype dtype, lk_shape shape, int64_t batch, lk_graph **out)
{
    lk_graph *graph = *out = lk_graph_create(false);
    if (!graph) return LK_ERR_NOMEM;
    shape.dim[0] = batch;
    lk_value *y = lk_module_forward(module, lk_graph_input(graph, "input", dtype, shape));
    if (!y) return graph->status ? lki_fail(graph->status, "%s", graph->error) : lki_last_status();
    LKI_TRY(lk_graph_output(graph, "output", y));
    lki_graph_count_uses(graph);
    lki_graph_number(graph);
    return LK_OK;
}

static lk_status write_model(lki_onnx_builder *b, lk_graph *graph, lk_graph *other, const char *path)
{
    void *bytes = NULL;
    size_t nbytes = 0;
    LKI_TRY(add_params(b, graph));
    LKI_TRY(add_nodes(b, graph, other));
    LKI_TRY(add_ends(b, graph, other));
    LKI_TRY(b->functions->pack(b->model, &bytes, &nbytes));
    lk_status status = lki_write_file_atomic(path, bytes, nbytes);
    lki_free(bytes);
    return status;
}

lk_status lki_onnx_export(lk_module *module, lk_dtype dtype, lk_shape shape, const char *path)
{
    lki_onnx_builder b = {.functions = lki_plugin_open(&lki_onnx), .batch = 2, .other_batch = 3};
    lk_graph *graph = NULL, *other = NULL;
    if (!b.functions) return lki_last_status();
    if (shape.rank < 1) return lki_fail(LK_ERR_SHAPE, "ONNX: the features have no axis of samples");
    lk_status status = lki_module_params(module, &b.params);
    if (!status && !(b.model = b.functions->create())) status = LK_ERR_NOMEM;
    if (!status) status = record(module, dtype, shape, b.batch, &graph);
    if (!status) status = record(module, dtype, shape, b.other_batch, &other);
    if (!status) status = write_model(&b, graph, other, path);
    b.functions->free(b.model);
    lk_graph_free(graph);
    lk_graph_free(other);
    lk_param_list_free(&b.params);
    lki_arena_fini(&b.arena);
    return status;
}

lk_status lk_export_onnx(lk_module *module, const char *path, const lk_tensor *features)
{
    if (!module || !path || !features) return lki_fail(LK_ERR_INVALID, "ONNX: NULL was passed");
    return lki_onnx_export(module, features->dtype, features->shape, path);
}
