/* A model as data: its layers, and the ops that compute it. */
#ifndef LKI_NN_DESCRIBE_H
#define LKI_NN_DESCRIBE_H

#include <lockstep/nn.h>

/* One JSON object about the model as recorded for one input:
 *
 *     {"layers": [{"path": "0", "type": "Linear", "shape": [64, 10], "parameters": 7850}, ...],
 *      "nodes": [{"name": "0/linear", "op": "linear", "layer": "0", "inputs": ["input"],
 *                 "shape": [64, 10], "dtype": "f32"}, ...]}
 *
 * Layers come parents first, and the root's path is "". A shape is null where a layer was not used; inputs
 * are names of earlier nodes, parameters left out. Text for lki_free. */
lk_status lki_module_describe(lk_module *module, lk_dtype dtype, lk_shape shape, char **json);

#endif
