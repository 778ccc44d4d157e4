/* Catalyst's example "metric learning": embeddings that are near each other within a class, learned by a head that
 * is then left out. A query is right if the nearest sample of the gallery has its class. */
#include "minimal.h"

enum { CLASSES = 6, WIDTH = 12 };

/* Points around a centre per class; every second one is a query. */
static lk_dataset *samples(int64_t count, const lk_tensor *centres)
{
    lk_tensor *x = lk_randn(LK_SHAPE(count, WIDTH));
    lk_tensor *y = lk_tensor_create(LK_I64, LK_SHAPE(count)), *query = lk_tensor_create(LK_BOOL, LK_SHAPE(count));
    for (int64_t i = 0; x && y && query && i < count; i++) {
        int64_t of = i % CLASSES;
        for (int k = 0; k < WIDTH; k++)
            lk_tensor_set(x, i * WIDTH + k, 0.7 * lk_tensor_get(x, i * WIDTH + k) + lk_tensor_get(centres, of * WIDTH + k));
        lk_tensor_set(y, i, of);
        lk_tensor_set(query, i, i / CLASSES % 2);
    }
    return lk_tensor_dataset({"features", x}, {"targets", y}, {"is_query", query});
}

int main(void)
{
    static const char *const inputs[] = {"features", "targets", NULL}, *const outputs[] = {"logits", "embeddings", NULL};
    lk_manual_seed(42);
    lk_tensor *centres = lk_randn(LK_SHAPE(CLASSES, WIDTH));
    lk_module *first = lk_linear(WIDTH, 32), *second = lk_linear(32, 8), *head = lk_arc_face(8, CLASSES, .s = 8, .m = 0.3);
    lk_module *model = lk_node_graph(lk_nodes(lk_node("first", first, "features"), lk_node("relu", lk_relu()),
                                              lk_node("second", second),
                                              lk_node("embeddings", lk_normalize_layer()),
                                              lk_node("head", head, "embeddings targets")),
                                     .inputs = "features targets", .outputs = "head embeddings");
    lk_loader_list loaders = lk_loaders({"train", lk_loader(samples(1200, centres), .batch_size = 32, .shuffle = true)},
                                        {"valid", lk_loader(samples(360, centres), .batch_size = 32)});
    lk_tensor_free(centres);
    lk_runner *runner = lk_supervised_runner(.input_keys = inputs, .output_keys = outputs);
    lk_status status = lk_train(runner,
        .model = model, .criterion = lk_cross_entropy_loss(), .optimizer = lk_adam(.lr = 0.01),
        .loaders = loaders, .num_epochs = 6,
        .callbacks = lk_callbacks(lk_control_flow_callback(
            lk_cmc_score_callback(.embeddings_key = "embeddings", .labels_key = "targets", .topk = {1, 3}),
            .loaders = (const char *const[]){"valid", NULL})),
        .valid_loader = "valid", .verbose = true);
    return learned(runner, status, "cmc01", 0.85);
}
