/* torch.nn's layers of patches, responses, noise, pairs and bags. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/nn.h>

#include <string.h>

/* One number, or one per axis: into `each`. */
static lk_status read_pair(lk_args *args, const char *name, int axes, int minimum, int64_t *each)
{
    int count = lk_arg_count(args, name);
    if (count != 1 && count != axes)
        return lki_fail(LK_ERR_CONFIG, "%s: expected 1 or %d numbers, found %d", name, axes, count);
    for (int i = 0; i < axes; i++) {
        each[i] = lk_arg_int_at(args, name, count > 1 ? i : 0);
        if (each[i] < minimum)
            return lki_fail(LK_ERR_CONFIG, "%s: expected at least %d, found %lld", name, minimum,
                            (long long)each[i]);
    }
    return LK_OK;
}

static lk_status build_patches(const lk_component *self, lk_args *args, void **out)
{
    lk_unfold_options options = {LK_SIZE(lk_unfold_options)};
    bool folds = !strcmp(self->name, "Fold");
    LKI_TRY(read_pair(args, "kernel_size", 2, 1, options.kernels));
    LKI_TRY(read_pair(args, "dilation", 2, 1, options.dilations));
    LKI_TRY(read_pair(args, "padding", 2, 0, options.paddings));
    LKI_TRY(read_pair(args, "stride", 2, 1, options.strides));
    if (folds) LKI_TRY(read_pair(args, "output_size", 2, 1, options.output_sizes));
    return lki_built(folds ? lk_fold_with(0, 0, &options) : lk_unfold_with(0, &options), out);
}

static lk_status build_channel_shuffle(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_channel_shuffle(lk_arg_int64(args, "groups")), out);
}

static lk_status build_softmax2d(const lk_component *self, lk_args *args, void **out)
{
    (void)self, (void)args;
    return lki_built(lk_softmax2d(), out);
}

static lk_status build_response_norm(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_local_response_norm(lk_arg_int64(args, "size"),
                                            .alpha = lki_number_meant(lk_arg_float(args, "alpha")),
                                            .beta = lki_number_meant(lk_arg_float(args, "beta")),
                                            .k = lki_number_meant(lk_arg_float(args, "k"))),
                     out);
}

typedef struct lp_pool {
    int axes;
    lk_module *(*create)(double norm_type, int64_t kernel, const lk_lp_pool_options *options);
} lp_pool;

static lk_status build_lp_pool(const lk_component *self, lk_args *args, void **out)
{
    const lp_pool *kind = self->context;
    lk_lp_pool_options options = {LK_SIZE(lk_lp_pool_options), .ceil_mode = lk_arg_bool(args, "ceil_mode")};
    LKI_TRY(read_pair(args, "kernel_size", kind->axes, 1, options.kernels));
    if (lk_arg_given(args, "stride")) LKI_TRY(read_pair(args, "stride", kind->axes, 1, options.strides));
    return lki_built(kind->create(lk_arg_float(args, "norm_type"), 0, &options), out);
}

static lk_status build_alpha_dropout(const lk_component *self, lk_args *args, void **out)
{
    lk_dropout_options options = {LK_SIZE(lk_dropout_options),
                                  .p = lki_number_meant(lk_arg_float(args, "p"))};
    return lki_built(!strcmp(self->name, "AlphaDropout") ? lk_alpha_dropout_with(&options)
                                                         : lk_feature_alpha_dropout_with(&options),
                     out);
}

static lk_status build_rrelu(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_rrelu(.lower = lki_number_meant(lk_arg_float(args, "lower")),
                              .upper = lki_number_meant(lk_arg_float(args, "upper"))),
                     out);
}

static lk_status build_upsampling(const lk_component *self, lk_args *args, void **out)
{
    bool is_linear = !strcmp(self->name, "UpsamplingBilinear2d");
    lk_upsample_options options = {LK_SIZE(lk_upsample_options), .axes = 2, .align_corners = is_linear};
    options.mode = is_linear ? LK_UPSAMPLE_LINEAR : LK_UPSAMPLE_NEAREST;
    if (lk_arg_given(args, "size")) LKI_TRY(read_pair(args, "size", 2, 1, options.sizes));
    int count = lk_arg_given(args, "scale_factor") ? lk_arg_count(args, "scale_factor") : 0;
    if (count > 2) return lki_fail(LK_ERR_CONFIG, "scale_factor: expected 1 or 2 numbers, found %d", count);
    for (int i = 0; i < 2 && count; i++)
        options.scale_factors[i] = lk_arg_float_at(args, "scale_factor", count > 1 ? i : 0);
    return lki_built(lk_upsample_with(&options), out);
}

