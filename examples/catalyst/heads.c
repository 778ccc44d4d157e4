/* A model with two heads: the runner says what comes of a batch, and Catalyst's callbacks do the rest. */
#include "shared.h"

/* y1 = head1(shared(x)), y2 = head2(shared(x)) */
static lk_status forward(lk_runner *runner, lk_graph *graph, const char *const *names, lk_value *const *inputs, int count)
{
    lk_value *x = find_input(names, inputs, count, "features");
    lk_value *code = lk_module_forward(lk_module_child(runner->model, "shared"), x);
    lk_value *logits1 = lk_module_forward(lk_module_child(runner->model, "head1"), code);
    lk_value *logits2 = lk_module_forward(lk_module_child(runner->model, "head2"), code);
    lk_status status = lk_graph_output(graph, "logits1", logits1);
    return status ? status : lk_graph_output(graph, "logits2", logits2);
}

static lk_status build_runner(const lk_component *self, lk_args *args, void **out)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .forward = forward};
    (void)self, (void)args;
    *out = lk_custom_runner(&ops, NULL);
    return *out ? LK_OK : lk_error_status();
}

COMPONENT(runner_component, "tests.pipelines.test_multihead_classification.CustomRunner", RUNNER,
          "Classifies twice at once.", build_runner, MODEL_PARAMETER, ENGINE_PARAMETER);

static lk_status build_model(const lk_component *self, lk_args *args, void **out)
{
    enum { WIDTH = 128 };
    (void)self;
    *out = lk_custom_module(.type = "CustomModule",
                            .children = lk_children({"shared", lk_linear(lk_arg_int(args, "in_features"), WIDTH)},
                                                    {"head1", lk_linear(WIDTH, lk_arg_int(args, "out_features1"))},
                                                    {"head2", lk_linear(WIDTH, lk_arg_int(args, "out_features2"))}));
    return *out ? LK_OK : lk_error_status();
}

COMPONENT(model_component, "tests.pipelines.test_multihead_classification.CustomModule", MODULE,
          "A linear layer with two heads.", build_model,
          {.name = "in_features", .type = LK_PARAMETER_INT, .help = "Numbers of a sample."},
          {.name = "out_features1", .type = LK_PARAMETER_INT, .help = "Classes of the first head."},
          {.name = "out_features2", .type = LK_PARAMETER_INT, .help = "Classes of the second head."});

/* Embeddings need no runner of their own: the criterion is the train loader's alone, by ControlFlow. */
static lk_status build_embeddings(const lk_component *self, lk_args *args, void **out)
{
    (void)self;
    *out = lk_supervised_runner(.input_key = lk_arg_string(args, "input_key"),
                                .output_key = lk_arg_string(args, "output_key"));
    return *out ? LK_OK : lk_error_status();
}

COMPONENT(embeddings_component, "tests.pipelines.test_metric_learning.CustomRunner", RUNNER,
          "Learns embeddings of pictures.", build_embeddings, MODEL_PARAMETER, ENGINE_PARAMETER,
          {.name = "input_key", .type = LK_PARAMETER_STRING, .default_value = "features", .help = "The pictures."},
          {.name = "output_key", .type = LK_PARAMETER_STRING, .default_value = "logits", .help = "The embeddings."});

/* features and targets; with more tensors, targets1, targets2, ... */
static lk_status build_dataset(const lk_component *self, lk_args *args, void **out)
{
    static const char *const two[] = {"features", "targets"};
    static const char *const more[] = {"features", "targets1", "targets2", "targets3", "targets4"};
    lk_named_tensor tensors[5];
    int count = lk_arg_count(args, "tensors");
    (void)self;
    if (count < 1 || count > 5) return lk_fail(LK_ERR_CONFIG, "args: expected 1 to 5 tensors, found %d", count);
    for (int i = 0; i < count; i++)
        tensors[i] = (lk_named_tensor){(count > 2 ? more : two)[i], lk_arg_take_at(args, "tensors", i)};
    *out = lk_tensor_dataset_with(tensors, count);
    return *out ? LK_OK : lk_error_status();
}

static const lk_component dataset_component = {
    .name = "tests.misc.TensorDataset", .kind = LK_KIND_DATASET, .help = "Samples from tensors.",
    .build = build_dataset, .rest = "tensors",
    .parameters = (const lk_parameter[]){{.name = "tensors", .type = LK_PARAMETER_OBJECTS, .kind = LK_KIND_TENSOR,
                                          .help = "The tensors, (samples, ...) each."},
                                         {0}}};

LK_COMPONENTS(&runner_component, &model_component, &embeddings_component, &dataset_component);
