/* What an event file says of a run as a whole.
 *
 *     Value       = tag 1, tensor 8, metadata 9
 *     metadata    = plugin_data 1: plugin_name 1, content 2
 *     content     = session_start_info 3 | session_end_info 4                      (plug-in "hparams")
 *     start info  = hparams 1, a map to google.protobuf.Value; start_time_secs 5
 *     end info    = status 1, end_time_secs 2
 *
 *     GraphDef    = node 1, versions 4 (producer 1)
 *     node        = name 1, op 2, input 3, attr 5, a map: type 6; s 2; list 1 of shape 7 (dim 2: size 1) */
#include "logger/event.h"

#include "base/memory.h"
#include "base/status.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* ---- Settings ---- */

static lk_status put_setting(lki_event_buffer *to, const char *name, const json_t *value)
{
    lki_event_buffer any = {0}, entry = {0};
    char *text = NULL;
    lk_status status;
    if (json_is_number(value))
        LKI_TRY_OUT(lki_field_double(&any, 2, json_number_value(value)));
    else if (json_is_boolean(value))
        LKI_TRY_OUT(lki_field_varint(&any, 4, json_is_true(value)));
    else if (json_is_string(value))
        LKI_TRY_OUT(lki_field_text(&any, 3, json_string_value(value)));
    else {
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        LKI_TRY_OUT(lki_field_text(&any, 3, text ? text : ""));
    }
    LKI_TRY_OUT(lki_field_text(&entry, 1, name));
    LKI_TRY_OUT(lki_field_bytes(&entry, 2, any.data, any.used));
    status = lki_field_bytes(to, 1, entry.data, entry.used);
out:
    free(text);
    lki_event_buffer_fini(&any);
    lki_event_buffer_fini(&entry);
    return status;
}

/* One event with the value `tag`, whose content is field `field` of the plug-in's message. */
static lk_status put_plugin_event(lki_event_buffer *buffer, double wall_time, const char *tag, int field,
                                  const lki_event_buffer *info)
{
    static const uint8_t no_numbers[] = {0x08, 0x01, 0x12, 0x02, 0x12, 0x00}; /* a tensor: float, shape (0) */
    lki_event_buffer content = {0}, plugin = {0}, metadata = {0}, value = {0}, summary = {0}, event = {0};
    lk_status status;
    LKI_TRY_OUT(lki_field_bytes(&content, field, info->data, info->used));
    LKI_TRY_OUT(lki_field_text(&plugin, 1, "hparams"));
    LKI_TRY_OUT(lki_field_bytes(&plugin, 2, content.data, content.used));
    LKI_TRY_OUT(lki_field_bytes(&metadata, 1, plugin.data, plugin.used));
    LKI_TRY_OUT(lki_field_text(&value, 1, tag));
    LKI_TRY_OUT(lki_field_bytes(&value, 8, no_numbers, sizeof no_numbers));
    LKI_TRY_OUT(lki_field_bytes(&value, 9, metadata.data, metadata.used));
    LKI_TRY_OUT(lki_field_bytes(&summary, 1, value.data, value.used));
    LKI_TRY_OUT(lki_field_double(&event, 1, wall_time));
    LKI_TRY_OUT(lki_field_bytes(&event, 5, summary.data, summary.used));
    status = lki_event_put_record(buffer, &event);
out:
    lki_event_buffer_fini(&content);
    lki_event_buffer_fini(&plugin);
    lki_event_buffer_fini(&metadata);
    lki_event_buffer_fini(&value);
    lki_event_buffer_fini(&summary);
    lki_event_buffer_fini(&event);
    return status;
}

lk_status lki_event_put_session(lki_event_buffer *buffer, double wall_time, const char *json)
{
    enum { SESSION_START = 3 };
    lki_event_buffer info = {0};
    json_error_t error;
    const char *name;
    json_t *document = json_loads(json, 0, &error), *value;
    lk_status status = LK_OK;
    if (!json_is_object(document))
        status = lki_fail(LK_ERR_INVALID, "TensorBoard logger: the settings are no JSON object");
    json_object_foreach(document, name, value) if (!status) status = put_setting(&info, name, value);
    if (!status) status = lki_field_double(&info, 5, wall_time);
    if (!status)
        status = put_plugin_event(buffer, wall_time, "_hparams_/session_start_info", SESSION_START, &info);
    json_decref(document);
    lki_event_buffer_fini(&info);
    return status;
}

lk_status lki_event_put_session_end(lki_event_buffer *buffer, double wall_time, lk_status ended)
{
    enum { SESSION_END = 4, SUCCESS = 1, FAILURE = 2 };
    lki_event_buffer info = {0};
    lk_status status = lki_field_varint(&info, 1, ended ? FAILURE : SUCCESS);
    if (!status) status = lki_field_double(&info, 2, wall_time);
    if (!status)
        status = put_plugin_event(buffer, wall_time, "_hparams_/session_end_info", SESSION_END, &info);
    lki_event_buffer_fini(&info);
    return status;
}

