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
