/* ONNX's messages, made with protobuf-c from the description that Debian ships (onnx.proto). */
#include "onnx/protobuf/onnx_plugin.h"

#include "base/memory.h"
#include "base/status.h"

#include "onnx.pb-c.h"

#include <string.h>

enum { IR_VERSION = 8, OPSET = 17 };

/* One block of memory after another, all freed together. */
typedef struct block {
    struct block *older;
    _Alignas(16) char data[];
} block;

struct lki_onnx_model {
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__OperatorSetIdProto opset, *opsets[1];
    block *newest;
    size_t node_capacity, tensor_capacity;
};

static void *keep(lki_onnx_model *m, size_t nbytes)
{
    block *added = lki_calloc(sizeof *added + nbytes, "an ONNX model");
    if (!added) return NULL;
    added->older = m->newest;
    m->newest = added;
    return added->data;
}

static char *keep_text(lki_onnx_model *m, const char *text)
{
    char *copy = keep(m, strlen(text) + 1);
    return copy ? memcpy(copy, text, strlen(text) + 1) : NULL;
}

static lki_onnx_model *create(void)
{
    lki_onnx_model *m = LKI_NEW(lki_onnx_model);
    if (!m) return NULL;
    onnx__model_proto__init(&m->model);
    onnx__graph_proto__init(&m->graph);
    onnx__operator_set_id_proto__init(&m->opset);
    m->opset.domain = "";
    m->opset.has_version = m->model.has_ir_version = true;
    m->opset.version = OPSET;
    m->opsets[0] = &m->opset;
    m->model.ir_version = IR_VERSION;
    m->model.opset_import = m->opsets;
    m->model.n_opset_import = 1;
    m->model.producer_name = "lockstep";
    m->model.producer_version = LK_VERSION;
    m->model.graph = &m->graph;
    m->graph.name = "model";
    return m;
}

static void free_model(lki_onnx_model *m)
{
    if (!m) return;
    for (block *b = m->newest, *older; b; b = older) {
        older = b->older;
        lki_free(b);
    }
    lki_free(m->graph.node);
    lki_free(m->graph.initializer);
    lki_free(m);
}

/* A list of `count` pointers with place for one more. */
static void *grown(void *list, size_t count, size_t *capacity)
{
    if (count < *capacity) return list;
    *capacity = *capacity ? 2 * *capacity : 64;
    return lki_realloc(list, sizeof(void *) * *capacity, "an ONNX model");
}

static lk_status fill_attribute(lki_onnx_model *m, Onnx__AttributeProto *out, const lki_onnx_attribute *given)
{
    onnx__attribute_proto__init(out);
    out->has_type = true;
    out->name = keep_text(m, given->name);
    if (!out->name) return LK_ERR_NOMEM;
    if (given->text) {
        out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
        out->has_s = true;
        out->s.data = (uint8_t *)keep_text(m, given->text);
        out->s.len = strlen(given->text);
        return out->s.data ? LK_OK : LK_ERR_NOMEM;
    }
    if (given->numbers) {
        out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
        out->n_ints = (size_t)given->count;
        out->ints = keep(m, sizeof(int64_t) * (out->n_ints + 1));
        if (!out->ints) return LK_ERR_NOMEM;
        memcpy(out->ints, given->numbers, sizeof(int64_t) * out->n_ints);
        return LK_OK;
    }
    out->type = given->is_real ? ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT
                               : ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    out->has_f = given->is_real;
    out->f = (float)given->real;
    out->has_i = !given->is_real;
    out->i = given->number;
    return LK_OK;
}

static lk_status fill_attributes(lki_onnx_model *m, Onnx__NodeProto *node, const lki_onnx_attribute *given)
{
    size_t count = 0;
    while (given && given[count].name) count++;
    if (!count) return LK_OK;
    node->attribute = keep(m, sizeof(void *) * count);
    if (!node->attribute) return LK_ERR_NOMEM;
    for (; node->n_attribute < count; node->n_attribute++) {
        Onnx__AttributeProto *attribute = keep(m, sizeof *attribute);
        if (!attribute) return LK_ERR_NOMEM;
        LKI_TRY(fill_attribute(m, attribute, &given[node->n_attribute]));
        node->attribute[node->n_attribute] = attribute;
    }
    return LK_OK;
}

static lk_status add_node(lki_onnx_model *m, const char *op, const char *const *inputs, int input_count,
                          const char *output, const lki_onnx_attribute *attributes)
{
    Onnx__NodeProto *node = keep(m, sizeof *node);
    void *list = grown(m->graph.node, m->graph.n_node, &m->node_capacity);
    if (list) m->graph.node = list;
    if (!node || !list) return LK_ERR_NOMEM;
    onnx__node_proto__init(node);
    node->op_type = keep_text(m, op);
    node->name = keep_text(m, output);
    node->input = keep(m, sizeof(char *) * (size_t)(input_count + 1));
    node->output = keep(m, sizeof(char *));
    if (!node->op_type || !node->name || !node->input || !node->output) return LK_ERR_NOMEM;
    for (int i = 0; i < input_count; i++)
        if (!(node->input[i] = keep_text(m, inputs[i]))) return LK_ERR_NOMEM;
    node->n_input = (size_t)input_count;
    node->output[0] = node->name;
    node->n_output = 1;
    LKI_TRY(fill_attributes(m, node, attributes));
    m->graph.node[m->graph.n_node++] = node;
    return LK_OK;
}

