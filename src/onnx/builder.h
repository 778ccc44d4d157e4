/* An ONNX graph while it is written.
 *
 * The model is recorded for two batch sizes; the two lists of nodes go side by side, and a dimension that
 * differs follows the batch. One thread. */
#ifndef LKI_ONNX_BUILDER_H
#define LKI_ONNX_BUILDER_H

#include "base/arena.h"
#include "graph/graph.h"
#include "nn/module.h"
#include "onnx/protobuf/onnx_plugin.h"

typedef struct lki_onnx_builder {
    const lki_onnx_functions *functions;
    lki_onnx_model *model;
    lki_arena arena; /* names and numbers */
    lk_param_list params;
    int next;                   /* number of the next name */
    lki_node *node, *twin;      /* what is being translated, for both batch sizes */
    int64_t batch, other_batch; /* the two sizes */
    lk_status status;           /* the first failure */
} lki_onnx_builder;

/* A list of attributes for lki_onnx_emit. */
#define LKI_ONNX_ATTRIBUTES(...) ((const lki_onnx_attribute[]){__VA_ARGS__, {0}})
#define LKI_ONNX_INTS(title, values, n)                                                                      \
    {                                                                                                        \
        .name = (title), .numbers = (values), .count = (n)                                                   \
    }
#define LKI_ONNX_INT(title, value)                                                                           \
    {                                                                                                        \
        .name = (title), .number = (value)                                                                   \
    }
#define LKI_ONNX_REAL(title, value)                                                                          \
    {                                                                                                        \
        .name = (title), .is_real = true, .real = (value)                                                    \
    }
#define LKI_ONNX_TEXT(title, value)                                                                          \
    {                                                                                                        \
        .name = (title), .text = (value)                                                                     \
    }

/* Writes an ONNX node over these inputs, which NULL ends ("" is one that is left out), and returns the name
 * of its result; NULL after a failure, which is remembered. */
const char *lki_onnx_emit(lki_onnx_builder *b, const char *op, const char *const *inputs,
                          const lki_onnx_attribute *attributes);
#define LKI_ONNX_EMIT(b, op, attributes, ...)                                                                \
    lki_onnx_emit((b), (op), (const char *const[]){__VA_ARGS__, NULL}, (attributes))

/* The name of the translated node's input; "" of one that is absent. */
const char *lki_onnx_input(lki_onnx_builder *b, int index);
const char *lki_onnx_name(lki_onnx_builder *b, const lk_value *value);
/* Constants: a vector of integers, a number of the dtype, and `count` equal numbers of it. */
const char *lki_onnx_ints(lki_onnx_builder *b, const int64_t *values, int count);
const char *lki_onnx_number(lki_onnx_builder *b, lk_dtype dtype, double value);
const char *lki_onnx_vector(lki_onnx_builder *b, lk_dtype dtype, int64_t count, double value);
/* A tensor, which is freed. */
const char *lki_onnx_tensor(lki_onnx_builder *b, lk_tensor *tensor_owned);
/* Fails: "0 (Conv2d): …". Returns NULL. */
const char *lki_onnx_refuse(lki_onnx_builder *b, const char *why);
lki_onnx_type lki_onnx_type_of(lk_dtype dtype);

/* twin.c: whether a node of one recording and its twin of the other differ in the batch alone. */
bool lki_onnx_is_twin(const lki_node *node, const lki_node *twin);

/* translate.c: writes the nodes of one op; the name of its result. */
const char *lki_onnx_translate(lki_onnx_builder *b);
/* translate_layers.c: convolutions, pools, norms, resizing. NULL without a failure if the op is none of them.
 */
const char *lki_onnx_translate_layer(lki_onnx_builder *b);
/* The shape of the node's result with -1 for the one dimension that follows the batch; false if several do.
 */
bool lki_onnx_shape(const lki_onnx_builder *b, int64_t *dims);

#endif
