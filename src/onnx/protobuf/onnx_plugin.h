/* liblockstep_onnx.so, which writes the protobuf of ONNX files by protobuf-c: base/plugin.h. */
#ifndef LKI_ONNX_PROTOBUF_ONNX_PLUGIN_H
#define LKI_ONNX_PROTOBUF_ONNX_PLUGIN_H

#include "base/plugin.h"

#include <stdint.h>

/* The numbers that ONNX gives to its element types. */
typedef enum lki_onnx_type {
    LKI_ONNX_FLOAT = 1,
    LKI_ONNX_UINT8 = 2,
    LKI_ONNX_INT32 = 6,
    LKI_ONNX_INT64 = 7,
    LKI_ONNX_BOOL = 9,
    LKI_ONNX_FLOAT16 = 10,
    LKI_ONNX_DOUBLE = 11,
    LKI_ONNX_BFLOAT16 = 16,
} lki_onnx_type;

/* An attribute of a node: a text, several numbers, one number or (of neither) an integer. A name of NULL ends
 * a list. */
typedef struct lki_onnx_attribute {
    const char *name, *text;
    const int64_t *numbers;
    int count;
    bool is_real;
    double real;
    int64_t number;
} lki_onnx_attribute;

typedef struct lki_onnx_model lki_onnx_model;

/* All texts and numbers are copied, but the data of tensors, which must live until the model is freed. */
typedef struct lki_onnx_functions {
    lki_onnx_model *(*create)(void);
    void (*free)(lki_onnx_model *model);
    /* An input of "" is one that is left out. */
    lk_status (*add_node)(lki_onnx_model *model, const char *op, const char *const *inputs, int input_count,
                          const char *output, const lki_onnx_attribute *attributes);
    lk_status (*add_tensor)(lki_onnx_model *model, const char *name, lki_onnx_type type, const int64_t *dims,
                            int rank, const void *data, size_t nbytes);
    /* An input or output of the graph; a dimension of -1 is the batch, of -2 unknown. */
    lk_status (*add_value)(lki_onnx_model *model, bool is_output, const char *name, lki_onnx_type type,
                           const int64_t *dims, int rank);
    /* The file's bytes, to be freed with lki_free. */
    lk_status (*pack)(lki_onnx_model *model, void **bytes, size_t *nbytes);
} lki_onnx_functions;

extern lki_plugin lki_onnx; /* the library's side */

#endif