static lk_status add_tensor(lki_onnx_model *m, const char *name, lki_onnx_type type, const int64_t *dims,
                            int rank, const void *data, size_t nbytes)
{
    Onnx__TensorProto *tensor = keep(m, sizeof *tensor);
    void *list = grown(m->graph.initializer, m->graph.n_initializer, &m->tensor_capacity);
    if (list) m->graph.initializer = list;
    if (!tensor || !list) return LK_ERR_NOMEM;
    onnx__tensor_proto__init(tensor);
    tensor->name = keep_text(m, name);
    tensor->dims = keep(m, sizeof(int64_t) * (size_t)(rank + 1));
    if (!tensor->name || !tensor->dims) return LK_ERR_NOMEM;
    memcpy(tensor->dims, dims, sizeof(int64_t) * (size_t)rank);
    tensor->n_dims = (size_t)rank;
    tensor->has_data_type = tensor->has_raw_data = true;
    tensor->data_type = (int32_t)type;
    tensor->raw_data.data = (uint8_t *)data;
    tensor->raw_data.len = nbytes;
    m->graph.initializer[m->graph.n_initializer++] = tensor;
    return LK_OK;
}

static Onnx__TensorShapeProto *make_shape(lki_onnx_model *m, const int64_t *dims, int rank)
{
    Onnx__TensorShapeProto *shape = keep(m, sizeof *shape);
    if (!shape) return NULL;
    onnx__tensor_shape_proto__init(shape);
    shape->dim = keep(m, sizeof(void *) * (size_t)(rank + 1));
    for (int i = 0; shape->dim && i < rank; i++) {
        Onnx__TensorShapeProto__Dimension *dim = keep(m, sizeof *dim);
        if (!dim) return NULL;
        onnx__tensor_shape_proto__dimension__init(dim);
        if (dims[i] >= 0) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = dims[i];
        } else {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = dims[i] == -1 ? "batch" : "rows";
        }
        shape->dim[shape->n_dim++] = dim;
    }
    return shape->dim ? shape : NULL;
}

static Onnx__ValueInfoProto *make_value(lki_onnx_model *m, const char *name, lki_onnx_type type,
                                        Onnx__TensorShapeProto *shape)
{
    Onnx__ValueInfoProto *value = keep(m, sizeof *value);
    Onnx__TypeProto *outer = keep(m, sizeof *outer);
    Onnx__TypeProto__Tensor *tensor = keep(m, sizeof *tensor);
    if (!value || !outer || !tensor) return NULL;
    onnx__value_info_proto__init(value);
    onnx__type_proto__init(outer);
    onnx__type_proto__tensor__init(tensor);
    tensor->has_elem_type = true;
    tensor->elem_type = (int32_t)type;
    tensor->shape = shape;
    outer->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    outer->tensor_type = tensor;
    value->type = outer;
    value->name = keep_text(m, name);
    return value->name ? value : NULL;
}

static lk_status add_value(lki_onnx_model *m, bool is_output, const char *name, lki_onnx_type type,
                           const int64_t *dims, int rank)
{
    Onnx__TensorShapeProto *shape = make_shape(m, dims, rank);
    Onnx__ValueInfoProto *value = shape ? make_value(m, name, type, shape) : NULL;
    size_t count = is_output ? m->graph.n_output : m->graph.n_input;
    Onnx__ValueInfoProto **list = keep(m, sizeof *list * (count + 1));
    if (!value || !list) return LK_ERR_NOMEM;
    if (count) memcpy(list, is_output ? m->graph.output : m->graph.input, sizeof *list * count);
    list[count] = value;
    if (is_output) {
        m->graph.output = list;
        m->graph.n_output++;
    } else {
        m->graph.input = list;
        m->graph.n_input++;
    }
    return LK_OK;
}

static lk_status pack(lki_onnx_model *m, void **bytes, size_t *nbytes)
{
    *nbytes = onnx__model_proto__get_packed_size(&m->model);
    if (*nbytes > INT32_MAX)
        return lki_fail(LK_ERR_UNSUPPORTED, "the model has %zu bytes: an ONNX file has at most 2 GiB",
                        *nbytes);
    *bytes = lki_calloc(*nbytes, "an ONNX file");
    if (!*bytes) return LK_ERR_NOMEM;
    onnx__model_proto__pack(&m->model, *bytes);
    return LK_OK;
}

LKI_PLUGIN_EXPORT(onnx, lki_onnx_functions, char, .create = create, .free = free_model, .add_node = add_node,
                  .add_tensor = add_tensor, .add_value = add_value, .pack = pack);
