/* VGG-11 to VGG-19, with torchvision's names and first weights. */
#include "models/models.h"

#include "base/arguments.h"
#include "base/status.h"
#include "base/take.h"
#include "graph/graph.h"

/* The convolutions of each of the five parts, whose channels are 1, 2, 4, 8 and 8 times the width. */
static const int *parts_of(int depth)
{
    static const struct {
        int depth, convs[5];
    } known[] = {{11, {1, 1, 2, 2, 2}}, {13, {2, 2, 2, 2, 2}}, {16, {2, 2, 3, 3, 3}}, {19, {2, 2, 4, 4, 4}}};
    for (int i = 0; i < 4; i++)
        if (known[i].depth == depth) return known[i].convs;
    lki_fail(LK_ERR_INVALID, "VGG: expected a depth of 11, 13, 16 or 19, found %d", depth);
    return NULL;
}

static lk_module *make_features(const lk_vgg_options *options, const int *convs)
{
    lk_module *chain = lki_model_chain();
    int64_t channels = options->in_channels;
    int index = 0;
    for (int part = 0; part < 5; part++) {
        int64_t out = options->width << (part < 3 ? part : 3);
        for (int i = 0; i < convs[part]; i++, channels = out) {
            lki_model_add_at(chain, index++, lk_conv2d(channels, out, 3, .padding = 1));
            if (options->batch_norm) lki_model_add_at(chain, index++, lk_batch_norm2d(out));
            lki_model_add_at(chain, index++, lk_relu());
        }
        lki_model_add_at(chain, index++, lk_max_pool2d(2, .stride = 2));
    }
    return lki_module_checked(chain);
}

static lk_value *vgg_forward(lk_module *module, lk_value *x)
{
    x = lki_model_run(module, "avgpool", lki_model_run(module, "features", x));
    if (!x) return NULL;
    return lki_model_run(module, "classifier", lk_op_reshape(x, LK_SHAPE(lk_value_shape(x).dim[0], -1)));
}

lk_module *lk_vgg_with(int depth, const lk_vgg_options *given)
{
    LKI_TAKE(lk_vgg_options, options, given, NULL);
    const int *convs = parts_of(depth);
    if (!convs || lki_size_or("VGG", "num_classes", options.num_classes, 1000, &options.num_classes) ||
        lki_size_or("VGG", "in_channels", options.in_channels, 3, &options.in_channels) ||
        lki_size_or("VGG", "hidden", options.hidden, 4096, &options.hidden) ||
        lki_size_or("VGG", "width", options.width, 64, &options.width))
        return NULL;
    lk_module *module = lki_module_create("VGG", vgg_forward, NULL, 0);
    lki_model_add(module, "features", make_features(&options, convs));
    lki_model_add(module, "avgpool", lk_adaptive_avg_pool2d(7));
    lki_model_add(module, "classifier",
                  lk_sequential(lk_linear(options.width * 8 * 49, options.hidden), lk_relu(),
                                lk_dropout(.p = options.dropout), lk_linear(options.hidden, options.hidden),
                                lk_relu(), lk_dropout(.p = options.dropout),
                                lk_linear(options.hidden, options.num_classes)));
    lki_model_each(module, "Conv2d", lki_init_conv);
    lki_model_each(module, "Linear", lki_init_linear_001);
    return lki_module_checked(module);
}
