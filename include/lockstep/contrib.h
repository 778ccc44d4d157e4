/* What Catalyst has under catalyst.contrib: losses, layers, models and datasets, with its names.
 *
 * Ownership and errors are as in nn.h and data.h: a constructor returns NULL on failure, and what
 * is handed to a runner, a loader or a container belongs to it. Threads: as there. */
#ifndef LOCKSTEP_CONTRIB_H
#define LOCKSTEP_CONTRIB_H

#include <lockstep/data.h>
#include <lockstep/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Losses of embeddings (samples, width) and classes (samples) ---- */

/* Which triplets (anchor, positive, negative) of a batch a triplet loss is made of. */
typedef enum lk_triplets {
    LK_TRIPLETS_ALL, /* each pair of one class, with each sample of another class */
    /* Each sample, with the farthest of its class and the nearest of the others. */
    LK_TRIPLETS_HARD,
    /* The mean of each class, with its farthest sample and the nearest mean of another class. */
    LK_TRIPLETS_HARD_CLUSTER,
} lk_triplets;

typedef struct lk_triplet_margin_loss_with_sampler_options {
    size_t struct_size;
    double margin; /* 1 */
    lk_triplets sampler;
    bool norm_required; /* LK_TRIPLETS_HARD looks for triplets among the normalised embeddings */
} lk_triplet_margin_loss_with_sampler_options;
/* The mean of max(0, d(a, p) - d(a, n) + margin), where d is Euclidean. Samples without a positive
 * or a negative are no anchors; without an anchor the loss is 0. */
#define lk_triplet_margin_loss_with_sampler(...)                                                             \
    LK_CALL0_(lk_triplet_margin_loss_with_sampler_with, lk_triplet_margin_loss_with_sampler_options,         \
              __VA_ARGS__)
lk_criterion *
lk_triplet_margin_loss_with_sampler_with(const lk_triplet_margin_loss_with_sampler_options *options);

/* How the scores of the classes become one. */
typedef enum lk_region_mode {
    LK_REGION_MACRO,    /* their mean */
    LK_REGION_MICRO,    /* all classes count as one */
    LK_REGION_WEIGHTED, /* their sum with `weights` */
} lk_region_mode;

typedef struct lk_region_loss_options {
    size_t struct_size;
    double class_dim; /* 1; a whole number, which may be negative */
    lk_region_mode mode;
    const double *weights; /* one number per class, copied */
    int weight_count;
    double eps;   /* 1e-7 */
    double alpha; /* Trevsky: required, between 0 and 1. The weight of false negatives */
    double beta;  /* Trevsky: 1 - alpha. The weight of false positives */
    double gamma; /* FocalTrevsky: 4 / 3 */
} lk_region_loss_options;
/* 1 - score, of probabilities and masks (samples, classes, ...) of one shape. With the sums
 * tp = sum(x t), fp = sum(x (1 - t)) and fn = sum((1 - x) t) of each class, the scores are
 *
 *     Dice           2 tp / (2 tp + fp + fn + eps)
 *     SmoothingDice  2 tp / (sum(x^2) + sum(t^2) + eps)
 *     IoU            tp / (tp + fp + fn + eps)
 *     Trevsky        tp / (tp + beta fp + alpha fn + eps)
 *
 * A class without anything in x and t has the score 1 (SmoothingDice: 0). FocalTrevsky is the mean
 * of (1 - Trevsky)^gamma over the samples, each by itself. */
#define lk_dice_loss(...) LK_CALL0_(lk_dice_loss_with, lk_region_loss_options, __VA_ARGS__)
#define lk_smoothing_dice_loss(...)                                                                          \
    LK_CALL0_(lk_smoothing_dice_loss_with, lk_region_loss_options, __VA_ARGS__)
#define lk_iou_loss(...)           LK_CALL0_(lk_iou_loss_with, lk_region_loss_options, __VA_ARGS__)
#define lk_trevsky_loss(...)       LK_CALL0_(lk_trevsky_loss_with, lk_region_loss_options, __VA_ARGS__)
#define lk_focal_trevsky_loss(...) LK_CALL0_(lk_focal_trevsky_loss_with, lk_region_loss_options, __VA_ARGS__)
lk_criterion *lk_dice_loss_with(const lk_region_loss_options *options);
lk_criterion *lk_smoothing_dice_loss_with(const lk_region_loss_options *options);
lk_criterion *lk_iou_loss_with(const lk_region_loss_options *options);
lk_criterion *lk_trevsky_loss_with(const lk_region_loss_options *options);
lk_criterion *lk_focal_trevsky_loss_with(const lk_region_loss_options *options);

