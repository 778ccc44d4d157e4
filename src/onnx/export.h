/* A model as an ONNX file. */
#ifndef LKI_ONNX_EXPORT_H
#define LKI_ONNX_EXPORT_H

#include <lockstep/nn.h>

/* Writes the model, as it evaluates, for features of this dtype and shape; dimension 0 is the batch, of any
 * size. LK_ERR_UNSUPPORTED with the layer's name for what ONNX has no standard op for. */
lk_status lki_onnx_export(lk_module *module, lk_dtype dtype, lk_shape shape, const char *path);

#endif
