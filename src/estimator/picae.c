/* PICAE: an autoencoder of periodic vector fields that gives the curl of what it decodes. The difference
 * operators commute, so the divergence of its output is zero whatever the weights are. */
#include "estimator/estimator.h"

#include "base/status.h"

enum { DIMS = 3, LAYERS = 3 };

/* Doubles a periodic field: x (n, c, m, m, m) -> (n, o, 2m, 2m, 2m). One point of the other side is put
 * around it, so that the transposed convolution meets no border; what it writes beyond the field is cut off.
 */
static lk_value *double_size(lk_module *layer, lk_value *x)
{
    static const int64_t around[] = {0, 0, 1, 1, 1};
    if (!x) return NULL;
    lk_shape shape = lk_value_shape(x);
    x = lk_module_forward(layer, lk_op_pad(x, around, around, LK_PAD_CIRCULAR, 0));
    for (int axis = 2; axis < 2 + DIMS; axis++) x = lk_op_slice(x, axis, 3, 3 + 2 * shape.dim[axis], 1);
    return x;
}

static float *kernel_at(lk_tensor *kernel, int out, int in, int axis, int offset)
{
    int place[DIMS] = {1, 1, 1};
    place[axis] += offset;
    return (float *)kernel->data + (((out * DIMS + in) * 3 + place[0]) * 3 + place[1]) * 3 + place[2];
}

/* Central differences: (curl a)_i = d_j a_k - d_k a_j with (i, j, k) = (0, 1, 2) and its turns. */
static lk_tensor *curl_kernel(void)
{
    lk_tensor *kernel = lk_tensor_create(LK_F32, LK_SHAPE(DIMS, DIMS, 3, 3, 3));
    for (int i = 0; kernel && i < DIMS; i++) {
        int j = (i + 1) % DIMS, k = (i + 2) % DIMS;
        *kernel_at(kernel, i, k, j, 1) = 0.5f;
        *kernel_at(kernel, i, k, j, -1) = -0.5f;
        *kernel_at(kernel, i, j, k, 1) = -0.5f;
        *kernel_at(kernel, i, j, k, -1) = 0.5f;
    }
    return kernel;
}

/* a (n, 3, m, m, m) -> its curl, of the same shape. */
static lk_value *curl(lk_value *a)
{
    static const int64_t around[] = {0, 0, 1, 1, 1};
    lk_tensor *kernel = a ? curl_kernel() : NULL;
    if (!kernel) return NULL;
    lk_value *weight = lk_graph_constant(lk_value_graph(a), kernel);
    lk_tensor_free(kernel);
    return lk_op_conv(lk_op_pad(a, around, around, LK_PAD_CIRCULAR, 0), weight, NULL,
                      (lk_window){.rank = DIMS, .kernel = {3, 3, 3}});
}

static lk_value *picae_forward(lk_module *module, lk_value *x)
{
    static const char *const down[LAYERS] = {"encoder1", "encoder2", "encoder3"};
    static const char *const up[LAYERS] = {"decoder1", "decoder2", "decoder3"};
    for (int i = 0; i < LAYERS; i++) x = lk_op_relu(lk_module_forward(lk_module_child(module, down[i]), x));
    for (int i = 0; i < LAYERS; i++) {
        x = double_size(lk_module_child(module, up[i]), x);
        if (i < LAYERS - 1) x = lk_op_relu(x);
    }
    return curl(x);
}

static lk_status check_shape(const lk_estimator *estimator)
{
    char text[128];
    lk_shape shape = estimator->features;
    bool fits = shape.rank == 1 + DIMS && shape.dim[0] == DIMS;
    for (int i = 1; fits && i <= DIMS; i++) fits = shape.dim[i] % (1 << LAYERS) == 0;
    if (!fits)
        return lki_fail(LK_ERR_SHAPE,
                        "features of shape %s: expected (3, x, y, z), each size a multiple of %d",
                        lk_shape_format(text, sizeof text, shape), 1 << LAYERS);
    if (lk_shape_count(estimator->targets) != lk_shape_count(shape))
        return lki_fail(LK_ERR_SHAPE, "targets of shape %s: expected as many numbers as the features",
                        lk_shape_format(text, sizeof text, estimator->targets));
    return LK_OK;
}

lk_module *lki_picae_model(const lk_estimator *estimator)
{
    if (check_shape(estimator)) return NULL;
    int64_t n = estimator->config.nfilters;
#define DOWN(in, out) lk_conv3d(in, out, 3, .stride = 2, .padding = 1, .padding_mode = LK_PAD_CIRCULAR)
#define UP(in, out)   lk_conv_transpose3d(in, out, 3, .stride = 2)
    return lk_custom_module(.type = "PICAE", .forward = picae_forward,
                            .children = lk_children({"encoder1", DOWN(DIMS, n)}, {"encoder2", DOWN(n, n)},
                                                    {"encoder3", DOWN(n, n)}, {"decoder1", UP(n, n)},
                                                    {"decoder2", UP(n, n)}, {"decoder3", UP(n, DIMS)}));
#undef DOWN
#undef UP
}

lk_estimator *lk_picae_with(lk_loader_list loaders, const lk_estimator_config *config)
{
    lk_estimator *estimator = lki_estimator_new("PICAE", loaders, config);
    return lki_estimator_with_model(estimator, estimator ? lki_picae_model(estimator) : NULL);
}