static lk_status build_cosine_similarity(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_cosine_similarity(.dim = lki_number_meant(lk_arg_int(args, "dim")),
                                          .eps = lki_number_meant(lk_arg_float(args, "eps"))),
                     out);
}

static lk_status build_pairwise_distance(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_pairwise_distance(.p = lki_number_meant(lk_arg_float(args, "p")),
                                          .eps = lki_number_meant(lk_arg_float(args, "eps")),
                                          .keepdim = lk_arg_bool(args, "keepdim")),
                     out);
}

static lk_status build_bilinear(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_bilinear(lk_arg_int64(args, "in1_features"), lk_arg_int64(args, "in2_features"),
                                 lk_arg_int64(args, "out_features"), .no_bias = !lk_arg_bool(args, "bias")),
                     out);
}

static const char bag_modes[] = "mean|sum|max"; /* in lk_bag_mode's order */

static lk_status build_embedding_bag(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    double padding =
        lk_arg_given(args, "padding_idx") ? lki_number_meant(lk_arg_int(args, "padding_idx")) : 0;
    return lki_built(
        lk_embedding_bag(lk_arg_int64(args, "num_embeddings"), lk_arg_int64(args, "embedding_dim"),
                         .mode = (lk_bag_mode)lki_choice_index(bag_modes, lk_arg_string(args, "mode")),
                         .padding_idx = padding,
                         .scale_grad_by_freq = lk_arg_bool(args, "scale_grad_by_freq"),
                         .include_last_offset = lk_arg_bool(args, "include_last_offset")),
        out);
}

#define INPLACE LKI_NO_EFFECT("inplace", "false", "the plan decides what can be done in place")
#define KERNEL  LKI_INTS("kernel_size", LKI_REQUIRED, "the size of the window: one number, or one per axis")
#define WINDOW                                                                                               \
    KERNEL, LKI_INTS("dilation", "1", "the distance of neighbours in a patch"),                              \
        LKI_INTS("padding", "0", "zeros on both sides"),                                                     \
        LKI_INTS("stride", "1", "the distance of neighbouring patches")

static const lk_parameter unfold_parameters[] = {WINDOW, {0}};
static const lk_parameter fold_parameters[] = {
    LKI_INTS("output_size", LKI_REQUIRED, "height and width of the pictures"), WINDOW, {0}};
static const lk_parameter channel_shuffle_parameters[] = {
    LKI_INT64("groups", LKI_REQUIRED, "how many groups of channels take turns"), {0}};
static const lk_parameter response_norm_parameters[] = {
    LKI_INT64("size", LKI_REQUIRED, "how many neighbouring channels count"),
    LKI_FLOAT("alpha", "1e-4", "the factor of their mean square"),
    LKI_FLOAT("beta", "0.75", "the power of the divisor"),
    LKI_FLOAT("k", "1.0", "added to the divisor before its power"),
    {0},
};
static const lk_parameter lp_pool_parameters[] = {
    LKI_FLOAT("norm_type", LKI_REQUIRED, "the power p"),
    KERNEL,
    LKI_INTS("stride", LKI_OPTIONAL, "the step of the window; the window itself where left out"),
    LKI_BOOL("ceil_mode", "false", "round the output's size up"),
    {0},
};
static const lk_parameter alpha_dropout_parameters[] = {
    LKI_FLOAT("p", "0.5", "how many are dropped"), INPLACE, {0}};
static const lk_parameter rrelu_parameters[] = {
    LKI_FLOAT("lower", "0.125", "the smallest slope below zero"),
    LKI_FLOAT("upper", "0.3333333333333333", "the largest one"),
    INPLACE,
    {0},
};
static const lk_parameter upsampling_parameters[] = {
    LKI_INTS("size", LKI_OPTIONAL, "the size of the output"),
    LKI_FLOATS("scale_factor", LKI_OPTIONAL, "or how many times the input's"),
    {0},
};
static const lk_parameter cosine_similarity_parameters[] = {
    LKI_INT("dim", "1", "the axis of the vectors"), LKI_FLOAT("eps", "1e-8", "the smallest length"), {0}};
