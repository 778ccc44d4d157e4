/* catalyst.contrib.losses. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/contrib.h>

#include <string.h>

static lk_reduction reduction_of(lk_args *args)
{
    return (lk_reduction)lki_choice_index("mean|sum|none", lk_arg_string(args, "reduction"));
}

static double meant(lk_args *args, const char *name)
{
    return lki_number_meant(lk_arg_float(args, name));
}

/* ---- Regions ---- */

typedef lk_criterion *(*region_function)(const lk_region_loss_options *options);
typedef struct region_kind {
    region_function create;
    bool has_alpha, has_gamma;
} region_kind;

static lk_status build_region(const lk_component *self, lk_args *args, void **out)
{
    const region_kind *kind = self->context;
    double weights[256];
    int count = lk_arg_count(args, "weights");
    lk_region_loss_options options = {LK_SIZE(lk_region_loss_options),
                                      .class_dim = lki_number_meant(lk_arg_int(args, "class_dim")),
                                      .eps = meant(args, "eps"), .weights = weights, .weight_count = count};
    if (count > 256) return lki_fail(LK_ERR_CONFIG, "weights: at most 256 numbers, found %d", count);
    for (int i = 0; i < count; i++) weights[i] = lk_arg_float_at(args, "weights", i);
    options.mode = (lk_region_mode)lki_choice_index("macro|micro|weighted", lk_arg_string(args, "mode"));
    if (kind->has_alpha) options.alpha = meant(args, "alpha");
    if (kind->has_alpha && lk_arg_given(args, "beta")) options.beta = meant(args, "beta");
    if (kind->has_gamma && lk_arg_given(args, "gamma")) options.gamma = meant(args, "gamma");
    return lki_built(kind->create(&options), out);
}

#define REGION_REST                                                                                          \
    LKI_INT("class_dim", "1", "the axis of the classes"),                                                    \
        LKI_CHOICE("mode", "macro", "macro|micro|weighted", "how the scores of the classes become one"),     \
        LKI_FLOATS("weights", LKI_OPTIONAL, "of the classes; for mode weighted"),                            \
        LKI_FLOAT("eps", "1e-7", "added to the denominator")
#define ALPHA LKI_FLOAT("alpha", LKI_REQUIRED, "the weight of false negatives, between 0 and 1")
#define BETA  LKI_FLOAT("beta", LKI_OPTIONAL, "the weight of false positives; 1 - alpha")

static const lk_parameter region_parameters[] = {REGION_REST, {0}};
static const lk_parameter trevsky_parameters[] = {ALPHA, BETA, REGION_REST, {0}};
static const lk_parameter focal_trevsky_parameters[] = {
    ALPHA,
    BETA,
    LKI_FLOAT("gamma", LKI_OPTIONAL, "the power of each sample's loss; 4 / 3"),
    REGION_REST,
    {0}};

/* ---- Focal and Lovasz ---- */

typedef struct focal_kind {
    lk_criterion *(*create)(const lk_focal_loss_options *options);
} focal_kind;

static lk_status build_focal(const lk_component *self, lk_args *args, void **out)
{
    const focal_kind *kind = self->context;
    lk_focal_loss_options options = {LK_SIZE(lk_focal_loss_options),
                                     .has_ignore = lk_arg_given(args, "ignore"),
                                     .reduced = lk_arg_bool(args, "reduced"), .gamma = meant(args, "gamma"),
                                     .reduction = reduction_of(args)};
    if (options.has_ignore) options.ignore = lk_arg_int(args, "ignore");
    if (lk_arg_given(args, "alpha")) options.alpha = meant(args, "alpha");
    if (lk_arg_given(args, "threshold")) options.threshold = meant(args, "threshold");
    return lki_built(kind->create(&options), out);
}

static const lk_parameter focal_parameters[] = {
    LKI_INT("ignore", LKI_OPTIONAL, "the target that does not count"),
    LKI_BOOL("reduced", "false", "the weight is 1 below the threshold"),
    LKI_FLOAT("gamma", "2.0", "how little samples count that are right"),
    LKI_FLOAT("alpha", LKI_OPTIONAL, "the weight of positives; 0.25. Not of the reduced loss"),
    LKI_FLOAT("threshold", LKI_OPTIONAL, "of the reduced loss; 0.5"),
    LKI_CHOICE("reduction", "mean", "mean|sum|none", "how the losses of a batch become one"),
    {0},
};

typedef struct lovasz_kind {
    lk_criterion *(*create)(const lk_lovasz_loss_options *options);
} lovasz_kind;

