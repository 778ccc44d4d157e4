/* catalyst.contrib: losses, layers, models and datasets. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/build.h"

#include <lockstep/contrib.h>

#include <string.h>

/* ---- Triplets ---- */

/* A sampler of triplets has its options, which the loss copies. */
static lk_status build_triplets(const lk_component *self, lk_args *args, void **out)
{
    lk_triplet_margin_loss_with_sampler_options *own = LKI_NEW(lk_triplet_margin_loss_with_sampler_options);
    if (!own) return LK_ERR_NOMEM;
    own->sampler = *(const lk_triplets *)self->context;
    if (own->sampler == LK_TRIPLETS_HARD) own->norm_required = lk_arg_bool(args, "norm_required");
    *out = own;
    return LK_OK;
}

static lk_status build_triplet_loss(const lk_component *self, lk_args *args, void **out)
{
    const lki_object *sampler = lki_object_argument(args->object, "sampler_inbatch", 0);
    (void)self;
    if (sampler->component->build != build_triplets)
        return lki_fail(LK_ERR_CONFIG,
                        "sampler_inbatch: expected AllTripletsSampler, HardTripletsSampler or "
                        "HardClusterSampler, found %s",
                        sampler->called);
    lk_triplet_margin_loss_with_sampler_options options =
        *(const lk_triplet_margin_loss_with_sampler_options *)sampler->pointer;
    options.struct_size = sizeof options;
    options.margin = lki_number_meant(lk_arg_float(args, "margin"));
    return lki_built(lk_triplet_margin_loss_with_sampler_with(&options), out);
}

/* ---- Layers and models ---- */

static lk_status build_normalize(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_normalize_layer(.p = lki_number_meant(lk_arg_float(args, "p")),
                                        .dim = lki_number_meant(lk_arg_int(args, "dim")),
                                        .eps = lki_number_meant(lk_arg_float(args, "eps"))),
                     out);
}

static lk_status build_simple_net(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_mnist_simple_net(lk_arg_int64(args, "out_features"),
                                         .no_normalize = !lk_arg_bool(args, "normalize")),
                     out);
}

static lk_status build_batch_norm_net(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_mnist_batch_norm_net(lk_arg_int64(args, "out_features")), out);
}

/* ---- Parts of MNIST ---- */

/* As with Catalyst's MNIST: pixels are scaled unless transforms are given. */
static lk_mnist_part_options part_options(lk_args *args)
{
    return (lk_mnist_part_options){LK_SIZE(lk_mnist_part_options), .download = lk_arg_bool(args, "download"),
                                   .catalyst_scaling = lk_arg_count(args, "transform") == 0};
}

static lk_status build_ml(const lk_component *self, lk_args *args, void **out)
{
    lk_mnist_part_options options = part_options(args);
    (void)self;
    return lki_built(
        lki_transform_dataset(args, lk_mnist_ml_dataset_with(lk_arg_string(args, "root"), &options)), out);
}

static lk_status build_qg(const lk_component *self, lk_args *args, void **out)
{
    lk_mnist_part_options options = part_options(args);
    (void)self;
    options.gallery_fraq = lki_number_meant(lk_arg_float(args, "gallery_fraq"));
    return lki_built(
        lki_transform_dataset(args, lk_mnist_qg_dataset_with(lk_arg_string(args, "root"), &options)), out);
}

static lk_status build_partial(const lk_component *self, lk_args *args, void **out)
{
    lk_mnist_part_options options = part_options(args);
    (void)self;
    options.test = !lk_arg_bool(args, "train");
    options.num_samples = lk_arg_int64(args, "num_samples");
    options.class_count = lk_arg_count(args, "classes");
    if (options.num_samples < 1)
        return lki_fail(LK_ERR_CONFIG, "num_samples: expected at least 1, found %lld",
                        (long long)options.num_samples);
    if (options.class_count > 10)
        return lki_fail(LK_ERR_CONFIG, "classes: at most 10, found %d", options.class_count);
    for (int i = 0; i < options.class_count; i++) options.classes[i] = lk_arg_int_at(args, "classes", i);
    return lki_built(
        lki_transform_dataset(args, lk_partial_mnist_with(lk_arg_string(args, "root"), &options)), out);
}

#define MNIST_ROOT LKI_STRING("root", LKI_REQUIRED, "the folder of the IDX files, or one that has MNIST/raw")
#define MNIST_REST                                                                                           \
    LKI_BOOL("download", "true", "fetch what is missing"),                                                   \
        LKI_OBJECTS("transform", TRANSFORM, LKI_OPTIONAL,                                                    \
                    "what is done to each sample, in order, instead of Catalyst's scaling")