/* ---- The graph ---- */

static lk_status put_attr(lki_event_buffer *node, const char *name, const lki_event_buffer *value)
{
    lki_event_buffer entry = {0};
    lk_status status = lki_field_text(&entry, 1, name);
    if (!status) status = lki_field_bytes(&entry, 2, value->data, value->used);
    if (!status) status = lki_field_bytes(node, 5, entry.data, entry.used);
    lki_event_buffer_fini(&entry);
    return status;
}

static lk_status put_shape(lki_event_buffer *node, const json_t *dims)
{
    lki_event_buffer shape = {0}, dim = {0}, list = {0}, value = {0};
    lk_status status = LK_OK;
    size_t i;
    json_t *size;
    json_array_foreach(dims, i, size)
    {
        dim.used = 0;
        LKI_TRY_OUT(lki_field_varint(&dim, 1, (uint64_t)json_integer_value(size)));
        LKI_TRY_OUT(lki_field_bytes(&shape, 2, dim.data, dim.used));
    }
    LKI_TRY_OUT(lki_field_bytes(&list, 7, shape.data, shape.used));
    LKI_TRY_OUT(lki_field_bytes(&value, 1, list.data, list.used));
    status = put_attr(node, "_output_shapes", &value);
out:
    lki_event_buffer_fini(&shape);
    lki_event_buffer_fini(&dim);
    lki_event_buffer_fini(&list);
    lki_event_buffer_fini(&value);
    return status;
}

static lk_status put_text_attr(lki_event_buffer *node, const char *name, const char *text)
{
    lki_event_buffer value = {0};
    lk_status status = lki_field_text(&value, 2, text);
    if (!status) status = put_attr(node, name, &value);
    lki_event_buffer_fini(&value);
    return status;
}

static lk_status put_dtype(lki_event_buffer *node, const char *name)
{
    static const struct {
        const char *name;
        int number;
    } types[] = {{"f32", 1}, {"f64", 2},   {"i32", 3},   {"u8", 4},
                 {"i64", 9}, {"bool", 10}, {"bf16", 14}, {"f16", 19}};
    lki_event_buffer value = {0};
    lk_status status = LK_OK;
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) != 0) continue;
        status = lki_field_varint(&value, 6, (uint64_t)types[i].number);
        if (!status) status = put_attr(node, "dtype", &value);
    }
    lki_event_buffer_fini(&value);
    return status;
}

/* The names are paths: readers fold what lies below a slash. */
static lk_status put_node(lki_event_buffer *graph, const json_t *node)
{
    lki_event_buffer out = {0};
    const char *name = json_string_value(json_object_get(node, "name"));
    const char *op = json_string_value(json_object_get(node, "op"));
    const char *layer = json_string_value(json_object_get(node, "layer"));
    lk_status status;
    size_t i;
    json_t *input;
    if (!name || !op) return lki_fail(LK_ERR_INVALID, "TensorBoard logger: a node of the model has no name");
    LKI_TRY_OUT(lki_field_text(&out, 1, name));
    LKI_TRY_OUT(lki_field_text(&out, 2, strcmp(op, "input") ? op : "Placeholder"));
    json_array_foreach(json_object_get(node, "inputs"), i, input) if (json_is_string(input))
        LKI_TRY_OUT(lki_field_text(&out, 3, json_string_value(input)));
    if (layer) LKI_TRY_OUT(put_text_attr(&out, "layer", layer));
    LKI_TRY_OUT(put_dtype(&out, json_string_value(json_object_get(node, "dtype"))));
    LKI_TRY_OUT(put_shape(&out, json_object_get(node, "shape")));
    status = lki_field_bytes(graph, 1, out.data, out.used);
out:
    lki_event_buffer_fini(&out);
    return status;
}

lk_status lki_event_put_graph(lki_event_buffer *buffer, double wall_time, const char *json)
{
    enum { PRODUCER = 22 };
    lki_event_buffer graph = {0}, versions = {0}, event = {0};
    json_error_t error;
    json_t *document = json_loads(json, 0, &error), *node;
    size_t i;
    lk_status status = LK_OK;
    if (!json_is_array(json_object_get(document, "nodes")))
        status = lki_fail(LK_ERR_INVALID, "TensorBoard logger: the model has no nodes");
    json_array_foreach(json_object_get(document, "nodes"), i, node) if (!status) status =
        put_node(&graph, node);
    if (status) goto out;
    LKI_TRY_OUT(lki_field_varint(&versions, 1, PRODUCER));
    LKI_TRY_OUT(lki_field_bytes(&graph, 4, versions.data, versions.used));
    LKI_TRY_OUT(lki_field_double(&event, 1, wall_time));
    LKI_TRY_OUT(lki_field_bytes(&event, 4, graph.data, graph.used));
    status = lki_event_put_record(buffer, &event);
out:
    json_decref(document);
    lki_event_buffer_fini(&graph);
    lki_event_buffer_fini(&versions);
    lki_event_buffer_fini(&event);
    return status;
}
