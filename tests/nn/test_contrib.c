/* The losses and layers of contrib.h against their definitions in PyTorch 1.13: value, gradients and 20 steps
 * of training, on every engine of this build. */
#include "layer_parity.h"
#include "loss_parity.h"

#include <lockstep/contrib.h>

/* clang-format off */
#define LOSSES(X) \
    X(triplets_all, lk_triplet_margin_loss_with_sampler(.margin = 0.5)) \
    X(triplets_all_one_class, lk_triplet_margin_loss_with_sampler(.margin = 0.5)) \
    X(triplets_hard, lk_triplet_margin_loss_with_sampler(.margin = 0.5, .sampler = LK_TRIPLETS_HARD)) \
    X(triplets_hard_normalized, lk_triplet_margin_loss_with_sampler(.sampler = LK_TRIPLETS_HARD, .norm_required = true)) \
    X(triplets_hard_single, lk_triplet_margin_loss_with_sampler(.margin = 2, .sampler = LK_TRIPLETS_HARD)) \
    X(triplets_clusters, lk_triplet_margin_loss_with_sampler(.margin = 0.5, .sampler = LK_TRIPLETS_HARD_CLUSTER))
#define LAYERS(X) \
    X(normalize, lk_normalize_layer()) \
    X(normalize_options, lk_normalize_layer(.p = 1.5, .dim = LK_ZERO, .eps = 0.5))
/* clang-format on */

#define X(symbol, ...)                                                                                       \
    static lk_criterion *make_##symbol(void)                                                                 \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LOSSES(X)
#undef X
#define X(symbol, ...)                                                                                       \
    static lk_module *make_##symbol(void)                                                                    \
    {                                                                                                        \
        return __VA_ARGS__;                                                                                  \
    }
LAYERS(X)
#undef X

static lk_module *itself(void)
{
    return lk_identity();
}

static const parity_case losses[] = {
#define X(symbol, ...) {.name = #symbol, .make = itself, .criterion = make_##symbol},
    LOSSES(X)
#undef X
};
static const parity_case layers[] = {
#define X(symbol, ...) {.name = #symbol, .make = make_##symbol},
    LAYERS(X)
#undef X
};

static void loss_equals_its_definition(void **state)
{
    check_loss(*state);
}

static void layer_equals_its_definition(void **state)
{
    check_layer(*state, false);
}

static void bad_arguments(void **state)
{
    (void)state;
    assert_null(lk_triplet_margin_loss_with_sampler(.margin = NAN));
    lkt_contains(lk_error(), "margin: expected a number");
    assert_null(lk_triplet_margin_loss_with_sampler(.sampler = (lk_triplets)7));
    lkt_contains(lk_error(), "sampler: expected one of lk_triplets, found 7");
    assert_null(lk_triplet_margin_loss_with_sampler(.norm_required = true));
    lkt_contains(lk_error(), "norm_required is for LK_TRIPLETS_HARD alone");
    assert_null(lk_normalize_layer(.p = -1));
    lkt_contains(lk_error(), "Normalize: p and eps");
    assert_null(lk_lambda_module(NULL));
    assert_null(lk_lambda_module(lk_linear(2, 2)));
    lkt_contains(lk_error(), "a function has neither parameters nor children");
    lk_module *lambda = lk_lambda_module(lk_relu());
    lkt_not_null(lambda);
    lk_module_free(lambda);
}

static void labels_that_do_not_fit(void **state)
{
    (void)state;
    lk_graph *graph = lk_graph_create(true);
    lk_criterion *criterion = lk_triplet_margin_loss_with_sampler(.margin = 1);
    lk_value *x = lk_graph_input(graph, "x", LK_F32, LK_SHAPE(4, 2));
    assert_null(lk_criterion_forward(criterion, x, lk_graph_input(graph, "y", LK_I64, LK_SHAPE(3))));
    lkt_contains(lk_error(), "a class for each, found (4, 2) and (3,)");
    lk_criterion_free(criterion);
    lk_graph_free(graph);
}

/* Catalyst's names of the weights, so that its checkpoints fit. */
static void small_nets(void **state)
{
    (void)state;
    lk_module *net = lk_mnist_simple_net(16);
    lkt_not_null(net);
    lkt_not_null(lk_module_param(net, "_net.8.bias"));
    assert_int_equal(lk_module_param_count(net), 1200656);
    lk_module_free(net);
    net = lk_mnist_batch_norm_net(10);
    lkt_not_null(lk_module_param(net, "_net.7.running_mean"));
    lk_module_free(net);
}

int main(void)
{
    lkt_golden *golden = lkt_golden_open("nn/contrib_losses.lkg");
    const struct CMUnitTest plain[] = {cmocka_unit_test(bad_arguments),
                                       cmocka_unit_test(labels_that_do_not_fit),
                                       cmocka_unit_test(small_nets)};
    int failed = run_parity_cases("contrib losses", losses, (int)(sizeof losses / sizeof *losses), golden,
                                  loss_equals_its_definition);
    lkt_golden_free(golden);
    golden = lkt_golden_open("nn/contrib_layers.lkg");
    failed += run_parity_cases("contrib layers", layers, (int)(sizeof layers / sizeof *layers), golden,
                               layer_equals_its_definition);
    lkt_golden_free(golden);
    return failed + cmocka_run_group_tests(plain, NULL, NULL);
}