typedef struct lk_focal_loss_options {
    size_t struct_size;
    bool has_ignore; /* targets equal to `ignore` do not count */
    int64_t ignore;
    bool reduced;     /* the reduced focal loss: its weight is 1 below `threshold` */
    double gamma;     /* 2 */
    double alpha;     /* 0.25. The weight of positives; not of the reduced loss */
    bool no_alpha;    /* positives and negatives weigh the same */
    double threshold; /* 0.5 */
    lk_reduction reduction;
} lk_focal_loss_options;
/* Logits of any shape against 0 and 1: (1 - p)^gamma times the cross-entropy, where p is the
 * probability of the target. Of several classes, logits (samples, classes) against classes
 * (samples): the sum over the classes, each against the others. */
#define lk_focal_loss_binary(...) LK_CALL0_(lk_focal_loss_binary_with, lk_focal_loss_options, __VA_ARGS__)
#define lk_focal_loss_multi_class(...)                                                                       \
    LK_CALL0_(lk_focal_loss_multi_class_with, lk_focal_loss_options, __VA_ARGS__)
lk_criterion *lk_focal_loss_binary_with(const lk_focal_loss_options *options);
lk_criterion *lk_focal_loss_multi_class_with(const lk_focal_loss_options *options);

typedef struct lk_lovasz_loss_options {
    size_t struct_size;
    bool per_image;  /* the mean over the samples, each by itself */
    bool has_ignore; /* targets equal to `ignore` do not count */
    int64_t ignore;
} lk_lovasz_loss_options;
/* Lovasz's extension of the Jaccard loss. Binary: logits and targets (samples, ...). Multi-label:
 * (samples, labels, ...), the mean over the labels. Multi-class: probabilities (samples, classes,
 * height, width) or (samples, height, width) against classes (samples, height, width), the mean
 * over the classes that are present. */
#define lk_lovasz_loss_binary(...) LK_CALL0_(lk_lovasz_loss_binary_with, lk_lovasz_loss_options, __VA_ARGS__)
#define lk_lovasz_loss_multi_class(...)                                                                      \
    LK_CALL0_(lk_lovasz_loss_multi_class_with, lk_lovasz_loss_options, __VA_ARGS__)
#define lk_lovasz_loss_multi_label(...)                                                                      \
    LK_CALL0_(lk_lovasz_loss_multi_label_with, lk_lovasz_loss_options, __VA_ARGS__)
lk_criterion *lk_lovasz_loss_binary_with(const lk_lovasz_loss_options *options);
lk_criterion *lk_lovasz_loss_multi_class_with(const lk_lovasz_loss_options *options);
lk_criterion *lk_lovasz_loss_multi_label_with(const lk_lovasz_loss_options *options);

typedef struct lk_contrastive_loss_options {
    size_t struct_size;
    double tau;             /* NTXent, SupervisedContrastive: required, the temperature */
    double margin;          /* CircleLoss: required. ContrastiveDistance: 1. Triplets: 0.3 */
    double gamma;           /* CircleLoss: required, the scale */
    bool outside;           /* SupervisedContrastive: the mean outside of the logarithm */
    double offdiag_lambda;  /* BarlowTwins: 1 */
    double eps;             /* BarlowTwins: 1e-12 */
    lk_reduction reduction; /* not of losses that are one number by nature */
} lk_contrastive_loss_options;
/* Of two views (samples, width) each, of which row i belongs to row i: the normalised-temperature
 * cross-entropy of all 2 n rows, and BarlowTwins of their cross-correlation. */
