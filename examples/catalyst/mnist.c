/* Four runners for MNIST that handle a batch themselves: with one of everything, with two criteria, with two
 * models and one optimizer, and with an optimizer for each of two models.
 *
 * They stand for the Python classes tests.pipelines.test_mnist_*.CustomRunner of Catalyst's own test suite,
 * whose configs run with --expdir examples/catalyst. */
#include "shared.h"

/* ---- One of everything: the loss is the runner's own ---- */

static lk_value *classify(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count, void *context)
{
    const lk_runner *runner = context;
    lk_value *logits = lk_module_forward(runner->model, find_input(names, inputs, count, "features"));
    lk_graph_output(graph, "logits", logits);
    return lk_op_cross_entropy(logits, find_input(names, inputs, count, "targets"), NULL, LK_REDUCTION_MEAN, -100, 0);
}

static lk_status handle_with(lk_runner *runner, const lk_batch *batch, lk_module *model, lk_step_function function)
{
    const lk_tensor *targets = lk_batch_get(batch, "targets");
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")}, {"targets", targets}};
    lk_step *step = lk_runner_step(runner, "step",
                                   LK_OPTIONS(lk_step_options, .model = model, .optimizer = runner->optimizer,
                                              .function = function, .context = runner));
    lk_status status = take_step(runner, step, fields, 2);
    return status ? status : report_classes(runner, step, targets);
}

static lk_status handle_custom(lk_runner *runner, const lk_batch *batch)
{
    return handle_with(runner, batch, runner->model, classify);
}

/* ---- Two criteria: classes, and the same classes as labels of 0 and 1 ---- */

static lk_value *classify_twice(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                                void *context)
{
    const lk_runner *runner = context;
    lk_value *targets = find_input(names, inputs, count, "targets");
    lk_value *logits = lk_module_forward(runner->model, find_input(names, inputs, count, "features"));
    lk_value *labels = lk_op_cast(lk_op_one_hot(targets, 10), LK_F32);
    lk_graph_output(graph, "logits", logits);
    return lk_op_add(lk_criterion_forward(lk_runner_criterion(runner, "multiclass"), logits, targets),
                     lk_criterion_forward(lk_runner_criterion(runner, "multilabel"), logits, labels));
}

static lk_status handle_multicriterion(lk_runner *runner, const lk_batch *batch)
{
    return handle_with(runner, batch, runner->model, classify_twice);
}

/* ---- Two models, one after the other ---- */

static lk_value *encode_and_classify(lk_graph *graph, const char *const *names, lk_value *const *inputs, int count,
                                     void *context)
{
    const lk_runner *runner = context;
    lk_value *code = lk_module_forward(lk_runner_model(runner, "encoder"), find_input(names, inputs, count, "features"));
    lk_value *logits = lk_module_forward(lk_runner_model(runner, "head"), code);
    lk_graph_output(graph, "logits", logits);
    return lk_criterion_forward(runner->criterion, logits, find_input(names, inputs, count, "targets"));
}

static lk_status handle_multimodel(lk_runner *runner, const lk_batch *batch)
{
    return handle_with(runner, batch, lk_runner_models(runner), encode_and_classify);
}

/* ---- An optimizer for each: both gradients first, then both updates ---- */

static lk_status handle_multioptimizer(lk_runner *runner, const lk_batch *batch)
{
    static const char *const keys[] = {"encoder", "head"};
    const lk_tensor *targets = lk_batch_get(batch, "targets");
    const lk_input fields[] = {{"features", lk_batch_get(batch, "features")}, {"targets", targets}};
    lk_step *steps[2];
    lk_status status = LK_OK;
    for (int i = 0; i < 2; i++) {
        steps[i] = lk_runner_step(runner, keys[i],
                                  LK_OPTIONS(lk_step_options, .model = lk_runner_model(runner, keys[i]),
                                             .optimizer = lk_runner_optimizer(runner, keys[i]),
                                             .function = encode_and_classify, .context = runner));
        if (!steps[i]) return lk_error_status();
    }
    if (!runner->is_train_loader) {
        status = lk_step_evaluate(steps[0], fields, 2);
        return status ? status : report_classes(runner, steps[0], targets);
    }
    for (int i = 0; i < 2 && !status; i++) {
        status = lk_step_begin(steps[i], fields, 2, true);
        if (!status) status = lk_step_forward(steps[i]);
        if (!status) status = lk_step_criterion(steps[i]);
        if (!status) status = lk_step_backward(steps[i]);
    }
    if (!status) status = report_classes(runner, steps[0], targets);
    for (int i = 0; i < 2 && !status; i++) status = lk_step_update(steps[i]);
    return status;
}

/* ---- The components ---- */

static lk_status build_runner(const lk_component *self, lk_args *args, void **out)
{
    (void)args;
    *out = lk_custom_runner(self->context, NULL);
    return *out ? LK_OK : lk_error_status();
}

#define RUNNER(symbol_, name_, help_, handle_)                                                               \
    static const lk_component symbol_ = {                                                                    \
        .name = "tests.pipelines." name_ ".CustomRunner", .kind = LK_KIND_RUNNER, .help = help_,             \
        .build = build_runner, .parameters = (const lk_parameter[]){MODEL_PARAMETER, ENGINE_PARAMETER, {0}}, \
        .context = &(const lk_runner_ops){LK_SIZE(lk_runner_ops), .handle_batch = handle_}}

RUNNER(custom, "test_mnist_custom", "Classifies with a loss of its own.", handle_custom);
RUNNER(multicriterion, "test_mnist_multicriterion", "Classifies with two criteria.", handle_multicriterion);
RUNNER(multimodel, "test_mnist_multimodel", "An encoder and a head, one optimizer.", handle_multimodel);
RUNNER(multioptimizer, "test_mnist_multioptimizer", "An encoder and a head, an optimizer each.",
       handle_multioptimizer);

LK_COMPONENTS(&custom, &multicriterion, &multimodel, &multioptimizer);