static const lk_parameter pairwise_distance_parameters[] = {
    LKI_FLOAT("p", "2.0", "the norm"),
    LKI_FLOAT("eps", "1e-6", "added to the differences"),
    LKI_BOOL("keepdim", "false", "keep the last axis, with 1 place"),
    {0},
};
static const lk_parameter bilinear_parameters[] = {
    LKI_INT64("in1_features", LKI_REQUIRED, "features of the first input"),
    LKI_INT64("in2_features", LKI_REQUIRED, "features of the second input"),
    LKI_INT64("out_features", LKI_REQUIRED, "features of the output"),
    LKI_BOOL("bias", "true", "add a learned number to each feature"),
    {0},
};
static const lk_parameter embedding_bag_parameters[] = {
    LKI_INT64("num_embeddings", LKI_REQUIRED, "how many vectors there are"),
    LKI_INT64("embedding_dim", LKI_REQUIRED, "the size of a vector"),
    LKI_REFUSED("max_norm", NULL, "leave it out: no forward pass changes weights"),
    LKI_REFUSED("norm_type", "2", "leave it out: it belongs to max_norm"),
    LKI_BOOL("scale_grad_by_freq", "false", "divide a vector's gradient by how often the batch has it"),
    LKI_CHOICE("mode", "mean", bag_modes, "how the vectors of a bag become one"),
    LKI_NO_EFFECT("sparse", "false", "gradients are dense"),
    LKI_BOOL("include_last_offset", "false", "the last offset is the end of the last bag"),
    LKI_INT("padding_idx", LKI_OPTIONAL, "the vector that does not count"),
    {0},
};

#define MODULE(name_, help_)                                                                                 \
    .name = name_, .aliases = "torch.nn." name_, .kind = LK_KIND_MODULE, .help = help_
#define WITH(name_, table_, function_, help_)                                                                \
    {                                                                                                        \
        MODULE(name_, help_), .parameters = table_##_parameters, .build = build_##function_                  \
    }
#define LP_POOL(axes_, what_)                                                                                \
    {                                                                                                        \
        MODULE("LPPool" #axes_ "d", "The p-norm of windows over " what_ "."),                                \
            .parameters = lp_pool_parameters, .build = build_lp_pool, .context = &(const lp_pool)            \
        {                                                                                                    \
            axes_, lk_lp_pool##axes_##d_with                                                                 \
        }                                                                                                    \
    }

const lk_component lki_rest_module_components[] = {
    WITH("Unfold", unfold, patches, "Patches as columns: (N, C, H, W) to (N, C k k, L)."),
    WITH("Fold", fold, patches, "Columns added up to pictures: (N, C k k, L) to (N, C, H, W)."),
    WITH("ChannelShuffle", channel_shuffle, channel_shuffle, "Channels of several groups take turns."),
    {MODULE("Softmax2d", "Softmax over the channels of each place."), .build = build_softmax2d},
    WITH("LocalResponseNorm", response_norm, response_norm, "Divides by what neighbouring channels have."),
    LP_POOL(1, "sequences"),
    LP_POOL(2, "pictures"),
    WITH("AlphaDropout", alpha_dropout, alpha_dropout, "Dropout that keeps what SELU keeps."),
    WITH("FeatureAlphaDropout", alpha_dropout, alpha_dropout, "AlphaDropout of whole channels."),
    WITH("RReLU", rrelu, rrelu, "x above zero, a random slope below."),
    WITH("UpsamplingNearest2d", upsampling, upsampling, "Upsample of pictures by the nearest pixel."),
    WITH("UpsamplingBilinear2d", upsampling, upsampling, "Upsample of pictures that keeps the corners."),
    WITH("CosineSimilarity", cosine_similarity, cosine_similarity, "The cosine of a node's two inputs."),
    WITH("PairwiseDistance", pairwise_distance, pairwise_distance, "The distance of a node's two inputs."),
    WITH("Bilinear", bilinear, bilinear, "A learned bilinear form of a node's two inputs."),
    WITH("EmbeddingBag", embedding_bag, embedding_bag,
         "Learned vectors of bags of indices, each bag as one: (N, n), or a node's input and offsets."),
    {0},
};