#define lk_nt_xent_loss(...) LK_CALL0_(lk_nt_xent_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
#define lk_barlow_twins_loss(...)                                                                            \
    LK_CALL0_(lk_barlow_twins_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
lk_criterion *lk_nt_xent_loss_with(const lk_contrastive_loss_options *options);
lk_criterion *lk_barlow_twins_loss_with(const lk_contrastive_loss_options *options);
/* Of embeddings (samples, width) and classes (samples). A sample that is alone in its class does
 * not count. CircleLoss expects embeddings of length 1, and is 0 without a positive or a negative
 * pair. */
#define lk_supervised_contrastive_loss(...)                                                                  \
    LK_CALL0_(lk_supervised_contrastive_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
#define lk_circle_loss(...) LK_CALL0_(lk_circle_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
/* Distances against 0 (near) and 1 (at least `margin` apart). */
#define lk_contrastive_distance_loss(...)                                                                    \
    LK_CALL0_(lk_contrastive_distance_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
/* Of predicted and true embeddings (samples, width): row i shall be nearest to row i. */
#define lk_contrastive_pairwise_embedding_loss(...)                                                          \
    LK_CALL0_(lk_contrastive_pairwise_embedding_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
#define lk_triplet_pairwise_embedding_loss(...)                                                              \
    LK_CALL0_(lk_triplet_pairwise_embedding_loss_with, lk_contrastive_loss_options, __VA_ARGS__)
lk_criterion *lk_supervised_contrastive_loss_with(const lk_contrastive_loss_options *options);
lk_criterion *lk_circle_loss_with(const lk_contrastive_loss_options *options);
lk_criterion *lk_contrastive_distance_loss_with(const lk_contrastive_loss_options *options);
lk_criterion *lk_contrastive_pairwise_embedding_loss_with(const lk_contrastive_loss_options *options);
lk_criterion *lk_triplet_pairwise_embedding_loss_with(const lk_contrastive_loss_options *options);

typedef struct lk_embedding_margin_loss_options {
    size_t struct_size;
    double alpha;               /* 0.2 */
    double beta;                /* 1 */
    const int64_t *skip_labels; /* pairs of two of these classes do not count: -1 */
    int skip_label_count;
} lk_embedding_margin_loss_options;
/* MarginLoss of embeddings and classes: the squared distance of normalised embeddings shall be
 * below beta - alpha in one class, and above beta + alpha else. */
#define lk_embedding_margin_loss(...)                                                                        \
    LK_CALL0_(lk_embedding_margin_loss_with, lk_embedding_margin_loss_options, __VA_ARGS__)
lk_criterion *lk_embedding_margin_loss_with(const lk_embedding_margin_loss_options *options);

/* ---- Losses of recommendations ---- */

/* Of the scores of positives and negatives of one shape, with s = positive - negative: the mean of
 * -log(gamma + sigmoid(s)), of 1 - sigmoid(positive) + sigmoid(negative), and of max(0, 1 - s).
 * AdaptiveHinge takes the highest of several negatives, (negatives, ...). */
typedef struct lk_bpr_loss_options {
    size_t struct_size;
    double gamma; /* 1e-10 */
} lk_bpr_loss_options;
#define lk_bpr_loss(...) LK_CALL0_(lk_bpr_loss_with, lk_bpr_loss_options, __VA_ARGS__)
lk_criterion *lk_bpr_loss_with(const lk_bpr_loss_options *options);
lk_criterion *lk_logistic_loss(void);
lk_criterion *lk_hinge_loss(void);
lk_criterion *lk_adaptive_hinge_loss(void);

typedef struct lk_warp_loss_options {
    size_t struct_size;
    int64_t max_num_trials; /* the number of labels less 1 */
} lk_warp_loss_options;
/* The weighted approximate-rank pairwise loss of scores (samples, labels) and targets of 1 and 0 of
 * the same shape, of which the first 1 of a row counts. Negatives are drawn without putting them
 * back, in the order of one uniform number per score, until one scores higher than the positive
 * less 1. If that took k draws, the loss is
 * log(floor((labels - 1) / k)) (1 - positive + negative). */
#define lk_warp_loss(...) LK_CALL0_(lk_warp_loss_with, lk_warp_loss_options, __VA_ARGS__)
lk_criterion *lk_warp_loss_with(const lk_warp_loss_options *options);

/* ---- Losses of regression, and others ---- */

typedef struct lk_contrib_regression_options {
    size_t struct_size;
    double clip_delta;      /* HuberLossV0, QuantileRegression: 1 */
    int num_atoms;          /* QuantileRegression: 51 */
    double width;           /* WingLoss: 5 */
    double curvature;       /* WingLoss: 0.5 */
    lk_reduction reduction; /* HuberLossV0, WingLoss */
} lk_contrib_regression_options;
/* HuberLossV0: the mean along axis 1, then the reduction. QuantileRegression: predicted and true
 * atoms (samples, atoms) each. RSquare: 1 - MSE / variance of the targets. */
#define lk_huber_loss_v0(...) LK_CALL0_(lk_huber_loss_v0_with, lk_contrib_regression_options, __VA_ARGS__)
#define lk_quantile_regression_loss(...)                                                                     \
    LK_CALL0_(lk_quantile_regression_loss_with, lk_contrib_regression_options, __VA_ARGS__)
#define lk_wing_loss(...) LK_CALL0_(lk_wing_loss_with, lk_contrib_regression_options, __VA_ARGS__)
lk_criterion *lk_huber_loss_v0_with(const lk_contrib_regression_options *options);
lk_criterion *lk_quantile_regression_loss_with(const lk_contrib_regression_options *options);
lk_criterion *lk_wing_loss_with(const lk_contrib_regression_options *options);
lk_criterion *lk_r_square_loss(void);

typedef struct lk_contrib_entropy_options {
    size_t struct_size;
    bool no_size_average; /* NaiveCrossEntropy: the sum over the samples */
    double alpha, beta;   /* SymmetricCrossEntropy: 1 each */
} lk_contrib_entropy_options;
/* NaiveCrossEntropy: logits against probabilities (samples, classes). SymmetricCrossEntropy:
 * probabilities (samples, classes) against classes. MeanOutput: the mean of the prediction,
 * whatever the target is. */
#define lk_naive_cross_entropy_loss(...)                                                                     \
    LK_CALL0_(lk_naive_cross_entropy_loss_with, lk_contrib_entropy_options, __VA_ARGS__)
#define lk_symmetric_cross_entropy_loss(...)                                                                 \
    LK_CALL0_(lk_symmetric_cross_entropy_loss_with, lk_contrib_entropy_options, __VA_ARGS__)
lk_criterion *lk_naive_cross_entropy_loss_with(const lk_contrib_entropy_options *options);
lk_criterion *lk_symmetric_cross_entropy_loss_with(const lk_contrib_entropy_options *options);
lk_criterion *lk_mean_output_loss(void);

/* ---- Layers ---- */

/* A layer that is one function of its input, given as a module without parameters: Lambda. Owns the
 * module. */
lk_module *lk_lambda_module(lk_module *function_owned);

typedef struct lk_normalize_layer_options {
    size_t struct_size;
    double p;   /* 2 */
    double dim; /* 1; a whole number */
    double eps; /* 1e-12 */
} lk_normalize_layer_options;
/* x / max(norm(x), eps) along one axis, as torch.nn.functional.normalize. */
#define lk_normalize_layer(...) LK_CALL0_(lk_normalize_layer_with, lk_normalize_layer_options, __VA_ARGS__)
lk_module *lk_normalize_layer_with(const lk_normalize_layer_options *options);

/* ---- Pools of whole pictures ---- */

/* (samples, channels, height, width) -> (samples, features, 1, 1) */

lk_module *lk_global_avg_pool2d(void);
lk_module *lk_global_max_pool2d(void);
/* Averages, then maxima: twice as many features as channels. */
lk_module *lk_global_concat_pool2d(void);

typedef struct lk_global_attn_pool2d_options {
    size_t struct_size;
    lk_module *activation; /* owned; lk_sigmoid() */
} lk_global_attn_pool2d_options;
/* The sum over all places of x * activation(conv(x)), where conv is a convolution of size 1 without
 * bias that gives one number per place: its weight is "attn.0.weight". The others put averages,
 * maxima, or both, in front of it. */
#define lk_global_attn_pool2d(...)                                                                           \
    LK_CALL1_(lk_global_attn_pool2d_with, lk_global_attn_pool2d_options, __VA_ARGS__, )
#define lk_global_avg_attn_pool2d(...)                                                                       \
    LK_CALL1_(lk_global_avg_attn_pool2d_with, lk_global_attn_pool2d_options, __VA_ARGS__, )
#define lk_global_max_attn_pool2d(...)                                                                       \
    LK_CALL1_(lk_global_max_attn_pool2d_with, lk_global_attn_pool2d_options, __VA_ARGS__, )
#define lk_global_concat_attn_pool2d(...)                                                                    \
    LK_CALL1_(lk_global_concat_attn_pool2d_with, lk_global_attn_pool2d_options, __VA_ARGS__, )
lk_module *lk_global_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *options);
lk_module *lk_global_avg_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *options);
lk_module *lk_global_max_attn_pool2d_with(int64_t in_features, const lk_global_attn_pool2d_options *options);
lk_module *lk_global_concat_attn_pool2d_with(int64_t in_features,
                                             const lk_global_attn_pool2d_options *options);

typedef struct lk_gem2d_options {
    size_t struct_size;
    double p;         /* 3. INFINITY: the maximum */
    bool p_trainable; /* p is a parameter "p" of one number */
    double eps;       /* 1e-7. Smaller numbers count as this */
} lk_gem2d_options;
/* The generalised mean: mean(max(x, eps)^p)^(1 / p). */
#define lk_gem2d(...) LK_CALL0_(lk_gem2d_with, lk_gem2d_options, __VA_ARGS__)
lk_module *lk_gem2d_with(const lk_gem2d_options *options);

/* ---- Squeeze and excitation, and a norm ---- */

typedef struct lk_squeeze_options {
    size_t struct_size;
    int64_t r; /* 16. The channels are squeezed to in_channels / r, at least 1 */
} lk_squeeze_options;
/* Of pictures (samples, channels, height, width). cSE scales each channel by two linear layers of
 * the channels' means, sSE each place by a convolution of size 1; scSE is the sum of both. */
#define lk_cse(...)  LK_CALL1_(lk_cse_with, lk_squeeze_options, __VA_ARGS__, )
#define lk_scse(...) LK_CALL1_(lk_scse_with, lk_squeeze_options, __VA_ARGS__, )
lk_module *lk_cse_with(int64_t in_channels, const lk_squeeze_options *options);
lk_module *lk_scse_with(int64_t in_channels, const lk_squeeze_options *options);
lk_module *lk_sse(int64_t in_channels);

typedef struct lk_rms_norm_layer_options {
    size_t struct_size;
    double epsilon; /* 1e-8 */
    bool is_bias;
} lk_rms_norm_layer_options;
/* scale * x / (sqrt(mean(x^2)) + epsilon) + bias along the last axis. lk_rms_norm is PyTorch's,
 * which has the epsilon inside of the root. */
#define lk_rms_norm_layer(...) LK_CALL1_(lk_rms_norm_layer_with, lk_rms_norm_layer_options, __VA_ARGS__, )
lk_module *lk_rms_norm_layer_with(int64_t dimension, const lk_rms_norm_layer_options *options);

typedef struct lk_factorized_linear_options {
    size_t struct_size;
    double dim_ratio; /* 1. The share of the singular values that is kept, the largest ones */
} lk_factorized_linear_options;
/* A Linear layer with a bias, which it owns, as a product of two smaller weights: "u" (out, k) and
 * "vh" (k, in), with k = dim_ratio min(in, out), of its singular value decomposition. The signs of
 * a column of u and its row of vh may both differ from PyTorch's. */
#define lk_factorized_linear(...)                                                                            \
    LK_CALL1_(lk_factorized_linear_with, lk_factorized_linear_options, __VA_ARGS__, )
lk_module *lk_factorized_linear_with(lk_module *linear_owned, const lk_factorized_linear_options *options);

/* x plus noise from a normal distribution with this standard deviation, in training alone. */
lk_module *lk_gaussian_noise(double stddev);

/* ---- Heads for metric learning: features (samples, in) -> logits (samples, classes) ---- */

/* A head with a margin has a second input, the classes (samples) of a batch: give it both in
 * lk_node_graph, or with lk_module_call. Without the second input its output is the cosines c of
 * the angles between the features and the centres of the classes. With it, the logits are s times
 *
 *     ArcFace, SubCenterArcFace  cos(acos(c) + m) at the class, where acos(c) <= pi - m; else c
 *     CosFace, AMSoftmax         c - m at the class, else c
 *     CurricularFace             cos(acos(c) + m) at the class, or c - m sin(m) where
 *                                acos(c) >= pi - m. Else c, or c (t + c) where c is above
 *                                cos(acos(c at the class) + m)
 *     AdaCos                     c
 *
 * SubCenterArcFace has k centres per class, of which the nearest counts. CurricularFace moves its
 * buffer "t" by 0.01 towards the mean of c at the classes, and AdaCos sets its buffer "s" to
 * log(mean(sum of exp(s c) over the other classes)) / max(cos(pi / 4), median of c at the class),
 * in every batch of training. Each batch begins with rank 0's buffers. */
typedef struct lk_margin_head_options {
    size_t struct_size;
    double s;            /* 64 */
    double m;            /* 0.5. CosFace: 0.35 */
    double eps;          /* 1e-6. ArcFace, SubCenterArcFace, AMSoftmax, AdaCos: |c| <= 1 - eps */
    int64_t k;           /* SubCenterArcFace: 3 */
    bool no_dynamical_s; /* AdaCos: s stays sqrt(2) log(classes - 1) */
} lk_margin_head_options;
#define lk_arc_face(...) LK_CALL2_(lk_arc_face_with, lk_margin_head_options, __VA_ARGS__, )
#define lk_sub_center_arc_face(...)                                                                          \
    LK_CALL2_(lk_sub_center_arc_face_with, lk_margin_head_options, __VA_ARGS__, )
#define lk_cos_face(...)        LK_CALL2_(lk_cos_face_with, lk_margin_head_options, __VA_ARGS__, )
#define lk_am_softmax(...)      LK_CALL2_(lk_am_softmax_with, lk_margin_head_options, __VA_ARGS__, )
#define lk_curricular_face(...) LK_CALL2_(lk_curricular_face_with, lk_margin_head_options, __VA_ARGS__, )
#define lk_ada_cos(...)         LK_CALL2_(lk_ada_cos_with, lk_margin_head_options, __VA_ARGS__, )
lk_module *lk_arc_face_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *options);
lk_module *lk_sub_center_arc_face_with(int64_t in_features, int64_t out_features,
                                       const lk_margin_head_options *options);
lk_module *lk_cos_face_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *options);
lk_module *lk_am_softmax_with(int64_t in_features, int64_t out_features,
                              const lk_margin_head_options *options);
