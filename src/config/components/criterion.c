/* torch.nn's losses. */
#include "config/components/components.h"

#include "base/arguments.h"
#include "base/status.h"

#include <lockstep/nn.h>
#include <lockstep/tensor.h>

#include <string.h>

static const char reductions[] = "mean|sum|none|batchmean"; /* in lk_reduction's order */

static lk_reduction reduction_of(lk_args *args)
{
    return (lk_reduction)lki_choice_index(reductions, lk_arg_string(args, "reduction"));
}

static lk_status build_cross_entropy(const lk_component *self, lk_args *args, void **out)
{
    lk_cross_entropy_loss_options options = {
        LK_SIZE(lk_cross_entropy_loss_options),
        .label_smoothing = lk_arg_float(args, "label_smoothing"),
        .ignore_index = lki_number_meant(lk_arg_int(args, "ignore_index")),
    };
    lk_tensor *weight = NULL;
    (void)self;
    options.reduction = reduction_of(args);
    LKI_TRY(lki_arg_tensor(args, "weight", &weight));
    options.weight = weight;
    lk_criterion *criterion = lk_cross_entropy_loss_with(&options);
    lk_tensor_free(weight);
    return lki_built(criterion, out);
}

static lk_status build_nll(const lk_component *self, lk_args *args, void **out)
{
    lk_nll_loss_options options = {LK_SIZE(lk_nll_loss_options),
                                   .ignore_index = lki_number_meant(lk_arg_int(args, "ignore_index"))};
    lk_tensor *weight = NULL;
    (void)self;
    options.reduction = reduction_of(args);
    LKI_TRY(lki_arg_tensor(args, "weight", &weight));
    options.weight = weight;
    lk_criterion *criterion = lk_nll_loss_with(&options);
    lk_tensor_free(weight);
    return lki_built(criterion, out);
}

static lk_status build_bce(const lk_component *self, lk_args *args, void **out)
{
    bool has_logits = !strcmp(self->name, "BCEWithLogitsLoss");
    lk_tensor *weight = NULL, *pos_weight = NULL;
    lk_criterion *criterion = NULL;
    lk_bce_options options = {LK_SIZE(lk_bce_options)};
    lk_status status;
    options.reduction = reduction_of(args);
    LKI_TRY_OUT(lki_arg_tensor(args, "weight", &weight));
    if (has_logits) LKI_TRY_OUT(lki_arg_tensor(args, "pos_weight", &pos_weight));
    options.weight = weight;
    options.pos_weight = pos_weight;
    criterion = has_logits ? lk_bce_with_logits_loss_with(&options) : lk_bce_loss_with(&options);
    status = lki_built(criterion, out);
out:
    lk_tensor_free(weight);
    lk_tensor_free(pos_weight);
    return status;
}

typedef struct regression {
    lk_criterion *(*create)(const lk_regression_options *options);
    const char *number; /* the one that it has: beta, delta or none */
} regression;

static lk_status build_regression(const lk_component *self, lk_args *args, void **out)
{
    const regression *kind = self->context;
    lk_regression_options options = {LK_SIZE(lk_regression_options)};
    options.reduction = reduction_of(args);
    if (kind->number) {
        double value = lk_arg_float(args, kind->number);
        value = lki_number_meant(value);
        *(!strcmp(kind->number, "beta") ? &options.beta : &options.delta) = value;
    }
    return lki_built(kind->create(&options), out);
}

static lk_status build_kl_div(const lk_component *self, lk_args *args, void **out)
{
    lk_kl_div_loss_options options = {LK_SIZE(lk_kl_div_loss_options),
                                      .log_target = lk_arg_bool(args, "log_target")};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_kl_div_loss_with(&options), out);
}

static lk_status build_margin(const lk_component *self, lk_args *args, void **out)
{
    bool has_margin = !strcmp(self->name, "HingeEmbeddingLoss");
    lk_margin_loss_options options = {LK_SIZE(lk_margin_loss_options)};
    options.reduction = reduction_of(args);
    if (!has_margin) return lki_built(lk_soft_margin_loss_with(&options), out);
    options.margin = lki_number_meant(lk_arg_float(args, "margin"));
    return lki_built(lk_hinge_embedding_loss_with(&options), out);
}