static lk_status build_lovasz(const lk_component *self, lk_args *args, void **out)
{
    const lovasz_kind *kind = self->context;
    lk_lovasz_loss_options options = {LK_SIZE(lk_lovasz_loss_options),
                                      .per_image = lk_arg_bool(args, "per_image"),
                                      .has_ignore = lk_arg_given(args, "ignore")};
    if (options.has_ignore) options.ignore = lk_arg_int(args, "ignore");
    return lki_built(kind->create(&options), out);
}

static const lk_parameter lovasz_parameters[] = {
    LKI_BOOL("per_image", "false", "the mean over the samples, each by itself"),
    LKI_INT("ignore", LKI_OPTIONAL, "the target that does not count"),
    {0},
};

/* ---- Embeddings ---- */

typedef struct contrastive_kind {
    lk_criterion *(*create)(const lk_contrastive_loss_options *options);
    const char *numbers; /* those that it has, with blanks around each */
} contrastive_kind;

static bool has(const contrastive_kind *kind, const char *name)
{
    const char *found = strstr(kind->numbers, name);
    return found && found[-1] == ' ' && found[strlen(name)] == ' ';
}

static lk_status build_contrastive(const lk_component *self, lk_args *args, void **out)
{
    const contrastive_kind *kind = self->context;
    lk_contrastive_loss_options options = {LK_SIZE(lk_contrastive_loss_options)};
    if (has(kind, "tau")) options.tau = meant(args, "tau");
    if (has(kind, "margin")) options.margin = meant(args, "margin");
    if (has(kind, "gamma")) options.gamma = meant(args, "gamma");
    if (has(kind, "eps")) options.eps = meant(args, "eps");
    if (has(kind, "offdiag_lambda")) options.offdiag_lambda = meant(args, "offdiag_lambda");
    if (has(kind, "pos_aggregation"))
        options.outside = !strcmp(lk_arg_string(args, "pos_aggregation"), "out");
    if (has(kind, "reduction")) options.reduction = reduction_of(args);
    return lki_built(kind->create(&options), out);
}

static lk_status build_margin(const lk_component *self, lk_args *args, void **out)
{
    int64_t skipped[64];
    int count = lk_arg_count(args, "skip_labels");
    (void)self;
    if (count > 64) return lki_fail(LK_ERR_CONFIG, "skip_labels: at most 64 classes, found %d", count);
    for (int i = 0; i < count; i++) skipped[i] = lk_arg_int_at(args, "skip_labels", i);
    return lki_built(lk_embedding_margin_loss(.alpha = meant(args, "alpha"), .beta = meant(args, "beta"),
                                              .skip_labels = skipped, .skip_label_count = count),
                     out);
}

#define TAU       LKI_FLOAT("tau", LKI_REQUIRED, "the temperature")
#define REDUCTION LKI_CHOICE("reduction", "mean", "mean|sum|none", "how the losses of a batch become one")
static const lk_parameter nt_xent_parameters[] = {TAU, REDUCTION, {0}};
static const lk_parameter supervised_parameters[] = {
    TAU,
    REDUCTION,
    LKI_CHOICE("pos_aggregation", "in", "in|out", "the mean over positives within the logarithm, or outside"),
    {0}};
static const lk_parameter barlow_parameters[] = {
    LKI_FLOAT("offdiag_lambda", "1.0", "the weight of what is not on the diagonal"),
    LKI_FLOAT("eps", "1e-12", "added to variances"),
    {0}};
static const lk_parameter circle_parameters[] = {
    LKI_FLOAT("margin", LKI_REQUIRED, "the relaxation"), LKI_FLOAT("gamma", LKI_REQUIRED, "the scale"), {0}};
static const lk_parameter distance_parameters[] = {
    LKI_FLOAT("margin", "1.0", "how far apart pairs of 1 must be"), REDUCTION, {0}};
static const lk_parameter pairwise_parameters[] = {
    LKI_NO_EFFECT("margin", "1.0", "this loss has no margin, in Catalyst neither"), REDUCTION, {0}};
static const lk_parameter triplet_pairwise_parameters[] = {
    LKI_FLOAT("margin", "0.3", "how much nearer the right one must be"), REDUCTION, {0}};
static const lk_parameter margin_parameters[] = {
    LKI_FLOAT("alpha", "0.2", "the margin"),
    LKI_FLOAT("beta", "1.0", "the distance between near and far"),
    LKI_INTS("skip_labels", "[-1]", "pairs of two of these classes do not count"),
    {0}};

/* ---- Recommendations ---- */

typedef struct plain_kind {
    lk_criterion *(*create)(void);
} plain_kind;