lk_module *lk_curricular_face_with(int64_t in_features, int64_t out_features,
                                   const lk_margin_head_options *options);
lk_module *lk_ada_cos_with(int64_t in_features, int64_t out_features, const lk_margin_head_options *options);
/* The cosines alone. */
lk_module *lk_arc_margin_product(int64_t in_features, int64_t out_features);
/* A linear layer whose weight is drawn by lk_init_xavier_uniform and whose bias begins at 0. */
lk_module *lk_softmax_head(int64_t in_features, int64_t num_classes);

/* ---- Models ---- */

typedef struct lk_mnist_net_options {
    size_t struct_size;
    bool no_normalize; /* of the simple net: outputs as they are, not of length 1 */
} lk_mnist_net_options;
/* Two convolutions and two linear layers for pictures (1, 28, 28), without or with batch norms. */
#define lk_mnist_simple_net(...) LK_CALL1_(lk_mnist_simple_net_with, lk_mnist_net_options, __VA_ARGS__, )
lk_module *lk_mnist_simple_net_with(int64_t out_features, const lk_mnist_net_options *options);
lk_module *lk_mnist_batch_norm_net(int64_t out_features);

/* ---- Parts of MNIST ---- */

typedef struct lk_mnist_part_options {
    size_t struct_size;
    bool download; /* as in lk_mnist_options, and the same for the next one */
    bool catalyst_scaling;
    bool test;           /* partial MNIST: of the 10,000 for testing */
    double gallery_fraq; /* 0.2; the last samples, of that share, are the gallery */
    int64_t num_samples; /* partial MNIST: 100 of each class */
    int classes[10];     /* partial MNIST: which ones */
    int class_count;     /* 0: 0, 1 and 2 */
} lk_mnist_part_options;
/* The digits 0 to 4 of the training samples, to learn embeddings with. */
#define lk_mnist_ml_dataset(...) LK_CALL1_(lk_mnist_ml_dataset_with, lk_mnist_part_options, __VA_ARGS__, )
lk_dataset *lk_mnist_ml_dataset_with(const char *root, const lk_mnist_part_options *options);
/* The digits 5 to 9 of the test samples, to test embeddings with: fields "features", "targets" and
 * "is_query", a bool. */
#define lk_mnist_qg_dataset(...) LK_CALL1_(lk_mnist_qg_dataset_with, lk_mnist_part_options, __VA_ARGS__, )
lk_dataset *lk_mnist_qg_dataset_with(const char *root, const lk_mnist_part_options *options);
/* The first samples of some digits. */
#define lk_partial_mnist(...) LK_CALL1_(lk_partial_mnist_with, lk_mnist_part_options, __VA_ARGS__, )
lk_dataset *lk_partial_mnist_with(const char *root, const lk_mnist_part_options *options);

#ifdef __cplusplus
}
#endif
#endif
