/* Sapsan's CNN3d: three convolutions with pooling bring a cube down to one point, two linear layers spread it
 * out to a field. Names and order of the layers are PyTorch's there, so the same seed gives the same weights.
 */
#include "estimator/estimator.h"

#include "base/status.h"

/* x (n, d, size...) -> (n, outputs) */
static lk_value *cnn3d_forward(lk_module *module, lk_value *x)
{
    static const char *const stages[] = {"conv3d", "pool", "relu",    "conv3d2",
                                         "pool2",  "relu", "conv3d3", "pool3"};
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        x = lk_module_forward(lk_module_child(module, stages[i]), x);
    if (!x) return NULL;
    x = lk_op_reshape(x, LK_SHAPE(lk_value_shape(x).dim[0], -1));
    x = lk_module_forward(lk_module_child(module, "linear"), x);
    x = lk_module_forward(lk_module_child(module, "relu"), x);
    return lk_module_forward(lk_module_child(module, "linear2"), x);
}

/* The points that are left of an axis in front of the linear layers. */
static int64_t points_left(int64_t points)
{
    for (int i = 0; i < 3; i++) {
        points = points / 2 + 1;                      /* a kernel of 2, steps of 2, one point of padding */
        points = i < 2 ? points / 2 + 1 : points / 2; /* the last pooling has no padding */
    }
    return points;
}

static lk_status check_shape(const lk_estimator *estimator)
{
    char text[128];
    lk_shape shape = estimator->features;
    bool fits = shape.rank == 4;
    for (int i = 1; fits && i < 4; i++) fits = points_left(shape.dim[i]) == 1;
    if (fits) return LK_OK;
    return lki_fail(
        LK_ERR_SHAPE,
        "features of shape %s: expected (channels, x, y, z) with 2 to 65 points per axis: sample or "
        "cut larger fields",
        lk_shape_format(text, sizeof text, shape));
}

lk_module *lki_cnn3d_model(const lk_estimator *estimator)
{
    if (check_shape(estimator)) return NULL;
    int64_t d = estimator->features.dim[0], outputs = lk_shape_count(estimator->targets);
    lk_module *model =
        lk_custom_module(.type = "CNN3d", .forward = cnn3d_forward,
                         .children = lk_children(
                             {"conv3d", lk_conv3d(d, 2 * d, 2, .stride = 2, .padding = 1)},
                             {"pool", lk_max_pool3d(2, .padding = 1)},
                             {"conv3d2", lk_conv3d(2 * d, 2 * d, 2, .stride = 2, .padding = 1)},
                             {"pool2", lk_max_pool3d(2, .padding = 1)},
                             {"conv3d3", lk_conv3d(2 * d, 4 * d, 2, .stride = 2, .padding = 1)},
                             {"pool3", lk_max_pool3d(2)}, {"relu", lk_relu()},
                             {"linear", lk_linear(4 * d, 8 * d)}, {"linear2", lk_linear(8 * d, outputs)}));
    return model;
}

/* Targets lie on cubes, outputs may be flat: only the number of numbers must agree. */
static lk_value *field_loss(lk_value *prediction, lk_value *target, void *context)
{
    (void)context;
    if (!prediction || !target) return NULL;
    return lk_op_pointwise_loss(prediction, lk_op_reshape(target, lk_value_shape(prediction)), NULL, NULL,
                                LK_LOSS_SMOOTH_L1, 1, LK_REDUCTION_MEAN);
}

lk_criterion *lki_field_loss(void)
{
    return lk_custom_criterion(.type = "SmoothL1Loss", .forward = field_loss);
}

lk_estimator *lk_cnn3d_with(lk_loader_list loaders, const lk_estimator_config *config)
{
    lk_estimator *estimator = lki_estimator_new("CNN3d", loaders, config);
    return lki_estimator_with_model(estimator, estimator ? lki_cnn3d_model(estimator) : NULL);
}
