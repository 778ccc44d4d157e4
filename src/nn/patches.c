/* Patches of pictures as columns, and columns added up to pictures. Both use one list: which place of the
 * padded picture each element of a column is. */
#include "nn/window_options.h"

#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"
#include "graph/record_util.h"

typedef struct patches {
    int64_t kernel[2], dilation[2], padding[2], stride[2];
    int64_t size[2]; /* of the picture that fold makes */
} patches;

/* How many patches there are along each axis; 0 or less if none fits. */
static void count_patches(const patches *own, const int64_t *size, int64_t count[2])
{
    for (int i = 0; i < 2; i++) {
        int64_t room = size[i] + 2 * own->padding[i] - own->dilation[i] * (own->kernel[i] - 1) - 1;
        count[i] = room < 0 ? 0 : room / own->stride[i] + 1;
    }
}

/* i64 (k k L): the place of each element in the flat padded picture, row by row of the columns. */
static lk_value *list_places(lk_graph *graph, const patches *own, const int64_t *size, const int64_t count[2])
{
    int64_t width = size[1] + 2 * own->padding[1];
    lk_tensor *places =
        lk_tensor_create(LK_I64, LK_SHAPE(own->kernel[0] * own->kernel[1] * count[0] * count[1]));
    if (!places) return lki_graph_fail(graph, lki_last_status(), "%s", lk_error());
    int64_t *at = places->data;
    for (int64_t i = 0; i < own->kernel[0]; i++)
        for (int64_t j = 0; j < own->kernel[1]; j++)
            for (int64_t y = 0; y < count[0]; y++)
                for (int64_t x = 0; x < count[1]; x++)
                    *at++ = (i * own->dilation[0] + y * own->stride[0]) * width + j * own->dilation[1] +
                            x * own->stride[1];
    lk_value *value = lk_graph_constant(graph, places);
    lk_tensor_free(places);
    return value;
}

static lk_value *unfold_forward(lk_module *module, lk_value *x)
{
    const patches *own = module->context;
    bool was_added;
    x = lki_batch(x, 2, &was_added);
    if (!x) return NULL;
    lk_shape shape = lk_value_shape(x);
    lk_graph *graph = lk_value_graph(x);
    if (shape.rank != 4)
        return lki_graph_fail(graph, LK_ERR_SHAPE, "expected an input of 4 dimensions, found %s",
                              LKI_SHOW(shape));
    int64_t count[2];
    count_patches(own, shape.dim + 2, count);
    if (count[0] < 1 || count[1] < 1)
        return lki_graph_fail(graph, LK_ERR_SHAPE, "no patch fits into an input of %s", LKI_SHOW(shape));
    int64_t around[LK_MAX_DIMS] = {0, 0, own->padding[0], own->padding[1]};
    int64_t planes = shape.dim[0] * shape.dim[1], cells = own->kernel[0] * own->kernel[1];
    if (own->padding[0] || own->padding[1]) x = lk_op_pad(x, around, around, LK_PAD_CONSTANT, 0);
    int64_t places = (shape.dim[2] + 2 * own->padding[0]) * (shape.dim[3] + 2 * own->padding[1]);
    x = lk_op_reshape(x, LK_SHAPE(planes, places));
    x = lk_op_index_select(x, 1, list_places(graph, own, shape.dim + 2, count));
    x = lk_op_reshape(x, LK_SHAPE(shape.dim[0], shape.dim[1] * cells, count[0] * count[1]));
    return was_added ? lk_op_squeeze(x, 0) : x;
}