static lk_status build_plain(const lk_component *self, lk_args *args, void **out)
{
    (void)args;
    return lki_built(((const plain_kind *)self->context)->create(), out);
}

static lk_status build_bpr(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_bpr_loss(.gamma = meant(args, "gamma")), out);
}

static lk_status build_warp(const lk_component *self, lk_args *args, void **out)
{
    lk_warp_loss_options options = {LK_SIZE(lk_warp_loss_options)};
    (void)self;
    if (lk_arg_given(args, "max_num_trials")) {
        options.max_num_trials = lk_arg_int(args, "max_num_trials");
        if (options.max_num_trials < 1)
            return lki_fail(LK_ERR_CONFIG, "max_num_trials: expected at least 1, found %lld",
                            (long long)options.max_num_trials);
    }
    return lki_built(lk_warp_loss_with(&options), out);
}

static const lk_parameter bpr_parameters[] = {LKI_FLOAT("gamma", "1e-10", "added before the logarithm"), {0}};
static const lk_parameter warp_parameters[] = {
    LKI_INT("max_num_trials", LKI_OPTIONAL, "negatives that are tried; all of them"), {0}};

/* ---- Regression and entropies ---- */

static lk_status build_huber_v0(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(
        lk_huber_loss_v0(.clip_delta = meant(args, "clip_delta"), .reduction = reduction_of(args)), out);
}

static lk_status build_quantile(const lk_component *self, lk_args *args, void **out)
{
    int atoms = lk_arg_int(args, "num_atoms");
    (void)self;
    if (atoms < 1) return lki_fail(LK_ERR_CONFIG, "num_atoms: expected at least 1, found %d", atoms);
    return lki_built(lk_quantile_regression_loss(.num_atoms = atoms, .clip_delta = meant(args, "clip_delta")),
                     out);
}

static lk_status build_wing(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_wing_loss(.width = meant(args, "width"), .curvature = meant(args, "curvature"),
                                  .reduction = reduction_of(args)),
                     out);
}

static lk_status build_naive(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(lk_naive_cross_entropy_loss(.no_size_average = !lk_arg_bool(args, "size_average")), out);
}

static lk_status build_symmetric(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    return lki_built(
        lk_symmetric_cross_entropy_loss(.alpha = meant(args, "alpha"), .beta = meant(args, "beta")), out);
}

#define CLIP LKI_FLOAT("clip_delta", "1.0", "quadratic below, linear above")
static const lk_parameter huber_v0_parameters[] = {CLIP, REDUCTION, {0}};
static const lk_parameter quantile_parameters[] = {
    LKI_INT("num_atoms", "51", "numbers per sample"), CLIP, {0}};
static const lk_parameter wing_parameters[] = {
    LKI_FLOAT("width", "5", "the width of the part that is a logarithm"),
    LKI_FLOAT("curvature", "0.5", "how flat that part is"),
    REDUCTION,
    {0}};
static const lk_parameter naive_parameters[] = {
    LKI_BOOL("size_average", "true", "the mean over the samples, not the sum"), {0}};
static const lk_parameter symmetric_parameters[] = {
    LKI_FLOAT("alpha", "1.0", "the weight of the cross-entropy"),
    LKI_FLOAT("beta", "1.0", "the weight of the reverse one"),
    {0}};

#define LOSS(name_, help_, table_, build_, ...)                                                              \
    {                                                                                                        \
        .name = name_, .aliases = "catalyst.contrib.losses." name_, .kind = LK_KIND_CRITERION,               \
        .help = help_, .parameters = table_, .build = build_, .context = __VA_ARGS__                         \
    }
#define REGION(name_, help_, table_, ...)                                                                    \
    LOSS(name_, help_, table_, build_region, &(const region_kind){__VA_ARGS__})
#define FOCAL(name_, help_, create_)                                                                         \
    LOSS(name_, help_, focal_parameters, build_focal, &(const focal_kind){create_})
#define LOVASZ(name_, help_, create_)                                                                        \
    LOSS(name_, help_, lovasz_parameters, build_lovasz, &(const lovasz_kind){create_})
#define CONTRASTIVE(name_, help_, table_, ...)                                                               \
    LOSS(name_, help_, table_, build_contrastive, &(const contrastive_kind){__VA_ARGS__})
#define PLAIN(name_, help_, create_) LOSS(name_, help_, NULL, build_plain, &(const plain_kind){create_})