static lk_status build_poisson_nll(const lk_component *self, lk_args *args, void **out)
{
    lk_poisson_nll_loss_options options = {
        LK_SIZE(lk_poisson_nll_loss_options), .no_log_input = !lk_arg_bool(args, "log_input"),
        .full = lk_arg_bool(args, "full"), .eps = lki_number_meant(lk_arg_float(args, "eps"))};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_poisson_nll_loss_with(&options), out);
}

static lk_status build_multi_margin(const lk_component *self, lk_args *args, void **out)
{
    bool has_margin = !strcmp(self->name, "MultiMarginLoss");
    lk_multi_margin_loss_options options = {LK_SIZE(lk_multi_margin_loss_options)};
    lk_tensor *weight = NULL;
    options.reduction = reduction_of(args);
    if (has_margin) {
        options.p = lk_arg_int(args, "p");
        options.margin = lki_number_meant(lk_arg_float(args, "margin"));
        if (options.p < 1) return lki_fail(LK_ERR_CONFIG, "p: expected 1 or 2, found %d", options.p);
    }
    LKI_TRY(lki_arg_tensor(args, "weight", &weight));
    options.weight = weight;
    lk_criterion *criterion =
        has_margin ? lk_multi_margin_loss_with(&options) : lk_multi_label_soft_margin_loss_with(&options);
    lk_tensor_free(weight);
    return lki_built(criterion, out);
}

static lk_status build_triplet(const lk_component *self, lk_args *args, void **out)
{
    lk_triplet_margin_loss_options options = {
        LK_SIZE(lk_triplet_margin_loss_options), .margin = lki_number_meant(lk_arg_float(args, "margin")),
        .p = lki_number_meant(lk_arg_float(args, "p")), .eps = lki_number_meant(lk_arg_float(args, "eps")),
        .swap = lk_arg_bool(args, "swap")};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_triplet_margin_loss_with(&options), out);
}

static lk_status build_pair(const lk_component *self, lk_args *args, void **out)
{
    lk_pair_loss_options options = {LK_SIZE(lk_pair_loss_options),
                                    .margin = lki_number_meant(lk_arg_float(args, "margin"))};
    options.reduction = reduction_of(args);
    return lki_built(!strcmp(self->name, "CosineEmbeddingLoss") ? lk_cosine_embedding_loss_with(&options)
                                                                : lk_margin_ranking_loss_with(&options),
                     out);
}

static lk_status build_gaussian_nll(const lk_component *self, lk_args *args, void **out)
{
    lk_gaussian_nll_loss_options options = {LK_SIZE(lk_gaussian_nll_loss_options),
                                            .full = lk_arg_bool(args, "full"),
                                            .eps = lki_number_meant(lk_arg_float(args, "eps"))};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_gaussian_nll_loss_with(&options), out);
}

static lk_status build_ctc(const lk_component *self, lk_args *args, void **out)
{
    lk_ctc_loss_options options = {LK_SIZE(lk_ctc_loss_options), .blank = lk_arg_int64(args, "blank"),
                                   .zero_infinity = lk_arg_bool(args, "zero_infinity")};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_ctc_loss_with(&options), out);
}

static lk_status build_multi_label_margin(const lk_component *self, lk_args *args, void **out)
{
    lk_multi_label_margin_loss_options options = {LK_SIZE(lk_multi_label_margin_loss_options)};
    (void)self;
    options.reduction = reduction_of(args);
    return lki_built(lk_multi_label_margin_loss_with(&options), out);
}

/* In PyTorch's positional order, with the two that it keeps for the sake of old programs. */
#define SIZE_AVERAGE LKI_REFUSED("size_average", NULL, "write reduction: mean, sum or none")
#define REDUCE       LKI_REFUSED("reduce", NULL, "write reduction: mean, sum or none")
#define REDUCTION    LKI_CHOICE("reduction", "mean", "mean|sum|none", "how the losses of a batch become one")

