/* A supervised runner whose model has several inputs or outputs. */
#include "lktest.h"

#include <lockstep/contrib.h>
#include <lockstep/lockstep.h>

enum { SAMPLES = 12, WIDTH = 4 };

static lk_tensor *numbers(int shift)
{
    lk_tensor *tensor = lk_tensor_create(LK_F32, LK_SHAPE(SAMPLES, WIDTH));
    lkt_not_null(tensor);
    for (int i = 0; i < SAMPLES * WIDTH; i++) lk_tensor_set(tensor, i, ((i * 7 + shift) % 11) / 8.0 - 0.5);
    return tensor;
}

static lk_tensor *classes(void)
{
    lk_tensor *tensor = lk_tensor_create(LK_I64, LK_SHAPE(SAMPLES));
    lkt_not_null(tensor);
    for (int i = 0; i < SAMPLES; i++) lk_tensor_set(tensor, i, i % 3);
    return tensor;
}

/* Trains two epochs; the loss at the end. */
static double train(lk_runner *runner, lk_module *model, lk_dataset *data, lk_callback *callback)
{
    lkt_not_null(runner);
    lkt_not_null(model);
    lk_callback *callbacks[] = {callback};
    lkt_ok(lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(),
                    .optimizer = lk_sgd(.lr = 0.5),
                    .loaders = lk_loaders({"train", lk_loader(data, .batch_size = 4)}), .num_epochs = 2,
                    .callbacks = {callbacks, callback ? 1 : 0}));
    double loss = lk_metrics_get(lk_runner_loader_metrics(runner, "train"), "loss");
    lk_runner_free(runner);
    return loss;
}

static lk_module *product_model(void)
{
    lk_manual_seed(3);
    return lk_node_graph(lk_nodes(lk_node("product", lk_mul(), "x w"), lk_node("fc", lk_linear(WIDTH, 3))),
                         .inputs = "x w");
}

/* linear(x w) of two fields learns what linear learns from their product. */
static void two_inputs(void **state)
{
    (void)state;
    static const char *const keys[] = {"features", "weights", NULL};
    lk_tensor *x = numbers(0), *w = numbers(5), *product = numbers(0);
    for (int i = 0; i < SAMPLES * WIDTH; i++)
        lk_tensor_set(product, i, (float)lk_tensor_get(x, i) * (float)lk_tensor_get(w, i));
    double together = train(lk_supervised_runner(.input_keys = keys), product_model(),
                            lk_tensor_dataset({"features", x}, {"weights", w}, {"targets", classes()}), NULL);
    lk_manual_seed(3);
    double apart = train(lk_supervised_runner(), lk_linear(WIDTH, 3),
                         lk_tensor_dataset({"features", product}, {"targets", classes()}), NULL);
    assert_true(isfinite(apart));
    assert_memory_equal(&together, &apart, sizeof apart);
}

static lk_module *two_heads(void)
{
    lk_manual_seed(3);
    lk_module *first = lk_linear(WIDTH, 3), *second = lk_linear(WIDTH, 3);
    return lk_node_graph(lk_nodes(lk_node("b", second, "x"), lk_node("a", first, "x")), .outputs = "a b");
}

/* The first output is what is judged, unless a criterion names another one. */
static void two_outputs(void **state)
{
    (void)state;
    static const char *const keys[] = {"logits", "more", NULL};
    double losses[2];
    for (int i = 0; i < 2; i++)
        losses[i] =
            train(lk_supervised_runner(.output_keys = keys), two_heads(),
                  lk_tensor_dataset({"features", numbers(0)}, {"targets", classes()}),
                  lk_criterion_callback(.input_key = keys[i], .target_key = "targets", .metric_key = "loss"));
    lk_manual_seed(3);
    double expected[2];
    lk_module *first = lk_linear(WIDTH, 3), *second = lk_linear(WIDTH, 3);
    lk_module *alone[] = {first, second};
    for (int i = 0; i < 2; i++)
        expected[i] = train(lk_supervised_runner(), alone[i],
                            lk_tensor_dataset({"features", numbers(0)}, {"targets", classes()}), NULL);
    assert_memory_equal(losses, expected, sizeof losses);
    assert_true(losses[0] != losses[1]);
}

/* A head whose buffer training reads, on so many ranks: the hash of the weights. */
static void train_adaptive(int nproc, char hash[LK_HASH_LENGTH + 1])
{
    static const char *const keys[] = {"features", "targets", NULL};
    char path[1200];
    const char *logdir = lkt_scratch_folder("several_keys");
    lk_manual_seed(3);
    lk_module *body = lk_linear(WIDTH, 5), *head = lk_ada_cos(5, 3);
    lk_module *model =
        lk_node_graph(lk_nodes(lk_node("body", body, "x"), lk_node("head", head, "body y")), .inputs = "x y");
    lk_runner *runner = lk_supervised_runner(.input_keys = keys);
    lkt_ok(
        lk_train(runner, .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_sgd(.lr = 0.5),
                 .loaders = lk_loaders(
                     {"train", lk_loader(lk_tensor_dataset({"features", numbers(0)}, {"targets", classes()}),
                                         .batch_size = 2)}),
                 .num_epochs = 2, .shards = 2, .ddp = nproc > 1, .nproc = nproc, .device = "cpu", .seed = 7,
                 .logdir = logdir, .overwrite = true));
    lk_runner_free(runner);
    snprintf(path, sizeof path, "%s/checkpoints/model.last.safetensors", logdir);
    lk_state_dict *weights = lk_load_safetensors(path);
    lkt_not_null(weights);
    lkt_ok(lk_weights_hash(weights, hash));
    lk_state_dict_free(weights);
}

static void shards_see_one_buffer(void **state)
{
    (void)state;
    char one[LK_HASH_LENGTH + 1], two[LK_HASH_LENGTH + 1];
    train_adaptive(1, one);
    train_adaptive(2, two);
    assert_string_equal(one, two);
}

static void refusals(void **state)
{
    (void)state;
    static const char *const twice[] = {"features", "features", NULL}, *const none[] = {NULL};
    static const char *const many[] = {"a", "b", "c", "d", "e", "f", "g", "h", "i", NULL};
    assert_null(lk_supervised_runner(.input_keys = twice));
    lkt_contains(lk_error(), "input_key: \"features\" is named twice");
    assert_null(lk_supervised_runner(.output_keys = none));
    lkt_contains(lk_error(), "output_key: expected at least 1 name");
    assert_null(lk_supervised_runner(.output_keys = many));
    lkt_contains(lk_error(), "output_key: at most 8 names");
    static const char *const missing[] = {"features", "nothing", NULL};
    lk_runner *runner = lk_supervised_runner(.input_keys = missing);
    assert_int_not_equal(
        lk_train(runner, .model = product_model(), .criterion = lk_cross_entropy_loss(),
                 .optimizer = lk_sgd(.lr = 1),
                 .loaders = lk_loaders({"train", lk_loader(lk_tensor_dataset({"features", numbers(0)},
                                                                             {"targets", classes()}))})),
        LK_OK);
    lkt_contains(lk_error(), "a batch has no field \"nothing\"");
    lk_runner_free(runner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_inputs), cmocka_unit_test(two_outputs),
                                       cmocka_unit_test(shards_see_one_buffer), cmocka_unit_test(refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