static lk_value *fold_forward(lk_module *module, lk_value *x)
{
    const patches *own = module->context;
    lk_shape shape = lk_value_shape(x);
    lk_graph *graph = lk_value_graph(x);
    int64_t count[2], cells = own->kernel[0] * own->kernel[1];
    count_patches(own, own->size, count);
    int64_t columns = count[0] * count[1];
    int last = shape.rank - 1;
    if (last < 1 || last > 2 || shape.dim[last - 1] % cells || shape.dim[last] != columns)
        return lki_graph_fail(graph, LK_ERR_SHAPE,
                              "expected (N, C x %lld, %lld) for a picture of %lld x %lld, found %s",
                              (long long)cells, (long long)columns, (long long)own->size[0],
                              (long long)own->size[1], LKI_SHOW(shape));
    int64_t samples = last == 2 ? shape.dim[0] : 1, channels = shape.dim[last - 1] / cells;
    int64_t height = own->size[0] + 2 * own->padding[0], width = own->size[1] + 2 * own->padding[1];
    lk_value *picture = lk_op_zeros(graph, LK_SHAPE(samples * channels, height * width), lk_value_dtype(x));
    x = lk_op_reshape(x, LK_SHAPE(samples * channels, cells * columns));
    x = lk_op_index_add(picture, 1, list_places(graph, own, own->size, count), x);
    x = lk_op_reshape(x, LK_SHAPE(samples, channels, height, width));
    for (int i = 0; i < 2; i++)
        if (own->padding[i]) x = lk_op_slice(x, 2 + i, own->padding[i], own->padding[i] + own->size[i], 1);
    return last == 2 ? x : lk_op_squeeze(x, 0);
}

static lk_module *create(const char *type, lk_module_function forward, int64_t size, int64_t kernel,
                         const lk_unfold_options *options)
{
    patches own;
    lki_spread(own.kernel, 2, kernel, options->kernels, 0);
    lki_spread(own.dilation, 2, options->dilation, options->dilations, 1);
    lki_spread(own.padding, 2, options->padding, options->paddings, 0);
    lki_spread(own.stride, 2, options->stride, options->strides, 1);
    lki_spread(own.size, 2, size, options->output_sizes, 0);
    if (lki_check_each(type, "kernel_size", own.kernel, 2, 1) ||
        lki_check_each(type, "dilation", own.dilation, 2, 1) ||
        lki_check_each(type, "padding", own.padding, 2, 0) ||
        lki_check_each(type, "stride", own.stride, 2, 1))
        return NULL;
    if (forward == fold_forward && lki_check_each(type, "output_size", own.size, 2, 1)) return NULL;
    if (forward != fold_forward && options->output_sizes[0])
        return lki_fail_null(LK_ERR_INVALID, "%s: output_sizes belongs to Fold", type);
    return lki_module_create(type, forward, &own, sizeof own);
}

lk_module *lk_unfold_with(int64_t kernel, const lk_unfold_options *given)
{
    LKI_TAKE(lk_unfold_options, options, given, NULL);
    return create("Unfold", unfold_forward, 0, kernel, &options);
}

lk_module *lk_fold_with(int64_t output_size, int64_t kernel, const lk_unfold_options *given)
{
    LKI_TAKE(lk_unfold_options, options, given, NULL);
    return create("Fold", fold_forward, output_size, kernel, &options);
}

/* ---- Channels ---- */

typedef struct shuffle {
    int64_t groups;
} shuffle;

/* (n, g, c, rest) -> (n, c, g, rest) */
static lk_value *shuffle_forward(lk_module *module, lk_value *x)
{
    const shuffle *own = module->context;
    lk_shape shape = lk_value_shape(x);
    if (shape.rank < 3 || shape.dim[1] % own->groups)
        return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE,
                              "expected an input (N, C, ...) with C divisible by %lld, found %s",
                              (long long)own->groups, LKI_SHOW(shape));
    int64_t rest = 1;
    for (int i = 2; i < shape.rank; i++) rest *= shape.dim[i];
    x = lk_op_reshape(x, LK_SHAPE(shape.dim[0], own->groups, shape.dim[1] / own->groups, rest));
    return lk_op_reshape(lk_op_transpose(x, 1, 2), shape);
}

lk_module *lk_channel_shuffle(int64_t groups)
{
    shuffle own = {groups};
    if (groups < 1)
        return lki_fail_null(LK_ERR_INVALID, "ChannelShuffle: groups: expected at least 1, found %lld",
                             (long long)groups);
    return lki_module_create("ChannelShuffle", shuffle_forward, &own, sizeof own);
}

static lk_value *softmax2d_forward(lk_module *module, lk_value *x)
{
    int rank = lk_value_shape(x).rank;
    (void)module;
    if (rank == 3 || rank == 4) return lk_op_softmax(x, -3);
    return lki_graph_fail(lk_value_graph(x), LK_ERR_SHAPE, "expected an input of 3 or 4 dimensions, found %s",
                          LKI_SHOW(lk_value_shape(x)));
}

lk_module *lk_softmax2d(void)
{
    return lki_module_create("Softmax2d", softmax2d_forward, NULL, 0);
}