#define OUT_FEATURES LKI_INT("out_features", LKI_REQUIRED, "numbers per picture")

static const lk_parameter hard_parameters[] = {
    LKI_BOOL("norm_required", "false", "look for triplets among the normalised embeddings"), {0}};
static const lk_parameter all_parameters[] = {
    LKI_REFUSED("max_output_triplets", NULL, "leave it out: all triplets of a batch count"), {0}};
static const lk_parameter triplet_loss_parameters[] = {
    LKI_FLOAT("margin", LKI_REQUIRED, "how much nearer a positive shall be than a negative"),
    LKI_OBJECT("sampler_inbatch", FUNCTION, LKI_REQUIRED, "which triplets of a batch count"),
    {0},
};
static const lk_parameter normalize_parameters[] = {LKI_FLOAT("p", "2", "which norm"),
                                                    LKI_INT("dim", "1", "along which axis"),
                                                    LKI_FLOAT("eps", "1e-12", "the norm is at least this"),
                                                    {0}};
static const lk_parameter simple_net_parameters[] = {
    OUT_FEATURES, LKI_BOOL("normalize", "true", "outputs of length 1"), {0}};
static const lk_parameter batch_norm_net_parameters[] = {OUT_FEATURES, {0}};
static const lk_parameter ml_parameters[] = {
    MNIST_ROOT,
    MNIST_REST,
    LKI_REFUSED("train", "true", "leave it out: for testing there is MnistQGDataset"),
    {0},
};
static const lk_parameter qg_parameters[] = {
    LKI_FLOAT("gallery_fraq", "0.2", "the share of the samples, the last ones, that are the gallery"),
    MNIST_ROOT,
    MNIST_REST,
    {0}};
static const lk_parameter partial_parameters[] = {
    LKI_INT64("num_samples", "100", "of each class"),
    LKI_INTS("classes", "[0, 1, 2]", "which digits"),
    MNIST_ROOT,
    LKI_BOOL("train", "true", "of the 60,000 pictures for training"),
    MNIST_REST,
    {0},
};

#define TRIPLETS(name_, help_, parameters_, kind_)                                                           \
    {                                                                                                        \
        .name = name_,                                                                                       \
        .aliases = "catalyst.contrib.data." name_ " catalyst.contrib.data.sampler_inbatch." name_,           \
        .kind = LK_KIND_FUNCTION, .help = help_, .parameters = parameters_, .build = build_triplets,         \
        .free = lki_free, .context = &(const lk_triplets)                                                    \
        {                                                                                                    \
            kind_                                                                                            \
        }                                                                                                    \
    }
#define CONTRIB(folder_, name_, kind_, help_, parameters_, build_)                                           \
    {                                                                                                        \
        .name = name_, .aliases = "catalyst.contrib." folder_ "." name_, .kind = LK_KIND_##kind_,            \
        .help = help_, .parameters = parameters_, .build = build_                                            \
    }

const lk_component lki_contrib_components[] = {
    CONTRIB("losses", "TripletMarginLossWithSampler", CRITERION,
            "The triplet margin loss of triplets that are found in each batch.", triplet_loss_parameters,
            build_triplet_loss),
    TRIPLETS("AllTripletsSampler", "Each pair of one class with each sample of another.", all_parameters,
             LK_TRIPLETS_ALL),
    TRIPLETS("HardTripletsSampler",
             "Each sample with the farthest of its class and the nearest of the others.", hard_parameters,
             LK_TRIPLETS_HARD),
    TRIPLETS("HardClusterSampler",
             "The mean of each class with its farthest sample and the nearest mean of another.", NULL,
             LK_TRIPLETS_HARD_CLUSTER),
    {"catalyst.contrib.layers.Normalize", "catalyst.contrib.layers.common.Normalize", LK_KIND_MODULE,
     "x / max(norm(x), eps) along one axis.", .parameters = normalize_parameters, .build = build_normalize},
    CONTRIB("models", "MnistSimpleNet", MODULE, "A small convolutional network for pictures (1, 28, 28).",
            simple_net_parameters, build_simple_net),
    CONTRIB("models", "MnistBatchNormNet", MODULE, "The same with batch norms.", batch_norm_net_parameters,
            build_batch_norm_net),
    CONTRIB("datasets", "MnistMLDataset", DATASET, "The digits 0 to 4 of MNIST's training samples.",
            ml_parameters, build_ml),
    CONTRIB("datasets", "MnistQGDataset", DATASET,
            "The digits 5 to 9 of MNIST's test samples, as queries and gallery.", qg_parameters, build_qg),
    CONTRIB("datasets", "PartialMNIST", DATASET, "The first samples of some digits.", partial_parameters,
            build_partial),
    {0},
};