const lk_component lki_contrib_loss_components[] = {
    REGION("DiceLoss", "1 - the Dice score of probabilities.", region_parameters, lk_dice_loss_with, false,
           false),
    REGION("SmoothingDiceLoss", "1 - the Dice score with squares in the denominator.", region_parameters,
           lk_smoothing_dice_loss_with, false, false),
    REGION("IoULoss", "1 - the intersection over union of probabilities.", region_parameters,
           lk_iou_loss_with, false, false),
    REGION("TrevskyLoss", "1 - the Trevsky score of probabilities.", trevsky_parameters, lk_trevsky_loss_with,
           true, false),
    REGION("FocalTrevskyLoss", "The mean of (1 - Trevsky)^gamma of each sample.", focal_trevsky_parameters,
           lk_focal_trevsky_loss_with, true, true),
    FOCAL("FocalLossBinary", "Logits against 0 and 1, of which those that are right count less.",
          lk_focal_loss_binary_with),
    FOCAL("FocalLossMultiClass", "Logits against classes, each against the others.",
          lk_focal_loss_multi_class_with),
    LOVASZ("LovaszLossBinary", "The Jaccard loss of logits against 0 and 1, made continuous.",
           lk_lovasz_loss_binary_with),
    LOVASZ("LovaszLossMultiClass", "The Jaccard loss of probabilities against classes, made continuous.",
           lk_lovasz_loss_multi_class_with),
    LOVASZ("LovaszLossMultiLabel", "The mean of LovaszLossBinary over the labels.",
           lk_lovasz_loss_multi_label_with),
    CONTRASTIVE("NTXentLoss", "Two views of each sample: near each other, far from all others.",
                nt_xent_parameters, lk_nt_xent_loss_with, " tau reduction "),
    CONTRASTIVE("SupervisedContrastiveLoss", "Samples of one class near each other, far from all others.",
                supervised_parameters, lk_supervised_contrastive_loss_with,
                " tau reduction pos_aggregation "),
    CONTRASTIVE("BarlowTwinsLoss", "The cross-correlation of two views, which shall be the identity.",
                barlow_parameters, lk_barlow_twins_loss_with, " offdiag_lambda eps "),
    CONTRASTIVE("CircleLoss", "Pairs of one class above, others below a margin, each with a weight.",
                circle_parameters, lk_circle_loss_with, " margin gamma "),
    CONTRASTIVE("ContrastiveDistanceLoss", "Distances against 0 (near) and 1 (apart by a margin).",
                distance_parameters, lk_contrastive_distance_loss_with, " margin reduction "),
    CONTRASTIVE("ContrastivePairwiseEmbeddingLoss",
                "Each predicted row nearest to the true row of its place.", pairwise_parameters,
                lk_contrastive_pairwise_embedding_loss_with, " reduction "),
    CONTRASTIVE("TripletPairwiseEmbeddingLoss", "The same by a margin over the nearest wrong row.",
                triplet_pairwise_parameters, lk_triplet_pairwise_embedding_loss_with, " margin reduction "),
    LOSS("MarginLoss", "Distances of embeddings below or above a border, by a margin.", margin_parameters,
         build_margin, NULL),
    LOSS("BPRLoss", "Bayesian personalised ranking of positive and negative scores.", bpr_parameters,
         build_bpr, NULL),
    PLAIN("LogisticLoss", "1 - sigmoid(positive) + sigmoid(negative).", lk_logistic_loss),
    PLAIN("HingeLoss", "max(0, 1 - positive + negative).", lk_hinge_loss),
    PLAIN("AdaptiveHingeLoss", "HingeLoss with the highest of several negatives.", lk_adaptive_hinge_loss),
    LOSS("WARPLoss", "The weighted approximate-rank pairwise loss.", warp_parameters, build_warp, NULL),
    LOSS("HuberLossV0", "Squared near zero, absolute beyond; the mean along axis 1 first.",
         huber_v0_parameters, build_huber_v0, NULL),
    LOSS("QuantileRegressionLoss", "Predicted quantiles against true ones.", quantile_parameters,
         build_quantile, NULL),
    LOSS("WingLoss", "A logarithm near zero, absolute beyond.", wing_parameters, build_wing, NULL),
    PLAIN("RSquareLoss", "1 - MSE / variance of the targets.", lk_r_square_loss),
    LOSS("NaiveCrossEntropyLoss", "Logits against probabilities.", naive_parameters, build_naive, NULL),
    LOSS("SymmetricCrossEntropyLoss", "Probabilities against classes, and the other way round.",
         symmetric_parameters, build_symmetric, NULL),
    PLAIN("MeanOutputLoss", "The mean of the prediction.", lk_mean_output_loss),
    {0},
};