static const lk_parameter cross_entropy_parameters[] = {
    LKI_TENSOR("weight", LKI_OPTIONAL, "a weight for each class"),
    SIZE_AVERAGE,
    LKI_INT("ignore_index", "-100", "the target that does not count"),
    REDUCE,
    REDUCTION,
    LKI_FLOAT("label_smoothing", "0.0", "how much of the target is spread over all classes"),
    {0},
};
static const lk_parameter nll_parameters[] = {
    LKI_TENSOR("weight", LKI_OPTIONAL, "a weight for each class"),
    SIZE_AVERAGE,
    LKI_INT("ignore_index", "-100", "the target that does not count"),
    REDUCE,
    REDUCTION,
    {0},
};
static const lk_parameter bce_parameters[] = {
    LKI_TENSOR("weight", LKI_OPTIONAL, "weights, broadcast to the prediction"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    {0}};
static const lk_parameter bce_with_logits_parameters[] = {
    LKI_TENSOR("weight", LKI_OPTIONAL, "weights, broadcast to the prediction"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    LKI_TENSOR("pos_weight", LKI_OPTIONAL, "weights of the positive targets"),
    {0},
};
static const lk_parameter plain_parameters[] = {SIZE_AVERAGE, REDUCE, REDUCTION, {0}};
static const lk_parameter smooth_l1_parameters[] = {
    SIZE_AVERAGE, REDUCE, REDUCTION, LKI_FLOAT("beta", "1.0", "quadratic below, linear above"), {0}};
static const lk_parameter huber_parameters[] = {
    REDUCTION, LKI_FLOAT("delta", "1.0", "quadratic below, linear above"), SIZE_AVERAGE, REDUCE, {0}};
static const lk_parameter kl_div_parameters[] = {
    SIZE_AVERAGE,
    REDUCE,
    LKI_CHOICE("reduction", "mean", "mean|sum|none|batchmean", "batchmean is the mathematical one"),
    LKI_BOOL("log_target", "false", "the targets are logarithms too"),
    {0},
};

static const lk_parameter hinge_parameters[] = {
    LKI_FLOAT("margin", "1.0", "how far apart samples of -1 must be"), SIZE_AVERAGE, REDUCE, REDUCTION, {0}};
static const lk_parameter poisson_nll_parameters[] = {
    LKI_BOOL("log_input", "true", "the prediction is the logarithm of the rate"),
    LKI_BOOL("full", "false", "add Stirling's approximation of log(target!)"),
    SIZE_AVERAGE,
    LKI_FLOAT("eps", "1e-8", "added to a rate before its logarithm"),
    REDUCE,
    REDUCTION,
    {0},
};
static const lk_parameter multi_label_parameters[] = {
    LKI_TENSOR("weight", LKI_OPTIONAL, "a weight for each class"), SIZE_AVERAGE, REDUCE, REDUCTION, {0}};
static const lk_parameter multi_margin_parameters[] = {
    LKI_INT("p", "1", "the power: 1 or 2"),
    LKI_FLOAT("margin", "1.0", "by how much the right class must win"),
    LKI_TENSOR("weight", LKI_OPTIONAL, "a weight for each class"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    {0},
};
static const lk_parameter triplet_parameters[] = {
    LKI_FLOAT("margin", "1.0", "how much nearer the positive shall be than the negative"),
    LKI_FLOAT("p", "2.0", "the norm that measures distances"),
    LKI_FLOAT("eps", "1e-6", "added to the differences"),
    LKI_BOOL("swap", "false", "the negative's distance to the positive counts if it is smaller"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    {0},
};
static const lk_parameter cosine_embedding_parameters[] = {
    LKI_FLOAT("margin", "0.0", "the cosine that embeddings of -1 may have"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    {0}};
static const lk_parameter margin_ranking_parameters[] = {
    LKI_FLOAT("margin", "0.0", "by how much the right one must be larger"),
    SIZE_AVERAGE,
    REDUCE,
    REDUCTION,
    {0}};
static const lk_parameter gaussian_nll_parameters[] = {
    LKI_BOOL("full", "false", "add the constant log(2 pi) / 2"),
    LKI_FLOAT("eps", "1e-6", "the smallest variance"),
    REDUCTION,
    {0},
};
static const lk_parameter ctc_parameters[] = {
    LKI_INT64("blank", "0", "the class that stands for nothing"),
    REDUCTION,
    LKI_BOOL("zero_infinity", "false", "a target that is too long for its input costs 0"),
    {0},
};

const lk_component lki_criterion_components[] = {
    {"CrossEntropyLoss", "torch.nn.CrossEntropyLoss", LK_KIND_CRITERION,
     "Logits against classes or probabilities.", .parameters = cross_entropy_parameters,
     .build = build_cross_entropy},
    {"NLLLoss", "torch.nn.NLLLoss", LK_KIND_CRITERION, "Log-probabilities against classes.",
     .parameters = nll_parameters, .build = build_nll},
    {"BCELoss", "torch.nn.BCELoss", LK_KIND_CRITERION, "Probabilities against 0 and 1.",
     .parameters = bce_parameters, .build = build_bce},
    {"BCEWithLogitsLoss", "torch.nn.BCEWithLogitsLoss", LK_KIND_CRITERION, "Logits against 0 and 1.",
     .parameters = bce_with_logits_parameters, .build = build_bce},
    {"MSELoss", "torch.nn.MSELoss", LK_KIND_CRITERION, "The squared difference.",
     .parameters = plain_parameters, .build = build_regression,
     .context = &(const regression){lk_mse_loss_with, NULL}},
    {"L1Loss", "torch.nn.L1Loss", LK_KIND_CRITERION, "The absolute difference.",
     .parameters = plain_parameters, .build = build_regression,
     .context = &(const regression){lk_l1_loss_with, NULL}},
    {"SmoothL1Loss", "torch.nn.SmoothL1Loss", LK_KIND_CRITERION, "Squared near zero, absolute beyond.",
     .parameters = smooth_l1_parameters, .build = build_regression,
     .context = &(const regression){lk_smooth_l1_loss_with, "beta"}},
    {"HuberLoss", "torch.nn.HuberLoss", LK_KIND_CRITERION,
     "Squared near zero, absolute beyond, scaled by delta.", .parameters = huber_parameters,
     .build = build_regression, .context = &(const regression){lk_huber_loss_with, "delta"}},
    {"KLDivLoss", "torch.nn.KLDivLoss", LK_KIND_CRITERION,
     "The Kullback-Leibler divergence of log-probabilities.", .parameters = kl_div_parameters,
     .build = build_kl_div},
    {"SoftMarginLoss", "torch.nn.SoftMarginLoss", LK_KIND_CRITERION, "The logistic loss against 1 and -1.",
     .parameters = plain_parameters, .build = build_margin},
    {"HingeEmbeddingLoss", "torch.nn.HingeEmbeddingLoss", LK_KIND_CRITERION,
     "Distances that should be small for 1 and large for -1.", .parameters = hinge_parameters,
     .build = build_margin},
    {"PoissonNLLLoss", "torch.nn.PoissonNLLLoss", LK_KIND_CRITERION, "Rates against counts.",
     .parameters = poisson_nll_parameters, .build = build_poisson_nll},
    {"MultiLabelSoftMarginLoss", "torch.nn.MultiLabelSoftMarginLoss", LK_KIND_CRITERION,
     "Logits against 0 and 1, averaged over the classes.", .parameters = multi_label_parameters,
     .build = build_multi_margin},
    {"MultiMarginLoss", "torch.nn.MultiMarginLoss", LK_KIND_CRITERION,
     "The right class must win against each other by a margin.", .parameters = multi_margin_parameters,
     .build = build_multi_margin},
    {"TripletMarginLoss", "torch.nn.TripletMarginLoss", LK_KIND_CRITERION,
     "Anchor, positive and negative: three values, named by the Criterion callback's keys.",
     .parameters = triplet_parameters, .build = build_triplet},
    {"CosineEmbeddingLoss", "torch.nn.CosineEmbeddingLoss", LK_KIND_CRITERION,
     "Two embeddings against 1 and -1: three values, named by the Criterion callback's keys.",
     .parameters = cosine_embedding_parameters, .build = build_pair},
    {"MarginRankingLoss", "torch.nn.MarginRankingLoss", LK_KIND_CRITERION,
     "Two scores against 1 and -1: three values, named by the Criterion callback's keys.",
     .parameters = margin_ranking_parameters, .build = build_pair},
    {"GaussianNLLLoss", "torch.nn.GaussianNLLLoss", LK_KIND_CRITERION,
     "Prediction, target and variance: three values, named by the Criterion callback's keys.",
     .parameters = gaussian_nll_parameters, .build = build_gaussian_nll},
    {"CTCLoss", "torch.nn.CTCLoss", LK_KIND_CRITERION,
     "Log-probabilities (T, N, C), targets and both lengths: four values, named by the Criterion callback's "
     "keys.",
     .parameters = ctc_parameters, .build = build_ctc},
    {"MultiLabelMarginLoss", "torch.nn.MultiLabelMarginLoss", LK_KIND_CRITERION,
     "Each class of a list, which ends with -1, must win against all others by 1.",
     .parameters = plain_parameters, .build = build_multi_label_margin},
    {0},
};
