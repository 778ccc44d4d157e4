/* Catalyst's example "knowledge distillation": a small network learns from what a large one says of each sample, with
 * the Kullback-Leibler divergence between both, and sees no labels itself. */
#include "minimal.h"

enum { TEMPERATURE = 2 };

static lk_dataset *samples(int64_t count)
{
    lk_tensor *x = lk_rand(LK_SHAPE(count, 10)), *y = largest(x, 0, 4);
    return lk_tensor_dataset({"features", x}, {"targets", y});
}

static lk_loader_list loaders_of(lk_named_loader room[2])
{
    lk_manual_seed(7);
    room[0] = (lk_named_loader){"train", lk_loader(samples(2000), .batch_size = 32, .shuffle = true)};
    room[1] = (lk_named_loader){"valid", lk_loader(samples(500), .batch_size = 32)};
    return (lk_loader_list){room, 2};
}

/* The student's log-probabilities and the teacher's probabilities, both at the temperature; and plain logits. */
static lk_status forward(lk_runner *runner, lk_graph *graph, const char *const *names, lk_value *const *inputs, int count)
{
    (void)names, (void)count;
    lk_value *x = inputs[0]; /* "features" come first */
    lk_value *student = lk_module_forward(lk_module_child(runner->model, "student"), x);
    lk_value *teacher = lk_op_detach(lk_module_forward(lk_module_child(runner->model, "teacher"), x));
    lk_value *s = lk_op_log_softmax(lk_op_mul_scalar(student, 1.0 / TEMPERATURE), 1);
    lk_value *t = lk_op_softmax(lk_op_mul_scalar(teacher, 1.0 / TEMPERATURE), 1);
    lk_status status = lk_graph_output(graph, "student", s);
    if (!status) status = lk_graph_output(graph, "teacher", t);
    return status ? status : lk_graph_output(graph, "logits", student);
}

static lk_module *train_teacher(void)
{
    lk_named_loader room[2];
    lk_loader_list loaders = loaders_of(room);
    lk_module *first = lk_linear(10, 64), *second = lk_linear(64, 4);
    lk_module *teacher = lk_sequential(first, lk_relu(), second);
    lk_runner *runner = lk_supervised_runner();
    lk_status status = lk_train(runner, .model = lk_module_share(teacher), .criterion = lk_cross_entropy_loss(),
                                .optimizer = lk_adam(.lr = 0.02), .loaders = loaders, .num_epochs = 4);
    lk_runner_free(runner);
    if (status) {
        lk_module_free(teacher);
        return NULL;
    }
    lk_module_set_trainable(teacher, false);
    return teacher;
}

int main(void)
{
    static const lk_runner_ops ops = {LK_SIZE(lk_runner_ops), .forward = forward};
    lk_named_loader room[2];
    lk_module *teacher = train_teacher();
    lk_loader_list loaders = loaders_of(room);
    lk_runner *runner = lk_custom_runner(&ops, NULL);
    lk_status status = lk_train(runner,
        .model = lk_custom_module(.type = "Distillation",
                                  .children = lk_children({"student", lk_linear(10, 4)}, {"teacher", teacher})),
        .criterion = lk_kl_div_loss(.reduction = LK_REDUCTION_BATCH_MEAN), .optimizer = lk_adam(.lr = 0.02),
        .loaders = loaders, .num_epochs = 4,
        .callbacks = lk_callbacks(lk_criterion_callback(.input_key = "student", .target_key = "teacher"),
                                  lk_accuracy_callback(.num_classes = 4)),
        .valid_loader = "valid", .verbose = true);
    return learned(runner, status, "accuracy01", 0.85);
}
